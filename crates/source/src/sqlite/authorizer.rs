//! What a connection may do, asked by SQLite while it prepares a statement. What is not known here is refused.
//!
//! Our own statements do little, so little is allowed. An author's statement may read all tables of theirs and call
//! what only computes; whether it may write is for whoever prepares it. What the owner of a database declared, its
//! views, triggers and foreign keys, may do what they do; none of it may reach other files or the schema.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use super::change_capture;
use super::idempotency;

/// What is allowed now.
#[derive(Debug, Clone)]
pub(super) enum AccessMode {
    /// Read tables and views.
    ReadRows,
    /// Ask what tables there are, too.
    ReadSchema,
    /// What an author wrote, and it is written down what that does. On a connection that cannot write.
    Describe,
    /// What an author wrote, as it was examined.
    RunStatement,
    /// Write to these tables, in small letters.
    WriteTables(Arc<HashSet<String>>),
    /// Make and keep the table of claims.
    Idempotency,
    /// Put up triggers that see what changes, take them down, and rehearse.
    ChangeCapture,
}

/// What a statement does, and the first thing that it may not.
#[derive(Debug, Clone, Default)]
pub(super) struct AccessLog {
    pub(super) tables: BTreeSet<String>,
    /// What it may change; and whether it says so itself, or a trigger of the owner's does.
    pub(super) written_tables: BTreeMap<String, bool>,
    /// What triggers of the owner's may change, in small letters; without what foreign keys make of that.
    pub(super) trigger_tables: HashSet<String>,
    /// In small letters.
    pub(super) functions: BTreeSet<String>,
    /// The views and named subqueries through which it reads.
    pub(super) accessors: BTreeSet<String>,
    pub(super) denial: Option<Denial>,
}

/// Half a sentence, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) reason: String,
    pub(super) subject: String,
}

/// Shared by a connection and whoever lends it.
#[derive(Debug)]
pub(super) struct SqlAuthorizer {
    mode: Mutex<AccessMode>,
    access_log: Mutex<AccessLog>,
}

/// Asked about a table or an index.
const SCHEMA_PRAGMAS: [&str; 5] =
    ["table_list", "table_xinfo", "index_list", "index_xinfo", "foreign_key_list"];
/// Asked, never set.
const QUERY_ONLY_PRAGMAS: [&str; 2] = ["encoding", "journal_mode"];
/// They reach beyond the database, or into the process. Not all are there; none is to come.
const DENIED_FUNCTIONS: [&str; 8] = [
    "load_extension",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
    "sqlite_compileoption_get",
    "sqlite_compileoption_used",
    "sqlite_log",
];
/// Pages and the file's inside, which no row tells.
const DENIED_TABLES: [&str; 2] = ["dbstat", "sqlite_dbpage"];

impl SqlAuthorizer {
    pub(super) fn new(permit: AccessMode) -> Self {
        Self { mode: Mutex::new(permit), access_log: Mutex::default() }
    }

