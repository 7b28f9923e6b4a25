//! Calls to databases and APIs that end early, and more of them than a source takes: with the whole program.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_api::{ApiResponse, ApiServer};
use test_databases::{Kind, TestDatabase};

use crate::availability::{call, sources, wait_for_health};
use crate::harness::{HttpServer, StdioServer, TEST_TIMEOUT, TestProject};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

/// A database with a tool that takes ten minutes (`slow`), one that is stopped after half a second (`brief`), and one that counts
/// those that run (`running`).
fn project(place: &TestDatabase) -> TestProject {
    let (slow, running) = match place.server.kind {
        Kind::Postgres => (
            "SELECT pg_sleep(600)::text AS v",
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' \
             AND query LIKE '%sleep(600)%' AND pid <> pg_backend_pid()",
        ),
        Kind::MariaDb => (
            "SELECT SLEEP(600) AS v",
            "SELECT count(*) AS n FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE '%SLEEP(600)%' \
             AND ID <> CONNECTION_ID()",
        ),
    };
    let mut manifest = format!("[sources.shop]\nurl = \"{}\"\nconnections_max = 2\n", place.url());
    for (name, sql, more) in [
        ("slow", slow, "long_running = true"),
        ("brief", slow, "call_timeout_ms = 500"),
        ("running", running, ""),
    ] {
        manifest +=
            &format!("[tools.{name}]\nsource = \"shop\"\nsql = \"{sql}\"\nreturns = \"one\"\n{more}\n");
    }
    TestProject::new(&[("spile.toml", manifest.as_bytes())])
}

/// Asks the database itself until so many slow statements run.
fn wait_for_running(server: &HttpServer, expected: u64, what: &str) {
    let started = Instant::now();
    loop {
        let result = call(server, "running", &json!({}));
        if result["structuredContent"]["n"] == expected {
            return;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "{what}: {expected} do not run\n{result}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(project: &TestProject) -> HttpServer {
    HttpServer::start(&mut project.spile(&["serve", "--bind", "127.0.0.1:0"]))
}

fn slow_call(tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string()
}

/// A call that ends when its connection is closed, as it is in the stateless era.
fn begin_slow_call(server: &HttpServer) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "slow", "arguments": {}, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: slow\r\nContent-Length: {}\r\n\r\n{message}",
        server.address,
        message.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    stream
}

#[test]
fn a_call_that_ends_early_stops_its_statement_in_the_database() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        let project = project(&place);
        let server = start(&project);

        // `notifications/cancelled`, on a pipe.
        let mut pipe = StdioServer::open(&mut project.spile(&["serve"]));
        pipe.send(
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
            }})
            .to_string(),
        );
        assert!(pipe.next().contains("2025-06-18"));
        pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        pipe.send(&slow_call("slow"));
        wait_for_running(&server, 1, "on a pipe");
        pipe.send(
            &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } })
                .to_string(),
        );
        wait_for_running(&server, 0, "after `notifications/cancelled`");

        // A client that goes away.
        let stream = begin_slow_call(&server);
        wait_for_running(&server, 1, "over HTTP");
        drop(stream);
        wait_for_running(&server, 0, "after the connection was closed");

        // Its time is up.
        let timed_out = call(&server, "brief", &json!({}));
        assert_eq!(timed_out["structuredContent"]["code"], "timeout", "{kind:?} {timed_out}");
        wait_for_running(&server, 0, "after its time was up");
    }
}

/// Calls a tool from many threads at once, and calls `release` when so many of them have been refused. The others succeed.
fn check_queue(
    server: &HttpServer,
    tool: &str,
    source: &str,
    times: usize,
    refused: usize,
    release: impl FnOnce(),
) {
    let results: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..times).map(|_| scope.spawn(|| call(server, tool, &json!({})))).collect();
        let started = Instant::now();
        while calls.iter().filter(|call| call.is_finished()).count() < refused {
            assert!(started.elapsed() < TEST_TIMEOUT, "nothing is refused");
            std::thread::sleep(Duration::from_millis(5));
        }
        release();
        calls.into_iter().map(|call| call.join().expect("no panic")).collect()
    });
    let failed: Vec<&Value> = results.iter().filter(|result| result["isError"] == true).collect();
    assert_eq!(failed.len(), refused, "{failed:?}");
    failed.iter().for_each(|result| assert_overloaded(&result["structuredContent"], source));
}

