//! Everything that the official conformance suite expects of a server, as one provider.
//!
//! Texts, keys and schemas are the documented ones; the suite compares some of them literally. Each row of the
//! table names a tool, its schema and its function. Input is requested with [`Outcome::InputRequired`] in every
//! protocol version, and a job is [`Outcome::Detach`]; the host decides what goes over the wire and whether the
//! client can be asked at all. Absent: skills.

mod input_requests;
mod jobs;
mod prompts;
mod resources;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallTarget, Catalog, CatalogChange, ChangeListener, ItemKind, Outcome,
    Provider, Run, TaskSupport, Tool,
};

/// The conformance provider.
pub struct ConformanceProvider {
    handlers: HashMap<&'static str, Handler>,
    catalog_state: Mutex<CatalogState>,
    listener: OnceLock<Arc<dyn ChangeListener>>,
    /// How often the watched resource was changed.
    revision: AtomicU64,
}

type Handler = fn(&ConformanceProvider, &Call, &CallContext<'_>) -> Run;

/// One row of the table.
struct ToolSpec {
    name: &'static str,
    description: &'static str,
    /// JSON Schema of the arguments.
    input: &'static str,
    task: TaskSupport,
    run: Handler,
}

const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

impl ToolSpec {
    const fn new(name: &'static str, description: &'static str, run: Handler) -> Self {
        Self { name, description, input: NO_ARGUMENTS, task: TaskSupport::Forbidden, run }
    }

    const fn input_schema(mut self, input: &'static str) -> Self {
        self.input = input;
        self
    }

    const fn task(mut self, task: TaskSupport) -> Self {
        self.task = task;
        self
    }

    fn tool(&self) -> Tool {
        Tool { task_support: self.task, ..Tool::new(self.name, self.description, parse_constant(self.input)) }
    }
}

/// In list order: the suite calls the first tool with `{}` and expects it to succeed.
const TOOLS: [&[ToolSpec]; 3] = [tools::TOOLS, input_requests::TOOLS, jobs::TOOLS];

/// The current catalog. The two `bool`s are toggled by the `test_trigger_*` tools, so that the lists really change
/// when a notification says so.
struct CatalogState {
    extra_tool: bool,
    extra_prompt: bool,
    catalog: Arc<Catalog>,
}

impl Default for ConformanceProvider {
    fn default() -> Self {
        let rows = || TOOLS.into_iter().flatten();
        let catalog = Catalog {
            tools: rows().map(ToolSpec::tool).collect(),
            resources: resources::list(),
            resource_templates: resources::templates(),
            prompts: prompts::list(),
            skills: Vec::new(),
            directories: Vec::new(),
            completions: true,
            logging: true,
            resource_subscriptions: true,
            list_changed: true,
            is_open_ended: false,
            rate_limit: None,
            instructions: None,
            reads_request_heads: false,
        };
        let handlers = rows().chain([&tools::EXTRA_TOOL]).map(|row| (row.name, row.run)).collect();
        let offer = CatalogState { extra_tool: false, extra_prompt: false, catalog: Arc::new(catalog) };
        Self {
            handlers,
            catalog_state: Mutex::new(offer),
            listener: OnceLock::new(),
            revision: AtomicU64::new(0),
        }
    }
}

impl Provider for ConformanceProvider {
    /// Its handlers change nothing.
    fn repeats_rounds_safely(&self) -> bool {
        true
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog_state.lock().unwrap_or_else(PoisonError::into_inner).catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match call.target {
            CallTarget::Tool => match self.handlers.get(call.name().as_ref()) {
                Some(handler) => handler(self, call, cx),
                None => Run::now(unknown(ItemKind::Tool, call)),
            },
            CallTarget::Prompt => run_now(prompts::get(call, cx)),
            CallTarget::Resource => run_now(resources::read(self, call)),
            CallTarget::Completion {
                reference: of, argument_index: argument, value_index: value, ..
            } => run_now(prompts::complete(call, of, call.doc().node(argument), call.doc().node(value))),
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        // A second listener would be a second host, which no test has.
        let _first_wins = self.listener.set(listener);
    }
}

impl ConformanceProvider {
    fn notify(&self, change: CatalogChange) {
        if let Some(listener) = self.listener.get() {
            listener.catalog_changed(change);
        }
    }

    /// Toggles the tool that is not always listed.
    fn toggle_extra_tool(&self) {
        self.edit_catalog(|offer, catalog| {
            offer.extra_tool = !offer.extra_tool;
            match offer.extra_tool {
                true => catalog.tools.push(tools::EXTRA_TOOL.tool()),
                false => catalog.tools.retain(|tool| tool.name != tools::EXTRA_TOOL.name),
            }
        });
        self.notify(CatalogChange::Tools);
    }

    /// Toggles the prompt that is not always listed.
    fn toggle_extra_prompt(&self) {
        self.edit_catalog(|offer, catalog| {
            offer.extra_prompt = !offer.extra_prompt;
            match offer.extra_prompt {
                true => catalog.prompts.push(prompts::extra_prompt()),
                false => catalog.prompts.retain(|prompt| prompt.name != prompts::EXTRA_PROMPT),
            }
        });
        self.notify(CatalogChange::Prompts);
    }

    /// Releases the lock before it notifies: the listener reads the catalog.
    fn edit_catalog(&self, change: impl FnOnce(&mut CatalogState, &mut Catalog)) {
        let mut offer = self.catalog_state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut catalog = Catalog::clone(&offer.catalog);
        change(&mut offer, &mut catalog);
        offer.catalog = Arc::new(catalog);
    }
}

/// A result, or what ends the round without one: an input request, a refusal, an error.
type RoundResult = Result<Outcome, Outcome>;

fn run_now(answered: RoundResult) -> Run {
    Run::Now(answered.unwrap_or_else(|instead| instead))
}

fn unknown(what: ItemKind, call: &Call) -> Outcome {
    CallError::UnknownItem { kind: what, name: call.name().into_owned() }.into()
}

/// A JSON constant of this source file.
fn parse_constant(text: &str) -> Json {
    Json::parse(text).expect("a constant of the fixture is valid JSON")
}

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
