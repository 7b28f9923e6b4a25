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

use super::column::raw;
use super::fault::Fail;
use super::gate::Permit;
use super::schema::{Address, Class, References, Table, quoted};
use super::session::Session;
use contract::Cell;
use ring::digest;

/// Called by our triggers and by nobody else: `gate` sees to that.
pub(super) const FUNCTION: &str = "_spile_saw";
/// What the names of our triggers begin with.
pub(super) const TRIGGERS: &str = "_spile_";
/// What a rehearsal goes back to.
pub(super) const SAVEPOINT: &str = "_spile_rehearsal";
/// A function takes no more than 127 values in some versions of SQLite.
const COLUMNS_MAX: usize = 100;

/// What was seen since it was last cleared.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By the table's place among those that are watched: rows that came, less those that went.
    gained: Vec<i64>,
    /// A digest for each row, or for each part of one.
    rows: Vec<[u8; 32]>,
    rows_seen: usize,
    /// Others are not kept.
    rows_max: usize,
}

/// Shared by the connection that writes and its function.
pub(super) type Notes = Arc<Mutex<Seen>>;

fn lock(notes: &Notes) -> MutexGuard<'_, Seen> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn register(connection: &Connection, notes: &Notes) -> Result<()> {
    // Not for what a file's own schema may hold.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    let notes = Arc::clone(notes);
    connection.create_scalar_function(FUNCTION, -1, flags, move |context| {
        lock(&notes).see(context);
        Ok(None::<i64>)
    })
}

impl Seen {
    /// Which table, what happens, which part of the row's values; and the values.
    fn see(&mut self, context: &Context<'_>) {
        let number = |at: usize| context.get::<i64>(at).unwrap_or_default();
        let (table, gained, part) = (number(0), number(1), number(2));
        if part == 0 {
            self.rows_seen += 1;
            if let Some(all) = usize::try_from(table).ok().and_then(|at| self.gained.get_mut(at)) {
                *all += gained;
            }
        }
        if self.rows_seen <= self.rows_max {
            let mut digest = digest::Context::new(&digest::SHA256);
            for at in 0..context.len() {
                add(&mut digest, raw(context.get_raw(at)));
            }
            self.rows.push(finished(digest));
        }
    }
}

fn add(digest: &mut digest::Context, cell: Cell<'_>) {
    let (tag, bytes): (u8, &[u8]) = match &cell {
        Cell::Null => (0, &[]),
        Cell::Integer(n) => (1, &n.to_be_bytes()),
        Cell::Real(n) => (2, &n.to_bits().to_be_bytes()),
        Cell::Text(text) => (3, text.as_bytes()),
        Cell::Blob(bytes) => (4, bytes),
    };
    digest.update(&[tag]);
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn finished(digest: digest::Context) -> [u8; 32] {
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Stands by while one statement runs.
pub(super) struct Witness<'s> {
    session: &'s Session,
    notes: &'s Notes,
    tables: Vec<&'s Table>,
    /// How many rows each table had, where some may go uncounted.
    rows: Option<Vec<i64>>,
    /// What the owner's triggers may change, in small letters.
    set_off: HashSet<String>,
    /// What a rehearsal saw.
    rehearsed: Vec<[u8; 32]>,
    /// All rows of each table, where a rehearsal cannot show which are replaced.
    whole: Vec<Option<[u8; 32]>>,
}

/// What a witness is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// Rows beyond these need not be told apart.
    pub(super) rows_max: usize,
    /// Whether rows may go uncounted.
    pub(super) replaces: bool,
}

impl<'s> Witness<'s> {
    /// Puts up triggers on all tables that the statement may change.
    pub(super) fn begin(
        session: &'s Session,
        notes: &'s Notes,
        sql: &str,
        known: &'s [Table],
        watch: Watch,
    ) -> Result<Self> {
        session.gate.forget();
        session.gate.set(Permit::Examine);
        drop(session.connection.prepare(sql)?);
        let noted = session.gate.noted();
        let find = |name: &str| known.iter().find(|table| table.name.eq_ignore_ascii_case(name));
        let mut tables = Vec::new();
        let mut triggers = String::new();
        for (name, is_direct) in &noted.written {
            // Others have no triggers: virtual tables, and what they keep their data in.
            if let Some(table) = find(name).filter(|table| table.class == Class::Plain) {
                put_up(&mut triggers, tables.len(), table, *is_direct);
                tables.push(table);
            }
        }
        session.gate.set(Permit::Witness);
        session.connection.execute_batch(&triggers)?;
        session.gate.set(Permit::Statement);
        let whole = vec![None; tables.len()];
        let (set_off, rehearsed) = (noted.set_off, Vec::new());
        let mut witness = Self { session, notes, tables, rows: None, set_off, rehearsed, whole };
        witness.begin_anew(watch.rows_max);
        if watch.replaces {
            witness.rows = Some(witness.count()?);
        }
        Ok(witness)
    }

    /// What was seen since the last time.
    fn begin_anew(&self, rows_max: usize) -> Seen {
        let seen = Seen { gained: vec![0; self.tables.len()], rows_max, ..Seen::default() };
        std::mem::replace(&mut *lock(self.notes), seen)
    }

