//! The engine with a format that has several tables, and that does wrong where it is told to.

use std::sync::Arc;

use contract::source::{
    Change, Clerk, Shape, ShapeColumn, Source, SourceFault, Stale, Unwritable, Write, WriteFault,
};
use contract::{Cell, Value};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

use super::{Edit, Format, Held, Loaded, Put, Rows, Table, Unreadable};

/// Tables begin with a line such as `= people`, below which stand the names of their columns.
struct Toy;

fn cell(text: &str) -> Cell<'_> {
    match text {
        "" => Cell::Null,
        text => text.parse().map_or(Cell::Text(text), Cell::Integer),
    }
}

impl Format for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable> {
        let text = std::str::from_utf8(bytes).expect("tests write text");
        let mut loaded = Loaded::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("= ") {
                let header = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
                let mut table = Table::new(name, header);
                table.computed = vec![(2, "it is computed".to_owned())];
                table.read_only = (name == "locked").then(|| "it is locked".to_owned());
                loaded.tables.push(table);
            } else if let Some(table) = loaded.tables.last_mut() {
                let place = table.len() + 1;
                table.push_held(place, line.split(',').map(|text| cell(text).into()).enumerate());
            } else {
                let why = "does not begin with a table".to_owned();
                return Err(Unreadable { why, help: None, at: None });
            }
        }
        Ok(loaded)
    }

    fn rewrite(&self, bytes: &[u8], table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault> {
        let text = std::str::from_utf8(bytes).expect("tests write text");
        let mut tables: Vec<Vec<String>> = Vec::new();
        for line in text.lines() {
            if line.starts_with("= ") {
                tables.push(Vec::new());
            }
            tables.last_mut().expect("it was loaded").push(line.to_owned());
        }
        let lines = &mut tables[table];
        let set = |line: &str, cells: &[Put<'_>]| {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            for put in cells {
                fields[put.column] = match put.value {
                    Held::Text("refuse") => {
                        let why = "no such text".to_owned();
                        return Err(WriteFault::Refused { column: Some(put.column), why });
                    }
                    Held::Text("mangle") => "mangled".to_owned(),
                    Held::Text(text) => text.to_owned(),
                    Held::Integer(n) => n.to_string(),
                    Held::Null => String::new(),
                    other => panic!("{other:?}"),
                };
            }
            Ok(fields.join(","))
        };
        let wish = match edit {
            Edit::Append { cells } | Edit::Set { cells, .. } => {
                cells.iter().find_map(|put| if let Held::Text(text) = put.value { Some(text) } else { None })
            }
            Edit::Remove { .. } => None,
        };
        match edit {
            Edit::Append { cells } => lines.push(set(",,0", cells)?),
            Edit::Set { row, cells } => lines[row + 2] = set(&lines[row + 2], cells)?,
            Edit::Remove { row } => drop(lines.remove(row + 2)),
        }
        match wish {
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

struct Nobody;

impl Clerk for Nobody {
    fn before(&mut self, _: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        Ok(Vec::new())
    }

    fn after(&mut self, _: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        Ok(Vec::new())
    }
}

struct Disk {
    folder: tempfile::TempDir,
    rows: Rows,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("toy"), FILE).expect("a file");
        let rows = Rows::open(&folder.path().join("toy"), Box::new(Toy), 0);
        Self { folder, rows }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("toy")).expect("a file")
    }

    fn shape(&self, table: usize) -> Shape {
        let table = self.rows.facts().expect("facts").tables.swap_remove(table);
        let columns = table.columns.into_iter().enumerate().map(|(at, column)| ShapeColumn {
            at,
            name: column.name,
            kind: column.kind,
            nullable: column.nullable,
            mixed: column.mixed,
            null: None,
        });
        Shape { table: table.name, columns: columns.collect(), key: table.key }
    }

    fn write(&self, change: Change<'_>) -> Result<String, WriteFault> {
        let writer = self.rows.writer(&self.shape(0)).expect("a writer");
        writer.write(&Write { change, claim: None, dry_run: false, now_ms: 0, stop: None }, &mut Nobody)?;
        Ok(self.text())
    }
}

