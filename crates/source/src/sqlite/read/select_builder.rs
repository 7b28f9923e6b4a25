//! Builds the SQL for each shape of query, once. Names come from the schema, values are bound.

use contract::source::{Comparison, Filter, Query, Sort};
use contract::{Value, ValueRef};
use rusqlite::{Connection, Result, Statement};

use crate::sqlite::column::{Column, SqlParam};
use crate::sqlite::sort_key::SortKeyKind;

/// A query without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueryShape {
    pub(crate) filters: Vec<(usize, Comparison)>,
    pub(crate) sort: Option<Sort>,
    pub(crate) segment: PageSegment,
}

/// Which rows of the total order a statement returns. What follows a row is up to three segments, one after
/// the other, each of which an index can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PageSegment {
    /// The row with a declared key; no order.
    KeyLookup,
    /// From the first row.
    FromStart,
    /// Unsorted, after a key.
    AfterKey,
    /// Rows with the same sort value, after a key.
    SameSortValue,
    /// Rows with a later sort value.
    LaterSortValue,
    /// Rows without a sort value.
    NullSortValue,
    /// Rows without a sort value, after a key.
    NullSortValueAfterKey,
    /// From an offset.
    FromOffset,
    /// Not rows but their number, up to the limit.
    Count,
}

/// A statement, and the source of each parameter.
#[derive(Debug, Default)]
pub(crate) struct SqlTemplate {
    pub(crate) sql: String,
    params: Vec<ParamSource>,
}

#[derive(Debug, Clone, Copy)]
enum ParamSource {
    /// The text that means "no value" in a column.
    NullText(usize),
    FilterValue(usize),
    /// The value itself, not its sort key.
    FilterExact(usize),
    FilterAlternate(usize),
    FilterRangeEnd(usize),
    SortValue,
    KeyPart(usize),
    Limit,
    Offset,
}

/// The values of a query.
pub(crate) struct QueryParams<'q> {
    pub(crate) filters: &'q [Filter<'q>],
    pub(crate) sort: Option<Sort>,
    pub(crate) sort_value: Option<&'q Value>,
    pub(crate) key: &'q [Value],
    pub(crate) limit: usize,
}

impl QueryShape {
    pub(crate) fn new(query: &Query<'_>, segment: PageSegment) -> Self {
        Self {
            filters: query.filters.iter().map(|filter| (filter.column, filter.comparison)).collect(),
            sort: query.sort,
            segment,
        }
    }
}

/// What all statements of a table have in common.
pub(crate) struct SelectBuilder<'t> {
    pub(crate) table: &'t str,
    pub(crate) columns: &'t [Column],
    /// Key columns: they order rows with equal sort values.
    pub(crate) key: &'t [usize],
    /// The quoted rowid, if the table has no key.
    pub(crate) rowid: Option<&'t str>,
}

struct SqlWriter<'g> {
    builder: &'g SelectBuilder<'g>,
    sql: String,
    params: Vec<ParamSource>,
}

impl SelectBuilder<'_> {
    pub(crate) fn build(&self, shape: &QueryShape) -> SqlTemplate {
        let mut writer = SqlWriter { builder: self, sql: String::from("SELECT "), params: Vec::new() };
        if shape.segment == PageSegment::Count {
            writer.sql.push_str("count(*) FROM (SELECT 1 FROM ");
            writer.sql.push_str(self.table);
        } else {
            writer.select();
        }
        writer.conditions(shape);
        writer.order(shape);
        // A declared key has at most one row.
        if shape.segment != PageSegment::KeyLookup {
            writer.sql.push_str(" LIMIT ?");
            writer.params.push(ParamSource::Limit);
        }
        if shape.segment == PageSegment::FromOffset {
            writer.sql.push_str(" OFFSET ?");
            writer.params.push(ParamSource::Offset);
        }
        if shape.segment == PageSegment::Count {
            writer.sql.push(')');
        }
        SqlTemplate { sql: writer.sql, params: writer.params }
    }
}

impl SelectBuilder<'_> {
    /// Finds the row with a key. The locator, as quoted columns, follows the row's own columns.
    pub(crate) fn build_key_lookup(&self, locator: &str) -> SqlTemplate {
        let filters = self.key.iter().map(|column| (*column, Comparison::Equals)).collect();
        let shape = QueryShape { filters, sort: None, segment: PageSegment::KeyLookup };
        let SelectBuilder { table, columns, key, .. } = *self;
        SelectBuilder { table, columns, key, rowid: Some(locator) }.build(&shape)
    }
}

