//! Notices that a file changed, and reads it again: a small one at once, a large one in the background
//! while the old state answers. What is written here is known before whoever wrote it is answered.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use contract::source::{SourceError, WriteError, WriteOutcome, WriteRequest};

use crate::atomic_file::{AtomicFile, EditResult, ReplaceOptions};
use crate::error_text::ErrorText;

/// A file up to this size is read again before the call is answered.
const INLINE_RELOAD_BYTES_MAX: u64 = 2 << 20;
/// File systems count time in steps of some milliseconds: within this, another write may leave no trace.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(50);

/// What a file is read into.
pub(crate) trait FileLoader: Send + Sync + 'static {
    type Snapshot: Send + Sync + 'static;
    type Error: Clone + From<FileError> + Send + Sync + 'static;

    /// Larger files are not read.
    fn file_bytes_max(&self) -> u64;

    fn load(&self, bytes: Vec<u8>) -> Result<Self::Snapshot, Self::Error>;

    /// Whether it was made of these very bytes.
    fn is_snapshot_of(&self, loaded: &Self::Snapshot, bytes: &[u8]) -> bool;

    /// A trouble as callers and the log are told of it.
    fn source_error(&self, trouble: &Self::Error, file: &str, path: &Path) -> SourceError;
}

/// Whoever is to know what the file holds now, or why nobody can tell.
pub(crate) trait SnapshotObserver<C: FileLoader>: Send + Sync + 'static {
    fn snapshot_changed(&self, now: Result<&Arc<C::Snapshot>, &C::Error>);

    /// Why it can read the old state and not the new one, if that is so.
    fn would_break(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error>;
}

/// Why nobody knows what a file holds.
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
    /// The last part of the path: what people are told.
    pub(crate) file_name: String,
    pub(crate) loader: C,
    poll_interval_ms: u64,
    started_at: Instant,
    last_poll_ms: AtomicU64,
    cached: Mutex<CachedSnapshot<C>>,
    /// Whoever reads the file holds it, until everybody has what was read.
    load_lock: Mutex<()>,
    observers: Mutex<Vec<Weak<dyn SnapshotObserver<C>>>>,
    background_load: Mutex<Option<JoinHandle<()>>>,
}

/// What was read last, and what the file looked like then.
struct CachedSnapshot<C: FileLoader> {
    stamp: FileStamp,
    snapshot: Result<Arc<C::Snapshot>, C::Error>,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy)]
enum FileStamp {
    Unread,
    Missing,
    Present { bytes: u64, modified: Option<SystemTime>, id: FileId, is_recent: bool },
}

impl<C: FileLoader> WatchedFile<C> {
    /// Nothing is read yet.
    pub(crate) fn new(path: &Path, loader: C, poll_interval_ms: u64) -> Self {
        Self {
            path: path.to_owned(),
            atomic_file: AtomicFile::new(path),
            file_name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            loader,
            poll_interval_ms,
            started_at: Instant::now(),
            last_poll_ms: AtomicU64::new(0),
            cached: Mutex::new(CachedSnapshot {
                stamp: FileStamp::Unread,
                snapshot: Err(FileError::NotFound.into()),
            }),
            load_lock: Mutex::default(),
            observers: Mutex::default(),
            background_load: Mutex::default(),
        }
    }

    pub(crate) fn source_error(&self, trouble: &C::Error) -> SourceError {
        self.loader.source_error(trouble, &self.file_name, &self.path)
    }

    /// What the file holds now, however long it takes.
    pub(crate) fn load_current(&self) -> Result<Arc<C::Snapshot>, C::Error> {
        let one = lock(&self.load_lock);
        let mut held = lock(&self.cached);
        // Read within the step in which it was written, it may have changed since.
        if held.stamp.is_recent() {
            held.stamp = FileStamp::Unread;
        }
        drop(held);
        self.reload(&one, None);
        lock(&self.cached).snapshot.clone()
    }

    /// What these bytes of the file say: what was read last, if they are still the same.
    pub(crate) fn snapshot_of(&self, bytes: &[u8]) -> Result<Arc<C::Snapshot>, C::Error> {
        match self.cached_snapshot_of(bytes) {
            Some(loaded) => Ok(loaded),
            None => self.loader.load(bytes.to_vec()).map(Arc::new),
        }
    }

    fn cached_snapshot_of(&self, bytes: &[u8]) -> Option<Arc<C::Snapshot>> {
        let loaded = lock(&self.cached).snapshot.as_ref().ok().cloned()?;
        self.loader.is_snapshot_of(&loaded, bytes).then_some(loaded)
    }

