//! The task of one server: runs its state machine, its attempts to connect, and the reading of its lists.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbound::Reach;
use spile_core::CatalogChange;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use upstream::{ClientHandler, Connection, ConnectionEvent, Subscription, TokenSlot};
use url::Url;
use wire::NotificationFilter;
use wire::client::{ClientError, IncomingInputRequest, InputReply, InputRequestKind, ServerInfo};

use super::attempt::{
    Attempt, AttemptError, ListSubscription, Opened, ReadLists, list_changes, read_lists, review,
};
use super::live_roots::LiveRoots;
use super::state::{Event, Failure, Status, Step, UpstreamState};
use super::tokens::keep_valid;
use super::watched_resources::{ResourceSubscriptions, WatchedResources};
use super::{ManagerHost, ManagerOptions, RegistryBuilder, ServerStatus};
use crate::config::ConfiguredServer;
use crate::decisions::Permission;
use crate::registry::ServerLists;

/// What others want from the task.
pub(super) enum Command {
    /// A caller needs the server; answered when the state machine has been asked.
    Wanted(oneshot::Sender<()>),
    /// Somebody reads what the servers offer.
    LookedAt,
    /// A call found this connection broken.
    Lost(Arc<OpenConnection>, String),
    /// A call on this connection timed out, or broke for this reason: the server may hang or be gone.
    Suspect(Arc<OpenConnection>, Option<String>),
    Unauthorized,
    Retry,
    /// The user changed something outside: connect if there is no connection, else read the lists again.
    LookAgain,
    SignedIn,
    Disable,
    Enable,
    /// The entry declares other roots.
    RootsChanged,
    /// End the connection and the task. A server that is removed leaves the registry.
    Stop {
        is_removed: bool,
    },
}

/// An open connection, and the token that it sends.
pub(super) struct OpenConnection {
    pub(super) connection: Connection,
    pub(super) token: TokenSlot,
    /// Where one signs in.
    pub(super) url: Option<Url>,
    /// What signing in may reach.
    pub(super) reach: Reach,
}

impl OpenConnection {
    /// Whether the server lets a ping time out. Any answer, also an error, is a sign of life.
    pub(super) async fn hangs(&self, timeout_ms: u64) -> bool {
        matches!(
            self.connection.ping(Some(timeout_ms)).await,
            Err(ClientError::Timeout { .. } | ClientError::ConnectionClosed(_))
        )
    }
}

/// What others see.
#[derive(Clone)]
pub(super) struct View {
    server: Arc<ConfiguredServer>,
    pub(super) status: Status,
    pub(super) error: Option<String>,
    pub(super) connection: Option<Arc<OpenConnection>>,
    /// What the server declared, once it was connected.
    pub(super) info: Option<Arc<ServerInfo>>,
    pub(super) lists: Arc<ServerLists>,
    /// How often it was connected.
    pub(super) connects: u64,
    stderr: Arc<StderrLines>,
}

impl View {
    fn offered_tools(&self) -> usize {
        match &self.server.entry {
            Ok(entry) => self.lists.tools.iter().filter(|tool| entry.tools.offers_definition(tool)).count(),
            Err(_) => 0,
        }
    }

    pub(super) fn status(&self, name: &str) -> ServerStatus {
        ServerStatus {
            name: name.to_owned(),
            status: self.status,
            error: self.error.clone(),
            server: self.info.as_ref().map(|info| {
                let version = info.protocol_version.as_str();
                format!("{} {} · protocol {version}", info.name, info.server_version)
            }),
            instructions: self.info.as_ref().and_then(|info| info.instructions.clone()),
            tools: self.offered_tools(),
            prompts: self.lists.prompts.len(),
            resources: self.lists.resources.len(),
            unapproved: self.lists.unapproved.clone(),
            reconnects: self.connects.saturating_sub(1),
            stderr: self.stderr.all(),
        }
    }
}

