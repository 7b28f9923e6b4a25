//! An in-memory table that writes atomically, one row by its key, once per idempotency key. Like real databases it has
//! two peculiarities: it refuses text with a NUL, and the column `loose` stores numeric text as a number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use contract::source::{
    CancelFlag, CaptureMode, ChangeSummary, ColumnFacts, IdempotencyKey, PreparedStatement, Query,
    ReadRequest, Reader, RowChange, RowFlow, RowPosition, RowTransaction, Search, SearchCoverage,
    SearchCursor, SearchOutcome, Source, SourceError, SourceFacts, StatementError, StatementFacts,
    StatementShape, StatementTransaction, TableFacts, TableShape, Total, Transaction, TransactionOptions,
    WriteCapabilities, WriteError, Writer,
};
use contract::{DataType, Value, ValueRef, order};

pub const COLUMNS: [(&str, DataType); 14] = [
    ("id", DataType::Text),
    ("name", DataType::Text),
    ("age", DataType::Integer),
    ("balance", DataType::Decimal),
    ("score", DataType::Number),
    ("born", DataType::Date),
    ("seen", DataType::Timestamp),
    ("big", DataType::Int64),
    ("active", DataType::Boolean),
    ("extra", DataType::Json),
    ("photo", DataType::Blob),
    ("secret", DataType::Text),
    ("rev", DataType::Integer),
    ("loose", DataType::Text),
];

#[derive(Default)]
pub struct TableState {
    pub rows: Vec<Vec<Value>>,
    pub idempotency_records: HashMap<[u8; 32], (IdempotencyKey, Vec<u8>)>,
    /// Number of committed writes.
    pub writes: usize,
}

/// The source; clones share the table.
#[derive(Clone, Default)]
pub struct Table {
    state: Arc<Mutex<TableState>>,
    /// Whether lists and writes wait until they are cancelled.
    pub slow: Arc<AtomicBool>,
    /// Whether inline reads would have to wait for a lock.
    pub locked: Arc<AtomicBool>,
    last_read_thread: Arc<Mutex<Option<ThreadId>>>,
    /// How many times rows were listed, or read by key or statement.
    pub reads: Arc<AtomicUsize>,
    pub entered: Arc<AtomicBool>,
    pub stopped: Arc<AtomicBool>,
}

impl Table {
    pub fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().expect("no panic before")
    }

    /// The thread of the last read by key or statement.
    pub fn last_read_thread(&self) -> Option<ThreadId> {
        *self.last_read_thread.lock().expect("no panic before")
    }

    fn record_read_thread(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        *self.last_read_thread.lock().expect("no panic before") = Some(std::thread::current().id());
    }

    fn check_not_locked(&self) -> Result<(), SourceError> {
        if self.locked.load(Ordering::SeqCst) { Err(SourceError::WouldBlock) } else { Ok(()) }
    }

    /// Waits until `slow` is cleared or the caller has gone away.
    fn wait_while_slow(&self, cancelled: Option<&CancelFlag>) -> Result<(), SourceError> {
        self.entered.store(true, Ordering::SeqCst);
        while self.slow.load(Ordering::SeqCst) {
            if cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                self.stopped.store(true, Ordering::SeqCst);
                return Err(SourceError::Cancelled);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Inserts a person with id and name only.
    pub fn insert_person(&self, id: &str, name: &str) {
        let mut row = vec![Value::Null; COLUMNS.len()];
        row[0] = Value::Text(id.into());
        row[1] = Value::Text(name.into());
        row[12] = Value::Integer(1);
        self.state().rows.push(row);
    }
}

impl Source for Table {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let columns = COLUMNS.iter().enumerate().map(|(index, (name, data_type))| ColumnFacts {
            nullable: index > 1 && index != 12,
            has_default: index == 12,
            ..ColumnFacts::new(*name, *data_type)
        });
        let table = TableFacts {
            key: vec![0],
            key_is_declared: true,
            ..TableFacts::new("people", columns.collect())
        };
        Ok(SourceFacts { tables: vec![table], ..SourceFacts::default() })
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        Ok(Arc::new(TableAccess { table: self.clone(), shape: shape.clone() }))
    }

    fn writer(&self, shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Ok(Arc::new(TableAccess { table: self.clone(), shape: shape.clone() }))
    }

    /// Two statements exist: `count` counts the people of each name, `rename` replaces one name by another.
    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        let column = |name: &str, data_type| ColumnFacts::new(name, data_type);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match sql {
            "count" => Ok(StatementFacts {
                parameters: names(&["name"]),
                columns: vec![column("name", DataType::Text), column("people", DataType::Integer)],
                ..StatementFacts::default()
            }),
            "rename" => Ok(StatementFacts {
                parameters: names(&["old", "new"]),
                columns: vec![column("id", DataType::Text)],
                writes: Some(WriteCapabilities::ALL),
                ..StatementFacts::default()
            }),
            _ => Err(StatementError { message: "unknown statement".into(), help: None, span: None }),
        }
    }

    fn prepare(&self, statement: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        Ok(Arc::new(TableStatement { table: self.clone(), shape: statement.clone() }))
    }
}

