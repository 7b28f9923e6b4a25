//! A pipe: bytes both ways, cut anywhere. The server's end of it does what the door does.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use host::{Begun, Flow, Line, Listening, Live, News, Out, Server, Waiting, Who};
use tokio::task::AbortHandle;
use wire::client::Client;
use wire::frame::{Frame, Frames, Framing};
use wire::{Bare, Notice, Opened, Version, shape};

use super::Dice;
use super::book::{Book, read};
use super::elder::{Elder, Knows, Verdict};

pub(super) struct Pipe {
    framing: Framing,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    at_server: Frames,
    at_client: Frames,
    door: Door,
    elder: Elder,
    manners: Manners,
    /// Answers that take their time, and when they go out.
    held: VecDeque<(u64, Vec<u8>)>,
}

/// How a server treats what it has to say. All of it is seen in the wild.
struct Manners {
    prints: bool,
    repeats: bool,
    dawdles: bool,
    shuffles: bool,
    batches: bool,
}

impl Pipe {
    pub(super) fn new(server: &Arc<Server>, knows: Knows, dice: &mut Dice<'_>) -> Self {
        let framing = if dice.once_in(3) { Framing::Headers } else { Framing::Lines };
        let manners = Manners {
            prints: dice.once_in(4) && framing == Framing::Lines,
            repeats: dice.once_in(4),
            dawdles: dice.once_in(4),
            shuffles: dice.once_in(4),
            batches: dice.once_in(2),
        };
        Self {
            framing,
            to_server: Vec::new(),
            to_client: Vec::new(),
            at_server: Frames::new(FRAME_BYTES_MAX),
            at_client: Frames::in_framing(framing, FRAME_BYTES_MAX),
            door: Door::new(server),
            elder: Elder::new(knows, dice),
            manners,
            held: VecDeque::new(),
        }
    }

    /// The client writes.
    pub(super) fn put(&mut self, body: &[u8]) {
        self.framing.write(&mut self.to_server, body);
    }

    /// A few bytes arrive at one end or the other; `false` if none are on their way.
    pub(super) fn carry(
        &mut self,
        client: &mut Client,
        book: &mut Book,
        now: u64,
        dice: &mut Dice<'_>,
    ) -> bool {
        let to_server = match (self.to_server.is_empty(), self.to_client.is_empty()) {
            (true, true) => return false,
            (is_empty, other) => !is_empty && (other || dice.once_in(2)),
        };
        let way = if to_server { &mut self.to_server } else { &mut self.to_client };
        let count = match dice.below(4) {
            0 | 1 => way.len(),
            2 => usize::from(dice.byte()).clamp(1, way.len()),
            _ => 1,
        };
        let bytes: Vec<u8> = way.drain(..count).collect();
        if to_server {
            self.arrive_at_server(&bytes, book, now, dice)
        } else {
            self.arrive_at_client(&bytes, client, now)
        }
        true
    }

    fn arrive_at_server(&mut self, bytes: &[u8], book: &mut Book, now: u64, dice: &mut Dice<'_>) {
        fill(&mut self.at_server, bytes);
        while let Some(frame) = self.at_server.next() {
            let Frame::Message(body) = frame else { panic!("what we wrote cannot be read: {frame:?}") };
            self.serve(body, book, now, dice);
        }
    }

    fn serve(&mut self, body: Vec<u8>, book: &mut Book, now: u64, dice: &mut Dice<'_>) {
        // What it said before this counts as said before this.
        self.gather(book, now, dice);
        let message = read(&body);
        match self.elder.judge(&body, &message) {
            Verdict::Passes(body) => {
                let opened = self.door.server.open(body, Bare::Pipe(self.door.live.peer()));
                book.came(&message, &opened);
                self.door.take(opened);
            }
            Verdict::Answered(_, body) => {
                book.is_rude = true;
                self.framing.write(&mut self.to_client, &body);
            }
            Verdict::Blurted(line) => {
                book.is_rude = true;
                if self.framing == Framing::Lines {
                    self.framing.write(&mut self.to_client, line);
                }
            }
            Verdict::Ignored => {}
        }
    }

