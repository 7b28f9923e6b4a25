//! The scanner: it takes what `serde_json` takes (but no key twice), and both read the same in it.

use std::collections::BTreeMap;
use std::fmt;

use json::{Json, Kind, Node, ScanLimits, Why};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use wire::frame::sse::{self, EventId};

/// The text is `data` itself.
pub fn scan(data: &[u8]) {
    let theirs = serde_json::from_slice::<Strict>(data);
    match json::scan(data.to_vec(), &ScanLimits::default()) {
        Ok(doc) => {
            assert_eq!(doc.text().as_bytes(), data);
            match theirs {
                Ok(theirs) => same(doc.root(), &theirs),
                // Numbers beyond a float are JSON all the same.
                Err(error) => {
                    assert!(error.to_string().contains("out of range"), "we read what is wrong: {error}")
                }
            }
            compacts(doc.root());
        }
        Err(bad) => {
            assert!(bad.at <= data.len(), "{bad}");
            match bad.why {
                Why::Depth | Why::TooMany | Why::TooLong => {}
                Why::Utf8 | Why::Syntax | Why::Duplicate => {
                    assert!(theirs.is_err(), "we refuse what is right: {bad}");
                }
            }
        }
    }
}

/// Compacting says the same on one line, and once is enough.
fn compacts(root: Node<'_>) {
    let once = Json::from(root);
    assert!(!once.as_str().contains(['\n', '\r']));
    let again = json::scan(once.as_str().as_bytes().to_vec(), &ScanLimits::default()).expect("still JSON");
    assert_eq!(Json::from(again.root()), once);
    same_nodes(root, again.root());
    is_one_event(once.as_str());
}

/// As a server-sent event it is one event with one line of data, whatever ends lines in the reader's eyes.
fn is_one_event(message: &str) {
    let mut out = Vec::new();
    let id = EventId { stream: 1, event: 2 };
    sse::message(&mut out, Some(id), message.as_bytes());
    let out = String::from_utf8(out).expect("written from text");
    let lines: Vec<&str> = out.split(['\n', '\r']).collect();
    assert_eq!(lines, ["event: message", "id: 1-2", &format!("data: {message}"), "", ""]);
    assert_eq!(EventId::parse("1-2"), Some(id));
}

fn same_nodes(a: Node<'_>, b: Node<'_>) {
    assert_eq!((a.kind(), a.len()), (b.kind(), b.len()));
    match a.kind() {
        Kind::Array => a.elements().zip(b.elements()).for_each(|(a, b)| same_nodes(a, b)),
        Kind::Object => {
            for ((a_key, a), (b_key, b)) in a.members().zip(b.members()) {
                assert_eq!(a_key.raw(), b_key.raw());
                same_nodes(a, b);
            }
        }
        Kind::Null | Kind::True | Kind::False | Kind::Number | Kind::String => assert_eq!(a.raw(), b.raw()),
    }
}

fn same(ours: Node<'_>, theirs: &Strict) {
    match theirs {
        Strict::Null => assert_eq!(ours.kind(), Kind::Null),
        Strict::Bool(b) => assert_eq!(ours.bool(), Some(*b)),
        Strict::U64(n) => assert_eq!(ours.u64(), Some(*n)),
        Strict::Number => assert!(ours.kind() == Kind::Number && (ours.u64().is_none())),
        Strict::String(s) => {
            assert_eq!(ours.str().as_deref(), Some(s.as_str()));
            assert!(ours.is(s));
            let mut written = Vec::new();
            json::write::string(&mut written, s);
            let back = json::scan(written, &ScanLimits::default()).expect("what we write is JSON");
            assert_eq!(back.root().str().as_deref(), Some(s.as_str()));
        }
        Strict::Array(all) => {
            assert_eq!((ours.kind(), ours.len()), (Kind::Array, all.len()));
            ours.elements().zip(all).for_each(|(ours, theirs)| same(ours, theirs));
        }
        Strict::Object(all) => {
            assert_eq!((ours.kind(), ours.len()), (Kind::Object, all.len()));
            for (key, theirs) in all {
                same(ours.get(key).expect("the same keys"), theirs);
            }
        }
    }
}

/// A value as serde reads it, with a key that comes twice as the error that it is to us.
enum Strict {
    Null,
    Bool(bool),
    U64(u64),
    /// Negative or not whole: looked at as text only.
    Number,
    String(String),
    Array(Vec<Strict>),
    Object(BTreeMap<String, Strict>),
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Strict, E> {
        Ok(Strict::Bool(b))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Strict, E> {
        Ok(Strict::U64(n))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
        Ok(Strict::Number)
    }

    fn visit_str<E>(self, s: &str) -> Result<Strict, E> {
        Ok(Strict::String(s.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = seq.next_element()? {
            all.push(one);
        }
        Ok(Strict::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, Strict>()? {
            if all.insert(key, value).is_some() {
                return Err(de::Error::custom("a key twice"));
            }
        }
        Ok(Strict::Object(all))
    }
}
