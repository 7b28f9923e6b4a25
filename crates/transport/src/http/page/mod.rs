//! `GET /`: the page for people, what it refers to, and a JSON overview for everyone else.
//!
//! The same guards and tokens apply as everywhere. A browser cannot send a bearer token of its own accord, so the page
//! alone, which only reads, also accepts the token as the password of HTTP Basic authentication (ADR 0091).

mod call_history;
mod snapshot;

use std::sync::Arc;

use ::page::{ACTIVITY_PATH, ASSETS, ConnectSnippet, PATH_PREFIX, SECURITY_HEADERS, UpstreamView};
use host::{CallObserver, CallerIdentity, Server};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};

pub(crate) use self::call_history::CallHistory;
use self::snapshot::ServiceSnapshot;
use super::body::Body;
use super::response;
use super::route::ConnectionContext;
use crate::content_negotiation::{accepted_types, accepts_html};
use crate::guard::GuardRefusal;
use crate::request_headers::RequestHeaders;

/// What the page needs besides the servers.
pub struct Page {
    connect_snippets: ConnectSnippets,
    /// One for each server, in their order.
    call_histories: Vec<Arc<CallHistory>>,
    /// The servers behind a gateway.
    upstreams: Option<Upstreams>,
}

/// Tells the state of the servers behind a gateway.
pub type Upstreams = Box<dyn Fn() -> Vec<UpstreamView> + Send + Sync>;

/// Tells how clients connect to a server.
pub type ConnectSnippets = Box<dyn Fn(&SnippetRequest<'_>) -> Vec<ConnectSnippet> + Send + Sync>;

/// The server that clients connect to.
pub struct SnippetRequest<'a> {
    pub name: &'a str,
    pub url: &'a str,
    pub requires_token: bool,
}

impl Page {
    pub fn new(servers: &[Arc<Server>], connect_snippets: ConnectSnippets) -> Self {
        let call_histories = servers.iter().map(|_| Arc::default()).collect();
        Self { connect_snippets, call_histories, upstreams: None }
    }

    #[must_use]
    pub fn with_upstreams(self, upstreams: Upstreams) -> Self {
        Self { upstreams: Some(upstreams), ..self }
    }

    /// Records the calls of a server from now on, if it is given to the server as an observer. Without that, the first
    /// visit of the page begins the recording, so that a server without visitors pays nothing for it.
    pub fn call_observer(&self, server_index: usize, server: &Server) -> Option<Arc<dyn CallObserver>> {
        let history = self.call_histories.get(server_index)?;
        history.start(server.now_ms());
        Some(history.clone())
    }
}

/// Whether a path belongs to the page.
#[inline]
pub(crate) fn is_page_path(path: &str) -> bool {
    path.len() == 1 || path.starts_with(PATH_PREFIX)
}

/// The response to a request for the page; `None` if it is for something else.
#[cold]
pub(crate) fn respond(
    context: &ConnectionContext,
    page: &Page,
    parts: &Parts,
    headers: &RequestHeaders<'_>,
) -> Option<Response<Body>> {
    let path = parts.uri.path();
    let wants_html = accepts_html(headers);
    let is_for_page = matches!(parts.method, Method::GET | Method::HEAD)
        // A client that can only read events looks for an MCP endpoint: it must learn that there is none here.
        && (path != "/" || wants_html || accepted_types(headers, None).is_some_and(|types| types.json));
    if !is_for_page {
        return None;
    }
    let principal = match context.service.guard.authenticate_page(headers, context.remote_ip) {
        Ok((principal, grant)) => {
            if let Some(grant) = grant {
                context.connection.on_authenticated(grant);
            }
            principal
        }
        Err(denial) if denial.status == StatusCode::UNAUTHORIZED && path == "/" && wants_html => {
            return Some(unauthorized(&denial));
        }
        Err(denial) => return Some(response::denied(denial)),
    };
    if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
        return Some(document(StatusCode::OK, asset.content_type, asset.body.as_bytes().to_vec()));
    }
    let identity = CallerIdentity { principal, address: context.remote_ip, request_head: None };
    let snapshot = || ServiceSnapshot::take(&context.service, page, &identity);
    let base_url = base_url(context, parts, headers);
    Some(match path {
        "/" if wants_html => {
            document(StatusCode::OK, "text/html; charset=utf-8", ::page::render(&snapshot().view(&base_url)))
        }
        "/" => {
            document(StatusCode::OK, "application/json", ::page::overview_json(&snapshot().view(&base_url)))
        }
        ACTIVITY_PATH => {
            document(StatusCode::OK, "application/json", ::page::activity_json(&snapshot().view(&base_url)))
        }
        _ => return None,
    })
}

/// The scheme and the host that the client used: what works for it works for its neighbours.
fn base_url(context: &ConnectionContext, parts: &Parts, headers: &RequestHeaders<'_>) -> String {
    let scheme = if context.service.tls.is_some() { "https" } else { "http" };
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let header = || headers.values("host").next().and_then(|host| std::str::from_utf8(host).ok());
    // A client on a unix socket may send an empty host.
    let host = authority.or_else(header).filter(|host| !host.is_empty()).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

fn unauthorized(denial: &GuardRefusal) -> Response<Body> {
    let body = ::page::render_unauthorized(denial.reason);
    let mut response = document(denial.status, "text/html; charset=utf-8", body);
    let challenges = response.headers_mut();
    challenges.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    // Only a challenge that a browser knows makes it ask its user.
    let basic =
        HeaderValue::from_static("Basic realm=\"Spile: the password is the token\", charset=\"UTF-8\"");
    challenges.append(header::WWW_AUTHENTICATE, basic);
    response
}

fn document(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in SECURITY_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
