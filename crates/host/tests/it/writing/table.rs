//! A table in memory that keeps what it promises: one row by its key, all or nothing, once for each claim. It has two
//! whims, as real ones do: no text with a NUL, and `loose` takes what looks like a number for one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use contract::source::{
    BadStatement, Change, Changes, Claim, Clerk, ColumnFacts, Facts, More, Place, Prepared, Query, Read,
    Reader, Search, Searched, Shape, Source, SourceFault, StatementFacts, StatementShape, StatementTerms,
    TableFacts, Unwritable, Which, Write, WriteFault, Writer, Written,
};
use contract::{Cell, Kind, Value, order};

pub const COLUMNS: [(&str, Kind); 14] = [
    ("id", Kind::Text),
    ("name", Kind::Text),
    ("age", Kind::Integer),
    ("balance", Kind::Decimal),
    ("score", Kind::Number),
    ("born", Kind::Date),
    ("seen", Kind::Timestamp),
    ("big", Kind::Int64),
    ("active", Kind::Boolean),
    ("extra", Kind::Json),
    ("photo", Kind::Blob),
    ("secret", Kind::Text),
    ("rev", Kind::Integer),
    ("loose", Kind::Text),
];

#[derive(Default)]
pub struct State {
    pub rows: Vec<Vec<Value>>,
    pub claims: HashMap<[u8; 32], (Claim, Vec<u8>)>,
    /// How often something was kept.
    pub writes: usize,
}

/// The source; clones share the table.
#[derive(Clone, Default)]
pub struct Table {
    state: Arc<Mutex<State>>,
    /// Whether lists and writes wait for somebody who stops them.
    pub slow: Arc<AtomicBool>,
    pub entered: Arc<AtomicBool>,
    pub stopped: Arc<AtomicBool>,
}

