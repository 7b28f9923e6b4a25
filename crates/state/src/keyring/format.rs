//! The text of a key file.
//!
//! ```text
//! # comments and empty lines are kept
//! names 1 9q0o…=
//! key 1 5f3a09c1 1785196800000 - mVtq…=
//! key 1 77e01b2c 1784592000000 1785225600000 T3Jk…=
//! ```
//!
//! `names` is the secret of the names in the store; it does not rotate. Each `key` line has the version of the format,
//! the key's id, when it was created, until when it is accepted (`-`: no end), and 32 bytes in base64. Times are
//! milliseconds since 1970. The first key is the newest: it seals. The id follows from the key, so a line that was
//! changed by accident is noticed, and one id never stands for two keys.

use std::fmt::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use spile_core::Platform;

use super::subkeys;

/// A file holds at most this many keys.
pub const KEYS_MAX: usize = 16;
/// A key file is at most this long, comments included.
pub const FILE_BYTES_MAX: u64 = 64 << 10;
const SECRET_BYTES: usize = 32;
const FORMAT_VERSION: &str = "1";
const HEADER: &str =
    "# Keys of Spile: whoever can read them can forge sessions. Change them with `spile keys rotate`.";

/// Identifies a key, in files and in sealed texts. Derived from the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub(super) [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// 32 random bytes that never appear in output.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) [u8; SECRET_BYTES]);

impl Secret {
    fn generate(platform: &dyn Platform) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        platform.fill_random(&mut bytes);
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredKey {
    pub(super) id: KeyId,
    pub(super) created_ms: u64,
    /// No longer accepted from this time on.
    pub(super) accept_until_ms: Option<u64>,
    pub(super) secret: Secret,
}

/// The content of a key file: at least one key, of which the first has no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyFileContent {
    comments: Vec<String>,
    pub(super) names: Secret,
    /// Newest first.
    pub(super) keys: Vec<StoredKey>,
}

/// Why a text is not a key file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Counted from 1; 0 for the file as a whole.
    pub line: usize,
    pub problem: &'static str,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

/// More than [`KEYS_MAX`] keys would be accepted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyKeys;

impl KeyFileContent {
    pub(super) fn generate(platform: &dyn Platform) -> Self {
        let key = new_key(&[], platform);
        Self { comments: vec![HEADER.to_owned()], names: Secret::generate(platform), keys: vec![key] }
    }

    /// Adds a key, which becomes the newest. All others end after `overlap_ms` at the latest. Removes keys that had
    /// ended before: until then, texts that they sealed are refused with that reason.
    pub(super) fn rotate(&mut self, overlap_ms: u64, platform: &dyn Platform) -> Result<KeyId, TooManyKeys> {
        let now_ms = platform.now_ms();
        let key = new_key(&self.keys, platform);
        let is_accepted = |key: &StoredKey| key.accept_until_ms.is_none_or(|until_ms| now_ms < until_ms);
        let mut keys = self.keys.clone();
        keys.retain(is_accepted);
        let until_ms = now_ms.saturating_add(overlap_ms);
        for key in &mut keys {
            key.accept_until_ms = Some(key.accept_until_ms.map_or(until_ms, |old_ms| old_ms.min(until_ms)));
        }
        // A key that ends now stays for the reason of a refusal, unless there is no room for it.
        if keys.len() >= KEYS_MAX {
            keys.retain(is_accepted);
        }
        if keys.len() >= KEYS_MAX {
            return Err(TooManyKeys);
        }
        let id = key.id;
        keys.insert(0, key);
        self.keys = keys;
        Ok(id)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let whole = |problem| FormatError { line: 0, problem };
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(whole("it exceeds the limit of 64 KiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| whole("it is not UTF-8 text"))?;
        let (mut comments, mut names, mut keys) = (Vec::new(), None, Vec::new());
        for (index, line) in text.lines().enumerate() {
            let at = |problem| FormatError { line: index + 1, problem };
            let line = line.trim();
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => comments.push(line.to_owned()),
                ["names", FORMAT_VERSION, secret] => {
                    let secret = parse_secret(secret).map_err(at)?;
                    if names.replace(secret).is_some() {
                        return Err(at("a second `names` line"));
                    }
                }
                ["key", FORMAT_VERSION, id, created_ms, until_ms, secret] => {
                    let key = parse_key(id, created_ms, until_ms, secret).map_err(at)?;
                    if keys.iter().any(|other: &StoredKey| other.id == key.id) {
                        return Err(at("the same key a second time"));
                    }
                    if keys.is_empty() && key.accept_until_ms.is_some() {
                        return Err(at("the first key must not end; expected `-`"));
                    }
                    if keys.len() == KEYS_MAX {
                        return Err(at("more than 16 keys"));
                    }
                    keys.push(key);
                }
                ["names" | "key", FORMAT_VERSION, ..] => {
                    return Err(at("a field is missing, or there is one too many"));
                }
                ["names" | "key", ..] => {
                    return Err(at("unknown version of the format; a newer Spile may read it"));
                }
                _ => return Err(at("expected `key`, `names` or a comment")),
            }
        }
        if keys.is_empty() {
            return Err(whole("it contains no key"));
        }
        Ok(Self { comments, names: names.ok_or(whole("it contains no `names` line"))?, keys })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for comment in &self.comments {
            let _ = writeln!(text, "{comment}");
        }
        let _ = writeln!(text, "names {FORMAT_VERSION} {}", STANDARD.encode(self.names.0));
        for key in &self.keys {
            let StoredKey { id, created_ms, accept_until_ms, secret } = key;
            let until = accept_until_ms.map_or_else(|| "-".to_owned(), |until_ms| until_ms.to_string());
            let secret = STANDARD.encode(secret.0);
            let _ = writeln!(text, "key {FORMAT_VERSION} {id} {created_ms} {until} {secret}");
        }
        text
    }
}

/// A new key whose id is not among `others`.
fn new_key(others: &[StoredKey], platform: &dyn Platform) -> StoredKey {
    loop {
        let secret = Secret::generate(platform);
        let id = subkeys::key_id(&secret);
        if others.iter().all(|other| other.id != id) {
            return StoredKey { id, created_ms: platform.now_ms(), accept_until_ms: None, secret };
        }
    }
}

fn parse_key(id: &str, created_ms: &str, until_ms: &str, secret: &str) -> Result<StoredKey, &'static str> {
    let secret = parse_secret(secret)?;
    let created_ms = parse_ms(created_ms)?;
    let accept_until_ms = match until_ms {
        "-" => None,
        until_ms => Some(parse_ms(until_ms)?),
    };
    let key = StoredKey { id: subkeys::key_id(&secret), created_ms, accept_until_ms, secret };
    if key.id.to_string() != id {
        return Err("the id does not belong to the key; the line was changed");
    }
    Ok(key)
}

fn parse_ms(text: &str) -> Result<u64, &'static str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or("expected a time in milliseconds since 1970")
}

fn parse_secret(text: &str) -> Result<Secret, &'static str> {
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.map(Secret).ok_or("expected 32 bytes in base64")
}
