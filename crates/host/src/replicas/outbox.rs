//! What this process still has to tell the others. Clients decide how much that is, and the store how fast it goes, so all
//! of it is bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::Server;

/// Answers of one client that wait for the store. A client that sends more of them has not been asked that much.
const ANSWERS_PER_OWNER_MAX: usize = 64;
/// The same for all clients.
const ANSWERS_MAX: usize = 256;
/// As many as the table of ended sessions keeps. Beyond it the oldest is not told.
const ENDED_SESSIONS_MAX: usize = 65_536;
/// What goes into one entry of the stream. So a stream of [`super::ENTRIES_MAX`] entries stays below what a store holds for
/// one owner.
const ENDED_SESSIONS_PER_ENTRY_MAX: usize = 64;
/// Whoever can cause a warning can cause many.
const WARNING_INTERVAL_MS: u64 = 60_000;

/// A session that ended here, and until when others must know.
pub(super) type EndedSession = ([u8; 16], u64);

#[derive(Default)]
pub(crate) struct ReplicaOutbox(Mutex<OutboxState>);

#[derive(Default)]
struct OutboxState {
    ended: VecDeque<EndedSession>,
    /// Whether a task tells them.
    is_publishing: bool,
    /// Answers on their way to the store, by the client that sent them.
    answers_by_owner: HashMap<[u8; 32], usize>,
    quiet_until_ms: [u64; OutboxProblem::COUNT],
}

/// What the operator is told about at most once in [`WARNING_INTERVAL_MS`].
#[derive(Debug, Clone, Copy)]
pub(super) enum OutboxProblem {
    NoSharedStore,
    TooManyAnswers,
    AnswerNotPassedOn,
    EndNotPublished,
}

impl OutboxProblem {
    const COUNT: usize = 4;
}

/// One answer on its way to the store. Dropping it makes room for the next.
pub(super) struct AnswerPlace {
    pub(super) server: Arc<Server>,
    owner: [u8; 32],
}

impl ReplicaOutbox {
    /// Returns whether the caller must start to publish: nobody does.
    pub(super) fn push_ended(&self, session: EndedSession) -> bool {
        let mut state = self.lock();
        if state.ended.len() >= ENDED_SESSIONS_MAX {
            state.ended.pop_front();
        }
        state.ended.push_back(session);
        !std::mem::replace(&mut state.is_publishing, true)
    }

    /// The oldest ones. When there is none, the caller has stopped to publish.
    pub(super) fn take_ended(&self) -> Vec<EndedSession> {
        let mut state = self.lock();
        let count = state.ended.len().min(ENDED_SESSIONS_PER_ENTRY_MAX);
        state.is_publishing = count > 0;
        state.ended.drain(..count).collect()
    }

    /// They could not be told yet.
    pub(super) fn put_back_ended(&self, sessions: Vec<EndedSession>) {
        let mut state = self.lock();
        let room = ENDED_SESSIONS_MAX.saturating_sub(state.ended.len());
        for session in sessions.into_iter().rev().take(room) {
            state.ended.push_front(session);
        }
    }

    /// Whether to warn now.
    pub(super) fn may_warn(&self, problem: OutboxProblem, now_ms: u64) -> bool {
        let quiet_until_ms = &mut self.lock().quiet_until_ms[problem as usize];
        let is_due = *quiet_until_ms <= now_ms;
        if is_due {
            *quiet_until_ms = now_ms.saturating_add(WARNING_INTERVAL_MS);
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerPlace {
    /// `None` if too many answers wait already.
    pub(super) fn acquire(server: &Arc<Server>, owner: [u8; 32]) -> Option<Self> {
        let mut state = server.replica_outbox.lock();
        let all: usize = state.answers_by_owner.values().sum();
        let of_owner = state.answers_by_owner.get(&owner).copied().unwrap_or(0);
        if all >= ANSWERS_MAX || of_owner >= ANSWERS_PER_OWNER_MAX {
            return None;
        }
        state.answers_by_owner.insert(owner, of_owner + 1);
        Some(Self { server: server.clone(), owner })
    }
}

impl Drop for AnswerPlace {
    fn drop(&mut self) {
        let mut state = self.server.replica_outbox.lock();
        let Some(count) = state.answers_by_owner.get_mut(&self.owner) else { return };
        *count -= 1;
        if *count == 0 {
            state.answers_by_owner.remove(&self.owner);
        }
    }
}
