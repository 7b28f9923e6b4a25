//! The URL of a REST API: scheme, host and path, which no request leaves.

use std::fmt;

/// `https://api.example.com/v2`. Has no user, query or fragment, and no `/` at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RestUrl(String);

/// Why a text is not the URL of a REST API: what is wrong, and what to do.
pub type RestUrlError = (&'static str, &'static str);

impl RestUrl {
    /// Checks the form; whether the host exists is another question. No error repeats the text, which may hold a password.
    pub fn parse(text: &str) -> Result<Self, RestUrlError> {
        let help = "write `https://`, the host and perhaps a path: `https://api.example.com/v2`";
        let (scheme, rest) = text.split_once("://").ok_or(("this is not a URL", help))?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(("the URL of a REST API begins with `https://` or `http://`", help));
        }
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if host.contains('@') {
            return Err((
                "the URL has a user or a password",
                "remove it, and write `auth = { basic = { … } }`",
            ));
        }
        if text.contains(['?', '#']) {
            return Err(("the URL has a query or a fragment", "remove it, and write `query = { … }`"));
        }
        let is_host_char = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c) || !c.is_ascii();
        if host.is_empty() || !host.chars().all(is_host_char) {
            return Err(("the URL has no valid host", help));
        }
        let path = path.trim_end_matches('/');
        let is_dots = |segment: &str| matches!(segment, "" | "." | "..");
        let is_odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '\\' | '{' | '}' | '%');
        if path.contains(is_odd) || path.split('/').skip(1).any(is_dots) {
            return Err((
                "the path of the URL is not plain",
                "write it without blanks, `%`, braces, empty segments and dots",
            ));
        }
        Ok(Self(format!("{scheme}://{}{path}", host.to_lowercase())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn host(&self) -> &str {
        let rest = self.0.split_once("://").map_or(self.0.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl fmt::Display for RestUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::RestUrl;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_path() {
        for (text, expected) in [
            ("https://api.example.com/v2", "https://api.example.com/v2"),
            ("HTTPS://API.Example.com/v2/", "https://api.example.com/v2"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(RestUrl::parse(text).expect(text).as_str(), expected);
        }
        for text in [
            "",
            "api.example.com",
            "ftp://api.example.com",
            "https://",
            "https:///v2",
            "https://eve:secret@api.example.com",
            "https://api.example.com?key=secret",
            "https://api.example.com/v2#x",
            "https://api.example.com/../v2",
            "https://api.example.com/a//b",
            "https://api.example.com/a%2fb",
            "https://api.example.com/{tenant}",
            "https://api example.com",
        ] {
            let error = RestUrl::parse(text).expect_err(text);
            assert!(!format!("{error:?}").contains("secret"), "{text}");
        }
    }
}
