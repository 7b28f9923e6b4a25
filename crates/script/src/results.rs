//! From what a handler returned or threw to what its caller gets, and back for tools that handlers call.

mod documents;

use contract::CompiledSchema;
use json::{Json, write};
use spile_core::{
    CallError, CallResult, ClientCapabilities, ContentBlock, Outcome, ResourceContents, ToolContent,
    ToolError, ToolErrorCode, ToolResult,
};

use crate::effects::EffectFailure;
use crate::engine::{End, EngineLimits, Limit, Returned, Thrown};
use crate::handler::{Handler, HandlerKind};
use crate::provider::Reporter;

const CAPABILITIES: [(&str, ClientCapabilities); 7] = [
    ("roots", ClientCapabilities::ROOTS),
    ("sampling", ClientCapabilities::SAMPLING),
    ("sampling.tools", ClientCapabilities::SAMPLING_TOOLS),
    ("sampling.context", ClientCapabilities::SAMPLING_CONTEXT),
    ("elicitation.form", ClientCapabilities::ELICITATION_FORM),
    ("elicitation.url", ClientCapabilities::ELICITATION_URL),
    ("tasks", ClientCapabilities::TASKS),
];

/// The capability that scripts know by this name.
pub(crate) fn capability(name: &str) -> Option<ClientCapabilities> {
    CAPABILITIES.iter().find(|(known, _)| *known == name).map(|(_, capability)| *capability)
}

pub(crate) fn capability_names(capabilities: ClientCapabilities) -> Vec<&'static str> {
    CAPABILITIES.iter().filter(|(_, bit)| capabilities.has(*bit)).map(|(name, _)| *name).collect()
}

/// The same set again; unknown names are left out.
pub(crate) fn capabilities_of_names(names: &[String]) -> ClientCapabilities {
    let known = names.iter().filter_map(|name| capability(name));
    known.fold(ClientCapabilities::NONE, ClientCapabilities::with)
}

/// How a call ends for its caller. The author hears of everything that is their fault.
pub(crate) fn outcome(handler: &Handler, limits: &EngineLimits, reporter: &Reporter, end: End) -> Outcome {
    let noun = handler.kind.noun();
    match end {
        End::Returned(returned) => match result_of(handler, returned) {
            Ok(outcome) => outcome,
            Err(reason) => {
                let message = format!("the {noun} returned {reason}");
                let diagnostic = handler.program.locate(message.clone(), "");
                reporter.report(&handler.name, &handler.at_handler(diagnostic));
                ended(handler, ToolError::new(ToolErrorCode::Internal, message))
            }
        },
        End::Threw(thrown) => thrown_outcome(handler, reporter, *thrown),
        End::LimitExceeded(limit) => {
            let error = limit_error(noun, limits, limit);
            let diagnostic = handler.program.locate(error.message.clone(), "");
            reporter.report(&handler.name, &handler.at_handler(diagnostic));
            ended(handler, error)
        }
        End::Diverged(reason) => {
            let message = format!("the {noun} did not do the same when it was run again: {reason}");
            let diagnostic = handler.program.locate(message, "");
            let help = format!(
                "what a {noun} does before it asks may depend only on its arguments and on results of `ctx`"
            );
            reporter.report(&handler.name, &handler.at_handler(diagnostic).with_help(help));
            Outcome::Failed(CallError::InvalidRequestState(
                "the call took another path than before; repeat it",
            ))
        }
        End::Crashed(reason) => {
            let message = format!("the process of the {noun} ended: {reason}");
            reporter.report(&handler.name, &handler.at_handler(handler.program.locate(message, "")));
            let message = format!("the process of the {noun} ended unexpectedly");
            ended(handler, ToolError::new(ToolErrorCode::Internal, message))
        }
        End::Lost => Outcome::Failed(CallError::Busy { retry_after_ms: 1000 }),
    }
}

/// The end of a call by an error of the author's code. Only tools have results that are errors.
fn ended(handler: &Handler, error: ToolError) -> Outcome {
    match handler.kind {
        HandlerKind::Tool => error.into(),
        HandlerKind::Prompt | HandlerKind::Resource => internal_error(error.message),
    }
}

