//! Excel tables: rows are added as in Excel, or refused with the reason. The workbooks were made by `tables/make.py`.

use std::io::Cursor;
use std::path::PathBuf;

use calamine::{Data, Reader as _, Xlsx};
use contract::ValueRef;
use contract::manifest::{Operation, WorkbookFormat};
use contract::source::{RowChange, Source, TableShape, WriteError};
use source::TableFile;
use source::sheets::{self, Options};
use tempfile::TempDir;

use crate::json::kit::{list, query_all, write};

struct TestBook {
    _folder: TempDir,
    path: PathBuf,
}

impl TestBook {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/sheets/tables").join(name);
        let path = folder.path().join("orders.xlsx");
        std::fs::copy(from, &path).unwrap();
        Self { _folder: folder, path }
    }

    fn open(&self) -> TableFile {
        sheets::open(&self.path, Options { poll_interval_ms: 0, ..Options::new(WorkbookFormat::Xlsx) })
    }

    fn part(&self, name: &str) -> String {
        let bytes = std::fs::read(&self.path).unwrap();
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        std::io::read_to_string(zip.by_name(name).unwrap()).unwrap()
    }
}

/// The shape of one sheet, with the item as the key.
fn sheet_shape(source: &TableFile, name: &str) -> TableShape {
    let facts = source.introspect().unwrap();
    let table = facts.tables.iter().find(|table| table.name == name).unwrap();
    TableShape { key: vec![0], ..crate::shape::shape_of(table) }
}

/// All rows, in the order of the sheet.
fn rows(source: &TableFile, name: &str) -> Vec<String> {
    let shape = TableShape { key: Vec::new(), ..sheet_shape(source, name) };
    list(&*source.reader(&shape).unwrap(), &shape, &query_all()).unwrap().0
}

fn create(source: &TableFile, item: &str, qty: i64, price: f64) -> Result<(), String> {
    let cells = [(0, ValueRef::Text(item)), (1, ValueRef::Integer(qty)), (2, ValueRef::Real(price))];
    let shape = sheet_shape(source, "Orders");
    match write(source, &shape, RowChange::Create { values: &cells }) {
        Ok(_) => Ok(()),
        Err(WriteError::Rejected { reason, .. }) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// The reasons why a sheet cannot get or lose rows.
fn refusals(source: &TableFile) -> [Option<String>; 2] {
    let facts = source.introspect().unwrap();
    [Operation::Create, Operation::Delete].map(|one| facts.tables[0].refusal(one).map(str::to_owned))
}

#[test]
fn a_table_grows_with_its_formulas_its_filter_and_its_rules() {
    let book = TestBook::new("xlsxwriter.xlsx");
    let source = book.open();
    assert_eq!(refusals(&source)[0], None);
    assert_eq!(rows(&source, "Summary"), [r#"{"what":"total","value":3.25}"#]);
    create(&source, "fig", 4, 2.5).unwrap();
    create(&source, "<&> \"kiwi\"", 1, 3.0).unwrap();
    for source in [&source, &book.open()] {
        assert_eq!(
            rows(source, "Orders")[2..],
            [
                r#"{"item":"plum","qty":10,"price":0.1,"total":1}"#,
                r#"{"item":"fig","qty":4,"price":2.5,"total":null}"#,
                r#"{"item":"<&> \"kiwi\"","qty":1,"price":3,"total":null}"#,
            ]
        );
        let orders = source.reader(&sheet_shape(source, "Orders")).unwrap();
        let notice = orders.notice().expect("totals are missing");
        assert!(notice.starts_with("2 cells on `Orders` (D5 first) are null until"), "{notice}");
        assert_eq!(rows(source, "Summary"), [r#"{"what":"total","value":null}"#], "a stale sum is withdrawn");
    }
    let table = book.part("xl/tables/table1.xml");
    assert!(
        table.contains(r#"ref="A1:D6" totalsRowShown"#) && table.contains(r#"<autoFilter ref="A1:D6"/>"#)
    );
    let sheet = book.part("xl/worksheets/sheet1.xml");
    for expected in [
        r#"<c r="D5"><f>Orders[[#This Row],[qty]]*Orders[[#This Row],[price]]</f></c>"#,
        r#"<c r="D6"><f>Orders[[#This Row],[qty]]*Orders[[#This Row],[price]]</f></c>"#,
        r#"<conditionalFormatting sqref="D2:D6">"#,
        r#"sqref="B2:B6"><formula1>"#,
        r#"<c r="G9" t="s">"#,
        r#"<sheetCalcPr fullCalcOnLoad="1"/>"#,
    ] {
        assert!(sheet.contains(expected), "{expected}: {sheet}");
    }
    let mut other: Xlsx<_> = calamine::open_workbook(&book.path).unwrap();
    other.load_tables().unwrap();
    let table = other.table_by_name("Orders").unwrap();
    let items: Vec<Data> = table.data().rows().map(|row| row[0].clone()).collect();
    assert_eq!(items, ["apple", "pear", "plum", "fig", "<&> \"kiwi\""].map(|item| Data::String(item.into())));
    let formulas = other.worksheet_formula("Orders").unwrap();
    assert_eq!(formulas.get_value((5, 3)).unwrap(), formulas.get_value((1, 3)).unwrap());
}

#[test]
fn relative_formulas_are_continued() {
    let book = TestBook::new("openpyxl.xlsx");
    let source = book.open();
    create(&source, "fig", 4, 2.5).unwrap();
    let sheet = book.part("xl/worksheets/sheet1.xml");
    assert!(sheet.contains(r#"<c r="D5"><f>B5*$C5</f></c>"#), "{sheet}");
    assert!(book.part("xl/tables/table1.xml").contains(r#"ref="A1:D5" headerRowCount"#));
}

#[test]
fn what_excel_would_have_to_do_more_for_is_refused() {
    let excel_table = "the sheet has an Excel table that would have to shrink";
    for (name, expected) in [
        ("totals.xlsx", "the Excel table `Orders` has a totals row, which would have to move"),
        ("covered.xlsx", "H1 may be computed from all rows of the Excel table `Orders`"),
        (
            "chart.xlsx",
            "a chart may show the rows of the Excel table `Orders`, and would not show the new one",
        ),
        ("two.xlsx", "the sheet has several Excel tables"),
    ] {
        let book = TestBook::new(name);
        let source = book.open();
        assert_eq!(refusals(&source), [Some(expected.to_owned()), Some(excel_table.to_owned())], "{name}");
        let before = std::fs::read(&book.path).unwrap();
        if name != "two.xlsx" {
            let reason = create(&source, "fig", 4, 2.5).unwrap_err();
            assert_eq!(reason, format!("{expected}; add rows in a spreadsheet program"));
        }
        assert_eq!(std::fs::read(&book.path).unwrap(), before, "{name}");
    }
    let book = TestBook::new("below.xlsx");
    let reason = create(&book.open(), "fig", 4, 2.5).unwrap_err();
    assert_eq!(reason, "row 7 below the Excel table has cells; add rows in a spreadsheet program");
}
