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
mod incoming;
mod lists;
mod machine;
mod mirror;
mod notices;
mod opening;
mod outgoing;
mod over_http;
mod questions;
mod words;

pub use exchange::{Exchange, Reply, Then};
pub use machine::Client;
pub use mirror::{Mirror, encode};
pub use words::{Call, Do, Event, Failure, Greeting, Link, Send, Speak, Terms};

/// A request that somebody waits for, whatever messages it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A question of the server's that somebody has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(u64);

/// A question as it came.
#[derive(Debug, Clone)]
pub struct Question {
    pub id: AskId,
    /// The call that it belongs to, where that is known.
    pub of: Option<Ticket>,
    pub kind: Asked,
    /// The parameters, untrusted.
    pub params: json::Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Roots,
    Sampling,
    Elicitation,
}

/// What came of a question.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The result object.
    Given(json::Json),
    /// There will be none; the words are for the server.
    Refused(String),
}

/// An error as a server tells it.
#[derive(Debug, Clone)]
pub struct Told {
    pub code: i64,
    pub message: String,
    pub data: Option<json::Json>,
}
