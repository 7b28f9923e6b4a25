//! The table of manifest keys: names, types, limits and help.
//!
//! The parser accepts only these keys and takes limits and words from this table. The [JSON Schema](super::schema) for
//! editors and the [reference](super::reference) are generated from it.

mod access;
mod permissions;
mod related;
mod resource;
mod rest;
mod server;
mod tool;

use super::{
    BYTES_MAX_DEFAULT, BYTES_MAX_LIMIT, BYTES_MAX_MINIMUM, CALL_TIMEOUT_MS_LIMIT, CHANGES_MAX_LIMIT, FORMATS,
    HEADER_HEIGHT_LIMIT, HEADER_ROW_LIMIT, LINK_ROWS_MAX_LIMIT, Operation, ROWS_MAX_LIMIT,
    SEARCH_ROWS_MAX_LIMIT, SourceKind,
};
use crate::data_type::DataType;
use crate::names;
pub use access::{COLLECTION_ACCESS, ITEM_ACCESS, PROMPT, ROLE};
pub use permissions::PERMISSIONS;
pub use related::RELATED;
pub use resource::{COMPLETION, RESOURCE};
pub use rest::{AUTH, AUTH_HEADER, BASIC, CLIENT_CREDENTIALS, GET, LIST, PAGE, REQUEST, WRITE};
pub use server::SERVER;
pub use tool::{ARGUMENT, TOOL};

/// A TOML table of a manifest.
#[derive(Debug)]
pub struct Section {
    /// The header, with `NAME` for the author's name.
    pub header: &'static str,
    pub description: &'static str,
    pub keys: &'static [Key],
}

