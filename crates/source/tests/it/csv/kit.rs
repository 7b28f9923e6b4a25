//! A CSV file to read and write, and rows in a form that tests can compare.

use std::path::PathBuf;
use std::sync::Arc;

use contract::ValueRef;
use contract::source::{
    Query, Reader, RowFlow, Source, SourceError, SourceFacts, TableFacts, TableOptions, TableShape, Total,
};
use source::csv::{Csv, Options};
use tempfile::TempDir;

/// Values as texts; `None` for no value.
pub type Row = Vec<Option<String>>;

/// One file in a folder of its own.
pub struct TestFile {
    _folder: TempDir,
    pub path: PathBuf,
}

impl TestFile {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { path: folder.path().join(name), _folder: folder };
        disk.write(content);
        disk
    }

    pub fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(&self.path, content).unwrap();
    }

    /// Checks the file for changes at every call.
    pub fn csv(&self) -> Csv {
        self.csv_with(None, None)
    }

    pub fn csv_with(&self, delimiter: Option<u8>, null: Option<&str>) -> Csv {
        let null_texts = null.map(str::to_owned).into_iter().collect();
        let table = TableOptions { null_texts, ..TableOptions::default() };
        Csv::open(&self.path, Options { delimiter, table, poll_interval_ms: 0, ..Options::default() })
    }
}

pub fn table(content: impl AsRef<[u8]>) -> TableFacts {
    only_table(TestFile::new("people.csv", content).csv().introspect().unwrap())
}

pub fn only_table(mut facts: SourceFacts) -> TableFacts {
    assert_eq!(facts.tables.len(), 1);
    facts.tables.remove(0)
}

/// The shape of a contract that changes nothing.
pub fn shape(csv: &Csv) -> TableShape {
    crate::shape::shape_of(&only_table(csv.introspect().unwrap()))
}

pub fn reader(csv: &Csv) -> Arc<dyn Reader> {
    csv.reader(&shape(csv)).unwrap()
}

pub fn row(cells: &[ValueRef<'_>]) -> Row {
    let text = |cell: &ValueRef<'_>| match *cell {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(text.to_owned()),
        other => panic!("a CSV has no {other:?}"),
    };
    cells.iter().map(text).collect()
}

pub fn list(reader: &dyn Reader, query: &Query<'_>) -> Result<(Vec<Row>, Option<u64>), SourceError> {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, _| {
        rows.push(row(cells));
        RowFlow::Continue
    })?;
    Ok((rows, total.and_then(Total::exact)))
}

pub fn query_all<'a>() -> Query<'a> {
    Query { rows_max: usize::MAX, ..Query::default() }
}

pub fn all_rows(reader: &dyn Reader) -> Vec<Row> {
    list(reader, &query_all()).unwrap().0
}

pub fn get(reader: &dyn Reader, key: &[ValueRef<'_>]) -> Result<Option<Row>, SourceError> {
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
