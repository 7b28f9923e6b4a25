//! The fixture of `tests/it/servers.rs`, written with the official Rust SDK.
//!
//! ```text
//! rmcp-server stdio|http|plain
//! ```
//!
//! Over HTTP the address is printed on stderr once the server listens. This is an example and not a binary, so that the
//! SDK is not linked into other tests.

// Sampling, roots, logging and single subscriptions are deprecated in the protocol; clients still meet them.
#![allow(deprecated)]

use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams,
    GetPromptRequestParams, GetPromptResponse, Implementation, InputRequest, InputRequests,
    InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListRootsRequest, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ResourceUpdatedNotificationParam, SamplingMessage, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};

const PAGE: usize = 4;

const TOOLS: [&str; 11] =
    ["add", "fail", "progress", "log", "ask", "sample", "roots", "change", "wait", "was_cancelled", "die"];

static CANCELLED: Notify = Notify::const_new();
static SUBSCRIBED: Mutex<bool> = Mutex::new(false);
/// Notifies modern subscribers.
static CHANGES: LazyLock<broadcast::Sender<()>> = LazyLock::new(|| broadcast::channel(8).0);
static LISTENING: Mutex<Option<broadcast::Receiver<()>>> = Mutex::new(None);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("stdio") => {
            ExampleServer.serve(rmcp::transport::stdio()).await?.waiting().await?;
            Ok(())
        }
        Some("http") => http(StreamableHttpServerConfig::default()).await,
        Some("plain") => {
            let config = StreamableHttpServerConfig::default();
            http(config.with_legacy_session_mode(false).with_json_response(true)).await
        }
        other => anyhow::bail!("`stdio`, `http` or `plain`, not {other:?}"),
    }
}

