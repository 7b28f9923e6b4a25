//! A server for each test: in this process, on a free port, with a provider that the test controls.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::{Config, Server};
use page::ConnectSnippet;
use rustls::ClientConfig;
use serde_json::Value;
use spile_core::{Limits, Provider};
use tempfile::TempDir;
use testkit::FakePlatform;
use testkit::conformance::ConformanceProvider;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transport::Guard;
use transport::http::{ConnectionLimits, HttpService, Page, SnippetRequest, Tls, serve_all};
use transport::unix::SocketFile;

use crate::certificates::CertificateFolder;
use crate::client::{Client, HttpRequest, initialize, post};
use crate::conn::Conn;
use crate::controlled_provider::ControlledProvider;
use crate::handover_counter::HandoverCounter;

/// No test takes this long unless something is broken.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

const SOCKET: &str = "door.sock";

/// The configuration of a test server. `names` are the names of its MCP servers.
pub(crate) struct Setup {
    pub(crate) names: &'static [&'static str],
    pub(crate) guard: Guard,
    pub(crate) limits: Limits,
    pub(crate) connection_limits: ConnectionLimits,
    pub(crate) certificates: Option<CertificateFolder>,
    pub(crate) http_sse: bool,
    pub(crate) has_page: bool,
}

impl Default for Setup {
    fn default() -> Self {
        // No timeouts unless a test sets them: the machine may be busy.
        let timing = ConnectionLimits {
            header_timeout_ms: 600_000,
            body_idle_timeout_ms: 600_000,
            write_stall_timeout_ms: 600_000,
            keep_alive_timeout_ms: 600_000,
            drain_timeout_ms: 30_000,
            ..ConnectionLimits::default()
        };
        let limits = Limits { call_timeout_ms: 600_000, keep_alive_ms: 600_000, ..Limits::default() };
        Self {
            names: &["one"],
            guard: Guard::default(),
            limits,
            connection_limits: timing,
            certificates: None,
            http_sse: true,
            has_page: true,
        }
    }
}

/// How a test server lets clients in.
struct Door {
    guard: Guard,
    timing: ConnectionLimits,
    certificates: Option<CertificateFolder>,
    http_sse: bool,
    has_page: bool,
}

fn snippets(request: &SnippetRequest<'_>) -> Vec<ConnectSnippet> {
    let token = if request.requires_token { " with a token" } else { "" };
    vec![ConnectSnippet { client: "test", place: "here", text: format!("{}{token}", request.url) }]
}

/// Listens on a TCP port and on a unix socket.
pub(crate) struct TestServer {
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) folder: TempDir,
    pub(crate) platform: Arc<FakePlatform>,
    pub(crate) provider: Arc<ControlledProvider>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) certificates: Option<CertificateFolder>,
    pub(crate) handovers: HandoverCounter,
    client_config: Option<Arc<ClientConfig>>,
    stop: watch::Sender<bool>,
    serve_task: Option<JoinHandle<()>>,
}

