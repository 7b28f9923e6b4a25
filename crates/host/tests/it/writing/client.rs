//! A client of either era, connected to a server over the in-memory table.

use std::future::poll_fn;
use std::sync::Arc;

use contract::compile::{IntrospectedSource, compile};
use contract::source::Source;
use contract::{CompiledSchema, Contract, manifest};
use host::{
    CallerIdentity, Config, ConnectionState, ContractBackends, ContractProvider, Dispatched, Keyring,
    OutgoingMessage, PendingResponse, ReplyChannel, Server,
};
use json::Json;
use serde_json::{Value, json};
use spile_core::{ClientCapabilities, Limits, Principal};
use testkit::FakePlatform;
use wire::{Decoded, MessageContext, Peer, Version};

use super::table::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Newest,
    Handshake,
}

pub const ERAS: [Era; 2] = [Era::Newest, Era::Handshake];

pub struct Client {
    pub table: Table,
    pub platform: Arc<FakePlatform>,
    pub server: Arc<Server>,
    connection: Arc<ConnectionState>,
    contract: Contract,
    era: Era,
    capabilities: ClientCapabilities,
    identity: CallerIdentity,
    /// The last request of the last call.
    last_params: Value,
    /// The structured content of the last error.
    pub last_error: Value,
    /// The messages of all elicitations, in order.
    pub questions: Vec<String>,
    /// All progress notifications, as `progress message`.
    pub progress: Vec<String>,
}

impl Client {
    /// A client with elicitation, of a server with the collection `people` and `manifest` appended to its section.
    pub fn new(era: Era, manifest: &str) -> Self {
        let table = Table::default();
        let text = format!(
            "[sources.s]\npath = \"people.db\"\n[collections.people]\n{manifest}\n\
             [tools.count]\nsql = \"count\"\narguments.name = {{ required = false }}\n"
        );
        let contract = compile_contract(&table, &text);
        let backends = ContractBackends {
            roles: Vec::new(),
            readers: contract
                .collections
                .iter()
                .map(|item| table.reader(&item.shape).expect("a reader"))
                .collect(),
            writers: contract
                .collections
                .iter()
                .map(|item| Some(table.writer(&item.shape).expect("a writer")))
                .collect(),
            statements: contract
                .statements
                .iter()
                .map(|item| table.prepare(&item.shape).expect("a statement"))
                .collect(),
            requests: Vec::new(),
        };
        let platform = Arc::new(FakePlatform::new(1));
        let provider =
            ContractProvider::new(contract.clone(), backends, Arc::new(Keyring::for_this_run(&*platform)));
        let config = Config::new("t", "1", Limits::default(), platform.clone());
        let server = Server::new(config, vec![Arc::new(provider)]);
        let connection = server.open_pipe();
        let (questions, progress) = (Vec::new(), Vec::new());
        let identity = CallerIdentity::default();
        Self {
            table,
            platform,
            server,
            connection,
            contract,
            era,
            capabilities: ClientCapabilities::ELICITATION_FORM,
            identity,
            questions,
            last_params: Value::Null,
            last_error: Value::Null,
            progress,
        }
    }

    #[must_use]
    pub fn without_forms(mut self) -> Self {
        self.capabilities = ClientCapabilities::NONE;
        self
    }

    pub fn become_user(&mut self, name: &str) {
        self.identity.principal = Principal::local(name).expect("a short name");
    }

    /// Calls a tool that must not ask the user.
    pub async fn call(&mut self, tool: &str, arguments: &str) -> String {
        let question_count = self.questions.len();
        let result =
            self.call_with_user(tool, arguments, &mut |_| panic!("the user must not be asked")).await;
        assert_eq!(self.questions.len(), question_count);
        result
    }

    /// Calls a tool; `user` answers its questions. Returns the structured content, validated against the output schema,
    /// or code, field and message of an error.
    pub async fn call_with_user(
        &mut self,
        tool: &str,
        arguments: &str,
        user: &mut dyn FnMut(&str) -> Value,
    ) -> String {
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        let mut params = json!({"name": tool, "arguments": arguments});
        let result = loop {
            let response = self.send(&params, user).await;
            let result = &response["result"];
            assert!(result.is_object(), "{response}");
            if result["resultType"] != "input_required" {
                break result.clone();
            }
            let mut responses = json!({});
            for (key, request) in result["inputRequests"].as_object().expect("questions") {
                responses[key] = self.answer_question(&request["params"], user);
            }
            params["inputResponses"] = responses;
            params["requestState"] = result["requestState"].clone();
        };
        self.last_params = params;
        self.read_result(tool, &result)
    }

    /// Repeats the last request of the last call, as a client does after a broken connection.
    pub async fn resend(&mut self) -> String {
        let params = self.last_params.clone();
        let response = self.send(&params, &mut |_| panic!("the user must not be asked")).await;
        self.read_result(params["name"].as_str().expect("a name"), &response["result"])
    }

