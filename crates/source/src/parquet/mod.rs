//! Parquet files, read-only: through the `parquet` crate without Arrow.
//!
//! Rows are read in batches, one row group after the other, so that no more of a file is in memory than a few pages of each
//! column. A flat column becomes values of its own type, exactly; a column of lists, maps or groups becomes JSON. A small
//! file is a table in memory, a large one is imported ([`crate::large`]), as all files are.
//!
//! Deliberately absent: statistics and indexes of the file, encryption, and Brotli.

mod nested;
mod value;

use std::fs::File;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use contract::DataType;
use contract::source::{SourceError, TableOptions, WriteError};
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

use crate::backups::BackupPolicy;
use crate::tables::{
    FileFormat, LargeTableFile, ParseError, ParsedFile, RowEdit, RowStream, RowVisitor, StoredValue,
    StreamError, Table, TableFile, TablesOptions,
};
use value::{Cell, FlatType};

/// Why a Parquet file cannot be written: a clause for the owner of the data.
const READ_ONLY_REASON: &str = "Parquet files are read-only";
/// How many rows are decoded at once.
const BATCH_ROWS: usize = 1024;
const COLUMNS_MAX: usize = 1024;
/// What a cell takes in memory besides its text.
const CELL_BYTES: u64 = 9;

/// A file with one table, which is named after the file. Does not read the file yet.
pub fn open(path: &Path, table: TableOptions) -> TableFile {
    let tables = TablesOptions { named: Vec::new(), others: table };
    TableFile::open(path, Box::new(ParquetFile::new(path)), tables, POLL_INTERVAL_MS, BackupPolicy::Off)
}

/// A file that is too large for memory, served from an import that is kept in the folder `cache`. Does not read the file
/// yet.
pub fn open_large(path: &Path, table: TableOptions, cache: &Path) -> LargeTableFile {
    LargeTableFile::open(path, Box::new(ParquetFile::new(path)), table, cache)
}

/// About how many bytes the rows of a file take in memory; `None` if it is not a Parquet file.
pub fn decoded_bytes(path: &Path) -> Option<u64> {
    // Opening a pipe would block until a process writes to it.
    std::fs::metadata(path).ok().filter(|what| what.is_file())?;
    let file = File::open(path).ok()?;
    let reader = catch_unwind(AssertUnwindSafe(|| SerializedFileReader::new(file))).ok()?.ok()?;
    let metadata = reader.metadata();
    let columns = metadata.file_metadata().schema_descr().num_columns() as u64;
    let rows = u64::try_from(metadata.file_metadata().num_rows()).ok()?;
    let bytes = metadata.row_groups().iter().map(|group| u64::try_from(group.total_byte_size()).unwrap_or(0));
    Some(bytes.sum::<u64>().saturating_add(rows.saturating_mul(columns).saturating_mul(CELL_BYTES)))
}

/// The number of rows, or why the file cannot be read. For fuzzing.
#[doc(hidden)]
pub fn try_bytes(bytes: &[u8]) -> Result<u32, String> {
    let parsed = ParquetFile { name: "a".into() }.load(bytes).map_err(|reason| reason.message)?;
    Ok(parsed.tables.iter().map(Table::len).sum())
}

/// How long a snapshot is used before the file is checked for changes.
const POLL_INTERVAL_MS: u64 = 20;

struct ParquetFile {
    /// The name of the table.
    name: String,
}

impl ParquetFile {
    fn new(path: &Path) -> Self {
        Self { name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned() }
    }
}

impl FileFormat for ParquetFile {
    fn name(&self) -> &'static str {
        "Parquet file"
    }

    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut table: Option<Table> = None;
        let mut notes = Vec::new();
        guarded(|| {
            let file = OpenFile::open(bytes)?;
            notes.clone_from(&file.columns.notes);
            let mut found = Table::new(&self.name, file.columns.names.clone());
            found.has_nested_json = true;
            found.stated_types = file.columns.columns.iter().map(FileColumn::data_type).collect();
            found.read_only_reason = Some(READ_ONLY_REASON.to_owned());
            found.decimal_paths = file.decimal_paths();
            file.for_each_row(&mut |number, _, cells| {
                found.push_row(number, cells.iter().copied());
                Ok::<_, ParseError>(ControlFlow::Continue(()))
            })?;
            table = Some(found);
            Ok::<(), ParseError>(())
        })?;
        Ok(ParsedFile { tables: table.into_iter().collect(), notes, ..ParsedFile::default() })
    }

    fn rewrite(&self, _: &[u8], _: usize, _: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        Err(SourceError::read_only().into())
    }
}

