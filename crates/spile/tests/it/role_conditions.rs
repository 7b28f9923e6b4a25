//! The conditions of a role mean the same for every kind of source: values are compared by their bytes, whatever the collation of a
//! database, and a row that a condition leaves out exists for no tool.

use serde_json::{Value, json};
use test_api::{ApiRequest, ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use crate::harness::{HttpServer, TestProject};
use crate::tenants::Connection;

/// id, tenant, price, due, active, level.
type Row = (u64, &'static str, &'static str, &'static str, bool, Option<u64>);

/// Some tenants are the same for a database that ignores case, accents or blanks.
const ROWS: [Row; 6] = [
    (1, "acme", "10.50", "2026-01-01", true, Some(1)),
    (2, "ACME", "10.50", "2026-01-02", false, None),
    (3, "ácme", "99.99", "2026-02-01", true, Some(3)),
    (4, "O'Neil \\ \"x\"", "0.00", "2025-12-31", false, None),
    (5, "acme ", "10.51", "2026-01-01", true, Some(5)),
    (6, "acme2", "7.00", "2024-02-29", false, Some(0)),
];

/// A role's condition, the claims of its caller, and the rows that exist for them.
fn allowed() -> Vec<(&'static str, Value, Vec<u64>)> {
    vec![
        ("{ tenant = \"acme\" }", json!({}), vec![1]),
        ("{ tenant = [\"acme\", \"ácme\"] }", json!({}), vec![1, 3]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": "acme" }), vec![1]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": ["ACME", "acme "] }), vec![2, 5]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": "O'Neil \\ \"x\"" }), vec![4]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": "x' OR '1'='1" }), vec![]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": "\\' OR 1=1 -- " }), vec![]),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": "%" }), vec![]),
        ("{ tenant = { not = { claim = \"/tenant\" } } }", json!({ "tenant": "acme" }), vec![2, 3, 4, 5, 6]),
        ("{ price = { min = \"10.50\", max = \"10.505\" } }", json!({}), vec![1, 2]),
        ("{ price = { min = { claim = \"/least\" } } }", json!({ "least": "10.51" }), vec![3, 5]),
        ("{ due = { max = \"2026-01-01\" } }", json!({}), vec![1, 4, 5, 6]),
        ("{ due = \"2024-02-29\" }", json!({}), vec![6]),
        ("{ active = true }", json!({}), vec![1, 3, 5]),
        ("{ level = { is = \"null\" } }", json!({}), vec![2, 4]),
        ("{ level = { is = \"not null\" }, active = false }", json!({}), vec![6]),
        ("{ level = { not = 1 } }", json!({}), vec![2, 3, 4, 5, 6]),
        ("{ level = { min = { claim = \"/level\" } } }", json!({ "level": 3 }), vec![3, 5]),
        ("[{ tenant = \"acme2\" }, { level = 3, active = true }]", json!({}), vec![3, 6]),
    ]
}

/// Conditions with a claim that the caller does not have, or that is not a value of its column.
fn refused() -> Vec<(&'static str, Value)> {
    vec![
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": 7 })),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": [] })),
        ("{ tenant = { claim = \"/tenant\" } }", json!({ "tenant": null })),
        ("{ tenant = { claim = \"/tenant\" } }", json!({})),
        ("{ tenant = { not = { claim = \"/tenant\" } } }", json!({})),
        ("{ level = { claim = \"/level\" } }", json!({ "level": "3 OR 1=1" })),
    ]
}

/// All cases; `None` for those that are refused.
fn cases() -> Vec<(&'static str, Value, Option<Vec<u64>>)> {
    let allowed = allowed().into_iter().map(|(condition, claims, rows)| (condition, claims, Some(rows)));
    allowed.chain(refused().into_iter().map(|(condition, claims)| (condition, claims, None))).collect()
}

const OPERATIONS: &str = "operations = [\"get\", \"list\", \"search\", \"aggregate\"]";

