//! Questions: as requests of the server's own, or as parts of a result.

use call::{Ask, Asks};
use json::Json;
use json::write::Object;

use crate::version::{Feature, Version};

/// A request from the server, for clients of the handshake era; `task` is the task that it belongs to.
pub fn server_request(out: &mut Vec<u8>, id: u64, ask: &Ask, task: Option<&str>, version: Version) {
    let mut message = Object::new(out);
    message.str("jsonrpc", "2.0").int("id", id.min(i64::MAX as u64) as i64);
    request_members(&mut message, ask, version, Some(id), task);
    message.end();
}

/// The members of an `InputRequests` object.
pub(super) fn input_requests(out: &mut Object<'_>, asks: &Asks, version: Version) {
    for (key, ask) in asks.iter() {
        out.object(key, |request| request_members(request, ask, version, None, None));
    }
}

fn request_members(out: &mut Object<'_>, ask: &Ask, version: Version, id: Option<u64>, task: Option<&str>) {
    match ask {
        Ask::Form { message, schema } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                if version.has(Feature::ElicitationMode) {
                    params.str("mode", "form");
                }
                params.str("message", message).raw("requestedSchema", schema.as_str());
                related(params, task);
            });
        }
        Ask::Url { message, url } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                params.str("mode", "url").str("message", message).str("url", url);
                if let (Some(id), true) = (id, version.has(Feature::ElicitationId)) {
                    params.str("elicitationId", &format!("elicitation-{id}"));
                }
                related(params, task);
            });
        }
        Ask::Sample { params } => {
            out.str("method", "sampling/createMessage");
            match task {
                None => out.raw("params", params.as_str()),
                Some(_) => out.object("params", |out| with_members(out, params, task)),
            };
        }
        Ask::Roots => {
            out.str("method", "roots/list");
            if task.is_some() {
                out.object("params", |params| related(params, task));
            }
        }
    }
}

fn with_members(out: &mut Object<'_>, params: &Json, task: Option<&str>) {
    let doc = params.doc();
    for (key, value) in doc.root().members().filter(|(key, _)| !key.is("_meta")) {
        out.raw(&key.str().unwrap_or_default(), value.raw());
    }
    related(out, task);
}

/// 2025-11-25, Associating Task-Related Messages: "All requests … related to a task MUST include the
/// `io.modelcontextprotocol/related-task` key in their `_meta` field".
fn related(params: &mut Object<'_>, task: Option<&str>) {
    if let Some(task) = task {
        params.object("_meta", |meta| related_task(meta, task));
    }
}

pub fn related_task(meta: &mut Object<'_>, task: &str) {
    meta.object("io.modelcontextprotocol/related-task", |o| {
        o.str("taskId", task);
    });
}
