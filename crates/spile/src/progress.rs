//! A sign of life while a file is read: only for people at a terminal, and only after a second.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shows what is going on until it is dropped.
pub(crate) struct Progress(Option<(SyncSender<()>, JoinHandle<()>)>);

impl Progress {
    pub(crate) fn on(file: &str, path: &Path) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let mebibytes = std::fs::metadata(path).map_or(0, |found| found.len() >> 20);
        let what = format!("reading {file} ({mebibytes} MiB)");
        // Nothing is ever sent: the end of it is the sign.
        let (stop, stopped) = sync_channel(1);
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut shown = false;
            let mut wait = Duration::from_secs(1);
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                // A terminal that is gone has nobody at it.
                let _ = write!(std::io::stderr(), "\r{what} … {} s", began.elapsed().as_secs());
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

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
