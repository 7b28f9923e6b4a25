//! A table seen through the shape that was compiled, or the place at which it no longer has that shape.

use std::borrow::Cow;
use std::sync::Arc;

use contract::nearest;
use contract::source::TableShape;

use super::column::TableColumn;
use super::error::{RowLocation, TableError};
use super::index::TableKeyIndex;
use super::snapshot::{FileSnapshot, FormatLoader};
use super::table::Table;
use crate::snapshot_reader::column_lookup::{self, Requirement};
use crate::snapshot_reader::{CowValue, SortOrders, SortableTable, TableLoader};

/// What a contract reads, by the names in the file. Outlives any one state of it.
pub(super) struct TableMapping {
    table: String,
    columns: Vec<TableColumnMapping>,
    /// Places in `columns`.
    key_columns: Vec<usize>,
}

struct TableColumnMapping {
    /// How many columns of this name come before it.
    occurrence: usize,
    nullable: bool,
    column: TableColumn,
}

/// One state of the table, ready to be read.
pub(super) struct TableView {
    /// The place of the table in the file.
    pub(super) table_index: usize,
    pub(super) table: Arc<Table>,
    /// In the order of the shape.
    pub(super) columns: Vec<TableColumn>,
    pub(super) index: Option<TableKeyIndex>,
    pub(super) orders: SortOrders,
}

impl TableLoader for FormatLoader {
    type Mapping = TableMapping;
    type View = TableView;

    fn map_columns(&self, shape: &TableShape, state: &FileSnapshot) -> TableMapping {
        TableMapping::new(shape, state)
    }

    fn open_view(plan: &TableMapping, state: &FileSnapshot) -> Result<TableView, TableError> {
        plan.open_view(state)
    }
}

impl SortableTable for TableView {
    type Column = TableColumn;

    fn len(&self) -> u32 {
        self.table.len()
    }

    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn orders(&self) -> &SortOrders {
        &self.orders
    }

    /// The row: columns are kept as such.
    #[inline]
    fn value_position(&self, row: u32, _: &TableColumn) -> u32 {
        row
    }

    #[inline]
    fn value_at(&self, row: u32, column: &TableColumn) -> CowValue<'_> {
        column.value(&self.table, row)
    }
}

impl TableMapping {
    fn new(shape: &TableShape, state: &FileSnapshot) -> Self {
        let header =
            state.find_table(&shape.table).map(|at| &state.tables[at].header[..]).unwrap_or_default();
        let columns = shape.columns.iter().map(|column| TableColumnMapping {
            occurrence: column_lookup::occurrence_of(column, header),
            nullable: column.nullable,
            column: TableColumn {
                name: column.name.clone(),
                column_index: None,
                data_type: column.data_type,
                mixed: column.mixed,
                null_text: column.null_text.clone(),
                has_nested_json: false,
            },
        });
        Self { table: shape.table.clone(), columns: columns.collect(), key_columns: shape.key.clone() }
    }

    /// Where a column of this name stands in the shape.
    pub(super) fn column_position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|wanted| wanted.column.name == name)
    }

    pub(super) fn open_view(&self, state: &FileSnapshot) -> Result<TableView, TableError> {
        let at = state.find_table(&self.table).ok_or_else(|| {
            let others = state.tables.iter().map(|table| table.name.as_str());
            let near = nearest(&self.table, others).map(str::to_owned);
            TableError::TableNotFound { name: self.table.clone(), suggestion: near }
        })?;
        let table = &state.tables[at];
        let mut columns = Vec::with_capacity(self.columns.len());
        for (place, wanted) in self.columns.iter().enumerate() {
            let field = self.find_column(wanted, table)?;
            let column = TableColumn {
                column_index: field,
                has_nested_json: table.has_nested_json,
                ..wanted.column.clone()
            };
            let nullable = wanted.nullable || wanted.column.null_text.is_some();
            let need = Requirement::of(self.key_columns.contains(&place), nullable);
            check_column(at, table, &column, need)?;
            columns.push(column);
        }
        let index = match &self.key_columns[..] {
            [] => None,
            key => Some(self.build_index(at, table, &columns, key)?),
        };
        Ok(TableView {
            table_index: at,
            table: table.clone(),
            columns,
            orders: SortOrders::new(
                &self.key_columns,
                if index.is_some() { 0 } else { state.content_hash() },
            ),
            index,
        })
    }

    fn find_column(&self, wanted: &TableColumnMapping, table: &Table) -> Result<Option<usize>, TableError> {
        let name = &wanted.column.name;
        match column_lookup::find_column(name, wanted.occurrence, &table.header) {
            Some(place) => Ok(Some(place)),
            None if table.is_schemaless => Ok(None),
            None => {
                let is_ours = |name: &str| self.columns.iter().any(|wanted| wanted.column.name == name);
                let near = column_lookup::similar_column(name, &table.header, is_ours);
                Err(TableError::ColumnNotFound { name: name.clone(), suggestion: near })
            }
        }
    }

    fn build_index(
        &self,
        at: usize,
        table: &Table,
        columns: &[TableColumn],
        key: &[usize],
    ) -> Result<TableKeyIndex, TableError> {
        let key: Vec<&TableColumn> = key.iter().map(|place| &columns[*place]).collect();
        TableKeyIndex::build(table, &key, table.len()).map_err(|twice| {
            let text = |column: &&TableColumn| match column
                .to_text(column.value(table, twice.second).as_value_ref())
            {
                Some(text) => text.into_owned(),
                None => String::new(),
            };
            TableError::DuplicateKey {
                locations: [row_location(at, table, twice.first), row_location(at, table, twice.second)],
                columns: key.iter().map(|column| column.name.clone()).collect(),
                values: key.iter().map(text).collect(),
            }
        })
    }
}

fn row_location(at: usize, table: &Table, row: u32) -> RowLocation {
    RowLocation { table_index: at, row, unit: table.row_unit, number: table.row_number(row) }
}

/// Most columns are settled by what was seen while loading; the others are walked, to name the row.
fn check_column(at: usize, table: &Table, column: &TableColumn, need: Requirement) -> Result<(), TableError> {
    if let Some(field) = column.column_index {
        let seen = table.profile(field);
        let (kind, mixed) = seen.data_type();
        let fits = column.mixed || (kind == column.data_type && !mixed);
        let has_all =
            need == Requirement::Optional || (!seen.has_nulls(table.len()) && column.null_text.is_none());
        if fits && has_all && !(need == Requirement::Key && seen.has_invalid_keys()) {
            return Ok(());
        }
    }
    for row in 0..table.len() {
        let told = column.value(table, row);
        let cell = told.as_value_ref();
        let (at, name) = (|| row_location(at, table, row), || column.name.clone());
        match need {
            Requirement::Key if column.to_text(cell).is_none_or(|text| text.is_empty()) => {
                return Err(TableError::MissingKey { location: at(), column: name() });
            }
            Requirement::Value if cell == contract::ValueRef::Null => {
                return Err(TableError::MissingValue { location: at(), column: name() });
            }
            Requirement::Key | Requirement::Value | Requirement::Optional => {}
        }
        if !column.accepts(cell) {
            let text = column.to_text(cell).map(Cow::into_owned).unwrap_or_default();
            return Err(TableError::TypeMismatch {
                location: at(),
                column: name(),
                data_type: column.data_type,
                text,
            });
        }
    }
    Ok(())
}
