//! A handshake-era client on a pipe.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use host::{CallerIdentity, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel};
use serde_json::Value;
use wire::{Decoded, MessageContext, Notification};

use super::{
    FuzzInput, SessionSimulation, cancelled_notification, initialize_request, parse_json, random_response,
};

pub(super) struct PipeClient {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) calls: Vec<(u64, u64)>,
    /// The output, with the number of the call.
    pub(super) output: Arc<Mutex<Vec<(u64, OutgoingMessage)>>>,
    pub(super) server_requests: Vec<u64>,
}

impl SessionSimulation {
    pub(super) fn step_pipe(&mut self, input: &mut FuzzInput<'_>) {
        let message = match input.below(6) {
            0 => initialize_request(input),
            1 => cancelled_notification(input.below(5) as u64),
            2 => random_response(input, &mut self.pipe.server_requests),
            _ => {
                let (n, id, message) = self.new_call(input, Value::Null);
                if let Decoded::Request(request) = self.decode_on_pipe(&message)
                    && let Dispatched::Call(in_flight) = self.server.dispatch(
                        request,
                        &CallerIdentity::default(),
                        ReplyChannel::Pipe(self.pipe.connection.clone()),
                        self.server.snapshot(),
                    )
                {
                    self.pipe.calls.push((n, id));
                    self.pipe.run_pending(n, PendingResponse::Single(in_flight));
                }
                return self.take_output();
            }
        };
        match self.decode_on_pipe(&message) {
            Decoded::Request(request) => {
                self.server.dispatch(
                    request,
                    &CallerIdentity::default(),
                    ReplyChannel::Pipe(self.pipe.connection.clone()),
                    self.server.snapshot(),
                );
            }
            Decoded::Notification(Notification::Cancelled(named)) => {
                let (connection, calls) = (self.pipe.connection.clone(), self.pipe.calls.clone());
                let id = message["params"]["requestId"].as_u64().unwrap_or_default();
                self.cancel(&connection, &named, &calls, id);
            }
            Decoded::Response { id, result: answer } => self.pipe.connection.deliver_response(id, answer),
            Decoded::Notification(_) | Decoded::Batch(_) | Decoded::Rejected(_) => {}
        }
        self.take_output();
    }

    fn decode_on_pipe(&self, message: &Value) -> Decoded {
        self.server.decode(
            message.to_string().into_bytes(),
            MessageContext::Pipe(self.pipe.connection.peer()),
            &self.server.snapshot(),
        )
    }

    pub(super) fn take_output(&mut self) {
        let output = std::mem::take(&mut *self.pipe.output.lock().unwrap_or_else(PoisonError::into_inner));
        for (n, out) in output {
            match out {
                OutgoingMessage::Request(body) => {
                    self.pipe.server_requests.extend(parse_json(&body)["id"].as_u64())
                }
                OutgoingMessage::Response { body, .. } => self.record_answer(n, &body),
                OutgoingMessage::Notification(_) | OutgoingMessage::Pause { .. } => {}
            }
        }
    }
}

impl PipeClient {
    pub(super) fn new(connection: Arc<ConnectionState>) -> Self {
        Self { connection, calls: Vec::new(), output: Arc::default(), server_requests: Vec::new() }
    }

    /// Like the transport: polled once, then spawned.
    fn run_pending(&self, n: u64, mut flow: PendingResponse) {
        let output = self.output.clone();
        let put = move |out| output.lock().unwrap_or_else(PoisonError::into_inner).push((n, out));
        loop {
            match flow.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => break,
                Poll::Ready(out) => {
                    let last = matches!(out, OutgoingMessage::Response { .. });
                    put(out);
                    if last {
                        return;
                    }
                }
            }
        }
        let waiting = flow.register(&self.connection);
        let number = waiting.entry();
        let task = tokio::spawn(async move {
            let _waiting = waiting;
            loop {
                let out = poll_fn(|cx| flow.poll_next(cx)).await;
                let last = matches!(out, OutgoingMessage::Response { .. });
                put(out);
                if last {
                    return;
                }
            }
        });
        self.connection.set_abort_handle(number, task.abort_handle());
    }
}
