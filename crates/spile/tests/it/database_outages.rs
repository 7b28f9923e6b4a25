//! Databases that are down when a server starts, go away or change while it runs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_databases::{Kind, Server, TestDatabase};

use crate::availability::{call, get, sources, tools, wait_for_health};
use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

fn project(place: &TestDatabase) -> TestProject {
    let manifest = format!(
        r#"
[sources.shop]
url = "{}"
[sources.people]
path = "people.csv"
[collections.orders]
operations = ["get", "list", "update"]
source = "shop"
[collections.people]
source = "people"
[tools.total]
source = "shop"
sql = "SELECT sum(total) AS total FROM orders WHERE id > :after"
arguments.after = {{ type = "integer" }}
"#,
        place.url()
    );
    TestProject::new(&[("spile.toml", manifest.as_bytes()), ("people.csv", b"id,name\n1,Ada\n2,Bea\n")])
}

fn shop(kind: Kind) -> TestDatabase {
    let place = Server::start_private(kind).create_database();
    place.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, city varchar(20), total decimal(12, 2) NOT NULL);
         INSERT INTO orders VALUES (1, 'Bonn', 1.10), (2, 'Ulm', 2.20)",
    );
    place
}

/// A server with a cache of its own.
fn serve(project: &TestProject) -> HttpServer {
    let files = project.files();
    let manifest = files.iter().map(|(file, _)| file).find(|file| file.ends_with("spile.toml"));
    let cache = manifest.map(|file| file.with_file_name("cache"));
    let mut command = project.spile(&["serve", "--bind", "0"]);
    command.env("XDG_CACHE_HOME", cache.expect("a folder"));
    HttpServer::start(&mut command)
}

