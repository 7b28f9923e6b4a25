//! One round of a call: runs the handler, performs its effects, records them, and ends with a result or with
//! questions.
//!
//! The handler runs in the engine and knows only numbers of effects. All that happened is in the journal
//! here, so the handler can be run again at any time: in the next round, or on another thread when its own
//! was lost.

mod called_tools;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use json::Json;
use serde_json::Value;
use spile_core::{
    CallError, CallFuture, Caller, CatalogChange, Checkpoints, DetachedWork, EventSink, InputRequest,
    InputRequests, Journal, LogLevel, Outcome, Platform, TaskSupport, ToolCaller, ToolError, ToolErrorCode,
};

use crate::effects::{EffectFailure, EffectFuture, EffectServices, Work, plan};
use crate::engine::{End, Engine, Limit, Session, Signal, Start, Step, Values};
use crate::handler::Handler;
use crate::journal::{Completion, EffectJournal, JournalError};
use crate::provider::Reporter;
use crate::results;

use self::called_tools::{NestedSaves, next_save};

/// Everything that one round of a call needs.
pub(crate) struct Round {
    pub(crate) engine: Arc<Engine>,
    pub(crate) handler: Arc<Handler>,
    pub(crate) services: EffectServices,
    pub(crate) values: Arc<Values>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) caller: Caller,
    /// The session or connection of the call.
    pub(crate) session: Option<[u8; 16]>,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) events: EventSink,
    /// The answers of the client, and the memo of the last round.
    pub(crate) answers: Journal,
    pub(crate) tools: Arc<dyn ToolCaller>,
    /// Whether the client reached the server without a network, so that its roots are folders of this machine.
    pub(crate) is_local: bool,
    /// JSON texts.
    pub(crate) arguments: String,
    pub(crate) request: String,
}

/// A journal travels with the call; a larger one cannot.
const MEMO_BYTES_MAX: usize = 192 << 10;
/// How often a call is moved to another thread because of its neighbours.
const RESTARTS_MAX: u32 = 3;
/// The question for the roots that `ctx.files` is limited to. One answer is for all files of a call.
const CLIENT_ROOTS_KEY: &str = "spile/roots";
const REMOTE_ROOTS: &str = "files: the roots of a client count only if it speaks to the server through stdio or a unix socket: \
                            this one may be on another machine, or another user";
const BUSY_RETRY_MS: u64 = 1000;

/// Runs the round to its end.
pub(crate) async fn drive(round: Round, checkpoints: Checkpoints) -> Outcome {
    let code = round.handler.program.hash();
    let journal = match round.answers.memo() {
        Some(memo) => EffectJournal::from_memo(memo, code).map(|mut journal| {
            journal.request = with_principal_of(&journal.request, &round.request);
            journal
        }),
        None => {
            let mut seed = [0; 32];
            round.platform.fill_random(&mut seed);
            Ok(EffectJournal::new(*code, round.platform.now_ms(), seed, round.request.clone()))
        }
    };
    match journal {
        Ok(journal) => Driver::new(round, journal, checkpoints).run().await,
        Err(JournalError::CodeChanged) => Outcome::Failed(CallError::ChangedWhileWaiting),
        Err(JournalError::Corrupt) => Outcome::Failed(CallError::InvalidRequestState("corrupt")),
    }
}

struct Driver {
    round: Round,
    journal: EffectJournal,
    performing: FuturesUnordered<Pin<Box<dyn Future<Output = Performed> + Send>>>,
    /// Effects that are being performed.
    in_flight: HashMap<u32, InFlight>,
    /// Questions without an answer, by effect.
    questions: BTreeMap<u32, OpenQuestions>,
    /// Whether a called tool asks for consent: see [`InputRequests::as_consent`].
    asks_for_consent: bool,
    /// Results that wait to be delivered. They are in the journal already.
    ready: Vec<Completion>,
    checkpoints: Checkpoints,
    /// Whether a checkpoint has the seed of this call: ids of called tools follow from it.
    is_seed_saved: bool,
    /// Checkpoints of called tools.
    nested_saves: Option<NestedSaves>,
    /// The handler called `ctx.detach`.
    wants_to_detach: bool,
}

struct InFlight {
    abort: AbortHandle,
    /// When a timer is due. It does not keep a round from ending with questions.
    timer_due_ms: Option<u64>,
}

/// What one effect asks. Tools that the handler called may ask several questions.
struct OpenQuestions {
    requests: Vec<(String, InputRequest)>,
    /// When a timer of the called tool is due.
    wake_at_ms: Option<u64>,
}

/// `None` if the effect was abandoned.
type Performed = (u32, Option<Done>);

enum Done {
    Result(Result<String, EffectFailure>),
    /// A called tool needs input.
    Asks(InputRequests),
}

