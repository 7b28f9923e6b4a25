//! The tools, resources and prompts of a provider.

use json::Json;

/// Everything that one provider offers. Immutable: after a change there is a new catalog, and the provider
/// reports a [`CatalogChange`](crate::CatalogChange).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    pub tools: Vec<Tool>,
    pub resources: Vec<Resource>,
    pub resource_templates: Vec<ResourceTemplate>,
    pub prompts: Vec<Prompt>,
    /// Served by the extension `io.modelcontextprotocol/skills`.
    pub skills: Vec<Skill>,
    /// Directories that clients can list, such as those of the skills.
    pub directories: Vec<ResourceDirectory>,
    /// Whether it supports `completion/complete` for its prompts and templates.
    pub completions: bool,
    /// Whether it sends log messages to the client.
    pub logging: bool,
    /// Whether it reports changed resources to subscribers.
    pub resource_subscriptions: bool,
    /// Whether its lists can change while the server runs.
    pub list_changed: bool,
    /// Whether it may come to offer tools, prompts and resources of which it has none now: a server that is not connected
    /// yet. Clients are told at once that there are such lists.
    pub is_open_ended: bool,
    /// Instructions for the model about the provider as a whole.
    pub instructions: Option<String>,
    /// One rate limit for all tools and all callers together.
    pub rate_limit: Option<RateLimit>,
    /// Whether its calls look at the headers of the request. The host passes them on only then.
    pub reads_request_heads: bool,
}

/// At most `calls` calls per `per_ms`, as a token bucket: a burst of `calls`, then one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub calls: u32,
    pub per_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// JSON Schema of the arguments; its root type is `object`.
    pub input_schema: Json,
    /// JSON Schema of the structured result.
    pub output_schema: Option<Json>,
    pub annotations: ToolAnnotations,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
    pub task_support: TaskSupport,
    /// Whether the provider asks the user before the tool does anything.
    pub requires_confirmation: bool,
    /// The rate limit for each caller.
    pub rate_limit: Option<RateLimit>,
    /// The timeout of a call; `None` means the server's default.
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
            requires_confirmation: false,
            rate_limit: None,
            call_timeout_ms: None,
        }
    }
}

/// Hints about a tool's behaviour. Clients must not rely on them for security.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// Whether a call of the tool may become a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub arguments: Vec<PromptArgument>,
    pub icons: Option<Json>,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptArgument {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub required: bool,
}

/// A folder of instructions for a model, with `SKILL.md` as its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The URI of its `SKILL.md`.
    pub uri: String,
    /// The whole front matter of `SKILL.md`, as a JSON object.
    pub frontmatter: Json,
    pub files: SkillFiles,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillFiles {
    /// Every file of the skill, `SKILL.md` included.
    Complete(Vec<SkillFile>),
    /// The content is generated, so that no digest would stay valid.
    Dynamic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    pub uri: String,
    /// SHA-256 of the file's bytes.
    pub digest: [u8; 32],
    pub size_bytes: u64,
}

/// A resource that has other resources as its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceDirectory {
    /// Without a final slash.
    pub uri: String,
    /// Files and directories directly inside. A directory has the MIME type [`ResourceDirectory::MIME_TYPE`].
    pub children: Vec<Resource>,
}

impl ResourceDirectory {
    pub const MIME_TYPE: &'static str = "inode/directory";
}
