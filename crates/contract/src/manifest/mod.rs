//! The manifest, `spile.toml`: its types and its parser.
//!
//! [`parse`] reports every error that can be found in the text alone, at once. The compiler checks the rest, such as
//! whether a source has the table; whatever it may object to has its location.

mod access;
mod collections;
pub mod keys;
mod links;
mod rate;
mod reader;
mod reference;
mod resources;
pub mod rest;
mod rest_sections;
mod schema;
mod sections;
mod sources;
mod syntax;
mod toml_errors;
mod tools;
mod variables;

use std::path::PathBuf;
use std::sync::Arc;

use encoding_rs::Encoding;
/// `rate_limit = "60/min"`
pub use spile_core::RateLimit;
use toml::de::DeTable;

use crate::TimeZone;
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation, FileText, Located, Severity};
use crate::infer::DeclaredFormats;
use crate::source::{DatabaseEngine, Secret, SourceLocation, WriteCapabilities};
pub use access::{
    ALTERNATIVES_MAX, Assignment, ClaimCondition, CollectionAccess, FieldAccess, ItemAccess, Operand, Role,
    RoleCondition, RowCondition, RowTest,
};
use reader::ManifestReader;
pub use reference::{EXAMPLE, reference};
pub use rest::{CollectionEndpoints, Request, RestSettings};
pub use schema::schema;
use syntax::SyntaxCheck;
pub(crate) use tools::{enum_help, is_enum_value};

/// The maximum size of a manifest.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// Further diagnostics are only counted.
pub const DIAGNOSTICS_MAX: usize = 50;

pub const ROWS_MAX_DEFAULT: u32 = 100;
pub const ROWS_MAX_LIMIT: u32 = 1000;
pub const BYTES_MAX_DEFAULT: u32 = 64 << 10;
pub const BYTES_MAX_MINIMUM: u32 = 1 << 10;
pub const BYTES_MAX_LIMIT: u32 = 1 << 20;
pub const CALL_TIMEOUT_MS_LIMIT: u64 = 24 * 60 * 60 * 1000;
pub const SEARCH_ROWS_MAX_DEFAULT: u32 = 100_000;
pub const SEARCH_ROWS_MAX_LIMIT: u32 = 10_000_000;
pub const LINK_ROWS_MAX_DEFAULT: u32 = 20;
pub const LINK_ROWS_MAX_LIMIT: u32 = 1000;
pub const CHANGES_MAX_DEFAULT: u32 = 1;
pub const CHANGES_MAX_LIMIT: u32 = 100_000;
/// The number of rows of the largest sheet.
pub const HEADER_ROW_LIMIT: u32 = 1_048_576;
/// No more rows than this have names of columns.
pub const HEADER_HEIGHT_LIMIT: u32 = 5;

#[derive(Debug, Clone, Default)]
pub struct Manifest {
    pub server: Server,
    /// Sources, collections and tools are in the order of the text.
    pub sources: Vec<Source>,
    pub collections: Vec<Collection>,
    pub tools: Vec<Tool>,
    pub resources: Vec<Resource>,
    /// In the order of the text: the first that a caller has is the caller's role. Empty: everybody may do everything.
    pub roles: Vec<Role>,
    /// Of tools of the manifest and of code.
    pub tool_access: Vec<ItemAccess>,
    pub resource_access: Vec<ItemAccess>,
    pub prompt_access: Vec<ItemAccess>,
    pub permissions: Permissions,
    /// Whether the folder offers more than data, so that there need not be any. Not a key: the code that reads the folder sets it.
    pub may_be_empty: bool,
    /// How many tables a generated manifest leaves out, because there are too many.
    pub tables_left_out: usize,
}

/// `[permissions]`: what the code in `tools/` may reach.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    pub network: Vec<Located<String>>,
    pub files: DeclaredFolders,
    pub writable_files: DeclaredFolders,
    pub env: Vec<Located<String>>,
    pub secrets: Vec<Located<String>>,
    /// Names of sources.
    pub sql: Vec<Located<String>>,
    /// Names of tools that may use `eval`.
    pub eval: Vec<Located<String>>,
}

/// Folders that code may use.
#[derive(Debug, Clone)]
pub enum DeclaredFolders {
    /// Inside the folder of the manifest.
    Named(Vec<Located<String>>),
    /// The roots of the client.
    ClientRoots,
}

impl DeclaredFolders {
    pub fn named(&self) -> &[Located<String>] {
        match self {
            Self::Named(folders) => folders,
            Self::ClientRoots => &[],
        }
    }

