//! `ctx.fetch`: only to declared hosts, each redirect included. The addresses behind the names are the
//! network's to guard.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::Json;
use serde_json::Value;
use url::{Host, Url};

use super::{EffectFailure, EffectFuture, Permissions};

/// Makes one request. Follows no redirect, and connects to no address that the operator did not allow.
pub trait Network: Send + Sync {
    fn send(&self, request: HttpRequest) -> NetworkFuture;
}

pub type NetworkFuture = Pin<Box<dyn Future<Output = Result<HttpResponse, EffectFailure>> + Send>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    pub url: Url,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The response may not be larger.
    pub response_bytes_max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A host that may be reached: `api.example.com`, `*.example.com`, `api.example.com:8443`,
/// `http://localhost:3000`. Without a scheme it is https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    is_https: bool,
    /// Lower case; the part after `*.` if `includes_subdomains`.
    host: String,
    includes_subdomains: bool,
    /// `None` is the scheme's own port.
    port: Option<u16>,
}

impl HostRule {
    pub fn parse(text: &str) -> Option<Self> {
        let (is_https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return None,
            None => (true, text),
        };
        let (includes_subdomains, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        // The parser of URLs decides what a host is, so that both sides write it alike.
        let url = Url::parse(&format!("{}://{rest}/", if is_https { "https" } else { "http" })).ok()?;
        let is_plain =
            url.path() == "/" && url.query().is_none() && url.username().is_empty() && !rest.contains('/');
        let host = url.host_str().filter(|host| is_plain && !host.is_empty() && !host.contains('*'))?;
        Some(Self { is_https, host: host.to_owned(), includes_subdomains, port: url.port() })
    }

    pub fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let is_host = if self.includes_subdomains {
            // An address has no subdomains.
            matches!(url.host(), Some(Host::Domain(_)))
                && host
                    .strip_suffix(&self.host)
                    .is_some_and(|prefix| prefix.len() > 1 && prefix.ends_with('.'))
        } else {
            host == self.host
        };
        url.scheme() == (if self.is_https { "https" } else { "http" }) && is_host && url.port() == self.port
    }
}

const REDIRECTS_MAX: usize = 5;
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// Headers that belong to the connection, not to the author.
const CONNECTION_HEADERS: [&str; 9] = [
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
];
/// Headers that another origin must not see.
const CREDENTIAL_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectMode {
    Follow,
    Manual,
    Refuse,
}

pub(super) fn plan(
    permissions: &Arc<Permissions>,
    network: Option<&Arc<dyn Network>>,
    value: &Value,
) -> Result<EffectFuture, EffectFailure> {
    let request = read_request(value)?;
    check_host(permissions, &request.url)?;
    let redirects = match value["redirect"].as_str() {
        Some("manual") => RedirectMode::Manual,
        Some("error") => RedirectMode::Refuse,
        _ => RedirectMode::Follow,
    };
    let network = network.ok_or_else(|| EffectFailure::new("this server makes no requests"))?.clone();
    let permissions = permissions.clone();
    Ok(Box::pin(async move { follow(&permissions, &*network, request, redirects).await }))
}

