//! Requests, notifications and answers of a client, as bytes.

use call::{Caps, Level};
use json::write::Object;
use json::{Json, Node};

use crate::id::Id;
use crate::peer::write_caps;
use crate::version::{Feature, Version};

/// Who we say we are.
pub(super) struct Card<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) caps: Caps,
    pub(super) level: Option<Level>,
}

/// What a request carries beside its own parameters.
#[derive(Default)]
pub(super) struct Extras<'a> {
    pub(super) progress: bool,
    pub(super) cursor: Option<&'a str>,
    /// Answers to the questions of the round before, and the state that came with them.
    pub(super) answers: &'a [(String, Json)],
    pub(super) state: Option<&'a Json>,
}

pub(super) fn request(
    id: u64,
    method: &str,
    params: &Json,
    extras: &Extras<'_>,
    card: &Card<'_>,
    version: Version,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + params.as_str().len());
    let mut message = Object::new(&mut out);
    message.str("jsonrpc", "2.0").int("id", id as i64).str("method", method);
    let doc = params.doc();
    let own = doc.root();
    let meta = own.get("_meta").filter(Node::is_object);
    let has_meta = extras.progress || meta.is_some() || version.has(Feature::Envelope);
    if has_meta || !own.is_empty() || extras.cursor.is_some() {
        message.object("params", |out| {
            for (key, value) in own.members().filter(|(key, _)| !key.is("_meta")) {
                copy(out, key, value);
            }
            out.maybe_str("cursor", extras.cursor);
            if !extras.answers.is_empty() {
                out.object("inputResponses", |out| {
                    for (key, answer) in extras.answers {
                        out.raw(key, answer.as_str());
                    }
                });
            }
            out.maybe_raw("requestState", extras.state.map(Json::as_str));
            if has_meta {
                out.object("_meta", |out| write_meta(out, id, meta, extras, card, version));
            }
        });
    }
    message.end();
    out
}

fn write_meta(
    out: &mut Object<'_>,
    id: u64,
    own: Option<Node<'_>>,
    extras: &Extras<'_>,
    card: &Card<'_>,
    version: Version,
) {
    // What is ours to say is not taken from anybody else.
    let is_ours = |key: &Node<'_>| {
        key.is("progressToken")
            || [VERSION, INFO, CAPS, LEVEL].iter().any(|ours| version.has(Feature::Envelope) && key.is(ours))
    };
    for (key, value) in own.into_iter().flat_map(|meta| meta.members()).filter(|(key, _)| !is_ours(key)) {
        copy(out, key, value);
    }
    if version.has(Feature::Envelope) {
        out.str(VERSION, version.as_str());
        out.object(INFO, |out| write_info(out, card));
        out.object(CAPS, |out| write_caps(out, card.caps));
        out.maybe_str(LEVEL, card.level.map(Level::as_str));
    }
    if extras.progress {
        out.int("progressToken", id as i64);
    }
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPS: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn copy(out: &mut Object<'_>, key: Node<'_>, value: Node<'_>) {
    value.compact_into(out.key(&key.str().unwrap_or_default()));
}

fn write_info(out: &mut Object<'_>, card: &Card<'_>) {
    out.str("name", card.name).str("version", card.version);
}

/// The parameters of `initialize`.
pub(super) fn greeting(card: &Card<'_>, requested: Version) -> Json {
    Json::object(|out| {
        out.str("protocolVersion", requested.as_str());
        out.object("capabilities", |out| older_caps(out, card.caps, requested));
        out.object("clientInfo", |out| write_info(out, card));
    })
}

/// Earlier versions have fewer words, and know nothing of the newer ones.
fn older_caps(out: &mut Object<'_>, caps: Caps, version: Version) {
    if caps.has(Caps::ROOTS) {
        out.raw("roots", "{}");
    }
    if caps.has(Caps::SAMPLING) {
        let tools = caps.has(Caps::SAMPLING_TOOLS) && version.has(Feature::SamplingTools);
        out.raw("sampling", if tools { r#"{"tools":{}}"# } else { "{}" });
    }
    let modes = version.has(Feature::ElicitationMode);
    match (caps.has(Caps::ELICIT_FORM), caps.has(Caps::ELICIT_URL)) {
        _ if !version.has(Feature::Elicitation) => {}
        (true, true) if modes => {
            out.raw("elicitation", r#"{"form":{},"url":{}}"#);
        }
        (true, _) => {
            out.raw("elicitation", if modes { r#"{"form":{}}"# } else { "{}" });
        }
        (false, true) if modes => {
            out.raw("elicitation", r#"{"url":{}}"#);
        }
        (false, _) => {}
    }
}

pub(super) fn initialized() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
}

pub(super) fn cancelled(id: u64, why: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut message = Object::new(&mut out);
    message.str("jsonrpc", "2.0").str("method", "notifications/cancelled");
    message.object("params", |params| {
        params.int("requestId", id as i64).str("reason", why);
    });
    message.end();
    out
}

pub(super) fn result(id: &Id, result: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + result.len());
    let mut message = Object::new(&mut out);
    message.str("jsonrpc", "2.0");
    message.key("id").extend_from_slice(id.as_bytes());
    message.raw("result", result);
    message.end();
    out
}

pub(super) fn error(id: &Id, code: i64, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + text.len());
    let mut message = Object::new(&mut out);
    message.str("jsonrpc", "2.0");
    message.key("id").extend_from_slice(id.as_bytes());
    message.object("error", |error| {
        error.int("code", code).str("message", text);
    });
    message.end();
    out
}
