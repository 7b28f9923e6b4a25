//! One connection to PostgreSQL.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use contract::ValueRef;
use contract::source::{RowFlow, SourceError, SourceIdentity};
use futures_util::TryStreamExt;
use futures_util::future::maybe_done;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type};
use tokio_postgres::{Client, Column, NoTls, Row, RowStream, Statement};

use super::decode::decode;
use super::introspect;
use super::server_error::db_error;
use super::tls::MakeTls;
use crate::call::CallLimits;
use crate::column::Storage;
use crate::connection::{
    Connection, Description, FoundColumn, OnRow, Param, ResultColumn, Sql, check_types, malformed,
    read_step_by_step,
};
use crate::decoded::Cell;
use crate::error::{Cause, DbError};
use crate::options::CallerMode;
use crate::schema::{ColumnInfo, Schema};

/// How long the database has to stop a statement.
const CANCEL_MAX: Duration = Duration::from_secs(2);
/// Prepared statements of one connection; beyond this number all are forgotten.
const STATEMENTS_MAX: usize = 256;
/// After a caller needs no more rows, so many are read and dropped before the statement is stopped.
const DRAINED_ROWS_MAX: usize = 256;

/// What PostgreSQL calls the role of the connection.
const OWN_ROLE: &str = "none";

#[derive(Clone)]
pub(super) enum SessionTls {
    Off,
    On(MakeTls),
}

pub(super) struct PgConnection {
    /// Runs on the thread of a call, and only while there is one.
    runtime: Option<Runtime>,
    client: Client,
    tls: SessionTls,
    statements: HashMap<String, Statement>,
    is_broken: bool,
    is_in_transaction: bool,
}

impl PgConnection {
    pub(super) fn new(runtime: Runtime, client: Client, tls: SessionTls) -> Self {
        Self {
            runtime: Some(runtime),
            client,
            tls,
            statements: HashMap::new(),
            is_broken: false,
            is_in_transaction: false,
        }
    }

    /// Waits for work. When the call should stop, so does its statement in the database.
    fn wait<T>(
        &mut self,
        limits: &CallLimits<'_>,
        work: impl AsyncFnOnce(&Client) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let Self { runtime, client, tls, .. } = self;
        let runtime = runtime.as_ref().expect("present until it is dropped");
        let (result, is_stuck) = runtime.block_on(async {
            let mut work = pin!(work(client));
            let reason = tokio::select! {
                biased;
                done = &mut work => return (done, false),
                reason = limits.stopped() => reason,
            };
            let is_stopped = async {
                cancel(client, tls).await;
                let _ = work.await;
            };
            let is_stuck = timeout(CANCEL_MAX, is_stopped).await.is_err();
            (Err(DbError::Source(reason)), is_stuck)
        });
        let is_lost = matches!(result, Err(DbError::Lost { .. }));
        self.is_broken |= is_stuck || is_lost || self.client.is_closed();
        result
    }

    fn simple(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.wait(limits, async |client| client.batch_execute(sql).await.map_err(|error| db_error(&error)))
    }

