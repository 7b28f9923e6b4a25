//! Reads the catalog of MySQL or MariaDB.

use std::collections::{HashMap, HashSet};

use contract::source::ForeignKey;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row, Value};

use super::dialect::MySqlDialect;
use super::grants::Grants;
use super::session::native_type;
use crate::column::Storage;
use crate::dialect::Dialect;
use crate::idempotency;
use crate::schema::{Collation, ColumnInfo, RoleInfo, Schema, TableInfo, TextIndexKind};

const SERVER: &str = "SELECT VERSION(), CURRENT_USER(), DATABASE()";
const TABLES: &str = "SELECT TABLE_NAME, TABLE_TYPE, CAST(TABLE_ROWS AS CHAR), TABLE_COMMENT \
    FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME";
const COLUMNS: &str = "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, \
    COLUMN_COMMENT, CHARACTER_SET_NAME, CAST(DATETIME_PRECISION AS CHAR), PRIVILEGES \
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION";
const UNIQUE: &str = "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, CAST(SUB_PART AS CHAR) \
    FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND NON_UNIQUE = 0 \
    ORDER BY TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX";
const FOREIGN_KEYS: &str = "SELECT TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME \
    FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() \
    AND REFERENCED_TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION";
/// Columns of full-text indexes of InnoDB, which has other rules than the other engines, with their collations.
const FULL_TEXT: &str = "SELECT s.TABLE_NAME, s.INDEX_NAME, s.COLUMN_NAME, c.COLLATION_NAME \
    FROM information_schema.STATISTICS s JOIN information_schema.TABLES t \
    ON t.TABLE_SCHEMA = s.TABLE_SCHEMA AND t.TABLE_NAME = s.TABLE_NAME AND t.ENGINE = 'InnoDB' \
    JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME \
    AND c.COLUMN_NAME = s.COLUMN_NAME WHERE s.TABLE_SCHEMA = DATABASE() AND s.INDEX_TYPE = 'FULLTEXT' \
    ORDER BY s.TABLE_NAME, s.INDEX_NAME, s.SEQ_IN_INDEX";
/// 1 if words are left out of the indexes by the usual rules.
const USUAL_WORDS: &str =
    "SELECT @@innodb_ft_min_token_size <= 3 AND @@innodb_ft_server_stopword_table IS NULL";
/// In MariaDB, JSON is text with a check.
const JSON_CHECKS: &str = "SELECT TABLE_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE()";
/// A value of a row; `None` for NULL. The driver's own conversions panic if a server sends something else.
pub(super) fn text(row: &Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(n) => Some(n.to_string()),
        Value::UInt(n) => Some(n.to_string()),
        Value::NULL | Value::Float(_) | Value::Double(_) | Value::Date(..) | Value::Time(..) => None,
    }
}

/// The first values of a row, empty for NULL.
fn texts<const COUNT: usize>(row: &Row) -> [String; COUNT] {
    std::array::from_fn(|at| text(row, at).unwrap_or_default())
}

pub(super) async fn read(conn: &mut Conn) -> Result<Schema, Error> {
    let server: Option<Row> = conn.query_first(SERVER).await?;
    let server = |at: usize| server.as_ref().and_then(|row| text(row, at)).unwrap_or_default();
    let (version, user) = (server(0), server(1));
    let is_mariadb = version.contains("MariaDB");
    let grants = Grants::read(conn, server(2)).await?;
    let mut tables: Vec<TableInfo> = Vec::new();
    let mut idempotency_exists = false;
    for row in conn.query::<Row, _>(TABLES).await? {
        let [name, kind, rows, comment] = texts(&row);
        if name == idempotency::TABLE {
            idempotency_exists = true;
            continue;
        }
        let is_view = kind == "VIEW";
        tables.push(TableInfo {
            quoted: MySqlDialect.quote(&name),
            is_view,
            comment: Some(comment).filter(|comment| !comment.is_empty() && !is_view),
            row_count: rows.parse().ok(),
            may_delete: grants.allow(&name, "DELETE"),
            name,
            ..TableInfo::default()
        });
    }
    let json_columns = if is_mariadb { json_columns(conn).await? } else { HashSet::new() };
    for row in conn.query::<Row, _>(COLUMNS).await? {
        add_column(&mut tables, &row, &json_columns);
    }
    // A view whose tables are gone has columns that cannot be read.
    let mut readable = Vec::new();
    for mut table in tables {
        if !table.columns.is_empty() && set_native_types(conn, &mut table).await? {
            readable.push(table);
        }
    }
    let mut tables = readable;
    add_keys(conn, &mut tables).await?;
    add_foreign_keys(conn, &mut tables).await?;
    add_text_indexes(conn, &mut tables).await?;
    let (writes, powers) = grants.powers();
    let may_use =
        ["SELECT", "INSERT", "UPDATE", "DELETE"].iter().all(|right| grants.allow(idempotency::TABLE, right));
    let may_create = grants.allow("", "CREATE");
    let may_keep_records = may_use && (idempotency_exists || may_create);
    let name = MySqlDialect.quote(idempotency::TABLE);
    Ok(Schema {
        tables,
        role: RoleInfo { name: user, writes, powers, ignores_policies: false },
        idempotency: may_keep_records.then_some((name, idempotency_exists)),
        server: if is_mariadb { format!("MariaDB {version}") } else { format!("MySQL {version}") },
    })
}

