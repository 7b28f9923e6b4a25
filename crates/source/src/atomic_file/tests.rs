//! Tests of `AtomicFile` on a real folder, including the log entries that a killed process leaves.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use contract::source::{
    CancelFlag, IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, SourceError,
    TransactionOptions, WriteError,
};
use tempfile::TempDir;

use super::idempotency::{
    EntryOutcome, IdempotencyIndex, IdempotencyLog, IdempotencyLookup, outcome_line, pending_line,
};
use super::lock::FileLock;
use super::target::TargetFile;
use super::transaction::IdempotencyRecord;
use super::{AtomicFile, WaitDeadline};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

struct TestFolder {
    folder: TempDir,
    path: PathBuf,
}

impl TestFolder {
    fn new(content: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        std::fs::write(&path, content).unwrap();
        Self { folder, path }
    }

    fn file_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join(".data.csv.spile-idempotency")
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Leaves what a process leaves that is killed after it began a log entry.
    fn crash_after_begin(&self, number: u8, after: &[u8]) {
        let target = TargetFile::resolve(&self.path).unwrap();
        let before = target.read().unwrap();
        let mut known = IdempotencyIndex::default();
        let mut log = IdempotencyLog::open(&target, &mut known).unwrap();
        log.begin(&record(idempotency_key(number), after), &before, after, 0).unwrap();
    }
}

fn idempotency_key(number: u8) -> IdempotencyKey {
    IdempotencyKey { key_digest: [number; 32], request_digest: [7; 32] }
}

fn replace_options(number: impl Into<Option<u8>>) -> TransactionOptions {
    TransactionOptions {
        idempotency_key: number.into().map(idempotency_key),
        dry_run: false,
        now_ms: 0,
        cancelled: None,
        identity: None,
    }
}

/// How a write ended.
#[derive(Debug)]
enum WriteOutcome {
    Done,
    Replayed(Vec<u8>),
}

struct EditResult {
    bytes: Vec<u8>,
    response: Vec<u8>,
}

fn edit_result(bytes: &[u8]) -> EditResult {
    EditResult { bytes: bytes.to_vec(), response: response(bytes) }
}

fn record(key: IdempotencyKey, bytes: &[u8]) -> IdempotencyRecord {
    IdempotencyRecord { key, response: response(bytes) }
}

/// Replaces the file by what `edit` makes of it, as a writer does.
fn replace(
    atomic_file: &AtomicFile,
    options: &TransactionOptions,
    edit: impl FnOnce(&[u8]) -> Result<EditResult, WriteError>,
) -> Result<WriteOutcome, WriteError> {
    let mut transaction = atomic_file.begin(options)?;
    if let Some(key) = &options.idempotency_key
        && let Some(response) = transaction.find_response(key)?
    {
        return Ok(WriteOutcome::Replayed(response));
    }
    let EditResult { bytes, response } = edit(transaction.bytes())?;
    transaction.set_bytes(bytes)?;
    if options.dry_run {
        return Ok(WriteOutcome::Done);
    }
    if let Some(key) = &options.idempotency_key {
        transaction.store_response(key, &response)?;
    }
    transaction.commit().map(|()| WriteOutcome::Done)
}

fn response(bytes: &[u8]) -> Vec<u8> {
    [b"told\n\\n ", bytes].concat()
}

/// Appends `more` to the file.
fn append(
    atomic_file: &AtomicFile,
    options: &TransactionOptions,
    more: &[u8],
) -> Result<WriteOutcome, WriteError> {
    replace(atomic_file, options, |bytes| Ok(edit_result(&[bytes, more].concat())))
}

