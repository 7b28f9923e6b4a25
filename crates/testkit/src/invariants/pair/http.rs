//! HTTP without sockets: each message is an exchange, answered with a body or a stream that may break.
//!
//! The server side uses the host as the `transport` crate does. Each response is a task that writes, so that timers and
//! wakers are real.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use host::{
    CallerIdentity, Dispatched, GET_STREAM, OutgoingMessage, PendingResponse, ReplyChannel, Server,
    SessionStreams, SessionTicket, StreamItem, StreamReader, SubscriptionEvent,
};
use tokio::task::AbortHandle;
use wire::client::{Action, Client, ClientError, ClientMessage, ExchangeEnd, HttpExchange};
use wire::frame::sse::{self, EventId, KEEP_ALIVE};
use wire::{
    Decoded, Defaults, Feature, HeaderField, Headers, HttpDefaults, Notification, SessionLookup, encode,
};

use super::FuzzInput;
use super::legacy_server::{Interception, KnownVersions, LegacyServer};
use super::model::{PairModel, parse_json};

pub(super) struct SimulatedHttp {
    server: Arc<Server>,
    legacy_server: LegacyServer,
    /// Requests on their way, and when they leave.
    in_transit: Vec<(u64, Request)>,
    responses: Vec<Response>,
    /// Every session that was ever issued.
    sessions: Vec<String>,
    /// Exchanges whose streams can be resumed.
    resumable: BTreeSet<u64>,
}

#[derive(Debug)]
enum Request {
    Post(ClientMessage),
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

/// A response in progress; dropping it closes the connection.
struct Response {
    exchange: u64,
    /// Whether the server cancels the call when the connection closes.
    owns_call: bool,
    body: ResponseBody,
    writer: Option<AbortHandle>,
    reader: Option<HttpExchange>,
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
struct ResponseBody(Arc<Mutex<BodyState>>);

#[derive(Default)]
struct BodyState {
    head: Option<(u16, BodyKind)>,
    session: Option<String>,
    bytes: Vec<u8>,
    is_finished: bool,
}

#[derive(Clone, Copy)]
enum BodyKind {
    Json,
    Stream,
}

impl ResponseBody {
    fn lock(&self) -> MutexGuard<'_, BodyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_complete(&self, status: u16, body: &[u8]) {
        let mut pages = self.lock();
        pages.head = Some((status, BodyKind::Json));
        pages.bytes.extend_from_slice(body);
        pages.is_finished = true;
    }

    fn start_stream(&self, first: &[u8]) {
        let mut pages = self.lock();
        pages.head = Some((200, BodyKind::Stream));
        pages.bytes.extend_from_slice(first);
    }

    fn write_event(&self, id: Option<EventId>, body: &[u8]) {
        sse::write_message(&mut self.lock().bytes, id, body);
    }

    fn finish(&self) {
        self.lock().is_finished = true;
    }
}

impl SimulatedHttp {
    pub(super) fn new(server: &Arc<Server>, knows: KnownVersions, input: &mut FuzzInput<'_>) -> Self {
        let legacy_server = LegacyServer::new(knows, input);
        let (in_transit, responses, sessions) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            server: server.clone(),
            legacy_server,
            in_transit,
            responses,
            sessions,
            resumable: BTreeSet::new(),
        }
    }

    /// Performs an action of the client.
    pub(super) fn send(&mut self, todo: Action, model: &mut PairModel, now: u64) {
        match todo {
            Action::Send(send) => self.in_transit.push((now, Request::Post(send))),
            Action::Get { exchange, delay_ms: after_ms, last_event_id: last_id, headers: heads } => {
                model.trace(format_args!("        GET {exchange} after {after_ms} from {last_id:?}"));
                self.in_transit.push((now + after_ms, Request::Get { exchange, last_id, heads }));
            }
            Action::Abort(exchange) => {
                self.in_transit.retain(|(_, request)| request.exchange() != exchange);
                if let Some(index) = self.responses.iter().position(|r| r.exchange == exchange)
                    && self.responses.swap_remove(index).owns_call
                {
                    model.mark_stopped(exchange);
                }
            }
        }
    }

