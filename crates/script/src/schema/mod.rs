//! What a tool takes and returns, and how the catalog shows it: declared by the tool, or derived from its
//! types. The same for prompts.

mod derive;
mod exports;
mod json_schema;
mod prompt;

use std::sync::Arc;

use contract::CompiledSchema;
use json::{Json, Node, NodeKind};
use spile_core::{TaskSupport, Tool, ToolAnnotations};

use crate::bundle::Program;
use crate::diagnostic::Diagnostic;
use crate::engine::Described;
use exports::Exports;
pub(crate) use prompt::{ArgumentCompletion, CompletionValues, DeclaredPrompt, declare_prompt};

/// A tool as it is declared.
pub(crate) struct Declared {
    pub(crate) definition: Tool,
    pub(crate) output: Option<Arc<CompiledSchema>>,
    /// Whether its module state is shared between callers.
    pub(crate) shares_state: bool,
    /// Where the handler begins in the tool's file.
    pub(crate) handler_offset: Option<usize>,
    /// Other files that its schema was read from.
    pub(crate) type_files: Vec<TypeFile>,
}

/// A file that only its types were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeFile {
    /// The path inside the folder.
    pub(crate) file: String,
    pub(crate) source: String,
}

/// Finds files of the folder for the types in them.
pub(crate) trait TypeFiles {
    /// The file that `specifier` means in the file `from`. `Err` is a clause that says why it cannot be read.
    fn read(&self, from: &str, specifier: &str) -> Result<TypeFile, String>;
}

/// Where the handler begins in the file of the program.
pub(crate) fn handler_offset(program: &Program) -> Option<usize> {
    Exports::find(program.entry(), program.source(program.entry()).unwrap_or_default()).handler
}

