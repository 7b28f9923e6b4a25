//! Writing one record: what stands by while its row is held, and what is told of it.

use contract::bind::{BoundValue, WriteArguments, WriteOptions};
use contract::confirmation::{self, WriteOperation};
use contract::infer::SAFE_INTEGER_MAX;
use contract::results::{self, RecordError, WriteResult};
use contract::source::{
    ContractViolation, IdempotencyKey, RowChange, VersionConflict, WriteChecks, WriteError, WriteOutcome,
    WriteRequest,
};
use contract::{Collection, DataType, Tool, Value, ValueRef, Versioning};
use spile_core::{ArgumentErrorKind, CallError, Journal, Outcome, Platform, ToolError, ToolErrorCode};

use super::confirm::{self, Confirmation};
use super::error::{RetrySafety, record_error_outcome, write_error_outcome};
use super::{BlockingContext, ProviderInner};
use crate::seal::digest_parts;

impl ProviderInner {
    pub(super) fn write_record(
        &self,
        tool: &Tool,
        at: usize,
        doing: WriteOperation,
        writing: &WriteArguments<'_>,
        aside: &BlockingContext,
        world: &dyn Platform,
    ) -> Outcome {
        let collection = &self.contract.collections[at];
        let Some(writer) = self.backends.writers.get(at).and_then(Option::as_ref) else {
            return Outcome::Failed(CallError::Internal { detail: "nobody was made to write here".into() });
        };
        let dry_run = writing.options.dry_run;
        let asks = match confirm::requires_confirmation(tool, dry_run, &aside.caller) {
            Ok(asks) => asks,
            Err(problem) => return problem.into(),
        };
        let asked = digest_parts(&[&writing.canonical_bytes(collection)]);
        let cells: Vec<(usize, ValueRef<'_>)> =
            writing.values.iter().map(|(at, arg)| (*at, arg.as_value_ref())).collect();
        let key: Vec<ValueRef<'_>> = writing.key.iter().map(BoundValue::as_value_ref).collect();
        let change = match doing {
            WriteOperation::Create => RowChange::Create { values: &cells },
            WriteOperation::Update => RowChange::Update { key: &key, values: &cells },
            WriteOperation::Delete => RowChange::Delete { key: &key },
        };
        let claim = idempotency_key(tool, &writing.options, aside, asked);
        let write = WriteRequest {
            change,
            idempotency_key: claim,
            dry_run,
            now_ms: world.now_ms(),
            cancelled: Some(&aside.cancelled),
        };
        let mut desk = RecordWriteChecks {
            tool,
            collection,
            operation: doing,
            writing,
            request_digest: &asked,
            journal: asks.then_some(&aside.journal),
            row_before: None,
            result: None,
            rejection: None,
            notices: Vec::new(),
        };
        let written = writer.write(&write, &mut desk);
        match (written, desk.rejection, desk.result) {
            (Ok(WriteOutcome::Done), _, Some(told)) => {
                let result = results::write_tool_result(told, dry_run);
                desk.notices.iter().fold(result, |result, notice| result.with_notice(notice)).into()
            }
            (Ok(WriteOutcome::Done), _, None) => {
                Outcome::Failed(CallError::Internal { detail: "a row was written that nobody saw".into() })
            }
            (Ok(WriteOutcome::Replayed(kept)), _, _) => match results::replayed_tool_result(&kept) {
                Some(reply) => reply.into(),
                None => {
                    Outcome::Failed(CallError::Internal { detail: "what a claim kept is no result".into() })
                }
            },
            (Err(WriteError::VersionConflict | WriteError::ContractViolation), Some(why), _) => {
                why.into_outcome(collection, world)
            }
            (Err(fault), _, _) => write_error_outcome(
                &fault,
                collection,
                &writing.key,
                RetrySafety::for_write(&writing.options),
                world,
            ),
        }
    }
}

/// A try claims nothing: it leaves no trace. What the user said yes to is done once, however often the client comes
/// back with that yes.
pub(super) fn idempotency_key(
    tool: &Tool,
    once: &WriteOptions<'_>,
    aside: &BlockingContext,
    asked: [u8; 32],
) -> Option<IdempotencyKey> {
    if once.dry_run {
        return None;
    }
    let who = aside.caller.principal.as_str().as_bytes();
    let id = match (&once.idempotency_key, &aside.journal.call_id) {
        (Some(key), _) => digest_parts(&[b"claim", who, tool.name.as_bytes(), key.as_bytes()]),
        (None, Some(call)) => digest_parts(&[b"call", who, tool.name.as_bytes(), call]),
        (None, None) => return None,
    };
    Some(IdempotencyKey { key_digest: id, request_digest: asked })
}

/// Why we would not have it written.
pub(super) enum WriteRejection {
    /// The user says so, or must be asked first.
    Outcome(Outcome),
    /// It would be kept as something else than was said.
    ValueAltered {
        field: String,
    },
    InvalidRecord(RecordError),
}

impl WriteRejection {
    pub(super) fn into_outcome(self, collection: &Collection, world: &dyn Platform) -> Outcome {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::ValueAltered { field } => {
                let message =
                    format!("`{field}`: the source would keep something else than this; nothing was written");
                let problem = ToolError {
                    field: Some(field),
                    reason: Some(ArgumentErrorKind::NotAllowed),
                    ..ToolError::new(ToolErrorCode::InvalidArguments, message)
                };
                problem.into()
            }
            Self::InvalidRecord(RecordError::TypeMismatch { field, .. }) => {
                let message =
                    format!("`{field}` would not be what this server promises; nothing was written");
                let problem = ToolError {
                    field: Some(field),
                    reason: Some(ArgumentErrorKind::NotAllowed),
                    ..ToolError::new(ToolErrorCode::InvalidArguments, message)
                };
                problem.into()
            }
            Self::InvalidRecord(unfit) => record_error_outcome(&unfit, collection, world),
        }
    }
}

