//! A server with tools of every effect behind a policy, and a client that writes down what happens.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, OnceLock};

use host::{
    CallObserver, CallRecord, CallerIdentity, Config, Dispatched, OutgoingMessage, PendingResponse,
    ReplyChannel, Server,
};
use json::{Doc, Json};
use permissions::audit::AuditLog;
use permissions::hooks::{CommandEnvironment, Hooks};
use permissions::names::{Origin, Origins};
use permissions::{Approver, PermissionPolicy, Settings};
use spile_core::{
    Call, CallContext, Catalog, InputRequest, InputRequests, ItemKind, Limits, Outcome, Platform, Principal,
    Prompt, Provider, Run, Tool, ToolAnnotations, ToolError, ToolErrorCode, ToolResult,
};
use testkit::FakePlatform;
use wire::{Decoded, MessageContext, Peer, Version};

/// `mcp__server__tool`, as a gateway has it.
pub struct TestOrigins;

impl Origins for TestOrigins {
    fn origin(&self, _: ItemKind, listed: &str) -> Option<Origin> {
        let (server, name) = listed.strip_prefix("mcp__")?.split_once("__")?;
        Some(Origin { server: server.to_owned(), name: name.to_owned() })
    }
}

pub type Lines = Arc<Mutex<Vec<String>>>;

pub struct Gateway {
    pub server: Arc<Server>,
    pub lines: Lines,
    pub platform: Arc<FakePlatform>,
    observer: Arc<Observer>,
}

/// The observer of the tests, and another one that is set later.
struct Observer {
    first: Arc<TestProvider>,
    second: OnceLock<Arc<dyn CallObserver>>,
}

impl CallObserver for Observer {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        self.first.on_call_finished(record);
        if let Some(second) = self.second.get() {
            second.on_call_finished(record);
        }
    }

    fn needs_call_id(&self) -> bool {
        self.second.get().is_some_and(|second| second.needs_call_id())
    }
}

/// Whether the client can be asked, and what it answers.
#[derive(Clone, Copy)]
pub enum Client<'a> {
    CannotBeAsked,
    Answers(&'a [&'a str]),
}

pub const ALLOW: &str = r#"{"action":"accept","content":{"allow":true}}"#;

struct TestProvider {
    catalog: Arc<Catalog>,
    lines: Lines,
}

fn tool(name: &str, read_only: Option<bool>, destructive: Option<bool>) -> Tool {
    let schema = r#"{"type":"object","properties":{"who":{"type":"string"}}}"#;
    Tool {
        annotations: ToolAnnotations { read_only, destructive, ..ToolAnnotations::default() },
        ..Tool::new(name, "", Json::parse(schema).expect("JSON"))
    }
}

impl Provider for TestProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let arguments = call.arguments().map_or("{}", |arguments| arguments.raw());
        self.lines.lock().expect("no panic").push(format!("runs {} with {arguments}", call.name()));
        match &*call.name() {
            "mcp__s__fails" => Run::now(ToolError::new(ToolErrorCode::Conflict, "it broke")),
            "mcp__s__asks" if cx.journal.response("name").is_none() => {
                let schema =
                    Json::parse(r#"{"type":"object","properties":{"n":{"type":"string"}}}"#).expect("JSON");
                let form = InputRequest::Form { message: "What is your name?".into(), schema };
                Run::now(Outcome::InputRequired(InputRequests::single("name", form)))
            }
            name => Run::now(ToolResult::text(format!("result of {name}"))),
        }
    }
}

impl CallObserver for TestProvider {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        for decision in record.policy {
            let hook = decision.hook.as_deref().map(|hook| format!(" [hook {hook}]")).unwrap_or_default();
            let reason = decision.reason.as_deref().unwrap_or_default();
            self.lines
                .lock()
                .expect("no panic")
                .push(format!("record {}: {reason}{hook}", decision.decision));
        }
    }
}

/// The supervisor of hooks.
pub fn command_environment(cwd: &std::path::Path) -> CommandEnvironment {
    let mut environment = CommandEnvironment::new(cwd);
    environment.process.supervisor = Some(env!("CARGO_BIN_EXE_permissions-helper").into());
    environment
}

pub fn settings(text: &str) -> Settings {
    let (settings, warnings) =
        Settings::parse("gateway.json", text).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    settings
}

/// A gateway with these settings.
pub fn gateway(text: &str, approver: Option<Arc<dyn Approver>>) -> Gateway {
    let Settings { rules, mode, hooks, .. } = settings(text);
    let cwd = std::env::temp_dir();
    let hooks = Hooks::new(hooks, command_environment(&cwd)).expect("hooks");
    let policy = PermissionPolicy::new(rules, mode, hooks, Arc::new(TestOrigins), approver);
    let gateway = gateway_without_policy();
    gateway.server.set_policy(Arc::new(policy));
    gateway
}

/// A gateway whose calls are recorded in a file as well.
pub struct Audited {
    pub gateway: Gateway,
    path: std::path::PathBuf,
    log: Arc<AuditLog>,
    _folder: tempfile::TempDir,
}

impl Audited {
    pub fn new(text: &str, approver: Option<Arc<dyn Approver>>) -> Self {
        let Settings { rules, mode, hooks, audit, .. } = settings(text);
        let gateway = gateway_without_policy();
        let hooks = Hooks::new(hooks, command_environment(&std::env::temp_dir())).expect("hooks");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let platform = gateway.platform.clone();
        let log = AuditLog::open(&path, &audit.unwrap_or_default(), Arc::new(TestOrigins), platform);
        let log = log.expect("a log");
        let policy = PermissionPolicy::new(rules, mode, hooks, Arc::new(TestOrigins), approver);
        gateway.server.set_policy(Arc::new(policy.with_gate(log.clone())));
        gateway.add_observer(log.clone());
        Self { gateway, path, log, _folder: folder }
    }

