//! A second table below the first: after a blank row, names of columns of its own.

use contract::infer::TextClass;
use contract::source::{LayoutNote, LayoutNoteKind};

use super::{
    CONTRAST_ROWS_MAX, DataRows, GAPS_ROWS_MAX, LeftOutRows, SketchedCell, SketchedRow, is_label, is_typed,
};

/// So many rows below the names are looked at even if blank rows divide them.
const ROWS_BELOW_MIN: usize = 3;

/// Where a second table begins: perhaps with a title, then a row of names, at least one of them above a column that holds
/// numbers or dates so far. A blank row inside a table is more frequent than a second table, so that is not enough.
pub(super) fn find_second_table(
    rows: &impl DataRows,
    header: &[String],
    unit: &str,
    found: &mut LeftOutRows,
) -> usize {
    let len = rows.len();
    if len + rows.unseen_len() > GAPS_ROWS_MAX {
        return len;
    }
    let head: Vec<SketchedRow> = (0..len.min(CONTRAST_ROWS_MAX)).map(|at| rows.row(at)).collect();
    for at in 2..len {
        if !rows.follows_gap(at) {
            continue;
        }
        let row = rows.row(at);
        let has_title = row.cells.len() == 1 && header.len() > 1;
        let names_at = if has_title { at + 1 } else { at };
        if names_at + 1 >= len {
            continue;
        }
        let names = rows.row(names_at);
        let head = &head[..head.len().min(at)];
        let contradicts = |cell: &SketchedCell| cell.class == TextClass::Other && is_typed(head, cell.column);
        let may_be_names =
            names.cells.len() >= 2 && names.has_names_only() && names.cells.iter().any(contradicts);
        if !may_be_names {
            continue;
        }
        let below = rows_below(rows, names_at);
        if (NamesBelow { names: &names, head, below: &below, header, has_title }).begin_a_table() {
            found.notes.push(LayoutNote {
                kind: LayoutNoteKind::SecondTable,
                message: format!("has a second table from {unit} {}, which is left out", row.number),
                setting: format!("header_row = {}", names.number),
            });
            found.second_table = Some(at);
            return at;
        }
    }
    len
}

fn rows_below(rows: &impl DataRows, names_at: usize) -> Vec<SketchedRow> {
    let mut below = Vec::new();
    for at in names_at + 1..rows.len().min(names_at + 1 + CONTRAST_ROWS_MAX) {
        if below.len() >= ROWS_BELOW_MIN && rows.follows_gap(at) {
            break;
        }
        let row = rows.row(at);
        if !row.cells.is_empty() {
            below.push(row);
        }
    }
    below
}

/// A row of texts after a blank row, and what is around it.
struct NamesBelow<'a> {
    names: &'a SketchedRow,
    /// The first rows of the table.
    head: &'a [SketchedRow],
    below: &'a [SketchedRow],
    header: &'a [String],
    has_title: bool,
}

impl NamesBelow<'_> {
    fn begin_a_table(&self) -> bool {
        let Self { names, head, below, has_title, .. } = *self;
        // Repeated names without a title are the same table, on its next page.
        if self.repeats_header(names) {
            return has_title;
        }
        if below.iter().take(2).any(|row| self.repeats_header(row)) {
            return true;
        }
        let is_value = |cell: &SketchedCell| {
            let others = head.iter().chain(below).filter_map(|row| row.get(cell.column));
            others.into_iter().any(|other| other.text.trim() == cell.text.trim())
        };
        if names.cells.iter().any(is_value) {
            return false;
        }
        if names.cells.iter().any(|cell| self.is_in_header(cell)) {
            return true;
        }
        // `-` and `n/a` stand for a value, and `01067` is one.
        if !names.cells.iter().all(|cell| cell.is_year() || is_label(&cell.text)) {
            return false;
        }
        // `B12` is rather a value.
        let has_digits = || names.cells.iter().any(|cell| cell.text.contains(|c: char| c.is_ascii_digit()));
        self.has_other_rows() || (self.names_all_typed() || has_title) && !has_digits()
    }

    fn is_in_header(&self, cell: &SketchedCell) -> bool {
        let text = cell.text.trim();
        self.header.iter().any(|name| !text.is_empty() && name.trim() == text)
    }

    /// Whether most cells are names of the columns.
    fn repeats_header(&self, row: &SketchedRow) -> bool {
        let same = row.cells.iter().filter(|cell| self.is_in_header(cell)).count();
        same >= 2 && same * 3 >= row.cells.len() * 2
    }

    fn columns(&self) -> impl Iterator<Item = usize> {
        let cells = self.head.iter().chain(self.below).flat_map(|row| &row.cells);
        0..=cells.map(|cell| cell.column).max().unwrap_or(0)
    }

    /// Whether each column of numbers or dates has a text of its own here, in two columns or more.
    fn names_all_typed(&self) -> bool {
        let mut texts = Vec::new();
        for column in self.columns().filter(|column| is_typed(self.head, *column)) {
            match self.names.get(column) {
                Some(cell) if cell.class == TextClass::Other => texts.push(cell.text.trim()),
                Some(_) | None => return false,
            }
        }
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        count >= 2 && texts.len() == count
    }

    /// Whether the rows below have values in other columns than those above, or texts where those have numbers.
    fn has_other_rows(&self) -> bool {
        let Self { names, head, below, .. } = *self;
        let count =
            |rows: &[SketchedRow], column: usize| rows.iter().filter(|row| row.get(column).is_some()).count();
        let is_other = |column: usize| {
            let (above, here) = (count(head, column), count(below, column));
            // All rows above have a value, and neither the names nor a row below has one.
            let is_gone = here == 0 && above == head.len() && names.get(column).is_none();
            let is_mostly_gone = here == 0 && above * 2 > head.len();
            let is_new = above == 0 && here * 2 > below.len();
            let is_text = is_typed(head, column)
                && here * 2 > below.len()
                && below.iter().filter_map(|row| row.get(column)).all(|cell| cell.class == TextClass::Other);
            is_gone || below.len() >= 2 && (is_mostly_gone || is_new || is_text)
        };
        !head.is_empty() && !below.is_empty() && self.columns().any(is_other)
    }
}
