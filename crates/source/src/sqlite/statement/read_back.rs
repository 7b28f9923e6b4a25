//! Reads the rows that a statement changed before they are kept: no statement may store a value that a collection
//! could not return. `n = n + :a` may exceed the integers that JSON keeps, and every list would fail from then on.

use contract::ValueRef;

use crate::sqlite::column::{ExpectedType, from_sqlite};
use crate::sqlite::connection::DbConnection;
use crate::sqlite::error::DbError;
use crate::sqlite::read::served_tables::ServedTables;
use crate::sqlite::schema::{RowLocator, Table, quote_identifier};

/// Which columns of which table a statement sets.
#[derive(Debug, Default)]
pub(super) struct AssignedColumns {
    /// The table that it names. Triggers may change others.
    pub(super) table: String,
    /// `None`: whole rows.
    pub(super) columns: Option<Vec<String>>,
}

/// Why a changed row must not be kept; `None` if every collection can return all of them.
pub(super) fn rejection(
    connection: &DbConnection,
    tables: &[Table],
    assigned: &AssignedColumns,
    served: &ServedTables,
) -> Result<Option<String>, DbError> {
    let changed = connection.changed_rows.take();
    for table in tables {
        let is_target = table.name.eq_ignore_ascii_case(&assigned.table);
        let mut columns = served.column_names(&table.name);
        // What the statement does not set was stored before, and is not the caller's fault.
        if let (true, Some(set)) = (is_target, &assigned.columns) {
            columns.retain(|name| {
                let is_set = set.iter().any(|one| one.eq_ignore_ascii_case(name));
                // A generated column follows the others.
                is_set || table.columns.iter().any(|known| known.name == *name && known.is_generated)
            });
        }
        if columns.is_empty() {
            continue;
        }
        let quoted: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
        let select = format!("SELECT {} FROM {}", quoted.join(", "), table.sql_name());
        let check = |row: &rusqlite::Row<'_>| -> Result<Option<String>, DbError> {
            for (index, column) in columns.iter().enumerate() {
                let value = from_sqlite(row.get_ref(index)?);
                if let Some(expected) = served.expected_instead(&table.name, column, value) {
                    return Ok(Some(describe(column, value, &expected)));
                }
            }
            Ok(None)
        };
        match &table.locator {
            RowLocator::Rowid(rowid) => {
                let mut statement =
                    connection.inner.prepare_cached(&format!("{select} WHERE {rowid} = ?1"))?;
                for (_, id) in changed.iter().filter(|(name, _)| *name == table.name) {
                    let mut rows = statement.query([id])?;
                    while let Some(row) = rows.next()? {
                        if let Some(reason) = check(row)? {
                            return Ok(Some(reason));
                        }
                    }
                }
            }
            // SQLite does not say which rows of such a table have changed.
            RowLocator::PrimaryKey(_) if is_target => {
                let mut statement = connection.inner.prepare_cached(&select)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if let Some(reason) = check(row)? {
                        return Ok(Some(reason));
                    }
                }
            }
            RowLocator::PrimaryKey(_) | RowLocator::None => {}
        }
    }
    Ok(None)
}

fn describe(column: &str, value: ValueRef<'_>, ExpectedType(expected): &ExpectedType) -> String {
    let stored = match value {
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(_) => "a text".into(),
        ValueRef::Blob(_) => "bytes".into(),
        ValueRef::Null => "NULL".into(),
    };
    format!("the statement would store {stored} in the column `{column}`, which holds {expected}")
}
