//! What the server wants to know: requests of its own, or parts of a result that is none yet.

use std::collections::BTreeMap;

use call::Caps;
use json::{Json, Node};

use super::machine::{Client, Phase};
use super::outgoing;
use super::words::{Event, Failure};
use super::{Answer, AskId, Asked, Question, Ticket};
use crate::code::Code;
use crate::id::Id;
use crate::method::Method;
use crate::version::Feature;

/// What a round brought, and what has been answered of it.
#[derive(Default)]
pub(super) struct Round {
    pub(super) state: Option<Json>,
    pub(super) open: BTreeMap<AskId, String>,
    pub(super) answers: Vec<(String, Json)>,
}

pub(super) enum OpenAsk {
    /// A request of the server's own.
    Request { id: Id, kind: Asked, of: Option<Ticket> },
    /// A part of a round.
    Input { of: Ticket, kind: Asked },
}

impl OpenAsk {
    /// The call that it belongs to, where that is known.
    pub(super) fn of(&self) -> Option<Ticket> {
        match self {
            Self::Request { of, .. } => *of,
            Self::Input { of, .. } => Some(*of),
        }
    }
}

const DECLINED: &str = r#"{"action":"decline"}"#;

impl Client {
    /// Answers a question.
    pub fn answer(&mut self, ask: AskId, answer: Answer) {
        match (self.asks.remove(&ask), answer) {
            (None, _) => {}
            (Some(OpenAsk::Request { id, .. }), Answer::Given(result)) => {
                self.notify(outgoing::result(&id, result.as_str()));
            }
            (Some(OpenAsk::Request { id, kind: Asked::Elicitation, .. }), Answer::Refused(_)) => {
                self.notify(outgoing::result(&id, DECLINED));
            }
            // 2025-11-25, Sampling: the code for "User rejected".
            (Some(OpenAsk::Request { id, .. }), Answer::Refused(why)) => {
                self.notify(outgoing::error(&id, -1, &why));
            }
            (Some(OpenAsk::Input { of, kind }), answer) => {
                let answer = match (kind, answer) {
                    (_, Answer::Given(result)) => result,
                    (Asked::Elicitation, Answer::Refused(_)) => Json::parse(DECLINED).expect("our own"),
                    (Asked::Roots | Asked::Sampling, Answer::Refused(why)) => {
                        return self.fail(of, Failure::Refused(why));
                    }
                };
                let Some(pending) = self.calls.get_mut(&of) else { return };
                let round = &mut pending.round_state;
                if let Some(key) = round.open.remove(&ask) {
                    round.answers.push((key, answer));
                }
                if round.open.is_empty() {
                    self.send_pending(of);
                }
            }
        }
    }

    pub(super) fn input_required(&mut self, ticket: Ticket, result: Node<'_>) {
        let Some(pending) = self.calls.get_mut(&ticket) else { return };
        let wrong = |why: &str| Failure::NotMcp(format!("questions that cannot be answered: {why}"));
        if !matches!(pending.call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead) {
            return self.fail(ticket, wrong("this kind of request has none"));
        }
        pending.round += 1;
        if pending.round > self.terms.rounds_max {
            let why = format!("more than {} rounds of questions", self.terms.rounds_max);
            return self.fail(ticket, Failure::NotMcp(why));
        }
        let requests = result.get("inputRequests").filter(Node::is_object);
        let state = result.get("requestState").filter(|state| state.str().is_some());
        if requests.is_none() && state.is_none() {
            return self.fail(ticket, wrong("there are none, and no state to go on with"));
        }
        pending.round_state = Round { state: state.map(Json::from), ..Round::default() };
        let mut questions = Vec::new();
        for (key, request) in requests.into_iter().flat_map(|requests| requests.members()) {
            let method = request.get("method").and_then(|m| m.str()).unwrap_or_default();
            let params = request.get("params");
            let Some(kind) = self.understood(&method, params) else {
                let method: String = method.escape_debug().take(64).collect();
                return self.fail(ticket, wrong(&format!("`{method}` is nothing that this client offers")));
            };
            questions.push((key.str().unwrap_or_default().into_owned(), kind, params));
        }
        if questions.len() > self.terms.asks_max {
            return self.fail(ticket, wrong("too many at once"));
        }
        if self.asks.len() + questions.len() > self.terms.asks_max {
            return self.fail(ticket, Failure::Busy);
        }
        if questions.is_empty() {
            return self.send_pending(ticket);
        }
        for (key, kind, params) in questions {
            let id = AskId(self.next_id());
            self.asks.insert(id, OpenAsk::Input { of: ticket, kind });
            if let Some(pending) = self.calls.get_mut(&ticket) {
                pending.round_state.open.insert(id, key);
            }
            self.ask(id, Some(ticket), kind, params);
        }
    }

