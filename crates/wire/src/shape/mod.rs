//! Whatever came of a request, written for the version at the other end.
//!
//! Written once: every function appends to a buffer that goes to the door as it is. What a version does not
//! know is left out or said in an older way; the differences are asked of [`Version::has`], never assumed.

mod asks;
mod events;
mod handshake;
mod lists;
mod reply;
mod tasks;
mod time;

pub use asks::{related_task, server_request};
pub use events::{acknowledged, change, event, listening_cancelled, listening_ended, task_changed};
pub use handshake::{Offer, discover, initialize};
pub use lists::{list_members, page};
pub use reply::{Ended, answer, empty};
pub use tasks::{Detail, TaskView, task_list};

use json::write::{self, Object};

use crate::id::Id;
use crate::version::{Feature, Version};

/// Where an answer goes.
#[derive(Debug, Clone)]
pub struct ReplyTo {
    pub version: Version,
    pub id: Id,
    pub progress: Option<Id>,
}

/// Who answers, rendered once: it stands in every result of the newest era.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// The `Implementation` object.
    info: String,
    /// `"resultType":"complete","_meta":{…}`, ready to be appended.
    complete: String,
}

impl Stamp {
    pub fn new(name: &str, version: &str) -> Self {
        let mut info = Vec::new();
        let mut object = Object::new(&mut info);
        object.str("name", name).str("version", version);
        object.end();
        let info = String::from_utf8(info).expect("written from &str");
        let complete =
            format!(r#""resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{info}}}"#);
        Self { info, complete }
    }

    /// Closes a result object. `empty` tells whether it has members yet.
    #[inline]
    fn close(&self, out: &mut Vec<u8>, version: Version, empty: bool) {
        if version.has(Feature::ResultType) {
            if !empty {
                out.push(b',');
            }
            out.extend_from_slice(self.complete.as_bytes());
        }
        out.push(b'}');
    }

    /// A `_meta` that names the server and holds the members of another `_meta` object too.
    fn meta_with(&self, out: &mut Vec<u8>, more: Option<&json::Json>) {
        let mut meta = Object::new(out);
        meta.raw("io.modelcontextprotocol/serverInfo", &self.info);
        if let Some(more) = more {
            let doc = more.doc();
            for (key, value) in doc.root().members() {
                if !key.is("io.modelcontextprotocol/serverInfo") {
                    meta.raw(&key.str().unwrap_or_default(), value.raw());
                }
            }
        }
        meta.end();
    }
}

/// `{"jsonrpc":"2.0","id":…,"result":` — what follows is the result, then [`end`].
#[inline]
fn begin(out: &mut Vec<u8>, id: &Id) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(br#","result":"#);
}

#[inline]
fn end(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// A whole notification.
fn notification(out: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut Object<'_>)) {
    let mut message = Object::new(out);
    message.str("jsonrpc", "2.0").str("method", method);
    message.object("params", params);
    message.end();
}

/// Writes the hints of a cacheable result.
fn cache_hints(out: &mut Vec<u8>, version: Version, ttl_ms: u64, public: bool) {
    if !version.has(Feature::CacheHints) {
        return;
    }
    out.extend_from_slice(br#","ttlMs":"#);
    write::integer(out, ttl_ms.min(i64::MAX as u64) as i64);
    let scope: &[u8] = if public { br#","cacheScope":"public""# } else { br#","cacheScope":"private""# };
    out.extend_from_slice(scope);
}
