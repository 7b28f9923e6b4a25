//! The tables of a manifest, one function each.

use toml::Spanned;
use toml::de::DeTable;

use super::reader::{Chars, Entry, Reader, Said, Table, instead, listed, quoted};
use super::{
    BYTES_MAX_DEFAULT, BYTES_MAX_LEAST, BYTES_MAX_MOST, Body, CALL_TIMEOUT_MS_MOST, Choice, Collection,
    Confirm, FORMATS, Field, Formulas, Manifest, Operation, ROWS_MAX_DEFAULT, ROWS_MAX_MOST,
    SEARCH_ROWS_MAX_DEFAULT, Server, Settings, Source, SourceKind, Tool, Uses, Workbook,
};
use crate::diagnostic::{At, Diagnostic, Placed};
use crate::kind::Kind;
use crate::names;

const TITLE_CHARS_MAX: usize = 200;
const DESCRIPTION_CHARS_MAX: usize = 4000;
const INSTRUCTIONS_CHARS_MAX: usize = 16_000;
const PATH_CHARS_MAX: usize = 4000;
const TEXT_CHARS_MAX: usize = 4000;
/// Columns and tables of a source, and values in them.
const COLUMN_CHARS_MAX: usize = 4000;

/// Words that mean something in a later version.
const KINDS_LATER: [&str; 4] = ["postgres", "mysql", "rest", "files"];

pub(super) fn manifest(reader: &mut Reader<'_>, document: &Spanned<DeTable<'_>>) -> Manifest {
    let mut table = reader.document(document);
    let server = server(reader, &mut table);
    let sources = reader.named(&mut table, "sources", "[sources.crm]");
    let source_names: Vec<String> = sources.iter().map(|(entry, _)| entry.key.to_owned()).collect();
    let sources: Vec<Source> =
        sources.into_iter().filter_map(|(entry, table)| source(reader, &entry, table?)).collect();
    let from = Sources { names: &source_names, read: &sources };
    let collections = reader
        .named(&mut table, "collections", "[collections.customers]")
        .into_iter()
        .filter_map(|(entry, table)| collection(reader, &entry, table?, &from))
        .collect();
    let tools = reader
        .named(&mut table, "tools", "[tools.lookup_customer]")
        .into_iter()
        .filter_map(|(entry, table)| tool(reader, &entry, table?))
        .collect();
    reader.finish(table);
    Manifest { server, sources, collections, tools }
}

fn server(reader: &mut Reader<'_>, root: &mut Table<'_>) -> Server {
    let Some(entry) = root.take("server") else { return Server::default() };
    let Some(mut table) = reader.table(&entry, "[server]") else { return Server::default() };
    let name = reader.text(&mut table, "name", Chars::Words(names::SERVER_CHARS_MAX)).and_then(|said| {
        let is_line = !said.value.contains(char::is_control);
        if !is_line {
            reader.error(&said.at, "a server's name is one line of text", "leave line breaks and tabs out");
        }
        is_line.then_some(said.value)
    });
    let server = Server {
        name,
        title: value(reader.text(&mut table, "title", Chars::Words(TITLE_CHARS_MAX))),
        instructions: value(reader.text(&mut table, "instructions", Chars::Words(INSTRUCTIONS_CHARS_MAX))),
        call_timeout_ms: reader.integer(&mut table, "call_timeout_ms", 1..=CALL_TIMEOUT_MS_MOST),
        rate_limit: None,
    };
    reader.finish(table);
    server
}

fn value(said: Option<Said>) -> Option<String> {
    said.map(|said| said.value)
}

fn placed(said: Said) -> Placed<String> {
    Placed::new(said.value, said.at)
}

fn source(reader: &mut Reader<'_>, entry: &Entry<'_>, mut table: Table<'_>) -> Option<Source> {
    let name = collection_name(reader, entry, "source");
    let kind = reader.text(&mut table, "kind", Chars::Some(COLUMN_CHARS_MAX));
    let has_kind = kind.is_some();
    let path_entry = table.take("path");
    let has_path = path_entry.is_some();
    let path = path_entry.and_then(|path| reader.text_of(&path, Chars::Words(PATH_CHARS_MAX)));
    let kind = match (kind, &path) {
        (Some(kind), _) => source_kind(reader, &kind),
        (None, Some(path)) => kind_of_path(reader, path),
        (None, None) => None,
    };
    let Some(kind) = kind else {
        // What such a source may say is not known, so nothing of it is wrong.
        if !has_path && !has_kind {
            missing(reader, entry, "path", "path = \"customers.csv\"");
        }
        return None;
    };
    if !has_path {
        let ending = if kind == SourceKind::Sqlite { "db" } else { kind.as_str() };
        missing(reader, entry, "path", &format!("path = \"customers.{ending}\""));
    }
    let settings = match kind {
        SourceKind::Sqlite => sqlite(reader, &mut table),
        SourceKind::Csv => csv(reader, &mut table),
        SourceKind::Xlsx => Settings::Sheets(Workbook::Xlsx),
        SourceKind::Xls => Settings::Sheets(Workbook::Xls),
        SourceKind::Ods => Settings::Sheets(Workbook::Ods),
        SourceKind::Json => Settings::Json { at: None },
        SourceKind::JsonLines => Settings::JsonLines,
    };
    reader.finish(table);
    Some(Source { name: name?, path: placed(path?), settings })
}

