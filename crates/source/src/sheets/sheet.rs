//! Reads a sheet's XML as events with their byte ranges, so that a writer knows which bytes to leave alone.

use std::ops::Range;

use spile_core::calendar::Temporal;

use super::address::{COLUMNS_MAX, CellAddress, CellRange, ROWS_MAX};
use super::budget::{Budget, CELL_BYTES, ROW_BYTES, invalid_file_error};
use super::grid::{CellValue, Grid, GridCell, GridRow};
use super::references::CellReference;
use super::serial_date::format_serial;
use super::workbook::{WorkbookParts, read_rich_text};
use super::xml::{StartTag, XmlEvent, XmlReader, unescape_text};
use crate::tables::ParseError;

/// A part of a sheet, in document order.
pub(super) enum SheetEvent<'a> {
    /// `number_span` is where the row number is, if it is given.
    Row {
        number: u32,
        tag: Range<usize>,
        number_span: Option<Range<usize>>,
        is_empty: bool,
        is_hidden: bool,
    },
    RowEnd {
        tag: Range<usize>,
    },
    Cell(SheetCell),
    Formula(SheetFormula),
    /// The start tag of `<sheetData>`.
    SheetData {
        open: Range<usize>,
    },
    SheetDataEnd {
        tag: Range<usize>,
    },
    /// An element outside of `<sheetData>`, at any depth.
    Element {
        tag: &'a StartTag<'a>,
        span: Range<usize>,
        depth: usize,
    },
}

pub(super) struct SheetCell {
    pub(super) address: CellAddress,
    pub(super) style: u32,
    pub(super) is_formula: bool,
    pub(super) value: Option<CellValue>,
    pub(super) span: Range<usize>,
    /// Where `B7` is, if it is given.
    pub(super) address_span: Option<Range<usize>>,
}

pub(super) struct SheetFormula {
    pub(super) address: CellAddress,
    pub(super) text: String,
    /// The cells that share the formula.
    pub(super) range: Option<CellRange>,
    /// Whether one formula fills the whole range, rather than each cell having its own.
    pub(super) is_array: bool,
    /// Which shared formula it is. Only one of the cells that share it has the text.
    pub(super) shared_index: Option<u32>,
}

type EventHandler<'a> = dyn FnMut(SheetEvent<'_>) -> Result<(), ParseError> + 'a;

/// Reads a sheet's XML and calls `handle` for each event.
pub(super) fn scan_sheet(
    text: &str,
    book: &WorkbookParts,
    budget: &mut Budget,
    handle: &mut EventHandler<'_>,
) -> Result<(), ParseError> {
    let mut xml = XmlReader::new(text);
    loop {
        match xml.next(budget)? {
            XmlEvent::Start { tag, is_empty: true } if tag.name() == "worksheet" => return Ok(()),
            XmlEvent::Start { tag, is_empty: false } if tag.name() == "worksheet" => break,
            // A line break after the XML declaration.
            XmlEvent::Text(_) => {}
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Eof => {
                return Err(invalid_file_error("a sheet of the workbook is damaged"));
            }
        }
    }
    let mut has_data = false;
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => return Ok(()),
            XmlEvent::Start { tag, is_empty }
                if tag.name() == "sheetData" && xml.depth() + usize::from(is_empty) == 2 =>
            {
                if has_data {
                    return Err(invalid_file_error("a sheet of the workbook is damaged"));
                }
                has_data = true;
                handle(SheetEvent::SheetData { open: xml.span() })?;
                if !is_empty {
                    RowScanner { xml: &mut xml, book, budget, row: 0 }.scan_rows(handle)?;
                    handle(SheetEvent::SheetDataEnd { tag: xml.span() })?;
                }
            }
            XmlEvent::Start { tag, is_empty } => {
                let depth = xml.depth() + usize::from(is_empty) - 1;
                handle(SheetEvent::Element { tag: &tag, span: xml.span(), depth })?;
            }
            XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}

struct RowScanner<'s, 'a> {
    xml: &'s mut XmlReader<'a>,
    book: &'s WorkbookParts,
    budget: &'s mut Budget,
    row: u32,
}

