//! Keeps connections to other servers.
//!
//! A [`Connection`] is one server, as a value: whoever holds it can call, list and listen, and need not know
//! whether a process, a socket or HTTP is behind it. The protocol is `wire::client`'s; here are the clock, the
//! tasks and the bytes. What to do when a connection is lost is for whoever keeps several of them.
//!
//! [`process`] knows nothing of the protocol: a child is three pipes and an end.

mod connection;
pub mod process;
pub mod redact;
mod server_process;
mod target;
mod trace;
mod transport;

pub use connection::{
    ClientHandler, Connection, ConnectionEvent, NoopClientHandler, OpenError, Options, Progress,
    ProgressCallback, Subscription,
};
pub use server_process::ProcessEnd;
pub use target::{Target, TargetError};
pub use trace::{Direction, TraceEvent, TraceSink};
