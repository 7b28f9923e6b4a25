//! Tasks: calls that continue after their request was answered.
//!
//! A task belongs to its caller; for every other caller it does not exist. It ends when its work ends, when it is
//! cancelled, or when its time to live is over. Its input requests wait here for `tasks/update`.
//!
//! ```text
//! mod.rs       the tasks that this process runs or has run, and their states
//! record.rs    a task as bytes for the store
//! answers.rs   answers to requests about them
//! durable.rs   what the store has of each task; tasks that an earlier process left are continued
//! inbox.rs     what a client sent to a process that does not run the task
//! ```

mod answers;
mod durable;
mod inbox;
mod record;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use json::Json;
use spile_core::text::hex;
use spile_core::{
    CallError, CallFuture, CallResult, DetachedWork, EventSink, InputRequest, InputRequests, ItemKind,
    Journal, Limits, Principal, ToolError, ToolResult,
};
use state::keyring::digest_parts;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use wire::encode::{TaskSnapshot, TaskStatus};

use crate::caller_key::network_of;
use crate::connection_state::{ConnectionState, ReplyChannel};
use crate::input_requests::{sleep_until_or_forever, wake_at};
use crate::input_responses::{ExpectedResponse, explain_rejection};
use crate::observer::{CallObservation, CallStatus};
use crate::open_requests::{ClientGone, OpenRequests};
use crate::pipeline::{
    CallJob, CallResponse, CallStage, execute_call, input_refused_error, invalid_response_error,
    next_registry,
};
use crate::registry::Registry;
use crate::server::{CallerIdentity, Server};
use answers::task_elsewhere;
pub(crate) use answers::{
    answer_stored_task, answer_task, await_task_result, find_for_result, list_tasks, task_state,
};
use durable::FoundTask;
use record::TaskCall;

/// The owner of a task. For every other caller the task does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    Named(Principal),
    /// An anonymous caller with a session.
    Session([u8; 16]),
    /// Any anonymous caller who knows the id: a pipe's client, which may have started the server anew since, lists only the tasks
    /// of its connection.
    Pipe([u8; 16]),
    /// Any anonymous caller who knows the id: a stateless HTTP client, from this network.
    AnyAnonymous(Option<IpAddr>),
}

impl TaskOwner {
    pub(crate) fn new(identity: &CallerIdentity, reply_channel: &ReplyChannel) -> Self {
        match (&identity.principal, reply_channel) {
            (principal @ Principal::Named(_), _) => Self::Named(principal.clone()),
            (Principal::Anonymous, ReplyChannel::Session(ticket)) => Self::Session(ticket.key()),
            (Principal::Anonymous, ReplyChannel::Pipe(connection)) => match connection.key() {
                Some(key) if connection.is_http_sse => Self::Session(key),
                Some(key) => Self::Pipe(key),
                None => Self::AnyAnonymous(None),
            },
            (Principal::Anonymous, ReplyChannel::NoSession) => {
                Self::AnyAnonymous(identity.address.map(network_of))
            }
        }
    }

    /// A new task id. Whoever knows the id of an anonymous caller's task may use it from any network, but its records must
    /// count for the network that it was started from: one caller must not use up the store for all. So the last bytes of
    /// the id say which share of the store it is in.
    fn new_task_id(&self, server: &Server) -> String {
        let mut id = [0; 16];
        server.platform.fill_random(&mut id);
        if let Self::AnyAnonymous(Some(network)) = self {
            let network = network.to_string();
            let share = server.keyring.hide_name(&[b"network", network.as_bytes()]);
            id[16 - SHARE_BYTES..].copy_from_slice(&share[..SHARE_BYTES]);
        }
        hex(&id)
    }

    /// Names the owner of the task with this id in the store, among the callers of this server: others may use the same
    /// store.
    fn digest(&self, server: &Server, id: &str) -> OwnerDigest {
        let scope = server.store_scope.as_bytes();
        match self {
            Self::Named(principal) => digest_parts(&[b"principal", scope, principal.id().as_bytes()]),
            Self::Session(key) => digest_parts(&[b"session", scope, key]),
            Self::Pipe(_) | Self::AnyAnonymous(_) => {
                let share = id.len().checked_sub(2 * SHARE_BYTES).and_then(|start| id.get(start..));
                digest_parts(&[b"anonymous", scope, share.unwrap_or_default().as_bytes()])
            }
        }
    }

