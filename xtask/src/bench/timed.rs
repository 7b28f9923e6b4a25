//! The timed rows: CPU per request, peers alternating within each round.

use anyhow::Context;

use super::ask::{Dress, Work};
use super::http::{Load, Run};
use super::machine::{self, Cores};
use super::peers::{Binaries, Peer, Piped, Server, Watch};
use super::report::Row;

/// Keep-alive connections of the HTTP rows.
const CONNECTIONS: usize = 16;
/// Unanswered requests of the pipelined rows.
const OUTSTANDING_MAX: u64 = 64;

/// One timed row.
pub struct TimedRow {
    pub peer: Peer,
    way: Way,
}

enum Way {
    Http(Dress, Work),
    Sequential,
    Pipelined,
}

const fn http(peer: Peer, dress: Dress, work: Work) -> TimedRow {
    TimedRow { peer, way: Way::Http(dress, work) }
}

// The floor is asked in the plainest dress: the Mcp-* headers alone would cost hyper 2,000 instructions
// and four allocations, and whoever wants them answered should not find them in the floor.
pub const HTTP: [TimedRow; 13] = [
    http(Peer::Floor, Dress::J25, Work::Call),
    http(Peer::Spile, Dress::M26, Work::Call),
    http(Peer::Spile, Dress::J25, Work::Call),
    http(Peer::Spile, Dress::S25, Work::Call),
    http(Peer::Spile, Dress::M26, Work::List),
    http(Peer::SpileCsv, Dress::M26, Work::Call),
    http(Peer::SpileSqlite, Dress::M26, Work::Call),
    http(Peer::Rmcp, Dress::M26, Work::Call),
    http(Peer::Rmcp, Dress::J25, Work::Call),
    http(Peer::Rmcp, Dress::S25, Work::Call),
    http(Peer::Rmcp, Dress::M26, Work::List),
    http(Peer::RmcpCsv, Dress::M26, Work::Call),
    http(Peer::RmcpSqlite, Dress::M26, Work::Call),
];

pub const STDIO: [TimedRow; 8] = [
    TimedRow { peer: Peer::Floor, way: Way::Sequential },
    TimedRow { peer: Peer::Spile, way: Way::Sequential },
    TimedRow { peer: Peer::Rmcp, way: Way::Sequential },
    TimedRow { peer: Peer::RmcpPlain, way: Way::Sequential },
    TimedRow { peer: Peer::Floor, way: Way::Pipelined },
    TimedRow { peer: Peer::Spile, way: Way::Pipelined },
    TimedRow { peer: Peer::Rmcp, way: Way::Pipelined },
    TimedRow { peer: Peer::RmcpPlain, way: Way::Pipelined },
];

impl TimedRow {
    pub fn name(&self) -> String {
        let peer = self.peer.name();
        match &self.way {
            Way::Http(..) if self.peer == Peer::Floor => format!("http {peer}"),
            Way::Http(dress, work) => format!("http {peer} {} {}", dress.name(), work.name()),
            Way::Sequential => format!("stdio {peer} sequential"),
            Way::Pipelined => format!("stdio {peer} pipelined"),
        }
    }

    fn start(&self, binaries: &Binaries, cores: Option<&Cores>) -> anyhow::Result<Running> {
        match self.way {
            Way::Http(dress, work) => {
                let server = Server::start(self.peer, dress, binaries, Watch::Plain(cores), &[])?;
                let load = Load::connect(server.at, server.asks(work, dress, CONNECTIONS)?)?;
                Ok(Running::Http(server, load))
            }
            Way::Sequential => Ok(Running::Piped(Piped::start(self.peer, binaries, cores)?, 1)),
            Way::Pipelined => Ok(Running::Piped(Piped::start(self.peer, binaries, cores)?, OUTSTANDING_MAX)),
        }
    }

    /// How many requests make a round that is long enough to measure and short enough to wait for.
    fn requests(&self, requests: u64) -> u64 {
        match self.way {
            Way::Http(..) => requests,
            Way::Sequential => requests / 3,
            Way::Pipelined => requests * 2,
        }
    }
}

/// A server and the load on it.
enum Running {
    Http(Server, Load),
    Piped(Piped, u64),
}

impl Running {
    fn pid(&self) -> u32 {
        match self {
            Running::Http(server, _) => server.pid(),
            Running::Piped(piped, _) => piped.pid(),
        }
    }

    fn run(&mut self, requests: u64) -> anyhow::Result<Run> {
        match self {
            Running::Http(_, load) => load.run(requests),
            Running::Piped(piped, outstanding_max) => piped.pipe.run(requests, *outstanding_max),
        }
    }

    fn round(&mut self, row: &mut Row, requests: u64) -> anyhow::Result<()> {
        self.run(requests / 10).context("while warming up")?;
        let before = machine::cpu_ns(self.pid())?;
        let run = self.run(requests)?;
        let used = machine::cpu_ns(self.pid())?.checked_sub(before);
        row.record(used.context("a thread ended, and its CPU time with it")?, &run);
        row.rss_kib = machine::rss_kib(self.pid())?;
        Ok(())
    }
}

/// Measures `rows` in `rounds` rounds. A row that fails is told to `failed` and left out.
pub fn measure(
    rows: &[&TimedRow],
    rounds: usize,
    requests: u64,
    binaries: &Binaries,
    cores: Option<&Cores>,
    failed: &mut Vec<String>,
) -> Vec<Row> {
    // Each row has a server of its own, so that none inherits what another one left in its heap.
    let mut running = Vec::new();
    for row in rows {
        match row.start(binaries, cores) {
            Ok(peer) => running.push((Row::new(row.name()), peer, row.requests(requests))),
            Err(error) => failed.push(format!("{}: {error:#}", row.name())),
        }
    }
    for round in 1..=rounds {
        running.retain_mut(|(row, peer, requests)| {
            eprintln!("round {round}/{rounds}: {}", row.name);
            let outcome = peer.round(row, *requests);
            if let Err(error) = &outcome {
                failed.push(format!("{}: {error:#}", row.name));
            }
            outcome.is_ok()
        });
    }
    running.into_iter().map(|(row, ..)| row).collect()
}
