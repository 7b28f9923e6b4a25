//! What the store has of each task. It is written when a task starts, asks, saves a checkpoint and ends.
//!
//! A task is one stream with one entry: the last state. The process that runs it holds a lease, so that of several replicas
//! one runs it. When the lease ends, because the process did, another one continues the task from its journal: the
//! process that starts next, or the one that is asked for the task. An effect that was under way when the process ended may
//! happen again; every effect whose result was saved does not.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use json::Json;
use spile_core::{CallError, CallResult, CheckpointSink, Checkpoints, ItemKind, Principal};
use state::keyring::digest_parts;
use state::store::{LeaseOutcome, Namespace, Sequence, Store as _, StoreError, StoreKey, Ttl};
use tokio::sync::{Notify, watch};
use wire::encode::{TaskSnapshot, TaskStatus};

use super::record::{self, TaskRecord};
use super::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, OwnerDigest, SavedChanges, Task, TaskOwner,
    evict_finished,
};
use crate::input_requests::store_failure;
use crate::observer::{CallObservation, CallStatus};
use crate::server::Server;

/// How long a process that ended keeps others from continuing its tasks.
const LEASE_MS: u64 = 30_000;
const LEASE_RENEWAL: Duration = Duration::from_millis(LEASE_MS / 3);
/// Older tasks of a server, or of an owner, are not found by listing them.
const INDEX_ENTRIES_MAX: usize = 4096;
const INDEX_PAGE_ENTRIES: usize = 256;
/// How long a request about a task waits for the store.
const SAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What the store accepts as one entry, less what encryption adds.
const RECORD_BYTES_MAX: usize = (1 << 20) - 1024;

const INDEX_NAME: &[u8] = b"index";

/// A task that was looked up in the store.
pub(crate) enum FoundTask {
    /// It is in the memory of this process now.
    Here(Arc<Task>),
    /// Another replica runs it. All that is known here is its state.
    Elsewhere(TaskSnapshot),
}

#[derive(Default)]
pub(crate) struct TaskPage {
    pub(crate) tasks: Vec<TaskSnapshot>,
    /// The cursor of the page behind it.
    pub(crate) next: Option<String>,
}

