//! Servers, a gateway in front of them, and clients, joined in memory. Time passes only when everybody waits.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway::{Gateway, GatewayOptions, Naming};
use host::{Config, Server};
use json::Json;
use servers::config::{ConfigScope, ConfigSource, Configuration, Dialect, Section, Trust, merge};
use servers::decisions::Permission;
use servers::manager::ManagerHost;
use spile_core::{
    Call, CallContext, Catalog, ClientCapabilities, InputRequest, InputRequests, Limits, Outcome, Platform,
    Principal, Provider, Run, Tool, ToolResult, WatchFuture,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError, Progress};
use wire::client::{
    ClientCall, ClientError, ClientOptions, CloseReason, IncomingInputRequest, InputReply, InputRequestKind,
    VersionPolicy,
};
use wire::method::Method;
use wire::{Feature, Version};

/// Random numbers that depend on a seed: SplitMix64.
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)))
    }

    pub fn next(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The clock of the runtime, and random bytes that depend on the seed.
pub struct SimPlatform {
    started: Instant,
    random: Random,
}

impl SimPlatform {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), random: Random::new(seed ^ 0x5eed) })
    }
}

impl Platform for SimPlatform {
    fn now_ms(&self) -> u64 {
        1_785_196_800_000 + self.started.elapsed().as_millis() as u64
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random.next().to_le_bytes()[..part.len()]);
        }
    }
}

/// A server behind the gateway. It can crash, and stay away for a while.
pub struct SimServer {
    pub name: String,
    pub version: VersionPolicy,
    pub provider: Arc<SimProvider>,
    server: Arc<Server>,
    random: Random,
    state: Mutex<SimServerState>,
}

#[derive(Default)]
struct SimServerState {
    pipes: Vec<Pipe>,
    down_until: Option<Instant>,
    crashes: u64,
    connections: u64,
}

/// A connection, as the server has it.
struct Pipe {
    serving: tokio::task::AbortHandle,
    freeze: Arc<Notify>,
}

impl SimServer {
    pub fn new(name: &str, version: VersionPolicy, seed: u64) -> Arc<Self> {
        Self::with_provider(name, version, seed, SimProvider::new(name))
    }

    pub fn with_provider(name: &str, version: VersionPolicy, seed: u64, provider: SimProvider) -> Arc<Self> {
        let provider = Arc::new(provider);
        let config = Config::new(name, "1", Limits::default(), SimPlatform::new(seed));
        let server = Server::new(config, vec![provider.clone()]);
        let random = Random::new(seed);
        Arc::new(Self { name: name.to_owned(), version, provider, server, random, state: Mutex::default() })
    }

    /// Every connection breaks, whatever runs on it, and no new one is accepted for a while.
    pub fn crash(&self, down: Duration) {
        let mut state = self.lock();
        state.crashes += 1;
        state.down_until = Some(Instant::now() + down);
        for pipe in std::mem::take(&mut state.pipes) {
            pipe.serving.abort();
        }
    }

    /// The newest connection stays open, and nothing is read or written on it any more.
    pub fn freeze_newest(&self) {
        self.lock().pipes.last().expect("a connection").freeze.notify_one();
    }

    pub fn crashes(&self) -> u64 {
        self.lock().crashes
    }

    /// How many connections were made.
    pub fn connections(&self) -> u64 {
        self.lock().connections
    }

    fn lock(&self) -> MutexGuard<'_, SimServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self, pipe: Pipe) {
        let mut state = self.lock();
        state.pipes.push(pipe);
        state.connections += 1;
    }

    async fn connect(
        self: Arc<Self>,
        mut options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Connection, OpenError> {
        tokio::time::sleep(Duration::from_millis(self.random.below(50))).await;
        if self.lock().down_until.is_some_and(|until| Instant::now() < until) {
            return Err(OpenError::Failed(ClientError::ConnectionClosed(CloseReason::AlreadyClosed)));
        }
        options.client_options.version_policy = self.version;
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (server, freeze) = (self.server.clone(), Arc::new(Notify::new()));
        let frozen = freeze.clone();
        let serving = tokio::spawn(async move {
            let serving = transport::pipe::serve(server, theirs);
            tokio::pin!(serving);
            tokio::select! {
                _ = &mut serving => {}
                () = frozen.notified() => std::future::pending().await,
            }
        });
        self.accepted(Pipe { serving: serving.abort_handle(), freeze });
        let (input, output) = tokio::io::split(ours);
        Connection::over_pipe(input, output, options, handler).await
    }
}

