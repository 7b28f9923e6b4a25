//! POST: one message in; JSON out, or a stream once there is something to stream.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use host::{
    CallerIdentity, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel, Server, SessionStreams,
    SessionTicket, StreamItem,
};
use http::header::HeaderValue;
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use spile_core::ClientCapabilities;
use tokio::time::{Instant, Sleep};
use wire::error::ErrorCode;
use wire::frame::sse;
use wire::{
    Decoded, Defaults, Feature, HeaderField, Headers, HttpDefaults, Notification, Request, SessionLookup,
    Version,
};

use super::body::{Body, ResponseCall, StreamSource, sse_event};
use super::{ConnectionLimits, response};
use crate::content_negotiation::{AcceptedTypes, is_json_content_type, is_unencoded};
use crate::request_headers::RequestHeaders;

/// A request whose head is in order; its body comes next.
pub(crate) struct PostRequest<'a> {
    server: &'a Arc<Server>,
    identity: CallerIdentity,
    headers: &'a RequestHeaders<'a>,
    accepted: AcceptedTypes,
}

/// The answer to a request, or what it comes to once it is there.
pub(crate) enum EventualResponse {
    Ready(Response<Body>),
    Pending(ResponseFuture),
}

pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl<'a> PostRequest<'a> {
    #[inline]
    #[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
    pub(crate) fn new(
        server: &'a Arc<Server>,
        who: CallerIdentity,
        seen: &'a RequestHeaders<'a>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        check_body_headers(seen)?;
        let Some(accepts) = AcceptedTypes::from_request(seen, query) else {
            let why = "Accept allows neither application/json nor text/event-stream";
            return Err(response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, why));
        };
        Ok(Self { server, identity: who, headers: seen, accepted: accepts })
    }

    pub(crate) fn server(&self) -> &Server {
        self.server
    }
}

/// Whether a body is announced that can be taken.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
pub(crate) fn check_body_headers(seen: &RequestHeaders<'_>) -> Result<(), Response<Body>> {
    let why = if !is_json_content_type(seen.content_type) {
        "the body must be application/json"
    } else if !is_unencoded(seen) {
        "the body must be sent as it is, without a content or transfer coding"
    } else {
        return Ok(());
    };
    Err(response::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::InvalidRequest, why))
}

