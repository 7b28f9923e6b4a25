//! Whatever the file and the change: the change is there, and nothing else differs.

use std::sync::Arc;

use contract::ValueRef;
use contract::manifest::FormulaPolicy;
use contract::source::{RowChange, Source, WriteError, Writer};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use source::csv::{Csv, Options};

use super::kit::{Row, TestFile, all_rows, shape};
use crate::driver::WriteRow;
use crate::write_checks::{RecordingChecks, plain_write};

/// A CSV dialect. Each field is quoted or not on its own.
#[derive(Debug, Clone)]
struct Dialect {
    delimiter: char,
    line_end: &'static str,
    last_line_ends: bool,
    encoding: Encoding,
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Utf8,
    Utf8Marked,
    Utf16Le,
    Utf16Be,
    Windows1252,
}

fn dialect() -> impl Strategy<Value = Dialect> {
    let encoding = prop_oneof![
        Just(Encoding::Utf8),
        Just(Encoding::Utf8Marked),
        Just(Encoding::Utf16Le),
        Just(Encoding::Utf16Be),
        Just(Encoding::Windows1252)
    ];
    let delimiter = prop_oneof![Just(','), Just(';'), Just('\t'), Just('|')];
    let line_end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    (delimiter, line_end, any::<bool>(), encoding).prop_map(
        |(delimiter, line_end, last_line_ends, encoding)| Dialect {
            delimiter,
            line_end,
            last_line_ends,
            encoding,
        },
    )
}

/// A field's text, and whether it has quotes that it does not need.
type Field = (String, bool);

fn cell() -> impl Strategy<Value = Field> {
    ("[a-cé€=,;|\t\"\r\n .-]{0,6}", any::<bool>())
}

#[derive(Debug, Clone)]
enum Edit {
    Create(Vec<String>),
    Update(usize, Vec<(usize, String)>),
    Delete(usize),
}

fn edit(columns: usize) -> impl Strategy<Value = Edit> {
    let text = "[a-cé€=,;|\t\"\r\n .-]{0,6}";
    prop_oneof![
        prop::collection::vec(text, columns).prop_map(Edit::Create),
        (0..8_usize, prop::collection::vec((1..=columns, text), 0..3))
            .prop_map(|(row, cells)| Edit::Update(row, cells)),
        (0..8_usize).prop_map(Edit::Delete),
    ]
}

impl Dialect {
    fn field(&self, (text, is_quoted): &Field) -> String {
        if *is_quoted || text.contains(['"', '\r', '\n', self.delimiter]) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.clone()
        }
    }

    /// The lines of a table with a key column in front, without a final line end.
    fn lines(&self, table: &[Vec<Field>]) -> Vec<String> {
        let row = |(number, fields): (usize, &Vec<Field>)| {
            let key = if number == 0 { "key".to_owned() } else { format!("k{number}é") };
            // A column without a name and a value is left out.
            let named = |(text, is_quoted): &Field| match number {
                0 => (format!("h{text}"), *is_quoted),
                _ => (text.clone(), *is_quoted),
            };
            let fields: Vec<String> =
                [key].into_iter().chain(fields.iter().map(|field| self.field(&named(field)))).collect();
            fields.join(&self.delimiter.to_string())
        };
        table.iter().enumerate().map(row).collect()
    }

    fn bytes(&self, lines: &[String]) -> Vec<u8> {
        let mut text = lines.join(self.line_end);
        if self.last_line_ends {
            text.push_str(self.line_end);
        }
        match self.encoding {
            Encoding::Utf8 => text.into_bytes(),
            Encoding::Utf8Marked => format!("\u{feff}{text}").into_bytes(),
            Encoding::Utf16Le => {
                format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
            }
            Encoding::Utf16Be => {
                format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect()
            }
            Encoding::Windows1252 => {
                let byte = |c: char| match c {
                    '€' => 0x80,
                    'é' => 0xe9,
                    c => u8::try_from(c).expect("the alphabet above"),
                };
                text.chars().map(byte).collect()
            }
        }
    }
}

/// Whether the bytes that the two files share before and after cover all but one line.
fn differs_in_one_line(dialect: &Dialect, old: &[String], new_bytes: &[u8], at: usize) -> bool {
    let before = dialect.bytes(old);
    let line_bytes =
        |lines: &[String]| Dialect { last_line_ends: true, ..dialect.clone() }.bytes(lines).len();
    let head = before.iter().zip(new_bytes).take_while(|(a, b)| a == b).count();
    let tail = before.iter().rev().zip(new_bytes.iter().rev()).take_while(|(a, b)| a == b).count();
    let mark = line_bytes(&[]);
    // Everything before the changed line, except for the line end that a file without one gets.
    let front = line_bytes(&old[..at.min(old.len())]).saturating_sub(2 * dialect.line_end.len());
    let rest = old.get(at + 1..).unwrap_or_default();
    let behind =
        if rest.is_empty() { 0 } else { dialect.bytes(rest).len() - mark.min(dialect.bytes(rest).len()) };
    head >= front && tail >= behind
}

