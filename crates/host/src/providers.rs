//! The providers of a server, and how they change while it runs.
//!
//! Each provider has a slot. A change of one provider compiles its changed tools, also those of each role, on the thread that
//! reported the change, outside every lock; then a new registry, which shares everything else with the old one, replaces it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use spile_core::{Catalog, CatalogChange, ChangeListener, ItemKind, Provider, WatchFuture};
use wire::ListKind;

use crate::connection_state::ReplyChannel;
use crate::registry::{
    CallRoute, CompiledCatalog, ProviderSlot, Registry, RegistryConfig, ServerRoles, SlotViews, UnservedItem,
    add_views,
};
use crate::server::{CallerIdentity, ProviderSet, ReloadOutcome, Server};

impl Server {
    /// Replaces the base providers, and keeps those of [`Server::set_provider`]. Rounds of calls in flight finish with the
    /// old ones. Subscribers get one list-changed notification for each list that differs.
    pub fn swap(self: &Arc<Self>, provider_set: ProviderSet) {
        let (old, new) = self.install(provider_set);
        // Before the notifications go out: a client may react by reading the status.
        self.record_reload(ReloadOutcome::Applied, None);
        self.notify_differences(&old, &new);
    }

    /// Adds or replaces the provider with this name, or removes it. Other providers are not touched.
    pub fn set_provider(self: &Arc<Self>, name: &str, provider: Option<Arc<dyn Provider>>) {
        self.change_provider(name, provider, |slots| slots.len());
    }

    /// The same, where a new provider comes before those with later names: lists do not depend on who was added first.
    pub fn set_provider_by_name(self: &Arc<Self>, name: &str, provider: Option<Arc<dyn Provider>>) {
        self.change_provider(name, provider, |slots| {
            slots.iter().position(|slot| !slot.is_base && *slot.name > *name).unwrap_or(slots.len())
        });
    }

    /// Lists only the tools of these providers from now on. The others can still be called, and searched.
    pub fn list_tools_of(self: &Arc<Self>, providers: &[&str]) {
        let listed: Arc<[Box<str>]> = providers.iter().map(|name| (*name).into()).collect();
        let replaced = self.replace_registry(|current| {
            let config = RegistryConfig { listed_providers: Some(listed.clone()), ..current.config.clone() };
            Some((current.slots.clone(), config))
        });
        if let Some((old, new)) = replaced {
            self.notify_differences(&old, &new);
        }
    }

    /// Tells the providers that the roots of a client have changed.
    pub fn client_roots_changed(&self, identity: &CallerIdentity, reply_channel: &ReplyChannel) {
        let session = reply_channel.session_key();
        for slot in &self.registry().slots {
            slot.provider.client_roots_changed(&identity.principal, session);
        }
    }

    fn change_provider(
        self: &Arc<Self>,
        name: &str,
        provider: Option<Arc<dyn Provider>>,
        new_position: impl Fn(&[ProviderSlot]) -> usize,
    ) {
        let current = self.registry();
        let previous = current.slots.iter().find(|slot| !slot.is_base && *slot.name == *name);
        let slot = provider.map(|provider| {
            self.new_slot(name.into(), provider, previous.map(|slot| &*slot.compiled), false)
        });
        let replaced = self.replace_registry(|current| {
            let mut slots = current.slots.clone();
            let position = slots.iter().position(|slot| !slot.is_base && *slot.name == *name);
            match (position, slot.clone()) {
                (Some(position), Some(slot)) => slots[position] = slot,
                (Some(position), None) => {
                    slots.remove(position);
                }
                (None, Some(slot)) => slots.insert(new_position(&slots), slot),
                (None, None) => return None,
            }
            Some((slots, current.config.clone()))
        });
        if let Some((old, new)) = replaced {
            self.notify_differences(&old, &new);
        }
    }

    /// What the provider with this name offers, as it is served.
    pub fn provider_catalog(&self, name: &str) -> Option<Arc<Catalog>> {
        let registry = self.registry();
        let slot = registry.slots.iter().find(|slot| !slot.is_base && *slot.name == *name)?;
        Some(slot.provider.catalog())
    }