    /// Names those who may list their tasks, and for whom the limits count: the owner, one connection of it, or a network.
    fn lister_digest(&self, server: &Server) -> OwnerDigest {
        let scope = server.store_scope.as_bytes();
        match self {
            Self::Pipe(key) => digest_parts(&[b"pipe", scope, key]),
            Self::AnyAnonymous(network) => {
                let network = network.map(|network| network.to_string()).unwrap_or_default();
                digest_parts(&[b"network", scope, network.as_bytes()])
            }
            Self::Named(_) | Self::Session(_) => self.digest(server, ""),
        }
    }
}

/// Enough to tell networks apart; 14 bytes of an id stay random.
const SHARE_BYTES: usize = 2;

type OwnerDigest = [u8; 32];

#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Mutex<HashMap<String, Arc<Task>>>,
    /// Identifies this process where it holds a lease.
    holder: std::sync::OnceLock<[u8; 16]>,
    /// Whether the process is about to end: what it let go of is not for it to continue.
    is_released: AtomicBool,
}

pub(crate) struct Task {
    id: String,
    owner: OwnerDigest,
    /// [`TaskOwner::lister_digest`]. Limits count for it, too.
    lister: OwnerDigest,
    /// What it runs, for the store. `None` once it has ended.
    call: Option<TaskCall>,
    /// Size of its request, and later of its result.
    retained_bytes: AtomicUsize,
    created_ms: u64,
    ttl_ms: u64,
    poll_ms: u64,
    state: Mutex<TaskState>,
    /// Whether the result was sent to its owner.
    result_delivered: AtomicBool,
    /// Whether the store has the result, too.
    is_kept: AtomicBool,
    /// Notified when responses arrive and when the status changes.
    changed_notify: Notify,
    /// Notified when the store must be written.
    dirty_notify: Notify,
    /// Notified when the store has a message of the client.
    inbox_notify: Notify,
    /// How many of the changes in [`TaskState::changes`] the store has.
    saved: watch::Sender<SavedChanges>,
    /// The sequence of the record that this process wrote last, or found.
    written: AtomicU64,
    /// Until then, no other process runs it.
    leased_until_ms: AtomicU64,
    /// Whether another process took it, so that its work here is dropped.
    goes_on_elsewhere: AtomicBool,
    /// Held while a state is encoded and written.
    write_order: tokio::sync::Mutex<()>,
}

/// What the store has of a task.
#[derive(Debug, Clone, Copy, Default)]
struct SavedChanges {
    count: u64,
    /// This process writes no more: another one has the task, or may take it.
    is_over: bool,
}

struct TaskState {
    status: TaskStatus,
    updated_ms: u64,
    /// The number of changes by requests of the client.
    changes: u64,
    /// The answers so far, and the last checkpoint.
    journal: Journal,
    /// The last checkpoint was too large to keep: after a restart the task could not go on where it was.
    is_unresumable: bool,
    input_requests: Vec<TaskInputRequest>,
    /// Why the task cannot go on: the client returned an error, or too often an invalid response.
    refusal: Option<ToolError>,
    /// Number of responses that did not match their request.
    rejections: u32,
    /// Every key used so far: two requests must not share a key.
    used_keys: Vec<String>,
    /// How its work ended, until the store has it. A process that stops must not leave the task as if it still ran: the next
    /// one would do its work again.
    end: Option<TaskStatus>,
    abort_handle: Option<AbortHandle>,
}

/// An input request of a task.
struct TaskInputRequest {
    /// Its key on the wire, used only once per task.
    wire_key: String,
    /// Its key in the journal.
    journal_key: String,
    request: InputRequest,
    response: Option<Json>,
}

