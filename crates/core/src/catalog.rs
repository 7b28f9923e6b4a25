//! What a provider has to offer.

use json::Json;

/// Everything that one provider offers. Immutable: a change is a new catalog and a [`Change`](crate::Change).
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub tools: Vec<Tool>,
    pub resources: Vec<Resource>,
    pub resource_templates: Vec<ResourceTemplate>,
    pub prompts: Vec<Prompt>,
    /// Whether it completes arguments of its prompts and templates.
    pub completions: bool,
    /// Whether it writes log messages for the client.
    pub logging: bool,
    /// Whether it reports changed resources to subscribers.
    pub resource_subscriptions: bool,
    /// Whether its lists can change while it serves.
    pub list_changed: bool,
    /// What a model should know about this provider as a whole.
    pub instructions: Option<String>,
    /// How often its tools may be called, all of them and by all callers together.
    pub rate_limit: Option<RateLimit>,
}

/// So many calls in so long a time: at once if nobody called before, then one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub calls: u32,
    pub per_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// JSON Schema of the arguments; an object at the root.
    pub input_schema: Json,
    /// JSON Schema of the structured result.
    pub output_schema: Option<Json>,
    pub annotations: ToolAnnotations,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
    pub task_support: TaskSupport,
    /// How often each caller may call it.
    pub rate_limit: Option<RateLimit>,
    /// How long a call may take; else what holds for the server.
    pub call_timeout_ms: Option<u64>,
}

impl Tool {
    pub fn new(name: &str, description: &str, input_schema: Json) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: Some(description.into()),
            input_schema,
            output_schema: None,
            annotations: ToolAnnotations::default(),
            icons: None,
            meta: None,
            task_support: TaskSupport::Forbidden,
            rate_limit: None,
            call_timeout_ms: None,
        }
    }
}

/// Hints about a tool's behaviour; a client must not trust them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// Whether a call of the tool may go on as a task after it was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

#[derive(Debug, Clone, Default)]
pub struct Resource {
    pub uri: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub size: Option<u64>,
    pub annotations: Option<Json>,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
}

/// Resources by a URI template (RFC 6570, simple `{name}` expressions).
#[derive(Debug, Clone, Default)]
pub struct ResourceTemplate {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub annotations: Option<Json>,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone, Default)]
pub struct PromptArgument {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub required: bool,
}
