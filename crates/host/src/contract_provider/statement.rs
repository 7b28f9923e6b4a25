//! Runs a statement that the manifest declares.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::access::BoundRows;
use contract::bind::{self, BoundValue, WriteOptions};
use contract::results::{self, RecordError, RowList, WriteResult};
use contract::source::{
    CaptureMode, ChangeSummary, PreparedStatement, RowFlow, SourceError, SourceIdentity,
    StatementTransaction, TransactionOptions, Verdict, WriteError, WriteOutcome, run_transaction,
};
use contract::{Returns, Statement, Tool, Value, ValueRef, confirmation};
use spile_core::{Call, Caller, Journal, Outcome, Platform, ToolError, ToolErrorCode, ToolResult};

use super::confirm;
use super::error::{
    RetrySafety, record_error_outcome, rejected_value_error, source_error_outcome, write_error_outcome,
};
use super::write::{NotWritten, idempotency_key, replayed_outcome};
use super::{BlockingContext, ProviderInner};
use state::keyring::digest_parts;

impl ProviderInner {
    /// `None` means that the statement must run on the blocking pool.
    pub(super) fn run_statement(
        &self,
        tool: &Tool,
        index: usize,
        call: &Call,
        caller: &Caller,
        blocking: Option<&BlockingContext>,
        platform: &dyn Platform,
    ) -> Result<Option<Outcome>, Box<ToolError>> {
        let (statement, prepared) = (&self.contract.statements[index], &*self.backends.statements[index]);
        if blocking.is_none() && (statement.shape.writes || !prepared.can_run_inline()) {
            return Ok(None);
        }
        let (bound_arguments, options) = bind::statement(statement, call.arguments())?;
        let values: Vec<ValueRef<'_>> = bound_arguments.iter().map(BoundValue::as_value_ref).collect();
        let rows = self.statement_rows(index, caller);
        let identity = match rows.as_ref().map(BoundRows::identity).transpose() {
            Ok(identity) => identity.flatten(),
            Err(error) => return Ok(Some(source_error_outcome(&error, &statement.result, platform))),
        };
        let rows_digest = rows.as_ref().map(BoundRows::digest);
        let bound_arguments = &bound_arguments;
        let values = &values;
        let run = StatementCall { tool, statement, prepared, bound_arguments, values, identity, rows_digest };
        Ok(match blocking {
            Some(blocking) if statement.shape.writes => Some(run.write(&options, blocking, platform)),
            _ => run.read(blocking, platform),
        })
    }
}

struct StatementCall<'a> {
    tool: &'a Tool,
    statement: &'a Statement,
    prepared: &'a dyn PreparedStatement,
    bound_arguments: &'a [BoundValue<'a>],
    /// The bound arguments as the source takes them.
    values: &'a [ValueRef<'a>],
    /// Who the caller is, for a source that asks.
    identity: Option<&'a Arc<SourceIdentity>>,
    rows_digest: Option<&'a [u8; 32]>,
}