    pub(super) fn set_mode(&self, permit: AccessMode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    pub(super) fn access_log(&self) -> AccessLog {
        self.access_log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn clear_access_log(&self) {
        *self.access_log.lock().unwrap_or_else(PoisonError::into_inner) = AccessLog::default();
    }

    pub(super) fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let permit = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let may = match &*permit {
            AccessMode::ReadRows => allows_own_read(context, false),
            AccessMode::ReadSchema => allows_own_read(context, true),
            AccessMode::Describe => {
                let refusal = statement_denial(context);
                let mut noted = self.access_log.lock().unwrap_or_else(PoisonError::into_inner);
                record_access(&mut noted, context);
                let may = refusal.is_none();
                noted.denial = noted.denial.take().or(refusal);
                may
            }
            AccessMode::RunStatement => statement_denial(context).is_none(),
            AccessMode::WriteTables(tables) => allows_table_write(context, tables),
            AccessMode::Idempotency => allows_idempotency(context),
            AccessMode::ChangeCapture => allows_change_capture(context),
        };
        if may { Authorization::Allow } else { Authorization::Deny }
    }
}

fn is_sqlite_table(table: &str) -> bool {
    table.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_"))
}

fn is_data_version(name: &str, value: Option<&str>) -> bool {
    name.eq_ignore_ascii_case("data_version") && value.is_none()
}

fn is_allowed_function(function: &str) -> bool {
    !DENIED_FUNCTIONS.iter().any(|name| function.eq_ignore_ascii_case(name)) && !is_capture_function(function)
}

fn is_capture_function(function: &str) -> bool {
    function.eq_ignore_ascii_case(change_capture::CAPTURE_FUNCTION)
}

/// Our own statements that read.
fn allows_own_read(context: &AuthContext<'_>, may_ask_schema: bool) -> bool {
    let in_view = context.accessor.is_some();
    match context.action {
        AuthAction::Select | AuthAction::Transaction { .. } => true,
        AuthAction::Read { table_name, .. } => may_ask_schema || !is_sqlite_table(table_name),
        // An owner's view may compute, and so may an index of expressions or a column, which are not named here.
        // `trusted_schema` keeps all of them to functions that do nothing else.
        AuthAction::Function { function_name } => is_allowed_function(function_name),
        AuthAction::Recursive => in_view,
        AuthAction::Pragma { pragma_name, pragma_value } => {
            let name = pragma_name.to_ascii_lowercase();
            let is_known = SCHEMA_PRAGMAS.contains(&name.as_str())
                || (QUERY_ONLY_PRAGMAS.contains(&name.as_str()) && pragma_value.is_none());
            (may_ask_schema && is_known) || is_data_version(pragma_name, pragma_value)
        }
        _ => false,
    }
}

/// Our own statements that write to some tables, and what follows from those by the owner's own triggers.
fn allows_table_write(context: &AuthContext<'_>, tables: &HashSet<String>) -> bool {
    let in_trigger = context.accessor.is_some();
    match context.action {
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            let may = in_trigger || tables.contains(&table_name.to_ascii_lowercase());
            may && !is_sqlite_table(table_name) && !idempotency::is_own_table(table_name)
        }
        // Foreign keys and defaults compute and look where no trigger is named.
        AuthAction::Function { function_name } => is_allowed_function(function_name),
        AuthAction::Read { table_name, .. } => !is_sqlite_table(table_name) || is_statistics(table_name),
        AuthAction::Select | AuthAction::Transaction { .. } | AuthAction::Recursive => true,
        AuthAction::Pragma { pragma_name, pragma_value } => is_data_version(pragma_name, pragma_value),
        _ => false,
    }
}

/// What an R-tree asks before it is asked.
fn is_statistics(table: &str) -> bool {
    table.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_stat"))
}

