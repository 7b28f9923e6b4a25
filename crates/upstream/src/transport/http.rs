//! Streamable HTTP: each message is a POST; the response is a JSON body or an event stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use outbound::{Client, ConnectFailure, Method, Request, Response, error_chain};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;
use wire::client::{Action, ClientError, CloseReason, ExchangeEnd, HttpExchange, ProtocolViolation};

use super::CloseFuture;
use super::retry_after::retry_after_ms;
use crate::access_token::{AccessToken, headers_of};
use crate::connection::{ConnectError, ConnectionShared};
use crate::redact;
use crate::trace::{Direction, TraceEvent};

/// How long closing may take: the last messages, and the DELETE.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for the server to accept a message that must arrive before the next one.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long calls wait for the standalone GET stream to open.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

struct HttpTransport {
    shared: Arc<ConnectionShared>,
    client: Client,
    url: Url,
    /// POSTs without a response yet.
    posts_in_flight: AtomicUsize,
}

/// Counts one POST.
struct InFlightPost<'c>(&'c AtomicUsize);

impl<'c> InFlightPost<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlightPost<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn drive(
    shared: Arc<ConnectionShared>,
    client: Client,
    url: Url,
) -> (impl Future<Output = ()> + Send + 'static, CloseFuture) {
    let transport = Arc::new(HttpTransport { shared, client, url, posts_in_flight: AtomicUsize::new(0) });
    let ending = Box::pin(delete_session(transport.clone()));
    (run(transport), ending)
}

async fn run(transport: Arc<HttpTransport>) {
    let mut exchanges = JoinSet::new();
    let mut open: HashMap<u64, AbortHandle> = HashMap::new();
    let (ended, mut ended_receiver) = mpsc::channel::<u64>(64);
    let mut standalone_stream = None;
    loop {
        let action = tokio::select! {
            action = transport.shared.next_action() => action,
            Some(exchange) = ended_receiver.recv() => {
                open.remove(&exchange);
                while exchanges.try_join_next().is_some() {}
                continue;
            }
        };
        let (exchange, work) = match action {
            None => return,
            Some(Action::Abort(exchange)) => {
                if let Some(task) = open.remove(&exchange) {
                    task.abort();
                }
                continue;
            }
            // Some servers refuse messages that overtake this one.
            Some(Action::Send(send)) if send.must_finish_first => {
                let first = transport.clone().post(send.exchange, send.body, send.headers);
                let _ = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, first).await;
                continue;
            }
            Some(Action::Send(send)) => {
                let work = transport.clone().post(send.exchange, send.body, send.headers);
                (send.exchange, Either::Left(work))
            }
            Some(Action::Get { exchange, delay_ms, last_event_id, headers }) => {
                let (opened, opening) = oneshot::channel();
                standalone_stream = last_event_id.is_none().then_some(opening);
                let work = transport.clone().get(exchange, delay_ms, last_event_id, headers, opened);
                (exchange, Either::Right(work))
            }
        };
        let ended = ended.clone();
        let task = exchanges.spawn(async move {
            work.await;
            let _ = ended.send(exchange).await;
        });
        open.insert(exchange, task);
        if let Some(opening) = standalone_stream.take() {
            // Messages for this stream are lost if the server has them before the stream is open.
            let _ = tokio::time::timeout(STREAM_OPEN_TIMEOUT, opening).await;
        }
    }
}

impl HttpTransport {
    async fn post(self: Arc<Self>, exchange: u64, body: Vec<u8>, mut headers: Vec<(String, String)>) {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        headers.push(("Accept".to_owned(), "application/json, text/event-stream".to_owned()));
        let in_flight = InFlightPost::new(&self.posts_in_flight);
        let sent = self.send(exchange, Method::POST, &headers, Some(body)).await;
        drop(in_flight);
        if let Some(response) = self.response_or_fail(exchange, sent) {
            self.read_response(exchange, response).await;
        }
    }

