//! A pipe: bytes both ways, split anywhere. The server's end behaves like the `transport` crate.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, ConnectionState, Dispatched, InFlightGuard, OutgoingMessage, PendingResponse,
    ReplyChannel, Server, SubscriptionEvent, SubscriptionStream,
};
use tokio::task::AbortHandle;
use wire::client::Client;
use wire::frame::{Frame, FrameDecoder, Framing};
use wire::{Decoded, MessageContext, Notification, Version, encode};

use super::FuzzInput;
use super::legacy_server::{Interception, KnownVersions, LegacyServer};
use super::model::{PairModel, parse_json};

pub(super) struct SimulatedPipe {
    framing: Framing,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    server_frames: FrameDecoder,
    client_frames: FrameDecoder,
    server_end: ServerEnd,
    legacy_server: LegacyServer,
    misbehavior: Misbehavior,
    /// Delayed responses, and when they go out.
    delayed: VecDeque<(u64, Vec<u8>)>,
}

/// How a server orders and delays its messages. All of these exist in practice.
struct Misbehavior {
    prints_noise: bool,
    repeats_notifications: bool,
    delays_answers: bool,
    reorders_answers: bool,
    batches_output: bool,
}

impl SimulatedPipe {
    pub(super) fn new(server: &Arc<Server>, knows: KnownVersions, input: &mut FuzzInput<'_>) -> Self {
        let framing = if input.one_in(3) { Framing::ContentLength } else { Framing::Lines };
        let misbehavior = Misbehavior {
            prints_noise: input.one_in(4) && framing == Framing::Lines,
            repeats_notifications: input.one_in(4),
            delays_answers: input.one_in(4),
            reorders_answers: input.one_in(4),
            batches_output: input.one_in(2),
        };
        Self {
            framing,
            to_server: Vec::new(),
            to_client: Vec::new(),
            server_frames: FrameDecoder::new(FRAME_BYTES_MAX),
            client_frames: FrameDecoder::with_framing(framing, FRAME_BYTES_MAX),
            server_end: ServerEnd::new(server),
            legacy_server: LegacyServer::new(knows, input),
            misbehavior,
            delayed: VecDeque::new(),
        }
    }

    /// The client writes.
    pub(super) fn write_from_client(&mut self, body: &[u8]) {
        self.framing.write(&mut self.to_server, body);
    }

    /// Delivers a few bytes at one end or the other; `false` if none are on their way.
    pub(super) fn deliver(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) -> bool {
        let to_server = match (self.to_server.is_empty(), self.to_client.is_empty()) {
            (true, true) => return false,
            (is_empty, other) => !is_empty && (other || input.one_in(2)),
        };
        let way = if to_server { &mut self.to_server } else { &mut self.to_client };
        let count = match input.below(4) {
            0 | 1 => way.len(),
            2 => usize::from(input.byte()).clamp(1, way.len()),
            _ => 1,
        };
        let bytes: Vec<u8> = way.drain(..count).collect();
        if to_server {
            self.deliver_to_server(&bytes, model, now, input)
        } else {
            self.deliver_to_client(&bytes, client, now)
        }
        true
    }

    fn deliver_to_server(
        &mut self,
        bytes: &[u8],
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) {
        fill(&mut self.server_frames, bytes);
        while let Some(frame) = self.server_frames.next() {
            let Frame::Message(body) = frame else { panic!("what we wrote cannot be read: {frame:?}") };
            self.serve_message(body, model, now, input);
        }
    }

    fn serve_message(&mut self, body: Vec<u8>, model: &mut PairModel, now: u64, input: &mut FuzzInput<'_>) {
        // Messages sent before this count as sent before this.
        self.collect_output(model, now, input);
        let message = parse_json(&body);
        match self.legacy_server.intercept(&body, &message) {
            Interception::Forward(body) => {
                let opened = self.server_end.server.decode(
                    body,
                    MessageContext::Pipe(self.server_end.connection.peer()),
                    &self.server_end.server.snapshot(),
                );
                model.server_received(&message, &opened);
                self.server_end.handle_message(opened);
            }
            Interception::Respond(_, body) => {
                model.has_misbehaved = true;
                self.framing.write(&mut self.to_client, &body);
            }
            Interception::Garbage(line) => {
                model.has_misbehaved = true;
                if self.framing == Framing::Lines {
                    self.framing.write(&mut self.to_client, line);
                }
            }
            Interception::Drop => {}
        }
    }

