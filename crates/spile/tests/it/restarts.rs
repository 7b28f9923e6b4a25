//! Databases that crash and come back while many callers write: what was acknowledged is there once, and nothing else is.
//!
//! Every write has an idempotency key and is repeated until it is acknowledged. `cargo xtask judges restarts` does it fifty times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_databases::{Kind, Server, TestDatabase};

use crate::harness::{HttpServer, TestProject};
use crate::tenants::Connection;

const WORKERS: usize = 8;
/// So many writes are acknowledged between two crashes.
const WRITES_BETWEEN: u64 = 40;
/// What the judge allows each caller, from the moment when the database accepts connections.
const HEALED_MAX: Duration = Duration::from_secs(2);
/// The timeout of a call, and so of its statements.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A call that takes longer is stuck: after the timeout there is only the cancellation in the database.
const CALL_MAX: Duration = CALL_TIMEOUT.saturating_add(Duration::from_secs(3));

/// How often each database crashes: a few times, or as often as the judge says.
fn restarts() -> Option<u32> {
    std::env::var("SPILE_RESTARTS").ok().and_then(|text| text.parse().ok())
}

#[derive(Default)]
struct Load {
    /// The key of each write with the id that the answer says.
    acknowledged: Mutex<Vec<(String, i64)>>,
    acknowledged_count: AtomicU64,
    refused_count: AtomicU64,
    is_over: AtomicBool,
    longest_call: Mutex<Duration>,
    recovery: Mutex<Recovery>,
}

/// When each worker first succeeded after the database came back.
#[derive(Default)]
struct Recovery {
    since: Option<Instant>,
    healed: [Option<Duration>; WORKERS],
}

