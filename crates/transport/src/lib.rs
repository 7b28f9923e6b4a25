//! The transports: stdio, HTTP, HTTP+SSE, WebSocket and unix sockets.
//!
//! A transport reads, limits and guards. `wire` decodes messages and `host` acts on them. Nothing here
//! compares protocol versions by name.

mod access_tokens;
mod auth_throttle;
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

pub use access_tokens::{AccessTokens, TokenError};
pub use auth_throttle::AuthThrottle;
pub use guard::{Exposure, Guard};
