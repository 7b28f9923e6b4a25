//! The calls that run on one thread, and the contexts that are kept for the next ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::mpsc::Sender;

use super::sandbox::{LoadError, Sandbox};
use super::{End, EngineLimits, Input, Limit, ProgramCode, Start, Step, Thrown};
use crate::bundle::Program;
use crate::diagnostic::Diagnostic;

/// The thread needs stack for the interpreter and for host functions beyond what author code may use.
pub(super) const STACK_HEADROOM_BYTES: usize = 2 << 20;

/// Identifies a running call on its engine.
pub(super) type CallNumber = u64;

pub(super) struct Message {
    pub(super) call: CallNumber,
    pub(super) input: Input,
    /// With the first message of a call: where its steps go.
    pub(super) steps: Option<Sender<Step>>,
}

pub(super) struct Worker {
    limits: EngineLimits,
    /// Set when the thread is given up: whatever still runs must stop.
    stop: Arc<AtomicBool>,
    running: HashMap<CallNumber, RunningCall>,
    /// The least recently used first.
    idle: Vec<Sandbox>,
}

struct RunningCall {
    sandbox: Sandbox,
    steps: Sender<Step>,
    /// Its module state was fresh, and no other call must see it.
    begins_fresh: bool,
}

impl Worker {
    pub(super) fn new(limits: EngineLimits, stop: Arc<AtomicBool>) -> Self {
        Self { limits, stop, running: HashMap::new(), idle: Vec::new() }
    }

    pub(super) fn is_running(&self, call: CallNumber) -> bool {
        self.running.contains_key(&call)
    }

    pub(super) fn handle(&mut self, message: Message) -> Option<(Sender<Step>, Step)> {
        let call = message.call;
        let (step, steps) = match message.input {
            Input::Start(start) => {
                let steps = message.steps?;
                match self.take_sandbox(&start) {
                    Ok(mut sandbox) => {
                        let step = sandbox.start(&start);
                        start.pace.ran(sandbox.cpu_used(), step.end.is_some(), &self.limits);
                        let begins_fresh = start.begins_fresh;
                        let running = RunningCall { sandbox, steps: steps.clone(), begins_fresh };
                        self.running.insert(call, running);
                        (step, steps)
                    }
                    Err(error) => (Step { end: Some(load_end(error)), ..Step::default() }, steps),
                }
            }
            Input::Deliver(completions) => {
                // A call that ended meanwhile needs no more results.
                let running = self.running.get_mut(&call)?;
                (running.sandbox.deliver(&completions), running.steps.clone())
            }
            Input::Cancel => {
                if let Some(mut running) = self.running.remove(&call) {
                    running.sandbox.cancel();
                }
                return None;
            }
            Input::Discard => {
                self.running.remove(&call);
                return None;
            }
        };
        if let Some(end) = &step.end
            && let Some(running) = self.running.remove(&call)
            && !running.begins_fresh
            && running.sandbox.is_reusable(end)
        {
            self.keep(running.sandbox);
        }
        Some((steps, step))
    }

    /// A context that served the same owner before, or one that is only loaded, or a new one.
    fn take_sandbox(&mut self, start: &Start) -> Result<Sandbox, LoadError> {
        let fits = |sandbox: &Sandbox| {
            let is_fresh = sandbox.owner.is_none();
            let is_own = !start.begins_fresh && sandbox.owner.as_ref() == Some(&start.owner);
            sandbox.program.hash == start.program.hash && (is_fresh || is_own)
        };
        let mut sandbox = match self.idle.iter().rposition(fits) {
            Some(at) => self.idle.remove(at),
            None => Sandbox::new(&start.program, &self.limits, start.journal.started_ms, &self.stop)?,
        };
        // Also of a context that was kept: a reload of the same code knows nothing of it.
        start.pace.loaded(sandbox.loaded_in, sandbox.has_big_integers, &self.limits);
        sandbox.owner = Some(start.owner.clone());
        Ok(sandbox)
    }

    /// Loads a context for the next call of a tool that needs a fresh one. Nobody waits for it.
    pub(super) fn prepare(&mut self, program: &Arc<ProgramCode>, now_ms: u64) {
        let is_prepared = |sandbox: &Sandbox| sandbox.program.hash == program.hash && sandbox.owner.is_none();
        if !self.idle.iter().any(is_prepared)
            && let Ok(sandbox) = Sandbox::new(program, &self.limits, now_ms, &self.stop)
        {
            self.keep(sandbox);
        }
    }

    fn keep(&mut self, sandbox: Sandbox) {
        if self.limits.idle_contexts_max == 0 {
            return;
        }
        if self.idle.len() >= self.limits.idle_contexts_max {
            self.idle.remove(0);
        }
        self.idle.push(sandbox);
    }
}

fn load_end(error: LoadError) -> End {
    match error {
        LoadError::Threw(thrown) => End::Threw(Box::new(Thrown { class: "InternalError".into(), ..*thrown })),
        LoadError::LimitExceeded(limit) => End::LimitExceeded(limit),
        LoadError::BadContext(message) => {
            End::Threw(Box::new(Thrown { class: "InternalError".into(), message, ..Thrown::default() }))
        }
        LoadError::Waits => End::LimitExceeded(Limit::NeverSettles),
        LoadError::NoProcess(reason) => End::Crashed(reason),
    }
}

/// What an author reads about a program that does not load.
pub(super) fn load_diagnostic(program: &Program, error: &LoadError) -> Diagnostic {
    match error {
        LoadError::Threw(thrown) => {
            let message = match thrown.class.as_str() {
                "Error" | "value" | "" => thrown.message.clone(),
                class => format!("{class}: {}", thrown.message),
            };
            program.locate(message, &thrown.stack)
        }
        LoadError::BadContext(message) => {
            let file = program.context().unwrap_or(program.entry());
            let help =
                "for example `export default function (request) { return { user: request.principal }; }`";
            Diagnostic::error(file, message.clone()).with_help(help)
        }
        LoadError::NoProcess(reason) => {
            let message = format!("cannot be loaded: a process for it cannot be started: {reason}");
            Diagnostic::error(program.entry(), message)
        }
        LoadError::LimitExceeded(limit) => {
            let what = match limit {
                Limit::Cpu => "processor time",
                Limit::Memory | Limit::MemoryOrNull => "memory",
                Limit::Stack => "stack",
                Limit::NeverSettles => "time",
            };
            let message = format!("the top level of the tool uses more {what} than a tool may");
            Diagnostic::error(program.entry(), message).with_help("move the work into the handler")
        }
        LoadError::Waits => {
            let message = "the top level of the tool waits for something that never happens";
            let help = "effects and timers are available only while a call runs; move them into the handler";
            Diagnostic::error(program.entry(), message).with_help(help)
        }
    }
}
