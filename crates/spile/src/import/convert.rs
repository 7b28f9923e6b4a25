//! One operation as a tool of a manifest, or the reason why it cannot be one.

use contract::names;
use contract::request::{ArrayStyle, Method};
use serde_json::{Map, Value};

use super::document::Document;
use super::operations::Operation;

/// Why an operation cannot be imported: a clause.
pub(super) type Refusal = String;

/// A tool of a manifest.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolEntry {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) method: String,
    /// With `{name}` for arguments.
    pub(super) path: String,
    /// Parameters and patterns.
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
    pub(super) arguments: Vec<ArgumentEntry>,
    pub(super) confirms: bool,
    /// What was left out, for the author.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Body {
    #[default]
    None,
    /// Members, each with its argument.
    Members { members: Vec<(String, String)>, is_form: bool },
    /// The argument is the whole body.
    Whole(String),
}

#[derive(Debug, Clone, Default)]
pub(super) struct ArgumentEntry {
    pub(super) name: String,
    pub(super) data_type: &'static str,
    pub(super) format: Option<&'static str>,
    pub(super) allowed: Vec<Value>,
    pub(super) description: String,
    pub(super) is_required: bool,
    /// Whether the API takes `null` here, in a body.
    pub(super) is_nullable: bool,
}

const DESCRIPTION_CHARS_MAX: usize = 300;
const ARGUMENT_DESCRIPTION_CHARS_MAX: usize = 160;
/// A body with more optional members is cut.
const MEMBERS_MAX: usize = 20;
/// `allOf` inside `allOf`.
const MERGE_DEPTH_MAX: usize = 8;

pub(super) fn tool(document: &Document, operation: &Operation, taken: &[&str]) -> Result<ToolEntry, Refusal> {
    let item = &document.root["paths"][operation.path.as_str()];
    let item = document.resolve(item)?;
    let value = &item[operation.method.as_str().to_ascii_lowercase().as_str()];
    for (at, servers) in [("path", item.get("servers")), ("operation", value.get("servers"))] {
        if servers.is_some_and(|servers| servers.as_array().is_some_and(|all| !all.is_empty()))
            && document.root.get("servers") != servers
        {
            return Err(format!("its {at} has a server of its own"));
        }
    }
    let mut entry = ToolEntry {
        name: tool_name(&operation.id, taken),
        description: description(operation, value),
        method: operation.method.as_str().to_owned(),
        path: operation.path.clone(),
        confirms: operation.method == Method::Delete,
        ..ToolEntry::default()
    };
    for parameter in parameters(document, item, value)? {
        add_parameter(document, &mut entry, parameter)?;
    }
    if let Some(open) = entry.path.split('{').skip(1).find_map(|rest| {
        let name = rest.split('}').next()?;
        entry.arguments.iter().all(|argument| argument.name != name).then(|| name.to_owned())
    }) {
        return Err(format!("its path has the parameter `{open}`, which is not declared"));
    }
    if let Some(body) = value.get("requestBody") {
        add_body(document, &mut entry, document.resolve(body)?, operation.method)?;
    }
    Ok(entry)
}

/// A name of at most 64 characters, in snake case, that no other tool has.
fn tool_name(id: &str, taken: &[&str]) -> String {
    let mut name = String::new();
    let mut before = ' ';
    for c in id.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            name.push('_');
        }
        name.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        before = c;
    }
    let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    let mut name = words.join("_");
    name.truncate(names::TOOL_CHARS_MAX);
    if name.is_empty() {
        name = "operation".to_owned();
    }
    let mut number = 2;
    let base = name.clone();
    while taken.contains(&name.as_str()) {
        let suffix = format!("_{number}");
        name = format!("{}{suffix}", &base[..base.len().min(names::TOOL_CHARS_MAX - suffix.len())]);
        number += 1;
    }
    name
}

/// The summary, with the first paragraph of the description if that says more.
fn description(operation: &Operation, value: &Value) -> String {
    let summary = plain(value.get("summary").and_then(Value::as_str).unwrap_or_default());
    let text = value.get("description").and_then(Value::as_str).unwrap_or_default();
    let paragraph = plain(text.split("\n\n").next().unwrap_or_default());
    let joined = match (summary.is_empty(), paragraph.is_empty() || paragraph == summary) {
        (true, true) => format!("{} {}", operation.method.as_str(), operation.path),
        (true, false) => paragraph,
        (false, true) => summary,
        (false, false) => format!("{}. {paragraph}", summary.trim_end_matches('.')),
    };
    cut(&joined, DESCRIPTION_CHARS_MAX)
}