#[test]
fn a_format_that_changes_more_than_it_was_asked_to_changes_nothing() {
    let more = "more than this record would change in the file";
    for (wish, expected) in [
        ("spoil", more),
        ("drop", more),
        ("rename", more),
        ("swap", more),
        ("other", more),
        ("lose", more),
        ("garbage", "the file could not be read afterwards"),
        ("mangle", "it would not read back as it is"),
        ("refuse", "no such text"),
    ] {
        let disk = Disk::new();
        let cells = [(1, Cell::Text(wish))];
        let new = [(0, Cell::Integer(9)), (1, Cell::Text(wish))];
        let key = [Cell::Integer(2)];
        for change in [Change::Update { key: &key, cells: &cells }, Change::Create { cells: &new }] {
            let shown = format!("{change:?}");
            match disk.write(change) {
                Err(WriteFault::Refused { column, why }) => {
                    assert_eq!(why, expected, "{shown}");
                    let is_about_it = ["mangle", "refuse"].contains(&wish);
                    assert_eq!(column, is_about_it.then_some(1), "{shown}");
                }
                other => panic!("{shown}: {other:?}"),
            }
            assert_eq!(disk.text(), FILE, "{shown}");
        }
    }
}

#[test]
fn a_format_that_does_as_it_was_asked_is_believed() {
    let key = [Cell::Integer(2)];
    let cells = [(1, Cell::Text("Cid"))];
    let new = [(0, Cell::Integer(9)), (1, Cell::Text("Dan"))];
    for (change, from, to) in [
        (Change::Update { key: &key, cells: &cells }, "2,Bob,2", "2,Cid,2"),
        (Change::Create { cells: &new }, "3,,3\n", "3,,3\n9,Dan,0\n"),
        (Change::Delete { key: &key }, "2,Bob,2\n", ""),
    ] {
        assert_eq!(Disk::new().write(change).expect("it is right"), FILE.replace(from, to));
    }
    let computed = [(2, Cell::Integer(1))];
    let fault =
        Disk::new().write(Change::Update { key: &key, cells: &computed }).expect_err("it is computed");
    assert_eq!(fault.to_string(), "it is computed");
}

#[test]
fn tables_and_columns_are_known_by_their_names() {
    let disk = Disk::new();
    let facts = disk.rows.facts().expect("facts");
    let locked = &facts.tables[1];
    assert_eq!((locked.name.as_str(), locked.read_only.as_deref()), ("locked", Some("it is locked")));
    assert_eq!(locked.columns[2].read_only.as_deref(), Some("it is computed"));
    assert!(disk.rows.writer(&disk.shape(1)).is_err());
    let shape = disk.shape(0);
    let reader = disk.rows.reader(&shape).expect("a reader");
    for (file, told) in [
        (
            FILE.replace("= people", "= peple"),
            "has no table `people`, but `peple`; name it as it was, or make the contract anew",
        ),
        (FILE.replace("= people", "= x"), "has no table `people`; put it back, or make the contract anew"),
        (
            FILE.replace("id,name", "id,nmae"),
            "has no column `name`, but `nmae`; name it as it was, or make the contract anew",
        ),
        (
            FILE.replace("3,,3", "2,,3"),
            "rows 2 and 3 have the same `id`, which is the key; change one, or choose another key",
        ),
        ("x\n".to_owned(), "does not begin with a table; give the path of a toy"),
    ] {
        std::fs::write(disk.folder.path().join("toy"), file).expect("a file");
        match reader.get(&[Cell::Integer(1)], &mut |_| {}) {
            Err(SourceFault::Changed { told: got, .. }) => assert_eq!(got, format!("`toy` {told}")),
            other => panic!("{other:?}"),
        }
        assert!(disk.rows.explain(Some(&shape)).is_some());
    }
    // Columns and tables may stand elsewhere.
    let moved = "= locked\nid,name,sum\n= people\nx,sum,name,id\n?,7,Ann,1\n";
    std::fs::write(disk.folder.path().join("toy"), moved).expect("a file");
    let mut found = Vec::new();
    let is_there = reader.get(&[Cell::Integer(1)], &mut |cells| {
        found = cells.iter().map(|cell| cell.to_value()).collect();
    });
    assert!(is_there.expect("it fits"));
    assert_eq!(found, [Value::Integer(1), Value::Text("Ann".into()), Value::Integer(7)]);
}

