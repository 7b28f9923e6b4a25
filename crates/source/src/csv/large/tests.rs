//! A file that is imported gives the same facts and rows as one in memory, however small the parts are that are looked at
//! as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::source::{
    ColumnFacts, ColumnShape, Query, Reader, RowFlow, Source, SourceError, SourceFacts, TableShape,
};
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{Csv, Options};
use super::LargeCsv;
use super::profile::SampleSize;

struct Place {
    folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new(text: &[u8]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("people.csv");
        std::fs::write(&path, text).expect("writable");
        Self { folder, path }
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).expect("writable");
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn large(&self, options: Options, head_bytes: usize) -> LargeCsv {
        let sample = SampleSize { head_bytes, tail_bytes: 64 };
        LargeCsv::with_sample(&self.path, options, &self.cache(), sample)
    }
}

fn shape(facts: &SourceFacts) -> TableShape {
    let table = &facts.tables[0];
    let column = |(at, column): (usize, &ColumnFacts)| ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: false,
        null_texts: Vec::new(),
        format: column.format.clone(),
    };
    let columns = table.columns.iter().enumerate().map(column).collect();
    TableShape { table: table.name.clone(), columns, key: table.key.clone() }
}

/// All rows, in the reader's order.
fn rows(reader: &Arc<dyn Reader>, shape: &TableShape) -> Result<Vec<String>, SourceError> {
    let mut rows = Vec::new();
    reader.list(&Query { rows_max: 100_000, ..Query::default() }, &mut |cells, _| {
        let cells = cells.iter().zip(&shape.columns).map(|(cell, column)| {
            let mut field = contract::field::Field::new("f", "f", column.data_type);
            field.nullable = true;
            let mut out = Vec::new();
            field.write_value(&mut out, *cell).unwrap_or_else(|_| panic!("{}: {cell:?}", column.name));
            // The same number may have several spellings.
            match column.data_type {
                contract::DataType::Number => {
                    let text = String::from_utf8(out).expect("JSON");
                    text.parse::<f64>().map_or(text, |number| number.to_string())
                }
                _ => String::from_utf8(out).expect("JSON"),
            }
        });
        rows.push(cells.collect::<Vec<_>>().join(","));
        RowFlow::Continue
    })?;
    Ok(rows)
}

/// Everything that the facts say but how the file can be written.
fn facts_text(facts: &SourceFacts) -> String {
    let table = &facts.tables[0];
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} {:#?}",
        table.name,
        table.key,
        table.row_count,
        table.header,
        table.likely_header_row,
        table.layout_notes,
        table.columns
    )
}

fn outcome(source: &dyn Source) -> Result<(String, Vec<String>), String> {
    let facts = source.introspect().map_err(|error| error.to_string())?;
    let shape = shape(&facts);
    let reader = source.reader(&shape).map_err(|error| error.to_string())?;
    Ok((facts_text(&facts), rows(&reader, &shape).map_err(|error| error.to_string())?))
}

/// Compares a file in memory with its import. Errors must name the same line.
#[track_caller]
fn check(text: &[u8], options: &Options, head_bytes: usize) {
    let place = Place::new(text);
    let expected = outcome(&Csv::open(&place.path, options.clone()));
    let found = outcome(&place.large(options.clone(), head_bytes));
    match (&expected, &found) {
        (Err(expected), Err(found)) => {
            // What the rest of the file is like is not known yet.
            let start = |message: &str| message.split("; ").next().unwrap_or_default().to_owned();
            assert_eq!(start(found), start(expected), "{}", text.escape_ascii());
        }
        _ => assert_eq!(found, expected, "{}", text.escape_ascii()),
    }
}

const WHOLE: usize = 1 << 20;

#[test]
fn facts_and_rows_are_those_of_a_file_in_memory() {
    let options = Options::default();
    for text in [
        "id,name,born\n1,Ada,1815-12-10\n2,Bea,\n3,\"C, \"\"D\"\"\",1999-01-01\n",
        "id;Betrag;Datum\n1;1.234,50 €;13/02/2026\n2;0,99 €;28/01/2026\n3;;\n",
        "Report of 2026\n\nid,total\n1,5.50\n2,7.25\n\nPrinted by: nobody, really\n",
        "id,total\n1,5.50\n2,7.25\nTotal,12.75\n",
        "a,b\n1,2\n\n,\na,b\n3,4\n",
        "p\n1e-7\n0.5\n2E3\n",
        "flag,n\nja,9007199254740993\nnein,1\n",
        "x,x,\n1,2,\n3,4,\n",
        "sep=;\nid;v\n1;a\n",
        "name,value\n,\n ,\n",
        "id\n1\n2\n2\n",
        "id,when\n1,2026-01-01T10:00:00Z\n2,2026-01-01T11:30:00+02:00\n",
        "only\n",
        "",
        "a,b\n1\n",
        "a,b\n1,2\n3,4,5\n",
        "a,b\n1,\"x\n",
    ] {
        check(text.as_bytes(), &options, WHOLE);
        check(text.replace('\n', "\r\n").as_bytes(), &options, WHOLE);
    }
    let latin: &[u8] = b"id,name\n1,Bj\xf6rn\n2,Ren\xe9\n";
    check(latin, &options, WHOLE);
    let utf16: Vec<u8> = "\u{feff}id,name\n1,é\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check(&utf16, &options, WHOLE);
    check("\u{feff}id,name\n1,é\n".as_bytes(), &options, WHOLE);
}

