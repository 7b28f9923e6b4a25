//! The outcome of a call.

use json::{Json, write};

use crate::error::{CallError, ToolError};
use crate::input::InputRequests;
use crate::provider::{CallFuture, Checkpoints};

/// How one round of a call ended.
pub enum Outcome {
    Done(CallResult),
    /// The tool failed; the error is data for the model.
    ToolFailed(Box<ToolError>),
    /// The call needs input from the user or their model. It runs again with the answers.
    InputRequired(InputRequests),
    /// The work goes on. The caller gets a task if it supports tasks, and waits otherwise.
    Detach(DetachedWork),
    Failed(CallError),
}

/// Work that continues after its request was answered. The host starts it and says where its checkpoints go.
pub struct DetachedWork(Box<dyn FnOnce(Checkpoints) -> CallFuture + Send>);

impl DetachedWork {
    pub fn new(start: impl FnOnce(Checkpoints) -> CallFuture + Send + 'static) -> Self {
        Self(Box::new(start))
    }

    /// Work without checkpoints: after a restart of the process it runs again from its start.
    pub fn from_future(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::new(|_| Box::pin(work))
    }

    pub fn start(self, checkpoints: Checkpoints) -> CallFuture {
        self.0(checkpoints)
    }
}

impl From<CallResult> for Outcome {
    fn from(result: CallResult) -> Self {
        Self::Done(result)
    }
}

impl From<ToolResult> for Outcome {
    fn from(result: ToolResult) -> Self {
        Self::Done(CallResult::Tool(result))
    }
}

impl From<ToolError> for Outcome {
    fn from(error: ToolError) -> Self {
        Self::ToolFailed(Box::new(error))
    }
}

impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug, Clone)]
pub enum CallResult {
    Tool(ToolResult),
    Prompt(PromptResult),
    Resource(ResourceResult),
    Completion(CompletionResult),
    /// The result object of another server, for any kind of call. Its members, annotations and `_meta` are passed on as
    /// they came.
    Relayed(Json),
}

impl CallResult {
    /// Approximate size, for limits on stored results.
    pub fn size_bytes(&self) -> usize {
        let contents_len = |contents: &ResourceContents| match contents {
            ResourceContents::Text { uri, text, .. } => uri.len() + text.len(),
            ResourceContents::Blob { uri, base64, .. } => uri.len() + base64.len(),
        };
        let block_len = |block: &ContentBlock| match block {
            ContentBlock::Text(text) => text.len(),
            ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
            ContentBlock::EmbeddedResource(contents) => contents_len(contents),
            ContentBlock::ResourceLink(resource) => resource.uri.len() + resource.name.len(),
        };
        match self {
            Self::Tool(result) => {
                let content = match &result.content {
                    ToolContent::Structured => 0,
                    ToolContent::Text(text) => text.len(),
                    ToolContent::Blocks(blocks) => blocks.iter().map(block_len).sum(),
                };
                content + result.structured.as_ref().map_or(0, |json| json.as_str().len())
            }
            Self::Prompt(result) => result.messages.iter().map(|message| block_len(&message.content)).sum(),
            Self::Resource(result) => result.contents.iter().map(contents_len).sum(),
            Self::Completion(completion) => completion.values.iter().map(String::len).sum(),
            Self::Relayed(result) => result.as_str().len(),
        }
    }

    /// Whether it is the result of a tool that failed.
    pub fn is_error(&self) -> bool {
        match self {
            Self::Tool(result) => result.is_error,
            Self::Relayed(result) => {
                result.to_doc().root().get("isError").and_then(|value| value.bool()).unwrap_or(false)
            }
            Self::Prompt(_) | Self::Resource(_) | Self::Completion(_) => false,
        }
    }
}

/// The result of a tool: text or blocks to read, structured content, or both.
#[derive(Debug, Clone)]
pub struct ToolResult {
    pub content: ToolContent,
    pub structured: Option<Json>,
    pub is_error: bool,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone)]
pub enum ToolContent {
    /// The text block is the structured content as JSON.
    Structured,
    Text(String),
    Blocks(Vec<ContentBlock>),
}

