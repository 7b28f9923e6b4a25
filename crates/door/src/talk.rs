//! What a message means on a pipe, whatever carries it: answered at once, or gone on with elsewhere.
//!
//! A pipe is one client and one [`Live`] for as long as it lasts; the era is chosen for each message. Knows
//! nothing of threads, sockets and framing: those are its [`Outlet`]'s.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use host::{Begun, Flow, Line, Listening, Live, News, Out, Server, Waiting, Who};
use tokio::runtime::Handle;
use tokio::sync::watch;
use wire::code::{Code, Told};
use wire::frame::{Frame, Framing};
use wire::{Bare, Id, Notice, Opened, Version, shape};

/// The way out of a pipe. Bounded: beyond its bound notices are dropped, and whoever can wait must.
pub(crate) trait Outlet: Send + Sync + 'static {
    /// Adds a message that must arrive to what is gathered, in the framing that the client speaks.
    fn frame(&self, batch: &mut Vec<u8>, message: Vec<u8>);

    /// Adds one that may be lost. What is gathered has room for it; whoever does not gather may not.
    fn frame_notice(&self, batch: &mut Vec<u8>, message: Vec<u8>) {
        self.frame(batch, message);
    }

    /// Writes what whoever reads has gathered. Nothing that is sent later overtakes it.
    fn write(self: &Arc<Self>, batch: &mut Vec<u8>);

    /// A message that must arrive.
    fn send(self: &Arc<Self>, message: Vec<u8>);

    /// A message that may be lost on a client that does not read.
    fn notice(self: &Arc<Self>, message: Vec<u8>);

    /// Ready when there is room for what must arrive, or nobody left for whom to keep it.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The framing that a client speaks and is answered in. Until it has spoken: lines.
#[derive(Default)]
pub(crate) struct Spoken(AtomicU8);

impl Spoken {
    const ALL: [Framing; 3] = [Framing::Lines, Framing::Headers, Framing::WebSocket];

