//! Where a page ended, and what orders its rows.

use contract::source::{CursorPosition, LinkedSort, Query, SourceError};
use contract::{Value, ValueRef};

use crate::sqlite::read::row_buffer::RowBuffer;
use crate::sqlite::read::{Paging, TableReader};

/// Where a page ended, checked against the table.
#[derive(Debug, Clone)]
pub(crate) struct PageCursor {
    pub(crate) sort_values: Vec<Value>,
    pub(crate) key: Vec<Value>,
}

impl TableReader {
    /// Checks a cursor. Spile issued it, but perhaps for another shape of the table.
    pub(crate) fn parse_cursor(&self, query: &Query<'_>) -> Result<Option<PageCursor>, SourceError> {
        let Some(CursorPosition { sort_values, key }) = query.after else { return Ok(None) };
        let after = PageCursor { sort_values: sort_values.clone(), key: key.clone() };
        let is_valid = match (&self.paging, &key[..]) {
            (Paging::Key, key) => key.len() == self.key.len() && !key.contains(&Value::Null),
            (Paging::Rowid(_) | Paging::Offset, [Value::Integer(_), Value::Integer(0)]) => true,
            (Paging::Rowid(_) | Paging::Offset, _) => false,
        };
        if is_valid && sort_values.len() == query.sort.len() {
            Ok(Some(after))
        } else {
            Err(SourceError::StaleCursor)
        }
    }

    pub(crate) fn cursor_after(&self, query: &Query<'_>, page: &RowBuffer) -> Option<PageCursor> {
        let row = page.row_count().checked_sub(1)?;
        let sort_value =
            |by: &LinkedSort<'_>| self.sort_value(by, page.value_ref(row, by.sort.column)).to_value();
        let sort_values = query.sorts().iter().map(sort_value).collect();
        let key = match self.paging {
            Paging::Key => self.key.iter().map(|column| page.value(row, *column)).collect(),
            Paging::Rowid(_) | Paging::Offset => vec![Value::Integer(page.position(row))],
        };
        Some(PageCursor { sort_values, key })
    }

    /// A page that ends before a row with the same key and sort value cannot be continued after it.
    pub(super) fn check_page_end(
        &self,
        query: &Query<'_>,
        page: &RowBuffer,
        next: usize,
    ) -> Result<(), SourceError> {
        if self.key_is_declared || self.key.is_empty() || next == 0 {
            return Ok(());
        }
        let same = |column: &usize| page.value_ref(next, *column) == page.value_ref(next - 1, *column);
        let same_sort = |by: &LinkedSort<'_>| {
            let value = |row| self.sort_value(by, page.value_ref(row, by.sort.column)).to_value();
            value(next) == value(next - 1)
        };
        if !self.key.iter().all(same) || !query.sorts().iter().all(same_sort) {
            return Ok(());
        }
        let key: Vec<ValueRef<'_>> = self.key.iter().map(|at| page.value_ref(next, *at)).collect();
        Err(self.duplicate_key_error(&key))
    }

    /// The value that orders a row, from its value in the sorted column.
    pub(crate) fn sort_value<'v>(&self, by: &LinkedSort<'v>, value: ValueRef<'v>) -> ValueRef<'v> {
        by.value(self.columns[by.sort.column].data_type, value)
    }

    #[cold]
    pub(super) fn unsortable_view_error(&self) -> SourceError {
        let message = format!(
            "`{}` is a view, which cannot be sorted by a field of a linked row; sort by its own columns",
            self.table.name
        );
        SourceError::Incompatible { detail: message.clone(), message }
    }
}
