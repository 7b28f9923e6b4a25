//! Finds the request that a message answers, if the message cannot be read: it is not valid JSON, or exceeds a limit.
//!
//! Without this, the request would wait for its timeout. Looks only at the members before the first and after the last
//! object or array of the message, where clients and servers write the id.

use super::CallId;
use super::state_machine::Client;
use super::types::TransportKind;

impl Client {
    /// Remembers an unreadable message: it may have been the response to a pending call.
    pub(super) fn record_unreadable(&mut self, excerpt: &str) {
        if self.transport == TransportKind::Pipe {
            self.last_unreadable = Some((self.next_message_id, excerpt.to_owned()));
        }
    }

    /// The last unreadable message since a call was sent.
    pub(super) fn unreadable_since(&self, call_id: CallId) -> Option<String> {
        let sent = self.pending_calls.get(&call_id)?.message_id?;
        let (next_id, excerpt) = self.last_unreadable.as_ref()?;
        (sent < *next_id).then(|| excerpt.clone())
    }
}

/// The id is searched among this many bytes at the start and at the end.
const SEARCHED_BYTES_MAX: usize = 160;

/// The numeric id of a response; `None` for a request, a notification, or where it is not found.
pub(super) fn response_id(message: &[u8]) -> Option<u64> {
    let message = message.trim_ascii();
    let inner = message.strip_prefix(b"{")?;
    let head = &inner[..inner.len().min(SEARCHED_BYTES_MAX)];
    let is_nested = |byte: &u8| matches!(byte, b'{' | b'[' | b'}' | b']');
    let head = &head[..head.iter().position(is_nested).unwrap_or(head.len())];
    if find(head, b"\"method\"").is_some() {
        return None;
    }
    let from_tail = || {
        let inner = message.strip_suffix(b"}")?;
        let tail = &inner[inner.len().saturating_sub(SEARCHED_BYTES_MAX)..];
        let tail = &tail[tail.iter().rposition(is_nested)? + 1..];
        id_member(tail).filter(|_| find(tail, b"\"method\"").is_none())
    };
    id_member(head).or_else(from_tail)
}

/// The value of `"id": 7`.
fn id_member(members: &[u8]) -> Option<u64> {
    let at = find(members, b"\"id\"")?;
    let value = members[at + 4..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::response_id;

    #[test]
    fn the_id_is_found_before_or_after_the_result() {
        for (message, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"#, Some(7)),
            (r#"  {"jsonrpc": "2.0", "id" : 7 , "error": {"#, Some(7)),
            (r#"{"result":{"a":[1,2]},"jsonrpc":"2.0","id":7}"#, Some(7)),
            (r#"{"id":7}"#, Some(7)),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"#, None),
            (r#"{"method":"ping","params":{},"id":7}"#, None),
            (r#"{"params":{},"id":7,"method":"ping"}"#, None),
            (r#"{"result":{"id":7"#, None),
            (r#"{"jsonrpc":"2.0","id":"a","result":{"#, None),
            (r#"{"jsonrpc":"2.0","id":99999999999999999999,"result":{"#, None),
            ("listening on port 3000", None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(response_id(message.as_bytes()), expected, "{message}");
        }
    }
}
