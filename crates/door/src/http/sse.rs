//! HTTP+SSE, the transport of 2024-11-05: a stream that a client opens, and messages that it posts.
//!
//! Together they are a pipe: the handshake goes over it, every answer, notification and question comes as an event
//! of the stream, and when the stream ends, so does everything that was under way on it.

use std::sync::Arc;
use std::task::{Context, Poll};

use host::{Live, Server, Who};
use http::{Method, Response, StatusCode};
use wire::code::Code;
use wire::frame::sse;
use wire::{Opened, Refusal};

use super::body::{Body, Source};
use super::{Site, get, post, reply};
use crate::accept::Accepts;
use crate::seen::Seen;
use crate::talk::{Outlet, Talk};

/// One of the two ends of the transport.
pub(crate) struct End<'a> {
    server: &'a Arc<Server>,
    /// The path before `/sse` and `/messages`.
    base: &'a str,
    what: What,
}

enum What {
    Stream,
    Messages,
}

impl<'a> End<'a> {
    /// `/mcp/<name>/sse` and `/mcp/<name>/messages`; without `/mcp/<name>` when there is one server.
    pub(crate) fn at(site: &'a Site, path: &'a str) -> Option<Self> {
        let (base, last) = path.rsplit_once('/')?;
        let what = match last {
            "sse" => What::Stream,
            "messages" => What::Messages,
            _ => return None,
        };
        let server = match (base, &*site.servers) {
            ("", [only]) => only,
            _ => site.at(base)?,
        };
        Some(Self { server, base, what })
    }
}

/// What a request to one of the ends comes to.
pub(crate) enum Reached {
    Answer(Response<Body>),
    /// A message is to come.
    Posting(Posting),
}

pub(crate) fn reach(
    end: &End<'_>,
    method: &Method,
    who: Who,
    seen: &Seen<'_>,
    query: Option<&str>,
) -> Reached {
    match (&end.what, method) {
        (What::Stream, &Method::GET) => Reached::Answer(open(end, &who, seen)),
        (What::Stream, _) => Reached::Answer(reply::allow("GET")),
        (What::Messages, &Method::POST) => match Posting::new(end.server, who, seen, query) {
            Ok(posting) => Reached::Posting(posting),
            Err(refused) => Reached::Answer(refused),
        },
        (What::Messages, _) => Reached::Answer(reply::allow("POST")),
    }
}

/// Opens a stream. Its first event says where to post.
fn open(end: &End<'_>, who: &Who, seen: &Seen<'_>) -> Response<Body> {
    if !Accepts::read(seen, None).is_some_and(|accepts| accepts.stream) {
        return get::not_acceptable();
    }
    let Ok(posted) = end.server.pick_up(who) else { return get::full() };
    let mut first = Vec::with_capacity(128);
    sse::endpoint(&mut first, &format!("{}/messages?session_id={}", end.base, posted.name()));
    reply::stream(Body::stream(Source::Posted(posted), first, end.server.limits.keep_alive_ms))
}

/// A message whose head is in order; its body comes next.
pub(crate) struct Posting {
    talk: Talk<Live>,
}

impl Posting {
    #[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
    fn new(
        server: &Arc<Server>,
        who: Who,
        seen: &Seen<'_>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        post::check_body(seen)?;
        let mut named =
            query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("session_id="));
        let why = match (named.next(), named.next()) {
            (Some(name), None) => match server.line(name, &who) {
                Some(live) if live.mail.is_full() => return Err(get::full()),
                Some(live) => {
                    return Ok(Self { talk: Talk::of_line(server.clone(), who, live.clone(), live) });
                }
                None => {
                    let why = "no such stream: it ended, or is somebody else's; open another with GET";
                    return Err(reply::refuse(StatusCode::NOT_FOUND, Code::NoSession, why));
                }
            },
            (None, _) => "no `session_id` in the query; post to where the stream's first event says",
            (Some(_), Some(_)) => "more than one `session_id` in the query",
        };
        Err(reply::refuse(StatusCode::BAD_REQUEST, Code::InvalidRequest, why))
    }

    pub(crate) fn server(&self) -> &Server {
        &self.talk.server
    }

    /// Acts on one message. What it comes to goes out on the stream; all that is said here is that it arrived.
    pub(crate) fn take(&self, bytes: Vec<u8>) -> Response<Body> {
        match self.talk.open(bytes) {
            // Nobody waits on the stream for an answer to what was no request.
            Opened::Refused(refusal) if !refusal.names_request => {
                reply::refused(Refusal { status: refusal.status.max(400), ..refusal })
            }
            opened => {
                self.talk.act(opened, &mut Vec::new());
                reply::status(StatusCode::ACCEPTED)
            }
        }
    }
}

/// Nothing is gathered: each message is an event by itself. Whoever has no room for what must arrive is cut, so
/// nobody waits for it.
impl Outlet for Live {
    fn frame(&self, _: &mut Vec<u8>, message: Vec<u8>) {
        self.mail.send(message);
    }

    fn frame_notice(&self, _: &mut Vec<u8>, message: Vec<u8>) {
        self.mail.notice(message);
    }

    fn write(self: &Arc<Self>, _: &mut Vec<u8>) {}

    fn send(self: &Arc<Self>, message: Vec<u8>) {
        self.mail.send(message);
    }

    fn notice(self: &Arc<Self>, message: Vec<u8>) {
        self.mail.notice(message);
    }

    fn poll_room(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
