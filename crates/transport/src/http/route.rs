//! Where a request goes: guards first, then the path, then the method.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use host::{CallerIdentity, Server};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use json::Json;
use wire::HeaderField;
use wire::error::ErrorCode;

use super::body::{Body, ClientDisconnected};
use super::connection_timeouts::TrackedConnection;
use super::post::{self, EventualResponse, PostRequest};
use super::sse::{self, SseEndpoint, SsePost, SseRoute};
use super::upgrade::{self, PendingUpgrade};
use super::{Site, cors, get, response};
use crate::guard::{LocalEndpoint, Origin};
use crate::request_headers::RequestHeaders;

/// What a connection knows about all its requests.
pub(crate) struct ConnectionContext {
    pub(crate) site: Arc<Site>,
    pub(crate) connection: Arc<TrackedConnection>,
    pub(crate) local: LocalEndpoint,
    pub(crate) remote_ip: Option<IpAddr>,
    /// What it becomes, once it has been asked to and the answer is out.
    pub(crate) pending_upgrade: Mutex<Option<PendingUpgrade>>,
}

impl ConnectionContext {
    pub(crate) fn set_pending_upgrade(&self, upgrade: PendingUpgrade) {
        *self.pending_upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    pub(crate) fn take_pending_upgrade(&self) -> Option<PendingUpgrade> {
        self.pending_upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Answers one request, whatever it is.
///
/// hyper keeps room for this future with every connection. So it is one and not several in each other, and
/// only the body is waited for in it; a call that is not answered at once waits in a box of its own.
pub(crate) fn handle(
    arrived: &Arc<ConnectionContext>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, ClientDisconnected>> + use<> {
    let arrived = arrived.clone();
    let shared = request.version() == Version::HTTP_2;
    let (parts, body) = request.into_parts();
    async move {
        let counted = OpenRequest::new(&arrived.connection, shared);
        let seen = RequestHeaders::new(&parts.headers);
        let (goal, origin) = check_and_route(&arrived, &parts, &seen);
        let answer = match goal {
            RouteDecision::Respond(response) => {
                log_refusal(&arrived, &parts, &response);
                if shared && !body.is_end_stream() {
                    Box::pin(post::discard_body(body)).await;
                }
                EventualResponse::Ready(response)
            }
            RouteDecision::Post(asked) => {
                match post::read_body(body, asked.server(), &arrived.site.connection_limits, shared).await {
                    Ok(mut bytes) => {
                        arrived.connection.on_body_complete();
                        poll_fn(|cx| Poll::Ready(post::handle(&asked, std::mem::take(&mut bytes), cx))).await
                    }
                    Err(refused) => {
                        log_refusal(&arrived, &parts, &refused);
                        EventualResponse::Ready(refused)
                    }
                }
            }
            RouteDecision::SsePost(posting) => {
                let read =
                    post::read_body(body, posting.server(), &arrived.site.connection_limits, shared).await;
                EventualResponse::Ready(read.map_or_else(|refused| refused, |bytes| posting.handle(bytes)))
            }
        };
        let mut response = match answer {
            EventualResponse::Ready(response) => response,
            EventualResponse::Pending(mut later) => {
                let answered = poll_fn(|cx| match later.as_mut().poll(cx) {
                    Poll::Ready(response) => Poll::Ready(Ok(response)),
                    Poll::Pending if arrived.connection.has_disconnected(cx) => {
                        Poll::Ready(Err(ClientDisconnected))
                    }
                    Poll::Pending => Poll::Pending,
                });
                answered.await?
            }
        };
        if !shared && !matches!(seen.upgrade, HeaderField::Absent) {
            upgrade::close_unless_upgraded(&mut response);
        }
        if let Origin::Allowed(origin) = &origin {
            cors::allow_origin(&mut response, origin);
        }
        counted.transfer_to(&mut response);
        Ok(response)
    }
}

/// Logs a request that was refused before its message was decoded. Not the query, which may contain a session id.
fn log_refusal(context: &ConnectionContext, parts: &Parts, response: &Response<Body>) {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let caller = context.remote_ip.map_or_else(|| "local".to_owned(), |address| address.to_string());
        tracing::info!(method, path, caller, status = status.as_u16(), "refused request");
    }
}

/// A request that is counted; if it is given up, or once its answer is complete, no more.
struct OpenRequest<'a>(Option<&'a Arc<TrackedConnection>>);

impl<'a> OpenRequest<'a> {
    #[inline]
    fn new(link: &'a Arc<TrackedConnection>, shared: bool) -> Self {
        link.on_request_head(shared);
        Self(Some(link))
    }

    #[inline]
    fn transfer_to(mut self, response: &mut Response<Body>) {
        if let Some(link) = self.0.take() {
            response.body_mut().track_connection(link.clone());
        }
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.0 {
            link.on_response_complete();
        }
    }
}

/// How far a request gets before its body is read.
enum RouteDecision<'a> {
    Respond(Response<Body>),
    Post(PostRequest<'a>),
    SsePost(SsePost),
}

#[inline]
fn check_and_route<'a>(
    arrived: &'a ConnectionContext,
    parts: &'a Parts,
    seen: &'a RequestHeaders<'a>,
) -> (RouteDecision<'a>, Origin) {
    match arrived.site.guard.admit(&parts.uri, seen, arrived.local) {
        Err(denied) => (RouteDecision::Respond(response::denied(denied)), Origin::Same),
        Ok(origin) if parts.method == Method::OPTIONS => {
            let response = match &origin {
                Origin::Allowed(origin) => cors::preflight(origin, &parts.headers),
                Origin::Same => response::method_not_allowed("POST, GET, DELETE"),
            };
            (RouteDecision::Respond(response), Origin::Same)
        }
        Ok(origin) => (route(arrived, parts, seen), origin),
    }
}

#[inline]
fn route<'a>(
    arrived: &'a ConnectionContext,
    parts: &'a Parts,
    seen: &'a RequestHeaders<'a>,
) -> RouteDecision<'a> {
    let site = &*arrived.site;
    let path = parts.uri.path();
    if path == "/health" {
        return RouteDecision::Respond(get_only(&parts.method, || {
            let health = site_health(site);
            // 503 takes a server without any data out of a load balancer; a degraded one still answers calls.
            let status = if health == "down" { 503 } else { 200 };
            response::json(status, format!(r#"{{"status":"{health}"}}"#).into_bytes())
        }));
    }
    let principal = match site.guard.authenticate(seen) {
        Ok(principal) => principal,
        Err(denied) => return RouteDecision::Respond(response::denied(denied)),
    };
    if path == "/status" {
        return RouteDecision::Respond(get_only(&parts.method, || response::json(200, status_json(site))));
    }
    let who = CallerIdentity { principal, address: arrived.remote_ip };
    let query = parts.uri.query();
    let Some(server) = site.server_at(path) else {
        return match SseEndpoint::from_path(site, path) {
            Some(end) => route_sse(arrived, &end, parts, who, seen),
            None => {
                let why = "nothing is served at this path; see GET /status for what is";
                RouteDecision::Respond(response::error(StatusCode::NOT_FOUND, ErrorCode::InvalidRequest, why))
            }
        };
    };
    if upgrade::is_websocket_upgrade(&parts.method, seen) {
        return RouteDecision::Respond(upgrade::handle(arrived, parts, server, who));
    }
    RouteDecision::Respond(match parts.method {
        Method::POST => match PostRequest::new(server, who, seen, query) {
            Ok(asked) => return RouteDecision::Post(asked),
            Err(refused) => refused,
        },
        Method::GET => {
            // There is no body to wait for, and a stream may be quiet for as long as it likes.
            arrived.connection.on_body_complete();
            get::open_stream(server, &who, seen, query)
        }
        Method::DELETE => get::delete_session(server, &who, seen),
        _ => response::method_not_allowed("POST, GET, DELETE"),
    })
}

fn route_sse<'a>(
    arrived: &ConnectionContext,
    end: &SseEndpoint<'a>,
    parts: &Parts,
    who: CallerIdentity,
    seen: &RequestHeaders<'_>,
) -> RouteDecision<'a> {
    match sse::route(end, &parts.method, who, seen, parts.uri.query()) {
        SseRoute::Post(posting) => RouteDecision::SsePost(posting),
        SseRoute::Respond(response) => {
            if parts.method == Method::GET {
                // As ever: a stream may be quiet for as long as it likes.
                arrived.connection.on_body_complete();
            }
            RouteDecision::Respond(response)
        }
    }
}

