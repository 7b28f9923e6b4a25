//! Folders, servers and clients for the tests.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, Keyring, OutgoingMessage, PendingResponse,
    ReplyChannel, Server, SystemPlatform,
};
use json::{Doc, Json};
use script::{
    Bundle, BundleOptions, Diagnostic, DiagnosticSink, Engine, EngineLimits, Isolation, ScriptProvider,
    ScriptServices,
};
use serde_json::Value;
use spile_core::{
    Call, CallContext, Catalog, ChangeListener, ClientCapabilities, Limits, Principal, Provider, Run,
};
use state::store::{MemoryStore, Store, StoreLimits};
use tempfile::TempDir;
use wire::{Decoded, MessageContext, Peer, Version};

const ANONYMOUS: CallerIdentity =
    CallerIdentity { principal: Principal::Anonymous, address: None, request_head: None };

/// Both places where code can run.
pub fn isolations() -> [Isolation; 2] {
    [Isolation::Thread, Isolation::Process(helper())]
}

/// The binary of tests/it/helper.rs.
pub fn helper() -> PathBuf {
    env!("CARGO_BIN_EXE_script-helper").into()
}

/// A folder with these files.
pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        write(folder.path(), path, text);
    }
    folder
}

pub fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

pub fn build(folder: &Path) -> Bundle {
    Bundle::build(folder, &BundleOptions::default())
}

/// All diagnostics of a folder as one text.
pub fn problems(folder: &Path) -> String {
    let bundle = build(folder);
    let all = bundle.errors().chain(&bundle.warnings).map(ToString::to_string);
    all.collect::<Vec<_>>().join("\n\n")
}

#[derive(Default)]
pub struct Reports(Mutex<Vec<String>>);

impl DiagnosticSink for Reports {
    fn report(&self, tool: &str, diagnostic: &Diagnostic) {
        self.0.lock().expect("no panic before").push(format!("{tool}: {diagnostic}"));
    }
}

impl Reports {
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic before"))
    }
}

/// A served folder.
pub struct App {
    pub server: Arc<Server>,
    pub provider: Arc<ScriptProvider>,
    pub engine: Arc<Engine>,
    pub reports: Arc<Reports>,
    observed: Arc<ObservedProvider>,
}

/// Passes everything on, and remembers whether the last call ended on the thread of its caller.
struct ObservedProvider {
    provider: Arc<ScriptProvider>,
    ended_at_once: AtomicBool,
}

impl Provider for ObservedProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.provider.catalog()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let run = self.provider.run(call, cx);
        self.ended_at_once.store(matches!(run, Run::Now(_)), Ordering::Relaxed);
        run
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        self.provider.set_change_listener(listener);
    }

    fn watch(&self, uri: &str) {
        self.provider.watch(uri);
    }

    fn unwatch(&self, uri: &str) {
        self.provider.unwatch(uri);
    }

    fn repeats_rounds_safely(&self) -> bool {
        self.provider.repeats_rounds_safely()
    }

    fn guarantees_output_schemas(&self) -> bool {
        self.provider.guarantees_output_schemas()
    }
}

#[derive(Default)]
pub struct AppOptions {
    pub services: ScriptServices,
    pub limits: EngineLimits,
    pub bundle: BundleOptions,
    pub keyring: Option<Arc<Keyring>>,
    pub store: Option<Arc<dyn Store>>,
}

impl AppOptions {
    /// A store that several servers can share.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new(StoreLimits::default())))
    }
}

impl App {
    pub fn new(folder: &Path) -> Self {
        Self::with(folder, AppOptions::default())
    }

    pub fn with(folder: &Path, options: AppOptions) -> Self {
        let bundle = Bundle::build(folder, &options.bundle);
        Self::of_bundle(&bundle, options)
    }

    /// Serves what was compiled already.
    pub fn of_bundle(bundle: &Bundle, options: AppOptions) -> Self {
        let errors: Vec<String> = bundle.errors().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
        let reports = Arc::new(Reports::default());
        let services = ScriptServices { diagnostics: Some(reports.clone()), ..options.services };
        let engine = Arc::new(Engine::with_isolation(options.limits, options.bundle.isolation));
        let provider = Arc::new(ScriptProvider::new(engine.clone(), bundle, services));
        let config = Config::new("t", "1", Limits::default(), Arc::new(SystemPlatform::default()));
        let keyring = options.keyring.unwrap_or_else(|| config.keyring.clone());
        let store = options.store.unwrap_or_else(|| config.store.clone());
        let observed = Arc::new(ObservedProvider { provider: provider.clone(), ended_at_once: false.into() });
        let server =
            Server::new(Config { keyring, store, ..config }, vec![observed.clone() as Arc<dyn Provider>]);
        Self { server, provider, engine, reports, observed }
    }

