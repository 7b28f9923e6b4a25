//! Changes one row on one sheet: rewrites the XML of that sheet, the part of an Excel table that grows, and no other byte
//! of the workbook.
//!
//! The rules are simple and on the safe side. The writer does not overwrite a cell with a formula, nor one that a
//! formula on the same sheet refers to: that formula's cached value would become stale. It appends a row after the
//! last one, and lets an Excel table grow ([`super::excel_table`]). It removes a row, and moves those below up,
//! only if nothing in the workbook refers to their positions.

use std::borrow::Cow;

use contract::source::WriteError;

use super::address::{CellAddress, CellRange, ROWS_MAX};
use super::budget::Budget;
use super::encode::{EncodedCell, encode_cell};
use super::excel_table::GrowableTable;
use super::grid::{GridRow, TableLayout};
use super::references::CellReference;
use super::serial_date::NumberFormat;
use super::sheet::{Sheet, SheetEvent, scan_sheet};
use super::sheet_xml::{CellXml, RowXml, SheetElement, SheetXml, Splices};
use super::workbook::{SheetKind, WorkbookParts, read_relationships};
use super::xml::{XmlEvent, XmlReader, escape_text, utf8_text};
use super::zip::ZipArchive;
use crate::tables::{CellUpdate, ParseError, RowEdit, StoredValue};

/// Edits one sheet.
pub(super) struct SheetWriter<'a> {
    pub(super) archive: &'a ZipArchive<'a>,
    pub(super) book: &'a WorkbookParts,
    /// The position of the sheet in the workbook.
    pub(super) sheet_index: usize,
    pub(super) xml: &'a str,
    pub(super) sheet: &'a Sheet,
    pub(super) layout: &'a TableLayout,
}

fn rejected(reason: impl Into<String>) -> WriteError {
    WriteError::Rejected { column: None, reason: reason.into() }
}

fn rejected_cell(update: &CellUpdate<'_>, reason: impl Into<String>) -> WriteError {
    WriteError::Rejected { column: Some(update.column), reason: reason.into() }
}

fn refused_growth(reason: String) -> WriteError {
    rejected(format!("{reason}; add rows in a spreadsheet program"))
}

/// Why there can be no row below one with a formula.
pub(super) fn formula_above_reason(formula: CellAddress) -> String {
    format!("{formula} has a formula, which a new row would lack; make this change in a spreadsheet program")
}

/// The file was parsed a moment ago, so this only happens if it changed since.
pub(super) fn parse_to_write_error(reason: ParseError) -> WriteError {
    rejected(reason.message)
}

/// What a change rewrites.
pub(super) struct ChangedParts {
    pub(super) sheet_xml: String,
    /// The position and the bytes of the part of an Excel table.
    pub(super) table_part: Option<(usize, Vec<u8>)>,
}

