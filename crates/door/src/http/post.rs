//! POST: one message in; JSON out, or a stream once there is something to stream.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use call::Caps;
use host::{Begun, Flow, Line, Out, Part, Server, Streams, Ticket, Who};
use http::header::HeaderValue;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, Sleep};
use wire::code::Code;
use wire::frame::sse;
use wire::{Bare, Feature, Head, Heads, HttpBare, Notice, Opened, Request, Session, Version};

use super::body::{Body, Kept, Source, event};
use super::{Timing, reply};
use crate::accept::{Accepts, is_json, is_plain};
use crate::seen::Seen;

/// A request whose head is in order; its body comes next.
pub(crate) struct Asked<'a> {
    server: &'a Arc<Server>,
    who: Who,
    seen: &'a Seen<'a>,
    accepts: Accepts,
}

/// The answer to a request, or what it comes to once it is there.
pub(crate) enum Answer {
    Now(Response<Body>),
    Later(Later),
}

pub(crate) type Later = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl<'a> Asked<'a> {
    #[inline]
    #[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
    pub(crate) fn new(
        server: &'a Arc<Server>,
        who: Who,
        seen: &'a Seen<'a>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        check_body(seen)?;
        let Some(accepts) = Accepts::read(seen, query) else {
            let why = "Accept allows neither application/json nor text/event-stream";
            return Err(reply::refuse(StatusCode::NOT_ACCEPTABLE, Code::InvalidRequest, why));
        };
        Ok(Self { server, who, seen, accepts })
    }

    pub(crate) fn server(&self) -> &Server {
        self.server
    }
}

/// Whether a body is announced that can be taken.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
pub(crate) fn check_body(seen: &Seen<'_>) -> Result<(), Response<Body>> {
    let why = if !is_json(seen.content_type) {
        "the body must be application/json"
    } else if !is_plain(seen) {
        "the body must be sent as it is, without a content or transfer coding"
    } else {
        return Ok(());
    };
    Err(reply::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidRequest, why))
}

/// Answers one message. What is ready at the first look is plain JSON, with nothing made for it to wait with.
#[inline]
pub(crate) fn answer(asked: &Asked<'_>, bytes: Vec<u8>, cx: &mut Context<'_>) -> Answer {
    let Asked { server, who, seen, .. } = asked;
    let (opened, ticket) = open(asked, bytes);
    let line = ticket.map_or(Line::Alone, Line::Session);
    Answer::Now(match opened {
        Opened::Request(request) => match server.check_params(&request, |name| seen.other(name)) {
            Ok(()) => return one_request(asked, request, line, cx),
            Err(refusal) => reply::refused(refusal),
        },
        Opened::Notice(notice) => {
            if let (Notice::Cancelled(id), Some(live)) = (notice, ticket.and_then(|t| server.peek(&t))) {
                live.cancel(&id);
            }
            reply::status(StatusCode::ACCEPTED)
        }
        Opened::Answer { id, answer } => {
            if let Some(live) = ticket.and_then(|ticket| server.peek(&ticket)) {
                live.answered(id, answer);
            }
            reply::status(StatusCode::ACCEPTED)
        }
        Opened::Batch(batch) => match server.begin_batch(batch, who, &line) {
            Some(flow) => return flowing(asked, flow, line, cx),
            None => reply::status(StatusCode::ACCEPTED),
        },
        Opened::Refused(refusal) => reply::refused(refusal),
    })
}

/// What the message means, and the session it named if that had a say in it.
#[inline]
fn open(asked: &Asked<'_>, bytes: Vec<u8>) -> (Opened, Option<Ticket>) {
    let Asked { server, who, seen, .. } = asked;
    let found: Cell<Option<Ticket>> = Cell::new(None);
    let session = || match seen.session {
        Head::Absent => Session::None,
        Head::Twice => Session::Dead,
        Head::One(id) => {
            found.set(std::str::from_utf8(id).ok().and_then(|id| server.session(id, who)));
            found.get().map_or(Session::Dead, |ticket| Session::Open(ticket.peer))
        }
    };
    let bare = HttpBare {
        heads: Heads { version: seen.version, method: seen.method, name: seen.name },
        session: &session,
    };
    let opened = server.open(bytes, Bare::Http(bare));
    (opened, found.get())
}