fn outcome_text(result: Result<WriteOutcome, WriteError>) -> String {
    match result {
        Ok(WriteOutcome::Done) => "done".into(),
        Ok(WriteOutcome::Replayed(message)) => {
            format!("replayed {}", String::from_utf8(message).unwrap().escape_debug())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_write_replaces_the_file_and_leaves_no_other_file() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(None), b"b")), "done");
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(None), b"c")), "done");
    assert_eq!((folder.content(), folder.file_names()), (b"abc".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn a_rejected_write_changes_nothing() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    let result = replace(&atomic_file, &replace_options(1), |_| Err(WriteError::NotFound));
    assert_eq!(outcome_text(result), "no row has this key");
    assert_eq!((folder.content(), folder.file_names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn a_write_with_an_idempotency_key_is_applied_once() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), "done");
    // Every repetition, in any process, gets the first response.
    for atomic_file in [&atomic_file, &AtomicFile::new(&folder.path)] {
        assert_eq!(outcome_text(append(atomic_file, &replace_options(1), b"b")), r"replayed told\n\\n ab");
        let other = IdempotencyKey { request_digest: [8; 32], ..idempotency_key(1) };
        let other = append(
            atomic_file,
            &TransactionOptions { idempotency_key: Some(other), ..replace_options(None) },
            b"b",
        );
        assert_eq!(outcome_text(other), "this idempotency key was already used for a different request");
    }
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(2), b"c")), "done");
    assert_eq!(folder.content(), b"abc");
    assert_eq!(folder.file_names(), [".data.csv.spile-idempotency", "data.csv"]);
}

#[test]
fn an_unchanged_file_still_records_the_idempotency_key() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    let modified = folder.path.metadata().unwrap().modified().unwrap();
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"")), "done");
    assert_eq!(folder.path.metadata().unwrap().modified().unwrap(), modified);
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"")), r"replayed told\n\\n a");
}

#[test]
fn a_dry_run_checks_everything_and_leaves_no_trace() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    let dry = |number| TransactionOptions { dry_run: true, ..replace_options(number) };
    assert_eq!(outcome_text(append(&atomic_file, &dry(1), b"b")), "done");
    assert_eq!(outcome_text(append(&atomic_file, &dry(1), b"b")), "done");
    assert_eq!((folder.content(), folder.file_names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), "done");
    let log = std::fs::read(folder.log_path()).unwrap();
    assert_eq!(outcome_text(append(&atomic_file, &dry(1), b"b")), r"replayed told\n\\n ab");
    assert_eq!(outcome_text(append(&atomic_file, &dry(2), b"c")), "done");
    assert_eq!(std::fs::read(folder.log_path()).unwrap(), log);
}

#[test]
fn a_pending_entry_is_resolved_by_the_file_contents() {
    let table: [(&[u8], &str, &[u8]); 3] = [
        // Killed before the rename.
        (b"a", "done", b"ab"),
        // Killed after the rename.
        (b"ab", r"replayed told\n\\n ab", b"ab"),
        // Killed after the rename, and then another program changed the file.
        (b"xy", "cannot determine whether this write was applied; read the row before trying again", b"xy"),
    ];
    for (found, expected, left) in table {
        for dry_first in [false, true] {
            let folder = TestFolder::new(b"a");
            folder.crash_after_begin(1, b"ab");
            std::fs::write(&folder.path, found).unwrap();
            let atomic_file = AtomicFile::new(&folder.path);
            if dry_first {
                assert_eq!(
                    outcome_text(append(
                        &atomic_file,
                        &TransactionOptions { dry_run: true, ..replace_options(1) },
                        b"b"
                    )),
                    expected
                );
            }
            assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), expected, "{found:?}");
            assert_eq!(folder.content(), left, "{found:?}");
            // It stays so whatever comes after, and only for this key.
            assert_eq!(outcome_text(append(&atomic_file, &replace_options(2), b"c")), "done");
            let again = if expected == "done" { r"replayed told\n\\n ab" } else { expected };
            assert_eq!(
                outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b")),
                again,
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_writer_without_a_key_resolves_pending_entries_too() {
    let folder = TestFolder::new(b"a");
    folder.crash_after_begin(1, b"ab");
    std::fs::write(&folder.path, b"ab").unwrap();
    let atomic_file = AtomicFile::new(&folder.path);
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(None), b"c")), "done");
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), r"replayed told\n\\n ab");
}

