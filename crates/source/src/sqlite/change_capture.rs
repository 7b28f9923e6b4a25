//! Sees which rows a statement changes, where that must be known: before a user is asked, and where rows may go
//! without being counted.
//!
//! SQLite says how many rows a statement changed. It does not say which, and it does not count those that `REPLACE`
//! takes away to make room. So for one transaction there are temporary triggers that call a function of ours for each
//! row; they see what the owner's triggers and foreign keys do, too. What `REPLACE` takes away no trigger sees: how many
//! is the difference between the rows that came and went and the rows that are there. Which they are shows a rehearsal
//! in a savepoint, with `recursive_triggers` and without the owner's triggers; what those would replace it does not
//! show, and then all rows of such a table are meant (ADR 0032).
//!
//! A row that is changed or goes is told by what it was. What becomes of it, and what is new, may come from a clock or
//! from chance, and is not the same when it is done again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Result};

use super::authorizer::AccessMode;
use super::column::from_sqlite;
use super::connection::DbConnection;
use super::error::DbError;
use super::schema::{ForeignKeyGraph, RowLocator, Table, TableKind, quote_identifier};
use contract::ValueRef;
use ring::digest;

/// Called by our triggers and by nobody else: `gate` sees to that.
pub(super) const CAPTURE_FUNCTION: &str = "_spile_saw";
/// What the names of our triggers begin with.
pub(super) const TRIGGER_PREFIX: &str = "_spile_";
/// What a rehearsal goes back to.
pub(super) const TRIAL_SAVEPOINT: &str = "_spile_rehearsal";
/// A function takes no more than 127 values in some versions of SQLite.
const COLUMNS_MAX: usize = 100;

/// What was seen since it was last cleared.
#[derive(Debug, Default)]
pub(super) struct CapturedChanges {
    /// By the table's place among those that are watched: rows that came, less those that went.
    net_rows: Vec<i64>,
    /// A digest for each row, or for each part of one.
    row_digests: Vec<[u8; 32]>,
    row_count: usize,
    /// Others are not kept.
    rows_max: usize,
}

/// Shared by the connection that writes and its function.
pub(super) type SharedChanges = Arc<Mutex<CapturedChanges>>;

fn lock(notes: &SharedChanges) -> MutexGuard<'_, CapturedChanges> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn register_capture_function(connection: &Connection, notes: &SharedChanges) -> Result<()> {
    // Not for what a file's own schema may hold.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    let notes = Arc::clone(notes);
    connection.create_scalar_function(CAPTURE_FUNCTION, -1, flags, move |context| {
        lock(&notes).record(context);
        Ok(None::<i64>)
    })
}

impl CapturedChanges {
    /// Which table, what happens, which part of the row's values; and the values.
    fn record(&mut self, context: &Context<'_>) {
        let number = |at: usize| context.get::<i64>(at).unwrap_or_default();
        let (table, gained, part) = (number(0), number(1), number(2));
        if part == 0 {
            self.row_count += 1;
            if let Some(all) = usize::try_from(table).ok().and_then(|at| self.net_rows.get_mut(at)) {
                *all += gained;
            }
        }
        if self.row_count <= self.rows_max {
            let mut digest = digest::Context::new(&digest::SHA256);
            for at in 0..context.len() {
                digest_value(&mut digest, from_sqlite(context.get_raw(at)));
            }
            self.row_digests.push(finish_digest(digest));
        }
    }
}

fn digest_value(digest: &mut digest::Context, cell: ValueRef<'_>) {
    let (tag, bytes): (u8, &[u8]) = match &cell {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(n) => (1, &n.to_be_bytes()),
        ValueRef::Real(n) => (2, &n.to_bits().to_be_bytes()),
        ValueRef::Text(text) => (3, text.as_bytes()),
        ValueRef::Blob(bytes) => (4, bytes),
    };
    digest.update(&[tag]);
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn finish_digest(digest: digest::Context) -> [u8; 32] {
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Stands by while one statement runs.
pub(super) struct ChangeCapture<'s> {
    session: &'s DbConnection,
    captured: &'s SharedChanges,
    tables: Vec<&'s Table>,
    /// How many rows each table had, where some may go uncounted.
    rows_before: Option<Vec<i64>>,
    /// What the owner's triggers may change, in small letters.
    trigger_tables: HashSet<String>,
    /// What a rehearsal saw.
    trial_digests: Vec<[u8; 32]>,
    /// All rows of each table, where a rehearsal cannot show which are replaced.
    table_digests: Vec<Option<[u8; 32]>>,
}

/// What a witness is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaptureOptions {
    /// Rows beyond these need not be told apart.
    pub(super) rows_max: usize,
    /// Whether rows may go uncounted.
    pub(super) may_replace: bool,
}

