//! `cargo xtask bench aggregate`: questions about a million rows, asked of the product, of DuckDB and of SQLite.
//!
//! Every peer is a process on a pipe, started before the first question: DuckDB has the rows in a table, the product has
//! read the file. The first answer of each peer is not measured. In each round a question goes to all peers one after the
//! other, several times each, and the CPU time of the process is compared within the round. Before that, all peers must find the
//! same number of groups, and the same values in the first of them.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::gates::{self, Bound, Gate};
use super::machine;
use super::peers::{Binaries, StdioPeer, cargo_build};
use super::report::median;
use crate::cache::Cache;
use crate::sh;

/// How often a question is asked in one round. The scheduler counts a running thread's time only now and then.
const REPEATS: u32 = 8;

struct Question {
    name: &'static str,
    /// The arguments of `aggregate_orders`.
    arguments: &'static str,
    /// As DuckDB takes it; `{month}` is the month of `ordered_on`.
    sql: &'static str,
    /// Whether SQLite computes the same without rounding and by reading every row only once, so that it can be compared.
    is_compared_with_sqlite: bool,
}

const QUESTIONS: [Question; 9] = [
    Question {
        name: "count",
        arguments: "{}",
        sql: "SELECT count(*) FROM orders",
        is_compared_with_sqlite: true,
    },
    Question {
        name: "count of the paid",
        arguments: r#"{"status":"paid"}"#,
        sql: "SELECT count(*) FROM orders WHERE status = 'paid'",
        is_compared_with_sqlite: true,
    },
    Question {
        name: "sum of integers",
        arguments: r#"{"measures":["sum_quantity"]}"#,
        sql: "SELECT sum(quantity) FROM orders",
        is_compared_with_sqlite: true,
    },
    Question {
        name: "sum of integers, of the paid",
        arguments: r#"{"status":"paid","measures":["sum_quantity"]}"#,
        sql: "SELECT sum(quantity) FROM orders WHERE status = 'paid'",
        is_compared_with_sqlite: true,
    },
    Question {
        name: "4 groups: count, sum of integers",
        arguments: r#"{"group":"status","measures":["count","sum_quantity"]}"#,
        sql: "SELECT status, count(*), sum(quantity) FROM orders GROUP BY status",
        is_compared_with_sqlite: true,
    },
    Question {
        name: "50 groups: count, sum and avg of decimals",
        arguments: r#"{"group":"region","measures":["count","sum_total","avg_total"]}"#,
        sql: "SELECT region, count(*), sum(total), avg(total) FROM orders GROUP BY region",
        is_compared_with_sqlite: false,
    },
    Question {
        name: "1800 groups: month and region, of the paid",
        arguments: r#"{"group":["ordered_on_month","region"],"measures":["sum_total"],"status":"paid"}"#,
        sql: "SELECT {month}, region, sum(total) FROM orders WHERE status = 'paid' GROUP BY 1, 2",
        is_compared_with_sqlite: false,
    },
    Question {
        name: "90,000 groups: customers",
        arguments: r#"{"group":"customer","measures":["count","sum_total"]}"#,
        sql: "SELECT customer, count(*), sum(total) FROM orders GROUP BY customer",
        is_compared_with_sqlite: false,
    },
    Question {
        name: "50 groups: different amounts",
        arguments: r#"{"group":"region","measures":["distinct_total"]}"#,
        sql: "SELECT region, count(DISTINCT total) FROM orders GROUP BY region",
        is_compared_with_sqlite: false,
    },
];

