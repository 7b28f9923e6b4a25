//! The tools of a collection: one for each operation, under the name it has or the names it is given.

use super::collection::{ToolFields, has_operation};
use super::{CompiledTool, Compiler};
use crate::contract::{Collection, Confirm, Tool, ToolOperation};
use crate::diagnostic::{Diagnostic, Located};
use crate::humanize::join_truncated;
use crate::manifest::{self, CollectionOperation, Operation as Named};
use crate::names;
use crate::schemas;

impl<'m> Compiler<'m> {
    pub(super) fn compile_tools(
        &mut self,
        wanted: &'m manifest::Collection,
        collection: &Collection,
        chosen: &ToolFields,
        at: usize,
        tools: &mut Vec<CompiledTool<'m>>,
    ) {
        let of = ToolBuilder { declared: wanted, collection, tool_fields: chosen, collection_index: at };
        for operation in Named::ALL {
            let named: Vec<(&manifest::Tool, &Located<CollectionOperation>)> = self
                .renamed_tools()
                .filter(|(_, uses)| {
                    uses.value.collection == collection.name && uses.value.operation == operation
                })
                .collect();
            if !has_operation(wanted, operation) {
                for (_, uses) in named {
                    let message = format!("`{}` does not have `{}`", collection.name, operation.as_str());
                    self.error(&uses.location, message, "add it to the collection's operations".into());
                }
                continue;
            }
            let needs_key = matches!(operation, Named::Get | Named::Update | Named::Delete);
            if needs_key && collection.shape.key.is_empty() {
                self.report_missing_key(wanted, &chosen.missing_key_reason, operation, &named);
                continue;
            }
            if named.is_empty() {
                let name = names::tool_name(operation.as_str(), &collection.name);
                tools.push(CompiledTool { tool: of.build(name, operation), name_location: None });
            }
            for (tool, _) in named.into_iter().filter(|(tool, _)| !tool.hidden) {
                let mut made = of.build(tool.name.value.clone(), operation);
                Self::apply_tool_settings(&mut made, tool, operation.writes());
                made.text_template =
                    tool.text_template.as_ref().and_then(|text| self.parse_template(text, collection));
                tools.push(CompiledTool { tool: made, name_location: Some(&tool.name.location) });
            }
        }
    }

    /// Takes over what the author says of a tool, whatever it does.
    pub(super) fn apply_tool_settings(made: &mut Tool, tool: &manifest::Tool, writes: bool) {
        made.title.clone_from(&tool.title);
        if let Some(description) = &tool.description {
            made.description.clone_from(description);
        }
        made.rate_limit = tool.rate_limit;
        made.call_timeout_ms = tool.call_timeout_ms;
        made.long_running = tool.long_running;
        if writes {
            made.confirm = tool.confirm.unwrap_or(made.confirm);
        }
    }

    /// Without a key there is nothing to find one record by.
    fn report_missing_key(
        &mut self,
        wanted: &manifest::Collection,
        why: &str,
        operation: Named,
        named: &[(&manifest::Tool, &Located<CollectionOperation>)],
    ) {
        let asked = wanted.operations.iter().flatten().find(|one| one.value == operation);
        let message = format!("`{}` has no key: {why}", wanted.name.value);
        let help = "say which with key = \"…\", or key = [\"…\", \"…\"]";
        let at = asked.map(|asked| &asked.location).or(named.first().map(|(_, uses)| &uses.location));
        match at {
            Some(at) => self.error(at, message, help.into()),
            None => {
                let note = Diagnostic::note(format!("{message}; it can be listed only"));
                self.diagnostics.push(note.at(&wanted.name.location).help(help));
            }
        }
    }
}

/// What a tool is made from.
struct ToolBuilder<'a> {
    declared: &'a manifest::Collection,
    collection: &'a Collection,
    tool_fields: &'a ToolFields,
    /// The collection's place in the contract.
    collection_index: usize,
}

impl ToolBuilder<'_> {
    fn build(&self, name: String, operation: Named) -> Tool {
        let Self { declared: wanted, collection, tool_fields: chosen, collection_index: at } = *self;
        let about = wanted.description.as_ref().map_or_else(String::new, |about| format!(" {about}"));
        let of = &collection.name;
        let by =
            || collection.key_fields().map(|field| field.name.as_str()).collect::<Vec<_>>().join(" and ");
        let (description, input, output, operation) = match operation {
            Named::Get => (
                format!("One record of {of} by {}.{about}", by()),
                schemas::get_input(collection),
                schemas::get_output(collection),
                ToolOperation::Get { collection: at },
            ),
            Named::List => {
                let (input, arguments) = schemas::list_input(collection, &chosen.filters, &chosen.sorts);
                (
                    format!("Records of {of}, a page at a time.{about}"),
                    input,
                    schemas::list_output(collection),
                    ToolOperation::List { collection: at, arguments },
                )
            }
            Named::Search => {
                let fields = chosen.search.clone();
                let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
                let scan_rows_max = wanted.search_rows_max as usize;
                (
                    format!(
                        "Records of {of} that have every word of a query in {}.{about}",
                        join_truncated(&names, FIELDS_NAMED_MAX)
                    ),
                    schemas::search_input(collection),
                    schemas::search_output(collection),
                    ToolOperation::Search { collection: at, fields, scan_rows_max },
                )
            }
            Named::Create => (
                format!("Adds a record to {of}.{about}"),
                schemas::create_input(collection, &chosen.writable.create, &chosen.writable.required),
                schemas::write_output(collection, &["created"]),
                ToolOperation::Create { collection: at, fields: chosen.writable.create.clone() },
            ),
            Named::Update => (
                format!("Changes fields of the record of {of} with this {}.{about}", by()),
                schemas::update_input(collection, &chosen.writable.update),
                schemas::write_output(collection, &["updated", "unchanged"]),
                ToolOperation::Update { collection: at, fields: chosen.writable.update.clone() },
            ),
            Named::Delete => (
                format!("Deletes the record of {of} with this {}.{about}", by()),
                schemas::delete_input(collection),
                schemas::write_output(collection, &["deleted"]),
                ToolOperation::Delete { collection: at },
            ),
        };
        let asks = matches!(operation, ToolOperation::Update { .. } | ToolOperation::Delete { .. });
        let confirm = if asks { wanted.confirm } else { Confirm::Never };
        Tool { confirm, ..new_tool(name, description, (input, output), operation) }
    }
}

/// A tool of which nothing more is said.
pub(super) fn new_tool(
    name: String,
    description: String,
    (input, output): (json::Json, json::Json),
    operation: ToolOperation,
) -> Tool {
    Tool {
        name,
        title: None,
        description,
        input_schema: input,
        output_schema: output,
        operation,
        text_template: None,
        rate_limit: None,
        call_timeout_ms: None,
        long_running: false,
        confirm: Confirm::Never,
    }
}

/// So many fields are named in a sentence.
const FIELDS_NAMED_MAX: usize = 6;
