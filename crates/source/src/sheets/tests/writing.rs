//! Changes one row in an XLSX file: what changes, what does not, and what is refused.

use std::io::{Cursor, Read};

use calamine::{Data, Reader, Xlsx};
use contract::infer::SAFE_INTEGER_MAX;
use proptest::prelude::*;
use rust_xlsxwriter::{Chart, ChartType, Format as Style, Formula, Workbook};

use super::super::budget::Budget;
use super::super::zip::ZipArchive;
use super::kit::{Entry, OwnedValue, PackageParts, apply_edit, cell_update, describe, pack, rows, xlsx};
use crate::tables::{FileFormat, RowEdit, StoredValue};

const ROWS: &str = r#"<dimension ref="A1:C3"/><sheetData><row r="1" spans="1:3"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="inlineStr"><is><t>day</t></is></c></row><row r="2" ht="20" customHeight="1"><c r="A2"><v>1</v></c><c r="B2" s="6" t="s"><v>4</v></c><c r="C2" s="1"><v>46064</v></c></row><row r="3"><c r="A3"><v>2</v></c><c r="C3" s="1"><v>46065</v></c></row></sheetData><pageMargins left="0.7" right="0.7" top="0.75" bottom="0.75" header="0.3" footer="0.3"/>"#;

fn part(bytes: &[u8], name: &str) -> String {
    let mut budget = Budget::new();
    let archive = ZipArchive::open(bytes, &mut budget).unwrap_or_else(|reason| panic!("{reason:?}"));
    let content =
        archive.read(archive.find(name).unwrap(), &mut budget).unwrap_or_else(|reason| panic!("{reason:?}"));
    String::from_utf8(content).unwrap()
}

/// The XML inside of the worksheet after a change.
fn sheet_after(inside: &str, edit: &RowEdit<'_>) -> Result<String, String> {
    let bytes = apply_edit(&PackageParts::new(inside).to_zip(), edit)?;
    let sheet = part(&bytes, "xl/worksheets/sheet1.xml");
    let start = sheet.find('>').unwrap() + 1;
    Ok(sheet[start..].strip_suffix("</worksheet>").unwrap().to_owned())
}

fn check(edit: &RowEdit<'_>, from: &[(&str, &str)]) {
    let expected = from.iter().fold(ROWS.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    });
    assert_eq!(sheet_after(ROWS, edit).unwrap(), expected);
}