impl Tasks {
    /// Starts a task for the rest of a call. When this returns, the client can find the task, also after a restart.
    pub(crate) async fn start(
        &self,
        server: &Arc<Server>,
        registry: &Arc<Registry>,
        job: CallJob,
        work: DetachedWork,
    ) -> Result<TaskSnapshot, CallError> {
        let limits = &server.limits;
        let now_ms = server.platform.now_ms();
        let owner = TaskOwner::new(&job.identity, &job.reply_channel);
        let id = owner.new_task_id(server);
        let (owner, lister) = (owner.digest(server, &id), owner.lister_digest(server));
        let bytes = job.call.doc().text().len();
        let ttl_ms = job.task_metadata.and_then(|metadata| metadata.ttl_ms).unwrap_or(limits.task_ttl_ms);
        // Whatever uses it as an idempotency key must find the same one after a restart.
        job.journal.call_id(&*server.platform);
        let task = Arc::new(Task {
            id,
            owner,
            lister,
            call: Some(TaskCall::new(registry, &job)),
            retained_bytes: AtomicUsize::new(bytes),
            created_ms: now_ms,
            ttl_ms: ttl_ms.min(limits.task_ttl_ms),
            poll_ms: limits.task_poll_interval_ms,
            state: Mutex::new(TaskState::new(TaskStatus::Working, job.journal.clone(), now_ms)),
            result_delivered: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            changed_notify: Notify::new(),
            dirty_notify: Notify::new(),
            inbox_notify: Notify::new(),
            saved: watch::Sender::default(),
            written: AtomicU64::new(0),
            leased_until_ms: AtomicU64::new(0),
            goes_on_elsewhere: AtomicBool::new(false),
            write_order: tokio::sync::Mutex::default(),
        });
        {
            let mut tasks = self.lock();
            evict_finished(&mut tasks, &lister, bytes, limits, now_ms)?;
            tasks.insert(task.id.clone(), task.clone());
        }
        // Tasks extension: a task must be durable before its creation is answered.
        let mut creation = Creation { server, task: &task, is_done: false };
        task.create_record(server).await?;
        creation.is_done = true;
        let view = task.snapshot();
        let work = work.start(task.checkpoints(server));
        task.spawn(server, registry, job, Some(work));
        Ok(view)
    }

    /// Returns the task if it belongs to this owner.
    pub(crate) fn find(&self, server: &Server, id: &str, owner: &TaskOwner) -> Result<Arc<Task>, CallError> {
        let now_ms = server.platform.now_ms();
        let mut tasks = self.lock();
        match tasks.get(id) {
            Some(task) if task.is_expired(now_ms) => {
                task.abort();
                tasks.remove(id);
            }
            Some(task) if task.owner == owner.digest(server, id) => return Ok(task.clone()),
            Some(_) | None => {}
        }
        Err(CallError::UnknownItem { kind: ItemKind::Task, name: id.into() })
    }

    pub(crate) fn snapshot(&self, id: &str) -> Option<TaskSnapshot> {
        self.lock().get(id).map(|task| task.snapshot())
    }

    /// Another process has the task now.
    fn forget(&self, task: &Arc<Task>) {
        let mut tasks = self.lock();
        if tasks.get(&task.id).is_some_and(|known| Arc::ptr_eq(known, task)) {
            tasks.remove(&task.id);
        }
    }

    pub(crate) fn close(&self) {
        for task in self.lock().values() {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that is being created. If its client goes away meanwhile, or the store does not take it, nobody knows its id: it
/// must neither count for its owner nor be run by another process.
struct Creation<'a> {
    server: &'a Arc<Server>,
    task: &'a Arc<Task>,
    is_done: bool,
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.server.tasks.lock().remove(&self.task.id);
        let (server, task) = (self.server.clone(), self.task.clone());
        // Without a runtime the process ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { task.delete_record(&server).await });
        }
    }
}

