//! `spile history` and `spile restore`, with the files that a server writes.

use crate::harness::{StdioServer, TestProject};

const PEOPLE: &[u8] = b"id,name\n1,Ada\n2,Bea\n";

fn manifest(server: &str, path: &str) -> String {
    format!(
        "[server]\nname = \"people\"\n{server}\n[sources.data]\npath = \"{path}\"\n\n[collections.people]\n\
         source = \"data\"\n{table}key = \"id\"\noperations = [\"get\", \"update\", \"create\"]\n",
        table = if path.ends_with("db") { "table = \"people\"\n" } else { "" }
    )
}

/// The same two people in every kind of file that can be written but a workbook.
fn projects() -> Vec<(&'static str, TestProject)> {
    let records = [r#"{"id": 1, "name": "Ada"}"#, r#"{"id": 2, "name": "Bea"}"#];
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("people.csv", PEOPLE.to_vec()),
        ("people.json", format!("[{}]", records.join(", ")).into_bytes()),
        ("people.jsonl", records.join("\n").into_bytes()),
    ];
    let mut projects: Vec<_> = files
        .into_iter()
        .map(|(name, bytes)| {
            let manifest = manifest("", name);
            (name, TestProject::new(&[(name, &bytes), ("spile.toml", manifest.as_bytes())]))
        })
        .collect();
    let database = TestProject::new(&[("spile.toml", manifest("", "people.db").as_bytes())]);
    rusqlite::Connection::open(database.folder.join("people.db"))
        .expect("a database")
        .execute_batch(
            "CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT NOT NULL); INSERT INTO people VALUES(1, 'Ada'), (2, 'Bea')",
        )
        .expect("a table");
    projects.push(("people.db", database));
    projects
}

/// A server that keeps running while files are restored.
struct Server(StdioServer);

impl Server {
    fn start(place: &TestProject) -> Self {
        let mut server = StdioServer::open(&mut place.spile(&["serve", "spile.toml"]));
        server.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#);
        server.next();
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        Self(server)
    }

    fn call(&mut self, tool: &str, arguments: &str) -> String {
        self.0.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ));
        loop {
            let line = self.0.next();
            if line.contains("\"id\":1") {
                return line;
            }
        }
    }

    fn name(&mut self) -> String {
        let response: serde_json::Value =
            serde_json::from_str(&self.call("get_people", r#"{"id":1}"#)).expect("JSON");
        response["result"]["structuredContent"]["name"].as_str().expect("a name").to_owned()
    }
}

/// The versions that `history` lists, newest first.
fn versions(place: &TestProject, file: &str) -> Vec<String> {
    let output = place.run(&["history", file]);
    assert_eq!(output.code, Some(0), "{output}");
    let rows = output.stdout.lines().filter_map(|line| line.split_whitespace().next());
    rows.filter(|word| word.ends_with('Z')).map(str::to_owned).collect()
}

#[test]
fn a_write_is_undone_while_the_server_runs() {
    for (file, place) in projects() {
        let mut server = Server::start(&place);
        for name in ["Zoe", "Yan"] {
            let response = server.call("update_people", &format!(r#"{{"id":1,"name":"{name}"}}"#));
            assert!(response.contains(&format!(r#""name":"{name}""#)), "{file}: {response}");
        }
        let [first] = &versions(&place, file)[..] else { panic!("{file}: one version") };
        let output = place.run(&["restore", file]);
        assert_eq!(output.code, Some(0), "{output}");
        assert!(output.stderr.contains(&format!("restored `{file}` from backup {first}")), "{output}");
        assert_eq!(server.name(), "Ada", "{file}: the server has noticed");
        let [undo, _] = &versions(&place, file)[..] else { panic!("{file}: two versions") };
        assert!(output.stderr.contains(&format!("undo with: spile restore {file} {undo}")), "{output}");
        let undone = place.run(&["restore", file, undo]);
        assert_eq!(undone.code, Some(0), "{undone}");
        assert_eq!(server.name(), "Yan", "{file}");
    }
}

#[test]
fn a_workbook_is_restored_byte_for_byte() {
    let place = TestProject::example("stock");
    let workbook = || std::fs::read(place.folder.join("stock.xlsx")).expect("a workbook");
    let before = workbook();
    let output =
        place.run(&["call", "update_stock", "sku=A-17", "quantity=7", "--from", "spile.toml", "--yes"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert_ne!(workbook(), before);
    assert_eq!(place.run(&["restore", "stock.xlsx"]).code, Some(0));
    assert_eq!(workbook(), before);
}

#[test]
fn history_shows_how_many_lines_changed() {
    let place =
        TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", manifest("", "people.csv").as_bytes())]);
    let empty = place.run(&["history", "people.csv"]);
    insta::assert_snapshot!("history_empty", empty);
    place.run(&["call", "update_people", "id=1", "name=Zoe", "--from", "spile.toml", "--yes"]);
    place.run(&["call", "create_people", "id=3", "name=Cem", "--from", "spile.toml"]);
    let output = place.run(&["history", "people.csv"]);
    assert!(output.stdout.contains("2 lines added, 1 removed"), "{output}");
    assert!(output.stdout.contains(" 20 "), "the size of the version: {output}");
}

#[test]
fn backups_can_be_switched_off() {
    let manifest = manifest("backups = false", "people.csv");
    let place = TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", manifest.as_bytes())]);
    let output = place.run(&["call", "update_people", "id=1", "name=Zoe", "--from", "spile.toml", "--yes"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(place.files().len(), 2, "no copy was kept");
}

#[test]
fn what_cannot_be_restored_is_refused_with_a_way_out() {
    let place =
        TestProject::new(&[("people.csv", PEOPLE), ("spile.toml", manifest("", "people.csv").as_bytes())]);
    for (name, args) in [
        ("restore_none", &["restore", "people.csv"][..]),
        ("restore_manifest", &["restore", "spile.toml"]),
        ("history_folder", &["history", "."]),
        ("history_missing", &["history", "no/such.csv"]),
    ] {
        insta::assert_snapshot!(name, place.run(args));
    }
    place.run(&["call", "update_people", "id=1", "name=Zoe", "--from", "spile.toml", "--yes"]);
    place.run(&["restore", "people.csv"]);
    let before = place.files();
    insta::assert_snapshot!("restore_unknown", place.run(&["restore", "people.csv", "2020"]));
    let several = place.run(&["restore", "people.csv", "2"]);
    assert_eq!(several.code, Some(1), "{several}");
    assert!(several.stderr.contains("`2` is the beginning of several backups, e.g. `2"), "{several}");
    assert_eq!(place.files(), before, "nothing was changed");
}
