//! A sheet's part with the bytes of everything in it, and changes to it that leave all other bytes alone.

use std::ops::Range;

use super::book::Book;
use super::budget::Budget;
use super::place::{Area, Place, ROWS_MAX, Reference, references};
use super::sheet::{Piece, SeenCell, SeenFormula, scan};
use super::xml::Tag;
use crate::rows::Unreadable;

#[derive(Default)]
pub(super) struct Part {
    pub(super) rows: Vec<PartRow>,
    pub(super) cells: Vec<SeenCell>,
    pub(super) formulas: Vec<SeenFormula>,
    /// The tag that opens `<sheetData>`, and the one that closes it; none closes an empty one.
    pub(super) data: Option<(Range<usize>, Option<Range<usize>>)>,
    /// Elements beside `<sheetData>`, and inside those.
    pub(super) beside: Vec<Beside>,
    /// `x:` where tags have a prefix.
    pub(super) prefix: String,
}

pub(super) struct PartRow {
    pub(super) number: u32,
    pub(super) tag: Range<usize>,
    pub(super) number_at: Option<Range<usize>>,
    /// The tag that closes it; none closes an empty one.
    pub(super) close: Option<Range<usize>>,
    /// Places in [`Part::cells`].
    pub(super) cells: Range<usize>,
}

pub(super) struct Beside {
    pub(super) name: String,
    pub(super) depth: usize,
    pub(super) span: Range<usize>,
    /// `ref` or `sqref`: which cells it is about, and where that stands.
    pub(super) areas: Option<(Range<usize>, String)>,
    pub(super) is_on: bool,
}

impl Part {
    pub(super) fn read(text: &str, book: &Book, budget: &mut Budget) -> Result<Self, Unreadable> {
        let mut part = Self::default();
        scan(text, book, budget, &mut |piece| {
            match piece {
                Piece::Row { number, tag, number_at, is_empty: _ } => {
                    let cells = part.cells.len()..part.cells.len();
                    part.rows.push(PartRow { number, tag, number_at, close: None, cells });
                }
                Piece::RowEnd { tag } => {
                    if let Some(row) = part.rows.last_mut() {
                        row.close = Some(tag);
                    }
                }
                Piece::Cell(cell) => {
                    part.cells.push(cell);
                    if let Some(row) = part.rows.last_mut() {
                        row.cells.end = part.cells.len();
                    }
                }
                Piece::Formula(formula) => part.formulas.push(formula),
                Piece::Data { open } => {
                    let name = text[open.clone()].trim_start_matches('<');
                    part.prefix = name.find("sheetData").map_or("", |at| &name[..at]).to_owned();
                    part.data = Some((open, None));
                }
                Piece::DataEnd { tag } => {
                    if let Some((_, close)) = &mut part.data {
                        *close = Some(tag);
                    }
                }
                Piece::Beside { tag, span, depth } => part.beside.push(Beside::new(tag, span, depth)?),
            }
            Ok(())
        })?;
        Ok(part)
    }

    pub(super) fn row(&self, number: u32) -> Option<&PartRow> {
        let at = self.rows.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(&self.rows[at])
    }

    pub(super) fn cells(&self, row: &PartRow) -> &[SeenCell] {
        &self.cells[row.cells.clone()]
    }

    pub(super) fn cell(&self, at: Place) -> Option<&SeenCell> {
        let cells = self.cells(self.row(at.row)?);
        let place = cells.binary_search_by_key(&at.column, |cell| cell.at.column).ok()?;
        Some(&cells[place])
    }

    /// Elements directly inside of the sheet.
    pub(super) fn elements(&self) -> impl Iterator<Item = &Beside> {
        self.beside.iter().filter(|one| one.depth == 1)
    }

    pub(super) fn merged(&self) -> impl Iterator<Item = Area> {
        let merged = self.beside.iter().filter(|one| one.name == "mergeCell");
        merged.filter_map(|one| Area::parse(&one.areas.as_ref()?.1))
    }

    /// The cell whose formula looks at this one, if there may be one on this sheet called `sheet`.
    pub(super) fn watcher(&self, sheet: &str, at: Place) -> Option<Place> {
        let looks = |formula: &&SeenFormula| {
            references(&formula.text).into_iter().any(|one| match one {
                Reference::Unknown => true,
                Reference::Cells(Some(of), _) if !of.eq_ignore_ascii_case(sheet) => false,
                Reference::Cells(_, area) => stretched(area, formula).has(at),
            })
        };
        self.formulas.iter().find(looks).map(|formula| formula.at)
    }
}

/// What a formula looks at from all the cells that share it: each looks as much further as it stands further.
fn stretched(area: Area, formula: &SeenFormula) -> Area {
    let Some(shared) = formula.area.filter(|_| !formula.is_array) else { return area };
    let (up, down) =
        (formula.at.row.saturating_sub(shared.first.row), shared.last.row.saturating_sub(formula.at.row));
    let left = formula.at.column.saturating_sub(shared.first.column);
    let right = shared.last.column.saturating_sub(formula.at.column);
    let first = Place {
        row: area.first.row.saturating_sub(up).max(1),
        column: area.first.column.saturating_sub(left),
    };
    let last = Place { row: (area.last.row + down).min(ROWS_MAX), column: area.last.column + right };
    Area { first, last }
}

impl Beside {
    fn new(tag: &Tag<'_>, span: Range<usize>, depth: usize) -> Result<Self, Unreadable> {
        let attribute = if tag.attribute("sqref")?.is_some() { "sqref" } else { "ref" };
        let place = tag.value_place(attribute).map(|at| at.start + span.start..at.end + span.start);
        let areas = place.zip(tag.attribute(attribute)?);
        let is_on = tag.is_on("fullCalcOnLoad")?;
        Ok(Self { name: tag.name().to_owned(), depth, span, areas, is_on })
    }
}

/// Changes to a text, each at its place, none over another.
#[derive(Default)]
pub(super) struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
    pub(super) fn put(&mut self, at: Range<usize>, text: impl Into<String>) {
        self.0.push((at, text.into()));
    }

    pub(super) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.put(at..at, text);
    }

    pub(super) fn apply(mut self, text: &str) -> String {
        // What is put in before a place goes before what is put there.
        self.0.sort_by_key(|(at, _)| (at.start, at.end));
        let mut out = String::with_capacity(text.len() + 256);
        let mut done = 0;
        for (at, new) in &self.0 {
            out.push_str(&text[done..at.start]);
            out.push_str(new);
            done = at.end;
        }
        out.push_str(&text[done..]);
        out
    }
}
