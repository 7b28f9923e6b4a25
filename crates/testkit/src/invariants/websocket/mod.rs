//! A WebSocket at the door, from its first frame to its last, on a clock that is moved by hand.
//!
//! A client sends messages in pieces of any kind, pings, goodbyes, frames that break the rules and bytes that are
//! no frames, cut anywhere; it reads or does not, leaves, or the server goes. Whatever happens: each message that
//! asks something is answered once, each ping too; what the server writes keeps the rules; what breaks them ends it
//! with the code for that, and behind a goodbye there is nothing. A client that does not read is not read from for
//! long, and in the end nothing is left.

mod judge;
mod said;
mod sends;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use call::{Change, Limits};
use door::fuzzing::{self, Ending};
use host::{Config, Server};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};
use tokio::task::JoinHandle;

use self::judge::{Heard, Judge, Verdict};
use self::said::Said;
use self::sends::Sends;
use super::Dice;
use super::script::Scripted;
use crate::FakeWorld;

/// Plays the game that `data` spells. `advance` moves the runtime's clock, which must be paused.
pub async fn websocket(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut dice = Dice::new(data);
    let mut game = Game::new(&mut dice);
    while !dice.is_over() {
        game.turn(&mut dice, &advance).await;
    }
    game.end(&advance).await;
}

struct Game {
    limits: Limits,
    script: Arc<Scripted>,
    server: Arc<Server>,
    serving: JoinHandle<()>,
    ending: Arc<Ending>,
    /// `None` once the client has left.
    io: Option<DuplexStream>,
    /// What is still to be sent.
    on_way: Vec<u8>,
    sends: Sends,
    judge: Judge,
    /// How much of what the judge heard is in the book.
    booked: usize,
    book: Book,
    said: Said,
    /// How many of the messages were looked at.
    looked: usize,
    state: State,
    /// Whether the client reads while time passes.
    reads_on: bool,
    /// Whether it may have missed the end because it did not.
    missed: bool,
}

/// How it stands with the connection, as the client can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The server was told to go.
    Going,
    /// The client stopped sending without a goodbye, or is gone.
    Left,
}

/// What was asked, and what came of it.
#[derive(Default)]
struct Book {
    asked: BTreeMap<u64, Asked>,
    pings: Vec<Vec<u8>>,
    /// Texts that were no messages, and errors that named no request.
    gibberish: usize,
    complaints: usize,
    /// Whether messages came of which nobody knows what they ask.
    is_vague: bool,
}

struct Asked {
    answer: Answer,
    answers: usize,
}

/// When a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    AtOnce,
    /// As soon as enough time has passed.
    InTime,
    /// It may have been cancelled.
    Perhaps,
}

/// A text that a client sends.
#[derive(Clone, Copy)]
enum Meaning {
    Request(u64, Answer),
    Cancels(u64),
    Notice,
    Gibberish,
    /// Anything at all.
    Vague,
}

/// What a server takes in beside its queue for a client that does not read: a batch of answers, what is read at one
/// look, and what the pipes between us hold.
const TAKEN_BYTES_MAX: usize = 512 << 10;

const DRAIN: Duration = Duration::from_secs(2);

impl Game {
    fn new(dice: &mut Dice<'_>) -> Self {
        let limits = Limits {
            frame_bytes_max: dice.pick(&[2000, 300, 70_000]),
            stream_bytes_max: dice.pick(&[20_000, 1000]),
            calls_per_peer_max: dice.pick(&[256, 2]),
            keep_alive_ms: 15_000,
            ..Limits::default()
        };
        let held_bytes = dice.pick(&[4096, 1 << 16, 200, 17]);
        let script = Arc::new(Scripted::default());
        let config = Config {
            name: "websocket".into(),
            version: "1".into(),
            limits: limits.clone(),
            world: Arc::new(FakeWorld::new(1)),
        };
        let server = Server::new(config, vec![script.clone()]).expect("the script's catalog is good");
        let (io, at_server) = tokio::io::duplex(held_bytes);
        let ending = Arc::new(Ending::default());
        let serving = tokio::spawn({
            let (server, ending) = (server.clone(), ending.clone());
            async move { fuzzing::websocket(server, at_server, &ending, DRAIN).await }
        });
        Self {
            judge: Judge::new(limits.frame_bytes_max),
            limits,
            script,
            server,
            serving,
            ending,
            io: Some(io),
            on_way: Vec::new(),
            sends: Sends::default(),
            booked: 0,
            book: Book::default(),
            said: Said::default(),
            looked: 0,
            state: State::Open,
            reads_on: true,
            missed: false,
        }
    }

