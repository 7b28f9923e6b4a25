//! Subkeys: what one key of the file becomes for each purpose. Derived once when a key is loaded.
//!
//! HKDF-SHA256 (RFC 5869) with the purpose as `info`, so that no purpose can use another's key.

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::hmac;

use super::format::{KeyId, Secret};

const SALT: &[u8] = b"spile keyring 1";

/// What a sealed text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Session ids.
    Session,
    /// `requestState`.
    RequestState,
    /// Where the next page of a list starts.
    Cursor,
    /// Values in the store.
    Store,
    /// Links to whole lists.
    Export,
}

impl Purpose {
    pub const ALL: [Self; 5] = [Self::Session, Self::RequestState, Self::Cursor, Self::Store, Self::Export];

    /// Part of the format of sealed texts: must not change.
    fn label(self) -> &'static [u8] {
        match self {
            Self::Session => b"session",
            Self::RequestState => b"request state",
            Self::Cursor => b"cursor",
            Self::Store => b"store",
            Self::Export => b"export",
        }
    }
}

/// The subkeys of one key, in the order of [`Purpose::ALL`].
pub(super) struct Subkeys([LessSafeKey; Purpose::ALL.len()]);

impl Subkeys {
    pub(super) fn derive(secret: &Secret) -> Self {
        Self(Purpose::ALL.map(|purpose| {
            let mut bytes = [0; 32];
            expand(secret, purpose.label(), &mut bytes);
            let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the algorithm's length");
            LessSafeKey::new(key)
        }))
    }

    pub(super) fn get(&self, purpose: Purpose) -> &LessSafeKey {
        &self.0[purpose as usize]
    }
}

pub(super) fn key_id(secret: &Secret) -> KeyId {
    let mut id = [0; 4];
    expand(secret, b"key id", &mut id);
    KeyId(id)
}

/// The key of the names in the store.
pub(super) fn name_key(secret: &Secret) -> hmac::Key {
    let mut bytes = [0; 32];
    expand(secret, b"store names", &mut bytes);
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
}

fn expand(secret: &Secret, label: &[u8], out: &mut [u8]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let length = Length(out.len());
    let prk = Salt::new(HKDF_SHA256, SALT).extract(&secret.0);
    let expanded = prk.expand(&[label], length).and_then(|okm| okm.fill(out));
    expanded.expect("at most 32 bytes, far below the algorithm's limit");
}
