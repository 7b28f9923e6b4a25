//! Values in the format of their column, in every kind of file: each reads as its plain value, and a value that is
//! written is spelled, byte for byte, as the file spells it elsewhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use calamine::{Data, Reader as _, Xlsx};
use contract::field::Field;
use contract::manifest::WorkbookFormat;
use contract::source::{RowChange, Source, TableShape, WriteError};
use contract::{Value, ValueRef};
use source::csv::{self, Csv};
use source::json::{self, JsonLayout};
use source::sheets;
use tempfile::TempDir;

use crate::driver::{WriteOutcome, WriteRow};
use crate::sheets::kit::{CellContent, workbook};
use crate::write_checks::{RecordingChecks, plain_write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Csv,
    JsonLines,
    JsonDocument,
    Xlsx,
}

const KINDS: [FileKind; 4] = [FileKind::Csv, FileKind::JsonLines, FileKind::JsonDocument, FileKind::Xlsx];

/// A file with the columns `k` and `v`, and a row for each text.
struct FormattedFile {
    kind: FileKind,
    path: PathBuf,
    _folder: TempDir,
}

impl FormattedFile {
    fn new(kind: FileKind, texts: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..texts.len()).map(|row| format!("r{row}")).collect();
        let rows = || keys.iter().map(String::as_str).zip(texts.iter().copied());
        let object = |(key, text): (&str, &str)| {
            let mut out = Vec::new();
            ::json::write::string(&mut out, text);
            format!(r#"{{"k": "{key}", "v": {}}}"#, String::from_utf8(out).unwrap())
        };
        let (ending, bytes) = match kind {
            FileKind::Csv => {
                let lines: String = rows().map(|(key, text)| format!("{key},\"{text}\"\n")).collect();
                ("csv", format!("k,v\n{lines}").into_bytes())
            }
            FileKind::JsonLines => {
                ("jsonl", rows().map(|row| object(row) + "\n").collect::<String>().into_bytes())
            }
            FileKind::JsonDocument => {
                let objects: Vec<String> = rows().map(object).collect();
                ("json", format!("[\n  {}\n]\n", objects.join(",\n  ")).into_bytes())
            }
            FileKind::Xlsx => {
                let header = vec![CellContent::Text("k"), CellContent::Text("v")];
                let cells = rows().map(|(key, text)| vec![CellContent::Text(key), CellContent::Text(text)]);
                ("xlsx", workbook(&[("t", &std::iter::once(header).chain(cells).collect::<Vec<_>>())]))
            }
        };
        let path = folder.path().join(format!("t.{ending}"));
        std::fs::write(&path, bytes).unwrap();
        Self { kind, path, _folder: folder }
    }

    fn open(&self) -> Box<dyn Source> {
        match self.kind {
            FileKind::Csv => {
                Box::new(Csv::open(&self.path, csv::Options { poll_interval_ms: 0, ..Default::default() }))
            }
            FileKind::JsonLines => open_json(&self.path, JsonLayout::Lines),
            FileKind::JsonDocument => open_json(&self.path, JsonLayout::Document { pointer: None }),
            FileKind::Xlsx => {
                let options = sheets::Options::new(WorkbookFormat::Xlsx);
                Box::new(sheets::open(&self.path, sheets::Options { poll_interval_ms: 0, ..options }))
            }
        }
    }

    /// Whether the file holds these texts: byte for byte, or as another program reads a workbook.
    fn assert_holds(&self, texts: &[&str]) {
        if self.kind != FileKind::Xlsx {
            let expected = std::fs::read_to_string(&Self::new(self.kind, texts).path).unwrap();
            assert_eq!(std::fs::read_to_string(&self.path).unwrap(), expected);
            return;
        }
        let mut book: Xlsx<_> = calamine::open_workbook(&self.path).unwrap();
        let range = book.worksheet_range("t").unwrap();
        let cells: Vec<Data> = range.rows().skip(1).map(|row| row[1].clone()).collect();
        let expected: Vec<Data> = texts.iter().map(|text| Data::String((*text).to_owned())).collect();
        assert_eq!(cells, expected);
    }
}

fn open_json(path: &Path, layout: JsonLayout) -> Box<dyn Source> {
    let options = json::Options::new(layout);
    Box::new(json::open(path, json::Options { poll_interval_ms: 0, ..options }))
}

/// The shape that the file itself suggests.
fn shape(source: &dyn Source) -> TableShape {
    let facts = source.introspect().unwrap();
    TableShape { key: vec![0], ..crate::shape::shape_of(&facts.tables[0]) }
}

fn values(source: &dyn Source, shape: &TableShape, rows: usize) -> Vec<Value> {
    let reader = source.reader(shape).unwrap();
    let value = |row: usize| {
        let (key, mut value) = (format!("r{row}"), None);
        reader.get(&[ValueRef::Text(&key)], &mut |cells| value = Some(cells[1].to_value())).unwrap();
        value.unwrap()
    };
    (0..rows).map(value).collect()
}

