//! Writes one row: finds it by its key, rewrites the file's bytes, parses them back, compares everything with the old
//! file, and only then keeps them.

use std::sync::Arc;

use contract::source::{
    IdempotencyKey, RowChange, RowTransaction, SourceError, TableShape, Transaction, TransactionOptions,
    WriteError, Writer,
};
use contract::{Value, ValueRef};

use super::error::TableError;
use super::new_value::NewValue;
use super::snapshot::{FileSnapshot, FormatLoader};
use super::table::{StoredValue, Table};
use super::view::{TableMapping, TableView};
use super::{CellUpdate, RowEdit};
use crate::snapshot_reader::{ReadableTable as _, bind_shape};
use crate::watch::{FileLoader, WatchedFile, WatchedTransaction};

pub(super) struct TableWriter {
    file: Arc<WatchedFile<FormatLoader>>,
    mapping: TableMapping,
}

/// A planned edit of the table.
enum PlannedEdit {
    Append(Vec<NewValue>),
    Set(u32, Vec<NewValue>),
    Remove(u32),
}

impl TableWriter {
    pub(super) fn new(
        watch: Arc<WatchedFile<FormatLoader>>,
        shape: &TableShape,
    ) -> Result<Self, SourceError> {
        let bound = bind_shape(&watch, shape, watch.load_current());
        let (mapping, view) = bound.map_err(|error| watch.source_error(&error))?;
        if view.table.read_only_reason.is_some() {
            return Err(SourceError::read_only());
        }
        Ok(Self { file: watch, mapping })
    }

    fn write_error(&self, error: &TableError) -> WriteError {
        self.file.source_error(error).into()
    }

    fn rewrite_file(
        &self,
        bytes: &[u8],
        view: &TableView,
        plan: &PlannedEdit,
    ) -> Result<Vec<u8>, WriteError> {
        let format = &self.file.loader.format;
        let new_values = match plan {
            PlannedEdit::Append(new_values) | PlannedEdit::Set(_, new_values) => &new_values[..],
            PlannedEdit::Remove(_) => &[],
        };
        let mut texts = vec![String::new(); new_values.len()];
        let updates: Vec<CellUpdate<'_>> = new_values
            .iter()
            .zip(&mut texts)
            .map(|(new_value, text)| {
                let column = &view.columns[new_value.column];
                let date_times = column
                    .column_index
                    .map(|field| view.table.profile(field).date_time_share())
                    .unwrap_or_default();
                CellUpdate {
                    column: header_index(view, new_value.column),
                    name: &column.name,
                    value: new_value.to_stored(text, date_times),
                }
            })
            .collect();
        let edit = match plan {
            PlannedEdit::Append(_) => RowEdit::Append { updates: &updates },
            PlannedEdit::Set(row, _) => RowEdit::Set { row: *row as usize, updates: &updates },
            PlannedEdit::Remove(row) => RowEdit::Remove { row: *row as usize },
        };
        format.rewrite(bytes, view.table_index, &edit).map_err(|error| match error {
            WriteError::Rejected { column: Some(at), reason } => {
                let position = new_values
                    .iter()
                    .map(|new_value| new_value.column)
                    .find(|position| header_index(view, *position) == at);
                WriteError::Rejected { column: position, reason }
            }
            error => error,
        })
    }

    fn parse_back(&self, bytes: &[u8]) -> Result<Arc<FileSnapshot>, WriteError> {
        if bytes.len() as u64 > self.file.loader.file_bytes_max() {
            return Err(rejected(None, "the file would be too large"));
        }
        match self.file.loader.parse(bytes) {
            Ok(snapshot) => Ok(Arc::new(snapshot)),
            Err(_) => Err(rejected(None, "the file could not be read afterwards")),
        }
    }

