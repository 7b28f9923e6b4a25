//! In which form a client wants its answer.

use http::header;
use wire::HeaderField;

use crate::request_headers::RequestHeaders;

/// What may be answered. At least one of the two is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedTypes {
    pub(crate) json: bool,
    pub(crate) stream: bool,
}

impl AcceptedTypes {
    const BOTH: Self = Self { json: true, stream: true };

    /// `None` if neither form will do: 406. `?stream=1` asks for a stream whatever the header says.
    #[inline]
    pub(crate) fn from_request(seen: &RequestHeaders<'_>, query: Option<&str>) -> Option<Self> {
        let header = Self::from_header(seen);
        if query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=1")) {
            return Some(Self { json: false, stream: true });
        }
        header
    }

    #[inline]
    fn from_header(seen: &RequestHeaders<'_>) -> Option<Self> {
        match seen.accept {
            HeaderField::Absent => return Some(Self::BOTH),
            HeaderField::Single(b"application/json, text/event-stream") => return Some(Self::BOTH),
            HeaderField::Single(_) | HeaderField::Repeated => {}
        }
        let mut accepts = Self { json: false, stream: false };
        for value in seen.map.get_all(header::ACCEPT) {
            for range in value.as_bytes().split(|c| *c == b',') {
                accepts.add_media_range(range);
            }
        }
        (accepts.json || accepts.stream).then_some(accepts)
    }

    fn add_media_range(&mut self, range: &[u8]) {
        let mut parts = range.split(|c| *c == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        if parts.any(has_zero_weight) {
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
fn has_zero_weight(parameter: &[u8]) -> bool {
    let Some(weight) = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q=")) else {
        return false;
    };
    weight.first() == Some(&b'0') && weight[1..].iter().all(|c| matches!(c, b'.' | b'0'))
}

/// Whether a body is JSON as it must be: one header, the type, and no other character set than UTF-8.
#[inline]
pub(crate) fn is_json_content_type(content_type: HeaderField<'_>) -> bool {
    let HeaderField::Single(value) = content_type else { return false };
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
pub(crate) fn is_unencoded(seen: &RequestHeaders<'_>) -> bool {
    let plain = |coding: HeaderField<'_>, name: &[u8]| match coding {
        HeaderField::Absent => true,
        HeaderField::Single(value) => value.eq_ignore_ascii_case(name),
        HeaderField::Repeated => false,
    };
    plain(seen.content_encoding, b"identity") && plain(seen.transfer_encoding, b"chunked")
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

    use super::{AcceptedTypes, is_json_content_type};
    use crate::request_headers::RequestHeaders;

    fn header_map(name: HeaderName, values: &[&str]) -> HeaderMap {
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
            let got = AcceptedTypes::from_request(&RequestHeaders::new(&header_map(ACCEPT, values)), query)
                .map(|a| (a.json, a.stream));
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
            assert_eq!(
                is_json_content_type(RequestHeaders::new(&header_map(CONTENT_TYPE, values)).content_type),
                expected,
                "{values:?}"
            );
        }
    }
}
