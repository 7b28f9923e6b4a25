//! The authorizer: what a statement may do. SQLite calls it for every table, function and pragma while it
//! prepares a statement. It denies everything that it does not know.
//!
//! Spile's own statements do little, so it allows them little. An author's statement may read every table of
//! the database and call functions that only compute; `AccessMode` decides whether it may write. The owner's
//! views, triggers and foreign keys may do what they are declared to do, but none of them reaches other files
//! or changes the schema.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::sqlite::reserved_names::{self, is_own_table};

/// What the authorizer allows at the moment.
#[derive(Debug, Clone)]
pub(crate) enum AccessMode {
    /// Read the rows of tables and views.
    ReadRows,
    /// Read the schema too.
    ReadSchema,
    /// Prepare an author's statement and record what it accesses. For connections that cannot write.
    Describe,
    /// Run an author's statement that was described before.
    RunStatement,
    /// Write to these tables; names in lower case.
    WriteTables(Arc<HashSet<String>>),
    /// Create and use the table of idempotency records.
    Idempotency,
    /// Create and drop the triggers of change capture, and use the savepoint of a trial run.
    ChangeCapture,
}

/// What a statement accesses, and the first access that was denied.
#[derive(Debug, Clone, Default)]
pub(crate) struct AccessLog {
    pub(crate) tables: BTreeSet<String>,
    /// Tables it may change: `true` if the statement names the table itself, `false` if only a trigger of the
    /// owner does.
    pub(crate) written_tables: BTreeMap<String, bool>,
    /// Tables that the owner's triggers may change, in lower case. Does not include what foreign key actions
    /// change.
    pub(crate) trigger_tables: HashSet<String>,
    /// In lower case.
    pub(crate) functions: BTreeSet<String>,
    /// The views and named subqueries (CTEs) that it reads through.
    pub(crate) accessors: BTreeSet<String>,
    pub(crate) denial: Option<Denial>,
}

/// Why an access was denied (half a sentence), and the name of the denied object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: String,
    pub(crate) subject: String,
}

/// Shared by a connection and its authorizer callback.
#[derive(Debug)]
pub(crate) struct SqlAuthorizer {
    mode: Mutex<AccessMode>,
    access_log: Mutex<AccessLog>,
}

/// Pragmas that describe a table or an index.
const SCHEMA_PRAGMAS: [&str; 5] =
    ["table_list", "table_xinfo", "index_list", "index_xinfo", "foreign_key_list"];
/// Pragmas that may be read but not set.
const QUERY_ONLY_PRAGMAS: [&str; 2] = ["encoding", "journal_mode"];
/// Functions that reach beyond the database or into the process. Some of them are not compiled in; they stay
/// denied in case a build adds them.
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
/// Virtual tables that expose raw pages of the file.
const DENIED_TABLES: [&str; 2] = ["dbstat", "sqlite_dbpage"];

impl SqlAuthorizer {
    pub(crate) fn new(mode: AccessMode) -> Self {
        Self { mode: Mutex::new(mode), access_log: Mutex::default() }
    }

