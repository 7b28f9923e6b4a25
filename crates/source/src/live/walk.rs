//! Goes through the rows of a table: those of a page in its order, or those with some words as they stand.

use contract::Cell;
use contract::source::{More, Place, Query, Search, Searched, SourceFault};

use super::Fit;
use super::order::{Order, is_ordered};
use crate::hunt::Hunt;
use crate::pace::Pace;

/// As many rows are walked where a call arrives.
const SHORT_ROWS_MAX: usize = 2000;
/// Where so many rows did not fill a page, all are tried before the walk goes on.
const MARK_AFTER_ROWS: usize = 8192;

/// Which rows pass, and how many.
struct Marked {
    bits: Vec<u64>,
    count: u64,
}

impl Marked {
    fn has(&self, row: u32) -> bool {
        self.bits[row as usize / 64] >> (row % 64) & 1 == 1
    }
}

/// Whether all rows may be walked where a call arrives.
pub(super) fn is_small(table: &impl Fit) -> bool {
    table.len() as usize <= SHORT_ROWS_MAX
}

pub(super) fn is_short(table: &impl Fit, query: &Query<'_>) -> bool {
    let rows = table.len() as usize;
    let touched = if query.filters.is_empty() { rows.min(query.rows_max) } else { rows };
    is_small(table) || (touched <= SHORT_ROWS_MAX && is_ordered(table, query.sort))
}

/// Hands rows from the place `seen` on to `row`, as far as they pass.
pub(super) fn walk<F: Fit>(
    table: &F,
    query: &Query<'_>,
    order: &Order,
    seen: usize,
    pace: &mut Pace<'_>,
    row: &mut dyn FnMut(&[Cell<'_>], Place) -> More,
) -> Result<Option<u64>, SourceFault> {
    let sieves = table.sieves(&query.filters);
    let mut scratch = F::Scratch::default();
    let (mut at, mut passed) = (seen, 0);
    let mut marked = None;
    while at < order.len() && passed < query.rows_max {
        pace.row()?;
        if at - seen == MARK_AFTER_ROWS && !sieves.is_empty() {
            marked = Some(mark(table, &sieves, pace)?);
        }
        let number = order.row(at);
        at += 1;
        let passes = match &marked {
            Some(marked) => marked.has(number),
            None => table.passes(number, &sieves, &mut scratch),
        };
        if !passes {
            continue;
        }
        passed += 1;
        let place = Place { row: i64::from(number), state: table.orders().state };
        let mut more = More::Yes;
        table.hand(number, &mut scratch, |cells| more = row(cells, place));
        if more == More::No {
            break;
        }
    }
    let is_whole = seen == 0 && at == order.len();
    Ok(match marked {
        _ if sieves.is_empty() => Some(order.len() as u64),
        Some(marked) => Some(marked.count),
        None => is_whole.then_some(passed as u64),
    })
}

/// Marks all rows that pass, in the order of the file: in any other each row is a miss of the cache.
fn mark<'a, F: Fit>(
    table: &'a F,
    sieves: &[F::Sieve<'a>],
    pace: &mut Pace<'_>,
) -> Result<Marked, SourceFault> {
    let mut marked = Marked { bits: vec![0; (table.len() as usize).div_ceil(64)], count: 0 };
    let mut scratch = F::Scratch::default();
    for row in 0..table.len() {
        pace.row()?;
        if table.passes(row, sieves, &mut scratch) {
            marked.bits[row as usize / 64] |= 1 << (row % 64);
            marked.count += 1;
        }
    }
    Ok(marked)
}

/// Hands rows with all the words to `row`, in the order of the file.
pub(super) fn search<F: Fit>(
    table: &F,
    search: &Search<'_>,
    row: &mut dyn FnMut(&[Cell<'_>]) -> More,
) -> Result<Searched, SourceFault> {
    let mut hunt = Hunt::new(&search.words);
    let columns = table.sought(search.columns);
    let (mut scratch, mut found) = (F::Scratch::default(), 0);
    let mut pace = Pace::of_search(search);
    for number in 0..table.len() {
        if found >= search.rows_max {
            break;
        }
        if number as usize >= search.scan_rows_max {
            return Ok(Searched::Cut);
        }
        pace.row()?;
        hunt.begin();
        if !table.has_all(number, &columns, &mut hunt, &mut scratch) {
            continue;
        }
        found += 1;
        let mut more = More::Yes;
        table.hand(number, &mut scratch, |cells| more = row(cells));
        if more == More::No {
            break;
        }
    }
    Ok(Searched::All)
}