/// The newest lines of stderr, over all processes of the server. Lines are cut by `upstream`.
#[derive(Default)]
pub(super) struct StderrLines(Mutex<VecDeque<String>>);

const STDERR_LINES_MAX: usize = 50;

impl StderrLines {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == STDERR_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// What a connection reports between two turns of the task. Many reports of one kind are one.
#[derive(Default)]
pub(super) struct Signals {
    pending: Mutex<PendingSignals>,
    notify: Notify,
}

#[derive(Default)]
struct PendingSignals {
    closed: Option<String>,
    is_list_changed: bool,
}

impl Signals {
    fn set(&self, change: impl FnOnce(&mut PendingSignals)) {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }

    fn lists_changed(&self) {
        self.set(|pending| pending.is_list_changed = true);
    }
}

/// Our side of one connection.
pub(super) struct Handler {
    pub(super) server: String,
    pub(super) host: Arc<dyn ManagerHost>,
    pub(super) signals: Arc<Signals>,
    pub(super) stderr: Arc<StderrLines>,
    pub(super) roots: Arc<LiveRoots>,
}

impl ClientHandler for Handler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        if request.kind == InputRequestKind::Roots
            && let Some(reply) = self.roots.reply()
        {
            return Box::pin(std::future::ready(reply));
        }
        self.host.on_input_request(&self.server, request)
    }

    fn on_event(&self, event: ConnectionEvent) {
        match &event {
            ConnectionEvent::Closed(error) => {
                self.signals.set(|pending| pending.closed = Some(error.to_string()));
            }
            ConnectionEvent::Reinitialized(_)
            | ConnectionEvent::CatalogChanged(
                CatalogChange::Tools | CatalogChange::Prompts | CatalogChange::Resources,
            ) => self.signals.lists_changed(),
            ConnectionEvent::Stderr(line) => self.stderr.push(line),
            ConnectionEvent::CatalogChanged(CatalogChange::Resource(_))
            | ConnectionEvent::Log { .. }
            | ConnectionEvent::ElicitationCompleted(_)
            | ConnectionEvent::ProtocolWarning(_) => {}
        }
        self.host.on_event(&self.server, &event);
    }
}

pub(super) struct ServerTask {
    server: Arc<ConfiguredServer>,
    options: Arc<ManagerOptions>,
    host: Arc<dyn ManagerHost>,
    starts: Arc<Semaphore>,
    registry: Arc<RegistryBuilder>,
    commands: mpsc::Receiver<Command>,
    view: watch::Sender<View>,
    state: UpstreamState,
    started_at: Instant,
    /// The attempt to connect, if there is one.
    attempt: JoinSet<Result<Opened, AttemptError>>,
    /// The work on an open connection: lists, subscription, ping.
    work: JoinSet<Work>,
    signals: Arc<Signals>,
    watched: Arc<WatchedResources>,
    pub(super) roots: Arc<LiveRoots>,
    resource_subscriptions: ResourceSubscriptions,
    /// The lists changed again while they were read.
    is_stale: bool,
    is_listing: bool,
}

enum Work {
    Lists(Result<ServerLists, String>),
    /// A subscription to one resource; `None` if the server refused it.
    Watched(String, Option<Subscription>),
    /// The server does not answer a ping; why it was sent, if that says more.
    Hangs(Arc<OpenConnection>, Option<String>),
    Done,
}

impl ServerTask {
    pub(super) fn new(
        server: Arc<ConfiguredServer>,
        options: Arc<ManagerOptions>,
        host: Arc<dyn ManagerHost>,
        starts: Arc<Semaphore>,
        registry: Arc<RegistryBuilder>,
        commands: mpsc::Receiver<Command>,
        watched: Arc<WatchedResources>,
    ) -> (Self, watch::Receiver<View>) {
        let (view, receiver) = watch::channel(View {
            server: server.clone(),
            status: Status::Disconnected,
            error: None,
            connection: None,
            info: None,
            lists: Arc::default(),
            connects: 0,
            stderr: Arc::default(),
        });
        let state = UpstreamState::new(options.retry);
        let roots = Arc::new(LiveRoots::new(server.clone(), host.clone()));
        let task = Self {
            server,
            options,
            host,
            starts,
            registry,
            commands,
            view,
            state,
            started_at: Instant::now(),
            attempt: JoinSet::new(),
            work: JoinSet::new(),
            signals: Arc::default(),
            watched,
            roots,
            resource_subscriptions: ResourceSubscriptions::default(),
            is_stale: false,
            is_listing: false,
        };
        (task, receiver)
    }

