//! Calls that go on after they were answered.
//!
//! A task belongs to whoever called; to anybody else it does not exist. It ends when its work does, when it
//! is cancelled, or when its time is up. Questions inside a task wait here for `tasks/update`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call::text::hex;
use call::{Asks, Call, Emit, Fault, Outcome, Principal, Reply, Thing, Work};
use json::Json;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::shape::{Detail, TaskView};

use crate::catch::Caught;
use crate::live::{Line, Live};
use crate::path::{Job, Refusal, again, conclude, not_answered};
use crate::registry::Registry;
use crate::server::Server;

/// Whose a task is. To anybody else it does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    Named(Principal),
    /// Nobody in particular, but always the same: a session, or a line among others.
    Session([u8; 16]),
    /// Whoever knows the id: over a pipe the one client there is, over HTTP a caller who proved nothing.
    Bearer,
}

impl Holder {
    pub(crate) fn new(principal: &Principal, line: &Line) -> Self {
        match (principal, line) {
            (Principal::Named(_), _) => Self::Named(principal.clone()),
            (Principal::Anonymous, Line::Session(ticket)) => Self::Session(ticket.key()),
            (Principal::Anonymous, Line::Pipe(live)) => live.key().map_or(Self::Bearer, Self::Session),
            (Principal::Anonymous, Line::Alone) => Self::Bearer,
        }
    }
}

#[derive(Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

pub(crate) struct Task {
    id: String,
    holder: Holder,
    /// What it keeps: its request, then its result.
    bytes: AtomicUsize,
    created_ms: u64,
    ttl_ms: u64,
    poll_ms: u64,
    state: Mutex<State>,
    /// Whether its end has been told to its holder.
    read: AtomicBool,
    /// Rung when answers came, and when the state changed.
    changed: Notify,
}

struct State {
    detail: Detail,
    updated_ms: u64,
    questions: Vec<Question>,
    /// What the client said instead of an answer.
    refused: Option<String>,
    /// Keys that were ever used: one must not mean two questions.
    used: Vec<String>,
    stop: Option<AbortHandle>,
}

/// A question of a task.
struct Question {
    /// Its key on the wire, which is never used twice.
    on_wire: String,
    /// Its key in the journal.
    key: String,
    answer: Option<Json>,
}

impl Tasks {
    /// Takes the work over. When this returns, the task can be found.
    pub(crate) fn start(
        &self,
        server: &Arc<Server>,
        registry: &Arc<Registry>,
        mut job: Job,
        work: Work,
    ) -> Result<TaskView, Fault> {
        let limits = &server.limits;
        let now_ms = server.world.now_ms();
        let holder = Holder::new(&job.caller.principal, &job.line);
        let bytes = job.call.doc().text().len();
        let mut tasks = self.lock();
        tasks.retain(|_, task| {
            let expired = task.expired(now_ms);
            if expired {
                task.stop();
            }
            !expired
        });
        let own = tasks.values().filter(|task| task.holder == holder && task.is_open()).count();
        if own >= limits.tasks_per_principal_max {
            return Err(Fault::Busy { retry_after_ms: limits.task_poll_ms });
        }
        let kept = |tasks: &HashMap<String, Arc<Task>>| -> usize {
            tasks.values().map(|task| task.bytes.load(Ordering::Relaxed)).sum()
        };
        while tasks.len() >= limits.tasks_max || kept(&tasks) + bytes > limits.tasks_bytes_max {
            // Results that have been read make way before work is turned away; others are owed.
            let read = tasks.values().filter(|task| task.read.load(Ordering::Relaxed));
            let oldest = read.min_by_key(|task| task.created_ms);
            let Some(oldest) = oldest.map(|task| task.id.clone()) else {
                return Err(Fault::Busy { retry_after_ms: limits.task_poll_ms });
            };
            tasks.remove(&oldest);
        }
        let wished = job.task.and_then(|wish| wish.ttl_ms).unwrap_or(limits.task_ttl_ms);
        let mut random = [0; 16];
        server.world.fill(&mut random);
        let task = Arc::new(Task {
            id: hex(&random),
            holder,
            bytes: AtomicUsize::new(bytes),
            created_ms: now_ms,
            ttl_ms: wished.min(limits.task_ttl_ms),
            poll_ms: limits.task_poll_ms,
            state: Mutex::new(State {
                detail: Detail::Working,
                updated_ms: now_ms,
                questions: Vec::new(),
                refused: None,
                used: Vec::new(),
                stop: None,
            }),
            read: AtomicBool::new(false),
            changed: Notify::new(),
        });
        tasks.insert(task.id.clone(), task.clone());
        drop(tasks);
        let view = task.view();
        // Progress and log messages have nowhere to go once the call is answered.
        job.emit = Emit::silent();
        let (server, registry, driven) = (server.clone(), registry.clone(), task.clone());
        let handle = tokio::spawn(async move {
            let work = drive(&server, &registry, &driven, job, work);
            let time_is_up = Fault::Unknown { what: Thing::Task, name: driven.id.clone() };
            let ttl = Duration::from_millis(driven.ttl_ms);
            let detail = tokio::time::timeout(ttl, work).await.unwrap_or(Detail::Failed(time_is_up));
            driven.set(&server, detail);
        });
        let handle = handle.abort_handle();
        task.lock().stop = Some(handle);
        Ok(view)
    }