/// The roles of all cases, below what says where the rows are.
fn manifest(source: &str) -> String {
    let mut text = format!("{source}\nkey = \"id\"\n{OPERATIONS}\n");
    for (at, (condition, ..)) in cases().iter().enumerate() {
        text += &format!(
            "[roles.r{at}]\nwhen = {{ \"/role\" = \"r{at}\" }}\n[collections.things.access.r{at}]\n{OPERATIONS}\nhidden = [\"level\"]\n\
             where = {condition}\n"
        );
    }
    text
}

fn tokens() -> String {
    let token = |(at, (_, mut claims, _)): (usize, (&str, Value, Option<Vec<u64>>))| {
        claims["role"] = json!(format!("r{at}"));
        json!({ "token": token(at), "subject": format!("user{at}"), "claims": claims })
    };
    json!({ "tokens": cases().into_iter().enumerate().map(token).collect::<Vec<_>>() }).to_string()
}

fn token(at: usize) -> String {
    format!("token-{at:02}-0123456789abcdef")
}

fn prove(name: &str, project: &TestProject) {
    project.write("tokens.json", tokens().as_bytes());
    let arguments = ["serve", ".", "--bind", "127.0.0.1:0", "--token-file", "tokens.json"];
    let server = HttpServer::start(&mut project.spile(&arguments));
    let mut connection = Connection::open(&server);
    for (at, (condition, claims, expected)) in cases().into_iter().enumerate() {
        let mut call = |tool: &str, arguments: Value| {
            let params = json!({ "name": tool, "arguments": arguments });
            let answer = connection.request_with(&token(at), "tools/call", &params);
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let result = &answer["result"];
            let text = result["content"][0]["text"].as_str().and_then(|text| serde_json::from_str(text).ok());
            match &result["structuredContent"] {
                Value::Null => text.unwrap_or_default(),
                structured => structured.clone(),
            }
        };
        let case = format!("{name}: {condition} with {claims}");
        let Some(expected) = expected else {
            for (tool, arguments) in [
                ("list_things", json!({})),
                ("get_things", json!({ "id": 1 })),
                ("get_things", json!({ "id": 77 })),
                ("search_things", json!({ "query": "acme" })),
                ("aggregate_things", json!({ "measures": ["count"] })),
            ] {
                let answer = call(tool, arguments);
                assert_eq!(answer["code"], "forbidden", "{case} {tool}\n{answer}");
                let message = answer["message"].as_str().expect("a message");
                let is_plain = message.contains("a claim that your token does not have")
                    && !["/tenant", "/level", "where"].iter().any(|word| message.contains(word));
                assert!(is_plain, "{case} {tool}\n{answer}");
            }
            continue;
        };
        let page = call("list_things", json!({ "sort": "id" }));
        let ids = page["items"].as_array().into_iter().flatten().filter_map(|row| row["id"].as_u64());
        assert_eq!(ids.collect::<Vec<_>>(), expected, "{case}\n{page}");
        assert!(!page.to_string().contains("level"), "{case}\n{page}");
        let count = call("aggregate_things", json!({ "measures": ["count"] }));
        assert_eq!(count["items"][0]["count"], expected.len(), "{case}\n{count}");
        let found = call("search_things", json!({ "query": "acme" }));
        let texts = expected.iter().filter(|id| [1, 2, 5, 6].contains(*id)).count();
        assert_eq!(found["total"], texts, "{case}\n{found}");
        for (id, ..) in ROWS {
            let row = call("get_things", json!({ "id": id }));
            match expected.contains(&id) {
                true => assert_eq!(row["id"], id, "{case}\n{row}"),
                false => assert_eq!(row["code"], "not_found", "{case}\n{row}"),
            }
        }
    }
}