    async fn get(
        self: Arc<Self>,
        exchange: u64,
        delay_ms: u64,
        last_event_id: Option<String>,
        mut headers: Vec<(String, String)>,
        opened: oneshot::Sender<()>,
    ) {
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        headers.extend(last_event_id.map(|id| ("Last-Event-ID".to_owned(), id)));
        headers.push(("Accept".to_owned(), "text/event-stream".to_owned()));
        let sent = self.send(exchange, Method::GET, &headers, None).await;
        if let Some(response) = self.response_or_fail(exchange, sent) {
            drop(opened);
            self.read_response(exchange, response).await;
        }
    }

    /// Sends a request with the current token, and once more if the server wants a nonce in the proof.
    async fn send(
        &self,
        exchange: u64,
        method: Method,
        headers: &[(String, String)],
        body: Option<Vec<u8>>,
    ) -> Result<Response, outbound::Error> {
        let token = self.shared.options.current_token();
        let bound = token.as_ref().filter(|token| token.is_bound());
        let again = bound.map(|token| (token, body.clone()));
        let response = self.send_once(exchange, &method, headers, token.as_ref(), body).await?;
        match again {
            Some((token, body)) if token.take_nonce(&response) => {
                self.record_response(exchange, &response);
                self.send_once(exchange, &method, headers, Some(token), body).await
            }
            Some(_) | None => Ok(response),
        }
    }

