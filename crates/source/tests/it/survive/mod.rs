//! Which values survive exactly, in which kind of file. The tables in `docs/types.md` are what these tests found.
//!
//! A value is written by the real writer, read back by the real reader and told as the contract tells it: either as
//! it was said, or nothing was written and there is a reason. What other programs wrote is told as it is, as a text
//! that says it, or not at all. With `GOLDEN=write` in the environment the tables are written down, to be read in
//! the diff.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod declared;
mod makers;
mod published;
mod values;

use std::path::{Path, PathBuf};

use contract::field::Field;
use contract::source::{
    Change, More, Query, Reader, Shape, ShapeColumn, Source, SourceFault, WriteFault, Written,
};
use contract::{Cell, Kind};
use tempfile::TempDir;

use crate::clerk::{Scribe, plain};
use makers::{Store, TABLE, Way};
use published::{Cells, Published};
use values::Case;

/// What became of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Exact,
    Refused(String),
}

/// One file with one column of values.
struct Kept<'a> {
    store: Store,
    way: &'a Way,
    path: PathBuf,
    _folder: TempDir,
}

impl<'a> Kept<'a> {
    fn new(store: Store, way: &'a Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(store.file());
        store.make(&path, way);
        Self { store, way, path, _folder: folder }
    }

    fn open(&self) -> Box<dyn Source> {
        self.store.open(&self.path, self.way)
    }

    fn shape(&self, column: ShapeColumn) -> Shape {
        let key = ShapeColumn {
            at: 0,
            name: "k".to_owned(),
            kind: Kind::Text,
            nullable: false,
            mixed: false,
            null: None,
        };
        Shape { table: TABLE.to_owned(), columns: vec![key, column], key: vec![0] }
    }

    /// As an author declares it.
    fn declared(&self, kind: Kind) -> Shape {
        let null = self.way.null.map(str::to_owned);
        self.shape(ShapeColumn { at: 1, name: "v".to_owned(), kind, nullable: true, mixed: false, null })
    }

    /// As it is found.
    fn inferred(&self) -> Result<Shape, SourceFault> {
        let facts = self.open().facts()?;
        let table = facts.tables.into_iter().find(|table| table.name == TABLE).expect("the table");
        let column = &table.columns[1];
        Ok(self.shape(ShapeColumn {
            at: 1,
            name: column.name.clone(),
            kind: column.kind,
            nullable: column.nullable,
            mixed: column.mixed,
            null: self.way.null.map(str::to_owned),
        }))
    }

    /// What is told of a row, by somebody who opens the file now.
    fn told(&self, shape: &Shape, key: &str) -> Result<Option<String>, String> {
        let reader = self.open().reader(shape).map_err(|fault| fault.to_string())?;
        told(reader.as_ref(), shape, key)
    }
}

/// The JSON of a row's value, by its key and in a list; why it is not told.
fn told(reader: &dyn Reader, shape: &Shape, key: &str) -> Result<Option<String>, String> {
    let column = &shape.columns[1];
    let mut field = Field::new(&column.name, &column.name, column.kind);
    (field.nullable, field.mixed) = (column.nullable, column.mixed);
    let json = |cell: Cell<'_>| {
        let mut out = Vec::new();
        field.value(&mut out, cell).map_err(|_| format!("not `{}`", column.kind.as_str()))?;
        Ok(String::from_utf8(out).unwrap())
    };
    let mut got = None;
    reader
        .get(&[Cell::Text(key)], &mut |cells| got = Some(json(cells[1])))
        .map_err(|fault| fault.to_string())?;
    let mut listed = None;
    let query = Query { rows_max: 100, ..Query::default() };
    let list = reader.list(&query, &mut |cells, _| {
        if cells[0] == Cell::Text(key) {
            listed = Some(json(cells[1]));
        }
        More::Yes
    });
    list.map_err(|fault| fault.to_string())?;
    assert_eq!(got, listed, "a row is told in one way");
    got.transpose()
}

