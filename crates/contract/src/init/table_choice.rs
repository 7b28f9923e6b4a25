//! Which tables are served where nobody chose, if there are too many for a list of tools that a model can use.
//!
//! Each table gets points for what speaks for it: other tables refer to it, it has rows, a key and references of its own.
//! A name that programs give to tables of their own, such as `django_session` or `audit_log`, speaks against it.

use super::DiscoveredSource;
use crate::source::TableFacts;

/// With four tools each, more tables than this exceed what some clients accept: 128 tools.
pub const TABLES_SERVED_MAX: usize = 30;

/// Parts of names of tables that hold no business data.
const TECHNICAL_WORDS: [&str; 27] = [
    "archive",
    "audit",
    "backup",
    "bak",
    "cache",
    "etl",
    "flyway",
    "history",
    "job",
    "jobs",
    "knex",
    "log",
    "logs",
    "metadata",
    "migration",
    "migrations",
    "old",
    "permission",
    "permissions",
    "queue",
    "schema",
    "session",
    "sessions",
    "staging",
    "temp",
    "test",
    "tmp",
];
const TECHNICAL_PREFIXES: [&str; 7] = ["_", "alembic_", "auth_", "django_", "pg_", "sqlite_", "sys"];
const TECHNICAL_POINTS: i64 = -15;
const EMPTY_POINTS: i64 = -20;
/// For each table that refers to it, up to a limit.
const REFERRED_POINTS: i64 = 3;
const REFERRING_TABLES_MAX: usize = 6;
const REFERENCES_MAX: usize = 4;
const KEY_POINTS: i64 = 2;
/// As many as a table with 100,000 rows: it was too large to count.
const UNKNOWN_ROWS_POINTS: i64 = 5;

/// For each table of each source, in order, whether it is served.
pub(super) fn chosen_tables(found: &[DiscoveredSource<'_>]) -> Vec<bool> {
    let tables: Vec<(usize, &TableFacts)> = found
        .iter()
        .enumerate()
        .flat_map(|(source, one)| one.facts.tables.iter().map(move |table| (source, table)))
        .collect();
    if tables.len() <= TABLES_SERVED_MAX {
        return vec![true; tables.len()];
    }
    let mut ranked: Vec<(i64, usize)> = tables
        .iter()
        .enumerate()
        .map(|(position, (source, table))| (points(table, &found[*source].facts.tables), position))
        .collect();
    ranked.sort_by_key(|(points, position)| (-points, *position));
    let mut chosen = vec![false; tables.len()];
    for (_, position) in ranked.into_iter().take(TABLES_SERVED_MAX) {
        chosen[position] = true;
    }
    chosen
}

fn points(table: &TableFacts, all: &[TableFacts]) -> i64 {
    let refers = |other: &&TableFacts| {
        other.name != table.name
            && other.foreign_keys.iter().any(|key| key.table.eq_ignore_ascii_case(&table.name))
    };
    let referring = all.iter().filter(refers).count().min(REFERRING_TABLES_MAX) as i64;
    let rows = match table.row_count {
        Some(0) => EMPTY_POINTS,
        Some(rows) => i64::from(rows.ilog10()),
        None => UNKNOWN_ROWS_POINTS,
    };
    let technical = if is_technical(&table.name) { TECHNICAL_POINTS } else { 0 };
    let key = if table.key.is_empty() { 0 } else { KEY_POINTS };
    referring * REFERRED_POINTS + table.foreign_keys.len().min(REFERENCES_MAX) as i64 + rows + key + technical
}

fn is_technical(name: &str) -> bool {
    let name = name.to_lowercase();
    TECHNICAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.split(|c: char| !c.is_alphanumeric()).any(|word| TECHNICAL_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::is_technical;

    #[test]
    fn names_that_programs_give_to_their_own_tables_are_technical() {
        for (name, expected) in [
            ("customers", false),
            ("order_lines", false),
            ("Catalogue", false),
            ("auth_user", true),
            ("django_migrations", true),
            ("audit_log", true),
            ("Orders-Backup", true),
            ("_prisma", true),
        ] {
            assert_eq!(is_technical(name), expected, "{name}");
        }
    }
}
