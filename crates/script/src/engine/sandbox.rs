//! One QuickJS runtime with one program loaded. Runs one call at a time, on the thread that made it.

mod host_functions;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::context::intrinsic::{
    DOMException, Date, Eval, Json, MapSet, Promise as PromiseIntrinsic, Proxy, RegExp, RegExpCompiler,
    TypedArrays,
};
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, Error, Function, Module, Object, Persistent, Promise, Runtime,
    Value,
};
use spile_core::{ClientCapabilities, Platform};

use self::host_functions::{CallState, Replay, Shared, host_object};
use super::pace::HELD_MAX;
use super::prelude;
use super::random::CallRandom;
use super::{End, EngineLimits, Limit, ProgramCode, Start, StateOwner, Step, Thrown, Values};
use crate::journal::Completion;

/// Without `WeakRef` and `Performance`: both would show what the machine does. `Eval` is needed to compile
/// modules; the prelude takes `eval` and the constructors of functions away.
type Intrinsics =
    (Date, Eval, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, PromiseIntrinsic, DOMException);

/// Why a program could not be loaded, or what its call ended with.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum LoadError {
    Threw(Box<Thrown>),
    LimitExceeded(Limit),
    /// The context file does not export what it must.
    BadContext(String),
    /// It waits at its top level for something that cannot happen there.
    Waits,
    /// There is no process to load it in.
    NoProcess(String),
}

/// A call that is likely to end at once. Its randomness is needed only if it asks for it.
pub(crate) struct QuickCall<'a> {
    pub(crate) arguments: &'a str,
    pub(crate) request: &'a str,
    pub(crate) platform: &'a Arc<dyn Platform>,
    pub(crate) values: &'a Arc<Values>,
    pub(crate) capabilities: ClientCapabilities,
}

/// How often the interpreter may ask, each time after 10,000 jumps and calls, while it runs a quick call: a
/// millisecond, about.
const QUICK_POLLS_MAX: u32 = 4;

pub(super) struct Sandbox {
    // The functions must be dropped before their runtime.
    entry_points: Option<EntryPoints>,
    context: Context,
    runtime: Runtime,
    shared: Rc<Shared>,
    pub(super) program: Arc<ProgramCode>,
    /// Whose calls it served; `None` if it is only loaded.
    pub(super) owner: Option<StateOwner>,
    /// The processor time of loading it.
    pub(super) loaded_in: Duration,
    /// Whether its modules may have big integers.
    pub(super) has_big_integers: bool,
}

struct EntryPoints {
    describe: Persistent<Function<'static>>,
    start: Persistent<Function<'static>>,
    settle: Persistent<Function<'static>>,
    deliver: Persistent<Function<'static>>,
    cancel: Persistent<Function<'static>>,
}

struct ProgramResolver(Arc<ProgramCode>);

impl Resolver for ProgramResolver {
    fn resolve<'js>(
        &mut self,
        _: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        if name == prelude::COMMON_JS_ID && self.0.is_generated(base) {
            return Ok(name.to_owned());
        }
        let resolved = self.0.resolve(base, name).map(ToOwned::to_owned);
        resolved.ok_or_else(|| Error::new_resolving_message(base, name, "it was not bundled"))
    }
}

struct ProgramLoader(Arc<ProgramCode>);

impl Loader for ProgramLoader {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, Declared>> {
        let code = match self.0.modules.get(name) {
            Some(code) => &**code,
            None if name == prelude::COMMON_JS_ID => prelude::COMMON_JS,
            None => return Err(Error::new_loading(name)),
        };
        Module::declare(ctx.clone(), name, code)
    }
}

