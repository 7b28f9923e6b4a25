//! One row changed on one sheet: that sheet's part is written anew, and no other byte of the workbook.
//!
//! The rules are simple and on the safe side. A cell with a formula is not overwritten, and neither is one that
//! a formula on the same sheet looks at: its value would be told as it was before. A row is added below the last
//! one, and not to a table of Excel's, whose size stands in another part. A row is removed, and those below move
//! up, only if nothing in the workbook counts on where they are.

use contract::source::WriteFault;

use super::book::{Book, SheetKind, relations};
use super::budget::Budget;
use super::encode::{Encoded, encoded};
use super::grid::{Layout, Row};
use super::moment::Shown;
use super::part::{Beside, Part, PartRow, Splices, is_same_name};
use super::place::{Area, Place, ROWS_MAX, Reference, references};
use super::sheet::{Piece, Sheet, scan};
use super::xml::{Node, Xml, text};
use super::zip::Archive;
use crate::rows::{Edit, Held, Put, Unreadable};

/// One sheet, ready to be changed.
pub(super) struct Writing<'a> {
    pub(super) archive: &'a Archive<'a>,
    pub(super) book: &'a Book,
    /// The place of the sheet in the book.
    pub(super) at: usize,
    pub(super) text: &'a str,
    pub(super) sheet: &'a Sheet,
    pub(super) layout: &'a Layout,
}

fn refused(why: impl Into<String>) -> WriteFault {
    WriteFault::Refused { column: None, why: why.into() }
}

fn refused_at(put: &Put<'_>, why: impl Into<String>) -> WriteFault {
    WriteFault::Refused { column: Some(put.column), why: why.into() }
}

/// The file was read a moment ago: whoever changed it since then broke it.
pub(super) fn unreadable(why: Unreadable) -> WriteFault {
    refused(why.why)
}

