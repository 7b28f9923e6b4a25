//! Loads JSON Lines of many records, and says how long that takes and how much memory they keep.
//!
//! `cargo run --release -p source --example json_load -- 1000000`
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

use contract::source::{
    Change, Clerk, More, Query, Shape, ShapeColumn, Sort, Source, Stale, Unwritable, Write,
};
use contract::{Cell, Value};
use source::json::{self, Form, Options};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

struct Nobody;

impl Clerk for Nobody {
    fn before(&mut self, _: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        Ok(Vec::new())
    }

    fn after(&mut self, _: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        Ok(Vec::new())
    }
}

fn main() -> Fallible<()> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |rows| rows.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("people.jsonl");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    for i in 0..rows {
        let (plan, score) = (["free", "emerald", "ruby"][i as usize % 3], i % 1000);
        writeln!(
            file,
            r#"{{"email":"user{i}@example.com","plan":"{plan}","score":{score}.5,"n":{i},"day":"2026-02-28"}}"#
        )?;
    }
    file.flush()?;
    drop(file);
    let bytes = std::fs::metadata(&path)?.len();
    println!("file           {:>8.1} MB, {rows} rows", mb(bytes));

    let before = resident()?;
    let json = json::open(&path, Options::new(Form::Lines));
    let (took, facts) = timed(|| Ok(json.facts()?))?;
    println!("load           {:>8.1} ms", ms(took));
    let table = &facts.tables[0];
    let columns = table.columns.iter().enumerate().map(|(at, column)| ShapeColumn {
        at,
        name: column.name.clone(),
        kind: column.kind,
        nullable: column.nullable,
        mixed: column.mixed,
        null: None,
    });
    let shape = Shape { table: table.name.clone(), columns: columns.collect(), key: table.key.clone() };
    let (took, reader) = timed(|| Ok(json.reader(&shape)?))?;
    println!("reader         {:>8.1} ms", ms(took));
    let kept = resident()?.saturating_sub(before);
    println!("at rest        {:>8.1} MB, {:.2}x the file", mb(kept), kept as f64 / bytes as f64);

    let keys: Vec<String> = (0..100_000).map(|i| format!("user{}@example.com", i * 7919 % rows)).collect();
    let (took, _) = timed(|| {
        for key in &keys {
            reader.get(&[Cell::Text(key)], &mut |cells| {
                black_box(cells);
            })?;
        }
        Ok(())
    })?;
    println!("keyed read     {:>8.0} ns", took.as_nanos() as f64 / keys.len() as f64);
    for (name, sort) in [("by key", None), ("by score", Some(Sort { column: 2, descending: true }))] {
        let query = Query { sort, rows_max: 100, ..Query::default() };
        let (first, _) = timed(|| Ok(reader.list(&query, &mut |_, _| More::Yes)?))?;
        let (again, _) = timed(|| Ok(reader.list(&query, &mut |_, _| More::Yes)?))?;
        println!("{name:<14} {:>8.1} ms, then {:.3} ms", ms(first), ms(again));
    }
    let writer = json.writer(&shape)?;
    let change =
        Change::Update { key: &[Cell::Text("user5@example.com")], cells: &[(1, Cell::Text("ruby"))] };
    let write = Write { change, claim: None, dry_run: false, now_ms: 0, stop: None };
    let (took, _) = timed(|| Ok(writer.write(&write, &mut Nobody)?))?;
    println!("one update     {:>8.1} ms", ms(took));
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> Fallible<T>) -> Fallible<(Duration, T)> {
    let begun = Instant::now();
    let done = run()?;
    Ok((begun.elapsed(), done))
}

/// Bytes of memory that this process has now.
fn resident() -> Fallible<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