    pub(crate) fn install(self: &Arc<Self>, provider_set: ProviderSet) -> (Arc<Registry>, Arc<Registry>) {
        let ProviderSet { version, providers, call_timeout_ms, tool_order } = provider_set;
        let tool_order: Arc<[String]> = tool_order.into();
        let current = self.registry();
        let base = |registry: &Registry, index: usize| {
            registry.slots.iter().filter(|slot| slot.is_base).nth(index).map(|slot| slot.compiled.clone())
        };
        let slots: Vec<ProviderSlot> = providers
            .into_iter()
            .enumerate()
            .map(|(index, provider)| {
                let name = if index == 0 { "main".into() } else { format!("main-{}", index + 1).into() };
                self.new_slot(name, provider, base(&current, index).as_deref(), true)
            })
            .collect();
        let call_timeout_ms = call_timeout_ms.unwrap_or(self.limits.call_timeout_ms);
        let replaced = self.replace_registry(|current| {
            let others = current.slots.iter().filter(|slot| !slot.is_base).cloned();
            let slots = slots.iter().cloned().chain(others).collect();
            let config = RegistryConfig {
                version: version.clone(),
                call_timeout_ms,
                tool_order: tool_order.clone(),
                ..current.config.clone()
            };
            Some((slots, config))
        });
        replaced.unwrap_or_else(|| (current.clone(), current))
    }

    fn new_slot(
        &self,
        name: Arc<str>,
        provider: Arc<dyn Provider>,
        previous: Option<&CompiledCatalog>,
        is_base: bool,
    ) -> ProviderSlot {
        let id = self.counters.slots.fetch_add(1, Ordering::Relaxed);
        let compiled =
            Arc::new(CompiledCatalog::new(&name, &provider, previous, &self.counters.tools_compiled));
        ProviderSlot { id, name, provider, compiled, views: None, is_base }
    }

    /// Builds a registry from the current one and serves it. `None` if `change` has nothing to change.
    fn replace_registry(
        self: &Arc<Self>,
        change: impl Fn(&Registry) -> Option<(Vec<ProviderSlot>, RegistryConfig)>,
    ) -> Option<(Arc<Registry>, Arc<Registry>)> {
        let (old, new) = self.join_slots(change)?;
        for UnservedItem { provider, kind, name, reason } in
            new.unserved.iter().filter(|item| !old.unserved.contains(item))
        {
            let is_added = new.slots.iter().any(|slot| !slot.is_base && slot.name == *provider);
            match kind {
                // Servers that were made apart from each other have resources with the same URI; `/status` names them.
                ItemKind::Resource if is_added => {
                    tracing::debug!(provider = &**provider, name, reason, "a resource is not served");
                }
                kind => tracing::warn!(provider = &**provider, name, reason, "a {kind} is not served"),
            }
        }
        let is_new = |slot: &&ProviderSlot| old.slots.iter().all(|known| known.id != slot.id);
        for slot in new.slots.iter().filter(is_new) {
            self.attach(&new, slot);
        }
        Some((old, new))
    }

    /// Compiles what roles see of changed slots before it takes the lock. If there are other roles by then, it compiles again.
    fn join_slots(
        &self,
        change: impl Fn(&Registry) -> Option<(Vec<ProviderSlot>, RegistryConfig)>,
    ) -> Option<(Arc<Registry>, Arc<Registry>)> {
        let mut prepared: Vec<Arc<SlotViews>> = Vec::new();
        loop {
            let guard = self.swap_lock.lock().unwrap_or_else(PoisonError::into_inner);
            let old = self.registry();
            let (mut slots, config) = change(&old)?;
            let roles = ServerRoles::of(&slots);
            if let Some(roles) = &roles {
                let missing = add_views(&mut slots, roles, &prepared);
                if !missing.is_empty() {
                    drop(guard);
                    let views = |slot| SlotViews::new(slot, roles, &old, &self.counters.tools_compiled);
                    prepared.extend(missing.iter().map(|slot| Arc::new(views(slot))));
                    continue;
                }
            }
            let new = Arc::new(Registry::new(slots, config, roles));
            self.reads_request_heads.store(new.reads_request_heads(), Ordering::Relaxed);
            *self.registry.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
            return Some((old, new));
        }
    }

    /// Listens to the changes of a new provider, and repeats the watches that its predecessor had.
    fn attach(self: &Arc<Self>, registry: &Registry, slot: &ProviderSlot) {
        let listener = Arc::new(SlotListener {
            server: Arc::downgrade(self),
            slot_id: slot.id,
            pending: Mutex::default(),
        });
        slot.provider.set_change_listener(listener.clone());
        for uri in self.subscriptions.watches.uris() {
            for_each_provider(registry, &uri, |provider| {
                if Arc::ptr_eq(provider, &slot.provider) {
                    provider.watch(&uri);
                }
            });
        }
        // The catalog may have changed before there was a listener. The listener applies one change after the other, so an
        // older catalog never replaces a newer one.
        if slot.provider.catalog() != slot.compiled.catalog {
            listener.apply(&[CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources]);
        }
    }