    pub fn are_client_roots(&self) -> bool {
        matches!(self, Self::ClientRoots)
    }
}

impl Default for DeclaredFolders {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

#[derive(Debug, Clone, Default)]
pub struct Server {
    /// `None`: the name of the folder or file.
    pub name: Option<String>,
    pub title: Option<String>,
    pub instructions: Option<String>,
    pub call_timeout_ms: Option<u64>,
    /// For all callers and tools together.
    pub rate_limit: Option<RateLimit>,
    /// `None`: on.
    pub backups: Option<bool>,
    /// `None`: a quarter of the machine's memory.
    pub memory_bytes_max: Option<u64>,
    /// Where days begin, for timestamps with a time zone. `None`: in UTC.
    pub time_zone: Option<TimeZone>,
    /// Tools that are listed first.
    pub tool_order: Vec<Located<String>>,
    /// `None`: [`CodeIsolation::Thread`].
    pub isolation: Option<CodeIsolation>,
}

/// Where the code of a folder runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CodeIsolation {
    #[default]
    Thread,
    Process,
}

/// `[resources.NAME]`
#[derive(Debug, Clone)]
pub struct Resource {
    pub name: Located<String>,
    pub origin: ResourceOrigin,
    /// `None` only for a file.
    pub uri: Option<Located<String>>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub listed: Option<bool>,
    pub audience: Vec<spile_core::Role>,
    /// From 0 to 1, as a JSON number.
    pub priority: Option<String>,
    /// By variable of the URI.
    pub completions: Vec<(Located<String>, ResourceCompletion)>,
}

/// Where the content of a resource comes from.
#[derive(Debug, Clone)]
pub enum ResourceOrigin {
    /// Inside `resources/`.
    File(Located<String>),
    Collection(Located<String>),
    /// Relative to the manifest.
    Script(Located<String>),
}

/// Where the suggestions for a variable come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceCompletion {
    Values(Vec<String>),
    Collection { collection: String, field: String },
    Files { folder: String },
}

/// `[sources.NAME]`
#[derive(Debug, Clone)]
pub struct Source {
    pub name: Located<String>,
    pub location: Located<SourceLocation>,
    pub settings: SourceSettings,
}

/// The kind of a source, and its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSettings {
    Sqlite,
    Csv {
        /// ASCII; `None` to detect it.
        delimiter: Option<u8>,
        /// `None` to detect it.
        encoding: Option<&'static Encoding>,
        /// The text that means NULL.
        null_texts: Vec<String>,
        formulas: FormulaPolicy,
    },
    /// A workbook: XLSX, XLS or ODS.
    Workbook(WorkbookFormat),
    /// A JSON file that is an array of objects, or has one at `pointer`.
    Json {
        /// `None`: the whole document.
        pointer: Option<String>,
    },
    /// One object per line.
    JsonLines,
    Parquet,
    /// PostgreSQL, MySQL or MariaDB.
    Database(DatabaseSettings),
    Rest(Box<RestSettings>),
}

/// How to reach a database, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSettings {
    pub engine: DatabaseEngine,
    /// Instead of a password in the URL.
    pub password: Option<DatabasePassword>,
    /// Certificates of authorities to trust instead of those of the system, relative to the manifest.
    pub ca_file: Option<PathBuf>,
    /// Empty: those that the role finds without naming them.
    pub schemas: Vec<String>,
    pub connections_max: Option<u32>,
    /// Whether a role that could write is refused.
    pub require_readonly_role: bool,
    /// Who callers are in the database. `None`: it does not know them.
    pub identity: Option<IdentitySettings>,
}

/// The role and the settings of each transaction, from the claims of its caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentitySettings {
    /// A JSON pointer into the claims. `None`: the role of the connection.
    pub role_from: Option<String>,
    /// Names of settings with their values.
    pub settings: Vec<(String, Operand)>,
}

/// Where the password of a database comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabasePassword {
    Text(Secret),
    /// Relative to the manifest. Blanks at the end do not count.
    File(PathBuf),
    /// The name of a secret in the keyring of the desktop.
    Keyring(String),
}

impl DatabaseSettings {
    pub fn new(engine: DatabaseEngine) -> Self {
        Self {
            engine,
            password: None,
            ca_file: None,
            schemas: Vec::new(),
            connections_max: None,
            require_readonly_role: false,
            identity: None,
        }
    }
}

