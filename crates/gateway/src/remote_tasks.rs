//! Calls that a server continues as a task, in the protocol's two forms.
//!
//! The caller gets a task of ours, which follows the server's: after a restart it goes on where it was, and when it is
//! cancelled, so is the server's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use json::{Json, Node};
use spile_core::{CallError, CallResult, Checkpoints, DetachedWork, InputRequests, Outcome, ToolErrorCode};
use wire::Feature;
use wire::client::{ClientCall, ClientError, Relay};
use wire::error::ErrorCode;
use wire::method::Method;

use crate::forwarded_call::{ForwardedCall, Step};
use crate::open_questions::{Answers, OpenQuestions};
use crate::questions::input_requests;
use crate::remote_server::{CallToForward, Memo, RemoteServer, Unanswered};
use crate::results;

/// How often a server is asked for the state of a task, whatever it says itself.
const POLL_INTERVAL_MS: std::ops::RangeInclusive<u64> = 50..=30_000;
const DEFAULT_POLL_INTERVAL_MS: u64 = 1000;
/// How often in a row a server may fail to say how its task is.
const FAILURES_MAX: u32 = 10;

/// A task of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteTask {
    pub(crate) id: String,
    /// What it asked last, and the caller was asked.
    pub(crate) open: OpenQuestions,
}

/// The task in the result of a call, if the server made one.
pub(crate) fn created_task(result: Node<'_>) -> Option<RemoteTask> {
    let task = match result.get("resultType") {
        Some(kind) => Some(result).filter(|_| kind.eq_str("task")),
        // 2025-11-25: `CreateTaskResult`.
        None => result.get("task").filter(Node::is_object),
    };
    let id = task?.get("taskId")?.str()?.into_owned();
    Some(RemoteTask { id, open: OpenQuestions::default() })
}

/// What `tasks/get` says.
enum TaskState {
    Working {
        poll_interval_ms: u64,
    },
    /// Done or failed: the outcome of the call.
    Ended(Box<Outcome>),
    Asks(InputRequests),
    /// Its result must be asked for.
    ResultReady,
}

/// Cancels the server's task if the call is cancelled before it ends.
struct CancelOnDrop {
    server: Arc<RemoteServer>,
    call: Arc<CallToForward>,
    task_id: Option<String>,
    checkpoints: Checkpoints,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(id) = self.task_id.take() else { return };
        // A gateway that stops leaves the task to the one that starts next, and one that was held up to its replica.
        if self.server.is_stopping.load(Ordering::Relaxed) || self.checkpoints.goes_on_elsewhere() {
            return;
        }
        let (server, call) = (self.server.clone(), self.call.clone());
        tokio::spawn(async move {
            let params = task_params(&id);
            if server.request(&call, Method::TaskCancel, params).await.is_err() {
                tracing::debug!(server = server.name, task = id, "cannot cancel a task");
            }
        });
    }
}

fn task_params(id: &str) -> Json {
    Json::object(|out| {
        out.str("taskId", id);
    })
}

