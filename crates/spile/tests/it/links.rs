//! Links between files and databases, through the real program: included rows, their limits, and who may read them.

use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::harness::TestProject;
use crate::questions::Answers;

/// A sheet of orders whose customers are in a database.
fn shop(manifest: &str) -> TestProject {
    let mut orders = String::from("order,customer,total\n");
    for number in 1..=30 {
        orders += &format!("{number},{},{number}.50\n", [1, 2, 3, 99][number % 4]);
    }
    let text = format!(
        "[sources.orders]\npath = 'orders.csv'\n[sources.crm]\npath = 'crm.db'\n\
         [collections.orders]\nsource = 'orders'\nkey = 'order'\n\
         [collections.orders.related.buyer]\ncollection = 'customers'\nby = {{ customer = 'id' }}\n\
         [collections.customers]\nsource = 'crm'\nfields = {{ secret = {{ hidden = true }} }}\n\
         [collections.customers.related.orders]\ncollection = 'orders'\nby = {{ id = 'customer' }}\n\
         sort = '-order'\nrows_max = 3\n{manifest}"
    );
    let project = TestProject::new(&[("orders.csv", orders.as_bytes()), ("spile.toml", text.as_bytes())]);
    let connection = Connection::open(project.folder.join("crm.db")).expect("a database");
    let sql = "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, country TEXT, secret TEXT);
               INSERT INTO customers VALUES (1, 'Ada', 'UK', 's1'), (2, 'Bea', 'DE', 's2'), (3, 'Cem', 'DE', 's3'),
               (4, 'Dan', NULL, 's4')";
    connection.execute_batch(sql).expect("rows");
    project
}

/// The structured content, or the message of the error.
fn call(answers: &mut Answers, tool: &str, arguments: Json) -> Result<Json, String> {
    let result = answers.call(tool, &arguments);
    let content = result["structuredContent"].clone();
    match result["isError"] == true {
        true => Err(content["message"].as_str().unwrap_or_default().to_owned()),
        false => Ok(content),
    }
}

#[test]
fn a_sheet_is_linked_to_a_database() {
    let project = shop("");
    let mut answers = Answers::start(&project.folder);
    let mut ask = |tool: &str, arguments: Json| call(&mut answers, tool, arguments).expect("an answer");
    let page = ask("list_orders", json!({"include": "buyer", "limit": 4, "fields": ["order"]}));
    assert_eq!(
        page["items"],
        json!([
            {"order": 1, "buyer": {"id": 2, "name": "Bea", "country": "DE"}},
            {"order": 2, "buyer": {"id": 3, "name": "Cem", "country": "DE"}},
            {"order": 3, "buyer": null},
            {"order": 4, "buyer": {"id": 1, "name": "Ada", "country": "UK"}},
        ]),
        "hidden fields stay hidden, and an unknown customer is null"
    );
    let customer = ask("get_customers", json!({"id": 1, "include": "orders"}));
    assert_eq!(
        customer["orders"],
        json!({"items": [
            {"order": 28, "customer": 1, "total": "28.50"},
            {"order": 24, "customer": 1, "total": "24.50"},
            {"order": 20, "customer": 1, "total": "20.50"},
        ], "total": 7, "truncated": true}),
        "the newest three of seven"
    );
    let customers = ask("list_customers", json!({"include": "orders", "fields": ["id"]}));
    let totals: Vec<&Json> =
        customers["items"].as_array().expect("rows").iter().map(|row| &row["orders"]["total"]).collect();
    assert_eq!(totals, [7, 8, 8, 0]);
    let germans = ask("aggregate_orders", json!({"buyer.country": "DE", "measures": ["count", "sum_total"]}));
    assert_eq!(germans["items"], json!([{"count": 16, "sum_total": "256"}]));
    let others = ask("aggregate_orders", json!({"buyer.country_not": "DE"}));
    assert_eq!(others["items"], json!([{"count": 14}]), "orders of nobody are not German");
    let groups = ask("aggregate_orders", json!({"group": "buyer.country", "sort": "buyer.country"}));
    assert_eq!(
        groups["items"],
        json!([
            {"buyer.country": "DE", "count": 16},
            {"buyer.country": "UK", "count": 7},
            {"buyer.country": null, "count": 7},
        ])
    );
    for (arguments, expected) in [
        (json!({"orders_null": true}), json!([4])),
        (json!({"orders_null": false}), json!([1, 2, 3])),
        (json!({"orders_null": false, "country": "DE"}), json!([2, 3])),
    ] {
        let page = ask("list_customers", arguments.clone());
        let ids: Json = page["items"].as_array().expect("rows").iter().map(|row| row["id"].clone()).collect();
        assert_eq!(
            (ids, &page["total"]),
            (expected.clone(), &json!(expected.as_array().map(Vec::len))),
            "{arguments}"
        );
        let count = ask("aggregate_customers", arguments);
        assert_eq!(count["items"][0]["count"], page["total"]);
    }
    let orphans = ask("aggregate_orders", json!({"buyer_null": true, "group": "customer"}));
    assert_eq!(orphans["items"], json!([{"customer": 99, "count": 7}]), "to one row as well");
    let orders_of = |ask: &mut dyn FnMut(&str, Json) -> Json, is_null| {
        ask("aggregate_orders", json!({"buyer.orders_null": is_null}))["items"][0]["count"].clone()
    };
    assert_eq!(
        (orders_of(&mut ask, false), orders_of(&mut ask, true)),
        (json!(23), json!(7)),
        "two links away"
    );
    let first = ask("list_orders", json!({"buyer.country": "DE", "limit": 10, "fields": ["order"]}));
    let cursor = first["nextCursor"].clone();
    let second = ask(
        "list_orders",
        json!({"buyer.country": "DE", "limit": 10, "fields": ["order"], "cursor": cursor}),
    );
    assert_eq!((first["total"].clone(), second["items"].as_array().map(Vec::len)), (json!(16), Some(6)));
}

