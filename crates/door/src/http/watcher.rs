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

use super::Timing;
use super::stream::Stream;
use super::tls::stream::Session;
use crate::ending::Ending;
use crate::pipe::Minder;

const TICK_MS: u64 = 100;

/// A client that only keeps a connection open has this long to see that we are going.
const GOODBYE_MS: u64 = 300;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Doing {
    /// Waiting for the first byte of the next request.
    Idle,
    /// In the head of a request, or in the handshake before the first.
    Head,
    /// In the body of a request.
    Body,
    /// Working on requests, or streaming answers.
    Busy,
    /// A pipe between two messages, which may be quiet.
    Quiet,
    /// A pipe between two messages, whose client answers when it is asked whether it is there.
    Heard,
}

/// How long a pipe may be quiet between two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rests {
    ForEver,
    /// As long as something is heard from its client now and then.
    WhileHeard,
}

/// A connection as its requests and the watcher see it: the socket, and notes on what happens there.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// What lies over the socket, if it is not plain.
    tls: Option<Arc<Session>>,
    clock: Arc<AtomicU32>,
    doing: AtomicU8,
    since: AtomicU32,
    /// The tick at which the head of the current request was complete.
    asked: AtomicU32,
    /// The tick at which a write began to stall; 0 if none does.
    stalled: AtomicU32,
    requests: AtomicUsize,
    /// Whether requests share the connection: then bytes that arrive say nothing about a head.
    shared: AtomicBool,
    /// Whether it is to end once its answers are out.
    ending: Ending,
}

impl Link {
    fn set(&self, doing: Doing) {
        self.since.store(self.clock.load(Relaxed), Relaxed);
        self.doing.store(doing as u8, Relaxed);
    }

