//! `[sources.NAME]`, and which of them a collection or a statement means.

use super::keys::AppliesTo;
use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, join_or};
use super::sections::{located_text, parse_collection_name, report_missing_key, report_unknown, text_value};
use super::{FormulaPolicy, Source, SourceKind, SourceSettings, WorkbookFormat};
use crate::diagnostic::{FileLocation, Located};

/// Words that mean something in a later version, as people may write them.
const UNSUPPORTED_KINDS: [&str; 8] =
    ["postgres", "postgresql", "mysql", "mariadb", "rest", "openapi", "files", "folder"];

pub(super) fn parse_source(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
) -> Option<Source> {
    let t = &mut table;
    let name = parse_collection_name(reader, entry, "source");
    let kind = reader.one_of_text(t, "kind");
    let (has_kind, has_path) = (kind.is_some(), t.key_location("path").is_some());
    let path = reader.text(t, "path");
    let kind = match (kind, &path) {
        (Some((said, known)), _) => parse_source_kind(reader, &said, &known),
        (None, Some(path)) => infer_source_kind(reader, path),
        (None, None) => None,
    };
    let Some(kind) = kind else {
        // What such a source may say is not known, so nothing of it is wrong.
        if !has_path && !has_kind {
            report_missing_key(reader, entry, "path", "path = \"customers.csv\"");
        }
        return None;
    };
    if !has_path {
        let ending = if kind == SourceKind::Sqlite { "db" } else { kind.as_str() };
        report_missing_key(reader, entry, "path", &format!("path = \"customers.{ending}\""));
    }
    reject_misplaced_keys(reader, t, kind);
    let settings = parse_settings(reader, t, kind);
    reader.finish(table);
    Some(Source { name: name?, path: located_text(path?), settings })
}

/// What such sources have to say. What others have is gone already.
fn parse_settings(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    kind: SourceKind,
) -> SourceSettings {
    let delimiter = parse_delimiter(reader, t);
    let null = text_value(reader.text(t, "null"));
    let formulas = reader.one_of(t, "formulas").map(|(_, word)| word);
    let at = reader.text(t, "at").and_then(|said| parse_pointer(reader, said));
    match kind {
        SourceKind::Sqlite => SourceSettings::Sqlite,
        SourceKind::Csv => {
            let formulas = if formulas == Some("keep") { FormulaPolicy::Keep } else { FormulaPolicy::Refuse };
            SourceSettings::Csv { delimiter, null_text: null, formulas }
        }
        SourceKind::Xlsx => SourceSettings::Workbook(WorkbookFormat::Xlsx),
        SourceKind::Xls => SourceSettings::Workbook(WorkbookFormat::Xls),
        SourceKind::Ods => SourceSettings::Workbook(WorkbookFormat::Ods),
        SourceKind::Json => SourceSettings::Json { pointer: at },
        SourceKind::JsonLines => SourceSettings::JsonLines,
    }
}

/// Takes away, and says so, what is for sources of another kind.
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
            "`{}` is for sources of the kind {}, and this one is `{}`",
            key.name,
            join_or(&words),
            kind.as_str()
        );
        let help = match (key.name, kind) {
            ("table", kind) if kind.is_workbook() => "write `sheet` instead",
            ("sheet", SourceKind::Sqlite) => "write `table` instead",
            ("table" | "sheet", _) => "leave it out: such a file is one table",
            ("header_row", SourceKind::Csv) => "leave it out: the first line of a csv file has the names",
            ("at", SourceKind::JsonLines) => "leave it out: each line is a record",
            ("null", _) => "write it for the collection, or for one of its fields",
            _ => "leave it out",
        };
        reader.error(&entry.key_location, message, help);
    }
}

fn parse_delimiter(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) -> Option<u8> {
    let said = reader.text(table, "delimiter")?;
    let byte = match said.value.as_bytes() {
        b"tab" | b"\t" => Some(b'\t'),
        [b] if b.is_ascii_punctuation() && *b != b'"' || *b == b' ' => Some(*b),
        _ => None,
    };
    if byte.is_none() {
        let message = format!("{} cannot stand between columns", said.quoted());
        let help = "write one of `,` `;` `|` or `tab`, or leave it out to have it found";
        reader.error(&said.location, message, help);
    }
    byte
}

