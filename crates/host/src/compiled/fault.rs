//! Why there is no answer, as callers are told it; what only the owner may know goes to the log.

use call::{Failure, Fault, Outcome, Problem, Reason, World};
use contract::Collection;
use contract::bind::{Arg, Once};
use contract::shape::{RECORD_BYTES_MAX, Unfit};
use contract::source::{SourceFault, WriteFault};

use crate::path::reference;

pub(super) fn bad_cursor(why: &str) -> Problem {
    Problem {
        field: Some("cursor".into()),
        reason: Some(Reason::NotAllowed),
        ..Problem::new(Failure::InvalidArguments, format!("`cursor`: {why}"))
    }
}

/// So much of a key is repeated to whoever asked for it.
const KEY_CHARS_MAX: usize = 100;

pub(super) fn not_found(collection: &Collection, key: &[Arg<'_>]) -> Problem {
    let parts = collection.key_fields().zip(key).map(|(field, value)| {
        let mut words = format!("{} ", field.name);
        field.readable(&mut words, value.as_cell());
        match words.char_indices().nth(KEY_CHARS_MAX) {
            Some((cut, _)) => format!("{}…", &words[..cut]),
            None => words,
        }
    });
    let words: Vec<String> = parts.collect();
    let message = format!("nothing in {} has {}", collection.name, words.join(", "));
    Problem { field: first_key(collection), ..Problem::new(Failure::NotFound, message) }
}

fn first_key(collection: &Collection) -> Option<String> {
    collection.key_fields().next().map(|field| field.name.clone())
}

/// Why nothing was written.
#[cold]
pub(super) fn not_written(
    fault: &WriteFault,
    collection: &Collection,
    key: &[Arg<'_>],
    again: Again,
    world: &dyn World,
) -> Outcome {
    let told = fault.to_string();
    let conflict =
        |field: Option<String>, told: String| Problem { field, ..Problem::new(Failure::Conflict, told) };
    let problem = match fault {
        WriteFault::Source(fault) => return refused(fault, collection, world),
        WriteFault::NotFound => not_found(collection, key),
        WriteFault::Exists => conflict(first_key(collection), told),
        WriteFault::Stale => {
            let told = format!("{told}; read it again, and decide what it should be now");
            conflict(Some("expected_version".into()), told)
        }
        WriteFault::ClaimedOtherwise => {
            let told = format!("{told}; choose another, or ask for the same again");
            conflict(Some("idempotency_key".into()), told)
        }
        WriteFault::Unknowable => conflict(Some("idempotency_key".into()), told),
        WriteFault::Refused { column, why } => {
            not_kept(column.and_then(|at| collection.fields.get(at)).map(|field| &*field.name), why)
        }
        WriteFault::TooMany { .. } => Problem::new(Failure::Forbidden, told),
        WriteFault::Unwritable => Problem::new(Failure::InvalidArguments, told),
        WriteFault::Unconfirmed { log, .. } => {
            let (told, retryable) = match again {
                Again::Harmless => {
                    (format!("{told}; ask for the same again, with the same idempotency_key"), true)
                }
                Again::Twice => {
                    let told = format!(
                        "{told}; read the record before you try again, and pass an idempotency_key next time"
                    );
                    (told, false)
                }
            };
            let problem = Problem { retryable, ..Problem::new(Failure::SourceUnavailable, told) };
            return logged(problem, collection, log, world);
        }
    };
    problem.into()
}

/// What would come of it if a caller asked for the same again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Again {
    /// What was told the first time: they gave a key.
    Harmless,
    /// It would be done twice.
    Twice,
}

impl Again {
    pub(super) fn of(once: &Once<'_>) -> Self {
        if once.idempotency_key.is_some() { Self::Harmless } else { Self::Twice }
    }
}

/// A value that the source will not keep.
pub(super) fn not_kept(name: Option<&str>, why: &str) -> Problem {
    let message = match name {
        Some(name) => format!("`{name}`: {why}"),
        None => why.to_owned(),
    };
    Problem {
        field: name.map(str::to_owned),
        reason: Some(Reason::NotAllowed),
        ..Problem::new(Failure::InvalidArguments, message)
    }
}

/// What the source said, told without its words; those are in the log.
#[cold]
pub(super) fn refused(fault: &SourceFault, collection: &Collection, world: &dyn World) -> Outcome {
    let told = fault.to_string();
    let (problem, log) = match fault {
        SourceFault::Stopped => return Outcome::Failed(Fault::Cancelled),
        SourceFault::Moved => return bad_cursor(&told).into(),
        SourceFault::Unfit { why, .. } => return not_kept(None, why).into(),
        SourceFault::TooSlow => (Problem::new(Failure::Timeout, told), ""),
        SourceFault::Busy { log } => (
            Problem { retry_after_ms: Some(100), ..Problem::new(Failure::SourceUnavailable, told) },
            log.as_str(),
        ),
        SourceFault::Unavailable { log, .. } => {
            (Problem { retryable: true, ..Problem::new(Failure::SourceUnavailable, told) }, log.as_str())
        }
        SourceFault::Changed { log, .. } => (Problem::new(Failure::SourceChanged, told), log.as_str()),
    };
    logged(problem, collection, log, world)
}

#[cold]
pub(super) fn misfit(unfit: &Unfit, collection: &Collection, world: &dyn World) -> Outcome {
    let told = match unfit {
        Unfit::Value { field, row } => {
            let told = format!(
                "a value of `{field}` is not what this server promised; the log of the server says in which row"
            );
            let log = format!("`{field}` does not fit the contract in the row with {row}");
            return logged(Problem::new(Failure::SourceChanged, told), collection, &log, world);
        }
        Unfit::Nameless { field } => format!(
            "a page cannot end at this value of `{field}`, which is not text or too long for a cursor; sort by \
             something else, or ask for more or fewer rows"
        ),
        Unfit::TooLarge { bytes } => {
            let most = RECORD_BYTES_MAX;
            let why = format!(
                "a record has {bytes} bytes, and more than {most} are not told; choose other `fields`"
            );
            return Problem::new(Failure::TooLarge, why).into();
        }
    };
    logged(Problem::new(Failure::SourceChanged, told), collection, "a row does not fit its contract", world)
}

fn logged(mut problem: Problem, collection: &Collection, log: &str, world: &dyn World) -> Outcome {
    let reference = reference(world);
    tracing::warn!(%reference, code = problem.code.as_str(), collection = %collection.name, source = %collection.source, log);
    problem.reference = Some(reference);
    problem.into()
}