fn assert_overloaded(error: &Value, source: &str) {
    assert_eq!((&error["code"], &error["retryable"]), (&json!("rate_limited"), &json!(true)), "{error}");
    assert!(error["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{error}");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(&format!("the source `{source}`")), "{message}");
}

#[test]
fn more_calls_than_a_database_takes_are_refused_with_its_name_and_a_time_to_wait() {
    for kind in KINDS {
        let place = TestDatabase::new(kind);
        let project = project(&place);
        let server = start(&project);
        let observer = start(&project);
        let holders = [begin_slow_call(&server), begin_slow_call(&server)];
        wait_for_running(&observer, 2, "both connections are taken");
        // 16 calls wait for each of them.
        check_queue(&server, "running", "shop", 2 * 16 + 9, 9, || drop(holders));
    }
}

fn api(url: &str, lines: &str) -> TestProject {
    let manifest = format!(
        "[sources.api]\nkind = \"rest\"\nurl = \"{url}\"\nallow_private_addresses = true\n{lines}\n\
         [collections.orders]\nsource = \"api\"\nkey = \"id\"\noperations = [\"list\"]\nlist = {{ path = \"/orders\" }}\n\
         [collections.orders.fields]\nid = {{ as = \"integer\" }}\n"
    );
    TestProject::new(&[("spile.toml", manifest.as_bytes())])
}

#[test]
fn an_api_gets_no_more_requests_at_once_than_it_is_allowed_and_a_full_queue_refuses() {
    let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let is_open = Arc::<AtomicBool>::default();
    let (now, peak, gate) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&is_open));
    let upstream = ApiServer::start(move |_| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        while !gate.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        now.fetch_sub(1, Ordering::SeqCst);
        ApiResponse::json("[]")
    });
    let project = api(&upstream.url(), "requests_max = 1");
    let server = start(&project);
    // One runs and 64 wait.
    check_queue(&server, "list_orders", "api", 1 + 64 + 15, 15, || is_open.store(true, Ordering::SeqCst));
    assert_eq!(most.load(Ordering::SeqCst), 1, "requests at the same time");
}

#[test]
fn the_rate_limit_of_an_api_refuses_with_the_time_to_wait() {
    let upstream = ApiServer::start(|_| ApiResponse::json("[]"));
    let project = api(&upstream.url(), "rate_limit = \"1/minute\"");
    let server = start(&project);
    assert_eq!(call(&server, "list_orders", &json!({}))["isError"], false);
    let refused = call(&server, "list_orders", &json!({}))["structuredContent"].clone();
    assert_overloaded(&refused, "api");
    assert!(
        refused["retry_after_ms"].as_u64().is_some_and(|ms| (10_001..=60_000).contains(&ms)),
        "{refused}"
    );
    assert_eq!(upstream.requests().len(), 1, "what is refused is not sent");
}

#[test]
fn an_api_that_is_down_is_told_in_the_status_and_heals() {
    let address = {
        let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
        gone.local_addr().expect("an address")
    };
    let project = api(&format!("http://{address}"), "");
    let server = start(&project);
    let result = call(&server, "list_orders", &json!({}));
    assert_eq!(result["structuredContent"]["code"], "source_unavailable", "{result}");
    assert_eq!(result["structuredContent"]["retryable"], true, "{result}");
    wait_for_health(&server, "down");
    let unavailable = sources(&server)["unavailable"][0].clone();
    assert_eq!(unavailable["name"], format!("http://{address}"), "{unavailable}");
    assert!(
        unavailable["reason"].as_str().is_some_and(|reason| reason.contains("does not answer")),
        "{unavailable}"
    );
    let _upstream =
        ApiServer::start_at(&address.to_string(), |_| ApiResponse::json(r#"[{"id":1}]"#)).expect("the port");
    let started = Instant::now();
    while call(&server, "list_orders", &json!({}))["isError"] == true {
        assert!(started.elapsed() < TEST_TIMEOUT, "it does not heal: {}", sources(&server));
        std::thread::sleep(Duration::from_millis(10));
    }
    wait_for_health(&server, "ok");
}