/// Drops expired tasks, then tasks whose result was delivered, then those whose result the store has, until one more task
/// of this size fits the limits.
fn evict_finished(
    tasks: &mut HashMap<String, Arc<Task>>,
    lister: &OwnerDigest,
    bytes: usize,
    limits: &Limits,
    now_ms: u64,
) -> Result<(), CallError> {
    tasks.retain(|_, task| {
        let expired = task.is_expired(now_ms);
        if expired {
            task.abort();
        }
        !expired
    });
    let busy = || CallError::Busy { retry_after_ms: limits.task_poll_interval_ms };
    let active = tasks.values().filter(|task| task.lister == *lister && task.is_active()).count();
    if active >= limits.tasks_per_principal_max {
        return Err(busy());
    }
    let retained_bytes = |tasks: &HashMap<String, Arc<Task>>| -> usize {
        tasks.values().map(|task| task.retained_bytes.load(Ordering::Relaxed)).sum()
    };
    while tasks.len() >= limits.tasks_max || retained_bytes(tasks) + bytes > limits.tasks_bytes_max {
        // A result that was not delivered and is nowhere else stays: its owner still wants it.
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let spare = tasks.values().filter(|task| is_set(&task.result_delivered) || is_set(&task.is_kept));
        let oldest = spare.min_by_key(|task| (!is_set(&task.result_delivered), task.created_ms));
        let oldest = oldest.map(|task| task.id.clone());
        tasks.remove(&oldest.ok_or_else(busy)?);
    }
    Ok(())
}

/// Reports the end of a task to the observer of calls.
struct TaskRecord {
    server: Arc<Server>,
    task: Arc<Task>,
    observation: Option<Arc<CallObservation>>,
}

impl TaskRecord {
    fn report(&self, status: &TaskStatus) {
        let Some(observation) = &self.observation else { return };
        let status = match status {
            TaskStatus::Completed(result) => CallStatus::Result(result),
            TaskStatus::Failed(error) => CallStatus::Error(error),
            TaskStatus::Cancelled => CallStatus::Cancelled,
            // It goes on, in another process.
            TaskStatus::Working | TaskStatus::InputRequired(_) => return,
        };
        observation.report_status(&self.server, status, 0);
    }
}

/// A task that is cancelled, or whose caller is gone, is dropped before its work ends.
impl Drop for TaskRecord {
    fn drop(&mut self) {
        let status = {
            let state = self.task.lock();
            state.end.as_ref().unwrap_or(&state.status).clone()
        };
        self.report(&status);
    }
}

impl TaskState {
    fn new(status: TaskStatus, journal: Journal, updated_ms: u64) -> Self {
        Self {
            status,
            updated_ms,
            changes: 0,
            journal,
            is_unresumable: false,
            input_requests: Vec::new(),
            refusal: None,
            rejections: 0,
            used_keys: Vec::new(),
            end: None,
            abort_handle: None,
        }
    }
}

impl Task {
    /// Runs the rest of the call: `work` that goes on, or else from its journal.
    fn spawn(
        self: &Arc<Self>,
        server: &Arc<Server>,
        registry: &Arc<Registry>,
        mut job: CallJob,
        work: Option<CallFuture>,
    ) {
        // Progress and log notifications belong to the call's request, which is answered now.
        job.events = EventSink::disabled();
        job.stage = CallStage::Task(self.clone());
        // The record of the request was made when the task was created.
        job.observation =
            CallObservation::new(server, &job.call, &job.identity, &job.reply_channel, &job.journal, 0);
        let record =
            TaskRecord { server: server.clone(), task: self.clone(), observation: job.observation.clone() };
        let (server, registry, task) = (server.clone(), registry.clone(), self.clone());
        let mut state = self.lock();
        // Its owner may find it in a list, and cancel it, before it starts.
        if matches!(state.status, TaskStatus::Cancelled) {
            return;
        }
        let handle = tokio::spawn(async move {
            let work = run_to_completion(server.clone(), registry, job, work);
            let expired = CallError::UnknownItem { kind: ItemKind::Task, name: task.id.clone() };
            let left_ms = (task.created_ms + task.ttl_ms).saturating_sub(server.platform.now_ms());
            let work = tokio::time::timeout(Duration::from_millis(left_ms), work);
            let Some(status) = task.keep_recording(&server, work).await else {
                server.tasks.forget(&task);
                return;
            };
            let status = status.unwrap_or(TaskStatus::Failed(expired));
            if !task.record_end(&server, &status).await {
                server.tasks.forget(&task);
                return;
            }
            record.report(&status);
            task.set_status(&server, status);
        });
        state.abort_handle = Some(handle.abort_handle());
    }

