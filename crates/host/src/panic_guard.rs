//! Turns a panic in a handler into an error of that one call, so that the connection survives.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use spile_core::CallError;

/// Runs `f` and turns a panic into an error. `AssertUnwindSafe` holds: nothing `f` touched is used after a panic.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T, CallError> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| panic_error(&*panic))
}

/// A future whose panics become errors.
pub(crate) struct CatchPanic<T>(pub(crate) Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Future for CatchPanic<T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = &mut self.0;
        match catch_panic(|| work.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

fn panic_error(panic: &(dyn std::any::Any + Send)) -> CallError {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    CallError::Internal { detail: format!("a handler panicked: {text}") }
}
