//! POST: one message in; a JSON response out, or an event stream if the call sends events or takes long.

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
use super::request_budget::{RequestReservation, UNCOUNTED_BYTES_MAX};
use super::route::ConnectionContext;
use super::{ConnectionLimits, response};
use crate::content_negotiation::{AcceptedTypes, is_json_content_type, is_unencoded};
use crate::request_headers::RequestHeaders;

/// A request with a valid head; its body comes next.
pub(crate) struct PostRequest<'a> {
    server: &'a Arc<Server>,
    identity: CallerIdentity,
    headers: &'a RequestHeaders<'a>,
    accepted: AcceptedTypes,
}

/// A response, or the future that produces it.
pub(crate) enum EventualResponse {
    Ready(Response<Body>),
    Pending(ResponseFuture),
}

pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl<'a> PostRequest<'a> {
    #[inline]
    #[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
    pub(crate) fn new(
        server: &'a Arc<Server>,
        identity: CallerIdentity,
        headers: &'a RequestHeaders<'a>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        check_body_headers(headers)?;
        let Some(accepted) = AcceptedTypes::from_request(headers, query) else {
            let reason = "Accept allows neither application/json nor text/event-stream";
            return Err(response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, reason));
        };
        Ok(Self { server, identity, headers, accepted })
    }

    pub(crate) fn server(&self) -> &Server {
        self.server
    }
}

/// Checks the headers that describe the body.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
pub(crate) fn check_body_headers(headers: &RequestHeaders<'_>) -> Result<(), Response<Body>> {
    let reason = if !is_json_content_type(headers.content_type) {
        "set Content-Type: application/json"
    } else if !is_unencoded(headers) {
        "the body must have no content or transfer coding"
    } else {
        return Ok(());
    };
    Err(response::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::InvalidRequest, reason))
}

/// Answers one message. A call that is ready at the first poll becomes plain JSON without a task or a timer.
#[inline]
pub(crate) fn handle(
    post_request: &PostRequest<'_>,
    bytes: Vec<u8>,
    cx: &mut Context<'_>,
) -> EventualResponse {
    let PostRequest { server, identity, headers, .. } = post_request;
    let (decoded, ticket) = decode(post_request, bytes);
    let channel = ticket.map_or(ReplyChannel::Stateless, ReplyChannel::Session);
    EventualResponse::Ready(match decoded {
        Decoded::Request(request) => match server.check_header_params(&request, |name| headers.get(name)) {
            Ok(()) => return handle_request(post_request, request, channel, cx),
            Err(error) => response::from_error_response(error),
        },
        Decoded::Notification(notification) => {
            if let (Notification::Cancelled(id), Some(state)) =
                (notification, ticket.and_then(|t| server.session_state(&t)))
            {
                state.cancel(&id);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        Decoded::Response { id, result: answer } => {
            if let Some(state) = ticket.and_then(|ticket| server.session_state(&ticket)) {
                state.deliver_response(id, answer);
            }
            response::empty(StatusCode::ACCEPTED)
        }
        Decoded::Batch(batch) => match server.dispatch_batch(batch, identity, &channel) {
            Some(pending_response) => return respond_when_ready(post_request, pending_response, channel, cx),
            None => response::empty(StatusCode::ACCEPTED),
        },
        Decoded::Rejected(error) => response::from_error_response(error),
    })
}

/// Decodes the message, and verifies the session if the message needs one.
#[inline]
fn decode(post_request: &PostRequest<'_>, bytes: Vec<u8>) -> (Decoded, Option<SessionTicket>) {
    let PostRequest { server, identity, headers, .. } = post_request;
    let found: Cell<Option<SessionTicket>> = Cell::new(None);
    let session = || match headers.session_id {
        HeaderField::Absent => SessionLookup::NotNamed,
        HeaderField::Repeated => SessionLookup::NotFound,
        HeaderField::Single(id) => {
            found.set(std::str::from_utf8(id).ok().and_then(|id| server.verify_session(id, identity)));
            found.get().map_or(SessionLookup::NotFound, |ticket| SessionLookup::Found(ticket.peer))
        }
    };
    let defaults = HttpDefaults {
        headers: Headers {
            version: headers.protocol_version,
            method: headers.mcp_method,
            name: headers.mcp_name,
        },
        lookup_session: &session,
    };
    let decoded = server.decode(bytes, Defaults::Http(defaults));
    (decoded, found.get())
}

#[inline]
fn handle_request(
    post_request: &PostRequest<'_>,
    mut request: Request,
    channel: ReplyChannel,
    cx: &mut Context<'_>,
) -> EventualResponse {
    let PostRequest { server, identity, accepted, .. } = post_request;
    // An input request to the user needs a stream.
    if !accepted.stream && request.peer.version.has(Feature::ServerRequests) {
        request.peer.capabilities = ClientCapabilities::NONE;
    }
    EventualResponse::Ready(match server.dispatch(request, identity, channel.clone()) {
        Dispatched::Ready { status, body, retry_after_ms } => {
            response::with_retry_after(complete_response(status, body, *accepted), retry_after_ms)
        }
        Dispatched::Initialized { body, session } => {
            let mut response = complete_response(200, body, *accepted);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(response::SESSION_ID, session);
            }
            response
        }
        Dispatched::Call(call) => {
            return respond_when_ready(post_request, PendingResponse::Single(call), channel, cx);
        }
        Dispatched::Subscription(subscription) if accepted.stream => response::event_stream(Body::stream(
            StreamSource::Subscription(subscription),
            Vec::new(),
            server.limits.keep_alive_ms,
        )),
        Dispatched::Subscription(_) => {
            let reason = "the response to a subscription is text/event-stream; add it to Accept";
            response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, reason)
        }
    })
}

