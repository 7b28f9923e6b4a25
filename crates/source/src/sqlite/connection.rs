//! One connection: to read and nothing else, or the one that writes.
//!
//! What forbids writing, each enough by itself: the file is opened read only, `query_only`, and an authorizer
//! that knows the few things our statements do (`gate`). The one that writes has the authorizer only (`desk`).
//! Defensive mode and an untrusted schema are for what a hostile file may hold. Temporary data stays in memory.
//!
//! In WAL mode a connection can keep to one state of the database for some reads: to begin and end one takes two
//! locks of the system, which cost more than to read a row. How long is for the pool to say.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::AuthContext;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::authorizer::{AccessMode, SqlAuthorizer};
use super::change_capture::{self, SharedChanges};
use super::sort_key::{self, SortKeyKind};

pub(super) struct DbConnection {
    pub(super) inner: Connection,
    pub(super) authorizer: Arc<SqlAuthorizer>,
    deadline: Arc<Deadline>,
    /// Which file it was opened on, where a path may lead to another one later.
    pub(super) generation: Generation,
    /// Whether who reads keeps nobody from writing. While a connection is open nobody can change that.
    pub(super) is_wal: bool,
    /// Counted as long as it is open, if it writes.
    _writer_count: Option<WriterCountGuard>,
    /// What a witness sees; nothing, where nobody writes.
    pub(super) captured_changes: SharedChanges,
    /// Until when reads may see the state that is kept, if one is.
    snapshot_until: Option<Instant>,
    /// Changes whenever somebody else commits.
    data_version: Option<i64>,
}

/// Which file a connection was opened on, and after how many writes of our own it was last lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Generation {
    pub(super) file: u32,
    pub(super) own_commits: u32,
}

/// What became of the database since a connection last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataVersionCheck {
    Unchanged,
    Changed,
}

/// How many connections of this process may write.
static WRITER_COUNT: AtomicUsize = AtomicUsize::new(0);

/// One of them.
pub(super) struct WriterCountGuard;

impl WriterCountGuard {
    fn new() -> Self {
        WRITER_COUNT.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// Whether a file may be opened without SQLite: to close it would give back all locks that this process has on it.
    pub(super) fn any_open() -> bool {
        WRITER_COUNT.load(Ordering::SeqCst) > 0
    }
}

impl Drop for WriterCountGuard {
    fn drop(&mut self) {
        WRITER_COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// When a statement has to let go.
#[derive(Debug)]
struct Deadline {
    start: Instant,
    /// Since `start`; 0 is never.
    ns: AtomicU64,
}

/// How often a statement looks at the clock, in steps of SQLite's machine: some 20 µs.
const PROGRESS_STEPS: i32 = 1000;
const STATEMENT_CACHE_MAX: usize = 64;
/// Asked by who reads rows, too: a number, the same as long as nobody commits.
const DATA_VERSION_SQL: &str = "PRAGMA data_version";

/// Each keeps a hostile file or a mistake of ours small.
const LIMITS: [(Limit, i32); 7] = [
    (Limit::SQLITE_LIMIT_LENGTH, 64 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 256 << 10),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 500),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// Who reads sets off no triggers. The owner's own may set off others, as SQLite has it.
const TRIGGER_DEPTH_READING: i32 = 1;
const TRIGGER_DEPTH_WRITING: i32 = 1_000;

const CONFIG: [(DbConfig, bool); 5] = [
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
    // A column that is gone must be an error, not a text of its name.
    (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    // Otherwise a statement is compiled anew for every value that is bound to it.
    (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
];
const CONFIG_READING: [(DbConfig, bool); 2] =
    [(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false), (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)];
const CONFIG_WRITING: [(DbConfig, bool); 2] =
    [(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true), (DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)];

/// Pages are kept in up to 8 MiB for each connection.
const SETUP: &str = "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA cell_size_check = 1;
    PRAGMA cache_size = -8192;";
const SETUP_READING: &str = "PRAGMA query_only = 1;";
/// What was acknowledged outlives a loss of power. With a log `FULL` is enough for that; without one the folder
/// has to be written down too, or the journal comes back and takes it away: `EXTRA`.
const SETUP_WRITING: &str = "PRAGMA synchronous = EXTRA;";

impl DbConnection {
    /// One that reads. The path has to be absolute: `file:` at its beginning would make it a URI.
    pub(super) fn open_read_only(
        path: &Path,
        permit: AccessMode,
        generation: Generation,
    ) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_READING)?;
        Self::configure(connection, &CONFIG_READING, SETUP_READING, permit, generation)
    }

    /// One that writes, to a file that is there. Others are waited for as long as `patience`.
    pub(super) fn open_read_write(path: &Path, patience: Duration) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(patience)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_WRITING)?;
        let nothing = AccessMode::WriteTables(Arc::default());
        let writing = WriterCountGuard::new();
        let session =
            Self::configure(connection, &CONFIG_WRITING, SETUP_WRITING, nothing, Generation::default())?;
        change_capture::register_capture_function(&session.inner, &session.captured_changes)?;
        Ok(Self { _writer_count: Some(writing), ..session })
    }

