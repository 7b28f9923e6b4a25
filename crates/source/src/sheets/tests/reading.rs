//! What is read from an XLSX file.

use super::kit::{PackageParts, describe, xlsx};
use crate::tables::FileFormat;

/// Compares the rows of a sheet below the header `id|name`.
fn check(rows: &str, expected: &str) {
    let inside = format!(
        r#"<sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>{rows}</sheetData>"#
    );
    let message = describe(&PackageParts::new(&inside).to_zip(), &xlsx());
    let message = message.strip_prefix("Sheet1: id|name").unwrap_or(&message).trim_start();
    assert_eq!(message, expected, "{rows}");
}

#[test]
fn cells_are_read_by_type_and_style() {
    for (cell, expected) in [
        (r#"<c><v>7</v></c>"#, "7"),
        (r#"<c t="n"><v>-7.50</v></c>"#, "-7.5"),
        (r#"<c><v>1E3</v></c>"#, "1000"),
        (r#"<c><v>0.1</v></c>"#, "0.1"),
        (r#"<c><v>0.30000000000000004</v></c>"#, "0.30000000000000004"),
        (r#"<c><v>9007199254740991</v></c>"#, "9007199254740991"),
        (r#"<c><v>9007199254740992</v></c>"#, "9007199254740992.0"),
        (r#"<c><v>-0</v></c>"#, "-0.0"),
        (r#"<c t="s"><v>1</v></c>"#, r#""name""#),
        (r#"<c t="s"><v>2</v></c>"#, r#""rich text""#),
        (r#"<c t="s"><v>3</v></c>"#, r#""trimmed""#),
        (r#"<c t="s"><v>4</v></c>"#, r#"" kept ""#),
        (r#"<c t="s"><v>5</v></c>"#, r#""a\rb & <c>""#),
        (r#"<c t="inlineStr"><is><t>in</t><r><t>line</t></r></is></c>"#, r#""inline""#),
        (r#"<c t="inlineStr"><is><t>=1+1</t></is></c>"#, r#""=1+1""#),
        (r#"<c t="str"><v> a_x005F_b </v></c>"#, r#"" a_b ""#),
        (r#"<c t="str"><v>😀</v></c>"#, r#""😀""#),
        (r#"<c t="b"><v>1</v></c>"#, "true"),
        (r#"<c t="b"><v>0</v></c>"#, "false"),
        (r#"<c t="d"><v>2026-02-11T10:00:00</v></c>"#, "@2026-02-11T10:00:00"),
        (r#"<c t="d"><v>2026-02-11T10:00:00Z</v></c>"#, r#""2026-02-11T10:00:00Z""#),
        (r#"<c s="1"><v>46064</v></c>"#, "@2026-02-11"),
        (r#"<c s="2"><v>46064.5</v></c>"#, "@2026-02-11T12:00:00"),
        (r#"<c s="3"><v>0.75</v></c>"#, "@18:00:00"),
        (r#"<c s="4"><v>1.25</v></c>"#, "@30:00:00"),
        (r#"<c s="5"><v>46064</v></c>"#, "@2026-02-11"),
        (r#"<c s="6"><v>46064</v></c>"#, "46064"),
        (r#"<c s="1"><v>60</v></c>"#, "60"),
        (r#"<c s="1"><v>-1</v></c>"#, "-1"),
        (r#"<c s="99"><v>5</v></c>"#, "5"),
        (r#"<c><f>A1+1</f><v>8</v></c>"#, "8"),
        (r#"<c t="str"><f>"a"</f><v>a</v></c>"#, r#""a""#),
        (r#"<c><v>7</v><extLst><ext/></extLst></c>"#, "7"),
        (r#"<c><v><!-- 1 -->7</v></c>"#, "7"),
        (r#"<c t="str"><v><![CDATA[<a>]]></v></c>"#, r#""<a>""#),
    ] {
        check(&format!(r#"<row r="2">{cell}</row>"#), &format!("{expected}|-"));
    }
}

#[test]
fn rows_and_cells_may_omit_their_references() {
    check(
        r#"<row><c><v>1</v></c><c><v>2</v></c></row><row r="9"><c r="B9"><v>3</v></c></row><row><c/><c><v>4</v></c></row>"#,
        "1|2\n-|3\n-|4",
    );
}

#[test]
fn blank_rows_are_skipped() {
    check(
        r#"<row r="2"/><row r="3"><c r="A3" s="1"/></row><row r="4"><c r="A4" t="s"><v>6</v></c></row>
           <row r="5"><c r="B5"><v>1</v></c></row>"#,
        "-|1",
    );
}

#[test]
fn errors_and_uncomputed_formulas_have_no_value_and_a_note() {
    check(
        r##"<row r="2"><c r="A2"><v>1</v></c><c r="B2" t="e"><v>#N/A</v></c></row>
            <row r="3"><c r="A3"><v>2</v></c><c r="B3" t="e"><f>1/0</f><v>#DIV/0!</v></c></row>
            <row r="4"><c r="A4"><v>3</v></c><c r="B4"><f>A4</f></c></row>
            <row r="5"><c r="A5"><v>4</v></c><c r="B5"><f>A4</f><v/></c></row>"##,
        "1|-\n2|-\n3|-\n4|-\n\
         (`Sheet1` has 2 cells with an error such as `#N/A` (B2 first): they have no value)\n\
         (`Sheet1` has 2 cells with a formula but no computed value (B4 first): they have no value until a \
         spreadsheet program saves the file)",
    );
}

/// Compares the rows of a sheet with no header above them.
fn check_sheet(inside: &str, header_row: Option<u32>, expected: &str) {
    let mut options = xlsx();
    options.tables.others.layout.header_row = header_row;
    assert_eq!(describe(&PackageParts::new(inside).to_zip(), &options), expected, "{inside}");
}

fn text(at: &str, text: &str) -> String {
    format!(r#"<c r="{at}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>"#)
}

#[test]
fn the_header_is_the_first_row_with_text_or_the_declared_one() {
    let (title, blank) = (text("B1", "Prices"), text("A2", "  "));
    let rows = format!(
        r#"<sheetData><row r="1">{title}</row><row r="2">{blank}<c r="B2"><v>2</v></c></row>
        <row r="4"><c r="A4"><v>2024</v></c>{}</row><row r="5"><c r="A5"><v>1</v></c><c r="D5"><v>9</v></c></row></sheetData>"#,
        text("B4", "b")
    );
    check_sheet(&rows, None, "Sheet1: |Prices|\n\"  \"|2|-\n2024|\"b\"|-\n1|-|9");
    check_sheet(&rows, Some(4), "Sheet1: 2024|b|\n1|-|9");
    check_sheet(&rows, Some(3), "`Sheet1` is not served: its row 3 has no column names");
    check_sheet(&rows, Some(5), "`Sheet1` is not served: its row 5 has no column names");
    check_sheet("<sheetData/>", None, "`Sheet1` is not served: it has no header row");
    check_sheet("", None, "`Sheet1` is not served: it has no header row");
    check_sheet(
        r#"<sheetData><row><c><v>1</v></c></row></sheetData>"#,
        None,
        "`Sheet1` is not served: it has no header row",
    );
}

#[test]
fn column_names_may_repeat_or_be_missing() {
    let header = [text("A1", "a"), text("B1", "a"), text("D1", "d")].concat();
    let rows = format!(
        r#"<sheetData><row r="1">{header}</row><row r="2"><c r="A2"><v>1</v></c><c r="C2"><v>3</v></c></row></sheetData>"#
    );
    check_sheet(&rows, None, "Sheet1: a|a||d\n1|-|3|-");
}

#[test]
fn merged_cells_get_a_note() {
    let rows = format!(
        r#"<sheetData><row r="1">{}</row><row r="2"><c r="A2"><v>1</v></c></row></sheetData><mergeCells><mergeCell ref="A2:A3"/></mergeCells>"#,
        text("A1", "a")
    );
    check_sheet(
        &rows,
        None,
        "Sheet1: a\n1\n(`Sheet1` has merged cells (such as A2:A3): the first of them has the value, the others have none)",
    );
}

#[test]
fn parts_may_have_names_with_back_slashes() {
    let parts = PackageParts::new(
        r#"<sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c></row><row r="2"><c r="A2"><v>1</v></c></row></sheetData>"#,
    );
    assert_eq!(describe(&parts.with_back_slashes().to_zip(), &xlsx()), "Sheet1: id\n1");
}

#[test]
fn a_merged_label_counts_for_each_of_its_rows() {
    let row = |number: u32, cells: &str| format!(r#"<row r="{number}">{cells}</row>"#);
    let number = |at: &str, value: u32| format!(r#"<c r="{at}"><v>{value}</v></c>"#);
    let rows = format!(
        r#"<sheetData>{}{}{}{}</sheetData><mergeCells><mergeCell ref="A2:A3"/><mergeCell ref="C2:C4"/></mergeCells>"#,
        row(1, &(text("A1", "state") + &text("B1", "size") + &text("C1", "sum"))),
        row(2, &(text("A2", "Ohio") + &number("B2", 1) + &number("C2", 6))),
        row(3, &number("B3", 2)),
        row(4, &(text("A4", "Iowa") + &number("B4", 3))),
    );
    check_sheet(
        &rows,
        None,
        "Sheet1: state|size|sum\n\"Ohio\"|1|6\n\"Ohio\"|2|-\n\"Iowa\"|3|-\n\
         (`Sheet1` has labels in merged cells (such as A2:A3): they count for each of their rows)\n\
         (`Sheet1` has merged cells (such as C2:C4): the first of them has the value, the others have none)",
    );
}

#[test]
fn a_distant_cell_costs_nothing() {
    let rows = format!(
        r#"<sheetData><row r="1">{}</row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>"#,
        text("A1", "a")
    );
    check_sheet(&rows, None, "Sheet1: a|\n-|1");
}

#[test]
fn an_excel_table_is_read_without_surrounding_cells() {
    let row = |n: u32, a: &str| {
        format!(r#"<row r="{n}"><c r="B{n}"><v>{a}</v></c><c r="D{n}"><v>99</v></c></row>"#)
    };
    let inside = format!(
        r#"<sheetData><row r="1">{}</row><row r="3">{}</row>{}{}{}{}</sheetData>
        <tableParts count="1"><tablePart r:id="rId1"/></tableParts>"#,
        text("A1", "a title"),
        text("B3", "b"),
        row(4, "1"),
        row(5, "2"),
        row(6, "3"),
        row(9, "4"),
    );
    let rels = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="x/table" Target="../tables/table1.xml"/></Relationships>"#;
    let parts = |table: &str| {
        let parts = PackageParts::new(&inside).with("xl/worksheets/_rels/sheet1.xml.rels", rels);
        describe(&parts.with("xl/tables/table1.xml", table).to_zip(), &xlsx())
    };
    assert_eq!(parts(r#"<table ref="B3:B6" totalsRowCount="1"/>"#), "Sheet1: b\n1\n2");
    assert_eq!(parts(r#"<table ref="B3:B6"/>"#), "Sheet1: b\n1\n2\n3");
    let all = "Sheet1: a title||\n-|\"b\"|-\n-|1|99\n-|2|99\n-|3|99\n-|4|99";
    assert_eq!(parts(r#"<table ref="B3:B6" headerRowCount="0"/>"#), all);
    assert_eq!(parts(r#"<table ref="B3:B6" totalsRowCount="9"/>"#), all);
}

#[test]
fn sheets_and_date_epoch_come_from_the_workbook() {
    let sheet = format!(
        r#"<sheetData><row r="1">{}</row><row r="2"><c r="A2" s="1"><v>1</v></c></row></sheetData>"#,
        text("A1", "day")
    );
    let parts = PackageParts::with_sheets(&[("One", &sheet), ("Two &amp; more", &sheet), ("Three", &sheet)]);
    let parts = parts
        .replacing("xl/workbook.xml", "<sheets>", r#"<workbookPr date1904="1"/><sheets>"#)
        .replacing("xl/workbook.xml", r#"name="Three""#, r#"name="Three" state="veryHidden""#);
    let expected = "One: day\n@1904-01-02\nTwo & more: day\n@1904-01-02\n`Three` is not served: it is hidden in the workbook";
    assert_eq!(describe(&parts.to_zip(), &xlsx()), expected);
    let parts = parts.replacing(
        "xl/_rels/workbook.xml.rels",
        "/worksheet\" Target=\"worksheets/sheet2",
        "/chartsheet\" Target=\"worksheets/sheet2",
    );
    let expected = "One: day\n@1904-01-02\n`Two & more` is not served: it is a chart or a macro sheet, without cells\n`Three` is not served: it is hidden in the workbook";
    assert_eq!(describe(&parts.to_zip(), &xlsx()), expected);
}

#[test]
fn tags_may_have_a_namespace_prefix() {
    let parts = PackageParts::new("<sheetData/>").with(
        "xl/worksheets/sheet1.xml",
        format!(
            r#"{}<x:worksheet xmlns:x="{}"><x:sheetData><x:row><x:c t="inlineStr"><x:is><x:t>a</x:t></x:is></x:c></x:row><x:row><x:c><x:v>1</x:v></x:c></x:row></x:sheetData></x:worksheet>"#,
            "\u{feff}",
            super::kit::MAIN
        ),
    );
    assert_eq!(describe(&parts.to_zip(), &xlsx()), "Sheet1: a\n1");
}

#[test]
fn styles_and_shared_strings_may_be_missing() {
    let inside = format!(
        r#"<sheetData><row r="1">{}</row><row r="2"><c r="A2" s="1"><v>5</v></c></row></sheetData>"#,
        text("A1", "a")
    );
    let parts = PackageParts::new(&inside).without("xl/styles.xml").without("xl/sharedStrings.xml");
    assert_eq!(describe(&parts.to_zip(), &xlsx()), "Sheet1: a\n5");
}

#[test]
fn a_header_row_that_looks_like_a_title_is_noticed() {
    let row = |number: u32, cells: &[&str]| {
        let cell = |content: &&str| match content.parse::<f64>() {
            _ if content.is_empty() => "<c/>".to_owned(),
            Ok(number) => format!("<c><v>{number}</v></c>"),
            Err(_) => format!("<c t=\"inlineStr\"><is><t>{content}</t></is></c>"),
        };
        let cells: String = cells.iter().map(cell).collect();
        format!("<row r=\"{number}\">{cells}</row>")
    };
    for (rows, expected) in [
        // Clear: it is left out.
        (vec![row(1, &["Report 2026"]), row(3, &["Region", "Q1", "Q2"]), row(4, &["A", "1", "2"])], None),
        // Perhaps a title, perhaps a column with a name and one without.
        (vec![row(1, &["Report"]), row(2, &["Region", "Place"]), row(3, &["A", "B"])], Some(2)),
        (vec![row(1, &["Report 2026"]), row(3, &["A", "1", "2"])], None),
        (vec![row(1, &["Region", "Q1"]), row(2, &["A", "B"])], None),
        (vec![row(1, &["Region"]), row(2, &["A"])], None),
    ] {
        let inside = format!("<sheetData>{}</sheetData>", rows.concat());
        let parsed =
            xlsx().load(&PackageParts::new(&inside).to_zip()).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(parsed.tables[0].likely_header_row, expected, "{inside}");
    }
}
