//! Quick calls: on the thread of their connection, without a message to another thread.
//!
//! Only programs whose calls have ended at once so far run here ([`super::pace`]). A call that waits for something, or that
//! asks for more than about a millisecond, is stopped and starts over on a script thread: nothing that it did has left
//! its context. Each thread keeps contexts of its own, because an interpreter stays on its thread.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::meter::thread_cpu_time;
use super::pace::Pace;
use super::sandbox::{QuickCall, Sandbox};
use super::{EngineLimits, ProgramCode, StateOwnerRef, Step};

/// Marks the contexts of one engine. They are worth nothing once it is gone.
#[derive(Debug, Default)]
pub(super) struct EngineMark(Arc<()>);

struct KeptContext {
    engine: Weak<()>,
    sandbox: Sandbox,
}

thread_local! {
    /// The least recently used first.
    static KEPT: RefCell<Vec<KeptContext>> = const { RefCell::new(Vec::new()) };
}

/// Runs the call here. `None` if it must run on a script thread.
pub(super) fn run(
    engine: &EngineMark,
    limits: &EngineLimits,
    program: &Arc<ProgramCode>,
    pace: &Pace,
    owner: StateOwnerRef<'_>,
    call: &QuickCall<'_>,
) -> Option<Step> {
    let mut sandbox = match take(engine, program, owner) {
        Some(sandbox) => sandbox,
        None => load(limits, program, pace, owner, call)?,
    };
    let cpu_before = pace.is_suspected().then(thread_cpu_time);
    let before = Instant::now();
    let step = sandbox.run_quickly(call, before);
    let wall = before.elapsed();
    let Some(step) = step else {
        pace.was_slow();
        return None;
    };
    pace.ran_quickly(wall, cpu_before.map(|before| thread_cpu_time().saturating_sub(before)));
    if step.end.as_ref().is_some_and(|end| sandbox.is_reusable(end)) {
        keep(engine, limits, sandbox);
    }
    Some(step)
}

fn take(engine: &EngineMark, program: &ProgramCode, owner: StateOwnerRef<'_>) -> Option<Sandbox> {
    KEPT.with_borrow_mut(|kept| {
        let at = kept.iter().rposition(|one| {
            one.sandbox.program.hash == program.hash
                && one.sandbox.owner.as_ref().is_some_and(|known| owner.is(known))
                && std::ptr::eq(one.engine.as_ptr(), Arc::as_ptr(&engine.0))
        })?;
        Some(kept.remove(at).sandbox)
    })
}

fn load(
    limits: &EngineLimits,
    program: &Arc<ProgramCode>,
    pace: &Pace,
    owner: StateOwnerRef<'_>,
    call: &QuickCall<'_>,
) -> Option<Sandbox> {
    let never = Arc::new(AtomicBool::new(false));
    // Its modules were loaded on a script thread before; if they fail now, that is the place to say so.
    let mut sandbox = Sandbox::new(program, limits, call.platform.now_ms(), &never).ok()?;
    pace.loaded(sandbox.loaded_in, sandbox.has_big_integers, limits);
    if sandbox.has_big_integers {
        return None;
    }
    sandbox.owner = Some(owner.to_owner());
    Some(sandbox)
}

fn keep(engine: &EngineMark, limits: &EngineLimits, sandbox: Sandbox) {
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= limits.idle_contexts_max {
            kept.retain(|one| one.engine.strong_count() > 0);
        }
        if kept.len() >= limits.idle_contexts_max && !kept.is_empty() {
            kept.remove(0);
        }
        if limits.idle_contexts_max > 0 {
            kept.push(KeptContext { engine: Arc::downgrade(&engine.0), sandbox });
        }
    });
}
