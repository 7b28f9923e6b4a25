//! The `csv` crate reads the same from the same bytes.

use contract::DataType;
use contract::manifest::DeclaredLayout;
use contract::source::{Source, TableOptions};
use csv::{QuoteStyle, ReaderBuilder, Terminator, WriterBuilder};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

use source::csv::{Csv, Options};

use super::kit::{Row, TestFile, all_rows, shape};

/// What the oracle reads, header first. `None` if the rows are ragged.
fn oracle(bytes: &[u8], delimiter: u8) -> Option<Vec<Vec<String>>> {
    let mut reader = ReaderBuilder::new().has_headers(false).delimiter(delimiter).from_reader(bytes);
    reader.records().map(|record| Some(record.ok()?.iter().map(str::to_owned).collect())).collect()
}

/// What this crate reads, in file order, or the error.
fn ours(bytes: &[u8], delimiter: u8) -> Result<Vec<Vec<String>>, String> {
    let csv = TestFile::new("people.csv", bytes);
    // Every record is data, as for the oracle.
    let layout = DeclaredLayout { header_row: Some(1), footer_rows: Some(0), ..DeclaredLayout::default() };
    let table = TableOptions { layout, ..TableOptions::default() };
    let options = Options { delimiter: Some(delimiter), table, poll_interval_ms: 0, ..Options::default() };
    let csv = Csv::open(&csv.path, options);
    csv.introspect().map_err(|error| error.to_string())?;
    let mut shape = shape(&csv);
    shape.key.clear();
    for column in &mut shape.columns {
        (column.data_type, column.format, column.nullable) = (DataType::Text, None, false);
    }
    let rows = all_rows(csv.reader(&shape).map_err(|error| error.to_string())?.as_ref());
    let texts = |row: Row| row.into_iter().map(Option::unwrap_or_default).collect();
    let header = shape.columns.into_iter().map(|column| column.name).collect();
    Ok([header].into_iter().chain(rows.into_iter().map(texts)).collect())
}

fn has_blank_name(expected: &Option<Vec<Vec<String>>>) -> bool {
    let header = expected.as_ref().and_then(|rows| rows.first());
    header.is_some_and(|names| names.iter().any(|name| name.trim().is_empty()))
}

fn delimiter() -> impl Strategy<Value = u8> {
    prop_oneof![Just(b','), Just(b';'), Just(b'\t'), Just(b'|')]
}

fn cells() -> impl Strategy<Value = Vec<Vec<String>>> {
    (1..6_usize, 1..8_usize)
        .prop_flat_map(|(columns, rows)| {
            let cell = "[a-c0-9é🦀,;|\t\"\r\n .-]{0,12}";
            prop::collection::vec(prop::collection::vec(cell, columns), rows)
        })
        // A column without a name and a value is left out, and what looks like a number is read as one.
        .prop_map(|mut cells: Vec<Vec<String>>| {
            cells[0].iter_mut().for_each(|name| name.insert(0, 'h'));
            cells
        })
}

proptest! {
    #[test]
    fn tables_read_back_as_written(
        cells in cells(),
        delimiter in delimiter(),
        style in prop_oneof![Just(QuoteStyle::Necessary), Just(QuoteStyle::Always), Just(QuoteStyle::NonNumeric)],
        terminator in prop_oneof![Just(Terminator::CRLF), Just(Terminator::Any(b'\n')), Just(Terminator::Any(b'\r'))],
    ) {
        let mut builder = WriterBuilder::new();
        builder.delimiter(delimiter).quote_style(style).terminator(terminator);
        let mut writer = builder.from_writer(Vec::new());
        cells.iter().for_each(|row| writer.write_record(row).unwrap());
        let bytes = writer.into_inner().unwrap();
        let read = ours(&bytes, delimiter);
        if bytes.trim_ascii().is_empty() {
            assert!(read.is_err_and(|message| message.contains("is empty")), "blanks alone are no table");
        } else {
            assert_eq!(read.as_ref(), Ok(&cells));
        }
    }

    #[test]
    fn any_text_is_read_as_the_oracle_reads_it(text in "[ab,;\"\"\r\n]{0,40}", delimiter in delimiter()) {
        let expected = oracle(text.as_bytes(), delimiter);
        match ours(text.as_bytes(), delimiter) {
            // A column without a name and a value is left out.
            Ok(_) if has_blank_name(&expected) => {}
            // A delimiter after the last field is not a field, and a record of blank fields is not a row.
            Ok(_) if expected.is_none() => {
                let delimiter = char::from(delimiter);
                let ends = ["\n", "\r", ""].map(|end| format!("{delimiter}{end}"));
                let has_end = ends[..2].iter().any(|end| text.contains(end)) || text.ends_with(&ends[2]);
                let is_blank = |line: &str| !line.is_empty() && line.chars().all(|c| c == delimiter || c == '"');
                assert!(has_end || text.split(['\n', '\r']).any(is_blank), "{text:?}");
            }
            Ok(read) => assert_eq!(Some(read), expected),
            // This crate does not guess where a quote should have been closed.
            Err(message) if message.contains("never closed") => {}
            Err(message) if message.contains("is empty") => assert_eq!(expected, Some(Vec::new())),
            Err(message) => assert_eq!(expected, None, "{message}"),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let disk = TestFile::new("people.csv", &bytes);
        let csv = disk.csv();
        if csv.introspect().is_ok() {
            all_rows(csv.reader(&shape(&csv)).unwrap().as_ref());
        }
    }
}
