//! Client connections to other MCP servers.
//!
//! A [`Connection`] is one server: its owner can call, list and subscribe, whether a process, a socket or HTTP is
//! behind it. `wire::client` implements the protocol; this crate adds the clock, the tasks and the I/O. Reconnecting
//! is left to the owner of the connection.
//!
//! [`process`] knows nothing of the protocol: a child is three pipes and an exit status.

mod access_token;
mod connection;
pub mod process;
pub mod redact;
mod server_process;
mod target;
mod trace;
mod transport;

pub use access_token::{AccessToken, TokenProof, TokenSlot};
pub use connection::{
    ClientHandler, Connection, ConnectionEvent, ConnectionOptions, NoopClientHandler, OpenError, Progress,
    ProgressCallback, RunningCall, Subscription,
};
pub use server_process::ProcessEnd;
pub use target::{Target, TargetError};
pub use trace::{Direction, TraceEvent, TraceSink};
