//! What a client of the handshake era reads over HTTP, and may come back for.
//!
//! A call that has to wait writes into a stream; a response reads from it. The two need not meet: when a
//! connection breaks, the stream goes on, and a GET with `Last-Event-ID` takes it up where it was left.
//! Each stream is bounded: notifications make way, answers and questions do not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use wire::frame::sse::EventId;

use crate::connection_state::ConnectionState;

/// The stream that a client opens with GET: what belongs to no request.
pub const GET_STREAM: u32 = 0;

/// How many ended streams are kept for a client that comes back.
const ENDED_STREAMS_MAX: usize = 16;

pub struct SessionStreams {
    table: Mutex<StreamTable>,
    events_max: usize,
    bytes_max: usize,
}

struct StreamTable {
    next_id: u32,
    streams: Vec<EventStream>,
    closed: bool,
}

struct EventStream {
    id: u32,
    events: VecDeque<BufferedEvent>,
    bytes: usize,
    next_event_number: u64,
    ended: bool,
    /// Who reads; a new reader takes the place of the old.
    reader_generation: u64,
    attached: bool,
    waker: Option<Waker>,
}

struct BufferedEvent {
    number: u64,
    payload: EventPayload,
}

enum EventPayload {
    /// May make way.
    Notification(Arc<[u8]>),
    /// A question.
    Request(Arc<[u8]>),
    Response {
        status: u16,
        body: Arc<[u8]>,
    },
    Pause {
        retry_ms: u64,
    },
}

/// What a reader gets.
pub enum StreamItem {
    Message {
        id: EventId,
        body: Arc<[u8]>,
    },
    Response {
        id: EventId,
        status: u16,
        body: Arc<[u8]>,
    },
    /// Let go and come back later.
    Pause {
        retry_ms: u64,
    },
}

impl SessionStreams {
    /// Streams, and the events of the GET stream, are counted from behind `before`.
    pub(crate) fn new(before: u32, events_max: usize, bytes_max: usize) -> Self {
        let get = EventStream { next_event_number: u64::from(before) + 1, ..EventStream::new(GET_STREAM) };
        let next = before.wrapping_add(1).max(GET_STREAM + 1);
        let inner = StreamTable { next_id: next, streams: vec![get], closed: false };
        Self { table: Mutex::new(inner), events_max, bytes_max }
    }

    /// A stream for one request.
    pub fn open(&self) -> u32 {
        let mut inner = self.lock();
        let id = inner.next_id;
        inner.next_id = inner.next_id.wrapping_add(1).max(GET_STREAM + 1);
        inner.evict_ended(ENDED_STREAMS_MAX, self.bytes_max);
        inner.streams.push(EventStream::new(id));
        id
    }

    /// Forgets a stream that nobody needs to come back to.
    pub fn remove(&self, id: u32) {
        self.lock().streams.retain(|stream| stream.id != id || id == GET_STREAM);
    }

    pub fn push_notification(&self, id: u32, body: Vec<u8>) {
        self.push(id, EventPayload::Notification(body.into()));
    }

    pub fn push_request(&self, id: u32, body: Vec<u8>) {
        self.push(id, EventPayload::Request(body.into()));
    }

    pub fn push_pause(&self, id: u32, retry_ms: u64) {
        self.push(id, EventPayload::Pause { retry_ms });
    }

    pub fn push_response(&self, id: u32, status: u16, body: Vec<u8>) {
        self.push(id, EventPayload::Response { status, body: body.into() });
    }

    /// Reads a stream from behind `after`, or from now on. `None` if there is no such stream (any more).
    pub fn attach_reader(live: &Arc<ConnectionState>, id: u32, after: Option<u64>) -> Option<StreamReader> {
        let mut inner = live.streams.lock();
        let stream = inner.streams.iter_mut().find(|s| s.id == id)?;
        stream.reader_generation += 1;
        stream.attached = true;
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
        // A place that we never gave is no place: behind it nothing would ever come.
        let newest = stream.next_event_number - 1;
        let after = after.map_or(newest, |after| after.min(newest));
        Some(StreamReader {
            connection: live.clone(),
            stream_id: id,
            last_event_number: after,
            generation: stream.reader_generation,
        })
    }

