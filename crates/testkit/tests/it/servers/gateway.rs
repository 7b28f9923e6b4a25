//! The same scenarios through a gateway: a client of either era, and behind the gateway a server of either era.

use std::path::PathBuf;
use std::sync::Arc;

use ::gateway::{Gateway, GatewayOptions, Naming};
use host::{Config, ProviderSet, Server, SystemPlatform};
use json::Json;
use servers::config::files::ConfigDirs;
use servers::decisions::Permission;
use servers::manager::ManagerHost;
use servers::manager::state::Status;
use spile_core::{ClientCapabilities, Limits};
use upstream::{Connection, ConnectionOptions};
use wire::client::{ClientOptions, VersionPolicy};
use wire::{Feature, Version};

use super::scenarios::{self, RecordingHandler, within};
use super::sdk_server::SdkServer;
use super::{Behavior, Sdk, TransportKind};

const SERVER: &str = "official";

macro_rules! through_a_gateway {
    ($($name:ident: $sdk:ident $transport:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(Sdk::$sdk, TransportKind::$transport);
            }
        )*
    };
}

through_a_gateway! {
    python_1_over_stdio: Python1 Stdio,
    python_1_over_http: Python1 Http,
    python_2_over_stdio: Python2 Stdio,
    python_2_over_http: Python2 Http,
    typescript_1_over_stdio: TypeScript1 Stdio,
    typescript_1_over_http: TypeScript1 Http,
    typescript_2_over_stdio: TypeScript2 Stdio,
    typescript_2_over_http: TypeScript2 Http,
    rust_over_stdio: Rust Stdio,
    rust_over_http: Rust Http,
}

/// Every pair of eras that the server has, each with its newest version.
fn check(sdk: Sdk, transport: TransportKind) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let mut failures = Vec::new();
        let server = SdkServer::start(sdk, transport).await;
        for policy in [VersionPolicy::HandshakeOnly, VersionPolicy::Any] {
            let gateway = start_gateway(&server, policy).await;
            let upstream = gateway.version();
            for version in [Version::NEWEST_WITH_HANDSHAKE, Version::NEWEST] {
                if let Err(reason) = run_scenarios(&gateway.server, sdk, transport, upstream, version).await {
                    eprintln!("{version:?} to {upstream:?}: {reason}");
                    failures
                        .push(format!("{sdk:?} over {transport:?}, {version:?} to {upstream:?}: {reason}"));
                }
            }
            gateway.gateway.close().await;
            if upstream.has(Feature::Handshake) && policy == VersionPolicy::Any {
                assert!(!sdk.supports_version(Version::NEWEST), "negotiated {upstream:?}");
            }
        }
        assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    });
}

struct TestGateway {
    gateway: Arc<Gateway>,
    server: Arc<Server>,
    _folder: tempfile::TempDir,
}

impl TestGateway {
    fn version(&self) -> Version {
        let (_, info) = self.gateway.manager().offer(SERVER).expect("it is configured");
        info.expect("it is connected").protocol_version
    }
}

struct NoHost;

impl ManagerHost for NoHost {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

async fn start_gateway(server: &SdkServer, policy: VersionPolicy) -> TestGateway {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("servers.json");
    std::fs::write(&file, settings(server).as_str()).expect("the file is written");
    let dirs = ConfigDirs { home: None, settings: None, codex_home: None, current_dir: folder.path().into() };
    let configuration = dirs.load(&[file]).expect("the file is valid");
    let configured = configuration.servers.into_iter().map(|server| (server, Permission::Allowed));
    let mut options = GatewayOptions::default();
    options.manager.connection.client_options.version_policy = policy;
    options.manager.connection.process.supervisor = Some(PathBuf::from(env!("CARGO_BIN_EXE_fixture")));
    let platform = Arc::new(SystemPlatform::default());
    let gateway = Gateway::start(configured.collect(), options, Arc::new(NoHost), platform.clone());
    let connected = within("connecting", gateway.manager().wait_for(SERVER, Status::Connected)).await;
    assert!(matches!(connected, Ok(Some(_))), "{:?}", gateway.manager().status(SERVER));
    let provider = gateway.provider(SERVER, Naming::Own).expect("it is configured");
    let version = gateway.manager().offer(SERVER).and_then(|(_, info)| info).expect("connected");
    let version = version.server_version.clone();
    let config = Config::new(SERVER, &version, Limits::default(), platform);
    let provider_set =
        ProviderSet { version, providers: vec![provider], call_timeout_ms: None, tool_order: Vec::new() };
    let server = Server::with_provider_set(config, provider_set);
    TestGateway { gateway, server, _folder: folder }
}

fn settings(server: &SdkServer) -> Json {
    Json::object(|out| {
        out.object("mcpServers", |out| {
            out.object(SERVER, |out| match server {
                SdkServer::Command(command) => {
                    let text = |path: &PathBuf| path.display().to_string();
                    out.str("command", &text(&command[0]));
                    out.array("args", &command[1..], |out, argument| {
                        json::write::string(out, &text(argument));
                    });
                }
                SdkServer::Listening { url, .. } => {
                    out.str("type", "http").str("url", url);
                }
            });
        });
    })
}

async fn run_scenarios(
    server: &Arc<Server>,
    sdk: Sdk,
    transport: TransportKind,
    upstream: Version,
    version: Version,
) -> Result<(), String> {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(transport::pipe::serve(server.clone(), theirs));
    let capabilities = ClientCapabilities::ELICITATION_FORM
        .with(ClientCapabilities::SAMPLING)
        .with(ClientCapabilities::ROOTS);
    let client_options = ClientOptions {
        capabilities,
        version_policy: VersionPolicy::Only(version),
        ..ClientOptions::default()
    };
    let options = ConnectionOptions { client_options, ..ConnectionOptions::default() };
    let handler = RecordingHandler::new();
    let (input, output) = tokio::io::split(ours);
    let opened = within("opening", Connection::over_pipe(input, output, options, handler.clone())).await?;
    let connection = opened.map_err(|error| format!("opening: {error}"))?;
    // Python's first SDK has subscriptions and declares that it has none, so the gateway offers none.
    let is_declared = |behavior| sdk != Sdk::Python1 || behavior != Behavior::Changes;
    let grants = |behavior: Behavior| is_declared(behavior) && sdk.supports(behavior, transport, upstream);
    let result = scenarios::run_granted(version, &connection, &handler, &grants).await;
    within("closing", connection.close()).await?;
    serving.abort();
    result
}
