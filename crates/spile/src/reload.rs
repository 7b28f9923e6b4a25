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
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::{Diagnostic, Severity};
use contract::humanize::pluralize;
use host::{ContractProvider, ProviderSet, ReloadOutcome, Server, SystemPlatform};

use crate::lock;
use crate::project::{Compiled, MANIFEST, Project, ProjectInput, Scan, Sources};

/// How often files are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// What changed has to stay as it is for so long before it is read. Longer than the steps in which file systems count
/// time, so that no change hides behind another.
const SETTLE_TIME: Duration = Duration::from_millis(40);
/// A file that never comes to rest is read all the same.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);
/// Data that took so long to read is left alone so many times as long, and no longer than this.
const BACKOFF_FACTOR: u32 = 10;
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// What is done with a change that breaks callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakingChangePolicy {
    KeepOld,
    ServeNew,
}

/// What came of a change.
pub(crate) enum ReloadEvent<'a> {
    /// It is served now; what is different from before, and whether the change before it was not served.
    Applied {
        contract: &'a Contract,
        differences: &'a [Difference],
        diagnostics: &'a [Diagnostic],
        was_stale: bool,
    },
    /// It comes to what is served already.
    Unchanged { diagnostics: &'a [Diagnostic], was_stale: bool },
    /// Something is wrong with it.
    Invalid { diagnostics: &'a [Diagnostic] },
    /// It would break those who call.
    Refused { differences: &'a [Difference] },
}

/// Who wants to know.
pub(crate) type ReloadListener = Box<dyn Fn(&Server, &ReloadEvent<'_>) + Send>;

/// What is served, and what is needed to find out whether something else should be.
pub(crate) struct Build {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) provider: Arc<ContractProvider>,
    pub(crate) call_timeout_ms: Option<u64>,
    contract: Contract,
    sources: Sources,
    /// Everything that matters, in words: equal words are equal servers.
    fingerprint: String,
}

impl Build {
    pub(crate) fn new(ready: Compiled, before: Option<&Self>) -> Self {
        let Compiled { contract, backends: answers, call_timeout_ms, sources } = ready;
        // Another file may hold the same columns, and is another server.
        let fingerprint = format!("{contract:?} {call_timeout_ms:?} {sources:?}");
        let (name, version) = (contract.name.clone(), contract.version.clone());
        let provider = ContractProvider::new(contract.clone(), answers, &SystemPlatform::default());
        let provider = match before {
            Some(before) => provider.with_cursors_from(&before.provider),
            None => provider,
        };
        Self { name, version, provider: Arc::new(provider), call_timeout_ms, contract, sources, fingerprint }
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }
}

/// A project that is served, and how its files looked.
pub(crate) struct WatchedProject {
    path: PathBuf,
    build: Build,
    /// Data, as far as it is known.
    data_files: Vec<PathBuf>,
    stamp: ProjectStamp,
    /// How it looks now, if that is different, since when, and since when it has been different.
    unsettled: Option<(ProjectStamp, Instant, Instant)>,
    /// Changed data is left alone until then.
    backoff_until: Option<Instant>,
    /// Whether somebody wrote the manifest of what is served. Then nothing is served without one: it may hide what
    /// the data holds, and while it is saved or checked out it may be gone for a moment.
    has_manifest: bool,
    /// Whether the last change was not served.
    is_stale: bool,
}

impl WatchedProject {
    /// `seen` is how everything looked before it was read, but for the data, which is known only since then.
    pub(crate) fn new(
        path: &Path,
        build: Build,
        data_files: Vec<PathBuf>,
        seen: ProjectStamp,
        began: SystemTime,
    ) -> Self {
        let stamp = seen.with_data_stamps(path, &data_files, began);
        let path = path.to_path_buf();
        Self {
            path,
            build,
            data_files,
            stamp,
            unsettled: None,
            backoff_until: None,
            has_manifest: false,
            is_stale: false,
        }
    }

    /// With a manifest that somebody wrote, or without.
    pub(crate) fn with_manifest(self, is_written: bool) -> Self {
        Self { has_manifest: is_written, ..self }
    }

    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    /// Looks once; says whether something does not rest.
    fn poll(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        tell: &ReloadListener,
        now: Instant,
    ) -> bool {
        let marks = ProjectStamp::capture(&self.path, &self.data_files);
        if marks == self.stamp {
            self.unsettled = None;
            return false;
        }
        let (since, from) = match &self.unsettled {
            Some((same, since, from)) if *same == marks => (*since, *from),
            Some((_, _, from)) => (now, *from),
            None => (now, now),
        };
        let rests = now.duration_since(since) >= SETTLE_TIME || now.duration_since(from) >= SETTLE_TIME_MAX;
        let only_data = marks.definition == self.stamp.definition;
        if !rests {
            self.unsettled = Some((marks, since, from));
            return true;
        }
        if only_data && self.backoff_until.is_some_and(|until| now < until) {
            self.unsettled = Some((marks, since, from));
            return false;
        }
        self.unsettled = None;
        self.stamp = marks;
        let began = Instant::now();
        self.reload(server, breaking, tell, only_data);
        let took = began.elapsed();
        self.backoff_until = Some(Instant::now() + (took * BACKOFF_FACTOR).min(BACKOFF_MAX));
        false
    }

    fn reload(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        tell: &ReloadListener,
        only_data: bool,
    ) {
        let began = SystemTime::now();
        let looked = Project::find(&self.path).and_then(|project| {
            if self.has_manifest && !project.has_manifest() {
                bail!("`{MANIFEST}` is gone; put it back, or restart to serve without it");
            }
            project.rescan(&self.build.sources)
        });
        let Scan {
            compiled: ready, diagnostics: mut found, data_files: files, has_manifest: is_written, ..
        } = match looked {
            Ok(looked) => looked,
            Err(error) => {
                return self.keep_old(server, tell, &[Diagnostic::error(format!("{error:#}"))]);
            }
        };
        if !files.is_empty() && files != self.data_files {
            self.data_files = files;
            self.stamp = self.stamp.clone().with_data_stamps(&self.path, &self.data_files, began);
        }
        let Some(ready) = ready else {
            found.retain(|one| one.severity == Severity::Error);
            return self.keep_old(server, tell, &found);
        };
        let made = Build::new(ready, Some(&self.build));
        if made.fingerprint == self.build.fingerprint {
            self.has_manifest = is_written;
            // Rows change all the time, and nobody wants to hear of it.
            if !only_data || self.is_stale {
                let was_behind = std::mem::take(&mut self.is_stale);
                server.record_reload(ReloadOutcome::Unchanged, None);
                tell(server, &ReloadEvent::Unchanged { diagnostics: &found, was_stale: was_behind });
            }
            return;
        }
        let differences = compare_interfaces(
            &ContractInterface::from_contract(&self.build.contract),
            &ContractInterface::from_contract(&made.contract),
        );
        if overall_compatibility(&differences) == Compatibility::Breaking
            && breaking == BreakingChangePolicy::KeepOld
        {
            self.is_stale = true;
            server.record_reload(ReloadOutcome::Rejected, Some(breaking_summary(&differences)));
            return tell(server, &ReloadEvent::Refused { differences: &differences });
        }
        let served = ProviderSet {
            version: made.version.clone(),
            providers: vec![made.provider.clone()],
            call_timeout_ms: made.call_timeout_ms,
        };
        match server.swap(served) {
            Ok(()) => {
                let was_behind = std::mem::take(&mut self.is_stale);
                self.has_manifest = is_written;
                self.build = made;
                let (contract, differences, found) = (&self.build.contract, &differences, &found);
                tell(
                    server,
                    &ReloadEvent::Applied {
                        contract,
                        differences,
                        diagnostics: found,
                        was_stale: was_behind,
                    },
                );
            }
            Err(bad) => self.keep_old(server, tell, &[Diagnostic::error(bad.to_string())]),
        }
    }

    fn keep_old(&mut self, server: &Server, tell: &ReloadListener, found: &[Diagnostic]) {
        self.is_stale = true;
        server.record_reload(ReloadOutcome::Rejected, Some(first_diagnostic(found)));
        tell(server, &ReloadEvent::Invalid { diagnostics: found });
    }
}

/// In a line: what is wrong first, and where.
pub(crate) fn first_diagnostic(found: &[Diagnostic]) -> String {
    let Some(first) = found.first() else { return "nothing can be served".into() };
    let place =
        first.location.as_ref().map(|at| format!("{}:{}:{}: ", at.file_name(), at.line(), at.column()));
    let more = found.len() - 1;
    let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!("{}{}{more}", place.unwrap_or_default(), first.message)
}

/// In a line: why it breaks callers, and the way out.
pub(crate) fn breaking_summary(differences: &[Difference]) -> String {
    let breaking: Vec<&Difference> =
        differences.iter().filter(|one| one.compatibility == Compatibility::Breaking).collect();
    let first = breaking.first().map(ToString::to_string).unwrap_or_default();
    let more = match breaking.len() {
        0 | 1 => String::new(),
        several => format!(" (and {} more)", several - 1),
    };
    format!(
        "{} would break callers: {first}{more}; restart to serve it",
        pluralize(breaking.len() as u64, "change")
    )
}

/// Looks from now on, for as long as there is a server. Without a thread nothing is looked at, and that is said.
pub(crate) fn start(
    watched: Vec<(Weak<Server>, WatchedProject)>,
    breaking: BreakingChangePolicy,
    tell: ReloadListener,
) {
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
                restless |= watched.poll(&server, breaking, &tell, Instant::now());
                true
            });
            std::thread::sleep(if restless { SETTLE_TIME / 2 } else { POLL_INTERVAL });
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "changes will not be noticed; restart to serve them");
    }
}

