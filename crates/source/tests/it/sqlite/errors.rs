//! What is told when a database cannot be read. The driver's words and the folder are for the log.

use std::path::Path;

use contract::ValueRef;
use contract::source::{Source, SourceError};
use source::sqlite::{Options, Sqlite};

use super::kit::{TestDb, error_text, get};

fn check(path: &Path, expected: &str) {
    let source = Sqlite::new(path, Options::default());
    let faults = [
        source.introspect().err(),
        Sqlite::open(path, Options::default()).and_then(|s| s.introspect()).err(),
    ];
    for fault in faults {
        let fault = fault.expect("a fault");
        assert_eq!(error_text(&fault), expected, "{fault:?}");
    }
}

#[test]
fn a_file_that_is_missing_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    check(&folder.path().join("shop.db"), "`shop.db` is not there; check the path");
    check(&folder.path().join("no/shop.db"), "`shop.db` is not there; check the path");
    // With SQLite's own rules this would be a URI that makes a file.
    check(Path::new("file:shop.db?mode=rwc"), "`file:shop.db?mode=rwc` is not there; check the path");
    check(Path::new(":memory:"), "`:memory:` is not there; check the path");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn what_is_no_database_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let garbage: Vec<u8> = (0..8192_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let no_database = "`shop.db` is not an SQLite database, or it is encrypted; check the path";
    for bytes in [&b"id,name\n1,Ann\n".repeat(99)[..], &garbage, &b"SQLite format 4\0".repeat(99)[..]] {
        std::fs::write(&path, bytes).expect("a file");
        check(&path, no_database);
    }
    std::fs::write(&path, b"").expect("a file");
    check(&path, "`shop.db` has no tables; is it the right file?");
    check(
        folder.path(),
        &format!(
            "`{}` is a folder, not a database",
            folder.path().file_name().expect("a name").to_string_lossy()
        ),
    );
}

/// Nobody waits for a pipe that nobody writes to.
#[cfg(unix)]
#[test]
fn what_is_no_file_says_so_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let no_file = "`shop.db` is not a file; give the path of a database";
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    check(&path, no_file);
    std::fs::remove_file(&path).expect("gone");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    check(&path, no_file);
    check(Path::new("/dev/zero"), "`zero` is not a file; give the path of a database");
    // Nor where a database was when it was opened.
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let desk = super::kit::TestTable::new(&db, "t");
    std::fs::remove_file(&db.path).expect("gone");
    assert!(std::process::Command::new("mkfifo").arg(&db.path).status().expect("mkfifo").success());
    assert_eq!(desk.create(&[("id", ValueRef::Integer(1))]), no_file);
}

#[test]
fn a_database_without_tables_says_so() {
    let db = TestDb::new("CREATE TABLE t(a); DROP TABLE t");
    check(&db.path, "`shop.db` has no tables; is it the right file?");
    let db =
        TestDb::new("CREATE VIRTUAL TABLE places USING rtree(id, x, y); INSERT INTO places VALUES(1, 2, 3)");
    check(
        &db.path,
        "`shop.db` has no tables that can be read: `places` is not served: it is a virtual table (rtree); copy what it \
         holds into a table",
    );
    let db = TestDb::new(
        "CREATE VIRTUAL TABLE docs USING fts5(body, content=''); CREATE VIEW v AS SELECT * FROM gone",
    );
    let fault = db.source().introspect().expect_err("a fault");
    assert!(error_text(&fault).ends_with(", and 1 more"), "{fault:?}");
}

const HUGE: &str = "INSERT INTO huge VALUES(1, zeroblob(70000000)), (2, x'00')";

