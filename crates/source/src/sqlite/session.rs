//! One connection that can read and nothing else.
//!
//! What forbids writing, each enough by itself: the file is opened read only, `query_only`, and an authorizer
//! that knows the few things our statements do. Defensive mode and an untrusted schema are for what a hostile
//! file may hold. Temporary data stays in memory.
//!
//! In WAL mode a connection can keep to one state of the database for some reads: to begin and end one takes two
//! locks of the system, which cost more than to read a row. How long is for the pool to say.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::sorted::{self, Sorted};

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Read tables and views.
    Rows,
    /// Ask what tables there are, too.
    Schema,
}

pub(super) struct Session {
    pub(super) connection: Connection,
    deadline: Arc<Deadline>,
    /// Which file it was opened on, where a path may lead to another one later.
    pub(super) generation: u64,
    /// Whether who reads keeps nobody from writing. While a connection is open nobody can change that.
    pub(super) is_wal: bool,
    /// Until when reads may see the state that is kept, if one is.
    kept_until: Option<Instant>,
    /// Changes whenever somebody else commits.
    version: Option<i64>,
}

/// What became of the database since a connection last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Same,
    Changed,
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
/// Asked about a table or an index.
const PRAGMAS_ABOUT: [&str; 4] = ["table_list", "table_xinfo", "index_list", "index_xinfo"];
/// Asked, never set.
const PRAGMAS: [&str; 2] = ["encoding", "journal_mode"];
/// Asked by who reads rows, too: a number, the same as long as nobody commits.
const VERSION: &str = "PRAGMA data_version";
const FUNCTIONS: [&str; 2] = ["count", "nullif"];

/// Each keeps a hostile file or a mistake of ours small.
const LIMITS: [(Limit, i32); 8] = [
    (Limit::SQLITE_LIMIT_LENGTH, 64 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 256 << 10),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 500),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

