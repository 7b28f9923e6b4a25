//! What a client of the handshake era has open with us: calls under way, questions, subscriptions, streams.
//!
//! A pipe has one for as long as it lasts; an HTTP session gets one when it first needs it. A request of the
//! newest era needs none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use call::Level;
use json::Json;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use wire::{Id, Peer};

use crate::events::Watch;
use crate::sessions::Ticket;
use crate::streams::Streams;

/// How a request reached us, as far as it matters for what can be said back.
#[derive(Clone)]
pub enum Line {
    /// It stands alone: the answer is all there is.
    Alone,
    Pipe(Arc<Live>),
    /// It named a session, which may or may not hold something yet.
    Session(Ticket),
}

pub struct Live {
    /// What a handshake on this pipe settled.
    peer: Mutex<Option<Peer>>,
    /// 0 until the client chooses; else one more than the level.
    level: AtomicU8,
    /// How to stop each call under way.
    calls: Mutex<HashMap<Id, Stop>>,
    /// Rung when the last call is over.
    calm: Notify,
    asks: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    ask_next: AtomicU64,
    pub watch: Arc<Watch>,
    pub streams: Streams,
    touched_ms: AtomicU64,
}

/// How to stop a call.
#[derive(Debug, Clone)]
pub enum Stop {
    /// It has nowhere to run yet.
    NotYet,
    Alone(AbortHandle),
    /// It came in a batch: it cannot be stopped without the others, which its client still waits for.
    Together(AbortHandle),
}

impl Stop {
    fn now(self) {
        match self {
            Self::NotYet => {}
            Self::Alone(task) | Self::Together(task) => task.abort(),
        }
    }
}

/// What a client answered to a question: its result, or the message of its error.
pub(crate) type Reply = Result<Json, String>;

/// Why a call cannot be taken in.
pub(crate) enum NotTaken {
    IdInUse,
    TooMany,
}

impl Live {
    pub(crate) fn new(watch: Arc<Watch>, streams: Streams, now_ms: u64) -> Self {
        Self {
            peer: Mutex::default(),
            level: AtomicU8::new(0),
            calls: Mutex::default(),
            calm: Notify::new(),
            asks: Mutex::default(),
            ask_next: AtomicU64::new(1),
            watch,
            streams,
            touched_ms: AtomicU64::new(now_ms),
        }
    }

    pub fn peer(&self) -> Option<Peer> {
        *lock(&self.peer)
    }

    pub(crate) fn set_peer(&self, peer: Peer) {
        *lock(&self.peer) = Some(peer);
    }

    pub(crate) fn level(&self) -> Option<Level> {
        let stored = self.level.load(Ordering::Relaxed);
        Level::ALL.get(usize::from(stored).checked_sub(1)?).map(|(level, _)| *level)
    }

    pub(crate) fn set_level(&self, level: Level) {
        self.level.store(level as u8 + 1, Ordering::Relaxed);
    }

    /// Whether another call may start under this id.
    pub(crate) fn admits(&self, id: &Id, calls_max: usize) -> Result<(), NotTaken> {
        let calls = lock(&self.calls);
        if calls.contains_key(id) {
            Err(NotTaken::IdInUse)
        } else if calls.len() >= calls_max {
            Err(NotTaken::TooMany)
        } else {
            Ok(())
        }
    }

    /// A call has to wait; from here on it can be cancelled.
    pub fn waits(&self, id: &Id) {
        lock(&self.calls).insert(id.clone(), Stop::NotYet);
    }

    /// How to stop it, now that it runs somewhere. If it is over or was cancelled meanwhile, it stops now.
    pub fn started(&self, id: &Id, stop: Stop) {
        match (lock(&self.calls).get_mut(id), stop) {
            (Some(place), stop) => *place = stop,
            // One of a batch may be answered before the others wait.
            (None, Stop::Together(_)) => {}
            (None, stop) => stop.now(),
        }
    }

    pub fn ended(&self, id: &Id) {
        let mut calls = lock(&self.calls);
        calls.remove(id);
        if calls.is_empty() {
            self.calm.notify_waiters();
        }
    }

    /// Stops a call. 2025-11-25, Cancellation: unknown or finished requests, and those that cannot be
    /// cancelled, are ignored.
    pub fn cancel(&self, id: &Id) {
        let mut calls = lock(&self.calls);
        let stop = match calls.get(id) {
            None | Some(Stop::Together(_)) => None,
            Some(Stop::NotYet | Stop::Alone(_)) => calls.remove(id),
        };
        drop(calls);
        if let Some(stop) = stop {
            stop.now();
        }
    }

    /// Waits until no call is under way.
    pub async fn calm(&self) {
        loop {
            let calm = self.calm.notified();
            tokio::pin!(calm);
            calm.as_mut().enable();
            if self.calls() == 0 {
                return;
            }
            calm.await;
        }
    }

    /// Stops everything: the client is gone.
    pub fn close(&self) {
        for (_, stop) in lock(&self.calls).drain() {
            stop.now();
        }
        lock(&self.asks).clear();
        self.streams.close();
    }

    pub fn calls(&self) -> usize {
        lock(&self.calls).len()
    }

    /// A new question: its id, and where the answer will come.
    pub(crate) fn ask(&self) -> (u64, oneshot::Receiver<Reply>) {
        let id = self.ask_next.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        let mut asks = lock(&self.asks);
        asks.retain(|_, waiting| !waiting.is_closed());
        asks.insert(id, answer);
        (id, receiver)
    }

    /// Delivers an answer; one that nobody waits for is dropped.
    pub fn answered(&self, id: Option<u64>, answer: Reply) {
        let waiting = id.and_then(|id| lock(&self.asks).remove(&id));
        if let Some(waiting) = waiting {
            // The asker may be gone; then the answer has no meaning.
            drop(waiting.send(answer));
        }
    }

    pub(crate) fn touch(&self, now_ms: u64) {
        self.touched_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.touched_ms.load(Ordering::Relaxed))
    }

    /// Whether somebody would miss it now.
    pub(crate) fn is_busy(&self) -> bool {
        self.calls() > 0 || self.streams.is_attached()
    }

    /// Whether it holds nothing that a new one would not.
    pub(crate) fn is_blank(&self) -> bool {
        !self.is_busy()
            && self.level.load(Ordering::Relaxed) == 0
            && !self.watch.has_subscriptions()
            && self.streams.is_blank()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
