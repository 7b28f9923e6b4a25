//! Why there is no answer, as callers are told it; what only the owner may know goes to the log.

use contract::Collection;
use contract::bind::{BoundValue, WriteOptions};
use contract::results::{RECORD_BYTES_MAX, RecordError};
use contract::source::{SourceError, WriteError};
use spile_core::{ArgumentErrorKind, CallError, Outcome, Platform, ToolError, ToolErrorCode};

use crate::pipeline::new_error_reference;

pub(super) fn invalid_cursor_error(why: &str) -> ToolError {
    ToolError {
        field: Some("cursor".into()),
        reason: Some(ArgumentErrorKind::NotAllowed),
        ..ToolError::new(ToolErrorCode::InvalidArguments, format!("`cursor`: {why}"))
    }
}

/// So much of a key is repeated to whoever asked for it.
const KEY_CHARS_MAX: usize = 100;

pub(super) fn not_found_error(collection: &Collection, key: &[BoundValue<'_>]) -> ToolError {
    let parts = collection.key_fields().zip(key).map(|(field, value)| {
        let mut words = format!("{} ", field.name);
        field.write_readable(&mut words, value.as_value_ref());
        match words.char_indices().nth(KEY_CHARS_MAX) {
            Some((cut, _)) => format!("{}…", &words[..cut]),
            None => words,
        }
    });
    let words: Vec<String> = parts.collect();
    let message = format!("nothing in {} has {}", collection.name, words.join(", "));
    ToolError { field: first_key_field(collection), ..ToolError::new(ToolErrorCode::NotFound, message) }
}

fn first_key_field(collection: &Collection) -> Option<String> {
    collection.key_fields().next().map(|field| field.name.clone())
}

/// Why nothing was written.
#[cold]
pub(super) fn write_error_outcome(
    fault: &WriteError,
    collection: &Collection,
    key: &[BoundValue<'_>],
    again: RetrySafety,
    world: &dyn Platform,
) -> Outcome {
    let told = fault.to_string();
    let conflict = |field: Option<String>, told: String| ToolError {
        field,
        ..ToolError::new(ToolErrorCode::Conflict, told)
    };
    let problem = match fault {
        WriteError::Source(fault) => return source_error_outcome(fault, collection, world),
        WriteError::NotFound => not_found_error(collection, key),
        WriteError::AlreadyExists => conflict(first_key_field(collection), told),
        WriteError::VersionConflict => {
            let told = format!("{told}; read it again, and decide what it should be now");
            conflict(Some("expected_version".into()), told)
        }
        WriteError::IdempotencyKeyReused => {
            let told = format!("{told}; choose another, or ask for the same again");
            conflict(Some("idempotency_key".into()), told)
        }
        WriteError::OutcomeUnknown => conflict(Some("idempotency_key".into()), told),
        WriteError::Rejected { column, reason: why } => rejected_value_error(
            column.and_then(|at| collection.fields.get(at)).map(|field| &*field.name),
            why,
        ),
        WriteError::TooManyRows { .. } => ToolError::new(ToolErrorCode::Forbidden, told),
        WriteError::ContractViolation => ToolError::new(ToolErrorCode::InvalidArguments, told),
        WriteError::DurabilityUnknown { detail: log, .. } => {
            let (told, retryable) = match again {
                RetrySafety::Idempotent => {
                    (format!("{told}; ask for the same again, with the same idempotency_key"), true)
                }
                RetrySafety::NotIdempotent => {
                    let told = format!(
                        "{told}; read the record before you try again, and pass an idempotency_key next time"
                    );
                    (told, false)
                }
            };
            let problem = ToolError { retryable, ..ToolError::new(ToolErrorCode::SourceUnavailable, told) };
            return logged_outcome(problem, collection, log, world);
        }
    };
    problem.into()
}

/// What would come of it if a caller asked for the same again.
#[derive(Debug, Clone, Copy)]
pub(super) enum RetrySafety {
    /// What was told the first time: they gave a key.
    Idempotent,
    /// It would be done twice.
    NotIdempotent,
}

impl RetrySafety {
    pub(super) fn for_write(once: &WriteOptions<'_>) -> Self {
        if once.idempotency_key.is_some() { Self::Idempotent } else { Self::NotIdempotent }
    }
}

/// A value that the source will not keep.
pub(super) fn rejected_value_error(name: Option<&str>, why: &str) -> ToolError {
    let message = match name {
        Some(name) => format!("`{name}`: {why}"),
        None => why.to_owned(),
    };
    ToolError {
        field: name.map(str::to_owned),
        reason: Some(ArgumentErrorKind::NotAllowed),
        ..ToolError::new(ToolErrorCode::InvalidArguments, message)
    }
}

/// What the source said, told without its words; those are in the log.
#[cold]
pub(super) fn source_error_outcome(
    fault: &SourceError,
    collection: &Collection,
    world: &dyn Platform,
) -> Outcome {
    let told = fault.to_string();
    let (problem, log) = match fault {
        SourceError::Cancelled => return Outcome::Failed(CallError::Cancelled),
        SourceError::StaleCursor => return invalid_cursor_error(&told).into(),
        SourceError::InvalidArgument { reason: why, .. } => return rejected_value_error(None, why).into(),
        SourceError::Timeout => (ToolError::new(ToolErrorCode::Timeout, told), ""),
        SourceError::WouldBlock => (
            ToolError { retry_after_ms: Some(100), ..ToolError::new(ToolErrorCode::SourceUnavailable, told) },
            "a read on the blocking pool would block",
        ),
        SourceError::Busy { detail: log } => (
            ToolError { retry_after_ms: Some(100), ..ToolError::new(ToolErrorCode::SourceUnavailable, told) },
            log.as_str(),
        ),
        SourceError::Unavailable { detail: log, .. } => (
            ToolError { retryable: true, ..ToolError::new(ToolErrorCode::SourceUnavailable, told) },
            log.as_str(),
        ),
        SourceError::Incompatible { detail: log, .. } => {
            (ToolError::new(ToolErrorCode::SourceChanged, told), log.as_str())
        }
    };
    logged_outcome(problem, collection, log, world)
}

#[cold]
pub(super) fn record_error_outcome(
    unfit: &RecordError,
    collection: &Collection,
    world: &dyn Platform,
) -> Outcome {
    let told = match unfit {
        RecordError::TypeMismatch { field, row } => {
            let told = format!(
                "a value of `{field}` is not what this server promised; the log of the server says in which row"
            );
            let log = format!("`{field}` does not fit the contract in the row with {row}");
            return logged_outcome(
                ToolError::new(ToolErrorCode::SourceChanged, told),
                collection,
                &log,
                world,
            );
        }
        RecordError::InvalidCursorValue { field } => format!(
            "a page cannot end at this value of `{field}`, which is not text or too long for a cursor; sort by \
             something else, or ask for more or fewer rows"
        ),
        RecordError::TooLarge { bytes } => {
            let most = RECORD_BYTES_MAX;
            let why = format!(
                "a record has {bytes} bytes, and more than {most} are not told; choose other `fields`"
            );
            return ToolError::new(ToolErrorCode::TooLarge, why).into();
        }
    };
    logged_outcome(
        ToolError::new(ToolErrorCode::SourceChanged, told),
        collection,
        "a row does not fit its contract",
        world,
    )
}

fn logged_outcome(
    mut problem: ToolError,
    collection: &Collection,
    log: &str,
    world: &dyn Platform,
) -> Outcome {
    let reference = new_error_reference(world);
    tracing::warn!(%reference, code = problem.code.as_str(), collection = %collection.name, source = %collection.source, log);
    problem.log_reference = Some(reference);
    problem.into()
}
