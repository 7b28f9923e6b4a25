//! Resumable SSE streams of a handshake-era session.
//!
//! A call that has to wait writes into a stream, and an HTTP response reads from it. The two are independent: when a
//! connection breaks, the stream goes on, and a GET with `Last-Event-ID` resumes it. Each stream is bounded:
//! notifications are dropped first; responses and requests are never dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use wire::encode;
use wire::frame::sse::EventId;

use crate::connection_state::ConnectionState;
use crate::subscriptions::SubscriptionEvent;

/// The stream that a client opens with GET: messages that belong to no request.
pub const GET_STREAM: u32 = 0;

/// How many ended streams are kept for a client that resumes.
const ENDED_STREAMS_MAX: usize = 16;

pub struct SessionStreams {
    table: Mutex<StreamTable>,
    events_max: usize,
    bytes_max: usize,
}

struct StreamTable {
    next_id: u32,
    streams: Vec<SessionStream>,
    closed: bool,
}

struct SessionStream {
    id: u32,
    events: VecDeque<BufferedEvent>,
    bytes: usize,
    next_event_number: u64,
    ended: bool,
    /// Incremented for each reader; a new reader replaces the old one.
    reader_generation: u64,
    attached: bool,
    waker: Option<Waker>,
}

struct BufferedEvent {
    number: u64,
    payload: EventPayload,
}

enum EventPayload {
    /// Dropped first when the stream is full.
    Notification(Arc<[u8]>),
    Request(Arc<[u8]>),
    Response {
        status: u16,
        body: Arc<[u8]>,
    },
    Pause {
        retry_ms: u64,
    },
}

/// One item for a reader.
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
    /// Close the connection; the client resumes after `retry_ms`.
    Pause {
        retry_ms: u64,
    },
}

impl SessionStreams {
    /// Numbers streams, and the events of the GET stream, from `numbered_after + 1`.
    pub(crate) fn new(numbered_after: u32, events_max: usize, bytes_max: usize) -> Self {
        let get = SessionStream {
            next_event_number: u64::from(numbered_after) + 1,
            ..SessionStream::new(GET_STREAM)
        };
        let next = numbered_after.wrapping_add(1).max(GET_STREAM + 1);
        let table = StreamTable { next_id: next, streams: vec![get], closed: false };
        Self { table: Mutex::new(table), events_max, bytes_max }
    }

    /// Opens a stream for one request, and reads it from its start. It has its reader before it has an event, so it
    /// cannot end and be evicted unread.
    pub fn open(connection: &Arc<ConnectionState>) -> SessionStreamReader {
        let streams = &connection.streams;
        let mut table = streams.lock();
        let id = table.next_id;
        table.next_id = table.next_id.wrapping_add(1).max(GET_STREAM + 1);
        table.evict_ended(ENDED_STREAMS_MAX, streams.bytes_max);
        let mut stream = SessionStream::new(id);
        let reader = stream.attach(connection, Some(0));
        table.streams.push(stream);
        reader
    }

    /// Removes a stream that no client will resume.
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

    /// Reads a stream after event `after`, or from now on. `None` if the stream does not exist (any more).
    pub fn attach_reader(
        connection: &Arc<ConnectionState>,
        id: u32,
        after: Option<u64>,
    ) -> Option<SessionStreamReader> {
        let mut table = connection.streams.lock();
        let stream = table.streams.iter_mut().find(|s| s.id == id)?;
        Some(stream.attach(connection, after))
    }

