//! Groups the rows of a snapshot.

use contract::ValueRef;
use contract::aggregate::{GroupError, GroupTable};
use contract::source::{Aggregate, Groups, Measure, SourceError};

use super::order::SortableColumn;
use super::vector_groups::group_by_vectors;
use super::{CowValue, ReadableTable};
use crate::progress::ScanProgress;

/// Groups the rows that pass the filters. `check` fails for a row that does not fit the shape.
pub(super) fn group_rows<F: ReadableTable>(
    table: &F,
    question: &Aggregate<'_>,
    check: &dyn Fn(u32) -> Result<(), SourceError>,
) -> Result<Groups, GroupError> {
    let columns = table.columns();
    let mut groups = GroupTable::new(question, |column| columns[column].data_type());
    let has_violations = !table.violations().columns.is_empty();
    let is_count = question.groups.is_empty() && question.measures == [Measure::Count];
    if is_count && question.filters.is_empty() && !has_violations {
        groups.count_rows(table.len().into());
        return Ok(groups.finish());
    }
    let mut progress = ScanProgress::for_aggregate(question);
    if !has_violations && let Some(groups) = group_by_vectors(table, question, &mut progress)? {
        return Ok(groups);
    }
    let prepared = table.prepare_filters(&question.filters);
    let mut scratch = F::Scratch::default();
    let needed = needed_columns(question);
    let mut values: Vec<CowValue<'_>> = Vec::with_capacity(needed.len());
    for row in 0..table.len() {
        progress.count_row()?;
        if !table.matches_filters(row, &prepared, &mut scratch) {
            continue;
        }
        if has_violations {
            check(row)?;
        }
        values.clear();
        values.extend(needed.iter().map(|column| {
            let column = &columns[*column];
            table.value_at(table.value_position(row, column), column)
        }));
        let value = |column: usize| match needed.iter().position(|needed| *needed == column) {
            Some(at) => values[at].as_value_ref(),
            None => ValueRef::Null,
        };
        groups.push_row(value)?;
    }
    Ok(groups.finish())
}

/// The columns of groups and measures, each once.
fn needed_columns(question: &Aggregate<'_>) -> Vec<usize> {
    let groups = question.groups.iter().map(|group| group.column);
    let measures = question.measures.iter().filter_map(Measure::column);
    let mut columns: Vec<usize> = groups.chain(measures).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}
