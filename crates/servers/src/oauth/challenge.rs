//! `WWW-Authenticate`: what a server says about signing in.

/// The parameters of a `Bearer` or `DPoP` challenge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Challenge {
    pub error: Option<String>,
    /// The scopes that the refused operation needs.
    pub scopes: Option<Vec<String>>,
    /// Where the metadata of the protected resource is (RFC 9728).
    pub resource_metadata: Option<String>,
}

impl Challenge {
    /// Reads the first `Bearer` or `DPoP` challenge of a header, which may have several of any scheme.
    pub fn parse(header: &str) -> Option<Self> {
        let mut rest = header;
        loop {
            let (scheme, after) = token(rest.trim_start_matches([' ', '\t', ',']))?;
            let is_token = ["bearer", "dpop"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
            let (params, after) = parameters(after);
            if is_token {
                let find = |name: &str| {
                    let found = params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.clone())
                };
                let scopes = find("scope").map(|all| all.split_whitespace().map(str::to_owned).collect());
                return Some(Self {
                    error: find("error"),
                    scopes,
                    resource_metadata: find("resource_metadata"),
                });
            }
            rest = after;
        }
    }

    /// The operation needs more scopes than the token has.
    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// `name=value` pairs, up to the next scheme.
fn parameters(text: &str) -> (Vec<(String, String)>, &str) {
    let mut params = Vec::new();
    let mut rest = text;
    loop {
        let start = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = token(start) else { return (params, skip_token68(start)) };
        let Some(value) = after.trim_start().strip_prefix('=') else { return (params, start) };
        let value = value.trim_start();
        match value.strip_prefix('"') {
            Some(quoted) => {
                let (text, after) = unquote(quoted);
                params.push((name.to_owned(), text));
                rest = after;
            }
            None => {
                let Some((text, after)) = token(value) else { return (params, skip_token68(value)) };
                params.push((name.to_owned(), text.to_owned()));
                rest = after;
            }
        }
    }
}

/// Skips what is neither a token nor a separator, so that the reader always moves on.
fn skip_token68(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

fn unquote(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (out, &text[at + 1..]),
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::Challenge;

    /// Metadata URL, scopes and error.
    type Expected<'e> = (Option<&'e str>, Option<&'e [&'e str]>, Option<&'e str>);

    fn check(header: &str, expected: Option<Expected<'_>>) {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let expected = expected.map(|(error, scopes, resource_metadata)| Challenge {
            error: owned(error),
            scopes: scopes.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
            resource_metadata: owned(resource_metadata),
        });
        assert_eq!(Challenge::parse(header), expected, "{header}");
    }

    #[test]
    fn challenges_are_read() {
        check("Bearer", Some((None, None, None)));
        check(
            r#"Bearer realm="a, b", error="insufficient_scope", scope="read write", resource_metadata="https://a/x""#,
            Some((Some("insufficient_scope"), Some(&["read", "write"]), Some("https://a/x"))),
        );
        check("bearer error=invalid_token", Some((Some("invalid_token"), None, None)));
        check(r#"Basic realm="x", Bearer scope="a""#, Some((None, Some(&["a"]), None)));
        check(r#"Negotiate abc==, Bearer scope="a\"b""#, Some((None, Some(&["a\"b"]), None)));
        check(
            r#"DPoP algs="ES256 PS256", error="use_dpop_nonce", resource_metadata="https://a/x""#,
            Some((Some("use_dpop_nonce"), None, Some("https://a/x"))),
        );
        check(r#"Bearer scope="""#, Some((None, Some(&[]), None)));
        check(r#"Bearer error = "x" , scope = y"#, Some((Some("x"), Some(&["y"]), None)));
        check(r#"Bearer error="open"#, Some((Some("open"), None, None)));
    }

    #[test]
    fn other_headers_have_none() {
        for header in ["", "Basic", "Basic realm=\"Bearer\"", ",,,", "=", "\"Bearer\""] {
            check(header, None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(header in any::<String>(), tail in "[Bb=, \"\\\\a-c]{0,40}") {
            Challenge::parse(&header);
            Challenge::parse(&tail);
        }
    }
}
