//! The prompts, and what their arguments complete to.

use call::{
    Answer, Block, Body, Call, Completion, CompletionOf, Cx, Elicited, Message, Prompt, PromptArgument,
    PromptReply, Reply, Role, Thing,
};
use json::Node;

use super::questions::{answered, form};
use super::resources::TEMPLATE;
use super::{Answered, PNG, unknown};

const SIMPLE: &str = "test_simple_prompt";
const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
const WITH_RESOURCE: &str = "test_prompt_with_embedded_resource";
const WITH_IMAGE: &str = "test_prompt_with_image";
const WITH_QUESTION: &str = "test_input_required_result_prompt";
/// Listed only after `test_trigger_prompt_change`.
pub(super) const EXTRA: &str = "test_dynamic_prompt";

pub(super) fn listed() -> Vec<Prompt> {
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

pub(super) fn extra() -> Prompt {
    prompt(EXTRA, "Comes and goes")
}

pub(super) fn get(call: &Call, cx: &Cx<'_>) -> Answered {
    let blocks = match call.name().as_ref() {
        SIMPLE => vec![text("This is a simple prompt for testing.")],
        WITH_ARGUMENTS => {
            let (arg1, arg2) = (argument_of(call, "arg1"), argument_of(call, "arg2"));
            vec![text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
        }
        WITH_RESOURCE => {
            let uri = argument_of(call, "resourceUri");
            let content = "Embedded resource content for testing.".into();
            vec![
                Block::Embedded(Body::Text { uri, mime: Some("text/plain".into()), text: content }),
                text("Please process the embedded resource above."),
            ]
        }
        WITH_IMAGE => vec![
            Block::Image { data: PNG.into(), mime: "image/png".into() },
            text("Please analyze the image above."),
        ],
        WITH_QUESTION => {
            let ask = || form("What context should the prompt use?", CONTEXT);
            let context = answered(cx, "user_context", context_in, ask)?;
            vec![text(format!("Prompt with context: {context}"))]
        }
        EXTRA => vec![text("The dynamic prompt is here.")],
        _ => return Err(unknown(Thing::Prompt, call)),
    };
    let messages = blocks.into_iter().map(|block| Message { role: Role::User, block }).collect();
    Ok(Reply::Prompt(PromptReply { description: None, messages }).into())
}

/// Who refuses to say gets the prompt all the same.
fn context_in(answer: &Answer) -> Option<String> {
    match answer.elicited()? {
        Elicited::Accepted(_) => answer.field("context"),
        Elicited::Declined | Elicited::Cancelled => Some("none".into()),
    }
}

/// Values that start with what was typed so far.
pub(super) fn complete(call: &Call, of: CompletionOf, argument: Node<'_>, value: Node<'_>) -> Answered {
    let argument = argument.str().unwrap_or_default();
    let values: &[&str] = match (of, call.name().as_ref(), argument.as_ref()) {
        (CompletionOf::Prompt, WITH_ARGUMENTS, "arg1") => &["hello", "test", "testing", "testValue1"],
        (CompletionOf::Prompt, WITH_ARGUMENTS, "arg2") => &["testValue2", "world"],
        (CompletionOf::Template, TEMPLATE, "id") => &["123", "124", "456"],
        (CompletionOf::Prompt, SIMPLE | WITH_ARGUMENTS | WITH_RESOURCE | WITH_IMAGE | WITH_QUESTION, _) => {
            &[]
        }
        (CompletionOf::Prompt, _, _) => return Err(unknown(Thing::Prompt, call)),
        (CompletionOf::Template, TEMPLATE, _) => &[],
        (CompletionOf::Template, _, _) => return Err(unknown(Thing::Resource, call)),
    };
    let typed = value.str().unwrap_or_default();
    let matching = values.iter().filter(|value| value.starts_with(typed.as_ref()));
    Ok(Reply::Completion(Completion::of(matching.map(|value| value.to_string()))).into())
}

/// The host has made sure that what a prompt requires is there.
fn argument_of(call: &Call, name: &str) -> String {
    call.text(name).unwrap_or_default().into_owned()
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

fn text(text: impl Into<String>) -> Block {
    Block::Text(text.into())
}

const CONTEXT: &str =
    r#"{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}"#;
