//! Runs an author's statement with a caller's arguments.
//!
//! A statement that reads runs on a connection that cannot write, until its caller cancels it at the call's deadline
//! or has gone away. It cannot be continued later, so it holds its lock until it ends: in WAL mode that blocks no one;
//! with a rollback journal writers wait for it, so a database with long statements should use WAL. A statement that
//! writes runs in one transaction with its idempotency record.

pub(crate) mod change_capture;
pub(crate) mod describe;
pub(crate) mod direct_params;
mod numeric_expression;
mod read_back;
mod value_flow;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::source::{
    CancelFlag, CaptureMode, ChangeSummary, IdempotencyKey, PreparedStatement, RowFlow, SourceError,
    StatementShape, StatementTransaction, Transaction, TransactionOptions, WriteError,
};
use contract::{DataType, ValueRef, infer};
use rusqlite::{Row, Statement};

use crate::sqlite::Options;
use crate::sqlite::column::{Column, ExpectedType, SqlParam};
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::connection::pool::ConnectionPool;
use crate::sqlite::error::{self, ConstraintContext, DbError};
use crate::sqlite::lexer::{self, Token};
use crate::sqlite::read::served_tables::ServedTables;
use crate::sqlite::schema::{ForeignKeyGraph, Schema, Table, quote_identifier};
use crate::sqlite::write::write_connection::{WriteConnection, WriteTransaction};
use change_capture::{CaptureOptions, ChangeCapture};
use direct_params::DirectParam;
use read_back::AssignedColumns;

/// How long a statement waits for another connection's lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1_000);
/// How long a statement may take on a thread that must not block.
const INLINE_TIME_MAX: Duration = Duration::from_millis(5);
/// How long it may take to find out that a table is small.
const SIZE_CHECK_MAX: Duration = Duration::from_millis(10);
/// An argument above this may be the length of a value that exceeds the limit.
const LONG_VALUE_MIN: i64 = 1 << 20;
/// Tables with so few rows are scanned quickly.
const SMALL_ROWS: i64 = 2_000;

pub(crate) struct SqliteStatement {
    pool: Arc<ConnectionPool>,
    write_connection: Arc<WriteConnection>,
    served_tables: Arc<ServedTables>,
    sql: String,
    parameters: Vec<String>,
    parameter_types: Vec<DataType>,
    /// Indexes of the parameters that must be integers.
    limit_parameters: Vec<usize>,
    /// Indexes of the parameters that JSON functions and operators read.
    json_parameters: Vec<usize>,
    /// The arguments that are stored in a column unchanged, with the parameter's index.
    direct_params: Vec<(usize, DirectParam)>,
    /// With their indexes in the statement's result.
    columns: Vec<(usize, Column)>,
    changes_max: u64,
    writes: bool,
    /// Whether all rows that it returns are new.
    only_inserts: bool,
    assigned: AssignedColumns,
    /// Whether it may delete rows that SQLite does not count.
    may_replace: bool,
    /// As they were when the statement was prepared. Empty for a statement that reads.
    tables: Vec<Table>,
    foreign_keys: ForeignKeyGraph,
    /// Where virtual tables store their data.
    shadow_tables: Arc<HashSet<String>>,
    can_run_inline: bool,
    /// For calls that cannot be cancelled.
    timeout: Duration,
}

