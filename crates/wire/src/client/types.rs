//! What a client is told, what it says to its driver, and what can go wrong.

use json::{Json, ScanLimits};
use spile_core::{CatalogChange, ClientCapabilities};

use super::{CallId, HttpResponse, IncomingInputRequest, InputRequestId, ServerError};
use crate::method::Method;
use crate::params::NotificationFilter;
use crate::version::Version;

/// What this client is and what it puts up with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub name: String,
    pub version: String,
    pub capabilities: ClientCapabilities,
    pub scan_limits: ScanLimits,
    pub version_policy: VersionPolicy,
    /// How long a server on a pipe may take to answer a question of the newest era before it is taken for one
    /// of the handshake era.
    pub probe_timeout_ms: u64,
    pub handshake_timeout_ms: u64,
    /// How often one call may come back with questions.
    pub input_rounds_max: u32,
    /// Requests that wait or are under way at once.
    pub calls_max: usize,
    /// Questions that are open at once.
    pub input_requests_max: usize,
    /// How often a stream is taken up again that brings nothing.
    pub resume_attempts_max: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            name: "spile".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: ClientCapabilities::NONE,
            scan_limits: ScanLimits::default(),
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

/// Which versions are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The newest that both know.
    Any,
    Only(Version),
    /// Any with a handshake, without asking for more: for a server that dies of the question.
    HandshakeOnly,
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// Down one channel and up another.
    Pipe,
    /// Each is a POST of its own, and its answer comes back there.
    Http,
}

/// A request of one's own.
#[derive(Debug, Clone)]
pub struct ClientCall {
    pub method: Method,
    /// An object.
    pub params: Json,
    pub wants_progress: bool,
    pub timeout_ms: Option<u64>,
}

impl ClientCall {
    pub fn new(method: Method, params: Json) -> Self {
        Self { method, params, wants_progress: false, timeout_ms: None }
    }
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Action {
    Send(ClientMessage),
    /// Over HTTP: nobody waits for this answer any more.
    Abort(u64),
    /// Over HTTP: wait, then GET. Without an id to go on from it is the stream that belongs to no request.
    Get {
        exchange: u64,
        delay_ms: u64,
        last_event_id: Option<String>,
        headers: Vec<(String, String)>,
    },
}

/// One message on its way.
#[derive(Debug)]
pub struct ClientMessage {
    /// Over HTTP: what the answer is to be handed back with.
    pub exchange: u64,
    pub body: Vec<u8>,
    pub headers: Vec<(String, String)>,
    /// Over HTTP: nothing else may be sent until this has been taken.
    pub must_finish_first: bool,
}

/// What somebody may be waiting for.
#[derive(Debug)]
pub enum ClientEvent {
    /// The server can be used; again after it forgot us.
    Ready(Box<ServerInfo>),
    Done {
        ticket: CallId,
        result: Json,
    },
    Listed {
        ticket: CallId,
        items: Vec<Json>,
    },
    Failed {
        ticket: CallId,
        error: ClientError,
    },
    Progress {
        ticket: CallId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: String,
        logger: Option<String>,
        data: Json,
    },
    CatalogChanged(CatalogChange),
    /// A subscription stands, for as much of it as the server grants.
    SubscriptionStarted {
        ticket: CallId,
        granted: NotificationFilter,
    },
    InputRequested(IncomingInputRequest),
    /// Nobody wants the answer any more.
    InputRequestCancelled(InputRequestId),
    /// Something is not as it should be, and was passed over.
    Warning(String),
    /// The connection is of no use any more. Whatever was under way has failed before this.
    Closed(ClientError),
}

/// Who answered.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    pub protocol_version: Version,
    pub name: String,
    pub title: Option<String>,
    pub server_version: String,
    pub instructions: Option<String>,
    pub capabilities: Json,
}

/// Why there is no result, by whose fault.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The server says so.
    Server(ServerError),
    /// It wants to know who we are (401), or knows and refuses (403).
    Unauthorized {
        status: u16,
        challenge: Option<String>,
    },
    /// Any other HTTP status, with the beginning of what was said.
    HttpStatus {
        status: u16,
        text: String,
    },
    /// What came back is not MCP.
    ProtocolViolation(String),
    UnsupportedVersion(String),
    /// On a pipe an answer that cannot be read is nobody's, so it is told with what has waited in vain.
    Timeout {
        after_ms: u64,
        unreadable: Option<String>,
    },
    /// The connection or the stream ended first.
    ConnectionClosed(String),
    Cancelled,
    /// A question was put to us that will not be answered.
    InputRefused(String),
    /// Too much is under way already.
    Busy,
}

/// The beginning of what came, for a message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const CHARS: usize = 80;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS)]);
    let mut short: String = text.chars().take(CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > CHARS || bytes.len() > 4 * CHARS {
        short.push('…');
    }
    short
}

impl ClientError {
    pub(super) fn from_http_response(reply: &HttpResponse) -> Self {
        match reply.status {
            status @ (401 | 403) => Self::Unauthorized { status, challenge: reply.www_authenticate.clone() },
            status => Self::HttpStatus { status, text: excerpt(&reply.body) },
        }
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server(ServerError { code, message, .. }) => write!(f, "{message} ({code})"),
            Self::Unauthorized { status: 401, .. } => f.write_str("the server wants a token (HTTP 401)"),
            Self::Unauthorized { status, .. } => write!(f, "the server refuses us (HTTP {status})"),
            Self::HttpStatus { status, text } if text.is_empty() => write!(f, "HTTP {status}"),
            Self::HttpStatus { status, text } => write!(f, "HTTP {status}: {text}"),
            Self::ProtocolViolation(why)
            | Self::UnsupportedVersion(why)
            | Self::ConnectionClosed(why)
            | Self::InputRefused(why) => f.write_str(why),
            Self::Timeout { after_ms, unreadable } => {
                write!(f, "no answer within {after_ms} ms")?;
                let Some(what) = unreadable else { return Ok(()) };
                write!(f, "; meanwhile the server sent what cannot be read: {what}")
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::Busy => f.write_str("too much is under way already"),
        }
    }
}
