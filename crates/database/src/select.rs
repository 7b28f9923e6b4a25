//! Writes the statements that read a table. The only place where conditions and orders become SQL.

use contract::source::{Comparison, CursorPosition, Filter, LinkedSort, SourceError};
use contract::{DataType, Value, ValueRef, order};

use crate::column::{Column, Storage};
use crate::connection::{Param, ResultColumn};
use crate::dialect::{SqlWriter, TABLE_ALIAS};
use crate::lowercase::Lowering;
use crate::operand::{Operand, operand, time_range};

/// The table and its columns.
#[derive(Clone, Copy)]
pub(crate) struct Table<'t> {
    pub(crate) columns: &'t [Column],
    pub(crate) key: &'t [usize],
}

/// By what rows are ordered.
pub(crate) struct SortTerm {
    expression: String,
    column: Option<usize>,
    descending: bool,
    nullable: bool,
    /// For values behind a link: their order.
    ranks: Option<Vec<Value>>,
    /// The type of the values.
    kind: DataType,
}

impl SqlWriter<'_> {
    /// `SELECT c1, c2`
    pub(crate) fn select(&mut self, columns: &[Column], chosen: impl Iterator<Item = usize>) {
        self.push("SELECT ");
        for at in chosen {
            if !self.sql.results.is_empty() {
                self.push(", ");
            }
            let column = &columns[at];
            let expression = self.dialect.select(column);
            self.push(&expression);
            let is_column = expression == column.quoted;
            self.sql.results.push(if is_column {
                column.result()
            } else {
                ResultColumn::computed(column.storage())
            });
        }
    }

    pub(crate) fn from(&mut self, table: &str) {
        self.push(" FROM ");
        self.push(table);
        self.push(" AS ");
        self.push(TABLE_ALIAS);
    }

    /// All filters, as ` WHERE …`; nothing without one.
    pub(crate) fn filters(&mut self, columns: &[Column], filters: &[Filter<'_>]) {
        let mut is_joined = false;
        for (at, filter) in filters.iter().enumerate() {
            self.push(match (is_joined, at) {
                (true, _) => " OR (",
                (false, 0) => " WHERE ",
                (false, _) => " AND ",
            });
            if filter.or_next && !is_joined {
                self.push("((");
            }
            self.filter(&columns[filter.column], filter);
            self.push(match (is_joined, filter.or_next) {
                (_, true) => ")",
                (true, false) => "))",
                (false, false) => "",
            });
            is_joined = filter.or_next;
        }
    }

    fn filter(&mut self, column: &Column, filter: &Filter<'_>) {
        match filter.comparison {
            Comparison::IsNull => self.push(&format!("{} IS NULL", column.quoted)),
            Comparison::IsNotNull => self.push(&format!("{} IS NOT NULL", column.quoted)),
            Comparison::Equals => self.equals_one_of(column, filter),
            Comparison::NotEquals => {
                self.push(&format!("({} IS NULL OR NOT ", column.quoted));
                self.equals_one_of(column, filter);
                self.push(")");
            }
            comparison @ (Comparison::AtLeast | Comparison::AtMost) => {
                self.range(column, comparison, filter.value);
            }
            comparison @ (Comparison::Contains | Comparison::StartsWith) => {
                let ValueRef::Text(lowercase) = filter.value else { return self.push("FALSE") };
                self.contains(column, lowercase, comparison == Comparison::StartsWith);
            }
            Comparison::OneOfKeys | Comparison::NoneOfKeys => {
                let is_none = filter.comparison == Comparison::NoneOfKeys;
                if is_none {
                    self.push(&format!("({} IS NULL OR NOT ", column.quoted));
                }
                match filter.keys {
                    Some(keys) if !keys.is_empty() => self.dialect.write_in_keys(self, column, keys),
                    Some(_) | None => self.push("FALSE"),
                }
                if is_none {
                    self.push(")");
                }
            }
        }
    }

    fn equals_one_of(&mut self, column: &Column, filter: &Filter<'_>) {
        self.push("(");
        for (at, value) in filter.values().enumerate() {
            if at > 0 {
                self.push(" OR ");
            }
            self.equals(column, value);
        }
        self.push(")");
    }

    /// Whether the column has a value, as a filter or a key compares it.
    pub(crate) fn equals(&mut self, column: &Column, value: ValueRef<'_>) {
        if let Some((first, last)) = is_time(column).then(|| time_range(column, value)).flatten() {
            self.compare_typed(column, " >= ", first);
            self.push(" AND ");
            return self.compare_typed(column, " <= ", last);
        }
        match operand(column, Comparison::Equals, value) {
            Operand::Value(param) => self.dialect.write_equals(self, column, param),
            Operand::Decimal(digits) => self.compare_decimal(column, " = ", digits),
            Operand::Exception(text) => match self.dialect.exceptional_time(&text) {
                Some(literal) => self.dialect.write_equals(self, column, Param::Text(literal)),
                None => self.push("FALSE"),
            },
            Operand::AfterAll | Operand::Nothing => self.push("FALSE"),
        }
    }

    /// Values that are not of the column's type are in no range: `NaN`, infinity, `0000-00-00`.
    fn range(&mut self, column: &Column, comparison: Comparison, value: ValueRef<'_>) {
        self.push("(");
        self.bound(column, comparison, value);
        if let Some(condition) = self.dialect.ordinary_values(column) {
            self.push(" AND ");
            self.push(&condition);
        }
        self.push(")");
    }

    fn bound(&mut self, column: &Column, comparison: Comparison, value: ValueRef<'_>) {
        let operator = if comparison == Comparison::AtLeast { " >= " } else { " <= " };
        if let Some((first, last)) = is_time(column).then(|| time_range(column, value)).flatten() {
            let bound = if comparison == Comparison::AtLeast { first } else { last };
            return self.compare_typed(column, operator, bound);
        }
        match operand(column, comparison, value) {
            Operand::Value(param) => self.compare_typed(column, operator, param),
            Operand::Decimal(digits) => self.compare_decimal(column, operator, digits),
            Operand::AfterAll if comparison == Comparison::AtMost => {
                self.push(&format!("{} IS NOT NULL", column.quoted));
            }
            // The year before the year 1.
            Operand::Exception(text) => match self.dialect.exceptional_time(&text) {
                Some(literal) => self.compare_typed(column, operator, Param::Text(literal)),
                None => self.push("FALSE"),
            },
            Operand::AfterAll | Operand::Nothing => self.push("FALSE"),
        }
    }

    fn compare_typed(&mut self, column: &Column, operator: &str, param: Param) {
        let expression = self.dialect.sort_expression(column);
        self.push(&expression);
        self.push(operator);
        self.typed_param(column.storage(), param);
    }

    fn compare_decimal(&mut self, column: &Column, operator: &str, digits: String) {
        self.push(&column.quoted);
        self.push(operator);
        self.decimal(digits);
    }

    /// Writes the placeholder of a decimal.
    pub(crate) fn decimal(&mut self, digits: String) {
        let placeholder = self.bind(Param::Text(digits.clone()));
        let typed = self.dialect.typed_decimal(&placeholder, &digits);
        self.push(&typed);
    }

    /// Whether the column's text contains another one, which is in lower case.
    pub(crate) fn contains(&mut self, column: &Column, lowercase: &str, prefix: bool) {
        if lowercase.contains('\0') {
            return self.push("FALSE");
        }
        let text = self.dialect.text_expression(column);
        let lowering = Lowering::for_operand(lowercase);
        let write_text = |out: &mut SqlWriter<'_>| out.dialect.write_lowered(out, &text, &lowering);
        self.dialect.write_contains(self, &write_text, lowercase, prefix);
    }

    /// Whether each term is part of one of the columns.
    pub(crate) fn terms(&mut self, columns: &[Column], searched: &[usize], terms: &[&str]) {
        for term in terms {
            self.push(" AND (FALSE");
            let lowercase = order::to_lowercase(term);
            for at in searched {
                self.push(" OR ");
                self.contains(&columns[*at], &lowercase, false);
            }
            self.push(")");
        }
    }

    /// Joins the ranks of values behind links, and returns what rows are ordered by. The key comes last.
    pub(crate) fn join_sorts(&mut self, table: &Table<'_>, sorts: &[LinkedSort<'_>]) -> Vec<SortTerm> {
        let mut terms = Vec::with_capacity(sorts.len() + table.key.len());
        for (at, by) in sorts.iter().enumerate() {
            let column = &table.columns[by.sort.column];
            let Some(values) = by.values else {
                terms.push(SortTerm {
                    descending: by.sort.descending,
                    ..self.own_term(table, by.sort.column)
                });
                continue;
            };
            let mut order: Vec<Value> = values
                .map
                .entries()
                .map(|(_, value)| value.clone())
                .filter(|value| *value != Value::Null)
                .collect();
            order.sort_by(|a, b| order::compare(values.kind, a.as_value_ref(), b.as_value_ref()));
            order.dedup_by(|a, b| order::compare(values.kind, a.as_value_ref(), b.as_value_ref()).is_eq());
            let ranks: Vec<(Param, i64)> = values
                .map
                .entries()
                .filter(|(_, value)| **value != Value::Null)
                .filter_map(|(key, value)| {
                    Some((key_param(key)?, rank(&order, values.kind, value.as_value_ref())))
                })
                .collect();
            let alias = format!("link{at}");
            self.dialect.write_ranks(self, &alias, column, &ranks);
            terms.push(SortTerm {
                expression: format!("{alias}.r"),
                column: None,
                descending: by.sort.descending,
                nullable: true,
                ranks: Some(order),
                kind: values.kind,
            });
        }
        terms.extend(table.key.iter().map(|at| self.own_term(table, *at)));
        terms
    }

    fn own_term(&self, table: &Table<'_>, at: usize) -> SortTerm {
        let column = &table.columns[at];
        SortTerm {
            expression: self.dialect.sort_expression(column),
            column: Some(at),
            descending: false,
            nullable: column.info.nullable,
            ranks: None,
            kind: column.data_type,
        }
    }

    /// The rows after a position, as a condition without a keyword. Fails for a position that the database has no value for: rows
    /// would be missing without a word.
    pub(crate) fn after(
        &mut self,
        table: &Table<'_>,
        terms: &[SortTerm],
        position: &CursorPosition,
    ) -> Result<(), SourceError> {
        let values: Vec<&Value> = position.sort_values.iter().chain(&position.key).collect();
        self.push("(FALSE");
        for (at, term) in terms.iter().enumerate() {
            self.push(" OR (");
            for (same, value) in terms[..at].iter().zip(&values) {
                self.same_as(table, same, value)?;
                self.push(" AND ");
            }
            let value = values.get(at).map_or(&Value::Null, |value| *value);
            self.later_than(table, term, value)?;
            self.push(")");
        }
        self.push(")");
        Ok(())
    }

    fn same_as(&mut self, table: &Table<'_>, term: &SortTerm, value: &Value) -> Result<(), SourceError> {
        if *value == Value::Null {
            self.push(&format!("{} IS NULL", term.expression));
            return Ok(());
        }
        self.compare_position(table, term, " = ", value)
    }

    fn later_than(&mut self, table: &Table<'_>, term: &SortTerm, value: &Value) -> Result<(), SourceError> {
        // Nothing comes after rows without a value but further keys.
        if *value == Value::Null {
            self.push("FALSE");
            return Ok(());
        }
        self.push("(");
        self.compare_position(table, term, if term.descending { " < " } else { " > " }, value)?;
        if term.nullable {
            self.push(&format!(" OR {} IS NULL", term.expression));
        }
        self.push(")");
        Ok(())
    }

    fn compare_position(
        &mut self,
        table: &Table<'_>,
        term: &SortTerm,
        operator: &str,
        value: &Value,
    ) -> Result<(), SourceError> {
        if let Some(order) = &term.ranks {
            let rank = rank(order, term.kind, value.as_value_ref());
            self.push(&term.expression);
            self.push(operator);
            self.param(Param::Integer(rank));
            return Ok(());
        }
        let column = term.column.map(|at| &table.columns[at]).ok_or(SourceError::StaleCursor)?;
        let param = match operand(column, Comparison::Equals, value.as_value_ref()) {
            Operand::Value(param) => param,
            Operand::Decimal(digits) => {
                self.compare_decimal(column, operator, digits);
                return Ok(());
            }
            Operand::Exception(text) => {
                Param::Text(self.dialect.exceptional_time(&text).ok_or(SourceError::StaleCursor)?)
            }
            Operand::AfterAll | Operand::Nothing => return Err(SourceError::StaleCursor),
        };
        self.push(&term.expression);
        self.push(operator);
        self.typed_param(column.storage(), param);
        Ok(())
    }

    /// ` ORDER BY …`
    pub(crate) fn order_by(&mut self, terms: &[SortTerm], row_id: &[String]) {
        let by_terms = terms.iter().map(|term| self.dialect.order_by(&term.expression, term.descending));
        let all: Vec<String> = by_terms.chain(row_id.iter().cloned()).collect();
        if !all.is_empty() {
            self.push(" ORDER BY ");
            self.push(&all.join(", "));
        }
    }
}

/// Where a value stands among different ordered values: odd, or even between two of them.
fn rank(order: &[Value], kind: DataType, value: ValueRef<'_>) -> i64 {
    match order.binary_search_by(|one| order::compare(kind, one.as_value_ref(), value)) {
        Ok(at) => 2 * at as i64 + 1,
        Err(at) => 2 * at as i64,
    }
}

pub(crate) fn key_param(key: ValueRef<'_>) -> Option<Param> {
    match key {
        ValueRef::Integer(n) => Some(Param::Integer(n)),
        ValueRef::Text(text) if !text.contains('\0') => Some(Param::Text(text.into())),
        _ => None,
    }
}

fn is_time(column: &Column) -> bool {
    matches!(column.storage(), Storage::Timestamp | Storage::LocalTimestamp)
}
