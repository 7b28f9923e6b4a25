//! HTTP+SSE, the transport of the oldest protocol version.
//!
//! A GET opens the stream; its first event names the URL for POST; everything that the server sends is an event.

use std::sync::Arc;
use std::time::Duration;

use outbound::{Client, ConnectFailure, Response};
use url::Url;
use wire::client::{Action, ClientError, HttpResponse};
use wire::frame::{SseDecoder, SseEvent};

use super::http::root_cause;
use super::retry_after::retry_after_ms;
use crate::connection::{ConnectionOptions, ConnectionShared, OpenError};
use crate::trace::{Direction, TraceEvent};

/// How much of a refusal is read, and for how long. It says why, in a few words.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server may take to send the `endpoint` event.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct SseTransport {
    client: Client,
    stream: Response,
    events: SseDecoder,
    /// Events that arrived right after the first one.
    buffered_events: Vec<SseEvent>,
    endpoint: Url,
}

pub(crate) async fn open(
    client: Client,
    url: &Url,
    options: &ConnectionOptions,
) -> Result<SseTransport, OpenError> {
    let connect_error = |reason: String| OpenError::Connect {
        address: url.to_string(),
        reason,
        failure: ConnectFailure::Other,
    };
    let failed = |error: outbound::Error| OpenError::Connect {
        address: url.to_string(),
        reason: root_cause(&error),
        failure: ConnectFailure::classify(&error),
    };
    let send = async || {
        let mut request = client.get(url.clone()).header("Accept", "text/event-stream");
        for (name, value) in options.request_headers("GET", url) {
            request = request.header(name, value);
        }
        request.send().await.map_err(failed)
    };
    let opening = async {
        let mut stream = send().await?;
        if options.current_token().is_some_and(|token| token.take_nonce(&stream)) {
            stream = send().await?;
        }
        let kind = stream.headers().get("content-type").map(|kind| kind.as_bytes().to_ascii_lowercase());
        if let status @ (401 | 403) = stream.status().as_u16() {
            let challenge = stream.headers().get("www-authenticate");
            let challenge = challenge.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            return Err(OpenError::Failed(ClientError::Unauthorized { status, challenge }));
        }
        let status = stream.status().as_u16();
        // The manager decides by the status whether and when to try again. Redirects are not followed.
        if !stream.status().is_success() {
            let text = "no event stream".to_owned();
            let retry_after_ms = retry_after_ms(stream.headers());
            return Err(OpenError::Failed(ClientError::HttpStatus { status, text, retry_after_ms }));
        }
        if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            return Err(connect_error(format!("HTTP {status} without an event stream")));
        }
        let mut events = SseDecoder::new(options.message_bytes_max);
        let mut buffered_events = Vec::new();
        loop {
            let chunk = stream.chunk().await.map_err(failed)?;
            let Some(chunk) = chunk else {
                return Err(connect_error("the stream ended before its first event".into()));
            };
            if events.push(&chunk, |event| buffered_events.push(event)).is_err() {
                return Err(connect_error("an event exceeds the size limit".to_owned()));
            }
            if let Some(at) = buffered_events.iter().position(|event| event.event_type == "endpoint") {
                let first = buffered_events.remove(at);
                buffered_events.drain(..at);
                let endpoint = String::from_utf8_lossy(&first.data).into_owned();
                return Ok((stream, events, buffered_events, endpoint));
            }
        }
    };
    let timeout = Duration::from_millis(options.client_options.handshake_timeout_ms).min(ENDPOINT_TIMEOUT);
    let endpoint_event = tokio::time::timeout(timeout, opening).await;
    let (stream, events, buffered_events, endpoint) =
        endpoint_event.map_err(|_| connect_error("the server sent no `endpoint` event".to_owned()))??;
    let endpoint = url
        .join(endpoint.trim())
        .map_err(|error| connect_error(format!("the `endpoint` URL is invalid: {error}")))?;
    // Messages may carry a token: they must not go to another origin.
    if endpoint.origin() != url.origin() {
        return Err(connect_error(format!(
            "the server names an endpoint at another origin, {}",
            endpoint.origin().ascii_serialization()
        )));
    }
    Ok(SseTransport { client, stream, events, buffered_events, endpoint })
}

impl SseTransport {
    pub(crate) async fn drive(self, shared: Arc<ConnectionShared>) {
        let Self { client, mut stream, mut events, buffered_events, endpoint } = self;
        let sending = run_sender(shared.clone(), client, endpoint);
        let receiving = async {
            for event in buffered_events {
                handle_event(&shared, event);
            }
            loop {
                match stream.chunk().await {
                    Ok(Some(chunk)) => {
                        shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &chunk });
                        let mut complete_events = Vec::new();
                        if events.push(&chunk, |event| complete_events.push(event)).is_err() {
                            break "an event exceeds the size limit".to_owned();
                        }
                        for event in complete_events {
                            handle_event(&shared, event);
                        }
                    }
                    Ok(None) => break "the server closed its stream".to_owned(),
                    Err(error) => break format!("the stream failed: {}", root_cause(&error)),
                }
            }
        };
        let reason = tokio::select! {
            reason = receiving => reason,
            reason = sending => reason,
        };
        shared.with_client(|client, _| client.connection_closed(&reason));
    }
}

fn handle_event(shared: &Arc<ConnectionShared>, event: SseEvent) {
    if event.is_message() && !event.data.is_empty() {
        shared.record(TraceEvent::Message { direction: Direction::In, message: &event.data, exchange: None });
        shared.with_client(|client, now| client.receive(event.data, None, now));
    }
}

async fn read_refusal(mut response: Response) -> HttpResponse {
    let challenge = response.headers().get("www-authenticate");
    let www_authenticate = challenge.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let retry_after_ms = retry_after_ms(response.headers());
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await
            && body.len() < REFUSAL_BYTES_MAX
        {
            body.extend_from_slice(&chunk[..chunk.len().min(REFUSAL_BYTES_MAX - body.len())]);
        }
    };
    // The status alone says enough.
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, reading).await;
    HttpResponse { status, body, www_authenticate, retry_after_ms }
}

/// Sends one message at a time: their order matters.
async fn run_sender(shared: Arc<ConnectionShared>, client: Client, endpoint: Url) -> String {
    while let Some(action) = shared.next_action().await {
        let Action::Send(send) = action else { continue };
        shared.record(TraceEvent::Message { direction: Direction::Out, message: &send.body, exchange: None });
        shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: &send.body });
        let post = async |body: Vec<u8>| {
            let mut request = client.post(endpoint.clone()).header("Content-Type", "application/json");
            for (name, value) in shared.options.request_headers("POST", &endpoint) {
                request = request.header(name, value);
            }
            request.body(body).send().await
        };
        let bound = shared.options.current_token().filter(|token| token.is_bound());
        let again = bound.map(|token| (token, send.body.clone()));
        let exchange = send.exchange;
        let mut sent = post(send.body).await;
        if let (Ok(response), Some((token, body))) = (&sent, again)
            && token.take_nonce(response)
        {
            sent = post(body).await;
        }
        match sent {
            Ok(response) if response.status().is_success() => {}
            // It does not know the session.
            Ok(response) if response.status().as_u16() == 404 => {
                return "the server refused a message: HTTP 404".to_owned();
            }
            // No event answers what the server did not take.
            Ok(response) => {
                let refusal = read_refusal(response).await;
                shared.with_client(|client, now| client.http_response(exchange, refusal, now));
            }
            Err(error) => return format!("cannot send a message: {}", root_cause(&error)),
        }
    }
    "the connection was closed".to_owned()
}
