//! Writes stdout on the thread that has a response, as long as that cannot block.
//!
//! A client that sends without reading fills the pipe. Then a writer thread takes over, so that the reading
//! thread can go on and see the client's next message, such as a cancellation, or the end of the input.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::conversation::{AtomicFraming, MessageSink};

pub struct StdoutWriter {
    file: File,
    pub(crate) framing: AtomicFraming,
    closed: AtomicBool,
    /// Whether the file does not support non-blocking writes, so that each write needs a `poll` first.
    poll_before_write: AtomicBool,
    state: Mutex<WriterState>,
    changed: Condvar,
    /// How long a client may take nothing while the server waits for room.
    write_stall_timeout: Duration,
    bytes_written: AtomicU64,
}

#[derive(Default)]
struct WriterState {
    /// Bytes for the writer thread.
    queue: Vec<u8>,
    /// Whether the writer thread is writing; then no other thread may write.
    thread_is_writing: bool,
    thread_started: bool,
    /// Senders that wait for room. Each is a running call, so their number is bounded.
    waiting_senders: Vec<Waker>,
}

/// How much may wait for a client that does not read. Above it, reading waits and notifications are dropped.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// As on every other transport.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// POSIX: a pipe that polls as writable takes this much without blocking.
const CHUNK_BYTES: usize = 4096;

/// A client that takes this much within the write stall timeout is not stalled.
const PROGRESS_BYTES: usize = 16 << 10;

/// How much was written when the client last took something.
pub(crate) struct WriteProgress {
    bytes_written: u64,
    since: Instant,
}

impl StdoutWriter {
    pub fn new(file: File) -> Arc<Self> {
        Self::with_write_stall_timeout(file, WRITE_STALL_TIMEOUT)
    }

    /// A client that takes nothing for `write_stall_timeout` while the queue is full counts as gone.
    pub fn with_write_stall_timeout(file: File, write_stall_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            write_stall_timeout,
            bytes_written: AtomicU64::new(0),
            file,
            framing: AtomicFraming::default(),
            closed: AtomicBool::new(false),
            poll_before_write: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether the client is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, at most for `timeout`. Nothing is written afterwards.
    pub fn finish(&self, timeout: Duration) {
        let state = self.lock();
        let is_busy = |state: &mut WriterState| state.thread_is_writing && !self.is_closed();
        let (mut state, _) =
            self.changed.wait_timeout_while(state, timeout, is_busy).unwrap_or_else(PoisonError::into_inner);
        // The writer thread exits too and releases the pipe.
        self.close(&mut state);
    }

    /// Waits until everything is written, for as long as the client takes some of it. Nothing is written afterwards.
    pub(crate) fn finish_unless_stalled(&self) {
        let mut state = self.lock();
        while state.thread_is_writing && !self.is_closed() {
            state = self.wait_for_progress(state);
        }
        self.close(&mut state);
    }

    /// The progress of the client, for [`StdoutWriter::is_stalled`].
    pub(crate) fn start_progress(&self, now: Instant) -> WriteProgress {
        WriteProgress { bytes_written: self.bytes_written.load(Ordering::Relaxed), since: now }
    }

    /// Whether responses wait, and the client has taken nothing for the write stall timeout.
    pub(crate) fn is_stalled(&self, progress: &mut WriteProgress, now: Instant) -> bool {
        let current = self.start_progress(now);
        if !self.lock().thread_is_writing || current.bytes_written != progress.bytes_written {
            *progress = current;
        }
        now.duration_since(progress.since) >= self.write_stall_timeout
    }

    /// Whether written bytes cannot be read any more: the other end of the pipe or socket is closed.
    #[cfg(unix)]
    pub(crate) fn is_reader_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.file, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = poll(&mut fds, Some(&now));
        self.is_closed() || polled.is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    #[cfg(not(unix))]
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.is_closed()
    }

