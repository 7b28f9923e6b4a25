//! Loads a file of many rows, and prints how long it takes and how much memory it needs.
//!
//! `cargo run --release -p source --example load -- csv 1000000`, and likewise `jsonl`, `json` and `xlsx`. A
//! CSV file is compared with a plain scan of the same file in the same process.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ValueRef;
use contract::manifest::WorkbookFormat;
use contract::source::{
    ColumnShape, Comparison, CursorPosition, Filter, Query, Reader, RowChange, RowFlow, Sort, Source,
    TableShape, TransactionOptions,
};
use source::csv::{self as delimited, Csv};
use source::json::{self, JsonLayout};
use source::{TableFile, sheets};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;
const COLUMNS: [&str; 6] = ["email", "name", "plan", "signup_date", "balance", "visits"];
const PLAN: usize = 2;
const DATE: usize = 3;
const BALANCE: usize = 4;
const VISITS: usize = 5;

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "csv".to_owned());
    let rows: u64 = args.next().map_or(Ok(100_000), |rows| rows.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(format!("people.{kind}"));
    write(&kind, &path, rows, 0)?;
    let bytes = std::fs::metadata(&path)?.len();
    println!("file           {:>8.1} MB, {rows} rows", mb(bytes));

    let before = memory("VmRSS:")?;
    let held = |name: &str, what: &str| -> Fallible<()> {
        let more = memory(what)?.saturating_sub(before);
        println!("{name:<14} {:>8.1} MB, {:.2}x the file", mb(more), more as f64 / bytes as f64);
        Ok(())
    };
    let (file, shape, reader) = open(&kind, &path)?;
    held("at rest", "VmRSS:")?;
    reads(reader.as_ref(), rows)?;
    held("with orders", "VmRSS:")?;
    let key = [ValueRef::Text("user5@example.com")];
    let change = RowChange::Update { key: &key, values: &[(PLAN, ValueRef::Text("gold"))] };
    let (took, ()) = timed(|| {
        let writer = file.source().writer(&shape)?;
        let mut transaction = writer.begin(&TransactionOptions::default())?;
        transaction.apply(&change)?;
        Ok(transaction.commit()?)
    })?;
    println!("one update     {:>8.1} ms", ms(took));

    // A reload, while reads still see the old snapshot.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let other = folder.path().join("other");
    write(&kind, &other, rows, 1)?;
    std::fs::rename(&other, &path)?;
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(25));
    reader.get(&key, &mut |_| {})?;
    file.wait();
    println!("reload         {:>8.1} ms in the background", ms(begun.elapsed()) - 25.0);
    held("peak of it", "VmHWM:")?;
    drop((file, reader));

    let least = |run: &dyn Fn() -> Fallible<()>| -> Fallible<Duration> {
        let times = (0..ROUNDS).map(|_| timed(run).map(|(took, ())| took));
        times.collect::<Fallible<Vec<_>>>()?.into_iter().min().ok_or("no rounds".into())
    };
    let load = least(&|| open(&kind, &path).map(drop))?;
    println!("load           {:>8.1} ms", ms(load));
    if kind == "csv" {
        let bare = least(&|| scan(&path))?;
        println!("bare csv scan  {:>8.1} ms, so a load takes {:.2}x", ms(bare), ms(load) / ms(bare));
    }
    Ok(())
}

fn reads(reader: &dyn Reader, rows: u64) -> Fallible<()> {
    let keys: Vec<String> = (0..100_000).map(|i| email(i, rows)).collect();
    let (took, found) = timed(|| {
        let mut found = 0_u64;
        for key in &keys {
            found += u64::from(reader.get(&[ValueRef::Text(key)], &mut |cells| {
                black_box(cells);
            })?);
        }
        Ok(found)
    })?;
    println!("keyed read     {:>8.0} ns, {found} found", took.as_nanos() as f64 / keys.len() as f64);
    // Where the page ends.
    let list = |name: &str, query: &Query<'_>| -> Fallible<CursorPosition> {
        let mut last = CursorPosition { sort_values: Vec::new(), key: Vec::new() };
        let (took, total) = timed(|| {
            Ok(reader.list(query, &mut |cells, _| {
                last.sort_values = query.sort.iter().map(|sort| cells[sort.column].to_value()).collect();
                last.key = vec![cells[0].to_value()];
                RowFlow::Continue
            })?)
        })?;
        println!("{name:<14} {:>8.2} ms, total {total:?}", ms(took));
        Ok(last)
    };
    let by = |column, descending| Query {
        sort: vec![Sort { column, descending }],
        rows_max: 50,
        ..Query::default()
    };
    list("key order", &Query { rows_max: 50, ..Query::default() })?;
    list("again", &Query { rows_max: 50, ..Query::default() })?;
    list("by plan", &by(PLAN, false))?;
    list("by date", &by(DATE, true))?;
    let last = list("by balance", &by(BALANCE, true))?;
    list("page of it", &Query { after: Some(&last), ..by(BALANCE, true) })?;
    let filter = Filter::new(VISITS, Comparison::AtLeast, ValueRef::Integer(900));
    list("filter all", &Query { filters: vec![filter], rows_max: usize::MAX, ..Query::default() })?;
    let none = Filter::new(PLAN, Comparison::Equals, ValueRef::Text("gold"));
    list("filter none", &Query { filters: vec![none], rows_max: 50, ..Query::default() })?;
    Ok(())
}

