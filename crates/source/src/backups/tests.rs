//! Copies and restores on a real folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::source::{ColumnShape, RowChange, Source, TableShape, TransactionOptions, Writer};
use contract::{DataType, ValueRef};
use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    AtomicFile, BACKUPS_MAX, Backup, BackupFolder, BackupPolicy, DAY_MS, LineChanges, RestoreError, list,
    parse_file_name, restore, version_id,
};
use crate::sqlite;

/// 2026-11-16T08:52:06.123Z
const NOW_MS: u64 = 1_794_819_126_123;

struct TestFile {
    folder: TempDir,
    path: PathBuf,
}

impl TestFile {
    fn new(content: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("data.csv");
        std::fs::write(&path, content).unwrap();
        Self { folder, path }
    }

    fn content(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    fn backup_folder(&self) -> PathBuf {
        self.folder.path().join(".data.csv.spile-backups")
    }

    /// Replaces the contents, as a writer does.
    fn write(&self, content: &str, now_ms: u64) -> Result<(), String> {
        let file = AtomicFile::new(&self.path).with_backups(BackupPolicy::Daily);
        let options = TransactionOptions { now_ms, ..TransactionOptions::default() };
        let mut transaction = file.begin(&options).map_err(|error| error.to_string())?;
        transaction.set_bytes(content.into()).map_err(|error| error.to_string())?;
        transaction.commit().map_err(|error| error.to_string())
    }

    /// The contents of all versions, newest first.
    fn versions(&self) -> Vec<String> {
        let versions = list(&self.path).unwrap();
        versions.iter().map(|version| std::fs::read_to_string(&version.path).unwrap()).collect()
    }

    fn version(&self, index: usize) -> Backup {
        list(&self.path).unwrap().remove(index)
    }
}

#[test]
fn only_the_first_write_of_a_day_keeps_a_copy() {
    let file = TestFile::new(b"a");
    file.write("ab", NOW_MS).unwrap();
    file.write("abc", NOW_MS + 1).unwrap();
    assert_eq!(file.versions(), ["a"]);
    assert_eq!(file.version(0).id, "2026-11-16T085206.123Z");
    let tomorrow = NOW_MS - NOW_MS % DAY_MS + DAY_MS;
    file.write("abcd", tomorrow - 1).unwrap();
    file.write("abcde", tomorrow).unwrap();
    assert_eq!(file.versions(), ["abcd", "a"]);
    assert_eq!(file.version(0).id, "2026-11-17T000000.000Z");
}

#[test]
fn a_write_that_changes_nothing_keeps_no_copy() {
    let file = TestFile::new(b"a");
    file.write("a", NOW_MS).unwrap();
    assert!(!file.backup_folder().exists());
    let off = AtomicFile::new(&file.path);
    let mut transaction = off.begin(&TransactionOptions::default()).unwrap();
    transaction.set_bytes(b"b".to_vec()).unwrap();
    transaction.commit().unwrap();
    assert!(!file.backup_folder().exists(), "copies are switched off");
}

/// The copy of a write that failed would pass for the day's copy.
#[test]
fn a_write_that_fails_leaves_no_copy() {
    let file = TestFile::new(b"a");
    let atomic_file = AtomicFile::new(&file.path).with_backups(BackupPolicy::Daily);
    let options = TransactionOptions { now_ms: NOW_MS, ..TransactionOptions::default() };
    let mut transaction = atomic_file.begin(&options).unwrap();
    transaction.set_bytes(b"ab".to_vec()).unwrap();
    std::fs::write(&file.path, "by hand").unwrap();
    transaction.commit().expect_err("another program changed it");
    assert_eq!(file.versions(), [""; 0]);
    file.write("again", NOW_MS).unwrap();
    assert_eq!(file.versions(), ["by hand"]);
}

#[test]
fn the_oldest_versions_are_removed() {
    let file = TestFile::new(b"0");
    let days = BACKUPS_MAX + 3;
    for day in 1..=days {
        file.write(&day.to_string(), NOW_MS + day as u64 * DAY_MS).unwrap();
    }
    let expected: Vec<String> = (days - BACKUPS_MAX..days).rev().map(|day| day.to_string()).collect();
    assert_eq!(file.versions(), expected);
}

#[test]
fn what_a_killed_writer_left_is_removed_and_other_files_are_left_alone() {
    let file = TestFile::new(b"a");
    std::fs::create_dir(file.backup_folder()).unwrap();
    let other = ["notes.txt", "2026-11-16T085206.123Z", "2026-13-16T085206.123Z.csv", "2026-11-16.csv"];
    for name in other.iter().chain(&["new.tmp", "new.tmp-journal"]) {
        std::fs::write(file.backup_folder().join(name), "half").unwrap();
    }
    file.write("ab", NOW_MS).unwrap();
    assert_eq!(file.versions(), ["a"]);
    let entries = std::fs::read_dir(file.backup_folder()).unwrap();
    let mut names: Vec<String> = entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut expected = [&other[..], &["2026-11-16T085206.123Z.csv"]].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[cfg(unix)]
#[test]
fn a_version_has_the_mode_of_the_file_in_a_private_folder() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let file = TestFile::new(b"a");
    std::fs::set_permissions(&file.path, PermissionsExt::from_mode(0o640)).unwrap();
    file.write("ab", NOW_MS).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file.backup_folder()), mode(&file.version(0).path)), (0o700, 0o640));
}