fn internal_error(message: String) -> Outcome {
    /// JSON-RPC 2.0: internal error.
    const INTERNAL_ERROR: i64 = -32603;
    Outcome::Failed(CallError::Provider { code: INTERNAL_ERROR, message, data: None })
}

fn limit_error(noun: &str, limits: &EngineLimits, limit: Limit) -> ToolError {
    match limit {
        Limit::Cpu => {
            let ms = limits.cpu_ms_max;
            let message = format!("the {noun} used more than {ms} ms of processor time and was stopped");
            ToolError::new(ToolErrorCode::Timeout, message)
        }
        Limit::Memory => {
            let bytes = limits.memory_bytes_max;
            let message = format!("the {noun} used more than {bytes} bytes of memory and was stopped");
            ToolError::new(ToolErrorCode::TooLarge, message)
        }
        Limit::MemoryOrNull => {
            let bytes = limits.memory_bytes_max;
            let message = format!(
                "the {noun} used more than {bytes} bytes of memory, or threw `null`, and was stopped"
            );
            ToolError::new(ToolErrorCode::TooLarge, message)
        }
        Limit::Stack => {
            let message = format!("the {noun} calls itself without end and was stopped");
            ToolError::new(ToolErrorCode::Internal, message)
        }
        Limit::NeverSettles => {
            let message = format!("the {noun} waits for something that never happens");
            ToolError::new(ToolErrorCode::Internal, message)
        }
    }
}

/// `Err` says what is wrong with the value, for author and caller.
fn result_of(handler: &Handler, returned: Returned) -> Result<Outcome, String> {
    match handler.kind {
        HandlerKind::Tool => tool_result(handler, returned).map(Outcome::Done),
        HandlerKind::Prompt => documents::prompt_result(returned).map(Outcome::Done),
        HandlerKind::Resource => documents::resource_result(returned),
    }
}

fn tool_result(tool: &Handler, returned: Returned) -> Result<CallResult, String> {
    let output = tool.output.as_ref();
    let (text, json) = match returned {
        Returned::Nothing if output.is_some() => {
            return Err("nothing, but has an output schema".into());
        }
        Returned::Nothing => return Ok(CallResult::Tool(ToolResult::blocks(Vec::new()))),
        Returned::Bytes(_) => return Err("bytes; return a content block with base64 data".into()),
        Returned::Text(text) if output.is_none() => return Ok(CallResult::Tool(ToolResult::text(text))),
        Returned::Text(text) => {
            let json = Json::string(&text);
            (Some(text), json)
        }
        Returned::Json(text) => (None, parse_returned(&text)?),
    };
    match mcp_result(&json)? {
        // With an output schema, but without structured content, it is data like any other value.
        Some(result) if output.is_none() || result.is_error || result.has_structured_content => {
            if let (Some(schema), false) = (output, result.is_error) {
                check_output(schema, json.to_doc().root().get("structuredContent"))?;
            }
            return Ok(CallResult::Relayed(json));
        }
        Some(_) | None => {}
    }
    if let Some(schema) = output {
        check_output(schema, Some(json.to_doc().root()))?;
        return Ok(CallResult::Tool(match text {
            Some(text) => ToolResult { structured: Some(json), ..ToolResult::text(text) },
            None => ToolResult::structured(json),
        }));
    }
    Ok(CallResult::Tool(if json.is_object() {
        ToolResult::structured(json)
    } else {
        ToolResult::text(json.to_string())
    }))
}

fn parse_returned(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|error| format!("JSON that cannot be sent: {error}"))
}

fn check_output(schema: &CompiledSchema, value: Option<json::Node<'_>>) -> Result<(), String> {
    schema
        .validate(value)
        .map_err(|error| format!("a value that does not match its output schema: {}", error.message))
}

struct McpResult {
    has_structured_content: bool,
    is_error: bool,
}