impl SqliteStatement {
    pub(crate) fn new(
        pool: &Arc<ConnectionPool>,
        write_connection: &Arc<WriteConnection>,
        served_tables: &Arc<ServedTables>,
        options: &Options,
        schema: &Schema,
        shape: &StatementShape,
    ) -> Result<Self, SourceError> {
        let timeout = Duration::from_millis(shape.timeout_ms.unwrap_or(options.call_ms_max));
        let columns = shape.columns.iter().map(|column| (column.source_index, Column::for_statement(column)));
        // A statement that cannot be tokenized was rejected when it was described.
        let tokens = lexer::tokenize(&shape.sql).unwrap_or_default();
        let index_of = |name: &String| shape.parameters.iter().position(|parameter| parameter == name);
        let mut prepared = Self {
            pool: Arc::clone(pool),
            write_connection: Arc::clone(write_connection),
            served_tables: Arc::clone(served_tables),
            sql: shape.sql.clone(),
            parameters: shape.parameters.clone(),
            parameter_types: shape.parameter_types.clone(),
            limit_parameters: direct_params::limit_parameters(&shape.sql, &tokens)
                .iter()
                .filter_map(index_of)
                .collect(),
            json_parameters: direct_params::json_parameters(&shape.sql, &tokens)
                .iter()
                .filter_map(index_of)
                .collect(),
            direct_params: if shape.writes {
                locate_direct_params(schema, shape, &tokens)
            } else {
                Vec::new()
            },
            only_inserts: direct_params::only_inserts(&shape.sql, &tokens),
            assigned: if shape.writes {
                assigned_columns(schema, shape, &tokens)
            } else {
                AssignedColumns::default()
            },
            may_replace: schema.may_replace || lexer::may_replace(&shape.sql, &tokens),
            tables: if shape.writes { schema.tables.clone() } else { Vec::new() },
            foreign_keys: schema.foreign_keys.clone(),
            columns: columns.collect(),
            changes_max: shape.changes_max,
            writes: shape.writes,
            shadow_tables: Arc::new(schema.shadow_tables()),
            can_run_inline: false,
            timeout,
        };
        let inspected =
            pool.with_dedicated_connection(&AccessMode::Describe, |connection| prepared.inspect(connection));
        prepared.can_run_inline = inspected.map_err(|error| pool.source_error(error))?;
        if shape.writes {
            write_connection.check_statements(AccessMode::RunStatement, &[&prepared.sql])?;
        }
        Ok(prepared)
    }

    /// Checks that the statement is still what was described. Returns whether it is short enough to run
    /// inline.
    fn inspect(&self, connection: &DbConnection) -> Result<bool, DbError> {
        let statement = connection.inner.prepare(&self.sql)?;
        let column_count = statement.column_count();
        if statement.readonly() == self.writes || self.columns.iter().any(|(index, _)| *index >= column_count)
        {
            return Err(self.incompatible_error());
        }
        drop(statement);
        let tables: Vec<String> = connection.authorizer.access_log().tables.into_iter().collect();
        if self.writes {
            return Ok(false);
        }
        let mut plan = connection.inner.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let mut rows = plan.raw_query();
        let mut scans = 0;
        while let Some(row) = rows.next()? {
            match PlanStep::parse(&row.get::<_, String>(3)?) {
                PlanStep::Cheap => {}
                PlanStep::Scan => scans += 1,
                PlanStep::Expensive => return Ok(false),
            }
        }
        Ok(scans == 0 || (scans == 1 && self.are_small(connection, &tables)?))
    }

