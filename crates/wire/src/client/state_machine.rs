//! The state machine: pending calls, incoming messages and deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use json::{Json, JsonErrorKind, Node, parse};
use spile_core::{ClientCapabilities, LogLevel};

use super::errors::{ClientError, CloseReason, ProtocolViolation, VersionMismatch, excerpt};
use super::http::StreamPosition;
use super::incoming::{IncomingMessage, messages};
use super::input_requests::{InputRound, OpenInputRequest};
use super::lists::{PageCollector, PageStatus};
use super::outgoing::{self, ClientIdentity, RequestExtras};
use super::param_headers::ParamHeaders;
use super::subscriptions::{filter_params, uri_params};
use super::types::{
    Action, ClientCall, ClientEvent, ClientOptions, ProtocolWarning, ServerInfo, TransportKind, WarningKind,
};
use super::{CallId, InputRequestId, ServerError, unreadable};
use crate::error::ErrorCode;
use crate::method::Method;
use crate::params::{ListKind, NotificationFilter};
use crate::version::{Feature, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    NotStarted,
    Probing { id: u64, version: Version, deadline_ms: u64 },
    Initializing { id: u64, requested_version: Version, deadline_ms: u64 },
    Ready,
    Closed,
}

pub struct Client {
    pub(super) options: ClientOptions,
    pub(super) transport: TransportKind,
    pub(super) phase: Phase,
    pub(super) version: Version,
    pub(super) server_info: Option<ServerInfo>,
    pub(super) session: Option<String>,
    pub(super) probed_twice: bool,
    /// A probe that timed out, while the handshake that followed it is still open.
    pub(super) late_probe: Option<(u64, Version)>,
    /// The number of completed handshakes or probes.
    pub(super) session_epoch: u32,
    pub(super) log_level: Option<LogLevel>,
    /// The id of the next request. Requests are numbered from 1 without gaps.
    pub(super) next_message_id: u64,
    next_call: u64,
    next_input_request: u64,
    /// The next exchange without a request id: a notification, a response or a GET.
    next_exchange: u64,
    /// The latest time that the driver passed in.
    pub(super) now_ms: u64,
    /// The last unreadable message on a pipe, and the next message id when it arrived.
    pub(super) last_unreadable: Option<(u64, String)>,
    /// The last error on a pipe that belongs to no request, during negotiation.
    pub(super) last_error: Option<ServerError>,
    pub(super) pending_calls: BTreeMap<CallId, PendingCall>,
    pub(super) calls_by_message_id: BTreeMap<u64, CallId>,
    /// The deadlines of all calls, sorted: the driver asks for the next one after every message.
    deadlines: BTreeSet<(u64, CallId)>,
    pub(super) input_requests: BTreeMap<InputRequestId, OpenInputRequest>,
    pub(super) param_headers: BTreeMap<String, ParamHeaders>,
    /// The exchange of the GET stream that belongs to no request.
    pub(super) stream_exchange: Option<u64>,
    pub(super) stream_resumes: u32,
    pub(super) stream_position: StreamPosition,
    pub(super) actions: VecDeque<Action>,
    pub(super) events: VecDeque<ClientEvent>,
}

/// The exchanges of requests have the number of the request; all others count from here.
pub(super) const EXCHANGE_WITHOUT_REQUEST_MIN: u64 = 1 << 62;

/// The limit of messages in one frame.
const MESSAGES_MAX: usize = 4096;

/// A call without a result yet.
pub(super) struct PendingCall {
    pub(super) call: ClientCall,
    pub(super) purpose: CallPurpose,
    /// The id of its current request; `None` while it waits for the server to be ready, or for input.
    pub(super) message_id: Option<u64>,
    deadline_ms: Option<u64>,
    /// The end of `total_timeout_ms`.
    ends_at_ms: Option<u64>,
    pub(super) session_epoch: u32,
    pub(super) rounds: u32,
    pub(super) resume_attempts: u32,
    /// Whether it was sent again, after a list refresh or in a new session.
    pub(super) retried: bool,
    /// Whether its stream was resumed: the server has started the call.
    pub(super) resumed: bool,
    pub(super) stream_position: StreamPosition,
    /// The last progress value of the current request.
    pub(super) progress: Option<f64>,
    pub(super) input_round: InputRound,
}

