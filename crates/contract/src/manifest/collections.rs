//! `[collections.NAME]` and what is said about its fields.

use super::reader::{Entry, Reader, Said, Table, instead, listed};
use super::sections::{collection_name, confirm, placed, unknown, value};
use super::sources::{Sources, from, misplaced};
use super::{
    BYTES_MAX_DEFAULT, Collection, Confirm, FORMATS, Field, Operation, ROWS_MAX_DEFAULT,
    SEARCH_ROWS_MAX_DEFAULT, SourceKind,
};
use crate::diagnostic::{At, Diagnostic, Placed};
use crate::kind::Kind;
use crate::names;

pub(super) fn collection(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    mut table: Table<'_>,
    sources: &Sources<'_>,
) -> Option<Collection> {
    let t = &mut table;
    let name = collection_name(reader, entry, "collection");
    let source = from(reader, entry, t, sources);
    let kind = source.as_ref().and_then(|source| sources.kind(&source.value));
    if let Some(kind) = kind {
        misplaced(reader, t, kind);
    }
    let places = Places::of(t);
    let table_name = reader.text(t, "table");
    let sheet = reader.text(t, "sheet");
    let header_row = reader.integer(t, "header_row");
    let key: Vec<Placed<String>> =
        reader.columns(t, "key").unwrap_or_default().into_iter().map(placed).collect();
    let description = value(reader.text(t, "description"));
    let operations = reader.words(t, "operations").map(|all| operations(reader, &all));
    let filters = reader.choice(t, "filters");
    let sort = reader.choice(t, "sort");
    let search = reader.choice(t, "search");
    let search_rows_max = reader.integer(t, "search_rows_max");
    let rows_max = reader.integer(t, "rows_max");
    let bytes_max = reader.integer(t, "bytes_max");
    let null = value(reader.text(t, "null"));
    let version = reader.text(t, "version").map(placed);
    let version_required = reader.boolean(t, "version_required");
    let confirm = confirm(reader, t);
    let fields = fields(reader, t);
    reader.finish(table);
    judge_operations(reader, operations.as_deref(), kind, &places);
    judge_key(reader, &key, version.as_ref(), &fields);
    Some(Collection {
        name: name?,
        source: source?,
        table: table_name.or(sheet).map(placed),
        header_row,
        key,
        description,
        operations,
        filters,
        sort,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
        null,
        fields,
        search,
        search_rows_max: search_rows_max.unwrap_or(SEARCH_ROWS_MAX_DEFAULT),
        version,
        version_required: version_required.unwrap_or(false),
        confirm: confirm.map_or(Confirm::Never, |confirm| confirm.value),
    })
}