    pub(super) fn ask(&mut self, id: AskId, of: Option<Ticket>, kind: Asked, params: Option<Node<'_>>) {
        let params = params.map_or_else(|| Json::object(|_| ()), Json::from);
        self.events.push_back(Event::Asked(Question { id, of, kind, params }));
    }

    /// What a question is, if it is one that we said we would answer.
    pub(super) fn understood(&self, method: &str, params: Option<Node<'_>>) -> Option<Asked> {
        let (kind, needs) = match method {
            "roots/list" => (Asked::Roots, Caps::ROOTS),
            "sampling/createMessage" => (Asked::Sampling, Caps::SAMPLING),
            "elicitation/create" => {
                let by_url = params.and_then(|p| p.get("mode")).is_some_and(|mode| mode.is("url"));
                (Asked::Elicitation, if by_url { Caps::ELICIT_URL } else { Caps::ELICIT_FORM })
            }
            _ => return None,
        };
        self.terms.caps.has(needs).then_some(kind)
    }

    pub(super) fn requested(
        &mut self,
        id: Id,
        method: &str,
        params: Option<Node<'_>>,
        exchange: Option<u64>,
    ) {
        // 2026-07-28, stdio: "The server MUST NOT write JSON-RPC requests".
        if self.phase == Phase::Open && !self.version.has(Feature::ServerRequests) {
            return self.odd(&format!("a request of the server's own: `{}`", method.escape_debug()));
        }
        if self.is_of_the_past(exchange) {
            return;
        }
        if method == "ping" {
            return self.notify(outgoing::result(&id, "{}"));
        }
        let of = exchange.and_then(|exchange| self.ids.get(&exchange)).copied();
        match self.understood(method, params) {
            None => {
                let text = format!("method not found: `{}`", method.escape_debug());
                self.notify(outgoing::error(&id, Code::MethodNotFound.number(), &text));
            }
            Some(_) if self.asks.len() >= self.terms.asks_max => {
                self.notify(outgoing::error(&id, Code::Busy.number(), "too many questions at once"));
            }
            Some(kind) => {
                let ask = AskId(self.next_id());
                self.asks.insert(ask, OpenAsk::Request { id, kind, of });
                self.ask(ask, of, kind, params);
            }
        }
    }

    /// Over HTTP: whether an exchange belongs to a session that is gone, or to nobody.
    fn is_of_the_past(&self, exchange: Option<u64>) -> bool {
        let Some(exchange) = exchange else { return false };
        let pending = self.ids.get(&exchange).and_then(|ticket| self.calls.get(ticket));
        let is_current = pending.is_some_and(|pending| pending.epoch == self.epoch);
        self.phase != Phase::Open || !(is_current || self.stream == Some(exchange))
    }

    /// The server takes back a question, or ends a subscription.
    pub(super) fn withdrawn(&mut self, id: Option<Node<'_>>) {
        if self.version.has(Feature::Listen) {
            if let Some(ticket) = id.and_then(|id| id.u64()).and_then(|id| self.listening(id)) {
                self.drop_call(ticket);
                self.events.push_back(Event::Done { ticket, result: Json::object(|_| ()) });
            }
            return;
        }
        let Some(wanted) = id.and_then(Id::read) else { return };
        let is_it = |ask: &OpenAsk| matches!(ask, OpenAsk::Request { id, .. } if *id == wanted);
        let Some(ask) = self.asks.iter().find(|(_, ask)| is_it(ask)).map(|(id, _)| *id) else { return };
        self.asks.remove(&ask);
        self.events.push_back(Event::Withdrawn(ask));
    }
}