fn update(
    source: &dyn Source,
    shape: &TableShape,
    row: usize,
    value: &Value,
) -> Result<WriteOutcome, WriteError> {
    let key = format!("r{row}");
    let change = RowChange::Update { key: &[ValueRef::Text(&key)], values: &[(1, value.as_value_ref())] };
    let writer = source.writer(shape)?;
    writer.write(&plain_write(change), &mut RecordingChecks::default())
}

/// Reads the column in every kind of file, writes each value over every other one, and each value over itself.
fn check(texts: &[&str], expected: &[&str]) {
    for kind in KINDS {
        let file = FormattedFile::new(kind, texts);
        let source = file.open();
        let shape = shape(&*source);
        assert!(shape.columns[1].format.is_some(), "{kind:?} {texts:?}: no format was found");
        let plain = values(&*source, &shape, texts.len());
        let as_text: Vec<String> = plain.iter().map(|value| value_text(&shape, value)).collect();
        assert_eq!(as_text, expected, "{kind:?} {texts:?}");

        let bytes = std::fs::read(&file.path).unwrap();
        for (row, value) in plain.iter().enumerate() {
            update(&*source, &shape, row, value)
                .unwrap_or_else(|error| panic!("{kind:?} {value:?}: {error:?}"));
        }
        assert_eq!(std::fs::read(&file.path).unwrap(), bytes, "{kind:?} {texts:?}: the values it had");

        for shift in 1..texts.len() {
            let file = FormattedFile::new(kind, texts);
            let source = file.open();
            let rotated = |row: usize| (row + shift) % texts.len();
            for row in 0..texts.len() {
                update(&*source, &shape, row, &plain[rotated(row)])
                    .unwrap_or_else(|error| panic!("{kind:?} {:?}: {error:?}", plain[rotated(row)]));
            }
            let expected: Vec<&str> = (0..texts.len()).map(|row| texts[rotated(row)]).collect();
            file.assert_holds(&expected);
            // Another process finds the same format, and the values that were written.
            let source = file.open();
            assert_eq!(self::shape(&*source), shape, "{kind:?}");
            let expected: Vec<Value> = (0..texts.len()).map(|row| plain[rotated(row)].clone()).collect();
            assert_eq!(values(&*source, &shape, texts.len()), expected, "{kind:?}");
        }
    }
}

/// The value as callers see it, without quotes.
fn value_text(shape: &TableShape, value: &Value) -> String {
    let (column, mut out) = (&shape.columns[1], Vec::new());
    Field::new("v", "v", column.data_type).write_value(&mut out, value.as_value_ref()).unwrap();
    String::from_utf8(out).unwrap().trim_matches('"').to_owned()
}

#[test]
fn amounts_are_written_as_they_are_spelled() {
    check(
        &["1.234,50 €", "12,00 €", "-0,99 €", "1.000.000,00 €"],
        &["1234.50", "12.00", "-0.99", "1000000.00"],
    );
    check(&["$1,234.50", "$12.00", "$0.99"], &["1234.50", "12.00", "0.99"]);
    check(&["(1,234.50)", "1,012.00", "(0.99)"], &["-1234.50", "1012.00", "-0.99"]);
    check(&["1.234,5", "12,25", "0,125"], &["1234.5", "12.25", "0.125"]);
}

#[test]
fn percentages_are_written_as_they_are_spelled() {
    check(&["12,5 %", "3,0 %", "100,0 %"], &["12.5", "3.0", "100.0"]);
    check(&["12.5%", "3.0%"], &["12.5", "3.0"]);
}

#[test]
fn dates_are_written_as_they_are_spelled() {
    check(&["31.12.2025", "01.02.2026", "29.02.2024"], &["2025-12-31", "2026-02-01", "2024-02-29"]);
    check(&["31/12/2025", "01/02/2026"], &["2025-12-31", "2026-02-01"]);
    check(&["12/31/2025", "02/01/2026"], &["2025-12-31", "2026-02-01"]);
    check(&["3. März 2026", "14. Mai 2025"], &["2026-03-03", "2025-05-14"]);
}

#[test]
fn booleans_are_written_as_they_are_spelled() {
    check(&["ja", "nein", "ja"], &["true", "false", "true"]);
}

#[test]
fn what_a_format_cannot_express_is_refused_and_changes_nothing() {
    for kind in KINDS {
        for (texts, value) in [
            (["31.12.2025", "01.02.2026"], "10000-01-01"),
            (["31.12.2025", "01.02.2026"], "soon"),
            (["1.234,50 €", "12,00 €"], "1e400"),
            (["1.234,50 €", "12,00 €"], "twelve"),
            (["ja", "nein"], "perhaps"),
        ] {
            let file = FormattedFile::new(kind, &texts);
            let bytes = std::fs::read(&file.path).unwrap();
            let source = file.open();
            let shape = shape(&*source);
            match update(&*source, &shape, 0, &Value::Text(value.into())) {
                Err(WriteError::Rejected { column: Some(1), .. }) => {}
                other => panic!("{kind:?} {value}: {other:?}"),
            }
            assert_eq!(std::fs::read(&file.path).unwrap(), bytes, "{kind:?} {value}");
        }
    }
}
