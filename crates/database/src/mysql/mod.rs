//! MySQL and MariaDB.

mod connect;
mod decode;
mod dialect;
mod full_text;
mod grants;
mod introspect;
mod server_error;
mod session;

pub(crate) use connect::MySql;
pub(crate) use dialect::MySqlDialect;
