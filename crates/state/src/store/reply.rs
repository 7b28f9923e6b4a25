//! The answer of a store: there already, or later. Memory answers at once and allocates no future.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::StoreError;

/// A future of a store's answer. If it is dropped before, it is unknown whether the operation happens.
#[must_use = "a verb whose reply is dropped may not happen"]
pub struct Reply<T>(State<T>);

enum State<T> {
    /// `None` once it was returned.
    Now(Option<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    pub fn now(result: Result<T, StoreError>) -> Self {
        Self(State::Now(Some(result)))
    }

    pub fn later(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future)))
    }

    /// Changes the answer when it is there.
    pub(super) fn map<U>(
        self,
        change: impl FnOnce(Result<T, StoreError>) -> Result<U, StoreError> + Send + 'static,
    ) -> Reply<U>
    where
        T: Send + 'static,
    {
        match self.0 {
            State::Now(result) => Reply(State::Now(result.map(change))),
            State::Later(future) => Reply::later(async move { change(future.await) }),
        }
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            State::Now(result) => Poll::Ready(result.take().expect("a future is not polled after its end")),
            State::Later(future) => future.as_mut().poll(cx),
        }
    }
}
