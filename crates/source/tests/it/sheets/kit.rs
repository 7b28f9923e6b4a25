//! Workbooks of a few sheets, built part by part.

use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const RELS: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
const DOC: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

#[derive(Clone, Copy)]
pub enum CellContent<'a> {
    Empty,
    Text(&'a str),
    Number(&'a str),
    Boolean(bool),
    /// `2026-02-11`
    Date(&'a str),
    /// A number, and the style that shows it.
    Styled(u8, &'a str),
    /// A formula and its cached value.
    Formula(&'a str, &'a str),
}

/// Style 1 shows dates, 2 times, 3 elapsed hours, 4 dates with times.
pub fn workbook(sheets: &[(&str, &[Vec<CellContent<'_>>])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut part = |name: &str, content: &str| {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    };
    let all = |make: &dyn Fn(usize, &str) -> String| -> String {
        sheets.iter().enumerate().map(|(at, (name, _))| make(at + 1, name)).collect()
    };
    let overrides = all(&|id, _| {
        format!(
            r#"<Override PartName="/xl/worksheets/sheet{id}.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>"#
        )
    });
    part(
        "[Content_Types].xml",
        &format!(
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/>{overrides}</Types>"#
        ),
    );
    part(
        "_rels/.rels",
        &format!(
            r#"<Relationships xmlns="{RELS}"><Relationship Id="rId1" Type="{DOC}/officeDocument" Target="xl/workbook.xml"/></Relationships>"#
        ),
    );
    let list = all(&|id, name| format!(r#"<sheet name="{name}" sheetId="{id}" r:id="rId{id}"/>"#));
    part(
        "xl/workbook.xml",
        &format!(r#"<workbook xmlns="{MAIN}" xmlns:r="{DOC}"><sheets>{list}</sheets></workbook>"#),
    );
    let relations = all(&|id, _| {
        format!(r#"<Relationship Id="rId{id}" Type="{DOC}/worksheet" Target="worksheets/sheet{id}.xml"/>"#)
    });
    part(
        "xl/_rels/workbook.xml.rels",
        &format!(
            r#"<Relationships xmlns="{RELS}">{relations}<Relationship Id="rId99" Type="{DOC}/styles" Target="styles.xml"/></Relationships>"#
        ),
    );
    part(
        "xl/styles.xml",
        &format!(
            r#"<styleSheet xmlns="{MAIN}"><fonts count="1"><font/></fonts><fills count="1"><fill/></fills><borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="5"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/><xf numFmtId="21" applyNumberFormat="1"/><xf numFmtId="46" applyNumberFormat="1"/><xf numFmtId="22" applyNumberFormat="1"/></cellXfs></styleSheet>"#
        ),
    );
    for (at, (_, rows)) in sheets.iter().enumerate() {
        let rows: String = rows.iter().enumerate().map(|(at, row)| row_xml(at + 1, row)).collect();
        let xml = format!(r#"<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>"#);
        part(&format!("xl/worksheets/sheet{}.xml", at + 1), &xml);
    }
    zip.finish().unwrap().into_inner()
}

/// An OpenDocument workbook with one sheet.
pub fn ods_workbook(sheet: &str, rows: &[Vec<CellContent<'_>>]) -> Vec<u8> {
    let cell = |cell: &CellContent<'_>| match cell {
        CellContent::Empty => "<table:table-cell/>".to_owned(),
        CellContent::Text(text) => {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            format!(
                "<table:table-cell office:value-type=\"string\"><text:p>{text}</text:p></table:table-cell>"
            )
        }
        CellContent::Number(digits) => {
            format!("<table:table-cell office:value-type=\"float\" office:value=\"{digits}\"/>")
        }
        CellContent::Boolean(yes) => {
            format!("<table:table-cell office:value-type=\"boolean\" office:boolean-value=\"{yes}\"/>")
        }
        CellContent::Date(day) => {
            format!("<table:table-cell office:value-type=\"date\" office:date-value=\"{day}\"/>")
        }
        CellContent::Styled(..) | CellContent::Formula(..) => panic!("not written here"),
    };
    let row = |row: &Vec<CellContent<'_>>| {
        format!("<table:table-row>{}</table:table-row>", row.iter().map(cell).collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    let xmlns = "urn:oasis:names:tc:opendocument:xmlns";
    let content = format!(
        "<office:document-content xmlns:office=\"{xmlns}:office:1.0\" xmlns:table=\"{xmlns}:table:1.0\" \
         xmlns:text=\"{xmlns}:text:1.0\"><office:body><office:spreadsheet><table:table table:name=\"{sheet}\">{rows}\
         </table:table></office:spreadsheet></office:body></office:document-content>"
    );
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in
        [("mimetype", "application/vnd.oasis.opendocument.spreadsheet"), ("content.xml", content.as_str())]
    {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn row_xml(number: usize, cells: &[CellContent<'_>]) -> String {
    let cells: String = cells
        .iter()
        .zip('A'..='Z')
        .map(|(value, letter)| cell_xml(&format!("{letter}{number}"), *value))
        .collect();
    format!(r#"<row r="{number}">{cells}</row>"#)
}

fn cell_xml(at: &str, value: CellContent<'_>) -> String {
    match value {
        CellContent::Empty => String::new(),
        CellContent::Text(text) => {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            format!(r#"<c r="{at}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>"#)
        }
        CellContent::Number(digits) => format!(r#"<c r="{at}"><v>{digits}</v></c>"#),
        CellContent::Boolean(yes) => format!(r#"<c r="{at}" t="b"><v>{}</v></c>"#, u8::from(yes)),
        CellContent::Date(day) => format!(r#"<c r="{at}" s="1"><v>{}</v></c>"#, serial(day)),
        CellContent::Styled(style, digits) => format!(r#"<c r="{at}" s="{style}"><v>{digits}</v></c>"#),
        CellContent::Formula(formula, digits) => {
            format!(r#"<c r="{at}"><f>{formula}</f><v>{digits}</v></c>"#)
        }
    }
}

/// Days since 1899-12-30.
fn serial(day: &str) -> i64 {
    spile_core::calendar::CivilDate::parse(day.as_bytes()).unwrap().days() + 25_569
}