impl Task {
    fn key(&self) -> StoreKey<'_> {
        StoreKey { namespace: Namespace::Tasks, owner: &self.owner, name: self.id.as_bytes() }
    }

    fn ttl(&self, now_ms: u64) -> Ttl {
        Ttl { ms: (self.created_ms + self.ttl_ms).saturating_sub(now_ms).max(1) }
    }

    /// Writes the first record, takes the lease, and adds the task to the lists.
    pub(super) async fn create_record(&self, server: &Server) -> Result<(), CallError> {
        // Its owner may find it in a list, and cancel it, before the store has it.
        let _order = self.write_order.lock().await;
        let now_ms = server.platform.now_ms();
        let bytes = self.encode(&TaskStatus::Working);
        if bytes.len() > RECORD_BYTES_MAX {
            let reason = format!("a call that continues as a task has at most {RECORD_BYTES_MAX} bytes");
            return Err(CallError::InvalidParams { path: "params.arguments".into(), reason });
        }
        let written = server.store.append(self.key(), &bytes, 1, self.ttl(now_ms), now_ms).await;
        self.written.store(written.map_err(store_failure)?.0, Ordering::Relaxed);
        self.acquire_lease(server, now_ms).await.map_err(store_failure)?;
        let entry = [&self.owner[..], self.id.as_bytes()].concat();
        // A list ends this long after its last task was added. That one may end soon; those before it may not.
        let index_ttl = Ttl { ms: server.limits.task_ttl_ms };
        for lister in [&self.lister, &server_owner(server)] {
            let index = index_key(lister);
            let appended = server.store.append(index, &entry, INDEX_ENTRIES_MAX, index_ttl, now_ms);
            appended.await.map_err(store_failure)?;
        }
        Ok(())
    }

    /// Removes what [`Task::create_record`] wrote: nobody was told of the task, and nobody may run it.
    pub(super) async fn delete_record(&self, server: &Server) {
        let _order = self.write_order.lock().await;
        let now_ms = server.platform.now_ms();
        let deleted = server.store.delete(self.key(), now_ms).await;
        let released = server.store.release(self.key(), &server.tasks.holder(server), now_ms).await;
        if let Err(error) = deleted.and(released) {
            tracing::warn!(%error, task = self.id, "cannot remove a task that was not started");
        }
    }

    async fn acquire_lease(&self, server: &Server, now_ms: u64) -> Result<LeaseOutcome, StoreError> {
        let (holder, ttl) = (server.tasks.holder(server), Ttl { ms: LEASE_MS });
        let outcome = server.store.lease(self.key(), &holder, ttl, now_ms).await?;
        if outcome == LeaseOutcome::Held {
            self.leased_until_ms.store(now_ms + LEASE_MS, Ordering::Relaxed);
        }
        Ok(outcome)
    }

    /// Renews the lease. One that has ended, because the machine slept or its clock was set, is taken again if no other
    /// process has done anything meanwhile. Returns whether the task is still this process's.
    async fn keep_lease(&self, server: &Server) -> Result<bool, StoreError> {
        let (holder, now_ms) = (server.tasks.holder(server), server.platform.now_ms());
        if server.store.renew(self.key(), &holder, Ttl { ms: LEASE_MS }, now_ms).await? {
            self.leased_until_ms.store(now_ms + LEASE_MS, Ordering::Relaxed);
            return Ok(true);
        }
        if let LeaseOutcome::HeldByOther { .. } = self.acquire_lease(server, now_ms).await? {
            return Ok(false);
        }
        let written = Sequence(self.written.load(Ordering::Relaxed));
        let newer = server.store.read_after(self.key(), written, 1, now_ms).await?;
        let is_unchanged = newer.is_some_and(|page| page.entries.is_empty() && !page.has_gap);
        if !is_unchanged {
            server.store.release(self.key(), &holder, now_ms).await?;
        }
        Ok(is_unchanged)
    }

    /// Where the work of this task saves how far it came.
    pub(crate) fn checkpoints(self: &Arc<Self>, server: &Arc<Server>) -> Checkpoints {
        let sink = TaskCheckpoints { server: Arc::downgrade(server), task: Arc::downgrade(self) };
        Checkpoints::new(Arc::new(sink))
    }

    /// Drives the work, and writes each change of the state meanwhile. `None` if another replica took the task.
    pub(super) async fn keep_recording<T>(
        self: &Arc<Self>,
        server: &Arc<Server>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let work = std::pin::pin!(work);
        let record = std::pin::pin!(self.record_changes(server));
        let ended = tokio::select! {
            biased;
            ended = work => Some(ended),
            () = record => None,
        };
        if ended.is_none() {
            // Before the work is dropped.
            self.goes_on_elsewhere.store(true, Ordering::Relaxed);
            self.let_go();
        }
        ended
    }

    /// This process writes no more. Whoever waits for the task looks for it elsewhere.
    fn let_go(&self) {
        self.saved.send_modify(|saved| saved.is_over = true);
        self.changed_notify.notify_waiters();
    }

    pub(super) fn is_let_go(&self) -> bool {
        self.saved.borrow().is_over
    }

    /// Ends only if the lease is lost.
    async fn record_changes(self: &Arc<Self>, server: &Arc<Server>) {
        let mut read_until = Sequence::START;
        loop {
            tokio::select! {
                biased;
                () = self.dirty_notify.notified() => self.save(server).await,
                // A process that does not follow the others learns of a message when it renews its lease.
                () = self.inbox_notify.notified() => self.read_inbox(server, &mut read_until).await,
                () = tokio::time::sleep(LEASE_RENEWAL) => self.read_inbox(server, &mut read_until).await,
            }
            // Not while a state is on its way to the store: it would be taken for another process's.
            let order = self.write_order.lock().await;
            let kept = self.keep_lease(server).await;
            drop(order);
            match kept {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(task = self.id, "another replica continues a task of this one");
                    return;
                }
                Err(error) => tracing::warn!(%error, task = self.id, "cannot renew the lease of a task"),
            }
        }
    }

    async fn save(&self, server: &Server) {
        let changes = self.lock().changes;
        let written = self.write(server).await;
        match written {
            Written::NotOurs => self.let_go(),
            Written::Whole | Written::InPart => {
                self.saved.send_modify(|saved| saved.count = saved.count.max(changes));
            }
        }
    }

    /// Waits until the store has the first `changes` changes: what is acknowledged must survive the process. A store that
    /// does not answer holds nobody up for long. `false`: another process has the task, and knows nothing of them.
    pub(crate) async fn wait_until_saved(&self, changes: u64) -> bool {
        let mut saved = self.saved.subscribe();
        let is_known = |saved: &SavedChanges| saved.count >= changes || saved.is_over;
        match tokio::time::timeout(SAVE_TIMEOUT, saved.wait_for(is_known)).await {
            Ok(saved) => saved.is_ok_and(|saved| saved.count >= changes),
            Err(_) => {
                tracing::warn!(task = self.id, "the state of a task is acknowledged before it is kept");
                true
            }
        }
    }

    /// Writes how the task ended, and lets go of it. Returns whether it was still this process's to end.
    pub(super) async fn record_end(&self, server: &Server, status: &TaskStatus) -> bool {
        {
            let mut state = self.lock();
            state.updated_ms = server.platform.now_ms();
            state.end = Some(status.clone());
        }
        let written = self.write(server).await;
        self.is_kept.store(written == Written::Whole, Ordering::Relaxed);
        if written == Written::NotOurs {
            self.lock().end = None;
            self.let_go();
            tracing::warn!(task = self.id, "another replica has continued a task of this one");
        } else {
            self.saved.send_modify(|saved| saved.count = u64::MAX);
        }
        self.release_lease(server).await;
        written != Written::NotOurs
    }

    /// Lets other processes have the task. What is still to be written here must take the lease again first.
    async fn release_lease(&self, server: &Server) {
        self.leased_until_ms.store(0, Ordering::Relaxed);
        let (holder, now_ms) = (server.tasks.holder(server), server.platform.now_ms());
        if let Err(error) = server.store.release(self.key(), &holder, now_ms).await {
            tracing::warn!(%error, task = self.id, "cannot release the lease of a task");
        }
    }

    /// Writes the state that the task has by now.
    async fn write(&self, server: &Server) -> Written {
        // What is written last must be the last state.
        let _order = self.write_order.lock().await;
        let status = {
            let state = self.lock();
            state.end.as_ref().unwrap_or(&state.status).clone()
        };
        let now_ms = server.platform.now_ms();
        if now_ms >= self.leased_until_ms.load(Ordering::Relaxed)
            && matches!(self.keep_lease(server).await, Ok(false))
        {
            return Written::NotOurs;
        }
        let mut bytes = self.encode(&status);
        let is_whole = bytes.len() <= RECORD_BYTES_MAX;
        if !is_whole {
            let is_open = matches!(status, TaskStatus::Working | TaskStatus::InputRequired(_));
            tracing::warn!(
                task = self.id,
                bytes = bytes.len(),
                "the state of a task is too large to be kept"
            );
            let lost = TaskStatus::Failed(CallError::Internal { detail: "too large to be kept".into() });
            bytes = match is_open {
                true => {
                    let mut state = self.lock();
                    state.is_unresumable = true;
                    state.journal.set_memo(None);
                    record::encode(self.created_ms, self.ttl_ms, self.call.as_ref(), &state, &status)
                }
                false => self.encode(&lost),
            };
        }
        match server.store.append(self.key(), &bytes, 1, self.ttl(now_ms), now_ms).await {
            Ok(sequence) => {
                self.written.store(sequence.0, Ordering::Relaxed);
                if is_whole { Written::Whole } else { Written::InPart }
            }
            Err(error) => {
                tracing::warn!(%error, task = self.id, "the state of a task is not kept");
                Written::InPart
            }
        }
    }

    fn encode(&self, status: &TaskStatus) -> Vec<u8> {
        record::encode(self.created_ms, self.ttl_ms, self.call.as_ref(), &self.lock(), status)
    }
}

