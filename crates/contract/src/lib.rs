//! The contract of a server: compiled once from a manifest and its data, then used by every call.
//!
//! - [`manifest`] parses `spile.toml`; [`compile`] turns it and the [source facts](source::SourceFacts) into a
//!   [`Contract`]: tools with their schemas, collections and statements.
//! - [`CompiledSchema`] validates arguments on the tape that `json` produces, without building values;
//!   [`bind`] turns them into values; [`results`] turns rows into results.
//! - [`access`] says which part of a contract a caller sees, and restricts every read to the caller's rows.
//! - [`compatibility`] and [`mod@lock`] compare a contract with the one that was published before.
//! - [`source`] defines the traits that a data source implements; [`data_type`], [`infer`] and [`order`] define
//!   the types of columns and the order of values, for every source alike.
//!
//! This crate does no I/O. A `$ref` that leaves its schema is an error and is never fetched.

pub mod access;
pub mod aggregate;
pub mod bind;
mod canonical;
pub mod column_format;
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
pub mod request;
pub mod results;
mod schema_complexity;
mod schemas;
pub mod source;
mod tape;
mod text_template;
mod time_zone;
pub mod tokens;
mod toml_text;
mod validate;
mod validation_budget;
mod value;
mod wide;

pub use column_format::ColumnFormat;
pub use contract::{
    Argument, Cardinality, Collection, Confirm, Contract, INCLUDES_MAX, LINK_DEPTH_MAX, LINK_KEYS_MAX, Link,
    NOTICES_FIELD, NOTICES_MEMBER, NoticeSupport, Overview, RateLimit, Request, Returns, Statement, Tool,
    ToolOperation, VERSION_FIELD, Versioning, WritePolicy,
};
pub use data_type::DataType;
pub use header_params::{HeaderParam, header_params};
pub use nearest::nearest;
pub use text_template::{TemplateError, TextTemplate};
pub use time_zone::TimeZone;
pub use toml_text::{toml_key, toml_string};
pub use validate::{CompiledSchema, SchemaError};
pub use value::{Value, ValueRef};
