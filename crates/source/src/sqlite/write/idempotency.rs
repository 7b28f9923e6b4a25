//! Idempotency records: a table in the same database, written in the same transaction.
//!
//! So a write and its record are stored together or not at all, even if the process is killed. The table is
//! created with the first record and hidden from collections. Its rowids only grow: the least is the oldest,
//! and their range bounds the number of records.

use contract::source::{
    IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, SourceError, WriteError,
};
use rusqlite::{OptionalExtension, params};

use crate::sqlite::connection::DbConnection;
use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::reserved_names::IDEMPOTENCY_TABLE;

const CREATE: &str = "CREATE TABLE main._spile_idempotency(seq INTEGER PRIMARY KEY, key_digest BLOB NOT NULL UNIQUE, \
     request_digest BLOB NOT NULL, response BLOB NOT NULL, created_ms INTEGER NOT NULL)";
const SELECT_OBJECT_TYPE: &str = "SELECT type FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE";
const SELECT_RECORD: &str =
    "SELECT request_digest, response FROM main._spile_idempotency WHERE key_digest = ?1";
const INSERT_RECORD: &str = "INSERT INTO main._spile_idempotency(key_digest, request_digest, response, created_ms) VALUES(?1, ?2, ?3, ?4)";
const DELETE_EXCESS: &str =
    "DELETE FROM main._spile_idempotency WHERE seq <= (SELECT max(seq) FROM main._spile_idempotency) - ?1";
/// Each new record deletes a few expired ones: enough to delete all of them over time.
const DELETE_EXPIRED: &str = "DELETE FROM main._spile_idempotency WHERE created_ms < ?1 AND seq IN \
     (SELECT seq FROM main._spile_idempotency ORDER BY seq LIMIT 16)";

/// Why a record cannot be read or stored.
#[derive(Debug)]
pub(crate) enum IdempotencyError {
    Sql(rusqlite::Error),
    Write(WriteError),
}

impl From<rusqlite::Error> for IdempotencyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// The result stored under this key, if it was used before.
pub(crate) fn find(
    connection: &DbConnection,
    key: &IdempotencyKey,
) -> Result<Option<Vec<u8>>, IdempotencyError> {
    connection.authorizer.set_mode(AccessMode::Idempotency);
    if !table_exists(connection)? {
        return Ok(None);
    }
    let mut statement = connection.inner.prepare_cached(SELECT_RECORD)?;
    let found = statement
        .query_row([&key.key_digest[..]], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .optional()?;
    match found {
        None => Ok(None),
        Some((request_digest, response)) if request_digest == key.request_digest => Ok(Some(response)),
        Some(_) => Err(IdempotencyError::Write(WriteError::IdempotencyKeyReused)),
    }
}

/// Stores a result, and deletes records that are expired or too many.
pub(crate) fn store(
    connection: &DbConnection,
    key: &IdempotencyKey,
    response: &[u8],
    now_ms: u64,
) -> Result<(), IdempotencyError> {
    connection.authorizer.set_mode(AccessMode::Idempotency);
    let database = &connection.inner;
    if !table_exists(connection)? {
        database.execute_batch(CREATE)?;
    }
    let as_millis = |as_millis: u64| i64::try_from(as_millis).unwrap_or(i64::MAX);
    database
        .prepare_cached(DELETE_EXPIRED)?
        .execute([as_millis(now_ms.saturating_sub(IDEMPOTENCY_RETENTION_MS))])?;
    database.prepare_cached(INSERT_RECORD)?.execute(params![
        &key.key_digest[..],
        &key.request_digest[..],
        response,
        as_millis(now_ms)
    ])?;
    database
        .prepare_cached(DELETE_EXCESS)?
        .execute([i64::try_from(IDEMPOTENCY_RECORDS_MAX).unwrap_or(i64::MAX)])?;
    Ok(())
}

fn table_exists(connection: &DbConnection) -> Result<bool, IdempotencyError> {
    let mut statement = connection.inner.prepare_cached(SELECT_OBJECT_TYPE)?;
    let kind: Option<String> = statement.query_row([IDEMPOTENCY_TABLE], |row| row.get(0)).optional()?;
    match kind.as_deref() {
        None => Ok(false),
        Some("table") => Ok(true),
        Some(kind) => {
            let message = format!(
                "nothing was written: the database has a {kind} named `{IDEMPOTENCY_TABLE}`, which Spile needs as a \
                 table to remember calls with an idempotency key and calls that a user confirmed; leave out the \
                 key, or have the owner of the database remove the {kind}"
            );
            Err(IdempotencyError::Write(SourceError::Unavailable { detail: message.clone(), message }.into()))
        }
    }
}
