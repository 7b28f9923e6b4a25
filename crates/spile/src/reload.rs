//! Reloads: watches the manifest, the lock file and the data of each server, compiles changes, and serves them.
//!
//! Each project has a thread of its own: a source that takes long to read, or never answers, delays no other server. The
//! thread reads a file only if its stamp (size, times, identity) changed, waits until a file that is being written has
//! settled, and leaves a large file alone for a multiple of the time that reading it takes. Sources follow their rows themselves: only a change of
//! the contract is swapped in, over the open sources where their settings are the same. Running calls finish on the
//! contract that they started with.
//!
//! A project that does not compile is never served. A change that would break callers is not served either, except by
//! `spile dev`.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use contract::Contract;
use contract::compatibility::{
    Compatibility, ContractInterface, Difference, compare_interfaces, overall_compatibility,
};
use contract::diagnostic::{Diagnostic, Severity};
use contract::humanize::pluralize;
use contract::manifest::Manifest;
use contract::source::{FileToWatch, SourceLocation};
use file_watch::{Debounce, FileStamp, ReadStamp, SETTLE_TIME};
use host::{ContractProvider, ProviderSet, ReloadOutcome, Server, SourceHealth, UnavailableSource};

use crate::author_folder::{self, CurrentContract, ServedContract};
use crate::lock::{self, LockState};
use crate::project::{Compiled, MANIFEST, Project, ProjectInput, Scan, SourceFailurePolicy, Sources};
use crate::server_state::ServerState;

/// How often stamps are compared.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// After a read, data is left alone for this multiple of the time that the read took, up to the maximum.
const BACKOFF_FACTOR: u32 = 10;
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A database or API that cannot be reached, or was another one than expected, is read again after a multiple of the time that it took.
const NETWORK_BACKOFF_FACTOR: u32 = 2;
const NETWORK_PAUSE_MIN: Duration = Duration::from_millis(500);
const NETWORK_PAUSE_MAX: Duration = Duration::from_secs(30);

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
    Rejected { differences: &'a [Difference] },
}

/// Receives every event.
pub(crate) type ReloadListener = Arc<dyn Fn(&Server, &ReloadEvent<'_>) + Send + Sync>;

/// A compiled project that is served.
pub(crate) struct Build {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) provider: Arc<ContractProvider>,
    pub(crate) call_timeout_ms: Option<u64>,
    /// Tools that are listed first.
    pub(crate) tool_order: Vec<String>,
    contract: Contract,
    sources: Sources,
    /// Seals the cursors that clients hold.
    pub(crate) state: ServerState,
}

impl Build {
    pub(crate) fn new(compiled: Compiled, state: &ServerState) -> Self {
        let Compiled { contract, backends, call_timeout_ms, tool_order, sources } = compiled;
        let (name, version) = (contract.name.clone(), contract.version.clone());
        let provider = Arc::new(ContractProvider::new(contract.clone(), backends, state.keyring.clone()));
        let state = state.clone();
        Self { name, version, provider, call_timeout_ms, tool_order, contract, sources, state }
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.contract
    }

    /// What author code reads.
    pub(crate) fn served_contract(&self) -> ServedContract {
        ServedContract { provider: self.provider.clone(), sources: self.sources.by_name() }
    }

    /// Whether callers would notice no difference. The sources count too: another file with the same columns is
    /// another server.
    fn is_same_as(&self, other: &Self) -> bool {
        self.contract == other.contract
            && self.call_timeout_ms == other.call_timeout_ms
            && self.tool_order == other.tool_order
            && self.sources.is_same_as(&other.sources)
    }
}

