//! An owned piece of JSON that is known to be valid.

use std::fmt;

use crate::node::Node;
use crate::scan::{Doc, ScanError, ScanLimits, scan};
use crate::write::ObjectWriter;

/// Valid JSON on one line, owned. What it says is kept as text until somebody scans it.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Takes text from a trusted or untrusted place; it is scanned and compacted.
    pub fn parse(text: &str) -> Result<Self, ScanError> {
        let doc = scan(text.as_bytes().to_vec(), &ScanLimits::default())?;
        Ok(Self::from(doc.root()))
    }

    /// Writes an object member by member.
    pub fn object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Self {
        let mut out = Vec::with_capacity(128);
        let mut object = ObjectWriter::new(&mut out);
        fill(&mut object);
        object.end();
        Self::from_written_bytes(out)
    }

    /// Takes over what the functions of [`write`](crate::write) wrote.
    ///
    /// # Panics
    /// If the bytes are not UTF-8, which those functions cannot make from `&str`.
    pub fn from_written_bytes(out: Vec<u8>) -> Self {
        Self(String::from_utf8(out).expect("written from &str"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as a document to look into.
    pub fn to_doc(&self) -> Doc {
        let limits = ScanLimits { depth_max: 256, slots_max: usize::MAX };
        scan(self.0.as_bytes().to_vec(), &limits).expect("Json is valid by construction")
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
