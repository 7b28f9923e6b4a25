//! Notices changes of author code, compiles what changed and serves it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use contract::compatibility::{Compatibility, ContractInterface, Difference, compare_interfaces};
use contract::lock::Lock;
use file_watch::{Debounce, FileStamp, PollThread};
use host::Server;
use script::{Bundle, BundleOptions, ReloadReport, ScriptProvider};
use spile_core::{ItemKind, Provider as _, Tool};

use super::SCRIPT_PROVIDER;

/// Short enough that a saved tool is served when the author looks at the client again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How many files are looked at.
const FILES_MAX: usize = 5_000;

/// The stamp of every file that the tools may consist of.
type Stamps = Vec<(PathBuf, FileStamp)>;

/// Follows the files of a folder until the thread or the provider is dropped.
pub(super) fn watch_scripts(
    root: PathBuf,
    options: BundleOptions,
    mut bundle: Bundle,
    provider: &Arc<ScriptProvider>,
    server: &Arc<Server>,
    promised: PromisedTools,
    listener: CodeListener,
) -> Option<PollThread> {
    let provider: Weak<ScriptProvider> = Arc::downgrade(provider);
    let server = Arc::downgrade(server);
    let mut seen = forget_recent(capture_stamps(&root), SystemTime::now());
    let mut debounce = Debounce::default();
    let mut problems = problems_of(&bundle);
    let poll = move |now| {
        let Some(provider) = provider.upgrade() else { return ControlFlow::Break(()) };
        let stamps = capture_stamps(&root);
        if stamps == seen {
            debounce.reset();
        } else {
            bundle.rebuild(&root, &options);
            let system_now = SystemTime::now();
            let is_recent = stamps.iter().any(|(_, stamp)| stamp.is_recent(system_now, system_now));
            // A tool that is gone or broken may be half saved. Everything else is served at once.
            if loses_tools(&provider, &bundle) && !debounce.is_settled(&stamps, is_recent, now) {
                return ControlFlow::Continue(POLL_INTERVAL);
            }
            debounce.reset();
            seen = forget_recent(stamps, system_now);
            match promised.broken_by(&bundle) {
                None => {
                    let mut report = provider.reload(&bundle);
                    if let Some(server) = server.upgrade() {
                        leave_out_unserved(&mut report, &server);
                    }
                    listener(&CodeEvent::Reloaded(&report));
                }
                Some(difference) => listener(&CodeEvent::Rejected(&difference)),
            }
            // The same files may be read twice: nobody wants to be told twice.
            let found = problems_of(&bundle);
            if found != problems {
                found.iter().for_each(|problem| listener(&CodeEvent::Problem(problem)));
                problems = found;
            }
        }
        ControlFlow::Continue(POLL_INTERVAL)
    };
    PollThread::start("tools-watch", POLL_INTERVAL, poll)
        .map_err(|error| tracing::warn!(%error, "changes of tools are not noticed"))
        .ok()
}

/// What callers of the tools rely on while they are served.
#[derive(Clone, Default)]
pub(crate) struct PromisedTools(Option<ContractInterface>);

impl PromisedTools {
    /// Nothing: every change is served.
    pub(crate) const NONE: Self = Self(None);

    /// What the lock file says of the tools of this folder, and for tools that are not in it what they are now.
    pub(crate) fn new<'t>(lock: Option<&Lock>, tools: impl Iterator<Item = &'t Tool>) -> Self {
        let mut interface = ContractInterface::default().with_tools(tools);
        for (name, tool) in &mut interface.tools {
            if let Some(locked) = lock.and_then(|lock| lock.interface.tools.get(name)) {
                *tool = locked.clone();
            }
        }
        Self(Some(interface))
    }

    /// The first difference that would break callers.
    pub(super) fn broken_by(&self, bundle: &Bundle) -> Option<Difference> {
        let tools = bundle.served().map(|tool| &tool.definition);
        let offered = ContractInterface::default().with_tools(tools);
        let differences = compare_interfaces(self.0.as_ref()?, &offered);
        differences.into_iter().find(|one| one.compatibility == Compatibility::Breaking)
    }
}

/// A tool whose name another provider has is not served; the log says so already.
fn leave_out_unserved(report: &mut ReloadReport, server: &Server) {
    let unserved = server.unserved_items();
    let is_served = |name: &String| {
        !unserved.iter().any(|item| {
            &*item.provider == SCRIPT_PROVIDER && item.kind == ItemKind::Tool && item.name == *name
        })
    };
    for names in [&mut report.added, &mut report.changed_code, &mut report.changed_definition] {
        names.retain(is_served);
    }
}

fn problems_of(bundle: &Bundle) -> Vec<String> {
    bundle.errors().chain(&bundle.warnings).map(ToString::to_string).collect()
}

/// What happens to code while it is served.
pub(crate) enum CodeEvent<'a> {
    Reloaded(&'a ReloadReport),
    /// Callers rely on the old tools, which are still served.
    Rejected(&'a Difference),
    /// A file that cannot be served, or a warning, with the line it is about.
    Problem(&'a str),
    /// A handler failed.
    Failed {
        name: &'a str,
        diagnostic: &'a script::Diagnostic,
    },
}

/// Receives every event.
pub(crate) type CodeListener = Arc<dyn Fn(&CodeEvent<'_>) + Send + Sync>;

/// Writes events to the log.
pub(crate) fn log_code_event(event: &CodeEvent<'_>) {
    match event {
        CodeEvent::Reloaded(report) => {
            let changed = [report.changed_definition.as_slice(), &report.changed_code].concat();
            if !report.added.is_empty() || !report.removed.is_empty() || !changed.is_empty() {
                tracing::info!(added = ?report.added, removed = ?report.removed, ?changed, "reloaded the tools");
            }
        }
        CodeEvent::Rejected(difference) => tracing::warn!(
            "the changed tools are not served, because callers rely on the old ones: {difference}; run `spile \
             compile` and restart to serve them"
        ),
        CodeEvent::Problem(problem) => tracing::warn!("{problem}"),
        CodeEvent::Failed { name, diagnostic } => {
            let (at, reason) = (diagnostic.location(), &diagnostic.message);
            tracing::warn!(tool = name, at, reason, "a script failed");
        }
    }
}

/// Passes failures of running code on as events.
pub(super) struct FailureSink(pub(super) CodeListener);

impl script::DiagnosticSink for FailureSink {
    fn report(&self, name: &str, diagnostic: &script::Diagnostic) {
        (self.0)(&CodeEvent::Failed { name, diagnostic });
    }
}

/// Whether a tool that is served is not in the bundle.
fn loses_tools(provider: &ScriptProvider, bundle: &Bundle) -> bool {
    let is_left = |name: &str| bundle.served().any(|tool| tool.definition.name == name);
    provider.catalog().tools.iter().any(|tool| !is_left(&tool.name))
}

/// A file that was written just now may be written again without another stamp: it counts as missing, so that it is
/// read once more.
fn forget_recent(mut stamps: Stamps, now: SystemTime) -> Stamps {
    for (_, stamp) in &mut stamps {
        if stamp.is_recent(now, now) {
            *stamp = FileStamp::Missing;
        }
    }
    stamps
}

/// Of everything in the folder that could be imported; packages by their lock files only.
fn capture_stamps(root: &Path) -> Stamps {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == "node_modules" || found.len() >= FILES_MAX {
                continue;
            }
            // A link to a folder is not followed: it may lead back here.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if is_source(&name) {
                let stamp = FileStamp::of_path(&path);
                found.push((path, stamp));
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn is_source(name: &str) -> bool {
    [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json"].iter().any(|extension| name.ends_with(extension))
}
