//! What operators and models can do with a running gateway: approvals, registered servers, its own tools, changed settings.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::authority::{Authority, get, location};
use crate::gateway::{call, customers, project_with, response, spile_serve, start, tool_names};
use crate::harness::{HttpServer, TEST_TIMEOUT, TestProject, examples};
use crate::http_server::{Response, serve};

const OPERATOR: &str = "Authorization: Bearer operator-token-0123456789abcdef\r\n";

/// With a file of tokens for operators.
fn operated(servers: &Value, permissions: &Value, more: &[&str]) -> (TestProject, HttpServer) {
    let project = project_with(servers, permissions);
    let tokens = json!({"tokens": [{"token": "operator-token-0123456789abcdef", "subject": "grace"}]});
    project.write("operators.json", tokens.to_string().as_bytes());
    let mut args = vec!["--admin-token-file", "operators.json"];
    args.extend(more);
    let gateway = start(&project, &args);
    (project, gateway)
}

fn admin(gateway: &HttpServer, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let text = body.map(Value::to_string).unwrap_or_default();
    let length = text.len();
    let headers = format!("{OPERATOR}Content-Type: application/json\r\nContent-Length: {length}\r\n");
    let (head, body) = gateway.request(method, path, &headers, &text);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {head} {body}")))
}

/// A call by a client that cannot be asked.
fn plain_call(gateway: &HttpServer, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let (_, body) = gateway.post("/mcp", "", &message.to_string());
    response(&body)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}");
    }
}

#[test]
fn an_operator_answers_for_clients_that_cannot_ask_their_user() {
    let (project, gateway) = operated(&json!({}), &json!({"ask": ["mcp__stock__list_*"]}), &["."]);
    let arguments = json!({"limit": 1});
    for (decision, expected) in [("allow", "items"), ("deny", "declined by grace")] {
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| plain_call(&gateway, "mcp__stock__list_stock", &arguments));
            let (status, asked) = admin(&gateway, "GET", "/-/approvals?wait=30", None);
            assert_eq!(status, 200, "{asked}");
            let asked = &asked["approvals"][0];
            assert_eq!(
                (&asked["server"], &asked["tool"], &asked["arguments"][0]["name"]),
                (&json!("stock"), &json!("list_stock"), &json!("limit")),
                "{asked}"
            );
            let path = format!("/-/approvals/{}", asked["id"].as_str().expect("an id"));
            assert_eq!(admin(&gateway, "POST", &path, Some(&json!({"decision": "perhaps"}))).0, 400);
            let decision = json!({"decision": decision});
            assert_eq!(admin(&gateway, "POST", &path, Some(&decision)).0, 200);
            assert_eq!(admin(&gateway, "POST", &path, Some(&decision)).0, 409);
            let result = calling.join().expect("no panic").to_string();
            assert!(result.contains(expected), "{result}");
        });
    }
    assert_eq!(admin(&gateway, "GET", "/-/approvals", None).1, json!({"approvals": []}));
    let unknown = admin(&gateway, "POST", "/-/approvals/0", Some(&json!({"decision": "allow"})));
    assert_eq!(unknown.0, 404, "{unknown:?}");
    // Who is not an operator learns nothing, whatever they ask for.
    for (headers, path) in [("", "/-/approvals"), ("Authorization: Bearer wrong\r\n", "/-/servers")] {
        let (head, _) = gateway.request("GET", path, headers, "");
        assert!(head.contains(" 401 "), "{head}");
    }
    gateway.stop();
    let log = std::fs::read_to_string(project.folder.join("audit.jsonl")).expect("the log is there");
    assert!(log.contains("approved by grace") && log.contains("declined by grace"), "{log}");
}

#[test]
fn without_operators_there_is_nothing_to_answer_at() {
    let project = project_with(&json!({"people": customers()}), &json!({}));
    let gateway = start(&project, &[]);
    for path in ["/-/approvals", "/-/servers"] {
        assert!(gateway.get(path).0.contains(" 404 "), "{path}");
    }
    let missing = project.run(&["gateway", "--config", "servers.json", "--admin-token-file", "servers.json"]);
    assert!(missing.stderr.contains("--admin-token-file needs --bind"), "{missing}");
}

