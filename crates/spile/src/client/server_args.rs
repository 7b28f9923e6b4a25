//! The flags that name a server ([`ServerArgs`]), and what they mean ([`Endpoint`]).

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use contract::diagnostic::{Diagnostic, render};
use servers::config::{ConfiguredServer, ResolvedTransport, Root, ToolFilter};
use servers::manager::{CallTimeouts, ManagerOptions};
use servers::oauth::{CredentialStore, ServerSignIn};
use servers::sampling::Sampler;
use spile_core::ClientCapabilities;
use upstream::{
    AccessToken, Connection, ConnectionOptions, OpenError, Target, TokenSlot, TraceEvent, TraceSink, process,
    redact,
};
use wire::Version;
use wire::client::{ClientError, ClientOptions, VersionPolicy};
use wire::frame::Framing;

use super::error::{CommandError, Exit, ServerLabel, http_over_unix_help};
use super::in_process;
use super::terminal::{LocalAnswers, SamplingAnswers, Terminal, TerminalHandler};
use crate::banner;
use crate::mcp::{ServerContext, credential_store, refusal};

/// The flags of every client command.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Connect to the server at this address: http:, https:, ws:, wss:, unix: or http+unix:
    #[arg(long, value_name = "URL", help_heading = SERVER, conflicts_with_all = ["command", "from"])]
    url: Option<String>,

    /// Use a configured server: one of `spile mcp list`
    #[arg(long, value_name = "NAME", help_heading = SERVER, conflicts_with_all = ["url", "command", "from"])]
    server: Option<String>,

    /// Also read configured servers from this file, which takes precedence over all others; can be repeated
    #[arg(long, value_name = "FILE", help_heading = SERVER, conflicts_with_all = ["url", "command", "from"])]
    config: Vec<PathBuf>,

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

    /// How long to wait for each response, whatever progress the server reports; without it, 120 seconds without progress, or
    /// what the entry of the configured server says
    #[arg(long, value_name = "SECONDS", help_heading = SERVER, value_parser = parse_seconds)]
    timeout: Option<Seconds>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Show the server's log messages and protocol warnings; -vv shows everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const SERVER: &str = "Server";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

