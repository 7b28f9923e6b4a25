//! What an author writes: `spile.toml`, read into types that cannot be half right.
//!
//! [`parse`] finds everything that is wrong with the text alone and tells all of it at once. Whether a source
//! has the table, and the table the columns, is for the compiler to judge; what it may object to carries its
//! place along.

mod collections;
pub mod keys;
mod rate;
mod reader;
mod reference;
mod schema;
mod sections;
mod sources;
mod syntax;
mod toml_errors;
mod tools;
mod variables;

use std::sync::Arc;

/// `rate_limit = "60/min"`
pub use spile_core::RateLimit;
use toml::de::DeTable;

use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileText, Located, Severity};
use reader::ManifestReader;
pub use reference::{EXAMPLE, reference};
pub use schema::schema;
use syntax::SyntaxCheck;

/// Longer manifests are not read.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// More than these are counted, not told.
pub const DIAGNOSTICS_MAX: usize = 50;

pub const ROWS_MAX_DEFAULT: u32 = 100;
pub const ROWS_MAX_LIMIT: u32 = 1000;
pub const BYTES_MAX_DEFAULT: u32 = 64 << 10;
pub const BYTES_MAX_MINIMUM: u32 = 1 << 10;
pub const BYTES_MAX_LIMIT: u32 = 1 << 20;
pub const CALL_TIMEOUT_MS_LIMIT: u64 = 24 * 60 * 60 * 1000;
pub const SEARCH_ROWS_MAX_DEFAULT: u32 = 100_000;
pub const SEARCH_ROWS_MAX_LIMIT: u32 = 10_000_000;
pub const CHANGES_MAX_DEFAULT: u32 = 1;
pub const CHANGES_MAX_LIMIT: u32 = 100_000;
/// No sheet has more rows.
pub const HEADER_ROW_LIMIT: u32 = 1_048_576;

#[derive(Debug, Clone, Default)]
pub struct Manifest {
    pub server: Server,
    /// Sources, collections and tools stand in the order of the text.
    pub sources: Vec<Source>,
    pub collections: Vec<Collection>,
    pub tools: Vec<Tool>,
}

#[derive(Debug, Clone, Default)]
pub struct Server {
    /// Without one, the caller chooses: the name of the folder or file.
    pub name: Option<String>,
    pub title: Option<String>,
    pub instructions: Option<String>,
    pub call_timeout_ms: Option<u64>,
    /// For all callers together, over all tools.
    pub rate_limit: Option<RateLimit>,
}

/// `[sources.NAME]`
#[derive(Debug, Clone)]
pub struct Source {
    pub name: Located<String>,
    pub path: Located<String>,
    pub settings: SourceSettings,
}

/// What a source is, and what only such sources have to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSettings {
    Sqlite,
    Csv {
        /// ASCII; without one it is found in the text.
        delimiter: Option<u8>,
        /// Text that means "no value".
        null_text: Option<String>,
        /// Whether a text that a spreadsheet would take for a formula may be written.
        formulas: FormulaPolicy,
    },
    /// A workbook: XLSX, XLS or ODS.
    Workbook(WorkbookFormat),
    /// A JSON file that is an array of objects, or has one at `at`.
    Json {
        /// A JSON pointer; the whole document if nothing is said.
        pointer: Option<String>,
    },
    /// An object in each line.
    JsonLines,
}

/// What a text such as `=1+1` is in a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FormulaPolicy {
    /// It is written as it is.
    Keep,
    /// It is refused: whoever opens the file would run it.
    #[default]
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkbookFormat {
    Xlsx,
    Xls,
    Ods,
}

impl SourceSettings {
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Sqlite => SourceKind::Sqlite,
            Self::Csv { .. } => SourceKind::Csv,
            Self::Workbook(WorkbookFormat::Xlsx) => SourceKind::Xlsx,
            Self::Workbook(WorkbookFormat::Xls) => SourceKind::Xls,
            Self::Workbook(WorkbookFormat::Ods) => SourceKind::Ods,
            Self::Json { .. } => SourceKind::Json,
            Self::JsonLines => SourceKind::JsonLines,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    Sqlite,
    Csv,
    Xlsx,
    Xls,
    Ods,
    Json,
    JsonLines,
}

