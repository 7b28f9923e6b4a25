//! Parses `[resources.NAME]`: a file, records of a collection, or code, with a URI of their own.

use spile_core::Role;

use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, join_or, quoted};
use super::sections::{located_text, report_missing_key, report_unknown, text_value};
use super::{Literal, Resource, ResourceCompletion, ResourceOrigin};
use crate::diagnostic::Located;
use crate::names;

const ORIGINS: [&str; 3] = ["file", "collection", "script"];

pub(super) fn parse_resource(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
) -> Option<Resource> {
    let t = &mut table;
    let is_name = names::is_tool_name(entry.key);
    if !is_name {
        let message = format!("{} is not a valid name for a resource", quoted(entry.key));
        reader.error(&entry.key_location, message, "use letters, digits, `_` and `-`");
    }
    let origin = parse_origin(reader, entry, t);
    let uri = reader.text(t, "uri").map(located_text);
    let (title, description) =
        (text_value(reader.text(t, "title")), text_value(reader.text(t, "description")));
    let (mime_type, listed) = (text_value(reader.text(t, "mime_type")), reader.boolean(t, "listed"));
    let audience = parse_audience(reader, t);
    let priority = parse_priority(reader, t);
    let completions = reader
        .named_tables(t, "complete")
        .into_iter()
        .filter_map(|(entry, table)| parse_completion(reader, &entry, table))
        .collect();
    reader.finish(table);
    let origin = origin?;
    if uri.is_none() && !matches!(origin, ResourceOrigin::File(_)) {
        report_missing_key(reader, entry, "uri", "uri = \"orders://{id}\"");
        return None;
    }
    Some(Resource {
        name: is_name.then(|| Located::new(entry.key.to_owned(), entry.key_location.clone()))?,
        origin,
        uri,
        title,
        description,
        mime_type,
        listed,
        audience,
        priority,
        completions,
    })
}

fn parse_origin(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    t: &mut TomlTable<'_>,
) -> Option<ResourceOrigin> {
    let given: Vec<(&str, TextValue)> =
        ORIGINS.iter().filter_map(|key| Some((*key, reader.text(t, key)?))).collect();
    match <[_; 1]>::try_from(given) {
        Ok([(key, text)]) => {
            if key != "collection" {
                check_path(reader, key, &text)?;
            }
            let text = located_text(text);
            Some(match key {
                "file" => ResourceOrigin::File(text),
                "collection" => ResourceOrigin::Collection(text),
                _ => ResourceOrigin::Script(text),
            })
        }
        Err(given) => {
            let (at, message) = match given.get(1) {
                Some((_, second)) => {
                    let keys: Vec<&str> = given.iter().map(|(key, _)| *key).collect();
                    (&second.location, format!("{} has {}", quoted(entry.key), join_and(&keys)))
                }
                None => (&entry.key_location, format!("{} has no {}", quoted(entry.key), join_or(&ORIGINS))),
            };
            let help = "write one of `file = \"…\"`, `collection = \"…\"` and `script = \"…\"`";
            reader.error(at, message, help);
            None
        }
    }
}

fn check_path(reader: &mut ManifestReader<'_>, key: &str, text: &TextValue) -> Option<()> {
    let is_inside = !text.value.starts_with('/')
        && !text.value.contains('\\')
        && text.value.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !is_inside {
        let message = format!("`{key}` is not a path inside the folder");
        reader.error(
            &text.location,
            message,
            "write a path without `..` that does not start with `/` or `./`",
        );
    }
    is_inside.then_some(())
}

fn parse_audience(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Vec<Role> {
    let mut roles = Vec::new();
    for role in reader.some_of(t, "audience").unwrap_or_default() {
        match role.value.as_str() {
            "user" => roles.push(Role::User),
            "assistant" => roles.push(Role::Assistant),
            _ => report_unknown(reader, &role, "role", &["user", "assistant"]),
        }
    }
    roles
}

fn parse_priority(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Option<String> {
    let literal = reader.literal(t, "priority")?;
    let number = match &literal.value {
        Literal::Number(number) => number.parse::<f64>().ok().filter(|n| (0.0..=1.0).contains(n)),
        Literal::Integer(integer) => (0..=1).contains(integer).then_some(*integer as f64),
        Literal::Text(_) | Literal::Boolean(_) => None,
    };
    if number.is_none() {
        reader.error(&literal.location, "`priority`: expected a number from 0 to 1", "write `0.5`");
    }
    number.map(|number| number.to_string())
}

fn parse_completion(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
) -> Option<(Located<String>, ResourceCompletion)> {
    let t = &mut table;
    let has_values = t.key_location("values").is_some();
    let values: Vec<String> = reader.names(t, "values").into_iter().map(|text| text.value).collect();
    let (collection, field) = (text_value(reader.text(t, "collection")), text_value(reader.text(t, "field")));
    let files = text_value(reader.text(t, "files"));
    reader.finish(table);
    let completion = match (has_values, collection, field, files) {
        (true, None, None, None) => ResourceCompletion::Values(values),
        (false, Some(collection), Some(field), None) => ResourceCompletion::Collection { collection, field },
        (false, None, None, Some(folder)) => {
            let folder = folder.trim_matches('/');
            ResourceCompletion::Files {
                folder: if folder == "." { String::new() } else { folder.to_owned() },
            }
        }
        _ => {
            let message = format!("the suggestions for {} need one origin", quoted(entry.key));
            let help = "write `values = […]`, `collection = \"…\"` with `field = \"…\"`, or `files = \"…\"`";
            reader.error(&entry.key_location, message, help);
            return None;
        }
    };
    Some((Located::new(entry.key.to_owned(), entry.key_location.clone()), completion))
}
