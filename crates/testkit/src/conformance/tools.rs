//! Tools that need no input: content of every kind, progress, log messages, list changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use json::{Json, write};
use spile_core::{
    CallError, CatalogChange, ClientCapabilities, ContentBlock, EventSink, LogLevel, Outcome,
    ResourceContents, Run, ToolResult,
};
use tokio::time::sleep;

use super::{PNG, ToolSpec, resources};

pub(super) const TOOLS: &[ToolSpec] = &[
    ToolSpec::new("test_simple_text", "Tests simple text content response", |_, _, _| {
        text("This is a simple text response for testing.")
    }),
    ToolSpec::new("test_image_content", "Tests image content response", |_, _, _| blocks(vec![image()])),
    ToolSpec::new("test_audio_content", "Tests audio content response", |_, _, _| {
        blocks(vec![ContentBlock::Audio { data: WAV.into(), mime_type: "audio/wav".into() }])
    }),
    ToolSpec::new("test_embedded_resource", "Tests embedded resource content response", |_, _, _| {
        blocks(vec![embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )])
    }),
    ToolSpec::new(
        "test_multiple_content_types",
        "Tests text, image and resource in one response",
        |_, _, _| {
            blocks(vec![
                ContentBlock::Text("Multiple content types test:".into()),
                image(),
                embedded(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ),
            ])
        },
    ),
    ToolSpec::new("test_error_handling", "Tests error response handling", |_, _, _| {
        Run::now(ToolResult::text("This tool intentionally returns an error for testing").into_error())
    }),
    ToolSpec::new("test_tool_with_logging", "Tests log messages during execution", |_, _, cx| {
        Run::later(logging(cx.events.clone()))
    }),
    ToolSpec::new("test_tool_with_progress", "Tests progress notifications", |_, _, cx| {
        Run::later(progress(cx.events.clone()))
    }),
    ToolSpec::new(
        "test_reconnection",
        "Lets the stream end mid-call; the answer is there on return",
        |_, _, cx| Run::later(reconnection(cx.events.clone())),
    ),
    ToolSpec::new("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", |_, call, _| {
        let arguments = call.arguments().map(Json::from);
        let arguments = arguments.as_ref().map_or("{}", Json::as_str);
        text(format!("JSON Schema 2020-12 tool called with: {arguments}"))
    })
    .input_schema(JSON_SCHEMA_2020_12),
    ToolSpec::new("test_custom_header", "Tests a parameter that is mirrored in a header", |_, call, _| {
        text(format!("Custom header value: `{}`", call.text_argument("value").unwrap_or_default()))
    })
    .input_schema(
        r#"{"type":"object","properties":{
            "value":{"type":"string","description":"Also sent as Mcp-Param-Value","x-mcp-header":"Value"}
        }}"#,
    ),
    ToolSpec::new("test_missing_capability", "Needs a client that can sample", |_, _, cx| {
        let lacking = cx.caller.capabilities.missing(ClientCapabilities::SAMPLING);
        if lacking.is_empty() { text("Success") } else { Run::now(CallError::MissingCapability(lacking)) }
    }),
    ToolSpec::new("test_logging_tool", "Logs, if the client wants to hear it", |_, _, cx| {
        log_info(cx.events, "Diagnostic trace logging activated");
        text("Logging evaluated")
    }),
    ToolSpec::new("test_trigger_tool_change", "Adds a tool, or takes it away again", |provider, _, _| {
        provider.toggle_extra_tool();
        text("Mutation triggered")
    }),
    ToolSpec::new("test_trigger_prompt_change", "Adds a prompt, or takes it away again", |provider, _, _| {
        provider.toggle_extra_prompt();
        text("Mutation triggered")
    }),
    // Not part of the suite, which never waits for an updated resource.
    ToolSpec::new("test_trigger_resource_change", "Changes the watched resource", |provider, _, _| {
        provider.revision.fetch_add(1, Ordering::SeqCst);
        provider.notify(CatalogChange::Resource(resources::WATCHED.into()));
        text("Mutation triggered")
    }),
];

/// Listed only after `test_trigger_tool_change`; it can be called in any case.
pub(super) static EXTRA_TOOL: ToolSpec =
    ToolSpec::new("test_dynamic_tool", "Comes and goes", |_, _, _| text("The dynamic tool is here."));

async fn logging(events: EventSink) -> Outcome {
    log_info(&events, "Tool execution started");
    sleep(STEP).await;
    log_info(&events, "Tool processing data");
    sleep(STEP).await;
    log_info(&events, "Tool execution completed");
    ToolResult::text("Tool with logging executed successfully").into()
}

async fn progress(events: EventSink) -> Outcome {
    for done in [0.0, 50.0, 100.0] {
        if done > 0.0 {
            sleep(STEP).await;
        }
        events.progress(done, Some(100.0), Some(&format!("Completed step {done} of 100")));
    }
    ToolResult::text("Tool with progress executed successfully").into()
}

async fn reconnection(events: EventSink) -> Outcome {
    events.pause_stream(RETRY_MS);
    sleep(STEP * 2).await;
    ToolResult::text("Reconnection test completed successfully: the stream ended and was taken up again")
        .into()
}

/// Time between two notifications.
const STEP: Duration = Duration::from_millis(50);
/// When to resume a paused stream.
const RETRY_MS: u64 = 500;

fn text(text: impl Into<String>) -> Run {
    Run::now(ToolResult::text(text))
}

fn blocks(blocks: Vec<ContentBlock>) -> Run {
    Run::now(ToolResult::blocks(blocks))
}

fn image() -> ContentBlock {
    ContentBlock::Image { data: PNG.into(), mime_type: "image/png".into() }
}

fn embedded(uri: &str, mime: &str, text: &str) -> ContentBlock {
    ContentBlock::EmbeddedResource(ResourceContents::Text {
        uri: uri.into(),
        mime_type: Some(mime.into()),
        text: text.into(),
        meta: None,
    })
}

fn log_info(events: &EventSink, message: &str) {
    let mut data = Vec::new();
    write::string(&mut data, message);
    events.log(LogLevel::Info, None, Json::from_written_bytes(data));
}

/// One sample of silence.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// The suite's own example (SEP-1613, SEP-2106): each of these keywords must survive `tools/list`.
const JSON_SCHEMA_2020_12: &str = r##"{
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"}
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": false
}"##;
