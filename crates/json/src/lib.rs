//! Untrusted JSON, read once; trusted JSON, written once.
//!
//! [`scan`] walks a text a single time and leaves a tape of spans: grammar, depth, number of values and
//! duplicate keys are settled there, so everything after it works on a [`Doc`] that cannot be wrong. A
//! number keeps its digits and a string its escapes until somebody asks for the value. [`write`] holds the
//! few functions that make JSON, and [`Json`] is an owned piece of text that is known to be valid.
//!
//! Deliberately absent: a tree of values, floating point, any notion of JSON-RPC or MCP, and I/O.

mod node;
mod owned;
mod scan;
pub mod write;

pub use node::{Elements, Members, Node, NodeKind};
pub use owned::Json;
pub use scan::{Doc, ScanError, ScanErrorKind, ScanLimits, scan};
