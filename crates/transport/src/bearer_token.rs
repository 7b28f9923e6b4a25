//! The bearer token: a shared secret from the environment, or from a file that the operator may rotate.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::digest;
use subtle::ConstantTimeEq;

use crate::guard::Exposure;

/// A shared secret. Only its digest stays in memory. Clones share it: after [`BearerToken::reload`] all of them
/// accept the new secret and refuse the old one.
#[derive(Clone)]
pub struct BearerToken {
    secret: Arc<RwLock<SecretDigest>>,
    file: Option<Arc<Path>>,
    exposure: Exposure,
}

struct SecretDigest {
    sha256: [u8; 32],
    chars: usize,
    /// The secret before the last rotation. It is refused, but a client that still sends it does not guess.
    previous_sha256: Option<[u8; 32]>,
}

/// Why a token cannot be used.
#[derive(Debug)]
pub enum TokenError {
    Unreadable { path: PathBuf, error: std::io::Error },
    NotAFile { path: PathBuf },
    TooLong,
    TooShort { chars: usize },
    Empty,
    NotPrintable,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the token file `{}`: {error}", path.display())
            }
            Self::NotAFile { path } => write!(f, "the token file `{}` is not a regular file", path.display()),
            Self::TooLong => write!(f, "the token exceeds the limit of {TOKEN_BYTES_MAX} bytes"),
            Self::TooShort { chars } => write!(
                f,
                "the bearer token has only {}, and other machines can reach the server; \
                 use a long random one, for example from `openssl rand -hex 32`",
                count_chars(*chars)
            ),
            Self::Empty => f.write_str(
                "the token is empty; put a long random text into the token file or `SPILE_TOKEN`, \
                 for example from `openssl rand -hex 32`",
            ),
            Self::NotPrintable => f.write_str(
                "the token contains a character that clients cannot send; \
                 use letters, digits and punctuation on one line",
            ),
        }
    }
}

impl std::error::Error for TokenError {}

/// A token must fit into a request head.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Below this, a token on a public address is refused.
const PUBLIC_TOKEN_CHARS_MIN: usize = 8;

/// Below this, the operator gets a warning.
const STRONG_TOKEN_CHARS_MIN: usize = 16;