    /// Delivers a request or a piece of a response; `false` if nothing is on its way.
    pub(super) fn deliver(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) -> bool {
        let due: Vec<usize> =
            (0..self.in_transit.len()).filter(|index| self.in_transit[*index].0 <= now).collect();
        let ready: Vec<usize> =
            (0..self.responses.len()).filter(|index| self.responses[*index].is_readable()).collect();
        if ready.is_empty() || (!due.is_empty() && input.one_in(2)) {
            if due.is_empty() {
                return false;
            }
            let (_, request) = self.in_transit.remove(due[input.below(due.len())]);
            self.serve_request(request, model);
        } else {
            let index = ready[input.below(ready.len())];
            if self.responses[index].read(client, model, &mut self.sessions, now, input) {
                let response = self.responses.swap_remove(index);
                self.resumable.extend(response.finish(client, now));
            }
        }
        true
    }

    /// Breaks a connection, with or without data in it.
    pub(super) fn break_connection(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) {
        // Prefer a stream, and one with data that can be lost.
        let is_stream = |response: &Response| response.reader.as_ref().is_some_and(HttpExchange::is_stream);
        let is_full = |response: &Response| is_stream(response) && response.is_readable();
        let all = || 0..self.responses.len();
        let streams: Vec<usize> = all().filter(|index| is_stream(&self.responses[*index])).collect();
        let full: Vec<usize> = all().filter(|index| is_full(&self.responses[*index])).collect();
        let index = match input.below(8) {
            _ if self.responses.is_empty() => return,
            0..=5 if !full.is_empty() => full[input.below(full.len())],
            0..=6 if !streams.is_empty() => streams[input.below(streams.len())],
            // A connection that breaks before the handshake is complete ends the simulation.
            0..=5 => return,
            _ => input.below(self.responses.len()),
        };
        let mut response = self.responses.swap_remove(index);
        let exchange = response.exchange;
        // Deliver some lines of it: streams are cut in the middle of events.
        let bytes = response.body.lock().bytes.clone();
        let ends: Vec<usize> = (0..bytes.len()).filter(|index| bytes[*index] == b'\n').collect();
        if response.reader.is_some() && !ends.is_empty() {
            let until = ends[input.below(ends.len().min(256))];
            response.read_bytes(until + 1, client, model, now);
        }
        if response.owns_call {
            model.mark_stopped(exchange);
        }
        let stream = response.reader.take().filter(HttpExchange::is_stream);
        let then = stream.map(|reader| reader.finish(None));
        model.trace(format_args!("        {exchange} is cut: {then:?}"));
        // A resumable stream is resumed and read to its end.
        if let Some(ExchangeEnd::StreamEnded { last_event_id: Some(_), .. }) = then {
            self.resumable.insert(exchange);
        }
        if !self.resumable.contains(&exchange) {
            model.disconnect_one(exchange);
        }
        match then {
            Some(ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms }) => {
                client.stream_ended(exchange, last_id, retry_ms)
            }
            Some(ExchangeEnd::Response(_)) | None => {
                client.exchange_failed(exchange, ClientError::ConnectionClosed("cut".to_owned()))
            }
        }
    }

    /// The server forgets a session, as after a restart.
    pub(super) fn forget_session(&mut self, model: &mut PairModel) {
        let Some(id) = self.sessions.last() else { return };
        if let Some(ticket) = self.server.verify_session(id, &CallerIdentity::default()) {
            model.lost_sessions += 1;
            model.disconnect_all();
            self.server.end_session(&ticket);
        }
    }

    pub(super) fn close(&mut self, client: &Client) {
        if let Some(heads) = client.delete_headers() {
            let id = header_value(&heads, "Mcp-Session-Id").expect("a session is named when it ends");
            if let Some(ticket) = self.server.verify_session(id, &CallerIdentity::default()) {
                self.server.end_session(&ticket);
            }
        }
        self.in_transit.clear();
        self.responses.clear();
    }

    pub(super) fn drop_all(&mut self) {
        for id in &self.sessions {
            let ticket = self.server.verify_session(id, &CallerIdentity::default());
            assert!(
                ticket.is_none_or(|ticket| self.server.session_state(&ticket).is_none()),
                "a session is left"
            );
        }
    }

    // Server side.

    fn serve_request(&mut self, request: Request, model: &mut PairModel) {
        let written = ResponseBody::default();
        let mut response = Response {
            exchange: request.exchange(),
            owns_call: false,
            body: written.clone(),
            writer: None,
            reader: None,
        };
        match request {
            Request::Get { last_id, heads, .. } => {
                response.writer = self.get(last_id.as_deref(), &heads, &written);
            }
            Request::Post(send) => {
                let message = parse_json(&send.body);
                match self.legacy_server.intercept(&send.body, &message) {
                    Interception::Forward(body) => {
                        let (opened, ticket) = self.decode(body, &send.headers);
                        model.server_received(&message, &opened);
                        self.post(opened, ticket, &send.headers, &mut response);
                    }
                    Interception::Respond(status, body) => written.write_complete(status, &body),
                    Interception::Garbage(text) => written.write_complete(400, text),
                    Interception::Drop => written.write_complete(405, b""),
                }
            }
        }
        self.responses.push(response);
    }

    fn decode(&self, body: Vec<u8>, heads: &[(String, String)]) -> (Decoded, Option<SessionTicket>) {
        let found: Cell<Option<SessionTicket>> = Cell::new(None);
        let session = || match header_value(heads, "Mcp-Session-Id") {
            None => SessionLookup::NotNamed,
            Some(id) => {
                found.set(self.server.verify_session(id, &CallerIdentity::default()));
                found.get().map_or(SessionLookup::NotFound, |ticket| SessionLookup::Found(ticket.peer))
            }
        };
        let head = |name| {
            header_value(heads, name)
                .map_or(HeaderField::Absent, |value| HeaderField::Single(value.as_bytes()))
        };
        let heads = Headers {
            version: head("MCP-Protocol-Version"),
            method: head("Mcp-Method"),
            name: head("Mcp-Name"),
        };
        let opened = self
            .server
            .decode(body, Defaults::Http(HttpDefaults { headers: heads, lookup_session: &session }));
        (opened, found.get())
    }

    fn post(
        &self,
        opened: Decoded,
        ticket: Option<SessionTicket>,
        heads: &[(String, String)],
        response: &mut Response,
    ) {
        let written = response.body.clone();
        let line = ticket.map_or(ReplyChannel::Stateless, ReplyChannel::Session);
        let head = |name: &str| {
            header_value(heads, name).map_or(HeaderField::Absent, |v| HeaderField::Single(v.as_bytes()))
        };
        let connection = ticket.and_then(|ticket| self.server.session_state(&ticket));
        let request = match opened {
            Decoded::Request(request) => request,
            Decoded::Rejected(refusal) => return written.write_complete(refusal.http_status, &refusal.body),
            Decoded::Notification(notice) => {
                if let (Notification::Cancelled(id), Some(connection)) = (notice, connection) {
                    connection.cancel(&id);
                }
                return written.write_complete(202, b"");
            }
            Decoded::Response { id, result: answer } => {
                if let Some(connection) = connection {
                    connection.deliver_response(id, answer);
                }
                return written.write_complete(202, b"");
            }
            Decoded::Batch(_) => panic!("we send no batches"),
        };
        if let Err(refusal) = self.server.check_header_params(&request, head) {
            return written.write_complete(refusal.http_status, &refusal.body);
        }
        match self.server.dispatch(request, &CallerIdentity::default(), line) {
            Dispatched::Ready { status, body, .. } => written.write_complete(status, &body),
            Dispatched::Initialized { body, session } => {
                written.lock().session = Some(session);
                written.write_complete(200, &body);
            }
            Dispatched::Call(in_flight) => {
                self.run_pending(PendingResponse::Single(in_flight), ticket, response)
            }
            Dispatched::Subscription(mut listening) => {
                response.owns_call = true;
                let work = async move {
                    written.start_stream(b"");
                    while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
                        written.write_event(None, &message);
                    }
                    written.finish();
                };
                response.writer = Some(tokio::spawn(work).abort_handle());
            }
        }
    }

    fn run_pending(&self, mut flow: PendingResponse, ticket: Option<SessionTicket>, response: &mut Response) {
        let written = response.body.clone();
        let first = match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(OutgoingMessage::Response { status, body }) => {
                return written.write_complete(status, &body);
            }
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        };
        let server = self.server.clone();
        let writer = match ticket {
            Some(ticket) => tokio::spawn(serve_in_session(server, flow, first, ticket, written)),
            None => {
                assert!(flow.version().has(Feature::Envelope), "a call of the handshake era has a session");
                response.owns_call = true;
                tokio::spawn(serve_stateless(server, flow, first, written))
            }
        };
        response.writer = Some(writer.abort_handle());
    }

    fn get(
        &self,
        last_id: Option<&str>,
        heads: &[(String, String)],
        written: &ResponseBody,
    ) -> Option<AbortHandle> {
        let Some(id) = header_value(heads, "Mcp-Session-Id") else {
            written.write_complete(405, b"");
            return None;
        };
        let Some(ticket) = self.server.verify_session(id, &CallerIdentity::default()) else {
            written.write_complete(404, b"");
            return None;
        };
        let connection =
            self.server.ensure_session_state(&ticket, &CallerIdentity::default()).expect("there is room");
        let last = last_id.map(|id| EventId::parse(id).expect("an id that we gave"));
        let resumed =
            last.and_then(|last| SessionStreams::attach_reader(&connection, last.stream, Some(last.event)));
        let attached = resumed
            .or_else(|| SessionStreams::attach_reader(&connection, GET_STREAM, None))
            .expect("always there");
        let mut first = Vec::new();
        if ticket.peer.version.has(Feature::Priming) {
            sse::write_priming(&mut first, attached.start_event_id());
        } else {
            first.extend_from_slice(KEEP_ALIVE);
        }
        written.start_stream(&first);
        Some(
            tokio::spawn(write_stream(attached, written.clone(), self.server.limits.keep_alive_ms))
                .abort_handle(),
        )
    }
}

