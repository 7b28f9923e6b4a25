//! Runs an author's statement with a caller's arguments.
//!
//! The database prepares it when the contract is compiled, and says which parameters and columns it has. A statement that reads
//! runs in a read-only transaction that is rolled back, so that nothing it may have set stays. One that writes runs in one
//! transaction with its idempotency record, and what it changed is counted before it is kept.

mod rows_digest;
mod text;

use std::sync::Arc;
use std::time::Duration;

use contract::order::timestamp_sort_key;
use contract::source::{
    CancelFlag, CaptureMode, ChangeSummary, ColumnFacts, ColumnShape, IdempotencyKey, PreparedStatement,
    RowFlow, SourceError, SourceIdentity, StatementError, StatementFacts, StatementShape,
    StatementTransaction, Transaction, TransactionOptions, WriteCapabilities, WriteError,
};
use contract::{DataType, Value, ValueRef};

use crate::call::CallLimits;
use crate::column::{Column, Storage};
use crate::connection::{Description, Param, ResultColumn, Sql};
use crate::dialect::Dialect;
use crate::error::{Cause, DbError, Refusal, unavailable};
use crate::idempotency::Records;
use crate::operand::time_text;
use crate::pool::Pool;
use crate::write::{OpenTransaction, change_error};

use rows_digest::RowsDigest;
pub(crate) use text::{StatementText, Syntax};

/// What a database says about a statement without running it.
pub(crate) fn describe(
    pool: &Pool,
    dialect: &dyn Dialect,
    sql: &str,
    limits: &CallLimits<'_>,
    capabilities: WriteCapabilities,
) -> Result<StatementFacts, StatementError> {
    let text = StatementText::parse(sql, dialect.syntax())?;
    let description = describe_text(pool, dialect, &text, limits).map_err(|error| match error {
        DescribeError::Rejected(error) => error,
        DescribeError::Source(error) => text::error(error.to_string(), None, None),
    })?;
    if let Some(column) = description.columns.iter().find(|column| text.writes && column.storage.is_printed())
    {
        let message = format!(
            "the column `{}` is `{}`, which a statement that writes cannot return",
            column.name, column.type_name
        );
        let help = format!("return it as text: `{}::text`", column.name);
        return Err(text::error(message, Some(&help), None));
    }
    Ok(StatementFacts {
        parameters: text.parameters,
        columns: description.columns.iter().map(column_facts).collect(),
        writes: text.writes.then_some(capabilities),
        ..StatementFacts::default()
    })
}

fn describe_text(
    pool: &Pool,
    dialect: &dyn Dialect,
    text: &StatementText,
    limits: &CallLimits<'_>,
) -> Result<Description, DescribeError> {
    let rendered = text.render(|parameter| dialect.placeholder(parameter + 1));
    let mut refusal = None;
    let described = pool.with_connection(limits, |connection| {
        match connection.describe(&rendered, text.writes, limits) {
            Err(DbError::Refused(refused)) => {
                refusal = Some(refused);
                Ok(None)
            }
            described => described.map(Some),
        }
    });
    match (described, refusal) {
        (Ok(Some(description)), _) => Ok(description),
        (_, Some(refusal)) => Err(DescribeError::Rejected(explain(&refusal, text, &rendered))),
        (Ok(None), None) => Err(DescribeError::Source(unavailable("no description"))),
        (Err(error), None) => Err(DescribeError::Source(error)),
    }
}

/// Why a statement was not described.
enum DescribeError {
    /// The database says what is wrong with it.
    Rejected(StatementError),
    Source(SourceError),
}

/// The error of the database, at its place in the author's text.
fn explain(refusal: &Refusal, text: &StatementText, rendered: &str) -> StatementError {
    let help = match refusal.cause {
        Cause::UnknownParameterType => Some("say what a parameter is: `CAST(:name AS integer)`"),
        _ => None,
    };
    let span = refusal.position.and_then(|position| text.span_at(rendered, position));
    text::error(format!("the database rejects the statement: {}", refusal.detail), help, span)
}

/// Whatever a table promises, an expression over it may be NULL.
fn column_facts(column: &crate::schema::ColumnInfo) -> ColumnFacts {
    let (data_type, mixed) = match column.storage {
        // Most are counts: a number where every JSON reader keeps it, else a text.
        Storage::Integer => (DataType::Integer, column.is_wide),
        storage => (storage.data_types()[0], false),
    };
    ColumnFacts { nullable: true, mixed, ..ColumnFacts::new(&column.name, data_type) }
}