    fn arrive_at_client(&mut self, bytes: &[u8], client: &mut Client, now: u64) {
        fill(&mut self.at_client, bytes);
        for frame in &mut self.at_client {
            let Frame::Message(body) = frame else { panic!("what we wrote cannot be read: {frame:?}") };
            client.receive(body, None, now);
        }
    }

    /// Takes what the server has said, and lets it out as its manners are.
    pub(super) fn gather(&mut self, book: &mut Book, now: u64, dice: &mut Dice<'_>) {
        let said = std::mem::take(&mut *self.door.out.lock().unwrap_or_else(PoisonError::into_inner));
        let mut batch: Vec<Vec<u8>> = Vec::new();
        let may_batch = self.manners.batches
            && self.door.live.peer().is_some_and(|peer| peer.version == Version::V2025_03_26);
        for body in said {
            let message = read(&body);
            book.said(&message);
            let is_answer = message["method"].is_null();
            let is_opening = message["result"]["supportedVersions"].is_array()
                || message["result"]["protocolVersion"].is_string();
            if self.manners.prints && dice.once_in(2) {
                book.is_rude = true;
                let line = dice.pick(&["Connecting to the database…", "", "{", "ready", "[1] 77", "\"ok\""]);
                self.framing.write(&mut self.to_client, line.as_bytes());
            }
            if may_batch && !is_opening {
                batch.push(body);
            } else if is_answer && self.manners.dawdles {
                // What it says next may overtake its own greeting.
                book.is_rude |= is_opening;
                let due = now + dice.pick(&[0, 1, 1000, 4000]);
                let last = self.held.back().map_or(0, |(due, _)| *due);
                self.hold(due.max(last), body, is_opening, dice);
            } else if self.manners.repeats && message["id"].is_null() != is_answer {
                self.framing.write(&mut self.to_client, &body);
                self.framing.write(&mut self.to_client, &body);
            } else if is_answer && !self.held.is_empty() {
                let last = self.held.back().map_or(0, |(due, _)| *due);
                self.hold(last, body, is_opening, dice);
            } else {
                self.framing.write(&mut self.to_client, &body);
            }
        }
        match &batch[..] {
            [] => {}
            [one] => self.framing.write(&mut self.to_client, one),
            several => {
                let mut body = Vec::new();
                json::write::array(&mut body, several, |out, one| out.extend_from_slice(one));
                self.framing.write(&mut self.to_client, &body);
            }
        }
        while self.held.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, body)) = self.held.pop_front() {
                self.framing.write(&mut self.to_client, &body);
            }
        }
    }

    /// An answer waits; if order means nothing here, before others that came first.
    fn hold(&mut self, due: u64, body: Vec<u8>, is_opening: bool, dice: &mut Dice<'_>) {
        let overtakes = self.manners.shuffles && !is_opening && dice.once_in(2);
        match self.held.pop_back() {
            Some((other_due, other)) if overtakes => {
                self.held.push_back((other_due, body));
                self.held.push_back((due, other));
            }
            other => self.held.extend(other.into_iter().chain([(due, body)])),
        }
    }

    /// The client leaves: what is on its way arrives in part, and then no more.
    pub(super) fn close(&mut self, client: &mut Client, book: &mut Book, now: u64, dice: &mut Dice<'_>) {
        let half = self.to_server.len() / 2;
        let first: Vec<u8> = self.to_server.drain(..half).collect();
        self.to_server.clear();
        self.arrive_at_server(&first, book, now, dice);
        if let Some(Frame::Message(body)) = self.at_server.finish() {
            // Half a message is refused, and that is all.
            let opened = self.door.server.open(body, Bare::Pipe(self.door.live.peer()));
            let is_half = matches!(opened, Opened::Refused(_));
            assert!(is_half || !first.is_empty());
        }
        book.closing();
        let half = self.to_client.len() / 2;
        let rest: Vec<u8> = self.to_client.drain(..half).collect();
        self.arrive_at_client(&rest, client, now);
        if let Some(Frame::Message(body)) = self.at_client.finish() {
            client.receive(body, None, now);
        }
    }

    pub(super) fn drop_all(&mut self) {
        self.door.news.abort();
        self.door.live.close();
    }
}