/// Calls until the result is as expected.
fn wait_for(
    server: &HttpServer,
    tool: &str,
    arguments: &Value,
    is_expected: impl Fn(&Value) -> bool,
) -> Value {
    let started = Instant::now();
    loop {
        let result = call(server, tool, arguments);
        if is_expected(&result) {
            return result;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{result}\n{}", get(server, "/status").1);
        // The server works on the same cores.
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_fresh_machine_with_the_lock_file_lists_the_tools_of_a_database_that_is_down() {
    for kind in KINDS {
        let place = shop(kind);
        let project = project(&place);
        let compiled = project.run_with(&["compile"], &[("XDG_CACHE_HOME", "/dev/null")]);
        assert!(compiled.to_string().contains("wrote"), "{kind:?} {compiled}");
        let lock = std::fs::read_to_string(project.folder.join("spile.lock")).expect("a lock file");
        assert!(lock.contains("[databases.shop]") && !lock.contains("Bonn"), "{kind:?}\n{lock}");
        // It is the same for the same tables.
        project.run_with(&["compile"], &[("XDG_CACHE_HOME", "/dev/null")]);
        let again = std::fs::read_to_string(project.folder.join("spile.lock")).expect("a lock file");
        assert_eq!(again, lock, "{kind:?}");
        place.server.stop();

        // The cache is empty: nobody has served the database here.
        let server = serve(&project);
        let listed = tools(&server);
        for tool in ["get_orders", "list_orders", "update_orders", "total", "list_people"] {
            assert!(listed.contains(&tool.to_owned()), "{kind:?} {listed:?}");
        }
        let refused = call(&server, "total", &json!({ "after": 0 }));
        let refused = &refused["structuredContent"];
        assert_eq!(refused["code"], "source_unavailable", "{kind:?} {refused}");
        assert_eq!(refused["retryable"], true, "{kind:?} {refused}");
        place.server.start();
        wait_for(&server, "total", &json!({ "after": 0 }), |result| result.to_string().contains("3.30"));
        assert_eq!(tools(&server), listed, "{kind:?}");
    }
}

#[test]
fn a_database_that_is_down_at_the_start_keeps_its_tools_and_heals() {
    for kind in KINDS {
        let place = shop(kind);
        let project = project(&place);
        let server = serve(&project);
        let listed = tools(&server);
        assert!(listed.contains(&"total".to_owned()), "{kind:?} {listed:?}");
        server.stop();
        place.server.stop();

        let server = serve(&project);
        assert_eq!(tools(&server), listed, "{kind:?}");
        for (tool, arguments) in [
            ("list_orders", json!({})),
            ("total", json!({ "after": 0 })),
            ("update_orders", json!({ "id": 1, "city": "Köln" })),
        ] {
            let result = call(&server, tool, &arguments).to_string();
            assert!(
                result.contains("source_unavailable") && result.contains("\"retryable\":true"),
                "{kind:?} {result}"
            );
        }
        assert_eq!(call(&server, "get_people", &json!({ "id": 1 }))["structuredContent"]["name"], "Ada");
        assert_eq!(get(&server, "/health").1["status"], "degraded", "{kind:?}");
        assert_eq!(sources(&server)["unavailable"].as_array().map(Vec::len), Some(1), "{kind:?}");

        place.server.start();
        wait_for(&server, "list_orders", &json!({}), |result| result["isError"] == false);
        let total = call(&server, "total", &json!({ "after": 0 }));
        assert_eq!(total["structuredContent"]["items"][0]["total"], "3.30", "{kind:?} {total}");
        let updated = call(&server, "update_orders", &json!({ "id": 1, "city": "Köln" }));
        assert_eq!(updated["isError"], false, "{kind:?} {updated}");
        wait_for_health(&server, "ok");
        assert_eq!(tools(&server), listed, "{kind:?}");
        let (_, stderr, _) = server.stop();
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_database_that_was_never_seen_appears_when_it_comes_up_and_its_outages_are_told() {
    for kind in KINDS {
        let place = shop(kind);
        let project = project(&place);
        place.server.stop();
        let server = serve(&project);
        assert!(!tools(&server).contains(&"list_orders".to_owned()), "{kind:?}");
        place.server.start();
        wait_for_health(&server, "ok");
        assert!(tools(&server).contains(&"list_orders".to_owned()), "{kind:?}");
        assert_eq!(call(&server, "list_orders", &json!({}))["isError"], false, "{kind:?}");
        place.server.stop();
        wait_for(&server, "list_orders", &json!({}), |result| result["isError"] == true);
        wait_for_health(&server, "degraded");
        place.server.start();
        wait_for_health(&server, "ok");
        assert_eq!(call(&server, "list_orders", &json!({}))["isError"], false, "{kind:?}");
    }
}

#[test]
fn a_changed_table_is_read_again_and_judged_as_any_change() {
    for kind in KINDS {
        let place = shop(kind);
        let project = project(&place);
        let server = serve(&project);
        assert_eq!(call(&server, "list_orders", &json!({}))["isError"], false, "{kind:?}");
        // The contract stays the same, but the column is read in another way.
        place.run(match kind {
            Kind::Postgres => "ALTER TABLE orders ALTER COLUMN city TYPE text",
            Kind::MariaDb => "ALTER TABLE orders MODIFY city text",
        });
        wait_for(&server, "list_orders", &json!({}), |result| result["isError"] == false);
        // A column that callers were promised is gone: nothing wrong is answered, and the old contract stays.
        place.run("ALTER TABLE orders DROP COLUMN city");
        let result = call(&server, "list_orders", &json!({}));
        assert!(result.to_string().contains("source_changed"), "{kind:?} {result}");
        let started = Instant::now();
        while get(&server, "/status").1["servers"][0]["reload"]["outcome"] != "rejected" {
            assert!(started.elapsed() < TEST_TIMEOUT, "{}", get(&server, "/status").1);
            let _ = call(&server, "list_orders", &json!({}));
            std::thread::sleep(Duration::from_millis(20));
        }
        place.run("ALTER TABLE orders ADD COLUMN city varchar(20)");
        wait_for(&server, "list_orders", &json!({}), |result| result["isError"] == false);
    }
}
