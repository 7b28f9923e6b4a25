//! Our client against servers written with the official SDKs: each over every transport the SDK has, at every
//! protocol version it supports.
//!
//! The servers are in `servers/` of this crate, and `examples/rmcp-server.rs`. All of them implement the same fixture,
//! in the style of their SDK. What the client does is in `scenarios.rs`; what an SDK cannot do is in [`GAPS`], with the
//! reason, and everything else must work.

mod gateway;
mod scenarios;
mod sdk_server;

use std::collections::BTreeSet;
use std::sync::Arc;

use upstream::{Connection, ConnectionOptions, OpenError, Target};
use wire::client::{ClientError, ClientOptions, VersionPolicy};
use wire::{Feature, Version};

use scenarios::{RecordingHandler, RecordingTap};
use sdk_server::SdkServer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sdk {
    Python1,
    Python2,
    TypeScript1,
    TypeScript2,
    Rust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportKind {
    Stdio,
    /// HTTP with sessions and streams, the default of the SDKs.
    Http,
    /// HTTP for replicated servers: each request is answered with one body, and the server keeps no state.
    StatelessHttp,
    /// HTTP+SSE: POSTs, and a stream of events beside them.
    Sse,
    WebSocket,
}

/// Behaviour that needs more than one response to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    /// Progress and log notifications.
    Progress,
    /// Input requests.
    InputRequests,
    /// List changes and resource updates.
    Changes,
    /// Cancellation.
    Cancellation,
}

/// What a server does not support over a transport, and why. It is not the client's fault.
struct SdkGap {
    sdks: &'static [Sdk],
    transport: TransportKind,
    versions: fn(Version) -> bool,
    behaviors: &'static [Behavior],
    #[expect(dead_code, reason = "for the reader")]
    reason: &'static str,
}

const GAPS: &[SdkGap] = &[
    SdkGap {
        sdks: &[Sdk::Python1, Sdk::Python2, Sdk::TypeScript1],
        transport: TransportKind::StatelessHttp,
        versions: |version| version.has(Feature::Handshake),
        behaviors: &[Behavior::Progress, Behavior::InputRequests, Behavior::Changes, Behavior::Cancellation],
        reason: "one body has room for one answer, and whatever comes after it finds another server",
    },
    SdkGap {
        sdks: &[Sdk::TypeScript2, Sdk::Rust],
        transport: TransportKind::StatelessHttp,
        versions: |version| version.has(Feature::Handshake),
        behaviors: &[Behavior::InputRequests, Behavior::Changes, Behavior::Cancellation],
        reason: "calls are answered with a stream where they need one, but what comes after them finds another server",
    },
    SdkGap {
        sdks: &[Sdk::Python2],
        transport: TransportKind::StatelessHttp,
        versions: |version| version.has(Feature::RequestMeta),
        behaviors: &[Behavior::Progress, Behavior::Cancellation],
        reason: "one body has room for one response; the start of a call shows in its progress",
    },
];

impl Sdk {
    fn supports_version(self, version: Version) -> bool {
        match self {
            Self::Python1 | Self::TypeScript1 => version.has(Feature::Handshake),
            Self::Python2 | Self::TypeScript2 | Self::Rust => true,
        }
    }

    /// The version that an automatic client negotiates.
    fn negotiated_version(self, transport: TransportKind) -> Version {
        match (transport, self.supports_version(Version::NEWEST)) {
            // A client of HTTP+SSE is taken for one of 2024-11-05.
            (TransportKind::Sse, _) | (_, false) => Version::NEWEST_WITH_HANDSHAKE,
            (_, true) => Version::NEWEST,
        }
    }

    fn supports(self, behavior: Behavior, transport: TransportKind, version: Version) -> bool {
        !GAPS.iter().any(|gap| {
            gap.sdks.contains(&self)
                && gap.transport == transport
                && (gap.versions)(version)
                && gap.behaviors.contains(&behavior)
        })
    }
}

macro_rules! every_server_over_every_transport {
    ($($name:ident: $sdk:ident $transport:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(Sdk::$sdk, TransportKind::$transport);
            }
        )*
    };
}

// Only the Python SDK 1 has a WebSocket; only it, its successor and the TypeScript SDK 1 still serve HTTP+SSE in their
// server package.
every_server_over_every_transport! {
    python_1_over_stdio: Python1 Stdio,
    python_1_over_http: Python1 Http,
    python_1_over_plain_http: Python1 StatelessHttp,
    python_1_over_sse: Python1 Sse,
    python_1_over_websocket: Python1 WebSocket,
    python_2_over_stdio: Python2 Stdio,
    python_2_over_http: Python2 Http,
    python_2_over_plain_http: Python2 StatelessHttp,
    python_2_over_sse: Python2 Sse,
    typescript_1_over_stdio: TypeScript1 Stdio,
    typescript_1_over_http: TypeScript1 Http,
    typescript_1_over_plain_http: TypeScript1 StatelessHttp,
    typescript_1_over_sse: TypeScript1 Sse,
    typescript_2_over_stdio: TypeScript2 Stdio,
    typescript_2_over_http: TypeScript2 Http,
    typescript_2_over_plain_http: TypeScript2 StatelessHttp,
    rust_over_stdio: Rust Stdio,
    rust_over_http: Rust Http,
    rust_over_plain_http: Rust StatelessHttp,
}

