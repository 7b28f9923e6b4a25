//! A file that is too large for memory: follows it, imports it when it has changed, and opens readers on the import.
//!
//! When the file changes, it is imported again in the background while reads still see the old rows. It cannot be written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use contract::source::{ColumnShape, Reader, Source, SourceError, TableShape};
use file_watch::FileStamp;
use rusqlite::Connection;

use super::cache::{ImportCache, ImportId, ImportedDatabase};
use super::import::{TABLE, column_name, detected_key, ensure_key};
use super::reader::{LargeReader, OpenImport, ReaderSet};
use crate::sqlite::{self, Sqlite};
use crate::watch::FileError;

/// How often readers check whether the file has changed.
const POLL_INTERVAL_MS: u64 = 1000;
/// Why such a file cannot be written, and what its facts say.
pub(crate) const READ_ONLY_REASON: &str =
    "it is too large for memory (`memory_bytes_max`), so it is served from an import";
pub(crate) const NOTE: &str = "too large for memory: served from an import in the cache folder, read-only";

/// How files of one kind are read in parts.
pub(crate) trait LargeFormat: Send + Sync + 'static {
    /// What was found in a file: its columns and their types.
    type Table: Send + Sync + 'static;
    type Column: ImportPlan;
    type Error: Clone + From<SourceError> + Send + Sync + 'static;

    /// Reads every value.
    fn profile(&self, path: &Path) -> Result<Self::Table, Self::Error>;

    /// The columns as they were found.
    fn default_plan(&self, table: &Self::Table) -> Vec<Self::Column>;

    /// Everything that decides how the file is read, in bytes; with the plan of each column.
    fn write_interpretation(&self, table: &Self::Table, part: &mut dyn FnMut(&[u8]));

    /// Imports all rows into a new database.
    fn fill(
        &self,
        path: &Path,
        to: &Path,
        table: &Self::Table,
        plan: &[Self::Column],
    ) -> Result<(), Self::Error>;

    /// How many rows there are.
    fn rows(&self, table: &Self::Table) -> u64;

    /// How a shape wants its columns imported, in its order. Where the values allow it, as in the default plan.
    fn wanted_columns(
        &self,
        table: &Self::Table,
        shape: &TableShape,
    ) -> Result<Vec<Self::Column>, Self::Error>;

    /// The error of two rows with the same key, which are numbered from 1. `key` has positions in the file.
    fn duplicate_error(
        &self,
        path: &Path,
        table: &Self::Table,
        key: &[usize],
        rows: [i64; 2],
    ) -> Result<Self::Error, Self::Error>;

    fn source_error(&self, error: &Self::Error, file_name: &str, path: &Path) -> SourceError;
}

/// How a column is imported. Columns with equal plans are imported in the same way.
pub(crate) trait ImportPlan: Clone + PartialEq + Send + Sync + 'static {
    /// The position of the column in the file.
    fn position(&self) -> usize;

    /// Passes what identifies the plan to a digest: all of it, because an import with another plan has other rows.
    fn write_identity(&self, part: &mut dyn FnMut(&[u8]));
}

pub(crate) struct LargeFile<F: LargeFormat> {
    pub(crate) path: PathBuf,
    pub(crate) file_name: String,
    pub(crate) format: F,
    cache: ImportCache,
    state: Mutex<Option<LoadedFile<F>>>,
    readers: ReaderSet,
    started_at: Instant,
    last_poll_ms: AtomicU64,
    /// The state in which the last check found the file, if that was a new one.
    changed: Mutex<Option<FileStamp>>,
    is_loading: AtomicBool,
}

struct LoadedFile<F: LargeFormat> {
    stamp: FileStamp,
    result: Result<Arc<LargeSnapshot<F>>, F::Error>,
}

/// One state of the file.
pub(crate) struct LargeSnapshot<F: LargeFormat> {
    stamp: FileStamp,
    pub(crate) table: F::Table,
    plan: Vec<F::Column>,
    import: Arc<Imported>,
    /// By position in the file.
    pub(crate) key: Vec<usize>,
}

struct Imported {
    database: ImportedDatabase,
    source: Sqlite,
}

