//! How messages travel: each way of it takes what the machine wants sent, and hands in what comes back.

pub(crate) mod http;
pub(crate) mod pipe;
pub(crate) mod sse;
pub(crate) mod websocket;

use std::future::Future;
use std::pin::Pin;

/// What is left to do in good order at the end.
pub(crate) type CloseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
