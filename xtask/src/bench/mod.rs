//! `cargo xtask bench`: the product, a canned floor and rmcp on the same work, in one run.
//!
//! Trust CPU per request and instruction counts. Requests per second move with whatever else the
//! machine does, so every ratio is taken against the floor of the same round, and the peers of a
//! round run one after the other: a noisy minute hits all of them.
//!
//! The server has one core and the driver another. Each answer is checked: id, no error, the right
//! record. What the numbers should be is in [`gates`]; how they are shown, in [`report`].

mod ask;
mod chart;
mod count;
mod gates;
mod http;
mod machine;
mod memory;
mod peers;
mod report;
mod stdio;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use ask::{Dress, Work};
use machine::Cores;
use peers::{Binaries, Peer, Piped, Server, Watch};
use report::{Report, Row};

const USAGE: &str = "\
cargo xtask bench [--quick] [--only NAME] [--rounds N]
cargo xtask bench memory [--quick]

  --quick      fewer rounds and requests; good for a look, too coarse for a claim
  --only NAME  only rows with NAME in their name, such as `http`, `stdio`, `count`, `m26`, `rmcp`
               (floors always run)
  --rounds N   rounds of the timed rows (default 7)";

/// Keep-alive connections of the HTTP rows.
const CONNECTIONS: usize = 16;
/// Unanswered requests of the pipelined stdio rows.
const OUTSTANDING_MAX: u64 = 64;

/// What was asked for on the command line.
struct Options {
    rounds: usize,
    only: Option<String>,
    /// Requests per row and round; a tenth of them warm the server up first.
    requests: u64,
    /// Requests of the shorter of the two counted runs.
    counted: u64,
}

pub fn run(args: &[String]) -> anyhow::Result<()> {
    if args.first().is_some_and(|arg| arg == "help" || arg == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    if cfg!(debug_assertions) {
        return run_optimised(args);
    }
    if args.first().is_some_and(|arg| arg == "memory") {
        return memory::run(args.iter().any(|arg| arg == "--quick"));
    }
    let options = options(args)?;
    let http = chosen(&HTTP, &options, |row| (row.name(), row.peer));
    let pipes = chosen(&PIPES, &options, |row| (row.name(), row.peer));
    let counts = chosen(&count::ROWS, &options, |row| (row.name(), row.peer));

    let peers: Vec<Peer> = http
        .iter()
        .map(|row| row.peer)
        .chain(pipes.iter().map(|row| row.peer))
        .chain(counts.iter().map(|row| row.peer))
        .collect();
    let binaries = Binaries::build(&peers)?;
    let mut report = Report::new(options.rounds, options.requests);
    {
        let cores = Cores::take()?;
        if cores.is_none() {
            println!("one core only: nothing is pinned, and the driver disturbs what it measures");
        }
        report.http = measure_http(&http, &binaries, cores.as_ref(), &options)?;
        report.stdio = measure_pipes(&pipes, &binaries, cores.as_ref(), &options)?;
    }
    report.counts = count::measure(&counts, &binaries, options.counted)?;

    let gates = gates::judge(&report);
    print!("{}", report::table(&report));
    print!("{}", gates::table(&gates));
    let folder = PathBuf::from("bench-out");
    std::fs::create_dir_all(&folder).context("cannot create `bench-out`")?;
    std::fs::write(folder.join("bench.json"), report::json(&report, &gates)?)?;
    std::fs::write(folder.join("bench.svg"), chart::svg(&report))?;
    println!("\nwritten: bench-out/bench.json, bench-out/bench.svg");

    match gates.iter().filter(|gate| gate.met() == Some(false)).count() {
        0 => Ok(()),
        missed => bail!("{missed} of {} gates missed", gates.len()),
    }
}

/// The rows asked for, and the floor they stand on.
fn chosen<'a, R>(rows: &'a [R], options: &Options, about: impl Fn(&R) -> (String, Peer)) -> Vec<&'a R> {
    let wanted = |row: &R| options.only.as_ref().is_none_or(|only| about(row).0.contains(only.as_str()));
    if !rows.iter().any(wanted) {
        return Vec::new();
    }
    rows.iter().filter(|row| about(row).1 == Peer::Floor || wanted(row)).collect()
}

/// Runs the bench from a release build of xtask.
///
/// A slow driver leaves the server idle between requests, and a server that falls asleep and is
/// woken for each of them costs several times what a busy one does.
fn run_optimised(args: &[String]) -> anyhow::Result<()> {
    peers::cargo_build(&["-p", "xtask"])?;
    let status = Command::new(peers::release_folder()?.join("xtask")).arg("bench").args(args).status()?;
    ensure!(status.success(), "the bench ended with {status}");
    Ok(())
}

