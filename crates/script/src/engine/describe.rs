//! Loads a program once, without effects, to learn what it declares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use json::{Json, NodeKind};

use super::process::{DescribingWorker, Isolation, ProcessHandle};
use super::sandbox::{LoadError, Sandbox};
use super::worker::{STACK_HEADROOM_BYTES, load_diagnostic};
use super::{EngineLimits, Limit};
use crate::bundle::Program;
use crate::diagnostic::Diagnostic;
use crate::handler::HandlerKind;

/// What a module exports beside its handler.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) input: Option<Json>,
    pub(crate) output: Option<Json>,
    pub(crate) metadata: Option<Json>,
}

/// Runs the top level of the program on a thread or in a process of its own, for at most `wall_ms_max`.
pub(crate) fn describe(
    program: &Program,
    kind: HandlerKind,
    limits: &EngineLimits,
    isolation: &Isolation,
    wall_ms_max: u64,
) -> Result<Described, Diagnostic> {
    let (sender, receiver) = sync_channel(1);
    let (own_program, own_limits) = (program.code.clone(), limits.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let (own_stop, own_isolation) = (stop.clone(), isolation.clone());
    let process: Arc<Mutex<Option<ProcessHandle>>> = Arc::default();
    let own_process = process.clone();
    let spawned = std::thread::Builder::new()
        .name("script-load".into())
        .stack_size(limits.stack_bytes_max + STACK_HEADROOM_BYTES)
        .spawn(move || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now_ms = now.as_millis() as u64;
            let described = match &own_isolation {
                Isolation::Thread => Sandbox::new(&own_program, &own_limits, now_ms, &own_stop)
                    .and_then(|sandbox| sandbox.describe()),
                Isolation::Process(binary) => match DescribingWorker::start(binary, &own_limits) {
                    Ok((worker, handle)) => {
                        *own_process.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
                        worker.describe(&own_program, now_ms)
                    }
                    Err(error) => Err(LoadError::NoProcess(error.to_string())),
                },
            };
            // The receiver may have given up.
            let _ = sender.send(described);
        });
    if spawned.is_err() {
        return Err(Diagnostic::error(program.entry(), "cannot be loaded: the system has no thread for it"));
    }
    let described = receiver.recv_timeout(Duration::from_millis(wall_ms_max)).unwrap_or_else(|_| {
        stop.store(true, Ordering::Relaxed);
        if let Some(process) = process.lock().unwrap_or_else(PoisonError::into_inner).take() {
            process.kill();
        }
        Err(LoadError::LimitExceeded(Limit::Cpu))
    });
    let text = described.map_err(|error| load_diagnostic(program, &error))?;
    let unusable =
        |reason: String| Diagnostic::error(program.entry(), format!("its schema or metadata: {reason}"));
    let described = Json::parse(&text).map_err(|error| unusable(error.to_string()))?.to_doc();
    let root = described.root();
    if !root.get("handler").is_some_and(|handler| handler.eq_str("function")) {
        let message = format!("a {} must export a default function", kind.noun());
        let help = "for example `export default async function (args, ctx) { … }`";
        return Err(Diagnostic::error(program.entry(), message).with_help(help));
    }
    let take = |key: &str| root.get(key).filter(|node| node.kind() != NodeKind::Null).map(Json::from);
    Ok(Described { input: take("input"), output: take("output"), metadata: take("metadata") })
}