/// A call that lives in its response.
async fn serve_stateless(
    server: Arc<Server>,
    mut flow: PendingResponse,
    first: Option<OutgoingMessage>,
    written: ResponseBody,
) {
    let mut silence = pin!(tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms)));
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
            Some(OutgoingMessage::Response { status, body }) if !is_stream => {
                return written.write_complete(status, &body);
            }
            Some(OutgoingMessage::Response { body, .. }) => {
                written.write_event(None, &body);
                return written.finish();
            }
            Some(OutgoingMessage::Pause { .. }) => {}
            Some(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) => {
                if !std::mem::replace(&mut is_stream, true) {
                    written.start_stream(b"");
                }
                written.write_event(None, &body);
            }
            None => {
                is_stream = true;
                written.start_stream(KEEP_ALIVE);
            }
        }
    }
}

/// A call that belongs to a session: it goes on whether or not the client reads.
async fn serve_in_session(
    server: Arc<Server>,
    flow: PendingResponse,
    first: Option<OutgoingMessage>,
    ticket: SessionTicket,
    written: ResponseBody,
) {
    let Ok(connection) = server.ensure_session_state(&ticket, &CallerIdentity::default()) else {
        return written.write_complete(404, b"");
    };
    let stream = flow.spawn_into_stream(&connection, first);
    let mut attached =
        SessionStreams::attach_reader(&connection, stream, Some(0)).expect("a new stream can be read");
    let mut head = Vec::new();
    if ticket.peer.version.has(Feature::Priming) {
        sse::write_priming(&mut head, attached.start_event_id());
    }
    let mut silence = pin!(tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms)));
    let part = poll_fn(|cx| match attached.poll_next(cx) {
        Poll::Ready(part) => Poll::Ready(Some(part)),
        Poll::Pending => silence.as_mut().poll(cx).map(|()| None),
    })
    .await;
    match part {
        Some(Some(StreamItem::Response { status, body, .. })) => {
            connection.streams.remove(stream);
            return written.write_complete(status, &body);
        }
        Some(Some(StreamItem::Message { id, body })) => {
            sse::write_message(&mut head, Some(id), &body);
            written.start_stream(&head);
        }
        Some(Some(StreamItem::Pause { retry_ms })) => {
            sse::write_retry(&mut head, retry_ms);
            written.start_stream(&head);
            return written.finish();
        }
        Some(None) => return written.write_complete(202, b""),
        None => {
            if head.is_empty() {
                head.extend_from_slice(KEEP_ALIVE);
            }
            written.start_stream(&head);
        }
    }
    write_stream(attached, written, server.limits.keep_alive_ms).await;
}

