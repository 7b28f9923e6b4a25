//! `cargo xtask bench`: the product, a canned floor and rmcp on the same work, in one run.
//!
//! Trust CPU per request and instruction counts. Requests per second move with whatever else the
//! machine does, so every ratio is taken against the floor of the same round, and the peers of a
//! round run one after the other: a noisy minute hits all of them.
//!
//! The server has one core and the driver another. Each answer is checked: id, no error, the right
//! record. What the numbers should be is in [`gates`]; how they are shown, in [`report`].

mod aggregate;
mod chart;
mod cores;
mod count;
mod data;
mod databases;
mod gates;
mod gateway;
mod http;
mod large;
mod locked;
mod machine;
mod memory;
mod neighbours;
mod peers;
mod reload;
mod report;
mod request;
mod scale;
mod start;
mod stdio;
mod timed;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use http::HttpLoad;
use machine::Cores;
use peers::{Binaries, HttpPeer, Instrumentation, Peer, StdioPeer};
use report::Report;
use request::{Operation, Protocol};
use timed::TimedRow;

use crate::sh;

const USAGE: &str = "\
cargo xtask bench [--quick] [--only NAME] [--rounds N]
cargo xtask bench memory [--quick]
cargo xtask bench scale [--quick]
cargo xtask bench start [--quick]
cargo xtask bench aggregate [--quick]
cargo xtask bench large [--quick]
cargo xtask bench gateway [--quick]
cargo xtask bench databases [--quick]
cargo xtask bench cores [--quick]
cargo xtask bench neighbours [--quick]

  (nothing)    CPU, instructions, allocations and locked operations per request: rows in memory, of
               a CSV file and of a SQLite database
  memory       what clients can cost us that only open things
  scale        a CSV file of 1,000,000 rows (quick: 100,000, memory not judged): first answer,
               memory at rest and while it is read again, instructions against 10,000 rows
  start        from nothing to the first answer with 10,000 rows, memory at rest, the size of the binary and what
               its components add to it, and from the write of a tool's file to the first answer of the new code
  aggregate    questions about 1,000,000 rows (quick: 100,000), CPU time against DuckDB and SQLite
  gateway      what a gateway adds to a call over HTTP and to a process, against the floor, the direct
               call and npm's mcp-proxy; the list of 20 servers with 50 tools each
  databases    keyed reads and lists of 10,000 rows over HTTP from PostgreSQL and SQLite, CPU time against
               MCP Toolbox and a bare program on hyper and tokio-postgres
  cores        a worker for each core: CPU per call against one worker, with calls in memory and in sessions
  neighbours   latency of calls while another tool of the server is hostile, in process and in processes of its own,
               against the same without
  large        a CSV file of 1 GB (quick: 50 MB) that is not held in memory: time and peak memory

  --quick      fewer rounds and requests; good for a look, too coarse for a claim
  --only NAME  only rows with NAME in their name, such as `http`, `stdio`, `count`, `m26`, `rmcp`,
               `csv`, `sqlite`, `code`, `ts-sdk` (floors always run)
  --rounds N   rounds of the timed rows (default 21)";

const NO_SHIPPED_BINARY: &str =
    "`target/dist/spile` is not there, or older than the release build; `cargo xtask release` builds it";

/// The command line.
struct Options {
    rounds: usize,
    only: Option<String>,
    /// Requests per row and round; a tenth of them warm the server up first.
    requests: u64,
    /// Requests of a counted run.
    counted_requests: u64,
}

