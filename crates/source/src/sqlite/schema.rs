//! What tables and views a database declares.
//!
//! All names in our statements come from here, quoted; none comes from a caller.

use std::collections::HashSet;

use contract::source::SkippedTable;
use rusqlite::{Connection, Result, Row};

use super::direct_params;
use super::fts::{self, FtsIndex};
use super::idempotency;
use super::lexer;

/// One table or view, as declared.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<ColumnDef>,
    /// The primary key's columns, in its order.
    primary_key: Vec<usize>,
    indexes: Vec<Index>,
    pub(super) is_strict: bool,
    pub(super) locator: RowLocator,
    pub(super) kind: TableKind,
    /// What finds its rows by words.
    pub(super) fts_index: Option<FtsIndex>,
}

/// What a table is to SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableKind {
    Ordinary,
    View,
    Virtual,
}

/// By what a row can be found again without a search, and in which order all rows can be walked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowLocator {
    /// The number that SQLite gives each row, under a name that is free: quoted.
    Rowid(String),
    /// A table WITHOUT ROWID lies in the order of its primary key.
    PrimaryKey(Vec<usize>),
    /// A view has none.
    None,
}

#[derive(Debug, Clone)]
pub(super) struct ColumnDef {
    pub(super) name: String,
    /// The declared type in capitals; may be blank.
    pub(super) declared_type: String,
    pub(super) affinity: Affinity,
    pub(super) is_not_null: bool,
    /// Whether it is another name for the rowid, and so can hold integers only.
    pub(super) is_rowid_alias: bool,
    pub(super) has_default: bool,
    /// Whether SQLite computes it from others.
    pub(super) is_generated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Affinity {
    Integer,
    Real,
    Numeric,
    Text,
    Blob,
}

impl Affinity {
    /// Whether texts that look like numbers become numbers, and zeros lose their sign.
    pub(super) fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Real | Self::Numeric)
    }
}

#[derive(Debug, Clone)]
struct Index {
    is_unique: bool,
    is_partial: bool,
    is_primary: bool,
    /// `None` for an expression.
    columns: Vec<Option<usize>>,
    collations: Vec<String>,
}

/// Everything there is, and what a person should know about what is left out.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) tables: Vec<Table>,
    pub(super) notes: Vec<String>,
    pub(super) left_out: Vec<SkippedTable>,
    pub(super) is_utf16: bool,
    pub(super) is_wal: bool,
    /// Whether a table or a trigger may take rows away to make room for others: `ON CONFLICT REPLACE`.
    pub(super) may_replace: bool,
    /// What virtual tables keep their own data in, in small letters.
    shadow_tables: HashSet<String>,
    pub(super) foreign_keys: ForeignKeyGraph,
}

/// Which table refers to which by a foreign key, in small letters.
#[derive(Debug, Clone)]
pub(super) struct ForeignKeyGraph(Vec<(String, String)>);

const TABLES_MAX: usize = 1000;

/// `main."name"`, safe to paste.
pub(super) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn read(connection: &Connection) -> Result<Schema> {
    let encoding: String = connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let mut schema = Schema {
        tables: Vec::new(),
        notes: Vec::new(),
        left_out: Vec::new(),
        is_utf16: encoding != "UTF-8",
        is_wal: journal.eq_ignore_ascii_case("wal"),
        may_replace: has_replace_clause(connection)?,
        shadow_tables: HashSet::new(),
        foreign_keys: read_foreign_keys(connection)?,
    };
    let all = list(connection)?;
    for listed in &all {
        if schema.tables.len() == TABLES_MAX {
            schema.notes.push(format!("only the first {TABLES_MAX} tables are read"));
            break;
        }
        match listed.kind.as_str() {
            "table" | "view" => match read_table(connection, listed, TableKind::from_entry(listed)) {
                Ok(mut table) => {
                    table.fts_index = fts::find_index(connection, &all, &table)?;
                    schema.tables.push(table);
                }
                Err(error) if is_table_error(&error) => {
                    schema.left_out.push(skipped_table(&listed.name, UNREADABLE));
                }
                Err(error) => return Err(error),
            },
            "virtual" => read_virtual_table(connection, listed, &mut schema)?,
            // What a virtual table keeps its own data in.
            _ => {
                schema.shadow_tables.insert(listed.name.to_ascii_lowercase());
            }
        }
    }
    Ok(schema)
}

