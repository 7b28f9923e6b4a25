//! Builds the SQL for each shape of query, once. Names come from the schema, values are bound.

use std::collections::HashMap;

use contract::source::{Comparison, Filter, Query, Sort};
use contract::{Value, ValueRef};
use rusqlite::{Connection, Result, Statement};

use crate::sqlite::column::{Column, SqlParam};
use crate::sqlite::key_blob;
use crate::sqlite::reserved_names::{
    CONTAINS_FUNCTION, IN_KEYS_FUNCTION, INTEGER_TOTALS_FUNCTION, STARTS_WITH_FUNCTION,
};
use crate::sqlite::sort_key::SortKeyKind;

/// A query without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueryShape {
    pub(crate) filters: Vec<FilterShape>,
    pub(crate) sort: Vec<Sort>,
    pub(crate) segment: PageSegment,
}

/// A filter without its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FilterShape {
    pub(crate) column: usize,
    pub(crate) comparison: Comparison,
    pub(crate) operand_count: usize,
    pub(crate) or_next: bool,
}

/// So many keys are listed in a statement; for more, a function looks values up.
const LISTED_KEYS_MAX: usize = 1024;

impl FilterShape {
    pub(crate) fn new(filter: &Filter<'_>) -> Self {
        let operand_count = match filter.keys {
            None => 1 + filter.more.len(),
            // Few different statements for many sets.
            Some(keys) => keys.len().max(1).next_power_of_two(),
        };
        Self { column: filter.column, comparison: filter.comparison, operand_count, or_next: filter.or_next }
    }

    pub(crate) fn equals(column: usize) -> Self {
        Self { column, comparison: Comparison::Equals, operand_count: 1, or_next: false }
    }
}

/// Which rows of the total order a statement returns. What follows a row are several segments, one after the other, each
/// of which an index can serve: first the rows with equal sort values and a later key, then those that are equal in all
/// sorted columns but the last one, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PageSegment {
    /// The row with a declared key; no order.
    KeyLookup,
    /// From the first row.
    FromStart,
    /// Unsorted, after a key.
    AfterKey,
    /// Rows with the same values in all sorted columns, after a key. `nulls` has a bit for each of them that has no value.
    SameSortValues { nulls: u8 },
    /// Rows with the same values in the first `same` sorted columns, and a later value in the next one.
    LaterSortValue { same: u8, nulls: u8 },
    /// Rows with the same values in the first `same` sorted columns, and no value in the next one.
    NullSortValue { same: u8, nulls: u8 },
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
    /// The operand of a filter, by the index of both.
    FilterValue(usize, usize),
    /// The value itself, not its sort key.
    FilterExact(usize),
    FilterAlternate(usize, usize),
    FilterRangeEnd(usize, usize),
    /// The operand of a comparison of texts.
    FilterText(usize),
    /// A key of a filter's set, by the index of both. After the last one it is repeated.
    FilterKey(usize, usize),
    /// All keys of a filter's set.
    FilterKeys(usize),
    SortValue(usize),
    KeyPart(usize),
    Limit,
    Offset,
}

/// The values of a query.
pub(crate) struct QueryParams<'q> {
    pub(crate) filters: &'q [Filter<'q>],
    pub(crate) sort: &'q [Sort],
    pub(crate) sort_values: &'q [Value],
    pub(crate) key: &'q [Value],
    pub(crate) limit: usize,
}

