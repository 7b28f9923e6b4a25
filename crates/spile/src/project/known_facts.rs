//! What databases looked like when they were last read, in the cache of the user: so that a server starts while a database is down, with
//! the tools that it had.
//!
//! Names, types and comments of tables, and what statements take and return. No rows, no passwords.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use contract::DataType;
use contract::manifest::{Operation, SourceSettings};
use contract::source::{
    ColumnFacts, ForeignKey, SearchFacts, SourceFacts, StatementFacts, TableFacts, WordIndex, WordMatching,
    WriteCapabilities, WriteSupport,
};
use serde_json::{Map, Value, json};
use spile_core::text::hex;
use state::keyring::digest_parts;

use super::memory;

/// Files of another version are not read.
const VERSION: u64 = 1;
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Remembers the tables of a database; nothing for other sources.
pub(super) fn store(location: &str, settings: &SourceSettings, facts: &SourceFacts) {
    write_file(file(location, settings, ""), &write_facts(facts));
}

fn write_facts(facts: &SourceFacts) -> Value {
    let tables: Vec<Value> = facts.tables.iter().map(write_table).collect();
    json!({ "version": VERSION, "tables": tables, "notes": facts.notes })
}

fn read_facts(value: &Value) -> Option<SourceFacts> {
    let tables = list(value, "tables", read_table)?;
    Some(SourceFacts { tables, notes: texts(value, "notes"), ..SourceFacts::default() })
}

/// The same for the lock file, with what statements take and return. Without what changes with the rows.
pub(super) fn to_lock(facts: &SourceFacts, statements: &[(&str, StatementFacts)]) -> Value {
    let mut facts = facts.clone();
    facts.notes.clear();
    facts.tables.iter_mut().for_each(|table| table.row_count = None);
    let mut value = write_facts(&facts);
    let statements = statements.iter().map(|(sql, facts)| ((*sql).to_owned(), write_statement(facts)));
    value["statements"] = Value::Object(statements.collect());
    value
}

pub(super) fn from_lock(value: &Value) -> Option<SourceFacts> {
    read_facts(value).filter(|_| value["version"] == VERSION)
}

pub(super) fn statement_from_lock(value: &Value, sql: &str) -> Option<StatementFacts> {
    read_statement(value.get("statements")?.get(sql)?)
}

pub(super) fn load(location: &str, settings: &SourceSettings) -> Option<SourceFacts> {
    read_facts(&read_file(file(location, settings, ""))?)
}

/// Remembers what a statement takes and returns.
pub(super) fn store_statement(location: &str, settings: &SourceSettings, sql: &str, facts: &StatementFacts) {
    write_file(file(location, settings, sql), &write_statement(facts));
}

fn write_statement(facts: &StatementFacts) -> Value {
    json!({
        "version": VERSION,
        "parameters": facts.parameters,
        "columns": facts.columns.iter().map(write_column).collect::<Vec<_>>(),
        "writes": facts.writes.map(write_capabilities),
    })
}

pub(super) fn load_statement(location: &str, settings: &SourceSettings, sql: &str) -> Option<StatementFacts> {
    read_statement(&read_file(file(location, settings, sql))?)
}

fn read_statement(value: &Value) -> Option<StatementFacts> {
    Some(StatementFacts {
        parameters: texts(value, "parameters"),
        columns: list(value, "columns", read_column)?,
        writes: value.get("writes").and_then(Value::as_array).map(|names| read_capabilities(names)),
        ..StatementFacts::default()
    })
}

/// The file of a database, or of a statement on it. `location` has no password.
fn file(location: &str, settings: &SourceSettings, sql: &str) -> Option<PathBuf> {
    let SourceSettings::Database(settings) = settings else { return None };
    let has_callers = settings.identity.as_ref().map(|identity| identity.role_from.is_some());
    let digest = file_digest(location, &settings.schemas, has_callers, sql);
    Some(memory::cache_folder("databases").join(format!("{}.json", hex(&digest[..16]))))
}

fn file_digest(location: &str, schemas: &[String], has_callers: Option<bool>, sql: &str) -> [u8; 32] {
    let callers: &[u8] = match has_callers {
        None => b"none",
        Some(false) => b"settings",
        Some(true) => b"roles",
    };
    let mut parts = vec![location.as_bytes(), sql.as_bytes(), callers];
    parts.extend(schemas.iter().map(String::as_bytes));
    digest_parts(&parts)
}

