//! POST: reads one message, and sends what the host replies. The host decides between JSON and an event stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use host::{AcceptedTypes, CallerIdentity, PostReply, PostSender, Server, TicketMemo, WaitingReply};
use http::{Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, Sleep};
use wire::error::ErrorCode;
use wire::{HeaderField, Headers};

use super::body::{Body, ResponseTimer};
use super::directory::ServerRef;
use super::request_budget::{RequestReservation, UNCOUNTED_BYTES_MAX};
use super::route::ConnectionContext;
use super::{ConnectionLimits, response};
use crate::content_negotiation::{accepted_types, is_json_content_type, is_unencoded};
use crate::request_headers::RequestHeaders;

/// What answering a message needs of the head that it came with.
pub(crate) struct PostHead<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) identity: &'a CallerIdentity,
    /// The headers that must agree with the message.
    pub(crate) headers: Headers<'a>,
    pub(crate) session_id: HeaderField<'a>,
    /// What the connection remembers of this session id.
    pub(crate) ticket_memo: &'a TicketMemo,
    pub(crate) accepted: AcceptedTypes,
}

/// A request with a valid head; its body comes next.
pub(crate) struct PostRequest<'a> {
    server: ServerRef<'a>,
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
        server: ServerRef<'a>,
        mut identity: CallerIdentity,
        headers: &'a RequestHeaders<'a>,
        query: Option<&str>,
    ) -> Result<Self, Response<Body>> {
        check_body_headers(headers)?;
        let Some(accepted) = accepted_types(headers, query) else {
            let reason = "Accept allows neither application/json nor text/event-stream";
            return Err(response::error(StatusCode::NOT_ACCEPTABLE, ErrorCode::InvalidRequest, reason));
        };
        if server.reads_request_heads() {
            identity.request_head = Some(Arc::new(headers.to_request_head()));
        }
        Ok(Self { server, identity, headers, accepted })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

/// Checks the headers that describe the body.
#[inline]
#[expect(clippy::result_large_err, reason = "the error is the response, on its way out")]
pub(crate) fn check_body_headers(headers: &RequestHeaders<'_>) -> Result<(), Response<Body>> {
    let reason = if !is_json_content_type(headers.content_type) {
        "unsupported Content-Type; expected application/json"
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
    let PostRequest { server, identity, headers, accepted } = post_request;
    let head = PostHead {
        server,
        identity,
        headers: Headers {
            version: headers.protocol_version,
            method: headers.mcp_method,
            name: headers.mcp_name,
        },
        session_id: headers.session_id,
        ticket_memo: &TicketMemo::default(),
        accepted: *accepted,
    };
    match reply(&head, bytes, |name| headers.get(name), cx) {
        PostReply::Ready(reply) => EventualResponse::Ready(response::from_reply(reply)),
        PostReply::Waiting(waiting) => EventualResponse::Pending(Box::pin(wait(waiting))),
    }
}

/// What the host replies to one message. `header` returns any other header of the request.
#[inline]
pub(crate) fn reply<'h>(
    head: &PostHead<'_>,
    bytes: Vec<u8>,
    header: impl Fn(&str) -> HeaderField<'h>,
    cx: &mut Context<'_>,
) -> PostReply {
    let PostHead { server, identity, headers, session_id, ticket_memo, accepted } = *head;
    let message = server.decode_post(bytes, headers, session_id, identity, ticket_memo);
    server.respond_to_post(message, &PostSender { identity, accepted }, header, cx)
}

/// Waits until it is known how the response begins.
pub(crate) async fn wait(mut waiting: WaitingReply) -> Response<Body> {
    let mut timer = ResponseTimer::start();
    let mut elapsed_ms = 0;
    let reply = poll_fn(|cx| {
        loop {
            if let Poll::Ready(reply) = waiting.poll(cx, elapsed_ms) {
                return Poll::Ready(reply);
            }
            elapsed_ms = ready!(timer.poll_until(cx, waiting.wake_at_ms()));
        }
    });
    let reply = reply.await;
    response::from_reply_with_timer(reply, || timer)
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
    let bytes_max = server.limits.message_bytes_max;
    let declared = body.size_hint().lower();
    if declared > bytes_max as u64 {
        return Err(body_too_large(bytes_max));
    }
    let mut bytes = Vec::with_capacity(declared.min(PREALLOCATED_BYTES_MAX) as usize);
    // The connection tracker sees a stalled HTTP/1 connection, but not one stalled stream of HTTP/2.
    let mut reservation = None;
    let mut timeout = multiplexed.then(|| BodyTimeout::new(&context.service.connection_limits));
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
