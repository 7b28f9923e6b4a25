//! The processor time of one call on its thread.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Counts while a slice of the call runs. Other calls and other threads do not count.
#[derive(Debug, Default)]
pub(super) struct CpuMeter {
    used: Cell<Duration>,
    slice_start: Cell<Option<Duration>>,
    limit: Cell<Duration>,
    is_exceeded: Cell<bool>,
    /// How often the interpreter may still ask, and until when, where that is counted instead of processor time.
    polls_left: Cell<Option<(u32, Instant)>>,
}

pub(super) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// The processor time of a thread or process, read by another one.
#[derive(Debug)]
pub(super) struct CpuClock {
    /// Its first number is nanoseconds on a processor.
    #[cfg(target_os = "linux")]
    schedstat: std::path::PathBuf,
}

impl CpuClock {
    #[cfg(target_os = "linux")]
    pub(super) fn of_this_thread() -> Option<Self> {
        let id = rustix::thread::gettid().as_raw_nonzero();
        Some(Self { schedstat: format!("/proc/self/task/{id}/schedstat").into() })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn of_this_thread() -> Option<Self> {
        None
    }

    /// A worker process has one thread.
    #[cfg(target_os = "linux")]
    pub(super) fn of_process(id: u32) -> Self {
        Self { schedstat: format!("/proc/{id}/schedstat").into() }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn of_process(_: u32) -> Self {
        Self {}
    }

    /// `None` if the system does not say.
    pub(super) fn read(&self) -> Option<Duration> {
        #[cfg(target_os = "linux")]
        {
            let text = std::fs::read_to_string(&self.schedstat).ok()?;
            text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
        }
        #[cfg(not(target_os = "linux"))]
        None
    }
}

impl CpuMeter {
    pub(super) fn reset(&self, limit: Duration) {
        self.used.set(Duration::ZERO);
        self.slice_start.set(None);
        self.limit.set(limit);
        self.is_exceeded.set(false);
        self.polls_left.set(None);
    }

    /// Counts how often the interpreter asks, and reads a clock only then: what it did before may have taken long.
    pub(super) fn reset_to_polls(&self, polls_max: u32, deadline: Instant) {
        self.reset(Duration::ZERO);
        self.polls_left.set(Some((polls_max, deadline)));
    }

    pub(super) fn counts_polls(&self) -> bool {
        self.polls_left.get().is_some()
    }

    pub(super) fn begin_slice(&self) {
        if !self.counts_polls() {
            self.slice_start.set(Some(thread_cpu_time()));
        }
    }

    pub(super) fn end_slice(&self) {
        if let Some(start) = self.slice_start.take() {
            self.used.set(self.used.get() + thread_cpu_time().saturating_sub(start));
        }
    }

    /// Asked by the interpreter every few thousand steps. Once exceeded, it stays so.
    pub(super) fn must_stop(&self) -> bool {
        if let Some((left, deadline)) = self.polls_left.get() {
            self.polls_left.set(Some((left.saturating_sub(1), deadline)));
            self.is_exceeded.set(self.is_exceeded.get() || left == 0 || Instant::now() > deadline);
            return self.is_exceeded.get();
        }
        let Some(start) = self.slice_start.get() else { return false };
        let slice = thread_cpu_time().saturating_sub(start);
        if self.used.get() + slice > self.limit.get() {
            self.is_exceeded.set(true);
        }
        self.is_exceeded.get()
    }

    /// What the slices that ended have used.
    pub(super) fn used(&self) -> Duration {
        self.used.get()
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::sync::mpsc::sync_channel;
    use std::time::{Duration, Instant};

    use super::CpuMeter;
    #[cfg(target_os = "linux")]
    use super::{CpuClock, thread_cpu_time};

    #[test]
    fn counted_polls_end_after_their_number_or_their_deadline() {
        let meter = CpuMeter::default();
        meter.reset_to_polls(1, Instant::now() + Duration::from_secs(600));
        assert_eq!([meter.must_stop(), meter.must_stop(), meter.is_exceeded()], [false, true, true]);
        let deadline = Instant::now();
        while Instant::now() <= deadline {}
        meter.reset_to_polls(1000, deadline);
        assert!(meter.must_stop() && meter.is_exceeded());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_another_thread_is_what_it_worked() {
        let (clocks, received) = sync_channel(2);
        let (release, released) = sync_channel::<()>(1);
        let thread = std::thread::spawn(move || {
            clocks.send(CpuClock::of_this_thread()).expect("a receiver");
            while thread_cpu_time() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            clocks.send(None).expect("a receiver");
            released.recv().ok();
        });
        let clock = received.recv().expect("a clock").expect("a system that says");
        received.recv().expect("the work is done");
        let worked = clock.read().expect("a time");
        assert!(worked >= Duration::from_millis(10), "{worked:?}");
        drop(release);
        thread.join().expect("no panic");
    }
}
