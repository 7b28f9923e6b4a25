//! What is different when each message is an exchange of its own: headers, statuses, sessions, streams.

use json::{Json, Node, ScanLimits, scan};

use super::machine::{Client, Goes, Phase};
use super::mirror::encode;
use super::words::{Do, Failure, Link, Send};
use super::{Reply, Told};
use crate::method::{Method, Named};
use crate::version::{Feature, Version};

/// Where a stream was left. What one connection said of it holds for the next as well.
#[derive(Default)]
pub(super) struct Place {
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl Place {
    fn note(&mut self, last_id: Option<String>, retry_ms: Option<u64>) {
        self.last_id = last_id.or(self.last_id.take());
        self.retry_ms = retry_ms.or(self.retry_ms);
    }

    /// "MUST respect the retry field"; without one, a moment.
    fn after_ms(&self) -> u64 {
        self.retry_ms.unwrap_or(1000)
    }
}

impl Client {
    pub(super) fn send(
        &mut self,
        exchange: u64,
        body: Vec<u8>,
        method: Method,
        params: &Json,
        version: Version,
    ) {
        let mut heads = Vec::new();
        if self.link == Link::Http {
            heads = self.heads(version, method == Method::Initialize);
            if version.has(Feature::MirrorHeaders) {
                let doc = params.doc();
                heads.push(("Mcp-Method".to_owned(), method.as_str().to_owned()));
                let named = method.names().and_then(|named| match named {
                    Named::Name => doc.root().get("name"),
                    Named::Uri => doc.root().get("uri"),
                    Named::Task => doc.root().get("taskId"),
                });
                if let Some(name) = named.and_then(|name| name.str()) {
                    heads.push(("Mcp-Name".to_owned(), encode(&name)));
                    if method == Method::ToolsCall
                        && let Some(mirror) = self.mirrors.get(&*name)
                    {
                        heads.extend(mirror.heads(doc.root().get("arguments")));
                    }
                }
            }
        }
        self.out.push_back(Do::Send(Send { exchange, body, heads, is_first: false }));
    }

    /// A message that nobody answers.
    pub(super) fn notify(&mut self, body: Vec<u8>) {
        self.push_notice(body, false);
    }

    /// One before which nothing else may arrive.
    pub(super) fn notify_first(&mut self, body: Vec<u8>) {
        self.push_notice(body, true);
    }

    fn push_notice(&mut self, body: Vec<u8>, is_first: bool) {
        // A server that asks and asks but does not read would have us keep all the answers.
        if self.out.len() >= self.terms.calls_max.saturating_mul(2) {
            if self.phase != Phase::Over {
                self.over(Failure::Closed("the server does not read what it is sent".to_owned()));
            }
            return;
        }
        let exchange = self.next_id();
        let heads = if self.link == Link::Http { self.heads(self.version, false) } else { Vec::new() };
        self.out.push_back(Do::Send(Send { exchange, body, heads, is_first }));
    }

    pub(super) fn heads(&self, version: Version, is_first: bool) -> Vec<(String, String)> {
        let mut heads = Vec::new();
        if version.has(Feature::VersionHeader) && !is_first {
            heads.push(("MCP-Protocol-Version".to_owned(), version.as_str().to_owned()));
        }
        // The transport has sessions since 2025-03-26, whatever version is spoken over it.
        if let Some(session) = &self.session {
            heads.push(("Mcp-Session-Id".to_owned(), session.clone()));
        }
        heads
    }

    /// Opens the stream on which a server of the handshake era speaks unasked.
    pub(super) fn open_stream(&mut self) {
        let exchange = self.next_id();
        // The stream of a session that is gone.
        self.out.extend(self.stream.replace(exchange).map(Do::Abandon));
        self.stream_resumes = 0;
        self.stream_place = Place::default();
        let heads = self.heads(self.version, false);
        self.out.push_back(Do::Get { exchange, after_ms: 0, last_id: None, heads });
    }

    /// What to send with DELETE when it is over; nothing if there is no session.
    pub fn farewell(&self) -> Option<Vec<(String, String)>> {
        // Before the server has said which version it speaks, none is named.
        self.session.is_some().then(|| self.heads(self.version, self.greeting.is_none()))
    }

    /// Over HTTP: the session that an answer named.
    pub fn session(&mut self, exchange: u64, id: &str) {
        if matches!(self.phase, Phase::Greeting { id: greeting, .. } if greeting == exchange) {
            self.session = Some(id.to_owned());
        }
    }

    /// The driver passed over something.
    pub fn passed_over(&mut self, what: &str) {
        self.odd(&format!("skipped {what}"));
        self.not_read(what);
    }