/// A table with notes below it, long enough for a start and an end that do not touch.
fn long_table(last: &str) -> String {
    let rows = (1..=500).map(|number| format!("{number},name {number},{}.50\n", number % 7));
    format!("id,name,total\n{}{last}", rows.collect::<String>())
}

#[test]
fn the_end_of_a_long_file_is_looked_at() {
    let options = Options::default();
    for last in ["", "\n", ",,\n", "id,name,total\n", "\nA note below the table\n", "501,\"a\nb\",9\n"] {
        check(long_table(last).as_bytes(), &options, 200);
    }
    let mut declared = Options::default();
    declared.table.layout.footer_rows = Some(2);
    check(long_table("x,y,z\nx,y,z\n").as_bytes(), &declared, 200);
    let mut declared = Options::default();
    declared.table.layout.stop_at = Some("name 300".into());
    check(long_table("").replace("300,name 300", "name 300,x").as_bytes(), &declared, 200);
}

#[test]
fn a_long_file_ends_where_a_second_table_begins_and_not_at_a_blank_line() {
    let options = Options::default();
    let rows = |count: u32| {
        (1..=count).map(|number| format!("{number},name {number},{}.50\n", number % 7)).collect::<String>()
    };
    let others: String = (1..=500).map(|number| format!("x{number},y,{}\n", 2000 + number)).collect();
    for (last, count) in [("\noffice,head,since\n", 5), ("\n501,n,none\n", 506), ("\n501,n,-\n", 506)] {
        let (below, total) = match count {
            5 => (others.as_str(), 5),
            _ => (&*rows(500), count),
        };
        let text = format!("id,name,total\n{}{last}{below}", rows(5));
        check(text.as_bytes(), &options, 200);
        let facts = Place::new(text.as_bytes()).large(options.clone(), 200).introspect().expect("facts");
        assert_eq!(facts.tables[0].row_count, Some(total), "{last}");
    }
}

#[test]
fn what_is_wrong_in_the_middle_has_its_line() {
    let options = Options::default();
    for (row, wrong) in [("300,name 300,6.50", "300,name 300"), ("300,name 300,6.50", "300,n,6.50,x")] {
        let text = long_table("").replace(row, wrong);
        check(text.as_bytes(), &options, 200);
        let error = Place::new(text.as_bytes()).large(options.clone(), 200).introspect().expect_err("ragged");
        assert!(error.to_string().contains("line 301"), "{error}");
    }
}

#[test]
fn a_declared_type_or_key_that_does_not_fit_names_the_line() {
    let place = Place::new(b"id,name\n1,Ada\n2,x\n2,\n");
    let source = place.large(Options::default(), WHOLE);
    let facts = source.introspect().expect("facts");
    let wanted = |change: &dyn Fn(&mut TableShape)| {
        let mut shape = shape(&facts);
        change(&mut shape);
        let memory = Csv::open(&place.path, Options::default());
        let expected = memory.reader(&shape).err().map(|error| error.to_string());
        let found = source.reader(&shape).err().map(|error| error.to_string());
        assert_eq!(found, expected);
        found
    };
    assert_eq!(wanted(&|_| {}), None);
    assert_eq!(wanted(&|shape| shape.columns[0].data_type = contract::DataType::Text), None);
    let error = wanted(&|shape| shape.columns[1].data_type = contract::DataType::Integer);
    assert!(error.as_deref().is_some_and(|error| error.contains("line 2")), "{error:?}");
    let error = wanted(&|shape| shape.key = vec![0]);
    assert!(error.as_deref().is_some_and(|error| error.contains("lines 3 and 4")), "{error:?}");
    let error = wanted(&|shape| shape.key = vec![1]);
    assert!(error.as_deref().is_some_and(|error| error.contains("line 4")), "{error:?}");
}