    #[inline]
    pub(crate) fn set(&self, framing: Framing) {
        self.0.store(framing as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> Framing {
        Self::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

#[derive(PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    Stop,
}

pub(crate) struct Talk<O> {
    pub(crate) server: Arc<Server>,
    pub(crate) live: Arc<Live>,
    pub(crate) output: Arc<O>,
    who: Who,
    runtime: Handle,
    ends: Ends,
}

/// How it comes to its end: subscriptions end too, and new requests are refused.
enum Ends {
    /// By itself, when somebody says so.
    Told(watch::Sender<bool>),
    /// With the server, which sees to all of it.
    WithServer,
}

impl<O: Outlet> Talk<O> {
    pub(crate) fn new(server: Arc<Server>, who: Who, output: Arc<O>, runtime: Handle) -> Self {
        let live = server.pipe();
        Self { server, live, output, who, runtime, ends: Ends::Told(watch::Sender::new(false)) }
    }

    /// For messages that come one by one, where what is open outlasts each of them. Within a runtime only.
    pub(crate) fn of_line(server: Arc<Server>, who: Who, live: Arc<Live>, output: Arc<O>) -> Self {
        Self { server, live, output, who, runtime: Handle::current(), ends: Ends::WithServer }
    }

    /// Acts on one frame; what is answered at once is appended to `batch`.
    pub(crate) fn take(&self, frame: Frame, batch: &mut Vec<u8>) -> Then {
        let bytes = match frame {
            Frame::Message(bytes) => bytes,
            Frame::TooLong => {
                let why = format!("the message is longer than {} bytes", self.server.limits.frame_bytes_max);
                self.refuse(Code::InvalidRequest, &why, batch);
                return Then::GoOn;
            }
            Frame::Lost => {
                self.refuse(
                    Code::Parse,
                    "no Content-Length to be found; where a message starts is unknown",
                    batch,
                );
                return Then::Stop;
            }
        };
        self.act(self.open(bytes), batch);
        Then::GoOn
    }

    #[inline]
    pub(crate) fn open(&self, bytes: Vec<u8>) -> Opened {
        self.server.open(bytes, Bare::Pipe(self.live.peer()))
    }

    /// Acts on what a message was read as; what is answered at once is appended to `batch`.
    #[inline]
    pub(crate) fn act(&self, opened: Opened, batch: &mut Vec<u8>) {
        let line = Line::Pipe(self.live.clone());
        match opened {
            Opened::Request(request) if self.is_ending() => {
                self.output.frame(batch, going_away(&request.id, request.peer.version));
            }
            Opened::Request(request) => match self.server.begin(request, &self.who, line) {
                Begun::Ready { body, .. } | Begun::Welcome { body, .. } => self.output.frame(batch, body),
                Begun::Call(serving) => self.flow(Flow::One(serving), batch),
                Begun::Listen(listening) => self.listen(listening, batch),
            },
            Opened::Notice(Notice::Cancelled(id)) => self.live.cancel(&id),
            Opened::Notice(Notice::Initialized | Notice::Other) => {}
            Opened::Answer { id, answer } => self.live.answered(id, answer),
            Opened::Batch(several) => {
                if let Some(flow) = self.server.begin_batch(several, &self.who, &line) {
                    self.flow(flow, batch);
                }
            }
            Opened::Refused(refusal) => self.output.frame(batch, refusal.body),
        }
    }

    /// Says what is wrong where no request is known.
    pub(crate) fn refuse(&self, code: Code, why: &str, batch: &mut Vec<u8>) {
        let version = self.live.peer().map_or(Version::UNNAMED, |peer| peer.version);
        self.output.frame(batch, Told::new(code, 400, why).response(None, version));
    }

    /// What a client of the handshake era is told of a change. Without a handshake there is nobody to tell.
    pub(crate) fn tell(&self, news: &News) {
        if let (News::Change(change), Some(_)) = (news, self.live.peer()) {
            self.output.notice(shape::change(change, None));
        }
    }

    /// It comes to its end: what is under way may finish, subscriptions end, nothing new begins.
    pub(crate) fn end(&self) {
        match &self.ends {
            Ends::Told(ending) => _ = ending.send_replace(true),
            Ends::WithServer => {}
        }
    }

    fn is_ending(&self) -> bool {
        match &self.ends {
            Ends::Told(ending) => *ending.borrow(),
            Ends::WithServer => false,
        }
    }

    /// Looks once; what is not over then goes on elsewhere.
    fn flow(&self, mut flow: Flow, batch: &mut Vec<u8>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut spoke = false;
        loop {
            match flow.poll_next(&mut cx) {
                Poll::Ready(Out::Final { body, .. }) => return self.output.frame(batch, body),
                Poll::Ready(Out::Message(body)) => {
                    spoke = true;
                    self.output.frame_notice(batch, body);
                }
                Poll::Ready(Out::Question(body)) => {
                    spoke = true;
                    self.output.frame(batch, body);
                }
                Poll::Ready(Out::Pause { .. }) => {}
                Poll::Pending => break,
            }
        }
        if spoke {
            // What it says next, it says from elsewhere: that must not overtake this.
            self.output.write(batch);
        }
        let output = self.output.clone();
        self.go_on(flow.enter(&self.live), async move {
            loop {
                match poll_fn(|cx| flow.poll_next(cx)).await {
                    Out::Message(body) => output.notice(body),
                    Out::Question(body) => send(&output, body).await,
                    Out::Pause { .. } => {}
                    Out::Final { body, .. } => return send(&output, body).await,
                }
            }
        });
    }

    fn listen(&self, mut listening: Listening, batch: &mut Vec<u8>) {
        let id = listening.to().id.clone();
        let mut cx = Context::from_waker(Waker::noop());
        // 2026-07-28: the acknowledgment MUST be the first message of the subscription.
        if let Poll::Ready(Some(first)) = listening.poll_next(&mut cx) {
            self.output.frame(batch, first);
            self.output.write(batch);
        }
        let output = self.output.clone();
        let mut ending = match &self.ends {
            Ends::Told(ending) => Some(ending.subscribe()),
            Ends::WithServer => None,
        };
        self.go_on(self.live.waits(id.clone()), async move {
            loop {
                // News that nobody has room for stay with the watch, which keeps each once.
                poll_fn(|cx| output.poll_room(cx)).await;
                let next = tokio::select! {
                    next = poll_fn(|cx| listening.poll_next(cx)) => next,
                    () = told(&mut ending), if !listening.is_ended() => {
                        listening.end();
                        continue;
                    }
                };
                match next {
                    Some(message) => output.send(message),
                    None => break,
                }
            }
            // 2026-07-28, Cancellation: a server MUST send this when it tears a subscription down. The page on
            // subscriptions wants the result, which has just gone out; a client may read either.
            send(&output, shape::listening_cancelled(&id)).await;
        });
    }

    /// Runs on the runtime what has to wait.
    fn go_on(&self, waiting: Waiting, work: impl Future<Output = ()> + Send + 'static) {
        let number = waiting.number();
        let task = self.runtime.spawn(async move {
            let _waiting = waiting;
            work.await;
        });
        self.live.started(number, task.abort_handle());
    }
}

/// Sends as soon as there is room. Meanwhile the call counts as one under way, so these are bounded too.
async fn send<O: Outlet>(output: &Arc<O>, message: Vec<u8>) {
    poll_fn(|cx| output.poll_room(cx)).await;
    output.send(message);
}

/// Waits until it comes to its end; for ever if nobody is there to say so.
async fn told(ending: &mut Option<watch::Receiver<bool>>) {
    if let Some(ending) = ending
        && ending.wait_for(|ending| *ending).await.is_ok()
    {
        return;
    }
    pending().await
}

#[cold]
fn going_away(id: &Id, version: Version) -> Vec<u8> {
    Told::busy(503, 1000, "the server is going away; connect again").response(Some(id), version)
}
