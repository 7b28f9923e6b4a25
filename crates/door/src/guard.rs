//! Who may come in: `Host`, `Origin` and the bearer token, in that order, before anything else is read.
//!
//! A page in a browser can make its own name point at this machine (DNS rebinding) or send a request here
//! from afar; the first has a foreign `Host`, the second a foreign `Origin`. Each is checked on its own:
//! a check of both together passes when only one is wrong.

use std::net::IpAddr;

use call::Principal;
use http::header::HeaderValue;
use http::uri::Authority;
use http::{StatusCode, Uri};
use ring::digest;
use subtle::ConstantTimeEq;
use wire::Head;

use crate::seen::Seen;

/// What is allowed in.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Names under which we may be reached, beside the loopback ones; lower case, no port.
    pub hosts: Vec<String>,
    /// Origins that may call from a browser, as they are sent: `https://app.example`.
    pub origins: Vec<String>,
    pub token: Option<Token>,
}

/// A secret, kept as its digest only.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    pub fn new(secret: &str) -> Self {
        Self(sha256(secret.as_bytes()))
    }

    /// Takes the same time whatever is wrong with `given`.
    fn is(&self, given: &[u8]) -> bool {
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
pub(crate) struct Denied {
    pub(crate) status: StatusCode,
    pub(crate) why: &'static str,
}

/// Where a connection arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Local {
    Address(IpAddr),
    /// A unix socket, which has no name of its own: a client that names no host means it.
    #[cfg(unix)]
    Socket,
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
    pub(crate) fn admit<'h>(&self, uri: &'h Uri, seen: &Seen<'h>, local: Local) -> Result<Origin, Denied> {
        let host = self.check_host(uri, seen, local)?;
        self.check_origin(seen, host)
    }

    fn check_host<'h>(&self, uri: &'h Uri, seen: &Seen<'h>, local: Local) -> Result<&'h str, Denied> {
        let bad = |why| Denied { status: StatusCode::BAD_REQUEST, why };
        let header = match seen.host {
            Head::Twice => return Err(bad("more than one Host header")),
            Head::Absent => None,
            Head::One(value) => Some(std::str::from_utf8(value).map_err(|_| bad("malformed Host header"))?),
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
        if let (Local::Socket, "") = (local, whole) {
            return Ok(whole);
        }
        let name = host_name(whole).ok_or(bad("malformed Host header"))?;
        if self.knows_host(name, local) {
            Ok(whole)
        } else {
            let why = "this Host is not allowed here; the operator can allow it with --allow-host";
            Err(Denied { status: StatusCode::FORBIDDEN, why })
        }
    }

    fn knows_host(&self, host: &str, local: Local) -> bool {
        if host == "127.0.0.1" || host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        // An address cannot be rebound: reaching us by the very address we were reached at is no trick.
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let is_local = matches!(local, Local::Address(local) if local == address);
                address.is_loopback() || is_local || self.lists(host)
            }
            Err(_) => self.lists(host),
        }
    }

    fn lists(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    fn check_origin(&self, seen: &Seen<'_>, host: &str) -> Result<Origin, Denied> {
        let denied = |why| Err(Denied { status: StatusCode::FORBIDDEN, why });
        let origin = match seen.origin {
            Head::Twice => return denied("more than one Origin header"),
            Head::Absent => match seen.fetch_site {
                // A browser that leaves out the Origin still says that the page is not ours.
                Head::One(b"cross-site" | b"same-site") => {
                    return denied("requests from other sites are not allowed here");
                }
                Head::One(_) | Head::Absent | Head::Twice => return Ok(Origin::Same),
            },
            Head::One(origin) => origin,
        };
        if self.origins.iter().any(|allowed| allowed.as_bytes() == origin)
            && let Ok(origin) = HeaderValue::from_bytes(origin)
        {
            return Ok(Origin::Allowed(origin));
        }
        if is_same(origin, host) {
            return Ok(Origin::Same);
        }
        denied("this Origin is not allowed here; the operator can allow it with --allow-origin")
    }

    /// Whose request it is. Without a token everybody is nobody in particular.
    pub(crate) fn identify(&self, seen: &Seen<'_>) -> Result<Principal, Denied> {
        let Some(token) = &self.token else { return Ok(Principal::Anonymous) };
        let denied = |why| Denied { status: StatusCode::UNAUTHORIZED, why };
        let value = match seen.authorization {
            Head::Absent => return Err(denied("a bearer token is required")),
            Head::Twice => return Err(denied("more than one Authorization header")),
            Head::One(value) => value,
        };
        let given = match value.split_at_checked(7) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") => given.trim_ascii(),
            _ => return Err(denied("a bearer token is required")),
        };
        if token.is(given) {
            Ok(Principal::Named("token".into()))
        } else {
            Err(denied("the bearer token is wrong"))
        }
    }
}

/// A page of ours: the same host and port. `null` is never ours.
fn is_same(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    bare.is_some_and(|bare| !bare.is_empty() && bare.eq_ignore_ascii_case(host))
}

/// The name or address in `host[:port]`, an IPv6 address without its brackets; `None` if it is neither.
fn host_name(whole: &str) -> Option<&str> {
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