impl Sandbox {
    /// Loads a program: runs the top level of its modules, without effects.
    ///
    /// `stop` ends whatever runs when it is set.
    pub(super) fn new(
        program: &Arc<ProgramCode>,
        limits: &EngineLimits,
        now_ms: u64,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let broken = |error: Error| {
            LoadError::Threw(Box::new(Thrown { message: error.to_string(), ..Thrown::default() }))
        };
        let runtime = Runtime::new().map_err(broken)?;
        runtime.set_memory_limit(limits.memory_bytes_max);
        runtime.set_max_stack_size(limits.stack_bytes_max);
        let shared = Rc::new(Shared::new(limits, now_ms));
        let (metered, stop) = (shared.clone(), stop.clone());
        let must_stop =
            move || metered.meter.must_stop() || metered.must_leave.get() || stop.load(Ordering::Relaxed);
        runtime.set_interrupt_handler(Some(Box::new(must_stop)));
        let tracker = shared.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_, _, reason, is_handled| {
            tracker.track_rejection(&reason, is_handled);
        })));
        runtime.set_loader(ProgramResolver(program.clone()), ProgramLoader(program.clone()));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(broken)?;
        let mut sandbox = Self {
            entry_points: None,
            context,
            runtime,
            shared,
            program: program.clone(),
            owner: None,
            loaded_in: Duration::ZERO,
            has_big_integers: false,
        };
        sandbox.load()?;
        sandbox.loaded_in = sandbox.cpu_used();
        sandbox.has_big_integers = sandbox.shared.uses_big_integers.get();
        Ok(sandbox)
    }

    fn load(&mut self) -> Result<(), LoadError> {
        let (program, shared) = (self.program.clone(), self.shared.clone());
        shared.meter.reset(Duration::from_millis(shared.limits.cpu_ms_max));
        shared.meter.begin_slice();
        let entry_points = self.context.with(|ctx| load_prelude(&ctx, &shared, program.allows_eval));
        let result = match entry_points {
            Err(thrown) => Err(LoadError::Threw(thrown)),
            Ok((entry_points, register)) => {
                self.entry_points = Some(entry_points);
                self.load_modules(&program, &register)
            }
        };
        shared.meter.end_slice();
        let result = if shared.meter.is_exceeded() {
            Err(LoadError::LimitExceeded(Limit::Cpu))
        } else if shared.out_of_memory.get() {
            Err(LoadError::LimitExceeded(shared.memory_limit()))
        } else {
            result
        };
        if shared.unhandled.replace(0) > 0 && result.is_ok() {
            return Err(LoadError::Threw(shared.unhandled_error()));
        }
        result
    }

    fn load_modules(
        &self,
        program: &ProgramCode,
        register: &Persistent<Function<'static>>,
    ) -> Result<(), LoadError> {
        let mut modules = Vec::new();
        for id in [Some(&program.entry), program.context.as_ref()].into_iter().flatten() {
            let promise = self.context.with(|ctx| {
                let promise =
                    Module::import(&ctx, id.as_str()).catch(&ctx).map_err(|error| thrown_of(&error))?;
                Ok(Persistent::save(&ctx, promise))
            });
            let promise: Persistent<Promise<'static>> = promise.map_err(LoadError::Threw)?;
            self.drain();
            modules.push(self.context.with(|ctx| {
                let restored =
                    promise.restore(&ctx).catch(&ctx).map_err(|error| LoadError::Threw(thrown_of(&error)))?;
                match restored.state() {
                    PromiseState::Pending => Err(LoadError::Waits),
                    PromiseState::Resolved | PromiseState::Rejected => {
                        let module = restored.result::<Object<'_>>().unwrap_or(Err(Error::Unknown));
                        let module =
                            module.catch(&ctx).map_err(|error| LoadError::Threw(thrown_of(&error)))?;
                        Ok(Persistent::save(&ctx, module))
                    }
                }
            })?);
        }
        self.context.with(|ctx| {
            let call = || {
                let register = register.clone().restore(&ctx)?;
                let mut modules = modules.into_iter();
                let mut next = || modules.next().map(|module| module.restore(&ctx)).transpose();
                register.call::<_, ()>((
                    next()?,
                    next()?.map_or_else(|| Value::new_undefined(ctx.clone()), Object::into_value),
                ))
            };
            // The only thing that it checks is the context file.
            call().catch(&ctx).map_err(|error| LoadError::BadContext(thrown_of(&error).message))
        })
    }

    /// The tool's schema and metadata, as JSON text.
    pub(super) fn describe(&self) -> Result<String, LoadError> {
        let Some(entry_points) = &self.entry_points else { return Err(LoadError::Waits) };
        let shared = &self.shared;
        shared.meter.reset(Duration::from_millis(shared.limits.cpu_ms_max));
        shared.meter.begin_slice();
        let described = self.context.with(|ctx| {
            let describe = || entry_points.describe.clone().restore(&ctx)?.call::<_, String>(());
            describe().catch(&ctx).map_err(|error| thrown_of(&error))
        });
        shared.meter.end_slice();
        if shared.meter.is_exceeded() {
            return Err(LoadError::LimitExceeded(Limit::Cpu));
        }
        described.map_err(LoadError::Threw)
    }

    /// Begins a call, and replays it to the end of its journal.
    pub(super) fn start(&mut self, start: &Start) -> Step {
        self.shared.meter.reset(Duration::from_millis(self.shared.limits.cpu_ms_max));
        self.begin(
            CallRandom::Seed(start.journal.seed),
            CallState {
                now_ms: start.journal.started_ms,
                started_ms: start.journal.started_ms,
                replay: Replay {
                    completed: start.journal.completions.iter().map(|completion| completion.effect).collect(),
                    journal: Some(start.journal.clone()),
                    next_completion: 0,
                },
                values: start.values.clone(),
                capabilities: start.capabilities,
                ..CallState::default()
            },
        );
        self.run(&start.arguments, &start.request);
        while !self.has_ended() {
            let Some(completion) = self.shared.next_recorded() else { break };
            self.deliver_one(&completion);
        }
        self.take_step()
    }

    /// Runs a call that is likely to end at once. `None` if it does not, or works for too long: then it must start over
    /// elsewhere, and this context with what the call did to it must be dropped.
    pub(super) fn run_quickly(&mut self, call: &QuickCall<'_>, begin: Instant) -> Option<Step> {
        let shared = &self.shared;
        shared.meter.reset_to_polls(QUICK_POLLS_MAX, begin + HELD_MAX);
        shared.must_leave.set(false);
        let now_ms = call.platform.now_ms();
        self.begin(
            CallRandom::Platform(call.platform.clone()),
            CallState {
                now_ms,
                started_ms: now_ms,
                values: call.values.clone(),
                capabilities: call.capabilities,
                ..CallState::default()
            },
        );
        self.run(call.arguments, call.request);
        let step = self.take_step();
        (step.end.is_some() && !shared.meter.is_exceeded() && !shared.must_leave.get()).then_some(step)
    }

    fn begin(&self, random: CallRandom, state: CallState) {
        let shared = &self.shared;
        *shared.random.borrow_mut() = random;
        shared.reset_rejections();
        shared.out_of_memory.set(false);
        *shared.call.borrow_mut() = state;
    }

    fn run(&self, arguments: &str, request: &str) {
        self.slice(|ctx, entry_points| {
            entry_points.start.clone().restore(ctx)?.call::<_, bool>((arguments, request))
        });
    }

    /// Delivers results of effects, each with everything that follows from it before the next.
    pub(super) fn deliver(&mut self, completions: &[Completion]) -> Step {
        for completion in completions {
            if self.has_ended() {
                break;
            }
            self.deliver_one(completion);
        }
        self.take_step()
    }

    /// Tells the handler that its caller is gone.
    pub(super) fn cancel(&mut self) {
        self.slice(|ctx, entry_points| {
            entry_points.cancel.clone().restore(ctx)?.call::<_, ()>(()).map(|()| false)
        });
    }

    fn deliver_one(&self, completion: &Completion) {
        {
            let mut call = self.shared.call.borrow_mut();
            call.now_ms = completion.at_ms;
            call.outstanding.remove(&completion.effect);
        }
        let (is_ok, json) = match &completion.result {
            Ok(json) => (true, json.clone()),
            Err(failure) => (false, serde_json::to_string(failure).unwrap_or_default()),
        };
        self.slice(|ctx, entry_points| {
            let deliver = entry_points.deliver.clone().restore(ctx)?;
            deliver.call::<_, ()>((completion.effect, is_ok, json)).map(|()| false)
        });
    }

    /// Runs author code until it has nothing more to do. `run` returns whether the handler has ended.
    fn slice(&self, run: impl for<'js> FnOnce(&Ctx<'js>, &EntryPoints) -> rquickjs::Result<bool>) {
        let Some(entry_points) = &self.entry_points else { return };
        self.shared.meter.begin_slice();
        let has_ended = self.enter(|ctx| run(ctx, entry_points));
        self.drain();
        if has_ended && !self.has_ended() {
            self.enter(|ctx| entry_points.settle.clone().restore(ctx)?.call::<_, ()>(()).map(|()| true));
        }
        self.shared.meter.end_slice();
    }

    fn enter(&self, run: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<bool>) -> bool {
        let result = self.context.with(|ctx| run(&ctx).catch(&ctx).map_err(|error| thrown_of(&error)));
        result.unwrap_or_else(|thrown| {
            self.shared.see_exception(&thrown);
            // Only the callback of a timer throws where nobody can catch it.
            let thrown = Box::new(Thrown { is_unhandled: true, ..*thrown });
            self.shared.call.borrow_mut().step.end.get_or_insert(End::Threw(thrown));
            false
        })
    }

    fn drain(&self) {
        while self.runtime.is_job_pending() && !self.shared.meter.is_exceeded() {
            if let Err(job) = self.runtime.execute_pending_job() {
                let thrown = job.0.with(|ctx| {
                    let value = ctx.catch();
                    // A job settles its promise with what the handler throws; this is the interpreter's own.
                    self.shared.out_of_memory.set(self.shared.out_of_memory.get() || value.is_null());
                    value.as_exception().map(|exception| Thrown {
                        message: exception.message().unwrap_or_default(),
                        ..Thrown::default()
                    })
                });
                if let Some(thrown) = thrown {
                    self.shared.see_exception(&thrown);
                }
            }
            if self.shared.ignores_its_memory_limit() {
                self.shared.out_of_memory.set(true);
                break;
            }
        }
    }

    fn has_ended(&self) -> bool {
        let is_over = self.shared.meter.is_exceeded() || self.shared.out_of_memory.get();
        is_over || self.shared.call.borrow().step.end.is_some()
    }

    fn take_step(&self) -> Step {
        let shared = &self.shared;
        let (mut step, waits) = {
            let mut call = shared.call.borrow_mut();
            (std::mem::take(&mut call.step), !call.outstanding.is_empty())
        };
        if shared.meter.is_exceeded() {
            step.end = Some(End::LimitExceeded(Limit::Cpu));
        } else if shared.out_of_memory.get() {
            step.end = Some(End::LimitExceeded(shared.memory_limit()));
        } else if matches!(step.end, Some(End::Returned(_))) && shared.unhandled.get() > 0 {
            step.end = Some(End::Threw(shared.unhandled_error()));
        } else if step.end.is_none() && !waits {
            step.end = Some(shared.end_without_settling());
        }
        step
    }

    /// The processor time of the call that runs or ran here.
    pub(super) fn cpu_used(&self) -> Duration {
        self.shared.meter.used()
    }

    /// Whether the context can serve another call after this end.
    pub(super) fn is_reusable(&self, end: &End) -> bool {
        let ended_well = match end {
            End::Returned(_) => true,
            End::Threw(thrown) => !thrown.is_unhandled && thrown.class != "InternalError",
            End::LimitExceeded(_) | End::Diverged(_) | End::Lost | End::Crashed(_) => false,
        };
        // What is left in the queue belongs to the call that ended.
        ended_well && !self.runtime.is_job_pending() && self.shared.unhandled.get() == 0
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.entry_points = None;
    }
}

