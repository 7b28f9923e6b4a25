//! The access token of a connection. A token may be bound to a key (DPoP, RFC 9449): then every request carries a proof
//! that its sender has the key, so that a stolen token is worth nothing.

use std::sync::{Arc, Mutex, PoisonError};

use url::Url;

/// Makes the proofs for one token, and remembers the nonce that the server wants in them.
pub trait TokenProof: Send + Sync + 'static {
    /// The value of the `DPoP` header of one request. Each is valid once.
    fn prove(&self, method: &str, url: &Url, token: &str) -> Option<String>;

    /// The server wants this nonce in the next proofs.
    fn set_nonce(&self, nonce: &str);
}

/// A token, and its proofs if it is bound to a key.
#[derive(Clone)]
pub struct AccessToken {
    text: String,
    proof: Option<Arc<dyn TokenProof>>,
}

/// A nonce is short; RFC 9449 sets no limit.
const NONCE_BYTES_MAX: usize = 1024;

impl AccessToken {
    /// Whoever has the text can use it.
    pub fn bearer(text: String) -> Self {
        Self { text, proof: None }
    }

    pub fn bound(text: String, proof: Arc<dyn TokenProof>) -> Self {
        Self { text, proof: Some(proof) }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.proof.is_some()
    }

    /// The headers of one request.
    fn headers(&self, method: &str, url: &Url) -> Vec<(String, String)> {
        let Some(proof) = &self.proof else {
            return vec![("Authorization".to_owned(), format!("Bearer {}", self.text))];
        };
        let mut headers = vec![("Authorization".to_owned(), format!("DPoP {}", self.text))];
        headers.extend(proof.prove(method, url, &self.text).map(|proof| ("DPoP".to_owned(), proof)));
        headers
    }

    /// Takes the nonce of a response. Returns whether the server refused the request only for want of it, so that the
    /// request is sent again.
    pub(crate) fn take_nonce(&self, response: &outbound::Response) -> bool {
        let Some(proof) = &self.proof else { return false };
        let text = |value: &outbound::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let Some(nonce) = response.headers().get("dpop-nonce").map(text).filter(|nonce| is_nonce(nonce))
        else {
            return false;
        };
        proof.set_nonce(&nonce);
        let mut challenges = response.headers().get_all("www-authenticate").iter();
        response.status().as_u16() == 401 && challenges.any(|one| text(one).contains("use_dpop_nonce"))
    }
}

/// RFC 9449, 8.1.
fn is_nonce(text: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_graphic() && c != b'"' && c != b'\\';
    !text.is_empty() && text.len() <= NONCE_BYTES_MAX && text.bytes().all(is_allowed)
}

/// Tokens are not printed.
impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").field("is_bound", &self.is_bound()).finish_non_exhaustive()
    }
}

/// Where a connection finds its token. The owner can replace it while the connection is open.
#[derive(Clone, Default)]
pub struct TokenSlot(Arc<Mutex<Option<AccessToken>>>);

impl TokenSlot {
    pub fn set(&self, token: Option<AccessToken>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    pub fn get(&self) -> Option<AccessToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The text of the token.
    pub fn text(&self) -> Option<String> {
        self.get().map(|token| token.text)
    }
}

/// The headers of a request with this token, behind those that every request has.
pub(crate) fn headers_of(
    fixed: &[(String, String)],
    token: Option<&AccessToken>,
    method: &str,
    url: &Url,
) -> Vec<(String, String)> {
    let mut headers = fixed.to_vec();
    headers.extend(token.map(|token| token.headers(method, url)).unwrap_or_default());
    headers
}

#[cfg(test)]
mod tests {
    use super::is_nonce;

    #[test]
    fn nonces_are_short_and_printable() {
        for (text, expected) in [
            ("eyJ7S_zG.eyJH0-Z.HX4w-7v", true),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            ("a\\b", false),
            ("ü", false),
        ] {
            assert_eq!(is_nonce(text), expected, "{text}");
        }
        assert!(is_nonce(&"n".repeat(1024)) && !is_nonce(&"n".repeat(1025)));
    }
}
