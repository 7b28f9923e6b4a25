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
    pub(super) cells: Vec<PartCell>,
    pub(super) formulas: Vec<SeenFormula>,
    /// What each formula looks at on this sheet; nothing where it may be anything.
    watched: Vec<(Place, Option<Area>)>,
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

/// A cell without its value. There may be millions, so places in the part have 32 bits.
pub(super) struct PartCell {
    pub(super) at: Place,
    pub(super) style: u32,
    span: Range<u32>,
    /// Where `B7` stands; empty if it does not.
    place_at: Range<u32>,
    pub(super) is_formula: bool,
    pub(super) has_value: bool,
}

impl PartCell {
    fn new(cell: &SeenCell) -> Self {
        let short = |at: usize| u32::try_from(at).expect("parts are bounded");
        let short = |at: &Range<usize>| short(at.start)..short(at.end);
        Self {
            at: cell.at,
            style: cell.style,
            span: short(&cell.span),
            place_at: cell.place_at.as_ref().map_or(0..0, short),
            is_formula: cell.is_formula,
            has_value: cell.value.is_some(),
        }
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.start as usize..self.span.end as usize
    }

    pub(super) fn place_at(&self) -> Option<Range<usize>> {
        (!self.place_at.is_empty()).then_some(self.place_at.start as usize..self.place_at.end as usize)
    }
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
    /// The part of the sheet that is called `name`.
    pub(super) fn read(text: &str, name: &str, book: &Book, budget: &mut Budget) -> Result<Self, Unreadable> {
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
                    part.cells.push(PartCell::new(&cell));
                    if let Some(row) = part.rows.last_mut() {
                        row.cells.end = part.cells.len();
                    }
                }
                Piece::Formula(formula) => {
                    part.watch(&formula, name);
                    part.formulas.push(SeenFormula { text: String::new(), ..formula });
                }
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

    pub(super) fn cells(&self, row: &PartRow) -> &[PartCell] {
        &self.cells[row.cells.clone()]
    }

    pub(super) fn cell(&self, at: Place) -> Option<&PartCell> {
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

    fn watch(&mut self, formula: &SeenFormula, name: &str) {
        let seen = references(&formula.text).into_iter().filter_map(|one| match one {
            Reference::Unknown => Some(None),
            Reference::Cells(Some(of), _) if !is_same_name(&of, name) => None,
            Reference::Cells(_, area) => Some(Some(stretched(area, formula))),
        });
        self.watched.extend(seen.map(|area| (formula.at, area)));
    }

    /// The cell whose formula looks at this one, if there may be one on this sheet.
    pub(super) fn watcher(&self, at: Place) -> Option<Place> {
        let looks = |(_, area): &&(Place, Option<Area>)| area.is_none_or(|area| area.has(at));
        self.watched.iter().find(looks).map(|(at, _)| *at)
    }
}

/// Names of sheets are equal without regard to case.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
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