#[test]
fn linked_rows_stay_within_the_bytes_of_a_page() {
    let project = shop("[tools.x]\nuses = 'orders.get'\n");
    let text = std::fs::read_to_string(project.folder.join("spile.toml")).expect("a manifest");
    let text = text.replace("key = 'order'\n", "key = 'order'\nbytes_max = 1024\n");
    project.write("spile.toml", text.as_bytes());
    let connection = Connection::open(project.folder.join("crm.db")).expect("a database");
    connection.execute_batch("UPDATE customers SET name = name || ' with a long name'").expect("longer rows");
    let mut answers = Answers::start(&project.folder);
    let page =
        call(&mut answers, "list_orders", json!({"include": "buyer", "fields": ["order"]})).expect("a page");
    let items = page["items"].as_array().expect("rows");
    let left_out = items.iter().filter(|row| row["buyer"]["_truncated"] == true).count();
    let nobody = items.iter().filter(|row| row["buyer"].is_null()).count();
    assert!(left_out > 0 && items.len() == 30, "{page}");
    assert_eq!(nobody, 7, "what is left out is not the same as what does not exist");
}

#[test]
fn whoever_may_not_list_a_collection_cannot_read_it_through_a_link() {
    let project = shop("[tools.customers_of_the_shop]\nuses = 'customers.list'\nrate_limit = '2/min'\n");
    let orders = std::fs::read_to_string(project.folder.join("orders.csv")).expect("orders");
    let line = |(at, line): (usize, &str)| format!("{line},{}\n", if at == 0 { "note" } else { "by post" });
    project.write("orders.csv", orders.lines().enumerate().map(line).collect::<String>().as_bytes());
    let mut answers = Answers::start(&project.folder);
    let refused = "a collection that this call follows a link to cannot be listed; leave the link out";
    for arguments in [json!({"include": "buyer"}), json!({"buyer.name": "Ada"})] {
        assert!(call(&mut answers, "list_orders", arguments).is_ok());
    }
    for (tool, arguments) in [
        ("list_orders", json!({"include": "buyer"})),
        ("get_orders", json!({"order": 1, "include": "buyer"})),
        ("aggregate_orders", json!({"group": "buyer.name"})),
        ("aggregate_orders", json!({"buyer.name": "Ada"})),
        ("list_orders", json!({"buyer_null": true})),
        ("aggregate_orders", json!({"buyer.orders_null": false})),
        ("search_orders", json!({"query": "post", "buyer.name": "Ada"})),
        ("search_orders", json!({"query": "post", "include": "buyer"})),
    ] {
        let answer = call(&mut answers, tool, arguments.clone());
        assert_eq!(answer, Err(refused.to_owned()), "{tool} {arguments}");
    }
    assert!(call(&mut answers, "search_orders", json!({"query": "post"})).is_ok());
    assert!(call(&mut answers, "list_orders", json!({"limit": 1})).is_ok(), "without a link it is allowed");
}

#[test]
fn a_link_to_a_collection_that_cannot_be_served_now_is_left_out() {
    let project = shop("");
    project.write("crm.db", b"this is not a database");
    let mut answers = Answers::start(&project.folder);
    assert!(call(&mut answers, "list_orders", json!({"limit": 1})).is_ok());
    assert!(call(&mut answers, "list_orders", json!({"include": "buyer"})).is_err());
}