impl<'s> ChangeCapture<'s> {
    /// Puts up triggers on all tables that the statement may change.
    pub(super) fn start(
        session: &'s DbConnection,
        notes: &'s SharedChanges,
        sql: &str,
        known: &'s [Table],
        watch: CaptureOptions,
    ) -> Result<Self> {
        session.authorizer.clear_access_log();
        session.authorizer.set_mode(AccessMode::Describe);
        drop(session.inner.prepare(sql)?);
        let noted = session.authorizer.access_log();
        let find = |name: &str| known.iter().find(|table| table.name.eq_ignore_ascii_case(name));
        let mut tables = Vec::new();
        let mut triggers = String::new();
        for (name, is_direct) in &noted.written_tables {
            // Others have no triggers: virtual tables, and what they keep their data in.
            if let Some(table) = find(name).filter(|table| table.kind == TableKind::Ordinary) {
                push_triggers(&mut triggers, tables.len(), table, *is_direct);
                tables.push(table);
            }
        }
        session.authorizer.set_mode(AccessMode::ChangeCapture);
        session.inner.execute_batch(&triggers)?;
        session.authorizer.set_mode(AccessMode::RunStatement);
        let whole = vec![None; tables.len()];
        let (set_off, rehearsed) = (noted.trigger_tables, Vec::new());
        let mut witness = Self {
            session,
            captured: notes,
            tables,
            rows_before: None,
            trigger_tables: set_off,
            trial_digests: rehearsed,
            table_digests: whole,
        };
        witness.reset(watch.rows_max);
        if watch.may_replace {
            witness.rows_before = Some(witness.count()?);
        }
        Ok(witness)
    }

    /// What was seen since the last time.
    fn reset(&self, rows_max: usize) -> CapturedChanges {
        let seen =
            CapturedChanges { net_rows: vec![0; self.tables.len()], rows_max, ..CapturedChanges::default() };
        std::mem::replace(&mut *lock(self.captured), seen)
    }

    /// Sees the rows that `REPLACE` takes away: `run` runs the statement, and it is taken back.
    ///
    /// With `recursive_triggers` triggers see those rows too, and the owner's would do what they never do; so only
    /// temporary ones are heeded meanwhile. The setting may be changed within a transaction.
    pub(super) fn trial_run(
        &mut self,
        references: &ForeignKeyGraph,
        run: impl FnOnce() -> std::result::Result<(), DbError>,
    ) -> std::result::Result<(), DbError> {
        let (connection, gate) = (&self.session.inner, &self.session.authorizer);
        let rows_max = lock(self.captured).rows_max;
        gate.set_mode(AccessMode::ChangeCapture);
        connection.execute_batch(&format!("SAVEPOINT {TRIAL_SAVEPOINT}; PRAGMA recursive_triggers = 1"))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        gate.set_mode(AccessMode::RunStatement);
        let ran = run();
        gate.set_mode(AccessMode::ChangeCapture);
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
        connection.execute_batch("PRAGMA recursive_triggers = 0")?;
        // Some errors end the whole transaction, and there is nothing to go back to.
        if connection.is_autocommit() {
            return ran;
        }
        connection.execute_batch(&format!("ROLLBACK TO {TRIAL_SAVEPOINT}; RELEASE {TRIAL_SAVEPOINT}"))?;
        gate.set_mode(AccessMode::RunStatement);
        let seen = self.reset(rows_max);
        let is_complete = ran.is_ok() && seen.row_count <= rows_max;
        references.add_referencing_tables(&mut self.trigger_tables);
        for (table, whole) in self.tables.iter().zip(&mut self.table_digests) {
            if !is_complete || self.trigger_tables.contains(&table.name.to_ascii_lowercase()) {
                *whole = Some(table_digest(connection, table)?);
            }
        }
        self.trial_digests = seen.row_digests;
        Ok(())
    }

