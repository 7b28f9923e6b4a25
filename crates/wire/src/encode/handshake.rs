//! Who we are and what we offer: `initialize` and `server/discover`.

use json::write::ObjectWriter;

use super::{RenderedServerInfo, ReplyTo, begin_response, end_response, write_cache_hints};
use crate::method::Method;
use crate::peer::TASKS_EXTENSION;
use crate::version::{Feature, Version};

/// What this server has, over all its providers. What nobody has is not declared.
#[derive(Debug, Clone, Default)]
pub struct ServerCapabilities {
    pub tools: bool,
    pub resources: bool,
    pub prompts: bool,
    pub completions: bool,
    pub logging: bool,
    pub resource_subscriptions: bool,
    pub list_changed: bool,
    pub tasks: bool,
    pub instructions: Option<String>,
}

impl ServerCapabilities {
    /// Whether there is anything that a method is for.
    pub fn supports_method(&self, method: Method) -> bool {
        match method {
            Method::ToolsCall | Method::ToolsList => self.tools,
            Method::ResourcesRead | Method::ResourcesList | Method::ResourceTemplatesList => self.resources,
            Method::PromptsGet | Method::PromptsList => self.prompts,
            Method::Complete => self.completions,
            Method::Subscribe | Method::Unsubscribe => self.resource_subscriptions,
            Method::SetLevel => self.logging,
            Method::TaskGet
            | Method::TaskUpdate
            | Method::TaskCancel
            | Method::TaskList
            | Method::TaskResult => self.tasks,
            Method::Initialize | Method::Ping | Method::Discover | Method::Listen => true,
        }
    }
}

pub fn initialize(out: &mut Vec<u8>, to: &ReplyTo, stamp: &RenderedServerInfo, offer: &ServerCapabilities) {
    begin_response(out, &to.id);
    let mut result = ObjectWriter::new(out);
    result.str("protocolVersion", to.version.as_str());
    result.object("capabilities", |caps| write_server_capabilities(caps, to.version, offer));
    result.raw("serverInfo", &stamp.implementation);
    result.maybe_str("instructions", offer.instructions.as_deref());
    result.end();
    end_response(out);
}

pub fn discover(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    stamp: &RenderedServerInfo,
    offer: &ServerCapabilities,
    public: bool,
) {
    begin_response(out, &to.id);
    out.push(b'{');
    out.extend_from_slice(b"\"supportedVersions\":");
    json::write::array(out, Version::ALL.iter().rev(), |out, (_, date)| json::write::string(out, date));
    out.extend_from_slice(b",\"capabilities\":");
    let mut caps = ObjectWriter::new(out);
    write_server_capabilities(&mut caps, to.version, offer);
    caps.end();
    if let Some(instructions) = &offer.instructions {
        out.extend_from_slice(b",\"instructions\":");
        json::write::string(out, instructions);
    }
    write_cache_hints(out, to.version, DISCOVER_TTL_MS, public);
    stamp.close_result(out, to.version, false);
    end_response(out);
}

/// What a server is changes with a restart or a reload, so a client need not ask again soon.
const DISCOVER_TTL_MS: u64 = 60_000;

fn write_server_capabilities(out: &mut ObjectWriter<'_>, version: Version, offer: &ServerCapabilities) {
    let list = |out: &mut ObjectWriter<'_>, key: &str| {
        out.object(key, |o| {
            if offer.list_changed {
                o.bool("listChanged", true);
            }
        });
    };
    if offer.tools {
        list(out, "tools");
    }
    if offer.resources {
        out.object("resources", |o| {
            if offer.resource_subscriptions {
                o.bool("subscribe", true);
            }
            if offer.list_changed {
                o.bool("listChanged", true);
            }
        });
    }
    if offer.prompts {
        list(out, "prompts");
    }
    if offer.completions && version.has(Feature::CompletionsCapability) {
        out.raw("completions", "{}");
    }
    if offer.logging {
        out.raw("logging", "{}");
    }
    if offer.tasks && version.has(Feature::TaskParameter) {
        out.raw("tasks", r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#);
    }
    if offer.tasks && version.has(Feature::TaskExtension) {
        out.object("extensions", |o| {
            o.raw(TASKS_EXTENSION, "{}");
        });
    }
}
