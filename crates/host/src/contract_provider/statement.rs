//! Running an author's statement.

use std::cell::RefCell;

use contract::bind::{self, BoundValue, WriteOptions};
use contract::results::{self, RecordError, RowList, WriteResult};
use contract::source::{
    CaptureMode, ChangeSummary, ContractViolation, PreparedStatement, RowFlow, SourceError,
    StatementWriteOptions, WriteError, WriteOutcome,
};
use contract::{Returns, Statement, Tool, Value, ValueRef, confirmation};
use spile_core::{Call, CallError, Outcome, Platform, ToolError, ToolErrorCode, ToolResult};

use super::confirm::{self, Confirmation};
use super::error::{
    RetrySafety, record_error_outcome, rejected_value_error, source_error_outcome, write_error_outcome,
};
use super::write::{WriteRejection, idempotency_key};
use super::{BlockingContext, ProviderInner};
use crate::seal::digest_parts;

impl ProviderInner {
    /// `None` is for somebody who may block.
    pub(super) fn run_statement(
        &self,
        tool: &Tool,
        at: usize,
        call: &Call,
        aside: Option<&BlockingContext>,
        world: &dyn Platform,
    ) -> Result<Option<Outcome>, Box<ToolError>> {
        let (statement, prepared) = (&self.contract.statements[at], &*self.backends.statements[at]);
        if aside.is_none() && (statement.shape.writes || !prepared.can_run_inline()) {
            return Ok(None);
        }
        let (arguments, once) = bind::statement(statement, call.arguments())?;
        let cells: Vec<ValueRef<'_>> = arguments.iter().map(BoundValue::as_value_ref).collect();
        let run = StatementCall { tool, statement, prepared, bound_arguments: &arguments, values: &cells };
        Ok(match aside {
            Some(aside) if statement.shape.writes => Some(run.write(&once, aside, world)),
            _ => Some(run.read(aside, world)),
        })
    }
}

struct StatementCall<'a> {
    tool: &'a Tool,
    statement: &'a Statement,
    prepared: &'a dyn PreparedStatement,
    bound_arguments: &'a [BoundValue<'a>],
    /// The same, as a source takes it.
    values: &'a [ValueRef<'a>],
}

