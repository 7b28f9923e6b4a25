//! Notices changes of author code, compiles what changed and serves it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use contract::compatibility::{Compatibility, ContractInterface, Difference, compare_interfaces};
use contract::lock::Lock;
use file_watch::{FileStamp, PollThread};
use script::{Bundle, BundleOptions, ReloadReport, ScriptProvider};
use spile_core::Tool;

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
    promised: PromisedTools,
) -> Option<PollThread> {
    let provider: Weak<ScriptProvider> = Arc::downgrade(provider);
    let mut seen = capture_stamps(&root, SystemTime::now());
    let mut problems = problems_of(&bundle);
    let poll = move |_| {
        let Some(provider) = provider.upgrade() else { return ControlFlow::Break(()) };
        let now = SystemTime::now();
        let stamps = capture_stamps(&root, now);
        if stamps != seen {
            seen = stamps;
            bundle.rebuild(&root, &options);
            match promised.broken_by(&bundle) {
                None => log_changes(&provider.reload(&bundle)),
                Some(difference) => tracing::warn!(
                    "the changed tools are not served, because callers rely on the old ones: {difference}; \
                     run `spile compile` and restart to serve them"
                ),
            }
            // The same files may be read twice: nobody wants to be told twice.
            let found = problems_of(&bundle);
            if found != problems {
                found.iter().for_each(|problem| tracing::warn!("{problem}"));
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
#[derive(Default)]
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
    fn broken_by(&self, bundle: &Bundle) -> Option<Difference> {
        let tools = bundle.served().map(|tool| &tool.definition);
        let offered = ContractInterface::default().with_tools(tools);
        let differences = compare_interfaces(self.0.as_ref()?, &offered);
        differences.into_iter().find(|one| one.compatibility == Compatibility::Breaking)
    }
}

fn problems_of(bundle: &Bundle) -> Vec<String> {
    bundle.errors().chain(&bundle.warnings).map(ToString::to_string).collect()
}

fn log_changes(report: &ReloadReport) {
    let changed = [report.changed_definition.as_slice(), &report.changed_code].concat();
    if !report.added.is_empty() || !report.removed.is_empty() || !changed.is_empty() {
        tracing::info!(added = ?report.added, removed = ?report.removed, ?changed, "reloaded the tools");
    }
}

/// Of everything in the folder that could be imported; packages by their lock files only. A file that was written
/// just now may be written again without another stamp: it counts as missing, so that it is read once more.
fn capture_stamps(root: &Path, now: SystemTime) -> Stamps {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == "node_modules" || found.len() >= FILES_MAX {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(path);
            } else if is_source(&name) {
                let stamp = FileStamp::of_metadata(&metadata);
                found.push((path, if stamp.is_recent(now, now) { FileStamp::Missing } else { stamp }));
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn is_source(name: &str) -> bool {
    [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json"].iter().any(|extension| name.ends_with(extension))
}
