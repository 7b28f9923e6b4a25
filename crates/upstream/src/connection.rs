//! One client connection: sends calls, returns results, and passes the server's requests to a handler.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use json::Json;
use outbound::ConnectFailure;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;
use wire::client::{
    Action, CallId, Client, ClientCall, ClientError, ClientEvent, ClientOptions, IncomingInputRequest,
    InputReply, InputRequestId, ProtocolViolation, ProtocolWarning, ServerInfo, TransportKind, VersionPolicy,
};
use wire::frame::Framing;
use wire::{ListKind, NotificationFilter};

use crate::access_token::{AccessToken, TokenSlot, headers_of};
use crate::process;
use crate::redact;
use crate::server_process::{ProcessEnd, ServerProcess};
use crate::target::Target;
use crate::trace::{TraceEvent, TraceSink};
use crate::transport;

/// How to connect to a server.
#[derive(Clone)]
pub struct ConnectionOptions {
    pub client_options: ClientOptions,
    /// Sent with every HTTP request, and when a WebSocket is opened.
    pub headers: Vec<(String, String)>,
    pub outbound: outbound::OutboundOptions,
    pub message_bytes_max: usize,
    /// How messages are delimited on a pipe.
    pub framing: Framing,
    /// How a server's process is started and ended.
    pub process: process::ProcessOptions,
    /// Sent with every HTTP request, and when a WebSocket is opened. It may be replaced while the connection is open.
    pub token: Option<TokenSlot>,
    pub trace: Option<Arc<dyn TraceSink>>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            client_options: ClientOptions::default(),
            headers: Vec::new(),
            outbound: outbound::OutboundOptions::default(),
            message_bytes_max: 16 << 20,
            framing: Framing::Lines,
            process: process::ProcessOptions::default(),
            token: None,
            trace: None,
        }
    }
}

impl ConnectionOptions {
    /// The headers of the next request.
    pub(crate) fn request_headers(&self, method: &str, url: &Url) -> Vec<(String, String)> {
        headers_of(&self.headers, self.current_token().as_ref(), method, url)
    }

    pub(crate) fn current_token(&self) -> Option<AccessToken> {
        self.token.as_ref().and_then(TokenSlot::get)
    }
}

/// How long a result waits for messages that the server may have sent before it.
const CATCH_UP_TIMEOUT_MS: u64 = 1000;

/// A server that accepts a WebSocket is already running and answers the version probe quickly.
const WEBSOCKET_PROBE_MS: u64 = 2000;

/// Why a connection cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Outbound(#[from] outbound::OutboundError),
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String, failure: ConnectFailure },
    #[error("{0}")]
    Failed(ClientError),
    #[error(transparent)]
    Start(#[from] process::StartError),
    /// The program started but is not a usable server.
    #[error("{error}; {end}")]
    Child { error: ClientError, end: Box<ProcessEnd> },
}

/// Our side of a connection: answers the server's input requests and receives its events.
pub trait ClientHandler: Send + Sync + 'static {
    /// The future is dropped when the server cancels its request.
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>>;

    fn on_event(&self, event: ConnectionEvent);
}

/// An event that the server sends on its own.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// The session was lost and initialized again; the catalog may have changed.
    Reinitialized(ServerInfo),
    Log {
        /// The call that it belongs to, if known.
        call: Option<CallId>,
        level: String,
        logger: Option<String>,
        data: Json,
    },
    CatalogChanged(spile_core::CatalogChange),
    /// A line of a process's stderr, sanitized.
    Stderr(String),
    /// The user has done what the elicitation by URL with this id asked for.
    ElicitationCompleted(String),
    /// The server deviated from the protocol, and the connection goes on.
    ProtocolWarning(ProtocolWarning),
    Closed(ClientError),
}

/// Declines all input requests and logs events.
pub struct NoopClientHandler;

impl ClientHandler for NoopClientHandler {
    fn on_input_request(&self, _: IncomingInputRequest) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        Box::pin(async { InputReply::Declined("this client cannot ask the user".to_owned()) })
    }

    fn on_event(&self, event: ConnectionEvent) {
        tracing::debug!(?event);
    }
}

/// The progress of a call.
#[derive(Debug, Clone)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

pub type ProgressCallback = Arc<dyn Fn(Progress) + Send + Sync>;

