//! Answers plain requests without hyper: a POST in HTTP/1.1 with a length, small, complete or arriving, to one of the MCP
//! servers.
//!
//! ```text
//! read → accepted_head (memo, or head + guard) → post → host → output
//!          not plain, refused, large, a stream → hyper, which gets every byte of the request, and only of this one
//! ```
//!
//! The fast path decides nothing that hyper and [`route`](super::route) would decide differently: it takes only what
//! both would accept, and refuses nothing itself. Where a head ends and how long the body is, the strict reader says, for
//! both. After a request that hyper answered, the connection comes back here.

mod accepted_head;
mod buffers;
mod head;
mod input;
mod output;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use host::{CompleteReply, HttpReply, PostReply};
use http::Response;
use tokio::io::{AsyncRead, AsyncWrite};

use self::accepted_head::{AcceptedRequest, HeadMemo};
use self::buffers::Buffers;
use self::input::Input;
use self::output::{Connection, Output};
use super::body::Body;
use super::post::{self, ResponseFuture};
use super::request_budget::UNCOUNTED_BYTES_MAX;
use super::route::{self, ConnectionContext};
use super::{cors, response};
use crate::guard::Origin;

/// A larger request is for hyper. It counts in no budget: a connection may hold as much anyway.
const REQUEST_BYTES_MAX: usize = UNCOUNTED_BYTES_MAX;

/// After this many steps (two for each request) other tasks get their turn.
const STEPS_PER_POLL_MAX: u32 = 32;

/// Serves the plain requests of one connection.
pub(super) struct FastPath<S> {
    socket: S,
    context: Arc<ConnectionContext>,
    plain_requests: PlainRequests,
    input: Input,
    output: Output,
    memo: HeadMemo,
    state: State,
    /// Whether the connection has served a request. One that has not yet waits a little at shutdown.
    has_served: bool,
}

/// Who answers plain requests. Fuzzers compare the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainRequests {
    FastPath,
    Hyper,
}

enum State {
    /// Between two requests, or in the body of one.
    Reading(Option<AcceptedRequest>),
    /// The call is not ready. The request is still in the input: hyper gets it if the response is a stream.
    Waiting(AcceptedRequest, ResponseFuture),
    Writing(Connection),
    Closing,
}

