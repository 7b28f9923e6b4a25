//! Opens connections to PostgreSQL.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use contract::source::{QuickReadFuture, SourceError};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, NoTls};

use super::lookups::Lookups;
use super::server_error::full_text;
use super::session::{PgConnection, SessionTls};
use super::tls::MakeTls;
use crate::call::{CONNECT_MAX, CallLimits};
use crate::column::Column;
use crate::connection::{Connection, Engine, Sql};
use crate::error::unavailable;
use crate::options::Options;
use crate::tls;
use crate::url::{invalid_url, is_loopback, split_parameter};

/// A connection on which nothing happens is looked after so often, and closed after three looks without an answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// What every session is set to: values are printed the same everywhere, and a statement only reads unless its transaction
/// says otherwise.
const SESSION: &str = "-c default_transaction_read_only=on -c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 \
                       -c extra_float_digits=1 -c bytea_output=hex -c standard_conforming_strings=on -c idle_in_transaction_session_timeout=120000";

/// Where to connect, and how.
pub(crate) struct Postgres {
    config: Config,
    tls: SessionTls,
    lookups: Arc<Lookups>,
}

impl Postgres {
    pub(crate) fn new(options: &Options) -> Result<Self, SourceError> {
        let (url, mode) = split_parameter(&options.url, &["sslmode"]);
        let mut config = Config::from_str(&url).map_err(|error| invalid_url(&full_text(&error)))?;
        if let Some(password) = &options.password {
            config.password(password);
        }
        // Those of the URL come first: the last one counts.
        let own = config.get_options().map_or_else(String::new, |own| format!("{own} "));
        // The database ends a statement whose caller cannot any more.
        let timeout = options.call_ms_max;
        config.options(format!("{own}{SESSION} -c statement_timeout={timeout}"));
        config
            .application_name("spile")
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(Duration::from_secs(30))
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(3);
        let is_local = config.get_hosts().iter().all(is_local);
        let mode = match mode.as_deref() {
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            None if is_local && options.ca_file.is_none() => SslMode::Disable,
            None => SslMode::Require,
            Some(_) => return Err(invalid_url("`sslmode` must be `disable`, `require` or `verify-full`")),
        };
        config.ssl_mode(mode);
        let tls = match mode {
            SslMode::Disable => SessionTls::Off,
            _ => SessionTls::On(MakeTls(
                tls::client_config(options.ca_file.as_deref()).map_err(|error| invalid_url(&error))?,
            )),
        };
        let lookups = Lookups::new(config.clone(), tls.clone());
        Ok(Self { config, tls, lookups })
    }
}

impl Engine for Postgres {
    fn connect(&self, limits: &CallLimits<'_>) -> Result<Box<dyn Connection>, SourceError> {
        let failed = |error: &dyn std::error::Error| unavailable(full_text(error));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        let connected = runtime.block_on(async {
            let attempt = async {
                match &self.tls {
                    SessionTls::Off => {
                        let (client, connection) = self.config.connect(NoTls).await?;
                        tokio::spawn(async move { drop(connection.await) });
                        Ok(client)
                    }
                    SessionTls::On(tls) => {
                        let (client, connection) = self.config.connect(tls.clone()).await?;
                        tokio::spawn(async move { drop(connection.await) });
                        Ok(client)
                    }
                }
            };
            limits.connect(attempt, connect_error).await
        });
        match connected {
            Ok(client) => Ok(Box::new(PgConnection::new(runtime, client, self.tls.clone()))),
            Err(error) => {
                // A name may still be looked up, on a thread that cannot be stopped.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    fn read_quickly(&self, sql: Sql, columns: Arc<[Column]>) -> Option<QuickReadFuture> {
        Some(self.lookups.read(sql, columns))
    }
}

/// What is wrong, for the operator; callers learn only that the database cannot be reached.
fn connect_error(error: tokio_postgres::Error) -> SourceError {
    let detail = full_text(&error);
    match error.as_db_error().map(|error| error.code().code()) {
        Some("28P01" | "28000") => SourceError::Unavailable {
            message: "the database does not accept the user or the password".into(),
            detail,
        },
        Some("3D000") => SourceError::Unavailable { message: "there is no such database".into(), detail },
        _ => unavailable(detail),
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => is_loopback(name),
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, Postgres, SslMode, split_parameter};

    #[test]
    fn the_network_is_encrypted_unless_it_is_this_machine_or_the_url_says_no() {
        for (url, expected) in [
            ("postgres://a@localhost/x", SslMode::Disable),
            ("postgres://a@127.0.0.1/x", SslMode::Disable),
            ("postgres:///x?host=/tmp", SslMode::Disable),
            ("postgres://a@db.example.com/x", SslMode::Require),
            ("postgres://a@localhost/x?sslmode=require", SslMode::Require),
            ("postgres://a@db.example.com/x?sslmode=disable", SslMode::Disable),
            ("postgres://a@db.example.com/x?sslmode=verify-full&application_name=y", SslMode::Require),
        ] {
            let mode = Postgres::new(&Options::new(url)).map(|made| made.config.get_ssl_mode());
            assert_eq!(mode.ok(), Some(expected), "{url}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_an_error_without_its_password() {
        for url in ["postgres://eve:secret@db/x?sslmode=prefer", "postgres://eve:secret@db/x?nonsense=1"] {
            let error =
                Postgres::new(&Options::new(url)).map(|_| ()).map_err(|error| format!("{error} {error:?}"));
            let error = error.expect_err("a bad URL");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_mode_is_taken_out_of_the_url() {
        assert_eq!(
            split_parameter("postgres://a/b?x=1&sslmode=require", &["sslmode"]),
            ("postgres://a/b?x=1".to_owned(), Some("require".to_owned()))
        );
    }
}
