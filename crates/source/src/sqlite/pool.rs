//! Connections for as many threads as read at once, and no more than that.
//!
//! A path may lead to another file tomorrow: somebody renames a new export over it. Connections would go on
//! reading the old one for ever, so the path is looked at again now and then, and they are opened anew; at once, where
//! whoever writes found another file.
//!
//! Where reads by key follow each other closely, a connection in WAL mode keeps to one state of the database for
//! a millisecond. That takes nothing from anybody: no state is kept where somebody commits again and again, nor
//! when nobody reads (`janitor`), so a log that has been checkpointed can begin anew; and with a rollback journal,
//! where it would keep others from writing, never.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::SourceError;

use super::authorizer::AccessMode;
use super::connection::{DataVersionCheck, DbConnection, Generation};
use super::error::{self, DbError};
use super::snapshot_reaper::SnapshotReaper;

/// How long somebody else's lock is waited for. A reader must not wait longer than it may make others wait.
const LOCK_TIMEOUT: Duration = Duration::from_millis(45);
/// Somebody who commits again and again leaves gaps shorter than a millisecond.
const RETRY_DELAY: Duration = Duration::from_micros(100);
/// How long a connection may go on with a file that the path no longer leads to. No row served is older.
const FILE_CHECK_INTERVAL: Duration = Duration::from_millis(40);

/// How old a state may be that a read by key sees.
const SNAPSHOT_LIFETIME: Duration = Duration::from_millis(1);
/// Reads further apart than this see the newest state each: to keep one costs as much as a few reads.
const SNAPSHOT_READ_GAP: Duration = Duration::from_micros(200);
/// How long nothing is kept after somebody else committed.
const SNAPSHOT_COOLDOWN: Duration = Duration::from_millis(10);

pub(super) struct ConnectionPool {
    /// As the user gave it, for words.
    path: PathBuf,
    connections_max: usize,
    shared: Arc<PoolShared>,
}

/// What the janitor sees of a pool.
pub(super) struct PoolShared {
    state: Mutex<PoolState>,
    connection_freed: Condvar,
    /// A state is kept again, or the pool is gone.
    pub(super) reaper_wakeup: Condvar,
}

pub(super) struct PoolState {
    #[expect(clippy::vec_box, reason = "a session is some hundred bytes, and moves with every read")]
    pub(super) idle: Vec<Box<DbConnection>>,
    /// Idle and lent.
    pub(super) open_count: usize,
    /// Threads that wait for a connection: to wake nobody costs a system call too.
    waiting_count: usize,
    generation: Generation,
    file_stamp: Option<DbFileStamp>,
    /// When to look at the path again.
    next_file_check: Option<Instant>,
    /// When a row was last read by its key.
    last_row_read: Option<Instant>,
    /// When somebody else was last seen to have committed.
    last_foreign_commit: Option<Instant>,
    pub(super) reaper: SnapshotReaper,
    pub(super) is_closed: bool,
}

/// What a connection is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// One row by its key.
    SnapshotAllowed,
    /// All else, which sees what was committed before.
    Latest,
}

/// A connection for the time of one read.
struct PooledConnection<'p> {
    pool: &'p ConnectionPool,
    connection: Option<Box<DbConnection>>,
}

