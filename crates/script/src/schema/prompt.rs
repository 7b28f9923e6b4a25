//! A prompt in code as the catalog shows it: from its `metadata`, its `schema` or its types.

use std::sync::Arc;

use contract::CompiledSchema;
use json::{Json, Node, NodeKind, write};
use spile_core::{Prompt, PromptArgument};

use super::exports::Exports;
use super::{TypeFile, TypeFiles, derive};
use crate::bundle::Program;
use crate::diagnostic::Diagnostic;
use crate::engine::Described;

/// A prompt as it is declared.
pub(crate) struct DeclaredPrompt {
    pub(crate) definition: Prompt,
    /// What the arguments must match.
    pub(crate) input: Arc<CompiledSchema>,
    /// In the order of the arguments.
    pub(crate) completions: Vec<ArgumentCompletion>,
    pub(crate) handler_offset: Option<usize>,
    /// Other files that its arguments were read from.
    pub(crate) type_files: Vec<TypeFile>,
}

/// The suggestions for one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentCompletion {
    pub(crate) argument: String,
    pub(crate) values: CompletionValues,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CompletionValues {
    None,
    Listed(Vec<String>),
    /// The values of a field of a collection.
    Field {
        collection: String,
        field: String,
    },
}

const ARGUMENTS_MAX: usize = 64;

pub(crate) fn declare_prompt(
    name: &str,
    program: &Program,
    described: &Described,
    files: &dyn TypeFiles,
    warnings: &mut Vec<Diagnostic>,
) -> Result<DeclaredPrompt, Diagnostic> {
    let file = program.entry();
    let source = program.source(file).unwrap_or_default();
    let exports = Exports::find(file, source);
    let at = |diagnostic, offset| super::at_offset(diagnostic, source, offset);
    let mut type_files = Vec::new();
    let mut definition =
        Prompt { name: name.to_owned(), description: exports.handler_comment.clone(), ..Prompt::default() };
    let mut arguments = None;
    if let Some(metadata) = &described.metadata {
        let mut ignored = Vec::new();
        let read = read_metadata(&mut definition, metadata.to_doc().root(), &mut ignored);
        arguments = read.map_err(|reason| {
            at(Diagnostic::error(file, format!("`metadata`: {reason}")), exports.metadata)
        })?;
        warnings.extend(
            ignored.into_iter().map(|reason| {
                at(Diagnostic::warning(file, format!("`metadata`: {reason}")), exports.metadata)
            }),
        );
    }
    let arguments = match (arguments, &described.input) {
        (Some(arguments), _) => arguments,
        (None, Some(schema)) => arguments_of_schema(schema).map_err(|reason| {
            at(Diagnostic::error(file, format!("`schema.input`: {reason}")), exports.schema)
        })?,
        (None, None) => {
            let (schema, read) = derive::input_schema(file, source, files)?;
            type_files = read;
            arguments_of_schema(&schema)
                .map_err(|reason| at(Diagnostic::error(file, reason), exports.handler))?
        }
    };
    if arguments.len() > ARGUMENTS_MAX {
        let message = format!("a prompt has at most {ARGUMENTS_MAX} arguments");
        return Err(at(Diagnostic::error(file, message), exports.handler));
    }
    let input = input_schema(&arguments);
    let input = CompiledSchema::compile(&input)
        .map_err(|error| at(Diagnostic::error(file, error.to_string()), exports.handler))?;
    let (mut listed, mut completions) = (Vec::new(), Vec::new());
    for argument in arguments {
        completions
            .push(ArgumentCompletion { argument: argument.shown.name.clone(), values: argument.completion });
        listed.push(argument.shown);
    }
    definition.arguments = listed;
    definition.description = definition.description.filter(|description| !description.is_empty());
    let handler_offset = exports.handler;
    Ok(DeclaredPrompt { definition, input: Arc::new(input), completions, handler_offset, type_files })
}

struct Argument {
    shown: PromptArgument,
    /// The only values that are accepted.
    allowed: Option<Vec<String>>,
    completion: CompletionValues,
}

impl Argument {
    fn new(shown: PromptArgument, allowed: Option<Vec<String>>) -> Self {
        let completion = allowed.clone().map_or(CompletionValues::None, CompletionValues::Listed);
        Self { shown, allowed, completion }
    }
}

/// Returns the arguments, if the metadata lists them.
fn read_metadata(
    prompt: &mut Prompt,
    metadata: Node<'_>,
    ignored: &mut Vec<String>,
) -> Result<Option<Vec<Argument>>, String> {
    if !metadata.is_object() {
        return Err("expected an object".into());
    }
    let mut arguments = None;
    for (key, value) in metadata.members() {
        let key = key.str().unwrap_or_default();
        let wrong = |expected: &str| format!("`{key}`: expected {expected}");
        match &*key {
            "title" => prompt.title = Some(text(value).ok_or_else(|| wrong("a string"))?),
            "description" => prompt.description = Some(text(value).ok_or_else(|| wrong("a string"))?),
            "arguments" if value.kind() == NodeKind::Array => {
                arguments = Some(value.elements().map(read_argument).collect::<Result<_, _>>()?);
            }
            "arguments" => return Err(wrong("a list")),
            "icons" if value.kind() == NodeKind::Array => prompt.icons = Some(Json::from(value)),
            "icons" => return Err(wrong("a list")),
            "_meta" | "meta" if value.is_object() => prompt.meta = Some(Json::from(value)),
            "_meta" | "meta" => return Err(wrong("an object")),
            "name" if value.eq_str(&prompt.name) => {}
            "name" => ignored.push(format!("`name`: the prompt is called `{}` after its file", prompt.name)),
            _ => {
                let known = "`title`, `description`, `arguments`, `icons` and `_meta`";
                ignored.push(format!("unknown key `{key}`, which is ignored; known are {known}"));
            }
        }
    }
    Ok(arguments)
}

