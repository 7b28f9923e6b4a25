//! Polls a file and reads it again when it has changed: a small file at once, a large one in the background while
//! reads still see the old snapshot. After a write, every reader sees the new snapshot before the writer gets its
//! answer.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use contract::source::{IdempotencyKey, SourceError, TransactionOptions, WriteError};
use file_watch::{FileChange, FileStamp, ReadStamp};

use crate::atomic_file::{AtomicFile, FileTransaction};
use crate::backups::BackupPolicy;
use crate::error_text::ErrorText;

/// A file up to this size is read again within the call that notices the change.
const INLINE_RELOAD_BYTES_MAX: u64 = 2 << 20;

/// Parses a kind of file into snapshots.
pub(crate) trait FileLoader: Send + Sync + 'static {
    type Snapshot: Send + Sync + 'static;
    type Error: Clone + From<FileError> + Send + Sync + 'static;

    /// Larger files are refused.
    fn file_bytes_max(&self) -> u64;

    fn load(&self, bytes: Vec<u8>) -> Result<Self::Snapshot, Self::Error>;

    /// Whether the snapshot was parsed from exactly these bytes.
    fn is_snapshot_of(&self, snapshot: &Self::Snapshot, bytes: &[u8]) -> bool;

    /// Converts an error for callers and for the log.
    fn source_error(&self, error: &Self::Error, file: &str, path: &Path) -> SourceError;
}

/// Gets every new snapshot of a file, or the error that prevents one.
pub(crate) trait SnapshotObserver<C: FileLoader>: Send + Sync + 'static {
    fn snapshot_changed(&self, now: Result<&Arc<C::Snapshot>, &C::Error>);

    /// The error if this observer can read the old snapshot but not the new one.
    fn would_break(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error>;
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileError {
    NotFound,
    NotAFile,
    PermissionDenied,
    Io(String),
    TooLarge { bytes: u64, bytes_max: u64 },
}

pub(crate) struct WatchedFile<C: FileLoader> {
    pub(crate) path: PathBuf,
    pub(crate) atomic_file: AtomicFile,
    /// The last component of the path. Messages to callers show only this.
    pub(crate) file_name: String,
    pub(crate) loader: C,
    poll_interval_ms: u64,
    started_at: Instant,
    last_poll_ms: AtomicU64,
    /// Whether a thread is checking the file.
    is_polling: AtomicBool,
    cached: Mutex<CachedSnapshot<C>>,
    /// Held while the file is read, until every observer has the new snapshot.
    load_lock: Mutex<()>,
    observers: Mutex<Vec<Weak<dyn SnapshotObserver<C>>>>,
    background_load: Mutex<Option<JoinHandle<()>>>,
    origin: Origin,
}

/// Where the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// On disk, where they may change.
    Disk,
    /// They are only in memory, and never change.
    Memory,
}

/// The last snapshot, and the file's stamp when it was read.
struct CachedSnapshot<C: FileLoader> {
    /// `None` if the file must be read, whatever its stamp.
    stamp: Option<ReadStamp>,
    snapshot: Result<Arc<C::Snapshot>, C::Error>,
}

impl<C: FileLoader> WatchedFile<C> {
    /// Does not read the file yet.
    pub(crate) fn new(path: &Path, loader: C, poll_interval_ms: u64) -> Self {
        Self {
            path: path.to_owned(),
            atomic_file: AtomicFile::new(path),
            file_name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            loader,
            poll_interval_ms,
            started_at: Instant::now(),
            last_poll_ms: AtomicU64::new(0),
            is_polling: AtomicBool::new(false),
            cached: Mutex::new(CachedSnapshot { stamp: None, snapshot: Err(FileError::NotFound.into()) }),
            load_lock: Mutex::default(),
            observers: Mutex::default(),
            background_load: Mutex::default(),
            origin: Origin::Disk,
        }
    }

    /// A file that exists only here.
    pub(crate) fn in_memory(name: &Path, loader: C, bytes: Vec<u8>) -> Result<Self, SourceError> {
        let file = Self { origin: Origin::Memory, ..Self::new(name, loader, u64::MAX) };
        let snapshot = file.loader.load(bytes).map_err(|error| file.source_error(&error))?;
        lock(&file.cached).snapshot = Ok(Arc::new(snapshot));
        Ok(file)
    }

