//! Heads in the plain syntax that nearly all clients use. Every other head is for hyper.

use std::ops::Range;

use spile_core::text::is_token_byte;

use crate::http::strict::{BodyFraming, HeadScan, RequestHead, length_digits_max};
use crate::request_headers::{HeaderLines, HeaderSpan};

/// A longer head is for hyper.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;

/// A head with more headers is for hyper, which has a limit for them.
const HEADERS_MAX: usize = 48;

/// The head of a POST request in plain syntax, with a length.
#[derive(Debug)]
pub(super) struct PlainHead<'b> {
    /// The whole head, with the empty line.
    pub(super) bytes: &'b [u8],
    /// Only unreserved characters and slashes.
    pub(super) path: &'b str,
    pub(super) fields: Vec<HeaderSpan>,
    /// The digits of `Content-Length`.
    pub(super) length_digits: Range<usize>,
    /// How many digits the strict reader would accept on that line.
    pub(super) length_digits_max: usize,
    pub(super) body_bytes: usize,
}

impl<'b> PlainHead<'b> {
    /// Reads a head that is complete and plain; `None` for every other.
    ///
    /// Where the head ends and how long the body is, the strict reader decides. On top of what it accepts, this function
    /// requires what hyper and the guards would not change: a POST in HTTP/1.1 of a path without a query, header names
    /// of token characters directly before the colon, values of visible ASCII, spaces and tabs, and no header that makes
    /// the connection anything but a sequence of requests.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let scanned = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        if !scanned.starts_with(b"POST /") {
            return None;
        }
        let mut reader = RequestHead::START;
        let HeadScan::Complete { bytes: end, framing: BodyFraming::Length(body_bytes) } =
            reader.scan(scanned)
        else {
            return None;
        };
        let head = &bytes[..end];
        let mut lines = Lines { head, offset: 0 };
        let target = lines.next()?.strip_prefix(b"POST ")?.strip_suffix(b" HTTP/1.1")?;
        let path = std::str::from_utf8(target).ok().filter(|path| path.bytes().all(is_plain_path_byte))?;
        let (mut fields, mut length) = (Vec::with_capacity(16), None);
        loop {
            let start = lines.offset;
            let line = lines.next()?;
            if line.is_empty() {
                break;
            }
            if fields.len() == HEADERS_MAX {
                return None;
            }
            let field = parse_header(line, start)?;
            let (name, value) = split(head, &field);
            if name.eq_ignore_ascii_case(b"content-length") {
                let digits = usize::from(field.value.start)..usize::from(field.value.end);
                let digits_max = length_digits_max(line.len() + "\r".len(), digits.len());
                length = Some((digits, digits_max));
            } else if !is_harmless(name, value) {
                return None;
            }
            fields.push(field);
        }
        // All bytes of the head are accounted for: the two ways to find its end agree.
        if lines.offset != end {
            return None;
        }
        let (length_digits, length_digits_max) = length?;
        let body_bytes = usize::try_from(body_bytes).ok()?;
        Some(Self { bytes: head, path, fields, length_digits, length_digits_max, body_bytes })
    }

    pub(super) fn headers(&self) -> HeaderLines<'_> {
        HeaderLines::new(self.bytes, &self.fields)
    }
}

/// The lines of a head without their line breaks.
struct Lines<'b> {
    head: &'b [u8],
    offset: usize,
}

impl<'b> Lines<'b> {
    fn next(&mut self) -> Option<&'b [u8]> {
        let rest = &self.head[self.offset..];
        let line = &rest[..memchr::memchr(b'\n', rest)?];
        self.offset += line.len() + 1;
        line.strip_suffix(b"\r")
    }
}

/// `name: value`, where `line` starts at `offset` in its head.
fn parse_header(line: &[u8], offset: usize) -> Option<HeaderSpan> {
    let name_bytes = line.iter().position(|byte| !is_token_byte(*byte))?;
    let (name, rest) = line.split_at(name_bytes);
    let value = rest.strip_prefix(b":")?;
    if name.is_empty() || !value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return None;
    }
    let place = |index: usize| u16::try_from(offset + index).ok();
    let start = line.len() - value.trim_ascii_start().len();
    // A value of whitespace alone ends where it starts.
    let end = start + value.trim_ascii().len();
    Some(HeaderSpan { name: place(0)?..place(name_bytes)?, value: place(start)?..place(end)? })
}

fn split<'b>(head: &'b [u8], field: &HeaderSpan) -> (&'b [u8], &'b [u8]) {
    let slice = |range: &Range<u16>| &head[usize::from(range.start)..usize::from(range.end)];
    (slice(&field.name), slice(&field.value))
}

/// Whether a header leaves the connection a sequence of requests, each answered once. The strict reader has already
/// excluded `Transfer-Encoding` and `Upgrade`, which change the framing.
fn is_harmless(name: &[u8], value: &[u8]) -> bool {
    match name.len() {
        6 => !name.eq_ignore_ascii_case(b"expect"),
        7 => !name.eq_ignore_ascii_case(b"upgrade"),
        10 => !name.eq_ignore_ascii_case(b"connection") || value.eq_ignore_ascii_case(b"keep-alive"),
        17 => !name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => true,
    }
}

