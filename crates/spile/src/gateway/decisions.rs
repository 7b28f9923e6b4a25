//! Who may do what behind the gateway, and what is recorded: from the settings to the policy and observer of each server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use anyhow::{Context, bail};
use contract::diagnostic::Diagnostic;
use gateway::{AllowedBy, RemoteProvider, SamplingObserver, SamplingRecord, SamplingStatus};
use host::{CallObserver, CallRecord, Server, ServerProvider, SystemPlatform};
use permissions::audit::{AuditLog, AuditSettings, OnAuditError, SamplingEntry};
use permissions::hooks::{CommandEnvironment, Hook, Hooks};
use permissions::modes::Mode;
use permissions::names::{Origin, Origins, SingleServer};
use permissions::rules::Rules;
use permissions::{Approver, LivePolicy, PermissionPolicy, Settings};
use servers::names;
use spile_core::{Catalog, ItemKind, Policy, Provider as _};

use super::tools::{CALL_TOOL, SIGN_IN};
use crate::audit;
use crate::print_diagnostics;

/// The settings of the gateway itself: in a file of `--config`, or in the user's own `gateway.json`.
pub(super) struct GatewaySettings {
    settings: Settings,
    pub(super) warnings: Vec<Diagnostic>,
    /// Of all files: the same text is the same settings.
    pub(super) text: String,
}

/// A settings file is written by hand.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// How long the last lines of the audit log may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

impl GatewaySettings {
    /// `own_file` is read if no file was named. `mode` is the one of the command line.
    pub(super) fn load(
        run_files: &[PathBuf],
        own_file: Option<PathBuf>,
        mode: Option<Mode>,
    ) -> anyhow::Result<Self> {
        let files: Vec<PathBuf> = match run_files {
            [] => own_file.into_iter().filter(|path| path.exists()).collect(),
            named => named.to_vec(),
        };
        let mut found: Option<(PathBuf, Settings)> = None;
        let mut warnings = Vec::new();
        let mut all_text = String::new();
        for path in files {
            let text = read_text(&path)?;
            all_text += &text;
            let (settings, more) = match Settings::parse(&path.display().to_string(), &text) {
                Ok(parsed) => parsed,
                Err(problems) => {
                    print_diagnostics(&problems);
                    bail!("`{}` is not valid", path.display());
                }
            };
            warnings.extend(more);
            if !settings.is_present {
                continue;
            }
            if let Some((first, _)) = &found {
                bail!(
                    "`{}` and `{}` both have `permissions`, `hooks` or `audit`; put them into one file",
                    first.display(),
                    path.display()
                );
            }
            found = Some((path, settings));
        }
        let mut settings = found.map(|(_, settings)| settings).unwrap_or_default();
        settings.mode = mode.unwrap_or(settings.mode);
        Ok(Self { settings, warnings, text: all_text })
    }

    pub(super) fn into_settings(self) -> Settings {
        self.settings
    }

    /// `approver` is asked where the calling client cannot be.
    pub(super) fn into_decider(
        self,
        table: Arc<GatewayTable>,
        approver: Option<Arc<dyn Approver>>,
    ) -> anyhow::Result<(Decider, Vec<Diagnostic>)> {
        let Self { settings: Settings { rules, mode, hooks, audit, .. }, mut warnings, .. } = self;
        let hooks = runnable(hooks)?;
        let log = match open_audit(audit.clone(), &table) {
            Ok(log) => log,
            Err(OpenAuditError::Named(error)) => return Err(error),
            Err(OpenAuditError::Default(error)) => {
                warnings.push(Diagnostic::warning(format!("calls are not recorded: {error:#}")));
                None
            }
        };
        let rules = RwLock::new(CurrentRules { rules: Arc::new(rules), mode, hooks: Arc::new(hooks) });
        let audit = RwLock::new(CurrentAudit { settings: audit, log });
        let decider = Decider { rules, policies: Mutex::default(), table, audit, approver };
        Ok((decider, warnings))
    }
}