/// Stands by while a row is held.
struct RecordWriteChecks<'a> {
    tool: &'a Tool,
    collection: &'a Collection,
    operation: WriteOperation,
    writing: &'a WriteArguments<'a>,
    request_digest: &'a [u8],
    /// What was answered, where the user must be asked.
    journal: Option<&'a Journal>,
    row_before: Option<RowBefore>,
    result: Option<WriteResult>,
    rejection: Option<WriteRejection>,
    /// Other effects of the write that the caller should know.
    notices: Vec<String>,
}

/// The row as it was found.
struct RowBefore {
    values: Vec<Value>,
    /// `None` if it was nothing that can be told: then it may be mended.
    version: Option<String>,
}

impl WriteChecks for RecordWriteChecks<'_> {
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        (self.result, self.rejection) = (None, None);
        let state = results::record_version(self.collection, row).ok();
        let version = self.collection.write_policy.as_ref().map(|writes| writes.versioning);
        if let Some(expected) = &self.writing.expected_version {
            let is_it = match (version, expected) {
                (Some(Versioning::Field(at)), expected) => {
                    self.collection.fields[at].round_trips(expected.as_value_ref(), row[at])
                }
                (Some(Versioning::Digest) | None, BoundValue::Text(expected)) => {
                    state.as_deref() == Some(expected.as_ref())
                }
                (Some(Versioning::Digest) | None, _) => false,
            };
            if !is_it {
                return Err(VersionConflict);
            }
        }
        let fields = &self.collection.fields;
        let stays =
            |(at, said): &(usize, BoundValue<'_>)| fields[*at].round_trips(said.as_value_ref(), row[*at]);
        let stays = self.writing.values.iter().all(stays);
        self.row_before =
            Some(RowBefore { values: row.iter().map(|cell| cell.to_value()).collect(), version: state });
        Ok(match (version, self.operation) {
            (Some(Versioning::Field(at)), WriteOperation::Update) if !stays => {
                vec![(at, Value::Integer(next_version(fields[at].data_type, row[at])))]
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
            Ok(told) => {
                let kept = told.structured.clone();
                self.result = Some(told);
                Ok(kept)
            }
            Err(why) => {
                self.rejection = Some(why);
                Err(ContractViolation)
            }
        }
    }
}

impl RecordWriteChecks<'_> {
    /// What is told of the row as it will be, if everything is as it should be and the user agrees.
    fn check_row(&self, row: &[ValueRef<'_>]) -> Result<WriteResult, WriteRejection> {
        let collection = self.collection;
        if self.operation != WriteOperation::Delete {
            let other = |(at, said): &&(usize, BoundValue<'_>)| {
                !collection.fields[*at].round_trips(said.as_value_ref(), row[*at])
            };
            if let Some((at, _)) = self.writing.values.iter().find(other) {
                return Err(WriteRejection::ValueAltered { field: collection.fields[*at].name.clone() });
            }
        }
        let outcome = match self.operation {
            WriteOperation::Create => "created",
            WriteOperation::Delete => "deleted",
            WriteOperation::Update => {
                let state =
                    results::record_version(collection, row).map_err(WriteRejection::InvalidRecord)?;
                let before = self.row_before.as_ref().and_then(|before| before.version.as_ref());
                if before == Some(&state) { "unchanged" } else { "updated" }
            }
        };
        let told = WriteResult::record(collection, self.tool.text_template.as_ref(), outcome, row)
            .map_err(WriteRejection::InvalidRecord)?;
        if let Some(journal) = self.journal.filter(|_| outcome != "unchanged") {
            self.check_confirmed(journal, row)?;
        }
        Ok(told)
    }

    fn check_confirmed(&self, journal: &Journal, row: &[ValueRef<'_>]) -> Result<(), WriteRejection> {
        let before: Vec<ValueRef<'_>> =
            self.row_before.iter().flat_map(|before| before.values.iter().map(Value::as_value_ref)).collect();
        let state = self.row_before.as_ref().and_then(|before| before.version.as_deref()).unwrap_or_default();
        let key = confirm::confirmation_key(self.tool, state.as_bytes(), self.request_digest);
        match confirm::read_confirmation(journal, &key) {
            Confirmation::Accepted => Ok(()),
            Confirmation::Declined(why) => Err(WriteRejection::Outcome(confirm::declined_outcome(why))),
            Confirmation::Unanswered => {
                let message = confirmation::record_message(self.collection, self.operation, &before, row);
                Err(WriteRejection::Outcome(confirm::confirmation_request(key, message)))
            }
        }
    }
}

/// One more than the version there is; a row that had none has its first.
fn next_version(kind: DataType, cell: ValueRef<'_>) -> i64 {
    let now = match cell {
        ValueRef::Integer(n) => n,
        ValueRef::Text(text) => text.parse().unwrap_or(0),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => 0,
    };
    let most = if kind == DataType::Integer { SAFE_INTEGER_MAX } else { i64::MAX };
    // What has counted so far begins again: it is another version all the same.
    if now >= most { 1 } else { now + 1 }
}
