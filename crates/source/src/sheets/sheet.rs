//! One sheet's part: read piece by piece, each with its bytes, so that a write knows what to leave alone.

use std::ops::Range;

use contract::time;

use super::book::{Book, rich};
use super::budget::{Budget, broken};
use super::grid::{Grid, GridCell, Row, Value};
use super::moment::told;
use super::place::{Area, COLUMNS_MAX, Place, ROWS_MAX};
use super::xml::{Node, Tag, Xml, unescaped};
use crate::rows::Unreadable;

/// Something that stands in a sheet's part, in the order in which it stands there.
pub(super) enum Piece<'a> {
    /// `number_at` is where the number stands, if it does.
    Row {
        number: u32,
        tag: Range<usize>,
        number_at: Option<Range<usize>>,
        is_empty: bool,
    },
    RowEnd {
        tag: Range<usize>,
    },
    Cell(SeenCell),
    Formula(SeenFormula),
    /// All of `<sheetData>` but its rows.
    Data {
        open: Range<usize>,
    },
    DataEnd {
        tag: Range<usize>,
    },
    /// An element beside `<sheetData>`, or inside of one.
    Beside {
        tag: &'a Tag<'a>,
        span: Range<usize>,
        depth: usize,
    },
}

pub(super) struct SeenCell {
    pub(super) at: Place,
    pub(super) style: u32,
    pub(super) is_formula: bool,
    pub(super) value: Option<Value>,
    pub(super) span: Range<usize>,
    /// Where `B7` stands, if it does.
    pub(super) place_at: Option<Range<usize>>,
}

pub(super) struct SeenFormula {
    pub(super) at: Place,
    pub(super) text: String,
    /// The cells that share it.
    pub(super) area: Option<Area>,
    /// Whether it fills all of the area by itself, and not each cell has its own.
    pub(super) is_array: bool,
}

type See<'a> = dyn FnMut(Piece<'_>) -> Result<(), Unreadable> + 'a;

/// Walks over a sheet's part.
pub(super) fn scan(
    text: &str,
    book: &Book,
    budget: &mut Budget,
    see: &mut See<'_>,
) -> Result<(), Unreadable> {
    let mut xml = Xml::new(text);
    loop {
        match xml.next(budget)? {
            Node::Start { tag, is_empty: true } if tag.name() == "worksheet" => return Ok(()),
            Node::Start { tag, is_empty: false } if tag.name() == "worksheet" => break,
            // A line break behind the declaration.
            Node::Text(_) => {}
            Node::Start { .. } | Node::End | Node::Eof => {
                return Err(broken("a sheet of the workbook is damaged"));
            }
        }
    }
    let mut has_data = false;
    loop {
        match xml.next(budget)? {
            Node::Eof => return Ok(()),
            Node::Start { tag, is_empty }
                if tag.name() == "sheetData" && xml.depth() + usize::from(is_empty) == 2 =>
            {
                if has_data {
                    return Err(broken("a sheet of the workbook is damaged"));
                }
                has_data = true;
                see(Piece::Data { open: xml.span() })?;
                if !is_empty {
                    Rows { xml: &mut xml, book, budget, row: 0 }.walk(see)?;
                    see(Piece::DataEnd { tag: xml.span() })?;
                }
            }
            Node::Start { tag, is_empty } => {
                let depth = xml.depth() + usize::from(is_empty) - 1;
                see(Piece::Beside { tag: &tag, span: xml.span(), depth })?;
            }
            Node::End | Node::Text(_) => {}
        }
    }
}

struct Rows<'s, 'a> {
    xml: &'s mut Xml<'a>,
    book: &'s Book,
    budget: &'s mut Budget,
    row: u32,
}

