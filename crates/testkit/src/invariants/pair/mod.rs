//! Our client and our server, joined in memory, on one clock that is moved by hand.
//!
//! Bytes are cut, delayed and lost, requests overtake each other, servers are older than they say or ill
//! mannered, and somebody calls, cancels, answers and leaves. Whatever happens: each request ends once and
//! with its own result, each round of a call is begun once, what is cancelled stops and is told to nobody,
//! neither side says anything that the other must refuse, the newest version that both know is spoken, and in
//! the end nothing is left on either side.

mod act;
mod book;
mod elder;
mod http;
mod pipe;

use std::sync::Arc;
use std::time::Duration;

use call::{Caps, Change, Limits};
use host::{Config, Server};
use wire::client::{Client, Do, Link, Speak, Terms};
use wire::version::{Feature, Version};

use self::book::Book;
use self::elder::Knows;
use self::http::Http;
use self::pipe::Pipe;
use super::Dice;
use super::script::Scripted;
use crate::FakeWorld;

/// The game that a seed stands for.
pub fn spelled(seed: u64) -> Vec<u8> {
    use call::World as _;
    let world = FakeWorld::new(seed);
    let mut len = [0];
    world.fill(&mut len);
    let mut data = vec![0; 40 + usize::from(len[0])];
    world.fill(&mut data);
    data
}

/// Plays the game that `data` spells. `advance` moves the runtime's clock, which must be paused.
pub async fn pair(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut dice = Dice::new(data);
    let mut game = Game::new(&mut dice);
    game.client.start(game.now);
    game.look(&mut dice).await;
    while !dice.is_over() && !game.client.is_over() {
        game.turn(&mut dice, &advance).await;
    }
    game.end(&mut dice, &advance).await;
}

struct Game {
    now: u64,
    world: Arc<FakeWorld>,
    script: Arc<Scripted>,
    server: Arc<Server>,
    client: Client,
    joint: Joint,
    book: Book,
    leaves: Leaves,
    is_stormy: bool,
}

/// What lies between the two.
enum Joint {
    Pipe(Pipe),
    Http(Http),
}

/// How a game ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Everything that was begun is waited for.
    Last,
    /// In the middle of it.
    AtOnce,
}

const SPEAKS: [Speak; 7] = [
    Speak::Any,
    Speak::Handshake,
    Speak::Only(Version::V2024_11_05),
    Speak::Only(Version::V2025_03_26),
    Speak::Only(Version::V2025_06_18),
    Speak::Only(Version::V2025_11_25),
    Speak::Only(Version::V2026_07_28),
];

/// The newest version that both know.
fn meeting(speak: Speak, knows: Knows) -> Option<Version> {
    let spoken = |version: &Version| match speak {
        Speak::Any => true,
        Speak::Only(only) => *version == only,
        Speak::Handshake => version.has(Feature::Handshake),
    };
    let known = |version: &Version| match knows {
        Knows::All => true,
        Knows::Only(only) => *version == only,
    };
    Version::ALL.iter().map(|(version, _)| *version).filter(spoken).filter(known).max()
}

impl Game {
    fn new(dice: &mut Dice<'_>) -> Self {
        let speak = if dice.once_in(2) { dice.pick(&SPEAKS) } else { Speak::Any };
        let knows = Knows::roll(dice);
        let is_tight = dice.once_in(4);
        let caps = if dice.once_in(5) { Caps::NONE } else { Caps::ELICIT_FORM };
        let link = if dice.once_in(2) { Link::Http } else { Link::Pipe };
        let leaves = if dice.once_in(3) { Leaves::AtOnce } else { Leaves::Last };
        let mirrors = dice.once_in(2);
        let is_stormy = dice.once_in(3);

        let (mut terms, mut limits) = (Terms { caps, speak, ..Terms::default() }, Limits::default());
        if is_tight {
            (terms.calls_max, terms.asks_max) = (5, 2);
            (limits.calls_per_peer_max, limits.stream_events_max) = (3, 3);
        }
        let world = Arc::new(FakeWorld::new(1));
        let script = Arc::new(if mirrors { Scripted::mirroring() } else { Scripted::default() });
        let config = Config { name: "pair".into(), version: "1".into(), limits, world: world.clone() };
        let server = Server::new(config, vec![script.clone()]).expect("the script's catalog is good");
        let joint = match link {
            Link::Pipe => Joint::Pipe(Pipe::new(&server, knows, dice)),
            Link::Http => Joint::Http(Http::new(&server, knows, dice)),
        };
        let book = Book::new(script.clone(), link, meeting(speak, knows), is_tight, &terms);
        let client = Client::new(terms, link);
        Self { now: 0, world, script, server, client, joint, book, leaves, is_stormy }
    }