/// Where keys stand that mean something only beside certain operations.
struct Places {
    of_search: Vec<(&'static str, At)>,
    of_change: Vec<(&'static str, At)>,
    of_list: Vec<(&'static str, At)>,
}

impl Places {
    fn of(table: &Table<'_>) -> Self {
        let found = |names: &[&'static str]| {
            names.iter().filter_map(|name| Some((*name, table.place(name)?))).collect()
        };
        Self {
            of_search: found(&["search", "search_rows_max"]),
            of_change: found(&["version", "version_required", "confirm"]),
            of_list: found(&["filters", "sort"]),
        }
    }
}

fn judge_operations(
    reader: &mut Reader<'_>,
    said: Option<&[Placed<Operation>]>,
    kind: Option<SourceKind>,
    places: &Places,
) {
    let has = |wanted: &[Operation]| match said {
        Some(all) => all.iter().any(|one| wanted.contains(&one.value)),
        None => wanted.iter().any(|one| Operation::DEFAULT.contains(one)),
    };
    // Words that were not understood may have been the ones.
    if said.is_some_and(<[_]>::is_empty) {
        return;
    }
    let now: Vec<&str> = match said {
        Some(all) => all.iter().map(|one| one.value.as_str()).collect(),
        None => Operation::DEFAULT.map(Operation::as_str).to_vec(),
    };
    let with = |more: &str| {
        let all: Vec<String> = now.iter().chain([&more]).map(|one| format!("\"{one}\"")).collect();
        format!("write `operations = [{}]`, or leave it out", all.join(", "))
    };
    if !has(&[Operation::Search]) {
        for (name, at) in &places.of_search {
            reader.error(
                at,
                format!("`{name}` is for the operation `search`, which is not here"),
                with("search"),
            );
        }
    }
    if !has(&[Operation::Update, Operation::Delete]) {
        for (name, at) in &places.of_change {
            let message =
                format!("`{name}` is for the operations `update` and `delete`, and neither is here");
            reader.error(at, message, with("update"));
        }
    }
    if !has(&[Operation::List]) {
        for (name, at) in &places.of_list {
            reader.error(
                at,
                format!("`{name}` is for the operation `list`, which is not here"),
                with("list"),
            );
        }
    }
    let Some(kind) = kind.filter(|kind| !kind.is_writable()) else { return };
    for one in said.unwrap_or_default().iter().filter(|one| one.value.writes()) {
        let message =
            format!("`{}`: files of the kind `{}` are only read", one.value.as_str(), kind.as_str());
        let help = "save it as xlsx, or leave the operation out; `get`, `list` and `search` work";
        reader.error(&one.at, message, help);
    }
}

/// What tells records and their states apart must be what callers can see and say.
fn judge_key(
    reader: &mut Reader<'_>,
    key: &[Placed<String>],
    version: Option<&Placed<String>>,
    fields: &[Field],
) {
    let said = |column: &str| {
        let is_it = |field: &&Field| {
            field.column.value == column || field.name.as_ref().is_some_and(|name| name.value == column)
        };
        fields.iter().find(is_it)
    };
    for part in key {
        if said(&part.value).is_some_and(|field| field.sensitive) {
            let message = format!("the key `{}` is sensitive", part.value);
            let help = "a key is in every call, cursor and question, so it cannot be kept secret; choose another key, \
                        or leave `sensitive` out";
            reader.error(&part.at, message, help);
        }
    }
    let Some(version) = version else { return };
    if key.iter().any(|part| part.value == version.value) {
        let message = format!("`{}` cannot be key and version", version.value);
        let help = "a key stays the same, and a version grows with every update; choose another column";
        reader.error(&version.at, message, help);
    }
    let Some(field) = said(&version.value) else { return };
    if field.hidden {
        let message = format!("the version `{}` is hidden", version.value);
        reader.error(&version.at, message, "callers must see it to say which state they mean; show it");
    }
    if let Some(kind) = field.kind.as_ref().filter(|kind| kind.value != Kind::Integer) {
        let message = format!("the version `{}` is {} here", version.value, kind.value.as_str());
        reader.error(&kind.at, message, "a version is a whole number: write `as = \"integer\"`");
    }
}

fn operations(reader: &mut Reader<'_>, all: &[Said]) -> Vec<Placed<Operation>> {
    all.iter().filter_map(|said| Some(said.placed(operation(reader, said, &said.value, &said.at)?))).collect()
}

pub(super) fn operation(reader: &mut Reader<'_>, said: &Said, word: &str, at: &At) -> Option<Operation> {
    let operation = Operation::parse(word);
    if operation.is_none() {
        let written = if said.value == said.written { word.to_owned() } else { said.written.clone() };
        let message = format!("unknown operation {}", super::reader::quoted(&written));
        let known = Operation::ALL.map(Operation::as_str);
        let meant: &[&str] = match word.to_lowercase().as_str() {
            "read" => &["get", "list"],
            "write" | "save" | "upsert" => &["create", "update"],
            "insert" | "add" | "new" | "post" => &["create"],
            "edit" | "change" | "set" | "patch" | "put" => &["update"],
            "remove" | "destroy" => &["delete"],
            "find" | "fetch" | "lookup" | "show" => &["get"],
            "all" | "query" | "index" => &["list"],
            "*" => &known,
            _ => &[],
        };
        let help = match meant {
            [] => instead(word, &known),
            [one] => format!("did you mean `{one}`?"),
            several => format!("write what you mean: {}", listed(several)),
        };
        reader.error(at, message, help);
    }
    operation
}

pub(super) fn fields(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Vec<Field> {
    let named = reader.named(table, "fields");
    named.into_iter().map(|(entry, table)| field(reader, &entry, table)).collect()
}

fn field(reader: &mut Reader<'_>, entry: &Entry<'_>, mut table: Table<'_>) -> Field {
    let t = &mut table;
    let unseen: Vec<(&str, At)> = ["description", "name", "sensitive", "format", "enum"]
        .into_iter()
        .filter_map(|name| Some((name, t.place(name)?)))
        .collect();
    if let Some(word) = t.take_stray("type") {
        let help = format!("write `as = {}`", word.written(reader));
        reader.error(&word.key_at, "a field has `as`, not `type`", help);
    }
    let kind = reader.word_said(t, "as").and_then(|(said, known)| {
        let kind = Kind::parse(&said.value);
        if kind.is_none() {
            unknown_type(reader, &said, &known);
        }
        Some(said.placed(kind?))
    });
    let field = Field {
        column: Placed::new(entry.key.to_owned(), entry.key_at.clone()),
        kind,
        format: format(reader, t),
        allowed: reader.literals(t, "enum").unwrap_or_default(),
        description: value(reader.text(t, "description")),
        name: reader.text(t, "name").and_then(|said| field_name(reader, said)),
        null: value(reader.text(t, "null")),
        hidden: reader.boolean(t, "hidden").unwrap_or(false),
        sensitive: reader.boolean(t, "sensitive").unwrap_or(false),
    };
    reader.finish(table);
    if field.hidden {
        for (name, at) in unseen {
            let message = format!("`{name}` says nothing here: the field is hidden");
            reader.found.push(Diagnostic::warning(message).at(&at).help("leave it or `hidden` out"));
        }
    }
    field
}

pub(super) fn format(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Option<Placed<&'static str>> {
    let (said, known) = reader.word_said(table, "format")?;
    let format = FORMATS.into_iter().find(|format| *format == said.value);
    if format.is_none() {
        let meant = match said.value.to_lowercase().as_str() {
            "datetime" | "timestamp" => Some("date-time"),
            "url" | "link" => Some("uri"),
            "mail" | "e-mail" => Some("email"),
            "ip" => Some("ipv4"),
            "guid" => Some("uuid"),
            _ => None,
        };
        match meant {
            Some(meant) => {
                let message = format!("unknown format {}", said.quoted());
                reader.error(&said.at, message, format!("did you mean `{meant}`?"));
            }
            None => unknown(reader, &said, "format", &known),
        }
    }
    Some(said.placed(format?))
}

/// The words of other tools and databases for what we have, too.
pub(super) fn unknown_type(reader: &mut Reader<'_>, said: &Said, known: &[&str]) {
    let meant = match said.value.to_ascii_lowercase().as_str() {
        "string" | "varchar" | "char" | "str" => Some(Kind::Text),
        "int" => Some(Kind::Integer),
        "bigint" | "long" => Some(Kind::Int64),
        "float" | "double" | "real" => Some(Kind::Number),
        "numeric" | "money" | "currency" => Some(Kind::Decimal),
        "datetime" | "date-time" | "timestamptz" => Some(Kind::Timestamp),
        "binary" | "bytes" => Some(Kind::Blob),
        "object" | "array" => Some(Kind::Json),
        "bool" => Some(Kind::Boolean),
        _ => None,
    };
    match meant {
        Some(kind) => reader.error(
            &said.at,
            format!("unknown type {}", said.quoted()),
            format!("did you mean `{}`?", kind.as_str()),
        ),
        None => unknown(reader, said, "type", known),
    }
}

fn field_name(reader: &mut Reader<'_>, said: Said) -> Option<Placed<String>> {
    if names::is_field_name(&said.value) {
        return Some(placed(said));
    }
    let message = format!("{} cannot be the name of a field", said.quoted());
    let help = if names::RESERVED.contains(&said.value.as_str()) {
        format!("tools have an argument {} of their own; choose another", said.quoted())
    } else {
        let most = names::FIELD_CHARS_MAX;
        format!("use letters without marks, digits and `_`, at most {most}")
    };
    reader.error(&said.at, message, help);
    None
}
