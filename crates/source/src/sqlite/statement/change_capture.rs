//! Captures which rows a statement changes: before a user confirms it, and where rows may be deleted without
//! being counted.
//!
//! SQLite reports how many rows a statement changed. It does not say which, and it does not count the rows
//! that `REPLACE` deletes. So for one transaction there are temporary triggers that call an SQL function of
//! ours for each row; they also see what the owner's triggers and foreign keys do. No trigger sees the rows
//! that `REPLACE` deletes: their number is the difference between the rows inserted and deleted and the rows
//! that remain. A trial run in a savepoint shows which they are, with `recursive_triggers` on and the owner's
//! triggers off. It does not show what those triggers would replace; for such a table the digest covers all
//! rows (ADR 0032).
//!
//! The digest contains the old values of rows that are updated or deleted. New values may come from a clock
//! or from `random()`, and would differ when the statement runs again.

use std::collections::HashSet;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};

use crate::sqlite::column::from_sqlite;
use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::connection::change_recorder::{
    CapturedChanges, SharedChanges, digest_value, finish_digest, lock,
};
use crate::sqlite::error::DbError;
use crate::sqlite::reserved_names::{CAPTURE_FUNCTION, TRIAL_SAVEPOINT, TRIGGER_PREFIX};
use crate::sqlite::schema::{ForeignKeyGraph, RowLocator, Table, TableKind, quote_identifier};
use ring::digest;

/// Some versions of SQLite limit a function to 127 arguments.
const COLUMNS_MAX: usize = 100;

/// Captures the changes of one statement.
pub(crate) struct ChangeCapture<'s> {
    connection: &'s DbConnection,
    captured: &'s SharedChanges,
    tables: Vec<&'s Table>,
    /// The number of rows in each table, where some may be deleted uncounted.
    rows_before: Option<Vec<i64>>,
    /// Tables that the owner's triggers may change, in lower case.
    trigger_tables: HashSet<String>,
    /// The rows that the trial run captured.
    trial_digests: Vec<[u8; 32]>,
    /// A digest of all rows of a table, where the trial run cannot show which are replaced.
    table_digests: Vec<Option<[u8; 32]>>,
}

/// What to capture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaptureOptions {
    /// Rows beyond this limit are not digested.
    pub(crate) rows_max: usize,
    /// Whether rows may be deleted uncounted.
    pub(crate) may_replace: bool,
}

impl<'s> ChangeCapture<'s> {
    /// Creates triggers on all tables that the statement may change.
    pub(crate) fn start(
        connection: &'s DbConnection,
        changes: &'s SharedChanges,
        sql: &str,
        schema_tables: &'s [Table],
        options: CaptureOptions,
    ) -> Result<Self> {
        connection.authorizer.clear_access_log();
        connection.authorizer.set_mode(AccessMode::Describe);
        drop(connection.inner.prepare(sql)?);
        let access_log = connection.authorizer.access_log();
        let find = |name: &str| schema_tables.iter().find(|table| table.name.eq_ignore_ascii_case(name));
        let mut tables = Vec::new();
        let mut triggers = String::new();
        for (name, is_direct) in &access_log.written_tables {
            // Virtual tables and their shadow tables cannot have triggers.
            if let Some(table) = find(name).filter(|table| table.kind == TableKind::Ordinary) {
                push_triggers(&mut triggers, tables.len(), table, *is_direct);
                tables.push(table);
            }
        }
        connection.authorizer.set_mode(AccessMode::ChangeCapture);
        connection.inner.execute_batch(&triggers)?;
        connection.authorizer.set_mode(AccessMode::RunStatement);
        let digest = vec![None; tables.len()];
        let (trigger_tables, trial_digests) = (access_log.trigger_tables, Vec::new());
        let mut capture = Self {
            connection,
            captured: changes,
            tables,
            rows_before: None,
            trigger_tables,
            trial_digests,
            table_digests: digest,
        };
        capture.reset(options.rows_max);
        if options.may_replace {
            capture.rows_before = Some(capture.count()?);
        }
        Ok(capture)
    }

    /// Returns what was captured since the last reset.
    fn reset(&self, rows_max: usize) -> CapturedChanges {
        let captured_changes =
            CapturedChanges { net_rows: vec![0; self.tables.len()], rows_max, ..CapturedChanges::default() };
        std::mem::replace(&mut *lock(self.captured), captured_changes)
    }

