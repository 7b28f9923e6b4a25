//! The question set in `testkit/questions`: what people ask of their data, answered by one call each, compared with
//! SQLite's own answer to the same question. The same rows as a database, as files and as a workbook give the same answers.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Value as Json, json};
use spile::project::Project;
use tempfile::TempDir;

use crate::harness::{StdioServer, TestProject};

struct Question {
    /// `chinook`, `northwind`, or a file of the corpus.
    data: String,
    words: String,
    tool: String,
    arguments: Json,
    sql: String,
}

fn testkit(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(testkit(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every block of three lines, under the heading before it.
fn questions() -> Vec<Question> {
    let (mut data, mut questions) = (None, Vec::new());
    for block in read("questions/questions.txt").split("\n\n") {
        let lines: Vec<&str> = block.trim().lines().collect();
        match (&lines[..], &data) {
            ([heading], _) if heading.starts_with("# ") => data = Some(heading[2..].to_owned()),
            ([words, call, sql], Some(data)) => {
                let (tool, arguments) = call.split_once(' ').unwrap_or_else(|| panic!("{call}"));
                let arguments =
                    serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{call}: {error}"));
                let (words, tool, sql) = ((*words).to_owned(), tool.to_owned(), (*sql).to_owned());
                questions.push(Question { data: data.clone(), words, tool, arguments, sql });
            }
            (_, None) => {}
            (block, Some(_)) => panic!("a question, a call and SQL are expected: {block:?}"),
        }
    }
    questions
}

/// A table: its name, the names of its columns, and its rows.
type TableRows = (String, Vec<String>, Vec<Vec<Json>>);

/// What SQLite answers: names of columns, and rows.
fn oracle(connection: &Connection, sql: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        let value = |at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => plain(&Json::Null),
                ValueRef::Integer(n) => plain(&json!(n)),
                ValueRef::Real(n) => plain(&json!(n)),
                ValueRef::Text(text) => plain(&json!(String::from_utf8_lossy(text))),
                ValueRef::Blob(_) => panic!("no question is about blobs"),
            })
        };
        (0..names.len()).map(value).collect::<rusqlite::Result<Vec<String>>>()
    });
    let rows = rows.and_then(Iterator::collect).unwrap_or_else(|error| panic!("{sql}: {error}"));
    (names, rows)
}

