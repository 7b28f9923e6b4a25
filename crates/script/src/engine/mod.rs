//! QuickJS on a bounded number of threads. Knows programs, limits and effects as text; performs none of them.
//!
//! A call is a conversation: [`Start`], then results of effects in; one [`Step`] out for each. All of it is
//! plain data, so that the other side of the conversation can be a thread or a process.
//!
//! ```text
//! threads.rs    which thread runs a call; a thread that does not come back is given up and replaced
//! runner.rs     the loop of one thread
//! quick.rs      calls that are likely to end at once, on the thread of their connection; pace.rs says which
//! worker.rs     the sandboxes of one thread and the calls that run in them
//! sandbox.rs    one QuickJS runtime with one program loaded: memory, stack and CPU limits, effects, replay
//! process/      the same worker in a process of its own, under limits that the system holds
//! prelude/      the JavaScript around author code: clock, web platform, `ctx`; hardened
//! ```

mod code;
mod describe;
mod meter;
mod pace;
mod prelude;
mod process;
mod quick;
mod random;
mod runner;
mod sandbox;
mod threads;
mod url_parts;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use code::{CodeHash, ProgramCode};
pub(crate) use describe::{Described, describe};
pub(crate) use pace::Pace;
pub(crate) use prelude::PRELUDE_VERSION;
pub use process::{Isolation, run_script_worker_if_requested};
pub(crate) use sandbox::QuickCall;
pub use threads::Engine;
pub(crate) use threads::Session;

use serde::{Deserialize, Serialize};
use spile_core::ClientCapabilities;

use crate::journal::{Completion, EffectJournal};

/// What author code may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineLimits {
    /// The heap of one context.
    pub memory_bytes_max: usize,
    pub stack_bytes_max: usize,
    /// Processor time of one round of a call.
    pub cpu_ms_max: u64,
    /// How long a thread may stay inside one built-in beyond the CPU limit before it is given up.
    pub overstay_ms_max: u64,
    pub threads: usize,
    /// Threads that were given up and have not ended yet. Beyond it, none are replaced.
    pub abandoned_threads_max: usize,
    /// Calls that run at the same time on one thread, waiting ones included.
    pub calls_per_thread_max: usize,
    /// Contexts that are kept for the next call, on one thread.
    pub idle_contexts_max: usize,
    /// After so many quick calls in a row, a program runs on the threads of its callers. `u32::MAX`: never.
    pub quick_calls_min: u32,
    /// The processor time that a quick call may take on a script thread, and that loading its context may take.
    pub quick_call_ms_max: u64,
    pub quick_load_ms_max: u64,
    /// A call with more arguments runs on a script thread.
    pub quick_arguments_bytes_max: usize,
    pub effects_max: usize,
    /// Progress, log messages and events in one call.
    pub signals_max: u32,
    pub result_bytes_max: usize,
    /// All contexts of one worker process together.
    pub process_bytes_max: usize,
    /// Worker processes that may be started in one minute. Beyond it, calls are told to come back later.
    pub process_starts_per_minute_max: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            memory_bytes_max: 64 << 20,
            stack_bytes_max: 512 << 10,
            cpu_ms_max: 1000,
            overstay_ms_max: 2000,
            threads: cores.clamp(2, 8),
            abandoned_threads_max: 8,
            calls_per_thread_max: 64,
            idle_contexts_max: 32,
            quick_calls_min: 16,
            quick_call_ms_max: 2,
            quick_load_ms_max: 25,
            quick_arguments_bytes_max: 16 << 10,
            effects_max: 10_000,
            signals_max: 10_000,
            result_bytes_max: 4 << 20,
            process_bytes_max: 1 << 30,
            process_starts_per_minute_max: 120,
        }
    }
}

/// Begins one round of a call.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) program: Arc<ProgramCode>,
    /// Module state lives as long as the calls come from the same owner.
    pub(crate) owner: StateOwner,
    /// Whether the call begins with fresh module state that no later call sees: it may be replayed, or nothing tells its caller
    /// from others.
    pub(crate) begins_fresh: bool,
    /// Whether another tool made the call. The last places of a thread are for calls of clients.
    pub(crate) is_nested: bool,
    /// JSON texts.
    pub(crate) arguments: String,
    pub(crate) request: String,
    /// What happened so far; the handler is replayed up to its end.
    pub(crate) journal: Arc<EffectJournal>,
    pub(crate) values: Arc<Values>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) capabilities: ClientCapabilities,
}