/// Tables and columns that a check keeps JSON.
async fn json_columns(conn: &mut Conn) -> Result<HashSet<(String, String)>, Error> {
    let checks: Vec<Row> = conn.query(JSON_CHECKS).await?;
    let column = |clause: &str| {
        let name = clause.strip_prefix("json_valid(`")?.strip_suffix("`)")?;
        Some(name.replace("``", "`"))
    };
    let checks = checks.iter().map(texts);
    Ok(checks.filter_map(|[table, clause]| Some((table, column(&clause)?))).collect())
}

fn add_column(tables: &mut [TableInfo], row: &Row, json_columns: &HashSet<(String, String)>) {
    let has_value = |at: usize| text(row, at).is_some();
    let text = |at: usize| text(row, at).unwrap_or_default();
    let privileges = text(10);
    let Some(table) = tables.iter_mut().find(|table| table.name == text(0)) else { return };
    if !privileges.contains("select") {
        return;
    }
    table.may_insert |= privileges.contains("insert");
    table.may_update |= privileges.contains("update");
    let (name, data_type, column_type, extra) = (text(1), text(2), text(3), text(6));
    let is_json = json_columns.contains(&(table.name.clone(), name.clone()));
    let is_generated = extra.contains("GENERATED") && !extra.contains("DEFAULT_GENERATED");
    table.columns.push(ColumnInfo {
        storage: if is_json { Storage::Json } else { storage(&data_type, &column_type) },
        // Set from a prepared statement.
        native_type: 0,
        nullable: text(4) == "YES",
        has_default: has_value(5) || extra.contains("auto_increment") || is_generated,
        read_only_reason: is_generated.then(|| "the database computes it".to_owned()),
        // The connection speaks utf8mb4, which other character sets are converted to.
        collation: if text(8) == "utf8mb4" { Collation::Deterministic } else { Collation::Other },
        labels: if data_type == "enum" { enum_labels(&column_type) } else { Vec::new() },
        comment: Some(text(7)).filter(|comment| !comment.is_empty()),
        fraction_digits: text(9).parse().unwrap_or(0),
        is_wide: data_type == "bigint",
        is_boolean: column_type == "tinyint(1)",
        type_name: column_type,
        name,
    });
}

fn storage(data_type: &str, column_type: &str) -> Storage {
    match data_type {
        "bigint" if column_type.contains("unsigned") => Storage::Unsigned,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => Storage::Integer,
        "float" => Storage::Float32,
        "double" => Storage::Float64,
        "decimal" => Storage::Decimal,
        "bit" if column_type == "bit(1)" => Storage::Boolean,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Storage::Text,
        "date" => Storage::Date,
        "datetime" => Storage::LocalTimestamp,
        "timestamp" => Storage::Timestamp,
        "uuid" => Storage::Uuid,
        "json" => Storage::Json,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "bit" => Storage::Bytes,
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" => Storage::Bytes,
        _ => Storage::Printed,
    }
}

/// `enum('a','it''s')`
fn enum_labels(column_type: &str) -> Vec<String> {
    let inner = column_type.strip_prefix("enum('").and_then(|rest| rest.strip_suffix("')"));
    inner.map_or_else(Vec::new, |inner| inner.split("','").map(|label| label.replace("''", "'")).collect())
}

