//! Parses `[sources.NAME]`, and resolves references to sources.

use encoding_rs::{Encoding, ISO_2022_JP, REPLACEMENT, X_USER_DEFINED};

use super::access::{Assignment, check_pointer, parse_set};
use super::keys::AppliesTo;
use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, join_or, quoted};
use super::rest_sections::parse_rest_source;
use super::sections::{located_text, parse_collection_name, report_missing_key, report_unknown};
use super::{
    DatabasePassword, DatabaseSettings, FormulaPolicy, IdentitySettings, Source, SourceKind, SourceSettings,
    WorkbookFormat,
};
use crate::diagnostic::{FileLocation, Located};
use crate::source::{DatabaseEngine, DatabaseUrl, Secret, SourceLocation};

/// Kinds of sources that are planned for a later version.
const UNSUPPORTED_KINDS: [&str; 3] = ["openapi", "files", "folder"];

pub(super) fn parse_source(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
) -> Option<Source> {
    let t = &mut table;
    let name = parse_collection_name(reader, entry, "source");
    let kind = reader.one_of_text(t, "kind");
    let (has_kind, has_path) = (kind.is_some(), t.key_location("path").is_some());
    let has_url = t.key_location("url").is_some();
    let url = t.key_location("url").and_then(|_| reader.text(t, "url"));
    let is_rest = match &kind {
        Some((text, _)) => text.value == SourceKind::Rest.as_str(),
        None => url.as_ref().is_some_and(|url| is_web_url(&url.value)),
    };
    if is_rest {
        return parse_rest_source(reader, entry, table, name, url);
    }
    let url = url.and_then(|url| parse_url(reader, &url));
    let path = reader.text(t, "path");
    let kind = match (kind, &path) {
        (Some((text, known)), _) => parse_source_kind(reader, &text, &known),
        (None, _) if has_url => url.as_ref().map(|url| url.value.engine().into()),
        // The location says why; an unknown extension is no second error.
        (None, Some(path)) if SourceLocation::parse(&path.value).is_err() => {
            parse_location(reader, path);
            None
        }
        (None, Some(path)) => infer_source_kind(reader, path),
        (None, None) => None,
    };
    let Some(kind) = kind else {
        // Without a kind, which of the known keys are valid is unknown.
        if !has_path && !has_kind && !has_url {
            report_missing_key(reader, entry, "path", "path = \"customers.csv\"");
        }
        reader.report_unknown_keys(&table);
        return None;
    };
    if kind.engine().is_some() {
        return parse_database(reader, entry, table, DatabaseEntry { name, kind, url, has_url });
    }
    if !has_path {
        let ending = if kind == SourceKind::Sqlite { "db" } else { kind.as_str() };
        report_missing_key(reader, entry, "path", &format!("path = \"customers.{ending}\""));
    }
    reject_misplaced_keys(reader, t, kind);
    let settings = parse_settings(reader, t, kind);
    reader.finish(table);
    let location = path.and_then(|path| parse_location(reader, &path));
    Some(Source { name: name?, location: location?, settings })
}

/// Parses where the source is.
fn parse_location(reader: &mut ManifestReader<'_>, path: &TextValue) -> Option<Located<SourceLocation>> {
    match SourceLocation::parse(&path.value) {
        Ok(location) => Some(Located::new(location, path.location.clone())),
        Err(error) => {
            reader.error(&path.location, error.message, error.help);
            None
        }
    }
}

