//! A sheet's XML with the byte ranges of everything in it, and edits that leave all other bytes alone.

use std::ops::Range;

use super::address::{CellAddress, CellRange};
use super::budget::Budget;
use super::references::CellReference;
use super::sheet::{SheetCell, SheetEvent, SheetFormula, scan_sheet};
use super::workbook::WorkbookParts;
use super::xml::StartTag;
use crate::tables::ParseError;

#[derive(Default)]
pub(super) struct SheetXml {
    pub(super) rows: Vec<RowXml>,
    pub(super) cells: Vec<CellXml>,
    pub(super) formulas: Vec<SheetFormula>,
    /// The cells of this sheet that each formula refers to; `None` if it may be any cell.
    dependencies: Vec<(CellAddress, Option<CellRange>)>,
    /// The start tag of `<sheetData>`, and its end tag; `None` if the element is empty.
    pub(super) sheet_data: Option<(Range<usize>, Option<Range<usize>>)>,
    /// Elements outside of `<sheetData>`, at any depth.
    pub(super) other_elements: Vec<SheetElement>,
    /// `x:` if tags have a prefix.
    pub(super) prefix: String,
}

pub(super) struct RowXml {
    pub(super) number: u32,
    pub(super) tag: Range<usize>,
    pub(super) number_span: Option<Range<usize>>,
    /// The end tag; `None` if the element is empty.
    pub(super) close: Option<Range<usize>>,
    /// Positions in [`SheetXml::cells`].
    pub(super) cells: Range<usize>,
}

/// A cell without its value. There may be millions, so byte positions have 32 bits.
pub(super) struct CellXml {
    pub(super) address: CellAddress,
    pub(super) style: u32,
    span: Range<u32>,
    /// Where `B7` is; empty if it is not given.
    address_span: Range<u32>,
    pub(super) is_formula: bool,
    pub(super) has_value: bool,
}

impl CellXml {
    fn new(cell: &SheetCell) -> Self {
        let short = |at: usize| u32::try_from(at).expect("parts are bounded");
        let short = |at: &Range<usize>| short(at.start)..short(at.end);
        Self {
            address: cell.address,
            style: cell.style,
            span: short(&cell.span),
            address_span: cell.address_span.as_ref().map_or(0..0, short),
            is_formula: cell.is_formula,
            has_value: cell.value.is_some(),
        }
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.start as usize..self.span.end as usize
    }

    pub(super) fn address_span(&self) -> Option<Range<usize>> {
        (!self.address_span.is_empty())
            .then_some(self.address_span.start as usize..self.address_span.end as usize)
    }
}

pub(super) struct SheetElement {
    pub(super) name: String,
    pub(super) depth: usize,
    pub(super) span: Range<usize>,
    /// The value of `ref` or `sqref`, which lists the cells the element applies to, and where it is.
    pub(super) ranges: Option<(Range<usize>, String)>,
    pub(super) recalculates_on_load: bool,
}

impl SheetXml {
    /// Reads the XML of the sheet at this position in the workbook.
    pub(super) fn read(
        text: &str,
        sheet_index: usize,
        book: &WorkbookParts,
        budget: &mut Budget,
    ) -> Result<Self, ParseError> {
        let mut sheet_xml = Self::default();
        let cells_max = budget.memory_left() / size_of::<CellXml>();
        let memory_error = budget.memory_error();
        scan_sheet(text, book, budget, &mut |event| {
            match event {
                SheetEvent::Row { number, tag, number_span, is_empty: _, is_hidden: _ } => {
                    let cells = sheet_xml.cells.len()..sheet_xml.cells.len();
                    sheet_xml.rows.push(RowXml { number, tag, number_span, close: None, cells });
                }
                SheetEvent::RowEnd { tag } => {
                    if let Some(row) = sheet_xml.rows.last_mut() {
                        row.close = Some(tag);
                    }
                }
                SheetEvent::Cell(cell) => {
                    if sheet_xml.cells.len() == cells_max {
                        return Err(memory_error.clone());
                    }
                    sheet_xml.cells.push(CellXml::new(&cell));
                    if let Some(row) = sheet_xml.rows.last_mut() {
                        row.cells.end = sheet_xml.cells.len();
                    }
                }
                SheetEvent::Formula(formula) => {
                    sheet_xml.record_dependencies(&formula, sheet_index, book);
                    sheet_xml.formulas.push(SheetFormula { text: String::new(), ..formula });
                }
                SheetEvent::SheetData { open } => {
                    let name = text[open.clone()].trim_start_matches('<');
                    sheet_xml.prefix = name.find("sheetData").map_or("", |at| &name[..at]).to_owned();
                    sheet_xml.sheet_data = Some((open, None));
                }
                SheetEvent::SheetDataEnd { tag } => {
                    if let Some((_, close)) = &mut sheet_xml.sheet_data {
                        *close = Some(tag);
                    }
                }
                SheetEvent::Element { tag, span, depth } => {
                    sheet_xml.other_elements.push(SheetElement::new(tag, span, depth)?)
                }
            }
            Ok(())
        })?;
        budget.charge_memory(sheet_xml.cells.len() * size_of::<CellXml>())?;
        Ok(sheet_xml)
    }

