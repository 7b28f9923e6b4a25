//! Opens connections to MySQL and MariaDB.

use contract::source::SourceError;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, SslOpts};

use super::introspect;
use super::session::MyConnection;
use crate::call::CallLimits;
use crate::connection::{Connection, Engine};
use crate::error::unavailable;
use crate::options::Options;
use crate::tls;
use crate::url::{invalid_url, is_loopback, split_parameter};

/// What every session is set to: values are printed the same everywhere, a value that does not fit is an error, and a statement
/// only reads unless its transaction says otherwise.
///
/// Texts are sorted by their first `max_sort_length` bytes only, and positions among them are up to 4 KiB long. The buffer holds 15
/// of them at least.
const SESSION: [&str; 3] = [
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO', \
     innodb_lock_wait_timeout = 5, group_concat_max_len = 1048576, max_sort_length = 65535, sort_buffer_size = 2097152",
    "SET SESSION TRANSACTION READ ONLY",
];
const STATEMENTS_MAX: usize = 256;
/// A connection on which nothing happens is looked after so often.
const KEEPALIVE_MS: u32 = 30_000;

/// Where to connect, and how.
pub(crate) struct MySql {
    opts: Opts,
    call_ms_max: u64,
}

impl MySql {
    pub(crate) fn new(options: &Options) -> Result<Self, SourceError> {
        let (url, mode) = split_ssl_mode(&options.url);
        let opts = Opts::from_url(&url).map_err(|error| invalid_url(&error.to_string()))?;
        let is_local = opts.socket().is_some() || is_loopback(opts.ip_or_hostname());
        let mut builder = OptsBuilder::from_opts(opts.clone());
        if let Some(password) = &options.password {
            builder = builder.pass(Some(password.clone()));
        }
        let uses_tls = match mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("disabled" | "disable") => false,
            Some("required" | "require" | "verify_ca" | "verify_identity" | "verify-ca" | "verify-full") => {
                true
            }
            None => !is_local || options.ca_file.is_some(),
            Some(_) => return Err(invalid_url("`ssl-mode` must be `disabled` or `required`")),
        };
        if uses_tls {
            let roots: Vec<_> = match &options.ca_file {
                Some(file) => vec![file.clone().into()],
                None => {
                    let roots = tls::system_roots().map_err(|error| invalid_url(&error))?;
                    roots.into_iter().map(|root| root.to_vec().into()).collect()
                }
            };
            // The driver brings authorities of its own.
            builder =
                builder.ssl_opts(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true));
        }
        let prefers_socket = opts.socket().is_some();
        builder = builder
            .prefer_socket(prefers_socket)
            .client_found_rows(true)
            .tcp_keepalive(Some(KEEPALIVE_MS))
            .stmt_cache_size(STATEMENTS_MAX)
            .setup(SESSION.map(str::to_owned).to_vec());
        Ok(Self { opts: builder.into(), call_ms_max: options.call_ms_max })
    }
}

impl Engine for MySql {
    fn connect(&self, limits: &CallLimits<'_>) -> Result<Box<dyn Connection>, SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unavailable(error.to_string()))?;
        let attempt = async {
            let mut conn = Conn::new(self.opts.clone()).await?;
            limit_statements(&mut conn, self.call_ms_max).await?;
            Ok(conn)
        };
        match runtime.block_on(limits.connect(attempt, connect_error)) {
            Ok(conn) => Ok(Box::new(MyConnection::new(runtime, conn, self.opts.clone()))),
            Err(error) => {
                // A name may still be looked up, on a thread that cannot be stopped.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }
}

/// Limits the time of statements, which the two servers spell differently.
async fn limit_statements(conn: &mut Conn, call_ms_max: u64) -> Result<(), Error> {
    let version: Option<Row> = conn.query_first("SELECT VERSION()").await?;
    let version = version.and_then(|row| introspect::text(&row, 0));
    let limit = match version.is_some_and(|version| version.contains("MariaDB")) {
        true => format!("SET SESSION max_statement_time = {}", call_ms_max.div_ceil(1000)),
        false => format!("SET SESSION max_execution_time = {call_ms_max}"),
    };
    conn.query_drop(limit).await
}

/// What is wrong, for the operator; callers learn only that the database cannot be reached.
fn connect_error(error: Error) -> SourceError {
    let detail = error.to_string();
    let code = if let Error::Server(server) = &error { server.code } else { 0 };
    match code {
        1045 | 1698 | 1044 => SourceError::Unavailable {
            message: "the database does not accept the user or the password".into(),
            detail,
        },
        1049 => SourceError::Unavailable { message: "there is no such database".into(), detail },
        _ => unavailable(detail),
    }
}

/// The URL as the driver reads it, and its `ssl-mode`, which the driver does not know.
fn split_ssl_mode(url: &str) -> (String, Option<String>) {
    let url = url.split_once("://").map_or_else(|| url.to_owned(), |(_, rest)| format!("mysql://{rest}"));
    split_parameter(&url, &["ssl-mode", "sslmode"])
}

#[cfg(test)]
mod tests {
    use super::{MySql, Options};

    #[test]
    fn the_network_is_encrypted_unless_it_is_this_machine_or_the_url_says_no() {
        for (url, expected) in [
            ("mysql://a@localhost/x", false),
            ("mariadb://a@127.0.0.1/x", false),
            ("mysql://a@localhost/x?socket=/tmp/s", false),
            ("mysql://a@db.example.com/x", true),
            ("mysql://a@db.example.com/x?ssl-mode=DISABLED", false),
            ("mysql://a@localhost/x?ssl-mode=required", true),
        ] {
            let has_tls = MySql::new(&Options::new(url)).map(|made| made.opts.ssl_opts().is_some());
            assert_eq!(has_tls.ok(), Some(expected), "{url}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_an_error_without_its_password() {
        for url in ["mysql://eve:secret@db/x?ssl-mode=preferred", "mysql://eve:secret@db/x?nonsense=1"] {
            let error =
                MySql::new(&Options::new(url)).map(|_| ()).map_err(|error| format!("{error} {error:?}"));
            assert!(!error.expect_err("a bad URL").contains("secret"), "{url}");
        }
    }
}
