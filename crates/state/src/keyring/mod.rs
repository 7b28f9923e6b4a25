//! The keys that protect what clients and the store hold for the server, and the file that they come from.
//!
//! All processes with the same file accept each other's sealed texts, also after a restart. Keys rotate with an
//! overlap: the newest seals, older ones still open until their end. The library reads no clock and no environment;
//! the caller says which file, and calls [`Keyring::reload`] now and then. ADR 0041 has the reasons.

mod file;
mod format;
mod seal;
mod subkeys;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use file_watch::FileStamp;
use ring::hmac;
use spile_core::Platform;

use crate::private_file;
use file::Created;
use format::{KeyFileContent, StoredKey};
use seal::Sealed;
use subkeys::Subkeys;

pub use file::KeyFileError;
pub use format::{FILE_BYTES_MAX, FormatError, KEYS_MAX, KeyId};
pub use seal::{OpenError, digest_parts};
pub use subkeys::Purpose;

/// How long the keys before a rotation are accepted unless the caller says otherwise: as long as a session lasts.
pub const OVERLAP_MS_DEFAULT: u64 = 8 * 60 * 60 * 1000;

/// Where the keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// This file, which existed.
    File(PathBuf),
    /// This file, which this process created.
    NewFile(PathBuf),
    /// Made for this run: no other process, and no later one, accepts what they seal.
    ThisRun,
}

/// What [`Keyring::reload`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    Unchanged,
    Changed,
}

/// One key, without its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: KeyId,
    pub created_ms: u64,
    /// No longer accepted from this time on.
    pub accept_until_ms: Option<u64>,
}

/// The keys of a server. Share it in an `Arc`.
pub struct Keyring {
    origin: KeySource,
    warning: Option<String>,
    /// Read once for each text that is sealed or opened.
    keys: RwLock<KeySet>,
    /// Counts the changes of `keys`.
    generation: AtomicU64,
    /// The stamp of the file that was read last, usable or not. Locked while the keys change.
    last_read: Mutex<FileStamp>,
}

/// An opened text, and when its key ends.
pub struct Opened {
    pub payload: Vec<u8>,
    pub key_accept_until_ms: Option<u64>,
}

struct KeySet {
    /// Newest first; never empty.
    keys: Vec<LoadedKey>,
    name_key: hmac::Key,
    /// What they were derived from.
    content: KeyFileContent,
}

struct LoadedKey {
    info: KeyInfo,
    subkeys: Subkeys,
}

/// `$XDG_STATE_HOME/spile/keys`, or `~/.local/state/spile/keys`. `None` if both variables are unset.
pub fn default_key_file(xdg_state_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    // XDG Base Directory Specification: ignore a path that is not absolute.
    let absolute = |path: Option<&OsStr>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(xdg_state_home).or_else(|| Some(absolute(home)?.join(".local/state")))?;
    Some(state.join("spile").join("keys"))
}

/// Creates the folder of a key file and those above it that are missing, for this user only.
pub fn create_key_folder(path: &Path) -> Result<(), KeyFileError> {
    private_file::create_dir(private_file::parent(path)).map_err(|error| KeyFileError::Io {
        path: path.to_owned(),
        action: "create the folder of",
        error,
    })
}

impl Keyring {
    /// Keys for this run only.
    pub fn for_this_run(platform: &dyn Platform) -> Self {
        Self::new(KeySource::ThisRun, KeyFileContent::generate(platform), FileStamp::Missing)
    }

    /// The keys in a file that the user named. Creates it if it is missing, but not its folder. A file that cannot be
    /// used is an error: other replicas rely on it.
    pub fn open_file(path: &Path, platform: &dyn Platform) -> Result<Self, KeyFileError> {
        let (content, stamp, created) = file::read_or_create(path, platform)?;
        let origin = match created {
            Created::Now => KeySource::NewFile(path.to_owned()),
            Created::Before => KeySource::File(path.to_owned()),
        };
        Ok(Self::new(origin, content, stamp))
    }

    /// The keys in a file that must exist.
    pub fn open_existing(path: &Path) -> Result<Self, KeyFileError> {
        let (content, stamp) = file::read(path)?;
        Ok(Self::new(KeySource::File(path.to_owned()), content, stamp))
    }

    /// The keys in the default file, which is created with its folder if it is missing. Where that does not work, the
    /// keys are for this run and [`Self::warning`] says why: the user did not name the file, so a server starts without it.
    pub fn open_default(path: Option<&Path>, platform: &dyn Platform) -> Self {
        let reason = match path {
            None => "neither XDG_STATE_HOME nor HOME is set".to_owned(),
            Some(path) => match create_key_folder(path).and_then(|()| Self::open_file(path, platform)) {
                Ok(keyring) => return keyring,
                Err(error) => error.to_string(),
            },
        };
        let warning = format!(
            "using keys for this run only: {reason}. Sessions, cursors and open questions end with this process; name a \
             file with --key-file or SPILE_KEY_FILE to keep them"
        );
        Self { warning: Some(warning), ..Self::for_this_run(platform) }
    }

    fn new(origin: KeySource, content: KeyFileContent, stamp: FileStamp) -> Self {
        let keys = KeySet::new(content);
        Self {
            origin,
            warning: None,
            keys: RwLock::new(keys),
            generation: AtomicU64::new(0),
            last_read: Mutex::new(stamp),
        }
    }

    /// The key file; `None` for keys of this run.
    pub fn file(&self) -> Option<&Path> {
        match &self.origin {
            KeySource::File(path) | KeySource::NewFile(path) => Some(path),
            KeySource::ThisRun => None,
        }
    }

    pub fn origin(&self) -> &KeySource {
        &self.origin
    }

