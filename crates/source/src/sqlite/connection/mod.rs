//! One SQLite connection: read only, or the one that writes.
//!
//! Three barriers keep a reading connection from writing, each of which is enough: the file is opened read
//! only, `query_only` is set, and the authorizer allows only the few things that our statements do. The write
//! connection has the authorizer alone. Defensive mode and an untrusted schema protect against hostile files.
//! Temporary data stays in memory.
//!
//! In WAL mode a connection can keep a snapshot open for several reads: to begin and to end one takes two
//! file locks, which cost more than reading a row. The pool decides for how long.

pub(crate) mod authorizer;
pub(crate) mod change_recorder;
pub(crate) mod pool;
pub(crate) mod snapshot_reaper;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use contract::order;
use contract::source::{CancelFlag, Comparison};
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::AuthContext;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::sqlite::integer_totals;
use crate::sqlite::key_blob;
use crate::sqlite::reserved_names::{CONTAINS_FUNCTION, STARTS_WITH_FUNCTION};
use crate::sqlite::sort_key::{self, SortKeyKind};
use authorizer::{AccessMode, SqlAuthorizer};
use change_recorder::{ChangedRows, SharedChanges};

pub(crate) struct DbConnection {
    /// Different for every connection of this process.
    pub(crate) id: u64,
    pub(crate) inner: Connection,
    pub(crate) authorizer: Arc<SqlAuthorizer>,
    deadline: Arc<Deadline>,
    /// Which file it was opened on. The path may lead to another file later.
    pub(crate) generation: Generation,
    /// In WAL mode readers do not block writers. The mode cannot change while a connection is open.
    pub(crate) is_wal: bool,
    /// Counts the connection as a writer while it is open, if it writes.
    _writer_count: Option<WriterCountGuard>,
    /// The rows that change capture recorded. Empty on connections that only read.
    pub(crate) captured_changes: SharedChanges,
    /// The rows that a statement changed. Empty on connections that only read.
    pub(crate) changed_rows: ChangedRows,
    /// Until when reads may use the open snapshot, if there is one.
    snapshot_until: Option<Instant>,
    /// The last `PRAGMA data_version`: it changes when another connection commits.
    last_data_version: Option<i64>,
}

/// The file that a connection was opened on, and the number of our own commits when it was last lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Generation {
    pub(crate) file: u32,
    pub(crate) own_commits: u32,
}

/// Whether another connection committed since the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataVersionCheck {
    Unchanged,
    Changed,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// How many connections of this process can write.
static WRITER_COUNT: AtomicUsize = AtomicUsize::new(0);

/// One such connection.
pub(crate) struct WriterCountGuard;

