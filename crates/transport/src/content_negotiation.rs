//! Content negotiation: which media types the client accepts, and which bodies the server accepts.

use host::AcceptedTypes;
use wire::HeaderField;

use crate::request_headers::RequestHeaders;

/// The types that the client accepts; `None` if it accepts neither: 406. `?stream=1` requests a stream whatever the
/// header says.
#[inline]
pub(crate) fn accepted_types(headers: &RequestHeaders<'_>, query: Option<&str>) -> Option<AcceptedTypes> {
    let header = from_header(headers);
    if query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=1")) {
        return Some(AcceptedTypes::STREAM);
    }
    header
}

#[inline]
fn from_header(headers: &RequestHeaders<'_>) -> Option<AcceptedTypes> {
    match headers.accept {
        HeaderField::Absent => return Some(AcceptedTypes::BOTH),
        HeaderField::Single(b"application/json, text/event-stream") => return Some(AcceptedTypes::BOTH),
        HeaderField::Single(_) | HeaderField::Repeated => {}
    }
    let mut accepted = AcceptedTypes { json: false, stream: false };
    for value in headers.values("accept") {
        for range in value.split(|c| *c == b',') {
            add_media_range(&mut accepted, range);
        }
    }
    (accepted.json || accepted.stream).then_some(accepted)
}

fn add_media_range(accepted: &mut AcceptedTypes, range: &[u8]) {
    let mut parts = range.split(|c| *c == b';').map(<[u8]>::trim_ascii);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    if parts.any(has_zero_weight) {
        return;
    }
    match &*kind {
        b"application/json" | b"application/*" => accepted.json = true,
        b"text/event-stream" | b"text/*" => accepted.stream = true,
        b"*/*" => *accepted = AcceptedTypes::BOTH,
        _ => {}
    }
}

/// Whether the client names HTML, as browsers do. `*/*` does not: programs send it.
pub(crate) fn accepts_html(headers: &RequestHeaders<'_>) -> bool {
    headers.values("accept").flat_map(|value| value.split(|c| *c == b',')).any(|range| {
        let mut parts = range.split(|c| *c == b';').map(<[u8]>::trim_ascii);
        let is_html = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html"));
        is_html && !parts.any(has_zero_weight)
    })
}

/// `q=0`: not acceptable.
fn has_zero_weight(parameter: &[u8]) -> bool {
    let Some(weight) = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q=")) else {
        return false;
    };
    weight.first() == Some(&b'0') && weight[1..].iter().all(|c| matches!(c, b'.' | b'0'))
}

/// Whether a body is declared as JSON: one `Content-Type` header, `application/json`, no charset but UTF-8.
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

/// Whether a body has no encoding that we would have to undo. hyper removes the `chunked` transfer coding.
#[inline]
pub(crate) fn is_unencoded(headers: &RequestHeaders<'_>) -> bool {
    let plain = |coding: HeaderField<'_>, name: &[u8]| match coding {
        HeaderField::Absent => true,
        HeaderField::Single(value) => value.eq_ignore_ascii_case(name),
        HeaderField::Repeated => false,
    };
    plain(headers.content_encoding, b"identity") && plain(headers.transfer_encoding, b"chunked")
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

    use super::{accepted_types, accepts_html, is_json_content_type};
    use crate::request_headers::RequestHeaders;

    fn header_map(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_str(value).expect("a header value"));
        }
        headers
    }

    #[test]
    fn accept_header_selects_the_response_types() {
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
            let got = accepted_types(&RequestHeaders::new(&header_map(ACCEPT, values)), query)
                .map(|a| (a.json, a.stream));
            assert_eq!(got, expected, "{values:?} {query:?}");
        }
    }

    #[test]
    fn only_a_client_that_names_html_gets_it() {
        for (values, expected) in [
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"][..], true),
            (&["application/json, Text/HTML;q=0.5"], true),
            (&["text/html;q=0"], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["text/htmlx"], false),
            (&[], false),
        ] {
            assert_eq!(
                accepts_html(&RequestHeaders::new(&header_map(ACCEPT, values))),
                expected,
                "{values:?}"
            );
        }
    }

    #[test]
    fn json_content_type_allows_only_utf8() {
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
