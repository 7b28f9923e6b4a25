//! The measurements, as text for a terminal and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::count::{RequestCost, SELDOM};
use super::gates::{Bound, Gate};
use super::http::LoadResult;
use super::locked::{self, Sharing};

/// All measurements of one bench run.
pub struct Report {
    pub rounds: usize,
    pub requests: u64,
    pub http: Vec<TimedResult>,
    pub stdio: Vec<TimedResult>,
    pub counts: Vec<RequestCost>,
}

/// A timed row; each list has one entry per round.
pub struct TimedResult {
    pub name: String,
    pub cpu_us: Vec<f64>,
    pub per_second: Vec<f64>,
    pub p50_us: Vec<f64>,
    pub p99_us: Vec<f64>,
    pub rss_kib: u64,
}

impl TimedResult {
    pub fn new(name: String) -> TimedResult {
        let empty = Vec::new;
        TimedResult {
            name,
            cpu_us: empty(),
            per_second: empty(),
            p50_us: empty(),
            p99_us: empty(),
            rss_kib: 0,
        }
    }

    /// Adds a round in which the server used `cpu_ns`.
    pub fn record(&mut self, cpu_ns: u64, run: &LoadResult) {
        let requests = run.latencies.len() as f64;
        self.cpu_us.push(cpu_ns as f64 / 1000.0 / requests);
        self.per_second.push(requests / run.elapsed.as_secs_f64());
        self.p50_us.push(micros(run.percentile(50)));
        self.p99_us.push(micros(run.percentile(99)));
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Report {
    pub fn new(rounds: usize, requests: u64) -> Report {
        Report { rounds, requests, http: Vec::new(), stdio: Vec::new(), counts: Vec::new() }
    }

    fn row(&self, name: &str) -> Option<&TimedResult> {
        self.http.iter().chain(&self.stdio).find(|row| row.name == name)
    }

    /// CPU of row `name` over that of row `base`, round by round.
    pub fn ratios(&self, name: &str, base: &str) -> Option<Vec<f64>> {
        let (row, base) = (self.row(name)?, self.row(base)?);
        Some(row.cpu_us.iter().zip(&base.cpu_us).map(|(own, base)| own / base).collect())
    }
}

/// The floor that row `name` is compared with: the one that gets a request of the same protocol.
pub fn floor_of(name: &str) -> &'static str {
    let has = |word| name.split([' ', ',']).any(|other| other == word);
    match name {
        _ if has("stdio") && has("sequential") => "stdio floor sequential",
        _ if has("stdio") => "stdio floor pipelined",
        _ if has("http") && has("j25") => "http floor j25",
        _ if has("http") && has("s25") => "http floor s25",
        _ if has("http") => "http floor m26",
        _ if has("j25") => "count floor j25",
        _ if has("s25") => "count floor s25",
        _ => "count floor m26",
    }
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// The interquartile range.
fn interquartile_range(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| sorted.get(sorted.len().saturating_sub(1) * quarter / 4).copied();
    (at(1).unwrap_or(f64::NAN), at(3).unwrap_or(f64::NAN))
}

/// The measurements for a terminal.
pub fn table(report: &Report) -> String {
    let mut text = format!(
        "\nmedians of {} rounds of {} requests; m26 = 2026-07-28, j25 = 2025-11-25, s25 = 2025-11-25 with a session\n",
        report.rounds, report.requests
    );
    for (title, rows) in
        [("HTTP, 16 connections, one core", &report.http), ("stdio, one core", &report.stdio)]
    {
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n{title:<32}{:>9}{:>9}{:>14}{:>10}{:>9}{:>9}{:>9}",
            "CPU µs", "x floor", "(mid. half)", "req/s", "p50 µs", "p99 µs", "RSS MiB"
        );
        for row in rows {
            let ratios = report.ratios(&row.name, floor_of(&row.name)).unwrap_or_default();
            let (low, high) = interquartile_range(&ratios);
            let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
            let _ = writeln!(
                text,
                "  {:<30}{:>9.2}{:>9.2}{:>14}{:>10.0}{:>9.0}{:>9.0}{:>9.1}",
                row.name,
                of(&row.cpu_us),
                of(&ratios),
                format!("({low:.2}-{high:.2})"),
                of(&row.per_second),
                of(&row.p50_us),
                of(&row.p99_us),
                row.rss_kib as f64 / 1024.0
            );
        }
    }
    if !report.counts.is_empty() {
        let times = |times: Option<f64>| times.map_or("-".into(), |times| format!("{times:.1}"));
        let _ = writeln!(
            text,
            "\n{:<40}{:>13}{:>9}{:>13}{:>9}{:>9}",
            "per request, under callgrind", "instructions", "x floor", "allocations", "locked", "shared"
        );
        for count in &report.counts {
            let floor = report.counts.iter().find(|floor| floor.name == floor_of(&count.name));
            let over = floor.map_or(f64::NAN, |floor| count.instructions / floor.instructions);
            let _ = writeln!(
                text,
                "  {:<38}{:>13.0}{:>9.2}{:>13.1}{:>9}{:>9}",
                count.name,
                count.instructions,
                over,
                count.allocations,
                times(count.locked_total()),
                times(count.locked_shared())
            );
        }
        text.push_str(&locked_table(&report.counts));
    }
    text
}

/// Where the locked operations of our own calls are.
fn locked_table(counts: &[RequestCost]) -> String {
    let mut text = String::new();
    for count in counts.iter().filter(|count| count.name.starts_with("count spile")) {
        // Without symbols there are no functions.
        let Some(functions) = count.locked.as_ref().filter(|_| !count.name.ends_with("shipped")) else {
            continue;
        };
        let lines = count.shared_lines();
        let _ = writeln!(
            text,
            "\nlocked operations of `{}`; lines that workers share: {}",
            count.name,
            lines.join("; ")
        );
        for (function, times) in functions.iter().filter(|(_, times)| *times >= SELDOM) {
            let sharing = match locked::sharing(function) {
                Sharing::Shared(_) => "shared",
                Sharing::Own => "own",
                Sharing::Unknown => "unknown",
            };
            let _ = writeln!(text, "  {times:>6.1}  {sharing:<8} {function}");
        }
    }
    text
}

/// The measurements and the gates for a program.
pub fn json(report: &Report, gates: &[Gate]) -> anyhow::Result<String> {
    let rows = |rows: &[TimedResult]| -> Vec<Value> {
        let row = |row: &TimedResult| {
            let ratios = report.ratios(&row.name, floor_of(&row.name)).unwrap_or_default();
            json!({
                "name": row.name,
                "cpu_us": median(&row.cpu_us),
                "over_floor": median(&ratios),
                "per_second": median(&row.per_second),
                "p50_us": median(&row.p50_us),
                "p99_us": median(&row.p99_us),
                "rss_kib": row.rss_kib,
                "rounds": { "cpu_us": row.cpu_us, "over_floor": ratios },
            })
        };
        rows.iter().map(row).collect()
    };
    let counts = report.counts.iter().map(|count| {
        json!({
            "name": count.name,
            "instructions": count.instructions,
            "allocations": count.allocations,
            "locked": count.locked_total(),
            "locked_shared": count.locked_shared(),
            "shared_lines": count.shared_lines(),
            "locked_by_function": count.locked,
        })
    });
    let gates = gates.iter().map(|gate| {
        let (at_most, at_least) = match gate.bound {
            Bound::AtMost(limit) => (Some(limit), None),
            Bound::AtLeast(limit) => (None, Some(limit)),
        };
        json!({
            "name": gate.name,
            "value": gate.value,
            "at_most": at_most,
            "at_least": at_least,
            "met": gate.is_met(),
        })
    });
    let whole = json!({
        "rounds": report.rounds,
        "requests": report.requests,
        "http": rows(&report.http),
        "stdio": rows(&report.stdio),
        "counts": counts.collect::<Vec<_>>(),
        "gates": gates.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&whole)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(interquartile_range(&[5.0, 1.0, 4.0, 2.0, 3.0]), (2.0, 4.0));
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let row = |name: &str, cpu_us: &[f64]| TimedResult {
            cpu_us: cpu_us.to_vec(),
            ..TimedResult::new(name.into())
        };
        let http = vec![row("http floor m26", &[10.0, 20.0]), row("http spile m26 call", &[12.0, 25.0])];
        let report = Report { http, ..Report::new(2, 1) };
        assert_eq!(report.ratios("http spile m26 call", "http floor m26"), Some(vec![1.2, 1.25]));
        assert_eq!(report.ratios("http rmcp m26 call", "http floor m26"), None);
    }
}