/// What became of a state that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Whole,
    /// Not all of it, or nothing.
    InPart,
    /// Nothing: another process has the task by now.
    NotOurs,
}

struct TaskCheckpoints {
    server: std::sync::Weak<Server>,
    task: std::sync::Weak<Task>,
}

impl CheckpointSink for TaskCheckpoints {
    fn save(&self, memo: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (server, task) = (self.server.upgrade(), self.task.upgrade());
        Box::pin(async move {
            if let (Some(server), Some(task)) = (server, task) {
                task.lock().journal.set_memo(Some(memo.into()));
                task.save(&server).await;
            }
        })
    }

    fn goes_on_elsewhere(&self) -> bool {
        self.task.upgrade().is_some_and(|task| task.goes_on_elsewhere.load(Ordering::Relaxed))
    }
}

impl super::Tasks {
    /// Identifies this process where it holds a lease.
    fn holder(&self, server: &Server) -> [u8; 16] {
        *self.holder.get_or_init(|| {
            let mut random = [0; 16];
            server.platform.fill_random(&mut random);
            random
        })
    }

    /// One page of the tasks that this owner may list, oldest first. Only what is on the page is read.
    pub(crate) async fn list_for(
        &self,
        server: &Server,
        owner: &TaskOwner,
        after: Option<&str>,
    ) -> Result<TaskPage, CallError> {
        let (lister, now_ms) = (owner.lister_digest(server), server.platform.now_ms());
        let mut order = read_index(server, &lister).await?;
        {
            // Those that are not in the list of the store yet.
            let listed: HashSet<&str> = order.iter().map(|(_, id)| &**id).collect();
            let tasks = self.lock();
            let mut others: Vec<&Arc<Task>> = tasks.values().filter(|task| task.lister == lister).collect();
            others.retain(|task| !listed.contains(&*task.id));
            others.sort_by_key(|task| (task.created_ms, &task.id));
            order.extend(others.into_iter().map(|task| (task.owner, task.id.clone())).collect::<Vec<_>>());
        }
        let start = match after {
            None => 0,
            Some(last) => {
                let unknown = || CallError::InvalidParams {
                    path: "params.cursor".into(),
                    reason: "unknown cursor; start again without one".into(),
                };
                order.iter().position(|(_, id)| id == last).ok_or_else(unknown)? + 1
            }
        };
        let mut page = TaskPage::default();
        for (owner, id) in order.split_off(start) {
            if page.tasks.len() >= server.limits.page_items_max.max(1) {
                page.next = page.tasks.last().map(|task| task.id.clone());
                break;
            }
            let known = self.lock().get(&id).map(|task| (task.is_expired(now_ms), task.snapshot()));
            let mut task = match known {
                Some((true, _)) => continue,
                Some((false, task)) => task,
                None => match read_record(server, &owner, &id).await? {
                    Some(record) => task_of(server, id, owner, record).snapshot(),
                    None => continue,
                },
            };
            // A list has no results, which may be large.
            if let TaskStatus::Completed(result) = &mut task.status {
                *result = CallResult::Relayed(Json::object(|_| ()));
            }
            page.tasks.push(task);
        }
        Ok(page)
    }

