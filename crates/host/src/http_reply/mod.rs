//! The response to an HTTP request: which status, JSON or an event stream, which events, and what a client that
//! comes back receives.
//!
//! [`Server::respond_to_post`] answers a message, [`Server::open_stream`] a GET, [`Server::delete_session`] a DELETE.
//! A reply that is not complete is polled; [`machine`] decides each step of it. The HTTP transport and the pair
//! simulation both run this code, so what holds in the simulation holds on a socket.
//!
//! Deliberately absent: header syntax, sockets and clocks. The caller passes what the headers say and how much time
//! has passed, and sends the bytes.

mod machine;
mod refusal;
mod stream;

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};

use spile_core::ClientCapabilities;
use wire::frame::sse::EventId;
use wire::{
    Decoded, ErrorResponse, Feature, HeaderField, Headers, HttpDefaults, MessageContext, Notification,
    Request, SessionError, SessionLookup, Version,
};

pub use self::machine::{AcceptedTypes, CompleteReply};
pub use self::refusal::Refusal;
pub use self::stream::{ReplyStream, WaitingReply};
use crate::connection_state::ReplyChannel;
use crate::dispatch::Dispatched;
use crate::in_flight::{OutgoingMessage, PendingResponse};
use crate::server::{CallerIdentity, RegistrySnapshot, Server};
use crate::session_streams::{GET_STREAM, SessionStreams};
use crate::sessions::{SessionTicket, TicketMemo};

/// How a request is answered.
pub enum HttpReply {
    /// 202 without a body: the message needs no response.
    Accepted,
    /// 204 without a body: the session is ended.
    SessionEnded,
    Complete(CompleteReply),
    /// The response to a handshake, and the session id for its header.
    Initialized {
        reply: CompleteReply,
        session: String,
    },
    /// 200, `text/event-stream`.
    Stream(ReplyStream),
    Refused(Refusal),
}

/// A reply, or the way to one.
pub enum PostReply {
    Ready(HttpReply),
    Waiting(WaitingReply),
}

/// Who sent a message, and what it can be answered with.
pub struct PostSender<'a> {
    pub identity: &'a CallerIdentity,
    pub accepted: AcceptedTypes,
}

/// A decoded body, with what was looked up for it.
pub struct PostMessage {
    pub decoded: Decoded,
    /// The session that the message belongs to.
    pub ticket: Option<SessionTicket>,
    pub registry: RegistrySnapshot,
}

/// The headers of a GET or a DELETE.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionHeaders<'a> {
    pub session_id: HeaderField<'a>,
    pub protocol_version: HeaderField<'a>,
    pub last_event_id: HeaderField<'a>,
}

impl Server {
    /// Decodes a message, and verifies the session if the message needs one. `memo` is empty, or was used with this
    /// session id and caller before.
    #[inline]
    pub fn decode_post(
        &self,
        bytes: Vec<u8>,
        headers: Headers<'_>,
        session_id: HeaderField<'_>,
        identity: &CallerIdentity,
        memo: &TicketMemo,
    ) -> PostMessage {
        let found: Cell<Option<SessionTicket>> = Cell::new(None);
        let lookup_session = || match session_id {
            HeaderField::Absent => SessionLookup::NotNamed,
            HeaderField::Repeated => SessionLookup::NotFound(SessionError::Malformed),
            HeaderField::Single(id) => match self.verify_remembered_session(id, identity, memo) {
                Ok(ticket) => {
                    found.set(Some(ticket));
                    SessionLookup::Found(ticket.peer)
                }
                Err(error) => SessionLookup::NotFound(error),
            },
        };
        let defaults = HttpDefaults { headers, lookup_session: &lookup_session };
        let registry = self.snapshot();
        let decoded = self.decode(bytes, MessageContext::Http(defaults), &registry);
        PostMessage { decoded, ticket: found.get(), registry }
    }

