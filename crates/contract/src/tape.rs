//! The tape as a representation that `jsonschema` can walk: no value is built on the happy path.

use std::borrow::Cow;

use json::{Elements, Kind, Members, Node};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, JsonNumber, Node as SchemaNode, NodeIdentity, Object};
use serde_json::Value;

pub(crate) struct Tape;

/// A value on the tape, or the name of a property (which `propertyNames` treats as a value).
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    Tape(Node<'a>),
    Name(&'a str),
}

impl<'a> On<'a> {
    fn node(&self, kind: Kind) -> Option<Node<'a>> {
        match self {
            Self::Tape(node) if node.kind() == kind => Some(*node),
            Self::Tape(_) | Self::Name(_) => None,
        }
    }
}

impl Json for Tape {
    type Node<'a> = On<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(On<'_>) -> T) -> T {
        f(On::Name(string))
    }
}

/// A number as its digits.
pub(crate) struct Digits<'a>(Node<'a>);

impl JsonNumber for Digits<'_> {
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
        // A number beyond what serde_json holds is only shown in an error; the digits judged are ours.
        Cow::Owned(serde_json::from_str(self.0.raw()).unwrap_or_else(|_| 0.into()))
    }

    fn is_integer(&self) -> bool {
        self.0.is_plain_integer() || self.as_f64().is_some_and(|f| f.fract() == 0.0)
    }
}

impl<'a> SchemaNode<'a, Tape> for On<'a> {
    type Object = Node<'a>;
    type Array = Node<'a>;
    type Number = Digits<'a>;

    #[inline]
    fn as_object(&self) -> Option<Node<'a>> {
        self.node(Kind::Object)
    }

    fn as_array(&self) -> Option<Node<'a>> {
        self.node(Kind::Array)
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Tape(node) => node.str(),
            Self::Name(name) => Some(Cow::Borrowed(name)),
        }
    }

    fn as_number(&self) -> Option<Digits<'a>> {
        self.node(Kind::Number).map(Digits)
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Tape(node) => node.bool(),
            Self::Name(_) => None,
        }
    }

    fn is_null(&self) -> bool {
        self.node(Kind::Null).is_some()
    }

    #[inline]
    fn json_type(&self) -> JsonType {
        match self {
            Self::Name(_) => JsonType::String,
            Self::Tape(node) => match node.kind() {
                Kind::Null => JsonType::Null,
                Kind::True | Kind::False => JsonType::Boolean,
                Kind::Number => JsonType::Number,
                Kind::String => JsonType::String,
                Kind::Array => JsonType::Array,
                Kind::Object => JsonType::Object,
            },
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match expected {
            Value::String(s) => self.as_string().is_some_and(|x| x == s.as_str()),
            Value::Bool(b) => self.as_boolean() == Some(*b),
            Value::Null => self.is_null(),
            Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                jsonschema::json::cmp::equal(&self.to_value(), expected)
            }
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(match self {
            // serde_json refuses numbers beyond a float, which are valid JSON all the same.
            Self::Tape(node) => serde_json::from_str(node.raw()).unwrap_or(Value::Null),
            Self::Name(name) => Value::String((*name).into()),
        })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        match self {
            Self::Tape(node) => Some(NodeIdentity::tagged(node.raw().as_ptr() as usize, node.at())),
            Self::Name(_) => None,
        }
    }
}

impl<'a> Object<'a, Tape> for Node<'a> {
    type Node = On<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = Named<'a>;

    fn len(&self) -> usize {
        Node::len(self)
    }

    #[inline]
    fn get(&self, key: &Box<str>) -> Option<On<'a>> {
        Node::get(self, key).map(On::Tape)
    }

    #[inline]
    fn members(&self) -> Named<'a> {
        Named(Node::members(self))
    }
}

pub(crate) struct Named<'a>(Members<'a>);

impl<'a> Iterator for Named<'a> {
    type Item = (Cow<'a, str>, On<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.str().unwrap_or_default(), On::Tape(value)))
    }
}

impl<'a> Array<'a, Tape> for Node<'a> {
    type Node = On<'a>;
    type ElementsIter = Each<'a>;

    fn len(&self) -> usize {
        Node::len(self)
    }

    fn elements(&self) -> Each<'a> {
        Each(Node::elements(self))
    }
}

pub(crate) struct Each<'a>(Elements<'a>);

impl<'a> Iterator for Each<'a> {
    type Item = On<'a>;

    fn next(&mut self) -> Option<On<'a>> {
        self.0.next().map(On::Tape)
    }
}