    pub(crate) fn set_mode(&self, mode: AccessMode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    pub(crate) fn access_log(&self) -> AccessLog {
        self.access_log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn clear_access_log(&self) {
        *self.access_log.lock().unwrap_or_else(PoisonError::into_inner) = AccessLog::default();
    }

    pub(crate) fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let is_allowed = match &*mode {
            AccessMode::ReadRows => allows_own_read(context, false),
            AccessMode::ReadSchema => allows_own_read(context, true),
            AccessMode::Describe => {
                let denial = statement_denial(context);
                let mut access_log = self.access_log.lock().unwrap_or_else(PoisonError::into_inner);
                record_access(&mut access_log, context);
                let is_allowed = denial.is_none();
                access_log.denial = access_log.denial.take().or(denial);
                is_allowed
            }
            AccessMode::RunStatement => statement_denial(context).is_none(),
            AccessMode::WriteTables(tables) => allows_table_write(context, tables),
            AccessMode::Idempotency => allows_idempotency(context),
            AccessMode::ChangeCapture => allows_change_capture(context),
        };
        if is_allowed { Authorization::Allow } else { Authorization::Deny }
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
    function.eq_ignore_ascii_case(reserved_names::CAPTURE_FUNCTION)
}

/// For Spile's own statements that read.
fn allows_own_read(context: &AuthContext<'_>, may_ask_schema: bool) -> bool {
    let in_view = context.accessor.is_some();
    match context.action {
        AuthAction::Select | AuthAction::Transaction { .. } => true,
        AuthAction::Read { table_name, .. } => may_ask_schema || !is_sqlite_table(table_name),
        // An owner's view may call functions, and so may an expression index or a generated column, for which
        // SQLite names no accessor. `trusted_schema = off` limits all of them to harmless functions.
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

/// For Spile's own statements that write to some tables, and for the triggers that they fire.
fn allows_table_write(context: &AuthContext<'_>, tables: &HashSet<String>) -> bool {
    let in_trigger = context.accessor.is_some();
    match context.action {
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            let is_allowed = in_trigger || tables.contains(&table_name.to_ascii_lowercase());
            is_allowed && !is_sqlite_table(table_name) && !is_own_table(table_name)
        }
        // For foreign keys and defaults SQLite names no trigger.
        AuthAction::Function { function_name } => is_allowed_function(function_name),
        AuthAction::Read { table_name, .. } => !is_sqlite_table(table_name) || is_statistics(table_name),
        AuthAction::Select | AuthAction::Transaction { .. } | AuthAction::Recursive => true,
        AuthAction::Pragma { pragma_name, pragma_value } => is_data_version(pragma_name, pragma_value),
        _ => false,
    }
}

/// An R-tree reads the statistics tables when it is opened.
fn is_statistics(table: &str) -> bool {
    table.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_stat"))
}

fn allows_idempotency(context: &AuthContext<'_>) -> bool {
    match context.action {
        AuthAction::CreateTable { table_name } | AuthAction::CreateIndex { table_name, .. } => {
            is_own_table(table_name)
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Read { table_name, .. } => is_own_table(table_name) || is_schema(table_name),
        AuthAction::Function { function_name } => ["max", "min"].contains(&function_name),
        AuthAction::Select | AuthAction::Transaction { .. } => true,
        _ => false,
    }
}

fn allows_change_capture(context: &AuthContext<'_>) -> bool {
    match context.action {
        AuthAction::CreateTempTrigger { trigger_name, .. }
        | AuthAction::DropTempTrigger { trigger_name, .. } => {
            trigger_name.starts_with(reserved_names::TRIGGER_PREFIX)
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Read { table_name, .. } => {
            // SQLite stores a temporary trigger in the temporary schema, but asks as if for the schema of the
            // trigger's table.
            is_schema(table_name) || table_name.eq_ignore_ascii_case("sqlite_temp_master")
        }
        AuthAction::Savepoint { savepoint_name, .. } => savepoint_name == reserved_names::TRIAL_SAVEPOINT,
        AuthAction::Pragma { pragma_name, .. } => pragma_name == "recursive_triggers",
        _ => false,
    }
}

fn is_schema(table: &str) -> bool {
    ["sqlite_master", "sqlite_schema"].iter().any(|name| table.eq_ignore_ascii_case(name))
}

/// Why an author's statement may not do this, or `None` if it may.
fn statement_denial(context: &AuthContext<'_>) -> Option<Denial> {
    let denied =
        |reason: &str, subject: &str| Some(Denial { reason: reason.to_owned(), subject: subject.to_owned() });
    let table = |name: &str| match name {
        name if is_own_table(name) => denied("this table belongs to Spile; statements cannot use it", name),
        name if is_sqlite_table(name)
            || DENIED_TABLES.iter().any(|inside| name.eq_ignore_ascii_case(inside)) =>
        {
            denied("statements cannot use SQLite's internal tables", name)
        }
        name if name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("pragma_")) => {
            denied("a statement cannot read settings or the schema", name)
        }
        _ => None,
    };
    match context.action {
        AuthAction::Select | AuthAction::Recursive => None,
        // An R-tree does this while it is used.
        AuthAction::Read { table_name, .. } if is_statistics(table_name) => None,
        AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            if context.database_name == Some("temp") {
                return denied("temporary tables are not supported", table_name);
            }
            table(table_name)
        }
        AuthAction::Function { function_name } if is_allowed_function(function_name) => None,
        // The function is DIRECTONLY: among triggers only temporary ones can call it, and only Spile creates
        // those.
        AuthAction::Function { function_name }
            if is_capture_function(function_name) && context.accessor.is_some() =>
        {
            None
        }
        AuthAction::Function { function_name } => {
            let reason = format!(
                "`{function_name}` is not allowed: it can access files or the process outside the database"
            );
            denied(&reason, function_name)
        }
        AuthAction::Pragma { pragma_name, pragma_value } if is_data_version(pragma_name, pragma_value) => {
            None
        }
        AuthAction::Pragma { .. } => denied("a statement cannot read or change settings", "pragma"),
        AuthAction::Attach { .. } => denied("a statement cannot open another file", "attach"),
        AuthAction::Detach { .. } => denied("a statement cannot close a file", "detach"),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            denied("transactions are not supported: each statement runs in its own", "")
        }
        _ => denied("a statement can read and write rows; it cannot change the schema", ""),
    }
}

fn record_access(access_log: &mut AccessLog, context: &AuthContext<'_>) {
    access_log.accessors.extend(context.accessor.map(str::to_owned));
    match context.action {
        AuthAction::Read { table_name, .. } => {
            access_log.tables.insert(table_name.to_owned());
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            access_log.tables.insert(table_name.to_owned());
            *access_log.written_tables.entry(table_name.to_owned()).or_default() |=
                context.accessor.is_none();
            if context.accessor.is_some() {
                access_log.trigger_tables.insert(table_name.to_ascii_lowercase());
            }
        }
        AuthAction::Function { function_name } => {
            access_log.functions.insert(function_name.to_ascii_lowercase());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::AccessMode;
    use crate::sqlite::connection::{DbConnection, Generation};

    /// Prepares each statement on a real file whose only table is `t`, and checks whether it is allowed.
    fn check(mode: &AccessMode, statements: &[&str], expected: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        let writer = rusqlite::Connection::open(&path).expect("a database");
        writer.execute_batch("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1)").expect("a table");
        let before = std::fs::read(&path).expect("bytes");
        let session =
            DbConnection::open_read_only(&path, mode.clone(), Generation::default()).expect("opens");
        for sql in statements {
            let ran = session.inner.prepare(sql).and_then(|mut statement| {
                let mut rows = statement.query([])?;
                while rows.next()?.is_some() {}
                Ok(())
            });
            assert_eq!(ran.is_ok(), expected, "{mode:?} {sql}: {ran:?}");
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
    fn everything_else_is_denied() {
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