#[cfg(unix)]
#[test]
fn a_link_in_place_of_the_folder_is_refused() {
    let file = TestFile::new(b"a");
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), file.backup_folder()).unwrap();
    let error = file.write("ab", NOW_MS).unwrap_err();
    assert_eq!(
        error,
        "cannot keep a copy of `data.csv` from before this write, nothing was changed: there is a file or a link in \
         place of its folder; `[server] backups = false` in the manifest switches copies off"
    );
    assert_eq!(file.content(), "a");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_restore_can_be_undone() {
    let file = TestFile::new(b"a\n");
    file.write("a\nb\nc\n", NOW_MS).unwrap();
    let first = file.version(0);
    assert_eq!(first.changes_until(None, &file.path), Some(LineChanges { added: 2, removed: 0 }));
    let undo = restore(&file.path, &first, NOW_MS).unwrap();
    assert_eq!(file.content(), "a\n");
    assert_eq!(undo.as_deref(), Some("2026-11-16T085206.124Z"), "another name within the same millisecond");
    assert_eq!(restore(&file.path, &first, NOW_MS).unwrap(), None, "the file is the same");
    restore(&file.path, &file.version(0), NOW_MS + 9).unwrap();
    assert_eq!((file.content().as_str(), file.versions().len()), ("a\nb\nc\n", 3));
}

#[test]
fn a_deleted_file_is_restored() {
    let file = TestFile::new(b"a");
    file.write("ab", NOW_MS).unwrap();
    std::fs::remove_file(&file.path).unwrap();
    assert_eq!(restore(&file.path, &file.version(0), NOW_MS).unwrap(), None);
    assert_eq!(file.content(), "a");
    let names = std::fs::read_dir(file.folder.path()).unwrap().count();
    assert_eq!(names, 2, "the file and its backups");
}

#[test]
fn a_file_that_is_read_only_or_open_in_an_editor_is_not_restored() {
    let file = TestFile::new(b"a");
    file.write("ab", NOW_MS).unwrap();
    let lock = file.folder.path().join(".~lock.data.csv#");
    std::fs::write(&lock, ",ada,desk,16.11.2026 09:00,file:///home/ada;").unwrap();
    let Err(RestoreError::Write(error)) = restore(&file.path, &file.version(0), NOW_MS) else { panic!() };
    assert!(error.to_string().contains("open"), "{error}");
    std::fs::remove_file(lock).unwrap();
    let mut permissions = std::fs::metadata(&file.path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&file.path, permissions).unwrap();
    let Err(RestoreError::Write(error)) = restore(&file.path, &file.version(0), NOW_MS) else { panic!() };
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!((file.content().as_str(), file.versions()), ("ab", vec!["a".to_owned()]));
}

proptest! {
    #[test]
    fn a_version_is_found_by_its_name(created_ms in 0..253_402_300_800_000_u64) {
        let id = version_id(created_ms).unwrap();
        prop_assert_eq!(parse_file_name(format!("{id}.csv").as_ref()), Some((id, created_ms)));
    }

    #[test]
    fn other_names_are_no_versions(name in "[0-9TZ.:-]{0,24}") {
        if let Some((id, created_ms)) = parse_file_name(name.as_ref()) {
            prop_assert!(name.starts_with(&id));
            prop_assert_eq!(version_id(created_ms).unwrap(), id);
        }
    }
}

