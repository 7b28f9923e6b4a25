//! The prompts, and the completions of their arguments.

use json::Node;
use spile_core::{
    Call, CallContext, CallResult, CompletionRef, CompletionResult, ContentBlock, ElicitResult,
    InputResponse, ItemKind, Prompt, PromptArgument, PromptMessage, PromptResult, ResourceContents, Role,
};

use super::input_requests::{form_request, input_response};
use super::resources::TEMPLATE;
use super::{PNG, RoundResult, unknown};

const SIMPLE: &str = "test_simple_prompt";
const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
const WITH_RESOURCE: &str = "test_prompt_with_embedded_resource";
const WITH_IMAGE: &str = "test_prompt_with_image";
const WITH_QUESTION: &str = "test_input_required_result_prompt";
/// Listed only after `test_trigger_prompt_change`.
pub(super) const EXTRA_PROMPT: &str = "test_dynamic_prompt";

pub(super) fn list() -> Vec<Prompt> {
    let mut two_arguments = prompt(WITH_ARGUMENTS, "A prompt with required arguments");
    two_arguments.arguments =
        vec![argument("arg1", "First test argument"), argument("arg2", "Second test argument")];
    let mut resource = prompt(WITH_RESOURCE, "A prompt that includes an embedded resource");
    resource.arguments = vec![argument("resourceUri", "URI of the resource to embed")];
    vec![
        prompt(SIMPLE, "A simple prompt without arguments"),
        two_arguments,
        resource,
        prompt(WITH_IMAGE, "A prompt that includes image content"),
        prompt(WITH_QUESTION, "A prompt that asks for its context"),
    ]
}

pub(super) fn extra_prompt() -> Prompt {
    prompt(EXTRA_PROMPT, "Comes and goes")
}

pub(super) fn get(call: &Call, cx: &CallContext<'_>) -> RoundResult {
    let blocks = match call.name().as_ref() {
        SIMPLE => vec![text("This is a simple prompt for testing.")],
        WITH_ARGUMENTS => {
            let (arg1, arg2) = (argument_text(call, "arg1"), argument_text(call, "arg2"));
            vec![text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
        }
        WITH_RESOURCE => {
            let uri = argument_text(call, "resourceUri");
            let content = "Embedded resource content for testing.".into();
            vec![
                ContentBlock::EmbeddedResource(ResourceContents::Text {
                    uri,
                    mime_type: Some("text/plain".into()),
                    text: content,
                    meta: None,
                }),
                text("Please process the embedded resource above."),
            ]
        }
        WITH_IMAGE => vec![
            ContentBlock::Image { data: PNG.into(), mime_type: "image/png".into() },
            text("Please analyze the image above."),
        ],
        WITH_QUESTION => {
            let ask = || form_request("What context should the prompt use?", CONTEXT_SCHEMA);
            let context = input_response(cx, "user_context", context_from_response, ask)?;
            vec![text(format!("Prompt with context: {context}"))]
        }
        EXTRA_PROMPT => vec![text("The dynamic prompt is here.")],
        _ => return Err(unknown(ItemKind::Prompt, call)),
    };
    let messages =
        blocks.into_iter().map(|block| PromptMessage { role: Role::User, content: block }).collect();
    Ok(CallResult::Prompt(PromptResult { description: None, messages }).into())
}

/// A user who declines gets the prompt all the same.
fn context_from_response(answer: &InputResponse) -> Option<String> {
    match answer.elicit_result()? {
        ElicitResult::Accepted(_) => answer.text_field("context"),
        ElicitResult::Declined | ElicitResult::Cancelled => Some("none".into()),
    }
}

/// The values that start with the typed prefix.
pub(super) fn complete(call: &Call, of: CompletionRef, argument: Node<'_>, value: Node<'_>) -> RoundResult {
    let argument = argument.str().unwrap_or_default();
    let values: &[&str] = match (of, call.name().as_ref(), argument.as_ref()) {
        (CompletionRef::Prompt, WITH_ARGUMENTS, "arg1") => &["hello", "test", "testing", "testValue1"],
        (CompletionRef::Prompt, WITH_ARGUMENTS, "arg2") => &["testValue2", "world"],
        (CompletionRef::ResourceTemplate, TEMPLATE, "id") => &["123", "124", "456"],
        (CompletionRef::Prompt, SIMPLE | WITH_ARGUMENTS | WITH_RESOURCE | WITH_IMAGE | WITH_QUESTION, _) => {
            &[]
        }
        (CompletionRef::Prompt, _, _) => return Err(unknown(ItemKind::Prompt, call)),
        (CompletionRef::ResourceTemplate, TEMPLATE, _) => &[],
        (CompletionRef::ResourceTemplate, _, _) => return Err(unknown(ItemKind::Resource, call)),
    };
    let typed = value.str().unwrap_or_default();
    let matching = values.iter().filter(|value| value.starts_with(typed.as_ref()));
    Ok(CallResult::Completion(CompletionResult::from_values(matching.map(|value| value.to_string()))).into())
}

/// The host has checked that required arguments are present.
fn argument_text(call: &Call, name: &str) -> String {
    call.text_argument(name).unwrap_or_default().into_owned()
}

fn prompt(name: &str, description: &str) -> Prompt {
    Prompt { name: name.into(), description: Some(description.into()), ..Prompt::default() }
}

fn argument(name: &str, description: &str) -> PromptArgument {
    PromptArgument {
        name: name.into(),
        description: Some(description.into()),
        required: true,
        ..PromptArgument::default()
    }
}

fn text(text: impl Into<String>) -> ContentBlock {
    ContentBlock::Text(text.into())
}

const CONTEXT_SCHEMA: &str =
    r#"{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}"#;
