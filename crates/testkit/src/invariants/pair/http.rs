//! HTTP without sockets: each message is an exchange, answered with a body or a stream that may be cut.
//!
//! The server's side does with the host what `door` does; each response is a task that writes, so that timers
//! and wakers are the real ones.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use host::{Attached, Begun, Flow, GET_STREAM, Line, News, Out, Part, Server, Streams, Ticket, Who};
use tokio::task::AbortHandle;
use wire::client::{Client, Do, Exchange, Failure, Send, Then};
use wire::frame::sse::{self, EventId, KEEP_ALIVE};
use wire::{Bare, Feature, Head, Heads, HttpBare, Notice, Opened, Session, shape};

use super::Dice;
use super::book::{Book, read};
use super::elder::{Elder, Knows, Verdict};

pub(super) struct Http {
    server: Arc<Server>,
    elder: Elder,
    /// Requests on their way, and when they leave.
    on_their_way: Vec<(u64, Request)>,
    responses: Vec<Response>,
    /// Every session that was ever given.
    sessions: Vec<String>,
    /// Exchanges whose streams have a place to go on from.
    placed: BTreeSet<u64>,
}

#[derive(Debug)]
enum Request {
    Post(Send),
    Get { exchange: u64, last_id: Option<String>, heads: Vec<(String, String)> },
}

impl Request {
    fn exchange(&self) -> u64 {
        match self {
            Self::Post(send) => send.exchange,
            Self::Get { exchange, .. } => *exchange,
        }
    }
}

/// An answer under way; dropping it is closing the connection.
struct Response {
    exchange: u64,
    /// Whether the server takes the end of the connection for the end of the call.
    lives_in_it: bool,
    written: Written,
    writer: Option<AbortHandle>,
    reader: Option<Exchange>,
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

/// What the server has written of a response.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    head: Option<(u16, Kind)>,
    session: Option<String>,
    bytes: Vec<u8>,
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Stream,
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whole(&self, status: u16, body: &[u8]) {
        let mut pages = self.lock();
        pages.head = Some((status, Kind::Json));
        pages.bytes.extend_from_slice(body);
        pages.is_over = true;
    }

    fn stream(&self, first: &[u8]) {
        let mut pages = self.lock();
        pages.head = Some((200, Kind::Stream));
        pages.bytes.extend_from_slice(first);
    }

    fn event(&self, id: Option<EventId>, body: &[u8]) {
        sse::message(&mut self.lock().bytes, id, body);
    }

    fn over(&self) {
        self.lock().is_over = true;
    }
}

impl Http {
    pub(super) fn new(server: &Arc<Server>, knows: Knows, dice: &mut Dice<'_>) -> Self {
        let elder = Elder::new(knows, dice);
        let (on_their_way, responses, sessions) = (Vec::new(), Vec::new(), Vec::new());
        Self { server: server.clone(), elder, on_their_way, responses, sessions, placed: BTreeSet::new() }
    }

    /// The client wants something done.
    pub(super) fn put(&mut self, todo: Do, book: &mut Book, now: u64) {
        match todo {
            Do::Send(send) => self.on_their_way.push((now, Request::Post(send))),
            Do::Get { exchange, after_ms, last_id, heads } => {
                book.trace(format_args!("        GET {exchange} after {after_ms} from {last_id:?}"));
                self.on_their_way.push((now + after_ms, Request::Get { exchange, last_id, heads }));
            }
            Do::Abandon(exchange) => {
                self.on_their_way.retain(|(_, request)| request.exchange() != exchange);
                if let Some(at) = self.responses.iter().position(|r| r.exchange == exchange)
                    && self.responses.swap_remove(at).lives_in_it
                {
                    book.stops(exchange);
                }
            }
        }
    }

