//! Files that their author describes in the manifest, and files that need no description: what callers get from them.

use std::path::Path;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::questions::Answers;

pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

/// The items of an answer, without their braces: `North 6; South 9`.
fn items(answers: &mut Answers, tool: &str, arguments: &Json, members: &[&str]) -> String {
    let result = answers.call(tool, arguments);
    assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
    let items = result["structuredContent"]["items"].as_array().expect("items").clone();
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |item: &Json| members.iter().map(|name| text(&item[*name])).collect::<Vec<_>>().join(" ");
    items.iter().map(row).collect::<Vec<_>>().join("; ")
}

pub(crate) fn check(path: &Path, calls: &[(&str, Json, &[&str], &str)]) {
    let mut answers = Answers::start(path);
    for (tool, arguments, members, expected) in calls {
        let found = items(&mut answers, tool, arguments, members);
        assert_eq!(found, *expected, "{tool} {arguments}");
    }
}

#[test]
fn groups_that_are_named_once_count_for_their_rows() {
    let report = "region,product,units\nNorth,A,1\n,B,2\n,C,3\nNorth total,,6\nSouth,A,4\n,B,5\nSouth total,,9\nTotal,,15\n";
    let manifest = "[sources.report]\npath = 'report.csv'\n[collections.report]\nsource = 'report'\n\
                    [collections.report.fields]\nregion = { fill_down = true }\n";
    let folder = folder(&[("report.csv", report), ("spile.toml", manifest)]);
    check(
        folder.path(),
        &[
            (
                "aggregate_report",
                json!({"group": "region", "measures": "sum_units"}),
                &["region", "sum_units"],
                "North 6; South 9",
            ),
            ("list_report", json!({"region": "South"}), &["product", "units"], "A 4; B 5"),
        ],
    );
}

#[test]
fn a_line_may_lack_fields_where_its_author_says_so() {
    let manifest =
        "[sources.people]\npath = 'people.csv'\n[collections.people]\nsource = 'people'\nshort_rows = true\n";
    let folder = folder(&[
        ("people.csv", "name,city,age\nAnna,Bonn,31\nBert,\"Köln\"\nCarl\nDora,Ulm,7\n"),
        ("spile.toml", manifest),
    ]);
    check(
        folder.path(),
        &[
            ("aggregate_people", json!({"measures": ["count", "sum_age"]}), &["count", "sum_age"], "4 38"),
            ("list_people", json!({"age_null": true, "sort": "name"}), &["name", "city"], "Bert Köln; Carl "),
        ],
    );
}

#[test]
fn a_table_of_r_has_a_first_column_without_a_name() {
    let cars = "mpg,cyl\n\"Mazda RX4\",21.0,6\n\"Datsun 710\",22.8,4\n\"Hornet 4 Drive\",21.4,6\n";
    let folder = folder(&[("cars.csv", cars)]);
    check(
        &folder.path().join("cars.csv"),
        &[
            ("list_cars", json!({"cyl": 4}), &["column_1", "mpg"], "Datsun 710 22.8"),
            ("aggregate_cars", json!({"group": "cyl", "sort": "cyl"}), &["cyl", "count"], "4 1; 6 2"),
        ],
    );
}

#[test]
fn values_inside_nested_json_are_columns_where_a_path_is_declared() {
    let events = r#"[{"id":1,"user":{"name":"Ada","address":{"city":"Köln"}},"tags":["new","vip"]},
        {"id":2,"user":{"name":"Bob","address":{"city":"Bonn"}},"tags":[]},
        {"id":3,"user":null,"tags":["new"]}]"#;
    let manifest = "[sources.events]\npath = 'events.json'\n[collections.events]\nsource = 'events'\n\
                    [collections.events.fields]\ncity = { path = '/user/address/city' }\nfirst_tag = { path = '/tags/0' }\n";
    let folder = folder(&[("events.json", events), ("spile.toml", manifest)]);
    check(
        folder.path(),
        &[
            ("list_events", json!({"city": "Bonn"}), &["id", "city"], "2 Bonn"),
            ("list_events", json!({"city_null": true}), &["id"], "3"),
            (
                "aggregate_events",
                json!({"group": "first_tag", "sort": "-count"}),
                &["first_tag", "count"],
                "new 2; null 1",
            ),
            ("list_events", json!({"sort": "-city", "fields": ["id", "city"]}), &["id"], "1; 2; 3"),
            ("search_events", json!({"query": "köl"}), &["id"], "1"),
        ],
    );
}

