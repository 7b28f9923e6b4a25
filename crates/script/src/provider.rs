//! A bundle as a provider: its catalog, its calls, its reloads.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallResult, CallTarget, Catalog, CatalogChange, ChangeListener,
    CompletionRef, CompletionResult, DetachedWork, ItemKind, Outcome, Principal, Provider, RequestHead, Run,
};

use crate::bundle::{Bundle, BundledPrompt, BundledResource, BundledTool};
use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::driver::{Round, drive, send_signal};
use crate::effects::{Collections, EffectServices, Network, Permissions};
use crate::engine::{Engine, QuickCall, StateOwnerRef, Values};
use crate::handler::{Handler, HandlerKind};
use crate::results;
use crate::schema::CompletionValues;

/// What scripts reach beyond themselves. By default nothing.
#[derive(Clone, Default)]
pub struct ScriptServices {
    pub permissions: Permissions,
    pub network: Option<Arc<dyn Network>>,
    pub collections: Option<Arc<dyn Collections>>,
    /// Receives what author code does wrong while it runs. Without it, the log does.
    pub diagnostics: Option<Arc<dyn DiagnosticSink>>,
}

/// Serves the tools and prompts of a folder that are code, and answers resources for whoever lists them.
pub struct ScriptProvider {
    granted: RwLock<Arc<Granted>>,
    reporter: Arc<Reporter>,
    served: RwLock<Arc<Served>>,
}

/// Where code runs, and what it may reach. A call keeps what it began with.
#[derive(Clone)]
struct Granted {
    engine: Arc<Engine>,
    services: EffectServices,
    values: Arc<Values>,
}

/// One bundle, ready to be served.
struct Served {
    catalog: Arc<Catalog>,
    /// In the order of the catalog: sorted by name.
    tools: Vec<BundledTool>,
    prompts: Vec<BundledPrompt>,
    resources: Vec<BundledResource>,
}