impl SqlWriter<'_> {
    fn select(&mut self) {
        let names: Vec<&str> =
            self.builder.columns.iter().map(|column| column.quoted_name.as_str()).collect();
        self.sql.push_str(&names.join(", "));
        match self.builder.rowid {
            Some(rowid) if names.is_empty() => self.sql.push_str(rowid),
            Some(rowid) => {
                self.sql.push_str(", ");
                self.sql.push_str(rowid);
            }
            None if names.is_empty() => self.sql.push('1'),
            None => {}
        }
        self.sql.push_str(" FROM ");
        self.sql.push_str(self.builder.table);
    }

    fn conditions(&mut self, shape: &QueryShape) {
        let mut keyword = " WHERE ";
        for (index, (column, comparison)) in shape.filters.iter().enumerate() {
            self.sql.push_str(keyword);
            keyword = " AND ";
            let is_timestamp = self.builder.columns[*column].sort_key == Some(SortKeyKind::Timestamp);
            if shape.segment == PageSegment::KeyLookup && is_timestamp {
                // Two keys may denote the same time in different spellings; each is the key of its own row.
                self.sql.push_str(&self.builder.columns[*column].quoted_name);
                self.sql.push_str(" COLLATE BINARY = ?");
                self.params.push(ParamSource::FilterExact(index));
                continue;
            }
            self.filter(index, *column, *comparison);
        }
        let sort = shape.sort;
        let (sorted, after_key) = match shape.segment {
            PageSegment::KeyLookup
            | PageSegment::FromStart
            | PageSegment::FromOffset
            | PageSegment::Count => (None, false),
            PageSegment::AfterKey => (None, true),
            PageSegment::SameSortValue => (Some(" = ?"), true),
            PageSegment::LaterSortValue if sort.is_some_and(|sort| sort.descending) => (Some(" < ?"), false),
            PageSegment::LaterSortValue => (Some(" > ?"), false),
            PageSegment::NullSortValue => (Some(" IS NULL"), false),
            PageSegment::NullSortValueAfterKey => (Some(" IS NULL"), true),
        };
        if let (Some(Sort { column, .. }), Some(condition)) = (sort, sorted) {
            self.sql.push_str(keyword);
            keyword = " AND ";
            match condition {
                " IS NULL" => self.value_expression(column),
                _ => self.sort_expression(column),
            }
            self.sql.push_str(condition);
            if condition != " IS NULL" {
                self.params.push(ParamSource::SortValue);
            }
        }
        if after_key {
            self.sql.push_str(keyword);
            self.after_key();
        }
    }

    fn filter(&mut self, index: usize, column: usize, comparison: Comparison) {
        let column_def = &self.builder.columns[column];
        let is_timestamp = column_def.sort_key == Some(SortKeyKind::Timestamp);
        if let (Comparison::Equals, Some(collation)) = (comparison, column_def.index_collation) {
            self.sql.push_str(&format!("{} COLLATE {collation} = ? AND ", column_def.quoted_name));
            self.params.push(ParamSource::FilterValue(index));
        }
        self.sql.push_str(&column_def.filter_expression(comparison));
        self.push_null_text(column);
        let (text, sources): (&str, &[ParamSource]) = match comparison {
            Comparison::Equals if is_timestamp => {
                (" BETWEEN ? AND ?", &[ParamSource::FilterValue(index), ParamSource::FilterRangeEnd(index)])
            }
            Comparison::AtMost if is_timestamp => (" <= ?", &[ParamSource::FilterRangeEnd(index)]),
            Comparison::Equals if column_def.has_two_forms() => {
                (" IN (?, ?)", &[ParamSource::FilterValue(index), ParamSource::FilterAlternate(index)])
            }
            Comparison::Equals => (" = ?", &[ParamSource::FilterValue(index)]),
            Comparison::AtLeast => (" >= ?", &[ParamSource::FilterValue(index)]),
            Comparison::AtMost => (" <= ?", &[ParamSource::FilterValue(index)]),
        };
        self.sql.push_str(text);
        self.params.extend_from_slice(sources);
    }

    /// `(a, b) > (?, ?)`. No part of a key is NULL: such rows are an error.
    fn after_key(&mut self) {
        if let Some(rowid) = self.builder.rowid {
            self.sql.push_str(rowid);
            self.sql.push_str(" > ?");
            self.params.push(ParamSource::KeyPart(0));
            return;
        }
        let key = self.builder.key;
        self.sql.push('(');
        self.key_columns();
        self.sql.push_str(") > (");
        self.sql.push_str(&vec!["?"; key.len()].join(", "));
        self.sql.push(')');
        self.params.extend((0..key.len()).map(ParamSource::KeyPart));
    }

    fn key_columns(&mut self) {
        for (index, column) in self.builder.key.iter().enumerate() {
            if index > 0 {
                self.sql.push_str(", ");
            }
            self.sort_expression(*column);
        }
    }

    fn order(&mut self, shape: &QueryShape) {
        if matches!(shape.segment, PageSegment::KeyLookup | PageSegment::Count) {
            return;
        }
        let mut keyword = " ORDER BY ";
        if let (
            Some(Sort { column, descending }),
            PageSegment::FromStart | PageSegment::LaterSortValue | PageSegment::FromOffset,
        ) = (shape.sort, shape.segment)
        {
            self.sql.push_str(keyword);
            keyword = ", ";
            self.sort_expression(column);
            // NULL is the least value, so a descending sort puts it last anyway.
            let nulls =
                self.builder.columns[column].may_be_null() && shape.segment != PageSegment::LaterSortValue;
            self.sql.push_str(match (descending, nulls) {
                (true, _) => " DESC",
                (false, true) => " ASC NULLS LAST",
                (false, false) => "",
            });
        }
        match self.builder.rowid {
            Some(rowid) => {
                self.sql.push_str(keyword);
                self.sql.push_str(rowid);
            }
            None if !self.builder.key.is_empty() => {
                self.sql.push_str(keyword);
                self.key_columns();
            }
            None => {}
        }
    }

    fn sort_expression(&mut self, column: usize) {
        self.sql.push_str(&self.builder.columns[column].sort_expression());
        self.push_null_text(column);
    }

    fn value_expression(&mut self, column: usize) {
        self.sql.push_str(&self.builder.columns[column].value_expression());
        self.push_null_text(column);
    }

    fn push_null_text(&mut self, column: usize) {
        if self.builder.columns[column].null_text.is_some() {
            self.params.push(ParamSource::NullText(column));
        }
    }
}