    fn deliver_to_client(&mut self, bytes: &[u8], client: &mut Client, now: u64) {
        fill(&mut self.client_frames, bytes);
        for frame in &mut self.client_frames {
            let Frame::Message(body) = frame else { panic!("what we wrote cannot be read: {frame:?}") };
            client.receive(body, None, now);
        }
    }

    /// Takes the server's messages and sends them as its behaviour says.
    pub(super) fn collect_output(&mut self, model: &mut PairModel, now: u64, input: &mut FuzzInput<'_>) {
        let said =
            std::mem::take(&mut *self.server_end.output.lock().unwrap_or_else(PoisonError::into_inner));
        let mut batch: Vec<Vec<u8>> = Vec::new();
        let may_batch = self.misbehavior.batches_output
            && self.server_end.connection.peer().is_some_and(|peer| peer.version == Version::V2025_03_26);
        for body in said {
            let message = parse_json(&body);
            model.server_sent(&message);
            let is_answer = message["method"].is_null();
            let is_opening = message["result"]["supportedVersions"].is_array()
                || message["result"]["protocolVersion"].is_string();
            if self.misbehavior.prints_noise && input.one_in(2) {
                model.has_misbehaved = true;
                let line =
                    input.choose(&["Connecting to the database…", "", "{", "ready", "[1] 77", "\"ok\""]);
                self.framing.write(&mut self.to_client, line.as_bytes());
            }
            if may_batch && !is_opening {
                batch.push(body);
            } else if is_answer && self.misbehavior.delays_answers {
                // Its next message may overtake its handshake response.
                model.has_misbehaved |= is_opening;
                let due = now + input.choose(&[0, 1, 1000, 4000]);
                let last = self.delayed.back().map_or(0, |(due, _)| *due);
                self.delay(due.max(last), body, is_opening, input);
            } else if self.misbehavior.repeats_notifications && message["id"].is_null() != is_answer {
                self.framing.write(&mut self.to_client, &body);
                self.framing.write(&mut self.to_client, &body);
            } else if is_answer && !self.delayed.is_empty() {
                let last = self.delayed.back().map_or(0, |(due, _)| *due);
                self.delay(last, body, is_opening, input);
            } else {
                self.framing.write(&mut self.to_client, &body);
            }
        }
        match &batch[..] {
            [] => {}
            [one] => self.framing.write(&mut self.to_client, one),
            several => {
                let mut body = Vec::new();
                json::write::array(&mut body, several, |out, one| out.extend_from_slice(one));
                self.framing.write(&mut self.to_client, &body);
            }
        }
        while self.delayed.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, body)) = self.delayed.pop_front() {
                self.framing.write(&mut self.to_client, &body);
            }
        }
    }

    /// Queues a response; without ordering, before older ones.
    fn delay(&mut self, due: u64, body: Vec<u8>, is_opening: bool, input: &mut FuzzInput<'_>) {
        let overtakes = self.misbehavior.reorders_answers && !is_opening && input.one_in(2);
        match self.delayed.pop_back() {
            Some((other_due, other)) if overtakes => {
                self.delayed.push_back((other_due, body));
                self.delayed.push_back((due, other));
            }
            other => self.delayed.extend(other.into_iter().chain([(due, body)])),
        }
    }

    /// The client leaves: only part of what is on its way arrives.
    pub(super) fn close(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) {
        let half = self.to_server.len() / 2;
        let first: Vec<u8> = self.to_server.drain(..half).collect();
        self.to_server.clear();
        self.deliver_to_server(&first, model, now, input);
        if let Some(Frame::Message(body)) = self.server_frames.finish() {
            // Half a message is rejected, and nothing else happens.
            let opened = self.server_end.server.decode(
                body,
                MessageContext::Pipe(self.server_end.connection.peer()),
                &self.server_end.server.snapshot(),
            );
            let is_half = matches!(opened, Decoded::Rejected(_));
            assert!(is_half || !first.is_empty());
        }
        model.mark_closing();
        let half = self.to_client.len() / 2;
        let rest: Vec<u8> = self.to_client.drain(..half).collect();
        self.deliver_to_client(&rest, client, now);
        if let Some(Frame::Message(body)) = self.client_frames.finish() {
            client.receive(body, None, now);
        }
    }

    pub(super) fn drop_all(&mut self) {
        self.server_end.event_task.abort();
        self.server_end.connection.close();
    }
}

