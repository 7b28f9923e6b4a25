//! Tools that ask before they answer: forms, the client's model, its roots.
//!
//! Each is a function of the journal: it reads the answers it needs, in order, and the first that is missing
//! or makes no sense is asked for (again). Who declines a form is not asked twice.

use std::time::Duration;

use call::{Answer, Ask, Asks, Call, Caps, Cx, Elicited, Outcome, Run, ToolReply};
use json::{Json, Node, write};

use super::{Answered, Conformance, Row, constant, settled};

pub(super) const TABLE: &[Row] = &[
    Row::new("test_sampling", "Asks the client's model", |_, call, cx| settled(sampling(call, cx))).takes(
        r#"{"type":"object","properties":{
            "prompt":{"type":"string","description":"The prompt to send to the LLM"}
        },"required":["prompt"]}"#,
    ),
    Row::new("test_elicitation", "Asks the user for a name and an address", |_, call, cx| {
        let message = call.text("message").unwrap_or_default();
        settled(reported(cx, "User response", || form(&message, CONTACT)))
    })
    .takes(
        r#"{"type":"object","properties":{
            "message":{"type":"string","description":"The message to show the user"}
        },"required":["message"]}"#,
    ),
    Row::new(
        "test_elicitation_sep1034_defaults",
        "Asks with a default for every primitive type",
        |_, _, cx| {
            let ask = || form("Please review and update the form fields with defaults", DEFAULTS);
            settled(reported(cx, "Elicitation completed", ask))
        },
    ),
    Row::new("test_elicitation_sep1330_enums", "Asks with all five kinds of choice", |_, _, cx| {
        let ask = || form("Please select options from the enum fields", ENUMS);
        settled(reported(cx, "Elicitation completed", ask))
    }),
    Row::new("test_input_required_result_elicitation", "Asks for a name", |_, _, cx| {
        settled(user_name(cx).map(|name| done(format!("Hello, {name}!"))))
    }),
    Row::new("test_input_required_result_sampling", "Asks the client's model for a capital", |_, _, cx| {
        let ask = || sample("What is the capital of France?", 100);
        let answer = answered(cx, "capital_question", Answer::sampled, ask);
        settled(answer.map(|text| done(format!("Sampling result: {text}"))))
    }),
    Row::new("test_input_required_result_list_roots", "Asks for the client's roots", |_, _, cx| {
        let roots = answered(cx, "client_roots", Answer::roots, || Ask::Roots);
        settled(roots.map(|roots| done(format!("Found {} root(s): {}", roots.len(), roots.join(", ")))))
    }),
    Row::new("test_input_required_result_request_state", "Asks, and relies on its state", |_, _, cx| {
        settled(confirmed(cx).map(|ok| done(format!("state-ok: requestState validated, confirmed: {ok}"))))
    }),
    Row::new(
        "test_input_required_result_tampered_state",
        "Asks, and its state must be intact",
        |_, _, cx| {
            settled(confirmed(cx).map(|ok| done(format!("integrity-ok: state verified, confirmed: {ok}"))))
        },
    ),
    Row::new("test_input_required_result_multiple_inputs", "Asks three things at once", |_, _, cx| {
        settled(multiple_inputs(cx))
    }),
    Row::new("test_input_required_result_multi_round", "Asks one thing after the other", |_, _, cx| {
        settled(multi_round(cx))
    }),
    Row::new(
        "test_input_required_result_capabilities",
        "Asks only what the client can answer",
        |_, _, cx| settled(capabilities(cx)),
    ),
    Row::new("test_streaming_elicitation", "Says something on its stream, then asks", streaming),
];

fn sampling(call: &Call, cx: &Cx<'_>) -> Answered {
    let prompt = call.text("prompt").unwrap_or_default();
    let text = answered(cx, "completion", Answer::sampled, || sample(&prompt, 100))?;
    Ok(done(format!("LLM response: {text}")))
}

fn multi_round(cx: &Cx<'_>) -> Answered {
    let name = typed(cx, "step1", "name", || form("Step 1: What is your name?", NAME))?;
    let color = typed(cx, "step2", "color", || form("Step 2: What is your favorite color?", COLOR))?;
    Ok(done(format!("Multi-round complete for {name} who likes {color}")))
}

fn multiple_inputs(cx: &Cx<'_>) -> Answered {
    // Read all before asking any, so that what is missing goes out together.
    let name = user_name(cx);
    let greeting = answered(cx, "greeting", Answer::sampled, || sample("Generate a greeting", 50));
    let roots = answered(cx, "client_roots", Answer::roots, || Ask::Roots);
    match (name, greeting, roots) {
        (Ok(name), Ok(greeting), Ok(roots)) => {
            Ok(done(format!("Name: {name}; Greeting: {greeting}; Roots: {}", roots.len())))
        }
        (name, greeting, roots) => Err(together([name.err(), greeting.err(), roots.err()])),
    }
}

fn capabilities(cx: &Cx<'_>) -> Answered {
    let questions = [
        (Caps::ELICIT_FORM, "elicit_input", form("Elicitation input", VALUE)),
        (Caps::SAMPLING, "sample_input", sample("Sample request", 50)),
    ];
    let mut received = Vec::new();
    let mut asks = Asks::default();
    for (needed, key, ask) in questions {
        if cx.journal.answer(key).is_some() {
            received.push(key);
        } else if cx.caller.caps.has(needed) {
            asks = asks.and(key, ask);
        }
    }
    match (asks.is_empty(), received.is_empty()) {
        (false, _) => Err(Outcome::NeedInput(asks)),
        (true, false) => Ok(done(format!("capabilities-ok: received {}", received.join(",")))),
        (true, true) => Ok(done("No supported capabilities declared")),
    }
}

