//! A CSV file that is too large for memory, served from an import (see [`crate::large`]).
//!
//! The file is read in parts: first to find the table and the types of its columns, then to import its rows. Both give the
//! same facts and values as a file in memory has.

mod profile;
mod records;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::diagnostic::Diagnostic;
use contract::source::{ColumnShape, Reader, Source, SourceError, SourceFacts, TableShape};
use contract::{ColumnFormat, DataType, ValueRef};

use super::error::CsvError;
use super::location::TextLocation;
use super::sniff::FileExtension;
use super::table::CsvColumnProfile;
use super::view::is_null;
use super::{Options, facts, shown_columns};
use crate::key_index::{KeyCandidate, find_key_column};
use crate::large::{
    ImportAffinity, ImportColumn, ImportPlan, ImportValue, LargeFile, LargeFormat, NOTE, PlanIdentity,
    READ_ONLY_REASON, TableImport, stored_value,
};
use crate::snapshot_reader::column_lookup::{self, Requirement};
use profile::{LargeTable, SampleSize};

pub struct LargeCsv(Arc<LargeFile<CsvFormat>>);

/// How a CSV file is read in parts.
struct CsvFormat {
    extension: FileExtension,
    options: Options,
    sample: SampleSize,
}

/// How a column is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ColumnPlan {
    position: usize,
    name: String,
    data_type: DataType,
    null_texts: Vec<String>,
    format: Option<ColumnFormat>,
    requirement: Requirement,
}

impl ImportPlan for ColumnPlan {
    fn position(&self) -> usize {
        self.position
    }

    fn write_identity(&self, part: &mut dyn FnMut(&[u8])) {
        let Self { position, name, data_type, null_texts, format, requirement } = self;
        PlanIdentity {
            position: *position,
            name,
            data_type: *data_type,
            mixed: false,
            null_texts,
            format: format.as_ref(),
            requirement: *requirement,
        }
        .write(part);
    }
}

#[derive(Debug, Clone)]
enum LargeError {
    Csv(CsvError),
    Source(SourceError),
}

impl From<CsvError> for LargeError {
    fn from(error: CsvError) -> Self {
        Self::Csv(error)
    }
}

impl From<SourceError> for LargeError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl LargeCsv {
    /// Does not read the file yet. Imports are kept in `cache`, which is created if it does not exist.
    pub fn open(path: &Path, options: Options, cache: &Path) -> Self {
        Self::with_sample(path, options, cache, SampleSize::DEFAULT)
    }

    fn with_sample(path: &Path, options: Options, cache: &Path, sample: SampleSize) -> Self {
        let format = CsvFormat { extension: FileExtension::of(path), options, sample };
        Self(LargeFile::open(path, format, cache))
    }
}

impl Source for LargeCsv {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load().map_err(|error| self.0.source_error(&error))?;
        let LargeTable { table, rows, .. } = &snapshot.table;
        let mut found = facts(self.0.stem(), table, &snapshot.key, *rows, Some(READ_ONLY_REASON.to_owned()));
        found.notes.push(NOTE.into());
        Ok(found)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        self.0.reader(shape)
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        match self.0.find_error(shape)? {
            LargeError::Csv(error) => Some(error.to_diagnostic(&self.0.file_name, &self.0.path)),
            LargeError::Source(_) => None,
        }
    }
}

impl LargeFormat for CsvFormat {
    type Table = LargeTable;
    type Column = ColumnPlan;
    type Error = LargeError;

    fn profile(&self, path: &Path) -> Result<LargeTable, LargeError> {
        Ok(LargeTable::profile(path, self.extension, &self.options, self.sample)?)
    }

    fn default_plan(&self, table: &LargeTable) -> Vec<ColumnPlan> {
        default_plan(table)
    }

    fn write_interpretation(&self, table: &LargeTable, part: &mut dyn FnMut(&[u8])) {
        table.write_interpretation(part);
    }

