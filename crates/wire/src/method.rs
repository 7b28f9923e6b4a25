//! The methods, as one table: name and versions.

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
    ResourceTemplatesList,
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
    SkillsList,
    SkillsGet,
    DirectoryRead,
}

/// The parameter that `Mcp-Name` repeats (2026-07-28, Standard Request Headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameParam {
    Name,
    Uri,
    TaskId,
}

/// In which versions a method exists.
#[derive(Debug, Clone, Copy)]
pub enum Availability {
    Always,
    With(Feature),
    WithEither(Feature, Feature),
}

impl Method {
    /// The most frequent methods come first, because lookups are linear.
    #[rustfmt::skip]
    pub const TABLE: [(Self, &'static str, Availability); 23] = [
        (Self::ToolsCall, "tools/call", Availability::Always),
        (Self::ToolsList, "tools/list", Availability::Always),
        (Self::ResourcesRead, "resources/read", Availability::Always),
        (Self::ResourcesList, "resources/list", Availability::Always),
        (Self::ResourceTemplatesList, "resources/templates/list", Availability::Always),
        (Self::PromptsGet, "prompts/get", Availability::Always),
        (Self::PromptsList, "prompts/list", Availability::Always),
        (Self::Complete, "completion/complete", Availability::Always),
        (Self::Initialize, "initialize", Availability::With(Feature::Handshake)),
        (Self::Ping, "ping", Availability::With(Feature::Ping)),
        (Self::Discover, "server/discover", Availability::With(Feature::Discover)),
        (Self::Listen, "subscriptions/listen", Availability::With(Feature::Listen)),
        (Self::Subscribe, "resources/subscribe", Availability::With(Feature::Subscribe)),
        (Self::Unsubscribe, "resources/unsubscribe", Availability::With(Feature::Subscribe)),
        (Self::SetLevel, "logging/setLevel", Availability::With(Feature::SetLevel)),
        (Self::TaskGet, "tasks/get", Availability::WithEither(Feature::TaskParameter, Feature::TaskExtension)),
        (Self::TaskUpdate, "tasks/update", Availability::With(Feature::TaskExtension)),
        (Self::TaskCancel, "tasks/cancel", Availability::WithEither(Feature::TaskParameter, Feature::TaskExtension)),
        (Self::TaskList, "tasks/list", Availability::With(Feature::TaskParameter)),
        (Self::TaskResult, "tasks/result", Availability::With(Feature::TaskParameter)),
        (Self::SkillsList, "skills/list", Availability::With(Feature::Extensions)),
        (Self::SkillsGet, "skills/get", Availability::With(Feature::Extensions)),
        (Self::DirectoryRead, "resources/directory/read", Availability::With(Feature::Extensions)),
    ];

    pub fn find(name: &str, version: Version) -> Option<Self> {
        let (method, _, availability) = Self::TABLE.iter().find(|(_, n, _)| *n == name)?;
        let is_available = match availability {
            Availability::Always => true,
            Availability::With(feature) => version.has(*feature),
            Availability::WithEither(one, other) => version.has(*one) || version.has(*other),
        };
        is_available.then_some(*method)
    }

    /// The parameter of this method that `Mcp-Name` repeats.
    #[inline]
    pub(crate) fn name_param(self) -> Option<NameParam> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some(NameParam::Name),
            Self::ResourcesRead => Some(NameParam::Uri),
            Self::TaskGet | Self::TaskUpdate | Self::TaskCancel => Some(NameParam::TaskId),
            Self::Initialize
            | Self::Ping
            | Self::Discover
            | Self::ToolsList
            | Self::ResourcesList
            | Self::ResourceTemplatesList
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::PromptsList
            | Self::Complete
            | Self::SetLevel
            | Self::Listen
            | Self::TaskList
            | Self::TaskResult
            | Self::SkillsList
            | Self::SkillsGet
            | Self::DirectoryRead => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        Self::TABLE.iter().find(|(m, _, _)| *m == self).map_or("", |(_, name, _)| name)
    }
}

/// The standard spelling of a method name. Some clients of the handshake era write `tools.list` for `tools/list`,
/// and `canceled` for `cancelled`.
#[inline]
pub fn normalize_method_name(name: Cow<'_, str>) -> Cow<'_, str> {
    if name == "tools/call" || (name.contains('/') && name != "notifications/canceled") {
        return name;
    }
    let name = Cow::Owned::<str>(name.replace('.', "/"));
    if name == "notifications/canceled" { Cow::Borrowed("notifications/cancelled") } else { name }
}
