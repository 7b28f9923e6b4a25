//! What the compiler makes: immutable, and the only truth there is about a server's tools.

use json::Json;
use spile_core::ToolAnnotations;

use crate::field::Field;
pub use crate::manifest::{Confirm, RateLimit, Returns};
use crate::source::{Comparison, StatementShape, TableShape};
use crate::text_template::TextTemplate;
use crate::value::Value;

/// A compiled server.
#[derive(Debug, Clone)]
pub struct Contract {
    pub name: String,
    pub title: Option<String>,
    /// Tells one set of tools from another.
    pub version: String,
    pub instructions: Option<String>,
    pub rate_limit: Option<RateLimit>,
    pub collections: Vec<Collection>,
    pub statements: Vec<Statement>,
    pub tools: Vec<Tool>,
}

/// A typed set of records.
#[derive(Debug, Clone)]
pub struct Collection {
    pub name: String,
    /// The source's name in the manifest.
    pub source: String,
    /// How the source is read; its columns are `fields`, one by one.
    pub shape: TableShape,
    pub fields: Vec<Field>,
    pub rows_max: usize,
    pub bytes_max: usize,
    /// How it may be written to, if at all.
    pub write_policy: Option<WritePolicy>,
}

/// How the rows of a collection are written.
#[derive(Debug, Clone)]
pub struct WritePolicy {
    pub versioning: Versioning,
    /// Whether a caller must say which state of a row they mean.
    pub version_required: bool,
}

/// What tells one state of a row from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// A digest of its fields, told as `_version`.
    Digest,
    /// This field: a whole number that grows by one with every update.
    Field(usize),
}

/// An author's statement.
#[derive(Debug, Clone)]
pub struct Statement {
    pub source: String,
    pub shape: StatementShape,
    /// One for each of the shape's parameters.
    pub arguments: Vec<Argument>,
    /// Its rows are told as those of a collection are: fields, caps, name.
    pub result: Collection,
    pub returns: Returns,
}

/// An argument of a statement: a field that callers fill in.
#[derive(Debug, Clone)]
pub struct Argument {
    pub field: Field,
    pub required: bool,
    /// What it is where nothing is said.
    pub default: Value,
}

/// A tool, bound to what it does.
#[derive(Debug, Clone)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Json,
    pub output_schema: Json,
    pub operation: ToolOperation,
    /// The line that a record reads as.
    pub text_template: Option<TextTemplate>,
    /// For each caller.
    pub rate_limit: Option<RateLimit>,
    pub call_timeout_ms: Option<u64>,
    pub long_running: bool,
    pub confirm: Confirm,
}

/// What a tool does. Collections and statements are named by their places in the contract.
#[derive(Debug, Clone)]
pub enum ToolOperation {
    /// One record by its key; each part of the key is an argument.
    Get {
        collection: usize,
    },
    /// Records in pages. What each argument means, by its name.
    List {
        collection: usize,
        arguments: Vec<(String, ArgumentRole)>,
    },
    /// Records that have every word of `query`, in these fields.
    Search {
        collection: usize,
        fields: Vec<usize>,
        scan_rows_max: usize,
    },
    /// A new record; these fields may be said.
    Create {
        collection: usize,
        fields: Vec<usize>,
    },
    /// Some of these fields of the record with this key.
    Update {
        collection: usize,
        fields: Vec<usize>,
    },
    Delete {
        collection: usize,
    },
    Statement {
        statement: usize,
    },
}

/// What an argument of a list means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentRole {
    Cursor,
    Limit,
    Sort,
    Fields,
    Filter { column: usize, comparison: Comparison },
}

impl Contract {
    /// Whether any of its tools writes.
    pub fn has_write_tools(&self) -> bool {
        self.tools.iter().any(|tool| tool.annotations(self).read_only == Some(false))
    }
}
/// How long a tool that is known to take its time may take, if its author says no number.
pub const LONG_RUNNING_TIMEOUT_MS: u64 = 10 * 60 * 1000;

impl Tool {
    /// As a provider offers it. Nothing leaves the source.
    pub fn to_catalog_tool(&self, contract: &Contract) -> spile_core::Tool {
        spile_core::Tool {
            title: self.title.clone(),
            output_schema: Some(self.output_schema.clone()),
            annotations: self.annotations(contract),
            rate_limit: self.rate_limit,
            call_timeout_ms: self.call_timeout_ms.or(self.long_running.then_some(LONG_RUNNING_TIMEOUT_MS)),
            ..spile_core::Tool::new(&self.name, &self.description, self.input_schema.clone())
        }
    }
}

impl Tool {
    /// What follows from the operation. Only what writes can be destructive or idempotent.
    fn annotations(&self, contract: &Contract) -> ToolAnnotations {
        let writes = |destructive, idempotent| ToolAnnotations {
            read_only: Some(false),
            destructive: Some(destructive),
            idempotent: Some(idempotent),
            open_world: Some(false),
        };
        match &self.operation {
            ToolOperation::Get { .. } | ToolOperation::List { .. } | ToolOperation::Search { .. } => {
                read_annotations()
            }
            ToolOperation::Statement { statement } if !contract.statements[*statement].shape.writes => {
                read_annotations()
            }
            ToolOperation::Create { .. } => writes(false, false),
            ToolOperation::Update { .. } | ToolOperation::Delete { .. } => writes(true, true),
            ToolOperation::Statement { .. } => writes(true, false),
        }
    }
}

fn read_annotations() -> ToolAnnotations {
    ToolAnnotations { read_only: Some(true), open_world: Some(false), ..ToolAnnotations::default() }
}

/// What a record's state is called in results, where no field of its own says it.
pub const VERSION_FIELD: &str = "_version";

impl Collection {
    /// Whether records are told with their [`VERSION`].
    #[inline]
    pub fn has_version_field(&self) -> bool {
        matches!(self.write_policy, Some(WritePolicy { versioning: Versioning::Digest, .. }))
    }

    pub fn key_fields(&self) -> impl Iterator<Item = &Field> {
        self.shape.key.iter().map(|at| &self.fields[*at])
    }
}
