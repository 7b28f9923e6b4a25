//! Idempotency records: a table in the same database, written in the same transaction.
//!
//! So a write and its record are stored together or not at all. The record is inserted first, without its response: a second
//! call with the same key waits there until the first one has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::ValueRef;
use contract::source::{
    IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, RowFlow, WriteError,
};

use crate::call::CallLimits;
use crate::column::Storage;
use crate::connection::{Connection, Param, ResultColumn, Sql};
use crate::dialect::{Dialect, SqlWriter};
use crate::error::DbError;
use crate::local_records::LocalRecords;

/// The table's name, without its schema. It is never a collection.
pub(crate) const TABLE: &str = "_spile_idempotency";

/// Where the records of a database are.
pub(crate) enum Records {
    /// In the same transaction as the change.
    Table(IdempotencyTable),
    Local(LocalRecords),
}

pub(crate) struct IdempotencyTable {
    dialect: &'static dyn Dialect,
    /// Quoted.
    name: String,
    exists: AtomicBool,
}

impl IdempotencyTable {
    pub(crate) fn new(dialect: &'static dyn Dialect, name: String, exists: bool) -> Self {
        Self { dialect, name, exists: AtomicBool::new(exists) }
    }

    /// Whether there may be records.
    pub(crate) fn exists(&self) -> bool {
        self.exists.load(Ordering::Relaxed)
    }

    /// Creates the table with the first record.
    pub(crate) fn ensure(
        &self,
        connection: &mut dyn Connection,
        limits: &CallLimits<'_>,
    ) -> Result<(), DbError> {
        if self.exists() {
            return Ok(());
        }
        let sql = self.dialect.create_idempotency_table(&self.name);
        if let Err(error) = connection.define(&sql, limits) {
            let DbError::Refused(_) = error else { return Err(error) };
            // Another process may have created it at the same moment; then it exists now.
            if connection.is_in_transaction() {
                connection.roll_back()?;
            }
            connection.define(&sql, limits)?;
        }
        self.exists.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The response stored under this key, if it was used before; otherwise the key is taken from now on.
    pub(crate) fn find(
        &self,
        connection: &mut dyn Connection,
        key: &IdempotencyKey,
        now_ms: u64,
        limits: &CallLimits<'_>,
    ) -> Result<Option<Vec<u8>>, WriteError> {
        let mut out = SqlWriter::new(self.dialect);
        let (ignore, on_conflict) = self.dialect.insert_ignore();
        out.push(&format!(
            "{ignore} INTO {} (key_digest, request_digest, response, created_ms) VALUES (",
            self.name
        ));
        out.param(Param::Bytes(key.key_digest.to_vec()));
        out.push(", ");
        out.param(Param::Bytes(key.request_digest.to_vec()));
        out.push(", ");
        out.param(Param::Bytes(Vec::new()));
        out.push(", ");
        out.param(Param::Integer(millis(now_ms)));
        out.push(")");
        out.push(on_conflict);
        if run(connection, &out.sql, limits)? == 1 {
            return Ok(None);
        }
        let mut out = SqlWriter::new(self.dialect);
        out.push(&format!("SELECT request_digest, response FROM {} WHERE key_digest = ", self.name));
        out.param(Param::Bytes(key.key_digest.to_vec()));
        out.sql.results = vec![ResultColumn::computed(Storage::Bytes); 2];
        let mut found = None;
        let read = connection.run(&out.sql, limits, &mut |values| {
            if let [ValueRef::Blob(request), ValueRef::Blob(response)] = values {
                found = Some((request.to_vec(), response.to_vec()));
            }
            Ok(RowFlow::Continue)
        });
        read.map_err(DbError::into_source_error)?;
        match found {
            Some((request, response)) if request == key.request_digest => Ok(Some(response)),
            Some(_) => Err(WriteError::IdempotencyKeyReused),
            None => Err(WriteError::OutcomeUnknown),
        }
    }

    /// Stores the response, and deletes records that are expired or too many.
    pub(crate) fn store(
        &self,
        connection: &mut dyn Connection,
        key: &IdempotencyKey,
        response: &[u8],
        now_ms: u64,
        limits: &CallLimits<'_>,
    ) -> Result<(), WriteError> {
        let mut out = SqlWriter::new(self.dialect);
        out.push(&format!("UPDATE {} SET response = ", self.name));
        out.param(Param::Bytes(response.to_vec()));
        out.push(" WHERE key_digest = ");
        out.param(Param::Bytes(key.key_digest.to_vec()));
        run(connection, &out.sql, limits)?;
        if let Some(last) = self.last_old_record(connection, now_ms, limits)? {
            let mut out = SqlWriter::new(self.dialect);
            out.push(&format!("DELETE FROM {} WHERE seq <= ", self.name));
            out.param(Param::Integer(last));
            run(connection, &out.sql, limits)?;
        }
        Ok(())
    }

    /// The last of a few records that are expired or too many. Numbers only grow, so their range bounds how many there are.
    /// Found without a lock: a delete that looked for them would wait for calls that wait for this one.
    fn last_old_record(
        &self,
        connection: &mut dyn Connection,
        now_ms: u64,
        limits: &CallLimits<'_>,
    ) -> Result<Option<i64>, WriteError> {
        let mut out = SqlWriter::new(self.dialect);
        let name = &self.name;
        out.push("SELECT max(old.seq) FROM (SELECT seq FROM ");
        out.push(&format!("{name} WHERE created_ms < "));
        out.param(Param::Integer(millis(now_ms.saturating_sub(IDEMPOTENCY_RETENTION_MS))));
        out.push(&format!(" OR seq <= (SELECT max(seq) FROM {name}) - {IDEMPOTENCY_RECORDS_MAX} ORDER BY seq LIMIT 16) AS old"));
        out.sql.results = vec![ResultColumn::computed(Storage::Integer)];
        let mut last = None;
        let read = connection.run(&out.sql, limits, &mut |values| {
            if let [ValueRef::Integer(n)] = values {
                last = Some(*n);
            }
            Ok(RowFlow::Continue)
        });
        read.map_err(DbError::into_source_error)?;
        Ok(last)
    }
}

fn run(connection: &mut dyn Connection, sql: &Sql, limits: &CallLimits<'_>) -> Result<u64, WriteError> {
    connection
        .run(sql, limits, &mut |_| Ok(RowFlow::Continue))
        .map_err(|error| error.into_source_error().into())
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
