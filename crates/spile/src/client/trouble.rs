//! What is told when something went wrong, and what the shell is told: whose fault it was.

use std::process::ExitCode;

use contract::diagnostic::{Diagnostic, render};
use outbound::OutboundError;
use upstream::{End, OpenError};
use wire::Version;
use wire::client::Failure;
use wire::code::Code;

use crate::banner;
use crate::plain;

/// How a client command ends, as the shell sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Fine = 0,
    /// The tool says that it failed, or the server answered with an error.
    Told = 1,
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
pub(crate) struct Trouble {
    pub(crate) exit: Exit,
    message: Option<String>,
    help: Option<String>,
    /// What belongs below it as it is: usage, the last words of a process.
    below: String,
    /// Whether the server went away.
    pub(crate) is_lost: bool,
}

impl Trouble {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: Some(without_number(message.into())),
            help: None,
            below: String::new(),
            is_lost: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// All that there is to say has been said.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: None, help: None, below: String::new(), is_lost: false }
    }

    #[must_use]
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    #[must_use]
    pub(crate) fn below(self, below: impl Into<String>) -> Self {
        Self { below: below.into(), ..self }
    }

    /// A connection that was lost is told with how the program behind it ended.
    pub(crate) fn explained(self, end: Option<End>) -> Self {
        match end {
            Some(end) if self.is_lost => self.below(end.obituary),
            _ => self,
        }
    }

    pub(crate) fn tell(&self) {
        let Some(message) = &self.message else { return };
        let one = Diagnostic::error(message);
        let one = match &self.help {
            Some(help) => one.help(help),
            None => one,
        };
        let text = render(&one, banner::in_colour());
        banner::say(format!("{text}{}", plain::lines(&self.below)).trim_end());
    }
}

/// In one line.
impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())?;
        self.help.iter().try_for_each(|help| write!(f, "; {help}"))
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Told, format!("stdout cannot be written: {error}"))
    }
}

/// When something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Opening,
    Asking,
}

/// What there is to say of a server by the way it was named.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// As typed.
    pub(crate) at: String,
    /// Whether it was told who we are.
    pub(crate) with_token: bool,
    /// Whether one protocol version was asked for.
    pub(crate) with_protocol: bool,
}

impl Trouble {
    pub(crate) fn opening(error: OpenError, named: &Named) -> Self {
        match error {
            OpenError::Refused(failure) => Self::of(failure, When::Opening, named),
            OpenError::Connect { at, why } => Self::unreachable(&format!("cannot connect to {at}: {why}")),
            OpenError::Start(error) => Self::new(Exit::Unreachable, error.to_string()),
            OpenError::Child { failure: Failure::Closed(_), said } => {
                // The first line is how it ended, the rest what it said.
                let (how, words) = said.split_once('\n').unwrap_or((&said, ""));
                let trouble = Self::new(Exit::Unreachable, how);
                if words.is_empty() {
                    trouble.help("what is started has to speak MCP on its stdin and stdout, and stay")
                } else {
                    trouble.below(format!("{words}\n"))
                }
            }
            OpenError::Child { failure, said } => {
                let words = said.split_once('\n').map_or("", |(_, words)| words);
                Self::of(failure, When::Opening, named).below(format!("{words}\n"))
            }
            OpenError::Outbound(error @ OutboundError::CaFile { .. }) => {
                Self::usage(format!("--cacert: {error}"))
            }
            OpenError::Outbound(error) => Self::unreachable(&error.to_string()),
        }
    }

