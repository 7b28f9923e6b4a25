//! Reads rows: finds them by key, converts their values, applies filters and search terms.

use std::convert::Infallible;
use std::sync::Arc;

use contract::source::{Comparison, Filter, all_pass};
use contract::{ValueRef, order};

use super::column::TableColumn;
use super::view::TableView;
use crate::snapshot_reader::{self, CowValue, SortableColumn, Violations};
use crate::text_search::TermMatcher;

/// A filter, with its operand in the form in which it is compared.
pub(super) struct TableFilter<'a> {
    column: &'a TableColumn,
    filter: Filter<'a>,
    operands: Vec<CowValue<'a>>,
}

impl snapshot_reader::ReadableTable for TableView {
    /// The values of one row.
    type Scratch<'a> = Vec<CowValue<'a>>;
    type PreparedFilter<'a> = TableFilter<'a>;

    fn find_by_index(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        match &self.orders.key_columns[..] {
            [only] => index.find(&self.table, &[&self.columns[*only]], key),
            positions => {
                let columns: Vec<&TableColumn> =
                    positions.iter().map(|position| &self.columns[*position]).collect();
                index.find(&self.table, &columns, key)
            }
        }
    }

    fn with_row<'a>(&'a self, row: u32, values: &mut Vec<CowValue<'a>>, then: impl FnOnce(&[ValueRef<'_>])) {
        values.clear();
        values.extend(self.columns.iter().map(|column| column.value(&self.table, row)));
        snapshot_reader::with_values(values, CowValue::as_value_ref, then);
    }

    fn prepare_filters<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<TableFilter<'a>> {
        let sieve = |filter: &Filter<'a>| {
            let column = &self.columns[filter.column];
            let operands = filter.values().map(|value| column.normalize(CowValue::Borrowed(value)));
            TableFilter { column, filter: *filter, operands: operands.collect() }
        };
        filters.iter().map(sieve).collect()
    }

    fn matches_filters<'a>(
        &'a self,
        row: u32,
        prepared: &[TableFilter<'a>],
        _: &mut Vec<CowValue<'a>>,
    ) -> bool {
        let passes = |_, filter: &TableFilter<'a>| {
            Ok::<_, Infallible>(filter.matches(&filter.column.value(&self.table, row)))
        };
        let Ok(passes) = all_pass(prepared, |filter| filter.filter.or_next, passes);
        passes
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }

    fn notice(&self) -> Option<Arc<str>> {
        self.table.notice.clone()
    }

    fn key_notice(&self, key: &[usize]) -> Option<Arc<str>> {
        let is_key = |field: usize| key.iter().any(|at| self.columns[*at].column_index == Some(field));
        let is_outdated = self.table.outdated().iter().any(|(_, field)| is_key(*field));
        self.notice().filter(|_| is_outdated)
    }

    fn search_columns(&self, positions: &[usize]) -> Vec<&TableColumn> {
        positions.iter().map(|position| &self.columns[*position]).collect()
    }

    fn matches_all_terms<'a>(
        &'a self,
        row: u32,
        columns: &[&TableColumn],
        matcher: &mut TermMatcher,
        _: &mut Vec<CowValue<'a>>,
    ) -> bool {
        columns.iter().any(|column| {
            let values = column.value(&self.table, row);
            column.to_text(values.as_value_ref()).is_some_and(|text| matcher.match_text(&text))
        })
    }
}

impl TableFilter<'_> {
    fn matches(&self, value: &CowValue<'_>) -> bool {
        let own = self.column.normalize(value.clone());
        let own = own.as_value_ref();
        let compare = |comparison: Comparison, operand: &CowValue<'_>| {
            order::matches_filter(self.column.data_type, own, comparison, operand.as_value_ref())
        };
        let equals = || self.operands.iter().any(|operand| compare(Comparison::Equals, operand));
        match self.filter.comparison {
            Comparison::Equals => equals(),
            Comparison::NotEquals => !equals(),
            Comparison::AtLeast | Comparison::AtMost | Comparison::Contains | Comparison::StartsWith => {
                self.operands.iter().any(|operand| compare(self.filter.comparison, operand))
            }
            Comparison::IsNull => own == ValueRef::Null,
            Comparison::IsNotNull => own != ValueRef::Null,
            Comparison::OneOfKeys | Comparison::NoneOfKeys => self.filter.matches(self.column.data_type, own),
        }
    }
}
