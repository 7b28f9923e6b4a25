//! Results as hooks see them and make them.

use json::{Json, NodeKind};
use spile_core::{CallResult, ToolResult};

/// The result that a hook sent instead: a text, a list of content blocks, a whole result, or structured content.
pub(crate) fn from_hook(output: &Json, is_error: bool) -> CallResult {
    let doc = output.to_doc();
    let root = doc.root();
    let is_result = root.get("content").is_some_and(|content| content.kind() == NodeKind::Array);
    match root.kind() {
        NodeKind::Object if is_result => CallResult::Relayed(output.clone()),
        NodeKind::Array => CallResult::Relayed(Json::object(|result| {
            result.raw("content", output.as_str()).bool("isError", is_error);
        })),
        NodeKind::Object => {
            CallResult::Tool(ToolResult { is_error, ..ToolResult::structured(output.clone()) })
        }
        _ => {
            let text = root.str().map_or_else(|| output.to_string(), |text| text.into_owned());
            CallResult::Tool(ToolResult { is_error, ..ToolResult::text(text) })
        }
    }
}

/// Adds a text block for the model.
pub(crate) fn add_context(result: &CallResult, context: &str) -> CallResult {
    match result {
        CallResult::Tool(result) => CallResult::Tool(result.clone().with_notice(context)),
        CallResult::Relayed(json) => {
            let doc = json.to_doc();
            let block = Json::object(|block| {
                block.str("type", "text").str("text", context);
            });
            CallResult::Relayed(Json::object(|out| {
                let content = doc.root().get("content").into_iter().flat_map(|content| content.elements());
                let blocks = content.map(|block| block.raw()).chain([block.as_str()]);
                out.array("content", blocks, |out, block| out.extend_from_slice(block.as_bytes()));
                for (key, value) in doc.root().members() {
                    let key = key.str().unwrap_or_default();
                    if key != "content" {
                        out.raw(&key, value.raw());
                    }
                }
            }))
        }
        other => other.clone(),
    }
}

/// What a failed call says: its first text.
pub(crate) fn failure_text(response: &Json) -> String {
    let doc = response.to_doc();
    let text = doc.root().get("content").and_then(|content| {
        content.elements().find_map(|block| block.get("text")?.str().map(|text| text.into_owned()))
    });
    text.unwrap_or_else(|| response.to_string())
}
