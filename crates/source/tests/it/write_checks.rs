//! A clerk who writes down what passes by, and the changes that tests ask for.

use std::fmt::Write as _;

use contract::source::{
    ContractViolation, IdempotencyKey, RowChange, VersionConflict, WriteChecks, WriteError, WriteOutcome,
    WriteRequest, Writer,
};
use contract::{Value, ValueRef};

/// Tells rows as their cells between `|`; no value is `-`.
#[derive(Default)]
pub struct RecordingChecks {
    /// Objects to whatever row there is.
    pub is_stale: bool,
    /// What a row must not say to be told.
    pub unwritable_text: Option<&'static str>,
    /// Further cells to set.
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

/// A change without a claim, for good.
pub fn plain_write(change: RowChange<'_>) -> WriteRequest<'_> {
    WriteRequest { change, idempotency_key: None, dry_run: false, now_ms: 0, cancelled: None }
}

/// What came of it, in a word or in the words of the fault.
pub fn outcome_text(written: Result<WriteOutcome, WriteError>) -> String {
    match written {
        Ok(WriteOutcome::Done) => "done".into(),
        Ok(WriteOutcome::Replayed(told)) => format!("replayed {}", String::from_utf8(told).expect("a line")),
        Err(WriteError::Rejected { column: Some(column), reason: why }) => format!("{column}: {why}"),
        Err(fault) => fault.to_string(),
    }
}

pub fn write_outcome(writer: &dyn Writer, change: RowChange<'_>) -> String {
    outcome_text(writer.write(&plain_write(change), &mut RecordingChecks::default()))
}
