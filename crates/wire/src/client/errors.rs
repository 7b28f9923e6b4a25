//! Errors of the client. Each is a variant, so that callers need not match texts.

use std::fmt;

use json::JsonError;

use super::{HttpResponse, ServerError};
use crate::method::Method;
use crate::version::Version;

/// Why a call has no result.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The server returned an error.
    Server(ServerError),
    /// The server requires authentication (401) or denies access (403).
    Unauthorized {
        status: u16,
        challenge: Option<String>,
    },
    /// Any other HTTP status, with the start of the body.
    HttpStatus {
        status: u16,
        text: String,
        /// When to try again, if the server says so (`Retry-After`).
        retry_after_ms: Option<u64>,
    },
    /// The server's message does not follow the protocol.
    ProtocolViolation(ProtocolViolation),
    /// Client and server have no protocol version in common, or the version lacks the method.
    UnsupportedVersion(VersionMismatch),
    /// No response in time. On a pipe an unreadable message cannot be matched with a call, so the error mentions it.
    Timeout {
        after_ms: u64,
        unreadable: Option<String>,
    },
    /// The connection or the stream closed before the response.
    ConnectionClosed(CloseReason),
    Cancelled,
    /// The application refused an input request of the call.
    InputRefused(String),
    /// The limit of pending calls or open input requests is reached.
    Busy,
}

/// How a server's message violates the protocol.
#[derive(Debug, Clone)]
pub enum ProtocolViolation {
    /// The response is not valid JSON.
    UnreadableResponse {
        error: JsonError,
        excerpt: String,
    },
    /// The HTTP response does not contain the response to the request.
    MissingResponse,
    /// The HTTP response to a request has no body.
    EmptyBody {
        status: u16,
    },
    ResponseTooLarge {
        bytes_max: usize,
    },
    ResultNotObject,
    UnknownResultType(String),
    /// The result is of another kind than the call's method has.
    WrongResult {
        expected: &'static str,
    },
    /// The result of a list method has no array under `key`.
    MissingList {
        method: Method,
        key: &'static str,
    },
    /// A list returned the same cursor twice.
    RepeatedCursor {
        key: &'static str,
    },
    /// A list exceeds the limits of pages, items or bytes.
    ListTooLong {
        key: &'static str,
        items: usize,
        pages: usize,
    },
    InvalidInputRequired(InputRequiredError),
    TooManyRounds {
        max: u32,
    },
}

/// Why an `input_required` result is invalid.
#[derive(Debug, Clone)]
pub enum InputRequiredError {
    MethodWithoutInput,
    /// Neither `inputRequests` nor `requestState`.
    Empty,
    /// The client did not declare the capability for this method.
    UndeclaredCapability {
        method: String,
    },
    TooManyRequests,
}

/// Why no protocol version fits.
#[derive(Debug, Clone)]
pub enum VersionMismatch {
    /// The versions that the server names; none is allowed here.
    NoCommonVersion {
        supported: Vec<String>,
    },
    /// The server supports only versions with a handshake; the client does not allow these.
    HandshakeOnly {
        allowed: Option<Version>,
    },
    /// The server rejected `initialize`.
    NoHandshake(ServerError),
    MethodNotInVersion {
        method: Method,
        version: Version,
    },
}

/// Why a connection closed.
#[derive(Debug, Clone)]
pub enum CloseReason {
    /// The call was made after the connection closed.
    AlreadyClosed,
    /// The server could not be reached, so it has no part of the call. The driver says why.
    NotSent(String),
    /// The server sends requests but does not read the responses.
    ServerNotReading,
    /// The event stream ended before the response.
    StreamEnded,
    /// The transport closed or failed, as the driver describes it.
    Transport {
        message: String,
        /// The last error of the server that belongs to no request.
        last_error: Option<ServerError>,
    },
}

impl From<String> for CloseReason {
    fn from(message: String) -> Self {
        Self::Transport { message, last_error: None }
    }
}