impl SourceKind {
    pub const ALL: [Self; 7] =
        [Self::Sqlite, Self::Csv, Self::Xlsx, Self::Xls, Self::Ods, Self::Json, Self::JsonLines];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Csv => "csv",
            Self::Xlsx => "xlsx",
            Self::Xls => "xls",
            Self::Ods => "ods",
            Self::Json => "json",
            Self::JsonLines => "jsonl",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    pub fn is_workbook(self) -> bool {
        matches!(self, Self::Xlsx | Self::Xls | Self::Ods)
    }

    /// Whether there is a way to write such files at all.
    pub fn is_writable(self) -> bool {
        !matches!(self, Self::Xls | Self::Ods)
    }

    /// The ending of a path says it, in any case.
    pub fn from_path(path: &str) -> Option<Self> {
        match file_extension(path).as_str() {
            "csv" | "tsv" => Some(Self::Csv),
            "db" | "sqlite" | "sqlite3" => Some(Self::Sqlite),
            "xlsx" | "xlsm" => Some(Self::Xlsx),
            "xls" => Some(Self::Xls),
            "ods" => Some(Self::Ods),
            "json" => Some(Self::Json),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// `[collections.NAME]`
#[derive(Debug, Clone)]
pub struct Collection {
    pub name: Located<String>,
    /// One of [`Manifest::sources`]. Stands at the collection's name if there is only one and none is said.
    pub source: Located<String>,
    /// Without one, the collection's name; a file has only one. `sheet` is another word for it.
    pub table: Option<Located<String>>,
    /// The row of a sheet that has the names, from 1; the first one that has any if nothing is said.
    pub header_row: Option<u32>,
    /// Columns; none said is empty.
    pub key: Vec<Located<String>>,
    pub description: Option<String>,
    /// What is said, at least one; else all that the collection can do.
    pub operations: Option<Vec<Located<Operation>>>,
    pub filters: FieldSelection,
    pub sort: FieldSelection,
    pub rows_max: u32,
    pub bytes_max: u32,
    /// Text that means "no value".
    pub null_text: Option<String>,
    pub fields: Vec<Field>,
    /// What a search looks into.
    pub search: FieldSelection,
    /// A search without an index looks at no more rows than this.
    pub search_rows_max: u32,
    /// The column whose number grows with every update; without one, a row is told from another state of it by
    /// its contents.
    pub version: Option<Located<String>>,
    /// Whether `update` and `delete` must be told which state of the row they mean.
    pub version_required: bool,
    /// Whether the user is asked before `update` and `delete`.
    pub confirm: Confirm,
}

/// Whether the user is asked before something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confirm {
    #[default]
    Never,
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Get,
    List,
    Search,
    Create,
    Update,
    Delete,
}

impl Operation {
    pub const ALL: [Self; 6] =
        [Self::Get, Self::List, Self::Search, Self::Create, Self::Update, Self::Delete];
    /// What a collection has where nothing is said: reading is the default, writing is named.
    pub const DEFAULT: [Self; 2] = [Self::Get, Self::List];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Search => "search",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Delete)
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == name)
    }
}

/// Which of the columns: `true`, `false`, or some by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FieldSelection {
    #[default]
    Default,
    All,
    None,
    Only(Vec<Located<String>>),
}

/// `[collections.NAME.fields]`: what there is to say about a column.
#[derive(Debug, Clone)]
pub struct Field {
    /// As the source names it.
    pub column: Located<String>,
    pub data_type: Option<Located<DataType>>,
    /// One of [`FORMATS`].
    pub format: Option<Located<&'static str>>,
    pub description: Option<String>,
    /// The only values there may be, all of one sort; empty if nothing is said.
    pub allowed: Vec<Located<Literal>>,
    pub hidden: bool,
    /// Never written to logs, recordings or the call log.
    pub sensitive: bool,
    /// As callers see it.
    pub name: Option<Located<String>>,
    /// Text that means "no value".
    pub null_text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Literal {
    Text(String),
    Integer(i64),
    /// A fraction, in digits. Only as a default.
    Number(String),
    /// Only as a default.
    Boolean(bool),
}

/// The formats of JSON Schema that are checked.
pub const FORMATS: [&str; 14] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "ipv4",
    "ipv6",
    "iri",
    "json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uuid",
];

