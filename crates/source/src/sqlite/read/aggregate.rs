//! Groups the rows of a table.
//!
//! Counts, and sums, averages and extremes of integers, without groups, are computed inside SQLite ([`super::count`]). Everything
//! else is a scan of the matching rows, which a hash table in Rust groups: SQLite would sort them to group them, which takes
//! longer, and it would add decimals up as binary fractions.
//!
//! In WAL mode the scan is one statement, which sees one state of the table. Without WAL a reader keeps others from
//! committing, so a scan that takes longer than a few milliseconds releases its lock again and again. If another connection
//! commits meanwhile, it starts again; after some attempts it keeps its lock.

use std::time::{Duration, Instant};

use contract::aggregate::{Accumulator, GroupTable};
use contract::source::{Aggregate, AggregateFunction, Filter, GroupRow, Groups, Measure, all_pass};
use contract::{Value, ValueRef};
use rusqlite::Row;

use crate::progress;
use crate::sqlite::column::from_sqlite;
use crate::sqlite::connection::DbConnection;
use crate::sqlite::error::DbError;
use crate::sqlite::integer_totals::IntegerTotals;
use crate::sqlite::read::TableReader;
use crate::sqlite::read::count::RowTotals;
use crate::sqlite::read::select_builder::{FilterShape, QueryParams, SqlTemplate};
use crate::sqlite::read::table_scan::{LOCK_TIMEOUT, locator_columns};

/// How long a scan holds its lock at a time, without WAL.
const LOCK_HOLD_MAX: Duration = Duration::from_millis(3);
/// How often such a scan starts again because the table may have changed.
const SCANS_MAX: usize = 3;
const ROWS_PER_CHECK: u64 = 64;

/// The statements of a scan, and where its values are.
struct ScanPlan {
    /// The columns of groups and measures, in the order of the row's values; the columns of filters follow in parts.
    columns: Vec<usize>,
    whole: SqlTemplate,
    /// The first part of all rows and the parts that follow, each with the locator before the values; `None` for a view.
    parts: Option<[SqlTemplate; 2]>,
    locator_width: usize,
}

impl TableReader {
    pub(super) fn group_rows(&self, question: &Aggregate<'_>) -> Result<Groups, DbError> {
        if let Some(columns) = self.integer_columns(question)
            && let Some(totals) = self.row_totals(question, &columns)?
            && let Some(row) = self.only_group(question, &columns, &totals)
        {
            return Ok(Groups { rows: vec![row] });
        }
        self.scan_groups(question)
    }

    /// The measured columns, if SQLite can answer the question: no groups, and only counts and totals of integers.
    fn integer_columns(&self, question: &Aggregate<'_>) -> Option<Vec<usize>> {
        if !question.groups.is_empty() {
            return None;
        }
        let mut columns = Vec::new();
        for measure in &question.measures {
            match measure {
                Measure::Count => {}
                Measure::Of { function: AggregateFunction::Distinct, .. } | Measure::Linked { .. } => {
                    return None;
                }
                Measure::Of { column, .. } if !self.columns[*column].is_integer() => return None,
                Measure::Of { column, .. } if columns.contains(column) => {}
                Measure::Of { column, .. } => columns.push(*column),
            }
        }
        Some(columns)
    }

