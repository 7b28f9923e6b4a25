//! Which claims were answered, and how: a table in the same database, written in the same transaction.
//!
//! So a write and its claim are there together or not at all, whenever the process ends. The table is made with
//! the first claim and shown to nobody. Its rows have numbers that grow: the oldest is the least, and how far they
//! reach is how many there can be.

use contract::source::{
    IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, SourceError, WriteError,
};
use rusqlite::{OptionalExtension, params};

use super::authorizer::AccessMode;
use super::connection::DbConnection;

pub(super) const TABLE: &str = "_spile_claims";

const CREATE: &str = "CREATE TABLE main._spile_claims(seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, \
     asked BLOB NOT NULL, told BLOB NOT NULL, at_ms INTEGER NOT NULL)";
const SELECT_OBJECT_TYPE: &str = "SELECT type FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE";
const SELECT_RECORD: &str = "SELECT asked, told FROM main._spile_claims WHERE id = ?1";
const INSERT_RECORD: &str = "INSERT INTO main._spile_claims(id, asked, told, at_ms) VALUES(?1, ?2, ?3, ?4)";
const DELETE_EXCESS: &str =
    "DELETE FROM main._spile_claims WHERE seq <= (SELECT max(seq) FROM main._spile_claims) - ?1";
/// A few with each that comes: enough to come to an end.
const DELETE_EXPIRED: &str = "DELETE FROM main._spile_claims WHERE at_ms < ?1 AND seq IN \
     (SELECT seq FROM main._spile_claims ORDER BY seq LIMIT 16)";

pub(super) fn is_own_table(name: &str) -> bool {
    name.eq_ignore_ascii_case(TABLE)
}

/// Why a claim cannot be looked up or kept.
#[derive(Debug)]
pub(super) enum IdempotencyError {
    Sql(rusqlite::Error),
    Write(WriteError),
}

impl From<rusqlite::Error> for IdempotencyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// What was told under this claim, if it was used.
pub(super) fn find(
    session: &DbConnection,
    claim: &IdempotencyKey,
) -> Result<Option<Vec<u8>>, IdempotencyError> {
    session.authorizer.set_mode(AccessMode::Idempotency);
    if !table_exists(session)? {
        return Ok(None);
    }
    let mut statement = session.inner.prepare_cached(SELECT_RECORD)?;
    let found = statement
        .query_row([&claim.key_digest[..]], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .optional()?;
    match found {
        None => Ok(None),
        Some((asked, told)) if asked == claim.request_digest => Ok(Some(told)),
        Some(_) => Err(IdempotencyError::Write(WriteError::IdempotencyKeyReused)),
    }
}

/// Keeps what was told, and forgets what is too old or too much.
pub(super) fn store(
    session: &DbConnection,
    claim: &IdempotencyKey,
    told: &[u8],
    now_ms: u64,
) -> Result<(), IdempotencyError> {
    session.authorizer.set_mode(AccessMode::Idempotency);
    let connection = &session.inner;
    if !table_exists(session)? {
        connection.execute_batch(CREATE)?;
    }
    let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    connection
        .prepare_cached(DELETE_EXPIRED)?
        .execute([ms(now_ms.saturating_sub(IDEMPOTENCY_RETENTION_MS))])?;
    connection.prepare_cached(INSERT_RECORD)?.execute(params![
        &claim.key_digest[..],
        &claim.request_digest[..],
        told,
        ms(now_ms)
    ])?;
    connection
        .prepare_cached(DELETE_EXCESS)?
        .execute([i64::try_from(IDEMPOTENCY_RECORDS_MAX).unwrap_or(i64::MAX)])?;
    Ok(())
}

fn table_exists(session: &DbConnection) -> Result<bool, IdempotencyError> {
    let mut statement = session.inner.prepare_cached(SELECT_OBJECT_TYPE)?;
    let class: Option<String> = statement.query_row([TABLE], |row| row.get(0)).optional()?;
    match class.as_deref() {
        None => Ok(false),
        Some("table") => Ok(true),
        Some(class) => {
            let told = format!(
                "nothing was written: the database has a {class} named `{TABLE}`, so nobody could know whether a call \
                 with an idempotency key, or one that a user said yes to, was done already; to write without, leave \
                 out the key, or have the owner remove the {class}"
            );
            Err(IdempotencyError::Write(
                SourceError::Unavailable { detail: told.clone(), message: told }.into(),
            ))
        }
    }
}