/// How often the token file is read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl BearerToken {
    pub fn new(secret: &str) -> Self {
        let secret = Arc::new(RwLock::new(SecretDigest::new(secret)));
        Self { secret, file: None, exposure: Exposure::Local }
    }

    /// A token as people write it, with optional whitespace around it.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        parse_secret(text).map(Self::new)
    }

    /// Reads a token from a file. While the server runs, it reads the file again when it changes.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let text = read_token_file(path)?;
        Ok(Self { file: Some(path.into()), ..Self::parse(&text)? })
    }

    /// Refuses a token that is too short for who can reach the server, now and whenever the file is read again.
    pub(crate) fn for_exposure(self, exposure: Exposure) -> Result<Self, TokenError> {
        check_length(self.chars(), exposure)?;
        Ok(Self { exposure, ..self })
    }

    /// What the operator should know about this token.
    pub fn warnings(&self) -> Vec<String> {
        let chars = self.chars();
        let weak = (chars < STRONG_TOKEN_CHARS_MIN).then(|| {
            format!(
                "the bearer token has only {} and can be guessed; \
                 use at least {STRONG_TOKEN_CHARS_MIN} random ones, for example from `openssl rand -hex 32`",
                count_chars(chars)
            )
        });
        weak.into_iter().chain(self.file.as_deref().and_then(exposed_file_warning)).collect()
    }

    fn chars(&self) -> usize {
        self.secret.read().unwrap_or_else(PoisonError::into_inner).chars
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        let given = sha256(given);
        self.secret.read().unwrap_or_else(PoisonError::into_inner).sha256.ct_eq(&given).into()
    }

    /// Whether this was the token before the last rotation.
    pub(crate) fn is_previous(&self, given: &[u8]) -> bool {
        let previous = self.secret.read().unwrap_or_else(PoisonError::into_inner).previous_sha256;
        previous.is_some_and(|previous| previous.ct_eq(&sha256(given)).into())
    }

    /// Reads the file again. Returns whether the token changed. An unusable file, or one whose token is too short for
    /// who can reach the server, changes nothing: it may be half written, and a server without a good token would be
    /// worse than one with the old token.
    pub fn reload(&self) -> Result<bool, TokenError> {
        let Some(path) = &self.file else { return Ok(false) };
        let secret = SecretDigest::new(parse_secret(&read_token_file(path)?)?);
        check_length(secret.chars, self.exposure)?;
        let mut current = self.secret.write().unwrap_or_else(PoisonError::into_inner);
        if current.sha256 == secret.sha256 {
            return Ok(false);
        }
        *current = SecretDigest { previous_sha256: Some(current.sha256), ..secret };
        Ok(true)
    }

    /// Waits until the file has a new token. Never returns for a token without a file.
    pub(crate) async fn changed(&self) {
        if self.file.is_none() {
            return std::future::pending().await;
        }
        let mut reported = self.warnings();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let token = self.clone();
            let polled = tokio::task::spawn_blocking(move || {
                let poll = token.poll_file(&mut reported);
                (poll, reported)
            });
            let Ok((poll, now_reported)) = polled.await else {
                reported = Vec::new();
                continue;
            };
            reported = now_reported;
            for message in poll.messages {
                tracing::warn!("{message}");
            }
            if poll.is_changed {
                return;
            }
        }
    }

    /// Reads the file once. `reported` is what the operator was told last; the messages are what they were not.
    fn poll_file(&self, reported: &mut Vec<String>) -> TokenPoll {
        let (is_changed, now) = match self.reload() {
            Ok(is_changed) => (is_changed, self.warnings()),
            Err(error) => (false, vec![format!("{error}; keeping the current token")]),
        };
        // A new token that is as weak as the old one is a new reason to warn.
        let messages =
            now.iter().filter(|message| is_changed || !reported.contains(message)).cloned().collect();
        *reported = now;
        TokenPoll { is_changed, messages }
    }
}

/// What one look at the token file found.
#[derive(Debug, PartialEq, Eq)]
struct TokenPoll {
    is_changed: bool,
    messages: Vec<String>,
}

impl SecretDigest {
    fn new(secret: &str) -> Self {
        Self { sha256: sha256(secret.as_bytes()), chars: secret.chars().count(), previous_sha256: None }
    }
}

fn check_length(chars: usize, exposure: Exposure) -> Result<(), TokenError> {
    match exposure {
        Exposure::Public if chars < PUBLIC_TOKEN_CHARS_MIN => Err(TokenError::TooShort { chars }),
        Exposure::Public | Exposure::Local => Ok(()),
    }
}

fn count_chars(chars: usize) -> String {
    let unit = if chars == 1 { "character" } else { "characters" };
    format!("{chars} {unit}")
}

fn parse_secret(text: &str) -> Result<&str, TokenError> {
    match text.trim() {
        "" => Err(TokenError::Empty),
        secret if secret.len() > TOKEN_BYTES_MAX => Err(TokenError::TooLong),
        secret if !secret.bytes().all(|c| c.is_ascii_graphic()) => Err(TokenError::NotPrintable),
        secret => Ok(secret),
    }
}

fn read_token_file(path: &Path) -> Result<String, TokenError> {
    let unreadable = |error| TokenError::Unreadable { path: path.into(), error };
    // Check before opening: opening a named pipe would block until a writer opens it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TokenError::NotAFile { path: path.into() });
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| TokenError::NotPrintable)
}

#[cfg(unix)]
fn exposed_file_warning(path: &Path) -> Option<String> {
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).ok()?) & 0o7777;
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "other users of this machine can read the token file `{path}` (mode {mode:04o}); \
             restrict it with `chmod 600 {path}`"
        )
    })
}

