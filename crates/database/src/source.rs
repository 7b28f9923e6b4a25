//! A database as a source of tables.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use contract::manifest::Operation;
use contract::source::{
    ColumnFacts, PreparedStatement, Reader, RowFlow, SearchFacts, Source, SourceError, SourceFacts,
    StatementError, StatementFacts, StatementShape, TableFacts, TableShape, WordIndex, WordMatching,
    WriteCapabilities, WriteSupport, Writer,
};
use contract::{DataType, ValueRef};

use crate::call::CallLimits;
use crate::column::Storage;
use crate::connection::{Engine, ResultColumn, Sql};
use crate::deferred::Deferred;
use crate::dialect::{Dialect, SqlWriter};
use crate::idempotency::{IdempotencyTable, Records};
use crate::local_records::LocalRecords;
use crate::mysql::{MySql, MySqlDialect};
use crate::options::{CallerMode, Options};
use crate::pool::Pool;
use crate::postgres::{Postgres, PostgresDialect};
use crate::read::TableReader;
use crate::schema::{ColumnInfo, Schema, TableInfo, TextIndex, TextIndexKind};
use crate::statement::{self, DatabaseStatement};
use crate::write::TableWriter;

/// How long the values of one table are looked at.
const PROFILE_MS_MAX: u64 = 2_000;
/// How long the values of all tables of a database are looked at.
const PROFILES_MS_MAX: u64 = 20_000;
/// The values of a larger table are not looked at.
const PROFILE_ROWS_MAX: u64 = 5_000_000;

const UNPROFILED_NOTE: &str =
    "looking at the values of all tables takes too long: columns of the others may have exceptions";

/// One database on a server.
pub struct Database(Arc<Inner>);

/// What readers and writers share, also those that are prepared later.
pub(crate) struct Inner {
    pool: Arc<Pool>,
    dialect: &'static dyn Dialect,
    options: Options,
    /// The catalog as it was last read.
    cached_schema: Mutex<Option<Arc<Schema>>>,
    /// Grows when the catalog was read and was another one than before.
    generation: AtomicU64,
    idempotency: OnceLock<Arc<Records>>,
}

impl Database {
    /// Does not connect yet: the first read finds out if the database cannot be reached.
    pub fn postgres(options: Options) -> Result<Self, SourceError> {
        let engine = Postgres::new(&options)?;
        Ok(Self::new(Box::new(engine), &PostgresDialect, options))
    }

    /// MySQL or MariaDB. Does not connect yet.
    pub fn mysql(options: Options) -> Result<Self, SourceError> {
        let engine = MySql::new(&options)?;
        Ok(Self::new(Box::new(engine), &MySqlDialect, options))
    }

    fn new(engine: Box<dyn Engine>, dialect: &'static dyn Dialect, options: Options) -> Self {
        let pool = Arc::new(Pool::new(engine, options.connections_max, options.callers));
        Self(Arc::new(Inner {
            pool,
            dialect,
            options,
            cached_schema: Mutex::default(),
            generation: AtomicU64::new(0),
            idempotency: OnceLock::new(),
        }))
    }
}

impl Inner {
    fn call_max(&self) -> Duration {
        Duration::from_millis(self.options.call_ms_max)
    }

