//! The text of a statement for each form of question, made once. Names come from the schema, values are bound.

use contract::source::{Comparison, Filter, Query, Sort};
use contract::{Value, ValueRef};
use rusqlite::{Connection, Result, Statement};

use super::column::{Column, SqlParam};
use super::sort_key::SortKeyKind;

/// The form of a question, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueryShape {
    pub(super) filters: Vec<(usize, Comparison)>,
    pub(super) sort: Option<Sort>,
    pub(super) segment: PageSegment,
}

/// Which rows of the whole order a statement gives. What comes after a row is up to three of these, one after
/// the other, each of which an index can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PageSegment {
    /// The row with a declared key; no order.
    KeyLookup,
    /// From the first.
    FromStart,
    /// Unsorted, from behind a key.
    AfterKey,
    /// With the same sorted value, from behind a key.
    SameSortValue,
    /// With a later sorted value.
    LaterSortValue,
    /// Without a sorted value.
    NullSortValue,
    /// Without a sorted value, from behind a key.
    NullSortValueAfterKey,
    /// From a row number on.
    FromOffset,
}

/// A statement, and what goes where.
#[derive(Debug, Default)]
pub(super) struct SqlTemplate {
    pub(super) sql: String,
    params: Vec<ParamSource>,
}

#[derive(Debug, Clone, Copy)]
enum ParamSource {
    /// The text that means "no value" in a column.
    NullText(usize),
    FilterValue(usize),
    /// The value as it is, and not what it sorts as.
    FilterExact(usize),
    FilterAlternate(usize),
    FilterRangeEnd(usize),
    SortValue,
    KeyPart(usize),
    Limit,
    Offset,
}

/// The values of a question.
pub(super) struct QueryParams<'q> {
    pub(super) filters: &'q [Filter<'q>],
    pub(super) sort: Option<Sort>,
    pub(super) sort_value: Option<&'q Value>,
    pub(super) key: &'q [Value],
    pub(super) limit: usize,
}

impl QueryShape {
    pub(super) fn new(query: &Query<'_>, segment: PageSegment) -> Self {
        Self {
            filters: query.filters.iter().map(|filter| (filter.column, filter.comparison)).collect(),
            sort: query.sort,
            segment,
        }
    }
}

/// What a table's statements have in common.
pub(super) struct SelectBuilder<'t> {
    pub(super) table: &'t str,
    pub(super) columns: &'t [Column],
    /// What decides between rows that the sort leaves equal: columns.
    pub(super) key: &'t [usize],
    /// Else the quoted rowid, where there is one.
    pub(super) rowid: Option<&'t str>,
}

struct SqlWriter<'g> {
    builder: &'g SelectBuilder<'g>,
    sql: String,
    params: Vec<ParamSource>,
}

impl SelectBuilder<'_> {
    pub(super) fn build(&self, form: &QueryShape) -> SqlTemplate {
        let mut writer = SqlWriter { builder: self, sql: String::from("SELECT "), params: Vec::new() };
        writer.select();
        writer.conditions(form);
        writer.order(form);
        // Of rows with a declared key there is one.
        if form.segment != PageSegment::KeyLookup {
            writer.sql.push_str(" LIMIT ?");
            writer.params.push(ParamSource::Limit);
        }
        if form.segment == PageSegment::FromOffset {
            writer.sql.push_str(" OFFSET ?");
            writer.params.push(ParamSource::Offset);
        }
        SqlTemplate { sql: writer.sql, params: writer.params }
    }
}

