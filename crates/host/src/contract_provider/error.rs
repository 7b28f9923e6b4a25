//! Errors of sources and writes as tool errors. Details that only the operator may see go to the log.

use contract::Collection;
use contract::bind::{BoundValue, WriteOptions};
use contract::results::{RECORD_BYTES_MAX, RecordError};
use contract::source::{SourceError, WriteError};
use spile_core::{ArgumentErrorKind, CallError, Outcome, Platform, ToolError, ToolErrorCode};

use crate::pipeline::new_error_reference;

pub(super) fn invalid_cursor_error(reason: &str) -> ToolError {
    ToolError {
        field: Some("cursor".into()),
        reason: Some(ArgumentErrorKind::NotAllowed),
        ..ToolError::new(ToolErrorCode::InvalidArguments, format!("`cursor` is not valid: {reason}"))
    }
}

/// How much of a key value an error message repeats.
const KEY_CHARS_MAX: usize = 100;

pub(super) fn not_found_error(collection: &Collection, key: &[BoundValue<'_>]) -> ToolError {
    let parts = collection.key_fields().zip(key).map(|(field, value)| {
        let mut text = String::new();
        field.write_readable(&mut text, value.as_value_ref());
        match text.char_indices().nth(KEY_CHARS_MAX) {
            Some((cut, _)) => format!("{} `{}…`", field.name, &text[..cut]),
            None => format!("{} `{text}`", field.name),
        }
    });
    let parts: Vec<String> = parts.collect();
    let message = format!("no row of `{}` has {}", collection.name, parts.join(", "));
    ToolError { field: first_key_field(collection), ..ToolError::new(ToolErrorCode::NotFound, message) }
}

fn first_key_field(collection: &Collection) -> Option<String> {
    collection.key_fields().next().map(|field| field.name.clone())
}

/// The tool error of a failed write.
#[cold]
pub(super) fn write_error_outcome(
    error: &WriteError,
    collection: &Collection,
    key: &[BoundValue<'_>],
    retry_safety: RetrySafety,
    platform: &dyn Platform,
) -> Outcome {
    let message = error.to_string();
    let conflict = |field: Option<String>, message: String| ToolError {
        field,
        ..ToolError::new(ToolErrorCode::Conflict, message)
    };
    let tool_error = match error {
        WriteError::Source(error) => return source_error_outcome(error, collection, platform),
        WriteError::NotFound => not_found_error(collection, key),
        WriteError::AlreadyExists => {
            let update_tool = collection.write_policy.as_ref().and_then(|policy| policy.update_tool.as_ref());
            let help = match update_tool {
                Some(tool) => format!("use {tool} to change it"),
                None => "choose another key".to_owned(),
            };
            conflict(first_key_field(collection), format!("{message}; {help}"))
        }
        WriteError::VersionConflict => {
            let message = format!("{message}; read it again before you change it");
            conflict(Some("expected_version".into()), message)
        }
        WriteError::IdempotencyKeyReused => {
            let message = format!("{message}; use a new key, or repeat the call with the same arguments");
            conflict(Some("idempotency_key".into()), message)
        }
        WriteError::OutcomeUnknown => conflict(Some("idempotency_key".into()), message),
        WriteError::Rejected { column, reason } => rejected_value_error(
            column.and_then(|index| collection.fields.get(index)).map(|field| &*field.name),
            reason,
        ),
        WriteError::TooManyRows { .. } => ToolError::new(ToolErrorCode::Forbidden, message),
        WriteError::ContractViolation => ToolError::new(ToolErrorCode::InvalidArguments, message),
        WriteError::DurabilityUnknown { detail, .. } => {
            let (message, retryable) = match retry_safety {
                RetrySafety::Idempotent => {
                    (format!("{message}; repeat the call with the same `idempotency_key`"), true)
                }
                RetrySafety::NotIdempotent => {
                    let message = format!(
                        "{message}; read the row before you try again, and pass an `idempotency_key` next time"
                    );
                    (message, false)
                }
            };
            let tool_error =
                ToolError { retryable, ..ToolError::new(ToolErrorCode::SourceUnavailable, message) };
            return logged_outcome(tool_error, collection, detail, platform);
        }
        WriteError::ResultUnreadable { detail, .. } => {
            let tool_error = ToolError::new(ToolErrorCode::SourceChanged, message);
            return logged_outcome(tool_error, collection, detail, platform);
        }
    };
    tool_error.into()
}

/// What happens if a caller repeats a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum RetrySafety {
    /// The call has an idempotency key: the first result is returned again.
    Idempotent,
    /// The write is applied twice.
    NotIdempotent,
}

impl RetrySafety {
    pub(super) fn for_write(options: &WriteOptions<'_>) -> Self {
        if options.idempotency_key.is_some() { Self::Idempotent } else { Self::NotIdempotent }
    }
}

/// The source refused a value.
pub(super) fn rejected_value_error(name: Option<&str>, reason: &str) -> ToolError {
    let message = match name {
        Some(name) => format!("`{name}`: {reason}"),
        None => reason.to_owned(),
    };
    ToolError {
        field: name.map(str::to_owned),
        reason: Some(ArgumentErrorKind::NotAllowed),
        ..ToolError::new(ToolErrorCode::InvalidArguments, message)
    }
}

/// The tool error of a failed read. The source's own message goes to the log only.
#[cold]
pub(super) fn source_error_outcome(
    error: &SourceError,
    collection: &Collection,
    platform: &dyn Platform,
) -> Outcome {
    let message = error.to_string();
    let (tool_error, detail) = match error {
        SourceError::Cancelled => return Outcome::Failed(CallError::Cancelled),
        SourceError::StaleCursor => return invalid_cursor_error(&message).into(),
        SourceError::InvalidArgument { reason, .. } => return rejected_value_error(None, reason).into(),
        SourceError::TooManyGroups { .. } | SourceError::TooMuchToRead { .. } => {
            return ToolError::new(ToolErrorCode::TooLarge, message).into();
        }
        SourceError::Refused { detail, .. } => {
            (ToolError::new(ToolErrorCode::Forbidden, message), detail.as_str())
        }
        SourceError::Timeout => (ToolError::new(ToolErrorCode::Timeout, message), ""),
        SourceError::Overloaded { retry_after_ms } => {
            let message =
                format!("too many calls use the source `{}` now; try again later", collection.source);
            return ToolError {
                retry_after_ms: Some(*retry_after_ms),
                ..ToolError::new(ToolErrorCode::RateLimited, message)
            }
            .into();
        }
        SourceError::WouldBlock => (
            ToolError {
                retry_after_ms: Some(100),
                ..ToolError::new(ToolErrorCode::SourceUnavailable, message)
            },
            "a read on the blocking pool would block",
        ),
        SourceError::Busy { detail } => (
            ToolError {
                retry_after_ms: Some(100),
                ..ToolError::new(ToolErrorCode::SourceUnavailable, message)
            },
            detail.as_str(),
        ),
        SourceError::Unavailable { detail, .. } => (
            ToolError { retryable: true, ..ToolError::new(ToolErrorCode::SourceUnavailable, message) },
            detail.as_str(),
        ),
        SourceError::Incompatible { detail, .. } => {
            (ToolError::new(ToolErrorCode::SourceChanged, message), detail.as_str())
        }
    };
    logged_outcome(tool_error, collection, detail, platform)
}

#[cold]
pub(super) fn record_error_outcome(
    error: &RecordError,
    collection: &Collection,
    platform: &dyn Platform,
) -> Outcome {
    let message = match error {
        RecordError::TypeMismatch { field, .. } => {
            let message = format!(
                "a value of `{field}` does not match the output schema; the server's log names the row under this `ref`"
            );
            let tool_error = ToolError::new(ToolErrorCode::SourceChanged, message);
            return logged_outcome(tool_error, collection, &error.to_string(), platform);
        }
        RecordError::InvalidCursorValue { field } => format!(
            "the page cannot end at this value of `{field}`: it is not text, or too long for a cursor; sort by another \
             field, or change `limit`"
        ),
        RecordError::TooLarge { bytes } => {
            let message = format!(
                "a row of {bytes} bytes exceeds the limit of {RECORD_BYTES_MAX} bytes; request fewer `fields`"
            );
            return ToolError::new(ToolErrorCode::TooLarge, message).into();
        }
    };
    logged_outcome(
        ToolError::new(ToolErrorCode::SourceChanged, message),
        collection,
        "a row does not match the contract",
        platform,
    )
}

fn logged_outcome(
    mut tool_error: ToolError,
    collection: &Collection,
    detail: &str,
    platform: &dyn Platform,
) -> Outcome {
    let reference = new_error_reference(platform);
    tracing::warn!("ref" = %reference, code = tool_error.code.as_str(), collection = %collection.name, source = %collection.source, detail);
    tool_error.log_reference = Some(reference);
    tool_error.into()
}