async fn http(config: StreamableHttpServerConfig) -> anyhow::Result<()> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service = Arc::new(StreamableHttpService::new(|| Ok(ExampleServer), sessions, config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            let answer = hyper::service::service_fn(move |request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.handle(request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

struct ExampleServer;

type Context = RequestContext<RoleServer>;

/// The SDK's types cannot be written as literals.
fn from_json<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("written here")
}

fn text(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

fn internal(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

async fn report(context: &Context, progress: u32, total: Option<f64>) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else { return Ok(()) };
    let mut params = ProgressNotificationParam::new(token, progress.into());
    params.total = total;
    params.message = Some(format!("step {progress}"));
    context.peer.notify_progress(params).await.map_err(internal)
}

fn is_newest(context: &Context) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// The response to an input request: in the modern era in a new round, before that as a request.
async fn answer(
    request: &CallToolRequestParams,
    context: &Context,
    question: InputRequest,
) -> Result<Result<Value, CallToolResponse>, ErrorData> {
    if is_newest(context) {
        let found = request.input_responses.as_ref().and_then(|answers| answers.get("answer"));
        return Ok(found.cloned().ok_or_else(|| {
            let asked = InputRequests::from([("answer".to_owned(), question)]);
            InputRequiredResult::new(Some(asked), Some("a state, \"quoted\"".to_owned())).into()
        }));
    }
    let peer = &context.peer;
    let value = match question {
        InputRequest::Elicitation(ask) => {
            serde_json::to_value(peer.create_elicitation(ask.params).await.map_err(internal)?)
        }
        InputRequest::CreateMessage(ask) => {
            serde_json::to_value(peer.create_message(ask.params).await.map_err(internal)?)
        }
        _ => serde_json::to_value(peer.list_roots().await.map_err(internal)?),
    };
    Ok(Ok(value.map_err(|error| ErrorData::internal_error(error.to_string(), None))?))
}

impl ServerHandler for ExampleServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities = from_json(json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "logging": {},
            "completions": {},
        }));
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("official", "1.2.3"))
            .with_instructions("for tests")
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let start = match cursor {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| ErrorData::invalid_params("no such cursor", None))?,
        };
        let tools: Vec<Value> = TOOLS[start..]
            .iter()
            .take(PAGE)
            .map(|name| match *name {
                "add" => json!({
                    "name": name,
                    "inputSchema": {
                        "type": "object",
                        "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
                        "required": ["a", "b"],
                    },
                    "outputSchema": {
                        "type": "object",
                        "properties": { "sum": { "type": "integer" } },
                        "required": ["sum"],
                    },
                }),
                name => json!({ "name": name, "inputSchema": { "type": "object" } }),
            })
            .collect();
        let mut page: ListToolsResult = from_json(json!({ "tools": tools }));
        page.next_cursor = (start + PAGE < TOOLS.len()).then(|| (start + PAGE).to_string());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "add" => {
                let number =
                    |key: &str| request.arguments.as_ref().and_then(|arguments| arguments.get(key)?.as_i64());
                let (Some(a), Some(b)) = (number("a"), number("b")) else {
                    return Err(ErrorData::invalid_params("`a` and `b` are integers", None));
                };
                Ok(CallToolResult::structured(json!({ "sum": a + b })).into())
            }
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("on purpose")]).into()),
            "progress" => {
                for step in 1..=3 {
                    report(&context, step, Some(3.0)).await?;
                }
                text("done")
            }
            "log" => {
                let data = json!({ "careful": true });
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Warning, data);
                let message = message.with_logger("desk");
                context.peer.notify_logging_message(message).await.map_err(internal)?;
                text("done")
            }
            "ask" => {
                let params: ElicitRequestParams = from_json(json!({
                    "mode": "form",
                    "message": "who are you?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": { "name": { "type": "string" } },
                        "required": ["name"],
                    },
                }));
                let question = InputRequest::Elicitation(ElicitRequest::new(params));
                match answer(&request, &context, question).await? {
                    Ok(answer) => {
                        text(format!("hello {}", answer["content"]["name"].as_str().unwrap_or_default()))
                    }
                    Err(not_yet) => Ok(not_yet),
                }
            }
            "sample" => {
                let messages = vec![SamplingMessage::user_text("the capital?")];
                let question = CreateMessageRequest::new(CreateMessageRequestParams::new(messages, 10));
                match answer(&request, &context, InputRequest::CreateMessage(question)).await? {
                    Ok(answer) => text(answer["content"]["text"].as_str().unwrap_or_default()),
                    Err(not_yet) => Ok(not_yet),
                }
            }
            "roots" => {
                let question = InputRequest::ListRoots(ListRootsRequest::default());
                match answer(&request, &context, question).await? {
                    Ok(answer) => text(answer["roots"][0]["uri"].as_str().unwrap_or_default()),
                    Err(not_yet) => Ok(not_yet),
                }
            }
            "change" => {
                if is_newest(&context) {
                    let _ = CHANGES.send(());
                    return text("done");
                }
                let peer = &context.peer;
                peer.notify_tool_list_changed().await.map_err(internal)?;
                peer.notify_prompt_list_changed().await.map_err(internal)?;
                peer.notify_resource_list_changed().await.map_err(internal)?;
                if std::mem::take(&mut *SUBSCRIBED.lock().unwrap_or_else(PoisonError::into_inner)) {
                    let updated = ResourceUpdatedNotificationParam::new("test://one");
                    peer.notify_resource_updated(updated).await.map_err(internal)?;
                }
                text("done")
            }
            "wait" => {
                report(&context, 1, None).await?;
                context.ct.cancelled().await;
                CANCELLED.notify_one();
                text("never read")
            }
            "was_cancelled" => {
                CANCELLED.notified().await;
                text("yes")
            }
            "die" => std::process::exit(7),
            other => Err(ErrorData::invalid_params(format!("unknown tool: {other}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(from_json(json!({ "resources": [
            { "name": "one", "uri": "test://one", "mimeType": "text/plain" },
            { "name": "blob", "uri": "test://blob", "mimeType": "application/octet-stream" },
        ] })))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(from_json(json!({ "resourceTemplates": [
            { "name": "item", "uriTemplate": "test://item/{id}", "mimeType": "text/plain" },
        ] })))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let contents = match uri.strip_prefix("test://") {
            Some("one") => json!({ "uri": uri, "mimeType": "text/plain", "text": "one" }),
            Some("blob") => json!({ "uri": uri, "mimeType": "application/octet-stream", "blob": "AAEC" }),
            Some(path) if path.starts_with("item/") => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": path.replace('/', " ") })
            }
            _ => return Err(ErrorData::resource_not_found("no such resource", None)),
        };
        let result: rmcp::model::ReadResourceResult = from_json(json!({ "contents": [contents] }));
        Ok(result.into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        *SUBSCRIBED.lock().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        *SUBSCRIBED.lock().unwrap_or_else(PoisonError::into_inner) = false;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // From here on no change may be missed: the acknowledgement goes out before `listen` is called.
        *LISTENING.lock().unwrap_or_else(PoisonError::into_inner) = Some(CHANGES.subscribe());
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let heard = LISTENING.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut changes = heard.unwrap_or_else(|| CHANGES.subscribe());
        let sink = context.sink();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    if change.is_err() {
                        return Ok(());
                    }
                }
            }
            let _ = sink.notify_tool_list_changed().await;
            let _ = sink.notify_prompt_list_changed().await;
            let _ = sink.notify_resource_list_changed().await;
            let _ = sink.notify_resource_updated("test://one").await;
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(from_json(
            json!({ "prompts": [{ "name": "greet", "arguments": [{ "name": "who", "required": true }] }] }),
        ))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let who = arguments.get("who").and_then(Value::as_str).unwrap_or_default();
        let result: rmcp::model::GetPromptResult = from_json(json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": format!("hello {who}") } },
        ] }));
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let mut names = vec!["ada", "alan", "grace"];
        names.retain(|name| name.starts_with(&request.argument.value));
        Ok(from_json(json!({ "completion": { "values": names } })))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }
}
