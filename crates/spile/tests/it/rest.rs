//! REST APIs, with the whole program.

use serde_json::json;
use test_api::shop::{Shop, TOKEN};
use test_api::{ApiResponse, ApiServer};

use crate::availability::call;
use crate::harness::{CommandOutput, HttpServer, TestProject};

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
        assert!(output.contains(expected), "{lines}\n{output}");
    }
    for (lines, expected) in [
        ("request = { path = \"/a/../b\" }", "segment of dots"),
        (
            "request = { method = \"POST\", path = \"/a\" }\narguments.x = { required = false, nullable = true }",
            "`x` is optional, so `null` means that it is omitted",
        ),
        (
            "request = { path = \"/a\" }\narguments.x = { nullable = true }",
            "`x` cannot be null: it is not a value in the JSON body of the request",
        ),
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
fn null_is_sent_for_a_required_argument_that_may_be_null() {
    let api = ApiServer::start(|_| ApiResponse::json("{}"));
    let manifest = format!(
        "[sources.api]\nkind = \"rest\"\nurl = \"{}\"\nallow_private_addresses = true\n\
         [tools.move]\nsource = \"api\"\nrequest = {{ method = \"POST\", path = \"/move\" }}\n\
         arguments.to = {{ type = \"string\", nullable = true }}\narguments.why = {{ type = \"string\", required = false }}\n",
        api.url()
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "127.0.0.1:0"]));
    for (arguments, body) in [
        (json!({ "to": null, "why": null }), Some(r#"{"to":null}"#)),
        (json!({ "to": "x", "why": "y" }), Some(r#"{"to":"x","why":"y"}"#)),
        (json!({ "why": "y" }), None),
    ] {
        let result = call(&server, "move", &arguments);
        assert_eq!(result["isError"] == false, body.is_some(), "{arguments} {result}");
        let sent = api.take_requests().pop();
        let sent = sent.map(|request| String::from_utf8(request.body).expect("text"));
        assert_eq!(sent.as_deref(), body, "{arguments}");
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
    let served = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let output = said(&served.run(&["call", "get_order", "id=3", "--from", "."]));
    assert!(output.contains("bela@example.test"), "{output}");
}

#[test]
fn a_document_is_downloaded_from_a_url() {
    let document = "openapi: 3.1.0\ninfo: {title: Shop}\nservers: [{url: /v1}]\npaths:\n  /orders/{id}:\n    get:\n      \
        operationId: getOrder\n      parameters: [{name: id, in: path, required: true, schema: {type: integer}}]\n";
    let server = ApiServer::start(move |request| match request.path.as_str() {
        "/openapi.yaml" => ApiResponse::new(200, document),
        "/moved" => ApiResponse::new(301, "").with_header("Location", "/openapi.yaml"),
        "/elsewhere" => ApiResponse::new(302, "").with_header("Location", "http://localhost:1/openapi.yaml"),
        "/metadata" => ApiResponse::new(302, "").with_header("Location", "http://169.254.169.254/latest"),
        "/around" => ApiResponse::new(302, "").with_header("Location", "/around"),
        "/page" => ApiResponse::new(200, "<!doctype html><title>Docs</title>"),
        _ => ApiResponse::new(404, ""),
    });
    let project = TestProject::new(&[]);
    for (path, expected) in [
        ("/openapi.yaml", "getOrder (GET /orders/{id})"),
        ("/moved", "getOrder (GET /orders/{id})"),
        ("/elsewhere", "an address of this machine or its network"),
        ("/metadata", "an address of this machine or its network"),
        ("/around", "redirects too often"),
        ("/page", "cannot import"),
        ("/missing", "answered with the status 404"),
    ] {
        let url = format!("{}{path}", server.url());
        let output = said(&project.run(&["import", "openapi", &url, "--list"]));
        assert!(output.contains(expected), "{path}: {output}");
    }
    let url = format!("{}/openapi.yaml", server.url());
    let manifest = said(&project.run(&["import", "openapi", &url, "--select", "getOrder"]));
    // The document says where the API is, seen from itself; this machine only because its URL does.
    for line in [format!("url = \"{}/v1\"", server.url()), "allow_private_addresses = true".to_owned()] {
        assert!(manifest.contains(&line), "{line}\n{manifest}");
    }
}

/// A tool that posts, and what it says when the API answers like this.
fn post_to(answer: ApiResponse) -> String {
    let server = ApiServer::start(move |_| answer.clone());
    let text = format!(
        "[sources.api]\nkind = \"rest\"\nurl = \"{}\"\nallow_private_addresses = true\nresponse_bytes_max = 2000\n\
         [tools.pay]\nsource = \"api\"\nrequest = {{ method = \"POST\", path = \"/pay\" }}\nresult = \"/data\"\n\
         arguments.amount = {{ type = \"integer\" }}\nfields.id = {{ as = \"integer\" }}\n",
        server.url()
    );
    let project = TestProject::new(&[("spile.toml", text.as_bytes())]);
    said(&project.run(&["call", "pay", "amount=1", "--yes", "--from", "."]))
}

#[test]
fn a_caller_learns_whether_a_request_may_have_had_an_effect() {
    let see_other = ApiResponse::new(303, "").with_header("Location", "/payments/1");
    for (answer, expected) in [
        (ApiResponse::json(r#"{"data":{"id":7}}"#), &["7"][..]),
        (ApiResponse::new(503, ""), &["conflict", "cannot determine whether this write was applied"]),
        (see_other, &["conflict", "cannot determine whether this write was applied"]),
        (
            ApiResponse::json("<html>"),
            &["source_changed", "the API accepted the request (status 200)", "returned HTML"],
        ),
        (
            ApiResponse::json("x".repeat(3000)),
            &["source_changed", "the API accepted the request", "2000 bytes"],
        ),
        (ApiResponse::json(r#"{"data":{"id":"x"}}"#), &["source_changed", "the API accepted the request"]),
        (ApiResponse::new(204, ""), &["source_changed", "its response is empty"]),
        (ApiResponse::new(422, ""), &["invalid_arguments", "refused the request (status 422)"]),
    ] {
        let status = answer.status;
        let output = post_to(answer);
        for text in expected {
            assert!(
                output.contains(text) && !output.contains("retryable  true"),
                "{status}: {text}\n{output}"
            );
        }
    }
}

#[test]
fn check_says_why_an_api_does_not_return_a_list() {
    let server = ApiServer::start(|_| ApiResponse::new(200, "<html><title>Maintenance</title>"));
    let project = TestProject::new(&[("spile.toml", example(&server.url()).as_bytes())]);
    let output = said(&project.run(&["check"]));
    assert!(output.contains("orders: cannot be read now: the API returned HTML instead of JSON"), "{output}");
    let json = project.run(&["check", "--json"]).stdout;
    assert!(json.contains(r#""error":"the API returned HTML instead of JSON""#), "{json}");
}
