//! The client of the official Rust SDK, linked in. It checks what the scripts in `clients/` check.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, Implementation, ProgressNotificationParam,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient, ServiceError};
use serde_json::{Map, Value, json};

use super::Target;

const STRUCTURED_SINCE: &str = "2025-06-18";
const ELICITATION_SINCE: &str = "2025-06-18";
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(fixture: &str, protocol: &str, target: &Target) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    runtime.block_on(async {
        match tokio::time::timeout(TIMEOUT, converse(fixture, protocol, target)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("not done within {TIMEOUT:?}")),
        }
    })
}

/// Answers requests and records notifications.
#[derive(Clone)]
struct User {
    offered: ProtocolVersion,
    asked: Arc<Mutex<Vec<String>>>,
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::new());
        ClientConfig::new(capabilities, Implementation::new("rust", "1.0.0"))
            .with_protocol_version(self.offered.clone())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            return Err(ErrorData::invalid_params("expected a form", None));
        };
        let fields: Vec<&String> = requested_schema.properties.keys().collect();
        if fields != ["email", "username"] {
            return Err(ErrorData::invalid_params(format!("unexpected fields {fields:?}"), None));
        }
        self.asked.lock().expect("no panic while locked").push(message);
        let content = json!({ "username": "ada", "email": "ada@example.com" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().expect("no panic while locked").push(params.progress);
    }
}

type Connected = RunningService<RoleClient, User>;

async fn converse(fixture: &str, protocol: &str, target: &Target) -> Result<(), String> {
    let client = connect(protocol, target).await?;
    let version = client.peer_info().ok_or("connected, but without a version")?.protocol_version.to_string();
    let expected = if protocol == "auto" { ProtocolVersion::LATEST.to_string() } else { protocol.to_owned() };
    same("negotiated version", &version, &expected)?;

    let tools = client.list_all_tools().await.map_err(|error| format!("tools/list: {error}"))?;
    if fixture == "bench" {
        same("number of tools", &tools.len(), &10)?;
        check_lookup(&client, &version).await?;
    } else if fixture == "customers" {
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        same(
            "tools",
            &names,
            &vec!["lookup_customer", "list_customers", "search_customers", "aggregate_customers"],
        )?;
        check_customers(&client, &version).await?;
    } else {
        let result = call(&client, "test_simple_text", json!({})).await?;
        same("text", &text(&result)?, &"This is a simple text response for testing.".to_owned())?;
        check_progress(&client).await?;
        if version.as_str() >= ELICITATION_SINCE {
            check_elicitation(&client).await?;
        }
    }
    check_unknown_tool(&client).await?;
    client.cancel().await.map_err(|error| format!("closing: {error}"))?;
    Ok(())
}

async fn connect(protocol: &str, target: &Target) -> Result<Connected, String> {
    let version = ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| known.as_str() == protocol);
    let preferred_versions = vec![ProtocolVersion::LATEST];
    let (offered, mode) = match version {
        Some(version) if version.has_initialize() => (version.clone(), ClientLifecycleMode::Initialize),
        Some(version) => (version.clone(), ClientLifecycleMode::Discover { preferred_versions }),
        None => {
            (ProtocolVersion::LATEST, ClientLifecycleMode::Auto { preferred_versions, legacy_version: None })
        }
    };
    let user = User { offered, asked: Arc::default(), progress: Arc::default() };
    let connected = match target {
        Target::Command(words) => {
            let mut command = tokio::process::Command::new(&words[0]);
            command.args(&words[1..]);
            let child = TokioChildProcess::new(command).map_err(|error| format!("starting: {error}"))?;
            user.serve_with_lifecycle(child, mode).await
        }
        Target::Sse(_) => return Err("this SDK has no client for HTTP+SSE".into()),
        Target::Url(url) => {
            // The build beside it has TLS and leaves the choice of provider open. Only plain HTTP is used here.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            user.serve_with_lifecycle(transport, mode).await
        }
    };
    connected.map_err(|error| format!("connecting: {error}"))
}

async fn check_lookup(client: &Connected, version: &str) -> Result<(), String> {
    let result = call(client, "lookup_customer", json!({ "email": "user42@example.com" })).await?;
    let record: Map<String, Value> =
        serde_json::from_str(&text(&result)?).map_err(|error| error.to_string())?;
    let mut fields: Vec<&str> = record.keys().map(String::as_str).collect();
    fields.sort_unstable();
    same("fields", &fields, &vec!["email", "plan", "signup_date"])?;
    same("email", &record["email"], &json!("user42@example.com"))?;
    if version >= STRUCTURED_SINCE {
        same("structured content", &result.structured_content, &Some(Value::Object(record)))?;
    }
    Ok(())
}