    /// Calls a tool that asks nothing; the `result` or `error` of the response.
    pub async fn call(&self, tool: &str, arguments: &str) -> Value {
        self.call_as(tool, arguments, "").await
    }

    /// The same, with further members of `params`.
    pub async fn call_as(&self, tool: &str, arguments: &str, params: &str) -> Value {
        let response = respond(&self.server, &stateless_call(tool, arguments, params)).await;
        let value: Value = serde_json::from_str(response.text()).expect("JSON");
        match value.get("result") {
            Some(result) => result.clone(),
            None => value["error"].clone(),
        }
    }

    /// The same from an address of the network.
    pub async fn call_from(&self, address: &str, tool: &str, arguments: &str) -> Value {
        let address = Some(address.parse().expect("an address"));
        let caller = CallerIdentity { address, ..ANONYMOUS };
        let body = finish(dispatch_by(&self.server, &stateless_call(tool, arguments, ""), &caller)).await;
        let value: Value = serde_json::from_slice(&body).expect("JSON");
        value.get("result").unwrap_or(&value["error"]).clone()
    }

    /// The same as one principal.
    pub async fn call_by(&self, principal: Principal, tool: &str, arguments: &str, params: &str) -> Value {
        let body = finish(dispatch(&self.server, &stateless_call(tool, arguments, params), principal)).await;
        let value: Value = serde_json::from_slice(&body).expect("JSON");
        value.get("result").unwrap_or(&value["error"]).clone()
    }

    /// Calls a tool as one principal, and polls once: `None` if the call is for another thread, which may have
    /// answered by then.
    pub fn call_at_once(&self, principal: Principal, tool: &str, arguments: &str) -> Option<Value> {
        let mut pending = dispatch(&self.server, &stateless_call(tool, arguments, ""), principal);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match pending.poll_next(&mut context) {
            std::task::Poll::Ready(OutgoingMessage::Response { body, .. })
                if self.observed.ended_at_once.load(Ordering::Relaxed) =>
            {
                let value: Value = serde_json::from_slice(&body).expect("JSON");
                Some(value.get("result").unwrap_or(&value["error"]).clone())
            }
            std::task::Poll::Ready(_) | std::task::Poll::Pending => None,
        }
    }

    /// The text of the first block.
    pub async fn text(&self, tool: &str, arguments: &str) -> String {
        let result = self.call(tool, arguments).await;
        match result["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => panic!("a text: {result}\n{}", self.reports.take().join("\n")),
        }
    }
}

/// How the rounds of a call reach servers.
pub struct Rounds<'a> {
    pub result: Value,
    pub count: u32,
    _apps: std::marker::PhantomData<&'a App>,
}

/// A stateless client that answers all questions of each round; `app_for_round` says which replica gets the
/// round.
pub async fn call_stateless<'a>(
    app_for_round: impl Fn(u32) -> &'a App,
    tool: &str,
    arguments: &str,
    answer: impl Fn(&str, &Value) -> Value,
) -> Rounds<'a> {
    let mut params = String::new();
    for count in 0.. {
        let result = app_for_round(count).call_as(tool, arguments, &params).await;
        let Some(requests) = result["inputRequests"].as_object() else {
            return Rounds { result, count, _apps: std::marker::PhantomData };
        };
        let answers: serde_json::Map<String, Value> =
            requests.iter().map(|(key, request)| (key.clone(), answer(key, request))).collect();
        params = format!(
            r#","requestState":{},"inputResponses":{}"#,
            result["requestState"],
            Value::Object(answers)
        );
    }
    unreachable!("the loop ends with a result")
}

fn stateless_call(tool: &str, arguments: &str, params: &str) -> String {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{}","arguments":{}{},"#,
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{"form":{{}},"url":{{}}}},"#,
            r#""sampling":{{}},"roots":{{}}}}}}}}}}"#
        ),
        tool, arguments, params
    )
}

