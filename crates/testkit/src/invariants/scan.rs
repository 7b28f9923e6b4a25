//! The parser accepts what `serde_json` accepts (except duplicate keys), and both read the same values.

use std::collections::BTreeMap;
use std::fmt;

use json::{Json, JsonErrorKind, Node, NodeKind, ParseLimits};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use wire::frame::sse::{self, EventId};

/// The text is `data` itself.
pub fn scan(data: &[u8]) {
    let reference = serde_json::from_slice::<StrictValue>(data);
    match json::parse(data.to_vec(), &ParseLimits::default()) {
        Ok(doc) => {
            assert_eq!(doc.text().as_bytes(), data);
            match reference {
                Ok(reference) => assert_same_value(doc.root(), &reference),
                // Numbers beyond the range of a float are still JSON.
                Err(error) => {
                    assert!(error.to_string().contains("out of range"), "we read what is wrong: {error}")
                }
            }
            check_compaction(doc.root());
        }
        Err(bad) => {
            assert!(bad.offset <= data.len(), "{bad}");
            match bad.kind {
                JsonErrorKind::TooDeep | JsonErrorKind::TooManyValues | JsonErrorKind::TooLong => {}
                JsonErrorKind::InvalidUtf8 | JsonErrorKind::Syntax | JsonErrorKind::DuplicateKey => {
                    assert!(reference.is_err(), "we refuse what is right: {bad}");
                }
            }
        }
    }
}

/// Compacting keeps the value, fits on one line and is idempotent.
fn check_compaction(root: Node<'_>) {
    let once = Json::from(root);
    assert!(!once.as_str().contains(['\n', '\r']));
    let again = json::parse(once.as_str().as_bytes().to_vec(), &ParseLimits::default()).expect("still JSON");
    assert_eq!(Json::from(again.root()), once);
    assert_same_nodes(root, again.root());
    check_single_event(once.as_str());
}

/// As a server-sent event it is one event with one data line, whatever the reader takes for a line end.
fn check_single_event(message: &str) {
    let mut out = Vec::new();
    let id = EventId { stream: 1, event: 2 };
    sse::write_message(&mut out, Some(id), message.as_bytes());
    let out = String::from_utf8(out).expect("written from text");
    let lines: Vec<&str> = out.split(['\n', '\r']).collect();
    assert_eq!(lines, ["event: message", "id: 1-2", &format!("data: {message}"), "", ""]);
    assert_eq!(EventId::parse("1-2"), Some(id));
}

fn assert_same_nodes(a: Node<'_>, b: Node<'_>) {
    assert_eq!((a.kind(), a.len()), (b.kind(), b.len()));
    match a.kind() {
        NodeKind::Array => a.elements().zip(b.elements()).for_each(|(a, b)| assert_same_nodes(a, b)),
        NodeKind::Object => {
            for ((a_key, a), (b_key, b)) in a.members().zip(b.members()) {
                assert_eq!(a_key.raw(), b_key.raw());
                assert_same_nodes(a, b);
            }
        }
        NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
            assert_eq!(a.raw(), b.raw())
        }
    }
}

fn assert_same_value(node: Node<'_>, reference: &StrictValue) {
    match reference {
        StrictValue::Null => assert_eq!(node.kind(), NodeKind::Null),
        StrictValue::Bool(b) => assert_eq!(node.bool(), Some(*b)),
        StrictValue::U64(n) => assert_eq!(node.u64(), Some(*n)),
        StrictValue::Number => assert!(node.kind() == NodeKind::Number && (node.u64().is_none())),
        StrictValue::String(s) => {
            assert_eq!(node.str().as_deref(), Some(s.as_str()));
            assert!(node.eq_str(s));
            let mut written = Vec::new();
            json::write::string(&mut written, s);
            let back = json::parse(written, &ParseLimits::default()).expect("what we write is JSON");
            assert_eq!(back.root().str().as_deref(), Some(s.as_str()));
        }
        StrictValue::Array(all) => {
            assert_eq!((node.kind(), node.len()), (NodeKind::Array, all.len()));
            node.elements().zip(all).for_each(|(node, reference)| assert_same_value(node, reference));
        }
        StrictValue::Object(all) => {
            assert_eq!((node.kind(), node.len()), (NodeKind::Object, all.len()));
            for (key, reference) in all {
                assert_same_value(node.get(key).expect("the same keys"), reference);
            }
        }
    }
}

/// A value as serde reads it; a duplicate key is an error, as in our parser.
enum StrictValue {
    Null,
    Bool(bool),
    U64(u64),
    /// Negative or fractional: compared as text only.
    Number,
    String(String),
    Array(Vec<StrictValue>),
    Object(BTreeMap<String, StrictValue>),
}

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = StrictValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<StrictValue, E> {
        Ok(StrictValue::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<StrictValue, E> {
        Ok(StrictValue::Bool(b))
    }

    fn visit_u64<E>(self, n: u64) -> Result<StrictValue, E> {
        Ok(StrictValue::U64(n))
    }

    fn visit_i64<E>(self, _: i64) -> Result<StrictValue, E> {
        Ok(StrictValue::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<StrictValue, E> {
        Ok(StrictValue::Number)
    }

    fn visit_str<E>(self, s: &str) -> Result<StrictValue, E> {
        Ok(StrictValue::String(s.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StrictValue, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = seq.next_element()? {
            all.push(one);
        }
        Ok(StrictValue::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StrictValue, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, StrictValue>()? {
            if all.insert(key, value).is_some() {
                return Err(de::Error::custom("a key twice"));
            }
        }
        Ok(StrictValue::Object(all))
    }
}