impl QueryShape {
    pub(crate) fn new(query: &Query<'_>, segment: PageSegment) -> Self {
        Self {
            filters: query.filters.iter().map(FilterShape::new).collect(),
            sort: query.sort.clone(),
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
    /// All rows that pass the filters. With a locator, its columns come before the others and order the rows; `is_next`
    /// continues after one.
    pub(crate) fn build_scan(
        &self,
        columns: &[&str],
        filters: &[FilterShape],
        locator: &[String],
        is_next: bool,
    ) -> SqlTemplate {
        let mut writer = SqlWriter { builder: self, sql: String::from("SELECT "), params: Vec::new() };
        let select: Vec<&str> = locator.iter().map(String::as_str).chain(columns.iter().copied()).collect();
        writer.sql.push_str(if select.is_empty() { "1".to_owned() } else { select.join(", ") }.as_str());
        writer.sql.push_str(" FROM ");
        writer.sql.push_str(self.table);
        let shape =
            QueryShape { filters: filters.to_vec(), sort: Vec::new(), segment: PageSegment::FromStart };
        writer.conditions(&shape);
        if is_next {
            writer.sql.push_str(if filters.is_empty() { " WHERE (" } else { " AND (" });
            writer.sql.push_str(&locator.join(", "));
            writer.sql.push_str(") > (");
            writer.sql.push_str(&vec!["?"; locator.len()].join(", "));
            writer.sql.push(')');
            writer.params.extend((0..locator.len()).map(ParamSource::KeyPart));
        }
        if !locator.is_empty() {
            writer.sql.push_str(" ORDER BY ");
            writer.sql.push_str(&locator.join(", "));
        }
        SqlTemplate { sql: writer.sql, params: writer.params }
    }

    /// Counts the rows that pass the filters, or adds up these columns of integers, which counts them too. With the name of
    /// the rowid, only those of a range of rowids, whose two ends are the last parameters.
    pub(crate) fn build_totals(
        &self,
        columns: &[usize],
        filters: &[FilterShape],
        rowid: Option<&str>,
    ) -> SqlTemplate {
        let total = |column: &usize| {
            let name = &self.columns[*column].quoted_name;
            format!("{INTEGER_TOTALS_FUNCTION}({name})")
        };
        let totals: Vec<String> = columns.iter().map(total).collect();
        let select = if totals.is_empty() { "count(*)".to_owned() } else { totals.join(", ") };
        let sql = format!("SELECT {select} FROM {}", self.table);
        let mut writer = SqlWriter { builder: self, sql, params: Vec::new() };
        let shape =
            QueryShape { filters: filters.to_vec(), sort: Vec::new(), segment: PageSegment::FromStart };
        writer.conditions(&shape);
        if let Some(rowid) = rowid {
            writer.sql.push_str(if filters.is_empty() { " WHERE " } else { " AND " });
            writer.sql.push_str(&format!("{rowid} BETWEEN ? AND ?"));
        }
        SqlTemplate { sql: writer.sql, params: writer.params }
    }

    /// Finds the row with a key. The locator, as quoted columns, follows the row's own columns.
    pub(crate) fn build_key_lookup(&self, locator: &str) -> SqlTemplate {
        let filters = self.key.iter().map(|column| FilterShape::equals(*column)).collect();
        let shape = QueryShape { filters, sort: Vec::new(), segment: PageSegment::KeyLookup };
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
        let mut is_joined = false;
        for (index, filter) in shape.filters.iter().enumerate() {
            self.sql.push_str(if is_joined { " OR " } else { keyword });
            keyword = " AND ";
            if is_joined || filter.or_next {
                self.sql.push_str(if is_joined { "(" } else { "((" });
                self.filter(index, filter);
                self.sql.push_str(if filter.or_next { ")" } else { "))" });
                is_joined = filter.or_next;
                continue;
            }
            let is_timestamp = self.builder.columns[filter.column].sort_key == Some(SortKeyKind::Timestamp);
            if shape.segment == PageSegment::KeyLookup && is_timestamp {
                // Two keys may denote the same time in different spellings; each is the key of its own row.
                self.sql.push_str(&self.builder.columns[filter.column].quoted_name);
                self.sql.push_str(" COLLATE BINARY = ?");
                self.params.push(ParamSource::FilterExact(index));
                continue;
            }
            self.filter(index, filter);
        }
        let (same, nulls, next, after_key) = match shape.segment {
            PageSegment::KeyLookup
            | PageSegment::FromStart
            | PageSegment::FromOffset
            | PageSegment::Count => (0, 0, None, false),
            PageSegment::AfterKey => (0, 0, None, true),
            PageSegment::SameSortValues { nulls } => (shape.sort.len(), nulls, None, true),
            PageSegment::LaterSortValue { same, nulls } => (usize::from(same), nulls, Some(false), false),
            PageSegment::NullSortValue { same, nulls } => (usize::from(same), nulls, Some(true), false),
        };
        for (at, sort) in shape.sort.iter().enumerate().take(same) {
            self.sql.push_str(keyword);
            keyword = " AND ";
            if nulls >> at & 1 == 1 {
                self.value_expression(sort.column);
                self.sql.push_str(" IS NULL");
            } else {
                self.sort_expression(sort.column);
                self.sql.push_str(" = ?");
                self.params.push(ParamSource::SortValue(at));
            }
        }
        if let (Some(sort), Some(is_null)) = (shape.sort.get(same), next) {
            self.sql.push_str(keyword);
            keyword = " AND ";
            if is_null {
                self.value_expression(sort.column);
                self.sql.push_str(" IS NULL");
            } else {
                self.sort_expression(sort.column);
                self.sql.push_str(if sort.descending { " < ?" } else { " > ?" });
                self.params.push(ParamSource::SortValue(same));
            }
        }
        if after_key {
            self.sql.push_str(keyword);
            self.after_key();
        }
    }

    fn filter(&mut self, index: usize, filter: &FilterShape) {
        let column = filter.column;
        match filter.comparison {
            Comparison::Equals if filter.operand_count == 1 => {
                self.comparison(index, 0, column, Comparison::Equals);
            }
            Comparison::Equals => self.any_of(index, filter),
            // A row without a value passes: `NOT` of an unknown truth would be unknown.
            Comparison::NotEquals => {
                self.any_of(index, filter);
                self.sql.push_str(" IS NOT TRUE");
            }
            Comparison::AtLeast | Comparison::AtMost => self.comparison(index, 0, column, filter.comparison),
            Comparison::Contains | Comparison::StartsWith => {
                let function = if filter.comparison == Comparison::Contains {
                    CONTAINS_FUNCTION
                } else {
                    STARTS_WITH_FUNCTION
                };
                self.sql.push_str(function);
                self.sql.push('(');
                self.value_expression(column);
                self.sql.push_str(", ?)");
                self.params.push(ParamSource::FilterText(index));
            }
            Comparison::IsNull | Comparison::IsNotNull => {
                self.value_expression(column);
                let is_null = filter.comparison == Comparison::IsNull;
                self.sql.push_str(if is_null { " IS NULL" } else { " IS NOT NULL" });
            }
            Comparison::OneOfKeys => self.one_of_keys(index, filter),
            Comparison::NoneOfKeys => {
                self.sql.push('(');
                self.one_of_keys(index, filter);
                self.sql.push_str(") IS NOT TRUE");
            }
        }
    }

    /// `… IN (?, ?)`, which an index can serve; or a function call for many keys, and for columns that hold a value in
    /// several forms.
    fn one_of_keys(&mut self, index: usize, filter: &FilterShape) {
        let column = &self.builder.columns[filter.column];
        if filter.operand_count > LISTED_KEYS_MAX || !column.has_plain_equality() {
            self.sql.push_str(&format!("{IN_KEYS_FUNCTION}(?, "));
            self.params.push(ParamSource::FilterKeys(index));
            self.value_expression(filter.column);
            return self.sql.push(')');
        }
        let list = format!(" IN ({})", vec!["?"; filter.operand_count].join(", "));
        let operands = (0..filter.operand_count).map(|operand| ParamSource::FilterKey(index, operand));
        if let Some(collation) = column.index_collation {
            self.sql.push_str(&format!("{} COLLATE {collation}{list} AND ", column.quoted_name));
            self.params.extend(operands.clone());
        }
        self.sql.push_str(&column.filter_expression(Comparison::Equals));
        self.push_null_text(filter.column);
        self.sql.push_str(&list);
        self.params.extend(operands);
    }

    /// `(… = ? OR … = ?)`; SQLite looks such values up in an index, one after the other.
    fn any_of(&mut self, index: usize, filter: &FilterShape) {
        self.sql.push('(');
        for operand in 0..filter.operand_count {
            if operand > 0 {
                self.sql.push_str(" OR ");
            }
            self.comparison(index, operand, filter.column, Comparison::Equals);
        }
        self.sql.push(')');
    }

    /// The comparison with one operand: `Equals`, `AtLeast` or `AtMost`.
    fn comparison(&mut self, index: usize, operand: usize, column: usize, comparison: Comparison) {
        let column_def = &self.builder.columns[column];
        let is_range = matches!(comparison, Comparison::AtLeast | Comparison::AtMost);
        if is_range && column_def.needs_date_test() {
            self.sql.push_str("typeof(");
            self.value_expression(column);
            self.sql.push_str(") = 'text' AND ");
            self.value_expression(column);
            self.sql.push_str(" GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]' AND ");
        }
        let is_timestamp = column_def.sort_key == Some(SortKeyKind::Timestamp);
        if let (Comparison::Equals, Some(collation)) = (comparison, column_def.index_collation) {
            self.sql.push_str(&format!("{} COLLATE {collation} = ? AND ", column_def.quoted_name));
            self.params.push(ParamSource::FilterValue(index, operand));
        }
        self.sql.push_str(&column_def.filter_expression(comparison));
        self.push_null_text(column);
        let value = ParamSource::FilterValue(index, operand);
        let range_end = ParamSource::FilterRangeEnd(index, operand);
        let (text, sources): (&str, &[ParamSource]) = match comparison {
            Comparison::Equals if is_timestamp => (" BETWEEN ? AND ?", &[value, range_end]),
            Comparison::AtMost if is_timestamp => (column_def.range_condition(comparison), &[range_end]),
            Comparison::Equals if column_def.has_two_forms() => {
                (" IN (?, ?)", &[value, ParamSource::FilterAlternate(index, operand)])
            }
            Comparison::AtLeast | Comparison::AtMost => (column_def.range_condition(comparison), &[value]),
            Comparison::Equals
            | Comparison::NotEquals
            | Comparison::Contains
            | Comparison::StartsWith
            | Comparison::IsNull
            | Comparison::IsNotNull
            | Comparison::OneOfKeys
            | Comparison::NoneOfKeys => (" = ?", &[value]),
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
        // Columns that are equal in the whole segment need no order.
        let first = match shape.segment {
            PageSegment::LaterSortValue { same, .. } => usize::from(same),
            PageSegment::NullSortValue { same, .. } => usize::from(same) + 1,
            PageSegment::SameSortValues { .. } => shape.sort.len(),
            PageSegment::FromStart
            | PageSegment::FromOffset
            | PageSegment::AfterKey
            | PageSegment::KeyLookup
            | PageSegment::Count => 0,
        };
        for (at, Sort { column, descending }) in shape.sort.iter().enumerate().skip(first) {
            self.sql.push_str(keyword);
            keyword = ", ";
            self.sort_expression(*column);
            // NULL is the least value, so a descending sort puts it last anyway.
            let is_later = matches!(shape.segment, PageSegment::LaterSortValue { .. }) && at == first;
            let nulls = self.builder.columns[*column].may_be_null() && !is_later;
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
        self.bind_from(statement, 0, columns, key, values).map(drop)
    }

    /// Binds the parameters after the first `before` ones, and returns how many are bound then.
    pub(crate) fn bind_from(
        &self,
        statement: &mut Statement<'_>,
        before: usize,
        columns: &[Column],
        key: &[usize],
        values: &QueryParams<'_>,
    ) -> Result<usize> {
        let filter = |index: usize, operand: usize| {
            let filter = &values.filters[index];
            let value = filter.values().nth(operand).unwrap_or(ValueRef::Null);
            // One of several is compared like a single one.
            let comparison = match filter.comparison {
                Comparison::NotEquals => Comparison::Equals,
                comparison => comparison,
            };
            (&columns[filter.column], comparison, value)
        };
        let mut keys_of: HashMap<usize, Vec<ValueRef<'_>>> = HashMap::new();
        let key_part = |index: usize| values.key.get(index).map_or(ValueRef::Null, Value::as_value_ref);
        for (index, bind) in self.params.iter().enumerate() {
            let param = match *bind {
                ParamSource::NullText(column) => SqlParam::Value(
                    columns[column].null_text.as_deref().map_or(ValueRef::Null, ValueRef::Text),
                ),
                ParamSource::FilterValue(index, operand) => {
                    let (column, comparison, value) = filter(index, operand);
                    column.filter_param(comparison, value)
                }
                ParamSource::FilterExact(index) | ParamSource::FilterText(index) => {
                    SqlParam::Value(filter(index, 0).2)
                }
                ParamSource::FilterAlternate(index, operand) => {
                    let (column, _, value) = filter(index, operand);
                    column.alternate_param(value)
                }
                ParamSource::FilterRangeEnd(index, operand) => {
                    let (column, comparison, value) = filter(index, operand);
                    column.range_end_param(comparison, value)
                }
                ParamSource::FilterKey(index, operand) => {
                    let filter = &values.filters[index];
                    let keys = keys_of
                        .entry(index)
                        .or_insert_with(|| filter.keys.map_or_else(Vec::new, |keys| keys.values().collect()));
                    let value = keys.get(operand).or(keys.last()).copied().unwrap_or(ValueRef::Null);
                    columns[filter.column].filter_param(Comparison::Equals, value)
                }
                ParamSource::FilterKeys(index) => {
                    let filter = &values.filters[index];
                    let keys = filter.keys.map_or_else(Vec::new, |keys| {
                        key_blob::encode(columns[filter.column].data_type, keys)
                    });
                    SqlParam::SortKey(keys)
                }
                ParamSource::SortValue(at) => {
                    let value = values.sort_values.get(at).map_or(ValueRef::Null, Value::as_value_ref);
                    values
                        .sort
                        .get(at)
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
            statement.raw_bind_parameter(before + index + 1, param)?;
        }
        Ok(before + self.params.len())
    }

    /// Whether SQLite visits every row of a table.
    pub(crate) fn is_scan(&self, connection: &Connection) -> Result<bool> {
        let mut statement = connection.prepare_cached(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let nulls = vec![SqlParam::Value(ValueRef::Null); self.params.len()];
        let mut steps = statement.query(rusqlite::params_from_iter(nulls))?;
        while let Some(step) = steps.next()? {
            if step.get_ref(3)?.as_str().is_ok_and(|step| step.starts_with("SCAN")) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether SQLite finds the rows by an index, or returns the first rows of the table.
    pub(crate) fn is_cheap(&self, connection: &Connection, shape: &QueryShape) -> Result<bool> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let nulls = vec![SqlParam::Value(ValueRef::Null); self.params.len()];
        let mut rows = statement.query(rusqlite::params_from_iter(nulls))?;
        while let Some(row) = rows.next()? {
            let step: String = row.get(3)?;
            let is_first = step.starts_with("SCAN") && shape.filters.is_empty();
            let is_single = match &shape.filters[..] {
                [] => true,
                [only] => only.operand_count == 1,
                _ => false,
            };
            if !(is_first || (step.starts_with("SEARCH") && is_single)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
