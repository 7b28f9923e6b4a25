//! The processor time of one call on its thread.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts while a slice of the call runs. Other calls and other threads do not count.
#[derive(Debug, Default)]
pub(super) struct CpuMeter {
    used: Cell<Duration>,
    slice_start: Cell<Option<Duration>>,
    limit: Cell<Duration>,
    is_exceeded: Cell<bool>,
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

impl CpuMeter {
    pub(super) fn reset(&self, limit: Duration) {
        self.used.set(Duration::ZERO);
        self.slice_start.set(None);
        self.limit.set(limit);
        self.is_exceeded.set(false);
    }

    pub(super) fn begin_slice(&self) {
        self.slice_start.set(Some(thread_cpu_time()));
    }

    pub(super) fn end_slice(&self) {
        if let Some(start) = self.slice_start.take() {
            self.used.set(self.used.get() + thread_cpu_time().saturating_sub(start));
        }
    }

    /// Asked by the interpreter every few thousand steps. Once exceeded, it stays so.
    pub(super) fn must_stop(&self) -> bool {
        let Some(start) = self.slice_start.get() else { return false };
        let slice = thread_cpu_time().saturating_sub(start);
        if self.used.get() + slice > self.limit.get() {
            self.is_exceeded.set(true);
        }
        self.is_exceeded.get()
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }
}
