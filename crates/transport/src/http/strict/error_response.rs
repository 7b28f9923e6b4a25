//! Gives hyper's own error responses a JSON-RPC body.
//!
//! When hyper cannot parse a request head, it answers 400, 414 or 431 itself, with an empty body, and closes. It has
//! no hook for that, so this module recognizes such a response on its way out and replaces it. Responses of this
//! server with these statuses always have a body, so they are never mistaken for hyper's.

use std::io::IoSlice;

use wire::error::{ErrorCode, RpcError};

const PREFIX: &[u8] = b"HTTP/1.1 4";
const EMPTY_BODY: &[u8] = b"content-length: 0\r\n";

/// The bytes to send instead of hyper's, and how many of them are written.
pub(super) struct ReplacedResponse {
    pub(super) bytes: Vec<u8>,
    pub(super) written: usize,
}

/// The replacement, if `slices` are the start of a response and exactly an error response of hyper.
#[inline]
pub(super) fn replace(slices: &[IoSlice<'_>]) -> Option<ReplacedResponse> {
    let head = slices.iter().find(|slice| !slice.is_empty())?;
    if head.starts_with(PREFIX) { replace_head(head, slices) } else { None }
}

#[cold]
fn replace_head(head: &[u8], slices: &[IoSlice<'_>]) -> Option<ReplacedResponse> {
    let is_alone = slices.iter().map(|slice| slice.len()).sum::<usize>() == head.len();
    let (status, reason) = match head.get(9..12)? {
        b"400" => (400, "the request is not valid HTTP/1.1"),
        b"414" => (414, "the request target is too long"),
        b"431" => (431, "the request head exceeds the limit of 16384 bytes or 100 headers"),
        _ => return None,
    };
    let at = memchr::memmem::find(head, EMPTY_BODY).filter(|_| is_alone && head.ends_with(b"\r\n\r\n"))?;
    tracing::info!(status, reason, "refused request");
    let error = RpcError::new(ErrorCode::InvalidRequest, status, reason);
    let body = host::early_error_response(&error, None).body;
    let fields = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let bytes = [&head[..at], fields.as_bytes(), &head[at + EMPTY_BODY.len()..], &body].concat();
    Some(ReplacedResponse { bytes, written: 0 })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::replace;

    #[test]
    fn only_empty_error_responses_are_replaced() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let replaced = replace(&[IoSlice::new(bare.as_bytes())]).expect("it is replaced");
        let text = String::from_utf8(replaced.bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 ") && head.ends_with("date: x"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("\"jsonrpc\":\"2.0\"") && body.contains("16384"), "{body}");
        for other in [
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 4",
            "",
        ] {
            assert!(replace(&[IoSlice::new(other.as_bytes())]).is_none(), "{other}");
        }
        assert!(replace(&[IoSlice::new(bare.as_bytes()), IoSlice::new(b"more")]).is_none());
    }
}
