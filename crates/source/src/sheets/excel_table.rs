//! Adds a row to an Excel table, as Excel does: the table's range and filter grow, and its calculated columns are filled
//! down.
//!
//! The computed values are left to the next spreadsheet program. What would need more than that is refused: a totals row
//! would have to move, and formulas and charts that cover the whole table would have to be computed and drawn again.

use std::collections::HashMap;

use super::address::{CellAddress, CellRange};
use super::budget::Budget;
use super::grid::TableLayout;
use super::references::{CellReference, ExcelTable, is_row_relative, shift_rows};
use super::sheet::{Sheet, SheetEvent, SheetFormula, scan_sheet};
use super::sheet_xml::{SheetXml, Splices};
use super::workbook::WorkbookParts;
use super::xml::{XmlEvent, XmlReader, utf8_text};
use super::zip::ZipArchive;
use crate::tables::ParseError;

/// The Excel table of a sheet that can get one more row.
pub(super) struct GrowableTable<'a> {
    table: &'a ExcelTable,
    /// The formulas of its last row, by column.
    last_row_formulas: HashMap<u32, FilledFormula>,
}

/// The formula of a cell in the last row.
enum FilledFormula {
    Text(String),
    /// It fills several cells at once.
    Array,
}

/// Why there can be no new row: a clause for the owner of the data.
pub(super) type Refusal = String;

impl<'a> GrowableTable<'a> {
    /// The Excel table that the rows of a sheet are in; `None` if there is none.
    pub(super) fn find(
        archive: &ZipArchive<'_>,
        book: &'a WorkbookParts,
        sheet_index: usize,
        xml: &str,
        sheet: &Sheet,
        layout: &TableLayout,
        budget: &mut Budget,
    ) -> Result<Result<Option<Self>, Refusal>, ParseError> {
        let id = match sheet.table_relationships.as_slice() {
            [] => return Ok(Ok(None)),
            [id] => id,
            _ => return Ok(Err("the sheet has several Excel tables".into())),
        };
        let table = book.references.tables_of(sheet_index).find(|table| table.relationship == *id);
        let Some(table) = table else {
            return Ok(Err("the sheet has an Excel table that cannot be read".into()));
        };
        let Some(rows) = table.header_and_rows else {
            return Ok(Err(format!("the Excel table `{}` has no header row", table.name)));
        };
        if layout.header_row != rows.first.row {
            return Ok(Err(
                "the sheet has an Excel table, and the header row is not that of the table".into()
            ));
        }
        if rows != table.range {
            return Ok(Err(format!(
                "the Excel table `{}` has a totals row, which would have to move",
                table.name
            )));
        }
        if let Some(refusal) = covering_part(archive, book, table) {
            return Ok(Err(refusal));
        }
        let (last_row_formulas, covering) = scan_formulas(xml, book, sheet_index, table, budget)?;
        if let Some(address) = covering {
            return Ok(Err(format!(
                "{address} may be computed from all rows of the Excel table `{}`",
                table.name
            )));
        }
        Ok(Ok(Some(Self { table, last_row_formulas })))
    }

    pub(super) fn range(&self) -> CellRange {
        self.table.range
    }

    /// The formulas of a row that is added below the last one.
    pub(super) fn formulas(&self) -> Result<Vec<(u32, String)>, Refusal> {
        let mut formulas = Vec::new();
        for column in self.table.range.first.column..=self.table.range.last.column {
            let position = (column - self.table.range.first.column) as usize;
            let address = CellAddress { row: self.table.range.last.row, column };
            let formula = match (self.last_row_formulas.get(&column), self.table.calculated.get(position)) {
                (Some(FilledFormula::Text(text)), _) => shift_rows(text, 1)
                    .ok_or_else(|| format!("the formula of {address} cannot be continued in the next row"))?,
                (Some(FilledFormula::Array), _) => {
                    return Err(format!("{address} is part of an array formula"));
                }
                // Relative to which row is not said.
                (None, Some(Some(text))) if is_row_relative(text) => {
                    return Err(format!("{address} lacks the formula of its column"));
                }
                (None, Some(Some(text))) => text.clone(),
                (None, Some(None) | None) => continue,
            };
            formulas.push((column, formula));
        }
        Ok(formulas)
    }

    /// Extends the rules of the sheet that apply to all rows of the table: validation, conditional formats.
    pub(super) fn extend_rules(&self, sheet_xml: &SheetXml, splices: &mut Splices) {
        let rules = ["conditionalFormatting", "dataValidation"];
        for element in sheet_xml.other_elements.iter().filter(|one| rules.contains(&one.name.as_str())) {
            let Some((span, ranges)) = &element.ranges else { continue };
            let extended: Vec<String> = ranges.split_whitespace().map(|range| self.extended(range)).collect();
            let extended = extended.join(" ");
            if extended != *ranges {
                splices.replace(span.clone(), extended);
            }
        }
    }

