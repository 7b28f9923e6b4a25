//! What a tool promises, compiled once and checked on every call.
//!
//! A [`Check`] is a JSON Schema compiled for the tape that `json` leaves: the arguments of a call are judged
//! where they lie, without building values. [`mirrored`] finds the arguments that travel in headers too.
//!
//! Deliberately absent: I/O of any kind. A `$ref` that leaves the schema is an error, never a fetch.

mod check;
mod headers;
mod nearest;
mod tape;

pub use check::{BadSchema, Check};
pub use headers::{Mirrored, mirrored};
pub use nearest::nearest;