    fn fill(
        &self,
        path: &Path,
        to: &Path,
        table: &LargeTable,
        plan: &[ColumnPlan],
    ) -> Result<(), LargeError> {
        let columns: Vec<ImportColumn> = plan
            .iter()
            .map(|column| ImportColumn {
                position: column.position,
                data_type: column.data_type,
                affinity: ImportAffinity::OfType,
                nullable: column.requirement == Requirement::Optional,
            })
            .collect();
        let mut import = TableImport::create(to, &columns)?;
        let mut failed: Option<SourceError> = None;
        let mut scratches = vec![String::new(); plan.len()];
        table.for_each_row(path, |record| {
            let mut values = Vec::with_capacity(plan.len());
            for (column, scratch) in plan.iter().zip(&mut scratches) {
                let text = record.text(column.position, scratch);
                match column.stored(text) {
                    Ok(value) => values.push(value),
                    Err(Unfit::Absent) => return Err(column.absent_error(record.location(column.position))),
                    Err(Unfit::Type) => {
                        return Err(CsvError::TypeMismatch {
                            location: record.location(column.position),
                            column: column.name.clone(),
                            data_type: column.data_type,
                            text: text.to_owned(),
                        });
                    }
                }
            }
            let row: Vec<ImportValue<'_>> = values.iter().map(PlannedValue::as_import_value).collect();
            match import.insert(&row) {
                Ok(()) => Ok(ControlFlow::Continue(())),
                Err(error) => {
                    failed = Some(error);
                    Ok(ControlFlow::Break(()))
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let rows = u32::try_from(table.rows).unwrap_or(u32::MAX);
        import.finish(|tests| {
            let candidates =
                plan.iter().filter(|column| column.may_be_key(&table.profiles()[column.position]));
            let candidates = candidates.map(|column| KeyCandidate {
                position: column.position,
                name: &column.name,
                data_type: column.data_type,
            });
            find_key_column(candidates, rows, |position, first| match first == rows {
                true => tests.is_unique(position, KEY_BYTES_MAX),
                false => tests.is_unique_in_first(position, first),
            })
        })?;
        Ok(())
    }

    fn rows(&self, table: &LargeTable) -> u64 {
        table.rows
    }

    fn wanted_columns(&self, table: &LargeTable, shape: &TableShape) -> Result<Vec<ColumnPlan>, LargeError> {
        let header = &table.table.header;
        let columns = shape.columns.iter().enumerate().map(|(at, column)| {
            let occurrence = column_lookup::occurrence_of(column, header);
            let position = column_lookup::find_column(&column.name, occurrence, header);
            let Some(position) = position else {
                let is_ours = |name: &str| shape.columns.iter().any(|column| column.name == name);
                let suggestion = column_lookup::similar_column(&column.name, header, is_ours);
                return Err(CsvError::ColumnNotFound { name: column.name.clone(), suggestion }.into());
            };
            let profile = &table.profiles()[position];
            Ok(self.wanted_column(column, position, shape.key.contains(&at), profile))
        });
        columns.collect()
    }

    fn duplicate_error(
        &self,
        path: &Path,
        table: &LargeTable,
        key: &[usize],
        rows: [i64; 2],
    ) -> Result<LargeError, LargeError> {
        let (mut number, mut lines, mut values) = (0, [0; 2], Vec::new());
        let mut scratch = String::new();
        table.for_each_row(path, |record| {
            number += 1;
            let line = usize::try_from(record.line).unwrap_or(usize::MAX);
            if number == rows[0] {
                lines[0] = line;
                values = key.iter().map(|position| record.text(*position, &mut scratch).to_owned()).collect();
            }
            lines[1] = line;
            Ok(if number == rows[1] { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let columns = key.iter().map(|position| table.table.header[*position].clone()).collect();
        Ok(CsvError::DuplicateKey { lines, columns, values }.into())
    }

    fn source_error(&self, error: &LargeError, file_name: &str, path: &Path) -> SourceError {
        match error {
            LargeError::Csv(error) => error.to_source_error(file_name, path),
            LargeError::Source(error) => error.clone(),
        }
    }
}

impl CsvFormat {
    /// How a shape wants a column imported. Where the values allow it, as the import that there is already.
    fn wanted_column(
        &self,
        column: &ColumnShape,
        position: usize,
        is_key: bool,
        profile: &CsvColumnProfile,
    ) -> ColumnPlan {
        let null_texts = match column.null_texts.as_slice() {
            [] => self.options.table.null_texts.clone(),
            own => own.to_vec(),
        };
        let is_as_profiled = column.data_type == profile.data_type
            && column.format == profile.format
            && null_texts == profile.null_texts;
        let found = found_requirement(profile);
        let requirement = match (is_key, column.nullable) {
            (true, _) if found != Requirement::Optional && !profile.has_empty && is_as_profiled => found,
            (true, _) => Requirement::Key,
            (false, _) if is_as_profiled && (column.nullable || found == Requirement::Value) => found,
            (false, true) => Requirement::Optional,
            (false, false) => Requirement::Value,
        };
        ColumnPlan {
            position,
            name: column.name.clone(),
            data_type: column.data_type,
            null_texts,
            format: column.format.clone(),
            requirement,
        }
    }
}

/// The columns as they were found.
fn default_plan(table: &LargeTable) -> Vec<ColumnPlan> {
    let column = |position: usize| {
        let profile = &table.profiles()[position];
        ColumnPlan {
            position,
            name: table.table.header[position].clone(),
            data_type: profile.data_type,
            null_texts: profile.null_texts.clone(),
            format: profile.format.clone(),
            requirement: found_requirement(profile),
        }
    };
    shown_columns(&table.table).into_iter().map(column).collect()
}

fn found_requirement(profile: &CsvColumnProfile) -> Requirement {
    match profile.has_null || (profile.has_empty && profile.empty_is_null()) {
        true => Requirement::Optional,
        false => Requirement::Value,
    }
}

/// A value as it is stored.
enum PlannedValue<'a> {
    Value(ValueRef<'a>),
    /// In a format, the canonical text is not in the file.
    Text(String),
}

impl PlannedValue<'_> {
    fn as_import_value(&self) -> ImportValue<'_> {
        match self {
            Self::Value(value) => ImportValue(*value),
            Self::Text(text) => ImportValue(ValueRef::Text(text)),
        }
    }
}

/// Why a text cannot be imported.
enum Unfit {
    Absent,
    Type,
}

impl ColumnPlan {
    fn stored<'a>(&self, text: &'a str) -> Result<PlannedValue<'a>, Unfit> {
        let is_absent = is_null(text, self.data_type, &self.null_texts, self.format.is_some());
        if is_absent || (self.requirement == Requirement::Key && text.is_empty()) {
            return match self.requirement {
                Requirement::Optional => Ok(PlannedValue::Value(ValueRef::Null)),
                Requirement::Value | Requirement::Key => Err(Unfit::Absent),
            };
        }
        let canonical = match &self.format {
            None => Cow::Borrowed(text),
            Some(format) => Cow::Owned(format.parse(text).ok_or(Unfit::Type)?),
        };
        Ok(match canonical {
            Cow::Borrowed(text) => {
                PlannedValue::Value(stored_value(self.data_type, text).ok_or(Unfit::Type)?)
            }
            Cow::Owned(text) => match stored_value(self.data_type, &text).ok_or(Unfit::Type)? {
                ValueRef::Integer(number) => PlannedValue::Value(ValueRef::Integer(number)),
                ValueRef::Real(number) => PlannedValue::Value(ValueRef::Real(number)),
                ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => PlannedValue::Text(text),
            },
        })
    }

    fn absent_error(&self, location: TextLocation) -> CsvError {
        match self.requirement {
            Requirement::Key => CsvError::MissingKey { location, column: self.name.clone() },
            Requirement::Value | Requirement::Optional => {
                CsvError::MissingValue { location, column: self.name.clone() }
            }
        }
    }

    /// As for a file in memory.
    fn may_be_key(&self, profile: &CsvColumnProfile) -> bool {
        let is_plain = KeyCandidate::is_key_type(self.data_type) && self.format.is_none();
        is_plain && !profile.has_empty && !profile.has_null && !profile.may_be_measure()
    }
}

#[cfg(test)]
mod tests;
