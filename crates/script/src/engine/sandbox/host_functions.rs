//! What the host functions of one sandbox know and do: the state of its call, and the functions of the prelude's `host`.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::{Ctx, Exception, Function, Object, TypedArray, Value};
use spile_core::ClientCapabilities;

use super::super::meter::CpuMeter;
use super::super::random::{CallRandom, SeededRandom};
use super::super::{
    End, EngineLimits, IssuedEffect, Limit, Returned, Signal, Step, Thrown, Values, url_parts,
};
use crate::journal::{Completion, EffectJournal, fingerprint};
use crate::results::capability;

/// What the interpreter's error says.
const OUT_OF_MEMORY: &str = "out of memory";
/// A call ends when so many promises were rejected for want of memory and nobody handles them.
const MEMORY_REJECTIONS_MAX: u32 = 16;

/// What the host functions of one sandbox share.
pub(super) struct Shared {
    pub(super) limits: EngineLimits,
    pub(super) meter: CpuMeter,
    pub(super) random: RefCell<CallRandom>,
    pub(super) call: RefCell<CallState>,
    /// Rejected promises without a handler, and what one of them says.
    pub(super) unhandled: Cell<u32>,
    unhandled_reason: RefCell<Option<(String, String)>>,
    pub(super) out_of_memory: Cell<bool>,
    /// Whether the last promise that nobody handled was rejected with `null`.
    has_null_rejection: Cell<bool>,
    /// How many of them were rejected for want of memory. The interpreter throws `null` where not even the error fits.
    memory_rejections: Cell<u32>,
    /// The call is about to do something that may take long, on the thread of its connection.
    pub(super) must_leave: Cell<bool>,
    /// Code has reached for big integers, whose operators cannot be interrupted.
    pub(super) uses_big_integers: Cell<bool>,
}

#[derive(Default)]
pub(super) struct CallState {
    pub(super) now_ms: u64,
    pub(super) started_ms: u64,
    pub(super) replay: Replay,
    pub(super) next_effect: u32,
    /// Effects whose results have not been delivered.
    pub(super) outstanding: HashSet<u32>,
    pub(super) next_read: usize,
    pub(super) signals: u32,
    pub(super) values: Arc<Values>,
    pub(super) capabilities: ClientCapabilities,
    pub(super) step: Step,
}

/// The part of the journal that is still ahead.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) journal: Option<Arc<EffectJournal>>,
    pub(super) completed: HashSet<u32>,
    pub(super) next_completion: usize,
}

impl Shared {
    pub(super) fn new(limits: &EngineLimits, now_ms: u64) -> Self {
        Self {
            limits: limits.clone(),
            meter: CpuMeter::default(),
            random: RefCell::new(CallRandom::Ready(SeededRandom::unpredictable())),
            call: RefCell::new(CallState { now_ms, started_ms: now_ms, ..CallState::default() }),
            unhandled: Cell::new(0),
            unhandled_reason: RefCell::default(),
            out_of_memory: Cell::new(false),
            has_null_rejection: Cell::new(false),
            memory_rejections: Cell::new(0),
            must_leave: Cell::new(false),
            uses_big_integers: Cell::new(false),
        }
    }

    fn with_random<T>(&self, read: impl FnOnce(&SeededRandom) -> T) -> T {
        read(self.random.borrow_mut().get())
    }

