//! Measures questions about a million rows: `cargo run --release -p source --example aggregate [ROWS]`.
//!
//! Prints the CPU time of each question, the first time and again, over CSV and over SQLite. The file is left in the
//! folder that is printed first, so that other engines can be asked the same.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use contract::source::{
    Aggregate, AggregateFunction, Comparison, DateUnit, Filter, GROUPS_MAX, GroupColumn, Measure, Reader,
    Source, TableShape,
};
use contract::source::{ColumnShape, SourceError};
use contract::{DataType, ValueRef};
use source::csv::Csv;
use source::sqlite::{self, Sqlite};

const COLUMNS: [(&str, DataType); 7] = [
    ("id", DataType::Integer),
    ("status", DataType::Text),
    ("region", DataType::Text),
    ("customer", DataType::Text),
    ("quantity", DataType::Integer),
    ("total", DataType::Decimal),
    ("ordered_on", DataType::Date),
];

/// What it is called, and its parts.
type Question<'q> = (&'static str, Vec<Filter<'q>>, Vec<GroupColumn<'q>>, Vec<Measure<'q>>);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |rows| rows.parse())?;
    let folder = std::env::temp_dir().join("spile-aggregate");
    std::fs::create_dir_all(&folder)?;
    println!("{}", folder.display());
    let (csv, database) = (folder.join("orders.csv"), folder.join("orders.db"));
    write_rows(rows, &csv, &database)?;
    let columns = COLUMNS.iter().enumerate().map(|(at, (name, data_type))| ColumnShape {
        source_index: at,
        name: (*name).to_owned(),
        data_type: *data_type,
        nullable: false,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    });
    let shape = TableShape { table: "orders".into(), columns: columns.collect(), key: vec![0] };
    let csv = Csv::open(&csv, source::csv::Options::default());
    measure("csv", &csv.reader(&shape)?)?;
    let sqlite = Sqlite::new(&database, sqlite::Options::default());
    measure("sqlite", &sqlite.reader(&shape)?)?;
    Ok(())
}

fn write_rows(rows: u64, csv: &Path, database: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let _ = std::fs::remove_file(database);
    let mut connection = rusqlite::Connection::open(database)?;
    connection.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, region TEXT, customer TEXT, quantity INTEGER, total NUMERIC, \
         ordered_on TEXT)",
    )?;
    let mut text = String::from("id,status,region,customer,quantity,total,ordered_on\n");
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        let mut random = 42_u64;
        for id in 0..rows {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = |shift: u32, count: u64| (random >> shift) % count;
            let status = ["paid", "open", "cancelled", "returned"][pick(33, 4) as usize];
            let region = format!("region {}", pick(37, 50));
            let customer = format!("customer {}", pick(24, 90_000));
            let (quantity, cents) = (pick(41, 100), pick(20, 1_000_000));
            let total = format!("{}.{:02}", cents / 100, cents % 100);
            let day = format!("{}-{:02}-{:02}", 2023 + pick(45, 3), 1 + pick(48, 12), 1 + pick(52, 28));
            writeln!(text, "{id},{status},{region},{customer},{quantity},{total},{day}")?;
            insert.execute(rusqlite::params![
                id.cast_signed(),
                status,
                region,
                customer,
                quantity.cast_signed(),
                total,
                day
            ])?;
        }
    }
    transaction.commit()?;
    std::fs::write(csv, text)?;
    Ok(())
}

fn measure(name: &str, reader: &Arc<dyn Reader>) -> Result<(), SourceError> {
    let of = |function, column| Measure::Of { function, column };
    let by = |column, unit| GroupColumn { unit, ..GroupColumn::new(column) };
    let paid = Filter::new(1, Comparison::Equals, ValueRef::Text("paid"));
    let sum_total = of(AggregateFunction::Sum, 5);
    let questions: [Question<'_>; 10] = [
        ("count", vec![], vec![], vec![Measure::Count]),
        ("count where", vec![paid], vec![], vec![Measure::Count]),
        ("sum of integers", vec![], vec![], vec![of(AggregateFunction::Sum, 4)]),
        ("by status", vec![], vec![by(1, None)], vec![Measure::Count, of(AggregateFunction::Sum, 4)]),
        (
            "by region",
            vec![],
            vec![by(2, None)],
            vec![Measure::Count, sum_total, of(AggregateFunction::Avg, 5)],
        ),
        ("by month, paid", vec![paid], vec![by(6, Some(DateUnit::Month)), by(2, None)], vec![sum_total]),
        ("by customer", vec![], vec![by(3, None)], vec![Measure::Count, sum_total]),
        ("amounts by region", vec![], vec![by(2, None)], vec![of(AggregateFunction::Distinct, 5)]),
        ("different ids", vec![], vec![], vec![of(AggregateFunction::Distinct, 0)]),
        ("sum of the paid", vec![paid], vec![], vec![of(AggregateFunction::Sum, 4)]),
    ];
    for (label, filters, groups, measures) in questions {
        let question =
            Aggregate { filters, groups, measures, groups_max: GROUPS_MAX, ..Aggregate::default() };
        let mut times = Vec::new();
        for _ in 0..4 {
            let start = cpu_ms();
            let groups = reader.aggregate(&question)?.rows.len();
            times.push(format!("{:.1}", cpu_ms() - start));
            assert!(groups > 0, "there are rows");
        }
        println!("{name:8} {label:16} {} ms", times.join(", "));
    }
    Ok(())
}

/// The CPU time of this thread, which runs every question.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).map_or(f64::NAN, |ns: f64| ns / 1e6)
}
