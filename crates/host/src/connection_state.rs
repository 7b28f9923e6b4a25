//! What a client of the handshake era has open with us: calls under way, questions, subscriptions, streams.
//!
//! A pipe has one for as long as it lasts; an HTTP session gets one when it first needs it. A request of the
//! newest era needs none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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

/// How a request reached us, as far as it matters for what can be said back.
#[derive(Clone)]
pub enum ReplyChannel {
    /// It stands alone: the answer is all there is.
    Stateless,
    Pipe(Arc<ConnectionState>),
    /// It named a session, which may or may not hold something yet.
    Session(SessionTicket),
}

pub struct ConnectionState {
    /// What a handshake on this pipe settled.
    peer: Mutex<Option<Peer>>,
    /// 0 until the client chooses; else one more than the level.
    level: AtomicU8,
    calls: Mutex<CallTable>,
    /// Rung when the last call is over.
    idle_notify: Notify,
    pending_requests: Mutex<HashMap<u64, oneshot::Sender<ClientResponse>>>,
    next_request_id: AtomicU64,
    pub subscription: Arc<Subscription>,
    pub streams: SessionStreams,
    pub outgoing: OutgoingQueue,
    /// What tells this line from others, where there are others.
    key: Option<[u8; 16]>,
    last_used_ms: AtomicU64,
}

/// What a client answered to a question: its result, or the message of its error.
pub(crate) type ClientResponse = Result<Json, String>;

/// Why a call cannot be taken in.
pub(crate) enum AdmissionError {
    IdInUse,
    TooManyCalls,
}

/// What is under way. An id may come again before the last trace of its first call is gone, so whatever
/// runs has a number of its own.
#[derive(Default)]
struct CallTable {
    next_entry: u64,
    entry_by_request_id: HashMap<RequestId, u64>,
    entries: HashMap<u64, CallEntry>,
    /// How many calls all that is running stands for.
    call_count: usize,
    /// Whoever made them is gone; what begins now ends at once.
    closed: bool,
}

struct CallEntry {
    call_count: usize,
    cancel_scope: CancelScope,
    /// `None` until it has somewhere to run.
    abort_handle: Option<AbortHandle>,
}

#[derive(PartialEq, Eq)]
enum CancelScope {
    Call,
    /// It came in a batch: it cannot be stopped without the others, which its client still waits for.
    WholeBatch,
}

impl CallTable {
    fn remove(&mut self, number: u64, ids: &[RequestId]) -> Option<AbortHandle> {
        let running = self.entries.remove(&number)?;
        self.call_count -= running.call_count;
        for id in ids {
            if self.entry_by_request_id.get(id) == Some(&number) {
                self.entry_by_request_id.remove(id);
            }
        }
        running.abort_handle
    }
}

/// Calls that wait, in the books of whoever made them; dropping it strikes them out.
pub struct InFlightGuard {
    connection: Arc<ConnectionState>,
    entry: u64,
    request_ids: Vec<RequestId>,
}