    /// The call is about to do something that takes long and cannot be interrupted. `Err` is the text of the error to throw;
    /// what the handler makes of it does not matter.
    fn announce_work(&self) -> Result<(), &'static str> {
        self.leave_if_quick()?;
        // The interpreter asks after thousands of steps, and each of them may be such work.
        if self.meter.must_stop() { Err("the call has no processor time left") } else { Ok(()) }
    }

    fn use_big_integers(&self) -> Result<(), &'static str> {
        self.uses_big_integers.set(true);
        self.leave_if_quick()
    }

    fn leave_if_quick(&self) -> Result<(), &'static str> {
        if !self.meter.counts_polls() {
            return Ok(());
        }
        self.must_leave.set(true);
        Err("the call continues on another thread")
    }

    pub(super) fn track_rejection(&self, reason: &Value<'_>, is_handled: bool) {
        let described = match reason.as_exception() {
            Some(exception) => {
                (exception.message().unwrap_or_default(), exception.stack().unwrap_or_default())
            }
            None => ("a promise was rejected with a value that is not an error".to_owned(), String::new()),
        };
        let for_memory = u32::from(reason.is_null() || described.0.contains(OUT_OF_MEMORY));
        if is_handled {
            self.unhandled.set(self.unhandled.get().saturating_sub(1));
            self.memory_rejections.set(self.memory_rejections.get().saturating_sub(for_memory));
            return;
        }
        self.unhandled.set(self.unhandled.get() + 1);
        self.memory_rejections.set(self.memory_rejections.get() + for_memory);
        self.has_null_rejection.set(reason.is_null());
        *self.unhandled_reason.borrow_mut() = Some(described);
    }

    pub(super) fn unhandled_error(&self) -> Box<Thrown> {
        let (message, stack) = self.unhandled_reason.borrow_mut().take().unwrap_or_default();
        let message = format!("a rejected promise was not handled: {message}");
        Box::new(Thrown { class: "Error".into(), message, stack, is_unhandled: true, ..Thrown::default() })
    }

    /// How a call ends that has nothing left to wait for.
    pub(super) fn end_without_settling(&self) -> End {
        match (self.unhandled.get(), self.has_null_rejection.get()) {
            (0, _) => End::LimitExceeded(Limit::NeverSettles),
            (_, true) => End::LimitExceeded(Limit::MemoryOrNull),
            (_, false) => End::Threw(self.unhandled_error()),
        }
    }

    pub(super) fn see_exception(&self, thrown: &Thrown) {
        if thrown.message.contains(OUT_OF_MEMORY) {
            self.out_of_memory.set(true);
        }
    }

    /// Whether code goes on and on although it runs out of memory each time.
    pub(super) fn ignores_its_memory_limit(&self) -> bool {
        self.memory_rejections.get() > MEMORY_REJECTIONS_MAX
    }

    pub(super) fn reset_rejections(&self) {
        self.unhandled.set(0);
        self.has_null_rejection.set(false);
        self.memory_rejections.set(0);
    }

    pub(super) fn memory_limit(&self) -> Limit {
        if self.has_null_rejection.get() { Limit::MemoryOrNull } else { Limit::Memory }
    }

    /// The next completion of the journal, if the handler has come that far.
    pub(super) fn next_recorded(&self) -> Option<Completion> {
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
        let arguments = well_formed(arguments);
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
        call.outstanding.insert(number);
        if !call.replay.completed.contains(&number) {
            let at_ms = call.now_ms;
            call.step.effects.push(IssuedEffect { number, kind, arguments, fingerprint, at_ms });
        }
        Ok(number)
    }

    fn abandon(&self, number: u32) {
        let mut call = self.call.borrow_mut();
        call.outstanding.remove(&number);
        // Not sent yet: nobody needs to hear of it.
        if !call.replay.completed.contains(&number) {
            call.step.abandoned.push(number);
        }
    }

    fn signal(&self, kind: String, arguments: String) {
        let arguments = well_formed(arguments);
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

    /// The kinds are those of `finish` in the prelude.
    fn finish(&self, kind: u8, text: String) {
        let end = if text.len() > self.limits.result_bytes_max {
            let message = format!("the result exceeds {} bytes", self.limits.result_bytes_max);
            End::Threw(Box::new(Thrown { class: "Error".into(), message, ..Thrown::default() }))
        } else {
            End::Returned(match kind {
                1 => Returned::Text(text),
                2 => Returned::Bytes(text),
                3 => Returned::Nothing,
                _ => Returned::Json(well_formed(text)),
            })
        };
        self.call.borrow_mut().step.end.get_or_insert(end);
    }

    fn fail(&self, description: &str) {
        let thrown: Thrown = serde_json::from_str(&well_formed(description.to_owned()))
            .unwrap_or_else(|_| Thrown { class: "value".into(), ..Thrown::default() });
        let end = match (thrown.class.as_str(), thrown.message.as_str()) {
            ("value", "null") => End::LimitExceeded(Limit::MemoryOrNull),
            ("InternalError", "out of memory") => End::LimitExceeded(Limit::Memory),
            ("InternalError", "stack overflow") | ("RangeError", "Maximum call stack size exceeded") => {
                End::LimitExceeded(Limit::Stack)
            }
            _ => End::Threw(Box::new(thrown)),
        };
        self.call.borrow_mut().step.end.get_or_insert(end);
    }
}

