//! A pool of read-only connections, one for each thread that reads at the same time, up to a limit.
//!
//! The path may lead to another file later, when a program renames a new export over it. Open connections
//! would read the old file for ever, so the pool checks the path every few milliseconds and reopens them; at
//! once, if the write connection found another file.
//!
//! In WAL mode, where reads by key follow each other closely, a connection keeps its snapshot for a
//! millisecond. That delays no writer: the pool keeps no snapshot while another program commits again and
//! again, and the reaper ends the snapshots of idle connections, so a checkpointed log can restart. With a
//! rollback journal, where a snapshot would block writers, the pool never keeps one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::SourceError;
use file_watch::FileStamp;

use crate::sqlite::connection::authorizer::AccessMode;
use crate::sqlite::connection::snapshot_reaper::SnapshotReaper;
use crate::sqlite::connection::{DataVersionCheck, DbConnection, Generation};
use crate::sqlite::error::{self, DbError};

/// How long a read waits for another connection's lock. A reader must not wait longer than it may make others
/// wait.
const LOCK_TIMEOUT: Duration = Duration::from_millis(45);
/// A program that commits in a loop leaves gaps shorter than a millisecond.
const RETRY_DELAY: Duration = Duration::from_micros(100);
/// How long connections may read a file that the path no longer leads to. No row served is older.
const FILE_CHECK_INTERVAL: Duration = Duration::from_millis(40);

/// The maximum age of a snapshot that a read by key sees.
const SNAPSHOT_LIFETIME: Duration = Duration::from_millis(1);
/// Reads further apart than this take a new snapshot each: keeping one costs as much as a few reads.
const SNAPSHOT_READ_GAP: Duration = Duration::from_micros(200);
/// For how long no snapshot is kept after another program committed.
const SNAPSHOT_COOLDOWN: Duration = Duration::from_millis(10);

pub(crate) struct ConnectionPool {
    /// As the user gave it, for messages.
    path: PathBuf,
    connections_max: usize,
    shared: Arc<PoolShared>,
}

/// The part of a pool that the snapshot reaper shares.
pub(crate) struct PoolShared {
    state: Mutex<PoolState>,
    connection_freed: Condvar,
    /// Signalled when a snapshot is kept again, and when the pool closes.
    pub(crate) reaper_wakeup: Condvar,
}

pub(crate) struct PoolState {
    #[expect(clippy::vec_box, reason = "a session is some hundred bytes, and moves with every read")]
    pub(crate) idle: Vec<Box<DbConnection>>,
    /// Idle and lent connections together.
    pub(crate) open_count: usize,
    /// Threads that wait for a connection. Without a waiter no wake-up is sent: it costs a system call.
    waiting_count: usize,
    generation: Generation,
    file_stamp: Option<FileStamp>,
    /// When to check the path again.
    next_file_check: Option<Instant>,
    /// When a row was last read by its key.
    last_row_read: Option<Instant>,
    /// When another program's commit was last noticed.
    last_foreign_commit: Option<Instant>,
    pub(crate) reaper: SnapshotReaper,
    pub(crate) is_closed: bool,
}

/// How recent the data must be that a read sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// A read of one row by its key may use an open snapshot.
    SnapshotAllowed,
    /// Every other read sees all earlier commits.
    Latest,
}

/// Where a read runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// On a thread that must not block: what would have to wait, or takes too long, is [`DbError::WouldBlock`].
    Inline,
    /// Where waiting is allowed.
    Blocking,
}

/// Whether a read may wait for locks and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Never,
    UpTo(Duration),
}

/// A connection lent for one read.
struct PooledConnection<'p> {
    pool: &'p ConnectionPool,
    connection: Option<Box<DbConnection>>,
}

