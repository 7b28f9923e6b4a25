//! Which values survive a round trip exactly, in which kind of file. The tables in `docs/types.md` are the
//! results.
//!
//! The real writer writes a value and the real reader reads it back: it must equal the original, or the write
//! must be refused with a reason. A value that another program wrote is read as it is, as a text that spells
//! it, or not at all. With `GOLDEN=write` in the environment, the test writes the tables; read the diff.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod declared;
mod fixtures;
mod published;
mod values;

use std::path::{Path, PathBuf};

use contract::field::Field;
use contract::source::{
    ColumnShape, Query, Reader, RowChange, RowFlow, Source, SourceError, TableShape, WriteError,
};
use contract::{DataType, ValueRef};
use tempfile::TempDir;

use crate::driver::{WriteOutcome, WriteRow};
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
            null_texts: Vec::new(),
            format: None,
        };
        TableShape { table: TABLE.to_owned(), columns: vec![key, column], key: vec![0] }
    }

    /// The shape with a declared type.
    fn declared(&self, kind: DataType) -> TableShape {
        let null = self.variant.null.map(str::to_owned);
        self.shape(ColumnShape {
            source_index: 1,
            name: "v".to_owned(),
            data_type: kind,
            nullable: true,
            mixed: false,
            null_texts: null.into_iter().collect(),
            format: None,
        })
    }

    /// The shape with the inferred type.
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
            null_texts: self.variant.null.map(str::to_owned).into_iter().collect(),
            format: column.format.clone(),
        }))
    }

    /// The JSON of a row's value, read by a new source.
    fn read_json(&self, shape: &TableShape, key: &str) -> Result<Option<String>, String> {
        let reader = self.open().reader(shape).map_err(|error| error.to_string())?;
        read_json(reader.as_ref(), shape, key)
    }
}

/// The JSON of a row's value, by key and from a list; or the error.
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
        .map_err(|error| error.to_string())?;
    let mut listed = None;
    let query = Query { rows_max: 100, ..Query::default() };
    let list = reader.list(&query, &mut |cells, _| {
        if cells[0] == ValueRef::Text(key) {
            listed = Some(json(cells[1]));
        }
        RowFlow::Continue
    });
    list.map_err(|error| error.to_string())?;
    assert_eq!(got, listed, "a row is told in one way");
    got.transpose()
}

/// Writes a value as a new row, and into an existing one.
fn write_outcome(store: Store, case: &Case, way: &ColumnVariant) -> RoundTrip {
    let fixture = StoreFixture::new(store, way);
    let (source, shape) = (fixture.open(), fixture.declared(case.kind));
    let reader = source.reader(&shape).unwrap();
    let writer = source.writer(&shape).unwrap();
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let before = std::fs::read(&fixture.path).unwrap();
    let cells = [(0, ValueRef::Text("new")), (1, case.value.as_value_ref())];
    let create = RowChange::Create { values: &cells };
    let update = RowChange::Update { key: &[ValueRef::Text("old")], values: &cells[1..] };
    let outcomes = [(create, "new"), (update, "old")].map(|(change, key)| {
        match writer.write(&plain_write(change), &mut RecordingChecks::default()) {
            Ok(WriteOutcome::Done) => {
                // Read by the open source, and by a new one.
                for read in [read_json(reader.as_ref(), &shape, key), fixture.read_json(&shape, key)] {
                    let read = read.unwrap_or_else(|cause| panic!("{}: {cause}", what()));
                    assert_eq!(read, case.expected_json, "{}: changed silently", what());
                }
                RoundTrip::Exact
            }
            Ok(WriteOutcome::Replayed(_)) => panic!("{}: there was no claim", what()),
            Err(WriteError::Rejected { reason: cause, .. }) => {
                assert_eq!(std::fs::read(&fixture.path).unwrap(), before, "{}: refused and written", what());
                RoundTrip::Rejected(cause)
            }
            Err(error) => panic!("{}: {error}", what()),
        }
    });
    let [created, updated] = outcomes;
    assert_eq!(created, updated, "{}", what());
    created
}

/// What is read of a value that another program wrote.
fn read_outcome(store: Store, case: &Case, way: &ColumnVariant) -> String {
    let fixture = StoreFixture::new(store, way);
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let declared = fixture.read_json(&fixture.declared(case.kind), "old");
    let is_exact = match &declared {
        Ok(message) => *message == case.expected_json,
        Err(_) => false,
    };
    let mut text = Vec::new();
    json::write::string(&mut text, way.expected_text);
    let text = String::from_utf8(text).unwrap();
    let inferred = match fixture.inferred() {
        Ok(shape) => fixture.read_json(&shape, "old"),
        Err(error) => Err(error.to_string()),
    };
    match inferred {
        Ok(message) if message == case.expected_json => "exact".to_owned(),
        Ok(Some(message)) if message == text && is_exact => format!("as text; {}", exact_as(case.kind)),
        Ok(Some(message)) if message == way.expected_text && is_exact => {
            format!("`{message}`; {}", exact_as(case.kind))
        }
        Ok(Some(message)) if message == text || message == way.expected_text => format!("`{message}`"),
        Ok(message) => panic!("{}: told as {message:?}, which it is not", what()),
        Err(cause) => format!("not read: {cause}"),
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

/// Every value that is written survives exactly or is refused.
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
        // The types that these two must support; where SQLite has no place for a value in one column, another
        // column has.
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

/// Every existing value is read as it is, as a text that spells it, or not at all.
fn existing_table() -> PublishedTable {
    let mut published = PublishedTable::new("found");
    for case in values::all() {
        let cells = Store::ALL.map(|store| {
            let message = fixtures::existing_variants(store, case.name).into_iter().map(|way| {
                let message = read_outcome(store, &case, &way);
                if way.column.is_empty() { message } else { format!("{}: {message}", way.column) }
            });
            let message: Vec<String> = message.collect();
            if message.is_empty() { "has none".to_owned() } else { message.join("; ") }
        });
        published.push_row(case.name, &cells);
    }
    published
}

/// Where the tables are published.
fn types_doc_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/types.md")
}