fn runnable(hooks: Vec<Hook>) -> anyhow::Result<Hooks> {
    let folder = std::env::current_dir().context("cannot determine the current folder")?;
    Hooks::new(hooks, CommandEnvironment::new(folder)).map_err(anyhow::Error::msg)
}

fn read_text(path: &std::path::Path) -> anyhow::Result<String> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read `{shown}`"))?.len();
    if size > FILE_BYTES_MAX {
        bail!("`{shown}` is larger than {FILE_BYTES_MAX} bytes");
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))
}

enum OpenAuditError {
    /// The settings ask for it.
    Named(anyhow::Error),
    Default(anyhow::Error),
}

/// Calls are recorded unless there is no place for it. Only an operator who asked for the log is stopped by it.
fn open_audit(
    settings: Option<AuditSettings>,
    table: &Arc<GatewayTable>,
) -> Result<Option<Arc<AuditLog>>, OpenAuditError> {
    let is_named = settings.is_some();
    let settings = settings
        .unwrap_or_else(|| AuditSettings { on_error: OnAuditError::Drop, ..AuditSettings::default() });
    let failed = |error: anyhow::Error| match is_named {
        true => OpenAuditError::Named(error),
        false => OpenAuditError::Default(error),
    };
    let path = settings.path.clone().or_else(audit::default_path);
    let path = path.context("neither XDG_STATE_HOME nor HOME is set").map_err(failed)?;
    let opened = AuditLog::open(&path, &settings, table.clone(), Arc::new(SystemPlatform::default()));
    let opened = opened.with_context(|| format!("cannot open the audit log `{}`", path.display()));
    opened.map(Some).map_err(failed)
}

/// Makes the policy and the observer of each server.
pub(super) struct Decider {
    rules: RwLock<CurrentRules>,
    /// Of the servers that run, to be replaced when the settings change.
    policies: Mutex<Vec<DecidedServer>>,
    table: Arc<GatewayTable>,
    audit: RwLock<CurrentAudit>,
    approver: Option<Arc<dyn Approver>>,
}

/// The log that is written now, and the settings that it was opened with.
struct CurrentAudit {
    settings: Option<AuditSettings>,
    log: Option<Arc<AuditLog>>,
}

/// What the settings say now.
#[derive(Clone)]
struct CurrentRules {
    rules: Arc<Rules>,
    mode: Mode,
    hooks: Arc<Hooks>,
}

struct DecidedServer {
    server: Weak<Server>,
    policy: Weak<LivePolicy>,
    origins: Arc<dyn Origins>,
}

impl Decider {
    /// Decides by other settings from the next call on, and tells the clients that they may see other tools.
    pub(super) fn apply(&self, settings: Settings) -> anyhow::Result<()> {
        let Settings { rules, mode, hooks, audit, .. } = settings;
        let hooks = Arc::new(runnable(hooks)?);
        let applied = self.apply_audit(audit);
        if applied.is_ok() {
            *self.rules.write().unwrap_or_else(PoisonError::into_inner) =
                CurrentRules { rules: Arc::new(rules), mode, hooks };
        }
        // In any case: they look at the log, which may be another one.
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        policies.retain(|one| {
            let (Some(server), Some(policy)) = (one.server.upgrade(), one.policy.upgrade()) else {
                return false;
            };
            policy.replace(self.make(one.origins.clone()));
            server.announce_lists();
            true
        });
        applied
    }

    fn make(&self, origins: Arc<dyn Origins>) -> PermissionPolicy {
        let CurrentRules { rules, mode, hooks } =
            self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        let policy = PermissionPolicy::new(rules, mode, hooks, origins, self.approver.clone());
        match self.log() {
            Some(log) => policy.with_gate(log),
            None => policy,
        }
    }

    fn origins(&self, server: &Server, is_main: bool) -> Arc<dyn Origins> {
        match is_main {
            true => self.table.clone(),
            false => Arc::new(SingleServer(server.name.as_str().into())),
        }
    }

    pub(super) fn policy(&self, server: &Arc<Server>, is_main: bool) -> Arc<dyn Policy> {
        let origins = self.origins(server, is_main);
        // Held while it is made: settings that change meanwhile replace it.
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = Arc::new(LivePolicy::new(self.make(origins.clone())));
        policies.retain(|one| one.server.strong_count() > 0);
        let (server, weak) = (Arc::downgrade(server), Arc::downgrade(&policy));
        policies.push(DecidedServer { server, policy: weak, origins });
        policy
    }

