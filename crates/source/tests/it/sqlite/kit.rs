//! A database in a folder of its own, and reading it as a contract would.

use std::path::PathBuf;
use std::sync::Arc;

use contract::source::{
    Facts, Filter, More, Place, Position, Query, Reader, Shape, ShapeColumn, Sort, Source, SourceFault,
    TableFacts, Test,
};
use contract::{Cell, Value};
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

pub(super) fn shape(facts: &TableFacts) -> Shape {
    let columns = facts.columns.iter().enumerate().map(|(at, column)| ShapeColumn {
        at,
        name: column.name.clone(),
        kind: column.kind,
        nullable: column.nullable,
        mixed: column.mixed,
        null: None,
    });
    Shape { table: facts.name.clone(), columns: columns.collect(), key: facts.key.clone() }
}

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
