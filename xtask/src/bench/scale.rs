//! `cargo xtask bench scale`: a CSV file of a million rows, with no manifest.
//!
//! The first answer is compared with a bare scan of the same file in the same round, memory with the size of
//! the file (unless it is small), and the instructions of a call with those over a file of ten thousand rows.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use memchr::{memchr, memmem, memrchr};

use super::count;
use super::gates::{self, Bound, Gate};
use super::machine;
use super::peers::{Binaries, Peer, StdioPeer};
use super::report::median;

const FEW_ROWS: u64 = 10_000;
/// The customer of the first request, whose row is changed.
const CHANGED_ROW: &[u8] = b"\nuser1000@example.com,";
/// More than any other customer has.
const CHANGED_VISITS: &str = "4711";
const RELOAD_MAX: Duration = Duration::from_secs(60);

pub fn run(quick: bool) -> anyhow::Result<()> {
    let (rows, rounds, counted) = if quick { (100_000, 5, 500) } else { (1_000_000, 9, 2_000) };
    let binaries = Binaries::build(&[Peer::SpileCsv])?;
    let file = make_wide_csv(&binaries, "many", rows)?;
    let bytes = std::fs::metadata(&file)?.len() as f64;

    let (mut bare, mut first, mut at_rest) = (Timings::default(), Timings::default(), vec![]);
    for round in 1..=rounds {
        eprintln!("round {round}/{rounds}: bare scan, first answer");
        bare_scan(&file, &binaries, &mut bare)?;
        let begun = Instant::now();
        let mut piped = StdioPeer::start_product(&file, &binaries)?;
        piped.load.run(1, 1)?;
        first.record(begun, piped.pid())?;
        at_rest.push(machine::rss_kib(piped.pid())? as f64 * 1024.0);
    }
    eprintln!("read again");
    let reload = measure_reload(&file, &binaries)?;
    eprintln!("instructions");
    let many = count::measure_file(&file, counted, &binaries)?;
    let few = count::measure_file(&make_wide_csv(&binaries, "few", FEW_ROWS)?, counted, &binaries)?;

    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let mb = |bytes: f64| bytes / 1e6;
    println!("\n{rows} rows, {:.1} MB, medians of {rounds} rounds", mb(bytes));
    for (name, times) in [("bare scan", &bare), ("spawn to the first answer", &first)] {
        let (time_ms, cpu_ms) = (of(&times.time_ms), of(&times.cpu_ms));
        println!("  {name:<34}{time_ms:>10.1} ms ({cpu_ms:.1} ms of CPU)");
    }
    println!("  {:<34}{:>10.1} MB", "memory at rest", mb(of(&at_rest)));
    println!(
        "  {:<34}{:>10.1} MB ({}), {:.1} MB at rest after it",
        "peak while read again",
        mb(reload.peak_bytes),
        reload.peak_method,
        mb(reload.after_bytes)
    );
    println!("  {:<34}{:>10.1} ms", "until the new row was served", reload.time.as_secs_f64() * 1e3);
    for (rows, count) in [(rows, &many), (FEW_ROWS, &few)] {
        println!(
            "  {:<34}{:>10.0} instructions, {:.1} allocations",
            format!("a call among {rows} rows"),
            count.instructions,
            count.allocations
        );
    }
    let over_bare: Vec<f64> = first.time_ms.iter().zip(&bare.time_ms).map(|(own, bare)| own / bare).collect();
    // With a small file, most of the memory is the program's own.
    let over_file = |memory: f64| (!quick).then_some(memory / bytes);
    let gate = |name, limit, unit, value| Gate { name, bound: Bound::AtMost(limit), value, unit };
    gates::print_and_check(&[
        gate("first answer over a bare scan", 3.0, "x", median(&over_bare)),
        gate("memory at rest over the file", 2.0, "x", over_file(of(&at_rest))),
        gate("peak while read again over the file", 4.0, "x", over_file(reload.peak_bytes)),
        gate(
            "call among many rows or 10,000, instructions",
            10.0,
            " % apart",
            Some((many.instructions / few.instructions - 1.0).abs() * 100.0),
        ),
    ])
}