impl ToolResult {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: ToolContent::Text(text.into()), structured: None, is_error: false, meta: None }
    }

    pub fn blocks(blocks: Vec<ContentBlock>) -> Self {
        Self { content: ToolContent::Blocks(blocks), structured: None, is_error: false, meta: None }
    }

    pub fn structured(json: Json) -> Self {
        Self { content: ToolContent::Structured, structured: Some(json), is_error: false, meta: None }
    }

    /// The result of a tool that failed: a sentence, and the error as structured content.
    pub fn from_tool_error(error: &ToolError) -> Self {
        let mut out = Vec::with_capacity(160);
        error.write_json(&mut out);
        Self {
            content: ToolContent::Text(error.to_sentence()),
            structured: Some(Json::from_written_bytes(out)),
            is_error: true,
            meta: None,
        }
    }

    #[must_use]
    pub fn into_error(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// Adds a text block after the others: something to know about the result that is not part of it.
    #[must_use]
    pub fn with_notice(self, notice: &str) -> Self {
        self.with_block(ContentBlock::Text(notice.to_owned()))
    }

    /// Adds a block after the others.
    #[must_use]
    pub fn with_block(mut self, block: ContentBlock) -> Self {
        let mut blocks = match self.content {
            ToolContent::Structured => {
                let json = self.structured.as_ref().map(ToString::to_string).unwrap_or_default();
                vec![ContentBlock::Text(json)]
            }
            ToolContent::Text(text) => vec![ContentBlock::Text(text)],
            ToolContent::Blocks(blocks) => blocks,
        };
        blocks.push(block);
        self.content = ToolContent::Blocks(blocks);
        self
    }
}

/// A content block. Binary data is base64.
#[derive(Debug, Clone)]
pub enum ContentBlock {
    Text(String),
    Image {
        data: String,
        mime_type: String,
    },
    Audio {
        data: String,
        mime_type: String,
    },
    EmbeddedResource(ResourceContents),
    /// A link to a resource that the client may read.
    ResourceLink(crate::Resource),
}

/// The contents of one resource.
#[derive(Debug, Clone)]
pub enum ResourceContents {
    Text { uri: String, mime_type: Option<String>, text: String, meta: Option<Json> },
    Blob { uri: String, mime_type: Option<String>, base64: String, meta: Option<Json> },
}

#[derive(Debug, Clone)]
pub struct ResourceResult {
    pub contents: Vec<ResourceContents>,
    /// How long a client may cache the contents.
    pub ttl_ms: u64,
    /// Whether the contents are the same for every caller.
    pub public: bool,
}

#[derive(Debug, Clone)]
pub struct PromptResult {
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
}

#[derive(Debug, Clone)]
pub struct PromptMessage {
    pub role: Role,
    pub content: ContentBlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, Default)]
pub struct CompletionResult {
    pub values: Vec<String>,
    pub total: Option<u64>,
    pub has_more: bool,
}

impl CompletionResult {
    /// The protocol's limit of values in one result.
    pub const VALUES_MAX: usize = 100;

    /// Keeps the first [`Self::VALUES_MAX`] values and sets `total`.
    pub fn from_values(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().collect();
        let total = values.len();
        values.truncate(Self::VALUES_MAX);
        Self { has_more: values.len() < total, total: Some(total as u64), values }
    }

    /// From up to one value more than fits, which says that there are more.
    pub fn from_page(mut values: Vec<String>) -> Self {
        let has_more = values.len() > Self::VALUES_MAX;
        values.truncate(Self::VALUES_MAX);
        Self { has_more, total: (!has_more).then_some(values.len() as u64), values }
    }
}

impl ToolError {
    fn write_json(&self, out: &mut Vec<u8>) {
        let mut object = write::ObjectWriter::new(out);
        object.str("code", self.code.as_str()).str("message", &self.message);
        object.maybe_str("field", self.field.as_deref());
        object.maybe_str("reason", self.reason.map(|r| r.as_str()));
        object.maybe_raw("allowed", self.allowed.as_ref().map(Json::as_str));
        object.bool("retryable", self.retry_after_ms.is_some() || self.retryable);
        if let Some(ms) = self.retry_after_ms {
            object.int("retry_after_ms", ms.min(i64::MAX as u64) as i64);
        }
        object.maybe_str("ref", self.log_reference.as_deref());
        object.end();
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{ContentBlock, ToolContent, ToolResult};

    #[test]
    fn a_notice_is_a_text_block_of_its_own() {
        let result = ToolResult::structured(Json::parse("{\"a\":null}").expect("JSON"));
        let result = result.with_notice("one").with_notice("two");
        let ToolContent::Blocks(blocks) = &result.content else { panic!("{result:?}") };
        let texts = blocks.iter().map(|block| match block {
            ContentBlock::Text(text) => text.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["{\"a\":null}", "one", "two"]);
        assert_eq!(result.structured.as_ref().map(Json::as_str), Some("{\"a\":null}"));
    }
}
