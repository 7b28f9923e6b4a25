//! Rows that have words: by an index of words where there is one, else by looking at row after row.
//!
//! An index finds words that begin with what was asked for, and the best rows first. Looking finds it anywhere, in the
//! order of the table, in pieces like a long list (`walk`), and no further than it may.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use contract::Cell;
use contract::source::{More, Search, Searched, SourceFault};
use rusqlite::params;

use super::column::told;
use super::fault::Fail;
use super::page::Page;
use super::reader::TableReader;
use super::schema::quoted;
use super::walk::{self, Limits, Step, Walk, Walked};
use crate::hunt::Hunt;
use crate::pace;

/// An index is asked in one go, whoever waits to write.
const HOLD: Duration = Duration::from_millis(40);
/// What is found is kept until the lock is given back.
const BYTES_MAX: usize = 32 << 20;
const ROWS_MAX: usize = 10_000;

impl TableReader {
    pub(super) fn by_words(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, Fail> {
        let mut page = Page::new(self.columns.len());
        let asked = self.ask_index(search, &mut page)?;
        let searched = match asked {
            Some(searched) => searched,
            None => self.look_through(search, &mut page)?,
        };
        for at in 0..page.rows() {
            if search.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(SourceFault::Stopped.into());
            }
            if row(&page.cells(at)) == More::No {
                break;
            }
        }
        Ok(searched)
    }

    /// None where there is no index that could tell, or where it takes too long.
    fn ask_index(&self, search: &Search<'_>, page: &mut Page) -> Result<Option<Searched>, Fail> {
        let Some(index) = &self.table.words else { return Ok(None) };
        let places: Vec<usize> = search.columns.iter().map(|at| self.places[*at]).collect();
        let Some(question) = index.question(&search.words, &places) else { return Ok(None) };
        let columns: Vec<String> = self.columns.iter().map(|column| format!("t.{}", column.quoted)).collect();
        let words = quoted(&index.name);
        let rowid = walk::address(&self.table).join(", ");
        let (columns, table) = (columns.join(", "), &self.sql_name);
        let sql = if index.name == self.table.name {
            format!("SELECT {columns} FROM {table} AS t WHERE t.{words} MATCH ?1 ORDER BY t.rank LIMIT ?2")
        } else {
            format!(
                "SELECT {columns} FROM main.{words} AS w CROSS JOIN {table} AS t ON t.{rowid} = w.rowid \
                 WHERE w.{words} MATCH ?1 ORDER BY w.rank LIMIT ?2"
            )
        };
        let rows_max = search.rows_max.min(ROWS_MAX);
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let read = self.pool.read(|session| {
            page.clear();
            session.hold_at_most(HOLD);
            let mut statement = session.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params![question, limit])?;
            while let Some(row) = rows.next()? {
                self.push(row, 0, page)?;
                if page.bytes() > BYTES_MAX {
                    return Ok(Searched::Cut);
                }
            }
            Ok(Searched::All)
        });
        match read {
            Ok(searched) => {
                pace::tell(search.progress, page.rows() as u64);
                Ok(Some(searched))
            }
            Err(Fail::Late) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    fn look_through(&self, search: &Search<'_>, page: &mut Page) -> Result<Searched, Fail> {
        let mut hunt = Hunt::new(&search.words);
        let rows_max = search.rows_max.min(ROWS_MAX);
        let names: Vec<&str> = self.columns.iter().map(|column| column.quoted.as_str()).collect();
        page.clear();
        let (mut seen, mut is_cut) = (0, false);
        let mut each = |row: &rusqlite::Row<'_>, from: usize, page: &mut Page| -> Result<Step, Fail> {
            if seen == search.scan_rows_max || page.bytes() > BYTES_MAX {
                is_cut = true;
                return Ok(Step::Enough);
            }
            seen += 1;
            if self.has(row, from, search.columns, &mut hunt)? {
                self.push_from(row, from, 0, page)?;
            }
            Ok(if page.rows() == rows_max { Step::Enough } else { Step::On })
        };
        let walked = match Walk::new(&self.table, &names) {
            Some(walk) => {
                let limits = Limits { until: self.until(), stop: search.stop, progress: search.progress };
                walk.run(&self.pool, &limits, &mut |row| each(row, walk.address, page))?
            }
            None => {
                // A view has no order that could be gone on with.
                let sql = format!("SELECT {} FROM {}", names.join(", "), self.sql_name);
                let until = Instant::now() + self.hold;
                self.pool.read(|session| {
                    session.hold_at_most(until.saturating_duration_since(Instant::now()));
                    let mut statement = session.connection.prepare_cached(&sql)?;
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        pace::tell(search.progress, 1);
                        if each(row, 0, page)? == Step::Enough {
                            return Ok(Walked::Part);
                        }
                    }
                    Ok(Walked::Whole)
                })?
            }
        };
        // Whoever has enough rows does not ask what comes behind them; whoever has none must know why.
        let is_full = page.rows() == rows_max;
        Ok(if is_cut || (walked == Walked::Part && !is_full) { Searched::Cut } else { Searched::All })
    }

    /// Whether each word is part of one of the columns.
    fn has(
        &self,
        row: &rusqlite::Row<'_>,
        from: usize,
        columns: &[usize],
        hunt: &mut Hunt,
    ) -> Result<bool, Fail> {
        hunt.begin();
        for at in columns {
            let cell = self.columns[*at].lenient(row.get_ref(from + at)?);
            if text(cell).is_some_and(|text| hunt.see(&text)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a value reads as. Bytes are not read.
fn text(cell: Cell<'_>) -> Option<Cow<'_, str>> {
    match cell {
        Cell::Text(text) => Some(Cow::Borrowed(text)),
        Cell::Integer(_) | Cell::Real(_) => told(cell).map(Cow::Owned),
        Cell::Null | Cell::Blob(_) => None,
    }
}