/// An open connection. Dropping it stops its tasks and its process.
pub struct Connection {
    pub(crate) shared: Arc<ConnectionShared>,
    tasks: JoinSet<()>,
    /// In a mutex only so that calls can share the connection.
    close_future: Mutex<Option<transport::CloseFuture>>,
    /// The server process, if this connection started one.
    pub(crate) process: Option<ServerProcess>,
}

pub(crate) struct ConnectionShared {
    state: Mutex<ClientState>,
    /// Notified when the transport has something to send.
    action_ready: Notify,
    /// Notified when the next deadline changes.
    deadline_changed: Notify,
    open_state: watch::Sender<OpenState>,
    /// Why HTTP requests do not reach the server. The protocol knows only that an exchange failed.
    connect_error: OnceLock<ConnectError>,
    /// Of the runtime's clock, by which the deadlines wait.
    started_at: tokio::time::Instant,
    handler: Arc<dyn ClientHandler>,
    pub(crate) options: ConnectionOptions,
}

/// Why no connection could be made.
pub(crate) struct ConnectError {
    pub(crate) address: String,
    pub(crate) reason: String,
    pub(crate) failure: ConnectFailure,
}

#[derive(Clone)]
enum OpenState {
    Opening,
    Ready,
    Closed(ClientError),
}

struct ClientState {
    client: Client,
    pending_calls: HashMap<CallId, PendingCall>,
    pending_input_requests: BTreeMap<InputRequestId, AbortHandle>,
}

struct PendingCall {
    completion: oneshot::Sender<CallCompletion>,
    on_progress: Option<ProgressCallback>,
    subscribed: Option<oneshot::Sender<NotificationFilter>>,
}

/// Something to deliver after the lock is released.
enum Delivery {
    Event(ConnectionEvent),
    Progress(ProgressCallback, Progress),
    InputRequest(IncomingInputRequest),
}

enum CallCompletion {
    Done(Json),
    List(Vec<Json>),
    Failed(ClientError),
}

impl Connection {
    /// Connects, detects the server's protocol version, and performs the handshake if it needs one.
    pub async fn open(
        target: &Target,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let (retry_options, retry_handler) = (options.clone(), handler.clone());
        let failure = match Self::open_once(target, options, handler).await {
            Err(OpenError::Failed(failure)) => failure,
            other => return other,
        };
        // 2026-07-28, HTTP+SSE Transport: on 400, 404 or 405 look for the `endpoint` event.
        match (target, &failure) {
            (Target::Http(url), ClientError::HttpStatus { status: 400 | 404 | 405, .. }) => {
                let sse_target = Target::Sse(url.clone());
                let found = Self::open_once(&sse_target, retry_options, retry_handler).await;
                found.map_err(|_| OpenError::Failed(failure))
            }
            _ => Err(OpenError::Failed(failure)),
        }
    }

    async fn open_once(
        target: &Target,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        match target {
            Target::Http(url) => {
                let client = outbound::client(url, &options.outbound)?;
                Self::over_http(client, url, options, handler).await
            }
            #[cfg(unix)]
            Target::HttpUnix { socket, url } => {
                let client = outbound::client_to_socket(socket, &options.outbound)?;
                Self::over_http(client, url, options, handler).await
            }
            Target::Sse(url) => {
                let client = outbound::client(url, &options.outbound)?;
                let link = transport::sse::open(client, url, &options).await?;
                let options = ConnectionOptions {
                    client_options: with_handshake_only(options.client_options),
                    ..options
                };
                let mut new = Self::new(options, TransportKind::Pipe, handler);
                new.tasks.spawn(link.drive(new.shared.clone()));
                new.wait_until_ready().await
            }
            Target::WebSocket(url) => {
                let probe_ms = options.client_options.probe_timeout_ms.min(WEBSOCKET_PROBE_MS);
                let options = ConnectionOptions {
                    client_options: ClientOptions { probe_timeout_ms: probe_ms, ..options.client_options },
                    ..options
                };
                let socket = transport::websocket::open(url, &options).await?;
                options
                    .record(TraceEvent::Opened(&format!("connected to {}", redact::address(url.as_str()))));
                let mut new = Self::new(options, TransportKind::Pipe, handler);
                let (driver, ending) = transport::websocket::drive(new.shared.clone(), socket);
                new.tasks.spawn(driver);
                new.close_future = Mutex::new(Some(ending));
                new.wait_until_ready().await
            }
            #[cfg(unix)]
            Target::Unix(path) => {
                let bad = |error: std::io::Error| OpenError::Connect {
                    address: path.display().to_string(),
                    reason: error.to_string(),
                    failure: ConnectFailure::classify(&error),
                };
                let (input, output) = tokio::net::UnixStream::connect(path).await.map_err(bad)?.into_split();
                options.record(TraceEvent::Opened(&format!("connected to {}", path.display())));
                Self::over_pipe(input, output, options, handler).await
            }
            #[cfg(not(unix))]
            Target::Unix(path) | Target::HttpUnix { socket: path, .. } => Err(OpenError::Connect {
                address: path.display().to_string(),
                reason: "this system has no unix sockets".to_owned(),
                failure: ConnectFailure::Other,
            }),
        }
    }

