//! A file to write and to read, and rows as tests compare them.

use std::path::PathBuf;
use std::sync::Arc;

use contract::Cell;
use contract::source::{Facts, More, Query, Reader, Shape, Source, SourceFault, TableFacts};
use source::csv::{Csv, Options};
use tempfile::TempDir;

/// Cells as text; no value is `None`.
pub type Row = Vec<Option<String>>;

/// One file in a folder of its own.
pub struct Disk {
    _folder: TempDir,
    pub path: PathBuf,
}

impl Disk {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { path: folder.path().join(name), _folder: folder };
        disk.write(content);
        disk
    }

    pub fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(&self.path, content).unwrap();
    }

    /// Looks at the file before every answer.
    pub fn csv(&self) -> Csv {
        self.csv_with(None, None)
    }

    pub fn csv_with(&self, delimiter: Option<u8>, null: Option<&str>) -> Csv {
        let null = null.map(str::to_owned);
        Csv::open(&self.path, Options { delimiter, null, look_every_ms: 0, ..Options::default() })
    }
}

pub fn table(content: impl AsRef<[u8]>) -> TableFacts {
    only(Disk::new("people.csv", content).csv().facts().unwrap())
}

pub fn only(mut facts: Facts) -> TableFacts {
    assert_eq!(facts.tables.len(), 1);
    facts.tables.remove(0)
}

/// The shape a contract would have that changes nothing.
pub fn shape(csv: &Csv) -> Shape {
    crate::shape::of(&only(csv.facts().unwrap()))
}

pub fn reader(csv: &Csv) -> Arc<dyn Reader> {
    csv.reader(&shape(csv)).unwrap()
}

pub fn row(cells: &[Cell<'_>]) -> Row {
    let text = |cell: &Cell<'_>| match *cell {
        Cell::Null => None,
        Cell::Text(text) => Some(text.to_owned()),
        other => panic!("a CSV has no {other:?}"),
    };
    cells.iter().map(text).collect()
}

pub fn list(reader: &dyn Reader, query: &Query<'_>) -> Result<(Vec<Row>, Option<u64>), SourceFault> {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, _| {
        rows.push(row(cells));
        More::Yes
    })?;
    Ok((rows, total))
}

pub fn everything<'a>() -> Query<'a> {
    Query { rows_max: usize::MAX, ..Query::default() }
}

pub fn all(reader: &dyn Reader) -> Vec<Row> {
    list(reader, &everything()).unwrap().0
}

pub fn get(reader: &dyn Reader, key: &[Cell<'_>]) -> Result<Option<Row>, SourceFault> {
    let mut found = None;
    let is_there = reader.get(key, &mut |cells| found = Some(row(cells)))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

/// Rows of texts, where `-` is no value.
pub fn rows(texts: &[&[&str]]) -> Vec<Row> {
    let cell = |text: &&str| (*text != "-").then(|| (*text).to_owned());
    texts.iter().map(|row| row.iter().map(cell).collect()).collect()
}