/// Answers one message. What is ready at the first look is plain JSON, with nothing made for it to wait with.
#[inline]
pub(crate) fn handle(asked: &PostRequest<'_>, bytes: Vec<u8>, cx: &mut Context<'_>) -> EventualResponse {
    let PostRequest { server, identity: who, headers: seen, .. } = asked;
    let (opened, ticket) = decode(asked, bytes);
    let line = ticket.map_or(ReplyChannel::Stateless, ReplyChannel::Session);
    EventualResponse::Ready(match opened {
        Decoded::Request(request) => match server.check_header_params(&request, |name| seen.get(name)) {
            Ok(()) => return handle_request(asked, request, line, cx),
            Err(refusal) => response::from_error_response(refusal),
        },
        Decoded::Notification(notice) => {
            if let (Notification::Cancelled(id), Some(live)) =
                (notice, ticket.and_then(|t| server.session_state(&t)))
            {
                live.cancel(&id);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        Decoded::Response { id, result: answer } => {
            if let Some(live) = ticket.and_then(|ticket| server.session_state(&ticket)) {
                live.deliver_response(id, answer);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        Decoded::Batch(batch) => match server.dispatch_batch(batch, who, &line) {
            Some(flow) => return respond_when_ready(asked, flow, line, cx),
            None => response::empty(StatusCode::ACCEPTED),
        },
        Decoded::Rejected(refusal) => response::from_error_response(refusal),
    })
}

/// What the message means, and the session it named if that had a say in it.
#[inline]
fn decode(asked: &PostRequest<'_>, bytes: Vec<u8>) -> (Decoded, Option<SessionTicket>) {
    let PostRequest { server, identity: who, headers: seen, .. } = asked;
    let found: Cell<Option<SessionTicket>> = Cell::new(None);
    let session = || match seen.session_id {
        HeaderField::Absent => SessionLookup::NotNamed,
        HeaderField::Repeated => SessionLookup::NotFound,
        HeaderField::Single(id) => {
            found.set(std::str::from_utf8(id).ok().and_then(|id| server.verify_session(id, who)));
            found.get().map_or(SessionLookup::NotFound, |ticket| SessionLookup::Found(ticket.peer))
        }
    };
    let bare = HttpDefaults {
        headers: Headers { version: seen.protocol_version, method: seen.mcp_method, name: seen.mcp_name },
        lookup_session: &session,
    };
    let opened = server.decode(bytes, Defaults::Http(bare));
    (opened, found.get())
}

#[inline]
fn handle_request(
    asked: &PostRequest<'_>,
    mut request: Request,
    line: ReplyChannel,
    cx: &mut Context<'_>,
) -> EventualResponse {
    let PostRequest { server, identity: who, accepted: accepts, .. } = asked;
    // A question to the user needs a stream to travel on.
    if !accepts.stream && request.peer.version.has(Feature::ServerRequests) {
        request.peer.capabilities = ClientCapabilities::NONE;
    }
    EventualResponse::Ready(match server.dispatch(request, who, line.clone()) {
        Dispatched::Ready { status, body, retry_after_ms } => {
            response::with_retry_after(complete_response(status, body, *accepts), retry_after_ms)
        }
        Dispatched::Initialized { body, session } => {
            let mut response = complete_response(200, body, *accepts);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(response::SESSION_ID, session);
            }
            response
        }
        Dispatched::Call(serving) => {
            return respond_when_ready(asked, PendingResponse::Single(serving), line, cx);
        }
        Dispatched::Subscription(listening) if accepts.stream => response::event_stream(Body::stream(
            StreamSource::Subscription(listening),
            Vec::new(),
            server.limits.keep_alive_ms,
        )),
        Dispatched::Subscription(_) => {
            let why = "a subscription is answered with text/event-stream; allow it in Accept";
            response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, why)
        }
    })
}

#[inline]
fn respond_when_ready(
    asked: &PostRequest<'_>,
    mut flow: PendingResponse,
    line: ReplyChannel,
    cx: &mut Context<'_>,
) -> EventualResponse {
    let first = match flow.poll_next(cx) {
        Poll::Ready(OutgoingMessage::Response { status, body }) => {
            return EventualResponse::Ready(complete_response(status, body, asked.accepted));
        }
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    };
    let server = asked.server.clone();
    EventualResponse::Pending(match line {
        ReplyChannel::Session(ticket) => {
            Box::pin(respond_in_session(server, asked.identity.clone(), flow, first, ticket, asked.accepted))
        }
        ReplyChannel::Stateless | ReplyChannel::Pipe(_) => {
            Box::pin(respond_outside_session(server, flow, first, asked.accepted))
        }
    })
}

/// The answer is at hand: as it is, or as the only event of a stream.
#[inline]
fn complete_response(status: u16, body: Vec<u8>, accepts: AcceptedTypes) -> Response<Body> {
    if accepts.json || status >= 400 {
        return response::json(status, body);
    }
    response::event_stream(Body::full(sse_event(None, &body)))
}

/// A call that lives in its response.
async fn respond_outside_session(
    server: Arc<Server>,
    flow: PendingResponse,
    first: Option<OutgoingMessage>,
    accepts: AcceptedTypes,
) -> Response<Body> {
    let outlives = flow.version().has(Feature::Handshake);
    let mut kept = ResponseCall::new(flow, outlives);
    let keep_alive_ms = server.limits.keep_alive_ms;
    let mut said = first;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms));
    tokio::pin!(silence);
    loop {
        match said {
            Some(OutgoingMessage::Response { status, body }) => {
                return complete_response(status, body, accepts);
            }
            Some(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) if accepts.stream => {
                let first = sse_event(None, &body);
                return response::event_stream(Body::stream(StreamSource::Call(kept), first, keep_alive_ms));
            }
            Some(
                OutgoingMessage::Notification(_)
                | OutgoingMessage::Request(_)
                | OutgoingMessage::Pause { .. },
            )
            | None => {}
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
            return response::event_stream(Body::stream(
                StreamSource::Call(kept),
                sse::KEEP_ALIVE.to_vec(),
                keep_alive_ms,
            ));
        }
    }
}

