//! One attempt to connect: starts or reaches a server, and reads what it offers.

use std::sync::Arc;
use std::time::Duration;

use json::Json;
use outbound::{ConnectFailure, OutboundError};
use spile_core::ClientCapabilities;
use tokio::sync::Semaphore;
use upstream::process::StartError;
use upstream::{ClientHandler, Connection, ConnectionOptions, OpenError, Subscription, TokenSlot};
use wire::client::ClientError;
use wire::error::ErrorCode;
use wire::{ListKind, NotificationFilter, SKILLS_EXTENSION};

use super::live_roots::LiveRoots;
use super::server::{Handler, OpenConnection, Signals, StderrLines};
use super::state::Failure;
use super::tokens::access_token;
use super::{ManagerHost, ManagerOptions};
use crate::config::{ConfiguredServer, ResolvedTransport};
use crate::oauth::LoginError;
use crate::registry::ServerLists;

/// One attempt to start or reach a server.
pub(super) struct Attempt {
    pub(super) server: Arc<ConfiguredServer>,
    pub(super) options: Arc<ManagerOptions>,
    pub(super) host: Arc<dyn ManagerHost>,
    pub(super) starts: Arc<Semaphore>,
    pub(super) stderr: Arc<StderrLines>,
    pub(super) roots: Arc<LiveRoots>,
    /// What the server offered when it was connected last.
    pub(super) known: Arc<ServerLists>,
}

pub(super) struct Opened {
    pub(super) connection: OpenConnection,
    pub(super) lists: ServerLists,
    pub(super) signals: Arc<Signals>,
    pub(super) subscribed: ListSubscription,
}

/// The subscription to changes of lists that was made before they were read.
pub(super) enum ListSubscription {
    Subscribed(Subscription),
    /// The server has no such method, or sends notifications without it.
    Refused,
    /// The server has not answered. Changes of now may not be announced.
    Unanswered,
}

pub(super) struct AttemptError {
    pub(super) failure: Failure,
    pub(super) message: String,
}

impl Attempt {
    pub(super) async fn run(self) -> Result<Opened, AttemptError> {
        let entry = self.server.entry.as_ref().ok();
        let timeout_ms =
            entry.and_then(|entry| entry.start_timeout_ms).unwrap_or(self.options.start_timeout_ms);
        let permit = self.starts.clone().acquire_owned().await.ok();
        let opening = async {
            let opening = self.open(timeout_ms);
            tokio::pin!(opening);
            // A server that hangs keeps its place for a moment only, so that the others can start.
            let share = tokio::time::sleep(Duration::from_millis(self.options.start_share_ms));
            tokio::select! {
                opened = &mut opening => return opened,
                () = share => drop(permit),
            }
            opening.await
        };
        match tokio::time::timeout(Duration::from_millis(timeout_ms), opening).await {
            Ok(opened) => opened,
            Err(_) => Err(AttemptError {
                failure: Failure::Transient,
                message: format!("the server is not ready after {timeout_ms} ms"),
            }),
        }
    }

    async fn open(&self, timeout_ms: u64) -> Result<Opened, AttemptError> {
        let signals = Arc::new(Signals::default());
        let mut options = self.options.connection.clone();
        let declared = &mut options.client_options.capabilities;
        *declared = declared.with(self.host.capabilities(&self.server.name));
        let connection =
            connect(&self.server, &self.options, &options, &*self.host, &self.handler(&signals)).await?;
        let subscribed = subscribe_to_lists(&connection.connection).await;
        let read = read_lists(&connection.connection, &self.server.name, &self.known, timeout_ms).await;
        let tools = read.tools.map_err(|error| AttemptError {
            failure: Failure::Transient,
            message: format!("cannot list the tools: {error}"),
        })?;
        let lists = ServerLists { tools, ..read.others };
        let lists = review(lists, &self.server, &*self.host)
            .await
            .map_err(|message| AttemptError { failure: Failure::Permanent, message })?;
        Ok(Opened { connection, lists, signals, subscribed })
    }

    fn handler(&self, signals: &Arc<Signals>) -> Arc<dyn ClientHandler> {
        Arc::new(Handler {
            server: self.server.name.clone(),
            host: self.host.clone(),
            signals: signals.clone(),
            stderr: self.stderr.clone(),
            roots: self.roots.clone(),
        })
    }
}