/// A value that is a complete tool result already: `{content: [{type: …}, …]}` with blocks of known types, and no members
/// of other names. Everything else is data. `Err` if a block of a known type lacks something.
fn mcp_result(json: &Json) -> Result<Option<McpResult>, String> {
    const MEMBERS: [&str; 4] = ["content", "structuredContent", "isError", "_meta"];
    if !json.as_str().starts_with("{\"content\":[") && !json.as_str().contains("\"content\":[") {
        return Ok(None);
    }
    let doc = json.to_doc();
    let root = doc.root();
    let Some(content) = root.get("content").filter(|content| content.kind() == json::NodeKind::Array) else {
        return Ok(None);
    };
    let is_known =
        |(key, _): (json::Node<'_>, json::Node<'_>)| MEMBERS.iter().any(|member| key.eq_str(member));
    if !root.members().all(is_known) {
        return Ok(None);
    }
    if content.elements().any(|block| required_members(block).is_none()) {
        return Ok(None);
    }
    for block in content.elements() {
        check_block(block)?;
    }
    let is_error = root.get("isError").is_some_and(|is_error| is_error.kind() == json::NodeKind::True);
    Ok(Some(McpResult { has_structured_content: root.get("structuredContent").is_some(), is_error }))
}

/// What a content block of this type needs. `None` if the type is unknown.
fn required_members(block: json::Node<'_>) -> Option<&'static [&'static str]> {
    match block.get("type").and_then(|kind| kind.str()).as_deref()? {
        "text" => Some(&["text"]),
        "image" | "audio" => Some(&["data", "mimeType"]),
        "resource" => Some(&["resource"]),
        "resource_link" => Some(&["uri", "name"]),
        _ => None,
    }
}

/// Whether a content block has what its type needs.
fn check_block(block: json::Node<'_>) -> Result<(), String> {
    let Some(required) = required_members(block) else {
        return Err(match block.get("type").and_then(|kind| kind.str()) {
            Some(other) => format!("a content block of the unknown type `{other}`"),
            None => "a content block without `type`".into(),
        });
    };
    match required.iter().find(|member| block.get(member).is_none()) {
        Some(member) => Err(format!("a content block without `{member}`")),
        None => Ok(()),
    }
}

fn thrown_outcome(handler: &Handler, reporter: &Reporter, thrown: Thrown) -> Outcome {
    let (name, noun) = (&handler.name, handler.kind.noun());
    if let Some(missing) = &thrown.missing {
        let capability = capability(missing).unwrap_or(ClientCapabilities::NONE);
        return Outcome::Failed(CallError::MissingCapability(capability));
    }
    if let Some(code) = thrown.code.filter(|_| thrown.class == "McpError") {
        let data = thrown.data.as_deref().and_then(|data| Json::parse(data).ok());
        return Outcome::Failed(CallError::Provider { code: code as i64, message: thrown.message, data });
    }
    if let Some(issue) = thrown.issues.first() {
        let field = (!issue.field.is_empty()).then(|| issue.field.clone());
        let message = match &field {
            Some(field) => format!("`{field}`: {}", issue.message),
            None => issue.message.clone(),
        };
        // Where there is no tool, the host makes a JSON-RPC error of it.
        return ToolError { field, ..ToolError::new(ToolErrorCode::InvalidArguments, message) }.into();
    }
    let is_bug = thrown.is_unhandled
        || matches!(
            thrown.class.as_str(),
            "TypeError"
                | "ReferenceError"
                | "SyntaxError"
                | "RangeError"
                | "InternalError"
                | "EvalError"
                | "URIError"
        );
    let message = match thrown.class.as_str() {
        "Error" | "value" | "" => thrown.message.clone(),
        class => format!("{class}: {}", thrown.message),
    };
    reporter.report(name, &handler.at_handler(handler.program.locate(message, &thrown.stack)));
    if is_bug {
        // The text speaks of the author's code, which is not the caller's concern.
        let message = format!("the {noun} failed; the server's log has the details");
        return ended(handler, ToolError::new(ToolErrorCode::Internal, message));
    }
    let text = if thrown.message.is_empty() { format!("the {noun} failed") } else { thrown.message };
    match handler.kind {
        HandlerKind::Tool => {
            // `error.code` may be one of the usual codes. The text is the author's own.
            let known =
                ToolErrorCode::TABLE.iter().find(|(_, name, _)| thrown.kind.as_deref() == Some(*name));
            let code = known.map_or(ToolErrorCode::Internal, |(code, ..)| *code);
            let result = ToolResult::from_tool_error(&ToolError::new(code, text.clone()));
            ToolResult { content: ToolContent::Text(text), ..result }.into()
        }
        HandlerKind::Prompt | HandlerKind::Resource => internal_error(text),
    }
}

/// The result of a tool for the handler that called it.
pub(crate) fn render_call_result(result: &CallResult) -> String {
    match result {
        CallResult::Tool(result) => render_tool_result(result),
        CallResult::Relayed(json) => json.to_string(),
        // Only tools are called.
        CallResult::Prompt(_) | CallResult::Resource(_) | CallResult::Completion(_) => "{}".into(),
    }
}

pub(crate) fn render_tool_error(error: &ToolError) -> String {
    render_tool_result(&ToolResult::from_tool_error(error))
}

fn render_tool_result(result: &ToolResult) -> String {
    let structured = result.structured.as_ref().map(Json::as_str);
    Json::object(|object| {
        match &result.content {
            ToolContent::Structured => object.array("content", structured, write_text),
            ToolContent::Text(text) => object.array("content", [text.as_str()], write_text),
            ToolContent::Blocks(blocks) => object.array("content", blocks, write_block),
        };
        object.maybe_raw("structuredContent", structured).bool("isError", result.is_error);
        object.maybe_raw("_meta", result.meta.as_ref().map(Json::as_str));
    })
    .to_string()
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let mut block = write::ObjectWriter::new(out);
    block.str("type", "text").str("text", text);
    block.end();
}

fn write_block(out: &mut Vec<u8>, block: &ContentBlock) {
    let mut object = write::ObjectWriter::new(out);
    match block {
        ContentBlock::Text(text) => {
            object.str("type", "text").str("text", text);
        }
        ContentBlock::Image { data, mime_type } => {
            object.str("type", "image").str("data", data).str("mimeType", mime_type);
        }
        ContentBlock::Audio { data, mime_type } => {
            object.str("type", "audio").str("data", data).str("mimeType", mime_type);
        }
        ContentBlock::EmbeddedResource(contents) => {
            object.str("type", "resource").object("resource", |resource| match contents {
                ResourceContents::Text { uri, mime_type, text, .. } => {
                    resource.str("uri", uri).maybe_str("mimeType", mime_type.as_deref()).str("text", text);
                }
                ResourceContents::Blob { uri, mime_type, base64, .. } => {
                    resource.str("uri", uri).maybe_str("mimeType", mime_type.as_deref()).str("blob", base64);
                }
            });
        }
        ContentBlock::ResourceLink(resource) => {
            object.str("type", "resource_link").str("uri", &resource.uri).str("name", &resource.name);
            object.maybe_str("description", resource.description.as_deref());
            object.maybe_str("mimeType", resource.mime_type.as_deref());
        }
    }
    object.end();
}

/// The data of a tool's result; an error of the tool is a failure.
pub(crate) fn structured_content(result: &CallResult) -> Result<String, EffectFailure> {
    let rendered = Json::parse(&render_call_result(result)).map(|json| json.to_doc());
    let Ok(rendered) = rendered else { return Err(EffectFailure::new("the operation returned no data")) };
    let root = rendered.root();
    let structured = root.get("structuredContent");
    if !root.get("isError").is_some_and(|is_error| is_error.kind() == json::NodeKind::True) {
        let no_data = || EffectFailure::new("the operation returned no data");
        return structured.map(|json| json.raw().to_owned()).ok_or_else(no_data);
    }
    let member = |key: &str| Some(structured?.get(key)?.str()?.into_owned());
    let text = || Some(root.get("content")?.elements().next()?.get("text")?.str()?.into_owned());
    let message = member("message").or_else(text).unwrap_or_else(|| "the operation failed".into());
    Err(EffectFailure { kind: member("code").map(Into::into), ..EffectFailure::new(message) })
}

pub(crate) fn tool_failure(error: &ToolError) -> EffectFailure {
    EffectFailure { kind: Some(error.code.as_str().into()), ..EffectFailure::new(error.message.clone()) }
}

/// Why a called tool gave no result, for the handler that called it.
pub(crate) fn effect_failure(error: CallError) -> EffectFailure {
    match error {
        CallError::Provider { code, message, data } => EffectFailure {
            code: Some(code),
            data: data.and_then(|data| serde_json::from_str(data.as_str()).ok().map(Box::new)),
            ..EffectFailure::new(message)
        },
        error => EffectFailure::new(error.to_string()),
    }
}
