//! Parses the root and `[server]`, with helpers for all sections.

use toml::Spanned;
use toml::de::DeTable;

use super::reader::{Entry, ManifestReader, TextValue, TomlTable, quoted, suggest};
use super::sources::{DeclaredSources, parse_source};
use super::{
    CodeIsolation, Confirm, Manifest, Permissions, Resource, Server, access, collections, resources, tools,
};
use crate::TimeZone;
use crate::diagnostic::Located;
use crate::names;
use crate::nearest::nearest;

pub(super) fn parse_manifest(reader: &mut ManifestReader<'_>, document: &Spanned<DeTable<'_>>) -> Manifest {
    let mut table = reader.document(document);
    let server = parse_server(reader, &mut table);
    let sources = reader.named_tables(&mut table, "sources");
    let names: Vec<String> = sources.iter().map(|(entry, _)| entry.key.to_owned()).collect();
    let sources: Vec<_> =
        sources.into_iter().filter_map(|(entry, table)| parse_source(reader, &entry, table)).collect();
    let from = DeclaredSources { names: &names, parsed: &sources };
    let collections = reader
        .named_tables(&mut table, "collections")
        .into_iter()
        .filter_map(|(entry, table)| collections::parse_collection(reader, &entry, table, &from))
        .collect();
    let (mut tools, mut tool_access) = (Vec::new(), Vec::new());
    for (entry, mut table) in reader.named_tables(&mut table, "tools") {
        let access = access::parse_item_access(reader, &entry, &mut table);
        // Nothing but `access` is for a tool of code.
        if access.is_none() || !table.is_empty() {
            tools.extend(tools::parse_tool(reader, &entry, table, &from));
        }
        tool_access.extend(access);
    }
    let (mut resources, mut resource_access) = (Vec::new(), Vec::new());
    for (entry, mut table) in reader.named_tables(&mut table, "resources") {
        let access = access::parse_item_access(reader, &entry, &mut table);
        let resource = resources::parse_resource(reader, &entry, table);
        if let (Some(access), Some(Resource { uri: None, .. })) = (&access, &resource) {
            let help = "add a line such as `uri = \"docs://handbook\"`";
            reader.error(&access.name.location, "a resource with `access` needs a `uri`", help);
        }
        resource_access.extend(access);
        resources.extend(resource);
    }
    let prompt_access = access::parse_prompts(reader, &mut table);
    let roles = access::parse_roles(reader, &mut table);
    let permissions = parse_permissions(reader, &mut table);
    reject_unsupported_sections(reader, &mut table);
    reader.finish(table);
    let manifest = Manifest {
        server,
        sources,
        collections,
        tools,
        resources,
        roles,
        tool_access,
        resource_access,
        prompt_access,
        permissions,
        may_be_empty: false,
        tables_left_out: 0,
    };
    access::check_roles(reader, &manifest);
    manifest
}

fn parse_permissions(reader: &mut ManifestReader<'_>, root: &mut TomlTable<'_>) -> Permissions {
    let Some((_, mut table)) = reader.table(root, "permissions") else { return Permissions::default() };
    let t = &mut table;
    let mut texts = |name| reader.names(t, name).into_iter().map(located_text).collect();
    let permissions = Permissions {
        network: texts("network"),
        env: texts("env"),
        secrets: texts("secrets"),
        sql: texts("sql"),
        eval: texts("eval"),
        files: reader.folders(t, "files"),
        writable_files: reader.folders(t, "writable_files"),
    };
    reader.finish(table);
    permissions
}

/// Sections that are planned for a later version.
const UNSUPPORTED_SECTIONS: [&str; 5] = ["prompt", "skills", "context", "gateway", "servers"];

/// Reports planned sections as such: they are not misspelled keys.
fn reject_unsupported_sections(reader: &mut ManifestReader<'_>, table: &mut TomlTable<'_>) {
    for name in UNSUPPORTED_SECTIONS {
        if let Some(entry) = table.take_unknown(name) {
            let message = format!("`[{name}]` is not supported in this version");
            let help = "remove it; this version has `[server]`, `[sources]`, `[collections]`, `[tools]`, `[resources]`, \
                        `[prompts]`, `[roles]` and `[permissions]`; prompts and skills are files of the folder";
            reader.error(&entry.key_location, message, help);
        }
    }
}

fn parse_server(reader: &mut ManifestReader<'_>, root: &mut TomlTable<'_>) -> Server {
    let Some((_, mut table)) = reader.table(root, "server") else { return Server::default() };
    let t = &mut table;
    let name = reader.text(t, "name").and_then(|text| {
        let is_line = !text.value.contains(char::is_control);
        if !is_line {
            reader.error(&text.location, "a server's name must be one line", "remove line breaks and tabs");
        }
        is_line.then_some(text.value)
    });
    let server = Server {
        name,
        title: text_value(reader.text(t, "title")),
        instructions: text_value(reader.text(t, "instructions")),
        call_timeout_ms: reader.integer(t, "call_timeout_ms"),
        rate_limit: reader.rate_limit(t, "rate_limit"),
        backups: reader.boolean(t, "backups"),
        memory_bytes_max: reader.integer(t, "memory_bytes_max"),
        time_zone: reader.text(t, "time_zone").and_then(|text| parse_time_zone(reader, &text)),
        tool_order: reader.names(t, "tool_order").into_iter().map(located_text).collect(),
        isolation: reader.one_of(t, "isolation").map(|(_, word)| match word {
            "process" => CodeIsolation::Process,
            _ => CodeIsolation::Thread,
        }),
    };
    reader.finish(table);
    server
}

fn parse_time_zone(reader: &mut ManifestReader<'_>, text: &TextValue) -> Option<TimeZone> {
    let zone = TimeZone::find(&text.value);
    if zone.is_none() {
        let message = format!("unknown time zone {}", text.quoted());
        let near = nearest(&text.value, TimeZone::names());
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "use a name such as `Europe/Berlin`, `America/New_York` or `UTC`".to_owned(),
        };
        reader.error(&text.location, message, help);
    }
    zone
}

pub(super) fn text_value(text: Option<TextValue>) -> Option<String> {
    text.map(|text| text.value)
}

pub(super) fn located_text(text: TextValue) -> Located<String> {
    Located::new(text.value, text.location)
}

pub(super) fn parse_confirm(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
) -> Option<Located<Confirm>> {
    let (text, word) = reader.one_of(table, "confirm")?;
    Some(text.located(if word == "ask" { Confirm::Ask } else { Confirm::Never }))
}

/// Parses the name of a source or a collection.
pub(super) fn parse_collection_name(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    what: &str,
) -> Option<Located<String>> {
    let is_name = names::is_collection_name(entry.key);
    if !is_name {
        let (chars_max, example) = (names::COLLECTION_CHARS_MAX, names::collection_name(entry.key));
        reader.error(
            &entry.key_location,
            format!("{} is not a valid name for a {what}", quoted(entry.key)),
            format!("use at most {chars_max} ASCII letters, digits and `_`, such as `{example}`"),
        );
    }
    is_name.then(|| Located::new(entry.key.to_owned(), entry.key_location.clone()))
}

pub(super) fn report_missing_key(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    key: &str,
    example: &str,
) {
    let message = format!("{} has no `{key}`", quoted(entry.key));
    reader.error(&entry.key_location, message, format!("add a line such as `{example}`"));
}

pub(super) fn report_unknown(reader: &mut ManifestReader<'_>, text: &TextValue, what: &str, known: &[&str]) {
    let help = suggest(&text.value, what, known);
    reader.error(&text.location, format!("unknown {what} {}", text.quoted()), help);
}
