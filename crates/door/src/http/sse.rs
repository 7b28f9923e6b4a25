//! HTTP+SSE, the transport of 2024-11-05: a stream that a client opens, and messages that it posts.
//!
//! Together they are a pipe: the handshake goes over it, every answer, notification and question comes as an event
//! of the stream, and when the stream ends, so does everything that was under way on it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use host::{Begun, Flow, Line, Listening, Live, Out, Server, Waiting, Who};
use http::{Method, Response, StatusCode};
use wire::code::Code;
use wire::frame::sse;
use wire::{Bare, Notice, Opened, Refusal, shape};

use super::body::{Body, Source};
use super::{Site, get, post, reply};
use crate::accept::Accepts;
use crate::seen::Seen;

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
pub(crate) enum Reached<'a> {
    Answer(Response<Body>),
    /// A message is to come.
    Posting(Posting<'a>),
}

pub(crate) fn reach<'a>(
    end: &End<'a>,
    method: &Method,
    who: Who,
    seen: &Seen<'_>,
    query: Option<&str>,
) -> Reached<'a> {
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
pub(crate) struct Posting<'a> {
    server: &'a Arc<Server>,
    live: Arc<Live>,
    who: Who,
}

impl<'a> Posting<'a> {
    #[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
    fn new(
        server: &'a Arc<Server>,
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
                Some(live) => return Ok(Self { server, live, who }),
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
        self.server
    }

    /// Acts on one message. What it comes to goes out on the stream; all that is said here is that it arrived.
    pub(crate) fn take(&self, bytes: Vec<u8>) -> Response<Body> {
        let Self { server, live, who } = self;
        let line = Line::Pipe(live.clone());
        match server.open(bytes, Bare::Pipe(live.peer())) {
            Opened::Request(request) => match server.begin(request, who, line) {
                Begun::Ready { body, .. } | Begun::Welcome { body, .. } => live.mail.send(body),
                Begun::Call(serving) => flow(live, Flow::One(serving)),
                Begun::Listen(listening) => listen(live, listening),
            },
            Opened::Notice(Notice::Cancelled(id)) => live.cancel(&id),
            Opened::Notice(Notice::Initialized | Notice::Other) => {}
            Opened::Answer { id, answer } => live.answered(id, answer),
            Opened::Batch(several) => {
                if let Some(all) = server.begin_batch(several, who, &line) {
                    flow(live, all);
                }
            }
            Opened::Refused(refusal) if refusal.names_request => live.mail.send(refusal.body),
            // Nobody waits on the stream for an answer to what was no request.
            Opened::Refused(refusal) => {
                return reply::refused(Refusal { status: refusal.status.max(400), ..refusal });
            }
        }
        reply::status(StatusCode::ACCEPTED)
    }
}

/// Looks once; what is not over then goes on by itself.
fn flow(live: &Arc<Live>, mut flow: Flow) {
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(out) = flow.poll_next(&mut cx) {
        if say(live, out) == Then::Over {
            return;
        }
    }
    let own = live.clone();
    go_on(live, flow.enter(live), async move {
        while say(&own, poll_fn(|cx| flow.poll_next(cx)).await) == Then::GoOn {}
    });
}

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Over,
}

fn say(live: &Live, out: Out) -> Then {
    match out {
        Out::Message(body) => live.mail.notice(body),
        Out::Question(body) => live.mail.send(body),
        Out::Pause { .. } => {}
        Out::Final { body, .. } => {
            live.mail.send(body);
            return Then::Over;
        }
    }
    Then::GoOn
}

fn listen(live: &Arc<Live>, mut listening: Listening) {
    let id = listening.to().id.clone();
    let own = live.clone();
    go_on(live, live.waits(id.clone()), async move {
        while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
            own.mail.send(message);
        }
        // As on a pipe: a client may read either this or the result before it.
        own.mail.send(shape::listening_cancelled(&id));
    });
}

fn go_on(live: &Live, waiting: Waiting, work: impl Future<Output = ()> + Send + 'static) {
    let number = waiting.number();
    let task = tokio::spawn(async move {
        let _waiting = waiting;
        work.await;
    });
    live.started(number, task.abort_handle());
}
