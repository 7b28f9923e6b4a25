//! What the clock cannot see well: instructions and allocations per request, under valgrind.
//!
//! One connection, one request after the other. Instructions are counted between a warm-up and the
//! last answer, because a start varies by millions of them: maps are seeded at random. Allocations
//! are the difference of two runs, one with twice as many requests as the other; there a start costs
//! the same every time and cancels.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::ask::{Dress, Work};
use super::http::Load;
use super::peers::{Binaries, Peer, Server, Watch};
use crate::sh;

/// Enough for every buffer and cache to have its size.
const WARM_UP: u64 = 200;

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
    let each = |total: u64| total as f64 / requests as f64;
    let instructions = watched(row, binaries, Tool::Callgrind, requests, instructions)?;
    let [fewer, fewer_bytes] = watched(row, binaries, Tool::Memcheck, requests, allocations)?;
    let [more, more_bytes] = watched(row, binaries, Tool::Memcheck, requests * 2, allocations)?;
    Ok(Count {
        name: row.name(),
        instructions: each(instructions),
        allocations: each(more.saturating_sub(fewer)),
        allocated_bytes: each(more_bytes.saturating_sub(fewer_bytes)),
    })
}

/// Runs `row`'s server under `tool`, asks `requests` times, and reads the counts from the log.
fn watched<T>(
    row: &CountRow,
    binaries: &Binaries,
    tool: Tool,
    requests: u64,
    read: fn(&str) -> Option<T>,
) -> anyhow::Result<T> {
    let log = std::env::temp_dir().join(format!("spile-bench-{}.log", std::process::id()));
    let more: Vec<&str> = row.tools.iter().flat_map(|&tools| ["--tools", tools]).collect();
    let server = Server::start(row.peer, row.dress, binaries, Watch::Valgrind(tool, &log), &more)?;
    let mut load = Load::connect(server.at, server.asks(row.work, row.dress, 1)?)?;
    load.run(WARM_UP)?;
    tool.start_counting(server.pid())?;
    load.run(requests)?;
    tool.stop_counting(server.pid())?;
    drop(load);
    server.stop()?;
    let text = std::fs::read_to_string(&log).with_context(|| format!("{} wrote no log", tool.name()))?;
    std::fs::remove_file(&log)?;
    read(&text).with_context(|| format!("{} wrote no count:\n{text}", tool.name()))
}

/// What valgrind is to count.
#[derive(Clone, Copy)]
pub enum Tool {
    /// Instructions, while it is told to.
    Callgrind,
    /// Allocations, all the time.
    Memcheck,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Callgrind => "callgrind",
            Tool::Memcheck => "memcheck",
        }
    }

    /// What to put before the command that is to be watched.
    pub fn command(self, log: &Path) -> Vec<String> {
        let log = format!("--log-file={}", log.display());
        let mut words = vec!["valgrind".to_owned(), format!("--tool={}", self.name()), log];
        if let Tool::Callgrind = self {
            words.extend(["--instr-atstart=no".into(), "--callgrind-out-file=/dev/null".into()]);
        }
        words
    }

    fn start_counting(self, pid: u32) -> anyhow::Result<()> {
        self.tell(pid, "on")
    }

    fn stop_counting(self, pid: u32) -> anyhow::Result<()> {
        self.tell(pid, "off")
    }

    fn tell(self, pid: u32, what: &str) -> anyhow::Result<()> {
        match self {
            Tool::Memcheck => Ok(()),
            Tool::Callgrind => {
                let said =
                    Command::new("vgdb").arg(format!("--pid={pid}")).args(["instrumentation", what]).output();
                let said = said.context("cannot start `vgdb`, which comes with valgrind")?;
                ensure!(said.status.success(), "vgdb: {}", String::from_utf8_lossy(&said.stderr));
                Ok(())
            }
        }
    }
}

/// `==1== Collected : 123456`
fn instructions(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
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
        assert_eq!(instructions("==7== Events    : Ir\n==7== Collected : 4711\n"), Some(4711));
        let heap = "==7==   total heap usage: 10,123 allocs, 10,100 frees, 1,234,567 bytes allocated\n";
        assert_eq!(allocations(heap), Some([10_123, 1_234_567]));
        assert_eq!(instructions("==7== Process terminating\n"), None);
    }
}
