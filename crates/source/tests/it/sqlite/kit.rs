//! A database in a folder of its own, and reading it as a contract would.

use std::path::PathBuf;
use std::sync::Arc;

use contract::source::{
    BadStatement, Change, Claim, Clerk, Facts, Filter, More, Place, Position, Prepared, Query, Reader,
    Search, Searched, Sort, Source, SourceFault, Stale, StatementFacts, StatementShape, StatementTerms,
    TableFacts, Test, Unwritable, Which, Write, WriteFault, Writer, Written,
};
use contract::{Cell, Kind, Value};
use rusqlite::Connection;
use source::sqlite::{Options, Sqlite};

pub(super) struct Db {
    pub(super) folder: tempfile::TempDir,
    pub(super) path: PathBuf,
}

impl Db {
    pub(super) fn new(sql: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Self { path: folder.path().join("shop.db"), folder };
        db.write(sql);
        db
    }

    pub(super) fn writer(&self) -> Connection {
        Connection::open(&self.path).expect("a database")
    }

    pub(super) fn write(&self, sql: &str) {
        self.writer().execute_batch(sql).expect("valid SQL");
    }

    pub(super) fn source(&self) -> Sqlite {
        Sqlite::new(&self.path, Options::default())
    }

    pub(super) fn facts(&self) -> Facts {
        self.source().facts().expect("facts")
    }

    /// One table, compiled as it is now.
    pub(super) fn reader(&self, table: &str) -> (TableFacts, Arc<dyn Reader>) {
        let source = self.source();
        let facts = source.facts().expect("facts");
        let facts = facts.tables.into_iter().find(|facts| facts.name == table).expect("the table");
        let reader = source.reader(&shape(&facts)).expect("a reader");
        (facts, reader)
    }

    pub(super) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path()).expect("a folder");
        let mut names: Vec<String> =
            files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// One table, to write to and to read.
pub(super) struct Desk {
    pub(super) facts: TableFacts,
    pub(super) reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
}

