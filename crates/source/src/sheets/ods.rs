//! ODS: one XML part contains all the sheets. Read only.
//!
//! A cell or row can claim to be repeated a million times. Empty ones are only counted; every copy of the others is
//! charged to the budget.

use std::collections::HashSet;

use contract::source::SkippedTable;
use spile_core::calendar::Temporal;

use super::Options;
use super::address::{COLUMNS_MAX, ROWS_MAX};
use super::budget::{Budget, SHEETS_MAX, invalid_file_error, too_large_error};
use super::grid::{CellValue, Grid, GridCell, GridRow};
use super::xml::{StartTag, XmlEvent, XmlReader, utf8_text};
use super::zip::{ZipArchive, password_error};
use crate::tables::{ParseError, ParsedFile};

/// The most spaces that one element may stand for.
const BLANKS_MAX: usize = 32_767;

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<ParsedFile, ParseError> {
    let archive = ZipArchive::open(bytes, budget)?;
    if let Some(at) = archive.find("META-INF/manifest.xml") {
        let manifest = archive.read(at, budget)?;
        if utf8_text(&manifest)?.contains(":encryption-data") {
            return Err(password_error());
        }
    }
    let at =
        archive.find("content.xml").ok_or_else(|| invalid_file_error("the file is not an ODS workbook"))?;
    let content = archive.read(at, budget)?;
    let mut reader =
        OdsReader { xml: XmlReader::new(utf8_text(&content)?), budget, hidden_styles: HashSet::new() };
    let mut parsed = ParsedFile::default();
    for sheet in reader.read_sheets()? {
        let mut skip =
            |reason: String| parsed.skipped_tables.push(SkippedTable { table: sheet.name.clone(), reason });
        if sheet.is_hidden {
            skip("it is hidden in the workbook".into());
            continue;
        }
        match sheet.grid.find_table(&[], options.layout_of(&sheet.name)) {
            Ok(layout) => {
                let (table, notes) = sheet.grid.build_table(&sheet.name, &layout, &[], reader.budget)?;
                parsed.tables.push(table);
                parsed.notes.extend(notes);
            }
            Err(reason) => skip(reason),
        }
    }
    Ok(parsed)
}

struct OdsSheet {
    name: String,
    is_hidden: bool,
    grid: Grid,
}

struct OdsReader<'a, 'b> {
    xml: XmlReader<'a>,
    budget: &'b mut Budget,
    /// Styles of hidden sheets.
    hidden_styles: HashSet<String>,
}

