//! Formulas that refer to several sheets or to Excel tables: what a write makes stale, and what it may not change.

use super::super::Options;
use super::kit::{PackageParts, cell_update, describe, xlsx};
use crate::tables::{FileFormat, RowEdit, StoredValue};

/// A sheet of a header row and rows of cells: each a text in quotes, a number, or a formula after `=`.
fn sheet(rows: &[&[&str]]) -> String {
    let cell = |(column, content): (usize, &&str)| match (content.strip_prefix('='), content.parse::<f64>()) {
        (Some(formula), _) => format!("<c><f>{}</f><v>7</v></c>", formula.replace('&', "&amp;")),
        (None, Ok(number)) => format!("<c><v>{number}</v></c>"),
        (None, Err(_)) => {
            let column = (b'A' + column as u8) as char;
            format!("<c t=\"inlineStr\"><is><t>{}</t></is></c>", content.replace('@', &column.to_string()))
        }
    };
    let row = |(at, cells): (usize, &&[&str])| {
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<row r=\"{}\">{cells}</row>", at + 1)
    };
    let rows: String = rows.iter().enumerate().map(row).collect();
    format!("<sheetData>{rows}</sheetData>")
}

/// What is read after a change, or why it is refused.
fn after(parts: &PackageParts, table: usize, edit: &RowEdit<'_>) -> String {
    match xlsx().rewrite(&parts.to_zip(), table, edit) {
        Ok(bytes) => describe(&bytes, &xlsx()),
        Err(error) => format!("refused: {error}"),
    }
}

fn check(parts: &PackageParts, table: usize, edit: &RowEdit<'_>, expected: &str) {
    let result = after(parts, table, edit);
    let rows: Vec<&str> = result.lines().filter(|line| !line.starts_with('(')).collect();
    assert_eq!(rows.join("\n"), expected);
}

/// `Jan 26` to `Mar 26`, and `Year` with this formula.
fn months(own: &str, year: &str) -> PackageParts {
    let month = sheet(&[&["pos", "amount", "quarter"], &["a", "1", own], &["b", "2", "9"]]);
    let year = sheet(&[&["pos", "sum"], &["a", year]]);
    PackageParts::with_sheets(&[("Jan 26", &month), ("Feb 26", &month), ("Mar 26", &month), ("Year", &year)])
}

