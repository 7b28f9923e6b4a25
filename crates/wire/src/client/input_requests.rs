//! Input requests from the server: as requests (handshake era) or in an `input_required` result.

use std::collections::BTreeMap;

use json::{Json, Node};
use spile_core::ClientCapabilities;

use super::errors::{ClientError, InputRequiredError, ProtocolViolation};
use super::outgoing;
use super::state_machine::{Client, Phase};
use super::types::{ClientEvent, WarningKind};
use super::{CallId, IncomingInputRequest, InputReply, InputRequestId, InputRequestKind};
use crate::error::ErrorCode;
use crate::id::RequestId;
use crate::method::Method;
use crate::version::Feature;

/// The open input requests of one round, and the answers so far.
#[derive(Default)]
pub(super) struct InputRound {
    pub(super) request_state: Option<Json>,
    pub(super) open_requests: BTreeMap<InputRequestId, String>,
    pub(super) input_responses: Vec<(String, Json)>,
}

pub(super) enum OpenInputRequest {
    /// Sent as a JSON-RPC request.
    ServerRequest { id: RequestId, kind: InputRequestKind, call: Option<CallId> },
    /// Part of an `input_required` result.
    InputRequired { call: CallId, kind: InputRequestKind },
}

impl OpenInputRequest {
    /// The call that it belongs to, if known.
    pub(super) fn call(&self) -> Option<CallId> {
        match self {
            Self::ServerRequest { call, .. } => *call,
            Self::InputRequired { call, .. } => Some(*call),
        }
    }
}

const DECLINE_RESULT: &str = r#"{"action":"decline"}"#;

impl Client {
    /// Replies to an input request.
    pub fn respond(&mut self, request: InputRequestId, reply: InputReply) {
        match (self.input_requests.remove(&request), reply) {
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
            (Some(OpenInputRequest::ServerRequest { id, .. }), InputReply::Declined(reason)) => {
                self.notify(outgoing::error(&id, -1, &reason));
            }
            (Some(OpenInputRequest::InputRequired { call, kind }), reply) => {
                let response = match (kind, reply) {
                    (_, InputReply::Result(result)) => result,
                    (InputRequestKind::Elicitation, InputReply::Declined(_)) => {
                        Json::parse(DECLINE_RESULT).expect("a valid constant")
                    }
                    (InputRequestKind::Roots | InputRequestKind::Sampling, InputReply::Declined(reason)) => {
                        return self.fail_call(call, ClientError::InputRefused(reason));
                    }
                };
                let Some(pending) = self.pending_calls.get_mut(&call) else { return };
                let round = &mut pending.input_round;
                if let Some(key) = round.open_requests.remove(&request) {
                    round.input_responses.push((key, response));
                }
                if round.open_requests.is_empty() {
                    self.send_call(call);
                }
            }
        }
    }

    /// Tells a server of the handshake era that the roots have changed, if the client declared that it would. Servers of other
    /// versions ask for the roots with each call that needs them.
    pub fn roots_changed(&mut self) {
        let is_declared = self.options.capabilities.has(ClientCapabilities::ROOTS_LIST_CHANGED);
        if self.phase == Phase::Ready && is_declared && self.version.has(Feature::RootsListChanged) {
            self.notify(outgoing::roots_list_changed());
        }
    }

    pub(super) fn input_required(&mut self, call: CallId, result: Node<'_>) {
        let Some(pending) = self.pending_calls.get_mut(&call) else { return };
        let invalid = |error: InputRequiredError| {
            ClientError::ProtocolViolation(ProtocolViolation::InvalidInputRequired(error))
        };
        if !matches!(pending.call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead) {
            return self.fail_call(call, invalid(InputRequiredError::MethodWithoutInput));
        }
        let relayed_capabilities = pending.call.relay.as_ref().map(|relay| relay.capabilities);
        pending.rounds += 1;
        if pending.rounds > self.options.input_rounds_max {
            let violation = ProtocolViolation::TooManyRounds { max: self.options.input_rounds_max };
            return self.fail_call(call, ClientError::ProtocolViolation(violation));
        }
        let requests = result.get("inputRequests").filter(Node::is_object);
        let state = result.get("requestState").filter(|state| state.str().is_some());
        if requests.is_none() && state.is_none() {
            return self.fail_call(call, invalid(InputRequiredError::Empty));
        }
        pending.input_round = InputRound { request_state: state.map(Json::from), ..InputRound::default() };
        let mut new_requests = Vec::new();
        for (key, request) in requests.into_iter().flat_map(|requests| requests.members()) {
            let method = request.get("method").and_then(|m| m.str()).unwrap_or_default();
            let params = request.get("params");
            let declared = relayed_capabilities.unwrap_or(self.options.capabilities);
            let Some(kind) = supported_input_kind(declared, &method, params) else {
                let method: String = method.escape_debug().take(64).collect();
                return self.fail_call(call, invalid(InputRequiredError::UndeclaredCapability { method }));
            };
            new_requests.push((key.str().unwrap_or_default().into_owned(), kind, params));
        }
        if new_requests.len() > self.options.input_requests_max {
            return self.fail_call(call, invalid(InputRequiredError::TooManyRequests));
        }
        if self.input_requests.len() + new_requests.len() > self.options.input_requests_max {
            return self.fail_call(call, ClientError::Busy);
        }
        if relayed_capabilities.is_some() {
            return self.on_result(call, result);
        }
        if new_requests.is_empty() {
            return self.send_call(call);
        }
        for (key, kind, params) in new_requests {
            let id = self.next_input_request();
            self.input_requests.insert(id, OpenInputRequest::InputRequired { call, kind });
            if let Some(pending) = self.pending_calls.get_mut(&call) {
                pending.input_round.open_requests.insert(id, key);
            }
            self.emit_input_request(id, Some(call), kind, params);
        }
    }

