//! Checks a client's responses to input requests against what was requested.
//!
//! 2025-11-25, Elicitation: "Servers SHOULD validate received data matches the requested schema". A response that does
//! not match never reaches the handler. The handler requests the input again, and the user reads what was wrong.

use contract::CompiledSchema;
use json::{Json, Node};
use spile_core::{InputRequest, InputRequests, Journal};

use crate::open_requests::WaitingRound;

/// What the responses of a call are checked with, beside its journal.
#[derive(Default)]
pub(crate) struct ResponseChecks {
    /// Responses that the client sent with a new call, before this server requested them. They wait here, unchecked and
    /// invisible to the handler, until it requests them.
    offered: Vec<(String, Json)>,
    /// Why responses of the last round were not accepted, by key.
    rejected: Vec<(String, String)>,
    /// The state that the client sent, until a round uses it.
    resumed_state: Option<ResumedState>,
    /// Whether a response of this round is in the journal.
    has_accepted: bool,
    /// How often the client came back with the state of this round and without an answer that was accepted. `None` unless
    /// it came back with a state.
    attempts: Option<u32>,
    /// Requests that an older client has not answered while the handler runs again.
    waiting: Option<Box<WaitingRound>>,
}

/// A `requestState` that came back from a client.
pub(crate) struct ResumedState {
    pub(crate) id: RequestStateId,
    /// Whose records in the store belong to it.
    pub(crate) owner: [u8; 32],
    pub(crate) expires_ms: u64,
    /// The responses that came with it, if the journal is in the store and must be read first.
    pub(crate) unread: Option<Vec<(String, Json)>>,
    /// Whether the journal was read from the store.
    pub(crate) is_stored: bool,
}

/// Names one `requestState`: the id of its call, the round, and how often the round was repeated without an answer.
pub(crate) type RequestStateId = [u8; 24];

impl ResponseChecks {
    pub(crate) fn for_state(state: ResumedState, attempts: u32) -> Self {
        Self { resumed_state: Some(state), attempts: Some(attempts), ..Self::default() }
    }

    /// For a state that brought no answer: how often that happened now. The round is not over, so the next state is one
    /// for the same round.
    pub(crate) fn repeated_attempts(&self) -> Option<u32> {
        self.attempts.filter(|_| !self.has_accepted).map(|attempts| attempts.saturating_add(1))
    }

    /// Whether a response came that the handler will see. Without one, it asks the same again.
    pub(crate) fn has_accepted(&self) -> bool {
        self.has_accepted
    }

    /// Returns the state once.
    pub(crate) fn take_resumed_state(&mut self) -> Option<ResumedState> {
        self.resumed_state.take()
    }

    /// Whether the client was asked all of this already, and has not answered all of it.
    pub(crate) fn is_waiting_for(&self, requests: &InputRequests) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| requests.iter().all(|(key, _)| waiting.has_asked(key)))
    }

    pub(crate) fn take_waiting(&mut self) -> Option<Box<WaitingRound>> {
        self.waiting.take()
    }

    pub(crate) fn keep_waiting(&mut self, waiting: Box<WaitingRound>) {
        self.waiting = Some(waiting);
    }

    pub(crate) fn offer(&mut self, key: String, response: Json) {
        self.offered.push((key, response));
    }

    pub(crate) fn reject(&mut self, key: &str, reason: String) {
        self.rejected.push((key.to_owned(), reason));
    }

    /// Checks a response and records it, or remembers why not.
    pub(crate) fn accept(
        &mut self,
        journal: &mut Journal,
        key: &str,
        expected: &ExpectedResponse,
        response: Json,
    ) {
        match expected.check(&response) {
            Ok(()) => {
                journal.record(key, response);
                self.has_accepted = true;
            }
            Err(reason) => self.reject(key, reason),
        }
    }

    /// Checks the responses that came with a resumed call.
    pub(crate) fn accept_all(
        &mut self,
        journal: &mut Journal,
        expected: &[(String, ExpectedResponse)],
        responses: Vec<(String, Json)>,
    ) {
        for (key, response) in responses {
            match expected.iter().find(|(requested, _)| *requested == key) {
                Some((_, expected)) => self.accept(journal, &key, expected, response),
                // A client that comes back answers what it was asked; what was accepted in an earlier round stays.
                None if self.attempts.is_some() => {}
                None => self.offer(key, response),
            }
        }
    }

    /// Moves offered responses to these requests into the journal. `true` if there were any: the handler should run
    /// again before the client is asked.
    pub(crate) fn accept_offered(&mut self, journal: &mut Journal, requests: &InputRequests) -> bool {
        if requests.is_consent() {
            return false;
        }
        let mut accepted = false;
        for (key, request) in requests.iter() {
            if let Some(index) = self.offered.iter().position(|(offered, _)| offered == key) {
                let (_, response) = self.offered.swap_remove(index);
                let rejected_before = self.rejected.len();
                self.accept(journal, key, &ExpectedResponse::new(request), response);
                accepted |= self.rejected.len() == rejected_before;
            }
        }
        accepted
    }

    /// Adds to each request why the previous response was not accepted, and forgets the reasons.
    pub(crate) fn explain(&mut self, requests: InputRequests) -> InputRequests {
        if self.rejected.is_empty() {
            return requests;
        }
        let mut explained = InputRequests::default();
        for (key, request) in requests.iter() {
            let reason = self.rejected.iter().find(|(rejected, _)| rejected == key);
            let request = match reason {
                Some((_, reason)) => explain_rejection(request, reason),
                None => request.clone(),
            };
            explained = explained.with(key, request);
        }
        self.rejected.clear();
        explained
    }

    /// The first reason of the last round.
    pub(crate) fn first_rejection(&self) -> Option<&str> {
        self.rejected.first().map(|(_, reason)| reason.as_str())
    }
}

