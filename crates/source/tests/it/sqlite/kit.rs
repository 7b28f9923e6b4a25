//! A database in a folder of its own, and reading it as a contract would.

use std::path::PathBuf;
use std::sync::Arc;

use contract::source::{
    CaptureMode, Comparison, ContractViolation, CursorPosition, Filter, IdempotencyKey, PreparedStatement,
    Query, Reader, RowChange, RowFlow, RowPosition, Search, SearchCoverage, Sort, Source, SourceError,
    SourceFacts, StatementError, StatementFacts, StatementShape, StatementWriteOptions, TableFacts, Total,
    VersionConflict, WriteChecks, WriteError, WriteOutcome, WriteRequest, Writer,
};
use contract::{DataType, Value, ValueRef};
use rusqlite::Connection;
use source::sqlite::{Options, Sqlite};

pub(super) struct TestDb {
    pub(super) folder: tempfile::TempDir,
    pub(super) path: PathBuf,
}

impl TestDb {
    pub(super) fn new(sql: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Self { path: folder.path().join("shop.db"), folder };
        db.execute(sql);
        db
    }

    pub(super) fn connect(&self) -> Connection {
        Connection::open(&self.path).expect("a database")
    }

    pub(super) fn execute(&self, sql: &str) {
        self.connect().execute_batch(sql).expect("valid SQL");
    }

    pub(super) fn source(&self) -> Sqlite {
        Sqlite::new(&self.path, Options::default())
    }

    pub(super) fn facts(&self) -> SourceFacts {
        self.source().introspect().expect("facts")
    }

    /// One table, compiled as it is now.
    pub(super) fn reader(&self, table: &str) -> (TableFacts, Arc<dyn Reader>) {
        let source = self.source();
        let facts = source.introspect().expect("facts");
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
pub(super) struct TestTable {
    pub(super) facts: TableFacts,
    pub(super) reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
}

/// A clerk who writes down the row, and may object or add to it.
#[derive(Default)]
pub(super) struct RecordingChecks {
    pub(super) is_stale: bool,
    pub(super) is_unwritable: bool,
    pub(super) extra_values: Vec<(usize, Value)>,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl WriteChecks for RecordingChecks {
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict> {
        self.before = Some(format_row(row));
        if self.is_stale { Err(VersionConflict) } else { Ok(self.extra_values.clone()) }
    }

    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation> {
        let line = format_row(row);
        self.after = Some(line.clone());
        if self.is_unwritable { Err(ContractViolation) } else { Ok(line.into_bytes()) }
    }
}

/// A row as SQL writes it.
pub(super) fn format_row(row: &[ValueRef<'_>]) -> String {
    row.iter().map(|cell| format_value(&cell.to_value())).collect::<Vec<_>>().join(" ")
}

pub(super) fn idempotency_key(id: u8, asked: u8) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key_digest: [id; 32], request_digest: [asked; 32] })
}

impl TestTable {
    pub(super) fn new(db: &TestDb, table: &str) -> Self {
        Self::from_source(&db.source(), table)
    }

    pub(super) fn from_source(source: &Sqlite, table: &str) -> Self {
        Self::try_from_source(source, table).expect("a table")
    }

    pub(super) fn try_from_source(source: &Sqlite, table: &str) -> Result<Self, SourceError> {
        let facts = source.introspect()?.tables;
        let facts = facts.into_iter().find(|facts| facts.name == table).expect("the table");
        let shape = shape(&facts);
        let reader = source.reader(&shape)?;
        Ok(Self { reader, writer: source.writer(&shape)?, facts })
    }

    pub(super) fn column_index(&self, column: &str) -> usize {
        self.facts.columns.iter().position(|known| known.name == column).expect("the column")
    }

    pub(super) fn write(
        &self,
        write: &WriteRequest<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.writer.write(write, clerk)
    }

    /// What is told of a change, or why it was not made.
    pub(super) fn change(&self, change: RowChange<'_>) -> String {
        self.change_with(change, None, &mut RecordingChecks::default())
    }

    pub(super) fn change_with(
        &self,
        change: RowChange<'_>,
        claim: Option<IdempotencyKey>,
        notary: &mut RecordingChecks,
    ) -> String {
        let write =
            WriteRequest { change, idempotency_key: claim, dry_run: false, now_ms: 1_000, cancelled: None };
        match self.write(&write, notary) {
            Ok(WriteOutcome::Done) => notary.after.clone().expect("told"),
            Ok(WriteOutcome::Replayed(told)) => format!("again: {}", String::from_utf8(told).expect("text")),
            Err(fault) => self.error_text(&fault),
        }
    }

    pub(super) fn error_text(&self, fault: &WriteError) -> String {
        match fault {
            WriteError::Rejected { column: Some(at), reason: why } => {
                format!("`{}`: {why}", self.facts.columns[*at].name)
            }
            fault => fault.to_string(),
        }
    }

    pub(super) fn create(&self, cells: &[(&str, ValueRef<'_>)]) -> String {
        let cells = self.named_values(cells);
        self.change(RowChange::Create { values: &cells })
    }

    pub(super) fn update(&self, key: &[ValueRef<'_>], cells: &[(&str, ValueRef<'_>)]) -> String {
        let cells = self.named_values(cells);
        self.change(RowChange::Update { key, values: &cells })
    }

    pub(super) fn delete(&self, key: &[ValueRef<'_>]) -> String {
        self.change(RowChange::Delete { key })
    }

    pub(super) fn named_values<'a>(&self, cells: &[(&str, ValueRef<'a>)]) -> Vec<(usize, ValueRef<'a>)> {
        cells.iter().map(|(name, cell)| (self.column_index(name), *cell)).collect()
    }

