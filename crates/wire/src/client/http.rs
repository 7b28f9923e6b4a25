//! The client over HTTP: headers, statuses, sessions and streams.

use json::{Json, Node, ParseLimits, parse};

use super::errors::{ClientError, CloseReason, ProtocolViolation};
use super::param_headers::encode_header_value;
use super::state_machine::{CallPurpose, Client, Phase};
use super::types::{Action, ClientMessage, TransportKind, WarningKind};
use super::{HttpResponse, ServerError};
use crate::method::{Method, NameParam};
use crate::version::{Feature, Version};

/// The position in an event stream. It survives reconnecting.
#[derive(Default)]
pub(super) struct StreamPosition {
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
}

impl StreamPosition {
    fn update(&mut self, last_event_id: Option<String>, retry_ms: Option<u64>) {
        self.last_event_id = last_event_id.or(self.last_event_id.take());
        self.retry_ms = retry_ms.or(self.retry_ms);
    }

    /// "MUST respect the retry field"; one second without it.
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
        let mut headers = Vec::new();
        if self.transport == TransportKind::Http {
            headers = self.http_headers(version, method == Method::Initialize);
            if version.has(Feature::StandardHeaders) {
                let doc = params.to_doc();
                headers.push(("Mcp-Method".to_owned(), method.as_str().to_owned()));
                let named = method.name_param().and_then(|named| match named {
                    NameParam::Name => doc.root().get("name"),
                    NameParam::Uri => doc.root().get("uri"),
                    NameParam::TaskId => doc.root().get("taskId"),
                });
                if let Some(name) = named.and_then(|name| name.str()) {
                    headers.push(("Mcp-Name".to_owned(), encode_header_value(&name)));
                    if method == Method::ToolsCall
                        && let Some(mirror) = self.param_headers.get(&*name)
                    {
                        headers.extend(mirror.headers_for(doc.root().get("arguments")));
                    }
                }
            }
        }
        self.actions.push_back(Action::Send(ClientMessage {
            exchange,
            body,
            headers,
            must_finish_first: false,
        }));
    }

    /// Sends a message that gets no response.
    pub(super) fn notify(&mut self, body: Vec<u8>) {
        self.push_notification(body, false);
    }

    /// Sends a message that must arrive before any later one.
    pub(super) fn notify_before_others(&mut self, body: Vec<u8>) {
        self.push_notification(body, true);
    }

    fn push_notification(&mut self, body: Vec<u8>, is_first: bool) {
        // A server that sends requests but does not read would make this queue grow without limit.
        if self.actions.len() >= self.options.calls_max.saturating_mul(2) {
            if self.phase != Phase::Closed {
                self.close(ClientError::ConnectionClosed(CloseReason::ServerNotReading));
            }
            return;
        }
        let exchange = self.next_exchange();
        let headers = if self.transport == TransportKind::Http {
            self.http_headers(self.version, false)
        } else {
            Vec::new()
        };
        self.actions.push_back(Action::Send(ClientMessage {
            exchange,
            body,
            headers,
            must_finish_first: is_first,
        }));
    }

    pub(super) fn http_headers(&self, version: Version, is_first: bool) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if version.has(Feature::VersionHeader) && !is_first {
            headers.push(("MCP-Protocol-Version".to_owned(), version.as_str().to_owned()));
        }
        // The transport has sessions since 2025-03-26, for every protocol version.
        if let Some(session) = &self.session {
            headers.push(("Mcp-Session-Id".to_owned(), session.clone()));
        }
        headers
    }

    /// Opens the GET stream for messages of the server that belong to no request (handshake era).
    pub(super) fn open_server_stream(&mut self) {
        let exchange = self.next_exchange();
        // The stream of an earlier session.
        self.actions.extend(self.stream_exchange.replace(exchange).map(Action::Abort));
        self.stream_resumes = 0;
        self.stream_position = StreamPosition::default();
        let headers = self.http_headers(self.version, false);
        self.actions.push_back(Action::Get { exchange, delay_ms: 0, last_event_id: None, headers });
    }

    /// Whether messages of the server may arrive beside the responses to requests, in no order with them.
    pub fn has_server_stream(&self) -> bool {
        self.stream_exchange.is_some()
    }

    /// The headers of the DELETE request that ends the session; `None` if there is no session.
    pub fn delete_headers(&self) -> Option<Vec<(String, String)>> {
        // Before the version is negotiated, there is no version header.
        self.session.is_some().then(|| self.http_headers(self.version, self.server_info.is_none()))
    }

    /// Records the session id of a response.
    pub fn set_session(&mut self, exchange: u64, id: &str) {
        if matches!(self.phase, Phase::Initializing { id: initialize, .. } if initialize == exchange) {
            self.session = Some(id.to_owned());
        }
    }

    /// The driver skipped a message.
    pub fn message_skipped(&mut self, description: &str) {
        self.warn(WarningKind::SkippedMessage, &format!("skipped {description}"));
        self.record_unreadable(description);
    }

    /// Handles an HTTP response that is not an event stream.
    pub fn http_response(&mut self, exchange: u64, response: HttpResponse, now: u64) {
        self.advance_clock(now);
        if self.phase == Phase::Closed {
            return;
        }
        if self.stream_exchange == Some(exchange) {
            // 405: the server has no such stream. Calls work without it.
            self.stream_exchange = None;
            if !matches!(response.status, 200..=299 | 404 | 405) {
                let error = ClientError::from_http_response(&response);
                self.warn(
                    WarningKind::Rejected,
                    &format!("cannot open the stream for the server's notifications: {error}"),
                );
            }
            return;
        }
        let server_error = error_in_body(&response.body, &self.options.scan_limits);
        if let Phase::Probing { id, .. } = self.phase
            && id == exchange
            && self.on_probe_http_status(&response, server_error.as_ref(), now)
        {
            return;
        }
        let is_ok = (200..300).contains(&response.status);
        // During a new handshake there is no session, but earlier requests may still get 404 for the old one.
        let had_session = self.session.is_some() || (self.session_epoch > 0 && self.phase != Phase::Ready);
        if response.status == 404 && had_session && self.restart_session(exchange, now) {
            return;
        }
        // The server accepts no POST: it speaks HTTP+SSE, whatever its body says.
        if response.status == 405 && matches!(self.phase, Phase::Initializing { id, .. } if id == exchange) {
            return self.exchange_failed(exchange, ClientError::from_http_response(&response));
        }
        if (is_ok || server_error.is_some())
            && !matches!(response.status, 401 | 403)
            && !response.body.is_empty()
        {
            self.receive(response.body, Some(exchange), now);
            if self.is_pending_exchange(exchange) {
                let violation = ProtocolViolation::MissingResponse;
                self.exchange_failed(exchange, ClientError::ProtocolViolation(violation));
            }
            return;
        }
        if !self.is_pending_exchange(exchange) {
            if !is_ok {
                let error = ClientError::from_http_response(&response);
                self.warn(WarningKind::Rejected, &format!("the server rejected a notification: {error}"));
            }
            return;
        }
        let error = if is_ok {
            ClientError::ProtocolViolation(ProtocolViolation::EmptyBody { status: response.status })
        } else {
            ClientError::from_http_response(&response)
        };
        self.exchange_failed(exchange, error);
    }

    /// 2025-11-25, Session Management: on 404 "it MUST start a new session".
    pub(super) fn restart_session(&mut self, exchange: u64, now: u64) -> bool {
        let Some(call) = self.calls_by_message_id.get(&exchange).copied() else { return false };
        let epoch = self.session_epoch;
        let Some(pending) = self.pending_calls.get_mut(&call) else { return false };
        // A call that the server has started must not run twice.
        if pending.retried || pending.resumed {
            return false;
        }
        pending.retried = true;
        pending.message_id = None;
        let is_current_session = pending.session_epoch == epoch;
        let is_repeated_anyway =
            matches!(pending.purpose, CallPurpose::SetLevel | CallPurpose::Unsubscribe { .. });
        self.calls_by_message_id.remove(&exchange);
        if is_repeated_anyway {
            // The next handshake sends the log level and the subscriptions again.
            self.remove_call(call);
        }
        match self.phase {
            Phase::Ready if is_current_session => self.initialize(self.version, now),
            Phase::Ready => self.send_call(call),
            Phase::NotStarted | Phase::Probing { .. } | Phase::Initializing { .. } | Phase::Closed => {}
        }
        true
    }

    /// Handles the end of an event stream, whether closed by the server or broken off.
    pub fn stream_ended(&mut self, exchange: u64, last_event_id: Option<String>, retry_ms: Option<u64>) {
        let has_ids = self.session.is_some() || self.version.has(Feature::EventIds);
        let may_resume = has_ids && self.phase == Phase::Ready;
        let headers = self.http_headers(self.version, false);
        if self.stream_exchange == Some(exchange) {
            self.stream_resumes += 1;
            self.stream_position.update(last_event_id, retry_ms);
            if self.stream_resumes > self.options.resume_attempts_max || !may_resume {
                self.stream_exchange = None;
                return;
            }
            let (delay_ms, last_event_id) =
                (self.stream_position.reconnect_delay_ms(), self.stream_position.last_event_id.clone());
            self.actions.push_back(Action::Get { exchange, delay_ms, last_event_id, headers });
            return;
        }
        if !self.is_pending_exchange(exchange) {
            return;
        }
        let call = self.calls_by_message_id.get(&exchange).copied();
        if let Some(pending) = call.and_then(|call| self.pending_calls.get_mut(&call)) {
            pending.stream_position.update(last_event_id, retry_ms);
            let (delay_ms, last_event_id) =
                (pending.stream_position.reconnect_delay_ms(), pending.stream_position.last_event_id.clone());
            // The event id is only valid in the session that it came from.
            let is_current = pending.session_epoch == self.session_epoch;
            if may_resume
                && is_current
                && last_event_id.is_some()
                && pending.resume_attempts < self.options.resume_attempts_max
            {
                pending.resume_attempts += 1;
                pending.resumed = true;
                self.actions.push_back(Action::Get { exchange, delay_ms, last_event_id, headers });
                return;
            }
            pending.resumed = false;
        }
        self.exchange_failed(exchange, ClientError::ConnectionClosed(CloseReason::StreamEnded));
    }

    /// Whether the client is reconnecting to a stream.
    pub(super) fn was_resumed(&self, exchange: u64) -> bool {
        let pending = self.calls_by_message_id.get(&exchange).and_then(|call| self.pending_calls.get(call));
        self.stream_exchange == Some(exchange) || pending.is_some_and(|pending| pending.resumed)
    }

    /// Data arrived on the stream of an exchange: resets the count of failed resume attempts.
    pub fn stream_active(&mut self, exchange: u64) {
        if self.stream_exchange == Some(exchange) {
            self.stream_resumes = 0;
        } else if let Some(call) = self.calls_by_message_id.get(&exchange)
            && let Some(pending) = self.pending_calls.get_mut(call)
        {
            pending.resume_attempts = 0;
        }
    }
}

/// The JSON-RPC error in a body, if it is one.
fn error_in_body(body: &[u8], limits: &ParseLimits) -> Option<ServerError> {
    let doc = parse(body.to_vec(), limits).ok()?;
    let error = doc.root().get("error").filter(Node::is_object)?;
    Some(ServerError::read(error))
}
