//! SQLite itself: `peer-sqlite FILE` reads a statement per line and writes the number of its rows.

use std::io::{BufRead, Write};

use anyhow::Context;
use rusqlite::Connection;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("expected a database")?;
    let database = Connection::open(file)?;
    let mut out = std::io::stdout().lock();
    for statement in std::io::stdin().lock().lines() {
        let mut statement = database.prepare_cached(&statement?)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut count = 0_u64;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                std::hint::black_box(row.get_ref(column)?);
            }
            count += 1;
        }
        writeln!(out, "{count}")?;
        out.flush()?;
    }
    Ok(())
}
