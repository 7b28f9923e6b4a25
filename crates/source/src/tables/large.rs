//! A file of rows that is too large for memory, served from an import (see [`crate::large`]).
//!
//! The file is read row by row: to find its columns and their types, to find formats, and to import the rows. All of it gives
//! the same facts and values as a file in memory has.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::diagnostic::Diagnostic;
use contract::infer::{self, FormatInference, FormatOutcome};
use contract::source::{
    Reader, Source, SourceError, SourceFacts, TableFacts, TableOptions, TableShape, WriteSupport,
};
use contract::{ColumnFormat, DataType, ValueRef};

use super::ParseError;
use super::column::TableColumn;
use super::error::{RowLocation, TableError};
use super::profile::TableColumnProfile;
use super::table::{ColumnFindings, StoredValue};
use crate::key_index::{KeyCandidate, find_key_column};
use crate::large::{
    ImportAffinity, ImportColumn, ImportPlan, ImportValue, LargeFile, LargeFormat, NOTE, PlanIdentity,
    READ_ONLY_REASON, TableImport, open_file,
};
use crate::snapshot_reader::CowValue;
use crate::snapshot_reader::column_lookup::Requirement;
use crate::watch::FileError;

/// Gets the number of a row in the file, the names of all columns so far, and the row's values by column.
pub(crate) type RowVisitor<'v> =
    dyn FnMut(u32, &[String], &[(usize, StoredValue<'_>)]) -> Result<ControlFlow<()>, StreamError> + 'v;

/// A file format whose rows name their own columns and can be read one after the other, in bounded memory.
pub(crate) trait RowStream: Send + Sync + 'static {
    /// The name of such a file, for messages.
    fn kind_name(&self) -> &'static str;

    fn table_name(&self) -> &str;

    /// What a row's number counts: `line`, `row`.
    fn row_unit(&self) -> &'static str;

    /// Columns keep their positions; a later row may add some.
    fn for_each_row(&self, file: File, visit: &mut RowVisitor<'_>) -> Result<(), StreamError>;
}

/// Why a file cannot be read or imported.
#[derive(Debug, Clone)]
pub(crate) struct StreamError(StreamErrorKind);

#[derive(Debug, Clone)]
enum StreamErrorKind {
    Table(TableError),
    Source(SourceError),
}

impl From<TableError> for StreamError {
    fn from(error: TableError) -> Self {
        Self(StreamErrorKind::Table(error))
    }
}

impl From<ParseError> for StreamError {
    fn from(error: ParseError) -> Self {
        TableError::Parse(error).into()
    }
}

impl From<FileError> for StreamError {
    fn from(error: FileError) -> Self {
        TableError::File(error).into()
    }
}

impl From<std::io::Error> for StreamError {
    fn from(error: std::io::Error) -> Self {
        FileError::Io(error.to_string()).into()
    }
}

impl From<SourceError> for StreamError {
    fn from(error: SourceError) -> Self {
        Self(StreamErrorKind::Source(error))
    }
}

/// A file whose only table is served from an import.
pub struct LargeTableFile(Arc<LargeFile<LargeRows>>);

/// How such a file is read in parts.
struct LargeRows {
    stream: Box<dyn RowStream>,
    options: TableOptions,
}

/// What was found in a file.
struct FoundTable {
    rows: u64,
    header: Vec<String>,
    columns: Vec<ColumnFindings>,
}

/// How a column is imported.
#[derive(Debug, Clone, PartialEq)]
struct RowColumnPlan {
    position: usize,
    name: String,
    data_type: DataType,
    mixed: bool,
    null_texts: Vec<String>,
    format: Option<ColumnFormat>,
    requirement: Requirement,
}

impl ImportPlan for RowColumnPlan {
    fn position(&self) -> usize {
        self.position
    }

    fn write_identity(&self, part: &mut dyn FnMut(&[u8])) {
        let Self { position, name, data_type, mixed, null_texts, format, requirement } = self;
        PlanIdentity {
            position: *position,
            name,
            data_type: *data_type,
            mixed: *mixed,
            null_texts,
            format: format.as_ref(),
            requirement: *requirement,
        }
        .write(part);
    }
}

impl LargeTableFile {
    pub(crate) fn open(path: &Path, stream: Box<dyn RowStream>, options: TableOptions, cache: &Path) -> Self {
        Self(LargeFile::open(path, LargeRows { stream, options }, cache))
    }
}

impl Source for LargeTableFile {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load().map_err(|error| self.0.source_error(&error))?;
        let FoundTable { rows, header, columns } = &snapshot.table;
        let unit = self.0.format.stream.row_unit();
        let columns = header.iter().zip(columns).map(|(name, column)| {
            let facts = column.facts(name, *rows, |row| format!("{unit} {row}"));
            contract::source::ColumnFacts { is_base64: column.profile.is_base64(), ..facts }
        });
        let table = TableFacts {
            key: snapshot.key.clone(),
            row_count: Some(*rows),
            write_support: WriteSupport::transactional_unless(Some(READ_ONLY_REASON.to_owned())),
            ..TableFacts::new(self.0.format.stream.table_name(), columns.collect())
        };
        Ok(SourceFacts {
            tables: vec![table],
            notes: vec![NOTE.to_owned()],
            reads_texts: true,
            ..SourceFacts::default()
        })
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        self.0.reader(shape)
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let error = match self.0.find_error(shape) {
            Some(StreamError(StreamErrorKind::Table(error))) => error,
            Some(StreamError(StreamErrorKind::Source(_))) => return None,
            None if shape.is_none() && self.0.load().is_ok_and(|found| found.table.header.is_empty()) => {
                TableError::NoColumns
            }
            None => return None,
        };
        let kind_name = self.0.format.stream.kind_name();
        Some(error.to_diagnostic(&self.0.file_name, &self.0.path, kind_name, None))
    }
}

impl LargeRows {
    fn for_each_row(&self, path: &Path, visit: &mut RowVisitor<'_>) -> Result<(), StreamError> {
        self.stream.for_each_row(open_file(path)?, visit)
    }

    /// Finds the formats of columns that may have one, with one more look at their values.
    fn infer_formats(
        &self,
        path: &Path,
        columns: &[ProfiledColumn],
    ) -> Result<Vec<FormatOutcome>, StreamError> {
        let mut open: Vec<Option<FormatInference>> = columns
            .iter()
            .map(|column| {
                let declared = self.options.formats(&column.name, column.profile.data_type().0);
                column.profile.may_have_format(&declared).then(|| FormatInference::new(&declared))
            })
            .collect();
        if open.iter().any(Option::is_some) {
            self.for_each_row(path, &mut |_, _, row| {
                for (at, value) in row {
                    let Some(slot) = open.get_mut(*at) else { continue };
                    let (Some(inference), StoredValue::Text(text)) = (slot.as_mut(), value) else { continue };
                    if text.trim().is_empty() || columns[*at].is_null(*value) {
                        continue;
                    }
                    inference.observe(text.trim());
                    if inference.is_hopeless() {
                        *slot = None;
                    }
                }
                let is_settled = open.iter().all(Option::is_none);
                Ok(if is_settled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(open.into_iter().map(|one| one.map_or(FormatOutcome::None, FormatInference::finish)).collect())
    }
}

/// A column while its values are read.
struct ProfiledColumn {
    name: String,
    null_texts: Vec<String>,
    profile: TableColumnProfile,
    /// The first text that is not blank, and its line.
    first_text: Option<(String, u32)>,
}

impl ProfiledColumn {
    fn is_null(&self, value: StoredValue<'_>) -> bool {
        match value {
            StoredValue::Null => true,
            StoredValue::Text(text) => self.null_texts.iter().any(|null| null == text),
            _ => false,
        }
    }

    fn observe(&mut self, number: u32, value: StoredValue<'_>) {
        if self.is_null(value) {
            return;
        }
        if let StoredValue::Text(text) = value
            && self.first_text.is_none()
            && !text.trim().is_empty()
        {
            self.first_text = Some((text.to_owned(), number));
        }
        self.profile.observe(u64::from(number), value);
    }
}

impl LargeFormat for LargeRows {
    type Table = FoundTable;
    type Column = RowColumnPlan;
    type Error = StreamError;

    /// Reads the file once, and again if columns may have a format.
    fn profile(&self, path: &Path) -> Result<FoundTable, StreamError> {
        if let Some(column) = self.options.columns.iter().find(|column| column.path.is_some()) {
            let message = format!("is too large to read the `path` of `{}`", column.name);
            let help = "raise `memory_bytes_max` of `[server]` above its size, or remove the path".to_owned();
            return Err(ParseError { message, help: Some(help), location: None }.into());
        }
        let (mut columns, mut rows): (Vec<ProfiledColumn>, u64) = (Vec::new(), 0);
        self.for_each_row(path, &mut |number, names, row| {
            rows += 1;
            let new = names[columns.len()..].iter().map(|name| ProfiledColumn {
                name: name.clone(),
                null_texts: self.options.null_texts(name).to_vec(),
                profile: TableColumnProfile::default(),
                first_text: None,
            });
            columns.extend(new);
            row.iter().for_each(|(at, value)| columns[*at].observe(number, *value));
            Ok(ControlFlow::Continue(()))
        })?;
        let outcomes = self.infer_formats(path, &columns)?;
        let header = columns.iter().map(|column| column.name.clone()).collect();
        let unit = self.stream.row_unit();
        let findings = columns.into_iter().zip(outcomes).map(|(column, outcome)| {
            let first_text = column.first_text.map(|(text, row)| (text, format!("{unit} {row}")));
            let first = |_: &dyn Fn(&str) -> bool| first_text.clone();
            ColumnFindings::new(column.profile, column.null_texts, outcome, first)
        });
        Ok(FoundTable { rows, header, columns: findings.collect() })
    }

    fn default_plan(&self, table: &FoundTable) -> Vec<RowColumnPlan> {
        (0..table.header.len()).map(|position| table.default_column(position)).collect()
    }

    fn write_interpretation(&self, _: &FoundTable, part: &mut dyn FnMut(&[u8])) {
        part(self.stream.kind_name().as_bytes());
    }

    fn fill(
        &self,
        path: &Path,
        to: &Path,
        table: &FoundTable,
        plan: &[RowColumnPlan],
    ) -> Result<(), StreamError> {
        let import_columns: Vec<ImportColumn> = plan
            .iter()
            .map(|column| ImportColumn {
                position: column.position,
                data_type: column.data_type,
                affinity: ImportAffinity::None,
                nullable: column.requirement == Requirement::Optional,
            })
            .collect();
        let columns: Vec<TableColumn> = plan.iter().map(RowColumnPlan::to_column).collect();
        let mut import = TableImport::create(to, &import_columns)?;
        let mut row_number = 0;
        self.for_each_row(path, &mut |number, _, row| {
            let location =
                RowLocation { table_index: 0, row: row_number, unit: self.stream.row_unit(), number };
            row_number = row_number.saturating_add(1);
            let mut cells = vec![StoredValue::Null; table.header.len()];
            row.iter().for_each(|(at, value)| cells[*at] = *value);
            let mut values = Vec::with_capacity(plan.len());
            for (planned, column) in plan.iter().zip(&columns) {
                let stored = cells.get(planned.position).copied().unwrap_or(StoredValue::Null);
                let value = column.to_value(stored);
                planned.check(column, value.as_value_ref(), location)?;
                values.push(value);
            }
            let values: Vec<ImportValue<'_>> =
                plan.iter().zip(&values).map(|(column, value)| ImportValue(column.stored(value))).collect();
            import.insert(&values)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let rows = u32::try_from(table.rows).unwrap_or(u32::MAX);
        import.finish(|tests| {
            let is_candidate = |column: &&RowColumnPlan| {
                column.format.is_none()
                    && !column.mixed
                    && KeyCandidate::is_key_type(column.data_type)
                    && table
                        .columns
                        .get(column.position)
                        .is_some_and(|one| one.profile.is_key_candidate(table.rows) && !one.may_be_measure())
            };
            let candidates = plan.iter().filter(is_candidate).map(|column| KeyCandidate {
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

    fn rows(&self, table: &FoundTable) -> u64 {
        table.rows
    }

    fn wanted_columns(
        &self,
        table: &FoundTable,
        shape: &TableShape,
    ) -> Result<Vec<RowColumnPlan>, StreamError> {
        let columns = shape.columns.iter().enumerate().map(|(at, column)| {
            // A column that no row names has no value anywhere, and a place of its own after all others.
            let found = table.header.iter().position(|name| *name == column.name);
            let requirement =
                Requirement::of(shape.key.contains(&at), column.nullable || !column.null_texts.is_empty());
            let wanted = RowColumnPlan {
                position: found.unwrap_or(table.header.len() + at),
                name: column.name.clone(),
                data_type: column.data_type,
                mixed: column.mixed,
                null_texts: column.null_texts.clone(),
                format: column.format.clone(),
                requirement,
            };
            match found {
                Some(position) => table.reuse_default(position, wanted),
                None => wanted,
            }
        });
        Ok(columns.collect())
    }

    fn duplicate_error(
        &self,
        path: &Path,
        table: &FoundTable,
        key: &[usize],
        rows: [i64; 2],
    ) -> Result<StreamError, StreamError> {
        let mut locations =
            [RowLocation { table_index: 0, row: 0, unit: self.stream.row_unit(), number: 0 }; 2];
        let mut row_number = 0_i64;
        self.for_each_row(path, &mut |number, _, _| {
            let row = u32::try_from(row_number).unwrap_or(u32::MAX);
            row_number += 1;
            for (location, wanted) in locations.iter_mut().zip(rows) {
                if row_number == wanted {
                    *location = RowLocation { row, number, ..*location };
                }
            }
            Ok(if row_number == rows[1] { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let name = |position: &usize| table.header.get(*position).cloned().unwrap_or_default();
        let columns = key.iter().map(name).collect();
        Ok(TableError::DuplicateKey { locations, columns, values: Vec::new() }.into())
    }

    fn source_error(&self, error: &StreamError, file_name: &str, path: &Path) -> SourceError {
        match &error.0 {
            StreamErrorKind::Table(error) => error.to_source_error(file_name, path, self.stream.kind_name()),
            StreamErrorKind::Source(error) => error.clone(),
        }
    }
}

impl FoundTable {
    fn default_column(&self, position: usize) -> RowColumnPlan {
        let column = &self.columns[position];
        let (data_type, mixed) = column.data_type();
        let has_blanks = column.format.is_some() && column.profile.has_blank_texts();
        let requirement = match has_blanks || column.profile.has_nulls(self.rows) {
            true => Requirement::Optional,
            false => Requirement::Value,
        };
        RowColumnPlan {
            position,
            name: self.header[position].clone(),
            data_type,
            mixed,
            null_texts: column.null_texts.clone(),
            format: column.format.as_ref().map(|(format, _)| format.clone()),
            requirement,
        }
    }

    /// The default plan of a column where it is at least as strict as what is wanted, so that one import serves both.
    fn reuse_default(&self, position: usize, wanted: RowColumnPlan) -> RowColumnPlan {
        let default = self.default_column(position);
        let is_strict = match wanted.requirement {
            Requirement::Optional => true,
            Requirement::Value => default.requirement == Requirement::Value,
            Requirement::Key => {
                default.requirement == Requirement::Value
                    && !self.columns[position].profile.has_invalid_keys()
            }
        };
        let is_same = RowColumnPlan { requirement: default.requirement, ..wanted.clone() } == default;
        if is_same && is_strict { default } else { wanted }
    }
}

impl RowColumnPlan {
    fn to_column(&self) -> TableColumn {
        TableColumn {
            name: self.name.clone(),
            column_index: Some(self.position),
            data_type: self.data_type,
            mixed: self.mixed,
            null_texts: self.null_texts.clone(),
            format: self.format.clone(),
            has_nested_json: true,
        }
    }

    /// The same conditions as for a value in memory.
    fn check(
        &self,
        column: &TableColumn,
        value: ValueRef<'_>,
        location: RowLocation,
    ) -> Result<(), TableError> {
        let name = || self.name.clone();
        match self.requirement {
            Requirement::Key if column.to_text(value).is_none_or(|text| text.is_empty()) => {
                return Err(TableError::MissingKey { location, column: name() });
            }
            Requirement::Value if value == ValueRef::Null => {
                return Err(TableError::MissingValue { location, column: name() });
            }
            Requirement::Key | Requirement::Value | Requirement::Optional => {}
        }
        if column.accepts(value) {
            return Ok(());
        }
        let text = column.to_text(value).map(std::borrow::Cow::into_owned).unwrap_or_default();
        Err(TableError::TypeMismatch { location, column: name(), data_type: self.data_type, text })
    }

    /// A value as the database stores it: one that is written as a text, but is a number, as a number.
    fn stored<'a>(&self, value: &'a CowValue<'_>) -> ValueRef<'a> {
        match (self.data_type, value.as_value_ref()) {
            (DataType::Integer | DataType::Int64 | DataType::Decimal, ValueRef::Text(text))
                if !self.mixed && infer::matches_type(DataType::Int64, text) =>
            {
                text.parse().map_or(ValueRef::Text(text), ValueRef::Integer)
            }
            (DataType::Number, ValueRef::Text(text)) if !self.mixed => {
                text.parse().map_or(ValueRef::Text(text), ValueRef::Real)
            }
            (_, value) => value,
        }
    }
}

#[cfg(test)]
mod tests;
