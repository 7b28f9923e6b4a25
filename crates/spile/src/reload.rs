//! What is served follows what it is made from: manifest, lock file and data are looked at, and what changed is
//! compiled anew.
//!
//! One thread looks at all servers, one after the other, so that there is never more than one file being read for
//! this. It reads no file that looks as it did, waits until a file that is being written has come to rest, and leaves
//! a large file alone for longer than reading it takes. Rows that come and go are the sources' own business: only
//! what changes the contract is served anew, from the sources that are open where they are read as before. Calls under
//! way are not touched.
//!
//! What cannot be compiled is never served. What would break those who call is not served either, unless somebody
//! is there to see it (`spile dev`).

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use contract::Contract;
use contract::diagnostic::{Diagnostic, Severity};
use contract::judge::{Difference, Promises, Verdict, judge, worst};
use contract::words::counted;
use host::{Compiled, RealWorld, Reloaded, Served, Server};

use crate::lock;
use crate::project::{Looked, MANIFEST, Plan, Project, Ready, Sources};

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// What changed has to stay as it is for so long before it is read. Longer than the steps in which file systems count
/// time, so that no change hides behind another.
const REST: Duration = Duration::from_millis(40);
/// A file that never comes to rest is read all the same.
const REST_MAX: Duration = Duration::from_secs(2);
/// Data that took so long to read is left alone so many times as long, and no longer than this.
const PAUSE_TIMES: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What is done with a change that breaks callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaking {
    Kept,
    Served,
}