    pub(crate) fn of(failure: Failure, when: When, named: &Named) -> Self {
        let at = &named.at;
        match failure {
            Failure::Told(told) if told.code == Code::Unauthorized.number() => {
                let trouble = Self::new(Exit::Refused, format!("the server at {at} refuses us: {} ({})", told.message, told.code));
                match at.strip_prefix("unix:") {
                    Some(path) => trouble.help(over_http(path)),
                    None => trouble,
                }
            }
            Failure::Told(told) if when == When::Opening => Self::new(
                Exit::Unreachable,
                format!("{at} does not begin a conversation: {} ({})", told.message, told.code),
            ),
            Failure::Told(told) => {
                let trouble = Self::new(Exit::Told, format!("the server says: {} ({})", told.message, told.code));
                match told.data {
                    Some(data) => trouble.below(format!("  {data}\n")),
                    None => trouble,
                }
            }
            Failure::Unauthorized { status: 401, .. } => {
                let trouble = Self::new(Exit::Refused, format!("the server at {at} wants to know who we are (HTTP 401)"));
                trouble.help(if named.with_token {
                    "what was sent is not accepted; the token may be wrong or too old"
                } else {
                    "put its token into a file and give --token-file FILE, or --header \"Name: value\""
                })
            }
            Failure::Unauthorized { status, .. } => {
                Self::new(Exit::Refused, format!("the server at {at} refuses us (HTTP {status})")).help(
                    "it knows who we are and does not allow this, or does not go by that name (spile serve: --allow-host)",
                )
            }
            Failure::Status { status, text } => {
                let said = if text.is_empty() { String::new() } else { format!(": {text}") };
                match when {
                    When::Asking => Self::new(Exit::Told, format!("the server answered HTTP {status}{said}")),
                    When::Opening => {
                        let what = match status {
                            408 | 429 | 500.. => "is not ready",
                            _ => "does not speak MCP",
                        };
                        let trouble =
                            Self::new(Exit::Unreachable, format!("{at} {what}: HTTP {status}{said}"));
                        match where_else(at, status) {
                            Some(help) => trouble.help(help),
                            None => trouble,
                        }
                    }
                }
            }
            Failure::NotMcp(why) => Self::new(Exit::Unreachable, format!("{at} does not speak MCP: {why}")),
            Failure::NoVersion(why) => {
                let trouble = Self::new(Exit::Unreachable, format!("no common protocol version: {why}"));
                if named.with_protocol {
                    trouble.help("leave --protocol out to take the newest that both know")
                } else {
                    let known: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
                    trouble.help(format!("spoken here are {}", known.join(", ")))
                }
            }
            Failure::Timeout { after_ms, unreadable } => {
                let late = format!("no answer within {} s", after_ms as f64 / 1000.0);
                match unreadable {
                    Some(what) => Self::new(
                        Exit::Timeout,
                        format!("{late}; meanwhile the server sent what cannot be read: {what}"),
                    ),
                    None => Self::new(Exit::Timeout, late).help("--timeout SECONDS waits longer"),
                }
            }
            Failure::Closed(why) => match when {
                When::Opening => Self::unreachable(&why),
                When::Asking => {
                    let lost = Self::new(Exit::Unreachable, format!("the connection to {at} was lost: {why}"));
                    Self { is_lost: true, ..lost }
                }
            },
            Failure::Cancelled => Self::new(Exit::Interrupted, "cancelled"),
            Failure::Refused(why) => Self::new(Exit::Told, format!("the server asked what is not answered here: {why}")),
            Failure::Busy => Self::new(Exit::Told, "too much is under way already"),
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
pub(crate) fn over_http(path: &str) -> String {
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.replace('%', "%25").replace('/', "%2F").replace(' ', "%20");
    format!("give its token over HTTP: --url http+unix://{path}/mcp --token-file FILE")
}

/// Where a server probably is that is not where it was looked for.
fn where_else(at: &str, status: u16) -> Option<String> {
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
fn without_number(mut why: String) -> String {
    if let Some(at) = why.rfind(" (os error ").filter(|_| why.ends_with(')')) {
        why.truncate(at);
    }
    why
}

#[cfg(test)]
mod tests {
    use super::{where_else, without_number};

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
            assert_eq!(where_else(at, status).as_deref(), expected, "{at} {status}");
        }
    }

    #[test]
    fn numbers_of_the_system_are_left_out() {
        assert_eq!(without_number("Connection refused (os error 111)".into()), "Connection refused");
        assert_eq!(without_number("no (os error".into()), "no (os error");
    }
}
