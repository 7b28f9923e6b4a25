//! The floor of reading a CSV file: the `csv` crate parses it once and keeps nothing.
//!
//! `bare-csv FILE` prints the number of fields.
#![allow(clippy::print_stdout, reason = "a command-line tool: its output is its product")]

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("expected a FILE")?;
    let mut reader = csv::Reader::from_path(&file).with_context(|| format!("cannot read `{file}`"))?;
    let mut record = csv::ByteRecord::new();
    let mut fields = 0;
    while reader.read_byte_record(&mut record)? {
        fields += record.len();
    }
    println!("{fields}");
    Ok(())
}