    /// Looks in the store for a task that this process does not know. One that nobody runs is continued here.
    pub(crate) async fn find_stored(
        &self,
        server: &Arc<Server>,
        id: &str,
        owner: &TaskOwner,
    ) -> Result<FoundTask, CallError> {
        let owner = owner.digest(server, id);
        match read_record(server, &owner, id).await? {
            Some(record) => self.adopt(server, id, owner, record).await,
            None => Err(unknown_task(id)),
        }
    }

    async fn adopt(
        &self,
        server: &Arc<Server>,
        id: &str,
        owner: OwnerDigest,
        record: TaskRecord,
    ) -> Result<FoundTask, CallError> {
        let now_ms = server.platform.now_ms();
        let is_open = matches!(record.state.status, TaskStatus::Working | TaskStatus::InputRequired(_));
        if is_open {
            // Whoever asks while the process ends would have it begin here what it has just let go of.
            if self.is_released.load(Ordering::Relaxed) {
                return Ok(FoundTask::Elsewhere(task_of(server, id.into(), owner, record).snapshot()));
            }
            let key = StoreKey { namespace: Namespace::Tasks, owner: &owner, name: id.as_bytes() };
            let lease = server.store.lease(key, &self.holder(server), Ttl { ms: LEASE_MS }, now_ms).await;
            if let LeaseOutcome::HeldByOther { .. } = lease.map_err(store_failure)? {
                return Ok(FoundTask::Elsewhere(task_of(server, id.into(), owner, record).snapshot()));
            }
        }
        // It may have ended, or gone on, before the lease was free.
        let record = match is_open {
            true => read_record(server, &owner, id).await?.ok_or_else(|| unknown_task(id))?,
            false => record,
        };
        let task = Arc::new(task_of(server, id.into(), owner, record));
        task.leased_until_ms.store(now_ms + LEASE_MS, Ordering::Relaxed);
        let has_room = {
            let mut tasks = self.lock();
            // Another request may have looked it up at the same time.
            if let Some(known) = tasks.get(id) {
                return Ok(FoundTask::Here(known.clone()));
            }
            let has_room = evict_finished(&mut tasks, &owner, task.retained_bytes(), &server.limits, now_ms);
            if has_room.is_ok() {
                tasks.insert(id.to_owned(), task.clone());
            }
            has_room
        };
        if let Err(error) = has_room {
            // Another process may have room for it.
            if is_open {
                let released = server.store.release(task.key(), &self.holder(server), now_ms).await;
                released.map_err(store_failure)?;
            }
            return Err(error);
        }
        if task.is_active() {
            task.resume(server).await;
        }
        Ok(FoundTask::Here(task))
    }

