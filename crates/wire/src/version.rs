//! The protocol versions and their features. Only this file knows protocol dates.
//!
//! To add a version: add a variant, its date in [`Version::ALL`], and adjust the ranges in [`Feature::TABLE`].
//! All other code asks [`Version::has`].

/// A supported protocol version, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

use Version::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

impl Version {
    pub const ALL: [(Self, &'static str); 5] = [
        (V2024_11_05, "2024-11-05"),
        (V2025_03_26, "2025-03-26"),
        (V2025_06_18, "2025-06-18"),
        (V2025_11_25, "2025-11-25"),
        (V2026_07_28, "2026-07-28"),
    ];

    /// The version of an HTTP request without a version header. 2025-06-18 and later: the server "SHOULD assume"
    /// this one.
    pub const UNSPECIFIED: Self = V2025_03_26;

    /// The newest version with a handshake.
    pub const NEWEST_WITH_HANDSHAKE: Self = V2025_11_25;

    /// The newest version.
    pub const NEWEST: Self = V2026_07_28;

    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub fn parse(date: &str) -> Option<Self> {
        Self::parse_bytes(date.as_bytes())
    }

    pub fn parse_bytes(date: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, d)| d.as_bytes() == date).map(|(version, _)| *version)
    }

    pub fn index(self) -> usize {
        self as usize
    }

    #[inline]
    pub fn has(self, feature: Feature) -> bool {
        let (first, last) = feature.version_range();
        first <= self && self <= last
    }
}

/// A difference between versions. A feature exists from its first version to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    Handshake,
    RequestMeta,
    Sessions,
    VersionHeader,
    Batches,
    EventIds,
    Priming,
    ErrorWithoutId,
    ResourceNotFoundCode,
    Ping,
    SetLevel,
    Subscribe,
    Listen,
    Discover,
    ServerRequests,
    InputRequired,
    ResultType,
    CacheHints,
    StandardHeaders,
    Annotations,
    Audio,
    ProgressMessage,
    CompletionsCapability,
    CompletionContext,
    StructuredContent,
    StructuredResult,
    AnyStructuredContent,
    ResourceLinks,
    Titles,
    Meta,
    Icons,
    Elicitation,
    ElicitationMode,
    ElicitationId,
    RootsListChanged,
    SamplingTools,
    TaskParameter,
    TaskExtension,
    Extensions,
}

