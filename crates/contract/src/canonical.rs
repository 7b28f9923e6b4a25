//! A canonical form of JSON values: two values are equal exactly if their canonical bytes are.
//!
//! Numbers compare by their digits (`1`, `1.0` and `10e-1` are equal), strings by their characters, objects without
//! regard to order.

use json::{Node, NodeKind, write};

/// Appends the canonical form of a value.
pub(crate) fn write_canonical(out: &mut Vec<u8>, node: Node<'_>) {
    match node.kind() {
        NodeKind::Null | NodeKind::True | NodeKind::False => out.extend_from_slice(node.raw().as_bytes()),
        NodeKind::Number => {
            if let Some(decimal) = node.decimal() {
                decimal.write_canonical(out);
            }
        }
        NodeKind::String => write::string(out, &node.str().unwrap_or_default()),
        NodeKind::Array => write::array(out, node.elements(), write_canonical),
        NodeKind::Object => {
            let mut members: Vec<_> =
                node.members().map(|(key, value)| (key.str().unwrap_or_default(), value)).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            let mut object = write::ObjectWriter::new(out);
            for (key, value) in members {
                write_canonical(object.key(&key), value);
            }
            object.end();
        }
    }
}
