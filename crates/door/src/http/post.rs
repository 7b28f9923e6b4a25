//! POST: one message in; JSON out, or a stream once there is something to stream.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use call::Caps;
use host::{Begun, Flow, Line, Out, Part, Server, Streams, Ticket, Who};
use http::header::HeaderValue;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use wire::code::Code;
use wire::frame::sse;
use wire::{Bare, Feature, Head, Heads, HttpBare, Notice, Opened, Request, Session, Version};

use super::body::{Body, Kept, Source, event};
use super::reply;
use super::watcher::Phase;
use crate::accept::{Accepts, is_json};
use crate::seen::Seen;

/// A body that has not been read yet.
pub(crate) struct Reader<'a> {
    pub(crate) body: Incoming,
    pub(crate) phase: &'a Phase,
    /// How long to wait for the next piece of it, where nobody else sees to that.
    pub(crate) idle: Option<Duration>,
}

pub(crate) async fn answer(
    server: &Arc<Server>,
    who: &Who,
    seen: &Seen<'_>,
    query: Option<&str>,
    reader: Reader<'_>,
) -> Response<Body> {
    if !is_json(seen.content_type) {
        let why = "the body must be application/json";
        return reply::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidRequest, why);
    }
    let Some(accepts) = Accepts::read(seen, query) else {
        let why = "Accept allows neither application/json nor text/event-stream";
        return reply::refuse(StatusCode::NOT_ACCEPTABLE, Code::InvalidRequest, why);
    };
    let bytes = match read(reader.body, server.limits.frame_bytes_max, reader.idle).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    reader.phase.body_complete();

    let (opened, ticket) = open(server, who, seen, bytes);
    let line = ticket.map_or(Line::Alone, Line::Session);
    match opened {
        Opened::Request(request) => {
            if let Err(refusal) = server.check_params(&request, |name| seen.other(name)) {
                return reply::refused(refusal);
            }
            one_request(server, who, request, line, accepts).await
        }
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
            Some(flow) => flowing(server, who, flow, line, accepts).await,
            None => reply::status(StatusCode::ACCEPTED),
        },
        Opened::Refused(refusal) => reply::refused(refusal),
    }
}

/// What the message means, and the session it named if that had a say in it.
#[inline]
fn open(server: &Server, who: &Who, seen: &Seen<'_>, bytes: Vec<u8>) -> (Opened, Option<Ticket>) {
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

async fn one_request(
    server: &Arc<Server>,
    who: &Who,
    mut request: Request,
    line: Line,
    accepts: Accepts,
) -> Response<Body> {
    // A question to the user needs a stream to travel on.
    if !accepts.stream && request.peer.version.has(Feature::ServerRequests) {
        request.peer.caps = Caps::NONE;
    }
    match server.begin(request, who, line.clone()) {
        Begun::Ready { status, body, retry_after_ms } => {
            reply::with_retry(finished(status, body, accepts), retry_after_ms)
        }
        Begun::Welcome { body, session } => {
            let mut response = finished(200, body, accepts);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(reply::SESSION, session);
            }
            response
        }
        Begun::Call(serving) => flowing(server, who, Flow::One(serving), line, accepts).await,
        Begun::Listen(listening) if accepts.stream => {
            reply::stream(Body::stream(Source::Listening(listening), Vec::new(), server.limits.keep_alive_ms))
        }
        Begun::Listen(_) => {
            let why = "a subscription is answered with text/event-stream; allow it in Accept";
            reply::refuse(StatusCode::NOT_ACCEPTABLE, Code::InvalidRequest, why)
        }
    }
}

/// Answers a call. What is ready at the first look is plain JSON, with nothing made for it to wait with.
async fn flowing(
    server: &Arc<Server>,
    who: &Who,
    mut flow: Flow,
    line: Line,
    accepts: Accepts,
) -> Response<Body> {
    let first = poll_fn(|cx| Poll::Ready(flow.poll_next(cx))).await;
    let first = match first {
        Poll::Ready(Out::Final { status, body }) => return finished(status, body, accepts),
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    };
    match line {
        // Boxed: what only slow calls need would make the future of every request larger, and hyper keeps room
        // for one with each connection.
        Line::Session(ticket) => Box::pin(in_session(server, who, flow, first, &ticket, accepts)).await,
        Line::Alone | Line::Pipe(_) => Box::pin(alone(server, flow, first, accepts)).await,
    }
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
async fn alone(server: &Arc<Server>, flow: Flow, first: Option<Out>, accepts: Accepts) -> Response<Body> {
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
    server: &Arc<Server>,
    who: &Who,
    flow: Flow,
    first: Option<Out>,
    ticket: &Ticket,
    accepts: Accepts,
) -> Response<Body> {
    let live = match server.live(ticket, who) {
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

/// Reads the whole body, but no more than `bytes_max` of it.
#[inline]
async fn read(
    mut body: Incoming,
    bytes_max: usize,
    idle: Option<Duration>,
) -> Result<Vec<u8>, Response<Body>> {
    let too_long = || {
        let why = format!("the body is longer than {bytes_max} bytes");
        reply::refuse(StatusCode::PAYLOAD_TOO_LARGE, Code::InvalidRequest, &why)
    };
    let declared = body.size_hint().lower();
    if declared > bytes_max as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(declared.min(READ_AHEAD_BYTES) as usize);
    loop {
        let next = poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx));
        let frame = match idle {
            None => next.await,
            Some(idle) => match Box::pin(tokio::time::timeout(idle, next)).await {
                Ok(frame) => frame,
                Err(_) => {
                    let why = "the body did not arrive in time";
                    return Err(reply::refuse(StatusCode::REQUEST_TIMEOUT, Code::InvalidRequest, why));
                }
            },
        };
        match frame {
            None => return Ok(bytes),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.len() > bytes_max {
                    return Err(too_long());
                }
                bytes.extend_from_slice(&data);
            }
            Some(Err(_)) => {
                let why = "the body ended early";
                return Err(reply::refuse(StatusCode::BAD_REQUEST, Code::InvalidRequest, why));
            }
        }
    }
}

/// A length is believed only so far before the bytes are there.
const READ_AHEAD_BYTES: u64 = 64 << 10;
