//! Rows of a workbook on disk, written through the source.

use contract::ValueRef;
use contract::manifest::WorkbookFormat;
use contract::source::{
    ColumnShape, IdempotencyKey, RowChange, Source, TableShape, WriteError, WriteOutcome, WriteRequest,
};
use source::TableFile;
use source::sheets::{self, Options};
use tempfile::TempDir;

use super::kit::{CellContent, workbook};
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

    /// What the first sheet's part has.
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
fn a_sheet_has_kinds() {
    let sheets = people().open();
    let disk = people();
    let table = disk.open().introspect().unwrap().tables.remove(0);
    assert_eq!(columns(&table), "id integer, name text, born date?, ok boolean, price number");
    assert_eq!(
        (table.name.as_str(), table.row_count, table.read_only_reason.as_deref()),
        ("People", Some(3), None)
    );
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
    let (written, clerk) = write(&sheets, &shape, RowChange::Create { values: &cells }).unwrap();
    assert_eq!(written, WriteOutcome::Done);
    let row = r#"{"id":4,"name":"+cmd|' /C calc'!A0","born":"2026-02-11","ok":false,"price":0.25}"#;
    assert_eq!(clerk.after.as_deref(), Some(row));
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
fn what_cannot_be_written_changes_nothing() {
    let disk = people();
    let sheets = disk.open();
    let shape = shape(&sheets);
    let before = disk.bytes();
    let long = "x".repeat(40_000);
    let update = |cell: (usize, ValueRef<'_>)| {
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &[cell] };
        match write(&sheets, &shape, change) {
            Err(WriteError::Rejected { column, reason: why }) => format!("{column:?}: {why}"),
            Err(fault) => fault.to_string(),
            Ok(_) => "written".to_owned(),
        }
    };
    for (cell, expected) in [
        ((1, ValueRef::Text(&long)), "Some(1): a cell of a workbook holds 32767 characters"),
        ((1, ValueRef::Text("a\0")), "Some(1): a workbook has no NUL"),
        (
            (2, ValueRef::Text("1815-12-10")),
            "Some(2): the column holds dates or times, and no cell of this column",
        ),
        ((4, ValueRef::Real(f64::INFINITY)), "Some(4): a workbook has no infinite numbers"),
        ((4, ValueRef::Real(5e-324)), "Some(4): the number is too large or too small"),
        ((0, ValueRef::Integer(9_007_199_254_740_993)), "Some(0): a workbook keeps no more than 53 bits"),
        ((0, ValueRef::Integer(2)), "a row with this key already exists"),
        ((0, ValueRef::Null), "Some(0): a key must have a value"),
    ] {
        let told = update(cell);
        assert!(told.starts_with(expected), "{cell:?}: {told}");
    }
    let gone = write(&sheets, &shape, RowChange::Delete { key: &[ValueRef::Integer(99)] });
    assert!(matches!(gone, Err(WriteError::NotFound)));
    assert_eq!(disk.bytes(), before);
}

/// Times, hours that go on, days among which stands a word, and moments.
fn shifts() -> TestFile {
    use CellContent::{Date, Number, Styled, Text};
    TestFile::new(&[
        vec![Text("id"), Text("starts"), Text("lasts"), Text("day"), Text("seen")],
        vec![Number("1"), Styled(2, "0.375"), Styled(3, "1.5"), Date("2026-02-11"), Styled(4, "46064.5")],
        vec![Number("2"), Styled(2, "0.5"), Styled(3, "0.25"), Text("soon"), Styled(4, "46065.5")],
    ])
}

#[test]
fn a_time_that_is_there_already_is_left_alone() {
    let disk = shifts();
    let sheets = disk.open();
    let (shape, before) = (shape(&sheets), disk.bytes());
    for cell in [(1, "09:00:00"), (2, "36:00:00"), (3, "2026-02-11"), (4, "2026-02-11T12:00:00")] {
        let cells = [(cell.0, ValueRef::Text(cell.1))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        let (_, clerk) = write(&sheets, &shape, change).unwrap();
        assert_eq!(clerk.before, clerk.after);
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
    // Where there are no times a text is a text, whatever it looks like.
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
fn what_is_no_time_is_not_written_among_times() {
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
        let told = match sheets.writer(&shape).unwrap().write(&write, &mut recording_checks(&shape)) {
            Err(WriteError::Rejected { column, reason: why }) if column == Some(place) => why,
            Err(fault) => format!("{fault:?}"),
            Ok(_) => "written".to_owned(),
        };
        assert!(told.starts_with(expected), "{text}: {told}");
    }
    assert_eq!(disk.bytes(), before);
}

#[test]
fn a_claim_is_kept_once_and_a_dry_run_is_not() {
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
    let claim = Some(IdempotencyKey { key_digest: [1; 32], request_digest: [2; 32] });
    let ask = |dry_run| {
        let write = WriteRequest {
            change: RowChange::Create { values: &cells },
            idempotency_key: claim,
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
fn computed_columns_are_told_and_not_written() {
    use CellContent::{Formula, Number, Text};
    let disk = TestFile::new(&[
        vec![Text("id"), Text("n"), Text("twice")],
        vec![Number("1"), Number("2"), Formula("B2*2", "4")],
        vec![Number("2"), Number("3"), Formula("B3*2", "6")],
    ]);
    let sheets = disk.open();
    let facts = sheets.introspect().unwrap();
    let why = facts.tables[0].columns[2].read_only_reason.as_deref();
    assert_eq!(why, Some("it is computed by a formula"));
    let shape = shape(&sheets);
    let told = |cell: (usize, ValueRef<'_>)| {
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &[cell] };
        write(&sheets, &shape, change).err().map(|fault| fault.to_string())
    };
    assert_eq!(told((2, ValueRef::Integer(9))).as_deref(), Some("it is computed by a formula"));
    let stale = "C2 may be computed from B2, and only a spreadsheet program computes it anew";
    assert_eq!(told((1, ValueRef::Integer(9))).as_deref(), Some(stale));
    assert_eq!(told((0, ValueRef::Integer(9))), None);
    assert_eq!(all_rows(&sheets), [r#"{"id":9,"n":2,"twice":4}"#, r#"{"id":2,"n":3,"twice":6}"#]);
}

/// A contract that calls digits decimals, and keeps what a workbook keeps of them.
#[test]
fn decimals_are_exact_or_refused() {
    let disk = people();
    let sheets = disk.open();
    let mut shape = shape(&sheets);
    shape.columns[4] = ColumnShape { data_type: contract::DataType::Decimal, ..shape.columns[4].clone() };
    let update = |shape: &TableShape, digits: &str| {
        let cells = [(4, ValueRef::Text(digits))];
        let change = RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        write(&sheets, shape, change).map(|(_, clerk)| clerk.after.unwrap())
    };
    assert!(update(&shape, "12.25").unwrap().contains(r#""price":"12.25""#));
    assert!(update(&shape, "0.1").unwrap().contains(r#""price":"0.1""#));
    let refused = update(&shape, "12345678901234567.8901").unwrap_err();
    assert!(refused.to_string().starts_with("a workbook keeps about 15 digits"), "{refused}");
    assert!(update(&shape, "1.50").is_err(), "it would read back as 1.5");
}
