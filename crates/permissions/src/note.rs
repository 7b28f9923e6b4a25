//! What the policy writes down about a call that it allowed, or that the user is asked about: see `Journal::policy_note`.

use json::Json;
use spile_core::{Decision, Journal, PolicyDecision};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// Whether the user has not answered yet.
    pub(crate) is_question: bool,
    /// The arguments that hooks made; `None` if they are the caller's.
    pub(crate) arguments: Option<Json>,
    pub(crate) reason: String,
    pub(crate) hook: Option<Box<str>>,
    /// What hooks said for the model. It is added to the result.
    pub(crate) context: Option<String>,
    /// When the call was allowed, or asked about.
    pub(crate) started_ms: u64,
}

impl Note {
    pub(crate) fn read(journal: &Journal) -> Option<Self> {
        let doc = journal.policy_note()?.to_doc();
        let root = doc.root();
        let text = |key: &str| root.get(key).and_then(|node| node.str()).map(|text| text.into_owned());
        Some(Self {
            is_question: root.get("is_question")?.bool()?,
            arguments: root.get("arguments").map(Json::from),
            reason: text("reason")?,
            hook: text("hook").map(Into::into),
            context: text("context"),
            started_ms: root.get("started_ms")?.u64()?,
        })
    }

    pub(crate) fn to_json(&self) -> Json {
        Json::object(|note| {
            note.bool("is_question", self.is_question);
            note.maybe_raw("arguments", self.arguments.as_ref().map(Json::as_str));
            note.str("reason", &self.reason).maybe_str("hook", self.hook.as_deref());
            note.maybe_str("context", self.context.as_deref());
            note.int("started_ms", self.started_ms.min(i64::MAX as u64) as i64);
        })
    }

    pub(crate) fn into_decision(self) -> PolicyDecision {
        let decision = match self.arguments {
            Some(arguments) => Decision::ReplaceArguments(arguments),
            None => Decision::Allow,
        };
        PolicyDecision { hook: self.hook, ..PolicyDecision::new(decision).because(self.reason) }
    }
}
