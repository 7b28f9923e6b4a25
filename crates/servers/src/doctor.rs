//! Finds out why a server does not work: step by step, each with what to do if it fails. The steps after a failure are
//! not tried, because they would fail for the same reason.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbound::{ConnectFailure, OutboundError};
use tokio::net::TcpStream;
use upstream::process;
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError, Target, TokenSlot};
use url::Url;
use wire::ListKind;
use wire::client::{ClientError, IncomingInputRequest, InputReply};

use crate::config::{OAuthSettings, ResolvedTransport};
use crate::oauth::{self, Challenge, CredentialStore, ServerSignIn};

/// How one step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// It works, and could work better.
    Warning,
    Failed,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was tried: `DNS`, `program`, `handshake`.
    pub step: &'static str,
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// All steps, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    pub fn ok(&mut self, step: &'static str, detail: impl Into<String>) {
        self.0.push(Finding { step, verdict: Verdict::Ok, detail: detail.into(), help: None });
    }

    pub fn warn(&mut self, step: &'static str, detail: impl Into<String>, help: impl Into<String>) {
        let (detail, help) = (detail.into(), Some(help.into()));
        self.0.push(Finding { step, verdict: Verdict::Warning, detail, help });
    }

    pub fn fail(&mut self, step: &'static str, detail: impl Into<String>, help: impl Into<String>) {
        let (detail, help) = (detail.into(), Some(help.into()));
        self.0.push(Finding { step, verdict: Verdict::Failed, detail, help });
    }

    /// No step failed.
    pub fn is_well(&self) -> bool {
        self.0.iter().all(|finding| finding.verdict != Verdict::Failed)
    }
}

/// How long each step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a program may take to answer: a package manager may download it first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STDERR_LINES_SHOWN: usize = 5;
const SKIPPED_LINES_MAX: usize = 20;

/// What the doctor needs to know of a server.
pub struct Patient<'a> {
    pub transport: &'a ResolvedTransport,
    /// The configured server, if it is one, for signing in.
    pub sign_in: Option<ServerSignIn<'a>>,
    pub credentials: Option<&'a CredentialStore>,
    pub options: ConnectionOptions,
}

