//! Clients of the newest era: each request stands alone.

use std::task::{Context, Poll, Waker};

use host::{Begun, Flow, Line, Out, Who};
use serde_json::{Value, json};
use wire::{Bare, Opened, Version};

use super::{Dice, Game, read};

impl Game {
    /// A call of the newest era: made, looked at, or given up.
    pub(super) fn stand_alone(&mut self, dice: &mut Dice<'_>) {
        let choice = dice.below(4);
        if choice < 2 {
            let mut more = json!({"_meta": modern_meta(dice)});
            if !self.states.is_empty() && dice.once_in(3) {
                more["requestState"] = self.states[dice.below(self.states.len().min(256))].clone().into();
                more["inputResponses"] = json!({"q0": {"action": "accept", "content": {}}});
            }
            let (n, _, message) = self.request(dice, more);
            if let Opened::Request(request) =
                self.server.open(message.to_string().into_bytes(), Bare::Pipe(None))
                && let Begun::Call(serving) = self.server.begin(request, &Who::default(), Line::Alone)
            {
                self.alone.push((n, Flow::One(serving)));
            }
        } else if !self.alone.is_empty() {
            let at = dice.below(self.alone.len().min(256));
            let (n, mut flow) = self.alone.swap_remove(at);
            if choice == 3 {
                drop(flow);
                assert!(!self.works(n), "whoever made call {n} is gone, and it works on");
                return;
            }
            loop {
                match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => break self.alone.push((n, flow)),
                    Poll::Ready(Out::Final { body, .. }) => break self.answer(n, &body),
                    Poll::Ready(_) => {}
                }
            }
        }
    }

    pub(super) fn task(&mut self, dice: &mut Dice<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        let id = self.tasks[dice.below(self.tasks.len().min(256))].clone();
        let method = dice.pick(&["tasks/get", "tasks/cancel", "tasks/update"]);
        let params = json!({"taskId": id, "inputResponses": {"q0": {}}, "_meta": modern_meta(dice)});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        if let Opened::Request(request) = self.server.open(message.to_string().into_bytes(), Bare::Pipe(None))
        {
            let begun = self.server.begin(request, &Who::default(), Line::Alone);
            let Begun::Ready { body, .. } = begun else { panic!("what is asked of a task is at hand") };
            assert_eq!(read(&body)["id"], 1);
        }
    }
}

fn modern_meta(dice: &mut Dice<'_>) -> Value {
    let capabilities = match dice.below(3) {
        0 => json!({}),
        1 => json!({"elicitation": {}}),
        _ => json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
    };
    json!({
        "io.modelcontextprotocol/protocolVersion": Version::NEWEST.as_str(),
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}
