//! What somebody does with a client.

use call::Level;
use json::Json;
use wire::client::{Answer, Call};
use wire::method::Method;
use wire::{Filter, List};

use super::book::{Kind, Line};
use super::{Dice, Game};

const ACTS: [char; 10] = ['l', 'p', 'w', 'p', 's', 'z', 'a', 'f', 'd', 'a'];

impl Game {
    pub(super) fn act(&mut self, dice: &mut Dice<'_>) {
        match dice.below(12) {
            0..=4 | 9 => self.call(dice),
            5 => {
                let list = if dice.once_in(4) { List::Prompts } else { List::Tools };
                let timeout_ms = timeout(dice);
                let ticket = self.client.list(list, timeout_ms, self.now);
                self.book.begun(ticket, Line::new(Kind::List(list), timeout_ms, self.now));
            }
            6 => {
                let uris = if dice.once_in(2) { vec!["a:b".to_owned()] } else { Vec::new() };
                let filter = Filter { tools: true, uris, ..Filter::default() };
                let ticket = self.client.listen(&filter, self.now);
                self.book.begun(ticket, Line::new(Kind::Listen, None, self.now));
            }
            7 => {
                let timeout_ms = timeout(dice);
                let ticket = self.client.ping(timeout_ms, self.now);
                self.book.begun(ticket, Line::new(Kind::Ping, timeout_ms, self.now));
            }
            8 => {
                if let Some(ticket) = self.book.any_ticket(dice) {
                    self.book.cancels(ticket);
                    self.client.cancel(ticket);
                }
            }
            10 => {
                if let Some(ask) = self.book.any_ask(dice) {
                    let answer = match dice.below(4) {
                        0 => Answer::Refused("not now".to_owned()),
                        _ => accepted(),
                    };
                    self.book.answers(ask);
                    self.client.answer(ask, answer);
                }
            }
            _ => self.client.set_level(dice.pick(&[Level::Debug, Level::Error]), self.now),
        }
    }

    fn call(&mut self, dice: &mut Dice<'_>) {
        let script: String = (0..dice.below(5)).map(|_| dice.pick(&ACTS)).collect();
        let (progress, timeout_ms) = (dice.once_in(2), timeout(dice));
        let n = self.book.next_number();
        let params = Json::object(|params| {
            params.str("name", "t");
            params.object("arguments", |arguments| {
                arguments.int("n", n as i64).str("script", &script);
            });
        });
        let call = Call { progress, timeout_ms, ..Call::new(Method::ToolsCall, params) };
        let ticket = self.client.call(call, self.now);
        self.book.begun(ticket, Line::new(Kind::Call { n, script, progress }, timeout_ms, self.now));
    }

    /// Answers every question that is open; `false` if none is.
    pub(super) fn answer_all(&mut self) -> bool {
        let open = self.book.open_asks();
        for ask in &open {
            self.book.answers(*ask);
            self.client.answer(*ask, accepted());
        }
        !open.is_empty()
    }

    /// Ends what would go on for ever.
    pub(super) fn hang_up(&mut self) {
        for ticket in self.book.listening() {
            self.book.cancels(ticket);
            self.client.cancel(ticket);
        }
    }
}

fn accepted() -> Answer {
    Answer::Given(Json::parse(r#"{"action":"accept","content":{"x":"y"}}"#).expect("JSON"))
}

fn timeout(dice: &mut Dice<'_>) -> Option<u64> {
    dice.pick(&[None, Some(100_000), Some(2_000_000), None, Some(100_000), Some(1500), Some(1)])
}
