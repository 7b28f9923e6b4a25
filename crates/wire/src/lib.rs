//! Bytes to typed calls, and replies to bytes, for every protocol version; pure.
//!
//! The inside of the house speaks the newest protocol. What older clients want differently is settled here,
//! by one table of features ([`version`]) and one of error codes ([`code`]): [`open`](open::open) reads a
//! message and decides its era, [`shape`] writes whatever came of it for the version at the other end.
//!
//! Deliberately absent: sockets, pipes, tasks, clocks and any state between two messages. What a bare
//! message of the handshake era means is handed in by whoever kept the handshake.

pub mod client;
pub mod decode;
pub mod encode;
pub mod error;
pub mod frame;
pub mod headers;
mod id;
pub mod method;
mod params;
mod peer;
pub mod version;

pub use decode::{
    Batch, DecodeOptions, Decoded, Defaults, ErrorResponse, HttpDefaults, Notification, Request, RequestKind,
    Resume, SessionLookup, TaskMetadata, decode,
};
pub use headers::{HeaderField, Headers};
pub use id::RequestId;
pub use params::{ListKind, NotificationFilter, TaskRequest};
pub use peer::Peer;
pub use version::{Feature, Version};
