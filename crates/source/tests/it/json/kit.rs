//! A file to write and to read, and rows as tests compare them: as a contract would tell them.

use std::path::PathBuf;
use std::sync::Arc;

use contract::field::Field;
use contract::source::{
    Change, Clerk, Facts, More, Place, Position, Query, Reader, Shape, Source, SourceFault, Stale,
    TableFacts, Unwritable, Write, WriteFault, Written,
};
use contract::{Cell, Value};
use source::Rows;
use source::json::{self, Form, Options};
use tempfile::TempDir;

/// One file in a folder of its own.
pub struct Disk {
    _folder: TempDir,
    pub path: PathBuf,
    form: Form,
}

pub fn document() -> Form {
    Form::Document { at: None }
}

pub fn at(pointer: &str) -> Form {
    Form::Document { at: Some(pointer.to_owned()) }
}

impl Disk {
    pub fn new(form: Form, content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = if form == Form::Lines { "people.jsonl" } else { "people.json" };
        let disk = Self { path: folder.path().join(name), _folder: folder, form };
        disk.write(content);
        disk
    }

    pub fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(&self.path, content).unwrap();
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// Looks at the file before every answer.
    pub fn json(&self) -> Rows {
        self.json_every_ms(0)
    }

    pub fn json_every_ms(&self, look_every_ms: u64) -> Rows {
        json::open(&self.path, Options { form: self.form.clone(), look_every_ms })
    }
}

pub fn only(mut facts: Facts) -> TableFacts {
    assert_eq!(facts.tables.len(), 1);
    facts.tables.remove(0)
}

/// The shape a contract would have that changes nothing.
pub fn shape(source: &impl Source) -> Shape {
    crate::shape::of(&only(source.facts().unwrap()))
}

/// `id integer, name text?, n number~`: what may be missing has a `?`, what is mixed a `~`.
pub fn columns(table: &TableFacts) -> String {
    let column = |column: &contract::source::ColumnFacts| {
        let (nullable, mixed) = (if column.nullable { "?" } else { "" }, if column.mixed { "~" } else { "" });
        format!("{} {}{nullable}{mixed}", column.name, column.kind.as_str())
    };
    table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// A row as a result has it.
pub fn told(shape: &Shape, cells: &[Cell<'_>]) -> String {
    assert_eq!(shape.columns.len(), cells.len());
    let members = shape.columns.iter().zip(cells).map(|(column, cell)| {
        let mut field = Field::new(&column.name, &column.name, column.kind);
        (field.nullable, field.mixed) = (column.nullable || column.null.is_some(), column.mixed);
        let mut out = Vec::new();
        field.member(&mut out, *cell).unwrap_or_else(|_| panic!("`{}`: {cell:?}", column.name));
        String::from_utf8(out).unwrap()
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

pub type Listed = Result<(Vec<String>, Option<u64>), SourceFault>;

pub fn list(reader: &dyn Reader, shape: &Shape, query: &Query<'_>) -> Listed {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, _| {
        rows.push(told(shape, cells));
        More::Yes
    })?;
    Ok((rows, total))
}

pub fn everything<'a>() -> Query<'a> {
    Query { rows_max: usize::MAX, ..Query::default() }
}

/// All rows, in the order of the file.
pub fn all(source: &impl Source) -> Vec<String> {
    let shape = Shape { key: Vec::new(), ..shape(source) };
    list(source.reader(&shape).unwrap().as_ref(), &shape, &everything()).unwrap().0
}

pub fn get(reader: &dyn Reader, shape: &Shape, key: &[Cell<'_>]) -> Result<Option<String>, SourceFault> {
    let mut found = None;
    let is_there = reader.get(key, &mut |cells| found = Some(told(shape, cells)))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

/// One page, and where it ended.
pub fn page(reader: &dyn Reader, shape: &Shape, query: &Query<'_>) -> (Vec<String>, Option<Position>) {
    let (mut rows, mut last) = (Vec::new(), None);
    reader
        .list(query, &mut |cells, place: Place| {
            let key = match &shape.key[..] {
                [] => vec![Value::Integer(place.row), Value::Integer(place.state)],
                key => key.iter().map(|at| cells[*at].to_value()).collect(),
            };
            last = Some(Position { sorted: query.sort.map(|sort| cells[sort.column].to_value()), key });
            rows.push(told(shape, cells));
            More::Yes
        })
        .unwrap();
    (rows, last)
}

pub fn pages(
    reader: &dyn Reader,
    shape: &Shape,
    query: &Query<'_>,
    mut between: impl FnMut(),
) -> Vec<String> {
    let (mut after, mut all): (Option<Position>, Vec<String>) = (None, Vec::new());
    loop {
        let query = Query { filters: query.filters.clone(), after: after.as_ref(), stop: None, ..*query };
        let (rows, last) = page(reader, shape, &query);
        if rows.is_empty() {
            return all;
        }
        all.extend(rows);
        after = last;
        between();
    }
}

/// Writes down what it is shown, and says what it was told to.
#[derive(Default)]
pub struct Notes {
    pub shape: Option<Shape>,
    pub before: Option<String>,
    pub after: Option<String>,
    pub more: Vec<(usize, Value)>,
    pub is_stale: bool,
    pub is_unwritable: bool,
}

impl Clerk for Notes {
    fn before(&mut self, row: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        self.before = Some(told(self.shape.as_ref().unwrap(), row));
        if self.is_stale { Err(Stale) } else { Ok(self.more.clone()) }
    }

    fn after(&mut self, row: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        let told = told(self.shape.as_ref().unwrap(), row);
        self.after = Some(told.clone());
        if self.is_unwritable { Err(Unwritable) } else { Ok(told.into_bytes()) }
    }
}

pub fn notes(shape: &Shape) -> Notes {
    Notes { shape: Some(shape.clone()), ..Notes::default() }
}

pub fn plainly(change: Change<'_>) -> Write<'_> {
    Write { change, claim: None, dry_run: false, now_ms: 1_000, stop: None }
}

/// Writes once, with a writer of its own.
pub fn write(
    source: &impl Source,
    shape: &Shape,
    change: Change<'_>,
) -> Result<(Written, Notes), WriteFault> {
    let mut clerk = notes(shape);
    let writer = source.writer(shape)?;
    let written = writer.write(&plainly(change), &mut clerk)?;
    Ok((written, clerk))
}

pub fn reader(source: &impl Source, shape: &Shape) -> Arc<dyn Reader> {
    source.reader(shape).unwrap()
}
