//! The engine with a toy format that has several tables, and misbehaves on command.

use std::sync::Arc;

use contract::source::{ColumnShape, RowChange, Source, SourceError, TableShape, WriteError};
use contract::{Value, ValueRef};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

use super::{
    CellUpdate, FileFormat, ParseError, ParsedFile, RowEdit, StoredValue, Table, TableFile, TablesOptions,
};
use crate::backups::BackupPolicy;

/// Each table starts with a line such as `= people`; the next line names its columns.
struct ToyFormat;

fn cell(text: &str) -> ValueRef<'_> {
    match text {
        "" => ValueRef::Null,
        text => text.parse().map_or(ValueRef::Text(text), ValueRef::Integer),
    }
}

impl FileFormat for ToyFormat {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError> {
        let text = std::str::from_utf8(bytes).expect("tests write text");
        let mut parsed = ParsedFile::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("= ") {
                let header = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
                let mut table = Table::new(name, header);
                table.computed = vec![(2, "it is computed".to_owned())];
                table.read_only_reason = (name == "locked").then(|| "it is locked".to_owned());
                parsed.tables.push(table);
            } else if let Some(table) = parsed.tables.last_mut() {
                let position = table.len() + 1;
                table.push_row(position, line.split(',').map(|text| cell(text).into()).enumerate());
            } else {
                let reason = "does not begin with a table".to_owned();
                return Err(ParseError { message: reason, help: None, location: None });
            }
        }
        Ok(parsed)
    }

    fn rewrite(&self, bytes: &[u8], table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        let text = std::str::from_utf8(bytes).expect("tests write text");
        let mut tables: Vec<Vec<String>> = Vec::new();
        for line in text.lines() {
            if line.starts_with("= ") {
                tables.push(Vec::new());
            }
            tables.last_mut().expect("it was loaded").push(line.to_owned());
        }
        let lines = &mut tables[table];
        let set = |line: &str, cells: &[CellUpdate<'_>]| {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            for update in cells {
                fields[update.column] = match update.value {
                    StoredValue::Text("refuse") => {
                        let reason = "no such text".to_owned();
                        return Err(WriteError::Rejected { column: Some(update.column), reason });
                    }
                    StoredValue::Text("mangle") => "mangled".to_owned(),
                    StoredValue::Text(text) => text.to_owned(),
                    StoredValue::Integer(n) => n.to_string(),
                    StoredValue::Null => String::new(),
                    other => panic!("{other:?}"),
                };
            }
            Ok(fields.join(","))
        };
        let command = match edit {
            RowEdit::Append { updates: cells } | RowEdit::Set { updates: cells, .. } => {
                cells.iter().find_map(|update| {
                    if let StoredValue::Text(text) = update.value { Some(text) } else { None }
                })
            }
            RowEdit::Remove { .. } => None,
        };
        match edit {
            RowEdit::Append { updates: cells } => lines.push(set(",,0", cells)?),
            RowEdit::Set { row, updates: cells } => lines[row + 2] = set(&lines[row + 2], cells)?,
            RowEdit::Remove { row } => drop(lines.remove(row + 2)),
        }
        match command {
            Some("spoil") => lines[2] = lines[2].replace("Ann", "Eve"),
            Some("drop") => drop(lines.remove(2)),
            Some("rename") => lines[1] = lines[1].replace("name", "nmae"),
            Some("swap") => lines.swap(2, 3),
            Some("other") => tables[1].push("9,x,0".to_owned()),
            Some("lose") => drop(tables.pop()),
            Some("garbage") => tables.insert(0, vec!["?".to_owned()]),
            Some(_) | None => {}
        }
        Ok(tables.concat().iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes())
    }
}

const FILE: &str = "= people\nid,name,sum\n1,Ann,1\n2,Bob,2\n3,,3\n= locked\nid,name,sum\n1,x,1\n";

struct TestFile {
    folder: tempfile::TempDir,
    rows: TableFile,
}

impl TestFile {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("toy"), FILE).expect("a file");
        let path = folder.path().join("toy");
        let options = TablesOptions::default();
        let rows = TableFile::open(&path, Box::new(ToyFormat), options, 0, BackupPolicy::Off);
        Self { folder, rows }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("toy")).expect("a file")
    }

    fn shape(&self, table: usize) -> TableShape {
        let table = self.rows.introspect().expect("facts").tables.swap_remove(table);
        let columns = table.columns.into_iter().enumerate().map(|(at, column)| ColumnShape {
            source_index: at,
            name: column.name,
            data_type: column.data_type,
            nullable: column.nullable,
            mixed: column.mixed,
            null_texts: Vec::new(),
            format: None,
        });
        TableShape { table: table.name, columns: columns.collect(), key: table.key }
    }

    fn write(&self, change: RowChange<'_>) -> Result<String, WriteError> {
        let writer = self.rows.writer(&self.shape(0)).expect("a writer");
        crate::test_write::write_row(&*writer, &change)?;
        Ok(self.text())
    }
}

