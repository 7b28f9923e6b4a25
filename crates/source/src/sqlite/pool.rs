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

use contract::source::SourceFault;

use super::fault::{self, Fail};
use super::gate::Permit;
use super::janitor::Janitor;
use super::session::{Generation, Session, Since};

/// How long somebody else's lock is waited for. A reader must not wait longer than it may make others wait.
const PATIENCE: Duration = Duration::from_millis(45);
/// Somebody who commits again and again leaves gaps shorter than a millisecond.
const PAUSE: Duration = Duration::from_micros(100);
/// How long a connection may go on with a file that the path no longer leads to. No row served is older.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// How old a state may be that a read by key sees.
const KEEP: Duration = Duration::from_millis(1);
/// Reads further apart than this see the newest state each: to keep one costs as much as a few reads.
const CLOSE: Duration = Duration::from_micros(200);
/// How long nothing is kept after somebody else committed.
const RESPECT: Duration = Duration::from_millis(10);

pub(super) struct Pool {
    /// As the user gave it, for words.
    given: PathBuf,
    connections_max: usize,
    shared: Arc<Shared>,
}

/// What the janitor sees of a pool.
pub(super) struct Shared {
    state: Mutex<State>,
    freed: Condvar,
    /// A state is kept again, or the pool is gone.
    pub(super) kept: Condvar,
}

pub(super) struct State {
    #[expect(clippy::vec_box, reason = "a session is some hundred bytes, and moves with every read")]
    pub(super) idle: Vec<Box<Session>>,
    /// Idle and lent.
    pub(super) open: usize,
    /// Threads that wait for a connection: to wake nobody costs a system call too.
    waiting: usize,
    generation: Generation,
    file: Option<FileId>,
    /// When to look at the path again.
    look_at: Option<Instant>,
    /// When a row was last read by its key.
    row_read: Option<Instant>,
    /// When somebody else was last seen to have committed.
    committed: Option<Instant>,
    pub(super) janitor: Janitor,
    pub(super) is_closed: bool,
}

/// What a connection is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// One row by its key.
    Row,
    /// All else, which sees what was committed before.
    Newest,
}

/// A connection for the time of one read.
struct Loan<'p> {
    pool: &'p Pool,
    session: Option<Box<Session>>,
}