fn options(args: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { rounds: 7, only: None, requests: 30_000, counted: 2_000 };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options = Options { rounds: 3, requests: 6_000, counted: 500, ..options },
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

/// One timed row over HTTP.
struct HttpRow {
    peer: Peer,
    dress: Dress,
    work: Work,
}

impl HttpRow {
    fn name(&self) -> String {
        match (self.peer, self.work) {
            (Peer::Floor, _) => "http floor".into(),
            (peer, Work::Call) => format!("http {} {} call", peer.name(), self.dress.name()),
            (peer, Work::List) => format!("http {} {} list", peer.name(), self.dress.name()),
        }
    }
}

// The floor is asked in the plainest dress: the Mcp-* headers alone would cost hyper 2,000 instructions
// and four allocations, and whoever wants them answered should not find them in the floor.
const HTTP: [HttpRow; 9] = [
    HttpRow { peer: Peer::Floor, dress: Dress::J25, work: Work::Call },
    HttpRow { peer: Peer::Spile, dress: Dress::M26, work: Work::Call },
    HttpRow { peer: Peer::Spile, dress: Dress::J25, work: Work::Call },
    HttpRow { peer: Peer::Spile, dress: Dress::S25, work: Work::Call },
    HttpRow { peer: Peer::Spile, dress: Dress::M26, work: Work::List },
    HttpRow { peer: Peer::Rmcp, dress: Dress::M26, work: Work::Call },
    HttpRow { peer: Peer::Rmcp, dress: Dress::J25, work: Work::Call },
    HttpRow { peer: Peer::Rmcp, dress: Dress::S25, work: Work::Call },
    HttpRow { peer: Peer::Rmcp, dress: Dress::M26, work: Work::List },
];

fn measure_http(
    rows: &[&HttpRow],
    binaries: &Binaries,
    cores: Option<&Cores>,
    options: &Options,
) -> anyhow::Result<Vec<Row>> {
    // Each row has a server of its own, so that none inherits what another one left in its heap.
    let mut peers = Vec::new();
    for row in rows {
        let server = Server::start(row.peer, row.dress, binaries, Watch::Plain(cores), &[])?;
        let asks = server.asks(row.work, row.dress, CONNECTIONS)?;
        let load = http::Load::connect(server.at, asks)?;
        peers.push((Row::new(row.name()), server, load));
    }
    for round in 1..=options.rounds {
        for (row, server, load) in &mut peers {
            progress(&row.name, round, options.rounds);
            let measured = (|| {
                load.run(options.requests / 10)?;
                let before = machine::cpu_ns(server.pid())?;
                let run = load.run(options.requests)?;
                anyhow::Ok((machine::cpu_ns(server.pid())? - before, run))
            })();
            let (cpu_ns, run) = measured.with_context(|| row.name.clone())?;
            row.record(cpu_ns, &run);
            row.rss_kib = machine::rss_kib(server.pid())?;
        }
    }
    Ok(peers.into_iter().map(|(row, ..)| row).collect())
}

/// One timed row over a pipe.
struct PipeRow {
    peer: Peer,
    pace: Pace,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Sequential,
    Pipelined,
}

impl PipeRow {
    fn name(&self) -> String {
        match self.pace {
            Pace::Sequential => format!("stdio {} sequential", self.peer.name()),
            Pace::Pipelined => format!("stdio {} pipelined", self.peer.name()),
        }
    }
}

const PIPES: [PipeRow; 8] = [
    PipeRow { peer: Peer::Floor, pace: Pace::Sequential },
    PipeRow { peer: Peer::Spile, pace: Pace::Sequential },
    PipeRow { peer: Peer::Rmcp, pace: Pace::Sequential },
    PipeRow { peer: Peer::RmcpPlain, pace: Pace::Sequential },
    PipeRow { peer: Peer::Floor, pace: Pace::Pipelined },
    PipeRow { peer: Peer::Spile, pace: Pace::Pipelined },
    PipeRow { peer: Peer::Rmcp, pace: Pace::Pipelined },
    PipeRow { peer: Peer::RmcpPlain, pace: Pace::Pipelined },
];

fn measure_pipes(
    rows: &[&PipeRow],
    binaries: &Binaries,
    cores: Option<&Cores>,
    options: &Options,
) -> anyhow::Result<Vec<Row>> {
    let mut peers = Vec::new();
    for row in rows {
        peers.push((Row::new(row.name()), Piped::start(row.peer, binaries, cores)?, row.pace));
    }
    for round in 1..=options.rounds {
        for (row, piped, pace) in &mut peers {
            progress(&row.name, round, options.rounds);
            let (requests, outstanding_max) = match pace {
                Pace::Sequential => (options.requests / 3, 1),
                Pace::Pipelined => (options.requests * 2, OUTSTANDING_MAX),
            };
            let pid = piped.pid();
            let measured = (|| {
                piped.pipe.run(requests / 10, outstanding_max)?;
                let before = machine::cpu_ns(pid)?;
                let run = piped.pipe.run(requests, outstanding_max)?;
                anyhow::Ok((machine::cpu_ns(pid)? - before, run))
            })();
            let (cpu_ns, run) = measured.with_context(|| row.name.clone())?;
            row.record(cpu_ns, &run);
            row.rss_kib = machine::rss_kib(pid)?;
        }
    }
    Ok(peers.into_iter().map(|(row, ..)| row).collect())
}

/// Says on stderr what runs now, so that stdout carries the tables alone.
fn progress(name: &str, round: usize, rounds: usize) {
    eprintln!("round {round}/{rounds}: {name}");
}
