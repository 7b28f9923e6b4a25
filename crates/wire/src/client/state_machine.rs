//! The machine itself: what was asked, what is under way, what came back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use json::{Json, Node, scan};
use spile_core::LogLevel;

use super::http::StreamPosition;
use super::incoming::{IncomingMessage, messages};
use super::input_requests::{InputRound, OpenInputRequest};
use super::lists::{PageCollector, PageStatus};
use super::outgoing::{self, ClientIdentity, RequestExtras};
use super::param_headers::ParamHeaders;
use super::types::{
    Action, ClientCall, ClientError, ClientEvent, ClientOptions, ServerInfo, TransportKind, excerpt,
};
use super::{CallId, InputRequestId, ServerError};
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
    /// A probe that was given up as unanswered, while the handshake in its place is under way.
    pub(super) late_probe: Option<(u64, Version)>,
    /// How often the server has been greeted.
    pub(super) session_epoch: u32,
    pub(super) log_level: Option<LogLevel>,
    pub(super) next_id: u64,
    /// The latest time that was heard of.
    pub(super) now_ms: u64,
    /// The latest on a pipe that could not be read, and the next id when it came.
    pub(super) last_unreadable: Option<(u64, String)>,
    /// The latest error on a pipe that belongs to no request, while the server has not been greeted.
    pub(super) last_error: Option<ServerError>,
    pub(super) pending_calls: BTreeMap<CallId, PendingCall>,
    pub(super) calls_by_message_id: BTreeMap<u64, CallId>,
    /// The deadlines of all calls, the next one first: it is asked for with every frame.
    deadlines: BTreeSet<(u64, CallId)>,
    pub(super) input_requests: BTreeMap<InputRequestId, OpenInputRequest>,
    pub(super) param_headers: BTreeMap<String, ParamHeaders>,
    /// The exchange of the stream that belongs to no request.
    pub(super) stream_exchange: Option<u64>,
    pub(super) stream_resumes: u32,
    pub(super) stream_position: StreamPosition,
    pub(super) actions: VecDeque<Action>,
    pub(super) events: VecDeque<ClientEvent>,
}

/// More than this in one frame is no batch of answers.
const MESSAGES_MAX: usize = 4096;

/// A request that somebody waits for.
pub(super) struct PendingCall {
    pub(super) call: ClientCall,
    pub(super) purpose: CallPurpose,
    /// The message under way; none while it waits for the server to be ready, or for answers.
    pub(super) message_id: Option<u64>,
    deadline_ms: Option<u64>,
    pub(super) session_epoch: u32,
    pub(super) rounds: u32,
    pub(super) resume_attempts: u32,
    /// Whether it has been sent again after the tools were read anew.
    pub(super) retried: bool,
    /// Whether its stream was taken up again: the server has begun with it.
    pub(super) resumed: bool,
    pub(super) stream_position: StreamPosition,
    /// The progress of the message under way.
    pub(super) progress: Option<f64>,
    pub(super) input_round: InputRound,
}

pub(super) enum CallPurpose {
    Single,
    List(ListKind, PageCollector),
    Listen,
    /// The tools are read again for a call that had the wrong headers.
    RefreshTools {
        call: CallId,
        pages: PageCollector,
    },
    /// One resource of a subscription in the handshake era.
    Subscribe {
        listen_call: CallId,
        uri: String,
    },
    /// Nobody waits; only a failure is told.
    Background,
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
            next_id: 1,
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

    // What goes out.

    /// Asks for something; it is sent as soon as the server is ready.
    pub fn call(&mut self, call: ClientCall, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(call, CallPurpose::Single)
    }

    /// Reads a whole list.
    pub fn list(&mut self, list: ListKind, timeout_ms: Option<u64>, now: u64) -> CallId {
        self.advance_clock(now);
        let call = ClientCall { timeout_ms, ..ClientCall::new(list.method(), Json::object(|_| ())) };
        self.start_call(call, CallPurpose::List(list, PageCollector::default()))
    }

