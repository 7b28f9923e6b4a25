//! Watches a folder: notices changes without reading files, and loads it again once they have settled.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use contract::diagnostic::Diagnostic;
use file_watch::{Debounce, FileStamp, PollThread};

use crate::folder::{Folder, Loaded};
use crate::provider::ContentProvider;

/// How often the folder is walked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// While a change settles.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// The state of a folder that is being watched. The caller decides when to look.
pub struct FolderWatch {
    folder: Folder,
    /// What the last load has seen.
    stamp: FolderStamp,
    debounce: Debounce<FolderStamp>,
}

/// The stamps of all files, and which folders exist.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FolderStamp(Vec<(usize, String, FileStamp)>, [bool; 4]);

impl FolderStamp {
    fn capture(folder: &Folder) -> Self {
        let trees = folder.walk(&mut Vec::new());
        let stamps = trees.iter().enumerate().flat_map(|(index, tree)| {
            tree.stamps().map(move |(path, stamp)| (index, path.to_owned(), stamp))
        });
        Self(stamps.collect(), trees.each_ref().map(|tree| tree.exists()))
    }

    fn is_recent(&self, now: SystemTime) -> bool {
        self.0.iter().any(|(_, _, stamp)| stamp.is_recent(now, now))
    }
}

/// What one look at the folder found.
pub enum Poll {
    Unchanged,
    /// Something changed, and may still be changing.
    Settling,
    Changed(Box<Loaded>, Vec<Diagnostic>),
}

impl FolderWatch {
    /// Loads the folder for the first time. `now` is the time before that.
    pub fn new(folder: Folder, now: SystemTime) -> (Self, Loaded, Vec<Diagnostic>) {
        let (stamp, loaded, diagnostics) = load(&folder, now);
        (Self { folder, stamp, debounce: Debounce::default() }, loaded, diagnostics)
    }

    /// Looks at the folder once.
    pub fn poll(&mut self, now: Instant, system_now: SystemTime) -> Poll {
        let stamp = FolderStamp::capture(&self.folder);
        if stamp == self.stamp {
            self.debounce.reset();
            return Poll::Unchanged;
        }
        if !self.debounce.is_settled(&stamp, stamp.is_recent(system_now), now) {
            return Poll::Settling;
        }
        self.debounce.reset();
        let (stamp, loaded, diagnostics) = load(&self.folder, system_now);
        self.stamp = stamp;
        Poll::Changed(Box::new(loaded), diagnostics)
    }
}

/// The stamp is taken before the load: a change during the load is noticed by the next poll.
fn load(folder: &Folder, now: SystemTime) -> (FolderStamp, Loaded, Vec<Diagnostic>) {
    let mut stamp = FolderStamp::capture(folder);
    // A file that was written just now may be written again without another stamp: it is read once more later.
    for (_, _, stamp) in &mut stamp.0 {
        if stamp.is_recent(now, now) {
            *stamp = FileStamp::Missing;
        }
    }
    let (loaded, diagnostics) = folder.load();
    (stamp, loaded, diagnostics)
}

/// Watches a folder for a provider, until the thread or the provider is dropped. `on_reload` gets the diagnostics of
/// each load.
pub fn watch_folder(
    mut watch: FolderWatch,
    provider: &Arc<ContentProvider>,
    on_reload: impl Fn(&[Diagnostic]) + Send + 'static,
) -> std::io::Result<PollThread> {
    let provider: Weak<ContentProvider> = Arc::downgrade(provider);
    let poll = move |now| {
        let Some(provider) = provider.upgrade() else { return ControlFlow::Break(()) };
        ControlFlow::Continue(match watch.poll(now, SystemTime::now()) {
            Poll::Settling => SETTLE_INTERVAL,
            Poll::Unchanged => POLL_INTERVAL,
            Poll::Changed(loaded, diagnostics) => {
                provider.reload(*loaded);
                on_reload(&diagnostics);
                POLL_INTERVAL
            }
        })
    };
    PollThread::start("content-watch", POLL_INTERVAL, poll)
}
