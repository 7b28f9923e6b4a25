//! Tools that a handler calls: their questions become questions of the handler's call, and their checkpoints a part of
//! its journal.

use std::pin::Pin;
use std::sync::Arc;

use json::Json;
use ring::digest::{SHA256, digest};
use spile_core::{
    CallFuture, CallId, CheckpointSink, Checkpoints, InputRequests, Journal, Outcome, TaskSupport,
};
use tokio::sync::{mpsc, oneshot};

use super::{Done, Driver, OpenQuestions};
use crate::effects::Wanted;
use crate::engine::IssuedEffect;
use crate::journal::AskingTool;
use crate::results;

/// Checkpoints of called tools, on their way to the driver of the calling one.
pub(super) struct NestedSaves {
    sender: mpsc::Sender<NestedSave>,
    receiver: mpsc::Receiver<NestedSave>,
}

/// The called tool goes on when `done` is answered.
pub(super) struct NestedSave {
    effect: u32,
    memo: Vec<u8>,
    done: oneshot::Sender<()>,
}

/// Called tools that wait for the driver at the same time; the others wait for a place.
const NESTED_SAVES_PENDING_MAX: usize = 4;

/// The checkpoints of the tool that one effect called.
struct CalledToolCheckpoints {
    effect: u32,
    saves: mpsc::Sender<NestedSave>,
}

impl CheckpointSink for CalledToolCheckpoints {
    fn save(&self, memo: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (effect, saves) = (self.effect, self.saves.clone());
        Box::pin(async move {
            let (done, saved) = oneshot::channel();
            // Without its driver the called tool is dropped, too.
            if saves.send(NestedSave { effect, memo, done }).await.is_ok() {
                let _ = saved.await;
            }
        })
    }
}

/// Waits for the next checkpoint of a called tool.
pub(super) async fn next_save(saves: &mut Option<NestedSaves>) -> NestedSave {
    match saves {
        // The channel stays open: its sender is kept beside it.
        Some(saves) => match saves.receiver.recv().await {
            Some(save) => save,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Driver {
    /// Calls another tool, or continues it if it asked something in an earlier round.
    pub(super) fn call_tool(&mut self, effect: &IssuedEffect, name: &str, arguments: Json, wanted: Wanted) {
        let id = nested_call_id(&self.journal.seed, effect.number);
        let mut policy_note = None;
        let mut journal = match self.journal.asking_tools.get(&effect.number) {
            None => Journal::for_round(0, id, None),
            Some(asking) => {
                policy_note.clone_from(&asking.policy_note);
                let mut journal =
                    Journal::for_round(asking.round, id, asking.memo.clone().map(Vec::into_boxed_slice));
                let mut answers = asking.answers.clone();
                for key in &asking.open_keys {
                    if let Some(answer) = self.answer(&tool_question_key(effect.number, key)) {
                        answers.push((key.clone(), answer));
                    }
                }
                for (key, answer) in &answers {
                    // The texts are JSON: they came from the client through `Json`.
                    if let Ok(answer) = Json::parse(answer) {
                        journal.record(key, answer);
                    }
                }
                journal
            }
        };
        let answers = journal.entries().map(|(key, answer)| (key.to_owned(), answer.to_string())).collect();
        // The memo stays: it is what the tool goes on from if the process ends now.
        let memo = journal.memo().map(<[u8]>::to_vec);
        // The text was a note of the policy before it was stored.
        if let Some(note) = policy_note.as_deref().and_then(|note| Json::parse(note).ok()) {
            journal.record_policy_note(note);
        }
        let asking = AskingTool { round: journal.round, answers, memo, open_keys: Vec::new(), policy_note };
        self.journal.asking_tools.insert(effect.number, asking);
        let checkpoints = self.checkpoints_of(effect.number);
        journal.set_checkpoints(checkpoints.clone());
        let called = self.round.tools.call_tool(name, arguments, journal);
        self.perform(effect.number, None, called_tool(called, wanted, checkpoints));
    }

    /// A called tool needs input: its questions become questions of this call.
    pub(super) fn tool_asks(&mut self, number: u32, mut requests: InputRequests) {
        let asking = self.journal.asking_tools.entry(number).or_default();
        asking.round += 1;
        self.asks_for_consent |= requests.is_consent();
        asking.memo = requests.take_memo().map(Vec::from);
        asking.policy_note = requests.take_policy_note().map(|note| note.to_string());
        asking.open_keys = requests.iter().map(|(key, _)| key.to_owned()).collect();
        // It asks these again: an earlier answer was not what it needs.
        let open_keys = asking.open_keys.clone();
        asking.answers.retain(|(key, _)| !open_keys.contains(key));
        let wake_at_ms = requests.wake_at_ms();
        let requests =
            requests.iter().map(|(key, request)| (tool_question_key(number, key), request.clone()));
        self.questions.insert(number, OpenQuestions { requests: requests.collect(), wake_at_ms });
    }

    /// Where a called tool saves how far it came, if its caller is a task or may become one.
    fn checkpoints_of(&mut self, effect: u32) -> Checkpoints {
        if !self.checkpoints.are_kept() && self.round.handler.task_support == TaskSupport::Forbidden {
            return Checkpoints::none();
        }
        let saves = self.nested_saves.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(NESTED_SAVES_PENDING_MAX);
            NestedSaves { sender, receiver }
        });
        Checkpoints::new(Arc::new(CalledToolCheckpoints { effect, saves: saves.sender.clone() }))
    }

    /// A checkpoint of a called tool is part of the journal before the tool goes on.
    pub(super) async fn save_nested(&mut self, save: NestedSave) {
        if let Some(asking) = self.journal.asking_tools.get_mut(&save.effect) {
            asking.memo = Some(save.memo);
            self.checkpoints.save(self.journal.to_memo()).await;
        }
        // A called tool that was abandoned meanwhile does not wait.
        let _ = save.done.send(());
    }
}

async fn called_tool(mut called: CallFuture, wanted: Wanted, checkpoints: Checkpoints) -> Done {
    loop {
        match called.await {
            // A handler waits for the result; it does not become a task of its own.
            Outcome::Detach(work) => called = work.start(checkpoints.clone()),
            Outcome::InputRequired(requests) => return Done::Asks(requests),
            Outcome::Done(result) => {
                return Done::Result(match wanted {
                    Wanted::Result => Ok(results::render_call_result(&result)),
                    Wanted::Data => results::structured_content(&result),
                });
            }
            Outcome::ToolFailed(error) => {
                return Done::Result(match wanted {
                    Wanted::Result => Ok(results::render_tool_error(&error)),
                    Wanted::Data => Err(results::tool_failure(&error)),
                });
            }
            Outcome::Failed(error) => return Done::Result(Err(results::effect_failure(error))),
        }
    }
}

fn tool_question_key(number: u32, key: &str) -> String {
    format!("tool-{number}:{key}")
}

/// The id of a called tool's call: the same in every round.
fn nested_call_id(seed: &[u8; 32], number: u32) -> CallId {
    let digest = digest(&SHA256, &[&seed[..], b"tool", &number.to_be_bytes()].concat());
    let mut id = CallId::default();
    id.copy_from_slice(&digest.as_ref()[..16]);
    id
}