/// Starts or reaches the server, with the user's token where it needs one.
pub(super) async fn connect(
    server: &ConfiguredServer,
    limits: &ManagerOptions,
    options: &ConnectionOptions,
    host: &dyn ManagerHost,
    handler: &Arc<dyn ClientHandler>,
) -> Result<OpenConnection, AttemptError> {
    let failed = |error: OpenError| AttemptError { failure: classify(&error), message: error.to_string() };
    let env = |name: &str| host.env(name);
    let mut options = options.clone();
    if let Some(roots) = server.entry.as_ref().ok().and_then(|entry| entry.roots.as_ref()) {
        // Before anything starts: a server that asks for them later would only see that there are none.
        server
            .resolve_roots(roots, &env, host.home().as_deref())
            .map_err(|error| AttemptError { failure: Failure::Permanent, message: error.to_string() })?;
        let declared = &mut options.client_options.capabilities;
        *declared = declared.with(ClientCapabilities::ROOTS).with(ClientCapabilities::ROOTS_LIST_CHANGED);
    }
    if let Some(connecting) = host.connect_in_process(&server.name, &options, handler) {
        let connection = connecting.await.map_err(failed)?;
        let token = TokenSlot::default();
        return Ok(OpenConnection { connection, token, url: None, reach: options.outbound.reach });
    }
    let reach = options.outbound.reach.max(limits.reach_of(server));
    options.outbound.reach = reach;
    let resolved = server
        .resolve(&env, host.home().as_deref())
        .map_err(|error| AttemptError { failure: Failure::Permanent, message: error.to_string() })?;
    let token = TokenSlot::default();
    let with_headers = |headers: Vec<(String, String)>| ConnectionOptions {
        headers,
        token: Some(token.clone()),
        ..options.clone()
    };
    let connection = match &resolved {
        ResolvedTransport::Process(command) => {
            Connection::spawn(command, with_headers(Vec::new()), handler.clone()).await
        }
        ResolvedTransport::Remote { target, headers } => {
            let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            if let Some(url) = resolved.url().filter(|_| !has_own) {
                token.set(access_token(server, url, reach, None, host).await.map_err(no_token)?);
            }
            let options = with_headers(headers.clone());
            let first = Connection::open(target, options.clone(), handler.clone()).await;
            match (first, token.text()) {
                // The token may have been revoked; a refresh may help.
                (
                    Err(OpenError::Failed(ClientError::Unauthorized { status: 401, .. })),
                    rejected @ Some(_),
                ) => {
                    if let Some(url) = resolved.url() {
                        token.set(access_token(server, url, reach, rejected, host).await.map_err(no_token)?);
                    }
                    Connection::open(target, options, handler.clone()).await
                }
                (first, _) => first,
            }
        }
    };
    let connection = connection.map_err(failed)?;
    Ok(OpenConnection { connection, token, url: resolved.url().cloned(), reach })
}

fn no_token(error: LoginError) -> AttemptError {
    let failure = if error.is_temporary() { Failure::Transient } else { Failure::Permanent };
    AttemptError { failure, message: format!("cannot get a token: {error}") }
}

/// How long the lists wait for the subscription to their changes.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Before the lists are read: a change in between is announced.
async fn subscribe_to_lists(connection: &Connection) -> ListSubscription {
    match tokio::time::timeout(SUBSCRIBE_TIMEOUT, connection.subscribe(&list_changes())).await {
        Ok(Ok(subscription)) => ListSubscription::Subscribed(subscription),
        Ok(Err(_)) => ListSubscription::Refused,
        Err(_) => ListSubscription::Unanswered,
    }
}

pub(super) fn list_changes() -> NotificationFilter {
    NotificationFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..NotificationFilter::default()
    }
}

/// The lists of a server, each read for itself.
pub(super) struct ReadLists {
    /// Without its tools a server cannot be used for the first time.
    pub(super) tools: Result<Vec<Json>, ClientError>,
    /// Without `tools`.
    pub(super) others: ServerLists,
}

