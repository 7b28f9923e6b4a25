//! The parts of a workbook that its sheets share: the list of sheets, the shared strings, and which styles show
//! dates.

use std::collections::HashMap;

use super::address::CellRange;
use super::budget::{Budget, SHEETS_MAX, error_with_help, invalid_file_error, too_large_error};
use super::references::{DefinedName, ExcelTable, ReferenceResolver};
use super::serial_date::{Epoch, NumberFormat, builtin_format, format_of_code};
use super::xml::{XmlEvent, XmlReader, unescape_text, utf8_text};
use super::zip::ZipArchive;
use crate::tables::ParseError;

pub(super) struct WorkbookParts {
    pub(super) sheets: Vec<SheetEntry>,
    pub(super) defined_names: Vec<DefinedName>,
    pub(super) references: ReferenceResolver,
    pub(super) shared_strings: Vec<Box<str>>,
    pub(super) styles: Styles,
}

/// A sheet as the workbook lists it.
pub(super) struct SheetEntry {
    pub(super) name: String,
    pub(super) kind: SheetKind,
    pub(super) is_hidden: bool,
}

pub(super) enum SheetKind {
    /// The name of its part, and the part's position in the archive.
    Cells(String, usize),
    /// A chart, a dialog, a macro sheet.
    Other,
}

#[derive(Default)]
pub(super) struct Styles {
    pub(super) epoch: Epoch,
    number_formats: Vec<NumberFormat>,
}

impl Styles {
    pub(super) fn number_format(&self, style: u32) -> NumberFormat {
        self.number_formats.get(style as usize).copied().unwrap_or(NumberFormat::Number)
    }
}

impl WorkbookParts {
    pub(super) fn open(archive: &ZipArchive<'_>, budget: &mut Budget) -> Result<Self, ParseError> {
        let roots = read_relationships(archive, "", budget)?;
        let workbook = roots.values().find(|one| one.kind == "officeDocument");
        let workbook = workbook.map_or("xl/workbook.xml", |one| one.target.as_str()).to_owned();
        if workbook.ends_with(".bin") {
            return Err(error_with_help(
                "the file is a binary workbook (XLSB)",
                "save it as an Excel workbook (`.xlsx`)",
            ));
        }
        let Some(at) = archive.find(&workbook) else {
            return Err(invalid_file_error("the file is a ZIP archive, but not a workbook"));
        };
        let relations = read_relationships(archive, &workbook, budget)?;
        let bytes = archive.read(at, budget)?;
        let mut book = Self {
            sheets: Vec::new(),
            defined_names: Vec::new(),
            references: ReferenceResolver::default(),
            shared_strings: Vec::new(),
            styles: Styles::default(),
        };
        book.parse_workbook(utf8_text(&bytes)?, &relations, archive, budget)?;
        let tables = book.read_tables(archive, budget)?;
        let sheets: Vec<&str> = book.sheets.iter().map(|sheet| sheet.name.as_str()).collect();
        book.references = ReferenceResolver::new(&sheets, &book.defined_names, tables);
        let part = |kind: &str| {
            let one = relations.values().find(|one| one.kind == kind)?;
            archive.find(&one.target)
        };
        if let Some(at) = part("styles") {
            let bytes = archive.read(at, budget)?;
            book.styles.number_formats = parse_styles(utf8_text(&bytes)?, budget)?;
        }
        if let Some(at) = part("sharedStrings") {
            let bytes = archive.read(at, budget)?;
            book.shared_strings = parse_shared_strings(utf8_text(&bytes)?, budget)?;
        }
        Ok(book)
    }

    /// The Excel tables of all sheets.
    fn read_tables(
        &self,
        archive: &ZipArchive<'_>,
        budget: &mut Budget,
    ) -> Result<Vec<ExcelTable>, ParseError> {
        let mut tables = Vec::new();
        for (sheet, entry) in self.sheets.iter().enumerate() {
            let SheetKind::Cells(part, _) = &entry.kind else { continue };
            for (id, one) in read_relationships(archive, part, budget)? {
                if let Some(at) = archive.find(&one.target).filter(|_| one.kind == "table") {
                    let bytes = archive.read(at, budget)?;
                    tables.extend(parse_table(utf8_text(&bytes)?, sheet, id, at, budget)?);
                }
            }
        }
        Ok(tables)
    }

