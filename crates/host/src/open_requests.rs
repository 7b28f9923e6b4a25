//! Requests to a client of the handshake era that it has not answered yet.
//!
//! Whoever sends them holds them here. A request whose answer is no longer needed is cancelled, whether its call ended, was
//! dropped, or asks something else by now.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use json::Json;
use spile_core::{EventSink, InputRequest};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection_state::{ClientResponse, ConnectionState};

pub(crate) struct OpenRequests {
    events: EventSink,
    open: Vec<OpenRequest>,
}

struct OpenRequest {
    key: String,
    id: u64,
    response: oneshot::Receiver<ClientResponse>,
    sent: Instant,
}

impl OpenRequests {
    /// Requests are sent on `events`.
    pub(crate) fn new(events: EventSink) -> Self {
        Self { events, open: Vec::new() }
    }

    pub(crate) fn send(
        &mut self,
        connection: &ConnectionState,
        key: &str,
        request: &InputRequest,
        task_id: Option<&str>,
    ) {
        let (id, response) = connection.new_request();
        self.events.request_input(id, request.clone(), task_id);
        self.open.push(OpenRequest { key: key.to_owned(), id, response, sent: Instant::now() });
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.open.iter().any(|request| request.key == key)
    }

    /// Cancels all others.
    pub(crate) fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        let events = &self.events;
        self.open.retain(|request| {
            let is_needed = is_needed(&request.key);
            if !is_needed {
                events.cancel_input_request(request.id);
            }
            is_needed
        });
    }

    /// When the oldest of them was sent.
    pub(crate) fn first_sent(&self) -> Option<Instant> {
        self.open.iter().map(|request| request.sent).min()
    }

    /// The next response, with the key of its request; `Err` if the client has gone away. Never ready without open requests.
    /// Dropping the future loses no response.
    pub(crate) async fn next_response(&mut self) -> (String, Result<ClientResponse, ClientGone>) {
        poll_fn(|cx| {
            for (index, request) in self.open.iter_mut().enumerate() {
                if let Poll::Ready(response) = Pin::new(&mut request.response).poll(cx) {
                    let request = self.open.remove(index);
                    return Poll::Ready((request.key, response.map_err(|_| ClientGone)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The connection ended before the client answered.
pub(crate) struct ClientGone;

impl Drop for OpenRequests {
    /// 2025-11-25, Cancellation: the sender of a request MAY cancel it.
    fn drop(&mut self) {
        self.retain(|_| false);
    }
}

/// A round of a call whose client has not answered all requests. It stays while the handler runs again because of a timer.
pub(crate) struct WaitingRound {
    pub(crate) open: OpenRequests,
    /// Answers that wait for the others: what was asked together is answered together, as in the stateless era.
    pub(crate) answers: Vec<(String, Json)>,
}

impl WaitingRound {
    pub(crate) fn new(events: EventSink) -> Self {
        Self { open: OpenRequests::new(events), answers: Vec::new() }
    }

    /// Whether the client was asked this already.
    pub(crate) fn has_asked(&self, key: &str) -> bool {
        self.open.contains(key) || self.answers.iter().any(|(answered, _)| answered == key)
    }
}
