//! Whether a collection can be written to as its author wants, and which of its fields.

use super::Compiler;
use crate::contract::{Collection, Versioning, WritePolicy};
use crate::data_type::DataType;
use crate::diagnostic::Located;
use crate::manifest::{self, Operation};
use crate::source::{ColumnFacts, TableFacts};

/// The fields that callers may say, by place.
#[derive(Debug, Default)]
pub(super) struct WritableFields {
    pub(super) create: Vec<usize>,
    /// Those of `create` without which there is no new row.
    pub(super) required: Vec<usize>,
    pub(super) update: Vec<usize>,
}

impl Compiler<'_> {
    /// Judges everything that writes, and says in the collection how it is done.
    pub(super) fn compile_writes(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        collection: &mut Collection,
    ) -> WritableFields {
        let asked = || wanted.operations.iter().flatten().filter(|one| one.value.writes());
        let Some(first) = asked().next() else { return WritableFields::default() };
        if let Some(why) = &table.read_only_reason {
            let message = format!("`{}` cannot be written to: {why}", wanted.name.value);
            let help = format!("leave {} out of its operations", quote_operations(asked()));
            self.error(&first.location, message, help);
            return WritableFields::default();
        }
        let version = self.resolve_versioning(wanted, table, collection);
        collection.write_policy =
            Some(WritePolicy { versioning: version, version_required: wanted.version_required });
        let column = |at: &usize| &table.columns[collection.shape.columns[*at].source_index];
        let is_version = |at: &usize| version == Versioning::Field(*at);
        let free = |at: &usize| column(at).read_only_reason.is_none() && !is_version(at);
        let create: Vec<usize> = (0..collection.fields.len()).filter(free).collect();
        let needs = |at: &usize| !collection.fields[*at].nullable && !column(at).has_default;
        let settable = WritableFields {
            required: create.iter().copied().filter(needs).collect(),
            update: create.iter().copied().filter(|at| !collection.shape.key.contains(at)).collect(),
            create,
        };
        for operation in asked() {
            self.check_operation(operation, table, collection, &settable);
        }
        settable
    }

    fn check_operation(
        &mut self,
        operation: &Located<Operation>,
        table: &TableFacts,
        collection: &Collection,
        settable: &WritableFields,
    ) {
        let name = &collection.name;
        match operation.value {
            Operation::Create => {
                let is_shown =
                    |at: usize| collection.shape.columns.iter().any(|column| column.source_index == at);
                let is_needed = |column: &ColumnFacts| {
                    !column.nullable && !column.has_default && column.read_only_reason.is_none()
                };
                let mut hidden = table.columns.iter().enumerate().filter(|(at, _)| !is_shown(*at));
                if let Some((_, column)) = hidden.find(|(_, column)| is_needed(column)) {
                    let message =
                        format!("a new record of `{name}` needs `{}`, which is hidden", column.name);
                    let help = "show it, give it a default in the source, or leave \"create\" out";
                    self.error(&operation.location, message, help.into());
                }
                if settable.create.is_empty() {
                    let message = format!("no field of `{name}` can be set by a caller");
                    self.error(&operation.location, message, "leave \"create\" out".into());
                }
            }
            Operation::Update if settable.update.is_empty() => {
                let message = format!("nothing of `{name}` can be changed but its key, and that stays");
                self.error(&operation.location, message, "leave \"update\" out".into());
            }
            Operation::Get | Operation::List | Operation::Search | Operation::Update | Operation::Delete => {}
        }
    }

    /// What tells one state of a row from another: the column that is named, else its contents.
    fn resolve_versioning(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        collection: &Collection,
    ) -> Versioning {
        let Some(said) = &wanted.version else { return Versioning::Digest };
        let fields = &collection.fields;
        let Some(at) = self.find_field(said, fields) else { return Versioning::Digest };
        let (field, column) = (&fields[at], &table.columns[collection.shape.columns[at].source_index]);
        let help = "choose a column of whole numbers, or leave `version` out: then contents are compared";
        let why = match (field.data_type, &column.read_only_reason) {
            _ if collection.shape.key.contains(&at) => Some("is part of the key, which stays".to_owned()),
            (DataType::Integer | DataType::Int64, _) if field.mixed => {
                Some("is not a whole number in every row".to_owned())
            }
            (DataType::Integer | DataType::Int64, Some(why)) => Some(format!("cannot be set: {why}")),
            (DataType::Integer | DataType::Int64, None) => None,
            (kind, _) => Some(format!("is {}, and no whole number", kind.as_str())),
        };
        if let Some(why) = why {
            self.error(&said.location, format!("the version `{}` {why}", said.value), help.into());
        }
        Versioning::Field(at)
    }
}

fn quote_operations<'a>(operations: impl Iterator<Item = &'a Located<Operation>>) -> String {
    operations.map(|one| format!("\"{}\"", one.value.as_str())).collect::<Vec<_>>().join(", ")
}
