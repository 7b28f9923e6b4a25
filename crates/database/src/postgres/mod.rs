//! PostgreSQL.

mod connect;
mod decode;
mod dialect;
mod introspect;
mod lookups;
mod server_error;
mod session;
mod text_vector;
mod tls;

pub(crate) use connect::Postgres;
pub(crate) use dialect::PostgresDialect;
