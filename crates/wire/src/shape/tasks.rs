//! Tasks, in the two shapes that the protocol gave them: 2025-11-25's own, and the extension's.

use call::{Asks, Fault, Reply};
use json::write::{self, Object};

use super::{ReplyTo, Stamp, asks, begin, end, reply, time};
use crate::code::Told;
use crate::version::{Feature, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
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

/// A task as it stands.
#[derive(Debug, Clone)]
pub struct TaskView {
    pub id: String,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub ttl_ms: u64,
    pub poll_ms: u64,
    pub detail: Detail,
}

#[derive(Debug, Clone)]
pub enum Detail {
    Working,
    Input(Asks),
    Completed(Reply),
    Failed(Fault),
    Cancelled,
}

impl TaskView {
    /// How it stands, and a sentence about that where there is something to say.
    ///
    /// A tool that failed is a failed task in 2025-11-25, and a completed one in the extension: there, `failed`
    /// "MUST NOT be used to represent non-JSON-RPC errors".
    fn status(&self, version: Version) -> (Status, Option<String>) {
        match &self.detail {
            Detail::Working => (Status::Working, None),
            Detail::Input(_) => (Status::InputRequired, None),
            Detail::Completed(Reply::Tool(reply))
                if reply.is_error && version.has(Feature::TaskParameter) =>
            {
                (Status::Failed, Some("the tool reported an error; it is in the result".into()))
            }
            Detail::Completed(_) => (Status::Completed, None),
            Detail::Failed(fault) => (Status::Failed, Some(Told::from_fault(fault, version).message)),
            Detail::Cancelled => (Status::Cancelled, None),
        }
    }

    /// Answers `tasks/get` (and, in 2025-11-25, `tasks/cancel`).
    pub fn answer(&self, out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp) {
        begin(out, &to.id);
        let mut result = Object::new(out);
        members(&mut result, to.version, stamp, self);
        if to.version.has(Feature::ResultType) {
            result.str("resultType", "complete");
            stamp.meta_with(result.key("_meta"), None);
        }
        result.end();
        end(out);
    }
}

/// Answers `tasks/list`.
pub fn task_list(out: &mut Vec<u8>, to: &ReplyTo, stamp: &Stamp, tasks: &[TaskView], next: Option<&str>) {
    begin(out, &to.id);
    let mut result = Object::new(out);
    result.array("tasks", tasks, |out, task| {
        let mut object = Object::new(out);
        members(&mut object, to.version, stamp, task);
        object.end();
    });
    result.maybe_str("nextCursor", next);
    result.end();
    end(out);
}

/// The result that says: it goes on as a task.
pub(super) fn created(out: &mut Vec<u8>, version: Version, stamp: &Stamp, task: &TaskView) {
    let mut result = Object::new(out);
    if version.has(Feature::TaskExtension) {
        result.str("resultType", "task");
        head(&mut result, version, task);
        stamp.meta_with(result.key("_meta"), None);
    } else {
        result.object("task", |o| head(o, version, task));
    }
    result.end();
}

fn head(out: &mut Object<'_>, version: Version, task: &TaskView) {
    let (status, message) = task.status(version);
    out.str("taskId", &task.id).str("status", status.as_str());
    out.maybe_str("statusMessage", message.as_deref());
    out.str("createdAt", &time::iso(task.created_ms)).str("lastUpdatedAt", &time::iso(task.updated_ms));
    let (ttl, poll) = if version.has(Feature::TaskExtension) {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    write::integer(out.key(ttl), task.ttl_ms.min(i64::MAX as u64) as i64);
    write::integer(out.key(poll), task.poll_ms.min(i64::MAX as u64) as i64);
}

/// The members of a task; the extension inlines what the status stands for.
pub(super) fn members(out: &mut Object<'_>, version: Version, stamp: &Stamp, task: &TaskView) {
    head(out, version, task);
    if !version.has(Feature::TaskExtension) {
        return;
    }
    match &task.detail {
        Detail::Working | Detail::Cancelled => {}
        Detail::Input(questions) => {
            out.object("inputRequests", |o| asks::input_requests(o, questions, version));
        }
        Detail::Completed(done) => reply::result(out.key("result"), version, stamp, done),
        Detail::Failed(fault) => {
            out.object("error", |o| Told::from_fault(fault, version).write(o));
        }
    }
}
