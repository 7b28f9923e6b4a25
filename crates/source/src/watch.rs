//! Notices that a file changed, and reads it again: a small one at once, a large one in the background
//! while the old state answers. What is written here is known before whoever wrote it is answered.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use contract::source::{SourceFault, Write, WriteFault, Written};

use crate::files::{Edited, Keeper, Terms};
use crate::words::Words;

/// A file up to this size is read again before the call is answered.
const AT_ONCE_BYTES_MAX: u64 = 2 << 20;
/// File systems count time in steps of some milliseconds: within this, another write may leave no trace.
const STEP: Duration = Duration::from_millis(50);

/// What a file is read into.
pub(crate) trait Content: Send + Sync + 'static {
    type Loaded: Send + Sync + 'static;
    type Trouble: Clone + From<OutOfReach> + Send + Sync + 'static;

    /// Larger files are not read.
    fn file_bytes_max(&self) -> u64;

    fn load(&self, bytes: Vec<u8>) -> Result<Self::Loaded, Self::Trouble>;

    /// Whether it was made of these very bytes.
    fn is_of(&self, loaded: &Self::Loaded, bytes: &[u8]) -> bool;

    /// A trouble as callers and the log are told of it.
    fn fault(&self, trouble: &Self::Trouble, file: &str, path: &Path) -> SourceFault;
}

/// Whoever is to know what the file holds now, or why nobody can tell.
pub(crate) trait Follow<C: Content>: Send + Sync + 'static {
    fn follow(&self, now: Result<&Arc<C::Loaded>, &C::Trouble>);

    /// Why it can read the old state and not the new one, if that is so.
    fn loses(&self, old: &C::Loaded, new: &C::Loaded) -> Option<C::Trouble>;
}

/// Why nobody knows what a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutOfReach {
    Gone,
    NotAFile,
    Denied,
    Unreadable(String),
    TooLarge { bytes: u64, bytes_max: u64 },
}

pub(crate) struct Watch<C: Content> {
    pub(crate) path: PathBuf,
    pub(crate) keeper: Keeper,
    /// The last part of the path: what people are told.
    pub(crate) file: String,
    pub(crate) content: C,
    look_every_ms: u64,
    begun: Instant,
    looked_ms: AtomicU64,
    held: Mutex<Held<C>>,
    /// Whoever reads the file holds it, until everybody has what was read.
    loading: Mutex<()>,
    followers: Mutex<Vec<Weak<dyn Follow<C>>>>,
    behind: Mutex<Option<JoinHandle<()>>>,
}

/// What was read last, and what the file looked like then.
struct Held<C: Content> {
    mark: Mark,
    loaded: Result<Arc<C::Loaded>, C::Trouble>,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Unread,
    Gone,
    There { bytes: u64, modified: Option<SystemTime>, id: FileId, is_young: bool },
}

impl<C: Content> Watch<C> {
    /// Nothing is read yet.
    pub(crate) fn new(path: &Path, content: C, look_every_ms: u64) -> Self {
        Self {
            path: path.to_owned(),
            keeper: Keeper::new(path),
            file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            content,
            look_every_ms,
            begun: Instant::now(),
            looked_ms: AtomicU64::new(0),
            held: Mutex::new(Held { mark: Mark::Unread, loaded: Err(OutOfReach::Gone.into()) }),
            loading: Mutex::default(),
            followers: Mutex::default(),
            behind: Mutex::default(),
        }
    }

    pub(crate) fn fault(&self, trouble: &C::Trouble) -> SourceFault {
        self.content.fault(trouble, &self.file, &self.path)
    }

    /// What the file holds now, however long it takes.
    pub(crate) fn fresh(&self) -> Result<Arc<C::Loaded>, C::Trouble> {
        let one = lock(&self.loading);
        let mut held = lock(&self.held);
        // Read within the step in which it was written, it may have changed since.
        if held.mark.is_young() {
            held.mark = Mark::Unread;
        }
        drop(held);
        self.renew(&one, None);
        lock(&self.held).loaded.clone()
    }

    /// What these bytes of the file say: what was read last, if they are still the same.
    pub(crate) fn loaded(&self, bytes: &[u8]) -> Result<Arc<C::Loaded>, C::Trouble> {
        match self.if_of(bytes) {
            Some(loaded) => Ok(loaded),
            None => self.content.load(bytes.to_vec()).map(Arc::new),
        }
    }

    fn if_of(&self, bytes: &[u8]) -> Option<Arc<C::Loaded>> {
        let loaded = lock(&self.held).loaded.as_ref().ok().cloned()?;
        self.content.is_of(&loaded, bytes).then_some(loaded)
    }

