//! `[tools.NAME]`: another name for what is generated, or a statement with its arguments.

use super::collections::{fields, format, operation, unknown_type};
use super::keys::Only;
use super::reader::{Entry, Reader, Said, Table, listed, quoted};
use super::sections::{confirm, placed, value};
use super::sources::{Sources, from};
use super::{
    Argument, BYTES_MAX_DEFAULT, Body, CHANGES_MAX_DEFAULT, Confirm, Literal, ROWS_MAX_DEFAULT, Returns,
    SourceKind, Statement, Tool, Uses,
};
use crate::diagnostic::{At, Diagnostic, Placed};
use crate::infer;
use crate::kind::Kind;
use crate::names;

/// What a tool that writes takes besides.
const OF_WRITING: [&str; 2] = ["idempotency_key", "dry_run"];

pub(super) fn tool(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    mut table: Table<'_>,
    sources: &Sources<'_>,
) -> Option<Tool> {
    let t = &mut table;
    let name = tool_name(reader, entry);
    let body = body(reader, entry, t, sources);
    let description = reader.text(t, "description");
    let title = reader.text(t, "title");
    let text = reader.text(t, "text");
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
    let rate_limit = reader.rate(t, "rate_limit");
    let call_timeout_ms = reader.integer(t, "call_timeout_ms");
    let long_running = reader.boolean(t, "long_running").unwrap_or(false);
    let confirm = confirm(reader, t);
    reader.finish(table);
    let body = body?;
    judge_confirm(reader, confirm.as_ref(), &body);
    Some(Tool {
        name: name?,
        body,
        description: value(description),
        title: value(title),
        text,
        hidden,
        rate_limit,
        call_timeout_ms,
        long_running,
        confirm: confirm.map(|confirm| confirm.value),
    })
}

fn body(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    t: &mut Table<'_>,
    sources: &Sources<'_>,
) -> Option<Body> {
    let (uses_at, sql_at) = (t.place("uses"), t.place("sql"));
    if let (Some(_), Some(sql_at)) = (&uses_at, &sql_at) {
        let message = format!("{} has both `uses` and `sql`", quoted(entry.key));
        reader.error(sql_at, message, "keep one: what is generated, or a statement of your own");
    }
    if uses_at.is_none() && sql_at.is_none() {
        let message = format!("{} has neither `uses` nor `sql`", quoted(entry.key));
        reader.error(
            &entry.key_at,
            message,
            "add a line such as `uses = \"customers.get\"` or `sql = \"select …\"`",
        );
    }
    let uses = reader.text(t, "uses");
    if sql_at.is_some() {
        return statement(reader, entry, t, sources).map(|one| Body::Statement(Box::new(one)));
    }
    reader.text(t, "sql");
    for key in t.keys() {
        if !matches!(key.only, Only::Statements) {
            continue;
        }
        let (_, misplaced) = t.take(key.name);
        if let Some(misplaced) = misplaced.filter(|_| uses_at.is_some()) {
            let message = format!("`{}` is for tools with `sql`, and this one has `uses`", key.name);
            let help = match key.name {
                "writes" => "whether it writes follows from the operation; leave it out",
                "source" => "its collection has a source; leave it out",
                "rows_max" | "bytes_max" | "fields" => "say it for the collection instead",
                _ => "leave it out",
            };
            reader.error(&misplaced.key_at, message, help);
        }
    }
    let uses = uses?;
    self::uses(reader, &uses).map(Body::Uses)
}

fn judge_confirm(reader: &mut Reader<'_>, confirm: Option<&Placed<Confirm>>, body: &Body) {
    let Some(confirm) = confirm else { return };
    let (reads, help) = match body {
        Body::Uses(uses) => {
            (!uses.value.operation.writes(), "it is for `create`, `update` and `delete`; leave it out")
        }
        Body::Statement(statement) => (!statement.writes, "leave it out, or say `writes = true`"),
    };
    if reads {
        reader.error(
            &confirm.at,
            "`confirm` asks before something is written, and this tool only reads",
            help,
        );
    }
}

