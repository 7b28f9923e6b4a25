//! Loads a CSV of many rows and compares with a bare scan of the same file in the same process.
//!
//! `cargo run --release -p source --example csv_load -- 1000000`
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use contract::source::{Filter, More, Query, Reader, Shape, ShapeColumn, Sort, Source, TableFacts, Test};
use contract::{Cell, Value};
use source::csv::{Csv, Options};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;

fn main() -> Fallible<()> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |rows| rows.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("people.csv");
    generate(&path, rows, 0)?;
    let bytes = std::fs::metadata(&path)?.len();
    println!("file           {:>8.1} MB, {rows} rows", mb(bytes));

    let mut bare = Duration::MAX;
    let mut load = Duration::MAX;
    for _ in 0..ROUNDS {
        bare = bare.min(timed(|| scan(&path))?.0);
        load = load.min(timed(|| open(&path))?.0);
    }
    println!("bare csv scan  {:>8.1} ms", ms(bare));
    println!("load           {:>8.1} ms, {:.2}x", ms(load), ms(load) / ms(bare));

    let before = memory("VmRSS:")?;
    let (csv, reader) = open(&path)?;
    println!(
        "at rest        {:>8.1} MB, {:.2}x the file",
        mb(memory("VmRSS:")? - before),
        part(before, bytes, "VmRSS:")?
    );
    reads(reader.as_ref(), rows)?;
    println!(
        "with orders    {:>8.1} MB, {:.2}x the file",
        mb(memory("VmRSS:")? - before),
        part(before, bytes, "VmRSS:")?
    );

    // A reload, with the old state still answering.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let other = folder.path().join("other.csv");
    generate(&other, rows, 1)?;
    std::fs::rename(&other, &path)?;
    let key = [Cell::Text("user0@example.com")];
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(25));
    reader.get(&key, &mut |_| {})?;
    csv.wait();
    println!("reload         {:>8.1} ms in the background", ms(begun.elapsed()) - 25.0);
    println!(
        "peak of it     {:>8.1} MB, {:.2}x the file",
        mb(memory("VmHWM:")? - before),
        part(before, bytes, "VmHWM:")?
    );
    Ok(())
}

fn reads(reader: &dyn Reader, rows: u64) -> Fallible<()> {
    let keys: Vec<String> = (0..100_000).map(|i| format!("user{}@example.com", mixed(i, rows))).collect();
    let (took, found) = timed(|| {
        let mut found = 0_u64;
        for key in &keys {
            found += u64::from(reader.get(&[Cell::Text(key)], &mut |cells| {
                black_box(cells);
            })?);
        }
        Ok(found)
    })?;
    println!("keyed read     {:>8.0} ns, {found} found", took.as_nanos() as f64 / keys.len() as f64);
    let list = |name: &str, query: &Query<'_>| -> Fallible<()> {
        let (took, total) = timed(|| {
            Ok(reader.list(query, &mut |cells, _| {
                black_box(cells);
                More::Yes
            })?)
        })?;
        println!("{name:<14} {:>8.2} ms, total {total:?}", ms(took));
        Ok(())
    };
    let sort = |column, descending| Some(Sort { column, descending });
    let page = || Query { rows_max: 50, ..Query::default() };
    list("key order", &page())?;
    list("again", &page())?;
    list("by plan", &Query { sort: sort(2, false), ..page() })?;
    list("by date", &Query { sort: sort(3, true), ..page() })?;
    list("by balance", &Query { sort: sort(4, true), ..page() })?;
    let last = contract::source::Position {
        sorted: Some(Value::Text("50000.00".to_owned())),
        key: vec![Value::Text("user500@example.com".to_owned())],
    };
    list("page of it", &Query { sort: sort(4, true), after: Some(&last), ..page() })?;
    let filter = Filter { column: 5, test: Test::AtLeast, value: Cell::Integer(900) };
    list("filter all", &Query { filters: vec![filter], rows_max: usize::MAX, ..Query::default() })?;
    let none = Filter { column: 2, test: Test::Equals, value: Cell::Text("gold") };
    list("filter none", &Query { filters: vec![none], rows_max: 50, ..Query::default() })
}

fn open(path: &Path) -> Fallible<(Csv, std::sync::Arc<dyn Reader>)> {
    let csv = Csv::open(path, Options::default());
    let mut facts = csv.facts()?;
    let shape = shape(facts.tables.remove(0));
    let reader = csv.reader(&shape)?;
    Ok((csv, reader))
}

fn shape(table: TableFacts) -> Shape {
    let columns = table.columns.into_iter().enumerate().map(|(at, column)| ShapeColumn {
        at,
        name: column.name,
        kind: column.kind,
        nullable: column.nullable,
        mixed: column.mixed,
        null: None,
    });
    Shape { table: table.name, columns: columns.collect(), key: table.key }
}

fn scan(path: &Path) -> Fallible<u64> {
    let mut reader = csv::ReaderBuilder::new().from_path(path)?;
    let mut record = csv::ByteRecord::new();
    let mut fields = 0;
    while reader.read_byte_record(&mut record)? {
        fields += record.len() as u64;
    }
    Ok(black_box(fields))
}

fn generate(path: &Path, rows: u64, salt: u64) -> io::Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    writeln!(out, "email,name,plan,signup_date,balance,visits")?;
    for i in 0..rows {
        let name = if i % 50 == 0 { format!("\"Doe, \"\"J\"\" {i}\"") } else { format!("Jane Doe {i}") };
        let plan = ["free", "emerald", "ruby"][(i + salt) as usize % 3];
        let (year, month, day) = (18 + i % 8, 1 + i % 12, 1 + i % 28);
        let (balance, cents, visits) = (i * 37 % 100_000, i % 100, i % 977);
        let user = mixed(i, rows);
        writeln!(
            out,
            "user{user}@example.com,{name},{plan},20{year:02}-{month:02}-{day:02},{balance}.{cents:02},{visits}"
        )?;
    }
    out.flush()
}

/// Every number below `rows`, once each, in no order, if `rows` is no multiple of the prime.
fn mixed(i: u64, rows: u64) -> u64 {
    i.wrapping_mul(2_654_435_761) % rows
}

fn timed<T>(work: impl FnOnce() -> Fallible<T>) -> Fallible<(Duration, T)> {
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed(), done))
}

fn part(before: u64, bytes: u64, what: &str) -> Fallible<f64> {
    Ok((memory(what)? - before) as f64 / bytes as f64)
}

/// A line of the kernel's account of this process, in bytes.
fn memory(what: &str) -> Fallible<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)).ok_or("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