    /// Answers one message. A call that is ready at the first poll is answered with JSON at once. `header` returns
    /// any other header, for tools whose schema maps an argument to one.
    #[inline]
    pub fn respond_to_post<'h>(
        self: &Arc<Self>,
        message: PostMessage,
        sender: &PostSender<'_>,
        header: impl Fn(&str) -> HeaderField<'h>,
        cx: &mut Context<'_>,
    ) -> PostReply {
        let PostMessage { decoded, ticket, registry } = message;
        let channel = ticket.map_or(ReplyChannel::NoSession, ReplyChannel::Session);
        let state = || ticket.and_then(|ticket| self.session_state(&ticket));
        PostReply::Ready(match decoded {
            Decoded::Request(request) => {
                let registry = RegistrySnapshot(registry.0.of_caller(&sender.identity.principal));
                match self.check_header_params(&registry.0, &request, header) {
                    Ok(()) => return self.respond_to_request(request, sender, channel, registry, cx),
                    Err(error) => rejected(error),
                }
            }
            Decoded::Notification(notification) => {
                match notification {
                    Notification::Cancelled(id) => {
                        if let Some(state) = state() {
                            state.cancel(&id);
                        }
                    }
                    Notification::RootsListChanged => self.client_roots_changed(sender.identity, &channel),
                    Notification::Initialized | Notification::Other => {}
                }
                HttpReply::Accepted
            }
            Decoded::Response { id, result } => {
                if let Some(ticket) = &ticket {
                    self.deliver_session_response(ticket, sender.identity, id, result);
                }
                HttpReply::Accepted
            }
            Decoded::Batch(batch) => match self.dispatch_batch(batch, sender.identity, &channel, &registry) {
                Some(pending) => return self.respond_when_ready(pending, sender, ticket, cx),
                None => HttpReply::Accepted,
            },
            Decoded::Rejected(error) => rejected(error),
        })
    }

    #[inline]
    fn respond_to_request(
        self: &Arc<Self>,
        mut request: Request,
        sender: &PostSender<'_>,
        channel: ReplyChannel,
        registry: RegistrySnapshot,
        cx: &mut Context<'_>,
    ) -> PostReply {
        let ticket = match channel {
            ReplyChannel::Session(ticket) => Some(ticket),
            ReplyChannel::NoSession | ReplyChannel::Pipe(_) => None,
        };
        let accepted = sender.accepted;
        // An input request to the user needs a stream.
        if !accepted.stream && request.peer.version.has(Feature::ServerRequests) {
            request.peer.capabilities = ClientCapabilities::NONE;
        }
        PostReply::Ready(match self.dispatch(request, sender.identity, channel, registry) {
            Dispatched::Ready { status, body, retry_after_ms } => {
                HttpReply::Complete(CompleteReply::new(status, body, retry_after_ms, accepted))
            }
            Dispatched::Initialized { body, session } => {
                HttpReply::Initialized { reply: CompleteReply::new(200, body, None, accepted), session }
            }
            Dispatched::Call(call) => {
                return self.respond_when_ready(PendingResponse::Single(call), sender, ticket, cx);
            }
            Dispatched::Subscription(subscription) if accepted.stream => {
                HttpReply::Stream(ReplyStream::subscription(subscription, self.limits.keep_alive_ms))
            }
            Dispatched::Subscription(_) => HttpReply::Refused(Refusal::SubscriptionNotAccepted),
        })
    }

    #[inline]
    fn respond_when_ready(
        self: &Arc<Self>,
        mut pending: PendingResponse,
        sender: &PostSender<'_>,
        ticket: Option<SessionTicket>,
        cx: &mut Context<'_>,
    ) -> PostReply {
        let first = match pending.poll_next(cx) {
            Poll::Ready(OutgoingMessage::Response { status, body }) => {
                let reply = CompleteReply::new(status, body, None, sender.accepted);
                return PostReply::Ready(HttpReply::Complete(reply));
            }
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        };
        PostReply::Waiting(self.wait_for(pending, first, sender, ticket))
    }

    /// Decides who owns a call that has to wait. A session owns its calls and keeps their events, so that the client
    /// can come back; without a session the call belongs to its response.
    fn wait_for(
        &self,
        pending: PendingResponse,
        first: Option<OutgoingMessage>,
        sender: &PostSender<'_>,
        ticket: Option<SessionTicket>,
    ) -> WaitingReply {
        let accepted = sender.accepted;
        let Some(ticket) = ticket else {
            return WaitingReply::call(pending, first, accepted, &self.limits);
        };
        match self.ensure_session_state(&ticket, sender.identity) {
            Ok(state) => {
                let reader = pending.spawn_into_stream(&state, first);
                WaitingReply::session_stream(reader, ticket.peer.version, accepted, &self.limits)
            }
            // The call has started and must not run twice: it continues without the session.
            Err(_) => WaitingReply::call(pending, first, accepted, &self.limits),
        }
    }

    /// Answers a GET: opens the session's own stream, or resumes the stream of `Last-Event-ID`. `accepted` is `None`
    /// if the client accepts neither JSON nor a stream.
    pub fn open_stream(
        &self,
        headers: &SessionHeaders<'_>,
        accepted: Option<AcceptedTypes>,
        identity: &CallerIdentity,
    ) -> HttpReply {
        match self.try_open_stream(headers, accepted, identity) {
            Ok(stream) => HttpReply::Stream(stream),
            Err(refusal) => HttpReply::Refused(refusal),
        }
    }

    fn try_open_stream(
        &self,
        headers: &SessionHeaders<'_>,
        accepted: Option<AcceptedTypes>,
        identity: &CallerIdentity,
    ) -> Result<ReplyStream, Refusal> {
        let ticket = self.require_session(headers, identity)?;
        if !accepted.is_some_and(|accepted| accepted.stream) {
            return Err(Refusal::StreamNotAccepted);
        }
        let state = self.ensure_session_state(&ticket, identity).map_err(|_| Refusal::TooManySessions)?;
        // SSE resumption: `Last-Event-ID` names the stream and the last event that arrived.
        let reader = match ResumePoint::parse(headers.last_event_id) {
            ResumePoint::SessionStream => SessionStreams::attach_reader(&state, GET_STREAM, None),
            ResumePoint::After(last) => SessionStreams::attach_reader(&state, last.stream, Some(last.event)),
        };
        // 2025-11-25, Resumability: "MUST NOT replay messages that would have been delivered on a different stream".
        // A client that waits there for a response would wait forever.
        let reader = reader.ok_or(Refusal::StreamNotFound)?;
        Ok(ReplyStream::session_stream(reader, ticket.peer.version, self.limits.keep_alive_ms))
    }

    /// Answers a DELETE: ends the session.
    pub fn delete_session(
        self: &Arc<Self>,
        headers: &SessionHeaders<'_>,
        identity: &CallerIdentity,
    ) -> HttpReply {
        match self.require_session(headers, identity) {
            Ok(ticket) => {
                self.end_session(&ticket);
                HttpReply::SessionEnded
            }
            Err(refusal) => HttpReply::Refused(refusal),
        }
    }

    /// The session that a request names, verified.
    fn require_session(
        &self,
        headers: &SessionHeaders<'_>,
        identity: &CallerIdentity,
    ) -> Result<SessionTicket, Refusal> {
        let id = match headers.session_id {
            // Without a session there is nothing to stream or to end. The newest era has no sessions.
            HeaderField::Absent => return Err(Refusal::NoSession),
            HeaderField::Repeated => return Err(Refusal::RepeatedSessionId),
            HeaderField::Single(id) => id,
        };
        if let HeaderField::Single(version) = headers.protocol_version {
            match Version::parse_bytes(version) {
                // 2026-07-28: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed."
                Some(version) if version.has(Feature::RequestMeta) => return Err(Refusal::NoSession),
                Some(_) => {}
                None => return Err(Refusal::UnsupportedVersion),
            }
        }
        self.verify_session(id, identity).map_err(Refusal::SessionNotFound)
    }
}

/// Where a GET starts to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResumePoint {
    /// The session's own stream, from now on.
    SessionStream,
    After(EventId),
}

impl ResumePoint {
    /// A value that is not an event id of ours belongs to no call, so no client waits for a response after it: the
    /// client gets the session's own stream, as without the header.
    fn parse(last_event_id: HeaderField<'_>) -> Self {
        match last_event_id {
            HeaderField::Single(id) => {
                let id = std::str::from_utf8(id).ok().and_then(EventId::parse);
                id.map_or(Self::SessionStream, Self::After)
            }
            HeaderField::Absent | HeaderField::Repeated => Self::SessionStream,
        }
    }
}

fn rejected(error: ErrorResponse) -> HttpReply {
    let ErrorResponse { http_status: status, body, retry_after_ms, .. } = error;
    HttpReply::Complete(CompleteReply::Json { status, body, retry_after_ms })
}
