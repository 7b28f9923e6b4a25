//! Where a request goes: guards first, then the path, then the method.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use host::{Server, Who};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use json::Json;
use wire::code::Code;

use super::body::Body;
use super::watcher::Phase;
use super::{Site, cors, get, post, reply};
use crate::guard::Origin;
use crate::seen::Seen;

/// What a connection knows about all its requests.
pub(crate) struct Arrived {
    pub(crate) site: Arc<Site>,
    pub(crate) phase: Arc<Phase>,
    pub(crate) local: IpAddr,
    pub(crate) from: SocketAddr,
}

/// Answers one request, whatever it is.
pub(crate) async fn answer(arrived: Arc<Arrived>, request: Request<Incoming>) -> Response<Body> {
    let shared = request.version() == Version::HTTP_2;
    arrived.phase.request(shared);
    let counted = Counted(Some(&arrived.phase));
    let mut response = guarded(&arrived, request, shared).await;
    counted.hand_over(&mut response);
    response
}

/// A request that is counted; if it is given up, or once its answer is complete, no more.
struct Counted<'a>(Option<&'a Arc<Phase>>);

impl Counted<'_> {
    #[inline]
    fn hand_over(mut self, response: &mut Response<Body>) {
        if let Some(phase) = self.0.take() {
            response.body_mut().watched(phase.clone());
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(phase) = self.0 {
            phase.answered();
        }
    }
}

#[inline]
async fn guarded(arrived: &Arrived, request: Request<Incoming>, shared: bool) -> Response<Body> {
    let site = &*arrived.site;
    let (parts, body) = request.into_parts();
    let seen = Seen::new(&parts.headers);
    let origin = match site.guard.admit(&parts.uri, &seen, arrived.local) {
        Ok(origin) => origin,
        Err(denied) => return reply::denied(denied),
    };
    let mut response = match (&origin, &parts.method) {
        (Origin::Allowed(origin), &Method::OPTIONS) => return cors::preflight(origin, &parts.headers),
        (Origin::Same, &Method::OPTIONS) => return reply::allow("POST, GET, DELETE"),
        _ => routed(arrived, &parts, &seen, body, shared).await,
    };
    if let Origin::Allowed(origin) = &origin {
        cors::expose(&mut response, origin);
    }
    response
}

async fn routed(
    arrived: &Arrived,
    parts: &http::request::Parts,
    seen: &Seen<'_>,
    body: Incoming,
    shared: bool,
) -> Response<Body> {
    let site = &*arrived.site;
    let path = parts.uri.path();
    if path == "/health" {
        return only_get(&parts.method, || reply::json(200, br#"{"status":"ok"}"#.to_vec()));
    }
    let principal = match site.guard.identify(seen) {
        Ok(principal) => principal,
        Err(denied) => return reply::denied(denied),
    };
    if path == "/status" {
        return only_get(&parts.method, || reply::json(200, status(site)));
    }
    let Some(server) = site.at(path) else {
        let why = "nothing is served at this path; see GET /status for what is";
        return reply::refuse(StatusCode::NOT_FOUND, Code::InvalidRequest, why);
    };
    let who = Who { principal, address: Some(arrived.from.ip()) };
    let query = parts.uri.query();
    match parts.method {
        Method::POST => {
            // The watcher sees a connection that dries up, but not one of several requests that share it.
            let idle = shared.then(|| Duration::from_millis(site.timing.body_idle_ms));
            let body = post::Reader { body, phase: &arrived.phase, idle };
            post::answer(server, &who, seen, query, body).await
        }
        Method::GET => {
            // There is no body to wait for, and a stream may be quiet for as long as it likes.
            arrived.phase.body_complete();
            get::stream(server, &who, seen, query)
        }
        Method::DELETE => get::delete(server, &who, seen),
        _ => reply::allow("POST, GET, DELETE"),
    }
}

fn only_get(method: &Method, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
    match *method {
        Method::GET | Method::HEAD => answer(),
        _ => reply::allow("GET"),
    }
}

impl Site {
    /// `/mcp/<name>`, and `/mcp` when there is one server.
    #[inline]
    fn at(&self, path: &str) -> Option<&Arc<Server>> {
        let rest = path.strip_prefix("/mcp")?;
        match (rest.strip_prefix('/'), &*self.servers) {
            (None, [only]) if rest.is_empty() => Some(only),
            (Some(name), servers) => servers.iter().find(|server| server.name == name),
            (None, _) => None,
        }
    }
}

fn status(site: &Site) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = json::write::Object::new(&mut out);
    object.str("status", "ok");
    object.array("servers", &site.servers, |out, server| {
        let status = server.status();
        let number = |n: usize| n as i64;
        let entry = Json::object(|o| {
            o.str("name", &server.name).str("contractVersion", &server.version);
            o.int("tools", number(status.tools)).int("resources", number(status.resources));
            o.int("prompts", number(status.prompts)).int("sessions", number(status.sessions));
            o.int("subscriptions", number(status.listening));
            o.int("calls", status.calls.min(i64::MAX as u64) as i64);
            o.int("callsActive", number(status.calls_active));
            o.int("uptimeMs", status.uptime_ms.min(i64::MAX as u64) as i64);
        });
        out.extend_from_slice(entry.as_str().as_bytes());
    });
    object.end();
    out
}