    fn are_small(&self, connection: &DbConnection, tables: &[String]) -> Result<bool, DbError> {
        for table in tables {
            let name = quote_identifier(table);
            let rows_max = SMALL_ROWS + 1;
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM main.{name} LIMIT {rows_max})");
            connection.set_deadline(SIZE_CHECK_MAX);
            let counted = connection.inner.query_row(&sql, [], |row| row.get::<_, i64>(0));
            connection.clear_deadline();
            if counted.map_or(true, |rows| rows > SMALL_ROWS) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A boolean that is stored only in columns of text is stored as a collection stores it.
    fn booleans_as_text<'a>(&self, arguments: &[ValueRef<'a>]) -> Vec<ValueRef<'a>> {
        let is_text = |index: usize| {
            self.parameter_types.get(index) == Some(&DataType::Boolean)
                && self.direct_params.iter().any(|(index_of, param)| *index_of == index && param.is_text_only)
        };
        let as_text = |(index, value): (usize, &ValueRef<'a>)| match value {
            ValueRef::Integer(1) if is_text(index) => ValueRef::Text("true"),
            ValueRef::Integer(0) if is_text(index) => ValueRef::Text("false"),
            value => *value,
        };
        arguments.iter().enumerate().map(as_text).collect()
    }

    /// Rejects an argument that a column would convert: SQLite would not report it.
    fn check_roundtrip(&self, arguments: &[ValueRef<'_>]) -> Result<(), WriteError> {
        for (index, param) in &self.direct_params {
            let (Some(kind), Some(value)) = (self.parameter_types.get(*index), arguments.get(*index)) else {
                continue;
            };
            let reason = param
                .rejection(*kind, *value, &self.served_tables)
                .map_err(|error| self.write_connection.source_error(error))?;
            if let Some(reason) = reason {
                return Err(WriteError::Rejected { column: Some(*index), reason });
            }
        }
        Ok(())
    }

    fn bind(&self, statement: &mut Statement<'_>, arguments: &[ValueRef<'_>]) -> rusqlite::Result<()> {
        statement.clear_bindings();
        for (name, value) in self.parameters.iter().zip(arguments) {
            if let Some(index) = statement.parameter_index(&format!(":{name}"))? {
                statement.raw_bind_parameter(index, SqlParam::Value(*value))?;
            }
        }
        Ok(())
    }

    /// Checks that the result still has the described columns: `*` may stand for others if a table changed.
    fn check_names(&self, row: &Row<'_>) -> Result<(), DbError> {
        let statement = row.as_ref();
        let is_same = |(index, column): &(usize, Column)| {
            *index < statement.column_count()
                && statement.column_name(*index).is_ok_and(|name| name == column.name)
        };
        if self.columns.iter().all(is_same) { Ok(()) } else { Err(self.incompatible_error()) }
    }

    fn incompatible_error(&self) -> DbError {
        let message = "the statement no longer returns the columns that it returned; restart the server to read the schema again".to_owned();
        SourceError::Incompatible { detail: format!("{message}: {}", self.sql), message }.into()
    }

    fn with_row_values<T>(
        &self,
        row: &Row<'_>,
        visit: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, RowError> {
        let mut values = Vec::with_capacity(self.columns.len());
        for (index, column) in &self.columns {
            let value = column.checked_value(row.get_ref(*index)?);
            values.push(
                value.map_err(|expected| RowError::TypeMismatch { column: column.name.clone(), expected })?,
            );
        }
        Ok(visit(&values))
    }

    /// For data that was stored before.
    fn row_error(&self, row_error: RowError) -> DbError {
        match row_error {
            RowError::Db(error) => error,
            RowError::TypeMismatch { column, expected: ExpectedType(expected) } => {
                let problem = format!("column `{column}`: expected {expected}");
                let message = format!("{problem}, but a row has another value; the data has changed");
                SourceError::Incompatible {
                    message,
                    detail: format!("{problem}, in the rows of {}", self.sql),
                }
                .into()
            }
        }
    }

    fn run_read(
        &self,
        connection: &DbConnection,
        arguments: &[ValueRef<'_>],
        row_count: &mut u64,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), DbError> {
        let result = self.run_read_unexplained(connection, arguments, row_count, row);
        match result {
            Err(error) if error.is_type_mismatch() => Err(self.limit_type_error(arguments).into()),
            Err(error) if error.is_json_error() => Err(self.json_error(error, arguments).into()),
            Err(error) => Err(self.value_error(&error, arguments).map_or(error, DbError::from)),
            result => result,
        }
    }

    fn run_read_unexplained(
        &self,
        connection: &DbConnection,
        arguments: &[ValueRef<'_>],
        row_count: &mut u64,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), DbError> {
        let _lent = AccessModeGuard::allow_statement(connection);
        let mut statement = connection.inner.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let mut rows = statement.raw_query();
        while let Some(found) = rows.next()? {
            if *row_count == 0 {
                self.check_names(found)?;
            }
            *row_count += 1;
            if self.with_row_values(found, &mut *row).map_err(|row_error| self.row_error(row_error))?
                == RowFlow::Stop
            {
                break;
            }
        }
        Ok(())
    }

    /// Runs a statement that writes to its end. Returns how many rows it changed, including those changed by
    /// triggers and foreign keys.
    fn run_write(
        &self,
        connection: &DbConnection,
        arguments: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<u64, RowError> {
        let mut statement = connection.inner.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let before = connection.inner.total_changes();
        let mut rows = statement.raw_query();
        let (mut flow, mut is_first) = (RowFlow::Continue, true);
        while let Some(found) = rows.next()? {
            if std::mem::take(&mut is_first) {
                self.check_names(found)?;
            }
            if flow == RowFlow::Continue {
                flow = self.with_row_values(found, &mut *row)?;
            }
        }
        drop(rows);
        drop(statement);
        Ok(connection.inner.total_changes().saturating_sub(before))
    }

    /// Like `run_write`, and also captures which rows, and those that SQLite does not count.
    fn run_write_captured(
        &self,
        connection: &DbConnection,
        arguments: &[ValueRef<'_>],
        mode: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, RowError> {
        if mode == CaptureMode::CountOnly && !self.may_replace {
            return Ok(ChangeSummary { rows: self.run_write(connection, arguments, row)?, digest: None });
        }
        let rows_max = match mode {
            // A larger change is rejected anyway.
            CaptureMode::RowDigest => {
                usize::try_from(self.changes_max).unwrap_or(usize::MAX).saturating_add(1)
            }
            CaptureMode::CountOnly => 0,
        };
        let options = CaptureOptions { rows_max, may_replace: self.may_replace };
        let mut capture =
            ChangeCapture::start(connection, &connection.captured_changes, &self.sql, &self.tables, options)?;
        if mode == CaptureMode::RowDigest && self.may_replace {
            capture.trial_run(&self.foreign_keys, || self.trial_run(connection, arguments))?;
        }
        let counted = self.run_write(connection, arguments, row)?;
        let (uncounted, digest) = capture.finish()?;
        Ok(ChangeSummary {
            rows: counted.saturating_add(uncounted),
            digest: (mode == CaptureMode::RowDigest).then_some(digest),
        })
    }

    /// Runs it to its end and discards the rows.
    fn trial_run(&self, connection: &DbConnection, arguments: &[ValueRef<'_>]) -> Result<(), DbError> {
        let mut statement = connection.inner.prepare(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        Ok(())
    }
}

impl PreparedStatement for SqliteStatement {
    fn can_run_inline(&self) -> bool {
        self.can_run_inline
    }

    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        let is_cancelled = || cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed));
        if self.writes {
            return Err(SourceError::read_only());
        }
        if is_cancelled() {
            return Err(SourceError::Cancelled);
        }
        let mut row_count = 0;
        let read = self.pool.read_with_timeout(LOCK_TIMEOUT, |connection| {
            connection.set_call_limit(cancelled, self.timeout);
            let _cancel = connection.cancel_on(cancelled);
            match self.run_read(connection, arguments, &mut row_count, row) {
                // Rows that were passed on cannot be taken back.
                Err(error) if error.is_busy() && row_count > 0 => Err(self.pool.source_error(error).into()),
                result => result,
            }
        });
        match read {
            Err(DbError::DeadlineExceeded) if is_cancelled() => Err(SourceError::Cancelled),
            read => read.map_err(|error| self.pool.source_error(error)),
        }
    }

    fn read_inline(
        &self,
        arguments: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        if self.writes {
            return Err(SourceError::read_only());
        }
        let mut row_count = 0;
        let read = self.pool.read_inline(|connection| {
            connection.set_deadline(INLINE_TIME_MAX);
            self.run_read(connection, arguments, &mut row_count, row)
        });
        match read {
            Err(DbError::DeadlineExceeded) => Err(SourceError::WouldBlock),
            read => read.map_err(|error| self.pool.source_error(error)),
        }
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn StatementTransaction + '_>, WriteError> {
        if !self.writes {
            return Err(SourceError::read_only().into());
        }
        let transaction = self.write_connection.begin(&self.shadow_tables, options)?;
        Ok(Box::new(SqliteStatementTransaction { statement: self, transaction }))
    }
}

struct SqliteStatementTransaction<'s> {
    statement: &'s SqliteStatement,
    transaction: WriteTransaction<'s>,
}

impl Transaction for SqliteStatementTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.transaction.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.transaction.store_response(key, response)
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.transaction.commit()
    }

    fn roll_back(self: Box<Self>) {}
}

impl StatementTransaction for SqliteStatementTransaction<'_> {
    fn execute(
        &mut self,
        arguments: &[ValueRef<'_>],
        capture: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, WriteError> {
        let statement = self.statement;
        let arguments = &statement.booleans_as_text(arguments)[..];
        statement.check_roundtrip(arguments)?;
        self.transaction.allow_change(AccessMode::RunStatement, statement.timeout);
        let connection = self.transaction.connection();
        // A larger change is rejected anyway.
        let rows_max = usize::try_from(statement.changes_max).unwrap_or(usize::MAX).saturating_add(1);
        connection.changed_rows.start(rows_max);
        let changes = statement.run_write_captured(connection, arguments, capture, row);
        let changes = changes.map_err(|row_error| statement.write_error(row_error, arguments))?;
        if changes.rows > statement.changes_max {
            return Err(WriteError::TooManyRows { rows: changes.rows, max: statement.changes_max });
        }
        let rejection = read_back::rejection(
            connection,
            &statement.tables,
            &statement.assigned,
            &statement.served_tables,
        );
        if let Some(reason) = rejection.map_err(|error| statement.write_error(error.into(), arguments))? {
            return Err(WriteError::Rejected { column: None, reason });
        }
        connection.clear_deadline();
        Ok(changes)
    }
}

impl SqliteStatement {
    /// A limit or offset that is not an integer.
    fn limit_type_error(&self, arguments: &[ValueRef<'_>]) -> SourceError {
        let is_not_integer = |index: &&usize| !matches!(arguments.get(**index), Some(ValueRef::Integer(_)));
        let reason = "a limit or an offset must be an integer".to_owned();
        SourceError::InvalidArgument {
            parameter: self.limit_parameters.iter().find(is_not_integer).copied(),
            reason,
        }
    }

    /// A JSON function got text that is not JSON: from the caller, or else from a stored value.
    fn json_error(&self, error: DbError, arguments: &[ValueRef<'_>]) -> SourceError {
        let is_not_json = |index: &&usize| match arguments.get(**index) {
            Some(ValueRef::Text(text)) => !infer::matches_type(DataType::Json, text),
            Some(ValueRef::Blob(_)) => true,
            _ => false,
        };
        let is_bad_path = |index: &&usize| match arguments.get(**index) {
            Some(ValueRef::Text(text)) => error.sqlite_message().contains(&format!("'{text}'")),
            _ => false,
        };
        let invalid = |index: &usize, reason: &str| SourceError::InvalidArgument {
            parameter: Some(*index),
            reason: reason.to_owned(),
        };
        if error.is_json_path_error()
            && let Some(index) = self.json_parameters.iter().find(is_bad_path)
        {
            return invalid(index, "it is not a valid JSON path, such as `$.name`");
        }
        match self.json_parameters.iter().find(is_not_json) {
            Some(index) => invalid(index, "it is not valid JSON"),
            None => {
                let detail = format!("{error:?} in {}", self.sql);
                let message = "a stored value, or a path of the statement, is not valid JSON".to_owned();
                SourceError::Incompatible { message, detail }
            }
        }
    }

    /// An error that an argument causes in a function: a value that becomes too large, or an escape of LIKE that is not
    /// one character.
    fn value_error(&self, error: &DbError, arguments: &[ValueRef<'_>]) -> Option<SourceError> {
        // An integer says how long the value becomes: `zeroblob(:n)`.
        let is_large = |value: &ValueRef<'_>| matches!(value, ValueRef::Integer(n) if *n > LONG_VALUE_MIN);
        let invalid =
            |parameter, reason: &str| SourceError::InvalidArgument { parameter, reason: reason.to_owned() };
        if error.is_escape_error() {
            return Some(invalid(None, "the escape of LIKE must be one character"));
        }
        let is_caller = arguments.iter().any(is_large);
        (error.is_too_big() && is_caller).then(|| {
            invalid(arguments.iter().position(is_large), "the value would exceed the limit of 64 MiB")
        })
    }

    fn write_error(&self, row_error: RowError, arguments: &[ValueRef<'_>]) -> WriteError {
        let row_error = match row_error {
            RowError::Db(error) if error.is_json_error() => {
                return match self.json_error(error, arguments) {
                    SourceError::InvalidArgument { parameter, reason } => {
                        WriteError::Rejected { column: parameter, reason }
                    }
                    error => error.into(),
                };
            }
            RowError::Db(error) => match self.value_error(&error, arguments) {
                Some(SourceError::InvalidArgument { parameter, reason }) => {
                    return WriteError::Rejected { column: parameter, reason };
                }
                Some(_) | None => RowError::Db(error),
            },
            row_error => row_error,
        };
        if let RowError::TypeMismatch { column, expected: ExpectedType(expected) } = &row_error {
            // The value comes from the caller, not from the stored row: `coalesce(:a, a)` keeps the stored
            // value for NULL.
            let matches_column = |(index, param): &&(usize, DirectParam)| {
                let is_sent = arguments.get(*index).is_some_and(|value| *value != ValueRef::Null);
                is_sent && param.column.eq_ignore_ascii_case(column)
            };
            if let Some((index, _)) = self.direct_params.iter().find(matches_column) {
                let reason = format!("the column `{column}` holds {expected}, and this is not one");
                return WriteError::Rejected { column: Some(*index), reason };
            }
            // All values of a new row come from the call.
            if self.only_inserts {
                return WriteError::ContractViolation;
            }
        }
        let error = self.row_error(row_error);
        let refused = match &error {
            DbError::Sql(error) => ConstraintContext::default().constraint_error(error),
            DbError::DeadlineExceeded | DbError::WouldBlock | DbError::Source(_) => None,
        };
        refused.unwrap_or_else(|| error::source_error_on_write(error, self.pool.path()).into())
    }
}

/// Why a row could not be returned.
enum RowError {
    Db(DbError),
    /// A value has another type than the statement's column.
    TypeMismatch {
        column: String,
        expected: ExpectedType,
    },
}

impl From<DbError> for RowError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Db(error.into())
    }
}

/// The direct parameters of a writing statement, with their indexes.
fn locate_direct_params(
    schema: &Schema,
    shape: &StatementShape,
    tokens: &[Token],
) -> Vec<(usize, DirectParam)> {
    let index_of = |param: DirectParam| {
        let index = shape.parameters.iter().position(|parameter| *parameter == param.parameter)?;
        Some((index, param))
    };
    direct_params::find_all(&shape.sql, tokens, schema).direct.into_iter().filter_map(index_of).collect()
}

/// The columns that a writing statement sets. A row that is inserted is new as a whole.
fn assigned_columns(schema: &Schema, shape: &StatementShape, tokens: &[Token]) -> AssignedColumns {
    let Some((table, columns)) = direct_params::assigned_columns(&shape.sql, tokens, schema) else {
        return AssignedColumns::default();
    };
    let inserts = tokens
        .iter()
        .any(|token| token.is_word(&shape.sql, "INSERT") || token.is_word(&shape.sql, "REPLACE"));
    AssignedColumns { table, columns: (!inserts).then_some(columns) }
}

/// Gives a pooled connection the access of an author's statement until this is dropped.
struct AccessModeGuard<'s>(&'s DbConnection);

impl<'s> AccessModeGuard<'s> {
    fn allow_statement(connection: &'s DbConnection) -> Self {
        connection.authorizer.set_mode(AccessMode::RunStatement);
        Self(connection)
    }
}

impl Drop for AccessModeGuard<'_> {
    fn drop(&mut self) {
        self.0.authorizer.set_mode(AccessMode::ReadRows);
    }
}

/// One line of a query plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanStep {
    /// At most one row, found by its rowid; or a step over few rows.
    Cheap,
    Scan,
    Expensive,
}

impl PlanStep {
    fn parse(line: &str) -> Self {
        if line.starts_with("SEARCH ") && line.ends_with(" USING INTEGER PRIMARY KEY (rowid=?)") {
            return Self::Cheap;
        }
        if line == "SCAN CONSTANT ROW" || line.starts_with("USE TEMP B-TREE FOR ") {
            return Self::Cheap;
        }
        // One table, read at most once.
        let is_one = line.starts_with("SCAN ") || (line.starts_with("SEARCH ") && line.contains(" USING "));
        if is_one && !line.contains("VIRTUAL TABLE") { Self::Scan } else { Self::Expensive }
    }
}

#[cfg(test)]
mod tests {
    use super::PlanStep;

    #[test]
    fn only_known_plan_steps_are_cheap() {
        for (line, expected) in [
            ("SEARCH t USING INTEGER PRIMARY KEY (rowid=?)", PlanStep::Cheap),
            ("SEARCH t USING INTEGER PRIMARY KEY (rowid>?)", PlanStep::Scan),
            ("SEARCH t USING INDEX i (a=?)", PlanStep::Scan),
            ("SCAN t", PlanStep::Scan),
            ("SCAN CONSTANT ROW", PlanStep::Cheap),
            ("USE TEMP B-TREE FOR ORDER BY", PlanStep::Cheap),
            ("SCAN f VIRTUAL TABLE INDEX 0:M1", PlanStep::Expensive),
            ("MATERIALIZE n", PlanStep::Expensive),
            ("RECURSIVE STEP", PlanStep::Expensive),
        ] {
            assert_eq!(PlanStep::parse(line), expected, "{line}");
        }
    }
}