    /// A broken call leaves no answer; its reader must not wait for one.
    pub fn end(&self, id: u32) {
        let mut inner = self.lock();
        if let Some(stream) = inner.streams.iter_mut().find(|s| s.id == id) {
            stream.ended = true;
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for stream in &mut inner.streams {
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.lock().streams.iter().any(|stream| stream.attached)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().streams.iter().all(|stream| stream.id == GET_STREAM && stream.events.is_empty())
    }

    fn push(&self, id: u32, what: EventPayload) {
        let mut inner = self.lock();
        let Some(stream) = inner.streams.iter_mut().find(|s| s.id == id) else { return };
        if matches!(what, EventPayload::Pause { .. }) && !stream.attached {
            return;
        }
        stream.ended |= matches!(what, EventPayload::Response { .. });
        stream.bytes += what.bytes();
        let number = stream.next_event_number;
        stream.next_event_number += 1;
        stream.events.push_back(BufferedEvent { number, payload: what });
        while stream.events.len() > self.events_max || stream.bytes > self.bytes_max {
            let Some(at) =
                stream.events.iter().position(|e| matches!(e.payload, EventPayload::Notification(_)))
            else {
                break;
            };
            if let Some(event) = stream.events.remove(at) {
                stream.bytes -= event.payload.bytes();
            }
        }
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamTable {
    /// Forgets ended streams that nobody reads, oldest first, until they are few and small: together they may
    /// hold no more than one stream may.
    fn evict_ended(&mut self, count_max: usize, bytes_max: usize) {
        let waits = |stream: &EventStream| stream.ended && !stream.attached;
        let mut count = self.streams.iter().filter(|stream| waits(stream)).count();
        let mut bytes: usize =
            self.streams.iter().filter(|stream| waits(stream)).map(|stream| stream.bytes).sum();
        self.streams.retain(|stream| {
            let goes = waits(stream) && (count > count_max || bytes > bytes_max);
            if goes {
                count -= 1;
                bytes -= stream.bytes;
            }
            !goes
        });
    }
}

impl EventStream {
    fn new(id: u32) -> Self {
        let (events, waker) = (VecDeque::new(), None);
        // Event 0 is the one that primes the stream.
        Self {
            id,
            events,
            bytes: 0,
            next_event_number: 1,
            ended: false,
            reader_generation: 0,
            attached: false,
            waker,
        }
    }
}

impl EventPayload {
    fn bytes(&self) -> usize {
        match self {
            Self::Notification(body) | Self::Request(body) | Self::Response { body, .. } => body.len(),
            Self::Pause { .. } => 0,
        }
    }
}

/// A reader of one stream.
pub struct StreamReader {
    connection: Arc<ConnectionState>,
    stream_id: u32,
    last_event_number: u64,
    generation: u64,
}

impl StreamReader {
    pub fn connection(&self) -> &Arc<ConnectionState> {
        &self.connection
    }

    pub fn stream_id(&self) -> u32 {
        self.stream_id
    }

    /// The event that primes this reader: it stands for what was read already.
    pub fn start_event_id(&self) -> EventId {
        EventId { stream: self.stream_id, event: self.last_event_number }
    }

    /// The next part; `None` at the end, or when another reader took over.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        let mut inner = self.connection.streams.lock();
        let closed = inner.closed;
        let Some(stream) = inner.streams.iter_mut().find(|s| s.id == self.stream_id) else {
            return Poll::Ready(None);
        };
        if stream.reader_generation != self.generation {
            // On its way here it may have asked to be told of news in place of the new reader, who asks again.
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
            return Poll::Ready(None);
        }
        let Some(at) = stream.events.iter().position(|e| e.number > self.last_event_number) else {
            // A call under way is answered even while we close; what would go on for ever ends.
            if stream.ended || (closed && stream.id == GET_STREAM) {
                return Poll::Ready(None);
            }
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let event = &stream.events[at];
        self.last_event_number = event.number;
        let id = EventId { stream: self.stream_id, event: event.number };
        let part = match &event.payload {
            EventPayload::Notification(body) | EventPayload::Request(body) => {
                StreamItem::Message { id, body: body.clone() }
            }
            EventPayload::Response { status, body } => {
                StreamItem::Response { id, status: *status, body: body.clone() }
            }
            EventPayload::Pause { retry_ms } => {
                let retry_ms = *retry_ms;
                // Said once: whoever comes back must not be sent away again.
                stream.events.remove(at);
                StreamItem::Pause { retry_ms }
            }
        };
        Poll::Ready(Some(part))
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut inner = self.connection.streams.lock();
        let Some(stream) = inner.streams.iter_mut().find(|s| s.id == self.stream_id) else { return };
        if stream.reader_generation == self.generation {
            stream.attached = false;
            stream.waker = None;
        } else if let Some(waker) = stream.waker.take() {
            // We may have been the last to look for news: whoever took our place must look once more, or
            // the next news would wake us, who are gone.
            waker.wake();
        }
    }
}