impl RemoteServer {
    /// The call goes on in the server's task.
    pub(crate) fn follow_task(self: &Arc<Self>, call: CallToForward, task: RemoteTask) -> Outcome {
        let server = self.clone();
        Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move { server.poll_task(Arc::new(call), task, checkpoints).await })
        }))
    }

    /// The call becomes a task of ours, although the server makes none of it.
    pub(crate) fn run_detached(self: &Arc<Self>, call: CallToForward) -> Outcome {
        let server = self.clone();
        Outcome::Detach(DetachedWork::new(move |checkpoints| {
            Box::pin(async move {
                // Whoever finds this after a restart does not send the call again.
                checkpoints.save(Memo::Started.encode().as_str().as_bytes().to_vec()).await;
                server.run_now(call).await
            })
        }))
    }

    async fn poll_task(
        self: &Arc<Self>,
        call: Arc<CallToForward>,
        task: RemoteTask,
        checkpoints: Checkpoints,
    ) -> Outcome {
        let memo = Memo::Task(task.clone()).encode();
        checkpoints.save(memo.as_str().as_bytes().to_vec()).await;
        let mut guard = CancelOnDrop {
            server: self.clone(),
            call: call.clone(),
            task_id: Some(task.id.clone()),
            checkpoints,
        };
        let answered = match self.collect_answers(&call, &task.open).await {
            Ok(responses) => self.answer_task(&call, &task, &responses).await,
            Err(outcome) => Err(outcome),
        };
        if let Err(outcome) = answered {
            guard.task_id = None;
            return outcome;
        }
        let mut failures = 0;
        loop {
            let wait_ms = match self.request(&call, Method::TaskGet, task_params(&task.id)).await {
                Ok(result) => match self.task_state(result.to_doc().root()) {
                    TaskState::Working { poll_interval_ms } => {
                        failures = 0;
                        poll_interval_ms
                    }
                    TaskState::Ended(outcome) => {
                        guard.task_id = None;
                        return *outcome;
                    }
                    TaskState::Asks(requests) => {
                        let answered = match self.answer_questions(&call, requests).await {
                            Ok(Answers::Complete(responses)) => {
                                self.answer_task(&call, &task, &responses).await
                            }
                            Ok(Answers::Ask(requests, open)) => {
                                let memo = Memo::Task(RemoteTask { open, id: task.id.clone() }).encode();
                                Err(Outcome::InputRequired(requests.with_memo(memo.as_str().as_bytes())))
                            }
                            Err(outcome) => Err(outcome),
                        };
                        if let Err(outcome) = answered {
                            guard.task_id = None;
                            return outcome;
                        }
                        *POLL_INTERVAL_MS.start()
                    }
                    TaskState::ResultReady => {
                        guard.task_id = None;
                        return self.task_result(&call, &task).await;
                    }
                },
                // The server may come back, and its task with it.
                Err(Unanswered::Retryable(outcome)) => {
                    failures += 1;
                    if failures > FAILURES_MAX {
                        guard.task_id = None;
                        return outcome;
                    }
                    DEFAULT_POLL_INTERVAL_MS * u64::from(failures)
                }
                Err(Unanswered::Final(outcome)) => {
                    guard.task_id = None;
                    return outcome;
                }
            };
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Sends the answers to what the task asked.
    async fn answer_task(
        self: &Arc<Self>,
        call: &Arc<CallToForward>,
        task: &RemoteTask,
        responses: &[(String, Json)],
    ) -> Result<(), Outcome> {
        if responses.is_empty() {
            return Ok(());
        }
        let params = Json::object(|out| {
            out.str("taskId", &task.id);
            out.object("inputResponses", |out| {
                for (key, response) in responses {
                    out.raw(key, response.as_str());
                }
            });
        });
        match self.request(call, Method::TaskUpdate, params).await {
            Ok(_) => Ok(()),
            Err(Unanswered::Final(outcome) | Unanswered::Retryable(outcome)) => Err(outcome),
        }
    }

    fn task_state(&self, state: Node<'_>) -> TaskState {
        let text = |key: &str| state.get(key).and_then(|value| value.str()).unwrap_or_default();
        let interval = state.get("pollIntervalMs").or_else(|| state.get("pollInterval"));
        let interval_ms = interval.and_then(|interval| interval.u64()).unwrap_or(DEFAULT_POLL_INTERVAL_MS);
        let poll_interval_ms = interval_ms.clamp(*POLL_INTERVAL_MS.start(), *POLL_INTERVAL_MS.end());
        let invalid = |message: String| TaskState::Ended(Box::new(results::internal_error(message)));
        match (&*text("status"), state.get("result"), state.get("error")) {
            ("working", ..) => TaskState::Working { poll_interval_ms },
            ("completed", Some(result), _) => {
                TaskState::Ended(Box::new(CallResult::Relayed(Json::from(result)).into()))
            }
            ("failed", _, Some(error)) => {
                let code = error.get("code").and_then(|code| code.raw().parse().ok());
                let message = error.get("message").and_then(|message| message.str()).unwrap_or_default();
                let data = error.get("data").map(Json::from);
                let code = code.unwrap_or(ErrorCode::InternalError.number());
                let failed = CallError::Provider { code, message: message.into_owned(), data };
                TaskState::Ended(Box::new(failed.into()))
            }
            ("cancelled", ..) => TaskState::Ended(Box::new(CallError::Cancelled.into())),
            ("input_required", ..) if state.get("inputRequests").is_some() => match input_requests(state) {
                Ok(requests) => TaskState::Asks(requests),
                Err(reason) => {
                    invalid(format!("server `{}` asks something that cannot be asked: {reason}", self.name))
                }
            },
            // 2025-11-25: the result is a request of its own, and so the server asks while it waits for that.
            ("completed" | "failed" | "input_required", ..) => TaskState::ResultReady,
            (other, ..) => {
                invalid(format!("server `{}` says that its task is `{}`", self.name, other.escape_debug()))
            }
        }
    }

    async fn task_result(self: &Arc<Self>, call: &Arc<CallToForward>, task: &RemoteTask) -> Outcome {
        let link = match self.link(call, None).await {
            Ok(link) => link,
            Err(outcome) => return *outcome,
        };
        let client_call = ClientCall::new(Method::TaskResult, task_params(&task.id));
        let mut forwarded = ForwardedCall::start(link, call.sampling_caller(), client_call, &call.events);
        match forwarded.next_step().await {
            Step::Asked => self.park(forwarded, call),
            Step::Ended(Ok(result)) => CallResult::Relayed(result).into(),
            Step::Ended(Err(error)) => self.failed_for_good(call, &forwarded, error).await,
        }
    }

    /// Sends a request that may be repeated.
    async fn request(
        self: &Arc<Self>,
        call: &CallToForward,
        method: Method,
        params: Json,
    ) -> Result<Json, Unanswered> {
        let link = self.link(call, None).await.map_err(|outcome| Unanswered::Retryable(*outcome))?;
        let capabilities = self.local.capabilities(&self.name, call.capabilities);
        let relay = Relay { capabilities, ..Relay::default() };
        let client_call = ClientCall { relay: Some(Box::new(relay)), ..ClientCall::new(method, params) };
        let mut forwarded = ForwardedCall::start(link, call.sampling_caller(), client_call, &call.events);
        match forwarded.next_step().await {
            Step::Ended(Ok(result)) => Ok(result),
            Step::Ended(Err(error)) => {
                let is_final = matches!(error, ClientError::Server(_));
                let outcome = self.failed_for_good(call, &forwarded, error).await;
                Err(if is_final { Unanswered::Final(outcome) } else { Unanswered::Retryable(outcome) })
            }
            Step::Asked => {
                let message = format!("server `{}` asks something about `{}`", self.name, method.as_str());
                let code = ToolErrorCode::SourceUnavailable;
                Err(Unanswered::Final(results::unavailable(call.target, code, false, message)))
            }
        }
    }
}

/// Whether the server's tools may become tasks although its lists do not say so.
pub(crate) fn has_tasks_extension(capabilities: Node<'_>) -> bool {
    let extensions = capabilities.get("extensions");
    extensions.and_then(|extensions| extensions.get(wire::TASKS_EXTENSION)).is_some()
}

/// A version of the protocol in which the caller says that it wants a task.
pub(crate) fn takes_task_parameter(version: wire::Version) -> bool {
    version.has(Feature::TaskParameter)
}