    pub(crate) fn with_backups(self, backups: BackupPolicy) -> Self {
        Self { atomic_file: self.atomic_file.with_backups(backups), ..self }
    }

    pub(crate) fn source_error(&self, error: &C::Error) -> SourceError {
        self.loader.source_error(error, &self.file_name, &self.path)
    }

    /// Reads the file if it changed, however long that takes.
    pub(crate) fn load_current(&self) -> Result<Arc<C::Snapshot>, C::Error> {
        let guard = lock(&self.load_lock);
        let mut cached = lock(&self.cached);
        // The file may have changed since it was read without a trace.
        if cached.stamp.is_some_and(|read| !read.is_certain()) {
            cached.stamp = None;
        }
        drop(cached);
        self.reload(&guard, None);
        lock(&self.cached).snapshot.clone()
    }

    /// The snapshot of these bytes: the cached one if it was parsed from the same bytes.
    pub(crate) fn snapshot_of(&self, bytes: &[u8]) -> Result<Arc<C::Snapshot>, C::Error> {
        match self.cached_snapshot_of(bytes) {
            Some(snapshot) => Ok(snapshot),
            None => self.loader.load(bytes.to_vec()).map(Arc::new),
        }
    }

    fn cached_snapshot_of(&self, bytes: &[u8]) -> Option<Arc<C::Snapshot>> {
        let snapshot = lock(&self.cached).snapshot.as_ref().ok().cloned()?;
        self.loader.is_snapshot_of(&snapshot, bytes).then_some(snapshot)
    }

    /// Creates an observer from the current snapshot and registers it.
    pub(crate) fn subscribe<F: SnapshotObserver<C>, E>(
        &self,
        make: impl FnOnce(Result<Arc<C::Snapshot>, C::Error>) -> Result<Arc<F>, E>,
    ) -> Result<Arc<F>, E> {
        // Held until the observer is registered, so that it misses no change.
        let guard = lock(&self.load_lock);
        self.reload(&guard, None);
        let snapshot = lock(&self.cached).snapshot.clone();
        let observer = make(snapshot)?;
        let mut observers = lock(&self.observers);
        observers.retain(|guard| guard.strong_count() > 0);
        let weak: Weak<F> = Arc::downgrade(&observer);
        observers.push(weak);
        Ok(observer)
    }

    /// The error of the first observer that can read the old snapshot but not the new one.
    pub(crate) fn observer_error(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error> {
        self.observers().iter().find_map(|observer| observer.would_break(old, new))
    }

    /// Begins a transaction that replaces the file's bytes.
    pub(crate) fn begin(
        &self,
        options: &TransactionOptions,
    ) -> Result<WatchedTransaction<'_, C>, WriteError> {
        match self.atomic_file.begin(options) {
            Ok(transaction) => {
                let transaction = Some(transaction);
                Ok(WatchedTransaction { file: self, transaction, dry_run: options.dry_run, after: None })
            }
            Err(error) => {
                // Whatever prevents the write, the next read sees the file as it is now.
                if !options.dry_run {
                    self.reload(&lock(&self.load_lock), None);
                }
                Err(error)
            }
        }
    }

    /// Reads the file again if it changed, unless it was checked within the poll interval. May take as long as the file
    /// system does.
    #[inline]
    pub(crate) fn poll(self: &Arc<Self>) {
        if self.claim_poll() {
            let _ended = EndOfPoll(&self.is_polling);
            self.poll_now();
        }
    }

    /// Whether the next read has to check the file first. While another thread does, reads use the snapshot there is:
    /// a file system that does not answer holds up one read, and not all of them.
    #[inline]
    pub(crate) fn is_poll_due(&self) -> bool {
        let last_poll_ms = self.last_poll_ms.load(Ordering::Relaxed);
        self.now_ms().saturating_sub(last_poll_ms) >= self.poll_interval_ms
            && !self.is_polling.load(Ordering::Relaxed)
    }