/// Parses the settings of this kind of source. Keys for other kinds have been removed.
fn parse_settings(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    kind: SourceKind,
) -> SourceSettings {
    let delimiter = parse_delimiter(reader, t);
    let encoding = parse_encoding(reader, t);
    let null_texts = reader.texts(t, "null").unwrap_or_default();
    let formulas = reader.one_of(t, "formulas").map(|(_, word)| word);
    let at = reader.text(t, "at").and_then(|text| parse_pointer(reader, text));
    match kind {
        SourceKind::Sqlite => SourceSettings::Sqlite,
        SourceKind::Csv => {
            let formulas = if formulas == Some("keep") { FormulaPolicy::Keep } else { FormulaPolicy::Refuse };
            SourceSettings::Csv { delimiter, encoding, null_texts, formulas }
        }
        SourceKind::Xlsx => SourceSettings::Workbook(WorkbookFormat::Xlsx),
        SourceKind::Xls => SourceSettings::Workbook(WorkbookFormat::Xls),
        SourceKind::Ods => SourceSettings::Workbook(WorkbookFormat::Ods),
        SourceKind::Json => SourceSettings::Json { pointer: at },
        SourceKind::JsonLines => SourceSettings::JsonLines,
        SourceKind::Parquet => SourceSettings::Parquet,
        SourceKind::Postgres => SourceSettings::Database(DatabaseSettings::new(DatabaseEngine::Postgres)),
        SourceKind::MySql => SourceSettings::Database(DatabaseSettings::new(DatabaseEngine::MySql)),
        SourceKind::Rest => SourceSettings::Rest(Box::default()),
    }
}

/// What is known of a database before its own settings are read.
struct DatabaseEntry {
    name: Option<Located<String>>,
    kind: SourceKind,
    url: Option<Located<DatabaseUrl>>,
    has_url: bool,
}

/// Parses a source that is a database behind a URL.
fn parse_database(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    DatabaseEntry { name, kind, url, has_url }: DatabaseEntry,
) -> Option<Source> {
    let t = &mut table;
    if !has_url {
        let example = format!("url = \"{}://reader@localhost/shop\"", kind.as_str());
        report_missing_key(reader, entry, "url", &example);
    }
    reject_misplaced_keys(reader, t, kind);
    let password = parse_password(reader, t);
    let ca_file = reader.text(t, "ca_file").map(|text| text.value.into());
    let schemas = reader.texts(t, "schemas").unwrap_or_default();
    let connections_max = reader.integer(t, "connections_max");
    let require_readonly_role = reader.boolean(t, "require_readonly_role").unwrap_or(false);
    let identity = parse_identity(reader, t);
    reader.finish(table);
    let url = url?;
    if Some(url.value.engine()) != kind.engine() {
        let message = format!("this is not the URL of a source of the kind `{}`", kind.as_str());
        reader.error(&url.location, message, "remove `kind`: the URL says it");
        return None;
    }
    let settings = SourceSettings::Database(DatabaseSettings {
        engine: url.value.engine(),
        password,
        ca_file,
        schemas,
        connections_max,
        require_readonly_role,
        identity,
    });
    let location = Located::new(SourceLocation::Database(url.value), url.location);
    Some(Source { name: name?, location, settings })
}