impl InFlightGuard {
    /// What [`Live::started`] knows them by.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    pub(crate) fn connection(&self) -> &ConnectionState {
        &self.connection
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut calls = lock(&self.connection.calls);
        calls.remove(self.entry, &self.request_ids);
        let calm = calls.call_count == 0;
        drop(calls);
        if calm {
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
            next_request_id: AtomicU64::new(1),
            subscription,
            streams,
            outgoing: OutgoingQueue::disabled(),
            key: None,
            last_used_ms: AtomicU64::new(now_ms),
        }
    }

    /// A pipe among others.
    pub(crate) fn with_key(watch: Arc<Subscription>, key: [u8; 16], now_ms: u64) -> Self {
        Self { key: Some(key), ..Self::new(watch, SessionStreams::new(0, 0, 0), now_ms) }
    }

    /// A line of its own among others: messages come one by one, and everything said goes into its mail.
    pub(crate) fn with_outgoing_queue(
        watch: Arc<Subscription>,
        outgoing: OutgoingQueue,
        key: [u8; 16],
        now_ms: u64,
    ) -> Self {
        Self { outgoing, key: Some(key), ..Self::new(watch, SessionStreams::new(0, 0, 0), now_ms) }
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

    /// Whether another call may start under this id.
    pub(crate) fn check_admission(&self, id: &RequestId, calls_max: usize) -> Result<(), AdmissionError> {
        let calls = lock(&self.calls);
        if calls.entry_by_request_id.contains_key(id) {
            Err(AdmissionError::IdInUse)
        } else if calls.call_count >= calls_max {
            Err(AdmissionError::TooManyCalls)
        } else {
            Ok(())
        }
    }

    /// A call has to wait; from here on it counts and can be cancelled.
    pub fn register(self: &Arc<Self>, id: RequestId) -> InFlightGuard {
        self.insert_entry(vec![id], CancelScope::Call)
    }

    /// Calls of one batch have to wait; from here on they count, but none of them can be cancelled.
    pub fn register_batch(self: &Arc<Self>, ids: Vec<RequestId>) -> InFlightGuard {
        self.insert_entry(ids, CancelScope::WholeBatch)
    }

    fn insert_entry(self: &Arc<Self>, ids: Vec<RequestId>, cancel: CancelScope) -> InFlightGuard {
        let mut calls = lock(&self.calls);
        let number = calls.next_entry;
        calls.next_entry += 1;
        calls.call_count += ids.len();
        calls
            .entries
            .insert(number, CallEntry { call_count: ids.len(), cancel_scope: cancel, abort_handle: None });
        for id in &ids {
            calls.entry_by_request_id.insert(id.clone(), number);
        }
        drop(calls);
        InFlightGuard { connection: self.clone(), entry: number, request_ids: ids }
    }

    /// How to stop what waits, now that it runs somewhere. If it was cancelled meanwhile, it stops now.
    pub fn set_abort_handle(&self, number: u64, stop: AbortHandle) {
        let mut calls = lock(&self.calls);
        let closed = calls.closed;
        match calls.entries.get_mut(&number) {
            Some(running) if !closed => running.abort_handle = Some(stop),
            Some(_) | None => stop.abort(),
        }
    }

    /// Stops a call. 2025-11-25, Cancellation: unknown or finished requests, and those that cannot be
    /// cancelled, are ignored.
    pub fn cancel(&self, id: &RequestId) {
        let mut calls = lock(&self.calls);
        let Some(number) = calls.entry_by_request_id.get(id).copied() else { return };
        if calls.entries.get(&number).is_some_and(|running| running.cancel_scope == CancelScope::WholeBatch) {
            return;
        }
        let stop = calls.remove(number, std::slice::from_ref(id));
        drop(calls);
        if let Some(stop) = stop {
            stop.abort();
        }
    }

    /// Waits until no call is under way.
    pub async fn wait_until_idle(&self) {
        loop {
            let calm = self.idle_notify.notified();
            tokio::pin!(calm);
            calm.as_mut().enable();
            if self.call_count() == 0 {
                return;
            }
            calm.await;
        }
    }

    /// Stops everything: the client is gone.
    pub fn close(&self) {
        // The numbers go on: what is stopped here strikes itself out later, and must not hit something new.
        let running = {
            let mut calls = lock(&self.calls);
            calls.closed = true;
            (calls.call_count, calls.entry_by_request_id) = (0, HashMap::new());
            std::mem::take(&mut calls.entries)
        };
        for running in running.into_values() {
            if let Some(stop) = running.abort_handle {
                stop.abort();
            }
        }
        lock(&self.pending_requests).clear();
        self.streams.close();
        self.outgoing.close();
    }

    pub fn call_count(&self) -> usize {
        lock(&self.calls).call_count
    }

    /// A new question: its id, and where the answer will come.
    pub(crate) fn new_request(&self) -> (u64, oneshot::Receiver<ClientResponse>) {
        let id = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let mut asks = lock(&self.pending_requests);
        asks.retain(|_, waiting| !waiting.is_closed());
        asks.insert(id, answer);
        (id, receiver)
    }

    /// Delivers an answer; one that nobody waits for is dropped.
    pub fn deliver_response(&self, id: Option<u64>, answer: ClientResponse) {
        let waiting = id.and_then(|id| lock(&self.pending_requests).remove(&id));
        if let Some(waiting) = waiting {
            // The asker may be gone; then the answer has no meaning.
            drop(waiting.send(answer));
        }
    }

    pub(crate) fn touch(&self, now_ms: u64) {
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_used_ms.load(Ordering::Relaxed))
    }

    /// Whether somebody would miss it now.
    pub(crate) fn is_busy(&self) -> bool {
        self.call_count() > 0 || self.streams.is_attached()
    }

    /// Whether it holds nothing that a new one would not.
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
