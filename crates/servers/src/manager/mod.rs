//! Keeps a connection to every configured server, and heals those that break.
//!
//! Each server has one task ([`server`]) that owns its state machine ([`state`]) and its connection. All servers
//! connect at once; what is ready is served, the rest joins when it is. Nothing that one server does delays another.
//!
//! A call uses the connection directly if there is one. While a server reconnects, calls wait: a bounded number of
//! them, for a bounded time, and they fail at once when the server is given up or disabled. A call that may have run
//! is never sent twice.

mod attempt;
mod caller_connection;
mod live_roots;
mod reload;
mod server;
pub mod state;
mod tokens;
mod watched_resources;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use json::Json;
use outbound::Reach;
use spile_core::ClientCapabilities;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError, ProgressCallback};
use url::Url;
use wire::client::{ClientCall, ClientError, CloseReason, IncomingInputRequest, InputReply};
use wire::method::Method;

use crate::config::{ConfigScope, ConfiguredServer};
use crate::decisions::Permission;
use crate::definitions::{DefinitionPins, UnapprovedTool};
use crate::oauth::{CredentialStore, LoginError};
use crate::registry::{ServerLists, ServerRegistry};
pub use caller_connection::{CallFailure, CallerConnection};
use live_roots::LiveRoots;
pub use reload::{ConfigFollower, ServerChange, follow};
use server::{Command, ServerTask, View};
use state::{RetryPolicy, Status};
use watched_resources::WatchedResources;

/// How the servers are connected.
#[derive(Clone)]
pub struct ManagerOptions {
    pub connection: ConnectionOptions,
    pub retry: RetryPolicy,
    /// How long starting and connecting may take, unless the server's entry says so.
    pub start_timeout_ms: u64,
    /// How many servers start at the same time.
    pub starts_max: usize,
    /// A server that takes longer to start no longer counts against `starts_max`.
    pub start_share_ms: u64,
    /// How long a call may go without a result or progress, unless the server's entry says so.
    pub call_idle_timeout_ms: u64,
    /// How long a call may take in all, whatever progress it reports.
    pub call_timeout_ms: u64,
    /// How many calls may wait for one server to come back.
    pub waiting_calls_max: usize,
    /// How long a call waits for its server to come back.
    pub wait_timeout_ms: u64,
    /// How long a server that let a call time out may take to answer a ping before it is restarted.
    pub ping_timeout_ms: u64,
    /// Where servers may be that were registered while the program runs.
    pub registered_reach: Reach,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            connection: ConnectionOptions::default(),
            retry: RetryPolicy::default(),
            start_timeout_ms: 30_000,
            starts_max: 8,
            start_share_ms: 2000,
            call_idle_timeout_ms: 120_000,
            call_timeout_ms: 30 * 60 * 1000,
            waiting_calls_max: 64,
            wait_timeout_ms: 60_000,
            ping_timeout_ms: 5000,
            registered_reach: Reach::Public,
        }
    }
}

impl ManagerOptions {
    /// How long a call to this server may take.
    pub fn call_timeouts(&self, server: &ConfiguredServer) -> CallTimeouts {
        let own = server.entry.as_ref().ok().and_then(|entry| entry.call_timeout_ms);
        let idle_ms = own.unwrap_or(self.call_idle_timeout_ms);
        CallTimeouts { idle_ms, total_ms: self.call_timeout_ms.max(idle_ms) }
    }