#[test]
fn an_operator_registers_and_removes_a_server_while_the_gateway_runs() {
    let (project, gateway) =
        operated(&json!({"people": customers()}), &json!({}), &["--register", "private"]);
    let upstream = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]));
    let entry = json!({"type": "http", "url": format!("http://{}/mcp", upstream.address)});
    let (status, registered) =
        admin(&gateway, "POST", "/-/servers", Some(&json!({"name": "extra", "entry": entry})));
    assert_eq!((status, &registered["path"]), (201, &json!("/mcp/extra")), "{registered}");
    let has_extra = || tool_names(&gateway, "/mcp").contains(&"mcp__extra__list_stock".to_owned());
    wait_until("the tools of the registered server are listed", has_extra);
    let page = call(&gateway, "/mcp", "mcp__extra__list_stock", &json!({"limit": 1}), &json!({}));
    assert!(page["result"]["structuredContent"]["items"][0]["sku"].is_string(), "{page}");
    assert!(tool_names(&gateway, "/mcp/extra").contains(&"list_stock".to_owned()));
    let (_, servers) = admin(&gateway, "GET", "/-/servers", None);
    let extra = servers["servers"].as_array().expect("a list").iter().find(|one| one["name"] == "extra");
    let extra = extra.unwrap_or_else(|| panic!("{servers}"));
    assert_eq!((&extra["scope"], &extra["status"]), (&json!("dynamic"), &json!("connected")), "{extra}");

    assert_eq!(admin(&gateway, "DELETE", "/-/servers/extra", None).0, 200);
    wait_until("the tools of the removed server are gone", || !has_extra());
    wait_until("its own address is gone", || gateway.get("/mcp/extra").0.contains(" 404 "));
    assert_eq!(admin(&gateway, "DELETE", "/-/servers/extra", None).0, 404);
    // The others have noticed nothing.
    assert!(tool_names(&gateway, "/mcp").contains(&"mcp__people__list_customers".to_owned()));
}

#[test]
fn what_may_not_be_registered_is_refused_with_the_reason() {
    let (_project, gateway) = operated(&json!({"people": customers()}), &json!({}), &["."]);
    for (body, expected_status, expected) in [
        (json!({"entry": {"url": "https://mcp.example/mcp"}}), 400, "expected {"),
        (json!({"name": "x", "entry": {}}), 400, "command"),
        (json!({"name": "a/b", "entry": {"url": "https://mcp.example/mcp"}}), 400, "slash"),
        (json!({"name": "x", "entry": {"command": "/bin/sh"}}), 403, "--register commands"),
        (json!({"name": "x", "entry": {"url": "https://mcp.example/${HOME}"}}), 400, "variables"),
        (
            json!({"name": "x", "entry": {"url": "https://mcp.example", "headers": {"k": "${TOKEN}"}}}),
            400,
            "variables",
        ),
        (
            json!({"name": "x", "entry": {
                "url": "https://mcp.example", "oauth": {
                    "clientId": "me", "grant": "client_credentials", "clientSecretFile": "/etc/passwd"
                }
            }}),
            403,
            "files of this machine",
        ),
        (json!({"name": "x", "entry": {"url": "http://127.0.0.1:1/mcp"}}), 403, "--register private"),
        (json!({"name": "x", "entry": {"url": "http://localhost:1/mcp"}}), 403, "--register private"),
        (json!({"name": "x", "entry": {"url": "http://10.0.0.7/mcp"}}), 403, "--register private"),
        (json!({"name": "x", "entry": {"url": "http://[::1]/mcp"}}), 403, "--register private"),
        (json!({"name": "x", "entry": {"url": "http://169.254.169.254/latest"}}), 403, "public addresses"),
        (json!({"name": "x", "entry": {"url": "file:///etc/passwd"}}), 400, "http"),
        (json!({"name": "x", "entry": {"url": "https://ada:secret@mcp.example/"}}), 400, "headers"),
        (json!({"name": "people", "entry": {"url": "https://mcp.example/mcp"}}), 409, "settings file"),
        (json!({"name": "stock", "entry": {"url": "https://mcp.example/mcp"}}), 409, "itself serves `stock`"),
    ] {
        let (status, answer) = admin(&gateway, "POST", "/-/servers", Some(&body));
        assert_eq!(status, expected_status, "{body}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{body}: {message}");
    }
    let (status, answer) = admin(&gateway, "DELETE", "/-/servers/people", None);
    assert_eq!(status, 409, "{answer}");
    let (head, _) = gateway.request("PUT", "/-/servers", OPERATOR, "");
    assert!(head.contains(" 405 "), "{head}");
}