#[test]
fn a_torn_log_line_is_cut_off_at_any_byte() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    append(&atomic_file, &replace_options(1), b"b").unwrap();
    let first = std::fs::read(folder.log_path()).unwrap();
    append(&atomic_file, &replace_options(2), b"c").unwrap();
    let second = std::fs::read(folder.log_path()).unwrap();
    assert!(second.starts_with(&first));
    for length in (first.len()..second.len()).step_by(7).chain([second.len() - 1]) {
        std::fs::write(folder.log_path(), &second[..length]).unwrap();
        std::fs::write(&folder.path, b"abc").unwrap();
        let atomic_file = AtomicFile::new(&folder.path);
        assert_eq!(
            outcome_text(append(&atomic_file, &replace_options(1), b"b")),
            r"replayed told\n\\n ab",
            "{length}"
        );
        // The header was durable before the data file was replaced, so only a lying disk can cause this.
        let started = first.len() + second[first.len()..].iter().position(|byte| *byte == b'\n').unwrap();
        let expected = if length > started { r"replayed told\n\\n abc" } else { "done" };
        assert_eq!(outcome_text(append(&atomic_file, &replace_options(2), b"c")), expected, "{length}");
    }
    // Zeros, as file systems leave them after a crash.
    std::fs::write(folder.log_path(), [&first[..], &[0; 40]].concat()).unwrap();
    assert_eq!(
        outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b")),
        r"replayed told\n\\n ab"
    );
    assert_eq!(std::fs::read(folder.log_path()).unwrap(), first);
}

#[test]
fn a_damaged_log_is_not_trusted() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    append(&atomic_file, &replace_options(1), b"b").unwrap();
    append(&atomic_file, &replace_options(2), b"c").unwrap();
    let whole = std::fs::read(folder.log_path()).unwrap();
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    for damaged in [flipped, b"something else\n".to_vec(), [b"\n", &whole[..]].concat()] {
        std::fs::write(folder.log_path(), &damaged).unwrap();
        let atomic_file = AtomicFile::new(&folder.path);
        for number in [1, 3] {
            let error = append(&atomic_file, &replace_options(number), b"x").unwrap_err();
            assert!(matches!(&error, WriteError::Source(SourceError::Incompatible { .. })), "{error:?}");
            assert!(
                error.to_string().contains("write without an idempotency key, or ask the owner to delete"),
                "{error}"
            );
        }
        assert_eq!(outcome_text(append(&atomic_file, &replace_options(None), b"x")), "done");
        assert_eq!(std::fs::read(folder.log_path()).unwrap(), damaged);
    }
    std::fs::remove_file(folder.log_path()).unwrap();
    assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), "done");
}

#[test]
fn idempotency_keys_expire() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    let at = |number: u8, now_ms: u64| TransactionOptions { now_ms, ..replace_options(number) };
    append(&atomic_file, &at(1, 0), b"b").unwrap();
    assert_eq!(
        outcome_text(append(&atomic_file, &at(1, IDEMPOTENCY_RETENTION_MS), b"b")),
        r"replayed told\n\\n ab"
    );
    assert_eq!(outcome_text(append(&atomic_file, &at(1, IDEMPOTENCY_RETENTION_MS + 1), b"b")), "done");
    append(&atomic_file, &at(2, IDEMPOTENCY_RETENTION_MS + DAY_MS), b"c").unwrap();
    let size = std::fs::metadata(folder.log_path()).unwrap().len();
    // Expired entries are dropped.
    append(&atomic_file, &at(3, 3 * IDEMPOTENCY_RETENTION_MS), b"d").unwrap();
    assert!(std::fs::metadata(folder.log_path()).unwrap().len() < size);
    assert_eq!(
        outcome_text(append(&atomic_file, &at(3, 3 * IDEMPOTENCY_RETENTION_MS), b"d")),
        r"replayed told\n\\n abbcd"
    );
    // A clock that was set back drops nothing.
    assert_eq!(outcome_text(append(&atomic_file, &at(3, 0), b"d")), r"replayed told\n\\n abbcd");
    assert_eq!(folder.file_names(), [".data.csv.spile-idempotency", "data.csv"]);
}

