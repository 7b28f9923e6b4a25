//! XLSX: a package of XML parts. Read as it stands, and written one part at a time.

use contract::source::{LeftOut, WriteFault};

use super::book::{Book, SheetKind, relations};
use super::budget::{Budget, broken};
use super::place::Area;
use super::sheet::{Sheet, read};
use super::write::{Writing, unreadable};
use super::xml::{Node, Xml, text};
use super::zip::Archive;
use super::{Options, cfb};
use crate::rows::{Edit, Loaded, Unreadable};

pub(super) fn load(bytes: &[u8], options: &Options, budget: &mut Budget) -> Result<Loaded, Unreadable> {
    let archive = open(bytes, budget)?;
    let book = Book::open(&archive, budget)?;
    let mut loaded = Loaded::default();
    let (mut stale, mut computed) = (Vec::new(), Vec::new());
    for part in &book.sheets {
        let name = &part.name;
        let mut leave_out = |why: String| loaded.left_out.push(LeftOut { table: name.clone(), why });
        let SheetKind::Cells(target, at) = &part.part else {
            leave_out("it is a chart or a macro, and has no cells".into());
            continue;
        };
        if part.is_hidden {
            leave_out("it is hidden in the workbook".into());
            continue;
        }
        let bytes = archive.read(*at, budget)?;
        let sheet = sheet(&archive, &book, target, text(&bytes)?, budget)?;
        match sheet.grid.layout(&book.texts, options.header_row_of(name)) {
            Ok(layout) => {
                let (mut table, notes) = sheet.grid.table(name, &layout, &book.texts, budget)?;
                if sheet.is_protected {
                    table.read_only =
                        Some("the sheet is protected; unprotect it in a spreadsheet program".into());
                }
                loaded.tables.push(table);
                loaded.notes.extend(notes);
            }
            Err(why) => leave_out(why),
        }
        if sheet.is_stale {
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
    edit: &Edit<'_>,
    budget: &mut Budget,
) -> Result<Vec<u8>, WriteFault> {
    let archive = open(bytes, budget).map_err(unreadable)?;
    let book = Book::open(&archive, budget).map_err(unreadable)?;
    let mut tables = 0;
    for (at, part) in book.sheets.iter().enumerate().filter(|(_, part)| !part.is_hidden) {
        let SheetKind::Cells(target, place) = &part.part else { continue };
        let bytes = archive.read(*place, budget).map_err(unreadable)?;
        let text = text(&bytes).map_err(unreadable)?;
        let sheet = sheet(&archive, &book, target, text, budget).map_err(unreadable)?;
        let header_row = options.header_row_of(&part.name);
        let Ok(layout) = sheet.grid.layout(&book.texts, header_row) else { continue };
        if tables == table {
            let writing =
                Writing { archive: &archive, book: &book, at, text, sheet: &sheet, layout: &layout };
            let new = writing.rewritten(edit, budget)?;
            let mark = &bytes[..bytes.len() - text.len()];
            return Ok(archive.replaced(*place, &[mark, new.as_bytes()].concat()));
        }
        tables += 1;
    }
    Err(WriteFault::NotFound)
}

fn open<'a>(bytes: &'a [u8], budget: &mut Budget) -> Result<Archive<'a>, Unreadable> {
    if cfb::is_one(bytes) {
        // A workbook with a password is packed into another kind of container; so is an old one.
        return Err(match cfb::Container::open(bytes, budget) {
            Ok(container) if container.has("EncryptedPackage") => super::zip::locked(),
            _ => broken("the file is an old workbook (XLS) under another name"),
        });
    }
    Archive::open(bytes, budget)
}

fn sheet(
    archive: &Archive<'_>,
    book: &Book,
    part: &str,
    text: &str,
    budget: &mut Budget,
) -> Result<Sheet, Unreadable> {
    let mut sheet = read(text, book, budget)?;
    if let [id] = sheet.tables.as_slice() {
        let relations = relations(archive, part, budget)?;
        let place = relations.get(id).and_then(|one| archive.find(&one.target));
        if let Some(at) = place {
            let bytes = archive.read(at, budget)?;
            sheet.grid.region = region(super::xml::text(&bytes)?, budget)?;
        }
    }
    Ok(sheet)
}

/// The rows and columns of a table, without its totals. A table without a header is none of ours.
fn region(xml: &str, budget: &mut Budget) -> Result<Option<Area>, Unreadable> {
    let mut xml = Xml::new(xml);
    loop {
        match xml.next(budget)? {
            Node::Eof => return Ok(None),
            Node::Start { tag, .. } if tag.name() == "table" => {
                let number = |name: &str, default: u32| {
                    let number = tag.attribute(name)?;
                    Ok::<u32, Unreadable>(number.and_then(|number| number.parse().ok()).unwrap_or(default))
                };
                let area = tag.attribute("ref")?.and_then(|area| Area::parse(&area));
                let (headers, totals) = (number("headerRowCount", 1)?, number("totalsRowCount", 0)?);
                return Ok(area.filter(|area| headers == 1 && totals <= area.last.row - area.first.row).map(
                    |mut area| {
                        area.last.row -= totals;
                        area
                    },
                ));
            }
            Node::Start { .. } | Node::End | Node::Text(_) => {}
        }
    }
}