fn dispatch(server: &Arc<Server>, message: &str, principal: Principal) -> PendingResponse {
    dispatch_by(server, message, &CallerIdentity { principal, ..ANONYMOUS })
}

fn dispatch_by(server: &Arc<Server>, message: &str, caller: &CallerIdentity) -> PendingResponse {
    let peer = Peer::from_version(Version::V2025_11_25);
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Pipe(Some(peer)), &server.snapshot())
    else {
        panic!("a request: {message}")
    };
    match server.dispatch(request, caller, ReplyChannel::NoSession, server.snapshot()) {
        Dispatched::Call(in_flight) => PendingResponse::Single(in_flight),
        _ => panic!("a call"),
    }
}

pub async fn respond(server: &Arc<Server>, message: &str) -> Doc {
    let peer = Peer::from_version(Version::V2025_11_25);
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Pipe(Some(peer)), &server.snapshot())
    else {
        panic!("a request: {message}")
    };
    let body = match server.dispatch(request, &ANONYMOUS, ReplyChannel::NoSession, server.snapshot()) {
        Dispatched::Call(in_flight) => finish(PendingResponse::Single(in_flight)).await,
        Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => body,
        Dispatched::Subscription(_) => panic!("a call"),
    };
    Json::from_written_bytes(body).to_doc()
}

async fn finish(mut pending: PendingResponse) -> Vec<u8> {
    loop {
        if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| pending.poll_next(cx)).await {
            return body;
        }
    }
}

/// A client of the handshake era on a pipe, which can be asked.
pub struct PipeClient {
    server: Arc<Server>,
    connection: Arc<ConnectionState>,
    pub notifications: Mutex<Vec<Value>>,
    /// What it was asked.
    pub requests: Mutex<Vec<Value>>,
}

impl PipeClient {
    pub fn new(app: &App) -> Self {
        let server = app.server.clone();
        Self {
            connection: server.open_pipe(),
            server,
            notifications: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    pub async fn call(&self, tool: &str, arguments: &str, answer: impl Fn(&Value) -> Value) -> Value {
        self.call_answering(tool, arguments, |message| message.get("id").map(|_| answer(message))).await
    }

    /// The same for a client that answers the last request when it sees fit: at a request or at a notification, or never.
    pub async fn call_answering(
        &self,
        tool: &str,
        arguments: &str,
        answer: impl Fn(&Value) -> Option<Value>,
    ) -> Value {
        let capabilities = ClientCapabilities::ELICITATION_FORM
            .with(ClientCapabilities::ELICITATION_URL)
            .with(ClientCapabilities::SAMPLING)
            .with(ClientCapabilities::ROOTS);
        let peer = Peer::negotiated(Version::V2025_11_25, capabilities);
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":7}}}}}}"#
        );
        let Decoded::Request(request) = self.server.decode(
            message.into_bytes(),
            MessageContext::Pipe(Some(peer)),
            &self.server.snapshot(),
        ) else {
            panic!("a request")
        };
        let channel = ReplyChannel::Pipe(self.connection.clone());
        let Dispatched::Call(in_flight) =
            self.server.dispatch(request, &ANONYMOUS, channel, self.server.snapshot())
        else {
            panic!("a call")
        };
        let mut pending = PendingResponse::Single(in_flight);
        loop {
            match poll_fn(|cx| pending.poll_next(cx)).await {
                OutgoingMessage::Response { body, .. } => {
                    let value: Value = serde_json::from_slice(&body).expect("JSON");
                    return value.get("result").unwrap_or(&value["error"]).clone();
                }
                OutgoingMessage::Request(body) => {
                    let request: Value = serde_json::from_slice(&body).expect("JSON");
                    let response = answer(&request);
                    self.requests.lock().expect("no panic before").push(request);
                    self.respond_to_last(response);
                }
                OutgoingMessage::Notification(body) => {
                    let notification = serde_json::from_slice(&body).expect("JSON");
                    self.respond_to_last(answer(&notification));
                    self.notifications.lock().expect("no panic before").push(notification);
                }
                OutgoingMessage::Pause { .. } => {}
            }
        }
    }

    fn respond_to_last(&self, response: Option<Value>) {
        let Some(response) = response else { return };
        let id = self.requests.lock().expect("no panic before").last().and_then(|last| last["id"].as_u64());
        let response = Json::parse(&response.to_string()).expect("JSON");
        self.connection.deliver_response(id, Ok(response));
    }
}
