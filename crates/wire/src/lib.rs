//! The MCP protocol as pure functions: bytes to typed requests, and responses to bytes, for every version.
//!
//! All other crates work with the newest protocol version. This crate translates for older clients, by one
//! table of features ([`version`]) and one of error codes ([`error`]). [`decode`] reads a message and determines
//! its era; [`encode`] writes the response for the client's version. [`client`] is the client's side.
//!
//! Deliberately absent: sockets, pipes, tasks, clocks and, on the server's side, state between two messages. The
//! host keeps the handshake and passes in what a message without an envelope means ([`MessageContext`]).

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
    Batch, DecodeOptions, Decoded, ErrorResponse, HttpDefaults, MessageContext, Notification, Request,
    RequestKind, Resume, SessionError, SessionLookup, TaskMetadata, decode,
};
pub use headers::{HeaderField, Headers};
pub use id::RequestId;
pub use params::{ListKind, NotificationFilter, TaskRequest};
pub use peer::{Peer, SKILLS_EXTENSION, TASKS_EXTENSION, read_capabilities};
pub use version::{Feature, Version};