/// What a reload changed, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadReport {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// The code changed; clients see the same tool.
    pub changed_code: Vec<String>,
    /// What clients see of the tool changed.
    pub changed_definition: Vec<String>,
    /// Prompts that came, went or changed.
    pub prompts: Vec<String>,
    /// Files of resources whose code came, went or changed.
    pub resources: Vec<String>,
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
        match &self.sink {
            Some(sink) => sink.report(tool, diagnostic),
            None => {
                let (at, reason) = (diagnostic.location(), &diagnostic.message);
                tracing::warn!(%tool, at, reason, "a script failed");
            }
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
        Self {
            granted: RwLock::new(Arc::new(Granted::new(engine, permissions, network, collections))),
            reporter: Arc::new(Reporter { sink: diagnostics, listener: Mutex::default() }),
            served: RwLock::new(Arc::new(Served::new(bundle))),
        }
    }

    /// Replaces what calls that begin from now on may reach.
    pub fn set_permissions(&self, permissions: Permissions, network: Option<Arc<dyn Network>>) {
        let mut granted = self.granted.write().unwrap_or_else(PoisonError::into_inner);
        let (engine, collections) = (granted.engine.clone(), granted.services.collections.clone());
        *granted = Arc::new(Granted::new(engine, permissions, network, collections));
    }

    /// Runs calls that begin from now on elsewhere.
    pub fn set_engine(&self, engine: Arc<Engine>) {
        let mut granted = self.granted.write().unwrap_or_else(PoisonError::into_inner);
        *granted = Arc::new(Granted { engine, ..Granted::clone(&granted) });
    }

    fn granted(&self) -> Arc<Granted> {
        self.granted.read().unwrap_or_else(PoisonError::into_inner).clone()
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
                Some(old) if old.handler.program.hash() != tool.handler.program.hash() => {
                    report.changed_code.push(name);
                }
                Some(_) => {}
            }
        }
        let removed = previous.tools.iter().filter(|old| next.tool(&old.definition.name).is_none());
        report.removed = removed.map(|old| old.definition.name.clone()).collect();
        report.prompts = changed_names(
            previous.prompts.iter().map(|prompt| &*prompt.handler),
            next.prompts.iter().map(|prompt| &*prompt.handler),
        );
        report.resources = changed_names(
            previous.resources.iter().map(|resource| &*resource.handler),
            next.resources.iter().map(|resource| &*resource.handler),
        );
        // The host passes the heads of requests on only if the catalog says that they are read.
        let reads = |served: &Served| served.catalog.reads_request_heads;
        if report.changes_catalog() || reads(&previous) != reads(&next) {
            self.reporter.catalog_changed(CatalogChange::Tools);
        }
        if previous.catalog.prompts != next.catalog.prompts {
            self.reporter.catalog_changed(CatalogChange::Prompts);
        }
        report
    }

    /// Runs the code of a resource: a file of [`crate::BundleOptions::resource_files`], and the variables of its URI. The
    /// contents have no URI.
    pub fn read_resource(
        &self,
        file: &str,
        uri: &str,
        variables: &[(String, String)],
        cx: &CallContext<'_>,
    ) -> Run {
        let served = self.served();
        let resource = served.resources.iter().find(|resource| resource.handler.file == file);
        let Some(resource) = resource else {
            let detail = format!("the code of the resource, `{file}`, cannot be run");
            return Run::Now(Outcome::Failed(CallError::Internal { detail }));
        };
        let arguments = Json::object(|object| {
            for (name, value) in variables {
                object.str(name, value);
            }
        });
        self.start(&resource.handler, uri, arguments.as_str(), None, cx)
    }

    /// One round of a call of a handler.
    fn start(
        &self,
        handler: &Arc<Handler>,
        name: &str,
        arguments: &str,
        call: Option<&Call>,
        cx: &CallContext<'_>,
    ) -> Run {
        let request: Cow<'_, str> = match handler.program.reads_request {
            true => describe_request(handler, name, call, cx).to_string().into(),
            false => "null".into(),
        };
        let granted = self.granted();
        let owner = handler.state_owner(&cx.caller.principal, cx.session);
        if handler.may_be_quick(owner) && cx.journal.round == 0 && cx.journal.memo().is_none() {
            let call = QuickCall {
                arguments,
                request: &request,
                platform: cx.platform,
                values: &granted.values,
                capabilities: cx.caller.capabilities,
            };
            if let Some(outcome) = self.run_quickly(&granted.engine, handler, owner, &call, cx) {
                return Run::Now(outcome);
            }
        }
        let Granted { engine, services, values } = Granted::clone(&granted);
        let round = Round {
            engine,
            request: request.into_owned(),
            handler: handler.clone(),
            services,
            values,
            reporter: self.reporter.clone(),
            caller: cx.caller.clone(),
            session: cx.session,
            platform: cx.platform.clone(),
            events: cx.events.clone(),
            answers: cx.journal.clone(),
            tools: cx.tools.shared(),
            is_local: cx.address.is_none(),
            arguments: arguments.to_owned(),
        };
        if handler.detaches_at_once() {
            return Run::Now(Outcome::Detach(DetachedWork::new(|checkpoints| {
                Box::pin(drive(round, checkpoints))
            })));
        }
        Run::later(drive(round, cx.journal.checkpoints().clone()))
    }

    /// Runs a call here if it is likely to end at once.
    fn run_quickly(
        &self,
        engine: &Engine,
        handler: &Handler,
        owner: StateOwnerRef<'_>,
        call: &QuickCall<'_>,
        cx: &CallContext<'_>,
    ) -> Option<Outcome> {
        let program = &handler.program;
        let mut step = engine.run_quickly(&program.code, &program.pace, owner, call)?;
        for signal in step.signals {
            send_signal(handler, cx.events, &self.reporter, &signal);
        }
        let end = step.end.take()?;
        Some(results::outcome(handler, engine.limits(), &self.reporter, end))
    }

    fn run_tool(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.name();
        match self.served().tool(&name) {
            Some(tool) => self.start(&tool.handler, &name, arguments_of(call), Some(call), cx),
            None => unknown(ItemKind::Tool, &name),
        }
    }

    fn run_prompt(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.name();
        let served = self.served();
        let Some(prompt) = served.prompt(&name) else { return unknown(ItemKind::Prompt, &name) };
        let empty = Json::object(|_| ()).to_doc();
        if let Err(error) = prompt.input.validate(Some(call.arguments().unwrap_or(empty.root()))) {
            let path = match &error.field {
                Some(field) => format!("params.arguments.{field}"),
                None => "params.arguments".to_owned(),
            };
            return Run::now(CallError::InvalidParams { path, reason: error.message });
        }
        self.start(&prompt.handler, &name, arguments_of(call), Some(call), cx)
    }

    fn complete(&self, call: &Call, argument: &str, prefix: &str, cx: &CallContext<'_>) -> Run {
        let name = call.name();
        let served = self.served();
        let Some(prompt) = served.prompt(&name) else { return unknown(ItemKind::Prompt, &name) };
        let Some(completion) = prompt.completions.iter().find(|one| one.argument == argument) else {
            let reason = format!("unknown argument `{argument}`");
            return Run::now(CallError::InvalidParams { path: "params.argument.name".into(), reason });
        };
        match &completion.values {
            CompletionValues::None => Run::now(CallResult::Completion(CompletionResult::default())),
            CompletionValues::Listed(values) => {
                let prefix = prefix.to_lowercase();
                let fitting =
                    values.iter().filter(|value| value.to_lowercase().starts_with(&prefix)).cloned();
                Run::now(CallResult::Completion(CompletionResult::from_values(fitting)))
            }
            CompletionValues::Field { collection, field } => {
                let Some(collections) = self.granted().services.collections.clone() else {
                    let detail =
                        format!("`{name}` completes from `{collection}`, but there are no collections");
                    return Run::now(CallError::Internal { detail });
                };
                // One more than fits says whether there are more.
                let values_max = CompletionResult::VALUES_MAX + 1;
                let values = collections.complete(cx.caller, collection, field, prefix, values_max);
                Run::later(async move {
                    match values.await {
                        Ok(values) => {
                            let doc = values.to_doc();
                            let texts = doc.root().elements().filter_map(|value| value.str());
                            CallResult::Completion(CompletionResult::from_page(
                                texts.map(|text| text.into_owned()).collect(),
                            ))
                            .into()
                        }
                        Err(failure) => CallError::Internal { detail: failure.message }.into(),
                    }
                })
            }
        }
    }

    fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Granted {
    fn new(
        engine: Arc<Engine>,
        permissions: Permissions,
        network: Option<Arc<dyn Network>>,
        collections: Option<Arc<dyn Collections>>,
    ) -> Self {
        let values = Values { env: permissions.env.clone(), secrets: permissions.secrets.clone() };
        let services = EffectServices { permissions: Arc::new(permissions), network, collections };
        Self { engine, services, values: Arc::new(values) }
    }
}