fn sql(kind: Option<Kind>) -> String {
    let number = if kind.is_none() { "NUMERIC" } else { "decimal(12, 2)" };
    let mut script = format!(
        "CREATE TABLE things (id integer PRIMARY KEY, tenant varchar(80) NOT NULL, price {number} NOT NULL, due date NOT NULL,
           active boolean NOT NULL, level integer);\n"
    );
    for (id, tenant, price, due, active, level) in ROWS {
        let tenant = tenant.replace('\'', "''");
        let tenant = if kind == Some(Kind::MariaDb) { tenant.replace('\\', "\\\\") } else { tenant };
        let level = level.map_or("NULL".to_owned(), |level| level.to_string());
        // SQLite keeps a text as it is written.
        let price = if kind.is_none() { format!("'{price}'") } else { price.to_owned() };
        script +=
            &format!("INSERT INTO things VALUES ({id}, '{tenant}', {price}, '{due}', {active}, {level});\n");
    }
    script
}

#[test]
fn conditions_mean_the_same_in_databases() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = TestDatabase::new(kind);
        place.run(&sql(Some(kind)));
        let source =
            format!("[sources.shop]\nurl = \"{}\"\n[collections.things]\nsource = \"shop\"", place.url());
        prove(&format!("{kind:?}"), &TestProject::new(&[("spile.toml", manifest(&source).as_bytes())]));
    }
}

#[test]
fn conditions_mean_the_same_in_files() {
    let source = "[sources.things]\npath = \"things.csv\"\n[collections.things]\nsource = \"things\"";
    let mut csv = "id,tenant,price,due,active,level\n".to_owned();
    for (id, tenant, price, due, active, level) in ROWS {
        let (tenant, level) =
            (tenant.replace('"', "\"\""), level.map(|level| level.to_string()).unwrap_or_default());
        csv += &format!("{id},\"{tenant}\",{price},{due},{active},{level}\n");
    }
    let files = [("spile.toml", manifest(source)), ("things.csv", csv)];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_bytes()));
    prove("csv", &TestProject::new(&files));

    let source = "[sources.shop]\npath = \"shop.db\"\n[collections.things]\nsource = \"shop\"";
    let project = TestProject::new(&[("spile.toml", manifest(source).as_bytes())]);
    let database = rusqlite::Connection::open(project.folder.join("shop.db")).expect("a database");
    database.execute_batch(&sql(None)).expect("a table");
    drop(database);
    prove("sqlite", &project);
}

/// The API filters by the tenant if it is asked to, ignoring case as many do, and otherwise not at all.
#[test]
fn conditions_mean_the_same_in_an_api() {
    let api = ApiServer::start(|request: &ApiRequest| {
        let rows: Vec<Value> = ROWS
            .iter()
            .filter(|(_, tenant, ..)| {
                request.parameter("tenant").is_none_or(|asked| tenant.eq_ignore_ascii_case(asked))
            })
            .map(|(id, tenant, price, due, active, level)| {
                json!({ "id": id, "tenant": tenant, "price": price, "due": due, "active": active, "level": level })
            })
            .collect();
        match request.segments().get(1) {
            None => ApiResponse::json(json!(rows).to_string()),
            Some(id) => rows
                .iter()
                .find(|row| row["id"].as_u64() == id.parse().ok())
                .map_or_else(|| ApiResponse::new(404, "{}"), |row| ApiResponse::json(row.to_string())),
        }
    });
    let source = format!(
        "[sources.shop]\nkind = \"rest\"\nurl = \"{}\"\nallow_private_addresses = true\n[collections.things.fields]\nid = {{ as = \"integer\" }}\n\
         tenant = {{}}\nprice = {{ as = \"decimal\" }}\ndue = {{ as = \"date\" }}\nactive = {{ as = \"boolean\" }}\nlevel = {{ as = \"integer\" }}\n\
         [collections.things]\nsource = \"shop\"\nlist = {{ path = \"/things\", filters = {{ tenant = \"tenant\" }} }}\n\
         get = {{ path = \"/things/{{id}}\" }}",
        api.url()
    );
    prove("rest", &TestProject::new(&[("spile.toml", manifest(&source).as_bytes())]));
}
