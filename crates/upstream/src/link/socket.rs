//! WebSocket: one text message is one message.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;
use wire::client::{Do, Failure};

use super::Ending;
use crate::connection::{OpenError, Options, Shared};
use crate::trace::{Direction, Seen};

pub(crate) type Socket = WebSocketStream<outbound::Stream>;

/// Our subprotocol, as the official clients name it.
const PROTOCOL: &str = "mcp";

/// How long the other side may take to say goodbye.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection that says nothing is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(30);

pub(crate) async fn open(url: &Url, options: &Options) -> Result<Socket, OpenError> {
    let bad = |why: String| OpenError::Connect { at: url.to_string(), why };
    let mut request = url.as_str().into_client_request().map_err(|error| bad(error.to_string()))?;
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(PROTOCOL));
    for (name, value) in &options.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| bad(error.to_string()))?;
        let value = HeaderValue::from_str(value).map_err(|error| bad(error.to_string()))?;
        request.headers_mut().append(name, value);
    }
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(options.frame_bytes_max);
    config.max_frame_size = Some(options.frame_bytes_max);
    config.max_write_buffer_size = options.frame_bytes_max * 2 + (1 << 20);
    let stream = outbound::connect(url, &options.outbound).await?;
    let patience = Duration::from_millis(options.outbound.connect_timeout_ms);
    let shaking = client_async_with_config(request, stream, Some(config));
    let shaken = tokio::time::timeout(patience, shaking).await;
    let (socket, _) = shaken
        .map_err(|_| {
            let after_ms = options.outbound.connect_timeout_ms;
            OpenError::Refused(Failure::Timeout { after_ms, unreadable: None })
        })?
        .map_err(|error| match error {
            Error::Http(response) => OpenError::Refused(refused(&response)),
            error => bad(error.to_string()),
        })?;
    Ok(socket)
}

/// An answer that is no WebSocket.
fn refused(response: &Response<Option<Vec<u8>>>) -> Failure {
    let challenge = response.headers().get("www-authenticate");
    let challenge = challenge.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match response.status().as_u16() {
        status @ (401 | 403) => Failure::Unauthorized { status, challenge },
        status => Failure::Status { status, text: "no WebSocket".to_owned() },
    }
}

pub(crate) fn drive(
    shared: Arc<Shared>,
    socket: Socket,
) -> (impl Future<Output = ()> + Send + 'static, Ending) {
    let (close, closing) = oneshot::channel();
    let (gone, closed) = oneshot::channel();
    let work = async move {
        carry(shared, socket, closing).await;
        let _ = gone.send(());
    };
    let ending = Box::pin(async move {
        drop(close);
        let _ = tokio::time::timeout(LAST_WORDS, closed).await;
    });
    (work, ending)
}

/// What there is to say before the connection is let go.
enum Last {
    Nothing,
    /// RFC 6455, 5.5.1: a Close is answered with a Close. The library has it ready.
    Answer,
    /// 7.1.7: whoever breaks off says why.
    Complaint(CloseCode),
}

impl Last {
    fn about(error: &Error) -> Self {
        match error {
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Nothing,
            Error::Protocol(_) => Self::Complaint(CloseCode::Protocol),
            Error::Utf8(_) => Self::Complaint(CloseCode::Invalid),
            Error::Capacity(_) => Self::Complaint(CloseCode::Size),
            _ => Self::Nothing,
        }
    }

    async fn say(self, socket: &mut Socket) {
        match self {
            Self::Nothing => return,
            Self::Answer => {
                let _ = socket.flush().await;
            }
            Self::Complaint(code) => {
                let _ = socket.close(Some(CloseFrame { code, reason: "".into() })).await;
            }
        }
        // 7.1.1: it is the server that closes. A socket that is closed over unread bytes is reset, and the server
        // may lose what it was told last.
        let _ = tokio::io::copy(socket.get_mut(), &mut tokio::io::sink()).await;
    }
}

async fn carry(shared: Arc<Shared>, socket: Socket, mut closing: oneshot::Receiver<()>) {
    let (mut sink, mut stream) = socket.split();
    let mut is_asked = false;
    let (why, last) = loop {
        tokio::select! {
            biased;
            _ = &mut closing, if shared.is_carried() => {
                let bye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                let _ = sink.send(Message::Close(Some(bye))).await;
                // What is still said is read until the other side has closed too.
                let goodbye = async { while let Some(Ok(_)) = stream.next().await {} };
                let _ = tokio::time::timeout(LAST_WORDS, goodbye).await;
                break ("the connection was closed".to_owned(), Last::Nothing);
            }
            todo = shared.todo() => {
                let Some(todo) = todo else { break ("the connection was closed".to_owned(), Last::Nothing) };
                let Do::Send(send) = todo else { continue };
                shared.saw(Seen::Frame { direction: Direction::Out, message: &send.body, exchange: None });
                shared.saw(Seen::Bytes { direction: Direction::Out, bytes: &send.body });
                let text = String::from_utf8(send.body).expect("what we write is UTF-8");
                if let Err(error) = sink.send(Message::text(text)).await {
                    break (format!("the server cannot be written to: {error}"), Last::Nothing);
                }
            }
            message = tokio::time::timeout(QUIET, stream.next()) => {
                let Ok(message) = message else {
                    if is_asked || sink.send(Message::Ping("spile".into())).await.is_err() {
                        break ("the server does not answer any more".to_owned(), Last::Nothing);
                    }
                    is_asked = true;
                    continue;
                };
                is_asked = false;
                match message {
                    Some(Ok(Message::Text(text))) => {
                        let message = text.as_bytes();
                        shared.saw(Seen::Bytes { direction: Direction::In, bytes: message });
                        shared.saw(Seen::Frame { direction: Direction::In, message, exchange: None });
                        let message = message.to_vec();
                        shared.with(|client, now| client.receive(message, None, now));
                    }
                    Some(Ok(Message::Binary(_))) => {
                        shared.with(|client, _| client.passed_over("a binary message"));
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(frame))) => {
                        let said = frame.filter(|frame| !frame.reason.is_empty());
                        let why = match said {
                            Some(frame) => format!("the server closed the connection: {}", frame.reason),
                            None => "the server closed the connection".to_owned(),
                        };
                        break (why, Last::Answer);
                    }
                    Some(Err(error)) => {
                        break (format!("the connection broke off: {error}"), Last::about(&error));
                    }
                    None => break ("the server closed the connection".to_owned(), Last::Nothing),
                }
            }
        }
    };
    shared.with(|client, _| client.closed(&why));
    if let Ok(mut socket) = sink.reunite(stream) {
        let _ = tokio::time::timeout(LAST_WORDS, last.say(&mut socket)).await;
    }
}