struct TableAccess {
    table: Table,
    shape: TableShape,
}

impl TableAccess {
    /// A row in the order of the shape.
    fn cells<'r>(&self, row: &'r [Value]) -> Vec<ValueRef<'r>> {
        self.shape.columns.iter().map(|column| row[column.source_index].as_value_ref()).collect()
    }

    fn has_key(&self, row: &[Value], key: &[ValueRef<'_>]) -> bool {
        let parts = self.shape.key.iter().map(|index| &self.shape.columns[*index]).zip(key);
        parts.into_iter().all(|(column, part)| {
            order::compare(column.data_type, row[column.source_index].as_value_ref(), *part).is_eq()
        })
    }

    fn set(&self, row: &mut [Value], values: &[(usize, ValueRef<'_>)]) -> Result<(), WriteError> {
        for (index, cell) in values {
            let column = &self.shape.columns[*index];
            if let ValueRef::Text(text) = cell
                && text.contains('\0')
            {
                let reason = "a text here cannot have a NUL character".into();
                return Err(WriteError::Rejected { column: Some(*index), reason });
            }
            row[column.source_index] = match cell {
                ValueRef::Text(text) if column.name == "loose" && text.parse::<i64>().is_ok() => {
                    Value::Integer(text.parse().expect("just parsed"))
                }
                cell => cell.to_value(),
            };
        }
        Ok(())
    }
}

impl Reader for TableAccess {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        matches!(read, ReadRequest::Get)
    }

    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.table.check_not_locked()?;
        self.get(key, row)
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.table.record_read_thread();
        let state = self.table.state();
        let found = state.rows.iter().find(|candidate| self.has_key(candidate, key));
        if let Some(found) = found {
            row(&self.cells(found));
        }
        Ok(found.is_some())
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.table.reads.fetch_add(1, Ordering::SeqCst);
        if let Some(progress) = query.progress {
            progress.fetch_add(1000, Ordering::Relaxed);
        }
        self.table.wait_while_slow(query.cancelled)?;
        let state = self.table.state();
        let passes = |cells: &Vec<ValueRef<'_>>| {
            let kind = |column: usize| self.shape.columns[column].data_type;
            query.filters.iter().all(|filter| filter.matches(kind(filter.column), cells[filter.column]))
        };
        let mut found: Vec<Vec<ValueRef<'_>>> =
            state.rows.iter().map(|row| self.cells(row)).filter(passes).collect();
        for sort in query.sort.iter().rev() {
            // Texts are enough for these tests.
            found.sort_by_key(|cells| format!("{:?}", cells[sort.column]));
            if sort.descending {
                found.reverse();
            }
        }
        for cells in &found {
            if row(cells, RowPosition::default()) == RowFlow::Stop {
                break;
            }
        }
        Ok(Some(Total::Exact(found.len() as u64)))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        let state = self.table.state();
        let mut total = 0;
        let mut flow = RowFlow::Continue;
        for candidate in state.rows.iter().take(search.scan_rows_max) {
            let values = self.cells(candidate);
            let has = |term: &&str| {
                search.columns.iter().any(|index| match values[*index] {
                    ValueRef::Text(text) => text.to_lowercase().contains(&term.to_lowercase()),
                    _ => false,
                })
            };
            if search.terms.iter().all(has) {
                total += 1;
                if flow != RowFlow::Stop {
                    flow = row(&values, RowPosition::default());
                }
            }
        }
        let (coverage, total) = match state.rows.len() > search.scan_rows_max {
            true => (SearchCoverage::Truncated, Total::AtLeast(total)),
            false => (SearchCoverage::Complete, Total::Exact(total)),
        };
        Ok(SearchOutcome { coverage, total, cursor: SearchCursor::Row })
    }
}

impl Writer for TableAccess {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        self.table.wait_while_slow(options.cancelled.as_ref())?;
        Ok(Box::new(TableTransaction { access: self, pending: Pending::new(&self.table), changed: None }))
    }
}

/// The new state of the table, until it is committed. Holds the table's lock.
struct Pending<'t> {
    state: MutexGuard<'t, TableState>,
    rows: Vec<Vec<Value>>,
    record: Option<(IdempotencyKey, Vec<u8>)>,
}

impl<'t> Pending<'t> {
    fn new(table: &'t Table) -> Self {
        let state = table.state();
        Self { rows: state.rows.clone(), state, record: None }
    }

    fn find_response(&self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        match self.state.idempotency_records.get(&key.key_digest) {
            Some((same, stored)) if same.request_digest == key.request_digest => Ok(Some(stored.clone())),
            Some(_) => Err(WriteError::IdempotencyKeyReused),
            None => Ok(None),
        }
    }

    fn commit(mut self) {
        self.state.rows = self.rows;
        self.state.writes += 1;
        if let Some((key, response)) = self.record {
            self.state.idempotency_records.insert(key.key_digest, (key, response));
        }
    }
}

struct TableTransaction<'t> {
    access: &'t TableAccess,
    pending: Pending<'t>,
    /// The position of the row that was created or updated.
    changed: Option<usize>,
}