/// A value of each sort that a table can hold.
#[derive(Debug, Clone)]
enum Sorted {
    Text(u8, String),
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Blob(Vec<u8>),
}

impl Sorted {
    fn held(&self) -> Held<'_> {
        match self {
            Self::Text(0, text) => Held::Text(text),
            Self::Text(1, text) => Held::Moment(text),
            Self::Text(2, text) => Held::Digits(text),
            Self::Text(_, text) => Held::Json(text),
            Self::Integer(n) => Held::Integer(*n),
            Self::Real(n) => Held::Real(*n),
            Self::Boolean(yes) => Held::Boolean(*yes),
            Self::Blob(bytes) => Held::Blob(bytes),
        }
    }
}

fn value() -> impl Strategy<Value = Option<Sorted>> {
    prop_oneof![
        Just(None),
        (0..4_u8, "[a-zé0-9]{0,6}").prop_map(|(sort, text)| Some(Sorted::Text(sort, text))),
        any::<i64>().prop_map(|n| Some(Sorted::Integer(n))),
        any::<f64>().prop_map(|n| Some(Sorted::Real(n))),
        any::<bool>().prop_map(|yes| Some(Sorted::Boolean(yes))),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Some(Sorted::Blob(bytes))),
    ]
}

proptest! {
    #[test]
    fn cells_come_back_as_they_were_put_in(rows in prop::collection::vec(prop::collection::vec(value(), 0..5), 0..12)) {
        let mut table = Table::new("t", Vec::new());
        for (number, row) in (1..).zip(&rows) {
            while table.header.len() < row.len() {
                table.widen(format!("c{}", table.header.len()));
            }
            let cells = row.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?.held())));
            table.push_held(number, cells);
        }
        table.settle();
        assert_eq!((table.len() as usize, table.is_full()), (rows.len(), false));
        let shown = |held: Held<'_>| match held {
            Held::Real(n) => format!("real {}", n.to_bits()),
            held => format!("{held:?}"),
        };
        for (number, row) in (0..).zip(&rows) {
            for column in 0..table.header.len() {
                let expected = row.get(column).and_then(Option::as_ref).map_or(Held::Null, Sorted::held);
                assert_eq!(shown(table.held(number, column)), shown(expected));
            }
        }
        let nullable = table.column_facts().iter().map(|facts| facts.nullable).collect::<Vec<_>>();
        let is_missing = |row: &Vec<Option<Sorted>>, at: usize| row.get(at).is_none_or(Option::is_none);
        let expected: Vec<bool> =
            (0..table.header.len()).map(|at| rows.iter().any(|row| is_missing(row, at))).collect();
        assert_eq!(nullable, expected);
    }
}

#[test]
fn readers_of_one_file_share_what_was_read() {
    let disk = Disk::new();
    let (a, b) = (disk.shape(0), disk.shape(1));
    let readers = [&a, &b].map(|shape| disk.rows.reader(shape).expect("a reader"));
    std::fs::write(disk.folder.path().join("toy"), FILE.replace("1,x,1", "1,y,1")).expect("a file");
    // Who looks first reads it for both.
    assert!(readers[0].get(&[Cell::Integer(1)], &mut |_| {}).expect("a row"));
    let mut name = None;
    readers[1].get(&[Cell::Integer(1)], &mut |cells| name = Some(cells[1].to_value())).expect("a row");
    assert_eq!(name, Some(Value::Text("y".into())));
    assert_eq!(Arc::strong_count(&disk.rows.0), 3);
}