impl StatementCall<'_> {
    fn read(&self, aside: Option<&BlockingContext>, world: &dyn Platform) -> Outcome {
        let result = &self.statement.result;
        let stop = aside.map(|aside| &aside.cancelled);
        let reply: Result<ToolResult, RecordError> = match self.statement.returns {
            Returns::Many => {
                let mut rows = self.new_rows();
                match self.prepared.read(self.values, stop, &mut |cells| rows.push(cells)) {
                    Ok(()) => rows.into_statement_result(),
                    Err(fault) => return self.source_error(&fault, world),
                }
            }
            Returns::One => {
                let mut record = None;
                let read = self.prepared.read(self.values, stop, &mut |cells| {
                    record.get_or_insert_with(|| {
                        results::record(result, self.tool.text_template.as_ref(), cells)
                    });
                    RowFlow::Stop
                });
                match (read, record) {
                    (Err(fault), _) => return self.source_error(&fault, world),
                    (Ok(()), Some(reply)) => reply,
                    (Ok(()), None) => return self.not_found_error().into(),
                }
            }
        };
        match reply {
            Ok(reply) => reply.into(),
            Err(unfit) => record_error_outcome(&unfit, result, world),
        }
    }

    /// What is wrong with an argument.
    fn argument_error(&self, parameter: Option<usize>, why: &str) -> Outcome {
        let argument = parameter.and_then(|at| self.statement.arguments.get(at));
        rejected_value_error(argument.map(|argument| &*argument.field.name), why).into()
    }

    fn source_error(&self, fault: &SourceError, world: &dyn Platform) -> Outcome {
        match fault {
            SourceError::InvalidArgument { parameter, reason: why } => self.argument_error(*parameter, why),
            fault => source_error_outcome(fault, &self.statement.result, world),
        }
    }

    fn new_rows(&self) -> RowList<'_> {
        let result = &self.statement.result;
        RowList::new(result, self.tool.text_template.as_ref(), None, result.rows_max)
    }

    fn not_found_error(&self) -> ToolError {
        let message = format!("{} found nothing for these arguments", self.statement.result.name);
        ToolError::new(ToolErrorCode::NotFound, message)
    }

    fn write(&self, once: &WriteOptions<'_>, aside: &BlockingContext, world: &dyn Platform) -> Outcome {
        let asks = match confirm::requires_confirmation(self.tool, once.dry_run, &aside.caller) {
            Ok(asks) => asks,
            Err(problem) => return problem.into(),
        };
        let asked = digest_parts(&[&bind::canonical_arguments(self.statement, self.bound_arguments)]);
        let terms = StatementWriteOptions {
            capture: if asks { CaptureMode::RowDigest } else { CaptureMode::CountOnly },
            idempotency_key: idempotency_key(self.tool, once, aside, asked),
            dry_run: once.dry_run,
            now_ms: world.now_ms(),
            cancelled: Some(&aside.cancelled),
        };
        // Rows come first and are told in the end, by two who know nothing of each other.
        let (rows, first) = (RefCell::new(self.new_rows()), RefCell::new(None::<Vec<Value>>));
        let (mut told, mut why) = (None, None);
        let written = self.prepared.write(
            self.values,
            &terms,
            &mut |cells| match self.statement.returns {
                Returns::Many => rows.borrow_mut().push(cells),
                Returns::One => {
                    let mut first = first.borrow_mut();
                    first.get_or_insert_with(|| cells.iter().map(|cell| cell.to_value()).collect());
                    RowFlow::Stop
                }
            },
            &mut |changes| {
                let one = first.borrow();
                let judged =
                    self.build_result(changes.rows, &rows.borrow(), one.as_deref()).and_then(|told| {
                        if asks { self.check_confirmed(changes, &asked, aside) } else { Ok(()) }
                            .map(|()| told)
                    });
                match judged {
                    Ok(made) => {
                        let kept = made.structured.clone();
                        told = Some(made);
                        Ok(kept)
                    }
                    Err(reason) => {
                        why = Some(reason);
                        Err(ContractViolation)
                    }
                }
            },
        );
        let result = &self.statement.result;
        match (written, why, told) {
            (Ok(WriteOutcome::Done), _, Some(told)) => results::write_tool_result(told, once.dry_run).into(),
            (Ok(WriteOutcome::Done), _, None) => {
                Outcome::Failed(CallError::Internal { detail: "a statement was run that nobody saw".into() })
            }
            (Ok(WriteOutcome::Replayed(kept)), _, _) => match results::replayed_tool_result(&kept) {
                Some(reply) => reply.into(),
                None => {
                    Outcome::Failed(CallError::Internal { detail: "what a claim kept is no result".into() })
                }
            },
            (Err(WriteError::ContractViolation), Some(why), _) => why.into_outcome(result, world),
            (Err(WriteError::Rejected { column, reason: why }), _, _) => self.argument_error(column, &why),
            (Err(fault), _, _) => {
                write_error_outcome(&fault, result, &[], RetrySafety::for_write(once), world)
            }
        }
    }

    fn build_result(
        &self,
        changed: u64,
        rows: &RowList<'_>,
        first: Option<&[Value]>,
    ) -> Result<WriteResult, WriteRejection> {
        match self.statement.returns {
            Returns::Many => rows.to_write_result(changed).map_err(WriteRejection::InvalidRecord),
            Returns::One => {
                let Some(first) = first else {
                    return Err(WriteRejection::Outcome(self.not_found_error().into()));
                };
                let cells: Vec<ValueRef<'_>> = first.iter().map(Value::as_value_ref).collect();
                let line = self.tool.text_template.as_ref();
                WriteResult::statement_record(&self.statement.result, line, changed, &cells)
                    .map_err(WriteRejection::InvalidRecord)
            }
        }
    }

    fn check_confirmed(
        &self,
        changes: &ChangeSummary,
        asked: &[u8],
        aside: &BlockingContext,
    ) -> Result<(), WriteRejection> {
        let state =
            [&changes.rows.to_be_bytes()[..], changes.digest.as_ref().map_or(&[], |which| &which[..])];
        let key = confirm::confirmation_key(self.tool, &state.concat(), asked);
        match confirm::read_confirmation(&aside.journal, &key) {
            Confirmation::Accepted => Ok(()),
            Confirmation::Declined(why) => Err(WriteRejection::Outcome(confirm::declined_outcome(why))),
            Confirmation::Unanswered => {
                let message = confirmation::statement_message(self.statement, changes.rows, self.values);
                Err(WriteRejection::Outcome(confirm::confirmation_request(key, message)))
            }
        }
    }
}
