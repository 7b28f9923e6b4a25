//! A pipe over a connection: what the stdio door does with threads, done by the connection's own task.
//!
//! The task reads, opens, looks once at each call and answers what is ready itself; it writes when no whole
//! message is left to read. Only what has to wait gets a task of its own. A client that does not read is not
//! read from either once its queue is full, and the watcher closes it when nothing has moved for too long.

mod lines;
mod outbox;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use host::{Server, Who};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::timeout;
use wire::Version;
use wire::code::Told;
use wire::frame::{Frame, Framing};

use crate::ending::Ending;
use crate::http::Rests;
use crate::talk::{Outlet as _, Talk, Then};
pub(crate) use lines::Lines;
pub(crate) use outbox::Outbox;

/// What carries messages.
pub(crate) trait Transport {
    type Io: AsyncRead + AsyncWrite;
    /// How long it may be quiet between two messages.
    const RESTS: Rests;

    fn io(&mut self) -> Pin<&mut Self::Io>;

    fn framing(&self) -> Framing;

    /// Whether a message has begun to arrive and is not complete.
    fn is_within(&self) -> bool;

    /// What comes next. What the transport itself has to say is appended to `own`.
    fn poll_next(&mut self, cx: &mut Context<'_>, own: &mut Vec<u8>) -> Poll<Got>;

    /// Appends the last words of a server that goes.
    fn bye(&mut self, own: &mut Vec<u8>);
}

/// Who minds how long a client takes, and says when it is time to go.
pub(crate) trait Minder {
    /// From now on it is a pipe.
    fn becomes_pipe(&self, rests: Rests);

    /// Whether it is time to go. The first to ask is woken when it is.
    fn is_ending(&self, cx: &Context<'_>) -> bool;

    /// It is between two messages.
    fn rests(&self, rests: Rests);

    /// A message has begun to arrive.
    fn message_begins(&self);

    /// It is read from again; that nothing was heard meanwhile was not its client's doing.
    fn reads_again(&self);
}

/// A client may take its time.
impl Minder for Ending {
    fn becomes_pipe(&self, _: Rests) {}

    fn is_ending(&self, cx: &Context<'_>) -> bool {
        self.is_told(cx)
    }

    fn rests(&self, _: Rests) {}

    fn message_begins(&self) {}

    fn reads_again(&self) {}
}

/// What came down a pipe.
pub(crate) enum Got {
    Frame(Frame),
    /// Something that only the transport minds.
    Own,
    /// Nothing more will come, but what was asked may be answered.
    End,
    /// It is over: nothing is answered any more, but what was said must still arrive.
    Over,
    /// Nobody is there.
    Gone,
}

/// When nothing more comes, what was asked already may be answered for so long; and so long a client has to
/// take its last answers, and to close.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Serves one client at the other end of `io`, in lines or with headers, until it leaves.
///
/// Nobody minds how long it takes over anything, so it must not be a stranger: somebody in this process.
pub async fn serve(server: Arc<Server>, io: impl AsyncRead + AsyncWrite + Unpin) {
    let lines = Lines::new(io, server.limits.frame_bytes_max);
    run(lines, server, Who::default(), &Ending::default(), Duration::ZERO).await;
}

/// Serves one client until it leaves, or until we go. `drain` is how long calls may then still take.
pub(crate) async fn run<T: Transport>(
    transport: T,
    server: Arc<Server>,
    who: Who,
    minder: &impl Minder,
    drain: Duration,
) {
    let output = Outbox::new(server.limits.stream_bytes_max);
    output.spoken.set(transport.framing());
    let talk = Talk::new(server, who, output, Handle::current());
    let mut pipe = Pipe { transport, talk, minder, within: false, batch: Vec::new() };
    minder.becomes_pipe(T::RESTS);
    let last = poll_fn(|cx| match minder.is_ending(cx) {
        true => Poll::Ready(Last::Ending),
        false => pipe.poll(cx),
    });
    let mut last = last.await;
    if last == Last::Ending {
        pipe.talk.end();
        let live = pipe.talk.live.clone();
        let mut calm = pin!(live.calm());
        let settled = poll_fn(|cx| match calm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Last::Ending),
            Poll::Pending => pipe.poll(cx),
        });
        last = timeout(drain, settled).await.unwrap_or(Last::Ending);
    }
    match last {
        Last::Gone => return,
        Last::Over => {}
        Last::End => pipe.settle().await,
        Last::Ending => {
            pipe.transport.bye(&mut pipe.batch);
            pipe.talk.output.finish(&mut pipe.batch);
        }
    }
    pipe.talk.live.close();
    part(&mut pipe.transport, &pipe.talk.output, last).await;
}