impl Rows<'_, '_> {
    fn walk(&mut self, see: &mut See<'_>) -> Result<(), Unreadable> {
        let inside = self.xml.depth();
        loop {
            match self.xml.next(self.budget)? {
                Node::Start { tag, is_empty } if tag.name() == "row" => {
                    self.row = match tag.attribute("r")? {
                        Some(number) => {
                            number.parse().ok().filter(|row| *row > self.row).ok_or_else(jumbled)?
                        }
                        None => self.row + 1,
                    };
                    if self.row > ROWS_MAX {
                        return Err(jumbled());
                    }
                    self.budget.step()?;
                    let span = self.xml.span();
                    let number_at = tag.value_place("r").map(|at| at.start + span.start..at.end + span.start);
                    see(Piece::Row { number: self.row, tag: span, number_at, is_empty })?;
                    if !is_empty {
                        self.cells(see)?;
                        see(Piece::RowEnd { tag: self.xml.span() })?;
                    }
                }
                Node::Start { is_empty: false, .. } => self.xml.skip(self.budget)?,
                Node::End if self.xml.depth() < inside => return Ok(()),
                Node::Eof => return Ok(()),
                Node::Start { .. } | Node::End | Node::Text(_) => {}
            }
        }
    }

    fn cells(&mut self, see: &mut See<'_>) -> Result<(), Unreadable> {
        let inside = self.xml.depth();
        let mut next = 0;
        loop {
            match self.xml.next(self.budget)? {
                Node::Start { tag, is_empty } if tag.name() == "c" => {
                    let at = match tag.attribute("r")? {
                        Some(text) => {
                            Place::parse(&text).filter(|at| at.row == self.row && at.column >= next)
                        }
                        None => Some(Place { row: self.row, column: next }),
                    };
                    let at = at.filter(|at| at.column < COLUMNS_MAX).ok_or_else(jumbled)?;
                    next = at.column + 1;
                    self.cell(&tag, is_empty, at, see)?;
                }
                Node::Start { is_empty: false, .. } => self.xml.skip(self.budget)?,
                Node::End if self.xml.depth() < inside => return Ok(()),
                Node::Eof => return Ok(()),
                Node::Start { .. } | Node::End | Node::Text(_) => {}
            }
        }
    }

    fn cell(
        &mut self,
        tag: &Tag<'_>,
        is_empty: bool,
        at: Place,
        see: &mut See<'_>,
    ) -> Result<(), Unreadable> {
        let open = self.xml.span();
        let place_at = tag.value_place("r").map(|at| at.start + open.start..at.end + open.start);
        let style = tag.attribute("s")?.and_then(|style| style.parse().ok()).unwrap_or(0);
        let kind = tag.attribute("t")?;
        let mut raw: Option<String> = None;
        let mut inline = None;
        let mut is_formula = false;
        if !is_empty {
            let inside = self.xml.depth();
            loop {
                match self.xml.next(self.budget)? {
                    Node::Start { tag, is_empty } => match tag.name() {
                        "v" => {
                            let text = raw.get_or_insert_default();
                            if !is_empty {
                                self.xml.inner_text(text, self.budget)?;
                            }
                        }
                        "is" if !is_empty => inline = Some(rich(self.xml, self.budget)?),
                        "f" => {
                            is_formula = true;
                            let formula = self.formula(&tag, is_empty, at)?;
                            see(Piece::Formula(formula))?;
                        }
                        _ if !is_empty => self.xml.skip(self.budget)?,
                        _ => {}
                    },
                    Node::End if self.xml.depth() < inside => break,
                    Node::Eof => break,
                    Node::End | Node::Text(_) => {}
                }
            }
        }
        let value = self.value(kind.as_deref().unwrap_or("n"), raw, inline, style)?;
        let value = value.or(is_formula.then_some(Value::Uncomputed));
        let span = open.start..self.xml.span().end;
        see(Piece::Cell(SeenCell { at, style, is_formula, value, span, place_at }))
    }

    fn formula(&mut self, tag: &Tag<'_>, is_empty: bool, at: Place) -> Result<SeenFormula, Unreadable> {
        let kind = tag.attribute("t")?.unwrap_or_default();
        let area = tag.attribute("ref")?.and_then(|area| Area::parse(&area));
        let mut text = String::new();
        if !is_empty {
            self.xml.inner_text(&mut text, self.budget)?;
        }
        let is_array = matches!(kind.as_str(), "array" | "dataTable");
        Ok(SeenFormula { at, text, area, is_array })
    }