#[inline]
fn respond_when_ready(
    post_request: &PostRequest<'_>,
    mut pending_response: PendingResponse,
    channel: ReplyChannel,
    cx: &mut Context<'_>,
) -> EventualResponse {
    let first = match pending_response.poll_next(cx) {
        Poll::Ready(OutgoingMessage::Response { status, body }) => {
            return EventualResponse::Ready(complete_response(status, body, post_request.accepted));
        }
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    };
    let server = post_request.server.clone();
    EventualResponse::Pending(match channel {
        ReplyChannel::Session(ticket) => Box::pin(respond_in_session(
            server,
            post_request.identity.clone(),
            pending_response,
            first,
            ticket,
            post_request.accepted,
        )),
        ReplyChannel::Stateless | ReplyChannel::Pipe(_) => {
            Box::pin(respond_outside_session(server, pending_response, first, post_request.accepted))
        }
    })
}

/// A complete response: plain JSON, or the only event of a stream.
#[inline]
fn complete_response(status: u16, body: Vec<u8>, accepted: AcceptedTypes) -> Response<Body> {
    if accepted.json || status >= 400 {
        return response::json(status, body);
    }
    response::event_stream(Body::full(sse_event(None, &body)))
}

/// A call without a session: it belongs to its response.
async fn respond_outside_session(
    server: Arc<Server>,
    pending_response: PendingResponse,
    first: Option<OutgoingMessage>,
    accepted: AcceptedTypes,
) -> Response<Body> {
    let survives_disconnect = pending_response.version().has(Feature::Handshake);
    let mut call = ResponseCall::new(pending_response, survives_disconnect);
    let keep_alive_ms = server.limits.keep_alive_ms;
    let mut next = first;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms));
    tokio::pin!(silence);
    loop {
        match next {
            Some(OutgoingMessage::Response { status, body }) => {
                return complete_response(status, body, accepted);
            }
            Some(OutgoingMessage::Notification(body) | OutgoingMessage::Request(body)) if accepted.stream => {
                let first = sse_event(None, &body);
                return response::event_stream(Body::stream(StreamSource::Call(call), first, keep_alive_ms));
            }
            Some(
                OutgoingMessage::Notification(_)
                | OutgoingMessage::Request(_)
                | OutgoingMessage::Pause { .. },
            )
            | None => {}
        }
        next = poll_fn(|cx| {
            if let Poll::Ready(out) = call.poll_next(cx) {
                return Poll::Ready(Some(out));
            }
            if accepted.stream { silence.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
        })
        .await
        .flatten();
        if next.is_none() {
            return response::event_stream(Body::stream(
                StreamSource::Call(call),
                sse::KEEP_ALIVE.to_vec(),
                keep_alive_ms,
            ));
        }
    }
}

