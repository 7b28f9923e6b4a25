//! How long a read by key takes: `sqlite_read [ROWS]`. Makes its own databases, one of each journal mode.
//!
//! `sqlite_read ROWS MODE KEY READS` does that many reads in one journal mode by `id` or `email` and nothing else,
//! for who counts instructions or system calls: a run with none says what the rest costs.

use std::io::Write;
use std::time::Instant;

use contract::ValueRef;
use contract::source::{ColumnShape, Query, Reader, RowFlow, Sort, Source, TableShape};
use source::sqlite::{Options, Sqlite};

/// The best of many short runs is what a quiet machine would show.
const RUNS: u64 = 200;
const READS: u64 = 1_000;
const FILE: &str = "customers.db";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: u64 = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(100_000);
    let mut out = std::io::stdout();
    if let Some(mode) = std::env::args().nth(2) {
        let (folder, _writer) = database(&mode, rows)?;
        let source = Sqlite::open(&folder.path().join(FILE), Options::default())?;
        let key = usize::from(std::env::args().nth(3).is_some_and(|key| key == "email"));
        let reads: u64 = std::env::args().nth(4).and_then(|reads| reads.parse().ok()).unwrap_or(READS);
        let shape = TableShape { table: "customers".into(), columns: columns(&source)?, key: vec![key] };
        let reader = source.reader(&shape)?;
        let mut bytes = 0;
        for i in 0..reads {
            bytes += read(reader.as_ref(), key, i.wrapping_mul(2_654_435_761) % rows)?;
        }
        writeln!(out, "{mode:7} {reads} reads ({bytes} bytes)")?;
        return Ok(());
    }
    for mode in ["DELETE", "WAL"] {
        let (folder, _writer) = database(mode, rows)?;
        let source = Sqlite::open(&folder.path().join(FILE), Options::default())?;
        let start = Instant::now();
        let columns = columns(&source)?;
        writeln!(out, "{mode:7} facts of {rows} rows  {:9.1} ms", start.elapsed().as_secs_f64() * 1e3)?;
        for (name, key) in [("id", 0), ("email", 1)] {
            let shape = TableShape { table: "customers".into(), columns: columns.clone(), key: vec![key] };
            let reader = source.reader(&shape)?;
            let mut bytes = 0;
            let mut best = f64::MAX;
            for run in 0..RUNS {
                let start = Instant::now();
                for i in 0..READS {
                    bytes +=
                        read(reader.as_ref(), key, (run * READS + i).wrapping_mul(2_654_435_761) % rows)?;
                }
                best = best.min(start.elapsed().as_nanos() as f64 / READS as f64);
            }
            writeln!(out, "{mode:7} get by {name:15} {best:9.0} ns  ({bytes} bytes)")?;
        }
        let shape = TableShape { table: "customers".into(), columns, key: vec![0] };
        let reader = source.reader(&shape)?;
        for (name, sort) in [("by key", None), ("by signup", Some(Sort { column: 3, descending: true }))] {
            let query = Query { sort: sort.into_iter().collect(), rows_max: 50, ..Query::default() };
            let mut best = f64::MAX;
            for _ in 0..RUNS / 10 {
                let start = Instant::now();
                reader.list(&query, &mut |_, _| RowFlow::Continue)?;
                best = best.min(start.elapsed().as_secs_f64() * 1e6);
            }
            writeln!(out, "{mode:7} list of 50 {name:11} {best:9.1} µs")?;
        }
    }
    Ok(())
}

/// The writer is handed over too: WAL files that nobody has open go away.
fn database(
    mode: &str,
    rows: u64,
) -> Result<(tempfile::TempDir, rusqlite::Connection), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let writer = rusqlite::Connection::open(folder.path().join(FILE))?;
    writer.execute_batch(&format!(
        "PRAGMA journal_mode = {mode};
         CREATE TABLE customers(id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, plan TEXT, signup TEXT);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {rows} - 1)
         INSERT INTO customers SELECT i, 'user' || i || '@example.com', 'free',
             date('2020-01-01', '+' || (i % 2000) || ' days') FROM n;"
    ))?;
    Ok((folder, writer))
}

fn columns(source: &Sqlite) -> Result<Vec<ColumnShape>, Box<dyn std::error::Error>> {
    let facts = source.introspect()?;
    let columns = facts.tables[0].columns.iter().enumerate().map(|(at, column)| ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: column.mixed,
        null_texts: Vec::new(),
        format: None,
    });
    Ok(columns.collect())
}

fn read(reader: &dyn Reader, key: usize, id: u64) -> Result<usize, Box<dyn std::error::Error>> {
    let mut bytes = 0;
    let email = format!("user{id}@example.com");
    let asked = if key == 0 { ValueRef::Integer(i64::try_from(id)?) } else { ValueRef::Text(&email) };
    reader.get(&[asked], &mut |cells| {
        for cell in cells {
            if let ValueRef::Text(text) = cell {
                bytes += text.len();
            }
        }
    })?;
    Ok(bytes)
}