/// The names of handlers that are only in one of two states, or whose code differs.
fn changed_names<'h>(
    before: impl Iterator<Item = &'h Handler>,
    after: impl Iterator<Item = &'h Handler>,
) -> Vec<String> {
    let (before, after): (Vec<_>, Vec<_>) = (before.collect(), after.collect());
    let is_kept =
        |new: &&&Handler| before.iter().any(|old| old.name == new.name && old.program.is_same(&new.program));
    let changed = after.iter().filter(|new| !is_kept(new));
    let removed = before.iter().filter(|old| after.iter().all(|new| new.name != old.name));
    let mut names: Vec<String> = changed.chain(removed).map(|handler| handler.name.clone()).collect();
    names.sort();
    names
}

impl Served {
    fn new(bundle: &Bundle) -> Self {
        let mut tools: Vec<_> = bundle.served().cloned().collect();
        tools.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        let prompts: Vec<_> = bundle.served_prompts().cloned().collect();
        let has_completions = |prompt: &BundledPrompt| {
            prompt.completions.iter().any(|completion| completion.values != CompletionValues::None)
        };
        let catalog = Catalog {
            tools: tools.iter().map(|tool| tool.definition.clone()).collect(),
            prompts: prompts.iter().map(|prompt| prompt.definition.clone()).collect(),
            completions: prompts.iter().any(has_completions),
            logging: true,
            // Only a context function, or `ctx.request`, looks at them.
            reads_request_heads: bundle.reads_requests(),
            list_changed: true,
            ..Catalog::default()
        };
        let resources = bundle.served_resources().cloned().collect();
        Self { catalog: Arc::new(catalog), tools, prompts, resources }
    }

