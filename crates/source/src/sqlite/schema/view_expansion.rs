//! Finds views that would take SQLite too long to prepare.
//!
//! A view that names another one twice is expanded into two copies of it, so nested views grow exponentially: with 16
//! levels SQLite takes seconds for each view, and no deadline interrupts it while it prepares a statement. So views are
//! measured by their declarations first, and those beyond a limit are left out.

use std::collections::{HashMap, HashSet};

use crate::sqlite::lexer::{self, TokenSlice};
use crate::sqlite::schema::SchemaEntry;

/// A view of so many others takes about 50 ms to prepare, and is prepared a few times.
const EXPANSION_MAX: u64 = 1_000;

pub(super) const TOO_LARGE: &str = "it expands to more than 1,000 nested views; simplify its definition";

/// The names of such views, in lower case.
pub(super) fn oversized_views(entries: &[SchemaEntry]) -> HashSet<String> {
    let views = entries.iter().filter(|entry| entry.kind == "view");
    let views: HashMap<String, &str> =
        views.map(|entry| (entry.name.to_ascii_lowercase(), entry.sql.as_str())).collect();
    // Every name counts that is a view's, also where it names a column: too much rather than too little.
    let references: HashMap<&str, Vec<String>> = views
        .iter()
        .map(|(name, sql)| {
            let tokens = lexer::tokenize(sql).unwrap_or_default();
            let tokens = TokenSlice { sql, tokens: &tokens };
            let names = (0..tokens.tokens.len()).filter_map(|index| tokens.name_at(index));
            let names = names.map(|name| name.to_ascii_lowercase());
            // The declaration names the view itself.
            (name.as_str(), names.filter(|other| other != name && views.contains_key(other)).collect())
        })
        .collect();
    let mut sizes = HashMap::new();
    for name in references.keys() {
        measure(name, &references, &mut sizes, &mut HashSet::new());
    }
    let oversized = sizes.into_iter().filter(|(_, size)| *size > EXPANSION_MAX);
    oversized.map(|(name, _)| name.to_owned()).collect()
}

/// How many views a view stands for, itself included.
fn measure<'v>(
    name: &'v str,
    references: &'v HashMap<&str, Vec<String>>,
    sizes: &mut HashMap<&'v str, u64>,
    open: &mut HashSet<&'v str>,
) -> u64 {
    if let Some(size) = sizes.get(name) {
        return *size;
    }
    // A chain that long is too large, and must not exhaust our stack.
    if open.len() as u64 > EXPANSION_MAX {
        return EXPANSION_MAX + 1;
    }
    // SQLite itself rejects a view that refers to itself.
    if !open.insert(name) {
        return 0;
    }
    let others = references.get(name).map_or(&[][..], Vec::as_slice);
    let size = others.iter().fold(1_u64, |size, other| {
        // A deep chain is measured no further than it has to be.
        if size > EXPANSION_MAX { size } else { size.saturating_add(measure(other, references, sizes, open)) }
    });
    open.remove(name);
    sizes.insert(name, size);
    size
}
