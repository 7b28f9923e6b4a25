//! The catalogs of all providers together: routes calls to their provider, and renders the lists once.

mod compiled;
mod pages;
mod roles;

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashMap;
use spile_core::{
    Call, CallError, CallTarget, CompletionRef, ItemKind, Principal, Prompt, Provider, Resource,
    ResourceDirectory, ResourceTemplate, Skill, TaskSupport, Tool,
};
use wire::encode::{RenderedServerInfo, ServerCapabilities};
use wire::{ListKind, Version};

pub use self::compiled::UnservedItem;
pub(crate) use self::compiled::{CompiledCatalog, ToolEntry};
use self::pages::{PageCache, ViewPages};
use self::roles::RoleRegistries;
pub(crate) use self::roles::{ServerRoles, SlotViews, add_views};
use crate::uri_pattern::UriPattern;
use state::keyring::digest_parts;

type Map<V> = HashMap<Box<str>, V, foldhash::quality::RandomState>;

/// Immutable: a change builds a new registry. A round of a call keeps the one it started with.
pub struct Registry {
    pub capabilities: ServerCapabilities,
    pub(crate) config: RegistryConfig,
    pub(crate) server_info: RenderedServerInfo,
    pub(crate) slots: Vec<ProviderSlot>,
    /// Items that are not served, over all providers.
    pub(crate) unserved: Vec<UnservedItem>,
    tools: Map<Arc<ToolEntry>>,
    tool_list: Vec<Arc<ToolEntry>>,
    /// Tools that can be called and are in no list.
    unlisted_tools: Vec<Arc<ToolEntry>>,
    prompts: Map<ItemPosition>,
    prompt_positions: Vec<ItemPosition>,
    resources: Map<ItemPosition>,
    resource_positions: Vec<ItemPosition>,
    templates: Vec<(UriPattern, ItemPosition)>,
    skills: Map<ItemPosition>,
    skill_positions: Vec<ItemPosition>,
    directories: Map<ItemPosition>,
    /// The providers that have resources: they are tried in turn for a URI that no catalog lists.
    resource_providers: Vec<Arc<dyn Provider>>,
    /// Whether any tool has arguments that travel in headers.
    pub has_header_params: bool,
    /// Hash of all names. Cursors carry it, so that a cursor of another catalog is refused.
    fingerprint: u32,
    page_cache: PageCache,
    view_pages: ViewPages,
    /// `None`: all callers see all of it.
    roles: Option<RoleRegistries>,
    /// The role whose callers see this registry. `None`: it is the whole one.
    pub(crate) role: Option<Box<str>>,
    /// Resources that exist, but not for the role.
    withheld_resources: Vec<UriPattern>,
}

/// One provider of a server. Providers are replaced and report changes independently of each other.
#[derive(Clone)]
pub(crate) struct ProviderSlot {
    /// Differs for every provider that was ever added, so that changes of replaced providers are ignored.
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) compiled: Arc<CompiledCatalog>,
    /// What each role sees of it; `None` if there are no roles.
    pub(crate) views: Option<Arc<SlotViews>>,
    /// Whether it belongs to the set that [`Server::swap`](crate::Server::swap) replaces.
    pub(crate) is_base: bool,
}

/// Where an item is: in which provider's catalog, and at which place there.
#[derive(Clone, Copy)]
struct ItemPosition {
    slot: usize,
    index: usize,
}

/// Settings shared by everything in a registry.
#[derive(Clone)]
pub(crate) struct RegistryConfig {
    pub(crate) name: String,
    /// The contract's version.
    pub(crate) version: String,
    pub(crate) call_timeout_ms: u64,
    pub(crate) page_items_max: usize,
    /// Tools that are listed first.
    pub(crate) tool_order: Arc<[String]>,
    /// The providers whose tools are listed; `None` for all.
    pub(crate) listed_providers: Option<Arc<[Box<str>]>>,
}

