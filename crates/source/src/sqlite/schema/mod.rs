//! The tables and views that a database declares.
//!
//! All names in our SQL come from here, quoted; none comes from a caller.

pub(crate) mod foreign_keys;
pub(crate) mod fts;
pub(crate) mod profile;
mod view_expansion;

use std::collections::HashSet;

use contract::source::SkippedTable;
use rusqlite::{Connection, Result, Row};

use crate::sqlite::lexer;
use crate::sqlite::reserved_names;
use foreign_keys::DeclaredReference;
use fts::FtsIndex;

/// One table or view, as declared.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnDef>,
    /// The columns of the primary key, in its order.
    primary_key: Vec<usize>,
    indexes: Vec<Index>,
    pub(crate) is_strict: bool,
    pub(crate) locator: RowLocator,
    pub(crate) kind: TableKind,
    /// The full-text index of its rows.
    pub(crate) fts_index: Option<FtsIndex>,
    references: Vec<DeclaredReference>,
}

/// What kind of table it is to SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableKind {
    Ordinary,
    View,
    Virtual,
}

/// How a row can be found again without a search, and in which order all rows can be scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowLocator {
    /// The rowid, under a name that no column has: quoted.
    Rowid(String),
    /// A table WITHOUT ROWID is stored in the order of its primary key.
    PrimaryKey(Vec<usize>),
    /// A view has no locator.
    None,
}

#[derive(Debug, Clone)]
pub(crate) struct ColumnDef {
    pub(crate) name: String,
    /// The declared type in upper case; may be empty.
    pub(crate) declared_type: String,
    pub(crate) affinity: Affinity,
    pub(crate) is_not_null: bool,
    /// Whether it is an alias of the rowid, and so holds only integers.
    pub(crate) is_rowid_alias: bool,
    pub(crate) has_default: bool,
    /// Whether SQLite computes it from other columns.
    pub(crate) is_generated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affinity {
    Integer,
    Real,
    Numeric,
    Text,
    Blob,
}

impl Affinity {
    /// Whether texts that look like numbers become numbers, and zero loses its sign.
    pub(crate) fn is_numeric(self) -> bool {
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

/// All tables, and notes for the owner about those that are left out.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
    pub(crate) left_out: Vec<SkippedTable>,
    pub(crate) is_utf16: bool,
    pub(crate) is_wal: bool,
    /// Whether a table or trigger may delete rows to make room for others: `ON CONFLICT REPLACE`.
    pub(crate) may_replace: bool,
    /// Where virtual tables store their data, in lower case.
    shadow_tables: HashSet<String>,
    pub(crate) foreign_keys: ForeignKeyGraph,
}

/// Pairs of a referencing and a referenced table, in lower case.
#[derive(Debug, Clone)]
pub(crate) struct ForeignKeyGraph(Vec<(String, String)>);

const TABLES_MAX: usize = 1000;

/// A quoted identifier, safe to insert into SQL.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn read(connection: &Connection) -> Result<Schema> {
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
    let (all, oversized) = list(connection)?;
    for entry in &all {
        if schema.tables.len() == TABLES_MAX {
            schema.notes.push(format!("only the first {TABLES_MAX} tables are served"));
            break;
        }
        if oversized.contains(&entry.name.to_ascii_lowercase()) {
            schema.left_out.push(skipped_table(&entry.name, view_expansion::TOO_LARGE));
            continue;
        }
        match entry.kind.as_str() {
            "table" | "view" => match read_table(connection, entry, TableKind::from_entry(entry)) {
                Ok(mut table) => {
                    table.fts_index = fts::find_index(connection, &all, &table)?;
                    schema.tables.push(table);
                }
                Err(error) if is_table_error(&error) => {
                    schema.left_out.push(skipped_table(&entry.name, unreadable_reason(&error)));
                }
                Err(error) => return Err(error),
            },
            "virtual" => read_virtual_table(connection, entry, &mut schema)?,
            // A shadow table: a virtual table stores its data in it.
            _ => {
                schema.shadow_tables.insert(entry.name.to_ascii_lowercase());
            }
        }
    }
    Ok(schema)
}

/// An FTS5 table that stores its own texts can be read like any other; other virtual tables are left out.
fn read_virtual_table(connection: &Connection, entry: &SchemaEntry, schema: &mut Schema) -> Result<()> {
    let reason = match fts::FtsDeclaration::parse(&entry.sql) {
        Some(declaration) if declaration.content == fts::FtsContent::Internal => {
            match read_table(connection, entry, TableKind::Virtual) {
                Ok(mut table) => {
                    table.fts_index = Some(declaration.self_index(&table));
                    schema.tables.push(table);
                    return Ok(());
                }
                Err(error) if is_table_error(&error) => unreadable_reason(&error),
                Err(error) => return Err(error),
            }
        }
        Some(fts::FtsDeclaration { content: fts::FtsContent::External(table), .. }) => {
            format!("it is the full-text index of `{table}`")
        }
        Some(_) | None => {
            format!("it is a virtual table{}; copy its rows into a table", entry.module_suffix())
        }
    };
    schema.left_out.push(skipped_table(&entry.name, reason));
    Ok(())
}

fn read_foreign_keys(connection: &Connection) -> Result<ForeignKeyGraph> {
    let mut statement = connection.prepare(
        "SELECT DISTINCT s.name, f.\"table\" FROM main.sqlite_schema AS s, \
         pragma_foreign_key_list(s.name, 'main') AS f WHERE s.type = 'table'",
    )?;
    let lower = |row: &Row<'_>, column_index| {
        row.get::<_, String>(column_index).map(|name| name.to_ascii_lowercase())
    };
    let pairs = statement.query_map([], |row| Ok((lower(row, 0)?, lower(row, 1)?)))?;
    // A table whose name is not text is left out elsewhere.
    Ok(ForeignKeyGraph(pairs.filter_map(Result::ok).collect()))
}

