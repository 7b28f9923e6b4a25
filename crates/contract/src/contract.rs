//! What the compiler makes: immutable, and the only truth there is about a server's tools.

use call::Annotations;
use json::Json;

use crate::cell::Value;
use crate::field::Field;
use crate::line::Line;
pub use crate::manifest::{Confirm, Rate, Returns};
use crate::source::{Shape, StatementShape, Test};

/// A compiled server.
#[derive(Debug, Clone)]
pub struct Contract {
    pub name: String,
    pub title: Option<String>,
    /// Tells one set of tools from another.
    pub version: String,
    pub instructions: Option<String>,
    pub rate: Option<Rate>,
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
    pub shape: Shape,
    pub fields: Vec<Field>,
    pub rows_max: usize,
    pub bytes_max: usize,
    /// How it may be written to, if at all.
    pub writes: Option<Writes>,
}

/// How the rows of a collection are written.
#[derive(Debug, Clone)]
pub struct Writes {
    pub version: Versioning,
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
    pub input: Json,
    pub output: Json,
    pub operation: Operation,
    /// The line that a record reads as.
    pub text: Option<Line>,
    /// For each caller.
    pub rate: Option<Rate>,
    pub call_timeout_ms: Option<u64>,
    pub long_running: bool,
    pub confirm: Confirm,
}

/// What a tool does. Collections and statements are named by their places in the contract.
#[derive(Debug, Clone)]
pub enum Operation {
    /// One record by its key; each part of the key is an argument.
    Get {
        collection: usize,
    },
    /// Records in pages. What each argument means, by its name.
    List {
        collection: usize,
        arguments: Vec<(String, Meaning)>,
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
pub enum Meaning {
    Cursor,
    Limit,
    Sort,
    Fields,
    Filter { column: usize, test: Test },
}

impl Tool {
    /// As a provider offers it. Nothing leaves the source.
    pub fn offered(&self, contract: &Contract) -> call::Tool {
        call::Tool {
            title: self.title.clone(),
            output: Some(self.output.clone()),
            annotations: self.annotations(contract),
            ..call::Tool::new(&self.name, &self.description, self.input.clone())
        }
    }
}

impl Tool {
    /// What follows from the operation. Only what writes can be destructive or idempotent.
    fn annotations(&self, contract: &Contract) -> Annotations {
        let writes = |destructive, idempotent| Annotations {
            read_only: Some(false),
            destructive: Some(destructive),
            idempotent: Some(idempotent),
            open_world: Some(false),
        };
        match &self.operation {
            Operation::Get { .. } | Operation::List { .. } | Operation::Search { .. } => reads(),
            Operation::Statement { statement } if !contract.statements[*statement].shape.writes => reads(),
            Operation::Create { .. } => writes(false, false),
            Operation::Update { .. } | Operation::Delete { .. } => writes(true, true),
            Operation::Statement { .. } => writes(true, false),
        }
    }
}

fn reads() -> Annotations {
    Annotations { read_only: Some(true), open_world: Some(false), ..Annotations::default() }
}

/// What a record's state is called in results, where no field of its own says it.
pub const VERSION: &str = "_version";

impl Collection {
    /// Whether records are told with their [`VERSION`].
    #[inline]
    pub fn tells_version(&self) -> bool {
        matches!(self.writes, Some(Writes { version: Versioning::Digest, .. }))
    }

    pub fn key_fields(&self) -> impl Iterator<Item = &Field> {
        self.shape.key.iter().map(|at| &self.fields[*at])
    }
}
