//! The thread that owns the connection. It runs the operations that wait in one transaction: one wait for the disk serves
//! them all, and each is answered only after the commit.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::operations::OperationError;
use crate::store::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// One operation with its arguments, and where its answer goes.
pub(super) trait Job: Send {
    fn access(&self) -> Access;
    /// The caller does not wait for the response any more.
    fn is_abandoned(&self) -> bool;
    /// Runs the operation and keeps its result. `Err` if it must be undone.
    fn run(&mut self, db: &Connection) -> Result<(), StoreError>;
    /// Sends the result, or this error instead.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

pub(super) struct OperationJob<T, F> {
    pub(super) access: Access,
    pub(super) operation: F,
    pub(super) result: Option<Result<T, StoreError>>,
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for OperationJob<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, OperationError> + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, db: &Connection) -> Result<(), StoreError> {
        let result = (self.operation)(db).map_err(|error| match error {
            OperationError::Refused(error) => error,
            OperationError::Database(error) => to_store_error(&error),
        });
        let undo = result.as_ref().err().copied();
        self.result = Some(result);
        undo.map_or(Ok(()), Err)
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        let result = committed.and_then(|()| result.unwrap_or(Err(StoreError::Unavailable)));
        // The caller may have gone away.
        let _ = reply.send(result);
    }
}

/// A job that waits, and its place in the queue.
pub(super) struct QueuedJob {
    pub(super) job: Box<dyn Job>,
    pub(super) place: OwnedSemaphorePermit,
}

impl QueuedJob {
    /// Leaves the queue.
    fn into_job(self) -> Box<dyn Job> {
        drop(self.place);
        self.job
    }
}

const BATCH_JOBS_MAX: usize = 64;

/// The file that was opened. Whoever deletes or replaces it leaves this process alone with a file that no other one sees.
pub(super) struct OpenedFile {
    path: PathBuf,
    id: (u64, u64),
}

impl OpenedFile {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: file_id(path)? })
    }

    fn is_in_place(&self) -> bool {
        file_id(&self.path).is_ok_and(|id| id == self.id)
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    #[cfg(unix)]
    return Ok((
        std::os::unix::fs::MetadataExt::dev(&metadata),
        std::os::unix::fs::MetadataExt::ino(&metadata),
    ));
    // Windows does not delete a file that is open.
    #[cfg(not(unix))]
    Ok((0, u64::from(metadata.is_file())))
}

/// Ends when all senders are gone.
pub(super) fn run(mut connection: Connection, file: &OpenedFile, jobs: &Receiver<QueuedJob>) {
    while let Ok(first) = jobs.recv() {
        let waiting = std::iter::once(first).chain(jobs.try_iter()).take(BATCH_JOBS_MAX);
        let mut batch: Vec<Box<dyn Job>> =
            waiting.map(QueuedJob::into_job).filter(|job| !job.is_abandoned()).collect();
        if batch.is_empty() {
            continue;
        }
        let committed = if file.is_in_place() {
            run_batch(&mut connection, &mut batch).map_err(|error| to_store_error(&error))
        } else {
            tracing::error!(path = %file.path.display(), "the store was deleted or replaced; restart the server");
            Err(StoreError::Unavailable)
        };
        batch.into_iter().for_each(|job| job.finish(committed));
    }
}

fn run_batch(connection: &mut Connection, batch: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    let behavior = match batch.iter().any(|job| job.access() == Access::Write) {
        true => TransactionBehavior::Immediate,
        false => TransactionBehavior::Deferred,
    };
    let mut transaction = connection.transaction_with_behavior(behavior)?;
    for job in batch {
        let savepoint = transaction.savepoint()?;
        match job.run(&savepoint) {
            Ok(()) => savepoint.commit()?,
            // Undoes what the operation did; the other operations of the batch stay. Some errors end the whole transaction, for
            // example a full disk: then the savepoint is gone, this fails, and no operation of the batch has happened.
            Err(_) => savepoint.finish()?,
        }
    }
    transaction.commit()
}

/// What a caller may know. The rest goes to the log. A file that is damaged is no single entry's fault: whoever would start
/// again without the entry would fail again.
fn to_store_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => tracing::error!(
            %error,
            "the file of the store is damaged; stop all servers that use it, delete it with its `-wal` and `-shm`, and start again"
        ),
        Some(ErrorCode::DiskFull) => {
            tracing::error!(%error, "the disk of the store is full; make room, the server goes on by itself");
        }
        _ => tracing::error!(%error, "the store's database reports an error"),
    }
    StoreError::Unavailable
}
