//! The expected state: what was started, requested and sent, and whether it is consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use json::Json;
use serde_json::Value;
use wire::client::{
    CallId, Client, ClientError, ClientEvent, ClientOptions, IncomingInputRequest, InputRequestId,
    TransportKind,
};
use wire::error::ErrorCode;
use wire::version::{Feature, Version};
use wire::{Decoded, ListKind, Notification};

use super::super::scripted_provider::ScriptedProvider;
use super::FuzzInput;

pub(super) struct PairModel {
    provider: Arc<ScriptedProvider>,
    is_traced: bool,
    link: TransportKind,
    /// The version that both support.
    expected_version: Option<Version>,
    has_tight_limits: bool,
    calls_max: usize,
    asks_max: usize,
    handshake_ms: u64,

    pending: BTreeMap<CallId, PendingRequest>,
    last_number: u64,
    input_requests: BTreeMap<InputRequestId, InputRequestRecord>,
    /// Requests of the client by id, as they were sent.
    sent_requests: BTreeMap<u64, SentRequest>,
    /// Requests of the server by id, and whether they were answered.
    server_requests: BTreeMap<u64, bool>,
    /// Calls that must not run any more.
    stopped: BTreeSet<u64>,
    handshakes: u32,
    /// How often the server forgot a session, and how often a connection broke.
    pub(super) lost_sessions: u32,
    cuts: u32,
    /// Whether a peer violates the protocol so that the client complains.
    pub(super) has_misbehaved: bool,
    is_closing: bool,
    closed_with: Option<ClientError>,
}

/// A request with a waiting caller.
#[derive(Debug)]
pub(super) struct PendingRequest {
    kind: RequestType,
    timeout_ms: Option<u64>,
    deadline_ms: Option<u64>,
    ended: bool,
    cancelled: bool,
    /// The connection or session of the request is gone.
    is_disconnected: bool,
    progress: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestType {
    Call { n: u64, script: String, progress: bool },
    List(ListKind),
    Listen,
    Ping,
}

impl PendingRequest {
    pub(super) fn new(kind: RequestType, timeout_ms: Option<u64>, now: u64) -> Self {
        let deadline_ms = timeout_ms.map(|ms| now + ms);
        let (ended, cancelled, is_disconnected, progress) = (false, false, false, None);
        Self { kind, timeout_ms, deadline_ms, ended, cancelled, is_disconnected, progress }
    }

    fn script_has(&self, acts: &[char]) -> bool {
        matches!(&self.kind, RequestType::Call { script, .. } if script.contains(acts))
    }
}

#[derive(Debug)]
struct InputRequestRecord {
    call_id: Option<CallId>,
    is_open: bool,
}

/// A request as it was sent.
#[derive(Debug, Default)]
struct SentRequest {
    method: String,
    /// The number of the call.
    number: Option<u64>,
    arrived: bool,
    answered: bool,
    /// The client has sent a cancellation.
    cancel_sent: bool,
    /// The server has received a cancellation.
    cancel_received: bool,
}

impl PairModel {
    pub(super) fn new(
        provider: Arc<ScriptedProvider>,
        link: TransportKind,
        expected_version: Option<Version>,
        has_tight_limits: bool,
        terms: &ClientOptions,
    ) -> Self {
        Self {
            provider,
            is_traced: std::env::var_os("SPILE_PAIR_SEED").is_some(),
            link,
            expected_version,
            has_tight_limits,
            calls_max: terms.calls_max,
            asks_max: terms.input_requests_max,
            handshake_ms: terms.handshake_timeout_ms,
            pending: BTreeMap::new(),
            last_number: 0,
            input_requests: BTreeMap::new(),
            sent_requests: BTreeMap::new(),
            server_requests: BTreeMap::new(),
            stopped: BTreeSet::new(),
            handshakes: 0,
            lost_sessions: 0,
            cuts: 0,
            has_misbehaved: has_tight_limits,
            is_closing: false,
            closed_with: None,
        }
    }

    /// Prints the steps of a simulation that runs alone.
    pub(super) fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.is_traced {
            eprintln!("{what}");
        }
    }

    // Actions of the user.

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn record_started(&mut self, call_id: CallId, line: PendingRequest) {
        assert!(self.pending.insert(call_id, line).is_none(), "one call_id for two requests");
    }

