//! The request headers that the server uses, collected in one pass.

use std::ops::Range;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use spile_core::RequestHead;
use wire::HeaderField;

/// Each header is absent, present once, or repeated.
pub(crate) struct RequestHeaders<'h> {
    source: HeaderSource<'h>,
    pub(crate) host: HeaderField<'h>,
    pub(crate) origin: HeaderField<'h>,
    pub(crate) fetch_site: HeaderField<'h>,
    pub(crate) authorization: HeaderField<'h>,
    pub(crate) content_type: HeaderField<'h>,
    pub(crate) content_encoding: HeaderField<'h>,
    pub(crate) transfer_encoding: HeaderField<'h>,
    pub(crate) accept: HeaderField<'h>,
    pub(crate) protocol_version: HeaderField<'h>,
    pub(crate) mcp_method: HeaderField<'h>,
    pub(crate) mcp_name: HeaderField<'h>,
    pub(crate) session_id: HeaderField<'h>,
    pub(crate) last_event_id: HeaderField<'h>,
    pub(crate) upgrade: HeaderField<'h>,
}

/// All headers of a request: as hyper parsed them, or the lines of a head that the fast path has accepted.
#[derive(Clone, Copy)]
enum HeaderSource<'h> {
    Map(&'h HeaderMap),
    Lines(HeaderLines<'h>),
}

/// The header lines of a head in plain syntax, split into names and values.
#[derive(Clone, Copy)]
pub(crate) struct HeaderLines<'h> {
    head: &'h [u8],
    fields: &'h [HeaderSpan],
}

/// Where the name and the value of a header are in a head. The value is without the whitespace around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderSpan {
    pub(crate) name: Range<u16>,
    pub(crate) value: Range<u16>,
}

/// No header that the server uses has a longer name.
const KNOWN_NAME_BYTES_MAX: usize = 24;

impl<'h> HeaderLines<'h> {
    pub(crate) fn new(head: &'h [u8], fields: &'h [HeaderSpan]) -> Self {
        Self { head, fields }
    }

    #[inline]
    fn slice(self, range: &Range<u16>) -> &'h [u8] {
        self.head.get(usize::from(range.start)..usize::from(range.end)).unwrap_or_default()
    }

    /// Names and values, in the order of the lines.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'h [u8], &'h [u8])> {
        self.fields.iter().map(move |field| (self.slice(&field.name), self.slice(&field.value)))
    }

    fn values(self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        self.iter()
            .filter(move |(sent, _)| sent.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The header of this name, in any case.
    pub(crate) fn get(self, name: &str) -> HeaderField<'h> {
        field_of(self.values(name))
    }
}

fn field_of<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> HeaderField<'h> {
    match (values.next(), values.next()) {
        (None, _) => HeaderField::Absent,
        (Some(value), None) => HeaderField::Single(value),
        (Some(_), Some(_)) => HeaderField::Repeated,
    }
}

impl<'h> RequestHeaders<'h> {
    #[inline]
    pub(crate) fn new(map: &'h HeaderMap) -> Self {
        let mut headers = Self::empty(HeaderSource::Map(map));
        for (name, value) in map {
            headers.add(name.as_str(), value.as_bytes());
        }
        headers
    }

    /// The headers of a head that the fast path has accepted.
    pub(crate) fn from_lines(lines: HeaderLines<'h>) -> Self {
        let mut headers = Self::empty(HeaderSource::Lines(lines));
        for (name, value) in lines.iter() {
            let mut lower = [0; KNOWN_NAME_BYTES_MAX];
            let Some(lower) = lower.get_mut(..name.len()) else { continue };
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            if let Ok(name) = std::str::from_utf8(lower) {
                headers.add(name, value);
            }
        }
        headers
    }

    #[inline]
    fn empty(source: HeaderSource<'h>) -> Self {
        Self {
            source,
            host: HeaderField::Absent,
            origin: HeaderField::Absent,
            fetch_site: HeaderField::Absent,
            authorization: HeaderField::Absent,
            content_type: HeaderField::Absent,
            content_encoding: HeaderField::Absent,
            transfer_encoding: HeaderField::Absent,
            accept: HeaderField::Absent,
            protocol_version: HeaderField::Absent,
            mcp_method: HeaderField::Absent,
            mcp_name: HeaderField::Absent,
            session_id: HeaderField::Absent,
            last_event_id: HeaderField::Absent,
            upgrade: HeaderField::Absent,
        }
    }

    /// Adds a header whose name is in lower case.
    #[inline]
    fn add(&mut self, name: &str, value: &'h [u8]) {
        let field = match name {
            "host" => &mut self.host,
            "origin" => &mut self.origin,
            "sec-fetch-site" => &mut self.fetch_site,
            "authorization" => &mut self.authorization,
            "content-type" => &mut self.content_type,
            "content-encoding" => &mut self.content_encoding,
            "transfer-encoding" => &mut self.transfer_encoding,
            "accept" => &mut self.accept,
            "mcp-protocol-version" => &mut self.protocol_version,
            "mcp-method" => &mut self.mcp_method,
            "mcp-name" => &mut self.mcp_name,
            "mcp-session-id" => &mut self.session_id,
            "last-event-id" => &mut self.last_event_id,
            "upgrade" => &mut self.upgrade,
            _ => return,
        };
        *field = match field {
            HeaderField::Absent => HeaderField::Single(value),
            HeaderField::Single(_) | HeaderField::Repeated => HeaderField::Repeated,
        };
    }

    /// What code may know of the head.
    pub(crate) fn to_request_head(&self) -> RequestHead {
        let text = |value: &'h [u8]| HeaderValue::from_bytes(value).ok()?.to_str().ok().map(str::to_owned);
        match self.source {
            HeaderSource::Map(map) => {
                let headers = map.iter();
                RequestHead::new(
                    headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))),
                )
            }
            HeaderSource::Lines(lines) => {
                // As hyper names them.
                let lower = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
                let headers: Vec<(String, String)> =
                    lines.iter().filter_map(|(name, value)| Some((lower(name), text(value)?))).collect();
                RequestHead::new(headers.iter().map(|(name, value)| (&**name, &**value)))
            }
        }
    }

    /// The values of all headers of this name, in their order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        let (map, lines) = match self.source {
            HeaderSource::Map(map) => (Some(map.get_all(name).iter().map(HeaderValue::as_bytes)), None),
            HeaderSource::Lines(lines) => (None, Some(lines.values(name))),
        };
        map.into_iter().flatten().chain(lines.into_iter().flatten())
    }

    /// Any other header, for tools whose schema maps an argument to a header.
    pub(crate) fn get(&self, name: &str) -> HeaderField<'h> {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return HeaderField::Absent;
        }
        field_of(self.values(name))
    }
}