impl Pool {
    pub(super) fn new(path: &Path, connections_max: usize) -> Self {
        let state = State {
            idle: Vec::new(),
            open: 0,
            waiting: 0,
            generation: Generation::default(),
            file: None,
            look_at: None,
            row_read: None,
            committed: None,
            janitor: Janitor::Unborn,
            is_closed: false,
        };
        let shared = Shared { state: Mutex::new(state), freed: Condvar::new(), kept: Condvar::new() };
        Self { given: path.to_owned(), connections_max: connections_max.max(1), shared: Arc::new(shared) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.given
    }

    /// Runs a read, again and again for a moment if somebody holds a lock.
    pub(super) fn read<T>(&self, run: impl FnMut(&Session) -> Result<T, Fail>) -> Result<T, Fail> {
        self.run(Wanted::Newest, PATIENCE, run)
    }

    /// The same for who has more time.
    pub(super) fn read_within<T>(
        &self,
        patience: Duration,
        run: impl FnMut(&Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        self.run(Wanted::Newest, patience, run)
    }

    /// The same for a row by its key, which may be as old as [`KEEP`] says.
    #[inline]
    pub(super) fn read_row<T>(&self, run: impl FnMut(&Session) -> Result<T, Fail>) -> Result<T, Fail> {
        self.run(Wanted::Row, PATIENCE, run)
    }

    #[inline]
    fn run<T>(
        &self,
        wanted: Wanted,
        patience: Duration,
        mut run: impl FnMut(&Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let (mut since, mut is_restored) = (None, false);
        loop {
            match self.take(wanted).and_then(|loan| loan.run(&mut run)) {
                Err(fail) if fail.is_busy() => {
                    let now = Instant::now();
                    if now - *since.get_or_insert(now) >= patience {
                        return Err(fail);
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(fail) if fail.is_unfinished() && !is_restored => {
                    is_restored = true;
                    self.restore()?;
                }
                other => return other,
            }
        }
    }

    /// Somebody was cut off in the middle of a change, and left a journal with which to take it back. SQLite does that
    /// before anybody can read, on a connection that may write; what was committed stays as it is.
    #[cold]
    fn restore(&self) -> Result<(), Fail> {
        let session = Session::open_to_write(&self.absolute()?, PATIENCE)?;
        session.gate.set(Permit::Schema);
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        session.connection.query_row("SELECT count(*) FROM main.sqlite_schema", [], count)?;
        Ok(())
    }

    /// A connection that may ask for the schema: rare, and not kept.
    pub(super) fn schema<T>(&self, run: impl Fn(&Session) -> Result<T, Fail>) -> Result<T, SourceFault> {
        self.aside(&Permit::Schema, run).map_err(|fail| self.fault(fail))
    }

    /// A connection that is not kept, for what others may not do.
    pub(super) fn aside<T>(
        &self,
        permit: &Permit,
        run: impl Fn(&Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let (since, mut is_restored) = (Instant::now(), false);
        loop {
            let opened = self
                .absolute()
                .and_then(|path| Ok(Session::open(&path, permit.clone(), Generation::default())?));
            match opened.and_then(|session| run(&session)) {
                Err(fail) if fail.is_busy() && since.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(fail) if fail.is_unfinished() && !is_restored => {
                    is_restored = true;
                    self.restore()?;
                }
                other => return other,
            }
        }
    }

    /// We committed ourselves. No read that begins from now on may see what was kept before.
    pub(super) fn wrote(&self) {
        let mut state = self.shared.lock();
        state.generation.write = state.generation.write.wrapping_add(1);
        let (generation, before) = (state.generation, state.idle.len());
        state.idle.retain_mut(|session| {
            session.generation = generation;
            session.let_go().is_ok()
        });
        state.open -= before - state.idle.len();
        self.shared.wake(state);
    }

    /// The file may be another one than it was: whoever reads next looks.
    pub(super) fn doubt(&self) {
        self.shared.lock().look_at = None;
    }

    pub(super) fn fault(&self, fail: Fail) -> SourceFault {
        fail.into_fault(&self.given)
    }

    fn take(&self, wanted: Wanted) -> Result<Loan<'_>, Fail> {
        let mut now = Instant::now();
        let mut state = self.shared.lock();
        self.look(&mut state, now)?;
        let session = loop {
            if let Some(session) = state.idle.pop() {
                break Some(session);
            }
            if state.open < self.connections_max {
                state.open += 1;
                break None;
            }
            state.waiting += 1;
            let waited = self.shared.freed.wait_timeout(state, PATIENCE);
            let (after, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.waiting -= 1;
            if wait.timed_out() && state.idle.is_empty() {
                let log = format!("all {} connections are reading", self.connections_max);
                return Err(SourceFault::Busy { log }.into());
            }
            now = Instant::now();
        };
        let row_before = match wanted {
            Wanted::Row => state.row_read.replace(now),
            Wanted::Newest => None,
        };
        let Some(session) = session else {
            let generation = state.generation;
            drop(state);
            return self.open(generation);
        };
        if wanted == Wanted::Row && session.kept_until().is_some_and(|until| now < until) {
            return Ok(Loan { pool: self, session: Some(session) });
        }
        // Reads follow each other closely, and nobody writes.
        let may_keep = session.is_wal
            && row_before.is_some_and(|before| now < before + CLOSE)
            && state.committed.is_none_or(|committed| committed + RESPECT <= now)
            && state.janitor.is_there(&self.shared);
        drop(state);
        let mut loan = Loan { pool: self, session: Some(session) };
        loan.renew(may_keep.then(|| now + KEEP))?;
        Ok(loan)
    }

    fn open(&self, generation: Generation) -> Result<Loan<'_>, Fail> {
        let opened = self.absolute().and_then(|path| Ok(Session::open(&path, Permit::Rows, generation)?));
        match opened {
            Ok(session) => Ok(Loan { pool: self, session: Some(Box::new(session)) }),
            Err(fail) => {
                let mut state = self.shared.lock();
                state.open -= 1;
                self.shared.wake(state);
                Err(fail)
            }
        }
    }

    /// Looks whether the path still leads to the same file.
    fn look(&self, state: &mut State, now: Instant) -> Result<(), Fail> {
        if state.look_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let file = file_id(&self.given);
        if file.is_none() || file != state.file {
            state.generation.file = state.generation.file.wrapping_add(1);
            state.open -= state.idle.len();
            state.idle.clear();
            state.file = file;
        }
        if state.file.is_none() {
            return Err(self.missing());
        }
        state.look_at = Some(now + LOOK_EVERY);
        Ok(())
    }

    pub(super) fn absolute(&self) -> Result<PathBuf, Fail> {
        let path = self.given.canonicalize().map_err(|_| self.missing())?;
        // Looked at before it is opened: opening a pipe waits for somebody to write.
        match std::fs::metadata(&path) {
            Ok(what) if what.is_file() || what.is_dir() => Ok(path),
            Ok(_) => Err(fault::not_a_file(&self.given).into()),
            Err(_) => Err(self.missing()),
        }
    }

    pub(super) fn missing(&self) -> Fail {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        Fail::Sql(rusqlite::Error::SqliteFailure(error, None))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.shared.kept.notify_one();
        drop(idle);
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the state back, and tells somebody who waits for it to change.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_waited_for = state.waiting > 0;
        drop(state);
        if is_waited_for {
            self.freed.notify_one();
        }
    }
}

impl Loan<'_> {
    fn session(&self) -> &Session {
        self.session.as_ref().expect("only taken when the loan is dropped")
    }

    /// Lets go of a state that is too old, and keeps to a new one if there is a time for it.
    fn renew(&mut self, until: Option<Instant>) -> Result<(), Fail> {
        let session = self.session.as_mut().expect("only taken when the loan is dropped");
        session.let_go()?;
        let Some(until) = until else { return Ok(()) };
        match session.keep(until) {
            Ok(Since::Same) => Ok(()),
            Ok(Since::Changed) => {
                session.let_go()?;
                self.pool.shared.lock().committed = Some(Instant::now());
                Ok(())
            }
            Err(error) => {
                session.let_go()?;
                Err(error.into())
            }
        }
    }

    #[inline]
    fn run<T>(mut self, run: &mut impl FnMut(&Session) -> Result<T, Fail>) -> Result<T, Fail> {
        let read = run(self.session());
        if let (Err(_), Some(session)) = (&read, &mut self.session) {
            // The fault of the read is the one to tell. A connection that cannot let go is closed.
            let _ = session.let_go();
        }
        read
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        session.hold();
        let shared = &self.pool.shared;
        let mut state = shared.lock();
        let mut is_news = false;
        if session.generation == state.generation && session.is_sound() {
            is_news = session.kept_until().is_some() && state.janitor == Janitor::Asleep;
            if is_news {
                state.janitor = Janitor::Awake;
            }
            state.idle.push(session);
        } else if session.generation.file == state.generation.file
            && session.let_go().is_ok()
            && session.is_sound()
        {
            // We wrote while it was lent, so it keeps to nothing from before.
            session.generation = state.generation;
            state.idle.push(session);
        } else {
            state.open -= 1;
        }
        shared.wake(state);
        if is_news {
            shared.kept.notify_one();
        }
    }
}

#[cfg(unix)]
pub(super) type FileId = (u64, u64, u64, i64, i64);

#[cfg(unix)]
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    // A file copied over this one stays the same file, and may say that nothing changed: connections would go on
    // with the pages they know. The time of its change tells, which nobody can set. Whoever writes as they should changes it too, which costs us no more
    // than opening again now and then.
    Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

/// Where an open file cannot be replaced there is nothing to look for.
#[cfg(not(unix))]
pub(super) type FileId = ();

#[cfg(not(unix))]
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, MutexGuard};
    use std::time::Duration;

    use contract::source::SourceFault;
    use rusqlite::Connection;

    use super::super::janitor::Janitor;
    use super::{Pool, State};

    /// Far more than it takes.
    const TRIES: usize = 100_000;

    struct World {
        _folder: tempfile::TempDir,
        writer: Connection,
        pool: Pool,
    }

    impl World {
        fn new(mode: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("t.db");
            let writer = Connection::open(&path).expect("a database");
            let sql = format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(a); INSERT INTO t VALUES(0)");
            writer.execute_batch(&sql).expect("a table");
            Self { _folder: folder, writer, pool: Pool::new(&path, 2) }
        }

        fn row(&self) -> i64 {
            let row = self.pool.read_row(|session| {
                let mut statement = session.connection.prepare_cached("SELECT a FROM t")?;
                Ok(statement.query_row([], |row| row.get(0))?)
            });
            row.expect("a row")
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.pool.shared.lock()
        }

        fn is_kept(&self) -> bool {
            self.state().idle.iter().any(|session| session.kept_until().is_some())
        }

        /// Reads until a state is kept.
        fn keep(&self) {
            let is_kept = (0..TRIES).any(|_| {
                self.row();
                self.is_kept()
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
        let world = World::new("DELETE");
        for _ in 0..1_000 {
            world.row();
            assert!(!world.is_kept());
        }
        assert_eq!(world.state().janitor, Janitor::Unborn);
    }

    #[test]
    fn reads_that_are_far_apart_keep_no_state() {
        let world = World::new("WAL");
        for _ in 0..20 {
            world.row();
            std::thread::sleep(super::CLOSE);
        }
        assert_eq!(world.state().janitor, Janitor::Unborn);
    }

    #[test]
    fn the_janitor_sleeps_when_nothing_is_kept_and_wakes_again() {
        let world = World::new("WAL");
        for _ in 0..3 {
            world.keep();
            wait_until(|| world.state().janitor == Janitor::Asleep);
            assert!(!world.is_kept());
        }
    }

    #[test]
    fn the_janitor_ends_with_the_pool() {
        let world = World::new("WAL");
        world.keep();
        let shared = Arc::downgrade(&world.pool.shared);
        drop(world);
        wait_until(|| shared.strong_count() == 0);
        // And when it sleeps.
        let world = World::new("WAL");
        world.keep();
        wait_until(|| world.state().janitor == Janitor::Asleep);
        let shared = Arc::downgrade(&world.pool.shared);
        drop(world);
        wait_until(|| shared.strong_count() == 0);
    }

    #[test]
    fn a_read_that_fails_lets_go() {
        let world = World::new("WAL");
        world.keep();
        let read = world.pool.read_row(|session| {
            session.connection.prepare_cached("SELECT a FROM t")?;
            Err::<(), _>(SourceFault::Moved.into())
        });
        assert!(read.is_err());
        assert!(!world.is_kept());
    }

    #[test]
    fn all_but_a_row_sees_the_newest() {
        let world = World::new("WAL");
        for turn in 1..20 {
            world.keep();
            world.writer.execute("UPDATE t SET a = ?1", [turn]).expect("written");
            let seen = world.pool.read(|session| {
                assert!(session.connection.is_autocommit());
                Ok(session.connection.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))?)
            });
            assert_eq!(seen.expect("a row"), turn);
        }
    }

    #[test]
    fn nothing_is_kept_where_somebody_writes() {
        let world = World::new("WAL");
        world.keep();
        let before = world.state().committed;
        world.writer.execute("UPDATE t SET a = 1", []).expect("written");
        let is_seen = (0..TRIES).any(|_| {
            world.row();
            world.state().committed != before
        });
        assert!(is_seen, "a commit is not noticed");
        assert!(!world.is_kept());
        assert_eq!(world.row(), 1);
        // And it goes on when that was all.
        world.keep();
    }
}