    /// Where this server may be, and everything that it names.
    pub fn reach_of(&self, server: &ConfiguredServer) -> Reach {
        match server.source.scope {
            ConfigScope::Dynamic => self.registered_reach,
            ConfigScope::Run | ConfigScope::Local | ConfigScope::Project | ConfigScope::User => {
                Reach::Anywhere
            }
        }
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the owner of a manager provides: the environment, credentials, and a person to ask.
pub trait ManagerHost: Send + Sync + 'static {
    /// The value of an environment variable.
    fn env(&self, name: &str) -> Option<String>;

    fn home(&self) -> Option<PathBuf> {
        None
    }

    /// Where the tokens of the user are. Without a store, [`Self::access_token`] is asked.
    fn credentials(&self) -> Option<CredentialStore> {
        None
    }

    /// Which tool definitions the user approved. Without it, all of them may be used.
    fn definitions(&self) -> Option<DefinitionPins> {
        None
    }

    /// An access token for the server at this address, from elsewhere; `rejected` is one
    /// that the server did not accept. `None`: there is none, and the user must sign in.
    fn access_token(&self, url: &Url, rejected: Option<String>) -> BoxFuture<Option<String>> {
        let _ = (url, rejected);
        Box::pin(async { None })
    }

    /// Spreads attempts to connect, so it need not be secure.
    fn random(&self) -> u32 {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish() as u32
    }

    /// Connects to a server that is neither a program nor at an address: one in the same process. `None` for all others.
    fn connect_in_process(
        &self,
        server: &str,
        options: &ConnectionOptions,
        handler: &Arc<dyn ClientHandler>,
    ) -> Option<BoxFuture<Result<Connection, OpenError>>> {
        let _ = (server, options, handler);
        None
    }

    /// What the manager's own connection to a server declares, beside the roots of its entry. A server may offer tools only to
    /// clients that can do something.
    fn capabilities(&self, server: &str) -> ClientCapabilities {
        let _ = server;
        ClientCapabilities::NONE
    }

    /// The server asks the user or the model something.
    fn on_input_request(&self, server: &str, request: IncomingInputRequest) -> BoxFuture<InputReply> {
        let _ = (server, request);
        Box::pin(async { InputReply::Declined("this client cannot ask the user".to_owned()) })
    }

    /// A log message, a line on stderr, a warning.
    fn on_event(&self, server: &str, event: &ConnectionEvent) {
        tracing::debug!(server, ?event);
    }

    /// The lists of a server were read again.
    fn on_lists_read(&self, server: &str) {
        tracing::debug!(server, "read the lists");
    }

    /// A server changed its state.
    fn on_status(&self, server: &str, status: &ServerStatus) {
        tracing::info!(server, status = status.status.name(), error = status.error.as_deref());
    }
}

/// What is known about one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub name: String,
    pub status: Status,
    /// Why it is not connected.
    pub error: Option<String>,
    /// Name, version and protocol version, once it was connected.
    pub server: Option<String>,
    pub instructions: Option<String>,
    pub tools: usize,
    pub prompts: usize,
    pub resources: usize,
    /// Tools whose definitions the user has not approved; `tools` counts them.
    pub unapproved: Vec<UnapprovedTool>,
    /// How often the connection was made again.
    pub reconnects: u64,
    /// The last lines that its process wrote to stderr.
    pub stderr: Vec<String>,
}

impl ServerStatus {
    /// Why it is not connected, in one line: of the lines that a process wrote, the last one.
    pub fn error_line(&self) -> Option<String> {
        self.error.as_deref().map(first_and_last_line)
    }
}

fn first_and_last_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(last) => format!("{first} {last}"),
        None => first.to_owned(),
    }
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ServerCallError {
    #[error("unknown tool `{0}`")]
    UnknownTool(String),
    #[error("unknown server `{0}`")]
    UnknownServer(String),
    #[error("server `{server}` is disabled: {reason}")]
    Disabled { server: String, reason: String },
    #[error("server `{server}` needs you to sign in")]
    NeedsAuth { server: String },
    /// The operation needs more rights than the token has.
    #[error("server `{server}` does not permit this operation (HTTP 403)")]
    NeedsScope { server: String, challenge: Option<String> },
    #[error("server `{server}` is not available: {reason}")]
    Unavailable { server: String, reason: String },
    #[error("server `{server}` is reconnecting, and {waiting} calls wait for it already")]
    QueueFull { server: String, waiting: usize },
    #[error("server `{server}` did not reconnect within {after_ms} ms")]
    WaitTimeout { server: String, after_ms: u64 },
    #[error(
        "server `{server}` sent neither a result nor progress within {after_ms} ms; the call was cancelled"
    )]
    Timeout { server: String, after_ms: u64 },
    /// It sent progress, and went on for too long.
    #[error("server `{server}` did not end the call within {after_ms} ms, and it was cancelled")]
    TooLong { server: String, after_ms: u64 },
    /// The connection or the response broke while the call ran. It was not sent again.
    #[error(
        "the connection to server `{server}` was lost during the call, which may have been executed: {reason}"
    )]
    Lost { server: String, reason: String },
    /// The connection broke, or could not be made, before the call was sent.
    #[error("the connection to server `{server}` was lost before the call: {reason}")]
    NotSent { server: String, reason: String },
    #[error("{0}")]
    Client(ClientError),
}