    #[inline]
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the caller is the one to check the file.
    #[inline]
    fn claim_poll(&self) -> bool {
        if self.poll_interval_ms == 0 {
            return true;
        }
        // Of several concurrent callers, one polls.
        let is_claimed = self.is_poll_due()
            && self.is_polling.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_claimed {
            self.last_poll_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        is_claimed
    }

    #[cold]
    fn poll_now(self: &Arc<Self>) {
        let stamp = FileStamp::of_path(&self.path);
        if !self.must_read(stamp) {
            return;
        }
        if stamp.bytes() > INLINE_RELOAD_BYTES_MAX {
            return self.reload_in_background();
        }
        // If another thread is reading the file already, this call uses the old snapshot.
        match self.load_lock.try_lock() {
            Ok(guard) => self.reload(&guard, None),
            Err(TryLockError::Poisoned(poisoned)) => self.reload(&poisoned.into_inner(), None),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn reload_in_background(self: &Arc<Self>) {
        let mut background = lock(&self.background_load);
        if background.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let file = self.clone();
        let thread = std::thread::Builder::new().name("watch".to_owned());
        // If no thread can be started, reads use the old snapshot and the next poll tries again.
        *background = thread.spawn(move || file.reload(&lock(&file.load_lock), None)).ok();
    }

    /// Waits until a reload in the background has finished.
    pub(crate) fn wait_for_reload(&self) {
        let thread = lock(&self.background_load).take();
        if let Some(thread) = thread {
            // The thread ends early only by a panic, and then there is no new snapshot.
            let _ = thread.join();
        }
    }

    /// Reads the file if it changed, and hands the snapshot or the error to every observer. `expected` is the
    /// snapshot of the bytes that were just written; if the file holds those bytes, it need not be parsed again.
    fn reload(&self, _one: &MutexGuard<'_, ()>, expected: Option<Arc<C::Snapshot>>) {
        if expected.is_none() && !self.must_read(FileStamp::of_path(&self.path)) {
            return;
        }
        let (stamp, bytes) = self.read_file();
        let snapshot = match bytes {
            Ok(bytes) => match expected.filter(|expected| self.loader.is_snapshot_of(expected, &bytes)) {
                Some(expected) => Ok(expected),
                // Touched, but not changed.
                None if self.cached_snapshot_of(&bytes).is_some() => {
                    lock(&self.cached).stamp = Some(stamp);
                    return;
                }
                None => self.loader.load(bytes).map(Arc::new),
            },
            Err(file_error) => Err(file_error.into()),
        };
        *lock(&self.cached) = CachedSnapshot { stamp: Some(stamp), snapshot: snapshot.clone() };
        for observer in self.observers() {
            observer.snapshot_changed(snapshot.as_ref());
        }
    }

    /// Whether the file with this stamp may have other contents than the cached snapshot.
    fn must_read(&self, current: FileStamp) -> bool {
        if self.origin == Origin::Memory {
            return false;
        }
        let Some(read) = lock(&self.cached).stamp else { return true };
        match read.compare(current, SystemTime::now()) {
            FileChange::Unchanged => false,
            FileChange::Changed => true,
            // A small file is read at every poll until the result is certain, a large one once more.
            FileChange::Uncertain { is_settled } => is_settled || current.bytes() <= INLINE_RELOAD_BYTES_MAX,
        }
    }

    fn observers(&self) -> Vec<Arc<dyn SnapshotObserver<C>>> {
        lock(&self.observers).iter().filter_map(Weak::upgrade).collect()
    }

    fn read_file(&self) -> (ReadStamp, Result<Vec<u8>, FileError>) {
        let bytes_max = self.loader.file_bytes_max();
        let now = SystemTime::now();
        let mut file = match open(&self.path, bytes_max) {
            Ok(file) => file,
            Err(file_error) => {
                return (ReadStamp::before_read(FileStamp::of_path(&self.path), now), Err(file_error));
            }
        };
        // The stamp of the open file, taken before reading: a write during the read leads to another stamp.
        let stamp = ReadStamp::after_read(FileStamp::of_file(&file), now, SystemTime::now());
        (stamp, read_all(&mut file, bytes_max))
    }

    /// The current bytes of the file, without parsing them.
    pub(crate) fn read_bytes(&self) -> Option<Vec<u8>> {
        self.read_file().1.ok()
    }
}

/// A transaction on a watched file. When it ends, every observer has the new snapshot.
pub(crate) struct WatchedTransaction<'f, C: FileLoader> {
    file: &'f WatchedFile<C>,
    /// `None` after the end.
    transaction: Option<FileTransaction<'f>>,
    dry_run: bool,
    /// The snapshot of the new bytes.
    after: Option<Arc<C::Snapshot>>,
}

impl<C: FileLoader> WatchedTransaction<'_, C> {
    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.transaction.as_ref().map_or(&[], FileTransaction::bytes)
    }