impl Patient<'_> {
    /// Tries everything up to the lists.
    pub async fn examine(&self, findings: &mut Findings) {
        match self.transport {
            ResolvedTransport::Process(command) => self.examine_process(command, findings).await,
            ResolvedTransport::Remote { target, headers } => {
                self.examine_remote(target, headers, findings).await;
            }
        }
    }

    fn name(&self) -> String {
        self.sign_in.map_or_else(|| "NAME".to_owned(), |sign_in| sign_in.server.name.clone())
    }

    async fn examine_process(&self, command: &process::Command, findings: &mut Findings) {
        match command.locate() {
            Ok(file) => findings.ok("program", file.display().to_string()),
            Err(error) => {
                let help = match error {
                    process::StartError::InvalidCwd { .. } => "correct `cwd` in the entry",
                    _ => {
                        "correct `command` in the entry; a program that a shell finds may need its full path here"
                    }
                };
                return findings.fail("program", error.to_string(), help);
            }
        }
        let observer = Arc::new(Observer::default());
        let opening = Connection::spawn(command, self.options.clone(), observer.clone());
        match tokio::time::timeout(START_TIMEOUT, opening).await {
            Ok(Ok(connection)) => {
                findings.ok("process", "it starts and keeps running");
                observer.report_output(findings);
                self.report_connection(connection, findings).await;
            }
            Ok(Err(error)) => {
                observer.report_output(findings);
                findings.fail("process", error.to_string(), help_for_process(&error, command, &observer));
            }
            Err(_) => {
                observer.report_output(findings);
                let help = format!(
                    "run `{command}` in a terminal: a server waits for input and prints nothing; if it downloads \
                     something first, install it once by hand"
                );
                findings.fail("process", format!("no answer within {} s", START_TIMEOUT.as_secs()), help);
            }
        }
    }

    async fn examine_remote(&self, target: &Target, headers: &[(String, String)], findings: &mut Findings) {
        let url = match target {
            Target::Http(url) | Target::Sse(url) | Target::WebSocket(url) => Some(url),
            Target::Unix(_) | Target::HttpUnix { .. } => None,
        };
        if let Some(url) = url
            && !self.examine_network(url, findings).await
        {
            return;
        }
        let slot = TokenSlot::default();
        let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if has_own {
            findings.ok("token", "an Authorization header in the entry");
        } else if let (Some(sign_in), Some(store)) = (self.sign_in, self.credentials) {
            match sign_in.token(None, store).await {
                Ok(Some(token)) => {
                    slot.set(Some(token));
                    let left = store.valid_for_ms(&sign_in.account()).map(|ms| ms / 60_000);
                    let left = left.map(|minutes| format!(", valid for {minutes} min"));
                    findings.ok("token", format!("you are signed in{}", left.unwrap_or_default()));
                }
                Ok(None) => {}
                Err(error) => {
                    let help = format!("sign in again with `spile login {}`", self.name());
                    return findings.fail("token", error.to_string(), help);
                }
            }
        }
        let options = ConnectionOptions {
            headers: headers.to_vec(),
            token: Some(slot.clone()),
            ..self.options.clone()
        };
        let observer = Arc::new(Observer::default());
        let opening = Connection::open(target, options, observer.clone());
        match tokio::time::timeout(START_TIMEOUT, opening).await {
            Ok(Ok(connection)) => self.report_connection(connection, findings).await,
            Ok(Err(OpenError::Failed(ClientError::Unauthorized { status, challenge }))) => {
                let has_token = has_own || slot.get().is_some();
                self.report_refusal(url, status, challenge.as_deref(), has_token, findings).await;
            }
            Ok(Err(error)) => findings.fail("handshake", error.to_string(), help_for_remote(&error)),
            Err(_) => {
                let detail = format!("no answer within {} s", START_TIMEOUT.as_secs());
                findings.fail(
                    "handshake",
                    detail,
                    "the server accepts connections and does not answer; see its log",
                );
            }
        }
    }

    /// Name, connection, certificate. Returns whether to go on.
    async fn examine_network(&self, url: &Url, findings: &mut Findings) -> bool {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let found = tokio::time::timeout(STEP_TIMEOUT, tokio::net::lookup_host((host.as_str(), port))).await;
        let addresses: Vec<SocketAddr> = match found {
            Ok(Ok(addresses)) => addresses.collect(),
            Ok(Err(error)) => {
                let help = "check the spelling of the host, and whether a VPN is needed";
                findings.fail("DNS", format!("`{host}`: {error}"), help);
                return false;
            }
            Err(_) => {
                findings.fail("DNS", format!("`{host}`: no answer"), "check the network");
                return false;
            }
        };
        let ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        findings.ok("DNS", format!("{host} is {}", ips.join(", ")));
        match tokio::time::timeout(STEP_TIMEOUT, TcpStream::connect(&*addresses)).await {
            Ok(Ok(_)) => findings.ok("TCP", format!("port {port} accepts connections")),
            Ok(Err(error)) => {
                let help = "is the server running, and is this its port? A firewall or a required proxy refuses as well";
                findings.fail("TCP", format!("port {port}: {error}"), help);
                return false;
            }
            Err(_) => {
                let help = "a firewall may drop the packets; where a proxy is required, set HTTPS_PROXY";
                findings.fail("TCP", format!("port {port}: no answer"), help);
                return false;
            }
        }
        if !matches!(url.scheme(), "https" | "wss") {
            return true;
        }
        match outbound::connect(url, &self.options.outbound).await {
            Ok(_) => {
                findings.ok("TLS", "the certificate is valid");
                true
            }
            Err(error) => {
                findings.fail("TLS", error.to_string(), help_for_tls(&error));
                false
            }
        }
    }

    /// The server wants a token: where is it to be had?
    async fn report_refusal(
        &self,
        url: Option<&Url>,
        status: u16,
        challenge: Option<&str>,
        has_token: bool,
        findings: &mut Findings,
    ) {
        let challenge = challenge.and_then(Challenge::parse);
        let name = self.name();
        let mut sign_in = match (self.sign_in.is_some(), has_token) {
            (true, _) => format!("sign in with `spile login {name}`"),
            (false, _) => "write the token to a file and add --token-file FILE".to_owned(),
        };
        if let (Some(url), Some(store)) = (url, self.credentials) {
            let settings = self.sign_in.and_then(|sign_in| sign_in.settings().cloned());
            let settings: OAuthSettings = settings.unwrap_or_default();
            match oauth::find_authorization_server(url, challenge.as_ref(), &settings, store).await {
                Ok(server) if server.is_assumed && !has_token => {
                    sign_in = "ask the server's operator for a key, and write it to `headers` in the entry"
                        .to_owned();
                    let help = "a server without metadata rarely has a sign-in; `spile login` would try its own address";
                    findings.warn("metadata", "the server does not say where tokens come from", help);
                }
                Ok(server) => findings.ok("metadata", format!("tokens come from {}", server.issuer)),
                Err(error) => {
                    let help = "the server's operator must publish OAuth metadata; a token in `headers` works without";
                    findings.fail("metadata", error.to_string(), help);
                }
            }
        }
        let detail = match (status, has_token) {
            (401, false) => "you are not signed in (HTTP 401)".to_owned(),
            (401, true) => "the server does not accept the token (HTTP 401)".to_owned(),
            (status, _) => format!("the server does not permit access (HTTP {status})"),
        };
        findings.fail("token", detail, sign_in);
    }

    async fn report_connection(&self, connection: Connection, findings: &mut Findings) {
        let info = connection.server_info();
        let version = info.protocol_version.as_str();
        findings.ok("handshake", format!("{} {}, protocol {version}", info.name, info.server_version));
        let timeout_ms = u64::try_from(STEP_TIMEOUT.as_millis()).ok();
        let mut counts = Vec::new();
        for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
            if !connection.has_capability(kind.result_key()) {
                continue;
            }
            match connection.list(kind, timeout_ms).await {
                Ok(items) if items.len() == 1 => {
                    counts.push(format!("1 {}", kind.result_key().trim_end_matches('s')));
                }
                Ok(items) => counts.push(format!("{} {}", items.len(), kind.result_key())),
                Err(error) => {
                    let help = "the server declares this list and cannot send it: report it to its author";
                    findings.fail("lists", format!("{}: {error}", kind.result_key()), help);
                }
            }
        }
        match counts.as_slice() {
            [] => findings.warn(
                "lists",
                "the server offers nothing",
                "it may need settings or a sign-in of its own",
            ),
            counts => findings.ok("lists", counts.join(", ")),
        }
        connection.close().await;
    }
}

