//! The task of one server: runs its state machine, its attempts to connect, and the reading of its lists.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outbound::{ConnectFailure, OutboundError};
use spile_core::CatalogChange;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use upstream::process::StartError;
use upstream::{
    BearerToken, ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError, Subscription,
};
use url::Url;
use wire::client::{ClientError, IncomingInputRequest, InputReply};
use wire::{ListKind, NotificationFilter};

use super::state::{Event, Failure, Status, Step, UpstreamState};
use super::{ManagerHost, ManagerOptions, RegistryBuilder, ServerStatus};
use crate::config::{ConfiguredServer, ResolvedTransport};
use crate::decisions::Permission;
use crate::registry::ServerLists;

/// What others want from the task.
pub(super) enum Command {
    /// A caller needs the server; answered when the state machine has been asked.
    Wanted(oneshot::Sender<()>),
    /// A call found this connection broken.
    Lost(Arc<OpenConnection>, String),
    /// A call on this connection timed out: the server may hang.
    Suspect(Arc<OpenConnection>),
    Unauthorized,
    Retry,
    SignedIn,
    Disable,
    Enable,
}

/// An open connection, and the token that it sends.
pub(super) struct OpenConnection {
    pub(super) connection: Connection,
    pub(super) bearer: BearerToken,
    /// Where one signs in.
    pub(super) url: Option<Url>,
}

/// What others see.
#[derive(Clone)]
pub(super) struct View {
    pub(super) status: Status,
    pub(super) error: Option<String>,
    pub(super) connection: Option<Arc<OpenConnection>>,
    server: Option<String>,
    instructions: Option<String>,
    lists: Arc<ServerLists>,
    stderr: Arc<StderrLines>,
}

