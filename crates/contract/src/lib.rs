//! What a server promises, compiled once and checked on every call.
//!
//! A [`Check`] is a JSON Schema compiled for the tape that `json` leaves: the arguments of a call are judged
//! where they lie, without building values. [`mirrored`] finds the arguments that travel in headers too.
//!
//! [`source`] is the seam to where data lives; [`kind`], [`infer`] and [`order`] say what a column's values
//! are and how they stand to each other, for every source alike.
//!
//! Deliberately absent: I/O of any kind. A `$ref` that leaves the schema is an error, never a fetch.

pub mod bind;
mod cell;
mod check;
pub mod compile;
mod contract;
pub mod cursor;
pub mod diagnostic;
pub mod field;
mod headers;
pub mod infer;
pub mod init;
pub mod judge;
pub mod kind;
mod line;
pub mod lint;
pub mod lock;
mod loops;
pub mod manifest;
pub mod names;
mod nearest;
pub mod order;
pub mod question;
mod schemas;
pub mod shape;
pub mod source;
mod tape;
pub mod time;
pub mod tokens;
pub mod words;

pub use cell::{Cell, Value};
pub use check::{BadSchema, Check};
pub use contract::{
    Argument, Collection, Confirm, Contract, Meaning, Operation, Rate, Returns, Statement, Tool, VERSION,
    Versioning, Writes,
};
pub use headers::{Mirrored, mirrored};
pub use kind::Kind;
pub use line::{BadLine, Line};
pub use nearest::nearest;