#[test]
fn days_begin_where_the_declared_time_zone_says() {
    let log = "id,at\n1,2026-03-28T22:59:59Z\n2,2026-03-28T23:00:00Z\n3,2026-03-29T21:59:59.5Z\n4,2026-03-29T22:00:00Z\n\
               5,2025-12-31T23:30:00Z\n";
    let manifest = "[server]\ntime_zone = 'Europe/Berlin'\n[sources.log]\npath = 'log.csv'\n[collections.log]\nsource = 'log'\n";
    let folder = folder(&[("log.csv", log), ("spile.toml", manifest)]);
    let database = rusqlite::Connection::open(folder.path().join("log.db")).expect("a database");
    database.execute_batch("CREATE TABLE log (id INTEGER PRIMARY KEY, at TEXT NOT NULL);").expect("a table");
    for line in log.lines().skip(1) {
        let (id, at) = line.split_once(',').expect("two fields");
        database.execute("INSERT INTO log VALUES (?1, ?2)", (id, at)).expect("a row");
    }
    for source in ["log.csv", "log.db"] {
        std::fs::write(folder.path().join("spile.toml"), manifest.replace("log.csv", source))
            .expect("a file");
        check(
            folder.path(),
            &[
                (
                    "aggregate_log",
                    json!({"group": "at_day", "sort": "at_day"}),
                    &["at_day", "count"],
                    "2026-01-01 1; 2026-03-28 1; 2026-03-29 2; 2026-03-30 1",
                ),
                ("aggregate_log", json!({"group": "at_year"}), &["at_year", "count"], "2026 5"),
                ("list_log", json!({"at": "2026-03-29"}), &["id"], "2; 3"),
                ("list_log", json!({"at": ["2026-03-28", "2026-03-30"]}), &["id"], "1; 4"),
                ("list_log", json!({"at_min": "2026-03-29", "at_max": "2026-03-29"}), &["id"], "2; 3"),
                ("list_log", json!({"at_not": "2026-03-29"}), &["id"], "1; 4; 5"),
                ("list_log", json!({"at_min": "2026-03-29T21:59:59.5Z"}), &["id"], "3; 4"),
            ],
        );
    }
}

#[test]
fn groups_that_do_not_fit_have_a_link_to_all_of_them() {
    let rows: String = (0..150).map(|n| format!("{n},team {:03},{n}\n", n % 130)).collect();
    let folder = folder(&[("scores.csv", &format!("id,team,points\n{rows}"))]);
    let mut answers = Answers::start(&folder.path().join("scores.csv"));
    let arguments = json!({"group": "team", "measures": ["count", "sum_points"], "sort": "team", "limit": 5});
    let result = answers.call("aggregate_scores", &arguments);
    assert_eq!(result["structuredContent"]["groups_total"], 130, "{result}");
    let blocks = result["content"].as_array().expect("blocks");
    let link = blocks.iter().find(|block| block["type"] == "resource_link").expect("a link");
    let export = answers.request("resources/read", &json!({"uri": link["uri"]}));
    let text = export["contents"][0]["text"].as_str().expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 131, "{text}");
    assert_eq!(
        (lines[0], lines[1], lines[130]),
        ("team,count,sum_points", "team 000,2,130", "team 129,1,129")
    );
    let few =
        answers.call("aggregate_scores", &json!({"group": "team", "team_starts": "team 00", "limit": 5}));
    let blocks = few["content"].as_array().expect("blocks");
    assert!(blocks.iter().all(|block| block["type"] == "text"), "ten groups are no reason for a link: {few}");
}

#[test]
fn integers_are_compared_with_fractions() {
    let folder = folder(&[("n.csv", "id,n\n1,1\n2,2\n3,3\n")]);
    check(
        &folder.path().join("n.csv"),
        &[
            ("list_n", json!({"n_min": 1.5}), &["n"], "2; 3"),
            ("list_n", json!({"n_max": 2.5}), &["n"], "1; 2"),
            ("list_n", json!({"n_min": -0.5, "n_max": 1.0}), &["n"], "1"),
        ],
    );
}

