//! The registries of roles: what callers with each of them see, compiled and rendered as for everybody.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use spile_core::{CallerRoles, Principal, Provider, RoleView};

use super::{CompiledCatalog, ProviderSlot, Registry};
use crate::uri_pattern::UriPattern;

/// What each role sees of a registry.
pub(super) struct RoleRegistries {
    roles: Arc<dyn CallerRoles>,
    /// One for each role, in order.
    registries: Vec<Arc<Registry>>,
    /// For callers without a role: they see nothing.
    none: Arc<Registry>,
}

/// What each role sees of one provider.
pub(crate) struct SlotViews {
    /// What the views were made of: with other roles, or another catalog, they are not true any more.
    of: RoleSet,
    whole: Arc<CompiledCatalog>,
    /// One for each role, in order; `None`: the role sees nothing of the provider.
    views: Vec<Option<SlotView>>,
}

struct SlotView {
    provider: Arc<dyn Provider>,
    compiled: Arc<CompiledCatalog>,
    withheld: Vec<UriPattern>,
}

/// The roles of a server: those of the first provider that knows any.
#[derive(Clone)]
pub(crate) struct ServerRoles {
    roles: Arc<dyn CallerRoles>,
    set: RoleSet,
}

/// Which roles there are. A provider that replaces another one may grant them other items under the same names.
#[derive(Clone, PartialEq, Eq)]
struct RoleSet {
    slot_id: u64,
    names: Arc<[Box<str>]>,
}

impl ServerRoles {
    pub(crate) fn of(slots: &[ProviderSlot]) -> Option<Self> {
        let (slot_id, roles) = slots.iter().find_map(|slot| Some((slot.id, slot.provider.roles()?)))?;
        let names = roles.names().into_iter().map(Into::into).collect();
        Some(Self { roles, set: RoleSet { slot_id, names } })
    }
}

impl SlotViews {
    /// Asks the provider what each role sees, and compiles it. A tool that the whole catalog, or the same role before, has with the
    /// same definition is not compiled again.
    pub(crate) fn new(
        slot: &ProviderSlot,
        roles: &ServerRoles,
        previous: &Registry,
        compilations: &AtomicU64,
    ) -> Self {
        let view = |role: &str| SlotView::new(slot, role, previous.of_role(role), compilations);
        Self {
            views: roles.set.names.iter().map(|role| view(role)).collect(),
            of: roles.set.clone(),
            whole: slot.compiled.clone(),
        }
    }

    fn are_of(&self, slot: &ProviderSlot, roles: &ServerRoles) -> bool {
        Arc::ptr_eq(&self.whole, &slot.compiled) && self.of == roles.set
    }
}

/// Uses `prepared` where a slot has no views for these roles. Returns the slots for which there are none.
pub(crate) fn add_views(
    slots: &mut [ProviderSlot],
    roles: &ServerRoles,
    prepared: &[Arc<SlotViews>],
) -> Vec<ProviderSlot> {
    let mut missing = Vec::new();
    for slot in slots {
        if slot.views.as_ref().is_some_and(|views| views.are_of(slot, roles)) {
            continue;
        }
        slot.views = prepared.iter().find(|views| views.are_of(slot, roles)).cloned();
        if slot.views.is_none() {
            missing.push(slot.clone());
        }
    }
    missing
}

impl SlotView {
    fn new(
        slot: &ProviderSlot,
        role: &str,
        previous: Option<&Registry>,
        compilations: &AtomicU64,
    ) -> Option<Self> {
        match slot.provider.role_view(role) {
            RoleView::Nothing => None,
            RoleView::Part(visibility) => {
                let catalog = &slot.compiled.catalog;
                let resources = catalog.resources.iter().map(|one| &one.uri);
                let uris = resources.chain(catalog.skills.iter().map(|one| &one.uri));
                let uris = uris.chain(catalog.resource_templates.iter().map(|one| &one.uri_template));
                let hidden = uris.filter(|uri| !visibility.is_visible(spile_core::ItemKind::Resource, uri));
                Some(Self {
                    provider: slot.provider.clone(),
                    compiled: Arc::new(slot.compiled.filtered(&*visibility)),
                    withheld: hidden.map(|uri| UriPattern::new(uri)).collect(),
                })
            }
            RoleView::Provider(provider) => {
                // By its name: a replaced provider is another slot.
                let is_predecessor =
                    |one: &&ProviderSlot| one.is_base == slot.is_base && one.name == slot.name;
                let known = previous.and_then(|registry| registry.slots.iter().find(is_predecessor));
                let known = known.map(|slot| &*slot.compiled);
                let compiled =
                    CompiledCatalog::of_role(&slot.name, &provider, &slot.compiled, known, compilations);
                Some(Self { provider, compiled: Arc::new(compiled), withheld: Vec::new() })
            }
        }
    }
}

impl RoleRegistries {
    /// Joins the views that the slots of the whole registry have. Compiles nothing.
    pub(super) fn new(whole: &Registry, roles: ServerRoles) -> Self {
        let ServerRoles { roles, set } = roles;
        let names = set.names.iter().enumerate();
        let registries = names.map(|(index, role)| Arc::new(role_registry(whole, index, role))).collect();
        let mut none = Registry::build(Vec::new(), whole.config.clone());
        none.role = Some("".into());
        Self { roles, registries, none: Arc::new(none) }
    }

    pub(super) fn of(&self, principal: &Principal) -> &Arc<Registry> {
        let role = self.roles.role_of(principal);
        role.and_then(|role| self.registries.get(role)).unwrap_or(&self.none)
    }

    pub(super) fn index_of(&self, principal: &Principal) -> Option<usize> {
        self.roles.role_of(principal)
    }

    pub(super) fn registries(&self) -> &[Arc<Registry>] {
        &self.registries
    }
}

fn role_registry(whole: &Registry, index: usize, role: &str) -> Registry {
    let mut withheld = Vec::new();
    let mut slots = Vec::new();
    for slot in &whole.slots {
        let view = slot.views.as_ref().and_then(|views| views.views.get(index)?.as_ref());
        let Some(SlotView { provider, compiled, withheld: uris }) = view else { continue };
        withheld.extend(uris.iter().cloned());
        slots.push(ProviderSlot { provider: provider.clone(), compiled: compiled.clone(), ..slot.clone() });
    }
    let mut registry = Registry::build(slots, whole.config.clone());
    registry.withheld_resources = withheld;
    registry.role = Some(role.into());
    registry
}
