//! Which thread runs a call, and what happens to a thread that does not come back.
//!
//! A few built-ins of the interpreter cannot be interrupted. A watchdog looks at threads that are inside
//! author code. One that overstays is given up: its call ends with an error, the other calls on it are told
//! to replay elsewhere, and a new thread takes its place. The old one ends by itself when the built-in
//! returns.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::meter::CpuClock;
use super::pace::Pace;
use super::process::{Isolation, ProcessHandle, RemoteWorker};
use super::quick::{self, EngineMark};
use super::runner::Runner;
use super::sandbox::QuickCall;
use super::worker::{CallNumber, Message, STACK_HEADROOM_BYTES, Worker};
use super::{End, EngineLimits, Input, Limit, ProgramCode, Start, StateOwner, StateOwnerRef, Step};
use crate::journal::Completion;

/// A pool of interpreter threads. It starts none before the first call.
pub struct Engine {
    shared: Arc<Shared>,
    mark: EngineMark,
}

struct Shared {
    limits: EngineLimits,
    isolation: Isolation,
    /// When the processes of the last minute were started.
    process_starts: Mutex<VecDeque<Instant>>,
    slots: RwLock<Vec<Arc<Slot>>>,
    next_call: AtomicU64,
    abandoned: Arc<AtomicUsize>,
    watchdog: Watchdog,
}

#[derive(Default)]
struct Watchdog {
    state: Mutex<WatchdogState>,
    changed: Condvar,
    /// Read without the lock, because every call begins with it.
    is_asleep: AtomicBool,
}

#[derive(Default)]
struct WatchdogState {
    is_started: bool,
    is_closed: bool,
}

/// One thread, seen from outside.
struct Slot {
    messages: SyncSender<Message>,
    state: Mutex<SlotState>,
    calls: AtomicUsize,
    is_given_up: Arc<AtomicBool>,
}

#[derive(Default)]
struct SlotState {
    /// The call whose code is running, since when.
    running: Option<(CallNumber, Instant)>,
    /// The call that the watchdog found running, since when, and the processor time of its thread then.
    watched: Option<(CallNumber, Instant, Duration)>,
    /// What its processor time is read from.
    clock: Option<CpuClock>,
    calls: HashMap<CallNumber, Sender<Step>>,
    /// It takes no more calls: its thread was given up, or its process ended.
    is_closed: bool,
    /// The process that runs its calls.
    process: Option<ProcessHandle>,
}

/// Steps that wait for their reader: the answer to the last message, and that the thread was given up.
const STEPS_PENDING_MAX: usize = 4;

/// Messages of one call that may wait: its start, one delivery, and its end; and as much again, because calls are counted
/// without a lock.
const MESSAGES_PER_CALL_MAX: usize = 6;

/// How often the watchdog looks while calls run.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The engine cannot take another call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy;

/// One running call. Dropping it cancels the call.
pub(crate) struct Session {
    call: CallNumber,
    slot: Arc<Slot>,
    steps: Receiver<Step>,
    has_ended: bool,
}

impl Engine {
    pub fn new(limits: EngineLimits) -> Self {
        Self::with_isolation(limits, Isolation::Thread)
    }

    pub fn with_isolation(limits: EngineLimits, isolation: Isolation) -> Self {
        Self {
            mark: EngineMark::default(),
            shared: Arc::new(Shared {
                limits,
                isolation,
                process_starts: Mutex::default(),
                slots: RwLock::default(),
                next_call: AtomicU64::new(0),
                abandoned: Arc::default(),
                watchdog: Watchdog::default(),
            }),
        }
    }

    pub fn limits(&self) -> &EngineLimits {
        &self.shared.limits
    }

