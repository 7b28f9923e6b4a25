//! Every key that a manifest may have: what it is called, what it takes, what it means.
//!
//! This is the one table. The parser takes nothing that does not stand here and reads limits and words from
//! here; the [JSON Schema](super::schema) for editors and the [reference](super::reference) are printed from it.

use super::{
    BYTES_MAX_DEFAULT, BYTES_MAX_LEAST, BYTES_MAX_MOST, CALL_TIMEOUT_MS_MOST, CHANGES_MAX_MOST, FORMATS,
    HEADER_ROW_MOST, Operation, ROWS_MAX_MOST, SEARCH_ROWS_MAX_MOST, SourceKind,
};
use crate::kind::Kind;
use crate::names;

/// A table of a manifest.
#[derive(Debug)]
pub struct Section {
    /// As its header is written, with `NAME` where the author chooses.
    pub header: &'static str,
    pub about: &'static str,
    pub keys: &'static [Key],
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub takes: Takes,
    /// A sentence or two for whoever writes it.
    pub about: &'static str,
    /// What holds where nothing is said.
    pub unsaid: &'static str,
    /// A value, as it would stand behind the `=`.
    pub such_as: &'static str,
    /// What people who come from elsewhere write for it.
    pub also_known_as: &'static [&'static str],
    pub only: Only,
}