    async fn over_http(
        client: outbound::Client,
        url: &Url,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let mut new = Self::new(options, TransportKind::Http, handler);
        let (driver, ending) = transport::http::drive(new.shared.clone(), client, url.clone());
        new.tasks.spawn(driver);
        new.close_future = Mutex::new(Some(ending));
        new.wait_until_ready().await
    }

    /// Uses an existing pair of streams: to a process, or to a server in this process.
    pub async fn over_pipe(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let mut new = Self::new(options, TransportKind::Pipe, handler);
        let ending = transport::pipe::drive(&mut new.tasks, new.shared.clone(), input, output);
        new.close_future = Mutex::new(Some(ending));
        new.wait_until_ready().await
    }

    fn new(options: ConnectionOptions, link: TransportKind, handler: Arc<dyn ClientHandler>) -> Self {
        let client = Client::new(options.client_options.clone(), link);
        let state =
            ClientState { client, pending_calls: HashMap::new(), pending_input_requests: BTreeMap::new() };
        let shared = Arc::new(ConnectionShared {
            state: Mutex::new(state),
            action_ready: Notify::new(),
            deadline_changed: Notify::new(),
            open_state: watch::channel(OpenState::Opening).0,
            connect_error: OnceLock::new(),
            started_at: tokio::time::Instant::now(),
            handler,
            options,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(run_deadlines(shared.clone()));
        Self { shared, tasks, close_future: Mutex::new(None), process: None }
    }

    async fn wait_until_ready(self) -> Result<Self, OpenError> {
        let mut opened = self.shared.open_state.subscribe();
        self.shared.with_client(|client, now| client.start(now));
        let found = opened.wait_for(|opened| !matches!(opened, OpenState::Opening)).await;
        match found.as_deref() {
            Ok(OpenState::Closed(error @ ClientError::ConnectionClosed(_))) => {
                Err(match self.shared.connect_error.get() {
                    Some(ConnectError { address, reason, failure }) => OpenError::Connect {
                        address: address.clone(),
                        reason: reason.clone(),
                        failure: *failure,
                    },
                    None => OpenError::Failed(error.clone()),
                })
            }
            Ok(OpenState::Closed(why)) => Err(OpenError::Failed(why.clone())),
            Ok(OpenState::Ready | OpenState::Opening) | Err(_) => {
                drop(found);
                Ok(self)
            }
        }
    }

    /// The server's name, version and capabilities.
    pub fn server_info(&self) -> ServerInfo {
        let server_info = self.shared.lock().client.server_info().cloned();
        server_info.expect("a connection is returned after the handshake")
    }

    /// Whether the server declares this extension.
    pub fn has_extension(&self, name: &str) -> bool {
        let capabilities = self.server_info().capabilities.to_doc();
        let extensions = capabilities.root().get("extensions");
        extensions.and_then(|all| all.get(name)).is_some_and(|settings| settings.is_object())
    }

    /// Whether the server declared a capability.
    pub fn has_capability(&self, capability: &str) -> bool {
        self.shared.lock().client.server_supports(capability)
    }

    /// Sends a call and waits for its result. Dropping the future cancels the call.
    pub async fn call(
        &self,
        call: ClientCall,
        follow: Option<ProgressCallback>,
    ) -> Result<Json, ClientError> {
        self.start_call(call, follow).result().await
    }

    /// Sends a call.
    pub fn start_call(&self, call: ClientCall, follow: Option<ProgressCallback>) -> RunningCall {
        let call = ClientCall { wants_progress: call.wants_progress || follow.is_some(), ..call };
        self.shared.start_call(follow, |client, now| client.call(call, now))
    }

    /// Reads all pages of a list.
    pub async fn list(&self, list: ListKind, timeout_ms: Option<u64>) -> Result<Vec<Json>, ClientError> {
        match self.shared.start_and_wait(None, |client, now| client.list(list, timeout_ms, now)).await {
            CallCompletion::List(items) => Ok(items),
            CallCompletion::Done(_) => {
                Err(ClientError::ProtocolViolation(ProtocolViolation::WrongResult { expected: "a list" }))
            }
            CallCompletion::Failed(why) => Err(why),
        }
    }

    /// Sends a ping and returns the round-trip time.
    pub async fn ping(&self, timeout_ms: Option<u64>) -> Result<Duration, ClientError> {
        let start = Instant::now();
        match self.shared.start_and_wait(None, |client, now| client.ping(timeout_ms, now)).await {
            CallCompletion::Failed(why) => Err(why),
            CallCompletion::Done(_) | CallCompletion::List(_) => Ok(start.elapsed()),
        }
    }

    /// Subscribes to changes; [`ClientHandler::on_event`] gets them. Dropping the result unsubscribes.
    pub async fn subscribe(&self, filter: &NotificationFilter) -> Result<Subscription, ClientError> {
        let (ended, over) = oneshot::channel();
        let (granted, grant) = oneshot::channel();
        let pending_call = PendingCall { completion: ended, on_progress: None, subscribed: Some(granted) };
        let call_id = self.shared.register_call(pending_call, |client, now| client.listen(filter, now));
        let guard = CancelOnDrop { shared: self.shared.clone(), call_id: Some(call_id) };
        match grant.await {
            Ok(granted) => Ok(Subscription { granted, completion: over, _guard: guard }),
            Err(_) => match over.await {
                Ok(CallCompletion::Failed(why)) => Err(why),
                Ok(CallCompletion::Done(_) | CallCompletion::List(_)) | Err(_) => Err(ClientError::Cancelled),
            },
        }
    }

    /// Waits until what the server sent before now has arrived. It takes a round trip where messages come on a stream of
    /// their own, and no time elsewhere.
    pub async fn catch_up(&self) {
        if self.shared.lock().client.has_server_stream() {
            // Any answer is one, and a server without an answer is not waited for.
            let _ = self.ping(Some(CATCH_UP_TIMEOUT_MS)).await;
        }
    }

    /// Sets the minimum level of log messages that the server sends. Calls that are made after it wait until the server has it.
    pub fn set_log_level(&self, level: spile_core::LogLevel) {
        self.shared.with_client(|client, now| client.set_level(level, now));
    }

    /// Tells the server that the roots have changed, if its version and our capabilities have such a notification.
    pub fn roots_changed(&self) {
        self.shared.with_client(|client, _| client.roots_changed());
    }

    /// Closes the connection in an orderly way: the server may finish writing. Returns how its process ended.
    pub async fn close(mut self) -> Option<ProcessEnd> {
        let ending = self.close_future.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ending) = ending {
            ending.await;
        }
        let end = match self.process.take() {
            Some(child) => Some(child.shut_down(&self.shared).await),
            None => None,
        };
        self.shared.with_client(|client, _| client.connection_closed("the connection was closed"));
        self.tasks.shutdown().await;
        end
    }
}

fn with_handshake_only(client_options: ClientOptions) -> ClientOptions {
    match client_options.version_policy {
        VersionPolicy::Any => {
            ClientOptions { version_policy: VersionPolicy::HandshakeOnly, ..client_options }
        }
        VersionPolicy::Only(_) | VersionPolicy::HandshakeOnly => client_options,
    }
}

/// A subscription to changes. Dropping it unsubscribes.
pub struct Subscription {
    /// The changes that the server agreed to send.
    pub granted: NotificationFilter,
    completion: oneshot::Receiver<CallCompletion>,
    _guard: CancelOnDrop,
}

impl Subscription {
    /// Waits until the server ends it.
    pub async fn wait_ended(&mut self) -> Option<ClientError> {
        match (&mut self.completion).await {
            Ok(CallCompletion::Failed(why)) => Some(why),
            Ok(CallCompletion::Done(_) | CallCompletion::List(_)) | Err(_) => None,
        }
    }
}

/// A call that was sent. Dropping it cancels the call.
pub struct RunningCall {
    completion: oneshot::Receiver<CallCompletion>,
    guard: CancelOnDrop,
    id: CallId,
}

impl RunningCall {
    /// The id by which events of the connection name the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Waits for the result. It can be dropped and called again until it has returned.
    pub async fn result(&mut self) -> Result<Json, ClientError> {
        match self.wait().await {
            CallCompletion::Done(result) => Ok(result),
            CallCompletion::List(_) => {
                Err(ClientError::ProtocolViolation(ProtocolViolation::WrongResult { expected: "a result" }))
            }
            CallCompletion::Failed(why) => Err(why),
        }
    }

