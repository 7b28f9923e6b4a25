//! A client of one era or the other, on the real path.

use std::future::poll_fn;
use std::sync::Arc;

use contract::compile::{KnownSource, compile};
use contract::source::Source;
use contract::{CompiledSchema, Contract, manifest};
use host::{
    CallerIdentity, Config, ConnectionState, ContractBackends, ContractProvider, Dispatched, OutgoingMessage,
    PendingResponse, ReplyChannel, Server,
};
use json::Json;
use serde_json::{Value, json};
use spile_core::{ClientCapabilities, Limits, Principal};
use testkit::FakePlatform;
use wire::{Decoded, Defaults, Peer, Version};

use super::table::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Newest,
    Handshake,
}

pub const ERAS: [Era; 2] = [Era::Newest, Era::Handshake];

pub struct Client {
    pub table: Table,
    server: Arc<Server>,
    connection: Arc<ConnectionState>,
    contract: Contract,
    era: Era,
    caps: ClientCapabilities,
    identity: CallerIdentity,
    /// The last request of the last call.
    last_params: Value,
    /// The last failure, as a client gets it.
    pub last_error: Value,
    /// What the user was asked, in order.
    pub questions: Vec<String>,
    /// How far calls said they were.
    pub progress: Vec<String>,
}

impl Client {
    /// A client that shows forms, of a server with people and these lines more in its manifest.
    pub fn new(era: Era, more: &str) -> Self {
        let table = Table::default();
        let text = format!(
            "[sources.s]\npath = \"people.db\"\n[collections.people]\n{more}\n\
             [tools.count]\nsql = \"count\"\narguments.name = {{ required = false }}\n"
        );
        let contract = compile_contract(&table, &text);
        let answers = ContractBackends {
            readers: contract
                .collections
                .iter()
                .map(|one| table.reader(&one.shape).expect("a reader"))
                .collect(),
            writers: contract
                .collections
                .iter()
                .map(|one| Some(table.writer(&one.shape).expect("a writer")))
                .collect(),
            statements: contract
                .statements
                .iter()
                .map(|one| table.prepare(&one.shape).expect("a statement"))
                .collect(),
        };
        let world = Arc::new(FakePlatform::new(1));
        let provider = ContractProvider::new(contract.clone(), answers, &*world);
        let config =
            Config { name: "t".into(), version: "1".into(), limits: Limits::default(), platform: world };
        let server = Server::new(config, vec![Arc::new(provider)]).expect("a good catalog");
        let connection = server.open_pipe();
        let (questions, progress) = (Vec::new(), Vec::new());
        let identity = CallerIdentity::default();
        Self {
            table,
            server,
            connection,
            contract,
            era,
            caps: ClientCapabilities::ELICITATION_FORM,
            identity,
            questions,
            last_params: Value::Null,
            last_error: Value::Null,
            progress,
        }
    }

    #[must_use]
    pub fn without_forms(mut self) -> Self {
        self.caps = ClientCapabilities::NONE;
        self
    }

    pub fn become_user(&mut self, name: &str) {
        self.identity.principal = Principal::Named(name.into());
    }

    /// Calls a tool; nobody is expected to be asked.
    pub async fn call(&mut self, tool: &str, arguments: &str) -> String {
        let asked = self.questions.len();
        let told = self.call_with_user(tool, arguments, &mut |_| panic!("nobody should be asked")).await;
        assert_eq!(self.questions.len(), asked);
        told
    }

