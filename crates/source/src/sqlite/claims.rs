//! Which claims were answered, and how: a table in the same database, written in the same transaction.
//!
//! So a write and its claim are there together or not at all, whenever the process ends. The table is made with
//! the first claim and shown to nobody. Its rows have numbers that grow: the oldest is the least, and how far they
//! reach is how many there can be.

use contract::source::{CLAIM_AGE_MS, CLAIMS_MAX, Claim, SourceFault, WriteFault};
use rusqlite::{OptionalExtension, params};

use super::gate::Permit;
use super::session::Session;

pub(super) const TABLE: &str = "_spile_claims";

const CREATE: &str = "CREATE TABLE main._spile_claims(seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, \
     asked BLOB NOT NULL, told BLOB NOT NULL, at_ms INTEGER NOT NULL)";
const CLASS: &str = "SELECT type FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE";
const FIND: &str = "SELECT asked, told FROM main._spile_claims WHERE id = ?1";
const STORE: &str = "INSERT INTO main._spile_claims(id, asked, told, at_ms) VALUES(?1, ?2, ?3, ?4)";
const DROP_BEYOND: &str =
    "DELETE FROM main._spile_claims WHERE seq <= (SELECT max(seq) FROM main._spile_claims) - ?1";
/// A few with each that comes: enough to come to an end.
const DROP_OLD: &str = "DELETE FROM main._spile_claims WHERE at_ms < ?1 AND seq IN \
     (SELECT seq FROM main._spile_claims ORDER BY seq LIMIT 16)";

pub(super) fn is_table(name: &str) -> bool {
    name.eq_ignore_ascii_case(TABLE)
}

/// Why a claim cannot be looked up or kept.
#[derive(Debug)]
pub(super) enum Trouble {
    Sql(rusqlite::Error),
    Fault(WriteFault),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// What was told under this claim, if it was used.
pub(super) fn find(session: &Session, claim: &Claim) -> Result<Option<Vec<u8>>, Trouble> {
    session.gate.set(Permit::Claims);
    if !is_there(session)? {
        return Ok(None);
    }
    let mut statement = session.connection.prepare_cached(FIND)?;
    let found = statement
        .query_row([&claim.id[..]], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .optional()?;
    match found {
        None => Ok(None),
        Some((asked, told)) if asked == claim.asked => Ok(Some(told)),
        Some(_) => Err(Trouble::Fault(WriteFault::ClaimedOtherwise)),
    }
}

/// Keeps what was told, and forgets what is too old or too much.
pub(super) fn store(session: &Session, claim: &Claim, told: &[u8], now_ms: u64) -> Result<(), Trouble> {
    session.gate.set(Permit::Claims);
    let connection = &session.connection;
    if !is_there(session)? {
        connection.execute_batch(CREATE)?;
    }
    let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    connection.prepare_cached(DROP_OLD)?.execute([ms(now_ms.saturating_sub(CLAIM_AGE_MS))])?;
    connection.prepare_cached(STORE)?.execute(params![&claim.id[..], &claim.asked[..], told, ms(now_ms)])?;
    connection.prepare_cached(DROP_BEYOND)?.execute([i64::try_from(CLAIMS_MAX).unwrap_or(i64::MAX)])?;
    Ok(())
}

fn is_there(session: &Session) -> Result<bool, Trouble> {
    let mut statement = session.connection.prepare_cached(CLASS)?;
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
            Err(Trouble::Fault(SourceFault::Unavailable { log: told.clone(), told }.into()))
        }
    }
}
