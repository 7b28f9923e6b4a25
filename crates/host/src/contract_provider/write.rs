//! Writes of one record: the checks between the steps of its transaction, and the result.

use contract::access::{BoundRows, RowRules};
use contract::bind::{BoundValue, WriteArguments, WriteOptions};
use contract::confirmation::{self, WriteOperation};
use contract::field::Field;
use contract::infer::SAFE_INTEGER_MAX;
use contract::results::{self, RecordError, WriteResult};
use contract::source::{
    IdempotencyKey, RowChange, RowTransaction, TransactionOptions, Verdict, WriteCapabilities, WriteError,
    WriteOutcome, run_transaction,
};
use contract::{Collection, DataType, NOTICES_MEMBER, Tool, Value, ValueRef, Versioning};
use spile_core::{ArgumentErrorKind, CallError, Journal, Outcome, Platform, ToolError, ToolErrorCode};

use super::confirm;
use super::error::{RetrySafety, record_error_outcome, source_error_outcome, write_error_outcome};
use super::rules::{ClaimMissing, set_values};
use super::{BlockingContext, ProviderInner};
use state::keyring::digest_parts;

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
        let rows = self.rows(index, &blocking.caller);
        let set = match &collection.rules {
            Some(rules) if operation != WriteOperation::Delete => {
                match set_values(rules, &collection.name, &blocking.caller) {
                    Ok(values) => values,
                    Err(ClaimMissing) => return NotWritten::NotPermitted.into_outcome(collection, platform),
                }
            }
            Some(_) | None => Vec::new(),
        };
        let identity = match rows.as_ref().map(BoundRows::identity).transpose() {
            Ok(identity) => identity.flatten().cloned(),
            Err(error) => return source_error_outcome(&error, collection, platform),
        };
        let request_digest = digest_parts(&[&arguments.canonical_bytes(collection)]);
        let rows_digest = rows.as_ref().map(BoundRows::digest);
        let options = TransactionOptions {
            idempotency_key: idempotency_key(tool, &arguments.options, blocking, request_digest, rows_digest),
            dry_run,
            now_ms: platform.now_ms(),
            cancelled: Some(blocking.cancelled.clone()),
            identity,
        };
        let write = RecordWrite {
            tool,
            collection,
            operation,
            arguments,
            request_digest: &request_digest,
            journal: needs_confirmation.then_some(&blocking.journal),
            rows: rows.as_ref(),
            set: &set,
        };
        let written = writer
            .begin(&options)
            .and_then(|transaction| run_transaction(transaction, &options, |row| write.change(row)));
        match written {
            Ok(WriteOutcome::Done(Written { result, notices })) => {
                let result = results::write_tool_result(result, dry_run);
                let notices: Vec<String> = notices
                    .iter()
                    .map(|notice| match dry_run {
                        true => format!("nothing was written; the write would have this effect: {notice}"),
                        false => notice.clone(),
                    })
                    .collect();
                let notices: Vec<&str> = notices.iter().map(String::as_str).collect();
                let member = collection.notices.in_writes.then_some(NOTICES_MEMBER);
                results::with_notices(result, &notices, member).into()
            }
            Ok(WriteOutcome::Replayed(stored)) => replayed_outcome(&stored),
            Ok(WriteOutcome::Discarded(reason)) => reason.into_outcome(collection, platform),
            // The row may be somebody else's: the message must not say more about it than that its key is taken.
            Err(WriteError::AlreadyExists) if restricts_rows(collection) => {
                let message = "this key cannot be used for a new row; choose another";
                ToolError::new(ToolErrorCode::Conflict, message).into()
            }
            Err(error) => {
                let retry_safety = RetrySafety::for_write(&arguments.options);
                write_error_outcome(&error, collection, &arguments.key, retry_safety, platform)
            }
        }
    }
}

/// The result of an earlier call with the same idempotency key.
pub(super) fn replayed_outcome(stored: &[u8]) -> Outcome {
    match results::replayed_tool_result(stored) {
        Some(result) => result.into(),
        None => Outcome::Failed(CallError::Internal {
            detail: "the stored result of an idempotency key is invalid".into(),
        }),
    }
}

