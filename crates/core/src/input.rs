//! Input requests to the user or the client's model, and the journal of the answers.

use std::sync::OnceLock;

use json::{Doc, Json, Node, NodeKind};

use crate::caller::ClientCapabilities;
use crate::provider::{Checkpoints, Platform};

/// One input request. How it is sent depends on the client's protocol version; providers need not know.
#[derive(Debug, Clone)]
pub enum InputRequest {
    /// Elicitation by form. `schema` is flat: only primitive properties.
    Form { message: String, schema: Json },
    /// Elicitation by URL, for input that must not pass through the client.
    Url { message: String, url: String },
    /// Sampling by the client's model; the `params` of `sampling/createMessage`.
    Sampling { params: Json },
    /// The client's roots (`roots/list`).
    Roots,
}

impl InputRequest {
    /// The capabilities that the client must have declared.
    pub fn required_capabilities(&self) -> ClientCapabilities {
        match self {
            Self::Form { .. } => ClientCapabilities::ELICITATION_FORM,
            Self::Url { .. } => ClientCapabilities::ELICITATION_URL,
            Self::Sampling { params } => {
                let doc = params.to_doc();
                let tools = doc.root().get("tools").is_some() || doc.root().get("toolChoice").is_some();
                if tools {
                    ClientCapabilities::SAMPLING.with(ClientCapabilities::SAMPLING_TOOLS)
                } else {
                    ClientCapabilities::SAMPLING
                }
            }
            Self::Roots => ClientCapabilities::ROOTS,
        }
    }

    /// Whether it is a form with a field that takes several choices.
    pub fn has_multi_select(&self) -> bool {
        let Self::Form { schema, .. } = self else { return false };
        let doc = schema.to_doc();
        let Some(properties) = doc.root().get("properties") else { return false };
        properties.members().any(|(_, field)| field.get("type").is_some_and(|kind| kind.eq_str("array")))
    }
}

/// Input requests of one round, each under a key that the provider chooses, and what the provider wants to find again in
/// the next round.
#[derive(Debug, Clone, Default)]
pub struct InputRequests {
    requests: Vec<(String, InputRequest)>,
    memo: Option<Box<[u8]>>,
    is_consent: bool,
    wake_at_ms: Option<u64>,
    policy_note: Option<Json>,
}

impl InputRequests {
    pub fn single(key: impl Into<String>, request: InputRequest) -> Self {
        Self { requests: vec![(key.into(), request)], ..Self::default() }
    }

    /// The answers decide whether the call may do something, so they count only if the client was really asked: an answer
    /// that it volunteered is ignored.
    #[must_use]
    pub fn as_consent(mut self) -> Self {
        self.is_consent = true;
        self
    }

    /// See [`InputRequests::as_consent`].
    pub fn is_consent(&self) -> bool {
        self.is_consent
    }

    #[must_use]
    pub fn with(mut self, key: impl Into<String>, request: InputRequest) -> Self {
        self.requests.push((key.into(), request));
        self
    }

    /// State that comes back with the answers, as [`Journal::memo`]. The client may carry it meanwhile, sealed: it
    /// cannot read or change it, but it can send the same answers twice.
    #[must_use]
    pub fn with_memo(mut self, memo: impl Into<Box<[u8]>>) -> Self {
        self.memo = Some(memo.into());
        self
    }

    /// The provider has something to do at this time of the platform's clock, whether the answers are there or not: a timer
    /// is due then. A client that was sent the requests keeps them open while the provider runs again; one that carries
    /// the state of the call brings it back when it answers.
    #[must_use]
    pub fn with_wake_at_ms(mut self, at_ms: Option<u64>) -> Self {
        self.wake_at_ms = at_ms;
        self
    }

    /// See [`InputRequests::with_wake_at_ms`].
    pub fn wake_at_ms(&self) -> Option<u64> {
        self.wake_at_ms
    }

    pub fn take_memo(&mut self) -> Option<Box<[u8]>> {
        self.memo.take()
    }

    /// What the policy decided about the called tool that requests the input, see [`Journal::policy_note`]. The host sets it;
    /// whoever continues that call gives it back with [`Journal::record_policy_note`].
    pub fn set_policy_note(&mut self, note: Option<Json>) {
        self.policy_note = note;
    }

    /// See [`InputRequests::set_policy_note`].
    pub fn take_policy_note(&mut self) -> Option<Json> {
        self.policy_note.take()
    }

    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.requests.retain(|(k, _)| k != key);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &InputRequest)> {
        self.requests.iter().map(|(key, request)| (key.as_str(), request))
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.requests.iter().any(|(k, _)| k == key)
    }

    /// A key that two requests have. The client would see only one of them, and its answer would count for both.
    pub fn repeated_key(&self) -> Option<&str> {
        let keys = self.requests.iter().enumerate();
        let repeated = |(index, (key, _)): &(usize, &(String, InputRequest))| {
            self.requests[..*index].iter().any(|(earlier, _)| earlier == key)
        };
        keys.into_iter().find(repeated).map(|(_, (key, _))| key.as_str())
    }

    pub fn required_capabilities(&self) -> ClientCapabilities {
        self.requests
            .iter()
            .fold(ClientCapabilities::NONE, |all, (_, request)| all.with(request.required_capabilities()))
    }
}

/// The client's result object for one input request. Untrusted.
#[derive(Debug, Clone)]
pub struct InputResponse(Doc);

/// What the user did with an elicitation.
#[derive(Debug, Clone, Copy)]
pub enum ElicitResult<'a> {
    Accepted(Option<Node<'a>>),
    Declined,
    Cancelled,
}