impl SelectBuilder<'_> {
    /// The row with a key, and behind its columns where it lies: quoted columns.
    pub(super) fn build_key_lookup(&self, address: &str) -> SqlTemplate {
        let filters = self.key.iter().map(|column| (*column, Comparison::Equals)).collect();
        let form = QueryShape { filters, sort: None, segment: PageSegment::KeyLookup };
        let SelectBuilder { table, columns, key, .. } = *self;
        SelectBuilder { table, columns, key, rowid: Some(address) }.build(&form)
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

    fn conditions(&mut self, form: &QueryShape) {
        let mut word = " WHERE ";
        for (at, (column, test)) in form.filters.iter().enumerate() {
            self.sql.push_str(word);
            word = " AND ";
            let is_moment = self.builder.columns[*column].sort_key == Some(SortKeyKind::Timestamp);
            if form.segment == PageSegment::KeyLookup && is_moment {
                // Two keys may mean one moment; each is the key of its own row.
                self.sql.push_str(&self.builder.columns[*column].quoted_name);
                self.sql.push_str(" COLLATE BINARY = ?");
                self.params.push(ParamSource::FilterExact(at));
                continue;
            }
            self.filter(at, *column, *test);
        }
        let sort = form.sort;
        let (sorted, after_key) = match form.segment {
            PageSegment::KeyLookup | PageSegment::FromStart | PageSegment::FromOffset => (None, false),
            PageSegment::AfterKey => (None, true),
            PageSegment::SameSortValue => (Some(" = ?"), true),
            PageSegment::LaterSortValue if sort.is_some_and(|sort| sort.descending) => (Some(" < ?"), false),
            PageSegment::LaterSortValue => (Some(" > ?"), false),
            PageSegment::NullSortValue => (Some(" IS NULL"), false),
            PageSegment::NullSortValueAfterKey => (Some(" IS NULL"), true),
        };
        if let (Some(Sort { column, .. }), Some(condition)) = (sort, sorted) {
            self.sql.push_str(word);
            word = " AND ";
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
            self.sql.push_str(word);
            self.after_key();
        }
    }

    fn filter(&mut self, at: usize, column: usize, test: Comparison) {
        let one = &self.builder.columns[column];
        let is_moment = one.sort_key == Some(SortKeyKind::Timestamp);
        if let (Comparison::Equals, Some(collation)) = (test, one.index_collation) {
            self.sql.push_str(&format!("{} COLLATE {collation} = ? AND ", one.quoted_name));
            self.params.push(ParamSource::FilterValue(at));
        }
        self.sql.push_str(&one.filter_expression(test));
        self.push_null_text(column);
        let (text, binds): (&str, &[ParamSource]) = match test {
            Comparison::Equals if is_moment => {
                (" BETWEEN ? AND ?", &[ParamSource::FilterValue(at), ParamSource::FilterRangeEnd(at)])
            }
            Comparison::AtMost if is_moment => (" <= ?", &[ParamSource::FilterRangeEnd(at)]),
            Comparison::Equals if one.has_two_forms() => {
                (" IN (?, ?)", &[ParamSource::FilterValue(at), ParamSource::FilterAlternate(at)])
            }
            Comparison::Equals => (" = ?", &[ParamSource::FilterValue(at)]),
            Comparison::AtLeast => (" >= ?", &[ParamSource::FilterValue(at)]),
            Comparison::AtMost => (" <= ?", &[ParamSource::FilterValue(at)]),
        };
        self.sql.push_str(text);
        self.params.extend_from_slice(binds);
    }

    /// `(a, b) > (?, ?)`. No part of a key is NULL: such rows are a fault.
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
        for (at, column) in self.builder.key.iter().enumerate() {
            if at > 0 {
                self.sql.push_str(", ");
            }
            self.sort_expression(*column);
        }
    }

    fn order(&mut self, form: &QueryShape) {
        if form.segment == PageSegment::KeyLookup {
            return;
        }
        let mut word = " ORDER BY ";
        if let (
            Some(Sort { column, descending }),
            PageSegment::FromStart | PageSegment::LaterSortValue | PageSegment::FromOffset,
        ) = (form.sort, form.segment)
        {
            self.sql.push_str(word);
            word = ", ";
            self.sort_expression(column);
            // Nothing is the least there is, so it comes last from the greatest down anyway.
            let nulls =
                self.builder.columns[column].may_be_null() && form.segment != PageSegment::LaterSortValue;
            self.sql.push_str(match (descending, nulls) {
                (true, _) => " DESC",
                (false, true) => " ASC NULLS LAST",
                (false, false) => "",
            });
        }
        match self.builder.rowid {
            Some(rowid) => {
                self.sql.push_str(word);
                self.sql.push_str(rowid);
            }
            None if !self.builder.key.is_empty() => {
                self.sql.push_str(word);
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
    /// Puts the values where their marks are; every mark gets one.
    pub(super) fn bind(
        &self,
        statement: &mut Statement<'_>,
        columns: &[Column],
        key: &[usize],
        values: &QueryParams<'_>,
    ) -> Result<()> {
        let filter = |at: usize| {
            let filter = &values.filters[at];
            (&columns[filter.column], filter.comparison, filter.value)
        };
        let number = |at: usize| values.key.get(at).map_or(ValueRef::Null, Value::as_value_ref);
        for (at, bind) in self.params.iter().enumerate() {
            let bound = match *bind {
                ParamSource::NullText(column) => SqlParam::Value(
                    columns[column].null_text.as_deref().map_or(ValueRef::Null, ValueRef::Text),
                ),
                ParamSource::FilterValue(at) => {
                    let (column, test, value) = filter(at);
                    column.filter_param(test, value)
                }
                ParamSource::FilterExact(at) => SqlParam::Value(filter(at).2),
                ParamSource::FilterAlternate(at) => {
                    let (column, _, value) = filter(at);
                    column.alternate_param(value)
                }
                ParamSource::FilterRangeEnd(at) => {
                    let (column, test, value) = filter(at);
                    column.range_end_param(test, value)
                }
                ParamSource::SortValue => {
                    let cell = values.sort_value.map_or(ValueRef::Null, Value::as_value_ref);
                    values.sort.map_or(SqlParam::Value(cell), |sort| columns[sort.column].cursor_param(cell))
                }
                ParamSource::KeyPart(at) => match key.get(at) {
                    Some(column) => columns[*column].cursor_param(number(at)),
                    None => SqlParam::Value(number(at)),
                },
                ParamSource::Limit => {
                    SqlParam::Value(ValueRef::Integer(i64::try_from(values.limit).unwrap_or(i64::MAX)))
                }
                ParamSource::Offset => SqlParam::Value(match number(0) {
                    ValueRef::Integer(seen) => ValueRef::Integer(seen.saturating_add(1)),
                    _ => ValueRef::Integer(0),
                }),
            };
            statement.raw_bind_parameter(at + 1, bound)?;
        }
        Ok(())
    }

    /// Whether SQLite finds the rows by an index, or takes the first there are.
    pub(super) fn is_cheap(&self, connection: &Connection, form: &QueryShape) -> Result<bool> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let nothing = vec![SqlParam::Value(ValueRef::Null); self.params.len()];
        let mut rows = statement.query(rusqlite::params_from_iter(nothing))?;
        while let Some(row) = rows.next()? {
            let step: String = row.get(3)?;
            let is_first = step.starts_with("SCAN") && form.filters.is_empty();
            if !(is_first || (step.starts_with("SEARCH") && form.filters.len() <= 1)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
