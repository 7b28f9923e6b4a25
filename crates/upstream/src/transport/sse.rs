//! HTTP with a stream of events beside it, the transport of the oldest protocol version.
//!
//! A GET opens the stream; its first event names where to POST to; whatever the server says comes down the stream.

use std::sync::Arc;
use std::time::Duration;

use outbound::{Client, ConnectFailure, Response};
use url::Url;
use wire::client::Action;
use wire::frame::{SseDecoder, SseEvent};

use super::http::root_cause;
use crate::connection::{ConnectionShared, OpenError, Options};
use crate::trace::{Direction, TraceEvent};

/// How long a server may take to say where to POST to.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct SseTransport {
    client: Client,
    stream: Response,
    events: SseDecoder,
    /// What came behind the first event already.
    buffered_events: Vec<SseEvent>,
    endpoint: Url,
    headers: Vec<(String, String)>,
}

pub(crate) async fn open(client: Client, url: &Url, options: &Options) -> Result<SseTransport, OpenError> {
    let bad = |reason: String| OpenError::Connect {
        address: url.to_string(),
        reason,
        failure: ConnectFailure::Other,
    };
    let failed = |error: outbound::Error| OpenError::Connect {
        address: url.to_string(),
        reason: root_cause(&error),
        failure: ConnectFailure::classify(&error),
    };
    let mut request = client.get(url.clone()).header("Accept", "text/event-stream");
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    let opening = async {
        let mut stream = request.send().await.map_err(failed)?;
        let kind = stream.headers().get("content-type").map(|kind| kind.as_bytes().to_ascii_lowercase());
        if !stream.status().is_success() || !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            return Err(bad(format!("HTTP {} and no stream of events", stream.status().as_u16())));
        }
        let mut events = SseDecoder::new(options.frame_bytes_max);
        let mut early = Vec::new();
        loop {
            let chunk = stream.chunk().await.map_err(failed)?;
            let Some(chunk) = chunk else {
                return Err(bad("the stream ended before its first event".into()));
            };
            if events.push(&chunk, |event| early.push(event)).is_err() {
                return Err(bad("an event that is too long".to_owned()));
            }
            if let Some(at) = early.iter().position(|event| event.event_type == "endpoint") {
                let first = early.remove(at);
                early.drain(..at);
                let endpoint = String::from_utf8_lossy(&first.data).into_owned();
                return Ok((stream, events, early, endpoint));
            }
        }
    };
    let opened = tokio::time::timeout(ENDPOINT_TIMEOUT, opening).await;
    let (stream, events, early, endpoint) =
        opened.map_err(|_| bad("no `endpoint` event came".to_owned()))??;
    let endpoint = url.join(endpoint.trim()).map_err(|error| bad(format!("a bad endpoint: {error}")))?;
    // Whoever may choose where our messages go may choose who reads them.
    if endpoint.origin() != url.origin() {
        return Err(bad(format!(
            "the server wants messages sent to another place, {}",
            endpoint.origin().ascii_serialization()
        )));
    }
    let headers = options.headers.clone();
    Ok(SseTransport { client, stream, events, buffered_events: early, endpoint, headers })
}

impl SseTransport {
    pub(crate) async fn drive(self, shared: Arc<ConnectionShared>) {
        let Self { client, mut stream, mut events, buffered_events: early, endpoint, headers } = self;
        let sending = run_sender(shared.clone(), client, endpoint, headers);
        let receiving = async {
            for event in early {
                handle_event(&shared, event);
            }
            loop {
                match stream.chunk().await {
                    Ok(Some(chunk)) => {
                        shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &chunk });
                        let mut whole = Vec::new();
                        if events.push(&chunk, |event| whole.push(event)).is_err() {
                            break "an event that is too long".to_owned();
                        }
                        for event in whole {
                            handle_event(&shared, event);
                        }
                    }
                    Ok(None) => break "the server closed its stream".to_owned(),
                    Err(error) => break format!("the stream broke off: {}", root_cause(&error)),
                }
            }
        };
        let why = tokio::select! {
            why = receiving => why,
            why = sending => why,
        };
        shared.with_client(|client, _| client.connection_closed(&why));
    }
}

fn handle_event(shared: &Arc<ConnectionShared>, event: SseEvent) {
    if event.is_message() && !event.data.is_empty() {
        shared.record(TraceEvent::Message { direction: Direction::In, message: &event.data, exchange: None });
        shared.with_client(|client, now| client.receive(event.data, None, now));
    }
}

/// One after the other: the order is part of the meaning.
async fn run_sender(
    shared: Arc<ConnectionShared>,
    client: Client,
    endpoint: Url,
    headers: Vec<(String, String)>,
) -> String {
    while let Some(todo) = shared.next_action().await {
        let Action::Send(send) = todo else { continue };
        shared.record(TraceEvent::Message { direction: Direction::Out, message: &send.body, exchange: None });
        shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: &send.body });
        let mut request = client.post(endpoint.clone()).header("Content-Type", "application/json");
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        match request.body(send.body).send().await {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => {
                let why = format!("a message was not taken: HTTP {}", response.status().as_u16());
                if response.status().as_u16() == 404 {
                    return why;
                }
                shared.with_client(|client, _| client.message_skipped(&why));
            }
            Err(error) => return format!("a message could not be sent: {}", root_cause(&error)),
        }
    }
    "the connection was closed".to_owned()
}
