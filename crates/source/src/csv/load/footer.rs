//! Finds where lines begin that are below a table and have fewer fields.

use contract::infer::TextClass;

use super::{CsvRows, RowPass, RowScanner};
use crate::layout::{self, DataRows, SketchedCell};

/// Notes below a table take at most so many lines.
const FOOTER_ROWS_MAX: usize = 20;

impl RowScanner<'_> {
    /// The first of the lines at the very end that have few fields, where the evidence is clear that they are not rows.
    pub(super) fn footer_start(&self, pass: &RowPass, rows: &CsvRows<'_>) -> Option<usize> {
        let (first, _) = *pass.ragged.first()?;
        let behind = (first..pass.starts.len()).filter(|row| !pass.blank.contains(row)).count();
        let is_short = |(_, fields): &(usize, usize)| *fields * 2 <= self.header.len();
        if behind != pass.ragged.len() || self.header.len() < 3 || !pass.ragged.iter().all(is_short) {
            return None;
        }
        let is_text = |cell: &SketchedCell| cell.class == TextClass::Other;
        let is_note =
            |(row, fields): &(usize, usize)| *fields == 1 && rows.cells(*row).first().is_some_and(is_text);
        let are_notes = pass.ragged.iter().all(is_note) && first > behind;
        // A blank line, a total, or a text where the rows above have numbers or dates says that the table ends.
        let cells = rows.cells(first);
        let is_end = || {
            let head: Vec<_> = (0..first.min(FOOTER_ROWS_MAX)).map(|row| rows.row(row)).collect();
            let contradicts = |cell: &&SketchedCell| is_text(cell) && layout::is_typed(&head, cell.column);
            let label = cells.first();
            first > 1
                && behind <= FOOTER_ROWS_MAX
                && (rows.follows_gap(first)
                    || label.is_some_and(|cell| layout::is_total_label(&cell.text))
                    || label.filter(contradicts).is_some())
        };
        (are_notes || is_end()).then_some(first)
    }
}