impl Setup {
    pub(crate) fn start(self) -> TestServer {
        let platform = Arc::new(FakePlatform::new(1));
        let provider = Arc::new(ControlledProvider::default());
        let servers: Vec<Arc<Server>> = self
            .names
            .iter()
            .map(|name| {
                let config = Config::new(name, "1", self.limits.clone(), platform.clone());
                let providers: Vec<Arc<dyn Provider>> =
                    vec![Arc::new(ConformanceProvider::default()), provider.clone()];
                Server::new(config, providers)
            })
            .collect();
        let Self { guard, connection_limits, certificates, http_sse, has_page, .. } = self;
        let door = Door { guard, timing: connection_limits, certificates, http_sse, has_page };
        TestServer::new(platform, provider, servers, door)
    }
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Setup::default().start()
    }

    pub(crate) fn with_setup(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        setup.start()
    }

    /// Another service with the same MCP servers.
    pub(crate) fn sharing_servers(other: &Self, guard: Guard) -> Self {
        let Setup { connection_limits: timing, certificates: keys, .. } = Setup::default();
        let (platform, provider) = (other.platform.clone(), other.provider.clone());
        let door = Door { guard, timing, certificates: keys, http_sse: true, has_page: true };
        Self::new(platform, provider, other.servers.clone(), door)
    }

    fn new(
        platform: Arc<FakePlatform>,
        provider: Arc<ControlledProvider>,
        servers: Vec<Arc<Server>>,
        door: Door,
    ) -> Self {
        let Door { guard, timing, certificates, http_sse, has_page } = door;
        let handovers = HandoverCounter::default();
        let watched = handovers.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(move || watched.watch_thread())
            .enable_all()
            .build()
            .expect("a runtime starts");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let inside = runtime.enter();
        let file = SocketFile::bind(&folder.path().join(SOCKET)).expect("a socket can be made");
        drop(inside);
        let (stop, stopped) = watch::channel(false);
        let tls: Option<Arc<Tls>> =
            certificates.as_ref().map(|keys| Arc::new(keys.load().expect("a pair").0));
        let client_config = certificates.as_ref().map(CertificateFolder::client_config);
        let failed_servers = Vec::new();
        let service = HttpService {
            servers: servers.clone(),
            guard,
            connection_limits: timing,
            tls,
            http_sse,
            failed_servers,
            page: has_page.then(|| Page::new(&servers, Box::new(snippets))),
            has_main_server: false,
            directory: None,
            admin: None,
        };
        let listeners = vec![listener.into(), file.into()];
        let serving = runtime.spawn(serve_all(listeners, Arc::new(service), stopped));
        Self {
            runtime,
            address,
            folder,
            platform,
            provider,
            servers,
            certificates,
            handovers,
            client_config,
            stop,
            serve_task: Some(serving),
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.servers[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(match &self.client_config {
            None => Conn::tcp(self.address),
            Some(trust) => Conn::secured(self.address, trust.clone()),
        })
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    pub(crate) fn connect_unix(&self) -> Client {
        Client::new(Conn::unix(&self.socket_path()))
    }

    /// Sends one request on a new connection and reads the whole response.
    pub(crate) fn send_request(&self, request: &HttpRequest) -> crate::client::HttpResponse {
        let mut client = self.connect();
        client.send(&request.to_bytes());
        client.read_response().expect("an answer")
    }

    /// Only the status: the response may be an endless stream.
    pub(crate) fn status_of(&self, request: &HttpRequest) -> u16 {
        let mut client = self.connect();
        client.send(&request.to_bytes());
        client.read_head().expect("an answer").status
    }

    /// A new session of this protocol version.
    pub(crate) fn session(&self, version: &str) -> String {
        self.session_with(version, "{}")
    }

    pub(crate) fn session_with(&self, version: &str, capabilities: &str) -> String {
        let response = self.send_request(&initialize(version, capabilities));
        assert_eq!(response.status, 200, "{response:?}");
        response.header("mcp-session-id").expect("a session id").to_owned()
    }

    pub(crate) fn request_stop(&self) {
        self.stop.send(true).expect("the door is open");
    }

    /// Waits until the server has stopped.
    pub(crate) fn wait_stopped(&mut self) {
        let serving = self.serve_task.take().expect("shut once");
        self.runtime
            .block_on(async { tokio::time::timeout(TEST_TIMEOUT, serving).await })
            .expect("the door shuts in time")
            .expect("it does not panic");
    }

    /// Waits until a condition on the server's status holds.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&host::Status) -> bool) {
        let holds = async {
            while !holds(&self.server().status()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = self.runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, holds).await });
        assert!(waited.is_ok(), "never happened: {what}; {:?}", self.server().status());
    }

    /// Asserts that the server still answers other clients.
    pub(crate) fn assert_serving(&self) {
        let response = self.send_request(&post(r#"{"jsonrpc":"2.0","id":"alive","method":"ping"}"#));
        assert_eq!((response.status, &response.json()["id"]), (200, &Value::from("alive")));
    }
}