    async fn wait(&mut self) -> CallCompletion {
        let end = (&mut self.completion).await.unwrap_or(CallCompletion::Failed(ClientError::Cancelled));
        self.guard.call_id = None;
        end
    }
}

/// Cancels a call when its future is dropped.
struct CancelOnDrop {
    shared: Arc<ConnectionShared>,
    call_id: Option<CallId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(call_id) = self.call_id {
            self.shared.with_client(|client, _| client.cancel(call_id));
        }
    }
}

impl ConnectionShared {
    /// Keeps the first: the attempts after it fail for the same reason.
    pub(crate) fn set_connect_error(&self, error: ConnectError) {
        let _ = self.connect_error.set(error);
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the state machine, then delivers the resulting events.
    pub(crate) fn with_client<T>(self: &Arc<Self>, act: impl FnOnce(&mut Client, u64) -> T) -> T {
        self.with_state(|state, now| act(&mut state.client, now))
    }

    fn with_state<T>(self: &Arc<Self>, act: impl FnOnce(&mut ClientState, u64) -> T) -> T {
        let now = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = self.lock();
        let before = state.client.next_deadline();
        let done = act(&mut state, now);
        let deliveries = self.process_events(&mut state);
        let deadline_moved = state.client.next_deadline() != before;
        let is_closed = state.client.is_closed();
        drop(state);
        self.action_ready.notify_one();
        if deadline_moved || is_closed {
            self.deadline_changed.notify_one();
        }
        for delivery in deliveries {
            match delivery {
                Delivery::Event(event) => self.handler.on_event(event),
                Delivery::Progress(follow, progress) => follow(progress),
                Delivery::InputRequest(request) => self.handle_input_request(request),
            }
        }
        done
    }

    /// Completes pending calls. Returns the other events, to be delivered after the lock is released.
    fn process_events(&self, state: &mut ClientState) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while let Some(event) = state.client.next_event() {
            match event {
                ClientEvent::Ready(server_info) => {
                    let before = self.open_state.send_replace(OpenState::Ready);
                    if matches!(before, OpenState::Ready) {
                        deliveries.push(Delivery::Event(ConnectionEvent::Reinitialized(*server_info)));
                    }
                }
                ClientEvent::Done { call_id, result } => {
                    state.complete(call_id, CallCompletion::Done(result))
                }
                ClientEvent::Listed { call_id, items } => {
                    state.complete(call_id, CallCompletion::List(items))
                }
                ClientEvent::Failed { call_id, error: why } => {
                    state.complete(call_id, CallCompletion::Failed(why))
                }
                ClientEvent::Progress { call_id, progress, total, message } => {
                    let follow = state
                        .pending_calls
                        .get(&call_id)
                        .and_then(|pending_call| pending_call.on_progress.clone());
                    let progress = Progress { progress, total, message };
                    deliveries.extend(follow.map(|follow| Delivery::Progress(follow, progress)));
                }
                ClientEvent::SubscriptionStarted { call_id, granted } => {
                    let pending_call = state.pending_calls.get_mut(&call_id);
                    if let Some(listening) =
                        pending_call.and_then(|pending_call| pending_call.subscribed.take())
                    {
                        let _ = listening.send(granted);
                    }
                }
                ClientEvent::InputRequested(request) => deliveries.push(Delivery::InputRequest(request)),
                ClientEvent::InputRequestCancelled(id) => {
                    if let Some(task) = state.pending_input_requests.remove(&id) {
                        task.abort();
                    }
                }
                ClientEvent::Log { call, level, logger, data } => {
                    deliveries.push(Delivery::Event(ConnectionEvent::Log { call, level, logger, data }));
                }
                ClientEvent::CatalogChanged(change) => {
                    deliveries.push(Delivery::Event(ConnectionEvent::CatalogChanged(change)))
                }
                ClientEvent::ElicitationCompleted(id) => {
                    deliveries.push(Delivery::Event(ConnectionEvent::ElicitationCompleted(id)))
                }
                ClientEvent::Warning(what) => {
                    deliveries.push(Delivery::Event(ConnectionEvent::ProtocolWarning(what)))
                }
                ClientEvent::Closed(why) => {
                    // While opening, `open` returns the error; only an open connection gets a close event.
                    let before = self.open_state.send_replace(OpenState::Closed(why.clone()));
                    if matches!(before, OpenState::Ready) {
                        deliveries.push(Delivery::Event(ConnectionEvent::Closed(why)));
                    }
                }
            }
        }
        deliveries
    }

