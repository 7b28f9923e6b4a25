//! Writes the client's requests, notifications and responses.

use json::write::ObjectWriter;
use json::{Json, Node};
use spile_core::{ClientCapabilities, LogLevel};

use crate::id::RequestId;
use crate::peer::{write_capabilities, write_sampling};
use crate::version::{Feature, Version};

/// What the client declares about itself.
pub(super) struct ClientIdentity<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) capabilities: ClientCapabilities,
    pub(super) log_level: Option<LogLevel>,
}

/// What the client adds to the parameters of a request.
#[derive(Default)]
pub(super) struct RequestExtras<'a> {
    pub(super) wants_progress: bool,
    pub(super) cursor: Option<&'a str>,
    /// The answers to the input requests of the last round, and its `requestState`.
    pub(super) input_responses: &'a [(String, Json)],
    pub(super) request_state: Option<&'a Json>,
}

pub(super) fn request(
    id: u64,
    method: &str,
    params: &Json,
    extras: &RequestExtras<'_>,
    identity: &ClientIdentity<'_>,
    version: Version,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + params.as_str().len());
    let mut message = ObjectWriter::new(&mut out);
    message.str("jsonrpc", "2.0").int("id", id as i64).str("method", method);
    let doc = params.to_doc();
    let own = doc.root();
    let meta = own.get("_meta").filter(Node::is_object);
    let has_meta = extras.wants_progress || meta.is_some() || version.has(Feature::RequestMeta);
    if has_meta || !own.is_empty() || extras.cursor.is_some() {
        message.object("params", |out| {
            for (key, value) in own.members().filter(|(key, _)| !key.eq_str("_meta")) {
                copy_member(out, key, value);
            }
            out.maybe_str("cursor", extras.cursor);
            if !extras.input_responses.is_empty() {
                out.object("inputResponses", |out| {
                    for (key, answer) in extras.input_responses {
                        out.raw(key, answer.as_str());
                    }
                });
            }
            out.maybe_raw("requestState", extras.request_state.map(Json::as_str));
            if has_meta {
                out.object("_meta", |out| write_meta(out, id, meta, extras, identity, version));
            }
        });
    }
    message.end();
    out
}

fn write_meta(
    out: &mut ObjectWriter<'_>,
    id: u64,
    own: Option<Node<'_>>,
    extras: &RequestExtras<'_>,
    identity: &ClientIdentity<'_>,
    version: Version,
) {
    // The application must not override the members that the client sets.
    let is_reserved = |key: &Node<'_>| {
        key.eq_str("progressToken")
            || [META_PROTOCOL_VERSION, META_CLIENT_INFO, META_CLIENT_CAPABILITIES, META_LOG_LEVEL]
                .iter()
                .any(|reserved| version.has(Feature::RequestMeta) && key.eq_str(reserved))
    };
    for (key, value) in own.into_iter().flat_map(|meta| meta.members()).filter(|(key, _)| !is_reserved(key)) {
        copy_member(out, key, value);
    }
    if version.has(Feature::RequestMeta) {
        out.str(META_PROTOCOL_VERSION, version.as_str());
        out.object(META_CLIENT_INFO, |out| write_client_info(out, identity));
        out.object(META_CLIENT_CAPABILITIES, |out| write_capabilities(out, identity.capabilities));
        out.maybe_str(META_LOG_LEVEL, identity.log_level.map(LogLevel::as_str));
    }
    if extras.wants_progress {
        out.int("progressToken", id as i64);
    }
}

const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn copy_member(out: &mut ObjectWriter<'_>, key: Node<'_>, value: Node<'_>) {
    value.write_compact(out.key(&key.str().unwrap_or_default()));
}

fn write_client_info(out: &mut ObjectWriter<'_>, identity: &ClientIdentity<'_>) {
    out.str("name", identity.name).str("version", identity.version);
}

/// Builds the parameters of `initialize`.
pub(super) fn initialize_params(identity: &ClientIdentity<'_>, requested: Version) -> Json {
    Json::object(|out| {
        out.str("protocolVersion", requested.as_str());
        out.object("capabilities", |out| write_legacy_capabilities(out, identity.capabilities, requested));
        out.object("clientInfo", |out| write_client_info(out, identity));
    })
}

/// Older versions have fewer capabilities. Only those that the version has are written.
fn write_legacy_capabilities(out: &mut ObjectWriter<'_>, capabilities: ClientCapabilities, version: Version) {
    if capabilities.has(ClientCapabilities::ROOTS) {
        let says_changes = capabilities.has(ClientCapabilities::ROOTS_LIST_CHANGED);
        out.raw("roots", if says_changes { r#"{"listChanged":true}"# } else { "{}" });
    }
    let newer = ClientCapabilities::SAMPLING_TOOLS.with(ClientCapabilities::SAMPLING_CONTEXT);
    let sampling =
        if version.has(Feature::SamplingTools) { capabilities } else { newer.missing(capabilities) };
    write_sampling(out, sampling);
    let modes = version.has(Feature::ElicitationMode);
    match (
        capabilities.has(ClientCapabilities::ELICITATION_FORM),
        capabilities.has(ClientCapabilities::ELICITATION_URL),
    ) {
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

pub(super) fn roots_list_changed() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#.to_vec()
}

pub(super) fn initialized() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
}

pub(super) fn cancelled(id: u64, reason: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut message = ObjectWriter::new(&mut out);
    message.str("jsonrpc", "2.0").str("method", "notifications/cancelled");
    message.object("params", |params| {
        params.int("requestId", id as i64).str("reason", reason);
    });
    message.end();
    out
}

pub(super) fn result(id: &RequestId, result: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + result.len());
    let mut message = ObjectWriter::new(&mut out);
    message.str("jsonrpc", "2.0");
    message.key("id").extend_from_slice(id.as_bytes());
    message.raw("result", result);
    message.end();
    out
}

pub(super) fn error(id: &RequestId, code: i64, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + text.len());
    let mut message = ObjectWriter::new(&mut out);
    message.str("jsonrpc", "2.0");
    message.key("id").extend_from_slice(id.as_bytes());
    message.object("error", |error| {
        error.int("code", code).str("message", text);
    });
    message.end();
    out
}
