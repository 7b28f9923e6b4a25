//! Modern clients: each request stands alone.

use std::task::{Context, Poll, Waker};

use host::{CallerIdentity, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel};
use serde_json::{Value, json};
use wire::{Decoded, Defaults, Version};

use super::{FuzzInput, SessionSimulation, parse_json};

impl SessionSimulation {
    /// A modern call: made, polled, or dropped.
    pub(super) fn step_stateless(&mut self, dice: &mut FuzzInput<'_>) {
        let choice = dice.below(4);
        if choice < 2 {
            let mut more = json!({"_meta": newest_meta(dice)});
            if !self.request_states.is_empty() && dice.one_in(3) {
                more["requestState"] =
                    self.request_states[dice.below(self.request_states.len().min(256))].clone().into();
                more["inputResponses"] = json!({"q0": {"action": "accept", "content": {}}});
            }
            let (n, _, message) = self.new_call(dice, more);
            if let Decoded::Request(request) =
                self.server.decode(message.to_string().into_bytes(), Defaults::Pipe(None))
                && let Dispatched::Call(serving) =
                    self.server.dispatch(request, &CallerIdentity::default(), ReplyChannel::Stateless)
            {
                self.stateless.push((n, PendingResponse::Single(serving)));
            }
        } else if !self.stateless.is_empty() {
            let at = dice.below(self.stateless.len().min(256));
            let (n, mut flow) = self.stateless.swap_remove(at);
            if choice == 3 {
                drop(flow);
                assert!(!self.is_running(n), "whoever made call {n} is gone, and it works on");
                return;
            }
            loop {
                match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => break self.stateless.push((n, flow)),
                    Poll::Ready(OutgoingMessage::Response { body, .. }) => {
                        break self.record_answer(n, &body);
                    }
                    Poll::Ready(_) => {}
                }
            }
        }
    }

    pub(super) fn step_task(&mut self, dice: &mut FuzzInput<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        let id = self.tasks[dice.below(self.tasks.len().min(256))].clone();
        let method = dice.choose(&["tasks/get", "tasks/cancel", "tasks/update"]);
        let params = json!({"taskId": id, "inputResponses": {"q0": {}}, "_meta": newest_meta(dice)});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        if let Decoded::Request(request) =
            self.server.decode(message.to_string().into_bytes(), Defaults::Pipe(None))
        {
            let begun = self.server.dispatch(request, &CallerIdentity::default(), ReplyChannel::Stateless);
            let Dispatched::Ready { body, .. } = begun else { panic!("what is asked of a task is at hand") };
            assert_eq!(parse_json(&body)["id"], 1);
        }
    }
}

fn newest_meta(dice: &mut FuzzInput<'_>) -> Value {
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
