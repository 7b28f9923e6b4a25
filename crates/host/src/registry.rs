//! What is served, over all providers: who owns what, and the lists rendered once.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use call::{Call, Catalog, CompletionOf, Fault, Provider, Target, TaskUse, Thing};
use contract::{Check, Mirrored, mirrored};
use hashbrown::HashMap;
use json::Json;
use wire::shape::{self, Offer, Stamp};
use wire::{List, Version};

use crate::rate::{All, Gate};
use crate::template::Pattern;

type Map<V> = HashMap<Box<str>, V, foldhash::quality::RandomState>;

/// Immutable; a change makes a new one. Calls under way keep the one they started with.
pub struct Registry {
    pub offer: Offer,
    pub(crate) terms: Terms,
    pub(crate) stamp: Stamp,
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    /// The allowances of the providers, in their order.
    allowances: Vec<Option<Arc<All>>>,
    catalog: Catalog,
    tools: Map<Tool>,
    prompts: Map<Prompt>,
    resources: Map<Arc<dyn Provider>>,
    templates: Vec<(Pattern, Arc<dyn Provider>)>,
    /// Whoever has resources: asked for URIs that nobody lists.
    readers: Vec<Arc<dyn Provider>>,
    /// Whether any tool has arguments that travel in headers.
    pub mirrors: bool,
    /// Tells this catalog from another, so that a cursor of the other is not taken for one of ours.
    fingerprint: u32,
    pages: Pages,
}

/// What holds for everything that is served together.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) name: String,
    /// The contract's.
    pub(crate) version: String,
    pub(crate) call_timeout_ms: u64,
    pub(crate) page_items_max: usize,
    /// Counts how often what is served was replaced by something else.
    pub(crate) generation: u64,
}

/// By list, version and page.
type Pages = [[OnceLock<Vec<Vec<u8>>>; Version::ALL.len()]; 4];

pub(crate) struct Tool {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) check: Check,
    pub(crate) mirrored: Vec<Mirrored>,
    pub(crate) task: TaskUse,
    /// `None` if it may be called as often as anybody likes.
    pub(crate) gate: Option<Box<Gate>>,
    pub(crate) call_timeout_ms: u64,
    /// Whether it says of itself that it changes something.
    pub(crate) writes: bool,
    /// Tells it from another tool of its name: what it promises.
    pub(crate) fingerprint: u64,
    output: Option<Json>,
    output_check: OnceLock<Option<Check>>,
}

impl Tool {
    /// Whether structured content may say this: a failure must not break what the tool promised.
    pub(crate) fn admits(&self, json: &Json) -> bool {
        let Some(schema) = &self.output else { return true };
        self.output_check.get_or_init(|| Check::compile(schema).ok()).as_ref().is_some_and(|c| c.admits(json))
    }
}

struct Prompt {
    provider: Arc<dyn Provider>,
    required: Vec<String>,
}

/// A catalog that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BadCatalog {
    #[error("two {what}s are named `{name}`")]
    Twice { what: Thing, name: String },
    #[error("tool `{name}`: {why}")]
    BadTool { name: String, why: contract::BadSchema },
}

