//! Writes one row of the file.
//!
//! Under the file lock, the writer parses the current bytes, makes one splice, and parses the new bytes before it
//! keeps them: every other row must read as before, the changed row as intended, and every open reader must still be
//! able to read the file.

use std::borrow::Cow;
use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::source::{RowChange, SourceError, WriteChecks, WriteError, WriteOutcome, WriteRequest, Writer};
use contract::{DataType, ValueRef};

use super::error::CsvError;
use super::load::{CsvLoader, CsvSnapshot};
use super::splice::Splice;
use super::table::CsvTable;
use super::view::{CsvMapping, CsvView};
use crate::atomic_file::EditResult;
use crate::snapshot_reader::ReadableTable as _;
use crate::watch::{FileLoader, WatchedFile};

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
    fn write(
        &self,
        write: &WriteRequest<'_>,
        checks: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.file.write(write, |bytes| self.edit(bytes, &write.change, checks))
    }
}

impl CsvWriter {
    /// The new bytes, the response, and the snapshot of the new bytes if they differ.
    fn edit(
        &self,
        bytes: &[u8],
        change: &RowChange<'_>,
        checks: &mut dyn WriteChecks,
    ) -> Result<(EditResult, Option<Arc<CsvSnapshot>>), WriteError> {
        let old = self.file.snapshot_of(bytes).map_err(|error| self.file.source_error(&error))?;
        let view = self.mapping.open_view(&old).map_err(|error| self.file.source_error(&error))?;
        let edit = match change {
            RowChange::Create { values: cells } => self.create(&view, cells)?,
            RowChange::Update { key, values: cells } => self.update(&view, key, cells, checks)?,
            RowChange::Delete { key } => {
                let row = view.find(key).ok_or(WriteError::NotFound)?;
                view.check_before_write(row, checks)?;
                CsvEdit {
                    splice: Some(view.table.remove_row(row)),
                    effect: RowEffect::Removed(row),
                    expected: Vec::new(),
                }
            }
        };
        let Some(splice) = &edit.splice else {
            let RowEffect::Updated(row) = edit.effect else { unreachable!("a row more or less is a splice") };
            let response = view.check_after_write(row, checks)?;
            return Ok((EditResult { bytes: bytes.to_vec(), response }, None));
        };
        let (bytes, new) = self.apply_splice(bytes, &old, splice)?;
        self.check_rest_unchanged(&old, &new, splice, edit.effect)?;
        let new_view = self.mapping.open_view(&new).map_err(|error| self.to_write_error(&error))?;
        if let Some(error) = self.file.observer_error(&old, &new) {
            return Err(self.to_write_error(&error));
        }
        let response = match edit.effect {
            RowEffect::Appended => read_back(&new_view, new.table.len() - 1, &edit, checks)?,
            RowEffect::Updated(row) => read_back(&new_view, row, &edit, checks)?,
            RowEffect::Removed(row) => view.check_after_write(row, checks)?,
        };
        Ok((EditResult { bytes, response }, Some(new)))
    }

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
        let key: Vec<ValueRef<'_>> = key.into_iter().map(ValueRef::Text).collect();
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
        checks: &mut dyn WriteChecks,
    ) -> Result<CsvEdit, WriteError> {
        let row = view.find(key).ok_or(WriteError::NotFound)?;
        let more = view.check_before_write(row, checks)?;
        let more = more.iter().map(|(position, value)| (*position, value.as_value_ref()));
        let cells: Vec<(usize, ValueRef<'_>)> = cells.iter().copied().chain(more).collect();
        let mut rendered = self.render_values(view, &cells)?;
        // A value that is equal already keeps its spelling.
        let is_news = |(position, text): &(usize, String)| {
            let column = &view.columns[*position];
            let is = view.table.field_text(row, column.field_index);
            let is_same_number = || column.data_type == DataType::Number && is_same_number(&is, text);
            !(is == *text || (column.is_null(&is) && column.is_null(text)) || is_same_number())
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
            | CsvError::WrongFormat(_)
            | CsvError::Nul { .. }
            | CsvError::InvalidUtf8 { .. }
            | CsvError::InvalidUtf16
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

fn read_back(
    view: &CsvView,
    row: u32,
    edit: &CsvEdit,
    checks: &mut dyn WriteChecks,
) -> Result<Vec<u8>, WriteError> {
    let reads_back = edit.expected.iter().all(|(field, text)| view.table.field_text(row, *field) == *text);
    if !reads_back {
        let reason = "the row would not read back as intended".into();
        return Err(WriteError::Rejected { column: None, reason });
    }
    view.check_after_write(row, checks)
}

fn is_same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}