    /// A request arrives, or a piece of a response; `false` if nothing is on its way.
    pub(super) fn carry(
        &mut self,
        client: &mut Client,
        book: &mut Book,
        now: u64,
        dice: &mut Dice<'_>,
    ) -> bool {
        let due: Vec<usize> =
            (0..self.on_their_way.len()).filter(|at| self.on_their_way[*at].0 <= now).collect();
        let ready: Vec<usize> =
            (0..self.responses.len()).filter(|at| self.responses[*at].has_news()).collect();
        if ready.is_empty() || (!due.is_empty() && dice.once_in(2)) {
            if due.is_empty() {
                return false;
            }
            let (_, request) = self.on_their_way.remove(due[dice.below(due.len())]);
            self.arrive(request, book);
        } else {
            let at = ready[dice.below(ready.len())];
            if self.responses[at].read(client, book, &mut self.sessions, now, dice) {
                let response = self.responses.swap_remove(at);
                self.placed.extend(response.ended(client, now));
            }
        }
        true
    }

    /// A connection breaks, with or without something in it.
    pub(super) fn cut(&mut self, client: &mut Client, book: &mut Book, now: u64, dice: &mut Dice<'_>) {
        // Rather a stream, and rather one in which there is something to be lost.
        let is_stream = |response: &Response| response.reader.as_ref().is_some_and(Exchange::is_stream);
        let is_full = |response: &Response| is_stream(response) && response.has_news();
        let all = || 0..self.responses.len();
        let streams: Vec<usize> = all().filter(|at| is_stream(&self.responses[*at])).collect();
        let full: Vec<usize> = all().filter(|at| is_full(&self.responses[*at])).collect();
        let at = match dice.below(8) {
            _ if self.responses.is_empty() => return,
            0..=5 if !full.is_empty() => full[dice.below(full.len())],
            0..=6 if !streams.is_empty() => streams[dice.below(streams.len())],
            // A connection that breaks before anything is settled ends the game.
            0..=5 => return,
            _ => dice.below(self.responses.len()),
        };
        let mut response = self.responses.swap_remove(at);
        let exchange = response.exchange;
        // Some lines of it arrive: streams are cut in the middle of events.
        let bytes = response.written.lock().bytes.clone();
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
        if response.reader.is_some() && !ends.is_empty() {
            let until = ends[dice.below(ends.len().min(256))];
            response.take(until + 1, client, book, now);
        }
        if response.lives_in_it {
            book.stops(exchange);
        }
        let stream = response.reader.take().filter(Exchange::is_stream);
        let then = stream.map(|reader| reader.end(None));
        book.trace(format_args!("        {exchange} is cut: {then:?}"));
        // What has a place to go on from is taken up again, and comes to its end.
        if let Some(Then::Ended { last_id: Some(_), .. }) = then {
            self.placed.insert(exchange);
        }
        if !self.placed.contains(&exchange) {
            book.tears_one(exchange);
        }
        match then {
            Some(Then::Ended { last_id, retry_ms }) => client.stream_ended(exchange, last_id, retry_ms),
            Some(Then::Said(_)) | None => client.failed(exchange, Failure::Closed("cut".to_owned())),
        }
    }

    /// The server forgets a session, as one does that is restarted.
    pub(super) fn forget_session(&mut self, book: &mut Book) {
        let Some(id) = self.sessions.last() else { return };
        if let Some(ticket) = self.server.session(id, &Who::default()) {
            book.forgotten += 1;
            book.tears();
            self.server.end_session(&ticket);
        }
    }

    pub(super) fn close(&mut self, client: &Client) {
        if let Some(heads) = client.farewell() {
            let id = head_of(&heads, "Mcp-Session-Id").expect("a session is named when it ends");
            if let Some(ticket) = self.server.session(id, &Who::default()) {
                self.server.end_session(&ticket);
            }
        }
        self.on_their_way.clear();
        self.responses.clear();
    }

    pub(super) fn drop_all(&mut self) {
        for id in &self.sessions {
            let ticket = self.server.session(id, &Who::default());
            assert!(ticket.is_none_or(|ticket| self.server.peek(&ticket).is_none()), "a session is left");
        }
    }

    // The server's side.

