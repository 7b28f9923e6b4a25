//! The cells of a sheet, and the table in it: which row is the header, which columns and rows belong to it.

use std::ops::RangeInclusive;

use contract::humanize::pluralize;
use contract::infer::{SAFE_INTEGER_MAX, TextClass};
use contract::manifest::{COMPLETED_ROWS_REASON, DeclaredLayout};
use contract::source::{HeaderRows, LayoutNote, LayoutNoteKind};

use super::address::{CellAddress, CellRange, column_letters};
use super::budget::{Budget, COLUMNS_MAX};
use crate::layout::{self, DataRows, HEAD_ROWS_MAX, LeftOutRows, SketchedCell, SketchedRow};
use crate::tables::{ParseError, StoredValue, Table};

/// Cells with a value, by row and column, both ascending. Sparse: a cell far away costs no more than one nearby.
#[derive(Default)]
pub(super) struct Grid {
    pub(super) rows: Vec<GridRow>,
    /// The range of the only Excel table on the sheet, without its totals; `None` if there are none or several.
    pub(super) table_range: Option<CellRange>,
    pub(super) merged_ranges: Vec<CellRange>,
    /// Rows that are hidden, ascending.
    pub(super) hidden_rows: Vec<u32>,
    /// Whether some formula may depend on another sheet, so that a write there can make its value stale.
    pub(super) depends_on_other_sheets: bool,
}

#[derive(Debug)]
pub(super) struct GridRow {
    /// Counts from 1.
    pub(super) number: u32,
    pub(super) cells: Vec<GridCell>,
}

#[derive(Debug)]
pub(super) struct GridCell {
    /// Counts from 0.
    pub(super) column: u32,
    pub(super) is_formula: bool,
    pub(super) value: CellValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CellValue {
    Text(Box<str>),
    /// An index into the workbook's shared strings.
    SharedString(u32),
    /// A date, a time or both, in ISO 8601.
    DateTime(Box<str>),
    Number(f64),
    Boolean(bool),
    /// `#N/A` and the like: there is no value.
    Error,
    /// A formula without a cached value.
    Uncomputed,
}

/// The texts that all sheets of a workbook share.
pub(super) type SharedStrings = [Box<str>];

/// Where the table on a sheet is.
#[derive(Debug)]
pub(super) struct TableLayout {
    /// The number of the last row with column names, and of the first.
    pub(super) header_row: u32,
    pub(super) first_header_row: u32,
    /// Columns of the sheet, by position in the table.
    pub(super) columns: Vec<u32>,
    pub(super) header: Vec<String>,
    /// Positions in [`Grid::rows`].
    pub(super) rows: Vec<usize>,
    pub(super) likely_header_row: Option<u32>,
    /// Whether there are rows below that are not part of the table.
    pub(super) has_rows_below: bool,
    pub(super) notes: Vec<LayoutNote>,
    /// Why a write would make the sheet wrong.
    pub(super) read_only_reason: Option<String>,
    /// Positions in `columns` in which a blank cell has the value above it.
    pub(super) fill_down: Vec<usize>,
}

/// The rows with column names, as positions in [`Grid::rows`].
struct SheetHeader {
    rows: Vec<usize>,
    /// Where the rows below them start.
    rows_start: usize,
    /// Whether the names look like data.
    is_doubtful: bool,
    likely_row: Option<u32>,
    notes: Vec<LayoutNote>,
}

/// A value in merged cells that counts for each of their rows.
struct MergedLabel<'a> {
    range: CellRange,
    /// The position of its column in the table.
    place: usize,
    value: StoredValue<'a>,
}

/// The rows below the header.
struct SheetRows<'a> {
    grid: &'a Grid,
    texts: &'a SharedStrings,
    rows: &'a [usize],
}

