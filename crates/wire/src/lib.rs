//! Bytes to typed calls, and replies to bytes, for every protocol version; pure.
//!
//! The inside of the house speaks the newest protocol. What older clients want differently is settled here,
//! by one table of features ([`version`]) and one of error codes ([`code`]): [`open`](open::open) reads a
//! message and decides its era, [`shape`] writes whatever came of it for the version at the other end.
//!
//! Deliberately absent: sockets, pipes, tasks, clocks and any state between two messages. What a bare
//! message of the handshake era means is handed in by whoever kept the handshake.

pub mod client;
pub mod code;
pub mod frame;
pub mod heads;
mod id;
pub mod method;
pub mod open;
mod params;
mod peer;
pub mod shape;
pub mod version;

pub use heads::{Head, Heads};
pub use id::Id;
pub use open::{
    Bare, Batch, HttpBare, Notice, Opened, Refusal, Request, Resume, Session, TaskWish, Terms, What, open,
};
pub use params::{Filter, List, TaskOp};
pub use peer::Peer;
pub use version::{Feature, Version};
