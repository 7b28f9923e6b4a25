//! A WebSocket connection of the transport, from its first frame to its last, on a clock that the test moves.
//!
//! A client sends messages in fragments of any kind, pings, close frames, invalid frames and arbitrary bytes, split
//! anywhere; it reads or does not, leaves, or the server shuts down. Whatever happens: each request and each ping is
//! answered once; the server's output follows the RFC; a violation closes the connection with the right code, and nothing
//! follows a close frame. The server soon stops reading from a client that does not read, and in the end no state is
//! left.

mod client_frames;
mod oracle;
mod server_output;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use host::{Config, Server};
use spile_core::{CatalogChange, Limits};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};
use tokio::task::JoinHandle;
use transport::fuzzing::{self, ShutdownSignal};

use self::client_frames::ClientFrames;
use self::oracle::{ExpectedClose, ReceivedMessage, WebSocketOracle};
use self::server_output::ServerOutput;
use super::FuzzInput;
use super::scripted_provider::ScriptedProvider;
use crate::FakePlatform;

/// Runs the simulation that `data` encodes. `advance` moves the runtime's clock, which must be paused.
pub async fn websocket(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut input = FuzzInput::new(data);
    let mut simulation = WebSocketSimulation::new(&mut input);
    while !input.is_exhausted() {
        simulation.step(&mut input, &advance).await;
    }
    simulation.finish(&advance).await;
}

struct WebSocketSimulation {
    limits: Limits,
    provider: Arc<ScriptedProvider>,
    server: Arc<Server>,
    server_task: JoinHandle<()>,
    shutdown: Arc<ShutdownSignal>,
    /// `None` once the client has left.
    io: Option<DuplexStream>,
    /// What is still to be sent.
    unsent: Vec<u8>,
    client: ClientFrames,
    oracle: WebSocketOracle,
    /// How much of the oracle's messages the model has recorded.
    oracle_checked: usize,
    request_log: RequestLog,
    output: ServerOutput,
    /// How many of the messages have been checked.
    output_checked: usize,
    state: PeerState,
    /// Whether the client reads while time passes.
    reads_while_waiting: bool,
    /// Whether the client may have missed the end because it did not read.
    may_miss_close: bool,
}

/// The state of the connection, as the client can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerState {
    Open,
    /// The server was told to shut down.
    ServerClosing,
    /// The client stopped sending without a close frame, or is gone.
    ClientLeft,
}

/// What was requested, and the responses.
#[derive(Default)]
struct RequestLog {
    requests: BTreeMap<u64, SentRequest>,
    pings: Vec<Vec<u8>>,
    /// Texts that were not messages, and errors without an id.
    malformed_count: usize,
    unnamed_errors: usize,
    /// Whether messages were sent whose meaning is unknown.
    has_unknown: bool,
}

struct SentRequest {
    timing: AnswerTiming,
    answer_count: usize,
}

/// When a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerTiming {
    Immediate,
    /// As soon as enough time has passed.
    Eventual,
    /// It may have been cancelled.
    Optional,
}

/// A text that a client sends.
#[derive(Clone, Copy)]
enum MessageKind {
    Request(u64, AnswerTiming),
    Cancel(u64),
    Notification,
    Malformed,
    /// Anything at all.
    Unknown,
}

