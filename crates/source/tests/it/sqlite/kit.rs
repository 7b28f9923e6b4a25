//! A database in a temporary folder, read and written as a contract does.

use std::path::PathBuf;
use std::sync::Arc;

use contract::source::{
    CaptureMode, Comparison, CursorPosition, Filter, IdempotencyKey, PreparedStatement, Query, Reader,
    RowChange, RowFlow, RowPosition, Search, SearchCoverage, Sort, Source, SourceError, SourceFacts,
    StatementError, StatementFacts, StatementShape, TableFacts, Total, WriteError, Writer,
};
use contract::{DataType, Value, ValueRef};
use rusqlite::Connection;
use source::sqlite::{Options, Sqlite};

use crate::driver::{
    ContractViolation, StatementWriteOptions, VersionConflict, WriteChecks, WriteOutcome, WriteRequest,
    WriteRow, WriteStatement,
};

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

    /// A reader for one table, compiled from its current facts.
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

/// One table, to read and write.
pub(super) struct TestTable {
    pub(super) facts: TableFacts,
    pub(super) reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
}

/// Records the rows that it is shown; may reject or add values.
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
    row.iter().map(|value| format_value(&value.to_value())).collect::<Vec<_>>().join(" ")
}

pub(super) fn idempotency_key(id: u8, request: u8) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key_digest: [id; 32], request_digest: [request; 32] })
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
        checks: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.writer.write(write, checks)
    }

    /// The result of a change, or its error.
    pub(super) fn change(&self, change: RowChange<'_>) -> String {
        self.change_with(change, None, &mut RecordingChecks::default())
    }

    pub(super) fn change_with(
        &self,
        change: RowChange<'_>,
        key: Option<IdempotencyKey>,
        checks: &mut RecordingChecks,
    ) -> String {
        let write =
            WriteRequest { change, idempotency_key: key, dry_run: false, now_ms: 1_000, cancelled: None };
        match self.write(&write, checks) {
            Ok(WriteOutcome::Done) => checks.after.clone().expect("a result"),
            Ok(WriteOutcome::Replayed(response)) => {
                format!("again: {}", String::from_utf8(response).expect("text"))
            }
            Err(error) => self.error_text(&error),
        }
    }

    pub(super) fn error_text(&self, error: &WriteError) -> String {
        match error {
            WriteError::Rejected { column: Some(at), reason } => {
                format!("`{}`: {reason}", self.facts.columns[*at].name)
            }
            error => error.to_string(),
        }
    }

    pub(super) fn create(&self, values: &[(&str, ValueRef<'_>)]) -> String {
        let values = self.named_values(values);
        self.change(RowChange::Create { values: &values })
    }

    pub(super) fn update(&self, key: &[ValueRef<'_>], values: &[(&str, ValueRef<'_>)]) -> String {
        let values = self.named_values(values);
        self.change(RowChange::Update { key, values: &values })
    }

    pub(super) fn delete(&self, key: &[ValueRef<'_>]) -> String {
        self.change(RowChange::Delete { key })
    }

    pub(super) fn named_values<'a>(&self, values: &[(&str, ValueRef<'a>)]) -> Vec<(usize, ValueRef<'a>)> {
        values.iter().map(|(name, value)| (self.column_index(name), *value)).collect()
    }

    pub(super) fn get(&self, key: &[ValueRef<'_>]) -> Option<Vec<Value>> {
        get(self.reader.as_ref(), key).expect("a result")
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
        filters: Vec::new(),
        after: None,
        rows_max: 100,
        scan_rows_max,
        cancelled: None,
        progress: None,
    };
    let mut rows = Vec::new();
    let coverage = reader.search(&search, &mut |values, _| {
        rows.push(values.iter().map(|value| value.to_value()).collect());
        RowFlow::Continue
    });
    (rows, coverage.expect("a result").coverage)
}

/// A statement as a contract runs it.
pub(super) fn statement_shape(sql: &str, facts: &StatementFacts, changes_max: u64) -> StatementShape {
    StatementShape {
        sql: sql.to_owned(),
        parameters: facts.parameters.clone(),
        parameter_types: vec![DataType::Text; facts.parameters.len()],
        columns: crate::shape::columns(&facts.columns),
        writes: facts.writes.is_some(),
        changes_max,
        timeout_ms: None,
    }
}

