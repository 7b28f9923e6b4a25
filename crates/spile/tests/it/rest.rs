//! REST APIs, with the whole program.

use test_api::shop::{Shop, TOKEN};
use test_api::{ApiResponse, ApiServer};

use crate::harness::{CommandOutput, TestProject};

/// What a command said.
fn said(output: &CommandOutput) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

fn shop() -> ApiServer {
    let shop = Shop::default();
    ApiServer::start(move |request| shop.answer(request))
}

/// The manifest of the example, for a server at this URL.
fn example(url: &str) -> String {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/public-api/spile.toml"));
    let text = text.expect("the example").replace("${SHOP_URL:-http://127.0.0.1:8765}", url);
    text.replace("${SHOP_TOKEN}", TOKEN)
}

#[test]
fn the_example_answers_the_calls_of_its_tests() {
    let server = shop();
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/public-api/tests/questions.toml");
    let tests = std::fs::read_to_string(tests).expect("the tests");
    let project = TestProject::new(&[
        ("spile.toml", example(&server.url()).as_bytes()),
        ("tests/questions.toml", tests.as_bytes()),
    ]);
    let output = said(&project.run(&["test"]));
    assert!(output.contains("6 passed") && !output.contains(TOKEN), "{output}");
    let checked = said(&project.run(&["check"]));
    assert!(checked.contains("refund_order") && !checked.contains(TOKEN), "{checked}");
}

#[test]
fn an_api_that_is_down_does_not_keep_a_server_from_its_tools() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port");
    let project = TestProject::new(&[("spile.toml", example(&format!("http://{gone}")).as_bytes())]);
    assert!(said(&project.run(&["tools", "--from", "."])).contains("aggregate_orders"));
    let output = said(&project.run(&["call", "get_orders", "id=1", "--from", "."]));
    assert!(output.contains("source_unavailable") && output.contains("retryable  true"), "{output}");
    assert!(!output.contains(TOKEN) && !output.contains("127.0.0.1"), "{output}");
}

#[test]
fn mistakes_in_a_manifest_are_named() {
    for (lines, expected) in [
        ("url = \"ftp://x\"", "begins with `https://` or `http://`"),
        ("url = \"https://eve:secret@api.example.com\"", "has a user or a password"),
        ("url = \"http://api.example.com\"\nauth = { bearer = \"x\" }", "without encryption"),
        (
            "url = \"https://api.example.com\"\nredirects = \"any\"\nheaders = { X-Key = \"x\" }",
            "who gets the credentials",
        ),
        (
            "url = \"https://api.example.com\"\nauth = { bearer = \"x\", basic = { user = \"y\" } }",
            "several kinds of credentials",
        ),
        ("url = \"https://api.example.com\"\nheaders = { Host = \"x\" }", "the header `Host` cannot be set"),
        ("url = \"https://api.example.com\"\npath = \"x.csv\"", "write `url` instead"),
        ("", "has no `url`"),
    ] {
        let text = format!(
            "[sources.api]\nkind = \"rest\"\n{lines}\n[tools.t]\nsource = \"api\"\nrequest = {{ path = \"/a\" }}\n"
        );
        let output = said(&TestProject::new(&[("spile.toml", text.as_bytes())]).run(&["check"]));
        assert!(output.contains(expected) && !output.contains("secret"), "{lines}\n{output}");
    }
    for (lines, expected) in [
        ("request = { path = \"/a/../b\" }", "segment of dots"),
        ("request = { path = \"a\" }", "begin it with a `/`"),
        ("request = { path = \"/a?b=c\" }", "the path has a query"),
        ("request = { path = \"/a/{id}\" }", "`{id}` is not declared"),
        ("request = { path = \"/{id}\" }\narguments.id = { required = false }", "cannot omit it"),
        ("request = { path = \"/{id}\" }\narguments.id = { type = \"json\" }", "cannot be part of a path"),
        ("request = { path = \"/a\", body = { x = 1 } }", "has no body"),
        ("request = { method = \"POST\", path = \"/a\", body = { x = \"{y\" } }", "a `{` has no `}`"),
        (
            "request = { method = \"POST\", path = \"/a\" }\nconfirm = \"ask\"",
            "`confirm` needs idempotency keys",
        ),
        ("request = { path = \"/a\" }\nreturns = \"many\"", "needs `fields`"),
        ("request = { path = \"/a\" }\nchanges_max = 3", "only for tools with `sql`"),
        (
            "request = { path = \"/a\", headers = { Authorization = \"x\" } }",
            "credentials belong to the source",
        ),
    ] {
        let text = format!(
            "[sources.api]\nkind = \"rest\"\nurl = \"https://api.example.com\"\n[tools.t]\nsource = \"api\"\n{lines}\n"
        );
        let output = said(&TestProject::new(&[("spile.toml", text.as_bytes())]).run(&["check"]));
        assert!(output.contains(expected), "{lines}\n{output}");
    }
    for (lines, expected) in [
        ("", "needs an endpoint"),
        ("get = { path = \"/a/{name}\" }", "`{name}` is not a part of the key"),
        ("get = { path = \"/a\" }", "does not name the key"),
        ("list = {}\noperations = [\"create\"]", "needs the endpoint `create`"),
        ("list = { page = { style = \"cursor\" } }", "either `next` or `last_item`"),
        ("list = { page = { style = \"page\", next = \"/a\" } }", "`next` has no effect"),
        ("list = { items = \"data.rows\" }", "not a JSON pointer"),
        ("list = { filters = { color = \"c\" } }", "`color`, which is not a field"),
        ("list = {}\ntable = \"x\"", "`table` is only for sources"),
    ] {
        let text = format!(
            "[sources.api]\nkind = \"rest\"\nurl = \"https://api.example.com\"\n[collections.a]\nsource = \"api\"\nkey = \"id\"\n{lines}\n\
             [collections.a.fields]\nid = {{ as = \"integer\" }}\n"
        );
        let output = said(&TestProject::new(&[("spile.toml", text.as_bytes())]).run(&["check"]));
        assert!(output.contains(expected), "{lines}\n{output}");
    }
}

