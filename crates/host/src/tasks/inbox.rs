//! What a client sent about a task that another process runs: answers to its questions, or that it is cancelled.
//!
//! The message is in the store before it is acknowledged, so it is not lost with either process: whoever runs the task next
//! reads its inbox first. Reading a message again changes nothing, because no question is asked twice under the same key.

use std::sync::Arc;
use std::time::Duration;

use json::Json;
use spile_core::CallError;
use spile_core::text::parse_hex;
use state::store::{Namespace, Sequence, Store as _, StoreKey, Ttl};
use wire::encode::{TaskSnapshot, TaskStatus};

use super::durable::FoundTask;
use super::{Task, TaskOwner, task_elsewhere};
use crate::byte_fields::{FieldReader, FieldWriter};
use crate::input_requests::store_failure;
use crate::server::Server;

/// Messages that wait; a client that sends more replaces its oldest ones.
const MESSAGES_MAX: usize = 64;
/// What the store accepts as one entry, less what encryption adds.
const MESSAGE_BYTES_MAX: usize = (1 << 20) - 1024;
/// How long a request waits until the other process has read its message. It is acknowledged after that, too.
const READ_ATTEMPTS_MAX: u32 = 15;
const READ_ATTEMPT_INTERVAL: Duration = Duration::from_millis(200);

pub(super) enum TaskMessage {
    Answers(Vec<(String, Json)>),
    Cancel,
}

impl TaskMessage {
    fn to_bytes(&self) -> Vec<u8> {
        let mut fields = FieldWriter::default();
        match self {
            Self::Answers(answers) => {
                fields.u8(0);
                fields.list(answers.iter(), |fields, (key, answer)| {
                    fields.text(key);
                    fields.text(answer.as_str());
                });
            }
            Self::Cancel => fields.u8(1),
        }
        fields.into_bytes()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        Some(match fields.u8()? {
            0 => Self::Answers(fields.list(|fields| Some((fields.text()?.to_owned(), fields.json()?)))?),
            1 => Self::Cancel,
            _ => return None,
        })
    }

    /// Whether the task shows that the message was read.
    fn is_applied_to(&self, task: &TaskSnapshot) -> bool {
        match (self, &task.status) {
            (Self::Answers(answers), TaskStatus::InputRequired(open)) => {
                !answers.iter().any(|(key, _)| open.contains_key(key))
            }
            (Self::Cancel, TaskStatus::Working | TaskStatus::InputRequired(_)) => false,
            (Self::Answers(_) | Self::Cancel, _) => true,
        }
    }
}

/// The name of a task's inbox in the store.
fn inbox_name(id: &str) -> Vec<u8> {
    [id.as_bytes(), b"/inbox"].concat()
}

/// Sends a message to the process that runs a task, and waits for a moment until it has read it. Returns the task then.
pub(super) async fn pass_on(
    server: &Arc<Server>,
    id: &str,
    owner: &TaskOwner,
    message: &TaskMessage,
    mut seen: TaskSnapshot,
) -> Result<TaskSnapshot, CallError> {
    let bytes = message.to_bytes();
    // The notice names the task by its bytes.
    let (Some(key), true) = (parse_hex(id.as_bytes()), bytes.len() <= MESSAGE_BYTES_MAX) else {
        return Err(task_elsewhere());
    };
    let (name, digest, now_ms) = (inbox_name(id), owner.digest(server, id), server.platform.now_ms());
    let inbox = StoreKey { namespace: Namespace::Tasks, owner: &digest, name: &name };
    let ttl = Ttl { ms: seen.created_ms.saturating_add(seen.ttl_ms).saturating_sub(now_ms).max(1) };
    server.store.append(inbox, &bytes, MESSAGES_MAX, ttl, now_ms).await.map_err(store_failure)?;
    server.publish_task_message(key).await;
    for _ in 0..READ_ATTEMPTS_MAX {
        if message.is_applied_to(&seen) {
            break;
        }
        tokio::time::sleep(READ_ATTEMPT_INTERVAL).await;
        seen = match server.tasks.find_stored(server, id, owner).await? {
            // The other process has ended meanwhile. The task goes on here, and reads its inbox first.
            FoundTask::Here(task) => task.snapshot(),
            FoundTask::Elsewhere(seen) => seen,
        };
    }
    Ok(seen)
}

impl Task {
    /// Applies the messages that came since the last time.
    pub(super) async fn read_inbox(self: &Arc<Self>, server: &Arc<Server>, after: &mut Sequence) {
        let name = inbox_name(&self.id);
        let inbox = StoreKey { namespace: Namespace::Tasks, owner: &self.owner, name: &name };
        let page = match server.store.read_after(inbox, *after, MESSAGES_MAX, server.platform.now_ms()).await
        {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, task = self.id, "cannot read what a client sent about a task");
                return;
            }
        };
        for (sequence, message) in page.into_iter().flat_map(|page| page.entries) {
            *after = sequence;
            match TaskMessage::read(&message) {
                Some(TaskMessage::Answers(answers)) => {
                    self.provide_input(server, answers);
                }
                Some(TaskMessage::Cancel) => drop(self.cancel(server)),
                None => tracing::warn!(task = self.id, "cannot read what a client sent about a task"),
            }
        }
    }
}

impl super::Tasks {
    /// A client sent something about this task to another process.
    pub(crate) fn read_inbox_of(&self, id: &str) {
        if let Some(task) = self.lock().get(id) {
            task.inbox_notify.notify_one();
        }
    }
}
