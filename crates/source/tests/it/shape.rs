//! The shape of a contract that changes nothing.

use contract::source::{ColumnFacts, ColumnShape, TableFacts, TableShape};

pub fn shape_of(table: &TableFacts) -> TableShape {
    TableShape { table: table.name.clone(), columns: columns(&table.columns), key: table.key.clone() }
}

pub fn columns(facts: &[ColumnFacts]) -> Vec<ColumnShape> {
    let column = |(at, column): (usize, &ColumnFacts)| ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: column.mixed,
        null_texts: Vec::new(),
        format: column.format.clone(),
    };
    facts.iter().enumerate().map(column).collect()
}
