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
