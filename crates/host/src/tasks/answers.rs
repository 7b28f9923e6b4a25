//! Answers to requests about tasks.

use std::sync::Arc;
use std::time::Duration;

use json::Json;
use spile_core::{CallError, CallResult, EventSink};
use wire::TaskRequest;
use wire::encode::{self, TaskAnswer, TaskSnapshot, TaskStatus};

use super::durable::TaskPage;
use super::inbox::{self, TaskMessage};
use super::{FoundTask, Task, TaskOwner};
use crate::connection_state::ConnectionState;
use crate::dispatch::BUSY_RETRY_MS;
use crate::pipeline::CallResponse;
use crate::server::Server;

/// The extension's `tasks/get` includes the result; in 2025-11-25 it is fetched with `tasks/result`.
pub(crate) fn task_state(task: &Task, uses_task_extension: bool) -> TaskAnswer {
    TaskAnswer::State(if uses_task_extension { task.snapshot_for_delivery() } else { task.snapshot() })
}

/// Answers a request about a task that this process knows. What is acknowledged is in the store, or with the process that has
/// the task by now.
pub(crate) async fn answer_task(
    server: &Arc<Server>,
    task: &Arc<Task>,
    request: TaskRequest,
    owner: &TaskOwner,
    uses_task_extension: bool,
) -> Result<TaskAnswer, CallError> {
    let answer_elsewhere = |request| {
        server.tasks.forget(task);
        Box::pin(answer_stored(server, request, owner, uses_task_extension))
    };
    Ok(match request {
        TaskRequest::Get(_) => task_state(task, uses_task_extension),
        TaskRequest::Update(id, answers) => {
            let changes = task.provide_input(server, answers.clone());
            if !task.wait_until_saved(changes).await {
                return answer_elsewhere(TaskRequest::Update(id, answers)).await;
            }
            TaskAnswer::Acknowledged
        }
        TaskRequest::Cancel(id) => {
            match task.cancel(server) {
                // Fails only if the process is about to end.
                Some(recorded) => {
                    if matches!(recorded.await, Ok(false)) {
                        return answer_elsewhere(TaskRequest::Cancel(id)).await;
                    }
                }
                // 2025-11-25, tasks/cancel: cancelling a finished task MUST be refused; the response is the task.
                None if !uses_task_extension => {
                    let reason = "the task has already finished".to_owned();
                    return Err(CallError::InvalidParams { path: "params.taskId".into(), reason });
                }
                None => {}
            }
            match uses_task_extension {
                true => TaskAnswer::Acknowledged,
                false => TaskAnswer::State(task.snapshot()),
            }
        }
        TaskRequest::Result(_) | TaskRequest::List(_) => TaskAnswer::Acknowledged,
    })
}

/// The same for a task that only the store knows: an earlier process left it, or another replica runs it.
pub(crate) async fn answer_stored_task(
    server: Arc<Server>,
    request: TaskRequest,
    owner: TaskOwner,
    uses_task_extension: bool,
) -> Result<CallResponse, CallError> {
    answer_stored(&server, request, &owner, uses_task_extension).await.map(CallResponse::TaskAnswer)
}

async fn answer_stored(
    server: &Arc<Server>,
    request: TaskRequest,
    owner: &TaskOwner,
    uses_task_extension: bool,
) -> Result<TaskAnswer, CallError> {
    let id = match &request {
        TaskRequest::Get(id)
        | TaskRequest::Update(id, _)
        | TaskRequest::Cancel(id)
        | TaskRequest::Result(id) => id.clone(),
        TaskRequest::List(_) => String::new(),
    };
    Ok(match server.tasks.find_stored(server, &id, owner).await? {
        FoundTask::Here(task) => answer_task(server, &task, request, owner, uses_task_extension).await?,
        FoundTask::Elsewhere(snapshot) => match request {
            TaskRequest::Get(_) => TaskAnswer::State(snapshot),
            TaskRequest::Update(_, answers) => {
                inbox::pass_on(server, &id, owner, &TaskMessage::Answers(answers), snapshot).await?;
                TaskAnswer::Acknowledged
            }
            TaskRequest::Cancel(_) => {
                let task = inbox::pass_on(server, &id, owner, &TaskMessage::Cancel, snapshot).await?;
                match (uses_task_extension, &task.status) {
                    (true, _) => TaskAnswer::Acknowledged,
                    // 2025-11-25: the response is the task, which MUST be cancelled then.
                    (false, TaskStatus::Working | TaskStatus::InputRequired(_)) => {
                        return Err(task_elsewhere());
                    }
                    (false, _) => TaskAnswer::State(task),
                }
            }
            TaskRequest::Result(_) | TaskRequest::List(_) => return Err(task_elsewhere()),
        },
    })
}

