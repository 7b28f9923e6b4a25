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

use super::gate::{Gate, Permit};
use super::sorted::{self, Sorted};
use super::witness::{self, Notes};

pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) gate: Arc<Gate>,
    deadline: Arc<Deadline>,
    /// Which file it was opened on, where a path may lead to another one later.
    pub(super) generation: Generation,
    /// Whether who reads keeps nobody from writing. While a connection is open nobody can change that.
    pub(super) is_wal: bool,
    /// Counted as long as it is open, if it writes.
    _writing: Option<Writing>,
    /// What a witness sees; nothing, where nobody writes.
    pub(super) notes: Notes,
    /// Until when reads may see the state that is kept, if one is.
    kept_until: Option<Instant>,
    /// Changes whenever somebody else commits.
    version: Option<i64>,
}

/// Which file a connection was opened on, and after how many writes of our own it was last lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Generation {
    pub(super) file: u32,
    pub(super) write: u32,
}

/// What became of the database since a connection last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Same,
    Changed,
}

/// How many connections of this process may write.
static WRITING: AtomicUsize = AtomicUsize::new(0);

/// One of them.
pub(super) struct Writing;

impl Writing {
    fn begin() -> Self {
        WRITING.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// Whether a file may be opened without SQLite: to close it would give back all locks that this process has on it.
    pub(super) fn is_any() -> bool {
        WRITING.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITING.fetch_sub(1, Ordering::SeqCst);
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
const STEPS: i32 = 1000;
const STATEMENTS_MAX: usize = 64;
/// Asked by who reads rows, too: a number, the same as long as nobody commits.
const VERSION: &str = "PRAGMA data_version";

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

impl Session {
    /// One that reads. The path has to be absolute: `file:` at its beginning would make it a URI.
    pub(super) fn open(path: &Path, permit: Permit, generation: Generation) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_READING)?;
        Self::set_up(connection, &CONFIG_READING, SETUP_READING, permit, generation)
    }

    /// One that writes, to a file that is there. Others are waited for as long as `patience`.
    pub(super) fn open_to_write(path: &Path, patience: Duration) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(patience)?;
        connection.set_limit(Limit::SQLITE_LIMIT_TRIGGER_DEPTH, TRIGGER_DEPTH_WRITING)?;
        let nothing = Permit::Tables(Arc::default());
        let writing = Writing::begin();
        let session =
            Self::set_up(connection, &CONFIG_WRITING, SETUP_WRITING, nothing, Generation::default())?;
        witness::register(&session.connection, &session.notes)?;
        Ok(Self { _writing: Some(writing), ..session })
    }

    fn set_up(
        mut connection: Connection,
        config: &[(DbConfig, bool)],
        setup: &str,
        permit: Permit,
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
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        register(&connection)?;
        let gate = Arc::new(Gate::new(permit));
        let asked = Arc::clone(&gate);
        connection.authorizer(Some(move |context: AuthContext<'_>| asked.judge(&context)))?;
        let deadline = Arc::new(Deadline { start: Instant::now(), ns: AtomicU64::new(0) });
        let watched = Arc::clone(&deadline);
        connection.progress_handler(STEPS, Some(move || watched.is_over()))?;
        let is_wal = mode == "wal";
        Ok(Self {
            connection,
            gate,
            deadline,
            generation,
            is_wal,
            _writing: None,
            notes: Notes::default(),
            kept_until: None,
            version: None,
        })
    }

    /// Keeps to the state of the database as it is now.
    pub(super) fn keep(&mut self, until: Instant) -> rusqlite::Result<Since> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        self.kept_until = Some(until);
        let version = self.connection.prepare_cached(VERSION)?.query_row([], |row| row.get(0))?;
        // A connection that looks for the first time cannot tell: files that are written to are opened often.
        let is_same = self.version.replace(version) == Some(version);
        Ok(if is_same { Since::Same } else { Since::Changed })
    }

    /// Ends with that. If it cannot, the connection is of no more use.
    pub(super) fn let_go(&mut self) -> rusqlite::Result<()> {
        if self.kept_until.take().is_none() {
            return Ok(());
        }
        let ended = self.connection.prepare_cached("COMMIT").and_then(|mut end| end.execute([]));
        // Some errors end a transaction by themselves, and then there is none to end.
        if self.connection.is_autocommit() { Ok(()) } else { ended.map(drop) }
    }

    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.kept_until
    }

    /// Whether it can be lent again: nothing is begun but what it keeps on purpose.
    pub(super) fn is_sound(&self) -> bool {
        self.kept_until.is_some() || self.connection.is_autocommit()
    }

    /// Statements end with an interrupt when this much time has passed.
    pub(super) fn hold_at_most(&self, time: Duration) {
        let ns = (self.deadline.start.elapsed() + time).as_nanos();
        self.deadline.ns.store(u64::try_from(ns).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What makes whatever runs end, from another thread.
    pub(super) fn brake(&self) -> Brake {
        Brake(Arc::clone(&self.deadline))
    }

    /// Statements take as long as they take.
    pub(super) fn hold(&self) {
        self.deadline.ns.store(0, Ordering::Relaxed);
    }
}

/// Ends what a connection runs.
pub(super) struct Brake(Arc<Deadline>);

impl Brake {
    pub(super) fn pull(&self) {
        self.0.ns.store(1, Ordering::Relaxed);
    }
}

impl Deadline {
    fn is_over(&self) -> bool {
        let ns = self.ns.load(Ordering::Relaxed);
        ns != 0 && self.start.elapsed().as_nanos() > u128::from(ns)
    }
}

/// Functions that give bytes which sort as `contract::order` says.
fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    for sorted in Sorted::ALL {
        connection.create_scalar_function(sorted.function(), 1, flags, move |context| {
            Ok(sorted::bytes(sorted, super::column::raw(context.get_raw(0))))
        })?;
    }
    Ok(())
}