/// Runs the prelude with the host functions. Returns what the host calls, and what takes the modules.
fn load_prelude(
    ctx: &Ctx<'_>,
    shared: &Rc<Shared>,
    allows_eval: bool,
) -> Result<(EntryPoints, Persistent<Function<'static>>), Box<Thrown>> {
    let load = || {
        let mut options = EvalOptions::default();
        options.filename = Some("spile:prelude".into());
        let prelude: Function<'_> = ctx.eval_with_options(prelude::SOURCE, options)?;
        let api: Object<'_> = prelude.call((host_object(ctx, shared, allows_eval)?,))?;
        let function = |name: &str| -> rquickjs::Result<_> {
            Ok(Persistent::save(ctx, api.get::<_, Function<'_>>(name)?))
        };
        let entry_points = EntryPoints {
            describe: function("describe")?,
            start: function("start")?,
            settle: function("settle")?,
            deliver: function("deliver")?,
            cancel: function("cancel")?,
        };
        Ok((entry_points, function("register")?))
    };
    load().catch(ctx).map_err(|error: CaughtError<'_>| thrown_of(&error))
}

fn thrown_of(error: &CaughtError<'_>) -> Box<Thrown> {
    Box::new(match error {
        CaughtError::Exception(exception) => {
            let class = exception.as_object().get::<_, String>("name").unwrap_or_else(|_| "Error".into());
            let message = exception.message().unwrap_or_default();
            Thrown { class, message, stack: exception.stack().unwrap_or_default(), ..Thrown::default() }
        }
        CaughtError::Value(_) => Thrown {
            class: "value".into(),
            message: "a value that is not an error was thrown".into(),
            ..Thrown::default()
        },
        CaughtError::Error(error) => {
            Thrown { class: "Error".into(), message: error.to_string(), ..Thrown::default() }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::Pace;
    use crate::journal::EffectJournal;

    #[test]
    fn a_cancelled_call_runs_its_abort_listeners() {
        let code = "export default async (args, ctx) => {
            ctx.signal.addEventListener('abort', () => ctx.log('info', `${ctx.signal.reason.name} ${ctx.signal.aborted}`));
            ctx.log('info', `${ctx.signal.aborted}`);
            await ctx.sleep(60000);
        };";
        let id = || "t.js".to_owned();
        let program = Arc::new(ProgramCode {
            entry: id(),
            context: None,
            hash: [1; 32],
            allows_eval: false,
            modules: [(id(), Arc::from(code))].into(),
            links: [(id(), BTreeMap::new())].into(),
        });
        let sandbox = Sandbox::new(&program, &EngineLimits::default(), 0, &Arc::default());
        let mut sandbox = sandbox.unwrap_or_else(|error| panic!("{error:?}"));
        let step = sandbox.start(&Start {
            program,
            owner: StateOwner::Anonymous,
            begins_fresh: true,
            is_nested: false,
            arguments: "{}".into(),
            request: "{}".into(),
            journal: Arc::new(EffectJournal::new([1; 32], 0, [0; 32], String::new())),
            values: Arc::default(),
            pace: Arc::new(Pace::new(true)),
            capabilities: ClientCapabilities::default(),
        });
        let said = |step: &Step| step.signals.iter().map(|one| one.arguments.clone()).collect::<String>();
        assert!(step.end.is_none() && said(&step).contains("false"), "{step:?}");
        sandbox.cancel();
        let step = sandbox.take_step();
        assert!(said(&step).contains("AbortError true"), "{step:?}");
    }
}