    /// Writes into whatever log there is when a call ends.
    pub(super) fn observer(
        self: &Arc<Self>,
        server: &Server,
        is_main: bool,
    ) -> Option<Arc<dyn CallObserver>> {
        Some(Arc::new(LiveObserver { decider: self.clone(), origins: self.origins(server, is_main) }))
    }

    fn log(&self) -> Option<Arc<AuditLog>> {
        self.audit.read().unwrap_or_else(PoisonError::into_inner).log.clone()
    }

    /// Opens the log that the settings want now. Where it cannot be opened, nothing changes.
    fn apply_audit(&self, settings: Option<AuditSettings>) -> anyhow::Result<()> {
        let (before, old) = {
            let current = self.audit.read().unwrap_or_else(PoisonError::into_inner);
            (current.settings.clone(), current.log.clone())
        };
        if before == settings {
            return Ok(());
        }
        if old.as_ref().is_some_and(|old| !old.flush(FLUSH_TIMEOUT)) {
            bail!("the lines of the audit log so far cannot be written");
        }
        // Calls that end meanwhile wait. The old log is closed first: the new one may be the same file, which has one writer.
        let mut current = self.audit.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = current.log.take() {
            old.close();
        }
        match open_audit(settings.clone(), &self.table) {
            Ok(log) => {
                *current = CurrentAudit { settings, log };
                Ok(())
            }
            Err(OpenAuditError::Named(error) | OpenAuditError::Default(error)) => {
                current.log = match open_audit(before, &self.table) {
                    Ok(log) => log,
                    Err(OpenAuditError::Named(error) | OpenAuditError::Default(error)) => {
                        tracing::error!("calls are not recorded: {error:#}");
                        None
                    }
                };
                Err(error)
            }
        }
    }

    /// Waits for the last lines.
    pub(super) fn flush(&self) {
        if let Some(log) = self.log()
            && !log.flush(FLUSH_TIMEOUT)
        {
            tracing::warn!("the last lines of the audit log were not written");
        }
    }
}

struct LiveObserver {
    decider: Arc<Decider>,
    origins: Arc<dyn Origins>,
}

impl CallObserver for LiveObserver {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        // Held while it is written: a log that is replaced has all of its lines.
        let audit = self.decider.audit.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = &audit.log {
            log.record(record, &*self.origins);
        }
    }

    fn needs_call_id(&self) -> bool {
        self.decider.log().is_some()
    }
}

impl SamplingObserver for Decider {
    fn on_sampling_finished(&self, record: &SamplingRecord<'_>) {
        let audit = self.audit.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &audit.log else { return };
        let allowed = match record.allowed_by {
            Some(AllowedBy::Settings) => "the settings allow it",
            Some(AllowedBy::User) => "the user allowed it",
            Some(AllowedBy::Operator) => "an operator allowed it",
            None => "the call ended before anybody allowed it",
        };
        let decision = if record.allowed_by.is_some() { "allow" } else { "refuse" };
        let (outcome, reason) = match record.status {
            SamplingStatus::Answered => ("ok", allowed),
            SamplingStatus::Refused(reason) => ("refused", reason),
            SamplingStatus::Failed(_) => ("error", allowed),
            SamplingStatus::Cancelled => ("cancelled", allowed),
        };
        log.record_sampling(&SamplingEntry {
            server: record.server,
            principal: &record.caller.principal,
            address: record.caller.address,
            session: record.caller.session,
            call_id: record.caller.call_id,
            outcome,
            decision,
            reason,
            started_ms: record.started_ms,
            duration_ms: record.duration_ms,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
        });
    }
}

/// Which server stands behind a public name.
#[derive(Default)]
pub(super) struct GatewayTable {
    remote: RwLock<BTreeMap<String, RemoteEntry>>,
    hosted: OnceLock<BTreeMap<String, Arc<ServerProvider>>>,
}

