//! The question set in `testkit/questions`: what people ask of their data, answered by one call each, compared with
//! SQLite's own answer to the same question. The same rows in every source that can hold them give the same answers.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Value as Json, json};
use test_databases::Kind;

use self::places::PlaceKind;
use crate::harness::{StdioServer, TestProject};

mod places;

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

/// A value of an answer, without its type: decimals are texts in answers.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    /// A text, or the digits of a number without needless zeros.
    Exact(String),
    /// SQLite's own sums and averages are floating-point numbers.
    Float(f64),
}

impl Answer {
    fn of(value: &Json) -> Self {
        Self::Exact(match value {
            Json::Bool(is_true) => u8::from(*is_true).to_string(),
            Json::Number(number) => digits(&number.to_string()),
            Json::String(text) => digits(text),
            other => other.to_string(),
        })
    }

    /// Whether an answer of a tool is what SQLite answers. Averages are rounded, to six digits more than the sum has.
    fn is(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Exact(found), Self::Float(expected)) => found
                .parse::<f64>()
                .is_ok_and(|found| (found - expected).abs() <= 1e-8_f64.max(expected.abs() * 1e-14)),
            (found, expected) => found == expected,
        }
    }

    /// Equal for values that are the same, so that rows can be sorted.
    fn sort_key(&self) -> String {
        let number = match self {
            Self::Float(number) => Some(*number),
            Self::Exact(text) => text.parse().ok(),
        };
        match (number, self) {
            (Some(number), _) => format!("{:.6}", number + 0.0),
            (None, Self::Exact(text)) => text.clone(),
            (None, Self::Float(_)) => String::new(),
        }
    }
}

/// A decimal without zeros at its end; any other text as it is.
fn digits(text: &str) -> String {
    let is_decimal = text.split_once('.').is_some_and(|(whole, fraction)| {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits(whole.strip_prefix('-').unwrap_or(whole)) && is_digits(fraction)
    });
    match is_decimal {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    }
}

/// What SQLite answers: names of columns, and rows.
fn oracle(connection: &Connection, sql: &str) -> (Vec<String>, Vec<Vec<Answer>>) {
    let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        let value = |at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => Answer::of(&Json::Null),
                ValueRef::Integer(n) => Answer::of(&json!(n)),
                ValueRef::Real(n) => Answer::Float(n),
                ValueRef::Text(text) => Answer::of(&json!(String::from_utf8_lossy(text))),
                ValueRef::Blob(_) => panic!("no question is about blobs"),
            })
        };
        (0..names.len()).map(value).collect::<rusqlite::Result<Vec<Answer>>>()
    });
    let rows = rows.and_then(Iterator::collect).unwrap_or_else(|error| panic!("{sql}: {error}"));
    (names, rows)
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
    let row = |row: &Json| names.iter().map(|name| Answer::of(member(row, name))).collect::<Vec<Answer>>();
    let mut found: Vec<Vec<Answer>> = rows.iter().map(row).collect();
    if question.arguments.get("sort").is_none() {
        let key = |row: &Vec<Answer>| row.iter().map(Answer::sort_key).collect::<Vec<String>>();
        found.sort_by_key(key);
        expected.sort_by_key(key);
    }
    let is_same = |(found, expected): (&Vec<Answer>, &Vec<Answer>)| {
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| found.is(expected))
    };
    let are_same = found.len() == expected.len() && found.iter().zip(&expected).all(is_same);
    (!are_same).then(|| format!("{}\n  answer   {found:?}\n  expected {expected:?}", question.words))
}

/// Asks all questions of both databases, served from these kinds of sources.
fn check_every_question(kinds: &[PlaceKind]) {
    let mut failures = Vec::new();
    for name in ["chinook", "northwind"] {
        let (folder, connection) = places::database(name);
        for kind in kinds {
            let place = places::place(&folder, name, &connection, *kind);
            let mut answers =
                Answers::start(place.as_ref().map_or(folder.path(), |place| place.folder.path()));
            for question in questions().iter().filter(|question| question.data == name) {
                let wrong = check(question, &mut answers, &connection);
                failures.extend(wrong.map(|wrong| format!("{name} as {kind:?}: {wrong}")));
            }
        }
    }
    assert!(failures.is_empty(), "{} wrong answers\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_question_has_the_same_answer_in_one_call_over_sqlite_and_files() {
    check_every_question(&[
        PlaceKind::Sqlite,
        PlaceKind::File("csv"),
        PlaceKind::File("json"),
        PlaceKind::File("jsonl"),
        PlaceKind::Workbook,
        PlaceKind::File("parquet"),
    ]);
}

#[test]
fn every_question_has_the_same_answer_over_files_that_are_too_large_for_memory() {
    check_every_question(&[
        PlaceKind::Import("csv"),
        PlaceKind::Import("jsonl"),
        PlaceKind::Import("parquet"),
    ]);
}

#[test]
fn every_question_has_the_same_answer_over_databases() {
    check_every_question(&[PlaceKind::Database(Kind::Postgres), PlaceKind::Database(Kind::MariaDb)]);
}

#[test]
fn every_question_has_the_same_answer_over_an_api() {
    check_every_question(&[PlaceKind::Api]);
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