impl View {
    pub(super) fn status(&self, name: &str) -> ServerStatus {
        ServerStatus {
            name: name.to_owned(),
            status: self.status,
            error: self.error.clone(),
            server: self.server.clone(),
            instructions: self.instructions.clone(),
            tools: self.lists.tools.len(),
            prompts: self.lists.prompts.len(),
            resources: self.lists.resources.len(),
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
struct Signals {
    pending: Mutex<PendingSignals>,
    notify: Notify,
}

#[derive(Default)]
struct PendingSignals {
    closed: Option<String>,
    is_list_changed: bool,
}

/// Our side of one connection.
struct Handler {
    server: String,
    host: Arc<dyn ManagerHost>,
    signals: Arc<Signals>,
    stderr: Arc<StderrLines>,
}

impl ClientHandler for Handler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        self.host.on_input_request(&self.server, request)
    }

    fn on_event(&self, event: ConnectionEvent) {
        let signal = |change: &dyn Fn(&mut PendingSignals)| {
            change(&mut self.signals.pending.lock().unwrap_or_else(PoisonError::into_inner));
            self.signals.notify.notify_one();
        };
        match &event {
            ConnectionEvent::Closed(error) => signal(&|pending| pending.closed = Some(error.to_string())),
            ConnectionEvent::Reinitialized(_)
            | ConnectionEvent::CatalogChanged(
                CatalogChange::Tools | CatalogChange::Prompts | CatalogChange::Resources,
            ) => signal(&|pending| pending.is_list_changed = true),
            ConnectionEvent::Stderr(line) => self.stderr.push(line),
            ConnectionEvent::CatalogChanged(CatalogChange::Resource(_))
            | ConnectionEvent::Log { .. }
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
    subscription: Option<Subscription>,
    /// The lists changed again while they were read.
    is_stale: bool,
    is_listing: bool,
}

struct Opened {
    connection: OpenConnection,
    lists: ServerLists,
    signals: Arc<Signals>,
}

struct AttemptError {
    failure: Failure,
    message: String,
}

enum Work {
    Lists(Result<ServerLists, ClientError>),
    Subscribed(Option<Subscription>),
    /// The server does not answer a ping.
    Hangs(Arc<OpenConnection>),
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
    ) -> (Self, watch::Receiver<View>) {
        let (view, receiver) = watch::channel(View {
            status: Status::Disconnected,
            error: None,
            connection: None,
            server: None,
            instructions: None,
            lists: Arc::default(),
            stderr: Arc::default(),
        });
        let state = UpstreamState::new(options.retry);
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
            subscription: None,
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
            Permission::DisabledInFile => self.disable("in its file"),
            Permission::Invalid => {
                let error = self.server.entry.as_ref().err().map(ToString::to_string);
                self.disable(&error.unwrap_or_default());
            }
        }
        loop {
            let due = self.state.deadline_ms().map(|ms| self.started_at + Duration::from_millis(ms));
            let signals = self.signals.clone();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command),
                    None => break,
                },
                Some(ended) = self.attempt.join_next() => self.attempt_ended(ended),
                Some(done) = self.work.join_next() => self.work_done(done),
                () = signals.notify.notified() => self.on_signals(),
                () = sleep_until(due) => self.apply(Event::TimePassed, None),
            }
        }
        self.attempt.shutdown().await;
        self.work.shutdown().await;
        self.subscription = None;
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
            Command::Lost(connection, reason) => {
                if self.is_current(&connection) {
                    self.apply(Event::Lost, Some(reason));
                }
            }
            Command::Suspect(connection) => {
                if self.is_current(&connection) {
                    let timeout_ms = self.options.ping_timeout_ms;
                    self.work.spawn(async move {
                        match connection.connection.ping(Some(timeout_ms)).await {
                            Err(ClientError::Timeout { .. } | ClientError::ConnectionClosed(_)) => {
                                Work::Hangs(connection)
                            }
                            // Any answer, also an error, is a sign of life.
                            Ok(_) | Err(_) => Work::Done,
                        }
                    });
                }
            }
            Command::Unauthorized => self.apply(Event::Unauthorized, None),
            Command::Retry => self.apply(Event::Retry, None),
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
        let step = self.state.apply(event, now_ms, random());
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
        };
        self.attempt.spawn(attempt.run());
    }

    fn drop_connection(&mut self) {
        self.attempt.abort_all();
        self.attempt = JoinSet::new();
        self.work.abort_all();
        self.work = JoinSet::new();
        self.subscription = None;
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
        let Opened { connection, lists, signals } = opened;
        let info = connection.connection.server_info();
        let connection = Arc::new(connection);
        self.signals = signals;
        let lists = Arc::new(lists);
        self.registry.set(&self.server, Some(lists.clone()));
        self.view.send_modify(|view| {
            view.connection = Some(connection.clone());
            view.server = Some(format!(
                "{} {} · protocol {}",
                info.name,
                info.server_version,
                info.protocol_version.as_str()
            ));
            view.instructions = info.instructions.clone();
            view.lists = lists;
        });
        self.apply(Event::Opened, None);
        self.subscribe(&connection);
        // It may have closed or changed before anyone looked.
        self.on_signals();
    }

    /// Asks for notifications of changed lists. Only the newest protocol version needs that.
    fn subscribe(&mut self, connection: &Arc<OpenConnection>) {
        let connection = connection.clone();
        self.work.spawn(async move {
            let filter = NotificationFilter {
                tools_list_changed: true,
                prompts_list_changed: true,
                resources_list_changed: true,
                ..NotificationFilter::default()
            };
            Work::Subscribed(connection.connection.subscribe(&filter).await.ok())
        });
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
        self.work.spawn(async move { Work::Lists(read_lists(&connection.connection, timeout_ms).await) });
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
            Ok(Work::Subscribed(subscription)) => self.subscription = subscription,
            Ok(Work::Hangs(connection)) => {
                if self.is_current(&connection) {
                    drop(connection);
                    self.apply(Event::Lost, Some("it does not answer".to_owned()));
                }
            }
            Ok(Work::Done) | Err(_) => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Only spreads attempts, so it need not be secure.
fn random() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() as u32
}

/// One attempt to start or reach a server.
struct Attempt {
    server: Arc<ConfiguredServer>,
    options: Arc<ManagerOptions>,
    host: Arc<dyn ManagerHost>,
    starts: Arc<Semaphore>,
    stderr: Arc<StderrLines>,
}

impl Attempt {
    async fn run(self) -> Result<Opened, AttemptError> {
        let entry = self.server.entry.as_ref().ok();
        let timeout_ms =
            entry.and_then(|entry| entry.start_timeout_ms).unwrap_or(self.options.start_timeout_ms);
        let permit = self.starts.clone().acquire_owned().await.ok();
        let opening = async {
            let opening = self.open(timeout_ms);
            tokio::pin!(opening);
            // A server that hangs keeps its place for a moment only, so that the others can start.
            let share = tokio::time::sleep(Duration::from_millis(self.options.start_share_ms));
            tokio::select! {
                opened = &mut opening => return opened,
                () = share => drop(permit),
            }
            opening.await
        };
        match tokio::time::timeout(Duration::from_millis(timeout_ms), opening).await {
            Ok(opened) => opened,
            Err(_) => Err(AttemptError {
                failure: Failure::Transient,
                message: format!("the server is not ready after {timeout_ms} ms"),
            }),
        }
    }

