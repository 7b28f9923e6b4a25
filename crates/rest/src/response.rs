//! Reads responses: strict JSON, pointers into it, and what a status means.

use contract::source::{SourceError, WriteError};
use json::{Doc, Json, Node, NodeKind, ParseLimits};
use spile_core::text::is_unsafe_to_display;

use crate::client::HttpResponse;

const LIMITS: ParseLimits = ParseLimits { depth_max: 64, values_max: 5_000_000 };
/// So much of an API's own message reaches callers.
const REASON_CHARS_MAX: usize = 300;

/// Parses a whole response. A byte order mark before it does not matter.
pub(crate) fn parse(mut body: Vec<u8>) -> Result<Doc, SourceError> {
    if body.starts_with(b"\xef\xbb\xbf") {
        body.drain(..3);
    }
    let what = other_format(&body);
    json::parse(body, &LIMITS).map_err(|error| {
        let detail = format!("{:?} at byte {}", error.kind, error.offset);
        incompatible(
            match what {
                Some(what) => format!("the API returned {what} instead of JSON"),
                None => "the API returned something that is not valid JSON".to_owned(),
            },
            detail,
        )
    })
}

/// Whether a text is a page for browsers: of a proxy, of a login, of an error with the status 200.
pub(crate) fn is_html(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    let begins_with = |tag: &[u8]| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    begins_with(b"<!doctype html") || begins_with(b"<html")
}

/// What a response is that is not JSON, if that is plain to see.
fn other_format(body: &[u8]) -> Option<&'static str> {
    let text = body.trim_ascii_start();
    match (text, text.get(..2)) {
        ([], _) => Some("nothing"),
        (_, Some(b"\xff\xfe" | b"\xfe\xff" | [b'{' | b'[', 0] | [0, b'{' | b'['])) => Some("text in UTF-16"),
        _ if is_html(text) => Some("HTML"),
        ([b'<', ..], _) => Some("XML"),
        // One document in each line.
        _ => {
            let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
            let is_json = |line: &[u8]| line.starts_with(b"{") && json::parse(line.to_vec(), &LIMITS).is_ok();
            match (lines.next(), lines.next()) {
                (Some(first), Some(_)) if is_json(first) => Some("JSON Lines (`format = \"jsonl\"`)"),
                _ => None,
            }
        }
    }
}

/// The error of a change that the API accepted, and whose response cannot be used. `problem` is a clause.
pub(crate) fn accepted(status: u16, problem: &str, detail: String) -> WriteError {
    let message = format!("the API accepted the request (status {status}), but {problem}");
    WriteError::ResultUnreadable { message, detail }
}

pub(crate) fn incompatible(message: impl Into<String>, detail: impl Into<String>) -> SourceError {
    SourceError::Incompatible { message: message.into(), detail: detail.into() }
}

/// The value at a JSON pointer (RFC 6901).
pub(crate) fn pointer<'d>(root: Node<'d>, pointer: &str) -> Option<Node<'d>> {
    let mut node = root;
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        node = match node.kind() {
            NodeKind::Object => node.get(&name)?,
            NodeKind::Array => node.elements().nth(name.parse().ok()?)?,
            _ => return None,
        };
    }
    Some(node)
}

/// A text or a number as text; `None` if there is no value.
pub(crate) fn scalar_text(node: Node<'_>) -> Option<String> {
    match node.kind() {
        NodeKind::String => node.str().map(|text| text.into_owned()).filter(|text| !text.is_empty()),
        NodeKind::Null | NodeKind::Object | NodeKind::Array => None,
        _ => Some(node.raw().to_owned()).filter(|text| text != "false" && text != "true"),
    }
}

/// Why a response is not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotFound,
    Conflict(String),
    PreconditionFailed,
    /// The credentials are not accepted, or do not allow this.
    Denied(u16),
    TooMany {
        retry_after_ms: u64,
    },
    /// The request is at fault. A clause for the caller.
    Invalid(String),
    /// The API failed, and may have done something.
    Failed(u16),
    Unexpected(u16),
}

