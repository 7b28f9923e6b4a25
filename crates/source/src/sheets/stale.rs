//! Finds formulas whose cached value is stale.
//!
//! A write cannot recompute formulas. It marks the sheet that it changed, and the next spreadsheet program that opens
//! the workbook recalculates it. Until then, the cached value of every formula that refers to the changed sheet,
//! directly or through other formulas, may be wrong. Formulas on the changed sheet itself are different: the writer
//! refuses to change a cell that one of them refers to.
//!
//! On the safe side: a reference that only a spreadsheet program can resolve counts as one to the changed sheet.

use std::collections::{BTreeSet, HashMap};

use super::address::{CellAddress, CellRange};
use super::budget::Budget;
use super::references::CellReference;
use super::sheet::{SheetEvent, scan_sheet};
use super::workbook::{SheetKind, WorkbookParts};
use super::xml::utf8_text;
use super::zip::ZipArchive;
use crate::tables::ParseError;

/// After this many rounds every formula counts as stale. Each round follows dependencies downwards at any length, so
/// only chains that go up the sheets need more than a few.
const ROUNDS_MAX: usize = 64;

/// The cells of each sheet whose cached value is stale.
pub(super) struct StaleCells {
    sheets: Vec<StaleSheet>,
}

#[derive(Default)]
struct StaleSheet {
    /// Column and row of cells with a formula of their own.
    cells: BTreeSet<(u32, u32)>,
    /// The ranges of array formulas.
    arrays: Vec<CellRange>,
}

struct FormulaNode {
    sheet: usize,
    address: CellAddress,
    /// The range of an array formula.
    array: Option<CellRange>,
    references: Vec<CellReference>,
}

impl StaleCells {
    /// `changed` are the positions of the sheets that were written since the last recalculation.
    pub(super) fn find(
        archive: &ZipArchive<'_>,
        book: &WorkbookParts,
        changed: &[usize],
        budget: &mut Budget,
    ) -> Result<Self, ParseError> {
        let mut nodes = Vec::new();
        for (sheet, entry) in book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, part) = &entry.kind else { continue };
            let bytes = archive.read(*part, budget)?;
            read_formulas(utf8_text(&bytes)?, sheet, book, budget, &mut nodes)?;
        }
        let mut stale = Self { sheets: book.sheets.iter().map(|_| StaleSheet::default()).collect() };
        let mut fresh = Vec::new();
        for node in nodes {
            let mut changed = changed.iter().filter(|sheet| **sheet != node.sheet);
            let refers = changed.any(|changed| {
                node.references.iter().any(|reference| match reference {
                    CellReference::Cells { sheets, .. } => sheets.contains(changed),
                    CellReference::Unknown => true,
                })
            });
            if refers { stale.insert(&node) } else { fresh.push(node) }
        }
        stale.follow_dependencies(fresh, budget)?;
        Ok(stale)
    }

    /// Adds the formulas that refer to stale cells, until there are none left.
    fn follow_dependencies(
        &mut self,
        mut fresh: Vec<FormulaNode>,
        budget: &mut Budget,
    ) -> Result<(), ParseError> {
        for _ in 0..ROUNDS_MAX {
            let mut rest = Vec::with_capacity(fresh.len());
            let before = fresh.len();
            for node in fresh {
                budget.step()?;
                let refers = node.references.iter().any(|reference| match reference {
                    CellReference::Cells { sheets, range } => {
                        self.sheets[sheets.clone()].iter().any(|sheet| sheet.intersects(range))
                    }
                    CellReference::Unknown => false,
                });
                if refers { self.insert(&node) } else { rest.push(node) }
            }
            if rest.len() == before {
                return Ok(());
            }
            fresh = rest;
        }
        fresh.iter().for_each(|node| self.insert(node));
        Ok(())
    }

    fn insert(&mut self, node: &FormulaNode) {
        let sheet = &mut self.sheets[node.sheet];
        match node.array {
            Some(range) => sheet.arrays.push(range),
            None => _ = sheet.cells.insert((node.address.column, node.address.row)),
        }
    }

    /// The stale cells of a sheet among these rows and columns, by their positions in `rows` and `columns`. Both are
    /// ascending.
    pub(super) fn positions(&self, sheet: usize, rows: &[u32], columns: &[u32]) -> Vec<(u32, usize)> {
        let StaleSheet { cells, arrays } = &self.sheets[sheet];
        let position = |column: u32, row: u32| {
            Some((rows.binary_search(&row).ok()? as u32, columns.binary_search(&column).ok()?))
        };
        let mut found: Vec<(u32, usize)> =
            cells.iter().filter_map(|(column, row)| position(*column, *row)).collect();
        for range in arrays {
            let of_range = |all: &[u32], first: u32, last: u32| {
                all.partition_point(|n| *n < first)..all.partition_point(|n| *n <= last)
            };
            let columns = of_range(columns, range.first.column, range.last.column);
            for row in of_range(rows, range.first.row, range.last.row) {
                found.extend(columns.clone().map(|column| (row as u32, column)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl StaleSheet {
    fn intersects(&self, range: &CellRange) -> bool {
        let mut column = range.first.column;
        // From one column with stale cells to the next.
        while let Some((next, row)) = self.cells.range((column, range.first.row)..).next() {
            if *next > range.last.column {
                break;
            }
            if *next == column && *row <= range.last.row {
                return true;
            }
            column = if *next == column { column + 1 } else { *next };
        }
        self.arrays.iter().any(|array| array.intersects(range))
    }
}

fn read_formulas(
    text: &str,
    sheet: usize,
    book: &WorkbookParts,
    budget: &mut Budget,
    nodes: &mut Vec<FormulaNode>,
) -> Result<(), ParseError> {
    // Most sheets have no formula, and a text search finds that out fast.
    if !text.contains("<f") && !text.contains(":f") {
        return Ok(());
    }
    let mut shared: HashMap<u32, Vec<CellReference>> = HashMap::new();
    scan_sheet(text, book, budget, &mut |event| {
        if let SheetEvent::Formula(formula) = event {
            let references = match formula.shared_index {
                Some(index) if formula.text.is_empty() => shared.get(&index).cloned(),
                _ => Some(book.references.of_formula(&formula, sheet)),
            };
            // A formula without a text, of which no other cell has one either.
            let references = references.unwrap_or_else(|| vec![CellReference::Unknown]);
            if let Some(index) = formula.shared_index {
                shared.entry(index).or_insert_with(|| references.clone());
            }
            let array = formula.range.filter(|_| formula.is_array);
            nodes.push(FormulaNode { sheet, address: formula.address, array, references });
        }
        Ok(())
    })
}
