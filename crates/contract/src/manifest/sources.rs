//! `[sources.NAME]`, and which of them a collection or a statement means.

use super::keys::Only;
use super::reader::{Entry, Reader, Said, Table, either, listed};
use super::sections::{collection_name, missing, placed, unknown, value};
use super::{Formulas, Settings, Source, SourceKind, Workbook};
use crate::diagnostic::{At, Placed};

/// Words that mean something in a later version, as people may write them.
const KINDS_LATER: [&str; 8] =
    ["postgres", "postgresql", "mysql", "mariadb", "rest", "openapi", "files", "folder"];

pub(super) fn source(reader: &mut Reader<'_>, entry: &Entry<'_>, mut table: Table<'_>) -> Option<Source> {
    let t = &mut table;
    let name = collection_name(reader, entry, "source");
    let kind = reader.word_said(t, "kind");
    let (has_kind, has_path) = (kind.is_some(), t.place("path").is_some());
    let path = reader.text(t, "path");
    let kind = match (kind, &path) {
        (Some((said, known)), _) => source_kind(reader, &said, &known),
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
    misplaced(reader, t, kind);
    let settings = settings(reader, t, kind);
    reader.finish(table);
    Some(Source { name: name?, path: placed(path?), settings })
}

/// What such sources have to say. What others have is gone already.
fn settings(reader: &mut Reader<'_>, t: &mut Table<'_>, kind: SourceKind) -> Settings {
    let delimiter = delimiter(reader, t);
    let null = value(reader.text(t, "null"));
    let formulas = reader.word(t, "formulas").map(|(_, word)| word);
    let at = reader.text(t, "at").and_then(|said| pointer(reader, said));
    match kind {
        SourceKind::Sqlite => Settings::Sqlite,
        SourceKind::Csv => {
            let formulas = if formulas == Some("keep") { Formulas::Keep } else { Formulas::Refuse };
            Settings::Csv { delimiter, null, formulas }
        }
        SourceKind::Xlsx => Settings::Sheets(Workbook::Xlsx),
        SourceKind::Xls => Settings::Sheets(Workbook::Xls),
        SourceKind::Ods => Settings::Sheets(Workbook::Ods),
        SourceKind::Json => Settings::Json { at },
        SourceKind::JsonLines => Settings::JsonLines,
    }
}

/// Takes away, and says so, what is for sources of another kind.
pub(super) fn misplaced(reader: &mut Reader<'_>, table: &mut Table<'_>, kind: SourceKind) {
    for key in table.keys() {
        let Only::Kinds(kinds) = key.only else { continue };
        if kinds.contains(&kind) {
            continue;
        }
        let (_, entry) = table.take(key.name);
        let Some(entry) = entry else { continue };
        let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        let message = format!(
            "`{}` is for sources of the kind {}, and this one is `{}`",
            key.name,
            either(&words),
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
        reader.error(&entry.key_at, message, help);
    }
}

fn delimiter(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Option<u8> {
    let said = reader.text(table, "delimiter")?;
    let byte = match said.value.as_bytes() {
        b"tab" | b"\t" => Some(b'\t'),
        [b] if b.is_ascii_punctuation() && *b != b'"' || *b == b' ' => Some(*b),
        _ => None,
    };
    if byte.is_none() {
        let message = format!("{} cannot stand between columns", said.quoted());
        let help = "write one of `,` `;` `|` or `tab`, or leave it out to have it found";
        reader.error(&said.at, message, help);
    }
    byte
}

/// RFC 6901: nothing, or `/` before each name, with `~0` for `~` and `~1` for `/`.
fn pointer(reader: &mut Reader<'_>, said: Said) -> Option<String> {
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
    reader.error(&said.at, format!("{} is not a JSON pointer", said.quoted()), help);
    None
}

fn source_kind(reader: &mut Reader<'_>, said: &Said, known: &[&str]) -> Option<SourceKind> {
    if let Some(kind) = SourceKind::parse(&said.value) {
        return Some(kind);
    }
    let lower = said.value.to_lowercase();
    if KINDS_LATER.contains(&lower.as_str()) {
        let message = format!("sources of the kind {} are not in this version yet", said.quoted());
        reader.error(&said.at, message, format!("this version reads {}", listed(known)));
        return None;
    }
    // Endings of files, and what people call them.
    let meant = match lower.as_str() {
        "excel" | "spreadsheet" | "workbook" => Some(SourceKind::Xlsx),
        "tsv" | "text" => Some(SourceKind::Csv),
        "json-lines" | "jsonlines" | "json_lines" => Some(SourceKind::JsonLines),
        "libreoffice" | "opendocument" => Some(SourceKind::Ods),
        other => SourceKind::of_path(&format!("a.{other}")),
    };
    match meant {
        Some(meant) => {
            let message = format!("unknown kind {}", said.quoted());
            reader.error(&said.at, message, format!("did you mean `{}`?", meant.as_str()));
        }
        None => unknown(reader, said, "kind", known),
    }
    None
}

fn kind_of_path(reader: &mut Reader<'_>, path: &Said) -> Option<SourceKind> {
    let kind = SourceKind::of_path(&path.value);
    if kind.is_none() {
        let known = SourceKind::ALL.map(SourceKind::as_str);
        reader.error(
            &path.at,
            format!("the ending of {} does not tell what it is", path.quoted()),
            format!("add `kind = \"…\"` with one of {}", listed(&known)),
        );
    }
    kind
}

/// The sources that are named, and those of them that could be read.
pub(super) struct Sources<'a> {
    pub(super) names: &'a [String],
    pub(super) read: &'a [Source],
}

impl Sources<'_> {
    /// What a source is, if that is known.
    pub(super) fn kind(&self, name: &str) -> Option<SourceKind> {
        self.read.iter().find(|one| one.name.value == name).map(|one| one.settings.kind())
    }
}

/// The source that a collection or a statement names, or the only one there is.
pub(super) fn from(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    table: &mut Table<'_>,
    sources: &Sources<'_>,
) -> Option<Placed<String>> {
    let known: Vec<&str> = sources.names.iter().map(String::as_str).collect();
    let is_said = table.place("source").is_some();
    let said = reader.text(table, "source");
    if !is_said {
        match known.as_slice() {
            [only] => return Some(Placed::new((*only).to_owned(), entry.key_at.clone())),
            [] => no_source(reader, &entry.key_at),
            [one, ..] => missing(reader, entry, "source", &format!("source = \"{one}\"")),
        }
        return None;
    }
    let said = said?;
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
