//! A table in memory that keeps what it promises: one row by its key, all or nothing, once for each claim. It has two
//! whims, as real ones do: no text with a NUL, and `loose` takes what looks like a number for one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use contract::source::{
    CancelFlag, CaptureMode, ChangeSummary, ColumnFacts, ContractViolation, IdempotencyKey,
    PreparedStatement, Query, ReadRequest, Reader, RowChange, RowFlow, RowPosition, Search, SearchCoverage,
    Source, SourceError, SourceFacts, StatementError, StatementFacts, StatementShape, StatementWriteOptions,
    TableFacts, TableShape, Total, WriteChecks, WriteError, WriteOutcome, WriteRequest, Writer,
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
    /// How often something was kept.
    pub writes: usize,
}

/// The source; clones share the table.
#[derive(Clone, Default)]
pub struct Table {
    state: Arc<Mutex<TableState>>,
    /// Whether lists and writes wait for somebody who stops them.
    pub slow: Arc<AtomicBool>,
    pub entered: Arc<AtomicBool>,
    pub stopped: Arc<AtomicBool>,
}

impl Table {
    pub fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().expect("no panic before")
    }

    /// Waits as long as it is slow and somebody waits for it.
    fn wait_while_slow(&self, stop: Option<&CancelFlag>) -> Result<(), SourceError> {
        self.entered.store(true, Ordering::SeqCst);
        while self.slow.load(Ordering::SeqCst) {
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.stopped.store(true, Ordering::SeqCst);
                return Err(SourceError::Cancelled);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// A person by id and name, without anything else.
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
        let columns = COLUMNS.iter().enumerate().map(|(at, (name, kind))| ColumnFacts {
            nullable: at > 1 && at != 12,
            has_default: at == 12,
            ..ColumnFacts::new(*name, *kind)
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

    /// Two statements are known: `count` tells how many have a name, `rename` gives everybody of one name another.
    fn describe_statement(&self, sql: &str) -> Result<StatementFacts, StatementError> {
        let column = |name: &str, kind| ColumnFacts::new(name, kind);
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
                writes: true,
                ..StatementFacts::default()
            }),
            _ => Err(StatementError { message: "nobody knows this".into(), help: None, span: None }),
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
        let parts = self.shape.key.iter().map(|at| &self.shape.columns[*at]).zip(key);
        parts.into_iter().all(|(column, part)| {
            order::compare(column.data_type, row[column.source_index].as_value_ref(), *part).is_eq()
        })
    }

    fn set(&self, row: &mut [Value], cells: &[(usize, ValueRef<'_>)]) -> Result<(), WriteError> {
        for (at, cell) in cells {
            let column = &self.shape.columns[*at];
            if let ValueRef::Text(text) = cell
                && text.contains('\0')
            {
                let why = "a text here cannot have a NUL character".into();
                return Err(WriteError::Rejected { column: Some(*at), reason: why });
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

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        let state = self.table.state();
        let found = state.rows.iter().find(|one| self.has_key(one, key));
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
        if let Some(progress) = query.progress {
            progress.fetch_add(1000, Ordering::Relaxed);
        }
        self.table.wait_while_slow(query.cancelled)?;
        let state = self.table.state();
        for one in &state.rows {
            if row(&self.cells(one), RowPosition::default()) == RowFlow::Stop {
                break;
            }
        }
        Ok(Some(Total::Exact(state.rows.len() as u64)))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, SourceError> {
        let state = self.table.state();
        for one in state.rows.iter().take(search.scan_rows_max) {
            let cells = self.cells(one);
            let has = |word: &&str| {
                search.columns.iter().any(|at| match cells[*at] {
                    ValueRef::Text(text) => text.to_lowercase().contains(&word.to_lowercase()),
                    _ => false,
                })
            };
            if search.terms.iter().all(has) && row(&cells) == RowFlow::Stop {
                return Ok(SearchCoverage::Complete);
            }
        }
        Ok(if state.rows.len() > search.scan_rows_max {
            SearchCoverage::Truncated
        } else {
            SearchCoverage::Complete
        })
    }
}

impl Writer for TableAccess {
    fn write(
        &self,
        write: &WriteRequest<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.table.wait_while_slow(write.cancelled)?;
        if let RowChange::Create { values: cells } = &write.change
            && cells.contains(&(1, ValueRef::Text("unsure")))
        {
            return Err(WriteError::DurabilityUnknown {
                message: "the disk did not confirm it".into(),
                detail: "fsync".into(),
            });
        }
        let mut state = self.table.state();
        if let Some(replayed) = find_replay(&state, write.idempotency_key)? {
            return Ok(replayed);
        }
        let mut rows = state.rows.clone();
        let place = |key: &[ValueRef<'_>]| {
            state.rows.iter().position(|row| self.has_key(row, key)).ok_or(WriteError::NotFound)
        };
        let told = match &write.change {
            RowChange::Create { values: cells } => {
                let mut row = vec![Value::Null; COLUMNS.len()];
                row[12] = Value::Integer(0);
                self.set(&mut row, cells)?;
                let key: Vec<ValueRef<'_>> = self
                    .shape
                    .key
                    .iter()
                    .map(|at| row[self.shape.columns[*at].source_index].as_value_ref())
                    .collect();
                if state.rows.iter().any(|other| self.has_key(other, &key)) {
                    return Err(WriteError::AlreadyExists);
                }
                let told = clerk.after_write(&self.cells(&row));
                rows.push(row);
                told
            }
            RowChange::Update { key, values: cells } => {
                let row = &mut rows[place(key)?];
                let more = clerk.before_write(&self.cells(row)).map_err(|_| WriteError::VersionConflict)?;
                let more: Vec<(usize, ValueRef<'_>)> =
                    more.iter().map(|(at, value)| (*at, value.as_value_ref())).collect();
                self.set(row, cells)?;
                self.set(row, &more)?;
                clerk.after_write(&self.cells(row))
            }
            RowChange::Delete { key } => {
                let row = rows.remove(place(key)?);
                clerk.before_write(&self.cells(&row)).map_err(|_| WriteError::VersionConflict)?;
                clerk.after_write(&self.cells(&row))
            }
        };
        let told = told.map_err(|_| WriteError::ContractViolation)?;
        if !write.dry_run {
            commit(&mut state, rows, write.idempotency_key, told);
        }
        Ok(WriteOutcome::Done)
    }
}

fn find_replay(
    state: &TableState,
    claim: Option<IdempotencyKey>,
) -> Result<Option<WriteOutcome>, WriteError> {
    let Some(claim) = claim else { return Ok(None) };
    match state.idempotency_records.get(&claim.key_digest) {
        Some((same, told)) if same.request_digest == claim.request_digest => {
            Ok(Some(WriteOutcome::Replayed(told.clone())))
        }
        Some(_) => Err(WriteError::IdempotencyKeyReused),
        None => Ok(None),
    }
}

fn commit(state: &mut TableState, rows: Vec<Vec<Value>>, claim: Option<IdempotencyKey>, told: Vec<u8>) {
    state.rows = rows;
    state.writes += 1;
    if let Some(claim) = claim {
        state.idempotency_records.insert(claim.key_digest, (claim, told));
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

    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        _: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        let state = self.table.state();
        let mut counts: Vec<(&Value, i64)> = Vec::new();
        for one in state.rows.iter().map(|row| &row[1]) {
            match counts.iter_mut().find(|(name, _)| *name == one) {
                Some((_, count)) => *count += 1,
                None => counts.push((one, 1)),
            }
        }
        for (name, count) in counts {
            let wanted = arguments[0] == ValueRef::Null || arguments[0] == name.as_value_ref();
            if wanted && row(&[name.as_value_ref(), ValueRef::Integer(count)]) == RowFlow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn write(
        &self,
        arguments: &[ValueRef<'_>],
        terms: &StatementWriteOptions<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
        told: &mut dyn FnMut(&ChangeSummary) -> Result<Vec<u8>, ContractViolation>,
    ) -> Result<WriteOutcome, WriteError> {
        self.table.wait_while_slow(terms.cancelled)?;
        if arguments[1] == ValueRef::Text("007") {
            return Err(WriteError::Rejected { column: Some(1), reason: "it would be kept as 7".into() });
        }
        let mut state = self.table.state();
        if let Some(replayed) = find_replay(&state, terms.idempotency_key)? {
            return Ok(replayed);
        }
        let mut rows = state.rows.clone();
        let changed: Vec<&mut Vec<Value>> =
            rows.iter_mut().filter(|row| row[1].as_value_ref() == arguments[0]).collect();
        let count = changed.len() as u64;
        // A row is told by the first letter of its key.
        let ids: Vec<u8> = changed.iter().map(|row| first_key_byte(&row[0])).collect();
        let mut more = RowFlow::Continue;
        for one in changed {
            one[1] = arguments[1].to_value();
            if more == RowFlow::Continue {
                more = row(&[one[0].as_value_ref()]);
            }
        }
        if count > self.shape.changes_max {
            return Err(WriteError::TooManyRows { rows: count, max: self.shape.changes_max });
        }
        let which = (terms.capture == CaptureMode::RowDigest).then(|| {
            let mut which = [0; 32];
            for (byte, id) in which.iter_mut().zip(ids) {
                *byte = id;
            }
            which
        });
        let kept =
            told(&ChangeSummary { rows: count, digest: which }).map_err(|_| WriteError::ContractViolation)?;
        if !terms.dry_run {
            commit(&mut state, rows, terms.idempotency_key, kept);
        }
        Ok(WriteOutcome::Done)
    }
}