impl SheetWriter<'_> {
    pub(super) fn rewrite(
        &self,
        edit: &RowEdit<'_>,
        budget: &mut Budget,
    ) -> Result<ChangedParts, WriteError> {
        if self.sheet.is_protected {
            return Err(rejected("the sheet is protected; make this change in a spreadsheet program"));
        }
        if self.archive.has_part_under("_xmlsignatures/") {
            return Err(rejected(
                "the workbook is signed, and a change would break the signature; make this change in a spreadsheet program",
            ));
        }
        let sheet_xml =
            SheetXml::read(self.xml, self.sheet_index, self.book, budget).map_err(parse_to_write_error)?;
        let mut splices = Splices::default();
        let mut table_part = None;
        match edit {
            RowEdit::Set { row, updates: cells } => self.set(&sheet_xml, *row, cells, &mut splices)?,
            RowEdit::Append { updates: cells } => {
                table_part = self.append(&sheet_xml, cells, &mut splices, budget)?;
            }
            RowEdit::Remove { row } => self.remove(&sheet_xml, *row, &mut splices, budget)?,
        }
        if self.has_formulas(&sheet_xml, budget)? {
            self.request_recalculation(&sheet_xml, &mut splices);
        }
        Ok(ChangedParts { sheet_xml: splices.apply(self.xml), table_part })
    }

    /// A row of the table, as it was read.
    fn table_row(&self, row: usize) -> Result<&GridRow, WriteError> {
        let row = self.layout.rows.get(row).and_then(|at| self.sheet.grid.rows.get(*at));
        row.ok_or(WriteError::NotFound)
    }

    fn address_of(&self, row: u32, update: &CellUpdate<'_>) -> Result<CellAddress, WriteError> {
        let column = self.layout.columns.get(update.column).copied();
        Ok(CellAddress {
            row,
            column: column.ok_or_else(|| rejected_cell(update, "the sheet has no such column"))?,
        })
    }

    fn set(
        &self,
        sheet_xml: &SheetXml,
        row: usize,
        updates: &[CellUpdate<'_>],
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let table_row = self.table_row(row)?;
        let number = table_row.number;
        let row = sheet_xml.row(number).ok_or(WriteError::NotFound)?;
        let mut new = Vec::new();
        for update in updates {
            let at = self.address_of(number, update)?;
            let cell = sheet_xml.cell(at);
            let stored = table_row
                .get(at.column)
                .map_or(StoredValue::Null, |cell| cell.value.to_stored(&self.book.shared_strings));
            if stored == update.value && !is_opposite_zero(stored, update.value) {
                continue;
            }
            self.check_writable(sheet_xml, at, update)?;
            let style = cell.map_or_else(|| self.style_above(sheet_xml, at), |cell| cell.style);
            let encoded = self.encode_value(sheet_xml, at, update, style)?;
            match cell {
                Some(cell) => splices.replace(cell.span(), cell_xml(sheet_xml, at, &encoded)),
                None if update.value == StoredValue::Null => {}
                None => new.push((at.column, cell_xml(sheet_xml, at, &encoded))),
            }
        }
        insert_cells(sheet_xml, row, new, splices)?;
        self.widen_dimension(sheet_xml, updates, number, splices)
    }

    fn append(
        &self,
        sheet_xml: &SheetXml,
        updates: &[CellUpdate<'_>],
        splices: &mut Splices,
        budget: &mut Budget,
    ) -> Result<Option<(usize, Vec<u8>)>, WriteError> {
        let Self { archive, book, sheet_index, xml, sheet, layout } = *self;
        let table = GrowableTable::find(archive, book, sheet_index, xml, sheet, layout, budget)
            .map_err(parse_to_write_error)?
            .map_err(refused_growth)?;
        if table.is_none() && layout.has_rows_below {
            return Err(rejected(
                "the sheet has rows below the table, which a new row would have to push down; add it in a \
                 spreadsheet program",
            ));
        }
        // Beside an Excel table there may be other cells.
        let columns = table
            .as_ref()
            .map_or(0..=u32::MAX, |table| table.range().first.column..=table.range().last.column);
        let is_ours = |cell: &&CellXml| columns.contains(&cell.address.column);
        // Some programs fill rows below the table with empty texts, which nobody sees.
        let is_blank_text = |cell: &CellXml| {
            let at = sheet.grid.rows.binary_search_by_key(&cell.address.row, |row| row.number);
            let stored = at.ok().and_then(|at| sheet.grid.rows[at].get(cell.address.column));
            let stored = stored.map(|cell| cell.value.to_stored(&book.shared_strings));
            matches!(stored, Some(StoredValue::Text(text)) if text.trim().is_empty())
        };
        let is_used = |row: &&RowXml| {
            let mut cells = sheet_xml.cells(row).iter().filter(is_ours);
            cells.any(|cell| cell.is_formula || (cell.has_value && !is_blank_text(cell)))
        };
        let last_used = sheet_xml.rows.iter().rev().find(is_used).map_or(0, |row| row.number);
        let last = match &table {
            Some(table) if last_used > table.range().last.row => {
                return Err(refused_growth(format!("row {last_used} below the Excel table has cells")));
            }
            Some(_) | None => last_used.max(layout.header_row),
        };
        let number = last + 1;
        if number > ROWS_MAX {
            return Err(rejected("the sheet is full"));
        }
        // A table may end with empty rows.
        let growing = table.as_ref().filter(|table| number > table.range().last.row);
        let above = sheet_xml.row(last).filter(|row| row.number > layout.header_row);
        let above: Vec<&CellXml> =
            above.map_or(&[][..], |row| sheet_xml.cells(row)).iter().filter(is_ours).collect();
        if growing.is_none()
            && let Some(cell) = above.iter().find(|cell| cell.is_formula)
        {
            return Err(rejected(formula_above_reason(cell.address)));
        }
        let mut cells: Vec<(u32, String)> = Vec::new();
        for update in updates.iter().filter(|update| update.value != StoredValue::Null) {
            let at = self.address_of(number, update)?;
            self.check_writable(sheet_xml, at, update)?;
            let style =
                above.iter().find(|cell| cell.address.column == at.column).map_or(0, |cell| cell.style);
            let encoded = self.encode_value(sheet_xml, at, update, style)?;
            cells.push((at.column, cell_xml(sheet_xml, at, &encoded)));
        }
        if cells.is_empty() {
            return Err(rejected("a row needs at least one value"));
        }
        let formulas = growing.map_or(Ok(Vec::new()), GrowableTable::formulas).map_err(refused_growth)?;
        for (column, formula) in formulas {
            let at = CellAddress { row: number, column };
            if cells.iter().any(|(given, _)| *given == column) {
                continue;
            }
            if let Some(dependent) = sheet_xml.dependent_formula(at) {
                return Err(refused_growth(format!("{dependent} may be computed from {at}")));
            }
            let style = above.iter().find(|cell| cell.address.column == column).map_or(0, |cell| cell.style);
            let prefix = &sheet_xml.prefix;
            let content = format!("<{prefix}f>{}</{prefix}f>", escape_text(&formula));
            cells.push((column, cell_xml(sheet_xml, at, &EncodedCell { cell_type: None, content, style })));
        }
        // Empty cells of the new row get the style of the cell above.
        for cell in above.iter().filter(|cell| cell.style != 0) {
            if cells.iter().all(|(column, _)| *column != cell.address.column) {
                let at = CellAddress { row: number, column: cell.address.column };
                let blank = EncodedCell { cell_type: None, content: String::new(), style: cell.style };
                cells.push((at.column, cell_xml(sheet_xml, at, &blank)));
            }
        }
        cells.sort();
        match sheet_xml.row(number) {
            // The cells that exist already have a style and nothing else.
            Some(row) => {
                let mut new = Vec::new();
                for (column, xml) in cells {
                    match sheet_xml.cell(CellAddress { row: number, column }) {
                        Some(cell) => splices.replace(cell.span(), xml),
                        None => new.push((column, xml)),
                    }
                }
                insert_cells(sheet_xml, row, new, splices)?;
            }
            None => {
                let prefix = &sheet_xml.prefix;
                let cells: String = cells.into_iter().map(|(_, xml)| xml).collect();
                let row = format!("<{prefix}row r=\"{number}\">{cells}</{prefix}row>");
                self.insert_row(sheet_xml, number, row, splices)?;
            }
        }
        self.widen_dimension(sheet_xml, updates, number, splices)?;
        let Some(table) = growing else { return Ok(None) };
        table.extend_rules(sheet_xml, splices);
        table.grow_part(archive, budget).map(Some).map_err(parse_to_write_error)
    }

    fn insert_row(
        &self,
        sheet_xml: &SheetXml,
        number: u32,
        row: String,
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let mut below = sheet_xml.rows.iter().skip_while(|row| row.number < number).peekable();
        let next = below.peek().map(|row| row.tag.start);
        if below.any(|row| row.number_span.is_none()) {
            return Err(rejected("the sheet's rows have no numbers; save the file in a spreadsheet program"));
        }
        let prefix = &sheet_xml.prefix;
        match (&sheet_xml.sheet_data, next) {
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
        sheet_xml: &SheetXml,
        row: usize,
        splices: &mut Splices,
        budget: &mut Budget,
    ) -> Result<(), WriteError> {
        let number = self.table_row(row)?.number;
        let row = sheet_xml.row(number).ok_or(WriteError::NotFound)?;
        self.check_removable(sheet_xml, row, budget)?;
        let is_last = sheet_xml.rows.last().is_some_and(|last| last.number == number);
        let end = row.close.as_ref().map_or(row.tag.end, |close| close.end);
        splices.replace(row.tag.start..end, "");
        for below in sheet_xml.rows.iter().filter(|below| below.number > number) {
            let Some(at) = &below.number_span else {
                return Err(rejected(
                    "the sheet's rows have no numbers; save the file in a spreadsheet program",
                ));
            };
            splices.replace(at.clone(), (below.number - 1).to_string());
            for cell in sheet_xml.cells(below) {
                if let Some(at) = cell.address_span() {
                    let moved = CellAddress { row: cell.address.row - 1, column: cell.address.column };
                    splices.replace(at, moved.to_string());
                }
            }
        }
        for element in &sheet_xml.other_elements {
            let Some((at, ranges)) = &element.ranges else { continue };
            let moved = match element.name.as_str() {
                // Many writers give a wrong dimension.
                "dimension" => shift_ranges_up(ranges, number).ok().flatten(),
                _ if is_last => None,
                _ => shift_ranges_up(ranges, number)?,
            };
            if let Some(moved) = moved {
                splices.replace(at.clone(), moved);
            }
        }
        Ok(())
    }

    /// Checks that nothing refers to the position of this row and those below it.
    fn check_removable(
        &self,
        sheet_xml: &SheetXml,
        row: &RowXml,
        budget: &mut Budget,
    ) -> Result<(), WriteError> {
        let number = row.number;
        if !self.sheet.table_relationships.is_empty() {
            return Err(rejected(
                "the sheet has an Excel table that would have to shrink; make this change in a spreadsheet program",
            ));
        }
        if let Some(formula) = sheet_xml.formulas.first() {
            return Err(rejected(format!(
                "rows would move, and {} has a formula; make this change in a spreadsheet program",
                formula.address
            )));
        }
        if sheet_xml.merged_ranges().any(|range| range.last.row >= number) {
            return Err(rejected(
                "rows would move, and some of their cells are merged; make this change in a spreadsheet program",
            ));
        }
        // The references to cells in these elements are adjusted, or they have none.
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
        let is_last = sheet_xml.rows.last().is_some_and(|last| last.number == number);
        // Nothing moves if the row is the last one; but what belongs to it alone would then belong to the next row
        // there.
        let has_no_comment = is_last && self.has_no_comments_from(number, budget)?;
        let stays = |one: &&SheetElement| is_last && (one.name != "legacyDrawing" || has_no_comment);
        let mut harmful = sheet_xml.top_level_elements().filter(|one| !HARMLESS.contains(&one.name.as_str()));
        if let Some(one) = harmful.find(|one| !stays(one)) {
            let what = match one.name.as_str() {
                "drawing" | "picture" => "a picture or a chart",
                "legacyDrawing" if is_last => {
                    return Err(rejected(
                        "the row has a comment that would stay; make this change in a spreadsheet program",
                    ));
                }
                "legacyDrawing" => "comments",
                "hyperlinks" => "links",
                "rowBreaks" => "page breaks",
                _ => "something besides its cells",
            };
            return Err(rejected(format!(
                "rows would move, and the sheet has {what} that would stay; make this change in a spreadsheet program"
            )));
        }
        let is_link = |one: &&SheetElement| {
            let range = one.ranges.as_ref().and_then(|(_, text)| CellRange::parse(text));
            one.name == "hyperlink" && range.is_some_and(|range| range.last.row >= number)
        };
        if sheet_xml.other_elements.iter().any(|one| is_link(&one)) {
            return Err(rejected(
                "the row has a link that would stay; make this change in a spreadsheet program",
            ));
        }
        let mut rules =
            sheet_xml.other_elements.iter().filter(|one| RULE_FORMULA_ELEMENTS.contains(&one.name.as_str()));
        let refers = |rule: &SheetElement| {
            let text = text_after_tag(self.xml, rule.span.end);
            !self.book.references.of_rule(&text, self.sheet_index).is_empty()
        };
        if !is_last && rules.any(refers) {
            return Err(rejected(
                "rows would move, and a conditional format or a data validation refers to cells; make this change in a spreadsheet program",
            ));
        }
        if self.archive.has_part_under("xl/charts/") || self.archive.has_part_under("xl/pivotcache/") {
            return Err(rejected(
                "rows would move, and a chart or a pivot table may refer to them; make this change in a spreadsheet program",
            ));
        }
        self.check_no_references(number, budget)
    }

    /// Whether all comments of the sheet are known and are above a row.
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
                        let position = tag.attribute("ref").map_err(parse_to_write_error)?;
                        let range = position.and_then(|position| CellRange::parse(&position));
                        if range.is_none_or(|range| range.last.row >= row) {
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

    /// Checks that no name, and no formula on another sheet, refers to this sheet from a row on.
    fn check_no_references(&self, from: u32, budget: &mut Budget) -> Result<(), WriteError> {
        let references = &self.book.references;
        let refers = |reference: &CellReference| match reference {
            CellReference::Unknown => false,
            CellReference::Cells { sheets, range } => {
                sheets.contains(&self.sheet_index) && range.last.row >= from
            }
        };
        let may_refer = |reference: &CellReference| *reference == CellReference::Unknown || refers(reference);
        // The names that the program itself keeps (a filter, a print area) may be one row too long.
        let names = self.book.defined_names.iter().filter(|one| !one.name.starts_with("_xlnm."));
        if let Some(name) = names.into_iter().find(|one| references.of_name(&one.name).iter().any(refers)) {
            return Err(rejected(format!(
                "rows would move, and the name `{}` refers to some of them; make this change in a spreadsheet program",
                name.name
            )));
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, sheet_xml) = &other.kind else { continue };
            if at == self.sheet_index {
                continue;
            }
            let bytes = self.archive.read(*sheet_xml, budget).map_err(parse_to_write_error)?;
            let mut referrer = None;
            let other_text = utf8_text(&bytes).map_err(parse_to_write_error)?;
            scan_sheet(other_text, self.book, budget, &mut |event| {
                match event {
                    SheetEvent::Formula(formula)
                        if referrer.is_none()
                            && references.of_formula(&formula, at).iter().any(may_refer) =>
                    {
                        referrer = Some(formula.address.to_string());
                    }
                    SheetEvent::Element { tag, span, .. }
                        if RULE_FORMULA_ELEMENTS.contains(&tag.name())
                            && references
                                .of_rule(&text_after_tag(other_text, span.end), at)
                                .iter()
                                .any(may_refer) =>
                    {
                        referrer = Some("a rule".to_owned());
                    }
                    _ => {}
                }
                Ok(())
            })
            .map_err(parse_to_write_error)?;
            if let Some(at) = referrer {
                let reason = format!(
                    "rows would move, and {at} on `{}` may be computed from them; make this change in a spreadsheet program",
                    other.name
                );
                return Err(rejected(reason));
            }
        }
        Ok(())
    }

    /// Checks that a cell may get another value.
    fn check_writable(
        &self,
        sheet_xml: &SheetXml,
        at: CellAddress,
        update: &CellUpdate<'_>,
    ) -> Result<(), WriteError> {
        let is_computed = sheet_xml.cell(at).is_some_and(|cell| cell.is_formula)
            || sheet_xml
                .formulas
                .iter()
                .any(|one| one.is_array && one.range.is_some_and(|range| range.contains(at)));
        if is_computed {
            return Err(rejected_cell(
                update,
                format!("{at} has a formula; make this change in a spreadsheet program"),
            ));
        }
        if sheet_xml.merged_ranges().any(|range| range.contains(at) && range.first != at) {
            return Err(rejected_cell(
                update,
                format!("{at} is merged with the cell before it; make this change in a spreadsheet program"),
            ));
        }
        match sheet_xml.dependent_formula(at) {
            Some(dependent) => Err(rejected_cell(
                update,
                format!(
                    "{dependent} may be computed from {at}; make this change in a spreadsheet program, which recomputes it"
                ),
            )),
            None => Ok(()),
        }
    }

    fn encode_value(
        &self,
        sheet_xml: &SheetXml,
        at: CellAddress,
        update: &CellUpdate<'_>,
        style: u32,
    ) -> Result<EncodedCell, WriteError> {
        let styles = &self.book.styles;
        let same_column = sheet_xml.cells.iter().rev().filter(|cell| cell.address.column == at.column);
        let mut column_styles = same_column
            .map(|cell| cell.style)
            .filter(|style| styles.number_format(*style) != NumberFormat::Number);
        encode_cell(update.value, style, &mut column_styles, styles, &sheet_xml.prefix)
            .map_err(|reason| rejected_cell(update, reason))
    }

    /// The style of the nearest cell above, among the rows of the table.
    fn style_above(&self, sheet_xml: &SheetXml, at: CellAddress) -> u32 {
        let rows = sheet_xml.rows.iter().rev().skip_while(|row| row.number >= at.row);
        let rows = rows.take_while(|row| row.number > self.layout.header_row).take(64);
        let mut cells =
            rows.filter_map(|row| sheet_xml.cell(CellAddress { row: row.number, column: at.column }));
        cells.next().map_or(0, |cell| cell.style)
    }

    /// Extends the dimension that the sheet declares.
    fn widen_dimension(
        &self,
        sheet_xml: &SheetXml,
        updates: &[CellUpdate<'_>],
        row: u32,
        splices: &mut Splices,
    ) -> Result<(), WriteError> {
        let dimension = sheet_xml.top_level_elements().find(|one| one.name == "dimension");
        let Some((at, ranges)) = dimension.and_then(|one| one.ranges.as_ref()) else { return Ok(()) };
        let Some(mut range) = CellRange::parse(ranges) else { return Ok(()) };
        let old = range;
        for update in updates.iter().filter(|update| update.value != StoredValue::Null) {
            let position = self.address_of(row, update)?;
            range.first.row = range.first.row.min(position.row);
            range.first.column = range.first.column.min(position.column);
            range.last.row = range.last.row.max(position.row);
            range.last.column = range.last.column.max(position.column);
        }
        if range != old {
            splices.replace(at.clone(), range.to_string());
        }
        Ok(())
    }

    /// Whether any cell of the workbook is a formula. Many writers leave no calculation chain.
    fn has_formulas(&self, sheet_xml: &SheetXml, budget: &mut Budget) -> Result<bool, WriteError> {
        if !sheet_xml.formulas.is_empty() || self.archive.find("xl/calcChain.xml").is_some() {
            return Ok(true);
        }
        for (at, other) in self.book.sheets.iter().enumerate() {
            let SheetKind::Cells(_, position) = &other.kind else { continue };
            if at == self.sheet_index {
                continue;
            }
            let bytes = self.archive.read(*position, budget).map_err(parse_to_write_error)?;
            let other_text = utf8_text(&bytes).map_err(parse_to_write_error)?;
            let mut is_found = false;
            // Most sheets have no formula, and a text search finds that out fast.
            if other_text.contains("<f") || other_text.contains(":f") {
                scan_sheet(other_text, self.book, budget, &mut |event| {
                    is_found |= matches!(event, SheetEvent::Formula(_));
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

    /// Makes the next spreadsheet program that opens the workbook recalculate it: formulas elsewhere may refer to
    /// this row.
    fn request_recalculation(&self, sheet_xml: &SheetXml, splices: &mut Splices) {
        let prefix = &sheet_xml.prefix;
        let element = format!("<{prefix}sheetCalcPr fullCalcOnLoad=\"1\"/>");
        let there = sheet_xml.top_level_elements().find(|one| one.name == "sheetCalcPr");
        match (there, &sheet_xml.sheet_data) {
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

/// Elements that hold a formula of a conditional format or a data validation.
const RULE_FORMULA_ELEMENTS: [&str; 4] = ["formula", "formula1", "formula2", "f"];

/// The text from a position to the next tag.
fn text_after_tag(text: &str, at: usize) -> Cow<'_, str> {
    let text = &text[at..];
    let text = &text[..text.find('<').unwrap_or(text.len())];
    quick_xml::escape::unescape(text).unwrap_or(Cow::Borrowed(text))
}

/// Positive and negative zero compare equal, but are two values.
fn is_opposite_zero(a: StoredValue<'_>, b: StoredValue<'_>) -> bool {
    matches!((a, b), (StoredValue::Real(a), StoredValue::Real(b)) if a.is_sign_negative() != b.is_sign_negative())
}

fn cell_xml(sheet_xml: &SheetXml, at: CellAddress, encoded: &EncodedCell) -> String {
    let prefix = &sheet_xml.prefix;
    let style = if encoded.style == 0 { String::new() } else { format!(" s=\"{}\"", encoded.style) };
    let kind = encoded.cell_type.map_or(String::new(), |kind| format!(" t=\"{kind}\""));
    let content = &encoded.content;
    match content.is_empty() {
        true => format!("<{prefix}c r=\"{at}\"{style}/>"),
        false => format!("<{prefix}c r=\"{at}\"{style}{kind}>{content}</{prefix}c>"),
    }
}

/// Inserts cells into a row that does not have them, each at its place.
fn insert_cells(
    sheet_xml: &SheetXml,
    row: &RowXml,
    mut new: Vec<(u32, String)>,
    splices: &mut Splices,
) -> Result<(), WriteError> {
    if new.is_empty() {
        return Ok(());
    }
    new.sort();
    let there = sheet_xml.cells(row);
    if there.iter().any(|cell| cell.address_span().is_none()) {
        return Err(rejected("the row's cells have no references; save the file in a spreadsheet program"));
    }
    let Some(close) = &row.close else {
        let cells: String = new.into_iter().map(|(_, xml)| xml).collect();
        let prefix = &sheet_xml.prefix;
        // `<row r="5"/>` is two bytes shorter as `<row r="5">`.
        splices.replace(row.tag.end - 2..row.tag.end, format!(">{cells}</{prefix}row>"));
        return Ok(());
    };
    for (column, xml) in new {
        let next = there.iter().find(|cell| cell.address.column > column);
        splices.insert(next.map_or(close.start, |cell| cell.span().start), xml);
    }
    Ok(())
}

/// Adjusts ranges for a removed row; `None` if nothing changes.
fn shift_ranges_up(ranges: &str, gone: u32) -> Result<Option<String>, WriteError> {
    let mut moved = Vec::new();
    for text in ranges.split_whitespace() {
        let Some(mut range) = CellRange::parse(text) else {
            return Err(rejected(
                "rows would move, and the sheet has cell references that cannot be parsed; make this change in a spreadsheet program",
            ));
        };
        if range.spans_all_rows() {
            moved.push(text.to_owned());
            continue;
        }
        if range.first.row == gone && range.last.row == gone {
            return Err(rejected(
                "the row has a conditional format or a data validation of its own; make this change in a spreadsheet program",
            ));
        }
        range.last.row -= u32::from(range.last.row >= gone);
        range.first.row -= u32::from(range.first.row > gone);
        moved.push(range.to_string());
    }
    let moved = moved.join(" ");
    Ok((moved != ranges).then_some(moved))
}