    /// Over HTTP: an answer that is no stream.
    pub fn replied(&mut self, exchange: u64, reply: Reply, now: u64) {
        self.heard(now);
        if self.phase == Phase::Over {
            return;
        }
        if self.stream == Some(exchange) {
            // 405: there is no such stream. Whatever it is, calls go on without.
            self.stream = None;
            if !matches!(reply.status, 200..=299 | 404 | 405) {
                let why = Failure::from_reply(&reply);
                self.odd(&format!("no stream for what the server says unasked: {why}"));
            }
            return;
        }
        let told = told_in(&reply.body, &self.terms.scan);
        if let Phase::Probing { id, .. } = self.phase
            && id == exchange
            && self.probe_status(&reply, told.as_ref(), now)
        {
            return;
        }
        let is_ok = (200..300).contains(&reply.status);
        // While another session is begun there is none, and others may still be told that theirs is gone.
        let had_session = self.session.is_some() || (self.epoch > 0 && self.phase != Phase::Open);
        if reply.status == 404 && had_session && self.begin_again(exchange, now) {
            return;
        }
        // Nobody is greeted by POST here, however politely that is said: the sign of HTTP+SSE.
        if reply.status == 405 && matches!(self.phase, Phase::Greeting { id, .. } if id == exchange) {
            return self.failed(exchange, Failure::from_reply(&reply));
        }
        if (is_ok || told.is_some()) && !matches!(reply.status, 401 | 403) && !reply.body.is_empty() {
            self.receive(reply.body, Some(exchange), now);
            if self.is_awaited(exchange) {
                let why = "the answer does not belong to the request".to_owned();
                self.failed(exchange, Failure::NotMcp(why));
            }
            return;
        }
        if !self.is_awaited(exchange) {
            if !is_ok {
                let why = Failure::from_reply(&reply);
                self.odd(&format!("a notification was not taken: {why}"));
            }
            return;
        }
        let why = if is_ok {
            Failure::NotMcp(format!("HTTP {} without a body, where a request was made", reply.status))
        } else {
            Failure::from_reply(&reply)
        };
        self.failed(exchange, why);
    }

    /// 2025-11-25, Session Management: on 404 "it MUST start a new session".
    pub(super) fn begin_again(&mut self, exchange: u64, now: u64) -> bool {
        let Some(ticket) = self.ids.get(&exchange).copied() else { return false };
        let epoch = self.epoch;
        let Some(pending) = self.calls.get_mut(&ticket) else { return false };
        // What the server has begun with must not be begun twice.
        if pending.refreshed || pending.resumed {
            return false;
        }
        pending.refreshed = true;
        pending.id = None;
        let sent_to_this = pending.epoch == epoch;
        let is_said_anew = matches!(pending.goes, Goes::Quietly);
        self.ids.remove(&exchange);
        if is_said_anew {
            // Level and subscriptions are said as they are by then.
            self.drop_call(ticket);
        }
        match self.phase {
            Phase::Open if sent_to_this => self.greet(self.version, now),
            Phase::Open => self.send_pending(ticket),
            Phase::Fresh | Phase::Probing { .. } | Phase::Greeting { .. } | Phase::Over => {}
        }
        true
    }

    /// Over HTTP: a stream of events ended, in order or not.
    pub fn stream_ended(&mut self, exchange: u64, last_id: Option<String>, retry_ms: Option<u64>) {
        let has_ids = self.session.is_some() || self.version.has(Feature::EventIds);
        let may_resume = has_ids && self.phase == Phase::Open;
        let heads = self.heads(self.version, false);
        if self.stream == Some(exchange) {
            self.stream_resumes += 1;
            self.stream_place.note(last_id, retry_ms);
            if self.stream_resumes > self.terms.resumes_max || !may_resume {
                self.stream = None;
                return;
            }
            let (after_ms, last_id) = (self.stream_place.after_ms(), self.stream_place.last_id.clone());
            self.out.push_back(Do::Get { exchange, after_ms, last_id, heads });
            return;
        }
        if !self.is_awaited(exchange) {
            return;
        }
        let ticket = self.ids.get(&exchange).copied();
        if let Some(pending) = ticket.and_then(|ticket| self.calls.get_mut(&ticket)) {
            pending.place.note(last_id, retry_ms);
            let (after_ms, last_id) = (pending.place.after_ms(), pending.place.last_id.clone());
            // In another session the place would be one in another stream.
            let is_current = pending.epoch == self.epoch;
            if may_resume && is_current && last_id.is_some() && pending.resumes < self.terms.resumes_max {
                pending.resumes += 1;
                pending.resumed = true;
                self.out.push_back(Do::Get { exchange, after_ms, last_id, heads });
                return;
            }
            pending.resumed = false;
        }
        self.failed(exchange, Failure::Closed("the stream ended before the answer".to_owned()));
    }

    /// Whether a stream is on its way to be taken up again.
    pub(super) fn was_resumed(&self, exchange: u64) -> bool {
        let pending = self.ids.get(&exchange).and_then(|ticket| self.calls.get(ticket));
        self.stream == Some(exchange) || pending.is_some_and(|pending| pending.resumed)
    }

    /// Something came through the stream of an exchange: it is worth being taken up again.
    pub fn stream_lives(&mut self, exchange: u64) {
        if self.stream == Some(exchange) {
            self.stream_resumes = 0;
        } else if let Some(ticket) = self.ids.get(&exchange)
            && let Some(pending) = self.calls.get_mut(ticket)
        {
            pending.resumes = 0;
        }
    }
}

/// The error that a body tells, if it is one.
fn told_in(body: &[u8], limits: &ScanLimits) -> Option<Told> {
    let doc = scan(body.to_vec(), limits).ok()?;
    let error = doc.root().get("error").filter(Node::is_object)?;
    Some(Told::read(error))
}
