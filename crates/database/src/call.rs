//! How long a call may take, and whether its caller is still there.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, SourceError};

use crate::error::unavailable;

/// How soon a caller who has gone away is noticed.
const CANCEL_CHECK: Duration = Duration::from_millis(20);

/// An attempt to connect takes no longer, however much time its call has.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits<'a> {
    cancelled: Option<&'a CancelFlag>,
    deadline: Instant,
}

impl<'a> CallLimits<'a> {
    pub(crate) fn new(cancelled: Option<&'a CancelFlag>, timeout: Duration) -> Self {
        Self { cancelled, deadline: Instant::now() + timeout }
    }

    /// The same limits with less time, for a part of the work.
    pub(crate) fn at_most(&self, time: Duration) -> Self {
        Self { deadline: self.deadline.min(Instant::now() + time), ..*self }
    }

    /// Fails if the work should stop.
    pub(crate) fn check(&self) -> Result<(), SourceError> {
        if self.cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(SourceError::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Err(SourceError::Timeout);
        }
        Ok(())
    }

    /// The time until the next check.
    pub(crate) fn next_check(&self) -> Duration {
        CANCEL_CHECK.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits until the work should stop, and says why.
    pub(crate) async fn stopped(&self) -> SourceError {
        loop {
            if let Err(reason) = self.check() {
                return reason;
            }
            tokio::time::sleep(self.next_check()).await;
        }
    }

    /// Waits for an attempt to connect.
    pub(crate) async fn connect<T, E>(
        &self,
        attempt: impl Future<Output = Result<T, E>>,
        connect_error: impl FnOnce(E) -> SourceError,
    ) -> Result<T, SourceError> {
        tokio::select! {
            biased;
            reason = self.stopped() => Err(reason),
            connected = tokio::time::timeout(CONNECT_MAX, attempt) => match connected {
                Ok(connected) => connected.map_err(connect_error),
                Err(_) => Err(unavailable("connecting took too long")),
            }
        }
    }
}
