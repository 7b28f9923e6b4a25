//! Our client against servers written with the official SDKs: each over every door that the SDK has, at every
//! protocol version it knows.
//!
//! The servers are in `servers/` of this crate, and `examples/rmcp-server.rs`. All of them are the same desk,
//! written the way its SDK wants it written. What a visitor does there is in `visit.rs`; what an SDK cannot do is
//! in [`GAPS`], with the reason, and everything else must work.

mod scenarios;
mod sdk_server;

use std::collections::BTreeSet;
use std::sync::Arc;

use upstream::{Connection, OpenError, Options, Target};
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
    /// HTTP with sessions and streams, as the SDKs have it unless they are told otherwise.
    Http,
    /// HTTP as servers that are many have it: each request is answered with one body, and nothing is kept.
    StatelessHttp,
    /// HTTP of the oldest kind: POSTs, and a stream of events beside them.
    Sse,
    WebSocket,
}

/// What a visitor may want that needs more than one answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    /// To hear how far a call is, and what the server notes about it.
    Progress,
    /// To be asked something.
    InputRequests,
    /// To hear of changes.
    Changes,
    /// To give up a call.
    Cancellation,
}

/// What a server does not do over a door, and why. It is not the client's fault.
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
        versions: |version| version.has(Feature::Envelope),
        behaviors: &[Behavior::Progress, Behavior::Cancellation],
        reason: "one body has room for one answer; that a call has begun is told by its progress",
    },
];

impl Sdk {
    fn supports_version(self, version: Version) -> bool {
        match self {
            Self::Python1 | Self::TypeScript1 => version.has(Feature::Handshake),
            Self::Python2 | Self::TypeScript2 | Self::Rust => true,
        }
    }

    /// What a client ends up with that leaves it to the two of them.
    fn negotiated_version(self, door: TransportKind) -> Version {
        match (door, self.supports_version(Version::NEWEST)) {
            // Whoever opens the oldest door is taken for somebody of that time.
            (TransportKind::Sse, _) | (_, false) => Version::NEWEST_WITH_HANDSHAKE,
            (_, true) => Version::NEWEST,
        }
    }

    fn supports(self, wish: Behavior, door: TransportKind, version: Version) -> bool {
        !GAPS.iter().any(|gap| {
            gap.sdks.contains(&self)
                && gap.transport == door
                && (gap.versions)(version)
                && gap.behaviors.contains(&wish)
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

// Only the Python SDK 1 has a WebSocket; only it, its successor and the TypeScript SDK 1 still serve the oldest kind
// of HTTP in the package that is there for servers.
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

/// One row of the table: every version, the one that is found out, and those that must be refused. Over HTTP
/// they share one server, which has to tell them apart.
fn check(sdk: Sdk, door: TransportKind) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let mut failures = Vec::new();
        let mut server = SdkServer::start(sdk, door).await;
        let found = sdk.negotiated_version(door);
        let versions = Version::ALL.iter().map(|(version, _)| *version);
        for (speak, version) in
            versions.map(|v| (VersionPolicy::Only(v), v)).chain([(VersionPolicy::Any, found)])
        {
            let visited = match sdk.supports_version(version) {
                true => run_scenarios(sdk, door, &mut server, speak, version).await,
                false => check_refusal(&mut server, speak).await,
            };
            if let Err(why) = visited {
                failures.push(format!("{sdk:?} over {door:?}, {speak:?}: {why}"));
            }
        }
        // A server that dies, in both eras.
        for version in BTreeSet::from([found, Version::NEWEST_WITH_HANDSHAKE]) {
            if let Err(why) = check_server_death(sdk, door, VersionPolicy::Only(version)).await {
                failures.push(format!("{sdk:?} over {door:?}, {version:?}, dying: {why}"));
            }
        }
        assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    });
}

async fn run_scenarios(
    sdk: Sdk,
    door: TransportKind,
    server: &mut SdkServer,
    speak: VersionPolicy,
    version: Version,
) -> Result<(), String> {
    let (visitor, watch) = (RecordingHandler::new(), RecordingTap::new());
    let opened = open(server, speak, &visitor, &watch).await?;
    let (connection, process) = (opened.0.map_err(|error| format!("opening: {error}"))?, opened.1);
    scenarios::run_all(sdk, door, version, &connection, &visitor, &watch).await?;
    scenarios::within("closing", connection.close()).await?;
    // 2025-11-25, Session Management: clients "SHOULD send an HTTP DELETE", and all of these servers take it.
    if door == TransportKind::Http && version.has(Feature::Sessions) {
        watch.session_ended()?;
    }
    match process {
        Some(process) => process.wait_exit().await,
        None => Ok(()),
    }
}

/// A version that the server does not know is not spoken to it.
async fn check_refusal(server: &mut SdkServer, speak: VersionPolicy) -> Result<(), String> {
    match open(server, speak, &RecordingHandler::new(), &RecordingTap::new()).await?.0 {
        Err(OpenError::Failed(ClientError::UnsupportedVersion(_))) => Ok(()),
        Err(other) => Err(format!("refused for another reason: {other}")),
        Ok(_) => Err("not refused".to_owned()),
    }
}

/// The server ends in the middle of a call, and the call does not wait for ever.
async fn check_server_death(sdk: Sdk, door: TransportKind, speak: VersionPolicy) -> Result<(), String> {
    let mut server = SdkServer::start(sdk, door).await;
    let opened = open(&mut server, speak, &RecordingHandler::new(), &RecordingTap::new()).await?;
    let connection = opened.0.map_err(|error| format!("opening: {error}"))?;
    match scenarios::within("dying", scenarios::tool(&connection, "die", "{}")).await? {
        Err(ClientError::ConnectionClosed(why)) if !why.to_string().is_empty() => {}
        other => return Err(format!("the call ended with {other:?}")),
    }
    // And so does whatever is asked for after that.
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
    speak: VersionPolicy,
    visitor: &Arc<RecordingHandler>,
    watch: &Arc<RecordingTap>,
) -> Result<OpenResult, String> {
    let caps = spile_core::ClientCapabilities::ELICITATION_FORM
        .with(spile_core::ClientCapabilities::SAMPLING)
        .with(spile_core::ClientCapabilities::ROOTS);
    let terms = ClientOptions { capabilities: caps, version_policy: speak, ..ClientOptions::default() };
    let options = Options { client_options: terms, trace: Some(watch.clone()), ..Options::default() };
    let opening = async {
        match server {
            SdkServer::Command(command) => {
                let (process, input, output) = sdk_server::Process::spawn(command);
                let opened = Connection::over_pipe(input, output, options, visitor.clone()).await;
                (opened, Some(process))
            }
            // Where the stream beside the POSTs is all there is, that is known, or found out.
            SdkServer::Listening { url, .. } => {
                let target = match Target::parse(url).expect("a server prints its address") {
                    Target::Http(url) if speak != VersionPolicy::Any && url.path() == "/sse" => {
                        Target::Sse(url)
                    }
                    target => target,
                };
                (Connection::open(&target, options, visitor.clone()).await, None)
            }
        }
    };
    scenarios::within("opening", opening).await
}