    /// Lets go of all tasks, so that another process need not wait until the leases end.
    pub(crate) async fn release_all(&self, server: &Server) {
        self.is_released.store(true, Ordering::Relaxed);
        let open: Vec<Arc<Task>> = self.lock().values().filter(|task| task.is_active()).cloned().collect();
        for task in open {
            // A request that comes while the process stops finds it in the store, as every other process does.
            self.forget(&task);
            task.abort();
            task.save(server).await;
            task.let_go();
            task.release_lease(server).await;
        }
    }
}

impl Task {
    /// Runs the task from its journal.
    async fn resume(self: &Arc<Self>, server: &Arc<Server>) {
        // What was cancelled must not begin again.
        self.read_inbox(server, &mut { Sequence::START }).await;
        if !self.is_active() {
            return self.report_end(server, CallStatus::Cancelled);
        }
        let principal = self.call.as_ref().map_or(&Principal::Anonymous, |call| &call.principal);
        let registry = server.registry_of(principal);
        let (journal, is_unresumable) = {
            let state = self.lock();
            (state.journal.clone(), state.is_unresumable)
        };
        let refusal = match &self.call {
            None => Some(failed("the server does not know what the task runs")),
            Some(call) if registry.contract_digest(&call.call()) != call.contract_digest => {
                Some(TaskStatus::Failed(CallError::ChangedWhileWaiting))
            }
            Some(call) if !server.is_known_principal(&call.principal) => Some(failed(ACCESS_REMOVED)),
            Some(_) if is_unresumable => {
                Some(failed("the server was restarted, and the task had too much behind it to be continued"))
            }
            Some(call) => {
                tracing::info!(task = self.id, tool = &*call.call().name(), "continues a task");
                self.spawn(server, &registry, call.to_job(journal), None);
                None
            }
        };
        if let Some(status) = refusal {
            self.record_end(server, &status).await;
            if let TaskStatus::Failed(error) = &status {
                self.report_end(server, CallStatus::Error(error));
            }
            self.set_status(server, status);
        }
    }