/// A call that belongs to a session: it continues if the client disconnects.
async fn respond_in_session(
    server: Arc<Server>,
    identity: CallerIdentity,
    pending_response: PendingResponse,
    first: Option<OutgoingMessage>,
    ticket: SessionTicket,
    accepted: AcceptedTypes,
) -> Response<Body> {
    let state = match server.ensure_session_state(&ticket, &identity) {
        Ok(state) => state,
        // The call has started and must not run twice: it continues without the session.
        Err(_) => return respond_outside_session(server, pending_response, first, accepted).await,
    };
    let stream = pending_response.spawn_into_stream(&state, first);
    let Some(mut reader) = SessionStreams::attach_reader(&state, stream, Some(0)) else {
        return response::empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let start = reader.start_event_id();
    let version = ticket.peer.version;
    let silence = tokio::time::sleep(Duration::from_millis(server.limits.stream_after_silence_ms));
    tokio::pin!(silence);
    let mut out = Vec::new();
    loop {
        let item = poll_fn(|cx| {
            if let Poll::Ready(item) = reader.poll_next(cx) {
                return Poll::Ready(Some(item));
            }
            if accepted.stream { silence.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
        })
        .await;
        match item {
            Some(Some(StreamItem::Response { status, body, .. })) if accepted.json => {
                state.streams.remove(stream);
                return complete_response(status, body.to_vec(), accepted);
            }
            Some(Some(StreamItem::Message { .. } | StreamItem::Pause { .. })) if !accepted.stream => {}
            Some(Some(item)) => {
                write_priming_event(&mut out, version, start);
                let source = StreamSource::SessionStream(reader);
                return match item {
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
            // Cancelled: the client expects no response.
            Some(None) => return response::empty(StatusCode::ACCEPTED),
            None => {
                write_priming_event(&mut out, version, start);
                if out.is_empty() {
                    out.extend_from_slice(sse::KEEP_ALIVE);
                }
                let source = StreamSource::SessionStream(reader);
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

/// Reads the whole body, up to the limit.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
pub(crate) async fn read_body(
    mut body: Incoming,
    server: &Server,
    context: &ConnectionContext,
    multiplexed: bool,
) -> Result<Vec<u8>, Response<Body>> {
    let bytes_max = server.limits.frame_bytes_max;
    let declared = body.size_hint().lower();
    if declared > bytes_max as u64 {
        return Err(body_too_large(bytes_max));
    }
    let mut bytes = Vec::with_capacity(declared.min(PREALLOCATED_BYTES_MAX) as usize);
    // The connection tracker sees a stalled HTTP/1 connection, but not one stalled stream of HTTP/2.
    let mut reservation = None;
    let mut timeout = multiplexed.then(|| BodyTimeout::new(&context.site.connection_limits));
    poll_fn(|cx| {
        loop {
            let frame = match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    if is_dropped(&mut reservation, context, bytes.capacity(), cx) {
                        return Poll::Ready(Err(response::too_many_request_bytes()));
                    }
                    return match &mut timeout {
                        Some(timeout) => timeout.poll_expired(cx).map(|()| Err(body_timed_out())),
                        None => Poll::Pending,
                    };
                }
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
                    if let Some(timeout) = &mut timeout {
                        timeout.reset_idle();
                    }
                }
            }
        }
    })
    .await?;
    Ok(bytes)
}

/// Counts an incomplete body in the budget of the process. Returns whether it must be dropped.
fn is_dropped(
    reservation: &mut Option<RequestReservation>,
    context: &ConnectionContext,
    bytes: usize,
    cx: &Context<'_>,
) -> bool {
    match reservation {
        Some(reservation) => reservation.set(bytes, Instant::now()),
        None if bytes <= UNCOUNTED_BYTES_MAX => return false,
        None => *reservation = Some(context.tracker.request_budget().reserve(bytes, Instant::now())),
    }
    reservation.as_ref().is_some_and(|reservation| reservation.is_dropped(cx))
}

/// Waits briefly for the end of a body that is not needed, before its request is answered.
///
/// HTTP/2 resets a stream that is answered before its request is complete, and a client that is still sending may
/// see the reset and not the response. Errors in the rest of the request would go unnoticed too.
pub(crate) async fn discard_body(mut body: Incoming) {
    let rest = async {
        let mut discarded_bytes = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            discarded_bytes += frame.data_ref().map_or(0, |data| data.len());
            if discarded_bytes > DISCARDED_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(DISCARD_TIMEOUT_MS), rest).await;
}

const DISCARDED_BYTES_MAX: usize = 64 << 10;
const DISCARD_TIMEOUT_MS: u64 = 500;

/// How much to allocate because of a declared length, before the bytes arrive.
const PREALLOCATED_BYTES_MAX: u64 = 64 << 10;

/// The idle timeout and the total timeout of one body.
struct BodyTimeout {
    timer: Pin<Box<Sleep>>,
    idle_timeout: Duration,
    deadline: Instant,
}

impl BodyTimeout {
    fn new(limits: &ConnectionLimits) -> Self {
        let now = Instant::now();
        let idle_timeout = Duration::from_millis(limits.body_idle_timeout_ms);
        let deadline = now + Duration::from_millis(limits.body_total_timeout_ms);
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
    let reason = format!("the body exceeds the limit of {bytes_max} bytes");
    response::error(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::InvalidRequest, &reason)
}

#[cold]
fn body_timed_out() -> Response<Body> {
    response::error(StatusCode::REQUEST_TIMEOUT, ErrorCode::InvalidRequest, "the body did not arrive in time")
}

#[cold]
fn body_truncated() -> Response<Body> {
    response::error(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, "the body is incomplete")
}