    fn arrive(&mut self, request: Request, book: &mut Book) {
        let written = Written::default();
        let mut response = Response {
            exchange: request.exchange(),
            lives_in_it: false,
            written: written.clone(),
            writer: None,
            reader: None,
        };
        match request {
            Request::Get { last_id, heads, .. } => {
                response.writer = self.get(last_id.as_deref(), &heads, &written);
            }
            Request::Post(send) => {
                let message = read(&send.body);
                match self.elder.judge(&send.body, &message) {
                    Verdict::Passes(body) => {
                        let (opened, ticket) = self.open(body, &send.heads);
                        book.came(&message, &opened);
                        self.post(opened, ticket, &send.heads, &mut response);
                    }
                    Verdict::Answered(status, body) => written.whole(status, &body),
                    Verdict::Blurted(text) => written.whole(400, text),
                    Verdict::Ignored => written.whole(405, b""),
                }
            }
        }
        self.responses.push(response);
    }

    fn open(&self, body: Vec<u8>, heads: &[(String, String)]) -> (Opened, Option<Ticket>) {
        let found: Cell<Option<Ticket>> = Cell::new(None);
        let session = || match head_of(heads, "Mcp-Session-Id") {
            None => Session::None,
            Some(id) => {
                found.set(self.server.session(id, &Who::default()));
                found.get().map_or(Session::Dead, |ticket| Session::Open(ticket.peer))
            }
        };
        let head = |name| head_of(heads, name).map_or(Head::Absent, |value| Head::One(value.as_bytes()));
        let heads = Heads {
            version: head("MCP-Protocol-Version"),
            method: head("Mcp-Method"),
            name: head("Mcp-Name"),
        };
        let opened = self.server.open(body, Bare::Http(HttpBare { heads, session: &session }));
        (opened, found.get())
    }

    fn post(
        &self,
        opened: Opened,
        ticket: Option<Ticket>,
        heads: &[(String, String)],
        response: &mut Response,
    ) {
        let written = response.written.clone();
        let line = ticket.map_or(Line::Alone, Line::Session);
        let head = |name: &str| head_of(heads, name).map_or(Head::Absent, |v| Head::One(v.as_bytes()));
        let live = ticket.and_then(|ticket| self.server.peek(&ticket));
        let request = match opened {
            Opened::Request(request) => request,
            Opened::Refused(refusal) => return written.whole(refusal.status, &refusal.body),
            Opened::Notice(notice) => {
                if let (Notice::Cancelled(id), Some(live)) = (notice, live) {
                    live.cancel(&id);
                }
                return written.whole(202, b"");
            }
            Opened::Answer { id, answer } => {
                if let Some(live) = live {
                    live.answered(id, answer);
                }
                return written.whole(202, b"");
            }
            Opened::Batch(_) => panic!("we send no batches"),
        };
        if let Err(refusal) = self.server.check_params(&request, head) {
            return written.whole(refusal.status, &refusal.body);
        }
        match self.server.begin(request, &Who::default(), line) {
            Begun::Ready { status, body, .. } => written.whole(status, &body),
            Begun::Welcome { body, session } => {
                written.lock().session = Some(session);
                written.whole(200, &body);
            }
            Begun::Call(serving) => self.flow(Flow::One(serving), ticket, response),
            Begun::Listen(mut listening) => {
                response.lives_in_it = true;
                let work = async move {
                    written.stream(b"");
                    while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
                        written.event(None, &message);
                    }
                    written.over();
                };
                response.writer = Some(tokio::spawn(work).abort_handle());
            }
        }
    }

    fn flow(&self, mut flow: Flow, ticket: Option<Ticket>, response: &mut Response) {
        let written = response.written.clone();
        let first = match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Out::Final { status, body }) => return written.whole(status, &body),
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        };
        let server = self.server.clone();
        let writer = match ticket {
            Some(ticket) => tokio::spawn(in_session(server, flow, first, ticket, written)),
            None => {
                assert!(flow.version().has(Feature::Envelope), "a call of the handshake era has a session");
                response.lives_in_it = true;
                tokio::spawn(alone(server, flow, first, written))
            }
        };
        response.writer = Some(writer.abort_handle());
    }

    fn get(
        &self,
        last_id: Option<&str>,
        heads: &[(String, String)],
        written: &Written,
    ) -> Option<AbortHandle> {
        let Some(id) = head_of(heads, "Mcp-Session-Id") else {
            written.whole(405, b"");
            return None;
        };
        let Some(ticket) = self.server.session(id, &Who::default()) else {
            written.whole(404, b"");
            return None;
        };
        let live = self.server.live(&ticket, &Who::default()).expect("there is room");
        let last = last_id.map(|id| EventId::parse(id).expect("an id that we gave"));
        let resumed = last.and_then(|last| Streams::attach(&live, last.stream, Some(last.event)));
        let attached = resumed.or_else(|| Streams::attach(&live, GET_STREAM, None)).expect("always there");
        let mut first = Vec::new();
        if ticket.peer.version.has(Feature::Priming) {
            sse::priming(&mut first, attached.start());
        } else {
            first.extend_from_slice(KEEP_ALIVE);
        }
        written.stream(&first);
        Some(tokio::spawn(show(attached, written.clone(), self.server.limits.keep_alive_ms)).abort_handle())
    }
}