/// One tool: `echo` returns its token after a while, and asks before if it is told to.
pub struct SimProvider {
    pub server: String,
    /// How often the call with each token ran to its end.
    pub executed: Mutex<HashMap<String, u32>>,
    pub has_subscriptions: bool,
    /// Tools beside `echo` that nobody calls.
    pub fillers: usize,
    /// How long the server takes to answer a subscription.
    pub subscribing: Duration,
    /// How many subscriptions it has answered.
    pub subscribed: Arc<AtomicU64>,
    /// Asked in place of the form, and answered with the raw answer.
    pub question: Option<InputRequest>,
    /// How often clients said that their roots have changed.
    pub roots_changes: AtomicU64,
}

impl SimProvider {
    pub fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            executed: Mutex::default(),
            has_subscriptions: false,
            fillers: 0,
            subscribing: Duration::ZERO,
            subscribed: Arc::default(),
            question: None,
            roots_changes: AtomicU64::new(0),
        }
    }

    pub fn roots_changes(&self) -> u64 {
        self.roots_changes.load(Ordering::Relaxed)
    }

    pub fn executions(&self, token: &str) -> u32 {
        let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        executed.get(token).copied().unwrap_or(0)
    }
}

const ANSWER: &str = "answer";

impl Provider for SimProvider {
    fn catalog(&self) -> Arc<Catalog> {
        let schema = r#"{"type":"object","properties":{"token":{"type":"string"},"ms":{"type":"integer"},"ask":{"type":"boolean"}},"required":["token","ms","ask"]}"#;
        let schema = Json::parse(schema).expect("JSON");
        let echo = Tool::new("echo", "Return the token.", schema.clone());
        let fillers =
            (0..self.fillers).map(|n| Tool::new(&format!("filler_{n}"), "Do nothing.", schema.clone()));
        Arc::new(Catalog {
            tools: std::iter::once(echo).chain(fillers).collect(),
            resource_subscriptions: self.has_subscriptions,
            is_open_ended: self.has_subscriptions,
            ..Catalog::default()
        })
    }

    fn client_roots_changed(&self, _: &Principal, _: Option<[u8; 16]>) {
        self.roots_changes.fetch_add(1, Ordering::Relaxed);
    }