/// What came of a change.
pub(crate) enum News<'a> {
    /// It is served now; what is different from before, and whether the change before it was not served.
    Served {
        contract: &'a Contract,
        differences: &'a [Difference],
        found: &'a [Diagnostic],
        was_behind: bool,
    },
    /// It comes to what is served already.
    Unchanged { found: &'a [Diagnostic], was_behind: bool },
    /// Something is wrong with it.
    Wrong { found: &'a [Diagnostic] },
    /// It would break those who call.
    Refused { differences: &'a [Difference] },
}

/// Who wants to know.
pub(crate) type Tell = Box<dyn Fn(&Server, &News<'_>) + Send>;

/// What is served, and what is needed to find out whether something else should be.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) provider: Arc<Compiled>,
    pub(crate) call_timeout_ms: Option<u64>,
    contract: Contract,
    sources: Sources,
    /// Everything that matters, in words: equal words are equal servers.
    identity: String,
}

impl Made {
    pub(crate) fn new(ready: Ready, before: Option<&Self>) -> Self {
        let Ready { contract, answers, call_timeout_ms, sources } = ready;
        // Another file may hold the same columns, and is another server.
        let identity = format!("{contract:?} {call_timeout_ms:?} {sources:?}");
        let (name, version) = (contract.name.clone(), contract.version.clone());
        let provider = Compiled::new(contract.clone(), answers, &RealWorld::default());
        let provider = match before {
            Some(before) => provider.in_place_of(&before.provider),
            None => provider,
        };
        Self { name, version, provider: Arc::new(provider), call_timeout_ms, contract, sources, identity }
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }
}

/// A project that is served, and how its files looked.
pub(crate) struct Watched {
    path: PathBuf,
    made: Made,
    /// Data, as far as it is known.
    data: Vec<PathBuf>,
    seen: Marks,
    /// How it looks now, if that is different, since when, and since when it has been different.
    restless: Option<(Marks, Instant, Instant)>,
    /// Changed data is left alone until then.
    pause: Option<Instant>,
    /// Whether somebody wrote the manifest of what is served. Then nothing is served without one: it may hide what
    /// the data holds, and while it is saved or checked out it may be gone for a moment.
    is_written: bool,
    /// Whether the last change was not served.
    is_behind: bool,
}

impl Watched {
    /// `seen` is how everything looked before it was read, but for the data, which is known only since then.
    pub(crate) fn new(path: &Path, made: Made, data: Vec<PathBuf>, seen: Marks, began: SystemTime) -> Self {
        let seen = seen.with_data_of(path, &data, began);
        let path = path.to_path_buf();
        Self { path, made, data, seen, restless: None, pause: None, is_written: false, is_behind: false }
    }

    /// With a manifest that somebody wrote, or without.
    pub(crate) fn written(self, is_written: bool) -> Self {
        Self { is_written, ..self }
    }

    pub(crate) fn made(&self) -> &Made {
        &self.made
    }

    /// Looks once; says whether something does not rest.
    fn look(&mut self, server: &Arc<Server>, breaking: Breaking, tell: &Tell, now: Instant) -> bool {
        let marks = Marks::of(&self.path, &self.data);
        if marks == self.seen {
            self.restless = None;
            return false;
        }
        let (since, from) = match &self.restless {
            Some((same, since, from)) if *same == marks => (*since, *from),
            Some((_, _, from)) => (now, *from),
            None => (now, now),
        };
        let rests = now.duration_since(since) >= REST || now.duration_since(from) >= REST_MAX;
        let only_data = marks.own == self.seen.own;
        if !rests {
            self.restless = Some((marks, since, from));
            return true;
        }
        if only_data && self.pause.is_some_and(|until| now < until) {
            self.restless = Some((marks, since, from));
            return false;
        }
        self.restless = None;
        self.seen = marks;
        let began = Instant::now();
        self.reload(server, breaking, tell, only_data);
        let took = began.elapsed();
        self.pause = Some(Instant::now() + (took * PAUSE_TIMES).min(PAUSE_MAX));
        false
    }

    fn reload(&mut self, server: &Arc<Server>, breaking: Breaking, tell: &Tell, only_data: bool) {
        let began = SystemTime::now();
        let looked = Project::find(&self.path).and_then(|project| {
            if self.is_written && !project.is_written() {
                bail!("`{MANIFEST}` is gone; put it back, or restart to serve without it");
            }
            project.look_again(&self.made.sources)
        });
        let Looked { ready, mut found, files, is_written, .. } = match looked {
            Ok(looked) => looked,
            Err(error) => {
                return self.kept(server, tell, &[Diagnostic::error(format!("{error:#}"))]);
            }
        };
        if !files.is_empty() && files != self.data {
            self.data = files;
            self.seen = self.seen.clone().with_data_of(&self.path, &self.data, began);
        }
        let Some(ready) = ready else {
            found.retain(|one| one.severity == Severity::Error);
            return self.kept(server, tell, &found);
        };
        let made = Made::new(ready, Some(&self.made));
        if made.identity == self.made.identity {
            self.is_written = is_written;
            // Rows change all the time, and nobody wants to hear of it.
            if !only_data || self.is_behind {
                let was_behind = std::mem::take(&mut self.is_behind);
                server.reloaded(Reloaded::Unchanged, None);
                tell(server, &News::Unchanged { found: &found, was_behind });
            }
            return;
        }
        let differences = judge(&Promises::of(&self.made.contract), &Promises::of(&made.contract));
        if worst(&differences) == Verdict::Breaking && breaking == Breaking::Kept {
            self.is_behind = true;
            server.reloaded(Reloaded::Kept, Some(in_short(&differences)));
            return tell(server, &News::Refused { differences: &differences });
        }
        let served = Served {
            version: made.version.clone(),
            providers: vec![made.provider.clone()],
            call_timeout_ms: made.call_timeout_ms,
        };
        match server.swap(served) {
            Ok(()) => {
                let was_behind = std::mem::take(&mut self.is_behind);
                self.is_written = is_written;
                self.made = made;
                let (contract, differences, found) = (&self.made.contract, &differences, &found);
                tell(server, &News::Served { contract, differences, found, was_behind });
            }
            Err(bad) => self.kept(server, tell, &[Diagnostic::error(bad.to_string())]),
        }
    }

    fn kept(&mut self, server: &Server, tell: &Tell, found: &[Diagnostic]) {
        self.is_behind = true;
        server.reloaded(Reloaded::Kept, Some(first_of(found)));
        tell(server, &News::Wrong { found });
    }
}

/// In a line: what is wrong first, and where.
pub(crate) fn first_of(found: &[Diagnostic]) -> String {
    let Some(first) = found.first() else { return "nothing can be served".into() };
    let place = first.at.as_ref().map(|at| format!("{}:{}:{}: ", at.file(), at.line(), at.column()));
    let more = found.len() - 1;
    let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!("{}{}{more}", place.unwrap_or_default(), first.message)
}

/// In a line: why it breaks callers, and the way out.
pub(crate) fn in_short(differences: &[Difference]) -> String {
    let breaking: Vec<&Difference> =
        differences.iter().filter(|one| one.verdict == Verdict::Breaking).collect();
    let first = breaking.first().map(ToString::to_string).unwrap_or_default();
    let more = match breaking.len() {
        0 | 1 => String::new(),
        several => format!(" (and {} more)", several - 1),
    };
    format!(
        "{} would break callers: {first}{more}; restart to serve it",
        counted(breaking.len() as u64, "change")
    )
}

/// Looks from now on, for as long as there is a server. Without a thread nothing is looked at, and that is said.
pub(crate) fn start(watched: Vec<(Weak<Server>, Watched)>, breaking: Breaking, tell: Tell) {
    if watched.is_empty() {
        return;
    }
    let mut watched = watched;
    let thread = std::thread::Builder::new().name("reload".into());
    let started = thread.spawn(move || {
        while !watched.is_empty() {
            let mut restless = false;
            watched.retain_mut(|(server, watched)| {
                let Some(server) = server.upgrade() else { return false };
                restless |= watched.look(&server, breaking, &tell, Instant::now());
                true
            });
            std::thread::sleep(if restless { REST / 2 } else { LOOK });
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "changes will not be noticed; restart to serve them");
    }
}

/// Who was warned is told when that is over: this target is logged wherever warnings are.
pub(crate) const ALL_CLEAR: &str = "spile::all_clear";
const AS_WRITTEN: &str = "everything is served as it is written again";

/// As a log line, for whoever runs a server without looking at it.
pub(crate) fn log() -> Tell {
    Box::new(|server, news| {
        let name = &server.name;
        match news {
            News::Served { contract, differences, was_behind, .. } => {
                let (version, verdict) = (&contract.version, worst(differences).as_str());
                if *was_behind {
                    tracing::info!(target: ALL_CLEAR, %name, %version, verdict, "{AS_WRITTEN}");
                } else {
                    tracing::info!(%name, %version, verdict, "what changed is served now");
                }
                if contract.name != *name {
                    tracing::warn!(%name, new = %contract.name, "a new name needs a restart");
                }
            }
            News::Unchanged { was_behind: true, .. } => {
                tracing::info!(target: ALL_CLEAR, %name, "{AS_WRITTEN}");
            }
            News::Unchanged { .. } => tracing::info!(%name, "what changed comes to the same"),
            News::Wrong { found } => {
                tracing::warn!(%name, why = %first_of(found), "what changed cannot be served; the last good contract stays");
            }
            News::Refused { differences } => {
                tracing::warn!(%name, why = %in_short(differences), "what changed is not served; the last good contract stays");
            }
        }
    })
}

/// How files look from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks {
    own: Own,
    /// Two for each file.
    data: Vec<Mark>,
}

/// What says what is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    Manifest {
        file: Mark,
        lock: Mark,
    },
    /// No manifest: the names of the files.
    Files(Vec<PathBuf>),
    /// There is nothing.
    Gone,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Gone,
    /// Like nothing that can be seen later.
    Unsure,
    There {
        bytes: u64,
        modified: Option<SystemTime>,
        more: (u64, u64, i64, i64),
    },
}

