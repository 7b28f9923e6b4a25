//! `cargo xtask bench large`: a CSV file that is too large for memory, because the limit is set to nothing.
//!
//! Memory is counted at its peak: while the file is read and imported, and while it answers: a row, groups, sorted rows, a search and
//! a count.

use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::gates::{self, Bound, Gate};
use super::machine;
use super::peers::{Binaries, Peer, StdioPeer};

/// About 1 GB.
const ROWS: u64 = 15_000_000;
const QUICK_ROWS: u64 = 750_000;
const MANIFEST: &str = "[server]\nname = \"customers\"\nmemory_bytes_max = 0\ncall_timeout_ms = 600000\n\n\
                        [sources.customers]\npath = \"customers.csv\"\n\n\
                        [collections.customers]\nsource = \"customers\"\nkey = \"email\"\n";

/// A call, and what is the number of rows in its answer.
struct Question {
    tool: &'static str,
    arguments: &'static str,
    rows: &'static str,
}

/// What reads all rows.
const QUESTIONS: [Question; 5] = [
    Question { tool: "aggregate_customers", arguments: "{}", rows: "/items/0/count" },
    Question {
        tool: "aggregate_customers",
        arguments: r#"{"measures":["count","sum_balance","distinct_plan"]}"#,
        rows: "/items/0/count",
    },
    Question {
        tool: "aggregate_customers",
        arguments: r#"{"group":["plan","signup_date_month"],"measures":["count","avg_balance"],"limit":20}"#,
        rows: "",
    },
    Question { tool: "list_customers", arguments: r#"{"sort":["-balance","name"],"limit":10}"#, rows: "" },
    Question { tool: "search_customers", arguments: r#"{"query":"Doe 77","limit":10}"#, rows: "" },
];

fn ask(peer: &mut StdioPeer, question: &Question, rows: u64) -> anyhow::Result<()> {
    let Question { tool, arguments, .. } = question;
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    );
    let answer = peer.load.send_once(format!("{request}\n").as_bytes())?;
    let result: Value = serde_json::from_str(&answer)?;
    let content = &result["result"]["structuredContent"];
    let items = content["items"].as_array().map_or(0, Vec::len);
    ensure!(result["result"]["isError"] != true && items > 0, "unexpected answer: {answer}");
    if !question.rows.is_empty() {
        ensure!(
            content.pointer(question.rows).and_then(Value::as_u64) == Some(rows),
            "not all rows: {answer}"
        );
    }
    Ok(())
}

pub fn run(quick: bool) -> anyhow::Result<()> {
    let rows = if quick { QUICK_ROWS } else { ROWS };
    let binaries = Binaries::build(&[Peer::SpileCsv])?;
    let folder = binaries.data.path().join("large");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("customers.csv");
    binaries.make_data(&["wide", &file.display().to_string(), &rows.to_string()])?;
    let manifest = folder.join("spile.toml");
    std::fs::write(&manifest, MANIFEST)?;
    let bytes = std::fs::metadata(&file)?.len() as f64;
    println!("\n{rows} rows, {:.1} MB", bytes / 1e6);
    let mut peaks = Vec::new();
    for what in ["first start, with the import", "second start"] {
        let begun = Instant::now();
        let mut piped = StdioPeer::start_product(&manifest, &binaries)?;
        piped.load.run(1, 1)?;
        let time = begun.elapsed();
        ensure!(!piped.load.repeat_first()?.contains("\"isError\":true"), "the row is found");
        for question in &QUESTIONS {
            ask(&mut piped, question, rows).with_context(|| question.tool)?;
        }
        let peak = machine::peak_kib(piped.pid())? as f64 * 1024.0;
        println!("  {what:<34}{:>10.1} s, peak {:.1} MB", time.as_secs_f64(), peak / 1e6);
        peaks.push(peak);
    }
    let peak = peaks.into_iter().fold(0.0, f64::max);
    gates::print_and_check(&[Gate {
        name: "peak memory of an imported file",
        bound: Bound::AtMost(200.0),
        value: Some(peak / 1e6),
        unit: " MB",
    }])
}
