//! Messages from the server: responses, requests and notifications.

use json::{Doc, Json, Node, NodeKind};

use super::ServerError;
use crate::id::RequestId;
use crate::params::MessageFields;

/// One message, before it is matched with a call.
pub(super) enum IncomingMessage<'d> {
    Response { id: Option<u64>, result: Result<Node<'d>, ServerError> },
    Request { id: RequestId, method: String, params: Option<Node<'d>> },
    Notification { method: String, params: Option<Node<'d>> },
}

impl<'d> IncomingMessage<'d> {
    pub(super) fn read(message: Node<'d>) -> Result<Self, &'static str> {
        if !message.is_object() {
            return Err("a message that is not an object");
        }
        let fields = MessageFields::read(Some(message));
        let method = match fields.method {
            Some(method) => Some(method.str().ok_or("a message whose method is not a string")?.into_owned()),
            None => None,
        };
        let params = fields.params;
        match (method, fields.id, fields.result, fields.error) {
            (Some(method), Some(id), ..) => match RequestId::read(id) {
                Some(id) => Ok(Self::Request { id, method, params }),
                None => Err("a request whose id is neither a string nor an integer"),
            },
            (Some(method), None, ..) => Ok(Self::Notification { method, params }),
            (None, id, Some(result), None) => {
                Ok(Self::Response { id: id.and_then(|id| id.u64()), result: Ok(result) })
            }
            (None, id, None, Some(error)) => {
                Ok(Self::Response { id: id.and_then(|id| id.u64()), result: Err(ServerError::read(error)) })
            }
            (None, _, Some(_), Some(_)) => Err("a response with both a result and an error"),
            (None, _, None, None) => Err("a message that is neither a request nor a response"),
        }
    }
}

/// The messages of a frame: one, or all messages of a batch.
pub(super) fn messages(doc: &Doc) -> impl Iterator<Item = Node<'_>> {
    let root = doc.root();
    let batch = (root.kind() == NodeKind::Array).then(|| root.elements());
    let single = batch.is_none().then_some(root);
    batch.into_iter().flatten().chain(single)
}

impl ServerError {
    pub(super) fn read(error: Node<'_>) -> Self {
        let code = error.get("code").and_then(|code| code.raw().parse().ok()).unwrap_or(0);
        let message = error.get("message").and_then(|m| m.str()).unwrap_or_default().into_owned();
        Self { code, message, data: error.get("data").map(Json::from) }
    }

    /// The versions in `data.supported`, if the error has them.
    pub(super) fn supported_versions(&self) -> Option<Vec<String>> {
        let doc = self.data.as_ref()?.to_doc();
        let list = doc.root().get("supported").filter(|list| list.kind() == NodeKind::Array)?;
        Some(list.elements().filter_map(|date| Some(date.str()?.into_owned())).collect())
    }
}
