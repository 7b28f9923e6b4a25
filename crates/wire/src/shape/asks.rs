//! Questions: as requests of the server's own, or as parts of a result.

use call::{Ask, Asks};
use json::write::Object;

use crate::version::{Feature, Version};

/// A request from the server, for clients of the handshake era.
pub fn server_request(out: &mut Vec<u8>, id: u64, ask: &Ask, version: Version) {
    let mut message = Object::new(out);
    message.str("jsonrpc", "2.0").int("id", id.min(i64::MAX as u64) as i64);
    request_members(&mut message, ask, version, Some(id));
    message.end();
}

/// The members of an `InputRequests` object.
pub(super) fn input_requests(out: &mut Object<'_>, asks: &Asks, version: Version) {
    for (key, ask) in asks.iter() {
        out.object(key, |request| request_members(request, ask, version, None));
    }
}

fn request_members(out: &mut Object<'_>, ask: &Ask, version: Version, id: Option<u64>) {
    match ask {
        Ask::Form { message, schema } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                if version.has(Feature::ElicitationMode) {
                    params.str("mode", "form");
                }
                params.str("message", message).raw("requestedSchema", schema.as_str());
            });
        }
        Ask::Url { message, url } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                params.str("mode", "url").str("message", message).str("url", url);
                if let (Some(id), true) = (id, version.has(Feature::ElicitationId)) {
                    params.str("elicitationId", &format!("elicitation-{id}"));
                }
            });
        }
        Ask::Sample { params } => {
            out.str("method", "sampling/createMessage").raw("params", params.as_str());
        }
        Ask::Roots => {
            out.str("method", "roots/list");
        }
    }
}
