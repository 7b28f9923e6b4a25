//! Groups the rows of a table: in the database where its answer is exactly what `contract` defines, else here.
//!
//! The database may return smaller groups than the question has: by the key of a linked row instead of a value behind the link, by
//! quarters of an hour instead of days in a time zone. [`GroupTable`] puts them together, so that time zones, links and
//! the form of values have one meaning. What the database would compute otherwise is computed here, row by row: sums of
//! floating-point numbers (they would depend on the order of the rows), numbers and dates among values of other types, and
//! different values of groups that are put together.

use contract::aggregate::{GroupTable, Partial};
use contract::source::{Aggregate, AggregateFunction, GroupColumn, Groups, Measure, RowFlow, SourceError};
use contract::{DataType, ValueRef};

use crate::column::{Column, Storage};
use crate::connection::{Param, ResultColumn, Sql};
use crate::dialect::{Expression, SqlWriter};
use crate::operand::time_text;
use crate::read::{TableReader, count_rows};

/// A statement that groups in the database, and where its results are.
struct GroupStatement {
    sql: Sql,
    /// Where the number of rows is; the values of the groups come before it.
    rows: usize,
    measures: Vec<MeasureResult>,
    /// Whether columns have values of other types: then the database's answer does not count.
    exceptions: Vec<usize>,
}

/// Where the result of a measure is, by index.
#[derive(Debug, Clone, Copy)]
enum MeasureResult {
    Rows,
    /// The key of a linked row, which the rows are grouped by as well.
    Key(usize),
    /// The sum, followed by the number of values.
    Sum(usize),
    Extreme(usize),
    Distinct(usize),
}

/// What is selected.
#[derive(Default)]
struct Selected {
    expressions: Vec<Expression>,
}

impl Selected {
    /// Returns its index.
    fn push(&mut self, expression: Expression) -> usize {
        self.expressions.push(expression);
        self.expressions.len() - 1
    }
}

impl TableReader {
    pub(crate) fn group_rows(&self, question: &Aggregate<'_>) -> Result<Groups, SourceError> {
        let grouped = match self.group_statement(question) {
            Some(statement) => self.run_group_statement(question, &statement)?,
            None => None,
        };
        grouped.map_or_else(|| self.scan_groups(question), Ok)
    }

    /// `None` if the database would answer otherwise than `contract`. Of columns that may have values of other types it is only known
    /// when the database has answered.
    fn group_statement(&self, question: &Aggregate<'_>) -> Option<GroupStatement> {
        let mut out = SqlWriter::new(self.dialect);
        let mut selected = Selected::default();
        for group in &question.groups {
            let expression = self.group_expression(&mut out, group)?;
            selected.push(expression);
        }
        let mut keys: Vec<(usize, usize)> = Vec::new();
        for measure in &question.measures {
            if let Measure::Linked { column, .. } = *measure
                && !keys.iter().any(|(of, _)| *of == column)
            {
                let expression = self.dialect.group_expression(&self.columns[column])?;
                keys.push((column, selected.push(expression)));
            }
        }
        let rows = selected.push(Expression::integer("count(*)"));
        let is_whole = keys.is_empty() && question.groups.iter().all(|group| self.is_whole(group));
        let mut measures = Vec::with_capacity(question.measures.len());
        for measure in &question.measures {
            measures.push(match *measure {
                Measure::Count => MeasureResult::Rows,
                Measure::Linked { column, .. } => {
                    MeasureResult::Key(keys.iter().find(|(of, _)| *of == column)?.1)
                }
                Measure::Of { function, column } => {
                    self.measure(&mut selected, function, &self.columns[column], is_whole)?
                }
            });
        }
        let exceptions = self.exceptions(question, &mut selected)?;
        out.push("SELECT ");
        for (at, expression) in selected.expressions.into_iter().enumerate() {
            out.push(if at > 0 { ", " } else { "" });
            out.push(&expression.text);
            out.sql.results.push(expression.result);
        }
        out.from(&self.name);
        out.filters(&self.columns, &question.filters);
        if rows > 0 {
            let places: Vec<String> = (1..=rows).map(|place| place.to_string()).collect();
            out.push(&format!(" GROUP BY {}", places.join(", ")));
        }
        Some(GroupStatement { sql: out.sql, rows, measures, exceptions })
    }

    /// Asks of each column that may have values of other types whether rows of the question do. `None` if the database cannot say.
    fn exceptions(&self, question: &Aggregate<'_>, selected: &mut Selected) -> Option<Vec<usize>> {
        let groups = question.groups.iter().map(|group| group.column);
        let mut columns: Vec<usize> =
            groups.chain(question.measures.iter().filter_map(Measure::column)).collect();
        columns.sort_unstable();
        columns.dedup();
        let mixed = columns.into_iter().map(|at| &self.columns[at]).filter(|column| column.is_mixed());
        let ask = |column: &Column| {
            let question = self.dialect.special_values(&column.info)?;
            Some(selected.push(Expression::integer(&question)))
        };
        mixed.map(ask).collect()
    }

    fn group_expression(&self, out: &mut SqlWriter<'_>, group: &GroupColumn<'_>) -> Option<Expression> {
        let column = &self.columns[group.column];
        match (group.unit.filter(|_| group.map.is_none()), group.time_zone) {
            (None, _) => self.dialect.group_expression(column),
            (Some(_), Some(zone)) if column.data_type == DataType::Timestamp => {
                let since = time_text(zone.quarter_hours_since().clamp(TIME_MIN, TIME_MAX), 0)?;
                let since = out.bind(Param::Text(since));
                Some(self.dialect.quarter_hour(column, &since))
            }
            (Some(unit), _) => Some(self.dialect.truncated(column, unit)),
        }
    }