/// On one line, without markup that only browsers need.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut is_tag = false;
    for c in text.chars() {
        match c {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            _ if is_tag => {}
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let cut: String = text.chars().take(chars_max).collect();
    // At the end of a sentence or of a word.
    let at = cut
        .rfind(". ")
        .map(|at| at + 1)
        .filter(|at| *at > chars_max / 2)
        .or_else(|| cut.rfind(' '))
        .unwrap_or(cut.len());
    let ends = cut[..at].ends_with('.');
    format!("{}{}", &cut[..at], if ends { "" } else { " …" })
}

/// The parameters of the path item and of the operation, which wins.
fn parameters<'d>(
    document: &'d Document,
    item: &'d Value,
    value: &'d Value,
) -> Result<Vec<&'d Value>, Refusal> {
    let mut found: Vec<&Value> = Vec::new();
    for list in [item.get("parameters"), value.get("parameters")].into_iter().flatten() {
        for parameter in list.as_array().into_iter().flatten() {
            let parameter = document.resolve(parameter)?;
            let is_same = |one: &&Value| one["name"] == parameter["name"] && one["in"] == parameter["in"];
            match found.iter().position(is_same) {
                Some(at) => found[at] = parameter,
                None => found.push(parameter),
            }
        }
    }
    Ok(found)
}

fn add_parameter(document: &Document, entry: &mut ToolEntry, parameter: &Value) -> Result<(), Refusal> {
    let name = parameter["name"].as_str().unwrap_or_default();
    let place = parameter["in"].as_str().unwrap_or_default();
    let is_required = place == "path" || parameter["required"].as_bool().unwrap_or(false);
    // These are sent anyway, or are credentials of the source.
    if place == "header"
        && ["accept", "content-type", "authorization"].contains(&name.to_ascii_lowercase().as_str())
    {
        return Ok(());
    }
    let added = describe_parameter(document, parameter, place, name);
    let (schema, style) = match (added, is_required) {
        (Ok(added), _) => added,
        (Err(reason), true) => return Err(format!("its parameter `{name}` {reason}")),
        (Err(reason), false) => {
            entry.notes.push(format!("the parameter `{name}` is left out: it {reason}"));
            return Ok(());
        }
    };
    let argument = argument_name(entry, name);
    let about = parameter["description"].as_str().unwrap_or_default();
    let mut described = schema;
    described.name = argument.clone();
    described.is_required = is_required;
    if !plain(about).is_empty() {
        described.description = cut(&plain(about), ARGUMENT_DESCRIPTION_CHARS_MAX);
    }
    entry.arguments.push(described);
    match place {
        "path" => entry.path = entry.path.replace(&format!("{{{name}}}"), &format!("{{{argument}}}")),
        "header" => entry.headers.push((name.to_owned(), format!("{{{argument}}}"))),
        _ => entry.query.push((name.to_owned(), format!("{{{argument}{}}}", style.suffix()))),
    }
    Ok(())
}

/// The type of a parameter, and how an array is written. An error is the end of a sentence.
fn describe_parameter(
    document: &Document,
    parameter: &Value,
    place: &str,
    name: &str,
) -> Result<(ArgumentEntry, ArrayStyle), Refusal> {
    match place {
        "path" | "query" | "header" => {}
        "cookie" => return Err("is a cookie".to_owned()),
        other => return Err(format!("is in `{other}`")),
    }
    let Some(schema) = parameter.get("schema") else { return Err("has a media type of its own".to_owned()) };
    let mut argument = argument(document, schema)?;
    // In a URL, a number is a text.
    if argument.data_type == "json" && is_scalar_union(document, schema)? {
        argument.data_type = "string";
    }
    let style = parameter["style"].as_str().unwrap_or(if place == "query" { "form" } else { "simple" });
    let explode = parameter["explode"].as_bool().unwrap_or(style == "form");
    let array_style = match (style, explode) {
        ("form", true) => ArrayStyle::Repeated,
        ("form", false) => ArrayStyle::Commas,
        ("spaceDelimited", _) => ArrayStyle::Spaces,
        ("pipeDelimited", _) => ArrayStyle::Pipes,
        ("simple", _) if argument.data_type != "json" => ArrayStyle::Repeated,
        ("simple", _) => return Err("is an object or an array, which has no place there".to_owned()),
        (style, _) => return Err(format!("has the style `{style}`, which is not supported")),
    };
    if argument.data_type == "json" {
        let is_array = merged(document, schema, 0).is_ok_and(|schema| schema.get("items").is_some());
        if place != "query" || !is_array {
            return Err("is an object or an array, which has no place there".to_owned());
        }
    }
    if place != "path" && name.is_empty() {
        return Err("has no name".to_owned());
    }
    let array_style = if argument.data_type == "json" { array_style } else { ArrayStyle::Repeated };
    Ok((argument, array_style))
}

