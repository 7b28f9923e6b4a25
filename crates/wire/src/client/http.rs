//! What is different when each message is an exchange of its own: headers, statuses, sessions, streams.

use json::{Json, Node, ScanLimits, scan};

use super::param_headers::encode_header_value;
use super::state_machine::{CallPurpose, Client, Phase};
use super::types::{Action, ClientError, ClientMessage, TransportKind};
use super::{HttpResponse, ServerError};
use crate::method::{Method, NameParam};
use crate::version::{Feature, Version};

/// Where a stream was left. What one connection said of it holds for the next as well.
#[derive(Default)]
pub(super) struct StreamPosition {
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
}

impl StreamPosition {
    fn update(&mut self, last_id: Option<String>, retry_ms: Option<u64>) {
        self.last_event_id = last_id.or(self.last_event_id.take());
        self.retry_ms = retry_ms.or(self.retry_ms);
    }

    /// "MUST respect the retry field"; without one, a moment.
    fn reconnect_delay_ms(&self) -> u64 {
        self.retry_ms.unwrap_or(1000)
    }
}

impl Client {
    pub(super) fn send_request(
        &mut self,
        exchange: u64,
        body: Vec<u8>,
        method: Method,
        params: &Json,
        version: Version,
    ) {
        let mut heads = Vec::new();
        if self.transport == TransportKind::Http {
            heads = self.http_headers(version, method == Method::Initialize);
            if version.has(Feature::MirrorHeaders) {
                let doc = params.to_doc();
                heads.push(("Mcp-Method".to_owned(), method.as_str().to_owned()));
                let named = method.name_param().and_then(|named| match named {
                    NameParam::Name => doc.root().get("name"),
                    NameParam::Uri => doc.root().get("uri"),
                    NameParam::TaskId => doc.root().get("taskId"),
                });
                if let Some(name) = named.and_then(|name| name.str()) {
                    heads.push(("Mcp-Name".to_owned(), encode_header_value(&name)));
                    if method == Method::ToolsCall
                        && let Some(mirror) = self.param_headers.get(&*name)
                    {
                        heads.extend(mirror.headers_for(doc.root().get("arguments")));
                    }
                }
            }
        }
        self.actions.push_back(Action::Send(ClientMessage {
            exchange,
            body,
            headers: heads,
            must_finish_first: false,
        }));
    }

    /// A message that nobody answers.
    pub(super) fn notify(&mut self, body: Vec<u8>) {
        self.push_notification(body, false);
    }

    /// One before which nothing else may arrive.
    pub(super) fn notify_before_others(&mut self, body: Vec<u8>) {
        self.push_notification(body, true);
    }

    fn push_notification(&mut self, body: Vec<u8>, is_first: bool) {
        // A server that asks and asks but does not read would have us keep all the answers.
        if self.actions.len() >= self.options.calls_max.saturating_mul(2) {
            if self.phase != Phase::Closed {
                self.close(ClientError::ConnectionClosed(
                    "the server does not read what it is sent".to_owned(),
                ));
            }
            return;
        }
        let exchange = self.next_id();
        let heads = if self.transport == TransportKind::Http {
            self.http_headers(self.version, false)
        } else {
            Vec::new()
        };
        self.actions.push_back(Action::Send(ClientMessage {
            exchange,
            body,
            headers: heads,
            must_finish_first: is_first,
        }));
    }

