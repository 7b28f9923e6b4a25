//! The transports: each sends what the protocol state machine wants sent, and passes on what it receives.

pub(crate) mod http;
pub(crate) mod pipe;
mod retry_after;
pub(crate) mod sse;
pub(crate) mod websocket;

use std::future::Future;
use std::pin::Pin;

/// Closes a transport in an orderly way.
pub(crate) type CloseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