const FRAME_BYTES_MAX: usize = 1 << 20;

fn fill(frames: &mut FrameDecoder, bytes: &[u8]) {
    frames.read_buffer()[..bytes.len()].copy_from_slice(bytes);
    frames.advance(bytes.len());
}

/// The server's end, as in the `transport` crate: polled once, then spawned.
struct ServerEnd {
    server: Arc<Server>,
    connection: Arc<ConnectionState>,
    output: Output,
    event_task: AbortHandle,
}

/// Complete messages in the order in which they were written.
type Output = Arc<Mutex<Vec<Vec<u8>>>>;

fn write(out: &Output, body: Vec<u8>) {
    out.lock().unwrap_or_else(PoisonError::into_inner).push(body);
}

impl ServerEnd {
    fn new(server: &Arc<Server>) -> Self {
        let (connection, output) = (server.open_pipe(), Output::default());
        let event_task = tokio::spawn(forward_events(connection.clone(), output.clone())).abort_handle();
        Self { server: server.clone(), connection, output, event_task }
    }

    fn handle_message(&self, opened: Decoded) {
        let (line, who) = (ReplyChannel::Pipe(self.connection.clone()), CallerIdentity::default());
        match opened {
            Decoded::Request(request) => {
                match self.server.dispatch(request, &who, line, self.server.snapshot()) {
                    Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => {
                        write(&self.output, body)
                    }
                    Dispatched::Call(in_flight) => self.run_pending(PendingResponse::Single(in_flight)),
                    Dispatched::Subscription(listening) => self.run_subscription(listening),
                }
            }
            Decoded::Notification(Notification::Cancelled(id)) => self.connection.cancel(&id),
            Decoded::Notification(
                Notification::Initialized | Notification::RootsListChanged | Notification::Other,
            )
            | Decoded::Batch(_) => {}
            Decoded::Response { id, result: answer } => self.connection.deliver_response(id, answer),
            Decoded::Rejected(refusal) => write(&self.output, refusal.body),
        }
    }

    fn run_pending(&self, mut flow: PendingResponse) {
        loop {
            match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(OutgoingMessage::Response { body, .. }) => return write(&self.output, body),
                Poll::Ready(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) => {
                    write(&self.output, body)
                }
                Poll::Ready(OutgoingMessage::Pause { .. }) => {}
                Poll::Pending => break,
            }
        }
        let out = self.output.clone();
        self.spawn_registered(flow.register(&self.connection), async move {
            loop {
                match poll_fn(|cx| flow.poll_next(cx)).await {
                    OutgoingMessage::Notification(body) | OutgoingMessage::Request(body) => write(&out, body),
                    OutgoingMessage::Pause { .. } => {}
                    OutgoingMessage::Response { body, .. } => return write(&out, body),
                }
            }
        });
    }

    fn run_subscription(&self, mut listening: SubscriptionStream) {
        let id = listening.reply_to().id.clone();
        let out = self.output.clone();
        self.spawn_registered(self.connection.register(id.clone()), async move {
            while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
                write(&out, message);
            }
            write(&out, encode::subscription_cancelled(&id));
        });
    }

    fn spawn_registered(&self, waiting: InFlightGuard, work: impl Future<Output = ()> + Send + 'static) {
        let number = waiting.entry();
        let task = tokio::spawn(async move {
            let _waiting = waiting;
            work.await;
        });
        self.connection.set_abort_handle(number, task.abort_handle());
    }
}

async fn forward_events(connection: Arc<ConnectionState>, out: Output) {
    while let Some(event) = poll_fn(|cx| connection.subscription.poll_next(cx)).await {
        if let (SubscriptionEvent::Change(change), Some(_)) = (event, connection.peer()) {
            write(&out, encode::change_notification(&change, None));
        }
    }
}
