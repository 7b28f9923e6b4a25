//! The flags that name a server ([`ServerArgs`]), and what they mean ([`Endpoint`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use spile_core::ClientCapabilities;
use upstream::{Connection, ConnectionOptions, Target, TraceEvent, TraceSink, process, redact};
use wire::Version;
use wire::client::{ClientOptions, VersionPolicy};
use wire::frame::Framing;

use super::error::{CommandError, ServerLabel, http_over_unix_help};
use super::in_process;
use super::terminal::{Terminal, TerminalHandler};

/// The flags of every client command.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Connect to the server at this address: http:, https:, ws:, wss:, unix: or http+unix:
    #[arg(long, value_name = "URL", help_heading = SERVER, conflicts_with_all = ["command", "from"])]
    url: Option<String>,

    /// Start this program and talk to it over its stdin and stdout
    #[arg(long, value_name = "CMD ARGS…", help_heading = SERVER, conflicts_with = "from")]
    command: Option<String>,

    /// Serve this file or folder within this process, as `spile serve` would; the default is the current folder
    #[arg(long, value_name = "PATH", help_heading = SERVER)]
    from: Option<PathBuf>,

    /// Send this header with every request; can be repeated
    #[arg(long, value_name = "NAME: VALUE", help_heading = SERVER)]
    header: Vec<String>,

    /// Send the bearer token from this file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,

    /// Also trust the certificates in this PEM file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    cacert: Option<PathBuf>,

    /// Use this protocol version only
    #[arg(long, value_name = "VERSION", help_heading = SERVER, value_parser = parse_version)]
    protocol: Option<Version>,

    /// Message framing on a pipe: one message per line (the standard), or Content-Length headers
    #[arg(long, help_heading = SERVER)]
    framing: Option<PipeFraming>,

    /// Offer this folder to the server as a root; can be repeated
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    root: Vec<PathBuf>,

    /// How long to wait for each response
    #[arg(long, value_name = "SECONDS", help_heading = SERVER, default_value = "120", value_parser = parse_seconds)]
    timeout: Seconds,

    /// Print readable text, or the result as JSON
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: OutputFormat,

    /// Show the server's log messages and protocol warnings; -vv shows everything
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

/// A duration as typed: `0.5`, `120`.
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
        _ => Err("expected a number of seconds greater than 0, such as 0.5 or 120".into()),
    }
}

pub(crate) fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| {
        let supported: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
        format!("supported versions: {}", supported.join(", "))
    })
}

/// The server that the flags name, ready to be opened.
pub(crate) struct Endpoint {
    pub(crate) label: ServerLabel,
    pub(crate) timeout_ms: u64,
    pub(crate) roots: Vec<PathBuf>,
    transport: Transport,
    options: ConnectionOptions,
}

enum Transport {
    Connect(Target),
    Spawn(process::Command),
    InProcess(PathBuf),
}

