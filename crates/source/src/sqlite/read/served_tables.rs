//! The column types that collections serve, so that no statement stores a value that a collection could not return.
//!
//! An integer above 2^53, for example, would make every list of a collection fail that serves the column as an integer.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use contract::source::TableShape;
use contract::{DataType, ValueRef};

use crate::sqlite::column::{ExpectedType, is_of_type};

/// One table as a reader serves it.
#[derive(Debug)]
pub(crate) struct ServedTable {
    table: String,
    columns: Vec<ServedColumn>,
}

#[derive(Debug)]
struct ServedColumn {
    name: String,
    data_type: DataType,
    null_text: Option<String>,
}

/// The tables of all readers that are in use.
#[derive(Debug, Default)]
pub(crate) struct ServedTables(Mutex<Vec<Weak<ServedTable>>>);

impl ServedTables {
    /// Adds a table until what is returned is dropped.
    pub(crate) fn add(&self, shape: &TableShape) -> Arc<ServedTable> {
        let columns = shape.columns.iter().filter(|column| !column.mixed).map(|column| ServedColumn {
            name: column.name.clone(),
            data_type: column.data_type,
            null_text: column.null_texts.first().cloned(),
        });
        let served = Arc::new(ServedTable { table: shape.table.clone(), columns: columns.collect() });
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|table| table.strong_count() > 0);
        tables.push(Arc::downgrade(&served));
        served
    }

    /// The columns of a table that some collection serves with one type.
    pub(crate) fn column_names(&self, table: &str) -> Vec<String> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let served = tables.iter().filter_map(Weak::upgrade).filter(|served| served.table == table);
        let mut names: Vec<String> = Vec::new();
        for served in served {
            for column in &served.columns {
                if !names.contains(&column.name) {
                    names.push(column.name.clone());
                }
            }
        }
        names
    }

    /// What a collection expects in this column, if it could not return this value.
    pub(crate) fn expected_instead(
        &self,
        table: &str,
        column: &str,
        value: ValueRef<'_>,
    ) -> Option<ExpectedType> {
        if value == ValueRef::Null {
            return None;
        }
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut served = tables.iter().filter_map(Weak::upgrade).filter(|served| served.table == table);
        served.find_map(|served| {
            let column = served.columns.iter().find(|known| known.name == column)?;
            let is_null_text =
                matches!(value, ValueRef::Text(text) if column.null_text.as_deref() == Some(text));
            let fits = is_null_text || is_of_type(column.data_type, value);
            (!fits).then(|| ExpectedType::of(column.data_type))
        })
    }
}