/// Whatever is on the stream before the question, the question is no request of its own there.
fn streaming(_: &Conformance, _: &Call, cx: &Cx<'_>) -> Run {
    let answered = user_name(cx).map(|name| done(format!("Streaming complete, {name}")));
    let emit = cx.emit.clone();
    Run::later(async move {
        emit.progress(50.0, Some(100.0), None);
        tokio::time::sleep(Duration::from_millis(20)).await;
        answered.unwrap_or_else(|instead| instead)
    })
}

/// The name of the user, from the question that half of these tools share.
pub(super) fn user_name(cx: &Cx<'_>) -> Result<String, Outcome> {
    typed(cx, "user_name", "name", || form("What is your name?", NAME))
}

fn confirmed(cx: &Cx<'_>) -> Result<bool, Outcome> {
    chosen(cx, "confirm", "ok", || form("Please confirm", OK))
}

/// What the user typed into a field of the form under `key`.
pub(super) fn typed(
    cx: &Cx<'_>,
    key: &str,
    field: &str,
    ask: impl FnOnce() -> Ask,
) -> Result<String, Outcome> {
    filled(cx, key, field, |value| Some(value.str()?.into_owned()), ask)
}

/// What the user ticked in a field of the form under `key`.
pub(super) fn chosen(
    cx: &Cx<'_>,
    key: &str,
    field: &str,
    ask: impl FnOnce() -> Ask,
) -> Result<bool, Outcome> {
    filled(cx, key, field, |value| value.bool(), ask)
}

fn filled<T>(
    cx: &Cx<'_>,
    key: &str,
    field: &str,
    value: impl FnOnce(Node<'_>) -> Option<T>,
    ask: impl FnOnce() -> Ask,
) -> Result<T, Outcome> {
    let answer = cx.journal.answer(key);
    let value = match answer.as_ref().and_then(Answer::elicited) {
        Some(Elicited::Accepted(content)) => content.and_then(|c| c.get(field)).and_then(value),
        Some(Elicited::Declined) => return Err(done("The user declined to answer.")),
        Some(Elicited::Cancelled) => return Err(done("The user closed the question.")),
        None => None,
    };
    value.ok_or_else(|| need(key, ask()))
}

/// What `read` finds in the answer under `key`.
pub(super) fn answered<T>(
    cx: &Cx<'_>,
    key: &str,
    read: impl FnOnce(&Answer) -> Option<T>,
    ask: impl FnOnce() -> Ask,
) -> Result<T, Outcome> {
    cx.journal.answer(key).as_ref().and_then(read).ok_or_else(|| need(key, ask()))
}

/// Asks, and repeats what the user did: refusing is an answer here.
fn reported(cx: &Cx<'_>, what: &str, ask: impl FnOnce() -> Ask) -> Answered {
    let (action, content) = answered(
        cx,
        "form",
        |answer| match answer.elicited()? {
            Elicited::Accepted(content) => Some(("accept", content.map(Json::from))),
            Elicited::Declined => Some(("decline", None)),
            Elicited::Cancelled => Some(("cancel", None)),
        },
        ask,
    )?;
    let content = content.as_ref().map_or("{}", Json::as_str);
    Ok(done(format!("{what}: action={action}, content={content}")))
}

/// Several reasons to end the round as one: the questions together, unless the user refused one of them.
pub(super) fn together(instead: impl IntoIterator<Item = Option<Outcome>>) -> Outcome {
    let mut all = Asks::default();
    for outcome in instead.into_iter().flatten() {
        match outcome {
            Outcome::NeedInput(asks) => {
                all = asks.iter().fold(all, |all, (key, ask)| all.and(key, ask.clone()));
            }
            other => return other,
        }
    }
    Outcome::NeedInput(all)
}

fn need(key: &str, ask: Ask) -> Outcome {
    Outcome::NeedInput(Asks::one(key, ask))
}

pub(super) fn done(text: impl Into<String>) -> Outcome {
    ToolReply::text(text).into()
}

pub(super) fn form(message: &str, schema: &str) -> Ask {
    Ask::Form { message: message.into(), schema: constant(schema) }
}

fn sample(prompt: &str, tokens_max: i64) -> Ask {
    let message = |out: &mut Vec<u8>, prompt: &str| {
        let mut message = write::Object::new(out);
        message.str("role", "user").object("content", |content| {
            content.str("type", "text").str("text", prompt);
        });
        message.end();
    };
    let params = Json::object(|params| {
        params.array("messages", [prompt], message).int("maxTokens", tokens_max);
    });
    Ask::Sample { params }
}

pub(super) const NAME: &str =
    r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
const COLOR: &str = r#"{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}"#;
const VALUE: &str = r#"{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}"#;
const OK: &str = r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}"#;
const CONTACT: &str = r#"{
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"}
    },
    "required": ["username", "email"]
}"#;

/// SEP-1034: a default for each primitive type.
const DEFAULTS: &str = r#"{
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

/// SEP-1330: one or many, with titles or without, and the old way with `enumNames`.
const ENUMS: &str = r#"{
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
