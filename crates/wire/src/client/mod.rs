//! The client's side of the protocol: requests in, frames out; frames in, events out.
//!
//! One machine for every version and every door. It finds out which era the server is of, shakes hands where
//! that is needed, numbers requests, answers what can be answered at once, goes through the rounds of a call
//! that asks questions, and reads lists page by page:
//!
//! ```text
//! request ─▶ Client ─▶ Do::Send      a driver carries it: down a pipe, or as a POST of its own
//! frame   ─▶ Client ─▶ Event         somebody waits for it
//! ```
//!
//! Deliberately absent: sockets, processes, tasks and clocks. Time comes in with every call that needs it, in
//! milliseconds of whatever clock the driver has.

mod exchange;
mod http;
mod incoming;
mod input_requests;
mod lists;
mod negotiation;
mod notifications;
mod outgoing;
mod param_headers;
mod state_machine;
mod types;

pub use exchange::{ExchangeEnd, HttpExchange, HttpResponse};
pub use param_headers::{ParamHeaders, encode_header_value};
pub use state_machine::Client;
pub use types::{
    Action, ClientCall, ClientError, ClientEvent, ClientMessage, ClientOptions, ServerInfo, TransportKind,
    VersionPolicy,
};

/// A request that somebody waits for, whatever messages it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// A question of the server's that somebody has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputRequestId(u64);

/// A question as it came.
#[derive(Debug, Clone)]
pub struct IncomingInputRequest {
    pub id: InputRequestId,
    /// The call that it belongs to, where that is known.
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

/// What came of a question.
#[derive(Debug, Clone)]
pub enum InputReply {
    /// The result object.
    Result(json::Json),
    /// There will be none; the words are for the server.
    Declined(String),
}

/// An error as a server tells it.
#[derive(Debug, Clone)]
pub struct ServerError {
    pub code: i64,
    pub message: String,
    pub data: Option<json::Json>,
}