/// A table of words that keeps its texts itself can be read like another; all else virtual is left out.
fn read_virtual_table(connection: &Connection, listed: &SchemaEntry, schema: &mut Schema) -> Result<()> {
    let why = match fts::FtsDeclaration::parse(&listed.sql) {
        Some(made) if made.content == fts::FtsContent::Internal => {
            match read_table(connection, listed, TableKind::Virtual) {
                Ok(mut table) => {
                    table.fts_index = Some(made.self_index(&table));
                    schema.tables.push(table);
                    return Ok(());
                }
                Err(error) if is_table_error(&error) => UNREADABLE.to_owned(),
                Err(error) => return Err(error),
            }
        }
        Some(fts::FtsDeclaration { content: fts::FtsContent::External(table), .. }) => {
            format!("it is the index of words of `{table}`")
        }
        Some(_) | None => {
            format!("it is a virtual table{}; copy what it holds into a table", listed.module_suffix())
        }
    };
    schema.left_out.push(skipped_table(&listed.name, why));
    Ok(())
}

/// Who refers to whom.
fn read_foreign_keys(connection: &Connection) -> Result<ForeignKeyGraph> {
    let mut statement = connection.prepare(
        "SELECT DISTINCT s.name, f.\"table\" FROM main.sqlite_schema AS s, \
         pragma_foreign_key_list(s.name, 'main') AS f WHERE s.type = 'table'",
    )?;
    let lower = |row: &Row<'_>, at| row.get::<_, String>(at).map(|name| name.to_ascii_lowercase());
    let pairs = statement.query_map([], |row| Ok((lower(row, 0)?, lower(row, 1)?)))?;
    // A table whose name is not text is left out elsewhere.
    Ok(ForeignKeyGraph(pairs.filter_map(Result::ok).collect()))
}

/// What cannot be read word by word may say anything.
fn has_replace_clause(connection: &Connection) -> Result<bool> {
    let mut statement =
        connection.prepare("SELECT sql FROM main.sqlite_schema WHERE sql LIKE '%replace%'")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let may = row.get::<_, String>(0).map_or(true, |sql| {
            lexer::tokenize(&sql).map_or(true, |tokens| direct_params::may_replace(&sql, &tokens))
        });
        if may {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Schema {
    pub(super) fn shadow_tables(&self) -> HashSet<String> {
        self.shadow_tables.clone()
    }

    /// The tables that change when rows of one do, in small letters: those that refer to it may be changed with
    /// it, and what a trigger puts into an index of words is kept in tables of that index.
    pub(super) fn affected_tables(&self, table: &str) -> HashSet<String> {
        let mut reach = HashSet::from([table.to_ascii_lowercase()]);
        self.foreign_keys.add_referencing_tables(&mut reach);
        reach.extend(self.shadow_tables.iter().cloned());
        reach
    }
}

impl ForeignKeyGraph {
    /// Adds all that refer to one of these tables, and all that refer to those.
    pub(super) fn add_referencing_tables(&self, reach: &mut HashSet<String>) {
        loop {
            let more: Vec<&String> = self
                .0
                .iter()
                .filter(|(child, parent)| reach.contains(parent) && !reach.contains(child))
                .map(|(child, _)| child)
                .collect();
            if more.is_empty() {
                break;
            }
            reach.extend(more.into_iter().cloned());
        }
    }
}

impl TableKind {
    fn from_entry(listed: &SchemaEntry) -> Self {
        if listed.kind == "view" { Self::View } else { Self::Ordinary }
    }
}

pub(super) const UNREADABLE: &str = "it refers to something that is gone or not allowed";

pub(super) fn skipped_table(table: &str, why: impl Into<String>) -> SkippedTable {
    SkippedTable { table: table.to_owned(), reason: why.into() }
}

/// Whether a table by itself is wrong: a view of a table that is gone, a name that is not UTF-8.
pub(super) fn is_table_error(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            rusqlite::ErrorCode::Unknown | rusqlite::ErrorCode::AuthorizationForStatementDenied
        ),
        None => true,
    }
}

pub(super) struct SchemaEntry {
    pub(super) name: String,
    pub(super) kind: String,
    is_without_rowid: bool,
    is_strict: bool,
    /// How it was made.
    pub(super) sql: String,
}

