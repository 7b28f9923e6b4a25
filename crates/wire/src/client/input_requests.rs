//! What the server wants to know: requests of its own, or parts of a result that is none yet.

use std::collections::BTreeMap;

use json::{Json, Node};
use spile_core::ClientCapabilities;

use super::outgoing;
use super::state_machine::{Client, Phase};
use super::types::{ClientError, ClientEvent};
use super::{CallId, IncomingInputRequest, InputReply, InputRequestId, InputRequestKind};
use crate::error::ErrorCode;
use crate::id::RequestId;
use crate::method::Method;
use crate::version::Feature;

/// What a round brought, and what has been answered of it.
#[derive(Default)]
pub(super) struct InputRound {
    pub(super) request_state: Option<Json>,
    pub(super) open_requests: BTreeMap<InputRequestId, String>,
    pub(super) input_responses: Vec<(String, Json)>,
}

pub(super) enum OpenInputRequest {
    /// A request of the server's own.
    ServerRequest { id: RequestId, kind: InputRequestKind, call: Option<CallId> },
    /// A part of a round.
    InputRequired { call: CallId, kind: InputRequestKind },
}

impl OpenInputRequest {
    /// The call that it belongs to, where that is known.
    pub(super) fn call(&self) -> Option<CallId> {
        match self {
            Self::ServerRequest { call: of, .. } => *of,
            Self::InputRequired { call: of, .. } => Some(*of),
        }
    }
}

const DECLINE_RESULT: &str = r#"{"action":"decline"}"#;

impl Client {
    /// Answers a question.
    pub fn respond(&mut self, ask: InputRequestId, answer: InputReply) {
        match (self.input_requests.remove(&ask), answer) {
            (None, _) => {}
            (Some(OpenInputRequest::ServerRequest { id, .. }), InputReply::Result(result)) => {
                self.notify(outgoing::result(&id, result.as_str()));
            }
            (
                Some(OpenInputRequest::ServerRequest { id, kind: InputRequestKind::Elicitation, .. }),
                InputReply::Declined(_),
            ) => {
                self.notify(outgoing::result(&id, DECLINE_RESULT));
            }
            // 2025-11-25, Sampling: the code for "User rejected".
            (Some(OpenInputRequest::ServerRequest { id, .. }), InputReply::Declined(why)) => {
                self.notify(outgoing::error(&id, -1, &why));
            }
            (Some(OpenInputRequest::InputRequired { call: of, kind }), answer) => {
                let answer = match (kind, answer) {
                    (_, InputReply::Result(result)) => result,
                    (InputRequestKind::Elicitation, InputReply::Declined(_)) => {
                        Json::parse(DECLINE_RESULT).expect("our own")
                    }
                    (InputRequestKind::Roots | InputRequestKind::Sampling, InputReply::Declined(why)) => {
                        return self.fail_call(of, ClientError::InputRefused(why));
                    }
                };
                let Some(pending) = self.pending_calls.get_mut(&of) else { return };
                let round = &mut pending.input_round;
                if let Some(key) = round.open_requests.remove(&ask) {
                    round.input_responses.push((key, answer));
                }
                if round.open_requests.is_empty() {
                    self.send_call(of);
                }
            }
        }
    }

    pub(super) fn input_required(&mut self, ticket: CallId, result: Node<'_>) {
        let Some(pending) = self.pending_calls.get_mut(&ticket) else { return };
        let wrong =
            |why: &str| ClientError::ProtocolViolation(format!("questions that cannot be answered: {why}"));
        if !matches!(pending.call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead) {
            return self.fail_call(ticket, wrong("this kind of request has none"));
        }
        pending.rounds += 1;
        if pending.rounds > self.options.input_rounds_max {
            let why = format!("more than {} rounds of questions", self.options.input_rounds_max);
            return self.fail_call(ticket, ClientError::ProtocolViolation(why));
        }
        let requests = result.get("inputRequests").filter(Node::is_object);
        let state = result.get("requestState").filter(|state| state.str().is_some());
        if requests.is_none() && state.is_none() {
            return self.fail_call(ticket, wrong("there are none, and no state to go on with"));
        }
        pending.input_round = InputRound { request_state: state.map(Json::from), ..InputRound::default() };
        let mut questions = Vec::new();
        for (key, request) in requests.into_iter().flat_map(|requests| requests.members()) {
            let method = request.get("method").and_then(|m| m.str()).unwrap_or_default();
            let params = request.get("params");
            let Some(kind) = self.supported_input_kind(&method, params) else {
                let method: String = method.escape_debug().take(64).collect();
                return self
                    .fail_call(ticket, wrong(&format!("`{method}` is nothing that this client offers")));
            };
            questions.push((key.str().unwrap_or_default().into_owned(), kind, params));
        }
        if questions.len() > self.options.input_requests_max {
            return self.fail_call(ticket, wrong("too many at once"));
        }
        if self.input_requests.len() + questions.len() > self.options.input_requests_max {
            return self.fail_call(ticket, ClientError::Busy);
        }
        if questions.is_empty() {
            return self.send_call(ticket);
        }
        for (key, kind, params) in questions {
            let id = InputRequestId(self.next_id());
            self.input_requests.insert(id, OpenInputRequest::InputRequired { call: ticket, kind });
            if let Some(pending) = self.pending_calls.get_mut(&ticket) {
                pending.input_round.open_requests.insert(id, key);
            }
            self.emit_input_request(id, Some(ticket), kind, params);
        }
    }

