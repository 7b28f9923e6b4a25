//! Which server is meant, and how it is spoken to: flags as typed, read once into something that can be opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use spile_core::ClientCapabilities;
use upstream::{Connection, Options, Target, TraceEvent, TraceSink, process, redact};
use wire::Version;
use wire::client::{ClientOptions, VersionPolicy};
use wire::frame::Framing;

use super::error::{CommandError, ServerLabel, http_over_unix_help};
use super::in_process;
use super::terminal::{Prompt, Terminal};

/// Flags that every client command has.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// A server at an address: http:, https:, ws:, wss:, unix: or http+unix:
    #[arg(long, value_name = "URL", help_heading = SERVER, conflicts_with_all = ["command", "from"])]
    url: Option<String>,

    /// A server that is a program: started, and spoken to on its stdin and stdout
    #[arg(long, value_name = "CMD ARGS…", help_heading = SERVER, conflicts_with = "from")]
    command: Option<String>,

    /// What `spile serve` takes, served in this process; the default is the current folder
    #[arg(long, value_name = "PATH", help_heading = SERVER)]
    from: Option<PathBuf>,

    /// Sent with every request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", help_heading = SERVER)]
    header: Vec<String>,

    /// Send the bearer token in this file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,

    /// Trust the certificates in this file too (PEM)
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    cacert: Option<PathBuf>,

    /// Speak this protocol version and no other
    #[arg(long, value_name = "VERSION", help_heading = SERVER, value_parser = parse_version)]
    protocol: Option<Version>,

    /// How messages are told apart on a pipe: by lines, the standard, or by Content-Length
    #[arg(long, help_heading = SERVER)]
    framing: Option<PipeFraming>,

    /// Tell the server that it may work in this folder; may be repeated
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    root: Vec<PathBuf>,

    /// How long one answer may take
    #[arg(long, value_name = "SECONDS", help_heading = SERVER, default_value = "120", value_parser = parse_seconds)]
    timeout: Seconds,

    /// Text to read, or the result as it came
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: OutputFormat,

    /// Show what the server logs and what is odd about it; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const SERVER: &str = "Server";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PipeFraming {
    Lines,
    Headers,
}

/// A time, as typed: `0.5`, `120`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds {
    ms: u64,
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.ms as f64 / 1000.0)
    }
}

fn parse_seconds(text: &str) -> Result<Seconds, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=1_000_000.0).contains(&seconds) => {
            Ok(Seconds { ms: (seconds * 1000.0).ceil() as u64 })
        }
        _ => Err("expected seconds, more than 0, such as 0.5 or 120".into()),
    }
}

fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| {
        let known: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
        format!("known are {}", known.join(", "))
    })
}

/// The same, as meant.
pub(crate) struct Endpoint {
    pub(crate) label: ServerLabel,
    pub(crate) timeout_ms: u64,
    pub(crate) roots: Vec<PathBuf>,
    transport: Transport,
    options: Options,
}

enum Transport {
    Connect(Target),
    Spawn(process::Command),
    InProcess(PathBuf),
}

