//! Text that we hand out and get back: nobody can read, change or forge it, or use it elsewhere.
//!
//! AES-256-GCM with a random nonce. What a seal is for, and what it is bound to, is authenticated but not
//! carried: a seal opened for another purpose, caller or call does not open.

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

/// It was not sealed by us, for this, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidSeal;

impl Sealer {
    pub(crate) fn new(world: &dyn Platform) -> Self {
        let mut key = [0; 32];
        world.fill_random(&mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the algorithm's length");
        Self(LessSafeKey::new(key))
    }

    pub(crate) fn seal(
        &self,
        purpose: Purpose,
        bound: &[u8],
        mut plain: Vec<u8>,
        world: &dyn Platform,
    ) -> String {
        let mut nonce = [0; NONCE_LEN];
        world.fill_random(&mut nonce);
        let aad = Aad::from(associated_data(purpose, bound));
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut plain)
            .expect("far below the algorithm's length limit");
        let mut whole = Vec::with_capacity(NONCE_LEN + plain.len());
        whole.extend_from_slice(&nonce);
        whole.append(&mut plain);
        URL_SAFE_NO_PAD.encode(whole)
    }

    pub(crate) fn open(&self, purpose: Purpose, bound: &[u8], sealed: &str) -> Result<Vec<u8>, InvalidSeal> {
        let mut whole = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| InvalidSeal)?;
        let (nonce, body) = whole.split_at_mut_checked(NONCE_LEN).ok_or(InvalidSeal)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| InvalidSeal)?;
        let aad = Aad::from(associated_data(purpose, bound));
        let plain = self.0.open_in_place(nonce, aad, body).map_err(|_| InvalidSeal)?;
        let end = NONCE_LEN + plain.len();
        whole.truncate(end);
        whole.drain(..NONCE_LEN);
        Ok(whole)
    }
}

fn associated_data(purpose: Purpose, bound: &[u8]) -> Vec<u8> {
    let mut aad = Vec::with_capacity(1 + bound.len());
    aad.push(match purpose {
        Purpose::Session => b's',
        Purpose::RequestState => b'r',
        Purpose::Cursor => b'c',
    });
    aad.extend_from_slice(bound);
    aad
}

/// A digest of several pieces that no other pieces have.
pub(crate) fn digest_parts(pieces: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for piece in pieces {
        context.update(&(piece.len() as u64).to_be_bytes());
        context.update(piece);
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
    fn a_seal_opens_only_as_it_was_made() {
        let world = SystemPlatform::default();
        let sealer = Sealer::new(&world);
        let sealed = sealer.seal(Purpose::Session, b"alice", b"hello".to_vec(), &world);
        assert_eq!(sealer.open(Purpose::Session, b"alice", &sealed), Ok(b"hello".to_vec()));
        assert_eq!(sealer.open(Purpose::Session, b"bob", &sealed), Err(InvalidSeal));
        assert_eq!(sealer.open(Purpose::RequestState, b"alice", &sealed), Err(InvalidSeal));
        assert_eq!(Sealer::new(&world).open(Purpose::Session, b"alice", &sealed), Err(InvalidSeal));
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
