//! The text of a statement for each form of question, made once. Names come from the schema, values are bound.

use contract::source::{Filter, Query, Sort, Test};
use contract::{Cell, Value};
use rusqlite::{Connection, Result, Statement};

use super::column::{Bound, Column};
use super::sorted::Sorted;

/// The form of a question, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) filters: Vec<(usize, Test)>,
    pub(super) sort: Option<Sort>,
    pub(super) part: Part,
}

/// Which rows of the whole order a statement gives. What comes after a row is up to three of these, one after
/// the other, each of which an index can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The row with a declared key; no order.
    Row,
    /// From the first.
    All,
    /// Unsorted, from behind a key.
    AfterKey,
    /// With the same sorted value, from behind a key.
    Tied,
    /// With a later sorted value.
    Later,
    /// Without a sorted value.
    Without,
    /// Without a sorted value, from behind a key.
    WithoutAfterKey,
    /// From a row number on.
    Offset,
}

/// A statement, and what goes where.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) sql: String,
    binds: Vec<Bind>,
}

#[derive(Debug, Clone, Copy)]
enum Bind {
    /// The text that means "no value" in a column.
    Null(usize),
    Filter(usize),
    /// The value as it is, and not what it sorts as.
    FilterExactly(usize),
    FilterOther(usize),
    FilterEnd(usize),
    Sorted,
    Key(usize),
    Limit,
    Offset,
}

/// The values of a question.
pub(super) struct Values<'q> {
    pub(super) filters: &'q [Filter<'q>],
    pub(super) sort: Option<Sort>,
    pub(super) sorted: Option<&'q Value>,
    pub(super) key: &'q [Value],
    pub(super) limit: usize,
}

impl Form {
    pub(super) fn new(query: &Query<'_>, part: Part) -> Self {
        Self {
            filters: query.filters.iter().map(|filter| (filter.column, filter.test)).collect(),
            sort: query.sort,
            part,
        }
    }
}

/// What a table's statements have in common.
pub(super) struct Grammar<'t> {
    pub(super) table: &'t str,
    pub(super) columns: &'t [Column],
    /// What decides between rows that the sort leaves equal: columns.
    pub(super) key: &'t [usize],
    /// Else the quoted rowid, where there is one.
    pub(super) rowid: Option<&'t str>,
}

struct Writer<'g> {
    grammar: &'g Grammar<'g>,
    sql: String,
    binds: Vec<Bind>,
}

impl Grammar<'_> {
    pub(super) fn plan(&self, form: &Form) -> Plan {
        let mut writer = Writer { grammar: self, sql: String::from("SELECT "), binds: Vec::new() };
        writer.select();
        writer.conditions(form);
        writer.order(form);
        // Of rows with a declared key there is one.
        if form.part != Part::Row {
            writer.sql.push_str(" LIMIT ?");
            writer.binds.push(Bind::Limit);
        }
        if form.part == Part::Offset {
            writer.sql.push_str(" OFFSET ?");
            writer.binds.push(Bind::Offset);
        }
        Plan { sql: writer.sql, binds: writer.binds }
    }
}

impl Grammar<'_> {
    /// The row with a key, and behind its columns where it lies: quoted columns.
    pub(super) fn row_at(&self, address: &str) -> Plan {
        let filters = self.key.iter().map(|column| (*column, Test::Equals)).collect();
        let form = Form { filters, sort: None, part: Part::Row };
        let Grammar { table, columns, key, .. } = *self;
        Grammar { table, columns, key, rowid: Some(address) }.plan(&form)
    }
}

