//! The resources: two that are listed, a template, and one that can be watched though it is not listed.

use std::sync::atomic::Ordering;

use call::{Body, Call, Contents, Reply, Resource, Template, Thing};
use json::Json;

use super::{Answered, Conformance, PNG, unknown};

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
pub(super) const WATCHED: &str = "test://watched-resource";
pub(super) const TEMPLATE: &str = "test://template/{id}/data";

pub(super) fn listed() -> Vec<Resource> {
    let resource = |uri: &str, name: &str, description: &str, mime: &str| Resource {
        uri: uri.into(),
        name: name.into(),
        description: Some(description.into()),
        mime: Some(mime.into()),
        ..Resource::default()
    };
    vec![
        resource(TEXT, "static-text", "A static text resource for testing", "text/plain"),
        resource(BINARY, "static-binary", "A static binary resource (image) for testing", "image/png"),
    ]
}

pub(super) fn templates() -> Vec<Template> {
    vec![Template {
        uri_template: TEMPLATE.into(),
        name: "template".into(),
        description: Some("A resource template with parameter substitution".into()),
        mime: Some("application/json".into()),
        ..Template::default()
    }]
}

pub(super) fn read(provider: &Conformance, call: &Call) -> Answered {
    let uri = call.name();
    let text = |mime: &str, text: String| Body::Text {
        uri: uri.clone().into_owned(),
        mime: Some(mime.into()),
        text,
    };
    let body = match uri.as_ref() {
        TEXT => text("text/plain", "This is the content of the static text resource.".into()),
        BINARY => {
            Body::Blob { uri: uri.clone().into_owned(), mime: Some("image/png".into()), base64: PNG.into() }
        }
        WATCHED => {
            let edition = provider.edition.load(Ordering::SeqCst);
            text("text/plain", format!("Watched resource content, edition {edition}"))
        }
        other => match id_in(other) {
            Some(id) => text("application/json", data_of(id)),
            None => return Err(unknown(Thing::Resource, call)),
        },
    };
    Ok(Reply::Resource(Contents { bodies: vec![body], ttl_ms: 0, public: true }).into())
}

/// What stands for `{id}` in a URI of the template: one path segment.
fn id_in(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn data_of(id: &str) -> String {
    let data = Json::object(|data| {
        data.str("id", id).bool("templateTest", true).str("data", &format!("Data for ID: {id}"));
    });
    data.to_string()
}
