//! Results of calls: tools, prompts, resources, completions, and the two that are not final.

use call::{Asks, Block, Body, Content, Contents, Fault, PromptReply, Reply, Resource, Role, ToolReply};
use json::Json;
use json::write::{self, Object};

use super::{ReplyTo, Stamp, asks, begin, cache_hints, end, tasks};
use crate::code::Told;
use crate::version::{Feature, Version};

/// How a call ended, as far as this request is concerned.
pub enum Ended<'a> {
    Reply(&'a Reply),
    /// Questions first; `state` is sealed.
    Input {
        asks: &'a Asks,
        state: &'a str,
    },
    /// The work goes on as a task.
    Task(&'a tasks::TaskView),
    Fault(&'a Fault),
}

/// Writes the whole response and says the HTTP status that goes with it.
#[inline]
pub fn answer(out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp, ended: &Ended<'_>) -> u16 {
    match ended {
        Ended::Reply(reply) => {
            begin(out, &to.id);
            result(out, to.version, stamp, reply);
            end(out);
            200
        }
        Ended::Input { asks, state } => {
            begin(out, &to.id);
            input_required(out, to.version, stamp, asks, state);
            end(out);
            200
        }
        Ended::Task(task) => {
            begin(out, &to.id);
            tasks::created(out, to.version, stamp, task);
            end(out);
            200
        }
        Ended::Fault(fault) => {
            let told = Told::from_fault(fault, to.version);
            out.extend_from_slice(&told.response(Some(&to.id), to.version));
            told.status
        }
    }
}

/// A result without members: exactly `{}` in the handshake era.
pub fn empty(out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp) {
    begin(out, &to.id);
    out.push(b'{');
    stamp.close(out, to.version, true);
    end(out);
}

/// The result object of a finished call.
pub(super) fn result(out: &mut Vec<u8>, version: Version, stamp: &Stamp, reply: &Reply) {
    match reply {
        Reply::Tool(reply) => tool(out, version, stamp, reply),
        Reply::Prompt(reply) => prompt(out, version, stamp, reply),
        Reply::Resource(contents) => resource(out, version, stamp, contents),
        Reply::Completion(completion) => {
            out.extend_from_slice(b"{\"completion\":");
            let mut object = Object::new(out);
            object.array("values", &completion.values, |out, value| write::string(out, value));
            if let Some(total) = completion.total {
                object.int("total", total.min(i64::MAX as u64) as i64);
            }
            object.bool("hasMore", completion.has_more);
            object.end();
            stamp.close(out, version, false);
        }
    }
}

#[inline]
fn tool(out: &mut Vec<u8>, version: Version, stamp: &Stamp, reply: &ToolReply) {
    out.extend_from_slice(b"{\"content\":[");
    match (&reply.content, &reply.structured) {
        (Content::Structured, structured) => text_block(out, structured.as_ref().map_or("", Json::as_str)),
        // A client that knows no structured content would get the words and not the data: it gets both. Why something
        // failed is in the data.
        (Content::Text(text), Some(json)) if !version.has(Feature::StructuredContent) => {
            if !reply.is_error {
                text_block(out, text);
                out.push(b',');
            }
            text_block(out, json.as_str());
        }
        (Content::Text(text), _) => text_block(out, text),
        (Content::Blocks(blocks), _) => {
            for (i, one) in blocks.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                block(out, version, one);
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
        None => stamp.close(out, version, false),
        Some(meta) if version.has(Feature::ResultType) => {
            out.extend_from_slice(br#","resultType":"complete","_meta":"#);
            stamp.meta_with(out, Some(meta));
            out.push(b'}');
        }
        Some(meta) => {
            out.extend_from_slice(br#","_meta":"#);
            out.extend_from_slice(meta.as_str().as_bytes());
            out.push(b'}');
        }
    }
}

fn prompt(out: &mut Vec<u8>, version: Version, stamp: &Stamp, reply: &PromptReply) {
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
        let mut object = Object::new(out);
        object.str("role", role);
        block(object.key("content"), version, &message.block);
        object.end();
    });
    stamp.close(out, version, false);
}

fn resource(out: &mut Vec<u8>, version: Version, stamp: &Stamp, contents: &Contents) {
    out.extend_from_slice(b"{\"contents\":");
    write::array(out, &contents.bodies, body);
    cache_hints(out, version, contents.ttl_ms, contents.public);
    stamp.close(out, version, false);
}

fn input_required(out: &mut Vec<u8>, version: Version, stamp: &Stamp, asks: &Asks, state: &str) {
    let mut object = Object::new(out);
    object.str("resultType", "input_required");
    object.object("inputRequests", |requests| asks::input_requests(requests, asks, version));
    object.str("requestState", state);
    stamp.meta_with(object.key("_meta"), None);
    object.end();
}

#[inline]
fn text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"type":"text","text":""#);
    write::escaped(out, text.as_bytes());
    out.extend_from_slice(b"\"}");
}

fn block(out: &mut Vec<u8>, version: Version, block: &Block) {
    match block {
        Block::Text(text) => text_block(out, text),
        Block::Image { data, mime } => media(out, "image", data, mime),
        Block::Audio { data, mime } if version.has(Feature::Audio) => media(out, "audio", data, mime),
        // A kind of content that the client does not know would break it; a blob carries the same bytes.
        Block::Audio { data, mime } => {
            let blob =
                Body::Blob { uri: "content:audio".into(), mime: Some(mime.clone()), base64: data.clone() };
            embedded(out, &blob);
        }
        Block::Embedded(body) => embedded(out, body),
        Block::Link(resource) if version.has(Feature::ResourceLinks) => {
            let mut object = Object::new(out);
            object.str("type", "resource_link");
            super::lists::resource_members(&mut object, version, resource);
            object.end();
        }
        Block::Link(Resource { uri, name, description, .. }) => {
            let about = description.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
            text_block(out, &format!("{name}: {uri}{about}"));
        }
    }
}

fn media(out: &mut Vec<u8>, kind: &str, data: &str, mime: &str) {
    let mut object = Object::new(out);
    object.str("type", kind).str("data", data).str("mimeType", mime);
    object.end();
}

fn embedded(out: &mut Vec<u8>, contents: &Body) {
    let mut object = Object::new(out);
    object.str("type", "resource");
    body(object.key("resource"), contents);
    object.end();
}

fn body(out: &mut Vec<u8>, body: &Body) {
    let mut object = Object::new(out);
    match body {
        Body::Text { uri, mime, text } => {
            object.str("uri", uri).maybe_str("mimeType", mime.as_deref()).str("text", text);
        }
        Body::Blob { uri, mime, base64 } => {
            object.str("uri", uri).maybe_str("mimeType", mime.as_deref()).str("blob", base64);
        }
    }
    object.end();
}
