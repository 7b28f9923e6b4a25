//! What the gateway answers in place of the caller's client: configured roots, and a configured model after an approval. Every
//! era of the caller with every era of the server.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use gateway::{
    Gateway, GatewayOptions, Naming, SamplingApprover, SamplingObserver, SamplingQuestion, SamplingRecord,
};
use host::{Config, Server};
use json::Json;
use servers::config::{SamplingFormat, SamplingModel, SamplingSettings, Template, VariableSyntax};
use servers::decisions::{Decisions, Permission};
use servers::manager::ManagerHost;
use spile_core::{ClientCapabilities, InputRequest, Limits};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError};
use wire::Version;
use wire::client::{
    ClientCall, ClientOptions, IncomingInputRequest, InputReply, InputRequestKind, VersionPolicy,
};
use wire::method::Method;

use crate::world::{SimGateway, SimPlatform, SimProvider, SimServer, configuration, start_gateway};

const ERAS: [VersionPolicy; 2] = [VersionPolicy::Any, VersionPolicy::HandshakeOnly];
const CALLERS: [Version; 2] = [Version::NEWEST, Version::NEWEST_WITH_HANDSHAKE];

/// Answers what it is told, and keeps the questions.
#[derive(Default)]
struct Asked {
    reply: Option<&'static str>,
    questions: Mutex<Vec<String>>,
}

impl Asked {
    fn new(reply: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self { reply, ..Self::default() })
    }

    fn questions(&self) -> Vec<String> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientHandler for Asked {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let kind = match request.kind {
            InputRequestKind::Elicitation => "form",
            InputRequestKind::Sampling => "sampling",
            InputRequestKind::Roots => "roots",
        };
        let doc = request.params.to_doc();
        let message = doc.root().get("message").and_then(|text| Some(text.str()?.into_owned()));
        let question = format!("{kind} {}", message.unwrap_or_default());
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        let reply = match self.reply {
            Some(reply) => InputReply::Result(Json::parse(reply).expect("JSON")),
            None => InputReply::Declined("no".to_owned()),
        };
        Box::pin(std::future::ready(reply))
    }

    fn on_event(&self, _: ConnectionEvent) {}
}

async fn connect(
    gateway: &SimGateway,
    version: Version,
    capabilities: ClientCapabilities,
    handler: &Arc<Asked>,
) -> Connection {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(transport::pipe::serve(gateway.front.clone(), theirs));
    let version_policy = VersionPolicy::Only(version);
    let client_options = ClientOptions { capabilities, version_policy, ..ClientOptions::default() };
    let options = ConnectionOptions { client_options, ..ConnectionOptions::default() };
    let (input, output) = tokio::io::split(ours);
    Connection::over_pipe(input, output, options, handler.clone()).await.expect("the gateway answers")
}

/// Calls the tool that asks, and returns its text, or the error.
async fn call(connection: &Connection) -> String {
    let params = r#"{"name":"mcp__s__echo","arguments":{"token":"t","ms":0,"ask":true}}"#;
    let call = ClientCall::new(Method::ToolsCall, Json::parse(params).expect("JSON"));
    match connection.call(call, None).await {
        Err(error) => format!("error: {error}"),
        Ok(result) => {
            let doc = result.to_doc();
            let blocks = doc.root().get("content").into_iter().flat_map(|blocks| blocks.elements());
            blocks.filter_map(|block| block.get("text")?.str()).collect()
        }
    }
}

async fn start(
    version: VersionPolicy,
    question: InputRequest,
    options: GatewayOptions,
    entry: &str,
) -> (Arc<SimServer>, SimGateway) {
    let provider = SimProvider { question: Some(question), ..SimProvider::new("s") };
    let server = SimServer::with_provider("s", version, 1, provider);
    let gateway = start_gateway(std::slice::from_ref(&server), options, entry, 1);
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
    (server, gateway)
}

fn sampling() -> InputRequest {
    let params = r#"{"messages":[{"role":"user","content":{"type":"text","text":"capital of France?"}}],"maxTokens":9}"#;
    InputRequest::Sampling { params: Json::parse(params).expect("JSON") }
}

/// A model endpoint that answers every request with this body; returns its settings.
async fn model(status: u16, body: &'static str, allow: &[&str]) -> SamplingSettings {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    SamplingSettings {
        model: SamplingModel::Endpoint {
            url: Template::new(format!("http://{address}/v1"), VariableSyntax::Shell),
            headers: Vec::new(),
            format: SamplingFormat::OpenAi,
            model: Some("small".to_owned()),
        },
        timeout_ms: 30_000,
        tokens_max: 100,
        allow: allow.iter().map(|server| (*server).to_owned()).collect(),
    }
}

