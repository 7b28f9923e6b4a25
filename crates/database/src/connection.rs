//! What one connection to a database does, whatever the engine.

use std::borrow::Cow;
use std::sync::Arc;

use contract::ValueRef;
use contract::source::{QuickReadFuture, RowFlow, SourceError, SourceIdentity};

use crate::call::CallLimits;
use crate::column::{Column, Storage};
use crate::error::DbError;
use crate::options::CallerMode;
use crate::schema::{ColumnInfo, Schema};

/// A statement with its values.
#[derive(Debug, Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) params: Vec<Param>,
    /// What its result has to be.
    pub(crate) results: Vec<ResultColumn>,
    /// The names of the result's columns; empty if they do not matter.
    pub(crate) names: Vec<String>,
}

/// What the database says about a statement that it has prepared.
#[derive(Debug, Default)]
pub(crate) struct Description {
    /// Empty if the database does not say.
    pub(crate) parameters: Vec<Storage>,
    pub(crate) columns: Vec<ColumnInfo>,
}

/// A value that is bound to a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// All of them are one parameter.
    Integers(Vec<i64>),
    Texts(Vec<String>),
    /// A text that the database reads as a value of whatever type it takes the parameter for.
    Literal(String),
    Null,
}

/// A column of a result: how it is read, and the engine's own type that it must still have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    pub(crate) storage: Storage,
    /// The engine's number of the type; `None` for what the statement itself computes.
    pub(crate) native_type: Option<u32>,
}

impl ResultColumn {
    pub(crate) fn computed(storage: Storage) -> Self {
        Self { storage, native_type: None }
    }
}

/// A column of a result as the database describes it.
pub(crate) trait FoundColumn {
    fn name(&self) -> Cow<'_, str>;

    fn native_type(&self) -> u32;

    /// For the log.
    fn type_name(&self) -> String;
}

/// Fails if a column is no longer of the type that the contract was made from.
pub(crate) fn check_types(sql: &Sql, columns: &[impl FoundColumn]) -> Result<(), DbError> {
    if columns.len() != sql.results.len() {
        return Err(malformed("another number of columns"));
    }
    if columns.iter().zip(&sql.names).any(|(found, name)| found.name() != *name) {
        return Err(malformed("columns with other names"));
    }
    for (found, expected) in columns.iter().zip(&sql.results) {
        if expected.native_type.is_some_and(|native| native != found.native_type()) {
            let name = found.name();
            return Err(DbError::Source(SourceError::Incompatible {
                message: format!(
                    "column `{name}` has another type in the database than when this server read it"
                ),
                detail: format!("`{name}` is {} now", found.type_name()),
            }));
        }
    }
    Ok(())
}

pub(crate) fn malformed(detail: &str) -> DbError {
    DbError::Source(SourceError::Incompatible {
        message: "the database sent a row that cannot be read".into(),
        detail: detail.into(),
    })
}

/// Receives the values of a row. An error ends the statement.
pub(crate) type OnRow<'a> = dyn FnMut(&[ValueRef<'_>]) -> Result<RowFlow, SourceError> + 'a;

/// One connection, used by one call at a time.
pub(crate) trait Connection: Send {
    /// Runs one statement and passes its rows to `row` until that stops. Returns the number of changed rows. Outside a
    /// transaction the statement only reads.
    fn run(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError>;

    /// Prepares a statement without running it, and forgets it.
    fn describe(&mut self, sql: &str, writes: bool, limits: &CallLimits<'_>) -> Result<Description, DbError>;

    /// Begins a transaction that only reads, as a caller if there is one.
    fn begin_read(
        &mut self,
        identity: Option<&SourceIdentity>,
        limits: &CallLimits<'_>,
    ) -> Result<(), DbError>;

    /// Begins a transaction that may write, as a caller if there is one.
    fn begin(&mut self, identity: Option<&SourceIdentity>, limits: &CallLimits<'_>) -> Result<(), DbError>;

    /// Runs a statement in a transaction that only reads, as a caller if there is one, and rolls it back.
    fn read_in_transaction(
        &mut self,
        identity: Option<&SourceIdentity>,
        sql: &Sql,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), DbError>;

    /// Changes the role until the transaction ends; `None` is the role of the connection.
    fn set_role(&mut self, role: Option<&str>, limits: &CallLimits<'_>) -> Result<(), DbError>;

    fn commit(&mut self, limits: &CallLimits<'_>) -> Result<(), DbError>;

    fn roll_back(&mut self) -> Result<(), DbError>;

    /// Runs a statement that creates a table, in a transaction of its own.
    fn define(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError>;

    /// Reads the catalog.
    fn read_schema(
        &mut self,
        schemas: &[String],
        callers: CallerMode,
        limits: &CallLimits<'_>,
    ) -> Result<Schema, DbError>;

    /// Asks the other side whether it is still there. A connection that does not answer is not usable any more.
    fn answers(&mut self, limits: &CallLimits<'_>) -> bool;

    /// Whether another call may use it.
    fn is_usable(&self) -> bool;

    fn is_in_transaction(&self) -> bool;
}

/// Reads in a transaction with a round trip for each of its parts.
pub(crate) fn read_step_by_step(
    connection: &mut dyn Connection,
    identity: Option<&SourceIdentity>,
    sql: &Sql,
    limits: &CallLimits<'_>,
    row: &mut OnRow<'_>,
) -> Result<(), DbError> {
    connection.begin_read(identity, limits)?;
    connection.run(sql, limits, row)?;
    // A connection that cannot roll back is not used again; the rows were read.
    let _ = connection.roll_back();
    Ok(())
}

/// Opens connections.
pub(crate) trait Engine: Send + Sync {
    /// Fails with [`SourceError::Cancelled`] or [`SourceError::Timeout`] if the call ends first, and only then.
    fn connect(&self, limits: &CallLimits<'_>) -> Result<Box<dyn Connection>, SourceError>;

    /// Reads the one row that a statement returns, without occupying a thread; `None` if the engine cannot.
    fn read_quickly(&self, _sql: Sql, _columns: Arc<[Column]>) -> Option<QuickReadFuture> {
        None
    }
}