/// What a server buffers beside its queue for a client that does not read: a batch of responses, one read, and what the
/// pipes between the two hold.
const UNREAD_BYTES_MAX: usize = 512 << 10;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl WebSocketSimulation {
    fn new(input: &mut FuzzInput<'_>) -> Self {
        let limits = Limits {
            message_bytes_max: input.choose(&[2000, 300, 70_000]),
            stream_bytes_max: input.choose(&[20_000, 1000]),
            calls_per_connection_max: input.choose(&[256, 2]),
            keep_alive_ms: 15_000,
            ..Limits::default()
        };
        let held_bytes = input.choose(&[4096, 1 << 16, 200, 17]);
        let provider = Arc::new(ScriptedProvider::default());
        let config = Config::new("websocket", "1", limits.clone(), Arc::new(FakePlatform::new(1)));
        let server = Server::new(config, vec![provider.clone()]);
        let (io, at_server) = tokio::io::duplex(held_bytes);
        let shutdown = Arc::new(ShutdownSignal::default());
        let server_task = tokio::spawn({
            let (server, ending) = (server.clone(), shutdown.clone());
            async move { fuzzing::serve_websocket(server, at_server, &ending, DRAIN_TIMEOUT).await }
        });
        Self {
            oracle: WebSocketOracle::new(limits.message_bytes_max),
            limits,
            provider,
            server,
            server_task,
            shutdown,
            io: Some(io),
            unsent: Vec::new(),
            client: ClientFrames::default(),
            oracle_checked: 0,
            request_log: RequestLog::default(),
            output: ServerOutput::default(),
            output_checked: 0,
            state: PeerState::Open,
            reads_while_waiting: true,
            may_miss_close: false,
        }
    }

    async fn step(&mut self, input: &mut FuzzInput<'_>, advance: &impl AsyncFn(Duration)) {
        match input.below(32) {
            0..=11 => self.client.text(input, &mut self.unsent),
            12 | 13 => self.client.control(input, &mut self.unsent),
            14 => self.client.binary(input, &mut self.unsent),
            15 => self.unsent.extend_from_slice(input.bytes()),
            16..=22 => {
                let bytes_max = match input.below(4) {
                    0 | 1 => usize::MAX,
                    2 => usize::from(input.byte()),
                    _ => 1,
                };
                self.send(bytes_max);
            }
            23..=26 => {
                let bytes_max = if input.one_in(2) { usize::from(input.byte()) } else { usize::MAX };
                self.read(bytes_max);
            }
            27 => {
                let ms = input.choose(&[1, 100, 1000, 3000, 16_000, 31_000]);
                self.reads_while_waiting = !input.one_in(2);
                self.advance_time(ms, advance).await;
                self.reads_while_waiting = true;
            }
            28 => self.provider.notify(CatalogChange::Tools),
            29 => self.flood().await,
            30 if input.one_in(4) && self.state == PeerState::Open => {
                self.state = PeerState::ServerClosing;
                self.shutdown.trigger();
            }
            31 if input.one_in(4) => self.disconnect(input),
            _ => {}
        }
        run_until_idle().await;
        self.check_state();
    }

    /// Sends some of the pending bytes; `false` if the server does not read.
    fn send(&mut self, bytes_max: usize) -> bool {
        let Some(io) = &mut self.io else {
            self.unsent.clear();
            return false;
        };
        let bytes_max = bytes_max.min(self.unsent.len());
        if bytes_max == 0 || self.state == PeerState::ClientLeft {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(io).poll_write(&mut cx, &self.unsent[..bytes_max]) {
            Poll::Ready(Ok(sent)) => {
                self.oracle.receive(&self.unsent[..sent]);
                self.unsent.drain(..sent);
                sent > 0
            }
            Poll::Ready(Err(_)) => {
                self.unsent.clear();
                false
            }
            Poll::Pending => false,
        }
    }

    /// Reads some of the server's output; `false` if there is none.
    fn read(&mut self, bytes_max: usize) -> bool {
        let Some(io) = &mut self.io else { return false };
        let mut bytes = [0; 4096];
        let mut cx = Context::from_waker(Waker::noop());
        let (mut read, mut bytes_max) = (false, bytes_max);
        while bytes_max > 0 {
            let room = bytes_max.min(bytes.len());
            let mut space = ReadBuf::new(&mut bytes[..room]);
            match Pin::new(&mut *io).poll_read(&mut cx, &mut space) {
                Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                    self.output.read(space.filled());
                    bytes_max -= space.filled().len();
                    read = true;
                }
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        read
    }

    async fn advance_time(&mut self, ms: u64, advance: &impl AsyncFn(Duration)) {
        if self.reads_while_waiting {
            self.read_all().await;
        } else if self.state != PeerState::Open || self.oracle.expected_close != ExpectedClose::StaysOpen {
            // A close frame waits only for a moment.
            self.may_miss_close = true;
        }
        // Four waits of a second have ended after a minute.
        let steps = (ms / 1000).min(4);
        for _ in 0..steps {
            advance(Duration::from_secs(1)).await;
            run_until_idle().await;
            if self.reads_while_waiting {
                self.read_all().await;
            }
        }
        advance(Duration::from_millis(ms - 1000 * steps)).await;
    }

    /// Sends pings without end and reads no pongs: at some point the server must stop reading.
    async fn flood(&mut self) {
        let is_open = self.state == PeerState::Open
            && !self.server_task.is_finished()
            && self.oracle.is_between_messages();
        if !is_open || self.oracle.must_close() || !self.unsent.is_empty() {
            return;
        }
        let (mut taken, mut refused) = (0, 0);
        while refused < 8 {
            if self.unsent.is_empty() {
                self.client.ping(&[b'x'; 125], &mut self.unsent);
            }
            let before = self.unsent.len();
            if self.send(usize::MAX) {
                (taken, refused) = (taken + before - self.unsent.len(), 0);
            } else {
                refused += 1;
                run_until_idle().await;
            }
            let bytes_max = self.limits.stream_bytes_max + UNREAD_BYTES_MAX;
            assert!(taken < bytes_max, "the server read {taken} bytes from a client that reads nothing");
        }
    }

    /// The client stops sending, or leaves altogether.
    fn disconnect(&mut self, input: &mut FuzzInput<'_>) {
        self.state = PeerState::ClientLeft;
        self.unsent.clear();
        if input.one_in(2) {
            self.io = None;
        } else if let Some(io) = &mut self.io {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(io).poll_shutdown(&mut cx).is_ready());
        }
    }

    /// Compares the server's output with the model.
    fn check_state(&mut self) {
        for received in &self.oracle.received[self.oracle_checked..] {
            match received {
                ReceivedMessage::Ping(payload) => self.request_log.pings.push(payload.clone()),
                ReceivedMessage::Text(text) => self.request_log.record_request(self.client.kind_of(text)),
            }
        }
        self.oracle_checked = self.oracle.received.len();
        for message in &self.output.messages[self.output_checked..] {
            self.request_log.record_message(message);
        }
        self.output_checked = self.output.messages.len();
        assert!(self.request_log.pings.starts_with(&self.output.pongs), "a pong is what a ping was");
        if let Some(code) = self.output.close_code {
            let is_right = match &self.oracle.expected_close {
                ExpectedClose::StaysOpen => false,
                ExpectedClose::MayClose(codes) | ExpectedClose::MustClose(codes) => codes.contains(&code),
            };
            let goes = self.state != PeerState::Open && code == CLOSE_GOING_AWAY;
            assert!(
                is_right || goes,
                "closed with {code}: {:?}, {:?}",
                self.oracle.expected_close,
                self.state
            );
        }
        let active = self.server.status().calls_active;
        assert!(active <= self.limits.calls_per_connection_max, "{active} calls");
    }

    async fn read_all(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            quiet = if self.read(usize::MAX) { 0 } else { quiet + 1 };
            run_until_idle().await;
        }
    }

    /// Delivers everything on its way, and reads everything.
    async fn deliver_all(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            let moved = self.send(usize::MAX) | self.read(usize::MAX);
            quiet = if moved { 0 } else { quiet + 1 };
            run_until_idle().await;
        }
        self.check_state();
    }

    async fn finish(mut self, advance: &impl AsyncFn(Duration)) {
        self.deliver_all().await;
        if self.state == PeerState::Open && !self.oracle.must_close() && !self.may_miss_close {
            let is_closed = self.output.close_code.is_some();
            assert!(is_closed || self.unsent.is_empty(), "it does not take what it could");
            if !is_closed {
                self.wait_until_answered(advance).await;
                self.close().await;
            }
        }
        self.advance_time(1100 + DRAIN_TIMEOUT.as_millis() as u64, advance).await;
        self.deliver_all().await;
        if self.state != PeerState::ClientLeft && !self.may_miss_close {
            assert!(
                self.output.close_code.is_some(),
                "it ends without a goodbye: {:?}",
                self.oracle.expected_close
            );
            assert!(self.output.is_frame_complete(), "half a frame, and then the end");
            if self.state == PeerState::Open {
                self.request_log.check_immediate_answers();
                assert_eq!(self.output.pongs, self.request_log.pings, "each ping has its pong");
            }
        }
        self.io = None;
        self.advance_time(3000, advance).await;
        run_until_idle().await;
        assert!(self.server_task.is_finished(), "the server task has not ended");
        self.server_task.await.expect("it does not panic");
        let status = self.server.status();
        assert_eq!(
            (status.sessions, status.calls_active, status.subscriptions),
            (0, 0, 0),
            "something is left"
        );
        let notes = self.provider.log();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }

    /// Everything is answered as long as the connection lasts and time passes.
    async fn wait_until_answered(&mut self, advance: &impl AsyncFn(Duration)) {
        for ms in [0, 1000, 4000, 31_000, 31_000] {
            self.advance_time(ms, advance).await;
            self.deliver_all().await;
            if self.request_log.all_answered() {
                break;
            }
        }
        assert!(self.request_log.all_answered(), "something is not answered");
        self.request_log.check_immediate_answers();
        assert_eq!(self.output.pongs, self.request_log.pings, "each ping has its pong");
        assert!(
            self.request_log.has_unknown
                || self.request_log.unnamed_errors == self.request_log.malformed_count,
            "an invalid message is answered with an error"
        );
    }

    /// Sends a close frame, or leaves if it is in the middle of a frame.
    async fn close(&mut self) {
        if self.oracle.is_between_frames() {
            self.client.close(&mut self.unsent);
            self.deliver_all().await;
        } else {
            self.state = PeerState::ClientLeft;
            self.io = None;
        }
    }
}