#[test]
fn the_oldest_idempotency_keys_are_dropped_first() {
    let folder = TestFolder::new(b"a");
    let numbered = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_le_bytes());
        IdempotencyKey { key_digest: id, request_digest: [7; 32] }
    };
    let target = TargetFile::resolve(&folder.path).unwrap();
    let before = target.read().unwrap();
    let mut known = IdempotencyIndex::default();
    let mut log = IdempotencyLog::open(&target, &mut known).unwrap();
    let max = IDEMPOTENCY_RECORDS_MAX + IDEMPOTENCY_RECORDS_MAX / 4 + 2;
    log.record_unchanged(&record(numbered(0), b"a"), &before, 0).unwrap();
    // The entries that many processes would have written.
    let mut lines = Vec::new();
    for number in 1..max - 1 {
        let claim = numbered(number);
        lines.extend(pending_line(claim, [1; 32], [2; 32], &response(b"a"), 0));
        lines.extend(outcome_line(&claim.key_digest, EntryOutcome::Applied));
    }
    File::options().append(true).open(folder.log_path()).unwrap().write_all(&lines).unwrap();
    let mut log = IdempotencyLog::open(&target, &mut known).unwrap();
    log.record_unchanged(&record(numbered(max - 1), b"a"), &before, 0).unwrap();
    let mut known = IdempotencyIndex::default();
    let mut log = IdempotencyLog::open_read_only(&target, &mut known, b"a").unwrap();
    let mut is_known =
        |number| log.lookup(numbered(number), 0).unwrap() == IdempotencyLookup::Applied(response(b"a"));
    assert_eq!([0, max - IDEMPOTENCY_RECORDS_MAX - 2].map(&mut is_known), [false; 2]);
    assert_eq!([max - IDEMPOTENCY_RECORDS_MAX - 1, max - 1].map(&mut is_known), [true; 2]);
}

