//! Reloads: watches the manifest, the lock file and the data of each server, compiles changes, and serves them.
//!
//! One thread polls all servers in turn, so at most one file is read for this at a time. It reads a file only if its
//! stamp (size, times, identity) changed, waits until a file that is being written has settled, and leaves a large
//! file alone for a multiple of the time that reading it takes. Sources follow their rows themselves: only a change of
//! the contract is swapped in, over the open sources where their settings are the same. Running calls finish on the
//! contract that they started with.
//!
//! A project that does not compile is never served. A change that would break callers is not served either, except by
//! `spile dev`.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use contract::Contract;
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::{Diagnostic, Severity};
use contract::humanize::pluralize;
use host::{
    ContractProvider, ProviderSet, ReloadOutcome, Server, SourceHealth, SystemPlatform, UnavailableSource,
};

use crate::lock;
use crate::project::{Compiled, MANIFEST, Project, ProjectInput, Scan, SourceFailurePolicy, Sources};

/// How often stamps are compared.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A changed file must stay the same for this long before it is read. Longer than the resolution of file times, so that
/// two changes cannot share a stamp.
const SETTLE_TIME: Duration = Duration::from_millis(40);
/// A file that keeps changing is read after this time.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);
/// After a read, data is left alone for this multiple of the time that the read took, up to the maximum.
const BACKOFF_FACTOR: u32 = 10;
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// What to do with a change that breaks callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakingChangePolicy {
    KeepOld,
    ServeNew,
}

