//! What the clock cannot see well: instructions and allocations per request, under valgrind.
//!
//! A count is the difference of two runs, one with twice as many requests as the other, on one
//! connection. Starting, building the table and shutting down cost the same in both and cancel.

use std::process::Command;

use anyhow::{Context, ensure};

use super::ask::{Dress, Work};
use super::http::Load;
use super::peers::{Binaries, Peer, Server, Watch};
use crate::sh;

/// One counted row.
pub struct CountRow {
    pub peer: Peer,
    pub dress: Dress,
    pub work: Work,
    /// How many tools the server has; ten unless told.
    pub tools: Option<&'static str>,
}

impl CountRow {
    pub fn name(&self) -> String {
        let work = self.work.name();
        match (self.peer, self.tools) {
            (Peer::Floor, _) => "count floor".into(),
            (peer, None) => format!("count {} {} {work}", peer.name(), self.dress.name()),
            (peer, Some(tools)) => {
                format!("count {} {} {work}, {tools} tools", peer.name(), self.dress.name())
            }
        }
    }
}

pub const ROWS: [CountRow; 7] = [
    CountRow { peer: Peer::Floor, dress: Dress::J25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::J25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::S25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::List, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::Call, tools: Some("1000") },
    CountRow { peer: Peer::Rmcp, dress: Dress::M26, work: Work::Call, tools: None },
];

/// What one request costs.
pub struct Count {
    pub name: String,
    pub instructions: f64,
    pub allocations: f64,
    pub allocated_bytes: f64,
}

/// Counts every row; none at all where there is no valgrind. A row that fails is told to `failed`.
pub fn measure(
    rows: &[&CountRow],
    requests: u64,
    binaries: &Binaries,
    failed: &mut Vec<String>,
) -> Vec<Count> {
    if !rows.is_empty() && !sh::succeeds(Command::new("valgrind").arg("--version")) {
        failed.push("count: no `valgrind` here; install it with `apt install valgrind`".into());
        return Vec::new();
    }
    let mut counts = Vec::new();
    for row in rows {
        eprintln!("{}", row.name());
        match count(row, binaries, requests) {
            Ok(count) => counts.push(count),
            Err(error) => failed.push(format!("{}: {error:#}", row.name())),
        }
    }
    counts
}

fn count(row: &CountRow, binaries: &Binaries, requests: u64) -> anyhow::Result<Count> {
    let twice = |tool, read: fn(&str) -> Option<[u64; 2]>| -> anyhow::Result<[f64; 2]> {
        let short = watched(row, binaries, tool, requests, read)?;
        let long = watched(row, binaries, tool, requests * 2, read)?;
        let each = |at: usize| (long[at] as f64 - short[at] as f64) / requests as f64;
        Ok([each(0), each(1)])
    };
    let [instructions, _] = twice("callgrind", instructions)?;
    let [allocations, allocated_bytes] = twice("memcheck", allocations)?;
    Ok(Count { name: row.name(), instructions, allocations, allocated_bytes })
}

fn watched(
    row: &CountRow,
    binaries: &Binaries,
    tool: &'static str,
    requests: u64,
    read: fn(&str) -> Option<[u64; 2]>,
) -> anyhow::Result<[u64; 2]> {
    let log = std::env::temp_dir().join(format!("spile-bench-{}.log", std::process::id()));
    let more: Vec<&str> = row.tools.iter().flat_map(|&tools| ["--tools", tools]).collect();
    let server = Server::start(row.peer, row.dress, binaries, Watch::Valgrind { tool, log: &log }, &more)?;
    let asks = server.asks(row.work, row.dress, 1)?;
    let mut load = Load::connect(server.at, asks)?;
    load.run(requests)?;
    drop(load);
    server.stop()?;
    let text = std::fs::read_to_string(&log).with_context(|| format!("{tool} wrote no log"))?;
    std::fs::remove_file(&log)?;
    let counted = read(&text).with_context(|| format!("{tool} wrote no count:\n{text}"))?;
    ensure!(counted[0] > 0, "{tool} counted nothing");
    Ok(counted)
}

/// `==1== Collected : 123456`
fn instructions(log: &str) -> Option<[u64; 2]> {
    let line = log.lines().find_map(|line| line.split_once("Collected :"))?.1;
    Some([line.trim().parse().ok()?, 0])
}

/// `==1==   total heap usage: 10,123 allocs, 10,100 frees, 1,234,567 bytes allocated`
fn allocations(log: &str) -> Option<[u64; 2]> {
    let line = log.lines().find_map(|line| line.split_once("total heap usage:"))?.1;
    let mut parts = line.split(", ");
    let number = |part: &str| part.split_whitespace().next()?.replace(',', "").parse().ok();
    Some([number(parts.next()?)?, number(parts.nth(1)?)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_valgrind_writes() {
        assert_eq!(instructions("==7== Events    : Ir\n==7== Collected : 4711\n"), Some([4711, 0]));
        let heap = "==7==   total heap usage: 10,123 allocs, 10,100 frees, 1,234,567 bytes allocated\n";
        assert_eq!(allocations(heap), Some([10_123, 1_234_567]));
        assert_eq!(instructions("==7== Process terminating\n"), None);
    }
}