fn sqlite(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Settings {
    for key in ["delimiter", "null"] {
        let message = format!("`{key}` is for sources of the kind `csv`");
        reader.refuse(table, key, &message, "leave it out");
    }
    Settings::Sqlite
}

fn csv(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Settings {
    let delimiter = reader.text(table, "delimiter", Chars::Any(COLUMN_CHARS_MAX));
    let delimiter = delimiter.and_then(|said| {
        let byte = match said.value.as_bytes() {
            b"tab" | b"\t" => Some(b'\t'),
            [b] if b.is_ascii_punctuation() && *b != b'"' || *b == b' ' => Some(*b),
            _ => None,
        };
        if byte.is_none() {
            let message = format!("{} cannot stand between columns", said.quoted());
            reader.error(
                &said.at,
                message,
                "write one of `,` `;` `|` or `tab`, or leave it out to have it found",
            );
        }
        byte
    });
    let null = value(reader.text(table, "null", Chars::Any(COLUMN_CHARS_MAX)));
    Settings::Csv { delimiter, null, formulas: Formulas::default() }
}

fn source_kind(reader: &mut Reader<'_>, said: &Said) -> Option<SourceKind> {
    let known = SourceKind::ALL.map(SourceKind::as_str);
    if let Some(kind) = SourceKind::parse(&said.value) {
        return Some(kind);
    }
    if KINDS_LATER.contains(&said.value.as_str()) {
        let message = format!("sources of the kind {} are not in this version yet", said.quoted());
        reader.error(&said.at, message, format!("this version reads {}", listed(&known)));
    } else {
        unknown(reader, said, "kind", &known);
    }
    None
}

fn kind_of_path(reader: &mut Reader<'_>, path: &Said) -> Option<SourceKind> {
    let kind = SourceKind::of_path(&path.value);
    if kind.is_none() {
        reader.error(
            &path.at,
            format!("the ending of {} does not tell what it is", path.quoted()),
            "add `kind = \"sqlite\"` or `kind = \"csv\"`",
        );
    }
    kind
}

/// The sources that are named, and those of them that could be read.
struct Sources<'a> {
    names: &'a [String],
    read: &'a [Source],
}

fn collection(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    mut table: Table<'_>,
    sources: &Sources<'_>,
) -> Option<Collection> {
    let t = &mut table;
    let name = collection_name(reader, entry, "collection");
    let source = from(reader, entry, t, sources);
    let table_name = reader.text(t, "table", Chars::Any(COLUMN_CHARS_MAX)).map(placed);
    let key = reader.one_or_more(t, "key", COLUMN_CHARS_MAX).unwrap_or_default();
    let description = value(reader.text(t, "description", Chars::Words(DESCRIPTION_CHARS_MAX)));
    let operations = reader.words(t, "operations").map(|all| operations(reader, &all));
    let filters = reader.choice(t, "filters", COLUMN_CHARS_MAX);
    let sort = reader.choice(t, "sort", COLUMN_CHARS_MAX);
    let rows_max = reader.integer(t, "rows_max", 1..=ROWS_MAX_MOST);
    let bytes_max = reader.integer(t, "bytes_max", BYTES_MAX_LEAST..=BYTES_MAX_MOST);
    let null = value(reader.text(t, "null", Chars::Any(COLUMN_CHARS_MAX)));
    let fields = reader
        .named(t, "fields", "email = { format = \"email\" }")
        .into_iter()
        .filter_map(|(entry, table)| Some(field(reader, &entry, table?)))
        .collect();
    for key in ["sheet", "header_row"] {
        reader.refuse(t, key, "sheets are not in this version yet", "save the sheet as a csv file");
    }
    reader.finish(table);
    let source = source?;
    let origin = sources.read.iter().find(|one| one.name.value == source.value);
    if let (Some(Settings::Csv { .. }), Some(said)) = (origin.map(|one| &one.settings), &table_name) {
        reader.error(&said.at, "a csv file is one table; there is no other to choose", "leave `table` out");
    }
    Some(Collection {
        name: name?,
        source,
        table: table_name,
        key: key.into_iter().map(placed).collect(),
        description,
        operations,
        filters,
        sort,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
        null,
        fields,
        header_row: None,
        search: Choice::Unsaid,
        search_rows_max: SEARCH_ROWS_MAX_DEFAULT,
        version: None,
        version_required: false,
        confirm: Confirm::Never,
    })
}

/// Where a collection's rows are: the source that is named, or the only one there is.
fn from(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    table: &mut Table<'_>,
    sources: &Sources<'_>,
) -> Option<Placed<String>> {
    let known: Vec<&str> = sources.names.iter().map(String::as_str).collect();
    let Some(source) = table.take("source") else {
        match known.as_slice() {
            [only] => return Some(Placed::new((*only).to_owned(), entry.key_at.clone())),
            [] => no_source(reader, &entry.key_at),
            [one, ..] => missing(reader, entry, "source", &format!("source = \"{one}\"")),
        }
        return None;
    };
    let said = reader.text_of(&source, Chars::Some(COLUMN_CHARS_MAX))?;
    if known.is_empty() {
        no_source(reader, &said.at);
        return None;
    }
    if known.contains(&said.value.as_str()) {
        return Some(placed(said));
    }
    unknown(reader, &said, "source", &known);
    None
}

fn no_source(reader: &mut Reader<'_>, at: &At) {
    reader.error(at, "there is no source to read from", "add `[sources.NAME]` with a `path`");
}

fn operations(reader: &mut Reader<'_>, all: &[Said]) -> Vec<Placed<Operation>> {
    all.iter().filter_map(|said| Some(said.placed(operation(reader, said, &said.value, &said.at)?))).collect()
}

fn operation(reader: &mut Reader<'_>, said: &Said, word: &str, at: &At) -> Option<Operation> {
    let operation = Operation::parse(word);
    let known = Operation::ALL.map(Operation::as_str);
    if operation.is_none() {
        let said = Said { value: word.into(), at: at.clone(), written: written(said, word) };
        unknown(reader, &said, "operation", &known);
    }
    operation
}

/// A part of a text as it stands in the file, or the whole where variables make it another.
fn written(said: &Said, part: &str) -> String {
    if said.value == said.written { part.to_owned() } else { said.written.clone() }
}

fn field(reader: &mut Reader<'_>, entry: &Entry<'_>, mut table: Table<'_>) -> Field {
    let t = &mut table;
    let kind = reader.text(t, "type", Chars::Some(COLUMN_CHARS_MAX)).and_then(|said| {
        let kind = Kind::parse(&said.value);
        if kind.is_none() {
            unknown_type(reader, &said);
        }
        Some(said.placed(kind?))
    });
    let format = reader.text(t, "format", Chars::Some(COLUMN_CHARS_MAX)).and_then(|said| {
        let format = FORMATS.into_iter().find(|format| *format == said.value);
        if format.is_none() {
            unknown(reader, &said, "format", &FORMATS);
        }
        Some(said.placed(format?))
    });
    let name =
        reader.text(t, "name", Chars::Some(COLUMN_CHARS_MAX)).and_then(|said| field_name(reader, said));
    let field = Field {
        column: Placed::new(entry.key.to_owned(), entry.key_at.clone()),
        kind,
        format,
        description: value(reader.text(t, "description", Chars::Words(DESCRIPTION_CHARS_MAX))),
        allowed: reader.literals(t, "enum", COLUMN_CHARS_MAX).unwrap_or_default(),
        hidden: reader.boolean(t, "hidden").unwrap_or(false),
        sensitive: reader.boolean(t, "sensitive").unwrap_or(false),
        name,
        null: value(reader.text(t, "null", Chars::Any(COLUMN_CHARS_MAX))),
    };
    reader.finish(table);
    field
}

/// The words of other tools and databases for what we have, too.
fn unknown_type(reader: &mut Reader<'_>, said: &Said) {
    let meant = match said.value.to_ascii_lowercase().as_str() {
        "string" | "varchar" | "char" => Some(Kind::Text),
        "bigint" | "long" => Some(Kind::Int64),
        "float" | "double" | "real" => Some(Kind::Number),
        "numeric" | "money" => Some(Kind::Decimal),
        "datetime" | "date-time" => Some(Kind::Timestamp),
        "binary" | "bytes" => Some(Kind::Blob),
        "bool" => Some(Kind::Boolean),
        _ => None,
    };
    match meant {
        Some(kind) => reader.error(
            &said.at,
            format!("unknown type {}", said.quoted()),
            format!("did you mean `{}`?", kind.as_str()),
        ),
        None => unknown(reader, said, "type", &Kind::ALL.map(Kind::as_str)),
    }
}

fn field_name(reader: &mut Reader<'_>, said: Said) -> Option<Placed<String>> {
    if names::is_field_name(&said.value) {
        return Some(placed(said));
    }
    let message = format!("{} cannot be the name of a field", said.quoted());
    let help = if names::RESERVED.contains(&said.value.as_str()) {
        format!("every list tool has an argument {}; choose another", said.quoted())
    } else {
        let most = names::FIELD_CHARS_MAX;
        format!("use letters without marks, digits and `_`, at most {most}")
    };
    reader.error(&said.at, message, help);
    None
}

fn tool(reader: &mut Reader<'_>, entry: &Entry<'_>, mut table: Table<'_>) -> Option<Tool> {
    let t = &mut table;
    let later = "statements of your own are not in this version yet";
    if reader.refuse(t, "sql", later, "use what is generated: `uses = \"customers.list\"`") {
        return None;
    }
    let name = tool_name(reader, entry);
    let uses = t.take("uses");
    if uses.is_none() {
        missing(reader, entry, "uses", "uses = \"customers.get\"");
    }
    let uses = uses.and_then(|uses| reader.text_of(&uses, Chars::Some(COLUMN_CHARS_MAX)));
    let uses = uses.and_then(|said| self::uses(reader, &said));
    let description = reader.text(t, "description", Chars::Words(DESCRIPTION_CHARS_MAX));
    let title = reader.text(t, "title", Chars::Words(TITLE_CHARS_MAX));
    let text = reader.text(t, "text", Chars::Words(TEXT_CHARS_MAX));
    let hidden = reader.boolean(t, "hidden").unwrap_or(false);
    if hidden {
        for said in [&description, &title, &text].into_iter().flatten() {
            let message = "nobody will read this: the tool is hidden";
            reader.found.push(Diagnostic::warning(message).at(&said.at).help("leave it or `hidden` out"));
        }
    }
    let text = text.and_then(|said| {
        let is_line = !said.value.contains(char::is_control);
        if !is_line {
            reader.error(&said.at, "`text` is one line for each row", "leave line breaks and tabs out");
        }
        is_line.then(|| placed(said))
    });
    reader.finish(table);
    Some(Tool {
        name: name?,
        body: Body::Uses(uses?),
        description: value(description),
        title: value(title),
        text,
        hidden,
        rate_limit: None,
        call_timeout_ms: None,
        long_running: false,
        confirm: None,
    })
}

/// `customers.get`
fn uses(reader: &mut Reader<'_>, said: &Said) -> Option<Placed<Uses>> {
    let parts = said.value.split_once('.');
    let Some((collection, word)) = parts.filter(|(name, _)| names::is_collection_name(name)) else {
        let message = format!("{} is not a collection and what to do with it", said.quoted());
        reader.error(&said.at, message, "write a collection, a dot and an operation: `customers.get`");
        return None;
    };
    let at = said.at.inside(&said.value, collection.len() + 1..said.value.len());
    let operation = operation(reader, said, word, &at)?;
    Some(said.placed(Uses { collection: collection.into(), operation }))
}

fn collection_name(reader: &mut Reader<'_>, entry: &Entry<'_>, what: &str) -> Option<Placed<String>> {
    let is_name = names::is_collection_name(entry.key);
    if !is_name {
        let (most, such_as) = (names::COLLECTION_CHARS_MAX, names::collection_name(entry.key));
        reader.error(
            &entry.key_at,
            format!("{} cannot be the name of a {what}", quoted(entry.key)),
            format!("use letters without marks, digits and `_`, at most {most}: `{such_as}`"),
        );
    }
    is_name.then(|| Placed::new(entry.key.to_owned(), entry.key_at.clone()))
}

fn tool_name(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Placed<String>> {
    let is_name = names::is_tool_name(entry.key);
    if !is_name {
        let most = names::TOOL_CHARS_MAX;
        reader.error(
            &entry.key_at,
            format!("{} cannot be the name of a tool", quoted(entry.key)),
            format!("use letters without marks, digits, `_` and `-`, at most {most}"),
        );
    }
    is_name.then(|| Placed::new(entry.key.to_owned(), entry.key_at.clone()))
}

fn missing(reader: &mut Reader<'_>, entry: &Entry<'_>, key: &str, such_as: &str) {
    let message = format!("{} has no `{key}`", quoted(entry.key));
    reader.error(&entry.key_at, message, format!("add a line such as `{such_as}`"));
}

/// A word that is none of those that are known.
fn unknown(reader: &mut Reader<'_>, said: &Said, what: &str, known: &[&str]) {
    reader.error(&said.at, format!("unknown {what} {}", said.quoted()), instead(&said.value, known));
}