fn statement(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    t: &mut Table<'_>,
    sources: &Sources<'_>,
) -> Option<Statement> {
    let sql = reader.text(t, "sql");
    let source = from(reader, entry, t, sources);
    let kind = source.as_ref().and_then(|source| sources.kind(&source.value));
    if let (Some(source), Some(kind)) = (&source, kind)
        && kind != SourceKind::Sqlite
    {
        let message = format!("`{}` has no statements: it is `{}`", source.value, kind.as_str());
        let help =
            "statements are for sources of the kind `sqlite`; use what is generated: `uses = \"….list\"`";
        reader.error(&source.at, message, help);
    }
    let (changes_at, rows_at) = (t.place("changes_max"), t.place("rows_max"));
    let writes = reader.boolean(t, "writes");
    let changes_max = reader.integer(t, "changes_max");
    let returns = reader.word(t, "returns").map(|(_, word)| word);
    let named = reader.named(t, "arguments");
    let mut arguments = Vec::with_capacity(named.len());
    for (entry, table) in named {
        arguments.extend(argument(reader, &entry, table, writes == Some(true)));
    }
    let fields = fields(reader, t);
    let rows_max = reader.integer(t, "rows_max");
    let bytes_max = reader.integer(t, "bytes_max");
    if let (Some(at), None | Some(false)) = (changes_at, writes) {
        let message = "`changes_max` is for statements that write";
        reader.error(&at, message, "add `writes = true`, or leave it out");
    }
    if let (Some(at), Some("one")) = (rows_at, returns) {
        reader.error(
            &at,
            "`rows_max` is for many rows, and this tool returns one",
            "leave it or `returns` out",
        );
    }
    Some(Statement {
        source: source?,
        sql: placed(sql?),
        arguments,
        writes: writes.unwrap_or(false),
        changes_max: changes_max.unwrap_or(CHANGES_MAX_DEFAULT),
        returns: if returns == Some("one") { Returns::One } else { Returns::Many },
        fields,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
    })
}

fn argument(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    mut table: Table<'_>,
    writes: bool,
) -> Option<Argument> {
    let t = &mut table;
    let name = argument_name(reader, entry, writes);
    let as_at = t.place("as").filter(|_| t.place("type").is_some());
    if let Some(at) = as_at {
        reader.error(&at, "`as` and `type` mean the same here", "keep one of the two");
    }
    let mut kind = argument_kind(reader, t, "type");
    let also = argument_kind(reader, t, "as");
    kind = kind.or(also);
    let mut format = format(reader, t);
    let allowed = reader.literals(t, "enum").unwrap_or_default();
    let is_integers = matches!(allowed.first().map(|one| &one.value), Some(Literal::Integer(_)));
    let mut kind = kind.unwrap_or(if is_integers { Kind::Integer } else { Kind::Text });
    if kind == Kind::Text && format.as_ref().is_some_and(|format| format.value == "date") {
        (kind, format) = (Kind::Date, None);
    }
    if let Some(format) = &format
        && kind != Kind::Text
    {
        let message = format!("`{}` is `{}`, and has no format", entry.key, kind.as_str());
        reader.error(&format.at, message, "formats are for texts; leave it out, or say `type = \"string\"`");
    }
    judge_allowed(reader, entry.key, kind, &allowed);
    let description = value(reader.text(t, "description"));
    let default = reader.literal(t, "default");
    let required_at = t.place("required");
    let required = reader.boolean(t, "required");
    reader.finish(table);
    if let Some(default) = &default {
        judge_default(reader, entry.key, kind, &allowed, default);
        if let (Some(at), Some(true)) = (required_at, required) {
            let message = format!("`{}` is required, so its default is never used", entry.key);
            reader.error(&at, message, "leave `required` or `default` out");
        }
    }
    Some(Argument {
        name: name?,
        kind,
        format,
        description,
        allowed,
        required: required.unwrap_or(default.is_none()),
        default: default.map(|default| default.value),
    })
}

fn argument_kind(reader: &mut Reader<'_>, t: &mut Table<'_>, key: &'static str) -> Option<Kind> {
    let (said, known) = reader.word_said(t, key)?;
    let kind = if said.value == "string" { Some(Kind::Text) } else { Kind::parse(&said.value) };
    match kind {
        None => unknown_type(reader, &said, &known),
        Some(kind) if !kind.is_scalar() => {
            let message = format!("an argument cannot be {}", said.quoted());
            reader.error(&said.at, message, "write `string`, and what it holds in the description");
        }
        Some(_) => return kind,
    }
    None
}

