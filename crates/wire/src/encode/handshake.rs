//! The results of `initialize` and `server/discover`.

use json::write::ObjectWriter;

use super::{RenderedServerInfo, ReplyTo, begin_response, end_response, write_cache_hints};
use crate::method::Method;
use crate::peer::{SKILLS_EXTENSION, TASKS_EXTENSION};
use crate::version::{Feature, Version};

/// The capabilities of the server: the union over its providers. Only these are declared.
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
    pub skills: bool,
    /// Whether directories can be listed. Only an extension setting of skills declares it.
    pub directory_read: bool,
    pub instructions: Option<String>,
}

impl ServerCapabilities {
    /// Whether the server has the capability that a method needs.
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
            Method::SkillsList | Method::SkillsGet => self.skills,
            Method::DirectoryRead => self.skills && self.directory_read,
            Method::Initialize | Method::Ping | Method::Discover | Method::Listen => true,
        }
    }
}

pub fn initialize(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    capabilities: &ServerCapabilities,
) {
    begin_response(out, &to.id);
    let mut result = ObjectWriter::new(out);
    result.str("protocolVersion", to.version.as_str());
    result.object("capabilities", |out| write_server_capabilities(out, to.version, capabilities));
    result.raw("serverInfo", &server_info.implementation);
    result.maybe_str("instructions", capabilities.instructions.as_deref());
    result.end();
    end_response(out);
}

pub fn discover(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    capabilities: &ServerCapabilities,
    public: bool,
) {
    begin_response(out, &to.id);
    out.push(b'{');
    out.extend_from_slice(b"\"supportedVersions\":");
    json::write::array(out, Version::ALL.iter().rev(), |out, (_, date)| json::write::string(out, date));
    out.extend_from_slice(b",\"capabilities\":");
    let mut object = ObjectWriter::new(out);
    write_server_capabilities(&mut object, to.version, capabilities);
    object.end();
    if let Some(instructions) = &capabilities.instructions {
        out.extend_from_slice(b",\"instructions\":");
        json::write::string(out, instructions);
    }
    write_cache_hints(out, to.version, DISCOVER_TTL_MS, public);
    server_info.close_result(out, to.version, false);
    end_response(out);
}

/// The result changes only with a restart or a reload, so a client may cache it for a while.
const DISCOVER_TTL_MS: u64 = 60_000;

fn write_server_capabilities(
    out: &mut ObjectWriter<'_>,
    version: Version,
    capabilities: &ServerCapabilities,
) {
    let list = |out: &mut ObjectWriter<'_>, key: &str| {
        out.object(key, |o| {
            if capabilities.list_changed {
                o.bool("listChanged", true);
            }
        });
    };
    if capabilities.tools {
        list(out, "tools");
    }
    if capabilities.resources {
        out.object("resources", |o| {
            if capabilities.resource_subscriptions {
                o.bool("subscribe", true);
            }
            if capabilities.list_changed {
                o.bool("listChanged", true);
            }
        });
    }
    if capabilities.prompts {
        list(out, "prompts");
    }
    if capabilities.completions && version.has(Feature::CompletionsCapability) {
        out.raw("completions", "{}");
    }
    if capabilities.logging {
        out.raw("logging", "{}");
    }
    if capabilities.tasks && version.has(Feature::TaskParameter) {
        out.raw("tasks", r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#);
    }
    let tasks = capabilities.tasks && version.has(Feature::TaskExtension);
    if version.has(Feature::Extensions) && (tasks || capabilities.skills) {
        out.object("extensions", |o| {
            if tasks {
                o.raw(TASKS_EXTENSION, "{}");
            }
            if capabilities.skills {
                o.object(SKILLS_EXTENSION, |settings| {
                    if capabilities.directory_read {
                        settings.bool("directoryRead", true);
                    }
                });
            }
        });
    }
}
