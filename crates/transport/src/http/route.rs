//! Routes a request: guard first, then path, then method.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use host::CallerIdentity;
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use json::Json;
use spile_core::Principal;
use wire::HeaderField;
use wire::error::ErrorCode;

use super::admin::AdminCall;
use super::body::{Body, ClientDisconnected};
use super::connection_tracker::{ConnectionTracker, TrackedConnection};
use super::directory::ServerRef;
use super::post::{self, EventualResponse, PostRequest};
use super::sse::{self, SseEndpoint, SsePost, SseRoute};
use super::strict::Handover;
use super::upgrade::{self, PendingUpgrade};
use super::{HttpService, cors, get, page, response};
use crate::guard::{LocalEndpoint, Origin};
use crate::request_headers::RequestHeaders;

/// What all requests of a connection share.
pub(crate) struct ConnectionContext {
    pub(crate) service: Arc<HttpService>,
    pub(crate) tracker: Arc<ConnectionTracker>,
    pub(crate) connection: Arc<TrackedConnection>,
    pub(crate) local: LocalEndpoint,
    pub(crate) remote_ip: Option<IpAddr>,
    /// The WebSocket that the connection becomes after its 101 response.
    pub(crate) pending_upgrade: Mutex<Option<PendingUpgrade>>,
    /// Whose turn an HTTP/1 connection is.
    pub(crate) handover: Arc<Handover>,
    /// The response to the request that hyper gets next, if the fast path has begun to answer it.
    pub(crate) prepared_response: Mutex<Option<Box<Response<Body>>>>,
}

impl ConnectionContext {
    pub(crate) fn new(
        service: Arc<HttpService>,
        tracker: Arc<ConnectionTracker>,
        connection: Arc<TrackedConnection>,
        local: LocalEndpoint,
        remote_ip: Option<IpAddr>,
    ) -> Self {
        Self {
            service,
            tracker,
            connection,
            local,
            remote_ip,
            pending_upgrade: Mutex::default(),
            handover: Arc::default(),
            prepared_response: Mutex::default(),
        }
    }

    pub(crate) fn set_pending_upgrade(&self, upgrade: PendingUpgrade) {
        *self.pending_upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    pub(crate) fn set_prepared_response(&self, response: Response<Body>) {
        *self.prepared_response.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(response));
    }