/// A file that changed within this before it was read may have changed again since.
const YOUNG: Duration = Duration::from_millis(500);

impl Marks {
    pub(crate) fn of(path: &Path, data: &[PathBuf]) -> Self {
        let own = match Project::find(path) {
            Err(_) => Own::Gone,
            Ok(project) => match &project.plan {
                Plan::Manifest(file) => Own::Manifest {
                    file: Mark::of(file),
                    lock: lock::file_of(&project).map_or(Mark::Gone, |lock| Mark::of(&lock)),
                },
                Plan::Files(files) => Own::Files(files.clone()),
            },
        };
        // A database may keep what is new beside it.
        let beside = |file: &PathBuf| {
            let mut wal = file.clone().into_os_string();
            wal.push("-wal");
            [Mark::of(file), Mark::of(Path::new(&wal)).unless_empty()]
        };
        Self { own, data: data.iter().flat_map(beside).collect() }
    }

    /// For data that was read since `began`, and whose files became known by that: it is looked at again unless it
    /// is sure that it has not changed.
    fn with_data_of(mut self, path: &Path, data: &[PathBuf], began: SystemTime) -> Self {
        let sure = |mark: Mark| match mark {
            Mark::There { modified: Some(modified), .. } if modified + YOUNG > began => Mark::Unsure,
            mark => mark,
        };
        self.data = Self::of(path, data).data.into_iter().map(sure).collect();
        self
    }
}

impl Mark {
    /// To look into a database may make an empty file beside it, and to be done with it may take that away.
    fn unless_empty(self) -> Self {
        match self {
            Self::There { bytes: 0, .. } => Self::Gone,
            mark => mark,
        }
    }

    fn of(file: &Path) -> Self {
        match std::fs::metadata(file) {
            Err(_) => Self::Gone,
            Ok(found) => {
                Self::There { bytes: found.len(), modified: found.modified().ok(), more: more(&found) }
            }
        }
    }
}

/// Device, inode, and when anything about it changed.
#[cfg(unix)]
fn more(found: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
}

#[cfg(not(unix))]
fn more(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}
