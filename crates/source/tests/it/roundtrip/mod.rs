//! Which values survive exactly, in which kind of file. The tables in `docs/types.md` are what these tests found.
//!
//! A value is written by the real writer, read back by the real reader and told as the contract tells it: either as
//! it was said, or nothing was written and there is a reason. What other programs wrote is told as it is, as a text
//! that says it, or not at all. With `GOLDEN=write` in the environment the tables are written down, to be read in
//! the diff.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod declared;
mod fixtures;
mod published;
mod values;

use std::path::{Path, PathBuf};

use contract::field::Field;
use contract::source::{
    ColumnShape, Query, Reader, RowChange, RowFlow, Source, SourceError, TableShape, WriteError, WriteOutcome,
};
use contract::{DataType, ValueRef};
use tempfile::TempDir;

use crate::write_checks::{RecordingChecks, plain_write};
use fixtures::{ColumnVariant, Store, TABLE};
use published::{PublishedTable, StoreOutcomes};
use values::Case;

/// What became of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RoundTrip {
    Exact,
    Rejected(String),
}

/// One file with one column of values.
struct StoreFixture<'a> {
    store: Store,
    variant: &'a ColumnVariant,
    path: PathBuf,
    _folder: TempDir,
}

impl<'a> StoreFixture<'a> {
    fn new(store: Store, variant: &'a ColumnVariant) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(store.file());
        store.make(&path, variant);
        Self { store, variant, path, _folder: folder }
    }

    fn open(&self) -> Box<dyn Source> {
        self.store.open(&self.path, self.variant)
    }

    fn shape(&self, column: ColumnShape) -> TableShape {
        let key = ColumnShape {
            source_index: 0,
            name: "k".to_owned(),
            data_type: DataType::Text,
            nullable: false,
            mixed: false,
            null_text: None,
        };
        TableShape { table: TABLE.to_owned(), columns: vec![key, column], key: vec![0] }
    }

    /// As an author declares it.
    fn declared(&self, kind: DataType) -> TableShape {
        let null = self.variant.null.map(str::to_owned);
        self.shape(ColumnShape {
            source_index: 1,
            name: "v".to_owned(),
            data_type: kind,
            nullable: true,
            mixed: false,
            null_text: null,
        })
    }

    /// As it is found.
    fn inferred(&self) -> Result<TableShape, SourceError> {
        let facts = self.open().introspect()?;
        let table = facts.tables.into_iter().find(|table| table.name == TABLE).expect("the table");
        let column = &table.columns[1];
        Ok(self.shape(ColumnShape {
            source_index: 1,
            name: column.name.clone(),
            data_type: column.data_type,
            nullable: column.nullable,
            mixed: column.mixed,
            null_text: self.variant.null.map(str::to_owned),
        }))
    }

    /// What is told of a row, by somebody who opens the file now.
    fn read_json(&self, shape: &TableShape, key: &str) -> Result<Option<String>, String> {
        let reader = self.open().reader(shape).map_err(|fault| fault.to_string())?;
        read_json(reader.as_ref(), shape, key)
    }
}

/// The JSON of a row's value, by its key and in a list; why it is not told.
fn read_json(reader: &dyn Reader, shape: &TableShape, key: &str) -> Result<Option<String>, String> {
    let column = &shape.columns[1];
    let mut field = Field::new(&column.name, &column.name, column.data_type);
    (field.nullable, field.mixed) = (column.nullable, column.mixed);
    let json = |cell: ValueRef<'_>| {
        let mut out = Vec::new();
        field.write_value(&mut out, cell).map_err(|_| format!("not `{}`", column.data_type.as_str()))?;
        Ok(String::from_utf8(out).unwrap())
    };
    let mut got = None;
    reader
        .get(&[ValueRef::Text(key)], &mut |cells| got = Some(json(cells[1])))
        .map_err(|fault| fault.to_string())?;
    let mut listed = None;
    let query = Query { rows_max: 100, ..Query::default() };
    let list = reader.list(&query, &mut |cells, _| {
        if cells[0] == ValueRef::Text(key) {
            listed = Some(json(cells[1]));
        }
        RowFlow::Continue
    });
    list.map_err(|fault| fault.to_string())?;
    assert_eq!(got, listed, "a row is told in one way");
    got.transpose()
}