/// The settings that a tool may read, by declared name. `None` is declared but not set.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) env: BTreeMap<String, Option<String>>,
    pub(crate) secrets: BTreeMap<String, Option<String>>,
}

/// Whose calls see the same module state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StateOwner {
    Principal(Box<str>),
    /// An anonymous caller. An address may be that of a proxy; a session or connection belongs to one client.
    Session([u8; 16]),
    /// Any anonymous caller: of code that keeps nothing, or of one call.
    Anonymous,
    /// Declared to be shared between callers.
    Everyone,
}

/// The same, before it is known whether a context must be made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateOwnerRef<'a> {
    Principal(&'a str),
    Session([u8; 16]),
    Anonymous,
    Everyone,
}

impl StateOwnerRef<'_> {
    pub(crate) fn is(self, owner: &StateOwner) -> bool {
        match (self, owner) {
            (Self::Principal(id), StateOwner::Principal(known)) => *id == **known,
            (Self::Session(key), StateOwner::Session(known)) => key == *known,
            (Self::Anonymous, StateOwner::Anonymous) | (Self::Everyone, StateOwner::Everyone) => true,
            _ => false,
        }
    }

    pub(crate) fn to_owner(self) -> StateOwner {
        match self {
            Self::Principal(id) => StateOwner::Principal(id.into()),
            Self::Session(key) => StateOwner::Session(key),
            Self::Anonymous => StateOwner::Anonymous,
            Self::Everyone => StateOwner::Everyone,
        }
    }
}

/// What a call did until it had nothing more to do.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) effects: Vec<IssuedEffect>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) reads: Vec<Option<String>>,
    /// Effects whose result is no longer wanted.
    pub(crate) abandoned: Vec<u32>,
    pub(crate) end: Option<End>,
}

/// An effect that the handler started and that has no result in the journal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IssuedEffect {
    pub(crate) number: u32,
    pub(crate) kind: String,
    /// JSON text.
    pub(crate) arguments: String,
    pub(crate) fingerprint: u64,
    /// The call's clock when it was issued.
    pub(crate) at_ms: u64,
}

/// Something the handler tells its caller: progress, a log message, an event.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Signal {
    pub(crate) kind: String,
    /// JSON text.
    pub(crate) arguments: String,
}

/// How the handler ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum End {
    Returned(Returned),
    Threw(Box<Thrown>),
    LimitExceeded(Limit),
    /// The handler did something else than its journal says.
    Diverged(String),
    /// The thread was given up because of another call. The call can be replayed elsewhere.
    Lost,
    /// The process that ran the call ended, for a reason that no limit explains.
    Crashed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Returned {
    Nothing,
    Text(String),
    Json(String),
    /// Bytes, in base64.
    Bytes(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    Cpu,
    Memory,
    Stack,
    /// The handler waits for something that cannot happen.
    NeverSettles,
    /// The interpreter throws `null` where it has no memory left for an error; so may the handler.
    MemoryOrNull,
}

/// A thrown value, as far as it could be described.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Thrown {
    /// `Error`, one of its built-in subclasses, `McpError`, `InvalidArguments`, or `value`.
    pub(crate) class: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) stack: String,
    pub(crate) code: Option<f64>,
    /// An `error.code` that is a text.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// JSON text.
    pub(crate) data: Option<String>,
    /// The client capability that is missing.
    pub(crate) missing: Option<String>,
    #[serde(default)]
    pub(crate) issues: Vec<Issue>,
    /// Whether it is a rejected promise that nobody awaited.
    #[serde(default)]
    pub(crate) is_unhandled: bool,
}

/// An argument that the tool's own schema rejects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Issue {
    pub(crate) field: String,
    pub(crate) message: String,
}

/// What goes to a running call.
pub(crate) enum Input {
    Start(Box<Start>),
    Deliver(Vec<Completion>),
    /// The caller is gone: the handler hears of it, and the call ends.
    Cancel,
    /// The round ended with questions. The handler must not notice.
    Discard,
}
