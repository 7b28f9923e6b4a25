//! Tells which columns are served under another name.

use contract::diagnostic::Diagnostic;
use contract::manifest::SourceSettings;
use contract::{Collection, Contract};

use super::sources::LoadedSource;
use crate::layout;

/// A note names at most this many columns.
const RENAMED_SHOWN_MAX: usize = 10;

/// Notes about columns whose name is blank or repeated, and which callers therefore see under another name.
pub(super) fn renamed_columns(contract: &Contract, loaded: &[LoadedSource]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for collection in &contract.collections {
        let (collection_name, fields) = (&collection.name, &collection.fields);
        let unnamed = fields.iter().zip(&collection.shape.columns);
        let unnamed: Vec<(String, usize)> = unnamed
            .filter(|(field, _)| field.column.trim().is_empty())
            .map(|(field, column)| (format!("`{}`", field.name), column.source_index + 1))
            .collect();
        let message = match unnamed.as_slice() {
            [] => None,
            [(name, number)] => {
                Some(format!("column {number} of `{collection_name}` has no name; callers see it as {name}"))
            }
            several => {
                let (count, names) =
                    (several.len(), several.iter().map(|(name, _)| name).collect::<Vec<_>>());
                let names = layout::join_names(&names, RENAMED_SHOWN_MAX, None);
                Some(format!(
                    "{count} columns of `{collection_name}` have no name; callers see them as {names}"
                ))
            }
        };
        if let Some(message) = message {
            let help = unnamed_columns_help(collection, unnamed.len(), loaded);
            found.push(Diagnostic::note(message).help(help));
        }
        for (index, field) in fields.iter().enumerate() {
            let column = &field.column;
            if column.trim().is_empty() {
                continue;
            }
            let same = fields[index..].iter().filter(|other| other.column == *column);
            let names: Vec<String> = same.map(|field| format!("`{}`", field.name)).collect();
            if names.len() > 1 && fields[..index].iter().all(|earlier| earlier.column != *column) {
                let count = names.len();
                let names = layout::join_names(&names, RENAMED_SHOWN_MAX, None);
                let message = format!(
                    "{count} columns of `{collection_name}` are named `{column}`; callers see them as {names}"
                );
                found.push(Diagnostic::note(message).help("give each column its own name in the file"));
            }
        }
    }
    found
}

fn unnamed_columns_help(collection: &Collection, count: usize, loaded: &[LoadedSource]) -> String {
    let source = loaded.iter().find(|one| one.name == collection.source);
    let table = source
        .and_then(|source| source.facts.tables.iter().find(|table| table.name == collection.shape.table));
    let them = if count == 1 { "it" } else { "them" };
    match (table.and_then(|table| table.likely_header_row), source.map(|source| &source.settings)) {
        (Some(row), _) => format!(
            "the header row looks like a title; set `header_row = {row}` for the collection in the manifest"
        ),
        (None, Some(SourceSettings::Workbook(_))) => format!(
            "name {them} in the header row; if that is another row, set `header_row` for the collection in the manifest"
        ),
        (None, _) => match table.and_then(|table| table.header).filter(|header| header.first > 1) {
            Some(header) => format!("name {them} in line {} of the file", header.first),
            None => format!("name {them} in the first line of the file"),
        },
    }
}