#[cfg(not(unix))]
fn exposed_file_warning(_: &Path) -> Option<String> {
    None
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::{BearerToken, TokenError, TokenPoll};
    use crate::guard::Exposure;

    #[test]
    fn tokens_that_clients_cannot_send_are_refused() {
        assert!(matches!(BearerToken::parse(" \n"), Err(TokenError::Empty)));
        assert!(matches!(BearerToken::parse("two\nlines"), Err(TokenError::NotPrintable)));
        assert!(matches!(BearerToken::parse("schl\u{fc}ssel"), Err(TokenError::NotPrintable)));
        assert!(matches!(BearerToken::parse(&"x".repeat(9000)), Err(TokenError::TooLong)));
        assert!(BearerToken::parse(" s3cret\r\n").expect("a token").matches(b"s3cret"));
    }

    #[test]
    fn a_rotated_file_replaces_the_token_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "first\n").expect("a file");
        let token = BearerToken::from_file(&path).expect("a token");
        let shared = token.clone();
        assert!(!token.reload().expect("readable"));
        std::fs::write(&path, "second\n").expect("a file");
        assert!(token.reload().expect("readable"));
        assert!(shared.matches(b"second") && !shared.matches(b"first"));
        assert!(shared.is_previous(b"first") && !shared.is_previous(b"second"));
        for broken in ["", "two words"] {
            std::fs::write(&path, broken).expect("a file");
            assert!(token.reload().is_err(), "{broken:?}");
        }
        std::fs::remove_file(&path).expect("a file");
        assert!(matches!(token.reload(), Err(TokenError::Unreadable { .. })));
        assert!(shared.matches(b"second"), "the last good token stays");
    }

    #[test]
    fn a_rotated_token_must_be_long_enough_for_who_can_reach_the_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let rotate = |secret: &str| std::fs::write(&path, secret).expect("a file");
        for (exposure, is_accepted) in [(Exposure::Public, false), (Exposure::Local, true)] {
            rotate("first-long-token\n");
            let token = BearerToken::from_file(&path).expect("a token").for_exposure(exposure).expect("long");
            rotate("x\n");
            let mut reported = token.warnings();
            let poll = token.poll_file(&mut reported);
            assert_eq!(poll.is_changed, is_accepted, "{exposure:?}");
            assert_eq!(token.matches(b"x"), is_accepted, "{exposure:?}");
            assert_eq!(token.matches(b"first-long-token"), !is_accepted, "{exposure:?}");
            let message = poll.messages.concat();
            assert!(message.contains("only 1 character") && !message.contains("characters"), "{message}");
            assert_eq!(message.contains("keeping the current token"), !is_accepted, "{message}");
            let again = token.poll_file(&mut reported);
            assert_eq!(again, TokenPoll { is_changed: false, messages: Vec::new() }, "said once");
        }
        let short = BearerToken::new("x").for_exposure(Exposure::Public);
        assert!(matches!(short, Err(TokenError::TooShort { chars: 1 })));
    }

    #[cfg(unix)]
    #[test]
    fn a_token_file_that_becomes_readable_by_others_gets_a_warning() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our own file");
        };
        std::fs::write(&path, "0123456789abcdef").expect("a file");
        set_mode(0o600);
        let token = BearerToken::from_file(&path).expect("a token");
        let mut reported = token.warnings();
        assert_eq!(token.poll_file(&mut reported).messages, [""; 0]);
        set_mode(0o644);
        let messages = token.poll_file(&mut reported).messages;
        assert!(messages.concat().contains("chmod 600"), "{messages:?}");
        std::fs::write(&path, "another-0123456789").expect("a file");
        assert_eq!(token.poll_file(&mut reported), TokenPoll { is_changed: true, messages });
    }

    #[test]
    fn weak_and_exposed_tokens_get_a_warning() {
        assert!(BearerToken::new("x").warnings()[0].contains("only 1 character "));
        assert_eq!(BearerToken::new("0123456789abcdef").warnings(), [""; 0]);
        assert!(BearerToken::new("s3cret").warnings()[0].contains("only 6 characters"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef").expect("a file");
        #[cfg(unix)]
        for (mode, expected) in [(0o600, 0), (0o644, 1)] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our own file");
            assert_eq!(BearerToken::from_file(&path).expect("a token").warnings().len(), expected);
        }
    }
}
