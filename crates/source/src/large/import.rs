//! Fills the database of an import: one table, typed so that every value comes back exactly.
//!
//! Integers and booleans are stored as integers, floating-point numbers as reals, everything else as text: the digits of a
//! decimal, dates and times in their canonical notation.

use std::path::Path;

use contract::source::SourceError;
use contract::{DataType, ValueRef};
use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef as SqlValueRef};
use rusqlite::{Connection, ToSql};

/// The name of the only table.
pub(crate) const TABLE: &str = "rows";
const CACHE_KIB: i64 = 32 << 10;

/// A column of the file, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportColumn {
    /// Its position in the file.
    pub(crate) position: usize,
    pub(crate) data_type: DataType,
    pub(crate) affinity: ImportAffinity,
    pub(crate) nullable: bool,
}

/// How SQLite stores the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImportAffinity {
    /// As its type demands.
    OfType,
    /// As they are: a column of numbers has integers and fractions, one of several types has texts among them.
    None,
}

/// The name of a column in the database. Names in a file may be blank or repeated.
pub(crate) fn column_name(position: usize) -> String {
    format!("c{position}")
}

pub(crate) struct TableImport {
    connection: Connection,
    insert: String,
}

impl TableImport {
    /// Creates the database and begins to fill it.
    pub(crate) fn create(path: &Path, columns: &[ImportColumn]) -> Result<Self, SourceError> {
        let connection = Connection::open(path).map_err(|error| import_error(&error))?;
        let mut definitions: Vec<String> = columns.iter().map(column_definition).collect();
        let values = match columns.len() {
            // The rows of a file may name no columns, but a table has at least one.
            0 => "DEFAULT VALUES".to_owned(),
            count => format!("VALUES ({})", vec!["?"; count].join(",")),
        };
        if definitions.is_empty() {
            definitions.push("unused".to_owned());
        }
        // A crash leaves a file that nobody reads: it has its name only when it is complete.
        let setup = format!(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
             PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = FILE; \
             CREATE TABLE {TABLE} ({}); BEGIN",
            definitions.join(", ")
        );
        connection.execute_batch(&setup).map_err(|error| import_error(&error))?;
        Ok(Self { connection, insert: format!("INSERT INTO {TABLE} {values}") })
    }