    async fn open(&self, timeout_ms: u64) -> Result<Opened, AttemptError> {
        let host = self.host.clone();
        let env = |name: &str| host.env(name);
        let resolved = self
            .server
            .resolve(&env, host.home().as_deref())
            .map_err(|error| AttemptError { failure: Failure::Permanent, message: error.to_string() })?;
        let signals = Arc::new(Signals::default());
        let bearer = BearerToken::default();
        let connection = match &resolved {
            ResolvedTransport::Process(command) => {
                let options = self.connection_options(Vec::new(), &bearer);
                Connection::spawn(command, options, self.handler(&signals)).await
            }
            ResolvedTransport::Remote { target, headers } => {
                let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
                if let Some(url) = resolved.url().filter(|_| !has_own) {
                    bearer.set(self.host.access_token(url, None).await);
                }
                let options = self.connection_options(headers.clone(), &bearer);
                let first = Connection::open(target, options.clone(), self.handler(&signals)).await;
                match (first, bearer.get()) {
                    // The token may have been revoked; a refresh may help.
                    (
                        Err(OpenError::Failed(ClientError::Unauthorized { status: 401, .. })),
                        rejected @ Some(_),
                    ) => {
                        if let Some(url) = resolved.url() {
                            bearer.set(self.host.access_token(url, rejected).await);
                        }
                        Connection::open(target, options, self.handler(&signals)).await
                    }
                    (first, _) => first,
                }
            }
        };
        let connection = connection
            .map_err(|error| AttemptError { failure: classify(&error), message: error.to_string() })?;
        let lists = read_lists(&connection, timeout_ms).await.map_err(|error| AttemptError {
            failure: Failure::Transient,
            message: format!("cannot list the tools: {error}"),
        })?;
        let url = resolved.url().cloned();
        Ok(Opened { connection: OpenConnection { connection, bearer, url }, lists, signals })
    }

    fn connection_options(&self, headers: Vec<(String, String)>, bearer: &BearerToken) -> ConnectionOptions {
        ConnectionOptions { headers, bearer: Some(bearer.clone()), ..self.options.connection.clone() }
    }

    fn handler(&self, signals: &Arc<Signals>) -> Arc<dyn ClientHandler> {
        Arc::new(Handler {
            server: self.server.name.clone(),
            host: self.host.clone(),
            signals: signals.clone(),
            stderr: self.stderr.clone(),
        })
    }
}

/// Reads every list that the server has. Only the tools must be readable: a server with broken prompts is still useful.
async fn read_lists(connection: &Connection, timeout_ms: u64) -> Result<ServerLists, ClientError> {
    let optional = async |kind: ListKind| {
        if !connection.has_capability(kind.result_key()) && kind != ListKind::Templates {
            return Vec::new();
        }
        connection.list(kind, Some(timeout_ms)).await.unwrap_or_default()
    };
    let tools = if connection.has_capability(ListKind::Tools.result_key()) {
        connection.list(ListKind::Tools, Some(timeout_ms)).await?
    } else {
        Vec::new()
    };
    let prompts = optional(ListKind::Prompts).await;
    let resources = optional(ListKind::Resources).await;
    let has_resources = connection.has_capability(ListKind::Resources.result_key());
    let templates = if has_resources { optional(ListKind::Templates).await } else { Vec::new() };
    Ok(ServerLists { tools, prompts, resources, templates })
}

/// Whether another attempt may succeed.
fn classify(error: &OpenError) -> Failure {
    let by_client_error = |error: &ClientError| match error {
        ClientError::Unauthorized { .. } => Failure::Unauthorized,
        ClientError::HttpStatus { status: 408 | 425 | 429 | 500.., .. } => Failure::Transient,
        ClientError::HttpStatus { .. } | ClientError::UnsupportedVersion(_) => Failure::Permanent,
        ClientError::Server(_)
        | ClientError::ProtocolViolation(_)
        | ClientError::Timeout { .. }
        | ClientError::ConnectionClosed(_)
        | ClientError::Cancelled
        | ClientError::InputRefused(_)
        | ClientError::Busy => Failure::Transient,
    };
    match error {
        OpenError::Failed(error) | OpenError::Child { error, .. } => by_client_error(error),
        OpenError::Connect { failure, .. } | OpenError::Outbound(OutboundError::Connect { failure, .. }) => {
            match failure {
                // Only a person can change the certificate or the address.
                ConnectFailure::UnknownIssuer | ConnectFailure::NotTls => Failure::Permanent,
                ConnectFailure::SocketNotFound
                | ConnectFailure::Refused
                | ConnectFailure::NameNotResolved
                | ConnectFailure::Other => Failure::Transient,
            }
        }
        OpenError::Start(StartError::SpawnFailed { .. } | StartError::SetupFailed { .. }) => {
            Failure::Transient
        }
        OpenError::Outbound(_) | OpenError::Start(_) => Failure::Permanent,
    }
}