pub fn run(args: &[String]) -> anyhow::Result<()> {
    if args.first().is_some_and(|arg| arg == "help" || arg == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    if cfg!(debug_assertions) {
        return run_optimised(args);
    }
    if let Some((part, rest)) = args.split_first() {
        match part.as_str() {
            "memory" => return memory::run(parse_quick(rest)?),
            "scale" => return scale::run(parse_quick(rest)?),
            "start" => return start::run(parse_quick(rest)?),
            "aggregate" => return aggregate::run(parse_quick(rest)?),
            "large" => return large::run(parse_quick(rest)?),
            "gateway" => return gateway::run(parse_quick(rest)?),
            "databases" => return databases::run(parse_quick(rest)?),
            "cores" => return cores::run(parse_quick(rest)?),
            "neighbours" => return neighbours::run(parse_quick(rest)?),
            _ => {}
        }
    }
    let options = parse_options(args)?;
    let http = select_rows(&timed::HTTP, &options, |row| (row.name(), row.peer));
    let stdio = select_rows(&timed::STDIO, &options, |row| (row.name(), row.peer));
    let counts = select_rows(&count::ROWS, &options, |row| (row.name(), row.peer));
    let timed_peers = http.iter().chain(&stdio).map(|row| row.peer);
    let peers: Vec<Peer> = timed_peers.chain(counts.iter().map(|row| row.peer)).collect();
    let binaries = Binaries::build(&peers)?;

    let mut report = Report::new(options.rounds, options.requests);
    let mut failed = Vec::new();
    {
        let cores = Cores::reserve()?;
        if cores.is_none() {
            println!("one core only: nothing is pinned, and the driver disturbs what it measures");
        }
        let mut measure = |rows: &[&TimedRow]| {
            timed::measure(rows, options.rounds, options.requests, &binaries, cores.as_ref(), &mut failed)
        };
        report.http = measure(&http);
        report.stdio = measure(&stdio);
    }
    let shipped = binaries.shipped();
    if shipped.is_none() && counts.iter().any(|row| row.build == count::Build::Shipped) {
        println!("{NO_SHIPPED_BINARY}: its calls are not counted");
    }
    report.counts =
        count::measure(&counts, options.counted_requests, &binaries, shipped.as_ref(), &mut failed);

    let gates = gates::evaluate(&report);
    print!("{}", report::table(&report));
    print!("{}", gates::table(&gates));
    let folder = output_dir()?;
    std::fs::write(folder.join("bench.json"), report::json(&report, &gates)?)?;
    std::fs::write(folder.join("bench.svg"), chart::svg(&report))?;
    println!("\nwritten: bench-out/bench.json, bench-out/bench.svg, bench-out/*.callgrind");

    let missed = gates.iter().filter(|gate| gate.is_met() == Some(false)).count();
    if !failed.is_empty() {
        bail!(
            "{missed} gates missed, and {} rows could not be measured:\n{}",
            failed.len(),
            failed.join("\n")
        );
    }
    ensure!(missed == 0, "{missed} of {} gates missed", gates.len());
    Ok(())
}

pub use peers::release_folder;

/// Serves the requests of the bench with the `spile` in `folder`, for a profile of what it does most.
pub fn train(folder: &Path) -> anyhow::Result<()> {
    const REQUESTS: u64 = 20_000;
    let binaries = Binaries::build_for_training(folder)?;
    for peer in [Peer::SpileCsv, Peer::SpileSqlite, Peer::SpileCode] {
        for (protocol, operation) in [
            (Protocol::M26, Operation::Call),
            (Protocol::M26, Operation::List),
            (Protocol::J25, Operation::Call),
            (Protocol::S25, Operation::Call),
        ] {
            let uninstrumented = Instrumentation::Uninstrumented(None);
            let server = HttpPeer::start(peer, protocol, &binaries, uninstrumented, &[])?;
            HttpLoad::connect(server.address, server.request_templates(operation, protocol, 4)?)?
                .run(REQUESTS)?;
            // It writes its profile when it ends in order.
            server.stop()?;
        }
        let mut piped = StdioPeer::start(peer, &binaries, None)?;
        piped.load.run(REQUESTS, 64)?;
        piped.stop()?;
    }
    Ok(())
}

/// Where results go.
fn output_dir() -> anyhow::Result<PathBuf> {
    let folder = sh::repo_root().join("bench-out");
    std::fs::create_dir_all(&folder).context("cannot create `bench-out`")?;
    Ok(folder)
}

/// The requested rows, and the floor rows that they are compared with.
fn select_rows<'a, R>(rows: &'a [R], options: &Options, about: impl Fn(&R) -> (String, Peer)) -> Vec<&'a R> {
    let wanted = |row: &R| options.only.as_ref().is_none_or(|only| about(row).0.contains(only.as_str()));
    if !rows.iter().any(wanted) {
        return Vec::new();
    }
    rows.iter().filter(|row| about(row).1.is_floor() || wanted(row)).collect()
}

/// Runs the bench from a release build of xtask.
///
/// A slow driver leaves the server idle between requests, and a server that sleeps and
/// wakes for each of them costs several times as much as a busy one.
fn run_optimised(args: &[String]) -> anyhow::Result<()> {
    peers::cargo_build(&["-p", "xtask"])?;
    let status = Command::new(release_folder()?.join("xtask")).arg("bench").args(args).status()?;
    ensure!(status.success(), "the bench ended with {status}");
    Ok(())
}

/// The options of the benches other than the table.
fn parse_quick(args: &[String]) -> anyhow::Result<bool> {
    match args {
        [] => Ok(false),
        [only] if only == "--quick" => Ok(true),
        [other, ..] => bail!("unknown argument `{other}`\n\n{USAGE}"),
    }
}

fn parse_options(args: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { rounds: 21, only: None, requests: 10_000, counted_requests: 2_000 };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options = Options { rounds: 7, requests: 3_000, counted_requests: 500, ..options },
            "--only" => options.only = Some(args.next().context("`--only` needs a name")?.clone()),
            "--rounds" => {
                let rounds = args.next().context("`--rounds` needs a number")?;
                options.rounds = rounds.parse().with_context(|| format!("`{rounds}` is not a number"))?;
            }
            _ => bail!("unknown argument `{arg}`\n\n{USAGE}"),
        }
    }
    if options.rounds == 0 {
        bail!("`--rounds` must be at least 1");
    }
    Ok(options)
}