/// A call that lives in its response.
async fn alone(server: Arc<Server>, mut flow: Flow, first: Option<Out>, written: Written) {
    let mut silence = pin!(tokio::time::sleep(Duration::from_millis(server.limits.silence_ms)));
    let (mut next, mut is_stream) = (first, false);
    loop {
        let out = match next.take() {
            Some(out) => Some(out),
            None => {
                poll_fn(|cx| match flow.poll_next(cx) {
                    Poll::Ready(out) => Poll::Ready(Some(out)),
                    Poll::Pending if is_stream => Poll::Pending,
                    Poll::Pending => silence.as_mut().poll(cx).map(|()| None),
                })
                .await
            }
        };
        match out {
            Some(Out::Final { status, body }) if !is_stream => return written.whole(status, &body),
            Some(Out::Final { body, .. }) => {
                written.event(None, &body);
                return written.over();
            }
            Some(Out::Pause { .. }) => {}
            Some(Out::Message(body) | Out::Question(body)) => {
                if !std::mem::replace(&mut is_stream, true) {
                    written.stream(b"");
                }
                written.event(None, &body);
            }
            None => {
                is_stream = true;
                written.stream(KEEP_ALIVE);
            }
        }
    }
}

/// A call that belongs to a session: it goes on whether or not somebody reads.
async fn in_session(server: Arc<Server>, flow: Flow, first: Option<Out>, ticket: Ticket, written: Written) {
    let Ok(live) = server.live(&ticket, &Who::default()) else {
        return written.whole(404, b"");
    };
    let stream = flow.into_stream(&live, first);
    let mut attached = Streams::attach(&live, stream, Some(0)).expect("a new stream can be read");
    let mut head = Vec::new();
    if ticket.peer.version.has(Feature::Priming) {
        sse::priming(&mut head, attached.start());
    }
    let mut silence = pin!(tokio::time::sleep(Duration::from_millis(server.limits.silence_ms)));
    let part = poll_fn(|cx| match attached.poll_next(cx) {
        Poll::Ready(part) => Poll::Ready(Some(part)),
        Poll::Pending => silence.as_mut().poll(cx).map(|()| None),
    })
    .await;
    match part {
        Some(Some(Part::Answer { status, body, .. })) => {
            live.streams.forget(stream);
            return written.whole(status, &body);
        }
        Some(Some(Part::Message { id, body })) => {
            sse::message(&mut head, Some(id), &body);
            written.stream(&head);
        }
        Some(Some(Part::Pause { retry_ms })) => {
            sse::retry(&mut head, retry_ms);
            written.stream(&head);
            return written.over();
        }
        Some(None) => return written.whole(202, b""),
        None => {
            if head.is_empty() {
                head.extend_from_slice(KEEP_ALIVE);
            }
            written.stream(&head);
        }
    }
    show(attached, written, server.limits.keep_alive_ms).await;
}

