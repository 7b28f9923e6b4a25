//! The foreign keys of a table, as links between collections need them.

use std::collections::BTreeMap;

use contract::source::ForeignKey;
use rusqlite::{Connection, Result};

use super::{ColumnDef, Table};

/// A foreign key as its table declares it.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredReference {
    columns: Vec<usize>,
    table: String,
    /// `None`: the other table's primary key.
    target_columns: Option<Vec<String>>,
}

/// The foreign keys of a table, in the order of their columns. Those with a column that does not exist are left
/// out.
pub(super) fn read(
    connection: &Connection,
    table: &str,
    columns: &[ColumnDef],
) -> Result<Vec<DeclaredReference>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, \"table\", \"from\", \"to\" FROM pragma_foreign_key_list(?1, 'main') ORDER BY id, seq",
    )?;
    let rows = statement.query_map([table], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, Option<String>>(3)?,
        ))
    })?;
    // A foreign key is `None` once one of its columns is not found.
    let mut keys: BTreeMap<i64, Option<DeclaredReference>> = BTreeMap::new();
    // A name that is not text belongs to a table that is left out.
    for (id, table, from, to) in rows.filter_map(Result::ok) {
        let new = || Some(DeclaredReference { columns: Vec::new(), table, target_columns: Some(Vec::new()) });
        let key = keys.entry(id).or_insert_with(new);
        let column = columns.iter().position(|column| column.name.eq_ignore_ascii_case(&from));
        let (Some(reference), Some(column)) = (key.as_mut(), column) else {
            *key = None;
            continue;
        };
        reference.columns.push(column);
        match (to, &mut reference.target_columns) {
            (Some(to), Some(targets)) => targets.push(to),
            _ => reference.target_columns = None,
        }
    }
    let mut references: Vec<DeclaredReference> = keys.into_values().flatten().collect();
    references.sort_by(|a, b| a.columns.cmp(&b.columns));
    Ok(references)
}

/// The foreign keys of a table whose target exists.
pub(crate) fn resolve(table: &Table, tables: &[Table]) -> Vec<ForeignKey> {
    let resolve = |reference: &DeclaredReference| {
        let target = tables.iter().find(|other| other.name.eq_ignore_ascii_case(&reference.table))?;
        let target_columns = match &reference.target_columns {
            Some(columns) => columns.clone(),
            None => target.primary_key.iter().map(|at| target.columns[*at].name.clone()).collect(),
        };
        (target_columns.len() == reference.columns.len()).then(|| ForeignKey {
            columns: reference.columns.clone(),
            table: target.name.clone(),
            target_columns,
        })
    };
    table.references.iter().filter_map(resolve).collect()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::resolve;
    use crate::sqlite::schema;

    /// The foreign keys of all tables: `orders(customer_id) -> customers(id)`.
    fn check(sql: &str, expected: &[&str]) {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(sql).expect("valid SQL");
        let tables = schema::read(&connection).expect("a schema").tables;
        let mut found = Vec::new();
        for table in &tables {
            for key in resolve(table, &tables) {
                let columns: Vec<&str> =
                    key.columns.iter().map(|at| table.columns[*at].name.as_str()).collect();
                let targets = key.target_columns.join(", ");
                found.push(format!("{}({}) -> {}({targets})", table.name, columns.join(", "), key.table));
            }
        }
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn a_foreign_key_without_columns_refers_to_the_primary_key() {
        check(
            "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a_id INTEGER REFERENCES a)",
            &["b(a_id) -> a(id)"],
        );
        check(
            "CREATE TABLE a (x, y, PRIMARY KEY (y, x)); CREATE TABLE b (p, q, FOREIGN KEY (p, q) REFERENCES a)",
            &["b(p, q) -> a(y, x)"],
        );
    }

    #[test]
    fn composite_keys_keep_the_order_of_their_columns() {
        check(
            "CREATE TABLE a (x, y, UNIQUE (x, y));
             CREATE TABLE b (q, p, FOREIGN KEY (p, q) REFERENCES a (x, y))",
            &["b(p, q) -> a(x, y)"],
        );
    }

    #[test]
    fn a_table_may_refer_to_itself_and_names_ignore_case() {
        check(
            "CREATE TABLE Staff (Id INTEGER PRIMARY KEY, Boss INTEGER REFERENCES STAFF (ID))",
            &["Staff(Boss) -> Staff(ID)"],
        );
    }

    #[test]
    fn several_keys_are_in_the_order_of_their_columns() {
        check(
            "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE c (id INTEGER PRIMARY KEY);
             CREATE TABLE b (first REFERENCES c (id), second REFERENCES a (id), third REFERENCES a (id))",
            &["b(first) -> c(id)", "b(second) -> a(id)", "b(third) -> a(id)"],
        );
    }

    #[test]
    fn a_key_that_leads_nowhere_is_left_out() {
        check("CREATE TABLE b (a_id INTEGER REFERENCES missing (id), x)", &[]);
        // The target has no primary key, or one with another number of columns.
        check("CREATE TABLE a (id); CREATE TABLE b (a_id REFERENCES a)", &[]);
        check("CREATE TABLE a (x, y, PRIMARY KEY (x, y)); CREATE TABLE b (a_id REFERENCES a)", &[]);
    }
}
