//! Access tokens: which bearer tokens are accepted, and which caller each one stands for. They come from the environment,
//! or from a file that the operator may change while the server runs.

mod file;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use host::SystemPlatform;
use ring::digest;
use spile_core::{Platform as _, Principal};

use crate::guard::Exposure;

/// The accepted tokens. Only their digests stay in memory. Clones share them: after [`AccessTokens::reload`] all of
/// them accept the new tokens and refuse those that are gone.
#[derive(Clone)]
pub struct AccessTokens {
    current: Arc<RwLock<TokenSet>>,
    /// Changes with `current`, after it.
    generation: Arc<AtomicU64>,
    file: Option<Arc<Path>>,
    exposure: Exposure,
}

/// One token as the file or the environment has it.
#[derive(Debug, PartialEq, Eq)]
struct AccessToken {
    sha256: [u8; 32],
    /// `None` if only the digest is known.
    chars: Option<usize>,
    principal: Principal,
}

/// By digest. A lookup may take longer for some digests than for others, but a token cannot be derived from the
/// digests of their own guesses.
#[derive(Default)]
struct TokenSet {
    grants: HashMap<[u8; 32], Grant>,
    /// Digests of tokens that were accepted and are not any more. They are refused, but a client that still sends one
    /// does not guess.
    revoked: HashSet<[u8; 32]>,
}

#[derive(Clone)]
struct Grant {
    id: GrantId,
    chars: Option<usize>,
    principal: Principal,
}

/// Identifies a token and what it grants in this process: a token whose scopes or claims change gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GrantId(u64);

impl GrantId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}

/// How a token was judged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    Accepted(Principal, GrantId),
    /// It was accepted before. Sending it is a mistake, not a guess.
    NoLongerValid,
    Unknown,
}

/// Why tokens cannot be used.
#[derive(Debug)]
pub enum TokenError {
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    NotAFile {
        path: PathBuf,
    },
    FileTooLarge,
    /// `place` is empty for the whole file.
    Malformed {
        place: String,
        reason: String,
    },
    /// The list of callers is empty.
    NoCallers,
    TooLong,
    TooShort {
        chars: usize,
    },
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
            Self::FileTooLarge => f.write_str("the token file exceeds the limit of 4 MiB"),
            Self::Malformed { place, reason } if place.is_empty() => {
                write!(f, "cannot use the token file: {reason}")
            }
            Self::Malformed { place, reason } => write!(f, "cannot use the token file: `{place}`: {reason}"),
            Self::NoCallers => {
                f.write_str("cannot use the token file: `tokens`: the list is empty; add at least one token")
            }
            Self::TooLong => write!(f, "the token exceeds the limit of {} bytes", file::TOKEN_BYTES_MAX),
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

/// Below this, a token on a public address is refused.
const PUBLIC_TOKEN_CHARS_MIN: usize = 8;

/// Below this, the operator gets a warning.
const STRONG_TOKEN_CHARS_MIN: usize = 16;

/// How often the token file is read again, and how late the end of a token is noticed on an open connection.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// How many tokens that are no longer valid are remembered.
const REVOKED_MAX: usize = 10_000;

impl fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl AccessTokens {
    /// The callers that tokens stand for, each once, by name.
    pub fn principals(&self) -> Vec<Principal> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Principal> = current.grants.values().map(|grant| grant.principal.clone()).collect();
        all.sort_by(|one, other| one.id().cmp(other.id()));
        all
    }

    /// One token, and one caller.
    pub fn single(secret: &str) -> Self {
        Self::new([AccessToken::from_secret(secret, file::single_token_principal())], None)
    }

