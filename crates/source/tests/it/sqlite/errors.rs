//! Messages for a database that cannot be read. SQLite's own text and the folder go to the log.

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
    for error in faults {
        let error = error.expect("an error");
        assert_eq!(error_text(&error), expected, "{error:?}");
    }
}

#[test]
fn a_missing_file_is_an_error_and_is_not_created() {
    let folder = tempfile::tempdir().expect("a folder");
    check(&folder.path().join("shop.db"), "`shop.db` was not found; check the path");
    check(&folder.path().join("no/shop.db"), "`shop.db` was not found; check the path");
    // SQLite would take this for a URI that creates a file.
    check(Path::new("file:shop.db?mode=rwc"), "`file:shop.db?mode=rwc` was not found; check the path");
    check(Path::new(":memory:"), "`:memory:` was not found; check the path");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_file_that_is_not_a_database_is_an_error() {
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

/// Opening a pipe without a writer must not block.
#[cfg(unix)]
#[test]
fn a_pipe_is_an_error_and_does_not_block() {
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
    // Nor if it replaces a database that was open.
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let table = super::kit::TestTable::new(&db, "t");
    std::fs::remove_file(&db.path).expect("gone");
    assert!(std::process::Command::new("mkfifo").arg(&db.path).status().expect("mkfifo").success());
    assert_eq!(table.create(&[("id", ValueRef::Integer(1))]), no_file);
}

#[test]
fn a_database_without_tables_is_an_error() {
    let db = TestDb::new("CREATE TABLE t(a); DROP TABLE t");
    check(&db.path, "`shop.db` has no tables; is it the right file?");
    let db =
        TestDb::new("CREATE VIRTUAL TABLE places USING rtree(id, x, y); INSERT INTO places VALUES(1, 2, 3)");
    check(
        &db.path,
        "no table of `shop.db` can be served: `places` is not served: it is a virtual table (rtree); copy its rows \
         into a table",
    );
    let db = TestDb::new(
        "CREATE VIRTUAL TABLE docs USING fts5(body, content=''); CREATE VIEW v AS SELECT * FROM gone",
    );
    let error = db.source().introspect().expect_err("an error");
    assert!(error_text(&error).ends_with(", and 1 more"), "{error:?}");
}

const HUGE: &str = "INSERT INTO huge VALUES(1, zeroblob(70000000)), (2, x'00')";

#[test]
fn a_value_that_is_too_large_leaves_out_only_its_table() {
    let db = TestDb::new("CREATE TABLE small(id INTEGER PRIMARY KEY); INSERT INTO small VALUES(1)");
    db.execute(&format!("CREATE TABLE huge(id INTEGER PRIMARY KEY, v BLOB); {HUGE}"));
    let facts = db.facts();
    assert_eq!(facts.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["small"]);
    let reason = "it has a value that exceeds the limit of 64 MiB";
    assert_eq!(
        (facts.skipped_tables[0].table.as_str(), facts.skipped_tables[0].reason.as_str()),
        ("huge", reason)
    );
    assert_eq!(facts.skipped_tables[0].to_string(), format!("`huge` is not served: {reason}"));
    // A large value that comes later is an error of the calls that meet it.
    let db =
        TestDb::new("CREATE TABLE huge(id INTEGER PRIMARY KEY, v BLOB); INSERT INTO huge VALUES(9, x'00')");
    let (_, reader) = db.reader("huge");
    db.execute(HUGE);
    let error = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("an error");
    assert!(matches!(error, SourceError::Incompatible { .. }), "{error:?}");
    assert_eq!(error_text(&error), "`shop.db` has a value that exceeds the limit of 64 MiB; make it smaller");
    assert!(get(reader.as_ref(), &[ValueRef::Integer(2)]).expect("a result").is_some());
}

#[test]
fn a_damaged_database_is_an_error() {
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
    // Half of the file is missing.
    std::fs::write(&db.path, &bytes[..4096]).expect("a file");
    check(&db.path, damaged);
}

#[test]
fn a_locked_database_is_busy_until_it_is_unlocked() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1)");
    let (_, reader) = db.reader("t");
    let writer = db.connect();
    writer.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    check(&db.path, "the data is locked by another writer; try again");
    let error = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect_err("an error");
    assert!(matches!(error, SourceError::Busy { .. }), "{error:?}");
    writer.execute_batch("COMMIT").expect("released");
    assert!(get(reader.as_ref(), &[ValueRef::Integer(1)]).expect("a result").is_some());
}

#[cfg(unix)]
#[test]
fn a_wal_database_in_a_read_only_folder_is_an_error() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let response = "`shop.db` is in WAL mode, and the files `shop.db-wal` and `shop.db-shm` can be neither read nor \
                created beside it; allow writing to its folder, or copy it with `VACUUM INTO`";
    let new = || TestDb::new("PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let db = new();
    symlink("nowhere", db.folder.path().join("shop.db-shm")).expect("a link");
    check(&db.path, response);
    let db = new();
    let mode = |bits| std::fs::set_permissions(db.folder.path(), std::fs::Permissions::from_mode(bits));
    mode(0o555).expect("read only");
    // Root may write to every folder.
    if std::fs::write(db.folder.path().join("other"), b"").is_err() {
        check(&db.path, response);
    }
    mode(0o755).expect("writable");
}

#[test]
fn a_deleted_file_is_an_error_until_it_is_back() {
    let db = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'old')");
    let (_, reader) = db.reader("t");
    let other = TestDb::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'new')");
    std::fs::remove_file(&db.path).expect("removed");
    let error = loop {
        if let Err(error) = get(reader.as_ref(), &[ValueRef::Integer(1)]) {
            break error;
        }
    };
    assert!(matches!(error, SourceError::Unavailable { .. }), "{error:?}");
    assert_eq!(error_text(&error), "`shop.db` was not found; check the path");
    std::fs::rename(&other.path, &db.path).expect("renamed");
    let row = get(reader.as_ref(), &[ValueRef::Integer(1)]).expect("a result").expect("a row");
    assert_eq!(super::kit::format_value(&row[1]), "'new'");
}

#[test]
fn messages_contain_no_path_and_no_sqlite_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    std::fs::write(&path, b"garbage".repeat(999)).expect("a file");
    let error = Sqlite::new(&path, Options::default()).introspect().expect_err("an error");
    let SourceError::Incompatible { message: response, detail: log } = error else { panic!("{error:?}") };
    let secret = folder.path().to_string_lossy().into_owned();
    assert!(!response.contains(&secret) && log.contains(&secret));
    assert!(!response.contains("file is not a database") && log.contains("file is not a database"));
}

/// Each level doubles the tables: the seventh joins 128.
#[test]
fn a_view_of_too_many_tables_is_left_out_with_the_reason() {
    let mut parts = vec!["a0 AS (SELECT * FROM t)".to_owned()];
    for level in 1..=7 {
        let of = level - 1;
        parts.push(format!("a{level} AS (SELECT x.id, y.n FROM a{of} x JOIN a{of} y ON x.id = y.id)"));
    }
    let view = format!("CREATE VIEW deep AS WITH {} SELECT * FROM a7", parts.join(", "));
    let db = TestDb::new(&format!("CREATE TABLE t(id INTEGER PRIMARY KEY, n); {view};"));
    let facts = db.source().introspect().expect("facts");
    let left_out: Vec<String> = facts.skipped_tables.iter().map(ToString::to_string).collect();
    let [only] = &left_out[..] else { panic!("{left_out:?}") };
    assert!(only.starts_with("`deep` is not served: SQLite cannot run its query: "), "{only}");
}
