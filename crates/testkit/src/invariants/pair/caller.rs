//! What a user does with a client.

use json::Json;
use spile_core::LogLevel;
use wire::client::{ClientCall, InputReply};
use wire::method::Method;
use wire::{ListKind, NotificationFilter};

use super::model::{PendingRequest, RequestType};
use super::{FuzzInput, PairSimulation};

const ACTIONS: [char; 10] = ['l', 'p', 'w', 'p', 's', 'z', 'a', 'f', 'd', 'a'];

impl PairSimulation {
    pub(super) fn act_as_caller(&mut self, input: &mut FuzzInput<'_>) {
        match input.below(12) {
            0..=4 | 9 => self.call(input),
            5 => {
                let list = if input.one_in(4) { ListKind::Prompts } else { ListKind::Tools };
                let timeout_ms = pick_timeout(input);
                let call_id = self.client.list(list, timeout_ms, self.now_ms);
                self.model.record_started(
                    call_id,
                    PendingRequest::new(RequestType::List(list), timeout_ms, self.now_ms),
                );
            }
            6 => {
                let uris = if input.one_in(2) { vec!["a:b".to_owned()] } else { Vec::new() };
                let filter = NotificationFilter {
                    tools_list_changed: true,
                    resource_uris: uris,
                    ..NotificationFilter::default()
                };
                let call_id = self.client.listen(&filter, self.now_ms);
                self.model
                    .record_started(call_id, PendingRequest::new(RequestType::Listen, None, self.now_ms));
            }
            7 => {
                let timeout_ms = pick_timeout(input);
                let call_id = self.client.ping(timeout_ms, self.now_ms);
                self.model
                    .record_started(call_id, PendingRequest::new(RequestType::Ping, timeout_ms, self.now_ms));
            }
            8 => {
                if let Some(call_id) = self.model.any_ticket(input) {
                    self.model.record_cancel(call_id);
                    self.client.cancel(call_id);
                }
            }
            10 => {
                if let Some(ask) = self.model.any_input_request(input) {
                    let answer = match input.below(4) {
                        0 => InputReply::Declined("not now".to_owned()),
                        _ => accept_response(),
                    };
                    self.model.record_answer(ask);
                    self.client.respond(ask, answer);
                }
            }
            _ => self.client.set_level(input.choose(&[LogLevel::Debug, LogLevel::Error]), self.now_ms),
        }
    }

    fn call(&mut self, input: &mut FuzzInput<'_>) {
        let script: String = (0..input.below(5)).map(|_| input.choose(&ACTIONS)).collect();
        let (progress, timeout_ms) = (input.one_in(2), pick_timeout(input));
        let n = self.model.next_number();
        let params = Json::object(|params| {
            params.str("name", "t");
            params.object("arguments", |arguments| {
                arguments.int("n", n as i64).str("script", &script);
            });
        });
        let call =
            ClientCall { wants_progress: progress, timeout_ms, ..ClientCall::new(Method::ToolsCall, params) };
        let call_id = self.client.call(call, self.now_ms);
        self.model.record_started(
            call_id,
            PendingRequest::new(RequestType::Call { n, script, progress }, timeout_ms, self.now_ms),
        );
    }

    /// Answers every open input request; `false` if there is none.
    pub(super) fn answer_all(&mut self) -> bool {
        let open = self.model.open_input_requests();
        for ask in &open {
            self.model.record_answer(*ask);
            self.client.respond(*ask, accept_response());
        }
        !open.is_empty()
    }

    /// Ends what has no end of its own.
    pub(super) fn cancel_subscriptions(&mut self) {
        for call_id in self.model.open_subscriptions() {
            self.model.record_cancel(call_id);
            self.client.cancel(call_id);
        }
    }
}

fn accept_response() -> InputReply {
    InputReply::Result(Json::parse(r#"{"action":"accept","content":{"x":"y"}}"#).expect("JSON"))
}

fn pick_timeout(input: &mut FuzzInput<'_>) -> Option<u64> {
    input.choose(&[None, Some(100_000), Some(2_000_000), None, Some(100_000), Some(1500), Some(1)])
}
