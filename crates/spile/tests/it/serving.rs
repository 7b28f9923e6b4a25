//! Where `serve` listens, its banner, and when it refuses to start.

use crate::harness::{HttpServer, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name\n1,Ada\n2,Bea\n");
const ORDERS: (&str, &[u8]) = ("orders.csv", b"no,total\n7,9.50\n8,12.00\n");
const OTHERS: (&str, &[u8]) = ("old/people.csv", b"id,name\n1,Cem\n");

/// Long enough not to be warned about.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

type Env = [(&'static str, &'static str)];

/// Starts it on a free port, stops it, and snapshots stderr.
#[track_caller]
fn check(name: &str, args: &[&str], env: &Env) {
    let place = TestProject::new(&[PEOPLE, ORDERS, OTHERS]);
    let before = place.files();
    let served = HttpServer::start(place.spile(args).envs(env.iter().copied()));
    let port = format!(":{}", served.address.port());
    let (stdout, stderr, code) = served.stop();
    assert_eq!((code, &*stdout), (Some(0), ""), "{name}: stdout stays empty");
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    insta::assert_snapshot!(name, place.normalize(stderr.replace(&port, ":PORT").as_bytes()));
}

/// Asserts that it refuses to start, and snapshots the output.
#[track_caller]
fn check_refused(name: &str, args: &[&str], env: &Env) {
    let output = TestProject::new(&[PEOPLE, ORDERS, OTHERS]).run_with(args, env);
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{name}: {output}");
    insta::assert_snapshot!(name, output);
}

#[test]
fn the_banner_over_http() {
    check("http_bind", &["serve", "people.csv", "--bind", "127.0.0.1:0"], &[]);
    check(
        "http_by_environment",
        &["serve", "people.csv", "--http"],
        &[("PORT", "0"), ("SPILE_HOST", "127.0.0.1")],
    );
    check("http_by_name", &["serve", "people.csv", "--http"], &[("PORT", "0"), ("SPILE_HOST", "localhost")]);
    check("http_bind_and_http", &["serve", "people.csv", "--http", "--bind", ":0"], &[]);
    check("http_folder", &["serve", "--bind", "0"], &[]);
    check("http_several", &["serve", "people.csv", "orders.csv", "--bind", "localhost:0"], &[]);
    check("http_open", &["serve", "people.csv", "--bind", "0.0.0.0:0", "--no-auth"], &[]);
    check("http_open_token", &["serve", "people.csv", "--bind", "0.0.0.0:0"], &[("SPILE_TOKEN", TOKEN)]);
    check("http_token", &["serve", "people.csv", "--bind", "127.0.0.1:0"], &[("SPILE_TOKEN", TOKEN)]);
}

#[test]
fn addresses_that_are_refused_over_http() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let output = TestProject::new(&[PEOPLE]).run(&["serve", "people.csv", "--bind", &address.to_string()]);
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
    let port = format!(":{}", address.port());
    insta::assert_snapshot!("http_port_in_use", output.to_string().replace(&port, ":PORT"));

    let short = [("SPILE_TOKEN", "x")];
    check_refused("http_open_short_token", &["serve", "people.csv", "--bind", "0.0.0.0:0"], &short);
    check_refused("http_open_without_a_token", &["serve", "people.csv", "--bind", "0.0.0.0:0"], &[]);
    check_refused("http_two_of_one_name", &["serve", "people.csv", "old/people.csv", "--bind", "0"], &[]);
    check_refused(
        "http_one_is_missing",
        &["serve", "--strict", "people.csv", "gone.csv", "--bind", "0"],
        &[],
    );
    let by_environment = &["serve", "people.csv", "--http"];
    check_refused("http_port_is_no_number", by_environment, &[("PORT", "http")]);
    check_refused("http_port_is_too_large", by_environment, &[("PORT", "65536")]);
    check_refused("http_port_is_empty", by_environment, &[("PORT", "")]);
    check_refused("http_host_is_nowhere", by_environment, &[("PORT", "0"), ("SPILE_HOST", "no such host")]);
    check_refused("http_host_has_a_port", by_environment, &[("PORT", "0"), ("SPILE_HOST", "127.0.0.1:80")]);
}

/// The name of a file may have characters that URLs and clients do not allow.
#[test]
fn a_name_with_blanks_and_umlauts_has_a_percent_encoded_path() {
    let umlauts = ("meine k\u{fc}che.csv", PEOPLE.1);
    let place = TestProject::new(&[umlauts, ORDERS]);
    let served = HttpServer::start(&mut place.spile(&["serve", umlauts.0, "orders.csv", "--bind", "0"]));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let (_, body) = served.post("/mcp/meine%20k%C3%BCche", "", list);
    assert!(body.contains("list_meine_kueche"), "{body}");
    let (head, _) = served.post("/mcp/meine%20kueche", "", list);
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let port = format!(":{}", served.address.port());
    let (_, stderr, _) = served.stop();
    insta::assert_snapshot!(
        "http_names_with_umlauts",
        place.normalize(stderr.replace(&port, ":PORT").as_bytes())
    );
}