    fn handle_input_request(self: &Arc<Self>, request: IncomingInputRequest) {
        let (id, shared) = (request.id, self.clone());
        let answer = self.handler.on_input_request(request);
        let mut state = self.lock();
        let task = tokio::spawn(async move {
            let answer = answer.await;
            shared.lock().pending_input_requests.remove(&id);
            shared.with_client(|client, _| client.respond(id, answer));
        });
        state.pending_input_requests.insert(id, task.abort_handle());
    }

    fn register_call(
        self: &Arc<Self>,
        pending_call: PendingCall,
        act: impl FnOnce(&mut Client, u64) -> CallId,
    ) -> CallId {
        self.with_state(|state, now| {
            let call_id = act(&mut state.client, now);
            // Insert before the events are processed: the call may already have failed.
            state.pending_calls.insert(call_id, pending_call);
            call_id
        })
    }

    async fn start_and_wait(
        self: &Arc<Self>,
        follow: Option<ProgressCallback>,
        act: impl FnOnce(&mut Client, u64) -> CallId,
    ) -> CallCompletion {
        self.start_call(follow, act).wait().await
    }

    fn start_call(
        self: &Arc<Self>,
        follow: Option<ProgressCallback>,
        act: impl FnOnce(&mut Client, u64) -> CallId,
    ) -> RunningCall {
        let (ended, completion) = oneshot::channel();
        let id =
            self.register_call(PendingCall { completion: ended, on_progress: follow, subscribed: None }, act);
        let guard = CancelOnDrop { shared: self.clone(), call_id: Some(id) };
        RunningCall { completion, guard, id }
    }

