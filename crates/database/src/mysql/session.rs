//! One connection to MySQL or MariaDB.

use std::borrow::Cow;
use std::time::Duration;

use contract::ValueRef;
use contract::source::{RowFlow, SourceError, SourceIdentity};
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Opts, Params, Row, Value};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::decode::decode;
use super::introspect;
use super::server_error::db_error;
use crate::call::CallLimits;
use crate::column::Storage;
use crate::connection::{
    Connection, Description, FoundColumn, OnRow, Param, Sql, check_types, malformed, read_step_by_step,
};
use crate::decoded::Cell;
use crate::error::{Cause, DbError};
use crate::options::CallerMode;
use crate::schema::{ColumnInfo, Schema};

/// How long the database has to stop a statement.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// After a caller needs no more rows, so many are read and dropped before the statement is stopped.
const DRAINED_ROWS_MAX: usize = 256;

pub(super) struct MyConnection {
    /// Runs on the thread of a call, and only while there is one.
    runtime: Option<Runtime>,
    /// `None` once it is broken.
    conn: Option<Conn>,
    opts: Opts,
    is_in_transaction: bool,
}

impl MyConnection {
    pub(super) fn new(runtime: Runtime, conn: Conn, opts: Opts) -> Self {
        Self { runtime: Some(runtime), conn: Some(conn), opts, is_in_transaction: false }
    }

    /// Waits for work. When the call should stop, so does its statement in the database.
    fn wait<T>(
        &mut self,
        limits: &CallLimits<'_>,
        work: impl AsyncFnOnce(&mut Conn) -> Result<T, WorkError>,
    ) -> Result<T, DbError> {
        let Some(mut conn) = self.conn.take() else {
            return Err(DbError::Lost { detail: "it was closed".into() });
        };
        let (id, opts) = (conn.id(), self.opts.clone());
        let runtime = self.runtime.as_ref().expect("present until it is dropped");
        let (result, is_usable) = runtime.block_on(async {
            let mut work = Box::pin(work(&mut conn));
            let reason = tokio::select! {
                biased;
                done = &mut work => return (done.map_err(WorkError::into_db_error), true),
                reason = limits.stopped() => reason,
            };
            let is_stopped = async {
                kill(opts, id).await;
                let _ = work.await;
            };
            let is_stopped = timeout(CANCEL_MAX, is_stopped).await.is_ok();
            (Err(DbError::Source(reason)), is_stopped)
        });
        if is_usable && !matches!(result, Err(DbError::Lost { .. })) {
            self.conn = Some(conn);
        } else {
            // Not disconnected politely: that would wait for the server.
            let _entered = runtime.enter();
            drop(conn);
        }
        result
    }

    fn simple(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.wait(limits, async |conn| Ok(conn.query_drop(sql).await?))
    }