/// Parses where the password comes from.
fn parse_password(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Option<DatabasePassword> {
    let names = ["password", "password_file", "password_keyring"];
    let given: Vec<_> = names.iter().filter_map(|name| Some((*name, t.key_location(name)?))).collect();
    if let [(first, _), .., (second, at)] = &given[..] {
        let message = format!("`{first}` and `{second}` exclude each other");
        reader.error(at, message, "remove one of them");
    }
    let text = reader.text(t, names[0]).map(|text| DatabasePassword::Text(Secret::new(text.value)));
    let file = reader.text(t, names[1]).map(|text| DatabasePassword::File(text.value.into()));
    let keyring = reader.text(t, names[2]).map(|text| DatabasePassword::Keyring(text.value));
    text.or(file).or(keyring)
}

/// Parses `role_from` and `settings`.
fn parse_identity(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Option<IdentitySettings> {
    let role_from = reader.text(t, "role_from").and_then(|text| {
        check_pointer(reader, &text.value, &text.location)?;
        Some(text.value)
    });
    let entry = reader.raw(t, "settings");
    let assignments = entry.map(|entry| parse_set(reader, &entry)).unwrap_or_default();
    let mut settings = Vec::new();
    for Assignment { field, value } in assignments {
        // Settings of the database itself have no dot: a claim must not choose the role, or switch row security off.
        if !is_custom_setting(&field.value) {
            let message = format!("{} is not the name of a setting of your own", quoted(&field.value));
            let help =
                "write a name with a dot, in lower case: `app.tenant`; `request.jwt.claims` is always set";
            reader.error(&field.location, message, help);
        }
        settings.push((field.value, value.value));
    }
    (role_from.is_some() || !settings.is_empty()).then_some(IdentitySettings { role_from, settings })
}

/// A name that PostgreSQL accepts for settings which it does not know.
fn is_custom_setting(name: &str) -> bool {
    let is_word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    name.len() <= 63 && name.contains('.') && name.split('.').all(is_word) && name != "request.jwt.claims"
}

fn is_web_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// Parses the URL of a database. No message repeats it, because it may hold a password.
fn parse_url(reader: &mut ManifestReader<'_>, text: &TextValue) -> Option<Located<DatabaseUrl>> {
    let url = DatabaseUrl::parse(&text.value);
    if url.is_none() {
        let help = "write `postgres://user@host/database`, `mysql://user@host/database` or the `https://` URL of a REST API; files have a \
             `path`";
        reader.error(&text.location, "this is not the URL of a database", help);
    }
    url.map(|url| Located::new(url, text.location.clone()))
}

/// Removes and reports keys that are for other kinds of sources.
pub(super) fn reject_misplaced_keys(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
    kind: SourceKind,
) {
    for key in table.keys() {
        let AppliesTo::SourceKinds(kinds) = key.applies_to else { continue };
        if kinds.contains(&kind) {
            continue;
        }
        let (_, entry) = table.take(key.name);
        let Some(entry) = entry else { continue };
        let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        let message = format!(
            "`{}` is only for sources of the kind {}, and this one is `{}`",
            key.name,
            join_or(&words),
            kind.as_str()
        );
        let help = match (key.name, kind) {
            ("table", kind) if kind.is_workbook() => "write `sheet` instead",
            ("path", kind) if kind.engine().is_some() || kind == SourceKind::Rest => "write `url` instead",
            ("table" | "sheet", SourceKind::Rest) => "remove it: the endpoints say what the collection is",
            ("sheet", kind) if kind.is_database() => "write `table` instead",
            ("table" | "sheet", _) => "remove it: such a file is one table",
            ("at", SourceKind::JsonLines) => "remove it: each line is a row",
            ("null", _) => "move it to the collection, or to one of its fields",
            _ => "remove it",
        };
        reader.error(&entry.key_location, message, help);
    }
}

fn parse_delimiter(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Option<u8> {
    let text = reader.text(table, "delimiter")?;
    let byte = match text.value.as_bytes() {
        b"tab" | b"\t" => Some(b'\t'),
        [b] if b.is_ascii_punctuation() && *b != b'"' || *b == b' ' => Some(*b),
        _ => None,
    };
    if byte.is_none() {
        let message = format!("{} cannot be a delimiter", text.quoted());
        let help = "use one of `,` `;` `|` or `tab`, or remove it to detect the delimiter";
        reader.error(&text.location, message, help);
    }
    byte
}

/// A label as web browsers know them: <https://encoding.spec.whatwg.org/#names-and-labels>.
fn parse_encoding(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Option<&'static Encoding> {
    let text = reader.text(table, "encoding")?;
    // A file in an encoding with a state cannot be changed in one place.
    let is_supported = |encoding: &&Encoding| ![ISO_2022_JP, REPLACEMENT, X_USER_DEFINED].contains(encoding);
    let encoding = Encoding::for_label(text.value.as_bytes()).filter(is_supported);
    if encoding.is_none() {
        let message = format!("{} is not a supported encoding", text.quoted());
        let help = "use a name such as `windows-1252`, `windows-1251`, `shift_jis`, `gb18030` or `utf-16le`, or remove \
                    it to detect the encoding";
        reader.error(&text.location, message, help);
    }
    encoding
}

/// RFC 6901: empty, or `/` before each name, with `~0` for `~` and `~1` for `/`.
pub(super) fn parse_pointer(reader: &mut ManifestReader<'_>, text: TextValue) -> Option<String> {
    let mut escapes = text.value.split('~').skip(1);
    let help = if !text.value.is_empty() && !text.value.starts_with('/') {
        // Authors may know the paths of jq and JSONPath.
        let path = text.value.trim_start_matches('$').replace("[*]", "").replace('.', "/");
        format!("write a `/` before each name: `/{}`", path.trim_matches('/'))
    } else if !escapes.all(|rest| rest.starts_with(['0', '1'])) {
        "write `~0` for `~`, and `~1` for a `/` in a name".into()
    } else {
        return Some(text.value).filter(|pointer| !pointer.is_empty());
    };
    reader.error(&text.location, format!("{} is not a JSON pointer", text.quoted()), help);
    None
}

fn parse_source_kind(
    reader: &mut ManifestReader<'_>,
    text: &TextValue,
    known: &[&str],
) -> Option<SourceKind> {
    if let Some(kind) = SourceKind::parse(&text.value) {
        return Some(kind);
    }
    let lower = text.value.to_lowercase();
    if UNSUPPORTED_KINDS.contains(&lower.as_str()) {
        let message = format!("sources of the kind {} are not supported in this version", text.quoted());
        reader.error(&text.location, message, format!("this version supports {}", join_and(known)));
        return None;
    }
    // File extensions, and other names for these kinds.
    let meant = match lower.as_str() {
        "excel" | "spreadsheet" | "workbook" => Some(SourceKind::Xlsx),
        "tsv" | "text" => Some(SourceKind::Csv),
        "postgresql" | "pg" => Some(SourceKind::Postgres),
        "mariadb" => Some(SourceKind::MySql),
        "json-lines" | "jsonlines" | "json_lines" => Some(SourceKind::JsonLines),
        "libreoffice" | "opendocument" => Some(SourceKind::Ods),
        other => SourceKind::from_path(&format!("a.{other}")),
    };
    match meant {
        Some(meant) => {
            let message = format!("unknown kind {}", text.quoted());
            reader.error(&text.location, message, format!("did you mean `{}`?", meant.as_str()));
        }
        None => report_unknown(reader, text, "kind", known),
    }
    None
}

fn infer_source_kind(reader: &mut ManifestReader<'_>, path: &TextValue) -> Option<SourceKind> {
    let kind = SourceKind::from_path(&path.value);
    if kind.is_none() {
        let known = SourceKind::ALL.map(SourceKind::as_str);
        reader.error(
            &path.location,
            format!("the extension of {} is not known", path.quoted()),
            format!("add `kind = \"…\"` with one of {}", join_and(&known)),
        );
    }
    kind
}

/// The names of all declared sources, and the sources without errors.
pub(super) struct DeclaredSources<'a> {
    pub(super) names: &'a [String],
    pub(super) parsed: &'a [Source],
}

impl DeclaredSources<'_> {
    /// The kind of a source, if its declaration has no error.
    pub(super) fn kind(&self, name: &str) -> Option<SourceKind> {
        self.parsed.iter().find(|one| one.name.value == name).map(|one| one.settings.kind())
    }
}

/// The source of a collection or a statement: the declared one, or the only one.
pub(super) fn resolve_source(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    table: &mut TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Located<String>> {
    let known: Vec<&str> = sources.names.iter().map(String::as_str).collect();
    let is_present = table.key_location("source").is_some();
    let text = reader.text(table, "source");
    if !is_present {
        match known.as_slice() {
            [only] => return Some(Located::new((*only).to_owned(), entry.key_location.clone())),
            [] => report_no_source(reader, &entry.key_location),
            [one, ..] => report_missing_key(reader, entry, "source", &format!("source = \"{one}\"")),
        }
        return None;
    }
    let text = text?;
    if known.is_empty() {
        report_no_source(reader, &text.location);
        return None;
    }
    if known.contains(&text.value.as_str()) {
        return Some(located_text(text));
    }
    report_unknown(reader, &text, "source", &known);
    None
}

fn report_no_source(reader: &mut ManifestReader<'_>, at: &FileLocation) {
    reader.error(at, "the manifest declares no source", "add `[sources.NAME]` with a `path`");
}