    fn write_or_queue(self: &Arc<Self>, mut state: MutexGuard<'_, WriterState>, mut bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        if !state.thread_is_writing {
            match self.write_available(&mut bytes) {
                Ok(()) if bytes.is_empty() => return,
                Ok(()) => {}
                Err(_) => return self.close(&mut state),
            }
            state.thread_is_writing = true;
        }
        state.queue.extend_from_slice(bytes);
        if state.thread_started {
            self.changed.notify_all();
            return;
        }
        state.thread_started = true;
        drop(state);
        let this = self.clone();
        let spawned =
            std::thread::Builder::new().name("stdout".into()).spawn(move || this.run_writer_thread());
        if spawned.is_err() {
            self.close(&mut self.lock());
        }
    }

    /// Writes as much as possible without blocking.
    fn write_available(&self, bytes: &mut &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match self.write_nonblocking(bytes) {
                Some(written) => written,
                None if self.is_writable()? => (&self.file).write(&bytes[..bytes.len().min(CHUNK_BYTES)]),
                None => return Ok(()),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => *bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes as much as fits, on systems that support a non-blocking flag for a single write.
    #[cfg(target_os = "linux")]
    fn write_nonblocking(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        use rustix::io::{Errno, ReadWriteFlags, pwritev2};
        /// The current position; a pipe has no other.
        const CURRENT_OFFSET: u64 = u64::MAX;
        if self.poll_before_write.load(Ordering::Relaxed) {
            return None;
        }
        match pwritev2(&self.file, &[io::IoSlice::new(bytes)], CURRENT_OFFSET, ReadWriteFlags::NOWAIT) {
            // An older kernel, or a file that is neither a pipe nor a socket.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
                self.poll_before_write.store(true, Ordering::Relaxed);
                None
            }
            written => Some(written.map_err(io::Error::from)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn write_nonblocking(&self, _: &[u8]) -> Option<io::Result<usize>> {
        None
    }

    #[cfg(unix)]
    fn is_writable(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            // An error or a closed reader also counts as ready; the write returns the error.
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(unix))]
    fn is_writable(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// The writer thread: the only one that may block in a write.
    fn run_writer_thread(&self) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !self.is_closed() {
                state.thread_is_writing = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if self.is_closed() {
                return;
            }
            batch.clear();
            std::mem::swap(&mut batch, &mut state.queue);
            self.changed.notify_all();
            state.waiting_senders.drain(..).for_each(Waker::wake);
            drop(state);
            if let Err(error) = self.write_all(&batch) {
                tracing::debug!(%error, "cannot write to stdout; the client is gone");
                return self.close(&mut self.lock());
            }
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // In parts: a blocking write returns only when the client has taken all of it.
            match (&self.file).write(&bytes[..bytes.len().min(PROGRESS_BYTES)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes_written.fetch_add(written as u64, Ordering::Relaxed);
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The pipe was made non-blocking by another process; wait anyway.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) -> MutexGuard<'_, WriterState> {
        let mut state = self.lock();
        while state.queue.len() > QUEUE_BYTES_MAX && !self.is_closed() {
            state = self.wait_for_progress(state);
        }
        state
    }

    /// Waits for a change of the queue. Closes if the client takes nothing for the write stall timeout.
    fn wait_for_progress<'s>(&'s self, state: MutexGuard<'s, WriterState>) -> MutexGuard<'s, WriterState> {
        let written = self.bytes_written.load(Ordering::Relaxed);
        let waited = self.changed.wait_timeout(state, self.write_stall_timeout);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && self.bytes_written.load(Ordering::Relaxed) == written {
            tracing::warn!("the client does not read stdout; ending");
            self.close(&mut state);
        }
        state
    }

    fn close(&self, state: &mut WriterState) {
        self.closed.store(true, Ordering::Relaxed);
        state.queue = Vec::new();
        self.changed.notify_all();
        state.waiting_senders.drain(..).for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessageSink for StdoutWriter {
    fn append(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.framing.get().write(batch, &message);
    }

    /// Waits while the queue is over its limit, and gives the client up if it takes nothing meanwhile. The thread
    /// that waits here is the one that reads stdin, so it cannot notice that the client has closed it.
    fn write_batch(self: &Arc<Self>, batch: &mut Vec<u8>) {
        if batch.is_empty() {
            return;
        }
        let state = self.wait_for_room();
        self.write_or_queue(state, batch);
        batch.clear();
    }

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        let mut framed = Vec::with_capacity(message.len() + 32);
        self.append(&mut framed, message);
        self.write_or_queue(self.lock(), &framed);
    }

    fn send_lossy(self: &Arc<Self>, message: Vec<u8>) {
        let mut framed = Vec::with_capacity(message.len() + 32);
        self.append(&mut framed, message);
        let state = self.lock();
        if state.queue.len() <= QUEUE_BYTES_MAX {
            self.write_or_queue(state, &framed);
        }
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.queue.len() <= QUEUE_BYTES_MAX || self.is_closed() {
            return Poll::Ready(());
        }
        state.waiting_senders.push(cx.waker().clone());
        Poll::Pending
    }
}