    pub(super) fn emit_input_request(
        &mut self,
        id: InputRequestId,
        of: Option<CallId>,
        kind: InputRequestKind,
        params: Option<Node<'_>>,
    ) {
        let params = params.map_or_else(|| Json::object(|_| ()), Json::from);
        self.events.push_back(ClientEvent::InputRequested(IncomingInputRequest {
            id,
            call: of,
            kind,
            params,
        }));
    }

    /// What a question is, if it is one that we said we would answer.
    pub(super) fn supported_input_kind(
        &self,
        method: &str,
        params: Option<Node<'_>>,
    ) -> Option<InputRequestKind> {
        let (kind, needs) = match method {
            "roots/list" => (InputRequestKind::Roots, ClientCapabilities::ROOTS),
            "sampling/createMessage" => (InputRequestKind::Sampling, ClientCapabilities::SAMPLING),
            "elicitation/create" => {
                let by_url = params.and_then(|p| p.get("mode")).is_some_and(|mode| mode.eq_str("url"));
                (
                    InputRequestKind::Elicitation,
                    if by_url {
                        ClientCapabilities::ELICITATION_URL
                    } else {
                        ClientCapabilities::ELICITATION_FORM
                    },
                )
            }
            _ => return None,
        };
        self.options.capabilities.has(needs).then_some(kind)
    }

    pub(super) fn on_request(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<Node<'_>>,
        exchange: Option<u64>,
    ) {
        // 2026-07-28, stdio: "The server MUST NOT write JSON-RPC requests".
        if self.phase == Phase::Ready && !self.version.has(Feature::ServerRequests) {
            return self.warn(&format!("a request of the server's own: `{}`", method.escape_debug()));
        }
        if self.is_stale_exchange(exchange) {
            return;
        }
        if method == "ping" {
            return self.notify(outgoing::result(&id, "{}"));
        }
        let of = exchange.and_then(|exchange| self.calls_by_message_id.get(&exchange)).copied();
        match self.supported_input_kind(method, params) {
            None => {
                let text = format!("method not found: `{}`", method.escape_debug());
                self.notify(outgoing::error(&id, ErrorCode::MethodNotFound.number(), &text));
            }
            Some(_) if self.input_requests.len() >= self.options.input_requests_max => {
                self.notify(outgoing::error(&id, ErrorCode::Busy.number(), "too many questions at once"));
            }
            Some(kind) => {
                let ask = InputRequestId(self.next_id());
                self.input_requests.insert(ask, OpenInputRequest::ServerRequest { id, kind, call: of });
                self.emit_input_request(ask, of, kind, params);
            }
        }
    }

    /// Over HTTP: whether an exchange belongs to a session that is gone, or to nobody.
    fn is_stale_exchange(&self, exchange: Option<u64>) -> bool {
        let Some(exchange) = exchange else { return false };
        let pending =
            self.calls_by_message_id.get(&exchange).and_then(|ticket| self.pending_calls.get(ticket));
        let is_current = pending.is_some_and(|pending| pending.session_epoch == self.session_epoch);
        self.phase != Phase::Ready || !(is_current || self.stream_exchange == Some(exchange))
    }

    /// The server takes back a question, or ends a subscription.
    pub(super) fn on_cancelled(&mut self, id: Option<Node<'_>>) {
        if self.version.has(Feature::Listen) {
            if let Some(ticket) = id.and_then(|id| id.u64()).and_then(|id| self.listen_call(id)) {
                self.remove_call(ticket);
                self.events.push_back(ClientEvent::Done { ticket, result: Json::object(|_| ()) });
            }
            return;
        }
        let Some(wanted) = id.and_then(RequestId::read) else { return };
        let is_it = |ask: &OpenInputRequest| matches!(ask, OpenInputRequest::ServerRequest { id, .. } if *id == wanted);
        let Some(ask) = self.input_requests.iter().find(|(_, ask)| is_it(ask)).map(|(id, _)| *id) else {
            return;
        };
        self.input_requests.remove(&ask);
        self.events.push_back(ClientEvent::InputRequestCancelled(ask));
    }
}