const PARIS: &str = r#"{"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}]}"#;
const YES: &str = r#"{"action":"accept","content":{"allow":true}}"#;

struct Operator(Option<bool>, Mutex<Vec<SamplingQuestion>>);

impl SamplingApprover for Operator {
    fn is_available(&self) -> bool {
        self.0.is_some()
    }

    fn ask(&self, question: SamplingQuestion) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        Box::pin(std::future::ready(self.0 == Some(true)))
    }
}

/// Keeps how each sampling ended, and who allowed it.
#[derive(Default)]
struct Recorded(Mutex<Vec<String>>);

impl SamplingObserver for Recorded {
    fn on_sampling_finished(&self, record: &SamplingRecord<'_>) {
        let SamplingRecord { server, allowed_by, status, request_bytes, response_bytes, .. } = record;
        assert_eq!((*server, *request_bytes > 0), ("s", true), "{record:?}");
        let line = format!("{status:?} {allowed_by:?} {}", *response_bytes > 0);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

struct Row {
    what: &'static str,
    caller: ClientCapabilities,
    reply: Option<&'static str>,
    operator: Option<bool>,
    allow: &'static [&'static str],
    model: Option<(u16, &'static str)>,
    expected: &'static str,
    /// What the client is asked.
    asked: &'static str,
    /// What is reported, if the gateway had a part in it.
    record: Option<&'static str>,
}

#[tokio::test]
async fn a_configured_model_answers_for_clients_without_one_after_an_approval() {
    let form = ClientCapabilities::ELICITATION_FORM;
    let none = ClientCapabilities::NONE;
    let answer = r#""text":"Paris""#;
    let row = Row {
        what: "",
        caller: form,
        reply: None,
        operator: None,
        allow: &[],
        model: Some((200, PARIS)),
        expected: answer,
        asked: "",
        record: None,
    };
    let rows = [
        Row {
            what: "the user allows it",
            reply: Some(YES),
            asked: "form The server s asks a model",
            record: Some("Answered Some(User) true"),
            ..row
        },
        Row {
            what: "the user declines",
            reply: Some(r#"{"action":"decline"}"#),
            expected: "did not allow",
            record: Some(r#"Refused("the user did not allow it") None false"#),
            asked: "form ",
            ..row
        },
        Row {
            what: "the box is not ticked",
            reply: Some(r#"{"action":"accept","content":{"allow":false}}"#),
            expected: "did not allow",
            record: Some(r#"Refused("the user did not allow it") None false"#),
            asked: "form ",
            ..row
        },
        Row {
            what: "the settings allow the server",
            allow: &["s"],
            record: Some("Answered Some(Settings) true"),
            ..row
        },
        Row {
            what: "the settings allow another server",
            caller: none,
            allow: &["t"],
            expected: "nobody can be asked",
            ..row
        },
        Row {
            what: "an operator allows it",
            caller: none,
            operator: Some(true),
            record: Some("Answered Some(Operator) true"),
            ..row
        },
        Row {
            what: "an operator declines",
            caller: none,
            operator: Some(false),
            expected: "did not allow",
            record: Some(r#"Refused("the user did not allow it") None false"#),
            ..row
        },
        Row { what: "nobody can be asked", caller: none, expected: "nobody can be asked", ..row },
        Row { what: "there is no model", model: None, expected: "nobody can be asked", ..row },
        Row {
            what: "the client has a model",
            caller: form.with(ClientCapabilities::SAMPLING),
            reply: Some(r#"{"role":"assistant","content":{"type":"text","text":"Lyon"},"model":"m"}"#),
            expected: "Lyon",
            asked: "sampling ",
            ..row
        },
        Row {
            what: "the model fails",
            allow: &["s"],
            model: Some((500, "key sk-secret")),
            expected: "the model did not answer",
            record: Some(r#"Failed("the model did not answer") Some(Settings) false"#),
            ..row
        },
        Row {
            what: "the model answers nonsense",
            allow: &["s"],
            model: Some((200, "sk-secret")),
            expected: "the model did not answer",
            record: Some(r#"Failed("the model did not answer") Some(Settings) false"#),
            ..row
        },
    ];
    for Row { what, caller, reply, operator, allow, model: endpoint, expected, asked, record } in rows {
        for server_version in ERAS {
            let settings = match endpoint {
                Some((status, body)) => Some(model(status, body, allow).await),
                None => None,
            };
            let options = GatewayOptions { sampling: settings, ..GatewayOptions::default() };
            let (_server, gateway) = start(server_version, sampling(), options, "").await;
            let approver = Arc::new(Operator(operator, Mutex::default()));
            gateway.gateway.set_sampling_approver(approver.clone());
            let recorded = Arc::new(Recorded::default());
            gateway.gateway.set_sampling_observer(recorded.clone());
            for version in CALLERS {
                let row = format!("{what}, {version:?} to {server_version:?}");
                let handler = Asked::new(reply);
                let connection = connect(&gateway, version, caller, &handler).await;
                let text = call(&connection).await;
                assert!(text.contains(expected) && !text.contains("sk-secret"), "{row}: {text}");
                let questions = handler.questions();
                assert_eq!(questions.len(), usize::from(!asked.is_empty()), "{row}: {questions:?}");
                let is_shown = |text: &String| {
                    text.starts_with(asked)
                        && (asked == "sampling " || text.contains("user: capital of France?"))
                };
                assert!(questions.iter().all(is_shown), "{row}: {questions:?}");
                let shown = approver.1.lock().expect("no panic").pop();
                assert_eq!(shown.is_some(), operator.is_some(), "{row}");
                assert!(
                    shown.is_none_or(|shown| shown.server == "s" && shown.request.contains("France")),
                    "{row}"
                );
                let reported = std::mem::take(&mut *recorded.0.lock().expect("no panic"));
                assert_eq!(reported, Vec::from_iter(record), "{row}");
            }
            gateway.gateway.close().await;
        }
    }
}

#[tokio::test]
async fn a_server_with_declared_roots_gets_those_and_others_those_of_the_client() {
    let roots = ClientCapabilities::ROOTS.with(ClientCapabilities::ROOTS_LIST_CHANGED);
    let of_client = r#"{"roots":[{"uri":"file:///client"}]}"#;
    for server_version in ERAS {
        for version in CALLERS {
            for (entry, caller, expected, is_asked) in [
                (r#","roots":["/declared"]"#, roots, "file:///declared", false),
                (r#","roots":["/declared"]"#, ClientCapabilities::NONE, "file:///declared", false),
                (r#","roots":[]"#, roots, r#"{"roots":[]}"#, false),
                ("", roots, "file:///client", true),
                ("", ClientCapabilities::NONE, "nobody can be asked", false),
            ] {
                let row = format!("{entry} {caller:?} {version:?} to {server_version:?}");
                let (server, gateway) =
                    start(server_version, InputRequest::Roots, GatewayOptions::default(), entry).await;
                let handler = Asked::new(Some(of_client));
                let connection = connect(&gateway, version, caller, &handler).await;
                let text = call(&connection).await;
                assert!(text.contains(expected), "{row}: {text}");
                assert_eq!(handler.questions().len(), usize::from(is_asked), "{row}");
                if entry.contains("/declared") {
                    // Without a new connection: the server is told, or asks with the next call.
                    let connections = server.connections();
                    let changed = configuration(std::slice::from_ref(&server), r#","roots":["/elsewhere"]"#);
                    let changes = gateway.gateway.apply(&changed, &Decisions::default());
                    assert_eq!(format!("{changes:?}"), r#"[RootsChanged("s")]"#, "{row}");
                    let text = call(&connection).await;
                    assert!(text.contains("file:///elsewhere"), "{row}: {text}");
                    assert_eq!(server.connections(), connections, "{row}");
                    assert_eq!(gateway.gateway.apply(&changed, &Decisions::default()), [], "{row}");
                }
                gateway.gateway.close().await;
            }
        }
    }
}

#[tokio::test]
async fn changed_roots_are_announced_to_servers_of_the_handshake_era() {
    let roots = ClientCapabilities::ROOTS.with(ClientCapabilities::ROOTS_LIST_CHANGED);
    for (entry, version) in
        [(r#","roots":["/declared"]"#, Version::NEWEST_WITH_HANDSHAKE), ("", Version::NEWEST_WITH_HANDSHAKE)]
    {
        let (server, gateway) =
            start(VersionPolicy::HandshakeOnly, InputRequest::Roots, GatewayOptions::default(), entry).await;
        let handler = Asked::new(Some(r#"{"roots":[]}"#));
        let connection = connect(&gateway, version, roots, &handler).await;
        call(&connection).await;
        assert_eq!(server.provider.roots_changes(), 0);
        // Its own roots concern the server only if the entry declares none.
        connection.roots_changed();
        call(&connection).await;
        let expected = u64::from(entry.is_empty());
        assert_eq!(server.provider.roots_changes(), expected, "{entry}");
        if !entry.is_empty() {
            let changed = configuration(std::slice::from_ref(&server), r#","roots":["/elsewhere"]"#);
            gateway.gateway.apply(&changed, &Decisions::default());
            call(&connection).await;
            // The caller's connection, and the gateway's own, which may be told a moment later.
            assert!(
                (1..=2).contains(&server.provider.roots_changes()),
                "{}",
                server.provider.roots_changes()
            );
        }
        gateway.gateway.close().await;
    }
}

/// A server of 2025-11-25 that asks for roots when it is connected and when they have changed, as `server-filesystem` does. Its tool
/// waits until it has them, and returns them.
async fn ask_for_roots(io: tokio::io::DuplexStream) {
    let (input, mut output) = tokio::io::split(io);
    let mut lines = tokio::io::BufReader::new(input).lines();
    let (mut roots, mut call) = (None::<String>, None::<String>);
    while let Ok(Some(line)) = lines.next_line().await {
        let doc = Json::parse(&line).expect("JSON").to_doc();
        let method = doc.root().get("method").and_then(|method| Some(method.str()?.into_owned()));
        let id = doc.root().get("id").map(|id| id.raw().to_owned());
        let result = match method.as_deref() {
            Some("initialize") => Some(
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#.to_owned(),
            ),
            Some("tools/list") => {
                Some(r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#.to_owned())
            }
            Some("tools/call") => {
                call.clone_from(&id);
                None
            }
            Some("notifications/initialized" | "notifications/roots/list_changed") => {
                roots = None;
                let question = "{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"roots/list\"}\n";
                output.write_all(question.as_bytes()).await.expect("somebody reads");
                None
            }
            Some(_) if id.is_none() => None,
            Some(_) => {
                let error = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{{\"code\":-32601,\"message\":\"unknown\"}}}}\n",
                    id.as_deref().unwrap_or("0")
                );
                output.write_all(error.as_bytes()).await.expect("somebody reads");
                None
            }
            None => {
                roots = Some(line.clone());
                None
            }
        };
        let mut answers: Vec<(String, String)> = id.zip(result).into_iter().collect();
        if let Some(roots) = &roots
            && let Some(call) = call.take()
        {
            let text = Json::string(roots);
            answers.push((call, format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)));
        }
        for (id, result) in answers {
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
            output.write_all(answer.as_bytes()).await.expect("somebody reads");
        }
    }
}

struct RootsHost;

impl ManagerHost for RootsHost {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn connect_in_process(
        &self,
        _: &str,
        options: &ConnectionOptions,
        handler: &Arc<dyn ClientHandler>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<Connection, OpenError>> + Send>>> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(ask_for_roots(theirs));
        let (input, output) = tokio::io::split(ours);
        Some(Box::pin(Connection::over_pipe(input, output, options.clone(), handler.clone())))
    }
}

#[tokio::test]
async fn a_server_that_asks_for_roots_outside_of_a_call_gets_them() {
    let roots = ClientCapabilities::ROOTS.with(ClientCapabilities::ROOTS_LIST_CHANGED);
    for version in CALLERS {
        for entry in ["", r#","roots":["/declared"]"#] {
            let named = SimServer::new("s", VersionPolicy::HandshakeOnly, 1);
            let servers = configuration(std::slice::from_ref(&named), entry).servers;
            let servers = servers.into_iter().map(|server| (server, Permission::Allowed)).collect();
            let platform = SimPlatform::new(1);
            let gateway =
                Gateway::start(servers, GatewayOptions::default(), Arc::new(RootsHost), platform.clone());
            gateway.manager().settled().await;
            gateway.refresh();
            let front = Server::new(Config::new("gateway", "1", Limits::default(), platform), Vec::new());
            front.set_provider_by_name("s", gateway.provider("s", Naming::Public).map(|one| one as Arc<_>));
            let gateway = SimGateway { gateway, front };
            let handler = Asked::new(Some(r#"{"roots":[{"uri":"file:///client"}]}"#));
            let connection = connect(&gateway, version, roots, &handler).await;
            let expected = if entry.is_empty() { "file:///client" } else { "file:///declared" };
            assert!(call(&connection).await.contains(expected), "{version:?} {entry}");
            if !entry.is_empty() {
                let changed = configuration(std::slice::from_ref(&named), r#","roots":["/elsewhere"]"#);
                gateway.gateway.apply(&changed, &Decisions::default());
                assert!(call(&connection).await.contains("file:///elsewhere"), "{version:?}");
            } else if version == Version::NEWEST_WITH_HANDSHAKE {
                // The client's own notification makes the server ask again.
                connection.roots_changed();
                assert!(call(&connection).await.contains("file:///client"), "{version:?}");
                assert_eq!(handler.questions().len(), 2);
            }
            gateway.gateway.close().await;
        }
    }
}
