//! One QuickJS runtime with one program loaded. Runs one call at a time, on the thread that made it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rquickjs::context::EvalOptions;
use rquickjs::context::intrinsic::{
    DOMException, Date, Eval, Json, MapSet, Promise as PromiseIntrinsic, Proxy, RegExp, RegExpCompiler,
    TypedArrays,
};
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, Error, Exception, Function, Module, Object, Persistent,
    Promise, Runtime, TypedArray, Value,
};

use super::meter::CpuMeter;
use super::prelude;
use super::random::SeededRandom;
use super::{
    End, EngineLimits, IssuedEffect, Limit, ProgramCode, Returned, Signal, Start, StateOwner, Step, Thrown,
    Values,
};
use crate::journal::{Completion, EffectJournal, fingerprint};

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

pub(super) struct Sandbox {
    // The functions must be dropped before their runtime.
    entry_points: Option<EntryPoints>,
    context: Context,
    runtime: Runtime,
    shared: Rc<Shared>,
    pub(super) program: Arc<ProgramCode>,
    /// Whose calls it served; `None` if it is only loaded.
    pub(super) owner: Option<StateOwner>,
}

struct EntryPoints {
    describe: Persistent<Function<'static>>,
    start: Persistent<Function<'static>>,
    deliver: Persistent<Function<'static>>,
    cancel: Persistent<Function<'static>>,
}

/// What the host functions of one sandbox share.
struct Shared {
    limits: EngineLimits,
    meter: CpuMeter,
    random: RefCell<SeededRandom>,
    call: RefCell<CallState>,
    /// Rejected promises without a handler, and what one of them says.
    unhandled: Cell<u32>,
    unhandled_reason: RefCell<Option<(String, String)>>,
    out_of_memory: Cell<bool>,
}

