//! The headers that a request is judged by, found in one pass.

use http::header::{HeaderMap, HeaderName};
use wire::Head;

/// Each header as it was found: absent, once, or more than once.
pub(crate) struct Seen<'h> {
    pub(crate) all: &'h HeaderMap,
    pub(crate) host: Head<'h>,
    pub(crate) origin: Head<'h>,
    pub(crate) fetch_site: Head<'h>,
    pub(crate) authorization: Head<'h>,
    pub(crate) content_type: Head<'h>,
    pub(crate) content_encoding: Head<'h>,
    pub(crate) transfer_encoding: Head<'h>,
    pub(crate) accept: Head<'h>,
    pub(crate) version: Head<'h>,
    pub(crate) method: Head<'h>,
    pub(crate) name: Head<'h>,
    pub(crate) session: Head<'h>,
    pub(crate) last_event: Head<'h>,
    pub(crate) upgrade: Head<'h>,
}

impl<'h> Seen<'h> {
    #[inline]
    pub(crate) fn new(all: &'h HeaderMap) -> Self {
        let mut seen = Self {
            all,
            host: Head::Absent,
            origin: Head::Absent,
            fetch_site: Head::Absent,
            authorization: Head::Absent,
            content_type: Head::Absent,
            content_encoding: Head::Absent,
            transfer_encoding: Head::Absent,
            accept: Head::Absent,
            version: Head::Absent,
            method: Head::Absent,
            name: Head::Absent,
            session: Head::Absent,
            last_event: Head::Absent,
            upgrade: Head::Absent,
        };
        for (name, value) in all {
            let place = match name.as_str() {
                "host" => &mut seen.host,
                "origin" => &mut seen.origin,
                "sec-fetch-site" => &mut seen.fetch_site,
                "authorization" => &mut seen.authorization,
                "content-type" => &mut seen.content_type,
                "content-encoding" => &mut seen.content_encoding,
                "transfer-encoding" => &mut seen.transfer_encoding,
                "accept" => &mut seen.accept,
                "mcp-protocol-version" => &mut seen.version,
                "mcp-method" => &mut seen.method,
                "mcp-name" => &mut seen.name,
                "mcp-session-id" => &mut seen.session,
                "last-event-id" => &mut seen.last_event,
                "upgrade" => &mut seen.upgrade,
                _ => continue,
            };
            *place = match place {
                Head::Absent => Head::One(value.as_bytes()),
                Head::One(_) | Head::Twice => Head::Twice,
            };
        }
        seen
    }

    /// Any other header: one that a tool's schema names.
    pub(crate) fn other(&self, name: &str) -> Head<'h> {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return Head::Absent };
        let mut values = self.all.get_all(&name).iter();
        match (values.next(), values.next()) {
            (None, _) => Head::Absent,
            (Some(value), None) => Head::One(value.as_bytes()),
            (Some(_), Some(_)) => Head::Twice,
        }
    }
}