    /// A cell's value; nothing if nothing stands there.
    fn value(
        &self,
        kind: &str,
        raw: Option<String>,
        inline: Option<String>,
        style: u32,
    ) -> Result<Option<Value>, Unreadable> {
        let text = |text: String| Value::Text(text.into_boxed_str());
        if kind == "inlineStr" {
            return Ok(Some(text(inline.unwrap_or_default())));
        }
        let Some(raw) = raw else { return Ok(None) };
        let damaged = || broken(format!("a cell in row {} is damaged", self.row));
        let trimmed = raw.trim();
        Ok(Some(match kind {
            "str" => text(unescaped(raw)),
            "e" => Value::Error,
            _ if trimmed.is_empty() => return Ok(None),
            "s" => {
                let at = trimmed.parse().ok().filter(|at| (*at as usize) < self.book.texts.len());
                Value::Shared(at.ok_or_else(damaged)?)
            }
            "b" => match trimmed {
                "1" | "true" => Value::Boolean(true),
                "0" | "false" => Value::Boolean(false),
                _ => return Err(damaged()),
            },
            "d" => match time::read(trimmed.as_bytes()) {
                Some(moment) if moment.offset_min.is_none() => Value::Moment(trimmed.into()),
                _ => text(trimmed.to_owned()),
            },
            "n" => {
                let is_number = trimmed.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
                let n = trimmed.parse::<f64>().ok().filter(|n| is_number && n.is_finite());
                let n = n.ok_or_else(damaged)?;
                match told(n, self.book.styles.shown(style), self.book.styles.epoch) {
                    Some(moment) => Value::Moment(moment.into_boxed_str()),
                    None => Value::Number(n),
                }
            }
            _ => return Err(damaged()),
        }))
    }
}

fn jumbled() -> Unreadable {
    broken("the rows or cells of a sheet are not in order")
}

/// What a sheet is made of, as far as reading it goes.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) grid: Grid,
    /// Relations to tables, by id.
    pub(super) tables: Vec<String>,
    pub(super) is_protected: bool,
    /// Somebody wrote to it and left computing to whoever opens it next.
    pub(super) is_stale: bool,
}

pub(super) fn read(text: &str, book: &Book, budget: &mut Budget) -> Result<Sheet, Unreadable> {
    let mut sheet = Sheet::default();
    let mut cells = 0;
    scan(text, book, budget, &mut |piece| {
        match piece {
            Piece::Row { number, is_empty: false, .. } => {
                sheet.grid.rows.push(Row { number, cells: Vec::new() });
            }
            Piece::Cell(SeenCell { at, is_formula, value: Some(value), .. }) => {
                cells += 1;
                if cells > super::budget::CELLS_MAX {
                    return Err(super::budget::smaller("a sheet has too many cells"));
                }
                let row = sheet.grid.rows.last_mut().expect("cells stand in rows");
                row.cells.push(GridCell { column: at.column, is_formula, value });
            }
            Piece::RowEnd { .. } => {
                if sheet.grid.rows.last().is_some_and(|row| row.cells.is_empty()) {
                    sheet.grid.rows.pop();
                }
            }
            Piece::Beside { tag, .. } => sheet.beside(tag)?,
            Piece::Row { .. }
            | Piece::Cell(_)
            | Piece::Formula(_)
            | Piece::Data { .. }
            | Piece::DataEnd { .. } => {}
        }
        Ok(())
    })?;
    budget.cells(cells)?;
    Ok(sheet)
}

impl Sheet {
    fn beside(&mut self, tag: &Tag<'_>) -> Result<(), Unreadable> {
        match tag.name() {
            "mergeCell" => {
                let area = tag.attribute("ref")?.and_then(|area| Area::parse(&area));
                self.grid.merged.extend(area);
            }
            "tablePart" => self.tables.extend(tag.prefixed("id")?),
            "sheetProtection" => self.is_protected |= tag.is_on("sheet")?,
            "sheetCalcPr" => self.is_stale |= tag.is_on("fullCalcOnLoad")?,
            _ => {}
        }
        Ok(())
    }
}