/// What the status of a response means; `None` if it succeeded.
pub(crate) fn refusal(response: &HttpResponse, error_pointer: Option<&str>) -> Option<Refusal> {
    let status = response.status;
    let clause = |what: &str| match error_pointer.and_then(|pointer| error_text(response, pointer)) {
        Some(text) => format!("the API {what}: {text}"),
        None => format!("the API {what} (status {status})"),
    };
    Some(match status {
        200..=299 => return None,
        404 | 410 => Refusal::NotFound,
        // Whoever gave up waiting may have passed on a part of it.
        408 => Refusal::Failed(status),
        409 => Refusal::Conflict(clause("reports a conflict")),
        412 => Refusal::PreconditionFailed,
        401 | 403 | 407 => Refusal::Denied(status),
        429 => Refusal::TooMany { retry_after_ms: response.retry_after_ms.unwrap_or(1_000) },
        400..=499 => Refusal::Invalid(clause("refused the request")),
        500..=599 => Refusal::Failed(status),
        _ => Refusal::Unexpected(status),
    })
}

/// The API's own words, cut, without characters that could hide something.
fn error_text(response: &HttpResponse, at: &str) -> Option<String> {
    let doc = json::parse(response.body.clone(), &LIMITS).ok()?;
    let text = scalar_text(pointer(doc.root(), at)?)?;
    let plain: String =
        text.chars().map(|c| if is_unsafe_to_display(c) || c.is_control() { ' ' } else { c }).collect();
    let cut: String = plain.chars().take(REASON_CHARS_MAX).collect();
    Some(if cut.len() < plain.len() { format!("{cut}…") } else { cut })
}

impl Refusal {
    /// For a request that only reads.
    pub(crate) fn into_source_error(self) -> SourceError {
        match self {
            Self::NotFound => incompatible("the API has no such endpoint (status 404)", "status 404"),
            Self::PreconditionFailed => {
                incompatible("the API refused the request (status 412)", "status 412")
            }
            Self::Conflict(reason) | Self::Invalid(reason) => incompatible(reason.clone(), reason),
            Self::Denied(status) => SourceError::Refused {
                message: format!("the API does not allow this (status {status})"),
                detail: format!("status {status}: check the credentials of the source"),
            },
            Self::TooMany { retry_after_ms } => SourceError::Overloaded { retry_after_ms },
            Self::Failed(status) => SourceError::Unavailable {
                message: format!("the API failed (status {status}); try again later"),
                detail: format!("status {status}"),
            },
            Self::Unexpected(status) => incompatible(
                format!("the API answered with the unexpected status {status}"),
                match status {
                    300..=399 => {
                        "a redirect that is not followed; write the final address as `url`".to_owned()
                    }
                    _ => format!("status {status}"),
                },
            ),
        }
    }

    /// For a request that changes something. `is_repeatable`: whether sending it again is harmless. Only a plain refusal says that
    /// nothing happened.
    /// `may_be_repeated`: whether an earlier attempt may have done already what this one was refused for.
    pub(crate) fn into_write_error(self, is_repeatable: bool, may_be_repeated: bool) -> WriteError {
        match self {
            Self::NotFound
            | Self::PreconditionFailed
            | Self::Conflict(_)
            | Self::Invalid(_)
            | Self::Denied(_)
                if may_be_repeated =>
            {
                WriteError::OutcomeUnknown
            }
            Self::NotFound => WriteError::NotFound,
            Self::PreconditionFailed => WriteError::VersionConflict,
            Self::Conflict(reason) | Self::Invalid(reason) => WriteError::Rejected { column: None, reason },
            // A gateway may say so after the API has done it; and 303 is what many say when it is done.
            Self::Failed(_) | Self::Unexpected(_) if !is_repeatable => WriteError::OutcomeUnknown,
            other => WriteError::Source(other.into_source_error()),
        }
    }
}