    fn configure(
        mut connection: Connection,
        config: &[(DbConfig, bool)],
        setup: &str,
        permit: AccessMode,
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
        let gate = Arc::new(SqlAuthorizer::new(permit));
        let asked = Arc::clone(&gate);
        connection.authorizer(Some(move |context: AuthContext<'_>| asked.authorize(&context)))?;
        let deadline = Arc::new(Deadline { start: Instant::now(), ns: AtomicU64::new(0) });
        let watched = Arc::clone(&deadline);
        connection.progress_handler(PROGRESS_STEPS, Some(move || watched.has_passed()))?;
        let is_wal = mode == "wal";
        Ok(Self {
            inner: connection,
            authorizer: gate,
            deadline,
            generation,
            is_wal,
            _writer_count: None,
            captured_changes: SharedChanges::default(),
            snapshot_until: None,
            data_version: None,
        })
    }

    /// Keeps to the state of the database as it is now.
    pub(super) fn begin_snapshot(&mut self, until: Instant) -> rusqlite::Result<DataVersionCheck> {
        self.inner.prepare_cached("BEGIN")?.execute([])?;
        self.snapshot_until = Some(until);
        let version = self.inner.prepare_cached(DATA_VERSION_SQL)?.query_row([], |row| row.get(0))?;
        // A connection that looks for the first time cannot tell: files that are written to are opened often.
        let is_same = self.data_version.replace(version) == Some(version);
        Ok(if is_same { DataVersionCheck::Unchanged } else { DataVersionCheck::Changed })
    }

    /// Ends with that. If it cannot, the connection is of no more use.
    pub(super) fn end_snapshot(&mut self) -> rusqlite::Result<()> {
        if self.snapshot_until.take().is_none() {
            return Ok(());
        }
        let ended = self.inner.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // Some errors end a transaction by themselves, and then there is none to end.
        if self.inner.is_autocommit() { Ok(()) } else { ended.map(drop) }
    }

    pub(super) fn snapshot_until(&self) -> Option<Instant> {
        self.snapshot_until
    }

    /// Whether it can be lent again: nothing is begun but what it keeps on purpose.
    pub(super) fn is_reusable(&self) -> bool {
        self.snapshot_until.is_some() || self.inner.is_autocommit()
    }

    /// Statements end with an interrupt when this much time has passed.
    pub(super) fn set_deadline(&self, time: Duration) {
        let ns = (self.deadline.start.elapsed() + time).as_nanos();
        self.deadline.ns.store(u64::try_from(ns).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What makes whatever runs end, from another thread.
    pub(super) fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(Arc::clone(&self.deadline))
    }

    /// Statements take as long as they take.
    pub(super) fn clear_deadline(&self) {
        self.deadline.ns.store(0, Ordering::Relaxed);
    }
}

/// Ends what a connection runs.
pub(super) struct CancelHandle(Arc<Deadline>);

impl CancelHandle {
    pub(super) fn cancel(&self) {
        self.0.ns.store(1, Ordering::Relaxed);
    }
}

impl Deadline {
    fn has_passed(&self) -> bool {
        let ns = self.ns.load(Ordering::Relaxed);
        ns != 0 && self.start.elapsed().as_nanos() > u128::from(ns)
    }
}

/// Functions that give bytes which sort as `contract::order` says.
fn register_sort_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    for sorted in SortKeyKind::ALL {
        connection.create_scalar_function(sorted.sql_function(), 1, flags, move |context| {
            Ok(sort_key::encode(sorted, super::column::from_sqlite(context.get_raw(0))))
        })?;
    }
    Ok(())
}