fn help_for_process(error: &OpenError, command: &process::Command, observer: &Observer) -> String {
    match error {
        OpenError::Child { error: ClientError::Timeout { .. }, .. } if observer.has_skipped() => {
            "it prints something else than MCP messages to stdout; send logs to stderr".to_owned()
        }
        OpenError::Child { error: ClientError::ConnectionClosed(_), .. } => format!(
            "run `{command}` in a terminal; its environment there may differ: only variables in `env` are passed on"
        ),
        OpenError::Child { error: ClientError::UnsupportedVersion(_), .. } => {
            "update the server: it supports no protocol version that Spile does".to_owned()
        }
        _ => format!("run `{command}` in a terminal, and read what it prints"),
    }
}

fn help_for_remote(error: &OpenError) -> String {
    match error {
        OpenError::Failed(
            ClientError::HttpStatus { status: 404 | 405, .. } | ClientError::Server(_),
        ) => {
            "the MCP server may be at another path: most are at /mcp, old ones at /sse".to_owned()
        }
        OpenError::Failed(ClientError::HttpStatus { status: 300..=399, .. }) => {
            "the server is at another address; Spile does not follow redirects, because it would send tokens there"
                .to_owned()
        }
        OpenError::Failed(ClientError::HttpStatus { status: 429, .. }) => "wait, and try again".to_owned(),
        OpenError::Failed(ClientError::HttpStatus { status: 500.., .. }) => {
            "the server has an error of its own; see its log".to_owned()
        }
        OpenError::Failed(ClientError::UnsupportedVersion(_)) => {
            "update the server: it supports no protocol version that Spile does".to_owned()
        }
        _ => "is this an MCP server? `spile trace --url URL` shows every message".to_owned(),
    }
}

fn help_for_tls(error: &OutboundError) -> String {
    match error {
        OutboundError::Connect { failure: ConnectFailure::UnknownIssuer, .. } => {
            "add the certificate of the issuer to the system's store, or pass it to client commands with --cacert FILE".to_owned()
        }
        OutboundError::Connect { failure: ConnectFailure::NotTls, .. } => {
            "the server does not use TLS; write `http:` in place of `https:`, if it is on this machine".to_owned()
        }
        _ => "check the date of this machine, and the host name of the certificate".to_owned(),
    }
}

/// Keeps what a server writes beside its messages.
#[derive(Default)]
struct Observer {
    skipped: Mutex<Vec<String>>,
    stderr: Mutex<Vec<String>>,
}

impl Observer {
    fn has_skipped(&self) -> bool {
        !self.skipped.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn report_output(&self, findings: &mut Findings) {
        let skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match skipped.first() {
            None => findings.ok("stdout", "only MCP messages"),
            Some(first) => findings.warn(
                "stdout",
                format!("something else than MCP messages: {first}"),
                "send logs to stderr: some clients end the connection at such a line",
            ),
        }
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let from = stderr.len().saturating_sub(STDERR_LINES_SHOWN);
        if !stderr.is_empty() {
            findings.ok("stderr", stderr[from..].join("\n"));
        }
    }
}

impl ClientHandler for Observer {
    fn on_input_request(
        &self,
        _: IncomingInputRequest,
    ) -> std::pin::Pin<Box<dyn Future<Output = InputReply> + Send>> {
        Box::pin(async { InputReply::Declined("this is a check".to_owned()) })
    }

    fn on_event(&self, event: ConnectionEvent) {
        let (lines, line) = match event {
            ConnectionEvent::Stderr(line) => (&self.stderr, line),
            ConnectionEvent::ProtocolWarning(warning) => (&self.skipped, warning.to_string()),
            ConnectionEvent::Reinitialized(_)
            | ConnectionEvent::Log { .. }
            | ConnectionEvent::CatalogChanged(_)
            | ConnectionEvent::ElicitationCompleted(_)
            | ConnectionEvent::Closed(_) => return,
        };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == SKIPPED_LINES_MAX {
            lines.remove(0);
        }
        lines.push(line);
    }
}