    /// The only row of the answer; `None` if a value is not of its column's type: a scan says what is wrong.
    fn only_group(
        &self,
        question: &Aggregate<'_>,
        columns: &[usize],
        totals: &RowTotals,
    ) -> Option<GroupRow> {
        let is_valid =
            columns.iter().zip(&totals.columns).all(|(at, totals)| self.columns[*at].accepts_all(totals));
        let value = |measure: &Measure<'_>| {
            let (function, column) = match *measure {
                Measure::Count => {
                    return Some(Value::Integer(i64::try_from(totals.rows).unwrap_or(i64::MAX)));
                }
                Measure::Of { function, column } => (function, column),
                Measure::Linked { .. } => return None,
            };
            let IntegerTotals { sum, count, min, max, .. } =
                totals.columns[columns.iter().position(|one| *one == column)?];
            Some(match function {
                AggregateFunction::Min | AggregateFunction::Max if count == 0 => Value::Null,
                AggregateFunction::Min => Value::Integer(min),
                AggregateFunction::Max => Value::Integer(max),
                AggregateFunction::Sum | AggregateFunction::Avg => {
                    Accumulator::Integers { function, sum, count }.finish()
                }
                AggregateFunction::Distinct => return None,
            })
        };
        let values = question.measures.iter().map(value).collect::<Option<_>>()?;
        is_valid.then_some(GroupRow(values))
    }

    /// Reads the matching rows and groups them.
    pub(super) fn scan_groups(&self, question: &Aggregate<'_>) -> Result<Groups, DbError> {
        let plan = self.scan_plan(question);
        self.pool.read_with_timeout(LOCK_TIMEOUT, |connection| {
            connection.set_call_limit(question.cancelled, self.call_max);
            let _cancel = connection.cancel_on(question.cancelled);
            if let (Some(parts), false) = (&plan.parts, connection.is_wal) {
                connection.set_deadline(self.lock_hold_max);
                match self.scan_whole(question, &plan, connection) {
                    Err(DbError::DeadlineExceeded) => {
                        connection.set_call_limit(question.cancelled, self.call_max)
                    }
                    groups => return groups,
                }
                for _ in 0..SCANS_MAX {
                    if let Some(groups) = self.scan_parts(question, &plan, parts, connection)? {
                        return Ok(groups);
                    }
                }
            }
            self.scan_whole(question, &plan, connection)
        })
    }

    /// Reads the matching rows with one statement.
    fn scan_whole(
        &self,
        question: &Aggregate<'_>,
        plan: &ScanPlan,
        connection: &DbConnection,
    ) -> Result<Groups, DbError> {
        let mut groups = self.group_table(question);
        self.scan_rows(question, plan, &plan.whole, &[], connection, &mut groups, None)?;
        Ok(groups.finish())
    }

    fn group_table<'a>(&self, question: &'a Aggregate<'a>) -> GroupTable<'a> {
        GroupTable::new(question, |column| self.columns[column].data_type)
    }

    fn scan_plan(&self, question: &Aggregate<'_>) -> ScanPlan {
        let groups = question.groups.iter().map(|group| group.column);
        let measured = question.measures.iter().filter_map(Measure::column);
        let mut columns: Vec<usize> = groups.chain(measured).collect();
        columns.sort_unstable();
        columns.dedup();
        let filters: Vec<FilterShape> = question.filters.iter().map(FilterShape::new).collect();
        let name = |at: usize| self.columns[at].quoted_name.as_str();
        let names: Vec<&str> = columns.iter().map(|at| name(*at)).collect();
        // In parts every row is visited, so that the clock is looked at often enough.
        let with_filters: Vec<&str> =
            names.iter().copied().chain(question.filters.iter().map(|filter| name(filter.column))).collect();
        let locator = locator_columns(&self.table);
        let builder = self.select_builder();
        ScanPlan {
            whole: builder.build_scan(&names, &filters, &[], false),
            parts: (!locator.is_empty())
                .then(|| [false, true].map(|next| builder.build_scan(&with_filters, &[], &locator, next))),
            locator_width: locator.len(),
            columns,
        }
    }

    /// One attempt; `None` if another connection has committed meanwhile.
    fn scan_parts(
        &self,
        question: &Aggregate<'_>,
        plan: &ScanPlan,
        [first, next]: &[SqlTemplate; 2],
        connection: &DbConnection,
    ) -> Result<Option<Groups>, DbError> {
        let version = connection.data_version()?;
        let mut groups = self.group_table(question);
        let (mut template, mut after) = (first, Vec::new());
        loop {
            let until = Some(Instant::now() + LOCK_HOLD_MAX);
            let stopped = self.scan_rows(question, plan, template, &after, connection, &mut groups, until)?;
            if connection.data_version()? != version {
                return Ok(None);
            }
            match stopped {
                Some(locator) => (template, after) = (next, locator),
                None => return Ok(Some(groups.finish())),
            }
        }
    }

    /// Adds the rows of a statement. With `until` it may stop before the end, and returns the locator of the last row.
    #[allow(clippy::too_many_arguments, reason = "what a part of a scan differs in")]
    fn scan_rows(
        &self,
        question: &Aggregate<'_>,
        plan: &ScanPlan,
        template: &SqlTemplate,
        after: &[Value],
        connection: &DbConnection,
        groups: &mut GroupTable<'_>,
        until: Option<Instant>,
    ) -> Result<Option<Vec<Value>>, DbError> {
        let (from, filters) =
            if until.is_some() { (plan.locator_width, &question.filters[..]) } else { (0, &[][..]) };
        let values =
            QueryParams { filters: &question.filters, sort: &[], sort_values: &[], key: after, limit: 0 };
        let mut statement = connection.inner.prepare_cached(&template.sql)?;
        template.bind(&mut statement, &self.columns, &[], &values)?;
        let mut rows = statement.raw_query();
        let mut count = 0_u64;
        while let Some(row) = rows.next()? {
            if self.passes(filters, row, from + plan.columns.len())? {
                self.push_row(plan, row, from, groups)?;
            }
            count += 1;
            if !count.is_multiple_of(ROWS_PER_CHECK) {
                continue;
            }
            progress::report_rows(question.progress, ROWS_PER_CHECK);
            if until.is_some_and(|until| Instant::now() >= until) {
                let locator = (0..from).map(|at| Ok(from_sqlite(row.get_ref(at)?).to_value()));
                return locator.collect::<Result<_, DbError>>().map(Some);
            }
        }
        progress::report_rows(question.progress, count % ROWS_PER_CHECK);
        Ok(None)
    }

    /// Whether a row passes the filters, whose values start at `from`.
    fn passes(&self, filters: &[Filter<'_>], row: &Row<'_>, from: usize) -> Result<bool, DbError> {
        all_pass(
            filters,
            |filter| filter.or_next,
            |at, filter| {
                let column = &self.columns[filter.column];
                Ok(column.matches_filter(column.unchecked_value(row.get_ref(from + at)?), filter))
            },
        )
    }

    fn push_row(
        &self,
        plan: &ScanPlan,
        row: &Row<'_>,
        from: usize,
        groups: &mut GroupTable<'_>,
    ) -> Result<(), DbError> {
        let mut values = [ValueRef::Null; COLUMNS_MAX];
        for (at, (value, index)) in values.iter_mut().zip(&plan.columns).enumerate() {
            let column = &self.columns[*index];
            *value = column
                .checked_value(row.get_ref(from + at)?)
                .map_err(|expected| self.column_type_error(column, expected))?;
        }
        let value = |column: usize| match plan.columns.iter().position(|one| *one == column) {
            Some(at) => values[at],
            None => ValueRef::Null,
        };
        groups
            .push_row(value)
            .map_err(|error| error.into_source_error(|column| &self.columns[column].name).into())
    }
}

/// Three groups and eight measures.
const COLUMNS_MAX: usize = contract::aggregate::GROUP_FIELDS_MAX + contract::aggregate::MEASURES_MAX;