#[test]
fn several_servers_have_a_path_each() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    let served = HttpServer::start(&mut place.spile(&["serve", "people.csv", "orders.csv", "--bind", "0"]));
    for (path, then) in [
        ("/mcp/people", Ok("list_people")),
        ("/mcp/orders", Ok("list_orders")),
        ("/mcp", Err("HTTP/1.1 404 ")),
        ("/mcp/others", Err("HTTP/1.1 404 ")),
        ("/mcp/people/", Err("HTTP/1.1 404 ")),
    ] {
        let (head, body) = served.post(path, "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        match then {
            Ok(tool) => {
                assert!(body.contains(tool) && head.starts_with("HTTP/1.1 200 "), "{path}: {head}\n{body}")
            }
            Err(status) => assert!(head.starts_with(status), "{path}: {head}\n{body}"),
        }
    }
}

#[test]
fn the_banner_over_stdio() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    for (name, args, env) in [
        ("stdio", &["serve", "people.csv"][..], &[][..]),
        // These variables matter only with `--http`.
        (
            "stdio_ignores_the_port",
            &["serve", "people.csv"],
            &[("PORT", "http"), ("SPILE_HOST", "no such host")],
        ),
        ("stdio_verbose", &["serve", "people.csv", "-v", "--log-format", "json"], &[]),
        ("stdio_folder", &["serve"], &[]),
    ] {
        let output = place.run_with(args, env);
        assert_eq!((output.code, &*output.stdout), (Some(0), ""), "{name}: {output}");
        insta::assert_snapshot!(name, without_timestamp(&output.to_string()));
    }
}

/// A JSON log line without the time that it was written at.
fn without_timestamp(text: &str) -> String {
    match text.split_once("\"timestamp\":\"") {
        Some((before, rest)) => {
            let after = rest.split_once('"').map_or("", |(_, after)| after);
            format!("{before}\"timestamp\":\"…\"{after}")
        }
        None => text.to_owned(),
    }
}

#[test]
fn options_that_are_refused_over_stdio() {
    check_refused("stdio_several", &["serve", "people.csv", "orders.csv"], &[]);
    check_refused("stdio_with_a_token_file", &["serve", "people.csv", "--token-file", "token"], &[]);
}

/// Sends a signal to a server.
#[track_caller]
fn signal(server: &HttpServer, signal: rustix::process::Signal) {
    rustix::process::kill_process(server.pid(), signal).expect("it runs");
}

/// A statement that runs for as long as it may.
fn slow_project() -> TestProject {
    let sql = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) as n from n";
    let manifest = format!(
        "[server]\nname = \"slow\"\n[sources.s]\npath = \"shop.db\"\n[tools.slow]\nsource = \"s\"\nsql = \"{sql}\"\n\
         call_timeout_ms = 60000\nreturns = \"one\"\n"
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let database = rusqlite::Connection::open(project.folder.join("shop.db")).expect("a database");
    database.execute_batch("CREATE TABLE t (k TEXT PRIMARY KEY)").expect("a table");
    project
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_says_so() {
    let project = slow_project();
    let mut server = HttpServer::start(&mut project.spile(&["serve", "--bind", "0"]));
    // A call that keeps the server from stopping.
    let mut stream = std::net::TcpStream::connect(server.address).expect("it listens");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}}}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, \
         text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it accepts input");
    server.wait_until_active();
    signal(&server, rustix::process::Signal::INT);
    server.wait_for("press Ctrl-C again to stop at once");
    signal(&server, rustix::process::Signal::INT);
    server.wait_for("stopped at once; running calls were aborted");
    assert_eq!(server.wait(), Some(130));
}

#[test]
fn sighup_reloads_and_does_not_stop() {
    let project = TestProject::new(&[PEOPLE]);
    let mut server = HttpServer::start(&mut project.spile(&["serve", "people.csv", "--bind", "0", "-v"]));
    signal(&server, rustix::process::Signal::HUP);
    server.wait_for("SIGHUP: reloading");
    server.wait_for("reloaded; the contract is unchanged");
    let (head, _) = server.post("/mcp", "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(server.stop().2, Some(0));
}

#[test]
fn no_sse_switches_the_deprecated_transport_off() {
    let project = TestProject::new(&[PEOPLE]);
    for (args, expected) in [(&[][..], "HTTP/1.1 405 "), (&["--no-sse"], "HTTP/1.1 404 ")] {
        let args = [&["serve", "people.csv", "--bind", "0"], args].concat();
        let server = HttpServer::start(&mut project.spile(&args));
        let (head, _) = server.post("/sse", "", "{}");
        assert!(head.starts_with(expected), "{args:?}: {head}");
    }
}

#[test]
fn the_log_lines_of_one_call_have_the_same_id() {
    let project = TestProject::example("stock");
    let mut server =
        HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "0", "-v", "--log-format", "json"]));
    let meta = serde_json::json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let call = |params: &mut serde_json::Value| -> serde_json::Value {
        params["_meta"] = meta.clone();
        let name = params["name"].as_str().expect("a name");
        let headers =
            format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n");
        let message =
            serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, body) = server.post("/mcp", &headers, &message.to_string());
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
    };
    let list = call(&mut serde_json::json!({"name": "list_stock", "arguments": {"limit": 1}}));
    let sku = &list["result"]["structuredContent"]["items"][0]["sku"];
    let delete = serde_json::json!({"name": "delete_stock", "arguments": {"sku": sku}});
    let asked = call(&mut delete.clone());
    let key = asked["result"]["inputRequests"].as_object().and_then(|all| all.keys().next());
    let mut answer = delete;
    answer["requestState"] = asked["result"]["requestState"].clone();
    answer["inputResponses"] = serde_json::json!({key.expect("a question"): {"action": "decline"}});
    call(&mut answer);
    server.wait_for("\"round\":1");
    let (_, stderr, _) = server.stop();
    let lines: Vec<serde_json::Value> = stderr
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["fields"].clone())
        .filter(|fields| fields["message"] == "call")
        .collect();
    let [list, asked, answered] = &lines[..] else { panic!("three calls: {stderr}") };
    assert!(asked["id"].as_str().is_some_and(|id| id.len() == 32), "{asked}");
    assert_eq!((&asked["id"], &asked["status"]), (&answered["id"], &"input_required".into()));
    assert_eq!((&asked["round"], &answered["round"]), (&serde_json::Value::Null, &1.into()));
    assert_ne!(list["id"], asked["id"]);
}