/// The result of a change.
pub(crate) enum ReloadEvent<'a> {
    /// The change is served. `was_stale`: the previous change was not.
    Applied {
        contract: &'a Contract,
        differences: &'a [Difference],
        diagnostics: &'a [Diagnostic],
        was_stale: bool,
    },
    /// The contract is unchanged.
    Unchanged { diagnostics: &'a [Diagnostic], was_stale: bool },
    /// The project does not compile.
    Invalid { diagnostics: &'a [Diagnostic] },
    /// The change would break callers.
    Refused { differences: &'a [Difference] },
}

/// Receives every event.
pub(crate) type ReloadListener = Box<dyn Fn(&Server, &ReloadEvent<'_>) + Send>;

/// A compiled project that is served.
pub(crate) struct Build {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) provider: Arc<ContractProvider>,
    pub(crate) call_timeout_ms: Option<u64>,
    contract: Contract,
    sources: Sources,
    /// Describes everything that affects callers: equal fingerprints mean equal servers.
    fingerprint: String,
}

impl Build {
    pub(crate) fn new(compiled: Compiled, previous: Option<&Self>) -> Self {
        let Compiled { contract, backends, call_timeout_ms, sources } = compiled;
        // The sources count too: another file with the same columns is another server.
        let fingerprint = format!("{contract:?} {call_timeout_ms:?} {sources:?}");
        let (name, version) = (contract.name.clone(), contract.version.clone());
        let provider = ContractProvider::new(contract.clone(), backends, &SystemPlatform::default());
        let provider = match previous {
            Some(previous) => provider.with_cursors_from(&previous.provider),
            None => provider,
        };
        Self { name, version, provider: Arc::new(provider), call_timeout_ms, contract, sources, fingerprint }
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }
}

/// A served project, and the stamps of its files.
pub(crate) struct WatchedProject {
    path: PathBuf,
    build: Build,
    /// The data files that the last scan found.
    data_files: Vec<PathBuf>,
    stamp: ProjectStamp,
    /// A stamp that differs from `stamp`: the stamp, since when it has been the same, and since when it has differed.
    unsettled: Option<(ProjectStamp, Instant, Instant)>,
    /// Changed data is not read before this time.
    backoff_until: Option<Instant>,
    /// Whether the served contract has a manifest file. If that file disappears, the project is not served without
    /// it: the manifest may hide fields, and it may be missing only for a moment, during a save or a checkout.
    has_manifest: bool,
    source_failures: SourceFailurePolicy,
    health: SourceHealth,
    /// Whether the last change is not served.
    is_stale: bool,
}

impl WatchedProject {
    /// `stamp` is from before the scan, without the data files, which are known only after it.
    pub(crate) fn new(
        path: &Path,
        build: Build,
        data_files: Vec<PathBuf>,
        stamp: ProjectStamp,
        started: SystemTime,
    ) -> Self {
        let stamp = stamp.with_data_stamps(path, &data_files, started);
        let path = path.to_path_buf();
        Self {
            path,
            build,
            data_files,
            stamp,
            unsettled: None,
            backoff_until: None,
            has_manifest: false,
            source_failures: SourceFailurePolicy::default(),
            health: SourceHealth::default(),
            is_stale: false,
        }
    }

    /// Sets whether the project has a manifest file.
    pub(crate) fn with_manifest(self, has_manifest: bool) -> Self {
        Self { has_manifest, ..self }
    }

    /// Sets how sources that cannot be used are treated, and which ones that are now.
    pub(crate) fn with_health(self, source_failures: SourceFailurePolicy, health: SourceHealth) -> Self {
        Self { source_failures, health, ..self }
    }

    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    /// Compares stamps once, and reloads if needed. Returns whether a file has changed and not settled yet.
    fn poll(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        listener: &ReloadListener,
        now: Instant,
    ) -> bool {
        let stamp = ProjectStamp::capture(&self.path, &self.data_files);
        if stamp == self.stamp {
            self.unsettled = None;
            return false;
        }
        let (same_since, changed_since) = match &self.unsettled {
            Some((previous, same_since, changed_since)) if *previous == stamp => {
                (*same_since, *changed_since)
            }
            Some((_, _, changed_since)) => (now, *changed_since),
            None => (now, now),
        };
        let is_settled = now.duration_since(same_since) >= SETTLE_TIME
            || now.duration_since(changed_since) >= SETTLE_TIME_MAX;
        let only_data = stamp.definition == self.stamp.definition;
        if !is_settled {
            self.unsettled = Some((stamp, same_since, changed_since));
            return true;
        }
        if only_data && self.backoff_until.is_some_and(|until| now < until) {
            self.unsettled = Some((stamp, same_since, changed_since));
            return false;
        }
        self.unsettled = None;
        self.stamp = stamp;
        let started = Instant::now();
        self.reload(server, breaking, listener, only_data);
        let duration = started.elapsed();
        self.backoff_until = Some(Instant::now() + (duration * BACKOFF_FACTOR).min(BACKOFF_MAX));
        false
    }

    /// Reloads without waiting for a change.
    fn reload_now(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        listener: &ReloadListener,
    ) {
        self.stamp = ProjectStamp::capture(&self.path, &self.data_files);
        self.unsettled = None;
        self.reload(server, breaking, listener, false);
    }

    fn reload(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        listener: &ReloadListener,
        only_data: bool,
    ) {
        let started = SystemTime::now();
        let scan = Project::find(&self.path).and_then(|project| {
            if self.has_manifest && !project.has_manifest() {
                bail!("`{MANIFEST}` was removed; put it back, or restart to serve without it");
            }
            project.with_source_failures(self.source_failures).rescan(&self.build.sources)
        });
        let Scan { compiled, mut diagnostics, data_files, has_manifest, unavailable, source_count, .. } =
            match scan {
                Ok(scan) => scan,
                Err(error) => {
                    self.set_missing_files_unavailable(server);
                    return self.keep_old(server, listener, &[Diagnostic::error(crate::error_text(&error))]);
                }
            };
        if !data_files.is_empty() && data_files != self.data_files {
            self.data_files = data_files;
            self.stamp = self.stamp.clone().with_data_stamps(&self.path, &self.data_files, started);
        }
        let Some(compiled) = compiled else {
            diagnostics.retain(|one| one.severity == Severity::Error);
            self.set_missing_files_unavailable(server);
            return self.keep_old(server, listener, &diagnostics);
        };
        let health = SourceHealth { source_count, unavailable };
        let previous_health = std::mem::replace(&mut self.health, health);
        let build = Build::new(compiled, Some(&self.build));
        if build.fingerprint == self.build.fingerprint {
            self.has_manifest = has_manifest;
            server.set_source_health(self.health.clone());
            let is_new = |one: &&UnavailableSource| !previous_health.unavailable.contains(one);
            if self.health.unavailable.iter().any(|one| is_new(&one)) {
                diagnostics.retain(|one| one.code == Some("unavailable"));
                return self.keep_old(server, listener, &diagnostics);
            }
            let is_still_down =
                only_data && self.health == previous_health && !self.health.unavailable.is_empty();
            // Rows change all the time; that is not worth an event.
            if !only_data || self.is_stale && !is_still_down {
                let was_stale = std::mem::take(&mut self.is_stale);
                server.record_reload(ReloadOutcome::Unchanged, None);
                listener(server, &ReloadEvent::Unchanged { diagnostics: &diagnostics, was_stale });
            }
            return;
        }
        let differences = compare_interfaces(
            &ContractInterface::from_contract(&self.build.contract),
            &ContractInterface::from_contract(&build.contract),
        );
        // Only a manifest promises a contract. Without one, the contract follows the data.
        let is_promised = self.has_manifest || has_manifest;
        if overall_compatibility(&differences) == Compatibility::Breaking
            && is_promised
            && breaking == BreakingChangePolicy::KeepOld
        {
            self.is_stale = true;
            server.set_source_health(self.health.clone());
            server.record_reload(ReloadOutcome::Rejected, Some(breaking_summary(&differences)));
            return listener(server, &ReloadEvent::Refused { differences: &differences });
        }
        let provider_set = ProviderSet {
            version: build.version.clone(),
            providers: vec![build.provider.clone()],
            call_timeout_ms: build.call_timeout_ms,
        };
        match server.swap(provider_set) {
            Ok(()) => {
                // After the swap: a client that sees a healthy server finds the tools of all its sources.
                server.set_source_health(self.health.clone());
                let was_stale = std::mem::take(&mut self.is_stale);
                self.has_manifest = has_manifest;
                self.build = build;
                let contract = &self.build.contract;
                let (differences, diagnostics) = (&differences, &diagnostics);
                listener(server, &ReloadEvent::Applied { contract, differences, diagnostics, was_stale });
            }
            Err(error) => self.keep_old(server, listener, &[Diagnostic::error(error.to_string())]),
        }
    }

    /// For a project that does not compile: nothing more is known of its sources than before, except that files are
    /// missing.
    fn set_missing_files_unavailable(&mut self, server: &Server) {
        let file_name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_known = |known: &[UnavailableSource], name: &str| {
            known.iter().any(|one| !one.is_readable && one.name.rsplit('/').next() == Some(name))
        };
        let present: Vec<String> =
            self.data_files.iter().filter(|file| file.exists()).map(|file| file_name(file)).collect();
        self.health.unavailable.retain(|one| {
            let name = one.name.rsplit('/').next().unwrap_or(&one.name);
            !one.reason.starts_with(NOT_FOUND) || present.iter().all(|file| file != name)
        });
        let missing = self.data_files.iter().filter(|file| !file.exists()).map(|file| file_name(file));
        let new: Vec<UnavailableSource> = missing
            .filter(|name| !is_known(&self.health.unavailable, name))
            .map(|name| UnavailableSource { name, reason: NOT_FOUND.into(), is_readable: false })
            .collect();
        self.health.unavailable.extend(new);
        server.set_source_health(self.health.clone());
    }

    fn keep_old(&mut self, server: &Server, listener: &ReloadListener, diagnostics: &[Diagnostic]) {
        self.is_stale = true;
        server.record_reload(ReloadOutcome::Rejected, Some(first_diagnostic(diagnostics)));
        listener(server, &ReloadEvent::Invalid { diagnostics });
    }
}

/// Why a missing file is unavailable.
const NOT_FOUND: &str = "not found";

/// The first diagnostic in one line, with its location and the number of the others.
pub(crate) fn first_diagnostic(diagnostics: &[Diagnostic]) -> String {
    let Some(first) = diagnostics.first() else { return "there is nothing to serve".into() };
    let location = first
        .location
        .as_ref()
        .map(|location| format!("{}:{}:{}: ", location.file_name(), location.line(), location.column()));
    let more = diagnostics.len() - 1;
    let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!("{}{}{more}", location.unwrap_or_default(), first.message)
}

/// In one line: the first breaking difference, the number of the others, and what to do.
pub(crate) fn breaking_summary(differences: &[Difference]) -> String {
    let breaking: Vec<&Difference> =
        differences.iter().filter(|one| one.compatibility == Compatibility::Breaking).collect();
    let first = breaking.first().map(ToString::to_string).unwrap_or_default();
    let more = match breaking.len() {
        0 | 1 => String::new(),
        several => format!(" (and {} more)", several - 1),
    };
    format!(
        "{} would break callers: {first}{more}; restart to serve the new contract",
        pluralize(breaking.len() as u64, "change")
    )
}

/// Asks the reload thread to read all projects again now, whether their files look changed or not.
#[derive(Clone)]
pub(crate) struct ReloadRequester(SyncSender<()>);

impl ReloadRequester {
    pub(crate) fn request(&self) {
        // A full channel means that a request is pending already; a closed one, that there is nothing to reload.
        let _ = self.0.try_send(());
    }
}

/// Starts the thread that watches the projects, each for as long as its server exists.
pub(crate) fn start(
    watched: Vec<(Weak<Server>, WatchedProject)>,
    breaking: BreakingChangePolicy,
    listener: ReloadListener,
) -> ReloadRequester {
    let (sender, requests) = sync_channel(1);
    let requester = ReloadRequester(sender);
    if watched.is_empty() {
        return requester;
    }
    let mut watched = watched;
    let thread = std::thread::Builder::new().name("reload".into());
    let started = thread.spawn(move || {
        let mut is_requested = false;
        while !watched.is_empty() {
            let mut is_unsettled = false;
            watched.retain_mut(|(server, watched)| {
                let Some(server) = server.upgrade() else { return false };
                if is_requested {
                    watched.reload_now(&server, breaking, &listener);
                } else {
                    is_unsettled |= watched.poll(&server, breaking, &listener, Instant::now());
                }
                true
            });
            let pause = if is_unsettled { SETTLE_TIME / 2 } else { POLL_INTERVAL };
            is_requested = match requests.recv_timeout(pause) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(pause);
                    false
                }
            };
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start the reload thread; restart to serve changes");
    }
    requester
}

/// The log target of recoveries. It is logged wherever warnings are, because a warning came before.
pub(crate) const RECOVERED_TARGET: &str = "spile::recovered";
const RECOVERED_MESSAGE: &str = "the project on disk is served again";

/// Logs every event.
pub(crate) fn log_listener() -> ReloadListener {
    Box::new(|server, event| {
        let name = &server.name;
        match event {
            ReloadEvent::Applied { contract, differences, was_stale, .. } => {
                let (version, compatibility) =
                    (&contract.version, overall_compatibility(differences).as_str());
                if !*was_stale && compatibility == Compatibility::Breaking.as_str() {
                    tracing::warn!(%name, %version, compatibility, "reloaded; the data changed the tools, and clients were notified");
                } else if *was_stale {
                    tracing::info!(target: RECOVERED_TARGET, %name, %version, compatibility, "{RECOVERED_MESSAGE}");
                } else {
                    tracing::info!(%name, %version, compatibility, "reloaded; the new contract is served");
                }
                if contract.name != *name {
                    tracing::warn!(%name, new_name = %contract.name, "the server keeps its name until it is restarted");
                }
            }
            ReloadEvent::Unchanged { was_stale: true, .. } => {
                tracing::info!(target: RECOVERED_TARGET, %name, "{RECOVERED_MESSAGE}");
            }
            ReloadEvent::Unchanged { .. } => tracing::info!(%name, "reloaded; the contract is unchanged"),
            ReloadEvent::Invalid { diagnostics } => {
                tracing::warn!(%name, reason = %first_diagnostic(diagnostics), "the change cannot be served; the last valid contract is still served");
            }
            ReloadEvent::Refused { differences } => {
                tracing::warn!(%name, reason = %breaking_summary(differences), "the change is not served; the old contract is still served");
            }
        }
    })
}

/// The stamps of all files of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectStamp {
    definition: DefinitionStamp,
    /// Two for each data file: the file itself, and the write-ahead log of a database.
    data: Vec<FileStamp>,
}

/// The stamps of the files that define the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DefinitionStamp {
    Manifest {
        file: FileStamp,
        lock: FileStamp,
    },
    /// No manifest: the names of the data files.
    Files(Vec<PathBuf>),
    /// There is nothing to serve.
    Missing,
}

