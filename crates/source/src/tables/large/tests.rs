//! A file of JSON Lines that is imported gives the same facts, rows and errors as one in memory.

use std::path::PathBuf;
use std::sync::Arc;

use contract::source::{
    Aggregate, ColumnFacts, ColumnShape, Comparison, Filter, Measure, Query, Reader, RowFlow, Sort, Source,
    SourceError, SourceFacts, TableOptions, TableShape, Total,
};
use contract::{DataType, Value, ValueRef};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::json::{self, JsonLayout};
use crate::{LargeTableFile, TableFile};

struct Place {
    folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new(text: &[u8]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("people.jsonl");
        std::fs::write(&path, text).expect("writable");
        Self { folder, path }
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).expect("writable");
    }

    fn large(&self, table: &TableOptions) -> LargeTableFile {
        json::open_large_lines(&self.path, table.clone(), &self.folder.path().join("cache"))
    }

    fn in_memory(&self, table: &TableOptions) -> TableFile {
        json::open(
            &self.path,
            json::Options { table: table.clone(), ..json::Options::new(JsonLayout::Lines) },
        )
    }
}

fn shape(facts: &SourceFacts, options: &TableOptions) -> TableShape {
    let table = &facts.tables[0];
    let column = |(at, column): (usize, &ColumnFacts)| ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: column.mixed,
        null_texts: options.null_texts(&column.name).to_vec(),
        format: column.format.clone(),
    };
    let columns = table.columns.iter().enumerate().map(column).collect();
    TableShape { table: table.name.clone(), columns, key: table.key.clone() }
}

/// All rows as callers see them, in the order of a column or of the file.
fn rows(
    reader: &Arc<dyn Reader>,
    shape: &TableShape,
    sort: Option<usize>,
) -> Result<Vec<String>, SourceError> {
    let mut rows = Vec::new();
    let sort = sort.map(|column| Sort { column, descending: false }).into_iter().collect();
    reader.list(&Query { rows_max: 100_000, sort, ..Query::default() }, &mut |cells, _| {
        let cells = cells.iter().zip(&shape.columns).map(|(cell, column)| {
            let mut field = contract::field::Field::new("f", "f", column.data_type);
            (field.nullable, field.mixed) = (true, column.mixed);
            let mut out = Vec::new();
            field.write_value(&mut out, *cell).unwrap_or_else(|_| panic!("{}: {cell:?}", column.name));
            String::from_utf8(out).expect("JSON")
        });
        rows.push(cells.collect::<Vec<_>>().join(","));
        RowFlow::Continue
    })?;
    Ok(rows)
}

/// Facts, and rows in every order.
type Outcome = Result<(String, Vec<Vec<String>>), String>;

fn outcome(source: &dyn Source, options: &TableOptions) -> Outcome {
    let text = |error: SourceError| error.to_string();
    let facts = source.introspect().map_err(text)?;
    let table = &facts.tables[0];
    let shape = shape(&facts, options);
    let reader = source.reader(&shape).map_err(text)?;
    let orders = [None].into_iter().chain((0..shape.columns.len()).map(Some));
    let lists = orders.map(|sort| rows(&reader, &shape, sort)).collect::<Result<_, _>>().map_err(text)?;
    Ok((format!("{} {:?} {:?} {:#?}", table.name, table.key, table.row_count, table.columns), lists))
}

#[track_caller]
fn check(text: &[u8], options: &TableOptions) {
    let place = Place::new(text);
    let expected = outcome(&place.in_memory(options), options);
    assert_eq!(outcome(&place.large(options), options), expected, "{}", text.escape_ascii());
}

