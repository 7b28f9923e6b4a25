//! A reader for which only the rows of one caller exist.

use std::ops::Deref;
use std::sync::Arc;

use super::rules::BoundRows;
use crate::source::{
    Aggregate, CancelFlag, ColumnShape, Filter, Groups, Query, ReadRequest, Reader, RowFlow, RowPosition,
    Search, SearchOutcome, SourceError, Total,
};
use crate::value::ValueRef;

/// The reader of one call: of all rows, or of the caller's.
pub enum CallReader<'r> {
    Whole(&'r dyn Reader),
    Restricted(RestrictedReader<'r>),
}

impl<'r> Deref for CallReader<'r> {
    type Target = dyn Reader + 'r;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Whole(reader) => *reader,
            Self::Restricted(reader) => reader,
        }
    }
}

/// Adds the filters of a caller to every read. This is the only place where rules and reads meet.
pub struct RestrictedReader<'r> {
    reader: &'r dyn Reader,
    /// Of the shape.
    columns: &'r [ColumnShape],
    rows: BoundRows,
}

impl<'r> RestrictedReader<'r> {
    pub fn new(reader: &'r dyn Reader, columns: &'r [ColumnShape], rows: BoundRows) -> Self {
        Self { reader, columns, rows }
    }

    pub fn rows(&self) -> &BoundRows {
        &self.rows
    }

    /// Reads as the caller, if the source decides by itself which rows exist.
    fn read<T>(&self, read: impl FnOnce(&dyn Reader) -> Result<T, SourceError>) -> Result<T, SourceError> {
        match self.rows.identity()? {
            None => read(self.reader),
            Some(identity) => read(&*self.reader.as_caller(identity)?),
        }
    }

    fn with_rules<'q>(&'q self, filters: &[Filter<'q>]) -> Vec<Filter<'q>> {
        // The caller's rows first: the rules are the same for all calls, so an index may serve them.
        self.rows.filters().chain(filters.iter().copied()).collect()
    }

    fn restrict<'q>(&'q self, query: &Query<'q>) -> Query<'q> {
        Query {
            filters: self.with_rules(&query.filters),
            sort: query.sort.clone(),
            sort_links: query.sort_links.clone(),
            after: query.after,
            rows_max: query.rows_max,
            cancelled: query.cancelled,
            progress: query.progress,
        }
    }

    fn get_with(
        &self,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
        get: impl FnOnce(&mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError>,
    ) -> Result<bool, SourceError> {
        let mut is_found = false;
        get(&mut |cells| {
            if self.rows.pass(self.columns, cells) {
                is_found = true;
                row(cells);
            }
        })?;
        Ok(is_found)
    }
}

impl Reader for RestrictedReader<'_> {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        match read {
            ReadRequest::Get => self.reader.can_run_inline(read),
            ReadRequest::List(query) => self.reader.can_run_inline(&ReadRequest::List(&self.restrict(query))),
        }
    }

    fn notice(&self) -> Option<Arc<str>> {
        self.reader.notice()
    }

    fn key_notice(&self) -> Option<Arc<str>> {
        // A row that is not found may be somebody else's.
        None
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.get_with(row, |row| self.read(|reader| reader.get(key, row)))
    }

    fn get_cancellable(
        &self,
        key: &[ValueRef<'_>],
        cancelled: &CancelFlag,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.get_with(row, |row| self.read(|reader| reader.get_cancellable(key, cancelled, row)))
    }

    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.get_with(row, |row| self.read(|reader| reader.get_inline(key, row)))
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.read(|reader| reader.list(&self.restrict(query), row))
    }

    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.read(|reader| reader.list_inline(&self.restrict(query), row))
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        let restricted = Aggregate {
            filters: self.with_rules(&aggregate.filters),
            groups: aggregate.groups.clone(),
            measures: aggregate.measures.clone(),
            ..*aggregate
        };
        self.read(|reader| reader.aggregate(&restricted))
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        let search =
            Search { filters: self.with_rules(&search.filters), terms: search.terms.clone(), ..*search };
        self.read(|reader| reader.search(&search, row))
    }
}
