//! Tokens that are bound to a key (DPoP, RFC 9449): each request carries a proof, signed with the key, for exactly that
//! request. A token that is stolen is worth nothing without the key.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::Json;
use json::write::ObjectWriter;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use spile_core::Platform;
use upstream::TokenProof;
use url::Url;

use super::jwt::SigningError;
use super::login::random_text;

/// The algorithm of our proofs. Every server that supports DPoP supports it, so there is no choice to make.
pub(super) const ALGORITHM: &str = "ES256";

/// The key of one sign-in.
pub(super) struct DpopKey {
    pair: EcdsaKeyPair,
    /// PKCS #8, as base64url.
    text: String,
}

impl DpopKey {
    pub(super) fn generate() -> Result<Self, SigningError> {
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let der = der.map_err(|_| SigningError::Failed)?;
        Self::parse(&URL_SAFE_NO_PAD.encode(der.as_ref())).ok_or(SigningError::Failed)
    }

    /// Reads what [`Self::as_text`] returned.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let der = URL_SAFE_NO_PAD.decode(text).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        Some(Self { pair: pair.ok()?, text: text.to_owned() })
    }

    /// The private key. It is kept with the tokens.
    pub(super) fn as_text(&self) -> &str {
        &self.text
    }

    /// The members of the public key, in the order of RFC 7638.
    fn write_public(&self, out: &mut ObjectWriter<'_>) {
        // An uncompressed point: 4, x, y.
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        out.str("crv", "P-256").str("kty", "EC");
        out.str("x", &URL_SAFE_NO_PAD.encode(x)).str("y", &URL_SAFE_NO_PAD.encode(y));
    }

    /// Names the key (RFC 7638), so that the authorization server binds the code to it as well.
    pub(super) fn thumbprint(&self) -> String {
        let key = Json::object(|out| self.write_public(out));
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, key.as_str().as_bytes()))
    }

    /// The proof for one request. `token` is the one that the request carries, if it does.
    pub(super) fn proof(
        &self,
        method: &str,
        url: &Url,
        token: Option<&str>,
        nonce: Option<&str>,
        platform: &dyn Platform,
    ) -> Result<String, SigningError> {
        let header = Json::object(|out| {
            out.str("alg", ALGORITHM).str("typ", "dpop+jwt").object("jwk", |out| self.write_public(out));
        });
        let claims = Json::object(|out| {
            out.str("jti", &random_text(platform)).str("htm", method).str("htu", &target_of(url));
            out.int("iat", i64::try_from(platform.now_ms() / 1000).unwrap_or(i64::MAX));
            if let Some(token) = token {
                let hash = digest::digest(&digest::SHA256, token.as_bytes());
                out.str("ath", &URL_SAFE_NO_PAD.encode(hash));
            }
            out.maybe_str("nonce", nonce);
        });
        let encode = |json: &Json| URL_SAFE_NO_PAD.encode(json.as_str());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let signature =
            self.pair.sign(&SystemRandom::new(), text.as_bytes()).map_err(|_| SigningError::Failed)?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// RFC 9449, 4.2: without query and fragment. A WebSocket is opened with an HTTP request.
fn target_of(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    match url.as_str().split_once(':') {
        Some(("ws", rest)) => format!("http:{rest}"),
        Some(("wss", rest)) => format!("https:{rest}"),
        Some(_) | None => url.to_string(),
    }
}

/// The proofs for the requests to one MCP server.
pub(super) struct DpopProofs {
    key: DpopKey,
    platform: Arc<dyn Platform>,
    nonce: Mutex<Option<String>>,
}

impl DpopProofs {
    pub(super) fn new(key: DpopKey, platform: Arc<dyn Platform>) -> Self {
        Self { key, platform, nonce: Mutex::new(None) }
    }
}

impl TokenProof for DpopProofs {
    fn prove(&self, method: &str, url: &Url, token: &str) -> Option<String> {
        let nonce = self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.key.proof(method, url, Some(token), nonce.as_deref(), &*self.platform).ok()
    }

    fn set_nonce(&self, nonce: &str) {
        *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    #[derive(Default)]
    struct TestPlatform(AtomicU64);

    impl Platform for TestPlatform {
        fn now_ms(&self) -> u64 {
            1_700_000_000_999
        }

        fn fill_random(&self, bytes: &mut [u8]) {
            bytes.fill(0);
            bytes[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        }
    }

    /// Header and claims of a proof, once its signature is verified.
    fn open(proof: &str, key: &DpopKey) -> (String, String) {
        let (text, signature) = proof.rsplit_once('.').expect("three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        let public = key.pair.public_key().as_ref().to_vec();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
            .verify(text.as_bytes(), &signature)
            .expect("valid");
        let decode =
            |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).expect("base64url")).expect("UTF-8");
        let (header, claims) = text.split_once('.').expect("two parts");
        (decode(header), decode(claims))
    }

    #[test]
    fn a_proof_names_the_request_and_the_token() {
        let platform = TestPlatform::default();
        let key = DpopKey::generate().expect("a key");
        let check = |method: &str, url: &str, token: Option<&str>, nonce: Option<&str>, expected: &str| {
            let url = Url::parse(url).expect("a URL");
            let proof = key.proof(method, &url, token, nonce, &platform).expect("a proof");
            let (header, claims) = open(&proof, &key);
            assert!(
                header
                    .starts_with(r#"{"alg":"ES256","typ":"dpop+jwt","jwk":{"crv":"P-256","kty":"EC","x":""#)
            );
            assert!(!header.contains(r#""d":"#), "the private key stays here");
            let (jti, rest) = claims.split_once(r#"","htm""#).expect("jti comes first");
            assert_eq!(format!(r#""htm"{rest}"#), expected, "{url}");
            jti.to_owned()
        };
        let first = check(
            "POST",
            "https://as.test/token?a=1#b",
            None,
            None,
            r#""htm":"POST","htu":"https://as.test/token","iat":1700000000}"#,
        );
        // The example of RFC 9449, 7.1.
        let second = check(
            "GET",
            "wss://resource.example.org/protectedresource",
            Some("Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"),
            Some("n-1"),
            r#""htm":"GET","htu":"https://resource.example.org/protectedresource","iat":1700000000,"ath":"fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo","nonce":"n-1"}"#,
        );
        assert_ne!(first, second, "each proof is valid once");
    }

    #[test]
    fn a_key_is_kept_as_text_and_has_one_name() {
        let key = DpopKey::generate().expect("a key");
        let again = DpopKey::parse(key.as_text()).expect("the same key");
        assert_eq!(again.thumbprint(), key.thumbprint());
        assert_eq!(key.thumbprint().len(), 43);
        assert_ne!(DpopKey::generate().expect("a key").thumbprint(), key.thumbprint());
        for text in ["", "?", "AAAA"] {
            assert!(DpopKey::parse(text).is_none(), "{text}");
        }
    }
}