const CSV: usize = 0;
const DUCKDB: usize = 1;
const SQLITE: usize = 2;
const SQLITE_ITSELF: usize = 3;
const PEERS: [&str; 4] = ["spile csv", "duckdb", "spile sqlite", "sqlite"];

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rows, rounds) = if quick { (100_000, 5) } else { (1_000_000, 11) };
    cargo_build(&["-p", "spile"])?;
    cargo_build(&["-p", "bench-peers", "--bins"])?;
    let binaries = Binaries::build(&[])?;
    binaries.make_data(&["orders", &binaries.data.path().display().to_string(), &rows.to_string()])?;
    let (csv, database) = (binaries.data.join("orders.csv"), binaries.data.join("orders.db"));
    let python = Cache::locate()?.duckdb_python();
    ensure!(python.exists(), "DuckDB is not installed; run `cargo xtask setup`");
    let script = sh::repo_root().join("xtask/src/bench/peer_duckdb.py").display().to_string();
    let commands = [
        vec![binaries.path("spile"), "serve".into(), csv.clone()],
        vec![python.display().to_string(), script, csv],
        vec![binaries.path("spile"), "serve".into(), database.clone()],
        vec![binaries.path("peer-sqlite"), database],
    ];
    let mut peers = Vec::with_capacity(PEERS.len());
    for (at, command) in commands.iter().enumerate() {
        let mut peer = StdioPeer::start_lines(command).with_context(|| PEERS[at].to_owned())?;
        if is_product(at) {
            peer.load.handshake()?;
        }
        peers.push(peer);
    }
    println!("{rows} rows, CPU ms for each answer, medians of {rounds} rounds, {}", load_average());
    println!("  {:<44}{:>10}{:>10}{:>14}{:>10}", "", PEERS[0], PEERS[1], PEERS[2], PEERS[3]);
    let mut over_duckdb: Vec<(f64, &'static str)> = Vec::new();
    let mut over_sqlite: Vec<(f64, &'static str)> = Vec::new();
    for question in &QUESTIONS {
        let groups: Vec<u64> = (0..PEERS.len())
            .map(|at| {
                ask(&mut peers[at], at, question).with_context(|| format!("{}: {}", PEERS[at], question.name))
            })
            .collect::<anyhow::Result<_>>()?;
        ensure!(groups.iter().all(|count| *count == groups[0]), "{}: {groups:?} groups", question.name);
        check_values(&mut peers, question)?;
        let mut times: [Vec<f64>; PEERS.len()] = Default::default();
        for _ in 0..rounds {
            for (at, times) in times.iter_mut().enumerate() {
                let before = machine::cpu_ns(peers[at].pid())?;
                for _ in 0..REPEATS {
                    ask(&mut peers[at], at, question)?;
                }
                times.push((machine::cpu_ns(peers[at].pid())? - before) as f64 / 1e6 / f64::from(REPEATS));
            }
        }
        let of = |at: usize| median(&times[at]).unwrap_or(f64::NAN);
        println!(
            "  {:<44}{:>10.2}{:>10.2}{:>14.2}{:>10.2}",
            question.name,
            of(CSV),
            of(DUCKDB),
            of(SQLITE),
            of(SQLITE_ITSELF)
        );
        // Without groups both answer within a few milliseconds.
        if question.sql.contains("GROUP BY") {
            over_duckdb.extend(ratio(&times[CSV], &times[DUCKDB]).map(|ratio| (ratio, question.name)));
        }
        if question.is_compared_with_sqlite {
            over_sqlite
                .extend(ratio(&times[SQLITE], &times[SQLITE_ITSELF]).map(|ratio| (ratio, question.name)));
        }
    }
    let worst = |ratios: &[(f64, &'static str)]| ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
    for (peer, ratios) in [("DuckDB", &over_duckdb), ("SQLite", &over_sqlite)] {
        if let Some((ratio, name)) = worst(ratios) {
            println!("  least favourable question against {peer}: {name} ({ratio:.2}x)");
        }
    }
    let gate = |name, limit, ratios: &[(f64, &'static str)]| Gate {
        name,
        bound: Bound::AtMost(limit),
        value: worst(ratios).map(|(ratio, _)| ratio),
        unit: "x",
    };
    gates::print_and_check(&[
        gate("groups of a CSV file, CPU over DuckDB's", 1.5, &over_duckdb),
        gate("counts and integers of SQLite, CPU over its own", 1.25, &over_sqlite),
    ])
}

fn is_product(peer: usize) -> bool {
    peer == CSV || peer == SQLITE
}

/// The median of the ratios of the rounds.
fn ratio(own: &[f64], base: &[f64]) -> Option<f64> {
    median(&own.iter().zip(base).map(|(own, base)| own / base).collect::<Vec<_>>())
}

/// Asks a question once, and returns the number of groups.
fn ask(peer: &mut StdioPeer, at: usize, question: &Question) -> anyhow::Result<u64> {
    if !is_product(at) {
        let month = if at == DUCKDB { "date_trunc('month', ordered_on)" } else { "substr(ordered_on, 1, 7)" };
        let answer =
            peer.load.send_once(format!("{}\n", question.sql.replace("{month}", month)).as_bytes())?;
        return answer.trim().parse().with_context(|| format!("unexpected answer: {answer}"));
    }
    let answer = call_product(peer, question.arguments)?;
    let result: Value = serde_json::from_str(&answer)?;
    let groups = result.pointer("/result/structuredContent/groups_total").and_then(Value::as_u64);
    groups.with_context(|| format!("unexpected answer: {answer}"))
}

/// How many groups are compared value by value.
const COMPARED: u64 = 20;

/// Compares the first groups of all peers, in the order of their names.
fn check_values(peers: &mut [StdioPeer], question: &Question) -> anyhow::Result<()> {
    let mut answers = Vec::with_capacity(peers.len());
    for (at, peer) in peers.iter_mut().enumerate() {
        let rows = if is_product(at) { product_rows(peer, question) } else { peer_rows(peer, at, question) };
        answers.push(rows.with_context(|| format!("{}: {}", PEERS[at], question.name))?);
    }
    let first = &answers[0];
    ensure!(!first.is_empty(), "{}: no groups", question.name);
    for (at, answer) in answers.iter().enumerate().skip(1) {
        let is_same = answer.len() == first.len()
            && answer.iter().flatten().count() == first.iter().flatten().count()
            && answer.iter().flatten().zip(first.iter().flatten()).all(|(a, b)| is_equal(a, b));
        ensure!(is_same, "{}\n  {} {first:?}\n  {} {answer:?}", question.name, PEERS[0], PEERS[at]);
    }
    Ok(())
}

/// Sums of SQLite and averages of both are floating-point numbers.
fn is_equal(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        _ => a == b,
    }
}

/// The names in an argument that is a name, or an array of names.
fn names(arguments: &Value, argument: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match arguments.get(argument) {
        None => Vec::new(),
        Some(Value::Array(all)) => all.iter().map(text).collect(),
        Some(one) => vec![text(one)],
    }
}

/// The first groups of the product: what they are grouped by, and their measures.
fn product_rows(peer: &mut StdioPeer, question: &Question) -> anyhow::Result<Vec<Vec<String>>> {
    let mut arguments: Value = serde_json::from_str(question.arguments)?;
    let groups = names(&arguments, "group");
    let mut measures = names(&arguments, "measures");
    if measures.is_empty() {
        measures.push("count".into());
    }
    if !groups.is_empty() {
        arguments["sort"] = groups.clone().into();
        arguments["limit"] = COMPARED.into();
    }
    let result: Value = serde_json::from_str(&call_product(peer, &arguments.to_string())?)?;
    let items = result.pointer("/result/structuredContent/items").and_then(Value::as_array);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |item: &Value| groups.iter().chain(&measures).map(|name| text(&item[name])).collect();
    Ok(items.with_context(|| format!("unexpected answer: {result}"))?.iter().map(row).collect())
}

/// The same rows, from a peer that takes SQL.
fn peer_rows(peer: &mut StdioPeer, at: usize, question: &Question) -> anyhow::Result<Vec<Vec<String>>> {
    let month = if at == DUCKDB { "strftime(ordered_on, '%Y-%m')" } else { "substr(ordered_on, 1, 7)" };
    let groups = names(&serde_json::from_str(question.arguments)?, "group").len();
    let order: Vec<String> = (1..=groups).map(|column| column.to_string()).collect();
    let order = if groups > 0 { format!(" ORDER BY {}", order.join(", ")) } else { String::new() };
    let sql = question.sql.replace("{month}", month);
    let answer = peer.load.send_once(format!("rows {sql}{order} LIMIT {COMPARED}\n").as_bytes())?;
    serde_json::from_str(&answer).with_context(|| format!("unexpected answer: {answer}"))
}

/// The answer of the product to a call.
fn call_product(peer: &mut StdioPeer, arguments: &str) -> anyhow::Result<String> {
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"aggregate_orders","arguments":{arguments}}}}}"#
    );
    peer.load.send_once(format!("{request}\n").as_bytes())
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load average {}", text.split(' ').next().unwrap_or("unknown"))
}
