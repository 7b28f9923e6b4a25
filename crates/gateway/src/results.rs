//! How a call to another server ended, for its caller.

use servers::manager::ServerCallError;
use servers::oauth::Challenge;
use spile_core::{CallError, CallTarget, ClientCapabilities, ItemKind, Outcome, ToolError, ToolErrorCode};
use wire::client::{ClientError, ServerError};
use wire::error::ErrorCode;
use wire::{Version, read_capabilities};

use crate::connections::NoConnection;

/// How soon a caller may try again when all connections are in use.
const RETRY_MS: u64 = 1000;

/// More scopes than this are shown to nobody.
const SCOPES_BYTES_MAX: usize = 500;

/// What failed, and on which side.
pub(crate) fn failed(server: &str, target: CallTarget, name: &str, error: ServerCallError) -> Outcome {
    match error {
        ServerCallError::Client(ClientError::Server(error)) => server_error(target, name, error),
        ServerCallError::Client(ClientError::Cancelled) => CallError::Cancelled.into(),
        ServerCallError::Client(ClientError::Busy) => CallError::Busy { retry_after_ms: RETRY_MS }.into(),
        ServerCallError::Client(ClientError::InputRefused(reason)) => {
            unavailable(target, ToolErrorCode::InputRefused, false, reason)
        }
        // The host's own error would say that the call can be repeated, and not who is slow.
        ServerCallError::Timeout { .. } if target == CallTarget::Tool => {
            let message = format!("{error}, and may have been executed");
            unavailable(target, ToolErrorCode::Timeout, false, message)
        }
        ServerCallError::TooLong { .. } if target == CallTarget::Tool => {
            let message = format!("{error}; it may have been executed");
            unavailable(target, ToolErrorCode::Timeout, false, message)
        }
        ServerCallError::Timeout { after_ms, .. } | ServerCallError::TooLong { after_ms, .. } => {
            CallError::Timeout { after_ms }.into()
        }
        ServerCallError::NeedsAuth { ref server } => {
            let message = format!("{error}: run `spile login {server}`");
            unavailable(target, ToolErrorCode::Forbidden, false, message)
        }
        ServerCallError::NeedsScope { ref server, ref challenge } => {
            let missing = missing_scopes(challenge.as_deref());
            let message = match missing {
                Some(scopes) => {
                    format!(
                        "{error}: it needs the scopes `{scopes}`; run `spile login {server} --oauth-scope '{scopes}'`"
                    )
                }
                None => error.to_string(),
            };
            unavailable(target, ToolErrorCode::Forbidden, false, message)
        }
        ServerCallError::Disabled { .. } => {
            unavailable(target, ToolErrorCode::Forbidden, false, error.to_string())
        }
        // The call may have run: whether to repeat it is the caller's decision.
        ServerCallError::Lost { .. } => {
            unavailable(target, ToolErrorCode::SourceUnavailable, false, error.to_string())
        }
        ServerCallError::UnknownTool(_)
        | ServerCallError::UnknownServer(_)
        | ServerCallError::Unavailable { .. }
        | ServerCallError::QueueFull { .. }
        | ServerCallError::WaitTimeout { .. }
        | ServerCallError::NotSent { .. } => {
            unavailable(target, ToolErrorCode::SourceUnavailable, true, error.to_string())
        }
        ServerCallError::Client(error) => {
            // Of anything else the server may have run the call before.
            let is_refused = matches!(error, ClientError::HttpStatus { status: 425 | 429 | 503, .. });
            let message = format!("server `{server}`: {error}");
            match (target, error) {
                (CallTarget::Tool, ClientError::HttpStatus { retry_after_ms, .. }) if is_refused => {
                    let error = ToolError::new(ToolErrorCode::SourceUnavailable, message);
                    ToolError { retryable: true, retry_after_ms, ..error }.into()
                }
                _ => unavailable(target, ToolErrorCode::SourceUnavailable, is_refused, message),
            }
        }
    }
}

/// The scopes that the server names, if they are safe in a command that a person copies.
fn missing_scopes(challenge: Option<&str>) -> Option<String> {
    let challenge = Challenge::parse(challenge?).filter(Challenge::is_insufficient_scope)?;
    let scopes = challenge.scopes?.join(" ");
    let is_safe = |c: char| c.is_ascii_alphanumeric() || " :._/~+=@,*-".contains(c);
    let is_usable = !scopes.is_empty() && scopes.len() <= SCOPES_BYTES_MAX && scopes.chars().all(is_safe);
    is_usable.then_some(scopes)
}

pub(crate) fn no_connection(server: &str, target: CallTarget, name: &str, error: NoConnection) -> Outcome {
    match error {
        NoConnection::Server(error) => failed(server, target, name, error),
        NoConnection::TooMany { max, of } => {
            let message = format!("all {max} connections that {of} may have to servers are in use");
            unavailable(target, ToolErrorCode::RateLimited, true, message)
        }
    }
}

/// The server's own error, as it is.
fn server_error(target: CallTarget, name: &str, error: ServerError) -> Outcome {
    let data = error.data.as_ref().map(json::Json::to_doc);
    // Older versions have no code for it; servers that say what is missing do so in the same way.
    let required = data.as_ref().and_then(|data| data.root().get("requiredCapabilities"));
    if let Some(required) = required.filter(json::Node::is_object) {
        return CallError::MissingCapability(read_capabilities(required, Version::NEWEST)).into();
    }
    match (target, error.code) {
        (_, code) if code == ErrorCode::MissingCapability.number() => {
            CallError::MissingCapability(ClientCapabilities::NONE).into()
        }
        // Versions have different codes for it; the host writes the one of the caller's version.
        (CallTarget::Resource, code) if code == ErrorCode::ResourceNotFound.number() => {
            CallError::UnknownItem { kind: ItemKind::Resource, name: name.to_owned() }.into()
        }
        _ => CallError::Provider { code: error.code, message: error.message, data: error.data }.into(),
    }
}

/// A tool's caller gets data; the other kinds of calls have only JSON-RPC errors.
pub(crate) fn unavailable(
    target: CallTarget,
    code: ToolErrorCode,
    retryable: bool,
    message: String,
) -> Outcome {
    match target {
        CallTarget::Tool => {
            let retry_after_ms = (code == ToolErrorCode::RateLimited).then_some(RETRY_MS);
            ToolError { retryable, retry_after_ms, ..ToolError::new(code, message) }.into()
        }
        CallTarget::Prompt | CallTarget::Resource | CallTarget::Completion { .. } => internal_error(message),
    }
}

/// The server, or the way to it, is at fault.
pub(crate) fn internal_error(message: String) -> Outcome {
    CallError::Provider { code: ErrorCode::InternalError.number(), message, data: None }.into()
}
