//! Writes responses and notifications for the client's protocol version.
//!
//! Every function appends to a buffer that the transport sends unchanged. What a version does not have is left out
//! or written in its older form; [`Version::has`] decides.

mod handshake;
mod input_requests;
mod lists;
mod notifications;
mod relayed;
mod results;
mod tasks;

pub use handshake::{ServerCapabilities, discover, initialize};
pub use input_requests::{server_request, write_related_task};
pub use lists::{ListItem, directory_page, list_members, list_page, rendered_tool, skill_response};
pub use notifications::{
    call_event, change_notification, subscription_acknowledged, subscription_cancelled, subscription_ended,
    task_notification,
};
pub use results::{CallResponseRef, call_response, empty_result, stored_result};
pub use tasks::{TaskAnswer, TaskSnapshot, TaskStatus};

use json::write::{self, ObjectWriter};

use crate::id::RequestId;
use crate::version::{Feature, Version};

/// The request that a response belongs to.
#[derive(Debug, Clone)]
pub struct ReplyTo {
    pub version: Version,
    pub id: RequestId,
    pub progress_token: Option<RequestId>,
}

/// The server's name and version, rendered once. Every result of the stateless era contains them.
#[derive(Debug, Clone)]
pub struct RenderedServerInfo {
    /// The `Implementation` object.
    implementation: String,
    /// `"resultType":"complete","_meta":{…}`, ready to append.
    complete_members: String,
}

impl RenderedServerInfo {
    pub fn new(name: &str, version: &str) -> Self {
        let mut info = Vec::new();
        let mut object = ObjectWriter::new(&mut info);
        object.str("name", name).str("version", version);
        object.end();
        let implementation = String::from_utf8(info).expect("JSON writers only write UTF-8");
        let complete_members = format!(
            r#""resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{implementation}}}"#
        );
        Self { implementation, complete_members }
    }

    /// Closes a result object. `empty` says whether it has no members yet.
    #[inline]
    fn close_result(&self, out: &mut Vec<u8>, version: Version, empty: bool) {
        if version.has(Feature::ResultType) {
            if !empty {
                out.push(b',');
            }
            out.extend_from_slice(self.complete_members.as_bytes());
        }
        out.push(b'}');
    }

    /// Writes a `_meta` with the server's name and the members of another `_meta` object.
    fn write_meta(&self, out: &mut Vec<u8>, more: Option<&json::Json>) {
        let mut meta = ObjectWriter::new(out);
        meta.raw("io.modelcontextprotocol/serverInfo", &self.implementation);
        if let Some(more) = more {
            let doc = more.to_doc();
            for (key, value) in doc.root().members() {
                if !key.eq_str("io.modelcontextprotocol/serverInfo") {
                    meta.raw(&key.str().unwrap_or_default(), value.raw());
                }
            }
        }
        meta.end();
    }
}

/// `{"jsonrpc":"2.0","id":…,"result":` — the result and [`end_response`] follow.
#[inline]
fn begin_response(out: &mut Vec<u8>, id: &RequestId) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(br#","result":"#);
}

#[inline]
fn end_response(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Writes a whole notification.
fn write_notification(out: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut ObjectWriter<'_>)) {
    let mut message = ObjectWriter::new(out);
    message.str("jsonrpc", "2.0").str("method", method);
    message.object("params", params);
    message.end();
}

/// Writes the cache hints of a result.
fn write_cache_hints(out: &mut Vec<u8>, version: Version, ttl_ms: u64, public: bool) {
    if !version.has(Feature::CacheHints) {
        return;
    }
    out.extend_from_slice(br#","ttlMs":"#);
    write::integer(out, ttl_ms.min(i64::MAX as u64) as i64);
    let scope: &[u8] = if public { br#","cacheScope":"public""# } else { br#","cacheScope":"private""# };
    out.extend_from_slice(scope);
}