/// RFC 6455, 7.4.1: the server is going away.
const CLOSE_GOING_AWAY: u16 = 1001;

impl RequestLog {
    fn record_request(&mut self, meaning: MessageKind) {
        match meaning {
            MessageKind::Request(id, answer) => {
                self.requests.insert(id, SentRequest { timing: answer, answer_count: 0 });
            }
            MessageKind::Cancel(id) => {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.timing = AnswerTiming::Optional;
                }
            }
            MessageKind::Notification => {}
            MessageKind::Malformed => self.malformed_count += 1,
            MessageKind::Unknown => self.has_unknown = true,
        }
    }

    fn record_message(&mut self, message: &serde_json::Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        if message["method"].is_string() {
            return;
        }
        assert!(message["result"].is_object() != message["error"].is_object(), "{message}");
        if message["id"].is_null() {
            self.unnamed_errors += 1;
        } else if let Some(request) = message["id"].as_u64().and_then(|id| self.requests.get_mut(&id)) {
            request.answer_count += 1;
            assert_eq!(request.answer_count, 1, "answered twice: {message}");
        } else {
            // It may also be one of ours in other fragments.
            assert!(self.has_unknown, "a response without a request: {message}");
        }
    }

    fn all_answered(&self) -> bool {
        self.requests
            .values()
            .all(|request| request.timing == AnswerTiming::Optional || request.answer_count == 1)
    }

    fn check_immediate_answers(&self) {
        for (id, request) in &self.requests {
            assert!(
                request.timing != AnswerTiming::Immediate || request.answer_count == 1,
                "{id} is not answered"
            );
        }
    }
}

/// Runs everything that can run.
async fn run_until_idle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