/// A value without its type: decimals are texts in answers and floating-point numbers in SQLite's.
fn plain(value: &Json) -> String {
    let number = match value {
        Json::Number(number) => number.as_f64(),
        Json::Bool(is_true) => Some(f64::from(u8::from(*is_true))),
        Json::String(text) => text.parse().ok(),
        _ => None,
    };
    match (number, value) {
        (Some(number), _) => format!("{:.6}", number + 0.0),
        (None, Json::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}

/// The member at a path: `customer.country` is one member of a group, and a member of a member of a row.
fn member<'a>(value: &'a Json, path: &str) -> &'a Json {
    if let Some(found) = value.get(path) {
        return found;
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let inner = match value {
        Json::Array(items) => first.parse().ok().and_then(|at: usize| items.get(at)),
        Json::Null => return value,
        other => other.get(first),
    };
    let inner = inner.unwrap_or_else(|| panic!("no member `{path}` in {value}"));
    if rest.is_empty() { inner } else { member(inner, rest) }
}

/// A running server that answers calls.
pub struct Answers {
    server: StdioServer,
    calls: usize,
}

impl Answers {
    pub fn start(folder: &Path) -> Self {
        let place = TestProject::new(&[]);
        let mut server = StdioServer::open(&mut place.spile(&["serve", &folder.to_string_lossy()]));
        let client = json!({"name": "questions", "version": "1"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        server.send(&request.to_string());
        server.next();
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        Self { server, calls: 0 }
    }

    pub fn call(&mut self, tool: &str, arguments: &Json) -> Json {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The result of any request.
    pub fn request(&mut self, method: &str, params: &Json) -> Json {
        self.calls += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params});
        self.server.send(&request.to_string());
        let response: Json = serde_json::from_str(&self.server.next()).expect("JSON");
        assert_eq!(response["id"], self.calls, "{response}");
        response["result"].clone()
    }
}

/// Asks one question, and returns what is wrong with the answer.
fn check(question: &Question, answers: &mut Answers, connection: &Connection) -> Option<String> {
    let (names, mut expected) = oracle(connection, &question.sql);
    assert!(!expected.is_empty(), "the answer to `{}` is empty", question.words);
    let result = answers.call(&question.tool, &question.arguments);
    if result["isError"] == true || result["structuredContent"].is_null() {
        return Some(format!("{}\n  {result}", question.words));
    }
    let content = &result["structuredContent"];
    let rows = match content.get("items") {
        Some(items) => items.as_array().cloned().unwrap_or_default(),
        None => vec![content.clone()],
    };
    let row = |row: &Json| names.iter().map(|name| plain(member(row, name))).collect::<Vec<String>>();
    let mut found: Vec<Vec<String>> = rows.iter().map(row).collect();
    if question.arguments.get("sort").is_none() {
        found.sort();
        expected.sort();
    }
    (found != expected).then(|| format!("{}\n  answer   {found:?}\n  expected {expected:?}", question.words))
}

/// A database from its script, in a folder of its own.
fn database(name: &str) -> (TempDir, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = Connection::open(folder.path().join(format!("{name}.db"))).expect("a database");
    connection.execute_batch(&read(&format!("questions/{name}.sql"))).expect("a valid script");
    (folder, connection)
}

/// The rows of a table, with the names of its columns.
fn rows_of(connection: &Connection, table: &str) -> (Vec<String>, Vec<Vec<Json>>) {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a table");
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let is_boolean = |name: &String| name == "Discontinued";
    let rows = statement.query_map([], |row| {
        let value = |at: usize| {
            Ok(match row.get_ref(at)? {
                ValueRef::Integer(n) if is_boolean(&names[at]) => json!(n == 1),
                ValueRef::Integer(n) => json!(n),
                ValueRef::Real(n) => json!(n),
                ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                ValueRef::Null | ValueRef::Blob(_) => Json::Null,
            })
        };
        (0..names.len()).map(value).collect::<rusqlite::Result<Vec<Json>>>()
    });
    let rows = rows.and_then(Iterator::collect).expect("rows");
    (names, rows)
}

fn object(names: &[String], row: &[Json]) -> Json {
    names.iter().cloned().zip(row.iter().cloned()).collect::<serde_json::Map<_, _>>().into()
}

/// A table as the bytes of a file of this kind.
fn file(kind: &str, names: &[String], rows: &[Vec<Json>]) -> String {
    let objects = || rows.iter().map(|row| object(names, row));
    let field = |value: &Json| match value {
        Json::Null => String::new(),
        Json::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    };
    let line = |row: &Vec<Json>| row.iter().map(field).collect::<Vec<_>>().join(",") + "\n";
    match kind {
        "csv" => names.join(",") + "\n" + &rows.iter().map(line).collect::<String>(),
        "json" => Json::Array(objects().collect()).to_string(),
        _ => objects().map(|object| format!("{object}\n")).collect(),
    }
}

fn workbook(path: &Path, tables: &[TableRows]) {
    let mut book = rust_xlsxwriter::Workbook::new();
    let date = rust_xlsxwriter::Format::new().set_num_format("yyyy-mm-dd");
    for (table, names, rows) in tables {
        let sheet = book.add_worksheet().set_name(table).expect("a sheet");
        for (at, name) in names.iter().enumerate() {
            sheet.write(0, at as u16, name).expect("a cell");
        }
        for (line, row) in rows.iter().enumerate() {
            for (at, value) in row.iter().enumerate() {
                let (line, at) = (line as u32 + 1, at as u16);
                let written = match value {
                    Json::Null => continue,
                    Json::Bool(is_true) => sheet.write(line, at, *is_true),
                    Json::Number(number) => sheet.write(line, at, number.as_f64().unwrap_or_default()),
                    Json::String(text) if names[usize::from(at)].ends_with("Date") => {
                        let day = rust_xlsxwriter::ExcelDateTime::parse_from_str(text).expect("a date");
                        sheet.write_with_format(line, at, &day, &date)
                    }
                    Json::String(text) => sheet.write(line, at, text),
                    other => panic!("{other}"),
                };
                written.expect("a cell");
            }
        }
    }
    book.save(path).expect("a workbook");
}

/// The tables of a database as files of one kind, with the links that its foreign keys make.
fn as_files(folder: &TempDir, name: &str, connection: &Connection, kind: &str) -> TempDir {
    let project = Project::find(&folder.path().join(format!("{name}.db"))).and_then(|project| project.scan());
    let contract = project.expect("a database").compiled.expect("a contract").contract;
    let copy = tempfile::tempdir().expect("a folder");
    let (mut manifest, mut tables) = (String::new(), Vec::new());
    if kind == "xlsx" {
        manifest += "[sources.book]\npath = 'book.xlsx'\n";
    }
    for collection in &contract.collections {
        let (table, name) = (&collection.shape.table, &collection.name);
        let (names, rows) = rows_of(connection, table);
        let key: Vec<String> = collection.key_fields().map(|field| format!("'{}'", field.column)).collect();
        match kind {
            "xlsx" => manifest += &format!("[collections.{name}]\nsource = 'book'\nsheet = '{table}'\n"),
            _ => {
                let bytes = file(kind, &names, &rows);
                std::fs::write(copy.path().join(format!("{name}.{kind}")), bytes).expect("a file");
                manifest += &format!(
                    "[sources.{name}]\npath = '{name}.{kind}'\n[collections.{name}]\nsource = '{name}'\n"
                );
            }
        }
        manifest += &format!("key = [{}]\n", key.join(", "));
        if kind == "csv" {
            manifest += "null = ''\n";
        }
        for link in &collection.links {
            let target = &contract.collections[link.target];
            let by = link.fields.iter().map(|(own, other)| {
                format!("{} = '{}'", collection.fields[*own].column, target.fields[*other].column)
            });
            manifest += &format!(
                "[collections.{name}.related.{}]\ncollection = '{}'\nby = {{ {} }}\n",
                link.name,
                target.name,
                by.collect::<Vec<_>>().join(", ")
            );
        }
        tables.push((table.clone(), names, rows));
    }
    if kind == "xlsx" {
        workbook(&copy.path().join("book.xlsx"), &tables);
    }
    std::fs::write(copy.path().join("spile.toml"), manifest).expect("a file");
    copy
}

#[test]
fn every_question_has_the_same_answer_in_one_call_over_every_source() {
    let mut failures = Vec::new();
    for name in ["chinook", "northwind"] {
        let (folder, connection) = database(name);
        let mut places = vec![("sqlite", None)];
        places.extend(
            ["csv", "json", "jsonl", "xlsx"]
                .map(|kind| (kind, Some(as_files(&folder, name, &connection, kind)))),
        );
        for (kind, place) in &places {
            let mut answers = Answers::start(place.as_ref().map_or(folder.path(), TempDir::path));
            for question in questions().iter().filter(|question| question.data == name) {
                let wrong = check(question, &mut answers, &connection);
                failures.extend(wrong.map(|wrong| format!("{name} as {kind}: {wrong}")));
            }
        }
    }
    assert!(failures.is_empty(), "{} wrong answers\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn questions_about_messy_exports_have_the_answer_of_a_careful_person() {
    let mut failures = Vec::new();
    let questions = questions();
    let is_corpus = |question: &&Question| !["chinook", "northwind"].contains(&question.data.as_str());
    for question in questions.iter().filter(is_corpus) {
        let expected: Json =
            serde_json::from_str(&read(&format!("exports/expected/{}.json", question.data))).expect("JSON");
        let table = &expected["tables"][0];
        let columns = table["columns"].as_array().expect("columns").iter().map(|column| {
            let kind = match column[1].as_str().unwrap_or_default() {
                "integer" => "INTEGER",
                "decimal" => "NUMERIC",
                "number" => "REAL",
                _ => "TEXT",
            };
            format!("\"{}\" {kind}", column[0].as_str().unwrap_or_default())
        });
        let connection = Connection::open_in_memory().expect("memory");
        let columns = columns.collect::<Vec<_>>().join(", ");
        connection.execute_batch(&format!("CREATE TABLE t ({columns})")).expect("a table");
        for row in table["rows"].as_array().expect("rows") {
            let values = row.as_array().expect("a row").iter().map(|value| match value {
                Json::Null => "NULL".to_owned(),
                Json::String(text) => format!("'{}'", text.replace('\'', "''")),
                other => other.to_string(),
            });
            let values = values.collect::<Vec<_>>().join(", ");
            connection.execute_batch(&format!("INSERT INTO t VALUES ({values})")).expect("a row");
        }
        let mut answers = Answers::start(&testkit("exports/files").join(&question.data));
        failures.extend(check(question, &mut answers, &connection));
    }
    assert!(failures.is_empty(), "{} wrong answers\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn there_are_enough_questions() {
    let count = questions().len();
    assert!(count >= 120, "{count}");
}
