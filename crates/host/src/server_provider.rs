//! A server as a provider of another one: the gateway offers the servers that it hosts together with remote ones.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spile_core::{
    Call, CallContext, CallError, CallTarget, CallerRoles, Catalog, ChangeListener, CompletionRef,
    DetachedWork, Everything, ItemKind, Outcome, Principal, Provider, RoleView, Run, TaskSupport,
    WatchFuture,
};

use crate::joined_roles::JoinedRoles;
use crate::registry::Registry;
use crate::server::Server;
use crate::subscriptions::{Subscription, SubscriptionEvent};

/// The names of all tools, or of all prompts, as they are served elsewhere, in the same order.
pub type Rename = Box<dyn Fn(&[&str]) -> Vec<String> + Send + Sync>;

/// Offers everything that a server offers, under other names. Calls run in that server, with its limits and its roles.
pub struct ServerProvider {
    server: Arc<Server>,
    /// All servers that are offered together: a caller has a role in each of them.
    together: Arc<[Arc<Server>]>,
    rename: Arc<Rename>,
    /// What is offered to callers with one role. `None`: what a caller without a name sees.
    role_registry: Option<Arc<Registry>>,
    offered: Mutex<Offered>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
    subscription: Arc<Subscription>,
}

#[derive(Default)]
struct Offered {
    catalog: Arc<Catalog>,
    /// The server's own names, by the offered ones.
    tools: HashMap<String, String>,
    prompts: HashMap<String, String>,
}

impl ServerProvider {
    pub fn new(server: Arc<Server>, together: Arc<[Arc<Server>]>, rename: Rename) -> Arc<Self> {
        let subscription = server.subscriptions.subscribe_to_lists();
        Self::with_registry(server, together, Arc::new(rename), None, subscription)
    }

    fn with_registry(
        server: Arc<Server>,
        together: Arc<[Arc<Server>]>,
        rename: Arc<Rename>,
        role_registry: Option<Arc<Registry>>,
        subscription: Arc<Subscription>,
    ) -> Arc<Self> {
        let (offered, listener) = (Mutex::default(), Mutex::default());
        let provider = Self { server, together, rename, role_registry, offered, listener, subscription };
        provider.read();
        Arc::new(provider)
    }

    /// Reports the changes of the server, until it shuts down.
    pub async fn follow(self: Arc<Self>) {
        while let Some(event) = poll_fn(|cx| self.subscription.poll_next(cx)).await {
            let SubscriptionEvent::Change(change) = event else { continue };
            self.read();
            let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(listener) = listener {
                listener.catalog_changed(change);
            }
        }
    }

    fn read(&self) {
        // Whoever reads this catalog may be anybody: with roles, what a caller without a name sees.
        let anonymous = || self.server.registry_of(&Principal::Anonymous);
        let registry = self.role_registry.clone().unwrap_or_else(anonymous);
        // The names of all items, so that an item has one name whatever else a role sees. Who may call it the server decides.
        let whole = self.server.registry();
        let names = |own: Vec<&str>| -> HashMap<String, String> {
            let offered = (self.rename)(&own);
            own.into_iter().map(str::to_owned).zip(offered).collect()
        };
        let tools = names(whole.tool_definitions().map(|tool| &*tool.name).collect());
        let prompts = names(whole.prompt_list().map(|prompt| &*prompt.name).collect());
        let offered = |names: &HashMap<String, String>, own: &str| {
            names.get(own).cloned().unwrap_or_else(|| own.to_owned())
        };
        let tool_names = registry.tool_definitions().map(|tool| offered(&tools, &tool.name)).collect();
        let prompt_names = registry.prompt_list().map(|prompt| offered(&prompts, &prompt.name)).collect();
        let inverted = |names: HashMap<String, String>| names.into_iter().map(|(a, b)| (b, a)).collect();
        let (own_tools, own_prompts) = (inverted(tools), inverted(prompts));
        let mut catalog = joined_catalog(&registry, tool_names, prompt_names);
        // Beside those of other servers, instructions must say whose they are.
        catalog.instructions = catalog.instructions.map(|text| format!("{}: {text}", self.server.name));
        let catalog = Arc::new(catalog);
        *self.lock() = Offered { catalog, tools: own_tools, prompts: own_prompts };
    }

