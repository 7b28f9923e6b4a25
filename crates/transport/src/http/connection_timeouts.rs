//! One watcher for all connections, instead of a timer for each request.
//!
//! A connection notes what it is doing and since when, with plain stores; the watcher looks at all of them
//! a few times a second and closes those that dwell too long. It sleeps while there are none.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::ConnectionLimits;
use super::socket::SocketStream;
use super::tls::stream::TlsSession;
use crate::pipe::ConnectionMonitor;
use crate::shutdown_signal::ShutdownSignal;

const TICK_MS: u64 = 100;

/// A client that only keeps a connection open has this long to see that we are going.
const IDLE_CLOSE_GRACE_MS: u64 = 300;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum ConnectionPhase {
    /// Waiting for the first byte of the next request.
    Idle,
    /// In the head of a request, or in the handshake before the first.
    ReadingHead,
    /// In the body of a request.
    ReadingBody,
    /// Working on requests, or streaming answers.
    Responding,
    /// A pipe between two messages, which may be quiet.
    PipeIdle,
    /// A pipe between two messages, whose client answers when it is asked whether it is there.
    PipeKeepAlive,
}

/// How long a pipe may be quiet between two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdlePolicy {
    Unlimited,
    /// As long as something is heard from its client now and then.
    KeepAlive,
}

/// A connection as its requests and the watcher see it: the socket, and notes on what happens there.
pub(crate) struct TrackedConnection {
    pub(crate) stream: SocketStream,
    /// What lies over the socket, if it is not plain.
    tls: Option<Arc<TlsSession>>,
    clock: Arc<AtomicU32>,
    phase: AtomicU8,
    phase_since: AtomicU32,
    /// The tick at which the head of the current request was complete.
    head_complete_at: AtomicU32,
    /// The tick at which a write began to stall; 0 if none does.
    write_stalled_since: AtomicU32,
    open_requests: AtomicUsize,
    /// Whether requests share the connection: then bytes that arrive say nothing about a head.
    multiplexed: AtomicBool,
    /// Whether it is to end once its answers are out.
    shutdown: ShutdownSignal,
}

impl TrackedConnection {
    fn enter_phase(&self, doing: ConnectionPhase) {
        self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        self.phase.store(doing as u8, Relaxed);
    }

