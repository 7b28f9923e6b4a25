//! An author's statement, run with a caller's values.
//!
//! One that reads runs on a connection that cannot write, as long as it may and as long as somebody waits. It cannot
//! go on where it was, so its lock is held until it ends: in WAL mode that keeps nobody waiting; with a rollback
//! journal writers wait, so it has a second there, and whoever has longer statements should use WAL. One that writes
//! runs in one transaction with its claim.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::source::{
    CaptureMode, ChangeSummary, ContractViolation, PreparedStatement, RowFlow, SourceError, StatementShape,
    StatementWriteOptions, WriteError, WriteOutcome,
};
use contract::{DataType, ValueRef};
use rusqlite::{Row, Statement};

use super::Options;
use super::authorizer::AccessMode;
use super::cancellation::{self, CANCEL_CHECK_INTERVAL};
use super::change_capture::{CaptureOptions, ChangeCapture};
use super::column::{Column, ExpectedType, SqlParam};
use super::connection::DbConnection;
use super::direct_params::{self, DirectParam};
use super::error::{self, ConstraintContext, DbError};
use super::idempotency;
use super::lexer::{self, Token};
use super::pool::ConnectionPool;
use super::schema::{ForeignKeyGraph, Schema, Table, quote_identifier};
use super::write_connection::{TransactionEnd, WriteConnection};

/// How long writers may be kept waiting where readers do that, unless the author allows for more.
const READ_LOCK_HOLD_MAX: Duration = Duration::from_millis(1_000);
/// How long somebody else's lock is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Tables with so few rows are read in no time.
const SMALL_ROWS: i64 = 2_000;

