//! SQLite itself: `peer-sqlite FILE` reads a statement per line and writes the number of its rows. After `rows ` before a
//! statement, its rows: as JSON, each value as a text.

use std::io::{BufRead, Write};

use anyhow::Context;
use rusqlite::Connection;
use rusqlite::types::Value;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("expected a database")?;
    let database = Connection::open(file)?;
    let mut out = std::io::stdout().lock();
    for statement in std::io::stdin().lock().lines() {
        let statement = statement?;
        if let Some(statement) = statement.strip_prefix("rows ") {
            writeln!(out, "{}", serde_json::to_string(&texts(&database, statement)?)?)?;
            out.flush()?;
            continue;
        }
        let mut statement = database.prepare_cached(&statement)?;
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

/// The rows of a statement.
fn texts(database: &Connection, statement: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let mut statement = database.prepare(statement)?;
    let columns = statement.column_count();
    let text = |value: Value| match value {
        Value::Null => "null".to_owned(),
        Value::Integer(n) => n.to_string(),
        Value::Real(n) => n.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{bytes:?}"),
    };
    let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at).map(text)).collect())?;
    Ok(rows.collect::<rusqlite::Result<Vec<Vec<String>>>>()?)
}
