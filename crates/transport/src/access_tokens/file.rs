//! The token file: one token as plain text, or a JSON object that names several callers.
//!
//! ```json
//! {"tokens": [{"token": "…", "subject": "ada", "scopes": ["read"], "claims": {"team": "sales"},
//!              "expires": "2027-01-01T00:00:00Z"}]}
//! ```
//!
//! `sha256` (64 hexadecimal digits) may replace `token`, so that the file contains no secret. No message repeats a value of
//! the file: it may be a secret in the wrong place.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use json::{Json, Node, ParseLimits};
use spile_core::calendar::Temporal;
use spile_core::text::parse_hex;
use spile_core::{Identity, Principal};

use super::{AccessToken, TokenError, sha256};

/// A token must fit into a request head.
pub(super) const TOKEN_BYTES_MAX: usize = 8 << 10;

const FILE_BYTES_MAX: usize = 4 << 20;
const TOKENS_MAX: usize = 10_000;

/// The caller with the token of a file that has only one.
const SINGLE_TOKEN_SUBJECT: &str = "token";

pub(super) fn read(path: &Path) -> Result<Vec<AccessToken>, TokenError> {
    let unreadable = |error| TokenError::Unreadable { path: path.into(), error };
    // Check before opening: opening a named pipe would block until a writer opens it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TokenError::NotAFile { path: path.into() });
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(TokenError::FileTooLarge);
    }
    parse(&String::from_utf8(bytes).map_err(|_| TokenError::NotPrintable)?)
}

fn parse(text: &str) -> Result<Vec<AccessToken>, TokenError> {
    // Some editors write a byte order mark.
    let text = text.trim_start_matches('\u{feff}').trim();
    // A list of callers would be a token, too, if it has no blanks. Nobody means that one.
    match text.starts_with('{') || text.starts_with('[') && Json::parse(text).is_ok() {
        true => parse_callers(text),
        false => Ok(vec![parse_single(text)?]),
    }
}

pub(super) fn single_token_principal() -> Principal {
    Principal::local(SINGLE_TOKEN_SUBJECT).expect("a short name")
}

/// One token as people write it, with optional whitespace around it.
pub(super) fn parse_single(text: &str) -> Result<AccessToken, TokenError> {
    let secret = text.trim();
    check_secret(secret)?;
    Ok(AccessToken::from_secret(secret, single_token_principal()))
}

fn check_secret(secret: &str) -> Result<(), TokenError> {
    match secret {
        "" => Err(TokenError::Empty),
        secret if secret.len() > TOKEN_BYTES_MAX => Err(TokenError::TooLong),
        secret if !secret.bytes().all(|c| c.is_ascii_graphic()) => Err(TokenError::NotPrintable),
        _ => Ok(()),
    }
}

