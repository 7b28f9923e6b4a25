//! Masks the values of fields that the server's schemas mark as sensitive, in recordings.
//!
//! A field name that one tool marks is masked for all tools of the server: masking too much is the smaller mistake.
//! The terminal shows everything, because the person there called the tool.

use std::collections::BTreeSet;

use contract::field::SENSITIVE_KEYWORD;
use contract::results::MASK;
use json::{Json, Node, NodeKind, ParseLimits, parse, write};

use super::entry::{RecordedEvent, TraceEntry};

#[derive(Default)]
pub(crate) struct SensitiveFieldMask {
    sensitive_names: BTreeSet<String>,
}

impl SensitiveFieldMask {
    /// The entry to record, or `None` to omit it. Raw bytes cannot be masked, so they are omitted once a field is
    /// sensitive.
    pub(crate) fn apply(&mut self, entry: TraceEntry) -> Option<TraceEntry> {
        match entry.event {
            RecordedEvent::Bytes { .. } if !self.sensitive_names.is_empty() => None,
            RecordedEvent::Message { direction, bytes, exchange } => {
                let bytes = self.mask_message(bytes);
                Some(TraceEntry {
                    elapsed_us: entry.elapsed_us,
                    event: RecordedEvent::Message { direction, bytes, exchange },
                })
            }
            event => Some(TraceEntry { elapsed_us: entry.elapsed_us, event }),
        }
    }

    fn mask_message(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Ok(doc) = parse(bytes.clone(), &ParseLimits::default()) else { return bytes };
        let root = doc.root();
        if let Some(tools) = root.get("result").and_then(|result| result.get("tools")) {
            self.learn_sensitive(tools);
            return bytes;
        }
        if !self.contains_sensitive(root) {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len());
        self.write_masked(&mut out, root);
        out
    }

    /// Collects every marked property, at any depth.
    fn learn_sensitive(&mut self, node: Node<'_>) {
        for (name, value) in node.members() {
            if value.get(SENSITIVE_KEYWORD).and_then(|mark| mark.bool()) == Some(true) {
                self.sensitive_names.extend(name.str().map(Into::into));
            }
            self.learn_sensitive(value);
        }
        node.elements().for_each(|element| self.learn_sensitive(element));
    }

    /// Learns the names from a list of tools.
    pub(crate) fn from_tools(tools: &[Json]) -> Self {
        let mut mask = Self::default();
        tools.iter().for_each(|tool| mask.learn_sensitive(tool.to_doc().root()));
        mask
    }

