//! The shape a contract would have that changes nothing.

use contract::source::{ColumnFacts, Shape, ShapeColumn, TableFacts};

pub fn of(table: &TableFacts) -> Shape {
    Shape { table: table.name.clone(), columns: columns(&table.columns), key: table.key.clone() }
}

pub fn columns(facts: &[ColumnFacts]) -> Vec<ShapeColumn> {
    let column = |(at, column): (usize, &ColumnFacts)| ShapeColumn {
        at,
        name: column.name.clone(),
        kind: column.kind,
        nullable: column.nullable,
        mixed: column.mixed,
        null: None,
    };
    facts.iter().enumerate().map(column).collect()
}
