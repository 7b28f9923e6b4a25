//! Columns of numbers with exceptions such as `n/a`: what questions about them answer, in every kind of source that has them.

use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::questions::Answers;

/// The amounts 500, 2000, 3000, `n/a` and no amount, as each kind of source stores them.
fn sources() -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("sales.jsonl");
    let amounts = ["500", "2000", "3000", "\"n/a\"", "null"];
    let rows: Vec<String> = amounts
        .iter()
        .enumerate()
        .map(|(at, amount)| format!("{{\"id\":\"r{at}\",\"amt\":{amount}}}"))
        .collect();
    std::fs::write(&lines, rows.join("\n")).expect("a file");
    let document = folder.path().join("document");
    std::fs::create_dir(&document).expect("a folder");
    let document = document.join("sales.json");
    std::fs::write(&document, format!("[{}]", rows.join(","))).expect("a file");
    let database = folder.path().join("shop.db");
    let connection = Connection::open(&database).expect("a database");
    connection
        .execute_batch("CREATE TABLE sales(id TEXT PRIMARY KEY NOT NULL, amt INTEGER)")
        .expect("a table");
    for (at, amount) in amounts.iter().enumerate() {
        let amount = amount.replace('"', "'");
        connection.execute_batch(&format!("INSERT INTO sales VALUES('r{at}', {amount})")).expect("a row");
    }
    (folder, vec![lines, document, database])
}

#[test]
fn exceptions_are_in_no_range_and_a_range_leaves_them_out_of_a_sum() {
    let (_folder, paths) = sources();
    for path in paths {
        let mut answers = Answers::start(&path);
        let mut items = |tool: &str, arguments: Json| {
            let result = answers.call(tool, &arguments);
            assert_ne!(result["isError"], true, "{} {arguments}: {result}", path.display());
            result["structuredContent"]["items"].clone()
        };
        let ids = |items: Json| -> Vec<String> {
            items.as_array().expect("items").iter().map(|item| item["id"].as_str().unwrap().into()).collect()
        };
        assert_eq!(ids(items("list_sales", json!({"amt_min": 1000}))), ["r1", "r2"], "{}", path.display());
        assert_eq!(ids(items("list_sales", json!({"amt_max": 1000}))), ["r0"], "{}", path.display());
        assert_eq!(ids(items("list_sales", json!({"amt": "n/a"}))), ["r3"], "{}", path.display());
        assert_eq!(ids(items("list_sales", json!({"sort": "-amt"}))), ["r3", "r2", "r1", "r0", "r4"]);
        let sums = items("aggregate_sales", json!({"measures": ["count", "sum_amt"], "amt_min": 1000}));
        assert_eq!(sums, json!([{"count": 2, "sum_amt": 5000}]), "{}", path.display());
    }
}

#[test]
fn a_sum_over_an_exception_is_the_callers_to_change_and_says_how() {
    let (_folder, paths) = sources();
    for path in paths {
        let mut answers = Answers::start(&path);
        let result = answers.call("aggregate_sales", &json!({"measures": "sum_amt"}));
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["structuredContent"]["code"], "invalid_arguments", "{result}");
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains("not a number") && text.contains("range"), "{text}");
        let result = answers.call("list_sales", &json!({"amt_min": "cheap"}));
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains("`amt_min` must be"), "{}: {text}", path.display());
    }
}
