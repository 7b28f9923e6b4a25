//! Rows of many tenants in one table, and callers who must never see a row that is not theirs: every tool, cursor, export,
//! resource, completion and subscription, over every kind of source, with all callers at the same time.
//!
//! Each text of a row has the tag of its tenant, so that a foreign row in an answer, however it came there, is a foreign tag in
//! its bytes. `cargo xtask judges tenants` makes a million calls.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use serde_json::{Value, json};
use test_api::{ApiRequest, ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject};
use crate::reloading::{EventStream, META};

const TENANTS: usize = 64;
/// A list of the first tenants is long enough for an export.
const LONG_TENANTS: usize = 4;
const LONG_ROWS: usize = 110;
const ROWS: usize = 6;
/// No row has it until somebody creates it.
const SCRATCH: usize = 900;

fn tag(tenant: usize) -> String {
    format!("tn{tenant:02}z")
}

fn rows_of(tenant: usize) -> usize {
    if tenant < LONG_TENANTS { LONG_ROWS } else { ROWS }
}

/// Orders of tenant 7 have the ids 7001, 7002, …
fn order_id(tenant: usize, at: usize) -> usize {
    tenant * 1000 + at
}

fn customers() -> Vec<[String; 3]> {
    let of = |tenant: usize| {
        (1..=3).map(move |at| {
            [order_id(tenant, at).to_string(), tag(tenant), format!("{} Ann {at}", tag(tenant))]
        })
    };
    (0..TENANTS).flat_map(of).collect()
}

fn orders() -> Vec<[String; 6]> {
    let of = |tenant: usize| {
        (1..=rows_of(tenant)).map(move |at| {
            let (id, customer) = (order_id(tenant, at), order_id(tenant, 1 + at % 3));
            let item = format!("{} chair {}", tag(tenant), at % 4);
            [id.to_string(), tag(tenant), customer.to_string(), item, "10".to_owned(), tag(tenant)]
        })
    };
    (0..TENANTS).flat_map(of).collect()
}

const ORDERS: [&str; 6] = ["id", "tenant_id", "customer_id", "item", "amount", "note"];
const CUSTOMERS: [&str; 3] = ["id", "tenant_id", "name"];

fn csv<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let mut out = names.join(",") + "\n";
    rows.iter().for_each(|row| out += &(row.join(",") + "\n"));
    out
}

fn sql() -> String {
    let mut out = String::from(
        "CREATE TABLE customers (id integer PRIMARY KEY, tenant_id varchar(20) NOT NULL, name varchar(80) NOT NULL);
         CREATE TABLE orders (id integer PRIMARY KEY, tenant_id varchar(20) NOT NULL, customer_id integer NOT NULL,
           item varchar(80) NOT NULL, amount integer NOT NULL, note varchar(80) NOT NULL);\n",
    );
    for [id, tenant, name] in customers() {
        let _ = writeln!(out, "INSERT INTO customers VALUES ({id}, '{tenant}', '{name}');");
    }
    for [id, tenant, customer, item, amount, note] in orders() {
        let _ = writeln!(
            out,
            "INSERT INTO orders VALUES ({id}, '{tenant}', {customer}, '{item}', {amount}, '{note}');"
        );
    }
    out
}

/// The rules are the same for every kind of source. `orders` has one condition, `customers` alternatives.
const RULES: &str = r#"
[collections.orders]
key = "id"
operations = ["get", "list", "search", "aggregate", "create", "update", "delete"]
search = ["item", "note"]
[collections.orders.related.customer]
collection = "customers"
by = { customer_id = "id" }
[collections.customers]
key = "id"
operations = ["get", "list", "aggregate"]
[collections.customers.related.orders]
collection = "orders"
by = { id = "customer_id" }

[resources.customer]
collection = "customers"
uri = "customers://{id}"
complete = { id = { collection = "customers", field = "name" } }

[roles.member]
when = { "/groups" = "members" }
[collections.orders.access.member]
operations = ["get", "list", "search", "aggregate", "create", "update", "delete"]
hidden = ["tenant_id"]
where = { tenant_id = { claim = "/tenant" } }
set = { tenant_id = { claim = "/tenant" } }
[collections.customers.access.member]
operations = ["get", "list", "aggregate"]
where = [{ tenant_id = { claim = "/tenant" }, id = { min = 0 } }, { tenant_id = { claim = "/second_tenant" } }]
"#;

