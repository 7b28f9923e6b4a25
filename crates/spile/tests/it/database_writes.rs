//! The promises of writes, the same on SQLite, PostgreSQL and MariaDB: versions, dry runs, idempotency keys and confirmation.

use serde_json::{Value, json};
use test_databases::{Kind, TestDatabase};

use crate::harness::{HttpServer, TestProject};

const ROWS: &str =
    "CREATE TABLE people (id integer PRIMARY KEY, name varchar(40) NOT NULL, city varchar(40));
    INSERT INTO people VALUES (1, 'Ada', 'Bonn'), (2, 'Bea', 'Ulm')";

/// A server and what keeps its data.
struct Place {
    server: HttpServer,
    _project: TestProject,
    _database: Option<TestDatabase>,
}

fn serve(kind: Option<Kind>, settings: &str) -> Place {
    let database = kind.map(|kind| {
        let place = TestDatabase::new(kind);
        place.run(ROWS);
        place
    });
    let source = match &database {
        Some(place) => format!("url = \"{}\"", place.url()),
        None => "path = \"people.db\"".to_owned(),
    };
    let manifest = format!(
        "[sources.s]\n{source}\n[collections.people]\noperations = [\"get\", \"list\", \"create\", \"update\", \"delete\"]\n{settings}"
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    if database.is_none() {
        let file = rusqlite::Connection::open(project.folder.join("people.db")).expect("a database");
        file.execute_batch(ROWS).expect("rows");
    }
    let server = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "0"]));
    Place { server, _project: project, _database: database }
}

impl Place {
    /// The result of a call by a client that can ask its user.
    fn request(&self, tool: &str, arguments: &Value, more: &Value) -> Value {
        let mut params = json!({ "name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        }});
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        let headers =
            format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (_, body) = self.server.post("/mcp", &headers, &message.to_string());
        let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        response["result"].clone()
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.request(tool, arguments, &Value::Null)["structuredContent"].clone()
    }

    /// Calls and answers the question of the server.
    fn call_with_answer(&self, tool: &str, arguments: &Value, answer: &Value) -> Value {
        let asked = self.request(tool, arguments, &Value::Null);
        let question = asked["inputRequests"].as_object().and_then(|all| all.keys().next());
        let question = question.unwrap_or_else(|| panic!("no question: {asked}"));
        let more = json!({ "requestState": asked["requestState"], "inputResponses": { question: answer } });
        self.request(tool, arguments, &more)["structuredContent"].clone()
    }

    fn names(&self) -> Vec<String> {
        let listed = self.call("list_people", &json!({}));
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn check(kind: Option<Kind>) {
    let place = serve(kind, "");
    // A version that is not the row's any more is a conflict.
    let version = place.call("get_people", &json!({ "id": 1 }))["_version"].clone();
    assert!(!version.is_null(), "{kind:?} {version}");
    let rename = |name: &str| json!({ "id": 1, "name": name, "expected_version": version });
    assert_eq!(place.call("update_people", &rename("Adam"))["outcome"], "updated", "{kind:?}");
    for (tool, arguments) in
        [("update_people", rename("Eve")), ("delete_people", json!({ "id": 1, "expected_version": version }))]
    {
        let refused = place.call(tool, &arguments);
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&json!("conflict"), &json!("expected_version")),
            "{kind:?} {tool} {refused}"
        );
    }
    assert_eq!(place.names(), ["Adam", "Bea"], "{kind:?}");
    // A dry run says what would happen, and nothing happens.
    let create = json!({ "id": 3, "name": "Cleo", "dry_run": true, "idempotency_key": "k1" });
    let dry = place.call("create_people", &create);
    assert_eq!((&dry["record"]["name"], &dry["dry_run"]), (&json!("Cleo"), &json!(true)), "{kind:?} {dry}");
    assert_eq!(place.names(), ["Adam", "Bea"], "{kind:?}");
    // A key is used once.
    let create = json!({ "id": 3, "name": "Cleo", "idempotency_key": "k1" });
    let (first, again) = (place.call("create_people", &create), place.call("create_people", &create));
    assert_eq!(
        (&first["outcome"], &again["replayed"]),
        (&json!("created"), &json!(true)),
        "{kind:?} {first} {again}"
    );
    let other = place.call("create_people", &json!({ "id": 4, "name": "Dan", "idempotency_key": "k1" }));
    assert_eq!(other["code"], "conflict", "{kind:?} {other}");
    assert_eq!(place.names(), ["Adam", "Bea", "Cleo"], "{kind:?}");

    // A user decides.
    let place = serve(kind, "confirm = \"ask\"\n");
    let delete = json!({ "id": 2, "idempotency_key": "k2" });
    let declined = place.call_with_answer("delete_people", &delete, &json!({ "action": "decline" }));
    assert_eq!(declined["code"], "input_refused", "{kind:?} {declined}");
    assert_eq!(place.names(), ["Ada", "Bea"], "{kind:?}");
    let accept = json!({ "action": "accept", "content": { "confirm": true } });
    let delete = json!({ "id": 2, "idempotency_key": "k3" });
    let deleted = place.call_with_answer("delete_people", &delete, &accept);
    assert_eq!(deleted["outcome"], "deleted", "{kind:?} {deleted}");
    assert_eq!(place.call("delete_people", &delete)["replayed"], true, "{kind:?}: without a question");
    assert_eq!(place.names(), ["Ada"], "{kind:?}");
}

#[test]
fn writes_keep_their_promises_on_sqlite() {
    check(None);
}

#[test]
fn writes_keep_their_promises_on_postgresql() {
    check(Some(Kind::Postgres));
}

#[test]
fn writes_keep_their_promises_on_mariadb() {
    check(Some(Kind::MariaDb));
}