    async fn turn(&mut self, dice: &mut Dice<'_>, advance: &impl AsyncFn(Duration)) {
        match dice.below(32) {
            0..=11 => self.sends.text(dice, &mut self.on_way),
            12 | 13 => self.sends.control(dice, &mut self.on_way),
            14 => self.sends.binary(dice, &mut self.on_way),
            15 => self.on_way.extend_from_slice(dice.bytes()),
            16..=22 => {
                let most = match dice.below(4) {
                    0 | 1 => usize::MAX,
                    2 => usize::from(dice.byte()),
                    _ => 1,
                };
                self.send(most);
            }
            23..=26 => {
                let most = if dice.once_in(2) { usize::from(dice.byte()) } else { usize::MAX };
                self.read(most);
            }
            27 => {
                let ms = dice.pick(&[1, 100, 1000, 3000, 16_000, 31_000]);
                self.reads_on = !dice.once_in(2);
                self.pass(ms, advance).await;
                self.reads_on = true;
            }
            28 => self.script.change(Change::Tools),
            29 => self.flood().await,
            30 if dice.once_in(4) && self.state == State::Open => {
                self.state = State::Going;
                self.ending.tell();
            }
            31 if dice.once_in(4) => self.leave(dice),
            _ => {}
        }
        settle().await;
        self.look();
    }

    /// Sends some of what is to be sent; `false` if the server does not take any.
    fn send(&mut self, most: usize) -> bool {
        let Some(io) = &mut self.io else {
            self.on_way.clear();
            return false;
        };
        let most = most.min(self.on_way.len());
        if most == 0 || self.state == State::Left {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(io).poll_write(&mut cx, &self.on_way[..most]) {
            Poll::Ready(Ok(sent)) => {
                self.judge.hear(&self.on_way[..sent]);
                self.on_way.drain(..sent);
                sent > 0
            }
            Poll::Ready(Err(_)) => {
                self.on_way.clear();
                false
            }
            Poll::Pending => false,
        }
    }

    /// Reads some of what the server said; `false` if there is nothing.
    fn read(&mut self, most: usize) -> bool {
        let Some(io) = &mut self.io else { return false };
        let mut bytes = [0; 4096];
        let mut cx = Context::from_waker(Waker::noop());
        let (mut read, mut most) = (false, most);
        while most > 0 {
            let room = most.min(bytes.len());
            let mut space = ReadBuf::new(&mut bytes[..room]);
            match Pin::new(&mut *io).poll_read(&mut cx, &mut space) {
                Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                    self.said.read(space.filled());
                    most -= space.filled().len();
                    read = true;
                }
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        read
    }

    async fn pass(&mut self, ms: u64, advance: &impl AsyncFn(Duration)) {
        if self.reads_on {
            self.read_all().await;
        } else if self.state != State::Open || self.judge.verdict != Verdict::GoesOn {
            // Last words are kept for a moment only.
            self.missed = true;
        }
        // What waits a second four times over has waited when a minute is gone, and not longer.
        let steps = (ms / 1000).min(4);
        for _ in 0..steps {
            advance(Duration::from_secs(1)).await;
            settle().await;
            if self.reads_on {
                self.read_all().await;
            }
        }
        advance(Duration::from_millis(ms - 1000 * steps)).await;
    }

    /// Pings without end, and nobody reads the answers: at some time the server must stop reading.
    async fn flood(&mut self) {
        let is_open = self.state == State::Open && !self.serving.is_finished() && self.judge.is_between();
        if !is_open || self.judge.must_end() || !self.on_way.is_empty() {
            return;
        }
        let (mut taken, mut refused) = (0, 0);
        while refused < 8 {
            if self.on_way.is_empty() {
                self.sends.ping(&[b'x'; 125], &mut self.on_way);
            }
            let before = self.on_way.len();
            if self.send(usize::MAX) {
                (taken, refused) = (taken + before - self.on_way.len(), 0);
            } else {
                refused += 1;
                settle().await;
            }
            let most = self.limits.stream_bytes_max + TAKEN_BYTES_MAX;
            assert!(taken < most, "it takes {taken} bytes of which nobody reads the answers");
        }
    }

    /// The client stops sending, or is gone altogether.
    fn leave(&mut self, dice: &mut Dice<'_>) {
        self.state = State::Left;
        self.on_way.clear();
        if dice.once_in(2) {
            self.io = None;
        } else if let Some(io) = &mut self.io {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(io).poll_shutdown(&mut cx).is_ready());
        }
    }

    /// Compares what was heard with what was said.
    fn look(&mut self) {
        for heard in &self.judge.heard[self.booked..] {
            match heard {
                Heard::Ping(payload) => self.book.pings.push(payload.clone()),
                Heard::Text(text) => self.book.heard(self.sends.meaning(text)),
            }
        }
        self.booked = self.judge.heard.len();
        for message in &self.said.messages[self.looked..] {
            self.book.said(message);
        }
        self.looked = self.said.messages.len();
        assert!(self.book.pings.starts_with(&self.said.pongs), "a pong is what a ping was");
        if let Some(code) = self.said.goodbye {
            let is_right = match &self.judge.verdict {
                Verdict::GoesOn => false,
                Verdict::MayEnd(codes) | Verdict::MustEnd(codes) => codes.contains(&code),
            };
            let goes = self.state != State::Open && code == GOES;
            assert!(is_right || goes, "closed with {code}: {:?}, {:?}", self.judge.verdict, self.state);
        }
        let active = self.server.status().calls_active;
        assert!(active <= self.limits.calls_per_peer_max, "{active} calls");
    }

    async fn read_all(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            quiet = if self.read(usize::MAX) { 0 } else { quiet + 1 };
            settle().await;
        }
    }

