//! The methods, as one table: name, and in which versions.

use std::borrow::Cow;

use crate::version::{Feature, Version};

/// A request that a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Initialize,
    Ping,
    Discover,
    ToolsList,
    ToolsCall,
    ResourcesList,
    TemplatesList,
    ResourcesRead,
    Subscribe,
    Unsubscribe,
    PromptsList,
    PromptsGet,
    Complete,
    SetLevel,
    Listen,
    TaskGet,
    TaskUpdate,
    TaskCancel,
    TaskList,
    TaskResult,
}

/// 2026-07-28, Standard Request Headers: the parameter that `Mcp-Name` repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Name,
    Uri,
    Task,
}

/// When a method exists.
#[derive(Debug, Clone, Copy)]
pub enum When {
    Always,
    With(Feature),
    WithEither(Feature, Feature),
}

impl Method {
    /// The most frequent first: the table is searched from the top.
    #[rustfmt::skip]
    pub const TABLE: [(Self, &'static str, When); 20] = [
        (Self::ToolsCall, "tools/call", When::Always),
        (Self::ToolsList, "tools/list", When::Always),
        (Self::ResourcesRead, "resources/read", When::Always),
        (Self::ResourcesList, "resources/list", When::Always),
        (Self::TemplatesList, "resources/templates/list", When::Always),
        (Self::PromptsGet, "prompts/get", When::Always),
        (Self::PromptsList, "prompts/list", When::Always),
        (Self::Complete, "completion/complete", When::Always),
        (Self::Initialize, "initialize", When::With(Feature::Handshake)),
        (Self::Ping, "ping", When::With(Feature::Ping)),
        (Self::Discover, "server/discover", When::With(Feature::Discover)),
        (Self::Listen, "subscriptions/listen", When::With(Feature::Listen)),
        (Self::Subscribe, "resources/subscribe", When::With(Feature::Subscribe)),
        (Self::Unsubscribe, "resources/unsubscribe", When::With(Feature::Subscribe)),
        (Self::SetLevel, "logging/setLevel", When::With(Feature::SetLevel)),
        (Self::TaskGet, "tasks/get", When::WithEither(Feature::TaskParameter, Feature::TaskExtension)),
        (Self::TaskUpdate, "tasks/update", When::With(Feature::TaskExtension)),
        (Self::TaskCancel, "tasks/cancel", When::WithEither(Feature::TaskParameter, Feature::TaskExtension)),
        (Self::TaskList, "tasks/list", When::With(Feature::TaskParameter)),
        (Self::TaskResult, "tasks/result", When::With(Feature::TaskParameter)),
    ];

    pub fn find(name: &str, version: Version) -> Option<Self> {
        let (method, _, when) = Self::TABLE.iter().find(|(_, n, _)| *n == name)?;
        let there = match when {
            When::Always => true,
            When::With(feature) => version.has(*feature),
            When::WithEither(one, other) => version.has(*one) || version.has(*other),
        };
        there.then_some(*method)
    }

    /// What a request of this kind names, and a header repeats.
    #[inline]
    pub(crate) fn names(self) -> Option<Named> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some(Named::Name),
            Self::ResourcesRead => Some(Named::Uri),
            Self::TaskGet | Self::TaskUpdate | Self::TaskCancel => Some(Named::Task),
            Self::Initialize
            | Self::Ping
            | Self::Discover
            | Self::ToolsList
            | Self::ResourcesList
            | Self::TemplatesList
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::PromptsList
            | Self::Complete
            | Self::SetLevel
            | Self::Listen
            | Self::TaskList
            | Self::TaskResult => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        Self::TABLE.iter().find(|(m, _, _)| *m == self).map_or("", |(_, name, _)| name)
    }
}

/// A name as some clients of the handshake era write it, in its standard spelling: `tools.list` is
/// `tools/list`, and `canceled` is `cancelled`.
#[inline]
pub fn standard_spelling(name: Cow<'_, str>) -> Cow<'_, str> {
    if name == "tools/call" || (name.contains('/') && name != "notifications/canceled") {
        return name;
    }
    let name = Cow::Owned::<str>(name.replace('.', "/"));
    if name == "notifications/canceled" { Cow::Borrowed("notifications/cancelled") } else { name }
}