pub(super) enum CallPurpose {
    Single,
    List(ListKind, PageCollector),
    Listen,
    /// Reads the tools again for a call that had the wrong headers.
    RefreshTools {
        call: CallId,
        pages: PageCollector,
    },
    /// Subscribes to one resource, in the handshake era.
    Subscribe {
        listen_call: CallId,
        uri: String,
    },
    /// Ends the subscription to one resource, in the handshake era.
    Unsubscribe {
        uri: String,
    },
    /// Sets the log level, in the handshake era. Calls wait for it: a server that handles them side by side would not log.
    SetLevel,
}

impl Client {
    pub fn new(options: ClientOptions, transport: TransportKind) -> Self {
        Self {
            options,
            transport,
            phase: Phase::NotStarted,
            version: Version::NEWEST,
            server_info: None,
            session: None,
            probed_twice: false,
            late_probe: None,
            session_epoch: 0,
            log_level: None,
            next_message_id: 1,
            next_call: 1,
            next_input_request: 1,
            next_exchange: EXCHANGE_WITHOUT_REQUEST_MIN,
            now_ms: 0,
            last_unreadable: None,
            last_error: None,
            pending_calls: BTreeMap::new(),
            calls_by_message_id: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            input_requests: BTreeMap::new(),
            param_headers: BTreeMap::new(),
            stream_exchange: None,
            stream_resumes: 0,
            stream_position: StreamPosition::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // Outgoing.

    /// Starts a call. The request is sent as soon as the server is ready.
    pub fn call(&mut self, call: ClientCall, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(call, CallPurpose::Single)
    }

    /// Reads all pages of a list.
    pub fn list(&mut self, list: ListKind, timeout_ms: Option<u64>, now: u64) -> CallId {
        self.advance_clock(now);
        let call = ClientCall { timeout_ms, ..ClientCall::new(list.method(), Json::object(|_| ())) };
        self.start_call(call, CallPurpose::List(list, PageCollector::default()))
    }

    /// Subscribes to notifications deadline_ms the call is cancelled.
    pub fn listen(&mut self, filter: &NotificationFilter, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(ClientCall::new(Method::Listen, filter_params(filter)), CallPurpose::Listen)
    }

    /// Checks that the server responds.
    pub fn ping(&mut self, timeout_ms: Option<u64>, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(
            ClientCall { timeout_ms, ..ClientCall::new(Method::Ping, Json::object(|_| ())) },
            CallPurpose::Single,
        )
    }

    /// Sets the least severe log level that the server should send.
    pub fn set_level(&mut self, level: LogLevel, now: u64) {
        self.advance_clock(now);
        self.log_level = Some(level);
        if self.phase == Phase::Ready {
            self.send_level();
        }
    }

    /// Whether the server declared a capability.
    pub fn server_supports(&self, capability: &str) -> bool {
        let Some(server_info) = &self.server_info else { return false };
        server_info.capabilities.to_doc().root().get(capability).is_some_and(|value| value.is_object())
    }

    pub(super) fn start_call(&mut self, call: ClientCall, purpose: CallPurpose) -> CallId {
        let call_id = CallId(take_next(&mut self.next_call));
        if self.pending_calls.len() >= self.options.calls_max {
            self.report_failure(call_id, &purpose, ClientError::Busy);
            return call_id;
        }
        let timeout_ms = match purpose {
            CallPurpose::Single | CallPurpose::List(..) | CallPurpose::Listen => call.timeout_ms,
            // No caller waits for these, so no caller would ever cancel them.
            CallPurpose::RefreshTools { .. }
            | CallPurpose::Subscribe { .. }
            | CallPurpose::Unsubscribe { .. }
            | CallPurpose::SetLevel => Some(self.options.handshake_timeout_ms),
        };
        let after = |ms: u64| self.now_ms.saturating_add(ms);
        let ends_at_ms = call.total_timeout_ms.map(after);
        let deadline = timeout_ms.map(after).into_iter().chain(ends_at_ms).min();
        let pending = PendingCall {
            call: ClientCall { timeout_ms, ..call },
            purpose,
            message_id: None,
            deadline_ms: deadline,
            ends_at_ms,
            session_epoch: self.session_epoch,
            rounds: 0,
            resume_attempts: 0,
            retried: false,
            resumed: false,
            stream_position: StreamPosition::default(),
            progress: None,
            input_round: InputRound::default(),
        };
        self.pending_calls.insert(call_id, pending);
        self.deadlines.extend(deadline.map(|deadline| (deadline, call_id)));
        match self.phase {
            Phase::Ready if self.must_wait(call_id) => {}
            Phase::Ready => self.send_call(call_id),
            Phase::Closed => {
                self.fail_call(call_id, ClientError::ConnectionClosed(CloseReason::AlreadyClosed))
            }
            Phase::NotStarted | Phase::Probing { .. } | Phase::Initializing { .. } => {}
        }
        call_id
    }

    pub(super) fn send_unsent_calls(&mut self) {
        let waiting: Vec<CallId> = self
            .pending_calls
            .iter()
            .filter(|(_, call)| call.is_unsent())
            .map(|(call_id, _)| *call_id)
            .collect();
        for call_id in waiting {
            if !self.must_wait(call_id) {
                self.send_call(call_id);
            }
        }
    }

    /// Sends the call's request, its next page or its next round.
    pub(super) fn send_call(&mut self, call_id: CallId) {
        let Some(pending) = self.pending_calls.get(&call_id) else { return };
        let method = match pending.call.method {
            // 2026-07-28 has no `ping`; every server supports this instead.
            Method::Ping if !self.version.has(Feature::Ping) => Method::Discover,
            method => method,
        };
        if method == Method::Listen && !self.version.has(Feature::Listen) {
            return self.subscribe_resources(call_id);
        }
        if Method::find(method.as_str(), self.version).is_none() {
            let mismatch = VersionMismatch::MethodNotInVersion { method, version: self.version };
            return self.fail_call(call_id, ClientError::UnsupportedVersion(mismatch));
        }
        let id = self.next_message_id();
        let Some(pending) = self.pending_calls.get(&call_id) else { return };
        let cursor = match &pending.purpose {
            CallPurpose::List(_, pages) | CallPurpose::RefreshTools { pages, .. } => pages.cursor.as_deref(),
            CallPurpose::Single
            | CallPurpose::Listen
            | CallPurpose::Subscribe { .. }
            | CallPurpose::Unsubscribe { .. }
            | CallPurpose::SetLevel => None,
        };
        let round = &pending.input_round;
        let mut identity = self.client_identity();
        let mut extras = RequestExtras {
            wants_progress: pending.call.wants_progress,
            cursor,
            input_responses: &round.input_responses,
            request_state: round.request_state.as_ref(),
        };
        if let Some(relay) = pending.call.relay.as_ref().filter(|_| self.version.has(Feature::RequestMeta)) {
            (identity.capabilities, identity.log_level) = (relay.capabilities, relay.log_level);
            extras.input_responses = &relay.input_responses;
            extras.request_state = relay.request_state.as_ref();
        }
        let params = pending.call.params.clone();
        let body = outgoing::request(id, method.as_str(), &params, &extras, &identity, self.version);
        let epoch = self.session_epoch;
        if let Some(pending) = self.pending_calls.get_mut(&call_id) {
            pending.message_id = Some(id);
            pending.session_epoch = epoch;
            pending.resume_attempts = 0;
            pending.resumed = false;
            pending.stream_position = StreamPosition::default();
            pending.progress = None;
            pending.input_round = InputRound::default();
        }
        self.calls_by_message_id.insert(id, call_id);
        self.send_request(id, body, method, &params, self.version);
    }

    /// Cancels a call. A late response is ignored.
    pub fn cancel(&mut self, call_id: CallId) {
        self.abandon(call_id, ClientError::Cancelled, "the caller cancelled the request");
    }

    fn abandon(&mut self, call_id: CallId, error: ClientError, reason: &str) {
        let Some(pending) = self.remove_call(call_id) else { return };
        self.report_failure(call_id, &pending.purpose, error);
        self.send_cancellation(&pending, reason);
    }

    /// Tells the server that a call is cancelled, if its request was sent.
    fn send_cancellation(&mut self, pending: &PendingCall, reason: &str) {
        let Some(id) = pending.message_id.filter(|_| self.phase == Phase::Ready) else { return };
        if matches!(pending.purpose, CallPurpose::Listen) && !self.version.has(Feature::Listen) {
            for uri in pending.notification_filter().resource_uris {
                // The server knows one subscription for each resource of a session.
                if !self.is_subscribed(&uri) {
                    let call = ClientCall::new(Method::Unsubscribe, uri_params(&uri));
                    self.start_call(call, CallPurpose::Unsubscribe { uri });
                }
            }
            return;
        }
        // 2026-07-28, Cancellation: over HTTP, closing the stream is the signal.
        if self.transport == TransportKind::Pipe || !self.version.has(Feature::RequestMeta) {
            self.notify(outgoing::cancelled(id, reason));
        }
        if self.transport == TransportKind::Http {
            self.actions.push_back(Action::Abort(id));
        }
    }

    // Incoming.

    /// Handles a frame from the server. Over HTTP, `exchange` is the HTTP request that it answers.
    pub fn receive(&mut self, frame: Vec<u8>, exchange: Option<u64>, now: u64) {
        self.advance_clock(now);
        if self.phase == Phase::Closed {
            return;
        }
        let beginning = excerpt(&frame);
        let answered_id = unreadable::response_id(&frame);
        let doc = match parse(frame, &self.options.scan_limits) {
            Ok(doc) => doc,
            Err(error) => {
                let excerpt = beginning;
                // What is cut off when a connection breaks is no response.
                let is_whole = !matches!(error.kind, JsonErrorKind::Syntax | JsonErrorKind::InvalidUtf8);
                let exchange = exchange.or(answered_id.filter(|_| is_whole));
                match exchange.filter(|id| self.is_pending_exchange(*id)) {
                    Some(id) => {
                        let violation = ProtocolViolation::UnreadableResponse { error, excerpt };
                        self.exchange_failed(id, ClientError::ProtocolViolation(violation));
                    }
                    // Some servers print log lines to stdout.
                    None => {
                        let reason = format!("{error}: `{excerpt}`");
                        self.warn(
                            WarningKind::SkippedMessage,
                            &format!("skipped an unreadable message: {reason}"),
                        );
                        self.record_unreadable(&reason);
                    }
                }
                return;
            }
        };
        let mut skipped = None;
        for (index, message) in messages(&doc).enumerate() {
            match IncomingMessage::read(message) {
                _ if self.phase == Phase::Closed => break,
                _ if index >= MESSAGES_MAX => {
                    skipped = Some("a message beyond the limit of messages in one frame")
                }
                Ok(incoming) => self.handle_message(incoming, exchange, now),
                Err(reason) => skipped = Some(reason),
            }
        }
        // One warning for the whole frame, so that warnings cannot outgrow the input.
        if let Some(reason) = skipped {
            self.message_skipped(&format!("{reason}: `{beginning}`"));
        }
    }

    pub(super) fn handle_message(&mut self, incoming: IncomingMessage<'_>, exchange: Option<u64>, now: u64) {
        match incoming {
            IncomingMessage::Response { id, result } => {
                // An error without an id, in the HTTP response to a request, belongs to that request.
                let id = id.or(exchange.filter(|_| result.is_err()));
                match (id, self.phase) {
                    (Some(id), Phase::Probing { id: probe, version, .. }) if id == probe => {
                        self.on_probe_response(version, result, now);
                    }
                    (Some(id), Phase::Initializing { id: initialize, requested_version, .. })
                        if id == initialize =>
                    {
                        self.on_initialize_response(requested_version, result, now);
                    }
                    (Some(id), Phase::Initializing { .. }) if self.is_late_probe(id) => {
                        self.on_late_probe_response(result, now);
                    }
                    (Some(id), _) => self.on_response(id, result),
                    (None, _) => match result {
                        Ok(_) => {
                            self.warn(WarningKind::SkippedMessage, "skipped a response without a usable id")
                        }
                        Err(error) => {
                            self.warn(WarningKind::Rejected, &format!("the server reports: {error}"));
                            // Not fatal by itself: some servers reject a probe this way and accept the handshake.
                            self.last_error = Some(error).filter(|_| self.is_negotiating());
                        }
                    },
                }
            }
            IncomingMessage::Request { id, method, params } => self.on_request(id, &method, params, exchange),
            IncomingMessage::Notification { method, params } => {
                self.on_notification(&method, params, exchange)
            }
        }
    }

    pub(super) fn warn(&mut self, kind: WarningKind, message: &str) {
        self.events.push_back(ClientEvent::Warning(ProtocolWarning { kind, message: message.to_owned() }));
    }

    pub(super) fn on_response(&mut self, id: u64, result: Result<Node<'_>, ServerError>) {
        // A late response: the call was cancelled, timed out, or already has its response.
        let Some(call_id) = self.calls_by_message_id.remove(&id) else { return };
        let Some(pending) = self.pending_calls.get_mut(&call_id) else { return };
        pending.message_id = None;
        let result = match result {
            Ok(result) if result.is_object() => result,
            Ok(_) => {
                return self
                    .fail_call(call_id, ClientError::ProtocolViolation(ProtocolViolation::ResultNotObject));
            }
            Err(error)
                if error.code == ErrorCode::HeaderMismatch.number() && self.may_refresh_tools(call_id) =>
            {
                return self.refresh_tools(call_id);
            }
            Err(error) => return self.fail_call(call_id, ClientError::Server(error)),
        };
        let kind = result.get("resultType").filter(|_| self.version.has(Feature::ResultType));
        match kind.map(|kind| kind.str().unwrap_or_default()) {
            None => self.on_result(call_id, result),
            Some(kind) if kind == "complete" => self.on_result(call_id, result),
            Some(kind) if kind == "input_required" => self.input_required(call_id, result),
            // The client that this one relays for accepts tasks.
            Some(kind) if kind == "task" && self.relays_for_tasks(call_id) => self.on_result(call_id, result),
            // "Clients MUST treat an unrecognized resultType as invalid."
            Some(kind) => {
                let kind: String = kind.escape_debug().take(64).collect();
                self.fail_call(
                    call_id,
                    ClientError::ProtocolViolation(ProtocolViolation::UnknownResultType(kind)),
                );
            }
        }
    }

    fn relays_for_tasks(&self, call_id: CallId) -> bool {
        let relay = self.pending_calls.get(&call_id).and_then(|pending| pending.call.relay.as_ref());
        relay.is_some_and(|relay| relay.capabilities.has(ClientCapabilities::TASKS))
    }

    pub(super) fn on_result(&mut self, call_id: CallId, result: Node<'_>) {
        let Some(pending) = self.pending_calls.get_mut(&call_id) else { return };
        let page = match &mut pending.purpose {
            CallPurpose::Single | CallPurpose::Listen => {
                self.remove_call(call_id);
                self.events.push_back(ClientEvent::Done { call_id, result: Json::from(result) });
                return;
            }
            CallPurpose::SetLevel | CallPurpose::Unsubscribe { .. } => {
                self.remove_call(call_id);
                return self.send_unsent_calls();
            }
            CallPurpose::Subscribe { listen_call, .. } => {
                let listen_call = *listen_call;
                self.remove_call(call_id);
                return self.report_subscribed(listen_call);
            }
            CallPurpose::List(list, pages) => (*list, pages.add_page(*list, result), None),
            CallPurpose::RefreshTools { call, pages } => {
                (ListKind::Tools, pages.add_page(ListKind::Tools, result), Some(*call))
            }
        };
        match page {
            (_, PageStatus::More, _) => self.send_call(call_id),
            (list, PageStatus::Complete(items), refreshed_for) => {
                self.remove_call(call_id);
                let items = self.finish_list(list, items);
                match refreshed_for {
                    None => self.events.push_back(ClientEvent::Listed { call_id, items }),
                    Some(call) => self.send_call(call),
                }
            }
            (_, PageStatus::Invalid(violation), _) => {
                self.fail_call(call_id, ClientError::ProtocolViolation(violation));
            }
        }
    }

    /// 2026-07-28, Client Behavior: on a header mismatch, read the tools again and retry.
    pub(super) fn may_refresh_tools(&self, call_id: CallId) -> bool {
        let is_fresh_call =
            |pending: &PendingCall| pending.call.method == Method::ToolsCall && !pending.retried;
        self.transport == TransportKind::Http && self.pending_calls.get(&call_id).is_some_and(is_fresh_call)
    }

    pub(super) fn refresh_tools(&mut self, call_id: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&call_id) else { return };
        pending.retried = true;
        let call = ClientCall::new(Method::ToolsList, Json::object(|_| ()));
        self.start_call(call, CallPurpose::RefreshTools { call: call_id, pages: PageCollector::default() });
    }

    // Reports of the driver.

    /// An HTTP exchange failed.
    pub fn exchange_failed(&mut self, exchange: u64, error: ClientError) {
        match self.phase {
            Phase::Closed => {}
            Phase::Probing { id, .. } | Phase::Initializing { id, .. } if id == exchange => self.close(error),
            // Reconnecting to a stream failed; the stream itself may still be resumed.
            _ if matches!(error, ClientError::ConnectionClosed(_)) && self.was_resumed(exchange) => {
                self.stream_ended(exchange, None, None);
            }
            _ => match self.calls_by_message_id.remove(&exchange) {
                Some(call_id) => {
                    // The server has the rounds before this one.
                    let is_later_round = self.pending_calls.get(&call_id).is_some_and(|call| call.rounds > 0);
                    let error = match error {
                        ClientError::ConnectionClosed(CloseReason::NotSent(message)) if is_later_round => {
                            ClientError::ConnectionClosed(message.into())
                        }
                        error => error,
                    };
                    self.fail_call(call_id, error);
                }
                None if self.stream_exchange == Some(exchange) => self.stream_exchange = None,
                None => {
                    self.warn(WarningKind::Rejected, &format!("the server rejected a notification: {error}"))
                }
            },
        }
    }

    pub(super) fn is_pending_exchange(&self, exchange: u64) -> bool {
        match self.phase {
            Phase::Probing { id, .. } | Phase::Initializing { id, .. } if id == exchange => true,
            _ => self.calls_by_message_id.contains_key(&exchange),
        }
    }

    /// The connection closed.
    pub fn connection_closed(&mut self, reason: &str) {
        match self.last_error.take() {
            _ if self.phase == Phase::Closed => {}
            // The server named the reason before it closed the connection.
            Some(error) if self.is_negotiating() && error.code == ErrorCode::Unauthorized.number() => {
                self.close(ClientError::Server(error));
            }
            Some(error) if self.is_negotiating() => {
                let reason = CloseReason::Transport { message: reason.to_owned(), last_error: Some(error) };
                self.close(ClientError::ConnectionClosed(reason));
            }
            Some(_) | None => self.close(ClientError::ConnectionClosed(reason.into())),
        }
    }

    fn is_negotiating(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. } | Phase::Initializing { .. })
    }

    pub(super) fn close(&mut self, error: ClientError) {
        self.phase = Phase::Closed;
        let tickets: Vec<CallId> = self.pending_calls.keys().copied().collect();
        for call_id in tickets {
            self.fail_call(call_id, error.clone());
        }
        let cancelled = std::mem::take(&mut self.input_requests);
        self.events.extend(cancelled.into_keys().map(ClientEvent::InputRequestCancelled));
        self.events.push_back(ClientEvent::Closed(error));
    }

    pub(super) fn fail_call(&mut self, call_id: CallId, error: ClientError) {
        if let Some(pending) = self.remove_call(call_id) {
            self.report_failure(call_id, &pending.purpose, error);
        }
    }

    /// Reports a failure to the call that depends on this one, or to the application.
    fn report_failure(&mut self, call_id: CallId, purpose: &CallPurpose, error: ClientError) {
        match purpose {
            CallPurpose::SetLevel | CallPurpose::Unsubscribe { .. } => {
                let request = match purpose {
                    CallPurpose::SetLevel => Method::SetLevel,
                    _ => Method::Unsubscribe,
                };
                self.warn(WarningKind::Rejected, &format!("`{}` failed: {error}", request.as_str()));
                if self.phase == Phase::Ready {
                    self.send_unsent_calls();
                }
            }
            CallPurpose::RefreshTools { call, .. } => self.fail_call(*call, error),
            CallPurpose::Subscribe { listen_call, uri } => {
                self.warn(
                    WarningKind::Rejected,
                    &format!("cannot subscribe to `{}`: {error}", uri.escape_debug()),
                );
                self.drop_subscribed_uri(*listen_call, uri);
            }
            CallPurpose::Single | CallPurpose::List(..) | CallPurpose::Listen => {
                self.events.push_back(ClientEvent::Failed { call_id, error });
            }
        }
    }

    pub(super) fn remove_call(&mut self, call_id: CallId) -> Option<PendingCall> {
        let pending = self.pending_calls.remove(&call_id)?;
        if let Some(id) = pending.message_id {
            self.calls_by_message_id.remove(&id);
        }
        if let Some(deadline) = pending.deadline_ms {
            self.deadlines.remove(&(deadline, call_id));
        }
        let cancelled = self.input_requests.extract_if(.., |_, request| request.call() == Some(call_id));
        self.events.extend(cancelled.map(|(id, _)| ClientEvent::InputRequestCancelled(id)));
        Some(pending)
    }

    // Time.

    /// When the driver must call [`tick`](Self::tick) next.
    pub fn next_deadline(&self) -> Option<u64> {
        let negotiation = match self.phase {
            Phase::Probing { deadline_ms, .. } | Phase::Initializing { deadline_ms, .. } => Some(deadline_ms),
            Phase::NotStarted | Phase::Ready | Phase::Closed => None,
        };
        let next = self.deadlines.first().map(|(deadline, _)| *deadline);
        next.into_iter().chain(negotiation).min()
    }

    pub fn tick(&mut self, now: u64) {
        self.advance_clock(now);
        match self.phase {
            // 2026-07-28, stdio: "does not respond within a reasonable timeout: the server is legacy".
            Phase::Probing { id, version, deadline_ms }
                if deadline_ms <= now && self.falls_back_to_handshake() =>
            {
                self.late_probe = Some((id, version));
                self.initialize(Version::NEWEST_WITH_HANDSHAKE, now);
            }
            Phase::Probing { deadline_ms, .. } | Phase::Initializing { deadline_ms, .. }
                if deadline_ms <= now =>
            {
                let unreadable = self.last_unreadable.take().map(|(_, excerpt)| excerpt);
                self.close(ClientError::Timeout { after_ms: self.options.handshake_timeout_ms, unreadable });
            }
            Phase::Probing { .. }
            | Phase::Initializing { .. }
            | Phase::NotStarted
            | Phase::Ready
            | Phase::Closed => {}
        }
        let due: Vec<(u64, CallId)> =
            self.deadlines.iter().copied().take_while(|(deadline, _)| *deadline <= now).collect();
        for (deadline, call_id) in due {
            // The time that a user takes to answer does not count against the server.
            if self.has_open_input_request(call_id)
                && let Some(pending) = self.pending_calls.get_mut(&call_id)
            {
                let more_ms = pending.call.timeout_ms.or(pending.call.total_timeout_ms).unwrap_or(0);
                pending.ends_at_ms = pending.ends_at_ms.map(|end| end.saturating_add(more_ms));
                pending.deadline_ms = Some(now.saturating_add(more_ms));
                self.deadlines.remove(&(deadline, call_id));
                self.deadlines.extend(pending.deadline_ms.map(|deadline| (deadline, call_id)));
                continue;
            }
            let pending = self.pending_calls.get(&call_id);
            let requested = pending.and_then(|pending| match pending.ends_at_ms {
                Some(end) if end <= now => pending.call.total_timeout_ms,
                Some(_) | None => pending.call.timeout_ms,
            });
            let after_ms = requested.unwrap_or(self.options.handshake_timeout_ms);
            let unreadable = self.unreadable_since(call_id);
            self.abandon(call_id, ClientError::Timeout { after_ms, unreadable }, "the request timed out");
        }
    }

    /// Progress is a sign of life, where the call has a limit for the whole of it.
    pub(super) fn renew_deadline(&mut self, call_id: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&call_id) else { return };
        let (Some(timeout_ms), Some(end)) = (pending.call.timeout_ms, pending.ends_at_ms) else { return };
        let renewed = self.now_ms.saturating_add(timeout_ms).min(end);
        if let Some(before) = pending.deadline_ms.replace(renewed) {
            self.deadlines.remove(&(before, call_id));
        }
        self.deadlines.insert((renewed, call_id));
    }

    /// Whether an input request is open that the call may wait for. A request from the server does not name its call.
    fn has_open_input_request(&self, call_id: CallId) -> bool {
        self.input_requests.values().any(|request| match request {
            OpenInputRequest::ServerRequest { .. } => true,
            OpenInputRequest::InputRequired { call, .. } => *call == call_id,
        })
    }

    // For the driver.

    /// The next action to perform.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there are actions to perform.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next event for the application.
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// What the server declared, once it is ready.
    pub fn server_info(&self) -> Option<&ServerInfo> {
        self.server_info.as_ref()
    }

    /// The sizes of the internal tables, for tests that check for leaks.
    #[doc(hidden)]
    pub fn table_sizes(&self) -> [usize; 4] {
        [
            self.pending_calls.len(),
            self.calls_by_message_id.len(),
            self.input_requests.len(),
            self.deadlines.len(),
        ]
    }

    pub(super) fn advance_clock(&mut self, now: u64) {
        self.now_ms = self.now_ms.max(now);
    }

    pub(super) fn next_message_id(&mut self) -> u64 {
        take_next(&mut self.next_message_id)
    }

    pub(super) fn next_exchange(&mut self) -> u64 {
        take_next(&mut self.next_exchange)
    }

    pub(super) fn next_input_request(&mut self) -> InputRequestId {
        InputRequestId(take_next(&mut self.next_input_request))
    }

    pub(super) fn client_identity(&self) -> ClientIdentity<'_> {
        ClientIdentity {
            name: &self.options.name,
            version: &self.options.version,
            capabilities: self.options.capabilities,
            log_level: self.log_level,
        }
    }
}

fn take_next(counter: &mut u64) -> u64 {
    let number = *counter;
    *counter += 1;
    number
}

impl PendingCall {
    /// Whether its request can be sent: not sent yet, and no input request is open.
    pub(super) fn is_unsent(&self) -> bool {
        self.message_id.is_none() && self.input_round.open_requests.is_empty()
    }
}
