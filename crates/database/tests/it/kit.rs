//! Databases with tables, and short ways to ask them.

use std::sync::Arc;

use contract::source::{
    ColumnFacts, ColumnShape, Query, Reader, RowFlow, Source, SourceError, SourceFacts, TableFacts,
    TableShape,
};
use contract::{Value, ValueRef};
use database::{Database, Options};
use test_databases::{Kind, TestDatabase};

pub const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

pub fn options(place: &TestDatabase) -> Options {
    Options::new(place.url())
}

pub fn open_with(kind: Kind, options: Options) -> Database {
    match kind {
        Kind::Postgres => Database::postgres(options),
        Kind::MariaDb => Database::mysql(options),
    }
    .unwrap()
}

pub fn open(place: &TestDatabase) -> Database {
    open_with(place.server.kind, options(place))
}

pub fn table<'f>(facts: &'f SourceFacts, name: &str) -> &'f TableFacts {
    facts
        .tables
        .iter()
        .find(|table| table.name == name)
        .unwrap_or_else(|| panic!("no table {name}: {facts:#?}"))
}

/// A column as a contract would have it by default, with its index.
pub fn column_shape((at, column): (usize, &ColumnFacts)) -> ColumnShape {
    ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: column.mixed,
        null_texts: Vec::new(),
        format: None,
    }
}

/// The shape that a contract would have by default.
pub fn shape(facts: &SourceFacts, name: &str) -> TableShape {
    let table = table(facts, name);
    TableShape {
        table: name.into(),
        columns: table.columns.iter().enumerate().map(column_shape).collect(),
        key: table.key.clone(),
    }
}

pub fn reader(source: &Database, name: &str) -> Arc<dyn Reader> {
    let facts = source.introspect().unwrap();
    source.reader(&shape(&facts, name)).unwrap()
}

/// All rows, in the order of the key.
pub fn rows(reader: &dyn Reader) -> Result<Vec<Vec<Value>>, SourceError> {
    let mut rows = Vec::new();
    let query = Query { rows_max: 1000, ..Query::default() };
    reader.list(&query, &mut |values, _| {
        rows.push(values.iter().map(|value| value.to_value()).collect());
        RowFlow::Continue
    })?;
    Ok(rows)
}

/// A value as a test shows it.
pub fn shown(value: &Value) -> String {
    match value.as_value_ref() {
        ValueRef::Null => "NULL".into(),
        ValueRef::Text(text) => text.into(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => format!("{n:?}"),
        ValueRef::Blob(bytes) => format!("{bytes:?}"),
    }
}