fn get_only(method: &Method, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
    match *method {
        Method::GET | Method::HEAD => answer(),
        _ => response::method_not_allowed("GET"),
    }
}

impl Site {
    /// `/mcp/<name>`, and `/mcp` when there is one server.
    #[inline]
    pub(crate) fn server_at(&self, path: &str) -> Option<&Arc<Server>> {
        let rest = path.strip_prefix("/mcp")?;
        match (rest.strip_prefix('/'), &*self.servers) {
            (None, [only]) if rest.is_empty() => Some(only),
            (Some(name), servers) => servers.iter().find(|server| matches_server_name(name, &server.name)),
            (None, _) => None,
        }
    }
}

/// Whether a part of a path is this name, with whatever RFC 3986 wants escaped as `%` and two digits. What needs no escape
/// has none: whoever stands before us and reads paths must not be got round by another spelling.
fn matches_server_name(part: &str, name: &str) -> bool {
    if part == name || !part.contains('%') {
        return part == name;
    }
    let digit =
        |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut part, mut name) = (part.as_bytes(), name.as_bytes());
    while let Some((first, rest)) = part.split_first() {
        let (meant, rest) = match first {
            b'%' => match (digit(rest.first()), digit(rest.get(1))) {
                (Some(high), Some(low)) if !is_unreserved(high << 4 | low) => (high << 4 | low, &rest[2..]),
                _ => return false,
            },
            plain => (*plain, rest),
        };
        match name.split_first() {
            Some((next, left)) if *next == meant => (part, name) = (rest, left),
            Some(_) | None => return false,
        }
    }
    name.is_empty()
}