    /// Threads that were given up and have not ended yet.
    pub fn abandoned_threads(&self) -> usize {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Runs a call on this thread if it is likely to end at once. `None` if it must be started instead: it has had no
    /// effect then.
    pub(crate) fn run_quickly(
        &self,
        program: &Arc<ProgramCode>,
        pace: &Pace,
        owner: StateOwnerRef<'_>,
        call: &QuickCall<'_>,
    ) -> Option<Step> {
        let limits = &self.shared.limits;
        match self.shared.isolation {
            Isolation::Thread
                if pace.is_quick(limits.quick_calls_min)
                    && call.arguments.len() <= limits.quick_arguments_bytes_max =>
            {
                quick::run(&self.mark, limits, program, pace, owner, call)
            }
            Isolation::Thread | Isolation::Process(_) => None,
        }
    }

    pub(crate) fn start(&self, start: Start) -> Result<Session, Busy> {
        let (sender, steps) = channel(STEPS_PENDING_MAX);
        let call = self.shared.next_call.fetch_add(1, Ordering::Relaxed);
        let slot = self.shared.reserve_slot(&start, call, &sender).ok_or(Busy)?;
        slot.send(Message { call, input: Input::Start(Box::new(start)), steps: Some(sender) });
        self.shared.watchdog.wake();
        Ok(Session { call, slot, steps, has_ended: false })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The threads end when their channels close.
        self.shared.slots.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.watchdog.lock().is_closed = true;
        self.shared.watchdog.changed.notify_all();
    }
}

impl Session {
    /// What the call did next; `None` never comes before an end.
    pub(crate) async fn next_step(&mut self) -> Step {
        let step = self.steps.recv().await;
        // The thread ended without a word: the same as if it had been given up.
        let step = step.unwrap_or_else(|| Step { end: Some(End::Lost), ..Step::default() });
        self.has_ended |= step.end.is_some();
        step
    }

    /// Ends the call without a word to its handler.
    pub(crate) fn discard(mut self) {
        self.has_ended = true;
        self.slot.send(Message { call: self.call, input: Input::Discard, steps: None });
    }

    pub(crate) fn deliver(&self, completions: Vec<Completion>) {
        self.slot.send(Message { call: self.call, input: Input::Deliver(completions), steps: None });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.has_ended {
            self.slot.send(Message { call: self.call, input: Input::Cancel, steps: None });
        }
    }
}

/// How often a call looks for another thread because the one it chose was closed meanwhile.
const RESERVE_ATTEMPTS_MAX: usize = 4;

impl Shared {
    fn reserve_slot(
        self: &Arc<Self>,
        start: &Start,
        call: CallNumber,
        steps: &Sender<Step>,
    ) -> Option<Arc<Slot>> {
        for _ in 0..RESERVE_ATTEMPTS_MAX {
            let slot = self.choose_slot(start)?;
            let mut state = slot.lock();
            if !state.is_closed {
                state.calls.insert(call, steps.clone());
                slot.calls.fetch_add(1, Ordering::Relaxed);
                drop(state);
                return Some(slot);
            }
        }
        None
    }

    /// The thread that is likely to have a context for the call, unless another one has less to do.
    fn choose_slot(self: &Arc<Self>, start: &Start) -> Option<Arc<Slot>> {
        let slots = self.slots();
        let mut hasher = DefaultHasher::new();
        start.program.hash.hash(&mut hasher);
        match &start.owner {
            StateOwner::Principal(id) => id.hash(&mut hasher),
            StateOwner::Session(key) => key.hash(&mut hasher),
            StateOwner::Anonymous | StateOwner::Everyone => {}
        }
        let preferred = hasher.finish() as usize;
        let count = slots.len();
        let candidates = (0..count).map(|i| &slots[(preferred.wrapping_add(i)) % count]);
        let slot = candidates.min_by_key(|slot| slot.calls.load(Ordering::Relaxed))?;
        let places = self.limits.calls_per_thread_max;
        let places = if start.is_nested { (places * 3 / 4).max(1) } else { places };
        (slot.calls.load(Ordering::Relaxed) < places).then(|| slot.clone())
    }