impl RowStream for ParquetFile {
    fn kind_name(&self) -> &'static str {
        "Parquet file"
    }

    fn table_name(&self) -> &str {
        &self.name
    }

    fn row_unit(&self) -> &'static str {
        "row"
    }

    fn for_each_row(&self, file: File, visit: &mut RowVisitor<'_>) -> Result<(), StreamError> {
        guarded(|| OpenFile::open(file)?.for_each_row(visit))
    }
}

/// The crate panics on some files that are damaged.
fn guarded<E: From<ParseError>>(read: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParseError::from(ParquetError::General("a panic".into())).into()))
}

impl From<ParquetError> for ParseError {
    fn from(error: ParquetError) -> Self {
        let (message, help) = match &error {
            ParquetError::NYI(_) => (
                "uses a part of Parquet that is not supported".to_owned(),
                "write it again with Snappy, Zstandard, LZ4, GZIP or no compression",
            ),
            ParquetError::General(what)
                if what.contains("compression codec") || what.contains("Disabled feature") =>
            {
                (
                    "is compressed in a way that is not supported".to_owned(),
                    "write it again with Snappy, Zstandard, LZ4, GZIP or no compression",
                )
            }
            _ => (
                "is not a complete Parquet file".to_owned(),
                "write it again; the program that wrote it may not have finished",
            ),
        };
        Self { message, help: Some(help.to_owned()), location: None }
    }
}

/// The columns of a file, in the order of its schema.
struct FileColumns {
    names: Vec<String>,
    columns: Vec<FileColumn>,
    /// About columns that are left out.
    notes: Vec<String>,
}

enum FileColumn {
    /// The index among the leaves of the schema.
    Flat { leaf: usize, flat_type: FlatType, definition_level_max: i16 },
    /// Read as JSON.
    Nested,
}

impl FileColumn {
    fn data_type(&self) -> DataType {
        match self {
            Self::Flat { flat_type, .. } => flat_type.data_type(),
            Self::Nested => DataType::Json,
        }
    }
}

impl FileColumns {
    fn new(schema: &SchemaDescriptor) -> Result<Self, ParseError> {
        let fields = schema.root_schema().get_fields();
        if fields.len() > COLUMNS_MAX {
            let message = format!("has {} columns, which exceeds the limit of {COLUMNS_MAX}", fields.len());
            return Err(ParseError { message, help: Some("write fewer of them".into()), location: None });
        }
        let mut found = Self { names: Vec::new(), columns: Vec::new(), notes: Vec::new() };
        for (root, field) in fields.iter().enumerate() {
            let leaves: Vec<usize> =
                (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root).collect();
            let column = match &leaves[..] {
                [leaf] if field.is_primitive() && schema.column(*leaf).max_rep_level() == 0 => {
                    let descriptor = schema.column(*leaf);
                    FlatType::of(&descriptor).map(|flat_type| FileColumn::Flat {
                        leaf: *leaf,
                        flat_type,
                        definition_level_max: descriptor.max_def_level(),
                    })
                }
                leaves => {
                    let is_supported =
                        |leaf: &usize| nested::is_supported(&schema.column(*leaf)) && !field.is_primitive();
                    leaves.iter().all(is_supported).then_some(FileColumn::Nested)
                }
            };
            match column {
                Some(column) => {
                    found.names.push(field.name().to_owned());
                    found.columns.push(column);
                }
                None => found
                    .notes
                    .push(format!("the column `{}` is left out: its type is not supported", field.name())),
            }
        }
        Ok(found)
    }

    /// The fields that are read as JSON, as a schema.
    fn nested_schema(&self, schema: &SchemaDescriptor) -> Option<parquet::schema::types::Type> {
        let is_nested = |name: &str| {
            let at = self.names.iter().position(|known| known == name);
            at.is_some_and(|at| matches!(self.columns[at], FileColumn::Nested))
        };
        let fields = schema.root_schema().get_fields().iter();
        let fields: Vec<_> = fields.filter(|field| is_nested(field.name())).cloned().collect();
        if fields.is_empty() {
            return None;
        }
        let name = schema.root_schema().name();
        parquet::schema::types::Type::group_type_builder(name).with_fields(fields).build().ok()
    }
}

