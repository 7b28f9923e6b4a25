//! The cells of a sheet, and the table in it: which row is the header, which columns and rows belong to it.

use std::ops::RangeInclusive;

use contract::humanize::pluralize;
use contract::infer::SAFE_INTEGER_MAX;

use super::address::{CellAddress, CellRange, column_letters};
use super::budget::{Budget, COLUMNS_MAX};
use crate::tables::{ParseError, StoredValue, Table};

/// Cells with a value, by row and column, both ascending. Sparse: a cell far away costs no more than one nearby.
#[derive(Default)]
pub(super) struct Grid {
    pub(super) rows: Vec<GridRow>,
    /// The range of the only Excel table on the sheet, without its totals; `None` if there are none or several.
    pub(super) table_range: Option<CellRange>,
    pub(super) merged_ranges: Vec<CellRange>,
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
    /// The number of the header row.
    pub(super) header_row: u32,
    /// Columns of the sheet, by position in the table.
    pub(super) columns: Vec<u32>,
    pub(super) header: Vec<String>,
    /// Positions in [`Grid::rows`].
    pub(super) rows: Vec<usize>,
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
        matches!(self.to_stored(texts), StoredValue::Null | StoredValue::Text(""))
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
        header_row: Option<u32>,
    ) -> Result<TableLayout, String> {
        let region = self.table_range.filter(|region| header_row.is_none_or(|row| row == region.first.row));
        let wanted = header_row.or(region.map(|region| region.first.row));
        let is_name = |cell: &GridCell| match cell.value.to_stored(texts) {
            StoredValue::Text(text) => !text.trim().is_empty(),
            _ => false,
        };
        let is_header = |row: &GridRow| match wanted {
            Some(number) => row.number == number,
            None => row.cells.iter().any(is_name),
        };
        let at = self.rows.iter().position(is_header);
        let header = at.map(|at| &self.rows[at]).filter(|row| row.cells.iter().any(is_name));
        let (at, header) = match (at.zip(header), wanted) {
            (Some(found), _) => found,
            (None, Some(number)) => return Err(format!("its row {number} has no column names")),
            (None, None) => return Err("it has no header row".into()),
        };
        let span = region.map_or(0..=u32::MAX, |region| region.first.column..=region.last.column);
        let last = region.map_or(u32::MAX, |region| region.last.row);
        let is_ours = |cell: &&GridCell| span.contains(&cell.column) && !cell.value.is_blank(texts);
        let rows: Vec<usize> = (at + 1..self.rows.len())
            .filter(|at| {
                self.rows[*at].number <= last && self.rows[*at].cells.iter().any(|cell| is_ours(&cell))
            })
            .collect();
        let columns = self.find_columns(header, &rows, &span, texts)?;
        let name = |column: &u32| {
            header.get(*column).map_or(String::new(), |cell| column_name(cell.value.to_stored(texts)))
        };
        Ok(TableLayout {
            header_row: header.number,
            header: columns.iter().map(name).collect(),
            columns,
            rows,
        })
    }

    /// The row that probably names the columns, if the header row has a single text above several columns, as a title
    /// has: the first row below with several texts and nothing else.
    fn likely_header_row(&self, layout: &TableLayout, texts: &SharedStrings) -> Option<u32> {
        let is_named = |name: &&String| !name.trim().is_empty();
        if layout.columns.len() < 2 || layout.header.iter().filter(is_named).count() != 1 {
            return None;
        }
        let is_text = |cell: &&GridCell| matches!(cell.value.to_stored(texts), StoredValue::Text(text) if !text.trim().is_empty());
        let is_header = |row: &&GridRow| {
            let filled = row.cells.iter().filter(|cell| !cell.value.is_blank(texts));
            row.cells.iter().filter(is_text).count() >= 2 && filled.clone().all(|cell| is_text(&cell))
        };
        layout.rows.iter().map(|at| &self.rows[*at]).find(is_header).map(|row| row.number)
    }

    /// The columns that have a name or a value.
    fn find_columns(
        &self,
        header: &GridRow,
        rows: &[usize],
        span: &RangeInclusive<u32>,
        texts: &SharedStrings,
    ) -> Result<Vec<u32>, String> {
        let is_there = |cell: &&GridCell| !cell.value.is_blank(texts);
        let mut columns: Vec<u32> = header.cells.iter().filter(is_there).map(|cell| cell.column).collect();
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
        table.likely_header_row = self.likely_header_row(layout, texts);
        let mut warnings = CellWarnings::default();
        // A column is computed if every cell in it is a formula.
        let mut plain = vec![layout.rows.is_empty(); layout.columns.len()];
        for at in &layout.rows {
            let row = &self.rows[*at];
            budget.step()?;
            // The table copies a shared text for each of its cells.
            let copied = row.cells.iter().filter_map(|cell| match cell.value {
                CellValue::SharedString(at) => texts.get(at as usize).map(|text| text.len()),
                _ => None,
            });
            budget.charge_text(copied.sum())?;
            let ours = row.cells.iter().filter_map(|cell| {
                let place = layout.columns.binary_search(&cell.column).ok()?;
                plain[place] |= !cell.is_formula;
                warnings.observe(cell, row.number);
                Some((place, cell.value.to_stored(texts)))
            });
            table.push_row(row.number, ours);
        }
        if self.depends_on_other_sheets {
            table.may_be_outdated = self.formula_columns(layout);
        }
        let computed = self.formula_columns(layout).into_iter().filter(|at| !plain[*at]);
        table.computed = computed.map(|at| (at, "it is computed by a formula".to_owned())).collect();
        let mut notes = warnings.notes(name);
        let is_inside = |range: &&CellRange| range.last.row > layout.header_row;
        if let Some(range) = self.merged_ranges.iter().find(is_inside) {
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