#[test]
fn a_response_with_a_key_is_bounded() {
    let folder = TestFolder::new(b"a");
    let atomic_file = AtomicFile::new(&folder.path);
    let large = || EditResult { bytes: b"b".to_vec(), response: vec![b'x'; super::RESPONSE_BYTES_MAX + 1] };
    let result = replace(&atomic_file, &replace_options(1), |_| Ok(large()));
    assert_eq!(outcome_text(result), "the row is too large for a write with an idempotency key");
    assert_eq!((folder.content(), folder.file_names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
    assert_eq!(outcome_text(replace(&atomic_file, &replace_options(None), |_| Ok(large()))), "done");
}

#[test]
fn a_concurrent_external_change_is_not_overwritten() {
    type Other = fn(&Path);
    let others: [Other; 4] = [
        // In place, with the same length.
        |path| std::fs::write(path, b"x").unwrap(),
        |path| std::fs::write(path, b"longer").unwrap(),
        // By another file in its place, even with the same content.
        |path| {
            std::fs::write(path.with_extension("new"), b"a").unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path| std::fs::remove_file(path).unwrap(),
    ];
    for (at, other) in others.iter().enumerate() {
        let folder = TestFolder::new(b"a");
        let atomic_file = AtomicFile::new(&folder.path);
        let result = replace(&atomic_file, &replace_options(1), |bytes| {
            other(&folder.path);
            Ok(edit_result(&[bytes, b"b"].concat()))
        });
        let found = std::fs::read(&folder.path).ok();
        let error = result.unwrap_err();
        match at {
            3 => assert!(error.to_string().contains("it was not found"), "{error}"),
            _ => assert!(matches!(error, WriteError::Source(SourceError::Busy { .. })), "{error:?}"),
        }
        assert_eq!(found.as_deref(), [&b"x"[..], b"longer", b"a"].get(at).copied());
        assert!(folder.file_names().iter().all(|name| !name.ends_with(".tmp") && !name.ends_with("-lock")));
        // The write was not applied, so it can be repeated.
        std::fs::write(&folder.path, b"a").unwrap();
        assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), "done", "{at}");
    }
}

#[test]
fn concurrent_writers_lose_no_change() {
    let folder = TestFolder::new(b"");
    let shared = AtomicFile::new(&folder.path);
    let replayed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (folder, shared, replayed) = (&folder, &shared, &replayed);
            scope.spawn(move || {
                // Some threads share an `AtomicFile`, some have their own, as another process would.
                let own = AtomicFile::new(&folder.path);
                let atomic_file = if thread.is_multiple_of(2) { shared } else { &own };
                for number in 0..10 {
                    // Two threads use the same keys.
                    let id = 10 * (thread / 2) + number;
                    let line = format!("{id}\n");
                    if let WriteOutcome::Replayed(_) =
                        append(atomic_file, &replace_options(id), line.as_bytes()).unwrap()
                    {
                        replayed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let content = String::from_utf8(folder.content()).unwrap();
    let mut lines: Vec<u8> = content.lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..20).collect::<Vec<u8>>());
    assert_eq!(replayed.into_inner(), 20);
    assert_eq!(folder.file_names(), [".data.csv.spile-idempotency", "data.csv"]);
}

#[test]
fn a_file_that_is_open_in_a_spreadsheet_program_is_not_written() {
    let excel = b"\x04Anna                                                  \x04\0A\0n\0n\0a\0";
    for (name, content, expected) in [
        ("~$data.csv", &excel[..], "Anna has it open in Excel"),
        ("~$data.csv", b"", "it is open in Excel"),
        (".~lock.data.csv#", b"Anna,anna,laptop,,;", "Anna on laptop has it open in LibreOffice"),
        (".~lock.data.csv#", b"x", "it is open in LibreOffice"),
    ] {
        let folder = TestFolder::new(b"a");
        let atomic_file = AtomicFile::new(&folder.path);
        let lock = folder.folder.path().join(name);
        std::fs::write(&lock, content).unwrap();
        let expected = format!(
            "cannot write `data.csv`: {expected}; nothing was changed. Close it and try again. If it is not open, delete \
             `{name}`"
        );
        for options in [replace_options(1), TransactionOptions { dry_run: true, ..replace_options(None) }] {
            let error = append(&atomic_file, &options, b"b").unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(matches!(error, WriteError::Source(SourceError::Unavailable { .. })), "{error:?}");
        }
        assert_eq!(folder.content(), b"a");
        // It may be open for reading only, so the source is not read-only.
        assert_eq!(atomic_file.read_only_reason(), None);
        std::fs::remove_file(&lock).unwrap();
        assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), "done");
    }
    // A lock file of another file does not matter.
    let folder = TestFolder::new(b"a");
    std::fs::write(folder.folder.path().join("~$other.csv"), b"").unwrap();
    assert_eq!(outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b")), "done");
}

#[test]
fn a_writer_that_cannot_get_the_lock_fails_as_busy() {
    let folder = TestFolder::new(b"a");
    let target = TargetFile::resolve(&folder.path).unwrap();
    let options = TransactionOptions::default();
    let at_once = || WaitDeadline { deadline: std::time::Instant::now(), options: &options };
    let held = FileLock::acquire(&target, at_once()).unwrap();
    let result = FileLock::acquire(&target, at_once());
    assert!(matches!(result.err(), Some(SourceError::Busy { .. })));
    drop(held);
    assert_eq!(folder.file_names(), ["data.csv"]);
}

#[test]
fn a_cancelled_write_is_not_applied() {
    for number in [None, Some(1)] {
        for more in [&b"b"[..], b""] {
            let folder = TestFolder::new(b"a");
            let atomic_file = AtomicFile::new(&folder.path);
            let stop = CancelFlag::new(AtomicBool::new(true));
            let options = TransactionOptions { cancelled: Some(stop.clone()), ..replace_options(number) };
            // The caller leaves before the write starts, and just before it is committed.
            for is_gone in [true, false] {
                stop.store(is_gone, Ordering::Relaxed);
                let ended = replace(&atomic_file, &options, |bytes| {
                    assert!(!is_gone, "nobody waits");
                    stop.store(true, Ordering::Relaxed);
                    Ok(edit_result(&[bytes, more].concat()))
                });
                assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{ended:?}");
                assert_eq!(
                    (folder.content(), folder.file_names()),
                    (b"a".to_vec(), vec!["data.csv".to_owned()])
                );
            }
            stop.store(false, Ordering::Relaxed);
            assert_eq!(outcome_text(append(&atomic_file, &options, more)), "done");
        }
    }
}

#[test]
fn a_cancelled_writer_stops_waiting_for_the_lock() {
    let folder = TestFolder::new(b"a");
    let target = TargetFile::resolve(&folder.path).unwrap();
    let held = FileLock::acquire(&target, WaitDeadline::of(&replace_options(None))).unwrap();
    let atomic_file = AtomicFile::new(&folder.path);
    let stop = CancelFlag::new(AtomicBool::new(false));
    let options = TransactionOptions { cancelled: Some(stop.clone()), ..replace_options(1) };
    let is_waited_for = || target.sidecar_path("lock").metadata().unwrap().len() > 0;
    std::thread::scope(|scope| {
        // One waits for the lock, and the other for its turn after the first.
        let both = [(); 2].map(|()| scope.spawn(|| append(&atomic_file, &options, b"b")));
        while !is_waited_for() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for one in both {
            let ended = one.join().unwrap();
            assert!(matches!(ended, Err(WriteError::Source(SourceError::Cancelled))), "{ended:?}");
        }
    });
    drop(held);
    assert_eq!((folder.content(), folder.file_names()), (b"a".to_vec(), vec!["data.csv".to_owned()]));
}

#[test]
fn stale_files_of_killed_writers_are_removed() {
    let folder = TestFolder::new(b"a");
    let theirs = ["data.csv.tmp", ".data.csv.spile-notes", ".other.csv.spile-0123.tmp"];
    let ours = [
        ".data.csv.spile-0123456789abcdef.tmp",
        ".data.csv.spile-idempotency-00.tmp",
        ".data.csv.spile-lock",
    ];
    let put = |names: &[&str]| {
        names.iter().for_each(|name| std::fs::write(folder.folder.path().join(name), b"half").unwrap());
    };
    put(&theirs);
    put(&ours);
    let atomic_file = AtomicFile::new(&folder.path);
    let mut expected = theirs.map(str::to_owned).to_vec();
    expected.push("data.csv".into());
    expected.sort();
    for _ in 0..2 {
        assert_eq!(outcome_text(append(&atomic_file, &replace_options(None), b"b")), "done");
        assert_eq!(folder.file_names(), expected);
        // Left by another process while this one runs.
        put(&ours);
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{AtomicFile, TestFolder, append, outcome_text, replace_options};

    #[test]
    fn a_symlink_stays_and_its_target_is_written() {
        let folder = TestFolder::new(b"a");
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link.csv");
        symlink(&folder.path, &link).unwrap();
        assert_eq!(outcome_text(append(&AtomicFile::new(&link), &replace_options(1), b"b")), "done");
        assert_eq!(
            outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b")),
            r"replayed told\n\\n ab"
        );
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(folder.content(), b"ab");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }

    #[test]
    fn mode_is_preserved() {
        for mode in [0o600, 0o640, 0o664, 0o755] {
            let folder = TestFolder::new(b"a");
            std::fs::set_permissions(&folder.path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b")),
                "done"
            );
            assert_eq!(folder.path.metadata().unwrap().mode() & 0o7777, mode);
            // Responses contain rows, so others must not read them either.
            assert_eq!(folder.log_path().metadata().unwrap().mode() & 0o7777, mode);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn extended_attributes_are_preserved() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let folder = TestFolder::new(b"a");
        // Not every file system supports extended attributes.
        if setxattr(&folder.path, "user.mark", b"red", XattrFlags::empty()).is_ok() {
            assert_eq!(
                outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(None), b"b")),
                "done"
            );
            let mut value = [0; 8];
            let length = getxattr(&folder.path, "user.mark", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"red");
        }
    }

    #[test]
    fn a_file_that_a_replacement_would_alter_is_not_written() {
        let check = |folder: &TestFolder, why: &str| {
            let atomic_file = AtomicFile::new(&folder.path);
            assert_eq!(atomic_file.read_only_reason().as_deref(), Some(why));
            let expected = format!("cannot write `data.csv`, nothing was changed: {why}");
            assert_eq!(outcome_text(append(&atomic_file, &replace_options(1), b"b")), expected);
            assert_eq!(folder.content(), b"a");
            assert!(folder.file_names().iter().all(|name| !name.starts_with('.')));
        };
        let folder = TestFolder::new(b"a");
        assert_eq!(AtomicFile::new(&folder.path).read_only_reason(), None);
        std::fs::hard_link(&folder.path, folder.folder.path().join("twin.csv")).unwrap();
        check(&folder, "it has hard links, which a new file would break");
        let folder = TestFolder::new(b"a");
        std::fs::set_permissions(&folder.path, Permissions::from_mode(0o444)).unwrap();
        check(&folder, "it is marked read-only");
        if !rustix::process::geteuid().is_root() {
            let folder = TestFolder::new(b"a");
            std::fs::set_permissions(folder.folder.path(), Permissions::from_mode(0o555)).unwrap();
            check(&folder, "the server has no permission to write its folder, where it creates the new file");
            std::fs::set_permissions(folder.folder.path(), Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn links_in_place_of_sidecar_files_are_refused() {
        for name in [".data.csv.spile-lock", ".data.csv.spile-idempotency"] {
            let folder = TestFolder::new(b"a");
            let victim = folder.folder.path().join("victim");
            std::fs::write(&victim, b"v").unwrap();
            symlink(&victim, folder.folder.path().join(name)).unwrap();
            let message = outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b"));
            assert_eq!(
                message,
                "cannot write `data.csv`, nothing was changed: the server's log has the reason under `ref`",
                "{name}"
            );
            assert_eq!((folder.content(), std::fs::read(&victim).unwrap()), (b"a".to_vec(), b"v".to_vec()));
        }
    }

    #[test]
    fn a_missing_file_is_reported() {
        let folder = TestFolder::new(b"a");
        std::fs::remove_file(&folder.path).unwrap();
        let message = outcome_text(append(&AtomicFile::new(&folder.path), &replace_options(1), b"b"));
        let expected = "cannot write `data.csv`, nothing was changed: it was not found; the server's owner can \
                        check its name, or put it back";
        assert_eq!(message, expected);
        let missing = folder.folder.path().join("gone/data.csv");
        assert_eq!(outcome_text(append(&AtomicFile::new(&missing), &replace_options(1), b"b")), expected);
    }

    /// `/dev/full` cannot be replaced, so a resource limit stands in for a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_system_limit_leaves_the_file_unchanged() {
        let folder = TestFolder::new(b"a");
        let long = "x".repeat(240);
        let path = folder.folder.path().join(format!("{long}.csv"));
        std::fs::write(&path, b"a").unwrap();
        // The name fits, but the names of the files next to it are too long.
        let message = outcome_text(append(&AtomicFile::new(&path), &replace_options(1), b"b"));
        assert!(
            message.ends_with("nothing was changed: the server's log has the reason under `ref`"),
            "{message}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"a");
    }
}
