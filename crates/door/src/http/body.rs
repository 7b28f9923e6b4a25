//! Response bodies: bytes at hand, or a stream that is made as it is read.
//!
//! A stream owns what it shows. hyper drops the body when the client goes, and for a call of the newest era
//! that is the cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use host::{Attached, Flow, GET_STREAM, Listening, News, Out, Part, Posted};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wire::frame::sse::{self, EventId};
use wire::shape;

use super::watcher::Link;

pub(crate) struct Body {
    kind: Kind,
    /// The connection is told when the answer is complete.
    link: Option<Arc<Link>>,
}

/// The client has left, and with it the reason for an answer.
#[derive(Debug)]
pub(crate) struct Left;

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client left before it was answered")
    }
}

impl std::error::Error for Left {}

/// Bytes on their way out. Written once and read once, so nothing has to be counted or shared.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    at: usize,
}

impl Chunk {
    fn len(&self) -> usize {
        self.bytes.len() - self.at
    }
}

impl From<Vec<u8>> for Chunk {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }
}

impl Buf for Chunk {
    #[inline]
    fn remaining(&self) -> usize {
        self.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "more is taken than there is");
        self.at += bytes;
    }
}

enum Kind {
    Full(Option<Chunk>),
    Stream(Box<Stream>),
}

struct Stream {
    source: Source,
    /// What goes out before anything else.
    first: Option<Chunk>,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    over: bool,
}

/// Where the events of a stream come from.
pub(crate) enum Source {
    /// A call that lives and dies with this response.
    Call(Kept),
    /// A stream of a session.
    Attached(Attached),
    Listening(Listening),
    /// All that is said on a line of HTTP+SSE.
    Posted(Posted),
}

/// A call in a response. One that its client cannot cancel by leaving goes on without it.
pub(crate) struct Kept {
    flow: Option<Flow>,
    outlives: bool,
}

impl Kept {
    pub(crate) fn new(flow: Flow, outlives: bool) -> Self {
        Self { flow: Some(flow), outlives }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Out>> {
        let Some(flow) = &mut self.flow else { return Poll::Ready(None) };
        let out = std::task::ready!(flow.poll_next(cx));
        if matches!(out, Out::Final { .. }) {
            self.flow = None;
        }
        Poll::Ready(Some(out))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let (true, Some(mut flow)) = (self.outlives, self.flow.take()) {
            // 2025-11-25: "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
            tokio::spawn(async move {
                while !matches!(std::future::poll_fn(|cx| flow.poll_next(cx)).await, Out::Final { .. }) {}
            });
        }
    }
}

impl Body {
    #[inline]
    pub(crate) fn full(bytes: Vec<u8>) -> Self {
        Self { kind: Kind::Full(Some(bytes.into())), link: None }
    }

    pub(crate) fn empty() -> Self {
        Self { kind: Kind::Full(None), link: None }
    }

    pub(crate) fn stream(source: Source, first: Vec<u8>, keep_alive_ms: u64) -> Self {
        let keep_alive = Duration::from_millis(keep_alive_ms);
        let first = (!first.is_empty()).then(|| Chunk::from(first));
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        Self {
            kind: Kind::Stream(Box::new(Stream { source, first, keep_alive, timer, over: false })),
            link: None,
        }
    }

    pub(crate) fn watched(&mut self, link: Arc<Link>) {
        self.link = Some(link);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.answered();
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Chunk;
    type Error = Left;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Left>>> {
        let Self { kind, link } = &mut *self;
        match kind {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(stream) => match stream.poll_bytes(cx) {
                Poll::Ready(bytes) => Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes)))),
                Poll::Pending if link.as_ref().is_some_and(|link| link.has_left(cx)) => {
                    Poll::Ready(Some(Err(Left)))
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        matches!(self.kind, Kind::Full(None))
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl Stream {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(bytes) = self.source.poll_bytes(cx) {
            self.timer.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(match bytes {
                Some((bytes, More::Yes)) => Some(bytes),
                Some((bytes, More::No)) => {
                    self.over = true;
                    Some(bytes)
                }
                None => None,
            });
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.keep_alive);
            // Polled again at once, so that the timer knows whom to wake.
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(sse::KEEP_ALIVE.to_vec().into()));
        }
        Poll::Pending
    }
}

enum More {
    Yes,
    No,
}

impl Source {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Chunk, More)>> {
        match self {
            Self::Call(kept) => loop {
                return Poll::Ready(match std::task::ready!(kept.poll_next(cx)) {
                    None => None,
                    Some(Out::Message(body) | Out::Question(body)) => {
                        Some((event(None, &body).into(), More::Yes))
                    }
                    // Nobody could come back for the rest of this one.
                    Some(Out::Pause { .. }) => continue,
                    Some(Out::Final { body, .. }) => Some((event(None, &body).into(), More::No)),
                });
            },
            Self::Attached(attached) => {
                if attached.stream() == GET_STREAM {
                    gather_news(attached, cx);
                }
                Poll::Ready(match std::task::ready!(attached.poll_next(cx)) {
                    None => None,
                    Some(Part::Message { id, body }) => Some((event(Some(id), &body).into(), More::Yes)),
                    Some(Part::Answer { id, body, .. }) => Some((event(Some(id), &body).into(), More::No)),
                    Some(Part::Pause { retry_ms }) => {
                        let mut out = Vec::with_capacity(24);
                        sse::retry(&mut out, retry_ms);
                        Some((out.into(), More::No))
                    }
                })
            }
            Self::Listening(listening) => {
                let message = std::task::ready!(listening.poll_next(cx));
                Poll::Ready(message.map(|message| (event(None, &message).into(), More::Yes)))
            }
            Self::Posted(posted) => {
                let message = std::task::ready!(posted.poll_next(cx));
                Poll::Ready(message.map(|message| (event(None, &message).into(), More::Yes)))
            }
        }
    }
}

/// Moves what a session has not been told yet into its GET stream, where it can be read again.
fn gather_news(attached: &Attached, cx: &mut Context<'_>) {
    let live = attached.live();
    while let Poll::Ready(Some(News::Change(change))) = live.watch.poll_next(cx) {
        live.streams.notice(GET_STREAM, shape::change(&change, None));
    }
}

pub(crate) fn event(id: Option<EventId>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 48);
    sse::message(&mut out, id, body);
    out
}
