//! The tables of the store, and how a file becomes one. Changed only with a new [`VERSION`].

use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::super::limits::RECORD_OVERHEAD_BYTES;

/// `PRAGMA application_id` of our files: "spil".
const APPLICATION_ID: i64 = 0x7370_696c;
const VERSION: i64 = 1;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The write-ahead log is cut back to this size.
const WAL_BYTES_MAX: i64 = 16 << 20;

#[derive(Debug)]
pub(super) enum SchemaProblem {
    Database(rusqlite::Error),
    NotAStore,
    Newer(i64),
    NoWriteAheadLog,
}

impl From<rusqlite::Error> for SchemaProblem {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// Makes the connection durable, and creates the tables in an empty file. Waits for other processes that do the same.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), SchemaProblem> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let started = Instant::now();
    loop {
        match try_prepare(connection) {
            // SQLite does not wait for a change of the journal mode: two connections could wait for each other.
            Err(SchemaProblem::Database(error)) if is_busy(&error) && started.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(BUSY_RETRY_INTERVAL);
            }
            result => return result,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

fn try_prepare(connection: &mut Connection) -> Result<(), SchemaProblem> {
    // Checked before anything is written: it may be somebody else's database.
    check_or_create(connection)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(SchemaProblem::NoWriteAheadLog);
    }
    // FULL: a commit is on the disk when it returns. NORMAL would lose the last ones in a power failure, and a state
    // that was spent could be spent again.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX)?;
    Ok(())
}

/// In one transaction, so that of several processes one creates the tables.
fn check_or_create(connection: &mut Connection) -> Result<(), SchemaProblem> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let objects: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => Ok(()),
        (APPLICATION_ID, version) => Err(SchemaProblem::Newer(version)),
        (0, 0) if objects == 0 => {
            transaction.execute_batch(&tables())?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(transaction.commit()?)
        }
        _ => Err(SchemaProblem::NotAStore),
    }
}

/// One table for each family of operations. Triggers count what each owner holds, so that no statement can forget it.
fn tables() -> String {
    let mut sql = String::from(
        "
        CREATE TABLE entries (
            namespace INTEGER NOT NULL, owner BLOB NOT NULL, name BLOB NOT NULL,
            value BLOB NOT NULL, end_ms INTEGER NOT NULL,
            UNIQUE (namespace, owner, name)
        ) STRICT;
        CREATE INDEX entries_by_end ON entries (end_ms);

        CREATE TABLE streams (
            id INTEGER PRIMARY KEY,
            namespace INTEGER NOT NULL, owner BLOB NOT NULL, name BLOB NOT NULL,
            dropped_through INTEGER NOT NULL, end_ms INTEGER NOT NULL,
            UNIQUE (namespace, owner, name)
        ) STRICT;
        CREATE INDEX streams_by_end ON streams (end_ms);

        -- AUTOINCREMENT: a sequence is never used again.
        CREATE TABLE stream_entries (
            sequence INTEGER PRIMARY KEY AUTOINCREMENT,
            stream INTEGER NOT NULL, owner BLOB NOT NULL, value BLOB NOT NULL
        ) STRICT;
        CREATE INDEX stream_entries_by_stream ON stream_entries (stream);

        CREATE TABLE leases (
            namespace INTEGER NOT NULL, owner BLOB NOT NULL, name BLOB NOT NULL,
            holder BLOB NOT NULL, end_ms INTEGER NOT NULL,
            UNIQUE (namespace, owner, name)
        ) STRICT;
        CREATE INDEX leases_by_end ON leases (end_ms);

        CREATE TABLE usage (
            owner BLOB PRIMARY KEY, records INTEGER NOT NULL, bytes INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE total (records INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
        INSERT INTO total VALUES (0, 0);

        CREATE TRIGGER streams_end AFTER DELETE ON streams BEGIN
            DELETE FROM stream_entries WHERE stream = OLD.id;
        END;
        ",
    );
    for (table, parts) in [
        ("entries", "length(ROW.owner) + length(ROW.name) + length(ROW.value)"),
        ("streams", "length(ROW.owner) + length(ROW.name)"),
        ("stream_entries", "length(ROW.value)"),
        ("leases", "length(ROW.owner) + length(ROW.name) + length(ROW.holder)"),
    ] {
        let bytes = |row: &str| format!("{} + {RECORD_OVERHEAD_BYTES}", parts.replace("ROW", row));
        let (new, old) = (bytes("NEW"), bytes("OLD"));
        sql += &format!(
            "
            CREATE TRIGGER {table}_count_insert AFTER INSERT ON {table} BEGIN
                INSERT INTO usage VALUES (NEW.owner, 1, {new})
                    ON CONFLICT (owner) DO UPDATE SET records = records + 1, bytes = bytes + {new};
                UPDATE total SET records = records + 1, bytes = bytes + {new};
            END;
            CREATE TRIGGER {table}_count_delete AFTER DELETE ON {table} BEGIN
                UPDATE usage SET records = records - 1, bytes = bytes - ({old}) WHERE owner = OLD.owner;
                DELETE FROM usage WHERE owner = OLD.owner AND records = 0;
                UPDATE total SET records = records - 1, bytes = bytes - ({old});
            END;
            "
        );
    }
    sql
}