impl DataRows for SheetRows<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn number(&self, at: usize) -> u32 {
        self.grid.rows[self.rows[at]].number
    }

    fn follows_gap(&self, at: usize) -> bool {
        at > 0 && self.number(at - 1) + 1 < self.number(at)
    }

    fn cells(&self, at: usize) -> Vec<SketchedCell> {
        sketch_cells(&self.grid.rows[self.rows[at]], self.texts)
    }

    fn total_candidates(&self) -> Vec<usize> {
        let is_candidate = |at: &usize| {
            let first =
                self.grid.rows[self.rows[*at]].cells.iter().find(|cell| !cell.value.is_blank(self.texts));
            match first.map(|cell| cell.value.to_stored(self.texts)) {
                Some(StoredValue::Text(text)) => layout::is_total_label(text),
                _ => false,
            }
        };
        (0..self.rows.len()).filter(is_candidate).collect()
    }

    fn inner_totals(&self) -> Vec<(usize, usize)> {
        const COLUMNS_MAX: usize = 4;
        const COUNT_MAX: usize = 1000;
        let inner = |at: usize| {
            let cells = &self.grid.rows[self.rows[at]].cells;
            let is_word = |cell: &&GridCell| {
                let stored = cell.value.to_stored(self.texts);
                matches!(stored, StoredValue::Text(text) if layout::is_total_word(text))
            };
            let behind =
                cells.iter().filter(|cell| !cell.value.is_blank(self.texts)).take(COLUMNS_MAX).skip(1);
            behind.filter(is_word).map(move |cell| (at, cell.column as usize))
        };
        (0..self.rows.len()).flat_map(inner).take(COUNT_MAX).collect()
    }

    fn is_merged_across(&self, at: usize) -> bool {
        let row = &self.grid.rows[self.rows[at]];
        let first = row.cells.iter().find(|cell| !cell.value.is_blank(self.texts));
        let last = |cell: &GridCell| self.grid.merged_from(row.number, cell.column as usize);
        first.is_some_and(|cell| last(cell).is_some_and(|last| last > cell.column + 1))
    }
}

impl SheetRows<'_> {
    /// Rows that have the same texts as the header in all of its columns.
    fn repeated_headers(&self, header: &GridRow) -> Vec<usize> {
        let names = || header.cells.iter().filter(|cell| !cell.value.is_blank(self.texts));
        let is_same = |at: &usize| {
            let row = &self.grid.rows[self.rows[*at]];
            names().count() > 1
                && names().all(|name| {
                    let own = row.get(name.column).map(|cell| cell.value.to_stored(self.texts));
                    own == Some(name.value.to_stored(self.texts))
                })
        };
        (0..self.rows.len()).filter(is_same).collect()
    }
}

fn with_repeated_headers(
    mut left_out: LeftOutRows,
    repeated: Vec<usize>,
    rows: &SheetRows<'_>,
) -> LeftOutRows {
    if let Some(first) = repeated.first() {
        left_out.notes.push(LayoutNote {
            kind: LayoutNoteKind::LeftOut,
            message: format!(
                "repeats its column names (first in row {}), which are left out",
                rows.number(*first)
            ),
            setting: "footer_rows = 0".into(),
        });
        left_out.rows.extend(repeated);
        left_out.rows.sort_unstable();
        left_out.rows.dedup();
    }
    left_out
}

/// The cells of a row that do not look empty.
fn sketch_cells(row: &GridRow, texts: &SharedStrings) -> Vec<SketchedCell> {
    let cells = row.cells.iter().filter_map(|cell| {
        let stored = cell.value.to_stored(texts);
        let text = column_name(stored);
        let class = match stored {
            StoredValue::DateTime(_) => TextClass::Date,
            StoredValue::Integer(_) | StoredValue::Real(_) | StoredValue::Boolean(_) => TextClass::Number,
            _ => TextClass::of(&text),
        };
        (class != TextClass::Blank).then_some(SketchedCell { column: cell.column as usize, text, class })
    });
    cells.collect()
}

impl CellValue {
    pub(super) fn to_stored<'a>(&'a self, texts: &'a SharedStrings) -> StoredValue<'a> {
        match self {
            Self::Text(text) => StoredValue::Text(text),
            Self::SharedString(at) => StoredValue::Text(texts.get(*at as usize).map_or("", |text| text)),
            Self::DateTime(text) => StoredValue::DateTime(text),
            Self::Number(n) => number_value(*n),
            Self::Boolean(value) => StoredValue::Boolean(*value),
            Self::Error | Self::Uncomputed => StoredValue::Null,
        }
    }