const CONFIG: [(DbConfig, bool); 7] = [
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
    // A column that is gone must be an error, not a text of its name.
    (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
    // Otherwise a statement is compiled anew for every value that is bound to it.
    (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
];

/// Pages are kept in up to 8 MiB for each connection.
const SETUP: &str = "PRAGMA query_only = 1; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;
    PRAGMA cell_size_check = 1; PRAGMA cache_size = -8192;";

impl Session {
    /// The path has to be absolute: `file:` at its beginning would make it a URI.
    pub(super) fn open(path: &Path, permit: Permit, generation: u64) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        for (limit, value) in LIMITS {
            connection.set_limit(limit, value)?;
        }
        for (config, value) in CONFIG {
            connection.set_db_config(config, value)?;
        }
        connection.execute_batch(SETUP)?;
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        register(&connection)?;
        connection.authorizer(Some(move |context: AuthContext<'_>| judge(permit, &context)))?;
        let deadline = Arc::new(Deadline { start: Instant::now(), ns: AtomicU64::new(0) });
        let watched = Arc::clone(&deadline);
        connection.progress_handler(STEPS, Some(move || watched.is_over()))?;
        let is_wal = mode == "wal";
        Ok(Self { connection, deadline, generation, is_wal, kept_until: None, version: None })
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

    /// Statements take as long as they take.
    pub(super) fn hold(&self) {
        self.deadline.ns.store(0, Ordering::Relaxed);
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

/// SQLite asks while it prepares a statement; what is not known here is refused.
fn judge(permit: Permit, context: &AuthContext<'_>) -> Authorization {
    let in_view = context.accessor.is_some();
    let may = match context.action {
        AuthAction::Select | AuthAction::Transaction { .. } => true,
        AuthAction::Read { table_name, .. } => {
            permit == Permit::Schema || !table_name.to_ascii_lowercase().starts_with("sqlite_")
        }
        // An author's view may compute; `trusted_schema` keeps it to functions that do nothing else.
        AuthAction::Function { function_name } => {
            let is_ours = Sorted::ALL.iter().any(|sorted| sorted.function() == function_name);
            is_ours || FUNCTIONS.contains(&function_name) || (in_view && is_harmless(function_name))
        }
        AuthAction::Recursive => in_view,
        AuthAction::Pragma { pragma_name, pragma_value } => {
            let name = pragma_name.to_ascii_lowercase();
            let is_known = PRAGMAS_ABOUT.contains(&name.as_str())
                || (PRAGMAS.contains(&name.as_str()) && pragma_value.is_none());
            (permit == Permit::Schema && is_known) || (name == "data_version" && pragma_value.is_none())
        }
        _ => false,
    };
    if may { Authorization::Allow } else { Authorization::Deny }
}

fn is_harmless(function: &str) -> bool {
    !["load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"]
        .iter()
        .any(|name| function.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::{Permit, Session};

    /// Whether statements are refused on a real file whose only table is `t`.
    fn check(permit: Permit, statements: &[&str], expected: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        let writer = rusqlite::Connection::open(&path).expect("a database");
        writer.execute_batch("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1)").expect("a table");
        let before = std::fs::read(&path).expect("bytes");
        let session = Session::open(&path, permit, 0).expect("opens");
        for sql in statements {
            let ran = session.connection.prepare(sql).and_then(|mut statement| {
                let mut rows = statement.query([])?;
                while rows.next()?.is_some() {}
                Ok(())
            });
            assert_eq!(ran.is_ok(), expected, "{permit:?} {sql}: {ran:?}");
        }
        assert_eq!(std::fs::read(&path).expect("bytes"), before);
        let files = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files, 1, "something lies beside the file");
    }

    #[test]
    fn reading_is_allowed() {
        let statements = [
            "SELECT a FROM t",
            "SELECT count(*) FROM t",
            "SELECT nullif(a, 1) FROM t",
            "BEGIN",
            "PRAGMA data_version",
            "COMMIT",
        ];
        check(Permit::Rows, &statements, true);
        check(Permit::Schema, &statements, true);
        let schema = ["SELECT name FROM sqlite_schema", "PRAGMA table_xinfo(t)", "PRAGMA journal_mode"];
        check(Permit::Schema, &schema, true);
        check(Permit::Rows, &schema, false);
    }

    #[test]
    fn all_else_is_refused() {
        let statements = [
            "INSERT INTO t VALUES(2)",
            "UPDATE t SET a = 2",
            "DELETE FROM t",
            "DROP TABLE t",
            "CREATE TABLE u(a)",
            "CREATE TEMP TABLE u(a)",
            "CREATE VIEW v AS SELECT 1",
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END",
            "ALTER TABLE t ADD COLUMN b",
            "REPLACE INTO t VALUES(2)",
            "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
            "ATTACH 'other.db' AS other",
            "ATTACH ':memory:' AS other",
            "DETACH main",
            "VACUUM",
            "VACUUM INTO 'copy.db'",
            "ANALYZE",
            "REINDEX",
            "SAVEPOINT s",
            "PRAGMA query_only = 0",
            "PRAGMA journal_mode = WAL",
            "PRAGMA journal_mode(OFF)",
            "PRAGMA encoding = 'UTF-16'",
            "PRAGMA writable_schema = 1",
            "PRAGMA trusted_schema = 1",
            "PRAGMA user_version = 7",
            "PRAGMA data_version = 7",
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "PRAGMA optimize",
            "PRAGMA temp_store_directory = '/tmp'",
            "SELECT load_extension('evil')",
            "SELECT fts3_tokenizer('simple')",
            "SELECT randomblob(1000000)",
            "SELECT sqlite_version()",
            "SELECT 1; SELECT 2",
            "SELECT a FROM t; DROP TABLE t",
        ];
        check(Permit::Rows, &statements, false);
        check(Permit::Schema, &statements, false);
    }
}