#[derive(Default)]
struct CallState {
    now_ms: u64,
    started_ms: u64,
    replay: Replay,
    next_effect: u32,
    next_read: usize,
    signals: u32,
    values: Arc<Values>,
    capabilities: Arc<[&'static str]>,
    step: Step,
}

/// The part of the journal that is still ahead.
#[derive(Default)]
struct Replay {
    journal: Option<Arc<EffectJournal>>,
    completed: HashSet<u32>,
    next_completion: usize,
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
        let shared = Rc::new(Shared {
            limits: limits.clone(),
            meter: CpuMeter::default(),
            random: RefCell::new(SeededRandom::unpredictable()),
            call: RefCell::new(CallState { now_ms, started_ms: now_ms, ..CallState::default() }),
            unhandled: Cell::new(0),
            unhandled_reason: RefCell::default(),
            out_of_memory: Cell::new(false),
        });
        let (metered, stop) = (shared.clone(), stop.clone());
        let must_stop = move || metered.meter.must_stop() || stop.load(Ordering::Relaxed);
        runtime.set_interrupt_handler(Some(Box::new(must_stop)));
        let tracker = shared.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_, _, reason, is_handled| {
            tracker.track_rejection(&reason, is_handled);
        })));
        runtime.set_loader(ProgramResolver(program.clone()), ProgramLoader(program.clone()));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(broken)?;
        let mut sandbox =
            Self { entry_points: None, context, runtime, shared, program: program.clone(), owner: None };
        sandbox.load()?;
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
            Err(LoadError::LimitExceeded(Limit::Memory))
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
        let shared = &self.shared;
        shared.meter.reset(Duration::from_millis(shared.limits.cpu_ms_max));
        *shared.random.borrow_mut() = SeededRandom::new(&start.journal.seed);
        shared.unhandled.set(0);
        shared.out_of_memory.set(false);
        *shared.call.borrow_mut() = CallState {
            now_ms: start.journal.started_ms,
            started_ms: start.journal.started_ms,
            replay: Replay {
                completed: start.journal.completions.iter().map(|completion| completion.effect).collect(),
                journal: Some(start.journal.clone()),
                next_completion: 0,
            },
            values: start.values.clone(),
            capabilities: start.capabilities.clone(),
            ..CallState::default()
        };
        self.slice(|ctx, entry_points| {
            let run = entry_points.start.clone().restore(ctx)?;
            run.call::<_, ()>((start.arguments.as_str(), start.request.as_str()))
        });
        while !self.has_ended() {
            let Some(completion) = shared.next_recorded() else { break };
            self.deliver_one(&completion);
        }
        self.take_step()
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
        self.slice(|ctx, entry_points| entry_points.cancel.clone().restore(ctx)?.call::<_, ()>(()));
    }

    fn deliver_one(&self, completion: &Completion) {
        self.shared.call.borrow_mut().now_ms = completion.at_ms;
        let (is_ok, json) = match &completion.result {
            Ok(json) => (true, json.clone()),
            Err(failure) => (false, serde_json::to_string(failure).unwrap_or_default()),
        };
        self.slice(|ctx, entry_points| {
            entry_points.deliver.clone().restore(ctx)?.call::<_, ()>((completion.effect, is_ok, json))
        });
    }

    /// Runs author code until it has nothing more to do.
    fn slice(&self, run: impl for<'js> FnOnce(&Ctx<'js>, &EntryPoints) -> rquickjs::Result<()>) {
        let Some(entry_points) = &self.entry_points else { return };
        self.shared.meter.begin_slice();
        let thrown =
            self.context.with(|ctx| run(&ctx, entry_points).catch(&ctx).err().map(|error| thrown_of(&error)));
        if let Some(thrown) = thrown {
            self.shared.see_exception(&thrown);
            // Only the callback of a timer throws where nobody can catch it.
            let thrown = Box::new(Thrown { is_unhandled: true, ..*thrown });
            self.shared.call.borrow_mut().step.end.get_or_insert(End::Threw(thrown));
        }
        self.drain();
        self.shared.meter.end_slice();
    }

    fn drain(&self) {
        while self.runtime.is_job_pending() && !self.shared.meter.is_exceeded() {
            if let Err(job) = self.runtime.execute_pending_job() {
                let thrown = job.0.with(|ctx| {
                    let value = ctx.catch();
                    value.as_exception().map(|exception| Thrown {
                        message: exception.message().unwrap_or_default(),
                        ..Thrown::default()
                    })
                });
                if let Some(thrown) = thrown {
                    self.shared.see_exception(&thrown);
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        let is_over = self.shared.meter.is_exceeded() || self.shared.out_of_memory.get();
        is_over || self.shared.call.borrow().step.end.is_some()
    }

    fn take_step(&self) -> Step {
        let shared = &self.shared;
        let mut step = std::mem::take(&mut shared.call.borrow_mut().step);
        if shared.meter.is_exceeded() {
            step.end = Some(End::LimitExceeded(Limit::Cpu));
        } else if shared.out_of_memory.get() {
            step.end = Some(End::LimitExceeded(Limit::Memory));
        } else if matches!(step.end, Some(End::Returned(_))) && shared.unhandled.get() > 0 {
            step.end = Some(End::Threw(shared.unhandled_error()));
        }
        step
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

impl Shared {
    fn track_rejection(&self, reason: &Value<'_>, is_handled: bool) {
        if is_handled {
            self.unhandled.set(self.unhandled.get().saturating_sub(1));
            return;
        }
        self.unhandled.set(self.unhandled.get() + 1);
        let described = match reason.as_exception() {
            Some(exception) => {
                (exception.message().unwrap_or_default(), exception.stack().unwrap_or_default())
            }
            None => ("a promise was rejected with a value that is not an error".to_owned(), String::new()),
        };
        *self.unhandled_reason.borrow_mut() = Some(described);
    }

    fn unhandled_error(&self) -> Box<Thrown> {
        let (message, stack) = self.unhandled_reason.borrow_mut().take().unwrap_or_default();
        let message = format!("a rejected promise was not handled: {message}");
        Box::new(Thrown { class: "Error".into(), message, stack, is_unhandled: true, ..Thrown::default() })
    }

    fn see_exception(&self, thrown: &Thrown) {
        if thrown.message.contains("out of memory") {
            self.out_of_memory.set(true);
        }
    }

    /// The next completion of the journal, if the handler has come that far.
    fn next_recorded(&self) -> Option<Completion> {
        let mut call = self.call.borrow_mut();
        let issued = call.next_effect;
        let replay = &mut call.replay;
        let completion = replay.journal.as_ref()?.completions.get(replay.next_completion)?.clone();
        if completion.effect >= issued {
            let reason = "it did not reach an effect that it had started before".to_owned();
            call.step.end.get_or_insert(End::Diverged(reason));
            return None;
        }
        replay.next_completion += 1;
        Some(completion)
    }

    fn issue(&self, kind: String, arguments: String) -> Result<u32, String> {
        let mut call = self.call.borrow_mut();
        let number = call.next_effect;
        if number as usize >= self.limits.effects_max {
            return Err(format!("the call has too many effects; the limit is {}", self.limits.effects_max));
        }
        let fingerprint = fingerprint(&kind, &arguments);
        let recorded = call.replay.journal.as_ref().and_then(|journal| journal.issued.get(number as usize));
        if recorded.is_some_and(|recorded| *recorded != fingerprint) {
            let reason = format!("its effect {} is now another one (`{kind}`)", number + 1);
            call.step.end.get_or_insert(End::Diverged(reason));
            return Err("the call cannot be continued".into());
        }
        call.next_effect += 1;
        if !call.replay.completed.contains(&number) {
            let at_ms = call.now_ms;
            call.step.effects.push(IssuedEffect { number, kind, arguments, fingerprint, at_ms });
        }
        Ok(number)
    }

    fn abandon(&self, number: u32) {
        let mut call = self.call.borrow_mut();
        // Not sent yet: nobody needs to hear of it.
        if !call.replay.completed.contains(&number) {
            call.step.abandoned.push(number);
        }
    }

    fn signal(&self, kind: String, arguments: String) {
        let mut call = self.call.borrow_mut();
        call.signals = call.signals.saturating_add(1);
        let sent = call.replay.journal.as_ref().map_or(0, |journal| journal.signals);
        if call.signals > sent && call.signals <= self.limits.signals_max {
            call.step.signals.push(Signal { kind, arguments });
        }
    }

    /// `Err` is the text of the error to throw.
    fn read(&self, kind: &str, name: &str) -> Result<Option<String>, String> {
        let mut call = self.call.borrow_mut();
        let (values, what, key) = match kind {
            "secret" => (&call.values.secrets, "secret", "secrets"),
            _ => (&call.values.env, "environment variable", "env"),
        };
        let Some(value) = values.get(name).cloned() else {
            return Err(format!("the {what} `{name}` is not declared in `permissions.{key}`"));
        };
        if kind == "secret" {
            return value.map(Some).ok_or_else(|| format!("the secret `{name}` is not set"));
        }
        let recorded =
            call.replay.journal.as_ref().and_then(|journal| journal.reads.get(call.next_read)).cloned();
        call.next_read += 1;
        Ok(match recorded {
            Some(recorded) => recorded,
            None => {
                call.step.reads.push(value.clone());
                value
            }
        })
    }

    fn finish(&self, kind: &str, text: String) {
        let end = if text.len() > self.limits.result_bytes_max {
            let message = format!("the result exceeds {} bytes", self.limits.result_bytes_max);
            End::Threw(Box::new(Thrown { class: "Error".into(), message, ..Thrown::default() }))
        } else {
            End::Returned(match kind {
                "nothing" => Returned::Nothing,
                "text" => Returned::Text(text),
                "bytes" => Returned::Bytes(text),
                _ => Returned::Json(text),
            })
        };
        self.call.borrow_mut().step.end.get_or_insert(end);
    }

    fn fail(&self, description: &str) {
        let thrown: Thrown = serde_json::from_str(description)
            .unwrap_or_else(|_| Thrown { class: "value".into(), ..Thrown::default() });
        let end = match (thrown.class.as_str(), thrown.message.as_str()) {
            ("InternalError", "out of memory") => End::LimitExceeded(Limit::Memory),
            ("InternalError", "stack overflow") | ("RangeError", "Maximum call stack size exceeded") => {
                End::LimitExceeded(Limit::Stack)
            }
            _ => End::Threw(Box::new(thrown)),
        };
        self.call.borrow_mut().step.end.get_or_insert(end);
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
            deliver: function("deliver")?,
            cancel: function("cancel")?,
        };
        Ok((entry_points, function("register")?))
    };
    load().catch(ctx).map_err(|error: CaughtError<'_>| thrown_of(&error))
}

fn host_object<'js>(ctx: &Ctx<'js>, shared: &Rc<Shared>, allows_eval: bool) -> rquickjs::Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let throw = |ctx: &Ctx<'js>, message: &str| Exception::throw_message(ctx, message);
    host.set("allowsEval", allows_eval)?;
    let own = shared.clone();
    host.set("now", Function::new(ctx.clone(), move || own.call.borrow().now_ms as f64)?)?;
    let own = shared.clone();
    host.set("startedAt", Function::new(ctx.clone(), move || own.call.borrow().started_ms as f64)?)?;
    let own = shared.clone();
    host.set("random", Function::new(ctx.clone(), move || own.random.borrow().number())?)?;
    let own = shared.clone();
    let random_bytes = move |ctx: Ctx<'js>, count: usize| {
        TypedArray::<u8>::new_copy(ctx, own.random.borrow().bytes(count.min(1 << 16)))
    };
    host.set("randomBytes", Function::new(ctx.clone(), random_bytes)?)?;
    let own = shared.clone();
    let issue = move |ctx: Ctx<'js>, kind: String, arguments: String| {
        own.issue(kind, arguments).map_err(|message| throw(&ctx, &message))
    };
    host.set("issue", Function::new(ctx.clone(), issue)?)?;
    let own = shared.clone();
    host.set("abandon", Function::new(ctx.clone(), move |number: u32| own.abandon(number))?)?;
    let own = shared.clone();
    let signal = move |kind: String, arguments: String| own.signal(kind, arguments);
    host.set("signal", Function::new(ctx.clone(), signal)?)?;
    let own = shared.clone();
    let read = move |ctx: Ctx<'js>, kind: String, name: String| {
        own.read(&kind, &name).map_err(|message| throw(&ctx, &message))
    };
    host.set("read", Function::new(ctx.clone(), read)?)?;
    let own = shared.clone();
    let has = move |name: String| own.call.borrow().capabilities.contains(&name.as_str());
    host.set("hasCapability", Function::new(ctx.clone(), has)?)?;
    let own = shared.clone();
    host.set(
        "finish",
        Function::new(ctx.clone(), move |kind: String, text: String| own.finish(&kind, text))?,
    )?;
    let own = shared.clone();
    host.set("fail", Function::new(ctx.clone(), move |description: String| own.fail(&description))?)?;
    // A copy counts towards the memory of the call.
    let encode = |ctx: Ctx<'js>, text: String| TypedArray::<u8>::new_copy(ctx, text.into_bytes());
    host.set("encodeUtf8", Function::new(ctx.clone(), encode)?)?;
    // Bytes come as the characters of a text: reading a typed array in place would be unsafe.
    let decode = |latin1: String, is_fatal: bool| {
        let bytes: Vec<u8> = latin1.chars().map(|char| char as u8).collect();
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) if is_fatal => None,
            Err(error) => Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        }
    };
    host.set("decodeUtf8", Function::new(ctx.clone(), decode)?)?;
    host.set("parseUrl", Function::new(ctx.clone(), super::url_parts::parse)?)?;
    host.set("setUrlPart", Function::new(ctx.clone(), super::url_parts::set)?)?;
    Ok(host)
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