    /// The threads, started if there are none yet.
    fn slots(self: &Arc<Self>) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Slot>>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= self.limits.threads {
            return slots;
        }
        drop(slots);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        while slots.len() < self.limits.threads
            && self.abandoned.load(Ordering::Relaxed) <= self.limits.abandoned_threads_max
        {
            match self.spawn_worker() {
                Some(slot) => slots.push(slot),
                None => break,
            }
        }
        drop(slots);
        self.start_watchdog();
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another process may be started now: code that ends its process again and again must not keep the machine
    /// busy.
    fn may_start_process(&self) -> bool {
        let mut starts = self.process_starts.lock().unwrap_or_else(PoisonError::into_inner);
        while starts.front().is_some_and(|start| start.elapsed() >= Duration::from_secs(60)) {
            starts.pop_front();
        }
        let may_start = starts.len() < self.limits.process_starts_per_minute_max;
        if may_start {
            starts.push_back(Instant::now());
        }
        may_start
    }

    fn spawn_worker(self: &Arc<Self>) -> Option<Arc<Slot>> {
        let is_given_up = Arc::new(AtomicBool::new(false));
        if matches!(self.isolation, Isolation::Process(_)) && !self.may_start_process() {
            return None;
        }
        let (messages, receiver) = sync_channel(MESSAGES_PER_CALL_MAX * self.limits.calls_per_thread_max);
        let slot = Arc::new(Slot {
            messages,
            state: Mutex::default(),
            calls: AtomicUsize::new(0),
            is_given_up: is_given_up.clone(),
        });
        // Weak: the thread must not keep its own channel open.
        let view = SlotView { slot: Arc::downgrade(&slot), shared: Arc::downgrade(self), is_given_up };
        let (limits, isolation, abandoned) =
            (self.limits.clone(), self.isolation.clone(), self.abandoned.clone());
        let spawned = std::thread::Builder::new()
            .name("script".into())
            .stack_size(self.limits.stack_bytes_max + STACK_HEADROOM_BYTES)
            .spawn(move || {
                // Here, because an interpreter stays on its thread.
                let runner = match isolation {
                    Isolation::Thread => {
                        view.watch_this_thread();
                        Runner::Here(Box::new(Worker::new(limits, view.is_given_up.clone())))
                    }
                    Isolation::Process(binary) => {
                        Runner::Process(Box::new(RemoteWorker::new(binary, limits)))
                    }
                };
                runner.run(&view, &receiver);
                if view.is_given_up() {
                    abandoned.fetch_sub(1, Ordering::Relaxed);
                }
            });
        match spawned {
            Ok(_) => Some(slot),
            Err(error) => {
                tracing::error!(%error, "cannot start a thread for scripts");
                None
            }
        }
    }