/// A served project, and the stamps of its files.
pub(crate) struct WatchedProject {
    path: PathBuf,
    build: Build,
    /// What callers were promised at the start: the lock file, or else the first build. Columns that appeared later may
    /// disappear again.
    promised: ContractInterface,
    /// Where the data is that the last scan found.
    locations: Vec<SourceLocation>,
    stamp: ProjectStamp,
    /// A change that may not be complete.
    debounce: Debounce<ProjectStamp>,
    /// Changed data is not read before this time.
    backoff_until: Option<Instant>,
    /// Whether the served contract has a manifest file. If that file disappears, the project is not served without
    /// it: the manifest may hide fields, and it may be missing only for a moment, during a save or a checkout.
    has_manifest: bool,
    source_failures: SourceFailurePolicy,
    health: SourceHealth,
    /// Whether the last change is not served.
    is_stale: bool,
    /// Whether a source asked to be read again and was not yet.
    is_suspicious: bool,
    /// Where author code finds the contract that is served.
    current_contract: Option<CurrentContract>,
}

impl WatchedProject {
    /// Where its data is.
    pub(crate) fn locations(&self) -> &[SourceLocation] {
        &self.locations
    }

    /// `stamp` is from before the scan, without the data files, which are known only after it.
    pub(crate) fn new(
        path: &Path,
        build: Build,
        locations: Vec<SourceLocation>,
        stamp: ProjectStamp,
        started: SystemTime,
    ) -> Self {
        let stamp = stamp.with_data_stamps(path, &locations, started);
        let path = path.to_path_buf();
        let promised = ContractInterface::from_contract(&build.contract);
        Self {
            path,
            build,
            promised,
            locations,
            stamp,
            debounce: Debounce::default(),
            backoff_until: None,
            has_manifest: false,
            source_failures: SourceFailurePolicy::default(),
            health: SourceHealth::default(),
            is_stale: false,
            is_suspicious: false,
            current_contract: None,
        }
    }

    /// Sets whether the project has a manifest file.
    pub(crate) fn with_manifest(self, has_manifest: bool) -> Self {
        Self { has_manifest, ..self }
    }

    /// The lock file at the start is what callers were promised.
    pub(crate) fn with_lock(self, lock_state: &LockState) -> Self {
        match lock_state.lock() {
            Some(lock) => Self { promised: lock.interface.clone(), ..self },
            None => self,
        }
    }

    /// Tells author code which contract is served.
    pub(crate) fn with_current_contract(self, current: CurrentContract) -> Self {
        Self { current_contract: Some(current), ..self }
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
        let stamp = ProjectStamp::capture(&self.path, &self.locations);
        if stamp == self.stamp {
            self.debounce.reset();
            self.look_at_network_sources(server, breaking, listener, now);
            return false;
        }
        let is_recent = stamp.is_recent(SystemTime::now());
        if !self.debounce.is_settled(&stamp, is_recent, now) {
            return true;
        }
        let only_data = stamp.definition == self.stamp.definition;
        if only_data && self.backoff_until.is_some_and(|until| now < until) {
            return false;
        }
        self.debounce.reset();
        self.stamp = if is_recent { stamp.forget_recent(SystemTime::now()) } else { stamp };
        let started = Instant::now();
        self.reload(server, breaking, listener, only_data);
        let duration = started.elapsed();
        self.backoff_until = Some(Instant::now() + (duration * BACKOFF_FACTOR).min(BACKOFF_MAX));
        false
    }

    /// Reads databases and APIs again that changed, went away or came back, which no file shows.
    fn look_at_network_sources(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        listener: &ReloadListener,
        now: Instant,
    ) {
        self.is_suspicious |= self.build.sources.take_suspicion();
        let is_unreachable = || {
            let is_remote =
                |one: &SourceLocation| matches!(one, SourceLocation::Database(_) | SourceLocation::Rest(_));
            if self.health.unavailable.is_empty() || !self.locations.iter().any(is_remote) {
                return false;
            }
            // Whether an API that is open works again, calls find out.
            let apis = self.build.sources.failing_apis();
            let mut unreadable = self.health.unavailable.iter().filter(|one| !one.is_readable);
            unreadable.any(|one| apis.iter().all(|api| api.name != one.name))
        };
        let is_wanted = self.is_suspicious || is_unreachable();
        if !is_wanted || self.backoff_until.is_some_and(|until| now < until) {
            return;
        }
        self.is_suspicious = false;
        let started = Instant::now();
        self.reload(server, breaking, listener, true);
        let pause = (started.elapsed() * NETWORK_BACKOFF_FACTOR).clamp(NETWORK_PAUSE_MIN, NETWORK_PAUSE_MAX);
        self.backoff_until = Some(Instant::now() + pause);
    }

