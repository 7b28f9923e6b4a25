//! The catalogs of all providers together: routes calls to their provider, and renders the lists once.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use contract::compatibility::schema_structure;
use contract::{CompiledSchema, HeaderParam, header_params};
use hashbrown::HashMap;
use json::Json;
use spile_core::{Call, CallError, CallTarget, Catalog, CompletionRef, ItemKind, Provider, TaskSupport};
use wire::encode::{self, RenderedServerInfo, ServerCapabilities};
use wire::{ListKind, Version};

use crate::rate_limit::{RateLimiter, SharedLimit};
use crate::uri_pattern::UriPattern;

type Map<V> = HashMap<Box<str>, V, foldhash::quality::RandomState>;

/// Immutable: a change builds a new registry. Calls in flight keep the one they started with.
pub struct Registry {
    pub capabilities: ServerCapabilities,
    pub(crate) config: RegistryConfig,
    pub(crate) server_info: RenderedServerInfo,
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    /// The shared rate limits of the providers, in their order.
    shared_limits: Vec<Option<Arc<SharedLimit>>>,
    catalog: Catalog,
    tools: Map<ToolEntry>,
    prompts: Map<PromptEntry>,
    resources: Map<Arc<dyn Provider>>,
    templates: Vec<(UriPattern, Arc<dyn Provider>)>,
    /// The providers that have resources: they are tried in turn for a URI that no catalog lists.
    resource_providers: Vec<Arc<dyn Provider>>,
    /// Whether any tool has arguments that travel in headers.
    pub has_header_params: bool,
    /// Hash of all names. Cursors carry it, so that a cursor of another catalog is refused.
    fingerprint: u32,
    page_cache: PageCache,
}

/// Settings shared by everything in a registry.
#[derive(Clone)]
pub(crate) struct RegistryConfig {
    pub(crate) name: String,
    /// The contract's version.
    pub(crate) version: String,
    pub(crate) call_timeout_ms: u64,
    pub(crate) page_items_max: usize,
    /// Counts the swaps since the start.
    pub(crate) generation: u64,
}

/// Rendered pages by list and version.
type PageCache = [[OnceLock<Vec<Vec<u8>>>; Version::ALL.len()]; 4];

pub(crate) struct ToolEntry {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) input_schema: CompiledSchema,
    pub(crate) header_params: Vec<HeaderParam>,
    pub(crate) task_support: TaskSupport,
    /// `None` if calls are not limited.
    pub(crate) rate_limiter: Option<Box<RateLimiter>>,
    pub(crate) call_timeout_ms: u64,
    /// Whether its annotations say that it writes.
    pub(crate) writes: bool,
    /// Its place in the catalog.
    index: usize,
    /// Hash of what the tool promises, computed when a call first needs it; see [`tool_fingerprint`].
    fingerprint: OnceLock<u64>,
    output_schema: Option<Json>,
    compiled_output_schema: OnceLock<Option<CompiledSchema>>,
}

impl ToolEntry {
    /// Whether the output schema allows this structured content. An error must not violate it either.
    pub(crate) fn output_admits(&self, json: &Json) -> bool {
        let Some(schema) = &self.output_schema else { return true };
        self.compiled_output_schema
            .get_or_init(|| CompiledSchema::compile(schema).ok())
            .as_ref()
            .is_some_and(|c| c.is_valid(json))
    }
}

struct PromptEntry {
    provider: Arc<dyn Provider>,
    required_arguments: Vec<String>,
}

/// A catalog that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("two {kind}s are named `{name}`")]
    Duplicate { kind: ItemKind, name: String },
    #[error("tool `{name}`: {reason}")]
    InvalidToolSchema { name: String, reason: contract::SchemaError },
}