    /// Makes somebody who follows the file from what it holds now.
    pub(crate) fn subscribe<F: SnapshotObserver<C>, E>(
        &self,
        make: impl FnOnce(Result<Arc<C::Snapshot>, C::Error>) -> Result<Arc<F>, E>,
    ) -> Result<Arc<F>, E> {
        // Held until the follower is known, so that it misses no change.
        let one = lock(&self.load_lock);
        self.reload(&one, None);
        let loaded = lock(&self.cached).snapshot.clone();
        let follower = make(loaded)?;
        let mut followers = lock(&self.observers);
        followers.retain(|one| one.strong_count() > 0);
        let weak: Weak<F> = Arc::downgrade(&follower);
        followers.push(weak);
        Ok(follower)
    }

    /// Followers who can read one state of the file and not the other.
    pub(crate) fn observer_error(&self, old: &C::Snapshot, new: &C::Snapshot) -> Option<C::Error> {
        self.observers().iter().find_map(|follower| follower.would_break(old, new))
    }

    /// Puts in the file what `edit` makes of its bytes. It also says what they hold then, if that is something else:
    /// everybody has it before anybody is told that it was written.
    pub(crate) fn write(
        &self,
        write: &WriteRequest<'_>,
        mut edit: impl FnMut(&[u8]) -> Result<(EditResult, Option<Arc<C::Snapshot>>), WriteError>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut likely = None;
        let written = self.atomic_file.replace(ReplaceOptions::of(write), &mut |bytes| {
            let (edited, new) = edit(bytes)?;
            likely = new;
            Ok(edited)
        });
        // Also where it went wrong: it may have been too late for nothing to have happened.
        if !write.dry_run {
            self.reload(&lock(&self.load_lock), likely);
        }
        written
    }

    /// Reads the file again if it changed and the last look was not just now.
    #[inline]
    pub(crate) fn poll(self: &Arc<Self>) {
        if self.is_poll_due() {
            self.poll_now();
        }
    }

