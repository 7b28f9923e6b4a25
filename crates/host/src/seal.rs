//! Sealed text that clients carry for the server: they cannot read, change or forge it, or use it elsewhere.
//!
//! AES-256-GCM with a random nonce. The purpose and the binding are authenticated but not included: a seal does not
//! open for another purpose, caller or call.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use spile_core::Platform;

/// What a sealed text is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Session,
    RequestState,
    Cursor,
}

pub(crate) struct Sealer(LessSafeKey);

/// The text was not sealed by this server for this purpose and binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidSeal;

impl Sealer {
    pub(crate) fn new(platform: &dyn Platform) -> Self {
        let mut key = [0; 32];
        platform.fill_random(&mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the algorithm's length");
        Self(LessSafeKey::new(key))
    }

    pub(crate) fn seal(
        &self,
        purpose: Purpose,
        binding: &[u8],
        mut payload: Vec<u8>,
        platform: &dyn Platform,
    ) -> String {
        let mut nonce = [0; NONCE_LEN];
        platform.fill_random(&mut nonce);
        let aad = Aad::from(associated_data(purpose, binding));
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut payload)
            .expect("far below the algorithm's length limit");
        let mut sealed = Vec::with_capacity(NONCE_LEN + payload.len());
        sealed.extend_from_slice(&nonce);
        sealed.append(&mut payload);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    pub(crate) fn open(
        &self,
        purpose: Purpose,
        binding: &[u8],
        sealed: &str,
    ) -> Result<Vec<u8>, InvalidSeal> {
        let mut sealed = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| InvalidSeal)?;
        let (nonce, body) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(InvalidSeal)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| InvalidSeal)?;
        let aad = Aad::from(associated_data(purpose, binding));
        let payload = self.0.open_in_place(nonce, aad, body).map_err(|_| InvalidSeal)?;
        let end = NONCE_LEN + payload.len();
        sealed.truncate(end);
        sealed.drain(..NONCE_LEN);
        Ok(sealed)
    }
}

fn associated_data(purpose: Purpose, binding: &[u8]) -> Vec<u8> {
    let mut aad = Vec::with_capacity(1 + binding.len());
    aad.push(match purpose {
        Purpose::Session => b's',
        Purpose::RequestState => b'r',
        Purpose::Cursor => b'c',
    });
    aad.extend_from_slice(binding);
    aad
}

/// SHA-256 of several parts. Each length is part of the input, so different parts never give the same digest.
pub(crate) fn digest_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::{InvalidSeal, Purpose, Sealer};
    use crate::platform::SystemPlatform;

    #[test]
    fn a_seal_opens_only_with_its_key_purpose_and_binding() {
        let platform = SystemPlatform::default();
        let sealer = Sealer::new(&platform);
        let sealed = sealer.seal(Purpose::Session, b"alice", b"hello".to_vec(), &platform);
        assert_eq!(sealer.open(Purpose::Session, b"alice", &sealed), Ok(b"hello".to_vec()));
        assert_eq!(sealer.open(Purpose::Session, b"bob", &sealed), Err(InvalidSeal));
        assert_eq!(sealer.open(Purpose::RequestState, b"alice", &sealed), Err(InvalidSeal));
        assert_eq!(Sealer::new(&platform).open(Purpose::Session, b"alice", &sealed), Err(InvalidSeal));
        for i in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[i] = if bytes[i] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(sealer.open(Purpose::Session, b"alice", &changed), Err(InvalidSeal), "byte {i}");
        }
        for junk in ["", "x", "!!", &sealed[1..], &sealed[..sealed.len() - 1]] {
            assert_eq!(sealer.open(Purpose::Session, b"alice", junk), Err(InvalidSeal));
        }
    }
}
