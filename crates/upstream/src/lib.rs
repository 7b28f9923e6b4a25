//! Keeps connections to other servers.
//!
//! A [`Connection`] is one server, as a value: whoever holds it can call, list and listen, and need not know
//! whether a process, a socket or HTTP is behind it. The protocol is `wire::client`'s; here are the clock, the
//! tasks and the bytes. What to do when a connection is lost is for whoever keeps several of them.
//!
//! [`process`] knows nothing of the protocol: a child is three pipes and an end.

mod connection;
mod link;
pub mod masked;
pub mod process;
mod spawned;
mod target;
mod trace;

pub use connection::{Company, Connection, Follow, News, Nobody, OpenError, Options, Progress, Subscription};
pub use spawned::End;
pub use target::{Target, TargetError};
pub use trace::{Direction, Seen, Tap};