fn tokens() -> String {
    let token = |tenant: usize| {
        json!({
            "token": format!("token-{tenant:02}-0123456789abcdef"),
            "subject": format!("user{tenant}"),
            "claims": { "tenant": tag(tenant), "groups": ["members"] },
        })
    };
    let all: Vec<Value> = (0..TENANTS).map(token).collect();
    json!({ "tokens": all }).to_string()
}

/// One connection, used for the calls of several callers.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Connection {
    pub(crate) fn open(server: &HttpServer) -> Self {
        let stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
        Self { stream: BufReader::new(stream), address: server.address.to_string() }
    }

    pub(crate) fn request(&mut self, tenant: usize, method: &str, params: &Value) -> String {
        self.request_with(&format!("token-{tenant:02}-0123456789abcdef"), method, params)
    }

    pub(crate) fn request_with(&mut self, token: &str, method: &str, params: &Value) -> String {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).expect("it accepts input");
        self.read_response()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    fn bytes(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("a body");
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn read_response(&mut self) -> String {
        let mut length = None;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().ok();
            }
        }
        if let Some(length) = length {
            return self.bytes(length);
        }
        let mut body = String::new();
        loop {
            let length = usize::from_str_radix(&self.line(), 16).expect("the length of a chunk");
            body += &self.bytes(length);
            self.line();
            if length == 0 {
                return body;
            }
        }
    }
}

/// Looks for the tags of others.
fn check_tags(tenant: usize, answer: &str, what: impl Fn() -> String) {
    let own = tag(tenant);
    for (at, _) in answer.match_indices("tn") {
        let found = answer.get(at..at + 5).unwrap_or_default();
        let is_tag = found.ends_with('z') && found[2..4].bytes().all(|c| c.is_ascii_digit());
        assert!(!is_tag || found == own, "{own} got a row of {found}: {}\n{answer}", what());
    }
}

/// A subscription of a tenant to its own records and to those of another, and to the list of tools.
struct Listener {
    tenant: usize,
    foreign: String,
    stream: EventStream,
}

/// Opens a stream of notifications about resources and the list of tools.
fn listen(server: &HttpServer, caller: usize, uris: &[String]) -> EventStream {
    let notifications = json!({ "toolsListChanged": true, "resourceSubscriptions": uris });
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{{"notifications":{notifications},{META}}}}}"#
    );
    let head = format!(
        "POST /mcp HTTP/1.1\r\nAuthorization: Bearer token-{caller:02}-0123456789abcdef\r\nContent-Type: application/json\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"
    );
    let stream = EventStream::open(server, &head, &body);
    let acknowledged = stream.next();
    assert!(acknowledged.contains("acknowledged"), "{acknowledged}");
    stream
}

impl Listener {
    fn open(server: &HttpServer, tenant: usize) -> Self {
        let foreign = format!("customers://{}", order_id((tenant + 1) % TENANTS, 2));
        let uris = [format!("customers://{}", order_id(tenant, 2)), foreign.clone()];
        let stream = listen(server, tenant, &uris);
        Self { tenant, foreign, stream }
    }

    /// Reads to the notification that every tenant gets. None before it is about somebody else.
    fn check(&self) {
        loop {
            let message = self.stream.next();
            check_tags(self.tenant, &message, || "a notification".to_owned());
            assert!(
                !message.contains(&self.foreign),
                "{} heard of a row of another: {message}",
                tag(self.tenant)
            );
            if message.contains("notifications/tools/list_changed") {
                return;
            }
        }
    }
}

/// What callers try with what others got.
#[derive(Default)]
struct Loot {
    cursors: Vec<(usize, String)>,
    exports: Vec<(usize, String)>,
}

struct Proof<'a> {
    connection: Connection,
    /// Whether a write can expect a version.
    has_versions: bool,
    loot: &'a Mutex<Loot>,
    calls: u64,
    random: u64,
}