    pub(super) fn record_cancel(&mut self, call_id: CallId) {
        let line = self.pending.get_mut(&call_id).expect("a call_id that was given");
        line.cancelled |= !line.ended;
    }

    pub(super) fn any_ticket(&self, input: &mut FuzzInput<'_>) -> Option<CallId> {
        // The latest are chosen more often.
        let nth = input.below(4).min(self.pending.len().checked_sub(1)?);
        self.pending.keys().rev().nth(nth).copied()
    }

    /// Any input request that was ever sent.
    pub(super) fn any_input_request(&self, input: &mut FuzzInput<'_>) -> Option<InputRequestId> {
        let nth = input.below(3).min(self.input_requests.len().checked_sub(1)?);
        self.input_requests.keys().rev().nth(nth).copied()
    }

    pub(super) fn record_answer(&mut self, ask: InputRequestId) {
        let ask = self.input_requests.get_mut(&ask).expect("a question that was put");
        ask.is_open = false;
        // Another round is counted separately.
        if let Some(line) = ask.call_id.and_then(|of| self.pending.get_mut(&of)) {
            line.progress = None;
        }
    }

    pub(super) fn open_input_requests(&self) -> Vec<InputRequestId> {
        self.input_requests.iter().filter(|(_, ask)| ask.is_open).map(|(id, _)| *id).collect()
    }

    pub(super) fn open_subscriptions(&self) -> Vec<CallId> {
        let is_open = |line: &PendingRequest| line.kind == RequestType::Listen && !line.ended;
        self.pending.iter().filter(|(_, line)| is_open(line)).map(|(call_id, _)| *call_id).collect()
    }

    pub(super) fn all_ended(&self) -> bool {
        self.pending.values().all(|line| line.ended || line.kind == RequestType::Listen)
    }

    // Events of the link.

    /// Something broke that all requests may have depended on.
    pub(super) fn disconnect_all(&mut self) {
        self.trace(format_args!("        something breaks"));
        self.cuts += 1;
        self.pending.values_mut().for_each(|line| line.is_disconnected = true);
    }

    /// A connection broke on which this request was to be answered.
    pub(super) fn disconnect_one(&mut self, id: u64) {
        self.trace(format_args!("        the connection of {id} breaks"));
        self.cuts += 1;
        let Some(request) = self.sent_requests.get(&id) else { return };
        let Some(n) = request.number else { return self.disconnect_all() };
        let is_it =
            |line: &&mut PendingRequest| matches!(line.kind, RequestType::Call { n: own, .. } if own == n);
        self.pending.values_mut().filter(is_it).for_each(|line| line.is_disconnected = true);
    }

    /// The caller of this request has gone away, and the server has seen that.
    pub(super) fn mark_stopped(&mut self, id: u64) {
        if let Some(request) = self.sent_requests.get_mut(&id) {
            request.cancel_received = true;
            if request.arrived && !request.answered {
                self.stopped.extend(request.number);
            }
        }
    }

    pub(super) fn mark_closing(&mut self) {
        self.is_closing = true;
    }

    // Messages.

