//! XLSX: a ZIP package of XML parts.

use contract::manifest::Operation;
use contract::source::{SkippedTable, WriteError};

use super::address::CellAddress;
use super::budget::{Budget, invalid_file_error};
use super::excel_table::GrowableTable;
use super::grid::TableLayout;
use super::sheet::{Sheet, read_sheet};
use super::stale::StaleCells;
use super::workbook::{SheetKind, WorkbookParts};
use super::writer::{SheetWriter, formula_above_reason, parse_to_write_error};
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
    // Formulas that a write has added, by table: no program has computed them yet.
    let mut uncomputed = Vec::new();
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
        let text = utf8_text(&bytes)?;
        let sheet = load_sheet(&book, sheet_index, text, budget)?;
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
                } else if archive.has_part_under("_xmlsignatures/") {
                    table.read_only_reason =
                        Some("the workbook is signed, and a change would break the signature".into());
                }
                table.refused_operations =
                    refused_operations(&archive, &book, sheet_index, text, &sheet, &layout, budget)?;
                let can_grow =
                    table.refused_operations.iter().all(|(refused, _)| *refused != Operation::Create);
                if can_grow && !sheet.table_relationships.is_empty() {
                    // A new row of an Excel table gets the formulas of its columns, and no values for them.
                    table.may_be_outdated = sheet.grid.formula_columns(&layout);
                }
                if sheet.needs_recalculation {
                    uncomputed.push(sheet.grid.uncomputed_cells(&layout));
                } else {
                    uncomputed.push(Vec::new());
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
        for ((table, (sheet_index, columns)), mut new) in
            parsed.tables.iter_mut().zip(&layouts).zip(uncomputed)
        {
            let mut cells = stale.positions(*sheet_index, table.row_numbers(), columns);
            cells.append(&mut new);
            cells.sort_unstable();
            cells.dedup();
            invalidate_stale(table, cells, columns);
            parsed.notes.extend(table.notice.as_deref().map(str::to_owned));
        }
    }
    Ok(parsed)
}

/// The writing operations that the sheet refuses whatever the row is, each with the reason.
fn refused_operations(
    archive: &ZipArchive<'_>,
    book: &WorkbookParts,
    sheet_index: usize,
    xml: &str,
    sheet: &Sheet,
    layout: &TableLayout,
    budget: &mut Budget,
) -> Result<Vec<(Operation, String)>, ParseError> {
    let growable = GrowableTable::find(archive, book, sheet_index, xml, sheet, layout, budget)?;
    let create = match growable {
        Ok(Some(table)) => table.formulas().err(),
        Ok(None) => sheet.grid.formula_in_last_row(layout).map(formula_above_reason),
        Err(reason) => Some(reason),
    };
    let delete = if !sheet.table_relationships.is_empty() {
        Some("the sheet has an Excel table that would have to shrink".to_owned())
    } else if let Some(address) = sheet.grid.first_formula() {
        Some(format!("rows would move, and {address} has a formula"))
    } else if archive.has_part_under("xl/charts/") || archive.has_part_under("xl/pivotcache/") {
        Some("rows would move, and a chart or a pivot table may refer to them".to_owned())
    } else {
        None
    };
    let refused = [(Operation::Create, create), (Operation::Delete, delete)];
    Ok(refused.into_iter().filter_map(|(operation, reason)| Some((operation, reason?))).collect())
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
            let changed = writer.rewrite(edit, budget)?;
            let mark = &bytes[..bytes.len() - text.len()];
            let sheet_xml = [mark, changed.sheet_xml.as_bytes()].concat();
            let new = archive.replace_part(*part_position, &sheet_xml);
            let Some((table_part, content)) = changed.table_part else { return Ok(new) };
            // The parts keep their order.
            let archive = open_archive(&new, budget).map_err(parse_to_write_error)?;
            return Ok(archive.replace_part(table_part, &content));
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
