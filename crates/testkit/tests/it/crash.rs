//! A few rounds of the crash test that `cargo xtask judges` runs for an hour.

use std::path::Path;

use testkit::crash_test::kill::{CrashTest, StorageFormat};
use testkit::crash_test::samples;

fn check(kept: StorageFormat) {
    let spile = Path::new(env!("CARGO_BIN_EXE_fixture")).with_file_name("spile");
    assert!(spile.exists(), "{} is missing: build it with `cargo build -p spile`", spile.display());
    let file = samples::initial_file(kept).expect("a file");
    let simulation = CrashTest {
        spile: &spile,
        format: kept,
        initial_file: &file,
        read_ids: &|path| samples::read_ids(kept, path),
        rounds: 6,
        seed: 7,
    };
    let tally = simulation.run().expect("nothing lost, nothing twice");
    assert!(tally.acknowledged >= 6, "{tally:?}");
}

#[test]
fn a_csv_file_survives_kills() {
    check(StorageFormat::Csv);
}

#[test]
fn a_workbook_survives_kills() {
    check(StorageFormat::Xlsx);
}

#[test]
fn a_database_survives_kills() {
    check(StorageFormat::Sqlite);
}

#[test]
fn json_lines_survive_kills() {
    check(StorageFormat::JsonLines);
}
