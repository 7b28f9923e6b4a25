//! The way out of a pipe: written where it is made, as long as that cannot block.
//!
//! A client that sends without reading fills the pipe. Then a thread of its own takes over the writing, so
//! that whoever reads can go on and see what else the client wants: a cancellation, or the end.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::talk::{Outlet, Spoken};

pub struct Output {
    file: File,
    pub(crate) spoken: Spoken,
    closed: AtomicBool,
    /// Whether a write cannot be told not to wait, so that we must ask before each.
    must_ask: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What waits for the writing thread.
    queue: Vec<u8>,
    /// Whether that thread is at work; then nobody else may write.
    handed_over: bool,
    thread: bool,
    /// Who has something to send and waits for room: calls under way, so no more than there may be.
    waiting: Vec<Waker>,
}

/// What may wait for a client that does not read. Beyond it, reading waits too and notices are dropped.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// POSIX: a pipe that polls as writable takes this much without blocking.
const CHUNK_BYTES: usize = 4096;

impl Output {
    pub fn new(file: File) -> Arc<Self> {
        Arc::new(Self {
            file,
            spoken: Spoken::default(),
            closed: AtomicBool::new(false),
            must_ask: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether the client has stopped reading for good.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, but not for ever. Nothing is written after it.
    pub fn finish(&self, at_most: Duration) {
        let state = self.lock();
        let busy = |state: &mut State| state.handed_over && !self.is_closed();
        let (mut state, _) =
            self.changed.wait_timeout_while(state, at_most, busy).unwrap_or_else(PoisonError::into_inner);
        // The writing thread goes too, and with it the last hold on the pipe.
        self.close(&mut state);
    }

    fn put(self: &Arc<Self>, mut state: MutexGuard<'_, State>, mut bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        if !state.handed_over {
            match self.write_some(&mut bytes) {
                Ok(()) if bytes.is_empty() => return,
                Ok(()) => {}
                Err(_) => return self.close(&mut state),
            }
            state.handed_over = true;
        }
        state.queue.extend_from_slice(bytes);
        if state.thread {
            self.changed.notify_all();
            return;
        }
        state.thread = true;
        drop(state);
        let this = self.clone();
        let spawned = std::thread::Builder::new().name("stdout".into()).spawn(move || this.drain());
        if spawned.is_err() {
            self.close(&mut self.lock());
        }
    }

    /// Writes as much as can be written without waiting.
    fn write_some(&self, bytes: &mut &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match self.write_now(bytes) {
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

    /// Writes all that fits in one call, where the system can be told not to wait for this write alone.
    #[cfg(target_os = "linux")]
    fn write_now(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        use rustix::io::{Errno, ReadWriteFlags, pwritev2};
        /// Where the stream stands: a pipe has no other place.
        const HERE: u64 = u64::MAX;
        if self.must_ask.load(Ordering::Relaxed) {
            return None;
        }
        match pwritev2(&self.file, &[io::IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
            // An older kernel, or something else than a pipe or socket.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
                self.must_ask.store(true, Ordering::Relaxed);
                None
            }
            written => Some(written.map_err(io::Error::from)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn write_now(&self, _: &[u8]) -> Option<io::Result<usize>> {
        None
    }

    #[cfg(unix)]
    fn is_writable(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            // An error or a closed reader also "polls": the write will tell.
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(unix))]
    fn is_writable(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// The writing thread: blocks in the place of everybody else.
    fn drain(&self) {
        let mut mine = Vec::new();
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !self.is_closed() {
                state.handed_over = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if self.is_closed() {
                return;
            }
            mine.clear();
            std::mem::swap(&mut mine, &mut state.queue);
            self.changed.notify_all();
            state.waiting.drain(..).for_each(Waker::wake);
            drop(state);
            if let Err(error) = self.write_all(&mine) {
                tracing::debug!(%error, "the client no longer reads");
                return self.close(&mut self.lock());
            }
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&self.file).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Somebody set the pipe not to block; wait for it all the same.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn close(&self, state: &mut State) {
        self.closed.store(true, Ordering::Relaxed);
        state.queue = Vec::new();
        self.changed.notify_all();
        state.waiting.drain(..).for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for Output {
    fn frame(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.spoken.get().write(batch, &message);
    }

    /// Waits if far too much is waiting already.
    fn write(self: &Arc<Self>, batch: &mut Vec<u8>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.queue.len() > QUEUE_BYTES_MAX && !self.is_closed() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.put(state, batch);
        batch.clear();
    }

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        let mut framed = Vec::with_capacity(message.len() + 32);
        self.frame(&mut framed, message);
        self.put(self.lock(), &framed);
    }

    fn notice(self: &Arc<Self>, message: Vec<u8>) {
        let mut framed = Vec::with_capacity(message.len() + 32);
        self.frame(&mut framed, message);
        let state = self.lock();
        if state.queue.len() <= QUEUE_BYTES_MAX {
            self.put(state, &framed);
        }
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.queue.len() <= QUEUE_BYTES_MAX || self.is_closed() {
            return Poll::Ready(());
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }
}