/// A server that is named by its address or its path alone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NamedServer {
    Url(String),
    Path(PathBuf),
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
    pub(crate) timeouts: CallTimeouts,
    pub(crate) answers: LocalAnswers,
    /// The name of a configured server.
    pub(crate) server_name: Option<String>,
    /// Which of its tools its entry offers.
    pub(crate) offered_tools: ToolFilter,
    sign_in: Option<SignIn>,
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
        self.url.is_some() || self.command.is_some() || self.from.is_some() || self.server.is_some()
    }

    pub(crate) fn output_format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Text }
    }

    /// The server that was named without a flag.
    pub(crate) fn with_named_server(self, named: NamedServer) -> Self {
        match named {
            NamedServer::Url(url) => Self { url: Some(url), ..self },
            NamedServer::Path(path) => Self { from: Some(path), ..self },
        }
    }

    /// Chooses the configured server whose tools have names like this one: `mcp__server__tool`.
    pub(crate) fn with_server_of(self, public_name: &str) -> Result<Self, CommandError> {
        let context = self.context()?;
        match context.configuration.find_by_public_name(public_name) {
            Some(server) => Ok(Self { server: Some(server.name.clone()), ..self }),
            None => {
                let error = CommandError::usage(format!("no configured server has a tool `{public_name}`"));
                Err(error.help("`spile mcp list` shows the configured servers"))
            }
        }
    }

    fn context(&self) -> Result<ServerContext, CommandError> {
        ServerContext::load(&self.config).map_err(|error| CommandError::usage(format!("{error:#}")))
    }

    /// The configured server of this name, with its variables replaced. A server that may not be started is refused.
    fn configured(&self, name: &str) -> Result<Configured, CommandError> {
        let context = self.context()?;
        let server =
            context.find(name).map_err(|error| CommandError::usage(format!("--server: {error:#}")))?;
        if let Some((reason, help)) = refusal(server, context.permission(server)) {
            return Err(CommandError::new(Exit::Unreachable, reason).help(help));
        }
        let env = |name: &str| std::env::var(name).ok();
        let resolved = server.resolve(&env, context.home()).map_err(|error| {
            let file = server.source.path.display();
            CommandError::new(Exit::Unreachable, format!("cannot start server `{name}` of {file}: {error}"))
        })?;
        let roots = server.entry.as_ref().ok().and_then(|entry| entry.roots.as_ref());
        let roots = roots.map(|roots| server.resolve_roots(roots, &env, context.home())).transpose();
        let roots = roots.map_err(|error| {
            let file = server.source.path.display();
            CommandError::new(Exit::Unreachable, format!("cannot start server `{name}` of {file}: {error}"))
        })?;
        let url = resolved.url().cloned();
        let sign_in =
            url.map(|url| SignIn { server: server.clone(), url, home: context.home().map(PathBuf::from) });
        let (address, transport, headers) = match resolved {
            ResolvedTransport::Process(command) => {
                (command.to_string(), Transport::Spawn(command), Vec::new())
            }
            ResolvedTransport::Remote { target, headers } => {
                (target.to_string(), Transport::Connect(target), headers)
            }
        };
        let offered_tools = server.entry.as_ref().map(|entry| entry.tools.clone()).unwrap_or_default();
        let timeouts = ManagerOptions::default().call_timeouts(server);
        let start_timeout_ms = server.entry.as_ref().ok().and_then(|entry| entry.start_timeout_ms);
        Ok(Configured {
            address,
            transport,
            headers,
            sign_in,
            roots,
            offered_tools,
            timeouts,
            start_timeout_ms,
        })
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, CommandError> {
        if !self.config.is_empty() && self.server.is_none() {
            return Err(CommandError::usage("--config: also name one of its servers with --server NAME"));
        }
        let (mut configured_headers, mut sign_in, mut configured_roots) = (Vec::new(), None, None);
        let mut offered_tools = ToolFilter::default();
        let limits = ManagerOptions::default();
        let mut configured_timeouts =
            CallTimeouts { idle_ms: limits.call_idle_timeout_ms, total_ms: limits.call_timeout_ms };
        let mut start_timeout_ms = None;
        let (address, transport) = match (&self.url, &self.command, &self.server) {
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
            (None, None, Some(name)) => {
                let configured = self.configured(name)?;
                configured_headers = configured.headers;
                sign_in = configured.sign_in;
                configured_roots = configured.roots;
                configured_timeouts = configured.timeouts;
                start_timeout_ms = configured.start_timeout_ms;
                offered_tools = configured.offered_tools;
                (configured.address, configured.transport)
            }
            (None, None, None) => {
                let path = self.from.clone().unwrap_or_else(|| ".".into());
                (crate::project::shown_path(&path), Transport::InProcess(path))
            }
        };
        let mut headers = self.headers()?;
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
        // What was typed wins over what is configured.
        configured_headers
            .retain(|(name, _)| !headers.iter().any(|(typed, _)| typed.eq_ignore_ascii_case(name)));
        headers.extend(configured_headers);
        let has_authorization = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        sign_in = sign_in.filter(|_| !has_authorization);
        // What was typed wins over what is configured.
        let roots = match self.root.as_slice() {
            [] => configured_roots,
            typed => Some(typed.iter().map(|root| typed_root(root)).collect::<Result<_, _>>()?),
        };
        let sampling = self.sampling();
        let mut capabilities = ClientCapabilities::ELICITATION_FORM.with(ClientCapabilities::ELICITATION_URL);
        if roots.is_some() {
            capabilities = capabilities.with(ClientCapabilities::ROOTS);
        }
        if sampling.is_some() {
            capabilities = capabilities.with(ClientCapabilities::SAMPLING);
        }
        // What was typed wins over what is configured.
        let typed_ms = self.timeout.map(|timeout| timeout.ms);
        let timeouts = typed_ms.map_or(configured_timeouts, |ms| CallTimeouts { idle_ms: ms, total_ms: ms });
        let defaults = ClientOptions::default();
        let handshake_timeout_ms = match (typed_ms, start_timeout_ms) {
            (Some(typed_ms), _) => defaults.handshake_timeout_ms.min(typed_ms),
            (None, Some(start_ms)) => start_ms,
            (None, None) => defaults.handshake_timeout_ms,
        };
        let client_options = ClientOptions {
            capabilities,
            version_policy: self.protocol.map_or(VersionPolicy::Any, VersionPolicy::Only),
            handshake_timeout_ms,
            probe_timeout_ms: defaults.probe_timeout_ms.min(handshake_timeout_ms),
            ..defaults
        };
        let outbound = outbound::OutboundOptions::default();
        let options = ConnectionOptions {
            client_options,
            outbound: outbound::OutboundOptions {
                ca_file: self.cacert.clone(),
                connect_timeout_ms: outbound.connect_timeout_ms.min(handshake_timeout_ms),
                ..outbound
            },
            framing: match self.framing {
                Some(PipeFraming::Headers) => Framing::ContentLength,
                Some(PipeFraming::Lines) | None => Framing::Lines,
            },
            ..ConnectionOptions::default()
        };
        let label = ServerLabel {
            configured_name: self.server.clone(),
            address,
            has_token: !headers.is_empty(),
            has_fixed_protocol: self.protocol.is_some(),
        };
        Ok(Endpoint {
            label,
            timeouts,
            answers: LocalAnswers { roots: roots.unwrap_or_default(), sampling },
            server_name: self.server.clone(),
            offered_tools,
            sign_in,
            transport,
            options: ConnectionOptions { headers, ..options },
        })
    }

    /// The model that the user configured, if it may answer this server: the settings say so, or the user can be asked. A server
    /// without a name in the settings is always asked about.
    fn sampling(&self) -> Option<SamplingAnswers> {
        let settings = self.context().ok()?.configuration.sampling?;
        let is_interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let env = |name: &str| std::env::var(name).ok();
        match Sampler::new(&settings, &env, process::ProcessOptions::default()) {
            Ok(sampler) => {
                let is_allowed = self.server.as_ref().is_some_and(|server| sampler.allows(server));
                (is_allowed || is_interactive).then_some(SamplingAnswers { sampler, is_allowed })
            }
            Err(error) => {
                let warning = Diagnostic::warning(format!("no model answers the server: {error}"));
                banner::print_stderr(render(&warning, banner::is_color_enabled()).trim_end());
                None
            }
        }
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

fn typed_root(path: &Path) -> Result<Root, CommandError> {
    let found = match path.canonicalize() {
        Ok(folder) if folder.is_dir() => Root::from_folder(&folder),
        _ => None,
    };
    found.ok_or_else(|| CommandError::usage(format!("--root: folder `{}` not found", path.display())))
}

/// A configured server, ready to be opened.
struct Configured {
    address: String,
    transport: Transport,
    headers: Vec<(String, String)>,
    sign_in: Option<SignIn>,
    /// `None` if the entry says nothing about them.
    roots: Option<Vec<Root>>,
    offered_tools: ToolFilter,
    timeouts: CallTimeouts,
    start_timeout_ms: Option<u64>,
}

/// A configured server at an address, without an Authorization header of its own: tokens are kept for it.
struct SignIn {
    server: ConfiguredServer,
    url: url::Url,
    home: Option<PathBuf>,
}

impl SignIn {
    async fn token(
        &self,
        rejected: Option<&str>,
        store: &CredentialStore,
    ) -> Result<Option<AccessToken>, CommandError> {
        let env = &|name: &str| std::env::var(name).ok();
        let sign_in = ServerSignIn { server: &self.server, url: &self.url, env, home: self.home.as_deref() };
        let token = sign_in.token(rejected, store).await;
        token.map_err(|error| CommandError::new(Exit::Refused, format!("cannot get a token: {error}")))
    }
}

impl Endpoint {
    pub(crate) async fn open(
        self,
        terminal: &Arc<Terminal>,
        trace: Option<Arc<dyn TraceSink>>,
    ) -> Result<Connection, CommandError> {
        let mut options = ConnectionOptions { trace, ..self.options };
        let store = credential_store().map_err(|error| CommandError::new(Exit::Usage, error.to_string()))?;
        let sign_in = self.sign_in.zip(store);
        let slot = TokenSlot::default();
        if let Some((sign_in, store)) = &sign_in {
            slot.set(sign_in.token(None, store).await?);
            options.token = Some(slot.clone());
        }
        let handler = Arc::new(TerminalHandler(terminal.clone()));
        let failed = |error| CommandError::from_open_error(error, &self.label);
        match self.transport {
            Transport::Connect(target) => {
                let first = Connection::open(&target, options.clone(), handler.clone()).await;
                match (first, slot.text(), sign_in) {
                    // The token may have been revoked before its time; a new one may be accepted.
                    (
                        Err(OpenError::Failed(ClientError::Unauthorized { status: 401, .. })),
                        Some(rejected),
                        Some((sign_in, store)),
                    ) => {
                        slot.set(sign_in.token(Some(&rejected), &store).await?);
                        Connection::open(&target, options, handler).await.map_err(failed)
                    }
                    (first, ..) => first.map_err(failed),
                }
            }
            Transport::Spawn(command) => {
                Connection::spawn(&command, options, handler).await.map_err(|error| {
                    let program = command.program.to_string_lossy().into_owned();
                    failed(error).with_foreign_output(&program, terminal.first_skipped_text())
                })
            }
            Transport::InProcess(path) => {
                let (input, output) = tokio::io::split(in_process::serve(&path, terminal)?);
                if let Some(trace) = &options.trace {
                    trace.record(TraceEvent::Opened(&format!(
                        "serving {} in this process",
                        crate::project::shown_path(&path)
                    )));
                }
                Connection::over_pipe(input, output, options, handler).await.map_err(failed)
            }
        }
    }
}