/// A call that belongs to a session: it goes on whether or not somebody reads.
async fn respond_in_session(
    server: Arc<Server>,
    who: CallerIdentity,
    flow: PendingResponse,
    first: Option<OutgoingMessage>,
    ticket: SessionTicket,
    accepts: AcceptedTypes,
) -> Response<Body> {
    let live = match server.ensure_session_state(&ticket, &who) {
        Ok(live) => live,
        // It has begun, and must not be tried again: it does without what the session would add to it.
        Err(_) => return respond_outside_session(server, flow, first, accepts).await,
    };
    let stream = flow.spawn_into_stream(&live, first);
    let Some(mut attached) = SessionStreams::attach_reader(&live, stream, Some(0)) else {
        return response::empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let start = attached.start_event_id();
    let version = ticket.peer.version;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms));
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
            Some(Some(StreamItem::Response { status, body, .. })) if accepts.json => {
                live.streams.remove(stream);
                return complete_response(status, body.to_vec(), accepts);
            }
            Some(Some(StreamItem::Message { .. } | StreamItem::Pause { .. })) if !accepts.stream => {}
            Some(Some(part)) => {
                write_priming_event(&mut out, version, start);
                let source = StreamSource::SessionStream(attached);
                return match part {
                    StreamItem::Message { id, body } => {
                        sse::write_message(&mut out, Some(id), &body);
                        response::event_stream(Body::stream(source, out, server.limits.keep_alive_ms))
                    }
                    StreamItem::Response { id, body, .. } => {
                        sse::write_message(&mut out, Some(id), &body);
                        response::event_stream(Body::full(out))
                    }
                    StreamItem::Pause { retry_ms } => {
                        sse::write_retry(&mut out, retry_ms);
                        response::event_stream(Body::full(out))
                    }
                };
            }
            // Cancelled: there is no answer, and none is owed.
            Some(None) => return response::empty(StatusCode::ACCEPTED),
            None => {
                write_priming_event(&mut out, version, start);
                if out.is_empty() {
                    out.extend_from_slice(sse::KEEP_ALIVE);
                }
                let source = StreamSource::SessionStream(attached);
                return response::event_stream(Body::stream(source, out, server.limits.keep_alive_ms));
            }
        }
    }
}

fn write_priming_event(out: &mut Vec<u8>, version: Version, start: sse::EventId) {
    if version.has(Feature::Priming) {
        sse::write_priming(out, start);
    }
}

/// Reads the whole body, but no more of it than we take.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the answer, on its way out")]
pub(crate) async fn read_body(
    mut body: Incoming,
    server: &Server,
    timing: &ConnectionLimits,
    shared: bool,
) -> Result<Vec<u8>, Response<Body>> {
    let bytes_max = server.limits.frame_bytes_max;
    let declared = body.size_hint().lower();
    if declared > bytes_max as u64 {
        return Err(body_too_large(bytes_max));
    }
    let mut bytes = Vec::with_capacity(declared.min(PREALLOCATED_BYTES_MAX) as usize);
    // The watcher sees a connection that dries up, but not one of several requests that share it.
    let mut patience = shared.then(|| BodyTimeout::new(timing));
    poll_fn(|cx| {
        loop {
            let frame = match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => match &mut patience {
                    Some(patience) => return patience.poll_expired(cx).map(|()| Err(body_timed_out())),
                    None => return Poll::Pending,
                },
            };
            match frame {
                None => return Poll::Ready(Ok(())),
                Some(Err(_)) => return Poll::Ready(Err(body_truncated())),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if bytes.len() + data.len() > bytes_max {
                        return Poll::Ready(Err(body_too_large(bytes_max)));
                    }
                    bytes.extend_from_slice(&data);
                    if let Some(patience) = &mut patience {
                        patience.reset_idle();
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
pub(crate) async fn discard_body(mut body: Incoming) {
    let rest = async {
        let mut passed = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            passed += frame.data_ref().map_or(0, |data| data.len());
            if passed > DISCARDED_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(DISCARD_TIMEOUT_MS), rest).await;
}

const DISCARDED_BYTES_MAX: usize = 64 << 10;
const DISCARD_TIMEOUT_MS: u64 = 500;

/// A length is believed only so far before the bytes are there.
const PREALLOCATED_BYTES_MAX: u64 = 64 << 10;

/// How long we wait for the next piece of a body, and for all of it.
struct BodyTimeout {
    timer: Pin<Box<Sleep>>,
    idle_timeout: Duration,
    deadline: Instant,
}

impl BodyTimeout {
    fn new(timing: &ConnectionLimits) -> Self {
        let now = Instant::now();
        let idle_timeout = Duration::from_millis(timing.body_idle_timeout_ms);
        let deadline = now + Duration::from_millis(timing.body_total_timeout_ms);
        Self {
            timer: Box::pin(tokio::time::sleep_until(deadline.min(now + idle_timeout))),
            idle_timeout,
            deadline,
        }
    }

    fn reset_idle(&mut self) {
        self.timer.as_mut().reset(self.deadline.min(Instant::now() + self.idle_timeout));
    }

    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }
}

#[cold]
fn body_too_large(bytes_max: usize) -> Response<Body> {
    let why = format!("the body is longer than {bytes_max} bytes");
    response::error(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::InvalidRequest, &why)
}

#[cold]
fn body_timed_out() -> Response<Body> {
    response::error(StatusCode::REQUEST_TIMEOUT, ErrorCode::InvalidRequest, "the body did not arrive in time")
}

#[cold]
fn body_truncated() -> Response<Body> {
    response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, "the body ended early")
}
