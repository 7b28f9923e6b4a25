//! One round of a call: runs the handler, performs its effects, records them, and ends with a result or with
//! questions.
//!
//! The handler runs in the engine and knows only numbers of effects. All that happened is in the journal
//! here, so the handler can be run again at any time: in the next round, or on another thread when its own
//! was lost.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use json::Json;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use spile_core::{
    CallError, CallFuture, CallId, Caller, CatalogChange, Checkpoints, DetachedWork, EventSink, InputRequest,
    InputRequests, Journal, LogLevel, Outcome, Platform, TaskSupport, ToolCaller, ToolError, ToolErrorCode,
};

use crate::effects::{EffectFailure, EffectServices, Wanted, Work, plan};
use crate::engine::{End, Engine, IssuedEffect, Limit, Session, Signal, Start, StateOwner, Step, Values};
use crate::handler::Handler;
use crate::journal::{AskingTool, Completion, EffectJournal, JournalError};
use crate::provider::Reporter;
use crate::results;

/// Everything that one round of a call needs.
pub(crate) struct Round {
    pub(crate) engine: Arc<Engine>,
    pub(crate) handler: Arc<Handler>,
    pub(crate) services: EffectServices,
    pub(crate) values: Arc<Values>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) caller: Caller,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) events: EventSink,
    /// The answers of the client, and the memo of the last round.
    pub(crate) answers: Journal,
    pub(crate) tools: Arc<dyn ToolCaller>,
    /// JSON texts.
    pub(crate) arguments: String,
    pub(crate) request: String,
}

/// A journal travels with the call; a larger one cannot.
const MEMO_BYTES_MAX: usize = 192 << 10;
/// How often a call is moved to another thread because of its neighbours.
const RESTARTS_MAX: u32 = 3;
const BUSY_RETRY_MS: u64 = 1000;

