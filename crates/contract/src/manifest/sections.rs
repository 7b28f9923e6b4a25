//! A manifest from its tables; the server's own, and what all of them share.

use toml::Spanned;
use toml::de::DeTable;

use super::reader::{Entry, Reader, Said, Table, instead, quoted};
use super::sources::{Sources, source};
use super::{Confirm, Manifest, Server, collections, tools};
use crate::diagnostic::Placed;
use crate::names;

pub(super) fn manifest(reader: &mut Reader<'_>, document: &Spanned<DeTable<'_>>) -> Manifest {
    let mut table = reader.document(document);
    let server = server(reader, &mut table);
    let sources = reader.named(&mut table, "sources");
    let names: Vec<String> = sources.iter().map(|(entry, _)| entry.key.to_owned()).collect();
    let sources: Vec<_> =
        sources.into_iter().filter_map(|(entry, table)| source(reader, &entry, table)).collect();
    let from = Sources { names: &names, read: &sources };
    let collections = reader
        .named(&mut table, "collections")
        .into_iter()
        .filter_map(|(entry, table)| collections::collection(reader, &entry, table, &from))
        .collect();
    let tools = reader
        .named(&mut table, "tools")
        .into_iter()
        .filter_map(|(entry, table)| tools::tool(reader, &entry, table, &from))
        .collect();
    reader.finish(table);
    Manifest { server, sources, collections, tools }
}

fn server(reader: &mut Reader<'_>, root: &mut Table<'_>) -> Server {
    let Some((_, mut table)) = reader.table(root, "server") else { return Server::default() };
    let t = &mut table;
    let name = reader.text(t, "name").and_then(|said| {
        let is_line = !said.value.contains(char::is_control);
        if !is_line {
            reader.error(&said.at, "a server's name is one line of text", "leave line breaks and tabs out");
        }
        is_line.then_some(said.value)
    });
    let server = Server {
        name,
        title: value(reader.text(t, "title")),
        instructions: value(reader.text(t, "instructions")),
        call_timeout_ms: reader.integer(t, "call_timeout_ms"),
        rate_limit: reader.rate(t, "rate_limit"),
    };
    reader.finish(table);
    server
}

pub(super) fn value(said: Option<Said>) -> Option<String> {
    said.map(|said| said.value)
}

pub(super) fn placed(said: Said) -> Placed<String> {
    Placed::new(said.value, said.at)
}

pub(super) fn confirm(reader: &mut Reader<'_>, table: &mut Table<'_>) -> Option<Placed<Confirm>> {
    let (said, word) = reader.word(table, "confirm")?;
    Some(said.placed(if word == "ask" { Confirm::Ask } else { Confirm::Never }))
}

/// The name of a source or a collection.
pub(super) fn collection_name(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    what: &str,
) -> Option<Placed<String>> {
    let is_name = names::is_collection_name(entry.key);
    if !is_name {
        let (most, such_as) = (names::COLLECTION_CHARS_MAX, names::collection_name(entry.key));
        reader.error(
            &entry.key_at,
            format!("{} cannot be the name of a {what}", quoted(entry.key)),
            format!("use letters without marks, digits and `_`, at most {most}: `{such_as}`"),
        );
    }
    is_name.then(|| Placed::new(entry.key.to_owned(), entry.key_at.clone()))
}

pub(super) fn missing(reader: &mut Reader<'_>, entry: &Entry<'_>, key: &str, such_as: &str) {
    let message = format!("{} has no `{key}`", quoted(entry.key));
    reader.error(&entry.key_at, message, format!("add a line such as `{such_as}`"));
}

/// A word that is none of those that are known.
pub(super) fn unknown(reader: &mut Reader<'_>, said: &Said, what: &str, known: &[&str]) {
    reader.error(&said.at, format!("unknown {what} {}", said.quoted()), instead(&said.value, known));
}
