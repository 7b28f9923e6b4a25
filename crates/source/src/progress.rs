//! Rows are looked at for somebody: whether they still wait, and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::source::{Query, Search, SourceError};

/// So many rows are looked at before anybody asks or is told.
const ROWS_PER_CHECK: u32 = 4096;

/// Counts rows for whoever asked. What it has not told yet it tells when it is dropped.
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

    /// One row more is looked at, if anybody still waits.
    #[inline]
    pub(crate) fn count_row(&mut self) -> Result<(), SourceError> {
        if self.unreported.is_multiple_of(ROWS_PER_CHECK) {
            self.check_cancelled()?;
        }
        self.unreported += 1;
        Ok(())
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

/// So many rows more were looked at.
pub(crate) fn report_rows(progress: Option<&AtomicU64>, rows: u64) {
    if let Some(progress) = progress {
        progress.fetch_add(rows, Ordering::Relaxed);
    }
}