/// What stands behind the `=`.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    Text(Chars),
    /// A text that no variable is replaced in.
    Sql,
    /// One of some words.
    Word(fn() -> Vec<&'static str>),
    /// Some of some words, none twice.
    Words(fn() -> Vec<&'static str>),
    Boolean,
    Integer {
        least: u64,
        most: u64,
    },
    /// `60/min`
    Rate,
    /// The name of a column, or several.
    Columns,
    /// `true`, `false`, or names of fields.
    Choice,
    /// Texts or integers, not both.
    Literals,
    /// A text, a number, `true` or `false`.
    Literal,
    Table(&'static Section),
    /// Tables by name.
    Named(&'static Section, Naming),
}

/// How many characters a text may have.
#[derive(Debug, Clone, Copy)]
pub enum Chars {
    Any(usize),
    /// And not nothing.
    Some(usize),
    /// And not only blanks.
    Words(usize),
}

/// What names there may be.
#[derive(Debug, Clone, Copy)]
pub enum Naming {
    /// Whatever a source calls its columns.
    Any,
    Collection,
    Tool,
    Argument,
}

/// Where a key means something.
#[derive(Debug, Clone, Copy)]
pub enum Only {
    Everywhere,
    Kinds(&'static [SourceKind]),
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

impl Naming {
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
    const fn new(name: &'static str, takes: Takes, about: &'static str) -> Self {
        Self { name, takes, about, unsaid: "", such_as: "", also_known_as: &[], only: Only::Everywhere }
    }

    const fn unsaid(self, unsaid: &'static str) -> Self {
        Self { unsaid, ..self }
    }

    const fn such_as(self, such_as: &'static str) -> Self {
        Self { such_as, ..self }
    }

    const fn also(self, also_known_as: &'static [&'static str]) -> Self {
        Self { also_known_as, ..self }
    }

    const fn only(self, only: Only) -> Self {
        Self { only, ..self }
    }
}

const TITLE: Takes = Takes::Text(Chars::Words(200));
const DESCRIPTION: Takes = Takes::Text(Chars::Words(4000));
/// Names of columns and tables of a source, and values in them.
pub(super) const COLUMN_CHARS_MAX: usize = 4000;
const COLUMN: Takes = Takes::Text(Chars::Some(COLUMN_CHARS_MAX));
const VALUE: Takes = Takes::Text(Chars::Any(COLUMN_CHARS_MAX));
pub(super) const SQL_CHARS_MAX: usize = 20_000;
const TIMEOUT: Takes = Takes::Integer { least: 1, most: CALL_TIMEOUT_MS_MOST };
const ROWS: Takes = Takes::Integer { least: 1, most: ROWS_MAX_MOST as u64 };
const BYTES: Takes = Takes::Integer { least: BYTES_MAX_LEAST as u64, most: BYTES_MAX_MOST as u64 };
const WORKBOOKS: Only = Only::Kinds(&[SourceKind::Xlsx, SourceKind::Xls, SourceKind::Ods]);
const CSV: Only = Only::Kinds(&[SourceKind::Csv]);
const _: () = assert!(BYTES_MAX_DEFAULT == 65_536, "the table says so");

pub static ROOT: Section = Section {
    header: "",
    about: "A manifest has these tables.",
    keys: &[
        Key::new("server", Takes::Table(&SERVER), "The server itself.").such_as("{ name = \"customers\" }"),
        Key::new(
            "sources",
            Takes::Named(&SOURCE, Naming::Collection),
            "Where data lives: files and databases.",
        )
        .such_as("{ crm = { path = \"crm.db\" } }"),
        Key::new(
            "collections",
            Takes::Named(&COLLECTION, Naming::Collection),
            "Sets of records that tools are made for: a table, a sheet, a file.",
        )
        .such_as("{ customers = { key = \"email\" } }"),
        Key::new(
            "tools",
            Takes::Named(&TOOL, Naming::Tool),
            "Tools of your own: another name for what is generated, or a statement.",
        )
        .such_as("{ find = { uses = \"customers.get\" } }"),
    ],
};

pub static SERVER: Section = Section {
    header: "[server]",
    about: "The server itself. May be left out.",
    keys: &[
        Key::new(
            "name",
            Takes::Text(Chars::Words(names::SERVER_CHARS_MAX)),
            "How clients show this server. One line.",
        )
        .unsaid("the name of the folder or file")
        .such_as("\"customers-lookup\""),
        Key::new("title", TITLE, "A longer name, for people.").such_as("\"Customers of the shop\""),
        Key::new(
            "instructions",
            Takes::Text(Chars::Words(16_000)),
            "What a model reads before it uses the tools: what the data is about, and words it should know. \
             Some clients cut it after 2 KB.",
        )
        .such_as("\"Customer records by email. Plans: free, emerald, ruby.\"")
        .also(&["description", "prompt", "system"]),
        Key::new("call_timeout_ms", TIMEOUT, "How long one call may take, in milliseconds.")
            .unsaid("30000")
            .such_as("30000")
            .also(&["timeout", "timeout_ms", "timeout_seconds"]),
        Key::new(
            "rate_limit",
            Takes::Rate,
            "How many calls there may be in how long, for all callers and tools together. A call beyond is \
             refused with the time to wait.",
        )
        .unsaid("no limit")
        .such_as("\"600/min\"")
        .also(&["rate", "limit", "throttle"]),
    ],
};

pub static SOURCE: Section = Section {
    header: "[sources.NAME]",
    about: "Where data lives. The name is yours, and collections refer to it.",
    keys: &[
        Key::new("kind", Takes::Word(source_kinds), "What it is.")
            .unsaid("what the ending of `path` says")
            .such_as("\"sqlite\"")
            .also(&["type", "format", "driver"]),
        Key::new(
            "path",
            Takes::Text(Chars::Words(4000)),
            "Where the file is. A path starts in the folder of the manifest. Must be said.",
        )
        .such_as("\"data/crm.db\"")
        .also(&["file", "filename", "location", "url", "uri", "dsn"]),
        Key::new("delimiter", VALUE, "What stands between columns: one character, or `tab`.")
            .unsaid("found in the text")
            .such_as("\";\"")
            .also(&["separator", "sep"])
            .only(CSV),
        Key::new("null", VALUE, "Text that means that there is no value.").such_as("\"n/a\"").only(CSV),
        Key::new(
            "formulas",
            Takes::Word(|| vec!["refuse", "keep"]),
            "What happens to a text that a spreadsheet would take for a formula, such as `=1+1`, when it is to \
             be written: it is refused, or kept as it is.",
        )
        .unsaid("`refuse`")
        .such_as("\"keep\"")
        .only(CSV),
        Key::new(
            "at",
            Takes::Text(Chars::Any(COLUMN_CHARS_MAX)),
            "A JSON pointer to the array of records in the file.",
        )
        .unsaid("the file is the array")
        .such_as("\"/data/customers\"")
        .also(&["pointer", "jsonpath", "json_path", "root"])
        .only(Only::Kinds(&[SourceKind::Json])),
    ],
};

pub static COLLECTION: Section = Section {
    header: "[collections.NAME]",
    about: "A typed set of records. Tools are made for it: `get_NAME`, `list_NAME` and so on.",
    keys: &[
        Key::new("source", COLUMN, "One of the sources.")
            .unsaid("the only source there is")
            .such_as("\"crm\"")
            .also(&["from", "database", "db"]),
        Key::new("table", VALUE, "The table or view.")
            .unsaid("the collection's name, or the only table there is")
            .such_as("\"customers\"")
            .also(&["view"])
            .only(Only::Kinds(&[SourceKind::Sqlite])),
        Key::new("sheet", VALUE, "The sheet of a workbook.")
            .unsaid("the collection's name, or the only sheet there is")
            .such_as("\"Customers\"")
            .also(&["worksheet", "tab"])
            .only(WORKBOOKS),
        Key::new(
            "header_row",
            Takes::Integer { least: 1, most: HEADER_ROW_MOST as u64 },
            "The row of the sheet that has the names of the columns, counted from 1.",
        )
        .unsaid("the first row that has any")
        .such_as("3")
        .also(&["header", "headers"])
        .only(WORKBOOKS),
        Key::new("key", Takes::Columns, "What tells one record from another: a column, or several together.")
            .unsaid("the primary key, or the first column that has a value in every row and none twice")
            .such_as("\"email\"")
            .also(&["primary_key", "id", "keys", "pk"]),
        Key::new("description", DESCRIPTION, "What a record is, in a sentence. Models choose their tools by it.")
            .such_as("\"People who bought something, one row each.\"")
            .also(&["about", "comment"]),
        Key::new(
            "operations",
            Takes::Words(|| Operation::ALL.map(Operation::as_str).to_vec()),
            "What callers may do. Reading is the default, and writing is named.",
        )
        .unsaid("`[\"get\", \"list\"]`")
        .such_as("[\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]")
        .also(&["methods", "actions", "permissions", "allow"]),
        Key::new(
            "filters",
            Takes::Choice,
            "The fields that a list can be filtered by: each becomes an argument, and one with an order two more.",
        )
        .unsaid("the first 20")
        .such_as("[\"plan\", \"signup_date\"]")
        .also(&["where"]),
        Key::new("sort", Takes::Choice, "The fields that a list can be sorted by.")
            .unsaid("the first 20")
            .such_as("true")
            .also(&["order_by", "orderby", "sorting"]),
        Key::new("search", Takes::Choice, "The fields that a search looks into. For the operation `search`.")
            .unsaid("all texts, or what the source has an index for")
            .such_as("[\"name\", \"notes\"]"),
        Key::new(
            "search_rows_max",
            Takes::Integer { least: 1, most: SEARCH_ROWS_MAX_MOST as u64 },
            "A search without an index looks at no more rows than this, and says so where there are more.",
        )
        .unsaid("100000")
        .such_as("20000"),
        Key::new("rows_max", ROWS, "The most records in one answer. The rest is on the next page.")
            .unsaid("100")
            .such_as("200")
            .also(&["limit", "max_rows", "page_size"]),
        Key::new("bytes_max", BYTES, "The most bytes in one answer, likewise.")
            .unsaid("65536")
            .such_as("32768")
            .also(&["max_bytes"]),
        Key::new("null", VALUE, "Text that means that there is no value, in every column.").such_as("\"n/a\""),
        Key::new(
            "version",
            COLUMN,
            "A column of whole numbers that grows by one with every update, so that nobody overwrites what they \
             have not seen. For `update` and `delete`.",
        )
        .unsaid("a digest of the record, told as `_version`")
        .such_as("\"rev\"")
        .also(&["version_column", "etag", "revision"]),
        Key::new(
            "version_required",
            Takes::Boolean,
            "Whether `update` and `delete` must be told which state of the record is meant.",
        )
        .unsaid("`false`")
        .such_as("true"),
        Key::new(
            "confirm",
            Takes::Word(confirm_words),
            "Whether the user is asked before `update` and `delete`. Where a client cannot ask, it is refused.",
        )
        .unsaid("`never`")
        .such_as("\"ask\"")
        .also(&["confirmation", "ask"]),
        Key::new("fields", Takes::Named(&FIELD, Naming::Any), "What there is to say about columns, by their names.")
            .such_as("{ email = { format = \"email\" } }")
            .also(&["columns", "properties", "schema"]),
    ],
};

pub static FIELD: Section = Section {
    header: "[collections.NAME.fields]",
    about: "One line for each column that there is something to say about: `email = { format = \"email\" }`.",
    keys: &[
        Key::new("as", Takes::Word(kinds), "What its values are.")
            .unsaid("what every value of it is")
            .such_as("\"decimal\"")
            .also(&["kind", "datatype", "data_type"]),
        Key::new(
            "format",
            Takes::Word(|| FORMATS.to_vec()),
            "What a text looks like, as JSON Schema names it.",
        )
        .such_as("\"email\""),
        Key::new("enum", Takes::Literals, "The only values there may be.")
            .such_as("[\"free\", \"emerald\", \"ruby\"]")
            .also(&["values", "allowed", "options", "choices", "one_of"]),
        Key::new("description", DESCRIPTION, "What it means.")
            .such_as("\"The day they signed up.\"")
            .also(&["about", "comment"]),
        Key::new("name", COLUMN, "As callers see it.")
            .unsaid("the column's name, in letters that every client takes")
            .such_as("\"signup\"")
            .also(&["rename", "alias", "title"]),
        Key::new("null", VALUE, "Text that means that there is no value.").such_as("\"-\""),
        Key::new("hidden", Takes::Boolean, "Nobody sees it.")
            .unsaid("`false`")
            .such_as("true")
            .also(&["hide", "exclude", "ignore", "private"]),
        Key::new("sensitive", Takes::Boolean, "Callers see it; logs and recordings do not.")
            .unsaid("`false`")
            .such_as("true")
            .also(&["secret", "pii", "masked", "mask", "redact"]),
    ],
};

pub static TOOL: Section = Section {
    header: "[tools.NAME]",
    about: "A tool of your own. It has either `uses` or `sql`.",
    keys: &[
        Key::new("uses", COLUMN, "A collection and what to do with it: the tool that is generated gets this name.")
            .such_as("\"customers.get\"")
            .also(&["use", "operation", "collection"]),
        Key::new(
            "sql",
            Takes::Sql,
            "A statement, with `:name` where arguments go. It is prepared and typed before anything is served.",
        )
        .such_as("\"select plan, count(*) as customers from customers where signup_date >= :since group by plan\"")
        .also(&["query", "statement"]),
        Key::new("source", COLUMN, "The source that the statement is for.")
            .unsaid("the only source there is")
            .such_as("\"crm\"")
            .only(Only::Statements),
        Key::new(
            "arguments",
            Takes::Named(&ARGUMENT, Naming::Argument),
            "What the statement takes: one for each `:name`.",
        )
        .such_as("{ since = { type = \"date\" } }")
        .also(&["args", "parameters", "params", "inputs", "input"])
        .only(Only::Statements),
        Key::new("writes", Takes::Boolean, "Whether the statement may change data.")
            .unsaid("`false`: a statement that would is an error")
            .such_as("true")
            .also(&["write", "writable", "readonly", "read_only"])
            .only(Only::Statements),
        Key::new(
            "changes_max",
            Takes::Integer { least: 1, most: CHANGES_MAX_MOST as u64 },
            "A statement that would change more rows than this is undone. For `writes = true`.",
        )
        .unsaid("1")
        .such_as("10")
        .only(Only::Statements),
        Key::new(
            "returns",
            Takes::Word(|| vec!["many", "one"]),
            "Rows as `items`, or one record; none is `not_found` then.",
        )
        .unsaid("`many`")
        .such_as("\"one\"")
        .also(&["return", "result"])
        .only(Only::Statements),
        Key::new(
            "fields",
            Takes::Named(&FIELD, Naming::Any),
            "What there is to say about columns of the result, as in a collection.",
        )
        .such_as("{ customers = { description = \"How many.\" } }")
        .also(&["columns"])
        .only(Only::Statements),
        Key::new("rows_max", ROWS, "The most rows in one answer; what is beyond is cut, and that is said.")
            .unsaid("100")
            .such_as("20")
            .also(&["limit", "max_rows"])
            .only(Only::Statements),
        Key::new("bytes_max", BYTES, "The most bytes in one answer, likewise.")
            .unsaid("65536")
            .such_as("32768")
            .only(Only::Statements),
        Key::new("description", DESCRIPTION, "What it does and when to use it. Models choose by it.")
            .unsaid("a sentence that is made from the operation")
            .such_as("\"Return the customer record for a given email address.\"")
            .also(&["about"]),
        Key::new("title", TITLE, "A name for people.").such_as("\"Find a customer\""),
        Key::new(
            "text",
            Takes::Text(Chars::Words(4000)),
            "How a record reads in the text of a result, with `{field}` where values go. One line.",
        )
        .unsaid("the record as JSON")
        .such_as("\"Found customer {email} on the {plan} plan.\"")
        .also(&["template", "message"]),
        Key::new("hidden", Takes::Boolean, "Leaves the tool out.")
            .unsaid("`false`")
            .such_as("true")
            .also(&["hide", "disabled", "enabled"]),
        Key::new("rate_limit", Takes::Rate, "How many calls of this tool one caller may make in how long.")
            .unsaid("no limit")
            .such_as("\"60/min\"")
            .also(&["rate", "throttle"]),
        Key::new("call_timeout_ms", TIMEOUT, "How long one call may take, in milliseconds.")
            .unsaid("what the server has")
            .such_as("120000")
            .also(&["timeout", "timeout_ms"]),
        Key::new("long_running", Takes::Boolean, "Whether progress is sent to callers who want it.")
            .unsaid("`false`")
            .such_as("true")
            .also(&["progress", "slow"]),
        Key::new("confirm", Takes::Word(confirm_words), "Whether the user is asked first. For tools that write.")
            .unsaid("what the collection says")
            .such_as("\"ask\"")
            .also(&["confirmation", "ask"]),
    ],
};

pub static ARGUMENT: Section = Section {
    header: "[tools.NAME.arguments]",
    about: "One line for each `:name` of the statement: `since = { type = \"date\" }`.",
    keys: &[
        Key::new(
            "type",
            Takes::Word(argument_types),
            "What it is: a type of JSON Schema, or what `as` takes.",
        )
        .unsaid("`string`; `integer` for an `enum` of integers")
        .such_as("\"string\""),
        Key::new("as", Takes::Word(argument_types), "Another word for `type`.").such_as("\"date\""),
        Key::new(
            "format",
            Takes::Word(|| FORMATS.to_vec()),
            "What a text looks like, as JSON Schema names it.",
        )
        .such_as("\"date\""),
        Key::new("description", DESCRIPTION, "What it means, for whoever fills it in.")
            .such_as("\"First signup date to count.\"")
            .also(&["about"]),
        Key::new("enum", Takes::Literals, "The only values there may be.")
            .such_as("[\"free\", \"emerald\", \"ruby\"]")
            .also(&["values", "allowed", "options", "choices"]),
        Key::new("default", Takes::Literal, "What it is where a caller says nothing.")
            .such_as("\"2026-01-01\""),
        Key::new(
            "required",
            Takes::Boolean,
            "Whether callers must say it. If not, `null` says nothing too, and without a default it is NULL.",
        )
        .unsaid("`true`, or `false` if there is a `default`")
        .such_as("false")
        .also(&["optional", "nullable"]),
    ],
};

/// In the order of a reference.
pub static SECTIONS: [&Section; 6] = [&SERVER, &SOURCE, &COLLECTION, &FIELD, &TOOL, &ARGUMENT];

fn source_kinds() -> Vec<&'static str> {
    SourceKind::ALL.map(SourceKind::as_str).to_vec()
}

fn kinds() -> Vec<&'static str> {
    Kind::ALL.map(Kind::as_str).to_vec()
}

/// `string` is what JSON Schema calls a text; it has the same words for the others.
fn argument_types() -> Vec<&'static str> {
    let scalars = Kind::ALL.into_iter().filter(|kind| kind.is_scalar());
    std::iter::once("string").chain(scalars.map(Kind::as_str)).collect()
}

fn confirm_words() -> Vec<&'static str> {
    vec!["ask", "never"]
}