#[test]
fn facts_and_rows_are_those_of_a_file_in_memory() {
    for text in [
        "{\"id\": 1, \"name\": \"Ada\"}\n\n  {\"name\": null, \"born\": \"1815-12-10\", \"id\": 2}  \n",
        "{\"a\": 1}\n{\"a\": 2.5}\n{\"a\": 1e400}\n{\"a\": -0}\n{\"a\": 12345678901234567890}\n",
        "{\"a\": 1.50}\n{\"a\": 2}\n{\"a\": 3.0}\n",
        "{\"a\": 9007199254740993}\n{\"a\": 1}\n",
        "{\"a\": true}\n{\"a\": false}\n{\"a\": null}\n{}\n",
        "{\"a\": true}\n{\"a\": 1}\n{\"a\": \"x\"}\n{\"a\": true}\n{\"a\": true}\n",
        "{\"a\": 7}\n{\"a\": \"7\"}\n{\"a\": 7.5}\n{\"a\": 10}\n",
        "{\"a\": \"x\"}\n{\"a\": \"y\"}\n{\"a\": 7}\n{\"a\": false}\n",
        "{\"tags\": [1, {\"b\": \"\\u00e9\"}]}\n{\"tags\": \"none\"}\n{\"tags\": 3}\n",
        "{\"Betrag\": \"1.234,50 €\"}\n{\"Betrag\": \"0,99 €\"}\n{\"Betrag\": \"  \"}\n{}\n",
        "{\"when\": \"01/02/2026\"}\n{\"when\": \"03/04/2026\"}\n",
        "{\"at\": \"2026-01-01T10:00:00Z\"}\n{\"at\": \"2026-01-01T11:30:00+02:00\"}\n",
        "{\"id\": \"b\", \"n\": 1}\n{\"id\": \"a\", \"n\": 1}\n",
        "\u{feff}{\"a\": \"\\u0000\\n\"}\r\n{\"a\": \"\"}\r\n",
        "{\"p\": 1e-7}\n{\"p\": 0.5}\n{\"p\": 2E3}\n",
        "{\"a\": \"aGk=\"}\n{\"a\": \"aGkh\"}\n",
        "{}\n{}\n",
        "",
        "\n \n",
        "{\"a\": 1}\n[1]\n",
        "{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n",
        "{\"a\": 1}\n{\"a\": }\n",
        "{\"a\": 1}\n\n{'a': 1}\n",
        "[\n{\"a\": 1}\n]\n",
    ] {
        check(text.as_bytes(), &TableOptions::default());
    }
    check(b"{\"a\": \"\xff\"}\n", &TableOptions::default());
    check(b"\xff\xfe{\0", &TableOptions::default());
}

#[test]
fn declared_texts_for_no_value_are_taken_into_account() {
    let options = TableOptions { null_texts: vec!["n/a".into(), "-".into()], ..TableOptions::default() };
    check(
        b"{\"n\": 5, \"v\": \"1,50\"}\n{\"n\": \"n/a\", \"v\": \"-\"}\n{\"n\": 7, \"v\": \"2,75\"}\n",
        &options,
    );
}

#[test]
fn more_columns_than_the_limit_are_refused_with_the_line() {
    let members: Vec<String> = (0..1025).map(|at| format!("\"c{at}\": {at}")).collect();
    check(format!("{{\"c0\": 1}}\n{{{}}}\n", members.join(",")).as_bytes(), &TableOptions::default());
}

#[test]
fn a_line_that_is_too_long_is_refused_without_being_read_to_its_end() {
    let text = format!("{{\"a\": 1}}\n{{\"a\": \"{}\"}}\n", "x".repeat(18 << 20));
    let error =
        Place::new(text.as_bytes()).large(&TableOptions::default()).introspect().expect_err("too long");
    assert!(error.to_string().contains("line 2 has more than 16777216 bytes"), "{error}");
}

#[test]
fn a_declared_type_or_key_that_does_not_fit_names_the_line() {
    let options = TableOptions::default();
    let place =
        Place::new(b"{\"id\": 1, \"v\": \"7\"}\n\n{\"id\": 2, \"v\": \"8\"}\n{\"id\": 2, \"v\": null}\n");
    let (large, in_memory) = (place.large(&options), place.in_memory(&options));
    let facts = large.introspect().expect("facts");
    let wanted = |change: &dyn Fn(&mut TableShape)| {
        let mut shape = shape(&facts, &options);
        change(&mut shape);
        let open = |source: &dyn Source| {
            let reader = source.reader(&shape).map_err(|error| error.to_string())?;
            Ok::<_, String>(rows(&reader, &shape, None).expect("rows"))
        };
        let found = open(&large);
        assert_eq!(found, open(&in_memory));
        found
    };
    assert_eq!(wanted(&|_| {}).expect("rows").len(), 3);
    for data_type in [DataType::Integer, DataType::Int64, DataType::Decimal, DataType::Number] {
        wanted(&|shape| shape.columns[1].data_type = data_type)
            .expect("digits in a text are numbers, if declared");
    }
    wanted(&|shape| shape.columns[0].data_type = DataType::Text).expect("numbers as texts");
    let absent = ColumnShape {
        name: "later".into(),
        source_index: 9,
        nullable: true,
        ..shape(&facts, &options).columns[0].clone()
    };
    wanted(&|shape| shape.columns.push(absent.clone())).expect("a column that no line names");
    let error = wanted(&|shape| shape.columns[1].data_type = DataType::Date).expect_err("not dates");
    assert!(error.contains("line 1"), "{error}");
    let error = wanted(&|shape| shape.columns[1].nullable = false).expect_err("a null");
    assert!(error.contains("line 4"), "{error}");
    let error = wanted(&|shape| shape.key = vec![1]).expect_err("a null");
    assert!(error.contains("line 4"), "{error}");
    let error = wanted(&|shape| shape.key = vec![0]).expect_err("not unique");
    assert!(error.contains("lines 3 and 4"), "{error}");
}