#[test]
fn a_format_that_changes_too_much_is_rejected() {
    let more = "more than this row would change in the file";
    for (command, expected) in [
        ("spoil", more),
        ("drop", more),
        ("rename", more),
        ("swap", more),
        ("other", more),
        ("lose", more),
        ("garbage", "the file could not be read afterwards"),
        ("mangle", "the value would not read back unchanged"),
        ("refuse", "no such text"),
    ] {
        let file = TestFile::new();
        let cells = [(1, ValueRef::Text(command))];
        let new = [(0, ValueRef::Integer(9)), (1, ValueRef::Text(command))];
        let key = [ValueRef::Integer(2)];
        for change in [RowChange::Update { key: &key, values: &cells }, RowChange::Create { values: &new }] {
            let shown = format!("{change:?}");
            match file.write(change) {
                Err(WriteError::Rejected { column, reason }) => {
                    assert_eq!(reason, expected, "{shown}");
                    let is_about_it = ["mangle", "refuse"].contains(&command);
                    assert_eq!(column, is_about_it.then_some(1), "{shown}");
                }
                other => panic!("{shown}: {other:?}"),
            }
            assert_eq!(file.text(), FILE, "{shown}");
        }
    }
}

#[test]
fn a_correct_format_is_accepted() {
    let key = [ValueRef::Integer(2)];
    let cells = [(1, ValueRef::Text("Cid"))];
    let new = [(0, ValueRef::Integer(9)), (1, ValueRef::Text("Dan"))];
    for (change, from, to) in [
        (RowChange::Update { key: &key, values: &cells }, "2,Bob,2", "2,Cid,2"),
        (RowChange::Create { values: &new }, "3,,3\n", "3,,3\n9,Dan,0\n"),
        (RowChange::Delete { key: &key }, "2,Bob,2\n", ""),
    ] {
        assert_eq!(TestFile::new().write(change).expect("it is right"), FILE.replace(from, to));
    }
    let computed = [(2, ValueRef::Integer(1))];
    let error = TestFile::new()
        .write(RowChange::Update { key: &key, values: &computed })
        .expect_err("it is computed");
    assert_eq!(error.to_string(), "it is computed");
}

#[test]
fn tables_and_columns_are_found_by_name() {
    let file = TestFile::new();
    let facts = file.rows.introspect().expect("facts");
    let locked = &facts.tables[1];
    assert_eq!((locked.name.as_str(), locked.read_only_reason()), ("locked", Some("it is locked")));
    assert_eq!(locked.columns[2].read_only_reason.as_deref(), Some("it is computed"));
    assert!(file.rows.writer(&file.shape(1)).is_err());
    let shape = file.shape(0);
    let reader = file.rows.reader(&shape).expect("a reader");
    for (content, expected) in [
        (
            FILE.replace("= people", "= peple"),
            "has no table `people`; the most similar is `peple`; the server's owner can rename it back, or update the contract",
        ),
        (
            FILE.replace("= people", "= x"),
            "has no table `people`; the server's owner can put it back, or update the contract",
        ),
        (
            FILE.replace("id,name", "id,nmae"),
            "has no column `name`; the most similar is `nmae`; the server's owner can rename it back, or update the contract",
        ),
        ("x\n".to_owned(), "does not begin with a table; the server's owner can give the path of a toy"),
    ] {
        std::fs::write(file.folder.path().join("toy"), content).expect("a file");
        match reader.get(&[ValueRef::Integer(1)], &mut |_| {}) {
            Err(SourceError::Incompatible { message: got, .. }) => {
                assert_eq!(got, format!("`toy` {expected}"))
            }
            other => panic!("{other:?}"),
        }
        assert!(file.rows.diagnose(Some(&shape)).is_some());
    }
    // A duplicate key is an error for those who ask for it.
    std::fs::write(file.folder.path().join("toy"), FILE.replace("3,,3", "2,,3")).expect("a file");
    assert!(reader.get(&[ValueRef::Integer(1)], &mut |_| {}).expect("another key"));
    match reader.get(&[ValueRef::Integer(2)], &mut |_| {}) {
        Err(SourceError::Incompatible { message, .. }) => assert_eq!(
            message,
            "`toy` rows 2 and 3 have the same `id`, which is the key; the server's owner can change one, or choose another key"
        ),
        other => panic!("{other:?}"),
    }
    assert!(file.rows.diagnose(Some(&shape)).is_some());
    // Columns and tables may move.
    let moved = "= locked\nid,name,sum\n= people\nx,sum,name,id\n?,7,Ann,1\n";
    std::fs::write(file.folder.path().join("toy"), moved).expect("a file");
    let mut found = Vec::new();
    let is_there = reader.get(&[ValueRef::Integer(1)], &mut |cells| {
        found = cells.iter().map(|cell| cell.to_value()).collect();
    });
    assert!(is_there.expect("it fits"));
    assert_eq!(found, [Value::Integer(1), Value::Text("Ann".into()), Value::Integer(7)]);
}