pub(crate) fn declare_tool(
    name: &str,
    program: &Program,
    described: &Described,
    files: &dyn TypeFiles,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Declared, Diagnostic> {
    let file = program.entry();
    let source = program.source(file).unwrap_or_default();
    let exports = Exports::find(file, source);
    let at = |diagnostic, offset| at_offset(diagnostic, source, offset);
    let mut type_files = Vec::new();
    let schema_error = |what: &str, reason: String| {
        at(Diagnostic::error(file, format!("`schema.{what}`: {reason}")), exports.schema)
    };
    let input = match &described.input {
        Some(schema) => {
            check_object_schema(schema).map_err(|reason| schema_error("input", reason))?;
            schema.clone()
        }
        None => {
            let (schema, read) = derive::input_schema(file, source, files)?;
            type_files = read;
            schema
        }
    };
    CompiledSchema::compile(&input).map_err(|error| schema_error("input", error.to_string()))?;
    let output = match &described.output {
        Some(schema) if !schema.is_object() => {
            return Err(schema_error("output", "expected a JSON Schema".into()));
        }
        Some(schema) => {
            let compiled = CompiledSchema::compile(schema);
            Some(Arc::new(compiled.map_err(|error| schema_error("output", error.to_string()))?))
        }
        None => None,
    };
    let description = exports.handler_comment.clone().unwrap_or_default();
    let mut definition =
        Tool { output_schema: described.output.clone(), ..Tool::new(name, &description, input) };
    let mut shares_state = false;
    if let Some(metadata) = &described.metadata {
        let mut ignored = Vec::new();
        let read = read_metadata(&mut definition, metadata.to_doc().root(), &mut ignored);
        shares_state = read.map_err(|reason| {
            at(Diagnostic::error(file, format!("`metadata`: {reason}")), exports.metadata)
        })?;
        warnings.extend(
            ignored.into_iter().map(|reason| {
                at(Diagnostic::warning(file, format!("`metadata`: {reason}")), exports.metadata)
            }),
        );
    }
    definition.description = definition.description.filter(|description| !description.is_empty());
    Ok(Declared { definition, output, shares_state, handler_offset: exports.handler, type_files })
}

/// Points a diagnostic at a place in the file, if there is one.
fn at_offset(diagnostic: Diagnostic, source: &str, offset: Option<usize>) -> Diagnostic {
    match offset {
        Some(offset) => diagnostic.at_offset(source, offset),
        None => diagnostic,
    }
}

/// 2025-11-25, Tools: the root type of an input schema is `object`.
fn check_object_schema(schema: &Json) -> Result<(), String> {
    let doc = schema.to_doc();
    match doc.root().get("type") {
        _ if !schema.is_object() => {
            Err("expected a JSON Schema, a zod schema or an object of zod schemas".into())
        }
        Some(kind) if kind.eq_str("object") => Ok(()),
        Some(kind) => Err(format!("its root type must be `object`, not {}", kind.raw())),
        None => Err("its root needs `type: \"object\"`".into()),
    }
}

/// Returns whether the tool shares its module state. Keys of other frameworks do no harm: `ignored` says which.
fn read_metadata(tool: &mut Tool, metadata: Node<'_>, ignored: &mut Vec<String>) -> Result<bool, String> {
    if !metadata.is_object() {
        return Err("expected an object".into());
    }
    let mut shares_state = false;
    for (key, value) in metadata.members() {
        let key = key.str().unwrap_or_default();
        let wrong = |expected: &str| format!("`{key}`: expected {expected}");
        match &*key {
            "title" => tool.title = Some(value.str().ok_or_else(|| wrong("a string"))?.into_owned()),
            "description" => {
                tool.description = Some(value.str().ok_or_else(|| wrong("a string"))?.into_owned())
            }
            "annotations" => read_annotations(tool, value, ignored)?,
            "icons" if value.kind() == NodeKind::Array => tool.icons = Some(Json::from(value)),
            "icons" => return Err(wrong("a list")),
            "_meta" | "meta" if value.is_object() => tool.meta = Some(Json::from(value)),
            "_meta" | "meta" => return Err(wrong("an object")),
            "task" => {
                tool.task_support = match value.str().as_deref() {
                    Some("never") => TaskSupport::Forbidden,
                    Some("optional") => TaskSupport::Optional,
                    Some("required") => TaskSupport::Required,
                    _ => return Err(wrong("`never`, `optional` or `required`")),
                }
            }
            "sharedState" => shares_state = value.bool().ok_or_else(|| wrong("true or false"))?,
            "timeoutMs" => tool.call_timeout_ms = Some(value.u64().ok_or_else(|| wrong("a whole number"))?),
            // The file's name is the tool's name; other frameworks repeat it here.
            "name" if value.eq_str(&tool.name) => {}
            "name" => ignored.push(format!("`name`: the tool is called `{}` after its file", tool.name)),
            _ => {
                let known = "`title`, `description`, `annotations`, `icons`, `task`, `timeoutMs`, `sharedState` and `_meta`";
                ignored.push(format!("unknown key `{key}`, which is ignored; known are {known}"));
            }
        }
    }
    Ok(shares_state)
}

fn read_annotations(tool: &mut Tool, annotations: Node<'_>, ignored: &mut Vec<String>) -> Result<(), String> {
    let mut read = ToolAnnotations::default();
    for (key, value) in annotations.members() {
        let key = key.str().unwrap_or_default();
        let slot = match &*key {
            "readOnlyHint" => &mut read.read_only,
            "destructiveHint" => &mut read.destructive,
            "idempotentHint" => &mut read.idempotent,
            "openWorldHint" => &mut read.open_world,
            "title" => {
                tool.title = value.str().map(|title| title.into_owned()).or(tool.title.take());
                continue;
            }
            _ => {
                ignored.push(format!("`annotations`: unknown key `{key}`, which is ignored"));
                continue;
            }
        };
        *slot = Some(value.bool().ok_or_else(|| format!("`annotations.{key}`: expected true or false"))?);
    }
    tool.annotations = read;
    Ok(())
}