    /// The edited file would be invalid, so the change is rejected.
    fn to_write_error(&self, error: &TableError) -> WriteError {
        let position = |name: &str| self.mapping.column_position(name);
        match error {
            TableError::DuplicateKey { .. } => WriteError::AlreadyExists,
            TableError::MissingKey { column, .. } => rejected(position(column), "a key must have a value"),
            TableError::MissingValue { column, .. } => rejected(position(column), "a value is required"),
            TableError::TypeMismatch { column, data_type: kind, .. } => {
                rejected(position(column), &format!("the value is not of type `{}`", kind.as_str()))
            }
            TableError::File(_)
            | TableError::Parse(_)
            | TableError::TooLarge
            | TableError::NoColumns
            | TableError::TableNotFound { .. }
            | TableError::ColumnNotFound { .. } => {
                rejected(None, "the file would no longer fit its contract")
            }
        }
    }
}

impl Writer for TableWriter {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        let file = self.file.begin(options)?;
        let (current, changed, notices) = (None, None, Vec::new());
        Ok(Box::new(TableTransaction { writer: self, file, current, changed, notices }))
    }
}

struct TableTransaction<'w> {
    writer: &'w TableWriter,
    file: WatchedTransaction<'w, FormatLoader>,
    /// The file and the table as they are, once they were read.
    current: Option<(Arc<FileSnapshot>, TableView)>,
    /// The table as it will be, and the row that was created or updated.
    changed: Option<(TableView, u32)>,
    notices: Vec<String>,
}

impl TableTransaction<'_> {
    /// Parses the file, if that was not done yet. Not at the beginning: a repeated request gets its response even if
    /// the file has become invalid.
    fn current(&mut self) -> Result<&(Arc<FileSnapshot>, TableView), WriteError> {
        if self.current.is_none() {
            let opened = self.file.snapshot().and_then(|snapshot| {
                let view = self.writer.mapping.open_view(&snapshot)?;
                Ok((snapshot, view))
            });
            self.current = Some(opened.map_err(|error| self.writer.write_error(&error))?);
        }
        Ok(self.current.as_ref().expect("just set"))
    }
}

impl Transaction for TableTransaction<'_> {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.file.find_response(key)
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.file.store_response(key, response)
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        self.file.commit()
    }

    fn roll_back(self: Box<Self>) {}
}

impl RowTransaction for TableTransaction<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        let (_, view) = self.current()?;
        Ok(view.find(key).map(|row| view.row_values(row)))
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        let writer = self.writer;
        let plan = self.current()?.1.plan_edit(change)?;
        if let PlannedEdit::Set(row, new_values) = &plan
            && new_values.is_empty()
        {
            self.changed = self.current.take().map(|(_, view)| (view, *row));
            return Ok(());
        }
        let (old, view) = self.current.as_ref().expect("read above");
        let new_bytes = writer.rewrite_file(self.file.bytes(), view, &plan)?;
        let new = writer.parse_back(&new_bytes)?;
        check_rest_unchanged(old, &new, view, &plan)?;
        let new_view = writer.mapping.open_view(&new).map_err(|error| writer.to_write_error(&error))?;
        self.notices = outdated_notices(old, &new).map(str::to_owned).collect();
        self.changed = match &plan {
            PlannedEdit::Append(new_values) => {
                let row = view.table.len();
                check_reads_back(&new_view, row, new_values)?;
                Some((new_view, row))
            }
            PlannedEdit::Set(row, new_values) => {
                check_reads_back(&new_view, *row, new_values)?;
                Some((new_view, *row))
            }
            PlannedEdit::Remove(_) => None,
        };
        self.file.set_bytes(new_bytes, new)
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        Ok(self.changed.as_ref().map(|(view, row)| view.row_values(*row)))
    }

    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }
}

fn rejected(column: Option<usize>, reason: &str) -> WriteError {
    WriteError::Rejected { column, reason: reason.into() }
}

/// The header position of a column of the shape; beyond the end if no row names it.
fn header_index(view: &TableView, position: usize) -> usize {
    view.columns[position].column_index.unwrap_or(view.table.header.len() + position)
}