fn open(disk: &TestFile, dialect: &Dialect) -> (Csv, Arc<dyn Writer>, contract::source::TableShape) {
    let options = Options {
        delimiter: Some(u8::try_from(dialect.delimiter).expect("ASCII")),
        poll_interval_ms: 0,
        formulas: FormulaPolicy::Keep,
        ..Options::default()
    };
    let csv = Csv::open(&disk.path, options);
    let mut shape = shape(&csv);
    shape.key = vec![0];
    shape.columns.iter_mut().for_each(|column| column.data_type = contract::DataType::Text);
    let writer = csv.writer(&shape).expect("every row has its key");
    (csv, writer, shape)
}

fn texts(rows: Vec<Row>) -> Vec<Vec<String>> {
    rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect()
}

fn check(dialect: &Dialect, table: &[Vec<Field>], edit: &Edit) {
    let lines = dialect.lines(table);
    let bytes = dialect.bytes(&lines);
    let disk = TestFile::new("people.csv", &bytes);
    let (csv, writer, shape) = open(&disk, dialect);
    let mut expected = texts(all_rows(csv.reader(&shape).unwrap().as_ref()));
    let key = |row: usize| format!("k{}é", row + 1);
    let position =
        |row: usize, expected: &[Vec<String>]| expected.iter().position(|cells| cells[0] == key(row));
    let mut checks = RecordingChecks::default();
    let (touched, result) = match edit {
        Edit::Create(cells) => {
            let id = "zé".to_owned();
            let row: Vec<String> = [id].into_iter().chain(cells.iter().cloned()).collect();
            let cells: Vec<(usize, ValueRef<'_>)> =
                row.iter().map(|text| ValueRef::Text(text)).enumerate().collect();
            let result = writer.write(&plain_write(RowChange::Create { values: &cells }), &mut checks);
            expected.push(row.clone());
            (lines.len(), result)
        }
        Edit::Update(row, cells) => {
            let id = key(*row);
            let cells: Vec<(usize, ValueRef<'_>)> =
                cells.iter().map(|(at, text)| (*at, ValueRef::Text(text))).collect();
            let change = RowChange::Update { key: &[ValueRef::Text(&id)], values: &cells };
            let result = writer.write(&plain_write(change), &mut checks);
            if let Some(at) = position(*row, &expected) {
                for (place, cell) in &cells {
                    let ValueRef::Text(text) = cell else { unreachable!() };
                    expected[at][*place] = (*text).to_owned();
                }
            }
            (row + 1, result)
        }
        Edit::Delete(row) => {
            let id = key(*row);
            let result =
                writer.write(&plain_write(RowChange::Delete { key: &[ValueRef::Text(&id)] }), &mut checks);
            if let Some(at) = position(*row, &expected) {
                expected.remove(at);
            }
            (row + 1, result)
        }
    };
    let after = std::fs::read(&disk.path).unwrap();
    match result {
        Ok(_) => {
            let read = texts(all_rows(csv.reader(&shape).unwrap().as_ref()));
            assert_eq!(read, expected);
            assert!(
                differs_in_one_line(dialect, &lines, &after, touched),
                "{:?} became {:?}",
                bytes.escape_ascii().to_string(),
                after.escape_ascii().to_string()
            );
            // Read by a source that has not seen the file before.
            let (fresh, _, _) = open(&disk, dialect);
            assert_eq!(texts(all_rows(fresh.reader(&shape).unwrap().as_ref())), expected);
        }
        Err(error) => {
            assert_eq!(after, bytes);
            match error {
                WriteError::NotFound => assert!(!matches!(edit, Edit::Create(_))),
                // Without its last non-ASCII byte, the file is read as UTF-8.
                WriteError::Rejected { column: None, reason: cause } => {
                    assert!(cause.contains("another encoding"), "{cause}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(std::fs::read_dir(disk.path.parent().unwrap()).unwrap().count(), 1);
}

proptest! {
    #[test]
    fn only_the_edited_row_changes(
        dialect in dialect(),
        (table, edit) in (1..4_usize).prop_flat_map(|columns| {
            let rows = prop::collection::vec(prop::collection::vec(cell(), columns), 2..6);
            (rows, edit(columns))
        }),
    ) {
        check(&dialect, &table, &edit);
    }

    #[test]
    fn creating_and_deleting_a_row_restores_the_file(
        dialect in dialect(),
        table in (1..4_usize).prop_flat_map(|columns| {
            prop::collection::vec(prop::collection::vec(cell(), columns), 1..5)
        }),
    ) {
        let bytes = dialect.bytes(&dialect.lines(&table));
        let disk = TestFile::new("people.csv", &bytes);
        let (_csv, writer, _) = open(&disk, &dialect);
        let key = [ValueRef::Text("zé")];
        let cells = [(0, key[0])];
        let create = plain_write(RowChange::Create { values: &cells });
        let delete = plain_write(RowChange::Delete { key: &key });
        if writer.write(&create, &mut RecordingChecks::default()).is_ok() {
            assert_ne!(std::fs::read(&disk.path).unwrap(), bytes);
            writer.write(&delete, &mut RecordingChecks::default()).unwrap();
        }
        assert_eq!(std::fs::read(&disk.path).unwrap().escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }
}
