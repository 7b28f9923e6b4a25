//! The tools of a collection: one for each operation, under the name it has or the names it is given.

use super::collection::{Chosen, has};
use super::{Compiler, Made};
use crate::contract::{Collection, Confirm, Operation, Tool};
use crate::diagnostic::{Diagnostic, Placed};
use crate::manifest::{self, Operation as Named, Uses};
use crate::names;
use crate::schemas;
use crate::words::some;

impl<'m> Compiler<'m> {
    pub(super) fn tools(
        &mut self,
        wanted: &'m manifest::Collection,
        collection: &Collection,
        chosen: &Chosen,
        at: usize,
        tools: &mut Vec<Made<'m>>,
    ) {
        let of = Of { wanted, collection, chosen, at };
        for operation in Named::ALL {
            let named: Vec<(&manifest::Tool, &Placed<Uses>)> = self
                .uses()
                .filter(|(_, uses)| {
                    uses.value.collection == collection.name && uses.value.operation == operation
                })
                .collect();
            if !has(wanted, operation) {
                for (_, uses) in named {
                    let message = format!("`{}` does not have `{}`", collection.name, operation.as_str());
                    self.error(&uses.at, message, "add it to the collection's operations".into());
                }
                continue;
            }
            let needs_key = matches!(operation, Named::Get | Named::Update | Named::Delete);
            if needs_key && collection.shape.key.is_empty() {
                self.no_key(wanted, &chosen.why_no_key, operation, &named);
                continue;
            }
            if named.is_empty() {
                let name = names::tool_name(operation.as_str(), &collection.name);
                tools.push(Made { tool: of.made(name, operation), at: None });
            }
            for (tool, _) in named.into_iter().filter(|(tool, _)| !tool.hidden) {
                let mut made = of.made(tool.name.value.clone(), operation);
                Self::said(&mut made, tool, operation.writes());
                made.text = tool.text.as_ref().and_then(|text| self.line(text, collection));
                tools.push(Made { tool: made, at: Some(&tool.name.at) });
            }
        }
    }

    /// Takes over what the author says of a tool, whatever it does.
    pub(super) fn said(made: &mut Tool, tool: &manifest::Tool, writes: bool) {
        made.title.clone_from(&tool.title);
        if let Some(description) = &tool.description {
            made.description.clone_from(description);
        }
        made.rate = tool.rate_limit;
        made.call_timeout_ms = tool.call_timeout_ms;
        made.long_running = tool.long_running;
        if writes {
            made.confirm = tool.confirm.unwrap_or(made.confirm);
        }
    }

    /// Without a key there is nothing to find one record by.
    fn no_key(
        &mut self,
        wanted: &manifest::Collection,
        why: &str,
        operation: Named,
        named: &[(&manifest::Tool, &Placed<Uses>)],
    ) {
        let asked = wanted.operations.iter().flatten().find(|one| one.value == operation);
        let message = format!("`{}` has no key: {why}", wanted.name.value);
        let help = "say which with key = \"…\", or key = [\"…\", \"…\"]";
        let at = asked.map(|asked| &asked.at).or(named.first().map(|(_, uses)| &uses.at));
        match at {
            Some(at) => self.error(at, message, help.into()),
            None => {
                let note = Diagnostic::note(format!("{message}; it can be listed only"));
                self.found.push(note.at(&wanted.name.at).help(help));
            }
        }
    }
}

/// What a tool is made from.
struct Of<'a> {
    wanted: &'a manifest::Collection,
    collection: &'a Collection,
    chosen: &'a Chosen,
    /// The collection's place in the contract.
    at: usize,
}

impl Of<'_> {
    fn made(&self, name: String, operation: Named) -> Tool {
        let Self { wanted, collection, chosen, at } = *self;
        let about = wanted.description.as_ref().map_or_else(String::new, |about| format!(" {about}"));
        let of = &collection.name;
        let by =
            || collection.key_fields().map(|field| field.name.as_str()).collect::<Vec<_>>().join(" and ");
        let (description, input, output, operation) = match operation {
            Named::Get => (
                format!("One record of {of} by {}.{about}", by()),
                schemas::get_input(collection),
                schemas::get_output(collection),
                Operation::Get { collection: at },
            ),
            Named::List => {
                let (input, arguments) = schemas::list_input(collection, &chosen.filters, &chosen.sorts);
                (
                    format!("Records of {of}, a page at a time.{about}"),
                    input,
                    schemas::list_output(collection),
                    Operation::List { collection: at, arguments },
                )
            }
            Named::Search => {
                let fields = chosen.search.clone();
                let names: Vec<&str> = fields.iter().map(|at| collection.fields[*at].name.as_str()).collect();
                let scan_rows_max = wanted.search_rows_max as usize;
                (
                    format!(
                        "Records of {of} that have every word of a query in {}.{about}",
                        some(&names, NAMED_MAX)
                    ),
                    schemas::search_input(collection),
                    schemas::search_output(collection),
                    Operation::Search { collection: at, fields, scan_rows_max },
                )
            }
            Named::Create => (
                format!("Adds a record to {of}.{about}"),
                schemas::create_input(collection, &chosen.settable.create, &chosen.settable.required),
                schemas::write_output(collection, &["created"]),
                Operation::Create { collection: at, fields: chosen.settable.create.clone() },
            ),
            Named::Update => (
                format!("Changes fields of the record of {of} with this {}.{about}", by()),
                schemas::update_input(collection, &chosen.settable.update),
                schemas::write_output(collection, &["updated", "unchanged"]),
                Operation::Update { collection: at, fields: chosen.settable.update.clone() },
            ),
            Named::Delete => (
                format!("Deletes the record of {of} with this {}.{about}", by()),
                schemas::delete_input(collection),
                schemas::write_output(collection, &["deleted"]),
                Operation::Delete { collection: at },
            ),
        };
        let asks = matches!(operation, Operation::Update { .. } | Operation::Delete { .. });
        let confirm = if asks { wanted.confirm } else { Confirm::Never };
        Tool { confirm, ..plain(name, description, (input, output), operation) }
    }
}

/// A tool of which nothing more is said.
pub(super) fn plain(
    name: String,
    description: String,
    (input, output): (json::Json, json::Json),
    operation: Operation,
) -> Tool {
    Tool {
        name,
        title: None,
        description,
        input,
        output,
        operation,
        text: None,
        rate: None,
        call_timeout_ms: None,
        long_running: false,
        confirm: Confirm::Never,
    }
}

/// So many fields are named in a sentence.
const NAMED_MAX: usize = 6;