/// A JSON object at a pointer, as text; `None` if the response has none.
pub(crate) fn object_at(body: &[u8], at: &str) -> Result<Option<Json>, SourceError> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let doc = parse(body.to_vec())?;
    let found = pointer(doc.root(), at).filter(Node::is_object);
    Ok(found.and_then(|node| Json::parse(node.raw()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_members_and_items() {
        let doc = parse(br#"{"data":{"a/b":[1,{"c~d":"x"}]},"n":null}"#.to_vec()).expect("JSON");
        for (at, expected) in [
            ("", Some(r#"{"data":{"a/b":[1,{"c~d":"x"}]},"n":null}"#)),
            ("/data/a~1b/0", Some("1")),
            ("/data/a~1b/1/c~0d", Some("\"x\"")),
            ("/n", Some("null")),
            ("/data/a~1b/2", None),
            ("/data/a~1b/x", None),
            ("/n/a", None),
            ("/nothing", None),
        ] {
            assert_eq!(pointer(doc.root(), at).map(|node| node.raw()), expected, "{at}");
        }
    }

    #[test]
    fn what_is_not_json_is_named() {
        for (body, expected) in [
            (&b""[..], "returned nothing instead"),
            (b" \n", "returned nothing instead"),
            (b"\xef\xbb\xbf<!DOCTYPE html><p>", "returned HTML instead"),
            (b"\n<html lang=en>", "returned HTML instead"),
            (b"<?xml version='1.0'?>", "returned XML instead"),
            (b"\xff\xfe[\0]\0", "returned text in UTF-16 instead"),
            (b"[\0]\0", "returned text in UTF-16 instead"),
            (b"{\"a\":1}\n{\"a\":2}\n", "returned JSON Lines"),
            (b"{\"a\":1}\nx", "returned JSON Lines"),
            (b"{\"a\":", "is not valid JSON"),
            (b"{\"a\":1,\"a\":2}", "is not valid JSON"),
        ] {
            let error = parse(body.to_vec()).map(drop).expect_err(expected).to_string();
            assert!(error.contains(expected), "{body:?}: {error}");
        }
        assert!(parse(b"\xef\xbb\xbf{}".to_vec()).is_ok());
    }

    #[test]
    fn callers_read_the_words_of_an_api_only_where_the_author_allows_it() {
        let response =
            |status, body: &str| HttpResponse { status, body: body.into(), ..HttpResponse::default() };
        let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(400));
        for (status, body, at, expected) in [
            (200, "", None, None),
            (204, "", None, None),
            (404, "", None, Some(Refusal::NotFound)),
            (403, "", None, Some(Refusal::Denied(403))),
            (500, "secret", Some("/error/message"), Some(Refusal::Failed(500))),
            (422, "secret", None, Some(Refusal::Invalid("the API refused the request (status 422)".into()))),
            (
                422,
                "secret",
                Some("/error/message"),
                Some(Refusal::Invalid("the API refused the request (status 422)".into())),
            ),
            (
                422,
                "{\"error\":{\"message\":\"no\\u001b[31m stock\"}}",
                Some("/error/message"),
                Some(Refusal::Invalid("the API refused the request: no [31m stock".into())),
            ),
            (408, "", None, Some(Refusal::Failed(408))),
            (429, "", None, Some(Refusal::TooMany { retry_after_ms: 1000 })),
            (302, "", None, Some(Refusal::Unexpected(302))),
        ] {
            assert_eq!(refusal(&response(status, body), at), expected, "{status} {body}");
        }
        let Some(Refusal::Invalid(reason)) = refusal(&response(400, &long), Some("/error/message")) else {
            panic!("a refusal");
        };
        assert!(reason.chars().count() < 350 && reason.ends_with('…'), "{reason}");
    }
}
