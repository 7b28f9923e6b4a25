//! A file with hundreds of columns and a database with hundreds of tables, through the real program.

use std::fmt::Write;

use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::harness::TestProject;
use crate::questions::Answers;

/// A household survey as statistical offices publish them: an id, weights, items by year, answers by question.
fn survey() -> TestProject {
    let mut names = vec!["household_id".to_owned(), "region".to_owned(), "Interview date".to_owned()];
    names.extend((1990..2025).map(|year| format!("income_{year}")));
    names.extend((1990..2025).map(|year| format!("rent_{year}")));
    names.extend((1..=40).map(|number| format!("weight{number:02}")));
    names.extend(
        (1..=60).flat_map(|question| ["a", "b", "c", "d", "e"].map(|part| format!("Q{question}{part}"))),
    );
    let mut text = names.join(",");
    for row in 1..=60 {
        let _ = write!(text, "\n{row},{},2026-01-{:02}", ["North", "South"][row % 2], row % 28 + 1);
        for column in 3..names.len() {
            let _ = write!(text, ",{}", row * column);
        }
    }
    TestProject::new(&[("survey.csv", text.as_bytes())])
}

fn content(answers: &mut Answers, tool: &str, arguments: Json) -> Json {
    answers.call(tool, &arguments)["structuredContent"].clone()
}

#[test]
fn a_file_with_four_hundred_columns_is_usable() {
    let project = survey();
    let mut answers = Answers::start(&project.folder);
    let all = content(&mut answers, "list_survey", json!({"limit": 1}));
    assert_eq!(all["message"], "`fields` is required");
    let arguments = json!({"fields": ["household_id", "income_202*"], "Q60e_min": 0, "limit": 1});
    let unknown = content(&mut answers, "list_survey", arguments);
    assert_eq!(unknown["message"], "unknown argument `Q60e_min`; did you mean `q60e_min`?");
    let arguments = json!({"fields": ["household_id", "income_202*"], "q60e_min": 24000, "sort": "-rent_2001", "limit": 1});
    let page = content(&mut answers, "list_survey", arguments);
    assert_eq!(
        page["items"],
        json!([{
            "household_id": 60, "income_2020": 1980, "income_2021": 2040, "income_2022": 2100,
            "income_2023": 2160, "income_2024": 2220
        }])
    );
    let groups =
        content(&mut answers, "aggregate_survey", json!({"group": "region", "measures": "sum_q60e"}));
    assert_eq!(groups["groups_total"], 2);
    let row = content(&mut answers, "get_survey", json!({"household_id": 7}));
    assert_eq!(row.as_object().map(serde_json::Map::len), Some(413), "one row has all columns");
    let found =
        content(&mut answers, "search_survey", json!({"query": "north", "fields": ["region"], "limit": 1}));
    assert_eq!(found["items"], json!([{"region": "North"}]));
}

/// The database of an application, with 200 tables.
fn application() -> TestProject {
    let project = TestProject::new(&[]);
    let connection = Connection::open(project.folder.join("app.db")).expect("a database");
    let mut sql = String::from(
        "BEGIN; CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id));
         CREATE TABLE audit_log (id INTEGER PRIMARY KEY, what TEXT);
         INSERT INTO customers VALUES (1, 'Ada'); INSERT INTO orders VALUES (1, 1), (2, 1);
         INSERT INTO audit_log VALUES (1, 'login');",
    );
    for number in 0..197 {
        let _ = write!(sql, "CREATE TABLE zone_{number} (id INTEGER PRIMARY KEY, label TEXT, value REAL);");
        if number % 2 == 0 {
            let _ = write!(sql, "INSERT INTO zone_{number} VALUES (1, 'x', 1.5);");
        }
    }
    connection.execute_batch(&format!("{sql} COMMIT")).expect("tables");
    project
}

#[test]
fn of_a_database_with_two_hundred_tables_some_are_served_and_everybody_is_told() {
    let project = application();
    let checked = project.run(&["check", "app.db"]);
    let expected = "170 tables are not served, because more than 30 tables make more tools than some clients accept: \
                    `audit_log`, ";
    assert!(checked.stdout.contains(expected), "{checked}");
    let served = project.run(&["serve", "app.db"]);
    assert!(served.stderr.contains("170 tables are not served"), "{served}");
    let mut answers = Answers::start(&project.folder.join("app.db"));
    let tools = answers.request("tools/list", &json!({}));
    let names: Vec<&str> =
        tools["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"list_customers") && names.contains(&"list_orders"), "{names:?}");
    assert!(!names.contains(&"list_audit_log"), "{names:?}");
    assert!(names.len() <= 120, "{}", names.len());
    let read = answers.request("resources/read", &json!({"uri": "spile://overview"}));
    let text = read["contents"][0]["text"].as_str().expect("a text").to_owned();
    assert!(text.contains("Link orders: rows of orders, by id = customer_id."), "{text}");

    let made = project.run(&["init", "."]);
    assert_eq!(made.code, Some(0), "{made}");
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("a manifest");
    let lines = "#[collections.audit_log]\n#source = \"app\"\n#table = \"audit_log\"\n";
    assert!(manifest.contains(lines), "{manifest}");
    project.write("spile.toml", manifest.replace(lines, &lines.replace('#', "")).as_bytes());
    let mut answers = Answers::start(&project.folder);
    let page = content(&mut answers, "list_audit_log", json!({}));
    assert_eq!(page["total"], 1);
}