/// Runs the round to its end.
pub(crate) async fn drive(round: Round, checkpoints: Checkpoints) -> Outcome {
    let code = round.handler.program.hash();
    let journal = match round.answers.memo() {
        Some(memo) => EffectJournal::from_memo(memo, code),
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
    /// Questions without an answer, by effect. Tools that the handler called may ask several.
    questions: BTreeMap<u32, Vec<(String, InputRequest)>>,
    /// Whether a called tool asks for consent: see [`InputRequests::as_consent`].
    asks_for_consent: bool,
    /// Results that are known already and wait to be delivered.
    ready: Vec<Completion>,
    checkpoints: Checkpoints,
    /// The handler called `ctx.detach`.
    wants_to_detach: bool,
}

struct InFlight {
    abort: AbortHandle,
    /// A timer does not keep a round from ending with questions.
    is_timer: bool,
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
        Self {
            round,
            journal,
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
            Some(session) => self.proceed(session, 1).await,
            None => busy(),
        }
    }

    /// `owed_steps` are the steps that the engine owes: one for each message to it.
    async fn proceed(mut self, mut session: Session, mut owed_steps: u32) -> Outcome {
        let mut restarts = 0;
        loop {
            if owed_steps == 0 && !self.in_flight.values().any(|effect| !effect.is_timer) {
                if !self.questions.is_empty() {
                    session.discard();
                    return self.ask();
                }
                if self.in_flight.is_empty() {
                    return self.finish(End::LimitExceeded(Limit::NeverSettles));
                }
            }
            let completed = tokio::select! {
                biased;
                mut step = session.next_step() => {
                    owed_steps = owed_steps.saturating_sub(1);
                    match step.end.take() {
                        Some(End::Lost) if restarts < RESTARTS_MAX => {
                            let Some(replayed) = self.start() else { return busy() };
                            session = replayed;
                            owed_steps = 1;
                            restarts += 1;
                            continue;
                        }
                        Some(end) => {
                            self.take_signals(step.signals);
                            return self.finish(end);
                        }
                        None => self.take_step(step),
                    }
                    std::mem::take(&mut self.ready)
                }
                Some((number, done)) = self.performing.next(), if !self.performing.is_empty() => {
                    let effect = self.in_flight.remove(&number);
                    match done {
                        Some(Done::Result(result)) => {
                            let is_timer = effect.is_some_and(|effect| effect.is_timer);
                            let completion = self.complete(number, result);
                            // A timer needs no checkpoint: it is measured from the time that the journal has.
                            if !is_timer && self.checkpoints.are_kept() {
                                self.checkpoints.save(self.journal.to_memo()).await;
                            }
                            vec![completion]
                        }
                        Some(Done::Asks(requests)) => {
                            self.tool_asks(number, requests);
                            continue;
                        }
                        None => continue,
                    }
                }
            };
            if !completed.is_empty() {
                session.deliver(completed);
                owed_steps += 1;
            }
            if std::mem::take(&mut self.wants_to_detach) {
                return Outcome::Detach(DetachedWork::new(move |checkpoints| {
                    Driver { checkpoints, ..self }.proceed_detached(session, owed_steps)
                }));
            }
        }
    }

    fn proceed_detached(self, session: Session, owed_steps: u32) -> CallFuture {
        Box::pin(async move {
            // What happened before is part of the task.
            self.checkpoints.save(self.journal.to_memo()).await;
            self.proceed(session, owed_steps).await
        })
    }

    fn start(&self) -> Option<Session> {
        let round = &self.round;
        let owner = match round.handler.shares_state {
            true => StateOwner::Everyone,
            false => StateOwner::Principal(round.caller.principal.id().into()),
        };
        let start = Start {
            program: round.handler.program.code.clone(),
            owner,
            is_replayable: round.handler.is_replayable(),
            arguments: round.arguments.clone(),
            request: self.journal.request.clone(),
            journal: Arc::new(self.journal.clone()),
            values: round.values.clone(),
            pace: round.handler.program.pace.clone(),
            capabilities: results::capability_names(round.caller.capabilities),
        };
        round.engine.start(start).ok()
    }

    /// Records what the handler did, and begins its effects.
    fn take_step(&mut self, step: Step) {
        self.take_signals(step.signals);
        self.journal.reads.extend(step.reads);
        let now_ms = self.round.platform.now_ms();
        let (mut overdue, mut known) = (Vec::new(), Vec::new());
        for effect in step.effects {
            // After a restart the handler issues again what is being performed already.
            if effect.number as usize >= self.journal.issued.len() {
                self.journal.issued.push(effect.fingerprint);
            } else if self.in_flight.contains_key(&effect.number)
                || self.questions.contains_key(&effect.number)
            {
                continue;
            }
            if step.abandoned.contains(&effect.number) {
                continue;
            }
            match plan(&self.round.services, &effect.kind, &effect.arguments) {
                Err(refused) => known.push((effect.number, Err(refused))),
                Ok(Work::Sleep { ms }) => {
                    let due_ms = effect.at_ms.saturating_add(ms);
                    match due_ms.saturating_sub(now_ms) {
                        0 => overdue.push((due_ms, effect.number)),
                        left_ms => self.sleep(effect.number, left_ms),
                    }
                }
                Ok(Work::Ask { key, request }) => match self.answer(&key) {
                    Some(answer) => known.push((effect.number, Ok(answer))),
                    None => {
                        self.questions.insert(effect.number, vec![(key, request)]);
                    }
                },
                Ok(Work::Tool { name, arguments, wanted }) => {
                    self.call_tool(&effect, &name, arguments, wanted);
                }
                Ok(Work::Detach) => {
                    self.wants_to_detach |= self.round.handler.task_support != TaskSupport::Forbidden;
                    known.push((effect.number, Ok("null".to_owned())));
                }
                Ok(Work::Future(future)) => self.perform(effect.number, false, async move {
                    Done::Result(future.await.map(|json| json.to_string()))
                }),
            }
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

    fn perform(&mut self, number: u32, is_timer: bool, work: impl Future<Output = Done> + Send + 'static) {
        let (abort, registration) = AbortHandle::new_pair();
        self.in_flight.insert(number, InFlight { abort, is_timer });
        let work = Abortable::new(work, registration);
        self.performing.push(Box::pin(async move { (number, work.await.ok()) }));
    }

    fn sleep(&mut self, number: u32, ms: u64) {
        self.perform(number, true, async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Done::Result(Ok("null".into()))
        });
    }

    /// The client's answer to a question, as JSON text.
    fn answer(&self, key: &str) -> Option<String> {
        let mut entries = self.round.answers.entries();
        entries.find(|(name, _)| *name == key).map(|(_, json)| json.to_string())
    }

    /// Calls another tool, or continues it if it asked something in an earlier round.
    fn call_tool(&mut self, effect: &IssuedEffect, name: &str, arguments: Json, wanted: Wanted) {
        let id = nested_call_id(&self.journal.seed, effect.number);
        let journal = match self.journal.asking_tools.get(&effect.number) {
            None => Journal::for_round(0, id, None),
            Some(asking) => {
                let mut journal =
                    Journal::for_round(asking.round, id, asking.memo.clone().map(Vec::into_boxed_slice));
                let mut answers = asking.answers.clone();
                for key in &asking.open_keys {
                    if let Some(answer) = self.answer(&tool_question_key(effect.number, key)) {
                        answers.push((key.clone(), answer));
                    }
                }
                for (key, answer) in &answers {
                    // The texts are JSON: they came from the client through `Json`.
                    if let Ok(answer) = Json::parse(answer) {
                        journal.record(key, answer);
                    }
                }
                journal
            }
        };
        let answers = journal.entries().map(|(key, answer)| (key.to_owned(), answer.to_string())).collect();
        let asking = AskingTool { round: journal.round, answers, ..AskingTool::default() };
        self.journal.asking_tools.insert(effect.number, asking);
        let called = self.round.tools.call_tool(name, arguments, journal);
        self.perform(effect.number, false, called_tool(called, wanted));
    }

    /// A called tool needs input: its questions become questions of this call.
    fn tool_asks(&mut self, number: u32, mut requests: InputRequests) {
        let asking = self.journal.asking_tools.entry(number).or_default();
        asking.round += 1;
        self.asks_for_consent |= requests.is_consent();
        asking.memo = requests.take_memo().map(Vec::from);
        asking.open_keys = requests.iter().map(|(key, _)| key.to_owned()).collect();
        // It asks these again: an earlier answer was not what it needs.
        let open_keys = asking.open_keys.clone();
        asking.answers.retain(|(key, _)| !open_keys.contains(key));
        let questions =
            requests.iter().map(|(key, request)| (tool_question_key(number, key), request.clone()));
        self.questions.insert(number, questions.collect());
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
        let requests = self.questions.into_values().flatten();
        let requests = requests.fold(InputRequests::default(), |all, (key, request)| all.with(key, request));
        if let Some(key) = requests.repeated_key() {
            let handler = &self.round.handler;
            let diagnostic = handler.program.locate(format!("two questions have the key `{key}`"), "");
            let help = "give each question of a call a key of its own; keys that begin with `tool-` and a number belong to called tools";
            self.round.reporter.report(&handler.name, &diagnostic.with_help(help));
            return CallError::Internal { detail: format!("two questions have the key `{key}`") }.into();
        }
        let requests = if self.asks_for_consent { requests.as_consent() } else { requests };
        Outcome::InputRequired(requests.with_memo(memo))
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

async fn called_tool(mut called: CallFuture, wanted: Wanted) -> Done {
    loop {
        match called.await {
            // A handler waits for the result; it does not become a task of its own.
            Outcome::Detach(work) => called = work.start(Checkpoints::none()),
            Outcome::InputRequired(requests) => return Done::Asks(requests),
            Outcome::Done(result) => {
                return Done::Result(match wanted {
                    Wanted::Result => Ok(results::render_call_result(&result)),
                    Wanted::Data => results::structured_content(&result),
                });
            }
            Outcome::ToolFailed(error) => {
                return Done::Result(match wanted {
                    Wanted::Result => Ok(results::render_tool_error(&error)),
                    Wanted::Data => Err(results::tool_failure(&error)),
                });
            }
            Outcome::Failed(error) => return Done::Result(Err(results::effect_failure(error))),
        }
    }
}

fn busy() -> Outcome {
    Outcome::Failed(CallError::Busy { retry_after_ms: BUSY_RETRY_MS })
}

fn tool_question_key(number: u32, key: &str) -> String {
    format!("tool-{number}:{key}")
}

/// The id of a called tool's call: the same in every round.
fn nested_call_id(seed: &[u8; 32], number: u32) -> CallId {
    let digest = digest(&SHA256, &[&seed[..], b"tool", &number.to_be_bytes()].concat());
    let mut id = CallId::default();
    id.copy_from_slice(&digest.as_ref()[..16]);
    id
}
