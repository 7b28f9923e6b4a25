//! A client of one era or the other, on the real path.

use std::future::poll_fn;
use std::sync::Arc;

use call::{Caps, Limits, Principal};
use contract::compile::{Known, compile};
use contract::source::Source;
use contract::{Check, Contract, manifest};
use host::{Answers, Begun, Compiled, Config, Flow, Line, Live, Out, Server, Who};
use json::Json;
use serde_json::{Value, json};
use testkit::FakeWorld;
use wire::{Bare, Opened, Peer, Version};

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
    live: Arc<Live>,
    contract: Contract,
    era: Era,
    caps: Caps,
    who: Who,
    /// The last request of the last call.
    last: Value,
    /// The last failure, as a client gets it.
    pub problem: Value,
    /// What the user was asked, in order.
    pub asked: Vec<String>,
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
        let contract = compiled(&table, &text);
        let answers = Answers {
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
        let world = Arc::new(FakeWorld::new(1));
        let provider = Compiled::new(contract.clone(), answers, &*world);
        let config = Config { name: "t".into(), version: "1".into(), limits: Limits::default(), world };
        let server = Server::new(config, vec![Arc::new(provider)]).expect("a good catalog");
        let live = server.pipe();
        let (asked, progress) = (Vec::new(), Vec::new());
        let who = Who::default();
        Self {
            table,
            server,
            live,
            contract,
            era,
            caps: Caps::ELICIT_FORM,
            who,
            asked,
            last: Value::Null,
            problem: Value::Null,
            progress,
        }
    }

    #[must_use]
    pub fn without_forms(mut self) -> Self {
        self.caps = Caps::NONE;
        self
    }

    pub fn become_user(&mut self, name: &str) {
        self.who.principal = Principal::Named(name.into());
    }

    /// Calls a tool; nobody is expected to be asked.
    pub async fn call(&mut self, tool: &str, arguments: &str) -> String {
        let asked = self.asked.len();
        let told = self.call_as(tool, arguments, &mut |_| panic!("nobody should be asked")).await;
        assert_eq!(self.asked.len(), asked);
        told
    }

    /// Calls a tool, with a user who answers what they are asked. What it told: the typed part, which fits what the
    /// tool promised; or a code, a field and a message.
    pub async fn call_as(
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
                responses[key] = self.put(&request["params"], user);
            }
            params["inputResponses"] = responses;
            params["requestState"] = result["requestState"].clone();
        };
        self.last = params;
        self.told(tool, &result)
    }

    /// Sends the last request of the last call once more, as a client does whose connection broke.
    pub async fn again(&mut self) -> String {
        let params = self.last.clone();
        let answer = self.send(&params, &mut |_| panic!("nobody should be asked")).await;
        self.told(params["name"].as_str().expect("a name"), &answer["result"])
    }

    fn put(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        let message = params["message"].as_str().expect("a message").to_owned();
        let answer = user(&message);
        self.asked.push(message);
        answer
    }

    async fn send(&mut self, params: &Value, user: &mut dyn FnMut(&str) -> Value) -> Value {
        let mut params = params.clone();
        params["_meta"] = json!({"progressToken": 1});
        let peer = match self.era {
            Era::Handshake => Some(Peer::greeted(Version::V2025_11_25, self.caps)),
            Era::Newest => {
                let can = if self.caps == Caps::NONE { json!({}) } else { json!({"elicitation": {}}) };
                params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
                None
            }
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let Opened::Request(request) = self.server.open(message.to_string().into_bytes(), Bare::Pipe(peer))
        else {
            panic!("a request");
        };
        let Begun::Call(serving) = self.server.begin(request, &self.who, Line::Pipe(self.live.clone()))
        else {
            panic!("a call");
        };
        let mut flow = Flow::One(serving);
        loop {
            match poll_fn(|cx| flow.poll_next(cx)).await {
                Out::Final { body, .. } => return serde_json::from_slice(&body).expect("JSON"),
                Out::Pause { .. } => {}
                Out::Message(message) => {
                    let message: Value = serde_json::from_slice(&message).expect("JSON");
                    if let Some(said) = message["params"]["message"].as_str() {
                        self.progress.push(format!("{} {said}", message["params"]["progress"]));
                    }
                }
                Out::Question(question) => {
                    let question: Value = serde_json::from_slice(&question).expect("JSON");
                    let answer = self.put(&question["params"], user);
                    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
                    match self.server.open(answer.to_string().into_bytes(), Bare::Pipe(peer)) {
                        Opened::Answer { id, answer } => self.live.answered(id, answer),
                        _ => panic!("an answer"),
                    }
                }
            }
        }
    }

    fn told(&mut self, tool: &str, result: &Value) -> String {
        let told = &result["structuredContent"];
        let tool = self.contract.tools.iter().find(|one| one.name == tool).expect("the tool");
        let schema = Check::compile(&tool.output).expect("a schema");
        assert!(schema.admits(&Json::parse(&told.to_string()).expect("JSON")), "{told}");
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        if result["isError"] == true {
            self.problem.clone_from(told);
            let text = |key: &str| told[key].as_str().unwrap_or("-").to_owned();
            return format!("{} {} {}", text("code"), text("field"), text("message"));
        }
        told.to_string()
    }
}

fn compiled(table: &Table, text: &str) -> Contract {
    let (manifest, _) =
        manifest::parse("spile.toml", text, &|_| None).unwrap_or_else(|found| panic!("{found:?}"));
    let facts = table.facts().expect("facts");
    let statements: Vec<_> = manifest
        .tools
        .iter()
        .filter_map(|tool| match &tool.body {
            manifest::Body::Statement(one) => Some((tool.name.value.as_str(), table.examine(&one.sql.value))),
            manifest::Body::Uses(_) => None,
        })
        .collect();
    let known = [Known { name: "s", facts: &facts, statements: &statements }];
    let (contract, found) = compile(&manifest, &known, "people");
    contract.unwrap_or_else(|| panic!("{found:?}"))
}

pub fn yes() -> Value {
    json!({"action": "accept", "content": {"confirm": true}})
}