/// All configured servers.
pub struct Manager {
    servers: RwLock<BTreeMap<String, Arc<ServerHandle>>>,
    starter: Starter,
    registry: watch::Receiver<Arc<ServerRegistry>>,
    options: Arc<ManagerOptions>,
    host: Arc<dyn ManagerHost>,
}

/// What a new server needs.
struct Starter {
    options: Arc<ManagerOptions>,
    host: Arc<dyn ManagerHost>,
    starts: Arc<Semaphore>,
    registry: Arc<RegistryBuilder>,
}

struct ServerHandle {
    server: Arc<ConfiguredServer>,
    permission: Permission,
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<View>,
    waiting: Arc<Semaphore>,
    watched: Arc<WatchedResources>,
    roots: Arc<LiveRoots>,
    /// See [`Decisions::retries`](crate::decisions::Decisions::retries): those that were followed.
    retries: AtomicU64,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// The decisions of the user were not read yet.
const RETRIES_UNKNOWN: u64 = u64::MAX;

type ListedServer = (Arc<ConfiguredServer>, Arc<ServerLists>);

/// Rebuilds the registry when the lists of a server change.
pub(crate) struct RegistryBuilder {
    lists: Mutex<BTreeMap<String, ListedServer>>,
    registry: watch::Sender<Arc<ServerRegistry>>,
}

impl RegistryBuilder {
    /// `None`: the server offers nothing any more.
    fn set(&self, server: &Arc<ConfiguredServer>, lists: Option<Arc<ServerLists>>) {
        let mut all = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        match lists {
            Some(lists) => {
                all.insert(server.name.clone(), (server.clone(), lists));
            }
            // Another entry may have taken its name.
            None if all.get(&server.name).is_some_and(|(listed, _)| Arc::ptr_eq(listed, server)) => {
                all.remove(&server.name);
            }
            None => {}
        }
        let none = crate::config::ToolFilter::default();
        let entries = all.iter().map(|(name, (server, lists))| {
            let filter = server.entry.as_ref().map_or(&none, |entry| &entry.tools);
            (name.as_str(), &**lists, filter)
        });
        let new = ServerRegistry::build(entries);
        self.registry.send_if_modified(|old| {
            let is_new = **old != new;
            if is_new {
                *old = Arc::new(new);
            }
            is_new
        });
    }
}

impl Manager {
    /// Starts connecting to every server that may be started, and returns at once.
    pub fn start(
        servers: impl IntoIterator<Item = (ConfiguredServer, Permission)>,
        options: ManagerOptions,
        host: Arc<dyn ManagerHost>,
    ) -> Self {
        let options = Arc::new(options);
        let starts = Arc::new(Semaphore::new(options.starts_max));
        let (sender, registry) = watch::channel(Arc::default());
        let builder = Arc::new(RegistryBuilder { lists: Mutex::default(), registry: sender });
        let starter = Starter { options: options.clone(), host: host.clone(), starts, registry: builder };
        let start = |(server, permission): (ConfiguredServer, Permission)| {
            (server.name.clone(), starter.start(server, permission))
        };
        let handles = servers.into_iter().map(start).collect();
        Self { servers: RwLock::new(handles), starter, registry, options, host }
    }

