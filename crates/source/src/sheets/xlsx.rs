//! XLSX: a ZIP package of XML parts.

use contract::source::{SkippedTable, WriteError};

use super::address::CellAddress;
use super::budget::{Budget, invalid_file_error};
use super::sheet::{Sheet, read_sheet};
use super::stale::StaleCells;
use super::workbook::{SheetKind, WorkbookParts};
use super::writer::{SheetWriter, parse_to_write_error};
use super::xml::utf8_text;
use super::zip::ZipArchive;
use super::{Options, cfb};
use crate::tables::{ParseError, ParsedFile, RowEdit, Table};

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<ParsedFile, ParseError> {
    let archive = open_archive(bytes, budget)?;
    let book = WorkbookParts::open(&archive, budget)?;
    let mut parsed = ParsedFile::default();
    let mut changed = Vec::new();
    let mut layouts = Vec::new();
    for (sheet_index, part) in book.sheets.iter().enumerate() {
        let name = &part.name;
        let mut skip =
            |reason: String| parsed.skipped_tables.push(SkippedTable { table: name.clone(), reason });
        let SheetKind::Cells(_, at) = &part.kind else {
            skip("it is a chart or a macro sheet, without cells".into());
            continue;
        };
        if part.is_hidden {
            skip("it is hidden in the workbook".into());
            continue;
        }
        let bytes = archive.read(*at, budget)?;
        let sheet = load_sheet(&book, sheet_index, utf8_text(&bytes)?, budget)?;
        if sheet.needs_recalculation {
            changed.push(sheet_index);
        }
        match sheet.grid.find_table(&book.shared_strings, options.layout_of(name)) {
            Ok(layout) => {
                let (mut table, notes) =
                    sheet.grid.build_table(name, &layout, &book.shared_strings, budget)?;
                if sheet.is_protected {
                    table.read_only_reason =
                        Some("the sheet is protected; unprotect it in a spreadsheet program".into());
                }
                parsed.tables.push(table);
                parsed.notes.extend(notes);
                layouts.push((sheet_index, layout.columns));
            }
            Err(reason) => skip(reason),
        }
    }
    if !changed.is_empty() {
        let stale = StaleCells::find(&archive, &book, &changed, budget)?;
        for (table, (sheet_index, columns)) in parsed.tables.iter_mut().zip(&layouts) {
            invalidate_stale(table, stale.positions(*sheet_index, table.row_numbers(), columns), columns);
            parsed.notes.extend(table.notice.as_deref().map(str::to_owned));
        }
    }
    Ok(parsed)
}

/// Invalidates stale values, and says so in the table's notice.
fn invalidate_stale(table: &mut Table, cells: Vec<(u32, usize)>, columns: &[u32]) {
    let Some((row, column)) = cells.first() else { return };
    let first = CellAddress { row: table.row_numbers()[*row as usize], column: columns[*column] };
    let cells_text = match cells.len() {
        1 => format!(
            "{first} on `{}` is null until a spreadsheet program recalculates the workbook: its formula",
            table.name
        ),
        count => format!(
            "{count} cells on `{}` ({first} first) are null until a spreadsheet program recalculates the workbook: \
             their formulas",
            table.name
        ),
    };
    let notice = format!("{cells_text} may depend on cells that were written since it was last calculated");
    table.notice = Some(notice.into());
    table.invalidate(cells);
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
        let SheetKind::Cells(_, part_position) = &part.kind else { continue };
        let bytes = archive.read(*part_position, budget).map_err(parse_to_write_error)?;
        let text = utf8_text(&bytes).map_err(parse_to_write_error)?;
        let sheet = load_sheet(&book, at, text, budget).map_err(parse_to_write_error)?;
        let declared = options.layout_of(&part.name);
        let Ok(layout) = sheet.grid.find_table(&book.shared_strings, declared) else { continue };
        if tables == table {
            let writer = SheetWriter {
                archive: &archive,
                book: &book,
                sheet_index: at,
                xml: text,
                sheet: &sheet,
                layout: &layout,
            };
            let new = writer.rewrite(edit, budget)?;
            let mark = &bytes[..bytes.len() - text.len()];
            return Ok(archive.replace_part(*part_position, &[mark, new.as_bytes()].concat()));
        }
        tables += 1;
    }
    Err(WriteError::NotFound)
}

fn open_archive<'a>(bytes: &'a [u8], budget: &mut Budget) -> Result<ZipArchive<'a>, ParseError> {
    if cfb::is_compound_file(bytes) {
        // A workbook with a password is inside a compound file; so is an XLS workbook.
        return Err(match cfb::CompoundFile::open(bytes, budget) {
            Ok(container) if container.has("EncryptedPackage") => super::zip::password_error(),
            _ => invalid_file_error("the file is an old workbook (XLS) under another name"),
        });
    }
    ZipArchive::open(bytes, budget)
}

fn load_sheet(
    book: &WorkbookParts,
    sheet_index: usize,
    text: &str,
    budget: &mut Budget,
) -> Result<Sheet, ParseError> {
    let mut sheet = read_sheet(text, sheet_index, book, budget)?;
    if let [id] = sheet.table_relationships.as_slice() {
        let table = book.references.tables_of(sheet_index).find(|table| table.relationship == *id);
        sheet.grid.table_range = table.and_then(|table| table.header_and_rows);
    }
    Ok(sheet)
}
