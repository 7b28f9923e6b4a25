//! The compiled contract: an immutable description of a server's tools, used for listing, validation and calls.

use std::sync::Arc;

use json::Json;
use spile_core::ToolAnnotations;

use crate::access::{IdentityRules, Roles, RowRules};
use crate::field::Field;
use crate::manifest::Operation;
pub use crate::manifest::{Confirm, RateLimit, Returns};
use crate::request::RequestShape;
use crate::source::{Sort, StatementShape, TableShape, WriteCapabilities};
use crate::text_template::TextTemplate;
use crate::time_zone::TimeZone;
use crate::value::Value;

/// A compiled server.
#[derive(Debug, Clone, PartialEq)]
pub struct Contract {
    pub name: String,
    pub title: Option<String>,
    /// The locked version, or `0+` and a digest of the tools.
    pub version: String,
    pub instructions: Option<String>,
    /// Generated instructions describe the current data and are not part of the published interface.
    pub instructions_are_generated: bool,
    /// `None` if no tool is about a collection. Describes the current data, as generated instructions do.
    pub overview: Option<Overview>,
    pub rate_limit: Option<RateLimit>,
    pub collections: Vec<Collection>,
    pub statements: Vec<Statement>,
    pub requests: Vec<Request>,
    pub tools: Vec<Tool>,
    /// Who callers are in sources that decide by themselves which rows exist, by the name of the source.
    pub identities: Vec<(String, Arc<IdentityRules>)>,
    /// Who sees which part of it. `None`: everybody sees all of it.
    pub roles: Option<Arc<Roles>>,
}

/// What a server has, in Markdown: the resource [`Overview::URI`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    pub text: String,
    /// Collections that do not fit into `text` with all their columns, each with a text of its own: the resource
    /// [`Overview::URI`], `/` and its name.
    pub details: Vec<(String, String)>,
}

impl Overview {
    pub const URI: &str = "spile://overview";
    pub const MIME_TYPE: &str = "text/markdown";
}

/// A typed, usually keyed, set of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    pub name: String,
    /// The source's name in the manifest.
    pub source: String,
    /// How the source is read. Its columns correspond to `fields`, in order. After them there may be columns that callers do
    /// not see, for `rules`.
    pub shape: TableShape,
    pub fields: Vec<Field>,
    pub rows_max: usize,
    pub bytes_max: usize,
    /// `None` if no tool writes to it.
    pub write_policy: Option<WritePolicy>,
    pub notices: NoticeSupport,
    /// Links to other collections that have a list.
    pub links: Vec<Link>,
    /// Where days begin, for timestamps with a time zone. `None`: in UTC.
    pub time_zone: Option<TimeZone>,
    /// Which rows exist for callers, and what the server sets in those that they write. `None`: all rows, and nothing.
    pub rules: Option<RowRules>,
}

/// A link from the rows of one collection to the rows of another: those with equal values in some fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// What callers write in `include`, and before the `.` of `customer.country`.
    pub name: String,
    /// The index of the other collection.
    pub target: usize,
    /// Fields of this collection and of the other one, by index. At least one pair.
    pub fields: Vec<(usize, usize)>,
    pub cardinality: Cardinality,
    /// The fields of the other collection that rows can be filtered by.
    pub filters: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cardinality {
    /// The linked fields are the other collection's key.
    ToOne,
    /// In this order, and no more than so many for each row.
    ToMany { sort: Vec<Sort>, rows_max: usize },
}

impl Link {
    pub fn is_to_one(&self) -> bool {
        self.cardinality == Cardinality::ToOne
    }

    /// The fields of a link that filters and groups can follow: to one row, by one field.
    pub fn path_fields(&self) -> Option<(usize, usize)> {
        self.only_fields().filter(|_| self.is_to_one())
    }

