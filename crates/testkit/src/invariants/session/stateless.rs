//! Modern clients: each request stands alone.

use std::task::{Context, Poll, Waker};

use host::{CallerIdentity, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel};
use serde_json::{Value, json};
use wire::{Decoded, MessageContext, Version};

use super::{FuzzInput, SessionSimulation, parse_json};

impl SessionSimulation {
    /// A modern call: made, polled, or dropped.
    pub(super) fn step_stateless(&mut self, input: &mut FuzzInput<'_>) {
        let choice = input.below(4);
        if choice < 2 {
            let mut more = json!({"_meta": newest_meta(input)});
            if !self.request_states.is_empty() && input.one_in(3) {
                more["requestState"] =
                    self.request_states[input.below(self.request_states.len().min(256))].clone().into();
                more["inputResponses"] = json!({"q0": {"action": "accept", "content": {}}});
            }
            let (n, _, message) = self.new_call(input, more);
            if let Decoded::Request(request) = self.server.decode(
                message.to_string().into_bytes(),
                MessageContext::Pipe(None),
                &self.server.snapshot(),
            ) && let Dispatched::Call(in_flight) = self.server.dispatch(
                request,
                &CallerIdentity::default(),
                ReplyChannel::NoSession,
                self.server.snapshot(),
            ) {
                self.stateless.push((n, PendingResponse::Single(in_flight)));
            }
        } else if !self.stateless.is_empty() {
            let at = input.below(self.stateless.len().min(256));
            let (n, mut flow) = self.stateless.swap_remove(at);
            if choice == 3 {
                drop(flow);
                assert!(!self.is_running(n), "call {n} runs on after its caller has left");
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

    pub(super) async fn step_task(&mut self, input: &mut FuzzInput<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        let id = self.tasks[input.below(self.tasks.len().min(256))].clone();
        let method = input.choose(&["tasks/get", "tasks/cancel", "tasks/update"]);
        let params = json!({"taskId": id, "inputResponses": {"q0": {}}, "_meta": newest_meta(input)});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        if let Decoded::Request(request) = self.server.decode(
            message.to_string().into_bytes(),
            MessageContext::Pipe(None),
            &self.server.snapshot(),
        ) {
            let begun = self.server.dispatch(
                request,
                &CallerIdentity::default(),
                ReplyChannel::NoSession,
                self.server.snapshot(),
            );
            let body = match begun {
                Dispatched::Ready { body, .. } => body,
                // The answer waits for the store. This one is in memory, so no time passes.
                Dispatched::Call(in_flight) => answer_without_delay(PendingResponse::Single(in_flight)).await,
                Dispatched::Initialized { .. } | Dispatched::Subscription(_) => {
                    panic!("a task request is answered with the task")
                }
            };
            assert_eq!(parse_json(&body)["id"], 1);
        }
    }
}

/// The answer, while other tasks of the runtime may go on and its clock stands still.
async fn answer_without_delay(mut pending: PendingResponse) -> Vec<u8> {
    for _ in 0..1000 {
        match pending.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(OutgoingMessage::Response { body, .. }) => return body,
            Poll::Ready(_) => panic!("a task request has no notifications"),
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
    panic!("a task request is answered without delay")
}

fn newest_meta(input: &mut FuzzInput<'_>) -> Value {
    let capabilities = match input.below(3) {
        0 => json!({}),
        1 => json!({"elicitation": {}}),
        _ => json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
    };
    json!({
        "io.modelcontextprotocol/protocolVersion": Version::NEWEST.as_str(),
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}
