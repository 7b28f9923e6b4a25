//! Full disks: the system refuses in the middle of a write, and nothing has changed.
//!
//! This binary starts itself again under a shell that limits the file size. A larger write is cut short and
//! then refused, as on a full disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;

use contract::ValueRef;
use contract::source::{RowChange, Source};
use source::csv::{Csv, Options};

use crate::csv::kit::shape;
use crate::driver::{WriteRequest, WriteRow};
use crate::write_checks::{RecordingChecks, idempotency_key, outcome_text};

const PATH: &str = "SPILE_FULL_PATH";
const TOO_LARGE: &str =
    "cannot write `rows.csv`, nothing was changed: it would exceed the system's limit on file sizes";

/// Runs one of the parts below with a limit of 16 blocks (8 KB) per file.
fn run_with_file_limit(part: &str, path: &Path) {
    let binary = std::env::current_exe().unwrap();
    // An ignored signal stays ignored in child processes.
    let script = r#"trap '' XFSZ; ulimit -f 16; exec "$0" --exact "$1" --nocapture"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(binary).arg(format!("disk_full::{part}")).env(PATH, path);
    let output = shell.output().unwrap();
    let answer = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{answer}");
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn create(csv: &Csv, id: i64, with_key: Option<u8>) -> String {
    let writer = csv.writer(&shape(csv)).unwrap();
    let cells = [(0, ValueRef::Integer(id)), (1, ValueRef::Text("text"))];
    let change = RowChange::Create { values: &cells };
    let write = WriteRequest {
        change,
        idempotency_key: with_key.map(idempotency_key),
        dry_run: false,
        now_ms: 1,
        cancelled: None,
    };
    outcome_text(writer.write(&write, &mut RecordingChecks::default()))
}

/// Not a test of its own: the child process.
#[test]
fn large_file() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let csv = Csv::open(Path::new(&path), Options::default());
    assert_eq!(create(&csv, 1, None), TOO_LARGE);
    assert_eq!(create(&csv, 1, Some(1)), TOO_LARGE);
}

#[test]
fn a_full_disk_leaves_the_file_unchanged() {
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

/// Not a test of its own: the child process.
#[test]
fn many_keys() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let csv = Csv::open(Path::new(&path), Options::default());
    let full = (1..=100).find(|number| match create(&csv, i64::from(*number), Some(*number)).as_str() {
        "done" => false,
        other => {
            assert_eq!(other, TOO_LARGE);
            true
        }
    });
    let full = full.expect("the log takes space");
    assert!(full > 10, "there was room for some");
    // The write was not applied, and the earlier ones are still known.
    assert_eq!(create(&csv, i64::from(full), Some(full)), TOO_LARGE);
    assert_eq!(create(&csv, 1, Some(1)), "replayed 1|text");
    assert_eq!(create(&csv, i64::from(full), None), "done");
}

#[test]
fn a_write_without_room_for_its_log_entry_is_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "id,text\n0,first\n").unwrap();
    run_with_file_limit("many_keys", &path);
    assert_eq!(file_names(folder.path()), [".rows.csv.spile-idempotency", "rows.csv"]);
    // With room again, everything works as before.
    let csv = Csv::open(&path, Options::default());
    assert_eq!(create(&csv, 1, Some(1)), "replayed 1|text");
    assert_eq!(create(&csv, 200, Some(200)), "done");
    assert_eq!(create(&csv, 200, Some(200)), "replayed 200|text");
}