/// Answers whatever comes first with this, and closes.
pub(crate) async fn refuse(mut transport: impl Transport, told: &Told) {
    let output = Outbox::new(0);
    let mut said = Vec::new();
    // Only then it is clear in which framing to answer.
    if let Got::Gone = poll_fn(|cx| transport.poll_next(cx, &mut said)).await {
        return;
    }
    transport.framing().write(&mut said, &told.response(None, Version::UNNAMED));
    output.write(&mut said);
    part(&mut transport, &output, Last::Over).await;
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// We go.
    Ending,
    End,
    Over,
    Gone,
}

/// One client. When it is dropped, wherever that is, its calls end.
struct Pipe<'m, T: Transport, M> {
    transport: T,
    talk: Talk<Outbox>,
    minder: &'m M,
    within: bool,
    /// Answers that go out together.
    batch: Vec<u8>,
}

/// Answers are gathered up to this before they are written, as long as there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// So many messages are taken at one look: a client that sends without a pause is not the only one.
const TURN_MESSAGES: usize = 64;

impl<T: Transport, M: Minder> Pipe<'_, T, M> {
    /// Takes in and writes out what can be.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Last> {
        let mut left = TURN_MESSAGES;
        loop {
            let full = self.talk.output.is_full();
            let got = if full { Poll::Pending } else { self.transport.poll_next(cx, &mut self.batch) };
            let idle = got.is_pending();
            let last = match got {
                Poll::Pending | Poll::Ready(Got::Own) => None,
                Poll::Ready(Got::Frame(frame)) => {
                    self.talk.output.spoken.set(self.transport.framing());
                    let then = self.talk.take(frame, &mut self.batch);
                    (then == Then::Stop).then_some(Last::Over)
                }
                Poll::Ready(Got::End) => Some(Last::End),
                Poll::Ready(Got::Over) => Some(Last::Over),
                Poll::Ready(Got::Gone) => return Poll::Ready(Last::Gone),
            };
            left = left.saturating_sub(1);
            if !idle && last.is_none() && left > 0 && self.batch.len() < BATCH_BYTES {
                continue;
            }
            if last == Some(Last::Over) {
                self.talk.output.finish(&mut self.batch);
            } else {
                self.talk.output.write(&mut self.batch);
            }
            self.note_phase();
            self.tell_news(cx);
            match self.talk.output.poll_flush(cx, self.transport.io()) {
                Poll::Ready(Err(_)) => return Poll::Ready(Last::Gone),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            if let Some(last) = last {
                return Poll::Ready(last);
            }
            // Whoever was not read from because its queue was full may have made room.
            if idle && (!full || self.talk.output.is_full()) {
                return Poll::Pending;
            }
            if full {
                self.minder.reads_again();
            }
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Tells what changed. News that nobody has room for stay with the watch, which keeps each once.
    fn tell_news(&self, cx: &mut Context<'_>) {
        while !self.talk.output.is_full()
            && let Poll::Ready(Some(news)) = self.talk.live.watch.poll_next(cx)
        {
            self.talk.tell(&news);
        }
    }

    /// A message that has begun must come to its end in time.
    fn note_phase(&mut self) {
        let within = self.transport.is_within();
        if within != self.within {
            self.within = within;
            if within { self.minder.message_begins() } else { self.minder.rests(T::RESTS) }
        }
    }

    /// Writes what is still answered after the last message.
    async fn settle(&mut self) {
        self.talk.end();
        let Self { talk, transport, .. } = self;
        let mut calm = pin!(talk.live.calm());
        let settled = poll_fn(|cx| {
            let flushed = talk.output.poll_flush(cx, transport.io());
            if let Poll::Ready(Err(_)) = flushed { Poll::Ready(()) } else { calm.as_mut().poll(cx) }
        });
        if timeout(AFTERWARDS, settled).await.is_err() {
            tracing::debug!("calls were cancelled because the client stopped sending");
        }
    }
}

/// Writes what is left and closes. What still arrives is thrown away: a socket that is closed over unread
/// bytes is reset, and the other side may lose what it was told last.
async fn part<T: Transport>(transport: &mut T, output: &Outbox, last: Last) {
    let closed = async {
        poll_fn(|cx| output.poll_flush(cx, transport.io())).await?;
        poll_fn(|cx| transport.io().poll_shutdown(cx)).await
    };
    if !matches!(timeout(AFTERWARDS, closed).await, Ok(Ok(()))) || last == Last::End {
        return;
    }
    let mut waste = [0; 4096];
    let left = poll_fn(|cx| {
        for _ in 0..TURN_MESSAGES {
            let mut waste = ReadBuf::new(&mut waste);
            match transport.io().poll_read(cx, &mut waste) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !waste.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    // Whoever neither closes nor stops sending is closed on.
    let _ = timeout(AFTERWARDS, left).await;
}

impl<T: Transport, M> Drop for Pipe<'_, T, M> {
    fn drop(&mut self) {
        self.talk.live.close();
        self.talk.output.close();
    }
}