    fn tool(&self, name: &str) -> Option<&BundledTool> {
        let at = self.tools.binary_search_by(|tool| tool.definition.name.as_str().cmp(name)).ok()?;
        self.tools.get(at)
    }

    fn prompt(&self, name: &str) -> Option<&BundledPrompt> {
        self.prompts.iter().find(|prompt| prompt.definition.name == name)
    }
}

fn unknown(kind: ItemKind, name: &str) -> Run {
    Run::now(CallError::UnknownItem { kind, name: name.to_owned() })
}

fn arguments_of(call: &Call) -> &str {
    call.arguments().map_or("{}", |node| node.raw())
}

impl Provider for ScriptProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.served().catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match call.target {
            CallTarget::Tool => self.run_tool(call, cx),
            CallTarget::Prompt => self.run_prompt(call, cx),
            CallTarget::Completion {
                reference: CompletionRef::Prompt, argument_index, value_index, ..
            } => {
                let text = |index| call.doc().node(index).str().unwrap_or_default();
                self.complete(call, &text(argument_index), &text(value_index), cx)
            }
            CallTarget::Resource
            | CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                unknown(ItemKind::Resource, &call.name())
            }
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.reporter.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Checked before a result leaves, with a report for the author.
    fn guarantees_output_schemas(&self) -> bool {
        true
    }
}

/// What the context function receives: the request, as far as code may know it.
fn describe_request(handler: &Handler, name: &str, call: Option<&Call>, cx: &CallContext<'_>) -> Json {
    let trace = find_trace(call, cx.request_head);
    let key = match handler.kind {
        HandlerKind::Tool => "tool",
        HandlerKind::Prompt => "prompt",
        HandlerKind::Resource => "uri",
    };
    Json::object(|object| {
        object.str("method", handler.kind.method()).str(key, name);
        object.object("headers", |object| {
            // Node joins repeated headers; the last member of an object would win otherwise.
            let mut joined: Vec<(&str, String)> = Vec::new();
            for (name, value) in cx.request_head.iter().flat_map(|head| head.headers()) {
                match joined.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, all)) => *all = format!("{all}, {value}"),
                    None => joined.push((name, value.to_owned())),
                }
            }
            for (name, value) in joined {
                object.str(name, &value);
            }
        });
        if let Some(session) = cx.session {
            object.str("session", &spile_core::text::hex(&session));
        }
        if !trace.is_empty() {
            object.object("trace", |object| {
                for (name, value) in &trace {
                    object.str(name, value);
                }
            });
        }
        if let Principal::Named(identity) = &cx.caller.principal {
            object.object("principal", |object| {
                object.str("issuer", identity.issuer()).str("subject", identity.subject());
                object.array("scopes", identity.scopes(), json::write::string);
                object.maybe_raw("claims", identity.claims().map(Json::as_str));
            });
        }
    })
}

/// One entry of a trace. W3C Trace Context and Baggage ask for at least 512 and 8192.
const TRACE_ENTRY_BYTES_MAX: usize = 8192;

/// The trace that a request belongs to: W3C Trace Context, from `_meta` (2026-07-28, tolerated in older versions) or from
/// the headers.
fn find_trace(call: Option<&Call>, head: Option<&RequestHead>) -> Vec<(&'static str, String)> {
    let meta = call.and_then(|call| {
        let root = call.doc().root();
        root.get("params").unwrap_or(root).get("_meta")
    });
    let of_meta = |name: &str| meta?.get(name)?.str().map(|text| text.into_owned());
    let of_head =
        |name: &str| head?.headers().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
    let found = ["traceparent", "tracestate", "baggage"].into_iter().filter_map(|name| {
        let value = of_meta(name).or_else(|| of_head(name))?;
        (value.len() <= TRACE_ENTRY_BYTES_MAX).then_some((name, value))
    });
    found.collect()
}
