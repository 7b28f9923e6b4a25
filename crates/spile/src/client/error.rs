//! What is told when something went wrong, and what the shell is told: whose fault it was.

use std::process::ExitCode;

use contract::diagnostic::{Diagnostic, render};
use outbound::OutboundError;
use upstream::{OpenError, ProcessEnd};
use wire::Version;
use wire::client::ClientError;
use wire::error::ErrorCode;

use crate::banner;
use crate::sanitize;

/// How a client command ends, as the shell sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    /// The tool says that it failed, or the server answered with an error.
    Failed = 1,
    /// What was typed makes no sense, or does not fit the tool.
    Usage = 2,
    /// The server cannot be reached or started, or does not speak MCP.
    Unreachable = 3,
    Timeout = 4,
    /// The server wants to know who we are, or refuses us.
    Refused = 5,
    Interrupted = 130,
}

/// For `--help` of every client command.
pub const EXIT_CODES: &str = "Exit codes:
  0    fine
  1    the tool says that it failed, or the server answered with an error
  2    wrong usage, or arguments that do not fit the tool
  3    the server cannot be reached or started, or does not speak MCP
  4    no answer in time
  5    the server refuses us (HTTP 401, 403)
  130  interrupted";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why there is nothing to show.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    message: Option<String>,
    help: Option<String>,
    /// What belongs below it as it is: usage, the last words of a process.
    details: String,
    /// Whether the server went away.
    pub(crate) is_connection_lost: bool,
}

impl CommandError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: Some(strip_os_error(message.into())),
            help: None,
            details: String::new(),
            is_connection_lost: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// All that there is to say has been said.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: None, help: None, details: String::new(), is_connection_lost: false }
    }

    #[must_use]
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    #[must_use]
    pub(crate) fn details(self, below: impl Into<String>) -> Self {
        Self { details: below.into(), ..self }
    }

    /// A connection that was lost is told with how the program behind it ended.
    pub(crate) fn with_process_end(self, end: Option<ProcessEnd>) -> Self {
        match end {
            Some(end) if self.is_connection_lost => self.details(end.description),
            _ => self,
        }
    }

    pub(crate) fn print(&self) {
        let Some(message) = &self.message else { return };
        let one = Diagnostic::error(message);
        let one = match &self.help {
            Some(help) => one.help(help),
            None => one,
        };
        let text = render(&one, banner::is_color_enabled());
        banner::print_stderr(format!("{text}{}", sanitize::lines(&self.details)).trim_end());
    }
}

/// In one line.
impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, format!("stdout cannot be written: {error}"))
    }
}

/// When something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Requesting,
}

/// What there is to say of a server by the way it was named.
#[derive(Debug, Clone)]
pub(crate) struct ServerLabel {
    /// As typed.
    pub(crate) address: String,
    /// Whether it was told who we are.
    pub(crate) has_token: bool,
    /// Whether one protocol version was asked for.
    pub(crate) has_fixed_protocol: bool,
}

impl CommandError {
    pub(crate) fn from_open_error(error: OpenError, named: &ServerLabel) -> Self {
        match error {
            OpenError::Failed(failure) => Self::from_client_error(failure, Phase::Connecting, named),
            OpenError::Connect { address: at, reason: why } => {
                Self::unreachable(&format!("cannot connect to {at}: {why}"))
            }
            OpenError::Start(error) => Self::new(Exit::Unreachable, error.to_string()),
            OpenError::Child { error: ClientError::ConnectionClosed(_), exit_description: said } => {
                // The first line is how it ended, the rest what it said.
                let (how, words) = said.split_once('\n').unwrap_or((&said, ""));
                let trouble = Self::new(Exit::Unreachable, how);
                if words.is_empty() {
                    trouble.help("what is started has to speak MCP on its stdin and stdout, and stay")
                } else {
                    trouble.details(format!("{words}\n"))
                }
            }
            OpenError::Child { error: failure, exit_description: said } => {
                let words = said.split_once('\n').map_or("", |(_, words)| words);
                Self::from_client_error(failure, Phase::Connecting, named).details(format!("{words}\n"))
            }
            OpenError::Outbound(error @ OutboundError::CaFile { .. }) => {
                Self::usage(format!("--cacert: {error}"))
            }
            OpenError::Outbound(error) => Self::unreachable(&error.to_string()),
        }
    }

