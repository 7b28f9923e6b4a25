//! HTTP/1 on the fast path and through hyper alone: whatever bytes arrive, in whatever pieces, the answers are the same.
//!
//! A tool echoes the whole request, so that two readers that see different requests give different answers. The sessions,
//! the clock and the random numbers of both servers are the same.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use host::{Config, Server};
use json::Json;
use spile_core::{Call, CallContext, Catalog, Limits, Outcome, Provider, Run, Tool, ToolResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::fuzzing::{self, PlainRequests};
use transport::http::{ConnectionLimits, HttpService};
use transport::{AccessTokens, Guard};

use super::scripted_provider::ScriptedProvider;
use crate::FakePlatform;

/// The first byte says how the rest is cut into pieces, and whether the server requires [`TOKEN`].
///
/// Needs a runtime whose clock is paused.
pub async fn http1(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let piece_bytes = match how & 0x7f {
        0 => bytes.len().max(1),
        bytes => usize::from(bytes),
    };
    let pieces: Vec<&[u8]> = bytes.chunks(piece_bytes).collect();
    check_http1(&pieces, how & 0x80 != 0).await;
}

async fn check_http1(pieces: &[&[u8]], requires_token: bool) {
    let fast = exchange(pieces, requires_token, PlainRequests::FastPath).await;
    let hyper = exchange(pieces, requires_token, PlainRequests::Hyper).await;
    assert_eq!(fast, hyper, "sent: {:?}", pieces.concat().escape_ascii().to_string());
}

/// What a connection answers to these requests of a conversation, all sent at once: through hyper, and the same on the fast
/// path, with every request cut in two after each number of bytes in `cuts`, and byte by byte.
pub async fn check_http1_conversation(
    requests: &[Vec<u8>],
    cuts: impl Iterator<Item = usize>,
    provider: fn() -> Arc<dyn Provider>,
) -> String {
    let bytes = requests.concat();
    let serve = async |pieces: &[&[u8]], plain_requests| {
        let providers = || vec![provider()];
        without_random_values(exchange_with(service(false, providers), pieces, plain_requests).await)
    };
    let expected = serve(&[&bytes], PlainRequests::Hyper).await;
    for cut in cuts {
        let answers = serve(&cut_requests(requests, &bytes, cut), PlainRequests::FastPath).await;
        assert_eq!(answers, expected, "each request cut at {cut}: {}", bytes.escape_ascii());
    }
    let answers = serve(&bytes.chunks(1).collect::<Vec<_>>(), PlainRequests::FastPath).await;
    assert_eq!(answers, expected, "byte by byte: {}", bytes.escape_ascii());
    expected
}

/// The pieces of `bytes`, which are the requests, where each of them is cut after so many bytes, if it is longer.
fn cut_requests<'b>(requests: &[Vec<u8>], bytes: &'b [u8], cut: usize) -> Vec<&'b [u8]> {
    let (mut pieces, mut start, mut request_start) = (Vec::new(), 0, 0);
    for request in requests {
        if cut < request.len() {
            pieces.push(&bytes[start..request_start + cut]);
            start = request_start + cut;
        }
        request_start += request.len();
    }
    pieces.push(&bytes[start..]);
    pieces
}

/// What a client with access sends.
const TOKEN: &str = "a-token-of-the-test";

/// No answer takes longer: by then all calls have ended or timed out, and a stream of events has shown what it is.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(100);

async fn exchange(pieces: &[&[u8]], requires_token: bool, plain_requests: PlainRequests) -> String {
    // One server reads the heads of requests, so that its heads are checked each time; the other does not.
    let mut reads_request_heads = true;
    let providers = || {
        reads_request_heads = !reads_request_heads;
        let providers: Vec<Arc<dyn Provider>> =
            vec![Arc::new(EchoProvider { reads_request_heads }), Arc::new(ScriptedProvider::default())];
        providers
    };
    exchange_with(service(requires_token, providers), pieces, plain_requests).await
}