/// A name that arguments can have, and that no other argument has.
fn argument_name(entry: &ToolEntry, name: &str) -> String {
    let spelled: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut base = spelled.trim_matches('_').to_owned();
    if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit()) {
        base = format!("value_{base}");
    }
    if ["idempotency_key", "dry_run"].contains(&base.as_str()) {
        base.push_str("_value");
    }
    base.truncate(names::ARGUMENT_CHARS_MAX - 4);
    let is_taken = |name: &str| entry.arguments.iter().any(|argument| argument.name == name);
    let (mut name, mut number) = (base.clone(), 2);
    while is_taken(&name) {
        name = format!("{base}_{number}");
        number += 1;
    }
    name
}

/// A schema with `$ref`, `allOf` and `null` resolved, one level deep.
fn merged(document: &Document, schema: &Value, depth: usize) -> Result<Map<String, Value>, Refusal> {
    if depth > MERGE_DEPTH_MAX {
        return Err("has a schema that refers to itself".to_owned());
    }
    let schema = document.resolve(schema)?;
    let Some(object) = schema.as_object() else { return Ok(Map::new()) };
    let mut out = object.clone();
    for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        for (name, value) in merged(document, part, depth + 1)? {
            match (out.get_mut(&name), value) {
                (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
                (Some(Value::Array(known)), Value::Array(more)) if name == "required" => known.extend(more),
                (Some(_), _) => {}
                (None, value) => {
                    out.insert(name, value);
                }
            }
        }
    }
    for word in ["oneOf", "anyOf"] {
        let variants: Vec<&Value> =
            object.get(word).and_then(Value::as_array).into_iter().flatten().collect();
        let is_null = |one: &&&Value| one.get("type").and_then(Value::as_str) == Some("null");
        let others: Vec<&&Value> = variants.iter().filter(|one| !is_null(one)).collect();
        if let [only] = others.as_slice() {
            for (name, value) in merged(document, only, depth + 1)? {
                out.entry(name).or_insert(value);
            }
        }
    }
    Ok(out)
}

/// The type of a value that callers pass.
fn argument(document: &Document, schema: &Value) -> Result<ArgumentEntry, Refusal> {
    let schema = merged(document, schema, 0)?;
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        // 3.1: `["string", "null"]`
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_str).filter(|one| *one != "null").collect()
        }
        _ if schema.contains_key("properties") => vec!["object"],
        _ if schema.contains_key("items") => vec!["array"],
        _ => Vec::new(),
    };
    let allowed: Vec<Value> = schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|one| !one.is_null())
        .cloned()
        .collect();
    let is_plain = |value: &Value| value.as_str().is_some_and(|text| !text.contains("${"));
    let texts = !allowed.is_empty() && allowed.iter().all(is_plain);
    let integers = !allowed.is_empty() && allowed.iter().all(Value::is_i64);
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    let (data_type, format) = match types.as_slice() {
        [] if texts => ("string", None),
        [] if integers => ("integer", None),
        // Any value: callers pass JSON.
        [] => ("json", None),
        ["string"] => match format {
            "date" => ("date", None),
            _ => (
                "string",
                contract::manifest::FORMATS
                    .into_iter()
                    .find(|known| *known == format && !matches!(*known, "date" | "time" | "duration")),
            ),
        },
        ["integer"] => ("integer", None),
        ["number"] => ("number", None),
        ["boolean"] => ("boolean", None),
        _ => ("json", None),
    };
    let allowed = match data_type {
        "string" if texts => unique(allowed),
        "integer" if integers => unique(allowed),
        _ => Vec::new(),
    };
    let format = if allowed.is_empty() { format } else { None };
    let about = plain(schema.get("description").and_then(Value::as_str).unwrap_or_default());
    Ok(ArgumentEntry {
        data_type,
        format,
        allowed,
        description: cut(&about, ARGUMENT_DESCRIPTION_CHARS_MAX),
        ..ArgumentEntry::default()
    })
}

/// Whether `null` is a value of a schema: `nullable` in 3.0, a type of its own in 3.1.
fn takes_null(document: &Document, schema: &Value) -> Result<bool, Refusal> {
    let schema = merged(document, schema, 0)?;
    let is_null = |one: &Value| one.as_str() == Some("null");
    let is_type = |kind: &Value| is_null(kind) || kind.as_array().is_some_and(|all| all.iter().any(is_null));
    let variants = ["oneOf", "anyOf"].into_iter().filter_map(|word| schema.get(word)?.as_array()).flatten();
    Ok(schema.get("nullable") == Some(&Value::Bool(true))
        || schema.get("type").is_some_and(is_type)
        || variants.filter_map(|variant| variant.get("type")).any(is_type))
}

