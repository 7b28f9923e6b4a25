//! Writes rows of a workbook on disk through the source.

use contract::manifest::WorkbookFormat;
use contract::source::{ColumnShape, IdempotencyKey, RowChange, Source, TableShape, WriteError};
use contract::{Value, ValueRef};
use source::TableFile;
use source::sheets::{self, Options};
use tempfile::TempDir;

use super::kit::{CellContent, workbook};
use crate::driver::{WriteOutcome, WriteRequest, WriteRow};
use crate::json::kit::{all_rows, columns, recording_checks, shape, write};

struct TestFile {
    folder: TempDir,
}

impl TestFile {
    fn new(rows: &[Vec<CellContent<'_>>]) -> Self {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(disk.path(), workbook(&[("People", rows)])).unwrap();
        disk
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("people.xlsx")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// The XML of the first sheet.
    fn sheet(&self) -> String {
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(self.bytes())).unwrap();
        std::io::read_to_string(zip.by_name("xl/worksheets/sheet1.xml").unwrap()).unwrap()
    }

    fn open(&self) -> TableFile {
        sheets::open(&self.path(), Options { poll_interval_ms: 0, ..Options::new(WorkbookFormat::Xlsx) })
    }
}

fn people() -> TestFile {
    use CellContent::{Boolean, Date, Empty, Number, Text};
    TestFile::new(&[
        vec![Text("id"), Text("name"), Text("born"), Text("ok"), Text("price")],
        vec![Number("1"), Text("Ada"), Date("1915-12-10"), Boolean(true), Number("1.5")],
        vec![Number("2"), Text("Bob"), Date("2001-02-03"), Boolean(false), Number("2")],
        vec![Number("3"), Text("=1+1"), Empty, Boolean(true), Number("0.1")],
    ])
}

#[test]
fn a_sheet_has_column_types() {
    let sheets = people().open();
    let disk = people();
    let table = disk.open().introspect().unwrap().tables.remove(0);
    assert_eq!(columns(&table), "id integer, name text, born date?, ok boolean, price number");
    assert_eq!((table.name.as_str(), table.row_count, table.read_only_reason()), ("People", Some(3), None));
    assert!(sheets.introspect().is_err(), "its folder is gone");
}

#[test]
fn rows_are_created_updated_and_deleted() {
    let disk = people();
    let sheets = disk.open();
    let shape = shape(&sheets);
    let cells = [
        (0, ValueRef::Integer(4)),
        (1, ValueRef::Text("+cmd|' /C calc'!A0")),
        (2, ValueRef::Text("2026-02-11")),
        (3, ValueRef::Integer(0)),
        (4, ValueRef::Real(0.25)),
    ];
    let (written, checks) = write(&sheets, &shape, RowChange::Create { values: &cells }).unwrap();
    assert_eq!(written, WriteOutcome::Done);
    let row = r#"{"id":4,"name":"+cmd|' /C calc'!A0","born":"2026-02-11","ok":false,"price":0.25}"#;
    assert_eq!(checks.after.as_deref(), Some(row));
    let key = [ValueRef::Integer(2)];
    let cells = [(1, ValueRef::Text("Bobby")), (2, ValueRef::Null)];
    write(&sheets, &shape, RowChange::Update { key: &key, values: &cells }).unwrap();
    write(&sheets, &shape, RowChange::Delete { key: &[ValueRef::Integer(1)] }).unwrap();
    let expected = [
        r#"{"id":2,"name":"Bobby","born":null,"ok":false,"price":2}"#,
        r#"{"id":3,"name":"=1+1","born":null,"ok":true,"price":0.1}"#,
        row,
    ];
    assert_eq!(all_rows(&sheets), expected);
    assert_eq!(all_rows(&disk.open()), expected);
}

#[test]
fn a_rejected_workbook_write_changes_nothing() {
    let disk = people();
    let sheets = disk.open();
    let shape = shape(&sheets);
    let before = disk.bytes();
    let long = "x".repeat(40_000);
    let update = |cell: (usize, ValueRef<'_>)| {
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &[cell] };
        match write(&sheets, &shape, change) {
            Err(WriteError::Rejected { column, reason: cause }) => format!("{column:?}: {cause}"),
            Err(error) => error.to_string(),
            Ok(_) => "written".to_owned(),
        }
    };
    for (cell, expected) in [
        ((1, ValueRef::Text(&long)), "Some(1): a cell of a workbook holds at most 32767 characters"),
        ((1, ValueRef::Text("a\0")), "Some(1): a workbook cannot hold a NUL"),
        (
            (2, ValueRef::Text("1815-12-10")),
            "Some(2): the column holds dates or times, and no cell of this column",
        ),
        ((4, ValueRef::Real(f64::INFINITY)), "Some(4): a workbook cannot hold infinite numbers"),
        ((4, ValueRef::Real(5e-324)), "Some(4): the number is too large or too small"),
        ((0, ValueRef::Integer(9_007_199_254_740_993)), "Some(0): a workbook stores only 53 bits"),
        ((0, ValueRef::Integer(2)), "a row with this key already exists"),
        ((0, ValueRef::Null), "Some(0): a key must have a value"),
    ] {
        let message = update(cell);
        assert!(message.starts_with(expected), "{cell:?}: {message}");
    }
    let gone = write(&sheets, &shape, RowChange::Delete { key: &[ValueRef::Integer(99)] });
    assert!(matches!(gone, Err(WriteError::NotFound)));
    assert_eq!(disk.bytes(), before);
}

