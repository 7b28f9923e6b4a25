//! Runs calls in a process of their own: our binary again, under limits that the system holds.
//!
//! ```text
//! mod.rs        the server's side: starts a worker, asks it, kills it
//! messages.rs   what is asked and answered
//! worker.rs     the worker's side: limits first, then one question after the other
//! ```
//!
//! The worker performs no effects: it says what its code wants, as a thread of the engine does, and the server decides. Its
//! answers are not trusted: they are bounded, and what they may cause is checked where effects are planned.

mod messages;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal as UnixSignal;
use tokio::sync::mpsc::Sender;

use self::messages::{RESPONSE_BYTES_MAX, Request, Response, StartRef, read_frame, write_frame};
use super::sandbox::LoadError;
use super::worker::{CallNumber, Message};
use super::{CodeHash, End, EngineLimits, Input, Limit, ProgramCode, Start, Step};
use crate::results::capability_names;

pub use worker::run_script_worker_if_requested;

/// The argument that makes our binary a worker.
pub(super) const WORKER_ARG: &str = "__run-scripts";

/// Programs that a worker keeps.
const PROGRAMS_MAX: usize = 256;

/// How long a worker may take to be ready.
const START_WAIT_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Where author code runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Isolation {
    /// On threads of the server: for the author's own code.
    #[default]
    Thread,
    /// In processes of this binary, which calls [`run_script_worker_if_requested`] first: for code from elsewhere.
    Process(PathBuf),
}

/// A running worker.
struct WorkerProcess {
    child: ProcessHandle,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

/// Ends a worker from any thread.
#[derive(Clone)]
pub(super) struct ProcessHandle(Arc<Mutex<Child>>);

impl ProcessHandle {
    pub(super) fn id(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    pub(super) fn kill(&self) {
        // It may have ended already.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }

    /// Kills the worker unless it ended, and says how it ended.
    fn reap(&self) -> Option<ExitStatus> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        child.wait().ok()
    }
}

impl WorkerProcess {
    /// Starts a worker. It ends with the thread that calls this, however that thread ends.
    fn start(program: &PathBuf, limits: &EngineLimits) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(WORKER_ARG).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let child = ProcessHandle(Arc::new(Mutex::new(child)));
        let (Some(requests), Some(responses)) = pipes else {
            return Err(io::Error::other("the worker has no pipes"));
        };
        let mut worker = Self { child, requests, responses: BufReader::new(responses) };
        write_frame(&mut worker.requests, &Request::Begin(limits))?;
        let mut readable = [PollFd::new(worker.responses.get_ref(), PollFlags::IN)];
        if rustix::event::poll(&mut readable, Some(&START_WAIT_MAX))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match read_frame(&mut worker.responses, RESPONSE_BYTES_MAX)? {
            Some(Response::Ready) => Ok(worker),
            Some(Response::Described(_) | Response::Step(_)) | None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn ask(&mut self, request: &Request<'_>) -> io::Result<Response> {
        write_frame(&mut self.requests, request)?;
        read_frame(&mut self.responses, RESPONSE_BYTES_MAX)?
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.child.reap();
    }
}

/// The calls of one worker process, as a thread of the engine sees them.
pub(super) struct RemoteWorker {
    program: PathBuf,
    limits: EngineLimits,
    process: Option<WorkerProcess>,
    /// The programs that the worker has; the oldest first.
    sent: VecDeque<CodeHash>,
    running: HashMap<CallNumber, RemoteCall>,
}

struct RemoteCall {
    steps: Sender<Step>,
    effects: usize,
    signals: usize,
}

/// The worker cannot go on. The call that it was busy with ends like this.
pub(super) struct WorkerLost(pub(super) End);

impl RemoteWorker {
    pub(super) fn new(program: PathBuf, limits: EngineLimits) -> Self {
        Self { program, limits, process: None, sent: VecDeque::new(), running: HashMap::new() }
    }