    /// Author files are served as the manifest says now.
    fn apply_manifest(&self, manifest: Option<&Manifest>) -> Vec<Diagnostic> {
        match (&self.current_contract, manifest) {
            (Some(current), Some(manifest)) => current.apply_manifest(manifest),
            _ => Vec::new(),
        }
    }

    /// Reloads without waiting for a change.
    fn reload_now(
        &mut self,
        server: &Arc<Server>,
        breaking: BreakingChangePolicy,
        listener: &ReloadListener,
    ) {
        self.stamp = ProjectStamp::capture(&self.path, &self.locations);
        self.debounce.reset();
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
        let author_tools = author_folder::served_tools(server);
        let scan = Project::find(&self.path).and_then(|project| {
            if self.has_manifest && !project.has_manifest() {
                bail!("`{MANIFEST}` was removed; put it back, or restart to serve without it");
            }
            let project = project.with_source_failures(self.source_failures);
            let mut scan = project.rescan(&self.build.sources)?;
            scan.compare_with_lock(&project, &author_tools);
            Ok(scan)
        });
        let Scan {
            compiled,
            mut diagnostics,
            locations,
            has_manifest,
            mut unavailable,
            source_count,
            lock_state,
            manifest,
            ..
        } = match scan {
            Ok(scan) => scan,
            Err(error) => {
                self.set_missing_unavailable(server);
                return self.keep_old(server, listener, &[Diagnostic::error(crate::error_text(&error))]);
            }
        };
        if !locations.is_empty() && locations != self.locations {
            self.locations = locations;
            self.stamp = self.stamp.clone().with_data_stamps(&self.path, &self.locations, started);
        }
        let Some(compiled) = compiled else {
            diagnostics.retain(|one| one.severity == Severity::Error);
            self.set_missing_unavailable(server);
            return self.keep_old(server, listener, &diagnostics);
        };
        let build = Build::new(compiled, &self.build.state);
        // An API with declared fields is opened without a request, so that only its calls show that it does not work.
        for api in build.sources.failing_apis() {
            if unavailable.iter().all(|one| one.name != api.name) {
                let message = format!("calls of `{}` fail: {}", api.name, api.reason);
                diagnostics.push(Diagnostic::warning(message).code("unavailable"));
                unavailable.push(api);
            }
        }
        let health = SourceHealth { source_count, unavailable };
        let previous_health = std::mem::replace(&mut self.health, health);
        if build.is_same_as(&self.build) {
            if !only_data {
                diagnostics.extend(self.apply_manifest(manifest.as_ref()));
            }
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
        let interface_of =
            |contract: &Contract| ContractInterface::from_contract(contract).with_tools(&author_tools);
        let interface = interface_of(&build.contract);
        let differences = compare_interfaces(&interface_of(&self.build.contract), &interface);
        // Only a manifest promises a contract. Without one, the contract follows the data.
        let is_promised = self.has_manifest || has_manifest;
        if overall_compatibility(&differences) == Compatibility::Breaking
            && is_promised
            && breaking == BreakingChangePolicy::KeepOld
            && self.breaks_promise(&interface, &lock_state)
        {
            self.is_stale = true;
            self.set_unreadable_unavailable();
            server.set_source_health(self.health.clone());
            server.record_reload(ReloadOutcome::Rejected, Some(breaking_summary(&differences)));
            return listener(server, &ReloadEvent::Rejected { differences: &differences });
        }
        let provider_set = ProviderSet {
            version: build.version.clone(),
            providers: vec![build.provider.clone()],
            call_timeout_ms: build.call_timeout_ms,
            tool_order: build.tool_order.clone(),
        };
        // Before the swap: author files are shown to roles as the new manifest says.
        if let Some(current) = &self.current_contract {
            current.set(build.served_contract());
        }
        server.swap(provider_set);
        diagnostics.extend(self.apply_manifest(manifest.as_ref()));
        // After the swap: a client that sees a healthy server finds the tools of all its sources.
        server.set_source_health(self.health.clone());
        let was_stale = std::mem::take(&mut self.is_stale);
        self.has_manifest = has_manifest;
        self.build = build;
        let contract = &self.build.contract;
        let (differences, diagnostics) = (&differences, &diagnostics);
        listener(server, &ReloadEvent::Applied { contract, differences, diagnostics, was_stale });
    }

    /// Whether a contract breaks what callers were promised at the start, or what the lock file promises now. What came
    /// after the start, such as a column that somebody added, was no promise.
    fn breaks_promise(&self, interface: &ContractInterface, lock_state: &LockState) -> bool {
        // What a role loses, it loses at once: a right that is taken away is not a promise to be kept.
        let is_breaking = |differences: &[Difference]| {
            differences.iter().any(|one| one.compatibility == Compatibility::Breaking && !one.is_of_role())
        };
        let breaks_lock = match lock_state {
            LockState::Locked { differences, .. } => is_breaking(differences),
            LockState::Unlocked | LockState::Unreadable(_) => false,
        };
        breaks_lock || is_breaking(&compare_interfaces(&self.promised, interface))
    }

    /// For a change that is not served: sources that the served contract cannot read any more.
    fn set_unreadable_unavailable(&mut self) {
        for found in self.build.sources.unreadable(&self.build.contract) {
            if !self.health.unavailable.iter().any(|one| one.name == found.name && !one.is_readable) {
                self.health.unavailable.push(found);
            }
        }
    }

    /// For a project that does not compile: nothing more is known of its sources than before, except that some are
    /// missing.
    fn set_missing_unavailable(&mut self, server: &Server) {
        let name = |location: &SourceLocation| location.short_name().into_owned();
        let is_known = |known: &[UnavailableSource], name: &str| {
            known.iter().any(|one| !one.is_readable && one.name.rsplit('/').next() == Some(name))
        };
        let (missing, present): (Vec<&SourceLocation>, Vec<&SourceLocation>) =
            self.locations.iter().partition(|location| location.is_missing());
        let present: Vec<String> = present.into_iter().map(name).collect();
        self.health.unavailable.retain(|one| {
            let name = one.name.rsplit('/').next().unwrap_or(&one.name);
            !one.reason.starts_with(NOT_FOUND) || present.iter().all(|file| file != name)
        });
        let new: Vec<UnavailableSource> = missing
            .into_iter()
            .map(name)
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

/// Asks for all projects to be read again now, whether their files look changed or not.
#[derive(Clone)]
pub(crate) struct ReloadRequester(Vec<SyncSender<()>>);

impl ReloadRequester {
    pub(crate) fn request(&self) {
        for project in &self.0 {
            // A full channel means that a request is pending already; a closed one, that there is nothing to reload.
            let _ = project.try_send(());
        }
    }
}

/// Starts a thread for each project, which watches it for as long as its server exists.
pub(crate) fn start(
    watched: Vec<(Weak<Server>, WatchedProject)>,
    breaking: BreakingChangePolicy,
    listener: &ReloadListener,
) -> ReloadRequester {
    let mut senders = Vec::with_capacity(watched.len());
    for (server, project) in watched {
        let (sender, requests) = sync_channel(1);
        senders.push(sender);
        let listener = Arc::clone(listener);
        let thread = std::thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || watch(project, &server, &requests, breaking, &listener));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a reload thread; restart to serve changes");
        }
    }
    ReloadRequester(senders)
}

/// Watches one project.
fn watch(
    mut project: WatchedProject,
    server: &Weak<Server>,
    requests: &Receiver<()>,
    breaking: BreakingChangePolicy,
    listener: &ReloadListener,
) {
    let mut is_requested = false;
    while let Some(server) = server.upgrade() {
        let is_unsettled = if is_requested {
            project.reload_now(&server, breaking, listener);
            false
        } else {
            project.poll(&server, breaking, listener, Instant::now())
        };
        drop(server);
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
}

/// The log target of recoveries. It is logged wherever warnings are, because a warning came before.
pub(crate) const RECOVERED_TARGET: &str = "spile::recovered";
const RECOVERED_MESSAGE: &str = "the project on disk is served again";

/// Logs every event.
pub(crate) fn log_listener() -> ReloadListener {
    Arc::new(|server, event| {
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
                tracing::warn!(%name, reason = %first_diagnostic(diagnostics), "change rejected, because it cannot be served; still serving the previous contract");
            }
            ReloadEvent::Rejected { differences } => {
                tracing::warn!(%name, reason = %breaking_summary(differences), "change rejected, because it breaks callers; still serving the previous contract");
            }
        }
    })
}

