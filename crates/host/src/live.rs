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
use crate::mail::Mail;
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
    calls: Mutex<Calls>,
    /// Rung when the last call is over.
    calm: Notify,
    asks: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    ask_next: AtomicU64,
    pub watch: Arc<Watch>,
    pub streams: Streams,
    pub mail: Mail,
    /// What tells this line from others, where there are others.
    key: Option<[u8; 16]>,
    touched_ms: AtomicU64,
}

/// What a client answered to a question: its result, or the message of its error.
pub(crate) type Reply = Result<Json, String>;

/// Why a call cannot be taken in.
pub(crate) enum NotTaken {
    IdInUse,
    TooMany,
}

/// What is under way. An id may come again before the last trace of its first call is gone, so whatever
/// runs has a number of its own.
#[derive(Default)]
struct Calls {
    next: u64,
    numbers: HashMap<Id, u64>,
    running: HashMap<u64, Running>,
    /// How many calls all that is running stands for.
    count: usize,
    /// Whoever made them is gone; what begins now ends at once.
    closed: bool,
}

struct Running {
    calls: usize,
    cancel: Cancel,
    /// `None` until it has somewhere to run.
    stop: Option<AbortHandle>,
}

#[derive(PartialEq, Eq)]
enum Cancel {
    Alone,
    /// It came in a batch: it cannot be stopped without the others, which its client still waits for.
    NotAlone,
}

impl Calls {
    fn remove(&mut self, number: u64, ids: &[Id]) -> Option<AbortHandle> {
        let running = self.running.remove(&number)?;
        self.count -= running.calls;
        for id in ids {
            if self.numbers.get(id) == Some(&number) {
                self.numbers.remove(id);
            }
        }
        running.stop
    }
}

/// Calls that wait, in the books of whoever made them; dropping it strikes them out.
pub struct Waiting {
    live: Arc<Live>,
    number: u64,
    ids: Vec<Id>,
}

impl Waiting {
    /// What [`Live::started`] knows them by.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn live(&self) -> &Live {
        &self.live
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut calls = lock(&self.live.calls);
        calls.remove(self.number, &self.ids);
        let calm = calls.count == 0;
        drop(calls);
        if calm {
            self.live.calm.notify_waiters();
            self.live.mail.nudge();
        }
    }
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
            mail: Mail::none(),
            key: None,
            touched_ms: AtomicU64::new(now_ms),
        }
    }

    /// A pipe among others.
    pub(crate) fn keyed(watch: Arc<Watch>, key: [u8; 16], now_ms: u64) -> Self {
        Self { key: Some(key), ..Self::new(watch, Streams::new(0, 0, 0), now_ms) }
    }

    /// A line of its own among others: messages come one by one, and everything said goes into its mail.
    pub(crate) fn posted(watch: Arc<Watch>, mail: Mail, key: [u8; 16], now_ms: u64) -> Self {
        Self { mail, key: Some(key), ..Self::new(watch, Streams::new(0, 0, 0), now_ms) }
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
        if calls.numbers.contains_key(id) {
            Err(NotTaken::IdInUse)
        } else if calls.count >= calls_max {
            Err(NotTaken::TooMany)
        } else {
            Ok(())
        }
    }

    /// A call has to wait; from here on it counts and can be cancelled.
    pub fn waits(self: &Arc<Self>, id: Id) -> Waiting {
        self.enter(vec![id], Cancel::Alone)
    }

    /// Calls of one batch have to wait; from here on they count, but none of them can be cancelled.
    pub fn wait_together(self: &Arc<Self>, ids: Vec<Id>) -> Waiting {
        self.enter(ids, Cancel::NotAlone)
    }

    fn enter(self: &Arc<Self>, ids: Vec<Id>, cancel: Cancel) -> Waiting {
        let mut calls = lock(&self.calls);
        let number = calls.next;
        calls.next += 1;
        calls.count += ids.len();
        calls.running.insert(number, Running { calls: ids.len(), cancel, stop: None });
        for id in &ids {
            calls.numbers.insert(id.clone(), number);
        }
        drop(calls);
        Waiting { live: self.clone(), number, ids }
    }

    /// How to stop what waits, now that it runs somewhere. If it was cancelled meanwhile, it stops now.
    pub fn started(&self, number: u64, stop: AbortHandle) {
        let mut calls = lock(&self.calls);
        let closed = calls.closed;
        match calls.running.get_mut(&number) {
            Some(running) if !closed => running.stop = Some(stop),
            Some(_) | None => stop.abort(),
        }
    }

    /// Stops a call. 2025-11-25, Cancellation: unknown or finished requests, and those that cannot be
    /// cancelled, are ignored.
    pub fn cancel(&self, id: &Id) {
        let mut calls = lock(&self.calls);
        let Some(number) = calls.numbers.get(id).copied() else { return };
        if calls.running.get(&number).is_some_and(|running| running.cancel == Cancel::NotAlone) {
            return;
        }
        let stop = calls.remove(number, std::slice::from_ref(id));
        drop(calls);
        if let Some(stop) = stop {
            stop.abort();
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
        // The numbers go on: what is stopped here strikes itself out later, and must not hit something new.
        let running = {
            let mut calls = lock(&self.calls);
            calls.closed = true;
            (calls.count, calls.numbers) = (0, HashMap::new());
            std::mem::take(&mut calls.running)
        };
        for running in running.into_values() {
            if let Some(stop) = running.stop {
                stop.abort();
            }
        }
        lock(&self.asks).clear();
        self.streams.close();
        self.mail.cut();
    }

    pub fn calls(&self) -> usize {
        lock(&self.calls).count
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
