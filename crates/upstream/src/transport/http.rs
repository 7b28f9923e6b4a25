//! Streamable HTTP: each message is a POST, and its answer a body or a stream of events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use outbound::{Client, ConnectFailure, Method, Request, RequestBuilder, Response, error_chain};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;
use wire::client::{Action, ClientError, ExchangeEnd, HttpExchange, ProtocolViolation};

use super::CloseFuture;
use crate::connection::{ConnectError, ConnectionShared};
use crate::redact;
use crate::trace::{Direction, TraceEvent};

/// How long the farewell may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a message that nobody answers may take to be taken.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long calls wait for the stream that belongs to none of them.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

struct HttpTransport {
    shared: Arc<ConnectionShared>,
    client: Client,
    url: Url,
    /// Messages that have not been taken yet.
    posts_in_flight: AtomicUsize,
}

/// One of them.
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
    let carrier = Arc::new(HttpTransport { shared, client, url, posts_in_flight: AtomicUsize::new(0) });
    let ending = Box::pin(delete_session(carrier.clone()));
    (run(carrier), ending)
}

async fn run(carrier: Arc<HttpTransport>) {
    let mut exchanges = JoinSet::new();
    let mut open: HashMap<u64, AbortHandle> = HashMap::new();
    let (ended, mut over) = mpsc::channel::<u64>(64);
    let mut standing = None;
    loop {
        let todo = tokio::select! {
            todo = carrier.shared.next_action() => todo,
            Some(exchange) = over.recv() => {
                open.remove(&exchange);
                while exchanges.try_join_next().is_some() {}
                continue;
            }
        };
        let (exchange, work) = match todo {
            None => return,
            Some(Action::Abort(exchange)) => {
                if let Some(task) = open.remove(&exchange) {
                    task.abort();
                }
                continue;
            }
            // Some servers refuse what overtakes it.
            Some(Action::Send(send)) if send.must_finish_first => {
                let first = carrier.clone().post(send.exchange, send.body, send.headers);
                let _ = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, first).await;
                continue;
            }
            Some(Action::Send(send)) => {
                let work = carrier.clone().post(send.exchange, send.body, send.headers);
                (send.exchange, Either::Left(work))
            }
            Some(Action::Get { exchange, delay_ms: after_ms, last_event_id: last_id, headers: heads }) => {
                let (opened, opening) = oneshot::channel();
                standing = last_id.is_none().then_some(opening);
                let work = carrier.clone().get(exchange, after_ms, last_id, heads, opened);
                (exchange, Either::Right(work))
            }
        };
        let ended = ended.clone();
        let task = exchanges.spawn(async move {
            work.await;
            let _ = ended.send(exchange).await;
        });
        open.insert(exchange, task);
        if let Some(opening) = standing.take() {
            // What a server wants to say on this stream is lost if the stream is not there yet.
            let _ = tokio::time::timeout(STREAM_OPEN_TIMEOUT, opening).await;
        }
    }
}

impl HttpTransport {
    async fn post(self: Arc<Self>, exchange: u64, body: Vec<u8>, heads: Vec<(String, String)>) {
        let request = self
            .request(Method::POST, &heads)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = request.body(body).build();
        self.record_request(&request, exchange);
        let posting = InFlightPost::new(&self.posts_in_flight);
        let sent = self.send(request).await;
        drop(posting);
        if let Some(response) = self.response_or_fail(exchange, sent) {
            self.read_response(exchange, response).await;
        }
    }

    async fn get(
        self: Arc<Self>,
        exchange: u64,
        after_ms: u64,
        last_id: Option<String>,
        mut heads: Vec<(String, String)>,
        opened: oneshot::Sender<()>,
    ) {
        if after_ms > 0 {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
        }
        heads.extend(last_id.map(|id| ("Last-Event-ID".to_owned(), id)));
        let request = self.request(Method::GET, &heads).header("Accept", "text/event-stream");
        let request = request.build();
        self.record_request(&request, exchange);
        let sent = self.send(request).await;
        if let Some(response) = self.response_or_fail(exchange, sent) {
            drop(opened);
            self.read_response(exchange, response).await;
        }
    }