/// Replaces half surrogate pairs in the output of `JSON.stringify`, as `toWellFormed` does: they are not Unicode text, and
/// other parsers reject them.
pub(super) fn well_formed(json: String) -> String {
    if !json.contains("\\ud") {
        return json;
    }
    // `JSON.stringify` writes whole pairs as they are, and escapes only halves; a pair of escapes is left alone.
    let surrogate = |at: usize| -> Option<u16> {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
    };
    let (mut out, mut at, mut copied) = (String::with_capacity(json.len()), 0, 0);
    while let Some(found) = json[at..].find('\\') {
        at += found;
        match (surrogate(at), surrogate(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..)) => at += 12,
            (Some(_), _) => {
                out.push_str(&json[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // An escape has at least one more character, which may be a backslash.
            (None, _) => at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    out.push_str(&json[copied..]);
    out
}

pub(super) fn host_object<'js>(
    ctx: &Ctx<'js>,
    shared: &Rc<Shared>,
    allows_eval: bool,
) -> rquickjs::Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let throw = |ctx: &Ctx<'js>, message: &str| Exception::throw_message(ctx, message);
    host.set("allowsEval", allows_eval)?;
    let own = shared.clone();
    host.set("now", Function::new(ctx.clone(), move || own.call.borrow().now_ms as f64)?)?;
    let own = shared.clone();
    host.set("startedAt", Function::new(ctx.clone(), move || own.call.borrow().started_ms as f64)?)?;
    let own = shared.clone();
    host.set("random", Function::new(ctx.clone(), move || own.with_random(SeededRandom::number))?)?;
    let own = shared.clone();
    let random_bytes = move |ctx: Ctx<'js>, count: usize| {
        TypedArray::<u8>::new_copy(ctx, own.with_random(|random| random.bytes(count.min(1 << 16))))
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
    let has = move |name: String| {
        capability(&name).is_some_and(|capability| own.call.borrow().capabilities.has(capability))
    };
    host.set("hasCapability", Function::new(ctx.clone(), has)?)?;
    let own = shared.clone();
    host.set("finish", Function::new(ctx.clone(), move |kind: u8, text: String| own.finish(kind, text))?)?;
    let own = shared.clone();
    let announce = move |ctx: Ctx<'js>| own.announce_work().map_err(|message| throw(&ctx, message));
    host.set("announceWork", Function::new(ctx.clone(), announce)?)?;
    let own = shared.clone();
    let use_big_integers =
        move |ctx: Ctx<'js>| own.use_big_integers().map_err(|message| throw(&ctx, message));
    host.set("useBigIntegers", Function::new(ctx.clone(), use_big_integers)?)?;
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
    host.set("parseUrl", Function::new(ctx.clone(), url_parts::parse)?)?;
    host.set("setUrlPart", Function::new(ctx.clone(), url_parts::set)?)?;
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::well_formed;

    #[test]
    fn half_pairs_are_replaced_and_nothing_else() {
        for (json, expected) in [
            (r#""plain""#, r#""plain""#),
            (r#"["\\ud800","é"]"#, r#"["\\ud800","é"]"#),
            (r#""a\\\ud800b""#, r#""a\\\ufffdb""#),
            (r#"{"\udfff":"\ud83d\ude00"}"#, r#"{"\ufffd":"\ud83d\ude00"}"#),
            (r#""\ud83d\ud83d\ude00\udbff""#, r#""\ufffd\ud83d\ude00\ufffd""#),
            (r#""\n\ud8""#, r#""\n\ud8""#),
            (r#""😀\udc00é\\""#, r#""😀\ufffdé\\""#),
        ] {
            assert_eq!(well_formed(json.to_owned()), expected, "{json}");
        }
    }
}