async fn follow(
    permissions: &Permissions,
    network: &dyn Network,
    mut request: HttpRequest,
    redirects: RedirectMode,
) -> Result<Json, EffectFailure> {
    for hop in 0..=REDIRECTS_MAX {
        let response = network.send(request.clone()).await?;
        let location = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
        let is_redirect = matches!(response.status, 301 | 302 | 303 | 307 | 308);
        let (true, Some((_, location))) = (is_redirect, location) else {
            return Ok(describe(&request.url, hop > 0, &response));
        };
        match redirects {
            RedirectMode::Manual => return Ok(describe(&request.url, hop > 0, &response)),
            RedirectMode::Refuse => {
                return Err(EffectFailure::new("fetch: the server answered with a redirect"));
            }
            RedirectMode::Follow => {}
        }
        let target = request.url.join(location);
        let target =
            target.map_err(|_| EffectFailure::new("fetch: the server redirects to an invalid URL"))?;
        check_host(permissions, &target)?;
        if has_credentials(&target) {
            return Err(EffectFailure::new(
                "fetch: the server redirects to a URL with a user name or password",
            ));
        }
        if target.origin() != request.url.origin() {
            request.headers.retain(|(name, _)| !is_one_of(name, &CREDENTIAL_HEADERS));
        }
        let becomes_get = response.status == 303 && request.method != "HEAD"
            || matches!(response.status, 301 | 302) && request.method == "POST";
        if becomes_get {
            request.method = "GET".into();
            request.body.clear();
            request.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
        request.url = target;
    }
    Err(EffectFailure::new(format!("fetch: more than {REDIRECTS_MAX} redirects")))
}

fn check_host(permissions: &Permissions, url: &Url) -> Result<(), EffectFailure> {
    if permissions.network.iter().any(|rule| rule.allows(url)) {
        return Ok(());
    }
    if !matches!(url.scheme(), "http" | "https") {
        let message = format!("fetch: `{}:` URLs cannot be fetched; use http or https", url.scheme());
        return Err(EffectFailure::not_permitted(message));
    }
    let origin = url.origin().ascii_serialization();
    Err(EffectFailure::not_permitted(format!("fetch: `{origin}` is not declared in `permissions.network`")))
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

fn read_request(value: &Value) -> Result<HttpRequest, EffectFailure> {
    let url = Url::parse(value["url"].as_str().unwrap_or_default());
    let mut url = url.map_err(|_| EffectFailure::new("fetch: the URL is not valid"))?;
    if has_credentials(&url) {
        return Err(EffectFailure::new("fetch: the URL has a user name or password; use a header"));
    }
    url.set_fragment(None);
    let method = value["method"].as_str().unwrap_or("GET").to_owned();
    let is_token = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !is_token || matches!(method.as_str(), "CONNECT" | "TRACE" | "TRACK") {
        return Err(EffectFailure::new(format!("fetch: the method `{method}` is not supported")));
    }
    let mut headers = Vec::new();
    for pair in value["headers"].as_array().into_iter().flatten() {
        let part = |at: usize| pair[at].as_str().unwrap_or_default().to_owned();
        let (name, text) = (part(0), part(1).trim().to_owned());
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        if !is_name || text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(EffectFailure::new(format!(
                "fetch: the header `{}` is not valid",
                name.escape_default()
            )));
        }
        if is_one_of(&name, &CONNECTION_HEADERS) || name.to_ascii_lowercase().starts_with("proxy-") {
            return Err(EffectFailure::new(format!("fetch: the header `{name}` cannot be set")));
        }
        headers.push((name, text));
    }
    let body = match (value["text"].as_str(), value["base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map_err(|_| EffectFailure::new("fetch: invalid body"))?
        }
        (None, None) => Vec::new(),
    };
    Ok(HttpRequest { method, url, headers, body, response_bytes_max: RESPONSE_BYTES_MAX })
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn describe(url: &Url, is_redirected: bool, response: &HttpResponse) -> Json {
    Json::object(|object| {
        object.int("status", i64::from(response.status)).str("url", url.as_str());
        object.bool("redirected", is_redirected);
        object.array("headers", &response.headers, |out, (name, value)| {
            json::write::array(out, [name, value], |out, text| json::write::string(out, text));
        });
        match std::str::from_utf8(&response.body) {
            Ok(text) => object.str("text", text),
            Err(_) => object.str("base64", &STANDARD.encode(&response.body)),
        };
    })
}

#[cfg(test)]
mod tests {
    use super::{HostRule, Url};

    #[test]
    fn a_rule_allows_its_host_and_nothing_that_looks_like_it() {
        let check = |rule: &str, url: &str| {
            let rule = HostRule::parse(rule).unwrap_or_else(|| panic!("a rule: {rule}"));
            rule.allows(&Url::parse(url).expect("a URL"))
        };
        for (rule, url) in [
            ("api.example.com", "https://api.example.com/v1?q=1"),
            ("api.example.com", "https://API.example.com:443/"),
            ("*.example.com", "https://a.b.example.com/"),
            ("api.example.com:8443", "https://api.example.com:8443/"),
            ("http://localhost:3000", "http://localhost:3000/x"),
            ("münchen.example", "https://xn--mnchen-3ya.example/"),
            ("http://127.0.0.1:80", "http://2130706433/"),
        ] {
            assert!(check(rule, url), "{rule} {url}");
        }
        for (rule, url) in [
            ("api.example.com", "http://api.example.com/"),
            ("api.example.com", "https://api.example.com:8443/"),
            ("api.example.com", "https://api.example.com.evil.example/"),
            ("api.example.com", "https://api.example.com@evil.example/"),
            ("api.example.com", "https://evil.example/api.example.com"),
            ("api.example.com", "https://api.example.com./"),
            ("*.example.com", "https://example.com/"),
            ("*.example.com", "https://notexample.com/"),
            ("*.0.0.1", "https://127.0.0.1/"),
            ("http://localhost:3000", "http://127.0.0.1:3000/"),
            ("http://localhost:3000", "http://[::1]:3000/"),
        ] {
            assert!(HostRule::parse(rule).is_none() || !check(rule, url), "{rule} {url}");
        }
        for rule in ["", "*", "*.*", "ftp://a", "a/b", "a?b", "user@a", "https://"] {
            assert_eq!(HostRule::parse(rule), None, "{rule}");
        }
    }
}
