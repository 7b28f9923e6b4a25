//! One task that enforces the timeouts of all connections, instead of a timer for each request.
//!
//! A connection records its phase and when the phase started, with plain stores. The tracker checks all
//! connections a few times a second and closes the overdue ones. It sleeps while there are none.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::ConnectionLimits;
use super::request_budget::{RequestBudget, RequestReservation};
use super::response;
use super::response_backlog::{ResponseBacklog, TotalBacklog};
use super::socket::SocketStream;
use super::tls::stream::TlsSession;
use crate::access_tokens::GrantId;
use crate::pipe::ConnectionMonitor;
use crate::shutdown_signal::ShutdownSignal;

const TICK_MS: u64 = 100;

/// At shutdown, how long an idle connection stays open so that the client can notice.
const IDLE_CLOSE_GRACE_MS: u64 = 300;

/// For a connection on which several tokens were used: it ends with any of them.
const SEVERAL_GRANTS: u64 = u64::MAX;

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
    /// Working on requests, or streaming responses.
    Responding,
    /// A pipe between two messages, without a timeout.
    PipeIdle,
    /// A pipe between two messages, whose client must answer pings.
    PipeKeepAlive,
}

/// How long a pipe may be silent between two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdlePolicy {
    Unlimited,
    /// For the keep-alive timeout.
    KeepAlive,
}

/// A connection as its requests and the tracker see it: the socket, its phase and timestamps.
pub(crate) struct TrackedConnection {
    pub(crate) stream: SocketStream,
    /// `None` for a plain connection.
    tls: Option<Arc<TlsSession>>,
    clock: Arc<AtomicU32>,
    phase: AtomicU8,
    phase_since: AtomicU32,
    /// The tick at which the head of the current request was complete.
    head_complete_at: AtomicU32,
    /// The tick since which the peer takes nothing that we write; 0 while it does.
    write_stalled_since: AtomicU32,
    /// Response bytes that the client has not taken.
    backlog: ResponseBacklog,
    request_budget: Arc<RequestBudget>,
    /// What the tokens of its requests grant: 0 without a token, `SEVERAL_GRANTS` if they differ.
    grant: AtomicU64,
    open_requests: AtomicUsize,
    /// Whether the connection is HTTP/2, where a read does not mean that a request head has started.
    multiplexed: AtomicBool,
    /// Whether the connection has become a WebSocket or a plain pipe.
    is_pipe: AtomicBool,
    /// Tells the connection to close after its responses.
    shutdown: ShutdownSignal,
}

