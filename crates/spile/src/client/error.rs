//! Why a client command failed: the message for the person, and the exit code for the shell.

use std::process::ExitCode;

use contract::diagnostic::{Diagnostic, render};
use outbound::{ConnectFailure, OutboundError};
use upstream::{OpenError, ProcessEnd};
use wire::Version;
use wire::client::{ClientError, ServerError};
use wire::error::ErrorCode;

use crate::banner;
use crate::client::output_style::OutputStyle;
use crate::layout;
use crate::sanitize;

/// The exit code of a client command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    /// The tool or the server returned an error.
    Failed = 1,
    /// The command line is invalid, or the arguments do not match the tool's input schema.
    Usage = 2,
    /// Cannot connect to or start the server, or it does not speak MCP.
    Unreachable = 3,
    Timeout = 4,
    /// The server requires a token or refuses access, or the user did not allow the call.
    Refused = 5,
    Interrupted = 130,
}

/// For `--help` of every client command.
pub const EXIT_CODES: &str = "Exit codes:
  0    success
  1    the tool or the server returned an error
  2    invalid usage, or arguments that do not match the tool's input schema
  3    cannot connect to or start the server, or it does not speak MCP
  4    no response in time
  5    the server refused access (HTTP 401 or 403), or a destructive tool was not confirmed
  130  interrupted";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a client command failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    message: Option<String>,
    help: Option<String>,
    /// Printed below the message as it is: a usage line, the last stderr lines of a process.
    details: String,
    /// The server closed the connection; no further step can succeed.
    pub(crate) is_connection_lost: bool,
}

impl CommandError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: Some(sanitize::strip_os_errors(&message.into())),
            help: None,
            details: String::new(),
            is_connection_lost: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// For an error that has been printed already.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: None, help: None, details: String::new(), is_connection_lost: false }
    }

    #[must_use]
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    #[must_use]
    pub(crate) fn details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// Adds how the server's process ended to the error of a lost connection.
    pub(crate) fn with_process_end(self, end: Option<ProcessEnd>) -> Self {
        match end {
            Some(end) if self.is_connection_lost => self.details(end.to_string()),
            _ => self,
        }
    }

    /// Says what a program wrote that exited because it does not speak MCP.
    pub(crate) fn with_foreign_output(self, program: &str, written: Option<&str>) -> Self {
        match written {
            Some(written) if self.exit == Exit::Unreachable => {
                let message = format!("`{program}` does not speak MCP: it wrote `{written}` and exited");
                Self { message: Some(message), ..self }
            }
            _ => self,
        }
    }

    pub(crate) fn print(&self) {
        let Some(message) = &self.message else { return };
        let diagnostic = Diagnostic::error(message);
        let diagnostic = match &self.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        };
        let text = render(&diagnostic, banner::is_color_enabled());
        let text = layout::wrap_lines(&text, OutputStyle::stderr().columns, |_| true);
        banner::print_stderr(format!("{text}{}", sanitize::lines(&self.details)).trim_end());
    }
}

/// The message and the help on one line.
impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, format!("cannot write to stdout: {error}"))
    }
}

/// What the client was doing when the error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Requesting,
}

/// What the command line said about the server, for error messages.
#[derive(Debug, Clone)]
pub(crate) struct ServerLabel {
    /// As typed.
    pub(crate) address: String,
    /// The name of a configured server.
    pub(crate) configured_name: Option<String>,
    /// Whether credentials are sent: `--token-file` or `--header`.
    pub(crate) has_token: bool,
    /// Whether `--protocol` fixes the protocol version.
    pub(crate) has_fixed_protocol: bool,
}

