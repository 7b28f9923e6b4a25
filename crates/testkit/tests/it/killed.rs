//! A little of the game that `cargo xtask judges` plays for an hour.

use std::path::Path;

use testkit::judge::kill::{Game, Kept};
use testkit::judge::samples;

fn check(kept: Kept) {
    let spile = Path::new(env!("CARGO_BIN_EXE_fixture")).with_file_name("spile");
    assert!(spile.exists(), "{} is missing: build it with `cargo build -p spile`", spile.display());
    let file = samples::empty(kept).expect("a file");
    let game =
        Game { spile: &spile, kept, file: &file, read: &|path| samples::ids(kept, path), rounds: 6, seed: 7 };
    let tally = game.play().expect("nothing lost, nothing twice");
    assert!(tally.acknowledged >= 6, "{tally:?}");
}

#[test]
fn a_csv_file_survives() {
    check(Kept::Csv);
}

#[test]
fn a_workbook_survives() {
    check(Kept::Xlsx);
}

#[test]
fn a_database_survives() {
    check(Kept::Sqlite);
}

#[test]
fn json_lines_survive() {
    check(Kept::JsonLines);
}
