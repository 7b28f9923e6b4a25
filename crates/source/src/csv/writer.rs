//! Writes one row of the file.
//!
//! The file is taken apart as it is under the lock, one splice is made, and the bytes with it are taken apart again
//! before they are kept: every row but the touched one must be there as it was, the touched one as it was meant, and
//! whoever reads the file must still be able to.

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

/// A change in the making.
struct CsvEdit {
    splice: Option<Splice>,
    /// Which row there is more or less.
    effect: RowEffect,
    /// What the touched row must say afterwards, by places in the file.
    expected: Vec<(usize, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowEffect {
    /// One more, behind the others.
    Appended,
    /// The same, this one touched.
    Updated(u32),
    /// One less: this.
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
        clerk: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError> {
        self.file.write(write, |bytes| self.edit(bytes, &write.change, clerk))
    }
}

impl CsvWriter {
    /// The bytes with the change, what is told of it, and what the bytes say if that is something else.
    fn edit(
        &self,
        bytes: &[u8],
        change: &RowChange<'_>,
        clerk: &mut dyn WriteChecks,
    ) -> Result<(EditResult, Option<Arc<CsvSnapshot>>), WriteError> {
        let old = self.file.snapshot_of(bytes).map_err(|trouble| self.file.source_error(&trouble))?;
        let fit = self.mapping.open_view(&old).map_err(|trouble| self.file.source_error(&trouble))?;
        let draft = match change {
            RowChange::Create { values: cells } => self.create(&fit, cells)?,
            RowChange::Update { key, values: cells } => self.update(&fit, key, cells, clerk)?,
            RowChange::Delete { key } => {
                let row = fit.find(key).ok_or(WriteError::NotFound)?;
                fit.check_before_write(row, clerk)?;
                CsvEdit {
                    splice: Some(fit.table.remove_row(row)),
                    effect: RowEffect::Removed(row),
                    expected: Vec::new(),
                }
            }
        };
        let Some(splice) = &draft.splice else {
            let RowEffect::Updated(row) = draft.effect else {
                unreachable!("a row more or less is a splice")
            };
            let told = fit.check_after_write(row, clerk)?;
            return Ok((EditResult { bytes: bytes.to_vec(), response: told }, None));
        };
        let (bytes, new) = self.apply_splice(bytes, &old, splice)?;
        self.check_rest_unchanged(&old, &new, splice, draft.effect)?;
        let new_fit = self.mapping.open_view(&new).map_err(|trouble| self.to_write_error(&trouble))?;
        if let Some(trouble) = self.file.observer_error(&old, &new) {
            return Err(self.to_write_error(&trouble));
        }
        let told = match draft.effect {
            RowEffect::Appended => read_back(&new_fit, new.table.len() - 1, &draft, clerk)?,
            RowEffect::Updated(row) => read_back(&new_fit, row, &draft, clerk)?,
            RowEffect::Removed(row) => fit.check_after_write(row, clerk)?,
        };
        Ok((EditResult { bytes, response: told }, Some(new)))
    }

    fn create(&self, fit: &CsvView, cells: &[(usize, ValueRef<'_>)]) -> Result<CsvEdit, WriteError> {
        let said = self.render_values(fit, cells)?;
        let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(fit.table.header.len());
        for field in 0..fit.table.header.len() {
            let given = said.iter().rev().find(|(place, _)| fit.columns[*place].field_index == field);
            let place = fit.columns.iter().position(|column| column.field_index == field);
            texts.push(match (given, place) {
                (Some((_, text)), _) => Cow::Borrowed(text),
                (None, Some(place)) => {
                    let default = self.mapping.columns[place].default_text();
                    Cow::Borrowed(
                        default.map_err(|why| WriteError::Rejected { column: Some(place), reason: why })?,
                    )
                }
                // Nobody who reads through this contract knows of it.
                (None, None) => Cow::Borrowed(self.mapping.null_text.as_deref().unwrap_or_default()),
            });
        }
        let key: Vec<&str> =
            self.mapping.key_columns.iter().map(|place| &*texts[fit.columns[*place].field_index]).collect();
        self.check_key(&key)?;
        let key: Vec<ValueRef<'_>> = key.into_iter().map(ValueRef::Text).collect();
        if !key.is_empty() && fit.find(&key).is_some() {
            return Err(WriteError::AlreadyExists);
        }
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let expected = texts.iter().map(|text| (*text).to_owned()).enumerate().collect();
        Ok(CsvEdit { splice: Some(fit.table.append_row(&texts)), effect: RowEffect::Appended, expected })
    }

    fn update(
        &self,
        fit: &CsvView,
        key: &[ValueRef<'_>],
        cells: &[(usize, ValueRef<'_>)],
        clerk: &mut dyn WriteChecks,
    ) -> Result<CsvEdit, WriteError> {
        let row = fit.find(key).ok_or(WriteError::NotFound)?;
        let more = fit.check_before_write(row, clerk)?;
        let more = more.iter().map(|(place, value)| (*place, value.as_value_ref()));
        let cells: Vec<(usize, ValueRef<'_>)> = cells.iter().copied().chain(more).collect();
        let mut said = self.render_values(fit, &cells)?;
        // What means the same already is left as it stands.
        let is_news = |(place, text): &(usize, String)| {
            let column = &fit.columns[*place];
            let is = fit.table.field_text(row, column.field_index);
            let is_same_number = || column.data_type == DataType::Number && is_same_number(&is, text);
            !(is == *text || (column.is_null(&is) && column.is_null(text)) || is_same_number())
        };
        said.retain(is_news);
        let key = said.iter().filter(|(place, _)| self.mapping.key_columns.contains(place));
        self.check_key(&key.map(|(_, text)| &**text).collect::<Vec<_>>())?;
        let expected: Vec<(usize, String)> =
            said.into_iter().map(|(place, text)| (fit.columns[place].field_index, text)).collect();
        let texts: Vec<(usize, &str)> = expected.iter().map(|(field, text)| (*field, &**text)).collect();
        Ok(CsvEdit { splice: fit.table.set_fields(row, &texts), effect: RowEffect::Updated(row), expected })
    }

    /// Texts by places in the shape. If a place comes twice, the last counts.
    fn render_values(
        &self,
        fit: &CsvView,
        cells: &[(usize, ValueRef<'_>)],
    ) -> Result<Vec<(usize, String)>, WriteError> {
        let mut said: Vec<(usize, String)> = Vec::with_capacity(cells.len());
        for (place, cell) in cells {
            let column = &self.mapping.columns[*place];
            let text = column.render(*cell, self.file.loader.options.formulas, fit.table.encoding);
            let text = text.map_err(|why| WriteError::Rejected { column: Some(*place), reason: why })?;
            said.retain(|(other, _)| other != place);
            said.push((*place, text.into_owned()));
        }
        Ok(said)
    }

    /// A key is what cursors and callers name a row by.
    fn check_key(&self, texts: &[&str]) -> Result<(), WriteError> {
        let refused = |why: String| {
            Err(WriteError::Rejected { column: self.mapping.key_columns.first().copied(), reason: why })
        };
        if texts.iter().any(|text| text.is_empty()) {
            return refused("expected a value, because it is the key".into());
        }
        if texts.iter().map(|text| text.len()).sum::<usize>() > KEY_BYTES_MAX {
            return refused(format!("a key has at most {KEY_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn apply_splice(
        &self,
        bytes: &[u8],
        old: &CsvSnapshot,
        splice: &Splice,
    ) -> Result<(Vec<u8>, Arc<CsvSnapshot>), WriteError> {
        let refused = |why: String| WriteError::Rejected { column: None, reason: why };
        let bytes = splice
            .apply_to_bytes(&old.table, bytes)
            .map_err(|c| refused(format!("`{}` cannot be written in this file", c.escape_debug())))?;
        let loaded = self.file.loader.load(bytes.clone()).map_err(|trouble| self.to_write_error(&trouble))?;
        Ok((bytes, Arc::new(loaded)))
    }

    /// That the file is the old one but for the splice, in whichever way it is looked at.
    fn check_rest_unchanged(
        &self,
        old: &CsvSnapshot,
        new: &CsvSnapshot,
        splice: &Splice,
        rows: RowEffect,
    ) -> Result<(), WriteError> {
        let refused = |why: &str| Err(WriteError::Rejected { column: None, reason: why.into() });
        let (old, new) = (&old.table, &new.table);
        // A file without a strange character left is the same in several encodings.
        if new.text != splice.apply_to_text(&old.text) {
            return refused("the file would be taken for one in another encoding; save it as UTF-8");
        }
        if new.splitter.delimiter != old.splitter.delimiter {
            return refused(
                "the file would be taken for one with another delimiter; `delimiter` for the source in the manifest \
                 says which it is",
            );
        }
        if new.header != old.header || !has_expected_rows(old, new, splice, rows) {
            return refused("other rows would not be read as they are now");
        }
        Ok(())
    }

    /// The file as it would be is wrong: the change is at fault.
    fn to_write_error(&self, trouble: &CsvError) -> WriteError {
        let place = |name: &str| self.mapping.columns.iter().position(|column| column.name == name);
        let told = || match self.file.source_error(trouble) {
            SourceError::Incompatible { message: told, .. }
            | SourceError::Unavailable { message: told, .. } => told,
            other => other.to_string(),
        };
        let because = |column: &str| WriteError::Rejected {
            column: place(column),
            reason: format!("the file would not be what it is read as: {}", told()),
        };
        match trouble {
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
            | CsvError::InvalidDelimiter(_)
            | CsvError::TooManyColumns(_)
            | CsvError::Ragged { .. }
            | CsvError::UnclosedQuote { .. }
            | CsvError::ColumnNotFound { .. } => because(""),
        }
    }
}

/// Rows begin where they began, or as much further as the splice is longer.
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
    fit: &CsvView,
    row: u32,
    draft: &CsvEdit,
    clerk: &mut dyn WriteChecks,
) -> Result<Vec<u8>, WriteError> {
    let is_as_meant = draft.expected.iter().all(|(field, text)| fit.table.field_text(row, *field) == *text);
    if !is_as_meant {
        let why = "the row would not read back as it was meant".into();
        return Err(WriteError::Rejected { column: None, reason: why });
    }
    fit.check_after_write(row, clerk)
}

fn is_same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}
