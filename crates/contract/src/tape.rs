//! Lets `jsonschema` validate nodes of the tape. A valid instance is never converted to a `serde_json::Value`.

use std::borrow::Cow;

use json::{Decimal, Elements, Members, Node, NodeKind};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, JsonNumber, Node as SchemaNode, NodeIdentity, Object};
use serde_json::Value;

use crate::canonical::write_canonical;
use crate::validation_budget;

pub(crate) struct Tape;

/// A value on the tape, or the name of a property (`propertyNames` validates names as strings).
#[derive(Clone, Copy)]
pub(crate) enum TapeNode<'a> {
    Value(Node<'a>),
    PropertyName(&'a str),
}

impl<'a> TapeNode<'a> {
    fn node(&self, kind: NodeKind) -> Option<Node<'a>> {
        match self {
            Self::Value(node) if node.kind() == kind => Some(*node),
            Self::Value(_) | Self::PropertyName(_) => None,
        }
    }

    /// The exact value of a number.
    pub(crate) fn decimal(&self) -> Option<Decimal<'a>> {
        self.node(NodeKind::Number)?.decimal()
    }

    /// The value of a number without fraction and exponent, if it fits: the common case.
    #[inline]
    pub(crate) fn plain_i64(&self) -> Option<i64> {
        match self {
            Self::Value(node) if node.is_plain_integer() => node.raw().parse().ok(),
            Self::Value(_) | Self::PropertyName(_) => None,
        }
    }

    /// The length of the JSON text.
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Value(node) => node.raw().len() as u64,
            Self::PropertyName(name) => name.len() as u64,
        }
    }

    /// The canonical form of the value.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Value(node) => write_canonical(&mut out, *node),
            Self::PropertyName(name) => json::write::string(&mut out, name),
        }
        out
    }
}

impl Json for Tape {
    type Node<'a> = TapeNode<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(TapeNode<'_>) -> T) -> T {
        f(TapeNode::PropertyName(string))
    }
}

/// A number by its digits.
pub(crate) struct TapeNumber<'a>(Node<'a>);

impl JsonNumber for TapeNumber<'_> {
    fn as_u64(&self) -> Option<u64> {
        self.0.u64()
    }

    fn as_i64(&self) -> Option<i64> {
        if self.0.is_plain_integer() { self.0.raw().parse().ok() } else { None }
    }

    fn as_f64(&self) -> Option<f64> {
        self.0.raw().parse().ok()
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0.raw())
    }

    fn to_number(&self) -> Cow<'_, serde_json::Number> {
        // Only for error texts. `serde_json` cannot hold every number.
        Cow::Owned(serde_json::from_str(self.0.raw()).unwrap_or_else(|_| 0.into()))
    }

    fn is_integer(&self) -> bool {
        self.0.is_plain_integer() || self.0.decimal().is_some_and(|number| number.is_integer())
    }
}

impl<'a> SchemaNode<'a, Tape> for TapeNode<'a> {
    type Object = Node<'a>;
    type Array = Node<'a>;
    type Number = TapeNumber<'a>;

    #[inline]
    fn as_object(&self) -> Option<Node<'a>> {
        self.node(NodeKind::Object).filter(|_| validation_budget::charge(1))
    }

    fn as_array(&self) -> Option<Node<'a>> {
        self.node(NodeKind::Array).filter(|_| validation_budget::charge(1))
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Value(node) => node.str(),
            Self::PropertyName(name) => Some(Cow::Borrowed(name)),
        }
    }

    fn as_number(&self) -> Option<TapeNumber<'a>> {
        self.node(NodeKind::Number).map(TapeNumber)
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Value(node) => node.bool(),
            Self::PropertyName(_) => None,
        }
    }

    fn is_null(&self) -> bool {
        self.node(NodeKind::Null).is_some()
    }

    #[inline]
    fn json_type(&self) -> JsonType {
        match self {
            Self::PropertyName(_) => JsonType::String,
            Self::Value(node) => match node.kind() {
                NodeKind::Null => JsonType::Null,
                NodeKind::True | NodeKind::False => JsonType::Boolean,
                NodeKind::Number => JsonType::Number,
                NodeKind::String => JsonType::String,
                NodeKind::Array => JsonType::Array,
                NodeKind::Object => JsonType::Object,
            },
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match expected {
            Value::String(s) => self.as_string().is_some_and(|x| x == s.as_str()),
            Value::Bool(b) => self.as_boolean() == Some(*b),
            Value::Null => self.is_null(),
            // The private keywords compare these, so the library should not ask. If it does, compare exactly.
            Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                let expected = expected.to_string();
                let expected = json::parse(expected.into_bytes(), &json::ParseLimits::default());
                expected.is_ok_and(|doc| TapeNode::Value(doc.root()).canonical() == self.canonical())
            }
        }
    }

    /// The library attaches the instance to each error. No error text shows it, so it is not built.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        match self {
            Self::Value(node) => Some(NodeIdentity::tagged(node.raw().as_ptr() as usize, node.index())),
            Self::PropertyName(_) => None,
        }
    }
}

impl<'a> Object<'a, Tape> for Node<'a> {
    type Node = TapeNode<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = MemberIter<'a>;

    fn len(&self) -> usize {
        Node::len(self)
    }

    #[inline]
    fn get(&self, key: &Box<str>) -> Option<TapeNode<'a>> {
        Node::get(self, key).map(TapeNode::Value)
    }

    #[inline]
    fn members(&self) -> MemberIter<'a> {
        MemberIter(Node::members(self))
    }
}

pub(crate) struct MemberIter<'a>(Members<'a>);

impl<'a> Iterator for MemberIter<'a> {
    type Item = (Cow<'a, str>, TapeNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.str().unwrap_or_default(), TapeNode::Value(value)))
    }
}

impl<'a> Array<'a, Tape> for Node<'a> {
    type Node = TapeNode<'a>;
    type ElementsIter = ElementIter<'a>;

    fn len(&self) -> usize {
        Node::len(self)
    }

    fn elements(&self) -> ElementIter<'a> {
        ElementIter(Node::elements(self))
    }

    fn is_unique(&self) -> bool {
        if !validation_budget::charge(1 + self.raw().len() as u64 / 16) {
            return false;
        }
        let mut items: Vec<Vec<u8>> = Array::elements(self).map(|item| item.canonical()).collect();
        items.sort_unstable();
        items.windows(2).all(|pair| pair[0] != pair[1])
    }
}

pub(crate) struct ElementIter<'a>(Elements<'a>);

impl<'a> Iterator for ElementIter<'a> {
    type Item = TapeNode<'a>;

    fn next(&mut self) -> Option<TapeNode<'a>> {
        self.0.next().map(TapeNode::Value)
    }
}
