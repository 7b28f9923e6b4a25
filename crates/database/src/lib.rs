//! PostgreSQL, MySQL and MariaDB databases.
//!
//! A [`Database`] is a [`Source`](contract::source::Source) like a file: its readers and writers are called on threads that
//! may block, and each call uses one connection of a bounded pool ([ADR 0220](../../../docs/adr/0220-network-databases.md)).
//!
//! - [`connection`]: what one connection does, whatever the engine. A connection runs its own small runtime on the thread of the
//!   call, so that a deadline or a caller who has gone away ends the statement in the database, too.
//! - [`pool`]: at most so many connections, a bounded queue before them, and a source that heals by itself.
//! - [`dialect`]: how an engine spells what `contract` defines: comparisons, order, text. [`select`] writes all statements with it.
//! - `postgres`, `mysql`: connecting, introspection and types of one engine.
//!
//! No value becomes SQL: names come from the catalog of the database and are quoted, everything else is a parameter of a
//! prepared statement. Reads run in read-only transactions.

mod aggregate;
mod call;
mod callers;
mod column;
mod connection;
mod decoded;
mod deferred;
mod dialect;
mod error;
mod idempotency;
mod local_records;
mod lowercase;
mod mysql;
mod operand;
mod options;
mod pool;
mod postgres;
mod read;
mod schema;
mod select;
mod source;
mod statement;
mod tls;
mod url;
mod write;

pub use local_records::{RecordStore, StoredRecord};
pub use options::{CallerMode, Options};
pub use source::Database;
