//! Writes of one record: the checks while its row is locked, and the result.

use contract::bind::{BoundValue, WriteArguments, WriteOptions};
use contract::confirmation::{self, WriteOperation};
use contract::infer::SAFE_INTEGER_MAX;
use contract::results::{self, RecordError, WriteResult};
use contract::source::{
    ContractViolation, IdempotencyKey, RowChange, VersionConflict, WriteChecks, WriteError, WriteOutcome,
    WriteRequest,
};
use contract::{Collection, DataType, NOTICES_MEMBER, Tool, Value, ValueRef, Versioning};
use spile_core::{ArgumentErrorKind, CallError, Journal, Outcome, Platform, ToolError, ToolErrorCode};

use super::confirm::{self, Confirmation};
use super::error::{RetrySafety, record_error_outcome, write_error_outcome};
use super::{BlockingContext, ProviderInner};
use crate::seal::digest_parts;

impl ProviderInner {
    pub(super) fn write_record(
        &self,
        tool: &Tool,
        index: usize,
        operation: WriteOperation,
        arguments: &WriteArguments<'_>,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Outcome {
        let collection = &self.contract.collections[index];
        let Some(writer) = self.backends.writers.get(index).and_then(Option::as_ref) else {
            return Outcome::Failed(CallError::Internal { detail: "this collection has no writer".into() });
        };
        let dry_run = arguments.options.dry_run;
        let needs_confirmation = match confirm::requires_confirmation(tool, dry_run, &blocking.caller) {
            Ok(needs_confirmation) => needs_confirmation,
            Err(error) => return error.into(),
        };
        let request_digest = digest_parts(&[&arguments.canonical_bytes(collection)]);
        let values: Vec<(usize, ValueRef<'_>)> =
            arguments.values.iter().map(|(index, arg)| (*index, arg.as_value_ref())).collect();
        let key: Vec<ValueRef<'_>> = arguments.key.iter().map(BoundValue::as_value_ref).collect();
        let change = match operation {
            WriteOperation::Create => RowChange::Create { values: &values },
            WriteOperation::Update => RowChange::Update { key: &key, values: &values },
            WriteOperation::Delete => RowChange::Delete { key: &key },
        };
        let idempotency_key = idempotency_key(tool, &arguments.options, blocking, request_digest);
        let write = WriteRequest {
            change,
            idempotency_key,
            dry_run,
            now_ms: platform.now_ms(),
            cancelled: Some(&blocking.cancelled),
        };
        let mut checks = RecordWriteChecks {
            tool,
            collection,
            operation,
            arguments,
            request_digest: &request_digest,
            journal: needs_confirmation.then_some(&blocking.journal),
            row_before: None,
            result: None,
            rejection: None,
            notices: Vec::new(),
        };
        let written = writer.write(&write, &mut checks);
        match (written, checks.rejection, checks.result) {
            (Ok(WriteOutcome::Done), _, Some(result)) => {
                let result = results::write_tool_result(result, dry_run);
                let notices: Vec<&str> = checks.notices.iter().map(String::as_str).collect();
                let member = collection.notices.in_writes.then_some(NOTICES_MEMBER);
                results::with_notices(result, &notices, member).into()
            }
            (Ok(WriteOutcome::Done), _, None) => Outcome::Failed(CallError::Internal {
                detail: "the writer skipped the checks after the write".into(),
            }),
            (Ok(WriteOutcome::Replayed(stored)), _, _) => match results::replayed_tool_result(&stored) {
                Some(result) => result.into(),
                None => Outcome::Failed(CallError::Internal {
                    detail: "the stored result of an idempotency key is invalid".into(),
                }),
            },
            (Err(WriteError::VersionConflict | WriteError::ContractViolation), Some(rejection), _) => {
                rejection.into_outcome(collection, platform)
            }
            (Err(error), _, _) => write_error_outcome(
                &error,
                collection,
                &arguments.key,
                RetrySafety::for_write(&arguments.options),
                platform,
            ),
        }
    }
}

/// The idempotency key of a write; `None` for a dry run, which leaves no trace. Without a key from the client the id of
/// a confirmed call serves as one: what the user agreed to is done once, however often the client repeats the call.
pub(super) fn idempotency_key(
    tool: &Tool,
    options: &WriteOptions<'_>,
    blocking: &BlockingContext,
    request_digest: [u8; 32],
) -> Option<IdempotencyKey> {
    if options.dry_run {
        return None;
    }
    let principal = blocking.caller.principal.as_str().as_bytes();
    let key_digest = match (&options.idempotency_key, &blocking.journal.call_id) {
        (Some(key), _) => {
            digest_parts(&[b"idempotency_key", principal, tool.name.as_bytes(), key.as_bytes()])
        }
        (None, Some(call)) => digest_parts(&[b"call", principal, tool.name.as_bytes(), call]),
        (None, None) => return None,
    };
    Some(IdempotencyKey { key_digest, request_digest })
}

/// Why the host refuses to write a row.
pub(super) enum WriteRejection {
    /// The user declined, or must be asked first.
    Outcome(Outcome),
    /// The source would store another value than the caller passed.
    ValueAltered {
        field: String,
    },
    InvalidRecord(RecordError),
}

impl WriteRejection {
    pub(super) fn into_outcome(self, collection: &Collection, platform: &dyn Platform) -> Outcome {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::ValueAltered { field } => {
                let message =
                    format!("`{field}`: the source would store another value than this; nothing was written");
                let error = ToolError {
                    field: Some(field),
                    reason: Some(ArgumentErrorKind::NotAllowed),
                    ..ToolError::new(ToolErrorCode::InvalidArguments, message)
                };
                error.into()
            }
            Self::InvalidRecord(RecordError::TypeMismatch { field, .. }) => {
                let message = format!(
                    "`{field}`: the stored value would not match the output schema; nothing was written"
                );
                let error = ToolError {
                    field: Some(field),
                    reason: Some(ArgumentErrorKind::NotAllowed),
                    ..ToolError::new(ToolErrorCode::InvalidArguments, message)
                };
                error.into()
            }
            Self::InvalidRecord(error) => record_error_outcome(&error, collection, platform),
        }
    }
}

