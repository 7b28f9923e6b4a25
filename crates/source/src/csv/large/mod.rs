//! A CSV file that is too large for memory, served from an import (see [`crate::large`]).
//!
//! The file is read in parts: first to find the table and the types of its columns, then to import its rows. Both give the
//! same facts and values as a file in memory has. When the file changes, it is imported again in the background while
//! reads still see the old rows. It cannot be written.

mod profile;
mod records;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use contract::cursor::KEY_BYTES_MAX;
use contract::diagnostic::Diagnostic;
use contract::source::{ColumnShape, Reader, Source, SourceError, SourceFacts, TableShape};
use contract::{ColumnFormat, DataType, ValueRef};
use file_watch::FileStamp;
use rusqlite::Connection;

use super::error::CsvError;
use super::location::TextLocation;
use super::sniff::FileExtension;
use super::table::CsvColumnProfile;
use super::view::is_null;
use super::{Options, facts, shown_columns};
use crate::key_index::{KeyCandidate, find_key_column};
use crate::large::{
    ImportCache, ImportColumn, ImportId, ImportValue, ImportedDatabase, LargeReader, OpenImport, ReaderSet,
    TABLE, TableImport, column_name, detected_key, ensure_key, stored_value,
};
use crate::snapshot_reader::column_lookup::{self, Requirement};
use crate::sqlite::{self, Sqlite};
use profile::{LargeTable, SampleSize};

/// How often readers check whether the file has changed.
const POLL_INTERVAL_MS: u64 = 1000;

pub struct LargeCsv(Arc<LargeFile>);

struct LargeFile {
    path: PathBuf,
    file_name: String,
    extension: FileExtension,
    options: Options,
    cache: ImportCache,
    sample: SampleSize,
    state: Mutex<Option<LoadedFile>>,
    readers: ReaderSet,
    started_at: Instant,
    last_poll_ms: AtomicU64,
    /// The state in which the last check found the file, if that was a new one.
    changed: Mutex<Option<FileStamp>>,
    is_loading: AtomicBool,
}

struct LoadedFile {
    stamp: FileStamp,
    result: Result<Arc<LargeSnapshot>, LargeError>,
}

/// One state of the file.
struct LargeSnapshot {
    stamp: FileStamp,
    table: LargeTable,
    plan: Vec<ColumnPlan>,
    import: Arc<Imported>,
    /// By position in the file.
    key: Vec<usize>,
}

struct Imported {
    database: ImportedDatabase,
    source: Sqlite,
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
        Self(Arc::new(LargeFile {
            path: path.to_owned(),
            file_name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            extension: FileExtension::of(path),
            options,
            cache: ImportCache::new(cache),
            sample,
            state: Mutex::default(),
            readers: ReaderSet::default(),
            started_at: Instant::now(),
            last_poll_ms: AtomicU64::new(0),
            changed: Mutex::default(),
            is_loading: AtomicBool::new(false),
        }))
    }
}

impl Source for LargeCsv {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        let snapshot = self.0.load().map_err(|error| self.0.source_error(&error))?;
        let name = self.0.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let reason = "it is too large for memory (`memory_bytes_max`), so it is served from an import";
        let mut found =
            facts(name, &snapshot.table.table, &snapshot.key, snapshot.table.rows, Some(reason.to_owned()));
        found.notes.push("too large for memory: served from an import in the cache folder, read-only".into());
        Ok(found)
    }

    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let snapshot = self.0.load().map_err(|error| self.0.source_error(&error))?;
        let current = self.0.open_reader(&snapshot, shape).map_err(|error| self.0.source_error(&error))?;
        let file = self.0.clone();
        let reader = LargeReader::new(shape.clone(), current, Box::new(move || file.poll()));
        self.0.readers.add(&reader);
        Ok(reader)
    }

    fn diagnose(&self, shape: Option<&TableShape>) -> Option<Diagnostic> {
        let error = match (self.0.load(), shape) {
            (Err(error), _) => error,
            (Ok(snapshot), Some(shape)) => self.0.open_reader(&snapshot, shape).err()?,
            (Ok(_), None) => return None,
        };
        match error {
            LargeError::Csv(error) => Some(error.to_diagnostic(&self.0.file_name, &self.0.path)),
            LargeError::Source(_) => None,
        }
    }
}