/// Writes a value as a new row and into an old one.
fn written(store: Store, case: &Case, way: &Way) -> Fate {
    let kept = Kept::new(store, way);
    let (source, shape) = (kept.open(), kept.declared(case.kind));
    let reader = source.reader(&shape).unwrap();
    let writer = source.writer(&shape).unwrap();
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let before = std::fs::read(&kept.path).unwrap();
    let cells = [(0, Cell::Text("new")), (1, case.value.as_cell())];
    let create = Change::Create { cells: &cells };
    let update = Change::Update { key: &[Cell::Text("old")], cells: &cells[1..] };
    let fates = [(create, "new"), (update, "old")].map(|(change, key)| {
        match writer.write(&plain(change), &mut Scribe::default()) {
            Ok(Written::Done) => {
                // By who has it open, and by who opens it.
                for read in [told(reader.as_ref(), &shape, key), kept.told(&shape, key)] {
                    let read = read.unwrap_or_else(|why| panic!("{}: {why}", what()));
                    assert_eq!(read, case.told, "{}: changed silently", what());
                }
                Fate::Exact
            }
            Ok(Written::Replayed(_)) => panic!("{}: there was no claim", what()),
            Err(WriteFault::Refused { why, .. }) => {
                assert_eq!(std::fs::read(&kept.path).unwrap(), before, "{}: refused and written", what());
                Fate::Refused(why)
            }
            Err(fault) => panic!("{}: {fault}", what()),
        }
    });
    let [created, updated] = fates;
    assert_eq!(created, updated, "{}", what());
    created
}

/// What is told of a value that another program wrote.
fn read(store: Store, case: &Case, way: &Way) -> String {
    let kept = Kept::new(store, way);
    let what = || format!("{} {} {}", store.name(), way.column, case.name);
    let declared = kept.told(&kept.declared(case.kind), "old");
    let is_exact = match &declared {
        Ok(told) => *told == case.told,
        Err(_) => false,
    };
    let mut text = Vec::new();
    json::write::string(&mut text, way.reads);
    let text = String::from_utf8(text).unwrap();
    let inferred = match kept.inferred() {
        Ok(shape) => kept.told(&shape, "old"),
        Err(fault) => Err(fault.to_string()),
    };
    match inferred {
        Ok(told) if told == case.told => "exact".to_owned(),
        Ok(Some(told)) if told == text && is_exact => format!("as text; {}", exact_as(case.kind)),
        Ok(Some(told)) if told == way.reads && is_exact => format!("`{told}`; {}", exact_as(case.kind)),
        Ok(Some(told)) if told == text || told == way.reads => format!("`{told}`"),
        Ok(told) => panic!("{}: told as {told:?}, which it is not", what()),
        Err(why) => format!("not read: {why}"),
    }
}

fn exact_as(kind: Kind) -> String {
    format!("exact with `as = \"{}\"`", kind.as_str())
}

#[test]
fn values_survive_as_published() {
    written_ones().check();
    found_ones().check();
    published::kinds().check();
}

/// What is written survives exactly or is refused.
fn written_ones() -> Published {
    let mut published = Published::new("survives");
    for case in values::all() {
        let cells = Store::ALL.map(|store| {
            let mut cells = Cells::default();
            for way in makers::ways(store, case.kind) {
                cells.add(way.column, written(store, &case, &way));
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
        published.row(case.name, &cells);
    }
    published
}

/// What others wrote is told as it is, as a text that says it, or not at all.
fn found_ones() -> Published {
    let mut published = Published::new("found");
    for case in values::all() {
        let cells = Store::ALL.map(|store| {
            let told = makers::found(store, case.name).into_iter().map(|way| {
                let told = read(store, &case, &way);
                if way.column.is_empty() { told } else { format!("{}: {told}", way.column) }
            });
            let told: Vec<String> = told.collect();
            if told.is_empty() { "has none".to_owned() } else { told.join("; ") }
        });
        published.plain(case.name, &cells);
    }
    published
}

/// Where the tables are published.
fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/types.md")
}
