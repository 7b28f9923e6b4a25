//! A door of its own for each test: in this process, on a free port, with providers that can be watched.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use call::{Limits, Provider};
use door::Guard;
use door::http::{Site, Timing, Tls, serve_all};
use door::unix::SocketFile;
use host::{Config, Server};
use rustls::ClientConfig;
use serde_json::Value;
use tempfile::TempDir;
use testkit::FakeWorld;
use testkit::conformance::Conformance;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Ask, Client, initialize, post};
use crate::conn::Conn;
use crate::keys::Keys;
use crate::stand::Stand;

/// Nothing here takes this long unless it is broken.
pub(crate) const AT_MOST: Duration = Duration::from_secs(30);

const SOCKET: &str = "door.sock";

/// What a door is made of. The names are those of the servers behind it.
pub(crate) struct Setup {
    pub(crate) names: &'static [&'static str],
    pub(crate) guard: Guard,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) keys: Option<Keys>,
}

impl Default for Setup {
    fn default() -> Self {
        // Nothing is closed for being slow unless a test asks for it: the machine may be busy.
        let timing = Timing {
            header_timeout_ms: 600_000,
            body_idle_ms: 600_000,
            write_stall_ms: 600_000,
            keep_alive_idle_ms: 600_000,
            drain_ms: 30_000,
            ..Timing::default()
        };
        let limits = Limits { call_timeout_ms: 600_000, keep_alive_ms: 600_000, ..Limits::default() };
        Self { names: &["one"], guard: Guard::default(), limits, timing, keys: None }
    }
}

/// Open at a port and at a unix socket, with the same behind both.
pub(crate) struct Door {
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) folder: TempDir,
    pub(crate) world: Arc<FakeWorld>,
    pub(crate) stand: Arc<Stand>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) keys: Option<Keys>,
    trust: Option<Arc<ClientConfig>>,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
}

impl Setup {
    pub(crate) fn open(self) -> Door {
        let world = Arc::new(FakeWorld::new(1));
        let stand = Arc::new(Stand::default());
        let servers: Vec<Arc<Server>> = self
            .names
            .iter()
            .map(|name| {
                let config = Config {
                    name: (*name).into(),
                    version: "1".into(),
                    limits: self.limits.clone(),
                    world: world.clone(),
                };
                let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Conformance::default()), stand.clone()];
                Server::new(config, providers).expect("the catalogs are sound")
            })
            .collect();
        Door::over(world, stand, servers, self.guard, self.timing, self.keys)
    }
}

impl Door {
    pub(crate) fn open() -> Self {
        Setup::default().open()
    }

    pub(crate) fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        setup.open()
    }

    /// Another door to the same servers.
    pub(crate) fn beside(other: &Self, guard: Guard) -> Self {
        let Setup { timing, keys, .. } = Setup::default();
        Self::over(other.world.clone(), other.stand.clone(), other.servers.clone(), guard, timing, keys)
    }

    fn over(
        world: Arc<FakeWorld>,
        stand: Arc<Stand>,
        servers: Vec<Arc<Server>>,
        guard: Guard,
        timing: Timing,
        keys: Option<Keys>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
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
        let tls: Option<Arc<Tls>> = keys.as_ref().map(|keys| Arc::new(keys.load().expect("a pair").0));
        let trust = keys.as_ref().map(Keys::trust);
        let site = Site { servers: servers.clone(), guard, timing, tls };
        let listeners = vec![listener.into(), file.into()];
        let serving = runtime.spawn(serve_all(listeners, Arc::new(site), stopped));
        Self { runtime, address, folder, world, stand, servers, keys, trust, stop, serving: Some(serving) }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.servers[0]
    }

    pub(crate) fn connect(&self) -> Client {
        Client::over(match &self.trust {
            None => Conn::tcp(self.address),
            Some(trust) => Conn::secured(self.address, trust.clone()),
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    pub(crate) fn connect_unix(&self) -> Client {
        Client::over(Conn::unix(&self.socket()))
    }

    /// Sends one request on a connection of its own and reads the whole answer.
    pub(crate) fn ask(&self, ask: &Ask) -> crate::client::Answer {
        let mut client = self.connect();
        client.send(&ask.bytes());
        client.answer().expect("an answer")
    }

    /// The status alone: what is answered may be a stream without an end.
    pub(crate) fn status_of(&self, ask: &Ask) -> u16 {
        let mut client = self.connect();
        client.send(&ask.bytes());
        client.head().expect("an answer").status
    }

    /// A new session of this protocol version.
    pub(crate) fn session(&self, version: &str) -> String {
        self.session_with(version, "{}")
    }

    pub(crate) fn session_with(&self, version: &str, capabilities: &str) -> String {
        let answer = self.ask(&initialize(version, capabilities));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.head("mcp-session-id").expect("a session id").to_owned()
    }

    pub(crate) fn tell_to_stop(&self) {
        self.stop.send(true).expect("the door is open");
    }

    /// Waits until the door is shut.
    pub(crate) fn shut(&mut self) {
        let serving = self.serving.take().expect("shut once");
        self.runtime
            .block_on(async { tokio::time::timeout(AT_MOST, serving).await })
            .expect("the door shuts in time")
            .expect("it does not panic");
    }

    /// Waits until something holds that the server tells about itself.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&host::Status) -> bool) {
        let holds = async {
            while !holds(&self.server().status()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = self.runtime.block_on(async { tokio::time::timeout(AT_MOST, holds).await });
        assert!(waited.is_ok(), "never happened: {what}; {:?}", self.server().status());
    }

    /// The door still works: somebody else is served.
    pub(crate) fn serves(&self) {
        let answer = self.ask(&post(r#"{"jsonrpc":"2.0","id":"alive","method":"ping"}"#));
        assert_eq!((answer.status, &answer.json()["id"]), (200, &Value::from("alive")));
    }
}
