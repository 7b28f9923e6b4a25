//! What a client of the handshake era reads over HTTP, and may come back for.
//!
//! A call that has to wait writes into a stream; a response reads from it. The two need not meet: when a
//! connection breaks, the stream goes on, and a GET with `Last-Event-ID` takes it up where it was left.
//! Each stream is bounded: notifications make way, answers and questions do not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use wire::frame::sse::EventId;

use crate::live::Live;

/// The stream that a client opens with GET: what belongs to no request.
pub const GET_STREAM: u32 = 0;

/// How many ended streams are kept for a client that comes back.
const ENDED_MAX: usize = 16;

pub struct Streams {
    inner: Mutex<Inner>,
    events_max: usize,
    bytes_max: usize,
}

struct Inner {
    next: u32,
    all: Vec<Stream>,
    closed: bool,
}

struct Stream {
    id: u32,
    events: VecDeque<Event>,
    bytes: usize,
    next_event: u64,
    ended: bool,
    /// Who reads; a new reader takes the place of the old.
    reader: u64,
    attached: bool,
    waker: Option<Waker>,
}

struct Event {
    number: u64,
    what: Kept,
}

enum Kept {
    /// May make way.
    Notice(Arc<[u8]>),
    /// A question.
    Question(Arc<[u8]>),
    Answer {
        status: u16,
        body: Arc<[u8]>,
    },
    Pause {
        retry_ms: u64,
    },
}

/// What a reader gets.
pub enum Part {
    Message {
        id: EventId,
        body: Arc<[u8]>,
    },
    Answer {
        id: EventId,
        status: u16,
        body: Arc<[u8]>,
    },
    /// Let go and come back later.
    Pause {
        retry_ms: u64,
    },
}

impl Streams {
    /// Streams, and the events of the GET stream, are counted from behind `before`.
    pub(crate) fn new(before: u32, events_max: usize, bytes_max: usize) -> Self {
        let get = Stream { next_event: u64::from(before) + 1, ..Stream::new(GET_STREAM) };
        let next = before.wrapping_add(1).max(GET_STREAM + 1);
        let inner = Inner { next, all: vec![get], closed: false };
        Self { inner: Mutex::new(inner), events_max, bytes_max }
    }

    /// A stream for one request.
    pub fn open(&self) -> u32 {
        let mut inner = self.lock();
        let id = inner.next;
        inner.next = inner.next.wrapping_add(1).max(GET_STREAM + 1);
        inner.forget_ended(ENDED_MAX, self.bytes_max);
        inner.all.push(Stream::new(id));
        id
    }

    /// Forgets a stream that nobody needs to come back to.
    pub fn forget(&self, id: u32) {
        self.lock().all.retain(|stream| stream.id != id || id == GET_STREAM);
    }

    pub fn notice(&self, id: u32, body: Vec<u8>) {
        self.push(id, Kept::Notice(body.into()));
    }

    pub fn question(&self, id: u32, body: Vec<u8>) {
        self.push(id, Kept::Question(body.into()));
    }

    pub fn pause(&self, id: u32, retry_ms: u64) {
        self.push(id, Kept::Pause { retry_ms });
    }

    pub fn answer(&self, id: u32, status: u16, body: Vec<u8>) {
        self.push(id, Kept::Answer { status, body: body.into() });
    }

    /// Reads a stream from behind `after`, or from now on. `None` if there is no such stream (any more).
    pub fn attach(live: &Arc<Live>, id: u32, after: Option<u64>) -> Option<Attached> {
        let mut inner = live.streams.lock();
        let stream = inner.all.iter_mut().find(|s| s.id == id)?;
        stream.reader += 1;
        stream.attached = true;
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
        // A place that we never gave is no place: behind it nothing would ever come.
        let newest = stream.next_event - 1;
        let after = after.map_or(newest, |after| after.min(newest));
        Some(Attached { live: live.clone(), id, after, reader: stream.reader })
    }

