//! Progress and cancellation of a scan over rows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::source::{Aggregate, Query, Search, SourceError};

/// The scan checks for cancellation and reports progress once per this many rows.
const ROWS_PER_CHECK: u32 = 4096;

/// Counts scanned rows for one request. Reports the remaining rows when it is dropped.
pub(crate) struct ScanProgress<'a> {
    cancelled: Option<&'a AtomicBool>,
    progress: Option<&'a AtomicU64>,
    unreported: u32,
}

impl<'a> ScanProgress<'a> {
    pub(crate) fn for_query(query: &Query<'a>) -> Self {
        Self { cancelled: query.cancelled.map(|flag| &**flag), progress: query.progress, unreported: 0 }
    }

    pub(crate) fn for_search(search: &Search<'a>) -> Self {
        Self { cancelled: search.cancelled.map(|flag| &**flag), progress: search.progress, unreported: 0 }
    }

    pub(crate) fn for_aggregate(aggregate: &Aggregate<'a>) -> Self {
        Self {
            cancelled: aggregate.cancelled.map(|flag| &**flag),
            progress: aggregate.progress,
            unreported: 0,
        }
    }

    /// Counts one row. Fails with `Cancelled` if the caller has gone away.
    #[inline]
    pub(crate) fn count_row(&mut self) -> Result<(), SourceError> {
        if self.unreported.is_multiple_of(ROWS_PER_CHECK) {
            self.check_cancelled()?;
        }
        self.unreported += 1;
        Ok(())
    }

    /// Counts several rows at once.
    pub(crate) fn count_rows(&mut self, rows: u32) -> Result<(), SourceError> {
        self.unreported += rows;
        self.check_cancelled()
    }

    #[cold]
    fn check_cancelled(&mut self) -> Result<(), SourceError> {
        self.report();
        match self.cancelled {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(SourceError::Cancelled),
            Some(_) | None => Ok(()),
        }
    }

    fn report(&mut self) {
        report_rows(self.progress, std::mem::take(&mut self.unreported).into());
    }
}

impl Drop for ScanProgress<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// Adds to the number of rows scanned so far.
pub(crate) fn report_rows(progress: Option<&AtomicU64>, rows: u64) {
    if let Some(progress) = progress {
        progress.fetch_add(rows, Ordering::Relaxed);
    }
}
