//! Questions: as requests of the server's own, or as parts of a result.

use call::{Ask, Asks};
use json::write::Object;
use json::{Json, Node};

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
                params.str("message", message);
                if version.has(Feature::ElicitationMode) {
                    params.raw("requestedSchema", schema.as_str());
                } else {
                    older_form(params.key("requestedSchema"), schema);
                }
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

/// A form for a client that knows choices only as `enum` with `enumNames` (2025-06-18). A choice of several
/// has no older form; whoever asks sees to it that there is none.
fn older_form(out: &mut Vec<u8>, schema: &Json) {
    let doc = schema.doc();
    let mut form = Object::new(out);
    for (key, value) in doc.root().members() {
        if !key.is("properties") {
            form.raw(&key.str().unwrap_or_default(), value.raw());
            continue;
        }
        form.object("properties", |properties| {
            for (name, property) in value.members() {
                let name = name.str().unwrap_or_default();
                match property.get("oneOf") {
                    Some(choices) => {
                        properties.object(&name, |out| older_choice(out, property, choices));
                    }
                    None => {
                        properties.raw(&name, property.raw());
                    }
                }
            }
        });
    }
    form.end();
}

fn older_choice(out: &mut Object<'_>, property: Node<'_>, choices: Node<'_>) {
    for (key, value) in property.members().filter(|(key, _)| !key.is("oneOf")) {
        out.raw(&key.str().unwrap_or_default(), value.raw());
    }
    for (key, from) in [("enum", "const"), ("enumNames", "title")] {
        let texts = choices.elements().filter_map(|choice| choice.get(from));
        out.array(key, texts, |out, text| out.extend_from_slice(text.raw().as_bytes()));
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

#[cfg(test)]
mod tests {
    use call::Ask;
    use json::Json;

    use super::server_request;
    use crate::version::Version;

    #[test]
    fn titled_choices_have_an_older_form() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string","title":"A","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"Y"}]},"b":{"type":"string"}},"required":["a"]}"#;
        let ask = Ask::Form { message: "?".into(), schema: Json::parse(schema).expect("JSON") };
        let mut out = Vec::new();
        server_request(&mut out, 1, &ask, None, Version::V2025_06_18);
        assert_eq!(
            String::from_utf8_lossy(&out),
            r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"A","enum":["x","y"],"enumNames":["X","Y"]},"b":{"type":"string"}},"required":["a"]}}}"#
        );
        let mut out = Vec::new();
        server_request(&mut out, 1, &ask, None, Version::V2025_11_25);
        assert!(String::from_utf8_lossy(&out).contains(schema));
    }
}
