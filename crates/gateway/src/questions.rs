//! What a server asks while a call runs, as the host asks it, and the answers on their way back.

use json::{Json, Node};
use spile_core::{InputRequest, InputRequests};
use wire::client::InputRequestKind;

/// Why a question cannot be put to the caller.
pub(crate) type Unanswerable = &'static str;

/// Reads the parameters of a question.
pub(crate) fn input_request(kind: InputRequestKind, params: Node<'_>) -> Result<InputRequest, Unanswerable> {
    let text = |key: &str| params.get(key).and_then(|value| value.str()).map(|text| text.into_owned());
    match kind {
        InputRequestKind::Roots => Ok(InputRequest::Roots),
        InputRequestKind::Sampling if params.is_object() => {
            Ok(InputRequest::Sampling { params: without_meta(params) })
        }
        InputRequestKind::Sampling => Err("`sampling/createMessage` without parameters"),
        InputRequestKind::Elicitation => {
            let message = text("message").ok_or("an elicitation without a message")?;
            if params.get("mode").is_some_and(|mode| mode.eq_str("url")) {
                let url = text("url").ok_or("an elicitation by URL without a URL")?;
                return Ok(InputRequest::Url { message, url });
            }
            let schema = params.get("requestedSchema").filter(Node::is_object);
            let schema = schema.ok_or("an elicitation without a schema")?;
            Ok(InputRequest::Form { message, schema: Json::from(schema) })
        }
    }
}

/// `_meta` belongs to one hop.
fn without_meta(params: Node<'_>) -> Json {
    Json::object(|out| {
        for (key, value) in params.members() {
            let key = key.str().unwrap_or_default();
            if key != "_meta" {
                out.raw(&key, value.raw());
            }
        }
    })
}

/// The member `inputRequests` of a result or a task, under the server's own keys.
pub(crate) fn input_requests(result: Node<'_>) -> Result<InputRequests, Unanswerable> {
    let mut requests = InputRequests::default();
    for (key, request) in result.get("inputRequests").into_iter().flat_map(|requests| requests.members()) {
        let kind = match request.get("method").and_then(|method| method.str()).as_deref() {
            Some("roots/list") => InputRequestKind::Roots,
            Some("sampling/createMessage") => InputRequestKind::Sampling,
            Some("elicitation/create") => InputRequestKind::Elicitation,
            _ => return Err("a question of an unknown kind"),
        };
        let none = Json::object(|_| ()).to_doc();
        let params = request.get("params").unwrap_or_else(|| none.root());
        requests = requests.with(key.str().unwrap_or_default(), input_request(kind, params)?);
    }
    Ok(requests)
}