impl Table {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic before")
    }

    /// Waits as long as it is slow and somebody waits for it.
    fn linger(&self, stop: Option<&AtomicBool>) -> Result<(), SourceFault> {
        self.entered.store(true, Ordering::SeqCst);
        while self.slow.load(Ordering::SeqCst) {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.stopped.store(true, Ordering::SeqCst);
                return Err(SourceFault::Stopped);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// A person by id and name, without anything else.
    pub fn put(&self, id: &str, name: &str) {
        let mut row = vec![Value::Null; COLUMNS.len()];
        row[0] = Value::Text(id.into());
        row[1] = Value::Text(name.into());
        row[12] = Value::Integer(1);
        self.state().rows.push(row);
    }
}

impl Source for Table {
    fn facts(&self) -> Result<Facts, SourceFault> {
        let columns = COLUMNS.iter().enumerate().map(|(at, (name, kind))| ColumnFacts {
            nullable: at > 1 && at != 12,
            has_default: at == 12,
            ..ColumnFacts::new(*name, *kind)
        });
        let table = TableFacts {
            key: vec![0],
            key_is_declared: true,
            ..TableFacts::new("people", columns.collect())
        };
        Ok(Facts { tables: vec![table], ..Facts::default() })
    }

    fn reader(&self, shape: &Shape) -> Result<Arc<dyn Reader>, SourceFault> {
        Ok(Arc::new(Opened { table: self.clone(), shape: shape.clone() }))
    }

    fn writer(&self, shape: &Shape) -> Result<Arc<dyn Writer>, SourceFault> {
        Ok(Arc::new(Opened { table: self.clone(), shape: shape.clone() }))
    }

    /// Two statements are known: `count` tells how many have a name, `rename` gives everybody of one name another.
    fn examine(&self, sql: &str) -> Result<StatementFacts, BadStatement> {
        let column = |name: &str, kind| ColumnFacts::new(name, kind);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match sql {
            "count" => Ok(StatementFacts {
                parameters: names(&["name"]),
                columns: vec![column("name", Kind::Text), column("people", Kind::Integer)],
                ..StatementFacts::default()
            }),
            "rename" => Ok(StatementFacts {
                parameters: names(&["old", "new"]),
                columns: vec![column("id", Kind::Text)],
                writes: true,
                ..StatementFacts::default()
            }),
            _ => Err(BadStatement { message: "nobody knows this".into(), help: None, at: None }),
        }
    }

    fn prepare(&self, statement: &StatementShape) -> Result<Arc<dyn Prepared>, SourceFault> {
        Ok(Arc::new(Ready { table: self.clone(), shape: statement.clone() }))
    }
}

struct Opened {
    table: Table,
    shape: Shape,
}

impl Opened {
    /// A row in the order of the shape.
    fn cells<'r>(&self, row: &'r [Value]) -> Vec<Cell<'r>> {
        self.shape.columns.iter().map(|column| row[column.at].as_cell()).collect()
    }

    fn is(&self, row: &[Value], key: &[Cell<'_>]) -> bool {
        let parts = self.shape.key.iter().map(|at| &self.shape.columns[*at]).zip(key);
        parts
            .into_iter()
            .all(|(column, part)| order::compare(column.kind, row[column.at].as_cell(), *part).is_eq())
    }

    fn set(&self, row: &mut [Value], cells: &[(usize, Cell<'_>)]) -> Result<(), WriteFault> {
        for (at, cell) in cells {
            let column = &self.shape.columns[*at];
            if let Cell::Text(text) = cell
                && text.contains('\0')
            {
                let why = "a text here cannot have a NUL character".into();
                return Err(WriteFault::Refused { column: Some(*at), why });
            }
            row[column.at] = match cell {
                Cell::Text(text) if column.name == "loose" && text.parse::<i64>().is_ok() => {
                    Value::Integer(text.parse().expect("just parsed"))
                }
                cell => cell.to_value(),
            };
        }
        Ok(())
    }
}

impl Reader for Opened {
    fn is_short(&self, read: &Read<'_>) -> bool {
        matches!(read, Read::Get)
    }

    fn get(&self, key: &[Cell<'_>], row: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool, SourceFault> {
        let state = self.table.state();
        let found = state.rows.iter().find(|one| self.is(one, key));
        if let Some(found) = found {
            row(&self.cells(found));
        }
        Ok(found.is_some())
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
    ) -> Result<Option<u64>, SourceFault> {
        if let Some(progress) = query.progress {
            progress.fetch_add(1000, Ordering::Relaxed);
        }
        self.table.linger(query.stop)?;
        let state = self.table.state();
        for one in &state.rows {
            if row(&self.cells(one), Place::default()) == More::No {
                break;
            }
        }
        Ok(Some(state.rows.len() as u64))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<Searched, SourceFault> {
        let state = self.table.state();
        for one in state.rows.iter().take(search.scan_rows_max) {
            let cells = self.cells(one);
            let has = |word: &&str| {
                search.columns.iter().any(|at| match cells[*at] {
                    Cell::Text(text) => text.to_lowercase().contains(&word.to_lowercase()),
                    _ => false,
                })
            };
            if search.words.iter().all(has) && row(&cells) == More::No {
                return Ok(Searched::All);
            }
        }
        Ok(if state.rows.len() > search.scan_rows_max { Searched::Cut } else { Searched::All })
    }
}

impl Writer for Opened {
    fn write(&self, write: &Write<'_>, clerk: &mut dyn Clerk) -> Result<Written, WriteFault> {
        self.table.linger(write.stop)?;
        if let Change::Create { cells } = &write.change
            && cells.contains(&(1, Cell::Text("unsure")))
        {
            return Err(WriteFault::Unconfirmed {
                told: "the disk did not confirm it".into(),
                log: "fsync".into(),
            });
        }
        let mut state = self.table.state();
        if let Some(replayed) = claimed(&state, write.claim)? {
            return Ok(replayed);
        }
        let mut rows = state.rows.clone();
        let place = |key: &[Cell<'_>]| {
            state.rows.iter().position(|row| self.is(row, key)).ok_or(WriteFault::NotFound)
        };
        let told = match &write.change {
            Change::Create { cells } => {
                let mut row = vec![Value::Null; COLUMNS.len()];
                row[12] = Value::Integer(0);
                self.set(&mut row, cells)?;
                let key: Vec<Cell<'_>> =
                    self.shape.key.iter().map(|at| row[self.shape.columns[*at].at].as_cell()).collect();
                if state.rows.iter().any(|other| self.is(other, &key)) {
                    return Err(WriteFault::Exists);
                }
                let told = clerk.after(&self.cells(&row));
                rows.push(row);
                told
            }
            Change::Update { key, cells } => {
                let row = &mut rows[place(key)?];
                let more = clerk.before(&self.cells(row)).map_err(|_| WriteFault::Stale)?;
                let more: Vec<(usize, Cell<'_>)> =
                    more.iter().map(|(at, value)| (*at, value.as_cell())).collect();
                self.set(row, cells)?;
                self.set(row, &more)?;
                clerk.after(&self.cells(row))
            }
            Change::Delete { key } => {
                let row = rows.remove(place(key)?);
                clerk.before(&self.cells(&row)).map_err(|_| WriteFault::Stale)?;
                clerk.after(&self.cells(&row))
            }
        };
        let told = told.map_err(|_| WriteFault::Unwritable)?;
        if !write.dry_run {
            keep(&mut state, rows, write.claim, told);
        }
        Ok(Written::Done)
    }
}

fn claimed(state: &State, claim: Option<Claim>) -> Result<Option<Written>, WriteFault> {
    let Some(claim) = claim else { return Ok(None) };
    match state.claims.get(&claim.id) {
        Some((same, told)) if same.asked == claim.asked => Ok(Some(Written::Replayed(told.clone()))),
        Some(_) => Err(WriteFault::ClaimedOtherwise),
        None => Ok(None),
    }
}

fn keep(state: &mut State, rows: Vec<Vec<Value>>, claim: Option<Claim>, told: Vec<u8>) {
    state.rows = rows;
    state.writes += 1;
    if let Some(claim) = claim {
        state.claims.insert(claim.id, (claim, told));
    }
}

fn shown(key: &Value) -> u8 {
    match key.as_cell() {
        Cell::Text(text) => text.bytes().next().unwrap_or(0),
        Cell::Null | Cell::Integer(_) | Cell::Real(_) | Cell::Blob(_) => 0,
    }
}

struct Ready {
    table: Table,
    shape: StatementShape,
}

impl Prepared for Ready {
    fn is_short(&self) -> bool {
        true
    }

    fn read(
        &self,
        arguments: &[Cell<'_>],
        _: Option<&AtomicBool>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
    ) -> Result<(), SourceFault> {
        let state = self.table.state();
        let mut counts: Vec<(&Value, i64)> = Vec::new();
        for one in state.rows.iter().map(|row| &row[1]) {
            match counts.iter_mut().find(|(name, _)| *name == one) {
                Some((_, count)) => *count += 1,
                None => counts.push((one, 1)),
            }
        }
        for (name, count) in counts {
            let wanted = arguments[0] == Cell::Null || arguments[0] == name.as_cell();
            if wanted && row(&[name.as_cell(), Cell::Integer(count)]) == More::No {
                break;
            }
        }
        Ok(())
    }

    fn write(
        &self,
        arguments: &[Cell<'_>],
        terms: &StatementTerms<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> More,
        told: &mut dyn FnMut(&Changes) -> Result<Vec<u8>, Unwritable>,
    ) -> Result<Written, WriteFault> {
        self.table.linger(terms.stop)?;
        if arguments[1] == Cell::Text("007") {
            return Err(WriteFault::Refused { column: Some(1), why: "it would be kept as 7".into() });
        }
        let mut state = self.table.state();
        if let Some(replayed) = claimed(&state, terms.claim)? {
            return Ok(replayed);
        }
        let mut rows = state.rows.clone();
        let changed: Vec<&mut Vec<Value>> =
            rows.iter_mut().filter(|row| row[1].as_cell() == arguments[0]).collect();
        let count = changed.len() as u64;
        // A row is told by the first letter of its key.
        let ids: Vec<u8> = changed.iter().map(|row| shown(&row[0])).collect();
        let mut more = More::Yes;
        for one in changed {
            one[1] = arguments[1].to_value();
            if more == More::Yes {
                more = row(&[one[0].as_cell()]);
            }
        }
        if count > self.shape.changes_max {
            return Err(WriteFault::TooMany { rows: count, most: self.shape.changes_max });
        }
        let which = (terms.which == Which::Told).then(|| {
            let mut which = [0; 32];
            for (byte, id) in which.iter_mut().zip(ids) {
                *byte = id;
            }
            which
        });
        let kept = told(&Changes { rows: count, which }).map_err(|_| WriteFault::Unwritable)?;
        if !terms.dry_run {
            keep(&mut state, rows, terms.claim, kept);
        }
        Ok(Written::Done)
    }
}
