//! A configured server as a provider, under its own names or under public ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use servers::names;
use spile_core::{
    Call, CallContext, CallError, CallTarget, Catalog, CatalogChange, ChangeListener, CompletionRef,
    Everything, ItemKind, Outcome, Principal, Provider, RoleView, Run, TaskSupport, WatchFuture,
};

use crate::definitions::{self, ItemList};
use crate::remote_server::{CallToForward, RemoteServer};

/// What the tools and prompts of a server are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// As the server calls them.
    Own,
    /// `mcp__server__tool`.
    Public,
}

pub struct RemoteProvider {
    server: Arc<RemoteServer>,
    naming: Naming,
    /// Beside those of other servers: all of them together are in every conversation.
    instructions_bytes_max: usize,
    served: Mutex<Served>,
    /// Held until a change is reported: whoever finds nothing new knows that the host has it.
    reporting: Mutex<()>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

#[derive(Clone, Default)]
struct Served {
    catalog: Arc<Catalog>,
    /// The server's own names, by the served ones. Empty where they are the same.
    own_names: Arc<OwnNames>,
    /// The tools that may become tasks, by their served names.
    task_tools: Arc<HashMap<String, TaskSupport>>,
}

impl Served {
    fn new(catalog: Catalog, own_names: OwnNames) -> Self {
        let task_tools = catalog.tools.iter().filter(|tool| tool.task_support != TaskSupport::Forbidden);
        let task_tools = task_tools.map(|tool| (tool.name.clone(), tool.task_support)).collect();
        Self { catalog: Arc::new(catalog), own_names: Arc::new(own_names), task_tools: Arc::new(task_tools) }
    }
}

#[derive(Default)]
struct OwnNames {
    tools: HashMap<String, String>,
    prompts: HashMap<String, String>,
}

impl RemoteProvider {
    pub(crate) fn new(server: Arc<RemoteServer>, naming: Naming, instructions_bytes_max: usize) -> Self {
        let provider = Self {
            server,
            naming,
            instructions_bytes_max,
            served: Mutex::default(),
            reporting: Mutex::default(),
            listener: Mutex::default(),
        };
        provider.refresh();
        provider
    }

    /// Reads what the server offers now, and reports what is different.
    pub(crate) fn refresh(&self) {
        self.refresh_and_report(&[]);
    }

    /// The same, and reports these changes in any case: the server said so.
    pub(crate) fn refresh_and_report(&self, reported: &[CatalogChange]) {
        let _reporting = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.read();
        let old = std::mem::replace(&mut *self.lock(), new.clone()).catalog;
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(listener) = listener else { return };
        let new = new.catalog;
        let is_same_server = old.instructions == new.instructions && old.logging == new.logging;
        let is_reported = |change| reported.contains(&change);
        if old.tools != new.tools || !is_same_server || is_reported(CatalogChange::Tools) {
            listener.catalog_changed(CatalogChange::Tools);
        }
        if old.prompts != new.prompts || is_reported(CatalogChange::Prompts) {
            listener.catalog_changed(CatalogChange::Prompts);
        }
        let has_same_resources =
            old.resources == new.resources && old.resource_templates == new.resource_templates;
        let has_same_resources =
            has_same_resources && old.skills == new.skills && old.directories == new.directories;
        if !has_same_resources || is_reported(CatalogChange::Resources) {
            listener.catalog_changed(CatalogChange::Resources);
        }
    }

