//! Follows the settings files while a manager runs: a server that is added, changed or removed joins or leaves, and the
//! others notice nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use file_watch::{FileChange, FileStamp, ReadStamp};

use super::server::Command;
use super::{Manager, RETRIES_UNKNOWN, ServerHandle};
use crate::config::files::ConfigDirs;
use crate::config::{Configuration, ConfiguredServer, RegisteredServers, ServerEntry};
use crate::decisions::{DecisionFile, Decisions};

/// What happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChange {
    Added(String),
    /// Its entry, its file or its approval is another one; it was started again.
    Changed(String),
    Removed(String),
    /// It has other roots, and goes on: it was told.
    RootsChanged(String),
}

/// Everything that decides how a server is started.
fn compare(handle: &ServerHandle, server: &ConfiguredServer, decisions: &Decisions) -> Difference {
    let current =
        handle.server.entry.as_ref().map(|entry| ServerEntry { roots: handle.roots.get(), ..entry.clone() });
    let is_same_otherwise = handle.server.source == server.source
        && handle.server.env_file == server.env_file
        && handle.server.disabled_in == server.disabled_in
        && handle.permission == decisions.permission(server);
    match (&current, &server.entry) {
        _ if !is_same_otherwise => Difference::Start,
        (Err(current), Err(wanted)) if *current == wanted => Difference::None,
        (Ok(current), Ok(wanted)) if current == wanted => Difference::None,
        // A server learns only when it is connected whether there are roots.
        (Ok(current), Ok(wanted)) if current.roots.is_some() && wanted.roots.is_some() => {
            let with_wanted = ServerEntry { roots: wanted.roots.clone(), ..current.clone() };
            if with_wanted == *wanted { Difference::Roots } else { Difference::Start }
        }
        (Ok(_) | Err(_), Ok(_) | Err(_)) => Difference::Start,
    }
}

/// Between a server that runs and what the settings want.
enum Difference {
    None,
    /// Only the roots: the server is told.
    Roots,
    /// It is started again.
    Start,
}

impl Manager {
    /// Starts, starts again and ends servers until they are those of the configuration. A file that cannot be read, as while
    /// someone edits it, changes nothing about its servers.
    pub fn apply(&self, configuration: &Configuration, decisions: &Decisions) -> Vec<ServerChange> {
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        let unreadable = |handle: &ServerHandle| {
            let path = &handle.server.source.path;
            configuration.problems.iter().any(|problem| problem.is_unreadable && problem.path == *path)
        };
        let wanted: BTreeMap<&str, &ConfiguredServer> =
            configuration.servers.iter().map(|server| (server.name.as_str(), server)).collect();
        let mut changes = Vec::new();
        let gone: Vec<String> = servers
            .iter()
            .filter(|(name, handle)| !wanted.contains_key(name.as_str()) && !unreadable(handle))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            servers.remove(&name).iter().for_each(stop);
            changes.push(ServerChange::Removed(name));
        }
        for (name, server) in wanted {
            let change = match servers.get(name) {
                // The file with the entry that takes precedence is being edited.
                Some(handle) if unreadable(handle) => continue,
                Some(handle) => match compare(handle, server, decisions) {
                    difference @ (Difference::None | Difference::Roots) => {
                        let retries = decisions.retries(server);
                        let followed = handle.retries.swap(retries, Ordering::Relaxed);
                        if followed != retries && followed != RETRIES_UNKNOWN {
                            send(handle, Command::LookAgain);
                        }
                        if let (Difference::Roots, Ok(entry)) = (difference, &server.entry) {
                            handle.roots.set(entry.roots.clone());
                            send(handle, Command::RootsChanged);
                            changes.push(ServerChange::RootsChanged(name.to_owned()));
                        }
                        continue;
                    }
                    Difference::Start => {
                        stop(handle);
                        ServerChange::Changed(name.to_owned())
                    }
                },
                None => ServerChange::Added(name.to_owned()),
            };
            let permission = decisions.permission(server);
            let handle = self.starter.start(server.clone(), permission);
            handle.retries.store(decisions.retries(server), Ordering::Relaxed);
            servers.insert(name.to_owned(), handle);
            changes.push(change);
        }
        changes
    }
}