/// Replaces the file if its content is another one. That it cannot be written matters only to a later start.
fn write_file(file: Option<PathBuf>, value: &Value) {
    let Some(file) = file else { return };
    let text = value.to_string();
    if fs::read_to_string(&file).is_ok_and(|known| known == text) {
        return;
    }
    let Some(folder) = file.parent() else { return };
    let written = fs::create_dir_all(folder).and_then(|()| {
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        new.persist(&file).map_err(|error| error.error)
    });
    if let Err(error) = written {
        tracing::debug!(%error, "cannot remember what a database looks like");
    }
}

fn read_file(file: Option<PathBuf>) -> Option<Value> {
    let file = file?;
    if fs::metadata(&file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (value["version"] == VERSION).then_some(value)
}

fn write_table(table: &TableFacts) -> Value {
    json!({
        "name": table.name,
        "columns": table.columns.iter().map(write_column).collect::<Vec<_>>(),
        "key": table.key,
        "rows": table.row_count,
        "read_only": table.read_only_reason(),
        "writes": match table.write_support {
            WriteSupport::ReadOnly { .. } => Value::Null,
            WriteSupport::Supported(capabilities) => json!(write_capabilities(capabilities)),
        },
        "refused": table.refused_operations.iter().map(|(operation, reason)| json!([operation.as_str(), reason])).collect::<Vec<_>>(),
        "search": match &table.search {
            SearchFacts::Scan => Value::Null,
            SearchFacts::Indexed(columns) => json!(columns),
            SearchFacts::Words(indexes) => json!({ "words": indexes.iter().map(write_word_index).collect::<Vec<_>>() }),
        },
        "foreign_keys": table.foreign_keys.iter().map(|key| {
            json!({ "columns": key.columns, "table": key.table, "target_columns": key.target_columns })
        }).collect::<Vec<_>>(),
        "description": table.description,
    })
}

fn read_table(value: &Value) -> Option<TableFacts> {
    let columns = list(value, "columns", read_column)?;
    let width = columns.len();
    let refused = |one: &Value| Some((Operation::parse(one[0].as_str()?)?, one[1].as_str()?.to_owned()));
    let foreign_key = |key: &Value| {
        Some(ForeignKey {
            columns: indexes(&key["columns"], width)?,
            table: key["table"].as_str()?.to_owned(),
            target_columns: texts(key, "target_columns"),
        })
    };
    Some(TableFacts {
        key: indexes(&value["key"], width)?,
        key_is_declared: true,
        row_count: value["rows"].as_u64(),
        write_support: match (&value["writes"], value["read_only"].as_str()) {
            (Value::Array(names), _) => WriteSupport::Supported(read_capabilities(names)),
            (_, reason) => WriteSupport::read_only(reason.unwrap_or("it could not be written")),
        },
        refused_operations: list(value, "refused", refused)?,
        search: match &value["search"] {
            Value::Null => SearchFacts::Scan,
            words @ Value::Object(_) => {
                SearchFacts::Words(list(words, "words", |one| read_word_index(one, width))?)
            }
            columns => SearchFacts::Indexed(indexes(columns, width)?),
        },
        foreign_keys: list(value, "foreign_keys", foreign_key)?,
        description: text(value, "description"),
        ..TableFacts::new(value["name"].as_str()?, columns)
    })
}

fn write_word_index(index: &WordIndex) -> Value {
    let dictionary = match &index.matching {
        WordMatching::Beginnings => None,
        WordMatching::Dictionary(name) => Some(name),
    };
    json!({ "columns": index.columns, "dictionary": dictionary })
}

fn read_word_index(value: &Value, width: usize) -> Option<WordIndex> {
    let matching = text(value, "dictionary").map_or(WordMatching::Beginnings, WordMatching::Dictionary);
    Some(WordIndex { columns: indexes(&value["columns"], width)?, matching })
}

fn write_column(column: &ColumnFacts) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(column.name));
    out.insert("type".into(), json!(column.data_type.as_str()));
    for (name, is_set) in
        [("nullable", column.nullable), ("mixed", column.mixed), ("default", column.has_default)]
    {
        if is_set {
            out.insert(name.into(), json!(true));
        }
    }
    if !column.distinct_values.is_empty() {
        out.insert("values".into(), json!(column.distinct_values));
    }
    for (name, value) in [("read_only", &column.read_only_reason), ("description", &column.description)] {
        if let Some(text) = value {
            out.insert(name.into(), json!(text));
        }
    }
    Value::Object(out)
}

