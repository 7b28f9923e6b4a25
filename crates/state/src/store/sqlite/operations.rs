//! The operations as statements. Each runs in a transaction that its caller commits or rolls back.

use rusqlite::{Connection, OptionalExtension, Params, Result, Row};

use super::super::limits::{SWEEP_RECORDS, SWEEP_RECORDS_PER_WRITE, Usage};
use super::super::{
    LeaseOutcome, Namespace, PutOutcome, Sequence, StoreError, StoreKey, StoreLimits, StreamPage,
};

/// Why an operation ended early.
#[derive(Debug)]
pub(super) enum OperationError {
    Refused(StoreError),
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for OperationError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// A key that can move to another thread.
#[derive(Debug, Clone)]
pub(super) struct OwnedKey {
    pub(super) namespace: Namespace,
    pub(super) owner: Vec<u8>,
    pub(super) name: Vec<u8>,
}

impl OwnedKey {
    pub(super) fn new(key: StoreKey<'_>) -> Self {
        Self { namespace: key.namespace, owner: key.owner.to_vec(), name: key.name.to_vec() }
    }

    fn params(&self) -> (u8, &[u8], &[u8]) {
        (self.namespace.code(), &self.owner, &self.name)
    }
}

pub(super) fn put_once(
    db: &Connection,
    limits: &StoreLimits,
    key: &OwnedKey,
    value: &[u8],
    end_ms: u64,
    now_ms: u64,
) -> Result<PutOutcome, OperationError> {
    let (namespace, owner, name) = key.params();
    let sql = "SELECT end_ms FROM entries WHERE namespace = ?1 AND owner = ?2 AND name = ?3";
    match query_optional(db, sql, key.params(), |row| row.get::<_, i64>(0))? {
        Some(old_end_ms) if old_end_ms > int(now_ms) => return Ok(PutOutcome::AlreadyThere),
        Some(_) => {
            execute(
                db,
                "DELETE FROM entries WHERE namespace = ?1 AND owner = ?2 AND name = ?3",
                key.params(),
            )?;
        }
        None => {}
    }
    evict(db, limits, owner, Usage::of_record(&[owner, name, value]), now_ms)?;
    let sql = "INSERT INTO entries (namespace, owner, name, value, end_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(db, sql, (namespace, owner, name, value, int(end_ms)))?;
    Ok(PutOutcome::Stored)
}

pub(super) fn get(db: &Connection, key: &OwnedKey, now_ms: u64) -> Result<Option<Vec<u8>>, OperationError> {
    let sql = "SELECT value FROM entries WHERE namespace = ?1 AND owner = ?2 AND name = ?3 AND end_ms > ?4";
    let (namespace, owner, name) = key.params();
    Ok(query_optional(db, sql, (namespace, owner, name, int(now_ms)), |row| row.get(0))?)
}

pub(super) fn take(db: &Connection, key: &OwnedKey, now_ms: u64) -> Result<Option<Vec<u8>>, OperationError> {
    let value = get(db, key, now_ms)?;
    execute(db, "DELETE FROM entries WHERE namespace = ?1 AND owner = ?2 AND name = ?3", key.params())?;
    Ok(value)
}

pub(super) fn delete(db: &Connection, key: &OwnedKey, now_ms: u64) -> Result<bool, OperationError> {
    let mut is_found = false;
    for table in ["entries", "streams"] {
        let (namespace, owner, name) = key.params();
        let condition = "namespace = ?1 AND owner = ?2 AND name = ?3";
        let live = format!("SELECT 1 FROM {table} WHERE {condition} AND end_ms > ?4");
        is_found |= query_optional(db, &live, (namespace, owner, name, int(now_ms)), |_| Ok(()))?.is_some();
        execute(db, &format!("DELETE FROM {table} WHERE {condition}"), key.params())?;
    }
    Ok(is_found)
}

pub(super) fn append(
    db: &Connection,
    limits: &StoreLimits,
    stream: &OwnedKey,
    value: &[u8],
    entries_max: usize,
    end_ms: u64,
    now_ms: u64,
) -> Result<Sequence, OperationError> {
    let (namespace, owner, name) = stream.params();
    let found = find_stream(db, stream)?;
    let id = match found {
        Some(StreamRow { id, end_ms, .. }) if end_ms > int(now_ms) => Some(id),
        Some(StreamRow { id, .. }) => {
            execute(db, "DELETE FROM streams WHERE id = ?1", [id])?;
            None
        }
        None => None,
    };
    let mut added = Usage::of_record(&[value]);
    let mut drop_through = None;
    match id {
        None => added = added.plus(Usage::of_record(&[owner, name])),
        Some(id) => {
            // The newest that are kept come first; all behind them are dropped.
            let sql = "SELECT sequence FROM stream_entries WHERE stream = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2";
            let kept_max = i64::try_from(entries_max.max(1) - 1).unwrap_or(i64::MAX);
            drop_through = query_optional(db, sql, (id, kept_max), |row| row.get::<_, i64>(0))?;
            if let Some(through) = drop_through {
                let sql = "SELECT value FROM stream_entries WHERE stream = ?1 AND sequence <= ?2";
                let mut statement = db.prepare_cached(sql)?;
                let mut rows = statement.query((id, through))?;
                while let Some(row) = rows.next()? {
                    added = added.minus(Usage::of_record(&[row.get_ref(0)?.as_blob().unwrap_or_default()]));
                }
            }
        }
    }
    evict(db, limits, owner, added, now_ms)?;
    let id = match id {
        Some(id) => {
            if let Some(through) = drop_through {
                execute(
                    db,
                    "DELETE FROM stream_entries WHERE stream = ?1 AND sequence <= ?2",
                    (id, through),
                )?;
            }
            let sql =
                "UPDATE streams SET end_ms = ?2, dropped_through = max(dropped_through, ?3) WHERE id = ?1";
            execute(db, sql, (id, int(end_ms), drop_through.unwrap_or(0)))?;
            id
        }
        None => {
            let sql = "INSERT INTO streams (namespace, owner, name, dropped_through, end_ms) VALUES (?1, ?2, ?3, 0, ?4)";
            execute(db, sql, (namespace, owner, name, int(end_ms)))?;
            db.last_insert_rowid()
        }
    };
    let sql = "INSERT INTO stream_entries (stream, owner, value) VALUES (?1, ?2, ?3) RETURNING sequence";
    let sequence: i64 = db.prepare_cached(sql)?.query_row((id, owner, value), |row| row.get(0))?;
    Ok(Sequence(sequence.cast_unsigned()))
}

pub(super) fn read_after(
    db: &Connection,
    limits: &StoreLimits,
    stream: &OwnedKey,
    after: Sequence,
    entries_max: usize,
    now_ms: u64,
) -> Result<Option<StreamPage>, OperationError> {
    let Some(StreamRow { id, dropped_through, end_ms }) = find_stream(db, stream)? else { return Ok(None) };
    if end_ms <= int(now_ms) {
        return Ok(None);
    }
    let after = int(after.0);
    let sql = "SELECT sequence, value FROM stream_entries WHERE stream = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((id, after, i64::try_from(entries_max).unwrap_or(i64::MAX)))?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (sequence, value): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        bytes += value.len();
        if !entries.is_empty() && bytes > limits.read_bytes_max {
            break;
        }
        entries.push((Sequence(sequence.cast_unsigned()), value));
    }
    Ok(Some(StreamPage { entries, has_gap: after < dropped_through }))
}