    /// Whether the cell looks empty.
    fn is_blank(&self, texts: &SharedStrings) -> bool {
        match self.to_stored(texts) {
            StoredValue::Null => true,
            StoredValue::Text(text) => text.trim().is_empty(),
            _ => false,
        }
    }
}

/// An integer, if the float is one that represents it exactly.
pub(super) fn number_value<'a>(n: f64) -> StoredValue<'a> {
    let is_whole =
        n.fract() == 0.0 && n.abs() <= SAFE_INTEGER_MAX as f64 && !(n == 0.0 && n.is_sign_negative());
    if is_whole { StoredValue::Integer(n as i64) } else { StoredValue::Real(n) }
}

impl GridRow {
    pub(super) fn get(&self, column: u32) -> Option<&GridCell> {
        let at = self.cells.binary_search_by_key(&column, |cell| cell.column).ok()?;
        Some(&self.cells[at])
    }
}

impl Grid {
    /// Finds the table on the sheet, or says why there is none.
    pub(super) fn find_table(
        &self,
        texts: &SharedStrings,
        declared: &DeclaredLayout,
    ) -> Result<TableLayout, String> {
        let is_region = |region: &CellRange| match declared.header_row {
            Some(row) => row == region.first.row,
            None => declared.skip_rows.is_none_or(|rows| rows < region.first.row),
        };
        let region = self.table_range.filter(is_region);
        let header = self.find_header(texts, declared, region)?;
        let span = region.map_or(0..=u32::MAX, |region| region.first.column..=region.last.column);
        let last = region.map_or(u32::MAX, |region| region.last.row);
        let is_ours = |cell: &&GridCell| span.contains(&cell.column) && !cell.value.is_blank(texts);
        let mut rows: Vec<usize> = (header.rows_start..self.rows.len())
            .filter(|at| {
                self.rows[*at].number <= last && self.rows[*at].cells.iter().any(|cell| is_ours(&cell))
            })
            .collect();
        let mut left_out = match region {
            // Excel knows where its table ends.
            Some(_) => LeftOutRows::default(),
            None => {
                // Without names, the first row tells how many columns there are.
                let last = header.rows.last().copied();
                let names: Vec<String> = self.rows[last.unwrap_or(header.rows_start)]
                    .cells
                    .iter()
                    .map(|cell| column_name(cell.value.to_stored(texts)))
                    .collect();
                let sketched = SheetRows { grid: self, texts, rows: &rows };
                let left_out = layout::find_left_out(&sketched, &names, declared, "row");
                let repeated = match (declared.footer_rows, last) {
                    (Some(0), _) | (_, None) => Vec::new(),
                    (_, Some(_)) if header.is_doubtful => Vec::new(),
                    (_, Some(last)) => sketched.repeated_headers(&self.rows[last]),
                };
                with_repeated_headers(left_out, repeated, &sketched)
            }
        };
        let has_rows_below = left_out.rows.iter().max().is_some_and(|row| row + 1 == rows.len());
        let mut at = 0;
        rows.retain(|_| {
            at += 1;
            left_out.rows.binary_search(&(at - 1)).is_err()
        });
        let header_rows: Vec<&GridRow> = header.rows.iter().map(|at| &self.rows[*at]).collect();
        let columns = self.find_columns(&header_rows, &rows, &span, texts)?;
        let mut notes = header.notes;
        notes.append(&mut left_out.notes);
        let names = self.column_names(&header_rows, &columns, texts);
        if region.is_none() {
            notes.extend(self.doubt_blocks(&columns, &names, &rows, texts));
        }
        let is_filled = |(_, name): &(usize, &String)| declared.fill_down.contains(name);
        let fill_down: Vec<usize> = names.iter().enumerate().filter(is_filled).map(|(at, _)| at).collect();
        let is_completed = !fill_down.is_empty();
        // Without names, the table begins below the row before its first.
        let row_above = self.rows[header.rows_start.min(self.rows.len() - 1)].number.saturating_sub(1);
        Ok(TableLayout {
            first_header_row: header_rows.first().map_or(row_above + 1, |row| row.number),
            header_row: header_rows.last().map_or(row_above, |row| row.number),
            header: names,
            fill_down,
            columns,
            rows,
            likely_header_row: header.likely_row,
            has_rows_below,
            notes,
            read_only_reason: match is_completed {
                true => Some(COMPLETED_ROWS_REASON.to_owned()),
                false => left_out.read_only_reason,
            },
        })
    }

