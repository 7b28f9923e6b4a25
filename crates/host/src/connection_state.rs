//! The state of a handshake-era client: calls in flight, pending requests to it, its subscription, its streams.
//!
//! A pipe has one for as long as it lasts; an HTTP session gets one when it first needs it. A modern request needs
//! none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use json::Json;
use spile_core::LogLevel;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use wire::{Peer, RequestId};

use crate::outgoing_queue::OutgoingQueue;
use crate::session_streams::SessionStreams;
use crate::sessions::SessionTicket;
use crate::subscriptions::Subscription;

/// How a request reached the server, as far as it matters for what can be sent back.
#[derive(Clone)]
pub enum ReplyChannel {
    /// The response is the only message that can be sent.
    NoSession,
    Pipe(Arc<ConnectionState>),
    /// The request names a session, which may or may not have state yet.
    Session(SessionTicket),
}

pub struct ConnectionState {
    /// Version and capabilities from the handshake on this pipe.
    peer: Mutex<Option<Peer>>,
    /// Log level: 0 until the client sets one, else the level plus one.
    level: AtomicU8,
    calls: Mutex<CallTable>,
    /// Notified when the last call ends.
    idle_notify: Notify,
    pending_requests: Mutex<HashMap<u64, oneshot::Sender<ClientResponse>>>,
    first_request_id: u64,
    next_request_id: AtomicU64,
    /// The client sends nothing more.
    input_ended: AtomicBool,
    pub subscription: Arc<Subscription>,
    pub streams: SessionStreams,
    pub outgoing: OutgoingQueue,
    /// Identifies this connection where the server has several.
    key: Option<[u8; 16]>,
    /// Whether it is the stream of an HTTP+SSE client, which counts as a session.
    pub(crate) is_http_sse: bool,
    /// Shared with connections that remember the session.
    last_used_ms: Arc<AtomicU64>,
}

/// A client's response to a request: its result, or the message of its error.
pub(crate) type ClientResponse = Result<Json, String>;

/// Why a call is refused.
pub(crate) enum AdmissionError {
    IdInUse,
    TooManyCalls,
}

/// The calls in flight. A client may reuse an id before its first call is completely gone, so each entry has a number
/// of its own.
#[derive(Default)]
struct CallTable {
    next_entry: u64,
    entry_by_request_id: HashMap<RequestId, u64>,
    entries: HashMap<u64, CallEntry>,
    /// The calls of all entries together; a batch is one entry with several calls.
    call_count: usize,
    /// The same without the calls whose response is being written: those do not count towards the limit.
    admitted_count: usize,
    /// The client is gone; a call that starts now is aborted at once.
    closed: bool,
}

struct CallEntry {
    call_count: usize,
    admitted_count: usize,
    cancel_scope: CancelScope,
    /// `None` until the call runs as a task of its own.
    abort_handle: Option<AbortHandle>,
}

#[derive(PartialEq, Eq)]
enum CancelScope {
    Call,
    /// A call of a batch cannot be cancelled alone: its client still waits for the others.
    WholeBatch,
}

impl CallTable {
    fn remove(&mut self, entry: u64, ids: &[RequestId]) -> Option<AbortHandle> {
        self.release(entry, ids);
        let call = self.entries.remove(&entry)?;
        self.call_count -= call.call_count;
        call.abort_handle
    }

    /// Frees the ids of an entry and its share of the limit. The entry itself stays until its response is written.
    fn release(&mut self, entry: u64, ids: &[RequestId]) {
        let Some(call) = self.entries.get_mut(&entry) else { return };
        self.admitted_count -= std::mem::take(&mut call.admitted_count);
        for id in ids {
            if self.entry_by_request_id.get(id) == Some(&entry) {
                self.entry_by_request_id.remove(id);
            }
        }
    }
}

/// Registration of calls with their connection. Dropping it removes them.
pub struct InFlightGuard {
    connection: Arc<ConnectionState>,
    entry: u64,
    request_ids: Vec<RequestId>,
}

impl InFlightGuard {
    /// The number that [`ConnectionState::set_abort_handle`] takes.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Frees the request ids and the calls' share of the limit. Call this before the response is written: a client may
    /// reuse the id, or start its next call, as soon as it reads the response. Until the guard is dropped the calls
    /// still count as in flight, so that a shutdown waits for the response.
    pub fn release(&mut self) {
        lock(&self.connection.calls).release(self.entry, &self.request_ids);
    }