/// A clerk who writes down the row, and may object or add to it.
#[derive(Default)]
pub(super) struct Notary {
    pub(super) is_stale: bool,
    pub(super) is_unwritable: bool,
    pub(super) adds: Vec<(usize, Value)>,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Clerk for Notary {
    fn before(&mut self, row: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        self.before = Some(line(row));
        if self.is_stale { Err(Stale) } else { Ok(self.adds.clone()) }
    }

    fn after(&mut self, row: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        let line = line(row);
        self.after = Some(line.clone());
        if self.is_unwritable { Err(Unwritable) } else { Ok(line.into_bytes()) }
    }
}

/// A row as SQL writes it.
pub(super) fn line(row: &[Cell<'_>]) -> String {
    row.iter().map(|cell| shown(&cell.to_value())).collect::<Vec<_>>().join(" ")
}

pub(super) fn claim(id: u8, asked: u8) -> Option<Claim> {
    Some(Claim { id: [id; 32], asked: [asked; 32] })
}

impl Desk {
    pub(super) fn new(db: &Db, table: &str) -> Self {
        Self::of(&db.source(), table)
    }

    pub(super) fn of(source: &Sqlite, table: &str) -> Self {
        Self::try_of(source, table).expect("a table")
    }

    pub(super) fn try_of(source: &Sqlite, table: &str) -> Result<Self, SourceFault> {
        let facts = source.facts()?.tables;
        let facts = facts.into_iter().find(|facts| facts.name == table).expect("the table");
        let shape = shape(&facts);
        let reader = source.reader(&shape)?;
        Ok(Self { reader, writer: source.writer(&shape)?, facts })
    }

    pub(super) fn place(&self, column: &str) -> usize {
        self.facts.columns.iter().position(|known| known.name == column).expect("the column")
    }

    pub(super) fn write(&self, write: &Write<'_>, clerk: &mut dyn Clerk) -> Result<Written, WriteFault> {
        self.writer.write(write, clerk)
    }

    /// What is told of a change, or why it was not made.
    pub(super) fn change(&self, change: Change<'_>) -> String {
        self.change_with(change, None, &mut Notary::default())
    }

    pub(super) fn change_with(
        &self,
        change: Change<'_>,
        claim: Option<Claim>,
        notary: &mut Notary,
    ) -> String {
        let write = Write { change, claim, dry_run: false, now_ms: 1_000, stop: None };
        match self.write(&write, notary) {
            Ok(Written::Done) => notary.after.clone().expect("told"),
            Ok(Written::Replayed(told)) => format!("again: {}", String::from_utf8(told).expect("text")),
            Err(fault) => self.said(&fault),
        }
    }

    pub(super) fn said(&self, fault: &WriteFault) -> String {
        match fault {
            WriteFault::Refused { column: Some(at), why } => {
                format!("`{}`: {why}", self.facts.columns[*at].name)
            }
            fault => fault.to_string(),
        }
    }

    pub(super) fn create(&self, cells: &[(&str, Cell<'_>)]) -> String {
        let cells = self.cells(cells);
        self.change(Change::Create { cells: &cells })
    }

    pub(super) fn update(&self, key: &[Cell<'_>], cells: &[(&str, Cell<'_>)]) -> String {
        let cells = self.cells(cells);
        self.change(Change::Update { key, cells: &cells })
    }

    pub(super) fn delete(&self, key: &[Cell<'_>]) -> String {
        self.change(Change::Delete { key })
    }

    pub(super) fn cells<'a>(&self, cells: &[(&str, Cell<'a>)]) -> Vec<(usize, Cell<'a>)> {
        cells.iter().map(|(name, cell)| (self.place(name), *cell)).collect()
    }

    pub(super) fn get(&self, key: &[Cell<'_>]) -> Option<Vec<Value>> {
        get(self.reader.as_ref(), key).expect("no fault")
    }
}

pub(super) fn search(
    reader: &dyn Reader,
    words: &[&str],
    columns: &[usize],
    scan_rows_max: usize,
) -> (Vec<Vec<Value>>, Searched) {
    let search =
        Search { words: words.to_vec(), columns, rows_max: 100, scan_rows_max, stop: None, progress: None };
    let mut rows = Vec::new();
    let searched = reader.search(&search, &mut |cells| {
        rows.push(cells.iter().map(|cell| cell.to_value()).collect());
        More::Yes
    });
    (rows, searched.expect("no fault"))
}

/// A statement as a contract runs it.
pub(super) fn statement_shape(sql: &str, facts: &StatementFacts, changes_max: u64) -> StatementShape {
    StatementShape {
        sql: sql.to_owned(),
        parameters: facts.parameters.clone(),
        kinds: vec![Kind::Text; facts.parameters.len()],
        columns: crate::shape::columns(&facts.columns),
        writes: facts.writes,
        changes_max,
        time_ms: None,
    }
}

pub(super) fn prepared(source: &Sqlite, sql: &str) -> Result<Arc<dyn Prepared>, BadStatement> {
    let facts = source.examine(sql)?;
    Ok(source.prepare(&statement_shape(sql, &facts, 10)).expect("a statement that was examined"))
}

/// The rows that a statement gives, a line each.
pub(super) fn rows_of(statement: &dyn Prepared, arguments: &[Cell<'_>]) -> Result<Vec<String>, SourceFault> {
    let mut rows = Vec::new();
    statement.read(arguments, None, &mut |cells| {
        rows.push(line(cells));
        More::Yes
    })?;
    Ok(rows)
}

/// What a statement that writes tells.
pub(super) fn ran(
    statement: &dyn Prepared,
    arguments: &[Cell<'_>],
    terms: &StatementTerms<'_>,
) -> Result<(Vec<String>, Written, Option<u64>), WriteFault> {
    let (mut rows, mut changed) = (Vec::new(), None);
    let written = statement.write(
        arguments,
        terms,
        &mut |cells| {
            rows.push(line(cells));
            More::Yes
        },
        &mut |changes| {
            changed = Some(changes.rows);
            Ok(format!("{} changed", changes.rows).into_bytes())
        },
    )?;
    Ok((rows, written, changed))
}

pub(super) fn terms(claim: Option<Claim>) -> StatementTerms<'static> {
    StatementTerms { which: Which::Any, claim, dry_run: false, now_ms: 1_000, stop: None }
}

pub(super) use crate::shape::of as shape;

pub(super) fn get(reader: &dyn Reader, key: &[Cell<'_>]) -> Result<Option<Vec<Value>>, SourceFault> {
    let mut found = None;
    let is_there =
        reader.get(key, &mut |cells| found = Some(cells.iter().map(|cell| cell.to_value()).collect()))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

pub(super) type Row = (Vec<Value>, Place);

pub(super) fn list(reader: &dyn Reader, query: &Query<'_>) -> Result<(Vec<Row>, Option<u64>), SourceFault> {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, place| {
        rows.push((cells.iter().map(|cell| cell.to_value()).collect(), place));
        if rows.len() == query.rows_max { More::No } else { More::Yes }
    })?;
    Ok((rows, total))
}

/// All rows, without what is not a value.
pub(super) fn all(reader: &dyn Reader) -> Vec<Vec<Value>> {
    let query = Query { rows_max: 1000, ..Query::default() };
    list(reader, &query).expect("rows").0.into_iter().map(|(row, _)| row).collect()
}

pub(super) fn equals(column: usize, value: Cell<'_>) -> Filter<'_> {
    Filter { column, test: Test::Equals, value }
}

pub(super) fn by(column: usize, descending: bool) -> Option<Sort> {
    Some(Sort { column, descending })
}

/// Where a page ended.
pub(super) fn position(row: &Row, sort: Option<Sort>, key: &[usize]) -> Position {
    let (values, place) = row;
    let sorted = sort.map(|sort| values[sort.column].clone());
    let key = match key {
        [] => vec![Value::Integer(place.row), Value::Integer(place.state)],
        key => key.iter().map(|at| values[*at].clone()).collect(),
    };
    Position { sorted, key }
}

/// `1`, `1.5`, `'a'`, `x'07'`, as SQL writes them.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => format!("{n:?}"),
        Value::Text(text) => format!("'{text}'"),
        Value::Blob(bytes) => bytes.iter().fold(String::from("x"), |out, byte| format!("{out}{byte:02x}")),
    }
}

pub(super) fn told(fault: &SourceFault) -> String {
    fault.to_string()
}