/// The provider that answers a call.
pub(crate) enum CallRoute<'r> {
    Tool(&'r ToolEntry),
    Provider(&'r Arc<dyn Provider>),
    /// No catalog lists the URI: each provider is tried in turn.
    ResourceProviders(&'r [Arc<dyn Provider>]),
}

impl Registry {
    /// A client connects or reads a list.
    pub(crate) fn looked_at(&self) {
        self.slots.iter().for_each(|slot| slot.provider.looked_at());
    }

    /// Joins compiled catalogs, for all callers and for each role. Of a slot without a view for a role, the role sees nothing.
    pub(crate) fn new(slots: Vec<ProviderSlot>, config: RegistryConfig, roles: Option<ServerRoles>) -> Self {
        let mut registry = Self::build(slots, config);
        registry.roles = roles.map(|roles| RoleRegistries::new(&registry, roles));
        registry
    }

    /// The registry that a caller sees: the whole one, unless there are roles.
    #[inline]
    pub(crate) fn of_caller(self: Arc<Self>, principal: &Principal) -> Arc<Self> {
        match &self.roles {
            None => self,
            Some(roles) => roles.of(principal).clone(),
        }
    }

    /// Where two providers have an item with the same name, the first one's is served.
    fn build(slots: Vec<ProviderSlot>, config: RegistryConfig) -> Self {
        let mut registry = Self {
            capabilities: ServerCapabilities::default(),
            server_info: RenderedServerInfo::new(&config.name, &config.version),
            config,
            slots: Vec::new(),
            unserved: Vec::new(),
            tools: Map::default(),
            tool_list: Vec::new(),
            unlisted_tools: Vec::new(),
            prompts: Map::default(),
            prompt_positions: Vec::new(),
            resources: Map::default(),
            resource_positions: Vec::new(),
            templates: Vec::new(),
            skills: Map::default(),
            skill_positions: Vec::new(),
            directories: Map::default(),
            resource_providers: Vec::new(),
            has_header_params: false,
            fingerprint: 0,
            page_cache: PageCache::default(),
            view_pages: ViewPages::default(),
            roles: None,
            role: None,
            withheld_resources: Vec::new(),
        };
        for (position, slot) in slots.iter().enumerate() {
            registry.add(position, slot);
        }
        registry.slots = slots;
        registry.finish();
        registry
    }

    fn add(&mut self, position: usize, slot: &ProviderSlot) {
        let catalog = &slot.compiled.catalog;
        self.unserved.extend_from_slice(&slot.compiled.unserved);
        let listed = self.config.listed_providers.as_ref();
        let is_listed = listed.is_none_or(|listed| listed.contains(&Box::from(&*slot.name)));
        for tool in &slot.compiled.tools {
            let definition = &tool.compiled.definition;
            if self.is_taken(slot, ItemKind::Tool, &definition.name, |registry, name| {
                registry.tools.contains_key(name)
            }) {
                continue;
            }
            self.has_header_params |= !tool.compiled.header_params.is_empty();
            self.capabilities.tasks |= definition.task_support != TaskSupport::Forbidden;
            self.tools.insert(definition.name.as_str().into(), tool.clone());
            let list = if is_listed { &mut self.tool_list } else { &mut self.unlisted_tools };
            list.push(tool.clone());
        }
        for (index, prompt) in catalog.prompts.iter().enumerate() {
            let taken = |registry: &Self, name: &str| registry.prompts.contains_key(name);
            if !self.is_taken(slot, ItemKind::Prompt, &prompt.name, taken) {
                let position = ItemPosition { slot: position, index };
                self.prompts.insert(prompt.name.as_str().into(), position);
                self.prompt_positions.push(position);
            }
        }
        for (index, resource) in catalog.resources.iter().enumerate() {
            let taken = |registry: &Self, uri: &str| registry.resources.contains_key(uri);
            if !self.is_taken(slot, ItemKind::Resource, &resource.uri, taken) {
                let position = ItemPosition { slot: position, index };
                self.resources.insert(resource.uri.as_str().into(), position);
                self.resource_positions.push(position);
            }
        }
        for (index, template) in catalog.resource_templates.iter().enumerate() {
            // Reading tries them in their order, so one that matches the same addresses would never be asked.
            let pattern = UriPattern::new(&template.uri_template);
            let taken = |registry: &Self, _: &str| {
                registry.templates.iter().any(|(other, at)| at.slot != position && *other == pattern)
            };
            if !self.is_taken(slot, ItemKind::Resource, &template.uri_template, taken) {
                self.templates.push((pattern, ItemPosition { slot: position, index }));
            }
        }
        for (index, skill) in catalog.skills.iter().enumerate() {
            let taken = |registry: &Self, uri: &str| registry.skills.contains_key(uri);
            if !self.is_taken(slot, ItemKind::Resource, &skill.uri, taken) {
                let position = ItemPosition { slot: position, index };
                self.skills.insert(skill.uri.as_str().into(), position);
                self.skill_positions.push(position);
            }
        }
        for (index, directory) in catalog.directories.iter().enumerate() {
            let position = ItemPosition { slot: position, index };
            self.directories.entry(directory.uri.as_str().into()).or_insert(position);
        }
        if !catalog.resources.is_empty()
            || !catalog.resource_templates.is_empty()
            || !catalog.skills.is_empty()
            || catalog.resource_subscriptions
        {
            self.resource_providers.push(slot.provider.clone());
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
    }

    /// Whether an earlier provider, or the same one, has an item with this name. The later one is not served then.
    fn is_taken(
        &mut self,
        slot: &ProviderSlot,
        kind: ItemKind,
        name: &str,
        is_taken: impl Fn(&Self, &str) -> bool,
    ) -> bool {
        let is_taken = is_taken(self, name);
        if is_taken {
            self.unserved.push(UnservedItem {
                provider: slot.name.clone(),
                kind,
                name: name.to_owned(),
                reason: format!("another {kind} has this name"),
            });
        }
        is_taken
    }

    fn finish(&mut self) {
        let order = self.config.tool_order.clone();
        let rank = |tool: &Arc<ToolEntry>| {
            order.iter().position(|name| *name == tool.compiled.definition.name).unwrap_or(order.len())
        };
        if !order.is_empty() {
            self.tool_list.sort_by_key(rank);
        }
        let is_open_ended = self.slots.iter().any(|slot| slot.compiled.catalog.is_open_ended);
        self.capabilities.tools = is_open_ended || !self.tool_list.is_empty();
        self.capabilities.prompts = is_open_ended || !self.prompt_positions.is_empty();
        self.capabilities.resources = is_open_ended || !self.resource_providers.is_empty();
        self.capabilities.skills = !self.skill_positions.is_empty();
        self.capabilities.directory_read = !self.directories.is_empty();
        let names = self.tool_list.iter().map(|tool| &tool.compiled.definition.name);
        let names = names.chain(self.prompt_list().map(|prompt| &prompt.name));
        let names = names.chain(self.resource_list().map(|resource| &resource.uri));
        let names = names.chain(self.skill_list().map(|skill| &skill.uri));
        let names: Vec<&String> =
            names.chain(self.template_list().map(|template| &template.uri_template)).collect();
        self.fingerprint = foldhash::fast::FixedState::default().hash_one(names) as u32;
    }

    pub(crate) fn reads_request_heads(&self) -> bool {
        self.slots.iter().any(|slot| slot.compiled.catalog.reads_request_heads)
    }

    pub(crate) fn tool_definitions(&self) -> impl Iterator<Item = &Tool> {
        self.tool_list.iter().map(|tool| &tool.compiled.definition)
    }

    pub(crate) fn unlisted_tools(&self) -> impl Iterator<Item = &Tool> {
        self.unlisted_tools.iter().map(|tool| &tool.compiled.definition)
    }

    pub(crate) fn prompt_list(&self) -> impl Iterator<Item = &Prompt> {
        self.prompt_positions.iter().map(|at| &self.slots[at.slot].compiled.catalog.prompts[at.index])
    }

    pub(crate) fn resource_list(&self) -> impl Iterator<Item = &Resource> {
        self.resource_positions.iter().map(|at| &self.slots[at.slot].compiled.catalog.resources[at.index])
    }

    pub(crate) fn template_list(&self) -> impl Iterator<Item = &ResourceTemplate> {
        self.templates
            .iter()
            .map(|(_, at)| &self.slots[at.slot].compiled.catalog.resource_templates[at.index])
    }

    fn skill_list(&self) -> impl Iterator<Item = &Skill> {
        self.skill_positions.iter().map(|at| &self.slots[at.slot].compiled.catalog.skills[at.index])
    }

    pub(crate) fn skill(&self, uri: &str) -> Option<&Skill> {
        let at = self.skills.get(uri)?;
        Some(&self.slots[at.slot].compiled.catalog.skills[at.index])
    }

    pub(crate) fn directory(&self, uri: &str) -> Option<&ResourceDirectory> {
        let at = self.directories.get(uri)?;
        Some(&self.slots[at.slot].compiled.catalog.directories[at.index])
    }

    /// The template that a URI matches, or that it is.
    pub(crate) fn matching_template(&self, uri: &str) -> Option<&str> {
        let mut all = self.templates.iter().zip(self.template_list());
        let found = all.find(|((pattern, _), template)| template.uri_template == uri || pattern.matches(uri));
        found.map(|(_, template)| &*template.uri_template)
    }

    pub fn counts(&self) -> (usize, usize, usize) {
        (self.tool_list.len(), self.resource_positions.len(), self.prompt_positions.len())
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.get(name).map(|tool| &**tool)
    }

    /// Identifies what the called item takes and returns. What waits for input is bound to it.
    pub(crate) fn contract_digest(&self, call: &Call) -> [u8; 32] {
        match call.target {
            CallTarget::Tool => {
                self.tool(&call.name()).map(|tool| tool.compiled.structural_digest()).unwrap_or_default()
            }
            CallTarget::Prompt => {
                let Some(at) = self.prompts.get(&*call.name()) else { return [0; 32] };
                let prompt = &self.slots[at.slot].compiled.catalog.prompts[at.index];
                let arguments = prompt.arguments.iter();
                let parts: Vec<&[u8]> = arguments
                    .flat_map(|argument| {
                        [argument.name.as_bytes(), if argument.required { b"1" } else { b"0" }]
                    })
                    .collect();
                digest_parts(&parts)
            }
            // A URI and a completion have no schema that could change.
            CallTarget::Resource | CallTarget::Completion { .. } => [0; 32],
        }
    }

    /// Whether the called item takes and returns the same in both registries.
    pub(crate) fn has_same_contract(&self, other: &Self, call: &Call) -> bool {
        self.contract_digest(call) == other.contract_digest(call)
    }

    /// Finds the provider of a call.
    #[inline]
    pub(crate) fn route(&self, call: &Call) -> Result<CallRoute<'_>, CallError> {
        let name = call.name();
        let unknown = |kind| CallError::UnknownItem { kind, name: name.to_string() };
        match call.target {
            CallTarget::Tool => self.tool(&name).map(CallRoute::Tool).ok_or_else(|| unknown(ItemKind::Tool)),
            CallTarget::Prompt => {
                let at = *self.prompts.get(&*name).ok_or_else(|| unknown(ItemKind::Prompt))?;
                let slot = &self.slots[at.slot];
                let prompt = &slot.compiled.catalog.prompts[at.index];
                for required in prompt.arguments.iter().filter(|argument| argument.required) {
                    if call.text_argument(&required.name).is_none() {
                        let path = format!("params.arguments.{}", required.name);
                        return Err(CallError::InvalidParams { path, reason: "missing".into() });
                    }
                }
                Ok(CallRoute::Provider(&slot.provider))
            }
            CallTarget::Resource => Ok(self.route_resource(&name)),
            CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                let at = self.prompts.get(&*name).ok_or_else(|| unknown(ItemKind::Prompt))?;
                Ok(CallRoute::Provider(&self.slots[at.slot].provider))
            }
            CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                let listed = self.template_list().position(|template| template.uri_template == *name);
                let at = match listed {
                    Some(i) => self.templates[i].1,
                    None => *self.resources.get(&*name).ok_or_else(|| unknown(ItemKind::Resource))?,
                };
                Ok(CallRoute::Provider(&self.slots[at.slot].provider))
            }
        }
    }

    /// Whether a resource exists, but not for the role. A caller without a role sees none.
    pub(crate) fn withholds(&self, uri: &str) -> bool {
        self.role.as_deref() == Some("") || self.withheld_resources.iter().any(|pattern| pattern.matches(uri))
    }

    /// Finds the providers of a resource.
    pub(crate) fn route_resource(&self, uri: &str) -> CallRoute<'_> {
        let listed = self.resources.get(uri).copied();
        if listed.is_none() && self.withholds(uri) {
            return CallRoute::ResourceProviders(&[]);
        }
        let listed = listed.or_else(|| {
            self.templates.iter().find(|(pattern, _)| pattern.matches(uri)).map(|(_, position)| *position)
        });
        match listed {
            Some(at) => CallRoute::Provider(&self.slots[at.slot].provider),
            None => CallRoute::ResourceProviders(&self.resource_providers),
        }
    }

    /// What a role sees, if there is one of this name.
    fn of_role(&self, name: &str) -> Option<&Self> {
        self.role_registries().iter().find(|one| one.role.as_deref() == Some(name)).map(|one| &**one)
    }

    /// What callers with each role see, in the order of the roles. Empty: there are none, and everybody sees the whole registry.
    pub(crate) fn role_registries(&self) -> &[Arc<Self>] {
        self.roles.as_ref().map_or(&[], RoleRegistries::registries)
    }

    /// The index of the caller's role, where there are roles.
    pub(crate) fn role_index(&self, principal: &Principal) -> Option<usize> {
        self.roles.as_ref()?.index_of(principal)
    }

    /// Whether clients see the same list.
    pub(crate) fn has_same_list(&self, other: &Self, list: ListKind) -> bool {
        let (own, others) = (self.role_registries(), other.role_registries());
        if own.len() != others.len()
            || !own.iter().zip(others).all(|(one, other)| one.has_same_list(other, list))
        {
            return false;
        }
        match list {
            ListKind::Tools => {
                let is_same = |(one, other): (&Arc<ToolEntry>, &Arc<ToolEntry>)| {
                    Arc::ptr_eq(&one.compiled, &other.compiled)
                        || one.compiled.rendered(Version::NEWEST) == other.compiled.rendered(Version::NEWEST)
                };
                self.tool_list.len() == other.tool_list.len()
                    && self.tool_list.iter().zip(&other.tool_list).all(is_same)
            }
            ListKind::Resources => self.resource_list().eq(other.resource_list()),
            ListKind::Templates => self.template_list().eq(other.template_list()),
            ListKind::Prompts => self.prompt_list().eq(other.prompt_list()),
            ListKind::Skills => self.skill_list().eq(other.skill_list()),
        }
    }
}
