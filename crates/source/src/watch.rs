//! Polls a file and reads it again when it has changed: a small file at once, a large one in the background while
//! reads still see the old snapshot. After a write, every reader sees the new snapshot before the writer gets its
//! answer.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use contract::source::{SourceError, WriteError, WriteOutcome, WriteRequest};

use crate::atomic_file::{AtomicFile, EditResult, ReplaceOptions};
use crate::error_text::ErrorText;

/// A file up to this size is read again within the call that notices the change.
const INLINE_RELOAD_BYTES_MAX: u64 = 2 << 20;
/// File systems round timestamps to some milliseconds: within this time, another write may leave the timestamp as it
/// is.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(50);

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
}

/// The last snapshot, and the file's stamp when it was read.
struct CachedSnapshot<C: FileLoader> {
    stamp: FileStamp,
    snapshot: Result<Arc<C::Snapshot>, C::Error>,
}

/// Distinguishes one version of a file from another without reading it.
#[derive(Debug, Clone, Copy)]
enum FileStamp {
    Unread,
    Missing,
    Present { bytes: u64, modified: Option<SystemTime>, id: FileId, is_recent: bool },
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
            cached: Mutex::new(CachedSnapshot {
                stamp: FileStamp::Unread,
                snapshot: Err(FileError::NotFound.into()),
            }),
            load_lock: Mutex::default(),
            observers: Mutex::default(),
            background_load: Mutex::default(),
        }
    }

    pub(crate) fn source_error(&self, error: &C::Error) -> SourceError {
        self.loader.source_error(error, &self.file_name, &self.path)
    }

    /// Reads the file if it changed, however long that takes.
    pub(crate) fn load_current(&self) -> Result<Arc<C::Snapshot>, C::Error> {
        let guard = lock(&self.load_lock);
        let mut cached = lock(&self.cached);
        // The file was read within one timestamp step of its last write, so it may have changed since without a
        // trace.
        if cached.stamp.is_recent() {
            cached.stamp = FileStamp::Unread;
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

    /// Replaces the file's bytes by what `edit` makes of them. `edit` also returns the snapshot of the new bytes if
    /// they differ. Every observer has it before this returns.
    pub(crate) fn write(
        &self,
        write: &WriteRequest<'_>,
        mut edit: impl FnMut(&[u8]) -> Result<(EditResult, Option<Arc<C::Snapshot>>), WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut expected = None;
        let written = self.atomic_file.replace(ReplaceOptions::of(write), &mut |bytes| {
            let (edited, new) = edit(bytes)?;
            expected = new;
            Ok(edited)
        });
        // Also after an error: the file may have been replaced before the error occurred.
        if !write.dry_run {
            self.reload(&lock(&self.load_lock), expected);
        }
        written
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
        if !stamp.may_differ_from(lock(&self.cached).stamp) {
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
        let before = lock(&self.cached).stamp;
        if expected.is_none() && !FileStamp::of_path(&self.path).may_differ_from(before) {
            return;
        }
        let (stamp, bytes) = self.read_file();
        let snapshot = match bytes {
            Ok(bytes) => match expected.filter(|expected| self.loader.is_snapshot_of(expected, &bytes)) {
                Some(expected) => Ok(expected),
                // Touched, but not changed.
                None if self.cached_snapshot_of(&bytes).is_some() => {
                    lock(&self.cached).stamp = stamp;
                    return;
                }
                None => self.loader.load(bytes).map(Arc::new),
            },
            Err(file_error) => Err(file_error.into()),
        };
        *lock(&self.cached) = CachedSnapshot { stamp, snapshot: snapshot.clone() };
        for observer in self.observers() {
            observer.snapshot_changed(snapshot.as_ref());
        }
    }

    fn observers(&self) -> Vec<Arc<dyn SnapshotObserver<C>>> {
        lock(&self.observers).iter().filter_map(Weak::upgrade).collect()
    }

    fn read_file(&self) -> (FileStamp, Result<Vec<u8>, FileError>) {
        let bytes_max = self.loader.file_bytes_max();
        let mut file = match open(&self.path, bytes_max) {
            Ok(file) => file,
            Err(file_error) => return (FileStamp::of_path(&self.path), Err(file_error)),
        };
        // The stamp of the open file, taken before reading: a write during the read leads to another stamp.
        let stamp = FileStamp::of_file(&file);
        (stamp, read_all(&mut file, bytes_max))
    }

    /// The current bytes of the file, without parsing them.
    pub(crate) fn read_bytes(&self) -> Option<Vec<u8>> {
        self.read_file().1.ok()
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

impl FileStamp {
    fn of_path(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::Missing, |metadata| Self::of_metadata(&metadata))
    }

    fn of_file(file: &File) -> Self {
        file.metadata().map_or(Self::Missing, |metadata| Self::of_metadata(&metadata))
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok();
        let distance = |modified: SystemTime| {
            let now = SystemTime::now();
            now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration())
        };
        let id = FileId::of(metadata);
        let is_recent =
            [modified, id.changed()].iter().flatten().any(|time| distance(*time) < TIMESTAMP_GRANULARITY);
        Self::Present { bytes: metadata.len(), modified, id, is_recent }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Unread | Self::Missing => 0,
            Self::Present { bytes, .. } => bytes,
        }
    }

    fn is_recent(self) -> bool {
        match self {
            Self::Unread | Self::Missing => false,
            Self::Present { is_recent, .. } => is_recent,
        }
    }

    /// Whether the file may have other contents than when it was read under the stamp `before`.
    fn may_differ_from(self, before: Self) -> bool {
        match (self, before) {
            (Self::Missing, Self::Missing) => false,
            (
                Self::Present { bytes, modified, id, is_recent },
                Self::Present { bytes: old_bytes, modified: old_modified, id: old_id, is_recent: was_recent },
            ) => {
                let is_different = (bytes, modified, id) != (old_bytes, old_modified, old_id);
                // Read while its timestamp was recent, the file may have changed within one timestamp step. A small
                // file is read at every poll, a large one once more when the timestamp is no longer recent.
                is_different || (was_recent && (!is_recent || bytes <= INLINE_RELOAD_BYTES_MAX))
            }
            (Self::Unread | Self::Missing | Self::Present { .. }, _) => true,
        }
    }
}

/// The inode, and the time of the last change of status. `cp -p`, `rsync` and editors can set the modification time
/// back, but not this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    inode: u64,
    changed: Option<(i64, i64)>,
}

impl FileId {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { inode: metadata.ino(), changed: Some((metadata.ctime(), metadata.ctime_nsec())) }
    }

    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Self { inode: 0, changed: None }
    }

    fn changed(self) -> Option<SystemTime> {
        let (seconds, nanos) = self.changed?;
        let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }
}

/// The data behind these locks is consistent whenever the lock is free, so a panic in another thread does not spoil
/// it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
