//! Tools that request input before they answer: elicitation, sampling, roots.
//!
//! Each is a function of the journal: it reads the responses it needs, in order, and requests the first that is
//! missing or invalid (again). A declined form is not requested twice.

use std::time::Duration;

use json::{Json, Node, write};
use spile_core::{
    Call, CallContext, ClientCapabilities, ElicitResult, InputRequest, InputRequests, InputResponse, Outcome,
    Run, ToolResult,
};

use super::{ConformanceProvider, RoundResult, ToolSpec, parse_constant, run_now};

pub(super) const TOOLS: &[ToolSpec] = &[
    ToolSpec::new("test_sampling", "Asks the client's model", |_, call, cx| run_now(sampling(call, cx)))
        .input_schema(
            r#"{"type":"object","properties":{
            "prompt":{"type":"string","description":"The prompt to send to the LLM"}
        },"required":["prompt"]}"#,
        ),
    ToolSpec::new("test_elicitation", "Asks the user for a name and an address", |_, call, cx| {
        let message = call.text_argument("message").unwrap_or_default();
        run_now(report_elicitation(cx, "User response", || form_request(&message, CONTACT_SCHEMA)))
    })
    .input_schema(
        r#"{"type":"object","properties":{
            "message":{"type":"string","description":"The message to show the user"}
        },"required":["message"]}"#,
    ),
    ToolSpec::new(
        "test_elicitation_sep1034_defaults",
        "Asks with a default for every primitive type",
        |_, _, cx| {
            let ask =
                || form_request("Please review and update the form fields with defaults", DEFAULTS_SCHEMA);
            run_now(report_elicitation(cx, "Elicitation completed", ask))
        },
    ),
    ToolSpec::new("test_elicitation_sep1330_enums", "Asks with all five kinds of choice", |_, _, cx| {
        let ask = || form_request("Please select options from the enum fields", ENUMS_SCHEMA);
        run_now(report_elicitation(cx, "Elicitation completed", ask))
    }),
    ToolSpec::new("test_input_required_result_elicitation", "Asks for a name", |_, _, cx| {
        run_now(user_name(cx).map(|name| text_outcome(format!("Hello, {name}!"))))
    }),
    ToolSpec::new(
        "test_input_required_result_sampling",
        "Asks the client's model for a capital",
        |_, _, cx| {
            let ask = || sampling_request("What is the capital of France?", 100);
            let answer = input_response(cx, "capital_question", InputResponse::sampled_text, ask);
            run_now(answer.map(|text| text_outcome(format!("Sampling result: {text}"))))
        },
    ),
    ToolSpec::new("test_input_required_result_list_roots", "Asks for the client's roots", |_, _, cx| {
        let roots = input_response(cx, "client_roots", InputResponse::root_uris, || InputRequest::Roots);
        run_now(
            roots.map(|roots| text_outcome(format!("Found {} root(s): {}", roots.len(), roots.join(", ")))),
        )
    }),
    ToolSpec::new("test_input_required_result_request_state", "Asks, and relies on its state", |_, _, cx| {
        run_now(
            confirmation(cx)
                .map(|ok| text_outcome(format!("state-ok: requestState validated, confirmed: {ok}"))),
        )
    }),
    ToolSpec::new(
        "test_input_required_result_tampered_state",
        "Asks, and its state must be intact",
        |_, _, cx| {
            run_now(
                confirmation(cx)
                    .map(|ok| text_outcome(format!("integrity-ok: state verified, confirmed: {ok}"))),
            )
        },
    ),
    ToolSpec::new("test_input_required_result_multiple_inputs", "Asks three things at once", |_, _, cx| {
        run_now(multiple_inputs(cx))
    }),
    ToolSpec::new("test_input_required_result_multi_round", "Asks one thing after the other", |_, _, cx| {
        run_now(multi_round(cx))
    }),
    ToolSpec::new(
        "test_input_required_result_capabilities",
        "Asks only what the client can answer",
        |_, _, cx| run_now(capabilities(cx)),
    ),
    ToolSpec::new(
        "test_streaming_elicitation",
        "Says something on its stream, then asks",
        streaming_elicitation,
    ),
];