/// The stamps of all files of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectStamp {
    definition: DefinitionStamp,
    /// Of the files that show a change of the data.
    data: Vec<KnownStamp>,
}

/// `None` differs from every stamp that is captured later: the file may have changed while it was read.
type KnownStamp = Option<FileStamp>;

/// The stamps of the files that define the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DefinitionStamp {
    Manifest {
        file: KnownStamp,
        lock: KnownStamp,
    },
    /// No manifest: the names of the data files.
    Files(Vec<PathBuf>),
    /// There is nothing to serve.
    Missing,
}

impl ProjectStamp {
    pub(crate) fn capture(path: &Path, locations: &[SourceLocation]) -> Self {
        let definition = match Project::find(path) {
            Err(_) => DefinitionStamp::Missing,
            Ok(project) => match &project.input {
                ProjectInput::Manifest(file) => DefinitionStamp::Manifest {
                    file: Some(FileStamp::of_path(file)),
                    lock: Some(
                        lock::lock_path(&project)
                            .map_or(FileStamp::Missing, |lock| FileStamp::of_path(&lock)),
                    ),
                },
                ProjectInput::Files(files) => DefinitionStamp::Files(files.clone()),
                ProjectInput::Database(_) => DefinitionStamp::Files(Vec::new()),
            },
        };
        let files = locations.iter().flat_map(SourceLocation::files_to_watch);
        Self { definition, data: files.map(|file| Some(watched_stamp(&file))).collect() }
    }