    pub(crate) fn insert(&mut self, values: &[ImportValue<'_>]) -> Result<(), SourceError> {
        let mut statement =
            self.connection.prepare_cached(&self.insert).map_err(|error| import_error(&error))?;
        let parameters = rusqlite::params_from_iter(values);
        statement.execute(parameters).map_err(|error| import_error(&error))?;
        Ok(())
    }

    /// Ends the table. `find_key` tests columns for a key that nobody declared.
    pub(crate) fn finish(
        self,
        find_key: impl FnOnce(&KeyTests<'_>) -> Option<usize>,
    ) -> Result<Option<usize>, SourceError> {
        let error = |error: rusqlite::Error| import_error(&error);
        self.connection.execute_batch("COMMIT").map_err(error)?;
        let key = find_key(&KeyTests(&self.connection));
        let key_text = key.map_or(String::new(), |position| position.to_string());
        self.connection
            .execute_batch("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT)")
            .and_then(|()| self.connection.execute("INSERT INTO facts VALUES ('key', ?)", [key_text]))
            .map_err(error)?;
        // Readers of a log do not wait for each other, and need not let go of the file every few milliseconds.
        let finish = "PRAGMA locking_mode = NORMAL; PRAGMA synchronous = NORMAL; PRAGMA journal_mode = WAL";
        self.connection.execute_batch(finish).map_err(error)?;
        self.connection.close().map_err(|(_, error)| import_error(&error))?;
        Ok(key)
    }
}

/// The key that an import found, by position in the file.
pub(crate) fn detected_key(path: &Path) -> Result<Option<usize>, SourceError> {
    let connection = Connection::open(path).map_err(|error| import_error(&error))?;
    let text: String = connection
        .query_row("SELECT value FROM facts WHERE name = 'key'", [], |row| row.get(0))
        .map_err(|error| import_error(&error))?;
    Ok(text.parse().ok())
}

/// Makes sure that a key has an index. `false` if it is not unique.
pub(crate) fn ensure_key(path: &Path, positions: &[usize]) -> Result<bool, SourceError> {
    let connection = Connection::open(path).map_err(|error| import_error(&error))?;
    let setup = format!("PRAGMA cache_size = -{CACHE_KIB}; PRAGMA busy_timeout = 60000");
    connection.execute_batch(&setup).map_err(|error| import_error(&error))?;
    create_unique_index(&connection, positions).map_err(|error| import_error(&error))
}

fn create_unique_index(connection: &Connection, positions: &[usize]) -> rusqlite::Result<bool> {
    let names: Vec<String> = positions.iter().map(|position| column_name(*position)).collect();
    let sql = format!(
        "CREATE UNIQUE INDEX IF NOT EXISTS key_{} ON {TABLE} ({})",
        names.join("_"),
        names.join(", ")
    );
    match connection.execute_batch(&sql) {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Questions about a column that may be a key.
pub(crate) struct KeyTests<'a>(&'a Connection);

impl KeyTests<'_> {
    /// Whether the first rows have different values.
    pub(crate) fn is_unique_in_first(&self, position: usize, rows: u32) -> bool {
        let name = column_name(position);
        let sql = format!(
            "SELECT count({name}) = count(DISTINCT {name}) FROM (SELECT {name} FROM {TABLE} LIMIT {rows})"
        );
        self.0.query_row(&sql, [], |row| row.get(0)).unwrap_or(false)
    }

    /// Whether all rows have different values, none of them longer than this. Then the column has an index.
    pub(crate) fn is_unique(&self, position: usize, bytes_max: usize) -> bool {
        let name = column_name(position);
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {TABLE} WHERE octet_length({name}) > {bytes_max})");
        let is_long = self.0.query_row(&sql, [], |row| row.get(0)).unwrap_or(true);
        !is_long && create_unique_index(self.0, &[position]).unwrap_or(false)
    }
}

/// A value to store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ImportValue<'a>(pub(crate) ValueRef<'a>);

impl ToSql for ImportValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            ValueRef::Null => ToSqlOutput::Owned(SqlValue::Null),
            ValueRef::Integer(n) => ToSqlOutput::Owned(SqlValue::Integer(n)),
            ValueRef::Real(n) => ToSqlOutput::Owned(SqlValue::Real(n)),
            ValueRef::Text(text) => ToSqlOutput::Borrowed(SqlValueRef::Text(text.as_bytes())),
            ValueRef::Blob(bytes) => ToSqlOutput::Borrowed(SqlValueRef::Blob(bytes)),
        })
    }
}

/// The stored value of a text in the canonical notation of its type; `None` if the text is not of the type.
pub(crate) fn stored_value(data_type: DataType, text: &str) -> Option<ValueRef<'_>> {
    if !contract::infer::matches_type(data_type, text) {
        return None;
    }
    Some(match data_type {
        DataType::Integer | DataType::Int64 => ValueRef::Integer(text.parse().ok()?),
        DataType::Number => ValueRef::Real(text.parse().ok().filter(|number: &f64| number.is_finite())?),
        DataType::Boolean => ValueRef::Integer(i64::from(text == "true")),
        DataType::Text
        | DataType::Decimal
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => ValueRef::Text(text),
    })
}

fn column_definition(column: &ImportColumn) -> String {
    let stored_type = match column.data_type {
        _ if column.affinity == ImportAffinity::None => "",
        DataType::Integer | DataType::Int64 | DataType::Boolean => "INTEGER",
        DataType::Number => "REAL",
        DataType::Text
        | DataType::Decimal
        | DataType::Date
        | DataType::Timestamp
        | DataType::LocalTimestamp
        | DataType::Json
        | DataType::Blob => "TEXT",
    };
    let not_null = if column.nullable { "" } else { " NOT NULL" };
    format!("{} {stored_type}{not_null}", column_name(column.position))
}

fn import_error(error: &rusqlite::Error) -> SourceError {
    let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    let message = match is_full {
        true => "the disk with the cache folder is full",
        false => "the imported data cannot be stored in the cache folder",
    };
    SourceError::Unavailable { message: message.into(), detail: error.to_string() }
}