    /// Ends a stream, so that its reader does not wait for the response of an aborted call.
    pub fn end(&self, id: u32) {
        let mut table = self.lock();
        if let Some(stream) = table.streams.iter_mut().find(|s| s.id == id) {
            stream.ended = true;
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        for stream in &mut table.streams {
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

    fn push(&self, id: u32, payload: EventPayload) {
        let mut table = self.lock();
        let Some(stream) = table.streams.iter_mut().find(|s| s.id == id) else { return };
        if matches!(payload, EventPayload::Pause { .. }) && !stream.attached {
            return;
        }
        stream.ended |= matches!(payload, EventPayload::Response { .. });
        stream.bytes += payload.bytes();
        let number = stream.next_event_number;
        stream.next_event_number += 1;
        stream.events.push_back(BufferedEvent { number, payload });
        while stream.events.len() > self.events_max || stream.bytes > self.bytes_max {
            let Some(index) =
                stream.events.iter().position(|e| matches!(e.payload, EventPayload::Notification(_)))
            else {
                break;
            };
            if let Some(event) = stream.events.remove(index) {
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
    /// Removes ended streams without a reader, oldest first, until at most `count_max` are left with at most
    /// `bytes_max` in total.
    fn evict_ended(&mut self, count_max: usize, bytes_max: usize) {
        let is_evictable = |stream: &SessionStream| stream.ended && !stream.attached;
        let mut count = self.streams.iter().filter(|stream| is_evictable(stream)).count();
        let mut bytes: usize =
            self.streams.iter().filter(|stream| is_evictable(stream)).map(|stream| stream.bytes).sum();
        self.streams.retain(|stream| {
            let evict = is_evictable(stream) && (count > count_max || bytes > bytes_max);
            if evict {
                count -= 1;
                bytes -= stream.bytes;
            }
            !evict
        });
    }
}

impl SessionStream {
    fn new(id: u32) -> Self {
        let (events, waker) = (VecDeque::new(), None);
        // Event 0 primes the stream.
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

    fn attach(&mut self, connection: &Arc<ConnectionState>, after: Option<u64>) -> SessionStreamReader {
        self.reader_generation += 1;
        self.attached = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        // An event number from the future would wait for ever; treat it as the newest.
        let newest = self.next_event_number - 1;
        let after = after.map_or(newest, |after| after.min(newest));
        SessionStreamReader {
            connection: connection.clone(),
            stream_id: self.id,
            last_event_number: after,
            generation: self.reader_generation,
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
pub struct SessionStreamReader {
    connection: Arc<ConnectionState>,
    stream_id: u32,
    last_event_number: u64,
    generation: u64,
}

impl SessionStreamReader {
    pub fn connection(&self) -> &Arc<ConnectionState> {
        &self.connection
    }

    pub fn stream_id(&self) -> u32 {
        self.stream_id
    }

    /// The id of the priming event: it stands for everything read so far.
    pub fn start_event_id(&self) -> EventId {
        EventId { stream: self.stream_id, event: self.last_event_number }
    }

    /// The next item; `None` at the end, or when another reader took over.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        if self.stream_id == GET_STREAM && self.is_current() {
            self.queue_change_notifications(cx);
        }
        let mut table = self.connection.streams.lock();
        let closed = table.closed;
        let Some(stream) = table.streams.iter_mut().find(|s| s.id == self.stream_id) else {
            return Poll::Ready(None);
        };
        if stream.reader_generation != self.generation {
            // This reader may have registered its waker over the new reader's: wake, so that the new one registers again.
            if let Some(waker) = stream.waker.take() {
                waker.wake();
            }
            return Poll::Ready(None);
        }
        let Some(index) = stream.events.iter().position(|e| e.number > self.last_event_number) else {
            // On shutdown a call in flight is still answered; only the GET stream, which has no end of its own, ends.
            if stream.ended || (closed && stream.id == GET_STREAM) {
                return Poll::Ready(None);
            }
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let event = &stream.events[index];
        self.last_event_number = event.number;
        let id = EventId { stream: self.stream_id, event: event.number };
        let item = match &event.payload {
            EventPayload::Notification(body) | EventPayload::Request(body) => {
                StreamItem::Message { id, body: body.clone() }
            }
            EventPayload::Response { status, body } => {
                StreamItem::Response { id, status: *status, body: body.clone() }
            }
            EventPayload::Pause { retry_ms } => {
                let retry_ms = *retry_ms;
                // Sent once: a client that resumes must not be paused again.
                stream.events.remove(index);
                StreamItem::Pause { retry_ms }
            }
        };
        Poll::Ready(Some(item))
    }

    /// Whether no other reader took over.
    fn is_current(&self) -> bool {
        let table = self.connection.streams.lock();
        table.streams.iter().any(|s| s.id == self.stream_id && s.reader_generation == self.generation)
    }

    /// Moves the session's pending change notifications into its GET stream, from which a client can resume.
    fn queue_change_notifications(&self, cx: &mut Context<'_>) {
        let ConnectionState { subscription, streams, .. } = &*self.connection;
        while let Poll::Ready(Some(SubscriptionEvent::Change(change))) = subscription.poll_next(cx) {
            streams.push_notification(GET_STREAM, encode::change_notification(&change, None));
        }
    }
}

impl Drop for SessionStreamReader {
    fn drop(&mut self) {
        let mut table = self.connection.streams.lock();
        let Some(stream) = table.streams.iter_mut().find(|s| s.id == self.stream_id) else { return };
        if stream.reader_generation == self.generation {
            stream.attached = false;
            stream.waker = None;
        } else if let Some(waker) = stream.waker.take() {
            // The stored waker may be this reader's. Wake the reader that took over, so that it registers its own;
            // otherwise the next event would wake a reader that no longer exists.
            waker.wake();
        }
    }
}