/// Why the fast path ended.
pub(super) enum Exit {
    /// The connection is closed.
    Closed,
    /// hyper must continue, with [`FastPath::take_input`].
    HandOver,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FastPath<S> {
    /// `first` are the bytes of the connection that are already read.
    pub(super) fn new(
        socket: S,
        context: Arc<ConnectionContext>,
        first: &[u8],
        plain_requests: PlainRequests,
    ) -> Self {
        let mut fast_path = Self {
            socket,
            plain_requests,
            context,
            input: Input::default(),
            output: Output::default(),
            memo: HeadMemo::default(),
            state: State::Reading(None),
            has_served: false,
        };
        fast_path.fill(first);
        fast_path
    }

    /// Whether a request was answered on this connection.
    pub(super) fn has_served(&self) -> bool {
        self.has_served
    }

    /// What was read and not answered, for hyper.
    pub(super) fn take_input(&mut self) -> Vec<u8> {
        let unread = self.input.unread().to_vec();
        self.release_buffers();
        if !unread.is_empty() {
            // The request has started, whatever was answered before it.
            self.context.connection.on_read();
        }
        unread
    }

    /// Continues after hyper has answered a request, with the bytes behind it.
    pub(super) fn resume(&mut self, unread: &[u8]) {
        self.fill(unread);
        self.has_served = true;
    }

    fn fill(&mut self, unread: &[u8]) {
        if !unread.is_empty() {
            self.acquire_buffers();
            self.input.fill(unread);
        }
    }

    #[inline]
    fn acquire_buffers(&mut self) {
        if !self.input.has_buffer() {
            let Buffers { input, output } = buffers::take();
            self.input.set_buffer(input);
            self.output.set_buffer(output);
        }
    }

    /// Nothing is left in them.
    #[inline]
    fn release_buffers(&mut self) {
        if self.input.has_buffer() {
            let (input, output) = (self.input.take_buffer(), self.output.take_buffer());
            buffers::give_back(Buffers { input, output });
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Exit>> {
        for _ in 0..STEPS_PER_POLL_MAX {
            let exit = match self.state {
                State::Reading(_) => ready!(self.poll_request(cx))?,
                State::Waiting(..) => ready!(self.poll_response(cx)),
                State::Writing(connection) => {
                    ready!(self.output.poll_write(&mut self.socket, &self.context.connection, cx))?;
                    self.context.connection.on_response_complete();
                    self.state = match connection {
                        Connection::KeepAlive => State::Reading(None),
                        Connection::Close => State::Closing,
                    };
                    None
                }
                State::Closing => {
                    ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
                    Some(Exit::Closed)
                }
            };
            if let Some(exit) = exit {
                return Poll::Ready(Ok(exit));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads a request and starts to answer it.
    #[inline]
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Exit>>> {
        loop {
            if self.context.connection.is_shutting_down(cx) {
                return Poll::Ready(Ok(self.shut_down()));
            }
            match self.next_request() {
                NextRequest::Complete(request) => return Poll::Ready(Ok(self.answer(request, cx))),
                NextRequest::NotPlain => return Poll::Ready(Ok(Some(self.hand_over()))),
                NextRequest::Incomplete => {}
            }
            self.acquire_buffers();
            let Poll::Ready(read) = self.input.poll_fill(&mut self.socket, cx) else {
                if self.input.is_empty() {
                    self.release_buffers();
                }
                return Poll::Pending;
            };
            if read? == 0 {
                // hyper knows what to do with half a request.
                let is_between = self.input.is_empty();
                return Poll::Ready(Ok(if is_between { self.close() } else { Some(self.hand_over()) }));
            }
        }
    }

    #[inline]
    fn next_request(&mut self) -> NextRequest {
        let bytes = self.input.unread();
        let State::Reading(reading) = &mut self.state else { return NextRequest::NotPlain };
        let request = match *reading {
            Some(request) => request,
            None if bytes.is_empty() => return NextRequest::Incomplete,
            None if self.plain_requests == PlainRequests::Hyper => return NextRequest::NotPlain,
            None => {
                let Some(request) = self.memo.accept(bytes, &self.context) else {
                    return NextRequest::NotPlain;
                };
                let server = self.memo.get(&request).and_then(|head| head.server(&self.context));
                let body_bytes_max = server.map_or(0, |server| server.limits.message_bytes_max);
                if request.bytes() > REQUEST_BYTES_MAX
                    || request.body_bytes > body_bytes_max
                    || request.body_bytes == 0
                {
                    self.memo.release(&request);
                    return NextRequest::NotPlain;
                }
                self.context.connection.on_request_head(false);
                *reading = Some(request);
                request
            }
        };
        if bytes.len() >= request.bytes() {
            return NextRequest::Complete(request);
        }
        self.input.reserve(request.bytes());
        NextRequest::Incomplete
    }

    #[inline]
    fn answer(&mut self, request: AcceptedRequest, cx: &mut Context<'_>) -> Option<Exit> {
        let connection = &self.context.connection;
        connection.on_body_complete();
        let Some(head) = self.memo.get(&request) else { return Some(self.hand_over()) };
        let Some(server) = head.server(&self.context) else { return Some(self.hand_over()) };
        let body = self.input.unread()[request.head_bytes..request.bytes()].to_vec();
        let lines = head.headers();
        let is_same_origin = matches!(head.origin, Origin::Same);
        match post::reply(&head.post_head(server), body, |name| lines.get(name), cx) {
            PostReply::Ready(HttpReply::Complete(CompleteReply::Json {
                status: status @ ..400,
                body,
                retry_after_ms: None,
            })) if is_same_origin => {
                self.output.start_json(status, body, connection.tick());
                self.finish_request(&request, Connection::KeepAlive);
                None
            }
            PostReply::Ready(reply) => self.respond(request, response::from_reply(reply), cx),
            PostReply::Waiting(waiting) => {
                self.state = State::Waiting(request, Box::pin(post::wait(waiting)));
                None
            }
        }
    }

    #[cold]
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Option<Exit>> {
        let State::Waiting(request, response) = &mut self.state else { return Poll::Ready(None) };
        let request = *request;
        match response.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(self.respond(request, response, cx)),
            Poll::Pending if self.context.connection.has_disconnected(cx) => {
                tracing::debug!("the client disconnected before the response was complete");
                Poll::Ready(Some(Exit::Closed))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Writes a response, or lets hyper write one that is a stream.
    #[cold]
    fn respond(
        &mut self,
        request: AcceptedRequest,
        mut response: Response<Body>,
        cx: &Context<'_>,
    ) -> Option<Exit> {
        let Some(head) = self.memo.get(&request) else { return Some(Exit::Closed) };
        if let Origin::Allowed(origin) = &head.origin {
            cors::allow_origin(&mut response, origin);
        }
        if response.status().as_u16() >= 400 {
            route::log_refused(
                &self.context,
                "POST",
                head.path(),
                head.identity.principal.clone(),
                &response,
            );
        }
        let Some(body) = response.body_mut().take_complete() else {
            self.context.set_prepared_response(response);
            self.state = State::Reading(Some(request));
            return Some(self.hand_over());
        };
        let connection = match self.context.connection.is_shutting_down(cx) {
            true => Connection::Close,
            false => Connection::KeepAlive,
        };
        self.output.start(&response, body, self.context.connection.tick(), connection);
        self.finish_request(&request, connection);
        None
    }

    /// The response is ready to be written; the request is no longer needed.
    #[inline]
    fn finish_request(&mut self, request: &AcceptedRequest, connection: Connection) {
        self.input.consume(request.bytes());
        self.memo.release(request);
        self.has_served = true;
        self.state = State::Writing(connection);
    }

    /// hyper continues with the input. A request that it has begun to read it starts again.
    #[cold]
    fn hand_over(&mut self) -> Exit {
        if let State::Reading(Some(request)) = std::mem::replace(&mut self.state, State::Reading(None)) {
            self.memo.release(&request);
            self.context.connection.on_response_complete();
        }
        Exit::HandOver
    }

    /// As hyper shuts down: an idle connection closes, and one with a request, or without any yet, serves it first.
    #[cold]
    fn shut_down(&mut self) -> Option<Exit> {
        if self.has_served && self.input.is_empty() { self.close() } else { Some(self.hand_over()) }
    }

    fn close(&mut self) -> Option<Exit> {
        self.state = State::Closing;
        None
    }
}

impl<S> Drop for FastPath<S> {
    fn drop(&mut self) {
        self.output.set_backlog(0, &self.context.connection);
    }
}

enum NextRequest {
    Complete(AcceptedRequest),
    /// There is nothing, or a part of a body.
    Incomplete,
    NotPlain,
}