    /// The server's own name of an item that is offered under this one; `None` if it has no such item.
    pub fn own_name(&self, kind: ItemKind, offered: &str) -> Option<String> {
        let all = self.lock();
        match kind {
            ItemKind::Tool => all.tools.get(offered).cloned(),
            ItemKind::Prompt => all.prompts.get(offered).cloned(),
            ItemKind::Resource => {
                let whole = self.server.registry();
                let is_listed = whole.resource_list().any(|resource| resource.uri == offered);
                is_listed.then(|| offered.to_owned())
            }
            ItemKind::Task => None,
        }
    }

    fn own_call(&self, call: &Call) -> Option<Call> {
        let name = call.name();
        let offered = self.lock();
        let own_name = match call.target {
            CallTarget::Tool => offered.tools.get(&*name)?,
            CallTarget::Prompt | CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                offered.prompts.get(&*name)?
            }
            CallTarget::Resource
            | CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                return Some(call.clone());
            }
        };
        Some(call.renamed(own_name))
    }

    fn lock(&self) -> MutexGuard<'_, Offered> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn joined_catalog(registry: &Registry, tool_names: Vec<String>, prompt_names: Vec<String>) -> Catalog {
    let capabilities = &registry.capabilities;
    let tools = registry.tool_definitions().cloned().zip(tool_names);
    let prompts = registry.prompt_list().cloned().zip(prompt_names);
    let all = registry.slots.iter().map(|slot| &slot.compiled.catalog);
    Catalog {
        tools: tools
            .map(|(tool, name)| spile_core::Tool {
                name,
                call_timeout_ms: tool.call_timeout_ms.or(Some(registry.config.call_timeout_ms)),
                // The server itself counts its calls.
                rate_limit: None,
                ..tool
            })
            .collect(),
        prompts: prompts.map(|(prompt, name)| spile_core::Prompt { name, ..prompt }).collect(),
        resources: registry.resource_list().cloned().collect(),
        resource_templates: registry.template_list().cloned().collect(),
        skills: all.clone().flat_map(|catalog| catalog.skills.iter().cloned()).collect(),
        directories: all.clone().flat_map(|catalog| catalog.directories.iter().cloned()).collect(),
        completions: capabilities.completions,
        logging: capabilities.logging,
        resource_subscriptions: capabilities.resource_subscriptions,
        list_changed: true,
        is_open_ended: false,
        instructions: capabilities.instructions.clone(),
        rate_limit: None,
        reads_request_heads: registry.reads_request_heads(),
    }
}

impl Provider for ServerProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.lock().catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let Some(own) = self.own_call(call) else {
            let kind = match call.target {
                CallTarget::Tool => ItemKind::Tool,
                CallTarget::Prompt | CallTarget::Completion { .. } => ItemKind::Prompt,
                CallTarget::Resource => ItemKind::Resource,
            };
            let unknown = CallError::UnknownItem { kind, name: call.name().into_owned() };
            return Run::Now(Outcome::Failed(unknown));
        };
        let may_become_task = matches!(own.target, CallTarget::Tool) && {
            let registry = self.server.registry_of(&cx.caller.principal);
            let tool = registry.tool(&own.name());
            tool.is_some_and(|tool| tool.compiled.definition.task_support != TaskSupport::Forbidden)
        };
        let future = self.server.call_for(own, cx);
        match may_become_task {
            true => Run::Now(Outcome::Detach(DetachedWork::from_future(future))),
            false => Run::Later(future),
        }
    }

    fn roles(&self) -> Option<Arc<dyn CallerRoles>> {
        JoinedRoles::of(&self.together).map(|roles| Arc::new(roles) as _)
    }

    fn role_view(&self, role: &str) -> RoleView {
        if self.server.registry().role_registries().is_empty() {
            return RoleView::Part(Arc::new(Everything));
        }
        let roles = JoinedRoles::of(&self.together);
        let Some(registry) = roles.and_then(|roles| roles.registry_in(role, &self.server)) else {
            return RoleView::Nothing;
        };
        RoleView::Provider(Self::with_registry(
            self.server.clone(),
            self.together.clone(),
            self.rename.clone(),
            Some(registry),
            self.subscription.clone(),
        ))
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    fn watch(&self, uri: &str) {
        // Bounded by the limits of the server that has the clients.
        self.subscription.subscribe(uri.to_owned(), usize::MAX, usize::MAX);
    }

    fn watching(&self, uri: &str) -> Option<WatchFuture> {
        self.server.watching(&self.server.registry(), [uri])
    }

    fn unwatch(&self, uri: &str) {
        self.subscription.unsubscribe(uri);
    }

    // The server checks its own providers.
    fn guarantees_output_schemas(&self) -> bool {
        true
    }
}