/// Asks for the types that results will have; `false` if the table cannot be read.
async fn set_native_types(conn: &mut Conn, table: &mut TableInfo) -> Result<bool, Error> {
    let names: Vec<String> = table.columns.iter().map(|column| MySqlDialect.quote(&column.name)).collect();
    let prepared = conn.prep(format!("SELECT {} FROM {}", names.join(", "), table.quoted)).await;
    let statement = match prepared {
        Ok(statement) => statement,
        Err(Error::Server(error)) => {
            tracing::debug!(%error, table = table.name, "a table cannot be read");
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    for (column, found) in table.columns.iter_mut().zip(statement.columns()) {
        column.native_type = native_type(found);
    }
    conn.close(statement).await?;
    Ok(true)
}

async fn add_keys(conn: &mut Conn, tables: &mut [TableInfo]) -> Result<(), Error> {
    let mut indexes: Vec<(String, String, Vec<Option<String>>)> = Vec::new();
    for row in conn.query::<Row, _>(UNIQUE).await? {
        let [table, index, ..] = texts::<4>(&row);
        // A part of a text, or an expression, does not identify a row.
        let column = text(&row, 2).filter(|_| text(&row, 3).is_none());
        match indexes.last_mut() {
            Some((of, name, columns)) if *of == table && *name == index => columns.push(column),
            _ => indexes.push((table, index, vec![column])),
        }
    }
    for (table, index, columns) in indexes {
        let Some(table) = tables.iter_mut().find(|one| one.name == table) else { continue };
        let place = |name: &Option<String>| {
            let name = name.as_ref()?;
            table.columns.iter().position(|column| column.name == *name && !column.nullable)
        };
        let Some(places) = columns.iter().map(place).collect::<Option<Vec<usize>>>() else { continue };
        if table.key.is_empty() {
            table.key.clone_from(&places);
            table.key_constraint = Some(index);
        }
        table.unique.push(places);
    }
    Ok(())
}

async fn add_text_indexes(conn: &mut Conn, tables: &mut [TableInfo]) -> Result<(), Error> {
    let found: Vec<Row> = conn.query(FULL_TEXT).await?;
    if found.is_empty()
        || conn.query_first::<Row, _>(USUAL_WORDS).await?.and_then(|row| text(&row, 0)).as_deref()
            != Some("1")
    {
        return Ok(());
    }
    let mut indexes: Vec<(String, String, Vec<[String; 2]>)> = Vec::new();
    for [table, index, column, collation] in found.iter().map(texts) {
        match indexes.last_mut() {
            Some((of, name, columns)) if *of == table && *name == index => columns.push([column, collation]),
            _ => indexes.push((table, index, vec![[column, collation]])),
        }
    }
    for (table, _, columns) in indexes {
        let Some(table) = tables.iter_mut().find(|one| one.name == table) else { continue };
        // Other collations tell upper and lower case apart.
        let place = |[name, collation]: &[String; 2]| {
            let at = table.columns.iter().position(|column| column.name == *name)?;
            collation.ends_with("_ci").then_some(at)
        };
        let places = columns.iter().map(place).collect::<Option<Vec<usize>>>();
        table.add_text_index(places, TextIndexKind::Words);
    }
    Ok(())
}

async fn add_foreign_keys(conn: &mut Conn, tables: &mut [TableInfo]) -> Result<(), Error> {
    let mut found: Vec<(String, String, ForeignKey)> = Vec::new();
    let places: HashMap<(String, String), usize> = tables
        .iter()
        .flat_map(|table| {
            let columns = table.columns.iter().enumerate();
            columns.map(|(at, column)| ((table.name.clone(), column.name.clone()), at))
        })
        .collect();
    for row in conn.query::<Row, _>(FOREIGN_KEYS).await? {
        let [table, name, column, target, target_column] = texts(&row);
        let Some(at) = places.get(&(table.clone(), column)) else { continue };
        match found.last_mut() {
            Some((of, constraint, key)) if *of == table && *constraint == name => {
                key.columns.push(*at);
                key.target_columns.push(target_column);
            }
            _ => {
                let key =
                    ForeignKey { columns: vec![*at], table: target, target_columns: vec![target_column] };
                found.push((table, name, key));
            }
        }
    }
    for (table, _, key) in found {
        if let Some(table) = tables.iter_mut().find(|one| one.name == table) {
            table.foreign_keys.push(key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::enum_labels;

    #[test]
    fn the_labels_of_an_enum_are_unquoted() {
        for (declared, labels) in
            [("enum('a','b')", vec!["a", "b"]), ("enum('it''s','')", vec!["it's", ""]), ("set('a')", vec![])]
        {
            assert_eq!(enum_labels(declared), labels, "{declared}");
        }
    }
}
