//! Clients of the handshake era over HTTP: sessions, and streams that are left and taken up again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use host::{Attached, Begun, Flow, GET_STREAM, Line, Live, News, Out, Part, Streams, Ticket, Who};
use serde_json::{Value, json};
use wire::{Bare, Heads, HttpBare, Notice, Opened, shape};

use super::{Dice, Game, cancelled, handshake, read, reply, settle};

/// A session over HTTP, as its client knows it.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) ticket: Ticket,
    pub(super) ended: bool,
    pub(super) streams: BTreeMap<u32, Seen>,
    pub(super) questions: Vec<u64>,
    pub(super) calls: Vec<(u64, u64)>,
}

/// What was read from one stream, over all who read it.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) calls: Vec<u64>,
    pub(super) events: BTreeMap<u64, Vec<u8>>,
    pub(super) answers: u32,
}

pub(super) struct Reader {
    pub(super) session: usize,
    pub(super) attached: Attached,
    pub(super) last: u64,
}

#[derive(PartialEq, Eq)]
pub(super) enum Then {
    GoesOn,
    IsOver,
}

impl Game {
    fn open_in(&self, session: &Session, message: &Value) -> Opened {
        let state = || match self.server.session(&session.id, &Who::default()) {
            Some(ticket) => wire::Session::Open(ticket.peer),
            None => wire::Session::Dead,
        };
        let bare = HttpBare { heads: Heads::default(), session: &state };
        self.server.open(message.to_string().into_bytes(), Bare::Http(bare))
    }

    pub(super) fn initialize(&mut self, dice: &mut Dice<'_>) {
        if self.sessions.len() >= 6 {
            return;
        }
        let message = handshake(dice);
        let bare = HttpBare { heads: Heads::default(), session: &|| wire::Session::None };
        let Opened::Request(request) = self.server.open(message.to_string().into_bytes(), Bare::Http(bare))
        else {
            panic!("a handshake is a request");
        };
        let Begun::Welcome { body, session: id } = self.server.begin(request, &Who::default(), Line::Alone)
        else {
            panic!("a handshake over HTTP makes a session");
        };
        assert_eq!(read(&body)["result"]["protocolVersion"], message["params"]["protocolVersion"]);
        let ticket = self.server.session(&id, &Who::default()).expect("a new session is alive");
        let (streams, questions, calls) = (BTreeMap::new(), Vec::new(), Vec::new());
        self.sessions.push(Session { id, ticket, ended: false, streams, questions, calls });
    }

