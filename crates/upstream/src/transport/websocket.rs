//! WebSocket: each text message is one MCP message.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use outbound::ConnectFailure;
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;
use wire::client::{Action, ClientError};

use super::CloseFuture;
use super::retry_after::retry_after_ms;
use crate::connection::{ConnectionOptions, ConnectionShared, OpenError};
use crate::trace::{Direction, TraceEvent};

pub(crate) type WebSocketConnection = WebSocketStream<outbound::Stream>;

/// The subprotocol of the official clients.
const SUBPROTOCOL: &str = "mcp";

/// How long the server may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// After this much silence the client sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) async fn open(url: &Url, options: &ConnectionOptions) -> Result<WebSocketConnection, OpenError> {
    let connect_error = |reason: String| OpenError::Connect {
        address: url.to_string(),
        reason,
        failure: ConnectFailure::Other,
    };
    let mut request = url.as_str().into_client_request().map_err(|error| connect_error(error.to_string()))?;
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(SUBPROTOCOL));
    for (name, value) in &options.request_headers("GET", url) {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|error| connect_error(error.to_string()))?;
        let value = HeaderValue::from_str(value).map_err(|error| connect_error(error.to_string()))?;
        request.headers_mut().append(name, value);
    }
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(options.message_bytes_max);
    config.max_frame_size = Some(options.message_bytes_max);
    config.max_write_buffer_size = options.message_bytes_max * 2 + (1 << 20);
    let stream = outbound::connect(url, &options.outbound).await?;
    let connect_timeout = Duration::from_millis(options.outbound.connect_timeout_ms);
    let handshake = client_async_with_config(request, stream, Some(config));
    let outcome = tokio::time::timeout(connect_timeout, handshake).await;
    let (socket, _) = outcome
        .map_err(|_| {
            let after_ms = options.outbound.connect_timeout_ms;
            OpenError::Failed(ClientError::Timeout { after_ms, unreadable: None })
        })?
        .map_err(|error| match error {
            Error::Http(response) => OpenError::Failed(upgrade_failure(&response)),
            error => connect_error(error.to_string()),
        })?;
    Ok(socket)
}

/// The error for a response that is not an upgrade.
fn upgrade_failure(response: &Response<Option<Vec<u8>>>) -> ClientError {
    let challenge = response.headers().get("www-authenticate");
    let challenge = challenge.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match response.status().as_u16() {
        status @ (401 | 403) => ClientError::Unauthorized { status, challenge },
        status => ClientError::HttpStatus {
            status,
            text: "not a WebSocket".to_owned(),
            retry_after_ms: retry_after_ms(response.headers()),
        },
    }
}

pub(crate) fn drive(
    shared: Arc<ConnectionShared>,
    socket: WebSocketConnection,
) -> (impl Future<Output = ()> + Send + 'static, CloseFuture) {
    let (close, closing) = oneshot::channel();
    let (closed_sender, closed) = oneshot::channel();
    let work = async move {
        run(shared, socket, closing).await;
        let _ = closed_sender.send(());
    };
    let ending = Box::pin(async move {
        drop(close);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    });
    (work, ending)
}

/// What to send before the connection is dropped.
enum CloseAction {
    Skip,
    /// RFC 6455, 5.5.1: a Close is answered with a Close. tungstenite has queued it.
    Reply,
    /// 7.1.7: an endpoint that fails the connection sends a status code.
    SendError(CloseCode),
}

impl CloseAction {
    fn for_error(error: &Error) -> Self {
        match error {
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Skip,
            Error::Protocol(_) => Self::SendError(CloseCode::Protocol),
            Error::Utf8(_) => Self::SendError(CloseCode::Invalid),
            Error::Capacity(_) => Self::SendError(CloseCode::Size),
            _ => Self::Skip,
        }
    }

    async fn perform(self, socket: &mut WebSocketConnection) {
        match self {
            Self::Skip => return,
            Self::Reply => {
                let _ = socket.flush().await;
            }
            Self::SendError(code) => {
                let _ = socket.close(Some(CloseFrame { code, reason: "".into() })).await;
            }
        }
        // 7.1.1: the server closes the socket. Closing it with unread bytes would reset it, and the server might
        // lose the last messages.
        let _ = tokio::io::copy(socket.get_mut(), &mut tokio::io::sink()).await;
    }
}

async fn run(shared: Arc<ConnectionShared>, socket: WebSocketConnection, mut closing: oneshot::Receiver<()>) {
    let (mut sink, mut stream) = socket.split();
    let mut ping_sent = false;
    let (reason, close_action) = loop {
        tokio::select! {
            biased;
            _ = &mut closing, if shared.is_all_sent() => {
                let close_frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                let _ = sink.send(Message::Close(Some(close_frame))).await;
                // Read until the server has closed too.
                let drain = async { while let Some(Ok(_)) = stream.next().await {} };
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, drain).await;
                break ("the connection was closed".to_owned(), CloseAction::Skip);
            }
            action = shared.next_action() => {
                let Some(action) = action else { break ("the connection was closed".to_owned(), CloseAction::Skip) };
                let Action::Send(send) = action else { continue };
                shared.record(TraceEvent::Message { direction: Direction::Out, message: &send.body, exchange: None });
                shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: &send.body });
                let text = String::from_utf8(send.body).expect("JSON that we write is UTF-8");
                if let Err(error) = sink.send(Message::text(text)).await {
                    break (format!("cannot write to the server: {error}"), CloseAction::Skip);
                }
            }
            message = tokio::time::timeout(PING_INTERVAL, stream.next()) => {
                let Ok(message) = message else {
                    if ping_sent || sink.send(Message::Ping("spile".into())).await.is_err() {
                        break ("the server does not answer pings".to_owned(), CloseAction::Skip);
                    }
                    ping_sent = true;
                    continue;
                };
                ping_sent = false;
                match message {
                    Some(Ok(Message::Text(text))) => {
                        let message = text.as_bytes();
                        shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: message });
                        shared.record(TraceEvent::Message { direction: Direction::In, message, exchange: None });
                        let message = message.to_vec();
                        shared.with_client(|client, now| client.receive(message, None, now));
                    }
                    Some(Ok(Message::Binary(_))) => {
                        shared.with_client(|client, _| client.message_skipped("a binary message"));
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(frame))) => {
                        let close_frame = frame.filter(|frame| !frame.reason.is_empty());
                        let reason = match close_frame {
                            Some(frame) => format!("the server closed the connection: {}", frame.reason),
                            None => "the server closed the connection".to_owned(),
                        };
                        break (reason, CloseAction::Reply);
                    }
                    Some(Err(error)) => {
                        break (format!("the connection failed: {error}"), CloseAction::for_error(&error));
                    }
                    None => break ("the server closed the connection".to_owned(), CloseAction::Skip),
                }
            }
        }
    };
    shared.with_client(|client, _| client.connection_closed(&reason));
    if let Ok(mut socket) = sink.reunite(stream) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, close_action.perform(&mut socket)).await;
    }
}