    /// The snapshot of those bytes.
    pub(crate) fn snapshot(&self) -> Result<Arc<C::Snapshot>, C::Error> {
        self.file.snapshot_of(self.bytes())
    }

    /// The bytes to write, and the snapshot of them.
    pub(crate) fn set_bytes(&mut self, bytes: Vec<u8>, snapshot: Arc<C::Snapshot>) -> Result<(), WriteError> {
        self.after = Some(snapshot);
        self.transaction.as_mut().map_or(Ok(()), |transaction| transaction.set_bytes(bytes))
    }

    pub(crate) fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        self.transaction.as_mut().map_or(Ok(None), |transaction| transaction.find_response(key))
    }

    pub(crate) fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        self.transaction.as_mut().map_or(Ok(()), |transaction| transaction.store_response(key, response))
    }

    pub(crate) fn commit(mut self) -> Result<(), WriteError> {
        self.transaction.take().map_or(Ok(()), FileTransaction::commit)
    }
}

impl<C: FileLoader> Drop for WatchedTransaction<'_, C> {
    fn drop(&mut self) {
        // First the lock is released. Then the file is read again, also after an error: it may have been replaced before
        // the error occurred.
        drop(self.transaction.take());
        if !self.dry_run {
            self.file.reload(&lock(&self.file.load_lock), self.after.take());
        }
    }
}

/// Marks the end of a poll when dropped, also by a panic.
struct EndOfPoll<'a>(&'a AtomicBool);

impl Drop for EndOfPoll<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Opens a regular file of bounded size for reading.
fn open(path: &Path, bytes_max: u64) -> Result<File, FileError> {
    // Checks the metadata before opening: opening a pipe would block until a process writes to it.
    let metadata = std::fs::metadata(path).map_err(file_error)?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile);
    }
    if metadata.len() > bytes_max {
        return Err(FileError::TooLarge { bytes: metadata.len(), bytes_max });
    }
    File::open(path).map_err(file_error)
}

fn read_all(file: &mut File, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    if let Ok(metadata) = file.metadata() {
        // One byte more, so that `read_to_end` sees the end without growing the buffer.
        bytes.reserve_exact(usize::try_from(metadata.len().min(bytes_max)).unwrap_or(0) + 1);
    }
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(file_error)?;
    match bytes.len() as u64 {
        length if length > bytes_max => Err(FileError::TooLarge { bytes: length, bytes_max }),
        _ => Ok(bytes),
    }
}

fn file_error(error: io::Error) -> FileError {
    match error.kind() {
        ErrorKind::NotFound => FileError::NotFound,
        ErrorKind::PermissionDenied => FileError::PermissionDenied,
        _ => FileError::Io(error.to_string()),
    }
}

impl FileError {
    /// Whether the error may go away without a change of the contents.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotFound | Self::NotAFile | Self::PermissionDenied | Self::Io(_) => true,
            Self::TooLarge { .. } => false,
        }
    }

    /// What is wrong, and how to fix it. `kind_name` names the kind of file: `JSON file`.
    pub(crate) fn error_text(&self, file: &str, kind_name: &str) -> ErrorText {
        match self {
            Self::NotFound => (format!("`{file}` was not found"), "check its name, or put it back".into()),
            Self::NotAFile => (format!("`{file}` is not a file"), format!("give the path of a {kind_name}")),
            Self::PermissionDenied => (
                format!("`{file}` cannot be read: permission denied"),
                "give the server permission to read it".into(),
            ),
            Self::Io(_) => (format!("`{file}` cannot be read"), "see the reason in the log".into()),
            Self::TooLarge { bytes, bytes_max } => (
                format!("`{file}` has {bytes} bytes, which exceeds the limit of {bytes_max}"),
                "put the data into a SQLite database".into(),
            ),
        }
    }
}

/// The data behind these locks is consistent whenever the lock is free, so a panic in another thread does not spoil
/// it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