/// Who was warned is told when that is over: this target is logged wherever warnings are.
pub(crate) const RECOVERED_TARGET: &str = "spile::all_clear";
const AS_WRITTEN: &str = "everything is served as it is written again";

/// As a log line, for whoever runs a server without looking at it.
pub(crate) fn log_listener() -> ReloadListener {
    Box::new(|server, news| {
        let name = &server.name;
        match news {
            ReloadEvent::Applied { contract, differences, was_stale: was_behind, .. } => {
                let (version, verdict) = (&contract.version, overall_compatibility(differences).as_str());
                if *was_behind {
                    tracing::info!(target: RECOVERED_TARGET, %name, %version, verdict, "{AS_WRITTEN}");
                } else {
                    tracing::info!(%name, %version, verdict, "what changed is served now");
                }
                if contract.name != *name {
                    tracing::warn!(%name, new = %contract.name, "a new name needs a restart");
                }
            }
            ReloadEvent::Unchanged { was_stale: true, .. } => {
                tracing::info!(target: RECOVERED_TARGET, %name, "{AS_WRITTEN}");
            }
            ReloadEvent::Unchanged { .. } => tracing::info!(%name, "what changed comes to the same"),
            ReloadEvent::Invalid { diagnostics: found } => {
                tracing::warn!(%name, why = %first_diagnostic(found), "what changed cannot be served; the last good contract stays");
            }
            ReloadEvent::Refused { differences } => {
                tracing::warn!(%name, why = %breaking_summary(differences), "what changed is not served; the last good contract stays");
            }
        }
    })
}

