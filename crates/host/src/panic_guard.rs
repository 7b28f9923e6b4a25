//! Turns a panic in a handler into an error of that one call, so that the connection survives.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use spile_core::{CallError, CallFuture, Outcome, Run};

/// Runs `f` and turns a panic into an error. `AssertUnwindSafe` holds: nothing `f` touched is used after a panic.
pub(crate) fn catch_panic(f: impl FnOnce() -> Run) -> Run {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Run::Now(panic_outcome(&*panic)))
}

/// A future whose panics become errors.
pub(crate) struct CatchPanic(pub(crate) CallFuture);

impl Future for CatchPanic {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let work = &mut self.0;
        catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))
            .unwrap_or_else(|panic| Poll::Ready(panic_outcome(&*panic)))
    }
}

fn panic_outcome(panic: &(dyn std::any::Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Outcome::Failed(CallError::Internal { detail: format!("a handler panicked: {text}") })
}