impl ConnectionPool {
    pub(super) fn new(path: &Path, connections_max: usize) -> Self {
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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a read, again and again for a moment if somebody holds a lock.
    pub(super) fn read<T>(&self, run: impl FnMut(&DbConnection) -> Result<T, DbError>) -> Result<T, DbError> {
        self.run(Freshness::Latest, LOCK_TIMEOUT, run)
    }

    /// The same for who has more time.
    pub(super) fn read_with_timeout<T>(
        &self,
        patience: Duration,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.run(Freshness::Latest, patience, run)
    }

    /// The same for a row by its key, which may be as old as [`KEEP`] says.
    #[inline]
    pub(super) fn read_row<T>(
        &self,
        run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.run(Freshness::SnapshotAllowed, LOCK_TIMEOUT, run)
    }

    #[inline]
    fn run<T>(
        &self,
        wanted: Freshness,
        patience: Duration,
        mut run: impl FnMut(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let (mut since, mut is_restored) = (None, false);
        loop {
            match self.acquire(wanted).and_then(|loan| loan.run(&mut run)) {
                Err(fail) if fail.is_busy() => {
                    let now = Instant::now();
                    if now - *since.get_or_insert(now) >= patience {
                        return Err(fail);
                    }
                    std::thread::sleep(RETRY_DELAY);
                }
                Err(fail) if fail.has_hot_journal() && !is_restored => {
                    is_restored = true;
                    self.roll_back_hot_journal()?;
                }
                other => return other,
            }
        }
    }

    /// Somebody was cut off in the middle of a change, and left a journal with which to take it back. SQLite does that
    /// before anybody can read, on a connection that may write; what was committed stays as it is.
    #[cold]
    fn roll_back_hot_journal(&self) -> Result<(), DbError> {
        let session = DbConnection::open_read_write(&self.resolve_path()?, LOCK_TIMEOUT)?;
        session.authorizer.set_mode(AccessMode::ReadSchema);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        session.inner.query_row("SELECT count(*) FROM main.sqlite_schema", [], count)?;
        Ok(())
    }

    /// A connection that may ask for the schema: rare, and not kept.
    pub(super) fn with_schema_connection<T>(
        &self,
        run: impl Fn(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, SourceError> {
        self.with_dedicated_connection(&AccessMode::ReadSchema, run).map_err(|fail| self.source_error(fail))
    }

    /// A connection that is not kept, for what others may not do.
    pub(super) fn with_dedicated_connection<T>(
        &self,
        permit: &AccessMode,
        run: impl Fn(&DbConnection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let (since, mut is_restored) = (Instant::now(), false);
        loop {
            let opened = self.resolve_path().and_then(|path| {
                Ok(DbConnection::open_read_only(&path, permit.clone(), Generation::default())?)
            });
            match opened.and_then(|session| run(&session)) {
                Err(fail) if fail.is_busy() && since.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(RETRY_DELAY)
                }
                Err(fail) if fail.has_hot_journal() && !is_restored => {
                    is_restored = true;
                    self.roll_back_hot_journal()?;
                }
                other => return other,
            }
        }
    }

    /// We committed ourselves. No read that begins from now on may see what was kept before.
    pub(super) fn invalidate_snapshots(&self) {
        let mut state = self.shared.lock();
        state.generation.own_commits = state.generation.own_commits.wrapping_add(1);
        let (generation, before) = (state.generation, state.idle.len());
        state.idle.retain_mut(|session| {
            session.generation = generation;
            session.end_snapshot().is_ok()
        });
        state.open_count -= before - state.idle.len();
        self.shared.notify_waiter(state);
    }

    /// The file may be another one than it was: whoever reads next looks.
    pub(super) fn force_file_check(&self) {
        self.shared.lock().next_file_check = None;
    }

    pub(super) fn source_error(&self, fail: DbError) -> SourceError {
        fail.into_source_error(&self.path)
    }

    fn acquire(&self, wanted: Freshness) -> Result<PooledConnection<'_>, DbError> {
        let mut now = Instant::now();
        let mut state = self.shared.lock();
        self.check_file(&mut state, now)?;
        let session = loop {
            if let Some(session) = state.idle.pop() {
                break Some(session);
            }
            if state.open_count < self.connections_max {
                state.open_count += 1;
                break None;
            }
            state.waiting_count += 1;
            let waited = self.shared.connection_freed.wait_timeout(state, LOCK_TIMEOUT);
            let (after, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.waiting_count -= 1;
            if wait.timed_out() && state.idle.is_empty() {
                let log = format!("all {} connections are reading", self.connections_max);
                return Err(SourceError::Busy { detail: log }.into());
            }
            now = Instant::now();
        };
        let row_before = match wanted {
            Freshness::SnapshotAllowed => state.last_row_read.replace(now),
            Freshness::Latest => None,
        };
        let Some(session) = session else {
            let generation = state.generation;
            drop(state);
            return self.open_connection(generation);
        };
        if wanted == Freshness::SnapshotAllowed && session.snapshot_until().is_some_and(|until| now < until) {
            return Ok(PooledConnection { pool: self, connection: Some(session) });
        }
        // Reads follow each other closely, and nobody writes.
        let may_keep = session.is_wal
            && row_before.is_some_and(|before| now < before + SNAPSHOT_READ_GAP)
            && state.last_foreign_commit.is_none_or(|committed| committed + SNAPSHOT_COOLDOWN <= now)
            && state.reaper.ensure_started(&self.shared);
        drop(state);
        let mut loan = PooledConnection { pool: self, connection: Some(session) };
        loan.refresh_snapshot(may_keep.then(|| now + SNAPSHOT_LIFETIME))?;
        Ok(loan)
    }

    fn open_connection(&self, generation: Generation) -> Result<PooledConnection<'_>, DbError> {
        let opened = self
            .resolve_path()
            .and_then(|path| Ok(DbConnection::open_read_only(&path, AccessMode::ReadRows, generation)?));
        match opened {
            Ok(session) => Ok(PooledConnection { pool: self, connection: Some(Box::new(session)) }),
            Err(fail) => {
                let mut state = self.shared.lock();
                state.open_count -= 1;
                self.shared.notify_waiter(state);
                Err(fail)
            }
        }
    }

    /// Looks whether the path still leads to the same file.
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

    pub(super) fn resolve_path(&self) -> Result<PathBuf, DbError> {
        let path = self.path.canonicalize().map_err(|_| self.missing_file_error())?;
        // Looked at before it is opened: opening a pipe waits for somebody to write.
        match std::fs::metadata(&path) {
            Ok(what) if what.is_file() || what.is_dir() => Ok(path),
            Ok(_) => Err(error::not_a_file(&self.path).into()),
            Err(_) => Err(self.missing_file_error()),
        }
    }

    pub(super) fn missing_file_error(&self) -> DbError {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the state back, and tells somebody who waits for it to change.
    fn notify_waiter(&self, state: MutexGuard<'_, PoolState>) {
        let is_waited_for = state.waiting_count > 0;
        drop(state);
        if is_waited_for {
            self.connection_freed.notify_one();
        }
    }
}

impl PooledConnection<'_> {
    fn connection(&self) -> &DbConnection {
        self.connection.as_ref().expect("only taken when the loan is dropped")
    }

    /// Lets go of a state that is too old, and keeps to a new one if there is a time for it.
    fn refresh_snapshot(&mut self, until: Option<Instant>) -> Result<(), DbError> {
        let session = self.connection.as_mut().expect("only taken when the loan is dropped");
        session.end_snapshot()?;
        let Some(until) = until else { return Ok(()) };
        match session.begin_snapshot(until) {
            Ok(DataVersionCheck::Unchanged) => Ok(()),
            Ok(DataVersionCheck::Changed) => {
                session.end_snapshot()?;
                self.pool.shared.lock().last_foreign_commit = Some(Instant::now());
                Ok(())
            }
            Err(error) => {
                session.end_snapshot()?;
                Err(error.into())
            }
        }
    }

    #[inline]
    fn run<T>(mut self, run: &mut impl FnMut(&DbConnection) -> Result<T, DbError>) -> Result<T, DbError> {
        let read = run(self.connection());
        if let (Err(_), Some(session)) = (&read, &mut self.connection) {
            // The fault of the read is the one to tell. A connection that cannot let go is closed.
            let _ = session.end_snapshot();
        }
        read
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        let Some(mut session) = self.connection.take() else { return };
        session.clear_deadline();
        let shared = &self.pool.shared;
        let mut state = shared.lock();
        let mut is_news = false;
        if session.generation == state.generation && session.is_reusable() {
            is_news = session.snapshot_until().is_some() && state.reaper == SnapshotReaper::Idle;
            if is_news {
                state.reaper = SnapshotReaper::Active;
            }
            state.idle.push(session);
        } else if session.generation.file == state.generation.file
            && session.end_snapshot().is_ok()
            && session.is_reusable()
        {
            // We wrote while it was lent, so it keeps to nothing from before.
            session.generation = state.generation;
            state.idle.push(session);
        } else {
            state.open_count -= 1;
        }
        shared.notify_waiter(state);
        if is_news {
            shared.reaper_wakeup.notify_one();
        }
    }
}

#[cfg(unix)]
pub(super) type DbFileStamp = (u64, u64, u64, i64, i64);

#[cfg(unix)]
pub(super) fn file_stamp(path: &Path) -> Option<DbFileStamp> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    // A file copied over this one stays the same file, and may say that nothing changed: connections would go on
    // with the pages they know. The time of its change tells, which nobody can set. Whoever writes as they should changes it too, which costs us no more
    // than opening again now and then.
    Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

/// Where an open file cannot be replaced there is nothing to look for.
#[cfg(not(unix))]
pub(super) type DbFileStamp = ();

#[cfg(not(unix))]
pub(super) fn file_stamp(path: &Path) -> Option<DbFileStamp> {
    std::fs::metadata(path).ok().map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, MutexGuard};
    use std::time::Duration;

    use contract::source::SourceError;
    use rusqlite::Connection;

    use super::super::snapshot_reaper::SnapshotReaper;
    use super::{ConnectionPool, PoolState};

    /// Far more than it takes.
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
            let row = self.pool.read_row(|session| {
                let mut statement = session.inner.prepare_cached("SELECT a FROM t")?;
                Ok(statement.query_row([], |row| row.get(0))?)
            });
            row.expect("a row")
        }

        fn state(&self) -> MutexGuard<'_, PoolState> {
            self.pool.shared.lock()
        }