impl SchemaEntry {
    /// What a virtual table is made by: ` (fts5)`.
    fn module_suffix(&self) -> String {
        let words: Vec<&str> = self.sql.split(|c: char| c.is_whitespace() || c == '(').collect();
        let using = words.iter().position(|word| word.eq_ignore_ascii_case("using"));
        let name = using.and_then(|at| words[at + 1..].iter().find(|word| !word.is_empty()));
        name.map_or_else(String::new, |name| format!(" ({})", name.to_ascii_lowercase()))
    }
}

/// In the order in which they were made.
fn list(connection: &Connection) -> Result<Vec<SchemaEntry>> {
    let mut statement = connection.prepare(
        "SELECT l.name, l.type, l.wr, l.strict, s.sql FROM pragma_table_list AS l \
         JOIN main.sqlite_schema AS s ON s.name = l.name AND s.type IN ('table', 'view') \
         WHERE l.schema = 'main' ORDER BY s.rowid",
    )?;
    let listed = statement.query_map([], |row| {
        Ok(SchemaEntry {
            name: row.get(0)?,
            kind: row.get(1)?,
            is_without_rowid: row.get(2)?,
            is_strict: row.get(3)?,
            sql: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
        })
    })?;
    let is_own = |listed: &Result<SchemaEntry>| {
        listed.as_ref().is_ok_and(|listed| {
            listed.name.to_ascii_lowercase().starts_with("sqlite_") || idempotency::is_own_table(&listed.name)
        })
    };
    listed.filter(|listed| !is_own(listed)).collect()
}

fn read_table(connection: &Connection, listed: &SchemaEntry, class: TableKind) -> Result<Table> {
    let (mut columns, primary) = read_columns(connection, listed)?;
    let indexes =
        if class == TableKind::Ordinary { read_indexes(connection, &listed.name)? } else { Vec::new() };
    // `INTEGER PRIMARY KEY` is the rowid; with `DESC` it is not, and then there is an index for it.
    if let [only] = primary[..]
        && columns[only].declared_type == "INTEGER"
        && !listed.is_without_rowid
        && !indexes.iter().any(|index| index.is_primary)
    {
        columns[only].is_rowid_alias = true;
    }
    for at in &primary {
        columns[*at].is_not_null |=
            columns[*at].is_rowid_alias || listed.is_without_rowid || listed.is_strict;
    }
    let address = match class {
        TableKind::View => RowLocator::None,
        TableKind::Ordinary if listed.is_without_rowid => RowLocator::PrimaryKey(primary.clone()),
        TableKind::Ordinary | TableKind::Virtual => {
            rowid_name(&columns).map_or(RowLocator::None, RowLocator::Rowid)
        }
    };
    let name = listed.name.clone();
    Ok(Table {
        name,
        columns,
        primary_key: primary,
        indexes,
        is_strict: listed.is_strict,
        locator: address,
        kind: class,
        fts_index: None,
    })
}

/// A name for the rowid that no column has taken.
fn rowid_name(columns: &[ColumnDef]) -> Option<String> {
    if let Some(column) = columns.iter().find(|column| column.is_rowid_alias) {
        return Some(quote_identifier(&column.name));
    }
    let free = |name: &&str| !columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    ["rowid", "_rowid_", "oid"].iter().find(|name| free(name)).map(|name| quote_identifier(name))
}

fn read_columns(connection: &Connection, listed: &SchemaEntry) -> Result<(Vec<ColumnDef>, Vec<usize>)> {
    let mut statement = connection.prepare(
        "SELECT name, type, \"notnull\", pk, dflt_value IS NOT NULL, hidden IN (2, 3) \
         FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1",
    )?;
    let mut primary = Vec::new();
    let read = |row: &Row<'_>| {
        let declared: String = row.get::<_, Option<String>>(1)?.unwrap_or_default().to_ascii_uppercase();
        let column = ColumnDef {
            name: row.get(0)?,
            affinity: column_affinity(&declared, listed.is_strict),
            declared_type: declared,
            is_not_null: row.get(2)?,
            is_rowid_alias: false,
            has_default: row.get(4)?,
            is_generated: row.get(5)?,
        };
        Ok((column, row.get::<_, i64>(3)?))
    };
    let mut columns = Vec::new();
    for (at, read) in statement.query_map([&listed.name], read)?.enumerate() {
        let (column, place) = read?;
        if place > 0 {
            primary.push((place, at));
        }
        columns.push(column);
    }
    primary.sort_unstable();
    Ok((columns, primary.into_iter().map(|(_, at)| at).collect()))
}