/// Who answers a call.
pub(crate) enum Owner<'r> {
    Tool(&'r Tool),
    One(&'r Arc<dyn Provider>),
    /// Nobody lists it: each is asked in turn.
    Readers(&'r [Arc<dyn Provider>]),
}

impl Registry {
    /// What was counted by the registry `before` goes on.
    pub(crate) fn new(
        providers: Vec<Arc<dyn Provider>>,
        terms: Terms,
        before: Option<&Self>,
    ) -> Result<Self, BadCatalog> {
        let mut registry = Self {
            offer: Offer::default(),
            stamp: Stamp::new(&terms.name, &terms.version),
            terms,
            providers: Vec::new(),
            allowances: Vec::new(),
            catalog: Catalog::default(),
            tools: Map::default(),
            prompts: Map::default(),
            resources: Map::default(),
            templates: Vec::new(),
            readers: Vec::new(),
            mirrors: false,
            fingerprint: 0,
            pages: Pages::default(),
        };
        for provider in &providers {
            registry.add(provider, before)?;
        }
        registry.providers = providers;
        registry.settle();
        Ok(registry)
    }

    fn add(&mut self, provider: &Arc<dyn Provider>, before: Option<&Self>) -> Result<(), BadCatalog> {
        let catalog = provider.catalog();
        let counted = before.and_then(|before| before.allowances.get(self.allowances.len())?.as_ref());
        let all = catalog.rate.map(|rate| All::after(rate, counted));
        for tool in &catalog.tools {
            let bad = |why| BadCatalog::BadTool { name: tool.name.clone(), why };
            let was = before.and_then(|before| before.tool(&tool.name));
            let entry = Tool {
                provider: provider.clone(),
                check: Check::compile(&tool.input).map_err(bad)?,
                mirrored: mirrored(&tool.input).map_err(bad)?,
                task: tool.task,
                gate: Gate::new(tool.rate, all.as_ref(), was.and_then(|was| was.gate.as_deref())),
                call_timeout_ms: tool.call_timeout_ms.unwrap_or(self.terms.call_timeout_ms),
                writes: tool.annotations.read_only == Some(false),
                fingerprint: fingerprint(tool),
                output: tool.output.clone(),
                output_check: OnceLock::new(),
            };
            self.mirrors |= !entry.mirrored.is_empty();
            self.offer.tasks |= tool.task != TaskUse::Never;
            insert(&mut self.tools, Thing::Tool, &tool.name, entry)?;
        }
        for prompt in &catalog.prompts {
            let required = prompt.arguments.iter().filter(|a| a.required).map(|a| a.name.clone()).collect();
            insert(
                &mut self.prompts,
                Thing::Prompt,
                &prompt.name,
                Prompt { provider: provider.clone(), required },
            )?;
        }
        for resource in &catalog.resources {
            insert(&mut self.resources, Thing::Resource, &resource.uri, provider.clone())?;
        }
        for template in &catalog.templates {
            self.templates.push((Pattern::new(&template.uri_template), provider.clone()));
        }
        if !catalog.resources.is_empty() || !catalog.templates.is_empty() || catalog.watches {
            self.readers.push(provider.clone());
        }
        self.offer.completes |= catalog.completes;
        self.offer.logs |= catalog.logs;
        self.offer.watches |= catalog.watches;
        self.offer.changes |= catalog.changes;
        if let Some(text) = &catalog.instructions {
            match &mut self.offer.instructions {
                Some(all) => {
                    all.push_str("\n\n");
                    all.push_str(text);
                }
                none => *none = Some(text.clone()),
            }
        }
        let (allowance, all) = (all, &mut self.catalog);
        all.tools.extend_from_slice(&catalog.tools);
        all.resources.extend_from_slice(&catalog.resources);
        all.templates.extend_from_slice(&catalog.templates);
        all.prompts.extend_from_slice(&catalog.prompts);
        self.allowances.push(allowance);
        Ok(())
    }

    fn settle(&mut self) {
        let catalog = &self.catalog;
        self.offer.tools = !catalog.tools.is_empty();
        self.offer.prompts = !catalog.prompts.is_empty();
        self.offer.resources = !self.readers.is_empty();
        let names = catalog.tools.iter().map(|t| &t.name);
        let names = names.chain(catalog.prompts.iter().map(|p| &p.name));
        let names = names.chain(catalog.resources.iter().map(|r| &r.uri));
        let names: Vec<&String> = names.chain(catalog.templates.iter().map(|t| &t.uri_template)).collect();
        self.fingerprint = foldhash::fast::FixedState::default().hash_one(names) as u32;
    }

    pub fn counts(&self) -> (usize, usize, usize) {
        (self.catalog.tools.len(), self.catalog.resources.len(), self.catalog.prompts.len())
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// Whose is it?
    #[inline]
    pub(crate) fn find(&self, call: &Call) -> Result<Owner<'_>, Fault> {
        let name = call.name();
        let unknown = |what| Fault::Unknown { what, name: name.to_string() };
        match call.target {
            Target::Tool => self.tools.get(&*name).map(Owner::Tool).ok_or_else(|| unknown(Thing::Tool)),
            Target::Prompt => {
                let prompt = self.prompts.get(&*name).ok_or_else(|| unknown(Thing::Prompt))?;
                for required in &prompt.required {
                    if call.text(required).is_none() {
                        let at = format!("params.arguments.{required}");
                        return Err(Fault::BadParams { at, why: "missing".into() });
                    }
                }
                Ok(Owner::One(&prompt.provider))
            }
            Target::Resource => Ok(self.reader(&name)),
            Target::Completion { of: CompletionOf::Prompt, .. } => {
                let prompt = self.prompts.get(&*name).ok_or_else(|| unknown(Thing::Prompt))?;
                Ok(Owner::One(&prompt.provider))
            }
            Target::Completion { of: CompletionOf::Template, .. } => {
                let listed = self.catalog.templates.iter().position(|t| t.uri_template == *name);
                match listed {
                    Some(i) => Ok(Owner::One(&self.templates[i].1)),
                    None => match self.resources.get(&*name) {
                        Some(provider) => Ok(Owner::One(provider)),
                        None => Err(unknown(Thing::Resource)),
                    },
                }
            }
        }
    }

    fn reader(&self, uri: &str) -> Owner<'_> {
        if let Some(provider) = self.resources.get(uri) {
            return Owner::One(provider);
        }
        match self.templates.iter().find(|(pattern, _)| pattern.matches(uri)) {
            Some((_, provider)) => Owner::One(provider),
            None => Owner::Readers(&self.readers),
        }
    }

    /// The rendered members of a page. `None`: no such page, so the cursor is not ours or is stale.
    pub(crate) fn page(&self, list: List, version: Version, cursor: Option<&str>) -> Option<&[u8]> {
        let page = match cursor {
            // Some clients say "from the start" with an empty cursor.
            None | Some("") => 0,
            Some(cursor) => self.page_of(cursor)?,
        };
        let pages = self.pages[list as usize][version.index()].get_or_init(|| self.render(list, version));
        pages.get(page).map(Vec::as_slice)
    }

    /// Whether a list reads the same to everybody.
    pub(crate) fn lists_as(&self, other: &Self, list: List) -> bool {
        let version = Version::NEWEST;
        let here = self.pages[list as usize][version.index()].get_or_init(|| self.render(list, version));
        let there = other.pages[list as usize][version.index()].get_or_init(|| other.render(list, version));
        here == there
    }

    fn render(&self, list: List, version: Version) -> Vec<Vec<u8>> {
        let page_items_max = self.terms.page_items_max.max(1);
        let items = match list {
            List::Tools => self.catalog.tools.len(),
            List::Resources => self.catalog.resources.len(),
            List::Templates => self.catalog.templates.len(),
            List::Prompts => self.catalog.prompts.len(),
        };
        let pages = items.div_ceil(page_items_max).max(1);
        let render = |page: usize| {
            let from = page * page_items_max;
            let range = from..(from + page_items_max).min(items);
            let next = (page + 1 < pages).then(|| self.cursor(page + 1));
            shape::list_members(&self.catalog, list, version, range, next.as_deref())
        };
        (0..pages).map(render).collect()
    }

    fn cursor(&self, page: usize) -> String {
        format!("{:08x}-{page:x}", self.fingerprint)
    }

    fn page_of(&self, cursor: &str) -> Option<usize> {
        let (fingerprint, page) = cursor.split_once('-')?;
        let page = usize::from_str_radix(page, 16).ok()?;
        (cursor == self.cursor(page) && u32::from_str_radix(fingerprint, 16) == Ok(self.fingerprint))
            .then_some(page)
    }
}

fn fingerprint(tool: &call::Tool) -> u64 {
    let words = (&tool.title, &tool.description);
    let schemas = (tool.input.as_str(), tool.output.as_ref().map(Json::as_str));
    foldhash::fast::FixedState::default().hash_one((&tool.name, words, schemas))
}

fn insert<V>(map: &mut Map<V>, what: Thing, name: &str, value: V) -> Result<(), BadCatalog> {
    match map.insert(name.into(), value) {
        None => Ok(()),
        Some(_) => Err(BadCatalog::Twice { what, name: name.into() }),
    }
}