    /// A broken call leaves no answer; its reader must not wait for one.
    pub fn end(&self, id: u32) {
        let mut inner = self.lock();
        if let Some(stream) = inner.all.iter_mut().find(|s| s.id == id) {
            stream.ended = true;
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for stream in &mut inner.all {
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.lock().all.iter().any(|stream| stream.attached)
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.lock().all.iter().all(|stream| stream.id == GET_STREAM && stream.events.is_empty())
    }

    fn push(&self, id: u32, what: Kept) {
        let mut inner = self.lock();
        let Some(stream) = inner.all.iter_mut().find(|s| s.id == id) else { return };
        if matches!(what, Kept::Pause { .. }) && !stream.attached {
            return;
        }
        stream.ended |= matches!(what, Kept::Answer { .. });
        stream.bytes += what.bytes();
        let number = stream.next_event;
        stream.next_event += 1;
        stream.events.push_back(Event { number, what });
        while stream.events.len() > self.events_max || stream.bytes > self.bytes_max {
            let Some(at) = stream.events.iter().position(|e| matches!(e.what, Kept::Notice(_))) else {
                break;
            };
            if let Some(event) = stream.events.remove(at) {
                stream.bytes -= event.what.bytes();
            }
        }
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Forgets ended streams that nobody reads, oldest first, until they are few and small: together they may
    /// hold no more than one stream may.
    fn forget_ended(&mut self, count_max: usize, bytes_max: usize) {
        let waits = |stream: &Stream| stream.ended && !stream.attached;
        let mut count = self.all.iter().filter(|stream| waits(stream)).count();
        let mut bytes: usize =
            self.all.iter().filter(|stream| waits(stream)).map(|stream| stream.bytes).sum();
        self.all.retain(|stream| {
            let goes = waits(stream) && (count > count_max || bytes > bytes_max);
            if goes {
                count -= 1;
                bytes -= stream.bytes;
            }
            !goes
        });
    }
}

impl Stream {
    fn new(id: u32) -> Self {
        let (events, waker) = (VecDeque::new(), None);
        // Event 0 is the one that primes the stream.
        Self { id, events, bytes: 0, next_event: 1, ended: false, reader: 0, attached: false, waker }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Self::Notice(body) | Self::Question(body) | Self::Answer { body, .. } => body.len(),
            Self::Pause { .. } => 0,
        }
    }
}

/// A reader of one stream.
pub struct Attached {
    live: Arc<Live>,
    id: u32,
    after: u64,
    reader: u64,
}

impl Attached {
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub fn stream(&self) -> u32 {
        self.id
    }

    /// The event that primes this reader: it stands for what was read already.
    pub fn start(&self) -> EventId {
        EventId { stream: self.id, event: self.after }
    }

    /// The next part; `None` at the end, or when another reader took over.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        let mut inner = self.live.streams.lock();
        let closed = inner.closed;
        let Some(stream) = inner.all.iter_mut().find(|s| s.id == self.id) else { return Poll::Ready(None) };
        if stream.reader != self.reader {
            // On its way here it may have asked to be told of news in place of the new reader, who asks again.
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
            return Poll::Ready(None);
        }
        let Some(at) = stream.events.iter().position(|e| e.number > self.after) else {
            // A call under way is answered even while we close; what would go on for ever ends.
            if stream.ended || (closed && stream.id == GET_STREAM) {
                return Poll::Ready(None);
            }
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let event = &stream.events[at];
        self.after = event.number;
        let id = EventId { stream: self.id, event: event.number };
        let part = match &event.what {
            Kept::Notice(body) | Kept::Question(body) => Part::Message { id, body: body.clone() },
            Kept::Answer { status, body } => Part::Answer { id, status: *status, body: body.clone() },
            Kept::Pause { retry_ms } => {
                let retry_ms = *retry_ms;
                // Said once: whoever comes back must not be sent away again.
                stream.events.remove(at);
                Part::Pause { retry_ms }
            }
        };
        Poll::Ready(Some(part))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut inner = self.live.streams.lock();
        let Some(stream) = inner.all.iter_mut().find(|s| s.id == self.id) else { return };
        if stream.reader == self.reader {
            stream.attached = false;
            stream.waker = None;
        } else if let Some(waker) = stream.waker.take() {
            // We may have been the last to look for news: whoever took our place must look once more, or
            // the next news would wake us, who are gone.
            waker.wake();
        }
    }
}
