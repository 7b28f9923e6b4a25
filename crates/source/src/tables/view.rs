//! A table seen through the compiled shape.

use std::borrow::Cow;
use std::sync::Arc;

use contract::nearest;
use contract::source::TableShape;

use super::column::TableColumn;
use super::error::{RowLocation, TableError};
use super::index::TableKeyIndex;
use super::snapshot::{FileSnapshot, FormatLoader};
use super::table::Table;
use crate::key_index::DuplicateKey;
use crate::snapshot_reader::column_lookup::{self, Requirement};
use crate::snapshot_reader::{CowValue, SortOrders, SortableTable, TableLoader, Violations};

/// The contract's columns by their names in the file. Outlives every single snapshot.
pub(super) struct TableMapping {
    table: String,
    columns: Vec<TableColumnMapping>,
    /// Positions in `columns`.
    key_columns: Vec<usize>,
}

struct TableColumnMapping {
    /// How many columns of this name come before it.
    occurrence: usize,
    nullable: bool,
    column: TableColumn,
}

/// One snapshot of the table, ready to be read.
pub(super) struct TableView {
    /// The position of the table in the file.
    pub(super) table_index: usize,
    pub(super) table: Arc<Table>,
    /// In the order of the shape.
    pub(super) columns: Vec<TableColumn>,
    pub(super) index: Option<TableKeyIndex>,
    pub(super) orders: SortOrders,
    pub(super) violations: Violations,
}

impl TableLoader for FormatLoader {
    type Mapping = TableMapping;
    type View = TableView;

    fn map_columns(&self, shape: &TableShape, snapshot: &FileSnapshot) -> TableMapping {
        TableMapping::new(shape, snapshot)
    }

    fn open_view(mapping: &TableMapping, snapshot: &FileSnapshot) -> Result<TableView, TableError> {
        mapping.open_view(snapshot)
    }

    fn open_partial_view(mapping: &TableMapping, snapshot: &FileSnapshot) -> Result<TableView, TableError> {
        mapping.open_partial_view(snapshot)
    }

    fn row_error(mapping: &TableMapping, view: &TableView, row: u32) -> Option<TableError> {
        let check = |position: &usize| {
            let (column, requirement) = (&view.columns[*position], mapping.requirement(*position));
            check_value(view.table_index, &view.table, column, requirement, row)
        };
        view.violations.columns.iter().find_map(|position| check(position).err())
    }

    fn duplicate_error(mapping: &TableMapping, view: &TableView, row: u32) -> Option<TableError> {
        let second = *view.violations.duplicates.get(&row)?;
        let key: Vec<&TableColumn> =
            mapping.key_columns.iter().map(|position| &view.columns[*position]).collect();
        let duplicate = DuplicateKey { first: row, second };
        Some(duplicate_error(view.table_index, &view.table, &key, duplicate))
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

    fn has_duplicate_keys(&self) -> bool {
        !self.violations.duplicates.is_empty()
    }

    /// The row number: values are stored by column.
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
    fn new(shape: &TableShape, snapshot: &FileSnapshot) -> Self {
        let header =
            snapshot.find_table(&shape.table).map(|at| &snapshot.tables[at].header[..]).unwrap_or_default();
        let columns = shape.columns.iter().map(|column| TableColumnMapping {
            occurrence: column_lookup::occurrence_of(column, header),
            nullable: column.nullable,
            column: TableColumn {
                name: column.name.clone(),
                column_index: None,
                data_type: column.data_type,
                mixed: column.mixed,
                null_texts: column.null_texts.clone(),
                format: column.format.clone(),
                has_nested_json: false,
            },
        });
        Self { table: shape.table.clone(), columns: columns.collect(), key_columns: shape.key.clone() }
    }

    /// The position in the shape of the column with this name.
    pub(super) fn column_position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|wanted| wanted.column.name == name)
    }

    /// A view of a snapshot that fits the shape.
    pub(super) fn open_view(&self, snapshot: &FileSnapshot) -> Result<TableView, TableError> {
        self.open(snapshot, None)
    }

    /// A view of a snapshot that may have values or keys which do not fit the shape.
    fn open_partial_view(&self, snapshot: &FileSnapshot) -> Result<TableView, TableError> {
        self.open(snapshot, Some(Violations::default()))
    }

    /// Collects violations if there is a list for them, and fails at the first one otherwise.
    fn open(
        &self,
        snapshot: &FileSnapshot,
        mut violations: Option<Violations>,
    ) -> Result<TableView, TableError> {
        let at = snapshot.find_table(&self.table).ok_or_else(|| {
            let others = snapshot.tables.iter().map(|table| table.name.as_str());
            let suggestion = nearest(&self.table, others).map(str::to_owned);
            TableError::TableNotFound { name: self.table.clone(), suggestion }
        })?;
        let table = &snapshot.tables[at];
        let mut columns = Vec::with_capacity(self.columns.len());
        for (position, wanted) in self.columns.iter().enumerate() {
            let field = self.find_column(wanted, table)?;
            let column = TableColumn {
                column_index: field,
                has_nested_json: table.has_nested_json,
                ..wanted.column.clone()
            };
            match (check_column(at, table, &column, self.requirement(position)), &mut violations) {
                (Ok(()), _) => {}
                (Err(_), Some(violations)) => violations.columns.push(position),
                (Err(error), None) => return Err(error),
            }
            columns.push(column);
        }
        let key: Vec<&TableColumn> = self.key_columns.iter().map(|position| &columns[*position]).collect();
        let index = match &mut violations {
            _ if key.is_empty() => None,
            None => Some(
                TableKeyIndex::build(table, &key, table.len())
                    .map_err(|duplicate| duplicate_error(at, table, &key, duplicate))?,
            ),
            Some(violations) => {
                let (index, duplicates) = TableKeyIndex::build_with_duplicates(table, &key);
                violations.duplicates = duplicates;
                Some(index)
            }
        };
        Ok(TableView {
            table_index: at,
            table: table.clone(),
            columns,
            orders: SortOrders::new(
                &self.key_columns,
                if index.is_some() { 0 } else { snapshot.content_hash() },
            ),
            index,
            violations: violations.unwrap_or_default(),
        })
    }

    fn requirement(&self, position: usize) -> Requirement {
        let wanted = &self.columns[position];
        let nullable = wanted.nullable || !wanted.column.null_texts.is_empty();
        Requirement::of(self.key_columns.contains(&position), nullable)
    }

    fn find_column(&self, wanted: &TableColumnMapping, table: &Table) -> Result<Option<usize>, TableError> {
        let name = &wanted.column.name;
        match column_lookup::find_column(name, wanted.occurrence, &table.header) {
            Some(position) => Ok(Some(position)),
            None if table.is_schemaless => Ok(None),
            None => {
                let is_ours = |name: &str| self.columns.iter().any(|wanted| wanted.column.name == name);
                let suggestion = column_lookup::similar_column(name, &table.header, is_ours);
                Err(TableError::ColumnNotFound { name: name.clone(), suggestion })
            }
        }
    }
}