/// Wall-clock and CPU time of each round.
#[derive(Default)]
struct Timings {
    time_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

impl Timings {
    fn record(&mut self, begun: Instant, pid: u32) -> anyhow::Result<()> {
        self.time_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        self.cpu_ms.push(machine::cpu_ns(pid)? as f64 / 1e6);
        Ok(())
    }
}

/// A file of `rows` rows; in a folder of its own, because its name names the tool.
fn make_wide_csv(binaries: &Binaries, folder: &str, rows: u64) -> anyhow::Result<PathBuf> {
    let folder = binaries.data.path().join(folder);
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("customers.csv");
    binaries.make_data(&["wide", &file.display().to_string(), &rows.to_string()])?;
    Ok(file)
}

fn bare_scan(file: &Path, binaries: &Binaries, times: &mut Timings) -> anyhow::Result<()> {
    let mut scan = Command::new(binaries.path("bare-csv"));
    let begun = Instant::now();
    let mut child = scan.arg(file).stdout(Stdio::null()).spawn().context("cannot start `bare-csv`")?;
    // A normal wait would discard its counters.
    machine::wait_unreaped(child.id())?;
    times.record(begun, child.id())?;
    let status = child.wait()?;
    ensure!(status.success(), "`bare-csv` ended with {status}");
    Ok(())
}

/// The cost of serving a change.
struct ReloadCost {
    time: Duration,
    peak_bytes: f64,
    after_bytes: f64,
    /// How the peak was measured.
    peak_method: &'static str,
}

/// Changes one row of `file` while a server serves it, and requests it until the new value is served.
fn measure_reload(file: &Path, binaries: &Binaries) -> anyhow::Result<ReloadCost> {
    let mut piped = StdioPeer::start_product(file, binaries)?;
    let pid = piped.pid();
    let news = format!(r#""visits":{CHANGED_VISITS}"#);
    ensure!(!piped.load.repeat_first()?.contains(&news), "the change is there before it was made");
    // An atomic replace: writes the whole file under another name, then renames it.
    let beside = file.with_extension("new");
    std::fs::write(&beside, change_row(&std::fs::read(file)?)?)?;
    let counted = machine::reset_peak(pid).is_ok();
    std::fs::rename(&beside, file)?;

    let begun = Instant::now();
    let mut sampled = 0;
    let mut served_after = None;
    // A large file that had just changed when it was read is read a second time, so this waits twice as long.
    while served_after.is_none_or(|time: Duration| begun.elapsed() < time * 2) {
        ensure!(begun.elapsed() < RELOAD_MAX, "the changed row is not served within {RELOAD_MAX:?}");
        if piped.load.repeat_first()?.contains(&news) {
            served_after = served_after.or(Some(begun.elapsed()));
        }
        sampled = machine::rss_kib(pid)?.max(sampled);
        // A pause, so that the requests do not slow the reload.
        std::thread::sleep(Duration::from_millis(2));
    }
    let (peak, how) =
        if counted { (machine::peak_kib(pid)?, "counted") } else { (sampled, "sampled every 2 ms") };
    Ok(ReloadCost {
        time: served_after.unwrap_or_default(),
        peak_bytes: peak as f64 * 1024.0,
        after_bytes: machine::rss_kib(pid)? as f64 * 1024.0,
        peak_method: how,
    })
}

/// The same text with another number of visits, the last field, in one row.
fn change_row(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let row = memmem::find(text, CHANGED_ROW).context("the row to change is not there")? + 1;
    let end = row + memchr(b'\n', &text[row..]).context("the row to change has no end")?;
    let field = row + memrchr(b',', &text[row..end]).context("the row to change has one field")? + 1;
    Ok([&text[..field], CHANGED_VISITS.as_bytes(), &text[end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_gets_another_last_field() {
        let text = b"email,visits\nuser10001@example.com,1\nuser1000@example.com,\"a,b\",22\nz,3\n";
        let expected = "email,visits\nuser10001@example.com,1\nuser1000@example.com,\"a,b\",4711\nz,3\n";
        assert_eq!(String::from_utf8(change_row(text).expect("the row is there")).as_deref(), Ok(expected));
        assert!(change_row(b"email\nuser1@example.com\n").is_err());
    }
}
