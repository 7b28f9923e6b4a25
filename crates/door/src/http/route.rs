//! Where a request goes: guards first, then the path, then the method.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use host::{Server, Who};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use json::Json;
use wire::Head;
use wire::code::Code;

use super::body::{Body, Left};
use super::post::{self, Answer, Asked};
use super::sse::{self, End, Posting, Reached};
use super::upgrade::{self, Upgrade};
use super::watcher::Link;
use super::{Site, cors, get, reply};
use crate::guard::{Local, Origin};
use crate::seen::Seen;

/// What a connection knows about all its requests.
pub(crate) struct Arrived {
    pub(crate) site: Arc<Site>,
    pub(crate) link: Arc<Link>,
    pub(crate) local: Local,
    pub(crate) from: Option<IpAddr>,
    /// What it becomes, once it has been asked to and the answer is out.
    pub(crate) upgrade: Mutex<Option<Upgrade>>,
}

impl Arrived {
    pub(crate) fn upgrade(&self, upgrade: Upgrade) {
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    pub(crate) fn upgraded(&self) -> Option<Upgrade> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Answers one request, whatever it is.
///
/// hyper keeps room for this future with every connection. So it is one and not several in each other, and
/// only the body is waited for in it; a call that is not answered at once waits in a box of its own.
pub(crate) fn answer(
    arrived: &Arc<Arrived>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Left>> + use<> {
    let arrived = arrived.clone();
    let shared = request.version() == Version::HTTP_2;
    let (parts, body) = request.into_parts();
    async move {
        let counted = Counted::new(&arrived.link, shared);
        let seen = Seen::new(&parts.headers);
        let (goal, origin) = admit(&arrived, &parts, &seen);
        let answer = match goal {
            Goal::Reached(response) => {
                if shared && !body.is_end_stream() {
                    Box::pin(post::pass_over(body)).await;
                }
                Answer::Now(response)
            }
            Goal::Post(asked) => match post::read(body, asked.server(), &arrived.site.timing, shared).await {
                Ok(mut bytes) => {
                    arrived.link.body_complete();
                    poll_fn(|cx| Poll::Ready(post::answer(&asked, std::mem::take(&mut bytes), cx))).await
                }
                Err(refused) => Answer::Now(refused),
            },
            Goal::Posting(posting) => {
                let read = post::read(body, posting.server(), &arrived.site.timing, shared).await;
                Answer::Now(read.map_or_else(|refused| refused, |bytes| posting.take(bytes)))
            }
        };
        let mut response = match answer {
            Answer::Now(response) => response,
            Answer::Later(mut later) => {
                let answered = poll_fn(|cx| match later.as_mut().poll(cx) {
                    Poll::Ready(response) => Poll::Ready(Ok(response)),
                    Poll::Pending if arrived.link.has_left(cx) => Poll::Ready(Err(Left)),
                    Poll::Pending => Poll::Pending,
                });
                answered.await?
            }
        };
        if !shared && !matches!(seen.upgrade, Head::Absent) {
            upgrade::part(&mut response);
        }
        if let Origin::Allowed(origin) = &origin {
            cors::expose(&mut response, origin);
        }
        counted.hand_over(&mut response);
        Ok(response)
    }
}

/// A request that is counted; if it is given up, or once its answer is complete, no more.
struct Counted<'a>(Option<&'a Arc<Link>>);

impl<'a> Counted<'a> {
    #[inline]
    fn new(link: &'a Arc<Link>, shared: bool) -> Self {
        link.request(shared);
        Self(Some(link))
    }

    #[inline]
    fn hand_over(mut self, response: &mut Response<Body>) {
        if let Some(link) = self.0.take() {
            response.body_mut().watched(link.clone());
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.0 {
            link.answered();
        }
    }
}

/// How far a request gets before its body is read.
enum Goal<'a> {
    Reached(Response<Body>),
    Post(Asked<'a>),
    Posting(Posting),
}

#[inline]
fn admit<'a>(arrived: &'a Arrived, parts: &'a Parts, seen: &'a Seen<'a>) -> (Goal<'a>, Origin) {
    match arrived.site.guard.admit(&parts.uri, seen, arrived.local) {
        Err(denied) => (Goal::Reached(reply::denied(denied)), Origin::Same),
        Ok(origin) if parts.method == Method::OPTIONS => {
            let response = match &origin {
                Origin::Allowed(origin) => cors::preflight(origin, &parts.headers),
                Origin::Same => reply::allow("POST, GET, DELETE"),
            };
            (Goal::Reached(response), Origin::Same)
        }
        Ok(origin) => (route(arrived, parts, seen), origin),
    }
}

#[inline]
fn route<'a>(arrived: &'a Arrived, parts: &'a Parts, seen: &'a Seen<'a>) -> Goal<'a> {
    let site = &*arrived.site;
    let path = parts.uri.path();
    if path == "/health" {
        let healthy = || reply::json(200, br#"{"status":"ok"}"#.to_vec());
        return Goal::Reached(only_get(&parts.method, healthy));
    }
    let principal = match site.guard.identify(seen) {
        Ok(principal) => principal,
        Err(denied) => return Goal::Reached(reply::denied(denied)),
    };
    if path == "/status" {
        return Goal::Reached(only_get(&parts.method, || reply::json(200, status(site))));
    }
    let who = Who { principal, address: arrived.from };
    let query = parts.uri.query();
    let Some(server) = site.at(path) else {
        return match End::at(site, path) {
            Some(end) => to_sse(arrived, &end, parts, who, seen),
            None => {
                let why = "nothing is served at this path; see GET /status for what is";
                Goal::Reached(reply::refuse(StatusCode::NOT_FOUND, Code::InvalidRequest, why))
            }
        };
    };
    if upgrade::is_asked(&parts.method, seen) {
        return Goal::Reached(upgrade::answer(arrived, parts, server, who));
    }
    Goal::Reached(match parts.method {
        Method::POST => match Asked::new(server, who, seen, query) {
            Ok(asked) => return Goal::Post(asked),
            Err(refused) => refused,
        },
        Method::GET => {
            // There is no body to wait for, and a stream may be quiet for as long as it likes.
            arrived.link.body_complete();
            get::stream(server, &who, seen, query)
        }
        Method::DELETE => get::delete(server, &who, seen),
        _ => reply::allow("POST, GET, DELETE"),
    })
}

fn to_sse<'a>(arrived: &Arrived, end: &End<'a>, parts: &Parts, who: Who, seen: &Seen<'_>) -> Goal<'a> {
    match sse::reach(end, &parts.method, who, seen, parts.uri.query()) {
        Reached::Posting(posting) => Goal::Posting(posting),
        Reached::Answer(response) => {
            if parts.method == Method::GET {
                // As ever: a stream may be quiet for as long as it likes.
                arrived.link.body_complete();
            }
            Goal::Reached(response)
        }
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
    pub(crate) fn at(&self, path: &str) -> Option<&Arc<Server>> {
        let rest = path.strip_prefix("/mcp")?;
        match (rest.strip_prefix('/'), &*self.servers) {
            (None, [only]) if rest.is_empty() => Some(only),
            (Some(name), servers) => servers.iter().find(|server| is_named(name, &server.name)),
            (None, _) => None,
        }
    }
}

/// Whether a part of a path is this name, with whatever RFC 3986 wants escaped as `%` and two digits. What needs no escape
/// has none: whoever stands before us and reads paths must not be got round by another spelling.
fn is_named(part: &str, name: &str) -> bool {
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

fn status(site: &Site) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut object = json::write::Object::new(&mut out);
    object.str("status", "ok");
    object.array("servers", &site.servers, |out, server| {
        let status = server.status();
        let number = |n: usize| n as i64;
        let entry = Json::object(|o| {
            o.str("name", &server.name).str("contractVersion", &status.version);
            o.int("tools", number(status.tools)).int("resources", number(status.resources));
            o.int("prompts", number(status.prompts)).int("sessions", number(status.sessions));
            o.int("subscriptions", number(status.listening));
            o.int("calls", status.calls.min(i64::MAX as u64) as i64);
            o.int("callsActive", number(status.calls_active));
            o.int("uptimeMs", status.uptime_ms.min(i64::MAX as u64) as i64);
            if let Some(reload) = &status.reload {
                o.object("reload", |o| {
                    o.int("atMs", reload.at_ms.min(i64::MAX as u64) as i64);
                    o.str("outcome", reload.outcome.as_str()).maybe_str("why", reload.why.as_deref());
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
    use super::is_named;

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
            assert_eq!(is_named(part, name), expected, "{part}");
        }
        assert!(is_named("100%25", "100%") && is_named("100%", "100%") && !is_named("%", ""));
    }
}
