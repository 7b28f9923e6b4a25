//! Credential files that are encrypted with a key in the keyring of the desktop.
//!
//! The keyring has one key for all of them. So the files, their locks and their atomic replacement stay as they are, and
//! the keyring is asked once per process, not once per token.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::Json;
use os_keyring::{KeyringError, OsKeyring};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use spile_core::Platform;

use crate::private_file;

const NAME: &str = "oauth";
/// What the user sees in their keyring.
const LABEL: &str = "Spile: the key of your sign-ins";
const KEY_LEN: usize = 32;

type Key = [u8; KEY_LEN];

/// A key in the keyring, read when it is first needed.
pub(super) struct KeyringKey {
    keyring: OsKeyring,
    key: Mutex<Option<Key>>,
}

impl KeyringKey {
    pub(super) fn new(keyring: OsKeyring) -> Self {
        Self { keyring, key: Mutex::new(None) }
    }

    /// Whether the key is known, so that using it does not wait for the keyring.
    pub(super) fn is_known(&self) -> bool {
        self.key.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// `None` if the keyring has no such key.
    fn find(&self) -> Result<Option<Key>, KeyringError> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let text = self.keyring.get(NAME)?;
            *known = text.and_then(|text| STANDARD.decode(text.trim()).ok()?.try_into().ok());
        }
        Ok(*known)
    }

    /// Finds the key, or makes one. Processes that do this at the same time agree on one key, by a lock in `folder`.
    fn find_or_create(&self, folder: &Path, platform: &dyn Platform) -> Result<Key, KeyringError> {
        if let Some(key) = self.find()? {
            return Ok(key);
        }
        let lock = private_file::lock(&folder.join("keyring"));
        let _lock = lock.map_err(|error| KeyringError::Failed { reason: error.to_string() })?;
        if let Some(key) = self.find()? {
            return Ok(key);
        }
        let mut key = [0; KEY_LEN];
        platform.fill_random(&mut key);
        self.keyring.set(NAME, LABEL, &STANDARD.encode(key))?;
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(key)
    }

    /// The text of a file that holds `text`, for the credentials of this resource only.
    pub(super) fn encrypt(
        &self,
        text: &str,
        resource: &str,
        folder: &Path,
        platform: &dyn Platform,
    ) -> Result<String, KeyringError> {
        let key = self.find_or_create(folder, platform)?;
        let mut nonce = [0; NONCE_LEN];
        platform.fill_random(&mut nonce);
        let mut bytes = text.as_bytes().to_vec();
        let sealed = cipher(&key).and_then(|cipher| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            cipher.seal_in_place_append_tag(nonce, Aad::from(resource), &mut bytes).ok()
        });
        sealed.ok_or_else(|| KeyringError::Failed { reason: "the text is too long to encrypt".into() })?;
        let encoded = STANDARD.encode([&nonce[..], &bytes].concat());
        let file = Json::object(|out| {
            out.str(ENCRYPTED, &encoded);
        });
        Ok(file.as_str().to_owned())
    }

    /// `None` if it was not encrypted with this key for this resource.
    pub(super) fn decrypt(
        &self,
        encrypted: &EncryptedText,
        resource: &str,
    ) -> Result<Option<String>, KeyringError> {
        let Some(key) = self.find()? else { return Ok(None) };
        let open = || {
            let (nonce, bytes) = encrypted.0.split_at_checked(NONCE_LEN)?;
            let mut bytes = bytes.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let text = cipher(&key)?.open_in_place(nonce, Aad::from(resource), &mut bytes).ok()?;
            String::from_utf8(text.to_vec()).ok()
        };
        Ok(open())
    }
}

const ENCRYPTED: &str = "encrypted_with_keyring";

/// What an encrypted file holds.
pub(super) struct EncryptedText(Vec<u8>);

impl EncryptedText {
    /// `None` if the file is not encrypted.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let json = Json::parse(file).ok()?;
        let doc = json.to_doc();
        STANDARD.decode(doc.root().get(ENCRYPTED)?.str()?.as_bytes()).ok().map(Self)
    }
}

fn cipher(key: &Key) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}