/// Whether a schema is for values of several types, none of them an object or an array.
fn is_scalar_union(document: &Document, schema: &Value) -> Result<bool, Refusal> {
    let schema = merged(document, schema, 0)?;
    let is_scalar = |one: &str| matches!(one, "string" | "integer" | "number" | "boolean" | "null");
    let all_are_scalar = |types: &Value| match types {
        Value::String(one) => is_scalar(one),
        Value::Array(all) => !all.is_empty() && all.iter().all(|one| one.as_str().is_some_and(is_scalar)),
        _ => false,
    };
    if let Some(types) = schema.get("type") {
        return Ok(all_are_scalar(types));
    }
    for word in ["oneOf", "anyOf"] {
        let Some(variants) = schema.get(word).and_then(Value::as_array) else { continue };
        for variant in variants {
            let variant = merged(document, variant, 1)?;
            let has_scalar_enum = || {
                let values = variant.get("enum").and_then(Value::as_array);
                values
                    .is_some_and(|values| values.iter().all(|value| !value.is_object() && !value.is_array()))
            };
            if !variant.get("type").map_or_else(has_scalar_enum, all_are_scalar) {
                return Ok(false);
            }
        }
        return Ok(!variants.is_empty());
    }
    Ok(false)
}

fn unique(values: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for value in values {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

fn add_body(document: &Document, entry: &mut ToolEntry, body: &Value, method: Method) -> Result<(), Refusal> {
    let is_required = body["required"].as_bool().unwrap_or(false);
    if !method.has_body() {
        return match is_required {
            true => Err(format!("it has a body, which a `{}` request cannot have", method.as_str())),
            false => {
                entry.notes.push("its body is left out".to_owned());
                Ok(())
            }
        };
    }
    let content = body.get("content").and_then(Value::as_object);
    let media = |wanted: &dyn Fn(&str) -> bool| {
        content.into_iter().flatten().find(|(name, _)| wanted(name.split(';').next().unwrap_or(name).trim()))
    };
    let json = media(&|name| name == "application/json" || name.ends_with("+json") || name == "*/*");
    let form = media(&|name| name == "application/x-www-form-urlencoded");
    let (media_type, is_form) = match (json, form) {
        (Some((_, json)), _) => (json, false),
        (None, Some((_, form))) => (form, true),
        (None, None) => {
            let names: Vec<&str> = content.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            return match is_required || !names.is_empty() {
                true => Err(format!(
                    "its body is {}, which is not supported",
                    names.first().copied().unwrap_or("of no known type")
                )),
                false => Ok(()),
            };
        }
    };
    let Some(schema) = media_type.get("schema") else { return whole_body(entry, is_required, is_form) };
    let schema = merged(document, schema, 0)?;
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return whole_body(entry, is_required, is_form);
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let (mut members, mut left_out, mut optional) = (Vec::new(), Vec::new(), 0);
    for (name, property) in properties {
        let resolved = document.resolve(property)?;
        if resolved["readOnly"].as_bool().unwrap_or(false) {
            continue;
        }
        let is_required = is_required && required.contains(&name.as_str());
        optional += usize::from(!is_required);
        let is_deprecated = resolved["deprecated"].as_bool().unwrap_or(false);
        if !is_required && (optional > MEMBERS_MAX || is_deprecated) {
            left_out.push(name.as_str());
            continue;
        }
        let mut described = argument(document, property)
            .map_err(|reason| format!("the member `{name}` of its body {reason}"))?;
        if is_form && described.data_type == "json" {
            match is_required {
                true => return Err(format!("the member `{name}` of its form is nested")),
                false => left_out.push(name.as_str()),
            }
            continue;
        }
        described.name = argument_name(entry, name);
        described.is_required = is_required;
        // `null` for an optional argument means that it is omitted, and any JSON is `null`, too.
        described.is_nullable =
            is_required && !is_form && described.data_type != "json" && takes_null(document, property)?;
        members.push((name.clone(), described.name.clone()));
        entry.arguments.push(described);
    }
    if !left_out.is_empty() {
        entry.notes.push(format!("members of the body that are left out: {}", left_out.join(", ")));
    }
    entry.body = Body::Members { members, is_form };
    Ok(())
}

/// A body without known members is one argument.
fn whole_body(entry: &mut ToolEntry, is_required: bool, is_form: bool) -> Result<(), Refusal> {
    if is_form {
        return Err("its form has no declared members".to_owned());
    }
    let name = argument_name(entry, "body");
    entry.arguments.push(ArgumentEntry {
        name: name.clone(),
        data_type: "json",
        description: "The body of the request.".to_owned(),
        is_required,
        ..ArgumentEntry::default()
    });
    entry.body = Body::Whole(name);
    Ok(())
}
