//! Goes through the rows of a table: those of a page in its order, or those with some words as they stand.

use contract::ValueRef;
use contract::source::{Query, RowFlow, RowPosition, Search, SearchCoverage, SourceError, Total};

use super::ReadableTable;
use super::order::{RowOrder, is_order_cached};
use crate::progress::ScanProgress;
use crate::text_search::TermMatcher;

/// As many rows are walked where a call arrives.
const INLINE_ROWS_MAX: usize = 2000;
/// Where so many rows did not fill a page, all are tried before the walk goes on.
const BITMAP_AFTER_ROWS: usize = 8192;

/// Which rows pass, and how many.
struct RowBitmap {
    bits: Vec<u64>,
    count: u64,
}

impl RowBitmap {
    fn contains(&self, row: u32) -> bool {
        self.bits[row as usize / 64] >> (row % 64) & 1 == 1
    }
}

/// Whether all rows may be walked where a call arrives.
pub(super) fn fits_inline(table: &impl ReadableTable) -> bool {
    table.len() as usize <= INLINE_ROWS_MAX
}

pub(super) fn query_fits_inline(table: &impl ReadableTable, query: &Query<'_>) -> bool {
    let rows = table.len() as usize;
    let touched = if query.filters.is_empty() { rows.min(query.rows_max) } else { rows };
    fits_inline(table) || (touched <= INLINE_ROWS_MAX && is_order_cached(table, query.sort))
}

/// Hands rows from the place `seen` on to `row`, as far as they pass.
pub(super) fn list_rows<F: ReadableTable>(
    table: &F,
    query: &Query<'_>,
    order: &RowOrder,
    seen: usize,
    pace: &mut ScanProgress<'_>,
    row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
) -> Result<Option<Total>, SourceError> {
    let sieves = table.prepare_filters(&query.filters);
    let mut scratch = F::Scratch::default();
    let (mut at, mut passed) = (seen, 0);
    let mut marked = None;
    while at < order.len() && passed < query.rows_max {
        pace.count_row()?;
        if at - seen == BITMAP_AFTER_ROWS && !sieves.is_empty() {
            marked = Some(match_all_rows(table, &sieves, pace)?);
        }
        let number = order.row(at);
        at += 1;
        let passes = match &marked {
            Some(marked) => marked.contains(number),
            None => table.matches_filters(number, &sieves, &mut scratch),
        };
        if !passes {
            continue;
        }
        passed += 1;
        let place =
            RowPosition { row_number: i64::from(number), table_version: table.orders().table_version };
        let mut more = RowFlow::Continue;
        table.with_row(number, &mut scratch, |cells| more = row(cells, place));
        if more == RowFlow::Stop {
            break;
        }
    }
    let is_whole = seen == 0 && at == order.len();
    let total = match marked {
        _ if sieves.is_empty() => Some(order.len() as u64),
        Some(marked) => Some(marked.count),
        None => is_whole.then_some(passed as u64),
    };
    Ok(total.map(Total::Exact))
}

/// Marks all rows that pass, in the order of the file: in any other each row is a miss of the cache.
fn match_all_rows<'a, F: ReadableTable>(
    table: &'a F,
    sieves: &[F::PreparedFilter<'a>],
    pace: &mut ScanProgress<'_>,
) -> Result<RowBitmap, SourceError> {
    let mut marked = RowBitmap { bits: vec![0; (table.len() as usize).div_ceil(64)], count: 0 };
    let mut scratch = F::Scratch::default();
    for row in 0..table.len() {
        pace.count_row()?;
        if table.matches_filters(row, sieves, &mut scratch) {
            marked.bits[row as usize / 64] |= 1 << (row % 64);
            marked.count += 1;
        }
    }
    Ok(marked)
}

/// Hands rows with all the words to `row`, in the order of the file.
pub(super) fn search_rows<F: ReadableTable>(
    table: &F,
    search: &Search<'_>,
    row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
) -> Result<SearchCoverage, SourceError> {
    let mut hunt = TermMatcher::new(&search.terms);
    let columns = table.search_columns(search.columns);
    let (mut scratch, mut found) = (F::Scratch::default(), 0);
    let mut pace = ScanProgress::for_search(search);
    for number in 0..table.len() {
        if found >= search.rows_max {
            break;
        }
        if number as usize >= search.scan_rows_max {
            return Ok(SearchCoverage::Truncated);
        }
        pace.count_row()?;
        hunt.start_row();
        if !table.matches_all_terms(number, &columns, &mut hunt, &mut scratch) {
            continue;
        }
        found += 1;
        let mut more = RowFlow::Continue;
        table.with_row(number, &mut scratch, |cells| more = row(cells));
        if more == RowFlow::Stop {
            break;
        }
    }
    Ok(SearchCoverage::Complete)
}
