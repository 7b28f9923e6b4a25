//! Idempotency records of one database whose role may not create a table for them, in a file of this user.
//!
//! A record is durable when a call returns. It first has no response: what became of that call is unknown until it has.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

/// Another process may write at the same time.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The records of one database.
pub struct IdempotencyFile {
    path: PathBuf,
    limits: RecordLimits,
    /// Opened with the first record.
    connection: Mutex<Option<Connection>>,
}

/// How long records are kept, and how many.
#[derive(Debug, Clone, Copy)]
pub struct RecordLimits {
    pub retention_ms: u64,
    pub records_max: usize,
}

/// What the file has under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedCall {
    /// Nothing, until now.
    New,
    /// The request that the key was used for, and its response if that is known.
    Known { request: Vec<u8>, response: Option<Vec<u8>> },
}

impl IdempotencyFile {
    pub fn new(path: PathBuf, limits: RecordLimits) -> Self {
        Self { path, limits, connection: Mutex::default() }
    }

    /// Adds a record without a response, unless there is one with the key.
    pub fn begin(&self, key: &[u8; 32], request: &[u8; 32], now_ms: u64) -> Result<RecordedCall, String> {
        let RecordLimits { retention_ms, records_max } = self.limits;
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let oldest = i64::try_from(now_ms.saturating_sub(retention_ms)).unwrap_or(i64::MAX);
        self.with_connection(|connection| {
            let transaction = connection.transaction()?;
            transaction.execute(
                "DELETE FROM records WHERE created_ms < ?1 OR seq <= (SELECT max(seq) FROM records) - ?2",
                params![oldest, i64::try_from(records_max).unwrap_or(i64::MAX)],
            )?;
            let known = transaction
                .query_row("SELECT request, response FROM records WHERE key = ?1", [&key[..]], |row| {
                    Ok(RecordedCall::Known { request: row.get(0)?, response: row.get(1)? })
                })
                .optional()?;
            let recorded = match known {
                Some(known) => known,
                None => {
                    let insert = "INSERT INTO records (key, request, created_ms) VALUES (?1, ?2, ?3)";
                    transaction.execute(insert, params![&key[..], &request[..], now])?;
                    RecordedCall::New
                }
            };
            transaction.commit()?;
            Ok(recorded)
        })
    }

    /// Adds the response to a record.
    pub fn finish(&self, key: &[u8; 32], response: &[u8]) -> Result<(), String> {
        self.with_connection(|connection| {
            let update = "UPDATE records SET response = ?2 WHERE key = ?1";
            connection.execute(update, params![&key[..], response]).map(drop)
        })
    }

    /// Removes a record that has no response.
    pub fn abandon(&self, key: &[u8; 32]) -> Result<(), String> {
        self.with_connection(|connection| {
            connection
                .execute("DELETE FROM records WHERE key = ?1 AND response IS NULL", [&key[..]])
                .map(drop)
        })
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, String> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            empty => empty.insert(open(&self.path)?),
        };
        work(connection).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Only this user may read the file: responses have rows.
fn open(path: &Path) -> Result<Connection, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
    let folder = path.parent().ok_or_else(|| failed(&"it has no folder"))?;
    crate::private_file::create_dir(folder).map_err(|error| failed(&error))?;
    let connection = Connection::open(path).map_err(|error| failed(&error))?;
    connection.busy_timeout(LOCK_WAIT_MAX).map_err(|error| failed(&error))?;
    let prepared = connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, request BLOB NOT NULL, \
         response BLOB, created_ms INTEGER NOT NULL)",
    );
    prepared.map_err(|error| failed(&error))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RecordLimits = RecordLimits { retention_ms: 100, records_max: 3 };

    fn known(request: u8, response: Option<&[u8]>) -> RecordedCall {
        RecordedCall::Known { request: vec![request; 32], response: response.map(<[u8]>::to_vec) }
    }

    #[test]
    fn a_record_is_unknown_until_it_has_a_response_also_for_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || IdempotencyFile::new(folder.path().join("deep/records.sqlite"), LIMITS);
        let file = open();
        assert_eq!(file.begin(&[1; 32], &[7; 32], 1).unwrap(), RecordedCall::New);
        assert_eq!(open().begin(&[1; 32], &[7; 32], 2).unwrap(), known(7, None));
        file.finish(&[1; 32], b"done").unwrap();
        assert_eq!(open().begin(&[1; 32], &[8; 32], 3).unwrap(), known(7, Some(b"done")));
        file.abandon(&[1; 32]).unwrap();
        assert_eq!(open().begin(&[1; 32], &[7; 32], 3).unwrap(), known(7, Some(b"done")));
        assert_eq!(file.begin(&[2; 32], &[7; 32], 3).unwrap(), RecordedCall::New);
        file.abandon(&[2; 32]).unwrap();
        assert_eq!(file.begin(&[2; 32], &[7; 32], 3).unwrap(), RecordedCall::New);
    }

    #[test]
    fn records_expire_and_are_bounded_in_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = IdempotencyFile::new(folder.path().join("records.sqlite"), LIMITS);
        file.begin(&[1; 32], &[1; 32], 1).unwrap();
        assert_eq!(file.begin(&[1; 32], &[1; 32], 101).unwrap(), known(1, None));
        assert_eq!(file.begin(&[1; 32], &[1; 32], 102).unwrap(), RecordedCall::New);
        (2..6).for_each(|key| drop(file.begin(&[key; 32], &[1; 32], 102)));
        assert_eq!(file.begin(&[1; 32], &[1; 32], 102).unwrap(), RecordedCall::New);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.sqlite");
        std::fs::write(&path, "not a database, but long enough to be read as one: ".repeat(40)).unwrap();
        let error = IdempotencyFile::new(path, LIMITS).begin(&[1; 32], &[1; 32], 1).unwrap_err();
        assert!(error.contains("records.sqlite"), "{error}");
    }
}