    /// Makes somebody who follows the file from what it holds now.
    pub(crate) fn join<F: Follow<C>, E>(
        &self,
        make: impl FnOnce(Result<Arc<C::Loaded>, C::Trouble>) -> Result<Arc<F>, E>,
    ) -> Result<Arc<F>, E> {
        // Held until the follower is known, so that it misses no change.
        let one = lock(&self.loading);
        self.renew(&one, None);
        let loaded = lock(&self.held).loaded.clone();
        let follower = make(loaded)?;
        let mut followers = lock(&self.followers);
        followers.retain(|one| one.strong_count() > 0);
        let weak: Weak<F> = Arc::downgrade(&follower);
        followers.push(weak);
        Ok(follower)
    }

    /// Followers who can read one state of the file and not the other.
    pub(crate) fn lost(&self, old: &C::Loaded, new: &C::Loaded) -> Option<C::Trouble> {
        self.followers().iter().find_map(|follower| follower.loses(old, new))
    }

    /// Puts in the file what `edit` makes of its bytes. It also says what they hold then, if that is something else:
    /// everybody has it before anybody is told that it was written.
    pub(crate) fn write(
        &self,
        write: &Write<'_>,
        mut edit: impl FnMut(&[u8]) -> Result<(Edited, Option<Arc<C::Loaded>>), WriteFault>,
    ) -> Result<Written, WriteFault> {
        let mut likely = None;
        let written = self.keeper.replace(Terms::of(write), &mut |bytes| {
            let (edited, new) = edit(bytes)?;
            likely = new;
            Ok(edited)
        });
        // Also where it went wrong: it may have been too late for nothing to have happened.
        if !write.dry_run {
            self.renew(&lock(&self.loading), likely);
        }
        written
    }

