//! Tables that are not served because there are too many, and nobody chose.

use contract::diagnostic::Diagnostic;
use contract::humanize::join_truncated;
use contract::init;
use contract::manifest::Manifest;

use super::sources::LoadedSource;

/// A warning names no more tables than this.
const TABLES_NAMED_MAX: usize = 12;

/// The tables that a generated manifest leaves out.
pub(super) fn tables_left_out<'l>(manifest: &Manifest, loaded: &'l [LoadedSource]) -> Vec<&'l str> {
    let collections = manifest.collections.len();
    let tables = || loaded.iter().flat_map(|one| one.facts.tables.iter().map(move |table| (one, table)));
    if tables().count() == collections {
        return Vec::new();
    }
    let is_served = |one: &LoadedSource, table: &str| {
        manifest.collections.iter().any(|collection| {
            let name = collection.table.as_ref().map_or("", |table| table.value.as_str());
            // A file that is one table does not name it.
            collection.source.value == one.name && (name == table || one.facts.tables.len() == 1)
        })
    };
    let left_out = tables().filter(|(one, table)| !is_served(one, &table.name));
    left_out.map(|(_, table)| table.name.as_str()).collect()
}

/// For the owner of the data: which tables are not served, and what to do about it.
pub(super) fn warning(tables: &[&str]) -> Option<Diagnostic> {
    if tables.is_empty() {
        return None;
    }
    let names: Vec<String> = tables.iter().map(|name| format!("`{name}`")).collect();
    let message = format!(
        "{} not served, because more than {} tables make more tools than some clients accept: {}",
        match tables.len() {
            1 => "1 table is".to_owned(),
            count => format!("{count} tables are"),
        },
        init::TABLES_SERVED_MAX,
        join_truncated(&names, TABLES_NAMED_MAX)
    );
    let help = "`spile init` writes a manifest with the lines that choose the tables";
    Some(Diagnostic::warning(message).code("skipped").help(help))
}