    pub(super) fn emit_input_request(
        &mut self,
        id: InputRequestId,
        call: Option<CallId>,
        kind: InputRequestKind,
        params: Option<Node<'_>>,
    ) {
        let params = params.map_or_else(|| Json::object(|_| ()), Json::from);
        self.events.push_back(ClientEvent::InputRequested(IncomingInputRequest { id, call, kind, params }));
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
            return self.warn(
                WarningKind::SkippedMessage,
                &format!(
                    "skipped a request from the server, which this protocol version does not allow: `{}`",
                    method.escape_debug()
                ),
            );
        }
        if self.is_stale_exchange(exchange) {
            return;
        }
        if method == "ping" {
            return self.notify(outgoing::result(&id, "{}"));
        }
        let call = exchange.and_then(|exchange| self.calls_by_message_id.get(&exchange)).copied();
        match supported_input_kind(self.options.capabilities, method, params) {
            None => {
                let text = format!("method not found: `{}`", method.escape_debug());
                self.notify(outgoing::error(&id, ErrorCode::MethodNotFound.number(), &text));
            }
            Some(_) if self.input_requests.len() >= self.options.input_requests_max => {
                self.notify(outgoing::error(&id, ErrorCode::Busy.number(), "too many open input requests"));
            }
            Some(kind) => {
                let request = self.next_input_request();
                self.input_requests.insert(request, OpenInputRequest::ServerRequest { id, kind, call });
                self.emit_input_request(request, call, kind, params);
            }
        }
    }

    /// Over HTTP: whether an exchange belongs to an earlier session or to no call.
    fn is_stale_exchange(&self, exchange: Option<u64>) -> bool {
        let Some(exchange) = exchange else { return false };
        let pending = self.calls_by_message_id.get(&exchange).and_then(|call| self.pending_calls.get(call));
        let is_current = pending.is_some_and(|pending| pending.session_epoch == self.session_epoch);
        self.phase != Phase::Ready || !(is_current || self.stream_exchange == Some(exchange))
    }

    /// The server cancels an input request or ends a subscription.
    pub(super) fn on_cancelled(&mut self, id: Option<Node<'_>>) {
        if self.version.has(Feature::Listen) {
            if let Some(call) = id.and_then(|id| id.u64()).and_then(|id| self.listen_call(id)) {
                self.remove_call(call);
                self.events.push_back(ClientEvent::Done { call_id: call, result: Json::object(|_| ()) });
            }
            return;
        }
        let Some(cancelled) = id.and_then(RequestId::read) else { return };
        let is_cancelled = |request: &OpenInputRequest| matches!(request, OpenInputRequest::ServerRequest { id, .. } if *id == cancelled);
        let found = self.input_requests.iter().find(|(_, request)| is_cancelled(request)).map(|(id, _)| *id);
        let Some(request) = found else { return };
        self.input_requests.remove(&request);
        self.events.push_back(ClientEvent::InputRequestCancelled(request));
    }
}

/// The kind of an input request; `None` if the client declared no capability for it.
fn supported_input_kind(
    declared: ClientCapabilities,
    method: &str,
    params: Option<Node<'_>>,
) -> Option<InputRequestKind> {
    let (kind, required) = match method {
        "roots/list" => (InputRequestKind::Roots, ClientCapabilities::ROOTS),
        "sampling/createMessage" => (InputRequestKind::Sampling, ClientCapabilities::SAMPLING),
        "elicitation/create" => {
            let is_url_mode = params.and_then(|p| p.get("mode")).is_some_and(|mode| mode.eq_str("url"));
            let mode = match is_url_mode {
                true => ClientCapabilities::ELICITATION_URL,
                false => ClientCapabilities::ELICITATION_FORM,
            };
            (InputRequestKind::Elicitation, mode)
        }
        _ => return None,
    };
    declared.has(required).then_some(kind)
}