impl ConnectionPool {
    pub(crate) fn new(path: &Path, connections_max: usize) -> Self {
        let state = PoolState {
            idle: Vec::new(),
            open_count: 0,
            waiting_count: 0,
            generation: Generation::default(),
            file_stamp: None,
            next_file_check: None,
            last_row_read: None,
            last_foreign_commit: None,
            reaper: SnapshotReaper::NotStarted,
            is_closed: false,
        };
        let shared = PoolShared {
            state: Mutex::new(state),
            connection_freed: Condvar::new(),
            reaper_wakeup: Condvar::new(),
        };
        Self { path: path.to_owned(), connections_max: connections_max.max(1), shared: Arc::new(shared) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a read. Retries for a short time while another connection holds a lock.
    pub(crate) fn read<T>(&self, run: impl FnMut(&DbConnection) -> Result<T, DbError>) -> Result<T, DbError> {
        self.run(Freshness::Latest, Wait::UpTo(LOCK_TIMEOUT), run)
    }

    /// Like `read`, with a longer wait for locks.
    pub(crate) fn read_with_timeout<T>(
        &self,
        lock_timeout: Duration,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.run(Freshness::Latest, Wait::UpTo(lock_timeout), run)
    }

    /// Like `read`, on a thread that must not block: where this would have to wait for a lock or a connection, or would have
    /// to open one, it returns [`DbError::WouldBlock`].
    pub(crate) fn read_inline<T>(
        &self,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.run(Freshness::Latest, Wait::Never, run)
    }

    /// Like `read` or `read_inline`, for one row by its key: the data may be as old as [`SNAPSHOT_LIFETIME`].
    #[inline]
    pub(crate) fn read_row<T>(
        &self,
        mode: ReadMode,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let wait = match mode {
            ReadMode::Inline => Wait::Never,
            ReadMode::Blocking => Wait::UpTo(LOCK_TIMEOUT),
        };
        self.run(Freshness::SnapshotAllowed, wait, run)
    }

    #[inline]
    fn run<T>(
        &self,
        freshness: Freshness,
        wait: Wait,
        mut run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let (mut waiting_since, mut is_rolled_back) = (None, false);
        loop {
            let result = self.acquire(freshness, wait).and_then(|lent| lent.run(&mut run));
            match (result, wait) {
                (Err(error), Wait::Never) if error.is_busy() || error.has_hot_journal() => {
                    return Err(DbError::WouldBlock);
                }
                (Err(error), Wait::UpTo(lock_timeout)) if error.is_busy() => {
                    let now = Instant::now();
                    if now - *waiting_since.get_or_insert(now) >= lock_timeout {
                        return Err(error);
                    }
                    std::thread::sleep(RETRY_DELAY);
                }
                (Err(error), Wait::UpTo(_)) if error.has_hot_journal() && !is_rolled_back => {
                    is_rolled_back = true;
                    self.roll_back_hot_journal()?;
                }
                (other, _) => return other,
            }
        }
    }

    /// A program was killed in the middle of a transaction and left a hot journal. SQLite must roll it back
    /// before anyone can read, and does so on a connection that can write. Committed data stays as it is.
    #[cold]
    fn roll_back_hot_journal(&self) -> Result<(), DbError> {
        let connection = DbConnection::open_read_write(&self.resolve_path()?, LOCK_TIMEOUT)?;
        connection.authorizer.set_mode(AccessMode::ReadSchema);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        connection.inner.query_row("SELECT count(*) FROM main.sqlite_schema", [], count)?;
        Ok(())
    }

    /// Runs `run` on a connection that may read the schema. Rare, so the connection is not pooled.
    pub(crate) fn with_schema_connection<T>(
        &self,
        run: impl Fn(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, SourceError> {
        self.with_dedicated_connection(&AccessMode::ReadSchema, run).map_err(|error| self.source_error(error))
    }

    /// Runs `run` on a connection of its own, with access that pooled connections do not have.
    pub(crate) fn with_dedicated_connection<T>(
        &self,
        mode: &AccessMode,
        run: impl Fn(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let (waiting_since, mut is_rolled_back) = (Instant::now(), false);
        loop {
            let connection = self.resolve_path().and_then(|path| {
                Ok(DbConnection::open_read_only(&path, mode.clone(), Generation::default())?)
            });
            match connection.and_then(|connection| run(&connection)) {
                Err(error) if error.is_busy() && waiting_since.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(RETRY_DELAY)
                }
                Err(error) if error.has_hot_journal() && !is_rolled_back => {
                    is_rolled_back = true;
                    self.roll_back_hot_journal()?;
                }
                other => return other,
            }
        }
    }

    /// Call after our own commit: no read that begins later may use an older snapshot.
    pub(crate) fn invalidate_snapshots(&self) {
        let mut state = self.shared.lock();
        state.generation.own_commits = state.generation.own_commits.wrapping_add(1);
        let (generation, before) = (state.generation, state.idle.len());
        state.idle.retain_mut(|connection| {
            connection.generation = generation;
            connection.end_snapshot().is_ok()
        });
        state.open_count -= before - state.idle.len();
        self.shared.notify_waiter(state);
    }

    /// Makes the next read check whether the path leads to another file.
    pub(crate) fn force_file_check(&self) {
        self.shared.lock().next_file_check = None;
    }

    pub(crate) fn source_error(&self, error: DbError) -> SourceError {
        error.into_source_error(&self.path)
    }

    fn acquire(&self, freshness: Freshness, wait: Wait) -> Result<PooledConnection<'_>, DbError> {
        let mut now = Instant::now();
        let mut state = self.shared.lock();
        self.check_file(&mut state, now)?;
        let connection = loop {
            if let Some(connection) = state.idle.pop() {
                break Some(connection);
            }
            if wait == Wait::Never {
                return Err(DbError::WouldBlock);
            }
            if state.open_count < self.connections_max {
                state.open_count += 1;
                break None;
            }
            state.waiting_count += 1;
            let result = self.shared.connection_freed.wait_timeout(state, LOCK_TIMEOUT);
            let (after, timeout) = result.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.waiting_count -= 1;
            if timeout.timed_out() && state.idle.is_empty() {
                let detail = format!("all {} connections are in use", self.connections_max);
                return Err(SourceError::Busy { detail }.into());
            }
            now = Instant::now();
        };
        let previous_read = match freshness {
            Freshness::SnapshotAllowed => state.last_row_read.replace(now),
            Freshness::Latest => None,
        };
        let Some(connection) = connection else {
            let generation = state.generation;
            drop(state);
            return self.open_connection(generation);
        };
        if freshness == Freshness::SnapshotAllowed
            && connection.snapshot_until().is_some_and(|until| now < until)
        {
            return Ok(PooledConnection { pool: self, connection: Some(connection) });
        }
        // Reads follow each other closely, and no other program writes.
        let keeps_snapshot = connection.is_wal
            && previous_read.is_some_and(|before| now < before + SNAPSHOT_READ_GAP)
            && state.last_foreign_commit.is_none_or(|committed| committed + SNAPSHOT_COOLDOWN <= now)
            && state.reaper.ensure_started(&self.shared);
        drop(state);
        let mut lent = PooledConnection { pool: self, connection: Some(connection) };
        lent.refresh_snapshot(keeps_snapshot.then(|| now + SNAPSHOT_LIFETIME))?;
        Ok(lent)
    }

    fn open_connection(&self, generation: Generation) -> Result<PooledConnection<'_>, DbError> {
        let connection = self
            .resolve_path()
            .and_then(|path| Ok(DbConnection::open_read_only(&path, AccessMode::ReadRows, generation)?));
        match connection {
            Ok(connection) => Ok(PooledConnection { pool: self, connection: Some(Box::new(connection)) }),
            Err(error) => {
                let mut state = self.shared.lock();
                state.open_count -= 1;
                self.shared.notify_waiter(state);
                Err(error)
            }
        }
    }

    /// Reopens connections if the path leads to another file.
    fn check_file(&self, state: &mut PoolState, now: Instant) -> Result<(), DbError> {
        if state.next_file_check.is_some_and(|at| now < at) {
            return Ok(());
        }
        let file = file_stamp(&self.path);
        if file.is_none() || file != state.file_stamp {
            state.generation.file = state.generation.file.wrapping_add(1);
            state.open_count -= state.idle.len();
            state.idle.clear();
            state.file_stamp = file;
        }
        if state.file_stamp.is_none() {
            return Err(self.missing_file_error());
        }
        state.next_file_check = Some(now + FILE_CHECK_INTERVAL);
        Ok(())
    }

    pub(crate) fn resolve_path(&self) -> Result<PathBuf, DbError> {
        let path = self.path.canonicalize().map_err(|_| self.missing_file_error())?;
        // Checked before opening: opening a named pipe blocks until it has a writer.
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() || metadata.is_dir() => Ok(path),
            Ok(_) => Err(error::not_a_file(&self.path).into()),
            Err(_) => Err(self.missing_file_error()),
        }
    }

    pub(crate) fn missing_file_error(&self) -> DbError {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        DbError::Sql(rusqlite::Error::SqliteFailure(error, None))
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.shared.reaper_wakeup.notify_one();
        drop(idle);
    }
}

impl PoolShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks the state, and wakes one waiting thread if there is one.
    fn notify_waiter(&self, state: MutexGuard<'_, PoolState>) {
        let has_waiter = state.waiting_count > 0;
        drop(state);
        if has_waiter {
            self.connection_freed.notify_one();
        }
    }
}