/// Checks that the row reads back as intended.
fn check_reads_back(view: &TableView, row: u32, new_values: &[NewValue]) -> Result<(), WriteError> {
    for new_value in new_values {
        let column = &view.columns[new_value.column];
        if !new_value.reads_back_as(column, column.value(&view.table, row).as_value_ref()) {
            return Err(rejected(Some(new_value.column), "the value would not read back unchanged"));
        }
    }
    Ok(())
}

impl TableView {
    fn plan_edit(&self, change: &RowChange<'_>) -> Result<PlannedEdit, WriteError> {
        match change {
            RowChange::Create { values } => {
                let new_values = self.new_values(values.iter().copied())?;
                self.check_new_key(&new_values)?;
                Ok(PlannedEdit::Append(new_values))
            }
            RowChange::Update { key, values } => {
                let row = self.find(key).ok_or(WriteError::NotFound)?;
                let mut new_values = self.new_values(values.iter().copied())?;
                // A value that reads the same already keeps its storage: a `true` in the file does not become a
                // `"true"`.
                new_values.retain(|new_value| {
                    let column = &self.columns[new_value.column];
                    !new_value.is_stored_already(column, column.value(&self.table, row).as_value_ref())
                });
                Ok(PlannedEdit::Set(row, new_values))
            }
            RowChange::Delete { key } => {
                let row = self.find(key).ok_or(WriteError::NotFound)?;
                Ok(PlannedEdit::Remove(row))
            }
        }
    }

    fn new_values<'a>(
        &self,
        values: impl Iterator<Item = (usize, ValueRef<'a>)>,
    ) -> Result<Vec<NewValue>, WriteError> {
        let new_values = values.map(|(position, cell)| {
            let column = &self.columns[position];
            let computed =
                column.column_index.and_then(|at| self.table.computed.iter().find(|(one, _)| *one == at));
            if let Some((_, reason)) = computed {
                return Err(rejected(Some(position), reason));
            }
            let storage = column
                .column_index
                .map(|field| self.table.profile(field).storage_class())
                .unwrap_or_default();
            NewValue::new(position, column, storage, cell)
        });
        new_values.collect()
    }

    /// A new row needs a key that no other row has.
    fn check_new_key(&self, new_values: &[NewValue]) -> Result<(), WriteError> {
        let mut key = Vec::with_capacity(self.orders.key_columns.len());
        for position in &self.orders.key_columns {
            let cell = new_values
                .iter()
                .find(|new_value| new_value.column == *position)
                .map(|new_value| new_value.value.as_value_ref());
            match cell {
                Some(cell) if self.columns[*position].key_value(cell).is_some() => key.push(cell),
                Some(_) | None => return Err(rejected(Some(*position), "a key must have a value")),
            }
        }
        if !key.is_empty() && self.find(&key).is_some() {
            return Err(WriteError::AlreadyExists);
        }
        Ok(())
    }
}

/// Checks that everything else in the file is as before.
fn check_rest_unchanged(
    old: &FileSnapshot,
    new: &FileSnapshot,
    view: &TableView,
    plan: &PlannedEdit,
) -> Result<(), WriteError> {
    let is_same = old.tables.len() == new.tables.len()
        && old.tables.iter().zip(&new.tables).enumerate().all(|(at, (old, new))| {
            old.name == new.name
                && match at == view.table_index {
                    true => TableDiff::new(old, new).is_some_and(|both| both.is_equal_except(view, plan)),
                    false => TableDiff::new(old, new).is_some_and(|both| both.is_equal()),
                }
        });
    if is_same { Ok(()) } else { Err(rejected(None, "more than this row would change in the file")) }
}

/// The notices of the tables in which the edit made values stale.
fn outdated_notices<'a>(old: &FileSnapshot, new: &'a FileSnapshot) -> impl Iterator<Item = &'a str> {
    let grew = |(old, new): &(&Arc<Table>, &Arc<Table>)| new.outdated().len() > old.outdated().len();
    let grown: Vec<&'a str> = old
        .tables
        .iter()
        .zip(&new.tables)
        .filter(grew)
        .filter_map(|(_, new)| new.notice.as_deref())
        .collect();
    grown.into_iter()
}

