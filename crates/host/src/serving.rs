//! A call under way, and a subscription under way: what a door polls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use call::{Emit, Event, Fault};
use wire::shape::{self, ReplyTo};
use wire::{Feature, Id, Version};

use crate::events::{News, Watch};
use crate::live::{Live, Waiting};
use crate::observe::Observed;
use crate::path::{Ended, log};
use crate::registry::Registry;
use crate::server::Server;
use crate::streams::Streams;

/// A call under way. Dropping it is the cancellation.
pub struct Serving {
    server: Arc<Server>,
    /// What the call started with.
    registry: Arc<Registry>,
    to: ReplyTo,
    emit: Emit,
    work: Work,
    /// The end, held back until everything said before it is out.
    end: Option<Ended>,
    observed: Option<Box<Observed>>,
}

/// A call, wherever it is on the path.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Ended, Fault>> + Send>>;

/// What a call has to say next. After [`Out::Final`] there is nothing.
pub enum Out {
    Message(Vec<u8>),
    /// A question to the client, which must not be lost.
    Question(Vec<u8>),
    Pause {
        retry_ms: u64,
    },
    Final {
        status: u16,
        body: Vec<u8>,
    },
}

impl Serving {
    pub(crate) fn new(
        server: Arc<Server>,
        registry: Arc<Registry>,
        to: ReplyTo,
        emit: Emit,
        work: Work,
        observed: Option<Box<Observed>>,
    ) -> Self {
        server.counts.active.fetch_add(1, Ordering::Relaxed);
        server.counts.calls.fetch_add(1, Ordering::Relaxed);
        Self { server, registry, to, emit, work, end: None, observed }
    }

    pub fn to(&self) -> &ReplyTo {
        &self.to
    }

    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Out> {
        if self.end.is_none()
            && let Poll::Ready(ended) = self.work.as_mut().poll(cx)
        {
            self.end = Some(ended.unwrap_or_else(|fault| {
                log(&fault);
                Ended::Fault(fault)
            }));
        }
        while let Some(event) = self.emit.take() {
            if let Some(out) = self.out(&event) {
                return Poll::Ready(out);
            }
        }
        match self.end.take() {
            Some(ended) => Poll::Ready(self.last(&ended)),
            None => {
                self.emit.wake_by(cx.waker());
                // Something may have been said between the two.
                match self.emit.any() {
                    true => self.poll_next(cx),
                    false => Poll::Pending,
                }
            }
        }
    }

    fn out(&self, event: &Event) -> Option<Out> {
        match event {
            // Where a stream is not primed, the client might have no id yet to come back with.
            Event::Pause { retry_ms } => {
                self.to.version.has(Feature::Priming).then_some(Out::Pause { retry_ms: *retry_ms })
            }
            Event::Ask { .. } => shape::event(event, &self.to).map(Out::Question),
            Event::Progress { .. } | Event::Log { .. } | Event::Withdraw { .. } => {
                shape::event(event, &self.to).map(Out::Message)
            }
        }
    }

    fn last(&mut self, ended: &Ended) -> Out {
        let said = match ended {
            Ended::Reply(reply) => shape::Ended::Reply(reply),
            Ended::Input { asks, state } => shape::Ended::Input { asks, state },
            Ended::Task(task) => shape::Ended::Task(task),
            Ended::Fault(fault) => shape::Ended::Fault(fault),
        };
        let mut body = Vec::with_capacity(768);
        let status = shape::answer(&mut body, &self.to, &self.registry.stamp, &said);
        if let Some(observed) = self.observed.take() {
            observed.ended(&self.server, Some(ended), body.len());
        }
        Out::Final { status, body }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.counts.active.fetch_sub(1, Ordering::Relaxed);
        if let Some(observed) = self.observed.take() {
            observed.ended(&self.server, None, 0);
        }
    }
}

/// Several calls that came in one message and are answered in one.
pub struct Several {
    version: Version,
    open: Vec<(usize, Serving)>,
    done: Vec<Vec<u8>>,
}

