//! Columns that can hold each type of value, in each kind of file, as other programs create them.

use std::path::Path;

use contract::DataType;
use contract::manifest::{FormulaPolicy, WorkbookFormat};
use contract::source::{Source, TableOptions};
use rust_xlsxwriter::{Format, Workbook as OtherBook};
use source::csv::{self, Csv};
use source::json::{self, JsonLayout};
use source::sheets;
use source::sqlite::{self, Sqlite};

use super::values::{BYTES_BASE64, DAY, DECIMAL, LINES, LOCAL, NESTED, ZONED, long};
use crate::sheets::kit::{self, CellContent as Cell};

pub const TABLE: &str = "t";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Sqlite,
    Csv,
    Xlsx,
    Lines,
    Document,
}

impl Store {
    pub const ALL: [Self; 5] = [Self::Sqlite, Self::Csv, Self::Xlsx, Self::Lines, Self::Document];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Csv => "CSV",
            Self::Xlsx => "XLSX",
            Self::Lines => "JSON Lines",
            Self::Document => "JSON",
        }
    }

    pub fn file(self) -> &'static str {
        match self {
            Self::Sqlite => "t.db",
            Self::Csv => "t.csv",
            Self::Xlsx => "t.xlsx",
            Self::Lines => "t.jsonl",
            Self::Document => "t.json",
        }
    }

    pub fn open(self, path: &Path, variant: &ColumnVariant) -> Box<dyn Source> {
        match self {
            Self::Sqlite => Box::new(Sqlite::new(path, sqlite::Options::default())),
            Self::Csv => {
                let formulas =
                    if variant.keeps_formulas { FormulaPolicy::Keep } else { FormulaPolicy::Refuse };
                let null = variant.null.map(str::to_owned);
                Box::new(Csv::open(
                    path,
                    csv::Options {
                        formulas,
                        table: TableOptions {
                            null_texts: null.into_iter().collect(),
                            ..TableOptions::default()
                        },
                        ..csv::Options::default()
                    },
                ))
            }
            Self::Xlsx => Box::new(sheets::open(path, sheets::Options::new(WorkbookFormat::Xlsx))),
            Self::Lines => Box::new(json::open(path, json::Options::new(JsonLayout::Lines))),
            Self::Document => {
                Box::new(json::open(path, json::Options::new(JsonLayout::Document { pointer: None })))
            }
        }
    }

    /// A file with one table, the columns `k` and `v`, and the row `old`, whose `v` another program wrote.
    pub fn make(self, path: &Path, variant: &ColumnVariant) {
        match (self, &variant.stored) {
            (Self::Sqlite, StoredCell::Raw(literal)) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                let declared = variant.column.trim_matches('`');
                let declared = if declared == "no type" { "" } else { declared };
                let sql = format!("CREATE TABLE {TABLE}(k TEXT PRIMARY KEY NOT NULL, v {declared});");
                connection.execute_batch(&sql).unwrap();
                connection.execute_batch(&format!("INSERT INTO {TABLE} VALUES('old', {literal})")).unwrap();
            }
            (Self::Csv, StoredCell::Raw(field)) => {
                std::fs::write(path, format!("k,v\nold,{field}\n")).unwrap()
            }
            (Self::Lines, StoredCell::Raw(value)) => {
                std::fs::write(path, format!("{{\"k\": \"old\", \"v\": {value}}}\n")).unwrap();
            }
            (Self::Document, StoredCell::Raw(value)) => {
                std::fs::write(path, format!("[\n  {{\"k\": \"old\", \"v\": {value}}}\n]\n")).unwrap();
            }
            (Self::Xlsx, StoredCell::RawDigits(digits)) => {
                let header = vec![Cell::Text("k"), Cell::Text("v")];
                let rows = [header, vec![Cell::Text("old"), Cell::Number(digits)]];
                std::fs::write(path, kit::workbook(&[(TABLE, &rows)])).unwrap();
            }
            (Self::Xlsx, there) => {
                let mut book = OtherBook::new();
                let sheet = book.add_worksheet();
                sheet.set_name(TABLE).unwrap();
                for (at, name) in ["k", "v"].into_iter().enumerate() {
                    sheet.write_string(0, at as u16, name).unwrap();
                }
                sheet.write_string(1, 0, "old").unwrap();
                let written = match there {
                    StoredCell::Number(n) => sheet.write_number(1, 1, *n),
                    StoredCell::Text(text) => sheet.write_string(1, 1, text.as_str()),
                    StoredCell::Boolean(yes) => sheet.write_boolean(1, 1, *yes),
                    StoredCell::Empty => Ok(sheet),
                    StoredCell::Formatted(n, format) => {
                        sheet.write_number_with_format(1, 1, *n, &Format::new().set_num_format(*format))
                    }
                    StoredCell::Raw(_) | StoredCell::RawDigits(_) => {
                        unreachable!("not a cell of another program")
                    }
                };
                written.unwrap();
                book.save(path).unwrap();
            }
            (Self::Sqlite | Self::Csv | Self::Lines | Self::Document, there) => {
                unreachable!("{there:?} is for workbooks")
            }
        }
    }
}