    /// The rows with the names of columns.
    fn find_header(
        &self,
        texts: &SharedStrings,
        declared: &DeclaredLayout,
        region: Option<CellRange>,
    ) -> Result<SheetHeader, String> {
        let wanted = region.map(|region| region.first.row).or(declared.header_row);
        let sketched: Vec<(usize, SketchedRow)> = match wanted {
            Some(number) => {
                let is_near = |row: &GridRow| (number..number + HEAD_ROWS_MAX as u32).contains(&row.number);
                self.sketch_rows(texts, is_near)
            }
            None => self.sketch_rows(texts, |row| row.number > declared.skip_rows.unwrap_or(0)),
        };
        let rows: Vec<SketchedRow> = sketched.iter().map(|(_, row)| row.clone()).collect();
        let place = DeclaredLayout {
            header_row: wanted,
            header_rows: region.map(|_| 1).or(declared.header_rows),
            ..declared.clone()
        };
        let is_merged = |row: u32, column: usize| self.merged_from(row, column).is_some();
        let found = layout::find_header(&rows, &place, "row", is_merged);
        let found = found.ok_or_else(|| match wanted {
            Some(number) => format!("its row {number} has no column names"),
            None => "it has no header row".into(),
        })?;
        let count = found.count.min(rows.len() - found.at);
        let rows: Vec<usize> = sketched[found.at..found.at + count].iter().map(|(at, _)| *at).collect();
        Ok(SheetHeader {
            rows_start: rows.last().map_or(sketched[found.at].0, |last| last + 1),
            rows,
            likely_row: found.likely_row,
            is_doubtful: found.is_doubtful,
            notes: found.notes,
        })
    }

    /// The last column of the merged cells that begin here and are side by side.
    fn merged_from(&self, row: u32, column: usize) -> Option<u32> {
        let is_here = |range: &&CellRange| {
            (range.first.row..=range.last.row).contains(&row)
                && range.first.column as usize == column
                && range.last.column > range.first.column
        };
        self.merged_ranges.iter().find(is_here).map(|range| range.last.column)
    }

    /// The first rows with a value, each with its position.
    fn sketch_rows(
        &self,
        texts: &SharedStrings,
        is_wanted: impl Fn(&GridRow) -> bool,
    ) -> Vec<(usize, SketchedRow)> {
        let mut rows: Vec<(usize, SketchedRow)> = Vec::new();
        for (at, row) in self.rows.iter().enumerate().filter(|(_, row)| is_wanted(row)) {
            let cells = sketch_cells(row, texts);
            if cells.is_empty() {
                continue;
            }
            let follows_gap = rows.last().is_some_and(|(_, before)| before.number + 1 < row.number);
            rows.push((at, SketchedRow { number: row.number, follows_gap, width: 0, cells }));
            if rows.len() == HEAD_ROWS_MAX {
                break;
            }
        }
        rows
    }

    fn column_names(&self, header: &[&GridRow], columns: &[u32], texts: &SharedStrings) -> Vec<String> {
        if header.is_empty() {
            return (1..=columns.len()).map(|number| format!("column_{number}")).collect();
        }
        if let [only] = header {
            let name = |column: &u32| {
                only.get(*column).map_or(String::new(), |cell| column_name(cell.value.to_stored(texts)))
            };
            return columns.iter().map(name).collect();
        }
        let rows: Vec<SketchedRow> = header
            .iter()
            .map(|row| SketchedRow {
                number: row.number,
                follows_gap: false,
                width: 0,
                cells: sketch_cells(row, texts),
            })
            .collect();
        let has_merges = |row: &SketchedRow| {
            row.cells.iter().any(|cell| self.merged_from(row.number, cell.column).is_some())
        };
        let extends_to = |row: &SketchedRow, from: usize, to: usize| match has_merges(row) {
            true => self.merged_from(row.number, from).is_some_and(|last| to <= last as usize),
            false => layout::has_name_below(&rows, row, from),
        };
        layout::join_names(&rows, columns.iter().map(|column| *column as usize), extends_to)
    }