    pub(crate) fn snapshot(&self) -> TaskSnapshot {
        let state = self.lock();
        TaskSnapshot {
            id: self.id.clone(),
            created_ms: self.created_ms,
            updated_ms: state.updated_ms,
            ttl_ms: self.ttl_ms,
            poll_interval_ms: self.poll_ms,
            status: state.status.clone(),
        }
    }

    /// The snapshot for a response that includes the result of a finished task. From then on the task may be evicted.
    pub(crate) fn snapshot_for_delivery(&self) -> TaskSnapshot {
        let snapshot = self.snapshot();
        if !matches!(snapshot.status, TaskStatus::Working | TaskStatus::InputRequired(_)) {
            self.mark_delivered();
        }
        snapshot
    }

    /// Records that the result was sent to its owner, or that there will be none.
    pub(crate) fn mark_delivered(&self) {
        self.result_delivered.store(true, Ordering::Relaxed);
    }

    /// Stores responses to open input requests and closes those requests. Ignores other keys. A response that does not
    /// match its request is not stored: the request is opened again under a new key, with the reason. A client that
    /// keeps sending invalid responses ends the task. Returns the number of changes so far.
    pub(crate) fn provide_input(&self, server: &Server, responses: Vec<(String, Json)>) -> u64 {
        let mut state = self.lock();
        let TaskState { status, input_requests, used_keys, rejections, refusal, changes, .. } = &mut *state;
        let TaskStatus::InputRequired(requests) = status else { return *changes };
        let mut open = std::mem::take(requests);
        for (key, response) in responses {
            let is_open = |open: &&mut TaskInputRequest| open.wire_key == key && open.response.is_none();
            let Some(request) = input_requests.iter_mut().find(is_open) else { continue };
            open = open.without(&key);
            let Err(reason) = ExpectedResponse::new(&request.request).check(&response) else {
                request.response = Some(response);
                continue;
            };
            *rejections += 1;
            if *rejections >= server.limits.input_rounds_max {
                *refusal = Some(invalid_response_error(&reason));
                break;
            }
            request.wire_key = new_wire_key(used_keys, &request.journal_key);
            open = open.with(request.wire_key.clone(), explain_rejection(&request.request, &reason));
        }
        *status = if open.is_empty() { TaskStatus::Working } else { TaskStatus::InputRequired(open) };
        *changes += 1;
        let changes = *changes;
        state.updated_ms = server.platform.now_ms();
        drop(state);
        self.changed_notify.notify_waiters();
        self.dirty_notify.notify_one();
        server.subscriptions.notify_task(&self.id);
        changes
    }

    /// Cancels the task. A finished task stays as it is. Returns what writes it to the store: until then, a process that
    /// starts would continue the task; and whether that was still this process's to do.
    pub(crate) fn cancel(self: &Arc<Self>, server: &Arc<Server>) -> Option<JoinHandle<bool>> {
        {
            let mut state = self.lock();
            let has_ended = !matches!(state.status, TaskStatus::Working | TaskStatus::InputRequired(_));
            if has_ended || state.end.is_some() {
                return None;
            }
            state.status = TaskStatus::Cancelled;
            state.updated_ms = server.platform.now_ms();
        }
        self.abort();
        self.mark_delivered();
        self.changed_notify.notify_waiters();
        server.subscriptions.notify_task(&self.id);
        // A task of its own: the client may go away meanwhile.
        let (task, server) = (self.clone(), server.clone());
        Some(tokio::spawn(async move { task.record_end(&server, &TaskStatus::Cancelled).await }))
    }

