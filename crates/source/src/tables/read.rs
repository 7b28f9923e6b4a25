//! Reads rows of a table: found by their key, told cell by cell, tried by filters and words.

use contract::source::{Comparison, Filter};
use contract::{ValueRef, order};

use super::column::TableColumn;
use super::view::TableView;
use crate::snapshot_reader::{self, CowValue, SortableColumn};
use crate::text_search::TermMatcher;

/// A filter, with its value as it is compared.
pub(super) struct TableFilter<'a> {
    column: &'a TableColumn,
    comparison: Comparison,
    operand: CowValue<'a>,
}

impl snapshot_reader::ReadableTable for TableView {
    /// The cells of one row.
    type Scratch<'a> = Vec<CowValue<'a>>;
    type PreparedFilter<'a> = TableFilter<'a>;

    fn find_by_index(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        match &self.orders.key_columns[..] {
            [only] => index.find(&self.table, &[&self.columns[*only]], key),
            places => {
                let columns: Vec<&TableColumn> = places.iter().map(|place| &self.columns[*place]).collect();
                index.find(&self.table, &columns, key)
            }
        }
    }

    fn with_row<'a>(&'a self, row: u32, told: &mut Vec<CowValue<'a>>, then: impl FnOnce(&[ValueRef<'_>])) {
        told.clear();
        told.extend(self.columns.iter().map(|column| column.value(&self.table, row)));
        snapshot_reader::with_values(told, CowValue::as_value_ref, then);
    }

    fn prepare_filters<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<TableFilter<'a>> {
        let sieve = |filter: &Filter<'a>| {
            let column = &self.columns[filter.column];
            TableFilter {
                column,
                comparison: filter.comparison,
                operand: column.normalize(CowValue::Borrowed(filter.value)),
            }
        };
        filters.iter().map(sieve).collect()
    }

    fn matches_filters<'a>(
        &'a self,
        row: u32,
        sieves: &[TableFilter<'a>],
        _: &mut Vec<CowValue<'a>>,
    ) -> bool {
        sieves.iter().all(|TableFilter { column, comparison: test, operand: bound }| {
            let own = column.normalize(column.value(&self.table, row));
            order::matches_filter(column.data_type, own.as_value_ref(), *test, bound.as_value_ref())
        })
    }

    fn search_columns(&self, places: &[usize]) -> Vec<&TableColumn> {
        places.iter().map(|place| &self.columns[*place]).collect()
    }

    fn matches_all_terms<'a>(
        &'a self,
        row: u32,
        columns: &[&TableColumn],
        hunt: &mut TermMatcher,
        _: &mut Vec<CowValue<'a>>,
    ) -> bool {
        columns.iter().any(|column| {
            let told = column.value(&self.table, row);
            column.to_text(told.as_value_ref()).is_some_and(|text| hunt.match_text(&text))
        })
    }
}