#[inline]
fn one_request(asked: &Asked<'_>, mut request: Request, line: Line, cx: &mut Context<'_>) -> Answer {
    let Asked { server, who, accepts, .. } = asked;
    // A question to the user needs a stream to travel on.
    if !accepts.stream && request.peer.version.has(Feature::ServerRequests) {
        request.peer.caps = Caps::NONE;
    }
    Answer::Now(match server.begin(request, who, line.clone()) {
        Begun::Ready { status, body, retry_after_ms } => {
            reply::with_retry(finished(status, body, *accepts), retry_after_ms)
        }
        Begun::Welcome { body, session } => {
            let mut response = finished(200, body, *accepts);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(reply::SESSION, session);
            }
            response
        }
        Begun::Call(serving) => return flowing(asked, Flow::One(serving), line, cx),
        Begun::Listen(listening) if accepts.stream => {
            reply::stream(Body::stream(Source::Listening(listening), Vec::new(), server.limits.keep_alive_ms))
        }
        Begun::Listen(_) => {
            let why = "a subscription is answered with text/event-stream; allow it in Accept";
            reply::refuse(StatusCode::NOT_ACCEPTABLE, Code::InvalidRequest, why)
        }
    })
}

#[inline]
fn flowing(asked: &Asked<'_>, mut flow: Flow, line: Line, cx: &mut Context<'_>) -> Answer {
    let first = match flow.poll_next(cx) {
        Poll::Ready(Out::Final { status, body }) => {
            return Answer::Now(finished(status, body, asked.accepts));
        }
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    };
    let server = asked.server.clone();
    Answer::Later(match line {
        Line::Session(ticket) => {
            Box::pin(in_session(server, asked.who.clone(), flow, first, ticket, asked.accepts))
        }
        Line::Alone | Line::Pipe(_) => Box::pin(alone(server, flow, first, asked.accepts)),
    })
}

/// The answer is at hand: as it is, or as the only event of a stream.
#[inline]
fn finished(status: u16, body: Vec<u8>, accepts: Accepts) -> Response<Body> {
    if accepts.json || status >= 400 {
        return reply::json(status, body);
    }
    reply::stream(Body::full(event(None, &body)))
}

/// A call that lives in its response.
async fn alone(server: Arc<Server>, flow: Flow, first: Option<Out>, accepts: Accepts) -> Response<Body> {
    let outlives = flow.version().has(Feature::Handshake);
    let mut kept = Kept::new(flow, outlives);
    let keep_alive_ms = server.limits.keep_alive_ms;
    let mut said = first;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.silence_ms));
    tokio::pin!(silence);
    loop {
        match said {
            Some(Out::Final { status, body }) => return finished(status, body, accepts),
            Some(Out::Message(body) | Out::Question(body)) if accepts.stream => {
                let first = event(None, &body);
                return reply::stream(Body::stream(Source::Call(kept), first, keep_alive_ms));
            }
            Some(Out::Message(_) | Out::Question(_) | Out::Pause { .. }) | None => {}
        }
        said = poll_fn(|cx| {
            if let Poll::Ready(out) = kept.poll_next(cx) {
                return Poll::Ready(Some(out));
            }
            if accepts.stream { silence.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
        })
        .await
        .flatten();
        if said.is_none() {
            return reply::stream(Body::stream(Source::Call(kept), sse::KEEP_ALIVE.to_vec(), keep_alive_ms));
        }
    }
}

/// A call that belongs to a session: it goes on whether or not somebody reads.
async fn in_session(
    server: Arc<Server>,
    who: Who,
    flow: Flow,
    first: Option<Out>,
    ticket: Ticket,
    accepts: Accepts,
) -> Response<Body> {
    let live = match server.live(&ticket, &who) {
        Ok(live) => live,
        // It has begun, and must not be tried again: it does without what the session would add to it.
        Err(_) => return alone(server, flow, first, accepts).await,
    };
    let stream = flow.into_stream(&live, first);
    let Some(mut attached) = Streams::attach(&live, stream, Some(0)) else {
        return reply::status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let start = attached.start();
    let version = ticket.peer.version;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.silence_ms));
    tokio::pin!(silence);
    let mut out = Vec::new();
    loop {
        let part = poll_fn(|cx| {
            if let Poll::Ready(part) = attached.poll_next(cx) {
                return Poll::Ready(Some(part));
            }
            if accepts.stream { silence.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
        })
        .await;
        match part {
            Some(Some(Part::Answer { status, body, .. })) if accepts.json => {
                live.streams.forget(stream);
                return finished(status, body.to_vec(), accepts);
            }
            Some(Some(Part::Message { .. } | Part::Pause { .. })) if !accepts.stream => {}
            Some(Some(part)) => {
                prime(&mut out, version, start);
                let source = Source::Attached(attached);
                return match part {
                    Part::Message { id, body } => {
                        sse::message(&mut out, Some(id), &body);
                        reply::stream(Body::stream(source, out, server.limits.keep_alive_ms))
                    }
                    Part::Answer { id, body, .. } => {
                        sse::message(&mut out, Some(id), &body);
                        reply::stream(Body::full(out))
                    }
                    Part::Pause { retry_ms } => {
                        sse::retry(&mut out, retry_ms);
                        reply::stream(Body::full(out))
                    }
                };
            }
            // Cancelled: there is no answer, and none is owed.
            Some(None) => return reply::status(StatusCode::ACCEPTED),
            None => {
                prime(&mut out, version, start);
                if out.is_empty() {
                    out.extend_from_slice(sse::KEEP_ALIVE);
                }
                let source = Source::Attached(attached);
                return reply::stream(Body::stream(source, out, server.limits.keep_alive_ms));
            }
        }
    }
}