    fn count(&self) -> Result<Vec<i64>> {
        let count = |table: &&Table| {
            let sql = format!("SELECT count(*) FROM {}", table.sql_name());
            self.session.inner.query_row(&sql, [], |row| row.get(0))
        };
        self.tables.iter().map(count).collect()
    }

    /// Takes the triggers down. How many rows went that SQLite did not count, and which rows were changed, in
    /// whatever order.
    pub(super) fn finish(self) -> Result<(u64, [u8; 32])> {
        let seen = std::mem::take(&mut *lock(self.captured));
        let (mut uncounted, mut rows) = (0, [seen.row_digests, self.trial_digests.clone()]);
        if let Some(before) = &self.rows_before {
            let after = self.count()?;
            let tables = before.iter().zip(after).zip(&seen.net_rows).zip(&self.table_digests);
            for (((before, after), gained), whole) in tables {
                let more = (before + gained - after).unsigned_abs();
                uncounted += more;
                rows[1].extend(whole.filter(|_| more > 0));
            }
        }
        self.session.authorizer.set_mode(AccessMode::ChangeCapture);
        for at in 0..self.tables.len() {
            let names = ["i", "u", "d"].map(|kind| format!("DROP TRIGGER temp.{TRIGGER_PREFIX}{kind}{at};"));
            self.session.inner.execute_batch(&names.concat())?;
        }
        self.session.authorizer.set_mode(AccessMode::RunStatement);
        let mut digest = digest::Context::new(&digest::SHA256);
        for rows in &mut rows {
            rows.sort_unstable();
            digest.update(&(rows.len() as u64).to_be_bytes());
            for row in rows {
                digest.update(row);
            }
        }
        digest.update(&uncounted.to_be_bytes());
        Ok((uncounted, finish_digest(digest)))
    }
}

/// A table's columns, quoted, and what else tells a row from others.
fn identity_columns(table: &Table) -> Vec<String> {
    let mut columns: Vec<String> =
        table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    if let RowLocator::Rowid(name) = &table.locator
        && !columns.contains(name)
    {
        columns.push(name.clone());
    }
    columns
}

fn table_digest(connection: &Connection, table: &Table) -> Result<[u8; 32]> {
    let columns = identity_columns(table);
    let mut statement =
        connection.prepare(&format!("SELECT {} FROM {}", columns.join(", "), table.sql_name()))?;
    let mut rows = statement.query([])?;
    let mut digest = digest::Context::new(&digest::SHA256);
    while let Some(row) = rows.next()? {
        for at in 0..columns.len() {
            digest_value(&mut digest, from_sqlite(row.get_ref(at)?));
        }
    }
    Ok(finish_digest(digest))
}

/// Triggers for one table. What the statement does not name itself is changed by the owner's triggers: that may be a
/// counter which everybody changes, so of such rows only those that go are told by what they were.
fn push_triggers(out: &mut String, at: usize, table: &Table, is_direct: bool) {
    let all: Vec<String> = identity_columns(table).iter().map(|column| format!("old.{column}")).collect();
    let on = table.sql_name();
    for (kind, event, gained, values) in [
        ("i", "INSERT", 1, &[][..]),
        ("u", "UPDATE", 0, if is_direct { &all[..] } else { &[] }),
        ("d", "DELETE", -1, &all[..]),
    ] {
        out.push_str(&format!("CREATE TEMP TRIGGER {TRIGGER_PREFIX}{kind}{at} AFTER {event} ON {on} BEGIN "));
        let parts: Vec<&[String]> =
            if values.is_empty() { vec![&[]] } else { values.chunks(COLUMNS_MAX).collect() };
        for (part, values) in parts.iter().enumerate() {
            let more: String = values.iter().map(|value| format!(", {value}")).collect();
            out.push_str(&format!("SELECT {CAPTURE_FUNCTION}({at}, {gained}, {part}{more}); "));
        }
        out.push_str("END; ");
    }
}