    /// One token as people write it, with optional whitespace around it.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        file::parse_single(text).map(|token| Self::new([token], None))
    }

    /// Reads the token file. While the server runs, it reads the file again when it changes.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        Ok(Self::new(file::read(path)?, Some(path.into())))
    }

    fn new(tokens: impl IntoIterator<Item = AccessToken>, file: Option<Arc<Path>>) -> Self {
        let mut current = TokenSet::default();
        current.replace(tokens);
        let current = Arc::new(RwLock::new(current));
        Self { current, generation: Arc::default(), file, exposure: Exposure::Local }
    }

    /// Refuses tokens that are too short for who can reach the server, now and whenever the file is read again.
    pub(crate) fn for_exposure(self, exposure: Exposure) -> Result<Self, TokenError> {
        let lengths: Vec<Option<usize>> = self.read().grants.values().map(|grant| grant.chars).collect();
        check_lengths(lengths, exposure)?;
        Ok(Self { exposure, ..self })
    }

    /// What the operator should know about these tokens.
    pub fn warnings(&self) -> Vec<String> {
        let current = self.read();
        let is_single = current.grants.len() == 1;
        let mut warnings: Vec<String> = current
            .grants
            .values()
            .filter_map(|grant| Some((grant, grant.chars.filter(|chars| *chars < STRONG_TOKEN_CHARS_MIN)?)))
            .map(|(grant, chars)| {
                let whose = match is_single {
                    true => String::new(),
                    false => format!(" of `{}`", grant.principal.display_name()),
                };
                format!(
                    "the bearer token{whose} has only {} and can be guessed; \
                     use at least {STRONG_TOKEN_CHARS_MIN} random ones, for example from `openssl rand -hex 32`",
                    count_chars(chars)
                )
            })
            .collect();
        warnings.sort_unstable();
        warnings.extend(self.file.as_deref().and_then(exposed_file_warning));
        warnings
    }

    /// Whose token this is.
    pub(crate) fn check(&self, given: &[u8]) -> TokenCheck {
        let digest = sha256(given);
        let current = self.read();
        match current.grants.get(&digest) {
            Some(grant) if grant.principal.is_expired(now_ms) => TokenCheck::NoLongerValid,
            Some(grant) => TokenCheck::Accepted(grant.principal.clone(), grant.id),
            None if current.revoked.contains(&digest) => TokenCheck::NoLongerValid,
            None => TokenCheck::Unknown,
        }
    }

    /// The same value as before means that the same tokens are accepted, but for those that expired.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a valid token of this caller grants what the caller was granted: the same claims, and at least its scopes. A
    /// caller without a name needs none.
    pub fn covers(&self, principal: &Principal) -> bool {
        let Principal::Named(identity) = principal else { return true };
        let covers = |grant: &Grant| match &grant.principal {
            Principal::Named(granted) => granted.covers(identity) && !grant.principal.is_expired(now_ms),
            Principal::Anonymous => false,
        };
        self.read().grants.values().any(covers)
    }

    /// Reads the file again. Returns whether a token changed. An unusable file, or one with a token that is too short
    /// for who can reach the server, changes nothing: it may be half written, and a server without good tokens would
    /// be worse than one with the old ones.
    pub fn reload(&self) -> Result<bool, TokenError> {
        let Some(path) = &self.file else { return Ok(false) };
        let tokens = match file::read(path) {
            // Whoever removes the last caller means it. A server cannot start like that.
            Err(TokenError::NoCallers) => Vec::new(),
            read => read?,
        };
        check_lengths(tokens.iter().map(|token| token.chars), self.exposure)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_changed = current.replace(tokens);
        if is_changed {
            // Before the lock is released: whoever sees the new tokens sees the new generation.
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(is_changed)
    }

    /// Waits until a token that was valid is not any more, and returns what is valid now. Never returns for tokens
    /// without a file: they cannot change or expire.
    pub(crate) async fn revoked(&self) -> HashSet<u64> {
        if self.file.is_none() {
            return std::future::pending().await;
        }
        let mut valid = self.valid_grants();
        let mut reported = self.warnings();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let tokens = self.clone();
            let polled = tokio::task::spawn_blocking(move || {
                let poll = tokens.poll_file(&mut reported);
                (poll, reported)
            });
            let Ok((poll, now_reported)) = polled.await else {
                reported = Vec::new();
                continue;
            };
            reported = now_reported;
            if poll.is_changed {
                tracing::info!("reloaded the token file");
            }
            for message in poll.messages {
                tracing::warn!("{message}");
            }
            let now_valid = self.valid_grants();
            if !valid.is_subset(&now_valid) {
                return now_valid;
            }
            valid = now_valid;
        }
    }

    fn valid_grants(&self) -> HashSet<u64> {
        let now_ms = now_ms();
        let current = self.read();
        let valid = current.grants.values().filter(|grant| !grant.principal.is_expired(|| now_ms));
        valid.map(|grant| grant.id.as_u64()).collect()
    }

    /// Reads the file once. `reported` is what the operator was told last; the messages are what they were not.
    fn poll_file(&self, reported: &mut Vec<String>) -> TokenPoll {
        let (is_changed, now) = match self.reload() {
            Ok(is_changed) => (is_changed, self.warnings()),
            Err(error) => (false, vec![format!("{error}; keeping the current tokens")]),
        };
        // A new token that is as weak as the old one is a new reason to warn.
        let messages =
            now.iter().filter(|message| is_changed || !reported.contains(message)).cloned().collect();
        *reported = now;
        TokenPoll { is_changed, messages }
    }

    fn read(&self) -> RwLockReadGuard<'_, TokenSet> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenSet {
    /// Whether anything changed. A token that grants the same as before keeps its id.
    fn replace(&mut self, tokens: impl IntoIterator<Item = AccessToken>) -> bool {
        let mut before = std::mem::take(&mut self.grants);
        let mut is_changed = false;
        for AccessToken { sha256, chars, principal } in tokens {
            let grant = match before.remove(&sha256) {
                Some(grant) if is_same_grant(&grant.principal, &principal) => grant,
                _ => {
                    is_changed = true;
                    Grant { id: GrantId::next(), chars, principal }
                }
            };
            self.revoked.remove(&sha256);
            self.grants.insert(sha256, grant);
        }
        is_changed |= !before.is_empty();
        if self.revoked.len() + before.len() > REVOKED_MAX {
            self.revoked.clear();
        }
        self.revoked.extend(before.into_keys().take(REVOKED_MAX));
        is_changed
    }
}

