//! The address of a server, parsed.

use std::path::PathBuf;

use url::Url;

use crate::redact;

/// The address and transport of a server.
#[derive(Debug, Clone)]
pub enum Target {
    /// `http:` or `https:`. Falls back to HTTP+SSE if the server only supports that.
    Http(Url),
    /// HTTP+SSE, the transport of the oldest protocol version.
    Sse(Url),
    /// `ws:` or `wss:`.
    WebSocket(Url),
    /// `unix:`: one message per line on a unix socket.
    Unix(PathBuf),
    /// `http+unix://<path, percent-encoded>/mcp`: HTTP on a unix socket.
    HttpUnix { socket: PathBuf, url: Url },
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    #[error("`{0}` is not a URL; expected something like `http://127.0.0.1:3333/mcp`")]
    InvalidUrl(String),
    #[error(
        "the scheme `{0}:` is not supported; use `http:`, `https:`, `ws:`, `wss:`, `unix:` or `http+unix:`"
    )]
    UnsupportedScheme(String),
    #[error("a URL must not contain a user name or password; use a header or a token file")]
    Credentials,
    #[error("`{0}` has no socket path; expected something like `unix:/run/user/1000/spile.sock`")]
    MissingSocketPath(String),
}

impl Target {
    pub fn parse(address: &str) -> Result<Self, TargetError> {
        if let Some(path) = address.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(TargetError::MissingSocketPath(address.to_owned())),
                path => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let url = Url::parse(address).map_err(|_| TargetError::InvalidUrl(address.to_owned()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        match url.scheme() {
            "http+unix" if has_host => Self::parse_http_unix(address, &url),
            "http+unix" => Err(TargetError::MissingSocketPath(address.to_owned())),
            "http" | "https" | "ws" | "wss" if !has_host => Err(TargetError::InvalidUrl(address.to_owned())),
            "http" | "https" => Ok(Self::Http(url)),
            "ws" | "wss" => Ok(Self::WebSocket(url)),
            other if address.contains("://") => Err(TargetError::UnsupportedScheme(other.to_owned())),
            _ => Err(TargetError::InvalidUrl(address.to_owned())),
        }
    }

    fn parse_http_unix(address: &str, url: &Url) -> Result<Self, TargetError> {
        let host = url.host_str().unwrap_or_default();
        let socket =
            percent_decode(host).ok_or_else(|| TargetError::MissingSocketPath(address.to_owned()))?;
        let path = if url.path().is_empty() { "/mcp" } else { url.path() };
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let url = Url::parse(&format!("http://localhost{path}{query}"))
            .map_err(|_| TargetError::InvalidUrl(address.to_owned()))?;
        Ok(Self::HttpUnix { socket: PathBuf::from(socket), url })
    }
}

/// The address, without query values.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(url) | Self::Sse(url) | Self::WebSocket(url) => {
                f.write_str(&redact::address(url.as_str()))
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::HttpUnix { socket, url } => write!(f, "{} on {}", url.path(), socket.display()),
        }
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::Target;

    fn check(address: &str, expected: &str) {
        let got = match Target::parse(address) {
            Ok(Target::Http(url)) => format!("http {url}"),
            Ok(Target::Sse(url)) => format!("sse {url}"),
            Ok(Target::WebSocket(url)) => format!("ws {url}"),
            Ok(Target::Unix(path)) => format!("unix {}", path.display()),
            Ok(Target::HttpUnix { socket, url }) => format!("{} {url}", socket.display()),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn supported_addresses_are_parsed() {
        check("http://127.0.0.1:3333/mcp", "http http://127.0.0.1:3333/mcp");
        check("https://example.com/mcp?x=1", "http https://example.com/mcp?x=1");
        check("ws://[::1]:3333/mcp", "ws ws://[::1]:3333/mcp");
        check("unix:/run/s.sock", "unix /run/s.sock");
        check("unix:///run/s.sock", "unix /run/s.sock");
        check("http+unix://%2Frun%2Fs.sock/mcp/a?b", "/run/s.sock http://localhost/mcp/a?b");
        check("http+unix://%2Frun%2Fs.sock", "/run/s.sock http://localhost/mcp");
    }

    #[test]
    fn unsupported_addresses_are_rejected_with_a_reason() {
        let reason = "is not a URL; expected something like `http://127.0.0.1:3333/mcp`";
        check("customers.csv", &format!("`customers.csv` {reason}"));
        check("localhost:3333/mcp", &format!("`localhost:3333/mcp` {reason}"));
        check("", &format!("`` {reason}"));
        check("http://", &format!("`http://` {reason}"));
        check(
            "ftp://example.com",
            "the scheme `ftp:` is not supported; use `http:`, `https:`, `ws:`, `wss:`, `unix:` or `http+unix:`",
        );
        check(
            "http://me:secret@example.com/",
            "a URL must not contain a user name or password; use a header or a token file",
        );
        check(
            "unix:",
            "`unix:` has no socket path; expected something like `unix:/run/user/1000/spile.sock`",
        );
        check(
            "http+unix://%2/mcp",
            &format!("`http+unix://%2/mcp` {reason}").replace(
                reason,
                "has no socket path; expected something like `unix:/run/user/1000/spile.sock`",
            ),
        );
    }
}
