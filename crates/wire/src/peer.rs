//! Who is at the other end: a version and what it declared.

use call::{Caps, Level};
use json::{Node, write};

use crate::version::{Feature, Version};

/// Everything about a client that changes how it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub version: Version,
    pub caps: Caps,
    /// The mildest log message it wants.
    pub level: Option<Level>,
}

impl Peer {
    /// A client of whom nothing is known but the version.
    pub fn bare(version: Version) -> Self {
        Self { version, caps: Caps::NONE, level: None }
    }

    /// A client that shook hands.
    pub fn greeted(version: Version, caps: Caps) -> Self {
        // 2025-11-25, Logging: before setLevel "the server MAY decide which messages to send".
        let level = version.has(Feature::SetLevel).then_some(Level::Info);
        Self { version, caps, level }
    }
}

/// The extension that lets a call go on as a task.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Reads `clientCapabilities`. What is not understood is ignored: odd declarations are no reason to refuse.
pub(crate) fn read_caps(node: Node<'_>, version: Version) -> Caps {
    let mut caps = Caps::NONE;
    let mut add = |there: bool, cap: Caps| {
        if there {
            caps = caps.with(cap);
        }
    };
    for (key, value) in node.members() {
        let inner = |name: &str| value.get(name).is_some_and(|v| v.is_object());
        if key.is("roots") {
            add(value.is_object(), Caps::ROOTS);
        } else if key.is("sampling") {
            add(value.is_object(), Caps::SAMPLING);
            add(version.has(Feature::SamplingTools) && inner("tools"), Caps::SAMPLING_TOOLS);
            add(version.has(Feature::SamplingTools) && inner("context"), Caps::SAMPLING_CONTEXT);
        } else if key.is("elicitation") && version.has(Feature::Elicitation) {
            // An empty object means forms: that is all it could mean in 2025-06-18.
            add(value.is_object() && (inner("form") || !inner("url")), Caps::ELICIT_FORM);
            add(version.has(Feature::ElicitationMode) && inner("url"), Caps::ELICIT_URL);
        } else if key.is("extensions") && version.has(Feature::Extensions) {
            add(inner(TASKS_EXTENSION), Caps::TASKS);
        }
    }
    caps
}

/// Writes the members of a capabilities object that declares `caps`.
pub(crate) fn write_caps(out: &mut write::Object<'_>, caps: Caps) {
    if caps.has(Caps::ROOTS) {
        out.raw("roots", "{}");
    }
    let sampling_tools = caps.has(Caps::SAMPLING_TOOLS);
    if caps.has(Caps::SAMPLING) || sampling_tools {
        out.raw("sampling", if sampling_tools { r#"{"tools":{}}"# } else { "{}" });
    }
    match (caps.has(Caps::ELICIT_FORM), caps.has(Caps::ELICIT_URL)) {
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
    if caps.has(Caps::TASKS) {
        out.object("extensions", |e| {
            e.raw(TASKS_EXTENSION, "{}");
        });
    }
}