/// Gets the number of a row, the names of all columns, and the row's values by column.
type RowFunction<'v, E> =
    dyn FnMut(u32, &[String], &[(usize, StoredValue<'_>)]) -> Result<ControlFlow<()>, E> + 'v;

/// A file whose schema was read.
struct OpenFile<R: ChunkReader + 'static> {
    reader: SerializedFileReader<R>,
    columns: FileColumns,
}

impl<R: ChunkReader + 'static> OpenFile<R> {
    fn open(input: R) -> Result<Self, ParseError> {
        let reader = SerializedFileReader::new(input)?;
        let columns = FileColumns::new(reader.metadata().file_metadata().schema_descr())?;
        Ok(Self { reader, columns })
    }

    fn decimal_paths(&self) -> Vec<Vec<Option<String>>> {
        let schema = self.reader.metadata().file_metadata().schema_descr().root_schema();
        schema.get_fields().iter().flat_map(|field| nested::decimal_paths(field)).collect()
    }

    /// Passes each row to `visit`.
    fn for_each_row<E: From<ParseError>>(&self, visit: &mut RowFunction<'_, E>) -> Result<(), E> {
        let mut number = 0_u32;
        // Without columns, nothing but the metadata says how many rows there are.
        if self.columns.columns.is_empty() {
            return Ok(());
        }
        for group in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(group).map_err(ParseError::from)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            let mut batches = GroupReader::new(&*group, self)?;
            let mut read = 0;
            while read < rows {
                let cells = batches.next_batch((rows - read).min(BATCH_ROWS))?;
                let count = cells.first().map_or(rows - read, Vec::len);
                // A file that promises more rows than it has is damaged.
                if count == 0 || cells.iter().any(|column| column.len() != count) {
                    return Err(ParseError::from(ParquetError::General("too few values".into())).into());
                }
                for row in 0..count {
                    number = number.saturating_add(1);
                    let values = cells.iter().enumerate().map(|(at, column)| (at, column[row].as_stored()));
                    let values: Vec<(usize, StoredValue<'_>)> =
                        values.filter(|(_, value)| *value != StoredValue::Null).collect();
                    if visit(number, &self.columns.names, &values)?.is_break() {
                        return Ok(());
                    }
                }
                read += count;
            }
        }
        Ok(())
    }
}

/// Reads the rows of a row group.
struct GroupReader<'f> {
    columns: &'f FileColumns,
    /// The fields of the whole schema.
    schema: &'f [TypePtr],
    /// One for each flat column.
    flat: Vec<ColumnReader>,
    nested: Option<RowIter<'f>>,
}

impl<'f> GroupReader<'f> {
    fn new<R: ChunkReader + 'static>(
        group: &'f dyn RowGroupReader,
        file: &'f OpenFile<R>,
    ) -> Result<Self, ParseError> {
        let columns = &file.columns;
        let mut flat = Vec::new();
        for column in &columns.columns {
            if let FileColumn::Flat { leaf, .. } = column {
                flat.push(group.get_column_reader(*leaf)?);
            }
        }
        let descriptor = file.reader.metadata().file_metadata().schema_descr();
        let schema = columns.nested_schema(descriptor);
        let nested = schema.map(|schema| RowIter::from_row_group(Some(schema), group)).transpose()?;
        Ok(Self { columns, schema: descriptor.root_schema().get_fields(), flat, nested })
    }

    /// The values of up to so many rows, column by column.
    fn next_batch(&mut self, rows: usize) -> Result<Vec<Vec<Cell>>, ParseError> {
        let mut flat = self.flat.iter_mut();
        let mut batch: Vec<Vec<Cell>> = Vec::with_capacity(self.columns.columns.len());
        for column in &self.columns.columns {
            batch.push(match (column, column_reader(column, &mut flat)) {
                (FileColumn::Flat { flat_type, definition_level_max, .. }, Some(reader)) => {
                    value::read_cells(reader, *flat_type, *definition_level_max, rows)?
                }
                _ => Vec::with_capacity(rows),
            });
        }
        let Some(nested) = &mut self.nested else { return Ok(batch) };
        for row in nested.take(rows) {
            let mut fields = row?.into_columns().into_iter();
            for (at, cells) in batch.iter_mut().enumerate() {
                if let FileColumn::Nested = self.columns.columns[at] {
                    let schema = self.schema.iter().find(|one| one.name() == self.columns.names[at]);
                    let schema = schema.map(|schema| &**schema);
                    cells
                        .push(fields.next().map_or(Cell::Null, |(_, field)| nested::to_cell(&field, schema)));
                }
            }
        }
        Ok(batch)
    }
}

/// The reader of a column, if it is flat.
fn column_reader<'r>(
    column: &FileColumn,
    flat: &mut std::slice::IterMut<'r, ColumnReader>,
) -> Option<&'r mut ColumnReader> {
    match column {
        FileColumn::Flat { .. } => flat.next(),
        FileColumn::Nested => None,
    }
}

#[cfg(test)]
mod tests;
