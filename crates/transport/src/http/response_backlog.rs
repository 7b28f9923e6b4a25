//! Response bytes that clients have not taken yet, counted for each connection and for the whole process.
//!
//! A client that sends requests and reads nothing (HTTP/2 with a window of 0 does not even fill the socket) makes
//! the server hold its responses. Above the connection's limit the server refuses further requests on that
//! connection; far above it, or above the limit of the process, the tracker closes the connections that have
//! taken nothing for longest. See [`TrackedConnection`](super::TrackedConnection) for the write stall timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::ConnectionLimits;

/// The backlog of all connections.
pub(crate) struct TotalBacklog {
    bytes: AtomicUsize,
    bytes_max: usize,
    connection_bytes_max: usize,
    /// Wakes the tracker when a connection must be closed.
    exceeded: Notify,
}

/// A connection is closed when its backlog exceeds its limit this many times: calls that were already running may
/// all complete at once, and a client that reads should get all their responses.
const CLOSE_FACTOR: usize = 4;

impl TotalBacklog {
    pub(crate) fn new(limits: &ConnectionLimits) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: limits.response_bytes_max,
            connection_bytes_max: limits.connection_response_bytes_max,
            exceeded: Notify::new(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Waits until a limit is exceeded.
    pub(crate) async fn exceeded(&self) {
        self.exceeded.notified().await;
    }
}

/// The backlog of one connection.
pub(crate) struct ResponseBacklog {
    total: Arc<TotalBacklog>,
    bytes: AtomicUsize,
    /// The tick at which the client last took something, or at which the backlog started.
    progress_at: AtomicU32,
    must_close: AtomicBool,
}

impl ResponseBacklog {
    pub(crate) fn new(total: Arc<TotalBacklog>) -> Self {
        Self {
            total,
            bytes: AtomicUsize::new(0),
            progress_at: AtomicU32::new(0),
            must_close: AtomicBool::new(false),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn progress_at(&self) -> u32 {
        self.progress_at.load(Ordering::Relaxed)
    }

    /// Whether further requests of this connection must be refused. When the process is over its limit, only
    /// connections that contribute to it are refused.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes > 0 && (bytes > self.total.connection_bytes_max || self.total.bytes() > self.total.bytes_max)
    }

    /// Whether the connection must be closed at once.
    pub(crate) fn must_close(&self) -> bool {
        self.must_close.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, bytes: usize, now: u32) {
        // Before the bytes become visible: the tracker must not see a backlog with an old timestamp.
        if self.bytes.load(Ordering::Relaxed) == 0 {
            self.progress_at.store(now, Ordering::Relaxed);
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Release);
        let total = self.total.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if before > self.total.connection_bytes_max || total > self.total.bytes_max {
            self.on_exceeded(before + bytes);
        }
    }

    /// One response of any size may wait. A client that lets several wait does not read.
    #[cold]
    fn on_exceeded(&self, bytes: usize) {
        if bytes > self.total.connection_bytes_max.saturating_mul(CLOSE_FACTOR) {
            self.must_close.store(true, Ordering::Relaxed);
        }
        self.total.exceeded.notify_one();
    }

    #[inline]
    pub(crate) fn remove(&self, bytes: usize, now: u32) {
        self.progress_at.store(now, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Release);
        self.total.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// For a pipe, whose own task alone writes its queue.
    pub(crate) fn set(&self, bytes: usize, now: u32) {
        let before = self.bytes.load(Ordering::Relaxed);
        if bytes > before {
            self.add(bytes - before, now);
        } else if bytes < before {
            self.remove(before - bytes, now);
        }
    }
}