impl ServerArgs {
    /// Whether a flag names the server.
    pub(crate) fn is_explicit(&self) -> bool {
        self.url.is_some() || self.command.is_some() || self.from.is_some()
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, CommandError> {
        let (address, transport) = match (&self.url, &self.command, &self.from) {
            (Some(url), ..) => {
                let target =
                    Target::parse(url).map_err(|error| CommandError::usage(format!("--url: {error}")))?;
                (redact::address(url).into_owned(), Transport::Connect(target))
            }
            (None, Some(line), _) => {
                let command = process::Command::parse(line);
                let command = command.map_err(|error| CommandError::usage(format!("--command: {error}")))?;
                // Its `Display` omits environment variables and masks what looks like a secret.
                (command.to_string(), Transport::Spawn(command))
            }
            (None, None, from) => {
                let path = from.clone().unwrap_or_else(|| ".".into());
                (path.display().to_string(), Transport::InProcess(path))
            }
        };
        let headers = self.headers()?;
        let has_headers = matches!(
            transport,
            Transport::Connect(
                Target::Http(_) | Target::Sse(_) | Target::WebSocket(_) | Target::HttpUnix { .. }
            )
        );
        if !headers.is_empty() && !has_headers {
            let help = match (&transport, address.strip_prefix("unix:")) {
                (Transport::Connect(_), Some(path)) => http_over_unix_help(path),
                _ => "pass secrets to a program in its environment".to_owned(),
            };
            return Err(
                CommandError::usage("--header and --token-file work only over HTTP and WebSocket").help(help)
            );
        }
        if self.framing.is_some() && has_headers {
            return Err(CommandError::usage(
                "--framing works only on a pipe: --command, --from and unix: addresses",
            ));
        }
        let roots = self.root.iter().map(|root| root_dir(root)).collect::<Result<Vec<_>, _>>()?;
        let mut capabilities = ClientCapabilities::ELICITATION_FORM.with(ClientCapabilities::ELICITATION_URL);
        if !roots.is_empty() {
            capabilities = capabilities.with(ClientCapabilities::ROOTS);
        }
        let timeout_ms = self.timeout.ms;
        let defaults = ClientOptions::default();
        let client_options = ClientOptions {
            capabilities,
            version_policy: self.protocol.map_or(VersionPolicy::Any, VersionPolicy::Only),
            handshake_timeout_ms: defaults.handshake_timeout_ms.min(timeout_ms),
            probe_timeout_ms: defaults.probe_timeout_ms.min(timeout_ms),
            ..defaults
        };
        let outbound = outbound::OutboundOptions::default();
        let options = ConnectionOptions {
            client_options,
            outbound: outbound::OutboundOptions {
                ca_file: self.cacert.clone(),
                connect_timeout_ms: outbound.connect_timeout_ms.min(timeout_ms),
            },
            framing: match self.framing {
                Some(PipeFraming::Headers) => Framing::ContentLength,
                Some(PipeFraming::Lines) | None => Framing::Lines,
            },
            ..ConnectionOptions::default()
        };
        let label = ServerLabel {
            address,
            has_token: !headers.is_empty(),
            has_fixed_protocol: self.protocol.is_some(),
        };
        Ok(Endpoint {
            label,
            timeout_ms,
            roots,
            transport,
            options: ConnectionOptions { headers, ..options },
        })
    }

    fn headers(&self) -> Result<Vec<(String, String)>, CommandError> {
        let mut headers = self.header.iter().map(|text| parse_header(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(file) = &self.token_file {
            if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
                return Err(CommandError::usage("--header already sets Authorization; omit --token-file"));
            }
            headers.push(("Authorization".to_owned(), format!("Bearer {}", read_token(file)?)));
        }
        Ok(headers)
    }
}

/// Headers that HTTP or the protocol sets.
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
    // The value may be a secret, so no error repeats it.
    let invalid = |reason: &str| {
        CommandError::usage(format!("--header: {reason}")).help("for example --header \"X-Key: value\"")
    };
    let (name, value) = text.split_once(':').ok_or_else(|| invalid("expected the form \"Name: value\""))?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(invalid("a name may contain only letters, digits and `-`"));
    }
    if value.bytes().any(|c| c < 0x20 && c != b'\t' || c == 0x7f) || !value.is_ascii() {
        return Err(invalid(&format!("the value of `{name}` contains a character that HTTP does not allow")));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&&*lower) || lower.starts_with("mcp-") || lower.starts_with("sec-websocket-")
    {
        return Err(CommandError::usage(format!(
            "--header: the protocol sets `{name}`; it cannot be overridden"
        )));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn read_token(file: &Path) -> Result<String, CommandError> {
    let path = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CommandError::usage(format!("token file `{path}` not found")),
        std::io::ErrorKind::InvalidData => CommandError::usage(format!("token file `{path}` is not text")),
        _ => CommandError::usage(format!("cannot read the token file `{path}`: {error}")),
    })?;
    match text.trim() {
        "" => Err(CommandError::usage(format!("token file `{path}` is empty"))),
        token if token.contains(['\n', '\r']) => Err(CommandError::usage(format!(
            "token file `{path}` has more than one line; a token is a single line"
        ))),
        token if !token.bytes().all(|c| c.is_ascii_graphic()) => Err(CommandError::usage(format!(
            "the token in `{path}` contains a character that HTTP does not allow; use visible ASCII characters"
        ))),
        token => Ok(token.to_owned()),
    }
}

fn root_dir(path: &Path) -> Result<PathBuf, CommandError> {
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        _ => Err(CommandError::usage(format!("--root: folder `{}` not found", path.display()))),
    }
}

impl Endpoint {
    pub(crate) async fn open(
        self,
        terminal: &Arc<Terminal>,
        trace: Option<Arc<dyn TraceSink>>,
    ) -> Result<Connection, CommandError> {
        let options = ConnectionOptions { trace, ..self.options };
        let handler = Arc::new(TerminalHandler(terminal.clone()));
        let failed = |error| CommandError::from_open_error(error, &self.label);
        match self.transport {
            Transport::Connect(target) => Connection::open(&target, options, handler).await.map_err(failed),
            Transport::Spawn(command) => {
                Connection::spawn(&command, options, handler).await.map_err(|error| {
                    let program = command.program.to_string_lossy().into_owned();
                    failed(error).with_foreign_output(&program, terminal.first_skipped_text())
                })
            }
            Transport::InProcess(path) => {
                let (input, output) = tokio::io::split(in_process::serve(&path, terminal)?);
                if let Some(trace) = &options.trace {
                    trace.record(TraceEvent::Opened(&format!("serving {} in this process", path.display())));
                }
                Connection::over_pipe(input, output, options, handler).await.map_err(failed)
            }
        }
    }
}