fn prime(out: &mut Vec<u8>, version: Version, start: sse::EventId) {
    if version.has(Feature::Priming) {
        sse::priming(out, start);
    }
}

/// Reads the whole body, but no more of it than we take.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
pub(crate) async fn read(
    mut body: Incoming,
    server: &Server,
    timing: &Timing,
    shared: bool,
) -> Result<Vec<u8>, Response<Body>> {
    let bytes_max = server.limits.frame_bytes_max;
    let declared = body.size_hint().lower();
    if declared > bytes_max as u64 {
        return Err(too_long(bytes_max));
    }
    let mut bytes = Vec::with_capacity(declared.min(READ_AHEAD_BYTES) as usize);
    // The watcher sees a connection that dries up, but not one of several requests that share it.
    let mut patience = shared.then(|| Patience::new(timing));
    poll_fn(|cx| {
        loop {
            let frame = match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => match &mut patience {
                    Some(patience) => return patience.poll_over(cx).map(|()| Err(too_late())),
                    None => return Poll::Pending,
                },
            };
            match frame {
                None => return Poll::Ready(Ok(())),
                Some(Err(_)) => return Poll::Ready(Err(cut_short())),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if bytes.len() + data.len() > bytes_max {
                        return Poll::Ready(Err(too_long(bytes_max)));
                    }
                    bytes.extend_from_slice(&data);
                    if let Some(patience) = &mut patience {
                        patience.renew();
                    }
                }
            }
        }
    })
    .await?;
    Ok(bytes)
}

/// Waits a little for the end of a body that nobody wants, before its request is answered.
///
/// On HTTP/2 a request that is answered before it is complete is reset, and a client that is still sending may see
/// that and not the answer. And what is wrong with the rest of it would go unnoticed.
pub(crate) async fn pass_over(mut body: Incoming) {
    let rest = async {
        let mut passed = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            passed += frame.data_ref().map_or(0, |data| data.len());
            if passed > PASSED_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(PASSED_MS_MAX), rest).await;
}

const PASSED_BYTES_MAX: usize = 64 << 10;
const PASSED_MS_MAX: u64 = 500;

/// A length is believed only so far before the bytes are there.
const READ_AHEAD_BYTES: u64 = 64 << 10;

/// How long we wait for the next piece of a body, and for all of it.
struct Patience {
    timer: Pin<Box<Sleep>>,
    idle: Duration,
    end: Instant,
}

impl Patience {
    fn new(timing: &Timing) -> Self {
        let now = Instant::now();
        let idle = Duration::from_millis(timing.body_idle_ms);
        let end = now + Duration::from_millis(timing.body_whole_ms);
        Self { timer: Box::pin(tokio::time::sleep_until(end.min(now + idle))), idle, end }
    }

    fn renew(&mut self) {
        self.timer.as_mut().reset(self.end.min(Instant::now() + self.idle));
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }
}

#[cold]
fn too_long(bytes_max: usize) -> Response<Body> {
    let why = format!("the body is longer than {bytes_max} bytes");
    reply::refuse(StatusCode::PAYLOAD_TOO_LARGE, Code::InvalidRequest, &why)
}

#[cold]
fn too_late() -> Response<Body> {
    reply::refuse(StatusCode::REQUEST_TIMEOUT, Code::InvalidRequest, "the body did not arrive in time")
}

#[cold]
fn cut_short() -> Response<Body> {
    reply::refuse(StatusCode::BAD_REQUEST, Code::InvalidRequest, "the body ended early")
}