    fn extended(&self, range: &str) -> String {
        let (table, Some(mut rule)) = (self.table.range, CellRange::parse(range)) else {
            return range.to_owned();
        };
        let is_inside = rule.first.column >= table.first.column && rule.last.column <= table.last.column;
        let covers = rule.first.row <= table.first.row + 1 && rule.last.row == table.last.row;
        if !is_inside || !covers {
            return range.to_owned();
        }
        rule.last.row += 1;
        rule.to_string()
    }

    /// The position of the table's part in the archive, and its bytes with one more row.
    pub(super) fn grow_part(
        &self,
        archive: &ZipArchive<'_>,
        budget: &mut Budget,
    ) -> Result<(usize, Vec<u8>), ParseError> {
        let bytes = archive.read(self.table.part, budget)?;
        let text = utf8_text(&bytes)?;
        let mut splices = Splices::default();
        let mut xml = XmlReader::new(text);
        loop {
            match xml.next(budget)? {
                XmlEvent::Eof => break,
                XmlEvent::Start { tag, .. } if ["table", "autoFilter"].contains(&tag.name()) => {
                    let range = tag.attribute("ref")?.and_then(|range| CellRange::parse(&range));
                    let span = tag.attribute_value_span("ref");
                    if let (Some(mut range), Some(span)) = (range, span)
                        && range.last.row == self.table.range.last.row
                    {
                        range.last.row += 1;
                        let start = xml.span().start;
                        splices.replace(start + span.start..start + span.end, range.to_string());
                    }
                }
                XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
        let mark = &bytes[..bytes.len() - text.len()];
        Ok((self.table.part, [mark, splices.apply(text).as_bytes()].concat()))
    }
}

/// A chart or a name that would have to cover the new row.
fn covering_part(archive: &ZipArchive<'_>, book: &WorkbookParts, table: &ExcelTable) -> Option<Refusal> {
    if archive.has_part_under("xl/charts/") {
        return Some(format!(
            "a chart may show the rows of the Excel table `{}`, and would not show the new one",
            table.name
        ));
    }
    let covers = |reference: &CellReference| match reference {
        CellReference::Unknown => false,
        CellReference::Cells { sheets, range } => {
            sheets.contains(&table.sheet)
                && range.intersects(&table.range)
                && range.last.row == table.range.last.row
        }
    };
    // A name for `Orders[Qty]` follows the table by itself.
    let names = book.defined_names.iter().filter(|one| !one.name.starts_with("_xlnm."));
    let mut names = names.filter(|one| !one.formula.contains('['));
    let name = names.find(|one| book.references.of_name(&one.name).iter().any(covers))?;
    Some(format!("the name `{}` covers the rows of the Excel table `{}`", name.name, table.name))
}

/// The formulas in the last row of a table, and a formula of its sheet that covers the whole table.
fn scan_formulas(
    xml: &str,
    book: &WorkbookParts,
    sheet_index: usize,
    table: &ExcelTable,
    budget: &mut Budget,
) -> Result<(HashMap<u32, FilledFormula>, Option<CellAddress>), ParseError> {
    let (mut last_row, mut covering) = (HashMap::new(), None);
    // Only one of the cells that share a formula has its text.
    let mut shared: HashMap<u32, (CellAddress, String)> = HashMap::new();
    let last = table.range.last.row;
    scan_sheet(xml, book, budget, &mut |event| {
        let SheetEvent::Formula(formula) = event else { return Ok(()) };
        if covering.is_none() && book.references.grows_with(&formula, sheet_index, table) {
            covering = Some(formula.address);
        }
        let SheetFormula { address, text, range, is_array, shared_index } = formula;
        let is_in_row = |address: CellAddress| address.row == last && table.range.contains(address);
        if is_array {
            let range = range.unwrap_or(CellRange { first: address, last: address });
            for column in range.first.column..=range.last.column {
                if is_in_row(CellAddress { row: range.last.row, column }) {
                    last_row.insert(column, FilledFormula::Array);
                }
            }
            return Ok(());
        }
        let text = match shared_index {
            Some(index) if !text.is_empty() => {
                shared.insert(index, (address, text.clone()));
                Some(text)
            }
            Some(index) if is_in_row(address) => shared.get(&index).and_then(|(from, text)| {
                let rows = address.row.checked_sub(from.row).filter(|_| from.column == address.column)?;
                shift_rows(text, rows)
            }),
            Some(_) => None,
            None => Some(text),
        };
        if is_in_row(address) {
            last_row.insert(address.column, text.map_or(FilledFormula::Array, FilledFormula::Text));
        }
        Ok(())
    })?;
    Ok((last_row, covering))
}
