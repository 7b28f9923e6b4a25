//! Sources that cannot be used: the rest is served, and `check`, the banner, `/status` and `/health` name them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name\n1,Ada\n2,Bea\n");
const PEOPLE_TOOLS: [&str; 4] = ["get_people", "list_people", "search_people", "aggregate_people"];
const BROKEN: &[u8] = b"no,total\n7,9.50\n8,12.00,EUR\n";
const ORDERS: &[u8] = b"no,total\n7,9.50\n8,12.00\n";
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Returns the status code and the JSON body.
pub fn get(server: &HttpServer, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    stream.write_all(request.as_bytes()).expect("it accepts input");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it is closed");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
    (status, serde_json::from_str(body).expect("JSON"))
}

pub fn sources(server: &HttpServer) -> Value {
    get(server, "/status").1["servers"][0]["sources"].clone()
}

#[track_caller]
pub fn wait_for_health(server: &HttpServer, expected: &str) {
    let started = Instant::now();
    loop {
        let (_, health) = get(server, "/health");
        if health["status"] == expected {
            return;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{health}, not {expected}: {}", sources(server));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

pub fn tools(server: &HttpServer) -> Vec<String> {
    let (_, body) = server.post("/mcp", "", LIST);
    let list: Value = serde_json::from_str(&body).expect("JSON");
    let tools = list["result"]["tools"].as_array().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

pub fn call(server: &HttpServer, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let (_, body) = server.post("/mcp", "MCP-Protocol-Version: 2025-11-25\r\n", &call.to_string());
    // A call that takes long is answered with a stream.
    let message = body.lines().find_map(|line| line.strip_prefix("data: {")).map(|rest| format!("{{{rest}"));
    let response: Value = serde_json::from_str(message.as_deref().unwrap_or(&body)).expect("JSON");
    response["result"].clone()
}

#[test]
fn one_bad_file_in_a_folder_does_not_stop_the_others() {
    let project = TestProject::new(&[PEOPLE, ("orders.csv", BROKEN)]);
    let checked = project.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    let reason = "`orders.csv` is not served: line 3 has 3 fields, the header has 2";
    assert!(checked.stdout.contains(reason), "{checked}");
    let checked = project.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    assert_eq!((&report["ok"], &report["unavailable"][0]["name"]), (&json!(true), &json!("orders.csv")));
    for args in [&["check", "--strict"][..], &["serve", "--strict"], &["compile"], &["init"]] {
        let refused = project.run(args);
        assert_eq!(refused.code, Some(1), "{refused}");
    }

    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    server.wait_for("not available: orders.csv");
    server.wait_for("`orders.csv` is not served: ");
    assert_eq!(tools(&server), PEOPLE_TOOLS);
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
    let (_, status) = get(&server, "/status");
    assert_eq!(
        (&status["status"], &status["servers"][0]["sources"]["count"]),
        (&json!("degraded"), &json!(2))
    );
    let unavailable = &sources(&server)["unavailable"];
    assert_eq!(unavailable[0]["name"], "orders.csv");
    assert!(
        unavailable[0]["reason"].as_str().is_some_and(|reason| reason.contains("line 3")),
        "{unavailable}"
    );

    // Repaired, it is served without a restart.
    project.write("orders.csv", ORDERS);
    wait_for_health(&server, "ok");
    let order_tools = ["get_orders", "list_orders", "aggregate_orders"];
    assert_eq!(tools(&server), [&order_tools[..], &PEOPLE_TOOLS].concat());
}

#[test]
fn one_missing_source_of_a_manifest_does_not_stop_the_others() {
    let manifest = b"[server]\nname = \"shop\"\n\
        [sources.people]\npath = \"people.csv\"\n[sources.orders]\npath = \"orders.csv\"\n\
        [collections.people]\nsource = \"people\"\nkey = \"id\"\n\
        [collections.orders]\nsource = \"orders\"\nkey = \"no\"\n\
        [tools.find_order]\nuses = \"orders.get\"\n";
    let project = TestProject::new(&[PEOPLE, ("spile.toml", manifest)]);
    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    server.wait_for("`orders.csv` is not served: not found");
    assert_eq!(tools(&server), PEOPLE_TOOLS);
    project.write("orders.csv", ORDERS);
    wait_for_health(&server, "ok");
    assert!(tools(&server).contains(&"find_order".to_owned()));
    assert_eq!(project.run(&["serve", "--strict", "--bind", "nowhere"]).code, Some(2));
}

#[test]
fn a_read_only_source_is_served_without_its_write_tools() {
    let manifest = b"[server]\nname = \"shop\"\n\
        [sources.people]\npath = \"people.csv\"\n[sources.orders]\npath = \"orders.csv\"\n\
        [collections.people]\nsource = \"people\"\nkey = \"id\"\noperations = [\"get\", \"update\"]\n\
        [collections.orders]\nsource = \"orders\"\nkey = \"no\"\noperations = [\"get\", \"update\"]\n";
    let project = TestProject::new(&[PEOPLE, ("orders.csv", ORDERS), ("spile.toml", manifest)]);
    let path = project.folder.join("orders.csv");
    let mut permissions = std::fs::metadata(&path).expect("exists").permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).expect("permissions can be changed");
    let checked = project.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(checked.stdout.contains("collection `orders` of `orders.csv` is served read-only"), "{checked}");
    assert_eq!(project.run(&["check", "--strict"]).code, Some(1));
    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    server.wait_for("read-only: orders.csv");
    server.wait_for("is served read-only");
    assert_eq!(tools(&server), ["get_people", "update_people", "get_orders"]);
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
    assert_eq!(sources(&server)["unavailable"][0]["name"], "orders.csv");
}

#[test]
fn an_invalid_manifest_does_not_hide_a_broken_source() {
    let manifest = "[server]\nname = \"shop\"\n\
        [sources.people]\npath = \"people.csv\"\n[sources.orders]\npath = \"orders.csv\"\n\
        [collections.people]\nsource = \"people\"\nkey = \"id\"\n\
        [collections.orders]\nsource = \"orders\"\nkey = \"no\"\n";
    let project = TestProject::new(&[PEOPLE, ("orders.csv", BROKEN), ("spile.toml", manifest.as_bytes())]);
    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    wait_for_health(&server, "degraded");
    project.write("spile.toml", format!("{manifest}[oops\n").as_bytes());
    server.wait_for("still serving the previous contract");
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
    assert_eq!(sources(&server)["unavailable"][0]["name"], "orders.csv");
    // Files that go missing meanwhile are added, and removed when they are back.
    std::fs::remove_file(project.folder.join("people.csv")).expect("a file");
    let unavailable = || sources(&server)["unavailable"].as_array().map_or(0, Vec::len);
    wait_until(|| unavailable() == 2);
    project.write("people.csv", PEOPLE.1);
    wait_until(|| unavailable() == 1);
    project.write("orders.csv", ORDERS);
    project.write("spile.toml", manifest.as_bytes());
    wait_for_health(&server, "ok");
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TEST_TIMEOUT, "it does not become so");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_declared_key_of_a_database_that_is_not_unique_is_an_error() {
    let manifest = b"[sources.s]\npath = \"s.db\"\n[collections.nokey]\nkey = \"a\"\n\
        [collections.good]\ntable = \"nokey\"\nkey = [\"a\", \"b\"]\n";
    let project = TestProject::new(&[("spile.toml", manifest)]);
    let database = rusqlite::Connection::open(project.folder.join("s.db")).expect("a database");
    database
        .execute_batch(
            "CREATE TABLE nokey(a INTEGER, b TEXT); INSERT INTO nokey VALUES(1,'x'),(1,'y'),(2,'x');",
        )
        .expect("a table");
    let checked = project.run(&["check", "--strict"]);
    assert_eq!(checked.code, Some(1), "{checked}");
    let message =
        "table `nokey`: the key `a` is not unique: more than one row has the value `1`; choose another key";
    assert!(checked.stderr.contains(message), "{checked}");
    let checked = project.run(&["check"]);
    assert!(checked.stdout.contains("`nokey`") && checked.stdout.contains("is not unique"), "{checked}");
    assert!(checked.stdout.contains("get_good"), "{checked}");
}

#[test]
fn serve_lists_what_is_not_served_and_counts_the_rest() {
    let data = b"id,amount,,\n1,12,a,b\n2,13,a,b\n3,tbd,a,b\n";
    let project = TestProject::new(&[("orders.csv", data), ("bad.csv", BROKEN)]);
    let checked = project.run(&["check"]);
    assert!(checked.stdout.contains("2 columns of `orders` have no name; "), "{checked}");
    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    server.wait_for("`bad.csv` is not served: line 3 has 3 fields");
    server.wait_for("about the data: run `spile check ");
    let (_, stderr, _) = server.stop();
    assert!(!stderr.contains("`amount` is text"), "{stderr}");
}

/// Without a manifest nothing was promised: the contract follows the data.
#[test]
fn without_a_manifest_an_edited_cell_changes_the_contract() {
    let project = TestProject::new(&[("people.csv", b"id,age\n1,36\n2,41\n")]);
    let server = HttpServer::start(&mut project.spile(&["serve", "people.csv", "--bind", "0"]));
    assert_eq!(call(&server, "get_people", &json!({ "id": 1 }))["structuredContent"]["age"], 36);
    // A number becomes text, and the guessed key gets a duplicate.
    project.write("people.csv", b"id,age\n1,unknown\n1,41\n");
    let started = Instant::now();
    loop {
        let listed = call(&server, "list_people", &json!({}));
        let items = listed["structuredContent"]["items"].as_array();
        if items.is_some_and(|items| items.iter().any(|item| item["age"] == "unknown")) {
            break;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{listed} {}", get(&server, "/status").1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (_, status) = get(&server, "/status");
    assert_eq!(status["servers"][0]["reload"]["outcome"], "applied");
    assert_eq!(status["status"], "ok");
}

#[test]
fn health_and_status_name_a_source_that_went_away() {
    let project = TestProject::new(&[PEOPLE, ("orders.csv", ORDERS)]);
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "ok" })));
    // Its tools stay and report the error; the other file is followed.
    project.write("orders.csv", BROKEN);
    wait_for_health(&server, "degraded");
    assert_eq!(sources(&server)["unavailable"][0]["name"], "orders.csv");
    assert!(tools(&server).contains(&"list_orders".to_owned()));
    assert_eq!(call(&server, "list_orders", &json!({}))["isError"], true);
    project.write("people.csv", b"id,name,phone\n1,Ada,5\n2,Bea,6\n");
    let started = Instant::now();
    while call(&server, "get_people", &json!({ "id": 1 }))["structuredContent"]["phone"] != 5 {
        assert!(started.elapsed() < TEST_TIMEOUT, "{}", get(&server, "/status").1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    project.write("orders.csv", ORDERS);
    wait_for_health(&server, "ok");
    assert_eq!(call(&server, "list_orders", &json!({}))["isError"], false);
}

#[test]
fn health_is_down_if_no_source_can_be_read() {
    let project = TestProject::new(&[PEOPLE]);
    let server = HttpServer::start(&mut project.spile(&["serve", "people.csv", "--bind", "0"]));
    std::fs::remove_file(project.folder.join("people.csv")).expect("exists");
    wait_for_health(&server, "down");
    assert_eq!(get(&server, "/health").0, 503);
    project.write("people.csv", PEOPLE.1);
    wait_for_health(&server, "ok");
}

const SHOP: &[u8] = b"[server]\nname = \"shop\"\n[sources.people]\npath = \"people.csv\"\n\
    [collections.people]\nsource = \"people\"\nkey = \"id\"\noperations = [\"get\", \"list\"]\n";

#[track_caller]
fn wait_until_or_show(what: &str, server: &HttpServer, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}: {}", get(server, "/status").1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The column was never promised: the contract equals the lock file again.
#[test]
fn a_column_that_came_and_went_breaks_nothing() {
    for is_locked in [true, false] {
        let project = TestProject::new(&[PEOPLE, ("spile.toml", SHOP)]);
        if is_locked {
            assert_eq!(project.run(&["compile"]).code, Some(0));
        }
        let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
        let fields = || call(&server, "get_people", &json!({ "id": 1 }))["structuredContent"].clone();
        assert_eq!(fields(), json!({ "id": 1, "name": "Ada" }));
        project.write("people.csv", b"id,name,email\n1,Ada,a@b.c\n2,Bea,b@b.c\n");
        wait_until_or_show("the new column is served", &server, || fields()["email"] == "a@b.c");
        project.write("people.csv", PEOPLE.1);
        wait_until_or_show("the first contract is served again", &server, || {
            fields() == json!({ "id": 1, "name": "Ada" })
        });
        wait_for_health(&server, "ok");
        assert_ne!(get(&server, "/status").1["servers"][0]["reload"]["outcome"], "rejected");
    }
}

/// A column of the lock file is a promise, whenever it was added.
#[test]
fn a_locked_column_that_is_gone_makes_its_source_unavailable() {
    let project = TestProject::new(&[PEOPLE, ("spile.toml", SHOP)]);
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    project.write("people.csv", b"id,name,email\n1,Ada,a@b.c\n2,Bea,b@b.c\n");
    wait_until_or_show("the new column is served", &server, || {
        call(&server, "get_people", &json!({ "id": 1 }))["structuredContent"]["email"] == "a@b.c"
    });
    assert_eq!(project.run(&["compile"]).code, Some(0));
    project.write("people.csv", PEOPLE.1);
    wait_for_health(&server, "down");
    assert_eq!(call(&server, "list_people", &json!({}))["isError"], true);
    let unavailable = &sources(&server)["unavailable"];
    assert_eq!(unavailable[0]["name"], "people.csv");
    assert!(
        unavailable[0]["reason"].as_str().is_some_and(|reason| reason.contains("email")),
        "{unavailable}"
    );
    project.write("people.csv", b"id,name,email\n1,Ada,a@b.c\n");
    wait_for_health(&server, "ok");
    // Rows with a duplicate key are still listed, so the source is not down.
    project.write("people.csv", b"id,name,email\n1,Ada,a@b.c\n1,Bea,b@b.c\n");
    wait_until_or_show("it is listed", &server, || {
        call(&server, "list_people", &json!({}))["structuredContent"]["items"].as_array().map(Vec::len)
            == Some(2)
    });
    wait_until_or_show("the change was judged", &server, || {
        get(&server, "/status").1["servers"][0]["reload"]["outcome"] == "rejected"
    });
    assert_eq!(get(&server, "/health").1["status"], "ok");
    project.write("people.csv", b"id,name,email\n1,Ada,a@b.c\n");
    wait_for_health(&server, "ok");
    assert_eq!(call(&server, "list_people", &json!({}))["isError"], false);
}

#[test]
fn a_file_that_has_lost_its_last_record_is_not_down() {
    for (name, full, empty) in [
        ("people.jsonl", &b"{\"id\":1}\n{\"id\":2}\n"[..], &b""[..]),
        ("people.json", b"[{\"id\":1},{\"id\":2}]", b"[]"),
    ] {
        let project = TestProject::new(&[(name, full)]);
        let server = HttpServer::start(&mut project.spile(&["serve", name, "--bind", "0"]));
        project.write(name, empty);
        let items = || call(&server, "list_people", &json!({}))["structuredContent"]["items"].clone();
        wait_until_or_show("it is empty", &server, || items() == json!([]));
        project.write(name, full);
        wait_until_or_show("it is full", &server, || items() != json!([]));
        project.write(name, empty);
        wait_until_or_show("it is empty again", &server, || items() == json!([]));
        wait_until_or_show("the reload is over", &server, || {
            sources(&server)["unavailable"] == json!([]) && get(&server, "/health").0 == 200
        });
    }
}

#[test]
fn one_bad_path_of_several_does_not_stop_the_others() {
    let project = TestProject::new(&[PEOPLE, ("orders.csv", BROKEN)]);
    for bad in ["orders.csv", "missing.csv"] {
        for paths in [["people.csv", bad], [bad, "people.csv"]] {
            let mut args = vec!["serve", "--bind", "0"];
            args.extend(paths);
            let mut server = HttpServer::start(&mut project.spile(&args));
            server.wait_for(&format!("`{bad}` is not served: "));
            assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
            let (_, status) = get(&server, "/status");
            assert_eq!(status["failedServers"][0]["name"], bad);
            assert_eq!(status["servers"][0]["name"], "people");
        }
        let refused = project.run(&["serve", "--strict", "--bind", "0", "people.csv", bad]);
        assert_eq!(refused.code, Some(1), "{refused}");
        let refused = project.run(&["serve", "--bind", "0", bad, "nothing.csv"]);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains(bad) && refused.stderr.contains("nothing.csv"), "{refused}");
    }
    let refused = project.run(&["serve", "people.csv", "missing.csv"]);
    assert!(refused.stderr.contains("one server only"), "{refused}");
}

#[test]
fn a_broken_json_file_in_a_folder_is_unavailable_and_other_json_is_not() {
    let settings = ("settings.json", &br#"{"theme":"dark"}"#[..]);
    let project = TestProject::new(&[PEOPLE, settings, ("orders.json", b"[{\"no\":7},{\"no\":")]);
    let checked = project.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    assert_eq!(report["unavailable"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["unavailable"][0]["name"], "orders.json");
    assert_eq!(project.run(&["check", "--strict"]).code, Some(1));
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
    project.write("orders.json", b"[{\"no\":7}]");
    wait_for_health(&server, "ok");
}

#[cfg(unix)]
#[test]
fn what_only_looks_like_a_data_file_is_named() {
    let project = TestProject::new(&[PEOPLE]);
    let path = |name: &str| project.folder.join(name);
    std::os::unix::fs::symlink("/nonexistent/file", path("gone.csv")).expect("a link");
    let fifo = std::process::Command::new("mkfifo").arg(path("pipe.csv")).status().expect("mkfifo");
    assert!(fifo.success());
    std::fs::create_dir(path("folder.csv")).expect("a folder");
    let checked = project.run(&["check"]);
    for (name, reason) in [
        ("gone.csv", "it is a link to a file that cannot be found or opened"),
        ("pipe.csv", "it is not a regular file"),
        ("folder.csv", "it is a folder"),
    ] {
        assert!(checked.stdout.contains(&format!("`{name}` is not served: {reason}")), "{checked}");
    }
    assert_eq!(project.run(&["check", "--strict"]).code, Some(1));
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    assert_eq!(get(&server, "/health"), (200, json!({ "status": "degraded" })));
    std::fs::remove_file(path("pipe.csv")).expect("it exists");
    std::fs::remove_file(path("gone.csv")).expect("it exists");
    project.write("gone.csv", ORDERS);
    wait_for_health(&server, "ok");
}
