//! Streamable HTTP: each message is a POST, and its answer a body or a stream of events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::Either;
use outbound::{Client, Method, Request, RequestBuilder, Response, reason};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;
use wire::client::{Do, Exchange, Failure, Then};

use super::Ending;
use crate::connection::Shared;
use crate::masked;
use crate::trace::{Direction, Seen};

/// How long the farewell may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a message that nobody answers may take to be taken.
const NOTICE: Duration = Duration::from_secs(10);

/// How long calls wait for the stream that belongs to none of them.
const STREAM: Duration = Duration::from_secs(1);

struct Carrier {
    shared: Arc<Shared>,
    client: Client,
    url: Url,
    /// Messages that have not been taken yet.
    posting: AtomicUsize,
}

/// One of them.
struct Posting<'c>(&'c AtomicUsize);

impl<'c> Posting<'c> {
    fn one(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn drive(
    shared: Arc<Shared>,
    client: Client,
    url: Url,
) -> (impl Future<Output = ()> + Send + 'static, Ending) {
    let carrier = Arc::new(Carrier { shared, client, url, posting: AtomicUsize::new(0) });
    let ending = Box::pin(farewell(carrier.clone()));
    (carry(carrier), ending)
}

async fn carry(carrier: Arc<Carrier>) {
    let mut exchanges = JoinSet::new();
    let mut open: HashMap<u64, AbortHandle> = HashMap::new();
    let (ended, mut over) = mpsc::channel::<u64>(64);
    let mut standing = None;
    loop {
        let todo = tokio::select! {
            todo = carrier.shared.todo() => todo,
            Some(exchange) = over.recv() => {
                open.remove(&exchange);
                while exchanges.try_join_next().is_some() {}
                continue;
            }
        };
        let (exchange, work) = match todo {
            None => return,
            Some(Do::Abandon(exchange)) => {
                if let Some(task) = open.remove(&exchange) {
                    task.abort();
                }
                continue;
            }
            // Some servers refuse what overtakes it.
            Some(Do::Send(send)) if send.is_first => {
                let first = carrier.clone().post(send.exchange, send.body, send.heads);
                let _ = tokio::time::timeout(NOTICE, first).await;
                continue;
            }
            Some(Do::Send(send)) => {
                let work = carrier.clone().post(send.exchange, send.body, send.heads);
                (send.exchange, Either::Left(work))
            }
            Some(Do::Get { exchange, after_ms, last_id, heads }) => {
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
            let _ = tokio::time::timeout(STREAM, opening).await;
        }
    }
}

impl Carrier {
    async fn post(self: Arc<Self>, exchange: u64, body: Vec<u8>, heads: Vec<(String, String)>) {
        let request = self
            .request(Method::POST, &heads)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = request.body(body).build();
        self.saw_request(&request, exchange);
        let posting = Posting::one(&self.posting);
        let sent = self.send(request).await;
        drop(posting);
        if let Some(response) = self.sent(exchange, sent) {
            self.read(exchange, response).await;
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
        self.saw_request(&request, exchange);
        let sent = self.send(request).await;
        if let Some(response) = self.sent(exchange, sent) {
            drop(opened);
            self.read(exchange, response).await;
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

    fn sent(&self, exchange: u64, sent: Result<Response, outbound::Error>) -> Option<Response> {
        match sent {
            Ok(response) => Some(response),
            Err(error) => {
                let why = Failure::Closed(format!("cannot reach {}: {}", self.url, in_words(&error)));
                self.shared.with(|client, _| client.failed(exchange, why));
                None
            }
        }
    }

    async fn read(&self, exchange: u64, mut response: Response) {
        let head = |name: &str| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let (session, kind, challenge) =
            (head("mcp-session-id"), head("content-type"), head("www-authenticate"));
        self.saw_answer(exchange, &response);
        let max = self.shared.options.frame_bytes_max;
        let mut answer = Exchange::new(response.status().as_u16(), kind.as_deref(), max);
        if let Some(session) = session {
            self.shared.with(|client, _| client.session(exchange, &session));
        }
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if answer.is_stream() => {
                    tracing::debug!(error = %in_words(&error), "a stream broke off");
                    break;
                }
                Err(error) => {
                    let why = Failure::Closed(format!("the answer broke off: {}", in_words(&error)));
                    return self.shared.with(|client, _| client.failed(exchange, why));
                }
            };
            self.shared.saw(Seen::Bytes { direction: Direction::In, bytes: &chunk });
            let mut messages = Vec::new();
            if answer.push(&chunk, |message| messages.push(message)).is_err() {
                let why = Failure::NotMcp(format!("an answer of more than {max} bytes"));
                return self.shared.with(|client, _| client.failed(exchange, why));
            }
            for message in messages {
                self.shared.saw(Seen::Frame {
                    direction: Direction::In,
                    message: &message,
                    exchange: Some(exchange),
                });
                self.shared.with(|client, now| {
                    client.stream_lives(exchange);
                    client.receive(message, Some(exchange), now);
                });
            }
        }
        match answer.end(challenge) {
            Then::Said(reply) => {
                if !reply.body.is_empty() {
                    self.shared.saw(Seen::Frame {
                        direction: Direction::In,
                        message: &reply.body,
                        exchange: Some(exchange),
                    });
                }
                self.shared.with(|client, now| client.replied(exchange, reply, now));
            }
            Then::Ended { last_id, retry_ms } => {
                self.shared.with(|client, _| client.stream_ended(exchange, last_id, retry_ms));
            }
        }
    }

    /// The head as it is sent, with what is added to a request on its way, and the message.
    fn saw_request(&self, request: &Result<Request, outbound::Error>, exchange: u64) {
        let Ok(request) = request else { return };
        if self.shared.options.tap.is_none() {
            return;
        }
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let url = masked::address(self.url.as_str());
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
        self.shared.saw(Seen::Head { direction: Direction::Out, head: head.trim_end(), exchange });
        if let Some(body) = body {
            self.shared.saw(Seen::Frame {
                direction: Direction::Out,
                message: body,
                exchange: Some(exchange),
            });
            self.shared.saw(Seen::Bytes { direction: Direction::Out, bytes: body });
        }
    }

    fn saw_answer(&self, exchange: u64, response: &Response) {
        if self.shared.options.tap.is_none() {
            return;
        }
        let mut head = format!("{:?} {}\n", response.version(), response.status());
        for (name, value) in response.headers() {
            head.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        self.shared.saw(Seen::Head { direction: Direction::In, head: head.trim_end(), exchange });
    }
}

/// 2025-11-25, Session Management: clients "SHOULD send an HTTP DELETE".
async fn farewell(carrier: Arc<Carrier>) {
    // What was said last, such as that a call is given up, goes first.
    let said = async {
        while !carrier.shared.is_carried() || carrier.posting.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, said).await;
    let Some(heads) = carrier.shared.with(|client, _| client.farewell()) else { return };
    let bye = carrier.request(Method::DELETE, &heads).build();
    carrier.saw_request(&bye, 0);
    let bye = carrier.send(bye);
    if let Ok(Ok(response)) = tokio::time::timeout(LAST_WORDS, bye).await {
        carrier.saw_answer(0, &response);
    }
}

/// What went wrong, without the address: whoever reads it knows that.
pub(super) fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    match reason(innermost) {
        words if words.is_empty() => reason(error),
        words => words,
    }
}
