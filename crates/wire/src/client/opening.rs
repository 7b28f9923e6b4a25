//! Which era a server is of, and the handshake where there is one.
//!
//! 2026-07-28, Versioning: a modern request first. What a modern server may answer makes it modern, whatever
//! else comes back is a server of the handshake era; over HTTP silence, 401, 403 and 5xx are no evidence at all.

use json::{Json, Node};

use super::machine::{Client, Goes, Pending, Phase};
use super::questions::OpenAsk;
use super::words::{Event, Failure, Greeting, Link, Speak};
use super::{Reply, Told, outgoing};
use crate::code::Code;
use crate::method::Method;
use crate::version::{Feature, Version};

impl Client {
    /// Sends the first message.
    pub fn start(&mut self, now: u64) {
        self.heard(now);
        match self.terms.speak {
            Speak::Any => self.probe(Version::NEWEST, now),
            Speak::Only(version) if version.has(Feature::Envelope) => self.probe(version, now),
            Speak::Only(version) => self.greet(version, now),
            Speak::Handshake => self.greet(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    fn probe(&mut self, version: Version, now: u64) {
        let id = self.next_id();
        let patience = if self.falls_back() { self.terms.probe_ms } else { self.terms.handshake_ms };
        self.phase = Phase::Probing { id, version, until: now.saturating_add(patience) };
        self.send_opening(id, Method::Discover, &Json::object(|_| ()), version);
    }

    /// What is sent while nothing else can be.
    fn send_opening(&mut self, id: u64, method: Method, params: &Json, version: Version) {
        let extras = outgoing::Extras::default();
        let body = outgoing::request(id, method.as_str(), params, &extras, &self.card(), version);
        self.send(id, body, method, params, version);
    }

    /// Whether silence is answered with a handshake: over HTTP it says nothing, not every client may, and
    /// not every server would.
    pub(super) fn falls_back(&self) -> bool {
        self.link == Link::Pipe && self.may_speak(Version::NEWEST_WITH_HANDSHAKE) && !self.probed_twice
    }

    pub(super) fn greet(&mut self, requested: Version, now: u64) {
        if !self.may_speak(requested) {
            let only = match self.terms.speak {
                Speak::Only(version) => version.as_str(),
                Speak::Any | Speak::Handshake => "a newer version",
            };
            let why = format!("the server is of the time before {only}, which is all that was asked for");
            self.over(Failure::NoVersion(why));
            return;
        }
        let id = self.next_id();
        let until = now.saturating_add(self.terms.handshake_ms);
        self.session = None;
        self.phase = Phase::Greeting { id, requested, until };
        // Questions count from one again in the next session: an answer would be taken for another's.
        let asks = self.asks.extract_if(.., |_, ask| matches!(ask, OpenAsk::Request { .. }));
        self.events.extend(asks.map(|(id, _)| Event::Withdrawn(id)));
        // What was subscribed to is forgotten with the session, and will be subscribed to again.
        let is_part = |pending: &Pending| matches!(pending.goes, Goes::Subscribe { .. });
        let parts = self.calls.iter().filter(|(_, pending)| is_part(pending)).map(|(ticket, _)| *ticket);
        for ticket in parts.collect::<Vec<_>>() {
            self.drop_call(ticket);
        }
        for pending in self.calls.values_mut().filter(|pending| matches!(pending.goes, Goes::Listen)) {
            pending.id = None;
        }
        let params = outgoing::greeting(&self.card(), requested);
        self.send_opening(id, Method::Initialize, &params, requested);
    }

    fn may_speak(&self, version: Version) -> bool {
        match self.terms.speak {
            Speak::Any => true,
            Speak::Only(only) => version == only,
            Speak::Handshake => version.has(Feature::Handshake),
        }
    }

    /// The answer to the probe.
    pub(super) fn probed(&mut self, version: Version, answer: Result<Node<'_>, Told>, now: u64) {
        match answer {
            Ok(result) => match result.get("supportedVersions") {
                Some(list) => {
                    let dates = texts(list);
                    match self.best(&dates) {
                        // It answered at this version, so it speaks it, even where it forgets to say so.
                        Some(best) if best == version => self.discovered(version, result),
                        Some(best) if best.has(Feature::Envelope) => self.probe(best, now),
                        Some(best) => self.greet(best, now),
                        None => self.no_version(&dates),
                    }
                }
                // Not what discover answers: somebody who says yes to everything.
                None => self.greet(Version::NEWEST_WITH_HANDSHAKE, now),
            },
            Err(told) if told.code == Code::UnsupportedVersion.number() => {
                let dates = told.supported().unwrap_or_default();
                match self.best(&dates) {
                    // The suite's own server refuses once; the same version again is what it wants.
                    Some(best) if best == version && self.probes_again() => self.probe(best, now),
                    Some(best) if best != version && best.has(Feature::Envelope) => self.probe(best, now),
                    Some(best) if best.has(Feature::Handshake) => self.greet(best, now),
                    Some(_) | None => self.no_version(&dates),
                }
            }
            Err(told) if is_modern(&told) => self.over(Failure::Told(told)),
            Err(_) => self.greet(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    pub(super) fn is_late_probe(&self, id: u64) -> bool {
        self.late_probe.is_some_and(|(probe, _)| probe == id)
    }

    /// The answer to a probe that was given up. A server that takes long to start reads both messages, and may
    /// know nothing of the second.
    pub(super) fn probed_late(&mut self, answer: Result<Node<'_>, Told>, now: u64) {
        let Some((_, version)) = self.late_probe.take() else { return };
        let dates: Vec<String> = match &answer {
            Ok(result) => result.get("supportedVersions").map(texts).unwrap_or_default(),
            Err(told) => told.supported().unwrap_or_default(),
        };
        if self.best(&dates).is_some_and(|best| best.has(Feature::Envelope)) {
            self.probed(version, answer, now);
        }
    }

    fn probes_again(&mut self) -> bool {
        !std::mem::replace(&mut self.probed_twice, true)
    }

    /// The newest that both know.
    fn best(&self, dates: &[String]) -> Option<Version> {
        let known = dates.iter().filter_map(|date| Version::parse(date));
        known.filter(|version| self.may_speak(*version)).max()
    }

    fn no_version(&mut self, dates: &[String]) {
        let why = match &*dates.iter().take(8).map(String::as_str).collect::<Vec<_>>() {
            [] | [""] => "the server names no protocol version that it speaks".to_owned(),
            [only] => format!("the server speaks protocol {only}, which will not do here"),
            dates => format!("the server speaks protocol {}, none of which will do here", dates.join(", ")),
        };
        self.over(Failure::NoVersion(why));
    }

    fn discovered(&mut self, version: Version, result: Node<'_>) {
        let info = result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
        // Some say it where the handshake had it.
        let info = info.or(result.get("serverInfo"));
        let greeting = Greeting::read(version, result, info);
        self.opened(greeting);
    }

    /// The answer to `initialize`.
    pub(super) fn greeted(&mut self, requested: Version, answer: Result<Node<'_>, Told>, now: u64) {
        let result = match answer {
            Ok(result) => result,
            Err(told) => {
                let dates = told.supported();
                let other = dates.as_ref().and_then(|dates| self.best(dates));
                let other = other.filter(|other| *other < requested && other.has(Feature::Handshake));
                return match (other, dates) {
                    (Some(other), _) => self.greet(other, now),
                    // It was too slow for the probe, and is too young for a handshake.
                    _ if self.late_probe.is_some() && is_no_handshake(&told) && self.probes_again() => {
                        self.probe(Version::NEWEST, now);
                    }
                    (None, Some(dates)) => self.no_version(&dates),
                    (None, None) if is_no_handshake(&told) => {
                        let told = Failure::Told(told);
                        self.over(Failure::NoVersion(format!("the server takes no handshake: {told}")));
                    }
                    (None, None) => self.over(Failure::Told(told)),
                };
            }
        };
        let date = result.get("protocolVersion").and_then(|date| date.str()).unwrap_or_default();
        let version = Version::parse(&date).filter(|v| v.has(Feature::Handshake) && self.may_speak(*v));
        let Some(version) = version else {
            self.no_version(&[date.into_owned()]);
            return;
        };
        self.opened(Greeting::read(version, result, result.get("serverInfo")));
    }

    fn opened(&mut self, greeting: Greeting) {
        self.phase = Phase::Open;
        self.late_probe = None;
        self.version = greeting.version;
        self.epoch += 1;
        if greeting.version.has(Feature::Handshake) {
            self.notify_first(outgoing::initialized());
            if self.link == Link::Http && (self.session.is_some() || greeting.version.has(Feature::Sessions))
            {
                self.open_stream();
            }
        }
        self.greeting = Some(greeting.clone());
        self.events.push_back(Event::Ready(Box::new(greeting)));
        self.send_level();
        self.send_waiting();
    }

    /// An HTTP answer that is no stream, to the probe. `false`: its body is a message and speaks for itself.
    pub(super) fn probe_status(&mut self, reply: &Reply, told: Option<&Told>, now: u64) -> bool {
        let is_modern = told.is_some_and(|told| is_modern(told) || told.supported().is_some());
        match reply.status {
            200..=299 => false,
            401 | 403 | 407 | 408 | 429 | 500.. => {
                self.over(Failure::from_reply(reply));
                true
            }
            _ if is_modern => false,
            400..=499 => {
                self.greet(Version::NEWEST_WITH_HANDSHAKE, now);
                true
            }
            _ => {
                self.over(Failure::from_reply(reply));
                true
            }
        }
    }
}

/// What a server says to `initialize` that has no handshake.
fn is_no_handshake(told: &Told) -> bool {
    [Code::MethodNotFound, Code::InvalidParams, Code::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == told.code)
}

fn texts(list: Node<'_>) -> Vec<String> {
    list.elements().filter_map(|text| Some(text.str()?.into_owned())).collect()
}

/// Errors that only a server of the newest era knows.
fn is_modern(told: &Told) -> bool {
    [Code::HeaderMismatch, Code::MissingCapability, Code::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == told.code)
}

impl Greeting {
    fn read(version: Version, result: Node<'_>, info: Option<Node<'_>>) -> Self {
        let text = |node: Option<Node<'_>>| node.and_then(|node| node.str()).map(|text| text.into_owned());
        Self {
            version,
            name: text(info.and_then(|info| info.get("name"))).unwrap_or_default(),
            title: text(info.and_then(|info| info.get("title"))),
            server_version: text(info.and_then(|info| info.get("version"))).unwrap_or_default(),
            instructions: text(result.get("instructions")),
            capabilities: result.get("capabilities").map_or_else(|| Json::object(|_| ()), Json::from),
        }
    }
}