    /// Runs until the manager is closed.
    pub(super) async fn run(mut self, permission: Permission) {
        match permission {
            Permission::Allowed => self.apply(Event::Wanted, None),
            Permission::NeedsApproval => self.disable("it is not approved"),
            Permission::Changed => self.disable("it has changed since it was approved"),
            Permission::Disabled => self.disable("by the user"),
            Permission::DisabledInFile if self.server.disabled_in.is_some() => self.disable("in Claude Code"),
            Permission::DisabledInFile => self.disable("in its file"),
            Permission::Invalid => {
                let error = self.server.entry.as_ref().err().map(ToString::to_string);
                self.disable(&error.unwrap_or_default());
            }
        }
        loop {
            let due = self.state.deadline_ms().map(|ms| self.started_at + Duration::from_millis(ms));
            let (signals, watched) = (self.signals.clone(), self.watched.clone());
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Stop { is_removed }) => {
                        if is_removed {
                            self.registry.set(&self.server, None);
                        }
                        break;
                    }
                    Some(command) => self.handle(command),
                    None => break,
                },
                Some(ended) = self.attempt.join_next() => self.attempt_ended(ended),
                Some(done) = self.work.join_next() => self.work_done(done),
                () = signals.notify.notified() => self.on_signals(),
                () = watched.changed.notified() => self.subscribe_to_resources(),
                () = watched.lists_changed.notified() => self.read_lists(),
                () = sleep_until(due) => self.apply(Event::TimePassed, None),
            }
        }
        self.attempt.shutdown().await;
        self.work.shutdown().await;
        self.resource_subscriptions.clear(&self.watched);
        let mut connection = None;
        self.view.send_modify(|view| connection = view.connection.take());
        if let Some(open) = connection.and_then(Arc::into_inner) {
            open.connection.close().await;
        }
    }

    fn disable(&mut self, reason: &str) {
        self.apply(Event::Disable, Some(reason.to_owned()));
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Wanted(reply) => {
                self.apply(Event::Wanted, None);
                let _ = reply.send(());
            }
            Command::LookedAt => self.apply(Event::LookedAt, None),
            Command::Lost(connection, reason) => {
                if self.is_current(&connection) {
                    self.apply(Event::Lost, Some(reason));
                }
            }
            Command::Suspect(connection, reason) => {
                if self.is_current(&connection) {
                    let timeout_ms = self.options.ping_timeout_ms;
                    self.work.spawn(async move {
                        match connection.hangs(timeout_ms).await {
                            true => Work::Hangs(connection, reason),
                            false => Work::Done,
                        }
                    });
                }
            }
            Command::Unauthorized => self.apply(Event::Unauthorized, None),
            Command::Stop { .. } => {}
            Command::Retry => self.apply(Event::Retry, None),
            Command::LookAgain if self.state.status() == Status::Connected => self.read_lists(),
            Command::LookAgain => self.apply(Event::Retry, None),
            Command::RootsChanged => {
                self.view.borrow().connection.iter().for_each(|open| open.connection.roots_changed());
            }
            Command::SignedIn => self.apply(Event::SignedIn, None),
            Command::Disable => self.disable("by the user"),
            Command::Enable => {
                self.apply(Event::Enable, None);
                self.apply(Event::Wanted, None);
            }
        }
    }

    fn is_current(&self, connection: &Arc<OpenConnection>) -> bool {
        self.view.borrow().connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    fn apply(&mut self, event: Event, error: Option<String>) {
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.state.status();
        let step = self.state.apply(event, now_ms, self.host.random());
        match step {
            Step::Nothing => {}
            Step::Open => self.open(),
            Step::Close => self.drop_connection(),
        }
        let status = self.state.status();
        if status == before && error.is_none() {
            return;
        }
        self.view.send_modify(|view| {
            view.status = status;
            match status {
                Status::Connected | Status::Disconnected => view.error = None,
                Status::Connecting
                | Status::Reconnecting
                | Status::NeedsAuth
                | Status::Error
                | Status::Disabled => view.error = error.or(view.error.take()),
            }
        });
        if status == Status::Disabled {
            self.view.send_modify(|view| view.lists = Arc::default());
            self.registry.set(&self.server, None);
        }
        if status != before {
            let status = self.view.borrow().status(&self.server.name);
            self.host.on_status(&self.server.name, &status);
        }
    }

    fn open(&mut self) {
        let attempt = Attempt {
            server: self.server.clone(),
            options: self.options.clone(),
            host: self.host.clone(),
            starts: self.starts.clone(),
            stderr: self.view.borrow().stderr.clone(),
            roots: self.roots.clone(),
            known: self.view.borrow().lists.clone(),
        };
        self.attempt.spawn(attempt.run());
    }

    fn drop_connection(&mut self) {
        self.attempt.abort_all();
        self.attempt = JoinSet::new();
        self.work.abort_all();
        self.work = JoinSet::new();
        self.resource_subscriptions.clear(&self.watched);
        self.is_listing = false;
        self.signals = Arc::default();
        let mut old = None;
        self.view.send_modify(|view| old = view.connection.take());
        // Calls that still hold the connection keep it until they end; then dropping it stops the process.
        if let Some(open) = old.and_then(Arc::into_inner) {
            tokio::spawn(open.connection.close());
        }
    }

    fn attempt_ended(&mut self, ended: Result<Result<Opened, AttemptError>, tokio::task::JoinError>) {
        let error = match ended {
            Ok(Ok(opened)) => return self.opened(opened),
            Ok(Err(error)) => error,
            // An aborted attempt was replaced.
            Err(error) if error.is_cancelled() => return,
            Err(error) => AttemptError {
                failure: Failure::Transient,
                message: format!("this is a bug, please report it: {error}"),
            },
        };
        self.apply(Event::Failed(error.failure), Some(error.message));
    }

    fn opened(&mut self, opened: Opened) {
        let Opened { connection, lists, signals, subscribed } = opened;
        let info = connection.connection.server_info();
        let connection = Arc::new(connection);
        self.signals = signals;
        let lists = Arc::new(lists);
        self.registry.set(&self.server, Some(lists.clone()));
        self.view.send_modify(|view| {
            view.connection = Some(connection.clone());
            view.info = Some(Arc::new(info));
            view.lists = lists;
            view.connects += 1;
        });
        self.apply(Event::Opened, None);
        self.follow_lists(&connection, subscribed);
        self.subscribe_to_resources();
        self.keep_token_valid(&connection);
        self.host.on_lists_read(&self.server.name);
        // It may have closed or changed before anyone looked.
        self.on_signals();
    }

    /// Keeps the subscription to changed lists. One that ends is made again, and the lists are read again: changes in between
    /// were not announced.
    fn follow_lists(&mut self, connection: &Arc<OpenConnection>, subscribed: ListSubscription) {
        let (mut subscription, mut may_have_missed) = match subscribed {
            ListSubscription::Refused => return,
            ListSubscription::Subscribed(subscription) => (Some(subscription), false),
            ListSubscription::Unanswered => (None, true),
        };
        // Only while the connection is used otherwise: this must not keep it open.
        let (connection, signals) = (Arc::downgrade(connection), self.signals.clone());
        let policy = self.options.retry;
        self.work.spawn(async move {
            let mut wait_ms = policy.backoff_min_ms;
            loop {
                if let Some(mut subscription) = subscription.take() {
                    if may_have_missed {
                        signals.lists_changed();
                    }
                    may_have_missed = true;
                    let since = Instant::now();
                    subscription.wait_ended().await;
                    if since.elapsed() >= Duration::from_millis(policy.stable_ms) {
                        wait_ms = policy.backoff_min_ms;
                    }
                }
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                wait_ms = wait_ms.saturating_mul(2).min(policy.backoff_max_ms);
                let Some(open) = connection.upgrade() else { return Work::Done };
                subscription = open.connection.subscribe(&list_changes()).await.ok();
            }
        });
    }

    fn keep_token_valid(&mut self, connection: &OpenConnection) {
        let Some(url) = connection.url.clone() else { return };
        let (slot, server, host) = (connection.token.clone(), self.server.clone(), self.host.clone());
        let reach = connection.reach;
        self.work.spawn(async move {
            keep_valid(server, &url, reach, &slot, host).await;
            Work::Done
        });
    }

    /// Subscribes to the resources that somebody watches: when that changes, and on each new connection.
    fn subscribe_to_resources(&mut self) {
        let Some(connection) = self.view.borrow().connection.clone() else { return };
        for uri in self.resource_subscriptions.reconcile(&self.watched) {
            let connection = connection.clone();
            self.work.spawn(async move {
                let resource_uris = vec![uri.clone()];
                let filter = NotificationFilter { resource_uris, ..NotificationFilter::default() };
                Work::Watched(uri, connection.connection.subscribe(&filter).await.ok())
            });
        }
    }

    fn on_signals(&mut self) {
        let signals = self.signals.clone();
        let pending = std::mem::take(&mut *signals.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(reason) = pending.closed {
            return self.apply(Event::Lost, Some(reason));
        }
        if pending.is_list_changed {
            self.read_lists();
        }
    }

    /// One at a time; a change in between is one more.
    fn read_lists(&mut self) {
        let Some(connection) = self.view.borrow().connection.clone() else { return };
        if self.is_listing {
            self.is_stale = true;
            return;
        }
        self.is_listing = true;
        let timeout_ms = self.options.start_timeout_ms;
        let (server, host) = (self.server.clone(), self.host.clone());
        let known = self.view.borrow().lists.clone();
        self.work.spawn(async move {
            let ReadLists { tools, others } =
                read_lists(&connection.connection, &server.name, &known, timeout_ms).await;
            let before = ServerLists { tools: Vec::new(), unapproved: Vec::new(), ..(*known).clone() };
            Work::Lists(match tools {
                // Nothing is new.
                Err(error) if others == before => Err(error.to_string()),
                tools => {
                    let tools = tools.unwrap_or_else(|_| known.tools.clone());
                    review(ServerLists { tools, ..others }, &server, &*host).await
                }
            })
        });
    }

    fn work_done(&mut self, done: Result<Work, tokio::task::JoinError>) {
        match done {
            Ok(Work::Lists(lists)) => {
                self.is_listing = false;
                match lists {
                    Ok(lists) => {
                        let lists = Arc::new(lists);
                        self.view.send_modify(|view| view.lists = lists.clone());
                        self.registry.set(&self.server, Some(lists));
                        self.host.on_lists_read(&self.server.name);
                    }
                    // The lists of before are better than none.
                    Err(error) => {
                        tracing::warn!(server = self.server.name, %error, "cannot list tools, prompts and resources")
                    }
                }
                if std::mem::take(&mut self.is_stale) {
                    self.read_lists();
                }
            }
            Ok(Work::Watched(uri, subscription)) => {
                self.resource_subscriptions.set(&self.watched, &uri, subscription);
            }
            Ok(Work::Hangs(connection, reason)) => {
                if self.is_current(&connection) {
                    drop(connection);
                    self.apply(Event::Lost, Some(reason.unwrap_or_else(|| "it does not answer".to_owned())));
                }
            }
            Ok(Work::Done) | Err(_) => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