impl Feature {
    /// Every feature with its first and last version and a description, in reading order.
    #[rustfmt::skip]
    pub const TABLE: [(Self, Version, Version, &'static str); 39] = [
        (Self::Handshake, V2024_11_05, V2025_11_25, "`initialize` and `notifications/initialized`"),
        (Self::RequestMeta, V2026_07_28, V2026_07_28, "version and capabilities in every request's `_meta`"),
        (Self::Sessions, V2025_03_26, V2025_11_25, "`Mcp-Session-Id`, GET stream, DELETE"),
        (Self::VersionHeader, V2025_06_18, V2026_07_28, "`MCP-Protocol-Version` on every request"),
        (Self::Batches, V2025_03_26, V2025_03_26, "JSON-RPC batches"),
        (Self::EventIds, V2025_03_26, V2025_11_25, "SSE events have ids; `Last-Event-ID` resumes"),
        (Self::Priming, V2025_11_25, V2025_11_25, "an SSE stream starts with an empty event and may end with `retry`"),
        (Self::ErrorWithoutId, V2025_11_25, V2026_07_28, "an error that belongs to no request has no `id` (earlier: `null`)"),
        (Self::ResourceNotFoundCode, V2024_11_05, V2025_11_25, "an unknown resource is -32002 (later: -32602)"),
        (Self::Ping, V2024_11_05, V2025_11_25, "`ping`"),
        (Self::SetLevel, V2024_11_05, V2025_11_25, "`logging/setLevel` (later: `logLevel` per request)"),
        (Self::Subscribe, V2024_11_05, V2025_11_25, "`resources/subscribe` and `resources/unsubscribe`"),
        (Self::Listen, V2026_07_28, V2026_07_28, "`subscriptions/listen`"),
        (Self::Discover, V2026_07_28, V2026_07_28, "`server/discover`"),
        (Self::ServerRequests, V2024_11_05, V2025_11_25, "input requests are requests from the server"),
        (Self::InputRequired, V2026_07_28, V2026_07_28, "input requests are `input_required` results with a sealed `requestState`"),
        (Self::ResultType, V2026_07_28, V2026_07_28, "`resultType` and `serverInfo` in every result"),
        (Self::CacheHints, V2026_07_28, V2026_07_28, "`ttlMs` and `cacheScope`"),
        (Self::StandardHeaders, V2026_07_28, V2026_07_28, "`Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` must match the body"),
        (Self::Annotations, V2025_03_26, V2026_07_28, "tool annotations"),
        (Self::Audio, V2025_03_26, V2026_07_28, "audio content (earlier: an embedded blob)"),
        (Self::ProgressMessage, V2025_03_26, V2026_07_28, "`message` in progress"),
        (Self::CompletionsCapability, V2025_03_26, V2026_07_28, "`completions` in the capabilities"),
        (Self::CompletionContext, V2025_06_18, V2026_07_28, "`context` in completion requests"),
        (Self::StructuredContent, V2025_06_18, V2026_07_28, "`outputSchema`; a result's text need not repeat its `structuredContent`"),
        // Not in the text of 2025-03-26, but its schema allows more members, and an HTTP request without a version is
        // of that version: what sends one bare POST should get the data.
        (Self::StructuredResult, V2025_03_26, V2026_07_28, "`structuredContent` in results of tools (earlier: text only)"),
        (Self::AnyStructuredContent, V2026_07_28, V2026_07_28, "structured content that is not an object"),
        (Self::ResourceLinks, V2025_06_18, V2026_07_28, "`resource_link` content (earlier: text with the URI)"),
        (Self::Titles, V2025_06_18, V2026_07_28, "`title` beside `name`"),
        (Self::Meta, V2025_06_18, V2026_07_28, "`_meta` on listed items"),
        (Self::Icons, V2025_11_25, V2026_07_28, "`icons`"),
        (Self::Elicitation, V2025_06_18, V2026_07_28, "elicitation by form"),
        (Self::ElicitationMode, V2025_11_25, V2026_07_28, "`mode` in elicitation; URL mode"),
        (Self::ElicitationId, V2025_11_25, V2025_11_25, "`elicitationId` in URL mode"),
        (Self::RootsListChanged, V2024_11_05, V2025_11_25, "`notifications/roots/list_changed`"),
        (Self::SamplingTools, V2025_11_25, V2026_07_28, "sampling with tools"),
        (Self::TaskParameter, V2025_11_25, V2025_11_25, "tasks requested by the `task` parameter; `tasks/list`, `tasks/result`"),
        (Self::TaskExtension, V2026_07_28, V2026_07_28, "tasks as the extension `io.modelcontextprotocol/tasks`"),
        (Self::Extensions, V2026_07_28, V2026_07_28, "`extensions` in the capabilities"),
    ];

    #[inline]
    const fn version_range(self) -> (Version, Version) {
        let row = Self::TABLE[self as usize];
        (row.1, row.2)
    }
}

#[cfg(test)]
mod tests {
    use super::{Feature, Version};

    #[test]
    fn table_rows_are_in_the_order_of_the_variants() {
        for (i, (feature, first, last, _)) in Feature::TABLE.iter().enumerate() {
            assert_eq!(*feature as usize, i);
            assert!(first <= last);
        }
        for (i, (version, date)) in Version::ALL.iter().enumerate() {
            assert_eq!((version.index(), Version::parse(date)), (i, Some(*version)));
        }
    }
}
