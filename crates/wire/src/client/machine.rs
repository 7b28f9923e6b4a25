//! The machine itself: what was asked, what is under way, what came back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use call::Level;
use json::{Json, Node, scan};

use super::incoming::{Incoming, messages};
use super::lists::{Pages, Turned};
use super::mirror::Mirror;
use super::outgoing::{self, Card, Extras};
use super::over_http::Place;
use super::questions::{OpenAsk, Round};
use super::words::{Call, Do, Event, Failure, Greeting, Link, Terms, excerpt};
use super::{AskId, Ticket, Told};
use crate::code::Code;
use crate::method::Method;
use crate::params::{Filter, List};
use crate::version::{Feature, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Fresh,
    Probing { id: u64, version: Version, until: u64 },
    Greeting { id: u64, requested: Version, until: u64 },
    Open,
    Over,
}

pub struct Client {
    pub(super) terms: Terms,
    pub(super) link: Link,
    pub(super) phase: Phase,
    pub(super) version: Version,
    pub(super) greeting: Option<Greeting>,
    pub(super) session: Option<String>,
    pub(super) probed_twice: bool,
    /// A probe that was given up as unanswered, while the handshake in its place is under way.
    pub(super) late_probe: Option<(u64, Version)>,
    /// How often the server has been greeted.
    pub(super) epoch: u32,
    pub(super) level: Option<Level>,
    pub(super) next: u64,
    /// The latest time that was heard of.
    pub(super) clock: u64,
    /// The latest on a pipe that could not be read, and the next id when it came.
    pub(super) unreadable: Option<(u64, String)>,
    /// The latest error on a pipe that belongs to no request, while the server has not been greeted.
    pub(super) complaint: Option<Told>,
    pub(super) calls: BTreeMap<Ticket, Pending>,
    pub(super) ids: BTreeMap<u64, Ticket>,
    /// The deadlines of all calls, the next one first: it is asked for with every frame.
    due: BTreeSet<(u64, Ticket)>,
    pub(super) asks: BTreeMap<AskId, OpenAsk>,
    pub(super) mirrors: BTreeMap<String, Mirror>,
    /// The exchange of the stream that belongs to no request.
    pub(super) stream: Option<u64>,
    pub(super) stream_resumes: u32,
    pub(super) stream_place: Place,
    pub(super) out: VecDeque<Do>,
    pub(super) events: VecDeque<Event>,
}

/// More than this in one frame is no batch of answers.
const MESSAGES_MAX: usize = 4096;

/// A request that somebody waits for.
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) goes: Goes,
    /// The message under way; none while it waits for the server to be ready, or for answers.
    pub(super) id: Option<u64>,
    deadline: Option<u64>,
    pub(super) epoch: u32,
    pub(super) round: u32,
    pub(super) resumes: u32,
    /// Whether it has been sent again after the tools were read anew.
    pub(super) refreshed: bool,
    /// Whether its stream was taken up again: the server has begun with it.
    pub(super) resumed: bool,
    pub(super) place: Place,
    /// The progress of the message under way.
    pub(super) progress: Option<f64>,
    pub(super) round_state: Round,
}

pub(super) enum Goes {
    Once,
    Pages(List, Pages),
    Listen,
    /// The tools are read again for a call that had the wrong headers.
    Refresh {
        of: Ticket,
        pages: Pages,
    },
    /// One resource of a subscription in the handshake era.
    Subscribe {
        of: Ticket,
        uri: String,
    },
    /// Nobody waits; only a failure is told.
    Quietly,
}

