//! What servers of this process share: the keys that protect what clients hold, and the store for what must outlive a
//! request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::SystemPlatform;
use state::keyring::{Keyring, Reload, create_key_folder};
use state::store::{MemoryStore, OnDemandStore, SqliteStore, Store, StoreLimits};

use crate::keys::{self, KeyFileChoice};
use crate::settings;

#[derive(Clone)]
pub struct ServerState {
    pub keyring: Arc<Keyring>,
    pub store: Arc<dyn Store>,
    /// Whether the user named the keys or the store: then servers of the same name are replicas of each other. Otherwise
    /// all servers of a user have the same keys and store, and what one leaves there is for the same project only.
    pub(crate) has_replicas: bool,
    /// Whether the store was named, so that other processes may use it too.
    pub is_store_shared: bool,
}

impl ServerState {
    /// Nothing survives a restart.
    pub fn for_this_run() -> Self {
        let keyring = Arc::new(Keyring::for_this_run(&SystemPlatform::default()));
        Self { keyring, store: memory_store(), has_replicas: false, is_store_shared: false }
    }

    /// From the named files, else from the user's state folder.
    pub fn open(key_file: Option<&Path>, store_file: Option<&Path>) -> anyhow::Result<Self> {
        let state = Self::open_silently(key_file, store_file)?;
        if let Some(warning) = state.keyring.warning() {
            tracing::warn!("{warning}");
        }
        Ok(state)
    }

    /// For one run of a client command. If the key file cannot be written, only what the server issues in this run is
    /// lost with it, so there is no warning.
    pub fn open_for_client() -> anyhow::Result<Self> {
        Self::open_silently(None, None)
    }

    fn open_silently(key_file: Option<&Path>, store_file: Option<&Path>) -> anyhow::Result<Self> {
        let platform = SystemPlatform::default();
        let (keyring, has_named_keys) = match keys::choose_key_file(key_file)? {
            KeyFileChoice::Named(path) => (Keyring::open_file(&path, &platform)?, true),
            KeyFileChoice::Default(path) => (Keyring::open_default(path.as_deref(), &platform), false),
        };
        let named = match store_file {
            Some(path) => Some(path.to_owned()),
            None => settings::env_text("SPILE_STORE_FILE")?.map(PathBuf::from),
        };
        let is_store_shared = named.is_some();
        let has_replicas = has_named_keys || is_store_shared;
        let store: Arc<dyn Store> = match (named, keyring.file()) {
            // Replicas rely on a store that was named, so it must be usable.
            (Some(path), _) => Arc::new(SqliteStore::open(&path, StoreLimits::default(), &platform)?),
            (None, Some(_)) => Arc::new(OnDemandStore::new(move || open_default_store(has_replicas))),
            // What these keys encrypt cannot be read after a restart.
            (None, None) => memory_store(),
        };
        let keyring = Arc::new(keyring);
        if keyring.file().is_some() {
            follow_key_file(&keyring);
        }
        Ok(Self { keyring, store, has_replicas, is_store_shared })
    }
}

/// How long after a rotation a running server may still accept a key that has ended.
const KEY_FILE_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the key file again whenever it changes, for as long as a server uses the keys. A thread: it also serves the
/// servers on stdin and stdout, and a file on a slow disk delays no call.
fn follow_key_file(keyring: &Arc<Keyring>) {
    let keyring = Arc::downgrade(keyring);
    let follow = move || {
        while let Some(keyring) = keyring.upgrade() {
            match keyring.reload() {
                Ok(Reload::Unchanged) => {}
                Ok(Reload::Changed) => tracing::info!("reloaded the key file"),
                Err(error) => tracing::warn!("{error}; keeping the current keys"),
            }
            drop(keyring);
            std::thread::sleep(KEY_FILE_INTERVAL);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("key file".into()).spawn(follow) {
        tracing::warn!(%error, "cannot watch the key file for changes; restart to apply them");
    }
}

fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(StoreLimits::default()))
}

/// `spile/store.sqlite` in the user's state folder, or if it cannot be used a store for this run. Other processes have the
/// same keys, so without a common store an answer could be used once in each: pending elicitations then end with this
/// process, unless it has replicas, which must be able to continue its calls.
fn open_default_store(has_replicas: bool) -> Arc<dyn Store> {
    let platform = SystemPlatform::default();
    let opened = match keys::state_folder().map(|folder| folder.join("store.sqlite")) {
        None => Err(anyhow::anyhow!("neither XDG_STATE_HOME nor HOME is set, so there is no store")),
        Some(path) => create_key_folder(&path)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(SqliteStore::open(&path, StoreLimits::default(), &platform)?)),
    };
    match opened {
        Ok(store) => Arc::new(store),
        Err(error) if has_replicas => {
            tracing::warn!(
                "{error:#}; tasks do not survive a restart, and each replica accepts an answer to an elicitation once: \
                 name a store for all of them with `--store-file`"
            );
            memory_store()
        }
        Err(error) => {
            tracing::warn!("{error:#}; pending elicitations and tasks end with this process");
            Arc::new(MemoryStore::for_this_run(StoreLimits::default(), &platform))
        }
    }
}