    fn load_schema(&self) -> Result<Arc<Schema>, SourceError> {
        let limits = CallLimits::new(None, self.call_max());
        let schema = self.pool.with_connection(&limits, |connection| {
            connection.read_schema(&self.options.schemas, self.options.callers, &limits)
        })?;
        let schema = Arc::new(schema);
        let mut cached = self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.as_ref().is_some_and(|last| !last.is_same_as(&schema)) {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        *cached = Some(Arc::clone(&schema));
        Ok(schema)
    }

    fn schema(&self) -> Result<Arc<Schema>, SourceError> {
        let cached = self.cached_schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cached.map_or_else(|| self.load_schema(), Ok)
    }

    /// The idempotency records, which all writers share.
    fn records(&self, schema: &Schema) -> Option<Arc<Records>> {
        let records = match (&schema.idempotency, &self.options.record_store) {
            (Some((name, exists)), _) => {
                Records::Table(IdempotencyTable::new(self.dialect, name.clone(), *exists))
            }
            (None, Some(store)) => Records::Local(LocalRecords::new(Arc::clone(store))),
            (None, None) => return None,
        };
        Some(Arc::clone(self.idempotency.get_or_init(|| Arc::new(records))))
    }

    /// Whether writes can have idempotency keys.
    fn has_records(&self, schema: &Schema) -> bool {
        schema.idempotency.is_some() || self.options.record_store.is_some()
    }

    /// Fails if the role could write and must not.
    fn check_role(&self, schema: &Schema) -> Result<(), SourceError> {
        let role = &schema.role;
        if self.options.callers != CallerMode::Connection && role.ignores_policies {
            let message = format!(
                "row-level security does not apply to the role `{}`, so `role_from` and `settings` would protect nothing; connect \
                 with a role that is not a superuser and does not have BYPASSRLS",
                role.name
            );
            return Err(SourceError::Incompatible { detail: message.clone(), message });
        }
        let powers: Vec<&str> = role.powers.iter().chain(&role.writes).map(String::as_str).collect();
        if !self.options.require_readonly_role || powers.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the role `{}` must only be able to read (`require_readonly_role`), but {}",
            role.name,
            powers.join(", and ")
        );
        Err(SourceError::Incompatible { detail: message.clone(), message })
    }

    /// With settings only, callers have the role of the connection: every table whose rows no policy restricts is the same for all.
    fn unprotected_tables(&self, schema: &Schema) -> Option<String> {
        if self.options.callers != CallerMode::Settings {
            return None;
        }
        let open = schema.tables.iter().filter(|table| !table.is_view && !table.has_policies);
        let names: Vec<String> = open.map(|table| format!("`{}`", table.name)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "row-level security does not restrict the rows of {} for the role `{}`",
                names.join(", "),
                schema.role.name
            )
        })
    }

    fn table_facts(&self, table: &TableInfo, has_idempotency: bool, profiled_until: Instant) -> TableFacts {
        let profile = self.profile(table, profiled_until);
        let column = |(at, info): (usize, &ColumnInfo)| match &profile {
            Some(profile) => profiled_facts(info, profile.special[at]),
            None => {
                let may_be_special = self.dialect.special_values(info).is_some();
                unprofiled_facts(info, may_be_special, table.is_in_a_key(at))
            }
        };
        let columns = table.columns.iter().enumerate().map(column).collect();
        TableFacts {
            key: table.key.clone(),
            key_is_declared: true,
            row_count: profile.map(|profile| profile.rows),
            write_support: write_support(table, has_idempotency),
            refused_operations: refused_operations(table),
            foreign_keys: table.foreign_keys.clone(),
            description: table.comment.as_deref().and_then(description),
            search: search_facts(table),
            ..TableFacts::new(&table.name, columns)
        }
    }

    /// Counts the rows and looks for values that need another type; `None` if that takes too long.
    fn profile(&self, table: &TableInfo, until: Instant) -> Option<Profile> {
        // The rows of the connection's role are not those of the callers.
        let has_callers = self.options.callers != CallerMode::Connection;
        let left = until.saturating_duration_since(Instant::now());
        if has_callers || left.is_zero() || table.row_count.is_some_and(|rows| rows > PROFILE_ROWS_MAX) {
            return None;
        }
        let mut out = SqlWriter::new(self.dialect);
        out.push("SELECT count(*)");
        let test = |info: &ColumnInfo| self.dialect.special_values(info);
        let tests: Vec<Option<String>> = table.columns.iter().map(test).collect();
        tests.iter().flatten().for_each(|test| out.push(&format!(", {test}")));
        let width = 1 + tests.iter().flatten().count();
        out.sql.results = vec![ResultColumn::computed(Storage::Integer); width];
        out.from(&table.quoted);
        let found = self.integers(&out.sql, left.min(Duration::from_millis(PROFILE_MS_MAX)))?;
        let mut found = found.into_iter();
        let rows = u64::try_from(found.next()?).ok()?;
        let special =
            tests.iter().map(|test| test.as_ref().and_then(|_| found.next()).unwrap_or(0)).collect();
        Some(Profile { rows, special })
    }

    /// The integers of the only row.
    fn integers(&self, sql: &Sql, time_max: Duration) -> Option<Vec<i64>> {
        let limits = CallLimits::new(None, time_max);
        let mut found = None;
        let read = self.pool.with_connection(&limits, |connection| {
            connection.run(sql, &limits, &mut |values| {
                let integer = |value: &ValueRef<'_>| if let ValueRef::Integer(n) = value { *n } else { 0 };
                found = Some(values.iter().map(integer).collect());
                Ok(RowFlow::Continue)
            })
        });
        if let Err(error) = read {
            tracing::debug!(?error, "the values of a table were not looked at");
        }
        found
    }
}