    /// Asks to be told of changes until it is cancelled.
    pub fn listen(&mut self, filter: &NotificationFilter, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(ClientCall::new(Method::Listen, filter_params(filter)), CallPurpose::Listen)
    }

    /// Asks whether anybody is there.
    pub fn ping(&mut self, timeout_ms: Option<u64>, now: u64) -> CallId {
        self.advance_clock(now);
        self.start_call(
            ClientCall { timeout_ms, ..ClientCall::new(Method::Ping, Json::object(|_| ())) },
            CallPurpose::Single,
        )
    }

    /// The mildest log message that is wanted from now on.
    pub fn set_level(&mut self, level: LogLevel, now: u64) {
        self.advance_clock(now);
        self.log_level = Some(level);
        if self.phase == Phase::Ready {
            self.send_level();
        }
    }

    /// In the handshake era the level is a request of its own.
    pub(super) fn send_level(&mut self) {
        if let Some(level) = self.log_level
            && self.version.has(Feature::SetLevel)
            && self.server_supports("logging")
        {
            let params = Json::object(|params| {
                params.str("level", level.as_str());
            });
            self.start_call(ClientCall::new(Method::SetLevel, params), CallPurpose::Background);
        }
    }

    /// Whether the server declared something.
    pub fn server_supports(&self, capability: &str) -> bool {
        let Some(greeting) = &self.server_info else { return false };
        greeting.capabilities.to_doc().root().get(capability).is_some_and(|it| it.is_object())
    }

    pub(super) fn start_call(&mut self, call: ClientCall, goes: CallPurpose) -> CallId {
        let ticket = CallId(self.next_id());
        if self.pending_calls.len() >= self.options.calls_max {
            self.report_failure(ticket, &goes, ClientError::Busy);
            return ticket;
        }
        let after_ms = match goes {
            CallPurpose::Single | CallPurpose::List(..) | CallPurpose::Listen => call.timeout_ms,
            // Whoever set it going is not waiting for it, so nobody else would ever give it up.
            CallPurpose::RefreshTools { .. } | CallPurpose::Subscribe { .. } | CallPurpose::Background => {
                Some(self.options.handshake_timeout_ms)
            }
        };
        let deadline = after_ms.map(|ms| self.now_ms.saturating_add(ms));
        let round_state = InputRound::default();
        let pending = PendingCall {
            call,
            purpose: goes,
            message_id: None,
            deadline_ms: deadline,
            session_epoch: self.session_epoch,
            rounds: 0,
            resume_attempts: 0,
            retried: false,
            resumed: false,
            stream_position: StreamPosition::default(),
            progress: None,
            input_round: round_state,
        };
        self.pending_calls.insert(ticket, pending);
        self.deadlines.extend(deadline.map(|deadline| (deadline, ticket)));
        match self.phase {
            Phase::Ready => self.send_call(ticket),
            Phase::Closed => {
                self.fail_call(ticket, ClientError::ConnectionClosed("the connection is closed".to_owned()))
            }
            Phase::NotStarted | Phase::Probing { .. } | Phase::Initializing { .. } => {}
        }
        ticket
    }

    pub(super) fn send_unsent_calls(&mut self) {
        let waiting: Vec<CallId> = self
            .pending_calls
            .iter()
            .filter(|(_, call)| call.is_unsent())
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in waiting {
            self.send_call(ticket);
        }
    }

