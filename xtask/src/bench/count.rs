//! Instructions, allocations and locked operations per request, counted by valgrind.
//!
//! One connection sends one request after the other. Counting starts after a warm-up, because the start varies by
//! millions of instructions: maps are seeded at random. An allocation is a call into the server's allocator.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::http::HttpLoad;
use super::locked::{self, Sharing};
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer};
use super::request::{Operation, Protocol};
use crate::sh;

/// What happens less often in a request belongs to the runtime.
pub const SELDOM: f64 = 0.05;

/// After this many requests, every buffer and cache has its final size.
const WARM_UP: u64 = 200;

/// One counted row.
pub struct CountRow {
    pub peer: Peer,
    pub protocol: Protocol,
    pub operation: Operation,
    /// How many tools the server has; ten by default.
    pub tools: Option<&'static str>,
    pub build: Build,
}

/// Which build of the product is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    Release,
    /// As it is shipped.
    Shipped,
}

impl CountRow {
    pub fn name(&self) -> String {
        let work = self.operation.name();
        match (self.peer, self.tools) {
            (peer, _) if self.build == Build::Shipped => {
                format!("count {} {} {work}, shipped", peer.name(), self.protocol.name())
            }
            (peer, _) if peer.is_floor() => format!("count {} {}", peer.name(), self.protocol.name()),
            (peer, None) => format!("count {} {} {work}", peer.name(), self.protocol.name()),
            (peer, Some(tools)) => {
                format!("count {} {} {work}, {tools} tools", peer.name(), self.protocol.name())
            }
        }
    }
}

const fn row(peer: Peer, protocol: Protocol, operation: Operation) -> CountRow {
    CountRow { peer, protocol, operation, tools: None, build: Build::Release }
}

const fn call_row(peer: Peer) -> CountRow {
    row(peer, Protocol::M26, Operation::Call)
}

const fn shipped_row(peer: Peer) -> CountRow {
    CountRow { build: Build::Shipped, ..call_row(peer) }
}

pub const ROWS: [CountRow; 19] = [
    call_row(Peer::Floor),
    row(Peer::Floor, Protocol::J25, Operation::Call),
    row(Peer::Floor, Protocol::S25, Operation::Call),
    call_row(Peer::RawFloor),
    call_row(Peer::Spile),
    row(Peer::Spile, Protocol::J25, Operation::Call),
    row(Peer::Spile, Protocol::S25, Operation::Call),
    row(Peer::Spile, Protocol::M26, Operation::List),
    CountRow { tools: Some("1000"), ..call_row(Peer::Spile) },
    call_row(Peer::SpileCsv),
    call_row(Peer::SpileCsvBesideCode),
    call_row(Peer::SpileSqlite),
    call_row(Peer::SpileCode),
    shipped_row(Peer::SpileCsv),
    shipped_row(Peer::SpileSqlite),
    shipped_row(Peer::SpileCode),
    call_row(Peer::Rmcp),
    call_row(Peer::RmcpCsv),
    call_row(Peer::RmcpSqlite),
];

/// The cost of one request.
pub struct RequestCost {
    pub name: String,
    pub instructions: f64,
    pub allocations: f64,
    /// Atomic read-modify-write instructions by function, most first; `None` where they cannot be counted.
    pub locked: Option<Vec<(String, f64)>>,
}

impl RequestCost {
    pub fn locked_total(&self) -> Option<f64> {
        self.locked.as_ref().map(|functions| functions.iter().map(|(_, times)| times).sum())
    }

    /// Those that may wait for other workers.
    pub fn locked_shared(&self) -> Option<f64> {
        let functions = self.locked.as_ref()?.iter();
        let shared = functions.filter(|(function, _)| locked::sharing(function) != Sharing::Own);
        Some(shared.map(|(_, times)| times).sum())
    }

    /// The lines that they write.
    pub fn shared_lines(&self) -> Vec<&'static str> {
        let functions = self.locked.iter().flatten().filter(|(_, times)| *times >= SELDOM);
        let lines = functions.filter_map(|(function, _)| match locked::sharing(function) {
            Sharing::Shared(line) => Some(line),
            Sharing::Own | Sharing::Unknown => None,
        });
        let mut lines: Vec<&'static str> = lines.collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }
}