#[test]
fn a_parquet_file_gives_the_same_answers_from_memory_and_from_an_import() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/exports/files/orders.parquet");
    let manifest = "[sources.orders]\npath = 'orders.parquet'\n[collections.orders]\nsource = 'orders'\n";
    let answers = |server: &str| {
        let folder = folder(&[("spile.toml", &format!("{server}{manifest}"))]);
        std::fs::copy(&file, folder.path().join("orders.parquet")).expect("a copy");
        let mut answers = Answers::start(folder.path());
        let mut ask =
            |tool: &str, arguments: Json| answers.call(tool, &arguments)["structuredContent"].clone();
        [
            ask("list_orders", json!({})),
            ask("list_orders", json!({"placed": "2026-02-11", "fields": ["order", "total"]})),
            ask("aggregate_orders", json!({"measures": ["sum_total", "max_local", "distinct_day"]})),
            ask("aggregate_orders", json!({"group": "day_month", "paid_null": true})),
        ]
    };
    let (in_memory, imported) = (answers(""), answers("[server]\nmemory_bytes_max = 0\n"));
    assert_eq!(in_memory, imported);
    assert_eq!(in_memory[2]["items"][0]["sum_total"], "1234567890123456.73", "{}", in_memory[2]);
    assert_eq!(in_memory[1]["items"][0]["order"], "9007199254740993", "{}", in_memory[1]);
}

#[test]
fn a_decimal_that_equals_what_its_format_writes_is_written() {
    let manifest = "[sources.c]\npath = 'c.csv'\n[collections.c]\nsource = 'c'\nkey = 'id'\n\
                    operations = ['get', 'list', 'create', 'update']\n";
    let folder =
        folder(&[("c.csv", "id,name,amt\n1,a,\"1.234,50\"\n2,b,\"7,00\"\n"), ("spile.toml", manifest)]);
    let mut answers = Answers::start(folder.path());
    for (tool, arguments, expected) in [
        ("update_c", json!({"id": 1, "amt": "99999.5"}), "99999.50"),
        ("update_c", json!({"id": 2, "amt": "5"}), "5.00"),
        ("create_c", json!({"id": 3, "name": "c", "amt": "-0.125"}), "-0.125"),
    ] {
        let result = answers.call(tool, &arguments);
        assert_eq!(result["structuredContent"]["record"]["amt"], expected, "{result}");
    }
    let text = std::fs::read_to_string(folder.path().join("c.csv")).expect("a file");
    assert_eq!(text, "id,name,amt\n1,a,\"99.999,50\"\n2,b,\"5,00\"\n3,c,\"-0,125\"\n");
}

#[test]
fn numbers_in_an_ambiguous_notation_are_not_a_guessed_key() {
    let folder =
        folder(&[("sales.csv", "amount,region\n\"1,234\",North\n\"2,500\",North\n\"3,125\",South\n")]);
    let scan =
        spile::project::Project::find(&folder.path().join("sales.csv")).and_then(|project| project.scan());
    let compiled = scan.expect("a scan").compiled.expect("a contract");
    assert_eq!(compiled.contract.collections[0].key_fields().count(), 0);
}

#[test]
fn init_puts_each_proposal_into_the_table_it_belongs_to() {
    let report = "Region,Product,Units\nNorth,A,1\n,B,2\n,C,3\nSouth,A,4\n,B,5\n";
    let folder = folder(&[("report.csv", report)]);
    let scan =
        spile::project::Project::find(&folder.path().join("report.csv")).and_then(|project| project.scan());
    let text = scan.expect("a scan").manifest_text;
    // As an owner does who takes the advice.
    let advised = text.replace("#Region = { fill_down = true }", "Region = { fill_down = true }");
    assert_ne!(text, advised, "{text}");
    std::fs::write(folder.path().join("spile.toml"), advised).expect("a file");
    check(
        folder.path(),
        &[("aggregate_report", json!({"group": "region"}), &["region", "count"], "North 3; South 2")],
    );
}
