//! HTTP without sockets: each message is an exchange, answered with a body or a stream that may break.
//!
//! [`SimulatedHttpServer`] is the server: the same host code decides each response as behind a socket. This file is the
//! network between it and the client.

use std::collections::BTreeSet;
use std::sync::Arc;

use host::{CallerIdentity, Server};
use wire::client::{Action, Client, ClientError, ClientMessage, ExchangeEnd, HttpExchange};
use wire::{Decoded, Feature};

use super::FuzzInput;
use super::legacy_server::{Interception, KnownVersions, LegacyServer};
use super::model::{PairModel, parse_json};
use crate::simulated_http::{SimulatedHttpServer, SimulatedResponse};

pub(super) struct SimulatedHttp {
    server: Arc<Server>,
    http_server: SimulatedHttpServer,
    legacy_server: LegacyServer,
    /// Requests on their way, and when they leave.
    in_transit: Vec<(u64, Request)>,
    responses: Vec<Response>,
    /// Every session that was ever issued.
    sessions: Vec<String>,
    /// Exchanges whose streams can be resumed.
    resumable: BTreeSet<u64>,
}

#[derive(Debug)]
enum Request {
    Post(ClientMessage),
    Get { exchange: u64, last_id: Option<String>, heads: Vec<(String, String)> },
}

impl Request {
    fn exchange(&self) -> u64 {
        match self {
            Self::Post(send) => send.exchange,
            Self::Get { exchange, .. } => *exchange,
        }
    }
}

/// A response in progress; dropping it closes the connection.
struct Response {
    exchange: u64,
    /// Whether the server cancels the call when the connection closes.
    owns_call: bool,
    written: SimulatedResponse,
    reader: Option<HttpExchange>,
}

impl SimulatedHttp {
    pub(super) fn new(server: &Arc<Server>, knows: KnownVersions, input: &mut FuzzInput<'_>) -> Self {
        let legacy_server = LegacyServer::new(knows, input);
        let (in_transit, responses, sessions) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            server: server.clone(),
            http_server: SimulatedHttpServer::new(server.clone()),
            legacy_server,
            in_transit,
            responses,
            sessions,
            resumable: BTreeSet::new(),
        }
    }

    /// Performs an action of the client.
    pub(super) fn send(&mut self, todo: Action, model: &mut PairModel, now: u64) {
        match todo {
            Action::Send(send) => self.in_transit.push((now, Request::Post(send))),
            Action::Get { exchange, delay_ms: after_ms, last_event_id: last_id, headers: heads } => {
                model.trace(format_args!("        GET {exchange} after {after_ms} from {last_id:?}"));
                self.in_transit.push((now + after_ms, Request::Get { exchange, last_id, heads }));
            }
            Action::Abort(exchange) => {
                self.in_transit.retain(|(_, request)| request.exchange() != exchange);
                if let Some(index) = self.responses.iter().position(|r| r.exchange == exchange)
                    && self.responses.swap_remove(index).owns_call
                {
                    model.mark_stopped(exchange);
                }
            }
        }
    }

    /// Delivers a request or a piece of a response; `false` if nothing is on its way.
    pub(super) fn deliver(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) -> bool {
        let due: Vec<usize> =
            (0..self.in_transit.len()).filter(|index| self.in_transit[*index].0 <= now).collect();
        let ready: Vec<usize> =
            (0..self.responses.len()).filter(|index| self.responses[*index].is_readable()).collect();
        if ready.is_empty() || (!due.is_empty() && input.one_in(2)) {
            if due.is_empty() {
                return false;
            }
            let (_, request) = self.in_transit.remove(due[input.below(due.len())]);
            self.serve_request(request, model);
        } else {
            let index = ready[input.below(ready.len())];
            if self.responses[index].read(client, model, &mut self.sessions, now, input) {
                let response = self.responses.swap_remove(index);
                self.resumable.extend(response.finish(client, now));
            }
        }
        true
    }

    /// Breaks a connection, with or without data in it.
    pub(super) fn break_connection(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) {
        // Prefer a stream, and one with data that can be lost.
        let is_stream = |response: &Response| response.reader.as_ref().is_some_and(HttpExchange::is_stream);
        let is_full = |response: &Response| is_stream(response) && response.is_readable();
        let all = || 0..self.responses.len();
        let streams: Vec<usize> = all().filter(|index| is_stream(&self.responses[*index])).collect();
        let full: Vec<usize> = all().filter(|index| is_full(&self.responses[*index])).collect();
        let index = match input.below(8) {
            _ if self.responses.is_empty() => return,
            0..=5 if !full.is_empty() => full[input.below(full.len())],
            0..=6 if !streams.is_empty() => streams[input.below(streams.len())],
            // A connection that breaks before the handshake is complete ends the simulation.
            0..=5 => return,
            _ => input.below(self.responses.len()),
        };
        let mut response = self.responses.swap_remove(index);
        let exchange = response.exchange;
        // Deliver some lines of it: streams are cut in the middle of events.
        let bytes = response.written.lock().bytes.clone();
        let ends: Vec<usize> = (0..bytes.len()).filter(|index| bytes[*index] == b'\n').collect();
        if response.reader.is_some() && !ends.is_empty() {
            let until = ends[input.below(ends.len().min(256))];
            response.read_bytes(until + 1, client, model, now);
        }
        if response.owns_call {
            model.mark_stopped(exchange);
        }
        let stream = response.reader.take().filter(HttpExchange::is_stream);
        let then = stream.map(|reader| reader.finish(None));
        model.trace(format_args!("        {exchange} is cut: {then:?}"));
        // A resumable stream is resumed and read to its end.
        if let Some(ExchangeEnd::StreamEnded { last_event_id: Some(_), .. }) = then {
            self.resumable.insert(exchange);
        }
        if !self.resumable.contains(&exchange) {
            model.disconnect_one(exchange);
        }
        match then {
            Some(ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms }) => {
                client.stream_ended(exchange, last_id, retry_ms)
            }
            Some(ExchangeEnd::Response(_)) | None => {
                client.exchange_failed(exchange, ClientError::ConnectionClosed("cut".into()))
            }
        }
    }

    /// The server forgets a session, as after a restart.
    pub(super) fn forget_session(&mut self, model: &mut PairModel) {
        let Some(id) = self.sessions.last() else { return };
        if let Ok(ticket) = self.server.verify_session(id, &CallerIdentity::default()) {
            model.lost_sessions += 1;
            model.disconnect_all();
            self.server.end_session(&ticket);
        }
    }

    pub(super) fn close(&mut self, client: &Client) {
        if let Some(heads) = client.delete_headers() {
            let id = header_value(&heads, "Mcp-Session-Id").expect("a session is named when it ends");
            if let Ok(ticket) = self.server.verify_session(id, &CallerIdentity::default()) {
                self.server.end_session(&ticket);
            }
        }
        self.in_transit.clear();
        self.responses.clear();
    }

    pub(super) fn drop_all(&mut self) {
        for id in &self.sessions {
            let ticket = self.server.verify_session(id, &CallerIdentity::default());
            assert!(
                ticket.is_err() || ticket.is_ok_and(|ticket| self.server.session_state(&ticket).is_none()),
                "a session is left"
            );
        }
    }

    // Server side.

    fn serve_request(&mut self, request: Request, model: &mut PairModel) {
        let exchange = request.exchange();
        let mut owns_call = false;
        let written = match request {
            Request::Get { last_id, mut heads, .. } => {
                heads.extend(last_id.map(|id| ("Last-Event-ID".to_owned(), id)));
                check_not_repeated(&heads);
                self.http_server.get(&heads)
            }
            Request::Post(send) => {
                check_not_repeated(&send.headers);
                let message = parse_json(&send.body);
                match self.legacy_server.intercept(&send.body, &message) {
                    Interception::Forward(body) => {
                        let message_in = self.http_server.decode(body, &send.headers);
                        let opened = &message_in.decoded;
                        model.server_received(&message, opened);
                        let is_stateless =
                            matches!(opened, Decoded::Request(r) if r.peer.version.has(Feature::RequestMeta));
                        let written = self.http_server.post(message_in, &send.headers);
                        owns_call = is_stateless && written.was_deferred();
                        written
                    }
                    Interception::Respond(status, body) => SimulatedResponse::complete(status, JSON, &body),
                    Interception::Garbage(text) => SimulatedResponse::complete(400, JSON, text),
                    Interception::Drop => SimulatedResponse::complete(405, JSON, b""),
                }
            }
        };
        self.responses.push(Response { exchange, owns_call, written, reader: None });
    }
}