pub(super) fn lease(
    db: &Connection,
    limits: &StoreLimits,
    key: &OwnedKey,
    holder: &[u8],
    end_ms: u64,
    now_ms: u64,
) -> Result<LeaseOutcome, OperationError> {
    let (namespace, owner, name) = key.params();
    let sql = "SELECT holder, end_ms FROM leases WHERE namespace = ?1 AND owner = ?2 AND name = ?3";
    let found =
        query_optional(db, sql, key.params(), |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?)))?;
    match found {
        Some((old_holder, old_end_ms)) if old_end_ms > int(now_ms) => {
            if old_holder != holder {
                return Ok(LeaseOutcome::HeldByOther { until_ms: old_end_ms.cast_unsigned() });
            }
            set_lease_end(db, key, end_ms)?;
            return Ok(LeaseOutcome::Held);
        }
        Some(_) => {
            execute(
                db,
                "DELETE FROM leases WHERE namespace = ?1 AND owner = ?2 AND name = ?3",
                key.params(),
            )?;
        }
        None => {}
    }
    evict(db, limits, owner, Usage::of_record(&[owner, name, holder]), now_ms)?;
    let sql = "INSERT INTO leases (namespace, owner, name, holder, end_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(db, sql, (namespace, owner, name, holder, int(end_ms)))?;
    Ok(LeaseOutcome::Held)
}

