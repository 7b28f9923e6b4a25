//! Names of groups of columns, in a row above the names of columns.

use std::collections::BTreeMap;

use contract::infer::TextClass;
use contract::source::{LayoutNote, LayoutNoteKind};

use super::{CONTRAST_ROWS_MAX, HeaderLayout, SketchedCell, SketchedRow};

/// A row, and the row of names directly below it.
pub(super) struct GroupRow<'a> {
    /// The row above both.
    before: Option<&'a SketchedRow>,
    upper: &'a SketchedRow,
    lower: &'a SketchedRow,
}

impl<'a> GroupRow<'a> {
    /// `None` if the two rows cannot be one above the other in a header.
    pub(super) fn of(rows: &'a [SketchedRow], at: usize) -> Option<Self> {
        let (upper, lower) = (rows.get(at)?, rows.get(at + 1)?);
        // A record of a CSV file may take several lines.
        let is_next = !lower.follows_gap && (lower.width > 0 || upper.number + 1 == lower.number);
        let is_name =
            |cell: &SketchedCell| cell.class == TextClass::Other || lower.get(cell.column).is_some();
        let before = at.checked_sub(1).map(|before| &rows[before]).filter(|_| !upper.follows_gap);
        (is_next && upper.cells.len() > 1 && upper.cells.iter().all(is_name)).then_some(Self {
            before,
            upper,
            lower,
        })
    }

    /// Whether a cell stands above several names.
    fn is_group(&self, cell: &SketchedCell) -> bool {
        let next = cell.column + 1;
        self.lower.get(cell.column).is_some()
            && self.lower.get(next).is_some()
            && self.upper.get(next).is_none()
    }

    /// Whether the row belongs to the header: cells are merged above several names, or names are the same below several of
    /// its texts. A single merged cell is a title.
    pub(super) fn is_clear(&self, is_merged: &impl Fn(u32, usize) -> bool) -> bool {
        let is_merged_group =
            |cell: &SketchedCell| is_merged(self.upper.number, cell.column) && self.is_group(cell);
        self.lower.has_names_only()
            && (!self.is_below_notes(is_merged) && self.upper.cells.iter().any(is_merged_group)
                || self.has_texts_only() && self.has_repeated_names())
    }

    /// Whether the row above both has several texts, and is no row of groups: then the upper row may be a note, too.
    fn is_below_notes(&self, is_merged: &impl Fn(u32, usize) -> bool) -> bool {
        const TEXTS_MIN: usize = 3;
        self.before.is_some_and(|row| {
            row.cells.len() >= TEXTS_MIN
                && row
                    .cells
                    .iter()
                    .all(|cell| cell.class == TextClass::Other && !is_merged(row.number, cell.column))
        })
    }

    /// Whether the row may belong to the header: it has several groups.
    fn is_doubtful(&self) -> bool {
        self.has_texts_only() && self.upper.cells.iter().filter(|cell| self.is_group(cell)).count() > 1
    }

    fn has_texts_only(&self) -> bool {
        self.lower.has_names_only() && self.upper.has_names_only() && !self.upper.has_labels()
    }

    /// Whether a name is below several groups.
    fn has_repeated_names(&self) -> bool {
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        self.lower.cells.iter().any(|name| {
            let above = self.upper.cells.iter().rev().find(|cell| cell.column <= name.column);
            above
                .filter(|cell| self.is_group(cell))
                .is_some_and(|group| *groups.entry(name.text.trim()).or_insert(group.column) != group.column)
        })
    }

    /// Whether the lower row has names for groups of the upper one, and no value in a column that has one in all rows below
    /// and a name in the upper row.
    fn is_incomplete_row(&self, below: &[SketchedRow]) -> bool {
        let lacks_value = |cell: &SketchedCell| {
            self.lower.get(cell.column).is_none() && below.iter().all(|row| row.get(cell.column).is_some())
        };
        below.len() >= 2
            && self.lower.has_names_only()
            && self.lower.cells.len() > self.upper.cells.len()
            && self.upper.cells.iter().any(|cell| self.is_group(cell))
            && self.upper.cells.iter().any(lacks_value)
    }

    fn note(&self, unit: &str) -> LayoutNote {
        let (upper, lower) = (self.upper.number, self.lower.number);
        LayoutNote {
            kind: LayoutNoteKind::DoubtfulValues,
            message: format!("may have names of columns in two rows ({unit}s {upper} and {lower})"),
            setting: format!(
                "if it does, set `header_row = {upper}` and `header_rows = 2` for the collection in the manifest"
            ),
        }
    }
}

impl HeaderLayout {
    /// Notes if the row above the names or the row below them may have names of columns, too.
    pub(super) fn doubt_groups(&mut self, rows: &[SketchedRow], unit: &str) {
        let above = self.at.checked_sub(1).and_then(|above| GroupRow::of(rows, above));
        if let Some(groups) = above.filter(GroupRow::is_doubtful) {
            self.notes.push(groups.note(unit));
            return;
        }
        let below = &rows[rows.len().min(self.at + 2)..rows.len().min(self.at + 2 + CONTRAST_ROWS_MAX)];
        let groups = GroupRow::of(rows, self.at);
        if let Some(groups) = groups.filter(|groups| groups.is_incomplete_row(below)) {
            // The row below has the other names, not all of them.
            self.likely_row = None;
            self.notes.push(groups.note(unit));
        }
    }
}

/// Whether a row of the header has a name in a column below another one: then that is the name of a group, which counts for
/// the columns behind it, too.
pub(crate) fn has_name_below(header: &[SketchedRow], row: &SketchedRow, column: usize) -> bool {
    header.iter().any(|below| below.number > row.number && below.get(column).is_some())
}
