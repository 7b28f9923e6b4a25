//! Admission of a request: `Host`, `Origin` and the bearer token, in that order, before the body is read.
//!
//! A web page can make its own name resolve to this machine (DNS rebinding) or send a cross-site request.
//! The first has a foreign `Host`, the second a foreign `Origin`. The guard checks each on its own: a
//! combined check would pass a request in which only one of them is wrong.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::HeaderValue;
use spile_core::Principal;
use wire::HeaderField;

use crate::access_tokens::{AccessTokens, GrantId, TokenCheck, TokenError};
use crate::auth_throttle::AuthThrottle;
use crate::request_headers::RequestHeaders;

/// The rules that a request must satisfy.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Host names that clients may use besides the loopback ones; lower case, without a port.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call from a browser, as browsers send them: `https://app.example`.
    pub allowed_origins: Vec<String>,
    pub tokens: Option<AccessTokens>,
    /// Slows down clients that guess the token.
    pub throttle: AuthThrottle,
}

/// Who can reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Only this machine.
    Local,
    /// Other machines too.
    Public,
}

/// Why the guard refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardRefusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) retry_after_ms: Option<u64>,
}

impl GuardRefusal {
    fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason, retry_after_ms: None }
    }
}

/// Our end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LocalEndpoint {
    Address(IpAddr),
    /// A unix socket. It has no host name, so a client may send an empty `Host`.
    #[cfg(unix)]
    UnixSocket,
}

/// How the `Origin` of a request relates to this server.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Not a browser, or a page with this server's own origin.
    Same,
    /// A page that the operator allows. The response needs CORS headers.
    Allowed(HeaderValue),
}

impl Guard {
    /// A guard for a server at an address. Refuses a token that is too short for a public address.
    pub fn new(
        allowed_hosts: Vec<String>,
        allowed_origins: Vec<String>,
        tokens: Option<AccessTokens>,
        exposure: Exposure,
    ) -> Result<Self, TokenError> {
        let tokens = tokens.map(|tokens| tokens.for_exposure(exposure)).transpose()?;
        Ok(Self { allowed_hosts, allowed_origins, tokens, throttle: AuthThrottle::default() })
    }