/// The rules of "Determination Of Column Affinity", in their order.
fn column_affinity(declared: &str, is_strict: bool) -> Affinity {
    let has = |names: &[&str]| names.iter().any(|name| declared.contains(name));
    if is_strict && declared == "ANY" {
        Affinity::Blob
    } else if has(&["INT"]) {
        Affinity::Integer
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        Affinity::Text
    } else if has(&["BLOB"]) || declared.is_empty() {
        Affinity::Blob
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        Affinity::Real
    } else {
        Affinity::Numeric
    }
}

fn read_indexes(connection: &Connection, table: &str) -> Result<Vec<Index>> {
    let mut statement = connection.prepare(
        "SELECT l.name, l.\"unique\", l.partial, l.origin = 'pk', x.cid, x.coll \
         FROM pragma_index_list(?1, 'main') AS l, pragma_index_xinfo(l.name, 'main') AS x \
         WHERE x.key ORDER BY l.seq, x.seqno",
    )?;
    let mut rows = statement.query([table])?;
    let mut indexes: Vec<(String, Index)> = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if indexes.last().is_none_or(|(last, _)| *last != name) {
            let index = Index {
                is_unique: row.get(1)?,
                is_partial: row.get(2)?,
                is_primary: row.get(3)?,
                columns: Vec::new(),
                collations: Vec::new(),
            };
            indexes.push((name, index));
        }
        if let Some((_, index)) = indexes.last_mut() {
            index.columns.push(usize::try_from(row.get::<_, i64>(4)?).ok());
            index.collations.push(row.get::<_, Option<String>>(5)?.unwrap_or_default());
        }
    }
    Ok(indexes.into_iter().map(|(_, index)| index).collect())
}

impl Table {
    pub(super) fn sql_name(&self) -> String {
        format!("main.{}", quote_identifier(&self.name))
    }

    /// The keys that are declared, the best first: the primary key, then columns that are required and unique,
    /// few and of a simple type rather than others.
    pub(super) fn declared_keys(&self) -> Vec<Vec<usize>> {
        let mut unique: Vec<Vec<usize>> =
            self.indexes.iter().filter_map(|index| self.unique_key(index)).collect();
        unique.sort_by_key(|key| (key.len(), !key.iter().all(|at| self.is_simple(*at))));
        let mut keys = vec![self.primary_key.clone()];
        keys.append(&mut unique);
        keys.retain(|key| !key.is_empty());
        keys
    }

    /// Whether these columns, in any order, are declared to tell rows apart.
    pub(super) fn is_declared_key(&self, key: &[usize]) -> bool {
        let same = |other: &[usize]| other.len() == key.len() && other.iter().all(|at| key.contains(at));
        !key.is_empty()
            && (same(&self.primary_key)
                || self.indexes.iter().filter_map(|index| self.unique_key(index)).any(|unique| same(&unique)))
    }

    fn unique_key(&self, index: &Index) -> Option<Vec<usize>> {
        let columns: Vec<usize> = index.columns.iter().copied().collect::<Option<_>>()?;
        let required = columns.iter().all(|at| self.columns.get(*at).is_some_and(|c| c.is_not_null));
        (index.is_unique && !index.is_partial && required).then_some(columns)
    }

    fn is_simple(&self, at: usize) -> bool {
        matches!(self.columns[at].affinity, Affinity::Integer | Affinity::Text)
    }

    /// The collation under which a column can be found by an index, where it is not `BINARY`.
    pub(super) fn index_collation(&self, at: usize) -> Option<&'static str> {
        let firsts = self.indexes.iter().filter(|index| index.columns.first() == Some(&Some(at)));
        let names: Vec<&str> =
            firsts.filter_map(|index| index.collations.first()).map(String::as_str).collect();
        if names.contains(&"BINARY") {
            return None;
        }
        ["NOCASE", "RTRIM"]
            .into_iter()
            .find(|known| names.iter().any(|name| name.eq_ignore_ascii_case(known)))
    }
}