impl Load {
    /// Calls a tool, and returns what it says: its result, or its error.
    fn call(&self, connection: &mut Connection, tool: &str, arguments: &Value) -> Value {
        let begun = Instant::now();
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = connection.request(0, "tools/call", &params);
        let took = begun.elapsed();
        assert!(took < CALL_MAX, "{tool} {arguments} took {took:?}");
        let mut longest = self.longest_call.lock().expect("no panic");
        *longest = took.max(*longest);
        let text = answer.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer);
        let parsed: Value = serde_json::from_str(text).expect("JSON");
        let result = &parsed["result"];
        if result["structuredContent"].is_object() {
            return result["structuredContent"].clone();
        }
        let last = result["content"].as_array().and_then(|blocks| blocks.last());
        let error =
            last.and_then(|block| block["text"].as_str()).and_then(|text| serde_json::from_str(text).ok());
        error.unwrap_or_else(|| panic!("{tool} {arguments}\n{answer}"))
    }

    /// The database accepts connections again.
    fn begin_recovery(&self) {
        let mut recovery = self.recovery.lock().expect("no panic");
        *recovery = Recovery { since: Some(Instant::now()), ..Recovery::default() };
    }

    /// A call of this worker succeeded that was begun after the database came back, or was waiting for it.
    fn succeeded(&self, worker: usize) {
        let mut recovery = self.recovery.lock().expect("no panic");
        if let Some(since) = recovery.since {
            recovery.healed[worker].get_or_insert_with(|| since.elapsed());
        }
    }

    /// Waits until every worker has succeeded, and returns how long the slowest one took.
    fn wait_for_recovery(&self) -> Duration {
        let begun = Instant::now();
        loop {
            let healed: Option<Vec<Duration>> =
                self.recovery.lock().expect("no panic").healed.iter().copied().collect();
            if let Some(slowest) = healed.and_then(|healed| healed.into_iter().max()) {
                return slowest;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "a worker never succeeds again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes a row with a key of its own, again and again until that is acknowledged. Returns the id of the row.
    fn write(&self, connection: &mut Connection, worker: usize, key: &str) -> i64 {
        let arguments = json!({ "note": key, "idempotency_key": key });
        loop {
            let answer = self.call(connection, "create_events", &arguments);
            if let Some(id) = answer["record"]["id"].as_i64() {
                self.acknowledged.lock().expect("no panic").push((key.to_owned(), id));
                self.acknowledged_count.fetch_add(1, Ordering::Relaxed);
                self.succeeded(worker);
                return id;
            }
            self.refused_count.fetch_add(1, Ordering::Relaxed);
            let code = answer["code"].as_str().unwrap_or_default();
            // `conflict` where nobody knows whether it was committed: the same key finds out.
            let is_expected = matches!(code, "source_unavailable" | "rate_limited" | "timeout")
                || (code == "conflict" && answer.to_string().contains("cannot determine"));
            assert!(is_expected, "{answer}");
        }
    }

    /// Reads the row again, on the connection that all callers share where there is one: it is there, or the database is not.
    fn read(&self, connection: &mut Connection, id: i64, key: &str) {
        let answer = self.call(connection, "get_events", &json!({ "id": id }));
        let code = answer["code"].as_str().unwrap_or_default();
        let is_expected =
            answer["note"] == key || matches!(code, "source_unavailable" | "rate_limited" | "timeout");
        assert!(is_expected, "{key} is row {id}\n{answer}");
    }

    fn work(&self, server: &HttpServer, worker: usize) {
        let mut connection = Connection::open(server);
        for number in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let key = format!("w{worker}-{number}");
            let id = self.write(&mut connection, worker, &key);
            self.read(&mut connection, id, &key);
            if number % 4 == 0 {
                self.call(&mut connection, "list_events", &json!({ "limit": 3, "sort": "-id" }));
            }
        }
    }

    fn wait_for_writes(&self, more: u64) {
        let until = self.acknowledged_count.load(Ordering::Relaxed) + more;
        let begun = Instant::now();
        while self.acknowledged_count.load(Ordering::Relaxed) < until {
            assert!(begun.elapsed() < Duration::from_secs(120), "nothing is written any more");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[allow(clippy::print_stdout, reason = "the judge shows its figures")]
fn check(kind: Kind) {
    let (restarts, is_judge) = restarts().map_or((3, false), |restarts| (restarts, true));
    let place: TestDatabase = Server::start_private(kind).create_database();
    place.run(match kind {
        Kind::Postgres => {
            "CREATE TABLE events (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL)"
        }
        Kind::MariaDb => {
            "CREATE TABLE events (id integer AUTO_INCREMENT PRIMARY KEY, note varchar(80) NOT NULL)"
        }
    });
    let manifest = format!(
        "[server]\ncall_timeout_ms = {}\n[sources.s]\nurl = \"{}\"\n[collections.events]\noperations = [\"get\", \"list\", \"create\"]\n",
        CALL_TIMEOUT.as_millis(),
        place.url()
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    let server = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]));
    let load = Load::default();
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (load, server) = (&load, &server);
            scope.spawn(move || load.work(server, worker));
        }
        for _ in 0..restarts {
            load.wait_for_writes(WRITES_BETWEEN);
            place.server.stop();
            place.server.start();
            load.begin_recovery();
            slowest = slowest.max(load.wait_for_recovery());
        }
        load.wait_for_writes(WRITES_BETWEEN);
        load.is_over.store(true, Ordering::Relaxed);
    });
    let acknowledged = load.acknowledged.into_inner().expect("no panic");
    println!(
        "{kind:?}: {restarts} crashes, {} writes acknowledged, {} calls refused meanwhile, all {WORKERS} callers healed after {slowest:?} at most, \
         longest call {:?}",
        acknowledged.len(),
        load.refused_count.load(Ordering::Relaxed),
        load.longest_call.lock().expect("no panic"),
    );
    assert!(!is_judge || slowest < HEALED_MAX, "healed only after {slowest:?}");
    compare(&server, acknowledged);
}

/// The table has exactly the rows that were acknowledged, each once and under the id of its answer.
fn compare(server: &HttpServer, mut acknowledged: Vec<(String, i64)>) {
    let mut connection = Connection::open(server);
    let (load, mut stored, mut cursor) = (Load::default(), Vec::new(), None::<String>);
    loop {
        let mut arguments = json!({ "limit": 100 });
        if let Some(cursor) = &cursor {
            arguments["cursor"] = json!(cursor);
        }
        let page = load.call(&mut connection, "list_events", &arguments);
        for row in page["items"].as_array().expect("rows") {
            let note = row["note"].as_str().expect("a text").to_owned();
            stored.push((note, row["id"].as_i64().expect("a number")));
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    stored.sort();
    acknowledged.sort();
    assert_eq!(stored, acknowledged);
}

#[test]
fn every_acknowledged_write_is_there_once_after_crashes_of_postgres() {
    check(Kind::Postgres);
}

#[test]
fn every_acknowledged_write_is_there_once_after_crashes_of_mariadb() {
    check(Kind::MariaDb);
}