fn sampling(call: &Call, cx: &CallContext<'_>) -> RoundResult {
    let prompt = call.text_argument("prompt").unwrap_or_default();
    let text =
        input_response(cx, "completion", InputResponse::sampled_text, || sampling_request(&prompt, 100))?;
    Ok(text_outcome(format!("LLM response: {text}")))
}

fn multi_round(cx: &CallContext<'_>) -> RoundResult {
    let name = text_field(cx, "step1", "name", || form_request("Step 1: What is your name?", NAME_SCHEMA))?;
    let color = text_field(cx, "step2", "color", || {
        form_request("Step 2: What is your favorite color?", COLOR_SCHEMA)
    })?;
    Ok(text_outcome(format!("Multi-round complete for {name} who likes {color}")))
}

fn multiple_inputs(cx: &CallContext<'_>) -> RoundResult {
    // Read all responses before requesting any, so that all missing ones are requested together.
    let name = user_name(cx);
    let greeting = input_response(cx, "greeting", InputResponse::sampled_text, || {
        sampling_request("Generate a greeting", 50)
    });
    let roots = input_response(cx, "client_roots", InputResponse::root_uris, || InputRequest::Roots);
    match (name, greeting, roots) {
        (Ok(name), Ok(greeting), Ok(roots)) => {
            Ok(text_outcome(format!("Name: {name}; Greeting: {greeting}; Roots: {}", roots.len())))
        }
        (name, greeting, roots) => Err(merge_input_requests([name.err(), greeting.err(), roots.err()])),
    }
}

fn capabilities(cx: &CallContext<'_>) -> RoundResult {
    let questions = [
        (
            ClientCapabilities::ELICITATION_FORM,
            "elicit_input",
            form_request("Elicitation input", VALUE_SCHEMA),
        ),
        (ClientCapabilities::SAMPLING, "sample_input", sampling_request("Sample request", 50)),
    ];
    let mut received = Vec::new();
    let mut requests = InputRequests::default();
    for (needed, key, ask) in questions {
        if cx.journal.response(key).is_some() {
            received.push(key);
        } else if cx.caller.capabilities.has(needed) {
            requests = requests.with(key, ask);
        }
    }
    match (requests.is_empty(), received.is_empty()) {
        (false, _) => Err(Outcome::InputRequired(requests)),
        (true, false) => Ok(text_outcome(format!("capabilities-ok: received {}", received.join(",")))),
        (true, true) => Ok(text_outcome("No supported capabilities declared")),
    }
}

/// Log messages come before the input request on the same stream.
fn streaming_elicitation(_: &ConformanceProvider, _: &Call, cx: &CallContext<'_>) -> Run {
    let answered = user_name(cx).map(|name| text_outcome(format!("Streaming complete, {name}")));
    let events = cx.events.clone();
    Run::later(async move {
        events.progress(50.0, Some(100.0), None);
        tokio::time::sleep(Duration::from_millis(20)).await;
        answered.unwrap_or_else(|instead| instead)
    })
}

/// The user's name, from the form that half of these tools share.
pub(super) fn user_name(cx: &CallContext<'_>) -> Result<String, Outcome> {
    text_field(cx, "user_name", "name", || form_request("What is your name?", NAME_SCHEMA))
}

fn confirmation(cx: &CallContext<'_>) -> Result<bool, Outcome> {
    bool_field(cx, "confirm", "ok", || form_request("Please confirm", OK_SCHEMA))
}

/// The text in a field of the form `key`.
pub(super) fn text_field(
    cx: &CallContext<'_>,
    key: &str,
    field: &str,
    ask: impl FnOnce() -> InputRequest,
) -> Result<String, Outcome> {
    form_field(cx, key, field, |value| Some(value.str()?.into_owned()), ask)
}

/// The checkbox in a field of the form `key`.
pub(super) fn bool_field(
    cx: &CallContext<'_>,
    key: &str,
    field: &str,
    ask: impl FnOnce() -> InputRequest,
) -> Result<bool, Outcome> {
    form_field(cx, key, field, |value| value.bool(), ask)
}

