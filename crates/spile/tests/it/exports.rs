//! The corpus of messy exports in `testkit/exports`: each file is read as a careful person reads it, or `check` proposes
//! the lines for the manifest that make it right. What is read can be written back byte for byte.

use std::path::{Path, PathBuf};

use contract::source::{Query, RowChange, RowFlow, Source, TableShape, TransactionOptions};
use contract::{Collection, Value, ValueRef};
use serde_json::{Value as Json, json};
use source::csv::{self, Csv};
use spile::project::{Project, Scan};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/exports")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus().join("files")).expect("the corpus is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("a file has a name").to_string_lossy().into_owned()
}

fn expected(file: &Path) -> Json {
    let path = corpus().join("expected").join(format!("{}.json", file_name(file)));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every table as the corpus describes it: columns with their types, and rows.
fn tables(scan: &Scan) -> Json {
    let Some(compiled) = &scan.compiled else { return json!(messages(scan)) };
    let pairs = compiled.contract.collections.iter().zip(&compiled.backends.readers);
    pairs
        .map(|(collection, reader)| {
            let columns =
                collection.fields.iter().map(|field| json!([field.column, field.data_type.as_str()]));
            let mut rows = Vec::new();
            let listed = reader.list(&Query { rows_max: 10_000, ..Query::default() }, &mut |row, _| {
                rows.push(row_json(collection, row));
                RowFlow::Continue
            });
            listed.unwrap_or_else(|error| panic!("{}: {error}", collection.name));
            json!({ "columns": columns.collect::<Vec<_>>(), "rows": rows })
        })
        .map(sorted)
        .collect()
}

/// A list is in the order of its key; here only which rows there are matters.
fn sorted(mut table: Json) -> Json {
    if let Some(rows) = table["rows"].as_array_mut() {
        rows.sort_by_key(Json::to_string);
    }
    table
}

fn all_sorted(tables: &Json) -> Json {
    tables.as_array().into_iter().flatten().cloned().map(sorted).collect()
}

fn row_json(collection: &Collection, row: &[ValueRef<'_>]) -> Json {
    let values = collection.fields.iter().zip(row).map(|(field, value)| {
        let mut out = Vec::new();
        field.write_value(&mut out, *value).unwrap_or_else(|_| panic!("{}: {value:?}", field.name));
        serde_json::from_slice::<Json>(&out).expect("a field writes JSON")
    });
    values.collect()
}

/// Everything that `spile check` says.
fn messages(scan: &Scan) -> Vec<String> {
    let found = scan.diagnostics.iter();
    let found = found.map(|one| format!("{} = {}", one.message, one.help.as_deref().unwrap_or_default()));
    found.chain(scan.source_summaries.iter().flat_map(|one| one.lines.clone())).collect()
}

fn scan(path: &Path) -> Scan {
    Project::find(path).and_then(|project| project.scan()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// The generated manifest with lines added to the first collection and to its fields.
fn with_lines(manifest: &str, collection: &[&str], fields: &[&str]) -> String {
    let mut out = String::new();
    for line in manifest.lines() {
        out.push_str(line);
        out.push('\n');
        let is_fields = line.starts_with("[collections.") && line.ends_with(".fields]");
        let is_collection = line.starts_with("[collections.") && !is_fields;
        let added = match (is_collection, is_fields) {
            (true, _) => collection,
            (_, true) => fields,
            _ => &[],
        };
        added.iter().for_each(|added| out += &format!("{added}\n"));
    }
    out
}

fn texts(value: &Json) -> Vec<&str> {
    value.as_array().map(|all| all.iter().filter_map(Json::as_str).collect()).unwrap_or_default()
}

#[test]
fn every_export_is_read_as_a_careful_person_reads_it() {
    let mut failures = Vec::new();
    for file in files() {
        let (name, expected) = (file_name(&file), expected(&file));
        let folder = tempfile::tempdir().expect("a folder can be made");
        let copy = folder.path().join(&name);
        std::fs::copy(&file, &copy).expect("a file can be copied");
        let read = scan(&copy);
        let found = tables(&read);
        if found != all_sorted(&expected["tables"]) {
            failures.push(format!("{name}\n  read     {found}\n  expected {}", expected["tables"]));
        }
        let messages = messages(&read);
        for text in texts(&expected["named"]) {
            if !messages.iter().any(|message| message.contains(text)) {
                failures.push(format!("{name}: `check` does not say `{text}`\n  {messages:#?}"));
            }
        }
        let Some(fix) = expected.get("fix") else { continue };
        let (collection, fields) = (texts(&fix["collection"]), texts(&fix["fields"]));
        // A line that only the author can know is not proposed.
        if fix["is_free"] != json!(true) {
            for line in collection.iter().chain(&fields) {
                if !messages.iter().any(|message| message.contains(line)) {
                    failures.push(format!("{name}: `check` does not propose `{line}`\n  {messages:#?}"));
                }
            }
        }
        let manifest = folder.path().join("spile.toml");
        std::fs::write(&manifest, with_lines(&read.manifest_text, &collection, &fields)).expect("a file");
        let fixed = tables(&scan(&manifest));
        if fixed != all_sorted(&expected["fixed"]) {
            failures.push(format!("{name} with {fix}\n  read     {fixed}\n  expected {}", expected["fixed"]));
        }
    }
    assert!(failures.is_empty(), "{} problems\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_corpus_is_large_enough() {
    assert!(files().len() >= 40, "{}", files().len());
}

/// The rows of a table, as values.
fn rows(source: &dyn Source, shape: &TableShape) -> Vec<Vec<Value>> {
    let reader = source.reader(shape).expect("a reader");
    let mut rows = Vec::new();
    let listed = reader.list(&Query { rows_max: 10_000, ..Query::default() }, &mut |row, _| {
        rows.push(row.iter().map(|value| value.to_value()).collect());
        RowFlow::Continue
    });
    listed.expect("a list");
    rows
}

/// Sets one value of one row, and commits.
fn set(
    source: &dyn Source,
    shape: &TableShape,
    key: &Value,
    column: usize,
    value: &Value,
) -> Result<(), String> {
    let writer = source.writer(shape).map_err(|error| error.to_string())?;
    let options = TransactionOptions::default();
    let mut transaction = writer.begin(&options).map_err(|error| format!("{error:?}"))?;
    let (key, values) = ([key.as_value_ref()], [(column, value.as_value_ref())]);
    let change = RowChange::Update { key: &key, values: &values };
    transaction.apply(&change).map_err(|error| format!("{error:?}"))?;
    transaction.commit().map_err(|error| format!("{error:?}"))
}

#[test]
fn a_formatted_value_written_back_is_byte_identical() {
    let mut written = 0;
    for file in files().iter().filter(|file| file.extension().is_some_and(|extension| extension != "xlsx")) {
        let name = file_name(file);
        if !(name.ends_with(".csv") || name.ends_with(".tsv")) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder can be made");
        let copy = folder.path().join(&name);
        std::fs::copy(file, &copy).expect("a file can be copied");
        let before = std::fs::read(&copy).expect("readable");
        let compiled = scan(&copy).compiled.expect("a contract");
        let mut shape = compiled.contract.collections[0].shape.clone();
        let source = Csv::open(&copy, csv::Options { poll_interval_ms: 0, ..csv::Options::default() });
        let all = rows(&source, &shape);
        // What only its sums show to be a total is one no longer after a write, which is refused.
        if ["analytics.csv", "spend_over_25k.csv", "total_rounded.csv"].contains(&&*name) {
            continue;
        }
        let is_unique = |column: &usize| {
            let mut values: Vec<String> = all.iter().map(|row| format!("{:?}", row[*column])).collect();
            values.sort();
            values.dedup();
            values.len() == all.len()
                && all.iter().all(|row| matches!(&row[*column], Value::Text(text) if !text.is_empty()))
        };
        let Some(key) = (0..shape.columns.len()).find(is_unique) else { continue };
        shape.key = vec![key];
        let formatted = |column: &usize| shape.columns[*column].format.is_some() && *column != key;
        for column in (0..shape.columns.len()).filter(formatted) {
            for row in 0..all.len() {
                let other = &all[(row + 1) % all.len()][column];
                if all[row][column] == Value::Null || *other == Value::Null {
                    continue;
                }
                let set = |value: &Value| set(&source, &shape, &all[row][key], column, value);
                let place = format!("{name}, row {row}, column {column}");
                set(other).unwrap_or_else(|error| panic!("{place}: {error}"));
                set(&all[row][column]).unwrap_or_else(|error| panic!("{place}: {error}"));
                let after = std::fs::read(&copy).expect("readable");
                // A field that had to be quoted for the other value keeps its quotes.
                let unquoted = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\\"", "");
                let (after, before) = (unquoted(&after), unquoted(&before));
                // Blanks around a value, a missing zero before the point, the spelling of an exponent and the case of a word
                // are not part of its format.
                let others = [
                    "padded.csv",
                    "weather_station.csv",
                    "blank_rows.csv",
                    "no_header.csv",
                    "mixed_case.csv",
                ];
                let has_other_spelling = others.contains(&&*name) || name.starts_with("scientific");
                if !has_other_spelling {
                    assert_eq!(after, before, "{place}");
                }
                written += 1;
            }
        }
    }
    assert!(written > 40, "{written} values were written");
}