    /// Waits for the next action of the transport; `None` after the connection is closed.
    pub(crate) async fn next_action(&self) -> Option<Action> {
        loop {
            let notified = self.action_ready.notified();
            {
                let mut state = self.lock();
                if let Some(action) = state.client.next_action() {
                    return Some(action);
                }
                if state.client.is_closed() {
                    return None;
                }
            }
            notified.await;
        }
    }

    /// The next action, if there is one now.
    pub(crate) fn try_next_action(&self) -> Option<Action> {
        self.lock().client.next_action()
    }

    /// Whether no action is left.
    pub(crate) fn is_all_sent(&self) -> bool {
        !self.lock().client.has_actions()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn wait_closed(&self) {
        let mut opened = self.open_state.subscribe();
        let _ = opened.wait_for(|opened| matches!(opened, OpenState::Closed(_))).await;
    }

    pub(crate) fn record(&self, seen: TraceEvent<'_>) {
        self.options.record(seen);
    }
}

impl ConnectionOptions {
    pub(crate) fn record(&self, seen: TraceEvent<'_>) {
        if let Some(trace) = &self.trace {
            trace.record(seen);
        }
    }
}

impl ClientState {
    fn complete(&mut self, call_id: CallId, ended: CallCompletion) {
        if let Some(pending_call) = self.pending_calls.remove(&call_id) {
            let _ = pending_call.completion.send(ended);
        }
    }
}

/// Calls the state machine at its deadlines.
async fn run_deadlines(shared: Arc<ConnectionShared>) {
    loop {
        let (due, is_closed) = {
            let state = shared.lock();
            (state.client.next_deadline(), state.client.is_closed())
        };
        if is_closed {
            return;
        }
        let changed = shared.deadline_changed.notified();
        match due {
            None => changed.await,
            Some(due) => {
                let at = shared.started_at + Duration::from_millis(due);
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => shared.with_client(|client, now| client.tick(now.max(due))),
                }
            }
        }
    }
}
