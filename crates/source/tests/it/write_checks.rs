//! Write checks that record the rows they see, and helpers for changes.

use std::fmt::Write as _;

use contract::source::{IdempotencyKey, RowChange, WriteError, Writer};
use contract::{Value, ValueRef};

use crate::driver::{ContractViolation, VersionConflict, WriteChecks, WriteOutcome, WriteRequest, WriteRow};

/// Shows rows as their values between `|`; no value is `-`.
#[derive(Default)]
pub struct RecordingChecks {
    /// Objects to every row.
    pub is_stale: bool,
    /// A row with this text violates the contract.
    pub unwritable_text: Option<&'static str>,
    /// Further values to set.
    pub extra_values: Vec<(usize, Value)>,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl WriteChecks for RecordingChecks {
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        assert_eq!((&self.before, &self.after), (&None, &None), "once, and first");
        self.before = Some(row_text(row));
        if self.is_stale { Err(VersionConflict) } else { Ok(self.extra_values.clone()) }
    }

    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
        assert_eq!(self.after, None, "once");
        let line = row_text(row);
        self.after = Some(line.clone());
        match self.unwritable_text {
            Some(shunned) if line.contains(shunned) => Err(ContractViolation),
            _ => Ok(line.into_bytes()),
        }
    }
}

pub fn row_text(row: &[ValueRef<'_>]) -> String {
    let mut out = String::new();
    for (at, cell) in row.iter().enumerate() {
        let bar = if at > 0 { "|" } else { "" };
        let written = match cell {
            ValueRef::Null => write!(out, "{bar}-"),
            ValueRef::Text(text) => write!(out, "{bar}{text}"),
            ValueRef::Integer(n) => write!(out, "{bar}{n}"),
            ValueRef::Real(n) => write!(out, "{bar}{n}"),
            ValueRef::Blob(bytes) => write!(out, "{bar}{bytes:?}"),
        };
        written.expect("a string takes anything");
    }
    out
}

pub fn idempotency_key(number: u8) -> IdempotencyKey {
    IdempotencyKey { key_digest: [number; 32], request_digest: [number; 32] }
}

/// A change without an idempotency key.
pub fn plain_write(change: RowChange<'_>) -> WriteRequest<'_> {
    WriteRequest { change, idempotency_key: None, dry_run: false, now_ms: 0, cancelled: None }
}

/// The outcome in a word, or the error's text.
pub fn outcome_text(written: Result<WriteOutcome, WriteError>) -> String {
    match written {
        Ok(WriteOutcome::Done) => "done".into(),
        Ok(WriteOutcome::Replayed(message)) => {
            format!("replayed {}", String::from_utf8(message).expect("a line"))
        }
        Err(WriteError::Rejected { column: Some(column), reason: cause }) => format!("{column}: {cause}"),
        Err(error) => error.to_string(),
    }
}

pub fn write_outcome(writer: &dyn Writer, change: RowChange<'_>) -> String {
    outcome_text(writer.write(&plain_write(change), &mut RecordingChecks::default()))
}