/// A table before and after an edit.
struct TableDiff<'a> {
    old: &'a Table,
    new: &'a Table,
    /// Positions of each column in both tables. Computed columns are left out, because they may be computed again.
    columns: Vec<(Option<usize>, Option<usize>)>,
}

impl<'a> TableDiff<'a> {
    /// `None` if the two tables do not have the same columns.
    fn new(old: &'a Table, new: &'a Table) -> Option<Self> {
        let is_computed = |at: usize| old.computed.iter().any(|(one, _)| *one == at);
        let columns = if old.header == new.header {
            (0..old.header.len()).filter(|at| !is_computed(*at)).map(|at| (Some(at), Some(at))).collect()
        } else if old.is_schemaless && new.is_schemaless {
            let position = |table: &Table, name: &String| table.header.iter().position(|one| one == name);
            let rest = old.header.iter().enumerate().map(|(at, name)| (Some(at), position(new, name)));
            let is_new = |(_, name): &(usize, &String)| position(old, name).is_none();
            let added = new.header.iter().enumerate().filter(is_new).map(|(at, _)| (None, Some(at)));
            rest.chain(added).collect()
        } else {
            return None;
        };
        Some(Self { old, new, columns })
    }

    fn is_equal(&self) -> bool {
        self.old.len() == self.new.len()
            && (0..self.old.len()).all(|row| self.is_same_row(row, row, |_, _| false))
    }

    fn is_equal_except(&self, view: &TableView, plan: &PlannedEdit) -> bool {
        let rows = self.old.len();
        let none = |_: Option<usize>, _: Option<usize>| false;
        let is_same = |old: u32, new: u32| self.is_same_row(old, new, none);
        match plan {
            PlannedEdit::Append(new_values) => {
                self.new.len() == rows + 1
                    && (0..rows).all(|row| is_same(row, row))
                    && self.columns.iter().all(|(old, new)| {
                        self.is_edited(view, new_values, *old, *new)
                            || stored_value(self.new, rows, *new) == StoredValue::Null
                    })
            }
            PlannedEdit::Set(changed, new_values) => {
                self.new.len() == rows
                    && (0..rows).all(|row| match row == *changed {
                        true => {
                            self.is_same_row(row, row, |old, new| self.is_edited(view, new_values, old, new))
                        }
                        false => is_same(row, row),
                    })
            }
            PlannedEdit::Remove(removed) => {
                self.new.len() + 1 == rows
                    && (0..rows)
                        .filter(|row| row != removed)
                        .all(|row| is_same(row, if row < *removed { row } else { row - 1 }))
            }
        }
    }

    fn is_edited(
        &self,
        view: &TableView,
        new_values: &[NewValue],
        old: Option<usize>,
        new: Option<usize>,
    ) -> bool {
        new_values.iter().any(|new_value| {
            let column = &view.columns[new_value.column];
            match column.column_index {
                Some(field) => old == Some(field),
                None => new.is_some_and(|at| self.new.header[at] == column.name),
            }
        })
    }

    fn is_same_row(
        &self,
        old: u32,
        new: u32,
        is_named: impl Fn(Option<usize>, Option<usize>) -> bool,
    ) -> bool {
        self.columns.iter().all(|(before, after)| {
            is_identical(stored_value(self.old, old, *before), stored_value(self.new, new, *after))
                || is_named(*before, *after)
                || after.is_some_and(|after| self.new.is_outdated(new, after))
        })
    }
}

fn stored_value(table: &Table, row: u32, column: Option<usize>) -> StoredValue<'_> {
    column.map_or(StoredValue::Null, |column| table.value(row, column))
}

fn is_identical(a: StoredValue<'_>, b: StoredValue<'_>) -> bool {
    match (a, b) {
        (StoredValue::Real(a), StoredValue::Real(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