    fn prepare(&mut self, sql: &Sql, limits: &CallLimits<'_>) -> Result<Statement, DbError> {
        if let Some(statement) = self.statements.get(&sql.text) {
            return Ok(statement.clone());
        }
        let types = param_types(sql);
        let statement = self.wait(limits, async |client| {
            client.prepare_typed(&sql.text, &types).await.map_err(|error| db_error(&error))
        })?;
        check_types(sql, statement.columns())?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.text.clone(), statement.clone());
        Ok(statement)
    }

    /// Sets the role and the settings of a caller until the transaction ends.
    fn become_caller(&mut self, identity: &SourceIdentity, limits: &CallLimits<'_>) -> Result<(), DbError> {
        let became = self.execute(&caller_sql(identity), limits, &mut |_| Ok(RowFlow::Continue));
        became.map(drop).map_err(not_accepted)
    }

    /// Runs a statement in a transaction of its own with one round trip: BEGIN, the caller, the statement and ROLLBACK are sent
    /// together, as both statements have been prepared here.
    ///
    /// The database runs them in this order. What fails in a transaction fails all that follows in it, so without its caller the
    /// statement does not run. If there is no transaction, what the caller's statement sets is gone before the next
    /// one runs, as the role of the connection and still without a right to write: its rows are not looked at, because no row
    /// is read before BEGIN and the caller have succeeded.
    fn read_at_once(
        &mut self,
        sql: &Sql,
        statement: &Statement,
        caller: Option<&(Sql, Statement)>,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), DbError> {
        let tls = self.tls.clone();
        let mut is_rolled_back = false;
        let ran = self.wait(limits, async |client| {
            let simple = async |sql: &str| client.batch_execute(sql).await.map_err(|error| db_error(&error));
            let become_caller = async {
                let Some((sql, statement)) = caller else { return Ok(()) };
                let rows = client.query_raw(statement, bound(sql)).await;
                let rows = rows.map_err(|error| db_error(&error))?;
                let set = rows.try_for_each(|_| async { Ok(()) }).await;
                set.map_err(|error| db_error(&error))
            };
            let mut begun = pin!(maybe_done(simple("BEGIN READ ONLY")));
            let mut became = pin!(maybe_done(become_caller));
            let mut rows = Box::pin(maybe_done(client.query_raw(statement, bound(sql))));
            let mut ended = pin!(maybe_done(simple("ROLLBACK")));
            // Each sends its request when it is first polled.
            poll_fn(|cx| {
                let all = [
                    begun.as_mut().poll(cx),
                    became.as_mut().poll(cx),
                    rows.as_mut().poll(cx),
                    ended.as_mut().poll(cx),
                ];
                let _ = all;
                Poll::Ready(())
            })
            .await;
            let read = async move {
                // Both to their ends first: what follows would wait for what is left of them, too.
                begun.as_mut().await;
                became.as_mut().await;
                begun.take_output().unwrap_or(Ok(()))?;
                became.take_output().unwrap_or(Ok(())).map_err(not_accepted)?;
                rows.as_mut().await;
                match rows.as_mut().take_output() {
                    Some(Ok(rows)) => pass_rows(client, &tls, sql, rows, row).await.map(drop),
                    Some(Err(error)) => Err(db_error(&error)),
                    None => Ok(()),
                }
            };
            // Whatever is left of the rows is dropped here: what follows would wait for it.
            let read = read.await;
            ended.as_mut().await;
            is_rolled_back = matches!(ended.take_output(), Some(Ok(())));
            read
        });
        self.is_broken |= !is_rolled_back;
        ran
    }

    fn execute(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError> {
        let statement = self.prepare(sql, limits)?;
        let tls = self.tls.clone();
        self.wait(limits, async |client| {
            let rows = client.query_raw(&statement, bound(sql)).await.map_err(|error| db_error(&error))?;
            pass_rows(client, &tls, sql, rows, row).await
        })
    }
}

fn bound(sql: &Sql) -> impl ExactSizeIterator<Item = &(dyn ToSql + Sync)> {
    sql.params.iter().map(|param| param as &(dyn ToSql + Sync))
}

/// Passes rows on until the caller needs no more. Returns how many the statement has changed.
async fn pass_rows(
    client: &Client,
    tls: &SessionTls,
    sql: &Sql,
    rows: RowStream,
    row: &mut OnRow<'_>,
) -> Result<u64, DbError> {
    let mut rows = pin!(rows);
    let mut drained = None;
    while let Some(found) = rows.try_next().await.or_else(|error| after_cancel(&error, drained))? {
        if let Some(count) = &mut drained {
            *count += 1;
            if *count == DRAINED_ROWS_MAX {
                cancel(client, tls).await;
            }
            continue;
        }
        match pass_row(sql, &found, row)? {
            RowFlow::Continue => {}
            RowFlow::Stop => drained = Some(0),
        }
    }
    Ok(rows.rows_affected().unwrap_or(0))
}

/// Sets the role and the settings of a caller until the transaction ends. All of them are bound, none is spliced. A role that
/// row-level security does not apply to becomes one that does not exist, whatever the claims say: that ends the transaction.
fn caller_sql(identity: &SourceIdentity) -> Sql {
    let mut text = "SELECT pg_catalog.set_config('role', CASE WHEN \
                    (SELECT r.rolsuper OR r.rolbypassrls FROM pg_catalog.pg_roles r WHERE r.rolname = $1) \
                    THEN $1 || ', to which row-level security does not apply,' ELSE $1 END, true)"
        .to_owned();
    let mut params = vec![Param::Text(identity.role.as_deref().unwrap_or(OWN_ROLE).into())];
    for (name, value) in &identity.settings {
        let at = params.len();
        text += &format!(", pg_catalog.set_config(${}, ${}, true)", at + 1, at + 2);
        params.extend([Param::Text(name.clone()), Param::Text(value.clone())]);
    }
    let results = vec![ResultColumn::computed(Storage::Text); 1 + identity.settings.len()];
    Sql { text, params, results, names: Vec::new() }
}