struct RemoteEntry {
    provider: Arc<RemoteProvider>,
    /// How the server is reached.
    kind: &'static str,
}

impl GatewayTable {
    /// Set once, when the servers of this process are made.
    pub(super) fn set_hosted(&self, hosted: BTreeMap<String, Arc<ServerProvider>>) {
        let _ = self.hosted.set(hosted);
    }

    pub(super) fn is_hosted(&self, server: &str) -> bool {
        self.hosted.get().is_some_and(|hosted| hosted.contains_key(server))
    }

    /// The server of this process whose tools have the same public names as those of this one.
    pub(super) fn hosted_with_names_of(&self, server: &str) -> Option<&str> {
        let part = names::server_part(server);
        let mut hosted = self.hosted.get().into_iter().flat_map(|hosted| hosted.keys());
        hosted.find(|name| names::server_part(name) == part).map(String::as_str)
    }

    pub(super) fn has_server(&self, server: &str) -> bool {
        self.is_hosted(server) || self.read().contains_key(server)
    }

    pub(super) fn set_remote(&self, server: &str, provider: Arc<RemoteProvider>, kind: &'static str) {
        let mut remote = self.remote.write().unwrap_or_else(PoisonError::into_inner);
        remote.insert(server.to_owned(), RemoteEntry { provider, kind });
    }

    pub(super) fn remove_remote(&self, server: &str) {
        self.remote.write().unwrap_or_else(PoisonError::into_inner).remove(server);
    }

    /// Whether any server has something to read.
    pub(super) fn has_resources(&self) -> bool {
        let has = |catalog: &Catalog| !catalog.resources.is_empty() || !catalog.resource_templates.is_empty();
        let hosted = self.hosted.get().into_iter().flatten();
        self.read().values().any(|entry| has(&entry.provider.catalog()))
            || hosted.map(|(_, provider)| provider).any(|provider| has(&provider.catalog()))
    }

    pub(super) fn tool_server(&self, listed: &str) -> Option<String> {
        self.origin(ItemKind::Tool, listed).map(|origin| origin.server)
    }

    /// The server of a resource, or of a template.
    pub(super) fn resource_server(&self, uri: &str) -> Option<String> {
        let is_template =
            |catalog: &Catalog| catalog.resource_templates.iter().any(|one| one.uri_template == uri);
        let listed = self.origin(ItemKind::Resource, uri).map(|origin| origin.server);
        listed.or_else(|| {
            let remote = self.read();
            let found = remote.iter().find(|(_, entry)| is_template(&entry.provider.catalog()));
            let hosted = || self.hosted.get()?.iter().find(|(_, provider)| is_template(&provider.catalog()));
            found.map(|(name, _)| name.clone()).or_else(|| hosted().map(|(name, _)| name.clone()))
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, RemoteEntry>> {
        self.remote.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Origins for GatewayTable {
    fn origin(&self, kind: ItemKind, listed: &str) -> Option<Origin> {
        // The part of the server in the name says which one to ask.
        let part = names::server_part_of(listed);
        let is_candidate = |server: &str| part.is_none_or(|part| names::server_part(server) == part);
        let remote = self.read();
        let found = remote
            .iter()
            .filter(|(server, _)| is_candidate(server))
            .find_map(|(server, entry)| Some((server, entry.provider.own_name(kind, listed)?)));
        let hosted = self.hosted.get().into_iter().flatten().filter(|(server, _)| is_candidate(server));
        let found = found.or_else(|| {
            let mut all = hosted.map(|(server, provider)| (server, provider.own_name(kind, listed)));
            all.find_map(|(server, name)| Some((server, name?)))
        });
        found.map(|(server, name)| Origin { server: server.clone(), name })
    }

    fn runs_undecided(&self, listed: &str) -> Option<&'static str> {
        // No tool of a server has such a name here.
        match listed {
            CALL_TOOL => Some("the call behind it is decided"),
            SIGN_IN => Some("the user signs in"),
            _ => None,
        }
    }

    fn upstream(&self, server: &str) -> Option<String> {
        self.read().get(server).map(|entry| entry.kind.to_owned())
    }
}