    fn read(&self) -> Served {
        let RemoteServer { name, manager, .. } = &*self.server;
        let (lists, info) = manager.offer(name).unwrap_or_default();
        let timeouts = manager.call_timeouts(name);
        let call_timeout_ms = timeouts.map_or(u64::MAX, |timeouts| timeouts.total_ms + ANSWER_MARGIN_MS);
        let name_of = |definition: &json::Json| {
            definition.to_doc().root().get("name").and_then(|name| name.str()).map(|name| name.into_owned())
        };
        let public = |listed: &[json::Json]| -> HashMap<String, String> {
            let own: Vec<String> = listed.iter().filter_map(name_of).collect();
            let names = names::public_names(name, own.iter().map(String::as_str));
            names.into_iter().map(|(own, public)| (own.to_owned(), public)).collect()
        };
        let offers = |list: ItemList, own: &str| list == ItemList::Prompts || manager.offers_tool(name, own);
        let inverted = |names: HashMap<String, String>| names.into_iter().map(|(a, b)| (b, a)).collect();
        match self.naming {
            Naming::Own => {
                let own = |list: ItemList, own: &str| offers(list, own).then(|| own.to_owned());
                let catalog = definitions::catalog(&lists, info.as_deref(), call_timeout_ms, &own);
                Served::new(catalog, OwnNames::default())
            }
            Naming::Public => {
                let (tools, prompts) = (public(&lists.tools), public(&lists.prompts));
                let served = |list: ItemList, own: &str| match list {
                    ItemList::Tools => tools.get(own).filter(|_| offers(list, own)).cloned(),
                    ItemList::Prompts => prompts.get(own).cloned(),
                };
                let mut catalog = definitions::catalog(&lists, info.as_deref(), call_timeout_ms, &served);
                // Beside those of other servers, instructions must say whose they are.
                catalog.instructions = catalog
                    .instructions
                    .map(|text| format!("{name}: {}", cut(&text, self.instructions_bytes_max)));
                let own_names = OwnNames { tools: inverted(tools), prompts: inverted(prompts) };
                Served::new(catalog, own_names)
            }
        }
    }

    /// The server's own name for what is called.
    fn called_name(&self, call: &Call) -> Option<String> {
        match call.target {
            CallTarget::Tool => self.own_name(ItemKind::Tool, &call.name()),
            CallTarget::Prompt | CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                self.own_name(ItemKind::Prompt, &call.name())
            }
            // A URI is asked for even if no list has it.
            CallTarget::Resource
            | CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                Some(call.name().into_owned())
            }
        }
    }

    /// The server's own name of an item that is served under this one; `None` if it has no such item.
    pub fn own_name(&self, kind: ItemKind, served: &str) -> Option<String> {
        let Served { catalog, own_names, .. } = self.lock().clone();
        let names = match kind {
            ItemKind::Resource => {
                let is_listed = catalog.resources.iter().any(|resource| resource.uri == served);
                return is_listed.then(|| served.to_owned());
            }
            ItemKind::Task => return None,
            ItemKind::Tool | ItemKind::Prompt if self.naming == Naming::Own => {
                return Some(served.to_owned());
            }
            ItemKind::Tool => &own_names.tools,
            ItemKind::Prompt => &own_names.prompts,
        };
        names.get(served).cloned()
    }

    fn task_support(&self, call: &Call) -> TaskSupport {
        if call.target != CallTarget::Tool {
            return TaskSupport::Forbidden;
        }
        let name = call.name();
        let tool_support = self.lock().task_tools.get(&*name).copied();
        tool_support.unwrap_or_default()
    }

    pub(crate) fn resource_changed(&self, uri: &Arc<str>) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener.catalog_changed(CatalogChange::Resource(uri.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    match text.len() <= bytes_max {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(bytes_max)])),
    }
}

/// So that the error which names the server comes before the host's own.
const ANSWER_MARGIN_MS: u64 = 1000;

impl Provider for RemoteProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.lock().catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let Some(own_name) = self.called_name(call) else {
            let kind = match call.target {
                CallTarget::Tool => ItemKind::Tool,
                CallTarget::Prompt | CallTarget::Completion { .. } => ItemKind::Prompt,
                CallTarget::Resource => ItemKind::Resource,
            };
            let unknown = CallError::UnknownItem { kind, name: call.name().into_owned() };
            return Run::Now(Outcome::Failed(unknown));
        };
        let task_support = self.task_support(call);
        let (server, call) = (self.server.clone(), CallToForward::new(call, &own_name, task_support, cx));
        Run::later(async move { server.run(call).await })
    }

    /// Roles are those of other providers.
    fn role_view(&self, _role: &str) -> RoleView {
        RoleView::Part(Arc::new(Everything))
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    fn watch(&self, uri: &str) {
        self.server.watch(uri);
    }

    fn watching(&self, uri: &str) -> Option<WatchFuture> {
        Some(self.server.watching(uri))
    }

    fn unwatch(&self, uri: &str) {
        self.server.unwatch(uri);
    }

    fn looked_at(&self) {
        self.server.manager.looked_at(&self.server.name);
    }

    fn client_roots_changed(&self, principal: &Principal, session: Option<[u8; 16]>) {
        self.server.client_roots_changed(principal.id(), session);
    }
}