    /// The fields of a link by one field. Only such links can be asked whether a row has linked rows.
    pub fn only_fields(&self) -> Option<(usize, usize)> {
        match self.fields.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// Filters and groups follow so many links: `track.genre.name`.
pub const LINK_DEPTH_MAX: usize = 2;
/// A call can include the rows of so many links.
pub const INCLUDES_MAX: usize = 3;
/// Filters and groups follow a link to a collection with no more rows than this.
pub const LINK_KEYS_MAX: usize = 200_000;

/// Which structured results may have notices. Only those have the member in their output schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoticeSupport {
    /// Of `get`, `list`, `search` and `aggregate`: a write may invalidate values of this collection.
    pub in_reads: bool,
    /// Of `create`, `update` and `delete`: they may invalidate values of this or another collection.
    pub in_writes: bool,
}

/// How the rows of a collection are written.
#[derive(Debug, Clone, PartialEq)]
pub struct WritePolicy {
    pub versioning: Versioning,
    /// Whether `update` and `delete` require `expected_version`.
    pub version_required: bool,
    /// What the source can do. Tools have no argument for anything else.
    pub capabilities: WriteCapabilities,
    /// The tool that updates a row, if there is one.
    pub update_tool: Option<String>,
}

/// How versions of a row are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// By a digest of its fields, returned as `_version`.
    Digest,
    /// By this field: an integer that every update increments.
    Field(usize),
}

/// An author's SQL statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub source: String,
    pub shape: StatementShape,
    /// What the source can do with its writes.
    pub capabilities: WriteCapabilities,
    /// One for each parameter of the shape, in the same order.
    pub arguments: Vec<Argument>,
    /// The result's fields and limits, in the form of a collection.
    pub result: Collection,
    pub returns: Returns,
}

/// An author's request to a REST API.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub source: String,
    pub shape: RequestShape,
    /// What the source can do if it writes.
    pub capabilities: WriteCapabilities,
    /// One for each parameter of the shape, in the same order.
    pub arguments: Vec<Argument>,
    /// The result's fields and limits, in the form of a collection.
    pub result: Collection,
    pub returns: Returns,
}

/// An argument of a statement or a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    pub field: Field,
    /// The index in the manifest, which is the order of the schema.
    pub declared_index: usize,
    pub required: bool,
    /// Used when the caller omits the argument.
    pub default: Value,
}

/// A tool, bound to its operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Json,
    pub output_schema: Json,
    pub operation: ToolOperation,
    /// Renders a row in the text of a result.
    pub text_template: Option<TextTemplate>,
    /// For each caller.
    pub rate_limit: Option<RateLimit>,
    pub call_timeout_ms: Option<u64>,
    pub long_running: bool,
    pub confirm: Confirm,
}

/// What a tool does. Collections, statements and requests are referred to by index.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOperation {
    /// Gets one row by its key; each part of the key is an argument.
    Get {
        collection: usize,
    },
    /// Lists rows in pages. The fields that it can be filtered and sorted by.
    List {
        collection: usize,
        filters: Vec<usize>,
        sorts: Vec<usize>,
    },
    /// Finds rows that contain every term of `query` in `fields`.
    Search {
        collection: usize,
        fields: Vec<usize>,
        filters: Vec<usize>,
        scan_rows_max: usize,
    },
    /// Groups rows and computes measures.
    Aggregate {
        collection: usize,
        filters: Vec<usize>,
    },
    /// Adds a row; `fields` may be set.
    Create {
        collection: usize,
        fields: Vec<usize>,
    },
    /// Updates some of `fields` of the row with this key.
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
    Request {
        request: usize,
    },
}

impl ToolOperation {
    /// The index of the collection that it reads or writes; a statement or a request has none.
    pub fn collection(&self) -> Option<usize> {
        match *self {
            Self::Get { collection }
            | Self::List { collection, .. }
            | Self::Search { collection, .. }
            | Self::Aggregate { collection, .. }
            | Self::Create { collection, .. }
            | Self::Update { collection, .. }
            | Self::Delete { collection } => Some(collection),
            Self::Statement { .. } | Self::Request { .. } => None,
        }
    }