    async fn turn(&mut self, dice: &mut Dice<'_>, advance: &impl AsyncFn(Duration)) {
        // In some games nothing holds for long.
        if self.is_stormy && dice.once_in(4) {
            self.trouble(dice);
            return self.look(dice).await;
        }
        match dice.below(17) {
            0..=4 => self.act(dice),
            5..=12 => {
                self.carry(dice);
            }
            13 | 14 => self.trouble(dice),
            _ => {
                let ms = dice.pick(&[10, 1, 200, 1000, 2000, 3000, 1000, 2000, 10, 31_000]);
                self.pass(ms, advance).await;
            }
        }
        self.look(dice).await;
    }

    async fn pass(&mut self, ms: u64, advance: &impl AsyncFn(Duration)) {
        self.now += ms;
        self.world.advance_ms(ms);
        // What waits a second four times over has waited when a minute is gone, and not longer.
        let steps = (ms / 1000).min(4);
        for _ in 0..steps {
            advance(Duration::from_secs(1)).await;
            settle().await;
        }
        advance(Duration::from_millis(ms - 1000 * steps)).await;
        self.client.tick(self.now);
    }

    /// Moves something on its way; `false` if nothing is.
    fn carry(&mut self, dice: &mut Dice<'_>) -> bool {
        let Self { joint, client, book, now, .. } = self;
        match joint {
            Joint::Pipe(pipe) => pipe.carry(client, book, *now, dice),
            Joint::Http(http) => http.carry(client, book, *now, dice),
        }
    }

    fn trouble(&mut self, dice: &mut Dice<'_>) {
        match (&mut self.joint, dice.below(8)) {
            (_, 0) => self.script.change(Change::Tools),
            (_, 1) => self.script.change(Change::Resource("a:b".into())),
            (Joint::Http(http), 2..=6) => http.cut(&mut self.client, &mut self.book, self.now, dice),
            (Joint::Http(http), _) => http.forget_session(&mut self.book),
            (Joint::Pipe(_), _) => {}
        }
    }

    /// Lets everything run that can, hands over what came of it, and compares it with the book.
    async fn look(&mut self, dice: &mut Dice<'_>) {
        settle().await;
        while let Some(todo) = self.client.take() {
            match (&mut self.joint, todo) {
                (Joint::Pipe(pipe), Do::Send(send)) => {
                    self.book.sent(&send.body);
                    pipe.put(&send.body);
                }
                (Joint::Pipe(_), other) => panic!("not for a pipe: {other:?}"),
                (Joint::Http(http), todo) => {
                    if let Do::Send(send) = &todo {
                        self.book.sent(&send.body);
                    }
                    http.put(todo, &mut self.book, self.now);
                }
            }
        }
        while let Some(event) = self.client.event() {
            self.book.happened(event, self.now);
        }
        // What was given up just now stops now.
        settle().await;
        if let Joint::Pipe(pipe) = &mut self.joint {
            pipe.gather(&mut self.book, self.now, dice);
        }
        self.book.balances(&self.client);
    }

    async fn end(mut self, dice: &mut Dice<'_>, advance: &impl AsyncFn(Duration)) {
        if self.leaves == Leaves::Last {
            self.wait_for_all(dice, advance).await;
        }
        match &mut self.joint {
            Joint::Pipe(pipe) => pipe.close(&mut self.client, &mut self.book, self.now, dice),
            Joint::Http(http) => http.close(&self.client),
        }
        self.look(dice).await;
        self.book.closing();
        self.client.closed("somebody left");
        self.look(dice).await;
        self.joint.drop_all();
        self.server.close();
        settle().await;
        self.book.is_settled(&self.client);
        let status = self.server.status();
        let left = (status.sessions, status.calls_active, status.listening);
        assert_eq!(left, (0, 0, 0), "somebody is still at the server");
        let notes = self.script.notes();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }

    /// As long as the link is up and time passes, everything ends.
    async fn wait_for_all(&mut self, dice: &mut Dice<'_>, advance: &impl AsyncFn(Duration)) {
        for ms in [10, 1000, 3000, 31_000, 31_000, 601_000, 31_000, 3000].into_iter().flat_map(|ms| [ms; 4]) {
            for _ in 0..5000 {
                let had_questions = self.answer_all();
                let moved = self.carry(dice);
                self.look(dice).await;
                if !moved && !had_questions {
                    break;
                }
            }
            let is_idle = self.client.greeting().is_some() && self.book.all_ended() && !self.works();
            if self.client.is_over() || is_idle {
                break;
            }
            self.pass(ms, advance).await;
            self.look(dice).await;
        }
        self.hang_up();
        self.look(dice).await;
        while self.carry(dice) {
            self.look(dice).await;
        }
        if !self.client.is_over() {
            self.book.everything_ended();
            let running = &self.script.notes().running;
            assert!(running.values().all(|count| *count == 0), "nobody waits, and it works on: {running:?}");
        }
    }

    fn works(&self) -> bool {
        self.script.notes().running.values().any(|count| *count > 0)
    }
}

impl Joint {
    fn drop_all(&mut self) {
        match self {
            Self::Pipe(pipe) => pipe.drop_all(),
            Self::Http(http) => http.drop_all(),
        }
    }
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