    /// The servers as they are now. Never held while something is awaited.
    fn handles(&self) -> Vec<(String, Arc<ServerHandle>)> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|(name, handle)| (name.clone(), handle.clone())).collect()
    }

    fn find(&self, server: &str) -> Option<Arc<ServerHandle>> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }

    /// The tools of all servers, now.
    pub fn registry(&self) -> Arc<ServerRegistry> {
        self.registry.borrow().clone()
    }

    /// Notifies of every change of the registry. A receiver sees the newest one, however many there were.
    pub fn subscribe(&self) -> watch::Receiver<Arc<ServerRegistry>> {
        self.registry.clone()
    }

    pub fn status(&self, server: &str) -> Option<ServerStatus> {
        Some(self.find(server)?.view.borrow().status(server))
    }

    /// Everything that a server offers, as it listed it, with what the user has not approved.
    pub fn lists(&self, server: &str) -> Option<Arc<ServerLists>> {
        Some(self.find(server)?.view.borrow().lists.clone())
    }

    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.handles().iter().map(|(name, handle)| handle.view.borrow().status(name)).collect()
    }

    /// Where this server may be, and everything that it names.
    pub fn reach_of(&self, server: &ConfiguredServer) -> Reach {
        self.options.reach_of(server)
    }

    /// Waits until no server is connecting for the first time any more.
    pub async fn settled(&self) {
        for (_, handle) in self.handles() {
            let mut view = handle.view.clone();
            let is_settled = |view: &View| !matches!(view.status, Status::Disconnected | Status::Connecting);
            // An error means that the task has ended.
            let _ = view.wait_for(is_settled).await;
        }
    }

    /// Waits until the server has this status.
    pub async fn wait_for(&self, server: &str, status: Status) -> Option<ServerStatus> {
        let mut view = self.find(server)?.view.clone();
        let found = view.wait_for(|view| view.status == status).await.ok()?;
        Some(found.status(server))
    }

    /// Somebody reads what the server offers. One that never was connected is tried again, though not too often: nobody can
    /// call it.
    pub fn looked_at(&self, server: &str) {
        let Some(handle) = self.find(server) else { return };
        let is_unknown = {
            let view = handle.view.borrow();
            view.status == Status::Error && view.connects == 0
        };
        if is_unknown {
            // Where many commands wait, it is not this one that helps.
            let _ = handle.commands.try_send(Command::LookedAt);
        }
    }

    /// Connects now, whatever happened before.
    pub async fn retry(&self, server: &str) -> Result<(), ServerCallError> {
        self.send(server, Command::Retry).await
    }

    /// The user signed in: connects again.
    pub async fn signed_in(&self, server: &str) -> Result<(), ServerCallError> {
        self.send(server, Command::SignedIn).await
    }

    /// Ends the connection, and fails the calls that wait for it.
    pub async fn disable(&self, server: &str) -> Result<(), ServerCallError> {
        self.send(server, Command::Disable).await
    }

    pub async fn enable(&self, server: &str) -> Result<(), ServerCallError> {
        self.send(server, Command::Enable).await
    }

    async fn send(&self, server: &str, command: Command) -> Result<(), ServerCallError> {
        let handle = self.handle(server)?;
        handle.commands.send(command).await.map_err(|_| gone(server))
    }

    fn handle(&self, server: &str) -> Result<Arc<ServerHandle>, ServerCallError> {
        self.find(server).ok_or_else(|| ServerCallError::UnknownServer(server.to_owned()))
    }

    /// Calls a tool by its public name.
    pub async fn call_tool(
        &self,
        public_name: &str,
        arguments: &Json,
        on_progress: Option<ProgressCallback>,
    ) -> Result<Json, ServerCallError> {
        let registry = self.registry();
        let tool = registry.tool(public_name).ok_or_else(|| self.missing_tool(public_name))?;
        let params = Json::object(|out| {
            out.str("name", &tool.own_name).raw("arguments", arguments.as_str());
        });
        self.request(&tool.server, Method::ToolsCall, params, on_progress).await
    }

    /// Says so if a tool is suspended: a caller that knew it would think that it is gone.
    fn missing_tool(&self, public_name: &str) -> ServerCallError {
        let suspended = self.handles().iter().find_map(|(name, handle)| {
            let lists = handle.view.borrow().lists.clone();
            let found = lists.unapproved.iter().find(|one| {
                one.is_suspended && {
                    let own = lists.tools.iter().filter_map(|tool| {
                        tool.to_doc().root().get("name").and_then(|name| Some(name.str()?.into_owned()))
                    });
                    let own: Vec<String> = own.collect();
                    let public = crate::names::public_names(name, own.iter().map(String::as_str));
                    public.get(one.tool.as_str()).is_some_and(|public| public == public_name)
                }
            })?;
            let reason = format!("tool `{}` is {}", found.tool, found.reason());
            Some(ServerCallError::Unavailable { server: name.clone(), reason })
        });
        suspended.unwrap_or_else(|| ServerCallError::UnknownTool(public_name.to_owned()))
    }

    /// Sends any request to a server, as soon as it is connected.
    pub async fn request(
        &self,
        server: &str,
        method: Method,
        params: Json,
        on_progress: Option<ProgressCallback>,
    ) -> Result<Json, ServerCallError> {
        let handle = self.handle(server)?;
        let mut connection = handle.connection(&self.options, None).await?;
        let mut first =
            self.call_once(&handle, &connection, method, params.clone(), on_progress.clone()).await;
        // The connection was gone before the call was sent, so it may be sent on the next one.
        if let Err(ServerCallError::NotSent { .. }) = first {
            connection = handle.connection(&self.options, Some(&connection)).await?;
            first = self.call_once(&handle, &connection, method, params.clone(), on_progress.clone()).await;
        }
        let (Err(ServerCallError::NeedsAuth { .. }), Some(url)) = (&first, &connection.url) else {
            return first;
        };
        // The server refused the request before it ran, so it may be sent again with another token.
        let rejected = connection.token.text();
        let token =
            match tokens::access_token(&handle.server, url, connection.reach, rejected.clone(), &*self.host)
                .await
            {
                Ok(token) => token,
                Err(error) => return Err(no_token(server, &error)),
            };
        if token.as_ref().is_none_or(|token| Some(token.text()) == rejected.as_deref()) {
            let _ = handle.commands.send(Command::Unauthorized).await;
            return first;
        }
        connection.token.set(token);
        let again = self.call_once(&handle, &connection, method, params, on_progress).await;
        if let Err(ServerCallError::NeedsAuth { .. }) = again {
            let _ = handle.commands.send(Command::Unauthorized).await;
        }
        again
    }

    async fn call_once(
        &self,
        handle: &ServerHandle,
        connection: &Arc<server::OpenConnection>,
        method: Method,
        params: Json,
        on_progress: Option<ProgressCallback>,
    ) -> Result<Json, ServerCallError> {
        let timeouts @ CallTimeouts { idle_ms, total_ms } = handle.call_timeouts(&self.options);
        let call = ClientCall {
            timeout_ms: Some(idle_ms),
            total_timeout_ms: Some(total_ms),
            ..ClientCall::new(method, params)
        };
        // A server that is not asked for progress sends none, and would seem to hang.
        let on_progress = on_progress.unwrap_or_else(|| Arc::new(|_| ()));
        let result = connection.connection.call(call, Some(on_progress)).await;
        match result {
            Ok(result) => Ok(result),
            Err(error) => Err(handle.report(connection, timeouts, error).await),
        }
    }

    /// Closes every connection in an orderly way.
    pub async fn close(&self) {
        let handles = self.handles();
        for (_, handle) in &handles {
            // An error means that the task has ended.
            let _ = handle.commands.send(Command::Stop { is_removed: false }).await;
        }
        for (_, handle) in handles {
            let task = handle.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                // A task that panicked has no connection left.
                let _ = task.await;
            }
        }
    }
}