    fn parse_workbook(
        &mut self,
        xml: &str,
        relations: &HashMap<String, Relationship>,
        archive: &ZipArchive<'_>,
        budget: &mut Budget,
    ) -> Result<(), ParseError> {
        let mut xml = XmlReader::new(xml);
        loop {
            let XmlEvent::Start { tag, is_empty } = (match xml.next(budget)? {
                XmlEvent::Eof => return Ok(()),
                node => node,
            }) else {
                continue;
            };
            match tag.name() {
                "workbookPr" if tag.is_true("date1904")? => self.styles.epoch = Epoch::Date1904,
                "sheet" => {
                    if self.sheets.len() == SHEETS_MAX {
                        return Err(too_large_error(format!(
                            "the workbook has more than {SHEETS_MAX} sheets"
                        )));
                    }
                    let name = tag.attribute("name")?.unwrap_or_default();
                    let id = tag.prefixed_attribute("id")?.unwrap_or_default();
                    let is_hidden = tag.attribute("state")?.is_some_and(|state| state != "visible");
                    let part = match relations.get(&id) {
                        Some(one) if one.kind == "worksheet" => {
                            let at = archive.find(&one.target);
                            let at =
                                at.ok_or_else(|| invalid_file_error("a sheet is missing from the file"))?;
                            SheetKind::Cells(one.target.clone(), at)
                        }
                        Some(_) => SheetKind::Other,
                        None => return Err(invalid_file_error("a sheet is missing from the file")),
                    };
                    self.sheets.push(SheetEntry { name, kind: part, is_hidden });
                }
                "definedName" if !is_empty => {
                    let name = tag.attribute("name")?.unwrap_or_default();
                    let mut formula = String::new();
                    xml.inner_text(&mut formula, budget)?;
                    self.defined_names.push(DefinedName { name, formula });
                }
                _ => {}
            }
        }
    }
}

/// The table in a table part; `None` if it has no valid range.
fn parse_table(
    xml: &str,
    sheet: usize,
    relationship: String,
    part: usize,
    budget: &mut Budget,
) -> Result<Option<ExcelTable>, ParseError> {
    let mut xml = XmlReader::new(xml);
    let mut table: Option<ExcelTable> = None;
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => return Ok(table),
            XmlEvent::Start { tag, .. } if tag.name() == "table" && table.is_none() => {
                let number = |name: &str, default: u32| {
                    let number = tag.attribute(name)?;
                    Ok::<u32, ParseError>(number.and_then(|number| number.parse().ok()).unwrap_or(default))
                };
                let range = tag.attribute("ref")?.and_then(|range| CellRange::parse(&range));
                let Some(range) = range else { return Ok(None) };
                let (headers, totals) = (number("headerRowCount", 1)?, number("totalsRowCount", 0)?);
                let mut header_and_rows = range;
                header_and_rows.last.row = range.last.row.saturating_sub(totals);
                let has_rows = headers == 1 && totals <= range.last.row - range.first.row;
                // Formulas use the display name.
                let name = tag.attribute("displayName")?.or(tag.attribute("name")?);
                table = Some(ExcelTable {
                    name: name.unwrap_or_default(),
                    sheet,
                    relationship: relationship.clone(),
                    range,
                    header_and_rows: has_rows.then_some(header_and_rows),
                    columns: Vec::new(),
                    calculated: Vec::new(),
                    part,
                });
            }
            XmlEvent::Start { tag, .. } if tag.name() == "tableColumn" => {
                if let Some(table) = &mut table {
                    table.columns.push(unescape_text(tag.attribute("name")?.unwrap_or_default()));
                    table.calculated.push(None);
                }
            }
            XmlEvent::Start { tag, is_empty: false } if tag.name() == "calculatedColumnFormula" => {
                let mut formula = String::new();
                xml.inner_text(&mut formula, budget)?;
                if let Some(last) = table.as_mut().and_then(|table| table.calculated.last_mut()) {
                    *last = Some(formula);
                }
            }
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}

/// A relationship from one part to another.
pub(super) struct Relationship {
    /// The last segment of its type.
    pub(super) kind: String,
    /// The name of the target part.
    pub(super) target: String,
}