    /// Waits until the task has finished. `None`: this process does not have it any more.
    pub(crate) async fn wait_until_done(&self) -> Option<TaskSnapshot> {
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.snapshot();
            if !matches!(view.status, TaskStatus::Working | TaskStatus::InputRequired(_)) {
                return Some(view);
            }
            if self.is_let_go() {
                return None;
            }
            changed.await;
        }
    }

    /// Like [`Task::wait_until_done`], and sends the task's input requests to the waiting client.
    pub(crate) async fn wait_until_done_relaying_input(
        &self,
        server: &Server,
        connection: &ConnectionState,
        events: &EventSink,
    ) -> Option<TaskSnapshot> {
        // A request that the client answered is not sent again: after an invalid response it is open under a new key.
        let mut sent_keys: Vec<String> = Vec::new();
        let mut open = OpenRequests::new(events.clone());
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.snapshot();
            match &view.status {
                TaskStatus::Working => {}
                TaskStatus::InputRequired(requests) => {
                    open.retain(|key| requests.contains_key(key));
                    for (key, request) in requests.iter() {
                        if !sent_keys.iter().any(|sent| sent == key) {
                            open.send(connection, key, request, Some(&self.id));
                            sent_keys.push(key.to_owned());
                        }
                    }
                }
                TaskStatus::Completed(_) | TaskStatus::Failed(_) | TaskStatus::Cancelled => {
                    return Some(view);
                }
            }
            if self.is_let_go() {
                return None;
            }
            tokio::select! {
                biased;
                (key, response) = open.next_response() => match response {
                    Ok(Ok(response)) => {
                        self.provide_input(server, vec![(key, response)]);
                    }
                    Ok(Err(message)) => self.refuse_input(input_refused_error(&message)),
                    // Another request may wait for the task later.
                    Err(ClientGone) => {}
                },
                () = changed => {}
            }
        }
    }

    fn set_status(&self, server: &Server, status: TaskStatus) {
        {
            let mut state = self.lock();
            if matches!(state.status, TaskStatus::Cancelled) {
                return;
            }
            if let TaskStatus::Completed(result) = &status {
                self.retained_bytes.store(result.size_bytes(), Ordering::Relaxed);
            }
            state.status = status;
            state.updated_ms = server.platform.now_ms();
        }
        self.changed_notify.notify_waiters();
        server.subscriptions.notify_task(&self.id);
    }

    /// The client does not answer properly: the task fails.
    fn refuse_input(&self, error: ToolError) {
        self.lock().refusal = Some(error);
        self.changed_notify.notify_waiters();
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Opens input requests and waits until all are answered, or until `wake_at_ms`. Those of an earlier round that are
    /// still needed stay open. Returns the journal with the answers, if all are there.
    pub(crate) async fn request_input(
        &self,
        server: &Server,
        journal: &Journal,
        requests: &InputRequests,
        wake_at_ms: Option<u64>,
    ) -> Result<Journal, ToolError> {
        let has_changed = {
            let mut shown = InputRequests::default();
            let mut state = self.lock();
            let TaskState { status, input_requests, used_keys, .. } = &mut *state;
            let mut earlier = std::mem::take(input_requests);
            let mut is_new = false;
            for (key, request) in requests.iter() {
                let asked = match earlier.iter().position(|one| one.journal_key == key) {
                    Some(index) => earlier.swap_remove(index),
                    None => {
                        is_new = true;
                        TaskInputRequest {
                            wire_key: new_wire_key(used_keys, key),
                            journal_key: key.to_owned(),
                            request: request.clone(),
                            response: None,
                        }
                    }
                };
                if asked.response.is_none() {
                    // It may be shown already, with the reason why an answer was not accepted.
                    let request = shown_request(status, &asked.wire_key).unwrap_or(request);
                    shown = shown.with(asked.wire_key.clone(), request.clone());
                }
                input_requests.push(asked);
            }
            state.journal = journal.clone();
            // Nobody is told that a timer was due. What was cancelled stays so.
            let has_changed =
                (is_new || !earlier.is_empty()) && !matches!(state.status, TaskStatus::Cancelled);
            if has_changed {
                state.status = match shown.is_empty() {
                    true => TaskStatus::Working,
                    false => TaskStatus::InputRequired(shown),
                };
                state.updated_ms = server.platform.now_ms();
            }
            has_changed
        };
        if has_changed {
            self.changed_notify.notify_waiters();
            server.subscriptions.notify_task(&self.id);
        }
        self.dirty_notify.notify_one();
        self.collect_responses(wake_at(server, wake_at_ms)).await
    }

    /// Whether the client was asked all of this already, and has not answered all of it.
    pub(crate) fn is_waiting_for(&self, requests: &InputRequests) -> bool {
        let state = self.lock();
        let has_asked = |key: &str| state.input_requests.iter().any(|one| one.journal_key == key);
        requests.iter().all(|(key, _)| has_asked(key))
    }

    /// Waits until all open input requests are answered, or until `wake_at`.
    async fn collect_responses(&self, wake_at: Option<Instant>) -> Result<Journal, ToolError> {
        loop {
            let changed = self.changed_notify.notified();
            tokio::pin!(changed);
            // Enabled first, so that a notification before the first poll is not missed.
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(error) = state.refusal.take() {
                    return Err(error);
                }
                if state.input_requests.iter().all(|request| request.response.is_some()) {
                    let answered: Vec<_> = state.input_requests.drain(..).collect();
                    for TaskInputRequest { journal_key, response, .. } in answered {
                        if let Some(response) = response {
                            state.journal.record(&journal_key, response);
                        }
                    }
                    self.dirty_notify.notify_one();
                    return Ok(state.journal.clone());
                }
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until_or_forever(wake_at) => return Ok(self.lock().journal.clone()),
            }
        }
    }

    fn is_active(&self) -> bool {
        matches!(self.lock().status, TaskStatus::Working | TaskStatus::InputRequired(_))
    }

    fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.created_ms.saturating_add(self.ttl_ms)
    }

    fn abort(&self) {
        let stop = self.lock().abort_handle.take();
        if let Some(stop) = stop {
            stop.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What the client sees of a request that is open.
fn shown_request<'s>(status: &'s TaskStatus, wire_key: &str) -> Option<&'s InputRequest> {
    let TaskStatus::InputRequired(shown) = status else { return None };
    shown.iter().find(|(key, _)| *key == wire_key).map(|(_, request)| request)
}