impl TrackedConnection {
    fn enter_phase(&self, phase: ConnectionPhase) {
        self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    /// The tracker's clock, which moves ten times a second.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    #[inline]
    pub(crate) fn on_read(&self) {
        let phase = self.phase.load(Relaxed);
        if phase == ConnectionPhase::Idle as u8 && !self.multiplexed.load(Relaxed) {
            self.enter_phase(ConnectionPhase::ReadingHead);
        } else if phase == ConnectionPhase::ReadingBody as u8 || phase == ConnectionPhase::PipeKeepAlive as u8
        {
            self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn on_write_stalled(&self) {
        // Only the first of several stalls in a row counts.
        if self.write_stalled_since.load(Relaxed) == 0 {
            self.write_stalled_since.store(self.clock.load(Relaxed).max(1), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn on_write(&self) {
        if self.write_stalled_since.load(Relaxed) != 0 {
            self.write_stalled_since.store(0, Relaxed);
        }
        // hyper drops a response body once it has buffered it, and may still be writing it much later.
        if self.phase.load(Relaxed) == ConnectionPhase::Idle as u8 {
            self.phase_since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    /// A request had a valid token. The connection, with any stream on it, must end when the token does.
    #[inline]
    pub(crate) fn on_authenticated(&self, grant: GrantId) {
        let before = self.grant.load(Relaxed);
        if before != grant.as_u64() {
            self.grant.store(if before == 0 { grant.as_u64() } else { SEVERAL_GRANTS }, Relaxed);
        }
    }

    /// Whether a token that was used on this connection is not among those that are valid.
    fn has_lost_its_grant(&self, valid_grants: &HashSet<u64>) -> bool {
        let grant = self.grant.load(Relaxed);
        grant != 0 && !valid_grants.contains(&grant)
    }

    /// A request's head is complete.
    #[inline]
    pub(crate) fn on_request_head(&self, multiplexed: bool) {
        self.open_requests.fetch_add(1, Relaxed);
        self.head_complete_at.store(self.clock.load(Relaxed), Relaxed);
        if multiplexed {
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

    /// The first request may take as long as the next one would.
    #[cfg(unix)]
    pub(crate) fn allow_idle(&self) {
        self.enter_phase(ConnectionPhase::Idle);
    }

    /// A response is complete, or was dropped.
    #[inline]
    pub(crate) fn on_response_complete(&self) {
        if self.open_requests.fetch_sub(1, Relaxed) == 1 {
            self.enter_phase(ConnectionPhase::Idle);
        }
    }

    /// Response bytes wait for the client from now on.
    #[inline]
    pub(crate) fn on_response_bytes(&self, bytes: usize) {
        self.backlog.add(bytes, self.clock.load(Relaxed));
    }

    /// The client took response bytes, or does not get them.
    #[inline]
    pub(crate) fn on_response_bytes_taken(&self, bytes: usize) {
        self.backlog.remove(bytes, self.clock.load(Relaxed));
    }

    /// Whether the client must read its responses before it sends further requests.
    #[inline]
    pub(crate) fn is_response_backlog_full(&self) -> bool {
        self.backlog.is_full()
    }

    fn is_overdue(&self, now: u32, limits: &ConnectionLimits) -> bool {
        let since = |tick: &AtomicU32| u64::from(now.wrapping_sub(tick.load(Relaxed))) * TICK_MS;
        if self.write_stalled_since.load(Relaxed) != 0 {
            // A connection with something to write is not idle.
            return since(&self.write_stalled_since) > limits.write_stall_timeout_ms;
        }
        // HTTP/2 with a window of 0: the socket takes frames, but the client takes no response.
        let stalled_ms = u64::from(now.wrapping_sub(self.backlog.progress_at())) * TICK_MS;
        if self.backlog.bytes() > 0 && stalled_ms > limits.write_stall_timeout_ms {
            return true;
        }
        let elapsed_ms = since(&self.phase_since);
        match self.phase.load(Relaxed) {
            phase
                if phase == ConnectionPhase::Idle as u8 || phase == ConnectionPhase::PipeKeepAlive as u8 =>
            {
                elapsed_ms > limits.keep_alive_timeout_ms
            }
            phase if phase == ConnectionPhase::ReadingHead as u8 => elapsed_ms > limits.header_timeout_ms,
            phase if phase == ConnectionPhase::ReadingBody as u8 => {
                elapsed_ms > limits.body_idle_timeout_ms
                    || since(&self.head_complete_at) > limits.body_total_timeout_ms
            }
            _ => false,
        }
    }

    /// Answers an HTTP/1.1 request that did not arrive in time, if the socket takes the response at once. hyper cannot:
    /// it reads, and nothing is left of it once its task is aborted. Under TLS and in HTTP/2 only the connection's own
    /// task can write, so there the connection just closes.
    fn answer_timeout(&self) {
        let reason = match self.phase.load(Relaxed) {
            // On a unix socket the client may be a plain pipe that has sent nothing yet.
            phase if phase == ConnectionPhase::ReadingHead as u8 && self.stream.is_tcp() => {
                "the head of the request did not arrive in time"
            }
            phase if phase == ConnectionPhase::ReadingBody as u8 => "the body did not arrive in time",
            _ => return,
        };
        let is_writable = self.write_stalled_since.load(Relaxed) == 0 && self.backlog.bytes() == 0;
        if !is_writable || self.is_pipe.load(Relaxed) {
            return;
        }
        tracing::info!(status = 408, reason, "refused request");
        if self.tls.is_none() && !self.multiplexed.load(Relaxed) {
            // The connection closes whether the client gets this or not.
            let _ = self.stream.try_write(&response::raw_timeout(reason));
        }
    }

    /// Whether the connection must shut down. Wakes the first caller when that changes.
    #[inline]
    pub(crate) fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.shutdown.is_triggered(cx)
    }

    /// Whether the client has disconnected while it waits for a response. hyper is configured not to check
    /// (`half_close`): a client may close its sending half and still read. From here the two look the same, so
    /// only a response that is not ready yet checks.
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

    /// Whether no request is open and nothing was written for a while.
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
    /// A pipe counts as one open request.
    fn on_pipe_start(&self, policy: IdlePolicy) {
        self.is_pipe.store(true, Relaxed);
        self.open_requests.fetch_add(1, Relaxed);
        self.on_idle(policy);
    }

    fn is_shutting_down(&self, cx: &Context<'_>) -> bool {
        self.shutdown.is_triggered(cx)
    }

    fn on_idle(&self, policy: IdlePolicy) {
        self.enter_phase(match policy {
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

    fn on_queued_bytes(&self, bytes: usize) {
        self.backlog.set(bytes, self.clock.load(Relaxed));
    }

    fn reserve_incomplete_message(&self, bytes: usize) -> Option<RequestReservation> {
        Some(self.request_budget.reserve(bytes, tokio::time::Instant::now()))
    }
}

pub(crate) struct ConnectionTracker {
    limits: ConnectionLimits,
    clock: Arc<AtomicU32>,
    connections: Mutex<ConnectionTable>,
    count: AtomicUsize,
    backlog: Arc<TotalBacklog>,
    request_budget: Arc<RequestBudget>,
    /// Notified when the first connection registers.
    changed: Notify,
}

/// Connections by slot; free slots are reused.
#[derive(Default)]
struct ConnectionTable {
    slots: Vec<Option<TrackerEntry>>,
    free_slots: Vec<usize>,
}

struct TrackerEntry {
    connection: Arc<TrackedConnection>,
    abort_handle: OnceLock<AbortHandle>,
    aborted: AtomicBool,
}

/// A connection's slot in the table; dropping it frees the slot.
pub(crate) struct ConnectionSlot {
    tracker: Arc<ConnectionTracker>,
    index: usize,
}

impl ConnectionTracker {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let clock = Arc::new(AtomicU32::new(1));
        Self {
            backlog: Arc::new(TotalBacklog::new(&limits)),
            request_budget: Arc::new(RequestBudget::new(limits.request_bytes_max)),
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

    pub(crate) fn backlog(&self) -> &TotalBacklog {
        &self.backlog
    }

    pub(crate) fn request_budget(&self) -> &Arc<RequestBudget> {
        &self.request_budget
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
            backlog: ResponseBacklog::new(self.backlog.clone()),
            request_budget: self.request_budget.clone(),
            grant: AtomicU64::new(0),
            open_requests: AtomicUsize::new(0),
            multiplexed: AtomicBool::new(false),
            is_pipe: AtomicBool::new(false),
            shutdown: ShutdownSignal::default(),
        })
    }

    /// Adds a connection to the table.
    pub(crate) fn register(self: &Arc<Self>, connection: Arc<TrackedConnection>) -> ConnectionSlot {
        let entry =
            Some(TrackerEntry { connection, abort_handle: OnceLock::new(), aborted: AtomicBool::new(false) });
        let mut table = self.lock();
        let index = match table.free_slots.pop() {
            Some(index) => {
                table.slots[index] = entry;
                index
            }
            None => {
                table.slots.push(entry);
                table.slots.len() - 1
            }
        };
        drop(table);
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.changed.notify_one();
        }
        ConnectionSlot { tracker: self.clone(), index }
    }

    /// Sets how to close a connection. The accept loop must call this before it registers the next connection:
    /// otherwise the slot may already belong to another one.
    pub(crate) fn set_abort_handle(&self, index: usize, abort_handle: AbortHandle) {
        if let Some(Some(entry)) = self.lock().slots.get(index) {
            // The slot is new, so this is the first call for it.
            let _ = entry.abort_handle.set(abort_handle);
        }
    }

    /// Checks all connections a few times a second.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            if self.count() == 0 {
                self.changed.notified().await;
            }
            let mut tick = pin!(tokio::time::sleep(Duration::from_millis(TICK_MS)));
            loop {
                tokio::select! {
                    () = &mut tick => break,
                    () = self.backlog.exceeded() => self.close_unread(),
                }
            }
            let now = self.clock.fetch_add(1, Relaxed).wrapping_add(1);
            let is_full_second = now.is_multiple_of(10);
            for entry in self.lock().slots.iter().flatten() {
                if entry.connection.is_overdue(now, &self.limits) {
                    entry.connection.answer_timeout();
                    entry.abort();
                } else if is_full_second && entry.is_disconnected() {
                    entry.abort();
                }
            }
        }
    }

    /// Closes connections that do not read their responses: each one far over its own limit, and if all together
    /// are over the limit of the process, those that have taken nothing for longest.
    fn close_unread(&self) {
        let table = self.lock();
        // Not the counter of the process: it still has the bytes of connections that are being closed.
        let mut total = 0;
        let now = self.clock.load(Relaxed);
        let mut stalled = Vec::new();
        for entry in table.slots.iter().flatten().filter(|entry| !entry.is_aborted()) {
            let bytes = entry.connection.backlog.bytes();
            if entry.connection.backlog.must_close() {
                entry.abort_unread(bytes);
            } else if bytes > 0 {
                total += bytes;
                stalled.push((now.wrapping_sub(entry.connection.backlog.progress_at()), bytes, entry));
            }
        }
        if total <= self.backlog.bytes_max() {
            return;
        }
        stalled.sort_unstable_by_key(|(ticks, bytes, _)| std::cmp::Reverse((*ticks, *bytes)));
        // A little more than necessary, so that the next response does not start this again.
        let target = self.backlog.bytes_max() - self.backlog.bytes_max() / 8;
        for (_, bytes, entry) in stalled {
            if total <= target {
                break;
            }
            total -= bytes.min(total);
            entry.abort_unread(bytes);
        }
    }

    /// Tells all connections to shut down and waits for them; closes those left after `timeout`.
    pub(crate) async fn drain(&self, timeout: Duration) {
        for entry in self.lock().slots.iter().flatten() {
            entry.connection.shutdown.trigger();
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
        if tokio::time::timeout(timeout, all_gone).await.is_err() {
            tracing::warn!(
                left = self.count(),
                "closed connections that did not end within the drain timeout"
            );
            self.close_where(|_| true);
        }
    }

    /// Closes the connections whose token is no longer valid, with whatever runs on them.
    pub(crate) fn close_revoked(&self, valid_grants: &HashSet<u64>) {
        self.close_where(|connection| connection.has_lost_its_grant(valid_grants));
    }

    fn close_where(&self, test: impl Fn(&TrackedConnection) -> bool) {
        for entry in self.lock().slots.iter().flatten().filter(|entry| test(&entry.connection)) {
            entry.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackerEntry {
    fn abort(&self) {
        self.aborted.store(true, Relaxed);
        if let Some(abort_handle) = self.abort_handle.get() {
            abort_handle.abort();
        }
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    fn abort_unread(&self, bytes: usize) {
        tracing::warn!(bytes, "closed a connection that does not read its responses");
        self.abort();
    }

    /// Catches clients that sent more before they disconnected: their sockets stay readable and wake no task.
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
        let entry = table.slots[self.index].take();
        table.free_slots.push(self.index);
        drop(table);
        drop(entry);
        self.tracker.count.fetch_sub(1, Relaxed);
    }
}