fn parse_callers(text: &str) -> Result<Vec<AccessToken>, TokenError> {
    let malformed = |place: &str, reason: &str| TokenError::Malformed {
        place: place.to_owned(),
        reason: reason.to_owned(),
    };
    let limits = ParseLimits { depth_max: 16, ..ParseLimits::default() };
    let doc = json::parse(text.into(), &limits).map_err(|error| malformed("", &error.to_string()))?;
    if !doc.root().is_object() {
        return Err(malformed("", r#"expected an object: `{"tokens": [...]}`"#));
    }
    for (key, _) in doc.root().members() {
        if !key.eq_str("tokens") {
            return Err(malformed("", "the only key of the object is `tokens`"));
        }
    }
    let entries = doc.root().get("tokens").filter(|node| node.kind() == json::NodeKind::Array);
    let entries = entries.ok_or_else(|| malformed("tokens", "expected an array of callers"))?;
    if entries.is_empty() {
        return Err(TokenError::NoCallers);
    }
    if entries.len() > TOKENS_MAX {
        return Err(malformed("tokens", &format!("more than {TOKENS_MAX} tokens")));
    }
    let mut seen = HashSet::new();
    let mut tokens = Vec::with_capacity(entries.len());
    for (index, entry) in entries.elements().enumerate() {
        let place = format!("tokens[{index}]");
        let token = parse_caller(entry).map_err(|problem| problem.at(&place))?;
        if !seen.insert(token.sha256) {
            return Err(malformed(&place, "another caller has the same token"));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// What is wrong with one caller.
enum CallerProblem {
    Key { key: &'static str, reason: String },
    Secret(TokenError),
}

impl CallerProblem {
    fn key(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Key { key, reason: reason.into() }
    }

    fn at(self, place: &str) -> TokenError {
        match self {
            Self::Key { key: "", reason } => TokenError::Malformed { place: place.to_owned(), reason },
            Self::Key { key, reason } => TokenError::Malformed { place: format!("{place}.{key}"), reason },
            Self::Secret(error) => {
                TokenError::Malformed { place: format!("{place}.token"), reason: error.to_string() }
            }
        }
    }
}

const KEYS: [&str; 6] = ["token", "sha256", "subject", "scopes", "claims", "expires"];

fn parse_caller(entry: Node<'_>) -> Result<AccessToken, CallerProblem> {
    if !entry.is_object() {
        return Err(CallerProblem::key("", "expected an object with `token` and `subject`"));
    }
    if entry.members().any(|(key, _)| !KEYS.iter().any(|known| key.eq_str(known))) {
        return Err(CallerProblem::key("", format!("unknown key; the keys are {}", KEYS.join(", "))));
    }
    let text = |key: &'static str| match entry.get(key) {
        None => Ok(None),
        Some(node) => node.str().map(Some).ok_or_else(|| CallerProblem::key(key, "expected a text")),
    };
    let subject =
        text("subject")?.ok_or_else(|| CallerProblem::key("subject", "missing: who is the caller?"))?;
    let identity_problem = |key: &'static str| {
        move |error: spile_core::IdentityError| CallerProblem::key(key, error.to_string())
    };
    let mut identity =
        Identity::new(Principal::LOCAL_ISSUER, &subject).map_err(identity_problem("subject"))?;
    if let Some(scopes) = entry.get("scopes") {
        let scopes: Option<Vec<_>> = match scopes.kind() {
            json::NodeKind::Array => scopes.elements().map(|scope| scope.str()).collect(),
            _ => None,
        };
        let scopes = scopes.ok_or_else(|| CallerProblem::key("scopes", "expected an array of texts"))?;
        identity =
            identity.with_scopes(scopes.iter().map(AsRef::as_ref)).map_err(identity_problem("scopes"))?;
    }
    if let Some(claims) = entry.get("claims") {
        let mut compact = Vec::new();
        claims.write_compact(&mut compact);
        identity =
            identity.with_claims(Json::from_written_bytes(compact)).map_err(identity_problem("claims"))?;
    }
    let expires_ms = text("expires")?.map(|expires| parse_expiry(&expires)).transpose()?;
    let principal = Principal::Named(Arc::new(identity.with_expiry(expires_ms)));
    match (text("token")?, text("sha256")?) {
        (Some(secret), None) => {
            check_secret(&secret).map_err(CallerProblem::Secret)?;
            Ok(AccessToken::from_secret(&secret, principal))
        }
        (None, Some(digest)) => {
            let sha256 = parse_hex(digest.to_ascii_lowercase().as_bytes())
                .ok_or_else(|| CallerProblem::key("sha256", "expected 64 hexadecimal digits"))?;
            Ok(AccessToken { sha256, chars: None, principal })
        }
        (None, None) => Err(CallerProblem::key("token", "missing; give `token` or its `sha256`")),
        (Some(_), Some(_)) => Err(CallerProblem::key("", "give either `token` or `sha256`, not both")),
    }
}

/// A moment with its offset, or a date: the start of that day in UTC.
fn parse_expiry(text: &str) -> Result<u64, CallerProblem> {
    let moment = Temporal::parse(text.as_bytes()).filter(|moment| match moment {
        Temporal::Date(_) => true,
        Temporal::DateTime(at) => at.offset.is_some(),
    });
    let milliseconds = moment.and_then(|moment| u64::try_from(moment.sort_key().0).ok()).map(|s| s * 1000);
    milliseconds.ok_or_else(|| {
        CallerProblem::key("expires", "expected a date or a time with its offset, as `2027-01-31T12:00:00Z`")
    })
}

impl AccessToken {
    pub(super) fn from_secret(secret: &str, principal: Principal) -> Self {
        Self { sha256: sha256(secret.as_bytes()), chars: Some(secret.chars().count()), principal }
    }
}

#[cfg(test)]
mod tests {
    use spile_core::Principal;

    use super::{AccessToken, TokenError, parse, sha256};

    fn check(text: &str) -> Result<Vec<AccessToken>, String> {
        parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn callers_have_a_subject_scopes_claims_and_an_expiry() {
        let digest: String =
            sha256(b"hidden-from-the-file").iter().map(|byte| format!("{byte:02X}")).collect();
        let tokens = check(&format!(
            r#"{{"tokens":[
                {{"token":"0123456789abcdef","subject":"ada","scopes":["read","write"],"claims":{{"team":"sales"}}}},
                {{"sha256":"{digest}","subject":"bob","expires":"2027-01-01"}},
                {{"token":"fedcba9876543210","subject":"ada","expires":"1970-01-01T01:00:01+01:00"}}]}}"#
        ));
        let tokens = tokens.expect("three tokens");
        let identity = |index: usize| match &tokens[index].principal {
            Principal::Named(identity) => identity.clone(),
            Principal::Anonymous => panic!("a caller has a name"),
        };
        let ada = identity(0);
        assert_eq!((ada.subject(), ada.issuer()), ("ada", "local"));
        assert!(ada.has_scope("write") && !ada.has_scope("admin"));
        assert_eq!(ada.claims().map(json::Json::as_str), Some(r#"{"team":"sales"}"#));
        assert_eq!(ada.expires_ms(), None);
        assert_eq!(tokens[0].principal, tokens[2].principal, "one caller may have two tokens");
        assert_eq!(identity(1).expires_ms(), Some(1_798_761_600_000));
        assert_eq!(identity(2).expires_ms(), Some(1000));
        assert_eq!((tokens[1].sha256, tokens[1].chars), (sha256(b"hidden-from-the-file"), None));
    }

    #[test]
    fn the_example_in_the_documentation_is_a_token_file() {
        let page = include_str!("../../../../docs/access.md");
        let example =
            page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let tokens = check(example).expect("a token file");
        let names: Vec<String> = tokens.iter().map(|token| token.principal.display_name()).collect();
        assert_eq!(names, ["ada", "nightly-report"]);
    }

    #[test]
    fn a_malformed_file_says_where_and_repeats_no_value() {
        for (text, expected) in [
            (r#"{"#, "not valid JSON at byte 1"),
            (r#"{}"#, "`tokens`: expected an array of callers"),
            (r#"[{"token":"s3cret","subject":"ada"}]"#, r#"expected an object: `{"tokens": [...]}`"#),
            ("\u{feff}{}", "`tokens`: expected an array of callers"),
            (r#"{"tokens":{"s3cret":1}}"#, "`tokens`: expected an array of callers"),
            (r#"{"tokens":[]}"#, "`tokens`: the list is empty; add at least one token"),
            (r#"{"tokens":[],"s3cret":1}"#, "the only key of the object is `tokens`"),
            (r#"{"tokens":["s3cret"]}"#, "`tokens[0]`: expected an object with `token` and `subject`"),
            (r#"{"tokens":[{"token":"s3cret"}]}"#, "`tokens[0].subject`: missing: who is the caller?"),
            (r#"{"tokens":[{"token":"s3cret","subject":""}]}"#, "`tokens[0].subject`: the subject is empty"),
            (r#"{"tokens":[{"subject":"ada"}]}"#, "`tokens[0].token`: missing; give `token` or its `sha256`"),
            (r#"{"tokens":[{"token":7,"subject":"ada"}]}"#, "`tokens[0].token`: expected a text"),
            (r#"{"tokens":[{"token":"a s3cret","subject":"ada"}]}"#, "clients cannot send"),
            (r#"{"tokens":[{"sha256":"s3cret","subject":"ada"}]}"#, "expected 64 hexadecimal digits"),
            (r#"{"tokens":[{"token":"s3cret","sha256":"00","subject":"ada"}]}"#, "not both"),
            (r#"{"tokens":[{"token":"s3cret","subject":"ada","name":"x"}]}"#, "unknown key"),
            (r#"{"tokens":[{"token":"s3cret","subject":"ada","subject":"bob"}]}"#, "duplicate key"),
            (
                r#"{"tokens":[{"token":"s3cret","subject":"ada","scopes":"s3cret"}]}"#,
                "`tokens[0].scopes`: expected an array",
            ),
            (
                r#"{"tokens":[{"token":"s3cret","subject":"ada","claims":["s3cret"]}]}"#,
                "`tokens[0].claims`: the claims are not an object",
            ),
            (
                r#"{"tokens":[{"token":"s3cret","subject":"ada","expires":"tomorrow"}]}"#,
                "`tokens[0].expires`: expected a date",
            ),
            (
                r#"{"tokens":[{"token":"s3cret","subject":"ada","expires":"2027-01-01T00:00:00"}]}"#,
                "with its offset",
            ),
            (
                r#"{"tokens":[{"token":"s3cret","subject":"a"},{"token":"s3cret","subject":"b"}]}"#,
                "`tokens[1]`: another caller has the same token",
            ),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn one_token_may_begin_with_any_character() {
        for text in ["[0123456789abcdef", "\u{feff}\"0123456789abcdef\"\r\n"] {
            assert_eq!(check(text).expect("a token").len(), 1);
        }
    }

    #[test]
    fn a_file_may_be_large_but_not_without_bounds() {
        let entry = |n: usize| format!(r#"{{"token":"token-{n}","subject":"ada"}}"#);
        let file = |count: usize| {
            format!(r#"{{"tokens":[{}]}}"#, (0..count).map(entry).collect::<Vec<_>>().join(","))
        };
        assert_eq!(check(&file(super::TOKENS_MAX)).map(|tokens| tokens.len()), Ok(super::TOKENS_MAX));
        assert!(check(&file(super::TOKENS_MAX + 1)).expect_err("too many").contains("more than 10000"));
        assert!(matches!(super::parse_single("two\nlines"), Err(TokenError::NotPrintable)));
    }
}