impl PooledConnection<'_> {
    fn connection(&self) -> &DbConnection {
        self.connection.as_ref().expect("only taken when the loan is dropped")
    }

    /// Ends a snapshot that is too old, and begins a new one if `until` is given.
    fn refresh_snapshot(&mut self, until: Option<Instant>) -> Result<(), DbError> {
        let connection = self.connection.as_mut().expect("only taken when the loan is dropped");
        connection.end_snapshot()?;
        let Some(until) = until else { return Ok(()) };
        match connection.begin_snapshot(until) {
            Ok(DataVersionCheck::Unchanged) => Ok(()),
            Ok(DataVersionCheck::Changed) => {
                connection.end_snapshot()?;
                self.pool.shared.lock().last_foreign_commit = Some(Instant::now());
                Ok(())
            }
            Err(error) => {
                connection.end_snapshot()?;
                Err(error.into())
            }
        }
    }

    #[inline]
    fn run<T>(mut self, run: &mut impl FnMut(&DbConnection) -> Result<T, DbError>) -> Result<T, DbError> {
        let read = run(self.connection());
        if let (Err(_), Some(connection)) = (&read, &mut self.connection) {
            // Report the error of the read. A connection that cannot end its snapshot is closed.
            let _ = connection.end_snapshot();
        }
        read
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.clear_deadline();
        let shared = &self.pool.shared;
        let mut state = shared.lock();
        let mut wakes_reaper = false;
        if connection.generation == state.generation && connection.is_reusable() {
            wakes_reaper = connection.snapshot_until().is_some() && state.reaper == SnapshotReaper::Idle;
            if wakes_reaper {
                state.reaper = SnapshotReaper::Active;
            }
            state.idle.push(connection);
        } else if connection.generation.file == state.generation.file
            && connection.end_snapshot().is_ok()
            && connection.is_reusable()
        {
            // Spile committed while the connection was lent, so its snapshot is too old.
            connection.generation = state.generation;
            state.idle.push(connection);
        } else {
            state.open_count -= 1;
        }
        shared.notify_waiter(state);
        if wakes_reaper {
            shared.reaper_wakeup.notify_one();
        }
    }
}