fn read_column(value: &Value) -> Option<ColumnFacts> {
    let is_set = |name: &str| value.get(name) == Some(&Value::Bool(true));
    Some(ColumnFacts {
        nullable: is_set("nullable"),
        mixed: is_set("mixed"),
        has_default: is_set("default"),
        distinct_values: texts(value, "values"),
        read_only_reason: text(value, "read_only"),
        description: text(value, "description"),
        ..ColumnFacts::new(value["name"].as_str()?, DataType::parse(value["type"].as_str()?)?)
    })
}

const CAPABILITIES: [(&str, WriteCapabilities); 4] = [
    ("dry_run", WriteCapabilities::DRY_RUN),
    ("row_versions", WriteCapabilities::ROW_VERSIONS),
    ("idempotency", WriteCapabilities::IDEMPOTENCY),
    ("rollback", WriteCapabilities::ROLLBACK),
];

fn write_capabilities(capabilities: WriteCapabilities) -> Vec<&'static str> {
    CAPABILITIES.iter().filter(|(_, one)| capabilities.has(*one)).map(|(name, _)| *name).collect()
}

fn read_capabilities(names: &[Value]) -> WriteCapabilities {
    let is_named = |(name, _): &&(&str, WriteCapabilities)| names.iter().any(|one| one == name);
    CAPABILITIES.iter().filter(is_named).fold(WriteCapabilities::NONE, |all, (_, one)| all.with(*one))
}

fn list<T>(value: &Value, name: &str, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value[name].as_array()?.iter().map(read).collect()
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    let all = value.get(name).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Indexes of columns; `None` if one does not exist.
fn indexes(value: &Value, width: usize) -> Option<Vec<usize>> {
    let index = |one: &Value| usize::try_from(one.as_u64()?).ok().filter(|at| *at < width);
    value.as_array()?.iter().map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back_as_they_were() {
        let table = TableFacts {
            key: vec![0],
            key_is_declared: true,
            row_count: Some(7),
            write_support: WriteSupport::Supported(WriteCapabilities::CONFIRMATION),
            refused_operations: vec![(Operation::Delete, "no right".into())],
            search: SearchFacts::Indexed(vec![1]),
            foreign_keys: vec![ForeignKey {
                columns: vec![1],
                table: "other".into(),
                target_columns: vec!["x".into()],
            }],
            description: Some("Orders".into()),
            ..TableFacts::new(
                "orders",
                vec![
                    ColumnFacts { has_default: true, ..ColumnFacts::new("id", DataType::Int64) },
                    ColumnFacts {
                        nullable: true,
                        mixed: true,
                        distinct_values: vec!["a".into()],
                        read_only_reason: Some("computed".into()),
                        description: Some("State".into()),
                        ..ColumnFacts::new("state", DataType::Text)
                    },
                ],
            )
        };
        let read = read_table(&write_table(&table)).expect("a table");
        assert_eq!(format!("{read:?}"), format!("{table:?}"));
        let words = |columns, matching| WordIndex { columns, matching };
        let indexes = vec![
            words(vec![0, 1], WordMatching::Dictionary("english".into())),
            words(vec![1], WordMatching::Beginnings),
        ];
        let searched = TableFacts { search: SearchFacts::Words(indexes), ..table.clone() };
        assert_eq!(read_table(&write_table(&searched)).expect("a table").search, searched.search);
        let view = TableFacts { write_support: WriteSupport::read_only("it is a view"), ..table };
        assert_eq!(
            read_table(&write_table(&view)).expect("a table").read_only_reason(),
            Some("it is a view")
        );
    }

    #[test]
    fn a_database_has_the_same_file_in_every_build() {
        let schemas = ["public".to_owned(), "shop".to_owned()];
        let all = [
            file_digest("postgres://ada@db/shop", &schemas, None, ""),
            file_digest("postgres://ada@db/shop", &schemas[..1], None, ""),
            file_digest("postgres://ada@db/shop", &schemas[..1], None, "shop"),
            file_digest("postgres://ada@db/shop", &schemas, Some(false), ""),
            file_digest("postgres://ada@db/shop", &schemas, Some(true), ""),
        ];
        assert_eq!(hex(&all[0][..16]), "f368de63e01ff4a6ea6ea9c8bd56daba");
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "the file of case {at}");
        }
    }

    #[test]
    fn a_file_that_somebody_damaged_is_not_used() {
        let table = write_table(&TableFacts::new("t", vec![ColumnFacts::new("id", DataType::Text)]));
        for (member, value) in [("key", json!([1])), ("columns", json!([{"name": "id"}])), ("name", json!(1))]
        {
            let mut damaged = table.clone();
            damaged[member] = value;
            assert!(read_table(&damaged).is_none(), "{damaged}");
        }
    }
}