/// Writes a value as a new row and into an old one.
fn write_outcome(store: Store, case: &Case, way: &ColumnVariant) -> RoundTrip {
    let kept = StoreFixture::new(store, way);
    let (source, shape) = (kept.open(), kept.declared(case.kind));
    let reader = source.reader(&shape).unwrap();
    let writer = source.writer(&shape).unwrap();
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let before = std::fs::read(&kept.path).unwrap();
    let cells = [(0, ValueRef::Text("new")), (1, case.value.as_value_ref())];
    let create = RowChange::Create { values: &cells };
    let update = RowChange::Update { key: &[ValueRef::Text("old")], values: &cells[1..] };
    let fates = [(create, "new"), (update, "old")].map(|(change, key)| {
        match writer.write(&plain_write(change), &mut RecordingChecks::default()) {
            Ok(WriteOutcome::Done) => {
                // By who has it open, and by who opens it.
                for read in [read_json(reader.as_ref(), &shape, key), kept.read_json(&shape, key)] {
                    let read = read.unwrap_or_else(|why| panic!("{}: {why}", what()));
                    assert_eq!(read, case.expected_json, "{}: changed silently", what());
                }
                RoundTrip::Exact
            }
            Ok(WriteOutcome::Replayed(_)) => panic!("{}: there was no claim", what()),
            Err(WriteError::Rejected { reason: why, .. }) => {
                assert_eq!(std::fs::read(&kept.path).unwrap(), before, "{}: refused and written", what());
                RoundTrip::Rejected(why)
            }
            Err(fault) => panic!("{}: {fault}", what()),
        }
    });
    let [created, updated] = fates;
    assert_eq!(created, updated, "{}", what());
    created
}

/// What is told of a value that another program wrote.
fn read_outcome(store: Store, case: &Case, way: &ColumnVariant) -> String {
    let kept = StoreFixture::new(store, way);
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let declared = kept.read_json(&kept.declared(case.kind), "old");
    let is_exact = match &declared {
        Ok(told) => *told == case.expected_json,
        Err(_) => false,
    };
    let mut text = Vec::new();
    json::write::string(&mut text, way.expected_text);
    let text = String::from_utf8(text).unwrap();
    let inferred = match kept.inferred() {
        Ok(shape) => kept.read_json(&shape, "old"),
        Err(fault) => Err(fault.to_string()),
    };
    match inferred {
        Ok(told) if told == case.expected_json => "exact".to_owned(),
        Ok(Some(told)) if told == text && is_exact => format!("as text; {}", exact_as(case.kind)),
        Ok(Some(told)) if told == way.expected_text && is_exact => {
            format!("`{told}`; {}", exact_as(case.kind))
        }
        Ok(Some(told)) if told == text || told == way.expected_text => format!("`{told}`"),
        Ok(told) => panic!("{}: told as {told:?}, which it is not", what()),
        Err(why) => format!("not read: {why}"),
    }
}

fn exact_as(kind: DataType) -> String {
    format!("exact with `as = \"{}\"`", kind.as_str())
}

#[test]
fn values_survive_as_published() {
    written_table().check();
    existing_table().check();
    published::kinds().check();
}

/// What is written survives exactly or is refused.
fn written_table() -> PublishedTable {
    let mut published = PublishedTable::new("survives");
    for case in values::all() {
        let cells = Store::ALL.map(|store| {
            let mut cells = StoreOutcomes::default();
            for way in fixtures::variants_for_kind(store, case.kind) {
                cells.add(way.column, write_outcome(store, &case, &way));
            }
            cells
        });
        // What is promised of these two at the least; where SQLite itself has no place for it, another column has.
        if !["Infinity", "NaN", "NUL in a text"].contains(&case.name) {
            for store in [Store::Sqlite, Store::Lines] {
                let at = Store::ALL.iter().position(|one| *one == store).unwrap();
                assert!(cells[at].has_exact(), "{} {}", store.name(), case.name);
            }
        }
        published.push_outcomes(case.name, &cells);
    }
    published
}

/// What others wrote is told as it is, as a text that says it, or not at all.
fn existing_table() -> PublishedTable {
    let mut published = PublishedTable::new("found");
    for case in values::all() {
        let cells = Store::ALL.map(|store| {
            let told = fixtures::existing_variants(store, case.name).into_iter().map(|way| {
                let told = read_outcome(store, &case, &way);
                if way.column.is_empty() { told } else { format!("{}: {told}", way.column) }
            });
            let told: Vec<String> = told.collect();
            if told.is_empty() { "has none".to_owned() } else { told.join("; ") }
        });
        published.push_row(case.name, &cells);
    }
    published
}

/// Where the tables are published.
fn types_doc_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/types.md")
}
