//! The transports: stdio, HTTP, HTTP+SSE, WebSocket and unix sockets.
//!
//! A transport reads, limits and guards. `wire` decodes messages and `host` acts on them. Nothing here
//! compares protocol versions by name.

mod bearer_token;
mod content_negotiation;
mod conversation;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod guess_throttle;
pub mod http;
pub mod pipe;
mod request_headers;
mod shutdown_signal;
pub mod stdio;
#[cfg(unix)]
pub mod unix;

pub use bearer_token::{BearerToken, TokenError};
pub use guard::{Exposure, Guard};
pub use guess_throttle::AuthThrottle;