    /// Passes the first and the last subscription of a resource to its provider.
    pub(crate) fn watch_resources(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        self.subscriptions.watches.set_handler(Box::new(move |uri, is_watched| {
            let Some(server) = server.upgrade() else { return };
            for_each_provider(&server.registry(), uri, |provider| match is_watched {
                true => provider.watch(uri),
                false => provider.unwatch(uri),
            });
        }));
    }

    /// What to wait for until changes of these resources, which have subscribers, are certain to be reported. `None`: they
    /// are already.
    pub(crate) fn watching<'u>(
        &self,
        registry: &Registry,
        uris: impl IntoIterator<Item = &'u str>,
    ) -> Option<WatchFuture> {
        let mut unready: Vec<WatchFuture> = Vec::new();
        for uri in uris {
            for_each_provider(registry, uri, |provider| unready.extend(provider.watching(uri)));
        }
        if unready.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            for one in unready {
                one.await;
            }
        }))
    }

    /// Reads the catalog of one provider again. Returns whether the provider is still served.
    fn refresh(self: &Arc<Self>, slot_id: u64) -> bool {
        let registry = self.registry();
        let Some(slot) = registry.slots.iter().find(|slot| slot.id == slot_id) else { return false };
        let compiled = Arc::new(CompiledCatalog::new(
            &slot.name,
            &slot.provider,
            Some(&slot.compiled),
            &self.counters.tools_compiled,
        ));
        let replaced = self.replace_registry(|current| {
            let mut slots = current.slots.clone();
            slots.iter_mut().find(|slot| slot.id == slot_id)?.compiled = compiled.clone();
            Some((slots, current.config.clone()))
        });
        replaced.is_some()
    }

    /// The policy may show other items than before: tells all clients to read the lists again.
    pub fn announce_lists(&self) {
        for change in [CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::Resources] {
            self.subscriptions.notify(&change);
        }
    }

    fn notify_differences(&self, old: &Registry, new: &Registry) {
        for (lists, change) in [
            (&[ListKind::Tools][..], CatalogChange::Tools),
            (&[ListKind::Prompts], CatalogChange::Prompts),
            (&[ListKind::Resources, ListKind::Templates, ListKind::Skills], CatalogChange::Resources),
        ] {
            if lists.iter().any(|list| !old.has_same_list(new, *list)) {
                self.subscriptions.notify(&change);
            }
        }
    }
}

fn for_each_provider(registry: &Registry, uri: &str, mut act: impl FnMut(&Arc<dyn Provider>)) {
    match registry.route_resource(uri) {
        CallRoute::Provider(provider) => act(provider),
        CallRoute::ResourceProviders(providers) => providers.iter().for_each(act),
        CallRoute::Tool(_) => {}
    }
}

/// Passes a provider's changes to its server without keeping the server alive.
struct SlotListener {
    server: Weak<Server>,
    slot_id: u64,
    pending: Mutex<PendingChanges>,
}

/// Changes that no thread has applied yet. While one thread applies changes, others only add theirs.
#[derive(Default)]
struct PendingChanges {
    changes: Vec<CatalogChange>,
    is_applying: bool,
}

impl SlotListener {
    /// Reads the catalog again, here or on the thread that is about to, and notifies subscribers.
    fn apply(&self, changes: &[CatalogChange]) {
        let Some(server) = self.server.upgrade() else { return };
        let mut pending = self.lock();
        for change in changes {
            if !pending.changes.contains(change) {
                pending.changes.push(change.clone());
            }
        }
        if std::mem::replace(&mut pending.is_applying, true) {
            return;
        }
        loop {
            let changes = std::mem::take(&mut pending.changes);
            drop(pending);
            if server.refresh(self.slot_id) {
                for change in &changes {
                    server.subscriptions.notify(change);
                }
            }
            pending = self.lock();
            if pending.changes.is_empty() {
                pending.is_applying = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeListener for SlotListener {
    fn catalog_changed(&self, change: CatalogChange) {
        let CatalogChange::Resource(_) = change else { return self.apply(&[change]) };
        let Some(server) = self.server.upgrade() else { return };
        if server.with_registry(|registry| registry.slots.iter().any(|slot| slot.id == self.slot_id)) {
            server.subscriptions.notify(&change);
        }
    }
}