    /// What the user should know about the origin of the keys.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Reads the file again if it has changed. If it cannot be used, the keys stay as they are, and the error is
    /// returned once for each state of the file.
    pub fn reload(&self) -> Result<Reload, KeyFileError> {
        let Some(path) = self.file() else { return Ok(Reload::Unchanged) };
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::of_path(path);
        if stamp == *last_read {
            return Ok(Reload::Unchanged);
        }
        *last_read = stamp;
        let (content, stamp) = file::read(path)?;
        *last_read = stamp;
        self.replace_keys(&mut self.write(), content);
        Ok(Reload::Changed)
    }

    /// Adds a key, which seals from now on. The others are accepted for `overlap_ms` more; give the longest lifetime of
    /// anything that they sealed, or 0 if a key has become known.
    pub fn rotate(&self, overlap_ms: u64, platform: &dyn Platform) -> Result<KeyId, KeyFileError> {
        match self.file() {
            Some(path) => {
                let id = file::rotate(path, overlap_ms, platform)?;
                self.reload()?;
                Ok(id)
            }
            None => {
                let mut keys = self.write();
                let mut content = keys.content.clone();
                let id = content
                    .rotate(overlap_ms, platform)
                    .map_err(|_| KeyFileError::TooManyKeys { path: PathBuf::from("(keys of this run)") })?;
                self.replace_keys(&mut keys, content);
                Ok(id)
            }
        }
    }

    /// Changes with the keys. What was opened in one generation opens for as long as that lasts and its key is accepted.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// All keys, newest first.
    pub fn keys(&self) -> Vec<KeyInfo> {
        self.read().keys.iter().map(|key| key.info).collect()
    }

    /// Encrypts and authenticates `payload` with the newest key. It opens only for the same purpose and binding.
    pub fn seal(&self, purpose: Purpose, binding: &[u8], payload: &[u8], platform: &dyn Platform) -> String {
        seal::to_text(&self.seal_bytes(purpose, binding, payload, platform))
    }

    /// As [`Self::seal`], for what is not sent as text.
    pub fn seal_bytes(
        &self,
        purpose: Purpose,
        binding: &[u8],
        payload: &[u8],
        platform: &dyn Platform,
    ) -> Vec<u8> {
        let keys = self.read();
        let key = &keys.keys[0];
        seal::seal(key.info.id, key.subkeys.get(purpose), binding, payload, platform)
    }

    /// Opens a sealed text. One with an unknown key makes the keyring look whether its file has changed: another
    /// process may have rotated the keys.
    pub fn open(
        &self,
        purpose: Purpose,
        binding: &[u8],
        sealed: &str,
        now_ms: u64,
    ) -> Result<Vec<u8>, OpenError> {
        self.open_bytes(purpose, binding, seal::from_text(sealed)?, now_ms)
    }

    /// As [`Self::open`], for what [`Self::seal_bytes`] returned.
    pub fn open_bytes(
        &self,
        purpose: Purpose,
        binding: &[u8],
        sealed: Vec<u8>,
        now_ms: u64,
    ) -> Result<Vec<u8>, OpenError> {
        self.open_sealed(purpose, binding, sealed, now_ms).map(|opened| opened.payload)
    }

    /// As [`Self::open`], for a caller that remembers what it opened.
    pub fn open_to_remember(
        &self,
        purpose: Purpose,
        binding: &[u8],
        sealed: &str,
        now_ms: u64,
    ) -> Result<Opened, OpenError> {
        self.open_sealed(purpose, binding, seal::from_text(sealed)?, now_ms)
    }

    fn open_sealed(
        &self,
        purpose: Purpose,
        binding: &[u8],
        sealed: Vec<u8>,
        now_ms: u64,
    ) -> Result<Opened, OpenError> {
        let sealed = Sealed::parse(sealed)?;
        let mut keys = self.read();
        if !keys.contains(sealed.key_id) {
            drop(keys);
            if let Err(error) = self.reload() {
                tracing::error!(%error, "the key file has changed and cannot be used; the keys stay as they were");
            }
            keys = self.read();
        }
        let key = keys.find(sealed.key_id).ok_or(OpenError::UnknownKey(sealed.key_id))?;
        let key_accept_until_ms = key.info.accept_until_ms;
        if key_accept_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            return Err(OpenError::KeyExpired(sealed.key_id));
        }
        let payload = sealed.open(key.subkeys.get(purpose), binding)?;
        Ok(Opened { payload, key_accept_until_ms })
    }

    /// Replaces a name that must not be readable in the store. The same for the same parts, also after a rotation:
    /// otherwise a name could be taken a second time.
    pub fn hide_name(&self, parts: &[&[u8]]) -> [u8; 32] {
        let tag = hmac::sign(&self.read().name_key, &digest_parts(parts));
        let mut out = [0; 32];
        out.copy_from_slice(tag.as_ref());
        out
    }

    fn read(&self) -> RwLockReadGuard<'_, KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KeySet> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace_keys(&self, keys: &mut KeySet, content: KeyFileContent) {
        *keys = KeySet::new(content);
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("origin", &self.origin)
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

impl KeySet {
    fn new(content: KeyFileContent) -> Self {
        let load = |key: &StoredKey| LoadedKey {
            info: KeyInfo { id: key.id, created_ms: key.created_ms, accept_until_ms: key.accept_until_ms },
            subkeys: Subkeys::derive(&key.secret),
        };
        Self {
            keys: content.keys.iter().map(load).collect(),
            name_key: subkeys::name_key(&content.names),
            content,
        }
    }

    fn find(&self, id: KeyId) -> Option<&LoadedKey> {
        self.keys.iter().find(|key| key.info.id == id)
    }

    fn contains(&self, id: KeyId) -> bool {
        self.find(id).is_some()
    }
}
