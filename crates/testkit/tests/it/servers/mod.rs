//! Our client against servers written with the official SDKs: each over every door that the SDK has, at every
//! protocol version it knows.
//!
//! The servers are in `servers/` of this crate, and `examples/rmcp-server.rs`. All of them are the same desk,
//! written the way its SDK wants it written. What a visitor does there is in `visit.rs`; what an SDK cannot do is
//! in [`GAPS`], with the reason, and everything else must work.

mod stand;
mod visit;

use std::collections::BTreeSet;
use std::sync::Arc;

use upstream::{Connection, OpenError, Options, Target};
use wire::client::{Failure, Speak, Terms};
use wire::{Feature, Version};

use stand::Server;
use visit::{Visitor, Watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sdk {
    Python1,
    Python2,
    TypeScript1,
    TypeScript2,
    Rust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Stdio,
    /// HTTP with sessions and streams, as the SDKs have it unless they are told otherwise.
    Http,
    /// HTTP as servers that are many have it: each request is answered with one body, and nothing is kept.
    Plain,
    /// HTTP of the oldest kind: POSTs, and a stream of events beside them.
    Sse,
    WebSocket,
}

/// What a visitor may want that needs more than one answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To hear how far a call is, and what the server notes about it.
    Progress,
    /// To be asked something.
    Questions,
    /// To hear of changes.
    Changes,
    /// To give up a call.
    Cancelling,
}

/// What a server does not do over a door, and why. It is not the client's fault.
struct Gap {
    sdks: &'static [Sdk],
    door: Door,
    versions: fn(Version) -> bool,
    wishes: &'static [Wish],
    #[expect(dead_code, reason = "for the reader")]
    because: &'static str,
}

const GAPS: &[Gap] = &[
    Gap {
        sdks: &[Sdk::Python1, Sdk::Python2, Sdk::TypeScript1],
        door: Door::Plain,
        versions: |version| version.has(Feature::Handshake),
        wishes: &[Wish::Progress, Wish::Questions, Wish::Changes, Wish::Cancelling],
        because: "one body has room for one answer, and whatever comes after it finds another server",
    },
    Gap {
        sdks: &[Sdk::TypeScript2, Sdk::Rust],
        door: Door::Plain,
        versions: |version| version.has(Feature::Handshake),
        wishes: &[Wish::Questions, Wish::Changes, Wish::Cancelling],
        because: "calls are answered with a stream where they need one, but what comes after them finds another server",
    },
    Gap {
        sdks: &[Sdk::Python2],
        door: Door::Plain,
        versions: |version| version.has(Feature::Envelope),
        wishes: &[Wish::Progress, Wish::Cancelling],
        because: "one body has room for one answer; that a call has begun is told by its progress",
    },
];

impl Sdk {
    fn knows(self, version: Version) -> bool {
        match self {
            Self::Python1 | Self::TypeScript1 => version.has(Feature::Handshake),
            Self::Python2 | Self::TypeScript2 | Self::Rust => true,
        }
    }

    /// What a client ends up with that leaves it to the two of them.
    fn found(self, door: Door) -> Version {
        match (door, self.knows(Version::NEWEST)) {
            // Whoever opens the oldest door is taken for somebody of that time.
            (Door::Sse, _) | (_, false) => Version::NEWEST_WITH_HANDSHAKE,
            (_, true) => Version::NEWEST,
        }
    }

    fn grants(self, wish: Wish, door: Door, version: Version) -> bool {
        !GAPS.iter().any(|gap| {
            gap.sdks.contains(&self)
                && gap.door == door
                && (gap.versions)(version)
                && gap.wishes.contains(&wish)
        })
    }
}

macro_rules! every_server_over_every_door {
    ($($name:ident: $sdk:ident $door:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(Sdk::$sdk, Door::$door);
            }
        )*
    };
}

// Only the Python SDK 1 has a WebSocket; only it, its successor and the TypeScript SDK 1 still serve the oldest kind
// of HTTP in the package that is there for servers.
every_server_over_every_door! {
    python_1_over_stdio: Python1 Stdio,
    python_1_over_http: Python1 Http,
    python_1_over_plain_http: Python1 Plain,
    python_1_over_sse: Python1 Sse,
    python_1_over_websocket: Python1 WebSocket,
    python_2_over_stdio: Python2 Stdio,
    python_2_over_http: Python2 Http,
    python_2_over_plain_http: Python2 Plain,
    python_2_over_sse: Python2 Sse,
    typescript_1_over_stdio: TypeScript1 Stdio,
    typescript_1_over_http: TypeScript1 Http,
    typescript_1_over_plain_http: TypeScript1 Plain,
    typescript_1_over_sse: TypeScript1 Sse,
    typescript_2_over_stdio: TypeScript2 Stdio,
    typescript_2_over_http: TypeScript2 Http,
    typescript_2_over_plain_http: TypeScript2 Plain,
    rust_over_stdio: Rust Stdio,
    rust_over_http: Rust Http,
    rust_over_plain_http: Rust Plain,
}

