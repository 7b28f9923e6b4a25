//! Everything that the official conformance suite asks a server for, as one provider.
//!
//! The texts, keys and schemas are the documented ones; the suite compares some of them literally. What is
//! here is one table: a row names a tool, its schema and the function that answers. A question to the user
//! is [`Outcome::NeedInput`] in every protocol version, a job is [`Outcome::Detach`]; what travels, and
//! whether the caller may be asked at all, is the host's business. Absent: skills.

mod jobs;
mod prompts;
mod questions;
mod resources;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use call::{
    Call, Catalog, Change, Cx, Fault, Listener, Outcome, Provider, Run, Target, TaskUse, Thing, Tool,
};
use json::Json;

/// The conformance provider.
pub struct Conformance {
    handlers: HashMap<&'static str, Handler>,
    offer: Mutex<Offer>,
    listener: OnceLock<Arc<dyn Listener>>,
    /// How often the watched resource was changed.
    edition: AtomicU64,
}

type Handler = fn(&Conformance, &Call, &Cx<'_>) -> Run;

/// One row of the table.
struct Row {
    name: &'static str,
    about: &'static str,
    /// JSON Schema of the arguments.
    input: &'static str,
    task: TaskUse,
    run: Handler,
}

const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

impl Row {
    const fn new(name: &'static str, about: &'static str, run: Handler) -> Self {
        Self { name, about, input: NO_ARGUMENTS, task: TaskUse::Never, run }
    }

    const fn takes(mut self, input: &'static str) -> Self {
        self.input = input;
        self
    }

    const fn task(mut self, task: TaskUse) -> Self {
        self.task = task;
        self
    }

    fn tool(&self) -> Tool {
        Tool { task: self.task, ..Tool::new(self.name, self.about, constant(self.input)) }
    }
}

/// In the order listed: the suite calls the first tool with `{}` and wants it to succeed.
const TABLES: [&[Row]; 3] = [tools::TABLE, questions::TABLE, jobs::TABLE];

/// What is listed now. The two `bool`s are what the `test_trigger_*` tools switch, so that the lists really
/// change when they say so.
struct Offer {
    extra_tool: bool,
    extra_prompt: bool,
    catalog: Arc<Catalog>,
}

impl Default for Conformance {
    fn default() -> Self {
        let rows = || TABLES.into_iter().flatten();
        let catalog = Catalog {
            tools: rows().map(Row::tool).collect(),
            resources: resources::listed(),
            templates: resources::templates(),
            prompts: prompts::listed(),
            completes: true,
            logs: true,
            watches: true,
            changes: true,
            rate: None,
            instructions: None,
        };
        let handlers = rows().chain([&tools::EXTRA]).map(|row| (row.name, row.run)).collect();
        let offer = Offer { extra_tool: false, extra_prompt: false, catalog: Arc::new(catalog) };
        Self { handlers, offer: Mutex::new(offer), listener: OnceLock::new(), edition: AtomicU64::new(0) }
    }
}

impl Provider for Conformance {
    fn catalog(&self) -> Arc<Catalog> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).catalog.clone()
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        match call.target {
            Target::Tool => match self.handlers.get(call.name().as_ref()) {
                Some(handler) => handler(self, call, cx),
                None => Run::now(unknown(Thing::Tool, call)),
            },
            Target::Prompt => settled(prompts::get(call, cx)),
            Target::Resource => settled(resources::read(self, call)),
            Target::Completion { of, argument, value, .. } => {
                settled(prompts::complete(call, of, call.doc().node(argument), call.doc().node(value)))
            }
        }
    }

    fn attach(&self, listener: Arc<dyn Listener>) {
        // A second listener would be a second host, which no test has.
        let _first_wins = self.listener.set(listener);
    }
}

impl Conformance {
    fn tell(&self, change: Change) {
        if let Some(listener) = self.listener.get() {
            listener.changed(change);
        }
    }

    /// Switches the tool that comes and goes.
    fn switch_tool(&self) {
        self.edit(|offer, catalog| {
            offer.extra_tool = !offer.extra_tool;
            match offer.extra_tool {
                true => catalog.tools.push(tools::EXTRA.tool()),
                false => catalog.tools.retain(|tool| tool.name != tools::EXTRA.name),
            }
        });
        self.tell(Change::Tools);
    }

    /// Switches the prompt that comes and goes.
    fn switch_prompt(&self) {
        self.edit(|offer, catalog| {
            offer.extra_prompt = !offer.extra_prompt;
            match offer.extra_prompt {
                true => catalog.prompts.push(prompts::extra()),
                false => catalog.prompts.retain(|prompt| prompt.name != prompts::EXTRA),
            }
        });
        self.tell(Change::Prompts);
    }

    /// The lock is gone before anybody is told: whoever is told reads the catalog.
    fn edit(&self, change: impl FnOnce(&mut Offer, &mut Catalog)) {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut catalog = Catalog::clone(&offer.catalog);
        change(&mut offer, &mut catalog);
        offer.catalog = Arc::new(catalog);
    }
}

/// An answer, or what ends the round before there is one: a question, a refusal, a fault.
type Answered = Result<Outcome, Outcome>;

fn settled(answered: Answered) -> Run {
    Run::Now(answered.unwrap_or_else(|instead| instead))
}

fn unknown(what: Thing, call: &Call) -> Outcome {
    Fault::Unknown { what, name: call.name().into_owned() }.into()
}

/// JSON that stands in this source.
fn constant(text: &str) -> Json {
    Json::parse(text).expect("a constant of the fixture is valid JSON")
}

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