    /// Calls a tool, with a user who answers what they are asked. What it told: the typed part, which fits what the
    /// tool promised; or a code, a field and a message.
    pub async fn call_with_user(
        &mut self,
        tool: &str,
        arguments: &str,
        user: &mut dyn FnMut(&str) -> Value,
    ) -> String {
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        let mut params = json!({"name": tool, "arguments": arguments});
        let result = loop {
            let answer = self.send(&params, user).await;
            let result = &answer["result"];
            assert!(result.is_object(), "{answer}");
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

    /// Sends the last request of the last call once more, as a client does whose connection broke.
    pub async fn resend(&mut self) -> String {
        let params = self.last_params.clone();
        let answer = self.send(&params, &mut |_| panic!("nobody should be asked")).await;
        self.read_result(params["name"].as_str().expect("a name"), &answer["result"])
    }

    fn answer_question(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        let message = params["message"].as_str().expect("a message").to_owned();
        let answer = user(&message);
        self.questions.push(message);
        answer
    }

    async fn send(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        let mut params = params.clone();
        params["_meta"] = json!({"progressToken": 1});
        let peer = match self.era {
            Era::Handshake => Some(Peer::negotiated(Version::V2025_11_25, self.caps)),
            Era::Newest => {
                let can = if self.caps == ClientCapabilities::NONE {
                    json!({})
                } else {
                    json!({"elicitation": {}})
                };
                params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
                None
            }
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let Decoded::Request(request) =
            self.server.decode(message.to_string().into_bytes(), Defaults::Pipe(peer))
        else {
            panic!("a request");
        };
        let Dispatched::Call(serving) =
            self.server.dispatch(request, &self.identity, ReplyChannel::Pipe(self.connection.clone()))
        else {
            panic!("a call");
        };
        let mut flow = PendingResponse::Single(serving);
        loop {
            match poll_fn(|cx| flow.poll_next(cx)).await {
                OutgoingMessage::Response { body, .. } => {
                    return serde_json::from_slice(&body).expect("JSON");
                }
                OutgoingMessage::Pause { .. } => {}
                OutgoingMessage::Notification(message) => {
                    let message: Value = serde_json::from_slice(&message).expect("JSON");
                    if let Some(said) = message["params"]["message"].as_str() {
                        self.progress.push(format!("{} {said}", message["params"]["progress"]));
                    }
                }
                OutgoingMessage::Request(question) => {
                    let question: Value = serde_json::from_slice(&question).expect("JSON");
                    let answer = self.answer_question(&question["params"], user);
                    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
                    match self.server.decode(answer.to_string().into_bytes(), Defaults::Pipe(peer)) {
                        Decoded::Response { id, result: answer } => {
                            self.connection.deliver_response(id, answer)
                        }
                        _ => panic!("an answer"),
                    }
                }
            }
        }
    }

    fn read_result(&mut self, tool: &str, result: &Value) -> String {
        let told = &result["structuredContent"];
        let tool = self.contract.tools.iter().find(|one| one.name == tool).expect("the tool");
        let schema = CompiledSchema::compile(&tool.output_schema).expect("a schema");
        assert!(schema.is_valid(&Json::parse(&told.to_string()).expect("JSON")), "{told}");
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        if result["isError"] == true {
            self.last_error.clone_from(told);
            let text = |key: &str| told[key].as_str().unwrap_or("-").to_owned();
            return format!("{} {} {}", text("code"), text("field"), text("message"));
        }
        told.to_string()
    }
}

fn compile_contract(table: &Table, text: &str) -> Contract {
    let (manifest, _) =
        manifest::parse("spile.toml", text, &|_| None).unwrap_or_else(|found| panic!("{found:?}"));
    let facts = table.introspect().expect("facts");
    let statements: Vec<_> = manifest
        .tools
        .iter()
        .filter_map(|tool| match &tool.body {
            manifest::ToolBody::Statement(one) => {
                Some((tool.name.value.as_str(), table.describe_statement(&one.sql.value)))
            }
            manifest::ToolBody::Uses(_) => None,
        })
        .collect();
    let known = [KnownSource { name: "s", facts: &facts, statements: &statements }];
    let (contract, found) = compile(&manifest, &known, "people");
    contract.unwrap_or_else(|| panic!("{found:?}"))
}

pub fn accept() -> Value {
    json!({"action": "accept", "content": {"confirm": true}})
}