impl<F: LargeFormat> LargeFile<F> {
    /// Does not read the file yet. Imports are kept in `cache`, which is created if it does not exist.
    pub(crate) fn open(path: &Path, format: F, cache: &Path) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_owned(),
            file_name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            format,
            cache: ImportCache::new(cache),
            state: Mutex::default(),
            readers: ReaderSet::default(),
            started_at: Instant::now(),
            last_poll_ms: AtomicU64::new(0),
            changed: Mutex::default(),
            is_loading: AtomicBool::new(false),
        })
    }

    /// The name of the file without its extension.
    pub(crate) fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn source_error(&self, error: &F::Error) -> SourceError {
        self.format.source_error(error, &self.file_name, &self.path)
    }

    /// A reader that follows the file.
    pub(crate) fn reader(self: &Arc<Self>, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        let snapshot = self.load().map_err(|error| self.source_error(&error))?;
        let current = self.open_reader(&snapshot, shape).map_err(|error| self.source_error(&error))?;
        let file = self.clone();
        let reader = LargeReader::new(shape.clone(), current, Box::new(move |failure| file.poll(failure)));
        self.readers.add(&reader);
        Ok(reader)
    }

    /// What is wrong with the file, or with the file for a shape.
    pub(crate) fn find_error(&self, shape: Option<&TableShape>) -> Option<F::Error> {
        match (self.load(), shape) {
            (Err(error), _) => Some(error),
            (Ok(snapshot), Some(shape)) => self.open_reader(&snapshot, shape).err(),
            (Ok(_), None) => None,
        }
    }

    /// The current state of the file. Reads and imports it if it is new, however long that takes.
    pub(crate) fn load(&self) -> Result<Arc<LargeSnapshot<F>>, F::Error> {
        let mut state = lock(&self.state);
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

    fn read(&self, stamp: FileStamp) -> Result<LargeSnapshot<F>, F::Error> {
        let table = self.format.profile(&self.path)?;
        let plan = self.format.default_plan(&table);
        let import = Arc::new(self.import(stamp, &table, &plan)?);
        let key = detected_key(&import.database.path)?.into_iter().collect();
        Ok(LargeSnapshot { stamp, table, plan, import, key })
    }

    /// The import with these columns: made now, unless it is there.
    fn import(&self, stamp: FileStamp, table: &F::Table, plan: &[F::Column]) -> Result<Imported, F::Error> {
        let id = ImportId::new(&self.path, |part| {
            stamp.write_identity(part);
            self.format.write_interpretation(table, part);
            plan.iter().for_each(|column| column.write_identity(part));
        });
        // The cache knows errors of sources only.
        let mut failure = None;
        let made = self.cache.database(&id, |to| {
            self.format.fill(&self.path, to, table, plan).map_err(|error| {
                let source = self.source_error(&error);
                failure = Some(error);
                source
            })
        });
        match (made, failure) {
            (Ok(database), _) => {
                let source = Sqlite::open(&database.path, self.sqlite_options(table))?;
                Ok(Imported { database, source })
            }
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn sqlite_options(&self, table: &F::Table) -> sqlite::Options {
        sqlite::Options { import_rows: Some(self.format.rows(table)), ..sqlite::Options::default() }
    }

    /// A reader of a shape on the import of a state.
    fn open_reader(&self, snapshot: &LargeSnapshot<F>, shape: &TableShape) -> Result<OpenImport, F::Error> {
        let wanted = self.format.wanted_columns(&snapshot.table, shape)?;
        let positions: Vec<usize> = wanted.iter().map(ImportPlan::position).collect();
        let mut plan = snapshot.plan.clone();
        for column in wanted {
            match plan.iter_mut().find(|planned| planned.position() == column.position()) {
                Some(planned) => *planned = column,
                None => plan.push(column),
            }
        }
        plan.sort_by_key(ImportPlan::position);
        let import = match plan == snapshot.plan {
            true => snapshot.import.clone(),
            false => Arc::new(self.import(snapshot.stamp, &snapshot.table, &plan)?),
        };
        let key: Vec<usize> = shape.key.iter().map(|at| positions[*at]).collect();
        if !key.is_empty() && !ensure_key(&import.database.path, &key)? {
            let rows = equal_rows(&import.database.path, &key)?;
            return Err(self.format.duplicate_error(&self.path, &snapshot.table, &key, rows)?);
        }
        let columns = shape.columns.iter().zip(&positions).map(|(column, position)| ColumnShape {
            source_index: plan.iter().position(|one| one.position() == *position).unwrap_or_default(),
            null_texts: Vec::new(),
            format: None,
            ..column.clone()
        });
        let shape = TableShape { table: TABLE.into(), columns: columns.collect(), key: shape.key.clone() };
        // The schema may have a new index since the database was opened.
        let source = match key.is_empty() {
            true => &import.source,
            false => &Sqlite::open(&import.database.path, self.sqlite_options(&snapshot.table))?,
        };
        Ok(OpenImport { reader: source.reader(&shape)?, _import: import })
    }

    /// Checks the file before a read. `failure` is why it could not be imported.
    fn poll(self: &Arc<Self>, failure: Option<&SourceError>) -> Result<(), SourceError> {
        let stamp = FileStamp::of_path(&self.path);
        // A file that is gone is not served, whatever was imported.
        if stamp == FileStamp::Missing {
            return Err(self.missing_error());
        }
        if failure.is_some() {
            return self.retry(stamp);
        }
        self.poll_changes();
        Ok(())
    }

    fn missing_error(&self) -> SourceError {
        let (message, _) = FileError::NotFound.error_text(&self.file_name, "file");
        SourceError::Unavailable { message, detail: self.path.display().to_string() }
    }

    /// Without rows to serve meanwhile, a file that has changed since its import failed is imported again at once.
    fn retry(self: &Arc<Self>, stamp: FileStamp) -> Result<(), SourceError> {
        let is_same = match self.state.try_lock() {
            Ok(state) => state.as_ref().is_some_and(|loaded| loaded.stamp == stamp),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Poisoned(poisoned)) => {
                poisoned.into_inner().as_ref().is_some_and(|loaded| loaded.stamp == stamp)
            }
        };
        if is_same {
            return Ok(());
        }
        self.load_in_background();
        let message = format!("`{}` has changed and is being imported again; try again", self.file_name);
        Err(SourceError::Unavailable { detail: message.clone(), message })
    }

    fn load_in_background(self: &Arc<Self>) {
        if self.is_loading.swap(true, Ordering::Relaxed) {
            return;
        }
        let file = self.clone();
        std::thread::spawn(move || {
            // An error is what readers return from then on.
            let _ = file.load();
            file.is_loading.store(false, Ordering::Relaxed);
        });
    }

    /// Imports the file again in the background once it has changed and does not change any more.
    fn poll_changes(self: &Arc<Self>) {
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
        if known != Some(stamp) && is_settled {
            drop(changed);
            self.load_in_background();
        }
    }
}

/// The numbers of two rows with the same key, from 1.
fn equal_rows(database: &Path, key: &[usize]) -> Result<[i64; 2], SourceError> {
    let names: Vec<String> = key.iter().map(|position| column_name(*position)).collect();
    let sql = format!(
        "SELECT min(rowid), max(rowid) FROM {TABLE} GROUP BY {} HAVING count(*) > 1 ORDER BY 1 LIMIT 1",
        names.join(", ")
    );
    Connection::open(database)
        .and_then(|connection| connection.query_row(&sql, [], |row| Ok([row.get(0)?, row.get(1)?])))
        .map_err(|error| SourceError::Unavailable {
            message: "the imported data cannot be read".into(),
            detail: error.to_string(),
        })
}

/// Opens a file to read it in parts.
pub(crate) fn open_file(path: &Path) -> Result<File, FileError> {
    use std::io::ErrorKind;
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => FileError::NotFound,
        ErrorKind::PermissionDenied => FileError::PermissionDenied,
        _ => FileError::Io(error.to_string()),
    })?;
    let metadata = file.metadata().map_err(|error| FileError::Io(error.to_string()))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile);
    }
    Ok(file)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
