//! What a server promises, compiled once and checked on every call.
//!
//! A [`Check`] is a JSON Schema compiled for the tape that `json` leaves: the arguments of a call are judged
//! where they lie, without building values. [`mirrored`] finds the arguments that travel in headers too.
//!
//! [`source`] is the seam to where data lives; [`kind`], [`infer`] and [`order`] say what a column's values
//! are and how they stand to each other, for every source alike.
//!
//! Deliberately absent: I/O of any kind. A `$ref` that leaves the schema is an error, never a fetch.

mod cell;
mod check;
mod headers;
pub mod infer;
pub mod kind;
mod nearest;
pub mod order;
pub mod source;
mod tape;
mod time;

pub use cell::{Cell, Value};
pub use check::{BadSchema, Check};
pub use headers::{Mirrored, mirrored};
pub use kind::Kind;
pub use nearest::nearest;