impl Writing<'_> {
    /// The sheet's part as it will be.
    pub(super) fn rewritten(&self, edit: &Edit<'_>, budget: &mut Budget) -> Result<String, WriteFault> {
        if self.sheet.is_protected {
            return Err(refused("the sheet is protected"));
        }
        if self.archive.has_under("_xmlsignatures/") {
            return Err(refused("the workbook is signed, and a change would break the signature"));
        }
        let part =
            Part::read(self.text, &self.book.sheets[self.at].name, self.book, budget).map_err(unreadable)?;
        let mut splices = Splices::default();
        match edit {
            Edit::Set { row, cells } => self.set(&part, *row, cells, &mut splices)?,
            Edit::Append { cells } => self.append(&part, cells, &mut splices)?,
            Edit::Remove { row } => self.remove(&part, *row, &mut splices, budget)?,
        }
        if self.has_formulas(&part, budget)? {
            self.ask_to_compute(&part, &mut splices);
        }
        Ok(splices.apply(self.text))
    }

    /// A row of the table, as it was read.
    fn known(&self, row: usize) -> Result<&Row, WriteFault> {
        let row = self.layout.rows.get(row).and_then(|at| self.sheet.grid.rows.get(*at));
        row.ok_or(WriteFault::NotFound)
    }

    fn place(&self, row: u32, put: &Put<'_>) -> Result<Place, WriteFault> {
        let column = self.layout.columns.get(put.column).copied();
        Ok(Place { row, column: column.ok_or_else(|| refused_at(put, "the sheet has no such column"))? })
    }

    fn set(
        &self,
        part: &Part,
        row: usize,
        puts: &[Put<'_>],
        splices: &mut Splices,
    ) -> Result<(), WriteFault> {
        let known = self.known(row)?;
        let number = known.number;
        let row = part.row(number).ok_or(WriteFault::NotFound)?;
        let mut new = Vec::new();
        for put in puts {
            let at = self.place(number, put)?;
            let cell = part.cell(at);
            let held = known.get(at.column).map_or(Held::Null, |cell| cell.value.held(&self.book.texts));
            if held == put.value && !is_other_zero(held, put.value) {
                continue;
            }
            self.may_change(part, at, put)?;
            let style = cell.map_or_else(|| self.style_above(part, at), |cell| cell.style);
            let encoded = self.encoded(part, at, put, style)?;
            match cell {
                Some(cell) => splices.put(cell.span(), cell_xml(part, at, &encoded)),
                None if put.value == Held::Null => {}
                None => new.push((at.column, cell_xml(part, at, &encoded))),
            }
        }
        insert_cells(part, row, new, splices)?;
        self.widen_dimension(part, puts, number, splices)
    }

    fn append(&self, part: &Part, puts: &[Put<'_>], splices: &mut Splices) -> Result<(), WriteFault> {
        if !self.sheet.tables.is_empty() {
            return Err(refused(
                "the sheet has a table (as Excel calls them) that would have to grow; add rows in a spreadsheet \
                 program, or turn the table into a range there",
            ));
        }
        let is_used = |row: &&PartRow| part.cells(row).iter().any(|cell| cell.has_value || cell.is_formula);
        let last =
            part.rows.iter().rev().find(is_used).map_or(0, |row| row.number).max(self.layout.header_row);
        let number = last + 1;
        if number > ROWS_MAX {
            return Err(refused("the sheet is full"));
        }
        let above = part.row(last).filter(|row| row.number > self.layout.header_row);
        let above = above.map_or(&[][..], |row| part.cells(row));
        if let Some(cell) = above.iter().find(|cell| cell.is_formula) {
            let why = format!("{} has a formula that a new row would be without", cell.at);
            return Err(refused(why));
        }
        let mut cells: Vec<(u32, String)> = Vec::new();
        for put in puts.iter().filter(|put| put.value != Held::Null) {
            let at = self.place(number, put)?;
            self.may_change(part, at, put)?;
            let style = above.iter().find(|cell| cell.at.column == at.column).map_or(0, |cell| cell.style);
            let encoded = self.encoded(part, at, put, style)?;
            cells.push((at.column, cell_xml(part, at, &encoded)));
        }
        if cells.is_empty() {
            return Err(refused("a row without any value is no row of a sheet"));
        }
        // What stands empty in the new row looks as it does above.
        for cell in above.iter().filter(|cell| cell.style != 0) {
            if cells.iter().all(|(column, _)| *column != cell.at.column) {
                let at = Place { row: number, column: cell.at.column };
                let blank = Encoded { kind: None, content: String::new(), style: cell.style };
                cells.push((at.column, cell_xml(part, at, &blank)));
            }
        }
        cells.sort();
        match part.row(number) {
            // Cells that are there already have a style and nothing else.
            Some(row) => {
                let mut new = Vec::new();
                for (column, xml) in cells {
                    match part.cell(Place { row: number, column }) {
                        Some(cell) => splices.put(cell.span(), xml),
                        None => new.push((column, xml)),
                    }
                }
                insert_cells(part, row, new, splices)?;
            }
            None => {
                let prefix = &part.prefix;
                let cells: String = cells.into_iter().map(|(_, xml)| xml).collect();
                let row = format!("<{prefix}row r=\"{number}\">{cells}</{prefix}row>");
                self.insert_row(part, number, row, splices)?;
            }
        }
        self.widen_dimension(part, puts, number, splices)
    }

    fn insert_row(
        &self,
        part: &Part,
        number: u32,
        row: String,
        splices: &mut Splices,
    ) -> Result<(), WriteFault> {
        let mut below = part.rows.iter().skip_while(|row| row.number < number).peekable();
        let next = below.peek().map(|row| row.tag.start);
        if below.any(|row| row.number_at.is_none()) {
            return Err(refused("the sheet's rows have no numbers; save the file in a spreadsheet program"));
        }
        let prefix = &part.prefix;
        match (&part.data, next) {
            (Some((_, Some(_))), Some(next)) => splices.insert(next, row),
            (Some((_, Some(close))), None) => splices.insert(close.start, row),
            (Some((open, None)), _) => {
                splices.put(open.clone(), format!("<{prefix}sheetData>{row}</{prefix}sheetData>"));
            }
            (None, _) => return Err(refused("the sheet has no place for cells")),
        }
        Ok(())
    }

    fn remove(
        &self,
        part: &Part,
        row: usize,
        splices: &mut Splices,
        budget: &mut Budget,
    ) -> Result<(), WriteFault> {
        let number = self.known(row)?.number;
        let row = part.row(number).ok_or(WriteFault::NotFound)?;
        self.may_remove(part, row, budget)?;
        let is_last = part.rows.last().is_some_and(|last| last.number == number);
        let end = row.close.as_ref().map_or(row.tag.end, |close| close.end);
        splices.put(row.tag.start..end, "");
        for below in part.rows.iter().filter(|below| below.number > number) {
            let Some(at) = &below.number_at else {
                return Err(refused(
                    "the sheet's rows have no numbers; save the file in a spreadsheet program",
                ));
            };
            splices.put(at.clone(), (below.number - 1).to_string());
            for cell in part.cells(below) {
                if let Some(at) = cell.place_at() {
                    let moved = Place { row: cell.at.row - 1, column: cell.at.column };
                    splices.put(at, moved.to_string());
                }
            }
        }
        for beside in &part.beside {
            let Some((at, areas)) = &beside.areas else { continue };
            let moved = match beside.name.as_str() {
                // Many writers say something else than is true.
                "dimension" => moved_up(areas, number).ok().flatten(),
                _ if is_last => None,
                _ => moved_up(areas, number)?,
            };
            if let Some(moved) = moved {
                splices.put(at.clone(), moved);
            }
        }
        Ok(())
    }

    /// Whether nothing counts on where this row and those below it are.
    fn may_remove(&self, part: &Part, row: &PartRow, budget: &mut Budget) -> Result<(), WriteFault> {
        let number = row.number;
        if !self.sheet.tables.is_empty() {
            return Err(refused("the sheet has a table (as Excel calls them) that would have to shrink"));
        }
        if let Some(formula) = part.formulas.first() {
            return Err(refused(format!("rows would move, and {} has a formula", formula.at)));
        }
        if part.merged().any(|area| area.last.row >= number) {
            return Err(refused("rows would move, and some of their cells are merged"));
        }
        // What these say of cells is moved along, or says nothing of cells.
        const HARMLESS: [&str; 17] = [
            "sheetPr",
            "dimension",
            "sheetViews",
            "sheetFormatPr",
            "cols",
            "sheetCalcPr",
            "autoFilter",
            "mergeCells",
            "phoneticPr",
            "conditionalFormatting",
            "dataValidations",
            "printOptions",
            "pageMargins",
            "pageSetup",
            "headerFooter",
            "ignoredErrors",
            "sheetProtection",
        ];
        let is_last = part.rows.last().is_some_and(|last| last.number == number);
        // If the row is the last one, nothing moves; but what is said of it alone would be said of the next one there.
        let has_no_comment = is_last && self.has_no_comment_from(number, budget)?;
        let stays = |one: &&Beside| is_last && (one.name != "legacyDrawing" || has_no_comment);
        let mut harmful = part.elements().filter(|one| !HARMLESS.contains(&one.name.as_str()));
        if let Some(one) = harmful.find(|one| !stays(one)) {
            let what = match one.name.as_str() {
                "drawing" | "picture" => "a picture or a chart",
                "legacyDrawing" if is_last => return Err(refused("the row has a comment that would stay")),
                "legacyDrawing" => "comments",
                "hyperlinks" => "links",
                "rowBreaks" => "page breaks",
                _ => "something beside its cells",
            };
            return Err(refused(format!("rows would move, and the sheet has {what} that would stay")));
        }
        let is_link = |one: &&Beside| {
            let area = one.areas.as_ref().and_then(|(_, text)| Area::parse(text));
            one.name == "hyperlink" && area.is_some_and(|area| area.last.row >= number)
        };
        if part.beside.iter().any(|one| is_link(&one)) {
            return Err(refused("the row has a link that would stay"));
        }
        let mut rules = part.beside.iter().filter(|one| RULES.contains(&one.name.as_str()));
        if !is_last && rules.any(|one| !references(text_behind(self.text, one.span.end)).is_empty()) {
            return Err(refused("rows would move, and a rule for formats or entries looks at cells"));
        }
        if self.archive.has_under("xl/charts/") || self.archive.has_under("xl/pivotcache/") {
            return Err(refused("rows would move, and a chart or a pivot table may look at them"));
        }
        self.nobody_looks(number, budget)
    }

    /// Whether the sheet's comments are known, and all of them stand above a row.
    fn has_no_comment_from(&self, row: u32, budget: &mut Budget) -> Result<bool, WriteFault> {
        let SheetKind::Cells(target, _) = &self.book.sheets[self.at].part else { return Ok(false) };
        let relations = relations(self.archive, target, budget).map_err(unreadable)?;
        let mut is_known = false;
        for one in relations.values().filter(|one| one.kind == "comments") {
            let Some(at) = self.archive.find(&one.target) else { return Ok(false) };
            let bytes = self.archive.read(at, budget).map_err(unreadable)?;
            let mut xml = Xml::new(text(&bytes).map_err(unreadable)?);
            loop {
                match xml.next(budget).map_err(unreadable)? {
                    Node::Eof => break,
                    Node::Start { tag, .. } if tag.name() == "comment" => {
                        let place = tag.attribute("ref").map_err(unreadable)?;
                        let area = place.and_then(|place| Area::parse(&place));
                        if area.is_none_or(|area| area.last.row >= row) {
                            return Ok(false);
                        }
                    }
                    Node::Start { .. } | Node::End | Node::Text(_) => {}
                }
            }
            is_known = true;
        }
        Ok(is_known)
    }

    /// Whether no name and no formula on another sheet looks at this sheet, from a row on.
    fn nobody_looks(&self, from: u32, budget: &mut Budget) -> Result<(), WriteFault> {
        let sheet = &self.book.sheets[self.at].name;
        let looks = |formula: &str, is_own: bool| {
            references(formula).into_iter().any(|one| match one {
                Reference::Unknown => !is_own,
                Reference::Cells(Some(of), area) => is_same_name(&of, sheet) && area.last.row >= from,
                Reference::Cells(None, _) => false,
            })
        };
        // What the program itself keeps in names (a filter, what is printed) may be a row too long.
        let names = self.book.names.iter().filter(|one| !one.name.starts_with("_xlnm."));
        if let Some(name) = names.into_iter().find(|one| looks(&one.formula, true)) {
            return Err(refused(format!("rows would move, and the name `{}` means some of them", name.name)));
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, part) = &other.part else { continue };
            if at == self.at {
                continue;
            }
            let bytes = self.archive.read(*part, budget).map_err(unreadable)?;
            let mut looker = None;
            let other_text = text(&bytes).map_err(unreadable)?;
            scan(other_text, self.book, budget, &mut |piece| {
                match piece {
                    Piece::Formula(formula) if looker.is_none() && looks(&formula.text, false) => {
                        looker = Some(formula.at.to_string());
                    }
                    Piece::Beside { tag, span, .. }
                        if RULES.contains(&tag.name()) && looks(text_behind(other_text, span.end), false) =>
                    {
                        looker = Some("a rule".to_owned());
                    }
                    _ => {}
                }
                Ok(())
            })
            .map_err(unreadable)?;
            if let Some(at) = looker {
                let why = format!("rows would move, and {at} on `{}` may be computed from them", other.name);
                return Err(refused(why));
            }
        }
        Ok(())
    }

    /// Whether a cell may get another value.
    fn may_change(&self, part: &Part, at: Place, put: &Put<'_>) -> Result<(), WriteFault> {
        let is_computed = part.cell(at).is_some_and(|cell| cell.is_formula)
            || part.formulas.iter().any(|one| one.is_array && one.area.is_some_and(|area| area.has(at)));
        if is_computed {
            return Err(refused_at(put, format!("{at} has a formula")));
        }
        if part.merged().any(|area| area.has(at) && area.first != at) {
            return Err(refused_at(put, format!("{at} is merged with the cell before it")));
        }
        match part.watcher(at) {
            Some(watcher) => Err(refused_at(
                put,
                format!(
                    "{watcher} may be computed from {at}, and only a spreadsheet program computes it anew"
                ),
            )),
            None => Ok(()),
        }
    }

    fn encoded(&self, part: &Part, at: Place, put: &Put<'_>, style: u32) -> Result<Encoded, WriteFault> {
        let styles = &self.book.styles;
        let same_column = part.cells.iter().rev().filter(|cell| cell.at.column == at.column);
        let mut like =
            same_column.map(|cell| cell.style).filter(|style| styles.shown(*style) != Shown::Number);
        encoded(put.value, style, &mut like, styles, &part.prefix).map_err(|why| refused_at(put, why))
    }

    /// The style of the nearest cell above, among the rows of the table.
    fn style_above(&self, part: &Part, at: Place) -> u32 {
        let rows = part.rows.iter().rev().skip_while(|row| row.number >= at.row);
        let rows = rows.take_while(|row| row.number > self.layout.header_row).take(64);
        let mut cells = rows.filter_map(|row| part.cell(Place { row: row.number, column: at.column }));
        cells.next().map_or(0, |cell| cell.style)
    }

    /// What the sheet says of its size.
    fn widen_dimension(
        &self,
        part: &Part,
        puts: &[Put<'_>],
        row: u32,
        splices: &mut Splices,
    ) -> Result<(), WriteFault> {
        let dimension = part.elements().find(|one| one.name == "dimension");
        let Some((at, areas)) = dimension.and_then(|one| one.areas.as_ref()) else { return Ok(()) };
        let Some(mut area) = Area::parse(areas) else { return Ok(()) };
        let old = area;
        for put in puts.iter().filter(|put| put.value != Held::Null) {
            let place = self.place(row, put)?;
            area.first.row = area.first.row.min(place.row);
            area.first.column = area.first.column.min(place.column);
            area.last.row = area.last.row.max(place.row);
            area.last.column = area.last.column.max(place.column);
        }
        if area != old {
            splices.put(at.clone(), area.to_string());
        }
        Ok(())
    }

    /// Whether anything in the workbook is computed. Many writers leave no list of it.
    fn has_formulas(&self, part: &Part, budget: &mut Budget) -> Result<bool, WriteFault> {
        if !part.formulas.is_empty() || self.archive.find("xl/calcChain.xml").is_some() {
            return Ok(true);
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, place) = &other.part else { continue };
            if at == self.at {
                continue;
            }
            let bytes = self.archive.read(*place, budget).map_err(unreadable)?;
            let other_text = text(&bytes).map_err(unreadable)?;
            let mut is_found = false;
            // Most sheets have none, which is seen at a glance.
            if other_text.contains("<f") || other_text.contains(":f") {
                scan(other_text, self.book, budget, &mut |piece| {
                    is_found |= matches!(piece, Piece::Formula(_));
                    Ok(())
                })
                .map_err(unreadable)?;
            }
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whoever opens the workbook next computes it: formulas elsewhere may look at what was changed.
    fn ask_to_compute(&self, part: &Part, splices: &mut Splices) {
        let prefix = &part.prefix;
        let element = format!("<{prefix}sheetCalcPr fullCalcOnLoad=\"1\"/>");
        let there = part.elements().find(|one| one.name == "sheetCalcPr");
        match (there, &part.data) {
            (Some(there), _) if !there.is_on && self.text[there.span.clone()].ends_with("/>") => {
                splices.put(there.span.clone(), element);
            }
            (None, Some((open, close))) => {
                let end = close.as_ref().map_or(open.end, |close| close.end);
                splices.insert(end, element);
            }
            (Some(_), _) | (None, None) => {}
        }
    }
}

/// Elements that hold a formula of a rule for formats or entries.
const RULES: [&str; 4] = ["formula", "formula1", "formula2", "f"];

/// What stands between a tag and the next one.
fn text_behind(text: &str, at: usize) -> &str {
    let text = &text[at..];
    &text[..text.find('<').unwrap_or(text.len())]
}

/// Zeros are equal, and yet two values.
fn is_other_zero(a: Held<'_>, b: Held<'_>) -> bool {
    matches!((a, b), (Held::Real(a), Held::Real(b)) if a.is_sign_negative() != b.is_sign_negative())
}

fn cell_xml(part: &Part, at: Place, encoded: &Encoded) -> String {
    let prefix = &part.prefix;
    let style = if encoded.style == 0 { String::new() } else { format!(" s=\"{}\"", encoded.style) };
    let kind = encoded.kind.map_or(String::new(), |kind| format!(" t=\"{kind}\""));
    let content = &encoded.content;
    match content.is_empty() {
        true => format!("<{prefix}c r=\"{at}\"{style}/>"),
        false => format!("<{prefix}c r=\"{at}\"{style}{kind}>{content}</{prefix}c>"),
    }
}

/// Puts cells where the row has none, each at its place.
fn insert_cells(
    part: &Part,
    row: &PartRow,
    mut new: Vec<(u32, String)>,
    splices: &mut Splices,
) -> Result<(), WriteFault> {
    if new.is_empty() {
        return Ok(());
    }
    new.sort();
    let there = part.cells(row);
    if there.iter().any(|cell| cell.place_at().is_none()) {
        return Err(refused("the row's cells have no names; save the file in a spreadsheet program"));
    }
    let Some(close) = &row.close else {
        let cells: String = new.into_iter().map(|(_, xml)| xml).collect();
        let prefix = &part.prefix;
        // `<row r="5"/>` ends two bytes earlier as `<row r="5">`.
        splices.put(row.tag.end - 2..row.tag.end, format!(">{cells}</{prefix}row>"));
        return Ok(());
    };
    for (column, xml) in new {
        let next = there.iter().find(|cell| cell.at.column > column);
        splices.insert(next.map_or(close.start, |cell| cell.span().start), xml);
    }
    Ok(())
}

/// Areas as they are called after a row is gone; nothing if nothing changes.
fn moved_up(areas: &str, gone: u32) -> Result<Option<String>, WriteFault> {
    let mut moved = Vec::new();
    for text in areas.split_whitespace() {
        let Some(mut area) = Area::parse(text) else {
            return Err(refused("rows would move, and the sheet has places that cannot be read"));
        };
        if area.has_all_rows() {
            moved.push(text.to_owned());
            continue;
        }
        if area.first.row == gone && area.last.row == gone {
            return Err(refused("the row has a rule of its own for formats or entries"));
        }
        area.last.row -= u32::from(area.last.row >= gone);
        area.first.row -= u32::from(area.first.row > gone);
        moved.push(area.to_string());
    }
    let moved = moved.join(" ");
    Ok((moved != areas).then_some(moved))
}