    pub(super) fn get(&self, key: &[ValueRef<'_>]) -> Option<Vec<Value>> {
        get(self.reader.as_ref(), key).expect("no fault")
    }
}

pub(super) fn search(
    reader: &dyn Reader,
    words: &[&str],
    columns: &[usize],
    scan_rows_max: usize,
) -> (Vec<Vec<Value>>, SearchCoverage) {
    let search = Search {
        terms: words.to_vec(),
        columns,
        rows_max: 100,
        scan_rows_max,
        cancelled: None,
        progress: None,
    };
    let mut rows = Vec::new();
    let searched = reader.search(&search, &mut |cells| {
        rows.push(cells.iter().map(|cell| cell.to_value()).collect());
        RowFlow::Continue
    });
    (rows, searched.expect("no fault"))
}

/// A statement as a contract runs it.
pub(super) fn statement_shape(sql: &str, facts: &StatementFacts, changes_max: u64) -> StatementShape {
    StatementShape {
        sql: sql.to_owned(),
        parameters: facts.parameters.clone(),
        parameter_types: vec![DataType::Text; facts.parameters.len()],
        columns: crate::shape::columns(&facts.columns),
        writes: facts.writes,
        changes_max,
        timeout_ms: None,
    }
}

pub(super) fn prepare(source: &Sqlite, sql: &str) -> Result<Arc<dyn PreparedStatement>, StatementError> {
    let facts = source.describe_statement(sql)?;
    Ok(source.prepare(&statement_shape(sql, &facts, 10)).expect("a statement that was examined"))
}

/// The rows that a statement gives, a line each.
pub(super) fn read_rows(
    statement: &dyn PreparedStatement,
    arguments: &[ValueRef<'_>],
) -> Result<Vec<String>, SourceError> {
    let mut rows = Vec::new();
    statement.read(arguments, None, &mut |cells| {
        rows.push(format_row(cells));
        RowFlow::Continue
    })?;
    Ok(rows)
}

/// What a statement that writes tells.
pub(super) fn run_write(
    statement: &dyn PreparedStatement,
    arguments: &[ValueRef<'_>],
    terms: &StatementWriteOptions<'_>,
) -> Result<(Vec<String>, WriteOutcome, Option<u64>), WriteError> {
    let (mut rows, mut changed) = (Vec::new(), None);
    let written = statement.write(
        arguments,
        terms,
        &mut |cells| {
            rows.push(format_row(cells));
            RowFlow::Continue
        },
        &mut |changes| {
            changed = Some(changes.rows);
            Ok(format!("{} changed", changes.rows).into_bytes())
        },
    )?;
    Ok((rows, written, changed))
}

pub(super) fn terms(claim: Option<IdempotencyKey>) -> StatementWriteOptions<'static> {
    StatementWriteOptions {
        capture: CaptureMode::CountOnly,
        idempotency_key: claim,
        dry_run: false,
        now_ms: 1_000,
        cancelled: None,
    }
}

pub(super) use crate::shape::shape_of as shape;

pub(super) fn get(reader: &dyn Reader, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, SourceError> {
    let mut found = None;
    let is_there =
        reader.get(key, &mut |cells| found = Some(cells.iter().map(|cell| cell.to_value()).collect()))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

pub(super) type Row = (Vec<Value>, RowPosition);

pub(super) fn list(reader: &dyn Reader, query: &Query<'_>) -> Result<(Vec<Row>, Option<Total>), SourceError> {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |cells, place| {
        rows.push((cells.iter().map(|cell| cell.to_value()).collect(), place));
        if rows.len() == query.rows_max { RowFlow::Stop } else { RowFlow::Continue }
    })?;
    Ok((rows, total))
}

/// All rows, without what is not a value.
pub(super) fn all(reader: &dyn Reader) -> Vec<Vec<Value>> {
    let query = Query { rows_max: 1000, ..Query::default() };
    list(reader, &query).expect("rows").0.into_iter().map(|(row, _)| row).collect()
}

pub(super) fn equals(column: usize, value: ValueRef<'_>) -> Filter<'_> {
    Filter { column, comparison: Comparison::Equals, value }
}

pub(super) fn sort_by(column: usize, descending: bool) -> Option<Sort> {
    Some(Sort { column, descending })
}

/// Where a page ended.
pub(super) fn position(row: &Row, sort: Option<Sort>, key: &[usize]) -> CursorPosition {
    let (values, place) = row;
    let sorted = sort.map(|sort| values[sort.column].clone());
    let key = match key {
        [] => vec![Value::Integer(place.row_number), Value::Integer(place.table_version)],
        key => key.iter().map(|at| values[*at].clone()).collect(),
    };
    CursorPosition { sort_value: sorted, key }
}

/// `1`, `1.5`, `'a'`, `x'07'`, as SQL writes them.
pub(super) fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => format!("{n:?}"),
        Value::Text(text) => format!("'{text}'"),
        Value::Blob(bytes) => bytes.iter().fold(String::from("x"), |out, byte| format!("{out}{byte:02x}")),
    }
}

pub(super) fn error_text(fault: &SourceError) -> String {
    fault.to_string()
}