fn argument_name(reader: &mut Reader<'_>, entry: &Entry<'_>, writes: bool) -> Option<Placed<String>> {
    let key = entry.key;
    let bare = key.trim_start_matches([':', '@', '$']);
    let is_name = |name: &str| {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts
            && name.len() <= names::ARGUMENT_CHARS_MAX
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if writes && OF_WRITING.contains(&key) {
        let message = format!("{} cannot be an argument of yours", quoted(key));
        let help = format!("every tool that writes has {}; choose another", listed(&OF_WRITING));
        reader.error(&entry.key_at, message, help);
        return None;
    }
    if is_name(key) {
        return Some(Placed::new(key.to_owned(), entry.key_at.clone()));
    }
    let message = format!("{} cannot be the name of an argument", quoted(key));
    let help = if bare != key && is_name(bare) {
        format!("only the statement has the sign: write `{bare}` here")
    } else {
        let most = names::ARGUMENT_CHARS_MAX;
        format!("use letters without marks, digits and `_`, a letter first, at most {most}")
    };
    reader.error(&entry.key_at, message, help);
    None
}

fn judge_allowed(reader: &mut Reader<'_>, name: &str, kind: Kind, allowed: &[Placed<Literal>]) {
    let help = match kind {
        Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64 => "write it in quotes",
        Kind::Integer => "write a whole number without quotes",
        Kind::Number | Kind::Boolean | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => {
            "leave the list out: it is for texts, dates and whole numbers"
        }
    };
    let is_listed = |literal: &Literal| match literal {
        Literal::Text(_) => matches!(kind, Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64),
        Literal::Integer(_) => kind == Kind::Integer,
        Literal::Number(_) | Literal::Boolean(_) => false,
    };
    // One is enough: they are all of one sort.
    if let Some(odd) = allowed.iter().find(|one| !is_listed(&one.value)) {
        reader.error(&odd.at, format!("`{name}` is `{}`, and this value is not", kind.as_str()), help);
        return;
    }
    for one in allowed {
        judge_text(reader, kind, one);
    }
}

fn judge_default(
    reader: &mut Reader<'_>,
    name: &str,
    kind: Kind,
    allowed: &[Placed<Literal>],
    default: &Placed<Literal>,
) {
    let (fits, such_as) = match kind {
        Kind::Text | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Decimal | Kind::Int64 => {
            (matches!(default.value, Literal::Text(_)), "a text in quotes")
        }
        Kind::Integer => (matches!(default.value, Literal::Integer(_)), "a whole number without quotes"),
        Kind::Number => {
            (matches!(default.value, Literal::Integer(_) | Literal::Number(_)), "a number without quotes")
        }
        Kind::Boolean => (matches!(default.value, Literal::Boolean(_)), "`true` or `false`, without quotes"),
        Kind::Json | Kind::Blob => return,
    };
    if !fits {
        let message = format!("`{name}` is `{}`, and its default is not", kind.as_str());
        reader.error(&default.at, message, format!("write {such_as}"));
    } else if !allowed.is_empty() && allowed.iter().all(|one| one.value != default.value) {
        let message = format!("the default of `{name}` is not one of its values");
        reader.error(&default.at, message, "add it to `enum`, or choose one that is there");
    } else {
        judge_text(reader, kind, default);
    }
}

/// A text that should read as a value of its kind.
fn judge_text(reader: &mut Reader<'_>, kind: Kind, literal: &Placed<Literal>) {
    let Literal::Text(text) = &literal.value else { return };
    if infer::is(kind, text) {
        return;
    }
    let such_as = match kind {
        Kind::Date => "2026-01-31",
        Kind::Timestamp => "2026-01-31T12:00:00Z",
        Kind::LocalTimestamp => "2026-01-31T12:00:00",
        Kind::Int64 => "42",
        _ => "12.50",
    };
    let message = format!("{} is no `{}`", quoted(text), kind.as_str());
    reader.error(&literal.at, message, format!("write it as `{such_as}`"));
}

/// `customers.get`
fn uses(reader: &mut Reader<'_>, said: &Said) -> Option<Placed<Uses>> {
    let parts = said.value.split_once('.');
    let Some((collection, word)) = parts.filter(|(name, _)| names::is_collection_name(name)) else {
        let message = format!("{} is not a collection and what to do with it", said.quoted());
        reader.error(&said.at, message, "write a collection, a dot and an operation: `customers.get`");
        return None;
    };
    let at: At = said.at.inside(&said.value, collection.len() + 1..said.value.len());
    let operation = operation(reader, said, word, &at)?;
    Some(said.placed(Uses { collection: collection.into(), operation }))
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
