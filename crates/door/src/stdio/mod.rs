//! A pipe: one message after the other in, answers out in the order they are ready.
//!
//! One thread reads, opens, looks once at each call and answers what is ready itself; it writes when no
//! whole message is left to read. Only what has to wait moves to the runtime, so a slow call never delays a
//! fast one. Nothing but this door writes to stdout while we serve.

mod output;

use std::future::poll_fn;
use std::io::{self, Read};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use host::{Begun, Flow, Line, Listening, Live, News, Out, Server, Waiting, Who};
use tokio::runtime::Handle;
use wire::code::{Code, Told};
use wire::frame::{Frame, Frames, Framing};
use wire::{Bare, Notice, Opened, shape};

pub use output::Output;

/// When the input ends, what was asked already may be answered for so long.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Serves one client until the input ends. Blocks; what has to wait runs on `runtime`.
pub fn serve(
    server: Arc<Server>,
    runtime: &Handle,
    mut input: impl Read,
    output: Arc<Output>,
) -> io::Result<()> {
    let _inside = runtime.enter();
    let live = server.pipe();
    let pipe = Pipe { server, live, output, runtime: runtime.clone() };
    let news = runtime.spawn(tell_news(pipe.live.clone(), pipe.output.clone()));
    let mut frames = Frames::new(pipe.server.limits.frame_bytes_max);
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    'read: while !pipe.output.is_closed() {
        let read = match input.read(frames.space()) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.filled(read);
        while let Some(frame) = frames.next() {
            pipe.output.speak(frames.framing().unwrap_or(Framing::Lines));
            if pipe.take(frame, &mut batch) == Then::Stop {
                break 'read;
            }
            if batch.len() >= BATCH_BYTES {
                pipe.output.write(&mut batch);
            }
        }
        pipe.output.write(&mut batch);
    }
    if let Some(last) = frames.finish() {
        pipe.take(last, &mut batch);
    }
    pipe.output.write(&mut batch);
    news.abort();
    pipe.server.close();
    let calm = runtime.block_on(async { tokio::time::timeout(AFTERWARDS, pipe.live.calm()).await });
    if calm.is_err() {
        tracing::debug!("calls were cancelled because the input ended");
    }
    pipe.live.close();
    pipe.output.finish(AFTERWARDS);
    Ok(())
}

/// Ends it from outside, as the end of the input would: what was asked already may be answered for a while.
/// Whoever reads the input is left alone; the process is expected to end.
pub async fn leave(server: &Server, output: &Output) {
    server.close();
    let calm = async {
        while !is_calm(server) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(AFTERWARDS, calm).await.is_err() {
        tracing::debug!("calls were cancelled because the process was told to stop");
    }
    output.finish(AFTERWARDS);
}

fn is_calm(server: &Server) -> bool {
    let status = server.status();
    status.calls_active == 0 && status.listening == 0
}

/// Answers are gathered up to this before they are written, as long as there is more to read.
const BATCH_BYTES: usize = 64 << 10;

#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
}

struct Pipe {
    server: Arc<Server>,
    live: Arc<Live>,
    output: Arc<Output>,
    runtime: Handle,
}

impl Pipe {
    /// Acts on one frame; what is answered at once is appended to `batch`.
    fn take(&self, frame: Frame, batch: &mut Vec<u8>) -> Then {
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
        let line = Line::Pipe(self.live.clone());
        let who = Who::default();
        match self.server.open(bytes, Bare::Pipe(self.live.peer())) {
            Opened::Request(request) => match self.server.begin(request, &who, line) {
                Begun::Ready { body, .. } | Begun::Welcome { body, .. } => self.output.frame(batch, &body),
                Begun::Call(serving) => self.flow(Flow::One(serving), batch),
                Begun::Listen(listening) => self.listen(listening, batch),
            },
            Opened::Notice(Notice::Cancelled(id)) => self.live.cancel(&id),
            Opened::Notice(Notice::Initialized | Notice::Other) => {}
            Opened::Answer { id, answer } => self.live.answered(id, answer),
            Opened::Batch(several) => {
                if let Some(flow) = self.server.begin_batch(several, &who, &line) {
                    self.flow(flow, batch);
                }
            }
            Opened::Refused(refusal) => self.output.frame(batch, &refusal.body),
        }
        Then::GoOn
    }

    fn refuse(&self, code: Code, why: &str, batch: &mut Vec<u8>) {
        let version = self.live.peer().map_or(wire::Version::UNNAMED, |peer| peer.version);
        self.output.frame(batch, &Told::new(code, 400, why).response(None, version));
    }

    /// Looks once; what is not over then goes on elsewhere.
    fn flow(&self, mut flow: Flow, batch: &mut Vec<u8>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut spoke = false;
        loop {
            match flow.poll_next(&mut cx) {
                Poll::Ready(Out::Final { body, .. }) => return self.output.frame(batch, &body),
                Poll::Ready(Out::Message(body) | Out::Question(body)) => {
                    spoke = true;
                    self.output.frame(batch, &body);
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
                    Out::Message(body) => output.notice(&body),
                    Out::Question(body) => output.send(&body),
                    Out::Pause { .. } => {}
                    Out::Final { body, .. } => return output.send(&body),
                }
            }
        });
    }

    fn listen(&self, mut listening: Listening, batch: &mut Vec<u8>) {
        let id = listening.to().id.clone();
        let mut cx = Context::from_waker(Waker::noop());
        // 2026-07-28: the acknowledgment MUST be the first message of the subscription.
        if let Poll::Ready(Some(first)) = listening.poll_next(&mut cx) {
            self.output.frame(batch, &first);
            self.output.write(batch);
        }
        let output = self.output.clone();
        self.go_on(self.live.waits(id.clone()), async move {
            while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
                output.send(&message);
            }
            // 2026-07-28, Cancellation: a server MUST send this when it tears a subscription down. The page on
            // subscriptions wants the result, which has just gone out; a client may read either.
            output.send(&shape::listening_cancelled(&id));
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

/// Tells a client of the handshake era what changed. Without a handshake there is nobody to tell.
async fn tell_news(live: Arc<Live>, output: Arc<Output>) {
    while let Some(news) = poll_fn(|cx| live.watch.poll_next(cx)).await {
        if let (News::Change(change), Some(_)) = (news, live.peer()) {
            output.notice(&shape::change(&change, None));
        }
    }
}
