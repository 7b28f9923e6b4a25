//! Questions to the user or their model, and the journal of what was answered.

use json::{Doc, Json, Node, NodeKind};

use crate::caller::ClientCapabilities;

/// One question. How it travels depends on the client; whoever asks does not care.
#[derive(Debug, Clone)]
pub enum InputRequest {
    /// Fill in a form; `schema` is flat, primitive properties only.
    Form { message: String, schema: Json },
    /// Visit a page; for what must not pass through the client.
    Url { message: String, url: String },
    /// Let the client's model complete; `params` of `sampling/createMessage`.
    Sampling { params: Json },
    /// Which folders may be worked on.
    Roots,
}

impl InputRequest {
    /// What a client must have declared to be asked this.
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

    /// Whether it is a form that has several choices for one of its fields.
    pub fn has_multi_select(&self) -> bool {
        let Self::Form { schema, .. } = self else { return false };
        let doc = schema.to_doc();
        let Some(properties) = doc.root().get("properties") else { return false };
        properties.members().any(|(_, field)| field.get("type").is_some_and(|kind| kind.eq_str("array")))
    }
}

/// Questions that go out together, each under a key of the asker's choice.
#[derive(Debug, Clone, Default)]
pub struct InputRequests(Vec<(String, InputRequest)>);

impl InputRequests {
    pub fn single(key: impl Into<String>, ask: InputRequest) -> Self {
        Self(vec![(key.into(), ask)])
    }

    #[must_use]
    pub fn with(mut self, key: impl Into<String>, ask: InputRequest) -> Self {
        self.0.push((key.into(), ask));
        self
    }

    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.retain(|(k, _)| k != key);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &InputRequest)> {
        self.0.iter().map(|(key, ask)| (key.as_str(), ask))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    pub fn required_capabilities(&self) -> ClientCapabilities {
        self.0.iter().fold(ClientCapabilities::NONE, |all, (_, ask)| all.with(ask.required_capabilities()))
    }
}

/// What came back for one question: the client's own result object, untrusted.
#[derive(Debug, Clone)]
pub struct InputResponse(Doc);

/// What a user did with a form or a page.
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

    /// Reads the answer to [`Ask::Form`] or [`Ask::Url`]; `None` if it is no such thing.
    pub fn elicit_result(&self) -> Option<ElicitResult<'_>> {
        let root = self.root();
        match root.get("action")?.str()?.as_ref() {
            "accept" => Some(ElicitResult::Accepted(root.get("content").filter(Node::is_object))),
            "decline" => Some(ElicitResult::Declined),
            "cancel" => Some(ElicitResult::Cancelled),
            _ => None,
        }
    }

    /// One text field of an accepted form.
    pub fn text_field(&self, name: &str) -> Option<String> {
        match self.elicit_result()? {
            ElicitResult::Accepted(Some(content)) => Some(content.get(name)?.str()?.into_owned()),
            ElicitResult::Accepted(None) | ElicitResult::Declined | ElicitResult::Cancelled => None,
        }
    }

    /// The text that a model completed: the answer to [`Ask::Sample`].
    pub fn sampled_text(&self) -> Option<String> {
        let content = self.root().get("content")?;
        // One block, or from 2025-11-25 on possibly several.
        let block = if content.is_object() { Some(content) } else { content.elements().next() };
        Some(block?.get("text")?.str()?.into_owned())
    }

    /// The URIs of the client's roots: the answer to [`Ask::Roots`].
    pub fn root_uris(&self) -> Option<Vec<String>> {
        let roots = self.root().get("roots").filter(|roots| roots.kind() == NodeKind::Array)?;
        roots.elements().map(|root| Some(root.get("uri")?.str()?.into_owned())).collect()
    }
}

/// What has been answered so far in this call, over all its rounds.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// How often the call was entered before this.
    pub round: u32,
    /// What tells this call from another that asks for the same; there is one once something was asked. A client can
    /// come back with the same answers twice: what must not be done twice is claimed under this.
    pub call_id: Option<[u8; 16]>,
    entries: Vec<(String, Json)>,
}

impl Journal {
    /// An empty journal of a call that was entered before.
    pub fn for_round(round: u32, call: [u8; 16]) -> Self {
        Self { round, call_id: Some(call), entries: Vec::new() }
    }

    /// Later answers to the same key replace earlier ones.
    pub fn record(&mut self, key: &str, answer: Json) {
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = answer,
            None => self.entries.push((key.to_owned(), answer)),
        }
    }

    pub fn response(&self, key: &str) -> Option<InputResponse> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, json)| InputResponse(json.to_doc()))
    }

    /// Forgets what is being asked again.
    pub fn remove_all(&mut self, asks: &InputRequests) {
        self.entries.retain(|(key, _)| !asks.contains_key(key));
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.entries.iter().map(|(key, json)| (key.as_str(), json))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
