//! Writes through the driver that the host uses, with checks that a test chooses.

use std::convert::Infallible;

use contract::source::{
    CancelFlag, CaptureMode, ChangeSummary, IdempotencyKey, PreparedStatement, RowChange, RowFlow,
    RowTransaction, TransactionOptions, Verdict, WriteError, Writer, run_transaction,
};
use contract::{Value, ValueRef};

/// One change of a row.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    pub change: RowChange<'a>,
    pub idempotency_key: Option<IdempotencyKey>,
    pub dry_run: bool,
    pub now_ms: u64,
    pub cancelled: Option<&'a CancelFlag>,
}

/// One run of a statement.
#[derive(Debug, Clone, Copy)]
pub struct StatementWriteOptions<'a> {
    pub capture: CaptureMode,
    pub idempotency_key: Option<IdempotencyKey>,
    pub dry_run: bool,
    pub now_ms: u64,
    pub cancelled: Option<&'a CancelFlag>,
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Replayed(Vec<u8>),
}

/// What a test does between the steps of a transaction.
pub trait WriteChecks {
    /// With the current row, before an update or a delete. Returns additional values to set in an update.
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict>;

    fn add_notice(&mut self, _notice: &str) {}

    /// With the row after the change; for a delete, the row before it. Returns the response.
    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation>;
}

#[derive(Debug)]
pub struct VersionConflict;

#[derive(Debug)]
pub struct ContractViolation;

pub trait WriteRow {
    fn write(
        &self,
        write: &WriteRequest<'_>,
        checks: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError>;
}

impl WriteRow for dyn Writer + '_ {
    fn write(
        &self,
        write: &WriteRequest<'_>,
        checks: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        let WriteRequest { change, idempotency_key, dry_run, now_ms, cancelled } = write;
        let (idempotency_key, cancelled) = (*idempotency_key, cancelled.cloned());
        let options = TransactionOptions {
            idempotency_key,
            dry_run: *dry_run,
            now_ms: *now_ms,
            cancelled,
            identity: None,
        };
        let outcome = run_transaction(self.begin(&options)?, &options, |row| change_row(row, change, checks));
        outcome.map(without_discarded)
    }
}

fn change_row(
    transaction: &mut (dyn RowTransaction + '_),
    change: &RowChange<'_>,
    checks: &mut dyn WriteChecks,
) -> Result<Verdict<(), Infallible>, WriteError> {
    let mut before = |key: &[ValueRef<'_>], checks: &mut dyn WriteChecks| {
        let row = transaction.row(key)?.ok_or(WriteError::NotFound)?;
        let additional = checks.before_write(&value_refs(&row));
        Ok::<_, WriteError>((row, additional.map_err(|VersionConflict| WriteError::VersionConflict)?))
    };
    let row = match change {
        RowChange::Create { .. } => {
            transaction.apply(change)?;
            transaction.read_back()?.expect("a created row")
        }
        RowChange::Update { key, values } => {
            let (_, additional) = before(key, checks)?;
            let is_replaced = |index: usize| additional.iter().any(|(other, _)| *other == index);
            let mut values: Vec<(usize, ValueRef<'_>)> =
                values.iter().copied().filter(|(index, _)| !is_replaced(*index)).collect();
            values.extend(additional.iter().map(|(index, value)| (*index, value.as_value_ref())));
            transaction.apply(&RowChange::Update { key, values: &values })?;
            transaction.read_back()?.expect("an updated row")
        }
        RowChange::Delete { key } => {
            let (row, _) = before(key, checks)?;
            transaction.apply(change)?;
            assert_eq!(transaction.read_back()?, None, "the row is gone");
            row
        }
    };
    transaction.notices().iter().for_each(|notice| checks.add_notice(notice));
    let response = checks.after_write(&value_refs(&row));
    let response = response.map_err(|ContractViolation| WriteError::ContractViolation)?;
    Ok(Verdict::Keep { response, result: () })
}

pub trait WriteStatement {
    fn write(
        &self,
        arguments: &[ValueRef<'_>],
        options: &StatementWriteOptions<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
        render_result: &mut dyn FnMut(&ChangeSummary) -> Result<Vec<u8>, ContractViolation>,
    ) -> Result<WriteOutcome, WriteError>;
}

impl WriteStatement for dyn PreparedStatement + '_ {
    fn write(
        &self,
        arguments: &[ValueRef<'_>],
        options: &StatementWriteOptions<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
        render_result: &mut dyn FnMut(&ChangeSummary) -> Result<Vec<u8>, ContractViolation>,
    ) -> Result<WriteOutcome, WriteError> {
        let StatementWriteOptions { capture, idempotency_key, dry_run, now_ms, cancelled } = *options;
        let cancelled = cancelled.cloned();
        let options = TransactionOptions { idempotency_key, dry_run, now_ms, cancelled, identity: None };
        let outcome = run_transaction(self.begin(&options)?, &options, |statement| {
            let changes = statement.execute(arguments, capture, row)?;
            let response = render_result(&changes);
            let response = response.map_err(|ContractViolation| WriteError::ContractViolation)?;
            Ok(Verdict::<(), Infallible>::Keep { response, result: () })
        });
        outcome.map(without_discarded)
    }
}

fn without_discarded(outcome: contract::source::WriteOutcome<(), Infallible>) -> WriteOutcome {
    match outcome {
        contract::source::WriteOutcome::Done(()) => WriteOutcome::Done,
        contract::source::WriteOutcome::Replayed(response) => WriteOutcome::Replayed(response),
        contract::source::WriteOutcome::Discarded(never) => match never {},
    }
}

fn value_refs(values: &[Value]) -> Vec<ValueRef<'_>> {
    values.iter().map(Value::as_value_ref).collect()
}