impl InputResponse {
    pub fn root(&self) -> Node<'_> {
        self.0.root()
    }

    /// Reads the answer to [`InputRequest::Form`] or [`InputRequest::Url`]; `None` if it is not valid.
    pub fn elicit_result(&self) -> Option<ElicitResult<'_>> {
        let root = self.root();
        match root.get("action")?.str()?.as_ref() {
            "accept" => Some(ElicitResult::Accepted(root.get("content").filter(Node::is_object))),
            "decline" => Some(ElicitResult::Declined),
            "cancel" => Some(ElicitResult::Cancelled),
            _ => None,
        }
    }

    /// A string field of an accepted form.
    pub fn text_field(&self, name: &str) -> Option<String> {
        match self.elicit_result()? {
            ElicitResult::Accepted(Some(content)) => Some(content.get(name)?.str()?.into_owned()),
            ElicitResult::Accepted(None) | ElicitResult::Declined | ElicitResult::Cancelled => None,
        }
    }

    /// The model's text: the answer to [`InputRequest::Sampling`].
    pub fn sampled_text(&self) -> Option<String> {
        let content = self.root().get("content")?;
        // A single block, or an array of blocks from 2025-11-25 on.
        let block = if content.is_object() { Some(content) } else { content.elements().next() };
        Some(block?.get("text")?.str()?.into_owned())
    }

    /// The URIs of the client's roots: the answer to [`InputRequest::Roots`].
    pub fn root_uris(&self) -> Option<Vec<String>> {
        let roots = self.root().get("roots").filter(|roots| roots.kind() == NodeKind::Array)?;
        roots.elements().map(|root| Some(root.get("uri")?.str()?.into_owned())).collect()
    }
}

/// The answers so far, over all rounds of a call.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The number of earlier rounds.
    pub round: u32,
    call_id: OnceLock<CallId>,
    /// Whether the id is that of an earlier round, or the caller's.
    has_given_id: bool,
    entries: Vec<(String, Json)>,
    memo: Option<Box<[u8]>>,
    checkpoints: Checkpoints,
}

/// Identifies a call across its rounds. A client can send the same answers twice, so an effect that must happen once uses
/// this as its idempotency key.
pub type CallId = [u8; 16];

impl Journal {
    /// The key of the policy's note among the entries. No provider may request input under it.
    pub const POLICY_KEY: &str = "spile/policy";

    /// The same for the call that this one passed on.
    pub const PASSED_ON_POLICY_KEY: &str = "spile/policy/passed-on";

    /// What the policy left in an earlier round, or at the start of this one.
    pub fn policy_note(&self) -> Option<&Json> {
        self.entries.iter().find(|(key, _)| key == Self::POLICY_KEY).map(|(_, note)| note)
    }

    pub fn record_policy_note(&mut self, note: Json) {
        self.record(Self::POLICY_KEY, note);
    }

    /// Keeps what the policy left about a call that this one passed on, and that requests input.
    pub fn record_passed_on_note(&mut self, note: Json) {
        self.record(Self::PASSED_ON_POLICY_KEY, note);
    }

    /// The same for a call that this one passes on. The policy decides about it on its own, and only once.
    #[must_use]
    pub fn to_passed_on(&self) -> Self {
        let mut journal = self.clone();
        journal.entries.retain(|(key, _)| key != Self::POLICY_KEY);
        for (key, _) in &mut journal.entries {
            if key == Self::PASSED_ON_POLICY_KEY {
                Self::POLICY_KEY.clone_into(key);
            }
        }
        journal
    }

    /// A journal without answers for a later round of a call.
    pub fn for_round(round: u32, call_id: CallId, memo: Option<Box<[u8]>>) -> Self {
        Self { round, call_id: call_id.into(), has_given_id: true, memo, ..Self::default() }
    }

    /// The id of the call, chosen when it is first needed.
    pub fn call_id(&self, platform: &dyn Platform) -> CallId {
        *self.call_id.get_or_init(|| {
            let mut random = CallId::default();
            platform.fill_random(&mut random);
            random
        })
    }

    /// The id of the call, if anybody has needed it.
    pub fn known_call_id(&self) -> Option<CallId> {
        self.call_id.get().copied()
    }

    /// The id of a call that may run a second time under it: in a later round, or because another call repeats it. An id
    /// that was only chosen for a record is none.
    pub fn repeatable_call_id(&self) -> Option<CallId> {
        self.known_call_id().filter(|_| self.has_given_id || self.round > 0)
    }

    /// What the provider left in [`InputRequests::with_memo`] when the last round ended.
    pub fn memo(&self) -> Option<&[u8]> {
        self.memo.as_deref()
    }

    /// Replaces the memo without a new round: the answers were there already.
    pub fn set_memo(&mut self, memo: Option<Box<[u8]>>) {
        self.memo = memo;
    }

    /// Where this round saves how far it came. Kept if the call is a task, or if a task made it.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    pub fn set_checkpoints(&mut self, checkpoints: Checkpoints) {
        self.checkpoints = checkpoints;
    }

    /// Begins the next round: keeps the memo, and removes the answers to requests that are sent again.
    pub fn next_round(&mut self, requests: &mut InputRequests) {
        self.round += 1;
        self.repeat_round(requests);
    }

    /// Asks the same round again, because it brought no answer.
    pub fn repeat_round(&mut self, requests: &mut InputRequests) {
        self.memo = requests.take_memo();
        self.entries.retain(|(key, _)| !requests.contains_key(key));
    }

    /// Records an answer. A later answer to the same key replaces the earlier one.
    pub fn record(&mut self, key: &str, answer: Json) {
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = answer,
            None => self.entries.push((key.to_owned(), answer)),
        }
    }

    pub fn response(&self, key: &str) -> Option<InputResponse> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, json)| InputResponse(json.to_doc()))
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.entries.iter().map(|(key, json)| (key.as_str(), json))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
