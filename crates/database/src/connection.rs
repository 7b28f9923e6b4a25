//! What one connection to a database does, whatever the engine.

use contract::ValueRef;
use contract::source::{RowFlow, SourceError};

use crate::call::CallLimits;
use crate::column::Storage;
use crate::error::DbError;
use crate::schema::Schema;

/// A statement with its values.
#[derive(Debug, Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) params: Vec<Param>,
    /// What its result has to be.
    pub(crate) results: Vec<ResultColumn>,
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

/// Receives the values of a row. An error ends the statement.
pub(crate) type OnRow<'a> = dyn FnMut(&[ValueRef<'_>]) -> Result<RowFlow, SourceError> + 'a;

/// One connection, used by one call at a time.
pub(crate) trait Connection: Send {
    /// Runs one statement and passes its rows to `row` until that stops. Returns the number of changed rows. Outside a
    /// transaction the statement only reads.
    fn run(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError>;

    /// Begins a transaction that may write.
    fn begin(&mut self, limits: &CallLimits<'_>) -> Result<(), DbError>;

    fn commit(&mut self, limits: &CallLimits<'_>) -> Result<(), DbError>;

    fn roll_back(&mut self) -> Result<(), DbError>;

    /// Runs a statement that creates a table, in a transaction of its own.
    fn define(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError>;

    /// Reads the catalog.
    fn read_schema(&mut self, schemas: &[String], limits: &CallLimits<'_>) -> Result<Schema, DbError>;

    /// Whether another call may use it.
    fn is_usable(&self) -> bool;

    fn is_in_transaction(&self) -> bool;
}

/// Opens connections.
pub(crate) trait Engine: Send + Sync {
    fn connect(&self) -> Result<Box<dyn Connection>, SourceError>;
}
