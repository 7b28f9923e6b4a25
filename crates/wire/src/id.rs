//! A request id or progress token, byte for byte.

use json::{Node, NodeKind};

/// The raw JSON of a string or an integer. Short ids (nearly all) are stored inline.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Repr);

const INLINE_MAX: usize = 22;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Heap(Box<str>),
}

impl RequestId {
    /// Accepts strings and integers of any size; `None` for everything else.
    pub fn read(node: Node<'_>) -> Option<Self> {
        match node.kind() {
            NodeKind::String => Some(Self::from_raw(node.raw())),
            NodeKind::Number if node.is_plain_integer() => Some(Self::from_raw(node.raw())),
            _ => None,
        }
    }

    pub fn from_number(n: u64) -> Self {
        Self::from_raw(&n.to_string())
    }

    fn from_raw(raw: &str) -> Self {
        let mut bytes = [0; INLINE_MAX];
        match bytes.get_mut(..raw.len()) {
            Some(prefix) => {
                prefix.copy_from_slice(raw.as_bytes());
                Self(Repr::Inline { len: raw.len() as u8, bytes })
            }
            None => Self(Repr::Heap(raw.into())),
        }
    }

    /// The JSON, byte for byte.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(raw) => raw.as_bytes(),
        }
    }
}

impl std::fmt::Debug for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}