/// The checks that run while the row is locked.
struct RecordWriteChecks<'a> {
    tool: &'a Tool,
    collection: &'a Collection,
    operation: WriteOperation,
    arguments: &'a WriteArguments<'a>,
    request_digest: &'a [u8],
    /// The journal with the user's answer, if the write needs a confirmation.
    journal: Option<&'a Journal>,
    row_before: Option<RowBefore>,
    result: Option<WriteResult>,
    rejection: Option<WriteRejection>,
    /// Other effects of the write that the caller should know.
    notices: Vec<String>,
}

/// The row before the write.
struct RowBefore {
    values: Vec<Value>,
    /// `None` if the row does not match the contract; a write may repair it.
    version: Option<String>,
}

impl WriteChecks for RecordWriteChecks<'_> {
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        (self.result, self.rejection) = (None, None);
        let version = results::record_version(self.collection, row).ok();
        let versioning = self.collection.write_policy.as_ref().map(|policy| policy.versioning);
        if let Some(expected) = &self.arguments.expected_version {
            let matches = match (versioning, expected) {
                (Some(Versioning::Field(index)), expected) => {
                    self.collection.fields[index].round_trips(expected.as_value_ref(), row[index])
                }
                (Some(Versioning::Digest) | None, BoundValue::Text(expected)) => {
                    version.as_deref() == Some(expected.as_ref())
                }
                (Some(Versioning::Digest) | None, _) => false,
            };
            if !matches {
                return Err(VersionConflict);
            }
        }
        let fields = &self.collection.fields;
        let unchanged = |(index, value): &(usize, BoundValue<'_>)| {
            fields[*index].round_trips(value.as_value_ref(), row[*index])
        };
        let unchanged = self.arguments.values.iter().all(unchanged);
        self.row_before =
            Some(RowBefore { values: row.iter().map(|cell| cell.to_value()).collect(), version });
        Ok(match (versioning, self.operation) {
            (Some(Versioning::Field(index)), WriteOperation::Update) if !unchanged => {
                vec![(index, Value::Integer(next_version(fields[index].data_type, row[index])))]
            }
            _ => Vec::new(),
        })
    }

    fn add_notice(&mut self, notice: &str) {
        self.notices.push(notice.to_owned());
    }

    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
        (self.result, self.rejection) = (None, None);
        match self.check_row(row) {
            Ok(result) => {
                let stored = result.structured.clone();
                self.result = Some(result);
                Ok(stored)
            }
            Err(rejection) => {
                self.rejection = Some(rejection);
                Err(ContractViolation)
            }
        }
    }
}