/// A declaration that cannot be tokenized may contain anything.
fn has_replace_clause(connection: &Connection) -> Result<bool> {
    let mut statement =
        connection.prepare("SELECT sql FROM main.sqlite_schema WHERE sql LIKE '%replace%'")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let may = row.get::<_, String>(0).map_or(true, |sql| {
            lexer::tokenize(&sql).map_or(true, |tokens| lexer::may_replace(&sql, &tokens))
        });
        if may {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Schema {
    pub(crate) fn shadow_tables(&self) -> HashSet<String> {
        self.shadow_tables.clone()
    }

    /// The tables that may change when rows of one do, in lower case: those that reference it, and the shadow
    /// tables of full-text indexes that triggers update.
    pub(crate) fn affected_tables(&self, table: &str) -> HashSet<String> {
        let mut tables = HashSet::from([table.to_ascii_lowercase()]);
        self.foreign_keys.add_referencing_tables(&mut tables);
        tables.extend(self.shadow_tables.iter().cloned());
        tables
    }
}

impl ForeignKeyGraph {
    /// Adds all tables that reference one of these, directly or indirectly.
    pub(crate) fn add_referencing_tables(&self, tables: &mut HashSet<String>) {
        loop {
            let more: Vec<&String> = self
                .0
                .iter()
                .filter(|(child, parent)| tables.contains(parent) && !tables.contains(child))
                .map(|(child, _)| child)
                .collect();
            if more.is_empty() {
                break;
            }
            tables.extend(more.into_iter().cloned());
        }
    }
}

impl TableKind {
    fn from_entry(entry: &SchemaEntry) -> Self {
        if entry.kind == "view" { Self::View } else { Self::Ordinary }
    }
}

/// Why a generated column cannot be written.
pub(crate) const GENERATED: &str = "it is computed by the database";
pub(crate) const UNREADABLE: &str = "it refers to something that does not exist or is not allowed";

/// Why a table with such an error is left out. For the owner of the data, who may read what SQLite says.
pub(crate) fn unreadable_reason(error: &rusqlite::Error) -> String {
    let message = match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.as_str(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.as_str(),
        _ => return UNREADABLE.to_owned(),
    };
    let is_missing =
        ["no such", "not authorized", "prohibited", "unsafe use"].iter().any(|part| message.contains(part));
    if is_missing { UNREADABLE.to_owned() } else { format!("SQLite cannot run its query: {message}") }
}

pub(crate) fn skipped_table(table: &str, reason: impl Into<String>) -> SkippedTable {
    SkippedTable { table: table.to_owned(), reason: reason.into() }
}

/// Whether only this table is broken: a view of a table that no longer exists, a name that is not UTF-8.
pub(crate) fn is_table_error(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            rusqlite::ErrorCode::Unknown | rusqlite::ErrorCode::AuthorizationForStatementDenied
        ),
        None => true,
    }
}

pub(crate) struct SchemaEntry {
    pub(crate) name: String,
    pub(crate) kind: String,
    is_without_rowid: bool,
    is_strict: bool,
    /// The CREATE statement.
    pub(crate) sql: String,
}

impl SchemaEntry {
    /// What the declaration itself says.
    fn from_sql(name: String, kind: String, sql: String) -> Self {
        let tokens = lexer::tokenize(&sql).unwrap_or_default();
        let tokens = lexer::TokenSlice { sql: &sql, tokens: &tokens };
        let is_virtual = tokens.is_word(0, "CREATE") && tokens.is_word(1, "VIRTUAL");
        // Table options follow the parenthesis of the columns.
        let columns = tokens.find_outside_parens(0, |index| tokens.is_symbol(index, "("));
        let options = tokens.part(tokens.skip(columns), tokens.tokens.len());
        let has = |word: &str| (0..options.tokens.len()).any(|index| options.is_word(index, word));
        Self {
            is_without_rowid: has("ROWID"),
            is_strict: has("STRICT"),
            kind: if is_virtual { "virtual".into() } else { kind },
            name,
            sql: sql.clone(),
        }
    }