impl Writer<'_> {
    fn select(&mut self) {
        let names: Vec<&str> = self.grammar.columns.iter().map(|column| column.quoted.as_str()).collect();
        self.sql.push_str(&names.join(", "));
        match self.grammar.rowid {
            Some(rowid) if names.is_empty() => self.sql.push_str(rowid),
            Some(rowid) => {
                self.sql.push_str(", ");
                self.sql.push_str(rowid);
            }
            None if names.is_empty() => self.sql.push('1'),
            None => {}
        }
        self.sql.push_str(" FROM ");
        self.sql.push_str(self.grammar.table);
    }

    fn conditions(&mut self, form: &Form) {
        let mut word = " WHERE ";
        for (at, (column, test)) in form.filters.iter().enumerate() {
            self.sql.push_str(word);
            word = " AND ";
            let is_moment = self.grammar.columns[*column].sorted == Some(Sorted::Moments);
            if form.part == Part::Row && is_moment {
                // Two keys may mean one moment; each is the key of its own row.
                self.sql.push_str(&self.grammar.columns[*column].quoted);
                self.sql.push_str(" COLLATE BINARY = ?");
                self.binds.push(Bind::FilterExactly(at));
                continue;
            }
            self.filter(at, *column, *test);
        }
        let sort = form.sort;
        let (sorted, after_key) = match form.part {
            Part::Row | Part::All | Part::Offset => (None, false),
            Part::AfterKey => (None, true),
            Part::Tied => (Some(" = ?"), true),
            Part::Later if sort.is_some_and(|sort| sort.descending) => (Some(" < ?"), false),
            Part::Later => (Some(" > ?"), false),
            Part::Without => (Some(" IS NULL"), false),
            Part::WithoutAfterKey => (Some(" IS NULL"), true),
        };
        if let (Some(Sort { column, .. }), Some(condition)) = (sort, sorted) {
            self.sql.push_str(word);
            word = " AND ";
            match condition {
                " IS NULL" => self.value(column),
                _ => self.ordered(column),
            }
            self.sql.push_str(condition);
            if condition != " IS NULL" {
                self.binds.push(Bind::Sorted);
            }
        }
        if after_key {
            self.sql.push_str(word);
            self.after_key();
        }
    }

    fn filter(&mut self, at: usize, column: usize, test: Test) {
        let one = &self.grammar.columns[column];
        let is_moment = one.sorted == Some(Sorted::Moments);
        if let (Test::Equals, Some(collation)) = (test, one.loose) {
            self.sql.push_str(&format!("{} COLLATE {collation} = ? AND ", one.quoted));
            self.binds.push(Bind::Filter(at));
        }
        self.sql.push_str(&one.compared(test));
        self.null(column);
        let (text, binds): (&str, &[Bind]) = match test {
            Test::Equals if is_moment => (" BETWEEN ? AND ?", &[Bind::Filter(at), Bind::FilterEnd(at)]),
            Test::AtMost if is_moment => (" <= ?", &[Bind::FilterEnd(at)]),
            Test::Equals if one.has_two_forms() => (" IN (?, ?)", &[Bind::Filter(at), Bind::FilterOther(at)]),
            Test::Equals => (" = ?", &[Bind::Filter(at)]),
            Test::AtLeast => (" >= ?", &[Bind::Filter(at)]),
            Test::AtMost => (" <= ?", &[Bind::Filter(at)]),
        };
        self.sql.push_str(text);
        self.binds.extend_from_slice(binds);
    }

    /// `(a, b) > (?, ?)`. No part of a key is NULL: such rows are a fault.
    fn after_key(&mut self) {
        if let Some(rowid) = self.grammar.rowid {
            self.sql.push_str(rowid);
            self.sql.push_str(" > ?");
            self.binds.push(Bind::Key(0));
            return;
        }
        let key = self.grammar.key;
        self.sql.push('(');
        self.key_columns();
        self.sql.push_str(") > (");
        self.sql.push_str(&vec!["?"; key.len()].join(", "));
        self.sql.push(')');
        self.binds.extend((0..key.len()).map(Bind::Key));
    }

    fn key_columns(&mut self) {
        for (at, column) in self.grammar.key.iter().enumerate() {
            if at > 0 {
                self.sql.push_str(", ");
            }
            self.ordered(*column);
        }
    }

    fn order(&mut self, form: &Form) {
        if form.part == Part::Row {
            return;
        }
        let mut word = " ORDER BY ";
        if let (Some(Sort { column, descending }), Part::All | Part::Later | Part::Offset) =
            (form.sort, form.part)
        {
            self.sql.push_str(word);
            word = ", ";
            self.ordered(column);
            // Nothing is the least there is, so it comes last from the greatest down anyway.
            let nulls = self.grammar.columns[column].may_be_null() && form.part != Part::Later;
            self.sql.push_str(match (descending, nulls) {
                (true, _) => " DESC",
                (false, true) => " ASC NULLS LAST",
                (false, false) => "",
            });
        }
        match self.grammar.rowid {
            Some(rowid) => {
                self.sql.push_str(word);
                self.sql.push_str(rowid);
            }
            None if !self.grammar.key.is_empty() => {
                self.sql.push_str(word);
                self.key_columns();
            }
            None => {}
        }
    }

    fn ordered(&mut self, column: usize) {
        self.sql.push_str(&self.grammar.columns[column].ordered());
        self.null(column);
    }

    fn value(&mut self, column: usize) {
        self.sql.push_str(&self.grammar.columns[column].value());
        self.null(column);
    }

    fn null(&mut self, column: usize) {
        if self.grammar.columns[column].null.is_some() {
            self.binds.push(Bind::Null(column));
        }
    }
}

impl Plan {
    /// Puts the values where their marks are; every mark gets one.
    pub(super) fn bind(
        &self,
        statement: &mut Statement<'_>,
        columns: &[Column],
        key: &[usize],
        values: &Values<'_>,
    ) -> Result<()> {
        let filter = |at: usize| {
            let filter = &values.filters[at];
            (&columns[filter.column], filter.test, filter.value)
        };
        let number = |at: usize| values.key.get(at).map_or(Cell::Null, Value::as_cell);
        for (at, bind) in self.binds.iter().enumerate() {
            let bound = match *bind {
                Bind::Null(column) => {
                    Bound::Cell(columns[column].null.as_deref().map_or(Cell::Null, Cell::Text))
                }
                Bind::Filter(at) => {
                    let (column, test, value) = filter(at);
                    column.bound(test, value)
                }
                Bind::FilterExactly(at) => Bound::Cell(filter(at).2),
                Bind::FilterOther(at) => {
                    let (column, _, value) = filter(at);
                    column.other_form(value)
                }
                Bind::FilterEnd(at) => {
                    let (column, test, value) = filter(at);
                    column.bound_end(test, value)
                }
                Bind::Sorted => {
                    let cell = values.sorted.map_or(Cell::Null, Value::as_cell);
                    values.sort.map_or(Bound::Cell(cell), |sort| columns[sort.column].position(cell))
                }
                Bind::Key(at) => match key.get(at) {
                    Some(column) => columns[*column].position(number(at)),
                    None => Bound::Cell(number(at)),
                },
                Bind::Limit => Bound::Cell(Cell::Integer(i64::try_from(values.limit).unwrap_or(i64::MAX))),
                Bind::Offset => Bound::Cell(match number(0) {
                    Cell::Integer(seen) => Cell::Integer(seen.saturating_add(1)),
                    _ => Cell::Integer(0),
                }),
            };
            statement.raw_bind_parameter(at + 1, bound)?;
        }
        Ok(())
    }

    /// Whether SQLite finds the rows by an index, or takes the first there are.
    pub(super) fn is_short(&self, connection: &Connection, form: &Form) -> Result<bool> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", self.sql))?;
        let nothing = vec![Bound::Cell(Cell::Null); self.binds.len()];
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