/// How files look from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectStamp {
    definition: DefinitionStamp,
    /// Two for each file.
    data: Vec<FileStamp>,
}

/// What says what is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DefinitionStamp {
    Manifest {
        file: FileStamp,
        lock: FileStamp,
    },
    /// No manifest: the names of the files.
    Files(Vec<PathBuf>),
    /// There is nothing.
    Missing,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStamp {
    Missing,
    /// Like nothing that can be seen later.
    Uncertain,
    Present {
        bytes: u64,
        modified: Option<SystemTime>,
        identity: (u64, u64, i64, i64),
    },
}

/// A file that changed within this before it was read may have changed again since.
const RECENT_CHANGE: Duration = Duration::from_millis(500);

impl ProjectStamp {
    pub(crate) fn capture(path: &Path, data: &[PathBuf]) -> Self {
        let definition = match Project::find(path) {
            Err(_) => DefinitionStamp::Missing,
            Ok(project) => match &project.input {
                ProjectInput::Manifest(file) => DefinitionStamp::Manifest {
                    file: FileStamp::read(file),
                    lock: lock::lock_path(&project).map_or(FileStamp::Missing, |lock| FileStamp::read(&lock)),
                },
                ProjectInput::Files(files) => DefinitionStamp::Files(files.clone()),
            },
        };
        // A database may keep what is new beside it.
        let beside = |file: &PathBuf| {
            let mut wal = file.clone().into_os_string();
            wal.push("-wal");
            [FileStamp::read(file), FileStamp::read(Path::new(&wal)).missing_if_empty()]
        };
        Self { definition, data: data.iter().flat_map(beside).collect() }
    }

    /// For data that was read since `began`, and whose files became known by that: it is looked at again unless it
    /// is sure that it has not changed.
    fn with_data_stamps(mut self, path: &Path, data: &[PathBuf], began: SystemTime) -> Self {
        let sure = |mark: FileStamp| match mark {
            FileStamp::Present { modified: Some(modified), .. } if modified + RECENT_CHANGE > began => {
                FileStamp::Uncertain
            }
            mark => mark,
        };
        self.data = Self::capture(path, data).data.into_iter().map(sure).collect();
        self
    }
}

impl FileStamp {
    /// To look into a database may make an empty file beside it, and to be done with it may take that away.
    fn missing_if_empty(self) -> Self {
        match self {
            Self::Present { bytes: 0, .. } => Self::Missing,
            mark => mark,
        }
    }

    fn read(file: &Path) -> Self {
        match std::fs::metadata(file) {
            Err(_) => Self::Missing,
            Ok(found) => Self::Present {
                bytes: found.len(),
                modified: found.modified().ok(),
                identity: file_identity(&found),
            },
        }
    }
}

/// Device, inode, and when anything about it changed.
#[cfg(unix)]
fn file_identity(found: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
}

#[cfg(not(unix))]
fn file_identity(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}