    #[inline]
    pub(crate) fn read(&self) {
        let doing = self.doing.load(Relaxed);
        if doing == Doing::Idle as u8 && !self.shared.load(Relaxed) {
            self.set(Doing::Head);
        } else if doing == Doing::Body as u8 || doing == Doing::Heard as u8 {
            self.since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn write_stalls(&self) {
        // Only the first of a row of stalls counts.
        if self.stalled.load(Relaxed) == 0 {
            self.stalled.store(self.clock.load(Relaxed).max(1), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn written(&self) {
        if self.stalled.load(Relaxed) != 0 {
            self.stalled.store(0, Relaxed);
        }
        // hyper lets go of an answer when it has taken it, and may be writing it for long after.
        if self.doing.load(Relaxed) == Doing::Idle as u8 {
            self.since.store(self.clock.load(Relaxed), Relaxed);
        }
    }

    /// A request's head is complete.
    #[inline]
    pub(crate) fn request(&self, shared: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.asked.store(self.clock.load(Relaxed), Relaxed);
        if shared {
            self.shared.store(true, Relaxed);
            self.set(Doing::Busy);
        } else {
            self.set(Doing::Body);
        }
    }

    #[inline]
    pub(crate) fn body_complete(&self) {
        self.set(Doing::Busy);
    }

    /// Nothing has been asked yet, and nothing need be for a while.
    #[cfg(unix)]
    pub(crate) fn may_dwell(&self) {
        self.set(Doing::Idle);
    }

    /// An answer is complete, or given up.
    #[inline]
    pub(crate) fn answered(&self) {
        if self.requests.fetch_sub(1, Relaxed) == 1 {
            self.set(Doing::Idle);
        }
    }

    fn overdue(&self, now: u32, timing: &Timing) -> bool {
        let since = |tick: &AtomicU32| u64::from(now.wrapping_sub(tick.load(Relaxed))) * TICK_MS;
        if self.stalled.load(Relaxed) != 0 {
            // Whoever still has something to write is not idle.
            return since(&self.stalled) > timing.write_stall_ms;
        }
        let dwelt = since(&self.since);
        match self.doing.load(Relaxed) {
            d if d == Doing::Idle as u8 || d == Doing::Heard as u8 => dwelt > timing.keep_alive_idle_ms,
            d if d == Doing::Head as u8 => dwelt > timing.header_timeout_ms,
            d if d == Doing::Body as u8 => {
                dwelt > timing.body_idle_ms || since(&self.asked) > timing.body_whole_ms
            }
            _ => false,
        }
    }

    /// Whether the connection is to end. The first to ask is woken when it is.
    #[inline]
    pub(crate) fn is_ending(&self, cx: &Context<'_>) -> bool {
        self.ending.is_told(cx)
    }

    /// Whether the client has left while it is being answered. hyper does not look: one that only stops
    /// sending, as it may, would lose an answer that is ready. A client that leaves and one that stops
    /// sending look the same from here, so whoever takes long to answer must ask.
    pub(crate) fn has_left(&self, cx: &mut Context<'_>) -> bool {
        if self.shared.load(Relaxed) {
            return false;
        }
        if let Some(tls) = &self.tls {
            return tls.has_left(self, cx);
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
    fn is_quiet(&self) -> bool {
        let quiet_ms = u64::from(self.clock.load(Relaxed).wrapping_sub(self.since.load(Relaxed))) * TICK_MS;
        self.requests.load(Relaxed) == 0 && self.stalled.load(Relaxed) == 0 && quiet_ms >= GOODBYE_MS
    }

    fn is_busy(&self) -> bool {
        self.doing.load(Relaxed) == Doing::Busy as u8
    }
}

impl Minder for Link {
    /// A pipe is one request for as long as it lasts.
    fn becomes_pipe(&self, rests: Rests) {
        self.requests.fetch_add(1, Relaxed);
        self.rests(rests);
    }

    fn is_ending(&self, cx: &Context<'_>) -> bool {
        self.ending.is_told(cx)
    }

    fn rests(&self, rests: Rests) {
        self.set(match rests {
            Rests::ForEver => Doing::Quiet,
            Rests::WhileHeard => Doing::Heard,
        });
    }

    fn message_begins(&self) {
        self.asked.store(self.clock.load(Relaxed), Relaxed);
        self.set(Doing::Body);
    }

    fn reads_again(&self) {
        self.since.store(self.clock.load(Relaxed), Relaxed);
    }
}

pub(crate) struct Watcher {
    timing: Timing,
    clock: Arc<AtomicU32>,
    connections: Mutex<Table>,
    count: AtomicUsize,
    /// Rung when the first connection comes and when the last goes.
    changed: Notify,
}

/// Connections by place; freed places are used again.
#[derive(Default)]
struct Table {
    places: Vec<Option<Watched>>,
    free: Vec<usize>,
}

struct Watched {
    link: Arc<Link>,
    stop: OnceLock<AbortHandle>,
}

/// A connection's place in the table; dropping it frees the place.
pub(crate) struct Place {
    watcher: Arc<Watcher>,
    at: usize,
}

impl Watcher {
    pub(crate) fn new(timing: Timing) -> Self {
        let clock = Arc::new(AtomicU32::new(1));
        Self {
            timing,
            clock,
            connections: Mutex::default(),
            count: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(crate) fn link(&self, stream: Stream, tls: Option<Arc<Session>>) -> Arc<Link> {
        Arc::new(Link {
            stream,
            tls,
            clock: self.clock.clone(),
            doing: AtomicU8::new(Doing::Head as u8),
            since: AtomicU32::new(self.clock.load(Relaxed)),
            asked: AtomicU32::new(0),
            stalled: AtomicU32::new(0),
            requests: AtomicUsize::new(0),
            shared: AtomicBool::new(false),
            ending: Ending::default(),
        })
    }

    /// Takes a connection in.
    pub(crate) fn enter(self: &Arc<Self>, link: Arc<Link>) -> Place {
        let watched = Some(Watched { link, stop: OnceLock::new() });
        let mut table = self.lock();
        let at = match table.free.pop() {
            Some(at) => {
                table.places[at] = watched;
                at
            }
            None => {
                table.places.push(watched);
                table.places.len() - 1
            }
        };
        drop(table);
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.changed.notify_one();
        }
        Place { watcher: self.clone(), at }
    }

    /// How to close the connection at a place. Only whoever takes connections in may call this, before it
    /// takes in another: then the place cannot have been given to somebody else.
    pub(crate) fn can_stop(&self, at: usize, stop: AbortHandle) {
        if let Some(Some(watched)) = self.lock().places.get(at) {
            // The place is new, so nothing is set yet.
            let _ = watched.stop.set(stop);
        }
    }

    /// Looks at everything, a few times a second.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            if self.count() == 0 {
                self.changed.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
            let now = self.clock.fetch_add(1, Relaxed).wrapping_add(1);
            let second = now.is_multiple_of(10);
            for watched in self.lock().places.iter().flatten() {
                if watched.link.overdue(now, &self.timing) || (second && watched.has_left()) {
                    watched.close();
                }
            }
        }
    }

    /// Tells all connections to end, and waits until they have; closes what is left after `at_most`.
    pub(crate) async fn drain(&self, at_most: Duration) {
        for watched in self.lock().places.iter().flatten() {
            watched.link.ending.tell();
        }
        let all_gone = async {
            let mut waited_ms = 0;
            while self.count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                waited_ms += 10;
                if waited_ms >= GOODBYE_MS {
                    self.close_where(Link::is_quiet);
                }
            }
        };
        if tokio::time::timeout(at_most, all_gone).await.is_err() {
            tracing::warn!(left = self.count(), "some connections did not end in time");
            self.close_where(|_| true);
        }
    }

    fn close_where(&self, test: impl Fn(&Link) -> bool) {
        for watched in self.lock().places.iter().flatten().filter(|watched| test(&watched.link)) {
            watched.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn close(&self) {
        if let Some(stop) = self.stop.get() {
            stop.abort();
        }
    }

    /// Where something else has arrived since, the socket does not wake anybody when its client leaves.
    fn has_left(&self) -> bool {
        self.link.is_busy() && self.link.is_read_closed()
    }
}

impl Place {
    pub(crate) fn at(&self) -> usize {
        self.at
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.watcher.lock();
        let gone = table.places[self.at].take();
        table.free.push(self.at);
        drop(table);
        drop(gone);
        self.watcher.count.fetch_sub(1, Relaxed);
    }
}