    /// A note if the columns stand on two sides of a blank one and may be two tables: each side has a row in which the other
    /// has a value and it has none, or a name that the other has, too.
    fn doubt_blocks(
        &self,
        columns: &[u32],
        names: &[String],
        rows: &[usize],
        texts: &SharedStrings,
    ) -> Option<LayoutNote> {
        const COLUMNS_MIN: usize = 2;
        const ROWS_MAX: usize = 1000;
        let right = (COLUMNS_MIN..columns.len().saturating_sub(COLUMNS_MIN - 1))
            .find(|at| columns[*at] > columns[*at - 1] + 1 && !names[*at].is_empty())?;
        let has_same_name = names[right..].iter().any(|name| names[..right].contains(name));
        let is_on_one_side = |row: &usize| {
            let cells = self.rows[*row].cells.iter().filter(|cell| !cell.value.is_blank(texts));
            let (right, left): (Vec<_>, Vec<_>) = cells.partition(|cell| cell.column >= columns[right]);
            right.is_empty() != left.is_empty()
        };
        let is_doubtful = has_same_name || rows.iter().take(ROWS_MAX).any(is_on_one_side);
        is_doubtful.then(|| LayoutNote {
            kind: LayoutNoteKind::DoubtfulValues,
            message: format!(
                "has columns on both sides of the blank column {}, which may be two tables and are read as one",
                column_letters(columns[right] - 1)
            ),
            setting: "if they are two tables, move the second to a sheet of its own".into(),
        })
    }

    /// The columns that have a name or a value.
    fn find_columns(
        &self,
        header: &[&GridRow],
        rows: &[usize],
        span: &RangeInclusive<u32>,
        texts: &SharedStrings,
    ) -> Result<Vec<u32>, String> {
        let is_there = |cell: &&GridCell| !cell.value.is_blank(texts);
        let named = header.iter().flat_map(|row| &row.cells).filter(is_there);
        let mut columns: Vec<u32> = named.map(|cell| cell.column).collect();
        columns.sort_unstable();
        columns.dedup();
        for row in rows {
            // Most rows add no column.
            for cell in self.rows[*row].cells.iter().filter(is_there) {
                if let Err(at) = columns.binary_search(&cell.column) {
                    columns.insert(at, cell.column);
                }
                if columns.len() > COLUMNS_MAX {
                    return Err(format!("it has more than {COLUMNS_MAX} columns"));
                }
            }
        }
        columns.retain(|column| span.contains(column));
        Ok(columns)
    }

    /// The columns of the table that have a formula in some row.
    pub(super) fn formula_columns(&self, layout: &TableLayout) -> Vec<usize> {
        let has_formula = |column: u32| {
            layout.rows.iter().any(|at| self.rows[*at].get(column).is_some_and(|cell| cell.is_formula))
        };
        let columns = layout.columns.iter().enumerate();
        columns.filter(|(_, column)| has_formula(**column)).map(|(at, _)| at).collect()
    }