    /// Adds the stamps of data files that were read after `started`. A file that may have changed while it was read
    /// gets no stamp, so that it is read again.
    fn with_data_stamps(mut self, path: &Path, locations: &[SourceLocation], started: SystemTime) -> Self {
        let captured = Self::capture(path, locations).data;
        let now = SystemTime::now();
        let is_certain = |stamp: &FileStamp| ReadStamp::after_read(*stamp, started, now).is_certain();
        self.data = captured.into_iter().map(|stamp| stamp.filter(is_certain)).collect();
        self
    }

    /// Whether a file could change now and keep its stamp.
    fn is_recent(&self, now: SystemTime) -> bool {
        let definition = match &self.definition {
            DefinitionStamp::Manifest { file, lock } => [*file, *lock],
            DefinitionStamp::Files(_) | DefinitionStamp::Missing => [None, None],
        };
        definition.iter().chain(&self.data).flatten().any(|stamp| stamp.is_recent(now, now))
    }

    /// For files that are read although they keep changing: they are read again.
    fn forget_recent(mut self, now: SystemTime) -> Self {
        let forget = |stamp: &mut KnownStamp| *stamp = stamp.filter(|stamp| !stamp.is_recent(now, now));
        if let DefinitionStamp::Manifest { file, lock } = &mut self.definition {
            [file, lock].into_iter().for_each(forget);
        }
        self.data.iter_mut().for_each(forget);
        self
    }
}

fn watched_stamp(file: &FileToWatch) -> FileStamp {
    match FileStamp::of_path(&file.path) {
        stamp if file.empty_is_missing && stamp.bytes() == 0 => FileStamp::Missing,
        stamp => stamp,
    }
}
