//! HTTP without sockets: requests are values, and each response is written into memory by a task of its own.
//!
//! The host decides every response, as it does for the `transport` crate. What is simulated is the rest: headers as
//! pairs, an unlimited buffer in place of a socket, tokio's timers. Dropping a response closes its connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use host::{
    AcceptedTypes, CallerIdentity, CompleteReply, HttpReply, PostMessage, PostReply, PostSender, ReplyStream,
    Server, SessionHeaders, TicketMemo, WaitingReply,
};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};
use wire::{HeaderField, Headers};

/// The headers of a request: names in any case, values.
pub type HeaderList = [(String, String)];

/// The server's side of simulated HTTP. Every caller is anonymous and accepts both JSON and event streams.
#[derive(Clone)]
pub struct SimulatedHttpServer {
    server: Arc<Server>,
}

/// A response in progress; dropping it closes the connection.
pub struct SimulatedResponse {
    state: SharedState,
    writer: Option<AbortHandle>,
}

/// What the server has written of a response, and the client has not read.
#[derive(Default)]
pub struct ResponseState {
    pub head: Option<ResponseHead>,
    pub bytes: Vec<u8>,
    pub is_finished: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    pub content_type: Option<&'static str>,
    pub session: Option<String>,
    pub allowed_methods: Option<&'static str>,
    pub retry_after_ms: Option<u64>,
}

#[derive(Clone, Default)]
struct SharedState(Arc<Mutex<ResponseState>>);

impl SimulatedHttpServer {
    pub fn new(server: Arc<Server>) -> Self {
        Self { server }
    }

    /// Decodes the body of a POST.
    pub fn decode(&self, body: Vec<u8>, headers: &HeaderList) -> PostMessage {
        let compared_headers = Headers {
            version: header(headers, "MCP-Protocol-Version"),
            method: header(headers, "Mcp-Method"),
            name: header(headers, "Mcp-Name"),
        };
        let session_id = header(headers, "Mcp-Session-Id");
        self.server.decode_post(
            body,
            compared_headers,
            session_id,
            &CallerIdentity::default(),
            &TicketMemo::default(),
        )
    }

    /// Answers a POST with a decoded body. Must be called in a tokio runtime, as all that answers.
    pub fn post(&self, message: PostMessage, headers: &HeaderList) -> SimulatedResponse {
        let identity = CallerIdentity::default();
        let sender = PostSender { identity: &identity, accepted: AcceptedTypes::BOTH };
        let cx = &mut Context::from_waker(Waker::noop());
        match self.server.respond_to_post(message, &sender, |name| header(headers, name), cx) {
            PostReply::Ready(reply) => SimulatedResponse::new(reply),
            PostReply::Waiting(waiting) => SimulatedResponse::waiting(waiting),
        }
    }

    pub fn get(&self, headers: &HeaderList) -> SimulatedResponse {
        let accepted = Some(AcceptedTypes::STREAM);
        SimulatedResponse::new(self.server.open_stream(
            &session_headers(headers),
            accepted,
            &CallerIdentity::default(),
        ))
    }

    pub fn delete(&self, headers: &HeaderList) -> SimulatedResponse {
        SimulatedResponse::new(
            self.server.delete_session(&session_headers(headers), &CallerIdentity::default()),
        )
    }
}

fn session_headers(headers: &HeaderList) -> SessionHeaders<'_> {
    SessionHeaders {
        session_id: header(headers, "Mcp-Session-Id"),
        protocol_version: header(headers, "MCP-Protocol-Version"),
        last_event_id: header(headers, "Last-Event-ID"),
    }
}

fn header<'h>(headers: &'h HeaderList, name: &str) -> HeaderField<'h> {
    let mut values = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None, _) => HeaderField::Absent,
        (Some(value), None) => HeaderField::Single(value.as_bytes()),
        (Some(_), Some(_)) => HeaderField::Repeated,
    }
}

impl SimulatedResponse {
    fn new(reply: HttpReply) -> Self {
        let state = SharedState::default();
        let writer = state.write_reply(reply).map(|stream| {
            let (state, timer) = (state.clone(), Timer::start());
            tokio::spawn(write_stream(stream, timer, state)).abort_handle()
        });
        Self { state, writer }
    }