    #[inline]
    pub(crate) fn on_read(&self) {
        let doing = self.phase.load(Relaxed);
        if doing == ConnectionPhase::Idle as u8 && !self.multiplexed.load(Relaxed) {
            self.enter_phase(ConnectionPhase::ReadingHead);
        } else if doing == ConnectionPhase::ReadingBody as u8 || doing == ConnectionPhase::PipeKeepAlive as u8
        {
            self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn on_write_stalled(&self) {
        // Only the first of a row of stalls counts.
        if self.write_stalled_since.load(Relaxed) == 0 {
            self.write_stalled_since.store(self.clock.load(Relaxed).max(1), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn on_write(&self) {
        if self.write_stalled_since.load(Relaxed) != 0 {
            self.write_stalled_since.store(0, Relaxed);
        }
        // hyper lets go of an answer when it has taken it, and may be writing it for long after.
        if self.phase.load(Relaxed) == ConnectionPhase::Idle as u8 {
            self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    /// A request's head is complete.
    #[inline]
    pub(crate) fn on_request_head(&self, shared: bool) {
        self.open_requests.fetch_add(1, Relaxed);
        self.head_complete_at.store(self.clock.load(Relaxed), Relaxed);
        if shared {
            self.multiplexed.store(true, Relaxed);
            self.enter_phase(ConnectionPhase::Responding);
        } else {
            self.enter_phase(ConnectionPhase::ReadingBody);
        }
    }

    #[inline]
    pub(crate) fn on_body_complete(&self) {
        self.enter_phase(ConnectionPhase::Responding);
    }

    /// Nothing has been asked yet, and nothing need be for a while.
    #[cfg(unix)]
    pub(crate) fn allow_idle(&self) {
        self.enter_phase(ConnectionPhase::Idle);
    }

    /// An answer is complete, or given up.
    #[inline]
    pub(crate) fn on_response_complete(&self) {
        if self.open_requests.fetch_sub(1, Relaxed) == 1 {
            self.enter_phase(ConnectionPhase::Idle);
        }
    }

    fn is_overdue(&self, now: u32, timing: &ConnectionLimits) -> bool {
        let since = |tick: &AtomicU32| u64::from(now.wrapping_sub(tick.load(Relaxed))) * TICK_MS;
        if self.write_stalled_since.load(Relaxed) != 0 {
            // Whoever still has something to write is not idle.
            return since(&self.write_stalled_since) > timing.write_stall_timeout_ms;
        }
        let dwelt = since(&self.phase_since);
        match self.phase.load(Relaxed) {
            d if d == ConnectionPhase::Idle as u8 || d == ConnectionPhase::PipeKeepAlive as u8 => {
                dwelt > timing.keep_alive_timeout_ms
            }
            d if d == ConnectionPhase::ReadingHead as u8 => dwelt > timing.header_timeout_ms,
            d if d == ConnectionPhase::ReadingBody as u8 => {
                dwelt > timing.body_idle_timeout_ms
                    || since(&self.head_complete_at) > timing.body_total_timeout_ms
            }
            _ => false,
        }
    }

    /// Whether the connection is to end. The first to ask is woken when it is.
    #[inline]
    pub(crate) fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.shutdown.is_triggered(cx)
    }

    /// Whether the client has left while it is being answered. hyper does not look: one that only stops
    /// sending, as it may, would lose an answer that is ready. A client that leaves and one that stops
    /// sending look the same from here, so whoever takes long to answer must ask.
    pub(crate) fn has_disconnected(&self, cx: &mut Context<'_>) -> bool {
        if self.multiplexed.load(Relaxed) {
            return false;
        }
        if let Some(tls) = &self.tls {
            return tls.has_disconnected(self, cx);
        }
        match self.stream.poll_peek(cx) {
            Poll::Ready(Ok(bytes)) => bytes == 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    fn is_read_closed(&self) -> bool {
        let ready = std::pin::pin!(self.stream.ready(Interest::READABLE));
        let mut cx = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut cx), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Nothing is being answered on it, and nothing of an answer has been written for a while.
    fn is_idle(&self) -> bool {
        let quiet_ms =
            u64::from(self.clock.load(Relaxed).wrapping_sub(self.phase_since.load(Relaxed))) * TICK_MS;
        self.open_requests.load(Relaxed) == 0
            && self.write_stalled_since.load(Relaxed) == 0
            && quiet_ms >= IDLE_CLOSE_GRACE_MS
    }

    fn is_responding(&self) -> bool {
        self.phase.load(Relaxed) == ConnectionPhase::Responding as u8
    }
}

impl ConnectionMonitor for TrackedConnection {
    /// A pipe is one request for as long as it lasts.
    fn on_pipe_start(&self, rests: IdlePolicy) {
        self.open_requests.fetch_add(1, Relaxed);
        self.on_idle(rests);
    }

    fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.shutdown.is_triggered(cx)
    }

    fn on_idle(&self, rests: IdlePolicy) {
        self.enter_phase(match rests {
            IdlePolicy::Unlimited => ConnectionPhase::PipeIdle,
            IdlePolicy::KeepAlive => ConnectionPhase::PipeKeepAlive,
        });
    }

    fn on_message_start(&self) {
        self.head_complete_at.store(self.clock.load(Relaxed), Relaxed);
        self.enter_phase(ConnectionPhase::ReadingBody);
    }

    fn on_read_resumed(&self) {
        self.phase_since.store(self.clock.load(Relaxed), Relaxed);
    }
}

pub(crate) struct ConnectionTracker {
    limits: ConnectionLimits,
    clock: Arc<AtomicU32>,
    connections: Mutex<ConnectionTable>,
    count: AtomicUsize,
    /// Rung when the first connection comes and when the last goes.
    changed: Notify,
}

/// Connections by place; freed places are used again.
#[derive(Default)]
struct ConnectionTable {
    slots: Vec<Option<TrackerEntry>>,
    free_slots: Vec<usize>,
}

struct TrackerEntry {
    connection: Arc<TrackedConnection>,
    abort_handle: OnceLock<AbortHandle>,
}

/// A connection's place in the table; dropping it frees the place.
pub(crate) struct ConnectionSlot {
    tracker: Arc<ConnectionTracker>,
    index: usize,
}

impl ConnectionTracker {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let clock = Arc::new(AtomicU32::new(1));
        Self {
            limits,
            clock,
            connections: Mutex::default(),
            count: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(crate) fn new_connection(
        &self,
        stream: SocketStream,
        tls: Option<Arc<TlsSession>>,
    ) -> Arc<TrackedConnection> {
        Arc::new(TrackedConnection {
            stream,
            tls,
            clock: self.clock.clone(),
            phase: AtomicU8::new(ConnectionPhase::ReadingHead as u8),
            phase_since: AtomicU32::new(self.clock.load(Relaxed)),
            head_complete_at: AtomicU32::new(0),
            write_stalled_since: AtomicU32::new(0),
            open_requests: AtomicUsize::new(0),
            multiplexed: AtomicBool::new(false),
            shutdown: ShutdownSignal::default(),
        })
    }

    /// Takes a connection in.
    pub(crate) fn register(self: &Arc<Self>, link: Arc<TrackedConnection>) -> ConnectionSlot {
        let watched = Some(TrackerEntry { connection: link, abort_handle: OnceLock::new() });
        let mut table = self.lock();
        let at = match table.free_slots.pop() {
            Some(at) => {
                table.slots[at] = watched;
                at
            }
            None => {
                table.slots.push(watched);
                table.slots.len() - 1
            }
        };
        drop(table);
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.changed.notify_one();
        }
        ConnectionSlot { tracker: self.clone(), index: at }
    }

    /// How to close the connection at a place. Only whoever takes connections in may call this, before it
    /// takes in another: then the place cannot have been given to somebody else.
    pub(crate) fn set_abort_handle(&self, at: usize, stop: AbortHandle) {
        if let Some(Some(watched)) = self.lock().slots.get(at) {
            // The place is new, so nothing is set yet.
            let _ = watched.abort_handle.set(stop);
        }
    }

    /// Looks at everything, a few times a second.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            if self.count() == 0 {
                self.changed.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
            let now = self.clock.fetch_add(1, Relaxed).wrapping_add(1);
            let second = now.is_multiple_of(10);
            for watched in self.lock().slots.iter().flatten() {
                if watched.connection.is_overdue(now, &self.limits) || (second && watched.is_disconnected()) {
                    watched.abort();
                }
            }
        }
    }

    /// Tells all connections to end, and waits until they have; closes what is left after `at_most`.
    pub(crate) async fn drain(&self, at_most: Duration) {
        for watched in self.lock().slots.iter().flatten() {
            watched.connection.shutdown.trigger();
        }
        let all_gone = async {
            let mut waited_ms = 0;
            while self.count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                waited_ms += 10;
                if waited_ms >= IDLE_CLOSE_GRACE_MS {
                    self.close_where(TrackedConnection::is_idle);
                }
            }
        };
        if tokio::time::timeout(at_most, all_gone).await.is_err() {
            tracing::warn!(left = self.count(), "some connections did not end in time");
            self.close_where(|_| true);
        }
    }

    fn close_where(&self, test: impl Fn(&TrackedConnection) -> bool) {
        for watched in self.lock().slots.iter().flatten().filter(|watched| test(&watched.connection)) {
            watched.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackerEntry {
    fn abort(&self) {
        if let Some(stop) = self.abort_handle.get() {
            stop.abort();
        }
    }

    /// Where something else has arrived since, the socket does not wake anybody when its client leaves.
    fn is_disconnected(&self) -> bool {
        self.connection.is_responding() && self.connection.is_read_closed()
    }
}

impl ConnectionSlot {
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.tracker.lock();
        let gone = table.slots[self.index].take();
        table.free_slots.push(self.index);
        drop(table);
        drop(gone);
        self.tracker.count.fetch_sub(1, Relaxed);
    }
}
