//! Results of calls: tools, prompts, resources, completions, and the two interim results (input required, task
//! created).

use json::Json;
use json::write::{self, ObjectWriter};
use spile_core::{
    CallError, CallResult, ContentBlock, InputRequests, PromptResult, Resource, ResourceContents,
    ResourceResult, Role, ToolContent, ToolResult,
};

use super::{
    RenderedServerInfo, ReplyTo, begin_response, end_response, input_requests, relayed, tasks,
    write_cache_hints,
};
use crate::error::RpcError;
use crate::version::{Feature, Version};

/// The response to one request of a call.
pub enum CallResponseRef<'a> {
    Result(&'a CallResult),
    /// The call needs input. `request_state` is sealed.
    InputRequired {
        requests: &'a InputRequests,
        request_state: &'a str,
    },
    /// The call continues as a task.
    TaskCreated(&'a tasks::TaskSnapshot),
    /// The answer to a request about tasks.
    TaskAnswer(&'a tasks::TaskAnswer),
    Error(&'a CallError),
}

/// Writes the whole response and returns its HTTP status.
#[inline]
pub fn call_response(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    response: &CallResponseRef<'_>,
) -> u16 {
    match response {
        CallResponseRef::Result(result) => {
            begin_response(out, &to.id);
            write_result(out, to.version, server_info, result);
            end_response(out);
            200
        }
        CallResponseRef::InputRequired { requests, request_state } => {
            begin_response(out, &to.id);
            write_input_required(out, to.version, server_info, requests, request_state);
            end_response(out);
            200
        }
        CallResponseRef::TaskCreated(task) => {
            begin_response(out, &to.id);
            tasks::write_task_created(out, to.version, server_info, task);
            end_response(out);
            200
        }
        CallResponseRef::TaskAnswer(answer) => {
            match answer {
                tasks::TaskAnswer::State(task) => task.write_response(out, to, server_info),
                tasks::TaskAnswer::List { tasks, next } => {
                    tasks::task_list(out, to, server_info, tasks, next.as_deref());
                }
                tasks::TaskAnswer::Acknowledged => empty_result(out, to, server_info),
            }
            200
        }
        CallResponseRef::Error(error) => {
            let error = RpcError::from_call_error(error, to.version);
            out.extend_from_slice(&error.to_response(Some(&to.id), to.version));
            error.http_status
        }
    }
}

/// Writes a result without members: exactly `{}` in the handshake era.
pub fn empty_result(out: &mut Vec<u8>, to: &ReplyTo, server_info: &RenderedServerInfo) {
    begin_response(out, &to.id);
    out.push(b'{');
    server_info.close_result(out, to.version, true);
    end_response(out);
}

/// A finished call's result as a JSON object that [`CallResult::Relayed`] can have: all of it, for any version.
pub fn stored_result(result: &CallResult) -> Json {
    if let CallResult::Relayed(json) = result {
        return json.clone();
    }
    let mut out = Vec::with_capacity(256);
    write_result(&mut out, Version::NEWEST, &RenderedServerInfo::new("", ""), result);
    let own_meta = match result {
        CallResult::Tool(result) => result.meta.as_ref(),
        _ => None,
    };
    let doc = Json::from_written_bytes(out).to_doc();
    Json::object(|object| {
        for (key, value) in doc.root().members() {
            // Whoever sends it says these itself.
            if !key.eq_str("resultType") && !key.eq_str("_meta") {
                object.raw(&key.str().unwrap_or_default(), value.raw());
            }
        }
        object.maybe_raw("_meta", own_meta.map(Json::as_str));
    })
}

/// Writes the result object of a finished call.
pub(super) fn write_result(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    result: &CallResult,
) {
    match result {
        CallResult::Tool(result) => write_tool_result(out, version, server_info, result),
        CallResult::Prompt(result) => write_prompt_result(out, version, server_info, result),
        CallResult::Resource(contents) => write_resource_result(out, version, server_info, contents),
        CallResult::Completion(completion) => {
            out.extend_from_slice(b"{\"completion\":");
            let mut object = ObjectWriter::new(out);
            object.array("values", &completion.values, |out, value| write::string(out, value));
            if let Some(total) = completion.total {
                object.int("total", total.min(i64::MAX as u64) as i64);
            }
            object.bool("hasMore", completion.has_more);
            object.end();
            server_info.close_result(out, version, false);
        }
        CallResult::Relayed(result) => relayed::write_relayed_result(out, version, server_info, result),
    }
}

#[inline]
fn write_tool_result(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    result: &ToolResult,
) {
    out.extend_from_slice(b"{\"content\":[");
    match (&result.content, &result.structured) {
        (ToolContent::Structured, structured) => {
            write_text_block(out, structured.as_ref().map_or("", Json::as_str))
        }
        // A client of a version without structured content gets the data as a second text.
        (ToolContent::Text(text), Some(json)) if !version.has(Feature::StructuredContent) => {
            write_text_block(out, text);
            out.push(b',');
            write_text_block(out, json.as_str());
        }
        (ToolContent::Text(text), _) => write_text_block(out, text),
        (ToolContent::Blocks(blocks), structured) => {
            for (i, block) in blocks.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_block(out, version, block);
            }
            // The same for blocks, unless the provider wrote the data as one of them.
            if let Some(json) = structured
                && !version.has(Feature::StructuredContent)
                && !blocks
                    .iter()
                    .any(|block| matches!(block, ContentBlock::Text(text) if text == json.as_str()))
            {
                if !blocks.is_empty() {
                    out.push(b',');
                }
                write_text_block(out, json.as_str());
            }
        }
    }
    out.push(b']');
    if let Some(json) = &result.structured
        && version.has(Feature::StructuredResult)
    {
        out.extend_from_slice(br#","structuredContent":"#);
        write_structured(out, version, json.as_str(), json.is_object());
    }
    let error: &[u8] = if result.is_error { br#","isError":true"# } else { br#","isError":false"# };
    out.extend_from_slice(error);
    match &result.meta {
        None => server_info.close_result(out, version, false),
        Some(meta) if version.has(Feature::ResultType) => {
            out.extend_from_slice(br#","resultType":"complete","_meta":"#);
            server_info.write_meta(out, Some(meta));
            out.push(b'}');
        }
        Some(meta) => {
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(meta.as_str().as_bytes());
            out.push(b'}');
        }
    }
}

/// Writes structured content. Before 2026-07-28 it is an object: any other value is its member `result`, as the output
/// schema says to the same client.
pub(super) fn write_structured(out: &mut Vec<u8>, version: Version, json: &str, is_object: bool) {
    let is_wrapped = !is_object && !version.has(Feature::AnyStructuredContent);
    if is_wrapped {
        out.extend_from_slice(br#"{"result":"#);
    }
    out.extend_from_slice(json.as_bytes());
    if is_wrapped {
        out.push(b'}');
    }
}

fn write_prompt_result(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    result: &PromptResult,
) {
    out.push(b'{');
    if let Some(description) = &result.description {
        out.extend_from_slice(b"\"description\":");
        write::string(out, description);
        out.push(b',');
    }
    out.extend_from_slice(b"\"messages\":");
    write::array(out, &result.messages, |out, message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let mut object = ObjectWriter::new(out);
        object.str("role", role);
        write_block(object.key("content"), version, &message.content);
        object.end();
    });
    server_info.close_result(out, version, false);
}

fn write_resource_result(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    contents: &ResourceResult,
) {
    out.extend_from_slice(b"{\"contents\":");
    write::array(out, &contents.contents, write_resource_contents);
    write_cache_hints(out, version, contents.ttl_ms, contents.public);
    server_info.close_result(out, version, false);
}

fn write_input_required(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    requests: &InputRequests,
    request_state: &str,
) {
    let mut object = ObjectWriter::new(out);
    object.str("resultType", "input_required");
    object.object("inputRequests", |out| input_requests::write_input_requests(out, requests, version));
    object.str("requestState", request_state);
    server_info.write_meta(object.key("_meta"), None);
    object.end();
}

#[inline]
pub(super) fn write_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"type":"text","text":""#);
    write::escaped(out, text.as_bytes());
    out.extend_from_slice(b"\"}");
}

fn write_block(out: &mut Vec<u8>, version: Version, block: &ContentBlock) {
    match block {
        ContentBlock::Text(text) => write_text_block(out, text),
        ContentBlock::Image { data, mime_type } => write_media(out, "image", data, mime_type),
        ContentBlock::Audio { data, mime_type } if version.has(Feature::Audio) => {
            write_media(out, "audio", data, mime_type)
        }
        // Unknown content would break an older client; an embedded blob carries the same bytes.
        ContentBlock::Audio { data, mime_type } => {
            let blob = ResourceContents::Blob {
                uri: "content:audio".into(),
                mime_type: Some(mime_type.clone()),
                base64: data.clone(),
                meta: None,
            };
            write_embedded_resource(out, &blob);
        }
        ContentBlock::EmbeddedResource(contents) => write_embedded_resource(out, contents),
        ContentBlock::ResourceLink(resource) if version.has(Feature::ResourceLinks) => {
            let mut object = ObjectWriter::new(out);
            object.str("type", "resource_link");
            super::lists::write_resource_members(&mut object, version, resource);
            object.end();
        }
        ContentBlock::ResourceLink(Resource { uri, name, description, .. }) => {
            let description = description.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
            write_text_block(out, &format!("{name}: {uri}{description}"));
        }
    }
}

fn write_media(out: &mut Vec<u8>, kind: &str, data: &str, mime_type: &str) {
    let mut object = ObjectWriter::new(out);
    object.str("type", kind).str("data", data).str("mimeType", mime_type);
    object.end();
}

fn write_embedded_resource(out: &mut Vec<u8>, contents: &ResourceContents) {
    let mut object = ObjectWriter::new(out);
    object.str("type", "resource");
    write_resource_contents(object.key("resource"), contents);
    object.end();
}

fn write_resource_contents(out: &mut Vec<u8>, contents: &ResourceContents) {
    let mut object = ObjectWriter::new(out);
    match contents {
        ResourceContents::Text { uri, mime_type, text, meta } => {
            object.str("uri", uri).maybe_str("mimeType", mime_type.as_deref()).str("text", text);
            object.maybe_raw("_meta", meta.as_ref().map(Json::as_str));
        }
        ResourceContents::Blob { uri, mime_type, base64, meta } => {
            object.str("uri", uri).maybe_str("mimeType", mime_type.as_deref()).str("blob", base64);
            object.maybe_raw("_meta", meta.as_ref().map(Json::as_str));
        }
    }
    object.end();
}

#[cfg(test)]
mod tests {
    use json::{Json, Node};
    use spile_core::{CallResult, ContentBlock, ToolContent, ToolError, ToolErrorCode, ToolResult};

    use super::{CallResponseRef, call_response};
    use crate::encode::{RenderedServerInfo, ReplyTo};
    use crate::id::RequestId;
    use crate::version::Version;

    /// The texts of a tool result, and its structured content.
    fn encode(result: ToolResult, version: Version) -> (Vec<String>, Option<String>) {
        let to = ReplyTo { version, id: RequestId::from_number(1), progress_token: None };
        let mut out = Vec::new();
        let result = CallResult::Tool(result);
        call_response(&mut out, &to, &RenderedServerInfo::new("s", "1"), &CallResponseRef::Result(&result));
        let doc = Json::from_written_bytes(out).to_doc();
        let result = doc.root().get("result").expect("a result");
        let text =
            |block: Node<'_>| block.get("text").and_then(|text| text.str()).expect("a text").into_owned();
        let content = result.get("content").expect("content").elements().map(text).collect();
        (content, result.get("structuredContent").map(|json| json.raw().to_owned()))
    }

    #[test]
    fn a_tool_error_has_a_sentence_in_every_version() {
        let json = r#"{"code":"not_found","message":"no such row","retryable":false}"#;
        for (version, _) in Version::ALL {
            let error = ToolError::new(ToolErrorCode::NotFound, "no such row");
            let (content, structured) = encode(ToolResult::from_tool_error(&error), version);
            assert_eq!(content[0], "Not found: no such row", "{version:?}");
            // Before `structuredContent` was specified, the data is a text as well.
            let texts: &[&str] = if version < Version::V2025_06_18 { &[json] } else { &[] };
            assert_eq!(&content[1..], texts, "{version:?}");
            let has_structured = version > Version::V2024_11_05;
            assert_eq!(structured.as_deref(), has_structured.then_some(json), "{version:?}");
        }
    }

    #[test]
    fn a_request_without_a_version_gets_structured_content() {
        let json = Json::parse(r#"{"a":1}"#).expect("JSON");
        let result = || ToolResult {
            content: ToolContent::Text("One.".into()),
            ..ToolResult::structured(json.clone())
        };
        let (content, structured) = encode(result(), Version::UNSPECIFIED);
        assert_eq!((&*content.join("|"), structured.as_deref()), (r#"One.|{"a":1}"#, Some(r#"{"a":1}"#)));
    }

    #[test]
    fn structured_content_that_is_not_an_object_is_wrapped_for_versions_that_take_only_objects() {
        for json in ["[1,2]", "7", r#""a""#, "null", "true"] {
            for (version, _) in Version::ALL {
                let (_, structured) =
                    encode(ToolResult::structured(Json::parse(json).expect("JSON")), version);
                let expected = match version {
                    Version::V2024_11_05 => None,
                    Version::V2026_07_28 => Some(json.to_owned()),
                    _ => Some(format!(r#"{{"result":{json}}}"#)),
                };
                assert_eq!(structured, expected, "{version:?}");
            }
        }
    }

    #[test]
    fn blocks_do_not_hide_the_data_from_versions_without_structured_content() {
        let json = r#"{"rows":[],"nextCursor":"abc"}"#;
        let blocks = |texts: &[&str]| ToolResult {
            content: ToolContent::Blocks(
                texts.iter().map(|text| ContentBlock::Text((*text).into())).collect(),
            ),
            ..ToolResult::structured(Json::parse(json).expect("JSON"))
        };
        for (version, _) in Version::ALL {
            let has_structured = version >= Version::V2025_06_18;
            let data: &[&str] = if has_structured { &[] } else { &[json] };
            for texts in [&["One row.", "A notice."][..], &[]] {
                let (content, _) = encode(blocks(texts), version);
                assert_eq!(content, [texts, data].concat(), "{version:?}");
            }
            // Data that is a block already is not repeated.
            let (content, _) = encode(blocks(&["A notice.", json]), version);
            assert_eq!(content, ["A notice.", json], "{version:?}");
        }
    }
}