    /// Starts the worker, on the thread that keeps it. Its handle goes to whoever may have to kill it.
    pub(super) fn start(&mut self) -> Result<ProcessHandle, WorkerLost> {
        match WorkerProcess::start(&self.program, &self.limits) {
            Ok(process) => {
                let handle = process.child.clone();
                self.process = Some(process);
                Ok(handle)
            }
            Err(error) => {
                tracing::error!(%error, program = %self.program.display(), "cannot start a process for scripts");
                Err(WorkerLost(End::Crashed("it could not be started".into())))
            }
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn is_running(&self, call: CallNumber) -> bool {
        self.running.contains_key(&call)
    }

    pub(super) fn handle(&mut self, message: Message) -> Result<Option<(Sender<Step>, Step)>, WorkerLost> {
        let call = message.call;
        let step = match message.input {
            Input::Start(start) => {
                let Some(steps) = message.steps else { return Ok(None) };
                self.running.insert(call, RemoteCall { steps, effects: 0, signals: 0 });
                self.send_program(&start.program)?;
                self.ask_step(&Request::Start { call, start: start_ref(&start) })?
            }
            Input::Deliver(completions) if self.running.contains_key(&call) => {
                self.ask_step(&Request::Deliver { call, completions: &completions })?
            }
            Input::Deliver(_) => return Ok(None),
            Input::Cancel => {
                self.running.remove(&call);
                self.ask_step(&Request::Cancel { call })?;
                return Ok(None);
            }
            Input::Discard => {
                self.running.remove(&call);
                self.ask_step(&Request::Discard { call })?;
                return Ok(None);
            }
        };
        let Some(step) = step else { return Ok(None) };
        let Some(running) = self.running.get_mut(&call) else { return Ok(None) };
        running.effects += step.effects.len();
        running.signals += step.signals.len();
        if running.effects > self.limits.effects_max || running.signals > self.limits.signals_max as usize {
            return Err(self.lost(&io::ErrorKind::InvalidData.into()));
        }
        let steps = running.steps.clone();
        if step.end.is_some() {
            self.running.remove(&call);
        }
        Ok(Some((steps, step)))
    }

    fn send_program(&mut self, program: &ProgramCode) -> Result<(), WorkerLost> {
        if self.sent.contains(&program.hash) {
            return Ok(());
        }
        if self.sent.len() >= PROGRAMS_MAX
            && let Some(oldest) = self.sent.pop_front()
        {
            self.ask_step(&Request::Forget(oldest))?;
        }
        self.ask_step(&Request::Program(program))?;
        self.sent.push_back(program.hash);
        Ok(())
    }

    fn ask_step(&mut self, request: &Request<'_>) -> Result<Option<Step>, WorkerLost> {
        let answer = match &mut self.process {
            Some(process) => process.ask(request),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        match answer {
            Ok(Response::Step(step)) => Ok(step),
            Ok(Response::Ready | Response::Described(_)) => {
                Err(self.lost(&io::ErrorKind::InvalidData.into()))
            }
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&mut self, error: &io::Error) -> WorkerLost {
        let status = self.process.take().and_then(|process| process.child.reap());
        let signal = status.and_then(|status| status.signal());
        WorkerLost(match signal {
            Some(signal) if signal == UnixSignal::XCPU.as_raw() => End::LimitExceeded(Limit::Cpu),
            // An allocation that the limit forbids ends a Rust program like this.
            Some(signal) if signal == UnixSignal::ABORT.as_raw() => End::LimitExceeded(Limit::Memory),
            _ => {
                let reason = status.map_or_else(|| error.to_string(), |status| status.to_string());
                tracing::warn!(%error, %reason, "a process of scripts ended");
                End::Crashed(reason)
            }
        })
    }
}

fn start_ref(start: &Start) -> StartRef<'_> {
    StartRef {
        program: start.program.hash,
        owner: &start.owner,
        begins_fresh: start.begins_fresh,
        arguments: &start.arguments,
        request: &start.request,
        journal: &start.journal,
        env: &start.values.env,
        secrets: &start.values.secrets,
        capabilities: capability_names(start.capabilities),
    }
}

/// A worker that describes one program, and ends.
pub(super) struct DescribingWorker(WorkerProcess);

impl DescribingWorker {
    pub(super) fn start(program: &PathBuf, limits: &EngineLimits) -> io::Result<(Self, ProcessHandle)> {
        let process = WorkerProcess::start(program, limits)?;
        let handle = process.child.clone();
        Ok((Self(process), handle))
    }

    pub(super) fn describe(mut self, program: &ProgramCode, now_ms: u64) -> Result<String, LoadError> {
        let mut ask = || {
            self.0.ask(&Request::Program(program))?;
            self.0.ask(&Request::Describe { program: program.hash, now_ms })
        };
        match ask() {
            Ok(Response::Described(described)) => described,
            Ok(Response::Ready | Response::Step(_)) | Err(_) => Err(LoadError::LimitExceeded(Limit::Memory)),
        }
    }
}
