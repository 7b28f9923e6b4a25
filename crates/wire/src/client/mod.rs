//! The client's side of the protocol, as a state machine without I/O.
//!
//! One state machine serves every version and transport. It detects the server's era, performs the handshake where
//! there is one, numbers requests, answers pings, runs the rounds of a call that requests input, and reads lists page
//! by page:
//!
//! ```text
//! call    ─▶ Client ─▶ Action        the driver sends it: on a pipe, or as an HTTP request
//! message ─▶ Client ─▶ ClientEvent   the driver passes it to the waiting caller
//! ```
//!
//! Deliberately absent: sockets, processes, tasks and clocks. The driver passes the time in, in milliseconds of its
//! own clock.

mod errors;
mod exchange;
mod http;
mod incoming;
mod input_requests;
mod lists;
mod negotiation;
mod notifications;
mod order;
mod outgoing;
mod param_headers;
mod state_machine;
mod subscriptions;
mod types;
mod unreadable;

pub use errors::{ClientError, CloseReason, InputRequiredError, ProtocolViolation, VersionMismatch};
pub use exchange::{ExchangeEnd, HttpExchange, HttpResponse};
pub use param_headers::{ParamHeaders, encode_header_value};
pub use state_machine::Client;
pub use types::{
    Action, ClientCall, ClientEvent, ClientMessage, ClientOptions, ProtocolWarning, Relay, ServerInfo,
    TransportKind, VersionPolicy, WarningKind,
};

/// Identifies a call of the application. It may take several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// Identifies an input request of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputRequestId(u64);

/// An input request from the server.
#[derive(Debug, Clone)]
pub struct IncomingInputRequest {
    pub id: InputRequestId,
    /// The call that it belongs to, if known.
    pub call: Option<CallId>,
    pub kind: InputRequestKind,
    /// The parameters, untrusted.
    pub params: json::Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputRequestKind {
    Roots,
    Sampling,
    Elicitation,
}

/// The application's reply to an input request.
#[derive(Debug, Clone)]
pub enum InputReply {
    /// The result object.
    Result(json::Json),
    /// Refused; the text is for the server.
    Declined(String),
}

/// A JSON-RPC error from the server.
#[derive(Debug, Clone)]
pub struct ServerError {
    pub code: i64,
    pub message: String,
    pub data: Option<json::Json>,
}