fn allows_idempotency(context: &AuthContext<'_>) -> bool {
    match context.action {
        AuthAction::CreateTable { table_name } | AuthAction::CreateIndex { table_name, .. } => {
            idempotency::is_own_table(table_name)
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Read { table_name, .. } => {
            idempotency::is_own_table(table_name) || is_schema(table_name)
        }
        AuthAction::Function { function_name } => ["max", "min"].contains(&function_name),
        AuthAction::Select | AuthAction::Transaction { .. } => true,
        _ => false,
    }
}

fn allows_change_capture(context: &AuthContext<'_>) -> bool {
    match context.action {
        AuthAction::CreateTempTrigger { trigger_name, .. }
        | AuthAction::DropTempTrigger { trigger_name, .. } => {
            trigger_name.starts_with(change_capture::TRIGGER_PREFIX)
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Read { table_name, .. } => {
            // A temporary trigger is kept with the temporary schema, and asked for as if with that of its table.
            is_schema(table_name) || table_name.eq_ignore_ascii_case("sqlite_temp_master")
        }
        AuthAction::Savepoint { savepoint_name, .. } => savepoint_name == change_capture::TRIAL_SAVEPOINT,
        AuthAction::Pragma { pragma_name, .. } => pragma_name == "recursive_triggers",
        _ => false,
    }
}

fn is_schema(table: &str) -> bool {
    ["sqlite_master", "sqlite_schema"].iter().any(|name| table.eq_ignore_ascii_case(name))
}

/// What keeps an author's statement from doing this, if something does.
fn statement_denial(context: &AuthContext<'_>) -> Option<Denial> {
    let refused = |why: &str, word: &str| Some(Denial { reason: why.to_owned(), subject: word.to_owned() });
    let table = |name: &str| match name {
        name if idempotency::is_own_table(name) => {
            refused("this table is Spile's own, and not for statements", name)
        }
        name if is_sqlite_table(name)
            || DENIED_TABLES.iter().any(|inside| name.eq_ignore_ascii_case(inside)) =>
        {
            refused("tables of SQLite's own cannot be read or written", name)
        }
        name if name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("pragma_")) => {
            refused("a statement cannot ask for settings or the schema", name)
        }
        _ => None,
    };
    match context.action {
        AuthAction::Select | AuthAction::Recursive => None,
        // While a virtual table is at work: what an R-tree asks for.
        AuthAction::Read { table_name, .. } if is_statistics(table_name) => None,
        AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            if context.database_name == Some("temp") {
                return refused("there are no temporary tables", table_name);
            }
            table(table_name)
        }
        AuthAction::Function { function_name } if is_allowed_function(function_name) => None,
        // Of triggers only temporary ones may call it, and those are ours.
        AuthAction::Function { function_name }
            if is_capture_function(function_name) && context.accessor.is_some() =>
        {
            None
        }
        AuthAction::Function { function_name } => {
            refused("this function reaches beyond the database", function_name)
        }
        AuthAction::Pragma { pragma_name, pragma_value } if is_data_version(pragma_name, pragma_value) => {
            None
        }
        AuthAction::Pragma { .. } => refused("a statement cannot ask for settings or change them", "pragma"),
        AuthAction::Attach { .. } => refused("a statement cannot open another file", "attach"),
        AuthAction::Detach { .. } => refused("a statement cannot close a file", "detach"),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            refused("each statement is a transaction of its own", "")
        }
        _ => refused("a statement reads and writes rows; it does not change what tables there are", ""),
    }
}

fn record_access(noted: &mut AccessLog, context: &AuthContext<'_>) {
    noted.accessors.extend(context.accessor.map(str::to_owned));
    match context.action {
        AuthAction::Read { table_name, .. } => {
            noted.tables.insert(table_name.to_owned());
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            noted.tables.insert(table_name.to_owned());
            *noted.written_tables.entry(table_name.to_owned()).or_default() |= context.accessor.is_none();
            if context.accessor.is_some() {
                noted.trigger_tables.insert(table_name.to_ascii_lowercase());
            }
        }
        AuthAction::Function { function_name } => {
            noted.functions.insert(function_name.to_ascii_lowercase());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::{DbConnection, Generation};
    use super::AccessMode;

    /// Whether statements are refused on a real file whose only table is `t`.
    fn check(permit: &AccessMode, statements: &[&str], expected: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        let writer = rusqlite::Connection::open(&path).expect("a database");
        writer.execute_batch("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1)").expect("a table");
        let before = std::fs::read(&path).expect("bytes");
        let session =
            DbConnection::open_read_only(&path, permit.clone(), Generation::default()).expect("opens");
        for sql in statements {
            let ran = session.inner.prepare(sql).and_then(|mut statement| {
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
        check(&AccessMode::ReadRows, &statements, true);
        check(&AccessMode::ReadSchema, &statements, true);
        let schema = ["SELECT name FROM sqlite_schema", "PRAGMA table_xinfo(t)", "PRAGMA journal_mode"];
        check(&AccessMode::ReadSchema, &schema, true);
        check(&AccessMode::ReadRows, &schema, false);
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
            "SELECT 1; SELECT 2",
            "SELECT a FROM t; DROP TABLE t",
        ];
        check(&AccessMode::ReadRows, &statements, false);
        check(&AccessMode::ReadSchema, &statements, false);
    }
}