const FRAME_BYTES_MAX: usize = 1 << 20;

fn fill(frames: &mut Frames, bytes: &[u8]) {
    frames.space()[..bytes.len()].copy_from_slice(bytes);
    frames.filled(bytes.len());
}

/// The server's end, as `door` has it: looked at once, then left to itself.
struct Door {
    server: Arc<Server>,
    live: Arc<Live>,
    out: Output,
    news: AbortHandle,
}

/// Whole messages in the order in which they were written.
type Output = Arc<Mutex<Vec<Vec<u8>>>>;

fn write(out: &Output, body: Vec<u8>) {
    out.lock().unwrap_or_else(PoisonError::into_inner).push(body);
}

impl Door {
    fn new(server: &Arc<Server>) -> Self {
        let (live, out) = (server.pipe(), Output::default());
        let news = tokio::spawn(tell_news(live.clone(), out.clone())).abort_handle();
        Self { server: server.clone(), live, out, news }
    }

    fn take(&self, opened: Opened) {
        let (line, who) = (Line::Pipe(self.live.clone()), Who::default());
        match opened {
            Opened::Request(request) => match self.server.begin(request, &who, line) {
                Begun::Ready { body, .. } | Begun::Welcome { body, .. } => write(&self.out, body),
                Begun::Call(serving) => self.flow(Flow::One(serving)),
                Begun::Listen(listening) => self.listen(listening),
            },
            Opened::Notice(Notice::Cancelled(id)) => self.live.cancel(&id),
            Opened::Notice(Notice::Initialized | Notice::Other) | Opened::Batch(_) => {}
            Opened::Answer { id, answer } => self.live.answered(id, answer),
            Opened::Refused(refusal) => write(&self.out, refusal.body),
        }
    }

    fn flow(&self, mut flow: Flow) {
        loop {
            match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Out::Final { body, .. }) => return write(&self.out, body),
                Poll::Ready(Out::Message(body) | Out::Question(body)) => write(&self.out, body),
                Poll::Ready(Out::Pause { .. }) => {}
                Poll::Pending => break,
            }
        }
        let out = self.out.clone();
        self.go_on(flow.enter(&self.live), async move {
            loop {
                match poll_fn(|cx| flow.poll_next(cx)).await {
                    Out::Message(body) | Out::Question(body) => write(&out, body),
                    Out::Pause { .. } => {}
                    Out::Final { body, .. } => return write(&out, body),
                }
            }
        });
    }

    fn listen(&self, mut listening: Listening) {
        let id = listening.to().id.clone();
        let out = self.out.clone();
        self.go_on(self.live.waits(id.clone()), async move {
            while let Some(message) = poll_fn(|cx| listening.poll_next(cx)).await {
                write(&out, message);
            }
            write(&out, shape::listening_cancelled(&id));
        });
    }

    fn go_on(&self, waiting: Waiting, work: impl Future<Output = ()> + Send + 'static) {
        let number = waiting.number();
        let task = tokio::spawn(async move {
            let _waiting = waiting;
            work.await;
        });
        self.live.started(number, task.abort_handle());
    }
}

async fn tell_news(live: Arc<Live>, out: Output) {
    while let Some(news) = poll_fn(|cx| live.watch.poll_next(cx)).await {
        if let (News::Change(change), Some(_)) = (news, live.peer()) {
            write(&out, shape::change(&change, None));
        }
    }
}
