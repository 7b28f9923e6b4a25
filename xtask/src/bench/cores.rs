//! `cargo xtask bench cores`: what a call costs with a worker for each core, against one worker.
//!
//! Workers that wait for each other's cache lines use more CPU time for the same call. As many drivers as cores send the
//! calls, and nothing is pinned. Driver and server share the cores, so CPU time per call counts and calls per second do not.
//! How often a call writes lines that all workers share is counted by the table of the other bench.

use anyhow::Context as _;

use super::gates::{self, Bound, Gate};
use super::http::HttpLoad;
use super::machine;
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer};
use super::report::median;
use super::request::{Operation, Protocol};

const CONNECTIONS_PER_DRIVER: usize = 16;

/// One server with the drivers of its load.
struct Row {
    name: String,
    server: HttpPeer,
    drivers: Vec<HttpLoad>,
    cpu_us: Vec<f64>,
}

impl Row {
    fn start(workers: &str, protocol: Protocol, binaries: &Binaries, cores: usize) -> anyhow::Result<Row> {
        let watch = match workers {
            ONE_WORKER => Instrumentation::Uninstrumented(None),
            _ => Instrumentation::AllCores,
        };
        let server = HttpPeer::start(Peer::Spile, protocol, binaries, watch, &[])?;
        let connect = |_| {
            let templates = server.request_templates(Operation::Call, protocol, CONNECTIONS_PER_DRIVER)?;
            HttpLoad::connect(server.address, templates)
        };
        let drivers = (0..cores).map(connect).collect::<anyhow::Result<_>>()?;
        let name = format!("{} call, {workers}", protocol.name());
        Ok(Row { name, server, drivers, cpu_us: Vec::new() })
    }

    fn run_round(&mut self, requests: u64) -> anyhow::Result<()> {
        self.run(requests / 10 + 1).context("while warming up")?;
        let before = machine::cpu_ns(self.server.pid())?;
        self.run(requests)?;
        let used = machine::cpu_ns(self.server.pid())?.checked_sub(before);
        let used = used.context("a thread ended, and its CPU time with it")?;
        self.cpu_us.push(used as f64 / 1e3 / (requests * self.drivers.len() as u64) as f64);
        Ok(())
    }

    /// Each driver sends `requests`.
    fn run(&mut self, requests: u64) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let running: Vec<_> =
                self.drivers.iter_mut().map(|driver| scope.spawn(|| driver.run(requests))).collect();
            for driver in running {
                driver.join().map_err(|_| anyhow::anyhow!("a driver failed"))??;
            }
            Ok(())
        })
    }
}

const ONE_WORKER: &str = "one worker";
const ALL_WORKERS: &str = "a worker for each core";
const PROTOCOLS: [Protocol; 2] = [Protocol::M26, Protocol::S25];

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rounds, requests) = if quick { (5, 2_000) } else { (21, 10_000) };
    let cores = std::thread::available_parallelism()?.get();
    let binaries = Binaries::build(&[Peer::Spile])?;
    let mut rows = Vec::new();
    for protocol in PROTOCOLS {
        for workers in [ONE_WORKER, ALL_WORKERS] {
            rows.push(Row::start(workers, protocol, &binaries, cores)?);
        }
    }
    for round in 1..=rounds {
        for row in &mut rows {
            eprintln!("round {round}/{rounds}: {}", row.name);
            row.run_round(requests).with_context(|| row.name.clone())?;
        }
    }
    println!("\n{cores} cores, as many drivers, medians of {rounds} rounds");
    for row in &rows {
        println!("  {:<36}{:>9.2} us CPU", row.name, median(&row.cpu_us).unwrap_or(f64::NAN));
    }
    let over_one = |at: usize| {
        let (one, all) = (&rows[at * 2], &rows[at * 2 + 1]);
        let ratios: Vec<f64> = all.cpu_us.iter().zip(&one.cpu_us).map(|(all, one)| all / one).collect();
        median(&ratios)
    };
    let gate = |name, value| Gate { name, bound: Bound::AtMost(1.5), value, unit: "x" };
    gates::print_and_check(&[
        gate("call m26, CPU with all workers over one", over_one(0)),
        gate("call s25, CPU with all workers over one", over_one(1)),
    ])
}