/// A column that can hold values of a type.
#[derive(Debug)]
pub struct ColumnVariant {
    /// How the column is special, for the published table; empty if there is only one.
    pub column: &'static str,
    /// The existing value, written by another program.
    pub stored: StoredCell,
    pub null: Option<&'static str>,
    pub keeps_formulas: bool,
    /// What the file stores, where its format changes the value.
    pub expected_text: &'static str,
}

#[derive(Debug)]
pub enum StoredCell {
    /// As a statement or a file spells it.
    Raw(String),
    Number(f64),
    Text(String),
    Boolean(bool),
    Empty,
    /// A number with a format that shows a date or a time.
    Formatted(f64, &'static str),
    /// Digits as the sheet's XML contains them.
    RawDigits(&'static str),
}

fn column_variant(column: &'static str, there: StoredCell) -> ColumnVariant {
    ColumnVariant { column, stored: there, null: None, keeps_formulas: false, expected_text: "" }
}

fn raw(column: &'static str, there: &str) -> ColumnVariant {
    column_variant(column, StoredCell::Raw(there.to_owned()))
}

/// The columns that can hold a type. Their existing value is an ordinary one of that type.
pub fn variants_for_kind(store: Store, kind: DataType) -> Vec<ColumnVariant> {
    match store {
        Store::Sqlite => match kind {
            DataType::Text => vec![raw("`TEXT`", "'x'")],
            DataType::Decimal => vec![raw("`TEXT`", "'1.5'"), raw("`DECIMAL(20,4)`", "1.5")],
            DataType::Integer | DataType::Int64 => vec![raw("`INTEGER`", "9007199254740995")],
            DataType::Number => vec![raw("no type", "1.5"), raw("`REAL`", "1.5")],
            DataType::Boolean => vec![raw("`BOOLEAN`", "0")],
            DataType::Date => vec![raw("`DATE`", "'2026-01-01'")],
            DataType::Timestamp => vec![raw("`TIMESTAMP`", "'2026-01-01T00:00:00Z'")],
            DataType::LocalTimestamp => vec![raw("`DATETIME`", "'2026-01-01 00:00:00'")],
            DataType::Json => vec![raw("`JSON`", "'[]'")],
            DataType::Blob => vec![raw("`BLOB`", "x'00'")],
        },
        Store::Csv => match kind {
            DataType::Text => {
                let with_null = ColumnVariant { null: Some("-"), ..raw("with `null = \"-\"`", "x") };
                let with_formulas =
                    ColumnVariant { keeps_formulas: true, ..raw("with `formulas = \"keep\"`", "x") };
                vec![raw("", "x"), with_null, with_formulas]
            }
            DataType::Decimal | DataType::Number => vec![raw("", "1.5")],
            DataType::Integer | DataType::Int64 => vec![raw("", "9007199254740995")],
            DataType::Boolean => vec![raw("", "false")],
            DataType::Date => vec![raw("", "2026-01-01")],
            DataType::Timestamp => vec![raw("", "2026-01-01T00:00:00Z")],
            DataType::LocalTimestamp => vec![raw("", "2026-01-01 00:00:00")],
            DataType::Json => vec![raw("", "[]")],
            DataType::Blob => vec![raw("", "AA==")],
        },
        Store::Xlsx => {
            let text = |text: &str| column_variant("cells of text", StoredCell::Text(text.to_owned()));
            let number = |n| column_variant("cells of numbers", StoredCell::Number(n));
            match kind {
                DataType::Text => vec![column_variant("", StoredCell::Text("x".to_owned()))],
                DataType::Decimal => vec![text("1.5"), number(1.5)],
                DataType::Integer | DataType::Int64 => vec![text("9007199254740995"), number(7.0)],
                DataType::Number => vec![column_variant("", StoredCell::Number(1.5))],
                DataType::Boolean => vec![column_variant("", StoredCell::Boolean(false))],
                DataType::Date => vec![column_variant("", StoredCell::Formatted(46_000.0, "yyyy-mm-dd"))],
                DataType::Timestamp => vec![text("2026-01-01T00:00:00Z")],
                DataType::LocalTimestamp => {
                    vec![column_variant("", StoredCell::Formatted(46_000.5, "yyyy-mm-dd hh:mm:ss"))]
                }
                DataType::Json => vec![text("[]")],
                DataType::Blob => vec![text("AA==")],
            }
        }
        Store::Lines | Store::Document => match kind {
            DataType::Text => vec![raw("", r#""x""#)],
            DataType::Decimal => vec![raw("", "1.5"), raw("as strings", r#""1.5""#)],
            DataType::Integer | DataType::Int64 => vec![raw("", "9007199254740995")],
            DataType::Number => vec![raw("", "1.5")],
            DataType::Boolean => vec![raw("", "false")],
            DataType::Date => vec![raw("", r#""2026-01-01""#)],
            DataType::Timestamp => vec![raw("", r#""2026-01-01T00:00:00Z""#)],
            DataType::LocalTimestamp => vec![raw("", r#""2026-01-01 00:00:00""#)],
            DataType::Json => vec![raw("", "[]")],
            DataType::Blob => vec![raw("", r#""AA==""#)],
        },
    }
}

/// Files that already contain a value, if another program can write it there.
pub fn existing_variants(store: Store, case: &str) -> Vec<ColumnVariant> {
    match store {
        Store::Sqlite => sqlite_variants(case),
        Store::Csv => csv_variants(case),
        Store::Xlsx => xlsx_variants(case),
        Store::Lines | Store::Document => json_variants(case),
    }
}

fn sqlite_variants(case: &str) -> Vec<ColumnVariant> {
    let text = |text: &str| vec![raw("`TEXT`", &format!("'{text}'"))];
    match case {
        // In a numeric column, SQLite rounds it before any reader sees it.
        "decimal(20,4)" => {
            let rounded =
                ColumnVariant { expected_text: "1234567890123456.8", ..raw("`DECIMAL(20,4)`", DECIMAL) };
            text(DECIMAL).into_iter().chain([rounded]).collect()
        }
        "2^53 + 1" => vec![raw("`INTEGER`", "9007199254740993")],
        "-0.0 as `number`" => vec![raw("no type", "-0.0")],
        "-0.0 as `decimal`" => text("-0.0"),
        "Infinity" => vec![ColumnVariant { expected_text: "Infinity", ..raw("`REAL`", "9e999") }],
        // SQLite stores NULL instead.
        "NaN" => Vec::new(),
        "date" => vec![raw("`DATE`", &format!("'{DAY}'"))],
        "timestamp with zone" => vec![raw("`TIMESTAMP`", &format!("'{ZONED}'"))],
        "timestamp without zone" => vec![raw("`DATETIME`", &format!("'{LOCAL}'"))],
        "nested JSON" => vec![raw("`JSON`", &format!("'{NESTED}'"))],
        "blob" => vec![raw("`BLOB`", "x'00FF100A'")],
        "boolean" => vec![raw("`BOOLEAN`", "1")],
        "NULL" => vec![raw("`TEXT`", "NULL")],
        "empty text" => text(""),
        "4-byte emoji" => text("🦀𝄞"),
        "NUL in a text" => vec![raw("`TEXT`", "'a' || char(0) || 'b'")],
        "`=1+1`" => text("=1+1"),
        "`007`" => text("007"),
        "blanks around a text" => text("  a\t"),
        "line breaks in a text" => text(LINES),
        "text of 32,768 characters" => text(&long()),
        other => unreachable!("{other}"),
    }
}

fn csv_variants(case: &str) -> Vec<ColumnVariant> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let field = |text: &'static str| ColumnVariant { expected_text: text, ..raw("", &quoted(text)) };
    vec![match case {
        "decimal(20,4)" => field(DECIMAL),
        "2^53 + 1" => field("9007199254740993"),
        "-0.0 as `number`" | "-0.0 as `decimal`" => field("-0.0"),
        "Infinity" => field("Infinity"),
        "NaN" => field("NaN"),
        "date" => field(DAY),
        "timestamp with zone" => field(ZONED),
        "timestamp without zone" => field(LOCAL),
        "nested JSON" => field(NESTED),
        // Base64 is a text like any other.
        "blob" => return Vec::new(),
        "boolean" => field("true"),
        "NULL" => ColumnVariant { null: Some("-"), ..raw("with `null = \"-\"`", "-") },
        "empty text" => field(""),
        "4-byte emoji" => field("🦀𝄞"),
        "NUL in a text" => field("a\0b"),
        "`=1+1`" => field("=1+1"),
        "`007`" => field("007"),
        "blanks around a text" => field("  a\t"),
        "line breaks in a text" => field(LINES),
        "text of 32,768 characters" => raw("", &long()),
        other => unreachable!("{other}"),
    }]
}

fn xlsx_variants(case: &str) -> Vec<ColumnVariant> {
    let text = |text: &'static str| ColumnVariant {
        expected_text: text,
        ..column_variant("", StoredCell::Text(text.to_owned()))
    };
    let digits = |digits| ColumnVariant {
        expected_text: digits,
        ..column_variant("digits of a number", StoredCell::RawDigits(digits))
    };
    match case {
        // A number in a workbook is a double, however many digits it is written with: 0.1 often has 17.
        "decimal(20,4)" => {
            vec![text(DECIMAL), ColumnVariant { expected_text: "1234567890123456.8", ..digits(DECIMAL) }]
        }
        "2^53 + 1" => {
            let rounded = ColumnVariant { expected_text: "9007199254740992", ..digits("9007199254740993") };
            vec![text("9007199254740993"), rounded]
        }
        "-0.0 as `number`" => vec![ColumnVariant { column: "", ..digits("-0.0") }],
        "-0.0 as `decimal`" => vec![text("-0.0")],
        // There are errors such as `#DIV/0!` instead, which are no value. Base64 is a text like any other.
        "Infinity" | "NaN" | "blob" => Vec::new(),
        "date" => vec![column_variant("", StoredCell::Formatted(46_081.0, "yyyy-mm-dd"))],
        "timestamp with zone" => vec![text(ZONED)],
        "timestamp without zone" => {
            vec![column_variant("", StoredCell::Formatted(46_064.0 + 10.0 / 24.0, "yyyy-mm-dd hh:mm:ss"))]
        }
        "nested JSON" => vec![text(NESTED)],
        "boolean" => vec![column_variant("", StoredCell::Boolean(true))],
        "NULL" => vec![column_variant("", StoredCell::Empty)],
        // Programs that write workbooks write no cell for an empty text.
        "empty text" | "NUL in a text" | "text of 32,768 characters" => Vec::new(),
        "4-byte emoji" => vec![text("🦀𝄞")],
        "`=1+1`" => vec![text("=1+1")],
        "`007`" => vec![text("007")],
        "blanks around a text" => vec![text("  a\t")],
        "line breaks in a text" => vec![text(LINES)],
        other => unreachable!("{other}"),
    }
}

fn json_variants(case: &str) -> Vec<ColumnVariant> {
    let value = |value: &'static str| ColumnVariant { expected_text: value, ..raw("", value) };
    let string = |text: &'static str| {
        let mut out = Vec::new();
        ::json::write::string(&mut out, text);
        ColumnVariant { expected_text: text, ..raw("", &String::from_utf8(out).unwrap()) }
    };
    vec![match case {
        "decimal(20,4)" => value(DECIMAL),
        "2^53 + 1" => value("9007199254740993"),
        "-0.0 as `number`" | "-0.0 as `decimal`" => value("-0.0"),
        "Infinity" => string("Infinity"),
        "NaN" => string("NaN"),
        "date" => string(DAY),
        "timestamp with zone" => string(ZONED),
        "timestamp without zone" => string(LOCAL),
        "nested JSON" => value(NESTED),
        "blob" => string(BYTES_BASE64),
        "boolean" => value("true"),
        "NULL" => value("null"),
        "empty text" => string(""),
        "4-byte emoji" => string("🦀𝄞"),
        "NUL in a text" => string("a\0b"),
        "`=1+1`" => string("=1+1"),
        "`007`" => string("007"),
        "blanks around a text" => string("  a\t"),
        "line breaks in a text" => string(LINES),
        "text of 32,768 characters" => raw("", &format!("\"{}\"", long())),
        other => unreachable!("{other}"),
    }]
}
