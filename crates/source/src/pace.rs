//! Rows are looked at for somebody: whether they still wait, and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::source::{Query, Search, SourceFault};

/// So many rows are looked at before anybody asks or is told.
const ROWS_PER_LOOK: u32 = 4096;

/// Counts rows for whoever asked. What it has not told yet it tells when it is dropped.
pub(crate) struct Pace<'a> {
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a AtomicU64>,
    untold: u32,
}

impl<'a> Pace<'a> {
    pub(crate) fn of_query(query: &Query<'a>) -> Self {
        Self { stop: query.stop, progress: query.progress, untold: 0 }
    }

    pub(crate) fn of_search(search: &Search<'a>) -> Self {
        Self { stop: search.stop, progress: search.progress, untold: 0 }
    }

    /// One row more is looked at, if anybody still waits.
    #[inline]
    pub(crate) fn row(&mut self) -> Result<(), SourceFault> {
        if self.untold.is_multiple_of(ROWS_PER_LOOK) {
            self.look()?;
        }
        self.untold += 1;
        Ok(())
    }

    #[cold]
    fn look(&mut self) -> Result<(), SourceFault> {
        self.tell();
        match self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(SourceFault::Stopped),
            Some(_) | None => Ok(()),
        }
    }

    fn tell(&mut self) {
        tell(self.progress, std::mem::take(&mut self.untold).into());
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// So many rows more were looked at.
pub(crate) fn tell(progress: Option<&AtomicU64>, rows: u64) {
    if let Some(progress) = progress {
        progress.fetch_add(rows, Ordering::Relaxed);
    }
}