fn form_field<T>(
    cx: &CallContext<'_>,
    key: &str,
    field: &str,
    value: impl FnOnce(Node<'_>) -> Option<T>,
    ask: impl FnOnce() -> InputRequest,
) -> Result<T, Outcome> {
    let answer = cx.journal.response(key);
    let value = match answer.as_ref().and_then(InputResponse::elicit_result) {
        Some(ElicitResult::Accepted(content)) => content.and_then(|c| c.get(field)).and_then(value),
        Some(ElicitResult::Declined) => return Err(text_outcome("The user declined to answer.")),
        Some(ElicitResult::Cancelled) => return Err(text_outcome("The user closed the question.")),
        None => None,
    };
    value.ok_or_else(|| require_input(key, ask()))
}

/// What `read` finds in the response to `key`.
pub(super) fn input_response<T>(
    cx: &CallContext<'_>,
    key: &str,
    read: impl FnOnce(&InputResponse) -> Option<T>,
    ask: impl FnOnce() -> InputRequest,
) -> Result<T, Outcome> {
    cx.journal.response(key).as_ref().and_then(read).ok_or_else(|| require_input(key, ask()))
}

/// Requests a form and returns the action of the user; declining is a valid answer here.
fn report_elicitation(cx: &CallContext<'_>, what: &str, ask: impl FnOnce() -> InputRequest) -> RoundResult {
    let (action, content) = input_response(
        cx,
        "form",
        |answer| match answer.elicit_result()? {
            ElicitResult::Accepted(content) => Some(("accept", content.map(Json::from))),
            ElicitResult::Declined => Some(("decline", None)),
            ElicitResult::Cancelled => Some(("cancel", None)),
        },
        ask,
    )?;
    let content = content.as_ref().map_or("{}", Json::as_str);
    Ok(text_outcome(format!("{what}: action={action}, content={content}")))
}

/// Combines the results of several requests: all missing input together, unless the user declined one.
pub(super) fn merge_input_requests(instead: impl IntoIterator<Item = Option<Outcome>>) -> Outcome {
    let mut all = InputRequests::default();
    for outcome in instead.into_iter().flatten() {
        match outcome {
            Outcome::InputRequired(requests) => {
                all = requests.iter().fold(all, |all, (key, ask)| all.with(key, ask.clone()));
            }
            other => return other,
        }
    }
    Outcome::InputRequired(all)
}

fn require_input(key: &str, ask: InputRequest) -> Outcome {
    Outcome::InputRequired(InputRequests::single(key, ask))
}

pub(super) fn text_outcome(text: impl Into<String>) -> Outcome {
    ToolResult::text(text).into()
}

pub(super) fn form_request(message: &str, schema: &str) -> InputRequest {
    InputRequest::Form { message: message.into(), schema: parse_constant(schema) }
}

fn sampling_request(prompt: &str, tokens_max: i64) -> InputRequest {
    let message = |out: &mut Vec<u8>, prompt: &str| {
        let mut message = write::ObjectWriter::new(out);
        message.str("role", "user").object("content", |content| {
            content.str("type", "text").str("text", prompt);
        });
        message.end();
    };
    let params = Json::object(|params| {
        params.array("messages", [prompt], message).int("maxTokens", tokens_max);
    });
    InputRequest::Sampling { params }
}

pub(super) const NAME_SCHEMA: &str =
    r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
const COLOR_SCHEMA: &str =
    r#"{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}"#;
const VALUE_SCHEMA: &str =
    r#"{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}"#;
const OK_SCHEMA: &str = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}"#;
const CONTACT_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"}
    },
    "required": ["username", "email"]
}"#;

/// SEP-1034: a default for each primitive type.
const DEFAULTS_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "description": "User status",
                   "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": true}
    },
    "required": []
}"#;

/// SEP-1330: single and multiple choice, with and without titles, and the older `enumNames`.
const ENUMS_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "description": "Select one option",
            "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "description": "Select one option with titles",
            "oneOf": [{"const": "value1", "title": "First Option"},
                      {"const": "value2", "title": "Second Option"},
                      {"const": "value3", "title": "Third Option"}]},
        "legacyEnum": {"type": "string", "description": "Select one option (legacy)",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "description": "Select multiple options",
            "minItems": 1, "maxItems": 3,
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "description": "Select multiple options with titles",
            "minItems": 1, "maxItems": 3,
            "items": {"anyOf": [{"const": "value1", "title": "First Choice"},
                                {"const": "value2", "title": "Second Choice"},
                                {"const": "value3", "title": "Third Choice"}]}}
    },
    "required": []
}"#;
