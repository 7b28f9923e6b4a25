//! Checks the writing operations of a collection and finds its writable fields.

use super::Compiler;
use crate::contract::{Collection, Versioning, WritePolicy};
use crate::data_type::DataType;
use crate::diagnostic::{FileLocation, Located};
use crate::manifest::{self, Confirm, Operation};
use crate::source::{ColumnFacts, TableFacts, WriteCapabilities, WriteSupport};

/// The fields that callers may set, by index.
#[derive(Debug, Default)]
pub(super) struct WritableFields {
    pub(super) create: Vec<usize>,
    /// The fields of `create` that a new row must have.
    pub(super) required: Vec<usize>,
    pub(super) update: Vec<usize>,
}

impl Compiler<'_> {
    /// Checks every writing operation and sets the collection's write policy.
    pub(super) fn compile_writes(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        collection: &mut Collection,
    ) -> WritableFields {
        let operations = || declared.operations.iter().flatten().filter(|one| one.value.writes());
        let Some(first) = operations().next() else { return WritableFields::default() };
        let capabilities = match &table.write_support {
            WriteSupport::Supported(capabilities) => *capabilities,
            WriteSupport::ReadOnly { reason } => {
                return self.report_read_only(declared, reason, &first.location);
            }
        };
        self.check_demands(declared, capabilities, &first.location);
        let versioning = self.resolve_versioning(declared, table, collection);
        collection.write_policy = Some(WritePolicy {
            versioning,
            version_required: declared.version_required,
            capabilities,
            update_tool: None,
        });
        let column = |at: &usize| &table.columns[collection.shape.columns[*at].source_index];
        let is_version = |at: &usize| versioning == Versioning::Field(*at);
        let is_writable = |at: &usize| column(at).read_only_reason.is_none() && !is_version(at);
        let create: Vec<usize> = (0..collection.fields.len()).filter(is_writable).collect();
        let is_required = |at: &usize| !collection.fields[*at].nullable && !column(at).has_default;
        let writable = WritableFields {
            required: create.iter().copied().filter(is_required).collect(),
            update: create.iter().copied().filter(|at| !collection.shape.key.contains(at)).collect(),
            create,
        };
        for operation in operations() {
            self.check_operation(operation, table, collection, &writable);
        }
        writable
    }

    fn report_read_only(
        &mut self,
        declared: &manifest::Collection,
        reason: &str,
        at: &FileLocation,
    ) -> WritableFields {
        let operations = declared.operations.iter().flatten().filter(|one| one.value.writes());
        let message = format!("cannot write to `{}`: {reason}", declared.name.value);
        let help = format!("remove {} from its operations", quote_operations(operations));
        self.error(at, message, help);
        WritableFields::default()
    }

    /// Checks what the collection demands of every write. `at` is its first operation that writes.
    fn check_demands(
        &mut self,
        declared: &manifest::Collection,
        capabilities: WriteCapabilities,
        at: &FileLocation,
    ) {
        let versions = WriteCapabilities::ROW_VERSIONS;
        let source = &declared.source.value;
        if let Some(version) = &declared.version {
            self.require(source, capabilities, versions, "version", &version.location);
        } else if declared.version_required {
            self.require(source, capabilities, versions, "version_required", at);
        }
        if declared.confirm == Confirm::Ask {
            self.require(source, capabilities, capabilities.confirmation(), "confirm", at);
        }
    }

    /// Reports a setting that demands more than the source can do.
    pub(super) fn require(
        &mut self,
        source: &str,
        capabilities: WriteCapabilities,
        required: WriteCapabilities,
        setting: &str,
        at: &FileLocation,
    ) {
        let missing = capabilities.missing(required);
        if missing != WriteCapabilities::NONE {
            let message =
                format!("`{setting}` needs {missing}, which the source `{source}` does not support");
            self.error(at, message, format!("remove `{setting}`"));
        }
    }

    fn check_operation(
        &mut self,
        operation: &Located<Operation>,
        table: &TableFacts,
        collection: &Collection,
        writable: &WritableFields,
    ) {
        let name = &collection.name;
        if let Some(reason) = table.refusal(operation.value) {
            let shown = operation.value.as_str();
            let message = format!("the operation `{shown}` of `{name}` can never succeed: {reason}");
            self.error(&operation.location, message, format!("remove the operation `{shown}`"));
        }
        match operation.value {
            Operation::Create => {
                let is_visible =
                    |at: usize| collection.shape.columns.iter().any(|column| column.source_index == at);
                let is_required = |column: &ColumnFacts| {
                    !column.nullable && !column.has_default && column.read_only_reason.is_none()
                };
                let mut hidden = table.columns.iter().enumerate().filter(|(at, _)| !is_visible(*at));
                if let Some((_, column)) = hidden.find(|(_, column)| is_required(column)) {
                    let message =
                        format!("a new row of `{name}` needs a value for `{}`, which is hidden", column.name);
                    let help = "remove `hidden`, give the column a default in the source, or remove the operation `create`";
                    self.error(&operation.location, message, help.into());
                }
                if writable.create.is_empty() {
                    let message = format!("`{name}` has no field that a caller can set");
                    self.error(&operation.location, message, "remove the operation `create`".into());
                }
            }
            Operation::Update if writable.update.is_empty() => {
                let is_key = |at: &usize| collection.shape.key.contains(at);
                let others = (0..collection.shape.columns.len()).filter(|at| !is_key(at));
                let facts = |at: usize| &table.columns[collection.shape.columns[at].source_index];
                let computed =
                    others.filter_map(|at| facts(at).read_only_reason.as_ref().map(|reason| (at, reason)));
                let rest = computed.map(|(at, reason)| (&collection.fields[at].name, reason)).next();
                let rest = rest.map_or_else(String::new, |(field, reason)| {
                    format!(", and the other fields cannot be set: `{field}`, because {reason}")
                });
                let message =
                    format!("`{name}` has no field that can be updated: the key cannot change{rest}");
                self.error(&operation.location, message, "remove the operation `update`".into());
            }
            Operation::Get
            | Operation::List
            | Operation::Search
            | Operation::Aggregate
            | Operation::Update
            | Operation::Delete => {}
        }
    }

    /// How versions of a row are told apart: by the declared version column, else by a digest of the row.
    fn resolve_versioning(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        collection: &Collection,
    ) -> Versioning {
        let Some(version) = &declared.version else { return Versioning::Digest };
        let fields = &collection.fields;
        let Some(at) = self.find_field(version, fields) else { return Versioning::Digest };
        let (field, column) = (&fields[at], &table.columns[collection.shape.columns[at].source_index]);
        let help = "choose an integer column, or remove `version` to compare the contents of the row";
        let problem = match (field.data_type, &column.read_only_reason) {
            _ if collection.shape.key.contains(&at) => {
                Some("is part of the key, which cannot change".to_owned())
            }
            (DataType::Integer | DataType::Int64, _) if field.mixed => {
                Some("is not an integer in every row".to_owned())
            }
            (DataType::Integer | DataType::Int64, Some(reason)) => Some(format!("cannot be set: {reason}")),
            (DataType::Integer | DataType::Int64, None) => None,
            (data_type, _) => Some(format!("is {}, not an integer", data_type.as_str())),
        };
        if let Some(problem) = problem {
            let message = format!("the version column `{}` {problem}", version.value);
            self.error(&version.location, message, help.into());
        }
        Versioning::Field(at)
    }
}

fn quote_operations<'a>(operations: impl Iterator<Item = &'a Located<Operation>>) -> String {
    operations.map(|one| format!("\"{}\"", one.value.as_str())).collect::<Vec<_>>().join(", ")
}
