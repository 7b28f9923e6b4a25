//! The request headers that the server uses, collected in one pass.

use http::header::{HeaderMap, HeaderName};
use spile_core::RequestHead;
use wire::HeaderField;

/// Each header is absent, present once, or repeated.
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
    pub(crate) fn new(map: &'h HeaderMap) -> Self {
        let mut headers = Self {
            map,
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
        for (name, value) in map {
            let field = match name.as_str() {
                "host" => &mut headers.host,
                "origin" => &mut headers.origin,
                "sec-fetch-site" => &mut headers.fetch_site,
                "authorization" => &mut headers.authorization,
                "content-type" => &mut headers.content_type,
                "content-encoding" => &mut headers.content_encoding,
                "transfer-encoding" => &mut headers.transfer_encoding,
                "accept" => &mut headers.accept,
                "mcp-protocol-version" => &mut headers.protocol_version,
                "mcp-method" => &mut headers.mcp_method,
                "mcp-name" => &mut headers.mcp_name,
                "mcp-session-id" => &mut headers.session_id,
                "last-event-id" => &mut headers.last_event_id,
                "upgrade" => &mut headers.upgrade,
                _ => continue,
            };
            *field = match field {
                HeaderField::Absent => HeaderField::Single(value.as_bytes()),
                HeaderField::Single(_) | HeaderField::Repeated => HeaderField::Repeated,
            };
        }
        headers
    }

    /// What code may know of the head.
    pub(crate) fn to_request_head(&self) -> RequestHead {
        let headers = self.map.iter();
        RequestHead::new(headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))))
    }

    /// Any other header, for tools whose schema maps an argument to a header.
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