/// A statement that is ready to run.
pub(crate) struct DatabaseStatement {
    pool: Arc<Pool>,
    dialect: &'static dyn Dialect,
    text: StatementText,
    parameter_types: Vec<DataType>,
    /// As the database understands the parameters; empty if it does not say.
    parameter_storages: Vec<Storage>,
    /// All columns that the database returns.
    names: Vec<String>,
    results: Vec<ResultColumn>,
    /// Those that the contract has, with their indexes in the result.
    columns: Vec<(usize, Column)>,
    /// Around a statement that reads, to read columns as text or JSON.
    wrapper: Option<(String, String)>,
    changes_max: u64,
    timeout: Duration,
    idempotency: Option<Arc<Records>>,
}

impl DatabaseStatement {
    pub(crate) fn new(
        pool: &Arc<Pool>,
        dialect: &'static dyn Dialect,
        shape: &StatementShape,
        idempotency: Option<Arc<Records>>,
        call_max: Duration,
    ) -> Result<Self, SourceError> {
        let changed = |detail: String| SourceError::Incompatible {
            message: "the statement is no longer what it was when this server read it".into(),
            detail,
        };
        let text =
            StatementText::parse(&shape.sql, dialect.syntax()).map_err(|error| changed(error.message))?;
        let limits = CallLimits::new(None, call_max);
        let described = describe_text(pool, dialect, &text, &limits).map_err(|error| match error {
            DescribeError::Rejected(error) => changed(error.message),
            DescribeError::Source(error) => error,
        })?;
        if text.parameters != shape.parameters || text.writes != shape.writes {
            return Err(changed(shape.sql.clone()));
        }
        let column = |shape: &ColumnShape| {
            let info = described.columns.get(shape.source_index).filter(|info| info.name == shape.name);
            let info = info.ok_or_else(|| changed(format!("no column `{}`", shape.name)))?;
            Ok((shape.source_index, Column::new(info, shape, String::new())?))
        };
        let wrapper = (!shape.writes).then(|| dialect.wrap_statement(&described.columns)).flatten();
        let result = |info: &crate::schema::ColumnInfo| match info.storage.is_printed() {
            true => ResultColumn::computed(info.storage),
            false => ResultColumn {
                storage: info.storage,
                native_type: Some(info.native_type).filter(|native| *native != 0),
            },
        };
        Ok(Self {
            pool: Arc::clone(pool),
            dialect,
            parameter_types: shape.parameter_types.clone(),
            parameter_storages: described.parameters,
            // A wrapper gives the columns names of its own.
            names: match wrapper {
                Some(_) => Vec::new(),
                None => described.columns.iter().map(|column| column.name.clone()).collect(),
            },
            results: described.columns.iter().map(result).collect(),
            columns: shape.columns.iter().map(column).collect::<Result<_, SourceError>>()?,
            wrapper,
            changes_max: shape.changes_max,
            timeout: shape.timeout_ms.map_or(call_max, Duration::from_millis),
            idempotency,
            text,
        })
    }

    /// The statement with its values.
    fn sql(&self, arguments: &[ValueRef<'_>]) -> Sql {
        let mut params = Vec::new();
        let rendered = self.text.render(|parameter| {
            let value = arguments.get(parameter).copied().unwrap_or(ValueRef::Null);
            let kind = self.parameter_types.get(parameter).copied().unwrap_or(DataType::Text);
            if self.dialect.repeats_parameters() {
                params.push(natural_param(kind, value));
                return match (kind, value) {
                    (DataType::Decimal, ValueRef::Text(digits)) => self.dialect.typed_decimal("?", digits),
                    _ => self.dialect.placeholder(params.len()),
                };
            }
            self.dialect.placeholder(parameter + 1)
        });
        if !self.dialect.repeats_parameters() {
            let param = |(at, value): (usize, &ValueRef<'_>)| {
                let kind = self.parameter_types.get(at).copied().unwrap_or(DataType::Text);
                literal_param(kind, self.parameter_storages.get(at).copied(), *value)
            };
            params = arguments.iter().enumerate().map(param).collect();
        }
        let text = match &self.wrapper {
            Some((before, after)) => format!("{before}{rendered}{after}"),
            None => rendered,
        };
        Sql { text, params, results: self.results.clone(), names: self.names.clone() }
    }

    /// The values that the contract has, checked.
    fn chosen<'v>(&self, values: &[ValueRef<'v>]) -> Result<Vec<ValueRef<'v>>, SourceError> {
        let chosen = self.columns.iter().map(|(at, column)| {
            let value = values[*at];
            if column.accepts(value) { Ok(value) } else { Err(column.mismatch(value)) }
        });
        chosen.collect()
    }

    fn read_with(
        &self,
        identity: Option<&SourceIdentity>,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        if self.text.writes {
            return Err(SourceError::read_only());
        }
        let limits = CallLimits::new(cancelled, self.timeout);
        let mut row = |values: &[ValueRef<'_>]| Ok(row(&self.chosen(values)?));
        self.pool.read_in_transaction(identity, &self.sql(arguments), &limits, &mut row)
    }
}