#[test]
fn servers_join_and_leave_when_the_settings_change() {
    let project = project_with(&json!({"people": customers()}), &json!({}));
    let gateway = start(&project, &[]);
    let write = |servers: &Value| {
        let settings = json!({ "mcpServers": servers });
        project.write("servers.json", settings.to_string().as_bytes());
    };
    let lists = |tool: &str| tool_names(&gateway, "/mcp").contains(&tool.to_owned());
    assert!(lists("mcp__people__list_customers") && !lists("mcp__goods__list_stock"));
    write(&json!({"people": customers(), "goods": spile_serve(".")}));
    wait_until("the new server is listed", || lists("mcp__goods__list_stock"));
    wait_until("it is at its own address", || {
        tool_names(&gateway, "/mcp/goods").contains(&"list_stock".to_owned())
    });
    write(&json!({"goods": spile_serve(".")}));
    wait_until("the removed server is gone", || !lists("mcp__people__list_customers"));
    assert!(lists("mcp__goods__list_stock"));
    wait_until("its address is gone", || gateway.get("/mcp/people").0.contains(" 404 "));
}

fn everything() -> Value {
    spile_serve(&examples().join("everything").display().to_string())
}

#[test]
fn models_list_and_read_the_resources_of_all_servers() {
    let deny = json!({"deny": ["mcp__secret"]});
    let project = project_with(&json!({"all": everything(), "secret": everything()}), &deny);
    let gateway = start(&project, &[]);
    let listed = call(&gateway, "/mcp", "list_resources", &json!({}), &json!({}));
    let listed = &listed["result"]["structuredContent"];
    let resources = listed["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
    assert!(!resources.is_empty() && resources.iter().all(|one| one["server"] == "all"), "{listed}");
    let text =
        resources.iter().find(|one| one["mimeType"].as_str().is_some_and(|kind| kind.starts_with("text/")));
    let uri = &text.unwrap_or_else(|| panic!("{listed}"))["uri"];
    let read = call(&gateway, "/mcp", "read_resource", &json!({"uri": uri}), &json!({}));
    assert!(read["result"]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{read}");
    let binary = resources.iter().find(|one| one["mimeType"] == "image/png").expect("a picture");
    let read = call(&gateway, "/mcp", "read_resource", &json!({"uri": binary["uri"]}), &json!({}));
    assert_eq!(read["result"]["content"][0]["type"], "image", "{read}");
    let missing = call(&gateway, "/mcp", "read_resource", &json!({"uri": "resource://nothing"}), &json!({}));
    assert_eq!(missing["result"]["isError"], true, "{missing}");
    let empty = call(&gateway, "/mcp", "list_resources", &json!({"server": "secret"}), &json!({}));
    assert_eq!(empty["result"]["structuredContent"]["resources"], json!([]), "{empty}");
    // They are the gateway's own, so a server's own address does not have them.
    assert!(!tool_names(&gateway, "/mcp/all").contains(&"list_resources".to_owned()));
    gateway.stop();
    let log = std::fs::read_to_string(project.folder.join("audit.jsonl")).expect("the log is there");
    assert!(log.contains(r#""event":"resource.read""#), "{log}");
}

#[test]
fn tools_can_be_searched_instead_of_listed() {
    let project = project_with(&json!({"people": customers()}), &json!({"deny": ["mcp__people__search_*"]}));
    let mut gateway = start(&project, &[".", "--tool-search"]);
    gateway.wait_for("are found with `search_tools`");
    let listed = tool_names(&gateway, "/mcp");
    assert!(
        listed.contains(&"search_tools".to_owned()) && listed.contains(&"call_tool".to_owned()),
        "{listed:?}"
    );
    assert!(!listed.iter().any(|name| name.starts_with("mcp__")), "{listed:?}");
    let found =
        call(&gateway, "/mcp", "search_tools", &json!({"query": "look up a customer by email"}), &json!({}));
    let found = &found["result"]["structuredContent"];
    assert_eq!(found["tools"][0]["name"], "mcp__people__lookup_customer", "{found}");
    assert!(found["tools"][0]["inputSchema"]["properties"]["email"].is_object(), "{found}");
    let hidden = call(
        &gateway,
        "/mcp",
        "search_tools",
        &json!({"query": "search customers", "limit": 20}),
        &json!({}),
    );
    assert!(!hidden.to_string().contains("mcp__people__search_customers"), "{hidden}");

    let run = |tool: &str, arguments: &Value, more: &Value| {
        call(&gateway, "/mcp", "call_tool", &json!({"name": tool, "arguments": arguments}), more)
    };
    let dana = run("mcp__people__lookup_customer", &json!({"email": "dana@acme.test"}), &json!({}));
    assert_eq!(dana["result"]["structuredContent"]["email"], "dana@acme.test", "{dana}");
    let denied = run("mcp__people__search_customers", &json!({"query": "a"}), &json!({}));
    assert_eq!(denied["result"]["structuredContent"]["code"], "not_found", "{denied}");
    let invalid = run("mcp__people__lookup_customer", &json!({"email": 7}), &json!({}));
    assert_eq!(invalid["result"]["structuredContent"]["code"], "invalid_arguments", "{invalid}");
    // What destroys something asks here too: first the gateway, then the server itself.
    let page = run("mcp__stock__list_stock", &json!({"limit": 1}), &json!({}));
    let sku = &page["result"]["structuredContent"]["items"][0]["sku"];
    let mut more = json!({});
    for round in 0..3 {
        let answer = run("mcp__stock__delete_stock", &json!({"sku": sku}), &more);
        let result = &answer["result"];
        if result["resultType"] != "input_required" {
            assert_eq!(result["structuredContent"]["outcome"], "deleted", "{answer}");
            assert_eq!(round, 2, "the gateway and the server ask");
            break;
        }
        let mut responses = serde_json::Map::new();
        for (key, asked) in result["inputRequests"].as_object().expect("questions") {
            let form = asked["params"]["requestedSchema"]["properties"].as_object().expect("a form");
            let content: serde_json::Map<String, Value> =
                form.keys().map(|name| (name.clone(), json!(true))).collect();
            responses.insert(key.clone(), json!({"action": "accept", "content": content}));
        }
        more = json!({"requestState": result["requestState"], "inputResponses": responses});
    }
    gateway.stop();
    let log = std::fs::read_to_string(project.folder.join("audit.jsonl")).expect("the log is there");
    let inner = log.lines().filter(|line| {
        line.contains(r#""target":"delete_stock""#) || line.contains("mcp__stock__delete_stock")
    });
    assert!(inner.count() >= 2, "the calls behind `call_tool` are recorded: {log}");
}

#[test]
fn the_page_shows_the_servers_behind_the_gateway() {
    let servers = json!({"people": customers(), "broken": {"command": "/bin/false"}});
    let project = project_with(&servers, &json!({}));
    let gateway = start(&project, &[]);
    let (_, page) = gateway.request("GET", "/", "Accept: text/html\r\n", "");
    for expected in
        ["Servers behind this gateway", ">people<", ">connected<", ">broken<", "tokens in every conversation"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let (_, activity) = gateway.request("GET", "/-/activity", "Accept: application/json\r\n", "");
    let activity: Value = serde_json::from_str(&activity).expect("JSON");
    let people = activity["upstreams"].as_array().expect("a list").iter().find(|one| one["name"] == "people");
    assert!(people.is_some_and(|people| people["tools"].as_u64() > Some(1) && people["tokens"].as_u64() > Some(100)));
}

#[test]
fn the_page_shows_definitions_that_wait_and_recent_calls() {
    let project = project_with(&json!({}), &json!({}));
    project.write("notes/notes.csv", b"id,text\n1,one\n");
    let notes = spile_serve(&project.folder.join("notes").display().to_string());
    let audit = json!({"path": project.folder.join("audit.jsonl")});
    let settings = json!({"mcpServers": {"notes": notes}, "audit": audit});
    project.write("servers.json", settings.to_string().as_bytes());
    let gateway = start(&project, &[]);
    let page = || gateway.request("GET", "/", "Accept: text/html\r\n", "").1;
    let before = page();
    assert!(before.contains("No calls yet.") && !before.contains("for approval"), "{before}");
    let found = call(&gateway, "/mcp", "mcp__notes__get_notes", &json!({"id": 1}), &json!({}));
    assert_eq!(found["result"]["structuredContent"]["text"], "one", "{found}");
    wait_until("the call is shown", || page().contains("mcp__notes__get_notes"));
    assert!(!page().contains("No calls yet."));
    // The server says something else about its tools than when it was first connected to.
    project.write("notes/notes.csv", b"id,text,author\n1,one,ada\n");
    wait_until("the changed definitions are shown", || {
        page().contains("Review with: spile mcp approve notes --definitions")
    });
    let shown = page();
    assert!(shown.contains("definitions wait for approval: "), "{shown}");
}

/// Stops blocking the runtime that the authorization server runs on.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_runs_uses_what_the_user_signs_in_to_elsewhere() {
    let authority = Authority::start().await;
    let servers = json!({"guarded": {"type": "http", "url": authority.server().as_str()}});
    let allow = json!({"allow": ["mcp__guarded__whoami"]});
    let project = Arc::new(project_with(&servers, &allow));
    let started = project.clone();
    let gateway = Arc::new(blocking(move || start(&started, &[])).await);
    let login = async |more: &[&str]| {
        let mut args = vec!["login", "guarded", "--config", "servers.json"];
        args.extend(more);
        let mut command = project.spile(&args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut address = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        stdout.read_line(&mut address).expect("an address");
        let back = location(&get(&address.trim().parse().expect("an address")).await);
        assert!(get(&back).await.contains("You are signed in"));
        assert!(child.wait().expect("it can be waited for").success());
    };
    let whoami = async || {
        let gateway = gateway.clone();
        blocking(move || call(&gateway, "/mcp", "mcp__guarded__whoami", &json!({}), &json!({}))).await
    };
    assert_eq!(whoami().await["error"]["code"], -32602, "nobody is signed in");
    login(&[]).await;
    let listing = gateway.clone();
    blocking(move || {
        wait_until("the tools are listed", || {
            tool_names(&listing, "/mcp").contains(&"mcp__guarded__whoami".to_owned())
        });
    })
    .await;
    assert_eq!(whoami().await["result"]["content"][0]["text"], "you");

    let tokens = authority.access_tokens.lock().expect("no panic").clone();
    authority.weak_tokens.lock().expect("no panic").extend(tokens);
    let refused = whoami().await;
    let error = &refused["result"]["structuredContent"];
    assert_eq!(error["code"], "forbidden", "{refused}");
    let help = "it needs the scopes `read write`; run `spile login guarded --oauth-scope 'read write'`";
    assert!(error.to_string().contains(help), "{refused}");
    login(&["--oauth-scope", "read write"]).await;
    assert_eq!(whoami().await["result"]["content"][0]["text"], "you");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_credentials_of_a_caller_reach_no_server() {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = heads.clone();
    let origin = serve(move |request| {
        let head = format!("{} {} {:?} {}", request.method, request.target, request.headers, request.body);
        seen.lock().expect("no panic").push(head);
        let Ok(message) = serde_json::from_str::<Value>(&request.body) else { return Response::status(405) };
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}})
            }
            Some("tools/list") => {
                let tool = json!({"name": "poke", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
                json!({ "tools": [tool] })
            }
            Some("tools/call") => json!({"content": [{"type": "text", "text": "poked"}]}),
            Some("ping") => json!({}),
            _ if message["id"].is_null() => return Response::status(202),
            _ => {
                let error = json!({"code": -32601, "message": "no"});
                return Response::json(200, json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string());
            }
        };
        Response::json(200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
    })
    .await;
    let entry = json!({"type": "http", "url": format!("{origin}/mcp"), "headers": {"X-Key": "of-the-entry"}});
    let project = project_with(&json!({"far": entry}), &json!({}));
    let tokens = json!({"tokens": [{"token": "caller-token-0123456789abcdef", "subject": "ada"}]});
    project.write("tokens.json", tokens.to_string().as_bytes());
    blocking(move || {
        let gateway = start(&project, &["--token-file", "tokens.json"]);
        for (path, tool) in [("/mcp", "mcp__far__poke"), ("/mcp/far", "poke")] {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let params = json!({"name": tool, "arguments": {}, "_meta": meta});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let headers = format!(
                "Authorization: Bearer caller-token-0123456789abcdef\r\nCookie: caller-cookie=1\r\nX-Caller: caller-header\r\n\
                 MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
            );
            let (_, body) = gateway.post(path, &headers, &message.to_string());
            assert!(body.contains("poked"), "{body}");
        }
    })
    .await;
    let heads = heads.lock().expect("no panic");
    assert!(heads.iter().any(|head| head.contains("tools/call")), "{heads:?}");
    for head in heads.iter() {
        assert!(head.contains("of-the-entry") && !head.contains("caller-"), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_lets_its_user_sign_in_to_a_server_that_needs_it() {
    let authority = Authority::start().await;
    let servers = json!({"guarded": {"type": "http", "url": authority.server().as_str()}});
    let project = Arc::new(project_with(&servers, &json!({})));
    let started = project.clone();
    let gateway = Arc::new(blocking(move || start(&started, &[])).await);
    let sign_in = {
        let gateway = gateway.clone();
        move |more: Value| {
            let gateway = gateway.clone();
            blocking(move || {
                let mut arguments = json!({"server": "guarded"});
                for (key, value) in more.as_object().expect("an object") {
                    arguments[key] = value.clone();
                }
                let result = call(&gateway, "/mcp", "sign_in", &arguments, &json!({}));
                result["result"]["content"][0]["text"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{result}"))
                    .to_owned()
            })
        }
    };
    let listing = gateway.clone();
    let listed = blocking(move || tool_names(&listing, "/mcp")).await;
    assert!(listed.contains(&"sign_in".to_owned()), "{listed:?}");
    let shown = sign_in(json!({})).await;
    let address = shown.lines().find(|line| line.starts_with("http")).unwrap_or_else(|| panic!("{shown}"));
    // The browser of another machine cannot open the redirect, so its user pastes it.
    let back = location(&get(&address.parse().expect("an address")).await);
    let signed_in = sign_in(json!({"redirect_url": back.as_str()})).await;
    assert!(signed_in.starts_with("Signed in to `guarded`"), "{signed_in}");
    let listing = gateway.clone();
    blocking(move || {
        wait_until("the tool is gone when nobody needs it", || {
            !tool_names(&listing, "/mcp").contains(&"sign_in".to_owned())
        });
    })
    .await;
}
