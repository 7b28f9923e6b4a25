//! Input requests: as requests from the server, or as part of a result.

use json::write::ObjectWriter;
use json::{Json, Node};
use spile_core::{InputRequest, InputRequests};

use crate::version::{Feature, Version};

/// A request from the server, for clients of the handshake era. `task` is the task that it belongs to.
pub fn server_request(
    out: &mut Vec<u8>,
    id: u64,
    request: &InputRequest,
    task: Option<&str>,
    version: Version,
) {
    let mut message = ObjectWriter::new(out);
    message.str("jsonrpc", "2.0").int("id", id.min(i64::MAX as u64) as i64);
    write_request_members(&mut message, request, version, Some(id), task);
    message.end();
}

/// Writes the members of an `InputRequests` object.
pub(super) fn write_input_requests(out: &mut ObjectWriter<'_>, requests: &InputRequests, version: Version) {
    for (key, request) in requests.iter() {
        out.object(key, |out| write_request_members(out, request, version, None, None));
    }
}

fn write_request_members(
    out: &mut ObjectWriter<'_>,
    request: &InputRequest,
    version: Version,
    id: Option<u64>,
    task: Option<&str>,
) {
    match request {
        InputRequest::Form { message, schema } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                if version.has(Feature::ElicitationMode) {
                    params.str("mode", "form");
                }
                params.str("message", message);
                if version.has(Feature::ElicitationMode) {
                    params.raw("requestedSchema", schema.as_str());
                } else {
                    write_legacy_form(params.key("requestedSchema"), schema);
                }
                write_related_task_meta(params, task);
            });
        }
        InputRequest::Url { message, url } => {
            out.str("method", "elicitation/create");
            out.object("params", |params| {
                params.str("mode", "url").str("message", message).str("url", url);
                if let (Some(id), true) = (id, version.has(Feature::ElicitationId)) {
                    params.str("elicitationId", &elicitation_id(id));
                }
                write_related_task_meta(params, task);
            });
        }
        InputRequest::Sampling { params } => {
            out.str("method", "sampling/createMessage");
            match task {
                None => out.raw("params", params.as_str()),
                Some(_) => out.object("params", |out| write_params_with_task(out, params, task)),
            };
        }
        InputRequest::Roots => {
            out.str("method", "roots/list");
            if task.is_some() {
                out.object("params", |params| write_related_task_meta(params, task));
            }
        }
    }
}

/// The id of an elicitation by URL, from that of the request.
pub(super) fn elicitation_id(request: u64) -> String {
    format!("elicitation-{request}")
}

/// A form for a client of 2025-06-18, which knows choices only as `enum` with `enumNames`. A multiple choice
/// has no older form; the host does not send one to such a client.
fn write_legacy_form(out: &mut Vec<u8>, schema: &Json) {
    let doc = schema.to_doc();
    let mut form = ObjectWriter::new(out);
    for (key, value) in doc.root().members() {
        if !key.eq_str("properties") {
            form.raw(&key.str().unwrap_or_default(), value.raw());
            continue;
        }
        form.object("properties", |properties| {
            for (name, property) in value.members() {
                let name = name.str().unwrap_or_default();
                match property.get("oneOf") {
                    Some(choices) => {
                        properties.object(&name, |out| write_legacy_enum(out, property, choices));
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

fn write_legacy_enum(out: &mut ObjectWriter<'_>, property: Node<'_>, choices: Node<'_>) {
    for (key, value) in property.members().filter(|(key, _)| !key.eq_str("oneOf")) {
        out.raw(&key.str().unwrap_or_default(), value.raw());
    }
    for (key, from) in [("enum", "const"), ("enumNames", "title")] {
        let texts = choices.elements().filter_map(|choice| choice.get(from));
        out.array(key, texts, |out, text| out.extend_from_slice(text.raw().as_bytes()));
    }
}

fn write_params_with_task(out: &mut ObjectWriter<'_>, params: &Json, task: Option<&str>) {
    let doc = params.to_doc();
    for (key, value) in doc.root().members().filter(|(key, _)| !key.eq_str("_meta")) {
        out.raw(&key.str().unwrap_or_default(), value.raw());
    }
    write_related_task_meta(out, task);
}

/// 2025-11-25, Associating Task-Related Messages: "All requests … related to a task MUST include the
/// `io.modelcontextprotocol/related-task` key in their `_meta` field".
fn write_related_task_meta(params: &mut ObjectWriter<'_>, task: Option<&str>) {
    if let Some(task) = task {
        params.object("_meta", |meta| write_related_task(meta, task));
    }
}

pub fn write_related_task(meta: &mut ObjectWriter<'_>, task: &str) {
    meta.object("io.modelcontextprotocol/related-task", |o| {
        o.str("taskId", task);
    });
}

#[cfg(test)]
mod tests {
    use json::Json;
    use spile_core::InputRequest;

    use super::server_request;
    use crate::version::Version;

    #[test]
    fn titled_choices_are_enum_names_in_2025_06_18() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string","title":"A","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"Y"}]},"b":{"type":"string"}},"required":["a"]}"#;
        let request = InputRequest::Form { message: "?".into(), schema: Json::parse(schema).expect("JSON") };
        let mut out = Vec::new();
        server_request(&mut out, 1, &request, None, Version::V2025_06_18);
        assert_eq!(
            String::from_utf8_lossy(&out),
            r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"A","enum":["x","y"],"enumNames":["X","Y"]},"b":{"type":"string"}},"required":["a"]}}}"#
        );
        let mut out = Vec::new();
        server_request(&mut out, 1, &request, None, Version::V2025_11_25);
        assert!(String::from_utf8_lossy(&out).contains(schema));
    }
}