/// Writes a stream of a session until it ends.
async fn write_stream(mut attached: StreamReader, written: ResponseBody, keep_alive_ms: u64) {
    loop {
        let mut silence = pin!(tokio::time::sleep(Duration::from_millis(keep_alive_ms)));
        let part = poll_fn(|cx| {
            if attached.stream_id() == GET_STREAM {
                let connection = attached.connection();
                while let Poll::Ready(Some(SubscriptionEvent::Change(change))) =
                    connection.subscription.poll_next(cx)
                {
                    connection
                        .streams
                        .push_notification(GET_STREAM, encode::change_notification(&change, None));
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
            Some(None) => return written.finish(),
            Some(Some(StreamItem::Message { id, body })) => written.write_event(Some(id), &body),
            Some(Some(StreamItem::Response { id, body, .. })) => {
                written.write_event(Some(id), &body);
                return written.finish();
            }
            Some(Some(StreamItem::Pause { retry_ms })) => {
                sse::write_retry(&mut written.lock().bytes, retry_ms);
                return written.finish();
            }
        }
    }
}

fn header_value<'h>(heads: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut found = heads.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "the header {name} is sent twice");
    value
}

// Client side.

impl Response {
    fn is_readable(&self) -> bool {
        let pages = self.body.lock();
        match &self.reader {
            None => pages.head.is_some(),
            Some(_) => !pages.bytes.is_empty() || pages.is_finished,
        }
    }

    /// Reads the head, or a piece of the body; `true` at the end.
    fn read(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        sessions: &mut Vec<String>,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) -> bool {
        let written = self.body.clone();
        let mut pages = written.lock();
        if self.reader.is_none() {
            let (status, kind) = pages.head.expect("there is a head");
            if let Some(id) = pages.session.take() {
                client.set_session(self.exchange, &id);
                sessions.push(id);
            }
            let kind = match kind {
                BodyKind::Json => "application/json",
                BodyKind::Stream => "text/event-stream",
            };
            self.reader = Some(HttpExchange::new(status, Some(kind), BODY_BYTES_MAX));
            return false;
        }
        if pages.bytes.is_empty() {
            return pages.is_finished;
        }
        let count = match input.below(4) {
            0 | 1 => pages.bytes.len(),
            2 => usize::from(input.byte()).clamp(1, pages.bytes.len()),
            _ => 1,
        };
        let is_whole = pages.is_finished && pages.bytes.len() == count;
        drop(pages);
        self.read_bytes(count, client, model, now);
        is_whole
    }

    /// Reads some of the body.
    fn read_bytes(&mut self, count: usize, client: &mut Client, model: &mut PairModel, now: u64) {
        let Some(reader) = &mut self.reader else { return };
        let bytes: Vec<u8> = self.body.lock().bytes.drain(..count).collect();
        let mut messages = Vec::new();
        reader.push(&bytes, |message| messages.push(message)).expect("no answer is so long");
        for message in messages {
            client.stream_active(self.exchange);
            model.server_sent(&parse_json(&message));
            client.receive(message, Some(self.exchange), now);
        }
    }

    /// The exchange, if it was a resumable stream.
    fn finish(mut self, client: &mut Client, now: u64) -> Option<u64> {
        match self.reader.take()?.finish(None) {
            ExchangeEnd::Response(reply) => {
                client.http_response(self.exchange, reply, now);
                None
            }
            ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms } => {
                let has_place = last_id.is_some();
                client.stream_ended(self.exchange, last_id, retry_ms);
                has_place.then_some(self.exchange)
            }
        }
    }
}

const BODY_BYTES_MAX: usize = 1 << 20;