impl LargeFile {
    fn source_error(&self, error: &LargeError) -> SourceError {
        match error {
            LargeError::Csv(error) => error.to_source_error(&self.file_name, &self.path),
            LargeError::Source(error) => error.clone(),
        }
    }

    /// The current state of the file. Reads and imports it if it is new, however long that takes.
    fn load(&self) -> Result<Arc<LargeSnapshot>, LargeError> {
        self.load_locked(lock(&self.state))
    }

    fn load_locked(
        &self,
        mut state: MutexGuard<'_, Option<LoadedFile>>,
    ) -> Result<Arc<LargeSnapshot>, LargeError> {
        let stamp = FileStamp::of_path(&self.path);
        if let Some(loaded) = state.as_ref().filter(|loaded| loaded.stamp == stamp) {
            return loaded.result.clone();
        }
        let result = self.read(stamp).map(Arc::new);
        if FileStamp::of_path(&self.path) != stamp {
            let message = format!("`{}` changed while it was read; try again", self.file_name);
            return Err(SourceError::Unavailable { detail: message.clone(), message }.into());
        }
        self.readers.replace(|shape| match &result {
            Ok(snapshot) => self.open_reader(snapshot, shape).map_err(|error| self.source_error(&error)),
            Err(error) => Err(self.source_error(error)),
        });
        *state = Some(LoadedFile { stamp, result: result.clone() });
        result
    }

    fn read(&self, stamp: FileStamp) -> Result<LargeSnapshot, LargeError> {
        let table = LargeTable::profile(&self.path, self.extension, &self.options, self.sample)?;
        let plan = default_plan(&table);
        let import = Arc::new(self.import(stamp, &table, &plan)?);
        let key = detected_key(&import.database.path)?.into_iter().collect();
        Ok(LargeSnapshot { stamp, table, plan, import, key })
    }