    /// The task, if it is this caller's.
    pub(crate) fn find(&self, id: &str, who: &Holder, now_ms: u64) -> Result<Arc<Task>, Fault> {
        let mut tasks = self.lock();
        match tasks.get(id) {
            Some(task) if task.expired(now_ms) => {
                task.stop();
                tasks.remove(id);
            }
            Some(task) if task.holder == *who => return Ok(task.clone()),
            Some(_) | None => {}
        }
        Err(Fault::Unknown { what: Thing::Task, name: id.into() })
    }

    /// This caller's tasks, oldest first.
    pub(crate) fn of(&self, who: &Holder, now_ms: u64) -> Vec<TaskView> {
        let tasks = self.lock();
        let own = tasks.values().filter(|task| task.holder == *who && !task.expired(now_ms));
        let mut views: Vec<TaskView> = own.map(|task| task.view()).collect();
        views.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        views
    }

    pub(crate) fn view(&self, id: &str) -> Option<TaskView> {
        self.lock().get(id).map(|task| task.view())
    }

    pub(crate) fn close(&self) {
        for task in self.lock().values() {
            task.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    pub(crate) fn view(&self) -> TaskView {
        let state = self.lock();
        if !matches!(state.detail, Detail::Working | Detail::Input(_)) {
            self.read.store(true, Ordering::Relaxed);
        }
        TaskView {
            id: self.id.clone(),
            created_ms: self.created_ms,
            updated_ms: state.updated_ms,
            ttl_ms: self.ttl_ms,
            poll_ms: self.poll_ms,
            detail: state.detail.clone(),
        }
    }

    /// Takes answers to open questions; others are ignored. What is answered is no longer asked, from now on.
    pub(crate) fn update(&self, server: &Server, answers: Vec<(String, Json)>) {
        let mut state = self.lock();
        let Detail::Input(asks) = &state.detail else { return };
        let mut open = asks.clone();
        for (key, answer) in answers {
            if let Some(question) =
                state.questions.iter_mut().find(|q| q.on_wire == key && q.answer.is_none())
            {
                question.answer = Some(answer);
                open = open.without(&key);
            }
        }
        state.detail = if open.is_empty() { Detail::Working } else { Detail::Input(open) };
        state.updated_ms = server.world.now_ms();
        drop(state);
        self.changed.notify_waiters();
        server.hub.tell_task(&self.id);
    }

    /// Stops the work. What is over stays as it is.
    pub(crate) fn cancel(&self, server: &Server) {
        let stopped = {
            let mut state = self.lock();
            let open = matches!(state.detail, Detail::Working | Detail::Input(_));
            if open {
                state.detail = Detail::Cancelled;
                state.updated_ms = server.world.now_ms();
            }
            if open { state.stop.take() } else { None }
        };
        if let Some(stop) = stopped {
            stop.abort();
            self.changed.notify_waiters();
            server.hub.tell_task(&self.id);
        }
    }

    /// Waits until the task is over.
    pub(crate) async fn over(&self) -> TaskView {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view();
            if !matches!(view.detail, Detail::Working | Detail::Input(_)) {
                return view;
            }
            changed.await;
        }
    }

    /// Waits like [`Task::over`], and puts the task's questions to the client that waits.
    pub(crate) async fn over_asking(&self, server: &Server, live: &Live, emit: &Emit) -> TaskView {
        let mut asked: Vec<String> = Vec::new();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view();
            let Detail::Input(asks) = &view.detail else {
                if matches!(view.detail, Detail::Working) {
                    changed.await;
                    continue;
                }
                return view;
            };
            let mut waiting = Vec::new();
            for (key, ask) in asks.iter().filter(|(key, _)| !asked.iter().any(|a| a == key)) {
                let (id, answer) = live.ask();
                emit.ask(id, ask.clone(), Some(&self.id));
                waiting.push((key.to_owned(), answer));
            }
            if waiting.is_empty() {
                changed.await;
            }
            for (key, answer) in waiting {
                // The task may be over before its questions are answered: cancelled, or answered elsewhere.
                let answer = tokio::select! {
                    answer = answer => answer,
                    over = self.over() => return over,
                };
                match answer {
                    Ok(Ok(answer)) => self.update(server, vec![(key.clone(), answer)]),
                    Ok(Err(message)) => self.refuse(message),
                    // Whoever was asked is gone; somebody else may come and wait.
                    Err(_) => {}
                }
                asked.push(key);
            }
        }
    }