/// RFC 6901: nothing, or `/` before each name, with `~0` for `~` and `~1` for `/`.
fn parse_pointer(reader: &mut ManifestReader<'_>, said: TextValue) -> Option<String> {
    let mut escapes = said.value.split('~').skip(1);
    let help = if !said.value.is_empty() && !said.value.starts_with('/') {
        // People know the paths of jq and JSONPath.
        let path = said.value.trim_start_matches('$').replace("[*]", "").replace('.', "/");
        format!("write a `/` before each name: `/{}`", path.trim_matches('/'))
    } else if !escapes.all(|rest| rest.starts_with(['0', '1'])) {
        "`~` is written `~0`, and a `/` in a name `~1`".into()
    } else {
        return Some(said.value).filter(|pointer| !pointer.is_empty());
    };
    reader.error(&said.location, format!("{} is not a JSON pointer", said.quoted()), help);
    None
}

fn parse_source_kind(
    reader: &mut ManifestReader<'_>,
    said: &TextValue,
    known: &[&str],
) -> Option<SourceKind> {
    if let Some(kind) = SourceKind::parse(&said.value) {
        return Some(kind);
    }
    let lower = said.value.to_lowercase();
    if UNSUPPORTED_KINDS.contains(&lower.as_str()) {
        let message = format!("sources of the kind {} are not in this version yet", said.quoted());
        reader.error(&said.location, message, format!("this version reads {}", join_and(known)));
        return None;
    }
    // Endings of files, and what people call them.
    let meant = match lower.as_str() {
        "excel" | "spreadsheet" | "workbook" => Some(SourceKind::Xlsx),
        "tsv" | "text" => Some(SourceKind::Csv),
        "json-lines" | "jsonlines" | "json_lines" => Some(SourceKind::JsonLines),
        "libreoffice" | "opendocument" => Some(SourceKind::Ods),
        other => SourceKind::from_path(&format!("a.{other}")),
    };
    match meant {
        Some(meant) => {
            let message = format!("unknown kind {}", said.quoted());
            reader.error(&said.location, message, format!("did you mean `{}`?", meant.as_str()));
        }
        None => report_unknown(reader, said, "kind", known),
    }
    None
}

fn infer_source_kind(reader: &mut ManifestReader<'_>, path: &TextValue) -> Option<SourceKind> {
    let kind = SourceKind::from_path(&path.value);
    if kind.is_none() {
        let known = SourceKind::ALL.map(SourceKind::as_str);
        reader.error(
            &path.location,
            format!("the ending of {} does not tell what it is", path.quoted()),
            format!("add `kind = \"…\"` with one of {}", join_and(&known)),
        );
    }
    kind
}

/// The sources that are named, and those of them that could be read.
pub(super) struct DeclaredSources<'a> {
    pub(super) names: &'a [String],
    pub(super) parsed: &'a [Source],
}

impl DeclaredSources<'_> {
    /// What a source is, if that is known.
    pub(super) fn kind(&self, name: &str) -> Option<SourceKind> {
        self.parsed.iter().find(|one| one.name.value == name).map(|one| one.settings.kind())
    }
}

/// The source that a collection or a statement names, or the only one there is.
pub(super) fn resolve_source(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    table: &mut TomlTable<'_>,
    sources: &DeclaredSources<'_>,
) -> Option<Located<String>> {
    let known: Vec<&str> = sources.names.iter().map(String::as_str).collect();
    let is_said = table.key_location("source").is_some();
    let said = reader.text(table, "source");
    if !is_said {
        match known.as_slice() {
            [only] => return Some(Located::new((*only).to_owned(), entry.key_location.clone())),
            [] => report_no_source(reader, &entry.key_location),
            [one, ..] => report_missing_key(reader, entry, "source", &format!("source = \"{one}\"")),
        }
        return None;
    }
    let said = said?;
    if known.is_empty() {
        report_no_source(reader, &said.location);
        return None;
    }
    if known.contains(&said.value.as_str()) {
        return Some(located_text(said));
    }
    report_unknown(reader, &said, "source", &known);
    None
}

fn report_no_source(reader: &mut ManifestReader<'_>, at: &FileLocation) {
    reader.error(at, "there is no source to read from", "add `[sources.NAME]` with a `path`");
}
