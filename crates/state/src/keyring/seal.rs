//! Sealed text that clients carry for the server: they cannot read, change or forge it, or use it elsewhere.
//!
//! AES-256-GCM with a random nonce: version (1 byte), key id (4), nonce (12), ciphertext and tag (16). A client gets it
//! in base64url without padding. Version, key id and binding are authenticated, and the purpose has a key of its own; the binding is
//! not included. So a seal does not open for another purpose, caller or call.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce};
use ring::digest;
use spile_core::Platform;

use super::format::KeyId;

const VERSION: u8 = 1;
const ID_AT: usize = 1;
const NONCE_AT: usize = ID_AT + 4;
const BODY_AT: usize = NONCE_AT + NONCE_LEN;
/// What sealing adds to a payload, before base64.
pub(super) const OVERHEAD_BYTES: usize = BODY_AT + MAX_TAG_LEN;

/// Why a sealed text was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("it was not issued by this server: it is incomplete or not in the server's format")]
    Malformed,
    /// Issued by a server with other keys, or with a key that has been removed.
    #[error("the server's keys have changed since it was issued, or another server issued it")]
    UnknownKey(KeyId),
    #[error("the server's keys have changed since it was issued, and the old key is no longer accepted")]
    KeyExpired(KeyId),
    /// Changed, or issued for another purpose, caller or call.
    #[error("it was changed, or issued for another caller or call")]
    Mismatch,
}

pub(super) fn seal(
    id: KeyId,
    key: &LessSafeKey,
    binding: &[u8],
    payload: &[u8],
    platform: &dyn Platform,
) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    platform.fill_random(&mut nonce);
    let mut sealed = Vec::with_capacity(payload.len() + OVERHEAD_BYTES);
    sealed.push(VERSION);
    sealed.extend_from_slice(&id.0);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(payload);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let aad = Aad::from(associated_data(id, binding));
    let tag = key.seal_in_place_separate_tag(nonce, aad, &mut sealed[BODY_AT..]);
    sealed.extend_from_slice(tag.expect("far below the algorithm's length limit").as_ref());
    sealed
}

pub(super) fn to_text(sealed: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(sealed)
}

pub(super) fn from_text(text: &str) -> Result<Vec<u8>, OpenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| OpenError::Malformed)
}

/// Bytes in the format of a seal, with the id of the key.
pub(super) struct Sealed {
    bytes: Vec<u8>,
    pub(super) key_id: KeyId,
}

impl Sealed {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, OpenError> {
        if bytes.len() < OVERHEAD_BYTES || bytes[0] != VERSION {
            return Err(OpenError::Malformed);
        }
        let key_id = KeyId([bytes[ID_AT], bytes[ID_AT + 1], bytes[ID_AT + 2], bytes[ID_AT + 3]]);
        Ok(Self { bytes, key_id })
    }

    pub(super) fn open(mut self, key: &LessSafeKey, binding: &[u8]) -> Result<Vec<u8>, OpenError> {
        let aad = Aad::from(associated_data(self.key_id, binding));
        let (head, body) = self.bytes.split_at_mut(BODY_AT);
        let nonce = Nonce::try_assume_unique_for_key(&head[NONCE_AT..]).map_err(|_| OpenError::Malformed)?;
        let length = key.open_in_place(nonce, aad, body).map_err(|_| OpenError::Mismatch)?.len();
        self.bytes.truncate(BODY_AT + length);
        self.bytes.drain(..BODY_AT);
        Ok(self.bytes)
    }
}

fn associated_data(id: KeyId, binding: &[u8]) -> Vec<u8> {
    let mut aad = Vec::with_capacity(NONCE_AT + binding.len());
    aad.push(VERSION);
    aad.extend_from_slice(&id.0);
    aad.extend_from_slice(binding);
    aad
}

/// SHA-256 of several parts. Each length is part of the input, so different parts never give the same digest.
pub fn digest_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}
