//! Writes one row of the file.
//!
//! Under the file lock, the writer parses the current bytes, makes one splice, and parses the new bytes before it
//! keeps them: every other row must read as before, the changed row as intended, and every open reader must still be
//! able to read the file.

use std::borrow::Cow;
use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::source::{
    IdempotencyKey, RowChange, RowTransaction, SourceError, Transaction, TransactionOptions, WriteError,
    Writer,
};
use contract::{DataType, Value, ValueRef};

use super::error::CsvError;
use super::load::{CsvLoader, CsvSnapshot};
use super::splice::Splice;
use super::table::CsvTable;
use super::view::{CsvMapping, CsvView};
use crate::snapshot_reader::ReadableTable as _;
use crate::watch::{FileLoader, WatchedFile, WatchedTransaction};

pub(super) struct CsvWriter {
    file: Arc<WatchedFile<CsvLoader>>,
    mapping: CsvMapping,
}

/// A planned edit.
struct CsvEdit {
    splice: Option<Splice>,
    /// What happens to the rows.
    effect: RowEffect,
    /// The texts of the changed row after the edit, by their positions in the file.
    expected: Vec<(usize, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowEffect {
    /// A new last row.
    Appended,
    /// This row changed.
    Updated(u32),
    /// This row is gone.
    Removed(u32),
}

impl CsvWriter {
    pub(super) fn new(file: Arc<WatchedFile<CsvLoader>>, mapping: CsvMapping) -> Self {
        Self { file, mapping }
    }
}

impl Writer for CsvWriter {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        let file = self.file.begin(options)?;
        Ok(Box::new(CsvTransaction { writer: self, file, current: None, changed: None }))
    }
}

struct CsvTransaction<'w> {
    writer: &'w CsvWriter,
    file: WatchedTransaction<'w, CsvLoader>,
    /// The file and the table as they are, once they were read.
    current: Option<(Arc<CsvSnapshot>, CsvView)>,
    /// The table as it will be, and the row that was created or updated.
    changed: Option<(CsvView, u32)>,
}

impl CsvTransaction<'_> {
    /// Parses the file, if that was not done yet. Not at the beginning: a repeated request gets its response even if
    /// the file has become invalid.
    fn current(&mut self) -> Result<&(Arc<CsvSnapshot>, CsvView), WriteError> {
        if self.current.is_none() {
            let opened = self.file.snapshot().and_then(|snapshot| {
                let view = self.writer.mapping.open_view(&snapshot)?;
                Ok((snapshot, view))
            });
            self.current = Some(opened.map_err(|error| self.writer.file.source_error(&error))?);
        }
        Ok(self.current.as_ref().expect("just set"))
    }
}

impl Transaction for CsvTransaction<'_> {
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

impl RowTransaction for CsvTransaction<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        let (_, view) = self.current()?;
        Ok(view.find(key).map(|row| view.row_values(row)))
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        let writer = self.writer;
        let (_, view) = self.current()?;
        let edit = match change {
            RowChange::Create { values } => writer.create(view, values)?,
            RowChange::Update { key, values } => writer.update(view, key, values)?,
            RowChange::Delete { key } => {
                let row = view.find(key).ok_or(WriteError::NotFound)?;
                let splice = Some(view.table.remove_row(row));
                CsvEdit { splice, effect: RowEffect::Removed(row), expected: Vec::new() }
            }
        };
        let Some(splice) = &edit.splice else {
            let RowEffect::Updated(row) = edit.effect else { unreachable!("a row more or less is a splice") };
            self.changed = self.current.take().map(|(_, view)| (view, row));
            return Ok(());
        };
        let (old, _) = self.current.as_ref().expect("read above");
        let (bytes, new) = writer.apply_splice(self.file.bytes(), old, splice)?;
        writer.check_rest_unchanged(old, &new, splice, edit.effect)?;
        let new_view = writer.mapping.open_view(&new).map_err(|error| writer.to_write_error(&error))?;
        if let Some(error) = writer.file.observer_error(old, &new) {
            return Err(writer.to_write_error(&error));
        }
        let row = match edit.effect {
            RowEffect::Appended => Some(new.table.len() - 1),
            RowEffect::Updated(row) => Some(row),
            RowEffect::Removed(_) => None,
        };
        if let Some(row) = row {
            check_reads_back(&new_view, row, &edit)?;
        }
        self.changed = row.map(|row| (new_view, row));
        self.file.set_bytes(bytes, new)
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        Ok(self.changed.as_ref().map(|(view, row)| view.row_values(*row)))
    }
}

