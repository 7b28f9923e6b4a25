//! The store in an SQLite file: outlives the process, and shared by the processes of one machine.
//!
//! A operation is answered after its commit is on the disk, so one that was acknowledged survives a killed process and a
//! power failure. All work happens on a thread of its own.

mod operations;
mod schema;
mod worker;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use spile_core::Platform;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::{
    LeaseOutcome, PutOutcome, Reply, Sequence, Store, StoreError, StoreKey, StoreLimits, StreamPage, Ttl,
};
use crate::private_file::{self, FileExposure, OpenProblem};
use operations::{OperationError, OwnedKey};
use schema::SchemaProblem;
use worker::{Access, Job, OpenedFile, OperationJob, QueuedJob};

/// Why a file cannot be the store. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("cannot open the store `{}`: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("the store `{}` is not a regular file; name a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("other users can read or change the store `{path}` (mode {mode:o}); run `chmod 600 {path}`", path = path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the store `{}` belongs to another user; change its owner, or name another file", path.display())]
    ForeignOwner { path: PathBuf },
    #[error("`{}` is not a store of Spile; name another file", path.display())]
    NotAStore { path: PathBuf },
    #[error("the store `{}` has version {version}, which this Spile does not know; use the Spile that wrote it, or another file", path.display())]
    UnknownVersion { path: PathBuf, version: i64 },
    #[error("the file system of the store `{}` has no shared memory, which SQLite needs; name a file on a local disk", path.display())]
    NoWriteAheadLog { path: PathBuf },
    #[error("cannot use the store `{}`: {error}; delete it to start with an empty one", path.display())]
    Database { path: PathBuf, error: rusqlite::Error },
}

/// Operations that wait for the thread. The callers of others wait for a place, for at most [`QUEUE_TIMEOUT`]; then the
/// store is [`StoreError::Unavailable`] for them.
const QUEUE_JOBS_MAX: usize = 64;
/// As long as the thread waits for another process that has locked the file.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct SqliteStore {
    limits: StoreLimits,
    /// `None` only while it is dropped.
    jobs: Option<Arc<SyncSender<QueuedJob>>>,
    /// One permit for each place in the queue.
    places: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the store, or creates it for this user only. Waits for the disk.
    pub fn open(path: &Path, limits: StoreLimits, platform: &dyn Platform) -> Result<Self, OpenStoreError> {
        let io_error = |error| OpenStoreError::Io { path: path.to_owned(), error };
        // SQLite would create it with the umask.
        match private_file::publish(path, b"", platform) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io_error(error)),
            Ok(()) | Err(_) => check_private(path)?,
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database_error = |error| OpenStoreError::Database { path: path.to_owned(), error };
        let mut connection = Connection::open_with_flags(path, flags).map_err(database_error)?;
        schema::prepare(&mut connection).map_err(|problem| {
            let path = path.to_owned();
            match problem {
                // It may be somebody's file: the advice must not be to delete it.
                SchemaProblem::Database(error)
                    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) =>
                {
                    OpenStoreError::NotAStore { path }
                }
                SchemaProblem::Database(error) => OpenStoreError::Database { path, error },
                SchemaProblem::NotAStore => OpenStoreError::NotAStore { path },
                SchemaProblem::Newer(version) => OpenStoreError::UnknownVersion { path, version },
                SchemaProblem::NoWriteAheadLog => OpenStoreError::NoWriteAheadLog { path },
            }
        })?;
        let file = OpenedFile::new(path).map_err(io_error)?;
        let (jobs, queue) = sync_channel(QUEUE_JOBS_MAX);
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || worker::run(connection, &file, &queue)).map_err(io_error)?;
        let places = Arc::new(Semaphore::new(QUEUE_JOBS_MAX));
        Ok(Self { limits, jobs: Some(Arc::new(jobs)), places, thread: Some(thread) })
    }

    fn submit<T: Send + Unpin + 'static>(
        &self,
        access: Access,
        operation: impl FnMut(&Connection) -> Result<T, OperationError> + Send + 'static,
    ) -> Reply<T> {
        let (reply, answer) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(OperationJob { access, operation, result: None, reply });
        // Weak: a caller that waits must not keep the thread alive.
        let jobs = self.jobs.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let answer = async move { answer.await.unwrap_or(Err(StoreError::Unavailable)) };
        match self.places.clone().try_acquire_owned() {
            Ok(place) => match enqueue(&jobs, QueuedJob { job, place }) {
                Ok(()) => Reply::later(answer),
                Err(error) => Reply::now(Err(error)),
            },
            Err(_) => {
                let places = self.places.clone();
                Reply::later(async move {
                    let Ok(Ok(place)) = timeout(QUEUE_TIMEOUT, places.acquire_owned()).await else {
                        tracing::error!("the store is too slow: its queue stays full");
                        return Err(StoreError::Unavailable);
                    };
                    enqueue(&jobs, QueuedJob { job, place })?;
                    answer.await
                })
            }
        }
    }
}