/// Counts every row, or none if valgrind is not installed. Adds rows that fail to `failed`. `shipped` has the binary as it is
/// shipped.
pub fn measure(
    rows: &[&CountRow],
    requests: u64,
    binaries: &Binaries,
    shipped: Option<&Binaries>,
    failed: &mut Vec<String>,
) -> Vec<RequestCost> {
    if !rows.is_empty() && !sh::succeeds(Command::new("valgrind").arg("--version")) {
        failed.push("count: no `valgrind` here; install it with `apt install valgrind`".into());
        return Vec::new();
    }
    let mut counts = Vec::new();
    for row in rows {
        let binaries = match row.build {
            Build::Release => Some(binaries),
            Build::Shipped => shipped,
        };
        let Some(binaries) = binaries else { continue };
        eprintln!("{}", row.name());
        match measure_row(row, binaries, requests) {
            Ok(count) => counts.push(count),
            Err(error) => failed.push(format!("{}: {error:#}", row.name())),
        }
    }
    counts
}

fn measure_row(row: &CountRow, binaries: &Binaries, requests: u64) -> anyhow::Result<RequestCost> {
    let more: Vec<&str> = row.tools.iter().flat_map(|&tools| ["--tools", tools]).collect();
    measure_cost(row.name(), row.protocol, row.operation, requests, binaries, |watch| {
        HttpPeer::start(row.peer, row.protocol, binaries, watch, &more)
    })
}

/// The cost of one call of the product with the rows of `file`.
pub fn measure_file(file: &Path, requests: u64, binaries: &Binaries) -> anyhow::Result<RequestCost> {
    measure_cost(file.display().to_string(), Protocol::M26, Operation::Call, requests, binaries, |watch| {
        HttpPeer::start_product(file, binaries, watch)
    })
}

fn measure_cost(
    name: String,
    dress: Protocol,
    work: Operation,
    requests: u64,
    binaries: &Binaries,
    start: impl FnOnce(Instrumentation) -> anyhow::Result<HttpPeer>,
) -> anyhow::Result<RequestCost> {
    let profile = binaries.data.path().join("callgrind.out");
    let server = start(Instrumentation::Callgrind(&profile))?;
    let mut load = HttpLoad::connect(server.address, server.request_templates(work, dress, 1)?)?;
    load.run(WARM_UP)?;
    set_instrumentation(server.pid(), "on")?;
    load.run(requests)?;
    set_instrumentation(server.pid(), "off")?;
    drop(load);
    server.stop()?;
    let text = std::fs::read_to_string(&profile).context("callgrind wrote no profile")?;
    // For `callgrind_annotate`, which attributes them to functions.
    std::fs::write(
        super::output_dir()?.join(format!("{}.callgrind", name.replace([' ', ',', '/'], "-"))),
        &text,
    )?;
    std::fs::remove_file(&profile)?;
    let instructions = instructions(&text).context("callgrind counted no instructions")?;
    let each = |total: u64| total as f64 / requests as f64;
    Ok(RequestCost {
        name,
        instructions: each(instructions),
        allocations: each(allocations(&text)),
        locked: locked::count(&text)?.map(|functions| {
            functions.into_iter().map(|(function, times)| (function, each(times))).collect()
        }),
    })
}

/// The command prefix that counts instructions once instrumentation is switched on.
pub fn callgrind_command(profile: &Path) -> Vec<String> {
    let profile = format!("--callgrind-out-file={}", profile.display());
    // Costs by address, each written in full, for the locked operations.
    let costs = ["--dump-instr=yes", "--dump-line=no", "--compress-pos=no"];
    ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", &profile]
        .iter()
        .chain(&costs)
        .map(|&word| word.to_owned())
        .collect()
}

fn set_instrumentation(pid: u32, how: &str) -> anyhow::Result<()> {
    let output = Command::new("vgdb").arg(format!("--pid={pid}")).args(["instrumentation", how]).output();
    let output = output.context("cannot start `vgdb`, which comes with valgrind")?;
    ensure!(output.status.success(), "vgdb: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// `totals: 123456`
fn instructions(profile: &str) -> Option<u64> {
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()?;
    (totals > 0).then_some(totals)
}

/// How often anything but the allocator itself called the allocator.
///
/// A call is two lines below its caller: `cfn=(7)`, then `calls=3 …`.
fn allocations(profile: &str) -> u64 {
    let mut names = HashMap::new();
    let (mut caller, mut callee) = ("", "");
    let mut total = 0;
    for line in profile.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "fn" => caller = resolve_name(&mut names, value),
            "cfn" => callee = resolve_name(&mut names, value),
            "calls" if allocates(callee) && !is_allocator(caller) => {
                total +=
                    value.split_whitespace().next().and_then(|times| times.parse::<u64>().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    total
}

/// A profile names a thing in full once, `(7) malloc`, and `(7)` after that.
pub fn resolve_name<'a>(names: &mut HashMap<&'a str, &'a str>, value: &'a str) -> &'a str {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(value).copied().unwrap_or_default(),
    }
}

/// The entry points of glibc's allocator and of mimalloc.
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