/// A name, or an object that describes the argument.
fn read_argument(node: Node<'_>) -> Result<Argument, String> {
    if let Some(name) = text(node) {
        return Ok(Argument::new(PromptArgument { name, ..PromptArgument::default() }, None));
    }
    if !node.is_object() {
        return Err("`arguments`: an argument is a name or an object".into());
    }
    let mut shown = PromptArgument::default();
    let (mut allowed, mut completion) = (None, None);
    for (key, value) in node.members() {
        let key = key.str().unwrap_or_default();
        let wrong = |expected: &str| format!("`arguments`: `{key}`: expected {expected}");
        match &*key {
            "name" => shown.name = text(value).ok_or_else(|| wrong("a string"))?,
            "title" => shown.title = Some(text(value).ok_or_else(|| wrong("a string"))?),
            "description" => shown.description = Some(text(value).ok_or_else(|| wrong("a string"))?),
            "required" => shown.required = value.bool().ok_or_else(|| wrong("true or false"))?,
            "enum" => allowed = Some(texts(value).ok_or_else(|| wrong("a list of texts"))?),
            "complete" => {
                let expected = "a list of texts, or { collection, field }";
                completion = Some(read_completion(value).ok_or_else(|| wrong(expected))?);
            }
            _ => return Err(format!("`arguments`: unknown key `{key}`")),
        }
    }
    if shown.name.is_empty() {
        return Err("`arguments`: an argument needs a `name`".into());
    }
    let argument = Argument::new(shown, allowed);
    Ok(match completion {
        Some(completion) => Argument { completion, ..argument },
        None => argument,
    })
}

fn read_completion(value: Node<'_>) -> Option<CompletionValues> {
    match value.kind() {
        NodeKind::Array => texts(value).map(CompletionValues::Listed),
        NodeKind::Object => {
            let (collection, field) = (value.get("collection")?, value.get("field")?);
            Some(CompletionValues::Field { collection: text(collection)?, field: text(field)? })
        }
        _ => None,
    }
}

/// The properties of an object schema. The protocol sends prompt arguments as texts.
fn arguments_of_schema(schema: &Json) -> Result<Vec<Argument>, String> {
    let doc = schema.to_doc();
    let root = doc.root();
    let Some(properties) = root.get("properties") else {
        return Err(
            "the arguments of the prompt are unknown; give its first parameter a type, or list them in \
                    `metadata.arguments`"
                .into(),
        );
    };
    let is_required = |name: &str| {
        root.get("required").is_some_and(|list| list.elements().any(|required| required.eq_str(name)))
    };
    let mut arguments = Vec::new();
    for (key, property) in properties.members() {
        let name = text(key).unwrap_or_default();
        let allowed = property.get("enum").or_else(|| property.get("const"));
        let allowed = match allowed.map(|node| (node.kind(), node)) {
            Some((NodeKind::Array, list)) => Some(texts(list)),
            Some((_, one)) => Some(text(one).map(|one| vec![one])),
            None => None,
        };
        let is_text = property.get("type").is_some_and(|kind| kind.eq_str("string"));
        let allowed = match allowed {
            Some(Some(values)) => Some(values),
            None if is_text => None,
            Some(None) | None => {
                return Err(format!("`{name}`: arguments of prompts are texts; convert it in the handler"));
            }
        };
        let shown = PromptArgument {
            required: is_required(&name),
            title: property.get("title").and_then(text),
            description: property.get("description").and_then(text),
            name,
        };
        arguments.push(Argument::new(shown, allowed));
    }
    Ok(arguments)
}

fn input_schema(arguments: &[Argument]) -> Json {
    Json::object(|schema| {
        schema.str("type", "object").object("properties", |properties| {
            for argument in arguments {
                properties.object(&argument.shown.name, |property| {
                    property.str("type", "string");
                    if let Some(allowed) = &argument.allowed {
                        property.array("enum", allowed, |out, value| write::string(out, value));
                    }
                });
            }
        });
        let required = arguments.iter().filter(|argument| argument.shown.required);
        schema.array("required", required, |out, argument| write::string(out, &argument.shown.name));
        schema.bool("additionalProperties", false);
    })
}

fn text(node: Node<'_>) -> Option<String> {
    node.str().map(|text| text.into_owned())
}

fn texts(list: Node<'_>) -> Option<Vec<String>> {
    (list.kind() == NodeKind::Array).then(|| list.elements().map(text).collect())?
}
