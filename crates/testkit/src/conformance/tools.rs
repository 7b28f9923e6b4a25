//! Tools that answer by themselves: content of every kind, progress, log messages, changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use call::{Block, Body, Caps, Change, Emit, Fault, Level, Outcome, Run, ToolReply};
use json::{Json, write};
use tokio::time::sleep;

use super::{PNG, Row, resources};

pub(super) const TABLE: &[Row] = &[
    Row::new("test_simple_text", "Tests simple text content response", |_, _, _| {
        text("This is a simple text response for testing.")
    }),
    Row::new("test_image_content", "Tests image content response", |_, _, _| blocks(vec![image()])),
    Row::new("test_audio_content", "Tests audio content response", |_, _, _| {
        blocks(vec![Block::Audio { data: WAV.into(), mime: "audio/wav".into() }])
    }),
    Row::new("test_embedded_resource", "Tests embedded resource content response", |_, _, _| {
        blocks(vec![embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )])
    }),
    Row::new("test_multiple_content_types", "Tests text, image and resource in one response", |_, _, _| {
        blocks(vec![
            Block::Text("Multiple content types test:".into()),
            image(),
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ])
    }),
    Row::new("test_error_handling", "Tests error response handling", |_, _, _| {
        Run::now(ToolReply::text("This tool intentionally returns an error for testing").failed())
    }),
    Row::new("test_tool_with_logging", "Tests log messages during execution", |_, _, cx| {
        Run::later(logging(cx.emit.clone()))
    }),
    Row::new("test_tool_with_progress", "Tests progress notifications", |_, _, cx| {
        Run::later(progress(cx.emit.clone()))
    }),
    Row::new(
        "test_reconnection",
        "Lets the stream end mid-call; the answer is there on return",
        |_, _, cx| Run::later(reconnection(cx.emit.clone())),
    ),
    Row::new("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", |_, call, _| {
        let arguments = call.arguments().map(Json::from);
        let arguments = arguments.as_ref().map_or("{}", Json::as_str);
        text(format!("JSON Schema 2020-12 tool called with: {arguments}"))
    })
    .takes(JSON_SCHEMA_2020_12),
    Row::new("test_custom_header", "Tests a parameter that is mirrored in a header", |_, call, _| {
        text(format!("Custom header value: `{}`", call.text("value").unwrap_or_default()))
    })
    .takes(
        r#"{"type":"object","properties":{
            "value":{"type":"string","description":"Also sent as Mcp-Param-Value","x-mcp-header":"Value"}
        }}"#,
    ),
    Row::new("test_missing_capability", "Needs a client that can sample", |_, _, cx| {
        let lacking = cx.caller.caps.lacks(Caps::SAMPLING);
        if lacking.is_empty() { text("Success") } else { Run::now(Fault::MissingCapability(lacking)) }
    }),
    Row::new("test_logging_tool", "Logs, if the client wants to hear it", |_, _, cx| {
        info(cx.emit, "Diagnostic trace logging activated");
        text("Logging evaluated")
    }),
    Row::new("test_trigger_tool_change", "Adds a tool, or takes it away again", |provider, _, _| {
        provider.switch_tool();
        text("Mutation triggered")
    }),
    Row::new("test_trigger_prompt_change", "Adds a prompt, or takes it away again", |provider, _, _| {
        provider.switch_prompt();
        text("Mutation triggered")
    }),
    // Not the suite's, which never waits for an updated resource.
    Row::new("test_trigger_resource_change", "Changes the watched resource", |provider, _, _| {
        provider.edition.fetch_add(1, Ordering::SeqCst);
        provider.tell(Change::Resource(resources::WATCHED.into()));
        text("Mutation triggered")
    }),
];

/// Listed only after `test_trigger_tool_change`; it answers in any case.
pub(super) static EXTRA: Row =
    Row::new("test_dynamic_tool", "Comes and goes", |_, _, _| text("The dynamic tool is here."));

async fn logging(emit: Emit) -> Outcome {
    info(&emit, "Tool execution started");
    sleep(STEP).await;
    info(&emit, "Tool processing data");
    sleep(STEP).await;
    info(&emit, "Tool execution completed");
    ToolReply::text("Tool with logging executed successfully").into()
}

async fn progress(emit: Emit) -> Outcome {
    for done in [0.0, 50.0, 100.0] {
        if done > 0.0 {
            sleep(STEP).await;
        }
        emit.progress(done, Some(100.0), Some(&format!("Completed step {done} of 100")));
    }
    ToolReply::text("Tool with progress executed successfully").into()
}

async fn reconnection(emit: Emit) -> Outcome {
    emit.pause(RETRY_MS);
    sleep(STEP * 2).await;
    ToolReply::text("Reconnection test completed successfully: the stream ended and was taken up again")
        .into()
}

/// Between two signs of life.
const STEP: Duration = Duration::from_millis(50);
/// When to come back to a paused stream.
const RETRY_MS: u64 = 500;

fn text(text: impl Into<String>) -> Run {
    Run::now(ToolReply::text(text))
}

fn blocks(blocks: Vec<Block>) -> Run {
    Run::now(ToolReply::blocks(blocks))
}

fn image() -> Block {
    Block::Image { data: PNG.into(), mime: "image/png".into() }
}

fn embedded(uri: &str, mime: &str, text: &str) -> Block {
    Block::Embedded(Body::Text { uri: uri.into(), mime: Some(mime.into()), text: text.into() })
}

fn info(emit: &Emit, message: &str) {
    let mut data = Vec::new();
    write::string(&mut data, message);
    emit.log(Level::Info, None, Json::written(data));
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