/// Reads every list that the server has. One that cannot be read is as it was before: a server with broken prompts is still
/// useful, and one that is busy for a moment loses nothing.
pub(super) async fn read_lists(
    connection: &Connection,
    server: &str,
    known: &ServerLists,
    timeout_ms: u64,
) -> ReadLists {
    let read = async |kind: ListKind, declared_by: ListKind| {
        if !connection.has_capability(declared_by.result_key()) {
            return Ok(Vec::new());
        }
        match connection.list(kind, Some(timeout_ms)).await {
            // Servers without templates often lack the method.
            Err(ClientError::Server(error))
                if error.code == ErrorCode::MethodNotFound.number() && kind != ListKind::Tools =>
            {
                Ok(Vec::new())
            }
            read => read.inspect_err(|error| {
                tracing::warn!(server, list = kind.result_key(), %error, "cannot read a list; it stays as it was");
            }),
        }
    };
    let tools = read(ListKind::Tools, ListKind::Tools).await;
    let kept =
        |read: Result<Vec<Json>, ClientError>, before: &[Json]| read.unwrap_or_else(|_| before.to_vec());
    let prompts = kept(read(ListKind::Prompts, ListKind::Prompts).await, &known.prompts);
    let resources = kept(read(ListKind::Resources, ListKind::Resources).await, &known.resources);
    let templates = kept(read(ListKind::Templates, ListKind::Resources).await, &known.templates);
    let skills = match connection.has_extension(SKILLS_EXTENSION) {
        false => Vec::new(),
        true => {
            let read = connection.list(ListKind::Skills, Some(timeout_ms)).await;
            let read = read.inspect_err(|error| {
                tracing::warn!(server, list = "skills", %error, "cannot read a list; it stays as it was");
            });
            kept(read, &known.skills)
        }
    };
    let others =
        ServerLists { tools: Vec::new(), prompts, resources, templates, skills, unapproved: Vec::new() };
    ReadLists { tools, others }
}

/// Compares the tools with those that the user approved. Without an answer none may be used.
pub(super) async fn review(
    mut lists: ServerLists,
    server: &Arc<ConfiguredServer>,
    host: &dyn ManagerHost,
) -> Result<ServerLists, String> {
    let Some(pins) = host.definitions() else { return Ok(lists) };
    let server = server.clone();
    let policy = server.entry.as_ref().map(|entry| entry.definitions).unwrap_or_default();
    let reviewed = tokio::task::spawn_blocking(move || {
        let unapproved = pins.review(&server, &lists.tools, policy).map_err(|error| error.to_string())?;
        for one in &unapproved {
            tracing::warn!(server = server.name, tool = one.tool, "{}", one.reason());
        }
        lists.unapproved = unapproved;
        Ok(lists)
    });
    reviewed.await.map_err(|error| format!("this is a bug, please report it: {error}"))?
}

/// Whether another attempt may succeed.
fn classify(error: &OpenError) -> Failure {
    let by_client_error = |error: &ClientError| match error {
        ClientError::Unauthorized { .. } => Failure::Unauthorized,
        ClientError::HttpStatus { status: 408 | 425 | 429 | 500.., retry_after_ms, .. } => {
            retry_after_ms.map_or(Failure::Transient, |retry_after_ms| Failure::Busy { retry_after_ms })
        }
        ClientError::HttpStatus { .. } | ClientError::UnsupportedVersion(_) => Failure::Permanent,
        ClientError::Server(_)
        | ClientError::ProtocolViolation(_)
        | ClientError::Timeout { .. }
        | ClientError::ConnectionClosed(_)
        | ClientError::Cancelled
        | ClientError::InputRefused(_)
        | ClientError::Busy => Failure::Transient,
    };
    match error {
        OpenError::Failed(error) | OpenError::Child { error, .. } => by_client_error(error),
        OpenError::Connect { failure, .. } | OpenError::Outbound(OutboundError::Connect { failure, .. }) => {
            match failure {
                // Only a person can change the certificate or the address.
                ConnectFailure::UnknownIssuer | ConnectFailure::NotTls => Failure::Permanent,
                ConnectFailure::SocketNotFound
                | ConnectFailure::Refused
                | ConnectFailure::NameNotResolved
                | ConnectFailure::Other => Failure::Transient,
            }
        }
        OpenError::Start(StartError::SpawnFailed { .. } | StartError::SetupFailed { .. }) => {
            Failure::Transient
        }
        OpenError::Outbound(_) | OpenError::Start(_) => Failure::Permanent,
    }
}