#[test]
fn readers_follow_a_file_that_changes_and_it_cannot_be_written() {
    let options = TableOptions::default();
    let place = Place::new(b"{\"id\": 1}\n");
    let source = place.large(&options);
    let facts = source.introspect().expect("facts");
    assert!(facts.tables[0].read_only_reason().is_some_and(|reason| reason.contains("memory_bytes_max")));
    let shape = shape(&facts, &options);
    assert!(source.writer(&shape).is_err());
    let reader = source.reader(&shape).expect("a reader");
    place.write("{\"id\": 1}\n{\"id\": 2, \"more\": true}\n");
    assert_eq!(source.introspect().expect("facts").tables[0].row_count, Some(2));
    assert_eq!(rows(&reader, &shape, None).expect("rows"), ["1", "2"]);
    let mut found = false;
    assert!(reader.get(&[ValueRef::Integer(2)], &mut |_| found = true).expect("a row") && found);
    place.write("{\"id\": 1}\n{\"id\": \"x\"}\n");
    source.introspect().expect("facts");
    let error = rows(&reader, &shape, None).expect_err("another type");
    assert!(error.to_string().contains("line 2"), "{error}");
    place.write("{\"id\": 1}\n{\"id\": \n");
    assert!(source.introspect().is_err() && rows(&reader, &shape, None).is_err());
    place.write("{\"id\": 3}\n");
    source.introspect().expect("facts");
    assert_eq!(rows(&reader, &shape, None).expect("rows"), ["3"]);
}

#[test]
fn the_rows_of_an_import_are_not_counted_again() {
    let options = TableOptions::default();
    let place = Place::new(b"{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3}\n");
    let source = place.large(&options);
    let shape = shape(&source.introspect().expect("facts"), &options);
    let reader = source.reader(&shape).expect("a reader");
    // Whoever counted now would find two rows.
    let files = std::fs::read_dir(place.folder.path().join("cache")).expect("a cache");
    let is_database = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sqlite");
    let database = files.map(|file| file.expect("a file").path()).find(is_database).expect("an import");
    rusqlite::Connection::open(database)
        .and_then(|it| it.execute_batch("DELETE FROM rows WHERE rowid = 3"))
        .expect("two rows");
    let count = |filters| {
        let measures = vec![Measure::Count];
        let question = Aggregate { measures, filters, groups_max: 1, ..Aggregate::default() };
        reader.aggregate(&question).expect("a count").rows[0].0[0].clone()
    };
    assert_eq!(count(Vec::new()), Value::Integer(3));
    assert_eq!(count(vec![Filter::new(0, Comparison::AtLeast, ValueRef::Integer(1))]), Value::Integer(2));
    let query = Query { rows_max: 1, ..Query::default() };
    let total = reader.list(&query, &mut |_, _| RowFlow::Continue).expect("a page");
    assert_eq!(total, Some(Total::Exact(3)));
}

/// Values that are alike, so that columns have types.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..30_i64).prop_map(|number| number.to_string()),
        2 => Just("null".to_owned()),
        2 => "[a-c]{1,3}".prop_map(|text| format!("\"{text}\"")),
        1 => "[0-9]{1,2}\\.[0-9]{2}",
        1 => "\"[0-9]{1,2},[0-9]{2}\"",
        1 => prop::sample::select(vec!["true", "false", "\"\"", "\" \"", "1e5", "-0", "0.1", "\"2026-02-11\""])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["[1, 2]", "{\"x\": null}", "123456789012345678", "\"n/a\""])
            .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_file_is_read_as_in_memory(
        objects in prop::collection::vec(
            (prop::collection::vec(value(), 3), prop::bits::u8::between(0, 3), any::<bool>()), 0..16),
        constant in prop::option::of(value()),
    ) {
        let mut text = String::new();
        for (values, present, is_reversed) in objects {
            let mut members: Vec<String> = Vec::new();
            for (at, value) in values.iter().enumerate() {
                // Most columns of a real file have one type.
                let value = if at == 0 { constant.as_ref().unwrap_or(value) } else { value };
                if present >> at & 1 == 0 {
                    members.push(format!("\"c{at}\": {value}"));
                }
            }
            if is_reversed {
                members.reverse();
            }
            text += &format!("{{{}}}\n", members.join(", "));
        }
        check(text.as_bytes(), &TableOptions::default());
    }
}