    /// Whether a group of the database is a group of the question.
    fn is_whole(&self, group: &GroupColumn<'_>) -> bool {
        let column = &self.columns[group.column];
        let is_split_by_time = column.data_type == DataType::Timestamp && group.time_zone.is_some();
        let is_float = matches!(column.storage(), Storage::Float32 | Storage::Float64);
        group.map.is_none() && !is_split_by_time && !is_float
    }

    fn measure(
        &self,
        selected: &mut Selected,
        function: AggregateFunction,
        column: &Column,
        is_whole: bool,
    ) -> Option<MeasureResult> {
        Some(match function {
            AggregateFunction::Sum | AggregateFunction::Avg => {
                let sum = selected.push(self.dialect.sum(column)?);
                selected.push(Expression::integer(&format!("count({})", column.quoted)));
                MeasureResult::Sum(sum)
            }
            AggregateFunction::Min | AggregateFunction::Max => {
                let name = if function == AggregateFunction::Min { "min" } else { "max" };
                MeasureResult::Extreme(selected.push(self.dialect.extreme(name, column)?))
            }
            AggregateFunction::Distinct if is_whole => {
                let value = self.dialect.group_expression(column)?;
                let count = format!("count(DISTINCT {})", value.text);
                MeasureResult::Distinct(selected.push(Expression::integer(&count)))
            }
            AggregateFunction::Distinct => return None,
        })
    }

    fn run_group_statement(
        &self,
        question: &Aggregate<'_>,
        statement: &GroupStatement,
    ) -> Result<Option<Groups>, SourceError> {
        let mut table = GroupTable::new(question, |column| self.columns[column].data_type);
        let limits = self.limits(question.cancelled);
        let mut has_exceptions = false;
        self.run(&statement.sql, &limits, &mut |values| {
            let integer = |at: usize| match values.get(at) {
                Some(ValueRef::Integer(n)) => u64::try_from(*n).unwrap_or(0),
                _ => 0,
            };
            if statement.exceptions.iter().any(|at| integer(*at) > 0) {
                has_exceptions = true;
                return Ok(RowFlow::Stop);
            }
            let rows = integer(statement.rows);
            self.check(question.groups.iter().map(|group| group.column), values)?;
            for (measure, result) in question.measures.iter().zip(&statement.measures) {
                if let (Some(column), MeasureResult::Extreme(at)) = (measure.column(), result)
                    && values[*at] != ValueRef::Null
                {
                    self.check([column].into_iter(), &[values[*at]])?;
                }
            }
            count_rows(question.progress, rows);
            let measured = |at: usize| match statement.measures[at] {
                MeasureResult::Rows => Partial::Distinct(rows),
                MeasureResult::Key(at) => Partial::Same(values[at]),
                MeasureResult::Sum(at) => match values[at] {
                    ValueRef::Text(sum) => Partial::Sum { sum, values: integer(at + 1) },
                    // Infinity, or a server that lies.
                    _ => Partial::Sum { sum: "", values: integer(at + 1) },
                },
                MeasureResult::Extreme(at) => Partial::Extreme(values[at]),
                MeasureResult::Distinct(at) => Partial::Distinct(integer(at)),
            };
            let pushed = table.push_part(rows, |at| values[at], measured);
            pushed.map_err(|error| error.into_source_error(|column| &self.columns[column].name))?;
            Ok(RowFlow::Continue)
        })?;
        Ok((!has_exceptions).then(|| table.finish()))
    }

    /// Reads the rows and groups them.
    fn scan_groups(&self, question: &Aggregate<'_>) -> Result<Groups, SourceError> {
        let groups = question.groups.iter().map(|group| group.column);
        let mut columns: Vec<usize> =
            groups.chain(question.measures.iter().filter_map(Measure::column)).collect();
        columns.sort_unstable();
        columns.dedup();
        let limits = self.limits(question.cancelled);
        let mut table = GroupTable::new(question, |column| self.columns[column].data_type);
        let mut out = SqlWriter::new(self.dialect);
        out.select(&self.columns, columns.iter().copied());
        out.from(&self.name);
        out.filters(&self.columns, &question.filters);
        self.run(&out.sql, &limits, &mut |values| {
            self.check(columns.iter().copied(), values)?;
            count_rows(question.progress, 1);
            let value = |column: usize| match columns.iter().position(|one| *one == column) {
                Some(at) => values[at],
                None => ValueRef::Null,
            };
            let pushed = table.push_row(value);
            pushed.map_err(|error| error.into_source_error(|column| &self.columns[column].name))?;
            Ok(RowFlow::Continue)
        })?;
        Ok(table.finish())
    }
}

/// The first second of the year 1, and the last of 9999.
const TIME_MIN: i64 = -62_135_596_800;
const TIME_MAX: i64 = 253_402_300_799;

impl Expression {
    /// One that the statement itself computes.
    pub(crate) fn computed(text: impl Into<String>, storage: Storage) -> Self {
        Self { text: text.into(), result: ResultColumn::computed(storage) }
    }

    pub(crate) fn integer(text: &str) -> Self {
        Self::computed(text, Storage::Integer)
    }
}
