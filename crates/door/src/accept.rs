//! In which form a client wants its answer.

use http::header;
use wire::Head;

use crate::seen::Seen;

/// What may be answered. At least one of the two is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) stream: bool,
}

impl Accepts {
    const BOTH: Self = Self { json: true, stream: true };

    /// `None` if neither form will do: 406. `?stream=1` asks for a stream whatever the header says.
    #[inline]
    pub(crate) fn read(seen: &Seen<'_>, query: Option<&str>) -> Option<Self> {
        let header = Self::of_header(seen);
        if query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=1")) {
            return Some(Self { json: false, stream: true });
        }
        header
    }

    #[inline]
    fn of_header(seen: &Seen<'_>) -> Option<Self> {
        match seen.accept {
            Head::Absent => return Some(Self::BOTH),
            Head::One(b"application/json, text/event-stream") => return Some(Self::BOTH),
            Head::One(_) | Head::Twice => {}
        }
        let mut accepts = Self { json: false, stream: false };
        for value in seen.all.get_all(header::ACCEPT) {
            for range in value.as_bytes().split(|c| *c == b',') {
                accepts.add(range);
            }
        }
        (accepts.json || accepts.stream).then_some(accepts)
    }

    fn add(&mut self, range: &[u8]) {
        let mut parts = range.split(|c| *c == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        if parts.any(is_never) {
            return;
        }
        match &*kind {
            b"application/json" | b"application/*" => self.json = true,
            b"text/event-stream" | b"text/*" => self.stream = true,
            b"*/*" => *self = Self::BOTH,
            _ => {}
        }
    }
}

/// `q=0`: not acceptable.
fn is_never(parameter: &[u8]) -> bool {
    let Some(weight) = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q=")) else {
        return false;
    };
    weight.first() == Some(&b'0') && weight[1..].iter().all(|c| matches!(c, b'.' | b'0'))
}

/// Whether a body is JSON as it must be: one header, the type, and no other character set than UTF-8.
#[inline]
pub(crate) fn is_json(content_type: Head<'_>) -> bool {
    let Head::One(value) = content_type else { return false };
    if value == b"application/json" {
        return true;
    }
    let mut parts = value.split(|c| *c == b';').map(<[u8]>::trim_ascii);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/json"));
    is_json
        && parts.all(|parameter| {
            let lower = parameter.to_ascii_lowercase();
            !lower.starts_with(b"charset=") || matches!(&lower[8..], b"utf-8" | b"\"utf-8\"")
        })
}

/// Whether a body is sent as it is. The length of chunks is a matter of the transport; all else would have to
/// be undone before the body is what the client means.
#[inline]
pub(crate) fn is_plain(seen: &Seen<'_>) -> bool {
    let plain = |coding: Head<'_>, name: &[u8]| match coding {
        Head::Absent => true,
        Head::One(value) => value.eq_ignore_ascii_case(name),
        Head::Twice => false,
    };
    plain(seen.content_encoding, b"identity") && plain(seen.transfer_encoding, b"chunked")
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

    use super::{Accepts, is_json};
    use crate::seen::Seen;

    fn heads(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut heads = HeaderMap::new();
        for value in values {
            heads.append(&name, HeaderValue::from_str(value).expect("a header value"));
        }
        heads
    }

    #[test]
    fn accept_is_read_as_clients_write_it() {
        let both = Some((true, true));
        for (values, query, expected) in [
            (&[][..], None, both),
            (&["application/json, text/event-stream"], None, both),
            (&["text/event-stream,application/json"], None, both),
            (&["application/json", "text/event-stream"], None, both),
            (&["*/*"], None, both),
            (&["application/json"], None, Some((true, false))),
            (&["Application/JSON;q=0.9"], None, Some((true, false))),
            (&["text/event-stream"], None, Some((false, true))),
            (&["text/*"], None, Some((false, true))),
            (&["application/json;q=0, text/event-stream"], None, Some((false, true))),
            (&["text/html"], None, None),
            (&[""], None, None),
            (&["application/jsonx"], None, None),
            (&["application/json"], Some("stream=1"), Some((false, true))),
            (&["application/json"], Some("a=b&stream=1"), Some((false, true))),
            (&["application/json"], Some("stream=0"), Some((true, false))),
        ] {
            let got = Accepts::read(&Seen::new(&heads(ACCEPT, values)), query).map(|a| (a.json, a.stream));
            assert_eq!(got, expected, "{values:?} {query:?}");
        }
    }

    #[test]
    fn only_json_in_utf8_is_json() {
        for (values, expected) in [
            (&["application/json"][..], true),
            (&["Application/Json; Charset=UTF-8"], true),
            (&["application/json; charset=\"utf-8\""], true),
            (&["application/json;charset=latin1"], false),
            (&["text/plain"], false),
            (&["application/x-www-form-urlencoded"], false),
            (&["application/jsonp"], false),
            (&[], false),
            (&["application/json", "application/json"], false),
            (&["application/json", "text/plain"], false),
        ] {
            assert_eq!(is_json(Seen::new(&heads(CONTENT_TYPE, values)).content_type), expected, "{values:?}");
        }
    }
}
