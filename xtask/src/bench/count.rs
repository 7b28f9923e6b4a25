//! What the clock cannot see well: instructions and allocations per request, under valgrind.
//!
//! One connection, one request after the other, counted between a warm-up and the last answer: a
//! start varies by millions of instructions, because maps are seeded at random. An allocation is a
//! call into the allocator, whichever the server has.

use std::collections::HashMap;
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

const fn called(peer: Peer) -> CountRow {
    CountRow { peer, dress: Dress::M26, work: Work::Call, tools: None }
}

pub const ROWS: [CountRow; 11] = [
    CountRow { peer: Peer::Floor, dress: Dress::J25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::J25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::S25, work: Work::Call, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::List, tools: None },
    CountRow { peer: Peer::Spile, dress: Dress::M26, work: Work::Call, tools: Some("1000") },
    called(Peer::SpileCsv),
    called(Peer::SpileSqlite),
    called(Peer::Rmcp),
    called(Peer::RmcpCsv),
    called(Peer::RmcpSqlite),
];

/// What one request costs.
pub struct Count {
    pub name: String,
    pub instructions: f64,
    pub allocations: f64,
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
    let more: Vec<&str> = row.tools.iter().flat_map(|&tools| ["--tools", tools]).collect();
    per_request(row.name(), row.dress, row.work, requests, binaries, |watch| {
        Server::start(row.peer, row.dress, binaries, watch, &more)
    })
}

/// What one call of the product costs with the rows of `file`.
pub fn of_file(file: &Path, requests: u64, binaries: &Binaries) -> anyhow::Result<Count> {
    per_request(file.display().to_string(), Dress::M26, Work::Call, requests, binaries, |watch| {
        Server::product(file, binaries, watch)
    })
}

fn per_request(
    name: String,
    dress: Dress,
    work: Work,
    requests: u64,
    binaries: &Binaries,
    start: impl FnOnce(Watch) -> anyhow::Result<Server>,
) -> anyhow::Result<Count> {
    let profile = binaries.data.path().join("callgrind.out");
    let server = start(Watch::Callgrind(&profile))?;
    let mut load = Load::connect(server.at, server.asks(work, dress, 1)?)?;
    load.run(WARM_UP)?;
    instrument(server.pid(), "on")?;
    load.run(requests)?;
    instrument(server.pid(), "off")?;
    drop(load);
    server.stop()?;
    let text = std::fs::read_to_string(&profile).context("callgrind wrote no profile")?;
    // For `callgrind_annotate`, which tells where they go.
    std::fs::write(super::out()?.join(format!("{}.callgrind", name.replace([' ', ',', '/'], "-"))), &text)?;
    std::fs::remove_file(&profile)?;
    let instructions = instructions(&text).context("callgrind counted no instructions")?;
    let each = |total: u64| total as f64 / requests as f64;
    Ok(Count { name, instructions: each(instructions), allocations: each(allocations(&text)) })
}

/// What to put before a command whose instructions are to be counted once [`instrument`] says so.
pub fn callgrind(profile: &Path) -> Vec<String> {
    let profile = format!("--callgrind-out-file={}", profile.display());
    ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", &profile].map(str::to_owned).into()
}

fn instrument(pid: u32, how: &str) -> anyhow::Result<()> {
    let said = Command::new("vgdb").arg(format!("--pid={pid}")).args(["instrumentation", how]).output();
    let said = said.context("cannot start `vgdb`, which comes with valgrind")?;
    ensure!(said.status.success(), "vgdb: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

/// `totals: 123456`
fn instructions(profile: &str) -> Option<u64> {
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()?;
    (totals > 0).then_some(totals)
}

/// How often anything but the allocator itself asked the allocator for memory.
///
/// A profile names a function in full once, `fn=(7) malloc`, and `fn=(7)` from then on. A call is two
/// lines below its caller's: `cfn=(7)`, then `calls=3 …`.
fn allocations(profile: &str) -> u64 {
    let mut names = HashMap::new();
    let (mut caller, mut callee) = ("", "");
    let mut total = 0;
    for line in profile.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "fn" => caller = name(&mut names, value),
            "cfn" => callee = name(&mut names, value),
            "calls" if allocates(callee) && !is_allocator(caller) => {
                total +=
                    value.split_whitespace().next().and_then(|times| times.parse::<u64>().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    total
}

fn name<'a>(names: &mut HashMap<&'a str, &'a str>, value: &'a str) -> &'a str {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(value).copied().unwrap_or_default(),
    }
}

/// The ways into glibc's allocator and into mimalloc.
fn allocates(function: &str) -> bool {
    let plain = function.strip_prefix("mi_").unwrap_or(function);
    let plain = plain.strip_suffix("_aligned").unwrap_or(plain);
    matches!(
        plain,
        "malloc" | "calloc" | "zalloc" | "realloc" | "posix_memalign" | "aligned_alloc" | "memalign"
    )
}

fn is_allocator(function: &str) -> bool {
    allocates(function) || function.starts_with("mi_") || function.starts_with("_mi_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_callgrind_writes() {
        let profile = "\
fl=(1) server.rs
fn=(1) answer
10 100
cfn=(2) malloc
calls=3 0
10 300
cfn=(3) mi_malloc_aligned
calls=4 0
fn=(4) realloc
cfn=(2)
calls=50 0
fn=(5) main
cfn=(2)
calls=2 0
cfn=(6) free
calls=9 0
totals: 4711
";
        assert_eq!(instructions(profile), Some(4711));
        assert_eq!(allocations(profile), 3 + 4 + 2);
        assert_eq!(instructions("totals: 0\n"), None);
    }
}