/// Calls that wait for the server fail; those that run end with the connection.
fn stop(handle: &Arc<ServerHandle>) {
    send(handle, Command::Stop { is_removed: true });
}

fn send(handle: &Arc<ServerHandle>, command: Command) {
    let commands = handle.commands.clone();
    tokio::spawn(async move {
        // An error means that the task has ended.
        let _ = commands.send(command).await;
    });
}

/// The settings files and decisions of a user, read again when one of them changes.
pub struct ConfigFollower {
    dirs: ConfigDirs,
    run_files: Vec<PathBuf>,
    /// `server-decisions.json`.
    decisions: Option<PathBuf>,
    /// Servers that are in no file.
    registered: Option<Arc<RegisteredServers>>,
    registered_version: u64,
    stamps: BTreeMap<PathBuf, ReadStamp>,
    /// The files with variables that entries of projects named when they were read last.
    env_files: Vec<PathBuf>,
}

impl ConfigFollower {
    /// Knows nothing yet: the first poll reads everything.
    pub fn new(dirs: ConfigDirs, run_files: Vec<PathBuf>, decisions: Option<PathBuf>) -> Self {
        let (registered, stamps, env_files) = (None, BTreeMap::new(), Vec::new());
        Self { dirs, run_files, decisions, registered, registered_version: 0, stamps, env_files }
    }

    /// Also follows the servers that are registered while the program runs.
    #[must_use]
    pub fn with_registered(self, registered: Arc<RegisteredServers>) -> Self {
        Self { registered: Some(registered), ..self }
    }

    /// `None` if nothing changed, or if what changed cannot be used: then what runs goes on.
    pub fn poll(&mut self) -> Option<(Configuration, Decisions)> {
        let mut paths = self.dirs.paths(&self.run_files);
        paths.extend(self.decisions.iter().chain(&self.env_files).cloned());
        let now = SystemTime::now();
        let current: BTreeMap<PathBuf, FileStamp> =
            paths.into_iter().map(|path| (path.clone(), FileStamp::of_path(&path))).collect();
        let is_unchanged = |(path, stamp): (&PathBuf, &FileStamp)| {
            self.stamps.get(path).is_some_and(|read| read.compare(*stamp, now) == FileChange::Unchanged)
        };
        let registered_version = self.registered.as_ref().map_or(0, |registered| registered.version());
        if current.len() == self.stamps.len()
            && current.iter().all(is_unchanged)
            && registered_version == self.registered_version
        {
            return None;
        }
        self.registered_version = registered_version;
        // Taken before the files are read, so that a change meanwhile is one more.
        let stamps = current.into_iter().map(|(path, stamp)| (path, ReadStamp::before_read(stamp, now)));
        self.stamps = stamps.collect();
        let configuration = match self.dirs.load_with(&self.run_files, self.registered.as_deref()) {
            Ok(configuration) => configuration,
            Err(error) => {
                tracing::warn!(%error, "the settings were not read again");
                return None;
            }
        };
        let env_files =
            configuration.servers.iter().filter_map(|server| server.env_file.as_ref()?.path.clone());
        self.env_files = env_files.collect();
        let decisions = self.decisions.clone().map(|path| DecisionFile::new(path).load());
        match decisions.transpose() {
            Ok(decisions) => Some((configuration, decisions.unwrap_or_default())),
            Err(error) => {
                tracing::warn!(%error, "the settings were not read again");
                None
            }
        }
    }
}

/// Applies every change of the files to the manager, until it is dropped.
pub async fn follow(manager: &Manager, mut follower: ConfigFollower, interval: Duration) {
    loop {
        let polled = tokio::task::spawn_blocking(move || {
            let found = follower.poll();
            (follower, found)
        });
        // A panic in it is a bug; the servers go on as they are.
        let Ok((returned, found)) = polled.await else { return };
        follower = returned;
        if let Some((configuration, decisions)) = found {
            for change in manager.apply(&configuration, &decisions) {
                tracing::info!(?change, "the settings have changed");
            }
        }
        tokio::time::sleep(interval).await;
    }
}
