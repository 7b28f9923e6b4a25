//! Progress of slow work, on a terminal only, and only after a second.

use std::io::{IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::notice;
use crate::sanitize;

/// A line that is updated until this is dropped.
pub(crate) struct ProgressLine(Option<(SyncSender<()>, JoinHandle<()>)>);

impl ProgressLine {
    pub(crate) fn reading(source: &str, bytes: Option<u64>) -> Self {
        let source = sanitize::escape_line(source);
        let label = match bytes {
            Some(bytes) => format!("reading {source} ({} MiB)", bytes >> 20),
            None => format!("reading {source}"),
        };
        let started = Instant::now();
        Self::start(move || format!("{label} … {} s", started.elapsed().as_secs()))
    }

    fn start(line: impl Fn() -> String + Send + 'static) -> Self {
        if !std::io::stderr().is_terminal() || notice::is_json() {
            return Self(None);
        }
        // Nothing is sent: dropping the sender stops the thread.
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let mut shown = false;
            let mut wait = Duration::from_secs(1);
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                // A terminal that has gone away is not an error.
                let _ = write!(std::io::stderr(), "\r{}", line());
                shown = true;
                wait = Duration::from_millis(500);
            }
            if shown {
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        });
        Self(Some((stop, thread)))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Progress of work whose size is known.
pub(crate) struct ProgressBar {
    done: Arc<AtomicU64>,
    _line: ProgressLine,
}

const BAR_CELLS: u64 = 24;

impl ProgressBar {
    pub(crate) fn new(label: &'static str, total: u64) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        let line = move || {
            let done = counter.load(Ordering::Relaxed).min(total);
            let scaled = |of: u64| done * of / total.max(1);
            let (full, rest) = (scaled(BAR_CELLS), BAR_CELLS - scaled(BAR_CELLS));
            format!("{label} {}{} {:>3} %", "█".repeat(full as usize), "░".repeat(rest as usize), scaled(100))
        };
        Self { done, _line: ProgressLine::start(line) }
    }

    /// Counts the bytes read through the returned reader.
    pub(crate) fn count_reads<R: Read>(&self, inner: R) -> CountingReader<R> {
        CountingReader { inner, done: self.done.clone() }
    }
}

pub(crate) struct CountingReader<R> {
    inner: R,
    done: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
