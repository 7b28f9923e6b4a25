//! Notices that the file changed, and reads it again: a small one at once, a large one in the background
//! while the old state answers.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use contract::diagnostic::Diagnostic;
use contract::source::{Shape, SourceFault};

use super::Options;
use super::fit::Plan;
use super::live::Live;
use super::load::{self, Loaded};
use super::pen::Pen;
use super::trouble::Trouble;
use crate::files::Keeper;

/// A file up to this size is read again before the call is answered.
const AT_ONCE_BYTES_MAX: u64 = 2 << 20;
/// File systems count time in steps of some milliseconds: within this, another write may leave no trace.
const STEP: Duration = Duration::from_millis(50);

pub(super) struct Watch {
    path: PathBuf,
    pub(super) keeper: Keeper,
    /// The last part of the path: what people are told.
    file: String,
    pub(super) options: Options,
    begun: Instant,
    looked_ms: AtomicU64,
    held: Mutex<Held>,
    /// Whoever reads the file holds it, until everybody has what was read.
    loading: Mutex<()>,
    readers: Mutex<Vec<Weak<Live>>>,
    behind: Mutex<Option<JoinHandle<()>>>,
}

/// What was read last, and what the file looked like then.
struct Held {
    mark: Mark,
    loaded: Result<Arc<Loaded>, Trouble>,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Unread,
    Gone,
    There { bytes: u64, modified: Option<SystemTime>, id: FileId, is_young: bool },
}

