//! Scans over a table's rows: the rows of a page in sort order, or the rows that match search terms.

use contract::ValueRef;
use contract::source::{
    Query, RowFlow, RowPosition, Search, SearchCoverage, SearchCursor, SearchOutcome, SourceError, Total,
};

use super::ReadableTable;
use super::order::{RowOrder, is_order_cached, ties_before};
use crate::progress::ScanProgress;
use crate::text_search::TermMatcher;

/// A scan of up to this many rows may run on the thread that received the call.
const INLINE_ROWS_MAX: usize = 2000;
/// When this many rows did not fill a page, the filters are run over all rows before the scan goes on.
const BITMAP_AFTER_ROWS: usize = 8192;

/// How many rows a list tests, beyond its page, to count the rows that pass its filters.
pub(super) const COUNT_ROWS_MAX: u32 = 250_000;

/// The rows that pass the filters, and their number.
struct RowBitmap {
    bits: Vec<u64>,
    count: u64,
}

impl RowBitmap {
    fn contains(&self, row: u32) -> bool {
        self.bits[row as usize / 64] >> (row % 64) & 1 == 1
    }
}

/// Whether a scan of all rows may run on the thread that received the call.
pub(super) fn fits_inline(table: &impl ReadableTable) -> bool {
    table.len() as usize <= INLINE_ROWS_MAX
}

pub(super) fn query_fits_inline(table: &impl ReadableTable, query: &Query<'_>) -> bool {
    let rows = table.len() as usize;
    let touched = if query.filters.is_empty() { rows.min(query.rows_max) } else { rows };
    fits_inline(table) || (touched <= INLINE_ROWS_MAX && is_order_cached(table, &query.sort))
}

/// Passes the rows from position `start` on that pass the filters to `row`.
pub(super) fn list_rows<F: ReadableTable>(
    table: &F,
    query: &Query<'_>,
    order: &RowOrder,
    start: usize,
    progress: &mut ScanProgress<'_>,
    check: &dyn Fn(u32) -> Result<(), SourceError>,
    row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
) -> Result<Option<Total>, SourceError> {
    let prepared = table.prepare_filters(&query.filters);
    let mut scratch = F::Scratch::default();
    let (mut at, mut passed) = (start, 0);
    let has_violations = !table.violations().columns.is_empty();
    let has_duplicates = !table.violations().duplicates.is_empty();
    let mut bitmap = None;
    while at < order.len() && passed < query.rows_max {
        progress.count_row()?;
        if at - start == BITMAP_AFTER_ROWS && !prepared.is_empty() {
            bitmap = Some(match_all_rows(table, &prepared, progress)?);
        }
        let number = order.row(at);
        at += 1;
        let passes = match &bitmap {
            Some(bitmap) => bitmap.contains(number),
            None => table.matches_filters(number, &prepared, &mut scratch),
        };
        if !passes {
            continue;
        }
        passed += 1;
        // Callers allow one row more than they take, to know whether there are more. If they take it, they check it.
        if has_violations && passed < query.rows_max {
            check(number)?;
        }
        let ties = if has_duplicates { ties_before(table, order, &query.sorts(), at - 1) } else { 0 };
        let position =
            RowPosition { row_number: i64::from(number), table_version: table.orders().table_version, ties };
        let mut more = RowFlow::Continue;
        table.with_row(number, &mut scratch, |cells| more = row(cells, position));
        if more == RowFlow::Stop {
            break;
        }
    }
    let is_whole = start == 0 && at == order.len();
    Ok(Some(match bitmap {
        _ if prepared.is_empty() => Total::Exact(order.len() as u64),
        Some(bitmap) => Total::Exact(bitmap.count),
        None if is_whole => Total::Exact(passed as u64),
        None => count_rows(table, &prepared, passed as u64, progress)?,
    }))
}

/// Counts the rows that pass the filters, in file order and up to a bound. At least `known` do.
fn count_rows<'a, F: ReadableTable>(
    table: &'a F,
    prepared: &[F::PreparedFilter<'a>],
    known: u64,
    progress: &mut ScanProgress<'_>,
) -> Result<Total, SourceError> {
    let mut scratch = F::Scratch::default();
    let mut count = 0;
    for row in 0..table.len().min(COUNT_ROWS_MAX) {
        progress.count_row()?;
        count += u64::from(table.matches_filters(row, prepared, &mut scratch));
    }
    Ok(match table.len() <= COUNT_ROWS_MAX {
        true => Total::Exact(count),
        false => Total::AtLeast(count.max(known)),
    })
}

/// Runs the filters over all rows in file order: in any other order, each row would be a cache miss.
fn match_all_rows<'a, F: ReadableTable>(
    table: &'a F,
    prepared: &[F::PreparedFilter<'a>],
    progress: &mut ScanProgress<'_>,
) -> Result<RowBitmap, SourceError> {
    let mut bitmap = RowBitmap { bits: vec![0; (table.len() as usize).div_ceil(64)], count: 0 };
    let mut scratch = F::Scratch::default();
    for row in 0..table.len() {
        progress.count_row()?;
        if table.matches_filters(row, prepared, &mut scratch) {
            bitmap.bits[row as usize / 64] |= 1 << (row % 64);
            bitmap.count += 1;
        }
    }
    Ok(bitmap)
}

/// Passes the rows from position `start` on that match all terms and pass the filters to `row`. The rows before them, and
/// those after the page, are counted.
pub(super) fn search_rows<F: ReadableTable>(
    table: &F,
    search: &Search<'_>,
    order: &RowOrder,
    start: usize,
    progress: &mut ScanProgress<'_>,
    check: &dyn Fn(u32) -> Result<(), SourceError>,
    row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
) -> Result<SearchOutcome, SourceError> {
    let mut matcher = TermMatcher::new(&search.terms);
    let columns = table.search_columns(search.columns);
    let prepared = table.prepare_filters(&search.filters);
    let mut scratch = F::Scratch::default();
    let (mut total, mut passed, mut is_done) = (0_u64, 0, false);
    let has_violations = !table.violations().columns.is_empty();
    let has_duplicates = !table.violations().duplicates.is_empty();
    let end = order.len().min(search.scan_rows_max);
    for at in 0..end {
        progress.count_row()?;
        let number = order.row(at);
        if !table.matches_filters(number, &prepared, &mut scratch) {
            continue;
        }
        matcher.start_row();
        if !table.matches_all_terms(number, &columns, &mut matcher, &mut scratch) {
            continue;
        }
        total += 1;
        if at < start || is_done {
            continue;
        }
        passed += 1;
        if has_violations && passed < search.rows_max {
            check(number)?;
        }
        let ties = if has_duplicates { ties_before(table, order, &[], at) } else { 0 };
        let position =
            RowPosition { row_number: i64::from(number), table_version: table.orders().table_version, ties };
        let mut more = RowFlow::Continue;
        table.with_row(number, &mut scratch, |cells| more = row(cells, position));
        is_done = more == RowFlow::Stop || passed == search.rows_max;
    }
    let (coverage, total) = match end == order.len() {
        true => (SearchCoverage::Complete, Total::Exact(total)),
        false => (SearchCoverage::Truncated, Total::AtLeast(total)),
    };
    Ok(SearchOutcome { coverage, total, cursor: SearchCursor::Row })
}