pub(super) struct SqliteStatement {
    pool: Arc<ConnectionPool>,
    write_connection: Arc<WriteConnection>,
    sql: String,
    parameters: Vec<String>,
    parameter_types: Vec<DataType>,
    /// Places of parameters that have to be integers.
    limit_parameters: Vec<usize>,
    /// What goes into columns as it is, with the parameter's place.
    direct_params: Vec<(usize, DirectParam)>,
    /// With their places in what the statement gives.
    columns: Vec<(usize, Column)>,
    changes_max: u64,
    writes: bool,
    /// Whether all rows that it gives are new ones.
    only_inserts: bool,
    /// Whether rows may go that SQLite does not count.
    may_replace: bool,
    /// As they were when it was prepared; only of one that writes.
    tables: Vec<Table>,
    foreign_keys: ForeignKeyGraph,
    /// What virtual tables keep their data in.
    shadow_tables: Arc<HashSet<String>>,
    can_run_inline: bool,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl SqliteStatement {
    pub(super) fn new(
        pool: &Arc<ConnectionPool>,
        desk: &Arc<WriteConnection>,
        options: &Options,
        schema: &Schema,
        shape: &StatementShape,
    ) -> Result<Self, SourceError> {
        let time = Duration::from_millis(shape.timeout_ms.unwrap_or(options.list_ms_max));
        let hold =
            if schema.is_wal || shape.timeout_ms.is_some() { time } else { time.min(READ_LOCK_HOLD_MAX) };
        let columns = shape.columns.iter().map(|column| (column.source_index, Column::for_statement(column)));
        // What cannot be told apart word by word was never examined.
        let tokens = lexer::tokenize(&shape.sql).unwrap_or_default();
        let place = |name: &String| shape.parameters.iter().position(|parameter| parameter == name);
        let mut script = Self {
            pool: Arc::clone(pool),
            write_connection: Arc::clone(desk),
            sql: shape.sql.clone(),
            parameters: shape.parameters.clone(),
            parameter_types: shape.parameter_types.clone(),
            limit_parameters: direct_params::limit_parameters(&shape.sql, &tokens)
                .iter()
                .filter_map(place)
                .collect(),
            direct_params: if shape.writes {
                locate_direct_params(schema, shape, &tokens)
            } else {
                Vec::new()
            },
            only_inserts: direct_params::only_inserts(&shape.sql, &tokens),
            may_replace: schema.may_replace || direct_params::may_replace(&shape.sql, &tokens),
            tables: if shape.writes { schema.tables.clone() } else { Vec::new() },
            foreign_keys: schema.foreign_keys.clone(),
            columns: columns.collect(),
            changes_max: shape.changes_max,
            writes: shape.writes,
            shadow_tables: Arc::new(schema.shadow_tables()),
            can_run_inline: false,
            read_timeout: hold,
            write_timeout: time,
        };
        let looked = pool.with_dedicated_connection(&AccessMode::Describe, |session| script.inspect(session));
        script.can_run_inline = looked.map_err(|fail| pool.source_error(fail))?;
        if shape.writes {
            desk.check_statements(AccessMode::RunStatement, &[&script.sql])?;
        }
        Ok(script)
    }

    /// Whether the statement is still what it was said to be; and whether it is short.
    fn inspect(&self, session: &DbConnection) -> Result<bool, DbError> {
        let statement = session.inner.prepare(&self.sql)?;
        let given = statement.column_count();
        if statement.readonly() == self.writes || self.columns.iter().any(|(at, _)| *at >= given) {
            return Err(self.incompatible_error());
        }
        drop(statement);
        let tables: Vec<String> = session.authorizer.access_log().tables.into_iter().collect();
        if self.writes {
            return Ok(false);
        }
        let mut plan = session.inner.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let mut rows = plan.raw_query();
        let mut scans = 0;
        while let Some(row) = rows.next()? {
            match PlanStep::parse(&row.get::<_, String>(3)?) {
                PlanStep::Cheap => {}
                PlanStep::Scan => scans += 1,
                PlanStep::Expensive => return Ok(false),
            }
        }
        Ok(scans == 0 || (scans == 1 && self.are_small(session, &tables)?))
    }

    fn are_small(&self, session: &DbConnection, tables: &[String]) -> Result<bool, DbError> {
        for table in tables {
            let name = quote_identifier(table);
            let rows_max = SMALL_ROWS + 1;
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM main.{name} LIMIT {rows_max})");
            session.set_deadline(CANCEL_CHECK_INTERVAL);
            let counted = session.inner.query_row(&sql, [], |row| row.get::<_, i64>(0));
            session.clear_deadline();
            if counted.map_or(true, |rows| rows > SMALL_ROWS) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A truth value that goes into columns of text and nowhere else is written as collections write it.
    fn booleans_as_text<'a>(&self, arguments: &[ValueRef<'a>]) -> Vec<ValueRef<'a>> {
        let is_text = |at: usize| {
            self.parameter_types.get(at) == Some(&DataType::Boolean)
                && self.direct_params.iter().any(|(place, one)| *place == at && one.is_text_only)
        };
        let worded = |(at, cell): (usize, &ValueRef<'a>)| match cell {
            ValueRef::Integer(1) if is_text(at) => ValueRef::Text("true"),
            ValueRef::Integer(0) if is_text(at) => ValueRef::Text("false"),
            cell => *cell,
        };
        arguments.iter().enumerate().map(worded).collect()
    }

    /// Nothing runs with a value that a column would keep as another: SQLite would not say so.
    fn check_roundtrip(&self, arguments: &[ValueRef<'_>]) -> Result<(), WriteError> {
        for (at, straight) in &self.direct_params {
            let (Some(kind), Some(said)) = (self.parameter_types.get(*at), arguments.get(*at)) else {
                continue;
            };
            let why = straight
                .describe_difference(*kind, *said)
                .map_err(|error| self.write_connection.source_error(error))?;
            if let Some(why) = why {
                return Err(WriteError::Rejected { column: Some(*at), reason: why });
            }
        }
        Ok(())
    }

    fn bind(&self, statement: &mut Statement<'_>, arguments: &[ValueRef<'_>]) -> rusqlite::Result<()> {
        statement.clear_bindings();
        for (name, cell) in self.parameters.iter().zip(arguments) {
            if let Some(at) = statement.parameter_index(&format!(":{name}"))? {
                statement.raw_bind_parameter(at, SqlParam::Value(*cell))?;
            }
        }
        Ok(())
    }

    /// Whether the columns are still those that were examined: `*` stands for others when a table has others.
    fn check_names(&self, row: &Row<'_>) -> Result<(), DbError> {
        let statement = row.as_ref();
        let is_same = |(at, column): &(usize, Column)| {
            *at < statement.column_count() && statement.column_name(*at).is_ok_and(|name| name == column.name)
        };
        if self.columns.iter().all(is_same) { Ok(()) } else { Err(self.incompatible_error()) }
    }

    fn incompatible_error(&self) -> DbError {
        let told = "a statement no longer gives what it gave; read the database in again".to_owned();
        SourceError::Incompatible { detail: format!("{told}: {}", self.sql), message: told }.into()
    }

    fn with_row_values<T>(
        &self,
        row: &Row<'_>,
        hand: impl FnOnce(&[ValueRef<'_>]) -> T,
    ) -> Result<T, RowError> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for (at, column) in &self.columns {
            let cell = column.checked_value(row.get_ref(*at)?);
            cells.push(
                cell.map_err(|expected| RowError::TypeMismatch { column: column.name.clone(), expected })?,
            );
        }
        Ok(hand(&cells))
    }

    /// Of data that was there before.
    fn row_error(&self, stumble: RowError) -> DbError {
        match stumble {
            RowError::Db(fail) => fail,
            RowError::TypeMismatch { column, expected: ExpectedType(expected) } => {
                let what = format!("column `{column}`: expected {expected}");
                let told = format!("{what}, and a row has something else; the data is not what it was");
                SourceError::Incompatible {
                    message: told,
                    detail: format!("{what}, in the rows of {}", self.sql),
                }
                .into()
            }
        }
    }

    fn run_read(
        &self,
        session: &DbConnection,
        arguments: &[ValueRef<'_>],
        handed: &mut u64,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), DbError> {
        let mut statement = session.inner.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let mut rows = statement.raw_query();
        while let Some(found) = rows.next()? {
            if *handed == 0 {
                self.check_names(found)?;
            }
            *handed += 1;
            if self.with_row_values(found, &mut *row).map_err(|stumble| self.row_error(stumble))?
                == RowFlow::Stop
            {
                break;
            }
        }
        Ok(())
    }

    /// Runs one that writes, to its end, and says how many rows were changed, by it and by all that it set off:
    /// triggers and foreign keys.
    fn run_write(
        &self,
        session: &DbConnection,
        arguments: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<u64, RowError> {
        let mut statement = session.inner.prepare_cached(&self.sql)?;
        self.bind(&mut statement, arguments)?;
        let before = session.inner.total_changes();
        let mut rows = statement.raw_query();
        let (mut more, mut is_first) = (RowFlow::Continue, true);
        while let Some(found) = rows.next()? {
            if std::mem::take(&mut is_first) {
                self.check_names(found)?;
            }
            if more == RowFlow::Continue {
                more = self.with_row_values(found, &mut *row)?;
            }
        }
        drop(rows);
        drop(statement);
        Ok(session.inner.total_changes().saturating_sub(before))
    }

    /// The same; and which rows, where somebody wants to know, with all that SQLite does not count.
    fn run_write_captured(
        &self,
        session: &DbConnection,
        arguments: &[ValueRef<'_>],
        which: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, RowError> {
        if which == CaptureMode::CountOnly && !self.may_replace {
            return Ok(ChangeSummary { rows: self.run_write(session, arguments, row)?, digest: None });
        }
        let rows_max = match which {
            // More than these are refused anyway.
            CaptureMode::RowDigest => {
                usize::try_from(self.changes_max).unwrap_or(usize::MAX).saturating_add(1)
            }
            CaptureMode::CountOnly => 0,
        };
        let watch = CaptureOptions { rows_max, may_replace: self.may_replace };
        let mut witness =
            ChangeCapture::start(session, &session.captured_changes, &self.sql, &self.tables, watch)?;
        if which == CaptureMode::RowDigest && self.may_replace {
            witness.trial_run(&self.foreign_keys, || self.trial_run(session, arguments))?;
        }
        let counted = self.run_write(session, arguments, row)?;
        let (uncounted, digest) = witness.finish()?;
        Ok(ChangeSummary {
            rows: counted.saturating_add(uncounted),
            digest: (which == CaptureMode::RowDigest).then_some(digest),
        })
    }

    /// Runs it to its end, and tells nobody.
    fn trial_run(&self, session: &DbConnection, arguments: &[ValueRef<'_>]) -> Result<(), DbError> {
        let mut statement = session.inner.prepare(&self.sql)?;
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
        stop: Option<&AtomicBool>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if self.writes {
            return Err(SourceError::read_only());
        }
        if is_stopped() {
            return Err(SourceError::Cancelled);
        }
        let mut handed = 0;
        let read = self.pool.read_with_timeout(LOCK_TIMEOUT, |session| {
            let _lent = AccessModeGuard::allow_statement(session);
            session.set_deadline(self.read_timeout);
            let bell = stop.filter(|_| !self.can_run_inline);
            let ran = cancellation::run_cancellable(bell, &session.cancel_handle(), || {
                self.run_read(session, arguments, &mut handed, row)
            });
            match ran {
                // What was handed over cannot be taken back.
                Err(fail) if fail.is_busy() && handed > 0 => Err(self.pool.source_error(fail).into()),
                Err(fail) if fail.is_type_mismatch() => Err(self.limit_type_error(arguments).into()),
                ran => ran,
            }
        });
        match read {
            Err(DbError::DeadlineExceeded) if is_stopped() => Err(SourceError::Cancelled),
            read => read.map_err(|fail| self.pool.source_error(fail)),
        }
    }

    fn write(
        &self,
        arguments: &[ValueRef<'_>],
        terms: &StatementWriteOptions<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
        told: &mut dyn FnMut(&ChangeSummary) -> Result<Vec<u8>, ContractViolation>,
    ) -> Result<WriteOutcome, WriteError> {
        if !self.writes {
            return Err(SourceError::read_only().into());
        }
        self.write_connection.transaction(&self.shadow_tables, terms.cancelled, |session| {
            let trouble = |trouble| self.write_connection.idempotency_error(trouble);
            if let Some(claim) = &terms.idempotency_key
                && let Some(told) = idempotency::find(session, claim).map_err(trouble)?
            {
                return Ok((TransactionEnd::Rollback, WriteOutcome::Replayed(told)));
            }
            let arguments = &self.booleans_as_text(arguments)[..];
            self.check_roundtrip(arguments)?;
            session.authorizer.set_mode(AccessMode::RunStatement);
            session.set_deadline(self.write_timeout);
            let changes = self.run_write_captured(session, arguments, terms.capture, row);
            let changes = changes.map_err(|stumble| self.write_error(stumble, arguments))?;
            session.clear_deadline();
            if changes.rows > self.changes_max {
                return Err(WriteError::TooManyRows { rows: changes.rows, max: self.changes_max });
            }
            let told = told(&changes).map_err(|ContractViolation| WriteError::ContractViolation)?;
            if terms.dry_run {
                return Ok((TransactionEnd::Rollback, WriteOutcome::Done));
            }
            if let Some(claim) = &terms.idempotency_key {
                idempotency::store(session, claim, &told, terms.now_ms).map_err(trouble)?;
            }
            Ok((TransactionEnd::Commit, WriteOutcome::Done))
        })
    }
}

impl SqliteStatement {
    /// A limit that is no integer.
    fn limit_type_error(&self, arguments: &[ValueRef<'_>]) -> SourceError {
        let is_other = |at: &&usize| !matches!(arguments.get(**at), Some(ValueRef::Integer(_)));
        let why = "how many rows, or where to begin, has to be an integer".to_owned();
        SourceError::InvalidArgument {
            parameter: self.limit_parameters.iter().find(is_other).copied(),
            reason: why,
        }
    }

    fn write_error(&self, stumble: RowError, arguments: &[ValueRef<'_>]) -> WriteError {
        if let RowError::TypeMismatch { column, expected: ExpectedType(expected) } = &stumble {
            // It is the caller's value, and not what was there before: `coalesce(:a, a)` leaves that for a NULL.
            let is_it = |(at, one): &&(usize, DirectParam)| {
                let is_said = arguments.get(*at).is_some_and(|said| *said != ValueRef::Null);
                is_said && one.column.eq_ignore_ascii_case(column)
            };
            if let Some((at, _)) = self.direct_params.iter().find(is_it) {
                let why = format!("the column `{column}` has {expected}, and this would be something else");
                return WriteError::Rejected { column: Some(*at), reason: why };
            }
            // Whatever a new row has comes from the call.
            if self.only_inserts {
                return WriteError::ContractViolation;
            }
        }
        let fail = self.row_error(stumble);
        let refused = match &fail {
            DbError::Sql(error) => ConstraintContext::default().constraint_error(error),
            DbError::DeadlineExceeded | DbError::Source(_) => None,
        };
        refused.unwrap_or_else(|| error::source_error_on_write(fail, self.pool.path()).into())
    }
}

/// Why a row could not be handed over.
enum RowError {
    Db(DbError),
    /// A value is not what the statement's columns were found to hold.
    TypeMismatch {
        column: String,
        expected: ExpectedType,
    },
}

impl From<DbError> for RowError {
    fn from(fail: DbError) -> Self {
        Self::Db(fail)
    }
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Db(error.into())
    }
}

/// What a statement that writes puts into columns as it is.
fn locate_direct_params(
    schema: &Schema,
    shape: &StatementShape,
    tokens: &[Token],
) -> Vec<(usize, DirectParam)> {
    let place = |one: DirectParam| {
        let at = shape.parameters.iter().position(|parameter| *parameter == one.parameter)?;
        Some((at, one))
    };
    direct_params::find_all(&shape.sql, tokens, schema).into_iter().filter_map(place).collect()
}

/// A pooled connection may do what authors may, until this ends.
struct AccessModeGuard<'s>(&'s DbConnection);

impl<'s> AccessModeGuard<'s> {
    fn allow_statement(session: &'s DbConnection) -> Self {
        session.authorizer.set_mode(AccessMode::RunStatement);
        Self(session)
    }
}

impl Drop for AccessModeGuard<'_> {
    fn drop(&mut self) {
        self.0.authorizer.set_mode(AccessMode::ReadRows);
    }
}

/// A line of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanStep {
    /// At most one row, found by its number; or what is done with few rows.
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
        // Of one table, at most all of it.
        let is_one = line.starts_with("SCAN ") || (line.starts_with("SEARCH ") && line.contains(" USING "));
        if is_one && !line.contains("VIRTUAL TABLE") { Self::Scan } else { Self::Expensive }
    }
}

#[cfg(test)]
mod tests {
    use super::PlanStep;

    #[test]
    fn only_what_is_known_to_be_quick_is() {
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