    /// The record of a call that an earlier process began, and that does not go on.
    fn report_end(&self, server: &Server, status: CallStatus<'_>) {
        let Some(call) = &self.call else { return };
        let job = call.to_job(self.lock().journal.clone());
        let observation =
            CallObservation::new(server, &job.call, &job.identity, &job.reply_channel, &job.journal, 0);
        if let Some(observation) = observation {
            observation.report_status(server, status, 0);
        }
    }

    fn retained_bytes(&self) -> usize {
        self.retained_bytes.load(Ordering::Relaxed)
    }
}

/// The state of a task that cannot go on.
fn failed(reason: &str) -> TaskStatus {
    TaskStatus::Failed(CallError::Provider { code: INTERNAL_ERROR, message: reason.to_owned(), data: None })
}

/// JSON-RPC 2.0.
const INTERNAL_ERROR: i64 = -32603;

const ACCESS_REMOVED: &str = "the access with which the task was started was removed or has expired";

impl Server {
    /// Continues the tasks that an earlier process of this server left. Returns when none is left that another process
    /// may still run.
    pub async fn resume_tasks(self: &Arc<Self>) {
        // A server without tasks need not open its store.
        if !self.with_registry(|registry| registry.capabilities.tasks) {
            return;
        }
        let mut open = match read_index(self, &server_owner(self)).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "cannot look for tasks to continue");
                return;
            }
        };
        while !open.is_empty() {
            let mut running_elsewhere = Vec::new();
            for (owner, id) in open {
                if self.tasks.lock().contains_key(&id) {
                    continue;
                }
                let record = match read_record(self, &owner, &id).await {
                    Ok(Some(record)) if record.call.is_some() => record,
                    Ok(_) => continue,
                    Err(error) => {
                        tracing::warn!(%error, task = id, "cannot read a task");
                        continue;
                    }
                };
                match self.tasks.adopt(self, &id, owner, record).await {
                    Ok(FoundTask::Here(_)) => {}
                    // It may have to be continued later.
                    Ok(FoundTask::Elsewhere(_)) | Err(CallError::Busy { .. }) => {
                        running_elsewhere.push((owner, id));
                    }
                    Err(error) => tracing::warn!(%error, task = id, "cannot continue a task"),
                }
            }
            open = running_elsewhere;
            if !open.is_empty() {
                tokio::time::sleep(LEASE_RENEWAL).await;
            }
        }
    }

    /// Ends the tasks whose callers no longer have the access with which they started them.
    pub async fn end_tasks_without_access(&self) {
        let is_removed = |task: &&Arc<Task>| {
            let principal = task.call.as_ref().map(|call| &call.principal);
            task.is_active() && principal.is_some_and(|principal| !self.is_known_principal(principal))
        };
        let removed: Vec<Arc<Task>> = self.tasks.lock().values().filter(is_removed).cloned().collect();
        for task in removed {
            let status = failed(ACCESS_REMOVED);
            task.set_status(self, status.clone());
            task.abort();
            task.record_end(self, &status).await;
        }
    }

    /// Stops all tasks where they are, so that the next process can continue them at once.
    pub async fn release_tasks(&self) {
        self.tasks.release_all(self).await;
    }
}