impl Driver {
    fn new(round: Round, journal: EffectJournal, checkpoints: Checkpoints) -> Self {
        let is_seed_saved = round.answers.memo().is_some();
        Self {
            round,
            journal,
            is_seed_saved,
            nested_saves: None,
            performing: FuturesUnordered::new(),
            in_flight: HashMap::new(),
            questions: BTreeMap::new(),
            asks_for_consent: false,
            ready: Vec::new(),
            checkpoints,
            wants_to_detach: false,
        }
    }

    async fn run(self) -> Outcome {
        match self.start() {
            Some(session) => self.proceed(session, true).await,
            None => busy(),
        }
    }

    /// The engine answers each message with one step. While it owes one, it gets no further message: results that come
    /// meanwhile are delivered together, so that a call has a place for its messages however many effects it has.
    async fn proceed(mut self, mut session: Session, mut owes_step: bool) -> Outcome {
        let mut restarts = 0;
        loop {
            if !self.questions.is_empty() && !self.round.handler.is_replayable() {
                // Its syntax did not show that it asks. Neither this call nor later ones may depend on what earlier ones
                // left behind.
                self.round.handler.program.has_asked.store(true, Ordering::Relaxed);
                let Some(replayed) = self.start() else { return busy() };
                std::mem::replace(&mut session, replayed).discard();
                owes_step = true;
                self.ready.clear();
            }
            if !owes_step && !self.ready.is_empty() {
                session.deliver(std::mem::take(&mut self.ready));
                owes_step = true;
            }
            if std::mem::take(&mut self.wants_to_detach) {
                return Outcome::Detach(DetachedWork::new(move |checkpoints| {
                    Driver { checkpoints, ..self }.proceed_detached(session, owes_step)
                }));
            }
            if !owes_step && !self.in_flight.values().any(|effect| effect.timer_due_ms.is_none()) {
                if !self.questions.is_empty() {
                    session.discard();
                    return self.ask();
                }
                if self.in_flight.is_empty() {
                    return self.finish(End::LimitExceeded(Limit::NeverSettles));
                }
            }
            tokio::select! {
                biased;
                mut step = session.next_step() => {
                    owes_step = false;
                    match step.end.take() {
                        Some(End::Lost) if restarts < RESTARTS_MAX => {
                            let Some(replayed) = self.start() else { return busy() };
                            session = replayed;
                            owes_step = true;
                            restarts += 1;
                            // The journal has them.
                            self.ready.clear();
                        }
                        Some(end) => {
                            self.take_signals(step.signals);
                            return self.finish(end);
                        }
                        None => {
                            if !step.effects.is_empty() {
                                self.save_seed().await;
                            }
                            self.take_step(step);
                        }
                    }
                }
                Some((number, done)) = self.performing.next(), if !self.performing.is_empty() => {
                    let effect = self.in_flight.remove(&number);
                    match done {
                        Some(Done::Result(result)) => {
                            let is_timer = effect.is_some_and(|effect| effect.timer_due_ms.is_some());
                            let completion = self.complete(number, result);
                            // A timer needs no checkpoint: it is measured from the time that the journal has.
                            if !is_timer && self.checkpoints.are_kept() {
                                self.checkpoints.save(self.journal.to_memo()).await;
                            }
                            self.ready.push(completion);
                        }
                        Some(Done::Asks(requests)) => self.tool_asks(number, requests),
                        None => {}
                    }
                }
                save = next_save(&mut self.nested_saves) => self.save_nested(save).await,
            }
        }
    }

    fn proceed_detached(mut self, session: Session, owes_step: bool) -> CallFuture {
        Box::pin(async move {
            // What happened before is part of the task.
            self.is_seed_saved = false;
            self.save_seed().await;
            self.proceed(session, owes_step).await
        })
    }

    /// Before the first effect: whatever happens to the process then, the next one makes the same calls under the same
    /// ids.
    async fn save_seed(&mut self) {
        if !std::mem::replace(&mut self.is_seed_saved, true) {
            self.checkpoints.save(self.journal.to_memo()).await;
        }
    }

    fn start(&self) -> Option<Session> {
        let round = &self.round;
        let handler = &round.handler;
        let owner = handler.state_owner(&round.caller.principal, round.session);
        let start = Start {
            program: handler.program.code.clone(),
            owner: owner.to_owner(),
            // What an earlier call left in its context cannot be replayed.
            begins_fresh: handler.begins_fresh(owner) || !self.journal.issued.is_empty(),
            is_nested: round.tools.is_nested(),
            arguments: round.arguments.clone(),
            request: self.journal.request.clone(),
            journal: Arc::new(self.journal.clone()),
            values: round.values.clone(),
            pace: handler.program.pace.clone(),
            capabilities: round.caller.capabilities,
        };
        round.engine.start(start).ok()
    }