impl ServerArgs {
    /// Whether somebody said which server it is.
    pub(crate) fn is_explicit(&self) -> bool {
        self.url.is_some() || self.command.is_some() || self.from.is_some()
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, CommandError> {
        let (at, reach) = match (&self.url, &self.command, &self.from) {
            (Some(url), ..) => {
                let target =
                    Target::parse(url).map_err(|error| CommandError::usage(format!("--url: {error}")))?;
                (redact::address(url).into_owned(), Transport::Connect(target))
            }
            (None, Some(line), _) => {
                let command = process::Command::parse(line);
                let command = command.map_err(|error| CommandError::usage(format!("--command: {error}")))?;
                // Without the variables in front, and what looks like a secret: `masked` says what does.
                (command.to_string(), Transport::Spawn(command))
            }
            (None, None, from) => {
                let path = from.clone().unwrap_or_else(|| ".".into());
                (path.display().to_string(), Transport::InProcess(path))
            }
        };
        let headers = self.headers()?;
        let has_heads = matches!(
            reach,
            Transport::Connect(
                Target::Http(_) | Target::Sse(_) | Target::WebSocket(_) | Target::HttpUnix { .. }
            )
        );
        if !headers.is_empty() && !has_heads {
            let help = match (&reach, at.strip_prefix("unix:")) {
                (Transport::Connect(_), Some(path)) => http_over_unix_help(path),
                _ => "a program takes its secrets from its environment".to_owned(),
            };
            return Err(
                CommandError::usage("headers and tokens are for servers over HTTP and WebSocket").help(help)
            );
        }
        if self.framing.is_some() && has_heads {
            return Err(CommandError::usage(
                "--framing is for pipes; over HTTP and WebSocket there is nothing to frame",
            ));
        }
        let roots = self.root.iter().map(|root| root_dir(root)).collect::<Result<Vec<_>, _>>()?;
        let mut caps = ClientCapabilities::ELICITATION_FORM.with(ClientCapabilities::ELICITATION_URL);
        if !roots.is_empty() {
            caps = caps.with(ClientCapabilities::ROOTS);
        }
        let ms = self.timeout.ms;
        let terms = ClientOptions::default();
        let terms = ClientOptions {
            capabilities: caps,
            version_policy: self.protocol.map_or(VersionPolicy::Any, VersionPolicy::Only),
            handshake_timeout_ms: terms.handshake_timeout_ms.min(ms),
            probe_timeout_ms: terms.probe_timeout_ms.min(ms),
            ..terms
        };
        let outbound = outbound::Options::default();
        let options = Options {
            client_options: terms,
            outbound: outbound::Options {
                ca_file: self.cacert.clone(),
                connect_timeout_ms: outbound.connect_timeout_ms.min(ms),
            },
            framing: match self.framing {
                Some(PipeFraming::Headers) => Framing::ContentLength,
                Some(PipeFraming::Lines) | None => Framing::Lines,
            },
            ..Options::default()
        };
        let named = ServerLabel {
            address: at,
            has_token: !headers.is_empty(),
            has_fixed_protocol: self.protocol.is_some(),
        };
        Ok(Endpoint {
            label: named,
            timeout_ms: ms,
            roots,
            transport: reach,
            options: Options { headers, ..options },
        })
    }

    fn headers(&self) -> Result<Vec<(String, String)>, CommandError> {
        let mut headers = self.header.iter().map(|text| parse_header(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(file) = &self.token_file {
            if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
                return Err(CommandError::usage("--header says who we are already; leave --token-file out"));
            }
            headers.push(("Authorization".to_owned(), format!("Bearer {}", read_token(file)?)));
        }
        Ok(headers)
    }
}

/// Headers that are part of the protocol, or of HTTP itself.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
    "upgrade",
];

fn parse_header(text: &str) -> Result<(String, String), CommandError> {
    // The value may be a secret, so none is repeated.
    let bad = |why: &str| {
        CommandError::usage(format!("--header: {why}")).help("one looks like --header \"X-Key: value\"")
    };
    let (name, value) = text.split_once(':').ok_or_else(|| bad("there is no `:` behind the name"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(bad("a name has only letters, digits and `-`"));
    }
    if value.bytes().any(|c| c < 0x20 && c != b'\t' || c == 0x7f) || !value.is_ascii() {
        return Err(bad(&format!("the value of `{name}` has a character that cannot be sent")));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&&*lower) || lower.starts_with("mcp-") || lower.starts_with("sec-websocket-")
    {
        return Err(CommandError::usage(format!("--header: `{name}` is set by the protocol")));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn read_token(file: &Path) -> Result<String, CommandError> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CommandError::usage(format!("there is no token file `{shown}`")),
        std::io::ErrorKind::InvalidData => {
            CommandError::usage(format!("the token file `{shown}` is no text"))
        }
        _ => CommandError::usage(format!("the token file `{shown}` cannot be read: {error}")),
    })?;
    match text.trim() {
        "" => Err(CommandError::usage(format!("the token file `{shown}` is empty"))),
        token if token.contains(['\n', '\r']) => Err(CommandError::usage(format!(
            "the token file `{shown}` has more than one line; a token is one"
        ))),
        token if !token.bytes().all(|c| c.is_ascii_graphic()) => Err(CommandError::usage(format!(
            "the token in `{shown}` has a character that cannot be sent; a token has letters, digits and signs"
        ))),
        token => Ok(token.to_owned()),
    }
}

fn root_dir(path: &Path) -> Result<PathBuf, CommandError> {
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        _ => Err(CommandError::usage(format!("--root: there is no folder `{}`", path.display()))),
    }
}

impl Endpoint {
    pub(crate) async fn open(
        self,
        desk: &Arc<Terminal>,
        tap: Option<Arc<dyn TraceSink>>,
    ) -> Result<Connection, CommandError> {
        let options = Options { trace: tap, ..self.options };
        let told = |error| CommandError::from_open_error(error, &self.label);
        match self.transport {
            Transport::Connect(target) => {
                Connection::open(&target, options, Arc::new(Prompt(desk.clone()))).await.map_err(told)
            }
            Transport::Spawn(command) => {
                Connection::spawn(&command, options, Arc::new(Prompt(desk.clone()))).await.map_err(told)
            }
            Transport::InProcess(path) => {
                let (input, output) = tokio::io::split(in_process::serve(&path, desk)?);
                if let Some(tap) = &options.trace {
                    tap.record(TraceEvent::Opened(&format!("serving {} in this process", path.display())));
                }
                Connection::over_pipe(input, output, options, Arc::new(Prompt(desk.clone())))
                    .await
                    .map_err(told)
            }
        }
    }
}