    pub(crate) fn connection(&self) -> &ConnectionState {
        &self.connection
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut calls = lock(&self.connection.calls);
        calls.remove(self.entry, &self.request_ids);
        let idle = calls.call_count == 0;
        drop(calls);
        if idle {
            self.connection.idle_notify.notify_waiters();
            self.connection.outgoing.wake_reader();
        }
    }
}

impl ConnectionState {
    pub(crate) fn new(subscription: Arc<Subscription>, streams: SessionStreams, now_ms: u64) -> Self {
        Self {
            peer: Mutex::default(),
            level: AtomicU8::new(0),
            calls: Mutex::default(),
            idle_notify: Notify::new(),
            pending_requests: Mutex::default(),
            first_request_id: 1,
            next_request_id: AtomicU64::new(1),
            input_ended: AtomicBool::new(false),
            subscription,
            streams,
            outgoing: OutgoingQueue::disabled(),
            key: None,
            is_http_sse: false,
            last_used_ms: Arc::new(AtomicU64::new(now_ms)),
        }
    }

    /// The state of a session, which may have had state before, or have some in another process.
    pub(crate) fn for_session(
        subscription: Arc<Subscription>,
        streams: SessionStreams,
        first_request_id: u64,
        now_ms: u64,
    ) -> Self {
        let next_request_id = AtomicU64::new(first_request_id);
        Self { first_request_id, next_request_id, ..Self::new(subscription, streams, now_ms) }
    }

    /// The state of a pipe connection.
    pub(crate) fn with_key(subscription: Arc<Subscription>, key: [u8; 16], now_ms: u64) -> Self {
        Self { key: Some(key), ..Self::new(subscription, SessionStreams::new(0, 0, 0), now_ms) }
    }

    /// The state of an HTTP+SSE connection: messages arrive by POST, and all output goes into the queue.
    pub(crate) fn with_outgoing_queue(
        subscription: Arc<Subscription>,
        outgoing: OutgoingQueue,
        key: [u8; 16],
        now_ms: u64,
    ) -> Self {
        let state = Self::new(subscription, SessionStreams::new(0, 0, 0), now_ms);
        Self { outgoing, key: Some(key), is_http_sse: true, ..state }
    }

    pub(crate) fn key(&self) -> Option<[u8; 16]> {
        self.key
    }

    pub fn peer(&self) -> Option<Peer> {
        *lock(&self.peer)
    }

    pub(crate) fn set_peer(&self, peer: Peer) {
        *lock(&self.peer) = Some(peer);
    }

