//! Calls that wait until somebody at the gateway decides: at its terminal, or at its approvals endpoint.
//!
//! What is asked and what is answered is in the store, so that every process with the same store shows the same questions,
//! and an answer that arrives at one of them reaches the call in another. An answer counts once: the first is kept, and a
//! call that ended meanwhile leaves a mark in its place.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use json::{Json, Node};
use spile_core::Platform;
use spile_core::text::hex;
use state::store::{EncryptedStore, Namespace, PutOutcome, Sequence, Store, StoreError, StoreKey, Ttl};
use tokio::sync::watch;

use crate::question::{Approval, ApprovalKind, ApprovalRequest, Approver};

/// More calls do not wait in one process; they are refused as if nobody could be asked.
const WAITING_MAX: usize = 256;
/// More are not remembered, over all processes.
const ASKED_MAX: usize = 1000;
/// How often a process looks for an answer that arrived at another one.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a question is known after it expired, so that a late answer is told why it does not count.
const MEMORY_MS: u64 = 10 * 60 * 1000;
/// All gateways with one store share their questions.
const OWNER: &[u8] = b"gateway";
const ASKED: &[u8] = b"asked";

/// The questions of a gateway that are not put to the calling client.
pub struct ApprovalQueue {
    store: EncryptedStore,
    platform: Arc<dyn Platform>,
    /// The calls of this process, by the ids of their questions, oldest first.
    waiting: Mutex<BTreeMap<String, Arc<PendingApproval>>>,
    /// Increases when `waiting` or an answer changes.
    version: watch::Sender<u64>,
}

/// A question that nobody has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// Names the question; later ones are greater.
    pub id: String,
    pub asked_ms: u64,
    pub request: ApprovalRequest,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOutcome {
    Recorded,
    /// No question has this id, or it was long ago.
    Unknown,
    /// Somebody else answered, or the call has ended.
    TooLate,
}

impl ApprovalQueue {
    pub fn new(store: EncryptedStore, platform: Arc<dyn Platform>) -> Arc<Self> {
        Arc::new(Self { store, platform, waiting: Mutex::default(), version: watch::Sender::new(0) })
    }

    /// All questions that wait for an answer, oldest first: those of this process, and of others with the same store.
    pub async fn pending(&self) -> Result<Vec<PendingApproval>, StoreError> {
        let now_ms = self.platform.now_ms();
        let (mut found, mut after) = (Vec::new(), Sequence::START);
        while let Some(page) = self.store.read_after(key(ASKED), after, 100, now_ms).await? {
            let Some((last, _)) = page.entries.last() else { break };
            after = *last;
            for (_, bytes) in &page.entries {
                let Some(asked) = PendingApproval::read(bytes) else { continue };
                let is_open = asked.request.deadline_ms > now_ms
                    && self.store.get(key(asked.id.as_bytes()), now_ms).await?.is_none();
                found.extend(is_open.then_some(asked));
            }
        }
        Ok(found)
    }

    /// The questions of this process, oldest first.
    pub fn waiting(&self) -> Vec<Arc<PendingApproval>> {
        self.lock().values().cloned().collect()
    }

    /// Notifies when [`Self::waiting`] has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Answers a question, for this process or another one. `by` names the person.
    pub async fn answer(
        &self,
        id: &str,
        is_allowed: bool,
        by: Option<&str>,
    ) -> Result<AnswerOutcome, StoreError> {
        let asked = self.pending().await?.into_iter().find(|asked| asked.id == id);
        let Some(asked) = asked else {
            let known = self.store.get(key(id.as_bytes()), self.platform.now_ms()).await?;
            return Ok(if known.is_some() { AnswerOutcome::TooLate } else { AnswerOutcome::Unknown });
        };
        let answer = Json::object(|out| {
            out.bool("allowed", is_allowed).maybe_str("by", by);
        });
        match self.put(id, asked.request.deadline_ms, &answer).await? {
            PutOutcome::Stored => Ok(AnswerOutcome::Recorded),
            PutOutcome::AlreadyThere => Ok(AnswerOutcome::TooLate),
        }
    }