    pub(super) fn row(&self, number: u32) -> Option<&RowXml> {
        let at = self.rows.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(&self.rows[at])
    }

    pub(super) fn cells(&self, row: &RowXml) -> &[CellXml] {
        &self.cells[row.cells.clone()]
    }

    pub(super) fn cell(&self, at: CellAddress) -> Option<&CellXml> {
        let cells = self.cells(self.row(at.row)?);
        let position = cells.binary_search_by_key(&at.column, |cell| cell.address.column).ok()?;
        Some(&cells[position])
    }

    /// The children of the worksheet element.
    pub(super) fn top_level_elements(&self) -> impl Iterator<Item = &SheetElement> {
        self.other_elements.iter().filter(|one| one.depth == 1)
    }

    pub(super) fn merged_ranges(&self) -> impl Iterator<Item = CellRange> {
        let merged = self.other_elements.iter().filter(|one| one.name == "mergeCell");
        merged.filter_map(|one| CellRange::parse(&one.ranges.as_ref()?.1))
    }

    fn record_dependencies(&mut self, formula: &SheetFormula, sheet_index: usize, book: &WorkbookParts) {
        let references = book.references.of_formula(formula, sheet_index).into_iter();
        let here = references.filter_map(|reference| match reference {
            CellReference::Unknown => Some(None),
            CellReference::Cells { sheets, range } => sheets.contains(&sheet_index).then_some(Some(range)),
        });
        self.dependencies.extend(here.map(|range| (formula.address, range)));
    }

    /// The address of a formula on this sheet that may refer to this cell.
    pub(super) fn dependent_formula(&self, at: CellAddress) -> Option<CellAddress> {
        let refers =
            |(_, range): &&(CellAddress, Option<CellRange>)| range.is_none_or(|range| range.contains(at));
        self.dependencies.iter().find(refers).map(|(at, _)| *at)
    }
}

impl SheetElement {
    fn new(tag: &StartTag<'_>, span: Range<usize>, depth: usize) -> Result<Self, ParseError> {
        let attribute = if tag.attribute("sqref")?.is_some() { "sqref" } else { "ref" };
        let position =
            tag.attribute_value_span(attribute).map(|at| at.start + span.start..at.end + span.start);
        let ranges = position.zip(tag.attribute(attribute)?);
        let is_on = tag.is_true("fullCalcOnLoad")?;
        Ok(Self { name: tag.name().to_owned(), depth, span, ranges, recalculates_on_load: is_on })
    }
}

/// Replacements in a text, at different positions.
#[derive(Default)]
pub(super) struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
    pub(super) fn replace(&mut self, at: Range<usize>, text: impl Into<String>) {
        self.0.push((at, text.into()));
    }

    pub(super) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    pub(super) fn apply(mut self, text: &str) -> String {
        // An insertion at a position goes before a replacement that starts there.
        self.0.sort_by_key(|(at, _)| (at.start, at.end));
        let mut out = String::with_capacity(text.len() + 256);
        let mut done = 0;
        for (at, new) in &self.0 {
            // Edits overlap only in a malformed file. The writer reads the result back and compares it.
            if at.start < done {
                continue;
            }
            out.push_str(&text[done..at.start]);
            out.push_str(new);
            done = at.end;
        }
        out.push_str(&text[done..]);
        out
    }
}