    /// Whatever is on its way arrives, and all is read.
    async fn carry_all(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            let moved = self.send(usize::MAX) | self.read(usize::MAX);
            quiet = if moved { 0 } else { quiet + 1 };
            settle().await;
        }
        self.look();
    }

    async fn end(mut self, advance: &impl AsyncFn(Duration)) {
        self.carry_all().await;
        if self.state == State::Open && !self.judge.must_end() && !self.missed {
            let is_closed = self.said.goodbye.is_some();
            assert!(is_closed || self.on_way.is_empty(), "it does not take what it could");
            if !is_closed {
                self.wait_for_all(advance).await;
                self.say_goodbye().await;
            }
        }
        self.pass(1100 + DRAIN.as_millis() as u64, advance).await;
        self.carry_all().await;
        if self.state != State::Left && !self.missed {
            assert!(self.said.goodbye.is_some(), "it ends without a goodbye: {:?}", self.judge.verdict);
            assert!(self.said.is_whole(), "half a frame, and then the end");
            if self.state == State::Open {
                self.book.what_was_ready_is_answered();
                assert_eq!(self.said.pongs, self.book.pings, "each ping has its pong");
            }
        }
        self.io = None;
        self.pass(3000, advance).await;
        settle().await;
        assert!(self.serving.is_finished(), "somebody is still served");
        self.serving.await.expect("it does not panic");
        let status = self.server.status();
        assert_eq!((status.sessions, status.calls_active, status.listening), (0, 0, 0), "something is left");
        let notes = self.script.notes();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }

    /// As long as the connection lasts and time passes, everything is answered.
    async fn wait_for_all(&mut self, advance: &impl AsyncFn(Duration)) {
        for ms in [0, 1000, 4000, 31_000, 31_000] {
            self.pass(ms, advance).await;
            self.carry_all().await;
            if self.book.is_answered() {
                break;
            }
        }
        assert!(self.book.is_answered(), "something is not answered");
        self.book.what_was_ready_is_answered();
        assert_eq!(self.said.pongs, self.book.pings, "each ping has its pong");
        assert!(
            self.book.is_vague || self.book.complaints == self.book.gibberish,
            "what is no message is told"
        );
    }

    /// Says goodbye, or leaves if that would be in the middle of a frame.
    async fn say_goodbye(&mut self) {
        if self.judge.is_between_frames() {
            self.sends.goodbye(&mut self.on_way);
            self.carry_all().await;
        } else {
            self.state = State::Left;
            self.io = None;
        }
    }
}

/// RFC 6455, 7.4.1: a server that is going down.
const GOES: u16 = 1001;

impl Book {
    fn heard(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Request(id, answer) => {
                self.asked.insert(id, Asked { answer, answers: 0 });
            }
            Meaning::Cancels(id) => {
                if let Some(asked) = self.asked.get_mut(&id) {
                    asked.answer = Answer::Perhaps;
                }
            }
            Meaning::Notice => {}
            Meaning::Gibberish => self.gibberish += 1,
            Meaning::Vague => self.is_vague = true,
        }
    }

    fn said(&mut self, message: &serde_json::Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        if message["method"].is_string() {
            return;
        }
        assert!(message["result"].is_object() != message["error"].is_object(), "{message}");
        if message["id"].is_null() {
            self.complaints += 1;
        } else if let Some(asked) = message["id"].as_u64().and_then(|id| self.asked.get_mut(&id)) {
            asked.answers += 1;
            assert_eq!(asked.answers, 1, "answered twice: {message}");
        } else {
            // It may also be one of ours, but for the pieces of which it was made.
            assert!(self.is_vague, "nobody asked: {message}");
        }
    }

    fn is_answered(&self) -> bool {
        self.asked.values().all(|asked| asked.answer == Answer::Perhaps || asked.answers == 1)
    }

    fn what_was_ready_is_answered(&self) {
        for (id, asked) in &self.asked {
            assert!(asked.answer != Answer::AtOnce || asked.answers == 1, "{id} is not answered");
        }
    }
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
