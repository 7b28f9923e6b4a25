//! The process that runs author code. Its stdin asks, its stdout answers.
//!
//! It takes away what it does not need before it reads any code: new files, sockets, programs and threads, memory beyond the
//! limit, and processor time beyond that of one slice. It ends when stdin ends, and when the thread that started it does.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::channel;

use super::WORKER_ARG;
use super::messages::{OwnedRequest, OwnedStart, REQUEST_BYTES_MAX, Response, read_frame, write_frame};
use crate::engine::sandbox::{LoadError, Sandbox};
use crate::engine::worker::{Message, STACK_HEADROOM_BYTES, Worker};
use crate::engine::{CodeHash, EngineLimits, Input, Pace, ProgramCode, Start, Step, Values};
use crate::results::capabilities_of_names;

/// Makes this process a worker if it was started as one. Every binary that passes itself to
/// [`super::Isolation::Process`] calls it first.
pub fn run_script_worker_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|first| first == WORKER_ARG) {
        std::process::exit(match run() {
            Ok(()) => 0,
            Err(error) => {
                // stderr leads nowhere if we were started as a worker; a person sees it.
                eprintln!("`{WORKER_ARG}` is internal: spile starts itself with it to run scripts: {error}");
                2
            }
        });
    }
}

fn run() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        rustix::thread::set_no_new_privs(true)?;
    }
    let mut requests = BufReader::new(io::stdin().lock());
    let Some(OwnedRequest::Begin(limits)) = read_frame(&mut requests, REQUEST_BYTES_MAX)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    drop(requests);
    // The stack of the first thread is not ours to choose.
    let stack_bytes = limits.stack_bytes_max + STACK_HEADROOM_BYTES;
    let thread = std::thread::Builder::new().name("script".into()).stack_size(stack_bytes);
    let thread = thread.spawn(move || {
        hold_limits(&limits)?;
        serve(limits)
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

/// What the system holds, whatever the code does.
fn hold_limits(limits: &EngineLimits) -> io::Result<()> {
    let at_most = |resource, value: u64| {
        // A limit that is lower already cannot be raised, and need not be.
        let value = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
    };
    // stdin, stdout and stderr are open.
    at_most(Resource::Nofile, 3)?;
    at_most(Resource::Nproc, 0)?;
    at_most(Resource::Fsize, 0)?;
    at_most(Resource::Core, 0)?;
    at_most(Resource::Data, limits.process_bytes_max as u64)?;
    Ok(())
}

/// The system ends the process if the next slice takes much longer than the interpreter allows itself.
fn limit_cpu_of_slice(limits: &EngineLimits) {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let slice = Duration::from_millis(limits.cpu_ms_max);
    let seconds = u64::try_from(used.tv_sec).unwrap_or_default() + slice.as_secs() + 2;
    let maximum = getrlimit(Resource::Cpu).maximum;
    let current = Some(maximum.map_or(seconds, |maximum| maximum.min(seconds)));
    // The server kills a worker that does not answer, too.
    let _ = setrlimit(Resource::Cpu, Rlimit { current, maximum });
}

struct Served {
    limits: EngineLimits,
    programs: HashMap<CodeHash, Arc<ProgramCode>>,
    worker: Worker,
}

fn serve(limits: EngineLimits) -> io::Result<()> {
    let (mut requests, mut responses) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    write_frame(&mut responses, &Response::Ready)?;
    let never = Arc::new(AtomicBool::new(false));
    let worker = Worker::new(limits.clone(), never);
    let mut served = Served { limits, programs: HashMap::new(), worker };
    while let Some(request) = read_frame(&mut requests, REQUEST_BYTES_MAX)? {
        limit_cpu_of_slice(&served.limits);
        let prepares = served.prepares(&request);
        let response = served.respond(request);
        write_frame(&mut responses, &response)?;
        if let Some((program, now_ms)) = prepares {
            limit_cpu_of_slice(&served.limits);
            served.worker.prepare(&program, now_ms);
        }
    }
    Ok(())
}

impl Served {
    /// What to load while nobody waits.
    fn prepares(&self, request: &OwnedRequest) -> Option<(Arc<ProgramCode>, u64)> {
        match request {
            OwnedRequest::Start { start, .. } if start.begins_fresh => {
                Some((self.programs.get(&start.program)?.clone(), start.journal.now_ms()))
            }
            _ => None,
        }
    }

    fn respond(&mut self, request: OwnedRequest) -> Response {
        match request {
            OwnedRequest::Begin(_) => Response::Ready,
            OwnedRequest::Program(program) => {
                self.programs.insert(program.hash, Arc::new(program));
                Response::Step(None)
            }
            OwnedRequest::Forget(hash) => {
                self.programs.remove(&hash);
                Response::Step(None)
            }
            OwnedRequest::Describe { program, now_ms } => Response::Described(self.describe(program, now_ms)),
            OwnedRequest::Start { call, start } => Response::Step(self.start(call, *start)),
            OwnedRequest::Deliver { call, completions } => self.step(call, Input::Deliver(completions)),
            OwnedRequest::Cancel { call } => self.step(call, Input::Cancel),
            OwnedRequest::Discard { call } => self.step(call, Input::Discard),
        }
    }

    fn describe(&self, program: CodeHash, now_ms: u64) -> Result<String, LoadError> {
        let program = self.programs.get(&program).ok_or(LoadError::Waits)?;
        let never = Arc::new(AtomicBool::new(false));
        Sandbox::new(program, &self.limits, now_ms, &never)?.describe()
    }

    fn start(&mut self, call: u64, start: OwnedStart) -> Option<Step> {
        let program = self.programs.get(&start.program)?.clone();
        let start = Start {
            program,
            owner: start.owner,
            begins_fresh: start.begins_fresh,
            // The server has given it a place.
            is_nested: false,
            arguments: start.arguments,
            request: start.request,
            journal: Arc::new(start.journal),
            values: Arc::new(Values { env: start.env, secrets: start.secrets }),
            pace: Arc::new(Pace::new(false)),
            capabilities: capabilities_of_names(&start.capabilities),
        };
        // The worker sends to it only what it returns here as well.
        let (steps, _) = channel(1);
        let message = Message { call, input: Input::Start(Box::new(start)), steps: Some(steps) };
        self.worker.handle(message).map(|(_, step)| step)
    }

    fn step(&mut self, call: u64, input: Input) -> Response {
        let step = self.worker.handle(Message { call, input, steps: None });
        Response::Step(step.map(|(_, step)| step))
    }
}
