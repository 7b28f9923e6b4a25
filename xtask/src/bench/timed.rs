//! The timed rows: CPU per request, peers alternating within each round.

use anyhow::Context;

use super::http::{HttpLoad, LoadResult};
use super::machine::{self, Cores};
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer, StdioPeer};
use super::report::TimedResult;
use super::request::{Operation, Protocol};

/// Keep-alive connections of the HTTP rows.
const CONNECTIONS: usize = 16;
/// Unanswered requests of the pipelined rows.
const OUTSTANDING_MAX: u64 = 64;

/// One timed row.
pub struct TimedRow {
    pub peer: Peer,
    mode: LoadMode,
}

enum LoadMode {
    Http(Protocol, Operation),
    Sequential,
    Pipelined,
}

const fn http_row(peer: Peer, dress: Protocol, work: Operation) -> TimedRow {
    TimedRow { peer, mode: LoadMode::Http(dress, work) }
}

// The floors get the request that we get, of each protocol, with its headers and its `_meta`: whoever answers it has to read
// it.
pub const HTTP: [TimedRow; 20] = [
    http_row(Peer::Floor, Protocol::M26, Operation::Call),
    http_row(Peer::Floor, Protocol::J25, Operation::Call),
    http_row(Peer::Floor, Protocol::S25, Operation::Call),
    http_row(Peer::RawFloor, Protocol::M26, Operation::Call),
    http_row(Peer::Spile, Protocol::M26, Operation::Call),
    http_row(Peer::Spile, Protocol::J25, Operation::Call),
    http_row(Peer::Spile, Protocol::S25, Operation::Call),
    http_row(Peer::Spile, Protocol::M26, Operation::List),
    http_row(Peer::SpileCsv, Protocol::M26, Operation::Call),
    http_row(Peer::SpileSqlite, Protocol::M26, Operation::Call),
    http_row(Peer::SpileCode, Protocol::M26, Operation::Call),
    http_row(Peer::SpileCode, Protocol::S25, Operation::Call),
    http_row(Peer::TypescriptSdk, Protocol::S25, Operation::Call),
    http_row(Peer::TypescriptSdk2, Protocol::M26, Operation::Call),
    http_row(Peer::Rmcp, Protocol::M26, Operation::Call),
    http_row(Peer::Rmcp, Protocol::J25, Operation::Call),
    http_row(Peer::Rmcp, Protocol::S25, Operation::Call),
    http_row(Peer::Rmcp, Protocol::M26, Operation::List),
    http_row(Peer::RmcpCsv, Protocol::M26, Operation::Call),
    http_row(Peer::RmcpSqlite, Protocol::M26, Operation::Call),
];

pub const STDIO: [TimedRow; 8] = [
    TimedRow { peer: Peer::Floor, mode: LoadMode::Sequential },
    TimedRow { peer: Peer::Spile, mode: LoadMode::Sequential },
    TimedRow { peer: Peer::Rmcp, mode: LoadMode::Sequential },
    TimedRow { peer: Peer::RmcpPlain, mode: LoadMode::Sequential },
    TimedRow { peer: Peer::Floor, mode: LoadMode::Pipelined },
    TimedRow { peer: Peer::Spile, mode: LoadMode::Pipelined },
    TimedRow { peer: Peer::Rmcp, mode: LoadMode::Pipelined },
    TimedRow { peer: Peer::RmcpPlain, mode: LoadMode::Pipelined },
];

impl TimedRow {
    pub fn name(&self) -> String {
        let peer = self.peer.name();
        match &self.mode {
            // It sends the same to everything.
            LoadMode::Http(dress, _) if self.peer.is_floor() => format!("http {peer} {}", dress.name()),
            LoadMode::Http(dress, work) => format!("http {peer} {} {}", dress.name(), work.name()),
            LoadMode::Sequential => format!("stdio {peer} sequential"),
            LoadMode::Pipelined => format!("stdio {peer} pipelined"),
        }
    }