impl CsvWriter {
    fn create(&self, view: &CsvView, cells: &[(usize, ValueRef<'_>)]) -> Result<CsvEdit, WriteError> {
        let rendered = self.render_values(view, cells)?;
        let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(view.table.header.len());
        for field in 0..view.table.header.len() {
            let given =
                rendered.iter().rev().find(|(position, _)| view.columns[*position].field_index == field);
            let position = view.columns.iter().position(|column| column.field_index == field);
            texts.push(match (given, position) {
                (Some((_, text)), _) => Cow::Borrowed(text),
                (None, Some(position)) => {
                    let default = self.mapping.columns[position].default_text();
                    Cow::Borrowed(
                        default.map_err(|reason| WriteError::Rejected { column: Some(position), reason })?,
                    )
                }
                // The contract does not have this column.
                (None, None) => Cow::Borrowed(self.mapping.null_text.as_deref().unwrap_or_default()),
            });
        }
        let key: Vec<&str> = self
            .mapping
            .key_columns
            .iter()
            .map(|position| &*texts[view.columns[*position].field_index])
            .collect();
        self.check_key(&key)?;
        let key_columns = self.mapping.key_columns.iter().map(|position| &view.columns[*position]);
        let key: Vec<Cow<'_, str>> =
            key_columns.zip(key).map(|(column, text)| column.canonical(Cow::Borrowed(text))).collect();
        let key: Vec<ValueRef<'_>> = key.iter().map(|text| ValueRef::Text(text)).collect();
        if !key.is_empty() && view.find(&key).is_some() {
            return Err(WriteError::AlreadyExists);
        }
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let expected = texts.iter().map(|text| (*text).to_owned()).enumerate().collect();
        Ok(CsvEdit { splice: Some(view.table.append_row(&texts)), effect: RowEffect::Appended, expected })
    }

    fn update(
        &self,
        view: &CsvView,
        key: &[ValueRef<'_>],
        cells: &[(usize, ValueRef<'_>)],
    ) -> Result<CsvEdit, WriteError> {
        let row = view.find(key).ok_or(WriteError::NotFound)?;
        let mut rendered = self.render_values(view, cells)?;
        // A value that is equal already keeps its spelling.
        let is_news = |(position, text): &(usize, String)| {
            let column = &view.columns[*position];
            let is = view.table.field_text(row, column.field_index);
            let is_same_number = || column.data_type == DataType::Number && is_same_number(&is, text);
            let is_same_value = || column.format.is_some() && column.is_same_value(&is, text);
            !(is == *text
                || (column.is_null(&is) && column.is_null(text))
                || is_same_number()
                || is_same_value())
        };
        rendered.retain(is_news);
        let key = rendered.iter().filter(|(position, _)| self.mapping.key_columns.contains(position));
        self.check_key(&key.map(|(_, text)| &**text).collect::<Vec<_>>())?;
        let expected: Vec<(usize, String)> =
            rendered.into_iter().map(|(position, text)| (view.columns[position].field_index, text)).collect();
        let texts: Vec<(usize, &str)> = expected.iter().map(|(field, text)| (*field, &**text)).collect();
        Ok(CsvEdit { splice: view.table.set_fields(row, &texts), effect: RowEffect::Updated(row), expected })
    }

    /// Texts by positions in the shape. If a position occurs twice, the last one counts.
    fn render_values(
        &self,
        view: &CsvView,
        cells: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<(usize, String)>, WriteError> {
        let mut rendered: Vec<(usize, String)> = Vec::with_capacity(cells.len());
        for (position, cell) in cells {
            let column = &self.mapping.columns[*position];
            let text = column.render(
                *cell,
                self.file.loader.options.formulas,
                &view.table,
                view.columns[*position].field_index,
            );
            let text = text.map_err(|reason| WriteError::Rejected { column: Some(*position), reason })?;
            rendered.retain(|(other, _)| other != position);
            rendered.push((*position, text.into_owned()));
        }
        Ok(rendered)
    }

    /// Cursors and callers identify a row by its key.
    fn check_key(&self, texts: &[&str]) -> Result<(), WriteError> {
        let refused = |reason: String| {
            Err(WriteError::Rejected { column: self.mapping.key_columns.first().copied(), reason })
        };
        if texts.iter().any(|text| text.is_empty()) {
            return refused("expected a value, because it is the key".into());
        }
        if texts.iter().map(|text| text.len()).sum::<usize>() > KEY_BYTES_MAX {
            return refused(format!("a key must not exceed {KEY_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn apply_splice(
        &self,
        bytes: &[u8],
        old: &CsvSnapshot,
        splice: &Splice,
    ) -> Result<(Vec<u8>, Arc<CsvSnapshot>), WriteError> {
        let refused = |reason: String| WriteError::Rejected { column: None, reason };
        let bytes = splice
            .apply_to_bytes(&old.table, bytes)
            .map_err(|c| refused(format!("`{}` cannot be written in this file", c.escape_debug())))?;
        let snapshot = self.file.loader.load(bytes.clone()).map_err(|error| self.to_write_error(&error))?;
        Ok((bytes, Arc::new(snapshot)))
    }

    /// Checks that the new file equals the old one except for the splice.
    fn check_rest_unchanged(
        &self,
        old: &CsvSnapshot,
        new: &CsvSnapshot,
        splice: &Splice,
        rows: RowEffect,
    ) -> Result<(), WriteError> {
        let refused = |reason: &str| Err(WriteError::Rejected { column: None, reason: reason.into() });
        let (old, new) = (&old.table, &new.table);
        // A file that loses its last special character is valid in several encodings.
        if new.text != splice.apply_to_text(&old.text) {
            return refused("the file would be read in another encoding; save it as UTF-8");
        }
        if new.splitter.delimiter != old.splitter.delimiter {
            return refused(
                "the file would be read with another delimiter; set `delimiter` for the source in the manifest",
            );
        }
        if new.header != old.header || !has_expected_rows(old, new, splice, rows) {
            return refused("other rows would no longer read the same");
        }
        Ok(())
    }

    /// The edited file would be invalid, so the change is rejected.
    fn to_write_error(&self, error: &CsvError) -> WriteError {
        let position = |name: &str| self.mapping.columns.iter().position(|column| column.name == name);
        let response = || match self.file.source_error(error) {
            SourceError::Incompatible { message: response, .. }
            | SourceError::Unavailable { message: response, .. } => response,
            other => other.to_string(),
        };
        let because = |column: &str| WriteError::Rejected {
            column: position(column),
            reason: format!("the file would no longer fit its contract: {}", response()),
        };
        match error {
            CsvError::DuplicateKey { .. } => WriteError::AlreadyExists,
            CsvError::TypeMismatch { column, .. }
            | CsvError::MissingValue { column, .. }
            | CsvError::MissingKey { column, .. } => because(column),
            CsvError::File(_)
            | CsvError::Empty
            | CsvError::NoHeader { .. }
            | CsvError::WrongFormat(_)
            | CsvError::Nul { .. }
            | CsvError::InvalidUtf8 { .. }
            | CsvError::InvalidUtf16
            | CsvError::NeedsMemory
            | CsvError::UnknownEncoding { .. }
            | CsvError::InvalidEncoding { .. }
            | CsvError::OtherEncoding { .. }
            | CsvError::InvalidDelimiter(_)
            | CsvError::TooManyColumns(_)
            | CsvError::Ragged { .. }
            | CsvError::UnclosedQuote { .. }
            | CsvError::ColumnNotFound { .. } => because(""),
        }
    }
}

/// Checks that every other row starts where it did, or further by the growth of the splice.
fn has_expected_rows(old: &CsvTable, new: &CsvTable, splice: &Splice, rows: RowEffect) -> bool {
    let (touched, more, less) = match rows {
        RowEffect::Appended => (old.len(), 1, 0),
        RowEffect::Updated(row) => (row, 1, 1),
        RowEffect::Removed(row) => (row, 0, 1),
    };
    let touched = touched as usize;
    let shift = |at: u32| (at as usize + splice.replacement.len()).checked_sub(splice.range.len());
    let behind = new.row_starts.get(touched + more..).unwrap_or_default();
    let old_behind = &old.row_starts[touched + less..];
    new.row_starts.len() + less == old.row_starts.len() + more
        && new.row_starts[..touched] == old.row_starts[..touched]
        && behind.iter().zip(old_behind).all(|(new, old)| shift(*old) == Some(*new as usize))
}

fn check_reads_back(view: &CsvView, row: u32, edit: &CsvEdit) -> Result<(), WriteError> {
    let reads_back = edit.expected.iter().all(|(field, text)| view.table.field_text(row, *field) == *text);
    if reads_back {
        return Ok(());
    }
    Err(WriteError::Rejected { column: None, reason: "the row would not read back as intended".into() })
}

fn is_same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}