impl TableTransaction<'_> {
    fn position(&self, key: &[ValueRef<'_>]) -> Option<usize> {
        self.pending.rows.iter().position(|row| self.access.has_key(row, key))
    }

    fn row_at(&self, position: usize) -> Vec<Value> {
        self.access.cells(&self.pending.rows[position]).iter().map(|value| value.to_value()).collect()
    }
}

impl Transaction for TableTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.pending.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.pending.record = Some((*key, response.to_vec()));
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.pending.commit();
        Ok(())
    }

    fn roll_back(self: Box<Self>) {}
}

impl RowTransaction for TableTransaction<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        Ok(self.position(key).map(|position| self.row_at(position)))
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        let access = self.access;
        match change {
            RowChange::Create { values } if values.contains(&(1, ValueRef::Text("unsure"))) => {
                return Err(WriteError::DurabilityUnknown {
                    message: "the disk did not confirm it".into(),
                    detail: "fsync".into(),
                });
            }
            RowChange::Create { values } => {
                let mut row = vec![Value::Null; COLUMNS.len()];
                row[12] = Value::Integer(0);
                access.set(&mut row, values)?;
                let key: Vec<ValueRef<'_>> = access
                    .shape
                    .key
                    .iter()
                    .map(|index| row[access.shape.columns[*index].source_index].as_value_ref())
                    .collect();
                if self.position(&key).is_some() {
                    return Err(WriteError::AlreadyExists);
                }
                self.changed = Some(self.pending.rows.len());
                self.pending.rows.push(row);
            }
            RowChange::Update { key, values } => {
                let position = self.position(key).ok_or(WriteError::NotFound)?;
                access.set(&mut self.pending.rows[position], values)?;
                self.changed = Some(position);
            }
            RowChange::Delete { key } => {
                let position = self.position(key).ok_or(WriteError::NotFound)?;
                self.pending.rows.remove(position);
            }
        }
        Ok(())
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        Ok(self.changed.map(|position| self.row_at(position)))
    }
}

fn first_key_byte(key: &Value) -> u8 {
    match key.as_value_ref() {
        ValueRef::Text(text) => text.bytes().next().unwrap_or(0),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => 0,
    }
}

struct TableStatement {
    table: Table,
    shape: StatementShape,
}

impl PreparedStatement for TableStatement {
    fn can_run_inline(&self) -> bool {
        true
    }

    fn read_inline(
        &self,
        arguments: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.table.check_not_locked()?;
        self.read(arguments, None, row)
    }

    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        _: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.table.record_read_thread();
        let state = self.table.state();
        let mut counts: Vec<(&Value, i64)> = Vec::new();
        for candidate in state.rows.iter().map(|row| &row[1]) {
            match counts.iter_mut().find(|(name, _)| *name == candidate) {
                Some((_, count)) => *count += 1,
                None => counts.push((candidate, 1)),
            }
        }
        for (name, count) in counts {
            let matches = arguments[0] == ValueRef::Null || arguments[0] == name.as_value_ref();
            if matches && row(&[name.as_value_ref(), ValueRef::Integer(count)]) == RowFlow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn StatementTransaction + '_>, WriteError> {
        self.table.wait_while_slow(options.cancelled.as_ref())?;
        Ok(Box::new(RenameTransaction { shape: &self.shape, pending: Pending::new(&self.table) }))
    }
}

struct RenameTransaction<'t> {
    shape: &'t StatementShape,
    pending: Pending<'t>,
}

impl Transaction for RenameTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.pending.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.pending.record = Some((*key, response.to_vec()));
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.pending.commit();
        Ok(())
    }

    fn roll_back(self: Box<Self>) {}
}

impl StatementTransaction for RenameTransaction<'_> {
    fn execute(
        &mut self,
        arguments: &[ValueRef<'_>],
        capture: CaptureMode,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<ChangeSummary, WriteError> {
        if arguments[1] == ValueRef::Text("007") {
            return Err(WriteError::Rejected { column: Some(1), reason: "it would be kept as 7".into() });
        }
        let rows = &mut self.pending.rows;
        let changed: Vec<&mut Vec<Value>> =
            rows.iter_mut().filter(|row| row[1].as_value_ref() == arguments[0]).collect();
        let count = changed.len() as u64;
        // The digest holds the first letter of each key.
        let ids: Vec<u8> = changed.iter().map(|row| first_key_byte(&row[0])).collect();
        let mut flow = RowFlow::Continue;
        for candidate in changed {
            candidate[1] = arguments[1].to_value();
            if flow == RowFlow::Continue {
                flow = row(&[candidate[0].as_value_ref()]);
            }
        }
        if count > self.shape.changes_max {
            return Err(WriteError::TooManyRows { rows: count, max: self.shape.changes_max });
        }
        let digest = (capture == CaptureMode::RowDigest).then(|| {
            let mut digest = [0; 32];
            for (byte, id) in digest.iter_mut().zip(ids) {
                *byte = id;
            }
            digest
        });
        Ok(ChangeSummary { rows: count, digest })
    }
}
