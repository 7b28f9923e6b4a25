//! Parses `[tools.NAME]`: a generated tool under another name, or a statement with its arguments.

use super::collections::{parse_fields, parse_format, parse_operation, report_unknown_type};
use super::keys::AppliesTo;
use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, quoted};
use super::rest_sections::parse_request;
use super::sections::{located_text, parse_confirm, text_value};
use super::sources::{DeclaredSources, parse_pointer, resolve_source};
use super::{
    Argument, BYTES_MAX_DEFAULT, CHANGES_MAX_DEFAULT, CollectionOperation, Confirm, Literal, Operation,
    ROWS_MAX_DEFAULT, Request, Returns, SourceKind, Statement, Tool, ToolBody,
};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation, Located};
use crate::infer;
use crate::names;
use crate::request::Method;

/// The arguments that every writing tool has.
const WRITE_ARGUMENTS: [&str; 2] = ["idempotency_key", "dry_run"];

pub(super) fn parse_tool(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Tool> {
    let t = &mut table;
    let name = parse_tool_name(reader, entry);
    let body = parse_body(reader, entry, t, sources);
    let description = reader.text(t, "description");
    let title = reader.text(t, "title");
    let text = reader.text(t, "text");
    let hidden = reader.boolean(t, "hidden").unwrap_or(false);
    if hidden {
        for given in [&description, &title, &text].into_iter().flatten() {
            let message = "this has no effect: the tool is hidden";
            reader
                .diagnostics
                .push(Diagnostic::warning(message).at(&given.location).help("remove it or `hidden`"));
        }
    }
    let text = text.and_then(|given| {
        let is_line = !given.value.contains(char::is_control);
        if !is_line {
            reader.error(&given.location, "`text` must be one line", "remove line breaks and tabs");
        }
        is_line.then(|| located_text(given))
    });
    let rate_limit = reader.rate_limit(t, "rate_limit");
    let call_timeout_ms = reader.integer(t, "call_timeout_ms");
    let long_running = reader.boolean(t, "long_running").unwrap_or(false);
    let confirm = parse_confirm(reader, t);
    reader.finish(table);
    let body = body?;
    check_confirm(reader, confirm.as_ref(), &body);
    Some(Tool {
        name: name?,
        body,
        description: text_value(description),
        title: text_value(title),
        text_template: text,
        hidden,
        rate_limit,
        call_timeout_ms,
        long_running,
        confirm: confirm.map(|confirm| confirm.value),
    })
}

fn parse_body(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    t: &mut TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<ToolBody> {
    let (uses_at, sql_at) = (t.key_location("uses"), t.key_location("sql"));
    let request_at = t.key_location("request");
    if let (Some(_), Some(sql_at)) = (&uses_at, &sql_at) {
        let message = format!("{} has both `uses` and `sql`", quoted(entry.key));
        reader.error(sql_at, message, "keep one of them");
    }
    let other = uses_at.as_ref().map(|_| "uses").or(sql_at.as_ref().map(|_| "sql"));
    if let (Some(other), Some(at)) = (other, &request_at) {
        let message = format!("{} has both `{other}` and `request`", quoted(entry.key));
        reader.error(at, message, "keep one of them");
    }
    if uses_at.is_none() && sql_at.is_none() && request_at.is_none() {
        let message = format!("{} has neither `uses` nor `sql` nor `request`", quoted(entry.key));
        reader.error(
            &entry.key_location,
            message,
            "add a line such as `uses = \"customers.get\"`, `sql = \"select …\"` or `request = { path = \"/orders\" }`",
        );
    }
    let uses = reader.text(t, "uses");
    if request_at.is_some() && sql_at.is_none() {
        return parse_request_tool(reader, entry, t, sources).map(|one| ToolBody::Request(Box::new(one)));
    }
    reader.table(t, "request");
    if sql_at.is_some() {
        reject_keys(reader, t, "sql", |applies_to| matches!(applies_to, AppliesTo::Requests));
        return parse_statement(reader, entry, t, sources).map(|one| ToolBody::Statement(Box::new(one)));
    }
    reader.text(t, "sql");
    let body = if uses_at.is_some() { "uses" } else { "" };
    reject_keys(reader, t, body, |applies_to| !matches!(applies_to, AppliesTo::Everywhere));
    let uses = uses?;
    parse_uses(reader, &uses).map(ToolBody::Uses)
}

/// Removes and reports the keys that a tool with this body does not have. Without a body, they are not reported.
fn reject_keys(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    body: &str,
    is_rejected: impl Fn(AppliesTo) -> bool,
) {
    for key in t.keys().iter().filter(|key| is_rejected(key.applies_to)) {
        let (_, misplaced) = t.take(key.name);
        let Some(misplaced) = misplaced.filter(|_| !body.is_empty()) else { continue };
        let needed = match key.applies_to {
            AppliesTo::Requests => "`request`",
            AppliesTo::StatementsAndRequests => "`sql` or `request`",
            AppliesTo::Statements | AppliesTo::Everywhere | AppliesTo::SourceKinds(_) => "`sql`",
        };
        let message = format!("`{}` is only for tools with {needed}, and this one has `{body}`", key.name);
        let help = match key.name {
            "writes" => "remove it: the operation decides whether the tool writes",
            "source" => "remove it: the collection has a source",
            "rows_max" | "bytes_max" | "fields" => "move it to the collection",
            _ => "remove it",
        };
        reader.error(&misplaced.key_location, message, help);
    }
}

fn parse_request_tool(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    t: &mut TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Request> {
    let template = parse_request(reader, t);
    reader.text(t, "sql");
    let source = resolve_source(reader, entry, t, sources);
    let kind = source.as_ref().and_then(|source| sources.kind(&source.value));
    if let (Some(source), Some(kind)) = (&source, kind)
        && kind != SourceKind::Rest
    {
        let message = format!(
            "source `{}` is of the kind `{}`; requests need a source of the kind `rest`",
            source.value,
            kind.as_str()
        );
        let help = "name another source, or use a generated tool: `uses = \"NAME.list\"`";
        reader.error(&source.location, message, help);
    }
    let writes = reader.boolean(t, "writes");
    reject_keys(reader, t, "request", |applies_to| matches!(applies_to, AppliesTo::Statements));
    let rows_at = t.key_location("rows_max");
    let returns = reader.one_of(t, "returns").map(|(_, word)| word);
    let result = reader.text(t, "result").and_then(|text| parse_pointer(reader, text)).unwrap_or_default();
    let named = reader.named_tables(t, "arguments");
    let mut arguments = Vec::with_capacity(named.len());
    for (entry, table) in named {
        arguments.extend(parse_argument(reader, &entry, table, ArgumentUse::Request));
    }
    let fields = parse_fields(reader, t);
    let rows_max = reader.integer(t, "rows_max");
    let bytes_max = reader.integer(t, "bytes_max");
    let returns = if returns == Some("many") { Returns::Many } else { Returns::One };
    if let (Some(at), Returns::One) = (rows_at, returns) {
        let help = "write `returns = \"many\"`, or remove it";
        reader.error(&at, "`rows_max` has no effect: this tool returns one record", help);
    }
    if let (Returns::Many, true) = (returns, fields.is_empty()) {
        let help = "declare what a record has: `fields.id = { as = \"integer\" }`";
        reader.error(&entry.key_location, "`returns = \"many\"` needs `fields`", help);
    }
    let template = template?;
    let writes = writes.unwrap_or(!template.value.method.is_safe());
    if !writes && !matches!(template.value.method, Method::Get | Method::Post) {
        let message = format!("a `{}` request writes", template.value.method.as_str());
        reader.error(&template.location, message, "remove `writes = false`");
    }
    Some(Request {
        source: source?,
        template,
        arguments,
        writes,
        result,
        returns,
        fields,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
    })
}

/// What an argument is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentUse {
    ReadingStatement,
    WritingStatement,
    Request,
}

fn check_confirm(reader: &mut ManifestReader<'_>, confirm: Option<&Located<Confirm>>, body: &ToolBody) {
    let Some(confirm) = confirm else { return };
    let (reads, help) = match body {
        ToolBody::Uses(uses) => {
            (!uses.value.operation.writes(), "remove it; it is for `create`, `update` and `delete`")
        }
        ToolBody::Statement(statement) => (!statement.writes, "remove it, or add `writes = true`"),
        ToolBody::Request(request) => (!request.writes, "remove it, or add `writes = true`"),
    };
    if reads {
        reader.error(
            &confirm.location,
            "`confirm` asks before something is written, and this tool only reads",
            help,
        );
    }
}

fn parse_statement(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    t: &mut TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Statement> {
    let sql = reader.text(t, "sql");
    let source = resolve_source(reader, entry, t, sources);
    let kind = source.as_ref().and_then(|source| sources.kind(&source.value));
    if let (Some(source), Some(kind)) = (&source, kind)
        && !matches!(kind, SourceKind::Sqlite | SourceKind::Postgres | SourceKind::MySql)
    {
        let message = format!(
            "source `{}` is of the kind `{}`; SQL tools need a database",
            source.value,
            kind.as_str()
        );
        let help = "use a generated tool instead: `uses = \"NAME.list\"`, with the name of a collection";
        reader.error(&source.location, message, help);
    }
    let (changes_at, rows_at) = (t.key_location("changes_max"), t.key_location("rows_max"));
    let writes = reader.boolean(t, "writes");
    let changes_max = reader.integer(t, "changes_max");
    let returns = reader.one_of(t, "returns").map(|(_, word)| word);
    let named = reader.named_tables(t, "arguments");
    let argument_use = match writes {
        Some(true) => ArgumentUse::WritingStatement,
        Some(false) | None => ArgumentUse::ReadingStatement,
    };
    let mut arguments = Vec::with_capacity(named.len());
    for (entry, table) in named {
        arguments.extend(parse_argument(reader, &entry, table, argument_use));
    }
    let fields = parse_fields(reader, t);
    let rows_max = reader.integer(t, "rows_max");
    let bytes_max = reader.integer(t, "bytes_max");
    if let (Some(at), None | Some(false)) = (changes_at, writes) {
        let message = "`changes_max` is only for statements that write";
        reader.error(&at, message, "add `writes = true`, or remove it");
    }
    if let (Some(at), Some("one")) = (rows_at, returns) {
        reader.error(&at, "`rows_max` has no effect: this tool returns one row", "remove it or `returns`");
    }
    Some(Statement {
        source: source?,
        sql: located_text(sql?),
        arguments,
        writes: writes.unwrap_or(false),
        changes_max: changes_max.unwrap_or(CHANGES_MAX_DEFAULT),
        returns: if returns == Some("one") { Returns::One } else { Returns::Many },
        fields,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
    })
}

fn parse_argument(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    argument_use: ArgumentUse,
) -> Option<Argument> {
    let t = &mut table;
    let name = parse_argument_name(reader, entry, argument_use);
    let as_at = t.key_location("as").filter(|_| t.key_location("type").is_some());
    if let Some(at) = as_at {
        reader.error(&at, "`as` and `type` mean the same", "keep one of them");
    }
    let mut kind = parse_argument_type(reader, t, "type", argument_use);
    let alias = parse_argument_type(reader, t, "as", argument_use);
    kind = kind.or(alias);
    let mut format = parse_format(reader, t);
    let allowed = reader.literals(t, "enum").unwrap_or_default();
    let is_integers = matches!(allowed.first().map(|one| &one.value), Some(Literal::Integer(_)));
    let mut kind = kind.unwrap_or(if is_integers { DataType::Integer } else { DataType::Text });
    if kind == DataType::Text && format.as_ref().is_some_and(|format| format.value == "date") {
        (kind, format) = (DataType::Date, None);
    }
    if let Some(format) = &format
        && kind != DataType::Text
    {
        let message = format!("`{}` is `{}`, which has no format", entry.key, kind.as_str());
        reader.error(
            &format.location,
            message,
            "only text has a format; remove it, or write `type = \"string\"`",
        );
    }
    check_allowed(reader, entry.key, kind, &allowed);
    let description = text_value(reader.text(t, "description"));
    let default = reader.literal(t, "default");
    let required_at = t.key_location("required");
    let required = reader.boolean(t, "required");
    let nullable_at = t.key_location("nullable");
    let is_nullable = reader.boolean(t, "nullable") == Some(true);
    let nullable = nullable_at.filter(|_| is_nullable);
    reader.finish(table);
    let is_required = required.unwrap_or(default.is_none()) && default.is_none();
    if let Some(at) = &nullable {
        if argument_use != ArgumentUse::Request {
            let message = format!("`{}` cannot be null: only a `request` sends `null`", entry.key);
            reader.error(
                at,
                message,
                "write `required = false`: an omitted argument is NULL in the statement",
            );
        } else if !is_required {
            let message = format!("`{}` is optional, so `null` means that it is omitted", entry.key);
            reader.error(at, message, "remove `nullable`, or make it required");
        }
    }
    if let Some(default) = &default {
        check_default(reader, entry.key, kind, &allowed, default);
        if let (Some(at), Some(true)) = (required_at, required) {
            let message = format!("`{}` is required, so its default has no effect", entry.key);
            reader.error(&at, message, "remove `required` or `default`");
        }
    }
    Some(Argument {
        name: name?,
        data_type: kind,
        format,
        description,
        allowed,
        required: required.unwrap_or(default.is_none()),
        nullable,
        default: default.map(|default| default.value),
    })
}

fn parse_argument_type(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    key: &'static str,
    argument_use: ArgumentUse,
) -> Option<DataType> {
    let (given, known) = reader.one_of_text(t, key)?;
    let kind = if given.value == "string" { Some(DataType::Text) } else { DataType::parse(&given.value) };
    match kind {
        None => report_unknown_type(reader, &given, &known),
        Some(DataType::Json) if argument_use == ArgumentUse::Request => return kind,
        Some(kind) if !kind.is_scalar() => {
            let message = format!("an argument cannot be {}", given.quoted());
            reader.error(
                &given.location,
                message,
                "write `string`, and describe the content in `description`",
            );
        }
        Some(_) => return kind,
    }
    None
}

fn parse_argument_name(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    argument_use: ArgumentUse,
) -> Option<Located<String>> {
    let key = entry.key;
    let unprefixed = key.trim_start_matches([':', '@', '$']);
    let is_name = |name: &str| {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts
            && name.len() <= names::ARGUMENT_CHARS_MAX
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if argument_use != ArgumentUse::ReadingStatement && WRITE_ARGUMENTS.contains(&key) {
        let message = format!("{} is a reserved argument", quoted(key));
        let help = format!("every tool that writes has {}; choose another name", join_and(&WRITE_ARGUMENTS));
        reader.error(&entry.key_location, message, help);
        return None;
    }
    if is_name(key) {
        return Some(Located::new(key.to_owned(), entry.key_location.clone()));
    }
    let message = format!("{} is not a valid name for an argument", quoted(key));
    let help = if unprefixed != key && is_name(unprefixed) {
        format!("the sign belongs in the statement only: write `{unprefixed}` here")
    } else {
        let chars_max = names::ARGUMENT_CHARS_MAX;
        format!("use at most {chars_max} ASCII letters, digits and `_`, starting with a letter")
    };
    reader.error(&entry.key_location, message, help);
    None
}

/// Whether a value of `enum` is spelled as values of this type are.
pub(crate) fn is_enum_value(literal: &Literal, kind: DataType) -> bool {
    match literal {
        Literal::Text(_) => {
            matches!(kind, DataType::Text | DataType::Date | DataType::Decimal | DataType::Int64)
        }
        Literal::Integer(_) => kind == DataType::Integer,
        Literal::Number(_) | Literal::Boolean(_) => false,
    }
}

/// What to do about a value of `enum` that is not of the type.
pub(crate) fn enum_help(kind: DataType) -> &'static str {
    match kind {
        DataType::Text | DataType::Date | DataType::Decimal | DataType::Int64 => {
            "write it in quotes, or remove `enum`"
        }
        DataType::Integer => "write an integer without quotes, or remove `enum`",
        DataType::Number
        | DataType::Boolean
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => "remove `enum`: it is for texts, dates and integers",
    }
}

fn check_allowed(reader: &mut ManifestReader<'_>, name: &str, kind: DataType, allowed: &[Located<Literal>]) {
    // All values have the same type, so one error is enough.
    if let Some(odd) = allowed.iter().find(|one| !is_enum_value(&one.value, kind)) {
        let message = format!("`{name}` is `{}`, and this value is not", kind.as_str());
        reader.error(&odd.location, message, enum_help(kind));
        return;
    }
    for one in allowed {
        check_text(reader, kind, one);
    }
}

fn check_default(
    reader: &mut ManifestReader<'_>,
    name: &str,
    kind: DataType,
    allowed: &[Located<Literal>],
    default: &Located<Literal>,
) {
    let (fits, expected) = match kind {
        DataType::Text
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Decimal
        | DataType::Int64 => (matches!(default.value, Literal::Text(_)), "a text in quotes"),
        DataType::Integer => (matches!(default.value, Literal::Integer(_)), "an integer without quotes"),
        DataType::Number => {
            (matches!(default.value, Literal::Integer(_) | Literal::Number(_)), "a number without quotes")
        }
        DataType::Boolean => {
            (matches!(default.value, Literal::Boolean(_)), "`true` or `false`, without quotes")
        }
        DataType::Json | DataType::Blob => return,
    };
    if !fits {
        let message = format!("the default of `{name}` is not {}", kind.with_article());
        reader.error(&default.location, message, format!("write {expected}"));
    } else if !allowed.is_empty() && allowed.iter().all(|one| one.value != default.value) {
        let message = format!("the default of `{name}` is not in its `enum`");
        reader.error(&default.location, message, "add it to `enum`, or choose one of the values");
    } else {
        check_text(reader, kind, default);
    }
}

/// Checks that a text is a value of the type.
fn check_text(reader: &mut ManifestReader<'_>, kind: DataType, literal: &Located<Literal>) {
    let Literal::Text(text) = &literal.value else { return };
    if infer::matches_type(kind, text) {
        return;
    }
    let example = match kind {
        DataType::Date => "2026-01-31",
        DataType::Timestamp => "2026-01-31T12:00:00Z",
        DataType::LocalTimestamp => "2026-01-31T12:00:00",
        DataType::Int64 => "42",
        _ => "12.50",
    };
    let message = format!("{} is not of the type `{}`", quoted(text), kind.as_str());
    reader.error(&literal.location, message, format!("write it like `{example}`"));
}

/// `customers.get`
fn parse_uses(reader: &mut ManifestReader<'_>, given: &TextValue) -> Option<Located<CollectionOperation>> {
    let parts = given.value.split_once('.');
    let Some((collection, word)) = parts.filter(|(name, _)| names::is_collection_name(name)) else {
        let operations = Operation::ALL.map(Operation::as_str);
        let help = format!("the operations are {}", join_and(&operations));
        let message = "`uses` must be COLLECTION.OPERATION, such as `customers.get`";
        reader.error(&given.location, message, help);
        return None;
    };
    let at: FileLocation = given.location.inside(&given.value, collection.len() + 1..given.value.len());
    let operation = parse_operation(reader, given, word, &at)?;
    Some(given.located(CollectionOperation { collection: collection.into(), operation }))
}

fn parse_tool_name(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<Located<String>> {
    let is_name = names::is_tool_name(entry.key);
    if !is_name {
        let chars_max = names::TOOL_CHARS_MAX;
        reader.error(
            &entry.key_location,
            format!("{} is not a valid name for a tool", quoted(entry.key)),
            format!("use at most {chars_max} ASCII letters, digits, `_` and `-`"),
        );
    }
    is_name.then(|| Located::new(entry.key.to_owned(), entry.key_location.clone()))
}
