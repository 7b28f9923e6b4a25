//! XLSX: a package of XML parts. Read as it stands, and written one part at a time.

use contract::source::{SkippedTable, WriteError};

use super::address::CellRange;
use super::budget::{Budget, invalid_file_error};
use super::sheet::{Sheet, read_sheet};
use super::workbook::{SheetKind, WorkbookParts, read_relationships};
use super::writer::{SheetWriter, parse_to_write_error};
use super::xml::{XmlEvent, XmlReader, utf8_text};
use super::zip::ZipArchive;
use super::{Options, cfb};
use crate::tables::{ParseError, ParsedFile, RowEdit};

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<ParsedFile, ParseError> {
    let archive = open_archive(bytes, budget)?;
    let book = WorkbookParts::open(&archive, budget)?;
    let mut loaded = ParsedFile::default();
    let (mut stale, mut computed) = (Vec::new(), Vec::new());
    for part in &book.sheets {
        let name = &part.name;
        let mut leave_out =
            |why: String| loaded.skipped_tables.push(SkippedTable { table: name.clone(), reason: why });
        let SheetKind::Cells(target, at) = &part.kind else {
            leave_out("it is a chart or a macro, and has no cells".into());
            continue;
        };
        if part.is_hidden {
            leave_out("it is hidden in the workbook".into());
            continue;
        }
        let bytes = archive.read(*at, budget)?;
        let sheet = load_sheet(&archive, &book, target, utf8_text(&bytes)?, budget)?;
        match sheet.grid.find_table(&book.shared_strings, options.header_row_for(name)) {
            Ok(layout) => {
                let (mut table, notes) =
                    sheet.grid.build_table(name, &layout, &book.shared_strings, budget)?;
                if sheet.is_protected {
                    table.read_only_reason =
                        Some("the sheet is protected; unprotect it in a spreadsheet program".into());
                }
                loaded.tables.push(table);
                loaded.notes.extend(notes);
            }
            Err(why) => leave_out(why),
        }
        if sheet.needs_recalculation {
            stale.push(name);
        }
        if sheet.grid.rows.iter().any(|row| row.cells.iter().any(|cell| cell.is_formula)) {
            computed.push(name);
        }
    }
    for name in stale {
        let others: Vec<String> =
            computed.iter().filter(|one| **one != name).map(|one| format!("`{one}`")).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(", on {} too,", others.join(", ")),
        };
        loaded.notes.push(format!(
            "values were written to `{name}`, and formulas that look at it{others} are as old as the last time a \
             spreadsheet program saved the file"
        ));
    }
    Ok(loaded)
}

pub(super) fn rewrite(
    bytes: &[u8],
    options: &Options,
    table: usize,
    edit: &RowEdit<'_>,
    budget: &mut Budget,
) -> Result<Vec<u8>, WriteError> {
    let archive = open_archive(bytes, budget).map_err(parse_to_write_error)?;
    let book = WorkbookParts::open(&archive, budget).map_err(parse_to_write_error)?;
    let mut tables = 0;
    for (at, part) in book.sheets.iter().enumerate().filter(|(_, part)| !part.is_hidden) {
        let SheetKind::Cells(target, place) = &part.kind else { continue };
        let bytes = archive.read(*place, budget).map_err(parse_to_write_error)?;
        let text = utf8_text(&bytes).map_err(parse_to_write_error)?;
        let sheet = load_sheet(&archive, &book, target, text, budget).map_err(parse_to_write_error)?;
        let header_row = options.header_row_for(&part.name);
        let Ok(layout) = sheet.grid.find_table(&book.shared_strings, header_row) else { continue };
        if tables == table {
            let writing = SheetWriter {
                archive: &archive,
                book: &book,
                sheet_index: at,
                xml: text,
                sheet: &sheet,
                layout: &layout,
            };
            let new = writing.rewrite(edit, budget)?;
            let mark = &bytes[..bytes.len() - text.len()];
            return Ok(archive.replace_part(*place, &[mark, new.as_bytes()].concat()));
        }
        tables += 1;
    }
    Err(WriteError::NotFound)
}

fn open_archive<'a>(bytes: &'a [u8], budget: &mut Budget) -> Result<ZipArchive<'a>, ParseError> {
    if cfb::is_compound_file(bytes) {
        // A workbook with a password is packed into another kind of container; so is an old one.
        return Err(match cfb::CompoundFile::open(bytes, budget) {
            Ok(container) if container.has("EncryptedPackage") => super::zip::password_error(),
            _ => invalid_file_error("the file is an old workbook (XLS) under another name"),
        });
    }
    ZipArchive::open(bytes, budget)
}

fn load_sheet(
    archive: &ZipArchive<'_>,
    book: &WorkbookParts,
    part: &str,
    text: &str,
    budget: &mut Budget,
) -> Result<Sheet, ParseError> {
    let mut sheet = read_sheet(text, book, budget)?;
    if let [id] = sheet.table_relationships.as_slice() {
        let relations = read_relationships(archive, part, budget)?;
        let place = relations.get(id).and_then(|one| archive.find(&one.target));
        if let Some(at) = place {
            let bytes = archive.read(at, budget)?;
            sheet.grid.table_range = table_range(utf8_text(&bytes)?, budget)?;
        }
    }
    Ok(sheet)
}

/// The rows and columns of a table, without its totals. A table without a header is none of ours.
fn table_range(xml: &str, budget: &mut Budget) -> Result<Option<CellRange>, ParseError> {
    let mut xml = XmlReader::new(xml);
    loop {
        match xml.next(budget)? {
            XmlEvent::Eof => return Ok(None),
            XmlEvent::Start { tag, .. } if tag.name() == "table" => {
                let number = |name: &str, default: u32| {
                    let number = tag.attribute(name)?;
                    Ok::<u32, ParseError>(number.and_then(|number| number.parse().ok()).unwrap_or(default))
                };
                let area = tag.attribute("ref")?.and_then(|area| CellRange::parse(&area));
                let (headers, totals) = (number("headerRowCount", 1)?, number("totalsRowCount", 0)?);
                return Ok(area.filter(|area| headers == 1 && totals <= area.last.row - area.first.row).map(
                    |mut area| {
                        area.last.row -= totals;
                        area
                    },
                ));
            }
            XmlEvent::Start { .. } | XmlEvent::End | XmlEvent::Text(_) => {}
        }
    }
}
