//! `cargo xtask bench neighbours`: what callers of a tool notice while another tool of the same server is hostile.
//!
//! A folder has the tool of peer_tool.ts and one that attacks: endless loops, memory, work inside built-ins. Each attack
//! comes after harmless calls, so that it begins where quick calls run. Latencies of the first tool are measured with and without
//! attacks, in process and with `isolation = "process"`. Driver, server and attack share the cores, so a ratio says more than a
//! latency.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::data::BenchDir;
use super::gates::{self, Bound, Gate};
use super::http::{self, HttpLoad};
use super::peers::{Binaries, HttpPeer, Instrumentation, Peer};
use super::report::median;
use super::request::{self, Operation, Protocol};

const ATTACKS: [(&str, &str); 10] = [
    ("loop", "for (;;) {}"),
    ("regular expression", "/(a+)+$/.test('a'.repeat(40) + '!');"),
    ("recursion", "const f = () => f() + 1; f();"),
    ("promises", "const again = () => Promise.resolve().then(again); await again();"),
    ("memory", "const all = []; for (;;) all.push(new Array(1e4).fill(1));"),
    ("text", "let s = 'x'; for (;;) s += s;"),
    ("search", "for (;;) 'a'.repeat(4e5).indexOf('a'.repeat(2e5) + 'b');"),
    ("sort", "const a = Array.from({ length: 6e4 }, (_, i) => -i); for (;;) a.toSorted();"),
    ("marks", "const t = 'a\\u0301'.repeat(3e4); for (;;) t.normalize('NFD');"),
    ("big integers", "const n = globalThis['Big' + 'Int']('9'.repeat(20000)); for (;;) n * n;"),
];
/// After so many calls in a row a tool counts as quick (`EngineLimits::quick_calls_min`).
const HARMLESS_CALLS: usize = 16;
const CONNECTIONS: usize = 8;

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rounds, requests) = if quick { (1, 1_000) } else { (5, 5_000) };
    let binaries = Binaries::build(&[Peer::SpileCode])?;
    let mut judged = Vec::new();
    println!("\ncalls of a TypeScript tool, {CONNECTIONS} connections, medians of {rounds} rounds, in us");
    for isolation in ["thread", "process"] {
        let measured = measure(isolation, &binaries, rounds, requests)?;
        let [p50, p99] = [0, 1].map(|at| measured.ratio(at));
        for (name, latencies) in [("quiet", &measured.quiet), ("during attacks", &measured.attacked)] {
            let of = |at: usize| median(&latencies[at]).unwrap_or(f64::NAN);
            println!("  {isolation:<10}{name:<18} p50{:>10.0}   p99{:>10.0}", of(0), of(1));
        }
        let gate = |name, most, value| Gate { name, bound: Bound::AtMost(most), value, unit: "x" };
        judged.extend(match isolation {
            "thread" => [
                gate("p50 of a neighbour during attacks, over the quiet one", P50_MOST, p50),
                gate("p99 of a neighbour during attacks, over the quiet one", P99_MOST, p99),
            ],
            _ => [
                gate("the same in processes, p50", P50_MOST, p50),
                gate("the same in processes, p99", P99_MOST, p99),
            ],
        });
    }
    gates::print_and_check(&judged)
}

/// An attack occupies one core, so that driver and server share the rest; a call that waits for its turn on a core waits for a few
/// milliseconds.
const P50_MOST: f64 = 5.0;
const P99_MOST: f64 = 50.0;

/// p50 and p99 of each round.
#[derive(Default)]
struct Latencies {
    quiet: [Vec<f64>; 2],
    attacked: [Vec<f64>; 2],
}

impl Latencies {
    fn ratio(&self, at: usize) -> Option<f64> {
        let ratios: Vec<f64> =
            self.attacked[at].iter().zip(&self.quiet[at]).map(|(attacked, quiet)| attacked / quiet).collect();
        median(&ratios)
    }
}

fn measure(isolation: &str, binaries: &Binaries, rounds: u32, requests: u64) -> anyhow::Result<Latencies> {
    let folder = write_folder(isolation)?;
    let server = HttpPeer::start_product(folder.path(), binaries, Instrumentation::AllCores)?;
    let templates = (0..CONNECTIONS)
        .map(|_| request::RequestTemplate::http(Operation::Call, Protocol::M26, "lookup_customer", None));
    let mut load = HttpLoad::connect(server.address, templates.collect())?;
    load.run(requests).context("while warming up")?;
    let mut latencies = Latencies::default();
    for round in 1..=rounds {
        eprintln!("round {round}/{rounds}: isolation = {isolation:?}");
        add(&mut latencies.quiet, &load.run(requests)?.latencies);
        add(&mut latencies.attacked, &during_attacks(&mut load, server.address, requests)?);
    }
    Ok(latencies)
}

/// Latencies of calls from the first attack to the end of the last.
fn during_attacks(load: &mut HttpLoad, at: SocketAddr, requests: u64) -> anyhow::Result<Vec<Duration>> {
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attacks = scope.spawn(|| {
            let result = ATTACKS.iter().try_for_each(|(name, _)| attack(at, name));
            has_ended.store(true, Ordering::Relaxed);
            result
        });
        let mut latencies = Vec::new();
        let mut measured = Ok(());
        while measured.is_ok() && !has_ended.load(Ordering::Relaxed) {
            measured = load.run(requests / 10 + 1).map(|one| latencies.extend(one.latencies));
        }
        attacks.join().map_err(|_| anyhow::anyhow!("the attacker failed"))??;
        measured.context("a neighbour's call failed")?;
        latencies.sort_unstable();
        Ok(latencies)
    })
}

/// Harmless calls, then an attack, which must end with an error.
fn attack(at: SocketAddr, name: &str) -> anyhow::Result<()> {
    let call = |how: &str| http::send_once(at, &request::call("hostile", &json!({ "how": how })));
    for _ in 0..HARMLESS_CALLS {
        let (status, _, body) = call("harmless")?;
        ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body));
    }
    let (_, _, body) = call(name)?;
    let body = String::from_utf8_lossy(&body);
    ensure!(body.contains(r#""isError":true"#), "the attack `{name}` was not stopped: {body}");
    Ok(())
}

fn add(rounds: &mut [Vec<f64>; 2], sorted: &[Duration]) {
    for (round, percent) in rounds.iter_mut().zip([50, 99]) {
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        round.push(sorted.get(at).copied().unwrap_or_default().as_secs_f64() * 1e6);
    }
}

fn write_folder(isolation: &str) -> anyhow::Result<BenchDir> {
    let folder = BenchDir::new()?;
    let arms: String =
        ATTACKS.iter().map(|(name, code)| format!("case {name:?}: {{ {code} }} break;\n")).collect();
    let hostile = format!(
        "export default async ({{ how }}) => {{ switch (how) {{ {arms} default: return 'harmless'; }} return 'got through'; }};\n"
    );
    let manifest = format!("[server]\nname = \"neighbours\"\nisolation = \"{isolation}\"\n");
    std::fs::create_dir(folder.path().join("tools"))?;
    for (name, text) in [
        ("spile.toml", manifest.as_str()),
        ("tools/lookup_customer.ts", include_str!("peer_tool.ts")),
        ("tools/hostile.js", hostile.as_str()),
    ] {
        std::fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}