/// `[tools.NAME]`: another name or description for what is generated, or a statement of the author's own.
#[derive(Debug, Clone)]
pub struct Tool {
    pub name: Located<String>,
    pub body: ToolBody,
    pub description: Option<String>,
    pub title: Option<String>,
    /// How a row reads in the text of a result, with `{field}` where values go. One line.
    pub text_template: Option<Located<String>>,
    /// Leaves the tool out.
    pub hidden: bool,
    /// For each caller.
    pub rate_limit: Option<RateLimit>,
    pub call_timeout_ms: Option<u64>,
    /// Progress is sent whenever the caller wants it.
    pub long_running: bool,
    /// What its collection says if nothing is said here.
    pub confirm: Option<Confirm>,
}

/// What a tool does.
#[derive(Debug, Clone)]
pub enum ToolBody {
    /// `uses = "customers.get"`
    Uses(Located<CollectionOperation>),
    /// `sql = "select …"`
    Statement(Box<Statement>),
}

/// A statement of the author's own, prepared and typed when the manifest is compiled.
#[derive(Debug, Clone)]
pub struct Statement {
    /// One of [`Manifest::sources`].
    pub source: Located<String>,
    pub sql: Located<String>,
    pub arguments: Vec<Argument>,
    /// Without this, a statement that would write is an error.
    pub writes: bool,
    /// A statement that changes more rows than this is undone.
    pub changes_max: u32,
    pub returns: Returns,
    /// What there is to say about columns of the result.
    pub fields: Vec<Field>,
    pub rows_max: u32,
    pub bytes_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Returns {
    /// `items`, as a list does.
    #[default]
    Many,
    /// One record; none is `not_found`.
    One,
}

/// `arguments.since = { type = "string", format = "date" }`
#[derive(Debug, Clone)]
pub struct Argument {
    /// As it stands in the statement, without the colon.
    pub name: Located<String>,
    pub data_type: DataType,
    pub format: Option<Located<&'static str>>,
    pub description: Option<String>,
    pub allowed: Vec<Located<Literal>>,
    /// An optional argument that is left out is NULL, or this, which fits its kind: an integer for
    /// [`Kind::Integer`], a number or an integer for [`Kind::Number`], a boolean for [`Kind::Boolean`], a text for
    /// the rest.
    pub default: Option<Literal>,
    pub required: bool,
}

/// `customers.get`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollectionOperation {
    pub collection: String,
    pub operation: Operation,
}

/// Reads a manifest. `${VAR}` is asked of `env`. What is told stands in the order of the text; a manifest
/// comes with its warnings, and errors come with theirs.
pub fn parse(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    if text.len() > TEXT_BYTES_MAX {
        let mebibytes = TEXT_BYTES_MAX >> 20;
        return Err(vec![Diagnostic::error(format!("`{file_name}` is longer than {mebibytes} MiB"))]);
    }
    let origin = Arc::new(FileText::new(file_name, text));
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = ManifestReader::new(Arc::clone(&origin), env);
    let manifest = match syntax::check_syntax(&origin, &errors) {
        SyntaxCheck::Readable(twice) => {
            reader.diagnostics = twice;
            sections::parse_manifest(&mut reader, &document)
        }
        // What could not be read would be missed a second time.
        SyntaxCheck::Broken(why) => {
            let told = sort_and_truncate(why).into_iter();
            return Err(told.map(|one| Diagnostic { code: Some("manifest"), ..one }).collect());
        }
    };
    let mut found = sort_and_truncate(reader.diagnostics);
    found.iter_mut().for_each(|one| one.code = Some("manifest"));
    if found.iter().any(|one| one.severity == Severity::Error) { Err(found) } else { Ok((manifest, found)) }
}

/// By place, one for each, and no more than a person reads.
fn sort_and_truncate(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by_key(|one| one.location.as_ref().map_or(0, |at| at.span().start));
    found.dedup();
    if found.len() > DIAGNOSTICS_MAX {
        let more = found.len() - DIAGNOSTICS_MAX;
        // Errors first: a manifest must not pass because its error was one too many.
        found.sort_by_key(|one| one.severity);
        found.truncate(DIAGNOSTICS_MAX);
        found.push(Diagnostic::note(format!("and {more} more")));
    }
    found
}

/// In lower case, without the dot.
fn file_extension(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.rsplit_once('.').map_or_else(String::new, |(_, ending)| ending.to_lowercase())
}
