//! Providers of every kind to come, and a policy: scripts with state between rounds, catalogs that change all the time,
//! servers that relay another one's results, tools that call tools.

mod catalogs;
mod consent;
mod durable_tasks;
mod nested;
mod plain_calls;
mod policies;
mod relay;
mod replicas;
mod rounds;
mod task_handover;
mod task_ownership;
mod ticket_memo;

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use host::{
    CallObserver, CallRecord, CallerIdentity, Config, ConnectionState, Dispatched, Keyring, OutgoingMessage,
    PendingResponse, PolicyRecord, ReplyChannel, Server, SystemPlatform,
};
use json::{Doc, Json};
use spile_core::{
    Call, CallContext, Catalog, ClientCapabilities, InputRequest, InputRequests, Limits, Outcome, Platform,
    Principal, Provider, Run, Tool,
};
use state::store::Store;
use testkit::FakePlatform;
use wire::{Decoded, MessageContext, Peer, Version};

const ANONYMOUS: CallerIdentity =
    CallerIdentity { principal: Principal::Anonymous, address: None, request_head: None };

fn object_schema() -> Json {
    Json::parse(r#"{"type":"object"}"#).expect("JSON")
}

/// A provider made of tools and one function.
struct FnProvider<F> {
    catalog: Arc<Catalog>,
    run: F,
}

impl<F: Fn(&Call, &CallContext<'_>) -> Run + Send + Sync> Provider for FnProvider<F> {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        (self.run)(call, cx)
    }
}

fn provider(
    tools: Vec<Tool>,
    run: impl Fn(&Call, &CallContext<'_>) -> Run + Send + Sync + 'static,
) -> Arc<dyn Provider> {
    Arc::new(FnProvider { catalog: Arc::new(Catalog { tools, ..Catalog::default() }), run })
}

fn tools(names: &[&str]) -> Vec<Tool> {
    names.iter().map(|name| Tool::new(name, "", object_schema())).collect()
}

fn server_with(keyring: Option<Arc<Keyring>>, providers: Vec<Arc<dyn Provider>>) -> Arc<Server> {
    let platform: Arc<dyn Platform> = Arc::new(FakePlatform::new(1));
    let config = Config::new("t", "1", Limits::default(), platform);
    let keyring = keyring.unwrap_or_else(|| config.keyring.clone());
    Server::new(Config { keyring, ..config }, providers)
}

/// One of several replicas. Each has its own clock and randomness, as processes do.
fn server_sharing(
    keyring: Arc<Keyring>,
    store: Arc<dyn Store>,
    providers: Vec<Arc<dyn Provider>>,
) -> Arc<Server> {
    let config = Config::new("t", "1", Limits::default(), Arc::new(SystemPlatform::default()));
    Server::new(Config { keyring, store, ..config }, providers)
}

fn server(providers: Vec<Arc<dyn Provider>>) -> Arc<Server> {
    server_with(None, providers)
}

/// A form without fields.
fn form(message: &str) -> InputRequest {
    let schema = Json::parse(r#"{"type":"object","properties":{"value":{"type":"string"}}}"#).expect("JSON");
    InputRequest::Form { message: message.into(), schema }
}

fn ask(key: &str) -> InputRequests {
    InputRequests::single(key, form(key))
}

/// A call of the stateless era; `params` are further members of its parameters.
fn stateless_call(tool: &str, params: &str) -> String {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{}"{},"#,
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{"form":{{}}}}}}}}}}}}"#
        ),
        tool, params
    )
}

fn answers(state: &str, key: &str, value: &str) -> String {
    format!(
        r#","requestState":"{state}","inputResponses":{{"{key}":{{"action":"accept","content":{{"value":"{value}"}}}}}}"#
    )
}

/// The response to one message.
async fn respond(server: &Arc<Server>, message: &str) -> Doc {
    respond_as(server, &ANONYMOUS, message).await
}

/// The response to one message of this caller.
async fn respond_as(server: &Arc<Server>, caller: &CallerIdentity, message: &str) -> Doc {
    respond_on(server, caller, ReplyChannel::NoSession, message).await
}

/// The response to one message of this caller on its connection.
async fn respond_on(
    server: &Arc<Server>,
    caller: &CallerIdentity,
    channel: ReplyChannel,
    message: &str,
) -> Doc {
    let peer = Peer::from_version(Version::V2025_11_25);
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Pipe(Some(peer)), &server.snapshot())
    else {
        panic!("a request: {message}")
    };
    let body = match server.dispatch(request, caller, channel, server.snapshot()) {
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

fn text_of(response: &Doc) -> String {
    let text = response
        .root()
        .get("result")
        .and_then(|result| result.get("content")?.elements().next()?.get("text")?.str().map(String::from));
    text.unwrap_or_else(|| panic!("a text: {}", response.text()))
}

fn error_of(response: &Doc) -> String {
    let message =
        response.root().get("error").and_then(|error| error.get("message")?.str().map(String::from));
    message.unwrap_or_else(|| panic!("an error: {}", response.text()))
}

fn state_of(response: &Doc) -> String {
    let state =
        response.root().get("result").and_then(|result| result.get("requestState")?.str().map(String::from));
    state.unwrap_or_else(|| panic!("a requestState: {}", response.text()))
}

/// A client of the handshake era on a pipe, which can be asked.
struct PipeClient {
    server: Arc<Server>,
    connection: Arc<ConnectionState>,
}

impl PipeClient {
    fn new(server: &Arc<Server>) -> Self {
        Self { server: server.clone(), connection: server.open_pipe() }
    }

    /// Calls a tool and answers each elicitation with the next of `values`.
    async fn call(&self, tool: &str, values: &[&str]) -> Doc {
        let peer = Peer::negotiated(Version::V2025_11_25, ClientCapabilities::ELICITATION_FORM);
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
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
        let mut values = values.iter();
        loop {
            match poll_fn(|cx| pending.poll_next(cx)).await {
                OutgoingMessage::Response { body, .. } => return Json::from_written_bytes(body).to_doc(),
                OutgoingMessage::Request(body) => {
                    let doc = Json::from_written_bytes(body).to_doc();
                    let id = doc.root().get("id").and_then(|id| id.raw().parse().ok());
                    let value = values.next().expect("no more questions");
                    let answer = format!(r#"{{"action":"accept","content":{{"value":"{value}"}}}}"#);
                    self.connection.deliver_response(id, Ok(Json::parse(&answer).expect("JSON")));
                }
                OutgoingMessage::Notification(_) | OutgoingMessage::Pause { .. } => {}
            }
        }
    }
}

/// Keeps one line for each finished call.
#[derive(Default)]
struct Records(Mutex<Vec<String>>);

impl CallObserver for Records {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let decided = |PolicyRecord { decision, reason, .. }: &PolicyRecord| {
            format!(" {decision}({})", reason.as_deref().unwrap_or_default())
        };
        let policy: String = record.policy.iter().map(decided).collect();
        let line = format!("{} depth {} round {}{policy}", record.call.name(), record.depth, record.round);
        self.0.lock().expect("no panic before").push(line);
    }
}

impl Records {
    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic before").clone()
    }
}

fn outcome_text(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(result) => format!("{result:?}"),
        Outcome::ToolFailed(error) => error.message,
        Outcome::InputRequired(requests) => format!("asks for {}", requests.len()),
        Outcome::Detach(_) => "detached".into(),
        Outcome::Failed(error) => error.to_string(),
    }
}