    /// The module of a virtual table: ` (fts5)`.
    fn module_suffix(&self) -> String {
        let words: Vec<&str> = self.sql.split(|c: char| c.is_whitespace() || c == '(').collect();
        let using = words.iter().position(|word| word.eq_ignore_ascii_case("using"));
        let name =
            using.and_then(|column_index| words[column_index + 1..].iter().find(|word| !word.is_empty()));
        name.map_or_else(String::new, |name| format!(" ({})", name.to_ascii_lowercase()))
    }
}

/// All tables and views in the order in which they were created; and the names, in lower case, of views that are too
/// large to be expanded.
fn list(connection: &Connection) -> Result<(Vec<SchemaEntry>, HashSet<String>)> {
    let mut statement = connection.prepare(
        "SELECT name, type, sql FROM main.sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid",
    )?;
    let entries = statement.query_map([], |row| {
        let sql = row.get::<_, Option<String>>(2)?.unwrap_or_default();
        Ok(SchemaEntry::from_sql(row.get(0)?, row.get(1)?, sql))
    })?;
    let declared: Vec<SchemaEntry> = entries.collect::<Result<_>>()?;
    let oversized = view_expansion::oversized_views(&declared);
    // `table_list` prepares every view, so it must not be used where one is too large.
    let entries =
        if oversized.is_empty() { list_with_pragma(connection)? } else { mark_shadow_tables(declared) };
    let is_own = |entry: &SchemaEntry| {
        entry.name.to_ascii_lowercase().starts_with("sqlite_") || reserved_names::is_own_table(&entry.name)
    };
    Ok((entries.into_iter().filter(|entry| !is_own(entry)).collect(), oversized))
}

fn list_with_pragma(connection: &Connection) -> Result<Vec<SchemaEntry>> {
    let mut statement = connection.prepare(
        "SELECT l.name, l.type, l.wr, l.strict, s.sql FROM pragma_table_list AS l \
         JOIN main.sqlite_schema AS s ON s.name = l.name AND s.type IN ('table', 'view') \
         WHERE l.schema = 'main' ORDER BY s.rowid",
    )?;
    let entries = statement.query_map([], |row| {
        Ok(SchemaEntry {
            name: row.get(0)?,
            kind: row.get(1)?,
            is_without_rowid: row.get(2)?,
            is_strict: row.get(3)?,
            sql: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
        })
    })?;
    entries.collect()
}

/// What FTS5, FTS3 and R-tree tables append to their names for the tables in which they store their data.
const SHADOW_SUFFIXES: [&str; 11] = [
    "_data",
    "_idx",
    "_content",
    "_docsize",
    "_config",
    "_segments",
    "_segdir",
    "_stat",
    "_node",
    "_parent",
    "_rowid",
];

/// Finds shadow tables by their names, where `table_list` cannot be used.
fn mark_shadow_tables(mut entries: Vec<SchemaEntry>) -> Vec<SchemaEntry> {
    let is_virtual = |entry: &&SchemaEntry| entry.kind == "virtual";
    let shadows: HashSet<String> = entries
        .iter()
        .filter(is_virtual)
        .flat_map(|entry| {
            SHADOW_SUFFIXES.map(|suffix| format!("{}{suffix}", entry.name).to_ascii_lowercase())
        })
        .collect();
    for entry in entries.iter_mut().filter(|entry| entry.kind == "table") {
        if shadows.contains(&entry.name.to_ascii_lowercase()) {
            entry.kind = "shadow".into();
        }
    }
    entries
}

fn read_table(connection: &Connection, entry: &SchemaEntry, kind: TableKind) -> Result<Table> {
    let (mut columns, primary_key) = read_columns(connection, entry)?;
    let indexes =
        if kind == TableKind::Ordinary { read_indexes(connection, &entry.name)? } else { Vec::new() };
    // `INTEGER PRIMARY KEY` is the rowid. With `DESC` it is not, and then there is an index for it.
    if let [only] = primary_key[..]
        && columns[only].declared_type == "INTEGER"
        && !entry.is_without_rowid
        && !indexes.iter().any(|index| index.is_primary)
    {
        columns[only].is_rowid_alias = true;
    }
    for column_index in &primary_key {
        columns[*column_index].is_not_null |=
            columns[*column_index].is_rowid_alias || entry.is_without_rowid || entry.is_strict;
    }
    let locator = match kind {
        TableKind::View => RowLocator::None,
        TableKind::Ordinary if entry.is_without_rowid => RowLocator::PrimaryKey(primary_key.clone()),
        TableKind::Ordinary | TableKind::Virtual => {
            rowid_name(&columns).map_or(RowLocator::None, RowLocator::Rowid)
        }
    };
    let name = entry.name.clone();
    let references = match kind {
        TableKind::Ordinary => foreign_keys::read(connection, &name, &columns)?,
        TableKind::View | TableKind::Virtual => Vec::new(),
    };
    Ok(Table {
        name,
        columns,
        primary_key,
        indexes,
        is_strict: entry.is_strict,
        locator,
        kind,
        fts_index: None,
        references,
    })
}

