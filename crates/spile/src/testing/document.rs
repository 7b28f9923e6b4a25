//! Test files as located values: TOML or JSON, the same from here on.

use std::ops::Range;
use std::sync::Arc;

use contract::diagnostic::{Diagnostic, FileLocation, FileText};
use json::{Json, Node, NodeKind, ParseLimits};
use toml_edit::{Document, Item, TableLike, Value as TomlValue};

/// A value of a test file, and where it is written.
#[derive(Debug, Clone)]
pub(super) struct LocatedValue {
    pub(super) value: FileValue,
    pub(super) location: FileLocation,
}

#[derive(Debug, Clone)]
pub(super) enum FileValue {
    Table(Vec<Member>),
    Array(Vec<LocatedValue>),
    /// Null, a truth value, a number or a text.
    Scalar(Json),
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) name_location: FileLocation,
    pub(super) value: LocatedValue,
}

/// The format of a test file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFormat {
    Toml,
    Json,
}

pub(super) fn parse(origin: &Arc<FileText>, format: FileFormat) -> Result<LocatedValue, Diagnostic> {
    match format {
        FileFormat::Toml => parse_toml(origin),
        FileFormat::Json => parse_json(origin),
    }
}

fn parse_toml(origin: &Arc<FileText>) -> Result<LocatedValue, Diagnostic> {
    let end = origin.text.len();
    let document = Document::parse(origin.text.as_str()).map_err(|error| {
        let at = FileLocation::new(origin, error.span().unwrap_or(end..end));
        Diagnostic::error(format!("invalid TOML: {}", error.message().lines().next().unwrap_or_default()))
            .at(&at)
    })?;
    let location = FileLocation::new(origin, 0..0);
    Ok(LocatedValue { value: toml_table(document.as_table(), origin, &location)?, location })
}

fn toml_table(
    table: &dyn TableLike,
    origin: &Arc<FileText>,
    fallback: &FileLocation,
) -> Result<FileValue, Diagnostic> {
    let mut members = Vec::new();
    for (name, item) in table.iter() {
        let key_span = table.key(name).and_then(toml_edit::Key::span);
        let name_location = locate(origin, key_span, fallback);
        let value = toml_item(item, origin, &name_location)?;
        members.push(Member { name: name.to_owned(), name_location, value });
    }
    Ok(FileValue::Table(members))
}

fn toml_item(
    item: &Item,
    origin: &Arc<FileText>,
    fallback: &FileLocation,
) -> Result<LocatedValue, Diagnostic> {
    let location = locate(origin, item.span(), fallback);
    let value = match item {
        Item::None => FileValue::Table(Vec::new()),
        Item::Value(value) => return toml_value(value, origin, fallback),
        Item::Table(table) => toml_table(table, origin, &location)?,
        Item::ArrayOfTables(tables) => {
            let all = tables.iter().map(|table| {
                let location = locate(origin, table.span(), &location);
                Ok(LocatedValue { value: toml_table(table, origin, &location)?, location })
            });
            FileValue::Array(all.collect::<Result<_, Diagnostic>>()?)
        }
    };
    Ok(LocatedValue { value, location })
}

fn toml_value(
    value: &TomlValue,
    origin: &Arc<FileText>,
    fallback: &FileLocation,
) -> Result<LocatedValue, Diagnostic> {
    let location = locate(origin, value.span(), fallback);
    let number = |text: String| Json::parse(&text).map(FileValue::Scalar);
    let value = match value {
        TomlValue::String(text) => FileValue::Scalar(Json::string(text.value())),
        TomlValue::Boolean(flag) => {
            FileValue::Scalar(Json::parse(&flag.value().to_string()).expect("valid JSON"))
        }
        TomlValue::Integer(integer) => number(integer.value().to_string()).expect("an integer is valid JSON"),
        TomlValue::Float(float) => number(float.value().to_string()).map_err(|_| {
            Diagnostic::error("JSON has no number for this, so no result can have it").at(&location)
        })?,
        // Results have dates and times as texts.
        TomlValue::Datetime(datetime) => FileValue::Scalar(Json::string(&datetime.value().to_string())),
        TomlValue::Array(array) => {
            let all = array.iter().map(|one| toml_value(one, origin, &location));
            FileValue::Array(all.collect::<Result<_, _>>()?)
        }
        TomlValue::InlineTable(table) => toml_table(table, origin, &location)?,
    };
    Ok(LocatedValue { value, location })
}

fn locate(origin: &Arc<FileText>, span: Option<Range<usize>>, fallback: &FileLocation) -> FileLocation {
    span.map_or_else(|| fallback.clone(), |span| FileLocation::new(origin, span))
}

fn parse_json(origin: &Arc<FileText>) -> Result<LocatedValue, Diagnostic> {
    let doc = json::parse(origin.text.clone().into_bytes(), &ParseLimits::default()).map_err(|error| {
        let at = FileLocation::new(origin, error.offset..error.offset + 1);
        Diagnostic::error(format!("invalid JSON: {error}")).at(&at)
    })?;
    Ok(json_value(doc.root(), origin))
}

fn json_value(node: Node<'_>, origin: &Arc<FileText>) -> LocatedValue {
    let value = match node.kind() {
        NodeKind::Object => FileValue::Table(
            node.members()
                .map(|(name, value)| Member {
                    name: name.str().unwrap_or_default().into_owned(),
                    name_location: FileLocation::new(origin, name.span()),
                    value: json_value(value, origin),
                })
                .collect(),
        ),
        NodeKind::Array => FileValue::Array(node.elements().map(|one| json_value(one, origin)).collect()),
        NodeKind::Null | NodeKind::True | NodeKind::False | NodeKind::Number | NodeKind::String => {
            FileValue::Scalar(Json::from(node))
        }
    };
    LocatedValue { value, location: FileLocation::new(origin, node.span()) }
}

impl LocatedValue {
    /// As JSON.
    pub(super) fn to_json(&self) -> Json {
        let mut out = Vec::new();
        self.write(&mut out);
        Json::from_written_bytes(out)
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.value {
            FileValue::Scalar(json) => out.extend_from_slice(json.as_str().as_bytes()),
            FileValue::Array(all) => json::write::array(out, all, |out, one| one.write(out)),
            FileValue::Table(members) => {
                let mut object = json::write::ObjectWriter::new(out);
                for member in members {
                    object.raw(&member.name, member.value.to_json().as_str());
                }
                object.end();
            }
        }
    }

    /// What kind of value it is, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            FileValue::Table(_) => "a table",
            FileValue::Array(_) => "a list",
            FileValue::Scalar(json) => match json.to_doc().root().kind() {
                NodeKind::Null => "null",
                NodeKind::True | NodeKind::False => "true or false",
                NodeKind::Number => "a number",
                NodeKind::String | NodeKind::Object | NodeKind::Array => "a text",
            },
        }
    }

    pub(super) fn text(&self) -> Option<String> {
        match &self.value {
            FileValue::Scalar(json) => json.to_doc().root().str().map(|text| text.into_owned()),
            FileValue::Table(_) | FileValue::Array(_) => None,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match &self.value {
            FileValue::Scalar(json) => json.to_doc().root().bool(),
            FileValue::Table(_) | FileValue::Array(_) => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match &self.value {
            FileValue::Scalar(json) => json.to_doc().root().decimal()?.to_i64(),
            FileValue::Table(_) | FileValue::Array(_) => None,
        }
    }
}
