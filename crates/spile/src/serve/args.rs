//! The options of `serve`, `dev` and packed servers.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::project::SourceFailurePolicy;
use crate::server_state::ServerState;
use crate::settings::{self, EnvNames};

/// How to serve. Without a bind address or a socket: on stdin and stdout.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Serve over HTTP at this address, e.g. 127.0.0.1:3333; a port alone (3333 or :3333) means this machine only
    #[arg(long, visible_alias = "port", value_name = "ADDR", value_parser = parse_address)]
    pub bind: Option<SocketAddr>,

    /// Serve over HTTP at SPILE_HOST (127.0.0.1) and PORT (3333), unless --bind gives the address
    #[arg(long)]
    pub http: bool,

    /// Serve on a unix socket at this path, as HTTP or as a plain pipe; can be combined with --bind or --http. If TCP is not permitted, --bind and --http use SPILE_SOCKET instead
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Serve over HTTPS with the certificate chain in this PEM file (or SPILE_TLS_CERT); reread when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, a PEM file without a passphrase (or SPILE_TLS_KEY)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Require the bearer token in this file (or in SPILE_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Encryption keys for session ids and cursors (or SPILE_KEY_FILE); replicas that share the file accept each other's.
    /// Default: a file in the user's state folder
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Database for pending elicitations and the state of interrupted calls (or SPILE_STORE_FILE); replicas that share it and
    /// the key file continue each other's calls. Default: a file in the user's state folder, when it is needed
    #[arg(long, value_name = "FILE")]
    pub store_file: Option<PathBuf>,

    /// Require no token, even if other machines can reach the server
    #[arg(long)]
    pub no_auth: bool,

    /// Accept this host name in addition to localhost; can be repeated
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    pub allow_host: Vec<String>,

    /// Accept browser requests from this web origin, e.g. https://app.example; can be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    pub allow_origin: Vec<String>,

    /// Do not offer the deprecated HTTP+SSE transport of 2024-11-05 (/sse and /messages)
    #[arg(long)]
    pub no_sse: bool,

    /// Do not serve the status page at / (name, tools, how to connect, recent calls)
    #[arg(long)]
    pub no_page: bool,

    /// Fail if any source is unavailable (default: serve the others)
    #[arg(long)]
    pub strict: bool,

    /// Format of log lines on stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Log every call and every refused request; -vv logs everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `127.0.0.1:3333`, `localhost:3333`, or a port alone, with or without a colon, which means this machine only.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    let loopback = port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    loopback
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "expected an address with a port, such as 127.0.0.1:3333, or a port alone".into())
}

pub(super) const ONE_SERVER_ONLY: &str = "stdin and stdout can serve one server only; \
                                          name one path, or serve them all over HTTP with --http";

/// A host name or an address, without a port.
fn parse_host(text: &str) -> Result<String, String> {
    let is_host = !text.is_empty() && !text.contains([':', '/', '*']) || text.parse::<IpAddr>().is_ok();
    match is_host {
        true => Ok(text.to_owned()),
        false => Err("expected a host name or an address without a port, such as mcp.example".into()),
    }
}

/// A scheme and a host.
fn parse_origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
        true => Ok(text.to_owned()),
        false => Err("expected a scheme and a host, such as https://app.example".into()),
    }
}

impl ServeArgs {
    pub fn source_failures(&self) -> SourceFailurePolicy {
        if self.strict { SourceFailurePolicy::Fail } else { SourceFailurePolicy::Skip }
    }

    /// The keys and the store: from the named files, else from the user's state folder.
    pub fn state(&self) -> anyhow::Result<ServerState> {
        ServerState::open(self.key_file.as_deref(), self.store_file.as_deref())
    }

    #[cfg(unix)]
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    #[cfg(not(unix))]
    pub(crate) fn socket(&self) -> Option<&Path> {
        None
    }

    /// Whether it serves an address or a socket, not stdin and stdout.
    pub(crate) fn is_network(&self) -> bool {
        self.bind.is_some() || self.http || self.socket().is_some()
    }

    /// Refuses several servers on stdin and stdout.
    pub fn check_server_count(&self, count: usize) -> anyhow::Result<()> {
        if count > 1 && !self.is_network() {
            bail!(ONE_SERVER_ONLY);
        }
        Ok(())
    }

    /// The address to listen on; `None` means stdin and stdout.
    pub(super) fn listen_address(&self, env: EnvNames) -> anyhow::Result<Option<SocketAddr>> {
        if self.bind.is_some() || !self.http {
            return Ok(self.bind);
        }
        let host = env.host()?.unwrap_or_else(|| "127.0.0.1".into());
        let port = settings::port()?;
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let found = std::net::ToSocketAddrs::to_socket_addrs(&authority).ok().and_then(|mut all| all.next());
        found.map(Some).with_context(|| {
            format!("SPILE_HOST: `{host}` is not an address or a known host name; put the port into PORT")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn a_port_alone_means_this_machine_only() {
        for (text, expected) in [
            ("3405", "127.0.0.1:3405"),
            (":3405", "127.0.0.1:3405"),
            ("localhost:3405", "127.0.0.1:3405"),
            ("0.0.0.0:3405", "0.0.0.0:3405"),
            ("[::1]:3405", "[::1]:3405"),
        ] {
            assert_eq!(parse_address(text).map(|address| address.to_string()).as_deref(), Ok(expected));
        }
        for text in ["", ":", "localhost", "localhost3405x", "host:3405", ":70000", "127.0.0.1"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
