//! Parses `[collections.NAME]` and its fields.

use super::access::parse_collection_access;
use super::links::parse_links;
use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, suggest};
use super::rest_sections::{endpoint_operations, parse_endpoints};
use super::sections::{located_text, parse_collection_name, parse_confirm, report_unknown, text_value};
use super::sources::{DeclaredSources, parse_pointer, reject_misplaced_keys, resolve_source};
use super::{
    BYTES_MAX_DEFAULT, Collection, Confirm, DeclaredLayout, FORMATS, Field, Operation, ROWS_MAX_DEFAULT,
    SEARCH_ROWS_MAX_DEFAULT, SourceKind,
};
use crate::column_format::{BooleanFormat, DateFormat, NumberFormat};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation, Located};
use crate::infer::DeclaredFormats;
use crate::names;

pub(super) fn parse_collection(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Collection> {
    let t = &mut table;
    let name = parse_collection_name(reader, entry, "collection");
    let source = resolve_source(reader, entry, t, sources);
    let kind = source.as_ref().and_then(|source| sources.kind(&source.value));
    if let Some(kind) = kind {
        reject_misplaced_keys(reader, t, kind);
    }
    let keys = OperationKeys::locate(t);
    let table_name = reader.text(t, "table");
    let sheet = reader.text(t, "sheet");
    let mut layout = DeclaredLayout {
        header_row: reader.integer(t, "header_row"),
        header_rows: reader.integer(t, "header_rows"),
        skip_rows: reader.integer(t, "skip_rows"),
        footer_rows: reader.integer(t, "footer_rows"),
        stop_at: text_value(reader.text(t, "stop_at")),
        short_rows: reader.boolean(t, "short_rows").unwrap_or(false),
        fill_down: Vec::new(),
    };
    let key: Vec<Located<String>> =
        reader.columns(t, "key").unwrap_or_default().into_iter().map(located_text).collect();
    let description = text_value(reader.text(t, "description"));
    let mut operations = reader.some_of(t, "operations").map(|all| parse_operations(reader, &all));
    let endpoints = parse_endpoints(reader, t, &key);
    if kind == Some(SourceKind::Rest) {
        operations = endpoint_operations(reader, operations, &endpoints, &entry.key_location);
    }
    let filters = reader.field_selection(t, "filters");
    let sort = reader.field_selection(t, "sort");
    let group = reader.field_selection(t, "group");
    let measures = reader.field_selection(t, "measures");
    let search = reader.field_selection(t, "search");
    let search_rows_max = reader.integer(t, "search_rows_max");
    let rows_max = reader.integer(t, "rows_max");
    let bytes_max = reader.integer(t, "bytes_max");
    let null_texts = reader.texts(t, "null").unwrap_or_default();
    let formats = parse_formats(reader, t);
    let version = reader.text(t, "version").map(located_text);
    let version_required = reader.boolean(t, "version_required");
    let confirm = parse_confirm(reader, t);
    let fields = parse_fields(reader, t);
    let filled = fields.iter().filter(|field| field.fill_down);
    layout.fill_down = filled.map(|field| field.column.value.clone()).collect();
    let related = parse_links(reader, t);
    let access = parse_collection_access(reader, t);
    reader.finish(table);
    check_operations(reader, operations.as_deref(), kind, &keys);
    check_key(reader, &key, version.as_ref(), &fields);
    Some(Collection {
        name: name?,
        source: source?,
        table: table_name.or(sheet).map(located_text),
        layout,
        key,
        description,
        operations,
        filters,
        sort,
        group,
        measures,
        rows_max: rows_max.unwrap_or(ROWS_MAX_DEFAULT),
        bytes_max: bytes_max.unwrap_or(BYTES_MAX_DEFAULT),
        null_texts,
        formats: formats.map(|formats| formats.value).unwrap_or_default(),
        fields,
        search,
        search_rows_max: search_rows_max.unwrap_or(SEARCH_ROWS_MAX_DEFAULT),
        version,
        version_required: version_required.unwrap_or(false),
        confirm: confirm.map_or(Confirm::Never, |confirm| confirm.value),
        related,
        access,
        endpoints,
    })
}

/// The locations of keys that are only valid with certain operations.
struct OperationKeys {
    search: Vec<(&'static str, FileLocation)>,
    update: Vec<(&'static str, FileLocation)>,
    list: Vec<(&'static str, FileLocation)>,
    filters: Vec<(&'static str, FileLocation)>,
    aggregate: Vec<(&'static str, FileLocation)>,
}

impl OperationKeys {
    fn locate(table: &TomlTable<'_>) -> Self {
        let found = |names: &[&'static str]| {
            names.iter().filter_map(|name| Some((*name, table.key_location(name)?))).collect()
        };
        Self {
            search: found(&["search", "search_rows_max"]),
            update: found(&["version", "version_required", "confirm"]),
            list: found(&["sort"]),
            filters: found(&["filters"]),
            aggregate: found(&["group", "measures"]),
        }
    }
}

fn check_operations(
    reader: &mut ManifestReader<'_>,
    operations: Option<&[Located<Operation>]>,
    kind: Option<SourceKind>,
    keys: &OperationKeys,
) {
    let has = |any_of: &[Operation]| match operations {
        Some(all) => all.iter().any(|one| any_of.contains(&one.value)),
        None => any_of.iter().any(|one| Operation::DEFAULT.contains(one)),
    };
    // An operation that could not be parsed may be the required one.
    if operations.is_some_and(<[_]>::is_empty) {
        return;
    }
    let current: Vec<&str> = match operations {
        Some(all) => all.iter().map(|one| one.value.as_str()).collect(),
        None => Operation::DEFAULT.map(Operation::as_str).to_vec(),
    };
    let with = |more: &str| {
        let all: Vec<String> = current.iter().chain([&more]).map(|one| format!("\"{one}\"")).collect();
        format!("write `operations = [{}]`, or remove the key", all.join(", "))
    };
    if !has(&[Operation::Search]) {
        for (name, at) in &keys.search {
            reader.error(at, format!("`{name}` needs the operation `search`"), with("search"));
        }
    }
    if !has(&[Operation::Update, Operation::Delete]) {
        for (name, at) in &keys.update {
            let message = format!("`{name}` needs the operation `update` or `delete`");
            reader.error(at, message, with("update"));
        }
    }
    if !has(&[Operation::List]) {
        for (name, at) in &keys.list {
            reader.error(at, format!("`{name}` needs the operation `list`"), with("list"));
        }
    }
    if !has(&[Operation::Aggregate]) {
        for (name, at) in &keys.aggregate {
            reader.error(at, format!("`{name}` needs the operation `aggregate`"), with("aggregate"));
        }
    }
    if !has(&[Operation::List, Operation::Search, Operation::Aggregate]) {
        for (name, at) in &keys.filters {
            let message = format!("`{name}` needs the operation `list`, `search` or `aggregate`");
            reader.error(at, message, with("list"));
        }
    }
    let Some(kind) = kind.filter(|kind| kind.is_read_only()) else { return };
    for one in operations.unwrap_or_default().iter().filter(|one| one.value.writes()) {
        let message = format!(
            "`{}` is not possible: files of the kind `{}` are read-only",
            one.value.as_str(),
            kind.as_str()
        );
        let help = match kind {
            SourceKind::Parquet => "remove the operation; `get`, `list`, `search` and `aggregate` work",
            _ => {
                "save the file as xlsx, or remove the operation; `get`, `list`, `search` and `aggregate` work"
            }
        };
        reader.error(&one.location, message, help);
    }
}

/// Checks that callers can see the key and the version.
fn check_key(
    reader: &mut ManifestReader<'_>,
    key: &[Located<String>],
    version: Option<&Located<String>>,
    fields: &[Field],
) {
    let declared = |column: &str| {
        let is_match = |field: &&Field| {
            field.column.value == column || field.name.as_ref().is_some_and(|name| name.value == column)
        };
        fields.iter().find(is_match)
    };
    for part in key {
        if declared(&part.value).is_some_and(|field| field.sensitive) {
            let message = format!("the key `{}` is sensitive", part.value);
            let help = "a key appears in calls, cursors and confirmations, so it cannot be sensitive; choose another \
                        key, or remove `sensitive`";
            reader.error(&part.location, message, help);
        }
    }
    let Some(version) = version else { return };
    if key.iter().any(|part| part.value == version.value) {
        let message = format!("`{}` cannot be both key and version", version.value);
        let help = "a key cannot change, and a version changes with every update; choose another column";
        reader.error(&version.location, message, help);
    }
    let Some(field) = declared(&version.value) else { return };
    if field.hidden {
        let message = format!("the version `{}` is hidden", version.value);
        reader.error(&version.location, message, "callers need it for `expected_version`; remove `hidden`");
    }
    if let Some(kind) = field.data_type.as_ref().filter(|kind| kind.value != DataType::Integer) {
        let message = format!("the version `{}` is declared {}", version.value, kind.value.as_str());
        reader.error(&kind.location, message, "a version must be an integer: write `as = \"integer\"`");
    }
}

pub(super) fn parse_operations(
    reader: &mut ManifestReader<'_>,
    all: &[TextValue],
) -> Vec<Located<Operation>> {
    all.iter()
        .filter_map(|text| Some(text.located(parse_operation(reader, text, &text.value, &text.location)?)))
        .collect()
}

pub(super) fn parse_operation(
    reader: &mut ManifestReader<'_>,
    text: &TextValue,
    word: &str,
    at: &FileLocation,
) -> Option<Operation> {
    let operation = Operation::parse(word);
    if operation.is_none() {
        let written = if text.value == text.raw { word.to_owned() } else { text.raw.clone() };
        let message = format!("unknown operation {}", super::reader::quoted(&written));
        let known = Operation::ALL.map(Operation::as_str);
        let suggested: &[&str] = match word.to_lowercase().as_str() {
            "read" => &["get", "list"],
            "write" | "save" | "upsert" => &["create", "update"],
            "insert" | "add" | "new" | "post" => &["create"],
            "edit" | "change" | "set" | "patch" | "put" => &["update"],
            "remove" | "destroy" => &["delete"],
            "find" | "fetch" | "lookup" | "show" => &["get"],
            "all" | "query" | "index" => &["list"],
            "count" | "sum" | "group" | "stats" | "report" => &["aggregate"],
            "*" => &known,
            _ => &[],
        };
        let help = match suggested {
            [] => suggest(word, "operation", &known),
            [one] => format!("did you mean `{one}`?"),
            all if all.len() == known.len() => format!("write all of them: {}", join_and(all)),
            several => format!("did you mean {}?", join_and(several)),
        };
        reader.error(at, message, help);
    }
    operation
}

pub(super) fn parse_fields(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Vec<Field> {
    let named = reader.named_tables(table, "fields");
    named.into_iter().map(|(entry, table)| parse_field(reader, &entry, table)).collect()
}

fn parse_field(reader: &mut ManifestReader<'_>, entry: &Entry<'_>, mut table: TomlTable<'_>) -> Field {
    let t = &mut table;
    let ineffective: Vec<(&str, FileLocation)> =
        ["description", "name", "sensitive", "show_values", "format", "enum"]
            .into_iter()
            .filter_map(|name| Some((name, t.key_location(name)?)))
            .collect();
    if let Some(word) = t.take_unknown("type") {
        let help = format!("write `as = {}`", word.raw_value(reader));
        reader.error(&word.key_location, "a field has no `type`; its type is `as`", help);
    }
    let kind = reader.one_of_text(t, "as").and_then(|(text, known)| {
        let kind = DataType::parse(&text.value);
        if kind.is_none() {
            report_unknown_type(reader, &text, &known);
        }
        Some(text.located(kind?))
    });
    let show_values_location = t.key_location("show_values");
    let show_values = reader.boolean(t, "show_values").unwrap_or(false);
    let field = Field {
        column: Located::new(entry.key.to_owned(), entry.key_location.clone()),
        data_type: kind,
        format: parse_format(reader, t),
        allowed: reader.literals(t, "enum").unwrap_or_default(),
        description: text_value(reader.text(t, "description")),
        name: reader.text(t, "name").and_then(|text| parse_field_name(reader, text)),
        null_texts: reader.texts(t, "null"),
        formats: parse_formats(reader, t),
        hidden: reader.boolean(t, "hidden").unwrap_or(false),
        sensitive: reader.boolean(t, "sensitive").unwrap_or(false),
        show_values: show_values.then_some(show_values_location).flatten(),
        fill_down: reader.boolean(t, "fill_down").unwrap_or(false),
        path: parse_path(reader, t),
        required: located_boolean(reader, t, "required"),
        read_only: located_boolean(reader, t, "read_only"),
    };
    reader.finish(table);
    check_show_values(reader, &field);
    if field.hidden {
        for (name, at) in ineffective {
            let message = format!("`{name}` has no effect: the field is hidden");
            reader.diagnostics.push(Diagnostic::warning(message).at(&at).help("remove it or `hidden`"));
        }
    }
    field
}

fn located_boolean(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
    name: &str,
) -> Option<Located<bool>> {
    let location = table.key_location(name);
    reader.boolean(table, name).zip(location).map(|(value, location)| Located::new(value, location))
}

/// A JSON pointer with a column and a value inside it.
fn parse_path(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Option<Located<String>> {
    let text = reader.text(table, "path")?;
    let at = text.location.clone();
    let quoted = text.quoted();
    let pointer = parse_pointer(reader, text)?;
    if pointer.matches('/').count() < 2 {
        let help = "name the column and what is inside it: `path = \"/address/city\"`";
        reader.error(&at, format!("{quoted} is a column of its own"), help);
        return None;
    }
    Some(Located::new(pointer, at))
}

/// Sensitive values must not be shown, and an `enum` already lists the values.
fn check_show_values(reader: &mut ManifestReader<'_>, field: &Field) {
    let Some(location) = &field.show_values else { return };
    if field.sensitive {
        let message = format!("`{}` is sensitive, so its values cannot be shown", field.column.value);
        reader.error(location, message, "remove `show_values` or `sensitive`");
    } else if !field.allowed.is_empty() {
        let warning = Diagnostic::warning("`show_values` has no effect: `enum` already lists the values");
        reader.diagnostics.push(warning.at(location).help("remove it"));
    }
}

pub(super) fn parse_format(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
) -> Option<Located<&'static str>> {
    let (text, known) = reader.one_of_text(table, "format")?;
    let format = FORMATS.into_iter().find(|format| *format == text.value);
    if format.is_none() {
        let meant = match text.value.to_lowercase().as_str() {
            "datetime" | "timestamp" => Some("date-time"),
            "url" | "link" => Some("uri"),
            "mail" | "e-mail" => Some("email"),
            "ip" => Some("ipv4"),
            "guid" => Some("uuid"),
            _ => None,
        };
        match meant {
            Some(meant) => {
                let message = format!("unknown format {}", text.quoted());
                reader.error(&text.location, message, format!("did you mean `{meant}`?"));
            }
            None => report_unknown(reader, &text, "format", &known),
        }
    }
    Some(text.located(format?))
}

/// The formats of a column or of a whole table, at the location of the first.
fn parse_formats(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
) -> Option<Located<DeclaredFormats>> {
    let (mut formats, mut location) = (DeclaredFormats::default(), None);
    let mut parse = |name: &str, set: &mut dyn FnMut(&str) -> bool, help: &str| {
        let Some(text) = reader.text(table, name) else { return };
        location.get_or_insert_with(|| text.location.clone());
        if !set(&text.value) {
            let what = name.replace('_', " ");
            reader.error(&text.location, format!("{} is not a {what}", text.quoted()), help);
        }
    };
    parse(
        "number_format",
        &mut |text| {
            formats.number = NumberFormat::from_example(text);
            formats.number.is_some()
        },
        "write 1234 or 1234.50 as the file would: `1.234,50`, `1 234,5 €`, `$1,234.50`, `(1,234.50)`, `1234,5 %`",
    );
    parse(
        "date_format",
        &mut |text| {
            formats.date = DateFormat::from_pattern(text);
            formats.date.is_some()
        },
        "use `dd`, `mm` or `mmm`, `yyyy` or `yy`, and `hh:mm:ss`: `dd/mm/yyyy`, `d. mmmm yyyy (de)`, `m/d/yyyy h:mm AM`",
    );
    parse(
        "boolean_format",
        &mut |text| {
            formats.boolean = BooleanFormat::from_pattern(text);
            formats.boolean.is_some()
        },
        "write the two words with a `/` between them, the one for true first: `ja/nein`",
    );
    location.map(|location| Located::new(formats, location))
}

/// Reports an unknown type, and suggests ours for the names that other tools and databases use.
pub(super) fn report_unknown_type(reader: &mut ManifestReader<'_>, text: &TextValue, known: &[&str]) {
    let meant = match text.value.to_ascii_lowercase().as_str() {
        "string" | "varchar" | "char" | "str" => Some(DataType::Text),
        "int" => Some(DataType::Integer),
        "bigint" | "long" => Some(DataType::Int64),
        "float" | "double" | "real" => Some(DataType::Number),
        "numeric" | "money" | "currency" => Some(DataType::Decimal),
        "datetime" | "date-time" | "timestamptz" => Some(DataType::Timestamp),
        "binary" | "bytes" => Some(DataType::Blob),
        "object" | "array" => Some(DataType::Json),
        "bool" => Some(DataType::Boolean),
        _ => None,
    };
    match meant {
        Some(kind) => reader.error(
            &text.location,
            format!("unknown type {}", text.quoted()),
            format!("did you mean `{}`?", kind.as_str()),
        ),
        None => report_unknown(reader, text, "type", known),
    }
}

fn parse_field_name(reader: &mut ManifestReader<'_>, text: TextValue) -> Option<Located<String>> {
    if names::is_field_name(&text.value) {
        return Some(located_text(text));
    }
    let message = format!("{} is not a valid name for a field", text.quoted());
    let help = if names::RESERVED_NAMES.contains(&text.value.as_str()) {
        format!("{} is the name of another argument; choose a different one", text.quoted())
    } else {
        let chars_max = names::FIELD_CHARS_MAX;
        format!("use at most {chars_max} ASCII letters, digits and `_`")
    };
    reader.error(&text.location, message, help);
    None
}
