//! Who we are and what we offer: `initialize` and `server/discover`.

use json::write::Object;

use super::{ReplyTo, Stamp, begin, cache_hints, end};
use crate::method::Method;
use crate::peer::TASKS_EXTENSION;
use crate::version::{Feature, Version};

/// What this server has, over all its providers. What nobody has is not declared.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    pub tools: bool,
    pub resources: bool,
    pub prompts: bool,
    pub completes: bool,
    pub logs: bool,
    pub watches: bool,
    pub changes: bool,
    pub tasks: bool,
    pub instructions: Option<String>,
}

impl Offer {
    /// Whether there is anything that a method is for.
    pub fn serves(&self, method: Method) -> bool {
        match method {
            Method::ToolsCall | Method::ToolsList => self.tools,
            Method::ResourcesRead | Method::ResourcesList | Method::TemplatesList => self.resources,
            Method::PromptsGet | Method::PromptsList => self.prompts,
            Method::Complete => self.completes,
            Method::Subscribe | Method::Unsubscribe => self.watches,
            Method::SetLevel => self.logs,
            Method::TaskGet
            | Method::TaskUpdate
            | Method::TaskCancel
            | Method::TaskList
            | Method::TaskResult => self.tasks,
            Method::Initialize | Method::Ping | Method::Discover | Method::Listen => true,
        }
    }
}

pub fn initialize(out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp, offer: &Offer) {
    begin(out, &to.id);
    let mut result = Object::new(out);
    result.str("protocolVersion", to.version.as_str());
    result.object("capabilities", |caps| capabilities(caps, to.version, offer));
    result.raw("serverInfo", &stamp.info);
    result.maybe_str("instructions", offer.instructions.as_deref());
    result.end();
    end(out);
}

pub fn discover(out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp, offer: &Offer, public: bool) {
    begin(out, &to.id);
    out.push(b'{');
    out.extend_from_slice(b"\"supportedVersions\":");
    json::write::array(out, Version::ALL.iter().rev(), |out, (_, date)| json::write::string(out, date));
    out.extend_from_slice(b",\"capabilities\":");
    let mut caps = Object::new(out);
    capabilities(&mut caps, to.version, offer);
    caps.end();
    if let Some(instructions) = &offer.instructions {
        out.extend_from_slice(b",\"instructions\":");
        json::write::string(out, instructions);
    }
    cache_hints(out, to.version, DISCOVER_TTL_MS, public);
    stamp.close(out, to.version, false);
    end(out);
}

/// What a server is changes with a restart or a reload, so a client need not ask again soon.
const DISCOVER_TTL_MS: u64 = 60_000;

fn capabilities(out: &mut Object<'_>, version: Version, offer: &Offer) {
    let list = |out: &mut Object<'_>, key: &str| {
        out.object(key, |o| {
            if offer.changes {
                o.bool("listChanged", true);
            }
        });
    };
    if offer.tools {
        list(out, "tools");
    }
    if offer.resources {
        out.object("resources", |o| {
            if offer.watches {
                o.bool("subscribe", true);
            }
            if offer.changes {
                o.bool("listChanged", true);
            }
        });
    }
    if offer.prompts {
        list(out, "prompts");
    }
    if offer.completes && version.has(Feature::CompletionsDeclared) {
        out.raw("completions", "{}");
    }
    if offer.logs {
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