/// Tests every version, automatic negotiation, and the versions that must be refused. Over HTTP they share one server,
/// which has to distinguish them.
fn check(sdk: Sdk, transport: TransportKind) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let mut failures = Vec::new();
        let mut server = SdkServer::start(sdk, transport).await;
        let found = sdk.negotiated_version(transport);
        let versions = Version::ALL.iter().map(|(version, _)| *version);
        for (version_policy, version) in
            versions.map(|v| (VersionPolicy::Only(v), v)).chain([(VersionPolicy::Any, found)])
        {
            let visited = match sdk.supports_version(version) {
                true => run_scenarios(sdk, transport, &mut server, version_policy, version).await,
                false => check_refusal(&mut server, version_policy).await,
            };
            if let Err(reason) = visited {
                failures.push(format!("{sdk:?} over {transport:?}, {version_policy:?}: {reason}"));
            }
        }
        // A server that dies, in both eras.
        for version in BTreeSet::from([found, Version::NEWEST_WITH_HANDSHAKE]) {
            if let Err(reason) = check_server_death(sdk, transport, VersionPolicy::Only(version)).await {
                failures.push(format!("{sdk:?} over {transport:?}, {version:?}, dying: {reason}"));
            }
        }
        assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    });
}

async fn run_scenarios(
    sdk: Sdk,
    transport: TransportKind,
    server: &mut SdkServer,
    version_policy: VersionPolicy,
    version: Version,
) -> Result<(), String> {
    let (handler, tap) = (RecordingHandler::new(), RecordingTap::new());
    let opened = open(server, version_policy, &handler, &tap).await?;
    let (connection, process) = (opened.0.map_err(|error| format!("opening: {error}"))?, opened.1);
    scenarios::run_all(sdk, transport, version, &connection, &handler, &tap).await?;
    scenarios::within("closing", connection.close()).await?;
    // 2025-11-25, Session Management: clients "SHOULD send an HTTP DELETE", and all of these servers take it.
    if transport == TransportKind::Http && version.has(Feature::Sessions) {
        tap.session_ended()?;
    }
    match process {
        Some(process) => process.wait_exit().await,
        None => Ok(()),
    }
}

/// A version that the server does not support is refused.
async fn check_refusal(server: &mut SdkServer, version_policy: VersionPolicy) -> Result<(), String> {
    match open(server, version_policy, &RecordingHandler::new(), &RecordingTap::new()).await?.0 {
        Err(OpenError::Failed(ClientError::UnsupportedVersion(_))) => Ok(()),
        Err(other) => Err(format!("refused for another reason: {other}")),
        Ok(_) => Err("not refused".to_owned()),
    }
}

/// The server ends in the middle of a call, and the call must not wait for ever.
async fn check_server_death(
    sdk: Sdk,
    transport: TransportKind,
    version_policy: VersionPolicy,
) -> Result<(), String> {
    let mut server = SdkServer::start(sdk, transport).await;
    let opened = open(&mut server, version_policy, &RecordingHandler::new(), &RecordingTap::new()).await?;
    let connection = opened.0.map_err(|error| format!("opening: {error}"))?;
    match scenarios::within("dying", scenarios::tool(&connection, "die", "{}")).await? {
        Err(ClientError::ConnectionClosed(reason)) if !reason.to_string().is_empty() => {}
        other => return Err(format!("the call ended with {other:?}")),
    }
    // Later requests must fail too.
    match scenarios::within("asking the dead", scenarios::tool(&connection, "add", r#"{"a":1,"b":2}"#))
        .await?
    {
        Err(ClientError::ConnectionClosed(_)) => Ok(()),
        other => Err(format!("the next call ended with {other:?}")),
    }
}

type OpenResult = (Result<Connection, OpenError>, Option<sdk_server::Process>);

async fn open(
    server: &mut SdkServer,
    version_policy: VersionPolicy,
    handler: &Arc<RecordingHandler>,
    tap: &Arc<RecordingTap>,
) -> Result<OpenResult, String> {
    let capabilities = spile_core::ClientCapabilities::ELICITATION_FORM
        .with(spile_core::ClientCapabilities::SAMPLING)
        .with(spile_core::ClientCapabilities::ROOTS);
    let terms = ClientOptions { capabilities, version_policy, ..ClientOptions::default() };
    let options =
        ConnectionOptions { client_options: terms, trace: Some(tap.clone()), ..ConnectionOptions::default() };
    let opening = async {
        match server {
            SdkServer::Command(command) => {
                let (process, input, output) = sdk_server::Process::spawn(command);
                let opened = Connection::over_pipe(input, output, options, handler.clone()).await;
                (opened, Some(process))
            }
            // A client of HTTP+SSE is told so, or finds out.
            SdkServer::Listening { url, .. } => {
                let target = match Target::parse(url).expect("a server prints its address") {
                    Target::Http(url) if version_policy != VersionPolicy::Any && url.path() == "/sse" => {
                        Target::Sse(url)
                    }
                    target => target,
                };
                (Connection::open(&target, options, handler.clone()).await, None)
            }
        }
    };
    scenarios::within("opening", opening).await
}
