//! The registries of roles: what callers with each of them see, compiled and rendered as for everybody.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use spile_core::{CallerRoles, Principal, RoleView};

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

impl RoleRegistries {
    /// `previous` is reused where a provider is the same.
    pub(super) fn new(
        whole: &Registry,
        roles: Arc<dyn CallerRoles>,
        previous: Option<&Registry>,
        compilations: &AtomicU64,
    ) -> Self {
        let config = &whole.config;
        let registries = roles.names().into_iter().enumerate().map(|(index, role)| {
            let previous = previous.and_then(|previous| previous.roles.as_ref()?.registries.get(index));
            let mut withheld = Vec::new();
            let mut slots = Vec::new();
            for slot in &whole.slots {
                let previous = previous.and_then(|one| one.slots.iter().find(|known| known.id == slot.id));
                slots.extend(role_slot(slot, role, previous, compilations, &mut withheld));
            }
            let mut registry = Registry::build(slots, config.clone());
            registry.withheld_resources = withheld;
            registry.role = Some(role.into());
            Arc::new(registry)
        });
        let registries = registries.collect();
        let mut none = Registry::build(Vec::new(), config.clone());
        none.role = Some("".into());
        Self { roles, registries, none: Arc::new(none) }
    }

    pub(super) fn of(&self, principal: &Principal) -> &Arc<Registry> {
        let role = self.roles.role_of(principal);
        role.and_then(|role| self.registries.get(role)).unwrap_or(&self.none)
    }

    pub(super) fn registries(&self) -> &[Arc<Registry>] {
        &self.registries
    }
}

/// The slot of a provider as a role sees it; `None` if it sees nothing of it.
fn role_slot(
    slot: &ProviderSlot,
    role: &str,
    previous: Option<&ProviderSlot>,
    compilations: &AtomicU64,
    withheld: &mut Vec<UriPattern>,
) -> Option<ProviderSlot> {
    match slot.provider.role_view(role) {
        RoleView::Nothing => None,
        RoleView::Part(visibility) => {
            let compiled = slot.compiled.filtered(&*visibility);
            let catalog = &slot.compiled.catalog;
            let uris =
                catalog.resources.iter().map(|one| &one.uri).chain(catalog.skills.iter().map(|one| &one.uri));
            let uris = uris.chain(catalog.resource_templates.iter().map(|one| &one.uri_template));
            let hidden = uris.filter(|uri| !visibility.is_visible(spile_core::ItemKind::Resource, uri));
            withheld.extend(hidden.map(|uri| UriPattern::new(uri)));
            Some(ProviderSlot { compiled: Arc::new(compiled), ..slot.clone() })
        }
        RoleView::Provider(provider) => {
            let catalog = provider.catalog();
            let known = previous.filter(|known| Arc::ptr_eq(&known.compiled.catalog, &catalog));
            let compiled = match known {
                Some(known) => known.compiled.clone(),
                None => {
                    Arc::new(CompiledCatalog::new(&slot.name, &provider, Some(&slot.compiled), compilations))
                }
            };
            Some(ProviderSlot { provider, compiled, ..slot.clone() })
        }
    }
}