    /// The client sends a message.
    pub(super) fn client_sent(&mut self, body: &[u8]) {
        self.trace(format_args!("        > {}", String::from_utf8_lossy(body)));
        assert!(self.closed_with.is_none(), "said after the end: {}", String::from_utf8_lossy(body));
        let message = parse_json(body);
        assert_eq!(message["jsonrpc"], "2.0");
        if let (Some(method), Some(id)) = (message["method"].as_str(), message["id"].as_u64()) {
            let n = message["params"]["arguments"]["n"].as_u64();
            let request = SentRequest { method: method.to_owned(), number: n, ..SentRequest::default() };
            assert!(self.sent_requests.insert(id, request).is_none(), "the id {id} is used twice");
        } else if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].as_u64().expect("our ids are numbers");
            self.sent_requests.get_mut(&id).expect("what was asked").cancel_sent = true;
        }
    }

    /// A message of the client reached the host.
    pub(super) fn server_received(&mut self, message: &Value, opened: &Decoded) {
        self.trace(format_args!("        at the server: {} {}", message["id"], message["method"]));
        match opened {
            Decoded::Request(_) => {
                let id = message["id"].as_u64().expect("our ids are numbers");
                let request = self.sent_requests.get_mut(&id).expect("what comes was sent");
                assert!(!std::mem::replace(&mut request.arrived, true), "{message} came twice");
                // A client that did the handshake gets list changes, even if it uses the newest version afterwards.
                self.has_misbehaved |=
                    request.method == "initialize" && self.expected_version == Some(Version::NEWEST);
            }
            Decoded::Notification(Notification::Initialized) => {}
            Decoded::Notification(Notification::Cancelled(_)) => {
                let id = message["params"]["requestId"].as_u64().expect("our ids are numbers");
                let request = self.sent_requests.get(&id).unwrap_or_else(|| panic!("{message}: never asked"));
                assert!(request.method != "initialize", "a handshake is not cancelled");
                self.mark_stopped(id);
            }
            Decoded::Response { id, .. } => {
                let id = id.unwrap_or_else(|| panic!("{message} answers nothing"));
                let answered = self.server_requests.get_mut(&id);
                let answered = answered.unwrap_or_else(|| panic!("{message}: never asked"));
                assert!(!std::mem::replace(answered, true), "{message} answers again");
            }
            Decoded::Rejected(refusal) => {
                let code = parse_json(&refusal.body)["error"]["code"].as_i64().unwrap_or_default();
                let is_expected = match (refusal.http_status, code) {
                    (404, code) if code == ErrorCode::SessionNotFound.number() => self.lost_sessions > 0,
                    // The server has no prompts.
                    (_, code) if code == ErrorCode::MethodNotFound.number() => {
                        message["method"] == "prompts/list"
                    }
                    _ => false,
                };
                let body = String::from_utf8_lossy(&refusal.body);
                assert!(is_expected, "{message} is refused with {} {body}", refusal.http_status);
            }
            Decoded::Notification(Notification::RootsListChanged | Notification::Other) => {
                panic!("an unknown notification: {message}")
            }
            Decoded::Batch(_) => panic!("we send no batches: {message}"),
        }
    }

    /// The server sent a message: recorded on a pipe when it leaves, over HTTP when it arrives.
    pub(super) fn server_sent(&mut self, message: &Value) {
        self.trace(format_args!("        < {message}"));
        let id = message["id"].as_u64();
        let request =
            |id: u64| self.sent_requests.get(&id).unwrap_or_else(|| panic!("{message}: never asked"));
        if message["method"] == "notifications/progress" {
            let token = message["params"]["progressToken"].as_u64().expect("our tokens are numbers");
            let request = request(token);
            assert!(!request.answered, "{message} comes after the answer");
            assert!(
                !request.cancel_received || self.link == TransportKind::Http,
                "{message} comes after it was cancelled"
            );
        } else if message["method"].is_string() {
            if let Some(id) = id {
                // A message of a forgotten session may carry an id of the next one.
                let is_new = self.server_requests.insert(id, false).is_none();
                assert!(is_new || self.lost_sessions > 0, "{message} is asked twice");
            }
        } else {
            let id = id.unwrap_or_else(|| panic!("{message} answers nothing"));
            let request = request(id);
            assert!(!request.answered, "{message} answers again");
            assert!(
                !request.cancel_received || self.link == TransportKind::Http,
                "{message} comes after it was cancelled"
            );
            self.sent_requests.entry(id).or_default().answered = true;
        }
    }

    // Events of the client.

    pub(super) fn client_event(&mut self, event: ClientEvent, now: u64) {
        self.trace(format_args!("{now:>7} ! {event:?}"));
        match event {
            ClientEvent::Ready(greeting) => {
                self.handshakes += 1;
                // A new session numbers its requests anew.
                self.server_requests.clear();
                assert_eq!(
                    Some(greeting.protocol_version),
                    self.expected_version,
                    "not the newest that both know"
                );
                assert!(
                    self.handshakes <= 1 + self.lost_sessions,
                    "a second handshake without a lost session"
                );
            }
            ClientEvent::Done { call_id, result } => {
                let line = self.mark_ended(call_id);
                match line.kind.clone() {
                    RequestType::Call { n, .. } => self.check_own_result(call_id, n, &result),
                    RequestType::Ping => {}
                    RequestType::Listen => panic!("a subscription ended by itself"),
                    RequestType::List(_) => panic!("a list is no result"),
                }
            }
            ClientEvent::Listed { call_id, items } => {
                let line = self.mark_ended(call_id);
                assert_eq!(line.kind, RequestType::List(ListKind::Tools));
                assert_eq!(items.len(), 1);
            }
            ClientEvent::Failed { call_id, error: why } => {
                self.mark_ended(call_id);
                if matches!(why, ClientError::Cancelled | ClientError::Timeout { .. })
                    && self.closed_with.is_none()
                {
                    self.check_cancel_sent(call_id);
                }
                let may = self.is_closing || self.may_fail(call_id, &why, now);
                assert!(may, "at {now}: {:?} failed: {why:?}", self.pending[&call_id]);
            }
            ClientEvent::Progress { call_id, progress, .. } => {
                let line = self.pending.get_mut(&call_id).expect("a call_id that was given");
                assert!(!line.ended, "progress after the end of {line:?}");
                assert!(
                    matches!(line.kind, RequestType::Call { progress: true, .. }),
                    "progress without a token"
                );
                assert!(line.progress.is_none_or(|last| progress > last), "progress goes back: {line:?}");
                line.progress = Some(progress);
            }
            ClientEvent::Log { data, .. } => {
                let n = parse_json(data.as_str().as_bytes())["n"].as_u64();
                assert!(n.is_some_and(|n| n <= self.last_number), "a log message of no call: {data}");
            }
            ClientEvent::CatalogChanged(_) => {
                let is_free = self.expected_version.is_some_and(|version| version.has(Feature::Subscribe));
                assert!(is_free || self.pending.values().any(|line| line.kind == RequestType::Listen));
            }
            ClientEvent::SubscriptionStarted { call_id, granted } => {
                let line = &self.pending[&call_id];
                assert!(
                    line.kind == RequestType::Listen && !line.ended && granted.tools_list_changed,
                    "{line:?}"
                );
            }
            ClientEvent::InputRequested(question) => self.record_input_request(question),
            ClientEvent::InputRequestCancelled(id) => {
                let ask = self.input_requests.get_mut(&id).expect("a question that was put");
                assert!(ask.is_open, "a question is withdrawn that is not open");
                ask.is_open = false;
            }
            ClientEvent::ElicitationCompleted(id) => panic!("no server here asks at a URL: {id}"),
            ClientEvent::Warning(what) => {
                let is_excused = self.has_misbehaved
                    || self.cuts > 0
                    || self.lost_sessions > 0
                    || self.is_closing
                    // A cancelled request timed out.
                    || now >= self.handshake_ms;
                assert!(is_excused, "the client complains: {what}");
            }
            ClientEvent::Closed(why) => {
                let may = match &why {
                    ClientError::UnsupportedVersion(_) => self.expected_version.is_none(),
                    ClientError::Timeout { .. } => now >= self.handshake_ms,
                    ClientError::ConnectionClosed(_) => self.is_closing || self.cuts > 0,
                    _ => self.lost_sessions > 0 && self.cuts > 0,
                };
                assert!(may, "at {now}: unexpected end: {why:?}");
                assert!(self.closed_with.is_none(), "ended twice");
                assert!(self.pending.values().all(|line| line.ended), "ended with a waiting caller");
                self.closed_with = Some(why);
            }
        }
    }

    fn mark_ended(&mut self, call_id: CallId) -> &PendingRequest {
        let line = self.pending.get_mut(&call_id).expect("a call_id that was given");
        assert!(!line.ended, "{line:?} ends twice");
        line.ended = true;
        let is_left = self.input_requests.values().any(|ask| ask.is_open && ask.call_id == Some(call_id));
        assert!(!is_left, "{line:?} ends, and leaves a question");
        line
    }

    fn check_own_result(&self, call_id: CallId, n: u64, result: &Json) {
        let line = &self.pending[&call_id];
        assert!(!line.cancelled, "{line:?} is cancelled and done");
        let value = parse_json(result.as_str().as_bytes());
        let text = value["content"][0]["text"].as_str().unwrap_or_default();
        match text.strip_prefix("done ") {
            Some(done) => {
                assert_eq!(done, n.to_string(), "the result of another call: {line:?}");
                assert_eq!(self.provider.log().finished.get(&n), Some(&1), "{line:?}");
                assert!(!line.script_has(&['f']));
            }
            None => {
                assert_eq!(value["isError"], true, "{result}");
                assert!(line.script_has(&['a', 's', 'f']), "{line:?} came to {result}");
            }
        }
    }

    /// The client cancels an unanswered call whose caller has gone away.
    fn check_cancel_sent(&self, call_id: CallId) {
        let RequestType::Call { n, .. } = self.pending[&call_id].kind else { return };
        // In a session that is gone there is nothing to cancel.
        let is_told = self.lost_sessions > 0
            || (self.link == TransportKind::Http && self.expected_version == Some(Version::NEWEST));
        let last = self.sent_requests.iter().rev().find(|(_, request)| request.number == Some(n));
        if let Some((id, request)) = last.filter(|_| !is_told) {
            assert!(request.answered || request.cancel_sent, "{id} is dropped without a cancellation");
        }
    }

    fn may_fail(&self, call_id: CallId, why: &ClientError, now: u64) -> bool {
        let line = &self.pending[&call_id];
        match why {
            ClientError::Cancelled => line.cancelled,
            ClientError::Timeout { after_ms, .. } => {
                let is_due =
                    line.timeout_ms == Some(*after_ms) && line.deadline_ms.is_some_and(|by| by <= now);
                is_due || (*after_ms == self.handshake_ms && now >= self.handshake_ms)
            }
            ClientError::Server(body) => {
                let is_busy = self.has_tight_limits && body.code == ErrorCode::Busy.number();
                let is_left = body.code == ErrorCode::SessionNotFound.number() && line.is_disconnected;
                line.script_has(&['a', 's', 'f'])
                    || line.kind == RequestType::List(ListKind::Prompts)
                    || is_busy
                    || is_left
            }
            ClientError::UnsupportedVersion(_) => self.expected_version.is_none(),
            ClientError::Busy => self.has_tight_limits,
            ClientError::ConnectionClosed(_)
            | ClientError::ProtocolViolation(_)
            | ClientError::HttpStatus { .. } => line.is_disconnected,
            ClientError::Unauthorized { .. } | ClientError::InputRefused(_) => false,
        }
    }

    fn record_input_request(&mut self, question: IncomingInputRequest) {
        if let Some(of) = question.call {
            assert!(!self.pending[&of].ended, "an input request of an ended call");
        }
        let ask = InputRequestRecord { call_id: question.call, is_open: true };
        assert!(self.input_requests.insert(question.id, ask).is_none(), "one id for two questions");
    }

    // Consistency.

    /// The client has not forgotten a request with a waiting caller, and cancelled calls do not run.
    pub(super) fn check_consistent(&self, client: &Client) {
        let [calls, ids, requests, due] = client.table_sizes();
        let waiting = self.pending.values().filter(|line| !line.ended).count();
        assert!(calls >= waiting, "{waiting} wait, and the client knows of {calls}");
        let fits = calls <= self.calls_max && ids <= calls && due <= calls && requests <= self.asks_max;
        assert!(fits, "{calls} calls, {ids} ids, {due} deadlines, {requests} questions");
        assert_eq!(requests, self.input_requests.values().filter(|ask| ask.is_open).count());
        let notes = self.provider.log();
        for n in &self.stopped {
            let works = notes.running.get(n).is_some_and(|count| *count > 0);
            assert!(!works, "call {n} is cancelled, and works on");
        }
        for ((n, round), count) in &notes.rounds_started {
            assert_eq!(*count, 1, "round {round} of call {n} was begun {count} times");
        }
    }

    pub(super) fn check_all_ended(&self) {
        for line in self.pending.values() {
            assert!(line.ended, "the link is up, and this never ends: {line:?}");
        }
        assert!(self.handshakes > 0, "the client is neither ready nor over");
        assert_eq!(self.open_input_requests(), [], "input requests of ended calls");
    }

    pub(super) fn check_final_state(&self, client: &Client) {
        assert!(self.closed_with.is_some() && client.is_closed());
        assert_eq!(client.table_sizes(), [0; 4], "the client keeps something");
        assert!(self.pending.values().all(|line| line.ended));
    }
}

pub(super) fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("no JSON: {e}: {}", String::from_utf8_lossy(body)))
}