    fn start(&self, binaries: &Binaries, cores: Option<&Cores>) -> anyhow::Result<RunningPeer> {
        match self.mode {
            LoadMode::Http(dress, work) => {
                let server =
                    HttpPeer::start(self.peer, dress, binaries, Instrumentation::Uninstrumented(cores), &[])?;
                let load =
                    HttpLoad::connect(server.address, server.request_templates(work, dress, CONNECTIONS)?)?;
                Ok(RunningPeer::Http(server, load))
            }
            LoadMode::Sequential => Ok(RunningPeer::Stdio(StdioPeer::start(self.peer, binaries, cores)?, 1)),
            LoadMode::Pipelined => {
                Ok(RunningPeer::Stdio(StdioPeer::start(self.peer, binaries, cores)?, OUTSTANDING_MAX))
            }
        }
    }

    /// The number of requests per round: long enough to measure, short enough to wait for.
    fn requests(&self, requests: u64) -> u64 {
        match self.mode {
            LoadMode::Http(..) => requests,
            LoadMode::Sequential => requests / 3,
            LoadMode::Pipelined => requests * 2,
        }
    }
}

/// A server and the load on it.
enum RunningPeer {
    Http(HttpPeer, HttpLoad),
    Stdio(StdioPeer, u64),
}

impl RunningPeer {
    fn pid(&self) -> u32 {
        match self {
            RunningPeer::Http(server, _) => server.pid(),
            RunningPeer::Stdio(piped, _) => piped.pid(),
        }
    }

    fn run(&mut self, requests: u64) -> anyhow::Result<LoadResult> {
        match self {
            RunningPeer::Http(_, load) => load.run(requests),
            RunningPeer::Stdio(piped, outstanding_max) => piped.load.run(requests, *outstanding_max),
        }
    }

    fn run_round(&mut self, row: &mut TimedResult, requests: u64) -> anyhow::Result<()> {
        self.run(requests / 10).context("while warming up")?;
        let before = machine::cpu_ns(self.pid())?;
        let run = self.run(requests)?;
        let used = machine::cpu_ns(self.pid())?.checked_sub(before);
        row.record(used.context("a thread ended, and its CPU time with it")?, &run);
        row.rss_kib = machine::rss_kib(self.pid())?;
        Ok(())
    }
}

/// Measures `rows` in `rounds` rounds. Omits rows that fail, and adds them to `failed`.
pub fn measure(
    rows: &[&TimedRow],
    rounds: usize,
    requests: u64,
    binaries: &Binaries,
    cores: Option<&Cores>,
    failed: &mut Vec<String>,
) -> Vec<TimedResult> {
    // Each row has a server of its own, so that none inherits another one's heap.
    let mut running = Vec::new();
    for row in rows {
        match row.start(binaries, cores) {
            Ok(peer) => running.push((TimedResult::new(row.name()), peer, row.requests(requests))),
            Err(error) => failed.push(format!("{}: {error:#}", row.name())),
        }
    }
    for round in 1..=rounds {
        running.retain_mut(|(row, peer, requests)| {
            eprintln!("round {round}/{rounds}: {}", row.name);
            let outcome = peer.run_round(row, *requests);
            if let Err(error) = &outcome {
                failed.push(format!("{}: {error:#}", row.name));
            }
            outcome.is_ok()
        });
    }
    running.into_iter().map(|(row, ..)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::floor_of;

    #[test]
    fn every_row_has_a_floor_that_gets_the_same_request() {
        let rows = || HTTP.iter().chain(&STDIO);
        for row in rows() {
            let floor = rows().find(|other| other.name() == floor_of(&row.name()));
            let floor = floor.unwrap_or_else(|| panic!("{} has no floor", row.name()));
            assert_eq!(floor.peer, Peer::Floor, "{}", row.name());
            match (&row.mode, &floor.mode) {
                (LoadMode::Http(own, _), LoadMode::Http(other, _)) => {
                    assert_eq!(own, other, "{}", row.name())
                }
                (own, other) => {
                    assert_eq!(std::mem::discriminant(own), std::mem::discriminant(other), "{}", row.name())
                }
            }
        }
    }
}
