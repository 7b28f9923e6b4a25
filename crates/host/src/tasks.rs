//! Calls that go on after they were answered.
//!
//! A task belongs to whoever called; to anybody else it does not exist. It ends when its work does, when it
//! is cancelled, or when its time is up. Questions inside a task wait here for `tasks/update`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use json::Json;
use spile_core::text::hex;
use spile_core::{
    Call, CallError, CallFuture, CallResult, EventSink, InputRequests, ItemKind, Outcome, Principal,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::encode::{TaskSnapshot, TaskStatus};

use crate::connection_state::{ConnectionState, ReplyChannel};
use crate::panic_guard::CatchPanic;
use crate::pipeline::{CallFailure, CallJob, finish_task_call, input_refused_error, run_task_round};
use crate::registry::Registry;
use crate::server::Server;

/// Whose a task is. To anybody else it does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    Named(Principal),
    /// Nobody in particular, but always the same: a session, or a line among others.
    Session([u8; 16]),
    /// Whoever knows the id: over a pipe the one client there is, over HTTP a caller who proved nothing.
    Bearer,
}

impl TaskOwner {
    pub(crate) fn new(principal: &Principal, line: &ReplyChannel) -> Self {
        match (principal, line) {
            (Principal::Named(_), _) => Self::Named(principal.clone()),
            (Principal::Anonymous, ReplyChannel::Session(ticket)) => Self::Session(ticket.key()),
            (Principal::Anonymous, ReplyChannel::Pipe(live)) => {
                live.key().map_or(Self::Bearer, Self::Session)
            }
            (Principal::Anonymous, ReplyChannel::Stateless) => Self::Bearer,
        }
    }
}

#[derive(Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

pub(crate) struct Task {
    id: String,
    owner: TaskOwner,
    /// What it keeps: its request, then its result.
    retained_bytes: AtomicUsize,
    created_ms: u64,
    ttl_ms: u64,
    poll_ms: u64,
    state: Mutex<TaskInner>,
    /// Whether its end has been told to its holder.
    result_read: AtomicBool,
    /// Rung when answers came, and when the state changed.
    changed_notify: Notify,
}

struct TaskInner {
    status: TaskStatus,
    updated_ms: u64,
    input_requests: Vec<TaskInputRequest>,
    /// What the client said instead of an answer.
    refusal: Option<String>,
    /// Keys that were ever used: one must not mean two questions.
    used_keys: Vec<String>,
    abort_handle: Option<AbortHandle>,
}

/// A question of a task.
struct TaskInputRequest {
    /// Its key on the wire, which is never used twice.
    wire_key: String,
    /// Its key in the journal.
    journal_key: String,
    response: Option<Json>,
}

impl Tasks {
    /// Takes the work over. When this returns, the task can be found.
    pub(crate) fn start(
        &self,
        server: &Arc<Server>,
        registry: &Arc<Registry>,
        mut job: CallJob,
        work: CallFuture,
    ) -> Result<TaskSnapshot, CallError> {
        let limits = &server.limits;
        let now_ms = server.platform.now_ms();
        let holder = TaskOwner::new(&job.caller.principal, &job.reply_channel);
        let bytes = job.call.doc().text().len();
        let mut tasks = self.lock();
        tasks.retain(|_, task| {
            let expired = task.is_expired(now_ms);
            if expired {
                task.abort();
            }
            !expired
        });
        let own = tasks.values().filter(|task| task.owner == holder && task.is_active()).count();
        if own >= limits.tasks_per_principal_max {
            return Err(CallError::Busy { retry_after_ms: limits.task_poll_interval_ms });
        }
        let kept = |tasks: &HashMap<String, Arc<Task>>| -> usize {
            tasks.values().map(|task| task.retained_bytes.load(Ordering::Relaxed)).sum()
        };
        while tasks.len() >= limits.tasks_max || kept(&tasks) + bytes > limits.tasks_bytes_max {
            // Results that have been read make way before work is turned away; others are owed.
            let read = tasks.values().filter(|task| task.result_read.load(Ordering::Relaxed));
            let oldest = read.min_by_key(|task| task.created_ms);
            let Some(oldest) = oldest.map(|task| task.id.clone()) else {
                return Err(CallError::Busy { retry_after_ms: limits.task_poll_interval_ms });
            };
            tasks.remove(&oldest);
        }
        let wished = job.task_metadata.and_then(|wish| wish.ttl_ms).unwrap_or(limits.task_ttl_ms);
        let mut random = [0; 16];
        server.platform.fill_random(&mut random);
        let task = Arc::new(Task {
            id: hex(&random),
            owner: holder,
            retained_bytes: AtomicUsize::new(bytes),
            created_ms: now_ms,
            ttl_ms: wished.min(limits.task_ttl_ms),
            poll_ms: limits.task_poll_interval_ms,
            state: Mutex::new(TaskInner {
                status: TaskStatus::Working,
                updated_ms: now_ms,
                input_requests: Vec::new(),
                refusal: None,
                used_keys: Vec::new(),
                abort_handle: None,
            }),
            result_read: AtomicBool::new(false),
            changed_notify: Notify::new(),
        });
        tasks.insert(task.id.clone(), task.clone());
        drop(tasks);
        let view = task.view();
        // Progress and log messages have nowhere to go once the call is answered.
        job.events = EventSink::disabled();
        let (server, registry, driven) = (server.clone(), registry.clone(), task.clone());
        let handle = tokio::spawn(async move {
            let work = run_to_completion(&server, &registry, &driven, job, work);
            let time_is_up = CallError::UnknownItem { kind: ItemKind::Task, name: driven.id.clone() };
            let ttl = Duration::from_millis(driven.ttl_ms);
            let detail = tokio::time::timeout(ttl, work).await.unwrap_or(TaskStatus::Failed(time_is_up));
            driven.set_status(&server, detail);
        });
        let handle = handle.abort_handle();
        task.lock().abort_handle = Some(handle);
        Ok(view)
    }

