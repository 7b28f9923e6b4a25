//! Reads untrusted JSON in one pass and writes JSON.
//!
//! [`parse`] walks a text once and returns a tape of spans. It checks grammar, depth, number of values and
//! duplicate keys, so all later code works on a [`Doc`] that is known to be valid. A number keeps its digits
//! and a string its escapes until a caller asks for the value. [`write`] has the functions that produce JSON;
//! [`Json`] is an owned text that is known to be valid.
//!
//! Deliberately absent: a tree of values, floating point, JSON-RPC, MCP and I/O.

mod decimal;
mod node;
mod owned;
mod parse;
pub mod write;

pub use decimal::{Decimal, exact_f64};
pub use node::{Elements, Members, Node, NodeKind};
pub use owned::Json;
pub use parse::{Doc, JsonError, JsonErrorKind, ParseLimits, parse};
