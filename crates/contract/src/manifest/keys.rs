//! Every key that a manifest may have: what it is called, what it takes, what it means.
//!
//! This is the one table. The parser takes nothing that does not stand here and reads limits and words from
//! here; the [JSON Schema](super::schema) for editors and the [reference](super::reference) are printed from it.

use super::{
    BYTES_MAX_DEFAULT, BYTES_MAX_LIMIT, BYTES_MAX_MINIMUM, CALL_TIMEOUT_MS_LIMIT, CHANGES_MAX_LIMIT, FORMATS,
    HEADER_ROW_LIMIT, Operation, ROWS_MAX_LIMIT, SEARCH_ROWS_MAX_LIMIT, SourceKind,
};
use crate::data_type::DataType;
use crate::names;

/// A table of a manifest.
#[derive(Debug)]
pub struct Section {
    /// As its header is written, with `NAME` where the author chooses.
    pub header: &'static str,
    pub description: &'static str,
    pub keys: &'static [Key],
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub value_type: ValueType,
    /// A sentence or two for whoever writes it.
    pub description: &'static str,
    /// What holds where nothing is said.
    pub default_text: &'static str,
    /// A value, as it would stand behind the `=`.
    pub example: &'static str,
    /// What people who come from elsewhere write for it.
    pub aliases: &'static [&'static str],
    pub applies_to: AppliesTo,
}