    fn watching(&self, _: &str) -> Option<WatchFuture> {
        let (subscribing, subscribed) = (self.subscribing, self.subscribed.clone());
        Some(Box::pin(async move {
            tokio::time::sleep(subscribing).await;
            subscribed.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let arguments = call.arguments().expect("it has arguments");
        let token = call.text_argument("token").expect("a token").into_owned();
        let ms = arguments.get("ms").and_then(|ms| ms.u64()).expect("a time");
        let asks = arguments.get("ask").and_then(|ask| ask.bool()).expect("a flag");
        if let Some(question) = &self.question {
            if !cx.caller.capabilities.has(question.required_capabilities()) {
                return Run::now(ToolResult::text("nobody can be asked"));
            }
            return match cx.journal.response(ANSWER) {
                Some(answer) => {
                    if let InputRequest::Url { url, .. } = question {
                        cx.events.complete_elicitation(url);
                    }
                    Run::now(ToolResult::text(answer.root().raw()))
                }
                None => Run::now(Outcome::InputRequired(InputRequests::single(ANSWER, question.clone()))),
            };
        }
        let answer = cx.journal.response(ANSWER).and_then(|answer| answer.text_field(ANSWER));
        if asks && answer.is_none() && cx.caller.capabilities.has(ClientCapabilities::ELICITATION_FORM) {
            let schema = format!(
                r#"{{"type":"object","properties":{{"{ANSWER}":{{"type":"string"}}}},"required":["{ANSWER}"]}}"#
            );
            let form = InputRequest::Form { message: token, schema: Json::parse(&schema).expect("JSON") };
            return Run::now(Outcome::InputRequired(InputRequests::single(ANSWER, form)));
        }
        let text = format!("{}:{token}:{}", self.server, answer.as_deref().unwrap_or("-"));
        *self.executed.lock().unwrap_or_else(PoisonError::into_inner).entry(token.clone()).or_default() += 1;
        let events = cx.events.clone();
        Run::later(async move {
            for half in 1..=2 {
                events.progress(f64::from(half), Some(2.0), Some(&token));
                tokio::time::sleep(Duration::from_millis(ms / 2)).await;
            }
            ToolResult::text(text).into()
        })
    }
}

/// Connects the gateway to the servers of the simulation.
pub struct SimHost {
    servers: HashMap<String, Arc<SimServer>>,
    random: Random,
}

impl ManagerHost for SimHost {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn random(&self) -> u32 {
        self.random.next() as u32
    }

    fn connect_in_process(
        &self,
        server: &str,
        options: &ConnectionOptions,
        handler: &Arc<dyn ClientHandler>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<Connection, OpenError>> + Send>>> {
        let server = self.servers.get(server)?.clone();
        Some(Box::pin(server.connect(options.clone(), handler.clone())))
    }
}

/// A gateway with one server in front of it, as `spile gateway` has it at `/mcp`.
pub struct SimGateway {
    pub gateway: Arc<Gateway>,
    pub front: Arc<Server>,
}

/// `entry` is added to the entry of every server, after a comma.
pub fn configuration(servers: &[Arc<SimServer>], entry: &str) -> Configuration {
    let entries: Vec<String> =
        servers.iter().map(|server| format!(r#""{}":{{"command":"none"{entry}}}"#, server.name)).collect();
    let text = format!(r#"{{"mcpServers":{{{}}}}}"#, entries.join(","));
    let source = ConfigSource {
        scope: ConfigScope::Run,
        dialect: Dialect::Spile,
        trust: Trust::User,
        path: "simulated.json".into(),
        project_key: None,
        folder: None,
    };
    let configuration = merge([(source, Dialect::Spile.parse(&text, Section::Top))]);
    assert!(configuration.problems.is_empty(), "{:?}", configuration.problems);
    configuration
}

pub fn start_gateway(
    servers: &[Arc<SimServer>],
    options: GatewayOptions,
    entry: &str,
    seed: u64,
) -> SimGateway {
    let configured = configuration(servers, entry).servers.into_iter();
    let configured = configured.map(|server| (server, Permission::Allowed));
    let host = SimHost {
        servers: servers.iter().map(|server| (server.name.clone(), server.clone())).collect(),
        random: Random::new(seed),
    };
    let platform = SimPlatform::new(seed);
    let gateway = Gateway::start(configured.collect(), options, Arc::new(host), platform.clone());
    let limits = Limits { call_timeout_ms: 3_600_000, ..Limits::default() };
    let front = Server::new(Config::new("gateway", "1", limits, platform), Vec::new());
    for server in servers {
        let provider = gateway.provider(&server.name, Naming::Public).expect("it is configured");
        front.set_provider_by_name(&server.name, Some(provider));
    }
    SimGateway { gateway, front }
}

/// A client of the gateway. It answers questions about its own calls, and remembers everything else as a mistake.
pub struct SimClient {
    pub name: String,
    pub connection: Connection,
    pub handler: Arc<SimClientHandler>,
    serving: tokio::task::AbortHandle,
}

pub struct SimClientHandler {
    name: String,
    can_answer: bool,
    mistakes: Mutex<Vec<String>>,
}

impl SimClientHandler {
    pub fn mistakes(&self) -> Vec<String> {
        self.mistakes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn mistake(&self, what: String) {
        self.mistakes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

impl ClientHandler for SimClientHandler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let doc = request.params.to_doc();
        let token = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default().into_owned();
        if !token.starts_with(&format!("{}-", self.name)) || request.kind != InputRequestKind::Elicitation {
            self.mistake(format!("was asked about `{token}`"));
        }
        if !self.can_answer {
            self.mistake("was asked although it cannot answer".to_owned());
        }
        let answer = Json::object(|out| {
            out.str("action", "accept").object("content", |out| {
                out.str(ANSWER, &format!("yes to {token}"));
            });
        });
        Box::pin(std::future::ready(InputReply::Result(answer)))
    }

    fn on_event(&self, event: ConnectionEvent) {
        if let ConnectionEvent::ProtocolWarning(warning) = event {
            self.mistake(format!("{warning:?}"));
        }
    }
}

/// What a call came to.
#[derive(Debug)]
pub enum Reply {
    Text(String),
    /// The tool failed, with this text.
    ToolError(String),
    Error(ClientError),
}

impl SimClient {
    pub async fn open(front: &Arc<Server>, name: &str, version: Version, can_answer: bool) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(transport::pipe::serve(front.clone(), theirs)).abort_handle();
        let capabilities =
            if can_answer { ClientCapabilities::ELICITATION_FORM } else { ClientCapabilities::NONE };
        let client_options = ClientOptions {
            capabilities,
            version_policy: VersionPolicy::Only(version),
            ..ClientOptions::default()
        };
        let options = ConnectionOptions { client_options, ..ConnectionOptions::default() };
        let handler =
            Arc::new(SimClientHandler { name: name.to_owned(), can_answer, mistakes: Mutex::default() });
        let (input, output) = tokio::io::split(ours);
        let opened = Connection::over_pipe(input, output, options, handler.clone()).await;
        let connection = opened.expect("the gateway answers");
        assert_eq!(
            connection.server_info().protocol_version.has(Feature::Handshake),
            version.has(Feature::Handshake)
        );
        Self { name: name.to_owned(), connection, handler, serving }
    }

    pub async fn call(&self, server: &str, token: &str, ms: u64, asks: bool) -> Reply {
        let params = Json::object(|out| {
            out.str("name", &format!("mcp__{server}__echo"));
            out.object("arguments", |out| {
                out.str("token", token).int("ms", ms as i64).bool("ask", asks);
            });
        });
        let call =
            ClientCall { timeout_ms: Some(u64::MAX / 4), ..ClientCall::new(Method::ToolsCall, params) };
        let (handler, own) = (self.handler.clone(), token.to_owned());
        let on_progress = Arc::new(move |progress: Progress| {
            if progress.message.as_deref() != Some(&own) {
                handler.mistake(format!("{own} got the progress of {:?}", progress.message));
            }
        });
        match self.connection.call(call, Some(on_progress)).await {
            Err(error) => Reply::Error(error),
            Ok(result) => {
                let doc = result.to_doc();
                let text =
                    doc.root().get("content").and_then(|blocks| blocks.elements().next()?.get("text")?.str());
                let text = text.unwrap_or_default().into_owned();
                match doc.root().get("isError").and_then(|flag| flag.bool()) {
                    Some(true) => Reply::ToolError(text),
                    _ => Reply::Text(text),
                }
            }
        }
    }

    /// The same, and cancels the call after a while. `None`: it had no reply until then.
    pub async fn call_for(
        &self,
        server: &str,
        token: &str,
        ms: u64,
        asks: bool,
        patience_ms: u64,
    ) -> Option<Reply> {
        let patience = Duration::from_millis(patience_ms);
        tokio::time::timeout(patience, self.call(server, token, ms, asks)).await.ok()
    }

    /// The result of a call that ran.
    pub fn expected(&self, server: &str, token: &str, asks: bool) -> String {
        match asks && self.handler.can_answer {
            true => format!("{server}:{token}:yes to {token}"),
            false => format!("{server}:{token}:-"),
        }
    }

    /// Goes away without a word.
    pub fn vanish(&self) {
        self.serving.abort();
    }
}

/// Runs a simulation on one thread and a clock of its own.
pub fn run<T>(simulation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulation)
}
