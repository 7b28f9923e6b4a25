//! Owned JSON text that is known to be valid.

use std::fmt;

use crate::node::Node;
use crate::parse::{Doc, JsonError, ParseLimits, parse};
use crate::write::ObjectWriter;

/// Valid, compact JSON on one line. It stays text until a caller scans it with [`Json::to_doc`].
#[derive(Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Scans text from any source, trusted or not, and compacts it.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let doc = parse(text.as_bytes().to_vec(), &ParseLimits::default())?;
        Ok(Self::from(doc.root()))
    }

    /// A JSON string with this text.
    pub fn string(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 2);
        crate::write::string(&mut out, text);
        Self::from_written_bytes(out)
    }

    /// Builds an object; `fill` writes its members.
    pub fn object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Self {
        let mut out = Vec::with_capacity(128);
        let mut object = ObjectWriter::new(&mut out);
        fill(&mut object);
        object.end();
        Self::from_written_bytes(out)
    }

    /// Wraps bytes that the functions of [`write`](crate::write) wrote.
    ///
    /// # Panics
    /// If the bytes are not UTF-8. Those functions only write UTF-8.
    pub fn from_written_bytes(out: Vec<u8>) -> Self {
        Self(String::from_utf8(out).expect("JSON writers only write UTF-8"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Scans the text, to read values from it.
    pub fn to_doc(&self) -> Doc {
        let limits = ParseLimits { depth_max: 256, values_max: usize::MAX };
        parse(self.0.as_bytes().to_vec(), &limits).expect("Json is valid by construction")
    }

    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl From<Node<'_>> for Json {
    fn from(node: Node<'_>) -> Self {
        let mut out = Vec::with_capacity(node.raw().len());
        node.write_compact(&mut out);
        Self::from_written_bytes(out)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