/// Relationships by id. Empty if the part has none.
pub(super) fn read_relationships(
    archive: &ZipArchive<'_>,
    part: &str,
    budget: &mut Budget,
) -> Result<HashMap<String, Relationship>, ParseError> {
    let part = part.trim_start_matches('/');
    let (folder, file) = part.rsplit_once('/').unwrap_or(("", part));
    let rels =
        if folder.is_empty() { format!("_rels/{file}.rels") } else { format!("{folder}/_rels/{file}.rels") };
    let mut found = HashMap::new();
    let Some(at) = archive.find(&rels) else { return Ok(found) };
    let bytes = archive.read(at, budget)?;
    let mut xml = XmlReader::new(utf8_text(&bytes)?);
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => return Ok(found),
            XmlEvent::Start { tag, .. } if tag.name() == "Relationship" => {
                let is_outside = tag.attribute("TargetMode")?.is_some_and(|mode| mode == "External");
                let (id, kind, target) =
                    (tag.attribute("Id")?, tag.attribute("Type")?, tag.attribute("Target")?);
                if let (Some(id), Some(kind), Some(target), false) = (id, kind, target, is_outside) {
                    let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
                    found.insert(id, Relationship { kind, target: resolve_target(folder, &target) });
                }
            }
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}

/// Resolves a part name that a part in `folder` uses. `..` cannot leave the archive.
fn resolve_target(folder: &str, target: &str) -> String {
    let mut segments: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => folder.split('/').filter(|one| !one.is_empty()).collect(),
    };
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            name => segments.push(name),
        }
    }
    segments.join("/")
}

/// How each cell style shows a number.
fn parse_styles(xml: &str, budget: &mut Budget) -> Result<Vec<NumberFormat>, ParseError> {
    let mut xml = XmlReader::new(xml);
    let mut codes: HashMap<u32, NumberFormat> = HashMap::new();
    let mut ids = Vec::new();
    let mut in_cell_styles = None;
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => break,
            XmlEvent::Start { tag, is_empty } => {
                let id =
                    || Ok::<_, ParseError>(tag.attribute("numFmtId")?.and_then(|id| id.parse::<u32>().ok()));
                match tag.name() {
                    "numFmt" => {
                        if let (Some(id), Some(code)) = (id()?, tag.attribute("formatCode")?) {
                            codes.entry(id).or_insert_with(|| format_of_code(&code));
                        }
                    }
                    "cellXfs" if !is_empty => in_cell_styles = Some(xml.depth()),
                    "xf" if in_cell_styles.is_some() => ids.push(id()?.unwrap_or(0)),
                    _ => {}
                }
            }
            XmlEvent::End if in_cell_styles.is_some_and(|depth| xml.depth() < depth) => in_cell_styles = None,
            XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
    Ok(ids.into_iter().map(|id| codes.get(&id).copied().unwrap_or_else(|| builtin_format(id))).collect())
}

fn parse_shared_strings(xml: &str, budget: &mut Budget) -> Result<Vec<Box<str>>, ParseError> {
    let mut xml = XmlReader::new(xml);
    let mut texts = Vec::new();
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => return Ok(texts),
            XmlEvent::Start { tag, is_empty } if tag.name() == "si" => {
                budget.charge_cells(1)?;
                let text = if is_empty { String::new() } else { read_rich_text(&mut xml, budget)? };
                texts.push(text.into_boxed_str());
            }
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}

/// The text of the element that was opened: its runs joined, without phonetic text.
pub(super) fn read_rich_text(xml: &mut XmlReader<'_>, budget: &mut Budget) -> Result<String, ParseError> {
    let inside = xml.depth();
    let mut out = String::new();
    loop {
        match xml.next(budget)? {
            XmlEvent::Start { tag, is_empty: false } => match tag.name() {
                "rPh" => xml.skip(budget)?,
                "t" => {
                    let keeps = tag.attribute("xml:space")?.is_some_and(|space| space == "preserve");
                    let mut run = String::new();
                    xml.inner_text(&mut run, budget)?;
                    // Spreadsheet programs trim a text unless it says to preserve whitespace.
                    out.push_str(if keeps { &run } else { run.trim_matches([' ', '\t', '\n', '\r']) });
                }
                _ => {}
            },
            XmlEvent::End if xml.depth() < inside => return Ok(unescape_text(out)),
            XmlEvent::Eof => return Ok(unescape_text(out)),
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}