/// Finds the task whose result a client of 2025-11-25 waits for. While another process runs it, its state is looked at again
/// and again. Its questions are asked where it runs.
pub(crate) async fn find_for_result(
    server: &Arc<Server>,
    id: &str,
    owner: &TaskOwner,
) -> Result<Arc<Task>, CallError> {
    loop {
        match server.tasks.find_stored(server, id, owner).await? {
            FoundTask::Here(task) => return Ok(task),
            FoundTask::Elsewhere(TaskSnapshot { status: TaskStatus::Working, .. }) => {
                tokio::time::sleep(RESULT_POLL_INTERVAL).await;
            }
            FoundTask::Elsewhere(_) => return Err(task_elsewhere()),
        }
    }
}

const RESULT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Another replica runs the task. Its lease ends soon if that replica has ended.
pub(crate) fn task_elsewhere() -> CallError {
    CallError::TaskElsewhere { retry_after_ms: BUSY_RETRY_MS }
}

pub(crate) async fn list_tasks(
    server: Arc<Server>,
    owner: TaskOwner,
    cursor: Option<String>,
) -> Result<CallResponse, CallError> {
    let after = cursor.as_deref().filter(|cursor| !cursor.is_empty());
    let TaskPage { tasks, next } = server.tasks.list_for(&server, &owner, after).await?;
    Ok(CallResponse::TaskAnswer(TaskAnswer::List { tasks, next }))
}

/// Waits for the result of a task of 2025-11-25, and relays the task's input requests to the waiting client.
pub(crate) async fn await_task_result(
    server: Arc<Server>,
    mut task: Arc<Task>,
    owner: TaskOwner,
    connection: Option<Arc<ConnectionState>>,
    events: EventSink,
) -> Result<CallResponse, CallError> {
    let view = loop {
        let ended = match &connection {
            Some(connection) => task.wait_until_done_relaying_input(&server, connection, &events).await,
            None => task.wait_until_done().await,
        };
        if let Some(view) = ended {
            break view;
        }
        // Another process has it by now.
        server.tasks.forget(&task);
        task = find_for_result(&server, &task.id, &owner).await?;
    };
    task.mark_delivered();
    match view.status {
        TaskStatus::Completed(result) => {
            Ok(CallResponse::Result(CallResult::Relayed(with_related_task(&result, &view.id))))
        }
        TaskStatus::Failed(error) => Err(error),
        TaskStatus::Working | TaskStatus::InputRequired(_) | TaskStatus::Cancelled => {
            Err(CallError::Cancelled)
        }
    }
}

/// 2025-11-25: the result of a task names the task in its `_meta`.
fn with_related_task(result: &CallResult, id: &str) -> Json {
    let doc = encode::stored_result(result).to_doc();
    let root = doc.root();
    Json::object(|object| {
        for (key, value) in root.members().filter(|(key, _)| !key.eq_str("_meta")) {
            object.raw(&key.str().unwrap_or_default(), value.raw());
        }
        object.object("_meta", |meta| {
            for (key, value) in root.get("_meta").iter().flat_map(|meta| meta.members()) {
                meta.raw(&key.str().unwrap_or_default(), value.raw());
            }
            encode::write_related_task(meta, id);
        });
    })
}