        fn has_snapshot(&self) -> bool {
            self.state().idle.iter().any(|session| session.snapshot_until().is_some())
        }

        /// Reads until a state is kept.
        fn read_until_snapshot(&self) {
            let is_kept = (0..TRIES).any(|_| {
                self.row();
                self.has_snapshot()
            });
            assert!(is_kept, "reads are never close enough");
        }
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let is_so = (0..TRIES).any(|_| {
            std::thread::sleep(Duration::from_micros(100));
            is_so()
        });
        assert!(is_so, "waited in vain");
    }

    #[test]
    fn with_a_rollback_journal_no_state_is_kept() {
        let world = PoolFixture::new("DELETE");
        for _ in 0..1_000 {
            world.row();
            assert!(!world.has_snapshot());
        }
        assert_eq!(world.state().reaper, SnapshotReaper::NotStarted);
    }

    #[test]
    fn reads_that_are_far_apart_keep_no_state() {
        let world = PoolFixture::new("WAL");
        for _ in 0..20 {
            world.row();
            std::thread::sleep(super::SNAPSHOT_READ_GAP);
        }
        assert_eq!(world.state().reaper, SnapshotReaper::NotStarted);
    }

    #[test]
    fn the_janitor_sleeps_when_nothing_is_kept_and_wakes_again() {
        let world = PoolFixture::new("WAL");
        for _ in 0..3 {
            world.read_until_snapshot();
            wait_until(|| world.state().reaper == SnapshotReaper::Idle);
            assert!(!world.has_snapshot());
        }
    }

    #[test]
    fn the_janitor_ends_with_the_pool() {
        let world = PoolFixture::new("WAL");
        world.read_until_snapshot();
        let shared = Arc::downgrade(&world.pool.shared);
        drop(world);
        wait_until(|| shared.strong_count() == 0);
        // And when it sleeps.
        let world = PoolFixture::new("WAL");
        world.read_until_snapshot();
        wait_until(|| world.state().reaper == SnapshotReaper::Idle);
        let shared = Arc::downgrade(&world.pool.shared);
        drop(world);
        wait_until(|| shared.strong_count() == 0);
    }

    #[test]
    fn a_read_that_fails_lets_go() {
        let world = PoolFixture::new("WAL");
        world.read_until_snapshot();
        let read = world.pool.read_row(|session| {
            session.inner.prepare_cached("SELECT a FROM t")?;
            Err::<(), _>(SourceError::StaleCursor.into())
        });
        assert!(read.is_err());
        assert!(!world.has_snapshot());
    }

    #[test]
    fn all_but_a_row_sees_the_newest() {
        let world = PoolFixture::new("WAL");
        for turn in 1..20 {
            world.read_until_snapshot();
            world.writer.execute("UPDATE t SET a = ?1", [turn]).expect("written");
            let seen = world.pool.read(|session| {
                assert!(session.inner.is_autocommit());
                Ok(session.inner.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))?)
            });
            assert_eq!(seen.expect("a row"), turn);
        }
    }

    #[test]
    fn nothing_is_kept_where_somebody_writes() {
        let world = PoolFixture::new("WAL");
        world.read_until_snapshot();
        let before = world.state().last_foreign_commit;
        world.writer.execute("UPDATE t SET a = 1", []).expect("written");
        let is_seen = (0..TRIES).any(|_| {
            world.row();
            world.state().last_foreign_commit != before
        });
        assert!(is_seen, "a commit is not noticed");
        assert!(!world.has_snapshot());
        assert_eq!(world.row(), 1);
        // And it goes on when that was all.
        world.read_until_snapshot();
    }
}
