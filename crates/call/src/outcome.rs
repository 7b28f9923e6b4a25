//! What a call ends in.

use json::{Json, write};

use crate::ask::Asks;
use crate::fault::{Fault, Problem};
use crate::provider::Work;

/// How one round of a call ended.
pub enum Outcome {
    Done(Reply),
    /// A tool could not do its work, and says why: data, for the model.
    Refused(Box<Problem>),
    /// The user or their model must answer first; the call is entered again with the answers.
    NeedInput(Asks),
    /// The work goes on; the caller gets a task if they can take one, else waits.
    Detach(Work),
    Failed(Fault),
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self::Done(reply)
    }
}

impl From<ToolReply> for Outcome {
    fn from(reply: ToolReply) -> Self {
        Self::Done(Reply::Tool(reply))
    }
}

impl From<Problem> for Outcome {
    fn from(problem: Problem) -> Self {
        Self::Refused(Box::new(problem))
    }
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

#[derive(Debug, Clone)]
pub enum Reply {
    Tool(ToolReply),
    Prompt(PromptReply),
    Resource(Contents),
    Completion(Completion),
}

impl Reply {
    /// About how much it holds, for whoever has to keep it.
    pub fn bytes(&self) -> usize {
        let body = |body: &Body| match body {
            Body::Text { uri, text, .. } => uri.len() + text.len(),
            Body::Blob { uri, base64, .. } => uri.len() + base64.len(),
        };
        let block = |one: &Block| match one {
            Block::Text(text) => text.len(),
            Block::Image { data, .. } | Block::Audio { data, .. } => data.len(),
            Block::Embedded(contents) => body(contents),
            Block::Link(resource) => resource.uri.len() + resource.name.len(),
        };
        match self {
            Self::Tool(reply) => {
                let content = match &reply.content {
                    Content::Structured => 0,
                    Content::Text(text) => text.len(),
                    Content::Blocks(blocks) => blocks.iter().map(block).sum(),
                };
                content + reply.structured.as_ref().map_or(0, |json| json.as_str().len())
            }
            Self::Prompt(reply) => reply.messages.iter().map(|message| block(&message.block)).sum(),
            Self::Resource(contents) => contents.bodies.iter().map(body).sum(),
            Self::Completion(completion) => completion.values.iter().map(String::len).sum(),
        }
    }
}

/// What a tool answers: something to read, something typed, or both.
#[derive(Debug, Clone)]
pub struct ToolReply {
    pub content: Content,
    pub structured: Option<Json>,
    pub is_error: bool,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone)]
pub enum Content {
    /// The text block is the structured content as JSON.
    Structured,
    Text(String),
    Blocks(Vec<Block>),
}

impl ToolReply {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Content::Text(text.into()), structured: None, is_error: false, meta: None }
    }

    pub fn blocks(blocks: Vec<Block>) -> Self {
        Self { content: Content::Blocks(blocks), structured: None, is_error: false, meta: None }
    }

    pub fn structured(json: Json) -> Self {
        Self { content: Content::Structured, structured: Some(json), is_error: false, meta: None }
    }

    /// A failure that the model can read and act on.
    pub fn problem(problem: &Problem) -> Self {
        let mut out = Vec::with_capacity(160);
        problem.write(&mut out);
        Self {
            content: Content::Text(problem.sentence()),
            structured: Some(Json::written(out)),
            is_error: true,
            meta: None,
        }
    }

    #[must_use]
    pub fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }
}

/// A piece of content. Data is base64 already.
#[derive(Debug, Clone)]
pub enum Block {
    Text(String),
    Image {
        data: String,
        mime: String,
    },
    Audio {
        data: String,
        mime: String,
    },
    Embedded(Body),
    /// A pointer to a resource that the client may read.
    Link(crate::Resource),
}

/// The contents of one resource.
#[derive(Debug, Clone)]
pub enum Body {
    Text { uri: String, mime: Option<String>, text: String },
    Blob { uri: String, mime: Option<String>, base64: String },
}

#[derive(Debug, Clone)]
pub struct Contents {
    pub bodies: Vec<Body>,
    /// How long a client may think this fresh.
    pub ttl_ms: u64,
    /// Whether every caller would read the same.
    pub public: bool,
}

#[derive(Debug, Clone)]
pub struct PromptReply {
    pub description: Option<String>,
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub role: Role,
    pub block: Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, Default)]
pub struct Completion {
    pub values: Vec<String>,
    pub total: Option<u64>,
    pub has_more: bool,
}

impl Completion {
    /// The protocol allows no more values than this in one answer.
    pub const VALUES_MAX: usize = 100;

    /// Keeps the first hundred and says how many there were.
    pub fn of(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().collect();
        let total = values.len();
        values.truncate(Self::VALUES_MAX);
        Self { has_more: values.len() < total, total: Some(total as u64), values }
    }
}

impl Problem {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = write::Object::new(out);
        object.str("code", self.code.as_str()).str("message", &self.message);
        object.maybe_str("field", self.field.as_deref());
        object.maybe_str("reason", self.reason.map(|r| r.as_str()));
        object.maybe_raw("allowed", self.allowed.as_ref().map(Json::as_str));
        object.bool("retryable", self.retry_after_ms.is_some() || self.retryable);
        if let Some(ms) = self.retry_after_ms {
            object.int("retry_after_ms", ms.min(i64::MAX as u64) as i64);
        }
        object.maybe_str("ref", self.reference.as_deref());
        object.end();
    }
}
