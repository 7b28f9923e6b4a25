//! The headers that a request is judged by, found in one pass.

use http::header::{HeaderMap, HeaderName};
use wire::HeaderField;

/// Each header as it was found: absent, once, or more than once.
pub(crate) struct RequestHeaders<'h> {
    pub(crate) map: &'h HeaderMap,
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

impl<'h> RequestHeaders<'h> {
    #[inline]
    pub(crate) fn new(all: &'h HeaderMap) -> Self {
        let mut seen = Self {
            map: all,
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
                "mcp-protocol-version" => &mut seen.protocol_version,
                "mcp-method" => &mut seen.mcp_method,
                "mcp-name" => &mut seen.mcp_name,
                "mcp-session-id" => &mut seen.session_id,
                "last-event-id" => &mut seen.last_event_id,
                "upgrade" => &mut seen.upgrade,
                _ => continue,
            };
            *place = match place {
                HeaderField::Absent => HeaderField::Single(value.as_bytes()),
                HeaderField::Single(_) | HeaderField::Repeated => HeaderField::Repeated,
            };
        }
        seen
    }

    /// Any other header: one that a tool's schema names.
    pub(crate) fn get(&self, name: &str) -> HeaderField<'h> {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return HeaderField::Absent };
        let mut values = self.map.get_all(&name).iter();
        match (values.next(), values.next()) {
            (None, _) => HeaderField::Absent,
            (Some(value), None) => HeaderField::Single(value.as_bytes()),
            (Some(_), Some(_)) => HeaderField::Repeated,
        }
    }
}