    async fn send_once(
        &self,
        exchange: u64,
        method: &Method,
        headers: &[(String, String)],
        token: Option<&AccessToken>,
        body: Option<Vec<u8>>,
    ) -> Result<Response, outbound::Error> {
        let mut request = self.client.request(method.clone(), self.url.clone());
        let own = headers_of(&self.shared.options.headers, token, method.as_str(), &self.url);
        for (name, value) in headers.iter().chain(&own) {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let request = request.build();
        self.record_request(&request, exchange);
        self.client.execute(request?).await
    }

    fn response_or_fail(&self, exchange: u64, sent: Result<Response, outbound::Error>) -> Option<Response> {
        match sent {
            Ok(response) => Some(response),
            Err(error) => {
                let address = redact::address(self.url.as_str()).into_owned();
                let cause = root_cause(&error);
                let reason = format!("cannot reach {address}: {cause}");
                let reason = match error.is_connect() {
                    true => CloseReason::NotSent(reason),
                    false => reason.into(),
                };
                if error.is_connect() {
                    let failure = ConnectFailure::classify(&error);
                    self.shared.set_connect_error(ConnectError { address, reason: cause, failure });
                }
                self.shared.with_client(|client, _| {
                    client.exchange_failed(exchange, ClientError::ConnectionClosed(reason))
                });
                None
            }
        }
    }

    async fn read_response(&self, exchange: u64, mut response: Response) {
        let head = |name: &str| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let (session, kind, challenge) =
            (head("mcp-session-id"), head("content-type"), head("www-authenticate"));
        let retry_after_ms = retry_after_ms(response.headers());
        self.record_response(exchange, &response);
        let max = self.shared.options.message_bytes_max;
        let mut http_exchange = HttpExchange::new(response.status().as_u16(), kind.as_deref(), max);
        if let Some(session) = session {
            self.shared.with_client(|client, _| client.set_session(exchange, &session));
        }
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if http_exchange.is_stream() => {
                    tracing::debug!(error = %root_cause(&error), "stream failed");
                    break;
                }
                Err(error) => {
                    let reason = ClientError::ConnectionClosed(
                        format!("the response is incomplete: {}", root_cause(&error)).into(),
                    );
                    return self.shared.with_client(|client, _| client.exchange_failed(exchange, reason));
                }
            };
            self.shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &chunk });
            let mut messages = Vec::new();
            if http_exchange.push(&chunk, |message| messages.push(message)).is_err() {
                let reason =
                    ClientError::ProtocolViolation(ProtocolViolation::ResponseTooLarge { bytes_max: max });
                return self.shared.with_client(|client, _| client.exchange_failed(exchange, reason));
            }
            for message in messages {
                self.shared.record(TraceEvent::Message {
                    direction: Direction::In,
                    message: &message,
                    exchange: Some(exchange),
                });
                self.shared.with_client(|client, now| {
                    client.stream_active(exchange);
                    client.receive(message, Some(exchange), now);
                });
            }
        }
        match http_exchange.finish(challenge) {
            ExchangeEnd::Response(mut reply) => {
                reply.retry_after_ms = retry_after_ms;
                if !reply.body.is_empty() {
                    self.shared.record(TraceEvent::Message {
                        direction: Direction::In,
                        message: &reply.body,
                        exchange: Some(exchange),
                    });
                }
                self.shared.with_client(|client, now| client.http_response(exchange, reply, now));
            }
            ExchangeEnd::StreamEnded { last_event_id, retry_ms } => {
                self.shared.with_client(|client, _| client.stream_ended(exchange, last_event_id, retry_ms));
            }
        }
    }

    /// Records the head, including the headers that the HTTP client adds, and the message.
    fn record_request(&self, request: &Result<Request, outbound::Error>, exchange: u64) {
        let Ok(request) = request else { return };
        if self.shared.options.trace.is_none() {
            return;
        }
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let url = redact::address(self.url.as_str());
        let mut head = format!("{} {url}\nhost: {host}{port}\n", request.method());
        let user_headers = &self.shared.options.headers;
        for (name, value) in request.headers() {
            // Headers from the user may be secrets.
            let is_user_header = name == "authorization"
                || name == "dpop"
                || user_headers
                    .iter()
                    .any(|(user_header, _)| user_header.eq_ignore_ascii_case(name.as_str()));
            let shown = if is_user_header { "***".into() } else { String::from_utf8_lossy(value.as_bytes()) };
            head.push_str(&format!("{name}: {shown}\n"));
        }
        for (name, value) in [("accept", "*/*"), ("user-agent", outbound::USER_AGENT)] {
            if !request.headers().contains_key(name) {
                head.push_str(&format!("{name}: {value}\n"));
            }
        }
        let body = request.body().and_then(|body| body.as_bytes());
        if let Some(body) = body {
            head.push_str(&format!("content-length: {}\n", body.len()));
        }
        self.shared.record(TraceEvent::Head { direction: Direction::Out, head: head.trim_end(), exchange });
        if let Some(body) = body {
            self.shared.record(TraceEvent::Message {
                direction: Direction::Out,
                message: body,
                exchange: Some(exchange),
            });
            self.shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: body });
        }
    }

    fn record_response(&self, exchange: u64, response: &Response) {
        if self.shared.options.trace.is_none() {
            return;
        }
        let mut head = format!("{:?} {}\n", response.version(), response.status());
        for (name, value) in response.headers() {
            head.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        self.shared.record(TraceEvent::Head { direction: Direction::In, head: head.trim_end(), exchange });
    }
}

/// 2025-11-25, Session Management: clients "SHOULD send an HTTP DELETE".
async fn delete_session(transport: Arc<HttpTransport>) {
    // Send the last messages first, such as a cancellation.
    let flushed = async {
        while !transport.shared.is_all_sent() || transport.posts_in_flight.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, flushed).await;
    let Some(headers) = transport.shared.with_client(|client, _| client.delete_headers()) else { return };
    let delete = transport.send(0, Method::DELETE, &headers, None);
    if let Ok(Ok(response)) = tokio::time::timeout(CLOSE_TIMEOUT, delete).await {
        transport.record_response(0, &response);
    }
}

/// The innermost cause, without the URL, which the caller already shows.
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    match error_chain(innermost) {
        words if words.is_empty() => error_chain(error),
        words => words,
    }
}