pub(super) fn prepare(source: &Sqlite, sql: &str) -> Result<Arc<dyn PreparedStatement>, StatementError> {
    let facts = source.describe_statement(sql)?;
    Ok(source.prepare(&statement_shape(sql, &facts, 10)).expect("a statement that was examined"))
}

/// The rows that a statement returns, one line each.
pub(super) fn read_rows(
    statement: &dyn PreparedStatement,
    arguments: &[ValueRef<'_>],
) -> Result<Vec<String>, SourceError> {
    let mut rows = Vec::new();
    statement.read(arguments, None, &mut |values| {
        rows.push(format_row(values));
        RowFlow::Continue
    })?;
    Ok(rows)
}

/// The result of a writing statement.
pub(super) fn run_write(
    statement: &dyn PreparedStatement,
    arguments: &[ValueRef<'_>],
    terms: &StatementWriteOptions<'_>,
) -> Result<(Vec<String>, WriteOutcome, Option<u64>), WriteError> {
    let (mut rows, mut changed) = (Vec::new(), None);
    let written = statement.write(
        arguments,
        terms,
        &mut |values| {
            rows.push(format_row(values));
            RowFlow::Continue
        },
        &mut |changes| {
            changed = Some(changes.rows);
            Ok(format!("{} changed", changes.rows).into_bytes())
        },
    )?;
    Ok((rows, written, changed))
}

pub(super) fn terms(key: Option<IdempotencyKey>) -> StatementWriteOptions<'static> {
    StatementWriteOptions {
        capture: CaptureMode::CountOnly,
        idempotency_key: key,
        dry_run: false,
        now_ms: 1_000,
        cancelled: None,
    }
}

pub(super) use crate::shape::shape_of as shape;

pub(super) fn get(reader: &dyn Reader, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, SourceError> {
    let mut found = None;
    let is_there =
        reader.get(key, &mut |values| found = Some(values.iter().map(|value| value.to_value()).collect()))?;
    assert_eq!(is_there, found.is_some());
    Ok(found)
}

/// Repeats an inline read until it is answered. A connection may have to be opened, which `blocking` does, and a busy
/// machine may have no time for it.
pub(super) fn retry_inline<T>(
    blocking: impl Fn() -> Result<(), SourceError>,
    read: impl Fn() -> Result<T, SourceError>,
) -> T {
    for _ in 0..10_000 {
        match read() {
            Err(SourceError::WouldBlock) => blocking().expect("a blocking read is answered"),
            other => return other.expect("an inline read is answered"),
        }
    }
    panic!("the read is never answered inline");
}

pub(super) type Row = (Vec<Value>, RowPosition);

pub(super) fn list(reader: &dyn Reader, query: &Query<'_>) -> Result<(Vec<Row>, Option<Total>), SourceError> {
    let mut rows = Vec::new();
    let total = reader.list(query, &mut |values, position| {
        rows.push((values.iter().map(|value| value.to_value()).collect(), position));
        if rows.len() == query.rows_max { RowFlow::Stop } else { RowFlow::Continue }
    })?;
    Ok((rows, total))
}

/// The values of all rows.
pub(super) fn all(reader: &dyn Reader) -> Vec<Vec<Value>> {
    let query = Query { rows_max: 1000, ..Query::default() };
    list(reader, &query).expect("rows").0.into_iter().map(|(row, _)| row).collect()
}

pub(super) fn equals(column: usize, value: ValueRef<'_>) -> Filter<'_> {
    Filter::new(column, Comparison::Equals, value)
}

pub(super) fn sort_by(column: usize, descending: bool) -> Option<Sort> {
    Some(Sort { column, descending })
}

/// Where a page ended.
pub(super) fn position(row: &Row, sort: Option<Sort>, key: &[usize]) -> CursorPosition {
    let (values, position) = row;
    let sorted = sort.map(|sort| values[sort.column].clone());
    let key = match key {
        [] => vec![Value::Integer(position.row_number), Value::Integer(position.table_version)],
        key => key.iter().map(|at| values[*at].clone()).collect(),
    };
    CursorPosition { sort_values: sorted.into_iter().collect(), key }
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

pub(super) fn error_text(error: &SourceError) -> String {
    error.to_string()
}
