//! Lets bytes in and out, and guards the way: stdio, HTTP, WebSockets and unix sockets.
//!
//! A door reads, bounds and guards; what a message means is `wire`'s to say, and what to do about it
//! `host`'s. Nothing here tests a protocol version by name.

mod content_negotiation;
mod conversation;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
pub mod http;
pub mod pipe;
mod request_headers;
mod shutdown_signal;
pub mod stdio;
#[cfg(unix)]
pub mod unix;

pub use guard::{BearerToken, Guard};
