//! A bundle as a provider: its catalog, its calls, its reloads.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallTarget, Catalog, CatalogChange, ChangeListener, ItemKind, Outcome,
    Principal, Provider, Run,
};

use crate::bundle::{Bundle, BundledTool};
use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::driver::{Round, drive};
use crate::effects::{Collections, EffectServices, Network, Permissions};
use crate::engine::{Engine, Values};

/// What scripts reach beyond themselves. By default nothing.
#[derive(Clone, Default)]
pub struct ScriptServices {
    pub permissions: Permissions,
    pub network: Option<Arc<dyn Network>>,
    pub collections: Option<Arc<dyn Collections>>,
    /// Receives what author code does wrong while it runs. The log has it in any case.
    pub diagnostics: Option<Arc<dyn DiagnosticSink>>,
}

/// Serves the tools of a folder.
pub struct ScriptProvider {
    engine: Arc<Engine>,
    services: EffectServices,
    values: Arc<Values>,
    reporter: Arc<Reporter>,
    served: RwLock<Arc<Served>>,
}

/// One bundle, ready to be served.
struct Served {
    catalog: Arc<Catalog>,
    /// In the order of the catalog: sorted by name.
    tools: Vec<Arc<BundledTool>>,
}

/// What a reload changed, by tool name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadReport {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// The code changed; clients see the same tool.
    pub changed_code: Vec<String>,
    /// What clients see of the tool changed.
    pub changed_definition: Vec<String>,
}

impl ReloadReport {
    /// Whether clients must read the list of tools again.
    pub fn changes_catalog(&self) -> bool {
        !(self.added.is_empty() && self.removed.is_empty() && self.changed_definition.is_empty())
    }
}

/// Where reports about running scripts go.
#[derive(Default)]
pub(crate) struct Reporter {
    sink: Option<Arc<dyn DiagnosticSink>>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

impl Reporter {
    pub(crate) fn report(&self, tool: &str, diagnostic: &Diagnostic) {
        tracing::warn!(%tool, at = diagnostic.location(), reason = diagnostic.message, "a script failed");
        if let Some(sink) = &self.sink {
            sink.report(tool, diagnostic);
        }
    }

    pub(crate) fn catalog_changed(&self, change: CatalogChange) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener.catalog_changed(change);
        }
    }
}

impl ScriptProvider {
    pub fn new(engine: Arc<Engine>, bundle: &Bundle, services: ScriptServices) -> Self {
        let ScriptServices { permissions, network, collections, diagnostics } = services;
        let values = Values { env: permissions.env.clone(), secrets: permissions.secrets.clone() };
        Self {
            engine,
            values: Arc::new(values),
            services: EffectServices { permissions: Arc::new(permissions), network, collections },
            reporter: Arc::new(Reporter { sink: diagnostics, listener: Mutex::default() }),
            served: RwLock::new(Arc::new(Served::new(bundle))),
        }
    }

    /// Serves another version of the folder. Calls that run go on with the code they began with.
    pub fn reload(&self, bundle: &Bundle) -> ReloadReport {
        let next = Arc::new(Served::new(bundle));
        let previous = {
            let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *served, next.clone())
        };
        let mut report = ReloadReport::default();
        for tool in &next.tools {
            let name = tool.definition.name.clone();
            match previous.tool(&name) {
                None => report.added.push(name),
                Some(old) if old.definition != tool.definition => report.changed_definition.push(name),
                Some(old) if old.program.hash != tool.program.hash => report.changed_code.push(name),
                Some(_) => {}
            }
        }
        let removed = previous.tools.iter().filter(|old| next.tool(&old.definition.name).is_none());
        report.removed = removed.map(|old| old.definition.name.clone()).collect();
        if report.changes_catalog() {
            self.reporter.catalog_changed(CatalogChange::Tools);
        }
        report
    }

    fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Served {
    fn new(bundle: &Bundle) -> Self {
        let mut tools: Vec<_> = bundle.served().cloned().map(Arc::new).collect();
        tools.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        let catalog = Catalog {
            tools: tools.iter().map(|tool| tool.definition.clone()).collect(),
            logging: true,
            list_changed: true,
            ..Catalog::default()
        };
        Self { catalog: Arc::new(catalog), tools }
    }

    fn tool(&self, name: &str) -> Option<&Arc<BundledTool>> {
        let at = self.tools.binary_search_by(|tool| tool.definition.name.as_str().cmp(name)).ok()?;
        self.tools.get(at)
    }
}

impl Provider for ScriptProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.served().catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.name();
        let tool = match call.target {
            CallTarget::Tool => self.served().tool(&name).cloned(),
            CallTarget::Prompt | CallTarget::Resource | CallTarget::Completion { .. } => None,
        };
        let Some(tool) = tool else {
            let error = CallError::UnknownItem { kind: ItemKind::Tool, name: name.into_owned() };
            return Run::Now(Outcome::Failed(error));
        };
        let arguments = call.arguments().map_or_else(|| "{}".to_owned(), |node| node.raw().to_owned());
        Run::later(drive(Round {
            engine: self.engine.clone(),
            request: describe_request(&name, &cx.caller.principal).to_string(),
            tool,
            services: self.services.clone(),
            values: self.values.clone(),
            reporter: self.reporter.clone(),
            caller: cx.caller.clone(),
            platform: cx.platform.clone(),
            events: cx.events.clone(),
            answers: cx.journal.clone(),
            tools: cx.tools.shared(),
            arguments,
        }))
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.reporter.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Checked before a result leaves, with a report for the author.
    fn guarantees_output_schemas(&self) -> bool {
        true
    }
}

/// What the context function receives.
fn describe_request(tool: &str, principal: &Principal) -> Json {
    Json::object(|object| {
        object.str("method", "tools/call").str("tool", tool).object("headers", |_| ());
        if let Principal::Named(identity) = principal {
            object.object("principal", |object| {
                object.str("issuer", identity.issuer()).str("subject", identity.subject());
                object.array("scopes", identity.scopes(), json::write::string);
                object.maybe_raw("claims", identity.claims().map(Json::as_str));
            });
        }
    })
}
