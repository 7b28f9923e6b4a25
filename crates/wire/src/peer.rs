//! The client at the other end: its version and capabilities.

use json::{Node, write};
use spile_core::{ClientCapabilities, LogLevel};

use crate::version::{Feature, Version};

/// Everything about a client that affects its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub version: Version,
    pub capabilities: ClientCapabilities,
    /// The least severe log level it wants.
    pub log_level: Option<LogLevel>,
}

impl Peer {
    /// A client of which only the version is known.
    pub fn from_version(version: Version) -> Self {
        Self { version, capabilities: ClientCapabilities::NONE, log_level: None }
    }

    /// A client that completed the handshake.
    pub fn negotiated(version: Version, capabilities: ClientCapabilities) -> Self {
        // 2025-11-25, Logging: before setLevel "the server MAY decide which messages to send".
        let log_level = version.has(Feature::SetLevel).then_some(LogLevel::Info);
        Self { version, capabilities, log_level }
    }
}

/// Negotiates the protocol version: the one that a server answers `initialize` with. "If the server supports the requested protocol version, it
/// MUST respond with the same version. Otherwise … another protocol version it supports": the newest that has a
/// handshake.
pub(crate) fn negotiate_version(requested: &str) -> Version {
    let supported = Version::parse(requested).filter(|version| version.has(Feature::Handshake));
    supported.unwrap_or(Version::NEWEST_WITH_HANDSHAKE)
}

/// The name of the tasks extension.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

/// Reads `clientCapabilities`. Unknown or malformed declarations are ignored.
pub fn read_capabilities(node: Node<'_>, version: Version) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::NONE;
    let mut add = |declared: bool, capability: ClientCapabilities| {
        if declared {
            capabilities = capabilities.with(capability);
        }
    };
    for (key, value) in node.members() {
        let inner = |name: &str| value.get(name).is_some_and(|v| v.is_object());
        if key.eq_str("roots") {
            add(value.is_object(), ClientCapabilities::ROOTS);
            let says_changes = value.get("listChanged").and_then(|flag| flag.bool()).unwrap_or(false);
            add(
                version.has(Feature::RootsListChanged) && says_changes,
                ClientCapabilities::ROOTS_LIST_CHANGED,
            );
        } else if key.eq_str("sampling") {
            add(value.is_object(), ClientCapabilities::SAMPLING);
            add(version.has(Feature::SamplingTools) && inner("tools"), ClientCapabilities::SAMPLING_TOOLS);
            add(
                version.has(Feature::SamplingTools) && inner("context"),
                ClientCapabilities::SAMPLING_CONTEXT,
            );
        } else if key.eq_str("elicitation") && version.has(Feature::Elicitation) {
            // An empty object means forms: 2025-06-18 had nothing else.
            add(value.is_object() && (inner("form") || !inner("url")), ClientCapabilities::ELICITATION_FORM);
            add(version.has(Feature::ElicitationMode) && inner("url"), ClientCapabilities::ELICITATION_URL);
        } else if key.eq_str("extensions") && version.has(Feature::Extensions) {
            add(inner(TASKS_EXTENSION), ClientCapabilities::TASKS);
        }
    }
    capabilities
}

pub(crate) fn write_sampling(out: &mut write::ObjectWriter<'_>, capabilities: ClientCapabilities) {
    let tools = capabilities.has(ClientCapabilities::SAMPLING_TOOLS);
    let context = capabilities.has(ClientCapabilities::SAMPLING_CONTEXT);
    if capabilities.has(ClientCapabilities::SAMPLING) || tools || context {
        out.object("sampling", |out| {
            for (_, name) in [(tools, "tools"), (context, "context")].iter().filter(|(has, _)| *has) {
                out.raw(name, "{}");
            }
        });
    }
}

/// Writes the members of a capabilities object.
pub(crate) fn write_capabilities(out: &mut write::ObjectWriter<'_>, capabilities: ClientCapabilities) {
    if capabilities.has(ClientCapabilities::ROOTS) {
        out.raw("roots", "{}");
    }
    write_sampling(out, capabilities);
    match (
        capabilities.has(ClientCapabilities::ELICITATION_FORM),
        capabilities.has(ClientCapabilities::ELICITATION_URL),
    ) {
        (false, false) => {}
        (true, false) => {
            out.raw("elicitation", r#"{"form":{}}"#);
        }
        (false, true) => {
            out.raw("elicitation", r#"{"url":{}}"#);
        }
        (true, true) => {
            out.raw("elicitation", r#"{"form":{},"url":{}}"#);
        }
    }
    if capabilities.has(ClientCapabilities::TASKS) {
        out.object("extensions", |e| {
            e.raw(TASKS_EXTENSION, "{}");
        });
    }
}