impl PreparedStatement for DatabaseStatement {
    fn can_run_inline(&self) -> bool {
        false
    }

    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.read_with(None, arguments, cancelled, row)
    }

    fn read_as(
        &self,
        identity: &SourceIdentity,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.read_with(Some(identity), arguments, cancelled, row)
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn StatementTransaction + '_>, WriteError> {
        if !self.text.writes {
            return Err(SourceError::read_only().into());
        }
        let transaction =
            OpenTransaction::begin(&self.pool, self.timeout, self.idempotency.as_deref(), options)?;
        Ok(Box::new(RunningStatement { statement: self, transaction }))
    }
}

struct RunningStatement<'s> {
    statement: &'s DatabaseStatement,
    transaction: OpenTransaction<'s>,
}

impl Transaction for RunningStatement<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.transaction.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.transaction.store_response(key, response)
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.transaction.commit(|refusal| change_error(refusal, &[], None))
    }

    fn roll_back(self: Box<Self>) {}
}

impl RunningStatement<'_> {
    /// How many rows this transaction has changed so far, those of triggers and foreign keys included; `None` if the database
    /// does not say.
    fn changed_so_far(&mut self) -> Result<Option<u64>, WriteError> {
        let Some(question) = self.statement.dialect.changed_rows() else { return Ok(None) };
        let results = vec![ResultColumn::computed(Storage::Integer)];
        let sql = Sql { text: question.into(), results, ..Sql::default() };
        let row = self.transaction.first_row(&sql).map_err(DbError::into_source_error)?.1;
        Ok(row.and_then(|row| match row.first() {
            Some(Value::Integer(n)) => u64::try_from(*n).ok(),
            _ => None,
        }))
    }
}

impl StatementTransaction for RunningStatement<'_> {
    fn execute(
        &mut self,
        arguments: &[ValueRef<'_>],
        capture: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, WriteError> {
        let statement = self.statement;
        let before = self.changed_so_far()?;
        // A larger change is rejected anyway.
        let rows_max = usize::try_from(statement.changes_max).unwrap_or(usize::MAX).saturating_add(1);
        let mut digest = (capture == CaptureMode::RowDigest).then(|| RowsDigest::new(rows_max));
        let (mut flow, mut mismatch) = (RowFlow::Continue, None);
        let ran = self.transaction.run(&statement.sql(arguments), &mut |values| {
            if let Some(digest) = &mut digest {
                digest.add(values);
            }
            match statement.chosen(values) {
                Ok(chosen) if flow == RowFlow::Continue => flow = row(&chosen),
                Ok(_) => {}
                Err(error) => mismatch = mismatch.take().or(Some(error)),
            }
            // To its end: what is not returned is changed, too.
            Ok(RowFlow::Continue)
        });
        let counted = ran.map_err(|error| match error {
            DbError::Refused(refusal) => change_error(refusal, &[], None),
            error => error.into_source_error().into(),
        })?;
        if let Some(error) = mismatch {
            return Err(error.into());
        }
        let after = self.changed_so_far()?;
        let rows =
            before.zip(after).map_or(counted, |(before, after)| counted.max(after.saturating_sub(before)));
        if rows > statement.changes_max {
            return Err(WriteError::TooManyRows { rows, max: statement.changes_max });
        }
        Ok(ChangeSummary { rows, digest: digest.map(RowsDigest::finish) })
    }
}

/// As the type of the argument says, for a database that does not say what its parameters are.
fn natural_param(kind: DataType, value: ValueRef<'_>) -> Param {
    match value {
        ValueRef::Null => Param::Null,
        ValueRef::Integer(n) => Param::Integer(n),
        ValueRef::Real(n) => Param::Real(n),
        ValueRef::Text(text) => Param::Text(utc_text(kind, text)),
        ValueRef::Blob(bytes) => Param::Bytes(bytes.to_vec()),
    }
}

/// As a text that the database reads as whatever it takes the parameter for.
fn literal_param(kind: DataType, storage: Option<Storage>, value: ValueRef<'_>) -> Param {
    let is_number = matches!(
        storage,
        Some(Storage::Integer | Storage::Unsigned | Storage::Decimal | Storage::Float32 | Storage::Float64)
    );
    Param::Literal(match value {
        ValueRef::Null => return Param::Null,
        ValueRef::Integer(n) if kind == DataType::Boolean && !is_number => (n != 0).to_string(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(text) => match kind {
            DataType::Timestamp => format!("{}Z", utc_text(kind, text)),
            _ => text.to_owned(),
        },
        ValueRef::Blob(bytes) => {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("\\x{digits}")
        }
    })
}

/// A point in time in UTC, because a column without a time zone would drop the offset.
fn utc_text(kind: DataType, text: &str) -> String {
    let utc = || timestamp_sort_key(text).and_then(|(seconds, nanos)| time_text(seconds, nanos));
    match kind {
        DataType::Timestamp => utc().unwrap_or_else(|| text.to_owned()),
        _ => text.to_owned(),
    }
}