impl WriterCountGuard {
    fn new() -> Self {
        WRITER_COUNT.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// Whether any is open. If so, no file may be opened without SQLite: closing it would release every POSIX
    /// lock that this process holds on it.
    pub(crate) fn any_open() -> bool {
        WRITER_COUNT.load(Ordering::SeqCst) > 0
    }
}

impl Drop for WriterCountGuard {
    fn drop(&mut self) {
        WRITER_COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// When a statement must stop: at its deadline, or when its caller has gone away.
#[derive(Debug)]
struct Deadline {
    start: Instant,
    /// Nanoseconds since `start`; 0 means no deadline.
    ns: AtomicU64,
    /// The flag of the call that the connection works for.
    cancelled: Mutex<Option<CancelFlag>>,
}

/// How often a statement checks its deadline, in virtual machine instructions: about every 20 µs.
const PROGRESS_STEPS: i32 = 1000;
const STATEMENT_CACHE_MAX: usize = 64;
/// Returns a number that stays the same until another connection commits. Allowed on reading connections too.
const DATA_VERSION_SQL: &str = "PRAGMA data_version";

/// Limits the damage of a hostile file or of a bug in our SQL.
const LIMITS: [(Limit, i32); 7] = [
    (Limit::SQLITE_LIMIT_LENGTH, 64 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 256 << 10),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 500),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// Readers fire no triggers. The owner's triggers may fire others, with SQLite's default depth.
const TRIGGER_DEPTH_READING: i32 = 1;
const TRIGGER_DEPTH_WRITING: i32 = 1_000;

const CONFIG: [(DbConfig, bool); 5] = [
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
    // A column that no longer exists must be an error, not a string with its name.
    (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    // Otherwise SQLite recompiles a statement for every bound value.
    (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
];
const CONFIG_READING: [(DbConfig, bool); 2] =
    [(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false), (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)];
const CONFIG_WRITING: [(DbConfig, bool); 2] =
    [(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true), (DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)];

/// The page cache holds up to 8 MiB per connection.
const SETUP: &str = "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA cell_size_check = 1;
    PRAGMA cache_size = -8192;";
const SETUP_READING: &str = "PRAGMA query_only = 1;";
/// An acknowledged write survives a power loss. In WAL mode `FULL` is enough. With a rollback journal the
/// directory must be synced too, or the deleted journal may come back and undo the commit: `EXTRA`.
const SETUP_WRITING: &str = "PRAGMA synchronous = EXTRA;";

impl DbConnection {
    /// Opens a connection that reads. The path must be absolute: SQLite takes `file:` at its start for a URI.
    pub(crate) fn open_read_only(
        path: &Path,
        access_mode: AccessMode,
        generation: Generation,
    ) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_READING)?;
        Self::configure(connection, &CONFIG_READING, SETUP_READING, access_mode, generation)
    }

    /// Opens a connection that writes, on an existing file. Waits up to `lock_timeout` for the locks of
    /// others.
    pub(crate) fn open_read_write(path: &Path, lock_timeout: Duration) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(lock_timeout)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_WRITING)?;
        let nothing = AccessMode::WriteTables(Arc::default());
        let writing = WriterCountGuard::new();
        let connection =
            Self::configure(connection, &CONFIG_WRITING, SETUP_WRITING, nothing, Generation::default())?;
        change_recorder::register_capture_function(&connection.inner, &connection.captured_changes)?;
        let mut connection = connection;
        let changed_rows = ChangedRows::install(&mut connection.inner)?;
        Ok(Self { _writer_count: Some(writing), changed_rows, ..connection })
    }

    fn configure(
        mut connection: Connection,
        config: &[(DbConfig, bool)],
        setup: &str,
        access_mode: AccessMode,
        generation: Generation,
    ) -> rusqlite::Result<Self> {
        for (limit, value) in LIMITS {
            connection.set_limit(limit, value)?;
        }
        for (config, value) in CONFIG.iter().chain(config) {
            connection.set_db_config(*config, *value)?;
        }
        connection.execute_batch(SETUP)?;
        connection.execute_batch(setup)?;
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_MAX);
        register_sort_functions(&connection)?;
        let authorizer = Arc::new(SqlAuthorizer::new(access_mode));
        let callback_authorizer = Arc::clone(&authorizer);
        connection
            .authorizer(Some(move |context: AuthContext<'_>| callback_authorizer.authorize(&context)))?;
        let deadline =
            Arc::new(Deadline { start: Instant::now(), ns: AtomicU64::new(0), cancelled: Mutex::default() });
        let callback_deadline = Arc::clone(&deadline);
        connection.progress_handler(PROGRESS_STEPS, Some(move || callback_deadline.has_passed()))?;
        let is_wal = mode == "wal";
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            inner: connection,
            authorizer,
            deadline,
            generation,
            is_wal,
            _writer_count: None,
            captured_changes: SharedChanges::default(),
            changed_rows: ChangedRows::default(),
            snapshot_until: None,
            last_data_version: None,
        })
    }

