//! Options, actions, events and errors of the client.

use json::{Json, ParseLimits};
use spile_core::{CatalogChange, ClientCapabilities, LogLevel};

use super::errors::ClientError;
use super::{CallId, IncomingInputRequest, InputRequestId};
use crate::method::Method;
use crate::params::NotificationFilter;
use crate::version::Version;

/// The client's identity and limits.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub name: String,
    pub version: String,
    pub capabilities: ClientCapabilities,
    pub scan_limits: ParseLimits,
    pub version_policy: VersionPolicy,
    /// How long the client waits on a pipe for the response to the probe before it tries the handshake.
    pub probe_timeout_ms: u64,
    pub handshake_timeout_ms: u64,
    /// The limit of input rounds in one call.
    pub input_rounds_max: u32,
    /// The limit of pending calls.
    pub calls_max: usize,
    /// The limit of open input requests.
    pub input_requests_max: usize,
    /// The limit of attempts to resume a stream without receiving anything.
    pub resume_attempts_max: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            name: "spile".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: ClientCapabilities::NONE,
            scan_limits: ParseLimits::default(),
            version_policy: VersionPolicy::Any,
            probe_timeout_ms: 3000,
            handshake_timeout_ms: 30_000,
            input_rounds_max: 10,
            calls_max: 4096,
            input_requests_max: 64,
            resume_attempts_max: 8,
        }
    }
}

/// Which protocol versions the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The newest version that both sides support.
    Any,
    Only(Version),
    /// Any version with a handshake, without a probe: for a server that crashes on the probe.
    HandshakeOnly,
}

/// How messages are transported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// One byte stream in each direction.
    Pipe,
    /// Each message is a POST, and its response is in the HTTP response.
    Http,
}

/// A call of the application.
#[derive(Debug, Clone)]
pub struct ClientCall {
    pub method: Method,
    /// A JSON object.
    pub params: Json,
    pub wants_progress: bool,
    pub timeout_ms: Option<u64>,
    /// With this, progress starts `timeout_ms` anew, and the call ends after this time, whatever progress it makes.
    pub total_timeout_ms: Option<u64>,
    /// For a call that another client makes through this one.
    pub relay: Option<Box<Relay>>,
}

impl ClientCall {
    pub fn new(method: Method, params: Json) -> Self {
        Self { method, params, wants_progress: false, timeout_ms: None, total_timeout_ms: None, relay: None }
    }
}

/// What another client wants to say with its own call. Only the stateless era says it with each request; in the handshake
/// era all of it was said for the whole connection, and this has no effect.
///
/// An `input_required` result is not answered here: it is the result of the call, and the other client repeats the call
/// with the responses.
#[derive(Debug, Clone, Default)]
pub struct Relay {
    pub capabilities: ClientCapabilities,
    pub log_level: Option<LogLevel>,
    /// The answers to the input requests of the last round, and its `requestState`.
    pub input_responses: Vec<(String, Json)>,
    pub request_state: Option<Json>,
}

/// What the driver must do.
#[derive(Debug)]
pub enum Action {
    Send(ClientMessage),
    /// Over HTTP: drop this exchange; its response is no longer needed.
    Abort(u64),
    /// Over HTTP: wait, then send a GET. Without `last_event_id` it opens the stream that belongs to no request.
    Get {
        exchange: u64,
        delay_ms: u64,
        last_event_id: Option<String>,
        headers: Vec<(String, String)>,
    },
}

/// One message to send.
#[derive(Debug)]
pub struct ClientMessage {
    /// Over HTTP: identifies the exchange when the driver reports its response.
    pub exchange: u64,
    pub body: Vec<u8>,
    pub headers: Vec<(String, String)>,
    /// Over HTTP: send nothing else until the server has accepted this.
    pub must_finish_first: bool,
}

/// What happened, for the application.
#[derive(Debug)]
pub enum ClientEvent {
    /// The server is ready. Sent again after a new session.
    Ready(Box<ServerInfo>),
    Done {
        call_id: CallId,
        result: Json,
    },
    Listed {
        call_id: CallId,
        items: Vec<Json>,
    },
    Failed {
        call_id: CallId,
        error: ClientError,
    },
    Progress {
        call_id: CallId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        /// The call that it belongs to, if known.
        call: Option<CallId>,
        level: String,
        logger: Option<String>,
        data: Json,
    },
    CatalogChanged(CatalogChange),
    /// A subscription is active, with the filter that the server granted.
    SubscriptionStarted {
        call_id: CallId,
        granted: NotificationFilter,
    },
    InputRequested(IncomingInputRequest),
    /// The response is no longer needed.
    InputRequestCancelled(InputRequestId),
    /// The user has done what the elicitation by URL with this id asked for.
    ElicitationCompleted(String),
    /// The server deviated from the protocol, and the connection goes on.
    Warning(ProtocolWarning),
    /// The connection is unusable. All pending calls have failed before this event.
    Closed(ClientError),
}

/// A deviation of the server that does not end the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolWarning {
    pub kind: WarningKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// The client skipped a message of the server.
    SkippedMessage,
    /// A tool of the server is missing from the list that the application gets.
    SkippedTool,
    /// The server rejected a message of the client that no call waits for, or reported an error outside a call.
    Rejected,
}

impl std::fmt::Display for ProtocolWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// What the server declared about itself.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    pub protocol_version: Version,
    pub name: String,
    pub title: Option<String>,
    pub server_version: String,
    pub instructions: Option<String>,
    pub capabilities: Json,
}