    /// As the manifest names it; a statement has no name.
    pub fn operation(&self) -> Option<Operation> {
        Some(match self {
            Self::Get { .. } => Operation::Get,
            Self::List { .. } => Operation::List,
            Self::Search { .. } => Operation::Search,
            Self::Aggregate { .. } => Operation::Aggregate,
            Self::Create { .. } => Operation::Create,
            Self::Update { .. } => Operation::Update,
            Self::Delete { .. } => Operation::Delete,
            Self::Statement { .. } | Self::Request { .. } => return None,
        })
    }
}

impl Contract {
    /// Whether any tool writes.
    pub fn has_write_tools(&self) -> bool {
        self.tools.iter().any(|tool| tool.annotations(self).read_only == Some(false))
    }
}

/// The timeout of a long-running tool without a timeout of its own.
pub const LONG_RUNNING_TIMEOUT_MS: u64 = 10 * 60 * 1000;

impl Tool {
    /// The tool as a provider lists it.
    pub fn to_catalog_tool(&self, contract: &Contract) -> spile_core::Tool {
        spile_core::Tool {
            title: self.title.clone(),
            output_schema: Some(self.output_schema.clone()),
            annotations: self.annotations(contract),
            requires_confirmation: self.confirm == Confirm::Ask,
            rate_limit: self.rate_limit,
            call_timeout_ms: self.call_timeout_ms.or(self.long_running.then_some(LONG_RUNNING_TIMEOUT_MS)),
            ..spile_core::Tool::new(&self.name, &self.description, self.input_schema.clone())
        }
    }

    /// Derived from the operation. Only a tool that writes can be destructive or idempotent. No tool reaches beyond
    /// its source, so none is open-world, except requests: what an API does is its own affair.
    fn annotations(&self, contract: &Contract) -> ToolAnnotations {
        let writes = |destructive, idempotent| ToolAnnotations {
            read_only: Some(false),
            destructive: Some(destructive),
            idempotent: Some(idempotent),
            open_world: Some(false),
        };
        match &self.operation {
            ToolOperation::Get { .. }
            | ToolOperation::List { .. }
            | ToolOperation::Search { .. }
            | ToolOperation::Aggregate { .. } => read_annotations(),
            ToolOperation::Statement { statement } if !contract.statements[*statement].shape.writes => {
                read_annotations()
            }
            ToolOperation::Create { .. } => writes(false, false),
            ToolOperation::Update { .. } | ToolOperation::Delete { .. } => writes(true, true),
            ToolOperation::Statement { .. } => writes(true, false),
            ToolOperation::Request { request } => {
                let shape = &contract.requests[*request].shape;
                let hints = match shape.writes {
                    true => writes(true, shape.template.method.is_idempotent()),
                    false => read_annotations(),
                };
                ToolAnnotations { open_world: Some(true), ..hints }
            }
        }
    }
}

fn read_annotations() -> ToolAnnotations {
    ToolAnnotations { read_only: Some(true), open_world: Some(false), ..ToolAnnotations::default() }
}

/// The member of a result that holds the digest of a row, where no field holds its version.
pub const VERSION_FIELD: &str = "_version";

/// The member of a result that lists notices about it.
pub const NOTICES_MEMBER: &str = "notices";
/// The same in a row, whose other members are fields.
pub const NOTICES_FIELD: &str = "_notices";

impl Collection {
    /// What the source can do with writes; nothing if no tool writes.
    pub fn write_capabilities(&self) -> WriteCapabilities {
        self.write_policy.as_ref().map_or(WriteCapabilities::NONE, |policy| policy.capabilities)
    }

    /// Whether rows are returned with [`VERSION_FIELD`].
    #[inline]
    pub fn has_version_field(&self) -> bool {
        match self.write_policy {
            Some(WritePolicy { versioning: Versioning::Digest, capabilities, .. }) => {
                capabilities.has(WriteCapabilities::ROW_VERSIONS)
            }
            Some(WritePolicy { versioning: Versioning::Field(_), .. }) | None => false,
        }
    }

    pub fn key_fields(&self) -> impl Iterator<Item = &Field> {
        self.shape.key.iter().map(|at| &self.fields[*at])
    }
}
