//! Notices changes of author code, compiles what changed and serves it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use script::{Bundle, BundleOptions, ScriptProvider};

/// Short enough that a saved tool is served when the author looks at the client again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Folders with very many files are looked at less often.
const COST_FACTOR: u32 = 20;
/// How many files are looked at.
const FILES_MAX: usize = 5_000;

/// A thread that follows the files of a folder. It ends when this is dropped, or the provider.
pub(super) struct ScriptWatch {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Path, size and time of every file that the tools may consist of.
type Stamps = Vec<(PathBuf, u64, SystemTime)>;

impl ScriptWatch {
    pub(super) fn start(
        root: PathBuf,
        options: BundleOptions,
        bundle: Bundle,
        provider: &Arc<ScriptProvider>,
    ) -> Option<Self> {
        let provider: Weak<ScriptProvider> = Arc::downgrade(provider);
        let (stop, stopped) = sync_channel(1);
        let mut stamps = stamps(&root);
        let mut bundle = bundle;
        let run = move || {
            let mut wait = POLL_INTERVAL;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                let started = std::time::Instant::now();
                let now = self::stamps(&root);
                if now != stamps {
                    let Some(provider) = provider.upgrade() else { return };
                    stamps = now;
                    bundle = bundle.rebuild(&root, &options);
                    let report = provider.reload(&bundle);
                    tracing::info!(
                        added = ?report.added,
                        removed = ?report.removed,
                        changed = ?[report.changed_definition, report.changed_code].concat(),
                        "reloaded the tools"
                    );
                    for error in bundle.errors().chain(&bundle.warnings) {
                        tracing::warn!("{error}");
                    }
                }
                wait = POLL_INTERVAL.max(started.elapsed() * COST_FACTOR);
            }
        };
        let thread = std::thread::Builder::new().name("tools-watch".into()).spawn(run);
        let thread = thread.map_err(|error| tracing::warn!(%error, "changes of tools are not noticed"));
        Some(Self { stop: Some(stop), thread: Some(thread.ok()?) })
    }
}

impl Drop for ScriptWatch {
    fn drop(&mut self) {
        // Dropping the sender wakes the thread.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

/// Of everything in the folder that could be imported; packages by their lock files only.
fn stamps(root: &Path) -> Stamps {
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
                found.push((path, metadata.len(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
    }
    found.sort();
    found
}

fn is_source(name: &str) -> bool {
    [".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json"].iter().any(|extension| name.ends_with(extension))
}
