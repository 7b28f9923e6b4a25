//! One row changed on one sheet: that sheet's part is written anew, and no other byte of the workbook.
//!
//! The rules are simple and on the safe side. A cell with a formula is not overwritten, and neither is one that
//! a formula on the same sheet looks at: its value would be told as it was before. A row is added below the last
//! one, and not to a table of Excel's, whose size stands in another part. A row is removed, and those below move
//! up, only if nothing in the workbook counts on where they are.

use contract::source::WriteError;

use super::address::{CellAddress, CellRange, ROWS_MAX, Reference, formula_references};
use super::budget::Budget;
use super::encode::{EncodedCell, encode_cell};
use super::grid::{GridRow, TableLayout};
use super::serial_date::NumberFormat;
use super::sheet::{Sheet, SheetEvent, scan_sheet};
use super::sheet_xml::{RowXml, SheetElement, SheetXml, Splices, is_same_sheet_name};
use super::workbook::{SheetKind, WorkbookParts, read_relationships};
use super::xml::{XmlEvent, XmlReader, utf8_text};
use super::zip::ZipArchive;
use crate::tables::{CellUpdate, ParseError, RowEdit, StoredValue};

/// One sheet, ready to be changed.
pub(super) struct SheetWriter<'a> {
    pub(super) archive: &'a ZipArchive<'a>,
    pub(super) book: &'a WorkbookParts,
    /// The place of the sheet in the book.
    pub(super) sheet_index: usize,
    pub(super) xml: &'a str,
    pub(super) sheet: &'a Sheet,
    pub(super) layout: &'a TableLayout,
}

fn rejected(why: impl Into<String>) -> WriteError {
    WriteError::Rejected { column: None, reason: why.into() }
}

fn rejected_cell(put: &CellUpdate<'_>, why: impl Into<String>) -> WriteError {
    WriteError::Rejected { column: Some(put.column), reason: why.into() }
}

/// The file was read a moment ago: whoever changed it since then broke it.
pub(super) fn parse_to_write_error(why: ParseError) -> WriteError {
    rejected(why.message)
}