    fn execute(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError> {
        let params: Vec<Value> = sql.params.iter().map(value).collect();
        let params = if params.is_empty() { Params::Empty } else { Params::Positional(params) };
        let opts = self.opts.clone();
        self.wait(limits, async |conn| {
            let id = conn.id();
            let mut result = conn.exec_iter(&*sql.text, params).await?;
            check_types(sql, result.columns_ref())?;
            let mut drained: Option<usize> = None;
            loop {
                let found = match result.next().await {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    // The statement that we stopped ourselves is at its end.
                    Err(_) if drained.is_some_and(|count| count >= DRAINED_ROWS_MAX) => return Ok(0),
                    Err(error) => return Err(error.into()),
                };
                match &mut drained {
                    None if pass_row(sql, &found, row)? == RowFlow::Stop => drained = Some(0),
                    None => {}
                    Some(count) => {
                        *count += 1;
                        if *count == DRAINED_ROWS_MAX {
                            kill(opts.clone(), id).await;
                        }
                    }
                }
            }
            Ok(result.affected_rows())
        })
    }
}

/// Why work on a connection ended.
enum WorkError {
    Driver(mysql_async::Error),
    Db(DbError),
}

impl WorkError {
    fn into_db_error(self) -> DbError {
        match self {
            Self::Driver(error) => db_error(&error),
            Self::Db(error) => error,
        }
    }
}

impl From<mysql_async::Error> for WorkError {
    fn from(error: mysql_async::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<DbError> for WorkError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// Asks the server to stop what a connection runs.
async fn kill(opts: Opts, id: u32) {
    let asked = async {
        let mut conn = Conn::new(opts).await?;
        conn.query_drop(format!("KILL QUERY {id}")).await?;
        conn.disconnect().await
    };
    if let Err(error) = asked.await {
        tracing::debug!(%error, "a statement could not be cancelled");
    }
}

fn value(param: &Param) -> Value {
    match param {
        Param::Integer(n) => Value::Int(*n),
        Param::Real(n) => Value::Double(*n),
        Param::Text(text) => Value::Bytes(text.as_bytes().to_vec()),
        Param::Bytes(bytes) => Value::Bytes(bytes.clone()),
        // This dialect never binds the others.
        Param::Integers(_) | Param::Texts(_) | Param::Literal(_) => Value::NULL,
        Param::Null => Value::NULL,
    }
}

fn pass_row(sql: &Sql, found: &Row, row: &mut OnRow<'_>) -> Result<RowFlow, DbError> {
    let mut cells = Vec::with_capacity(sql.results.len());
    for (at, column) in sql.results.iter().enumerate() {
        let sent = found.as_ref(at).ok_or_else(|| malformed("a row is too short"))?;
        cells.push(decode(column.storage, sent).map_err(|_| malformed("a value is not of its type"))?);
    }
    let values: Vec<ValueRef<'_>> = cells.iter().map(Cell::as_value_ref).collect();
    Ok(row(&values)?)
}

/// The type of a column as one number: the type, the digits of its fraction, and whether it has a sign and is text.
pub(super) fn native_type(column: &Column) -> u32 {
    let is_unsigned = u32::from(column.flags().contains(ColumnFlags::UNSIGNED_FLAG));
    let is_binary = u32::from(column.character_set() == BINARY_CHARACTER_SET);
    u32::from(column.column_type() as u8)
        | u32::from(column.decimals()) << 8
        | is_unsigned << 16
        | is_binary << 17
}

/// A column of a result that is not a table's column.
fn statement_column(column: &Column) -> ColumnInfo {
    let is_unsigned = column.flags().contains(ColumnFlags::UNSIGNED_FLAG);
    let is_binary = column.character_set() == BINARY_CHARACTER_SET;
    let kind = column.column_type();
    let storage = match kind {
        ColumnType::MYSQL_TYPE_LONGLONG if is_unsigned => Storage::Unsigned,
        ColumnType::MYSQL_TYPE_TINY
        | ColumnType::MYSQL_TYPE_SHORT
        | ColumnType::MYSQL_TYPE_INT24
        | ColumnType::MYSQL_TYPE_LONG
        | ColumnType::MYSQL_TYPE_LONGLONG
        | ColumnType::MYSQL_TYPE_YEAR => Storage::Integer,
        ColumnType::MYSQL_TYPE_FLOAT => Storage::Float32,
        ColumnType::MYSQL_TYPE_DOUBLE => Storage::Float64,
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => Storage::Decimal,
        ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE => Storage::Date,
        ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_DATETIME2 => Storage::LocalTimestamp,
        ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2 => Storage::Timestamp,
        ColumnType::MYSQL_TYPE_TIME | ColumnType::MYSQL_TYPE_TIME2 => Storage::Printed,
        ColumnType::MYSQL_TYPE_BIT if column.column_length() == 1 => Storage::Boolean,
        ColumnType::MYSQL_TYPE_JSON => Storage::Json,
        ColumnType::MYSQL_TYPE_BIT | ColumnType::MYSQL_TYPE_GEOMETRY => Storage::Bytes,
        ColumnType::MYSQL_TYPE_NULL => Storage::Text,
        _ if is_binary => Storage::Bytes,
        _ => Storage::Text,
    };
    // Types depend on the arguments, so that values are checked when they are read.
    ColumnInfo {
        type_name: format!("{kind:?}"),
        is_wide: kind == ColumnType::MYSQL_TYPE_LONGLONG,
        ..ColumnInfo::computed(&column.name_str(), storage)
    }
}

const BINARY_CHARACTER_SET: u16 = 63;

impl FoundColumn for Column {
    fn name(&self) -> Cow<'_, str> {
        self.name_str()
    }

    fn native_type(&self) -> u32 {
        native_type(self)
    }

    fn type_name(&self) -> String {
        format!("{:?}", self.column_type())
    }
}

/// Only PostgreSQL knows callers.
fn check_no_caller(identity: Option<&SourceIdentity>) -> Result<(), DbError> {
    identity.map_or(Ok(()), |_| Err(no_callers()))
}

fn no_callers() -> DbError {
    DbError::Source(SourceError::Refused {
        message: "this database cannot act as its callers".into(),
        detail: "an identity for MySQL or MariaDB".into(),
    })
}

impl Connection for MyConnection {
    fn run(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError> {
        match self.execute(sql, limits, row) {
            Err(DbError::Refused(refusal))
                if refusal.cause == Cause::StalePlan && !self.is_in_transaction =>
            {
                self.execute(sql, limits, row)
            }
            result => result,
        }
    }

    /// The server refuses to prepare a change where it would refuse to make it.
    fn describe(&mut self, sql: &str, writes: bool, limits: &CallLimits<'_>) -> Result<Description, DbError> {
        if writes {
            self.begin(None, limits)?
        } else {
            self.begin_read(None, limits)?
        };
        let columns = self.wait(limits, async |conn| {
            let statement = conn.prep(sql).await?;
            let columns = statement.columns().iter().map(statement_column).collect();
            conn.close(statement).await?;
            Ok(columns)
        });
        if self.is_usable() {
            self.roll_back()?;
        }
        Ok(Description { parameters: Vec::new(), columns: columns? })
    }

    fn begin_read(
        &mut self,
        identity: Option<&SourceIdentity>,
        limits: &CallLimits<'_>,
    ) -> Result<(), DbError> {
        check_no_caller(identity)?;
        self.simple("START TRANSACTION READ ONLY", limits)?;
        self.is_in_transaction = true;
        Ok(())
    }

    fn read_in_transaction(
        &mut self,
        identity: Option<&SourceIdentity>,
        sql: &Sql,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), DbError> {
        read_step_by_step(self, identity, sql, limits, row)
    }

    fn set_role(&mut self, _role: Option<&str>, _limits: &CallLimits<'_>) -> Result<(), DbError> {
        Err(no_callers())
    }

    fn begin(&mut self, identity: Option<&SourceIdentity>, limits: &CallLimits<'_>) -> Result<(), DbError> {
        check_no_caller(identity)?;
        self.simple("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", limits)?;
        self.simple("START TRANSACTION READ WRITE", limits)?;
        self.is_in_transaction = true;
        Ok(())
    }

    fn commit(&mut self, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.is_in_transaction = false;
        let committed = self.simple("COMMIT", limits);
        if committed.is_err() {
            self.conn = None;
        }
        committed
    }

    fn roll_back(&mut self) -> Result<(), DbError> {
        self.is_in_transaction = false;
        let rolled_back = self.simple("ROLLBACK", &CallLimits::new(None, CANCEL_MAX));
        if rolled_back.is_err() {
            self.conn = None;
        }
        rolled_back
    }

    /// Defining a table ends the transaction, so that only the session can allow it.
    fn define(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError> {
        let defined =
            self.simple("SET SESSION TRANSACTION READ WRITE", limits).and_then(|()| self.simple(sql, limits));
        // Whatever happened, and however late it is: a session that could write is not used again.
        let is_restored =
            self.simple("SET SESSION TRANSACTION READ ONLY", &CallLimits::new(None, CANCEL_MAX));
        if is_restored.is_err() {
            self.conn = None;
        }
        defined
    }

    fn read_schema(
        &mut self,
        _schemas: &[String],
        _callers: CallerMode,
        limits: &CallLimits<'_>,
    ) -> Result<Schema, DbError> {
        self.wait(limits, async |conn| Ok(introspect::read(conn).await?))
    }

    fn answers(&mut self, limits: &CallLimits<'_>) -> bool {
        let answered = self.wait(limits, async |conn| Ok(conn.ping().await?));
        if answered.is_err() {
            self.conn = None;
        }
        answered.is_ok()
    }

    fn is_usable(&self) -> bool {
        self.conn.is_some()
    }

    fn is_in_transaction(&self) -> bool {
        self.is_in_transaction
    }
}

/// Without waiting: it may be dropped on a thread that must not block.
impl Drop for MyConnection {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        {
            // The driver wants a runtime to close in.
            let _entered = runtime.enter();
            self.conn = None;
        }
        runtime.shutdown_background();
    }
}