/// The idempotency key of a write; `None` for a dry run, which leaves no trace. Without a key from the client the id of
/// a confirmed call serves as one: what the user agreed to is done once, however often the client repeats the call. So does
/// the id that a script gives to a call, which it repeats after a restart.
pub(super) fn idempotency_key(
    tool: &Tool,
    options: &WriteOptions<'_>,
    blocking: &BlockingContext,
    request_digest: [u8; 32],
    rows_digest: Option<&[u8; 32]>,
) -> Option<IdempotencyKey> {
    if options.dry_run {
        return None;
    }
    let principal = blocking.caller.principal.id().as_bytes();
    let bound;
    // A caller with other rows than before gets no response about those.
    let principal = match rows_digest {
        None => principal,
        Some(rows) => {
            bound = digest_parts(&[principal, rows]);
            &bound
        }
    };
    let key_digest = match (&options.idempotency_key, &blocking.journal.repeatable_call_id()) {
        (Some(key), _) => {
            digest_parts(&[b"idempotency_key", principal, tool.name.as_bytes(), key.as_bytes()])
        }
        (None, Some(call)) => digest_parts(&[b"call", principal, tool.name.as_bytes(), call]),
        (None, None) => return None,
    };
    Some(IdempotencyKey { key_digest, request_digest })
}

/// Why a change was rolled back.
pub(super) enum NotWritten {
    /// The user must be asked first. `key` identifies the question.
    ConfirmationRequired {
        key: String,
        question: String,
    },
    /// The user declined; the message for the caller.
    Declined(&'static str),
    /// The source would store another value than the caller passed.
    ValueAltered {
        field: String,
    },
    InvalidRecord(RecordError),
    /// The row would not be one of the caller's rows.
    NotPermitted,
    /// The source cannot roll back: the change was made, but its record does not match the output schema.
    UnreadableRecord(RecordError),
    /// The statement should have returned a record.
    NoRecord(Box<ToolError>),
}

impl NotWritten {
    pub(super) fn into_outcome(self, collection: &Collection, platform: &dyn Platform) -> Outcome {
        match self {
            Self::ConfirmationRequired { key, question } => confirm::confirmation_request(key, question),
            Self::Declined(reason) => confirm::declined_outcome(reason),
            Self::ValueAltered { field } => {
                let message =
                    format!("`{field}`: the source would store another value than this; nothing was written");
                not_allowed(field, message).into()
            }
            Self::InvalidRecord(RecordError::TypeMismatch { field, .. }) => {
                let message = format!(
                    "`{field}`: the stored value would not match the output schema; nothing was written"
                );
                not_allowed(field, message).into()
            }
            Self::NotPermitted => {
                let message = "the row would not be one that you may write; nothing was written";
                ToolError::new(ToolErrorCode::Forbidden, message).into()
            }
            Self::UnreadableRecord(RecordError::TypeMismatch { field, .. }) => {
                let message = format!(
                    "the change was made, but the value of `{field}` in the record does not match the output schema"
                );
                ToolError::new(ToolErrorCode::SourceChanged, message).into()
            }
            Self::InvalidRecord(error) | Self::UnreadableRecord(error) => {
                record_error_outcome(&error, collection, platform)
            }
            Self::NoRecord(error) => Outcome::ToolFailed(error),
        }
    }
}

fn restricts_rows(collection: &Collection) -> bool {
    collection.rules.as_ref().is_some_and(RowRules::restricts_rows)
}

fn not_allowed(field: String, message: String) -> ToolError {
    ToolError {
        field: Some(field),
        reason: Some(ArgumentErrorKind::NotAllowed),
        ..ToolError::new(ToolErrorCode::InvalidArguments, message)
    }
}

/// One write of a record, with everything that it is checked against.
struct RecordWrite<'a> {
    tool: &'a Tool,
    collection: &'a Collection,
    operation: WriteOperation,
    arguments: &'a WriteArguments<'a>,
    request_digest: &'a [u8],
    /// The journal with the user's answer, if the write needs a confirmation.
    journal: Option<&'a Journal>,
    /// The caller's rows; `None` if all rows are.
    rows: Option<&'a BoundRows>,
    /// What the server sets, by the index of the column.
    set: &'a [(usize, &'a Field, BoundValue<'static>)],
}

/// A record that was written, and other effects that the caller should know.
struct Written {
    result: WriteResult,
    notices: Vec<String>,
}

/// The row before the write.
struct RowBefore {
    values: Vec<Value>,
    /// `None` if the row does not match the contract; a write may repair it.
    version: Option<String>,
}