/// Distinguishes two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStamp {
    Missing,
    /// Differs from every stamp captured later.
    Uncertain,
    Present {
        bytes: u64,
        modified: Option<SystemTime>,
        identity: (u64, u64, i64, i64),
    },
}

/// A file that was modified less than this before it was read may have changed again since.
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
        // The newest rows of a database may be in its write-ahead log.
        let with_wal = |file: &PathBuf| {
            let mut wal = file.clone().into_os_string();
            wal.push("-wal");
            [FileStamp::read(file), FileStamp::read(Path::new(&wal)).missing_if_empty()]
        };
        Self { definition, data: data.iter().flat_map(with_wal).collect() }
    }

    /// Adds the stamps of data files that were read after `started`. A file that may have changed while it was read
    /// gets an uncertain stamp, so that it is read again.
    fn with_data_stamps(mut self, path: &Path, data: &[PathBuf], started: SystemTime) -> Self {
        let certain = |stamp: FileStamp| match stamp {
            FileStamp::Present { modified: Some(modified), .. } if modified + RECENT_CHANGE > started => {
                FileStamp::Uncertain
            }
            stamp => stamp,
        };
        self.data = Self::capture(path, data).data.into_iter().map(certain).collect();
        self
    }
}

impl FileStamp {
    /// Opening a database may create an empty write-ahead log, and closing it may delete that.
    fn missing_if_empty(self) -> Self {
        match self {
            Self::Present { bytes: 0, .. } => Self::Missing,
            stamp => stamp,
        }
    }

    fn read(file: &Path) -> Self {
        match std::fs::metadata(file) {
            Err(_) => Self::Missing,
            Ok(metadata) => Self::Present {
                bytes: metadata.len(),
                modified: metadata.modified().ok(),
                identity: file_identity(&metadata),
            },
        }
    }
}

/// Device, inode, and the time of the last status change.
#[cfg(unix)]
fn file_identity(metadata: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn file_identity(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}