enum File {
    Csv(Csv),
    Rows(TableFile),
}

impl File {
    fn source(&self) -> &dyn Source {
        match self {
            Self::Csv(csv) => csv,
            Self::Rows(rows) => rows,
        }
    }

    fn wait(&self) {
        match self {
            Self::Csv(csv) => csv.wait_for_reload(),
            Self::Rows(rows) => rows.wait_for_reload(),
        }
    }
}

fn open(kind: &str, path: &Path) -> Fallible<(File, TableShape, Arc<dyn Reader>)> {
    let file = match kind {
        "csv" => File::Csv(Csv::open(path, delimited::Options::default())),
        "jsonl" => File::Rows(json::open(path, json::Options::new(JsonLayout::Lines))),
        "json" => File::Rows(json::open(path, json::Options::new(JsonLayout::Document { pointer: None }))),
        "xlsx" => File::Rows(sheets::open(path, sheets::Options::new(WorkbookFormat::Xlsx))),
        other => return Err(format!("no such kind: {other}").into()),
    };
    let table = file.source().introspect()?.tables.remove(0);
    let columns = table.columns.into_iter().enumerate().map(|(at, column)| ColumnShape {
        source_index: at,
        name: column.name,
        data_type: column.data_type,
        nullable: column.nullable,
        mixed: column.mixed,
        null_texts: Vec::new(),
        format: None,
    });
    let shape = TableShape { table: table.name, columns: columns.collect(), key: table.key };
    let reader = file.source().reader(&shape)?;
    Ok((file, shape, reader))
}

struct Person {
    email: String,
    name: String,
    plan: &'static str,
    date: (u16, u8, u8),
    balance: f64,
    visits: u64,
}

fn people(rows: u64, salt: u64) -> impl Iterator<Item = Person> {
    (0..rows).map(move |i| Person {
        email: email(i, rows),
        name: if i % 50 == 0 { format!("Doe, \"J\" {i}") } else { format!("Jane Doe {i}") },
        plan: ["free", "emerald", "ruby"][(i + salt) as usize % 3],
        date: (2018 + (i % 8) as u16, 1 + (i % 12) as u8, 1 + (i % 28) as u8),
        balance: (i * 37 % 100_000) as f64 + (i % 100) as f64 / 100.0,
        visits: i % 977,
    })
}

/// Every number below `rows`, once each, in scattered order, unless `rows` is a multiple of the prime.
fn email(i: u64, rows: u64) -> String {
    format!("user{}@example.com", i.wrapping_mul(2_654_435_761) % rows)
}

fn write(kind: &str, path: &Path, rows: u64, salt: u64) -> Fallible<()> {
    if kind == "xlsx" {
        return write_workbook(path, rows, salt);
    }
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let (begin, between, end) = match kind {
        "csv" => (COLUMNS.join(",") + "\n", "\n", "\n"),
        "json" => ("[".to_owned(), ",\n", "]\n"),
        _ => (String::new(), "\n", "\n"),
    };
    write!(out, "{begin}")?;
    for (i, Person { email, name, plan, date: (year, month, day), balance, visits }) in
        people(rows, salt).enumerate()
    {
        write!(out, "{}", if i == 0 { "" } else { between })?;
        if kind == "csv" {
            let name = if name.contains('"') { format!("\"{}\"", name.replace('"', "\"\"")) } else { name };
            write!(out, "{email},{name},{plan},{year}-{month:02}-{day:02},{balance:.2},{visits}")?;
        } else {
            let name = name.escape_default();
            write!(
                out,
                r#"{{"email":"{email}","name":"{name}","plan":"{plan}","signup_date":"{year}-{month:02}-{day:02}","balance":{balance},"visits":{visits}}}"#
            )?;
        }
    }
    write!(out, "{end}")?;
    Ok(out.flush()?)
}

fn write_workbook(path: &Path, rows: u64, salt: u64) -> Fallible<()> {
    let mut book = rust_xlsxwriter::Workbook::new();
    let format = rust_xlsxwriter::Format::new().set_num_format("yyyy-mm-dd");
    let sheet = book.add_worksheet();
    sheet.write_row(0, 0, COLUMNS)?;
    for (at, Person { email, name, plan, date: (year, month, day), balance, visits }) in
        (1..).zip(people(rows, salt))
    {
        sheet.write(at, 0, email)?;
        sheet.write(at, 1, name)?;
        sheet.write(at, 2, plan)?;
        let date = rust_xlsxwriter::ExcelDateTime::from_ymd(year, month, day)?;
        sheet.write_datetime_with_format(at, 3, &date, &format)?;
        sheet.write(at, 4, balance)?;
        sheet.write(at, 5, visits as f64)?;
    }
    Ok(book.save(path)?)
}

fn scan(path: &Path) -> Fallible<()> {
    let mut reader = csv::ReaderBuilder::new().from_path(path)?;
    let mut record = csv::ByteRecord::new();
    let mut fields = 0;
    while reader.read_byte_record(&mut record)? {
        fields += record.len() as u64;
    }
    black_box(fields);
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> Fallible<T>) -> Fallible<(Duration, T)> {
    let begun = Instant::now();
    let done = run()?;
    Ok((begun.elapsed(), done))
}

/// A line of `/proc/self/status`, in bytes.
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