impl Proof<'_> {
    fn random(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    /// Sends a request, and looks for the tags of others in all bytes of the answer.
    fn send(&mut self, tenant: usize, method: &str, params: &Value) -> String {
        self.calls += 1;
        let answer = self.connection.request(tenant, method, params);
        check_tags(tenant, &answer, || format!("{method} {params}"));
        answer
    }

    /// A call that another writer has delayed too long is made again.
    fn call(&mut self, tenant: usize, tool: &str, arguments: &Value) -> Value {
        loop {
            let answer = self.call_once(tenant, tool, arguments);
            if answer["retryable"] != true {
                return answer;
            }
        }
    }

    fn call_once(&mut self, tenant: usize, tool: &str, arguments: &Value) -> Value {
        let answer = self.send(tenant, "tools/call", &json!({ "name": tool, "arguments": arguments }));
        let text = answer.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer);
        let parsed: Value = serde_json::from_str(text).expect("JSON");
        let result = &parsed["result"];
        assert!(result.is_object(), "{tool} {arguments}\n{answer}");
        if let Some(uri) =
            result["content"].as_array().into_iter().flatten().find_map(|block| block["uri"].as_str())
        {
            let mut loot = self.loot.lock().expect("no panic");
            if loot.exports.len() < 64 {
                loot.exports.push((tenant, uri.to_owned()));
            }
        }
        let structured = &result["structuredContent"];
        let text = || result["content"].as_array()?.last()?["text"].as_str();
        if structured.is_object() {
            return structured.clone();
        }
        text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
    }

    #[track_caller]
    fn expect_code(&mut self, tenant: usize, tool: &str, arguments: &Value, code: &str) {
        let answer = self.call(tenant, tool, arguments);
        assert_eq!(answer["code"], code, "{tool} {arguments}\n{answer}");
    }

    /// One step of one tenant. Steps of the same tenant follow each other, so that its numbers are known.
    fn step(&mut self, tenant: usize) {
        let rows = rows_of(tenant);
        let other = (tenant + 1 + self.random(TENANTS - 1)) % TENANTS;
        let own_id = order_id(tenant, 1 + self.random(rows));
        let other_id = order_id(other, 1 + self.random(rows_of(other)));
        match self.random(16) {
            0 => {
                let row = self.call(tenant, "get_orders", &json!({ "id": own_id, "include": ["customer"] }));
                assert_eq!(row["customer"]["tenant_id"], tag(tenant), "{row}");
                assert!(row.get("tenant_id").is_none(), "{row}");
            }
            1 => self.expect_code(tenant, "get_orders", &json!({ "id": other_id }), "not_found"),
            2 => {
                let page = self.call(tenant, "list_orders", &json!({ "limit": 4, "sort": "-item" }));
                assert_eq!(
                    (&page["total"], page["items"].as_array().map(Vec::len)),
                    (&json!(rows), Some(4)),
                    "{page}"
                );
                let cursor = page["nextCursor"].as_str().expect("there are more").to_owned();
                let next = json!({ "limit": 4, "sort": "-item", "cursor": cursor });
                let page = self.call(tenant, "list_orders", &next);
                assert!(page["items"].as_array().is_some_and(|items| !items.is_empty()), "{page}");
                self.loot.lock().expect("no panic").cursors.push((tenant, cursor));
            }
            3 => {
                let found = self.loot.lock().expect("no panic").cursors.pop();
                if let Some((owner, cursor)) = found.filter(|(owner, _)| *owner != tenant) {
                    let arguments = json!({ "limit": 4, "sort": "-item", "cursor": cursor });
                    let answer = self.call(tenant, "list_orders", &arguments);
                    assert_eq!(answer["field"], "cursor", "the cursor of {owner} for {tenant}: {answer}");
                }
            }
            4 => {
                let page = self.call(tenant, "search_orders", &json!({ "query": "chair" }));
                assert_eq!(page["total"], rows, "{page}");
                let page = self.call(tenant, "search_orders", &json!({ "query": tag(other) }));
                assert_eq!(page["total"], 0, "{page}");
            }
            5 => {
                let arguments = json!({ "group": "customer.name", "measures": ["count", "sum_amount"] });
                let groups = self.call(tenant, "aggregate_orders", &arguments);
                assert_eq!(groups["groups_total"], 3, "{groups}");
                let total = self.call(tenant, "aggregate_orders", &json!({ "measures": ["count"] }));
                assert_eq!(total["items"][0]["count"], rows, "{total}");
            }
            6 => {
                let page =
                    self.call(tenant, "list_customers", &json!({ "include": ["orders"], "sort": "name" }));
                assert_eq!(page["total"], 3, "{page}");
                let page = self.call(tenant, "list_orders", &json!({ "customer.tenant_id": tag(other) }));
                assert_eq!(page["total"], 0, "{page}");
                let page = self.call(tenant, "list_orders", &json!({ "customer.name_not": "x", "limit": 1 }));
                assert_eq!(page["total"], rows, "{page}");
            }
            7 => {
                for arguments in [
                    json!({ "tenant_id": tag(tenant) }),
                    json!({ "tenant_id_not": "x" }),
                    json!({ "sort": "tenant_id" }),
                    json!({ "fields": ["tenant_id"] }),
                ] {
                    self.expect_code(tenant, "list_orders", &arguments, "invalid_arguments");
                }
                for arguments in [json!({ "group": "tenant_id" }), json!({ "measures": ["min_tenant_id"] })] {
                    self.expect_code(tenant, "aggregate_orders", &arguments, "invalid_arguments");
                }
            }
            8 => {
                let arguments = json!({ "id": own_id, "note": format!("{} note", tag(tenant)) });
                let answer = self.call(tenant, "update_orders", &arguments);
                assert!(answer["record"].get("tenant_id").is_none(), "{answer}");
            }
            9 => {
                let mut arguments = json!({ "id": other_id, "note": "stolen" });
                if self.has_versions {
                    arguments["expected_version"] = json!("x");
                }
                self.expect_code(tenant, "update_orders", &arguments, "not_found");
                self.expect_code(tenant, "delete_orders", &json!({ "id": other_id }), "not_found");
                let arguments = json!({ "id": own_id, "tenant_id": tag(other) });
                self.expect_code(tenant, "update_orders", &arguments, "invalid_arguments");
            }
            10 => {
                // The key of another row is taken, for whomever: a source has only one row for it.
                let (id, item) = (other_id, format!("{} chair", tag(tenant)));
                let row = json!({ "id": id, "customer_id": 1, "item": item, "amount": 1, "note": "n" });
                self.expect_code(tenant, "create_orders", &row, "conflict");
            }
            11 => {
                let (id, item) = (order_id(tenant, SCRATCH), format!("{} chair", tag(tenant)));
                let row = json!({ "id": id, "customer_id": 1, "item": item, "amount": 1, "note": "n", "idempotency_key": "same" });
                let answer = self.call(tenant, "create_orders", &row);
                assert_eq!(answer["record"]["id"], id, "{answer}");
                // The key is the same for all tenants; the answer is the tenant's own.
                let again = self.call(tenant, "create_orders", &row);
                assert_eq!(again["record"]["id"], id, "{again}");
                let answer = self.call(tenant, "delete_orders", &json!({ "id": id }));
                // A repeated key does not create the row again.
                assert!(answer["outcome"] == "deleted" || answer["code"] == "not_found", "{answer}");
            }
            12 => {
                let found = self.loot.lock().expect("no panic").exports.pop();
                if let Some((owner, uri)) = found {
                    let answer = self.send(tenant, "resources/read", &json!({ "uri": uri }));
                    assert_eq!(
                        answer.contains("\"error\""),
                        owner != tenant,
                        "{owner} for {tenant}: {answer}"
                    );
                }
            }
            13 => {
                let read = |id: usize| json!({ "uri": format!("customers://{id}") });
                let own = self.send(tenant, "resources/read", &read(order_id(tenant, 2)));
                assert!(own.contains(&tag(tenant)), "{own}");
                let foreign = self.send(tenant, "resources/read", &read(order_id(other, 2)));
                assert!(foreign.contains("\"error\""), "{foreign}");
                self.send(tenant, "resources/read", &json!({ "uri": "spile://overview" }));
                self.send(tenant, "resources/list", &json!({}));
            }
            14 => {
                let complete = |text: &str| {
                    json!({
                        "ref": { "type": "ref/resource", "uri": "customers://{id}" },
                        "argument": { "name": "id", "value": text },
                    })
                };
                let own = self.send(tenant, "completion/complete", &complete("tn"));
                assert!(own.contains(&format!("{} Ann 3", tag(tenant))), "{own}");
                self.send(tenant, "completion/complete", &complete(&tag(other)[..4]));
            }
            _ => {
                let list = self.send(tenant, "tools/list", &json!({}));
                assert!(list.contains("list_orders"), "{list}");
                self.call(tenant, "list_orders", &json!({}));
            }
        }
    }
}

