//! A JSON file to read and write, and rows as a contract shapes them.

use std::path::PathBuf;
use std::sync::Arc;

use contract::field::Field;
use contract::source::{
    CursorPosition, Query, Reader, RowChange, RowFlow, RowPosition, Source, SourceError, SourceFacts,
    TableFacts, TableShape, Total, WriteError,
};
use contract::{Value, ValueRef};
use source::TableFile;
use source::json::{self, JsonLayout, Options};
use tempfile::TempDir;

use crate::driver::{ContractViolation, VersionConflict, WriteChecks, WriteOutcome, WriteRequest, WriteRow};

/// One file in a folder of its own.
pub struct TestFile {
    _folder: TempDir,
    pub path: PathBuf,
    form: JsonLayout,
}

pub fn document() -> JsonLayout {
    JsonLayout::Document { pointer: None }
}

pub fn document_at(pointer: &str) -> JsonLayout {
    JsonLayout::Document { pointer: Some(pointer.to_owned()) }
}

impl TestFile {
    pub fn new(form: JsonLayout, content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = if form == JsonLayout::Lines { "people.jsonl" } else { "people.json" };
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

    /// Checks the file for changes at every call.
    pub fn json(&self) -> TableFile {
        self.json_with_poll_interval(0)
    }

    pub fn json_with_poll_interval(&self, look_every_ms: u64) -> TableFile {
        let options = Options::new(self.form.clone());
        json::open(&self.path, Options { poll_interval_ms: look_every_ms, ..options })
    }
}

pub fn only_table(mut facts: SourceFacts) -> TableFacts {
    assert_eq!(facts.tables.len(), 1);
    facts.tables.remove(0)
}

/// The shape of a contract that changes nothing.
pub fn shape(source: &impl Source) -> TableShape {
    crate::shape::shape_of(&only_table(source.introspect().unwrap()))
}

/// `id integer, name text?, n number~`: `?` marks nullable columns, `~` mixed ones.
pub fn columns(table: &TableFacts) -> String {
    let column = |column: &contract::source::ColumnFacts| {
        let (nullable, mixed) = (if column.nullable { "?" } else { "" }, if column.mixed { "~" } else { "" });
        format!("{} {}{nullable}{mixed}", column.name, column.data_type.as_str())
    };
    table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// A row as a result contains it.
pub fn row_json(shape: &TableShape, cells: &[ValueRef<'_>]) -> String {
    assert_eq!(shape.columns.len(), cells.len());
    let members = shape.columns.iter().zip(cells).map(|(column, cell)| {
        let mut field = Field::new(&column.name, &column.name, column.data_type);
        (field.nullable, field.mixed) = (column.nullable || !column.null_texts.is_empty(), column.mixed);
        let mut out = Vec::new();
        field.write_member(&mut out, *cell).unwrap_or_else(|_| panic!("`{}`: {cell:?}", column.name));
        String::from_utf8(out).unwrap()
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

pub type ListResult = Result<(Vec<String>, Option<u64>), SourceError>;

pub fn list(reader: &dyn Reader, shape: &TableShape, query: &Query<'_>) -> ListResult {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, _| {
        rows.push(row_json(shape, cells));
        RowFlow::Continue
    })?;
    Ok((rows, total.and_then(Total::exact)))
}

pub fn query_all<'a>() -> Query<'a> {
    Query { rows_max: usize::MAX, ..Query::default() }
}

/// All rows, in file order.
pub fn all_rows(source: &impl Source) -> Vec<String> {
    let shape = TableShape { key: Vec::new(), ..shape(source) };
    list(source.reader(&shape).unwrap().as_ref(), &shape, &query_all()).unwrap().0
}

pub fn get(
    reader: &dyn Reader,
    shape: &TableShape,
    key: &[ValueRef<'_>],
) -> Result<Option<String>, SourceError> {
    let mut found = None;
    let is_there = reader.get(key, &mut |cells| found = Some(row_json(shape, cells)))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

/// One page, and the position of its last row.
pub fn page(
    reader: &dyn Reader,
    shape: &TableShape,
    query: &Query<'_>,
) -> (Vec<String>, Option<CursorPosition>) {
    let (mut rows, mut last) = (Vec::new(), None);
    reader
        .list(query, &mut |cells, place: RowPosition| {
            let key = match &shape.key[..] {
                [] => vec![Value::Integer(place.row_number), Value::Integer(place.table_version)],
                key => key.iter().map(|at| cells[*at].to_value()).collect(),
            };
            last = Some(CursorPosition {
                sort_values: query.sort.iter().map(|sort| cells[sort.column].to_value()).collect(),
                key,
            });
            rows.push(row_json(shape, cells));
            RowFlow::Continue
        })
        .unwrap();
    (rows, last)
}

pub fn pages(
    reader: &dyn Reader,
    shape: &TableShape,
    query: &Query<'_>,
    mut between: impl FnMut(),
) -> Vec<String> {
    let (mut after, mut all): (Option<CursorPosition>, Vec<String>) = (None, Vec::new());
    loop {
        let query = Query {
            filters: query.filters.clone(),
            after: after.as_ref(),
            sort: query.sort.clone(),
            sort_links: query.sort_links.clone(),
            cancelled: None,
            ..*query
        };
        let (rows, last) = page(reader, shape, &query);
        if rows.is_empty() {
            return all;
        }
        all.extend(rows);
        after = last;
        between();
    }
}

/// Records the rows it is shown, and answers as configured.
#[derive(Default)]
pub struct RecordingJsonChecks {
    pub shape: Option<TableShape>,
    pub before: Option<String>,
    pub after: Option<String>,
    pub extra_values: Vec<(usize, Value)>,
    pub is_stale: bool,
    pub is_unwritable: bool,
    pub notices: Vec<String>,
}

impl WriteChecks for RecordingJsonChecks {
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        self.before = Some(row_json(self.shape.as_ref().unwrap(), row));
        if self.is_stale { Err(VersionConflict) } else { Ok(self.extra_values.clone()) }
    }

    fn add_notice(&mut self, notice: &str) {
        self.notices.push(notice.to_owned());
    }

    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
        let message = row_json(self.shape.as_ref().unwrap(), row);
        self.after = Some(message.clone());
        if self.is_unwritable { Err(ContractViolation) } else { Ok(message.into_bytes()) }
    }
}

pub fn recording_checks(shape: &TableShape) -> RecordingJsonChecks {
    RecordingJsonChecks { shape: Some(shape.clone()), ..RecordingJsonChecks::default() }
}

pub fn plain_write(change: RowChange<'_>) -> WriteRequest<'_> {
    WriteRequest { change, idempotency_key: None, dry_run: false, now_ms: 1_000, cancelled: None }
}

/// Writes once, with a new writer.
pub fn write(
    source: &impl Source,
    shape: &TableShape,
    change: RowChange<'_>,
) -> Result<(WriteOutcome, RecordingJsonChecks), WriteError> {
    let mut checks = recording_checks(shape);
    let writer = source.writer(shape)?;
    let written = writer.write(&plain_write(change), &mut checks)?;
    Ok((written, checks))
}

pub fn reader(source: &impl Source, shape: &TableShape) -> Arc<dyn Reader> {
    source.reader(shape).unwrap()
}