#[test]
fn fields_are_learnt_from_a_page_where_none_are_declared() {
    let server = ApiServer::start(|request| match request.path.as_str() {
        "/stock.csv" => ApiResponse::new(200, "sku;count\na;1.5\nb;\n"),
        _ => ApiResponse::json(r#"[{"id":1,"name":"Ann"},{"id":2}]"#),
    });
    let text = format!(
        "[sources.api]\nkind = \"rest\"\nurl = \"{}\"\nallow_private_addresses = true\n\
         [collections.people]\nsource = \"api\"\nkey = \"id\"\nlist = {{ path = \"/people\" }}\n\
         [collections.stock]\nsource = \"api\"\nkey = \"sku\"\nlist = {{ path = \"/stock.csv\", format = \"csv\" }}\n",
        server.url()
    );
    let project = TestProject::new(&[("spile.toml", text.as_bytes())]);
    let output = said(&project.run(&["call", "get_people", "id=1", "--from", "."]));
    assert!(output.contains("Ann"), "{output}");
    let output = said(&project.run(&["call", "list_stock", "count_min=1", "--from", "."]));
    assert!(output.contains("1 of 1 matching rows"), "{output}");
}

#[test]
fn chosen_operations_of_a_document_are_imported_and_served() {
    let document = r#"{"openapi":"3.0.3","info":{"title":"Shop"},"servers":[{"url":"URL/v1"}],
        "components":{"securitySchemes":{"t":{"type":"http","scheme":"bearer"}}},
        "paths":{"/orders/{id}":{"get":{"operationId":"getOrder","summary":"Get an order","parameters":[
          {"name":"id","in":"path","required":true,"schema":{"type":"integer"}}]}},
        "/upload":{"post":{"operationId":"upload","requestBody":{"required":true,"content":{"multipart/form-data":{}}}}}}}"#;
    let server = shop();
    let project = TestProject::new(&[("openapi.json", document.replace("URL", &server.url()).as_bytes())]);
    let none = said(&project.run(&["import", "openapi", "openapi.json"]));
    assert!(none.contains("2 operations") && none.contains("--select"), "{none}");
    let listed = said(&project.run(&["import", "openapi", "openapi.json", "--list"]));
    assert!(
        listed.contains("getOrder (GET /orders/{id})") && listed.contains("multipart/form-data"),
        "{listed}"
    );
    let imported =
        said(&project.run(&["import", "openapi", "openapi.json", "--select", "*", "--output", "spile.toml"]));
    assert!(imported.contains("wrote spile.toml with 1 tool") && imported.contains("upload"), "{imported}");
    let again = said(&project.run(&[
        "import",
        "openapi",
        "openapi.json",
        "--select",
        "get*",
        "--output",
        "spile.toml",
    ]));
    assert!(again.contains("--force"), "{again}");
    let wrong = said(&project.run(&["import", "openapi", "openapi.json", "--select", "getOrdr"]));
    assert!(wrong.contains("did you mean `getOrder`?"), "{wrong}");
    let manifest =
        project.files().into_iter().find(|(name, _)| name.ends_with("spile.toml")).expect("a manifest").1;
    let manifest = String::from_utf8(manifest).expect("text").replace("${SHOP_TOKEN}", TOKEN);
    let manifest = manifest.replace("kind = \"rest\"", "kind = \"rest\"\nallow_private_addresses = true");
    let served = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let output = said(&served.run(&["call", "get_order", "id=3", "--from", "."]));
    assert!(output.contains("bela@example.test"), "{output}");
}