    /// What the audit log says about each call so far: outcome, code, decision, reason and hook.
    pub fn lines(&self) -> Vec<String> {
        assert!(self.log.flush(std::time::Duration::from_secs(60)));
        let text = std::fs::read_to_string(&self.path).expect("a readable log");
        let brief = |line: &str| {
            let doc = Json::parse(line).expect("JSON").to_doc();
            let part = |key: &str| doc.root().get(key).and_then(|part| Some(part.str()?.into_owned()));
            let parts = ["outcome", "code", "decision", "reason"].iter().filter_map(|key| part(key));
            let hook = part("hook").map(|hook| format!("[hook {hook}]"));
            parts.chain(hook).collect::<Vec<_>>().join(" | ")
        };
        text.lines().map(brief).collect()
    }
}

pub fn gateway_without_policy() -> Gateway {
    let lines = Lines::default();
    let tools = vec![
        tool("mcp__s__read", Some(true), None),
        tool("mcp__s__plain", None, None),
        tool("mcp__s__write", Some(false), Some(false)),
        tool("mcp__s__delete", Some(false), Some(true)),
        tool("mcp__s__fails", Some(true), None),
        tool("mcp__s__asks", Some(true), None),
    ];
    let prompts = vec![Prompt { name: "mcp__s__greet".into(), ..Prompt::default() }];
    let catalog = Arc::new(Catalog { tools, prompts, ..Catalog::default() });
    let provider = Arc::new(TestProvider { catalog, lines: lines.clone() });
    let platform = Arc::new(FakePlatform::new(1));
    let shared: Arc<dyn Platform> = platform.clone();
    let server = Server::new(Config::new("gateway", "1", Limits::default(), shared), vec![provider.clone()]);
    let observer = Arc::new(Observer { first: provider, second: OnceLock::new() });
    server.set_observer(observer.clone());
    Gateway { server, lines, platform, observer }
}

impl Gateway {
    pub fn add_observer(&self, observer: Arc<dyn CallObserver>) {
        assert!(self.observer.second.set(observer).is_ok(), "there is one already");
    }

    /// Calls a tool, answers its questions, and returns everything that happened.
    pub async fn call(&self, tool: &str, arguments: &str, client: Client<'_>) -> String {
        let (capabilities, answers) = match client {
            Client::CannotBeAsked => ("{}", &[][..]),
            Client::Answers(answers) => (r#"{"elicitation":{"form":{}}}"#, answers),
        };
        let mut answers = answers.iter();
        let mut resumed = String::new();
        let mut seen = String::new();
        loop {
            let message = format!(
                concat!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{}","arguments":{}{},"#,
                    r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                    r#""io.modelcontextprotocol/clientCapabilities":{}}}}}}}"#
                ),
                tool, arguments, resumed, capabilities
            );
            let response = respond(&self.server, &message).await;
            self.lines
                .lock()
                .expect("no panic")
                .drain(..)
                .for_each(|line| seen.push_str(&format!("{line}\n")));
            let root = response.root();
            let Some(result) = root.get("result") else {
                return format!("{seen}error {}\n", root.get("error").expect("an error").raw());
            };
            let Some(state) = result.get("requestState").and_then(|state| state.str()) else {
                let content: Vec<_> =
                    result.get("content").into_iter().flat_map(|list| list.elements()).collect();
                let texts = content.iter().filter_map(|block| block.get("text")?.str().map(String::from));
                return format!("{seen}answer: {}\n", texts.collect::<Vec<_>>().join(" + "));
            };
            let mut responses = Vec::new();
            for (key, request) in result.get("inputRequests").expect("questions").members() {
                let message = request.get("params").and_then(|params| params.get("message")?.str());
                seen.push_str(&format!("asks: {}\n", message.expect("a message").replace('\n', "\n      ")));
                let answer = answers.next().expect("an answer is left");
                seen.push_str(&format!("client: {answer}\n"));
                responses.push(format!("{}:{answer}", key.raw()));
            }
            resumed = format!(r#","requestState":"{state}","inputResponses":{{{}}}"#, responses.join(","));
        }
    }

    /// The names of the listed tools or prompts.
    pub async fn list(&self, kind: &str) -> Vec<String> {
        let message = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{}/list","params":{{"#,
                r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
            ),
            kind
        );
        let response = respond(&self.server, &message).await;
        let items = response.root().get("result").and_then(|result| result.get(kind)).expect("a list");
        items.elements().filter_map(|item| item.get("name")?.str().map(String::from)).collect()
    }
}

async fn respond(server: &Arc<Server>, message: &str) -> Doc {
    let peer = Peer::from_version(Version::NEWEST);
    let caller =
        CallerIdentity { principal: Principal::local("ada").expect("a name"), ..CallerIdentity::default() };
    let context = MessageContext::Pipe(Some(peer));
    let Decoded::Request(request) = server.decode(message.as_bytes().to_vec(), context, &server.snapshot())
    else {
        panic!("a request: {message}")
    };
    let body = match server.dispatch(request, &caller, ReplyChannel::NoSession, server.snapshot()) {
        Dispatched::Call(in_flight) => {
            let mut pending = PendingResponse::Single(in_flight);
            loop {
                if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| pending.poll_next(cx)).await {
                    break body;
                }
            }
        }
        Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => body,
        Dispatched::Subscription(_) => panic!("a call"),
    };
    Json::from_written_bytes(body).to_doc()
}