fn duplicate_error(
    at: usize,
    table: &Table,
    key: &[&TableColumn],
    DuplicateKey { first, second }: DuplicateKey,
) -> TableError {
    let text = |column: &&TableColumn| match column.to_text(column.value(table, second).as_value_ref()) {
        Some(text) => text.into_owned(),
        None => String::new(),
    };
    TableError::DuplicateKey {
        locations: [row_location(at, table, first), row_location(at, table, second)],
        columns: key.iter().map(|column| column.name.clone()).collect(),
        values: key.iter().map(text).collect(),
    }
}

fn row_location(at: usize, table: &Table, row: u32) -> RowLocation {
    RowLocation { table_index: at, row, unit: table.row_unit, number: table.row_number(row) }
}

/// The column's profile decides most cases. Otherwise every row is checked, so that the error can name the row.
fn check_column(
    at: usize,
    table: &Table,
    column: &TableColumn,
    requirement: Requirement,
) -> Result<(), TableError> {
    if let Some(field) = column.column_index {
        let profile = table.profile(field);
        let (kind, mixed) = table.data_type(field);
        let knows_nulls = table.null_texts(field).is_empty() || table.null_texts(field) == column.null_texts;
        let is_known = knows_nulls && table.format(field) == column.format.as_ref();
        let fits = column.mixed || (is_known && kind == column.data_type && !mixed);
        let has_all = requirement == Requirement::Optional
            || (!profile.has_nulls(table.len().into()) && column.null_texts.is_empty());
        if fits && has_all && !(requirement == Requirement::Key && profile.has_invalid_keys()) {
            return Ok(());
        }
    }
    (0..table.len()).try_for_each(|row| check_value(at, table, column, requirement, row))
}

fn check_value(
    at: usize,
    table: &Table,
    column: &TableColumn,
    requirement: Requirement,
    row: u32,
) -> Result<(), TableError> {
    let value = column.value(table, row);
    let cell = value.as_value_ref();
    let (location, name) = (|| row_location(at, table, row), || column.name.clone());
    let is_outdated = || column.column_index.is_some_and(|field| table.is_outdated(row, field));
    match requirement {
        Requirement::Key if column.to_text(cell).is_none_or(|text| text.is_empty()) => {
            return Err(TableError::MissingKey { location: location(), column: name() });
        }
        Requirement::Value if cell == contract::ValueRef::Null && !is_outdated() => {
            return Err(TableError::MissingValue { location: location(), column: name() });
        }
        Requirement::Key | Requirement::Value | Requirement::Optional => {}
    }
    if !column.accepts(cell) {
        let text = column.to_text(cell).map(Cow::into_owned).unwrap_or_default();
        let data_type = column.data_type;
        return Err(TableError::TypeMismatch { location: location(), column: name(), data_type, text });
    }
    Ok(())
}