impl Starter {
    fn start(&self, server: ConfiguredServer, permission: Permission) -> Arc<ServerHandle> {
        let server = Arc::new(server);
        let (commands, receiver) = mpsc::channel(16);
        let watched = Arc::new(WatchedResources::default());
        let (task, view) = ServerTask::new(
            server.clone(),
            self.options.clone(),
            self.host.clone(),
            self.starts.clone(),
            self.registry.clone(),
            receiver,
            watched.clone(),
        );
        let roots = task.roots.clone();
        let waiting = Arc::new(Semaphore::new(self.options.waiting_calls_max));
        let task = Mutex::new(Some(tokio::spawn(task.run(permission))));
        let retries = AtomicU64::new(RETRIES_UNKNOWN);
        Arc::new(ServerHandle { server, permission, commands, view, waiting, watched, roots, retries, task })
    }
}

fn gone(server: &str) -> ServerCallError {
    ServerCallError::Unavailable { server: server.to_owned(), reason: "it was removed".to_owned() }
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimeouts {
    /// Without a result or progress.
    pub idle_ms: u64,
    /// In all, whatever progress it reports.
    pub total_ms: u64,
}

/// Why a call failed, for its caller.
fn call_error(server: &str, timeouts: CallTimeouts, error: ClientError) -> ServerCallError {
    let server = server.to_owned();
    match error {
        ClientError::Unauthorized { status: 401, .. } => ServerCallError::NeedsAuth { server },
        ClientError::Unauthorized { challenge, .. } => ServerCallError::NeedsScope { server, challenge },
        ClientError::Timeout { after_ms, .. } if after_ms > timeouts.idle_ms => {
            ServerCallError::TooLong { server, after_ms }
        }
        ClientError::Timeout { after_ms, .. } => ServerCallError::Timeout { server, after_ms },
        ClientError::ConnectionClosed(reason @ (CloseReason::AlreadyClosed | CloseReason::NotSent(_))) => {
            ServerCallError::NotSent { server, reason: reason.to_string() }
        }
        ClientError::ConnectionClosed(reason) => ServerCallError::Lost { server, reason: reason.to_string() },
        error => ServerCallError::Client(error),
    }
}

/// What a failed call says about its connection.
fn connection_report(connection: &Arc<server::OpenConnection>, error: &ServerCallError) -> Option<Command> {
    match error {
        ServerCallError::Timeout { .. } => Some(Command::Suspect(connection.clone(), None)),
        // One tool that breaks its responses must not take the server from everybody: a ping decides.
        ServerCallError::Lost { reason, .. } => {
            Some(Command::Suspect(connection.clone(), Some(reason.clone())))
        }
        ServerCallError::NotSent { reason, .. } => Some(Command::Lost(connection.clone(), reason.clone())),
        _ => None,
    }
}

/// Signing in would not help while the authorization server is down.
fn no_token(server: &str, error: &LoginError) -> ServerCallError {
    ServerCallError::Unavailable { server: server.to_owned(), reason: format!("cannot get a token: {error}") }
}

impl ServerHandle {
    fn call_timeouts(&self, options: &ManagerOptions) -> CallTimeouts {
        options.call_timeouts(&self.server)
    }

    /// Tells the server's task what a failed call says about the connection.
    async fn report(
        &self,
        connection: &Arc<server::OpenConnection>,
        timeouts: CallTimeouts,
        error: ClientError,
    ) -> ServerCallError {
        let error = call_error(&self.server.name, timeouts, error);
        if let Some(command) = connection_report(connection, &error) {
            // The task has ended only if the manager was closed.
            let _ = self.commands.send(command).await;
        }
        error
    }

    /// The connection, or the next one if it is being made. `broken` is one that does not work.
    async fn connection(
        &self,
        options: &ManagerOptions,
        broken: Option<&Arc<server::OpenConnection>>,
    ) -> Result<Arc<server::OpenConnection>, ServerCallError> {
        let server = || self.server.name.clone();
        let mut view = self.view.clone();
        let is_broken = |connection: &Arc<server::OpenConnection>| {
            broken.is_some_and(|broken| Arc::ptr_eq(broken, connection))
        };
        let current = view.borrow_and_update().connection.clone();
        if let Some(connection) = current.filter(|connection| !is_broken(connection)) {
            return Ok(connection);
        }
        let Ok(_permit) = self.waiting.try_acquire() else {
            return Err(ServerCallError::QueueFull { server: server(), waiting: options.waiting_calls_max });
        };
        let (reply, started) = oneshot::channel();
        self.commands.send(Command::Wanted(reply)).await.map_err(|_| gone(&self.server.name))?;
        // From here on the view is at least as new as the answer.
        let _ = started.await;
        let ready = view.wait_for(|view| {
            view.connection.as_ref().is_some_and(|connection| !is_broken(connection))
                || matches!(view.status, Status::Error | Status::NeedsAuth | Status::Disabled)
        });
        match tokio::time::timeout(Duration::from_millis(options.wait_timeout_ms), ready).await {
            Err(_) => {
                Err(ServerCallError::WaitTimeout { server: server(), after_ms: options.wait_timeout_ms })
            }
            Ok(Err(_)) => Err(gone(&self.server.name)),
            Ok(Ok(view)) => match (&view.connection, view.status) {
                (Some(connection), _) => Ok(connection.clone()),
                (None, Status::NeedsAuth) => Err(ServerCallError::NeedsAuth { server: server() }),
                (None, Status::Disabled) => {
                    let reason = view.error.clone().unwrap_or_else(|| "by the user".to_owned());
                    Err(ServerCallError::Disabled { server: server(), reason })
                }
                (None, _) => {
                    let reason = view.error.clone().unwrap_or_default();
                    Err(ServerCallError::Unavailable { server: server(), reason })
                }
            },
        }
    }
}