    /// Repeats the last request with another answer to the same `requestState`. Returns the error.
    pub async fn answer_again(&mut self, answer: &Value) -> String {
        let mut params = self.last_params.clone();
        let responses = params["inputResponses"].as_object_mut().expect("the last request has an answer");
        responses.values_mut().for_each(|response| *response = answer.clone());
        let response = self.send(&params, &mut |_| panic!("the user must not be asked")).await;
        response["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    fn answer_question(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        let message = params["message"].as_str().expect("a message").to_owned();
        let response = user(&message);
        self.questions.push(message);
        response
    }

    /// Sends any other request. Returns the whole response.
    pub async fn request(&mut self, method: &str, params: &Value) -> Value {
        self.send_request(method, params, &mut |_| panic!("the user must not be asked")).await
    }

    async fn send(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        self.send_request("tools/call", params, user).await
    }

    async fn send_request(
        &mut self,
        method: &str,
        params: &Value,
        user: &mut dyn FnMut(&str) -> Value,
    ) -> Value {
        let mut params = params.clone();
        params["_meta"] = json!({"progressToken": 1});
        let peer = match self.era {
            Era::Handshake => Some(Peer::negotiated(Version::V2025_11_25, self.capabilities)),
            Era::Newest => {
                let capabilities = if self.capabilities == ClientCapabilities::NONE {
                    json!({})
                } else {
                    json!({"elicitation": {}})
                };
                params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
                None
            }
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let Decoded::Request(request) = self.server.decode(
            message.to_string().into_bytes(),
            MessageContext::Pipe(peer),
            &self.server.snapshot(),
        ) else {
            panic!("a request");
        };
        let Dispatched::Call(in_flight) = self.server.dispatch(
            request,
            &self.identity,
            ReplyChannel::Pipe(self.connection.clone()),
            self.server.snapshot(),
        ) else {
            panic!("a call");
        };
        let mut pending = PendingResponse::Single(in_flight);
        loop {
            match poll_fn(|cx| pending.poll_next(cx)).await {
                OutgoingMessage::Response { body, .. } => {
                    return serde_json::from_slice(&body).expect("JSON");
                }
                OutgoingMessage::Pause { .. } => {}
                OutgoingMessage::Notification(message) => {
                    let message: Value = serde_json::from_slice(&message).expect("JSON");
                    if let Some(text) = message["params"]["message"].as_str() {
                        self.progress.push(format!("{} {text}", message["params"]["progress"]));
                    }
                }
                OutgoingMessage::Request(question) => {
                    let question: Value = serde_json::from_slice(&question).expect("JSON");
                    let response = self.answer_question(&question["params"], user);
                    let response = json!({"jsonrpc": "2.0", "id": question["id"], "result": response});
                    match self.server.decode(
                        response.to_string().into_bytes(),
                        MessageContext::Pipe(peer),
                        &self.server.snapshot(),
                    ) {
                        Decoded::Response { id, result: response } => {
                            self.connection.deliver_response(id, response)
                        }
                        _ => panic!("an answer"),
                    }
                }
            }
        }
    }

    fn read_result(&mut self, tool: &str, result: &Value) -> String {
        let structured = &result["structuredContent"];
        let tool = self.contract.tools.iter().find(|item| item.name == tool).expect("the tool");
        let schema = CompiledSchema::compile(&tool.output_schema).expect("a schema");
        assert!(schema.is_valid(&Json::parse(&structured.to_string()).expect("JSON")), "{structured}");
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        if result["isError"] == true {
            self.last_error.clone_from(structured);
            let text = |key: &str| structured[key].as_str().unwrap_or("-").to_owned();
            return format!("{} {} {}", text("code"), text("field"), text("message"));
        }
        structured.to_string()
    }
}

fn compile_contract(table: &Table, text: &str) -> Contract {
    let (manifest, _) = manifest::parse("spile.toml", text, &|_| None)
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
    let facts = table.introspect().expect("facts");
    let statements: Vec<_> = manifest
        .tools
        .iter()
        .filter_map(|tool| match &tool.body {
            manifest::ToolBody::Statement(item) => {
                Some((tool.name.value.as_str(), table.describe_statement(&item.sql.value)))
            }
            manifest::ToolBody::Uses(_) | manifest::ToolBody::Request(_) => None,
        })
        .collect();
    let known = [IntrospectedSource { name: "s", facts: &facts, statements: &statements }];
    let (contract, diagnostics) = compile(&manifest, &known, "people");
    contract.unwrap_or_else(|| panic!("{diagnostics:?}"))
}

pub fn accept() -> Value {
    json!({"action": "accept", "content": {"confirm": true}})
}