/// One row of the table: every version, the one that is found out, and those that must be refused. Over HTTP
/// they share one server, which has to tell them apart.
fn check(sdk: Sdk, door: Door) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let mut failures = Vec::new();
        let mut server = Server::start(sdk, door).await;
        let found = sdk.found(door);
        let versions = Version::ALL.iter().map(|(version, _)| *version);
        for (speak, version) in versions.map(|v| (Speak::Only(v), v)).chain([(Speak::Any, found)]) {
            let visited = match sdk.knows(version) {
                true => visit(sdk, door, &mut server, speak, version).await,
                false => refusal(&mut server, speak).await,
            };
            if let Err(why) = visited {
                failures.push(format!("{sdk:?} over {door:?}, {speak:?}: {why}"));
            }
        }
        // A server that dies, in both eras.
        for version in BTreeSet::from([found, Version::NEWEST_WITH_HANDSHAKE]) {
            if let Err(why) = death(sdk, door, Speak::Only(version)).await {
                failures.push(format!("{sdk:?} over {door:?}, {version:?}, dying: {why}"));
            }
        }
        assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    });
}

async fn visit(
    sdk: Sdk,
    door: Door,
    server: &mut Server,
    speak: Speak,
    version: Version,
) -> Result<(), String> {
    let (visitor, watch) = (Visitor::new(), Watch::new());
    let opened = open(server, speak, &visitor, &watch).await?;
    let (connection, process) = (opened.0.map_err(|error| format!("opening: {error}"))?, opened.1);
    visit::all(sdk, door, version, &connection, &visitor, &watch).await?;
    visit::within("closing", connection.close()).await?;
    // 2025-11-25, Session Management: clients "SHOULD send an HTTP DELETE", and all of these servers take it.
    if door == Door::Http && version.has(Feature::Sessions) {
        watch.session_ended()?;
    }
    match process {
        Some(process) => process.exited().await,
        None => Ok(()),
    }
}

/// A version that the server does not know is not spoken to it.
async fn refusal(server: &mut Server, speak: Speak) -> Result<(), String> {
    match open(server, speak, &Visitor::new(), &Watch::new()).await?.0 {
        Err(OpenError::Refused(Failure::NoVersion(_))) => Ok(()),
        Err(other) => Err(format!("refused for another reason: {other}")),
        Ok(_) => Err("not refused".to_owned()),
    }
}

/// The server ends in the middle of a call, and the call does not wait for ever.
async fn death(sdk: Sdk, door: Door, speak: Speak) -> Result<(), String> {
    let mut server = Server::start(sdk, door).await;
    let opened = open(&mut server, speak, &Visitor::new(), &Watch::new()).await?;
    let connection = opened.0.map_err(|error| format!("opening: {error}"))?;
    match visit::within("dying", visit::tool(&connection, "die", "{}")).await? {
        Err(Failure::Closed(why)) if !why.is_empty() => {}
        other => return Err(format!("the call ended with {other:?}")),
    }
    // And so does whatever is asked for after that.
    match visit::within("asking the dead", visit::tool(&connection, "add", r#"{"a":1,"b":2}"#)).await? {
        Err(Failure::Closed(_)) => Ok(()),
        other => Err(format!("the next call ended with {other:?}")),
    }
}

type Opened = (Result<Connection, OpenError>, Option<stand::Process>);

async fn open(
    server: &mut Server,
    speak: Speak,
    visitor: &Arc<Visitor>,
    watch: &Arc<Watch>,
) -> Result<Opened, String> {
    let caps = call::Caps::ELICIT_FORM.with(call::Caps::SAMPLING).with(call::Caps::ROOTS);
    let terms = Terms { caps, speak, ..Terms::default() };
    let options = Options { terms, tap: Some(watch.clone()), ..Options::default() };
    let opening = async {
        match server {
            Server::Command(command) => {
                let (process, input, output) = stand::Process::spawn(command);
                let opened = Connection::over_pipe(input, output, options, visitor.clone()).await;
                (opened, Some(process))
            }
            // Where the stream beside the POSTs is all there is, that is known, or found out.
            Server::Listening { url, .. } => {
                let target = match Target::parse(url).expect("a server prints its address") {
                    Target::Http(url) if speak != Speak::Any && url.path() == "/sse" => Target::Sse(url),
                    target => target,
                };
                (Connection::open(&target, options, visitor.clone()).await, None)
            }
        }
    };
    visit::within("opening", opening).await
}