/// Times, elapsed hours, dates with a word among them, and dates with times.
fn shifts() -> TestFile {
    use CellContent::{Date, Number, Styled, Text};
    TestFile::new(&[
        vec![Text("id"), Text("starts"), Text("lasts"), Text("day"), Text("seen")],
        vec![Number("1"), Styled(2, "0.375"), Styled(3, "1.5"), Date("2026-02-11"), Styled(4, "46064.5")],
        vec![Number("2"), Styled(2, "0.5"), Styled(3, "0.25"), Text("soon"), Styled(4, "46065.5")],
    ])
}

#[test]
fn an_equal_time_is_not_rewritten() {
    let disk = shifts();
    let sheets = disk.open();
    let (shape, before) = (shape(&sheets), disk.bytes());
    for cell in [(1, "09:00:00"), (2, "36:00:00"), (3, "2026-02-11"), (4, "2026-02-11T12:00:00")] {
        let cells = [(cell.0, ValueRef::Text(cell.1))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        let (_, checks) = write(&sheets, &shape, change).unwrap();
        assert_eq!(checks.before, checks.after);
        assert_eq!(disk.bytes(), before, "{cell:?}");
    }
}

#[test]
fn times_are_written_as_times() {
    use CellContent::Number;
    let disk = shifts();
    let sheets = disk.open();
    let shape = shape(&sheets);
    let day = [(3, ValueRef::Text("later"))];
    let update = RowChange::Update { key: &[ValueRef::Integer(2)], values: &day };
    write(&sheets, &shape, update).unwrap();
    assert!(disk.sheet().contains("later"));
    let cells = [
        (1, ValueRef::Text("09:00:02")),
        (2, ValueRef::Text("100:00:00")),
        (3, ValueRef::Text("2026-03-01")),
        (4, ValueRef::Text("2026-03-01T06:00:00")),
    ];
    let update = RowChange::Update { key: &[ValueRef::Integer(2)], values: &cells };
    write(&sheets, &shape, update).unwrap();
    let cells = [&[(0, ValueRef::Integer(3))], &cells[..]].concat();
    write(&sheets, &shape, RowChange::Create { values: &cells }).unwrap();
    let sheet = disk.sheet();
    for row in [3, 4] {
        let cells = format!(
            r#"<c r="B{row}" s="2"><v>0.37502314814814813</v></c><c r="C{row}" s="3"><v>4.166666666666667</v></c><c r="D{row}" s="1"><v>46082</v></c><c r="E{row}" s="4"><v>46082.25</v></c>"#
        );
        assert!(sheet.contains(&cells), "{cells} in {sheet}");
    }
    let expected =
        r#","starts":"09:00:02","lasts":"100:00:00","day":"2026-03-01","seen":"2026-03-01T06:00:00"}"#;
    assert_eq!(all_rows(&sheets)[1..], [2, 3].map(|id| format!(r#"{{"id":{id}{expected}"#)));
    // In a column without times, a text is a text, whatever it looks like.
    let bare = TestFile::new(&[
        vec![CellContent::Text("id"), CellContent::Text("at")],
        vec![Number("1"), CellContent::Text("x")],
    ]);
    let at = [(1, ValueRef::Text("09:00:00"))];
    let sheets = bare.open();
    write(&sheets, &self::shape(&sheets), RowChange::Update { key: &[ValueRef::Integer(1)], values: &at })
        .unwrap();
    assert_eq!(all_rows(&sheets), [r#"{"id":1,"at":"09:00:00"}"#]);
}

#[test]
fn a_text_that_is_not_a_time_is_rejected_among_times() {
    let disk = shifts();
    let sheets = disk.open();
    let (shape, before) = (shape(&sheets), disk.bytes());
    for (place, text, expected) in [
        (1, "noon", "the column holds dates or times"),
        (1, "09:30", "write it with its seconds: `09:30:00`"),
        (1, "25:00:00", "the column holds dates or times"),
        (1, "9:30:00", "the column holds dates or times"),
        (2, "a while", "the column holds dates or times"),
        (3, "2026-02-30", "written"),
        (3, "1815-12-10", "the column holds dates or times"),
        (3, "10:00:00", "the column holds dates or times"),
        (4, "2026-01-01 10:00:00", "write it with a T between day and time: `2026-01-01T10:00:00`"),
        (4, "2026-01-01T10:00:00Z", "the column holds dates or times"),
    ] {
        let cells = [(place, ValueRef::Text(text))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        let write =
            WriteRequest { change, idempotency_key: None, dry_run: true, now_ms: 1000, cancelled: None };
        let message = match sheets.writer(&shape).unwrap().write(&write, &mut recording_checks(&shape)) {
            Err(WriteError::Rejected { column, reason: cause }) if column == Some(place) => cause,
            Err(error) => format!("{error:?}"),
            Ok(_) => "written".to_owned(),
        };
        assert!(message.starts_with(expected), "{text}: {message}");
    }
    assert_eq!(disk.bytes(), before);
}

#[test]
fn a_key_applies_once_and_a_dry_run_not_at_all() {
    let disk = people();
    let sheets = disk.open();
    let shape = shape(&sheets);
    let writer = sheets.writer(&shape).unwrap();
    let cells = [
        (0, ValueRef::Integer(7)),
        (1, ValueRef::Text("G")),
        (3, ValueRef::Integer(1)),
        (4, ValueRef::Integer(1)),
    ];
    let repeat_key = Some(IdempotencyKey { key_digest: [1; 32], request_digest: [2; 32] });
    let ask = |dry_run| {
        let write = WriteRequest {
            change: RowChange::Create { values: &cells },
            idempotency_key: repeat_key,
            dry_run,
            now_ms: 1000,
            cancelled: None,
        };
        writer.write(&write, &mut recording_checks(&shape)).unwrap()
    };
    let before = disk.bytes();
    assert_eq!(ask(true), WriteOutcome::Done);
    assert_eq!(disk.bytes(), before);
    assert_eq!(ask(false), WriteOutcome::Done);
    let once = disk.bytes();
    let row = br#"{"id":7,"name":"G","born":null,"ok":true,"price":1}"#.to_vec();
    assert_eq!(ask(false), WriteOutcome::Replayed(row));
    assert_eq!(disk.bytes(), once);
    assert_eq!(all_rows(&sheets).len(), 4);
}

#[test]
fn computed_columns_are_read_but_not_written() {
    use CellContent::{Formula, Number, Text};
    let disk = TestFile::new(&[
        vec![Text("id"), Text("n"), Text("twice")],
        vec![Number("1"), Number("2"), Formula("B2*2", "4")],
        vec![Number("2"), Number("3"), Formula("B3*2", "6")],
    ]);
    let sheets = disk.open();
    let facts = sheets.introspect().unwrap();
    let cause = facts.tables[0].columns[2].read_only_reason.as_deref();
    assert_eq!(cause, Some("it is computed by a formula"));
    let shape = shape(&sheets);
    let message = |cell: (usize, ValueRef<'_>)| {
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &[cell] };
        write(&sheets, &shape, change).err().map(|error| error.to_string())
    };
    assert_eq!(message((2, ValueRef::Integer(9))).as_deref(), Some("it is computed by a formula"));
    let stale = "C2 may be computed from B2; make this change in a spreadsheet program, which recomputes it";
    assert_eq!(message((1, ValueRef::Integer(9))).as_deref(), Some(stale));
    assert_eq!(message((0, ValueRef::Integer(9))), None);
    assert_eq!(all_rows(&sheets), [r#"{"id":9,"n":2,"twice":4}"#, r#"{"id":2,"n":3,"twice":6}"#]);
}

/// A contract that declares digits as decimals.
#[test]
fn decimals_are_exact_or_rejected() {
    let disk = people();
    let sheets = disk.open();
    let mut shape = shape(&sheets);
    shape.columns[4] = ColumnShape { data_type: contract::DataType::Decimal, ..shape.columns[4].clone() };
    let update = |shape: &TableShape, digits: &str| {
        let cells = [(4, ValueRef::Text(digits))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        write(&sheets, shape, change).map(|(_, checks)| checks.after.unwrap())
    };
    assert!(update(&shape, "12.25").unwrap().contains(r#""price":"12.25""#));
    assert!(update(&shape, "0.1").unwrap().contains(r#""price":"0.1""#));
    let refused = update(&shape, "12345678901234567.8901").unwrap_err();
    assert!(refused.to_string().starts_with("a workbook stores about 15 digits"), "{refused}");
    assert!(update(&shape, "1.50").is_err(), "it would read back as 1.5");
}

/// A row whose key is outdated cannot be found, but it exists.
#[test]
fn a_outdated_key_is_reported_where_a_row_is_not_found() {
    use CellContent::{Formula, Number, Text};
    let items = [vec![Text("id"), Text("name")], vec![Number("1"), Text("a")], vec![Number("2"), Text("b")]];
    let keyed = [
        vec![Text("sku"), Text("stock")],
        vec![Formula("Items!A2", "1"), Number("7")],
        vec![Formula("Items!A3", "2"), Number("8")],
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.xlsx");
    std::fs::write(&path, workbook(&[("Items", &items), ("Keyed", &keyed)])).unwrap();
    let sheets = sheets::open(&path, Options { poll_interval_ms: 0, ..Options::new(WorkbookFormat::Xlsx) });
    let facts = sheets.introspect().unwrap();
    let [items, keyed] = [0, 1].map(|at| crate::shape::shape_of(&facts.tables[at]));
    let reader = sheets.reader(&keyed).unwrap();
    let is_found = || reader.get(&[ValueRef::Integer(1)], &mut |_| {}).unwrap();
    assert_eq!((is_found(), reader.key_notice()), (true, None));
    let cells = [(1, ValueRef::Text("c"))];
    write(&sheets, &items, RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells }).unwrap();
    assert!(!is_found());
    let notice = reader.key_notice().expect("the key is outdated");
    assert!(notice.contains("on `Keyed` (A2 first) are null until"), "{notice}");
    assert_eq!(sheets.reader(&items).unwrap().key_notice(), None);
}

/// The cached value of a formula on another sheet would be wrong after a write.
#[test]
fn a_write_invalidates_values_computed_from_it_on_other_sheets() {
    use CellContent::{Formula, Number, Text};
    let items =
        [vec![Text("id"), Text("price")], vec![Number("1"), Number("10")], vec![Number("2"), Number("20")]];
    let totals = [
        vec![Text("name"), Text("value")],
        vec![Text("sum"), Formula("SUM(Items!B2:B6)", "30")],
        vec![Text("rate"), Number("7")],
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.xlsx");
    std::fs::write(&path, workbook(&[("Items", &items), ("Totals", &totals)])).unwrap();
    let options = Options { poll_interval_ms: 0, ..Options::new(WorkbookFormat::Xlsx) };
    let sheets = sheets::open(&path, options.clone());
    let facts = sheets.introspect().unwrap();
    let [items, totals] = [0, 1].map(|at| crate::shape::shape_of(&facts.tables[at]));
    assert!(totals.columns[1].nullable, "its values may be outdated");
    let reader = sheets.reader(&totals).unwrap();
    let values = || {
        ["sum", "rate"].map(|name| {
            let mut value = None;
            reader.get(&[ValueRef::Text(name)], &mut |cells| value = Some(cells[1].to_value())).unwrap();
            value.unwrap()
        })
    };
    assert_eq!((values(), reader.notice()), ([Value::Integer(30), Value::Integer(7)], None));
    let cells = [(1, ValueRef::Integer(15))];
    let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
    let (_, checks) = write(&sheets, &items, change).unwrap();
    let notice = "B2 on `Totals` is null until a spreadsheet program recalculates the workbook: its formula may depend on \
                  cells that were written since it was last calculated";
    assert_eq!(checks.notices, [notice]);
    assert_eq!((values(), reader.notice().as_deref()), ([Value::Null, Value::Integer(7)], Some(notice)));
    // The next write invalidates nothing more.
    let cells = [(1, ValueRef::Integer(16))];
    let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
    assert_eq!(write(&sheets, &items, change).unwrap().1.notices, Vec::<String>::new());
    // After a restart the contract is the same, and the value is still outdated.
    let again = sheets::open(&path, options);
    let facts = again.introspect().unwrap();
    assert_eq!(format!("{:?}", crate::shape::shape_of(&facts.tables[1])), format!("{totals:?}"));
    assert_eq!(facts.notes, [notice]);
    assert_eq!(again.reader(&totals).unwrap().notice().as_deref(), Some(notice));
}
