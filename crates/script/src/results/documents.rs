//! What prompts and resources in code return.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use json::{Json, Node, NodeKind, write};
use spile_core::{CallError, CallResult, ItemKind, Outcome, ResourceContents, ResourceResult};

use super::{check_block, parse_returned};
use crate::engine::Returned;

/// A text is one message of the user. Otherwise a list of messages, or the whole result with `messages`. `Err` says what is
/// wrong with the value.
pub(super) fn prompt_result(returned: Returned) -> Result<CallResult, String> {
    let json = match returned {
        Returned::Text(text) => return Ok(CallResult::Relayed(prompt([Message::text("user", &text)], None))),
        Returned::Json(text) => parse_returned(&text)?,
        Returned::Nothing => return Err("nothing; return a text or a list of messages".into()),
        Returned::Bytes(_) => return Err("bytes; return a text or a list of messages".into()),
    };
    let doc = json.to_doc();
    let root = doc.root();
    let list = if root.is_object() { root.get("messages") } else { Some(root) };
    let list = list.filter(|list| list.kind() == NodeKind::Array);
    let list = list.ok_or("neither a text nor a list of messages nor an object with `messages`")?;
    let mut messages = Vec::new();
    for item in list.elements() {
        messages.extend(read_message(item)?);
    }
    let description = root.get("description").and_then(|text| text.str());
    Ok(CallResult::Relayed(prompt(messages, description.as_deref())))
}

struct Message {
    role: String,
    /// One content block, as JSON.
    content: Json,
}

impl Message {
    fn text(role: &str, text: &str) -> Self {
        let content = Json::object(|block| {
            block.str("type", "text").str("text", text);
        });
        Self { role: role.to_owned(), content }
    }
}

/// A text, or `{role, content}` with a text, a content block or a list of them: the protocol wants one block per message.
fn read_message(item: Node<'_>) -> Result<Vec<Message>, String> {
    if let Some(text) = item.str() {
        return Ok(vec![Message::text("user", &text)]);
    }
    // A content block alone is said by the user.
    if item.get("type").is_some() && item.get("role").is_none() {
        check_block(item)?;
        return Ok(vec![Message { role: "user".into(), content: Json::from(item) }]);
    }
    let role = item.get("role").and_then(|role| role.str());
    let role = role.filter(|role| matches!(role.as_ref(), "user" | "assistant"));
    let role = role.ok_or("a message whose `role` is neither `user` nor `assistant`")?.into_owned();
    let content = item.get("content").ok_or("a message without `content`")?;
    let blocks = match content.kind() {
        NodeKind::Array => content.elements().collect(),
        _ => vec![content],
    };
    blocks
        .into_iter()
        .map(|block| match block.str() {
            Some(text) => Ok(Message::text(&role, &text)),
            None => {
                check_block(block)?;
                Ok(Message { role: role.clone(), content: Json::from(block) })
            }
        })
        .collect()
}

fn prompt(messages: impl IntoIterator<Item = Message>, description: Option<&str>) -> Json {
    Json::object(|result| {
        result.maybe_str("description", description);
        result.array("messages", messages, |out, message| {
            let mut object = write::ObjectWriter::new(out);
            object.str("role", &message.role).raw("content", message.content.as_str());
            object.end();
        });
    })
}

/// A text, bytes, or `{text}` or `{blob}` with base64, perhaps with `mimeType`. Any other value is JSON. Nothing means that
/// there is no such resource. The URI of the contents is empty: whoever passed it to the handler knows it.
pub(super) fn resource_result(returned: Returned) -> Result<Outcome, String> {
    let text = |text: String, mime_type: Option<&str>, meta: Option<Json>| ResourceContents::Text {
        uri: String::new(),
        mime_type: mime_type.map(str::to_owned),
        text,
        meta,
    };
    let blob = |base64: String, mime_type: Option<&str>, meta: Option<Json>| ResourceContents::Blob {
        uri: String::new(),
        mime_type: mime_type.map(str::to_owned),
        base64,
        meta,
    };
    let contents = match returned {
        Returned::Nothing => return Ok(unknown()),
        Returned::Text(returned) => text(returned, None, None),
        Returned::Bytes(base64) => blob(base64, None, None),
        Returned::Json(returned) => {
            let json = parse_returned(&returned)?;
            let doc = json.to_doc();
            let root = doc.root();
            if root.kind() == NodeKind::Null {
                return Ok(unknown());
            }
            let member = |key: &str| root.get(key).and_then(|value| value.str());
            let is_known = |(key, _): (Node<'_>, Node<'_>)| {
                ["text", "blob", "mimeType", "_meta"].iter().any(|member| key.eq_str(member))
            };
            let is_body = root.is_object() && root.members().all(is_known);
            let (mime_type, meta) = (member("mimeType"), root.get("_meta").map(Json::from));
            match (member("text"), member("blob")) {
                (Some(body), None) if is_body => text(body.into_owned(), mime_type.as_deref(), meta),
                (None, Some(base64)) if is_body => {
                    if BASE64_STANDARD.decode(base64.as_bytes()).is_err() {
                        return Err("a `blob` that is not base64".into());
                    }
                    blob(base64.into_owned(), mime_type.as_deref(), meta)
                }
                _ => text(json.to_string(), Some("application/json"), None),
            }
        }
    };
    Ok(CallResult::Resource(ResourceResult { contents: vec![contents], ttl_ms: 0, public: false }).into())
}

fn unknown() -> Outcome {
    Outcome::Failed(CallError::UnknownItem { kind: ItemKind::Resource, name: String::new() })
}
