//! Records the rows that a statement changes, as the capture triggers report them.
//!
//! The triggers call one SQL function with the values of each row. It keeps a digest of each row and counts the rows
//! that each table gains or loses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::ValueRef;
use ring::digest;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::Action;
use rusqlite::{Connection, Result};

use crate::sqlite::column::from_sqlite;
use crate::sqlite::reserved_names::CAPTURE_FUNCTION;

/// The rows that a statement inserts or updates, as SQLite's update hook reports them: the table and the rowid.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangedRows(Arc<Mutex<ChangedRowList>>);

#[derive(Debug, Default)]
struct ChangedRowList {
    rows: Vec<(String, i64)>,
    /// Further rows are not recorded. 0 while nothing is.
    rows_max: usize,
}

impl ChangedRows {
    /// Installs the hook on a connection that writes.
    pub(crate) fn install(connection: &mut Connection) -> Result<Self> {
        let changed = Self::default();
        let list = Arc::clone(&changed.0);
        connection.update_hook(Some(move |action: Action, _: &str, table: &str, rowid: i64| {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            if action != Action::SQLITE_DELETE && list.rows.len() < list.rows_max {
                list.rows.push((table.to_owned(), rowid));
            }
        }))?;
        Ok(changed)
    }

    /// Records from now on, until the rows are taken.
    pub(crate) fn start(&self, rows_max: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            ChangedRowList { rows: Vec::new(), rows_max };
    }

    /// The rows that were recorded.
    pub(crate) fn take(&self) -> Vec<(String, i64)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).rows
    }
}

/// What the triggers reported since the last reset.
#[derive(Debug, Default)]
pub(crate) struct CapturedChanges {
    /// For each captured table: inserted rows minus deleted rows.
    pub(crate) net_rows: Vec<i64>,
    /// One digest for each row, or for each part of a row with many columns.
    pub(crate) row_digests: Vec<[u8; 32]>,
    pub(crate) row_count: usize,
    /// Rows beyond this limit are counted but not digested.
    pub(crate) rows_max: usize,
}

/// Shared by the write connection and its SQL function.
pub(crate) type SharedChanges = Arc<Mutex<CapturedChanges>>;

pub(crate) fn lock(changes: &SharedChanges) -> MutexGuard<'_, CapturedChanges> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn register_capture_function(connection: &Connection, changes: &SharedChanges) -> Result<()> {
    // DIRECTONLY: the schema of a hostile file cannot call it.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    let changes = Arc::clone(changes);
    connection.create_scalar_function(CAPTURE_FUNCTION, -1, flags, move |context| {
        lock(&changes).record(context);
        Ok(None::<i64>)
    })
}

impl CapturedChanges {
    /// The arguments are the table's number, the change in row count, the part of the row, and the values.
    fn record(&mut self, context: &Context<'_>) {
        let number = |index: usize| context.get::<i64>(index).unwrap_or_default();
        let (table, gained, part) = (number(0), number(1), number(2));
        if part == 0 {
            self.row_count += 1;
            if let Some(net_rows) = usize::try_from(table).ok().and_then(|index| self.net_rows.get_mut(index))
            {
                *net_rows += gained;
            }
        }
        if self.row_count <= self.rows_max {
            let mut digest = digest::Context::new(&digest::SHA256);
            for index in 0..context.len() {
                digest_value(&mut digest, from_sqlite(context.get_raw(index)));
            }
            self.row_digests.push(finish_digest(digest));
        }
    }
}

pub(crate) fn digest_value(digest: &mut digest::Context, cell: ValueRef<'_>) {
    cell.write_identity(&mut |bytes| digest.update(bytes));
}

pub(crate) fn finish_digest(digest: digest::Context) -> [u8; 32] {
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
