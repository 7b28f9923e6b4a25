//! Connections for as many threads as read at once, and no more than that.
//!
//! A path may lead to another file tomorrow: somebody renames a new export over it. Connections would go on
//! reading the old one for ever, so the path is looked at again now and then, and they are opened anew.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::source::SourceFault;

use super::fault::Fail;
use super::session::{Permit, Session};

/// How long somebody else's lock is waited for. A reader must not wait longer than it may make others wait.
const PATIENCE: Duration = Duration::from_millis(45);
/// Somebody who commits again and again leaves gaps shorter than a millisecond.
const PAUSE: Duration = Duration::from_micros(100);
/// How long a connection may go on with a file that the path no longer leads to. No row served is older.
const LOOK_EVERY: Duration = Duration::from_millis(40);

pub(super) struct Pool {
    /// As the user gave it, for words.
    given: PathBuf,
    connections_max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    idle: Vec<Session>,
    open: usize,
    /// Threads that wait for a connection: to wake nobody costs a system call too.
    waiting: usize,
    generation: u64,
    file: Option<FileId>,
    looked: Option<Instant>,
}

/// A connection for the time of one read.
pub(super) struct Loan<'p> {
    pool: &'p Pool,
    session: Option<Session>,
}

impl Pool {
    pub(super) fn new(path: &Path, connections_max: usize) -> Self {
        let state = State { idle: Vec::new(), open: 0, waiting: 0, generation: 0, file: None, looked: None };
        Self {
            given: path.to_owned(),
            connections_max: connections_max.max(1),
            state: Mutex::new(state),
            freed: Condvar::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.given
    }

    /// Runs a read, again and again for a moment if somebody holds a lock.
    #[inline]
    pub(super) fn read<T>(&self, run: impl FnMut(&Session) -> Result<T, Fail>) -> Result<T, Fail> {
        self.read_within(PATIENCE, run)
    }

    /// The same for who has more time.
    #[inline]
    pub(super) fn read_within<T>(
        &self,
        patience: Duration,
        mut run: impl FnMut(&Session) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let mut since = None;
        loop {
            match self.take().and_then(|loan| run(loan.session())) {
                Err(fail) if fail.is_busy() => {
                    let now = Instant::now();
                    if now - *since.get_or_insert(now) >= patience {
                        return Err(fail);
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// A connection that may ask for the schema: rare, and not kept.
    pub(super) fn schema<T>(&self, run: impl Fn(&Session) -> Result<T, Fail>) -> Result<T, SourceFault> {
        let since = Instant::now();
        loop {
            let opened = self.absolute().and_then(|path| Ok(Session::open(&path, Permit::Schema, 0)?));
            match opened.and_then(|session| run(&session)) {
                Err(fail) if fail.is_busy() && since.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                other => return other.map_err(|fail| self.fault(fail)),
            }
        }
    }

    pub(super) fn fault(&self, fail: Fail) -> SourceFault {
        fail.into_fault(&self.given)
    }

    fn take(&self) -> Result<Loan<'_>, Fail> {
        let mut state = self.lock();
        self.look(&mut state)?;
        let generation = state.generation;
        loop {
            if let Some(session) = state.idle.pop() {
                return Ok(Loan { pool: self, session: Some(session) });
            }
            if state.open < self.connections_max {
                state.open += 1;
                break;
            }
            state.waiting += 1;
            let (after, wait) =
                self.freed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = after;
            state.waiting -= 1;
            if wait.timed_out() && state.idle.is_empty() {
                let log = format!("all {} connections are reading", self.connections_max);
                return Err(SourceFault::Busy { log }.into());
            }
        }
        drop(state);
        let opened = self.absolute().and_then(|path| Ok(Session::open(&path, Permit::Rows, generation)?));
        match opened {
            Ok(session) => Ok(Loan { pool: self, session: Some(session) }),
            Err(fail) => {
                let mut state = self.lock();
                state.open -= 1;
                self.wake(state);
                Err(fail)
            }
        }
    }

    /// Looks whether the path still leads to the same file.
    fn look(&self, state: &mut State) -> Result<(), Fail> {
        let now = Instant::now();
        if state.looked.is_some_and(|looked| now - looked < LOOK_EVERY) {
            return Ok(());
        }
        let file = file_id(&self.given);
        if file.is_none() || file != state.file {
            state.generation += 1;
            state.open -= state.idle.len();
            state.idle.clear();
            state.file = file;
        }
        if state.file.is_none() {
            return Err(self.missing());
        }
        state.looked = Some(now);
        Ok(())
    }

    fn absolute(&self) -> Result<PathBuf, Fail> {
        self.given.canonicalize().map_err(|_| self.missing())
    }

    fn missing(&self) -> Fail {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        Fail::Sql(rusqlite::Error::SqliteFailure(error, None))
    }

    /// Gives the state back, and tells somebody who waits for it to change.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_waited_for = state.waiting > 0;
        drop(state);
        if is_waited_for {
            self.freed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    fn session(&self) -> &Session {
        self.session.as_ref().expect("only taken when the loan is dropped")
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        session.hold();
        let mut state = self.pool.lock();
        if session.generation == state.generation && session.connection.is_autocommit() {
            state.idle.push(session);
        } else {
            state.open -= 1;
        }
        self.pool.wake(state);
    }
}

#[cfg(unix)]
type FileId = (u64, u64, u64, i64, i64);

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    // A file copied over this one stays the same file, and may say that nothing changed: connections would go on
    // with the pages they know. Its time tells. Whoever writes as they should changes it too, which costs us no more
    // than opening again now and then.
    Some((file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}

/// Where an open file cannot be replaced there is nothing to look for.
#[cfg(not(unix))]
type FileId = ();

#[cfg(not(unix))]
fn file_id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|_| ())
}