/// Shows a stream of a session until it ends.
async fn show(mut attached: Attached, written: Written, keep_alive_ms: u64) {
    loop {
        let mut silence = pin!(tokio::time::sleep(Duration::from_millis(keep_alive_ms)));
        let part = poll_fn(|cx| {
            if attached.stream() == GET_STREAM {
                let live = attached.live();
                while let Poll::Ready(Some(News::Change(change))) = live.watch.poll_next(cx) {
                    live.streams.notice(GET_STREAM, shape::change(&change, None));
                }
            }
            match attached.poll_next(cx) {
                Poll::Ready(part) => Poll::Ready(Some(part)),
                Poll::Pending => silence.as_mut().poll(cx).map(|()| None),
            }
        })
        .await;
        match part {
            None => written.lock().bytes.extend_from_slice(KEEP_ALIVE),
            Some(None) => return written.over(),
            Some(Some(Part::Message { id, body })) => written.event(Some(id), &body),
            Some(Some(Part::Answer { id, body, .. })) => {
                written.event(Some(id), &body);
                return written.over();
            }
            Some(Some(Part::Pause { retry_ms })) => {
                sse::retry(&mut written.lock().bytes, retry_ms);
                return written.over();
            }
        }
    }
}

fn head_of<'h>(heads: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut found = heads.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "the header {name} is sent twice");
    value
}

// The client's side.

impl Response {
    fn has_news(&self) -> bool {
        let pages = self.written.lock();
        match &self.reader {
            None => pages.head.is_some(),
            Some(_) => !pages.bytes.is_empty() || pages.is_over,
        }
    }

    /// Reads the head, or a piece of the body; `true` at the end.
    fn read(
        &mut self,
        client: &mut Client,
        book: &mut Book,
        sessions: &mut Vec<String>,
        now: u64,
        dice: &mut Dice<'_>,
    ) -> bool {
        let written = self.written.clone();
        let mut pages = written.lock();
        if self.reader.is_none() {
            let (status, kind) = pages.head.expect("there is a head");
            if let Some(id) = pages.session.take() {
                client.session(self.exchange, &id);
                sessions.push(id);
            }
            let kind = match kind {
                Kind::Json => "application/json",
                Kind::Stream => "text/event-stream",
            };
            self.reader = Some(Exchange::new(status, Some(kind), BODY_BYTES_MAX));
            return false;
        }
        if pages.bytes.is_empty() {
            return pages.is_over;
        }
        let count = match dice.below(4) {
            0 | 1 => pages.bytes.len(),
            2 => usize::from(dice.byte()).clamp(1, pages.bytes.len()),
            _ => 1,
        };
        let is_whole = pages.is_over && pages.bytes.len() == count;
        drop(pages);
        self.take(count, client, book, now);
        is_whole
    }

    /// Reads some of the body.
    fn take(&mut self, count: usize, client: &mut Client, book: &mut Book, now: u64) {
        let Some(reader) = &mut self.reader else { return };
        let bytes: Vec<u8> = self.written.lock().bytes.drain(..count).collect();
        let mut messages = Vec::new();
        reader.push(&bytes, |message| messages.push(message)).expect("no answer is so long");
        for message in messages {
            client.stream_lives(self.exchange);
            book.said(&read(&message));
            client.receive(message, Some(self.exchange), now);
        }
    }

    /// The exchange, if it was a stream with a place to go on from.
    fn ended(mut self, client: &mut Client, now: u64) -> Option<u64> {
        match self.reader.take()?.end(None) {
            Then::Said(reply) => {
                client.replied(self.exchange, reply, now);
                None
            }
            Then::Ended { last_id, retry_ms } => {
                let has_place = last_id.is_some();
                client.stream_ended(self.exchange, last_id, retry_ms);
                has_place.then_some(self.exchange)
            }
        }
    }
}

const BODY_BYTES_MAX: usize = 1 << 20;