    /// Whether the server has sensitive fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.sensitive_names.is_empty()
    }

    /// The first sensitive member, at any depth.
    pub(crate) fn first_sensitive(&self, node: Node<'_>) -> Option<String> {
        let member = node.members().find_map(|(name, value)| match self.is_sensitive(name) {
            true => name.str().map(|name| name.into_owned()),
            false => self.first_sensitive(value),
        });
        member.or_else(|| node.elements().find_map(|element| self.first_sensitive(element)))
    }

    /// The value without its sensitive members.
    pub(crate) fn without_sensitive(&self, node: Node<'_>) -> Json {
        let mut out = Vec::new();
        self.write_rest(&mut out, node);
        Json::from_written_bytes(out)
    }

    fn write_rest(&self, out: &mut Vec<u8>, node: Node<'_>) {
        match node.kind() {
            NodeKind::Object => {
                let mut object = write::ObjectWriter::new(out);
                for (name, value) in node.members().filter(|(name, _)| !self.is_sensitive(*name)) {
                    object.raw(&name.str().unwrap_or_default(), self.without_sensitive(value).as_str());
                }
                object.end();
            }
            NodeKind::Array => {
                write::array(out, node.elements(), |out, element| self.write_rest(out, element))
            }
            NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
                out.extend_from_slice(node.raw().as_bytes());
            }
        }
    }

    fn is_sensitive(&self, name: Node<'_>) -> bool {
        name.str().is_some_and(|name| self.sensitive_names.contains(&*name))
    }

    fn contains_sensitive(&self, node: Node<'_>) -> bool {
        node.members().any(|(name, value)| self.is_sensitive(name) || self.contains_sensitive(value))
            || node.elements().any(|element| self.contains_sensitive(element))
    }

    fn write_masked(&self, out: &mut Vec<u8>, node: Node<'_>) {
        match node.kind() {
            NodeKind::Object => {
                // The text content may repeat any value of the structured content.
                let masks_text =
                    node.get("structuredContent").is_some_and(|typed| self.contains_sensitive(typed));
                out.push(b'{');
                for (i, (name, value)) in node.members().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.raw().as_bytes());
                    out.push(b':');
                    if self.is_sensitive(name) && value.kind() != NodeKind::Null {
                        write::string(out, MASK);
                    } else if masks_text && name.eq_str("content") {
                        out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
                        write::string(out, MASK);
                        out.extend_from_slice(b"}]");
                    } else {
                        self.write_masked(out, value);
                    }
                }
                out.push(b'}');
            }
            NodeKind::Array => {
                write::array(out, node.elements(), |out, element| self.write_masked(out, element))
            }
            NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
                out.extend_from_slice(node.raw().as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use json::Json;
    use upstream::Direction;

    use super::{RecordedEvent, SensitiveFieldMask, TraceEntry};

    fn masked_message(mask: &mut SensitiveFieldMask, message: &str) -> String {
        let event =
            RecordedEvent::Message { direction: Direction::In, bytes: message.into(), exchange: None };
        let entry = mask.apply(TraceEntry { elapsed_us: 1, event }).expect("a message is recorded");
        let RecordedEvent::Message { bytes, .. } = entry.event else { panic!("not a message") };
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn masked_bytes(mask: &mut SensitiveFieldMask) -> Option<TraceEntry> {
        mask.apply(TraceEntry {
            elapsed_us: 1,
            event: RecordedEvent::Bytes { direction: Direction::In, bytes: b"{}".to_vec() },
        })
    }

    const TOOLS: &str = r#"{"result":{"tools":[{"name":"t","outputSchema":{"anyOf":[{"properties":{"phone":{"type":"string","x-sensitive":true},"plan":{}}}]}}]}}"#;

    #[test]
    fn sensitive_members_can_be_left_out() {
        let tools =
            [Json::parse(r#"{"outputSchema":{"properties":{"phone":{"x-sensitive":true}}}}"#).expect("JSON")];
        let mask = SensitiveFieldMask::from_tools(&tools);
        let value =
            Json::parse(r#"{"items":[{"phone":"1","plan":"free"}],"phone":null}"#).expect("JSON").to_doc();
        assert_eq!(mask.first_sensitive(value.root()).as_deref(), Some("phone"));
        assert_eq!(mask.without_sensitive(value.root()).as_str(), r#"{"items":[{"plan":"free"}]}"#);
        assert!(SensitiveFieldMask::from_tools(&[]).is_empty());
    }

    #[test]
    fn sensitive_fields_are_masked_once_the_tool_list_names_them() {
        let mut mask = SensitiveFieldMask::default();
        let call = r#"{"params":{"name":"t","arguments":{"phone":"1","plan": "x"}}}"#;
        assert_eq!(masked_message(&mut mask, call), call, "no tool list yet");
        assert!(masked_bytes(&mut mask).is_some());
        assert_eq!(masked_message(&mut mask, TOOLS), TOOLS, "a tool list contains no values");
        assert!(masked_bytes(&mut mask).is_none());
        for (message, expected) in [
            (call, r#"{"params":{"name":"t","arguments":{"phone":"***","plan":"x"}}}"#),
            (
                r#"{"result":{"content":[{"type":"text","text":"phone: 1"}],"structuredContent":{"items":[{"ph\u006fne":"1"},{"phone":null}]}}}"#,
                r#"{"result":{"content":[{"type":"text","text":"***"}],"structuredContent":{"items":[{"ph\u006fne":"***"},{"phone":null}]}}}"#,
            ),
            (
                r#"{"result":{"content":[{"type":"text","text":"fine"}], "structuredContent":{"plan":"x"}}}"#,
                r#"{"result":{"content":[{"type":"text","text":"fine"}], "structuredContent":{"plan":"x"}}}"#,
            ),
            (r#"[{"phone":[1,2]},7]"#, r#"[{"phone":"***"},7]"#),
            ("not JSON, phone: 1", "not JSON, phone: 1"),
        ] {
            assert_eq!(masked_message(&mut mask, message), expected);
        }
    }
}