    /// Sees the rows that `REPLACE` takes away: `run` runs the statement, and it is taken back.
    ///
    /// With `recursive_triggers` triggers see those rows too, and the owner's would do what they never do; so only
    /// temporary ones are heeded meanwhile. The setting may be changed within a transaction.
    pub(super) fn rehearse(
        &mut self,
        references: &References,
        run: impl FnOnce() -> std::result::Result<(), Fail>,
    ) -> std::result::Result<(), Fail> {
        let (connection, gate) = (&self.session.connection, &self.session.gate);
        let rows_max = lock(self.notes).rows_max;
        gate.set(Permit::Witness);
        connection.execute_batch(&format!("SAVEPOINT {SAVEPOINT}; PRAGMA recursive_triggers = 1"))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        gate.set(Permit::Statement);
        let ran = run();
        gate.set(Permit::Witness);
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
        connection.execute_batch("PRAGMA recursive_triggers = 0")?;
        // Some errors end the whole transaction, and there is nothing to go back to.
        if connection.is_autocommit() {
            return ran;
        }
        connection.execute_batch(&format!("ROLLBACK TO {SAVEPOINT}; RELEASE {SAVEPOINT}"))?;
        gate.set(Permit::Statement);
        let seen = self.begin_anew(rows_max);
        let is_complete = ran.is_ok() && seen.rows_seen <= rows_max;
        references.extend(&mut self.set_off);
        for (table, whole) in self.tables.iter().zip(&mut self.whole) {
            if !is_complete || self.set_off.contains(&table.name.to_ascii_lowercase()) {
                *whole = Some(all_rows(connection, table)?);
            }
        }
        self.rehearsed = seen.rows;
        Ok(())
    }

    fn count(&self) -> Result<Vec<i64>> {
        let count = |table: &&Table| {
            let sql = format!("SELECT count(*) FROM {}", table.sql_name());
            self.session.connection.query_row(&sql, [], |row| row.get(0))
        };
        self.tables.iter().map(count).collect()
    }

    /// Takes the triggers down. How many rows went that SQLite did not count, and which rows were changed, in
    /// whatever order.
    pub(super) fn end(self) -> Result<(u64, [u8; 32])> {
        let seen = std::mem::take(&mut *lock(self.notes));
        let (mut uncounted, mut rows) = (0, [seen.rows, self.rehearsed.clone()]);
        if let Some(before) = &self.rows {
            let after = self.count()?;
            let tables = before.iter().zip(after).zip(&seen.gained).zip(&self.whole);
            for (((before, after), gained), whole) in tables {
                let more = (before + gained - after).unsigned_abs();
                uncounted += more;
                rows[1].extend(whole.filter(|_| more > 0));
            }
        }
        self.session.gate.set(Permit::Witness);
        for at in 0..self.tables.len() {
            let names = ["i", "u", "d"].map(|kind| format!("DROP TRIGGER temp.{TRIGGERS}{kind}{at};"));
            self.session.connection.execute_batch(&names.concat())?;
        }
        self.session.gate.set(Permit::Statement);
        let mut digest = digest::Context::new(&digest::SHA256);
        for rows in &mut rows {
            rows.sort_unstable();
            digest.update(&(rows.len() as u64).to_be_bytes());
            for row in rows {
                digest.update(row);
            }
        }
        digest.update(&uncounted.to_be_bytes());
        Ok((uncounted, finished(digest)))
    }
}

/// A table's columns, quoted, and what else tells a row from others.
fn columns(table: &Table) -> Vec<String> {
    let mut columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    if let Address::Rowid(name) = &table.address
        && !columns.contains(name)
    {
        columns.push(name.clone());
    }
    columns
}

fn all_rows(connection: &Connection, table: &Table) -> Result<[u8; 32]> {
    let columns = columns(table);
    let mut statement =
        connection.prepare(&format!("SELECT {} FROM {}", columns.join(", "), table.sql_name()))?;
    let mut rows = statement.query([])?;
    let mut digest = digest::Context::new(&digest::SHA256);
    while let Some(row) = rows.next()? {
        for at in 0..columns.len() {
            add(&mut digest, raw(row.get_ref(at)?));
        }
    }
    Ok(finished(digest))
}

/// Triggers for one table. What the statement does not name itself is changed by the owner's triggers: that may be a
/// counter which everybody changes, so of such rows only those that go are told by what they were.
fn put_up(out: &mut String, at: usize, table: &Table, is_direct: bool) {
    let all: Vec<String> = columns(table).iter().map(|column| format!("old.{column}")).collect();
    let on = table.sql_name();
    for (kind, event, gained, values) in [
        ("i", "INSERT", 1, &[][..]),
        ("u", "UPDATE", 0, if is_direct { &all[..] } else { &[] }),
        ("d", "DELETE", -1, &all[..]),
    ] {
        out.push_str(&format!("CREATE TEMP TRIGGER {TRIGGERS}{kind}{at} AFTER {event} ON {on} BEGIN "));
        let parts: Vec<&[String]> =
            if values.is_empty() { vec![&[]] } else { values.chunks(COLUMNS_MAX).collect() };
        for (part, values) in parts.iter().enumerate() {
            let more: String = values.iter().map(|value| format!(", {value}")).collect();
            out.push_str(&format!("SELECT {FUNCTION}({at}, {gained}, {part}{more}); "));
        }
        out.push_str("END; ");
    }
}