impl Several {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, open: Vec::new(), done: Vec::new() }
    }

    pub(crate) fn ready(&mut self, body: Vec<u8>) {
        self.done.push(body);
    }

    pub(crate) fn wait_for(&mut self, serving: Serving) {
        self.open.push((self.done.len(), serving));
        self.done.push(Vec::new());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// Whether a call under this id is among them.
    pub(crate) fn has(&self, id: &Id) -> bool {
        self.open.iter().any(|(_, serving)| serving.to.id == *id)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Out> {
        let mut i = 0;
        while let Some((place, serving)) = self.open.get_mut(i) {
            match serving.poll_next(cx) {
                Poll::Pending => i += 1,
                Poll::Ready(Out::Final { body, .. }) => {
                    self.done[*place] = body;
                    self.open.swap_remove(i);
                }
                Poll::Ready(out) => return Poll::Ready(out),
            }
        }
        if !self.open.is_empty() {
            return Poll::Pending;
        }
        let mut body = Vec::new();
        json::write::array(&mut body, &self.done, |out, one| out.extend_from_slice(one));
        Poll::Ready(Out::Final { status: 200, body })
    }
}

/// What one message set going.
pub enum Flow {
    One(Serving),
    Several(Several),
}

impl Flow {
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Out> {
        match self {
            Self::One(serving) => serving.poll_next(cx),
            Self::Several(several) => several.poll_next(cx),
        }
    }

    pub fn version(&self) -> Version {
        match self {
            Self::One(serving) => serving.to.version,
            Self::Several(several) => several.version,
        }
    }

    /// Enters what waits into the books of whoever asked.
    pub fn enter(&self, live: &Arc<Live>) -> Waiting {
        match self {
            Self::One(serving) => live.waits(serving.to.id.clone()),
            Self::Several(several) => {
                live.wait_together(several.open.iter().map(|(_, serving)| serving.to.id.clone()).collect())
            }
        }
    }

    /// Goes on by itself and writes into a stream of the session, `first` at first; says which stream.
    pub fn into_stream(mut self, live: &Arc<Live>, first: Option<Out>) -> u32 {
        let stream = live.streams.open();
        let held = Held { waiting: self.enter(live), stream };
        let number = held.waiting.number();
        let mut next = first;
        let task = tokio::spawn(async move {
            loop {
                let out = match next.take() {
                    Some(out) => out,
                    None => std::future::poll_fn(|cx| self.poll_next(cx)).await,
                };
                match out {
                    Out::Message(body) => held.streams().notice(stream, body),
                    Out::Question(body) => held.streams().question(stream, body),
                    Out::Pause { retry_ms } => held.streams().pause(stream, retry_ms),
                    Out::Final { status, body } => {
                        held.streams().answer(stream, status, body);
                        break;
                    }
                }
            }
        });
        live.started(number, task.abort_handle());
        stream
    }
}

/// Whatever happens to a call that writes into a stream, the stream ends and the id is free again.
struct Held {
    waiting: Waiting,
    stream: u32,
}

impl Held {
    fn streams(&self) -> &Streams {
        &self.waiting.live().streams
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.streams().end(self.stream);
    }
}

/// A subscription of the newest era under way. Dropping it ends it.
pub struct Listening {
    server: Arc<Server>,
    to: ReplyTo,
    watch: Arc<Watch>,
    acknowledged: Option<Vec<u8>>,
    ended: bool,
    over: bool,
}

impl Listening {
    pub(crate) fn new(server: Arc<Server>, to: ReplyTo, watch: Arc<Watch>, acknowledged: Vec<u8>) -> Self {
        server.counts.listening.fetch_add(1, Ordering::Relaxed);
        Self { server, to, watch, acknowledged: Some(acknowledged), ended: false, over: false }
    }

    pub fn to(&self) -> &ReplyTo {
        &self.to
    }

    /// Ends it; what is news already is still told, and then the answer.
    pub fn end(&mut self) {
        self.ended = true;
        self.watch.close();
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next message; the answer itself is the last.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(first) = self.acknowledged.take() {
            return Poll::Ready(Some(first));
        }
        if self.over {
            return Poll::Ready(None);
        }
        loop {
            let news = match self.watch.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.over = true;
                    return Poll::Ready(Some(shape::listening_ended(
                        &self.to.id,
                        &self.server.registry().stamp,
                    )));
                }
                Poll::Ready(Some(news)) => news,
            };
            if let Some(message) = self.server.news(&news, &self.to) {
                return Poll::Ready(Some(message));
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.server.counts.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// A piece of news for a subscription; `None` if there is nothing to tell any more.
    fn news(&self, news: &News, to: &ReplyTo) -> Option<Vec<u8>> {
        match news {
            News::Change(change) => Some(shape::change(change, Some(&to.id))),
            News::Task(id) => {
                let task = self.tasks.view(id)?;
                Some(shape::task_changed(&to.id, &task, &self.registry().stamp, to.version))
            }
        }
    }
}