#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub value_type: ValueType,
    /// One or two sentences for the author.
    pub description: &'static str,
    /// The default, in words; empty if there is none.
    pub default_text: &'static str,
    /// An example value, in TOML.
    pub example: &'static str,
    /// Names for this key in other tools, for suggestions.
    pub aliases: &'static [&'static str],
    pub applies_to: AppliesTo,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    Text(TextLength),
    /// A text in which variables are not replaced.
    Sql,
    /// One of several words.
    OneOf(fn() -> Vec<&'static str>),
    /// An array of distinct words.
    SomeOf(fn() -> Vec<&'static str>),
    Boolean,
    Integer {
        min: u64,
        max: u64,
    },
    /// `60/min`
    Rate,
    /// The name of a column, or an array of them.
    Columns,
    /// A text, or an array of distinct texts. May be empty.
    Texts,
    /// `true`, `false`, or an array of field names.
    FieldSelection,
    /// Columns of one table, each with a column of another: `{ customer_id = "id" }`.
    ColumnPairs,
    /// Texts by name: `{ status = "state" }`.
    TextPairs,
    /// Any value, with `{name}` for arguments.
    JsonTemplate,
    /// An array of names.
    Names,
    /// An array of folders, or `{ roots = "client" }`.
    Folders,
    /// An array of texts or of integers.
    Literals,
    /// A text, a number, `true` or `false`.
    Literal,
    /// `"anyone"`, or JSON pointers into the claims, each with the values that it may have.
    ClaimConditions,
    /// Fields with the values that rows must have; or an array of such tables, of which one is enough.
    RowConditions,
    /// Fields with the values that the server sets.
    Assignments,
    Table(&'static Section),
    /// Tables by name.
    NamedTables(&'static Section, NameRule),
}

/// The maximum number of characters of a text, and whether it may be empty.
#[derive(Debug, Clone, Copy)]
pub enum TextLength {
    Any(usize),
    NonEmpty(usize),
    NonBlank(usize),
}

/// Which names are valid.
#[derive(Debug, Clone, Copy)]
pub enum NameRule {
    /// Names of columns in a source.
    Any,
    Collection,
    Tool,
    Argument,
}

/// Where a key is valid.
#[derive(Debug, Clone, Copy)]
pub enum AppliesTo {
    Everywhere,
    SourceKinds(&'static [SourceKind]),
    /// Tools with `sql`.
    Statements,
    /// Tools with `sql` or `request`.
    StatementsAndRequests,
    /// Tools with `request`.
    Requests,
}

impl Section {
    /// Panics if the parser asks for a key that is not in the table.
    pub(super) fn key(&self, name: &str) -> &'static Key {
        let found = self.keys.iter().find(|key| key.name == name);
        found.unwrap_or_else(|| unreachable!("the table of keys for {} has no `{name}`", self.header))
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

impl NameRule {
    /// As a regular expression.
    pub fn pattern(self) -> String {
        let (letters, chars_max) = match self {
            Self::Any => return "".into(),
            Self::Collection => ("A-Za-z0-9_", names::COLLECTION_CHARS_MAX),
            Self::Tool => ("A-Za-z0-9_-", names::TOOL_CHARS_MAX),
            Self::Argument => {
                return format!("^[A-Za-z_][A-Za-z0-9_]{{0,{}}}$", names::ARGUMENT_CHARS_MAX - 1);
            }
        };
        format!("^[{letters}]{{1,{chars_max}}}$")
    }
}

impl Key {
    const fn new(name: &'static str, value_type: ValueType, description: &'static str) -> Self {
        Self {
            name,
            value_type,
            description,
            default_text: "",
            example: "",
            aliases: &[],
            applies_to: AppliesTo::Everywhere,
        }
    }

    const fn default_text(self, default_text: &'static str) -> Self {
        Self { default_text, ..self }
    }

    const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn applies_to(self, applies_to: AppliesTo) -> Self {
        Self { applies_to, ..self }
    }
}

/// Joins two lists of keys.
const fn concat<const A: usize, const B: usize, const N: usize>(a: [Key; A], b: [Key; B]) -> [Key; N] {
    assert!(A + B == N, "the length of the joined list");
    let (mut keys, mut at) = ([a[0]; N], 0);
    while at < N {
        keys[at] = if at < A { a[at] } else { b[at - A] };
        at += 1;
    }
    keys
}

const TITLE: ValueType = ValueType::Text(TextLength::NonBlank(200));
const DESCRIPTION: ValueType = ValueType::Text(TextLength::NonBlank(4000));
/// Names of columns and tables of a source, and values in them.
pub(super) const COLUMN_CHARS_MAX: usize = 4000;
const COLUMN: ValueType = ValueType::Text(TextLength::NonEmpty(COLUMN_CHARS_MAX));
const VALUE: ValueType = ValueType::Text(TextLength::Any(COLUMN_CHARS_MAX));
pub(super) const SQL_CHARS_MAX: usize = 20_000;
const TIMEOUT: ValueType = ValueType::Integer { min: 1, max: CALL_TIMEOUT_MS_LIMIT };
const ROWS: ValueType = ValueType::Integer { min: 1, max: ROWS_MAX_LIMIT as u64 };
const BYTES: ValueType = ValueType::Integer { min: BYTES_MAX_MINIMUM as u64, max: BYTES_MAX_LIMIT as u64 };
const WORKBOOKS: AppliesTo = AppliesTo::SourceKinds(&[SourceKind::Xlsx, SourceKind::Xls, SourceKind::Ods]);
const CSV: AppliesTo = AppliesTo::SourceKinds(&[SourceKind::Csv]);
/// Files whose rows people lay out themselves.
const SHEETS: AppliesTo =
    AppliesTo::SourceKinds(&[SourceKind::Csv, SourceKind::Xlsx, SourceKind::Xls, SourceKind::Ods]);
const FILES: AppliesTo = AppliesTo::SourceKinds(&[
    SourceKind::Csv,
    SourceKind::Xlsx,
    SourceKind::Xls,
    SourceKind::Ods,
    SourceKind::Json,
    SourceKind::JsonLines,
    SourceKind::Parquet,
    SourceKind::Rest,
]);
const NETWORK: AppliesTo =
    AppliesTo::SourceKinds(&[SourceKind::Postgres, SourceKind::MySql, SourceKind::Rest]);
const DATABASES: AppliesTo = AppliesTo::SourceKinds(&[SourceKind::Postgres, SourceKind::MySql]);
const ALL_FILES: AppliesTo = AppliesTo::SourceKinds(&[
    SourceKind::Sqlite,
    SourceKind::Csv,
    SourceKind::Xlsx,
    SourceKind::Xls,
    SourceKind::Ods,
    SourceKind::Json,
    SourceKind::JsonLines,
    SourceKind::Parquet,
]);
const NULL_ALIASES: &[&str] = &["nulls", "na_values", "null_values", "missing"];
const PATH: ValueType = ValueType::Text(TextLength::NonBlank(4000));
const PATTERN: ValueType = ValueType::Text(TextLength::NonBlank(100));
const NUMBER_FORMAT: Key = Key::new(
    "number_format",
    PATTERN,
    "How numbers are written, by an example: 1234, or 1234 and a half. `1.234,50 €`, `$1,234.50`, `12` with `%` as \
     `1234,5 %`, `(1,234.50)` for negative numbers in parentheses.",
)
.default_text("inferred, if every value fits one format only")
.example("\"1.234,50 €\"")
.aliases(&["decimal", "decimal_separator", "thousands", "locale"]);
const DATE_FORMAT: Key = Key::new(
    "date_format",
    PATTERN,
    "How dates are written: `d` or `dd`, `m` or `mm`, `mmm` or `mmmm` for names, `yy` or `yyyy`, then perhaps `hh:mm`, \
     `hh:mm:ss` or `h:mm AM`. The language of names other than English comes last: `d. mmmm yyyy (de)`, `(fr)`, `(es)`.",
)
.default_text("inferred, if every value fits one format only")
.example("\"dd/mm/yyyy\"")
.aliases(&["dateformat", "dayfirst", "day_first", "datetime_format", "timestamp_format"]);
const BOOLEAN_FORMAT: Key =
    Key::new("boolean_format", PATTERN, "The words for true and false, with a `/` between them.")
        .default_text("inferred, if every value is one of two known words")
        .example("\"ja/nein\"")
        .aliases(&["true_values", "false_values", "boolean"]);
const _: () = assert!(BYTES_MAX_DEFAULT == 65_536, "the default text of `bytes_max` says so");

pub static ROOT: Section = Section {
    header: "",
    description: "The tables of a manifest.",
    keys: &[
        Key::new("server", ValueType::Table(&SERVER), "The server itself.")
            .example("{ name = \"customers\" }"),
        Key::new(
            "sources",
            ValueType::NamedTables(&SOURCE, NameRule::Collection),
            "The files and databases to read.",
        )
        .example("{ crm = { path = \"crm.db\" } }"),
        Key::new(
            "collections",
            ValueType::NamedTables(&COLLECTION, NameRule::Collection),
            "Tables, sheets and files to generate tools for.",
        )
        .example("{ customers = { key = \"email\" } }"),
        Key::new(
            "tools",
            ValueType::NamedTables(&TOOL, NameRule::Tool),
            "Your own tools: a generated tool under another name, or an SQL statement.",
        )
        .example("{ find = { uses = \"customers.get\" } }"),
        Key::new(
            "resources",
            ValueType::NamedTables(&RESOURCE, NameRule::Tool),
            "Resources with a URI of their own: files, records of a collection, or what code returns.",
        )
        .example("{ handbook = { file = \"handbook.md\", uri = \"docs://handbook\" } }"),
        Key::new(
            "prompts",
            ValueType::NamedTables(&PROMPT, NameRule::Tool),
            "Who may use the prompts of the folder.",
        )
        .example("{ review = { access = { roles = [\"editor\"] } } }"),
        Key::new(
            "roles",
            ValueType::NamedTables(&ROLE, NameRule::Collection),
            "Who may do what. The first role whose condition a caller fulfils is the caller's role.",
        )
        .example("{ staff = { when = { \"/team\" = \"sales\" } } }"),
        Key::new("permissions", ValueType::Table(&PERMISSIONS), "What the code in `tools/` may reach.")
            .example("{ network = [\"api.example.com\"] }"),
    ],
};

pub static SOURCE: Section = Section {
    header: "[sources.NAME]",
    description: "A file, a database or a REST API. Collections and tools refer to it by its name.",
    keys: &concat::<17, 11, 28>([
        Key::new("kind", ValueType::OneOf(source_kinds), "The kind of file or database, or `rest`.")
            .default_text("from the extension of `path`, or from `url`")
            .example("\"sqlite\"")
            .aliases(&["type", "format", "driver"]),
        Key::new(
            "path",
            ValueType::Text(TextLength::NonBlank(4000)),
            "The path of the file, relative to the manifest. Required for files.",
        )
        .example("\"data/crm.db\"")
        .aliases(&["file", "filename", "location"])
        .applies_to(ALL_FILES),
        Key::new(
            "url",
            ValueType::Text(TextLength::NonBlank(4000)),
            "The URL of the database: user, host, database. Required for databases. A password in it should come from a \
             variable: `${DATABASE_URL}`. For a REST API: scheme, host and path, which no request leaves.",
        )
        .example("\"postgres://reader@db.example.com/shop\"")
        .aliases(&["uri", "dsn", "connection_string", "database_url", "base_url"])
        .applies_to(NETWORK),
        Key::new("password", VALUE, "The password of the database's user, from a variable.")
            .default_text("the one in `url`, else `PGPASSWORD` or `MYSQL_PWD`")
            .example("\"correct horse\"")
            .applies_to(DATABASES),
        Key::new("password_file", PATH, "A file with the password, relative to the manifest.")
            .example("\"/run/secrets/shop\"")
            .applies_to(DATABASES),
        Key::new(
            "password_keyring",
            ValueType::Text(TextLength::NonBlank(200)),
            "The name of the password in the keyring of the desktop.",
        )
        .example("\"shop\"")
        .applies_to(DATABASES),
        Key::new(
            "ca_file",
            PATH,
            "Certificates of authorities to trust for TLS, as PEM, relative to the manifest.",
        )
        .default_text("those of the system")
        .example("\"ca.pem\"")
        .aliases(&["sslrootcert", "ssl_ca"])
        .applies_to(NETWORK),
        Key::new("schemas", ValueType::Texts, "The schemas to serve.")
            .default_text("those that the role finds without naming them")
            .example("[\"sales\"]")
            .aliases(&["schema", "search_path"])
            .applies_to(AppliesTo::SourceKinds(&[SourceKind::Postgres])),
        Key::new(
            "connections_max",
            ValueType::Integer { min: 1, max: 200 },
            "How many calls can use the database at the same time; others wait for a short time.",
        )
        .default_text("8")
        .example("4")
        .aliases(&["pool_size", "max_connections"])
        .applies_to(DATABASES),
        Key::new(
            "require_readonly_role",
            ValueType::Boolean,
            "Whether a role that could write is refused. Such a role is reported in any case.",
        )
        .default_text("`false`")
        .example("true")
        .applies_to(DATABASES),
        Key::new(
            "role_from",
            VALUE,
            "A JSON pointer into the caller's claims: every transaction has the role that it names (`SET LOCAL ROLE`), so that \
             grants and row-level security apply. A caller without the claim is refused.",
        )
        .default_text("the role of the connection")
        .example("\"/db_role\"")
        .aliases(&["role_claim", "role_claim_key"])
        .applies_to(AppliesTo::SourceKinds(&[SourceKind::Postgres])),
        Key::new(
            "settings",
            ValueType::Assignments,
            "Settings of every transaction (`set_config`), which policies read with `current_setting`: names with a dot, each with \
             a value or `{ claim = \"/tenant\" }`. A caller without the claim is refused.",
        )
        .example("{ \"app.tenant\" = { claim = \"/tenant\" } }")
        .applies_to(AppliesTo::SourceKinds(&[SourceKind::Postgres])),
        Key::new("delimiter", VALUE, "The character between fields: one character, or `tab`.")
            .default_text("detected")
            .example("\";\"")
            .aliases(&["separator", "sep"])
            .applies_to(CSV),
        Key::new(
            "encoding",
            VALUE,
            "The encoding of the text, by its name in the [Encoding Standard](https://encoding.spec.whatwg.org/#names-and-labels): \
             `windows-1251`, `shift_jis`, `gb18030` and so on.",
        )
        .default_text("detected: UTF-8, UTF-16, else Windows-1252")
        .example("\"shift_jis\"")
        .aliases(&["charset", "codepage", "character_set"])
        .applies_to(CSV),
        Key::new("null", ValueType::Texts, "The text that means NULL, or several.")
            .example("[\"-\", \"n/a\"]")
            .aliases(NULL_ALIASES)
            .applies_to(CSV),
        Key::new(
            "formulas",
            ValueType::OneOf(|| vec!["refuse", "keep"]),
            "Whether writing a text that a spreadsheet would run as a formula, such as `=1+1`, is refused or \
             allowed.",
        )
        .default_text("`refuse`")
        .example("\"keep\"")
        .applies_to(CSV),
        Key::new(
            "at",
            ValueType::Text(TextLength::Any(COLUMN_CHARS_MAX)),
            "The JSON pointer to the array of rows.",
        )
        .default_text("the whole file")
        .example("\"/data/customers\"")
        .aliases(&["pointer", "jsonpath", "json_path", "root"])
        .applies_to(AppliesTo::SourceKinds(&[SourceKind::Json])),
    ], rest::SOURCE_KEYS),
};

pub static COLLECTION: Section = Section {
    header: "[collections.NAME]",
    description: "A table, sheet or file to generate tools for: `get_NAME`, `list_NAME` and so on.",
    keys: &concat::<30, 5, 35>([
        Key::new("source", COLUMN, "The name of a source.")
            .default_text("the only source")
            .example("\"crm\"")
            .aliases(&["from", "database", "db"]),
        Key::new("table", VALUE, "The table or view.")
            .default_text("the collection's name, or the only table")
            .example("\"customers\"")
            .aliases(&["view"])
            .applies_to(AppliesTo::SourceKinds(&[SourceKind::Sqlite, SourceKind::Postgres, SourceKind::MySql])),
        Key::new("sheet", VALUE, "The sheet of a workbook.")
            .default_text("the collection's name, or the only sheet")
            .example("\"Customers\"")
            .aliases(&["worksheet", "tab"])
            .applies_to(WORKBOOKS),
        Key::new(
            "header_row",
            ValueType::Integer { min: 1, max: HEADER_ROW_LIMIT as u64 },
            "The row with the column names, counted from 1; in a CSV file, its line.",
        )
        .default_text("the first row that is not empty, after titles")
        .example("3")
        .aliases(&["header", "headers"])
        .applies_to(SHEETS),
        Key::new(
            "header_rows",
            ValueType::Integer { min: 0, max: HEADER_HEIGHT_LIMIT as u64 },
            "How many rows the column names take. Names above each other are joined, and a name above several columns \
             counts for each of them. 0 means that the first row is data: the columns are `column_1`, `column_2` and \
             so on.",
        )
        .default_text("1, or 2 where the rows show it")
        .example("2")
        .applies_to(SHEETS),
        Key::new(
            "skip_rows",
            ValueType::Integer { min: 0, max: HEADER_ROW_LIMIT as u64 },
            "How many rows at the top are not part of the table; in a CSV file, lines.",
        )
        .default_text("titles and notes above the table")
        .example("4")
        .aliases(&["skiprows", "skip", "skip_lines"])
        .applies_to(SHEETS),
        Key::new(
            "footer_rows",
            ValueType::Integer { min: 0, max: HEADER_ROW_LIMIT as u64 },
            "How many rows at the end are not part of the table. 0 keeps every row, also rows with totals, above the end that \
             `stop_at` sets.",
        )
        .default_text("totals and notes below the table")
        .example("2")
        .aliases(&["skipfooter", "skip_footer", "footer"])
        .applies_to(SHEETS),
        Key::new(
            "stop_at",
            ValueType::Text(TextLength::NonBlank(COLUMN_CHARS_MAX)),
            "The table ends before the first row whose first cell is this text. A `*` at its end stands for any text.",
        )
        .example("\"Total\"")
        .applies_to(SHEETS),
        Key::new(
            "short_rows",
            ValueType::Boolean,
            "Whether lines may have fewer fields than there are column names. The missing fields have no value, and the \
             file is not written.",
        )
        .default_text("`false`: such a line is an error")
        .example("true")
        .aliases(&["ragged", "flexible"])
        .applies_to(CSV),
        Key::new("key", ValueType::Columns, "The column, or the columns together, that identify a row.")
            .default_text("the primary key, or a column with a unique value in every row")
            .example("\"email\"")
            .aliases(&["primary_key", "id", "keys", "pk"]),
        Key::new("description", DESCRIPTION, "What one row is, in one sentence. Models choose their tools by it.")
            .example("\"People who bought something, one row each.\"")
            .aliases(&["about", "comment"]),
        Key::new(
            "operations",
            ValueType::SomeOf(operations),
            "The allowed operations. Writing must be listed explicitly.",
        )
        .default_text("`[\"get\", \"list\", \"search\", \"aggregate\"]`")
        .example("[\"get\", \"list\", \"aggregate\", \"create\", \"update\", \"delete\"]")
        .aliases(&["methods", "actions", "permissions", "allow"]),
        Key::new(
            "filters",
            ValueType::FieldSelection,
            "The fields that rows can be filtered by. Each becomes an argument of `list`, `search` and `aggregate`, alone or with a suffix such as `_min`.",
        )
        .default_text("all; tools list the first 20")
        .example("[\"plan\", \"signup_date\"]")
        .aliases(&["where"]),
        Key::new("sort", ValueType::FieldSelection, "The fields that a list can be sorted by.")
            .default_text("all")
            .example("[\"signup_date\"]")
            .aliases(&["order_by", "orderby", "sorting"]),
        Key::new(
            "group",
            ValueType::FieldSelection,
            "The fields that rows can be grouped by, dates also by year, quarter, month, week and day. Only with the operation `aggregate`.",
        )
        .default_text("all")
        .example("[\"plan\", \"signup_date\"]")
        .aliases(&["group_by", "groups", "dimensions"]),
        Key::new(
            "measures",
            ValueType::FieldSelection,
            "The fields whose values can be added up, averaged, compared and counted. Rows can always be counted. Only with the operation `aggregate`.",
        )
        .default_text("all")
        .example("[\"total\"]")
        .aliases(&["measure", "metrics", "facts"]),
        Key::new("search", ValueType::FieldSelection, "The fields that a search looks into. Only with the operation `search`.")
            .default_text("the fields with a full-text index, else all text fields")
            .example("[\"name\", \"notes\"]"),
        Key::new(
            "search_rows_max",
            ValueType::Integer { min: 1, max: SEARCH_ROWS_MAX_LIMIT as u64 },
            "The maximum number of rows that a search without an index scans. The result says if there are more.",
        )
        .default_text("100000")
        .example("20000"),
        Key::new("rows_max", ROWS, "The maximum number of rows on one page.")
            .default_text("100")
            .example("200")
            .aliases(&["limit", "max_rows", "page_size"]),
        Key::new("bytes_max", BYTES, "The maximum size of one page, in bytes.")
            .default_text("65536")
            .example("32768")
            .aliases(&["max_bytes"]),
        Key::new("null", ValueType::Texts, "The text that means NULL in every column, or several.")
            .example("[\"-\", \"n/a\"]")
            .aliases(NULL_ALIASES),
        NUMBER_FORMAT.applies_to(FILES),
        DATE_FORMAT.applies_to(FILES),
        BOOLEAN_FORMAT.applies_to(FILES),
        Key::new(
            "version",
            COLUMN,
            "An integer column that every update increments, so that callers do not overwrite changes they have \
             not seen. Only with `update` or `delete`.",
        )
        .default_text("a digest of the row, returned as `_version`")
        .example("\"rev\"")
        .aliases(&["version_column", "etag", "revision"]),
        Key::new(
            "version_required",
            ValueType::Boolean,
            "Whether `update` and `delete` require `expected_version`.",
        )
        .default_text("`false`")
        .example("true"),
        Key::new(
            "confirm",
            ValueType::OneOf(confirm_values),
            "Whether the user must approve each `update` and `delete`. Clients that cannot ask the user are refused.",
        )
        .default_text("`never`")
        .example("\"ask\"")
        .aliases(&["confirmation", "ask"]),
        Key::new("fields", ValueType::NamedTables(&FIELD, NameRule::Any), "Settings of columns, by column name.")
            .example("{ email = { format = \"email\" } }")
            .aliases(&["columns", "properties", "schema"]),
        Key::new(
            "related",
            ValueType::NamedTables(&RELATED, NameRule::Argument),
            "Links to rows of other collections, by the name that callers use. Foreign keys of a database are links \
             without being declared.",
        )
        .example("{ customer = { collection = \"customers\", by = { customer_id = \"id\" } } }")
        .aliases(&["links", "relations", "relationships", "joins"]),
        Key::new(
            "access",
            ValueType::NamedTables(&COLLECTION_ACCESS, NameRule::Collection),
            "What each role may do with it. Needs `[roles]`.",
        )
        .example("{ staff = { operations = [\"get\", \"list\"] } }")
        .aliases(&["roles", "policy", "policies", "grants"]),
    ], rest::COLLECTION_KEYS),
};

pub static FIELD: Section = Section {
    header: "[collections.NAME.fields]",
    description: "One line for each column with settings: `email = { format = \"email\" }`.",
    keys: &[
        Key::new("as", ValueType::OneOf(data_types), "The type of its values.")
            .default_text("inferred from every value")
            .example("\"decimal\"")
            .aliases(&["kind", "datatype", "data_type"]),
        Key::new("format", ValueType::OneOf(|| FORMATS.to_vec()), "The format of a text, as in JSON Schema.")
            .example("\"email\""),
        Key::new("enum", ValueType::Literals, "The allowed values.")
            .example("[\"free\", \"emerald\", \"ruby\"]")
            .aliases(&["values", "allowed", "options", "choices", "one_of"]),
        Key::new("description", DESCRIPTION, "What it means.")
            .example("\"The day they signed up.\"")
            .aliases(&["about", "comment"]),
        Key::new("name", COLUMN, "The name that callers use.")
            .default_text("generated from the column's name")
            .example("\"signup\"")
            .aliases(&["rename", "alias", "title"]),
        Key::new("null", ValueType::Texts, "The text that means NULL, or several.")
            .example("\"-\"")
            .aliases(NULL_ALIASES),
        NUMBER_FORMAT,
        DATE_FORMAT,
        BOOLEAN_FORMAT,
        Key::new(
            "fill_down",
            ValueType::Boolean,
            "Whether a blank cell has the value of the row above, as in a report that names each group once. For CSV files \
             and workbooks, which are then not written.",
        )
        .default_text("`false`")
        .example("true")
        .aliases(&["ffill", "fill"]),
        Key::new(
            "path",
            ValueType::Text(TextLength::NonBlank(COLUMN_CHARS_MAX)),
            "A JSON pointer to a value inside nested JSON, which becomes a column with this name: callers can filter, sort and \
             group by it. The first name is that of the column which has the JSON. For JSON, JSON Lines and Parquet files, and REST APIs.",
        )
        .example("\"/address/city\"")
        .aliases(&["pointer", "json_path"]),
        Key::new(
            "required",
            ValueType::Boolean,
            "Whether every record has a value, and a new one needs it. For REST APIs.",
        )
        .default_text("`true` for the key, else `false`")
        .example("true")
        .aliases(&["not_null", "nullable"]),
        Key::new("read_only", ValueType::Boolean, "Whether the API sets the value itself. For REST APIs.")
            .default_text("`false`")
            .example("true")
            .aliases(&["readonly", "computed", "generated"]),
        Key::new("hidden", ValueType::Boolean, "Hides the column from callers.")
            .default_text("`false`")
            .example("true")
            .aliases(&["hide", "exclude", "ignore", "private"]),
        Key::new(
            "sensitive",
            ValueType::Boolean,
            "Keeps its values out of logs and recordings. Callers still see them.",
        )
        .default_text("`false`")
        .example("true")
        .aliases(&["secret", "pii", "masked", "mask", "redact"]),
        Key::new(
            "show_values",
            ValueType::Boolean,
            "Lists the current values of a text column in the descriptions that models read, if there are at most 12. \
             Only for values that every caller may see and that no stranger can write.",
        )
        .default_text("`false`")
        .example("true")
        .aliases(&["list_values", "sample_values"]),
    ],
};

/// In the order of the reference.
pub static SECTIONS: [&Section; 23] = [
    &SERVER,
    &SOURCE,
    &AUTH,
    &BASIC,
    &AUTH_HEADER,
    &CLIENT_CREDENTIALS,
    &COLLECTION,
    &FIELD,
    &RELATED,
    &LIST,
    &PAGE,
    &GET,
    &WRITE,
    &TOOL,
    &ARGUMENT,
    &REQUEST,
    &RESOURCE,
    &COMPLETION,
    &PROMPT,
    &ROLE,
    &COLLECTION_ACCESS,
    &ITEM_ACCESS,
    &PERMISSIONS,
];

fn source_kinds() -> Vec<&'static str> {
    SourceKind::ALL.map(SourceKind::as_str).to_vec()
}

fn operations() -> Vec<&'static str> {
    Operation::ALL.map(Operation::as_str).to_vec()
}

fn data_types() -> Vec<&'static str> {
    DataType::ALL.map(DataType::as_str).to_vec()
}

fn confirm_values() -> Vec<&'static str> {
    vec!["ask", "never"]
}
