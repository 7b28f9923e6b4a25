//! A sheet's part with the bytes of everything in it, and changes to it that leave all other bytes alone.

use std::ops::Range;

use super::address::{CellAddress, CellRange, ROWS_MAX, Reference, formula_references};
use super::budget::Budget;
use super::sheet::{SheetCell, SheetEvent, SheetFormula, scan_sheet};
use super::workbook::WorkbookParts;
use super::xml::StartTag;
use crate::tables::ParseError;

#[derive(Default)]
pub(super) struct SheetXml {
    pub(super) rows: Vec<RowXml>,
    pub(super) cells: Vec<CellXml>,
    pub(super) formulas: Vec<SheetFormula>,
    /// What each formula looks at on this sheet; nothing where it may be anything.
    dependencies: Vec<(CellAddress, Option<CellRange>)>,
    /// The tag that opens `<sheetData>`, and the one that closes it; none closes an empty one.
    pub(super) sheet_data: Option<(Range<usize>, Option<Range<usize>>)>,
    /// Elements beside `<sheetData>`, and inside those.
    pub(super) other_elements: Vec<SheetElement>,
    /// `x:` where tags have a prefix.
    pub(super) prefix: String,
}

pub(super) struct RowXml {
    pub(super) number: u32,
    pub(super) tag: Range<usize>,
    pub(super) number_span: Option<Range<usize>>,
    /// The tag that closes it; none closes an empty one.
    pub(super) close: Option<Range<usize>>,
    /// Places in [`Part::cells`].
    pub(super) cells: Range<usize>,
}

/// A cell without its value. There may be millions, so places in the part have 32 bits.
pub(super) struct CellXml {
    pub(super) address: CellAddress,
    pub(super) style: u32,
    span: Range<u32>,
    /// Where `B7` stands; empty if it does not.
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
    /// `ref` or `sqref`: which cells it is about, and where that stands.
    pub(super) ranges: Option<(Range<usize>, String)>,
    pub(super) recalculates_on_load: bool,
}

impl SheetXml {
    /// The part of the sheet that is called `name`.
    pub(super) fn read(
        text: &str,
        name: &str,
        book: &WorkbookParts,
        budget: &mut Budget,
    ) -> Result<Self, ParseError> {
        let mut part = Self::default();
        scan_sheet(text, book, budget, &mut |piece| {
            match piece {
                SheetEvent::Row { number, tag, number_span: number_at, is_empty: _ } => {
                    let cells = part.cells.len()..part.cells.len();
                    part.rows.push(RowXml { number, tag, number_span: number_at, close: None, cells });
                }
                SheetEvent::RowEnd { tag } => {
                    if let Some(row) = part.rows.last_mut() {
                        row.close = Some(tag);
                    }
                }
                SheetEvent::Cell(cell) => {
                    part.cells.push(CellXml::new(&cell));
                    if let Some(row) = part.rows.last_mut() {
                        row.cells.end = part.cells.len();
                    }
                }
                SheetEvent::Formula(formula) => {
                    part.record_dependencies(&formula, name);
                    part.formulas.push(SheetFormula { text: String::new(), ..formula });
                }
                SheetEvent::SheetData { open } => {
                    let name = text[open.clone()].trim_start_matches('<');
                    part.prefix = name.find("sheetData").map_or("", |at| &name[..at]).to_owned();
                    part.sheet_data = Some((open, None));
                }
                SheetEvent::SheetDataEnd { tag } => {
                    if let Some((_, close)) = &mut part.sheet_data {
                        *close = Some(tag);
                    }
                }
                SheetEvent::Element { tag, span, depth } => {
                    part.other_elements.push(SheetElement::new(tag, span, depth)?)
                }
            }
            Ok(())
        })?;
        Ok(part)
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
        let place = cells.binary_search_by_key(&at.column, |cell| cell.address.column).ok()?;
        Some(&cells[place])
    }

    /// Elements directly inside of the sheet.
    pub(super) fn top_level_elements(&self) -> impl Iterator<Item = &SheetElement> {
        self.other_elements.iter().filter(|one| one.depth == 1)
    }

    pub(super) fn merged_ranges(&self) -> impl Iterator<Item = CellRange> {
        let merged = self.other_elements.iter().filter(|one| one.name == "mergeCell");
        merged.filter_map(|one| CellRange::parse(&one.ranges.as_ref()?.1))
    }

    fn record_dependencies(&mut self, formula: &SheetFormula, name: &str) {
        let seen = formula_references(&formula.text).into_iter().filter_map(|one| match one {
            Reference::Unknown => Some(None),
            Reference::Cells(Some(of), _) if !is_same_sheet_name(&of, name) => None,
            Reference::Cells(_, area) => Some(Some(extend_shared_range(area, formula))),
        });
        self.dependencies.extend(seen.map(|area| (formula.address, area)));
    }

    /// The cell whose formula looks at this one, if there may be one on this sheet.
    pub(super) fn dependent_formula(&self, at: CellAddress) -> Option<CellAddress> {
        let looks = |(_, area): &&(CellAddress, Option<CellRange>)| area.is_none_or(|area| area.contains(at));
        self.dependencies.iter().find(looks).map(|(at, _)| *at)
    }
}

/// Names of sheets are equal without regard to case.
pub(super) fn is_same_sheet_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// What a formula looks at from all the cells that share it: each looks as much further as it stands further.
fn extend_shared_range(area: CellRange, formula: &SheetFormula) -> CellRange {
    let Some(shared) = formula.range.filter(|_| !formula.is_array) else { return area };
    let (up, down) = (
        formula.address.row.saturating_sub(shared.first.row),
        shared.last.row.saturating_sub(formula.address.row),
    );
    let left = formula.address.column.saturating_sub(shared.first.column);
    let right = shared.last.column.saturating_sub(formula.address.column);
    let first = CellAddress {
        row: area.first.row.saturating_sub(up).max(1),
        column: area.first.column.saturating_sub(left),
    };
    let last = CellAddress { row: (area.last.row + down).min(ROWS_MAX), column: area.last.column + right };
    CellRange { first, last }
}

impl SheetElement {
    fn new(tag: &StartTag<'_>, span: Range<usize>, depth: usize) -> Result<Self, ParseError> {
        let attribute = if tag.attribute("sqref")?.is_some() { "sqref" } else { "ref" };
        let place = tag.attribute_value_span(attribute).map(|at| at.start + span.start..at.end + span.start);
        let areas = place.zip(tag.attribute(attribute)?);
        let is_on = tag.is_true("fullCalcOnLoad")?;
        Ok(Self { name: tag.name().to_owned(), depth, span, ranges: areas, recalculates_on_load: is_on })
    }
}

/// Changes to a text, each at its place, none over another.
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
        // What is put in before a place goes before what is put there.
        self.0.sort_by_key(|(at, _)| (at.start, at.end));
        let mut out = String::with_capacity(text.len() + 256);
        let mut done = 0;
        for (at, new) in &self.0 {
            // None is made over another, unless the file itself says odd things: what comes of that is read back.
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
