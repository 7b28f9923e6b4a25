//! What follows the manifest while author files are served: permissions, where code runs, and resources.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use content::ContentProvider;
use contract::diagnostic::Diagnostic;
use contract::manifest::Manifest;
use host::Server;
use script::ScriptProvider;

use super::role_view::RoleAware;
use super::watch::{CodeEvent, CodeListener, PromisedTools};
use super::{AuthorFolder, AuthorProviders, AuthorSettings, Watches, engine, network};

/// The author files of a server. It keeps none of them served.
pub(super) struct ServedCode {
    folder: AuthorFolder,
    settings: AuthorSettings,
    server: Weak<Server>,
    scripts: Weak<ScriptProvider>,
    content: Weak<ContentProvider>,
    code: Weak<RoleAware>,
    watches: Weak<Mutex<Watches>>,
    promised: PromisedTools,
    listener: CodeListener,
}

impl ServedCode {
    pub(super) fn new(
        folder: AuthorFolder,
        settings: AuthorSettings,
        server: &Arc<Server>,
        providers: &AuthorProviders,
        watches: &Arc<Mutex<Watches>>,
        promised: PromisedTools,
        listener: CodeListener,
    ) -> Self {
        Self {
            folder,
            settings,
            server: Arc::downgrade(server),
            scripts: Arc::downgrade(&providers.scripts),
            content: Arc::downgrade(&providers.content),
            code: Arc::downgrade(&providers.code),
            watches: Arc::downgrade(watches),
            promised,
            listener,
        }
    }

    /// Serves what the manifest says now. Calls that run go on where they began.
    pub(super) fn apply(&mut self, manifest: &Manifest) -> Vec<Diagnostic> {
        let upgraded = (self.scripts.upgrade(), self.content.upgrade(), self.code.upgrade());
        let (Some(scripts), Some(content), Some(code)) = upgraded else { return Vec::new() };
        let mut diagnostics = Vec::new();
        let permissions = super::permissions(&self.folder.root, manifest, &mut diagnostics);
        scripts.set_permissions(permissions.clone(), network::for_permissions(&permissions));
        let settings = AuthorSettings::new(Some(manifest));
        // Only a folder that is watched has a manifest that changes.
        if settings != self.settings && self.folder.packed_links.is_none() {
            diagnostics.extend(self.load_again(
                manifest,
                settings,
                AuthorProviders { scripts, content, code },
            ));
        }
        diagnostics
    }

    fn load_again(
        &mut self,
        manifest: &Manifest,
        settings: AuthorSettings,
        providers: AuthorProviders,
    ) -> Vec<Diagnostic> {
        let (Some(server), Some(watches)) = (self.server.upgrade(), self.watches.upgrade()) else {
            return Vec::new();
        };
        if settings.isolation != self.settings.isolation {
            providers.scripts.set_engine(engine(&settings.isolation));
        }
        self.settings = settings;
        let (author, diagnostics) = self.folder.clone().load(Some(manifest));
        match self.promised.broken_by(&author.bundle) {
            None => {
                providers.scripts.reload(&author.bundle);
            }
            Some(difference) => (self.listener)(&CodeEvent::Rejected(&difference)),
        }
        let (loaded, watched) = author.into_watched();
        providers.content.reload(loaded);
        let next = watched.watch(&server, &providers, self.promised.clone(), self.listener.clone());
        *watches.lock().unwrap_or_else(PoisonError::into_inner) = next;
        diagnostics
    }
}