    /// The import with these columns: made now, unless it is there.
    fn import(
        &self,
        stamp: FileStamp,
        table: &LargeTable,
        plan: &[ColumnPlan],
    ) -> Result<Imported, LargeError> {
        let id = ImportId::new(&self.path, |part| {
            part(format!("{stamp:?}").as_bytes());
            table.write_interpretation(part);
            for column in plan {
                part(format!("{column:?}").as_bytes());
            }
        });
        // The cache knows errors of sources only.
        let mut failure = None;
        let made = self.cache.database(&id, |to| {
            self.fill(to, table, plan).map_err(|error| {
                let source = self.source_error(&error);
                failure = Some(error);
                source
            })
        });
        match (made, failure) {
            (Ok(database), _) => {
                let source = Sqlite::open(&database.path, sqlite::Options::default())?;
                Ok(Imported { database, source })
            }
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn fill(&self, to: &Path, table: &LargeTable, plan: &[ColumnPlan]) -> Result<(), LargeError> {
        let columns: Vec<ImportColumn> = plan
            .iter()
            .map(|column| ImportColumn {
                position: column.position,
                data_type: column.data_type,
                nullable: column.requirement == Requirement::Optional,
            })
            .collect();
        let mut import = TableImport::create(to, &columns)?;
        let mut failed: Option<SourceError> = None;
        let mut scratches = vec![String::new(); plan.len()];
        table.for_each_row(&self.path, |record| {
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

    /// A reader of a shape on the import of a state.
    fn open_reader(&self, snapshot: &LargeSnapshot, shape: &TableShape) -> Result<OpenImport, LargeError> {
        let header = &snapshot.table.table.header;
        let positions = shape.columns.iter().map(|column| {
            let occurrence = column_lookup::occurrence_of(column, header);
            column_lookup::find_column(&column.name, occurrence, header).ok_or_else(|| {
                let is_ours = |name: &str| shape.columns.iter().any(|column| column.name == name);
                let suggestion = column_lookup::similar_column(&column.name, header, is_ours);
                CsvError::ColumnNotFound { name: column.name.clone(), suggestion }
            })
        });
        let positions = positions.collect::<Result<Vec<usize>, CsvError>>()?;
        let mut plan = snapshot.plan.clone();
        for (at, (column, position)) in shape.columns.iter().zip(&positions).enumerate() {
            let profile = &snapshot.table.profiles()[*position];
            let wanted = self.wanted_column(column, *position, shape.key.contains(&at), profile);
            match plan.iter_mut().find(|planned| planned.position == *position) {
                Some(planned) => *planned = wanted,
                None => plan.push(wanted),
            }
        }
        plan.sort_by_key(|column| column.position);
        let import = match plan == snapshot.plan {
            true => snapshot.import.clone(),
            false => Arc::new(self.import(snapshot.stamp, &snapshot.table, &plan)?),
        };
        let key: Vec<usize> = shape.key.iter().map(|at| positions[*at]).collect();
        if !key.is_empty() && !ensure_key(&import.database.path, &key)? {
            return Err(self.duplicate_error(snapshot, &import, &key)?.into());
        }
        let columns = shape.columns.iter().zip(&positions).map(|(column, position)| ColumnShape {
            source_index: plan.iter().position(|one| one.position == *position).unwrap_or_default(),
            name: column_name(*position),
            null_texts: Vec::new(),
            format: None,
            ..column.clone()
        });
        let shape = TableShape { table: TABLE.into(), columns: columns.collect(), key: shape.key.clone() };
        // The schema may have a new index since the database was opened.
        let source = match key.is_empty() {
            true => &import.source,
            false => &Sqlite::open(&import.database.path, sqlite::Options::default())?,
        };
        Ok(OpenImport { reader: source.reader(&shape)?, _import: import })
    }

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

    /// Names two rows with the same key.
    fn duplicate_error(
        &self,
        snapshot: &LargeSnapshot,
        import: &Imported,
        key: &[usize],
    ) -> Result<CsvError, LargeError> {
        let names: Vec<String> = key.iter().map(|position| column_name(*position)).collect();
        let list = names.join(", ");
        let sql = format!(
            "SELECT min(rowid), max(rowid) FROM {TABLE} GROUP BY {list} HAVING count(*) > 1 ORDER BY 1 LIMIT 1"
        );
        let rows = Connection::open(&import.database.path)
            .and_then(|connection| connection.query_row(&sql, [], |row| Ok([row.get(0)?, row.get(1)?])))
            .map_err(|error| SourceError::Unavailable {
                message: "the imported data cannot be read".into(),
                detail: error.to_string(),
            });
        let rows: [i64; 2] = rows?;
        let (mut number, mut lines, mut values) = (0, [0; 2], Vec::new());
        let mut scratch = String::new();
        snapshot.table.for_each_row(&self.path, |record| {
            number += 1;
            let line = usize::try_from(record.line).unwrap_or(usize::MAX);
            if number == rows[0] {
                lines[0] = line;
                values = key.iter().map(|position| record.text(*position, &mut scratch).to_owned()).collect();
            }
            lines[1] = line;
            Ok(if number == rows[1] { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let columns = key.iter().map(|position| snapshot.table.table.header[*position].clone()).collect();
        Ok(CsvError::DuplicateKey { lines, columns, values })
    }

    /// Imports the file again in the background once it has changed and does not change any more.
    fn poll(self: &Arc<Self>) {
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.last_poll_ms.load(Ordering::Relaxed);
        let is_due = now_ms.saturating_sub(last) >= POLL_INTERVAL_MS;
        let is_ours =
            || self.last_poll_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due || self.is_loading.load(Ordering::Relaxed) || !is_ours() {
            return;
        }
        let known = match self.state.try_lock() {
            Ok(state) => state.as_ref().map(|loaded| loaded.stamp),
            // Another thread is loading it.
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(poisoned)) => {
                poisoned.into_inner().as_ref().map(|loaded| loaded.stamp)
            }
        };
        let stamp = FileStamp::of_path(&self.path);
        let mut changed = lock(&self.changed);
        let is_settled = *changed == Some(stamp);
        *changed = (known != Some(stamp)).then_some(stamp);
        if known == Some(stamp) || !is_settled || self.is_loading.swap(true, Ordering::Relaxed) {
            return;
        }
        let file = self.clone();
        std::thread::spawn(move || {
            // An error is what readers return from then on.
            let _ = file.load();
            file.is_loading.store(false, Ordering::Relaxed);
        });
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
        is_plain && !profile.has_empty && !profile.has_null
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
