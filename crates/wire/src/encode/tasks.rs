//! Tasks, in the protocol's two forms: that of 2025-11-25, and that of the tasks extension.

use json::write::{self, ObjectWriter};
use spile_core::calendar::DateTime;
use spile_core::{CallError, CallResult, InputRequests};

use super::{RenderedServerInfo, ReplyTo, begin_response, end_response, input_requests, results};
use crate::error::RpcError;
use crate::version::{Feature, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusName {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl StatusName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The current state of a task.
#[derive(Debug, Clone)]
pub struct TaskSnapshot {
    pub id: String,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub ttl_ms: u64,
    pub poll_interval_ms: u64,
    pub status: TaskStatus,
}

#[derive(Debug, Clone)]
pub enum TaskStatus {
    Working,
    InputRequired(InputRequests),
    Completed(CallResult),
    Failed(CallError),
    Cancelled,
}

/// The answer to a request about tasks.
#[derive(Debug, Clone)]
pub enum TaskAnswer {
    State(TaskSnapshot),
    /// One page of `tasks/list`, and the cursor of the next.
    List {
        tasks: Vec<TaskSnapshot>,
        next: Option<String>,
    },
    /// The request is accepted; there is nothing to say.
    Acknowledged,
}

impl TaskSnapshot {
    /// The status, and a status message where there is one.
    ///
    /// A tool error makes a failed task in 2025-11-25 and a completed one in the extension, where `failed` "MUST NOT
    /// be used to represent non-JSON-RPC errors".
    fn status_and_message(&self, version: Version) -> (StatusName, Option<String>) {
        match &self.status {
            TaskStatus::Working => (StatusName::Working, None),
            TaskStatus::InputRequired(_) => (StatusName::InputRequired, None),
            TaskStatus::Completed(result) if version.has(Feature::TaskParameter) && result.is_error() => {
                (StatusName::Failed, Some("the tool failed; the result has the error".into()))
            }
            TaskStatus::Completed(_) => (StatusName::Completed, None),
            TaskStatus::Failed(error) => {
                (StatusName::Failed, Some(RpcError::from_call_error(error, version).message))
            }
            TaskStatus::Cancelled => (StatusName::Cancelled, None),
        }
    }

    /// Writes the response to `tasks/get` (and, in 2025-11-25, to `tasks/cancel`).
    pub(super) fn write_response(&self, out: &mut Vec<u8>, to: &ReplyTo, server_info: &RenderedServerInfo) {
        begin_response(out, &to.id);
        let mut result = ObjectWriter::new(out);
        write_task_members(&mut result, to.version, server_info, self);
        if to.version.has(Feature::ResultType) {
            result.str("resultType", "complete");
            server_info.write_meta(result.key("_meta"), None);
        }
        result.end();
        end_response(out);
    }
}

/// Writes the response to `tasks/list`.
pub(super) fn task_list(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    tasks: &[TaskSnapshot],
    next: Option<&str>,
) {
    begin_response(out, &to.id);
    let mut result = ObjectWriter::new(out);
    result.array("tasks", tasks, |out, task| {
        let mut object = ObjectWriter::new(out);
        write_task_members(&mut object, to.version, server_info, task);
        object.end();
    });
    result.maybe_str("nextCursor", next);
    result.end();
    end_response(out);
}

/// Writes the result of a call that became a task.
pub(super) fn write_task_created(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    task: &TaskSnapshot,
) {
    let mut result = ObjectWriter::new(out);
    if version.has(Feature::TaskExtension) {
        result.str("resultType", "task");
        write_task_status(&mut result, version, task);
        server_info.write_meta(result.key("_meta"), None);
    } else {
        result.object("task", |o| write_task_status(o, version, task));
    }
    result.end();
}

fn write_task_status(out: &mut ObjectWriter<'_>, version: Version, task: &TaskSnapshot) {
    let (status, message) = task.status_and_message(version);
    out.str("taskId", &task.id).str("status", status.as_str());
    out.maybe_str("statusMessage", message.as_deref());
    out.str("createdAt", &format_timestamp(task.created_ms))
        .str("lastUpdatedAt", &format_timestamp(task.updated_ms));
    let (ttl, poll) = if version.has(Feature::TaskExtension) {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    write::integer(out.key(ttl), task.ttl_ms.min(i64::MAX as u64) as i64);
    write::integer(out.key(poll), task.poll_interval_ms.min(i64::MAX as u64) as i64);
}

/// Milliseconds since 1970 as `1970-01-01T00:00:00.000Z`. ISO 8601 has four digits for a year.
fn format_timestamp(ms: u64) -> String {
    match DateTime::from_unix_ms(ms) {
        Some(at) => format!("{at:.3}"),
        None => "9999-12-31T23:59:59.999Z".to_owned(),
    }
}

/// Writes the members of a task. The extension adds the result, the error or the input requests.
pub(super) fn write_task_members(
    out: &mut ObjectWriter<'_>,
    version: Version,
    server_info: &RenderedServerInfo,
    task: &TaskSnapshot,
) {
    write_task_status(out, version, task);
    if !version.has(Feature::TaskExtension) {
        return;
    }
    match &task.status {
        TaskStatus::Working | TaskStatus::Cancelled => {}
        TaskStatus::InputRequired(requests) => {
            out.object("inputRequests", |o| input_requests::write_input_requests(o, requests, version));
        }
        TaskStatus::Completed(result) => {
            results::write_result(out.key("result"), version, server_info, result)
        }
        TaskStatus::Failed(error) => {
            out.object("error", |o| RpcError::from_call_error(error, version).write_members(o));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::format_timestamp;

    #[test]
    fn timestamps_have_milliseconds_and_end_with_the_last_year() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_785_196_799_999, "2026-07-27T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format_timestamp(ms), text);
        }
    }
}