/// The database did not let a transaction be the caller's.
fn not_accepted(error: DbError) -> DbError {
    match error {
        DbError::Refused(refusal) if refusal.cause != Cause::StalePlan => {
            DbError::Source(SourceError::Refused {
                message: "the database does not accept your role".into(),
                detail: refusal.detail,
            })
        }
        error => error,
    }
}

/// The statement that we stopped ourselves is at its end.
fn after_cancel(error: &tokio_postgres::Error, drained: Option<usize>) -> Result<Option<Row>, DbError> {
    match db_error(error) {
        DbError::Refused(refusal)
            if refusal.cause == Cause::Timeout && drained.is_some_and(|count| count >= DRAINED_ROWS_MAX) =>
        {
            Ok(None)
        }
        error => Err(error),
    }
}

/// Asks the database to stop what this connection runs. If it cannot be asked, the caller stops waiting anyway.
pub(super) async fn cancel(client: &Client, tls: &SessionTls) {
    let token = client.cancel_token();
    let asked: Result<(), tokio_postgres::Error> = match tls {
        SessionTls::Off => token.cancel_query(NoTls).await,
        SessionTls::On(tls) => token.cancel_query(tls.clone()).await,
    };
    if let Err(error) = asked {
        tracing::debug!(%error, "a statement could not be cancelled");
    }
}

fn pass_row(sql: &Sql, found: &Row, row: &mut OnRow<'_>) -> Result<RowFlow, DbError> {
    let cells = row_cells(sql, found)?;
    let values: Vec<ValueRef<'_>> = cells.iter().map(Cell::as_value_ref).collect();
    Ok(row(&values)?)
}

pub(super) fn row_cells<'r>(sql: &Sql, found: &'r Row) -> Result<Vec<Cell<'r>>, DbError> {
    let mut cells = Vec::with_capacity(sql.results.len());
    for (at, column) in sql.results.iter().enumerate() {
        let bytes: Option<Raw<'_>> = found.try_get(at).map_err(|error| malformed(&error.to_string()))?;
        cells.push(match bytes {
            None => Cell::Borrowed(ValueRef::Null),
            Some(Raw(bytes)) => {
                decode(column.storage, bytes).map_err(|_| malformed("a value has the wrong length"))?
            }
        });
    }
    Ok(cells)
}

impl FoundColumn for Column {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }

    fn native_type(&self) -> u32 {
        self.type_().oid()
    }

    fn type_name(&self) -> String {
        self.type_().to_string()
    }
}

impl Connection for PgConnection {
    fn run(&mut self, sql: &Sql, limits: &CallLimits<'_>, row: &mut OnRow<'_>) -> Result<u64, DbError> {
        match self.execute(sql, limits, row) {
            // The table has changed since the statement was prepared; nothing has been read. A transaction is lost by then, and
            // whoever began it has to begin again.
            Err(DbError::Refused(refusal)) if refusal.cause == Cause::StalePlan => {
                self.statements.clear();
                match self.is_in_transaction {
                    true => Err(DbError::Refused(refusal)),
                    false => self.execute(sql, limits, row),
                }
            }
            result => result,
        }
    }

    fn describe(
        &mut self,
        sql: &str,
        _writes: bool,
        limits: &CallLimits<'_>,
    ) -> Result<Description, DbError> {
        let statement =
            self.wait(limits, async |client| client.prepare(sql).await.map_err(|error| db_error(&error)))?;
        Ok(Description {
            parameters: statement.params().iter().map(statement_storage).collect(),
            columns: statement.columns().iter().map(statement_column).collect(),
        })
    }

    fn begin_read(
        &mut self,
        identity: Option<&SourceIdentity>,
        limits: &CallLimits<'_>,
    ) -> Result<(), DbError> {
        self.simple("BEGIN READ ONLY", limits)?;
        self.is_in_transaction = true;
        identity.map_or(Ok(()), |identity| self.become_caller(identity, limits))
    }

    fn read_in_transaction(
        &mut self,
        identity: Option<&SourceIdentity>,
        sql: &Sql,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), DbError> {
        let caller = identity.map(caller_sql);
        let prepared = |sql: &Sql| self.statements.get(&sql.text).cloned();
        let caller = caller.map(|sql| prepared(&sql).map(|statement| (sql, statement)));
        // A statement is prepared as the caller: its tables may be visible to nobody else.
        let (Some(statement), false) = (prepared(sql), matches!(caller, Some(None))) else {
            return read_step_by_step(self, identity, sql, limits, row);
        };
        let read = self.read_at_once(sql, &statement, caller.flatten().as_ref(), limits, row);
        if matches!(&read, Err(DbError::Refused(refusal)) if refusal.cause == Cause::StalePlan) {
            self.statements.clear();
        }
        read
    }