    /// Records what the handler did, and begins its effects.
    fn take_step(&mut self, step: Step) {
        self.take_signals(step.signals);
        self.journal.reads.extend(step.reads);
        let now_ms = self.round.platform.now_ms();
        let (mut overdue, mut timers, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for effect in step.effects {
            // After a restart the handler issues again what is being performed already.
            let is_new = effect.number as usize >= self.journal.issued.len();
            if is_new {
                self.journal.issued.push(effect.fingerprint);
            } else if self.in_flight.contains_key(&effect.number)
                || self.questions.contains_key(&effect.number)
            {
                continue;
            }
            if step.abandoned.contains(&effect.number) {
                continue;
            }
            match plan(&self.round.services, &self.round.caller, &effect.kind, &effect.arguments) {
                Err(refused) => known.push((effect.number, Err(refused))),
                Ok(Work::Sleep { ms }) => {
                    let due_ms = effect.at_ms.saturating_add(ms);
                    match due_ms.saturating_sub(now_ms) {
                        // What is asked beside it goes out first, however long the code took to get here.
                        0 if is_new && ms > 0 => timers.push((due_ms, effect.number, 1)),
                        0 => overdue.push((due_ms, effect.number)),
                        left_ms => timers.push((due_ms, effect.number, left_ms)),
                    }
                }
                Ok(Work::Ask { key, request }) => match self.answer(&key) {
                    Some(answer) => known.push((effect.number, Ok(answer))),
                    None => {
                        let requests = vec![(key, request)];
                        self.questions.insert(effect.number, OpenQuestions { requests, wake_at_ms: None });
                    }
                },
                Ok(Work::ClientFile(_)) if !self.round.is_local => {
                    known.push((effect.number, Err(EffectFailure::not_permitted(REMOTE_ROOTS))));
                }
                Ok(Work::ClientFile(work)) => match self.answer(CLIENT_ROOTS_KEY) {
                    Some(roots) => match work.start(&serde_json::from_str(&roots).unwrap_or_default()) {
                        Ok(future) => self.perform_future(effect.number, future),
                        Err(refused) => known.push((effect.number, Err(refused))),
                    },
                    None => {
                        let requests = vec![(CLIENT_ROOTS_KEY.to_owned(), InputRequest::Roots)];
                        self.questions.insert(effect.number, OpenQuestions { requests, wake_at_ms: None });
                    }
                },
                Ok(Work::Tool { name, arguments, wanted }) => {
                    self.call_tool(&effect, &name, arguments, wanted);
                }
                Ok(Work::Detach) => {
                    self.wants_to_detach |= self.round.handler.task_support != TaskSupport::Forbidden;
                    known.push((effect.number, Ok("null".to_owned())));
                }
                Ok(Work::Future(future)) => self.perform_future(effect.number, future),
            }
        }
        // Those that wake up together fire in the order in which they were due, also where the code took longer than that.
        timers.sort_unstable();
        for (due_ms, number, left_ms) in timers {
            self.sleep(number, due_ms, left_ms);
        }
        for number in step.abandoned {
            if let Some(effect) = self.in_flight.remove(&number) {
                effect.abort.abort();
            }
            self.questions.remove(&number);
        }
        // A timer that was due while the client answered had fired before the answer came.
        overdue.sort_unstable();
        let overdue = overdue.into_iter().map(|(_, number)| (number, Ok("null".to_owned())));
        for (number, result) in overdue.chain(known) {
            let completion = self.complete(number, result);
            self.ready.push(completion);
        }
    }

    fn complete(&mut self, number: u32, result: Result<String, EffectFailure>) -> Completion {
        self.journal.complete(number, self.round.platform.now_ms(), result)
    }

    fn perform(
        &mut self,
        number: u32,
        timer_due_ms: Option<u64>,
        work: impl Future<Output = Done> + Send + 'static,
    ) {
        let (abort, registration) = AbortHandle::new_pair();
        self.in_flight.insert(number, InFlight { abort, timer_due_ms });
        let work = Abortable::new(work, registration);
        self.performing.push(Box::pin(async move { (number, work.await.ok()) }));
    }

    fn perform_future(&mut self, number: u32, future: EffectFuture) {
        self.perform(number, None, async move { Done::Result(future.await.map(|json| json.to_string())) });
    }

    fn sleep(&mut self, number: u32, due_ms: u64, left_ms: u64) {
        self.perform(number, Some(due_ms), async move {
            tokio::time::sleep(Duration::from_millis(left_ms)).await;
            Done::Result(Ok("null".into()))
        });
    }

    /// The client's answer to a question, as JSON text.
    fn answer(&self, key: &str) -> Option<String> {
        let mut entries = self.round.answers.entries();
        entries.find(|(name, _)| *name == key).map(|(_, json)| json.to_string())
    }

    /// Ends the round with all open questions.
    fn ask(self) -> Outcome {
        let memo = self.journal.to_memo();
        if memo.len() > MEMO_BYTES_MAX {
            let message = format!(
                "a question follows effects with large results; together they may have {MEMO_BYTES_MAX} bytes"
            );
            let handler = &self.round.handler;
            let diagnostic = handler.program.locate(message.clone(), "");
            let help = "ask first, or keep less of what was read";
            self.round.reporter.report(&handler.name, &diagnostic.with_help(help));
            return ToolError::new(ToolErrorCode::TooLarge, message).into();
        }
        // The host runs the handler again when the first one is due, if it can.
        let timers = self.in_flight.values().filter_map(|effect| effect.timer_due_ms);
        let wake_at_ms = timers.chain(self.questions.values().filter_map(|one| one.wake_at_ms)).min();
        let requests = self.questions.into_values().flat_map(|questions| questions.requests);
        let requests = requests.fold(InputRequests::default(), |all, (key, request)| {
            match key == CLIENT_ROOTS_KEY && all.contains_key(&key) {
                true => all,
                false => all.with(key, request),
            }
        });
        if let Some(key) = requests.repeated_key() {
            let handler = &self.round.handler;
            let diagnostic = handler.program.locate(format!("two questions have the key `{key}`"), "");
            let help = "give each question of a call a key of its own; keys that begin with `tool-` and a number belong to called tools";
            self.round.reporter.report(&handler.name, &diagnostic.with_help(help));
            return CallError::Internal { detail: format!("two questions have the key `{key}`") }.into();
        }
        let requests = if self.asks_for_consent { requests.as_consent() } else { requests };
        Outcome::InputRequired(requests.with_memo(memo).with_wake_at_ms(wake_at_ms))
    }

    fn finish(self, end: End) -> Outcome {
        let round = &self.round;
        results::outcome(&round.handler, round.engine.limits(), &round.reporter, end)
    }

    fn take_signals(&mut self, signals: Vec<Signal>) {
        self.journal.signals = self.journal.signals.saturating_add(signals.len() as u32);
        for signal in signals {
            let Round { handler, events, reporter, .. } = &self.round;
            send_signal(handler, events, reporter, &signal);
        }
    }
}

/// Tells the caller, or everyone, what the handler has to say.
pub(crate) fn send_signal(handler: &Handler, events: &EventSink, reporter: &Reporter, signal: &Signal) {
    // The text is from `JSON.stringify` in the prelude.
    let value: Value = serde_json::from_str(&signal.arguments).unwrap_or_default();
    let tool = &handler.name;
    match signal.kind.as_str() {
        "progress" => {
            let progress = value["progress"].as_f64().unwrap_or_default();
            events.progress(progress, value["total"].as_f64(), value["message"].as_str());
        }
        "log" => {
            let level = value["level"].as_str().and_then(LogLevel::parse).unwrap_or(LogLevel::Info);
            tracing::debug!(%tool, level = level.as_str(), data = %value["data"], "log message of a script");
            if events.wants_log(level)
                && let Ok(data) = Json::parse(&value["data"].to_string())
            {
                events.log(level, Some(tool), data);
            }
        }
        "emit" => {
            let change = match value["event"].as_str().unwrap_or_default() {
                "tools-changed" => CatalogChange::Tools,
                "prompts-changed" => CatalogChange::Prompts,
                "resources-changed" => CatalogChange::Resources,
                _ => CatalogChange::Resource(value["uri"].as_str().unwrap_or_default().into()),
            };
            reporter.catalog_changed(change);
        }
        "closeStream" => events.pause_stream(value["retryMs"].as_f64().unwrap_or(1000.0) as u64),
        _ => {}
    }
}

fn busy() -> Outcome {
    Outcome::Failed(CallError::Busy { retry_after_ms: BUSY_RETRY_MS })
}

/// The request of the first round, with the principal of this one: what a caller may do can change while it is asked.
fn with_principal_of(first: &str, current: &str) -> String {
    let (Ok(first_doc), Ok(current_doc)) = (Json::parse(first), Json::parse(current)) else {
        return first.to_owned();
    };
    if !first_doc.is_object() || !current_doc.is_object() {
        return first.to_owned();
    }
    let (first_doc, current_doc) = (first_doc.to_doc(), current_doc.to_doc());
    Json::object(|object| {
        // It is the last member of every request.
        for (name, value) in first_doc.root().members() {
            let name = name.str().unwrap_or_default();
            if name != "principal" {
                object.raw(&name, value.raw());
            }
        }
        object.maybe_raw("principal", current_doc.root().get("principal").map(|principal| principal.raw()));
    })
    .to_string()
}
