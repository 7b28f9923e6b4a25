//! The client that the official conformance suite tests: the product's own client, driven by the suite.
//!
//! The suite starts it with a URL. The environment names the scenario, the protocol version and, for some, what to
//! call. No part of the protocol is implemented here.

mod sign_in;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use json::{Json, Node};
use servers::skills;
use spile_core::ClientCapabilities;
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, Target};
use wire::client::{
    ClientCall, ClientOptions, IncomingInputRequest, InputReply, InputRequestKind, VersionPolicy,
};
use wire::method::Method;
use wire::{ListKind, Version};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let url = std::env::args().next_back().context("usage: conformance-client URL")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let speak = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        // The suite names a version without extensions for these; the client negotiates one that has them.
        Ok(_) if scenario.starts_with("sep-2640-") => VersionPolicy::Any,
        Ok(date) => VersionPolicy::Only(Version::parse(&date).context("an unknown protocol version")?),
        Err(_) => VersionPolicy::Any,
    };
    let capabilities = ClientCapabilities::ELICITATION_FORM
        .with(ClientCapabilities::SAMPLING)
        .with(ClientCapabilities::ROOTS);
    let options = ConnectionOptions {
        client_options: ClientOptions { capabilities, version_policy: speak, ..ClientOptions::default() },
        ..ConnectionOptions::default()
    };
    if scenario.starts_with("auth/") {
        return sign_in::run(&url, &scenario, options).await;
    }
    let server = Connection::open(&Target::parse(&url)?, options, Arc::new(AcceptingHandler)).await?;
    let played = run_scenario(&server, &scenario).await;
    server.close().await;
    played
}