/// A key that the task has not used yet: a client may take a second request with the same key for a repetition.
fn new_wire_key(used_keys: &mut Vec<String>, key: &str) -> String {
    let mut wire_key = key.to_owned();
    let mut n = 2;
    while used_keys.contains(&wire_key) {
        wire_key = format!("{key}-{n}");
        n += 1;
    }
    used_keys.push(wire_key.clone());
    wire_key
}

/// Runs a task until it finishes. 2025-11-25, Result Retrieval: "exactly what the underlying request would have
/// returned".
async fn run_to_completion(
    server: Arc<Server>,
    mut registry: Arc<Registry>,
    mut job: CallJob,
    work: Option<CallFuture>,
) -> TaskStatus {
    let unexpected = |what: &str| TaskStatus::Failed(CallError::Internal { detail: what.into() });
    // A task that is continued may still wait for answers.
    if let (None, CallStage::Task(task)) = (&work, &job.stage) {
        match task.collect_responses(None).await {
            Ok(journal) => job.journal = journal,
            Err(error) => {
                return TaskStatus::Completed(CallResult::Tool(ToolResult::from_tool_error(&error)));
            }
        }
        // The tool may have changed while the task waited.
        match next_registry(&server, &registry, &job) {
            Ok(current) => registry = current,
            Err(error) => return TaskStatus::Failed(error),
        }
    }
    match execute_call(server, registry, job, work).await {
        Ok(CallResponse::Result(result)) => TaskStatus::Completed(result),
        Ok(CallResponse::Error(error)) | Err(error) => TaskStatus::Failed(error),
        Ok(CallResponse::InputRequired { .. }) => unexpected("a task ended with input requests"),
        Ok(CallResponse::Task(_) | CallResponse::TaskAnswer(_)) => unexpected("a task became a task"),
    }
}
