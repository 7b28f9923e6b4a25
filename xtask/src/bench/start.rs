//! `cargo xtask bench start`: from process start to the first response, memory at rest, the size of the binary, and how
//! long a changed tool takes.
//!
//! The product is measured as it is shipped, if `cargo xtask release` has built it.
//!
//! The clock starts before the process does and stops at the response to a `tools/call` on a pipe, after the
//! handshake. The peers take turns, so that a noisy minute hits all of them.

use std::process::Command;
use std::time::Instant;

use anyhow::Context;

use super::gates::{self, Bound, Gate};
use super::machine;
use super::peers::{Binaries, Peer, StdioPeer};
use super::reload;
use super::report::median;
use crate::{release, sh};

const PEERS: [Peer; 3] = [Peer::Rmcp, Peer::SpileCsv, Peer::SpileSqlite];
const BASE: usize = 0;
const CSV: usize = 1;

pub fn run(quick: bool) -> anyhow::Result<()> {
    let rounds = if quick { 15 } else { 41 };
    let binaries = Binaries::build(&PEERS)?;
    let shipped = binaries.shipped();
    let (binaries, build) = match &shipped {
        Some(shipped) => (shipped, "as it is shipped"),
        None => {
            println!("{}: the release build is measured", super::NO_SHIPPED_BINARY);
            (&binaries, "the release build")
        }
    };
    let mut times_ms: [Vec<f64>; 3] = Default::default();
    let mut at_rest_mb: [Vec<f64>; 3] = Default::default();
    // The first start of each reads its files from disk, and is discarded.
    for round in 0..=rounds {
        for (at, peer) in PEERS.into_iter().enumerate() {
            let (time_ms, rest_mb) = measure(peer, binaries).with_context(|| peer.name().to_owned())?;
            if round > 0 {
                times_ms[at].push(time_ms);
                at_rest_mb[at].push(rest_mb);
            }
        }
    }
    let over_base = |at: usize| -> Option<f64> {
        let ratios = times_ms[at].iter().zip(&times_ms[BASE]).map(|(own, base)| own / base);
        median(&ratios.collect::<Vec<_>>())
    };
    println!("\nspawn to the first answer on a pipe, 10,000 rows, spile {build}, medians of {rounds} starts");
    for (at, peer) in PEERS.into_iter().enumerate() {
        let of = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let (time_ms, ratio) = (of(median(&times_ms[at])), of(over_base(at)));
        let rest_mb = of(median(&at_rest_mb[at]));
        println!("  {:<30}{time_ms:>9.2} ms{ratio:>9.2}x rmcp{rest_mb:>9.1} MB at rest", peer.name());
    }
    println!("{}", release::component_table()?);
    let changed_ms = reload::changed_tool_ms(binaries, rounds)?;
    println!("  a changed tool, from its write to the first answer{changed_ms:>9.2} ms");
    let bytes =
        stripped_bytes(binaries).context("no `strip` here; install it with `apt install binutils`")?;
    gates::print_and_check(&[
        Gate {
            name: "start with a CSV file, over rmcp's in memory",
            bound: Bound::AtMost(1.0),
            value: over_base(CSV),
            unit: "x",
        },
        Gate {
            name: "memory at rest with a CSV file",
            bound: Bound::AtMost(12.0),
            value: median(&at_rest_mb[CSV]),
            unit: " MB",
        },
        Gate {
            name: "the binary without symbols",
            bound: Bound::AtMost(32.0),
            value: Some(bytes as f64 / 1e6),
            unit: " MB",
        },
        Gate {
            name: "a changed tool, from its write to the first answer",
            bound: Bound::AtMost(50.0),
            value: Some(changed_ms),
            unit: " ms",
        },
    ])
}

/// The size without symbols and line tables; `None` if `strip` is not installed.
fn stripped_bytes(binaries: &Binaries) -> Option<u64> {
    let stripped = binaries.data.join("stripped");
    sh::succeeds(Command::new("strip").args(["-o", &stripped, &binaries.path("spile")])).then_some(())?;
    Some(std::fs::metadata(stripped).ok()?.len())
}

/// Milliseconds to the first answer, and megabytes of resident memory after it.
fn measure(peer: Peer, binaries: &Binaries) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let mut piped = StdioPeer::start(peer, binaries, None)?;
    piped.load.run(1, 1)?;
    let time_ms = begun.elapsed().as_secs_f64() * 1e3;
    Ok((time_ms, machine::rss_kib(piped.pid())? as f64 * 1024.0 / 1e6))
}
