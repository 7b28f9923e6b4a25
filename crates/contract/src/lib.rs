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
mod canonical;
pub mod compatibility;
pub mod compile;
pub mod confirmation;
mod contract;
pub mod cursor;
pub mod data_type;
pub mod diagnostic;
pub mod field;
mod header_params;
pub mod humanize;
pub mod infer;
pub mod init;
mod keywords;
pub mod lint;
pub mod lock;
pub mod manifest;
pub mod names;
mod nearest;
pub mod order;
mod ref_cycles;
pub mod results;
mod schema_shape;
mod schemas;
pub mod source;
mod tape;
mod text_template;
pub mod time;
pub mod tokens;
mod validate;
mod value;
mod work;

pub use contract::{
    Argument, ArgumentRole, Collection, Confirm, Contract, RateLimit, Returns, Statement, Tool,
    ToolOperation, VERSION_FIELD, Versioning, WritePolicy,
};
pub use data_type::DataType;
pub use header_params::{HeaderParam, header_params};
pub use nearest::nearest;
pub use text_template::{TemplateError, TextTemplate};
pub use validate::{CompiledSchema, SchemaError};
pub use value::{Value, ValueRef};
