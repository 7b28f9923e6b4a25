//! Hides secrets in URLs, command lines and headers as `***`, and decides by its name whether a value is a secret.

use std::borrow::Cow;

const MASK: &str = "***";

/// A URL with its query values, user name and password hidden. Only the server knows which query values are secrets.
pub fn address(address: &str) -> Cow<'_, str> {
    let (start, fragment) = address.split_at(address.find('#').unwrap_or(address.len()));
    let (place, query) = start.split_at(start.find('?').unwrap_or(start.len()));
    let host = place.find("://").map_or(0, |scheme| scheme + 3);
    let host_end = place[host..].find('/').map_or(place.len(), |slash| host + slash);
    let user = place[host..host_end].rfind('@').filter(|_| host > 0);
    if query.len() <= 1 && user.is_none() {
        return Cow::Borrowed(address);
    }
    let mut out = place[..host].to_owned();
    out.push_str(user.map_or("", |_| MASK));
    out.push_str(&place[user.map_or(host, |at| host + at)..]);
    for (nth, pair) in query.get(1..).into_iter().flat_map(|query| query.split('&')).enumerate() {
        out.push(if nth == 0 { '?' } else { '&' });
        out.push_str(&match pair.split_once('=') {
            Some((name, _)) => format!("{name}={MASK}"),
            None if pair.is_empty() => String::new(),
            None => MASK.to_owned(),
        });
    }
    Cow::Owned(out + fragment)
}

/// An argument of a command line, hidden if it contains a secret or follows an option that takes one.
pub(crate) fn argument<'w>(word: &'w str, before: Option<&str>) -> Cow<'w, str> {
    let is_option = |word: &str| word.starts_with('-');
    if before.is_some_and(|before| is_option(before) && is_secret_name(before)) && !is_option(word) {
        return Cow::Borrowed(MASK);
    }
    if word.contains("://") {
        return match word.split_once('=').filter(|(name, _)| !name.contains("://")) {
            Some((name, _)) if is_secret_name(name) => Cow::Owned(format!("{name}={MASK}")),
            Some((name, value)) => Cow::Owned(format!("{name}={}", address(value))),
            None => address(word),
        };
    }
    // `--token=x`, `TOKEN=x`, or a header as other programs take it: `Authorization: x`.
    match word.split_once('=').or_else(|| word.split_once(':')) {
        Some((name, value)) if is_secret_name(name) && !value.is_empty() => {
            let gap = if value.starts_with(' ') { " " } else { "" };
            Cow::Owned(format!("{}{gap}{MASK}", &word[..=name.len()]))
        }
        Some(_) | None => Cow::Borrowed(word),
    }
}

/// Whether a value of this name is a secret: `--token`, `API_KEY_2`, `dbPasswords`, `Authorization`.
pub fn is_secret_name(name: &str) -> bool {
    const SECRET_SUFFIXES: &[&str] = &[
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "key",
        "pass",
        "passphrase",
        "passwd",
        "password",
        "pat",
        "pwd",
        "secret",
        "token",
    ];
    let name = name.to_ascii_lowercase();
    // A name, not a sentence.
    let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let ends = |part: &str| SECRET_SUFFIXES.iter().any(|end| part.ends_with(end));
    // Also in the plural, or with a number.
    let is_one = |part: &str| {
        let part = part.trim_end_matches(|c: char| c.is_ascii_digit());
        ends(part) || part.strip_suffix('s').is_some_and(ends)
    };
    name.chars().all(is_name) && name.split(['-', '_', '.']).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::{address, argument, is_secret_name};

    #[test]
    fn values_in_a_query_are_hidden() {
        for (shown, expected) in [
            ("http://a/mcp", "http://a/mcp"),
            ("http://a/mcp?", "http://a/mcp?"),
            ("http://a/mcp?api_key=x", "http://a/mcp?api_key=***"),
            ("http://a/mcp?a=1&b=2=3&c#d", "http://a/mcp?a=***&b=***&***#d"),
            ("http://a/mcp?&a=", "http://a/mcp?&a=***"),
            ("ws://a?x", "ws://a?***"),
            ("http://u:p@a/b@c?d=e", "http://***@a/b@c?d=***"),
            ("unix:/run/a@b", "unix:/run/a@b"),
            ("http://a/#b?c=d", "http://a/#b?c=d"),
        ] {
            assert_eq!(address(shown), expected);
        }
    }

    #[test]
    fn secret_names_are_recognized() {
        for name in [
            "API_KEY",
            "API_KEYS",
            "apikey2",
            "GITHUB_TOKEN",
            "TOKEN_OF_DANA",
            "DB_PASSWORD1",
            "dbPasswords",
            "AWS_CREDENTIALS",
            "X-Auth-Token",
            "Set-Cookie",
            "proxy-authorization",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in
            ["", "PATH", "KEYBOARD", "DATA", "tokenizer", "PASSENGERS", "s", "2", "a key", "WWW-Authenticate"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secret_arguments_are_hidden() {
        for (words, expected) in [
            (&["x", "--port", "3"][..], "x --port 3"),
            (&["x", "--token", "s", "t"], "x --token *** t"),
            (&["x", "--token=s", "--API_KEY=s"], "x --token=*** --API_KEY=***"),
            (&["x", "-H", "Authorization: Bearer s"], "x -H Authorization: ***"),
            (&["x", "--header", "X-Api-Key:s"], "x --header X-Api-Key:***"),
            (&["x", "dbPassword=s"], "x dbPassword=***"),
            (&["x", "--no-auth", "--port", "3"], "x --no-auth --port 3"),
            (&["x", "key", "value"], "x key value"),
            (&["x", "--url=http://a/?b=c"], "x --url=http://a/?b=***"),
            (&["x", "postgres://u:p@a/b"], "x postgres://***@a/b"),
            (&["x", "--dsn", "postgres://u:p@a/b?sslkey=s"], "x --dsn postgres://***@a/b?sslkey=***"),
            (
                &["x", "C:/path", "a=b", "the token: it is in my hand"],
                "x C:/path a=b the token: it is in my hand",
            ),
        ] {
            let shown: Vec<_> = words
                .iter()
                .enumerate()
                .map(|(at, one)| argument(one, at.checked_sub(1).map(|before| words[before])))
                .collect();
            assert_eq!(shown.join(" "), expected);
        }
    }
}