/// A name of the rowid that no column has.
fn rowid_name(columns: &[ColumnDef]) -> Option<String> {
    if let Some(column) = columns.iter().find(|column| column.is_rowid_alias) {
        return Some(quote_identifier(&column.name));
    }
    let free = |name: &&str| !columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    ["rowid", "_rowid_", "oid"].iter().find(|name| free(name)).map(|name| quote_identifier(name))
}

fn read_columns(connection: &Connection, entry: &SchemaEntry) -> Result<(Vec<ColumnDef>, Vec<usize>)> {
    let mut statement = connection.prepare(
        "SELECT name, type, \"notnull\", pk, dflt_value IS NOT NULL, hidden IN (2, 3) \
         FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1",
    )?;
    let mut primary_key = Vec::new();
    let read = |row: &Row<'_>| {
        let declared_type: String = row.get::<_, Option<String>>(1)?.unwrap_or_default().to_ascii_uppercase();
        let column = ColumnDef {
            name: row.get(0)?,
            affinity: column_affinity(&declared_type, entry.is_strict),
            declared_type,
            is_not_null: row.get(2)?,
            is_rowid_alias: false,
            has_default: row.get(4)?,
            is_generated: row.get(5)?,
        };
        Ok((column, row.get::<_, i64>(3)?))
    };
    let mut columns = Vec::new();
    for (column_index, read) in statement.query_map([&entry.name], read)?.enumerate() {
        let (column, rank) = read?;
        if rank > 0 {
            primary_key.push((rank, column_index));
        }
        columns.push(column);
    }
    primary_key.sort_unstable();
    Ok((columns, primary_key.into_iter().map(|(_, column_index)| column_index).collect()))
}

/// The rules of "Determination Of Column Affinity", in their order.
fn column_affinity(declared_type: &str, is_strict: bool) -> Affinity {
    let has = |names: &[&str]| names.iter().any(|name| declared_type.contains(name));
    if is_strict && declared_type == "ANY" {
        Affinity::Blob
    } else if has(&["INT"]) {
        Affinity::Integer
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        Affinity::Text
    } else if has(&["BLOB"]) || declared_type.is_empty() {
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
    pub(crate) fn sql_name(&self) -> String {
        format!("main.{}", quote_identifier(&self.name))
    }

    /// The declared keys, best first: the primary key, then unique NOT NULL columns, with few columns of
    /// simple types before others.
    pub(crate) fn declared_keys(&self) -> Vec<Vec<usize>> {
        let mut unique: Vec<Vec<usize>> =
            self.indexes.iter().filter_map(|index| self.unique_key(index)).collect();
        unique.sort_by_key(|key| (key.len(), !key.iter().all(|column_index| self.is_simple(*column_index))));
        let mut keys = vec![self.primary_key.clone()];
        keys.append(&mut unique);
        keys.retain(|key| !key.is_empty());
        keys
    }

    /// Whether these columns, in any order, are declared unique.
    pub(crate) fn is_declared_key(&self, key: &[usize]) -> bool {
        let same = |other: &[usize]| {
            other.len() == key.len() && other.iter().all(|column_index| key.contains(column_index))
        };
        !key.is_empty()
            && (same(&self.primary_key)
                || self.indexes.iter().filter_map(|index| self.unique_key(index)).any(|unique| same(&unique)))
    }

    fn unique_key(&self, index: &Index) -> Option<Vec<usize>> {
        let columns: Vec<usize> = index.columns.iter().copied().collect::<Option<_>>()?;
        let required =
            columns.iter().all(|column_index| self.columns.get(*column_index).is_some_and(|c| c.is_not_null));
        (index.is_unique && !index.is_partial && required).then_some(columns)
    }

    fn is_simple(&self, column_index: usize) -> bool {
        matches!(self.columns[column_index].affinity, Affinity::Integer | Affinity::Text)
    }

    /// The collation of an index on this column, if it is not `BINARY`.
    pub(crate) fn index_collation(&self, column_index: usize) -> Option<&'static str> {
        let firsts = self.indexes.iter().filter(|index| index.columns.first() == Some(&Some(column_index)));
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