impl StatementCall<'_> {
    fn read(&self, blocking: Option<&BlockingContext>, platform: &dyn Platform) -> Option<Outcome> {
        let collection = &self.statement.result;
        let read = |row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow| match blocking {
            None => self.prepared.read_inline(self.values, row),
            Some(blocking) => {
                let (values, cancelled) = (self.values, Some(&blocking.cancelled));
                let mut row = |values: &[ValueRef<'_>]| {
                    blocking.rows_scanned.fetch_add(1, Ordering::Relaxed);
                    row(values)
                };
                match self.identity {
                    None => self.prepared.read(values, cancelled, &mut row),
                    Some(identity) => self.prepared.read_as(identity, values, cancelled, &mut row),
                }
            }
        };
        let result: Result<ToolResult, RecordError> = match self.statement.returns {
            Returns::Many => {
                let mut rows = self.new_rows();
                match read(&mut |values| rows.push(values)) {
                    Ok(()) => rows.into_statement_result(),
                    Err(SourceError::WouldBlock) if blocking.is_none() => return None,
                    Err(error) => return Some(self.source_error(&error, platform)),
                }
            }
            Returns::One => {
                let mut record = None;
                let read = read(&mut |values| {
                    record.get_or_insert_with(|| {
                        results::record(collection, self.tool.text_template.as_ref(), values)
                    });
                    RowFlow::Stop
                });
                match (read, record) {
                    (Err(SourceError::WouldBlock), _) if blocking.is_none() => return None,
                    (Err(error), _) => return Some(self.source_error(&error, platform)),
                    (Ok(()), Some(result)) => result,
                    (Ok(()), None) => return Some(self.not_found_error().into()),
                }
            }
        };
        Some(match result {
            Ok(result) => result.into(),
            Err(error) => record_error_outcome(&error, collection, platform),
        })
    }

    /// The source refused the value of an argument.
    fn argument_error(&self, parameter: Option<usize>, reason: &str) -> Outcome {
        let argument = parameter.and_then(|index| self.statement.arguments.get(index));
        rejected_value_error(argument.map(|argument| &*argument.field.name), reason).into()
    }

    fn source_error(&self, error: &SourceError, platform: &dyn Platform) -> Outcome {
        match error {
            SourceError::InvalidArgument { parameter, reason } => self.argument_error(*parameter, reason),
            error => source_error_outcome(error, &self.statement.result, platform),
        }
    }

    fn new_rows(&self) -> RowList<'_> {
        let collection = &self.statement.result;
        RowList::new(collection, self.tool.text_template.as_ref(), None, collection.rows_max)
    }

    fn not_found_error(&self) -> ToolError {
        let message = format!("`{}` found no row for these arguments", self.statement.result.name);
        ToolError::new(ToolErrorCode::NotFound, message)
    }

    fn write(
        &self,
        options: &WriteOptions<'_>,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Outcome {
        let needs_confirmation =
            match confirm::requires_confirmation(self.tool, options.dry_run, &blocking.caller) {
                Ok(needs_confirmation) => needs_confirmation,
                Err(error) => return error.into(),
            };
        let request_digest =
            digest_parts(&[&bind::canonical_arguments(&self.statement.arguments, self.bound_arguments)]);
        let capture = if needs_confirmation { CaptureMode::RowDigest } else { CaptureMode::CountOnly };
        let transaction_options = TransactionOptions {
            idempotency_key: idempotency_key(self.tool, options, blocking, request_digest, self.rows_digest),
            dry_run: options.dry_run,
            now_ms: platform.now_ms(),
            cancelled: Some(blocking.cancelled.clone()),
            identity: self.identity.cloned(),
        };
        let journal = needs_confirmation.then_some(&blocking.journal);
        let written = self.prepared.begin(&transaction_options).and_then(|transaction| {
            run_transaction(transaction, &transaction_options, |statement| {
                self.change(statement, capture, &request_digest, journal)
            })
        });
        let collection = &self.statement.result;
        match written {
            Ok(WriteOutcome::Done(result)) => results::write_tool_result(result, options.dry_run).into(),
            Ok(WriteOutcome::Replayed(stored)) => replayed_outcome(&stored),
            Ok(WriteOutcome::Discarded(reason)) => reason.into_outcome(collection, platform),
            Err(WriteError::Rejected { column, reason }) => self.argument_error(column, &reason),
            Err(error) => {
                write_error_outcome(&error, collection, &[], RetrySafety::for_write(options), platform)
            }
        }
    }

    /// The steps of the transaction: execute → confirmation. The rows that the statement returns are its result.
    fn change(
        &self,
        transaction: &mut (dyn StatementTransaction + '_),
        capture: CaptureMode,
        request_digest: &[u8],
        journal: Option<&Journal>,
    ) -> Result<Verdict<WriteResult, NotWritten>, WriteError> {
        let (mut rows, mut first) = (self.new_rows(), None::<Vec<Value>>);
        let changes =
            transaction.execute(self.values, capture, &mut |values| match self.statement.returns {
                Returns::Many => rows.push(values),
                Returns::One => {
                    first.get_or_insert_with(|| values.iter().map(|cell| cell.to_value()).collect());
                    RowFlow::Stop
                }
            })?;
        let checked = self.build_result(changes.rows, &rows, first.as_deref()).and_then(|result| {
            if let Some(journal) = journal {
                self.check_confirmed(&changes, request_digest, journal)?;
            }
            Ok(result)
        });
        Ok(match checked {
            Ok(result) => Verdict::Keep { response: result.structured.clone(), result },
            Err(reason) => Verdict::Discard(reason),
        })
    }

    fn build_result(
        &self,
        changed: u64,
        rows: &RowList<'_>,
        first: Option<&[Value]>,
    ) -> Result<WriteResult, NotWritten> {
        match self.statement.returns {
            Returns::Many => rows.to_write_result(changed).map_err(NotWritten::InvalidRecord),
            Returns::One => {
                let Some(first) = first else {
                    return Err(NotWritten::NoRecord(Box::new(self.not_found_error())));
                };
                let values: Vec<ValueRef<'_>> = first.iter().map(Value::as_value_ref).collect();
                let template = self.tool.text_template.as_ref();
                WriteResult::statement_record(&self.statement.result, template, changed, &values)
                    .map_err(NotWritten::InvalidRecord)
            }
        }
    }

    fn check_confirmed(
        &self,
        changes: &ChangeSummary,
        request_digest: &[u8],
        journal: &Journal,
    ) -> Result<(), NotWritten> {
        let state =
            [&changes.rows.to_be_bytes()[..], changes.digest.as_ref().map_or(&[], |digest| &digest[..])];
        let key = confirm::confirmation_key(self.tool, &state.concat(), request_digest);
        confirm::check_confirmed(journal, key, || {
            confirmation::statement_message(self.statement, changes.rows, self.values)
        })
    }
}
