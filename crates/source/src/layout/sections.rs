//! Rows that divide a table into parts: headings of sections, and the groups of a pivot table above their rows.

use contract::infer::TextClass;
use contract::source::{LayoutNote, LayoutNoteKind};

use super::column_sums::readings;
use super::totals::name_rows;
use super::{DataRows, GAPS_ROWS_MAX, LeftOutRows, SketchedCell};

/// A table whose first rows have no heading has none.
const FIRST_ROWS_MAX: usize = 2000;

/// Rows with a single text in the first column, where all other rows have values in the same columns. They are left out if
/// their cells are merged across the table: no record looks so. Otherwise `check` warns.
pub(super) fn find_sections(
    rows: &impl DataRows,
    end: usize,
    header: &[String],
    unit: &str,
    found: &mut LeftOutRows,
) {
    const ROWS_PER_SECTION_MIN: usize = 2;
    if header.len() < 3 || end > GAPS_ROWS_MAX {
        return;
    }
    let (mut headings, mut ordinary) = (Vec::new(), 0);
    // The columns behind the first that have a value in all other rows.
    let mut filled: Option<Vec<usize>> = None;
    for at in 0..end {
        if at == FIRST_ROWS_MAX && headings.is_empty() {
            return;
        }
        match &rows.cells(at)[..] {
            [] => {}
            [only] if only.column == 0 && only.class == TextClass::Other => headings.push(at),
            cells => {
                ordinary += 1;
                let has_value = |column: &usize| cells.iter().any(|cell| cell.column == *column);
                match &mut filled {
                    Some(columns) => columns.retain(has_value),
                    None => {
                        filled = Some(cells.iter().map(|cell| cell.column).filter(|at| *at > 0).collect())
                    }
                }
            }
        }
    }
    let (Some(first), columns) = (headings.first().copied(), filled.unwrap_or_default().len()) else {
        return;
    };
    let are_merged = headings.iter().all(|at| rows.is_merged_across(*at));
    // A heading stands above rows.
    let is_above = |at: &usize| {
        (at + 1..end).find(|next| !rows.cells(*next).is_empty()).is_some_and(|next| !headings.contains(&next))
    };
    let are_above = headings.iter().all(is_above);
    let is_clear = are_merged && are_above && columns > 0;
    let is_likely = are_above && columns > 1 && ordinary >= headings.len() * ROWS_PER_SECTION_MIN;
    if !is_clear && !is_likely {
        return;
    }
    let numbers: Vec<u32> = headings.iter().map(|at| rows.number(*at)).collect();
    let quoted = rows.row(first).quoted();
    let (place, is) = match &numbers[..] {
        [only] => (format!("a heading among its rows ({unit} {only}: {quoted})"), "is"),
        several => {
            let names = name_rows(several);
            (format!("{} headings among its rows ({unit}s {names}, first {quoted})", several.len()), "are")
        }
    };
    match is_clear {
        true => {
            found.notes.push(LayoutNote {
                kind: LayoutNoteKind::LeftOut,
                message: format!("has {place}, which {is} left out"),
                setting: "footer_rows = 0".into(),
            });
            found.rows.extend(headings);
        }
        false => found.notes.push(LayoutNote {
            kind: LayoutNoteKind::DoubtfulValues,
            message: format!("perhaps has {place}, which {is} read as data"),
            setting: "if they are headings, remove them from the file, or leave them out with the filter `…_null=false` of \
                      a column that they lack"
                .into(),
        }),
    }
}

/// The rows above `total_at` that are each the sum of the rows below them, down to the next one, where their sum is the total:
/// the groups of a pivot table in its compact form. `None` if the rows are not divided so.
pub(super) fn find_group_totals(rows: &impl DataRows, total_at: usize) -> Option<Vec<usize>> {
    const ROWS_MAX: usize = 2000;
    const GROUPS_MIN: usize = 2;
    let total = rows.cells(total_at);
    let is_number = |cell: &&SketchedCell| cell.class == TextClass::Number;
    let columns: Vec<usize> = total.iter().filter(is_number).map(|cell| cell.column).collect();
    if columns.is_empty() || total_at > ROWS_MAX {
        return None;
    }
    // With a point as the decimal separator, or with a comma.
    (0..2).find_map(|reading| {
        let values = |cells: &[SketchedCell]| -> Vec<f64> {
            let value = |column: &usize| {
                let cell = cells.iter().filter(is_number).find(|cell| cell.column == *column)?;
                readings(&cell.text)[reading]
            };
            columns.iter().map(|column| value(column).unwrap_or(0.0)).collect()
        };
        let total = values(&total);
        let table: Vec<(usize, Vec<f64>)> = (0..total_at)
            .map(|at| (at, rows.cells(at)))
            .filter(|(_, cells)| !cells.is_empty())
            .map(|(at, cells)| (at, values(&cells)))
            .collect();
        let (mut heads, mut sum, mut has_details) = (Vec::new(), vec![0.0; columns.len()], false);
        let mut at = 0;
        while let Some((row, head)) = table.get(at) {
            let mut below = vec![0.0; columns.len()];
            let end = (at + 1..table.len()).find(|next| {
                add(&mut below, &table[*next].1);
                is_same(&below, head)
            })?;
            has_details |= end > at + 1;
            add(&mut sum, head);
            heads.push(*row);
            at = end + 1;
        }
        let is_found = heads.len() >= GROUPS_MIN && has_details && is_same(&sum, &total);
        (is_found && total.iter().any(|value| *value != 0.0)).then_some(heads)
    })
}

fn add(sum: &mut [f64], values: &[f64]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn is_same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.006_f64.max(a.abs() * 1e-12))
}