impl OdsReader<'_, '_> {
    fn read_sheets(&mut self) -> Result<Vec<OdsSheet>, ParseError> {
        let mut sheets = Vec::new();
        let mut style = String::new();
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Eof => return Ok(sheets),
                XmlEvent::Start { tag, is_empty } => match tag.name() {
                    "style" => style = tag.attribute("style:name")?.unwrap_or_default(),
                    "table-properties"
                        if tag.attribute("table:display")?.is_some_and(|shown| shown == "false") =>
                    {
                        self.hidden_styles.insert(style.clone());
                    }
                    "table" => {
                        if sheets.len() == SHEETS_MAX {
                            return Err(too_large_error(format!(
                                "the workbook has more than {SHEETS_MAX} sheets"
                            )));
                        }
                        let name = tag.attribute("table:name")?.unwrap_or_default();
                        let its_style = tag.attribute("table:style-name")?.unwrap_or_default();
                        let is_hidden = self.hidden_styles.contains(&its_style);
                        let grid = if is_empty { Grid::default() } else { self.read_grid()? };
                        sheets.push(OdsSheet { name, is_hidden, grid });
                    }
                    // The history of changes, not the contents.
                    "tracked-changes" if !is_empty => self.xml.skip(self.budget)?,
                    _ => {}
                },
                XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    fn read_grid(&mut self) -> Result<Grid, ParseError> {
        let inside = self.xml.depth();
        let mut grid = Grid::default();
        let mut number = 1_u32;
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Start { tag, is_empty } => match tag.name() {
                    "table-row" => {
                        let times = repeat_count(&tag, "table:number-rows-repeated")?;
                        let cells = if is_empty { Vec::new() } else { self.read_row()? };
                        if !cells.is_empty() {
                            if number.saturating_add(times - 1) > ROWS_MAX {
                                return Err(invalid_file_error(
                                    "a sheet has more rows than a sheet can have",
                                ));
                            }
                            self.push_repeated_rows(&mut grid, number, times, cells)?;
                        }
                        number = number.saturating_add(times);
                    }
                    // Rows may be inside of groups.
                    "table-row-group" | "table-rows" | "table-header-rows" => {}
                    _ if !is_empty => self.xml.skip(self.budget)?,
                    _ => {}
                },
                XmlEvent::End if self.xml.depth() < inside => return Ok(grid),
                XmlEvent::Eof => return Ok(grid),
                XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    /// Adds the same row `times` times.
    fn push_repeated_rows(
        &mut self,
        grid: &mut Grid,
        number: u32,
        times: u32,
        cells: Vec<GridCell>,
    ) -> Result<(), ParseError> {
        let texts: usize = cells.iter().map(|cell| text_bytes(&cell.value)).sum();
        let more = times as usize - 1;
        self.budget.charge_cells(cells.len().saturating_mul(more))?;
        self.budget.charge_text(texts.saturating_mul(more))?;
        for at in 1..times {
            self.budget.step()?;
            let copy = |cell: &GridCell| GridCell { value: cell.value.clone(), ..*cell };
            let cells = cells.iter().map(copy).collect();
            grid.rows.push(GridRow { number: number + at - 1, cells });
        }
        grid.rows.push(GridRow { number: number + times - 1, cells });
        Ok(())
    }

    fn read_row(&mut self) -> Result<Vec<GridCell>, ParseError> {
        let inside = self.xml.depth();
        let mut cells = Vec::new();
        let mut column = 0_u32;
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Start { tag, is_empty } => {
                    let is_cell = tag.name() == "table-cell";
                    if !is_cell && tag.name() != "covered-table-cell" {
                        if !is_empty {
                            self.xml.skip(self.budget)?;
                        }
                        continue;
                    }
                    let times = repeat_count(&tag, "table:number-columns-repeated")?;
                    let is_formula = tag.attribute("table:formula")?.is_some();
                    let value = self.read_value(&tag, is_empty)?;
                    let value = value.or(is_formula.then_some(CellValue::Uncomputed)).filter(|_| is_cell);
                    if let Some(value) = value {
                        if column.saturating_add(times) > COLUMNS_MAX {
                            return Err(invalid_file_error("a sheet has more columns than a sheet can have"));
                        }
                        self.budget.charge_cells(times as usize)?;
                        self.budget.charge_text(text_bytes(&value).saturating_mul(times as usize))?;
                        for at in 0..times {
                            cells.push(GridCell { column: column + at, is_formula, value: value.clone() });
                        }
                    }
                    column = column.saturating_add(times);
                }
                XmlEvent::End if self.xml.depth() < inside => return Ok(cells),
                XmlEvent::Eof => return Ok(cells),
                XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    fn read_value(&mut self, tag: &StartTag<'_>, is_empty: bool) -> Result<Option<CellValue>, ParseError> {
        let shown = if is_empty { None } else { self.read_cell_text()? };
        let damaged = || invalid_file_error("a cell of the workbook is damaged");
        let is_error = tag.attribute("calcext:value-type")?.is_some_and(|kind| kind == "error");
        let Some(kind) = tag.attribute("office:value-type")? else {
            return Ok(shown.map(|text| CellValue::Text(text.into_boxed_str())));
        };
        // LibreOffice saves the truth values of a workbook from Excel as numbers with such a formula.
        let constant = tag.attribute("table:formula")?.and_then(|formula| match formula.as_str() {
            "of:=TRUE()" => Some(true),
            "of:=FALSE()" => Some(false),
            _ => None,
        });
        Ok(Some(match kind.as_str() {
            _ if is_error => CellValue::Error,
            "float" if constant.is_some() => CellValue::Boolean(constant == Some(true)),
            "float" | "percentage" | "currency" => {
                let text = tag.attribute("office:value")?.ok_or_else(damaged)?;
                let is_number = text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
                let n = text.parse::<f64>().ok().filter(|n| is_number && n.is_finite());
                CellValue::Number(n.ok_or_else(damaged)?)
            }
            "date" => {
                let text = tag.attribute("office:date-value")?.ok_or_else(damaged)?;
                let moment = Temporal::parse(text.as_bytes()).and_then(Temporal::local);
                let text = text.into_boxed_str();
                if moment.is_some() { CellValue::DateTime(text) } else { CellValue::Text(text) }
            }
            "time" => {
                let text = tag.attribute("office:time-value")?.ok_or_else(damaged)?;
                match parse_duration(&text) {
                    Some(clock) => CellValue::DateTime(clock.into_boxed_str()),
                    None => CellValue::Text(text.into_boxed_str()),
                }
            }
            "boolean" => match tag.attribute("office:boolean-value")?.as_deref() {
                Some("true") => CellValue::Boolean(true),
                Some("false") => CellValue::Boolean(false),
                _ => return Err(damaged()),
            },
            "string" => {
                let text = tag.attribute("office:string-value")?.or(shown).unwrap_or_default();
                CellValue::Text(text.into_boxed_str())
            }
            _ => return Err(damaged()),
        }))
    }

    /// The visible text of the cell that was opened: its paragraphs, without comments and pictures.
    fn read_cell_text(&mut self) -> Result<Option<String>, ParseError> {
        let inside = self.xml.depth();
        let mut out: Option<String> = None;
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Start { tag, is_empty } if tag.name() == "p" => {
                    let text = out.take().map_or(String::new(), |before| before + "\n");
                    out = Some(if is_empty { text } else { self.read_paragraph(text)? });
                }
                XmlEvent::Start { is_empty: false, .. } => self.xml.skip(self.budget)?,
                XmlEvent::End if self.xml.depth() < inside => return Ok(out),
                XmlEvent::Eof => return Ok(out),
                XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
            }
        }
    }

    fn read_paragraph(&mut self, mut out: String) -> Result<String, ParseError> {
        let inside = self.xml.depth();
        let start = out.len();
        // XML whitespace collapses, and is dropped at the start; spaces that count have an element of their own.
        let mut after_blank = true;
        loop {
            match self.xml.next(self.budget)? {
                XmlEvent::Text(text) => {
                    self.budget.charge_text(text.len())?;
                    for c in text.chars() {
                        let is_blank = matches!(c, ' ' | '\t' | '\n' | '\r');
                        match (is_blank, after_blank) {
                            (true, true) => {}
                            (true, false) => out.push(' '),
                            (false, _) => out.push(c),
                        }
                        after_blank = is_blank;
                    }
                }
                XmlEvent::Start { tag, is_empty } => match tag.name() {
                    "s" => {
                        let count = tag.attribute("text:c")?.map_or(Some(1), |count| count.parse().ok());
                        let count = count.filter(|count| *count <= BLANKS_MAX);
                        let count =
                            count.ok_or_else(|| invalid_file_error("a cell of the workbook is damaged"))?;
                        self.budget.charge_text(count)?;
                        out.extend(std::iter::repeat_n(' ', count));
                        after_blank = false;
                    }
                    "tab" => out.push('\t'),
                    "line-break" => out.push('\n'),
                    "note" | "annotation" | "ruby-text" if !is_empty => self.xml.skip(self.budget)?,
                    _ => {}
                },
                XmlEvent::End if self.xml.depth() < inside => break,
                XmlEvent::Eof => break,
                XmlEvent::End => {}
            }
        }
        if after_blank && out.len() > start && out.ends_with(' ') {
            out.pop();
        }
        Ok(out)
    }
}

fn text_bytes(value: &CellValue) -> usize {
    match value {
        CellValue::Text(text) | CellValue::DateTime(text) => text.len(),
        CellValue::SharedString(_)
        | CellValue::Number(_)
        | CellValue::Boolean(_)
        | CellValue::Error
        | CellValue::Uncomputed => 0,
    }
}

/// How often a cell or row is repeated.
fn repeat_count(tag: &StartTag<'_>, name: &str) -> Result<u32, ParseError> {
    let times = tag.attribute(name)?.map_or(Some(1), |times| times.parse::<u32>().ok());
    times.filter(|times| *times > 0).ok_or_else(|| invalid_file_error("a cell of the workbook is damaged"))
}

/// `PT12H30M15.5S` as `12:30:15.5`.
fn parse_duration(text: &str) -> Option<String> {
    let rest = text.strip_prefix("PT")?;
    let (hours, rest) = rest.split_once('H')?;
    let (minutes, rest) = rest.split_once('M')?;
    let seconds = rest.strip_suffix('S')?;
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()));
    let (hours, minutes, whole) = (number(hours)?, number(minutes)?, number(whole)?);
    if minutes > 59 || whole > 59 || !fraction.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{hours:02}:{minutes:02}:{whole:02}{point}{fraction}"))
}