/// Whether a text such as `=1+1` may be written to a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FormulaPolicy {
    Keep,
    /// A spreadsheet that opens the file would run it.
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
            Self::Parquet => SourceKind::Parquet,
            Self::Database(settings) => settings.engine.into(),
            Self::Rest(_) => SourceKind::Rest,
        }
    }
}

impl From<DatabaseEngine> for SourceKind {
    fn from(engine: DatabaseEngine) -> Self {
        match engine {
            DatabaseEngine::Postgres => Self::Postgres,
            DatabaseEngine::MySql => Self::MySql,
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
    Parquet,
    Postgres,
    MySql,
    Rest,
}

impl SourceKind {
    pub const ALL: [Self; 11] = [
        Self::Sqlite,
        Self::Csv,
        Self::Xlsx,
        Self::Xls,
        Self::Ods,
        Self::Json,
        Self::JsonLines,
        Self::Parquet,
        Self::Postgres,
        Self::MySql,
        Self::Rest,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Csv => "csv",
            Self::Xlsx => "xlsx",
            Self::Xls => "xls",
            Self::Ods => "ods",
            Self::Json => "json",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::Rest => "rest",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The engine of a database behind a URL.
    pub fn engine(self) -> Option<DatabaseEngine> {
        match self {
            Self::Postgres => Some(DatabaseEngine::Postgres),
            Self::MySql => Some(DatabaseEngine::MySql),
            _ => None,
        }
    }

    /// Whether it has tables with names, and runs SQL.
    pub fn is_database(self) -> bool {
        self == Self::Sqlite || self.engine().is_some()
    }

    pub fn is_workbook(self) -> bool {
        matches!(self, Self::Xlsx | Self::Xls | Self::Ods)
    }

    /// What can be done with writes to such a source, at best: a single table may be read-only.
    pub fn write_capabilities(self) -> WriteCapabilities {
        match self {
            Self::Sqlite | Self::Csv | Self::Xlsx | Self::Json | Self::JsonLines => WriteCapabilities::ALL,
            Self::Postgres | Self::MySql => WriteCapabilities::ALL,
            Self::Rest => WriteCapabilities::IDEMPOTENCY,
            Self::Xls | Self::Ods | Self::Parquet => WriteCapabilities::NONE,
        }
    }

    pub fn is_read_only(self) -> bool {
        self.write_capabilities() == WriteCapabilities::NONE
    }

    /// The kind from the extension of a path, ignoring case.
    pub fn from_path(path: &str) -> Option<Self> {
        match file_extension(path).as_str() {
            "csv" | "tsv" => Some(Self::Csv),
            "db" | "sqlite" | "sqlite3" => Some(Self::Sqlite),
            "xlsx" | "xlsm" => Some(Self::Xlsx),
            "xls" => Some(Self::Xls),
            "ods" => Some(Self::Ods),
            "json" => Some(Self::Json),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            "parquet" | "pq" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// `[collections.NAME]`
#[derive(Debug, Clone)]
pub struct Collection {
    pub name: Located<String>,
    /// One of [`Manifest::sources`]. At the location of the collection's name if the author omits it.
    pub source: Located<String>,
    /// `table` or `sheet`. `None`: the collection's name, or the only table.
    pub table: Option<Located<String>>,
    pub layout: DeclaredLayout,
    /// Columns; empty if the author omits it.
    pub key: Vec<Located<String>>,
    pub description: Option<String>,
    /// At least one. `None`: [`Operation::DEFAULT`].
    pub operations: Option<Vec<Located<Operation>>>,
    pub filters: FieldSelection,
    pub sort: FieldSelection,
    /// What an aggregate can group by.
    pub group: FieldSelection,
    /// What an aggregate can add up, average and compare.
    pub measures: FieldSelection,
    pub rows_max: u32,
    pub bytes_max: u32,
    /// The texts that mean NULL in every column.
    pub null_texts: Vec<String>,
    /// How the values of columns are written. A column that does not fit stays text.
    pub formats: DeclaredFormats,
    pub fields: Vec<Field>,
    pub search: FieldSelection,
    /// The maximum number of rows that a search without an index scans.
    pub search_rows_max: u32,
    /// The integer column that every update increments. `None`: versions are digests of the row.
    pub version: Option<Located<String>>,
    /// Whether `update` and `delete` require `expected_version`.
    pub version_required: bool,
    /// Whether the user must approve `update` and `delete`.
    pub confirm: Confirm,
    /// Links to other collections.
    pub related: Vec<DeclaredLink>,
    /// What each role may do with it, in the order of the text.
    pub access: Vec<CollectionAccess>,
    /// Of a collection of a REST API.
    pub endpoints: CollectionEndpoints,
}

/// `[collections.NAME.related.NAME]`: a link to the rows of another collection.
#[derive(Debug, Clone)]
pub struct DeclaredLink {
    pub name: Located<String>,
    /// `None`: the target of a foreign key.
    pub collection: Option<Located<String>>,
    /// Columns of this collection and of the other one; empty for those of a foreign key.
    pub by: Vec<(Located<String>, Located<String>)>,
    /// Columns of the other collection, with `-` for descending.
    pub sort: Vec<Located<String>>,
    pub rows_max: u32,
    /// Removes the link that a foreign key makes.
    pub hidden: bool,
}

/// Where the table is on a sheet or in a CSV file. What the author omits is detected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeclaredLayout {
    /// The first row with column names, from 1; in a CSV file, its line.
    pub header_row: Option<u32>,
    /// How many rows the column names take.
    pub header_rows: Option<u32>,
    /// How many rows or lines before the table are not part of it.
    pub skip_rows: Option<u32>,
    /// How many rows at the end are not part of it.
    pub footer_rows: Option<u32>,
    /// The table ends before the first row whose first cell is this text: see [`is_stop_text`].
    pub stop_at: Option<String>,
    /// Whether a line of a CSV file may lack fields at its end, which then have no value.
    pub short_rows: bool,
    /// Columns in which a blank cell has the value of the row above.
    pub fill_down: Vec<String>,
}

impl DeclaredLayout {
    /// Whether rows have values that are not in the file where they are read: then it is not written.
    pub fn completes_rows(&self) -> bool {
        self.short_rows || !self.fill_down.is_empty()
    }
}

/// Whether a cell is the text of `stop_at`. `Total` does not stand for `Total Sales`; `Total*` does.
pub fn is_stop_text(stop_at: &str, cell: &str) -> bool {
    let (stop_at, cell) = (stop_at.trim(), cell.trim());
    match stop_at.strip_suffix('*') {
        Some(start) => cell.starts_with(start),
        None => cell == stop_at,
    }
}

/// Why a table whose rows are completed cannot be written: a clause for the owner of the data.
pub const COMPLETED_ROWS_REASON: &str = "its rows are completed when they are read (`short_rows`, `fill_down`), so a write could not find its place";

/// Whether the user must approve a write.
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
    Aggregate,
    Create,
    Update,
    Delete,
}

impl Operation {
    pub const ALL: [Self; 7] =
        [Self::Get, Self::List, Self::Search, Self::Aggregate, Self::Create, Self::Update, Self::Delete];
    /// The operations of a collection without `operations`; `get` needs a key and `search` a text field. Writing must be
    /// listed explicitly.
    pub const DEFAULT: [Self; 4] = [Self::Get, Self::List, Self::Search, Self::Aggregate];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Search => "search",
            Self::Aggregate => "aggregate",
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

/// A selection of fields: `true`, `false`, or names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FieldSelection {
    #[default]
    Default,
    All,
    None,
    Only(Vec<Located<String>>),
}

/// `[collections.NAME.fields]`: the settings of one column.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name in the source.
    pub column: Located<String>,
    pub data_type: Option<Located<DataType>>,
    /// One of [`FORMATS`].
    pub format: Option<Located<&'static str>>,
    pub description: Option<String>,
    /// The allowed values, all texts or all integers; empty if the author omits it.
    pub allowed: Vec<Located<Literal>>,
    pub hidden: bool,
    /// Never written to logs, recordings or the call log.
    pub sensitive: bool,
    /// Where the author asks for the column's current values in descriptions.
    pub show_values: Option<FileLocation>,
    /// The name that callers use.
    pub name: Option<Located<String>>,
    /// The texts that mean NULL. `None`: those of the collection.
    pub null_texts: Option<Vec<String>>,
    /// How its values are written, at the location of the first of the keys. Every value must fit.
    pub formats: Option<Located<DeclaredFormats>>,
    /// Whether a blank cell has the value of the row above.
    pub fill_down: bool,
    /// A JSON pointer to a value inside nested JSON, which becomes a column.
    pub path: Option<Located<String>>,
    /// Whether every record has a value. Only for REST APIs.
    pub required: Option<Located<bool>>,
    /// Whether the API sets the value itself. Only for REST APIs.
    pub read_only: Option<Located<bool>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Literal {
    Text(String),
    Integer(i64),
    /// The digits of a fraction. Only as a default.
    Number(String),
    /// Only as a default.
    Boolean(bool),
}

/// The formats of JSON Schema that are validated.
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

/// `[tools.NAME]`: a generated tool under another name, a statement, or a request.
#[derive(Debug, Clone)]
pub struct Tool {
    pub name: Located<String>,
    pub body: ToolBody,
    pub description: Option<String>,
    pub title: Option<String>,
    /// A template for the text of a row. One line.
    pub text_template: Option<Located<String>>,
    /// Removes the tool.
    pub hidden: bool,
    /// For each caller.
    pub rate_limit: Option<RateLimit>,
    pub call_timeout_ms: Option<u64>,
    pub long_running: bool,
    /// `None`: as its collection.
    pub confirm: Option<Confirm>,
}

/// Where a tool's operation comes from.
#[derive(Debug, Clone)]
pub enum ToolBody {
    /// `uses = "customers.get"`
    Uses(Located<CollectionOperation>),
    /// `sql = "select …"`
    Statement(Box<Statement>),
    /// `request = { path = "/orders" }`
    Request(Box<Request>),
}

/// An SQL statement, prepared and typed at compile time.
#[derive(Debug, Clone)]
pub struct Statement {
    /// One of [`Manifest::sources`].
    pub source: Located<String>,
    pub sql: Located<String>,
    pub arguments: Vec<Argument>,
    /// If `false`, a statement that writes is an error.
    pub writes: bool,
    /// A statement that changes more rows is rolled back.
    pub changes_max: u32,
    pub returns: Returns,
    /// Settings of the result's columns.
    pub fields: Vec<Field>,
    pub rows_max: u32,
    pub bytes_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Returns {
    /// `items`, as in a list.
    #[default]
    Many,
    /// One row, or `not_found`.
    One,
}

/// `arguments.since = { type = "string", format = "date" }`
#[derive(Debug, Clone)]
pub struct Argument {
    /// As in the statement, without the colon.
    pub name: Located<String>,
    pub data_type: DataType,
    pub format: Option<Located<&'static str>>,
    pub description: Option<String>,
    pub allowed: Vec<Located<Literal>>,
    /// The value of an omitted argument; `None` is NULL. Fits the type: an integer for [`DataType::Integer`], a number
    /// or an integer for [`DataType::Number`], a boolean for [`DataType::Boolean`], a text for the others.
    pub default: Option<Literal>,
    pub required: bool,
    /// Whether callers may pass `null`, and where that is said. Only for a required argument of a request.
    pub nullable: Option<FileLocation>,
}

/// `customers.get`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollectionOperation {
    pub collection: String,
    pub operation: Operation,
}

/// Parses a manifest, with `env` for `${VAR}`. Returns the manifest with its warnings, or all errors and warnings, in
/// the order of the text.
pub fn parse(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    if text.len() > TEXT_BYTES_MAX {
        let mebibytes = TEXT_BYTES_MAX >> 20;
        return Err(vec![Diagnostic::error(format!("`{file_name}` exceeds the limit of {mebibytes} MiB"))]);
    }
    let origin = Arc::new(FileText::new(file_name, text));
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = ManifestReader::new(Arc::clone(&origin), env);
    let manifest = match syntax::check_syntax(&origin, &errors) {
        SyntaxCheck::Readable(duplicates) => {
            reader.diagnostics = duplicates;
            sections::parse_manifest(&mut reader, &document)
        }
        // Keys that could not be read would be reported as missing, too.
        SyntaxCheck::Broken(errors) => {
            let errors = sort_and_truncate(errors).into_iter();
            return Err(errors.map(|one| Diagnostic { code: Some("manifest"), ..one }).collect());
        }
    };
    let mut found = sort_and_truncate(reader.diagnostics);
    found.iter_mut().for_each(|one| one.code = Some("manifest"));
    if found.iter().any(|one| one.severity == Severity::Error) { Err(found) } else { Ok((manifest, found)) }
}

/// Sorts by location, removes duplicates and truncates.
fn sort_and_truncate(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by_key(|one| one.location.as_ref().map_or(0, |at| at.span().start));
    found.dedup();
    if found.len() > DIAGNOSTICS_MAX {
        let more = found.len() - DIAGNOSTICS_MAX;
        // Errors first: truncating must not turn an invalid manifest into a valid one.
        found.sort_by_key(|one| one.severity);
        found.truncate(DIAGNOSTICS_MAX);
        found.push(Diagnostic::note(format!("and {more} more")));
    }
    found
}

/// In lower case and without the dot.
fn file_extension(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.rsplit_once('.').map_or_else(String::new, |(_, ending)| ending.to_lowercase())
}