/// RFC 3986, 2.3, and the slash.
fn is_plain_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::PlainHead;

    const LINES: &str = "Host: a\r\nContent-Type: application/json\r\n";

    type Headers = Vec<(String, String)>;

    /// The path, the length and the headers, if the head is plain.
    fn parse(head: &str) -> Option<(String, usize, Headers)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
        let head = PlainHead::parse(head.as_bytes())?;
        let headers = head.headers().iter().map(|(name, value)| (text(name), text(value))).collect();
        assert_eq!(text(&head.bytes[head.length_digits.clone()]).parse(), Ok(head.body_bytes));
        Some((head.path.to_owned(), head.body_bytes, headers))
    }

    #[test]
    fn a_plain_head_is_split_into_its_headers() {
        let (path, length, headers) =
            parse("POST /mcp/a.b-c_d~ HTTP/1.1\r\nhost:a\r\nX!#$%&'*+-.^_`|~9:\t b \t\r\nE:\r\nCONTENT-length:  17 \r\n\r\n{}")
                .expect("it is plain");
        assert_eq!((&*path, length), ("/mcp/a.b-c_d~", 17));
        let expected = [("host", "a"), ("X!#$%&'*+-.^_`|~9", "b"), ("E", ""), ("CONTENT-length", "17")];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(headers, expected);
    }

    #[test]
    fn harmless_headers_are_plain_in_any_number_below_the_limit() {
        for lines in [
            "",
            "Connection: Keep-Alive\r\n",
            "TE: trailers\r\n",
            "Keep-Alive: 5\r\n",
            &"X: y\r\n".repeat(40),
        ] {
            assert!(
                parse(&format!("POST /mcp HTTP/1.1\r\n{LINES}{lines}Content-Length: 1\r\n\r\n")).is_some(),
                "{lines}"
            );
        }
    }

    #[test]
    fn everything_else_is_for_hyper() {
        let complete = format!("POST /mcp HTTP/1.1\r\n{LINES}Content-Length: 2\r\n\r\n");
        assert!(parse(&complete).is_some());
        for cut in 0..complete.len() {
            assert!(parse(&complete[..cut]).is_none(), "cut at {cut}");
        }
        for line in [
            "GET /mcp HTTP/1.1",
            "post /mcp HTTP/1.1",
            "POST  /mcp HTTP/1.1",
            "POST /mcp  HTTP/1.1",
            "POST /mcp HTTP/1.0",
            "POST /mcp HTTP/1.2",
            "POST /mcp http/1.1",
            "POST /mcp HTTP/1.1 ",
            "POST mcp HTTP/1.1",
            "POST * HTTP/1.1",
            "POST http://a/mcp HTTP/1.1",
            "POST /mcp?stream=1 HTTP/1.1",
            "POST /mcp#a HTTP/1.1",
            "POST /mc%70 HTTP/1.1",
            "POST /mcp\u{e9} HTTP/1.1",
            "POST /mcp\t HTTP/1.1",
            "\r\nPOST /mcp HTTP/1.1",
        ] {
            assert!(parse(&format!("{line}\r\n{LINES}Content-Length: 2\r\n\r\n")).is_none(), "{line:?}");
        }
        for lines in [
            "",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: +2\r\n",
            "Content-Length: 2, 2\r\n",
            "Content-Length: 0x2\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length : 2\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 2\r\nConnection: close\r\n",
            "Content-Length: 2\r\nConnection: keep-alive, close\r\n",
            "Content-Length: 2\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
            "Content-Length: 2\r\nUpgrade: h2c\r\n",
            "Content-Length: 2\r\nExpect: 100-continue\r\n",
            "Content-Length: 2\r\nX: y\r\n z\r\n",
            "Content-Length: 2\r\n X: y\r\n",
            "Content-Length: 2\r\nX : y\r\n",
            "Content-Length: 2\r\n: y\r\n",
            "Content-Length: 2\r\nX\r\n",
            "Content-Length: 2\r\nX: \u{e9}\r\n",
            "Content-Length: 2\r\nX: a\0\r\n",
            "Content-Length: 2\r\nX: a\x7f\r\n",
            "Content-Length: 2\r\nX: a\rb\r\n",
            "Content-Length: 2\r\nX: a\r\r\n",
            "Content-Length: 2\nX: y\r\n",
            "Content-Length: 2\r\nX: y\n",
        ] {
            assert!(parse(&format!("POST /mcp HTTP/1.1\r\n{LINES}{lines}\r\n")).is_none(), "{lines:?}");
        }
        for filler in ["X: y\r\n".repeat(48), format!("X: {}\r\n", "y".repeat(8192))] {
            assert!(parse(&format!("POST /mcp HTTP/1.1\r\n{filler}Content-Length: 2\r\n\r\n")).is_none());
        }
    }
}