impl Client {
    pub fn new(terms: Terms, link: Link) -> Self {
        Self {
            terms,
            link,
            phase: Phase::Fresh,
            version: Version::NEWEST,
            greeting: None,
            session: None,
            probed_twice: false,
            late_probe: None,
            epoch: 0,
            level: None,
            next: 1,
            clock: 0,
            unreadable: None,
            complaint: None,
            calls: BTreeMap::new(),
            ids: BTreeMap::new(),
            due: BTreeSet::new(),
            asks: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            stream: None,
            stream_resumes: 0,
            stream_place: Place::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // What goes out.

    /// Asks for something; it is sent as soon as the server is ready.
    pub fn call(&mut self, call: Call, now: u64) -> Ticket {
        self.heard(now);
        self.begin(call, Goes::Once)
    }

    /// Reads a whole list.
    pub fn list(&mut self, list: List, timeout_ms: Option<u64>, now: u64) -> Ticket {
        self.heard(now);
        let call = Call { timeout_ms, ..Call::new(list.method(), Json::object(|_| ())) };
        self.begin(call, Goes::Pages(list, Pages::default()))
    }

    /// Asks to be told of changes until it is cancelled.
    pub fn listen(&mut self, filter: &Filter, now: u64) -> Ticket {
        self.heard(now);
        self.begin(Call::new(Method::Listen, of_filter(filter)), Goes::Listen)
    }

    /// Asks whether anybody is there.
    pub fn ping(&mut self, timeout_ms: Option<u64>, now: u64) -> Ticket {
        self.heard(now);
        self.begin(Call { timeout_ms, ..Call::new(Method::Ping, Json::object(|_| ())) }, Goes::Once)
    }

    /// The mildest log message that is wanted from now on.
    pub fn set_level(&mut self, level: Level, now: u64) {
        self.heard(now);
        self.level = Some(level);
        if self.phase == Phase::Open {
            self.send_level();
        }
    }

    /// In the handshake era the level is a request of its own.
    pub(super) fn send_level(&mut self) {
        if let Some(level) = self.level
            && self.version.has(Feature::SetLevel)
            && self.offers("logging")
        {
            let params = Json::object(|params| {
                params.str("level", level.as_str());
            });
            self.begin(Call::new(Method::SetLevel, params), Goes::Quietly);
        }
    }

    /// Whether the server declared something.
    pub fn offers(&self, capability: &str) -> bool {
        let Some(greeting) = &self.greeting else { return false };
        greeting.capabilities.doc().root().get(capability).is_some_and(|it| it.is_object())
    }

    pub(super) fn begin(&mut self, call: Call, goes: Goes) -> Ticket {
        let ticket = Ticket(self.next_id());
        if self.calls.len() >= self.terms.calls_max {
            self.tell_failed(ticket, &goes, Failure::Busy);
            return ticket;
        }
        let after_ms = match goes {
            Goes::Once | Goes::Pages(..) | Goes::Listen => call.timeout_ms,
            // Whoever set it going is not waiting for it, so nobody else would ever give it up.
            Goes::Refresh { .. } | Goes::Subscribe { .. } | Goes::Quietly => Some(self.terms.handshake_ms),
        };
        let deadline = after_ms.map(|ms| self.clock.saturating_add(ms));
        let round_state = Round::default();
        let pending = Pending {
            call,
            goes,
            id: None,
            deadline,
            epoch: self.epoch,
            round: 0,
            resumes: 0,
            refreshed: false,
            resumed: false,
            place: Place::default(),
            progress: None,
            round_state,
        };
        self.calls.insert(ticket, pending);
        self.due.extend(deadline.map(|deadline| (deadline, ticket)));
        match self.phase {
            Phase::Open => self.send_pending(ticket),
            Phase::Over => self.fail(ticket, Failure::Closed("the connection is closed".to_owned())),
            Phase::Fresh | Phase::Probing { .. } | Phase::Greeting { .. } => {}
        }
        ticket
    }

    pub(super) fn send_waiting(&mut self) {
        let waiting: Vec<Ticket> =
            self.calls.iter().filter(|(_, call)| call.is_waiting()).map(|(ticket, _)| *ticket).collect();
        for ticket in waiting {
            self.send_pending(ticket);
        }
    }

    /// Sends a request, its next page or its next round.
    pub(super) fn send_pending(&mut self, ticket: Ticket) {
        let Some(pending) = self.calls.get(&ticket) else { return };
        let method = match pending.call.method {
            // 2026-07-28 has no ping; this is answered by every server too.
            Method::Ping if !self.version.has(Feature::Ping) => Method::Discover,
            method => method,
        };
        if method == Method::Listen && !self.version.has(Feature::Listen) {
            return self.subscribe(ticket);
        }
        if Method::find(method.as_str(), self.version).is_none() {
            let why = format!("protocol {} has no `{}`", self.version.as_str(), method.as_str());
            return self.fail(ticket, Failure::NoVersion(why));
        }
        let id = self.next_id();
        let Some(pending) = self.calls.get(&ticket) else { return };
        let cursor = match &pending.goes {
            Goes::Pages(_, pages) | Goes::Refresh { pages, .. } => pages.cursor.as_deref(),
            Goes::Once | Goes::Listen | Goes::Subscribe { .. } | Goes::Quietly => None,
        };
        let extras = Extras {
            progress: pending.call.progress,
            cursor,
            answers: &pending.round_state.answers,
            state: pending.round_state.state.as_ref(),
        };
        let params = pending.call.params.clone();
        let body = outgoing::request(id, method.as_str(), &params, &extras, &self.card(), self.version);
        let epoch = self.epoch;
        if let Some(pending) = self.calls.get_mut(&ticket) {
            pending.id = Some(id);
            pending.epoch = epoch;
            pending.resumes = 0;
            pending.resumed = false;
            pending.place = Place::default();
            pending.progress = None;
            pending.round_state = Round::default();
        }
        self.ids.insert(id, ticket);
        self.send(id, body, method, &params, self.version);
    }

    /// In the handshake era changes are told unasked, except those of single resources.
    pub(super) fn subscribe(&mut self, ticket: Ticket) {
        let Some(pending) = self.calls.get_mut(&ticket) else { return };
        // It is under way, and nothing will answer it.
        pending.id = Some(0);
        let wanted = pending.filter();
        for uri in wanted.uris {
            let call = Call::new(Method::Subscribe, of_uri(&uri));
            self.begin(call, Goes::Subscribe { of: ticket, uri });
        }
        self.subscribed(ticket);
    }

    /// A subscription stands when each of its resources has been answered for: whoever looks at one after that
    /// misses nothing.
    fn subscribed(&mut self, ticket: Ticket) {
        let is_part = |pending: &Pending| matches!(pending.goes, Goes::Subscribe { of, .. } if of == ticket);
        if self.calls.values().any(is_part) {
            return;
        }
        if let Some(pending) = self.calls.get(&ticket).filter(|pending| pending.id.is_some()) {
            let granted = pending.filter();
            self.events.push_back(Event::Listening { ticket, granted });
        }
    }

    /// What the server will not tell of is no part of the subscription.
    fn not_subscribed(&mut self, ticket: Ticket, uri: &str) {
        if let Some(pending) = self.calls.get_mut(&ticket) {
            let mut filter = pending.filter();
            filter.uris.retain(|wanted| wanted != uri);
            pending.call.params = of_filter(&filter);
        }
        self.subscribed(ticket);
    }

    /// Gives up waiting. Whatever still comes of it is dropped.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.give_up(ticket, Failure::Cancelled, "nobody waits for it any more");
    }

    fn give_up(&mut self, ticket: Ticket, why: Failure, reason: &str) {
        let Some(pending) = self.drop_call(ticket) else { return };
        self.tell_failed(ticket, &pending.goes, why);
        self.withdraw(&pending, reason);
    }

    /// Tells the server that nobody waits, if it has heard of it at all.
    fn withdraw(&mut self, pending: &Pending, why: &str) {
        let Some(id) = pending.id.filter(|_| self.phase == Phase::Open) else { return };
        if matches!(pending.goes, Goes::Listen) && !self.version.has(Feature::Listen) {
            for uri in pending.filter().uris {
                self.begin(Call::new(Method::Unsubscribe, of_uri(&uri)), Goes::Quietly);
            }
            return;
        }
        // 2026-07-28, Cancellation: over HTTP, closing the stream is the signal.
        if self.link == Link::Pipe || !self.version.has(Feature::Envelope) {
            self.notify(outgoing::cancelled(id, why));
        }
        if self.link == Link::Http {
            self.out.push_back(Do::Abandon(id));
        }
    }

    // What comes in.

    /// A frame from the server. Over HTTP it came back in an exchange.
    pub fn receive(&mut self, frame: Vec<u8>, exchange: Option<u64>, now: u64) {
        self.heard(now);
        if self.phase == Phase::Over {
            return;
        }
        let beginning = excerpt(&frame);
        let doc = match scan(frame, &self.terms.scan) {
            Ok(doc) => doc,
            Err(bad) => {
                let what = format!("{bad}: `{beginning}`");
                match exchange.filter(|id| self.is_awaited(*id)) {
                    Some(id) => {
                        self.failed(id, Failure::NotMcp(format!("the answer cannot be read: {what}")))
                    }
                    // Some servers print what they should log.
                    None => {
                        self.odd(&format!("skipped what cannot be read: {what}"));
                        self.not_read(&what);
                    }
                }
                return;
            }
        };
        let mut skipped = None;
        for (nth, message) in messages(&doc).enumerate() {
            match Incoming::read(message) {
                _ if self.phase == Phase::Over => break,
                _ if nth >= MESSAGES_MAX => skipped = Some("more messages at once than make sense"),
                Ok(incoming) => self.take_in(incoming, exchange, now),
                Err(why) => skipped = Some(why),
            }
        }
        // Once for all of them: what comes in must not be outgrown by what is said about it.
        if let Some(why) = skipped {
            self.passed_over(&format!("{why}: `{beginning}`"));
        }
    }

    pub(super) fn take_in(&mut self, incoming: Incoming<'_>, exchange: Option<u64>, now: u64) {
        match incoming {
            Incoming::Answer { id, answer } => {
                // An error that belongs to no request, in the exchange of one, is about that.
                let id = id.or(exchange.filter(|_| answer.is_err()));
                match (id, self.phase) {
                    (Some(id), Phase::Probing { id: probe, version, .. }) if id == probe => {
                        self.probed(version, answer, now);
                    }
                    (Some(id), Phase::Greeting { id: greeting, requested, .. }) if id == greeting => {
                        self.greeted(requested, answer, now);
                    }
                    (Some(id), Phase::Greeting { .. }) if self.is_late_probe(id) => {
                        self.probed_late(answer, now);
                    }
                    (Some(id), _) => self.answered(id, answer),
                    (None, _) => match answer {
                        Ok(_) => self.odd("an answer to nothing that was asked"),
                        Err(told) => {
                            self.odd(&format!("the server reports: {} ({})", told.message, told.code));
                            // Not the end by itself: some say so of a probe, and take the handshake.
                            self.complaint = Some(told).filter(|_| self.is_opening());
                        }
                    },
                }
            }
            Incoming::Request { id, method, params } => self.requested(id, &method, params, exchange),
            Incoming::Notice { method, params } => self.noticed(&method, params),
        }
    }

    pub(super) fn odd(&mut self, what: &str) {
        self.events.push_back(Event::Odd(what.to_owned()));
    }

    pub(super) fn answered(&mut self, id: u64, answer: Result<Node<'_>, Told>) {
        // Late: cancelled, timed out, or answered twice.
        let Some(ticket) = self.ids.remove(&id) else { return };
        let Some(pending) = self.calls.get_mut(&ticket) else { return };
        pending.id = None;
        let result = match answer {
            Ok(result) if result.is_object() => result,
            Ok(_) => return self.fail(ticket, Failure::NotMcp("a result that is no object".to_owned())),
            Err(told) if told.code == Code::HeaderMismatch.number() && self.may_refresh(ticket) => {
                return self.refresh(ticket);
            }
            Err(told) => return self.fail(ticket, Failure::Told(told)),
        };
        let kind = result.get("resultType").filter(|_| self.version.has(Feature::ResultType));
        match kind.map(|kind| kind.str().unwrap_or_default()) {
            None => self.complete(ticket, result),
            Some(kind) if kind == "complete" => self.complete(ticket, result),
            Some(kind) if kind == "input_required" => self.input_required(ticket, result),
            // "Clients MUST treat an unrecognized resultType as invalid."
            Some(kind) => {
                let kind: String = kind.escape_debug().take(64).collect();
                self.fail(ticket, Failure::NotMcp(format!("a result of the unknown kind `{kind}`")));
            }
        }
    }

    pub(super) fn complete(&mut self, ticket: Ticket, result: Node<'_>) {
        let Some(pending) = self.calls.get_mut(&ticket) else { return };
        let turned = match &mut pending.goes {
            Goes::Once | Goes::Quietly | Goes::Listen => {
                let pending = self.drop_call(ticket);
                if !matches!(pending, Some(Pending { goes: Goes::Quietly, .. })) {
                    self.events.push_back(Event::Done { ticket, result: Json::from(result) });
                }
                return;
            }
            Goes::Subscribe { of, .. } => {
                let of = *of;
                self.drop_call(ticket);
                return self.subscribed(of);
            }
            Goes::Pages(list, pages) => (*list, pages.turn(*list, result), None),
            Goes::Refresh { of, pages } => (List::Tools, pages.turn(List::Tools, result), Some(*of)),
        };
        match turned {
            (_, Turned::Next, _) => self.send_pending(ticket),
            (list, Turned::Last(items), of) => {
                self.drop_call(ticket);
                let items = self.listed(list, items);
                match of {
                    None => self.events.push_back(Event::Listed { ticket, items }),
                    // Nobody but ourselves asked for this list.
                    Some(of) => self.send_pending(of),
                }
            }
            (_, Turned::Wrong(why), _) => self.fail(ticket, Failure::NotMcp(why)),
        }
    }

    /// 2026-07-28, Client Behavior: on a header mismatch, read the tools again and retry.
    pub(super) fn may_refresh(&self, ticket: Ticket) -> bool {
        let is_fresh_call =
            |pending: &Pending| pending.call.method == Method::ToolsCall && !pending.refreshed;
        self.link == Link::Http && self.calls.get(&ticket).is_some_and(is_fresh_call)
    }

    pub(super) fn refresh(&mut self, ticket: Ticket) {
        let Some(pending) = self.calls.get_mut(&ticket) else { return };
        pending.refreshed = true;
        let call = Call::new(Method::ToolsList, Json::object(|_| ()));
        self.begin(call, Goes::Refresh { of: ticket, pages: Pages::default() });
    }

    // What the driver reports.

    /// An exchange came to nothing.
    pub fn failed(&mut self, exchange: u64, why: Failure) {
        match self.phase {
            Phase::Over => {}
            Phase::Probing { id, .. } | Phase::Greeting { id, .. } if id == exchange => self.over(why),
            // The way back to a stream broke, not the stream.
            _ if matches!(why, Failure::Closed(_)) && self.was_resumed(exchange) => {
                self.stream_ended(exchange, None, None);
            }
            _ => match self.ids.remove(&exchange) {
                Some(ticket) => self.fail(ticket, why),
                None if self.stream == Some(exchange) => self.stream = None,
                None => self.odd(&format!("a notification was not taken: {why}")),
            },
        }
    }

    pub(super) fn is_awaited(&self, exchange: u64) -> bool {
        match self.phase {
            Phase::Probing { id, .. } | Phase::Greeting { id, .. } if id == exchange => true,
            _ => self.ids.contains_key(&exchange),
        }
    }

    /// The connection is gone.
    pub fn closed(&mut self, why: &str) {
        match self.complaint.take() {
            _ if self.phase == Phase::Over => {}
            // Who says why and hangs up has said it all.
            Some(told) if self.is_opening() && told.code == Code::Unauthorized.number() => {
                self.over(Failure::Told(told));
            }
            Some(told) if self.is_opening() => {
                let why = format!("{why}; before that it said: {} ({})", told.message, told.code);
                self.over(Failure::Closed(why));
            }
            Some(_) | None => self.over(Failure::Closed(why.to_owned())),
        }
    }

    fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. } | Phase::Greeting { .. })
    }

    pub(super) fn over(&mut self, why: Failure) {
        self.phase = Phase::Over;
        let tickets: Vec<Ticket> = self.calls.keys().copied().collect();
        for ticket in tickets {
            self.fail(ticket, why.clone());
        }
        let asks = std::mem::take(&mut self.asks);
        self.events.extend(asks.into_keys().map(Event::Withdrawn));
        self.events.push_back(Event::Over(why));
    }

    pub(super) fn fail(&mut self, ticket: Ticket, why: Failure) {
        if let Some(pending) = self.drop_call(ticket) {
            self.tell_failed(ticket, &pending.goes, why);
        }
    }

    /// Tells whoever waits for it, who may not be the one that it was begun for.
    fn tell_failed(&mut self, ticket: Ticket, goes: &Goes, why: Failure) {
        match goes {
            Goes::Quietly => self.odd(&format!("a request of our own failed: {why}")),
            Goes::Refresh { of, .. } => self.fail(*of, why),
            Goes::Subscribe { of, uri } => {
                self.odd(&format!("`{}` cannot be subscribed to: {why}", uri.escape_debug()));
                self.not_subscribed(*of, uri);
            }
            Goes::Once | Goes::Pages(..) | Goes::Listen => {
                self.events.push_back(Event::Failed { ticket, why });
            }
        }
    }

    pub(super) fn drop_call(&mut self, ticket: Ticket) -> Option<Pending> {
        let pending = self.calls.remove(&ticket)?;
        if let Some(id) = pending.id {
            self.ids.remove(&id);
        }
        if let Some(deadline) = pending.deadline {
            self.due.remove(&(deadline, ticket));
        }
        let asks = self.asks.extract_if(.., |_, ask| ask.of() == Some(ticket));
        self.events.extend(asks.map(|(id, _)| Event::Withdrawn(id)));
        Some(pending)
    }

    // The clock.

    /// When [`tick`](Self::tick) has something to do.
    pub fn deadline(&self) -> Option<u64> {
        let opening = match self.phase {
            Phase::Probing { until, .. } | Phase::Greeting { until, .. } => Some(until),
            Phase::Fresh | Phase::Open | Phase::Over => None,
        };
        let next = self.due.first().map(|(deadline, _)| *deadline);
        next.into_iter().chain(opening).min()
    }

    pub fn tick(&mut self, now: u64) {
        self.heard(now);
        match self.phase {
            // 2026-07-28, stdio: "does not respond within a reasonable timeout: the server is legacy".
            Phase::Probing { id, version, until } if until <= now && self.falls_back() => {
                self.late_probe = Some((id, version));
                self.greet(Version::NEWEST_WITH_HANDSHAKE, now);
            }
            Phase::Probing { until, .. } | Phase::Greeting { until, .. } if until <= now => {
                let unreadable = self.unreadable.take().map(|(_, what)| what);
                self.over(Failure::Timeout { after_ms: self.terms.handshake_ms, unreadable });
            }
            Phase::Probing { .. } | Phase::Greeting { .. } | Phase::Fresh | Phase::Open | Phase::Over => {}
        }
        let due: Vec<(u64, Ticket)> = self.due.iter().copied().take_while(|(at, _)| *at <= now).collect();
        for (at, ticket) in due {
            // While somebody is being asked, it is not the server that takes its time.
            if self.is_asked_about(ticket)
                && let Some(pending) = self.calls.get_mut(&ticket)
            {
                pending.deadline = pending.call.timeout_ms.map(|ms| now.saturating_add(ms));
                self.due.remove(&(at, ticket));
                self.due.extend(pending.deadline.map(|deadline| (deadline, ticket)));
                continue;
            }
            let asked_for = self.calls.get(&ticket).and_then(|pending| pending.call.timeout_ms);
            let after_ms = asked_for.unwrap_or(self.terms.handshake_ms);
            let unreadable = self.unreadable_since(ticket);
            self.give_up(ticket, Failure::Timeout { after_ms, unreadable }, "it took too long");
        }
    }

    /// It may have been the answer that somebody waits for.
    pub(super) fn not_read(&mut self, what: &str) {
        if self.link == Link::Pipe {
            self.unreadable = Some((self.next, what.to_owned()));
        }
    }

    /// What could not be read since a call was sent.
    fn unreadable_since(&self, ticket: Ticket) -> Option<String> {
        let sent = self.calls.get(&ticket)?.id?;
        let (next, what) = self.unreadable.as_ref()?;
        (sent < *next).then(|| what.clone())
    }

    /// Whether a question is open that a call may be waiting for. A server's own request does not say which.
    fn is_asked_about(&self, ticket: Ticket) -> bool {
        self.asks.values().any(|ask| match ask {
            OpenAsk::Request { .. } => true,
            OpenAsk::Input { of, .. } => *of == ticket,
        })
    }

    // For the driver.

    /// What is to be done next.
    pub fn take(&mut self) -> Option<Do> {
        self.out.pop_front()
    }

    /// Whether there is something to be done.
    pub fn has_todo(&self) -> bool {
        !self.out.is_empty()
    }

    /// What happened.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// What the server said of itself, once it did.
    pub fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_ref()
    }

    /// How many requests, ids under way, questions and deadlines it keeps: for those who test that it forgets them.
    #[doc(hidden)]
    pub fn table_sizes(&self) -> [usize; 4] {
        [self.calls.len(), self.ids.len(), self.asks.len(), self.due.len()]
    }

    pub(super) fn heard(&mut self, now: u64) {
        self.clock = self.clock.max(now);
    }

    pub(super) fn next_id(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }

    pub(super) fn card(&self) -> Card<'_> {
        Card {
            name: &self.terms.name,
            version: &self.terms.version,
            caps: self.terms.caps,
            level: self.level,
        }
    }
}

fn of_uri(uri: &str) -> Json {
    Json::object(|params| {
        params.str("uri", uri);
    })
}

fn of_filter(filter: &Filter) -> Json {
    Json::object(|params| {
        params.object("notifications", |out| filter.write(out));
    })
}

impl Pending {
    /// What a subscription is for.
    fn filter(&self) -> Filter {
        let doc = self.call.params.doc();
        Filter::read(doc.root().get("notifications")).unwrap_or_default()
    }

    /// Whether it has not been sent, and no answer is waited for first.
    pub(super) fn is_waiting(&self) -> bool {
        self.id.is_none() && self.round_state.open.is_empty()
    }
}
