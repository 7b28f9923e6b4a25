//! Handshake-era clients over HTTP: sessions, and streams that are left and resumed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use host::{
    CallerIdentity, ConnectionState, Dispatched, GET_STREAM, OutgoingMessage, PendingResponse, ReplyChannel,
    SessionStreamReader, SessionStreams, SessionTicket, StreamItem,
};
use serde_json::{Value, json};
use wire::{Decoded, Headers, HttpDefaults, MessageContext, Notification, SessionError};

use super::{
    FuzzInput, SessionSimulation, cancelled_notification, initialize_request, parse_json, random_response,
    run_until_idle,
};

/// A session over HTTP, as its client knows it.
pub(super) struct SessionClient {
    pub(super) id: String,
    pub(super) ticket: SessionTicket,
    pub(super) ended: bool,
    pub(super) streams: BTreeMap<u32, StreamLog>,
    pub(super) server_requests: Vec<u64>,
    pub(super) calls: Vec<(u64, u64)>,
}

/// What was read from one stream, by all its readers.
#[derive(Default)]
pub(super) struct StreamLog {
    pub(super) calls: Vec<u64>,
    pub(super) events: BTreeMap<u64, Vec<u8>>,
    pub(super) answers: u32,
}

pub(super) struct AttachedReader {
    pub(super) session: usize,
    pub(super) stream_reader: SessionStreamReader,
    pub(super) last_event: u64,
}

#[derive(PartialEq, Eq)]
pub(super) enum ReaderState {
    Open,
    Closed,
}

impl SessionSimulation {
    fn decode_in_session(&self, session: &SessionClient, message: &Value) -> Decoded {
        let state = || match self.server.verify_session(&session.id, &CallerIdentity::default()) {
            Ok(ticket) => wire::SessionLookup::Found(ticket.peer),
            Err(error) => wire::SessionLookup::NotFound(error),
        };
        let defaults = HttpDefaults { headers: Headers::default(), lookup_session: &state };
        self.server.decode(
            message.to_string().into_bytes(),
            MessageContext::Http(defaults),
            &self.server.snapshot(),
        )
    }

    pub(super) fn initialize(&mut self, input: &mut FuzzInput<'_>) {
        if self.sessions.len() >= 6 {
            return;
        }
        let message = initialize_request(input);
        let defaults =
            HttpDefaults { headers: Headers::default(), lookup_session: &|| wire::SessionLookup::NotNamed };
        let Decoded::Request(request) = self.server.decode(
            message.to_string().into_bytes(),
            MessageContext::Http(defaults),
            &self.server.snapshot(),
        ) else {
            panic!("a handshake is a request");
        };
        let Dispatched::Initialized { body, session: id } = self.server.dispatch(
            request,
            &CallerIdentity::default(),
            ReplyChannel::NoSession,
            self.server.snapshot(),
        ) else {
            panic!("a handshake over HTTP makes a session");
        };
        assert_eq!(parse_json(&body)["result"]["protocolVersion"], message["params"]["protocolVersion"]);
        let ticket =
            self.server.verify_session(&id, &CallerIdentity::default()).expect("a new session is alive");
        let (streams, questions, calls) = (BTreeMap::new(), Vec::new(), Vec::new());
        self.sessions.push(SessionClient {
            id,
            ticket,
            ended: false,
            streams,
            server_requests: questions,
            calls,
        });
    }

    /// Like a POST: answered at once if possible, else through a stream that the response reads.
    pub(super) fn call_in_session(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let more = if input.one_in(6) { json!({"task": {"ttl": 60_000}}) } else { Value::Null };
        let (n, id, message) = self.new_call(input, more);
        match self.decode_in_session(&self.sessions[index], &message) {
            Decoded::Request(request) => {
                let reply_channel = ReplyChannel::Session(self.sessions[index].ticket);
                match self.server.dispatch(
                    request,
                    &CallerIdentity::default(),
                    reply_channel,
                    self.server.snapshot(),
                ) {
                    Dispatched::Call(in_flight) => {
                        self.run_pending(index, PendingResponse::Single(in_flight), &[(n, id)])
                    }
                    Dispatched::Ready { body, .. } => assert_eq!(parse_json(&body)["id"], id),
                    Dispatched::Initialized { .. } | Dispatched::Subscription(_) => {
                        panic!("a call is no handshake")
                    }
                }
            }
            Decoded::Rejected(refusal) => {
                assert!(
                    refusal.http_status == 404
                        && self
                            .server
                            .verify_session(&self.sessions[index].id, &CallerIdentity::default())
                            .is_err()
                );
            }
            _ => panic!("a call is a request"),
        }
    }

