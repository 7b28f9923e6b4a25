//! How long a call may take, and whether its caller is still there.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, SourceError};

/// How soon a caller who has gone away is noticed.
pub(crate) const CANCEL_CHECK: Duration = Duration::from_millis(20);
/// No call takes longer, whatever its own timeout is.
const CALL_MAX: Duration = Duration::from_secs(600);

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits<'a> {
    cancelled: Option<&'a CancelFlag>,
    pub(crate) deadline: Instant,
}

impl<'a> CallLimits<'a> {
    pub(crate) fn new(cancelled: Option<&'a CancelFlag>, timeout_ms: Option<u64>) -> Self {
        let timeout = timeout_ms.map_or(CALL_MAX, Duration::from_millis);
        Self { cancelled, deadline: Instant::now() + timeout }
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
}