/// Principals are equal if they are the same caller; here scopes, claims and expiry count too.
fn is_same_grant(one: &Principal, other: &Principal) -> bool {
    match (one, other) {
        (Principal::Named(one), Principal::Named(other)) => {
            one == other
                && one.scopes().eq(other.scopes())
                && one.claims().map(json::Json::as_str) == other.claims().map(json::Json::as_str)
                && one.expires_ms() == other.expires_ms()
        }
        (one, other) => one == other,
    }
}

/// What one look at the token file found.
#[derive(Debug, PartialEq, Eq)]
struct TokenPoll {
    is_changed: bool,
    messages: Vec<String>,
}

fn check_lengths(
    lengths: impl IntoIterator<Item = Option<usize>>,
    exposure: Exposure,
) -> Result<(), TokenError> {
    let shortest = lengths.into_iter().flatten().min();
    match (exposure, shortest) {
        (Exposure::Public, Some(chars)) if chars < PUBLIC_TOKEN_CHARS_MIN => {
            Err(TokenError::TooShort { chars })
        }
        (Exposure::Public | Exposure::Local, _) => Ok(()),
    }
}

fn count_chars(chars: usize) -> String {
    let unit = if chars == 1 { "character" } else { "characters" };
    format!("{chars} {unit}")
}