    /// Rows and columns of the cells that have a formula and no computed value, ascending.
    pub(super) fn uncomputed_cells(&self, layout: &TableLayout) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        for (position, at) in layout.rows.iter().enumerate() {
            for cell in self.rows[*at].cells.iter().filter(|cell| matches!(cell.value, CellValue::Uncomputed))
            {
                if let Ok(column) = layout.columns.binary_search(&cell.column) {
                    found.push((position as u32, column));
                }
            }
        }
        found
    }

    /// A formula in the last row of the sheet, if that is a row of the table.
    pub(super) fn formula_in_last_row(&self, layout: &TableLayout) -> Option<CellAddress> {
        let row = self.rows.last().filter(|row| row.number > layout.header_row)?;
        let cell = row.cells.iter().find(|cell| cell.is_formula)?;
        Some(CellAddress { row: row.number, column: cell.column })
    }

    /// The first formula of the sheet.
    pub(super) fn first_formula(&self) -> Option<CellAddress> {
        let mut rows = self.rows.iter();
        rows.find_map(|row| {
            let cell = row.cells.iter().find(|cell| cell.is_formula)?;
            Some(CellAddress { row: row.number, column: cell.column })
        })
    }

    /// Merged cells above each other in one column, whose value counts for all of their rows: texts and dates, and
    /// numbers in the first column. Another number may be the sum for its rows, and would be counted again.
    fn merged_labels<'a>(&'a self, layout: &TableLayout, texts: &'a SharedStrings) -> Vec<MergedLabel<'a>> {
        let label = |range: &CellRange| {
            let is_column = range.first.column == range.last.column
                && range.last.row > range.first.row
                && range.first.row > layout.header_row;
            let at = self.rows.binary_search_by_key(&range.first.row, |row| row.number).ok()?;
            let cell = self.rows[at].get(range.first.column).filter(|cell| is_column && !cell.is_formula)?;
            let value = cell.value.to_stored(texts);
            let place = layout.columns.binary_search(&range.first.column).ok()?;
            let is_label = match value {
                StoredValue::Text(text) => !text.trim().is_empty(),
                StoredValue::DateTime(_) => true,
                StoredValue::Integer(_) | StoredValue::Real(_) => place == 0,
                _ => false,
            };
            is_label.then_some(MergedLabel { range: *range, place, value })
        };
        let mut labels: Vec<MergedLabel<'_>> = self.merged_ranges.iter().filter_map(label).collect();
        labels.sort_by_key(|label| label.range.first);
        labels
    }

    /// Builds the table. Also returns notes about how it was read.
    pub(super) fn build_table(
        &self,
        name: &str,
        layout: &TableLayout,
        texts: &SharedStrings,
        budget: &mut Budget,
    ) -> Result<(Table, Vec<String>), ParseError> {
        let mut table = Table::new(name, layout.header.clone());
        table.column_letters = layout.columns.iter().map(|column| column_letters(*column)).collect();
        table.likely_header_row = layout.likely_header_row;
        table.header_rows = Some(HeaderRows {
            first: layout.first_header_row,
            count: layout.header_row - layout.first_header_row + 1,
        });
        table.layout_notes.clone_from(&layout.notes);
        table.read_only_reason.clone_from(&layout.read_only_reason);
        let mut warnings = CellWarnings::default();
        let labels = self.merged_labels(layout, texts);
        let is_inside = |range: &&CellRange| range.last.row > layout.header_row;
        let is_other = |range: &&CellRange| {
            labels.binary_search_by_key(&range.first, |label| label.range.first).is_err()
        };
        let merges = || self.merged_ranges.iter().filter(is_inside);
        let other_merge = merges().find(is_other);
        let (mut labels, mut current, mut filled) = (labels.into_iter().peekable(), Vec::new(), None);
        // A column is computed if every cell in it is a formula.
        let mut plain = vec![layout.rows.is_empty(); layout.columns.len()];
        let mut above: Vec<StoredValue<'_>> = vec![StoredValue::Null; layout.fill_down.len()];
        for at in &layout.rows {
            let row = &self.rows[*at];
            budget.step()?;
            // The table copies a shared text for each of its cells.
            let copied = row.cells.iter().filter_map(|cell| match cell.value {
                CellValue::SharedString(at) => texts.get(at as usize).map(|text| text.len()),
                _ => None,
            });
            budget.charge_text(copied.sum())?;
            let mut ours: Vec<(usize, StoredValue<'_>)> = Vec::with_capacity(row.cells.len());
            for cell in &row.cells {
                let Ok(place) = layout.columns.binary_search(&cell.column) else { continue };
                plain[place] |= !cell.is_formula;
                warnings.observe(cell, row.number);
                ours.push((place, cell.value.to_stored(texts)));
            }
            while let Some(label) = labels.next_if(|label| label.range.first.row < row.number) {
                // One label for each column, however many ranges overlap.
                current.retain(|other: &MergedLabel<'_>| other.place != label.place);
                current.push(label);
            }
            current.retain(|label| row.number <= label.range.last.row);
            for label in &current {
                plain[label.place] = true;
                filled.get_or_insert(label.range);
                if let StoredValue::Text(text) | StoredValue::DateTime(text) = label.value {
                    budget.charge_text(text.len())?;
                }
                match ours.binary_search_by_key(&label.place, |(place, _)| *place) {
                    Ok(at) if matches!(ours[at].1, StoredValue::Null | StoredValue::Text("")) => {
                        ours[at].1 = label.value;
                    }
                    Ok(_) => {}
                    Err(at) => ours.insert(at, (label.place, label.value)),
                }
            }
            for (index, place) in layout.fill_down.iter().enumerate() {
                let found = ours.binary_search_by_key(place, |(place, _)| *place);
                let value = found.map_or(StoredValue::Null, |at| ours[at].1);
                let is_blank = match value {
                    StoredValue::Null => true,
                    StoredValue::Text(text) => text.trim().is_empty(),
                    _ => false,
                };
                if !is_blank {
                    above[index] = value;
                    above[index + 1..].fill(StoredValue::Null);
                    continue;
                }
                if let StoredValue::Text(text) | StoredValue::DateTime(text) = above[index] {
                    budget.charge_text(text.len())?;
                }
                match found {
                    Ok(at) => ours[at].1 = above[index],
                    Err(at) => ours.insert(at, (*place, above[index])),
                }
            }
            table.push_row(row.number, ours);
        }
        if self.depends_on_other_sheets {
            table.may_be_outdated = self.formula_columns(layout);
        }
        let computed = self.formula_columns(layout).into_iter().filter(|at| !plain[*at]);
        table.computed = computed.map(|at| (at, "it is computed by a formula".to_owned())).collect();
        let mut notes = warnings.notes(name);
        let is_hidden = |at: &&usize| self.hidden_rows.binary_search(&self.rows[**at].number).is_ok();
        let hidden: Vec<u32> = layout.rows.iter().filter(is_hidden).map(|at| self.rows[*at].number).collect();
        if let Some(first) = hidden.first() {
            let rows = pluralize(hidden.len() as u64, "hidden row");
            notes.push(format!(
                "`{name}` has {rows} (row {first} first), which a filter may hide: they are read"
            ));
        }
        if let Some(range) = filled {
            notes.push(format!(
                "`{name}` has labels in merged cells (such as {range}): they count for each of their rows"
            ));
        }
        if let Some(range) = other_merge.or_else(|| merges().next().filter(|_| filled.is_none())) {
            notes.push(format!(
                "`{name}` has merged cells (such as {range}): the first of them has the value, the others have none"
            ));
        }
        Ok((table, notes))
    }
}

/// Cells without a value where people see something.
#[derive(Default)]
struct CellWarnings {
    errors: usize,
    uncomputed: usize,
    first_error: Option<CellAddress>,
    first_uncomputed: Option<CellAddress>,
}

impl CellWarnings {
    fn observe(&mut self, cell: &GridCell, row: u32) {
        let place = CellAddress { row, column: cell.column };
        match cell.value {
            CellValue::Error => {
                self.errors += 1;
                self.first_error.get_or_insert(place);
            }
            CellValue::Uncomputed => {
                self.uncomputed += 1;
                self.first_uncomputed.get_or_insert(place);
            }
            CellValue::Text(_)
            | CellValue::SharedString(_)
            | CellValue::DateTime(_)
            | CellValue::Number(_)
            | CellValue::Boolean(_) => {}
        }
    }

    fn notes(&self, name: &str) -> Vec<String> {
        let cells = |count: usize| pluralize(count as u64, "cell");
        let errors = self.first_error.map(|at| {
            let cells = cells(self.errors);
            format!("`{name}` has {cells} with an error such as `#N/A` ({at} first): they have no value")
        });
        let uncomputed = self.first_uncomputed.map(|at| {
            let cells = cells(self.uncomputed);
            format!(
                "`{name}` has {cells} with a formula but no computed value ({at} first): they have no value \
                 until a spreadsheet program saves the file"
            )
        });
        errors.into_iter().chain(uncomputed).collect()
    }
}

fn column_name(stored: StoredValue<'_>) -> String {
    match stored {
        StoredValue::Null | StoredValue::Blob(_) => String::new(),
        StoredValue::Text(text)
        | StoredValue::DateTime(text)
        | StoredValue::NumberText(text)
        | StoredValue::Json(text) => text.to_owned(),
        StoredValue::Integer(n) => n.to_string(),
        StoredValue::Real(n) => n.to_string(),
        StoredValue::Boolean(value) => value.to_string(),
    }
}