impl RecordWriteChecks<'_> {
    /// Checks the row as it will be and the user's confirmation, and builds the result.
    fn check_row(&self, row: &[ValueRef<'_>]) -> Result<WriteResult, WriteRejection> {
        let collection = self.collection;
        if self.operation != WriteOperation::Delete {
            let is_altered = |(index, value): &&(usize, BoundValue<'_>)| {
                !collection.fields[*index].round_trips(value.as_value_ref(), row[*index])
            };
            if let Some((index, _)) = self.arguments.values.iter().find(is_altered) {
                return Err(WriteRejection::ValueAltered { field: collection.fields[*index].name.clone() });
            }
        }
        let outcome = match self.operation {
            WriteOperation::Create => "created",
            WriteOperation::Delete => "deleted",
            WriteOperation::Update => {
                let version =
                    results::record_version(collection, row).map_err(WriteRejection::InvalidRecord)?;
                let before = self.row_before.as_ref().and_then(|before| before.version.as_ref());
                if before == Some(&version) { "unchanged" } else { "updated" }
            }
        };
        let result = WriteResult::record(collection, self.tool.text_template.as_ref(), outcome, row)
            .map_err(WriteRejection::InvalidRecord)?;
        if let Some(journal) = self.journal.filter(|_| outcome != "unchanged") {
            self.check_confirmed(journal, row)?;
        }
        Ok(result)
    }

    fn check_confirmed(&self, journal: &Journal, row: &[ValueRef<'_>]) -> Result<(), WriteRejection> {
        let before: Vec<ValueRef<'_>> =
            self.row_before.iter().flat_map(|before| before.values.iter().map(Value::as_value_ref)).collect();
        let version =
            self.row_before.as_ref().and_then(|before| before.version.as_deref()).unwrap_or_default();
        let key = confirm::confirmation_key(self.tool, version.as_bytes(), self.request_digest);
        match confirm::read_confirmation(journal, &key) {
            Confirmation::Accepted => Ok(()),
            Confirmation::Declined(reason) => Err(WriteRejection::Outcome(confirm::declined_outcome(reason))),
            Confirmation::Unanswered => {
                let message = confirmation::record_message(self.collection, self.operation, &before, row);
                Err(WriteRejection::Outcome(confirm::confirmation_request(key, message)))
            }
        }
    }
}

/// The current version plus one; 1 if the row has no version.
fn next_version(data_type: DataType, cell: ValueRef<'_>) -> i64 {
    let current = match cell {
        ValueRef::Integer(n) => n,
        ValueRef::Text(text) => text.parse().unwrap_or(0),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => 0,
    };
    let version_max = if data_type == DataType::Integer { SAFE_INTEGER_MAX } else { i64::MAX };
    // Wraps around at the largest value: 1 still differs from the current version.
    if current >= version_max { 1 } else { current + 1 }
}