/// The tasks of a server are listed under its name in the store, which it may share with other servers.
fn server_owner(server: &Server) -> OwnerDigest {
    digest_parts(&[b"server", server.store_scope.as_bytes()])
}

fn index_key(owner: &OwnerDigest) -> StoreKey<'_> {
    StoreKey { namespace: Namespace::Tasks, owner, name: INDEX_NAME }
}

/// Owner and id of each task in an index.
async fn read_index(server: &Server, owner: &OwnerDigest) -> Result<Vec<(OwnerDigest, String)>, CallError> {
    let (mut found, mut after) = (Vec::new(), Sequence::START);
    loop {
        let now_ms = server.platform.now_ms();
        let page = server.store.read_after(index_key(owner), after, INDEX_PAGE_ENTRIES, now_ms).await;
        let page = match page {
            Ok(page) => page,
            // What cannot be read any more is not continued.
            Err(StoreError::Corrupt | StoreError::KeyGone) => None,
            Err(error) => return Err(store_failure(error)),
        };
        let entries = page.map(|page| page.entries).unwrap_or_default();
        let Some((last, _)) = entries.last() else { return Ok(found) };
        after = *last;
        for (_, entry) in &entries {
            if let Some((owner, id)) = entry.split_first_chunk()
                && let Ok(id) = std::str::from_utf8(id)
            {
                found.push((*owner, id.to_owned()));
            }
        }
    }
}

async fn read_record(
    server: &Server,
    owner: &OwnerDigest,
    id: &str,
) -> Result<Option<TaskRecord>, CallError> {
    let key = StoreKey { namespace: Namespace::Tasks, owner, name: id.as_bytes() };
    // A name that no task has, perhaps far too long for the store.
    if id.len() != TASK_ID_CHARS || id.as_bytes() == INDEX_NAME {
        return Ok(None);
    }
    let now_ms = server.platform.now_ms();
    let page = match server.store.read_after(key, Sequence::START, 1, now_ms).await {
        Ok(page) => page,
        Err(StoreError::Corrupt | StoreError::KeyGone) => None,
        Err(error) => return Err(store_failure(error)),
    };
    let record = page.and_then(|page| {
        let (sequence, bytes) = page.entries.into_iter().next()?;
        Some(TaskRecord { sequence, ..record::decode(&bytes)? })
    });
    Ok(record.filter(|record| now_ms < record.created_ms.saturating_add(record.ttl_ms)))
}

/// 16 bytes in hexadecimal.
const TASK_ID_CHARS: usize = 32;

fn task_of(server: &Server, id: String, owner: OwnerDigest, record: TaskRecord) -> Task {
    let TaskRecord { sequence, created_ms, ttl_ms, call, state } = record;
    let has_ended = !matches!(state.status, TaskStatus::Working | TaskStatus::InputRequired(_));
    let bytes = match &state.status {
        TaskStatus::Completed(result) => result.size_bytes(),
        _ => 0,
    };
    Task {
        id,
        owner,
        // The connection of a pipe that listed it is gone.
        lister: owner,
        call,
        retained_bytes: AtomicUsize::new(bytes),
        created_ms,
        ttl_ms,
        poll_ms: server.limits.task_poll_interval_ms,
        state: Mutex::new(state),
        result_delivered: AtomicBool::new(false),
        is_kept: AtomicBool::new(has_ended),
        changed_notify: Notify::new(),
        dirty_notify: Notify::new(),
        inbox_notify: Notify::new(),
        saved: watch::Sender::default(),
        written: AtomicU64::new(sequence.0),
        leased_until_ms: AtomicU64::new(0),
        goes_on_elsewhere: AtomicBool::new(false),
        write_order: tokio::sync::Mutex::default(),
    }
}

fn unknown_task(id: &str) -> CallError {
    CallError::UnknownItem { kind: ItemKind::Task, name: id.to_owned() }
}