/// The file that the path leads to; `None` if there is none.
///
/// A file that was copied over this one keeps its inode, and its modification time can be set back: connections would
/// go on with cached pages. The change time cannot be set. Ordinary commits change it too, which costs no more than
/// opening again now and then.
pub(crate) fn file_stamp(path: &Path) -> Option<FileStamp> {
    Some(FileStamp::of_path(path)).filter(|stamp| *stamp != FileStamp::Missing)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, MutexGuard};
    use std::time::Duration;

    use contract::source::SourceError;
    use rusqlite::Connection;

    use super::{ConnectionPool, PoolState, ReadMode};
    use crate::sqlite::connection::snapshot_reaper::SnapshotReaper;

    /// Far more iterations than needed.
    const TRIES: usize = 100_000;

    struct PoolFixture {
        _folder: tempfile::TempDir,
        writer: Connection,
        pool: ConnectionPool,
    }

    impl PoolFixture {
        fn new(mode: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("t.db");
            let writer = Connection::open(&path).expect("a database");
            let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(a); INSERT INTO t VALUES(0)");
            writer.execute_batch(&sql).expect("a table");
            Self { _folder: folder, writer, pool: ConnectionPool::new(&path, 2) }
        }

        fn row(&self) -> i64 {
            let row = self.pool.read_row(ReadMode::Blocking, |connection| {
                let mut statement = connection.inner.prepare_cached("SELECT a FROM t")?;
                Ok(statement.query_row([], |row| row.get(0))?)
            });
            row.expect("a row")
        }

        fn state(&self) -> MutexGuard<'_, PoolState> {
            self.pool.shared.lock()
        }

        fn has_snapshot(&self) -> bool {
            self.state().idle.iter().any(|connection| connection.snapshot_until().is_some())
        }

        /// Reads until the pool keeps a snapshot.
        fn read_until_snapshot(&self) {
            let has_snapshot = (0..TRIES).any(|_| {
                self.row();
                self.has_snapshot()
            });
            assert!(has_snapshot, "reads are never close enough");
        }
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let condition = (0..TRIES).any(|_| {
            std::thread::sleep(Duration::from_micros(100));
            condition()
        });
        assert!(condition, "waited in vain");
    }

    #[test]
    fn with_a_rollback_journal_no_snapshot_is_kept() {
        let fixture = PoolFixture::new("DELETE");
        for _ in 0..1_000 {
            fixture.row();
            assert!(!fixture.has_snapshot());
        }
        assert_eq!(fixture.state().reaper, SnapshotReaper::NotStarted);
    }

    #[test]
    fn reads_that_are_far_apart_keep_no_snapshot() {
        let fixture = PoolFixture::new("WAL");
        for _ in 0..20 {
            fixture.row();
            std::thread::sleep(super::SNAPSHOT_READ_GAP);
        }
        assert_eq!(fixture.state().reaper, SnapshotReaper::NotStarted);
    }

    #[test]
    fn the_reaper_becomes_idle_and_wakes_again() {
        let fixture = PoolFixture::new("WAL");
        for _ in 0..3 {
            fixture.read_until_snapshot();
            wait_until(|| fixture.state().reaper == SnapshotReaper::Idle);
            assert!(!fixture.has_snapshot());
        }
    }

    #[test]
    fn the_reaper_ends_with_the_pool() {
        let fixture = PoolFixture::new("WAL");
        fixture.read_until_snapshot();
        let shared = Arc::downgrade(&fixture.pool.shared);
        drop(fixture);
        wait_until(|| shared.strong_count() == 0);
        // Also while the reaper is idle.
        let fixture = PoolFixture::new("WAL");
        fixture.read_until_snapshot();
        wait_until(|| fixture.state().reaper == SnapshotReaper::Idle);
        let shared = Arc::downgrade(&fixture.pool.shared);
        drop(fixture);
        wait_until(|| shared.strong_count() == 0);
    }

    #[test]
    fn a_failed_read_ends_its_snapshot() {
        let fixture = PoolFixture::new("WAL");
        fixture.read_until_snapshot();
        let read = fixture.pool.read_row(ReadMode::Blocking, |connection| {
            connection.inner.prepare_cached("SELECT a FROM t")?;
            Err::<(), _>(SourceError::StaleCursor.into())
        });
        assert!(read.is_err());
        assert!(!fixture.has_snapshot());
    }

    #[test]
    fn reads_other_than_by_key_see_the_latest_commit() {
        let fixture = PoolFixture::new("WAL");
        for round in 1..20 {
            fixture.read_until_snapshot();
            fixture.writer.execute("UPDATE t SET a = ?1", [round]).expect("written");
            let value = fixture.pool.read(|connection| {
                assert!(connection.inner.is_autocommit());
                Ok(connection.inner.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))?)
            });
            assert_eq!(value.expect("a row"), round);
        }
    }

    #[test]
    fn no_snapshot_is_kept_while_another_program_commits() {
        let fixture = PoolFixture::new("WAL");
        fixture.read_until_snapshot();
        let before = fixture.state().last_foreign_commit;
        fixture.writer.execute("UPDATE t SET a = 1", []).expect("written");
        let is_noticed = (0..TRIES).any(|_| {
            fixture.row();
            fixture.state().last_foreign_commit != before
        });
        assert!(is_noticed, "a commit is not noticed");
        assert!(!fixture.has_snapshot());
        assert_eq!(fixture.row(), 1);
        // Snapshots are kept again after the commit.
        fixture.read_until_snapshot();
    }
}