    /// Sends a request, its next page or its next round.
    pub(super) fn send_call(&mut self, ticket: CallId) {
        let Some(pending) = self.pending_calls.get(&ticket) else { return };
        let method = match pending.call.method {
            // 2026-07-28 has no ping; this is answered by every server too.
            Method::Ping if !self.version.has(Feature::Ping) => Method::Discover,
            method => method,
        };
        if method == Method::Listen && !self.version.has(Feature::Listen) {
            return self.subscribe_resources(ticket);
        }
        if Method::find(method.as_str(), self.version).is_none() {
            let why = format!("protocol {} has no `{}`", self.version.as_str(), method.as_str());
            return self.fail_call(ticket, ClientError::UnsupportedVersion(why));
        }
        let id = self.next_id();
        let Some(pending) = self.pending_calls.get(&ticket) else { return };
        let cursor = match &pending.purpose {
            CallPurpose::List(_, pages) | CallPurpose::RefreshTools { pages, .. } => pages.cursor.as_deref(),
            CallPurpose::Single
            | CallPurpose::Listen
            | CallPurpose::Subscribe { .. }
            | CallPurpose::Background => None,
        };
        let extras = RequestExtras {
            wants_progress: pending.call.wants_progress,
            cursor,
            input_responses: &pending.input_round.input_responses,
            request_state: pending.input_round.request_state.as_ref(),
        };
        let params = pending.call.params.clone();
        let body =
            outgoing::request(id, method.as_str(), &params, &extras, &self.client_identity(), self.version);
        let epoch = self.session_epoch;
        if let Some(pending) = self.pending_calls.get_mut(&ticket) {
            pending.message_id = Some(id);
            pending.session_epoch = epoch;
            pending.resume_attempts = 0;
            pending.resumed = false;
            pending.stream_position = StreamPosition::default();
            pending.progress = None;
            pending.input_round = InputRound::default();
        }
        self.calls_by_message_id.insert(id, ticket);
        self.send_request(id, body, method, &params, self.version);
    }

