//! A thread that looks again and again.

use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What takes long to look at is left alone for this multiple of the time that the look took.
const BACKOFF_FACTOR: u32 = 20;

/// Calls a function again and again until the function says that it is done, or until this is dropped. Dropping waits
/// for a call under way.
pub struct PollThread {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PollThread {
    /// `poll` gets the time and says after which pause it wants to be called again.
    pub fn start(
        name: &str,
        first_pause: Duration,
        mut poll: impl FnMut(Instant) -> ControlFlow<(), Duration> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let run = move || {
            let mut pause = first_pause;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                let started = Instant::now();
                let ControlFlow::Continue(next) = poll(started) else { return };
                pause = next.max(started.elapsed() * BACKOFF_FACTOR);
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for PollThread {
    fn drop(&mut self) {
        // Dropping the sender wakes the thread.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}