const SET_AMOUNT: &[crate::tables::CellUpdate<'_>] =
    &[crate::tables::CellUpdate { column: 1, name: "", value: StoredValue::Integer(5) }];

#[test]
fn a_reference_over_several_sheets_is_seen_on_each_of_them() {
    let refused =
        "refused: C2 may be computed from B2; make this change in a spreadsheet program, which recomputes it";
    for reference in ["'Jan 26:Mar 26'!B2", "'jan 26:mar 26'!B1:B3", "'Mar 26:Jan 26'!B:B"] {
        let parts = months(&format!("=SUM({reference})"), "1");
        check(&parts, 1, &RowEdit::Set { row: 0, updates: SET_AMOUNT }, refused);
    }
    // The other months and the year are computed from it, too.
    let parts = months("7", "=SUM('Jan 26:Mar 26'!B2)");
    let months = |feb: &str| {
        let others = "pos|amount|quarter\n\"a\"|1|7\n\"b\"|2|9";
        format!(
            "Jan 26: {others}\nFeb 26: {}\nMar 26: {others}\nYear: pos|sum\n\"a\"|-",
            others.replace("|1|", feb)
        )
    };
    check(&parts, 1, &RowEdit::Set { row: 0, updates: SET_AMOUNT }, &months("|5|"));
    // A sheet that is not between them.
    let parts = self::months("=SUM('Mar 26:Year'!B2)", "1");
    let read = after(&parts, 0, &RowEdit::Set { row: 0, updates: SET_AMOUNT });
    assert!(read.starts_with("Jan 26: pos|amount|quarter\n\"a\"|5|7\n"), "{read}");
}

#[test]
fn a_row_that_a_reference_over_several_sheets_contains_is_not_removed() {
    let refused = "refused: rows would move, and B2 on `Year` may be computed from them; make this change in a spreadsheet \
                   program";
    for formula in ["=SUM('Jan 26:Mar 26'!B3)", "=SUM('Feb 26:Mar 26'!B:B)"] {
        check(&months("7", formula), 1, &RowEdit::Remove { row: 0 }, refused);
    }
    // Not one of the sheets, or not as far down.
    for formula in ["=SUM('Mar 26:Year'!B3)", "=SUM('Jan 26:Mar 26'!B1)"] {
        let read = after(&months("7", formula), 1, &RowEdit::Remove { row: 0 });
        assert!(read.contains("Feb 26: pos|amount|quarter\n\"b\"|2|9\n"), "{read}");
    }
}

/// `Plain`, and `Orders` with a table in which `total` has this formula; `Sums` refers to it.
fn orders(total: &str, sum: &str) -> PackageParts {
    let plain = sheet(&[&["id", "text"], &["1", "x"], &["2", "y"]]);
    let orders = sheet(&[&["no", "qty", "price", "total"], &["a", "2", "3", total], &["b", "4", "5", total]])
        + r#"<tableParts count="1"><tablePart r:id="rId1"/></tableParts>"#;
    let sums = sheet(&[&["what", "sum"], &["all", sum]]);
    let rels = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="x/table" Target="../tables/table1.xml"/></Relationships>"#;
    let table = r#"<table name="T1" displayName="Orders" ref="A1:D3"><tableColumns count="4"><tableColumn id="1" name="no"/><tableColumn id="2" name="qty"/><tableColumn id="3" name="price"/><tableColumn id="4" name="total"/></tableColumns></table>"#;
    PackageParts::with_sheets(&[("Plain", &plain), ("Orders", &orders), ("Sums", &sums)])
        .with("xl/worksheets/_rels/sheet2.xml.rels", rels)
        .with("xl/tables/table1.xml", table)
}

const TOTALS: [&str; 3] = [
    "=Orders[[#This Row],[qty]]*Orders[[#This Row],[price]]",
    "=[@qty]*[@price]",
    "=INDEX(Orders[qty],1)+SUBTOTAL(109,[price])",
];

#[test]
fn a_write_leaves_values_that_are_computed_from_a_table_elsewhere() {
    for total in TOTALS {
        for sum in
            ["=SUM(Orders[qty])", "=INDEX(Orders[total],MATCH(\"b\",Orders[no],0))", "=SUM(Orders[#All])"]
        {
            let parts = orders(total, sum);
            let text = [cell_update(1, StoredValue::Text("z"))];
            let tables = "Orders: no|qty|price|total\n\"a\"|2|3|7\n\"b\"|4|5|7\nSums: what|sum\n\"all\"|7";
            let expected = format!("Plain: id|text\n1|\"z\"\n2|\"y\"\n{tables}");
            check(&parts, 0, &RowEdit::Set { row: 0, updates: &text }, &expected);
            let expected = format!("Plain: id|text\n2|\"y\"\n{tables}");
            check(&parts, 0, &RowEdit::Remove { row: 0 }, &expected);
        }
    }
    // What refers to the sheet that is written, or may do so, is outdated.
    for sum in ["=SUM(Plain!A:A)", "=OFFSET(Orders[qty],1,1)", "=SUM(Gone[qty])"] {
        let text = [cell_update(1, StoredValue::Text("z"))];
        let read = after(&orders(TOTALS[0], sum), 0, &RowEdit::Set { row: 0, updates: &text });
        assert!(read.contains("Sums: what|sum\n\"all\"|-\n"), "{sum}: {read}");
    }
}

#[test]
fn a_write_to_a_table_invalidates_what_is_computed_from_it() {
    let parts = orders("=[@qty]*2", "=SUM(Orders[qty])");
    let price = [cell_update(2, StoredValue::Integer(9))];
    let expected = "Plain: id|text\n1|\"x\"\n2|\"y\"\nOrders: no|qty|price|total\n\"a\"|2|9|7\n\"b\"|4|5|7\n\
                    Sums: what|sum\n\"all\"|-";
    check(&parts, 1, &RowEdit::Set { row: 0, updates: &price }, expected);
    let refused =
        "refused: D2 may be computed from B2; make this change in a spreadsheet program, which recomputes it";
    check(&parts, 1, &RowEdit::Set { row: 0, updates: SET_AMOUNT }, refused);
}

#[test]
fn values_computed_within_a_table_are_missing_in_its_new_rows_only() {
    for (total, sum, expected) in [
        (TOTALS[0], "1", [vec![], vec![3], vec![]]),
        (TOTALS[1], "=SUM(Orders[qty])", [vec![], vec![3], vec![1]]),
        ("=Plain!A2", "1", [vec![], vec![3], vec![]]),
    ] {
        let parsed =
            Options::load(&xlsx(), &orders(total, sum).to_zip()).unwrap_or_else(|error| panic!("{error:?}"));
        let columns: Vec<_> = parsed.tables.iter().map(|table| table.may_be_outdated.clone()).collect();
        assert_eq!(columns, expected, "{total} {sum}");
    }
}
