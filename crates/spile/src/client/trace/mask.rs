//! What a recording leaves out: values of fields that their server calls sensitive in its schemas.
//!
//! Names are remembered over all tools of a server: to leave out too much is the smaller mistake. The terminal shows
//! everything; whoever sits there has asked for it.

use std::collections::BTreeSet;

use contract::field::SENSITIVE;
use contract::shape::MASK;
use json::{Kind, Node, ScanLimits, scan, write};

use super::entry::{Entry, What};

#[derive(Default)]
pub(crate) struct Mask {
    names: BTreeSet<String>,
}

impl Mask {
    /// The entry as it is recorded; `None` if it is not. Raw bytes have no names, so they are left out as soon as
    /// there is something to hide.
    pub(crate) fn recorded(&mut self, entry: Entry) -> Option<Entry> {
        match entry.what {
            What::Bytes { .. } if !self.names.is_empty() => None,
            What::Message { to, bytes, exchange } => {
                let bytes = self.message(bytes);
                Some(Entry { us: entry.us, what: What::Message { to, bytes, exchange } })
            }
            what => Some(Entry { us: entry.us, what }),
        }
    }

    fn message(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Ok(doc) = scan(bytes.clone(), &ScanLimits::default()) else { return bytes };
        let root = doc.root();
        if let Some(tools) = root.get("result").and_then(|result| result.get("tools")) {
            self.learn(tools);
            return bytes;
        }
        if !self.hides(root) {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len());
        self.write(&mut out, root);
        out
    }

    /// Every property that is marked, however deep.
    fn learn(&mut self, node: Node<'_>) {
        for (name, value) in node.members() {
            if value.get(SENSITIVE).and_then(|mark| mark.bool()) == Some(true) {
                self.names.extend(name.str().map(Into::into));
            }
            self.learn(value);
        }
        node.elements().for_each(|element| self.learn(element));
    }

    fn is_hidden(&self, name: Node<'_>) -> bool {
        name.str().is_some_and(|name| self.names.contains(&*name))
    }

    fn hides(&self, node: Node<'_>) -> bool {
        node.members().any(|(name, value)| self.is_hidden(name) || self.hides(value))
            || node.elements().any(|element| self.hides(element))
    }

    fn write(&self, out: &mut Vec<u8>, node: Node<'_>) {
        match node.kind() {
            Kind::Object => {
                // A text that is told beside typed content may say anything of it.
                let told = node.get("structuredContent").is_some_and(|typed| self.hides(typed));
                out.push(b'{');
                for (i, (name, value)) in node.members().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.raw().as_bytes());
                    out.push(b':');
                    if self.is_hidden(name) && value.kind() != Kind::Null {
                        write::string(out, MASK);
                    } else if told && name.is("content") {
                        out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
                        write::string(out, MASK);
                        out.extend_from_slice(b"}]");
                    } else {
                        self.write(out, value);
                    }
                }
                out.push(b'}');
            }
            Kind::Array => write::array(out, node.elements(), |out, element| self.write(out, element)),
            Kind::Null | Kind::True | Kind::False | Kind::Number | Kind::String => {
                out.extend_from_slice(node.raw().as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use upstream::Direction;

    use super::{Entry, Mask, What};

    fn recorded(mask: &mut Mask, message: &str) -> String {
        let what = What::Message { to: Direction::In, bytes: message.into(), exchange: None };
        let entry = mask.recorded(Entry { us: 1, what }).expect("messages are recorded");
        let What::Message { bytes, .. } = entry.what else { panic!("a message") };
        String::from_utf8(bytes).expect("text")
    }

    fn bytes(mask: &mut Mask) -> Option<Entry> {
        mask.recorded(Entry { us: 1, what: What::Bytes { to: Direction::In, bytes: b"{}".to_vec() } })
    }

    const TOOLS: &str = r#"{"result":{"tools":[{"name":"t","outputSchema":{"anyOf":[{"properties":{"phone":{"type":"string","x-sensitive":true},"plan":{}}}]}}]}}"#;

    #[test]
    fn what_is_sensitive_is_left_out_from_then_on() {
        let mut mask = Mask::default();
        let call = r#"{"params":{"name":"t","arguments":{"phone":"1","plan": "x"}}}"#;
        assert_eq!(recorded(&mut mask, call), call, "nothing is known yet");
        assert!(bytes(&mut mask).is_some());
        assert_eq!(recorded(&mut mask, TOOLS), TOOLS, "schemas have no values");
        assert!(bytes(&mut mask).is_none());
        for (message, expected) in [
            (call, r#"{"params":{"name":"t","arguments":{"phone":"•••","plan":"x"}}}"#),
            (
                r#"{"result":{"content":[{"type":"text","text":"phone: 1"}],"structuredContent":{"items":[{"ph\u006fne":"1"},{"phone":null}]}}}"#,
                r#"{"result":{"content":[{"type":"text","text":"•••"}],"structuredContent":{"items":[{"ph\u006fne":"•••"},{"phone":null}]}}}"#,
            ),
            (
                r#"{"result":{"content":[{"type":"text","text":"fine"}], "structuredContent":{"plan":"x"}}}"#,
                r#"{"result":{"content":[{"type":"text","text":"fine"}], "structuredContent":{"plan":"x"}}}"#,
            ),
            (r#"[{"phone":[1,2]},7]"#, r#"[{"phone":"•••"},7]"#),
            ("no JSON, phone: 1", "no JSON, phone: 1"),
        ] {
            assert_eq!(recorded(&mut mask, message), expected);
        }
    }
}