    pub(super) fn http_headers(&self, version: Version, is_first: bool) -> Vec<(String, String)> {
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
    pub(super) fn open_server_stream(&mut self) {
        let exchange = self.next_id();
        // The stream of a session that is gone.
        self.actions.extend(self.stream_exchange.replace(exchange).map(Action::Abort));
        self.stream_resumes = 0;
        self.stream_position = StreamPosition::default();
        let heads = self.http_headers(self.version, false);
        self.actions.push_back(Action::Get { exchange, delay_ms: 0, last_event_id: None, headers: heads });
    }

    /// What to send with DELETE when it is over; nothing if there is no session.
    pub fn delete_headers(&self) -> Option<Vec<(String, String)>> {
        // Before the server has said which version it speaks, none is named.
        self.session.is_some().then(|| self.http_headers(self.version, self.server_info.is_none()))
    }

    /// Over HTTP: the session that an answer named.
    pub fn set_session(&mut self, exchange: u64, id: &str) {
        if matches!(self.phase, Phase::Initializing { id: greeting, .. } if greeting == exchange) {
            self.session = Some(id.to_owned());
        }
    }

    /// The driver passed over something.
    pub fn message_skipped(&mut self, what: &str) {
        self.warn(&format!("skipped {what}"));
        self.record_unreadable(what);
    }

    /// Over HTTP: an answer that is no stream.
    pub fn http_response(&mut self, exchange: u64, reply: HttpResponse, now: u64) {
        self.advance_clock(now);
        if self.phase == Phase::Closed {
            return;
        }
        if self.stream_exchange == Some(exchange) {
            // 405: there is no such stream. Whatever it is, calls go on without.
            self.stream_exchange = None;
            if !matches!(reply.status, 200..=299 | 404 | 405) {
                let why = ClientError::from_http_response(&reply);
                self.warn(&format!("no stream for what the server says unasked: {why}"));
            }
            return;
        }
        let told = error_in_body(&reply.body, &self.options.scan_limits);
        if let Phase::Probing { id, .. } = self.phase
            && id == exchange
            && self.on_probe_http_status(&reply, told.as_ref(), now)
        {
            return;
        }
        let is_ok = (200..300).contains(&reply.status);
        // While another session is begun there is none, and others may still be told that theirs is gone.
        let had_session = self.session.is_some() || (self.session_epoch > 0 && self.phase != Phase::Ready);
        if reply.status == 404 && had_session && self.restart_session(exchange, now) {
            return;
        }
        // Nobody is greeted by POST here, however politely that is said: the sign of HTTP+SSE.
        if reply.status == 405 && matches!(self.phase, Phase::Initializing { id, .. } if id == exchange) {
            return self.exchange_failed(exchange, ClientError::from_http_response(&reply));
        }
        if (is_ok || told.is_some()) && !matches!(reply.status, 401 | 403) && !reply.body.is_empty() {
            self.receive(reply.body, Some(exchange), now);
            if self.is_pending_exchange(exchange) {
                let why = "the answer does not belong to the request".to_owned();
                self.exchange_failed(exchange, ClientError::ProtocolViolation(why));
            }
            return;
        }
        if !self.is_pending_exchange(exchange) {
            if !is_ok {
                let why = ClientError::from_http_response(&reply);
                self.warn(&format!("a notification was not taken: {why}"));
            }
            return;
        }
        let why = if is_ok {
            ClientError::ProtocolViolation(format!(
                "HTTP {} without a body, where a request was made",
                reply.status
            ))
        } else {
            ClientError::from_http_response(&reply)
        };
        self.exchange_failed(exchange, why);
    }

    /// 2025-11-25, Session Management: on 404 "it MUST start a new session".
    pub(super) fn restart_session(&mut self, exchange: u64, now: u64) -> bool {
        let Some(ticket) = self.calls_by_message_id.get(&exchange).copied() else { return false };
        let epoch = self.session_epoch;
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return false };
        // What the server has begun with must not be begun twice.
        if pending.retried || pending.resumed {
            return false;
        }
        pending.retried = true;
        pending.message_id = None;
        let sent_to_this = pending.session_epoch == epoch;
        let is_said_anew = matches!(pending.purpose, CallPurpose::Background);
        self.calls_by_message_id.remove(&exchange);
        if is_said_anew {
            // Level and subscriptions are said as they are by then.
            self.remove_call(ticket);
        }
        match self.phase {
            Phase::Ready if sent_to_this => self.initialize(self.version, now),
            Phase::Ready => self.send_call(ticket),
            Phase::NotStarted | Phase::Probing { .. } | Phase::Initializing { .. } | Phase::Closed => {}
        }
        true
    }

    /// Over HTTP: a stream of events ended, in order or not.
    pub fn stream_ended(&mut self, exchange: u64, last_id: Option<String>, retry_ms: Option<u64>) {
        let has_ids = self.session.is_some() || self.version.has(Feature::EventIds);
        let may_resume = has_ids && self.phase == Phase::Ready;
        let heads = self.http_headers(self.version, false);
        if self.stream_exchange == Some(exchange) {
            self.stream_resumes += 1;
            self.stream_position.update(last_id, retry_ms);
            if self.stream_resumes > self.options.resume_attempts_max || !may_resume {
                self.stream_exchange = None;
                return;
            }
            let (after_ms, last_id) =
                (self.stream_position.reconnect_delay_ms(), self.stream_position.last_event_id.clone());
            self.actions.push_back(Action::Get {
                exchange,
                delay_ms: after_ms,
                last_event_id: last_id,
                headers: heads,
            });
            return;
        }
        if !self.is_pending_exchange(exchange) {
            return;
        }
        let ticket = self.calls_by_message_id.get(&exchange).copied();
        if let Some(pending) = ticket.and_then(|ticket| self.pending_calls.get_mut(&ticket)) {
            pending.stream_position.update(last_id, retry_ms);
            let (after_ms, last_id) =
                (pending.stream_position.reconnect_delay_ms(), pending.stream_position.last_event_id.clone());
            // In another session the place would be one in another stream.
            let is_current = pending.session_epoch == self.session_epoch;
            if may_resume
                && is_current
                && last_id.is_some()
                && pending.resume_attempts < self.options.resume_attempts_max
            {
                pending.resume_attempts += 1;
                pending.resumed = true;
                self.actions.push_back(Action::Get {
                    exchange,
                    delay_ms: after_ms,
                    last_event_id: last_id,
                    headers: heads,
                });
                return;
            }
            pending.resumed = false;
        }
        self.exchange_failed(
            exchange,
            ClientError::ConnectionClosed("the stream ended before the answer".to_owned()),
        );
    }

    /// Whether a stream is on its way to be taken up again.
    pub(super) fn was_resumed(&self, exchange: u64) -> bool {
        let pending =
            self.calls_by_message_id.get(&exchange).and_then(|ticket| self.pending_calls.get(ticket));
        self.stream_exchange == Some(exchange) || pending.is_some_and(|pending| pending.resumed)
    }

    /// Something came through the stream of an exchange: it is worth being taken up again.
    pub fn stream_active(&mut self, exchange: u64) {
        if self.stream_exchange == Some(exchange) {
            self.stream_resumes = 0;
        } else if let Some(ticket) = self.calls_by_message_id.get(&exchange)
            && let Some(pending) = self.pending_calls.get_mut(ticket)
        {
            pending.resume_attempts = 0;
        }
    }
}

/// The error that a body tells, if it is one.
fn error_in_body(body: &[u8], limits: &ScanLimits) -> Option<ServerError> {
    let doc = scan(body.to_vec(), limits).ok()?;
    let error = doc.root().get("error").filter(Node::is_object)?;
    Some(ServerError::read(error))
}