async fn run_scenario(server: &Connection, scenario: &str) -> Result<()> {
    match scenario {
        "sep-2322-client-request-state" => {
            // While one connection has an open input request, the other must not receive its responses.
            let (asked, unrelated) = tokio::join!(
                call(server, "test_mrtr_echo_state", "{}"),
                call(server, "test_mrtr_unrelated", "{}"),
            );
            asked.and(unrelated)?;
            call(server, "test_mrtr_no_state", "{}").await?;
            call(server, "test_mrtr_no_result_type", "{}").await
        }
        "http-custom-headers" => {
            list(server, ListKind::Tools).await?;
            let context = std::env::var("MCP_CONFORMANCE_CONTEXT").context("no context")?;
            let context = Json::parse(&context)?.to_doc();
            let calls = context.root().get("toolCalls").context("no `toolCalls`")?;
            for one in calls.elements() {
                let name = one.get("name").and_then(|name| name.str()).context("a call without a name")?;
                let arguments = one.get("arguments").map_or("{}", |arguments| arguments.raw());
                call(server, &name, arguments).await?;
            }
            Ok(())
        }
        "http-standard-headers" => {
            for tool in list(server, ListKind::Tools).await? {
                call(server, &item_name(&tool), "{}").await?;
            }
            for resource in list(server, ListKind::Resources).await? {
                let doc = resource.to_doc();
                let uri = doc.root().get("uri").and_then(|uri| uri.str()).unwrap_or_default();
                send_request(server, Method::ResourcesRead, "uri", &uri, None).await?;
            }
            for prompt in list(server, ListKind::Prompts).await? {
                send_request(server, Method::PromptsGet, "name", &item_name(&prompt), None).await?;
            }
            Ok(())
        }
        "json-schema-2020-12-preservation" => {
            let tools = list(server, ListKind::Tools).await?;
            let tool = tools.iter().find(|tool| item_name(tool) == "json_schema_2020_12_tool");
            let doc = tool.context("the tool is not listed")?.to_doc();
            let schema = doc.root().get("inputSchema").context("no `inputSchema`")?;
            call(server, "json_schema_echo", &format!(r#"{{"schema":{}}}"#, schema.raw())).await
        }
        "json-schema-ref-no-deref" | "request-metadata" => list(server, ListKind::Tools).await.map(drop),
        "sse-retry"
        | "elicitation-sep1034-client-defaults"
        | "http-invalid-tool-headers"
        | "tools_call"
        | "initialize" => {
            for tool in list(server, ListKind::Tools).await? {
                let doc = tool.to_doc();
                let arguments =
                    doc.root().get("inputSchema").map(sample_arguments).unwrap_or_else(|| "{}".to_owned());
                call(server, &item_name(&tool), &arguments).await?;
            }
            Ok(())
        }
        "sep-2640-client-no-prefetch" => skills::list(server).await.map(drop).map_err(Into::into),
        "sep-2640-client-verify-digest"
        | "sep-2640-client-verify-size"
        | "sep-2640-client-verify-frontmatter" => {
            for skill in skills::list(server).await? {
                skill.load(server).await?;
                for file in &skill.files {
                    skill.read(server, &file.uri).await?;
                }
            }
            Ok(())
        }
        other => bail!("unknown scenario `{other}`"),
    }
}

/// Arguments for a schema with a few plain properties.
fn sample_arguments(schema: Node<'_>) -> String {
    let properties = schema.get("properties");
    Json::object(|out| {
        for (name, property) in properties.into_iter().flat_map(|all| all.members()) {
            let kind = property.get("type").and_then(|kind| kind.str()).unwrap_or_default();
            let value = match &*kind {
                "number" | "integer" => "5",
                "boolean" => "true",
                _ => r#""x""#,
            };
            out.raw(&name.str().unwrap_or_default(), value);
        }
    })
    .to_string()
}

async fn list(server: &Connection, list: ListKind) -> Result<Vec<Json>> {
    server.list(list, None).await.map_err(|why| anyhow::anyhow!("{}: {why}", list.result_key()))
}

async fn call(server: &Connection, tool: &str, arguments: &str) -> Result<()> {
    send_request(server, Method::ToolsCall, "name", tool, Some(arguments)).await
}

async fn send_request(
    server: &Connection,
    method: Method,
    key: &str,
    name: &str,
    arguments: Option<&str>,
) -> Result<()> {
    let params = Json::object(|params| {
        params.str(key, name);
        params.maybe_raw("arguments", arguments);
    });
    let answer = server.call(ClientCall::new(method, params), None).await;
    answer.map(drop).map_err(|why| anyhow::anyhow!("{} `{name}`: {why}", method.as_str()))
}

fn item_name(item: &Json) -> String {
    item.to_doc().root().get("name").and_then(|name| name.str()).unwrap_or_default().into_owned()
}

/// A user who accepts every request, with the defaults of the form.
struct AcceptingHandler;

impl ClientHandler for AcceptingHandler {
    fn on_input_request(
        &self,
        question: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let answer = match question.kind {
            InputRequestKind::Roots => r#"{"roots":[{"uri":"file:///tmp"}]}"#.to_owned(),
            InputRequestKind::Sampling => {
                r#"{"role":"assistant","content":{"type":"text","text":"Paris"},"model":"none","stopReason":"endTurn"}"#.to_owned()
            }
            InputRequestKind::Elicitation => {
                let doc = question.params.to_doc();
                let properties = doc.root().get("requestedSchema").and_then(|schema| schema.get("properties"));
                let content = Json::object(|out| {
                    for (name, property) in properties.into_iter().flat_map(|all| all.members()) {
                        let value = property.get("default").map(|value| value.raw().to_owned());
                        let is_text = property.get("type").is_some_and(|kind| kind.eq_str("string"));
                        let value = value.or_else(|| is_text.then(|| r#""x""#.to_owned()));
                        out.maybe_raw(&name.str().unwrap_or_default(), value.as_deref());
                    }
                });
                format!(r#"{{"action":"accept","content":{content}}}"#)
            }
        };
        let answer = Json::parse(&answer).expect("written above");
        Box::pin(async { InputReply::Result(answer) })
    }

    fn on_event(&self, event: ConnectionEvent) {
        eprintln!("{event:?}");
    }
}
