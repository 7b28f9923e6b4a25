//! Writers that are killed at any instant: no acknowledged write is lost, none is applied twice, and the file
//! is never half written.
//!
//! This binary starts itself again, twice at a time on one file. Each writer creates and deletes rows with
//! idempotency keys, and prints which writes were acknowledged. Both are killed; then the test compares the
//! file with the output, and repeats the interrupted writes with their keys.
//!
//! `SPILE_KILL_ROUNDS` sets the number of rounds. A writable source takes part by a line in [`open`] and a
//! test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use contract::ValueRef;
use contract::source::{
    IdempotencyKey, Query, Reader, RowChange, RowFlow, Source, SourceError, TableShape, WriteError, Writer,
};

use crate::driver::{WriteOutcome, WriteRequest, WriteRow};
use crate::write_checks::RecordingChecks;

const PATH: &str = "SPILE_KILL_PATH";
const FROM: &str = "SPILE_KILL_FROM";
/// How many writes a writer makes if it is not killed. For manual runs.
const WRITES: &str = "SPILE_KILL_WRITES";
const ROUNDS: &str = "SPILE_KILL_ROUNDS";
const ROUNDS_IN_CI: usize = 20;
/// The numbers of one writer; the other's start after them. The first must create a row.
const NUMBERS_MAX: i64 = 999_999;

fn open(path: &Path) -> Arc<dyn Source> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Arc::new(source::csv::Csv::open(path, source::csv::Options::default())),
        other => panic!("nobody knows {other:?}"),
    }
}

fn shape(source: &dyn Source) -> TableShape {
    let table = source.introspect().unwrap().tables.remove(0);
    assert_eq!(table.read_only_reason(), None);
    TableShape { key: vec![0], ..crate::shape::shape_of(&table) }
}

/// The nth step of a writer: it creates a row, and after some of them deletes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create(i64),
    Delete(i64),
}

fn step(number: i64) -> Step {
    if number % 3 == 2 { Step::Delete(number - 1) } else { Step::Create(number) }
}

fn write_step(writer: &dyn Writer, number: i64) -> Result<WriteOutcome, WriteError> {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.to_le_bytes());
    let repeat_key = Some(IdempotencyKey { key_digest: id, request_digest: id });
    let text = format!("row {number}, \"quoted\"");
    let (cells, key);
    let change = match step(number) {
        Step::Create(number) => {
            cells = [(0, ValueRef::Integer(number)), (1, ValueRef::Text(&text))];
            RowChange::Create { values: &cells }
        }
        Step::Delete(number) => {
            key = [ValueRef::Integer(number)];
            RowChange::Delete { key: &key }
        }
    };
    writer.write(
        &WriteRequest { change, idempotency_key: repeat_key, dry_run: false, now_ms: 1, cancelled: None },
        &mut RecordingChecks::default(),
    )
}

/// Not a test of its own: the child process.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let from: i64 = std::env::var(FROM).unwrap().parse().unwrap();
    let source = open(Path::new(&path));
    let writer = source.writer(&shape(source.as_ref())).unwrap();
    let mut stdout = std::io::stdout();
    let writes = std::env::var(WRITES).map_or(i64::MAX, |writes| writes.parse().unwrap());
    for number in from..from.saturating_add(writes) {
        loop {
            match write_step(writer.as_ref(), number) {
                Ok(_) => break,
                Err(WriteError::Source(SourceError::Busy { .. })) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        writeln!(stdout, "\ndone {number}").and_then(|()| stdout.flush()).unwrap();
    }
}

fn start(path: &Path, from: i64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::writer", "--nocapture"]).env(PATH, path).env(FROM, from.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn random_below(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

/// Waits for some number of writes, kills the writer during the next one, and returns the last acknowledged
/// number.
fn kill_after(mut child: Child, writes: u64) -> Option<i64> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut last = None;
    let mut answer = |line: &str| {
        last = line.strip_prefix("done ").map(|number| number.trim().parse().unwrap()).or(last);
    };
    let mut line = String::new();
    let mut seen = 0;
    while seen < writes {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "a writer ends only by being killed");
        answer(&line);
        seen += u64::from(line.starts_with("done "));
    }
    // Not a wait for anything: it varies the instant of the kill.
    std::thread::sleep(Duration::from_micros(random_below(25_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had printed by then counts, whole lines only.
    line.clear();
    while stdout.read_line(&mut line).unwrap() > 0 {
        if line.ends_with('\n') {
            answer(&line);
        }
        line.clear();
    }
    last
}

fn numbers(reader: &dyn Reader) -> BTreeSet<i64> {
    let mut found = BTreeSet::new();
    let query = Query { rows_max: usize::MAX, ..Query::default() };
    let total = reader.list(&query, &mut |cells, _| {
        let number = match cells[0] {
            ValueRef::Text(text) => text.parse().unwrap(),
            ValueRef::Integer(number) => number,
            other => panic!("{other:?}"),
        };
        let ValueRef::Text(text) = cells[1] else { panic!("{:?}", cells[1]) };
        assert!(number == 0 || text == format!("row {number}, \"quoted\""), "{text}");
        assert!(found.insert(number), "{number} is there twice");
        RowFlow::Continue
    });
    total.unwrap();
    found
}

fn check_crash_safety(path: &Path) {
    let rounds = std::env::var(ROUNDS).map_or(ROUNDS_IN_CI, |rounds| rounds.parse().unwrap());
    let mut expected = BTreeSet::from([0]);
    let mut next = [1, NUMBERS_MAX + 1];
    let (mut unsaid, mut unsaid_done) = (0, 0);
    for round in 0..rounds {
        let children = next.map(|from| start(path, from));
        let done = children.map(|child| kill_after(child, 1 + random_below(4)));
        let source = open(path);
        let shape = shape(source.as_ref());
        let reader = source.reader(&shape).unwrap();
        let writer = source.writer(&shape).unwrap();
        let apply = |expected: &mut BTreeSet<i64>, number| match step(number) {
            Step::Create(number) => expected.insert(number),
            Step::Delete(number) => expected.remove(&number),
        };
        for (next, done) in next.iter_mut().zip(done) {
            let behind = done.map_or(*next, |done| done + 1);
            (*next..behind).for_each(|number| assert!(apply(&mut expected, number)));
            *next = behind;
        }
        // Acknowledged writes are there. An interrupted write is there completely, or not at all.
        let found = numbers(reader.as_ref());
        for number in next {
            let mut with = expected.clone();
            apply(&mut with, number);
            let touched = match step(number) {
                Step::Create(number) | Step::Delete(number) => number,
            };
            let is_done = found.contains(&touched) == with.contains(&touched);
            if is_done {
                expected = with;
            }
            // Repeated, it is applied once.
            let written = write_step(writer.as_ref(), number);
            match (is_done, &written) {
                (true, Ok(WriteOutcome::Replayed(_))) | (false, Ok(WriteOutcome::Done)) => {}
                _ => panic!("round {round}, {:?}: was it done: {is_done}; now: {written:?}", step(number)),
            }
            if !is_done {
                apply(&mut expected, number);
            }
            unsaid += 1;
            unsaid_done += usize::from(is_done);
        }
        assert_eq!(numbers(reader.as_ref()), expected, "round {round}");
        next = next.map(|number| number + 1);
    }
    eprintln!("{rounds} rounds, {unsaid} writes under way, {unsaid_done} of them done");
}

#[test]
fn a_csv_file_survives_killed_writers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "id,text\r\n0,\"first, of all\"\r\n").unwrap();
    check_crash_safety(&path);
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [".rows.csv.spile-idempotency", "rows.csv"], "nobody leaves anything behind");
}