fn prove(project: &TestProject) {
    prove_with(project, &tokens(), true);
}

#[allow(clippy::print_stdout, reason = "the judge shows its figures")]
fn prove_with(project: &TestProject, tokens: &str, has_versions: bool) {
    let calls = calls();
    project.write("tokens.json", tokens.as_bytes());
    let server = HttpServer::start(&mut project.spile(&[
        "serve",
        ".",
        "--bind",
        "127.0.0.1:0",
        "--token-file",
        "tokens.json",
    ]));
    let listeners: Vec<Listener> = (0..TENANTS).map(|tenant| Listener::open(&server, tenant)).collect();
    let (loot, total, all_are_there) =
        (Mutex::new(Loot::default()), AtomicU64::new(0), Barrier::new(TENANTS));
    std::thread::scope(|scope| {
        for tenant in 0..TENANTS {
            let (server, loot, total, all_are_there) = (&server, &loot, &total, &all_are_there);
            scope.spawn(move || {
                let random = 0x9e37_79b9_7f4a_7c15 ^ tenant as u64;
                let connection = Connection::open(server);
                let mut proof = Proof { connection, has_versions, loot, calls: 0, random };
                all_are_there.wait();
                while proof.calls < calls.div_ceil(TENANTS as u64) {
                    proof.step(tenant);
                }
                total.fetch_add(proof.calls, Ordering::Relaxed);
            });
        }
    });
    let total = total.into_inner();
    assert!(total >= calls, "{total} calls");
    println!("{total} calls of {TENANTS} tenants at the same time");
    let manifest = project.files().into_iter().find(|(name, _)| name.ends_with("spile.toml"));
    let manifest = String::from_utf8(manifest.expect("a manifest").1).expect("text");
    let described = manifest.replace("search = [", "description = \"Orders, described.\"\nsearch = [");
    project.write("spile.toml", described.as_bytes());
    listeners.iter().for_each(Listener::check);
}

