//! A client of the handshake era on a pipe.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use host::{Begun, Flow, Line, Live, Out, Who};
use serde_json::Value;
use wire::{Bare, Notice, Opened};

use super::{Dice, Game, cancelled, handshake, read, reply};

pub(super) struct Pipe {
    pub(super) live: Arc<Live>,
    pub(super) calls: Vec<(u64, u64)>,
    /// What came out, with the number of the call.
    pub(super) output: Arc<Mutex<Vec<(u64, Out)>>>,
    pub(super) questions: Vec<u64>,
}

impl Game {
    pub(super) fn on_pipe(&mut self, dice: &mut Dice<'_>) {
        let message = match dice.below(6) {
            0 => handshake(dice),
            1 => cancelled(dice.below(5) as u64),
            2 => reply(dice, &mut self.pipe.questions),
            _ => {
                let (n, id, message) = self.request(dice, Value::Null);
                if let Opened::Request(request) = self.open_on_pipe(&message)
                    && let Begun::Call(serving) =
                        self.server.begin(request, &Who::default(), Line::Pipe(self.pipe.live.clone()))
                {
                    self.pipe.calls.push((n, id));
                    self.pipe.flow(n, Flow::One(serving));
                }
                return self.take_output();
            }
        };
        match self.open_on_pipe(&message) {
            Opened::Request(request) => {
                self.server.begin(request, &Who::default(), Line::Pipe(self.pipe.live.clone()));
            }
            Opened::Notice(Notice::Cancelled(named)) => {
                let (live, calls) = (self.pipe.live.clone(), self.pipe.calls.clone());
                let id = message["params"]["requestId"].as_u64().unwrap_or_default();
                self.cancel(&live, &named, &calls, id);
            }
            Opened::Answer { id, answer } => self.pipe.live.answered(id, answer),
            Opened::Notice(_) | Opened::Batch(_) | Opened::Refused(_) => {}
        }
        self.take_output();
    }

    fn open_on_pipe(&self, message: &Value) -> Opened {
        self.server.open(message.to_string().into_bytes(), Bare::Pipe(self.pipe.live.peer()))
    }

    pub(super) fn take_output(&mut self) {
        let output = std::mem::take(&mut *self.pipe.output.lock().unwrap_or_else(PoisonError::into_inner));
        for (n, out) in output {
            match out {
                Out::Question(body) => self.pipe.questions.extend(read(&body)["id"].as_u64()),
                Out::Final { body, .. } => self.answer(n, &body),
                Out::Message(_) | Out::Pause { .. } => {}
            }
        }
    }
}

impl Pipe {
    pub(super) fn new(live: Arc<Live>) -> Self {
        Self { live, calls: Vec::new(), output: Arc::default(), questions: Vec::new() }
    }

    /// As the door does it: looked at once, then left to itself.
    fn flow(&self, n: u64, mut flow: Flow) {
        let output = self.output.clone();
        let put = move |out| output.lock().unwrap_or_else(PoisonError::into_inner).push((n, out));
        loop {
            match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => break,
                Poll::Ready(out) => {
                    let last = matches!(out, Out::Final { .. });
                    put(out);
                    if last {
                        return;
                    }
                }
            }
        }
        let waiting = flow.enter(&self.live);
        let number = waiting.number();
        let task = tokio::spawn(async move {
            let _waiting = waiting;
            loop {
                let out = poll_fn(|cx| flow.poll_next(cx)).await;
                let last = matches!(out, Out::Final { .. });
                put(out);
                if last {
                    return;
                }
            }
        });
        self.live.started(number, task.abort_handle());
    }
}
