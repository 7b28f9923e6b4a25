//! What callers with a role see of the author files: the files themselves, and of code what the manifest grants.

use std::sync::Arc;

use contract::access::{Grant, ItemGrants};
use spile_core::{
    Call, CallContext, Catalog, ChangeListener, ItemKind, Provider, RoleView, Run, Visibility, WatchFuture,
};

use super::collections::CurrentContract;

/// A provider of author files that knows the roles of the manifest beside them.
pub(super) struct RoleAware {
    pub(super) provider: Arc<dyn Provider>,
    /// `None`: there is no manifest, and so there are no roles.
    pub(super) contract: Option<CurrentContract>,
    pub(super) kind: AuthorFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthorFiles {
    /// Tools and prompts of code: for no role, unless the manifest says so. Code can reach more than the rows of its caller.
    Code,
    /// Prompts, resources and skills: for every role, unless the manifest says otherwise.
    Content,
}

struct GrantedItems {
    grants: ItemGrants,
    kind: AuthorFiles,
}

impl Visibility for GrantedItems {
    fn is_visible(&self, kind: ItemKind, name: &str) -> bool {
        let grant = match kind {
            ItemKind::Tool => self.grants.tools.grant(name),
            ItemKind::Prompt => self.grants.prompts.grant(name),
            ItemKind::Resource if self.grants.withheld_uris.iter().any(|uri| uri == name) => Grant::Withheld,
            ItemKind::Resource => Grant::Granted,
            ItemKind::Task => Grant::Withheld,
        };
        match (grant, self.kind) {
            (Grant::Granted, _) | (Grant::Unspecified, AuthorFiles::Content) => true,
            (Grant::Withheld, _) | (Grant::Unspecified, AuthorFiles::Code) => false,
        }
    }
}

impl Provider for RoleAware {
    fn role_view(&self, role: &str) -> RoleView {
        match self.contract.as_ref().and_then(|contract| contract.grants(role)) {
            Some(grants) => RoleView::Part(Arc::new(GrantedItems { grants, kind: self.kind })),
            None => RoleView::Nothing,
        }
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.provider.catalog()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        self.provider.run(call, cx)
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        self.provider.set_change_listener(listener);
    }

    fn watch(&self, uri: &str) {
        self.provider.watch(uri);
    }

    fn watching(&self, uri: &str) -> Option<WatchFuture> {
        self.provider.watching(uri)
    }

    fn unwatch(&self, uri: &str) {
        self.provider.unwatch(uri);
    }

    fn repeats_rounds_safely(&self) -> bool {
        self.provider.repeats_rounds_safely()
    }

    fn guarantees_output_schemas(&self) -> bool {
        self.provider.guarantees_output_schemas()
    }
}