/// What stands behind the `=`.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    Text(TextLength),
    /// A text that no variable is replaced in.
    Sql,
    /// One of some words.
    OneOf(fn() -> Vec<&'static str>),
    /// Some of some words, none twice.
    SomeOf(fn() -> Vec<&'static str>),
    Boolean,
    Integer {
        min: u64,
        max: u64,
    },
    /// `60/min`
    Rate,
    /// The name of a column, or several.
    Columns,
    /// `true`, `false`, or names of fields.
    FieldSelection,
    /// Texts or integers, not both.
    Literals,
    /// A text, a number, `true` or `false`.
    Literal,
    Table(&'static Section),
    /// Tables by name.
    NamedTables(&'static Section, NameRule),
}

/// How many characters a text may have.
#[derive(Debug, Clone, Copy)]
pub enum TextLength {
    Any(usize),
    /// And not nothing.
    NonEmpty(usize),
    /// And not only blanks.
    NonBlank(usize),
}

/// What names there may be.
#[derive(Debug, Clone, Copy)]
pub enum NameRule {
    /// Whatever a source calls its columns.
    Any,
    Collection,
    Tool,
    Argument,
}

/// Where a key means something.
#[derive(Debug, Clone, Copy)]
pub enum AppliesTo {
    Everywhere,
    SourceKinds(&'static [SourceKind]),
    /// Tools with `sql`.
    Statements,
}

impl Section {
    /// The parser asks for nothing else.
    pub(super) fn key(&self, name: &str) -> &'static Key {
        let found = self.keys.iter().find(|key| key.name == name);
        found.unwrap_or_else(|| unreachable!("{} has no `{name}` in the table of keys", self.header))
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

impl NameRule {
    /// As a regular expression.
    pub fn pattern(self) -> String {
        let (letters, most) = match self {
            Self::Any => return "".into(),
            Self::Collection => ("A-Za-z0-9_", names::COLLECTION_CHARS_MAX),
            Self::Tool => ("A-Za-z0-9_-", names::TOOL_CHARS_MAX),
            Self::Argument => {
                return format!("^[A-Za-z_][A-Za-z0-9_]{{0,{}}}$", names::ARGUMENT_CHARS_MAX - 1);
            }
        };
        format!("^[{letters}]{{1,{most}}}$")
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

    const fn default_text(self, unsaid: &'static str) -> Self {
        Self { default_text: unsaid, ..self }
    }

    const fn example(self, such_as: &'static str) -> Self {
        Self { example: such_as, ..self }
    }

    const fn aliases(self, also_known_as: &'static [&'static str]) -> Self {
        Self { aliases: also_known_as, ..self }
    }

    const fn applies_to(self, only: AppliesTo) -> Self {
        Self { applies_to: only, ..self }
    }
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
const _: () = assert!(BYTES_MAX_DEFAULT == 65_536, "the table says so");

pub static ROOT: Section = Section {
    header: "",
    description: "A manifest has these tables.",
    keys: &[
        Key::new("server", ValueType::Table(&SERVER), "The server itself.")
            .example("{ name = \"customers\" }"),
        Key::new(
            "sources",
            ValueType::NamedTables(&SOURCE, NameRule::Collection),
            "Where data lives: files and databases.",
        )
        .example("{ crm = { path = \"crm.db\" } }"),
        Key::new(
            "collections",
            ValueType::NamedTables(&COLLECTION, NameRule::Collection),
            "Sets of records that tools are made for: a table, a sheet, a file.",
        )
        .example("{ customers = { key = \"email\" } }"),
        Key::new(
            "tools",
            ValueType::NamedTables(&TOOL, NameRule::Tool),
            "Tools of your own: another name for what is generated, or a statement.",
        )
        .example("{ find = { uses = \"customers.get\" } }"),
    ],
};

pub static SERVER: Section = Section {
    header: "[server]",
    description: "The server itself. May be left out.",
    keys: &[
        Key::new(
            "name",
            ValueType::Text(TextLength::NonBlank(names::SERVER_CHARS_MAX)),
            "How clients show this server. One line.",
        )
        .default_text("the name of the folder or file")
        .example("\"customers-lookup\""),
        Key::new("title", TITLE, "A longer name, for people.").example("\"Customers of the shop\""),
        Key::new(
            "instructions",
            ValueType::Text(TextLength::NonBlank(16_000)),
            "What a model reads before it uses the tools: what the data is about, and words it should know. \
             Some clients cut it after 2 KB.",
        )
        .example("\"Customer records by email. Plans: free, emerald, ruby.\"")
        .aliases(&["description", "prompt", "system"]),
        Key::new("call_timeout_ms", TIMEOUT, "How long one call may take, in milliseconds.")
            .default_text("30000")
            .example("30000")
            .aliases(&["timeout", "timeout_ms", "timeout_seconds"]),
        Key::new(
            "rate_limit",
            ValueType::Rate,
            "How many calls there may be in how long, for all callers and tools together. A call beyond is \
             refused with the time to wait.",
        )
        .default_text("no limit")
        .example("\"600/min\"")
        .aliases(&["rate", "limit", "throttle"]),
    ],
};

pub static SOURCE: Section = Section {
    header: "[sources.NAME]",
    description: "Where data lives. The name is yours, and collections refer to it.",
    keys: &[
        Key::new("kind", ValueType::OneOf(source_kinds), "What it is.")
            .default_text("what the ending of `path` says")
            .example("\"sqlite\"")
            .aliases(&["type", "format", "driver"]),
        Key::new(
            "path",
            ValueType::Text(TextLength::NonBlank(4000)),
            "Where the file is. A path starts in the folder of the manifest. Must be said.",
        )
        .example("\"data/crm.db\"")
        .aliases(&["file", "filename", "location", "url", "uri", "dsn"]),
        Key::new("delimiter", VALUE, "What stands between columns: one character, or `tab`.")
            .default_text("found in the text")
            .example("\";\"")
            .aliases(&["separator", "sep"])
            .applies_to(CSV),
        Key::new("null", VALUE, "Text that means that there is no value.").example("\"n/a\"").applies_to(CSV),
        Key::new(
            "formulas",
            ValueType::OneOf(|| vec!["refuse", "keep"]),
            "What happens to a text that a spreadsheet would take for a formula, such as `=1+1`, when it is to \
             be written: it is refused, or kept as it is.",
        )
        .default_text("`refuse`")
        .example("\"keep\"")
        .applies_to(CSV),
        Key::new(
            "at",
            ValueType::Text(TextLength::Any(COLUMN_CHARS_MAX)),
            "A JSON pointer to the array of records in the file.",
        )
        .default_text("the file is the array")
        .example("\"/data/customers\"")
        .aliases(&["pointer", "jsonpath", "json_path", "root"])
        .applies_to(AppliesTo::SourceKinds(&[SourceKind::Json])),
    ],
};

pub static COLLECTION: Section = Section {
    header: "[collections.NAME]",
    description: "A typed set of records. Tools are made for it: `get_NAME`, `list_NAME` and so on.",
    keys: &[
        Key::new("source", COLUMN, "One of the sources.")
            .default_text("the only source there is")
            .example("\"crm\"")
            .aliases(&["from", "database", "db"]),
        Key::new("table", VALUE, "The table or view.")
            .default_text("the collection's name, or the only table there is")
            .example("\"customers\"")
            .aliases(&["view"])
            .applies_to(AppliesTo::SourceKinds(&[SourceKind::Sqlite])),
        Key::new("sheet", VALUE, "The sheet of a workbook.")
            .default_text("the collection's name, or the only sheet there is")
            .example("\"Customers\"")
            .aliases(&["worksheet", "tab"])
            .applies_to(WORKBOOKS),
        Key::new(
            "header_row",
            ValueType::Integer { min: 1, max: HEADER_ROW_LIMIT as u64 },
            "The row of the sheet that has the names of the columns, counted from 1.",
        )
        .default_text("the first row that has any")
        .example("3")
        .aliases(&["header", "headers"])
        .applies_to(WORKBOOKS),
        Key::new("key", ValueType::Columns, "What tells one record from another: a column, or several together.")
            .default_text("the primary key, or the first column that has a value in every row and none twice")
            .example("\"email\"")
            .aliases(&["primary_key", "id", "keys", "pk"]),
        Key::new("description", DESCRIPTION, "What a record is, in a sentence. Models choose their tools by it.")
            .example("\"People who bought something, one row each.\"")
            .aliases(&["about", "comment"]),
        Key::new(
            "operations",
            ValueType::SomeOf(|| Operation::ALL.map(Operation::as_str).to_vec()),
            "What callers may do. Reading is the default, and writing is named.",
        )
        .default_text("`[\"get\", \"list\"]`")
        .example("[\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]")
        .aliases(&["methods", "actions", "permissions", "allow"]),
        Key::new(
            "filters",
            ValueType::FieldSelection,
            "The fields that a list can be filtered by: each becomes an argument, and one with an order two more.",
        )
        .default_text("the first 20")
        .example("[\"plan\", \"signup_date\"]")
        .aliases(&["where"]),
        Key::new("sort", ValueType::FieldSelection, "The fields that a list can be sorted by.")
            .default_text("the first 20")
            .example("true")
            .aliases(&["order_by", "orderby", "sorting"]),
        Key::new("search", ValueType::FieldSelection, "The fields that a search looks into. For the operation `search`.")
            .default_text("all texts, or what the source has an index for")
            .example("[\"name\", \"notes\"]"),
        Key::new(
            "search_rows_max",
            ValueType::Integer { min: 1, max: SEARCH_ROWS_MAX_LIMIT as u64 },
            "A search without an index looks at no more rows than this, and says so where there are more.",
        )
        .default_text("100000")
        .example("20000"),
        Key::new("rows_max", ROWS, "The most records in one answer. The rest is on the next page.")
            .default_text("100")
            .example("200")
            .aliases(&["limit", "max_rows", "page_size"]),
        Key::new("bytes_max", BYTES, "The most bytes in one answer, likewise.")
            .default_text("65536")
            .example("32768")
            .aliases(&["max_bytes"]),
        Key::new("null", VALUE, "Text that means that there is no value, in every column.").example("\"n/a\""),
        Key::new(
            "version",
            COLUMN,
            "A column of whole numbers that grows by one with every update, so that nobody overwrites what they \
             have not seen. For `update` and `delete`.",
        )
        .default_text("a digest of the record, told as `_version`")
        .example("\"rev\"")
        .aliases(&["version_column", "etag", "revision"]),
        Key::new(
            "version_required",
            ValueType::Boolean,
            "Whether `update` and `delete` must be told which state of the record is meant.",
        )
        .default_text("`false`")
        .example("true"),
        Key::new(
            "confirm",
            ValueType::OneOf(confirm_values),
            "Whether the user is asked before `update` and `delete`. Where a client cannot ask, it is refused.",
        )
        .default_text("`never`")
        .example("\"ask\"")
        .aliases(&["confirmation", "ask"]),
        Key::new("fields", ValueType::NamedTables(&FIELD, NameRule::Any), "What there is to say about columns, by their names.")
            .example("{ email = { format = \"email\" } }")
            .aliases(&["columns", "properties", "schema"]),
    ],
};

pub static FIELD: Section = Section {
    header: "[collections.NAME.fields]",
    description: "One line for each column that there is something to say about: `email = { format = \"email\" }`.",
    keys: &[
        Key::new("as", ValueType::OneOf(data_types), "What its values are.")
            .default_text("what every value of it is")
            .example("\"decimal\"")
            .aliases(&["kind", "datatype", "data_type"]),
        Key::new(
            "format",
            ValueType::OneOf(|| FORMATS.to_vec()),
            "What a text looks like, as JSON Schema names it.",
        )
        .example("\"email\""),
        Key::new("enum", ValueType::Literals, "The only values there may be.")
            .example("[\"free\", \"emerald\", \"ruby\"]")
            .aliases(&["values", "allowed", "options", "choices", "one_of"]),
        Key::new("description", DESCRIPTION, "What it means.")
            .example("\"The day they signed up.\"")
            .aliases(&["about", "comment"]),
        Key::new("name", COLUMN, "As callers see it.")
            .default_text("the column's name, in letters that every client takes")
            .example("\"signup\"")
            .aliases(&["rename", "alias", "title"]),
        Key::new("null", VALUE, "Text that means that there is no value.").example("\"-\""),
        Key::new("hidden", ValueType::Boolean, "Nobody sees it.")
            .default_text("`false`")
            .example("true")
            .aliases(&["hide", "exclude", "ignore", "private"]),
        Key::new("sensitive", ValueType::Boolean, "Callers see it; logs and recordings do not.")
            .default_text("`false`")
            .example("true")
            .aliases(&["secret", "pii", "masked", "mask", "redact"]),
    ],
};

pub static TOOL: Section = Section {
    header: "[tools.NAME]",
    description: "A tool of your own. It has either `uses` or `sql`.",
    keys: &[
        Key::new("uses", COLUMN, "A collection and what to do with it: the tool that is generated gets this name.")
            .example("\"customers.get\"")
            .aliases(&["use", "operation", "collection"]),
        Key::new(
            "sql",
            ValueType::Sql,
            "A statement, with `:name` where arguments go. It is prepared and typed before anything is served.",
        )
        .example("\"select plan, count(*) as customers from customers where signup_date >= :since group by plan\"")
        .aliases(&["query", "statement"]),
        Key::new("source", COLUMN, "The source that the statement is for.")
            .default_text("the only source there is")
            .example("\"crm\"")
            .applies_to(AppliesTo::Statements),
        Key::new(
            "arguments",
            ValueType::NamedTables(&ARGUMENT, NameRule::Argument),
            "What the statement takes: one for each `:name`.",
        )
        .example("{ since = { type = \"date\" } }")
        .aliases(&["args", "parameters", "params", "inputs", "input"])
        .applies_to(AppliesTo::Statements),
        Key::new("writes", ValueType::Boolean, "Whether the statement may change data.")
            .default_text("`false`: a statement that would is an error")
            .example("true")
            .aliases(&["write", "writable", "readonly", "read_only"])
            .applies_to(AppliesTo::Statements),
        Key::new(
            "changes_max",
            ValueType::Integer { min: 1, max: CHANGES_MAX_LIMIT as u64 },
            "A statement that would change more rows than this is undone. For `writes = true`.",
        )
        .default_text("1")
        .example("10")
        .applies_to(AppliesTo::Statements),
        Key::new(
            "returns",
            ValueType::OneOf(|| vec!["many", "one"]),
            "Rows as `items`, or one record; none is `not_found` then.",
        )
        .default_text("`many`")
        .example("\"one\"")
        .aliases(&["return", "result"])
        .applies_to(AppliesTo::Statements),
        Key::new(
            "fields",
            ValueType::NamedTables(&FIELD, NameRule::Any),
            "What there is to say about columns of the result, as in a collection.",
        )
        .example("{ customers = { description = \"How many.\" } }")
        .aliases(&["columns"])
        .applies_to(AppliesTo::Statements),
        Key::new("rows_max", ROWS, "The most rows in one answer; what is beyond is cut, and that is said.")
            .default_text("100")
            .example("20")
            .aliases(&["limit", "max_rows"])
            .applies_to(AppliesTo::Statements),
        Key::new("bytes_max", BYTES, "The most bytes in one answer, likewise.")
            .default_text("65536")
            .example("32768")
            .applies_to(AppliesTo::Statements),
        Key::new("description", DESCRIPTION, "What it does and when to use it. Models choose by it.")
            .default_text("a sentence that is made from the operation")
            .example("\"Return the customer record for a given email address.\"")
            .aliases(&["about"]),
        Key::new("title", TITLE, "A name for people.").example("\"Find a customer\""),
        Key::new(
            "text",
            ValueType::Text(TextLength::NonBlank(4000)),
            "How a record reads in the text of a result, with `{field}` where values go. One line.",
        )
        .default_text("the record as JSON")
        .example("\"Found customer {email} on the {plan} plan.\"")
        .aliases(&["template", "message"]),
        Key::new("hidden", ValueType::Boolean, "Leaves the tool out.")
            .default_text("`false`")
            .example("true")
            .aliases(&["hide", "disabled", "enabled"]),
        Key::new("rate_limit", ValueType::Rate, "How many calls of this tool one caller may make in how long.")
            .default_text("no limit")
            .example("\"60/min\"")
            .aliases(&["rate", "throttle"]),
        Key::new("call_timeout_ms", TIMEOUT, "How long one call may take, in milliseconds.")
            .default_text("what the server has")
            .example("120000")
            .aliases(&["timeout", "timeout_ms"]),
        Key::new(
            "long_running",
            ValueType::Boolean,
            "Whether even a short call reports its start and its end to callers that want progress. Every call that runs \
             longer than half a second reports progress.",
        )
            .default_text("`false`")
            .example("true")
            .aliases(&["progress", "slow"]),
        Key::new("confirm", ValueType::OneOf(confirm_values), "Whether the user is asked first. For tools that write.")
            .default_text("what the collection says")
            .example("\"ask\"")
            .aliases(&["confirmation", "ask"]),
    ],
};

pub static ARGUMENT: Section = Section {
    header: "[tools.NAME.arguments]",
    description: "One line for each `:name` of the statement: `since = { type = \"date\" }`.",
    keys: &[
        Key::new(
            "type",
            ValueType::OneOf(argument_types),
            "What it is: a type of JSON Schema, or what `as` takes.",
        )
        .default_text("`string`; `integer` for an `enum` of integers")
        .example("\"string\""),
        Key::new("as", ValueType::OneOf(argument_types), "Another word for `type`.").example("\"date\""),
        Key::new(
            "format",
            ValueType::OneOf(|| FORMATS.to_vec()),
            "What a text looks like, as JSON Schema names it.",
        )
        .example("\"date\""),
        Key::new("description", DESCRIPTION, "What it means, for whoever fills it in.")
            .example("\"First signup date to count.\"")
            .aliases(&["about"]),
        Key::new("enum", ValueType::Literals, "The only values there may be.")
            .example("[\"free\", \"emerald\", \"ruby\"]")
            .aliases(&["values", "allowed", "options", "choices"]),
        Key::new("default", ValueType::Literal, "What it is where a caller says nothing.")
            .example("\"2026-01-01\""),
        Key::new(
            "required",
            ValueType::Boolean,
            "Whether callers must say it. If not, `null` says nothing too, and without a default it is NULL.",
        )
        .default_text("`true`, or `false` if there is a `default`")
        .example("false")
        .aliases(&["optional", "nullable"]),
    ],
};

/// In the order of a reference.
pub static SECTIONS: [&Section; 6] = [&SERVER, &SOURCE, &COLLECTION, &FIELD, &TOOL, &ARGUMENT];

fn source_kinds() -> Vec<&'static str> {
    SourceKind::ALL.map(SourceKind::as_str).to_vec()
}

fn data_types() -> Vec<&'static str> {
    DataType::ALL.map(DataType::as_str).to_vec()
}

/// `string` is what JSON Schema calls a text; it has the same words for the others.
fn argument_types() -> Vec<&'static str> {
    let scalars = DataType::ALL.into_iter().filter(|kind| kind.is_scalar());
    std::iter::once("string").chain(scalars.map(DataType::as_str)).collect()
}

fn confirm_values() -> Vec<&'static str> {
    vec!["ask", "never"]
}
