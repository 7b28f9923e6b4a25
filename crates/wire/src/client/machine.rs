//! The machine itself: what was asked, what is under way, what came back.

use std::collections::{BTreeMap, VecDeque};

use call::Level;
use json::{Json, Node, scan};

use super::incoming::{Incoming, messages};
use super::lists::{Pages, Turned};
use super::mirror::Mirror;
use super::outgoing::{self, Card, Extras};
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
    /// How often the server has been greeted.
    pub(super) epoch: u32,
    pub(super) level: Option<Level>,
    pub(super) next: u64,
    pub(super) calls: BTreeMap<Ticket, Pending>,
    pub(super) ids: BTreeMap<u64, Ticket>,
    pub(super) asks: BTreeMap<AskId, OpenAsk>,
    pub(super) mirrors: BTreeMap<String, Mirror>,
    /// The exchange of the stream that belongs to no request.
    pub(super) stream: Option<u64>,
    pub(super) stream_resumes: u32,
    pub(super) out: VecDeque<Do>,
    pub(super) events: VecDeque<Event>,
}

/// A request that somebody waits for.
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) goes: Goes,
    /// The message under way; none while it waits for the server to be ready, or for answers.
    pub(super) id: Option<u64>,
    pub(super) deadline: Option<u64>,
    pub(super) epoch: u32,
    pub(super) round: u32,
    pub(super) resumes: u32,
    /// Whether it has been sent again after the tools were read anew.
    pub(super) refreshed: bool,
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
            epoch: 0,
            level: None,
            next: 1,
            calls: BTreeMap::new(),
            ids: BTreeMap::new(),
            asks: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            stream: None,
            stream_resumes: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // What goes out.

    /// Asks for something; it is sent as soon as the server is ready.
    pub fn call(&mut self, call: Call, now: u64) -> Ticket {
        self.begin(call, Goes::Once, now)
    }

    /// Reads a whole list.
    pub fn list(&mut self, list: List, timeout_ms: Option<u64>, now: u64) -> Ticket {
        let call = Call { timeout_ms, ..Call::new(list.method(), Json::object(|_| ())) };
        self.begin(call, Goes::Pages(list, Pages::default()), now)
    }

    /// Asks to be told of changes until it is cancelled.
    pub fn listen(&mut self, filter: &Filter, now: u64) -> Ticket {
        let params = Json::object(|params| {
            params.object("notifications", |out| filter.write(out));
        });
        self.begin(Call::new(Method::Listen, params), Goes::Listen, now)
    }

    /// Asks whether anybody is there.
    pub fn ping(&mut self, timeout_ms: Option<u64>, now: u64) -> Ticket {
        let method = if self.version.has(Feature::Ping) { Method::Ping } else { Method::Discover };
        self.begin(Call { timeout_ms, ..Call::new(method, Json::object(|_| ())) }, Goes::Once, now)
    }

    /// The mildest log message that is wanted from now on.
    pub fn set_level(&mut self, level: Level, now: u64) {
        self.level = Some(level);
        if self.phase == Phase::Open && self.version.has(Feature::SetLevel) && self.offers("logging") {
            let params = Json::object(|params| {
                params.str("level", level.as_str());
            });
            self.begin(Call::new(Method::SetLevel, params), Goes::Quietly, now);
        }
    }

    /// Whether the server declared something.
    pub fn offers(&self, capability: &str) -> bool {
        let Some(greeting) = &self.greeting else { return false };
        greeting.capabilities.doc().root().get(capability).is_some_and(|it| it.is_object())
    }

    pub(super) fn begin(&mut self, call: Call, goes: Goes, now: u64) -> Ticket {
        let ticket = Ticket(self.next_id());
        if self.calls.len() >= self.terms.calls_max {
            self.events.push_back(Event::Failed { ticket, why: Failure::Busy });
            return ticket;
        }
        let deadline = call.timeout_ms.map(|ms| now.saturating_add(ms));
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
            round_state,
        };
        self.calls.insert(ticket, pending);
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
        let method = pending.call.method;
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
            Goes::Once | Goes::Listen | Goes::Quietly => None,
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
            pending.round_state = Round::default();
        }
        self.ids.insert(id, ticket);
        self.send(id, body, method, &params, self.version);
    }

    /// In the handshake era changes are told unasked, except those of single resources.
    pub(super) fn subscribe(&mut self, ticket: Ticket) {
        let Some(pending) = self.calls.get(&ticket) else { return };
        let doc = pending.call.params.doc();
        let granted = Filter::read(doc.root().get("notifications")).unwrap_or_default();
        self.each_uri(&granted, Method::Subscribe);
        if let Some(pending) = self.calls.get_mut(&ticket) {
            // It is under way, and nothing will answer it.
            pending.id = Some(0);
        }
        self.events.push_back(Event::Listening { ticket, granted });
    }

    pub(super) fn each_uri(&mut self, filter: &Filter, method: Method) {
        for uri in &filter.uris {
            let params = Json::object(|params| {
                params.str("uri", uri);
            });
            self.begin(Call::new(method, params), Goes::Quietly, 0);
        }
    }

    /// Gives up waiting. Whatever still comes of it is dropped.
    pub fn cancel(&mut self, ticket: Ticket) {
        let Some(pending) = self.drop_call(ticket) else { return };
        self.events.push_back(Event::Failed { ticket, why: Failure::Cancelled });
        self.withdraw(&pending, "nobody waits for it any more");
    }

    pub(super) fn withdraw(&mut self, pending: &Pending, why: &str) {
        if matches!(pending.goes, Goes::Listen) && !self.version.has(Feature::Listen) {
            let doc = pending.call.params.doc();
            let filter = Filter::read(doc.root().get("notifications")).unwrap_or_default();
            self.each_uri(&filter, Method::Unsubscribe);
            return;
        }
        let Some(id) = pending.id else { return };
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
                    None => self.events.push_back(Event::Odd(format!("skipped what cannot be read: {what}"))),
                }
                return;
            }
        };
        for message in messages(&doc) {
            match Incoming::read(message) {
                Ok(incoming) => self.take_in(incoming, exchange, now),
                Err(why) => self.events.push_back(Event::Odd(format!("skipped {why}: `{beginning}`"))),
            }
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
                    (Some(id), _) => self.answered(id, answer),
                    (None, _) => match answer {
                        Ok(_) => self.odd("an answer to nothing that was asked"),
                        Err(told) => {
                            self.odd(&format!("the server reports: {} ({})", told.message, told.code))
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
            Goes::Pages(list, pages) => (*list, pages.turn(*list, result), None),
            Goes::Refresh { of, pages } => (List::Tools, pages.turn(List::Tools, result), Some(*of)),
        };
        match turned {
            (_, Turned::Next, _) => self.send_pending(ticket),
            (list, Turned::Last(items), of) => {
                self.drop_call(ticket);
                self.listed(ticket, list, items);
                if let Some(of) = of {
                    // Nobody but ourselves asked for this list.
                    self.events.pop_back();
                    self.send_pending(of);
                }
            }
            (_, Turned::Wrong(why), of) => {
                self.drop_call(ticket);
                self.list_failed(of.unwrap_or(ticket), why);
            }
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
        self.begin(call, Goes::Refresh { of: ticket, pages: Pages::default() }, 0);
    }

    // What the driver reports.

    /// An exchange came to nothing.
    pub fn failed(&mut self, exchange: u64, why: Failure) {
        match self.phase {
            Phase::Probing { id, .. } | Phase::Greeting { id, .. } if id == exchange => self.over(why),
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
        if self.phase != Phase::Over {
            self.over(Failure::Closed(why.to_owned()));
        }
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
        match self.drop_call(ticket).map(|pending| pending.goes) {
            None => {}
            Some(Goes::Quietly) => self.odd(&format!("a request of our own failed: {why}")),
            Some(Goes::Refresh { of, .. }) => self.fail(of, why),
            Some(Goes::Once | Goes::Pages(..) | Goes::Listen) => {
                self.events.push_back(Event::Failed { ticket, why });
            }
        }
    }

    pub(super) fn drop_call(&mut self, ticket: Ticket) -> Option<Pending> {
        let pending = self.calls.remove(&ticket)?;
        if let Some(id) = pending.id {
            self.ids.remove(&id);
        }
        for ask in pending.round_state.open.keys() {
            if self.asks.remove(ask).is_some() {
                self.events.push_back(Event::Withdrawn(*ask));
            }
        }
        Some(pending)
    }

    // The clock.

    /// When [`tick`](Self::tick) has something to do.
    pub fn deadline(&self) -> Option<u64> {
        let opening = match self.phase {
            Phase::Probing { until, .. } | Phase::Greeting { until, .. } => Some(until),
            Phase::Fresh | Phase::Open | Phase::Over => None,
        };
        self.calls.values().filter_map(|pending| pending.deadline).chain(opening).min()
    }

    pub fn tick(&mut self, now: u64) {
        match self.phase {
            // 2026-07-28, stdio: "does not respond within a reasonable timeout: the server is legacy".
            Phase::Probing { until, .. } if until <= now && self.link == Link::Pipe => {
                self.greet(Version::NEWEST_WITH_HANDSHAKE, now);
            }
            Phase::Probing { until, .. } | Phase::Greeting { until, .. } if until <= now => {
                self.over(Failure::Timeout { after_ms: self.terms.handshake_ms });
            }
            Phase::Probing { .. } | Phase::Greeting { .. } | Phase::Fresh | Phase::Open | Phase::Over => {}
        }
        let is_due = |pending: &Pending| pending.deadline.is_some_and(|deadline| deadline <= now);
        let due: Vec<Ticket> =
            self.calls.iter().filter(|(_, pending)| is_due(pending)).map(|(ticket, _)| *ticket).collect();
        for ticket in due {
            let Some(pending) = self.drop_call(ticket) else { continue };
            let after_ms = pending.call.timeout_ms.unwrap_or_default();
            self.events.push_back(Event::Failed { ticket, why: Failure::Timeout { after_ms } });
            self.withdraw(&pending, "it took too long");
        }
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

impl Pending {
    /// Whether it has not been sent, and no answer is waited for first.
    pub(super) fn is_waiting(&self) -> bool {
        self.id.is_none() && self.round_state.open.is_empty()
    }
}