    pub(super) fn batch_in_session(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let (first, one, mut a) = self.new_call(input, Value::Null);
        let (second, _, mut b) = self.new_call(input, Value::Null);
        let ids = [(first, 10 + one), (second, 20 + one)];
        (a["id"], b["id"]) = (ids[0].1.into(), ids[1].1.into());
        if let Decoded::Batch(batch) = self.decode_in_session(&self.sessions[index], &json!([a, b])) {
            let reply_channel = ReplyChannel::Session(self.sessions[index].ticket);
            let pending = self
                .server
                .dispatch_batch(batch, &CallerIdentity::default(), &reply_channel, &self.server.snapshot())
                .expect("something to answer");
            self.run_pending(index, pending, &ids);
        }
    }

    fn run_pending(&mut self, index: usize, mut pending: PendingResponse, calls: &[(u64, u64)]) {
        let first = match pending.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(OutgoingMessage::Response { body, .. }) => {
                return calls.iter().for_each(|(n, _)| self.record_answer(*n, &body));
            }
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        };
        let Ok(connection) =
            self.server.ensure_session_state(&self.sessions[index].ticket, &CallerIdentity::default())
        else {
            return;
        };
        let reader = pending.spawn_into_stream(&connection, first);
        let stream = reader.stream_id();
        let session = &mut self.sessions[index];
        session.calls.extend(calls);
        let calls = calls.iter().map(|(n, _)| *n).collect();
        let old = session.streams.insert(stream, StreamLog { calls, ..StreamLog::default() });
        assert!(old.is_none(), "a stream's number is used once");
        self.readers.push(AttachedReader { session: index, stream_reader: reader, last_event: 0 });
    }

    fn pick_session(&self, input: &mut FuzzInput<'_>) -> Option<usize> {
        (!self.sessions.is_empty()).then(|| input.below(self.sessions.len()))
    }

    pub(super) fn read_stream(&mut self, input: &mut FuzzInput<'_>) {
        if self.readers.is_empty() {
            return;
        }
        let index = input.below(self.readers.len());
        let mut reader = self.readers.swap_remove(index);
        if self.drain(&mut reader) == ReaderState::Open {
            self.readers.push(reader);
        }
    }

    /// Reads what is available, as a response does.
    pub(super) fn drain(&mut self, reader: &mut AttachedReader) -> ReaderState {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let part = match reader.stream_reader.poll_next(&mut cx) {
                Poll::Pending => return ReaderState::Open,
                Poll::Ready(None) => return ReaderState::Closed,
                Poll::Ready(Some(part)) => part,
            };
            let (id, body, is_answer) = match part {
                StreamItem::Pause { .. } => return ReaderState::Closed,
                StreamItem::Message { id, body } => (id, body, false),
                StreamItem::Response { id, body, .. } => (id, body, true),
            };
            assert_eq!(id.stream, reader.stream_reader.stream_id());
            assert!(id.event > reader.last_event, "events come in order");
            reader.last_event = id.event;
            let session = &mut self.sessions[reader.session];
            let log = session.streams.entry(id.stream).or_default();
            if let Some(earlier) = log.events.insert(id.event, body.to_vec()) {
                assert_eq!(earlier, body.to_vec(), "one number, one event");
                continue;
            }
            let message = parse_json(&body);
            if is_answer {
                log.answers += 1;
                assert_eq!(log.answers, 1, "a stream has one answer");
                for n in log.calls.clone() {
                    self.record_answer(n, &body);
                }
            } else if let (Some(id), true) = (message["id"].as_u64(), message["method"].is_string()) {
                session.server_requests.push(id);
            }
        }
    }

    /// GET, with any `Last-Event-ID` or none.
    pub(super) fn resume_stream(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let session = &self.sessions[index];
        let Ok(ticket) = self.server.verify_session(&session.id, &CallerIdentity::default()) else {
            return;
        };
        let Ok(connection) = self.server.ensure_session_state(&ticket, &CallerIdentity::default()) else {
            return;
        };
        let known: Vec<u32> = session.streams.keys().copied().collect();
        let (stream, after) = match input.below(8) {
            0 => {
                (u32::from_be_bytes([input.byte(), 0, 0, input.byte()]), Some(u64::from(input.byte()) << 56))
            }
            1 => (GET_STREAM, None),
            _ if known.is_empty() => (GET_STREAM, None),
            way => {
                let stream = known[input.below(known.len())];
                let last = session.streams[&stream].events.keys().next_back().copied().unwrap_or(0);
                // Mostly from the last position, sometimes from further back.
                (stream, Some(if way == 2 { last.saturating_sub(2) } else { last }))
            }
        };
        if let Some(reader) = SessionStreams::attach_reader(&connection, stream, after) {
            let last = reader.start_event_id().event;
            self.readers.push(AttachedReader { session: index, stream_reader: reader, last_event: last });
        }
    }

    pub(super) fn cancel_in_session(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let id = input.below(5) as u64;
        let message = cancelled_notification(id);
        let Decoded::Notification(Notification::Cancelled(named)) =
            self.decode_in_session(&self.sessions[index], &message)
        else {
            return;
        };
        let Some(connection) = self.server.session_state(&self.sessions[index].ticket) else { return };
        let calls = self.sessions[index].calls.clone();
        self.cancel(&connection, &named, &calls, id);
    }

    pub(super) fn answer_in_session(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let message = random_response(input, &mut self.sessions[index].server_requests);
        if let Decoded::Response { id, result: response } =
            self.decode_in_session(&self.sessions[index], &message)
            && let Some(connection) = self.server.session_state(&self.sessions[index].ticket)
        {
            connection.deliver_response(id, response);
        }
    }

    pub(super) async fn delete_session(&mut self, input: &mut FuzzInput<'_>) {
        let Some(index) = self.pick_session(input) else { return };
        let session = &mut self.sessions[index];
        // An expired session cannot be ended; it is swept when its room is needed.
        let Ok(ticket) = self.server.verify_session(&session.id, &CallerIdentity::default()) else {
            return;
        };
        self.server.end_session(&ticket);
        session.ended = true;
        let ended = self.server.verify_session(&session.id, &CallerIdentity::default());
        assert_eq!(ended.err(), Some(SessionError::Ended));
        run_until_idle().await;
        assert!(self.server.session_state(&session.ticket).is_none());
        for (n, _) in &self.sessions[index].calls {
            assert!(!self.is_running(*n), "call {n} outlives its session");
        }
    }

    /// Resumes every stream from its last position, as often as it is paused.
    pub(super) fn resume_all_streams(&mut self) {
        for index in 0..self.sessions.len() {
            let Some(connection) = self.server.session_state(&self.sessions[index].ticket) else { continue };
            let streams: Vec<u32> = self.sessions[index].streams.keys().copied().collect();
            for stream in streams {
                for _ in 0..10 {
                    let log = &self.sessions[index].streams[&stream];
                    let last = log.events.keys().next_back().copied().unwrap_or(0);
                    let Some(reader) = SessionStreams::attach_reader(&connection, stream, Some(last)) else {
                        break;
                    };
                    if self.drain(&mut AttachedReader {
                        session: index,
                        stream_reader: reader,
                        last_event: last,
                    }) == ReaderState::Open
                    {
                        break;
                    }
                }
                let is_there = self.check_stream_bounds(&connection, stream);
                let log = &self.sessions[index].streams[&stream];
                let is_cancelled = log.calls.iter().any(|n| self.cancelled.contains(n));
                if is_there && stream != GET_STREAM && !is_cancelled {
                    assert_eq!(log.answers, 1, "the calls {:?} have no answer", log.calls);
                }
            }
        }
    }

    /// Checks that a stream keeps no more notifications than its limit. `false` if it is gone.
    fn check_stream_bounds(&self, connection: &Arc<ConnectionState>, stream: u32) -> bool {
        let Some(mut reader) = SessionStreams::attach_reader(connection, stream, Some(0)) else {
            return false;
        };
        let (mut notices, mut bytes) = (0, 0);
        while let Poll::Ready(Some(part)) = reader.poll_next(&mut Context::from_waker(Waker::noop())) {
            if let StreamItem::Message { body, .. } = part
                && parse_json(&body)["id"].is_null()
            {
                notices += 1;
                bytes += body.len();
            }
        }
        let limits = &self.server.limits;
        assert!(notices <= limits.stream_events_max && bytes <= limits.stream_bytes_max);
        true
    }

    /// The stream shows what the call logged: all of it if the call finished.
    pub(super) fn check_no_lost_events(&self) {
        let notes = self.provider.log();
        for session in self.sessions.iter().filter(|session| !session.ended) {
            for stream in session.streams.values() {
                let [n] = stream.calls[..] else { continue };
                let shown: Vec<u64> = stream
                    .events
                    .values()
                    .map(|body| parse_json(body))
                    .filter_map(|message| message["params"]["data"]["i"].as_u64())
                    .collect();
                let said = notes.logged.get(&n).cloned().unwrap_or_default();
                assert!(said.starts_with(&shown), "call {n} said {said:?}, and its stream shows {shown:?}");
                if stream.answers == 1 && !self.is_task(stream) {
                    assert_eq!(said, shown, "call {n} was answered, and something is missing before that");
                }
            }
        }
    }

    /// What a task sends after its call was answered is dropped.
    fn is_task(&self, stream: &StreamLog) -> bool {
        stream.events.values().any(|body| parse_json(body)["result"]["task"].is_object())
    }
}
