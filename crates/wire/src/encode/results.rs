//! Results of calls: tools, prompts, resources, completions, and the two that are not final.

use json::Json;
use json::write::{self, ObjectWriter};
use spile_core::{
    CallError, CallResult, ContentBlock, InputRequests, PromptResult, Resource, ResourceContents,
    ResourceResult, Role, ToolContent, ToolResult,
};

use super::{
    RenderedServerInfo, ReplyTo, begin_response, end_response, input_requests, tasks, write_cache_hints,
};
use crate::error::RpcError;
use crate::version::{Feature, Version};

/// How a call ended, as far as this request is concerned.
pub enum CallResponseRef<'a> {
    Result(&'a CallResult),
    /// Questions first; `state` is sealed.
    InputRequired {
        requests: &'a InputRequests,
        request_state: &'a str,
    },
    /// The work goes on as a task.
    TaskCreated(&'a tasks::TaskSnapshot),
    Error(&'a CallError),
}

/// Writes the whole response and says the HTTP status that goes with it.
#[inline]
pub fn call_response(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    stamp: &RenderedServerInfo,
    ended: &CallResponseRef<'_>,
) -> u16 {
    match ended {
        CallResponseRef::Result(reply) => {
            begin_response(out, &to.id);
            write_result(out, to.version, stamp, reply);
            end_response(out);
            200
        }
        CallResponseRef::InputRequired { requests: asks, request_state: state } => {
            begin_response(out, &to.id);
            write_input_required(out, to.version, stamp, asks, state);
            end_response(out);
            200
        }
        CallResponseRef::TaskCreated(task) => {
            begin_response(out, &to.id);
            tasks::write_task_created(out, to.version, stamp, task);
            end_response(out);
            200
        }
        CallResponseRef::Error(fault) => {
            let told = RpcError::from_call_error(fault, to.version);
            out.extend_from_slice(&told.to_response(Some(&to.id), to.version));
            told.http_status
        }
    }
}

/// A result without members: exactly `{}` in the handshake era.
pub fn empty_result(out: &mut Vec<u8>, to: &ReplyTo, stamp: &RenderedServerInfo) {
    begin_response(out, &to.id);
    out.push(b'{');
    stamp.close_result(out, to.version, true);
    end_response(out);
}

/// The result object of a finished call.
pub(super) fn write_result(
    out: &mut Vec<u8>,
    version: Version,
    stamp: &RenderedServerInfo,
    reply: &CallResult,
) {
    match reply {
        CallResult::Tool(reply) => write_tool_result(out, version, stamp, reply),
        CallResult::Prompt(reply) => write_prompt_result(out, version, stamp, reply),
        CallResult::Resource(contents) => write_resource_result(out, version, stamp, contents),
        CallResult::Completion(completion) => {
            out.extend_from_slice(b"{\"completion\":");
            let mut object = ObjectWriter::new(out);
            object.array("values", &completion.values, |out, value| write::string(out, value));
            if let Some(total) = completion.total {
                object.int("total", total.min(i64::MAX as u64) as i64);
            }
            object.bool("hasMore", completion.has_more);
            object.end();
            stamp.close_result(out, version, false);
        }
    }
}

#[inline]
fn write_tool_result(out: &mut Vec<u8>, version: Version, stamp: &RenderedServerInfo, reply: &ToolResult) {
    out.extend_from_slice(b"{\"content\":[");
    match (&reply.content, &reply.structured) {
        (ToolContent::Structured, structured) => {
            write_text_block(out, structured.as_ref().map_or("", Json::as_str))
        }
        // A client that knows no structured content would get the words and not the data: it gets both. Why something
        // failed is in the data.
        (ToolContent::Text(text), Some(json)) if !version.has(Feature::StructuredContent) => {
            if !reply.is_error {
                write_text_block(out, text);
                out.push(b',');
            }
            write_text_block(out, json.as_str());
        }
        (ToolContent::Text(text), _) => write_text_block(out, text),
        (ToolContent::Blocks(blocks), _) => {
            for (i, one) in blocks.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_block(out, version, one);
            }
        }
    }
    out.push(b']');
    if let Some(json) = &reply.structured
        && version.has(Feature::StructuredContent)
        && (json.is_object() || version.has(Feature::AnyStructuredContent))
    {
        out.extend_from_slice(br#","structuredContent":"#);
        out.extend_from_slice(json.as_str().as_bytes());
    }
    let error: &[u8] = if reply.is_error { br#","isError":true"# } else { br#","isError":false"# };
    out.extend_from_slice(error);
    match &reply.meta {
        None => stamp.close_result(out, version, false),
        Some(meta) if version.has(Feature::ResultType) => {
            out.extend_from_slice(br#","resultType":"complete","_meta":"#);
            stamp.write_meta(out, Some(meta));
            out.push(b'}');
        }
        Some(meta) => {
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(meta.as_str().as_bytes());
            out.push(b'}');
        }
    }
}

fn write_prompt_result(
    out: &mut Vec<u8>,
    version: Version,
    stamp: &RenderedServerInfo,
    reply: &PromptResult,
) {
    out.push(b'{');
    if let Some(description) = &reply.description {
        out.extend_from_slice(b"\"description\":");
        write::string(out, description);
        out.push(b',');
    }
    out.extend_from_slice(b"\"messages\":");
    write::array(out, &reply.messages, |out, message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let mut object = ObjectWriter::new(out);
        object.str("role", role);
        write_block(object.key("content"), version, &message.content);
        object.end();
    });
    stamp.close_result(out, version, false);
}

fn write_resource_result(
    out: &mut Vec<u8>,
    version: Version,
    stamp: &RenderedServerInfo,
    contents: &ResourceResult,
) {
    out.extend_from_slice(b"{\"contents\":");
    write::array(out, &contents.contents, write_resource_contents);
    write_cache_hints(out, version, contents.ttl_ms, contents.public);
    stamp.close_result(out, version, false);
}

fn write_input_required(
    out: &mut Vec<u8>,
    version: Version,
    stamp: &RenderedServerInfo,
    asks: &InputRequests,
    state: &str,
) {
    let mut object = ObjectWriter::new(out);
    object.str("resultType", "input_required");
    object.object("inputRequests", |requests| input_requests::write_input_requests(requests, asks, version));
    object.str("requestState", state);
    stamp.write_meta(object.key("_meta"), None);
    object.end();
}

#[inline]
fn write_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"type":"text","text":""#);
    write::escaped(out, text.as_bytes());
    out.extend_from_slice(b"\"}");
}

fn write_block(out: &mut Vec<u8>, version: Version, block: &ContentBlock) {
    match block {
        ContentBlock::Text(text) => write_text_block(out, text),
        ContentBlock::Image { data, mime_type: mime } => write_media(out, "image", data, mime),
        ContentBlock::Audio { data, mime_type: mime } if version.has(Feature::Audio) => {
            write_media(out, "audio", data, mime)
        }
        // A kind of content that the client does not know would break it; a blob carries the same bytes.
        ContentBlock::Audio { data, mime_type: mime } => {
            let blob = ResourceContents::Blob {
                uri: "content:audio".into(),
                mime_type: Some(mime.clone()),
                base64: data.clone(),
            };
            write_embedded_resource(out, &blob);
        }
        ContentBlock::EmbeddedResource(body) => write_embedded_resource(out, body),
        ContentBlock::ResourceLink(resource) if version.has(Feature::ResourceLinks) => {
            let mut object = ObjectWriter::new(out);
            object.str("type", "resource_link");
            super::lists::write_resource_members(&mut object, version, resource);
            object.end();
        }
        ContentBlock::ResourceLink(Resource { uri, name, description, .. }) => {
            let about = description.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
            write_text_block(out, &format!("{name}: {uri}{about}"));
        }
    }
}

fn write_media(out: &mut Vec<u8>, kind: &str, data: &str, mime: &str) {
    let mut object = ObjectWriter::new(out);
    object.str("type", kind).str("data", data).str("mimeType", mime);
    object.end();
}

fn write_embedded_resource(out: &mut Vec<u8>, contents: &ResourceContents) {
    let mut object = ObjectWriter::new(out);
    object.str("type", "resource");
    write_resource_contents(object.key("resource"), contents);
    object.end();
}

fn write_resource_contents(out: &mut Vec<u8>, body: &ResourceContents) {
    let mut object = ObjectWriter::new(out);
    match body {
        ResourceContents::Text { uri, mime_type: mime, text } => {
            object.str("uri", uri).maybe_str("mimeType", mime.as_deref()).str("text", text);
        }
        ResourceContents::Blob { uri, mime_type: mime, base64 } => {
            object.str("uri", uri).maybe_str("mimeType", mime.as_deref()).str("blob", base64);
        }
    }
    object.end();
}