/// `examples/customers`: a record, an error, and every row once.
async fn check_customers(client: &Connected, version: &str) -> Result<(), String> {
    let structured = version >= STRUCTURED_SINCE;
    let ask = async |tool: &'static str, arguments: Value| {
        let result = call(client, tool, arguments).await?;
        let typed = match &result.structured_content {
            Some(typed) if structured => typed.clone(),
            _ => serde_json::from_str(&text(&result)?).map_err(|error| error.to_string())?,
        };
        Ok::<(CallToolResult, Value), String>((result, typed))
    };
    let (found, record) = ask("lookup_customer", json!({ "email": "dana@acme.test" })).await?;
    same("is an error", &found.is_error.unwrap_or_default(), &false)?;
    let dana = json!({ "email": "dana@acme.test", "plan": "emerald", "signup_date": "2026-02-11" });
    same("record", &record, &dana)?;
    if structured {
        same("text", &*text(&found)?, "Found customer dana@acme.test on the emerald plan.")?;
    }

    let (missing, wrong) = ask("lookup_customer", json!({})).await?;
    same("is an error", &missing.is_error, &Some(true))?;
    same("code", &wrong["code"], &json!("invalid_arguments"))?;
    same("field", &wrong["field"], &json!("email"))?;
    same("reason", &wrong["reason"], &json!("missing_required"))?;
    let (nobody, wrong) = ask("lookup_customer", json!({ "email": "nobody@acme.test" })).await?;
    same("is an error", &nobody.is_error, &Some(true))?;
    same("code", &wrong["code"], &json!("not_found"))?;

    let (mut seen, mut sizes) = (Vec::new(), Vec::new());
    let mut arguments = json!({ "limit": 5 });
    loop {
        let (_, page) = ask("list_customers", arguments.clone()).await?;
        same("total", &page["total"], &json!(12))?;
        same("truncated", &page["truncated"], &page["nextCursor"].is_string().into())?;
        let items = page["items"].as_array().ok_or_else(|| format!("no items: {page}"))?;
        seen.extend(items.iter().map(|item| item["email"].to_string()));
        sizes.push(items.len());
        if page["nextCursor"].is_null() {
            break;
        }
        arguments["cursor"] = page["nextCursor"].clone();
    }
    same("sizes of pages", &sizes, &vec![5, 5, 2])?;
    seen.sort();
    seen.dedup();
    same("different rows", &seen.len(), &12)?;
    let (garbled, wrong) = ask("list_customers", json!({ "limit": 5, "cursor": "garbled" })).await?;
    same("is an error", &garbled.is_error, &Some(true))?;
    same("field", &wrong["field"], &json!("cursor"))
}

async fn check_progress(client: &Connected) -> Result<(), String> {
    let seen = client.service().progress.clone();
    seen.lock().expect("no panic while locked").clear();
    call(client, "test_tool_with_progress", json!({})).await?;
    // Notifications are handled on separate tasks; the last may still be on its way.
    for _ in 0..100 {
        if seen.lock().expect("no panic while locked").len() >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = seen.lock().expect("no panic while locked").clone();
    same("progress", &seen, &vec![0.0, 50.0, 100.0])
}

async fn check_elicitation(client: &Connected) -> Result<(), String> {
    let result = call(client, "test_elicitation", json!({ "message": "Who are you?" })).await?;
    let asked = client.service().asked.lock().expect("no panic while locked").clone();
    same("questions", &asked, &vec!["Who are you?".to_owned()])?;
    let text = text(&result)?;
    if result.is_error == Some(true) || !text.starts_with("User response") || !text.contains("ada") {
        return Err(format!("the answer did not arrive: {text}"));
    }
    Ok(())
}

async fn check_unknown_tool(client: &Connected) -> Result<(), String> {
    match client.call_tool(CallToolRequestParams::new("no_such_tool")).await {
        Err(ServiceError::McpError(error)) if error.message.contains("no_such_tool") => Ok(()),
        Ok(result) if result.is_error == Some(true) => Ok(()),
        other => Err(format!("an unknown tool was answered with {other:?}")),
    }
}

async fn call(client: &Connected, tool: &'static str, arguments: Value) -> Result<CallToolResult, String> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    client.call_tool(params).await.map_err(|error| format!("{tool}: {error}"))
}

fn text(result: &CallToolResult) -> Result<String, String> {
    match &result.content[..] {
        // Without structured content the data follows the text.
        [only] | [_, only] => {
            only.as_text().map(|text| text.text.clone()).ok_or_else(|| format!("no text: {only:?}"))
        }
        other => Err(format!("expected one or two content blocks: {other:?}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