    fn set_role(&mut self, role: Option<&str>, limits: &CallLimits<'_>) -> Result<(), DbError> {
        let sql = Sql {
            text: "SELECT pg_catalog.set_config('role', $1, true)".into(),
            params: vec![Param::Text(role.unwrap_or(OWN_ROLE).into())],
            results: vec![ResultColumn::computed(Storage::Text)],
            names: Vec::new(),
        };
        self.execute(&sql, limits, &mut |_| Ok(RowFlow::Continue)).map(drop)
    }

    fn begin(&mut self, identity: Option<&SourceIdentity>, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.simple(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '5s'",
            limits,
        )?;
        self.is_in_transaction = true;
        identity.map_or(Ok(()), |identity| self.become_caller(identity, limits))
    }

    fn commit(&mut self, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.is_in_transaction = false;
        let committed = self.simple("COMMIT", limits);
        self.is_broken |= committed.is_err();
        committed
    }

    fn roll_back(&mut self) -> Result<(), DbError> {
        self.is_in_transaction = false;
        let rolled_back = self.simple("ROLLBACK", &CallLimits::new(None, CANCEL_MAX));
        self.is_broken |= rolled_back.is_err();
        rolled_back
    }

    fn define(&mut self, sql: &str, limits: &CallLimits<'_>) -> Result<(), DbError> {
        self.begin(None, limits)?;
        self.simple(sql, limits)?;
        self.commit(limits)
    }

    fn read_schema(
        &mut self,
        schemas: &[String],
        callers: CallerMode,
        limits: &CallLimits<'_>,
    ) -> Result<Schema, DbError> {
        self.wait(limits, async |client| {
            introspect::read(client, schemas, callers).await.map_err(|error| db_error(&error))
        })
    }

    fn answers(&mut self, limits: &CallLimits<'_>) -> bool {
        let answered = self.simple("", limits);
        self.is_broken |= answered.is_err();
        answered.is_ok()
    }

    fn is_usable(&self) -> bool {
        !self.is_broken && !self.client.is_closed()
    }

    fn is_in_transaction(&self) -> bool {
        self.is_in_transaction
    }
}

/// Without waiting: it may be dropped on a thread that must not block.
impl Drop for PgConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The bytes of a value.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Those that are known here: an author's statement has parameters whose types the database knows.
pub(super) fn param_types(sql: &Sql) -> Vec<Type> {
    sql.params.iter().map_while(param_type).collect()
}

/// `None` for what the database decides.
fn param_type(param: &Param) -> Option<Type> {
    Some(match param {
        Param::Text(_) => Type::TEXT,
        Param::Integer(_) => Type::INT8,
        Param::Real(_) => Type::FLOAT8,
        Param::Bytes(_) => Type::BYTEA,
        Param::Integers(_) => Type::INT8_ARRAY,
        Param::Texts(_) => Type::TEXT_ARRAY,
        Param::Literal(_) | Param::Null => return None,
    })
}

/// How values of a type are read that are not those of a table's column.
fn statement_storage(kind: &Type) -> Storage {
    match (introspect::plain_storage(kind), kind.kind()) {
        (Some(storage), _) => storage,
        (None, Kind::Domain(base)) => statement_storage(base),
        (None, Kind::Array(_) | Kind::Composite(_)) => Storage::PrintedJson,
        // Their binary form is their text.
        (None, Kind::Enum(_)) => Storage::Text,
        (None, _) if matches!(kind.name(), "citext" | "name" | "xml" | "unknown") => Storage::Text,
        (None, _) => Storage::Printed,
    }
}

fn statement_column(column: &Column) -> ColumnInfo {
    let kind = column.type_();
    ColumnInfo {
        native_type: kind.oid(),
        type_name: kind.name().to_owned(),
        is_wide: *kind == Type::INT8,
        ..ColumnInfo::computed(column.name(), statement_storage(kind))
    }
}

impl ToSql for Param {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Integer(n) => n.to_sql(ty, out),
            Self::Real(n) => n.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
            Self::Integers(all) => all.to_sql(ty, out),
            Self::Texts(all) => all.to_sql(ty, out),
            Self::Literal(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Literal(_) => Format::Text,
            _ => Format::Binary,
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}