/// How many calls are made for each kind of source: a small share of what the judge makes.
fn calls() -> u64 {
    std::env::var("SPILE_TENANT_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_500)
}

#[test]
fn no_tenant_sees_a_row_of_another_in_csv_files() {
    let manifest = format!(
        "[sources.orders]\npath = \"orders.csv\"\n[sources.customers]\npath = \"customers.csv\"\n{}",
        RULES
            .replace("[collections.orders]\n", "[collections.orders]\nsource = \"orders\"\n")
            .replace("[collections.customers]\n", "[collections.customers]\nsource = \"customers\"\n")
    );
    let project = TestProject::new(&[
        ("spile.toml", manifest.as_bytes()),
        ("orders.csv", csv(ORDERS, &orders()).as_bytes()),
        ("customers.csv", csv(CUSTOMERS, &customers()).as_bytes()),
    ]);
    prove(&project);
}

#[test]
fn no_tenant_sees_a_row_of_another_in_sqlite() {
    let manifest = format!("[sources.shop]\npath = \"shop.db\"\n{RULES}");
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let database = rusqlite::Connection::open(project.folder.join("shop.db")).expect("a database");
    let script = format!("PRAGMA journal_mode = WAL; BEGIN; {} COMMIT;", sql());
    database.execute_batch(&script).expect("tables");
    drop(database);
    prove(&project);
}

#[test]
fn no_tenant_sees_a_row_of_another_in_postgres() {
    let place = TestDatabase::new(Kind::Postgres);
    place.run(&sql());
    let manifest = format!("[sources.shop]\nurl = \"{}\"\n{RULES}", place.url());
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    prove(&project);
}

#[test]
fn no_tenant_sees_a_row_of_another_in_mariadb() {
    let place = TestDatabase::new(Kind::MariaDb);
    place.run(&sql());
    let manifest = format!("[sources.shop]\nurl = \"{}\"\n{RULES}", place.url());
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    prove(&project);
}

/// The same without any `where`: the database decides.
#[test]
fn no_tenant_sees_a_row_of_another_with_row_level_security() {
    let place = TestDatabase::new(Kind::Postgres);
    let name = &place.name;
    place.run(&sql());
    place.run(&format!(
        "CREATE ROLE login_{name} LOGIN NOINHERIT; CREATE ROLE member_{name}; GRANT member_{name} TO login_{name};
         GRANT CREATE ON SCHEMA public TO login_{name}; GRANT SELECT, INSERT, UPDATE, DELETE ON orders, customers TO member_{name};
         ALTER TABLE orders ENABLE ROW LEVEL SECURITY; ALTER TABLE customers ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON orders USING (tenant_id = current_setting('app.tenant'));
         CREATE POLICY own ON customers USING (tenant_id = current_setting('request.jwt.claims')::json ->> 'tenant');"
    ));
    let rules: Vec<&str> = RULES.lines().filter(|line| !line.starts_with("where =")).collect();
    let manifest = format!(
        "[sources.shop]\nurl = \"{}\"\nrole_from = \"/db_role\"\nsettings = {{ \"app.tenant\" = {{ claim = \"/tenant\" }} }}\n{}",
        place.url_as(&format!("login_{name}")),
        rules.join("\n")
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let claims = format!("\"claims\":{{\"db_role\":\"member_{name}\",");
    prove_with(&project, &tokens().replace("\"claims\":{", &claims), true);
}

/// A change of a file is told to those who may read it. Whoever may not hears nothing, however often its owners write.
#[test]
fn a_subscription_tells_nothing_of_a_resource_that_a_role_does_not_have() {
    let manifest = r#"
[sources.s]
path = "items.csv"
[collections.items]
source = "s"
key = "id"
[roles.staff]
when = { "/groups" = "staff" }
[roles.visitor]
when = { "/groups" = "visitors" }
[collections.items.access.staff]
[collections.items.access.visitor]
[resources.plan]
file = "plan.md"
uri = "docs://plan"
access = { roles = ["staff"] }
"#;
    let token = |name: &str, group: &str| json!({ "token": format!("token-{name}-0123456789abcdef"), "subject": name, "claims": { "groups": [group] } });
    let tokens = json!({ "tokens": [token("00", "staff"), token("01", "visitors")] }).to_string();
    let project = TestProject::new(&[
        ("spile.toml", manifest.as_bytes()),
        ("items.csv", b"id,name\n1,a\n"),
        ("tokens.json", tokens.as_bytes()),
    ]);
    project.write("resources/plan.md", b"secret 0");
    project.write("resources/news.md", b"news 0");
    let server = HttpServer::start(&mut project.spile(&[
        "serve",
        ".",
        "--bind",
        "127.0.0.1:0",
        "--token-file",
        "tokens.json",
    ]));
    let list = Connection::open(&server).request(0, "resources/list", &json!({}));
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let uris = list["result"]["resources"].as_array().expect("resources");
    let uri = |part: &str| {
        let found = uris.iter().filter_map(|one| one["uri"].as_str()).find(|uri| uri.contains(part));
        found.unwrap_or_else(|| panic!("{list}")).to_owned()
    };
    let (plan, news) = (uri("plan"), uri("news"));
    let [staff, visitor] = [0, 1].map(|caller| listen(&server, caller, &[plan.clone(), news.clone()]));
    for round in 1..=3 {
        project.write("resources/plan.md", format!("secret {round}").as_bytes());
        let told = staff.next();
        assert!(told.contains("resources/updated") && told.contains(&plan), "{told}");
    }
    project.write("resources/news.md", b"news 1");
    for stream in [&staff, &visitor] {
        let told = stream.next();
        assert!(told.contains("resources/updated") && told.contains(&news), "{told}");
    }
}

/// The API of the same shop. It knows no tenants: whoever has its URL gets everything.
struct ShopApi {
    orders: Vec<Value>,
    customers: Vec<Value>,
    /// Answers to writes, by idempotency key.
    answers: HashMap<String, ApiResponse>,
}

impl ShopApi {
    fn new() -> Self {
        fn record<const N: usize>(names: [&str; N], row: &[String; N]) -> Value {
            let value = |text: &String| text.parse::<u64>().map_or_else(|_| json!(text), |n| json!(n));
            names.iter().zip(row).map(|(name, text)| ((*name).to_owned(), value(text))).collect()
        }
        Self {
            orders: orders().iter().map(|row| record(ORDERS, row)).collect(),
            customers: customers().iter().map(|row| record(CUSTOMERS, row)).collect(),
            answers: HashMap::new(),
        }
    }

    fn answer(&mut self, request: &ApiRequest) -> ApiResponse {
        let key = request.header("idempotency-key").map(str::to_owned);
        if let Some(answer) = key.as_ref().and_then(|key| self.answers.get(key)) {
            return answer.clone();
        }
        let answer = self.answer_new(request);
        if let Some(key) = key {
            self.answers.insert(key, answer.clone());
        }
        answer
    }

    fn answer_new(&mut self, request: &ApiRequest) -> ApiResponse {
        let segments = request.segments();
        let (table, id) = match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["orders"] => (&mut self.orders, None),
            ["orders", id] => (&mut self.orders, Some(id)),
            ["customers"] => (&mut self.customers, None),
            ["customers", id] => (&mut self.customers, Some(id)),
            _ => return ApiResponse::new(404, ""),
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let has_id = |row: &Value, id: &str| row["id"].as_u64() == id.parse().ok();
        let Some(id) = id else {
            if request.method == "POST" {
                if table.iter().any(|row| row["id"] == body["id"]) {
                    return ApiResponse::new(409, "{}");
                }
                table.push(body.clone());
                return ApiResponse::json(body.to_string());
            }
            let is_asked_for =
                |row: &&Value| request.parameter("tenant").is_none_or(|tenant| row["tenant_id"] == tenant);
            let start = request.parameter("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
            let page: Vec<&Value> = table.iter().filter(is_asked_for).skip(start).take(150).collect();
            return ApiResponse::json(json!({ "data": page }).to_string());
        };
        let Some(at) = table.iter().position(|row| has_id(row, id)) else {
            return ApiResponse::new(404, "{}");
        };
        match request.method.as_str() {
            "PATCH" => {
                for (name, value) in body.as_object().into_iter().flatten() {
                    table[at][name] = value.clone();
                }
            }
            "DELETE" => return ApiResponse::json(table.remove(at).to_string()),
            _ => {}
        }
        ApiResponse::json(table[at].to_string())
    }
}

/// The API filters orders by tenant, if it is asked to, and customers not at all.
#[test]
fn no_tenant_sees_a_row_of_another_in_an_api() {
    let shop = Mutex::new(ShopApi::new());
    let api = ApiServer::start(move |request| shop.lock().expect("no panic").answer(request));
    let list = |more: &str| {
        format!("items = \"/data\", page = {{ style = \"offset\", parameter = \"offset\" }}{more}")
    };
    let key = "idempotency_header = \"Idempotency-Key\"";
    let orders = format!(
        "[collections.orders]\nsource = \"shop\"\nlist = {{ path = \"/orders\", {} }}\nget = {{ path = \"/orders/{{id}}\" }}\n\
         create = {{ path = \"/orders\", {key} }}\nupdate = {{ path = \"/orders/{{id}}\", {key} }}\n\
         delete = {{ path = \"/orders/{{id}}\", {key} }}\n",
        list(", filters = { tenant_id = \"tenant\" }")
    );
    let customers = format!(
        "[collections.customers]\nsource = \"shop\"\nlist = {{ path = \"/customers\", {} }}\nget = {{ path = \"/customers/{{id}}\" }}\n",
        list("")
    );
    let rules =
        RULES.replace("[collections.orders]\n", &orders).replace("[collections.customers]\n", &customers);
    let manifest = format!(
        "[sources.shop]\nkind = \"rest\"\nurl = \"{}\"\nallow_private_addresses = true\n{rules}\n\
         [collections.orders.fields]\nid = {{ as = \"integer\" }}\ntenant_id = {{}}\ncustomer_id = {{ as = \"integer\" }}\nitem = {{}}\n\
         amount = {{ as = \"integer\" }}\nnote = {{}}\n\
         [collections.customers.fields]\nid = {{ as = \"integer\" }}\ntenant_id = {{}}\nname = {{}}\n",
        api.url()
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    prove_with(&project, &tokens(), false);
}
