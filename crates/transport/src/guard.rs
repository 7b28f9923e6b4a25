//! Who may come in: `Host`, `Origin` and the bearer token, in that order, before anything else is read.
//!
//! A page in a browser can make its own name point at this machine (DNS rebinding) or send a request here
//! from afar; the first has a foreign `Host`, the second a foreign `Origin`. Each is checked on its own:
//! a check of both together passes when only one is wrong.

use std::net::IpAddr;

use http::header::HeaderValue;
use http::uri::Authority;
use http::{StatusCode, Uri};
use ring::digest;
use spile_core::Principal;
use subtle::ConstantTimeEq;
use wire::HeaderField;

use crate::request_headers::RequestHeaders;

/// What is allowed in.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Names under which we may be reached, beside the loopback ones; lower case, no port.
    pub allowed_hosts: Vec<String>,
    /// Origins that may call from a browser, as they are sent: `https://app.example`.
    pub allowed_origins: Vec<String>,
    pub token: Option<BearerToken>,
    /// Whether the endpoints of HTTP+SSE (2024-11-05) do not exist.
    pub refuse_sse: bool,
}

/// A secret, kept as its digest only.
#[derive(Clone)]
pub struct BearerToken([u8; 32]);

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl BearerToken {
    pub fn new(secret: &str) -> Self {
        Self(sha256(secret.as_bytes()))
    }

    /// Takes the same time whatever is wrong with `given`.
    fn matches(&self, given: &[u8]) -> bool {
        sha256(given).ct_eq(&self.0).into()
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

/// Why a request goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
}

/// Where a connection arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LocalEndpoint {
    Address(IpAddr),
    /// A unix socket, which has no name of its own: a client that names no host means it.
    #[cfg(unix)]
    UnixSocket,
}

/// How a browser stands to us.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// No browser, or a page that we served ourselves.
    Same,
    /// A page that the operator allows; it must be told so.
    Allowed(HeaderValue),
}

impl Guard {
    pub(crate) fn admit<'h>(
        &self,
        uri: &'h Uri,
        seen: &RequestHeaders<'h>,
        local: LocalEndpoint,
    ) -> Result<Origin, Denial> {
        let host = self.check_host(uri, seen, local)?;
        self.check_origin(seen, host)
    }

    fn check_host<'h>(
        &self,
        uri: &'h Uri,
        seen: &RequestHeaders<'h>,
        local: LocalEndpoint,
    ) -> Result<&'h str, Denial> {
        let bad = |why| Denial { status: StatusCode::BAD_REQUEST, reason: why };
        let header = match seen.host {
            HeaderField::Repeated => return Err(bad("more than one Host header")),
            HeaderField::Absent => None,
            HeaderField::Single(value) => {
                Some(std::str::from_utf8(value).map_err(|_| bad("malformed Host header"))?)
            }
        };
        // HTTP/2 names the host in the request line's stead; both must agree.
        let whole = match (uri.authority().map(Authority::as_str), header) {
            (Some(line), Some(header)) if !line.eq_ignore_ascii_case(header) => {
                return Err(bad("Host differs from the request line"));
            }
            (Some(line), _) => line,
            (None, Some(header)) => header,
            (None, None) => return Err(bad("missing Host header")),
        };
        #[cfg(unix)]
        if let (LocalEndpoint::UnixSocket, "") = (local, whole) {
            return Ok(whole);
        }
        let name = parse_host(whole).ok_or(bad("malformed Host header"))?;
        if self.is_allowed_host(name, local) {
            Ok(whole)
        } else {
            let why = "this Host is not allowed here; the operator can allow it with --allow-host";
            Err(Denial { status: StatusCode::FORBIDDEN, reason: why })
        }
    }

    fn is_allowed_host(&self, host: &str, local: LocalEndpoint) -> bool {
        if host == "127.0.0.1" || host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        // An address cannot be rebound: reaching us by the very address we were reached at is no trick.
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let is_local = matches!(local, LocalEndpoint::Address(local) if local == address);
                address.is_loopback() || is_local || self.is_configured_host(host)
            }
            Err(_) => self.is_configured_host(host),
        }
    }

    fn is_configured_host(&self, host: &str) -> bool {
        self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    fn check_origin(&self, seen: &RequestHeaders<'_>, host: &str) -> Result<Origin, Denial> {
        let denied = |why| Err(Denial { status: StatusCode::FORBIDDEN, reason: why });
        let origin = match seen.origin {
            HeaderField::Repeated => return denied("more than one Origin header"),
            HeaderField::Absent => match seen.fetch_site {
                // A browser that leaves out the Origin still says that the page is not ours.
                HeaderField::Single(b"cross-site" | b"same-site") => {
                    return denied("requests from other sites are not allowed here");
                }
                HeaderField::Single(_) | HeaderField::Absent | HeaderField::Repeated => {
                    return Ok(Origin::Same);
                }
            },
            HeaderField::Single(origin) => origin,
        };
        if self.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin)
            && let Ok(origin) = HeaderValue::from_bytes(origin)
        {
            return Ok(Origin::Allowed(origin));
        }
        if is_same_origin(origin, host) {
            return Ok(Origin::Same);
        }
        denied("this Origin is not allowed here; the operator can allow it with --allow-origin")
    }

    /// Whose request it is. Without a token everybody is nobody in particular.
    pub(crate) fn authenticate(&self, seen: &RequestHeaders<'_>) -> Result<Principal, Denial> {
        let Some(token) = &self.token else { return Ok(Principal::Anonymous) };
        let denied = |why| Denial { status: StatusCode::UNAUTHORIZED, reason: why };
        let value = match seen.authorization {
            HeaderField::Absent => return Err(denied("a bearer token is required")),
            HeaderField::Repeated => return Err(denied("more than one Authorization header")),
            HeaderField::Single(value) => value,
        };
        let given = match value.split_at_checked(7) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") => given.trim_ascii(),
            _ => return Err(denied("a bearer token is required")),
        };
        if token.matches(given) {
            Ok(Principal::Named("token".into()))
        } else {
            Err(denied("the bearer token is wrong"))
        }
    }
}

/// A page of ours: the same host and port. `null` is never ours.
fn is_same_origin(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    bare.is_some_and(|bare| !bare.is_empty() && bare.eq_ignore_ascii_case(host))
}

/// The name or address in `host[:port]`, an IPv6 address without its brackets; `None` if it is neither.
fn parse_host(whole: &str) -> Option<&str> {
    let (name, after, is_name): (&str, &str, fn(u8) -> bool) = match whole.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            (name, after, |c| c.is_ascii_hexdigit() || matches!(c, b':' | b'.'))
        }
        None => {
            let (name, after) = whole.split_at(whole.find(':').unwrap_or(whole.len()));
            (name, after, |c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_'))
        }
    };
    let port = if after.is_empty() { "" } else { after.strip_prefix(':')? };
    let sound = !name.is_empty() && name.bytes().all(is_name) && port.bytes().all(|c| c.is_ascii_digit());
    sound.then_some(name)
}