/// What the rows of a table have.
struct Profile {
    rows: u64,
    /// For each column what [`Dialect::special_values`] says; 0 if it has no such values.
    special: Vec<i64>,
}

fn write_support(table: &TableInfo, has_idempotency: bool) -> WriteSupport {
    if table.is_view {
        return WriteSupport::read_only("it is a view");
    }
    if !(table.may_insert || table.may_update || table.may_delete) {
        return WriteSupport::read_only("the role of the database may not write to it");
    }
    WriteSupport::Supported(write_capabilities(has_idempotency))
}

fn write_capabilities(has_idempotency: bool) -> WriteCapabilities {
    match has_idempotency {
        true => WriteCapabilities::ALL,
        false => {
            WriteCapabilities::DRY_RUN.with(WriteCapabilities::ROW_VERSIONS).with(WriteCapabilities::ROLLBACK)
        }
    }
}

fn refused_operations(table: &TableInfo) -> Vec<(Operation, String)> {
    let rights = [
        (Operation::Create, table.may_insert),
        (Operation::Update, table.may_update),
        (Operation::Delete, table.may_delete),
    ];
    let refused = rights.into_iter().filter(|(_, may)| !may);
    let reason = "the role of the database may not do this";
    refused.map(|(operation, _)| (operation, reason.to_owned())).collect()
}

fn search_facts(table: &TableInfo) -> SearchFacts {
    let index = |index: &TextIndex| WordIndex {
        columns: index.columns.clone(),
        matching: match &index.kind {
            TextIndexKind::Words => WordMatching::Beginnings,
            TextIndexKind::Vector { dictionary, .. } => {
                let name = dictionary.trim_end_matches("::regconfig").trim_matches('\'');
                WordMatching::Dictionary(name.to_owned())
            }
        },
    };
    match &table.text_indexes[..] {
        [] => SearchFacts::Scan,
        indexes => SearchFacts::Words(indexes.iter().map(index).collect()),
    }
}

/// A comment of the database as a description: not longer than an author could write it.
fn description(comment: &str) -> Option<String> {
    const CHARS_MAX: usize = 1000;
    let comment = comment.trim();
    (!comment.is_empty()).then(|| comment.chars().take(CHARS_MAX).collect())
}

/// A column whose values were looked at.
fn profiled_facts(info: &ColumnInfo, special: i64) -> ColumnFacts {
    let natural = info.storage.data_types()[0];
    let (data_type, mixed) = match (info.storage, special) {
        (Storage::Integer, 0) if info.is_boolean => (DataType::Boolean, false),
        (Storage::Integer, 1..) if info.is_wide => (DataType::Int64, false),
        (Storage::Integer, _) | (Storage::Unsigned, 0) => (DataType::Integer, false),
        (Storage::Unsigned, 1) => (DataType::Int64, false),
        (Storage::Unsigned, _) => (DataType::Decimal, false),
        (_, special) => (natural, special > 0),
    };
    with_type(info, data_type, mixed)
}

/// A column whose values were not looked at has whatever it could have.
fn unprofiled_facts(info: &ColumnInfo, may_be_special: bool, is_in_a_key: bool) -> ColumnFacts {
    let (data_type, mixed) = match info.storage {
        Storage::Integer if info.is_wide => (DataType::Int64, false),
        Storage::Integer => (DataType::Integer, false),
        // Numbers of rows are counted up from 1.
        Storage::Unsigned if is_in_a_key => (DataType::Int64, false),
        storage => (storage.data_types()[0], may_be_special && storage != Storage::Unsigned),
    };
    with_type(info, data_type, mixed)
}