impl RowScanner<'_, '_> {
    fn scan_rows(&mut self, handle: &mut EventHandler<'_>) -> Result<(), ParseError> {
        let inside = self.xml.depth();
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Start { tag, is_empty } if tag.name() == "row" => {
                    self.row = match tag.attribute("r")? {
                        Some(number) => number
                            .parse()
                            .ok()
                            .filter(|row| *row > self.row)
                            .ok_or_else(out_of_order_error)?,
                        None => self.row + 1,
                    };
                    if self.row > ROWS_MAX {
                        return Err(out_of_order_error());
                    }
                    self.budget.step()?;
                    let span = self.xml.span();
                    let number_span =
                        tag.attribute_value_span("r").map(|at| at.start + span.start..at.end + span.start);
                    let is_hidden = tag.is_true("hidden")?;
                    handle(SheetEvent::Row {
                        number: self.row,
                        tag: span,
                        number_span,
                        is_empty,
                        is_hidden,
                    })?;
                    if !is_empty {
                        self.scan_cells(handle)?;
                        handle(SheetEvent::RowEnd { tag: self.xml.span() })?;
                    }
                }
                XmlEvent::Start { is_empty: false, .. } => self.xml.skip(self.budget)?,
                XmlEvent::End if self.xml.depth() < inside => return Ok(()),
                XmlEvent::Eof => return Ok(()),
                XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    fn scan_cells(&mut self, handle: &mut EventHandler<'_>) -> Result<(), ParseError> {
        let inside = self.xml.depth();
        let mut next = 0;
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Start { tag, is_empty } if tag.name() == "c" => {
                    let at = match tag.attribute("r")? {
                        Some(text) => {
                            CellAddress::parse(&text).filter(|at| at.row == self.row && at.column >= next)
                        }
                        None => Some(CellAddress { row: self.row, column: next }),
                    };
                    let at = at.filter(|at| at.column < COLUMNS_MAX).ok_or_else(out_of_order_error)?;
                    next = at.column + 1;
                    self.scan_cell(&tag, is_empty, at, handle)?;
                }
                XmlEvent::Start { is_empty: false, .. } => self.xml.skip(self.budget)?,
                XmlEvent::End if self.xml.depth() < inside => return Ok(()),
                XmlEvent::Eof => return Ok(()),
                XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    fn scan_cell(
        &mut self,
        tag: &StartTag<'_>,
        is_empty: bool,
        at: CellAddress,
        handle: &mut EventHandler<'_>,
    ) -> Result<(), ParseError> {
        let open = self.xml.span();
        let address_span = tag.attribute_value_span("r").map(|at| at.start + open.start..at.end + open.start);
        let style = tag.attribute("s")?.and_then(|style| style.parse().ok()).unwrap_or(0);
        let kind = tag.attribute("t")?;
        let mut raw: Option<String> = None;
        let mut inline = None;
        let mut is_formula = false;
        if !is_empty {
            let inside = self.xml.depth();
            loop {
                match self.xml.next(self.budget)? {
                    XmlEvent::Start { tag, is_empty } => match tag.name() {
                        "v" => {
                            let text = raw.get_or_insert_default();
                            if !is_empty {
                                self.xml.inner_text(text, self.budget)?;
                            }
                        }
                        "is" if !is_empty => inline = Some(read_rich_text(self.xml, self.budget)?),
                        "f" => {
                            is_formula = true;
                            let formula = self.read_formula(&tag, is_empty, at)?;
                            handle(SheetEvent::Formula(formula))?;
                        }
                        _ if !is_empty => self.xml.skip(self.budget)?,
                        _ => {}
                    },
                    XmlEvent::End if self.xml.depth() < inside => break,
                    XmlEvent::Eof => break,
                    XmlEvent::End | XmlEvent::Text(_) => {}
                }
            }
        }
        let value = self.parse_value(kind.as_deref().unwrap_or("n"), raw, inline, style)?;
        let value = value.or(is_formula.then_some(CellValue::Uncomputed));
        let span = open.start..self.xml.span().end;
        handle(SheetEvent::Cell(SheetCell { address: at, style, is_formula, value, span, address_span }))
    }

    fn read_formula(
        &mut self,
        tag: &StartTag<'_>,
        is_empty: bool,
        at: CellAddress,
    ) -> Result<SheetFormula, ParseError> {
        let kind = tag.attribute("t")?.unwrap_or_default();
        let range = tag.attribute("ref")?.and_then(|range| CellRange::parse(&range));
        let mut text = String::new();
        if !is_empty {
            self.xml.inner_text(&mut text, self.budget)?;
        }
        let is_array = matches!(kind.as_str(), "array" | "dataTable");
        let shared_index = match kind.as_str() {
            "shared" => tag.attribute("si")?.and_then(|index| index.parse().ok()),
            _ => None,
        };
        Ok(SheetFormula { address: at, text, range, is_array, shared_index })
    }

    /// The cell's value; `None` if it is empty.
    fn parse_value(
        &self,
        kind: &str,
        raw: Option<String>,
        inline: Option<String>,
        style: u32,
    ) -> Result<Option<CellValue>, ParseError> {
        let text = |text: String| CellValue::Text(text.into_boxed_str());
        if kind == "inlineStr" {
            return Ok(Some(text(inline.unwrap_or_default())));
        }
        let Some(raw) = raw else { return Ok(None) };
        let damaged = || invalid_file_error(format!("a cell in row {} is damaged", self.row));
        let trimmed = raw.trim();
        Ok(Some(match kind {
            "str" => text(unescape_text(raw)),
            "e" => CellValue::Error,
            _ if trimmed.is_empty() => return Ok(None),
            "s" => {
                let at = trimmed.parse().ok().filter(|at| (*at as usize) < self.book.shared_strings.len());
                CellValue::SharedString(at.ok_or_else(damaged)?)
            }
            "b" => match trimmed {
                "1" | "true" => CellValue::Boolean(true),
                "0" | "false" => CellValue::Boolean(false),
                _ => return Err(damaged()),
            },
            "d" => match Temporal::parse(trimmed.as_bytes()).and_then(Temporal::local) {
                Some(_) => CellValue::DateTime(trimmed.into()),
                None => text(trimmed.to_owned()),
            },
            "n" => {
                let is_number = trimmed.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
                let n = trimmed.parse::<f64>().ok().filter(|n| is_number && n.is_finite());
                let n = n.ok_or_else(damaged)?;
                match format_serial(n, self.book.styles.number_format(style), self.book.styles.epoch) {
                    Some(moment) => CellValue::DateTime(moment.into_boxed_str()),
                    None => CellValue::Number(n),
                }
            }
            _ => return Err(damaged()),
        }))
    }
}

fn out_of_order_error() -> ParseError {
    invalid_file_error("the rows or cells of a sheet are not in order")
}

/// What is read of a sheet.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) grid: Grid,
    /// Relationship ids of tables.
    pub(super) table_relationships: Vec<String>,
    pub(super) is_protected: bool,
    /// A writer changed cells and left it to the next spreadsheet program to recalculate.
    pub(super) needs_recalculation: bool,
}

/// Reads the sheet at this position in the workbook.
pub(super) fn read_sheet(
    text: &str,
    sheet_index: usize,
    book: &WorkbookParts,
    budget: &mut Budget,
) -> Result<Sheet, ParseError> {
    let mut sheet = Sheet::default();
    let mut cells = 0;
    let (memory_left, memory_error) = (budget.memory_left(), budget.memory_error());
    scan_sheet(text, book, budget, &mut |event| {
        match event {
            SheetEvent::Row { number, is_empty: false, is_hidden, .. } => {
                if is_hidden {
                    sheet.grid.hidden_rows.push(number);
                }
                sheet.grid.rows.push(GridRow { number, cells: Vec::new() });
            }
            SheetEvent::Cell(SheetCell { address: at, is_formula, value: Some(value), .. }) => {
                cells += 1;
                if cells > super::budget::CELLS_MAX {
                    return Err(super::budget::too_large_error("a sheet has too many cells"));
                }
                if cells * CELL_BYTES + sheet.grid.rows.len() * ROW_BYTES > memory_left {
                    return Err(memory_error.clone());
                }
                let row = sheet.grid.rows.last_mut().expect("cells stand in rows");
                row.cells.push(GridCell { column: at.column, is_formula, value });
            }
            SheetEvent::RowEnd { .. } => match sheet.grid.rows.last_mut() {
                Some(row) if !row.cells.is_empty() => row.cells.shrink_to_fit(),
                Some(_) => _ = sheet.grid.rows.pop(),
                None => {}
            },
            SheetEvent::Element { tag, .. } => sheet.read_element(tag)?,
            SheetEvent::Formula(formula) => {
                let is_own = |reference: &CellReference| matches!(reference, CellReference::Cells { sheets, .. } if *sheets == (sheet_index..=sheet_index));
                sheet.grid.depends_on_other_sheets = sheet.grid.depends_on_other_sheets
                    || !book.references.of_formula(&formula, sheet_index).iter().all(is_own);
            }
            SheetEvent::Row { .. }
            | SheetEvent::Cell(_)
            | SheetEvent::SheetData { .. }
            | SheetEvent::SheetDataEnd { .. } => {}
        }
        Ok(())
    })?;
    budget.charge_cells(cells)?;
    budget.charge_memory(sheet.grid.rows.len() * ROW_BYTES)?;
    Ok(sheet)
}

impl Sheet {
    fn read_element(&mut self, tag: &StartTag<'_>) -> Result<(), ParseError> {
        match tag.name() {
            "mergeCell" => {
                let range = tag.attribute("ref")?.and_then(|range| CellRange::parse(&range));
                self.grid.merged_ranges.extend(range);
            }
            "tablePart" => self.table_relationships.extend(tag.prefixed_attribute("id")?),
            "sheetProtection" => self.is_protected |= tag.is_true("sheet")?,
            "sheetCalcPr" => self.needs_recalculation |= tag.is_true("fullCalcOnLoad")?,
            _ => {}
        }
        Ok(())
    }
}