    fn take_prepared_response(&self) -> Option<Box<Response<Body>>> {
        self.prepared_response.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_pending_upgrade(&self) -> Option<PendingUpgrade> {
        self.pending_upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Answers one request.
///
/// hyper stores this future inline in every connection, so it must stay small: it awaits only the request body.
/// A call that is not ready at once waits in a boxed future.
pub(crate) fn handle(
    context: &Arc<ConnectionContext>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, ClientDisconnected>> + use<> {
    let context = context.clone();
    let multiplexed = request.version() == Version::HTTP_2;
    let (parts, body) = request.into_parts();
    async move {
        let open_request = OpenRequest::new(&context.connection, multiplexed);
        if !multiplexed {
            context.handover.on_handled();
            if let Some(mut response) = context.take_prepared_response() {
                // All of the body is there, and its message is being answered.
                Box::pin(post::discard_body(body)).await;
                context.connection.on_body_complete();
                open_request.transfer_to(&mut response);
                return Ok(*response);
            }
        }
        let headers = RequestHeaders::new(&parts.headers);
        let (decision, origin) = check_and_route(&context, &parts, &headers);
        let answer = match decision {
            RouteDecision::Respond(response) => {
                if multiplexed && !body.is_end_stream() {
                    Box::pin(post::discard_body(body)).await;
                }
                EventualResponse::Ready(response)
            }
            RouteDecision::Post(post_request) => {
                match post::read_body(body, post_request.server(), &context, multiplexed).await {
                    Ok(_) if multiplexed && context.connection.is_response_backlog_full() => {
                        EventualResponse::Ready(response::backlog_full())
                    }
                    Ok(mut bytes) => {
                        context.connection.on_body_complete();
                        poll_fn(|cx| Poll::Ready(post::handle(&post_request, std::mem::take(&mut bytes), cx)))
                            .await
                    }
                    Err(refusal) => EventualResponse::Ready(refusal),
                }
            }
            // Boxed: operators are rare, and inline it would make every connection larger.
            RouteDecision::Admin(call) => Box::pin(respond_to_admin(call, body, &context, multiplexed)).await,
            RouteDecision::SsePost(sse_post) => {
                let read = post::read_body(body, sse_post.server(), &context, multiplexed).await;
                EventualResponse::Ready(read.map_or_else(|refusal| refusal, |bytes| sse_post.handle(bytes)))
            }
        };
        let mut response = match answer {
            EventualResponse::Ready(response) => response,
            EventualResponse::Pending(mut pending) => {
                let outcome = poll_fn(|cx| match pending.as_mut().poll(cx) {
                    Poll::Ready(response) => Poll::Ready(Ok(response)),
                    Poll::Pending if context.connection.has_disconnected(cx) => {
                        Poll::Ready(Err(ClientDisconnected))
                    }
                    Poll::Pending => Poll::Pending,
                });
                outcome.await?
            }
        };
        if !multiplexed && !matches!(headers.upgrade, HeaderField::Absent) {
            upgrade::close_unless_upgraded(&mut response);
        }
        if let Origin::Allowed(origin) = &origin {
            cors::allow_origin(&mut response, origin);
        }
        if response.status().as_u16() >= 400 {
            let guard = &context.service.guard;
            let principal = guard.known_principal(&headers).unwrap_or(Principal::Anonymous);
            log_refused(&context, parts.method.as_str(), parts.uri.path(), principal, &response);
        }
        open_request.transfer_to(&mut response);
        Ok(response)
    }
}

async fn respond_to_admin(
    call: Box<AdminCall<'_>>,
    body: Incoming,
    context: &ConnectionContext,
    multiplexed: bool,
) -> EventualResponse {
    // The limits of a message are those of the server at `/mcp`.
    let Some(server) = context.service.servers.first() else {
        return EventualResponse::Ready(response::method_not_allowed("GET"));
    };
    match post::read_body(body, server, context, multiplexed).await {
        Ok(bytes) => {
            context.connection.on_body_complete();
            EventualResponse::Pending(call.respond(bytes))
        }
        Err(refusal) => EventualResponse::Ready(refusal),
    }
}

/// One line for each refused request. Neither the query, which may name a session, nor any header is logged.
#[cold]
pub(crate) fn log_refused(
    context: &ConnectionContext,
    method: &str,
    path: &str,
    principal: Principal,
    response: &Response<Body>,
) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let reason = response.extensions().get::<response::RefusalReason>();
    tracing::info!(
        method,
        path = ?path,
        caller = %CallerIdentity { principal, address: context.remote_ip, ..CallerIdentity::default() },
        status = response.status().as_u16(),
        reason = reason.map(|reason| &*reason.0),
        response_bytes = response.body().size_hint().lower(),
        "refused request"
    );
}

/// Counts a request as open until its response is complete or dropped.
struct OpenRequest<'a>(Option<&'a Arc<TrackedConnection>>);

impl<'a> OpenRequest<'a> {
    #[inline]
    fn new(connection: &'a Arc<TrackedConnection>, multiplexed: bool) -> Self {
        connection.on_request_head(multiplexed);
        Self(Some(connection))
    }

    #[inline]
    fn transfer_to(mut self, response: &mut Response<Body>) {
        if let Some(connection) = self.0.take() {
            response.body_mut().track_connection(connection.clone());
        }
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.on_response_complete();
        }
    }
}

/// What the head of a request decides, before the body is read.
enum RouteDecision<'a> {
    Respond(Response<Body>),
    Post(PostRequest<'a>),
    SsePost(SsePost),
    Admin(Box<AdminCall<'a>>),
}

#[inline]
fn check_and_route<'a>(
    context: &'a ConnectionContext,
    parts: &'a Parts,
    headers: &'a RequestHeaders<'a>,
) -> (RouteDecision<'a>, Origin) {
    let authority = parts.uri.authority().map(Authority::as_str);
    match context.service.guard.check_host_and_origin(authority, headers, context.local) {
        Err(denial) => (RouteDecision::Respond(response::denied(denial)), Origin::Same),
        Ok(origin) if parts.method == Method::OPTIONS => {
            let response = match &origin {
                Origin::Allowed(origin) => cors::preflight(origin, &parts.headers),
                Origin::Same => response::method_not_allowed("POST, GET, DELETE"),
            };
            (RouteDecision::Respond(response), Origin::Same)
        }
        Ok(origin) => (route(context, parts, headers), origin),
    }
}

#[inline]
fn route<'a>(
    context: &'a ConnectionContext,
    parts: &'a Parts,
    headers: &'a RequestHeaders<'a>,
) -> RouteDecision<'a> {
    let service = &*context.service;
    let path = parts.uri.path();
    if path == "/health" {
        return RouteDecision::Respond(get_only(&parts.method, || {
            let health = service_health(service);
            // 503 takes a server without any data out of a load balancer; a degraded one still answers calls.
            let status = if health == "down" { 503 } else { 200 };
            response::json(status, format!(r#"{{"status":"{health}"}}"#).into_bytes())
        }));
    }
    if let Some(admin) = &service.admin
        && path.starts_with(ADMIN_PREFIX)
        && let Some(routed) = admin.route(&service.guard, parts, headers, context.remote_ip)
    {
        return match routed {
            Ok((call, grant)) => {
                if let Some(grant) = grant {
                    context.connection.on_authenticated(grant);
                }
                RouteDecision::Admin(Box::new(call))
            }
            Err(refusal) => RouteDecision::Respond(refusal),
        };
    }
    if page::is_page_path(path)
        && let Some(page) = &service.page
        && let Some(response) = page::respond(context, page, parts, headers)
    {
        return RouteDecision::Respond(response);
    }
    let principal = match service.guard.authenticate(headers, context.remote_ip) {
        Ok((principal, grant)) => {
            if let Some(grant) = grant {
                context.connection.on_authenticated(grant);
            }
            principal
        }
        Err(denial) => return RouteDecision::Respond(response::denied(denial)),
    };
    if path == "/status" {
        return RouteDecision::Respond(get_only(&parts.method, || response::json(200, status_json(context))));
    }
    let identity = CallerIdentity { principal, address: context.remote_ip, request_head: None };
    let query = parts.uri.query();
    let Some(server) = service.server_at(path) else {
        return match SseEndpoint::from_path(service, path) {
            Some(endpoint) => route_sse(context, &endpoint, parts, identity, headers),
            None => {
                let reason = "no server at this path; `GET /status` lists the servers";
                RouteDecision::Respond(response::error(
                    StatusCode::NOT_FOUND,
                    ErrorCode::InvalidRequest,
                    reason,
                ))
            }
        };
    };
    if upgrade::is_websocket_upgrade(&parts.method, headers) {
        return RouteDecision::Respond(upgrade::handle(context, parts, &server, identity));
    }
    RouteDecision::Respond(match parts.method {
        Method::POST => match PostRequest::new(server, identity, headers, query) {
            Ok(post_request) => return RouteDecision::Post(post_request),
            Err(refusal) => refusal,
        },
        Method::GET => {
            // A GET has no body to wait for, and its stream may be silent without a timeout.
            context.connection.on_body_complete();
            response::from_reply(get::open_stream(&server, &identity, headers, query))
        }
        Method::DELETE => response::from_reply(get::delete_session(&server, &identity, headers)),
        _ => response::method_not_allowed("POST, GET, DELETE"),
    })
}

/// As for the page, which has other names below it.
const ADMIN_PREFIX: &str = "/-/";

fn route_sse<'a>(
    context: &ConnectionContext,
    endpoint: &SseEndpoint<'a>,
    parts: &Parts,
    identity: CallerIdentity,
    headers: &RequestHeaders<'_>,
) -> RouteDecision<'a> {
    match sse::route(endpoint, &parts.method, identity, headers, parts.uri.query()) {
        SseRoute::Post(sse_post) => RouteDecision::SsePost(sse_post),
        SseRoute::Respond(response) => {
            if parts.method == Method::GET {
                // The stream may be silent without a timeout.
                context.connection.on_body_complete();
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

impl HttpService {
    /// The server at `/mcp/<name>`, or at `/mcp`.
    #[inline]
    pub(crate) fn server_at(&self, path: &str) -> Option<ServerRef<'_>> {
        let rest = path.strip_prefix("/mcp")?;
        match rest.strip_prefix('/') {
            None if rest.is_empty() => self.main_server().map(ServerRef::Fixed),
            None => None,
            // The main server has no name of its own.
            Some(name) => {
                let named = &self.servers[usize::from(self.has_main_server)..];
                let fixed = named.iter().find(|server| matches_server_name(name, &server.name));
                fixed.map(ServerRef::Fixed).or_else(|| {
                    let listed = self.directory.as_ref().and_then(|directory| directory.find(name));
                    listed.map(ServerRef::Listed)
                })
            }
        }
    }
}

/// Whether a path segment is this name, percent-encoded where RFC 3986 requires it. Rejects escapes of unreserved
/// characters: an alternative spelling must not get past a proxy that filters by path.
pub(super) fn matches_server_name(part: &str, name: &str) -> bool {
    if part == name || !part.contains('%') {
        return part == name;
    }
    let digit =
        |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut part, mut name) = (part.as_bytes(), name.as_bytes());
    while let Some((next_byte, rest)) = part.split_first() {
        let (byte, rest) = match next_byte {
            b'%' => match (digit(rest.first()), digit(rest.get(1))) {
                (Some(high), Some(low)) if !is_unreserved(high << 4 | low) => (high << 4 | low, &rest[2..]),
                _ => return false,
            },
            plain => (*plain, rest),
        };
        match name.split_first() {
            Some((next, left)) if *next == byte => (part, name) = (rest, left),
            Some(_) | None => return false,
        }
    }
    name.is_empty()
}

/// The path of a server. A single one has the short path.
pub fn server_path(name: &str, is_single: bool) -> String {
    if is_single {
        return "/mcp".to_owned();
    }
    let mut path = "/mcp/".to_owned();
    for byte in name.bytes() {
        match byte {
            byte if is_unreserved(byte) => path.push(char::from(byte)),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// RFC 3986, 2.3
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `down` if no server has a source left, `degraded` if a source of any server is unavailable, otherwise `ok`.
fn service_health(service: &HttpService) -> &'static str {
    let servers = service.all_servers();
    let states: Vec<&str> = servers.iter().map(|server| server.source_health().as_str()).collect();
    match () {
        () if service.failed_servers.is_empty() && states.iter().all(|state| *state == "ok") => "ok",
        () if states.iter().all(|state| *state == "down") => "down",
        () => "degraded",
    }
}

fn status_json(context: &ConnectionContext) -> Vec<u8> {
    let service = &*context.service;
    let mut out = Vec::with_capacity(256);
    let mut object = json::write::ObjectWriter::new(&mut out);
    object.str("status", service_health(service));
    let backlog = context.tracker.backlog();
    object.int("connections", context.tracker.count() as i64);
    object.int("responseBytesPending", backlog.bytes() as i64);
    object.int("responseBytesMax", backlog.bytes_max() as i64);
    let requests = context.tracker.request_budget();
    object.int("requestBytesPending", requests.bytes() as i64);
    object.int("requestBytesMax", requests.bytes_max() as i64);
    object.array("servers", &service.all_servers(), |out, server| {
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
            let unserved = server.unserved_items();
            if !unserved.is_empty() {
                o.array("notServed", &unserved, |out, item| {
                    let entry = Json::object(|o| {
                        o.str("kind", &item.kind.to_string()).str("name", &item.name);
                        o.str("provider", &item.provider).str("reason", &item.reason);
                    });
                    out.extend_from_slice(entry.as_str().as_bytes());
                });
            }
            if let Some(reload) = &status.reload {
                o.object("reload", |o| {
                    o.int("atMs", reload.at_ms.min(i64::MAX as u64) as i64);
                    o.str("outcome", reload.outcome.as_str()).maybe_str("reason", reload.message.as_deref());
                });
            }
        });
        out.extend_from_slice(entry.as_str().as_bytes());
    });
    if !service.failed_servers.is_empty() {
        object.array("failedServers", &service.failed_servers, |out, failed| {
            let entry = Json::object(|o| {
                o.str("name", &failed.name).str("reason", &failed.reason);
            });
            out.extend_from_slice(entry.as_str().as_bytes());
        });
    }
    object.end();
    out
}

#[cfg(test)]
mod tests {
    use super::matches_server_name;

    #[test]
    fn server_name_matches_percent_encoded_path() {
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
