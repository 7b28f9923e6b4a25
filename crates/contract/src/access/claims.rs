//! What the issuer of a caller's identity says about the caller, by JSON pointer.

use json::{Doc, Json, Node, NodeKind};
use spile_core::{Identity, Principal};

/// The claims of one caller. Reads them when they are first needed: most calls of most roles need none.
pub struct Claims<'p> {
    identity: Option<&'p Identity>,
}

impl<'p> Claims<'p> {
    /// An anonymous caller has no claims.
    pub fn new(principal: &'p Principal) -> Self {
        Self {
            identity: match principal {
                Principal::Anonymous => None,
                Principal::Named(identity) => Some(identity),
            },
        }
    }

    /// The value at a JSON pointer; `None` if there is none, or `null`. `/sub` is the subject of the identity, whatever the
    /// claims say.
    pub fn get(&self, pointer: &str) -> Option<Doc> {
        let identity = self.identity?;
        if pointer == "/sub" {
            return Some(Json::string(identity.subject()).to_doc());
        }
        let doc = identity.claims()?.to_doc();
        let mut node = doc.root();
        for part in pointer.strip_prefix('/')?.split('/') {
            node = child(node, part)?;
        }
        (node.kind() != NodeKind::Null).then(|| Json::from_written_bytes(node.raw().into()).to_doc())
    }

    /// All claims as a JSON object, with the subject as `sub`.
    pub(super) fn to_json(&self) -> String {
        let mut out = b"{".to_vec();
        if let Some(identity) = self.identity {
            out.extend_from_slice(br#""sub":"#);
            json::write::string(&mut out, identity.subject());
            let claims = identity.claims().map(Json::to_doc);
            for (name, value) in claims.iter().flat_map(|doc| doc.root().members()) {
                if name.str().is_some_and(|name| name == "sub") {
                    continue;
                }
                out.push(b',');
                out.extend_from_slice(name.raw().as_bytes());
                out.push(b':');
                out.extend_from_slice(value.raw().as_bytes());
            }
        }
        out.push(b'}');
        Json::from_written_bytes(out).as_str().to_owned()
    }
}

/// RFC 6901.
fn child<'d>(node: Node<'d>, part: &str) -> Option<Node<'d>> {
    match node.kind() {
        NodeKind::Object => node.get(&part.replace("~1", "/").replace("~0", "~")),
        NodeKind::Array => {
            let is_index =
                part == "0" || (!part.starts_with('0') && part.bytes().all(|c| c.is_ascii_digit()));
            node.elements().nth(part.parse().ok().filter(|_| is_index)?)
        }
        _ => None,
    }
}
