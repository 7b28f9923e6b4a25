//! How long a call may take, whether its caller is still there, and how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::source::{CancelFlag, SourceError};

/// How soon a caller who has gone away is noticed.
pub(crate) const CANCEL_CHECK: Duration = Duration::from_millis(20);
/// No call takes longer, whatever its own timeout is.
const CALL_MAX: Duration = Duration::from_secs(600);

/// The limits of one call, and what counts its progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits<'a> {
    cancelled: Option<&'a CancelFlag>,
    pub(crate) deadline: Instant,
    /// Counts the requests that were answered.
    progress: Option<&'a AtomicU64>,
}

impl<'a> CallLimits<'a> {
    pub(crate) fn new(cancelled: Option<&'a CancelFlag>, timeout_ms: Option<u64>) -> Self {
        let timeout = timeout_ms.map_or(CALL_MAX, Duration::from_millis);
        Self { cancelled, deadline: Instant::now() + timeout, progress: None }
    }

    pub(crate) fn with_progress(self, progress: Option<&'a AtomicU64>) -> Self {
        Self { progress, ..self }
    }

    /// One more request was answered.
    pub(crate) fn count_request(&self) {
        if let Some(progress) = self.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
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