impl RecordWrite<'_> {
    /// The steps of the transaction: row → version → apply → read back → confirmation.
    fn change(
        &self,
        transaction: &mut (dyn RowTransaction + '_),
    ) -> Result<Verdict<Written, NotWritten>, WriteError> {
        let key: Vec<ValueRef<'_>> = self.arguments.key.iter().map(BoundValue::as_value_ref).collect();
        let before = match self.operation {
            WriteOperation::Create => None,
            WriteOperation::Update | WriteOperation::Delete => {
                let values = transaction.row(&key)?.ok_or(WriteError::NotFound)?;
                // Before its version is compared: a row of somebody else does not exist.
                if !self.is_own(&value_refs(&values)) {
                    return Err(WriteError::NotFound);
                }
                let version = results::record_version(self.collection, &value_refs(&values)).ok();
                Some(RowBefore { values, version })
            }
        };
        if !before.as_ref().is_none_or(|before| self.has_expected_version(before)) {
            return Err(WriteError::VersionConflict);
        }
        if !self.can_roll_back() {
            return self.change_for_good(transaction, &key, before.as_ref());
        }
        self.apply(transaction, &key, before.as_ref())?;
        let row = self.row_to_return(transaction.read_back()?, before.as_ref())?;
        Ok(match self.check_row(before.as_ref(), &value_refs(&row)) {
            Ok(result) => Verdict::Keep {
                response: result.structured.clone(),
                result: Written { result, notices: transaction.notices() },
            },
            Err(reason) => Verdict::Discard(reason),
        })
    }

    /// Whether a row exists for the caller.
    fn is_own(&self, row: &[ValueRef<'_>]) -> bool {
        self.rows.is_none_or(|rows| rows.pass(&self.collection.shape.columns, row))
    }

    /// Whether a new state of a row is one that the caller may make, with what the server sets.
    fn is_permitted(&self, row: &[ValueRef<'_>]) -> bool {
        let is_set = |(column, field, value): &(usize, &Field, BoundValue<'_>)| {
            row.get(*column).is_some_and(|stored| field.round_trips(value.as_value_ref(), *stored))
        };
        self.operation == WriteOperation::Delete || (self.is_own(row) && self.set.iter().all(is_set))
    }

    fn can_roll_back(&self) -> bool {
        self.collection.write_capabilities().has(WriteCapabilities::ROLLBACK)
    }

    /// The same for a source that cannot roll back: the user is asked first, and what the source made of the change is
    /// returned, whatever it is.
    fn change_for_good(
        &self,
        transaction: &mut (dyn RowTransaction + '_),
        key: &[ValueRef<'_>],
        before: Option<&RowBefore>,
    ) -> Result<Verdict<Written, NotWritten>, WriteError> {
        let wanted = self.wanted_row(before);
        // Nothing can be taken back, so what is not certain to be permitted is not sent.
        if !self.is_permitted(&value_refs(&wanted)) {
            return Ok(Verdict::Discard(NotWritten::NotPermitted));
        }
        if let Err(reason) = self.check_confirmed(before, &value_refs(&wanted)) {
            return Ok(Verdict::Discard(reason));
        }
        self.apply(transaction, key, before)?;
        let row = self.row_to_return(transaction.read_back()?, before)?;
        let row = value_refs(&row);
        if !self.is_permitted(&row) {
            let message = "the change was made, but the source made a row of it that does not exist for you";
            let error = ToolError::new(ToolErrorCode::SourceChanged, message);
            return Ok(Verdict::Discard(NotWritten::NoRecord(Box::new(error))));
        }
        let mut notices = transaction.notices();
        if let Some(field) = self.altered_field(&row) {
            notices.push(format!("the source stored another value of `{field}` than this call gave"));
        }
        let version = results::record_version(self.collection, &row).ok();
        let is_same = before.is_some_and(|before| before.version.is_some() && before.version == version);
        let outcome = match self.operation {
            WriteOperation::Create => "created",
            WriteOperation::Delete => "deleted",
            WriteOperation::Update if is_same => "unchanged",
            WriteOperation::Update => "updated",
        };
        let result = WriteResult::record(self.collection, self.tool.text_template.as_ref(), outcome, &row);
        Ok(match result {
            Ok(result) => {
                let response = result.structured.clone();
                Verdict::Keep { response, result: Written { result, notices } }
            }
            Err(error) => Verdict::Discard(NotWritten::UnreadableRecord(error)),
        })
    }

    /// The row as it should be; for a delete, as it is.
    fn wanted_row(&self, before: Option<&RowBefore>) -> Vec<Value> {
        let mut row = match before {
            Some(before) => before.values.clone(),
            None => vec![Value::Null; self.collection.shape.columns.len()],
        };
        for (index, value) in &self.arguments.values {
            row[*index] = value.as_value_ref().to_value();
        }
        for (column, _, value) in self.set {
            row[*column] = value.as_value_ref().to_value();
        }
        row
    }

    /// A field whose value in the row is not the one that the caller gave.
    fn altered_field(&self, row: &[ValueRef<'_>]) -> Option<&str> {
        if self.operation == WriteOperation::Delete {
            return None;
        }
        let fields = &self.collection.fields;
        let is_altered = |(index, value): &&(usize, BoundValue<'_>)| {
            !fields[*index].round_trips(value.as_value_ref(), row[*index])
        };
        self.arguments.values.iter().find(is_altered).map(|(index, _)| fields[*index].name.as_str())
    }

    fn check_confirmed(&self, before: Option<&RowBefore>, after: &[ValueRef<'_>]) -> Result<(), NotWritten> {
        let Some(journal) = self.journal else { return Ok(()) };
        let state = before.and_then(|before| before.version.as_deref()).unwrap_or_default().as_bytes();
        let key = confirm::confirmation_key(self.tool, state, self.request_digest);
        confirm::check_confirmed(journal, key, || {
            let before = before.map(|before| value_refs(&before.values)).unwrap_or_default();
            confirmation::record_message(self.collection, self.operation, &before, after)
        })
    }

    fn versioning(&self) -> Option<Versioning> {
        self.collection.write_policy.as_ref().map(|policy| policy.versioning)
    }

    /// Whether the row is at the version that the caller expects, if the caller expects one.
    fn has_expected_version(&self, before: &RowBefore) -> bool {
        let Some(expected) = &self.arguments.expected_version else { return true };
        match (self.versioning(), expected) {
            (Some(Versioning::Field(index)), expected) => self.collection.fields[index]
                .round_trips(expected.as_value_ref(), before.values[index].as_value_ref()),
            (Some(Versioning::Digest) | None, BoundValue::Text(expected)) => {
                before.version.as_deref() == Some(expected.as_ref())
            }
            (Some(Versioning::Digest) | None, _) => false,
        }
    }

    fn apply(
        &self,
        transaction: &mut (dyn RowTransaction + '_),
        key: &[ValueRef<'_>],
        before: Option<&RowBefore>,
    ) -> Result<(), WriteError> {
        let mut values: Vec<(usize, ValueRef<'_>)> =
            self.arguments.values.iter().map(|(index, value)| (*index, value.as_value_ref())).collect();
        // A caller cannot set the version field, so it is not among the values yet.
        values.extend(before.and_then(|before| self.next_version(before)));
        values.extend(self.set.iter().map(|(column, _, value)| (*column, value.as_value_ref())));
        transaction.apply(&match self.operation {
            WriteOperation::Create => RowChange::Create { values: &values },
            WriteOperation::Update => RowChange::Update { key, values: &values },
            WriteOperation::Delete => RowChange::Delete { key },
        })
    }

    /// The new value of the version field, if an update changes the row.
    fn next_version<'v>(&self, before: &RowBefore) -> Option<(usize, ValueRef<'v>)> {
        let (Some(Versioning::Field(index)), WriteOperation::Update) = (self.versioning(), self.operation)
        else {
            return None;
        };
        let fields = &self.collection.fields;
        let is_changed = |(index, value): &(usize, BoundValue<'_>)| {
            !fields[*index].round_trips(value.as_value_ref(), before.values[*index].as_value_ref())
        };
        let current = before.values[index].as_value_ref();
        let is_change = self.arguments.values.iter().any(is_changed);
        is_change.then(|| (index, ValueRef::Integer(next_version(fields[index].data_type, current))))
    }

    /// The row as it will be; for a delete, as it was.
    fn row_to_return(
        &self,
        stored: Option<Vec<Value>>,
        before: Option<&RowBefore>,
    ) -> Result<Vec<Value>, WriteError> {
        let reason = match (self.operation, stored, before) {
            (WriteOperation::Create | WriteOperation::Update, Some(row), _) => return Ok(row),
            (WriteOperation::Delete, None, Some(before)) => return Ok(before.values.clone()),
            (WriteOperation::Delete, _, _) => "the source did not delete the row",
            (WriteOperation::Create | WriteOperation::Update, None, _) => "the source did not store the row",
        };
        Err(WriteError::Rejected { column: None, reason: reason.into() })
    }

    /// Checks the row as it will be and the user's confirmation, and builds the result.
    fn check_row(&self, before: Option<&RowBefore>, row: &[ValueRef<'_>]) -> Result<WriteResult, NotWritten> {
        let collection = self.collection;
        if let Some(field) = self.altered_field(row) {
            return Err(NotWritten::ValueAltered { field: field.to_owned() });
        }
        // The new state counts: nobody moves a row to where it does not exist for them.
        if !self.is_permitted(row) {
            return Err(NotWritten::NotPermitted);
        }
        let version_before = before.and_then(|before| before.version.as_deref());
        let outcome = match self.operation {
            WriteOperation::Create => "created",
            WriteOperation::Delete => "deleted",
            WriteOperation::Update => {
                let version = results::record_version(collection, row).map_err(NotWritten::InvalidRecord)?;
                if version_before == Some(&version) { "unchanged" } else { "updated" }
            }
        };
        let result = WriteResult::record(collection, self.tool.text_template.as_ref(), outcome, row)
            .map_err(NotWritten::InvalidRecord)?;
        if outcome != "unchanged" {
            self.check_confirmed(before, row)?;
        }
        Ok(result)
    }
}

fn value_refs(values: &[Value]) -> Vec<ValueRef<'_>> {
    values.iter().map(Value::as_value_ref).collect()
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