fn with_type(info: &ColumnInfo, data_type: DataType, mixed: bool) -> ColumnFacts {
    ColumnFacts {
        nullable: info.nullable,
        mixed,
        distinct_values: info.labels.clone(),
        has_default: info.has_default,
        read_only_reason: info.read_only_reason.clone(),
        description: info.comment.as_deref().and_then(description),
        ..ColumnFacts::new(&info.name, data_type)
    }
}

/// Runs work on a thread that may block: sources are also opened on threads that drive asynchronous tasks, where the runtime of a
/// connection must not run.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match std::thread::scope(|scope| scope.spawn(work).join()) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Source for Database {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        on_own_thread(|| self.0.facts())
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        Ok(match on_own_thread(|| self.0.table_reader(shape)) {
            Err(SourceError::Unavailable { .. }) => {
                let shape = shape.clone();
                Arc::new(Deferred::new(&self.0, move |database| database.table_reader(&shape)))
            }
            reader => Arc::new(reader?),
        })
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(match on_own_thread(|| self.0.table_writer(shape)) {
            Err(SourceError::Unavailable { .. }) => {
                let shape = shape.clone();
                Arc::new(Deferred::new(&self.0, move |database| database.table_writer(&shape)))
            }
            writer => Arc::new(writer?),
        })
    }

    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        on_own_thread(|| self.0.describe_statement(sql))
    }

    fn prepare(&self, shape: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        Ok(match on_own_thread(|| self.0.statement(shape)) {
            Err(SourceError::Unavailable { .. }) => {
                let shape = shape.clone();
                Arc::new(Deferred::new(&self.0, move |database| database.statement(&shape)))
            }
            statement => Arc::new(statement?),
        })
    }

    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }

    fn take_suspicion(&self) -> bool {
        self.0.pool.take_suspicion()
    }
}

impl Inner {
    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        let unreachable =
            |error: SourceError| StatementError { message: error.to_string(), help: None, span: None };
        let schema = self.schema().map_err(unreachable)?;
        let limits = CallLimits::new(None, self.call_max());
        let capabilities = write_capabilities(self.has_records(&schema));
        statement::describe(&self.pool, self.dialect, sql, &limits, capabilities)
    }

    fn statement(&self, shape: &StatementShape) -> Result<DatabaseStatement, SourceError> {
        let idempotency = self.records(&*self.schema()?);
        DatabaseStatement::new(&self.pool, self.dialect, shape, idempotency, self.call_max())
    }

    fn facts(&self) -> Result<SourceFacts, SourceError> {
        let schema = self.load_schema()?;
        self.check_role(&schema)?;
        let mut notes = vec![schema.server.clone()];
        notes.extend(self.unprotected_tables(&schema));
        let profiled_until = Instant::now() + Duration::from_millis(PROFILES_MS_MAX);
        let has_records = self.has_records(&schema);
        let facts = |table: &TableInfo| self.table_facts(table, has_records, profiled_until);
        let tables: Vec<TableFacts> = schema.tables.iter().map(facts).collect();
        if Instant::now() >= profiled_until {
            notes.push(UNPROFILED_NOTE.into());
        }
        Ok(SourceFacts { tables, notes, role: Some(schema.role.clone().into()), ..SourceFacts::default() })
    }

    fn table_reader(&self, shape: &TableShape) -> Result<TableReader, SourceError> {
        let schema = self.schema()?;
        let table = schema.table(&shape.table)?;
        let reader = TableReader::new(&self.pool, self.dialect, table, shape, self.call_max())?;
        let key: Vec<&str> = shape.key.iter().map(|at| shape.columns[*at].name.as_str()).collect();
        let is_unique =
            |columns: &Vec<usize>| columns.iter().all(|at| key.contains(&table.columns[*at].name.as_str()));
        let can_check = self.options.callers == CallerMode::Connection;
        if can_check && !key.is_empty() && !table.unique.iter().any(is_unique) {
            reader.check_unique_key()?;
        }
        Ok(reader)
    }

    fn table_writer(&self, shape: &TableShape) -> Result<TableWriter, SourceError> {
        let schema = self.schema()?;
        let table = schema.table(&shape.table)?;
        let reader = TableReader::new(&self.pool, self.dialect, table, shape, self.call_max())?;
        let key_constraint = table.key_constraint.clone();
        Ok(TableWriter { reader, idempotency: self.records(&schema), key_constraint })
    }
}