/// There is room for every job with a place.
fn enqueue(jobs: &Weak<SyncSender<QueuedJob>>, job: QueuedJob) -> Result<(), StoreError> {
    let sent = jobs.upgrade().map(|jobs| jobs.try_send(job));
    match sent {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            tracing::error!(%error, "the queue of the store's worker is full or closed");
            Err(StoreError::Unavailable)
        }
        None => Err(StoreError::Unavailable),
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The thread finishes what waits, and closes the file.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns from a operation with a reply that is an error.
macro_rules! check {
    ($checked:expr) => {
        match $checked {
            Ok(checked) => checked,
            Err(error) => return Reply::now(Err(error)),
        }
    };
}

impl Store for SqliteStore {
    fn put_once(&self, key: StoreKey<'_>, value: &[u8], ttl: Ttl, now_ms: u64) -> Reply<PutOutcome> {
        check!(self.limits.check_key(key));
        check!(self.limits.check_value(value));
        let end_ms = check!(self.limits.end_ms(ttl, now_ms));
        let (limits, key, value) = (self.limits, OwnedKey::new(key), value.to_vec());
        self.submit(Access::Write, move |db| operations::put_once(db, &limits, &key, &value, end_ms, now_ms))
    }

    fn get(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        check!(self.limits.check_key(key));
        let key = OwnedKey::new(key);
        self.submit(Access::Read, move |db| operations::get(db, &key, now_ms))
    }

    fn take(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<Option<Vec<u8>>> {
        check!(self.limits.check_key(key));
        let key = OwnedKey::new(key);
        self.submit(Access::Write, move |db| operations::take(db, &key, now_ms))
    }

    fn delete(&self, key: StoreKey<'_>, now_ms: u64) -> Reply<bool> {
        check!(self.limits.check_key(key));
        let key = OwnedKey::new(key);
        self.submit(Access::Write, move |db| operations::delete(db, &key, now_ms))
    }

    fn append(
        &self,
        stream: StoreKey<'_>,
        value: &[u8],
        entries_max: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Reply<Sequence> {
        check!(self.limits.check_key(stream));
        check!(self.limits.check_value(value));
        let end_ms = check!(self.limits.end_ms(ttl, now_ms));
        let (limits, stream, value) = (self.limits, OwnedKey::new(stream), value.to_vec());
        self.submit(Access::Write, move |db| {
            operations::append(db, &limits, &stream, &value, entries_max, end_ms, now_ms)
        })
    }

    fn read_after(
        &self,
        stream: StoreKey<'_>,
        after: Sequence,
        entries_max: usize,
        now_ms: u64,
    ) -> Reply<Option<StreamPage>> {
        check!(self.limits.check_key(stream));
        let (limits, stream) = (self.limits, OwnedKey::new(stream));
        self.submit(Access::Read, move |db| {
            operations::read_after(db, &limits, &stream, after, entries_max, now_ms)
        })
    }

    fn lease(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<LeaseOutcome> {
        check!(self.limits.check_key(key));
        check!(self.limits.check_holder(holder));
        let end_ms = check!(self.limits.end_ms(ttl, now_ms));
        let (limits, key, holder) = (self.limits, OwnedKey::new(key), holder.to_vec());
        self.submit(Access::Write, move |db| operations::lease(db, &limits, &key, &holder, end_ms, now_ms))
    }

    fn renew(&self, key: StoreKey<'_>, holder: &[u8], ttl: Ttl, now_ms: u64) -> Reply<bool> {
        check!(self.limits.check_key(key));
        let end_ms = check!(self.limits.end_ms(ttl, now_ms));
        let (key, holder) = (OwnedKey::new(key), holder.to_vec());
        self.submit(Access::Write, move |db| operations::renew(db, &key, &holder, end_ms, now_ms))
    }

    fn release(&self, key: StoreKey<'_>, holder: &[u8], now_ms: u64) -> Reply<bool> {
        check!(self.limits.check_key(key));
        let (key, holder) = (OwnedKey::new(key), holder.to_vec());
        self.submit(Access::Write, move |db| operations::release(db, &key, &holder, now_ms))
    }

    fn expire(&self, records_max: usize, now_ms: u64) -> Reply<usize> {
        self.submit(Access::Write, move |db| operations::sweep(db, records_max, now_ms))
    }
}

fn check_private(path: &Path) -> Result<(), OpenStoreError> {
    let problem = match private_file::check(path) {
        Ok(()) => return Ok(()),
        Err(problem) => problem,
    };
    let path = path.to_owned();
    Err(match problem {
        OpenProblem::Io(error) => OpenStoreError::Io { path, error },
        OpenProblem::NotAFile => OpenStoreError::NotAFile { path },
        OpenProblem::Exposed(FileExposure::Mode(mode)) => OpenStoreError::Exposed { path, mode },
        OpenProblem::Exposed(FileExposure::ForeignOwner) => OpenStoreError::ForeignOwner { path },
    })
}
