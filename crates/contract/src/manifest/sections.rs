//! A manifest from its tables; the server's own, and what all of them share.

use toml::Spanned;
use toml::de::DeTable;

use super::reader::{Entry, ManifestReader, TextValue, TomlTable, quoted, suggest};
use super::sources::{DeclaredSources, parse_source};
use super::{Confirm, Manifest, Server, collections, tools};
use crate::diagnostic::Located;
use crate::names;

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
    let tools = reader
        .named_tables(&mut table, "tools")
        .into_iter()
        .filter_map(|(entry, table)| tools::parse_tool(reader, &entry, table, &from))
        .collect();
    reader.finish(table);
    Manifest { server, sources, collections, tools }
}

fn parse_server(reader: &mut ManifestReader<'_>, root: &mut TomlTable<'_>) -> Server {
    let Some((_, mut table)) = reader.table(root, "server") else { return Server::default() };
    let t = &mut table;
    let name = reader.text(t, "name").and_then(|said| {
        let is_line = !said.value.contains(char::is_control);
        if !is_line {
            reader.error(
                &said.location,
                "a server's name is one line of text",
                "leave line breaks and tabs out",
            );
        }
        is_line.then_some(said.value)
    });
    let server = Server {
        name,
        title: text_value(reader.text(t, "title")),
        instructions: text_value(reader.text(t, "instructions")),
        call_timeout_ms: reader.integer(t, "call_timeout_ms"),
        rate_limit: reader.rate_limit(t, "rate_limit"),
    };
    reader.finish(table);
    server
}

pub(super) fn text_value(said: Option<TextValue>) -> Option<String> {
    said.map(|said| said.value)
}

pub(super) fn located_text(said: TextValue) -> Located<String> {
    Located::new(said.value, said.location)
}

pub(super) fn parse_confirm(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
) -> Option<Located<Confirm>> {
    let (said, word) = reader.one_of(table, "confirm")?;
    Some(said.located(if word == "ask" { Confirm::Ask } else { Confirm::Never }))
}

/// The name of a source or a collection.
pub(super) fn parse_collection_name(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    what: &str,
) -> Option<Located<String>> {
    let is_name = names::is_collection_name(entry.key);
    if !is_name {
        let (most, such_as) = (names::COLLECTION_CHARS_MAX, names::collection_name(entry.key));
        reader.error(
            &entry.key_location,
            format!("{} cannot be the name of a {what}", quoted(entry.key)),
            format!("use letters without marks, digits and `_`, at most {most}: `{such_as}`"),
        );
    }
    is_name.then(|| Located::new(entry.key.to_owned(), entry.key_location.clone()))
}

pub(super) fn report_missing_key(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    key: &str,
    such_as: &str,
) {
    let message = format!("{} has no `{key}`", quoted(entry.key));
    reader.error(&entry.key_location, message, format!("add a line such as `{such_as}`"));
}

/// A word that is none of those that are known.
pub(super) fn report_unknown(reader: &mut ManifestReader<'_>, said: &TextValue, what: &str, known: &[&str]) {
    reader.error(&said.location, format!("unknown {what} {}", said.quoted()), suggest(&said.value, known));
}