    /// In the handshake era changes are told unasked, except those of single resources.
    pub(super) fn subscribe_resources(&mut self, ticket: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return };
        // It is under way, and nothing will answer it.
        pending.message_id = Some(0);
        let wanted = pending.notification_filter();
        for uri in wanted.resource_uris {
            let call = ClientCall::new(Method::Subscribe, uri_params(&uri));
            self.start_call(call, CallPurpose::Subscribe { listen_call: ticket, uri });
        }
        self.report_subscribed(ticket);
    }

    /// A subscription stands when each of its resources has been answered for: whoever looks at one after that
    /// misses nothing.
    fn report_subscribed(&mut self, ticket: CallId) {
        let is_part = |pending: &PendingCall| matches!(pending.purpose, CallPurpose::Subscribe { listen_call, .. } if listen_call == ticket);
        if self.pending_calls.values().any(is_part) {
            return;
        }
        if let Some(pending) = self.pending_calls.get(&ticket).filter(|pending| pending.message_id.is_some())
        {
            let granted = pending.notification_filter();
            self.events.push_back(ClientEvent::SubscriptionStarted { ticket, granted });
        }
    }

    /// What the server will not tell of is no part of the subscription.
    fn drop_subscribed_uri(&mut self, ticket: CallId, uri: &str) {
        if let Some(pending) = self.pending_calls.get_mut(&ticket) {
            let mut filter = pending.notification_filter();
            filter.resource_uris.retain(|wanted| wanted != uri);
            pending.call.params = filter_params(&filter);
        }
        self.report_subscribed(ticket);
    }

    /// Gives up waiting. Whatever still comes of it is dropped.
    pub fn cancel(&mut self, ticket: CallId) {
        self.abandon(ticket, ClientError::Cancelled, "nobody waits for it any more");
    }

    fn abandon(&mut self, ticket: CallId, why: ClientError, reason: &str) {
        let Some(pending) = self.remove_call(ticket) else { return };
        self.report_failure(ticket, &pending.purpose, why);
        self.send_cancellation(&pending, reason);
    }

    /// Tells the server that nobody waits, if it has heard of it at all.
    fn send_cancellation(&mut self, pending: &PendingCall, why: &str) {
        let Some(id) = pending.message_id.filter(|_| self.phase == Phase::Ready) else { return };
        if matches!(pending.purpose, CallPurpose::Listen) && !self.version.has(Feature::Listen) {
            for uri in pending.notification_filter().resource_uris {
                self.start_call(
                    ClientCall::new(Method::Unsubscribe, uri_params(&uri)),
                    CallPurpose::Background,
                );
            }
            return;
        }
        // 2026-07-28, Cancellation: over HTTP, closing the stream is the signal.
        if self.transport == TransportKind::Pipe || !self.version.has(Feature::Envelope) {
            self.notify(outgoing::cancelled(id, why));
        }
        if self.transport == TransportKind::Http {
            self.actions.push_back(Action::Abort(id));
        }
    }

    // What comes in.

    /// A frame from the server. Over HTTP it came back in an exchange.
    pub fn receive(&mut self, frame: Vec<u8>, exchange: Option<u64>, now: u64) {
        self.advance_clock(now);
        if self.phase == Phase::Closed {
            return;
        }
        let beginning = excerpt(&frame);
        let doc = match scan(frame, &self.options.scan_limits) {
            Ok(doc) => doc,
            Err(bad) => {
                let what = format!("{bad}: `{beginning}`");
                match exchange.filter(|id| self.is_pending_exchange(*id)) {
                    Some(id) => self.exchange_failed(
                        id,
                        ClientError::ProtocolViolation(format!("the answer cannot be read: {what}")),
                    ),
                    // Some servers print what they should log.
                    None => {
                        self.warn(&format!("skipped what cannot be read: {what}"));
                        self.record_unreadable(&what);
                    }
                }
                return;
            }
        };
        let mut skipped = None;
        for (nth, message) in messages(&doc).enumerate() {
            match IncomingMessage::read(message) {
                _ if self.phase == Phase::Closed => break,
                _ if nth >= MESSAGES_MAX => skipped = Some("more messages at once than make sense"),
                Ok(incoming) => self.handle_message(incoming, exchange, now),
                Err(why) => skipped = Some(why),
            }
        }
        // Once for all of them: what comes in must not be outgrown by what is said about it.
        if let Some(why) = skipped {
            self.message_skipped(&format!("{why}: `{beginning}`"));
        }
    }

    pub(super) fn handle_message(&mut self, incoming: IncomingMessage<'_>, exchange: Option<u64>, now: u64) {
        match incoming {
            IncomingMessage::Response { id, result: answer } => {
                // An error that belongs to no request, in the exchange of one, is about that.
                let id = id.or(exchange.filter(|_| answer.is_err()));
                match (id, self.phase) {
                    (Some(id), Phase::Probing { id: probe, version, .. }) if id == probe => {
                        self.on_probe_response(version, answer, now);
                    }
                    (Some(id), Phase::Initializing { id: greeting, requested_version: requested, .. })
                        if id == greeting =>
                    {
                        self.on_initialize_response(requested, answer, now);
                    }
                    (Some(id), Phase::Initializing { .. }) if self.is_late_probe(id) => {
                        self.on_late_probe_response(answer, now);
                    }
                    (Some(id), _) => self.on_response(id, answer),
                    (None, _) => match answer {
                        Ok(_) => self.warn("an answer to nothing that was asked"),
                        Err(told) => {
                            self.warn(&format!("the server reports: {} ({})", told.message, told.code));
                            // Not the end by itself: some say so of a probe, and take the handshake.
                            self.last_error = Some(told).filter(|_| self.is_negotiating());
                        }
                    },
                }
            }
            IncomingMessage::Request { id, method, params } => self.on_request(id, &method, params, exchange),
            IncomingMessage::Notification { method, params } => self.on_notification(&method, params),
        }
    }

    pub(super) fn warn(&mut self, what: &str) {
        self.events.push_back(ClientEvent::Warning(what.to_owned()));
    }

    pub(super) fn on_response(&mut self, id: u64, answer: Result<Node<'_>, ServerError>) {
        // Late: cancelled, timed out, or answered twice.
        let Some(ticket) = self.calls_by_message_id.remove(&id) else { return };
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return };
        pending.message_id = None;
        let result = match answer {
            Ok(result) if result.is_object() => result,
            Ok(_) => {
                return self.fail_call(
                    ticket,
                    ClientError::ProtocolViolation("a result that is no object".to_owned()),
                );
            }
            Err(told)
                if told.code == ErrorCode::HeaderMismatch.number() && self.may_refresh_tools(ticket) =>
            {
                return self.refresh_tools(ticket);
            }
            Err(told) => return self.fail_call(ticket, ClientError::Server(told)),
        };
        let kind = result.get("resultType").filter(|_| self.version.has(Feature::ResultType));
        match kind.map(|kind| kind.str().unwrap_or_default()) {
            None => self.on_result(ticket, result),
            Some(kind) if kind == "complete" => self.on_result(ticket, result),
            Some(kind) if kind == "input_required" => self.input_required(ticket, result),
            // "Clients MUST treat an unrecognized resultType as invalid."
            Some(kind) => {
                let kind: String = kind.escape_debug().take(64).collect();
                self.fail_call(
                    ticket,
                    ClientError::ProtocolViolation(format!("a result of the unknown kind `{kind}`")),
                );
            }
        }
    }

    pub(super) fn on_result(&mut self, ticket: CallId, result: Node<'_>) {
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return };
        let turned = match &mut pending.purpose {
            CallPurpose::Single | CallPurpose::Background | CallPurpose::Listen => {
                let pending = self.remove_call(ticket);
                if !matches!(pending, Some(PendingCall { purpose: CallPurpose::Background, .. })) {
                    self.events.push_back(ClientEvent::Done { ticket, result: Json::from(result) });
                }
                return;
            }
            CallPurpose::Subscribe { listen_call: of, .. } => {
                let of = *of;
                self.remove_call(ticket);
                return self.report_subscribed(of);
            }
            CallPurpose::List(list, pages) => (*list, pages.add_page(*list, result), None),
            CallPurpose::RefreshTools { call: of, pages } => {
                (ListKind::Tools, pages.add_page(ListKind::Tools, result), Some(*of))
            }
        };
        match turned {
            (_, PageStatus::More, _) => self.send_call(ticket),
            (list, PageStatus::Complete(items), of) => {
                self.remove_call(ticket);
                let items = self.finish_list(list, items);
                match of {
                    None => self.events.push_back(ClientEvent::Listed { ticket, items }),
                    // Nobody but ourselves asked for this list.
                    Some(of) => self.send_call(of),
                }
            }
            (_, PageStatus::Invalid(why), _) => self.fail_call(ticket, ClientError::ProtocolViolation(why)),
        }
    }

    /// 2026-07-28, Client Behavior: on a header mismatch, read the tools again and retry.
    pub(super) fn may_refresh_tools(&self, ticket: CallId) -> bool {
        let is_fresh_call =
            |pending: &PendingCall| pending.call.method == Method::ToolsCall && !pending.retried;
        self.transport == TransportKind::Http && self.pending_calls.get(&ticket).is_some_and(is_fresh_call)
    }

    pub(super) fn refresh_tools(&mut self, ticket: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return };
        pending.retried = true;
        let call = ClientCall::new(Method::ToolsList, Json::object(|_| ()));
        self.start_call(call, CallPurpose::RefreshTools { call: ticket, pages: PageCollector::default() });
    }

    // What the driver reports.

    /// An exchange came to nothing.
    pub fn exchange_failed(&mut self, exchange: u64, why: ClientError) {
        match self.phase {
            Phase::Closed => {}
            Phase::Probing { id, .. } | Phase::Initializing { id, .. } if id == exchange => self.close(why),
            // The way back to a stream broke, not the stream.
            _ if matches!(why, ClientError::ConnectionClosed(_)) && self.was_resumed(exchange) => {
                self.stream_ended(exchange, None, None);
            }
            _ => match self.calls_by_message_id.remove(&exchange) {
                Some(ticket) => self.fail_call(ticket, why),
                None if self.stream_exchange == Some(exchange) => self.stream_exchange = None,
                None => self.warn(&format!("a notification was not taken: {why}")),
            },
        }
    }

    pub(super) fn is_pending_exchange(&self, exchange: u64) -> bool {
        match self.phase {
            Phase::Probing { id, .. } | Phase::Initializing { id, .. } if id == exchange => true,
            _ => self.calls_by_message_id.contains_key(&exchange),
        }
    }

    /// The connection is gone.
    pub fn connection_closed(&mut self, why: &str) {
        match self.last_error.take() {
            _ if self.phase == Phase::Closed => {}
            // Who says why and hangs up has said it all.
            Some(told) if self.is_negotiating() && told.code == ErrorCode::Unauthorized.number() => {
                self.close(ClientError::Server(told));
            }
            Some(told) if self.is_negotiating() => {
                let why = format!("{why}; before that it said: {} ({})", told.message, told.code);
                self.close(ClientError::ConnectionClosed(why));
            }
            Some(_) | None => self.close(ClientError::ConnectionClosed(why.to_owned())),
        }
    }

    fn is_negotiating(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. } | Phase::Initializing { .. })
    }

    pub(super) fn close(&mut self, why: ClientError) {
        self.phase = Phase::Closed;
        let tickets: Vec<CallId> = self.pending_calls.keys().copied().collect();
        for ticket in tickets {
            self.fail_call(ticket, why.clone());
        }
        let asks = std::mem::take(&mut self.input_requests);
        self.events.extend(asks.into_keys().map(ClientEvent::InputRequestCancelled));
        self.events.push_back(ClientEvent::Closed(why));
    }

    pub(super) fn fail_call(&mut self, ticket: CallId, why: ClientError) {
        if let Some(pending) = self.remove_call(ticket) {
            self.report_failure(ticket, &pending.purpose, why);
        }
    }

    /// Tells whoever waits for it, who may not be the one that it was begun for.
    fn report_failure(&mut self, ticket: CallId, goes: &CallPurpose, why: ClientError) {
        match goes {
            CallPurpose::Background => self.warn(&format!("a request of our own failed: {why}")),
            CallPurpose::RefreshTools { call: of, .. } => self.fail_call(*of, why),
            CallPurpose::Subscribe { listen_call: of, uri } => {
                self.warn(&format!("`{}` cannot be subscribed to: {why}", uri.escape_debug()));
                self.drop_subscribed_uri(*of, uri);
            }
            CallPurpose::Single | CallPurpose::List(..) | CallPurpose::Listen => {
                self.events.push_back(ClientEvent::Failed { ticket, error: why });
            }
        }
    }

    pub(super) fn remove_call(&mut self, ticket: CallId) -> Option<PendingCall> {
        let pending = self.pending_calls.remove(&ticket)?;
        if let Some(id) = pending.message_id {
            self.calls_by_message_id.remove(&id);
        }
        if let Some(deadline) = pending.deadline_ms {
            self.deadlines.remove(&(deadline, ticket));
        }
        let asks = self.input_requests.extract_if(.., |_, ask| ask.call() == Some(ticket));
        self.events.extend(asks.map(|(id, _)| ClientEvent::InputRequestCancelled(id)));
        Some(pending)
    }

    // The clock.

    /// When [`tick`](Self::tick) has something to do.
    pub fn next_deadline(&self) -> Option<u64> {
        let opening = match self.phase {
            Phase::Probing { deadline_ms: until, .. } | Phase::Initializing { deadline_ms: until, .. } => {
                Some(until)
            }
            Phase::NotStarted | Phase::Ready | Phase::Closed => None,
        };
        let next = self.deadlines.first().map(|(deadline, _)| *deadline);
        next.into_iter().chain(opening).min()
    }

    pub fn tick(&mut self, now: u64) {
        self.advance_clock(now);
        match self.phase {
            // 2026-07-28, stdio: "does not respond within a reasonable timeout: the server is legacy".
            Phase::Probing { id, version, deadline_ms: until }
                if until <= now && self.falls_back_to_handshake() =>
            {
                self.late_probe = Some((id, version));
                self.initialize(Version::NEWEST_WITH_HANDSHAKE, now);
            }
            Phase::Probing { deadline_ms: until, .. } | Phase::Initializing { deadline_ms: until, .. }
                if until <= now =>
            {
                let unreadable = self.last_unreadable.take().map(|(_, what)| what);
                self.close(ClientError::Timeout { after_ms: self.options.handshake_timeout_ms, unreadable });
            }
            Phase::Probing { .. }
            | Phase::Initializing { .. }
            | Phase::NotStarted
            | Phase::Ready
            | Phase::Closed => {}
        }
        let due: Vec<(u64, CallId)> =
            self.deadlines.iter().copied().take_while(|(at, _)| *at <= now).collect();
        for (at, ticket) in due {
            // While somebody is being asked, it is not the server that takes its time.
            if self.has_open_input_request(ticket)
                && let Some(pending) = self.pending_calls.get_mut(&ticket)
            {
                pending.deadline_ms = pending.call.timeout_ms.map(|ms| now.saturating_add(ms));
                self.deadlines.remove(&(at, ticket));
                self.deadlines.extend(pending.deadline_ms.map(|deadline| (deadline, ticket)));
                continue;
            }
            let asked_for = self.pending_calls.get(&ticket).and_then(|pending| pending.call.timeout_ms);
            let after_ms = asked_for.unwrap_or(self.options.handshake_timeout_ms);
            let unreadable = self.unreadable_since(ticket);
            self.abandon(ticket, ClientError::Timeout { after_ms, unreadable }, "it took too long");
        }
    }

    /// It may have been the answer that somebody waits for.
    pub(super) fn record_unreadable(&mut self, what: &str) {
        if self.transport == TransportKind::Pipe {
            self.last_unreadable = Some((self.next_id, what.to_owned()));
        }
    }

    /// What could not be read since a call was sent.
    fn unreadable_since(&self, ticket: CallId) -> Option<String> {
        let sent = self.pending_calls.get(&ticket)?.message_id?;
        let (next, what) = self.last_unreadable.as_ref()?;
        (sent < *next).then(|| what.clone())
    }

    /// Whether a question is open that a call may be waiting for. A server's own request does not say which.
    fn has_open_input_request(&self, ticket: CallId) -> bool {
        self.input_requests.values().any(|ask| match ask {
            OpenInputRequest::ServerRequest { .. } => true,
            OpenInputRequest::InputRequired { call: of, .. } => *of == ticket,
        })
    }

    // For the driver.

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there is something to be done.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// What happened.
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// What the server said of itself, once it did.
    pub fn server_info(&self) -> Option<&ServerInfo> {
        self.server_info.as_ref()
    }

    /// How many requests, ids under way, questions and deadlines it keeps: for those who test that it forgets them.
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

    pub(super) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
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

fn uri_params(uri: &str) -> Json {
    Json::object(|params| {
        params.str("uri", uri);
    })
}

fn filter_params(filter: &NotificationFilter) -> Json {
    Json::object(|params| {
        params.object("notifications", |out| filter.write(out));
    })
}

impl PendingCall {
    /// What a subscription is for.
    fn notification_filter(&self) -> NotificationFilter {
        let doc = self.call.params.to_doc();
        NotificationFilter::read(doc.root().get("notifications")).unwrap_or_default()
    }

    /// Whether it has not been sent, and no answer is waited for first.
    pub(super) fn is_unsent(&self) -> bool {
        self.message_id.is_none() && self.input_round.open_requests.is_empty()
    }
}