#[test]
fn a_value_that_is_too_large_costs_its_table_and_no_other() {
    let db = TestDb::new("CREATE TABLE small(id INTEGER PRIMARY KEY); INSERT INTO small VALUES(1)");
    db.execute(&format!("CREATE TABLE huge(id INTEGER PRIMARY KEY, v BLOB); {HUGE}"));
    let facts = db.facts();
    assert_eq!(facts.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["small"]);
    let why = "it has a value of more than 64 MiB, and larger ones are not read";
    assert_eq!(
        (facts.skipped_tables[0].table.as_str(), facts.skipped_tables[0].reason.as_str()),
        ("huge", why)
    );
    assert_eq!(facts.skipped_tables[0].to_string(), format!("`huge` is not served: {why}"));
    // One that comes later is told by the calls that meet it.
    let db =
        TestDb::new("CREATE TABLE huge(id INTEGER PRIMARY KEY, v BLOB); INSERT INTO huge VALUES(9, x'00')");
    let (_, reader) = db.reader("huge");
    db.execute(HUGE);
    let fault = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("a fault");
    assert!(matches!(fault, SourceError::Incompatible { .. }), "{fault:?}");
    assert_eq!(
        error_text(&fault),
        "`shop.db` has a value of more than 64 MiB, and larger ones are not read; make it smaller"
    );
    assert!(get(reader.as_ref(), &[ValueRef::Integer(2)]).expect("no fault").is_some());
}

#[test]
fn a_damaged_database_says_so() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'a')");
    let (_, reader) = db.reader("t");
    let mut bytes = std::fs::read(&db.path).expect("bytes");
    let damaged = "`shop.db` is damaged; restore a backup, or run `.recover` on a copy of it";
    bytes[4096..].fill(0xAA);
    std::fs::write(&db.path, &bytes).expect("a file");
    check(&db.path, damaged);
    drop(reader);
    let source = Sqlite::new(&db.path, Options::default());
    assert!(
        matches!(source.introspect(), Err(SourceError::Incompatible { .. })),
        "it can be read, and holds nothing"
    );
    // Half of it is missing.
    std::fs::write(&db.path, &bytes[..4096]).expect("a file");
    check(&db.path, damaged);
}

#[test]
fn a_locked_database_is_busy_and_then_is_not() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1)");
    let (_, reader) = db.reader("t");
    let writer = db.connect();
    writer.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    check(&db.path, "the source is busy; try again");
    let fault = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("a fault");
    assert!(matches!(fault, SourceError::Busy { .. }), "{fault:?}");
    writer.execute_batch("COMMIT").expect("released");
    assert!(get(reader.as_ref(), &[ValueRef::Integer(1)]).expect("no fault").is_some());
}

#[cfg(unix)]
#[test]
fn a_log_that_cannot_be_kept_is_an_error_and_not_ignored() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let told = "`shop.db` is in WAL mode, and the files `shop.db-wal` and `shop.db-shm` can be neither read nor \
                made beside it; allow writing to its folder, or copy it with `VACUUM INTO`";
    let new = || TestDb::new("PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let db = new();
    symlink("nowhere", db.folder.path().join("shop.db-shm")).expect("a link");
    check(&db.path, told);
    let db = new();
    let mode = |bits| std::fs::set_permissions(db.folder.path(), std::fs::Permissions::from_mode(bits));
    mode(0o555).expect("read only");
    // The administrator may write to every folder.
    if std::fs::write(db.folder.path().join("other"), b"").is_err() {
        check(&db.path, told);
    }
    mode(0o755).expect("writable");
}

#[test]
fn a_file_that_goes_away_is_missed_and_comes_back() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'old')");
    let (_, reader) = db.reader("t");
    let other = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'new')");
    std::fs::remove_file(&db.path).expect("removed");
    let fault = loop {
        if let Err(fault) = get(reader.as_ref(), &[ValueRef::Integer(1)]) {
            break fault;
        }
    };
    assert!(matches!(fault, SourceError::Unavailable { .. }), "{fault:?}");
    assert_eq!(error_text(&fault), "`shop.db` is not there; check the path");
    std::fs::rename(&other.path, &db.path).expect("renamed");
    let row = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect("no fault").expect("a row");
    assert_eq!(super::kit::format_value(&row[1]), "'new'");
}

#[test]
fn what_is_told_holds_no_path_and_no_words_of_the_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    std::fs::write(&path, b"garbage".repeat(999)).expect("a file");
    let fault = Sqlite::new(&path, Options::default()).introspect().expect_err("a fault");
    let SourceError::Incompatible { message: told, detail: log } = fault else { panic!("{fault:?}") };
    let secret = folder.path().to_string_lossy().into_owned();
    assert!(!told.contains(&secret) && log.contains(&secret));
    assert!(!told.contains("file is not a database") && log.contains("file is not a database"));
}
