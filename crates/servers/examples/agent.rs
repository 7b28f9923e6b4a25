//! A minimal agent: sends the conversation and the tools to a model, calls the tools that it asks for, and repeats until it
//! answers with text.
//!
//! ```sh
//! cargo run -p servers --example agent -- servers.json http://127.0.0.1:8080/chat 'Who is dana@acme.test?'
//! ```
//!
//! The model endpoint gets `{"messages":[…],"tools":[…]}` and answers with `{"tool":NAME,"arguments":{…}}` or `{"text":…}`. The
//! formats of real providers differ only in names.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::error::Error;
use std::sync::Arc;

use servers::config::files::ConfigDirs;
use servers::decisions::Decisions;
use servers::manager::{Manager, ManagerHost, ManagerOptions};
use servers::{Json, OutboundOptions, Url, outbound};

/// A model that never stops asking is stopped.
const TURNS_MAX: usize = 10;

struct Host;

impl ManagerHost for Host {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program starts itself again as the supervisor of each server's process.
    servers::run_supervisor_if_requested();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, model, question] = args.as_slice() else {
        return Err("usage: agent FILE MODEL_URL QUESTION".into());
    };
    let dirs = ConfigDirs { current_dir: std::env::current_dir()?, ..ConfigDirs::default() };
    let decisions = Decisions::default();
    let servers = dirs.load(&[file.into()])?.servers.into_iter().map(|server| {
        let permission = decisions.permission(&server);
        (server, permission)
    });
    let manager = Manager::start(servers, ManagerOptions::default(), Arc::new(Host));
    manager.settled().await;
    let answer = converse(&manager, &Url::parse(model)?, question).await;
    manager.close().await;
    println!("{}", answer?);
    Ok(())
}

async fn converse(manager: &Manager, model: &Url, question: &str) -> Result<String, Box<dyn Error>> {
    let mut messages = vec![message("user", &Json::string(question))];
    for _ in 0..TURNS_MAX {
        // The registry is read each time: servers may have come back, or changed their tools.
        let registry = manager.registry();
        let write = |out: &mut Vec<u8>, json: &Json| out.extend_from_slice(json.as_str().as_bytes());
        let request = Json::object(|out| {
            out.array("messages", &messages, write);
            out.array("tools", registry.tools().map(|tool| &tool.definition), write);
        });
        let reply = ask(model, &request).await?.to_doc();
        if let Some(text) = reply.root().get("text").and_then(|text| text.str()) {
            return Ok(text.into_owned());
        }
        let tool = reply
            .root()
            .get("tool")
            .and_then(|tool| tool.str())
            .ok_or("the model sent neither text nor tool")?;
        let arguments = reply.root().get("arguments").map_or_else(|| Json::object(|_| {}), Json::from);
        messages.push(message("assistant", &Json::from(reply.root())));
        // A failure is a result as well: the model reads it and tries something else.
        let result = match manager.call_tool(&tool, &arguments, None).await {
            Ok(result) => result,
            Err(error) => Json::object(|out| {
                out.str("error", &error.to_string());
            }),
        };
        messages.push(message("tool", &result));
    }
    Err(format!("no answer after {TURNS_MAX} turns").into())
}

fn message(role: &str, content: &Json) -> Json {
    Json::object(|out| {
        out.str("role", role).raw("content", content.as_str());
    })
}

async fn ask(model: &Url, request: &Json) -> Result<Json, Box<dyn Error>> {
    let client = outbound::client(model, &OutboundOptions::default())?;
    let sent = client.post(model.clone()).header("Content-Type", "application/json");
    let mut response = sent.body(request.to_string()).send().await?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(Json::parse(&String::from_utf8(body)?)?)
}