    fn start_watchdog(self: &Arc<Self>) {
        let mut state = self.watchdog.lock();
        if std::mem::replace(&mut state.is_started, true) {
            return;
        }
        let weak = Arc::downgrade(self);
        let spawned = std::thread::Builder::new().name("script-watchdog".into()).spawn(move || {
            while let Some(shared) = weak.upgrade() {
                if shared.watchdog.wait(shared.has_calls()) {
                    break;
                }
                shared.give_up_stuck_threads();
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start the watchdog of scripts");
            state.is_started = false;
        }
    }

    fn has_calls(&self) -> bool {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().any(|slot| slot.calls.load(Ordering::Relaxed) > 0)
    }

    fn give_up_stuck_threads(self: &Arc<Self>) {
        let allowed = Duration::from_millis(self.limits.cpu_ms_max + self.limits.overstay_ms_max);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.retain_mut(|slot| {
            if !slot.give_up_if_stuck(allowed) {
                return true;
            }
            let abandoned = self.abandoned.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(abandoned, "a script does not return from a built-in; its thread was given up");
            let replacement = (abandoned <= self.limits.abandoned_threads_max).then(|| self.spawn_worker());
            match replacement.flatten() {
                Some(replacement) => {
                    *slot = replacement;
                    true
                }
                None => false,
            }
        });
    }
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if self.is_asleep.load(Ordering::Acquire) {
            let _state = self.lock();
            self.changed.notify_all();
        }
    }

    /// Waits for the next look, or until there is something to look at. Returns whether the engine is gone.
    fn wait(&self, has_calls: bool) -> bool {
        let state = self.lock();
        if state.is_closed {
            return true;
        }
        self.is_asleep.store(!has_calls, Ordering::Release);
        // Also without calls not forever: a call may begin between the look and the sleep.
        let interval = if has_calls { WATCH_INTERVAL } else { WATCH_INTERVAL * 50 };
        let (state, _) = self.changed.wait_timeout(state, interval).unwrap_or_else(PoisonError::into_inner);
        self.is_asleep.store(false, Ordering::Release);
        state.is_closed
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that ended takes no messages; its calls have been told. The queue has room for all messages of all
    /// calls, so this never waits.
    fn send(&self, message: Message) {
        if let Err(TrySendError::Full(_)) = self.messages.try_send(message) {
            tracing::error!("the queue of a script thread is full");
        }
    }

    /// Tells all calls if the thread has worked inside author code for too long. Time in which the machine was busy with
    /// something else does not count.
    fn give_up_if_stuck(&self, allowed: Duration) -> bool {
        let mut state = self.lock();
        let Some((culprit, since)) = state.running else { return false };
        let used = match (state.clock.as_ref().and_then(CpuClock::read), state.watched) {
            (Some(now), Some((call, begin, before))) if (call, begin) == (culprit, since) => {
                now.saturating_sub(before)
            }
            (Some(now), _) => {
                state.watched = Some((culprit, since, now));
                return false;
            }
            // A system that does not tell the time of another thread.
            (None, _) => since.elapsed(),
        };
        if used <= allowed {
            return false;
        }
        self.is_given_up.store(true, Ordering::Release);
        if let Some(process) = state.process.take() {
            process.kill();
        }
        self.close(&mut state, culprit, End::LimitExceeded(Limit::Cpu));
        true
    }

    /// Ends the culprit's call, and tells all other calls to replay elsewhere.
    fn close(&self, state: &mut SlotState, culprit: CallNumber, end: End) {
        state.is_closed = true;
        let mut end = Some(end);
        for (call, steps) in state.calls.drain() {
            let end = if call == culprit { end.take() } else { None };
            // The caller may be gone.
            let _ = steps.try_send(Step { end: Some(end.unwrap_or(End::Lost)), ..Step::default() });
        }
        self.calls.store(0, Ordering::Relaxed);
    }
}

/// What the thread itself knows of its slot.
pub(super) struct SlotView {
    slot: std::sync::Weak<Slot>,
    shared: std::sync::Weak<Shared>,
    is_given_up: Arc<AtomicBool>,
}

impl SlotView {
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// The process that the thread started for its calls.
    pub(super) fn set_process(&self, process: ProcessHandle) {
        match self.slot.upgrade() {
            Some(slot) if !self.is_given_up() => {
                let mut state = slot.lock();
                state.clock = Some(CpuClock::of_process(process.id()));
                state.process = Some(process);
            }
            _ => process.kill(),
        }
    }

    /// The process ended while it was busy with `call`. The next call gets another thread.
    pub(super) fn worker_lost(&self, call: CallNumber, end: End) {
        let Some(slot) = self.slot.upgrade() else { return };
        // First: whoever hears of the end may start the next call, and must not find this thread.
        if let Some(shared) = self.shared.upgrade() {
            let mut slots = shared.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|one| !Arc::ptr_eq(one, &slot));
        }
        slot.close(&mut slot.lock(), call, end);
    }

    /// The thread itself runs the code of calls.
    pub(super) fn watch_this_thread(&self) {
        if let Some(slot) = self.slot.upgrade() {
            slot.lock().clock = CpuClock::of_this_thread();
        }
    }

    pub(super) fn begin_slice(&self, call: CallNumber) {
        if let Some(slot) = self.slot.upgrade() {
            slot.lock().running = Some((call, Instant::now()));
        }
    }

    pub(super) fn end_slice(&self) {
        if let Some(slot) = self.slot.upgrade() {
            slot.lock().running = None;
        }
    }

    pub(super) fn call_ended(&self, call: CallNumber) {
        if let Some(slot) = self.slot.upgrade()
            && slot.lock().calls.remove(&call).is_some()
        {
            slot.calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