    pub(crate) fn level(&self) -> Option<LogLevel> {
        let stored = self.level.load(Ordering::Relaxed);
        LogLevel::ALL.get(usize::from(stored).checked_sub(1)?).map(|(level, _)| *level)
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8 + 1, Ordering::Relaxed);
    }

    /// Checks that a call with this id may start.
    pub(crate) fn check_admission(&self, id: &RequestId, calls_max: usize) -> Result<(), AdmissionError> {
        let calls = lock(&self.calls);
        if calls.entry_by_request_id.contains_key(id) {
            Err(AdmissionError::IdInUse)
        } else if calls.admitted_count >= calls_max {
            Err(AdmissionError::TooManyCalls)
        } else {
            Ok(())
        }
    }

    /// Registers a call. From now on it counts towards the limit and can be cancelled.
    pub fn register(self: &Arc<Self>, id: RequestId) -> InFlightGuard {
        self.insert_entry(vec![id], CancelScope::Call)
    }

    /// Registers the calls of a batch. They count towards the limit, but cannot be cancelled.
    pub fn register_batch(self: &Arc<Self>, ids: Vec<RequestId>) -> InFlightGuard {
        self.insert_entry(ids, CancelScope::WholeBatch)
    }

    fn insert_entry(self: &Arc<Self>, ids: Vec<RequestId>, cancel_scope: CancelScope) -> InFlightGuard {
        let mut calls = lock(&self.calls);
        let entry = calls.next_entry;
        calls.next_entry += 1;
        calls.call_count += ids.len();
        calls.admitted_count += ids.len();
        let call_count = ids.len();
        let call = CallEntry { call_count, admitted_count: call_count, cancel_scope, abort_handle: None };
        calls.entries.insert(entry, call);
        for id in &ids {
            calls.entry_by_request_id.insert(id.clone(), entry);
        }
        drop(calls);
        InFlightGuard { connection: self.clone(), entry, request_ids: ids }
    }

    /// Sets how to abort an entry, now that it runs as a task. Aborts at once if it has been cancelled meanwhile.
    pub fn set_abort_handle(&self, entry: u64, abort_handle: AbortHandle) {
        let mut calls = lock(&self.calls);
        let closed = calls.closed;
        match calls.entries.get_mut(&entry) {
            Some(call) if !closed => call.abort_handle = Some(abort_handle),
            Some(_) | None => abort_handle.abort(),
        }
    }

    /// Cancels a call. 2025-11-25, Cancellation: unknown or finished requests, and those that cannot be
    /// cancelled, are ignored.
    pub fn cancel(&self, id: &RequestId) {
        let mut calls = lock(&self.calls);
        let Some(entry) = calls.entry_by_request_id.get(id).copied() else { return };
        if calls.entries.get(&entry).is_some_and(|call| call.cancel_scope == CancelScope::WholeBatch) {
            return;
        }
        let abort_handle = calls.remove(entry, std::slice::from_ref(id));
        drop(calls);
        if let Some(abort_handle) = abort_handle {
            abort_handle.abort();
        }
    }

    /// Waits until no call is in flight.
    pub async fn wait_until_idle(&self) {
        loop {
            let idle = self.idle_notify.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.call_count() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// The client sends nothing more. Its calls go on, but those that wait for its responses fail.
    pub fn end_input(&self) {
        let mut pending = lock(&self.pending_requests);
        self.input_ended.store(true, Ordering::Relaxed);
        pending.clear();
    }

    /// Aborts everything: the client is gone.
    pub fn close(&self) {
        // Entry numbers are not reset: an aborted call removes its own entry later, and must not remove a new one.
        let entries = {
            let mut calls = lock(&self.calls);
            calls.closed = true;
            (calls.call_count, calls.admitted_count) = (0, 0);
            calls.entry_by_request_id = HashMap::new();
            std::mem::take(&mut calls.entries)
        };
        for call in entries.into_values() {
            if let Some(abort_handle) = call.abort_handle {
                abort_handle.abort();
            }
        }
        lock(&self.pending_requests).clear();
        self.streams.close();
        self.outgoing.close();
    }

    pub fn call_count(&self) -> usize {
        lock(&self.calls).call_count
    }

    /// Registers a request to the client: its id, and the receiver of the response.
    pub(crate) fn new_request(&self) -> (u64, oneshot::Receiver<ClientResponse>) {
        let id = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        let (response, receiver) = oneshot::channel();
        let mut pending = lock(&self.pending_requests);
        pending.retain(|_, waiting| !waiting.is_closed());
        // Under the lock of the requests, so that none is left behind by `end_input`.
        if !self.input_ended.load(Ordering::Relaxed) {
            pending.insert(id, response);
        }
        (id, receiver)
    }

    /// Delivers a response. A response without a pending request is dropped: its call has ended, or nobody sent the request.
    pub fn deliver_response(&self, id: Option<u64>, response: ClientResponse) {
        let waiting = id.and_then(|id| lock(&self.pending_requests).remove(&id));
        match waiting {
            // The call that sent the request may have ended.
            Some(waiting) => drop(waiting.send(response)),
            None => tracing::debug!("a client answered a request that no call waits for"),
        }
    }

    /// Whether a request with this id was sent from here, and perhaps answered or given up since.
    pub(crate) fn has_sent_request(&self, id: u64) -> bool {
        (self.first_request_id..self.next_request_id.load(Ordering::Relaxed)).contains(&id)
    }

    pub(crate) fn awaits_response(&self, id: u64) -> bool {
        lock(&self.pending_requests).contains_key(&id)
    }

    pub(crate) fn touch(&self, now_ms: u64) {
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When it was used last; [`ConnectionState::touch`] changes it.
    pub(crate) fn last_used_ms(&self) -> Arc<AtomicU64> {
        self.last_used_ms.clone()
    }

    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_used_ms.load(Ordering::Relaxed))
    }

    /// Whether calls are in flight or a stream is being read.
    pub(crate) fn is_busy(&self) -> bool {
        self.call_count() > 0 || self.streams.is_attached()
    }

    /// Whether it equals a new one, so that dropping it loses nothing.
    pub(crate) fn is_unused(&self) -> bool {
        !self.is_busy()
            && self.level.load(Ordering::Relaxed) == 0
            && !self.subscription.has_subscriptions()
            && self.streams.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplyChannel {
    /// Identifies the session or connection; `None` for a request that stands alone.
    pub(crate) fn session_key(&self) -> Option<[u8; 16]> {
        match self {
            Self::NoSession => None,
            Self::Pipe(connection) => connection.key(),
            Self::Session(ticket) => Some(ticket.key()),
        }
    }
}
