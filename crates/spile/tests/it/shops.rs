//! The examples `shop-postgres` and `shop-mysql`, with real servers.

use std::path::PathBuf;

use serde_json::{Value, json};
use test_databases::{Kind, TestDatabase};

use crate::harness::{HttpServer, TestProject};
use crate::tenants::Connection;

/// Sam is staff, Vera is a visitor.
const SAM: &str = "example-token-of-sam-0123456789";
const VERA: &str = "example-token-of-vera-0123456789";

fn example(kind: Kind, file: &str) -> String {
    let name = match kind {
        Kind::Postgres => "shop-postgres",
        Kind::MariaDb => "shop-mysql",
    };
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).join(name).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The example in a database of its own, with a role of its own.
fn shop(kind: Kind) -> (TestDatabase, TestProject) {
    let place = TestDatabase::new(kind);
    let role = format!("shop_server_{}", place.name);
    let script =
        example(kind, "shop.sql").replace("shop_server", &role).replace("shop.", &format!("{}.", place.name));
    place.run(&script);
    let (start, end) = match kind {
        Kind::Postgres => ("${SHOP_URL:-postgres://shop_server@localhost/shop}", place.url_as(&role)),
        Kind::MariaDb => ("${SHOP_URL:-mysql://shop_server@localhost/shop}", place.url_as(&role)),
    };
    let manifest = example(kind, "spile.toml").replace(start, &end);
    let project = TestProject::new(&[
        ("spile.toml", manifest.as_bytes()),
        ("tokens.json", example(kind, "tokens.json").as_bytes()),
        ("tests/questions.toml", example(kind, "tests/questions.toml").as_bytes()),
    ]);
    (place, project)
}

fn call(connection: &mut Connection, token: &str, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let answer = connection.request_with(token, "tools/call", &params);
    let text = answer.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer);
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn the_shops_answer_the_calls_of_their_tests() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (_place, project) = shop(kind);
        let checked = project.run(&["check"]);
        assert!(checked.to_string().contains("take_from_stock"), "{kind:?} {checked}");
        let tested = project.run(&["test"]);
        assert!(tested.to_string().contains("8 tests: 8 passed"), "{kind:?} {tested}");
    }
}

#[test]
fn staff_writes_safely_and_visitors_do_not() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (_place, project) = shop(kind);
        let serve = ["serve", ".", "--bind", "127.0.0.1:0", "--token-file", "tokens.json"];
        let server = HttpServer::start(&mut project.spile(&serve));
        let connection = &mut Connection::open(&server);
        let take = json!({ "sku": "LAMP-1", "pieces": 2, "idempotency_key": "first" });
        assert_eq!(call(connection, VERA, "take_from_stock", &take)["error"]["code"], -32602, "{kind:?}");
        // However often it is repeated.
        for _ in 0..3 {
            let taken = call(connection, SAM, "take_from_stock", &take);
            assert_ne!(taken["result"]["isError"], true, "{kind:?} {taken}");
        }
        let lamp = call(connection, VERA, "get_products", &json!({ "sku": "LAMP-1" }));
        assert_eq!(lamp["result"]["structuredContent"]["in_stock"], 38, "{kind:?} {lamp}");
        let all = call(connection, SAM, "take_from_stock", &json!({ "sku": "LAMP-1", "pieces": 39 }));
        assert!(all.to_string().contains("stock_is_not_negative"), "{kind:?} {all}");
        let order = json!({ "customer_id": 4, "ordered_on": "2026-04-01", "note": "gift" });
        let created = call(connection, SAM, "create_orders", &order);
        assert_eq!(created["result"]["structuredContent"]["record"]["status"], "open", "{kind:?} {created}");
        let id = created["result"]["structuredContent"]["record"]["id"].clone();
        let seen = call(connection, VERA, "get_orders", &json!({ "id": id }));
        assert!(seen["result"]["structuredContent"].get("note").is_none(), "{kind:?} {seen}");
        let nobody = json!({ "customer_id": 999, "ordered_on": "2026-04-01" });
        let refused = call(connection, SAM, "create_orders", &nobody);
        assert!(refused.to_string().contains("does not exist"), "{kind:?} {refused}");
    }
}