    /// The task, if it is this caller's.
    pub(crate) fn find(&self, id: &str, who: &TaskOwner, now_ms: u64) -> Result<Arc<Task>, CallError> {
        let mut tasks = self.lock();
        match tasks.get(id) {
            Some(task) if task.is_expired(now_ms) => {
                task.abort();
                tasks.remove(id);
            }
            Some(task) if task.owner == *who => return Ok(task.clone()),
            Some(_) | None => {}
        }
        Err(CallError::UnknownItem { kind: ItemKind::Task, name: id.into() })
    }

    /// This caller's tasks, oldest first.
    pub(crate) fn list_for(&self, who: &TaskOwner, now_ms: u64) -> Vec<TaskSnapshot> {
        let tasks = self.lock();
        let own = tasks.values().filter(|task| task.owner == *who && !task.is_expired(now_ms));
        let mut views: Vec<TaskSnapshot> = own.map(|task| task.view()).collect();
        views.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        views
    }

    pub(crate) fn view(&self, id: &str) -> Option<TaskSnapshot> {
        self.lock().get(id).map(|task| task.view())
    }

    pub(crate) fn close(&self) {
        for task in self.lock().values() {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    pub(crate) fn view(&self) -> TaskSnapshot {
        let state = self.lock();
        if !matches!(state.status, TaskStatus::Working | TaskStatus::InputRequired(_)) {
            self.result_read.store(true, Ordering::Relaxed);
        }
        TaskSnapshot {
            id: self.id.clone(),
            created_ms: self.created_ms,
            updated_ms: state.updated_ms,
            ttl_ms: self.ttl_ms,
            poll_interval_ms: self.poll_ms,
            status: state.status.clone(),
        }
    }

    /// Takes answers to open questions; others are ignored. What is answered is no longer asked, from now on.
    pub(crate) fn provide_input(&self, server: &Server, answers: Vec<(String, Json)>) {
        let mut state = self.lock();
        let TaskStatus::InputRequired(asks) = &state.status else { return };
        let mut open = asks.clone();
        for (key, answer) in answers {
            if let Some(question) =
                state.input_requests.iter_mut().find(|q| q.wire_key == key && q.response.is_none())
            {
                question.response = Some(answer);
                open = open.without(&key);
            }
        }
        state.status = if open.is_empty() { TaskStatus::Working } else { TaskStatus::InputRequired(open) };
        state.updated_ms = server.platform.now_ms();
        drop(state);
        self.changed_notify.notify_waiters();
        server.subscriptions.notify_task(&self.id);
    }

    /// Stops the work. What is over stays as it is.
    pub(crate) fn cancel(&self, server: &Server) {
        let stopped = {
            let mut state = self.lock();
            let open = matches!(state.status, TaskStatus::Working | TaskStatus::InputRequired(_));
            if open {
                state.status = TaskStatus::Cancelled;
                state.updated_ms = server.platform.now_ms();
            }
            if open { state.abort_handle.take() } else { None }
        };
        if let Some(stop) = stopped {
            stop.abort();
            self.changed_notify.notify_waiters();
            server.subscriptions.notify_task(&self.id);
        }
    }

    /// Waits until the task is over.
    pub(crate) async fn wait_until_done(&self) -> TaskSnapshot {
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view();
            if !matches!(view.status, TaskStatus::Working | TaskStatus::InputRequired(_)) {
                return view;
            }
            changed.await;
        }
    }

    /// Waits like [`Task::over`], and puts the task's questions to the client that waits.
    pub(crate) async fn wait_until_done_relaying_input(
        &self,
        server: &Server,
        live: &ConnectionState,
        emit: &EventSink,
    ) -> TaskSnapshot {
        let mut asked: Vec<String> = Vec::new();
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view();
            let TaskStatus::InputRequired(asks) = &view.status else {
                if matches!(view.status, TaskStatus::Working) {
                    changed.await;
                    continue;
                }
                return view;
            };
            let mut waiting = Vec::new();
            for (key, ask) in asks.iter().filter(|(key, _)| !asked.iter().any(|a| a == key)) {
                let (id, answer) = live.new_request();
                emit.request_input(id, ask.clone(), Some(&self.id));
                waiting.push((key.to_owned(), answer));
            }
            if waiting.is_empty() {
                changed.await;
            }
            for (key, answer) in waiting {
                // The task may be over before its questions are answered: cancelled, or answered elsewhere.
                let answer = tokio::select! {
                    answer = answer => answer,
                    over = self.wait_until_done() => return over,
                };
                match answer {
                    Ok(Ok(answer)) => self.provide_input(server, vec![(key.clone(), answer)]),
                    Ok(Err(message)) => self.refuse_input(message),
                    // Whoever was asked is gone; somebody else may come and wait.
                    Err(_) => {}
                }
                asked.push(key);
            }
        }
    }