const JSON: &str = "application/json";

/// No header is sent twice.
fn check_not_repeated(heads: &[(String, String)]) {
    let names: BTreeSet<String> = heads.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    assert_eq!(names.len(), heads.len(), "a header is sent twice: {heads:?}");
}

fn header_value<'h>(heads: &'h [(String, String)], name: &str) -> Option<&'h str> {
    heads.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

// Client side.

impl Response {
    fn is_readable(&self) -> bool {
        let written = self.written.lock();
        match &self.reader {
            None => written.head.is_some(),
            Some(_) => !written.bytes.is_empty() || written.is_finished,
        }
    }

    /// Reads the head, or a piece of the body; `true` at the end.
    fn read(
        &mut self,
        client: &mut Client,
        model: &mut PairModel,
        sessions: &mut Vec<String>,
        now: u64,
        input: &mut FuzzInput<'_>,
    ) -> bool {
        let mut written = self.written.lock();
        if self.reader.is_none() {
            let head = written.head.take().expect("there is a head");
            drop(written);
            if let Some(id) = head.session {
                client.set_session(self.exchange, &id);
                sessions.push(id);
            }
            self.reader = Some(HttpExchange::new(head.status, head.content_type, BODY_BYTES_MAX));
            return false;
        }
        if written.bytes.is_empty() {
            return written.is_finished;
        }
        let count = match input.below(4) {
            0 | 1 => written.bytes.len(),
            2 => usize::from(input.byte()).clamp(1, written.bytes.len()),
            _ => 1,
        };
        let is_whole = written.is_finished && written.bytes.len() == count;
        drop(written);
        self.read_bytes(count, client, model, now);
        is_whole
    }

    /// Reads some of the body.
    fn read_bytes(&mut self, count: usize, client: &mut Client, model: &mut PairModel, now: u64) {
        let Some(reader) = &mut self.reader else { return };
        let bytes: Vec<u8> = self.written.lock().bytes.drain(..count).collect();
        let mut messages = Vec::new();
        reader.push(&bytes, |message| messages.push(message)).expect("no answer is so long");
        for message in messages {
            client.stream_active(self.exchange);
            model.server_sent(&parse_json(&message));
            client.receive(message, Some(self.exchange), now);
        }
    }

    /// The exchange, if it was a resumable stream.
    fn finish(mut self, client: &mut Client, now: u64) -> Option<u64> {
        match self.reader.take()?.finish(None) {
            ExchangeEnd::Response(reply) => {
                client.http_response(self.exchange, reply, now);
                None
            }
            ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms } => {
                let has_place = last_id.is_some();
                client.stream_ended(self.exchange, last_id, retry_ms);
                has_place.then_some(self.exchange)
            }
        }
    }
}

const BODY_BYTES_MAX: usize = 1 << 20;