    /// As a POST does it: at once if possible, else into a stream that the response reads.
    pub(super) fn call_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let more = if dice.once_in(6) { json!({"task": {"ttl": 60_000}}) } else { Value::Null };
        let (n, id, message) = self.request(dice, more);
        match self.open_in(&self.sessions[at], &message) {
            Opened::Request(request) => {
                let line = Line::Session(self.sessions[at].ticket);
                match self.server.begin(request, &Who::default(), line) {
                    Begun::Call(serving) => self.flow(at, Flow::One(serving), &[(n, id)]),
                    Begun::Ready { body, .. } => assert_eq!(read(&body)["id"], id),
                    Begun::Welcome { .. } | Begun::Listen(_) => panic!("a call is no handshake"),
                }
            }
            Opened::Refused(refusal) => {
                assert!(
                    refusal.status == 404
                        && self.server.session(&self.sessions[at].id, &Who::default()).is_none()
                );
            }
            _ => panic!("a call is a request"),
        }
    }

    pub(super) fn batch_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let (first, one, mut a) = self.request(dice, Value::Null);
        let (second, _, mut b) = self.request(dice, Value::Null);
        let ids = [(first, 10 + one), (second, 20 + one)];
        (a["id"], b["id"]) = (ids[0].1.into(), ids[1].1.into());
        if let Opened::Batch(batch) = self.open_in(&self.sessions[at], &json!([a, b])) {
            let line = Line::Session(self.sessions[at].ticket);
            let flow = self.server.begin_batch(batch, &Who::default(), &line).expect("something to answer");
            self.flow(at, flow, &ids);
        }
    }

    fn flow(&mut self, at: usize, mut flow: Flow, calls: &[(u64, u64)]) {
        let first = match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Out::Final { body, .. }) => {
                return calls.iter().for_each(|(n, _)| self.answer(*n, &body));
            }
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        };
        let Ok(live) = self.server.live(&self.sessions[at].ticket, &Who::default()) else { return };
        let stream = flow.into_stream(&live, first);
        let session = &mut self.sessions[at];
        session.calls.extend(calls);
        let calls = calls.iter().map(|(n, _)| *n).collect();
        let old = session.streams.insert(stream, Seen { calls, ..Seen::default() });
        assert!(old.is_none(), "a stream's number is used once");
        let attached = Streams::attach(&live, stream, Some(0)).expect("a new stream can be read");
        self.readers.push(Reader { session: at, attached, last: 0 });
    }

    fn session(&self, dice: &mut Dice<'_>) -> Option<usize> {
        (!self.sessions.is_empty()).then(|| dice.below(self.sessions.len()))
    }

    pub(super) fn read(&mut self, dice: &mut Dice<'_>) {
        if self.readers.is_empty() {
            return;
        }
        let at = dice.below(self.readers.len());
        let mut reader = self.readers.swap_remove(at);
        if self.drain(&mut reader) == Then::GoesOn {
            self.readers.push(reader);
        }
    }

    /// Reads what there is, as a response does.
    pub(super) fn drain(&mut self, reader: &mut Reader) -> Then {
        let mut cx = Context::from_waker(Waker::noop());
        if reader.attached.stream() == GET_STREAM {
            let live = reader.attached.live();
            while let Poll::Ready(Some(News::Change(change))) = live.watch.poll_next(&mut cx) {
                live.streams.notice(GET_STREAM, shape::change(&change, None));
            }
        }
        loop {
            let part = match reader.attached.poll_next(&mut cx) {
                Poll::Pending => return Then::GoesOn,
                Poll::Ready(None) => return Then::IsOver,
                Poll::Ready(Some(part)) => part,
            };
            let (id, body, is_answer) = match part {
                Part::Pause { .. } => return Then::IsOver,
                Part::Message { id, body } => (id, body, false),
                Part::Answer { id, body, .. } => (id, body, true),
            };
            assert_eq!(id.stream, reader.attached.stream());
            assert!(id.event > reader.last, "events come in order");
            reader.last = id.event;
            let session = &mut self.sessions[reader.session];
            let seen = session.streams.entry(id.stream).or_default();
            if let Some(before) = seen.events.insert(id.event, body.to_vec()) {
                assert_eq!(before, body.to_vec(), "one number, one event");
                continue;
            }
            let message = read(&body);
            if is_answer {
                seen.answers += 1;
                assert_eq!(seen.answers, 1, "a stream has one answer");
                for n in seen.calls.clone() {
                    self.answer(n, &body);
                }
            } else if let (Some(id), true) = (message["id"].as_u64(), message["method"].is_string()) {
                session.questions.push(id);
            }
        }
    }

    /// GET, with any `Last-Event-ID` or none.
    pub(super) fn resume(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let session = &self.sessions[at];
        let Some(ticket) = self.server.session(&session.id, &Who::default()) else { return };
        let Ok(live) = self.server.live(&ticket, &Who::default()) else { return };
        let known: Vec<u32> = session.streams.keys().copied().collect();
        let (stream, after) = match dice.below(8) {
            0 => (u32::from_be_bytes([dice.byte(), 0, 0, dice.byte()]), Some(u64::from(dice.byte()) << 56)),
            1 => (GET_STREAM, None),
            _ if known.is_empty() => (GET_STREAM, None),
            way => {
                let stream = known[dice.below(known.len())];
                let last = session.streams[&stream].events.keys().next_back().copied().unwrap_or(0);
                // Mostly from where it was left, sometimes again from further back.
                (stream, Some(if way == 2 { last.saturating_sub(2) } else { last }))
            }
        };
        if let Some(attached) = Streams::attach(&live, stream, after) {
            let last = attached.start().event;
            self.readers.push(Reader { session: at, attached, last });
        }
    }

    pub(super) fn cancel_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let id = dice.below(5) as u64;
        let message = cancelled(id);
        let Opened::Notice(Notice::Cancelled(named)) = self.open_in(&self.sessions[at], &message) else {
            return;
        };
        let Some(live) = self.server.peek(&self.sessions[at].ticket) else { return };
        let calls = self.sessions[at].calls.clone();
        self.cancel(&live, &named, &calls, id);
    }

    pub(super) fn answer_in_session(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let message = reply(dice, &mut self.sessions[at].questions);
        if let Opened::Answer { id, answer } = self.open_in(&self.sessions[at], &message)
            && let Some(live) = self.server.peek(&self.sessions[at].ticket)
        {
            live.answered(id, answer);
        }
    }

    pub(super) async fn delete(&mut self, dice: &mut Dice<'_>) {
        let Some(at) = self.session(dice) else { return };
        let session = &mut self.sessions[at];
        // What is too old cannot be ended any more; it is swept when its room is needed.
        let Some(ticket) = self.server.session(&session.id, &Who::default()) else { return };
        self.server.end_session(&ticket);
        session.ended = true;
        assert!(self.server.session(&session.id, &Who::default()).is_none(), "ended for good");
        settle().await;
        assert!(self.server.peek(&session.ticket).is_none());
        for (n, _) in &self.sessions[at].calls {
            assert!(!self.works(*n), "call {n} outlives its session");
        }
    }

    /// Takes up every stream where it was left, as often as it sends its reader away.
    pub(super) fn read_on(&mut self) {
        for at in 0..self.sessions.len() {
            let Some(live) = self.server.peek(&self.sessions[at].ticket) else { continue };
            let streams: Vec<u32> = self.sessions[at].streams.keys().copied().collect();
            for stream in streams {
                for _ in 0..10 {
                    let seen = &self.sessions[at].streams[&stream];
                    let last = seen.events.keys().next_back().copied().unwrap_or(0);
                    let Some(attached) = Streams::attach(&live, stream, Some(last)) else { break };
                    if self.drain(&mut Reader { session: at, attached, last }) == Then::GoesOn {
                        break;
                    }
                }
                let is_there = self.is_bounded(&live, stream);
                let seen = &self.sessions[at].streams[&stream];
                let is_cancelled = seen.calls.iter().any(|n| self.cancelled.contains(n));
                if is_there && stream != GET_STREAM && !is_cancelled {
                    assert_eq!(seen.answers, 1, "the calls {:?} have no answer", seen.calls);
                }
            }
        }
    }

    /// A stream keeps no more notifications than it may. `false` if it is gone.
    fn is_bounded(&self, live: &Arc<Live>, stream: u32) -> bool {
        let Some(mut attached) = Streams::attach(live, stream, Some(0)) else { return false };
        let (mut notices, mut bytes) = (0, 0);
        while let Poll::Ready(Some(part)) = attached.poll_next(&mut Context::from_waker(Waker::noop())) {
            if let Part::Message { body, .. } = part
                && read(&body)["id"].is_null()
            {
                notices += 1;
                bytes += body.len();
            }
        }
        let limits = &self.server.limits;
        assert!(notices <= limits.stream_events_max && bytes <= limits.stream_bytes_max);
        true
    }

    /// What a call logged is what its stream showed: all of it if the call came to its end.
    pub(super) fn nothing_is_lost(&self) {
        let notes = self.script.notes();
        for session in self.sessions.iter().filter(|session| !session.ended) {
            for seen in session.streams.values() {
                let [n] = seen.calls[..] else { continue };
                let shown: Vec<u64> = seen
                    .events
                    .values()
                    .map(|body| read(body))
                    .filter_map(|message| message["params"]["data"]["i"].as_u64())
                    .collect();
                let said = notes.said.get(&n).cloned().unwrap_or_default();
                assert!(said.starts_with(&shown), "call {n} said {said:?}, and its stream shows {shown:?}");
                if seen.answers == 1 && !self.is_task(seen) {
                    assert_eq!(said, shown, "call {n} was answered, and something is missing before that");
                }
            }
        }
    }

    /// What a task says after its call was answered goes nowhere.
    fn is_task(&self, seen: &Seen) -> bool {
        seen.events.values().any(|body| read(body)["result"]["task"].is_object())
    }
}