    async fn put(&self, id: &str, deadline_ms: u64, answer: &Json) -> Result<PutOutcome, StoreError> {
        let now_ms = self.platform.now_ms();
        let ttl = Ttl { ms: deadline_ms.saturating_sub(now_ms).saturating_add(MEMORY_MS) };
        let stored = self.store.put_once(key(id.as_bytes()), answer.as_str().as_bytes(), ttl, now_ms).await;
        self.changed();
        stored
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    async fn run(self: Arc<Self>, waiting: WaitingCall) -> Approval {
        let asked = waiting.asked.clone();
        let now_ms = self.platform.now_ms();
        let bytes = asked.to_json();
        let ttl = Ttl { ms: asked.request.deadline_ms.saturating_sub(now_ms).saturating_add(MEMORY_MS) };
        let stored = self.store.append(key(ASKED), bytes.as_str().as_bytes(), ASKED_MAX, ttl, now_ms).await;
        if let Err(error) = stored {
            tracing::warn!(%error, "a call cannot be shown for approval");
            return Approval::Unanswered;
        }
        self.changed();
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            match self.store.get(key(asked.id.as_bytes()), self.platform.now_ms()).await {
                Ok(Some(answer)) => return waiting.finish(&answer),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "cannot look for the answer to a question"),
            }
            // An answer at this process is noticed at once, one at another process soon.
            let _ = tokio::time::timeout(POLL_INTERVAL, changes.changed()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<PendingApproval>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(name: &[u8]) -> StoreKey<'_> {
    StoreKey { namespace: Namespace::Approvals, owner: OWNER, name }
}

impl Approver for ApprovalQueue {
    fn is_available(&self) -> bool {
        self.lock().len() < WAITING_MAX
    }

    fn ask(self: Arc<Self>, request: ApprovalRequest) -> Pin<Box<dyn Future<Output = Approval> + Send>> {
        let asked_ms = self.platform.now_ms();
        let mut random = [0; 8];
        self.platform.fill_random(&mut random);
        let id = format!("{asked_ms:012x}{}", hex(&random));
        let asked = Arc::new(PendingApproval { id: id.clone(), asked_ms, request });
        self.lock().insert(id, asked.clone());
        // From here on: the future may be dropped before it was polled.
        let waiting = WaitingCall { queue: self.clone(), asked, is_answered: false };
        Box::pin(self.run(waiting))
    }
}

/// A call that waits. When it ends without an answer, the question ends with it.
struct WaitingCall {
    queue: Arc<ApprovalQueue>,
    asked: Arc<PendingApproval>,
    is_answered: bool,
}

impl WaitingCall {
    fn finish(mut self, answer: &[u8]) -> Approval {
        self.is_answered = true;
        let json = std::str::from_utf8(answer).ok().and_then(|text| Json::parse(text).ok());
        let Some(doc) = json.map(|json| json.to_doc()) else { return Approval::Unanswered };
        let by = doc.root().get("by").and_then(|by| Some(by.str()?.into_owned()));
        match doc.root().get("allowed").and_then(|allowed| allowed.bool()) {
            Some(true) => Approval::Allowed { by },
            Some(false) => Approval::Declined { by },
            None => Approval::Unanswered,
        }
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.queue.lock().remove(&self.asked.id);
        self.queue.changed();
        if self.is_answered {
            return;
        }
        let (queue, asked) = (self.queue.clone(), self.asked.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let ended = Json::object(|out| {
                    out.bool("ended", true);
                });
                // Otherwise the question is shown until it expires.
                let _ = queue.put(&asked.id, asked.request.deadline_ms, &ended).await;
            });
        }
    }
}

impl PendingApproval {
    pub fn to_json(&self) -> Json {
        let ApprovalRequest {
            kind,
            call_id,
            server,
            tool,
            rule,
            arguments,
            arguments_left_out,
            reason,
            principal,
            deadline_ms,
        } = &self.request;
        let number = |ms: u64| ms.min(i64::MAX as u64) as i64;
        Json::object(|out| {
            out.str("id", &self.id)
                .str("kind", kind.as_str())
                .str("call", call_id)
                .maybe_str("server", server.as_deref());
            out.str("tool", tool).str("rule", rule).str("principal", principal).str("reason", reason);
            // Names are cut, so that two may look the same.
            out.array("arguments", arguments, |out, (name, value)| {
                let mut argument = json::write::ObjectWriter::new(out);
                argument.str("name", name).str("value", value);
                argument.end();
            });
            out.int("argumentsLeftOut", *arguments_left_out as i64);
            out.int("askedMs", number(self.asked_ms)).int("deadlineMs", number(*deadline_ms));
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let doc = Json::parse(std::str::from_utf8(bytes).ok()?).ok()?.to_doc();
        let root = doc.root();
        let text = |key: &str| Some(root.get(key)?.str()?.into_owned());
        let number = |key: &str| root.get(key).and_then(|node: Node<'_>| node.u64());
        let arguments = root.get("arguments")?.elements().filter_map(|argument| {
            let text = |key: &str| Some(argument.get(key)?.str()?.into_owned());
            Some((text("name")?, text("value")?))
        });
        Some(Self {
            id: text("id")?,
            asked_ms: number("askedMs")?,
            request: ApprovalRequest {
                // Earlier versions wrote none.
                kind: ApprovalKind::ALL
                    .into_iter()
                    .find(|kind| root.get("kind").is_some_and(|text| text.eq_str(kind.as_str())))
                    .unwrap_or_default(),
                call_id: text("call")?,
                server: text("server"),
                tool: text("tool")?,
                rule: text("rule")?,
                arguments: arguments.collect(),
                arguments_left_out: number("argumentsLeftOut")? as usize,
                reason: text("reason")?,
                principal: text("principal")?,
                deadline_ms: number("deadlineMs")?,
            },
        })
    }
}