impl SqlTemplate {
    /// Binds a value to each parameter.
    pub(crate) fn bind(
        &self,
        statement: &mut Statement<'_>,
        columns: &[Column],
        key: &[usize],
        values: &QueryParams<'_>,
    ) -> Result<()> {
        let filter = |index: usize| {
            let filter = &values.filters[index];
            (&columns[filter.column], filter.comparison, filter.value)
        };
        let key_part = |index: usize| values.key.get(index).map_or(ValueRef::Null, Value::as_value_ref);
        for (index, bind) in self.params.iter().enumerate() {
            let param = match *bind {
                ParamSource::NullText(column) => SqlParam::Value(
                    columns[column].null_text.as_deref().map_or(ValueRef::Null, ValueRef::Text),
                ),
                ParamSource::FilterValue(index) => {
                    let (column, comparison, value) = filter(index);
                    column.filter_param(comparison, value)
                }
                ParamSource::FilterExact(index) => SqlParam::Value(filter(index).2),
                ParamSource::FilterAlternate(index) => {
                    let (column, _, value) = filter(index);
                    column.alternate_param(value)
                }
                ParamSource::FilterRangeEnd(index) => {
                    let (column, comparison, value) = filter(index);
                    column.range_end_param(comparison, value)
                }
                ParamSource::SortValue => {
                    let value = values.sort_value.map_or(ValueRef::Null, Value::as_value_ref);
                    values
                        .sort
                        .map_or(SqlParam::Value(value), |sort| columns[sort.column].cursor_param(value))
                }
                ParamSource::KeyPart(index) => match key.get(index) {
                    Some(column) => columns[*column].cursor_param(key_part(index)),
                    None => SqlParam::Value(key_part(index)),
                },
                ParamSource::Limit => {
                    SqlParam::Value(ValueRef::Integer(i64::try_from(values.limit).unwrap_or(i64::MAX)))
                }
                ParamSource::Offset => SqlParam::Value(match key_part(0) {
                    ValueRef::Integer(seen) => ValueRef::Integer(seen.saturating_add(1)),
                    _ => ValueRef::Integer(0),
                }),
            };
            statement.raw_bind_parameter(index + 1, param)?;
        }
        Ok(())
    }

    /// Whether SQLite finds the rows by an index, or returns the first rows of the table.
    pub(crate) fn is_cheap(&self, connection: &Connection, shape: &QueryShape) -> Result<bool> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let nulls = vec![SqlParam::Value(ValueRef::Null); self.params.len()];
        let mut rows = statement.query(rusqlite::params_from_iter(nulls))?;
        while let Some(row) = rows.next()? {
            let step: String = row.get(3)?;
            let is_first = step.starts_with("SCAN") && shape.filters.is_empty();
            if !(is_first || (step.starts_with("SEARCH") && shape.filters.len() <= 1)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
