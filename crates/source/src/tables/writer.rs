//! Writes one row: found by its key, changed in the file's bytes, read back, compared with everything there was,
//! and only then kept.

use std::sync::Arc;

use contract::ValueRef;
use contract::source::{
    RowChange, SourceError, TableShape, WriteChecks, WriteError, WriteOutcome, WriteRequest, Writer,
};

use super::error::TableError;
use super::new_value::NewValue;
use super::snapshot::{FileSnapshot, FormatLoader};
use super::table::{StoredValue, Table};
use super::view::{TableMapping, TableView};
use super::{CellUpdate, RowEdit};
use crate::atomic_file::EditResult;
use crate::snapshot_reader::{ReadableTable as _, bind_shape};
use crate::watch::{FileLoader, WatchedFile};

pub(super) struct TableWriter {
    file: Arc<WatchedFile<FormatLoader>>,
    mapping: TableMapping,
}

/// What is to become of the table.
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
        let fitted = bind_shape(&watch, shape, watch.load_current());
        let (plan, fit) = fitted.map_err(|trouble| watch.source_error(&trouble))?;
        if fit.table.read_only_reason.is_some() {
            return Err(SourceError::read_only());
        }
        Ok(Self { file: watch, mapping: plan })
    }

    fn write_error(&self, trouble: &TableError) -> WriteError {
        self.file.source_error(trouble).into()
    }

    /// The bytes with the change, what is told of it, and what the bytes hold if that is something else.
    fn edit(
        &self,
        bytes: &[u8],
        change: &RowChange<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<(EditResult, Option<Arc<FileSnapshot>>), WriteError> {
        let old = self.file.snapshot_of(bytes).map_err(|trouble| self.write_error(&trouble))?;
        let fit = self.mapping.open_view(&old).map_err(|trouble| self.write_error(&trouble))?;
        let step = fit.plan_edit(change, clerk)?;
        if let PlannedEdit::Set(row, asked) = &step
            && asked.is_empty()
        {
            let told = verify_row(&fit, *row, &[], clerk)?;
            return Ok((EditResult { bytes: bytes.to_vec(), response: told }, None));
        }
        let new_bytes = self.rewrite_file(bytes, &fit, &step)?;
        let new = self.parse_back(&new_bytes)?;
        check_rest_unchanged(&old, &new, &fit, &step)?;
        let new_fit = self.mapping.open_view(&new).map_err(|trouble| self.to_write_error(&trouble))?;
        let told = match &step {
            PlannedEdit::Append(asked) => verify_row(&new_fit, fit.table.len(), asked, clerk)?,
            PlannedEdit::Set(row, asked) => verify_row(&new_fit, *row, asked, clerk)?,
            PlannedEdit::Remove(row) => verify_row(&fit, *row, &[], clerk)?,
        };
        Ok((EditResult { bytes: new_bytes, response: told }, Some(new)))
    }

    fn rewrite_file(&self, bytes: &[u8], fit: &TableView, step: &PlannedEdit) -> Result<Vec<u8>, WriteError> {
        let format = &self.file.loader.format;
        let asked = match step {
            PlannedEdit::Append(asked) | PlannedEdit::Set(_, asked) => &asked[..],
            PlannedEdit::Remove(_) => &[],
        };
        let mut texts = vec![String::new(); asked.len()];
        let puts: Vec<CellUpdate<'_>> = asked
            .iter()
            .zip(&mut texts)
            .map(|(asked, text)| {
                let column = &fit.columns[asked.column];
                let moments = column
                    .column_index
                    .map(|field| fit.table.profile(field).date_time_share())
                    .unwrap_or_default();
                CellUpdate {
                    column: header_index(fit, asked.column),
                    name: &column.name,
                    value: asked.to_stored(text, moments),
                }
            })
            .collect();
        let edit = match step {
            PlannedEdit::Append(_) => RowEdit::Append { updates: &puts },
            PlannedEdit::Set(row, _) => RowEdit::Set { row: *row as usize, updates: &puts },
            PlannedEdit::Remove(row) => RowEdit::Remove { row: *row as usize },
        };
        format.rewrite(bytes, fit.table_index, &edit).map_err(|fault| match fault {
            WriteError::Rejected { column: Some(at), reason: why } => {
                let place =
                    asked.iter().map(|asked| asked.column).find(|place| header_index(fit, *place) == at);
                WriteError::Rejected { column: place, reason: why }
            }
            fault => fault,
        })
    }

    fn parse_back(&self, bytes: &[u8]) -> Result<Arc<FileSnapshot>, WriteError> {
        if bytes.len() as u64 > self.file.loader.file_bytes_max() {
            return Err(rejected(None, "the file would be too large"));
        }
        match self.file.loader.parse(bytes) {
            Ok(state) => Ok(Arc::new(state)),
            Err(_) => Err(rejected(None, "the file could not be read afterwards")),
        }
    }

    /// What the file as it would be lacks, in the words of whoever asked for it.
    fn to_write_error(&self, trouble: &TableError) -> WriteError {
        let place = |name: &str| self.mapping.column_position(name);
        match trouble {
            TableError::DuplicateKey { .. } => WriteError::AlreadyExists,
            TableError::MissingKey { column, .. } => rejected(place(column), "a key must have a value"),
            TableError::MissingValue { column, .. } => rejected(place(column), "there must be a value"),
            TableError::TypeMismatch { column, data_type: kind, .. } => {
                rejected(place(column), &format!("it is not of the kind `{}`", kind.as_str()))
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
    fn write(
        &self,
        write: &WriteRequest<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.file.write(write, |bytes| self.edit(bytes, &write.change, clerk))
    }
}

fn rejected(column: Option<usize>, why: &str) -> WriteError {
    WriteError::Rejected { column, reason: why.into() }
}

/// Where a column of the shape stands in the table: behind all others, if no row names it.
fn header_index(fit: &TableView, place: usize) -> usize {
    fit.columns[place].column_index.unwrap_or(fit.table.header.len() + place)
}

/// The row as it reads back, shown to the clerk, if it is told as it was asked for.
fn verify_row(
    fit: &TableView,
    row: u32,
    asked: &[NewValue],
    clerk: &mut dyn WriteChecks,
) -> Result<Vec<u8>, WriteError> {
    for asked in asked {
        let column = &fit.columns[asked.column];
        if !asked.reads_back_as(column, column.value(&fit.table, row).as_value_ref()) {
            return Err(rejected(Some(asked.column), "it would not read back as it is"));
        }
    }
    fit.check_after_write(row, clerk)
}

impl TableView {
    fn plan_edit(
        &self,
        change: &RowChange<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<PlannedEdit, WriteError> {
        match change {
            RowChange::Create { values: cells } => {
                let asked = self.new_values(cells.iter().copied())?;
                self.check_new_key(&asked)?;
                Ok(PlannedEdit::Append(asked))
            }
            RowChange::Update { key, values: cells } => {
                let row = self.find(key).ok_or(WriteError::NotFound)?;
                let more = self.check_before_write(row, clerk)?;
                // What the clerk says goes before what the caller says.
                let is_said = |place: &usize| more.iter().any(|(other, _)| other == place);
                let kept = cells.iter().copied().filter(|(place, _)| !is_said(place));
                let more = more.iter().map(|(place, value)| (*place, value.as_value_ref()));
                let mut asked = self.new_values(kept.chain(more))?;
                // What nobody could tell apart is not changed: a `true` in the file does not become a `"true"`.
                asked.retain(|asked| {
                    let column = &self.columns[asked.column];
                    !asked.is_stored_already(column, column.value(&self.table, row).as_value_ref())
                });
                Ok(PlannedEdit::Set(row, asked))
            }
            RowChange::Delete { key } => {
                let row = self.find(key).ok_or(WriteError::NotFound)?;
                self.check_before_write(row, clerk)?;
                Ok(PlannedEdit::Remove(row))
            }
        }
    }

    fn new_values<'a>(
        &self,
        cells: impl Iterator<Item = (usize, ValueRef<'a>)>,
    ) -> Result<Vec<NewValue>, WriteError> {
        let asked = cells.map(|(place, cell)| {
            let column = &self.columns[place];
            let computed =
                column.column_index.and_then(|at| self.table.computed.iter().find(|(one, _)| *one == at));
            if let Some((_, why)) = computed {
                return Err(rejected(Some(place), why));
            }
            let sort = column
                .column_index
                .map(|field| self.table.profile(field).storage_class())
                .unwrap_or_default();
            NewValue::new(place, column, sort, cell)
        });
        asked.collect()
    }

    /// A new row has a key, and one that no other row has.
    fn check_new_key(&self, asked: &[NewValue]) -> Result<(), WriteError> {
        let mut key = Vec::with_capacity(self.orders.key_columns.len());
        for place in &self.orders.key_columns {
            let cell =
                asked.iter().find(|asked| asked.column == *place).map(|asked| asked.value.as_value_ref());
            match cell {
                Some(cell) if self.columns[*place].key_value(cell).is_some() => key.push(cell),
                Some(_) | None => return Err(rejected(Some(*place), "a key must have a value")),
            }
        }
        if !key.is_empty() && self.find(&key).is_some() {
            return Err(WriteError::AlreadyExists);
        }
        Ok(())
    }
}

/// Whether everything that nobody named is what it was.
fn check_rest_unchanged(
    old: &FileSnapshot,
    new: &FileSnapshot,
    fit: &TableView,
    step: &PlannedEdit,
) -> Result<(), WriteError> {
    let is_same = old.tables.len() == new.tables.len()
        && old.tables.iter().zip(&new.tables).enumerate().all(|(at, (old, new))| {
            old.name == new.name
                && match at == fit.table_index {
                    true => TableDiff::new(old, new).is_some_and(|both| both.is_equal_except(fit, step)),
                    false => TableDiff::new(old, new).is_some_and(|both| both.is_equal()),
                }
        });
    if is_same { Ok(()) } else { Err(rejected(None, "more than this record would change in the file")) }
}

/// A table before and after.
struct TableDiff<'a> {
    old: &'a Table,
    new: &'a Table,
    /// Places in both. What is computed may be computed anew.
    columns: Vec<(Option<usize>, Option<usize>)>,
}

impl<'a> TableDiff<'a> {
    /// Nothing if their columns are not the same ones.
    fn new(old: &'a Table, new: &'a Table) -> Option<Self> {
        let is_computed = |at: usize| old.computed.iter().any(|(one, _)| *one == at);
        let columns = if old.header == new.header {
            (0..old.header.len()).filter(|at| !is_computed(*at)).map(|at| (Some(at), Some(at))).collect()
        } else if old.is_schemaless && new.is_schemaless {
            let place = |table: &Table, name: &String| table.header.iter().position(|one| one == name);
            let kept = old.header.iter().enumerate().map(|(at, name)| (Some(at), place(new, name)));
            let is_new = |(_, name): &(usize, &String)| place(old, name).is_none();
            let added = new.header.iter().enumerate().filter(is_new).map(|(at, _)| (None, Some(at)));
            kept.chain(added).collect()
        } else {
            return None;
        };
        Some(Self { old, new, columns })
    }

    fn is_equal(&self) -> bool {
        self.old.len() == self.new.len()
            && (0..self.old.len()).all(|row| self.is_same_row(row, row, |_, _| false))
    }

    fn is_equal_except(&self, fit: &TableView, step: &PlannedEdit) -> bool {
        let rows = self.old.len();
        let nobody = |_: Option<usize>, _: Option<usize>| false;
        let is_same = |old: u32, new: u32| self.is_same_row(old, new, nobody);
        match step {
            PlannedEdit::Append(asked) => {
                self.new.len() == rows + 1
                    && (0..rows).all(|row| is_same(row, row))
                    && self.columns.iter().all(|(old, new)| {
                        self.is_edited(fit, asked, *old, *new)
                            || stored_value(self.new, rows, *new) == StoredValue::Null
                    })
            }
            PlannedEdit::Set(changed, asked) => {
                self.new.len() == rows
                    && (0..rows).all(|row| match row == *changed {
                        true => self.is_same_row(row, row, |old, new| self.is_edited(fit, asked, old, new)),
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

    fn is_edited(&self, fit: &TableView, asked: &[NewValue], old: Option<usize>, new: Option<usize>) -> bool {
        asked.iter().any(|asked| {
            let column = &fit.columns[asked.column];
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