/// The request once more, with the reason why the previous response was not accepted.
pub(crate) fn explain_rejection(request: &InputRequest, reason: &str) -> InputRequest {
    let explain = |message: &str| format!("{message}\n\nThe previous answer was not accepted: {reason}.");
    match request {
        InputRequest::Form { message, schema } => {
            InputRequest::Form { message: explain(message), schema: schema.clone() }
        }
        InputRequest::Url { message, url } => {
            InputRequest::Url { message: explain(message), url: url.clone() }
        }
        InputRequest::Sampling { .. } | InputRequest::Roots => request.clone(),
    }
}

/// What a response must look like. Small enough to travel in a sealed `requestState`.
pub(crate) enum ExpectedResponse {
    /// An action, and for `accept` content that matches this schema.
    Form(Json),
    /// An action.
    Url,
    /// The handler reads the response itself.
    Any,
}

impl ExpectedResponse {
    pub(crate) fn new(request: &InputRequest) -> Self {
        match request {
            InputRequest::Form { schema, .. } => Self::Form(schema.clone()),
            InputRequest::Url { .. } => Self::Url,
            InputRequest::Sampling { .. } | InputRequest::Roots => Self::Any,
        }
    }

    /// Its text form in a sealed state: a schema, or what no schema is.
    pub(crate) fn as_sealed(&self) -> &str {
        match self {
            Self::Form(schema) => schema.as_str(),
            Self::Url => "",
            Self::Any => "*",
        }
    }

    pub(crate) fn from_sealed(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Url),
            "*" => Some(Self::Any),
            schema => Json::parse(schema).ok().map(Self::Form),
        }
    }

    /// Why a response does not match; lower case, for the end of a sentence.
    pub(crate) fn check(&self, response: &Json) -> Result<(), String> {
        let schema = match self {
            Self::Form(schema) => Some(schema),
            Self::Url => None,
            Self::Any => return Ok(()),
        };
        let doc = response.to_doc();
        let action = doc.root().get("action").and_then(|action| action.str());
        match (action.as_deref(), schema) {
            (Some("accept"), Some(schema)) => check_content(schema, doc.root().get("content")),
            (Some("accept" | "decline" | "cancel"), _) => Ok(()),
            (Some(_) | None, _) => Err("`action` must be `accept`, `decline` or `cancel`".into()),
        }
    }
}

fn check_content(schema: &Json, content: Option<Node<'_>>) -> Result<(), String> {
    match CompiledSchema::compile(schema) {
        Ok(schema) => schema.validate(content).map_err(|error| error.message),
        // A handler's mistake must not lock the user out.
        Err(error) => {
            tracing::error!(%error, "a form has an invalid schema; its answers are not checked");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"age":{"type":"integer","minimum":0},"plan":{"type":"string","enum":["free","ruby"]}},"required":["age"]}"#;

    fn check(expected: &ExpectedResponse, response: &str) -> Result<(), String> {
        expected.check(&Json::parse(response).expect("JSON"))
    }

    #[test]
    fn the_content_of_an_accepted_form_must_match_its_schema() {
        let form = ExpectedResponse::Form(Json::parse(SCHEMA).expect("JSON"));
        for (response, reason) in [
            (r#"{"action":"accept","content":{"age":36}}"#, None),
            (r#"{"action":"accept","content":{"age":36,"plan":"ruby"}}"#, None),
            (r#"{"action":"decline"}"#, None),
            (r#"{"action":"cancel","content":{"age":"x"}}"#, None),
            (r#"{"action":"accept","content":{"age":"36"}}"#, Some("`age`")),
            (r#"{"action":"accept","content":{"age":-1}}"#, Some("`age`")),
            (r#"{"action":"accept","content":{"age":1,"plan":"gold"}}"#, Some("`plan`")),
            (r#"{"action":"accept","content":{}}"#, Some("`age`")),
            (r#"{"action":"accept"}"#, Some("`age`")),
            (r#"{"action":"accept","content":"36"}"#, Some("")),
            (r#"{"action":"perhaps"}"#, Some("`action`")),
            (r#"{}"#, Some("`action`")),
            (r#""accept""#, Some("`action`")),
        ] {
            match (check(&form, response), reason) {
                (Ok(()), None) => {}
                (Err(message), Some(part)) => assert!(message.contains(part), "{response}: {message}"),
                (found, _) => panic!("{response}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_url_needs_an_action_and_other_requests_are_left_to_their_handler() {
        assert!(check(&ExpectedResponse::Url, r#"{"action":"accept"}"#).is_ok());
        assert!(check(&ExpectedResponse::Url, "{}").is_err());
        assert!(check(&ExpectedResponse::Any, "{}").is_ok());
    }

    #[test]
    fn a_sealed_expectation_is_the_same() {
        let form = ExpectedResponse::Form(Json::parse(SCHEMA).expect("JSON"));
        let sealed = form.as_sealed();
        assert!(
            matches!(ExpectedResponse::from_sealed(sealed), Some(ExpectedResponse::Form(schema)) if schema.as_str() == sealed)
        );
        for expected in [ExpectedResponse::Url, ExpectedResponse::Any] {
            let opened = ExpectedResponse::from_sealed(expected.as_sealed()).expect("sealed");
            assert_eq!(std::mem::discriminant(&opened), std::mem::discriminant(&expected));
        }
    }
}
