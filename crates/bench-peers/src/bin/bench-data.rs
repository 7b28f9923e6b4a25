//! Generates the data that the bench serves. Not a server.
//!
//! `bench-data customers FOLDER` writes `customers.csv` and `customers.db`, the table that every peer serves.
//! `bench-data orders FOLDER ROWS` writes `orders.csv` and `orders.db`, for questions about many rows.
//! `bench-data wide FILE ROWS` writes a CSV file of six columns, unordered, with some quoted fields.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use bench_peers::{CUSTOMERS, Customer, PLANS};
use rusqlite::Connection;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["customers", folder] => {
            let folder = Path::new(folder);
            customers_csv(&folder.join("customers.csv"))?;
            customers_db(&folder.join("customers.db"))
        }
        ["orders", folder, rows] => orders(Path::new(folder), rows.parse().context("ROWS is not a number")?),
        ["wide", file, rows] => wide(Path::new(file), rows.parse().context("ROWS is not a number")?),
        _ => bail!("expected `customers FOLDER`, `orders FOLDER ROWS` or `wide FILE ROWS`"),
    }
}

fn customers_csv(file: &Path) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    writeln!(out, "email,plan,signup_date")?;
    for Customer { email, plan, signup_date } in (0..CUSTOMERS).map(Customer::from_index) {
        writeln!(out, "{email},{plan},{signup_date}")?;
    }
    Ok(out.flush()?)
}

fn customers_db(file: &Path) -> anyhow::Result<()> {
    let mut database = Connection::open(file)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = database.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE customers (
             email TEXT NOT NULL PRIMARY KEY, plan TEXT NOT NULL, signup_date TEXT NOT NULL)",
    )?;
    {
        let mut insert = transaction.prepare("INSERT INTO customers VALUES (?1, ?2, ?3)")?;
        for Customer { email, plan, signup_date } in (0..CUSTOMERS).map(Customer::from_index) {
            insert.execute([email, plan, signup_date])?;
        }
    }
    Ok(transaction.commit()?)
}

/// The same rows as a CSV file and as a database with a rollback journal, as most databases have.
fn orders(folder: &Path, rows: u64) -> anyhow::Result<()> {
    let mut out = BufWriter::new(File::create(folder.join("orders.csv"))?);
    writeln!(out, "id,status,region,customer,quantity,total,ordered_on")?;
    let mut database = Connection::open(folder.join("orders.db"))?;
    let transaction = database.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE orders (
             id INTEGER PRIMARY KEY, status TEXT NOT NULL, region TEXT NOT NULL, customer TEXT NOT NULL,
             quantity INTEGER NOT NULL, total NUMERIC NOT NULL, ordered_on TEXT NOT NULL)",
    )?;
    {
        let mut insert = transaction.prepare("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        let mut random = 42_u64;
        for id in 0..rows {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = |shift: u32, count: u64| (random >> shift) % count;
            let status = ["paid", "open", "cancelled", "returned"][pick(33, 4) as usize];
            let (region, customer) =
                (format!("region {}", pick(37, 50)), format!("customer {}", pick(24, 90_000)));
            let (quantity, cents) = (pick(41, 100), pick(20, 1_000_000));
            let total = format!("{}.{:02}", cents / 100, cents % 100);
            let day = format!("{}-{:02}-{:02}", 2023 + pick(45, 3), 1 + pick(48, 12), 1 + pick(52, 28));
            writeln!(out, "{id},{status},{region},{customer},{quantity},{total},{day}")?;
            let (id, quantity) = (id.cast_signed(), quantity.cast_signed());
            insert.execute(rusqlite::params![id, status, region, customer, quantity, total, day])?;
        }
    }
    transaction.commit()?;
    Ok(out.flush()?)
}

fn wide(file: &Path, rows: usize) -> anyhow::Result<()> {
    // A prime: if it does not divide the number of rows, every customer occurs once.
    const STRIDE: usize = 2_654_435_761;
    let mut out = BufWriter::new(File::create(file)?);
    writeln!(out, "email,name,plan,signup_date,balance,visits")?;
    for row in 0..rows {
        let customer = row.wrapping_mul(STRIDE) % rows;
        let (year, month, day) = (2018 + row % 8, 1 + row % 12, 1 + row % 28);
        let plan = PLANS[row % PLANS.len()].name;
        write!(out, "user{customer}@example.com,")?;
        match row % 50 {
            0 => write!(out, r#""Doe, ""J"" {row}""#)?,
            _ => write!(out, "Jane Doe {row}")?,
        }
        let (whole, part, visits) = (row * 37 % 100_000, row % 100, row % 977);
        writeln!(out, ",{plan},{year}-{month:02}-{day:02},{whole}.{part:02},{visits}")?;
    }
    Ok(out.flush()?)
}