#[test]
fn readers_follow_a_file_that_changes() {
    let place = Place::new(b"id,name\n1,Ada\n");
    let source = place.large(Options::default(), WHOLE);
    let shape = shape(&source.introspect().expect("facts"));
    let reader = source.reader(&shape).expect("a reader");
    assert_eq!(rows(&reader, &shape).expect("rows"), [r#"1,"Ada""#]);
    place.write("id,name\n1,Ada\n2,Bea\n");
    assert_eq!(source.introspect().expect("facts").tables[0].row_count, Some(2));
    assert_eq!(rows(&reader, &shape).expect("rows"), [r#"1,"Ada""#, r#"2,"Bea""#]);
    place.write("id,name\nx,Ada\n");
    source.introspect().expect("facts");
    let error = rows(&reader, &shape).expect_err("another type");
    assert!(error.to_string().contains("line 2"), "{error}");
    place.write("key,name\n1,Ada\n");
    source.introspect().expect("facts");
    assert!(rows(&reader, &shape).is_err(), "the column is gone");
    place.write("id,name\n3,Cem\n");
    source.introspect().expect("facts");
    assert_eq!(rows(&reader, &shape).expect("rows"), [r#"3,"Cem""#]);
    std::fs::remove_file(&place.path).expect("removable");
    assert!(source.introspect().is_err());
    assert!(rows(&reader, &shape).is_err(), "as with every file");
}

#[test]
fn a_file_that_is_gone_is_not_served_and_an_old_error_does_not_stay() {
    let place = Place::new(b"id,age\n1,30\n");
    let source = place.large(Options::default(), WHOLE);
    let shape = shape(&source.introspect().expect("facts"));
    let reader = source.reader(&shape).expect("a reader");
    assert_eq!(rows(&reader, &shape).expect("rows"), ["1,30"]);
    std::fs::remove_file(&place.path).expect("removable");
    let error = rows(&reader, &shape).expect_err("gone");
    assert_eq!(error.to_string(), "`people.csv` was not found");
    place.write("id,age\n1,30\n2,old\n");
    source.introspect().expect("facts");
    let error = rows(&reader, &shape).expect_err("a value does not fit");
    assert!(matches!(error, SourceError::Incompatible { .. }), "{error:?}");
    std::fs::remove_file(&place.path).expect("removable");
    let error = rows(&reader, &shape).expect_err("gone");
    assert!(matches!(error, SourceError::Unavailable { .. }), "{error:?}");
    place.write("id,age\n1,30\n2,31\n");
    // The import runs in the background, and until it is done reads say so.
    let rows = loop {
        match rows(&reader, &shape) {
            Ok(rows) => break rows,
            Err(SourceError::Unavailable { message, .. }) => {
                assert!(message.contains("is being imported again"), "{message}");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(rows, ["1,30", "2,31"]);
}

#[test]
fn it_is_imported_once_and_cannot_be_written() {
    let place = Place::new(b"id,name\n1,Ada\n");
    let databases = |folder: &Path| {
        let names = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        let mut all: Vec<PathBuf> =
            names.filter(|path| path.extension().is_some_and(|extension| extension == "sqlite")).collect();
        all.sort();
        all
    };
    let first = place.large(Options::default(), WHOLE);
    let facts = first.introspect().expect("facts");
    assert!(facts.tables[0].read_only_reason().is_some_and(|reason| reason.contains("memory_bytes_max")));
    let made = databases(&place.cache());
    let second = place.large(Options::default(), WHOLE);
    second.introspect().expect("facts");
    assert_eq!((made.len(), databases(&place.cache())), (1, made));
    place.write("id,name\n1,Ada\n2,Bea\n");
    drop(first);
    second.introspect().expect("facts");
    second.introspect().expect("facts");
    assert_eq!(databases(&place.cache()).len(), 2, "the old one until its last user is gone");
}

/// Cells that are alike, so that columns have types.
fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0..30_i64).prop_map(|number| number.to_string()),
        1 => Just(String::new()),
        1 => "[a-c]{1,3}",
        1 => "[0-9]{1,2}\\.[0-9]{2}",
        1 => Just("2026-02-11".to_owned()),
        1 => Just("\"x, \"\"y\"\"\nz\"".to_owned()),
        1 => Just("1.234,50".to_owned()),
        1 => Just("Total".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn any_table_is_read_as_in_memory(
        columns in 1..4_usize,
        cells in prop::collection::vec(cell(), 0..60),
        is_typed in any::<bool>(),
    ) {
        let header = (0..columns).map(|at| format!("column {at}")).collect::<Vec<_>>().join(",");
        let mut text = format!("{header}\n");
        for row in cells.chunks_exact(columns) {
            // Most columns of a real file have one type.
            let row: Vec<&str> = row.iter().enumerate().map(|(at, cell)| match is_typed && at == 0 {
                true => "5",
                false => cell.as_str(),
            }).collect();
            text += &format!("{}\n", row.join(","));
        }
        check(text.as_bytes(), &Options::default(), WHOLE);
    }
}