impl SheetWriter<'_> {
    /// The sheet's part as it will be.
    pub(super) fn rewrite(&self, edit: &RowEdit<'_>, budget: &mut Budget) -> Result<String, WriteError> {
        if self.sheet.is_protected {
            return Err(rejected("the sheet is protected"));
        }
        if self.archive.has_part_under("_xmlsignatures/") {
            return Err(rejected("the workbook is signed, and a change would break the signature"));
        }
        let part = SheetXml::read(self.xml, &self.book.sheets[self.sheet_index].name, self.book, budget)
            .map_err(parse_to_write_error)?;
        let mut splices = Splices::default();
        match edit {
            RowEdit::Set { row, updates: cells } => self.set(&part, *row, cells, &mut splices)?,
            RowEdit::Append { updates: cells } => self.append(&part, cells, &mut splices)?,
            RowEdit::Remove { row } => self.remove(&part, *row, &mut splices, budget)?,
        }
        if self.has_formulas(&part, budget)? {
            self.request_recalculation(&part, &mut splices);
        }
        Ok(splices.apply(self.xml))
    }

    /// A row of the table, as it was read.
    fn table_row(&self, row: usize) -> Result<&GridRow, WriteError> {
        let row = self.layout.rows.get(row).and_then(|at| self.sheet.grid.rows.get(*at));
        row.ok_or(WriteError::NotFound)
    }

    fn address_of(&self, row: u32, put: &CellUpdate<'_>) -> Result<CellAddress, WriteError> {
        let column = self.layout.columns.get(put.column).copied();
        Ok(CellAddress {
            row,
            column: column.ok_or_else(|| rejected_cell(put, "the sheet has no such column"))?,
        })
    }

    fn set(
        &self,
        part: &SheetXml,
        row: usize,
        puts: &[CellUpdate<'_>],
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let known = self.table_row(row)?;
        let number = known.number;
        let row = part.row(number).ok_or(WriteError::NotFound)?;
        let mut new = Vec::new();
        for put in puts {
            let at = self.address_of(number, put)?;
            let cell = part.cell(at);
            let held = known
                .get(at.column)
                .map_or(StoredValue::Null, |cell| cell.value.to_stored(&self.book.shared_strings));
            if held == put.value && !is_opposite_zero(held, put.value) {
                continue;
            }
            self.check_writable(part, at, put)?;
            let style = cell.map_or_else(|| self.style_above(part, at), |cell| cell.style);
            let encoded = self.encode_value(part, at, put, style)?;
            match cell {
                Some(cell) => splices.replace(cell.span(), cell_xml(part, at, &encoded)),
                None if put.value == StoredValue::Null => {}
                None => new.push((at.column, cell_xml(part, at, &encoded))),
            }
        }
        insert_cells(part, row, new, splices)?;
        self.widen_dimension(part, puts, number, splices)
    }

    fn append(
        &self,
        part: &SheetXml,
        puts: &[CellUpdate<'_>],
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        if !self.sheet.table_relationships.is_empty() {
            return Err(rejected(
                "the sheet has a table (as Excel calls them) that would have to grow; add rows in a spreadsheet \
                 program, or turn the table into a range there",
            ));
        }
        let is_used = |row: &&RowXml| part.cells(row).iter().any(|cell| cell.has_value || cell.is_formula);
        let last =
            part.rows.iter().rev().find(is_used).map_or(0, |row| row.number).max(self.layout.header_row);
        let number = last + 1;
        if number > ROWS_MAX {
            return Err(rejected("the sheet is full"));
        }
        let above = part.row(last).filter(|row| row.number > self.layout.header_row);
        let above = above.map_or(&[][..], |row| part.cells(row));
        if let Some(cell) = above.iter().find(|cell| cell.is_formula) {
            let why = format!("{} has a formula that a new row would be without", cell.address);
            return Err(rejected(why));
        }
        let mut cells: Vec<(u32, String)> = Vec::new();
        for put in puts.iter().filter(|put| put.value != StoredValue::Null) {
            let at = self.address_of(number, put)?;
            self.check_writable(part, at, put)?;
            let style =
                above.iter().find(|cell| cell.address.column == at.column).map_or(0, |cell| cell.style);
            let encoded = self.encode_value(part, at, put, style)?;
            cells.push((at.column, cell_xml(part, at, &encoded)));
        }
        if cells.is_empty() {
            return Err(rejected("a row without any value is no row of a sheet"));
        }
        // What stands empty in the new row looks as it does above.
        for cell in above.iter().filter(|cell| cell.style != 0) {
            if cells.iter().all(|(column, _)| *column != cell.address.column) {
                let at = CellAddress { row: number, column: cell.address.column };
                let blank = EncodedCell { cell_type: None, content: String::new(), style: cell.style };
                cells.push((at.column, cell_xml(part, at, &blank)));
            }
        }
        cells.sort();
        match part.row(number) {
            // Cells that are there already have a style and nothing else.
            Some(row) => {
                let mut new = Vec::new();
                for (column, xml) in cells {
                    match part.cell(CellAddress { row: number, column }) {
                        Some(cell) => splices.replace(cell.span(), xml),
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
        part: &SheetXml,
        number: u32,
        row: String,
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let mut below = part.rows.iter().skip_while(|row| row.number < number).peekable();
        let next = below.peek().map(|row| row.tag.start);
        if below.any(|row| row.number_span.is_none()) {
            return Err(rejected("the sheet's rows have no numbers; save the file in a spreadsheet program"));
        }
        let prefix = &part.prefix;
        match (&part.sheet_data, next) {
            (Some((_, Some(_))), Some(next)) => splices.insert(next, row),
            (Some((_, Some(close))), None) => splices.insert(close.start, row),
            (Some((open, None)), _) => {
                splices.replace(open.clone(), format!("<{prefix}sheetData>{row}</{prefix}sheetData>"));
            }
            (None, _) => return Err(rejected("the sheet has no place for cells")),
        }
        Ok(())
    }

    fn remove(
        &self,
        part: &SheetXml,
        row: usize,
        splices: &mut Splices,
        budget: &mut Budget,
    ) -> Result<(), WriteError> {
        let number = self.table_row(row)?.number;
        let row = part.row(number).ok_or(WriteError::NotFound)?;
        self.check_removable(part, row, budget)?;
        let is_last = part.rows.last().is_some_and(|last| last.number == number);
        let end = row.close.as_ref().map_or(row.tag.end, |close| close.end);
        splices.replace(row.tag.start..end, "");
        for below in part.rows.iter().filter(|below| below.number > number) {
            let Some(at) = &below.number_span else {
                return Err(rejected(
                    "the sheet's rows have no numbers; save the file in a spreadsheet program",
                ));
            };
            splices.replace(at.clone(), (below.number - 1).to_string());
            for cell in part.cells(below) {
                if let Some(at) = cell.address_span() {
                    let moved = CellAddress { row: cell.address.row - 1, column: cell.address.column };
                    splices.replace(at, moved.to_string());
                }
            }
        }
        for beside in &part.other_elements {
            let Some((at, areas)) = &beside.ranges else { continue };
            let moved = match beside.name.as_str() {
                // Many writers say something else than is true.
                "dimension" => shift_ranges_up(areas, number).ok().flatten(),
                _ if is_last => None,
                _ => shift_ranges_up(areas, number)?,
            };
            if let Some(moved) = moved {
                splices.replace(at.clone(), moved);
            }
        }
        Ok(())
    }

    /// Whether nothing counts on where this row and those below it are.
    fn check_removable(&self, part: &SheetXml, row: &RowXml, budget: &mut Budget) -> Result<(), WriteError> {
        let number = row.number;
        if !self.sheet.table_relationships.is_empty() {
            return Err(rejected("the sheet has a table (as Excel calls them) that would have to shrink"));
        }
        if let Some(formula) = part.formulas.first() {
            return Err(rejected(format!("rows would move, and {} has a formula", formula.address)));
        }
        if part.merged_ranges().any(|area| area.last.row >= number) {
            return Err(rejected("rows would move, and some of their cells are merged"));
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
        let has_no_comment = is_last && self.has_no_comments_from(number, budget)?;
        let stays = |one: &&SheetElement| is_last && (one.name != "legacyDrawing" || has_no_comment);
        let mut harmful = part.top_level_elements().filter(|one| !HARMLESS.contains(&one.name.as_str()));
        if let Some(one) = harmful.find(|one| !stays(one)) {
            let what = match one.name.as_str() {
                "drawing" | "picture" => "a picture or a chart",
                "legacyDrawing" if is_last => return Err(rejected("the row has a comment that would stay")),
                "legacyDrawing" => "comments",
                "hyperlinks" => "links",
                "rowBreaks" => "page breaks",
                _ => "something beside its cells",
            };
            return Err(rejected(format!("rows would move, and the sheet has {what} that would stay")));
        }
        let is_link = |one: &&SheetElement| {
            let area = one.ranges.as_ref().and_then(|(_, text)| CellRange::parse(text));
            one.name == "hyperlink" && area.is_some_and(|area| area.last.row >= number)
        };
        if part.other_elements.iter().any(|one| is_link(&one)) {
            return Err(rejected("the row has a link that would stay"));
        }
        let mut rules =
            part.other_elements.iter().filter(|one| RULE_FORMULA_ELEMENTS.contains(&one.name.as_str()));
        if !is_last && rules.any(|one| !formula_references(text_after_tag(self.xml, one.span.end)).is_empty())
        {
            return Err(rejected("rows would move, and a rule for formats or entries looks at cells"));
        }
        if self.archive.has_part_under("xl/charts/") || self.archive.has_part_under("xl/pivotcache/") {
            return Err(rejected("rows would move, and a chart or a pivot table may look at them"));
        }
        self.check_no_references(number, budget)
    }

    /// Whether the sheet's comments are known, and all of them stand above a row.
    fn has_no_comments_from(&self, row: u32, budget: &mut Budget) -> Result<bool, WriteError> {
        let SheetKind::Cells(target, _) = &self.book.sheets[self.sheet_index].kind else { return Ok(false) };
        let relations = read_relationships(self.archive, target, budget).map_err(parse_to_write_error)?;
        let mut is_known = false;
        for one in relations.values().filter(|one| one.kind == "comments") {
            let Some(at) = self.archive.find(&one.target) else { return Ok(false) };
            let bytes = self.archive.read(at, budget).map_err(parse_to_write_error)?;
            let mut xml = XmlReader::new(utf8_text(&bytes).map_err(parse_to_write_error)?);
            loop {
                match xml.next(budget).map_err(parse_to_write_error)? {
                    XmlEvent::Eof => break,
                    XmlEvent::Start { tag, .. } if tag.name() == "comment" => {
                        let place = tag.attribute("ref").map_err(parse_to_write_error)?;
                        let area = place.and_then(|place| CellRange::parse(&place));
                        if area.is_none_or(|area| area.last.row >= row) {
                            return Ok(false);
                        }
                    }
                    XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
                }
            }
            is_known = true;
        }
        Ok(is_known)
    }

    /// Whether no name and no formula on another sheet looks at this sheet, from a row on.
    fn check_no_references(&self, from: u32, budget: &mut Budget) -> Result<(), WriteError> {
        let sheet = &self.book.sheets[self.sheet_index].name;
        let looks = |formula: &str, is_own: bool| {
            formula_references(formula).into_iter().any(|one| match one {
                Reference::Unknown => !is_own,
                Reference::Cells(Some(of), area) => is_same_sheet_name(&of, sheet) && area.last.row >= from,
                Reference::Cells(None, _) => false,
            })
        };
        // What the program itself keeps in names (a filter, what is printed) may be a row too long.
        let names = self.book.defined_names.iter().filter(|one| !one.name.starts_with("_xlnm."));
        if let Some(name) = names.into_iter().find(|one| looks(&one.formula, true)) {
            return Err(rejected(format!(
                "rows would move, and the name `{}` means some of them",
                name.name
            )));
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, part) = &other.kind else { continue };
            if at == self.sheet_index {
                continue;
            }
            let bytes = self.archive.read(*part, budget).map_err(parse_to_write_error)?;
            let mut looker = None;
            let other_text = utf8_text(&bytes).map_err(parse_to_write_error)?;
            scan_sheet(other_text, self.book, budget, &mut |piece| {
                match piece {
                    SheetEvent::Formula(formula) if looker.is_none() && looks(&formula.text, false) => {
                        looker = Some(formula.address.to_string());
                    }
                    SheetEvent::Element { tag, span, .. }
                        if RULE_FORMULA_ELEMENTS.contains(&tag.name())
                            && looks(text_after_tag(other_text, span.end), false) =>
                    {
                        looker = Some("a rule".to_owned());
                    }
                    _ => {}
                }
                Ok(())
            })
            .map_err(parse_to_write_error)?;
            if let Some(at) = looker {
                let why = format!("rows would move, and {at} on `{}` may be computed from them", other.name);
                return Err(rejected(why));
            }
        }
        Ok(())
    }

    /// Whether a cell may get another value.
    fn check_writable(
        &self,
        part: &SheetXml,
        at: CellAddress,
        put: &CellUpdate<'_>,
    ) -> Result<(), WriteError> {
        let is_computed = part.cell(at).is_some_and(|cell| cell.is_formula)
            || part
                .formulas
                .iter()
                .any(|one| one.is_array && one.range.is_some_and(|area| area.contains(at)));
        if is_computed {
            return Err(rejected_cell(put, format!("{at} has a formula")));
        }
        if part.merged_ranges().any(|area| area.contains(at) && area.first != at) {
            return Err(rejected_cell(put, format!("{at} is merged with the cell before it")));
        }
        match part.dependent_formula(at) {
            Some(watcher) => Err(rejected_cell(
                put,
                format!(
                    "{watcher} may be computed from {at}, and only a spreadsheet program computes it anew"
                ),
            )),
            None => Ok(()),
        }
    }

    fn encode_value(
        &self,
        part: &SheetXml,
        at: CellAddress,
        put: &CellUpdate<'_>,
        style: u32,
    ) -> Result<EncodedCell, WriteError> {
        let styles = &self.book.styles;
        let same_column = part.cells.iter().rev().filter(|cell| cell.address.column == at.column);
        let mut like = same_column
            .map(|cell| cell.style)
            .filter(|style| styles.number_format(*style) != NumberFormat::Number);
        encode_cell(put.value, style, &mut like, styles, &part.prefix).map_err(|why| rejected_cell(put, why))
    }

    /// The style of the nearest cell above, among the rows of the table.
    fn style_above(&self, part: &SheetXml, at: CellAddress) -> u32 {
        let rows = part.rows.iter().rev().skip_while(|row| row.number >= at.row);
        let rows = rows.take_while(|row| row.number > self.layout.header_row).take(64);
        let mut cells = rows.filter_map(|row| part.cell(CellAddress { row: row.number, column: at.column }));
        cells.next().map_or(0, |cell| cell.style)
    }

    /// What the sheet says of its size.
    fn widen_dimension(
        &self,
        part: &SheetXml,
        puts: &[CellUpdate<'_>],
        row: u32,
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let dimension = part.top_level_elements().find(|one| one.name == "dimension");
        let Some((at, areas)) = dimension.and_then(|one| one.ranges.as_ref()) else { return Ok(()) };
        let Some(mut area) = CellRange::parse(areas) else { return Ok(()) };
        let old = area;
        for put in puts.iter().filter(|put| put.value != StoredValue::Null) {
            let place = self.address_of(row, put)?;
            area.first.row = area.first.row.min(place.row);
            area.first.column = area.first.column.min(place.column);
            area.last.row = area.last.row.max(place.row);
            area.last.column = area.last.column.max(place.column);
        }
        if area != old {
            splices.replace(at.clone(), area.to_string());
        }
        Ok(())
    }

    /// Whether anything in the workbook is computed. Many writers leave no list of it.
    fn has_formulas(&self, part: &SheetXml, budget: &mut Budget) -> Result<bool, WriteError> {
        if !part.formulas.is_empty() || self.archive.find("xl/calcChain.xml").is_some() {
            return Ok(true);
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, place) = &other.kind else { continue };
            if at == self.sheet_index {
                continue;
            }
            let bytes = self.archive.read(*place, budget).map_err(parse_to_write_error)?;
            let other_text = utf8_text(&bytes).map_err(parse_to_write_error)?;
            let mut is_found = false;
            // Most sheets have none, which is seen at a glance.
            if other_text.contains("<f") || other_text.contains(":f") {
                scan_sheet(other_text, self.book, budget, &mut |piece| {
                    is_found |= matches!(piece, SheetEvent::Formula(_));
                    Ok(())
                })
                .map_err(parse_to_write_error)?;
            }
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whoever opens the workbook next computes it: formulas elsewhere may look at what was changed.
    fn request_recalculation(&self, part: &SheetXml, splices: &mut Splices) {
        let prefix = &part.prefix;
        let element = format!("<{prefix}sheetCalcPr fullCalcOnLoad=\"1\"/>");
        let there = part.top_level_elements().find(|one| one.name == "sheetCalcPr");
        match (there, &part.sheet_data) {
            (Some(there), _)
                if !there.recalculates_on_load && self.xml[there.span.clone()].ends_with("/>") =>
            {
                splices.replace(there.span.clone(), element);
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
const RULE_FORMULA_ELEMENTS: [&str; 4] = ["formula", "formula1", "formula2", "f"];

/// What stands between a tag and the next one.
fn text_after_tag(text: &str, at: usize) -> &str {
    let text = &text[at..];
    &text[..text.find('<').unwrap_or(text.len())]
}

/// Zeros are equal, and yet two values.
fn is_opposite_zero(a: StoredValue<'_>, b: StoredValue<'_>) -> bool {
    matches!((a, b), (StoredValue::Real(a), StoredValue::Real(b)) if a.is_sign_negative() != b.is_sign_negative())
}

fn cell_xml(part: &SheetXml, at: CellAddress, encoded: &EncodedCell) -> String {
    let prefix = &part.prefix;
    let style = if encoded.style == 0 { String::new() } else { format!(" s=\"{}\"", encoded.style) };
    let kind = encoded.cell_type.map_or(String::new(), |kind| format!(" t=\"{kind}\""));
    let content = &encoded.content;
    match content.is_empty() {
        true => format!("<{prefix}c r=\"{at}\"{style}/>"),
        false => format!("<{prefix}c r=\"{at}\"{style}{kind}>{content}</{prefix}c>"),
    }
}

/// Puts cells where the row has none, each at its place.
fn insert_cells(
    part: &SheetXml,
    row: &RowXml,
    mut new: Vec<(u32, String)>,
    splices: &mut Splices,
) -> Result<(), WriteError> {
    if new.is_empty() {
        return Ok(());
    }
    new.sort();
    let there = part.cells(row);
    if there.iter().any(|cell| cell.address_span().is_none()) {
        return Err(rejected("the row's cells have no names; save the file in a spreadsheet program"));
    }
    let Some(close) = &row.close else {
        let cells: String = new.into_iter().map(|(_, xml)| xml).collect();
        let prefix = &part.prefix;
        // `<row r="5"/>` ends two bytes earlier as `<row r="5">`.
        splices.replace(row.tag.end - 2..row.tag.end, format!(">{cells}</{prefix}row>"));
        return Ok(());
    };
    for (column, xml) in new {
        let next = there.iter().find(|cell| cell.address.column > column);
        splices.insert(next.map_or(close.start, |cell| cell.span().start), xml);
    }
    Ok(())
}

/// Areas as they are called after a row is gone; nothing if nothing changes.
fn shift_ranges_up(areas: &str, gone: u32) -> Result<Option<String>, WriteError> {
    let mut moved = Vec::new();
    for text in areas.split_whitespace() {
        let Some(mut area) = CellRange::parse(text) else {
            return Err(rejected("rows would move, and the sheet has places that cannot be read"));
        };
        if area.spans_all_rows() {
            moved.push(text.to_owned());
            continue;
        }
        if area.first.row == gone && area.last.row == gone {
            return Err(rejected("the row has a rule of its own for formats or entries"));
        }
        area.last.row -= u32::from(area.last.row >= gone);
        area.first.row -= u32::from(area.first.row > gone);
        moved.push(area.to_string());
    }
    let moved = moved.join(" ");
    Ok((moved != areas).then_some(moved))
}