    fn set_status(&self, server: &Server, detail: TaskStatus) {
        {
            let mut state = self.lock();
            if matches!(state.status, TaskStatus::Cancelled) {
                return;
            }
            if let TaskStatus::Completed(reply) = &detail {
                self.retained_bytes.store(reply.size_bytes(), Ordering::Relaxed);
            }
            state.status = detail;
            state.updated_ms = server.platform.now_ms();
        }
        self.changed_notify.notify_waiters();
        server.subscriptions.notify_task(&self.id);
    }

    /// The client will not answer: the work goes no further.
    fn refuse_input(&self, message: String) {
        self.lock().refusal = Some(message);
        self.changed_notify.notify_waiters();
    }

    /// Puts questions up and waits for all answers.
    async fn request_input(
        &self,
        server: &Server,
        asks: &InputRequests,
    ) -> Result<Vec<(String, Json)>, String> {
        let mut shown = InputRequests::default();
        {
            let mut state = self.lock();
            for (key, ask) in asks.iter() {
                let mut on_wire = key.to_owned();
                let mut n = 2;
                while state.used_keys.contains(&on_wire) {
                    on_wire = format!("{key}-{n}");
                    n += 1;
                }
                state.used_keys.push(on_wire.clone());
                state.input_requests.push(TaskInputRequest {
                    wire_key: on_wire.clone(),
                    journal_key: key.to_owned(),
                    response: None,
                });
                shown = shown.with(on_wire, ask.clone());
            }
        }
        self.set_status(server, TaskStatus::InputRequired(shown));
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            // From here on a ring is not missed, even before the first poll.
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(message) = state.refusal.take() {
                    return Err(message);
                }
                if state.input_requests.iter().all(|question| question.response.is_some()) {
                    let answered = state.input_requests.drain(..);
                    return Ok(answered
                        .filter_map(|question| Some((question.journal_key, question.response?)))
                        .collect());
                }
            }
            changed.await;
        }
    }

    fn is_active(&self) -> bool {
        matches!(self.lock().status, TaskStatus::Working | TaskStatus::InputRequired(_))
    }

    fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.created_ms.saturating_add(self.ttl_ms)
    }

    fn abort(&self) {
        if let Some(stop) = self.lock().abort_handle.take() {
            stop.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort();
    }
}

/// 2025-11-25, Result Retrieval: "exactly what the underlying request would have returned".
fn final_status(
    server: &Server,
    registry: &Registry,
    call: &Call,
    came_of_it: Result<CallResult, CallFailure>,
) -> TaskStatus {
    match finish_task_call(server, registry, call, came_of_it) {
        Ok(reply) => TaskStatus::Completed(reply),
        Err(fault) => TaskStatus::Failed(fault),
    }
}

/// Runs a task to its end.
async fn run_to_completion(
    server: &Server,
    registry: &Registry,
    task: &Task,
    mut job: CallJob,
    work: CallFuture,
) -> TaskStatus {
    let mut outcome = CatchPanic(work).await;
    loop {
        match outcome {
            Outcome::Done(reply) => return final_status(server, registry, &job.call, Ok(reply)),
            Outcome::ToolFailed(problem) => {
                return final_status(server, registry, &job.call, Err(CallFailure::Tool(problem)));
            }
            Outcome::Failed(fault) => {
                return final_status(server, registry, &job.call, Err(CallFailure::Call(fault)));
            }
            Outcome::Detach(work) => outcome = CatchPanic(work).await,
            Outcome::InputRequired(asks) => {
                let lacking = job.caller.capabilities.missing(asks.required_capabilities());
                if !lacking.is_empty() {
                    return TaskStatus::Failed(CallError::MissingCapability(lacking));
                }
                job.journal.remove_all(&asks);
                job.journal.round += 1;
                if job.journal.round > server.limits.input_rounds_max {
                    return TaskStatus::Failed(CallError::Internal {
                        detail: "a task asked too often".into(),
                    });
                }
                match task.request_input(server, &asks).await {
                    Ok(answers) => {
                        for (key, answer) in answers {
                            job.journal.record(&key, answer);
                        }
                    }
                    Err(message) => {
                        let problem = Box::new(input_refused_error(&message));
                        return final_status(server, registry, &job.call, Err(CallFailure::Tool(problem)));
                    }
                }
                outcome = run_task_round(server, registry, &job).await;
            }
        }
    }
}