impl Watch {
    pub(super) fn new(path: &Path, options: Options) -> Self {
        Self {
            path: path.to_owned(),
            keeper: Keeper::new(path),
            file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            options,
            begun: Instant::now(),
            looked_ms: AtomicU64::new(0),
            held: Mutex::new(Held { mark: Mark::Unread, loaded: Err(Trouble::Gone) }),
            loading: Mutex::default(),
            readers: Mutex::default(),
            behind: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn table_name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn fault(&self, trouble: &Trouble) -> SourceFault {
        let (told, log) = (trouble.told(&self.file), trouble.log(&self.file, &self.path));
        if trouble.is_out_of_reach() {
            SourceFault::Unavailable { told, log }
        } else {
            SourceFault::Changed { told, log }
        }
    }

    pub(super) fn shown(&self, trouble: &Trouble) -> Diagnostic {
        trouble.shown(&self.file, &self.path)
    }

    /// What is wrong now, if anything is: with the file, or with its rows where a shape says how they must be.
    pub(super) fn trouble(&self, shape: Option<&Shape>) -> Option<Trouble> {
        match (self.fresh(), shape) {
            (Err(trouble), _) => Some(trouble),
            (Ok(loaded), Some(shape)) => self.plan(shape, &loaded).fit(&loaded).err(),
            (Ok(_), None) => None,
        }
    }

    fn plan(&self, shape: &Shape, loaded: &Loaded) -> Plan {
        Plan::new(shape, &loaded.table, self.options.null.as_deref())
    }

    /// What the file holds now, however long it takes.
    pub(super) fn fresh(&self) -> Result<Arc<Loaded>, Trouble> {
        let one = lock(&self.loading);
        self.renew(&one);
        lock(&self.held).loaded.clone()
    }

    pub(super) fn reader(self: &Arc<Self>, shape: &Shape) -> Result<Arc<Live>, SourceFault> {
        // Held until the reader is known, so that it misses no change.
        let one = lock(&self.loading);
        self.renew(&one);
        let loaded = lock(&self.held).loaded.clone().map_err(|trouble| self.fault(&trouble))?;
        let plan = self.plan(shape, &loaded);
        let fit = plan.fit(&loaded).map_err(|trouble| self.fault(&trouble))?;
        let live = Arc::new(Live::new(self.clone(), plan, fit));
        let mut readers = lock(&self.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&live));
        Ok(live)
    }

    pub(super) fn pen(self: &Arc<Self>, shape: &Shape) -> Result<Pen, SourceFault> {
        let loaded = self.fresh().map_err(|trouble| self.fault(&trouble))?;
        let plan = self.plan(shape, &loaded);
        plan.fit(&loaded).map_err(|trouble| self.fault(&trouble))?;
        Ok(Pen::new(self.clone(), plan))
    }

    /// What these bytes of the file say: what was read last, if they are still the same.
    pub(super) fn loaded(&self, bytes: &[u8]) -> Result<Arc<Loaded>, Trouble> {
        let held = lock(&self.held).loaded.clone();
        match held {
            Ok(loaded) if loaded.is_from(bytes) => Ok(loaded),
            Ok(_) | Err(_) => load::table(bytes.to_vec(), &self.path, &self.options)
                .map(|table| Arc::new(Loaded::new(table))),
        }
    }

    /// Readers who can read one state of the file and not the other.
    pub(super) fn lost(&self, old: &Loaded, new: &Loaded) -> Option<Trouble> {
        let readers: Vec<Arc<Live>> = lock(&self.readers).iter().filter_map(Weak::upgrade).collect();
        readers.iter().find_map(|reader| {
            let trouble = reader.plan.fit(new).err()?;
            reader.plan.fit(old).ok().map(|_| trouble)
        })
    }

    /// Shows every reader what was written, before whoever wrote it is answered.
    pub(super) fn wrote(&self, likely: Option<Arc<Loaded>>) {
        self.renew_likely(&lock(&self.loading), likely);
    }

    /// Reads the file again if it changed and the last look was not just now.
    #[inline]
    pub(super) fn look(self: &Arc<Self>) {
        if self.is_due() {
            self.look_now();
        }
    }

    fn is_due(&self) -> bool {
        let every_ms = self.options.look_every_ms;
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
            Ok(one) => self.renew(&one),
            Err(TryLockError::Poisoned(poisoned)) => self.renew(&poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn renew_behind(self: &Arc<Self>) {
        let mut behind = lock(&self.behind);
        if behind.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let watch = self.clone();
        let thread = std::thread::Builder::new().name("csv".to_owned());
        // Without a thread the old state answers, and the next look tries again.
        *behind = thread.spawn(move || watch.renew(&lock(&watch.loading))).ok();
    }

    pub(super) fn wait(&self) {
        let thread = lock(&self.behind).take();
        if let Some(thread) = thread {
            // It only ends early by a panic, and then there is nothing new.
            let _ = thread.join();
        }
    }

    /// Reads the file if it changed, and gives every reader what was read or why it cannot be.
    fn renew(&self, one: &MutexGuard<'_, ()>) {
        self.renew_likely(one, None);
    }

    /// What is likely is what will be read, if nobody wrote since: then it need not be taken apart again.
    fn renew_likely(&self, _one: &MutexGuard<'_, ()>, likely: Option<Arc<Loaded>>) {
        let before = lock(&self.held).mark;
        if !Mark::of(&self.path).is_news(before) {
            return;
        }
        let (mark, loaded) = self.load(likely);
        let mut held = lock(&self.held);
        held.mark = mark;
        if let (Ok(old), Ok(new)) = (&held.loaded, &loaded)
            && old.table.text == new.table.text
        {
            return;
        }
        held.loaded = loaded.clone();
        drop(held);
        let readers: Vec<Arc<Live>> = lock(&self.readers).iter().filter_map(Weak::upgrade).collect();
        for reader in readers {
            let fit = loaded.as_ref().map_err(Trouble::clone).and_then(|loaded| reader.plan.fit(loaded));
            reader.set(fit.map_err(|trouble| self.fault(&trouble)));
        }
    }

    fn load(&self, likely: Option<Arc<Loaded>>) -> (Mark, Result<Arc<Loaded>, Trouble>) {
        let mut file = match load::open(&self.path) {
            Ok(file) => file,
            Err(trouble) => return (Mark::of(&self.path), Err(trouble)),
        };
        // Of the file that was opened, before it is read: what is written meanwhile makes another mark.
        let mark = Mark::of_open(&file);
        let loaded = load::read(&mut file).and_then(|bytes| match likely {
            Some(likely) if likely.is_from(&bytes) => Ok(likely),
            _ => load::table(bytes, &self.path, &self.options).map(|table| Arc::new(Loaded::new(table))),
        });
        (mark, loaded)
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
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