/// The clock of expiry.
fn now_ms() -> u64 {
    SystemPlatform::default().now_ms()
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
    use super::{AccessTokens, TokenCheck, TokenError, TokenPoll};
    use crate::guard::Exposure;

    impl AccessTokens {
        fn accepts(&self, token: &str) -> bool {
            matches!(self.check(token.as_bytes()), TokenCheck::Accepted(..))
        }

        fn was_accepted(&self, token: &str) -> bool {
            self.check(token.as_bytes()) == TokenCheck::NoLongerValid
        }

        fn caller(&self, token: &str) -> String {
            match self.check(token.as_bytes()) {
                TokenCheck::Accepted(principal, _) => principal.display_name(),
                other => format!("{other:?}"),
            }
        }
    }

    #[test]
    fn tokens_that_clients_cannot_send_are_refused() {
        assert!(matches!(AccessTokens::parse(" \n"), Err(TokenError::Empty)));
        assert!(matches!(AccessTokens::parse("two\nlines"), Err(TokenError::NotPrintable)));
        assert!(matches!(AccessTokens::parse("schl\u{fc}ssel"), Err(TokenError::NotPrintable)));
        assert!(matches!(AccessTokens::parse(&"x".repeat(9000)), Err(TokenError::TooLong)));
        assert!(AccessTokens::parse(" s3cret\r\n").expect("a token").accepts("s3cret"));
    }

    #[test]
    fn a_rotated_file_replaces_the_token_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "first\n").expect("a file");
        let tokens = AccessTokens::from_file(&path).expect("a token");
        let shared = tokens.clone();
        let before = tokens.generation();
        assert!(!tokens.reload().expect("readable"));
        assert_eq!(tokens.generation(), before, "what connections remember stays");
        std::fs::write(&path, "second\n").expect("a file");
        assert!(tokens.reload().expect("readable"));
        assert_ne!(tokens.generation(), before);
        assert!(shared.accepts("second") && !shared.accepts("first"));
        assert!(shared.was_accepted("first") && !shared.was_accepted("third"));
        for broken in ["", "two words", "{\"tokens\":["] {
            std::fs::write(&path, broken).expect("a file");
            assert!(tokens.reload().is_err(), "{broken:?}");
        }
        std::fs::remove_file(&path).expect("a file");
        assert!(matches!(tokens.reload(), Err(TokenError::Unreadable { .. })));
        assert!(shared.accepts("second"), "the last good token stays");
    }

    #[test]
    fn each_token_of_a_file_stands_for_its_caller() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        let write =
            |callers: &str| std::fs::write(&path, format!(r#"{{"tokens":[{callers}]}}"#)).expect("a file");
        let (ada, bob) =
            (r#"{"token":"token-of-ada","subject":"ada"}"#, r#"{"token":"token-of-bob","subject":"bob"}"#);
        write(&format!("{ada},{bob}"));
        let tokens = AccessTokens::from_file(&path).expect("two tokens");
        assert_eq!(tokens.caller("token-of-ada"), "ada");
        assert_eq!(tokens.caller("token-of-bob"), "bob");
        assert_eq!(tokens.caller("token-of-eve"), "Unknown");
        assert!(
            tokens.warnings()[0].contains("token of `ada` has only 12 characters"),
            "{:?}",
            tokens.warnings()
        );
        let before = tokens.valid_grants();

        write(&format!(r#"{ada},{{"token":"token-of-eve","subject":"eve"}},{bob}"#));
        assert!(tokens.reload().expect("readable"));
        assert!(before.is_subset(&tokens.valid_grants()), "a new caller disturbs nobody");
        assert_eq!(tokens.caller("token-of-eve"), "eve");

        write(ada);
        assert!(tokens.reload().expect("readable"));
        assert_eq!(tokens.caller("token-of-bob"), "NoLongerValid");
        assert_eq!(before.difference(&tokens.valid_grants()).count(), 1, "only bob has to go");

        write(r#"{"token":"token-of-ada","subject":"ada","scopes":["read"]}"#);
        assert!(tokens.reload().expect("readable"), "what the token grants has changed");
        assert!(before.is_disjoint(&tokens.valid_grants()));

        write(r#"{"token":"token-of-ada","subject":"ada","expires":"2020-01-01"}"#);
        assert!(tokens.reload().expect("readable"));
        assert_eq!(tokens.caller("token-of-ada"), "NoLongerValid");
        assert!(tokens.valid_grants().is_empty());
    }

    #[test]
    fn a_rotated_token_must_be_long_enough_for_who_can_reach_the_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let rotate = |secret: &str| std::fs::write(&path, secret).expect("a file");
        for (exposure, is_accepted) in [(Exposure::Public, false), (Exposure::Local, true)] {
            rotate("first-long-token\n");
            let tokens =
                AccessTokens::from_file(&path).expect("a token").for_exposure(exposure).expect("long");
            rotate("x\n");
            let mut reported = tokens.warnings();
            let poll = tokens.poll_file(&mut reported);
            assert_eq!(poll.is_changed, is_accepted, "{exposure:?}");
            assert_eq!(tokens.accepts("x"), is_accepted, "{exposure:?}");
            assert_eq!(tokens.accepts("first-long-token"), !is_accepted, "{exposure:?}");
            let message = poll.messages.concat();
            assert!(message.contains("only 1 character") && !message.contains("characters"), "{message}");
            assert_eq!(message.contains("keeping the current tokens"), !is_accepted, "{message}");
            let again = tokens.poll_file(&mut reported);
            assert_eq!(again, TokenPoll { is_changed: false, messages: Vec::new() }, "said once");
        }
        let short = AccessTokens::single("x").for_exposure(Exposure::Public);
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
        let tokens = AccessTokens::from_file(&path).expect("a token");
        let mut reported = tokens.warnings();
        assert_eq!(tokens.poll_file(&mut reported).messages, [""; 0]);
        set_mode(0o644);
        let messages = tokens.poll_file(&mut reported).messages;
        assert!(messages.concat().contains("chmod 600"), "{messages:?}");
        std::fs::write(&path, "another-0123456789").expect("a file");
        assert_eq!(tokens.poll_file(&mut reported), TokenPoll { is_changed: true, messages });
    }

    #[test]
    fn weak_and_exposed_tokens_get_a_warning() {
        assert!(AccessTokens::single("x").warnings()[0].contains("only 1 character "));
        assert_eq!(AccessTokens::single("0123456789abcdef").warnings(), [""; 0]);
        assert!(AccessTokens::single("s3cret").warnings()[0].contains("only 6 characters"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef").expect("a file");
        #[cfg(unix)]
        for (mode, expected) in [(0o600, 0), (0o644, 1)] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our own file");
            assert_eq!(AccessTokens::from_file(&path).expect("a token").warnings().len(), expected);
        }
    }
}