pub(super) fn renew(
    db: &Connection,
    key: &OwnedKey,
    holder: &[u8],
    end_ms: u64,
    now_ms: u64,
) -> Result<bool, OperationError> {
    let is_held = is_held(db, key, holder, now_ms)?;
    if is_held {
        set_lease_end(db, key, end_ms)?;
    }
    Ok(is_held)
}

pub(super) fn release(
    db: &Connection,
    key: &OwnedKey,
    holder: &[u8],
    now_ms: u64,
) -> Result<bool, OperationError> {
    let is_held = is_held(db, key, holder, now_ms)?;
    if is_held {
        execute(db, "DELETE FROM leases WHERE namespace = ?1 AND owner = ?2 AND name = ?3", key.params())?;
    }
    Ok(is_held)
}

/// Removes up to `records_max` records that have ended.
pub(super) fn sweep(db: &Connection, records_max: usize, now_ms: u64) -> Result<usize, OperationError> {
    let mut removed = 0;
    for table in ["entries", "streams", "leases"] {
        let left = i64::try_from(records_max - removed).unwrap_or(i64::MAX);
        let sql = format!(
            "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE end_ms <= ?1 ORDER BY end_ms LIMIT ?2)"
        );
        removed += execute(db, &sql, (int(now_ms), left))?;
    }
    Ok(removed)
}

/// Makes room. Fails if `added` exceeds a limit even without the records that have ended.
fn evict(
    db: &Connection,
    limits: &StoreLimits,
    owner: &[u8],
    added: Usage,
    now_ms: u64,
) -> Result<(), OperationError> {
    sweep(db, SWEEP_RECORDS_PER_WRITE, now_ms)?;
    let to_usage = |row: &Row<'_>| Ok(Usage { records: row.get(0)?, bytes: row.get(1)? });
    loop {
        let used =
            query_optional(db, "SELECT records, bytes FROM usage WHERE owner = ?1", [owner], to_usage)?;
        let total = query_optional(db, "SELECT records, bytes FROM total", [], to_usage)?;
        let exceeded = limits.exceeded(used.unwrap_or_default(), total.unwrap_or_default(), added);
        let Some(limit) = exceeded else { return Ok(()) };
        if sweep(db, SWEEP_RECORDS, now_ms)? == 0 {
            return Err(OperationError::Refused(StoreError::Full { limit }));
        }
    }
}

struct StreamRow {
    id: i64,
    dropped_through: i64,
    end_ms: i64,
}

fn find_stream(db: &Connection, stream: &OwnedKey) -> Result<Option<StreamRow>> {
    let sql =
        "SELECT id, dropped_through, end_ms FROM streams WHERE namespace = ?1 AND owner = ?2 AND name = ?3";
    query_optional(db, sql, stream.params(), |row| {
        Ok(StreamRow { id: row.get(0)?, dropped_through: row.get(1)?, end_ms: row.get(2)? })
    })
}

fn is_held(db: &Connection, key: &OwnedKey, holder: &[u8], now_ms: u64) -> Result<bool> {
    let sql = "SELECT 1 FROM leases WHERE namespace = ?1 AND owner = ?2 AND name = ?3 AND holder = ?4 AND end_ms > ?5";
    let (namespace, owner, name) = key.params();
    let found = query_optional(db, sql, (namespace, owner, name, holder, int(now_ms)), |_| Ok(()))?;
    Ok(found.is_some())
}

fn set_lease_end(db: &Connection, key: &OwnedKey, end_ms: u64) -> Result<()> {
    let (namespace, owner, name) = key.params();
    let sql = "UPDATE leases SET end_ms = ?4 WHERE namespace = ?1 AND owner = ?2 AND name = ?3";
    execute(db, sql, (namespace, owner, name, int(end_ms))).map(drop)
}

fn execute(db: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    db.prepare_cached(sql)?.execute(params)
}

fn query_optional<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    db.prepare_cached(sql)?.query_row(params, read).optional()
}

/// SQLite's integers are signed; a time that far away never comes.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