    fn waiting(mut waiting: WaitingReply) -> Self {
        let state = SharedState::default();
        let written = state.clone();
        let writer = tokio::spawn(async move {
            let mut timer = Timer::start();
            let mut elapsed_ms = 0;
            let reply = poll_fn(|cx| {
                loop {
                    if let Poll::Ready(reply) = waiting.poll(cx, elapsed_ms) {
                        return Poll::Ready(reply);
                    }
                    elapsed_ms = ready!(timer.poll_until(cx, waiting.wake_at_ms()));
                }
            });
            let reply = reply.await;
            if let Some(stream) = written.write_reply(reply) {
                write_stream(stream, timer, written).await;
            }
        });
        Self { state, writer: Some(writer.abort_handle()) }
    }

    /// A response that the host has no part in.
    pub fn complete(status: u16, content_type: &'static str, body: &[u8]) -> Self {
        let state = SharedState::default();
        state.write(ResponseHead { content_type: Some(content_type), ..ResponseHead::new(status) }, body);
        state.lock().is_finished = true;
        Self { state, writer: None }
    }

    pub fn lock(&self) -> MutexGuard<'_, ResponseState> {
        self.state.lock()
    }

    /// Whether the server did not answer at once, so that something of it depends on the connection.
    pub fn was_deferred(&self) -> bool {
        self.writer.is_some()
    }
}

impl Drop for SimulatedResponse {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

impl ResponseHead {
    fn new(status: u16) -> Self {
        Self { status, content_type: None, session: None, allowed_methods: None, retry_after_ms: None }
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, ResponseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the head, and all that is known of the body. Returns the stream with the rest, if there is one.
    fn write_reply(&self, reply: HttpReply) -> Option<ReplyStream> {
        match reply {
            HttpReply::Accepted => self.write(ResponseHead::new(202), b""),
            HttpReply::SessionEnded => self.write(ResponseHead::new(204), b""),
            HttpReply::Complete(reply) => self.write_complete(reply, None),
            HttpReply::Initialized { reply, session } => self.write_complete(reply, Some(session)),
            HttpReply::Refused(refusal) => {
                let response = refusal.to_response();
                let head = ResponseHead {
                    content_type: Some(JSON),
                    allowed_methods: refusal.allowed_methods(),
                    retry_after_ms: response.retry_after_ms,
                    ..ResponseHead::new(response.http_status)
                };
                self.write(head, &response.body);
            }
            HttpReply::Stream(stream) => {
                self.write(ResponseHead { content_type: Some(EVENT_STREAM), ..ResponseHead::new(200) }, b"");
                return Some(stream);
            }
        }
        self.lock().is_finished = true;
        None
    }

    fn write_complete(&self, reply: CompleteReply, session: Option<String>) {
        let (status, content_type, body, retry_after_ms) = match reply {
            CompleteReply::Json { status, body, retry_after_ms } => (status, JSON, body, retry_after_ms),
            CompleteReply::Events(body) => (200, EVENT_STREAM, body, None),
        };
        let content_type = Some(content_type);
        self.write(
            ResponseHead { content_type, session, retry_after_ms, ..ResponseHead::new(status) },
            &body,
        );
    }

    fn write(&self, head: ResponseHead, body: &[u8]) {
        let mut state = self.lock();
        state.head = Some(head);
        state.bytes.extend_from_slice(body);
    }
}

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

async fn write_stream(mut stream: ReplyStream, mut timer: Timer, written: SharedState) {
    loop {
        let mut elapsed_ms = timer.elapsed_ms();
        let next = poll_fn(|cx| {
            loop {
                if let Poll::Ready(bytes) = stream.poll_next(cx, elapsed_ms) {
                    return Poll::Ready(bytes);
                }
                elapsed_ms = ready!(timer.poll_until(cx, stream.wake_at_ms()));
            }
        });
        match next.await {
            Some(bytes) => written.lock().bytes.extend_from_slice(&bytes),
            None => break,
        }
    }
    written.lock().is_finished = true;
}

/// The clock and the timer of one response.
struct Timer {
    started: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn start() -> Self {
        let started = Instant::now();
        Self { started, sleep: Box::pin(tokio::time::sleep_until(started)) }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at_ms: Option<u64>) -> Poll<u64> {
        let Some(at_ms) = at_ms else { return Poll::Pending };
        let deadline = self.started + Duration::from_millis(at_ms);
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        ready!(self.sleep.as_mut().poll(cx));
        Poll::Ready(self.elapsed_ms().max(at_ms))
    }
}
