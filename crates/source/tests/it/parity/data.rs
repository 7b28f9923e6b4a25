//! The test table, as texts.

use contract::DataType;
use contract::source::{ColumnShape, TableShape};

pub const TABLE: &str = "people";

#[derive(Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: DataType,
    pub nullable: bool,
}

const fn column(name: &'static str, kind: DataType, nullable: bool) -> Column {
    Column { name, kind, nullable }
}

pub const COLUMNS: [Column; 9] = [
    column("id", DataType::Integer, false),
    column("team", DataType::Text, false),
    column("score", DataType::Number, true),
    column("day", DataType::Date, true),
    column("at", DataType::Timestamp, true),
    column("local", DataType::LocalTimestamp, true),
    column("ok", DataType::Boolean, true),
    column("big", DataType::Int64, true),
    column("note", DataType::Text, false),
];

/// `None` is no value. Rows that are equal in one column differ in another.
#[rustfmt::skip]
pub const ROWS: [[Option<&str>; 9]; 16] = [
    [Some("7"), Some("red"), Some("1.5"), Some("2026-02-28"), Some("2026-02-11T10:00:00+02:00"), Some("2026-02-11T10:00:00"), Some("true"), Some("9007199254740993"), Some("a text, with \"quotes\"")],
    [Some("-3"), Some("blue"), Some("-3"), Some("2025-12-01"), Some("2026-02-11T09:00:00Z"), Some("2026-02-11 10:00:00.5"), Some("false"), Some("1"), Some("two\nlines")],
    [Some("100"), Some("red"), None, None, None, None, None, None, Some("")],
    [Some("12"), Some("Red"), Some("10"), Some("1999-01-01"), Some("2026-02-11T08:00:00Z"), Some("2026-02-11T09:59:59"), Some("true"), Some("-9223372036854775808"), Some("Größe")],
    [Some("5"), Some("green"), Some("9"), Some("2026-02-28"), Some("2026-02-11T08:30:00.25Z"), None, Some("true"), Some("9223372036854775807"), Some("größer als 9")],
    [Some("50"), Some("blue"), Some("9.25"), Some("2026-02-27"), None, Some("2025-01-01T00:00:00"), Some("false"), Some("9007199254740992"), Some("100%_'; --")],
    [Some("6"), Some("red"), Some("-0.125"), Some("2024-02-29"), Some("1969-12-31T23:59:59Z"), Some("1969-12-31T23:59:59"), None, Some("0"), Some("🦀 crab")],
    [Some("8"), Some("x"), Some("0"), Some("2026-02-28"), Some("2026-02-11T10:00:00+02:00"), Some("2026-02-11T10:00:00"), Some("false"), Some("-1"), Some("NULL")],
    [Some("9"), Some("green"), Some("100000.5"), None, Some("2026-02-11T07:59:59.999999999Z"), Some("2030-06-01T12:00:00"), Some("true"), None, Some("007")],
    [Some("10"), Some("blue"), Some("1.25"), Some("2026-10-01"), Some("2026-06-01T00:00:00-05:00"), Some("2026-02-11T10:00:01"), Some("false"), Some("10"), Some("7")],
    [Some("11"), Some("red"), None, Some("2026-09-30"), None, None, Some("true"), Some("9"), Some("true")],
    [Some("-20"), Some("y"), Some("-3"), Some("2000-01-01"), Some("2000-01-01T00:00:00Z"), Some("2000-01-01T00:00:00"), None, Some("100"), Some(" spaces ")],
    [Some("21"), Some("red"), Some("1.5"), Some("2026-02-28"), Some("2026-02-11T08:00:00Z"), Some("2026-02-11 10:00:00"), Some("true"), Some("9007199254740991"), Some("a text of the same beginning, 1")],
    [Some("22"), Some("blue"), Some("2"), Some("2026-03-01"), Some("2027-01-01T00:00:00Z"), None, Some("false"), None, Some("a text of the same beginning, 2")],
    [Some("9007199254740991"), Some("z"), Some("3"), None, None, None, Some("false"), Some("7"), Some("[1,2]")],
    [Some("-9007199254740991"), Some("Z"), Some("1000000"), Some("2026-02-26"), Some("2026-02-11T08:00:01Z"), Some("2026-02-11T08:00:01"), Some("true"), Some("8"), Some("2026-02-28")],
];

pub fn shape(is_keyed: bool) -> TableShape {
    let columns = COLUMNS.iter().enumerate().map(|(at, column)| ColumnShape {
        source_index: at,
        name: column.name.to_owned(),
        data_type: column.kind,
        nullable: column.nullable,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    });
    TableShape {
        table: TABLE.to_owned(),
        columns: columns.collect(),
        key: if is_keyed { vec![0] } else { Vec::new() },
    }
}