struct TestDatabase {
    folder: TempDir,
    path: PathBuf,
    connection: rusqlite::Connection,
}

impl TestDatabase {
    fn new(mode: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("shop.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1)"
        );
        connection.execute_batch(&sql).unwrap();
        Self { folder, path, connection }
    }

    fn writer(&self) -> Arc<dyn Writer> {
        let options = sqlite::Options { backups: BackupPolicy::Daily, ..sqlite::Options::default() };
        let source = sqlite::Sqlite::new(&self.path, options);
        let column = ColumnShape {
            source_index: 0,
            name: "id".into(),
            data_type: DataType::Integer,
            nullable: false,
            mixed: false,
            null_texts: Vec::new(),
            format: None,
        };
        source.writer(&TableShape { table: "t".into(), columns: vec![column], key: vec![0] }).unwrap()
    }

    fn insert(&self, writer: &dyn Writer, id: i64, options: &TransactionOptions) -> Result<(), String> {
        let cells = [(0, ValueRef::Integer(id))];
        crate::test_write::write_row_with(writer, &RowChange::Create { values: &cells }, options)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn rows(&self) -> Vec<i64> {
        rows(&self.connection)
    }
}

fn rows(connection: &rusqlite::Connection) -> Vec<i64> {
    let mut statement = connection.prepare("SELECT id FROM t ORDER BY id").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_database_is_copied_and_restored_while_it_is_open() {
    for mode in ["DELETE", "WAL"] {
        let database = TestDatabase::new(mode);
        let writer = database.writer();
        let at = |now_ms, dry_run| TransactionOptions { now_ms, dry_run, ..TransactionOptions::default() };
        database.insert(&*writer, 2, &at(NOW_MS, true)).unwrap();
        database.insert(&*writer, 1, &at(NOW_MS, false)).expect_err("the key exists");
        assert_eq!(list(&database.path).unwrap(), [], "{mode}: neither changed the database");
        database.insert(&*writer, 2, &at(NOW_MS, false)).unwrap();
        database.insert(&*writer, 3, &at(NOW_MS, false)).unwrap();
        let [version] = &list(&database.path).unwrap()[..] else { panic!("one version") };
        assert_eq!(rows(&rusqlite::Connection::open(&version.path).unwrap()), [1], "{mode}");

        let undo = restore(&database.path, version, NOW_MS).unwrap().unwrap();
        assert_eq!(database.rows(), [1], "{mode}: an open connection sees it");
        database.insert(&*writer, 7, &at(NOW_MS, false)).unwrap();
        assert_eq!(database.rows(), [1, 7], "{mode}: and so does the writer");
        let kept = list(&database.path).unwrap().into_iter().find(|one| one.id == undo).unwrap();
        restore(&database.path, &kept, NOW_MS).unwrap();
        assert_eq!(database.rows(), [1, 2, 3], "{mode}: the restore is undone");
        let now: String = database.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(now.to_uppercase(), mode, "the journal mode is the same");
        let check: String =
            database.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        let left = std::fs::read_dir(BackupFolder::next_to(&database.path).path).unwrap().count();
        assert_eq!(left, list(&database.path).unwrap().len(), "{mode}: only versions are left");
        drop(database.folder);
    }
}

#[test]
fn a_database_that_is_locked_is_not_restored() {
    let database = TestDatabase::new("DELETE");
    database.insert(&*database.writer(), 2, &TransactionOptions::default()).unwrap();
    let version = list(&database.path).unwrap().remove(0);
    database.connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(5)").unwrap();
    assert!(restore(&database.path, &version, NOW_MS).is_err());
    database.connection.execute_batch("COMMIT").unwrap();
    assert_eq!(database.rows(), [1, 2, 5]);
    assert_eq!(list(&database.path).unwrap(), [version]);
}

#[test]
fn a_deleted_database_is_restored() {
    let database = TestDatabase::new("WAL");
    database.insert(&*database.writer(), 2, &TransactionOptions::default()).unwrap();
    let TestDatabase { path, connection, folder } = database;
    drop(connection);
    for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    let version = list(&path).unwrap().remove(0);
    assert_eq!(restore(&path, &version, NOW_MS).unwrap(), None);
    assert_eq!(rows(&rusqlite::Connection::open(&path).unwrap()), [1]);
}