    pub(crate) fn from_client_error(failure: ClientError, when: Phase, named: &ServerLabel) -> Self {
        let at = &named.address;
        match failure {
            ClientError::Server(told) if told.code == ErrorCode::Unauthorized.number() => {
                let trouble = Self::new(Exit::Refused, format!("the server at {at} refuses us: {} ({})", told.message, told.code));
                match at.strip_prefix("unix:") {
                    Some(path) => trouble.help(http_over_unix_help(path)),
                    None => trouble,
                }
            }
            ClientError::Server(told) if when == Phase::Connecting => Self::new(
                Exit::Unreachable,
                format!("{at} does not begin a conversation: {} ({})", told.message, told.code),
            ),
            ClientError::Server(told) => {
                let trouble = Self::new(Exit::Failed, format!("the server says: {} ({})", told.message, told.code));
                match told.data {
                    Some(data) => trouble.details(format!("  {data}\n")),
                    None => trouble,
                }
            }
            ClientError::Unauthorized { status: 401, .. } => {
                let trouble = Self::new(Exit::Refused, format!("the server at {at} wants to know who we are (HTTP 401)"));
                trouble.help(if named.has_token {
                    "what was sent is not accepted; the token may be wrong or too old"
                } else {
                    "put its token into a file and give --token-file FILE, or --header \"Name: value\""
                })
            }
            ClientError::Unauthorized { status, .. } => {
                Self::new(Exit::Refused, format!("the server at {at} refuses us (HTTP {status})")).help(
                    "it knows who we are and does not allow this, or does not go by that name (spile serve: --allow-host)",
                )
            }
            ClientError::HttpStatus { status, text } => {
                let said = if text.is_empty() { String::new() } else { format!(": {text}") };
                match when {
                    Phase::Requesting => Self::new(Exit::Failed, format!("the server answered HTTP {status}{said}")),
                    Phase::Connecting => {
                        let what = match status {
                            408 | 429 | 500.. => "is not ready",
                            _ => "does not speak MCP",
                        };
                        let trouble =
                            Self::new(Exit::Unreachable, format!("{at} {what}: HTTP {status}{said}"));
                        match path_suggestion(at, status) {
                            Some(help) => trouble.help(help),
                            None => trouble,
                        }
                    }
                }
            }
            ClientError::ProtocolViolation(why) => Self::new(Exit::Unreachable, format!("{at} does not speak MCP: {why}")),
            ClientError::UnsupportedVersion(why) => {
                let trouble = Self::new(Exit::Unreachable, format!("no common protocol version: {why}"));
                if named.has_fixed_protocol {
                    trouble.help("leave --protocol out to take the newest that both know")
                } else {
                    let known: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
                    trouble.help(format!("spoken here are {}", known.join(", ")))
                }
            }
            ClientError::Timeout { after_ms, unreadable } => {
                let late = format!("no answer within {} s", after_ms as f64 / 1000.0);
                match unreadable {
                    Some(what) => Self::new(
                        Exit::Timeout,
                        format!("{late}; meanwhile the server sent what cannot be read: {what}"),
                    ),
                    None => Self::new(Exit::Timeout, late).help("--timeout SECONDS waits longer"),
                }
            }
            ClientError::ConnectionClosed(why) => match when {
                Phase::Connecting => Self::unreachable(&why.to_string()),
                Phase::Requesting => {
                    let lost = Self::new(Exit::Unreachable, format!("the connection to {at} was lost: {why}"));
                    Self { is_connection_lost: true, ..lost }
                }
            },
            ClientError::Cancelled => Self::new(Exit::Interrupted, "cancelled"),
            ClientError::InputRefused(why) => Self::new(Exit::Failed, format!("the server asked what is not answered here: {why}")),
            ClientError::Busy => Self::new(Exit::Failed, "too much is under way already"),
        }
    }

    /// Errors of the system are told by their words alone, so that is where the way out is found.
    fn unreachable(why: &str) -> Self {
        let trouble = Self::new(Exit::Unreachable, why);
        let why = why.to_ascii_lowercase();
        if why.contains("no such file") {
            trouble.help("is the server running, and is this its socket?")
        } else if why.contains("refused") {
            let start =
                "is the server running? `spile serve PATH --http` starts one at http://127.0.0.1:3333/mcp";
            trouble.help(start)
        } else if why.contains("certificate") && why.contains("issuer") {
            trouble.help("trust it or its issuer with --cacert FILE, if it is yours")
        } else if why.contains("lookup") || why.contains("dns") || why.contains("name or service") {
            trouble.help("is the name spelled right, and is there a network?")
        } else if why.contains("corrupt message") || why.contains("invalidcontenttype") {
            trouble.help("what answers there does not speak TLS; try http: instead of https:")
        } else {
            trouble
        }
    }
}

/// A pipe has no place for a token; the same socket speaks HTTP.
pub(crate) fn http_over_unix_help(path: &str) -> String {
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.replace('%', "%25").replace('/', "%2F").replace(' ', "%20");
    format!("give its token over HTTP: --url http+unix://{path}/mcp --token-file FILE")
}

/// Where a server probably is that is not where it was looked for.
fn path_suggestion(at: &str, status: u16) -> Option<String> {
    let url = url::Url::parse(at).ok()?;
    match (status, url.path()) {
        (400 | 404 | 405, "" | "/") => {
            let mut there = url;
            there.set_path("/mcp");
            Some(format!("did you mean {there}?"))
        }
        (404, "/mcp") => Some("several servers have a path each: /mcp/NAME".to_owned()),
        (404 | 405, _) => Some("is the path right? most servers are at /mcp".to_owned()),
        (300..=399, _) => Some("no redirect is followed; give the address that it points to".to_owned()),
        _ => None,
    }
}

/// `Connection refused (os error 111)`: the number tells nobody anything.
fn strip_os_error(mut why: String) -> String {
    if let Some(at) = why.rfind(" (os error ").filter(|_| why.ends_with(')')) {
        why.truncate(at);
    }
    why
}

#[cfg(test)]
mod tests {
    use super::{path_suggestion, strip_os_error};

    #[test]
    fn where_it_probably_is() {
        for (at, status, expected) in [
            ("http://127.0.0.1:3333", 404, Some("did you mean http://127.0.0.1:3333/mcp?")),
            ("https://example.com/?a=1", 405, Some("did you mean https://example.com/mcp?a=1?")),
            ("http://127.0.0.1/mcp", 404, Some("several servers have a path each: /mcp/NAME")),
            ("http://127.0.0.1/mpc", 404, Some("is the path right? most servers are at /mcp")),
            ("http://127.0.0.1/mcp", 500, None),
            ("unix:/run/x", 404, Some("is the path right? most servers are at /mcp")),
        ] {
            assert_eq!(path_suggestion(at, status).as_deref(), expected, "{at} {status}");
        }
    }

    #[test]
    fn numbers_of_the_system_are_left_out() {
        assert_eq!(strip_os_error("Connection refused (os error 111)".into()), "Connection refused");
        assert_eq!(strip_os_error("no (os error".into()), "no (os error");
    }
}