    /// Captures the rows that `REPLACE` deletes: `run` runs the statement, and a savepoint undoes it.
    ///
    /// With `recursive_triggers` the delete triggers fire for those rows too. The owner's triggers would then
    /// do what they never do, so only temporary triggers are enabled meanwhile. The setting can be changed
    /// within a transaction.
    pub(crate) fn trial_run(
        &mut self,
        references: &ForeignKeyGraph,
        run: impl FnOnce() -> std::result::Result<(), DbError>,
    ) -> std::result::Result<(), DbError> {
        let (connection, authorizer) = (&self.connection.inner, &self.connection.authorizer);
        let rows_max = lock(self.captured).rows_max;
        authorizer.set_mode(AccessMode::ChangeCapture);
        connection.execute_batch(&format!("SAVEPOINT {TRIAL_SAVEPOINT}; PRAGMA recursive_triggers = 1"))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        authorizer.set_mode(AccessMode::RunStatement);
        let ran = run();
        authorizer.set_mode(AccessMode::ChangeCapture);
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
        connection.execute_batch("PRAGMA recursive_triggers = 0")?;
        // Some errors end the whole transaction; then there is no savepoint to return to.
        if connection.is_autocommit() {
            return ran;
        }
        connection.execute_batch(&format!("ROLLBACK TO {TRIAL_SAVEPOINT}; RELEASE {TRIAL_SAVEPOINT}"))?;
        authorizer.set_mode(AccessMode::RunStatement);
        let captured_changes = self.reset(rows_max);
        let is_complete = ran.is_ok() && captured_changes.row_count <= rows_max;
        references.add_referencing_tables(&mut self.trigger_tables);
        for (table, digest) in self.tables.iter().zip(&mut self.table_digests) {
            if !is_complete || self.trigger_tables.contains(&table.name.to_ascii_lowercase()) {
                *digest = Some(table_digest(connection, table)?);
            }
        }
        self.trial_digests = captured_changes.row_digests;
        Ok(())
    }

    fn count(&self) -> Result<Vec<i64>> {
        let count = |table: &&Table| {
            let sql = format!("SELECT count(*) FROM {}", table.sql_name());
            self.connection.inner.query_row(&sql, [], |row| row.get(0))
        };
        self.tables.iter().map(count).collect()
    }

    /// Drops the triggers. Returns how many rows SQLite did not count, and a digest of the changed rows,
    /// independent of their order.
    pub(crate) fn finish(self) -> Result<(u64, [u8; 32])> {
        let captured_changes = std::mem::take(&mut *lock(self.captured));
        let (mut uncounted, mut rows) = (0, [captured_changes.row_digests, self.trial_digests.clone()]);
        if let Some(before) = &self.rows_before {
            let after = self.count()?;
            let tables = before.iter().zip(after).zip(&captured_changes.net_rows).zip(&self.table_digests);
            for (((before, after), net_rows), digest) in tables {
                let more = (before + net_rows - after).unsigned_abs();
                uncounted += more;
                rows[1].extend(digest.filter(|_| more > 0));
            }
        }
        self.connection.authorizer.set_mode(AccessMode::ChangeCapture);
        for index in 0..self.tables.len() {
            let names =
                ["i", "u", "d"].map(|kind| format!("DROP TRIGGER temp.{TRIGGER_PREFIX}{kind}{index};"));
            self.connection.inner.execute_batch(&names.concat())?;
        }
        self.connection.authorizer.set_mode(AccessMode::RunStatement);
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

/// A table's quoted columns, and its rowid if that is not one of them.
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
        for index in 0..columns.len() {
            digest_value(&mut digest, from_sqlite(row.get_ref(index)?));
        }
    }
    Ok(finish_digest(digest))
}

/// Creates the triggers of one table. Tables that the statement does not name are changed by the owner's
/// triggers, for example a counter that every call increments; of their rows only deleted ones go into the
/// digest.
fn push_triggers(out: &mut String, index: usize, table: &Table, is_direct: bool) {
    let old_values: Vec<String> =
        identity_columns(table).iter().map(|column| format!("old.{column}")).collect();
    let on = table.sql_name();
    for (kind, event, net_rows, values) in [
        ("i", "INSERT", 1, &[][..]),
        ("u", "UPDATE", 0, if is_direct { &old_values[..] } else { &[] }),
        ("d", "DELETE", -1, &old_values[..]),
    ] {
        out.push_str(&format!(
            "CREATE TEMP TRIGGER {TRIGGER_PREFIX}{kind}{index} AFTER {event} ON {on} BEGIN "
        ));
        let parts: Vec<&[String]> =
            if values.is_empty() { vec![&[]] } else { values.chunks(COLUMNS_MAX).collect() };
        for (part, values) in parts.iter().enumerate() {
            let more: String = values.iter().map(|value| format!(", {value}")).collect();
            out.push_str(&format!("SELECT {CAPTURE_FUNCTION}({index}, {net_rows}, {part}{more}); "));
        }
        out.push_str("END; ");
    }
}