/// The provider that answers a call.
pub(crate) enum CallRoute<'r> {
    Tool(&'r ToolEntry),
    Provider(&'r Arc<dyn Provider>),
    /// No catalog lists the URI: each provider is tried in turn.
    ResourceProviders(&'r [Arc<dyn Provider>]),
}

impl Registry {
    /// Rate limits continue to count where `previous` left off.
    pub(crate) fn new(
        providers: Vec<Arc<dyn Provider>>,
        config: RegistryConfig,
        previous: Option<&Self>,
    ) -> Result<Self, CatalogError> {
        let mut registry = Self {
            capabilities: ServerCapabilities::default(),
            server_info: RenderedServerInfo::new(&config.name, &config.version),
            config,
            providers: Vec::new(),
            shared_limits: Vec::new(),
            catalog: Catalog::default(),
            tools: Map::default(),
            prompts: Map::default(),
            resources: Map::default(),
            templates: Vec::new(),
            resource_providers: Vec::new(),
            has_header_params: false,
            fingerprint: 0,
            page_cache: PageCache::default(),
        };
        for provider in &providers {
            registry.add_provider(provider, previous)?;
        }
        registry.providers = providers;
        registry.finish();
        Ok(registry)
    }

    fn add_provider(
        &mut self,
        provider: &Arc<dyn Provider>,
        previous: Option<&Self>,
    ) -> Result<(), CatalogError> {
        let catalog = provider.catalog();
        let counted =
            previous.and_then(|previous| previous.shared_limits.get(self.shared_limits.len())?.as_ref());
        let shared_limit = catalog.rate_limit.map(|rate| SharedLimit::new_or_reuse(rate, counted));
        for (index, tool) in catalog.tools.iter().enumerate() {
            let schema_error = |reason| CatalogError::InvalidToolSchema { name: tool.name.clone(), reason };
            let previous_entry = previous.and_then(|previous| previous.tool(&tool.name));
            let entry = ToolEntry {
                provider: provider.clone(),
                input_schema: CompiledSchema::compile(&tool.input_schema).map_err(schema_error)?,
                header_params: header_params(&tool.input_schema).map_err(schema_error)?,
                task_support: tool.task_support,
                rate_limiter: RateLimiter::new(
                    tool.rate_limit,
                    shared_limit.as_ref(),
                    previous_entry.and_then(|previous_entry| previous_entry.rate_limiter.as_deref()),
                ),
                call_timeout_ms: tool.call_timeout_ms.unwrap_or(self.config.call_timeout_ms),
                writes: tool.annotations.read_only == Some(false),
                index: self.catalog.tools.len() + index,
                fingerprint: OnceLock::new(),
                output_schema: tool.output_schema.clone(),
                compiled_output_schema: OnceLock::new(),
            };
            self.has_header_params |= !entry.header_params.is_empty();
            self.capabilities.tasks |= tool.task_support != TaskSupport::Forbidden;
            insert_unique(&mut self.tools, ItemKind::Tool, &tool.name, entry)?;
        }
        for prompt in &catalog.prompts {
            let required = prompt.arguments.iter().filter(|a| a.required).map(|a| a.name.clone()).collect();
            insert_unique(
                &mut self.prompts,
                ItemKind::Prompt,
                &prompt.name,
                PromptEntry { provider: provider.clone(), required_arguments: required },
            )?;
        }
        for resource in &catalog.resources {
            insert_unique(&mut self.resources, ItemKind::Resource, &resource.uri, provider.clone())?;
        }
        for template in &catalog.resource_templates {
            self.templates.push((UriPattern::new(&template.uri_template), provider.clone()));
        }
        if !catalog.resources.is_empty()
            || !catalog.resource_templates.is_empty()
            || catalog.resource_subscriptions
        {
            self.resource_providers.push(provider.clone());
        }
        self.capabilities.completions |= catalog.completions;
        self.capabilities.logging |= catalog.logging;
        self.capabilities.resource_subscriptions |= catalog.resource_subscriptions;
        self.capabilities.list_changed |= catalog.list_changed;
        if let Some(text) = &catalog.instructions {
            match &mut self.capabilities.instructions {
                Some(instructions) => {
                    instructions.push_str("\n\n");
                    instructions.push_str(text);
                }
                none => *none = Some(text.clone()),
            }
        }
        self.catalog.tools.extend_from_slice(&catalog.tools);
        self.catalog.resources.extend_from_slice(&catalog.resources);
        self.catalog.resource_templates.extend_from_slice(&catalog.resource_templates);
        self.catalog.prompts.extend_from_slice(&catalog.prompts);
        self.shared_limits.push(shared_limit);
        Ok(())
    }

    fn finish(&mut self) {
        let catalog = &self.catalog;
        self.capabilities.tools = !catalog.tools.is_empty();
        self.capabilities.prompts = !catalog.prompts.is_empty();
        self.capabilities.resources = !self.resource_providers.is_empty();
        let names = catalog.tools.iter().map(|t| &t.name);
        let names = names.chain(catalog.prompts.iter().map(|p| &p.name));
        let names = names.chain(catalog.resources.iter().map(|r| &r.uri));
        let names: Vec<&String> =
            names.chain(catalog.resource_templates.iter().map(|t| &t.uri_template)).collect();
        self.fingerprint = foldhash::fast::FixedState::default().hash_one(names) as u32;
    }

    pub fn counts(&self) -> (usize, usize, usize) {
        (self.catalog.tools.len(), self.catalog.resources.len(), self.catalog.prompts.len())
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.get(name)
    }

    /// What a pending input request of this tool is bound to.
    pub(crate) fn tool_fingerprint(&self, name: &str) -> Option<u64> {
        let entry = self.tool(name)?;
        Some(*entry.fingerprint.get_or_init(|| tool_fingerprint(&self.catalog.tools[entry.index])))
    }

    /// Finds the provider of a call.
    #[inline]
    pub(crate) fn route(&self, call: &Call) -> Result<CallRoute<'_>, CallError> {
        let name = call.name();
        let unknown = |kind| CallError::UnknownItem { kind, name: name.to_string() };
        match call.target {
            CallTarget::Tool => {
                self.tools.get(&*name).map(CallRoute::Tool).ok_or_else(|| unknown(ItemKind::Tool))
            }
            CallTarget::Prompt => {
                let prompt = self.prompts.get(&*name).ok_or_else(|| unknown(ItemKind::Prompt))?;
                for required in &prompt.required_arguments {
                    if call.text_argument(required).is_none() {
                        let path = format!("params.arguments.{required}");
                        return Err(CallError::InvalidParams { path, reason: "missing".into() });
                    }
                }
                Ok(CallRoute::Provider(&prompt.provider))
            }
            CallTarget::Resource => Ok(self.route_resource(&name)),
            CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                let prompt = self.prompts.get(&*name).ok_or_else(|| unknown(ItemKind::Prompt))?;
                Ok(CallRoute::Provider(&prompt.provider))
            }
            CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                let listed = self.catalog.resource_templates.iter().position(|t| t.uri_template == *name);
                match listed {
                    Some(i) => Ok(CallRoute::Provider(&self.templates[i].1)),
                    None => match self.resources.get(&*name) {
                        Some(provider) => Ok(CallRoute::Provider(provider)),
                        None => Err(unknown(ItemKind::Resource)),
                    },
                }
            }
        }
    }

    fn route_resource(&self, uri: &str) -> CallRoute<'_> {
        if let Some(provider) = self.resources.get(uri) {
            return CallRoute::Provider(provider);
        }
        match self.templates.iter().find(|(pattern, _)| pattern.matches(uri)) {
            Some((_, provider)) => CallRoute::Provider(provider),
            None => CallRoute::ResourceProviders(&self.resource_providers),
        }
    }

    /// The rendered members of a page; `None` if the cursor is unknown or stale.
    pub(crate) fn page(&self, list: ListKind, version: Version, cursor: Option<&str>) -> Option<&[u8]> {
        let page = match cursor {
            // Some clients send an empty cursor for the first page.
            None | Some("") => 0,
            Some(cursor) => self.parse_cursor(cursor)?,
        };
        let pages =
            self.page_cache[list as usize][version.index()].get_or_init(|| self.render_pages(list, version));
        pages.get(page).map(Vec::as_slice)
    }

    /// Whether a list renders to the same bytes.
    pub(crate) fn has_same_list(&self, other: &Self, list: ListKind) -> bool {
        let version = Version::NEWEST;
        let own_pages =
            self.page_cache[list as usize][version.index()].get_or_init(|| self.render_pages(list, version));
        let other_pages = other.page_cache[list as usize][version.index()]
            .get_or_init(|| other.render_pages(list, version));
        own_pages == other_pages
    }

    fn render_pages(&self, list: ListKind, version: Version) -> Vec<Vec<u8>> {
        let page_items_max = self.config.page_items_max.max(1);
        let items = match list {
            ListKind::Tools => self.catalog.tools.len(),
            ListKind::Resources => self.catalog.resources.len(),
            ListKind::Templates => self.catalog.resource_templates.len(),
            ListKind::Prompts => self.catalog.prompts.len(),
        };
        let pages = items.div_ceil(page_items_max).max(1);
        let render = |page: usize| {
            let from = page * page_items_max;
            let range = from..(from + page_items_max).min(items);
            let next = (page + 1 < pages).then(|| self.cursor(page + 1));
            encode::list_members(&self.catalog, list, version, range, next.as_deref())
        };
        (0..pages).map(render).collect()
    }

    fn cursor(&self, page: usize) -> String {
        format!("{:08x}-{page:x}", self.fingerprint)
    }

    fn parse_cursor(&self, cursor: &str) -> Option<usize> {
        let (fingerprint, page) = cursor.split_once('-')?;
        let page = usize::from_str_radix(page, 16).ok()?;
        (cursor == self.cursor(page) && u32::from_str_radix(fingerprint, 16) == Ok(self.fingerprint))
            .then_some(page)
    }
}

/// Hash of what a tool takes, returns and does. Titles and descriptions are left out: they may contain current data, and
/// a pending confirmation must survive a change of unrelated data.
fn tool_fingerprint(tool: &spile_core::Tool) -> u64 {
    let structure = |schema: &Json| schema_structure(schema.as_str()).map(|schema| schema.to_string());
    let schemas = (structure(&tool.input_schema), tool.output_schema.as_ref().map(structure));
    let hints = &tool.annotations;
    let hints = (hints.read_only, hints.destructive, hints.idempotent, hints.open_world);
    foldhash::fast::FixedState::default().hash_one((&tool.name, schemas, hints))
}

fn insert_unique<V>(map: &mut Map<V>, kind: ItemKind, name: &str, value: V) -> Result<(), CatalogError> {
    match map.insert(name.into(), value) {
        None => Ok(()),
        Some(_) => Err(CatalogError::Duplicate { kind, name: name.into() }),
    }
}
