//! What the page shows. The caller decides what goes in: only what the viewer may see, and no argument of a call.

use spile_core::{Prompt, Resource, ResourceTemplate, Tool};

/// Everything on the page.
pub struct PageView<'a> {
    pub servers: Vec<ServerView<'a>>,
    /// The servers behind a gateway; empty for other servers.
    pub upstreams: Vec<UpstreamView>,
    /// Servers that should be here and could not be started.
    pub failed_servers: Vec<SourceView<'a>>,
    /// Whether clients must send a token.
    pub requires_token: bool,
}

pub struct ServerView<'a> {
    pub name: &'a str,
    pub version: &'a str,
    pub instructions: Option<&'a str>,
    /// The address that clients use.
    pub url: String,
    pub snippets: Vec<ConnectSnippet>,
    pub tools: Vec<&'a Tool>,
    pub resources: Vec<&'a Resource>,
    pub resource_templates: Vec<&'a ResourceTemplate>,
    pub prompts: Vec<&'a Prompt>,
    /// Items that the server has and cannot serve.
    pub unserved: Vec<UnservedView<'a>>,
    /// `ok`, `degraded` or `down`.
    pub health: &'static str,
    pub source_count: usize,
    pub unavailable_sources: Vec<SourceView<'a>>,
    pub reload: Option<ReloadView<'a>>,
    pub uptime_ms: u64,
    pub calls_total: u64,
    pub calls_active: usize,
    pub sessions: usize,
    /// Newest first.
    pub recent_calls: Vec<CallView<'a>>,
    /// Since when calls are recorded.
    pub recorded_since_ms: u64,
}

/// A server behind a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamView {
    pub name: String,
    /// The address that clients use for this server alone.
    pub url: String,
    /// `connected`, `reconnecting` and so on.
    pub state: &'static str,
    pub health: UpstreamHealth,
    /// What it says it is, or why it is not connected. Empty if the viewer may not see it.
    pub detail: String,
    pub reconnects: u64,
    pub tools: usize,
    /// What its tools and instructions cost every conversation.
    pub tokens: usize,
    /// Tools whose definitions nobody has approved.
    pub unapproved: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpstreamHealth {
    Good,
    /// It may come back by itself.
    #[default]
    Waiting,
    Bad,
}

impl UpstreamHealth {
    /// The class of its colour; the state says the same.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Waiting => "warn",
            Self::Bad => "bad",
        }
    }
}

/// How one client connects to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectSnippet {
    pub client: &'static str,
    /// Where the text goes: a shell, or a settings file.
    pub place: &'static str,
    pub text: String,
}

/// A source or a server that is not available.
pub struct SourceView<'a> {
    pub name: &'a str,
    pub reason: &'a str,
    /// Whether only writes fail.
    pub is_readable: bool,
}

pub struct UnservedView<'a> {
    pub kind: String,
    pub name: &'a str,
    pub reason: &'a str,
}

pub struct ReloadView<'a> {
    pub at_ms: u64,
    pub outcome: &'static str,
    pub message: Option<&'a str>,
}

/// A finished call.
pub struct CallView<'a> {
    pub at_ms: u64,
    pub kind: &'static str,
    /// The listed name of what was called. A name that is not listed comes from the caller, and is not shown.
    pub name: Option<&'a str>,
    pub outcome: CallOutcome,
    pub duration_ms: u64,
    pub response_bytes: usize,
    /// Whether a tool called this, not the client.
    pub is_nested: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    Ok,
    /// The tool failed with a code from the fixed list, or with one of its own.
    ToolError(Option<&'static str>),
    InputRequired,
    Task,
    Error(&'static str),
    Cancelled,
}

impl CallOutcome {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError(code) => code.unwrap_or("tool error"),
            Self::InputRequired => "asked the user",
            Self::Task => "became a task",
            Self::Error(kind) => kind,
            Self::Cancelled => "cancelled",
        }
    }

    /// The class of its colour; the text says the same.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Ok => "good",
            Self::ToolError(_) | Self::Error(_) => "bad",
            Self::InputRequired | Self::Task | Self::Cancelled => "neutral",
        }
    }
}