impl CommandError {
    pub(crate) fn from_open_error(error: OpenError, server: &ServerLabel) -> Self {
        match error {
            OpenError::Failed(error) => Self::from_client_error(error, Phase::Connecting, server),
            OpenError::Connect { address, reason, failure }
            | OpenError::Outbound(OutboundError::Connect { address, reason, failure }) => {
                Self::unreachable(&format!("cannot connect to {address}: {reason}"), failure)
            }
            OpenError::Start(error) => Self::new(Exit::Unreachable, error.to_string()),
            OpenError::Child { error: ClientError::ConnectionClosed(_), end } => {
                let message = format!("`{}` {}", end.program, end.exit);
                if end.stderr.is_empty() {
                    Self::new(Exit::Unreachable, format!("{message} and wrote nothing to stderr"))
                        .help("the program must speak MCP on its stdin and stdout, and keep running")
                } else {
                    Self::new(Exit::Unreachable, format!("{message}; its last lines on stderr:"))
                        .details(indented(&end.stderr))
                }
            }
            OpenError::Child { error, end } => {
                Self::from_client_error(error, Phase::Connecting, server).details(indented(&end.stderr))
            }
            OpenError::Outbound(error @ OutboundError::CaFile { .. }) => {
                Self::usage(format!("--cacert: {error}"))
            }
            OpenError::Outbound(error @ (OutboundError::Tls(_) | OutboundError::NoHost(_))) => {
                Self::new(Exit::Unreachable, error.to_string())
            }
        }
    }

    pub(crate) fn from_client_error(error: ClientError, phase: Phase, server: &ServerLabel) -> Self {
        let address = &server.address;
        match error {
            ClientError::Server(error) => Self::from_server_error(error, phase, server),
            ClientError::Unauthorized { status: 401, .. } => {
                let help = match &server.configured_name {
                    _ if server.has_token => {
                        "the server rejected the token; it may be wrong or expired".to_owned()
                    }
                    Some(name) => format!("sign in with `spile login {name}`"),
                    None => {
                        "write the token to a file and add --token-file FILE, or add --header \"Name: value\""
                            .to_owned()
                    }
                };
                Self::new(Exit::Refused, format!("the server at {address} requires a token (HTTP 401)"))
                    .help(help)
            }
            ClientError::Unauthorized { status, challenge } => {
                let refused = Self::new(
                    Exit::Refused,
                    format!("the server at {address} refused access (HTTP {status})"),
                );
                let challenge = challenge.as_deref().and_then(servers::oauth::Challenge::parse);
                let missing = challenge.filter(servers::oauth::Challenge::is_insufficient_scope);
                if let (Some(name), Some(scopes)) =
                    (&server.configured_name, missing.and_then(|missing| missing.scopes))
                {
                    let scopes = banner::shell_quote(&scopes.join(" "));
                    return refused
                        .help(format!("sign in again with `spile login {name} --oauth-scope {scopes}`"));
                }
                refused.help(
                    "the token does not permit this, or the server does not accept this host name \
                     (spile serve: --allow-host)",
                )
            }
            ClientError::HttpStatus { status, text, .. } => {
                Self::from_http_status(status, &text, phase, server)
            }
            ClientError::ProtocolViolation(reason) => {
                Self::new(Exit::Unreachable, format!("{address} does not speak MCP: {reason}"))
            }
            ClientError::UnsupportedVersion(reason) => {
                let error = Self::new(Exit::Unreachable, format!("no common protocol version: {reason}"));
                if server.has_fixed_protocol {
                    error.help("omit --protocol to use the newest version that both sides support")
                } else {
                    let supported: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
                    error.help(format!("supported versions: {}", supported.join(", ")))
                }
            }
            ClientError::Timeout { after_ms, unreadable } => {
                let message = format!("no response within {} s", after_ms as f64 / 1000.0);
                match unreadable {
                    Some(invalid) => Self::new(
                        Exit::Timeout,
                        format!(
                            "{message}; the server sent something that is not a valid message: {invalid}"
                        ),
                    ),
                    None => Self::new(Exit::Timeout, message).help("wait longer with --timeout SECONDS"),
                }
            }
            ClientError::ConnectionClosed(reason) => match phase {
                Phase::Connecting => Self::new(Exit::Unreachable, reason.to_string()),
                Phase::Requesting => {
                    let lost =
                        Self::new(Exit::Unreachable, format!("lost the connection to {address}: {reason}"));
                    Self { is_connection_lost: true, ..lost }
                }
            },
            ClientError::Cancelled => Self::new(Exit::Interrupted, "cancelled"),
            ClientError::InputRefused(reason) => Self::new(
                Exit::Failed,
                format!("the server requested input that this client does not provide: {reason}"),
            ),
            ClientError::Busy => Self::new(Exit::Failed, "too many requests are in flight"),
        }
    }

