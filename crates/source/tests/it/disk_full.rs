//! Disks without room: the system refuses in the middle of a write, and nothing has happened.
//!
//! This binary starts itself again under a shell that limits how large a file may be. A write beyond that is cut short
//! and then refused, as it is on a disk that is full.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;

use contract::ValueRef;
use contract::source::{RowChange, Source, WriteRequest};
use source::csv::{Csv, Options};

use crate::csv::kit::shape;
use crate::write_checks::{RecordingChecks, idempotency_key, outcome_text};

const PATH: &str = "SPILE_FULL_PATH";
const TOO_LARGE: &str =
    "`rows.csv` cannot be written, nothing was changed: it would be larger than a file may be here";

/// Runs one of the parts below where a file has at most 16 blocks: 8 KB.
fn run_with_file_limit(part: &str, path: &Path) {
    let binary = std::env::current_exe().unwrap();
    // A signal that is ignored stays so in whatever is started.
    let script = r#"trap '' XFSZ; ulimit -f 16; exec "$0" --exact "$1" --nocapture"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(binary).arg(format!("disk_full::{part}")).env(PATH, path);
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn create(csv: &Csv, id: i64, with_claim: Option<u8>) -> String {
    let writer = csv.writer(&shape(csv)).unwrap();
    let cells = [(0, ValueRef::Integer(id)), (1, ValueRef::Text("text"))];
    let change = RowChange::Create { values: &cells };
    let write = WriteRequest {
        change,
        idempotency_key: with_claim.map(idempotency_key),
        dry_run: false,
        now_ms: 1,
        cancelled: None,
    };
    outcome_text(writer.write(&write, &mut RecordingChecks::default()))
}

/// Not a test of its own.
#[test]
fn large_file() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let csv = Csv::open(Path::new(&path), Options::default());
    assert_eq!(create(&csv, 1, None), TOO_LARGE);
    assert_eq!(create(&csv, 1, Some(1)), TOO_LARGE);
}

#[test]
fn the_file_is_as_it_was_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let content = format!("id,text\n0,{}\n", "x".repeat(20_000));
    std::fs::write(&path, &content).unwrap();
    run_with_file_limit("large_file", &path);
    assert_eq!(
        (std::fs::read_to_string(&path).unwrap(), file_names(folder.path())),
        (content, vec!["rows.csv".into()])
    );
}

/// Not a test of its own.
#[test]
fn many_claims() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let csv = Csv::open(Path::new(&path), Options::default());
    let full = (1..=100).find(|number| match create(&csv, i64::from(*number), Some(*number)).as_str() {
        "done" => false,
        other => {
            assert_eq!(other, TOO_LARGE);
            true
        }
    });
    let full = full.expect("claims take room");
    assert!(full > 10, "there was room for some");
    // It was not done, and what was done is known.
    assert_eq!(create(&csv, i64::from(full), Some(full)), TOO_LARGE);
    assert_eq!(create(&csv, 1, Some(1)), "replayed 1|text");
    assert_eq!(create(&csv, i64::from(full), None), "done");
}

#[test]
fn a_claim_for_which_there_is_no_room_is_not_made_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "id,text\n0,first\n").unwrap();
    run_with_file_limit("many_claims", &path);
    assert_eq!(file_names(folder.path()), [".rows.csv.spile-claims", "rows.csv"]);
    // With room again, everything is as if there always had been.
    let csv = Csv::open(&path, Options::default());
    assert_eq!(create(&csv, 1, Some(1)), "replayed 1|text");
    assert_eq!(create(&csv, 200, Some(200)), "done");
    assert_eq!(create(&csv, 200, Some(200)), "replayed 200|text");
}