impl From<&str> for CloseReason {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

/// The first characters of a message, for an error text.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const CHARS: usize = 80;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS)]);
    let mut excerpt: String = text.chars().take(CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > CHARS || bytes.len() > 4 * CHARS {
        excerpt.push('…');
    }
    excerpt
}

impl ClientError {
    pub(super) fn from_http_response(response: &HttpResponse) -> Self {
        match response.status {
            status @ (401 | 403) => {
                Self::Unauthorized { status, challenge: response.www_authenticate.clone() }
            }
            status => Self::HttpStatus {
                status,
                text: excerpt(&response.body),
                retry_after_ms: response.retry_after_ms,
            },
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Unauthorized { status: 401, .. } => {
                f.write_str("the server requires authentication (HTTP 401)")
            }
            Self::Unauthorized { status, .. } => write!(f, "the server denies access (HTTP {status})"),
            Self::HttpStatus { status: status @ 300..400, .. } => {
                write!(f, "HTTP {status}: redirects are not followed; use the address that this one leads to")
            }
            Self::HttpStatus { status, text, .. } if text.is_empty() => write!(f, "HTTP {status}"),
            Self::HttpStatus { status, text, .. } => write!(f, "HTTP {status}: {text}"),
            Self::ProtocolViolation(violation) => violation.fmt(f),
            Self::UnsupportedVersion(mismatch) => mismatch.fmt(f),
            Self::ConnectionClosed(reason) => reason.fmt(f),
            Self::InputRefused(reason) => f.write_str(reason),
            Self::Timeout { after_ms, unreadable } => {
                write!(f, "no response within {after_ms} ms")?;
                let Some(excerpt) = unreadable else { return Ok(()) };
                write!(f, "; the server sent an unreadable message: {excerpt}")
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::Busy => f.write_str("too many pending calls"),
        }
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnreadableResponse { error, excerpt } => {
                write!(f, "the response is not readable: {error}: `{excerpt}`")
            }
            Self::MissingResponse => {
                f.write_str("the HTTP response does not contain the response to the request")
            }
            Self::EmptyBody { status } => write!(f, "HTTP {status} without a body, in response to a request"),
            Self::ResponseTooLarge { bytes_max } => {
                write!(f, "the response exceeds the limit of {bytes_max} bytes")
            }
            Self::ResultNotObject => f.write_str("the result is not an object"),
            Self::UnknownResultType(kind) => write!(f, "unknown `resultType`: `{kind}`"),
            Self::WrongResult { expected } => write!(f, "the result is not {expected}"),
            Self::MissingList { method, key } => {
                write!(f, "the result of `{}` has no array `{key}`", method.as_str())
            }
            Self::RepeatedCursor { key } => {
                write!(f, "the list of {key} does not end: the server returned the same cursor twice")
            }
            Self::ListTooLong { key, items, pages } => {
                write!(f, "the list of {key} exceeds the limit: {items} items on {pages} pages so far")
            }
            Self::InvalidInputRequired(error) => write!(f, "invalid `input_required` result: {error}"),
            Self::TooManyRounds { max } => write!(f, "the call exceeds the limit of {max} rounds of input"),
        }
    }
}

impl fmt::Display for InputRequiredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MethodWithoutInput => f.write_str("this method does not support input requests"),
            Self::Empty => f.write_str("it has neither `inputRequests` nor `requestState`"),
            Self::UndeclaredCapability { method } => {
                write!(f, "this client did not declare a capability for `{method}`")
            }
            Self::TooManyRequests => f.write_str("too many input requests"),
        }
    }
}

impl fmt::Display for VersionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommonVersion { supported } => match &**supported {
                [] => f.write_str("the server names no protocol version"),
                [only] => {
                    write!(
                        f,
                        "the server supports only protocol version {only}, which this client does not allow"
                    )
                }
                several => write!(
                    f,
                    "the server supports only protocol versions {}, none of which this client allows",
                    several.join(", ")
                ),
            },
            Self::HandshakeOnly { allowed } => write!(
                f,
                "the server supports only versions with a handshake; this client allows only {}",
                allowed.map_or("a newer version", Version::as_str)
            ),
            Self::NoHandshake(error) => write!(f, "the server does not support `initialize`: {error}"),
            Self::MethodNotInVersion { method, version } => {
                write!(f, "protocol {} has no `{}`", version.as_str(), method.as_str())
            }
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyClosed => f.write_str("the connection is closed"),
            Self::NotSent(message) => f.write_str(message),
            Self::ServerNotReading => f.write_str("the server does not read its messages"),
            Self::StreamEnded => f.write_str("the stream ended before the response"),
            Self::Transport { message, last_error: None } => f.write_str(message),
            Self::Transport { message, last_error: Some(error) } => {
                write!(f, "{message}; its last error: {error}")
            }
        }
    }
}