    fn from_server_error(error: ServerError, phase: Phase, server: &ServerLabel) -> Self {
        let ServerError { code, message, data } = error;
        let address = &server.address;
        if code == ErrorCode::Unauthorized.number() {
            let refused = Self::new(
                Exit::Refused,
                format!("the server at {address} refused access: {message} ({code})"),
            );
            return match address.strip_prefix("unix:") {
                Some(path) => refused.help(http_over_unix_help(path)),
                None => refused,
            };
        }
        match phase {
            Phase::Connecting => {
                Self::new(Exit::Unreachable, format!("{address} rejected the handshake: {message} ({code})"))
            }
            Phase::Requesting => {
                let failed =
                    Self::new(Exit::Failed, format!("the server returned an error: {message} ({code})"));
                match data {
                    Some(data) => failed.details(format!("  {data}\n")),
                    None => failed,
                }
            }
        }
    }

    fn from_http_status(status: u16, text: &str, phase: Phase, server: &ServerLabel) -> Self {
        let body = if text.is_empty() { String::new() } else { format!(": {text}") };
        let address = &server.address;
        let state = match (phase, status) {
            (Phase::Requesting, _) => {
                return Self::new(Exit::Failed, format!("the server returned HTTP {status}{body}"));
            }
            (Phase::Connecting, 408 | 429 | 500..) => "is not ready",
            (Phase::Connecting, _) => "does not speak MCP",
        };
        let error = Self::new(Exit::Unreachable, format!("{address} {state}: HTTP {status}{body}"));
        match path_suggestion(address, status) {
            Some(help) => error.help(help),
            None => error,
        }
    }

    /// Adds help for the usual causes.
    fn unreachable(message: &str, failure: ConnectFailure) -> Self {
        let error = Self::new(Exit::Unreachable, message);
        match failure {
            ConnectFailure::SocketNotFound => {
                error.help("check that the server is running and that this is its socket")
            }
            ConnectFailure::Refused => error.help(
                "start the server first; `spile serve PATH --http` serves at http://127.0.0.1:3333/mcp",
            ),
            ConnectFailure::UnknownIssuer => {
                error.help("if the certificate is your own, trust it or its issuer with --cacert FILE")
            }
            ConnectFailure::NameNotResolved => error.help("check the host name and the network connection"),
            ConnectFailure::NotTls => {
                let address = message.split(": ").next().unwrap_or(message);
                Self::new(Exit::Unreachable, format!("{address}: the server does not use TLS"))
                    .help("use http: instead of https:, or ws: instead of wss:")
            }
            ConnectFailure::Other => error,
        }
    }
}

/// Lines of a process below an error.
fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("  {line}\n")).collect()
}

/// A plain unix socket carries no headers, so no token; the same socket also speaks HTTP.
pub(crate) fn http_over_unix_help(path: &str) -> String {
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.replace('%', "%25").replace('/', "%2F").replace(' ', "%20");
    format!("send the token over HTTP: --url http+unix://{path}/mcp --token-file FILE")
}

/// Suggests the path where the server probably is.
fn path_suggestion(address: &str, status: u16) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    match (status, url.path()) {
        (404, "/mcp") => Some("where one process serves several servers, the path is /mcp/NAME".to_owned()),
        (400 | 404 | 405, path) if matches!(path, "" | "/") || status != 400 && url.has_host() => {
            let mut suggested = url;
            suggested.set_path("/mcp");
            Some(format!("did you mean {suggested}?"))
        }
        (404 | 405, _) => Some("check the path; most servers use /mcp".to_owned()),
        (300..=399, _) => {
            Some("redirects are not followed; use the address that this one redirects to".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::path_suggestion;

    #[test]
    fn an_http_error_suggests_the_usual_path() {
        for (address, status, expected) in [
            ("http://127.0.0.1:3333", 404, Some("did you mean http://127.0.0.1:3333/mcp?")),
            ("https://example.com/?a=1", 405, Some("did you mean https://example.com/mcp?a=1?")),
            (
                "http://127.0.0.1/mcp",
                404,
                Some("where one process serves several servers, the path is /mcp/NAME"),
            ),
            ("http://127.0.0.1/mpc", 404, Some("did you mean http://127.0.0.1/mcp?")),
            ("http://127.0.0.1/mcp", 500, None),
            ("unix:/run/x", 404, Some("check the path; most servers use /mcp")),
        ] {
            assert_eq!(path_suggestion(address, status).as_deref(), expected, "{address} {status}");
        }
    }
}