    #[inline]
    fn is_poll_due(&self) -> bool {
        let every_ms = self.poll_interval_ms;
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked_ms = self.last_poll_ms.load(Ordering::Relaxed);
        let is_due = now_ms.saturating_sub(looked_ms) >= every_ms;
        // One of those who come at the same time looks.
        is_due
            && (self
                .last_poll_ms
                .compare_exchange(looked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
                || every_ms == 0)
    }

    #[cold]
    fn poll_now(self: &Arc<Self>) {
        let mark = FileStamp::of_path(&self.path);
        if !mark.may_differ_from(lock(&self.cached).stamp) {
            return;
        }
        if mark.bytes() > INLINE_RELOAD_BYTES_MAX {
            return self.reload_in_background();
        }
        // If somebody is reading it already, the old state answers once more.
        match self.load_lock.try_lock() {
            Ok(one) => self.reload(&one, None),
            Err(TryLockError::Poisoned(poisoned)) => self.reload(&poisoned.into_inner(), None),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn reload_in_background(self: &Arc<Self>) {
        let mut behind = lock(&self.background_load);
        if behind.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let watch = self.clone();
        let thread = std::thread::Builder::new().name("watch".to_owned());
        // Without a thread the old state answers, and the next look tries again.
        *behind = thread.spawn(move || watch.reload(&lock(&watch.load_lock), None)).ok();
    }

    /// Waits until a file that is being read again in the background has been read.
    pub(crate) fn wait_for_reload(&self) {
        let thread = lock(&self.background_load).take();
        if let Some(thread) = thread {
            // It only ends early by a panic, and then there is nothing new.
            let _ = thread.join();
        }
    }

    /// Reads the file if it changed, and gives every follower what was read or why it cannot be. What is likely is
    /// what will be read, if nobody wrote since: then it need not be taken apart again.
    fn reload(&self, _one: &MutexGuard<'_, ()>, likely: Option<Arc<C::Snapshot>>) {
        let before = lock(&self.cached).stamp;
        if likely.is_none() && !FileStamp::of_path(&self.path).may_differ_from(before) {
            return;
        }
        let (mark, bytes) = self.read_file();
        let loaded = match bytes {
            Ok(bytes) => match likely.filter(|likely| self.loader.is_snapshot_of(likely, &bytes)) {
                Some(likely) => Ok(likely),
                // Touched, and not changed.
                None if self.cached_snapshot_of(&bytes).is_some() => {
                    lock(&self.cached).stamp = mark;
                    return;
                }
                None => self.loader.load(bytes).map(Arc::new),
            },
            Err(out_of_reach) => Err(out_of_reach.into()),
        };
        *lock(&self.cached) = CachedSnapshot { stamp: mark, snapshot: loaded.clone() };
        for follower in self.observers() {
            follower.snapshot_changed(loaded.as_ref());
        }
    }

    fn observers(&self) -> Vec<Arc<dyn SnapshotObserver<C>>> {
        lock(&self.observers).iter().filter_map(Weak::upgrade).collect()
    }

    fn read_file(&self) -> (FileStamp, Result<Vec<u8>, FileError>) {
        let bytes_max = self.loader.file_bytes_max();
        let mut file = match open(&self.path, bytes_max) {
            Ok(file) => file,
            Err(out_of_reach) => return (FileStamp::of_path(&self.path), Err(out_of_reach)),
        };
        // Of the file that was opened, before it is read: what is written meanwhile makes another mark.
        let mark = FileStamp::of_file(&file);
        (mark, read_all(&mut file, bytes_max))
    }

    /// What the file holds now, without reading anything into it.
    pub(crate) fn read_bytes(&self) -> Option<Vec<u8>> {
        self.read_file().1.ok()
    }
}

/// Opens a file for reading, if it is one and not too large.
fn open(path: &Path, bytes_max: u64) -> Result<File, FileError> {
    // Looked at before it is opened: opening a pipe waits for somebody to write.
    let what = std::fs::metadata(path).map_err(file_error)?;
    if !what.is_file() {
        return Err(FileError::NotAFile);
    }
    if what.len() > bytes_max {
        return Err(FileError::TooLarge { bytes: what.len(), bytes_max });
    }
    File::open(path).map_err(file_error)
}

fn read_all(file: &mut File, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    if let Ok(what) = file.metadata() {
        // One more, so that the end is seen without growing.
        bytes.reserve_exact(usize::try_from(what.len().min(bytes_max)).unwrap_or(0) + 1);
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
    /// Whether the file may hold what it should, for all that anybody knows.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotFound | Self::NotAFile | Self::PermissionDenied | Self::Io(_) => true,
            Self::TooLarge { .. } => false,
        }
    }

    /// What is wrong, and the way out. `what` is what such files are called: `JSON file`.
    pub(crate) fn error_text(&self, file: &str, what: &str) -> ErrorText {
        match self {
            Self::NotFound => (format!("`{file}` is not there"), "check its name, or put it back".into()),
            Self::NotAFile => (format!("`{file}` is not a file"), format!("give the path of a {what}")),
            Self::PermissionDenied => {
                (format!("`{file}` may not be read"), "give the server permission to read it".into())
            }
            Self::Io(_) => (format!("`{file}` cannot be read"), "the log says why".into()),
            Self::TooLarge { bytes, bytes_max } => (
                format!("`{file}` has {bytes} bytes, and {bytes_max} is the most"),
                "put the data into a SQLite database".into(),
            ),
        }
    }
}

impl FileStamp {
    fn of_path(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::Missing, |what| Self::of_metadata(&what))
    }

    fn of_file(file: &File) -> Self {
        file.metadata().map_or(Self::Missing, |what| Self::of_metadata(&what))
    }

    fn of_metadata(what: &Metadata) -> Self {
        let modified = what.modified().ok();
        let distance = |modified: SystemTime| {
            let now = SystemTime::now();
            now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration())
        };
        let id = FileId::of(what);
        let is_recent =
            [modified, id.changed()].iter().flatten().any(|time| distance(*time) < TIMESTAMP_GRANULARITY);
        Self::Present { bytes: what.len(), modified, id, is_recent }
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
            Self::Present { is_recent: is_young, .. } => is_young,
        }
    }

    /// Whether there may be something else than what was read under `before`.
    fn may_differ_from(self, before: Self) -> bool {
        match (self, before) {
            (Self::Missing, Self::Missing) => false,
            (
                Self::Present { bytes, modified, id, is_recent: is_young },
                Self::Present { bytes: old_bytes, modified: old_modified, id: old_id, is_recent: was_young },
            ) => {
                let is_other = (bytes, modified, id) != (old_bytes, old_modified, old_id);
                // Read while it was young, it may have changed within the step: a small file is read at every
                // look, a large one once more when it no longer is young.
                is_other || (was_young && (!is_young || bytes <= INLINE_RELOAD_BYTES_MAX))
            }
            (Self::Unread | Self::Missing | Self::Present { .. }, _) => true,
        }
    }
}

/// Which file it is, and when the system last saw it change: that time nobody can set back, as `cp -p`, `rsync`
/// and editors do with the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    inode: u64,
    changed: Option<(i64, i64)>,
}

impl FileId {
    #[cfg(unix)]
    fn of(what: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { inode: what.ino(), changed: Some((what.ctime(), what.ctime_nsec())) }
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

/// What a lock guards is whole whenever it is not held, so a panic elsewhere does not spoil it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
