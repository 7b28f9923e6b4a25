//! What happened in a call so far: its clock, its randomness, and the results of its effects in the order in
//! which they completed. A handler that runs again with its journal does the same again, and performs nothing
//! twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::effects::EffectFailure;
use crate::engine::CodeHash;

/// The journal of one call. It travels to the client as the memo of a round, sealed.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct EffectJournal {
    /// The journal is valid for this code only.
    code: CodeHash,
    pub(crate) started_ms: u64,
    /// The request of the first round, as JSON text: a later one may have other headers.
    #[serde(default)]
    pub(crate) request: String,
    /// All randomness of the call follows from it.
    pub(crate) seed: [u8; 32],
    /// Progress, log messages and events that were sent already.
    pub(crate) signals: u32,
    /// Environment variables in the order in which they were read. Secrets are read anew and never stored.
    pub(crate) reads: Vec<Option<String>>,
    /// A fingerprint of each effect, by its number.
    pub(crate) issued: Vec<u64>,
    pub(crate) completions: Vec<Completion>,
    /// Called tools that have not returned, by effect.
    pub(crate) asking_tools: BTreeMap<u32, AskingTool>,
}

/// An effect that completed.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Completion {
    pub(crate) effect: u32,
    /// The call's clock from here on.
    pub(crate) at_ms: u64,
    /// JSON text.
    pub(crate) result: Result<String, EffectFailure>,
}

/// What a called tool needs in its next round.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Default)]
pub(crate) struct AskingTool {
    pub(crate) round: u32,
    /// How far it came: what it left when it asked, or its last checkpoint.
    #[serde(with = "base64_memo")]
    pub(crate) memo: Option<Vec<u8>>,
    /// Its answers so far: key and JSON text.
    pub(crate) answers: Vec<(String, String)>,
    /// The keys of the questions that are open.
    pub(crate) open_keys: Vec<String>,
    /// What the policy decided about it: JSON text.
    #[serde(default)]
    pub(crate) policy_note: Option<String>,
}

/// A memo inside a memo. As a list of numbers it would grow fourfold with each level of calls.
mod base64_memo {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(memo: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        memo.as_ref().map(|memo| STANDARD.encode(memo)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| STANDARD.decode(text).map_err(D::Error::custom)).transpose()
    }
}

/// Why a memo cannot be continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JournalError {
    #[error("the tool changed while it waited for input; repeat the call")]
    CodeChanged,
    #[error("corrupt")]
    Corrupt,
}

impl EffectJournal {
    pub(crate) fn new(code: CodeHash, started_ms: u64, seed: [u8; 32], request: String) -> Self {
        Self {
            code,
            started_ms,
            request,
            seed,
            signals: 0,
            reads: Vec::new(),
            issued: Vec::new(),
            completions: Vec::new(),
            asking_tools: BTreeMap::new(),
        }
    }

    pub(crate) fn to_memo(&self) -> Vec<u8> {
        // Numbers, strings and vectors: serialising them cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn from_memo(memo: &[u8], code: &CodeHash) -> Result<Self, JournalError> {
        let journal: Self = serde_json::from_slice(memo).map_err(|_| JournalError::Corrupt)?;
        if journal.code != *code {
            return Err(JournalError::CodeChanged);
        }
        Ok(journal)
    }

    /// Records that an effect completed. The clock never goes back.
    pub(crate) fn complete(
        &mut self,
        effect: u32,
        now_ms: u64,
        result: Result<String, EffectFailure>,
    ) -> Completion {
        let at_ms = now_ms.max(self.now_ms());
        let completion = Completion { effect, at_ms, result };
        self.completions.push(completion.clone());
        self.asking_tools.remove(&effect);
        completion
    }

    /// The call's clock: the time of the last completion.
    pub(crate) fn now_ms(&self) -> u64 {
        self.completions.last().map_or(self.started_ms, |last| last.at_ms)
    }
}

/// Tells effects apart: enough to notice that a replayed handler took another path.
pub(crate) fn fingerprint(kind: &str, arguments: &str) -> u64 {
    // FNV-1a: the same on every machine and in every build.
    let bytes = kind.bytes().chain([0]).chain(arguments.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{EffectJournal, JournalError};

    #[test]
    fn a_memo_is_valid_for_the_code_that_wrote_it() {
        let mut journal = EffectJournal::new([1; 32], 5, [2; 32], String::new());
        journal.complete(0, 3, Ok("1".into()));
        assert_eq!(journal.now_ms(), 5, "the clock never goes back");
        let memo = journal.to_memo();
        assert_eq!(EffectJournal::from_memo(&memo, &[1; 32]), Ok(journal));
        assert_eq!(EffectJournal::from_memo(&memo, &[3; 32]), Err(JournalError::CodeChanged));
        assert_eq!(EffectJournal::from_memo(&memo[1..], &[1; 32]), Err(JournalError::Corrupt));
    }
}