    fn set(&self, server: &Server, detail: Detail) {
        {
            let mut state = self.lock();
            if matches!(state.detail, Detail::Cancelled) {
                return;
            }
            if let Detail::Completed(reply) = &detail {
                self.bytes.store(reply.bytes(), Ordering::Relaxed);
            }
            state.detail = detail;
            state.updated_ms = server.world.now_ms();
        }
        self.changed.notify_waiters();
        server.hub.tell_task(&self.id);
    }

    /// The client will not answer: the work goes no further.
    fn refuse(&self, message: String) {
        self.lock().refused = Some(message);
        self.changed.notify_waiters();
    }

    /// Puts questions up and waits for all answers.
    async fn ask(&self, server: &Server, asks: &Asks) -> Result<Vec<(String, Json)>, String> {
        let mut shown = Asks::default();
        {
            let mut state = self.lock();
            for (key, ask) in asks.iter() {
                let mut on_wire = key.to_owned();
                let mut n = 2;
                while state.used.contains(&on_wire) {
                    on_wire = format!("{key}-{n}");
                    n += 1;
                }
                state.used.push(on_wire.clone());
                state.questions.push(Question {
                    on_wire: on_wire.clone(),
                    key: key.to_owned(),
                    answer: None,
                });
                shown = shown.and(on_wire, ask.clone());
            }
        }
        self.set(server, Detail::Input(shown));
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on a ring is not missed, even before the first poll.
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(message) = state.refused.take() {
                    return Err(message);
                }
                if state.questions.iter().all(|question| question.answer.is_some()) {
                    let answered = state.questions.drain(..);
                    return Ok(answered
                        .filter_map(|question| Some((question.key, question.answer?)))
                        .collect());
                }
            }
            changed.await;
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.lock().detail, Detail::Working | Detail::Input(_))
    }

    fn expired(&self, now_ms: u64) -> bool {
        now_ms >= self.created_ms.saturating_add(self.ttl_ms)
    }

    fn stop(&self) {
        if let Some(stop) = self.lock().stop.take() {
            stop.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stop();
    }
}

/// 2025-11-25, Result Retrieval: "exactly what the underlying request would have returned".
fn concluded(
    server: &Server,
    registry: &Registry,
    call: &Call,
    came_of_it: Result<Reply, Refusal>,
) -> Detail {
    match conclude(server, registry, call, came_of_it) {
        Ok(reply) => Detail::Completed(reply),
        Err(fault) => Detail::Failed(fault),
    }
}

/// Runs a task to its end.
async fn drive(server: &Server, registry: &Registry, task: &Task, mut job: Job, work: Work) -> Detail {
    let mut outcome = Caught(work).await;
    loop {
        match outcome {
            Outcome::Done(reply) => return concluded(server, registry, &job.call, Ok(reply)),
            Outcome::Refused(problem) => {
                return concluded(server, registry, &job.call, Err(Refusal::Problem(problem)));
            }
            Outcome::Failed(fault) => {
                return concluded(server, registry, &job.call, Err(Refusal::Fault(fault)));
            }
            Outcome::Detach(work) => outcome = Caught(work).await,
            Outcome::NeedInput(asks) => {
                let lacking = job.caller.caps.lacks(asks.needs());
                if !lacking.is_empty() {
                    return Detail::Failed(Fault::MissingCapability(lacking));
                }
                job.journal.forget(&asks);
                job.journal.round += 1;
                if job.journal.round > server.limits.rounds_max {
                    return Detail::Failed(Fault::Bug { log: "a task asked too often".into() });
                }
                match task.ask(server, &asks).await {
                    Ok(answers) => {
                        for (key, answer) in answers {
                            job.journal.record(&key, answer);
                        }
                    }
                    Err(message) => {
                        let problem = Box::new(not_answered(&message));
                        return concluded(server, registry, &job.call, Err(Refusal::Problem(problem)));
                    }
                }
                outcome = again(server, registry, &job).await;
            }
        }
    }
}