    fn request(&self, method: Method, heads: &[(String, String)]) -> RequestBuilder {
        let mut request = self.client.request(method, self.url.clone());
        for (name, value) in heads.iter().chain(&self.shared.options.headers) {
            request = request.header(name, value);
        }
        request
    }

    async fn send(&self, request: Result<Request, outbound::Error>) -> Result<Response, outbound::Error> {
        self.client.execute(request?).await
    }

    fn response_or_fail(&self, exchange: u64, sent: Result<Response, outbound::Error>) -> Option<Response> {
        match sent {
            Ok(response) => Some(response),
            Err(error) => {
                let address = redact::address(self.url.as_str()).into_owned();
                let reason = root_cause(&error);
                let why = ClientError::ConnectionClosed(format!("cannot reach {address}: {reason}").into());
                if error.is_connect() {
                    let failure = ConnectFailure::classify(&error);
                    self.shared.set_connect_error(ConnectError { address, reason, failure });
                }
                self.shared.with_client(|client, _| client.exchange_failed(exchange, why));
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
        self.record_response(exchange, &response);
        let max = self.shared.options.frame_bytes_max;
        let mut answer = HttpExchange::new(response.status().as_u16(), kind.as_deref(), max);
        if let Some(session) = session {
            self.shared.with_client(|client, _| client.set_session(exchange, &session));
        }
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if answer.is_stream() => {
                    tracing::debug!(error = %root_cause(&error), "a stream broke off");
                    break;
                }
                Err(error) => {
                    let why = ClientError::ConnectionClosed(
                        format!("the answer broke off: {}", root_cause(&error)).into(),
                    );
                    return self.shared.with_client(|client, _| client.exchange_failed(exchange, why));
                }
            };
            self.shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &chunk });
            let mut messages = Vec::new();
            if answer.push(&chunk, |message| messages.push(message)).is_err() {
                let why =
                    ClientError::ProtocolViolation(ProtocolViolation::ResponseTooLarge { bytes_max: max });
                return self.shared.with_client(|client, _| client.exchange_failed(exchange, why));
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
        match answer.finish(challenge) {
            ExchangeEnd::Response(reply) => {
                if !reply.body.is_empty() {
                    self.shared.record(TraceEvent::Message {
                        direction: Direction::In,
                        message: &reply.body,
                        exchange: Some(exchange),
                    });
                }
                self.shared.with_client(|client, now| client.http_response(exchange, reply, now));
            }
            ExchangeEnd::StreamEnded { last_event_id: last_id, retry_ms } => {
                self.shared.with_client(|client, _| client.stream_ended(exchange, last_id, retry_ms));
            }
        }
    }

    /// The head as it is sent, with what is added to a request on its way, and the message.
    fn record_request(&self, request: &Result<Request, outbound::Error>, exchange: u64) {
        let Ok(request) = request else { return };
        if self.shared.options.trace.is_none() {
            return;
        }
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let url = redact::address(self.url.as_str());
        let mut head = format!("{} {url}\nhost: {host}{port}\n", request.method());
        let theirs = &self.shared.options.headers;
        for (name, value) in request.headers() {
            // What the user gave may be a secret.
            let is_theirs = theirs.iter().any(|(their, _)| their.eq_ignore_ascii_case(name.as_str()));
            let shown = if is_theirs { "***".into() } else { String::from_utf8_lossy(value.as_bytes()) };
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
async fn delete_session(carrier: Arc<HttpTransport>) {
    // What was said last, such as that a call is given up, goes first.
    let said = async {
        while !carrier.shared.is_all_sent() || carrier.posts_in_flight.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, said).await;
    let Some(heads) = carrier.shared.with_client(|client, _| client.delete_headers()) else { return };
    let bye = carrier.request(Method::DELETE, &heads).build();
    carrier.record_request(&bye, 0);
    let bye = carrier.send(bye);
    if let Ok(Ok(response)) = tokio::time::timeout(CLOSE_TIMEOUT, bye).await {
        carrier.record_response(0, &response);
    }
}

/// What went wrong, without the address: whoever reads it knows that.
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