    /// Begins a read transaction, so that reads until `until` see the database as it is now.
    pub(crate) fn begin_snapshot(&mut self, until: Instant) -> rusqlite::Result<DataVersionCheck> {
        self.inner.prepare_cached("BEGIN")?.execute([])?;
        self.snapshot_until = Some(until);
        let version = self.data_version()?;
        // The first check on a connection has nothing to compare with. Files that are written to are reopened
        // often, so `Changed` is the safe answer.
        let is_same = self.last_data_version.replace(version) == Some(version);
        Ok(if is_same { DataVersionCheck::Unchanged } else { DataVersionCheck::Changed })
    }

    /// A number that stays the same until another connection commits.
    pub(crate) fn data_version(&self) -> rusqlite::Result<i64> {
        self.inner.prepare_cached(DATA_VERSION_SQL)?.query_row([], |row| row.get(0))
    }

    /// Ends the snapshot. If that fails the connection must be closed.
    pub(crate) fn end_snapshot(&mut self) -> rusqlite::Result<()> {
        if self.snapshot_until.take().is_none() {
            return Ok(());
        }
        let ended = self.inner.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // Some errors end the transaction themselves; then there is nothing to commit.
        if self.inner.is_autocommit() { Ok(()) } else { ended.map(drop) }
    }

    pub(crate) fn snapshot_until(&self) -> Option<Instant> {
        self.snapshot_until
    }

    /// Whether it can be lent again: it has no open transaction except a snapshot.
    pub(crate) fn is_reusable(&self) -> bool {
        self.snapshot_until.is_some() || self.inner.is_autocommit()
    }

    /// Interrupts statements once this much time has passed.
    pub(crate) fn set_deadline(&self, timeout: Duration) {
        let ns = (self.deadline.start.elapsed() + timeout).as_nanos();
        self.deadline.ns.store(u64::try_from(ns).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Interrupts statements once the caller has gone away, until what is returned is dropped.
    pub(crate) fn cancel_on(&self, cancelled: Option<&CancelFlag>) -> CancelGuard {
        self.deadline.set_cancel_flag(cancelled.cloned());
        CancelGuard(Arc::clone(&self.deadline))
    }

    /// Limits the time of statements of a call. The deadline of a call that can be cancelled is its caller's, who cancels
    /// it then: a second one would race with it, and the call would have two answers.
    pub(crate) fn set_call_limit(&self, cancelled: Option<&CancelFlag>, fallback: Duration) {
        match cancelled {
            Some(_) => self.clear_deadline(),
            None => self.set_deadline(fallback),
        }
    }

    /// Statements run without a time limit.
    pub(crate) fn clear_deadline(&self) {
        self.deadline.ns.store(0, Ordering::Relaxed);
    }
}

/// Detaches a connection from a call's cancel flag when it is dropped.
pub(crate) struct CancelGuard(Arc<Deadline>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.set_cancel_flag(None);
    }
}

impl Deadline {
    fn set_cancel_flag(&self, cancelled: Option<CancelFlag>) {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = cancelled;
    }

    /// Called by SQLite on the thread that runs the statement.
    fn has_passed(&self) -> bool {
        let ns = self.ns.load(Ordering::Relaxed);
        if ns != 0 && self.start.elapsed().as_nanos() > u128::from(ns) {
            return true;
        }
        let cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }
}

/// SQL functions that compare as `contract::order` does, or return bytes that sort that way.
fn register_sort_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    for kind in SortKeyKind::ALL {
        connection.create_scalar_function(kind.sql_function(), 1, flags, move |context| {
            Ok(sort_key::encode(kind, crate::sqlite::column::from_sqlite(context.get_raw(0))))
        })?;
    }
    let texts = [(CONTAINS_FUNCTION, Comparison::Contains), (STARTS_WITH_FUNCTION, Comparison::StartsWith)];
    for (name, comparison) in texts {
        connection.create_scalar_function(name, 2, flags, move |context| {
            let value = |index| crate::sqlite::column::from_sqlite(context.get_raw(index));
            Ok(order::matches_text(comparison, value(0), value(1)))
        })?;
    }
    key_blob::register(connection)?;
    integer_totals::register(connection)
}