    /// Checks the `Host` and `Origin` headers: who may reach this server, and from which web pages. `authority` is what
    /// the request line names, if it does.
    pub(crate) fn check_host_and_origin<'h>(
        &self,
        authority: Option<&'h str>,
        headers: &RequestHeaders<'h>,
        local: LocalEndpoint,
    ) -> Result<Origin, GuardRefusal> {
        let host = self.check_host(authority, headers, local)?;
        self.check_origin(headers, host)
    }

    fn check_host<'h>(
        &self,
        authority: Option<&'h str>,
        headers: &RequestHeaders<'h>,
        local: LocalEndpoint,
    ) -> Result<&'h str, GuardRefusal> {
        let bad_request = |reason| GuardRefusal::new(StatusCode::BAD_REQUEST, reason);
        let header = match headers.host {
            HeaderField::Repeated => return Err(bad_request("more than one Host header")),
            HeaderField::Absent => None,
            HeaderField::Single(value) => {
                Some(std::str::from_utf8(value).map_err(|_| bad_request("malformed Host header"))?)
            }
        };
        // HTTP/2 sends the host as `:authority`. If there is a Host header too, both must agree.
        let host = match (authority, header) {
            (Some(authority), Some(header)) if !authority.eq_ignore_ascii_case(header) => {
                return Err(bad_request("Host differs from the request line"));
            }
            (Some(authority), _) => authority,
            (None, Some(header)) => header,
            (None, None) => return Err(bad_request("missing Host header")),
        };
        #[cfg(unix)]
        if let (LocalEndpoint::UnixSocket, "") = (local, host) {
            return Ok(host);
        }
        let name = parse_host(host).ok_or(bad_request("malformed Host header"))?;
        if self.is_allowed_host(name, local) {
            Ok(host)
        } else {
            let reason = "this Host is not allowed; the operator can allow it with `--allow-host`";
            Err(GuardRefusal::new(StatusCode::FORBIDDEN, reason))
        }
    }

    fn is_allowed_host(&self, host: &str, local: LocalEndpoint) -> bool {
        if host == "127.0.0.1" || host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        // DNS rebinding needs a name. The address that the connection arrived at is always safe.
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

    fn check_origin(&self, headers: &RequestHeaders<'_>, host: &str) -> Result<Origin, GuardRefusal> {
        let denied = |reason| Err(GuardRefusal::new(StatusCode::FORBIDDEN, reason));
        let origin = match headers.origin {
            HeaderField::Repeated => return denied("more than one Origin header"),
            HeaderField::Absent => match headers.fetch_site {
                // A browser that omits `Origin` still marks a cross-site request here.
                HeaderField::Single(b"cross-site" | b"same-site") => {
                    return denied("cross-site requests are not allowed");
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
        denied("this Origin is not allowed; the operator can allow it with `--allow-origin`")
    }

    /// The caller of a request, and the grant that its token stands for. Without configured tokens every caller is
    /// anonymous.
    pub(crate) fn authenticate(
        &self,
        headers: &RequestHeaders<'_>,
        address: Option<IpAddr>,
    ) -> Result<(Principal, Option<GrantId>), GuardRefusal> {
        let Some(tokens) = &self.tokens else { return Ok((Principal::Anonymous, None)) };
        self.authenticate_with(tokens, headers, address)
    }

    /// The caller of a request that will be admitted; `None` if it must be refused. Counts nothing: whoever refuses it
    /// calls [`Guard::authenticate`].
    pub(crate) fn recognize(
        &self,
        headers: &RequestHeaders<'_>,
        address: Option<IpAddr>,
    ) -> Option<(Principal, Option<GrantId>)> {
        let Some(tokens) = &self.tokens else { return Some((Principal::Anonymous, None)) };
        let given = bearer_token(headers).ok()?;
        if address.is_some_and(|address| self.throttle.delay(address).is_some()) {
            return None;
        }
        match tokens.check(given) {
            TokenCheck::Accepted(principal, grant) => Some((principal, Some(grant))),
            TokenCheck::NoLongerValid | TokenCheck::Unknown => None,
        }
    }

    /// Changes whenever a head that was admitted might be refused now, but for the expiry of the caller itself. A memo of
    /// an admission must be tagged with the value from before the checks.
    #[inline]
    pub(crate) fn generation(&self) -> GuardGeneration {
        match &self.tokens {
            None => GuardGeneration::default(),
            Some(tokens) => {
                GuardGeneration { tokens: tokens.generation(), throttle: self.throttle.generation() }
            }
        }
    }

    /// The same with other tokens than those of callers.
    pub(crate) fn authenticate_with(
        &self,
        tokens: &AccessTokens,
        headers: &RequestHeaders<'_>,
        address: Option<IpAddr>,
    ) -> Result<(Principal, Option<GrantId>), GuardRefusal> {
        self.check_token(tokens, bearer_token(headers)?, address)
    }

    /// Who sent a request that was refused, for the log. Not a check: a wrong token is nobody, and is not counted.
    #[cold]
    pub(crate) fn known_principal(&self, headers: &RequestHeaders<'_>) -> Option<Principal> {
        match self.tokens.as_ref()?.check(bearer_token(headers).ok()?) {
            TokenCheck::Accepted(principal, _) => Some(principal),
            TokenCheck::NoLongerValid | TokenCheck::Unknown => None,
        }
    }

    /// The same for a page, which only reads: a browser sends the token as the password of Basic authentication, or as
    /// the name if there is no password.
    pub(crate) fn authenticate_page(
        &self,
        headers: &RequestHeaders<'_>,
        address: Option<IpAddr>,
    ) -> Result<(Principal, Option<GrantId>), GuardRefusal> {
        let Some(tokens) = &self.tokens else { return Ok((Principal::Anonymous, None)) };
        match authorization(headers)?.split_at_checked(6) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"basic ") => {
                let malformed = || GuardRefusal::new(StatusCode::UNAUTHORIZED, TOKEN_REQUIRED);
                let pair = STANDARD.decode(given.trim_ascii()).map_err(|_| malformed())?;
                let colon = memchr::memchr(b':', &pair).ok_or_else(malformed)?;
                let (name, password) = (&pair[..colon], &pair[colon + 1..]);
                self.check_token(tokens, if password.is_empty() { name } else { password }, address)
            }
            _ => self.authenticate(headers, address),
        }
    }

    fn check_token(
        &self,
        tokens: &AccessTokens,
        given: &[u8],
        address: Option<IpAddr>,
    ) -> Result<(Principal, Option<GrantId>), GuardRefusal> {
        let denied = |reason| GuardRefusal::new(StatusCode::UNAUTHORIZED, reason);
        // A unix socket has no address, and only the same user can connect to it.
        if let Some(delay) = address.and_then(|address| self.throttle.delay(address)) {
            return Err(GuardRefusal {
                status: StatusCode::TOO_MANY_REQUESTS,
                reason: "too many wrong bearer tokens from this address; try again later",
                retry_after_ms: Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            });
        }
        match tokens.check(given) {
            TokenCheck::Accepted(principal, grant) => Ok((principal, Some(grant))),
            TokenCheck::NoLongerValid => Err(denied("the bearer token is no longer valid")),
            TokenCheck::Unknown => {
                if let Some(address) = address {
                    self.throttle.record_wrong(address, given);
                }
                Err(denied("the bearer token is wrong"))
            }
        }
    }
}

const TOKEN_REQUIRED: &str = "a bearer token is required";

/// A state of what the guard decides by: see [`Guard::generation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GuardGeneration {
    tokens: u64,
    throttle: u64,
}

fn bearer_token<'h>(headers: &RequestHeaders<'h>) -> Result<&'h [u8], GuardRefusal> {
    match authorization(headers)?.split_at_checked(7) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") => Ok(given.trim_ascii()),
        _ => Err(GuardRefusal::new(StatusCode::UNAUTHORIZED, TOKEN_REQUIRED)),
    }
}

fn authorization<'h>(headers: &RequestHeaders<'h>) -> Result<&'h [u8], GuardRefusal> {
    let denied = |reason| Err(GuardRefusal::new(StatusCode::UNAUTHORIZED, reason));
    match headers.authorization {
        HeaderField::Absent => denied(TOKEN_REQUIRED),
        HeaderField::Repeated => denied("more than one Authorization header"),
        HeaderField::Single(value) => Ok(value),
    }
}

/// Whether an origin has our host and port. `null` never does.
fn is_same_origin(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| !authority.is_empty() && authority.eq_ignore_ascii_case(host))
}

/// The name or address in `host[:port]`, an IPv6 address without brackets; `None` if malformed.
fn parse_host(host: &str) -> Option<&str> {
    let (name, after, is_name): (&str, &str, fn(u8) -> bool) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            (name, after, |c| c.is_ascii_hexdigit() || matches!(c, b':' | b'.'))
        }
        None => {
            let (name, after) = host.split_at(host.find(':').unwrap_or(host.len()));
            (name, after, |c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_'))
        }
    };
    let port = if after.is_empty() { "" } else { after.strip_prefix(':')? };
    let sound = !name.is_empty() && name.bytes().all(is_name) && port.bytes().all(|c| c.is_ascii_digit());
    sound.then_some(name)
}
