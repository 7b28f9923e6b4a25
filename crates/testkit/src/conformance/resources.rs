//! The resources: two listed ones, a template, and one that can be subscribed to although it is not listed.

use std::sync::atomic::Ordering;

use json::Json;
use spile_core::{Call, CallResult, ItemKind, Resource, ResourceContents, ResourceResult, ResourceTemplate};

use super::{ConformanceProvider, PNG, RoundResult, unknown};

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
pub(super) const WATCHED: &str = "test://watched-resource";
pub(super) const TEMPLATE: &str = "test://template/{id}/data";

pub(super) fn list() -> Vec<Resource> {
    let resource = |uri: &str, name: &str, description: &str, mime: &str| Resource {
        uri: uri.into(),
        name: name.into(),
        description: Some(description.into()),
        mime_type: Some(mime.into()),
        ..Resource::default()
    };
    vec![
        resource(TEXT, "static-text", "A static text resource for testing", "text/plain"),
        resource(BINARY, "static-binary", "A static binary resource (image) for testing", "image/png"),
    ]
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![ResourceTemplate {
        uri_template: TEMPLATE.into(),
        name: "template".into(),
        description: Some("A resource template with parameter substitution".into()),
        mime_type: Some("application/json".into()),
        ..ResourceTemplate::default()
    }]
}

pub(super) fn read(provider: &ConformanceProvider, call: &Call) -> RoundResult {
    let uri = call.name();
    let text = |mime: &str, text: String| ResourceContents::Text {
        uri: uri.clone().into_owned(),
        mime_type: Some(mime.into()),
        text,
        meta: None,
    };
    let body = match uri.as_ref() {
        TEXT => text("text/plain", "This is the content of the static text resource.".into()),
        BINARY => ResourceContents::Blob {
            uri: uri.clone().into_owned(),
            mime_type: Some("image/png".into()),
            base64: PNG.into(),
            meta: None,
        },
        WATCHED => {
            let edition = provider.revision.load(Ordering::SeqCst);
            text("text/plain", format!("Watched resource content, edition {edition}"))
        }
        other => match template_id(other) {
            Some(id) => text("application/json", template_data(id)),
            None => return Err(unknown(ItemKind::Resource, call)),
        },
    };
    Ok(CallResult::Resource(ResourceResult { contents: vec![body], ttl_ms: 0, public: true }).into())
}

/// The value of `{id}` in a URI of the template: one path segment.
fn template_id(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn template_data(id: &str) -> String {
    let data = Json::object(|data| {
        data.str("id", id).bool("templateTest", true).str("data", &format!("Data for ID: {id}"));
    });
    data.to_string()
}