#[test]
fn a_cell_is_replaced_and_keeps_its_style() {
    let cells = [
        cell_update(0, StoredValue::Integer(7)),
        cell_update(1, StoredValue::Text("=HYPERLINK(\"x\")")),
        cell_update(2, StoredValue::DateTime("2026-02-28")),
    ];
    check(
        &RowEdit::Set { row: 0, updates: &cells },
        &[
            (r#"<c r="A2"><v>1</v></c>"#, r#"<c r="A2"><v>7</v></c>"#),
            (
                r#"<c r="B2" s="6" t="s"><v>4</v></c>"#,
                r#"<c r="B2" s="6" t="inlineStr"><is><t xml:space="preserve">=HYPERLINK("x")</t></is></c>"#,
            ),
            (r#"<c r="C2" s="1"><v>46064</v></c>"#, r#"<c r="C2" s="1"><v>46081</v></c>"#),
        ],
    );
}

#[test]
fn clearing_a_value_keeps_the_cell() {
    check(
        &RowEdit::Set { row: 0, updates: &[cell_update(2, StoredValue::Null)] },
        &[(r#"<c r="C2" s="1"><v>46064</v></c>"#, r#"<c r="C2" s="1"/>"#)],
    );
    check(&RowEdit::Set { row: 1, updates: &[cell_update(1, StoredValue::Null)] }, &[]);
}

#[test]
fn a_new_cell_is_inserted_in_order_with_the_style_above() {
    check(
        &RowEdit::Set { row: 1, updates: &[cell_update(1, StoredValue::Text("b"))] },
        &[(
            r#"<c r="A3"><v>2</v></c>"#,
            r#"<c r="A3"><v>2</v></c><c r="B3" s="6" t="inlineStr"><is><t xml:space="preserve">b</t></is></c>"#,
        )],
    );
}

#[test]
fn equal_values_are_not_rewritten() {
    let cells = [
        cell_update(0, StoredValue::Integer(1)),
        cell_update(1, StoredValue::Text(" kept ")),
        cell_update(2, StoredValue::DateTime("2026-02-11")),
    ];
    check(&RowEdit::Set { row: 0, updates: &cells }, &[]);
}

#[test]
fn a_row_is_appended_directly_below_the_last_record_and_not_below_blank_texts() {
    let blank = |row: u32| {
        format!(
            r#"<row r="{row}"><c r="A{row}" t="inlineStr"><is><t xml:space="preserve"> </t></is></c></row>"#
        )
    };
    let inside = ROWS.replace("</sheetData>", &format!("{}{}</sheetData>", blank(4), blank(5)));
    let cells = [cell_update(0, StoredValue::Integer(9))];
    let after = sheet_after(&inside, &RowEdit::Append { updates: &cells }).unwrap();
    assert!(after.contains(r#"<row r="4"><c r="A4"><v>9</v></c>"#), "{after}");
    assert!(after.contains(&blank(5)), "{after}");
}

#[test]
fn a_row_is_appended_with_the_style_of_the_last() {
    let cells = [cell_update(1, StoredValue::Text("c")), cell_update(0, StoredValue::Real(0.5))];
    check(
        &RowEdit::Append { updates: &cells },
        &[
            ("A1:C3", "A1:C4"),
            (
                "</sheetData>",
                r#"<row r="4"><c r="A4"><v>0.5</v></c><c r="B4" t="inlineStr"><is><t xml:space="preserve">c</t></is></c><c r="C4" s="1"/></row></sheetData>"#,
            ),
        ],
    );
}

#[test]
fn an_empty_row_is_filled() {
    let empty =
        ROWS.replace("</sheetData>", r#"<row r="4" ht="9"/><row r="6"><c r="A6" s="6"/></row></sheetData>"#);
    let cells = [cell_update(0, StoredValue::Integer(3))];
    let message = sheet_after(&empty, &RowEdit::Append { updates: &cells }).unwrap();
    assert!(
        message.contains(r#"<row r="4" ht="9"><c r="A4"><v>3</v></c><c r="C4" s="1"/></row><row r="6">"#),
        "{message}"
    );
    let gap = ROWS.replace("</sheetData>", r#"<row r="6"><c r="A6" s="6"/></row></sheetData>"#);
    let message = sheet_after(&gap, &RowEdit::Append { updates: &cells }).unwrap();
    assert!(
        message.contains(r#"<row r="4"><c r="A4"><v>3</v></c><c r="C4" s="1"/></row><row r="6">"#),
        "{message}"
    );
    let styled =
        ROWS.replace("</sheetData>", r#"<row r="4"><c r="A4" s="6"/><c r="B4" s="6"/></row></sheetData>"#);
    let message = sheet_after(&styled, &RowEdit::Append { updates: &cells }).unwrap();
    assert!(
        message.contains(r#"<row r="4"><c r="A4"><v>3</v></c><c r="B4" s="6"/><c r="C4" s="1"/></row>"#),
        "{message}"
    );
}

#[test]
fn a_row_is_removed_and_those_below_move_up() {
    check(
        &RowEdit::Remove { row: 0 },
        &[
            (
                r#"<row r="2" ht="20" customHeight="1"><c r="A2"><v>1</v></c><c r="B2" s="6" t="s"><v>4</v></c><c r="C2" s="1"><v>46064</v></c></row>"#,
                "",
            ),
            (
                r#"<row r="3"><c r="A3"><v>2</v></c><c r="C3" s="1">"#,
                r#"<row r="2"><c r="A2"><v>2</v></c><c r="C2" s="1">"#,
            ),
            ("A1:C3", "A1:C2"),
        ],
    );
    let last = r#"<row r="3"><c r="A3"><v>2</v></c><c r="C3" s="1"><v>46065</v></c></row>"#;
    check(&RowEdit::Remove { row: 1 }, &[(last, ""), ("A1:C3", "A1:C2")]);
}

#[test]
fn conditional_formats_and_validations_move_along() {
    let rules = r#"<autoFilter ref="A1:C3"/><mergeCells count="1"><mergeCell ref="A1:B1"/></mergeCells><conditionalFormatting sqref="A3 B:B C2:C3"><cfRule type="top10"/></conditionalFormatting><dataValidations><dataValidation type="list" sqref="B2:B1048576"><formula1>"a,b"</formula1></dataValidation></dataValidations>"#;
    let inside = ROWS.replace("<pageMargins", &format!("{rules}<pageMargins"));
    let message = sheet_after(&inside, &RowEdit::Remove { row: 0 }).unwrap();
    for expected in [
        r#"<autoFilter ref="A1:C2"/>"#,
        r#"sqref="A2 B:B C2""#,
        r#"sqref="B2:B1048575""#,
        r#"<mergeCell ref="A1:B1"/>"#,
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_sheet_without_rows_gets_its_first_row() {
    let inside = r#"<sheetData><row><c t="s"><v>0</v></c></row></sheetData>"#;
    let message =
        sheet_after(inside, &RowEdit::Append { updates: &[cell_update(0, StoredValue::Integer(1))] })
            .unwrap();
    assert_eq!(
        message,
        r#"<sheetData><row><c t="s"><v>0</v></c></row><row r="2"><c r="A2"><v>1</v></c></row></sheetData>"#
    );
}

#[test]
fn namespace_prefix_and_byte_order_mark_are_kept() {
    let xml = format!(
        "\u{feff}<x:worksheet xmlns:x=\"{}\"><x:sheetData><x:row r=\"1\"><x:c r=\"A1\" t=\"s\"><x:v>0</x:v></x:c></x:row></x:sheetData></x:worksheet>",
        super::kit::MAIN
    );
    let bytes = PackageParts::new("").with("xl/worksheets/sheet1.xml", xml.clone()).to_zip();
    let bytes =
        apply_edit(&bytes, &RowEdit::Append { updates: &[cell_update(0, StoredValue::Text("a"))] }).unwrap();
    let row = r#"<x:row r="2"><x:c r="A2" t="inlineStr"><x:is><x:t xml:space="preserve">a</x:t></x:is></x:c></x:row>"#;
    let expected = xml.replace("</x:sheetData>", &format!("{row}</x:sheetData>"));
    assert_eq!(part(&bytes, "xl/worksheets/sheet1.xml"), expected);
}

fn check_rejected(inside: &str, edit: &RowEdit<'_>, expected: &str) {
    match sheet_after(inside, edit) {
        Err(reason) => assert!(reason.contains(expected), "{reason}, not {expected}"),
        Ok(message) => panic!("written, and not {expected}: {message}"),
    }
}

#[test]
fn formulas_are_not_overwritten_nor_made_stale() {
    let with = |formula: &str| {
        ROWS.replace(r#"<c r="A2"><v>1</v></c>"#, &format!(r#"<c r="A2">{formula}<v>1</v></c>"#))
    };
    let set = |column, value| [cell_update(column, value)];
    let a = set(0, StoredValue::Integer(5));
    check_rejected(&with("<f>1+0</f>"), &RowEdit::Set { row: 0, updates: &a }, "A2 has a formula");
    check_rejected(&with("<f>1+0</f>"), &RowEdit::Remove { row: 1 }, "A2 has a formula");
    // The cells it refers to may change only if its value is computed again.
    let c = set(2, StoredValue::DateTime("2026-03-01"));
    check_rejected(&with("<f>C3+1</f>"), &RowEdit::Set { row: 1, updates: &c }, "A2 may be computed from C3");
    check_rejected(
        &with("<f>Sheet1!C3+1</f>"),
        &RowEdit::Set { row: 1, updates: &c },
        "A2 may be computed from C3",
    );
    check_rejected(
        &with("<f>SUM(C:C)</f>"),
        &RowEdit::Set { row: 1, updates: &c },
        "A2 may be computed from C3",
    );
    check_rejected(
        &with("<f>Rate*2</f>"),
        &RowEdit::Set { row: 1, updates: &c },
        "A2 may be computed from C3",
    );
    check_rejected(
        &with("<f>INDIRECT(\"C3\")</f>"),
        &RowEdit::Set { row: 1, updates: &c },
        "A2 may be computed from C3",
    );
    check_rejected(
        &with(r#"<f t="shared" ref="A2:A3" si="0">C2</f>"#),
        &RowEdit::Set { row: 1, updates: &c },
        "A2 may be computed from C3",
    );
    check_rejected(
        &with(r#"<f t="array" ref="A2:A3">TRANSPOSE(X1:Y1)</f>"#),
        &RowEdit::Set { row: 1, updates: &a },
        "A3 has a formula",
    );
    check_rejected(
        &with("<f>SUM(A2:A99)</f>"),
        &RowEdit::Append { updates: &a },
        "A2 may be computed from A4",
    );
    let last = ROWS.replace(r#"<c r="A3"><v>2</v></c>"#, r#"<c r="A3"><f>1+1</f><v>2</v></c>"#);
    check_rejected(&last, &RowEdit::Append { updates: &a }, "A3 has a formula, which a new row would lack");
    // Other cells may change; the next spreadsheet program recalculates.
    let message = sheet_after(&with("<f>B3+[1]Other!C3</f>"), &RowEdit::Set { row: 1, updates: &c }).unwrap();
    assert!(message.contains(r#"<c r="C3" s="1"><v>46082</v></c></row></sheetData><sheetCalcPr fullCalcOnLoad="1"/><pageMargins"#), "{message}");
    let off = with("<f>B3</f>").replace("<pageMargins", r#"<sheetCalcPr fullCalcOnLoad="0"/><pageMargins"#);
    let message = sheet_after(&off, &RowEdit::Set { row: 1, updates: &c }).unwrap();
    assert_eq!(message.matches(r#"<sheetCalcPr fullCalcOnLoad="1"/>"#).count(), 1, "{message}");
    assert_eq!(message.matches("sheetCalcPr").count(), 1, "{message}");
}

/// `Sheet1` with the rows of [`ROWS`], and the sheets that these cells make: each has the header `sum` in A1, and cells
/// from A2 on.
fn with_formulas(sheets: &[(&str, &[&str])]) -> PackageParts {
    let sheet = |cells: &[&str]| {
        let header = r#"<row r="1"><c r="A1" t="inlineStr"><is><t>sum &lt;f</t></is></c></row>"#;
        let row = |(number, cell): (usize, &&str)| {
            format!(r#"<row r="{number}"><c r="A{number}">{cell}</c></row>"#)
        };
        let rows: String = (2..).zip(cells).map(row).collect();
        format!("<sheetData>{header}{rows}</sheetData>")
    };
    let others: Vec<(&str, String)> = sheets.iter().map(|(name, cells)| (*name, sheet(cells))).collect();
    let mut all = vec![("Sheet1", ROWS)];
    all.extend(others.iter().map(|(name, inside)| (*name, inside.as_str())));
    PackageParts::with_sheets(&all)
}

/// What is read after a write to `Sheet1`, one line per row, without `Sheet1` itself.
fn after_write(parts: &PackageParts) -> String {
    let cells = [cell_update(0, StoredValue::Integer(5))];
    let bytes = apply_edit(&parts.to_zip(), &RowEdit::Set { row: 0, updates: &cells }).unwrap();
    let all = describe(&bytes, &xlsx());
    let other = all.lines().skip_while(|line| line.starts_with("Sheet1") || !line.contains(": sum"));
    other.collect::<Vec<_>>().join("\n")
}

/// A workbook that no spreadsheet program has opened yet has no calculation chain.
#[test]
fn a_write_asks_for_a_recalculation_if_there_are_formulas() {
    for (cell, expected) in [("<v>3</v>", false), ("<f>SUM(Sheet1!A:A)</f><v>3</v>", true)] {
        let cells = [cell_update(0, StoredValue::Integer(5))];
        let parts = with_formulas(&[("Totals", &[cell])]);
        let bytes = apply_edit(&parts.to_zip(), &RowEdit::Set { row: 0, updates: &cells }).unwrap();
        let sheet = part(&bytes, "xl/worksheets/sheet1.xml");
        assert_eq!(sheet.contains(r#"<sheetCalcPr fullCalcOnLoad="1"/>"#), expected, "{cell}");
    }
}

#[test]
fn a_write_invalidates_the_values_of_formulas_that_may_depend_on_it() {
    let notice = "may depend on cells that were written since it was last calculated";
    for (formula, is_stale) in [
        ("SUM(Sheet1!A2:A3)", true),
        ("SUM(sheet1!A:A)", true),
        ("'Sheet1'!B2&amp;\"x\"", true),
        ("INDIRECT(\"Sheet1!A2\")", true),
        ("Unknown*2", true),
        ("1+1", false),
        ("A3*2", false),
        ("SUM(Other!A1:A9)", false),
    ] {
        let parts =
            with_formulas(&[("Totals", &[&format!("<f>{formula}</f><v>3</v>"), "<v>4</v>"]), ("Other", &[])]);
        let expected = match is_stale {
            true => format!(
                "Totals: sum <f\n-\n4\nOther: sum <f\n(A2 on `Totals` is null until a spreadsheet program \
                 recalculates the workbook: its formula {notice})"
            ),
            false => "Totals: sum <f\n3\n4\nOther: sum <f".to_owned(),
        };
        assert_eq!(after_write(&parts), expected, "{formula}");
    }
    let untouched = with_formulas(&[("Totals", &["<f>SUM(Sheet1!A:A)</f><v>3</v>"])]);
    assert!(describe(&untouched.to_zip(), &xlsx()).ends_with("Totals: sum <f\n3"));
}

#[test]
fn stale_values_are_followed_through_formulas_names_and_hidden_sheets() {
    let totals =
        ["<f>Hidden!A2+1</f><v>4</v>", "<f>A2*2</f><v>8</v>", "<f>A5</f><v>9</v>", "<f>Rate</f><v>9</v>"];
    let parts = with_formulas(&[
        ("Totals", &totals),
        ("Hidden", &["<f>SUM(Sheet1!A:A)</f><v>3</v>"]),
        ("Other", &["<f>Fixed+1</f><v>2</v>", "<f>COUNT(Totals!A:A)</f><v>4</v>"]),
    ])
    .replacing("xl/workbook.xml", r#"name="Hidden""#, r#"name="Hidden" state="hidden""#)
    .replacing(
        "xl/workbook.xml",
        "</sheets>",
        "</sheets><definedNames><definedName name=\"Rate\">Sheet1!$A$2</definedName>\
         <definedName name=\"Fixed\">1</definedName></definedNames>",
    );
    let read = after_write(&parts);
    assert!(read.starts_with("Totals: sum <f\n-\n-\n-\n-\nOther: sum <f\n2\n-\n"), "{read}");
    assert!(
        read.contains(
            "4 cells on `Totals` (A2 first) are null until a spreadsheet program recalculates the workbook"
        ),
        "{read}"
    );
}

#[test]
fn shared_and_array_formulas_are_outdated_with_all_their_cells() {
    let shared = [
        r#"<f t="shared" ref="A2:A3" si="0">Sheet1!A2*2</f><v>1</v>"#,
        r#"<f t="shared" si="0"/><v>2</v>"#,
        r#"<f t="shared" si="7"/><v>3</v>"#,
        "<v>4</v>",
    ];
    let array = [r#"<f t="array" ref="A2:A3">Sheet1!A2:A3*2</f><v>1</v>"#, "<v>2</v>", "<v>3</v>"];
    let read = after_write(&with_formulas(&[("Totals", &shared), ("Arrays", &array)]));
    assert!(read.starts_with("Totals: sum <f\n-\n-\n-\n4\nArrays: sum <f\n-\n-\n3\n"), "{read}");
}

#[test]
fn a_column_of_formulas_is_read_only() {
    let inside = r#"<sheetData><row><c t="s"><v>0</v></c><c t="s"><v>1</v></c></row><row><c><v>1</v></c><c><f>A2</f><v>1</v></c></row><row><c><v>2</v></c><c><f>A3</f><v>2</v></c></row></sheetData>"#;
    let parsed =
        xlsx().load(&PackageParts::new(inside).to_zip()).unwrap_or_else(|reason| panic!("{reason:?}"));
    assert_eq!(parsed.tables[0].computed, [(1, "it is computed by a formula".to_owned())]);
}

#[test]
fn rows_that_something_refers_to_are_not_moved() {
    let with = |more: &str| ROWS.replace("<pageMargins", &format!("{more}<pageMargins"));
    let first = RowEdit::Remove { row: 0 };
    check_rejected(&with(r#"<mergeCells><mergeCell ref="A3:B3"/></mergeCells>"#), &first, "merged");
    check_rejected(&with(r#"<hyperlinks><hyperlink ref="A3"/></hyperlinks>"#), &first, "links");
    check_rejected(&with(r#"<drawing r:id="rId9"/>"#), &first, "a picture or a chart");
    check_rejected(&with(r#"<legacyDrawing r:id="rId9"/>"#), &first, "comments");
    check_rejected(&with(r#"<extLst><ext/></extLst>"#), &first, "something besides its cells");
    check_rejected(
        &with(
            r#"<dataValidations><dataValidation sqref="A2:A3"><formula1>B2</formula1></dataValidation></dataValidations>"#,
        ),
        &first,
        "a conditional format or a data validation",
    );
    check_rejected(&with(r#"<conditionalFormatting sqref="A2"/>"#), &first, "of its own");
    check_rejected(
        &with(r#"<tableParts><tablePart r:id="rId1"/></tableParts>"#),
        &first,
        "would have to shrink",
    );
    check_rejected(&ROWS.replace(r#"<row r="3">"#, "<row>"), &first, "have no numbers");
    // Removing the last row moves nothing else.
    let last = RowEdit::Remove { row: 1 };
    assert!(
        sheet_after(&with(r#"<hyperlinks><hyperlink ref="A2"/></hyperlinks><drawing r:id="x"/>"#), &last)
            .is_ok()
    );
    check_rejected(
        &with(r#"<hyperlinks><hyperlink ref="A3"/></hyperlinks>"#),
        &last,
        "a link that would stay",
    );
    let drawn = with(r#"<legacyDrawing r:id="rId9"/>"#);
    check_rejected(&drawn, &last, "a comment that would stay");
    let commented = |cell: &str| {
        let rels = r#"<Relationships xmlns="x"><Relationship Id="rId8" Type="http://x/comments" Target="../comments1.xml"/></Relationships>"#;
        let comments = format!(
            r#"<comments><commentList><comment ref="A1"/><comment ref="{cell}"><text/></comment></commentList></comments>"#
        );
        let parts = PackageParts::new(&drawn).with("xl/worksheets/_rels/sheet1.xml.rels", rels);
        apply_edit(&parts.with("xl/comments1.xml", comments).to_zip(), &last).map(drop)
    };
    assert_eq!(commented("B2"), Ok(()));
    assert_eq!(
        commented("B3"),
        Err("the row has a comment that would stay; make this change in a spreadsheet program".into())
    );
    assert_eq!(
        commented("?"),
        Err("the row has a comment that would stay; make this change in a spreadsheet program".into())
    );
    let others = |formula: &str| {
        let other =
            format!(r#"<sheetData><row r="1"><c r="A1"><f>{formula}</f><v>1</v></c></row></sheetData>"#);
        apply_edit(&PackageParts::with_sheets(&[("Sheet1", ROWS), ("Other", &other)]).to_zip(), &first)
            .map(drop)
    };
    assert_eq!(
        others("Sheet1!A3"),
        Err("rows would move, and A1 on `Other` may be computed from them; make this change in a spreadsheet program".into())
    );
    assert_eq!(
        others("SUM('sheet1'!A:A)"),
        Err("rows would move, and A1 on `Other` may be computed from them; make this change in a spreadsheet program".into())
    );
    assert_eq!(others("Rate"), Err("rows would move, and A1 on `Other` may be computed from them; make this change in a spreadsheet program".into()));
    assert_eq!(others("Sheet1!A1+B9"), Ok(()));
    let named = |name: &str, formula: &str| {
        let names = format!(
            r#"</sheets><definedNames><definedName name="{name}">{formula}</definedName></definedNames>"#
        );
        apply_edit(
            &PackageParts::new(ROWS).replacing("xl/workbook.xml", "</sheets>", &names).to_zip(),
            &first,
        )
        .map(drop)
    };
    assert_eq!(
        named("Rate", "Sheet1!$A$3"),
        Err("rows would move, and the name `Rate` refers to some of them; make this change in a spreadsheet program".into())
    );
    assert_eq!(named("Rate", "Sheet1!$A$1"), Ok(()));
    assert_eq!(named("_xlnm._FilterDatabase", "Sheet1!$A$1:$C$3"), Ok(()));
    let charts = PackageParts::new(ROWS).with("xl/charts/chart1.xml", "<c/>").to_zip();
    assert!(apply_edit(&charts, &first).unwrap_err().contains("a chart or a pivot table"));
}

#[test]
fn protected_or_signed_sheets_are_not_written() {
    let set = [cell_update(0, StoredValue::Integer(5))];
    let set = RowEdit::Set { row: 0, updates: &set };
    let protected = ROWS.replace("<pageMargins", r#"<sheetProtection sheet="1"/><pageMargins"#);
    check_rejected(&protected, &set, "protected");
    let parsed =
        xlsx().load(&PackageParts::new(&protected).to_zip()).unwrap_or_else(|reason| panic!("{reason:?}"));
    assert!(parsed.tables[0].read_only_reason.is_some());
    let signed = PackageParts::new(ROWS).with("_xmlsignatures/sig1.xml", "<s/>").to_zip();
    assert!(apply_edit(&signed, &set).unwrap_err().contains("signed"));
    let table =
        ROWS.replace("<pageMargins", r#"<tableParts><tablePart r:id="rId1"/></tableParts><pageMargins"#);
    check_rejected(
        &table,
        &RowEdit::Append { updates: &[cell_update(0, StoredValue::Integer(5))] },
        "an Excel table that cannot be read",
    );
    let merged =
        ROWS.replace("<pageMargins", r#"<mergeCells><mergeCell ref="A2:B2"/></mergeCells><pageMargins"#);
    check_rejected(
        &merged,
        &RowEdit::Set { row: 0, updates: &[cell_update(1, StoredValue::Text("x"))] },
        "B2 is merged",
    );
    check_rejected(
        ROWS,
        &RowEdit::Append { updates: &[cell_update(0, StoredValue::Null)] },
        "at least one value",
    );
    check_rejected(
        ROWS,
        &RowEdit::Set { row: 0, updates: &[cell_update(2, StoredValue::Integer(5))] },
        "formatted to show a date",
    );
    check_rejected(
        ROWS,
        &RowEdit::Set { row: 0, updates: &[cell_update(2, StoredValue::DateTime("1899-01-01"))] },
        "no cell of this column",
    );
    check_rejected(ROWS, &RowEdit::Set { row: 9, updates: &[] }, "no row has this key");
    check_rejected(
        ROWS,
        &RowEdit::Set { row: 0, updates: &[cell_update(9, StoredValue::Integer(5))] },
        "no such column",
    );
}

/// A package with everything that a write must preserve: data descriptors, extra fields, a comment.
#[test]
fn every_other_byte_is_preserved() {
    let mut entries: Vec<Entry> = PackageParts::with_sheets(&[("Sheet1", ROWS), ("Sheet2", ROWS)])
        .0
        .iter()
        .map(|(name, content)| Entry::new(name, content))
        .collect();
    entries.push(Entry::new("xl/media/image1.png", b"\x89PNG"));
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.has_data_descriptor = at % 2 == 0;
        entry.extra = if at % 3 == 0 { b"\x34\x12\x02\x00hi".to_vec() } else { Vec::new() };
    }
    // A part with a compression method that is not supported.
    entries.last_mut().unwrap().method = 12;
    let before = pack(&entries, b"a comment");
    let after = apply_edit(&before, &RowEdit::Append { updates: &[cell_update(0, StoredValue::Integer(3))] })
        .unwrap();
    let changed = "xl/worksheets/sheet1.xml";
    let start = |bytes: &[u8], name: &str| {
        let needle = [&(name.len() as u16).to_le_bytes()[..], &[]].concat();
        let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        assert!(bytes[at - 4..].starts_with(&needle));
        at - 30
    };
    // All bytes before the changed part, and from the next part up to the directory, are as before.
    let (old, new) = (start(&before, changed), start(&after, changed));
    assert_eq!(before[..old], after[..new]);
    let (old, new) = (start(&before, "xl/worksheets/sheet2.xml"), start(&after, "xl/worksheets/sheet2.xml"));
    let directory = |bytes: &[u8]| bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    assert_eq!(before[old..directory(&before)], after[new..directory(&after)]);
    assert!(after.ends_with(b"a comment"));
    assert_eq!(describe(&after, &xlsx()).matches("Sheet2: id|name|day\n1|").count(), 1);
}

/// A workbook as a spreadsheet program would save it.
fn real_workbook() -> Vec<u8> {
    let mut book = Workbook::new();
    let date = Style::new().set_num_format("yyyy-mm-dd");
    let sheet = book.add_worksheet();
    for (at, name) in ["id", "name", "price", "day", "ok"].iter().enumerate() {
        sheet.write(0, at as u16, *name).unwrap();
    }
    for row in 1..6 {
        sheet.write(row, 0, row).unwrap();
        sheet.write(row, 1, format!("name <{row}> & co")).unwrap();
        sheet.write(row, 2, f64::from(row) / 10.0).unwrap();
        sheet.write_number_with_format(row, 3, f64::from(46_000 + row), &date).unwrap();
        sheet.write(row, 4, row % 2 == 0).unwrap();
    }
    sheet.set_freeze_panes(1, 0).unwrap();
    sheet.set_column_width(1, 30).unwrap();
    let other = book.add_worksheet().set_name("Sums").unwrap();
    other.write(0, 0, "sum").unwrap();
    other.write_formula(1, 0, Formula::new("SUM(Sheet1!C:C)").set_result("1.5")).unwrap();
    let mut chart = Chart::new(ChartType::Line);
    chart.add_series().set_values("Sheet1!$C$2:$C$6");
    other.insert_chart(3, 3, &chart).unwrap();
    book.save_to_buffer().unwrap()
}

fn raw_parts(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut parts = Vec::new();
    for at in 0..archive.len() {
        let mut part = archive.by_index_raw(at).unwrap();
        let mut content = Vec::new();
        part.read_to_end(&mut content).unwrap();
        parts.push((part.name().unwrap().into_owned(), content));
    }
    parts
}

#[test]
fn another_zip_reader_finds_only_the_sheet_changed() {
    let before = real_workbook();
    let cells = [
        cell_update(0, StoredValue::Integer(9)),
        cell_update(1, StoredValue::Text("=1+1")),
        cell_update(3, StoredValue::DateTime("2026-02-11")),
        cell_update(4, StoredValue::Boolean(true)),
    ];
    let after = apply_edit(&before, &RowEdit::Append { updates: &cells }).unwrap();
    let (old, new) = (raw_parts(&before), raw_parts(&after));
    assert_eq!(old.len(), new.len());
    for ((name, old), (new_name, new)) in old.iter().zip(&new) {
        assert_eq!(name, new_name);
        assert_eq!(old == new, name != "xl/worksheets/sheet1.xml", "{name}");
    }
    let mut other: Xlsx<_> = Xlsx::new(Cursor::new(after)).unwrap();
    let range = other.worksheet_range("Sheet1").unwrap();
    let last: Vec<Data> = range.rows().next_back().unwrap().to_vec();
    assert_eq!(last[0], Data::Float(9.0));
    assert_eq!(last[1], Data::String("=1+1".into()));
    assert_eq!(last[2], Data::Empty);
    assert!(matches!(&last[3], Data::DateTime(day) if day.as_f64() == 46_064.0), "{last:?}");
    assert_eq!(last[4], Data::Bool(true));
    assert!(other.worksheet_formula("Sheet1").unwrap().is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Set(prop::sample::Index, Vec<(usize, OwnedValue)>),
    Append(Vec<(usize, OwnedValue)>),
    Remove(prop::sample::Index),
}

fn value() -> impl Strategy<Value = (usize, OwnedValue)> {
    let text = prop_oneof!["[ -~]{0,12}", "\\PC{0,6}", "[\\x01-\\x1f_x0-9A-F]{0,12}", Just("=A1".to_owned())];
    prop_oneof![
        (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).prop_map(|n| (0, OwnedValue::Integer(n))),
        text.prop_map(|text| (1, OwnedValue::Text(text))),
        any::<f64>()
            .prop_filter("fits", |n| n.is_normal() && n.abs() < 9e307 && n.fract() != 0.0)
            .prop_map(|n| (2, OwnedValue::Real(n))),
        (1..2_900_000_i64).prop_filter("was", |n| *n != 60).prop_map(|day| {
            let text = super::super::serial_date::format_serial(
                day as f64,
                super::super::serial_date::NumberFormat::Date,
                Default::default(),
            );
            (3, OwnedValue::DateTime(text.unwrap()))
        }),
        any::<bool>().prop_map(|yes| (4, OwnedValue::Boolean(yes))),
        (1..5_usize).prop_map(|column| (column, OwnedValue::Null)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let values = || prop::collection::vec(value(), 1..5);
    prop_oneof![
        3 => (any::<prop::sample::Index>(), values()).prop_map(|(row, values)| Step::Set(row, values)),
        2 => values().prop_map(Step::Append),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is written reads back, and everything else stays as it was.
    #[test]
    fn random_edits_read_back(steps in prop::collection::vec(step(), 1..12)) {
        let header = |at: &str, text: &str| format!(r#"<c r="{at}" t="inlineStr"><is><t>{text}</t></is></c>"#);
        let names = [header("A1", "id"), header("B1", "name"), header("C1", "price"), header("D1", "day"), header("E1", "ok")];
        let sheet = format!(
            r#"<sheetData><row r="1">{}</row><row r="2"><c r="A2"><v>1</v></c><c r="D2" s="1"><v>46064</v></c></row></sheetData>"#,
            names.concat()
        );
        let mut bytes = PackageParts::with_sheets(&[("Sheet1", &sheet), ("Sheet2", ROWS)]).to_zip();
        let mut model = vec![vec![OwnedValue::Integer(1), OwnedValue::Null, OwnedValue::Null, OwnedValue::DateTime("2026-02-11".into()), OwnedValue::Null]];
        for step in steps {
            let by_column = |values: &[(usize, OwnedValue)]| {
                let mut values = values.to_vec();
                values.sort_by_key(|(column, _)| *column);
                values.dedup_by_key(|(column, _)| *column);
                values
            };
            let result = match &step {
                Step::Set(row, values) => {
                    let (row, values) = (row.index(model.len()), by_column(values));
                    let cells: Vec<_> = values.iter().map(|(column, value)| cell_update(*column, value.as_stored())).collect();
                    let result = apply_edit(&bytes, &RowEdit::Set { row, updates: &cells });
                    values.into_iter().for_each(|(column, value)| model[row][column] = value);
                    result
                }
                Step::Append(values) => {
                    let mut values = by_column(values);
                    values.retain(|(column, _)| *column != 0);
                    values.insert(0, (0, OwnedValue::Integer(5)));
                    let cells: Vec<_> = values.iter().map(|(column, value)| cell_update(*column, value.as_stored())).collect();
                    let result = apply_edit(&bytes, &RowEdit::Append { updates: &cells });
                    let mut row = vec![OwnedValue::Null; 5];
                    values.into_iter().for_each(|(column, value)| row[column] = value);
                    model.push(row);
                    result
                }
                Step::Remove(_) if model.len() == 1 => continue,
                Step::Remove(row) => {
                    let row = row.index(model.len());
                    model.remove(row);
                    apply_edit(&bytes, &RowEdit::Remove { row })
                }
            };
            bytes = result.map_err(TestCaseError::fail)?;
            let parsed = xlsx().load(&bytes).map_err(|reason| TestCaseError::fail(reason.message))?;
            prop_assert_eq!(&rows(&parsed.tables[0]), &model, "{:?}", step);
            prop_assert_eq!(rows(&parsed.tables[1]).len(), 2);
        }
        let mut other: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).unwrap();
        prop_assert_eq!(other.worksheet_range("Sheet1").unwrap().rows().skip(1).filter(|row| row.iter().any(|cell| *cell != Data::Empty)).count(), model.len());
    }
}