/// RFC 3986, 2.3
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `down` if no server has a source left, `degraded` if a source of any server is unavailable, otherwise `ok`.
fn site_health(site: &Site) -> &'static str {
    let states: Vec<&str> = site.servers.iter().map(|server| server.source_health().as_str()).collect();
    match () {
        () if states.iter().all(|state| *state == "ok") => "ok",
        () if states.iter().all(|state| *state == "down") => "down",
        () => "degraded",
    }
}

fn status_json(site: &Site) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = json::write::ObjectWriter::new(&mut out);
    object.str("status", site_health(site));
    object.array("servers", &site.servers, |out, server| {
        let status = server.status();
        let number = |n: usize| n as i64;
        let entry = Json::object(|o| {
            o.str("name", &server.name).str("contractVersion", &status.version);
            o.int("tools", number(status.tools)).int("resources", number(status.resources));
            o.int("prompts", number(status.prompts)).int("sessions", number(status.sessions));
            o.int("subscriptions", number(status.subscriptions));
            o.int("calls", status.calls.min(i64::MAX as u64) as i64);
            o.int("callsActive", number(status.calls_active));
            o.int("uptimeMs", status.uptime_ms.min(i64::MAX as u64) as i64);
            let health = server.source_health();
            o.object("sources", |o| {
                o.str("status", health.as_str()).int("count", number(health.source_count));
                o.array("unavailable", &health.unavailable, |out, source| {
                    let entry = Json::object(|o| {
                        o.str("name", &source.name).str("reason", &source.reason);
                    });
                    out.extend_from_slice(entry.as_str().as_bytes());
                });
            });
            if let Some(reload) = &status.reload {
                o.object("reload", |o| {
                    o.int("atMs", reload.at_ms.min(i64::MAX as u64) as i64);
                    o.str("outcome", reload.outcome.as_str()).maybe_str("why", reload.message.as_deref());
                });
            }
        });
        out.extend_from_slice(entry.as_str().as_bytes());
    });
    object.end();
    out
}

#[cfg(test)]
mod tests {
    use super::matches_server_name;

    #[test]
    fn a_name_is_found_under_its_escapes() {
        let name = "meine k\u{fc}che";
        for (part, expected) in [
            ("meine%20k%C3%BCche", true),
            ("meine%20k%c3%bcche", true),
            ("%6deine k\u{fc}che", false),
            ("meine k\u{fc}che", true),
            ("meine+k%C3%BCche", false),
            ("meine%20k%C3%BCch", false),
            ("meine%20k%C3%BCche%", false),
            ("meine%20k%C3%BCche%2", false),
            ("meine%2xk%C3%BCche", false),
            ("meine%20k%C3%BCche%00", false),
            ("", false),
        ] {
            assert_eq!(matches_server_name(part, name), expected, "{part}");
        }
        assert!(
            matches_server_name("100%25", "100%")
                && matches_server_name("100%", "100%")
                && !matches_server_name("%", "")
        );
    }
}