    /// Reads the file again if it changed and the last look was not just now.
    #[inline]
    pub(crate) fn look(self: &Arc<Self>) {
        if self.is_due() {
            self.look_now();
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        let every_ms = self.look_every_ms;
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        let is_due = now_ms.saturating_sub(looked_ms) >= every_ms;
        // One of those who come at the same time looks.
        is_due
            && (self
                .looked_ms
                .compare_exchange(looked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
                || every_ms == 0)
    }

    #[cold]
    fn look_now(self: &Arc<Self>) {
        let mark = Mark::of(&self.path);
        if !mark.is_news(lock(&self.held).mark) {
            return;
        }
        if mark.bytes() > AT_ONCE_BYTES_MAX {
            return self.renew_behind();
        }
        // If somebody is reading it already, the old state answers once more.
        match self.loading.try_lock() {
            Ok(one) => self.renew(&one, None),
            Err(TryLockError::Poisoned(poisoned)) => self.renew(&poisoned.into_inner(), None),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn renew_behind(self: &Arc<Self>) {
        let mut behind = lock(&self.behind);
        if behind.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let watch = self.clone();
        let thread = std::thread::Builder::new().name("watch".to_owned());
        // Without a thread the old state answers, and the next look tries again.
        *behind = thread.spawn(move || watch.renew(&lock(&watch.loading), None)).ok();
    }

    /// Waits until a file that is being read again in the background has been read.
    pub(crate) fn wait(&self) {
        let thread = lock(&self.behind).take();
        if let Some(thread) = thread {
            // It only ends early by a panic, and then there is nothing new.
            let _ = thread.join();
        }
    }

    /// Reads the file if it changed, and gives every follower what was read or why it cannot be. What is likely is
    /// what will be read, if nobody wrote since: then it need not be taken apart again.
    fn renew(&self, _one: &MutexGuard<'_, ()>, likely: Option<Arc<C::Loaded>>) {
        let before = lock(&self.held).mark;
        if likely.is_none() && !Mark::of(&self.path).is_news(before) {
            return;
        }
        let (mark, bytes) = self.read();
        let loaded = match bytes {
            Ok(bytes) => match likely.filter(|likely| self.content.is_of(likely, &bytes)) {
                Some(likely) => Ok(likely),
                // Touched, and not changed.
                None if self.if_of(&bytes).is_some() => {
                    lock(&self.held).mark = mark;
                    return;
                }
                None => self.content.load(bytes).map(Arc::new),
            },
            Err(out_of_reach) => Err(out_of_reach.into()),
        };
        *lock(&self.held) = Held { mark, loaded: loaded.clone() };
        for follower in self.followers() {
            follower.follow(loaded.as_ref());
        }
    }

    fn followers(&self) -> Vec<Arc<dyn Follow<C>>> {
        lock(&self.followers).iter().filter_map(Weak::upgrade).collect()
    }

    fn read(&self) -> (Mark, Result<Vec<u8>, OutOfReach>) {
        let bytes_max = self.content.file_bytes_max();
        let mut file = match open(&self.path, bytes_max) {
            Ok(file) => file,
            Err(out_of_reach) => return (Mark::of(&self.path), Err(out_of_reach)),
        };
        // Of the file that was opened, before it is read: what is written meanwhile makes another mark.
        let mark = Mark::of_open(&file);
        (mark, read_all(&mut file, bytes_max))
    }

    /// What the file holds now, without reading anything into it.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        self.read().1.ok()
    }
}

/// Opens a file for reading, if it is one and not too large.
fn open(path: &Path, bytes_max: u64) -> Result<File, OutOfReach> {
    // Looked at before it is opened: opening a pipe waits for somebody to write.
    let what = std::fs::metadata(path).map_err(unreadable)?;
    if !what.is_file() {
        return Err(OutOfReach::NotAFile);
    }
    if what.len() > bytes_max {
        return Err(OutOfReach::TooLarge { bytes: what.len(), bytes_max });
    }
    File::open(path).map_err(unreadable)
}

fn read_all(file: &mut File, bytes_max: u64) -> Result<Vec<u8>, OutOfReach> {
    let mut bytes = Vec::new();
    if let Ok(what) = file.metadata() {
        // One more, so that the end is seen without growing.
        bytes.reserve_exact(usize::try_from(what.len().min(bytes_max)).unwrap_or(0) + 1);
    }
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 {
        length if length > bytes_max => Err(OutOfReach::TooLarge { bytes: length, bytes_max }),
        _ => Ok(bytes),
    }
}

fn unreadable(error: io::Error) -> OutOfReach {
    match error.kind() {
        ErrorKind::NotFound => OutOfReach::Gone,
        ErrorKind::PermissionDenied => OutOfReach::Denied,
        _ => OutOfReach::Unreadable(error.to_string()),
    }
}

impl OutOfReach {
    /// Whether the file may hold what it should, for all that anybody knows.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Gone | Self::NotAFile | Self::Denied | Self::Unreadable(_) => true,
            Self::TooLarge { .. } => false,
        }
    }

    /// What is wrong, and the way out. `what` is what such files are called: `JSON file`.
    pub(crate) fn words(&self, file: &str, what: &str) -> Words {
        match self {
            Self::Gone => (format!("`{file}` is not there"), "check its name, or put it back".into()),
            Self::NotAFile => (format!("`{file}` is not a file"), format!("give the path of a {what}")),
            Self::Denied => {
                (format!("`{file}` may not be read"), "give the server permission to read it".into())
            }
            Self::Unreadable(_) => (format!("`{file}` cannot be read"), "the log says why".into()),
            Self::TooLarge { bytes, bytes_max } => (
                format!("`{file}` has {bytes} bytes, and {bytes_max} is the most"),
                "put the data into a SQLite database".into(),
            ),
        }
    }
}

impl Mark {
    fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::Gone, |what| Self::there(&what))
    }

    fn of_open(file: &File) -> Self {
        file.metadata().map_or(Self::Gone, |what| Self::there(&what))
    }

    fn there(what: &Metadata) -> Self {
        let modified = what.modified().ok();
        let distance = |modified: SystemTime| {
            let now = SystemTime::now();
            now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration())
        };
        let id = FileId::of(what);
        let is_young = [modified, id.changed()].iter().flatten().any(|time| distance(*time) < STEP);
        Self::There { bytes: what.len(), modified, id, is_young }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Unread | Self::Gone => 0,
            Self::There { bytes, .. } => bytes,
        }
    }

    fn is_young(self) -> bool {
        match self {
            Self::Unread | Self::Gone => false,
            Self::There { is_young, .. } => is_young,
        }
    }

    /// Whether there may be something else than what was read under `before`.
    fn is_news(self, before: Self) -> bool {
        match (self, before) {
            (Self::Gone, Self::Gone) => false,
            (
                Self::There { bytes, modified, id, is_young },
                Self::There { bytes: old_bytes, modified: old_modified, id: old_id, is_young: was_young },
            ) => {
                let is_other = (bytes, modified, id) != (old_bytes, old_modified, old_id);
                // Read while it was young, it may have changed within the step: a small file is read at every
                // look, a large one once more when it no longer is young.
                is_other || (was_young && (!is_young || bytes <= AT_ONCE_BYTES_MAX))
            }
            (Self::Unread | Self::Gone | Self::There { .. }, _) => true,
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