#[test]
fn verbose_logs_one_line_for_each_call_and_refusal_without_values() {
    let project = TestProject::new(&[PEOPLE]);
    let mut command = project.spile(&["serve", "people.csv", "--bind", "0", "-v", "--log-format", "json"]);
    let mut server = HttpServer::start(command.env("SPILE_TOKEN", TOKEN));
    let call = |name: &str, arguments: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        server.post("/mcp", &format!("Authorization: Bearer {TOKEN}\r\n"), &body)
    };
    call("list_people", r#"{"name":"secret-value"}"#);
    call("get_people", r#"{"id":7}"#);
    server.post(
        "/mcp",
        &format!("Authorization: Bearer {TOKEN}\r\n"),
        r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#,
    );
    server.post("/mcp", "Authorization: Bearer wrong-token\r\n", "{}");
    server.wait_for("\"refused request\"");
    let (stdout, stderr, code) = server.stop();
    assert_eq!((code, &*stdout), (Some(0), ""));
    let lines: Vec<serde_json::Value> = stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let with = |message: &str| -> Vec<&serde_json::Value> {
        lines.iter().map(|line| &line["fields"]).filter(|fields| fields["message"] == message).collect()
    };
    let calls = with("call");
    assert_eq!(calls.len(), 2, "{stderr}");
    assert_eq!((&calls[0]["method"], &calls[0]["name"]), (&"tools/call".into(), &"list_people".into()));
    assert_eq!((&calls[0]["status"], &calls[0]["caller"]), (&"ok".into(), &"token@127.0.0.1".into()));
    assert_eq!((&calls[1]["status"], &calls[1]["error_code"]), (&"tool_error".into(), &"not_found".into()));
    for call in calls {
        assert!(call["duration_ms"].is_u64() && call["request_bytes"].is_u64(), "{call}");
        assert!(call["response_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{call}");
    }
    assert_eq!(with("refused request")[0]["status"], 401, "{stderr}");
    assert_eq!(with("refused message")[0]["code"], "-32601", "{stderr}");
    assert_eq!(with("serving")[0]["name"], "people", "{stderr}");
    for secret in ["secret-value", TOKEN, "wrong-token"] {
        assert!(!stderr.contains(secret), "{stderr}");
    }
}

#[test]
fn weak_tokens_and_readable_token_files_get_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let project = TestProject::new(&[PEOPLE]);
    for (token, mode, address, expected) in [
        (TOKEN, 0o600, "127.0.0.1:0", &[][..]),
        (
            TOKEN,
            0o644,
            "127.0.0.1:0",
            &["other users of this machine can read the token file `token` (mode 0644)"],
        ),
        ("s3cret", 0o600, "127.0.0.1:0", &["the bearer token has only 6 characters and can be guessed"]),
        ("s3cretive", 0o600, "0.0.0.0:0", &["the bearer token has only 9 characters and can be guessed"]),
    ] {
        project.write("token", token.as_bytes());
        let path = project.folder.join("token");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("permissions can be changed");
        let args = ["serve", "people.csv", "--bind", address, "--token-file", "token"];
        let (_, stderr, code) = HttpServer::start(&mut project.spile(&args)).stop();
        assert_eq!(code, Some(0), "{stderr}");
        for warning in expected {
            assert!(stderr.contains(warning), "{stderr}");
        }
        assert_eq!(
            stderr.contains("token has only") || stderr.contains("can read"),
            !expected.is_empty(),
            "{stderr}"
        );
    }
    project.write("token", b"x");
    let refused = project.run(&["serve", "people.csv", "--bind", "0.0.0.0:0", "--token-file", "token"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("the bearer token has only 1 character, and other machines"),
        "{refused}"
    );
}