/// A value of each class that a table can hold.
#[derive(Debug, Clone)]
enum OwnedValue {
    Text(u8, String),
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Blob(Vec<u8>),
}

impl OwnedValue {
    fn as_stored(&self) -> StoredValue<'_> {
        match self {
            Self::Text(0, text) => StoredValue::Text(text),
            Self::Text(1, text) => StoredValue::DateTime(text),
            Self::Text(2, text) => StoredValue::NumberText(text),
            Self::Text(_, text) => StoredValue::Json(text),
            Self::Integer(n) => StoredValue::Integer(*n),
            Self::Real(n) => StoredValue::Real(*n),
            Self::Boolean(value) => StoredValue::Boolean(*value),
            Self::Blob(bytes) => StoredValue::Blob(bytes),
        }
    }
}

fn value() -> impl Strategy<Value = Option<OwnedValue>> {
    prop_oneof![
        Just(None),
        (0..4_u8, "[a-zé0-9]{0,6}").prop_map(|(storage, text)| Some(OwnedValue::Text(storage, text))),
        any::<i64>().prop_map(|n| Some(OwnedValue::Integer(n))),
        any::<f64>().prop_map(|n| Some(OwnedValue::Real(n))),
        any::<bool>().prop_map(|value| Some(OwnedValue::Boolean(value))),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Some(OwnedValue::Blob(bytes))),
    ]
}

proptest! {
    #[test]
    fn cells_read_back_as_they_were_pushed(rows in prop::collection::vec(prop::collection::vec(value(), 0..5), 0..12)) {
        let mut table = Table::new("t", Vec::new());
        for (number, row) in (1..).zip(&rows) {
            while table.header.len() < row.len() {
                table.add_column(format!("c{}", table.header.len()));
            }
            let cells = row.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?.as_stored())));
            table.push_row(number, cells);
        }
        table.shrink_to_fit();
        assert_eq!((table.len() as usize, table.is_over_limit()), (rows.len(), false));
        let shown = |stored: StoredValue<'_>| match stored {
            StoredValue::Real(n) => format!("real {}", n.to_bits()),
            stored => format!("{stored:?}"),
        };
        for (number, row) in (0..).zip(&rows) {
            for column in 0..table.header.len() {
                let expected = row.get(column).and_then(Option::as_ref).map_or(StoredValue::Null, OwnedValue::as_stored);
                assert_eq!(shown(table.value(number, column)), shown(expected));
            }
        }
        let nullable = table.column_facts().iter().map(|facts| facts.nullable).collect::<Vec<_>>();
        let is_missing = |row: &Vec<Option<OwnedValue>>, at: usize| row.get(at).is_none_or(Option::is_none);
        let expected: Vec<bool> =
            (0..table.header.len()).map(|at| rows.iter().any(|row| is_missing(row, at))).collect();
        assert_eq!(nullable, expected);
    }
}

#[test]
fn readers_of_one_file_share_a_snapshot() {
    let file = TestFile::new();
    let (a, b) = (file.shape(0), file.shape(1));
    let readers = [&a, &b].map(|shape| file.rows.reader(shape).expect("a reader"));
    std::fs::write(file.folder.path().join("toy"), FILE.replace("1,x,1", "1,y,1")).expect("a file");
    // The first reader to poll reloads the file for both.
    assert!(readers[0].get(&[ValueRef::Integer(1)], &mut |_| {}).expect("a row"));
    let mut name = None;
    readers[1].get(&[ValueRef::Integer(1)], &mut |cells| name = Some(cells[1].to_value())).expect("a row");
    assert_eq!(name, Some(Value::Text("y".into())));
    assert_eq!(Arc::strong_count(&file.rows.0), 3);
}
