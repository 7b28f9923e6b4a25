//! How long a call may take, and whether its caller is still there.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, SourceError};

/// How soon a caller who has gone away is noticed.
const CANCEL_CHECK: Duration = Duration::from_millis(20);

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
}