async fn exchange_with(service: HttpService, pieces: &[&[u8]], plain_requests: PlainRequests) -> String {
    let stream = ScriptedStream::new(pieces);
    let serving = fuzzing::serve_http1(Arc::new(service), stream.clone(), plain_requests);
    // How a connection fails is not part of the answer.
    let _ = tokio::time::timeout(EXCHANGE_TIMEOUT, serving).await;
    without_dates(&stream.output())
}

/// `providers` are those of the main server, then those of the other.
fn service(requires_token: bool, mut providers: impl FnMut() -> Vec<Arc<dyn Provider>>) -> HttpService {
    let tokens = requires_token.then(|| AccessTokens::single(TOKEN));
    let guard = Guard { tokens, allowed_origins: vec!["https://app.example".into()], ..Guard::default() };
    let mut server = |name: &str| {
        let config = Config::new(name, "1", Limits::default(), Arc::new(FakePlatform::new(1)));
        Server::new(config, providers())
    };
    HttpService {
        servers: vec![server("main"), server("echo")],
        guard,
        connection_limits: ConnectionLimits::default(),
        tls: None,
        http_sse: true,
        failed_servers: Vec::new(),
        page: None,
        has_main_server: true,
        directory: None,
        admin: None,
    }
}

fn without_dates(output: &[u8]) -> String {
    let text = output.escape_ascii().to_string();
    let lines = text.split(r"\r\n").filter(|line| !line.starts_with("date: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Tasks run beside their connection and take random numbers, so what else is random depends on when they run.
fn without_random_values(output: String) -> String {
    let without = |output: String, key: &str| {
        let mut parts = output.split(key);
        let first = parts.next().unwrap_or_default();
        let is_random = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let rest = parts.map(|part| part.trim_start_matches(is_random));
        std::iter::once(first).chain(rest).collect::<Vec<_>>().join(key)
    };
    [r#"taskId\":\""#, r#"requestState\":\""#].into_iter().fold(output, without)
}

/// A tool that returns its arguments and the headers of the request.
struct EchoProvider {
    reads_request_heads: bool,
}

impl Provider for EchoProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = Json::parse(r#"{"type":"object","properties":{"n":{"x-mcp-header":"Number"}}}"#);
        Arc::new(Catalog {
            tools: vec![Tool::new("echo", "Returns the request", schema.expect("JSON"))],
            reads_request_heads: self.reads_request_heads,
            ..Catalog::default()
        })
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let arguments = call.arguments().map(|arguments| arguments.raw().to_owned());
        let mut headers: Vec<(&str, &str)> =
            cx.request_head.map(|head| head.headers().collect()).unwrap_or_default();
        // hyper groups repeated headers.
        headers.sort_by_key(|(name, _)| *name);
        let text = format!("{arguments:?} {headers:?} {:?}", cx.caller.principal.display_name());
        Run::Now(Outcome::from(ToolResult::text(text)))
    }
}

/// A connection whose client sends prepared pieces and then stops sending.
#[derive(Clone)]
struct ScriptedStream(Arc<Mutex<StreamState>>);

struct StreamState {
    pieces: VecDeque<Vec<u8>>,
    output: Vec<u8>,
    /// Whether the next read finds nothing yet.
    is_between_pieces: bool,
}

impl ScriptedStream {
    fn new(pieces: &[&[u8]]) -> Self {
        let pieces = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| piece.to_vec()).collect();
        Self(Arc::new(Mutex::new(StreamState { pieces, output: Vec::new(), is_between_pieces: false })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut StreamState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn output(&self) -> Vec<u8> {
        self.with(|state| state.output.clone())
    }
}

impl AsyncRead for ScriptedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|state| {
            // A server must not rely on the next piece being there.
            if std::mem::take(&mut state.is_between_pieces) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(mut piece) = state.pieces.pop_front() else { return Poll::Ready(Ok(())) };
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if rest.is_empty() {
                state.is_between_pieces = true;
            } else {
                state.pieces.push_front(rest);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for ScriptedStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|state| state.output.extend_from_slice(bytes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
