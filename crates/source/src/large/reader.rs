//! Reads the current import of a file. When the file changes, all its readers get the new one at once.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use contract::ValueRef;
use contract::source::{
    Aggregate, Groups, Query, ReadRequest, Reader, RowFlow, RowPosition, Search, SearchOutcome, SourceError,
    TableShape, Total,
};

/// A reader on one import.
#[derive(Clone)]
pub(crate) struct OpenImport {
    pub(crate) reader: Arc<dyn Reader>,
    /// Keeps the database from being removed.
    pub(crate) _import: Arc<dyn Any + Send + Sync>,
}

/// A reader of one shape.
pub(crate) struct LargeReader {
    pub(crate) shape: TableShape,
    current: RwLock<Result<OpenImport, SourceError>>,
    poll: PollFile,
}

/// Checks whether the file is there, and from time to time whether it has changed. Gets the error of the current import, if
/// that failed, and returns what reads return instead of rows.
pub(crate) type PollFile = Box<dyn Fn(Option<&SourceError>) -> Result<(), SourceError> + Send + Sync>;

impl LargeReader {
    pub(crate) fn new(shape: TableShape, current: OpenImport, poll: PollFile) -> Arc<Self> {
        Arc::new(Self { shape, current: RwLock::new(Ok(current)), poll })
    }

    fn current(&self) -> Result<OpenImport, SourceError> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        (self.poll)(current.as_ref().err())?;
        current
    }
}

/// All readers of a file.
#[derive(Default)]
pub(crate) struct ReaderSet(Mutex<Vec<Weak<LargeReader>>>);

impl ReaderSet {
    pub(crate) fn add(&self, reader: &Arc<LargeReader>) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(reader));
    }

    /// Gives each reader what `open` makes for its shape.
    pub(crate) fn replace(&self, open: impl Fn(&TableShape) -> Result<OpenImport, SourceError>) {
        let readers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for reader in readers.iter().filter_map(Weak::upgrade) {
            let now = open(&reader.shape);
            *reader.current.write().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }
}

impl Reader for LargeReader {
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool {
        self.current().is_ok_and(|open| open.reader.can_run_inline(read))
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        self.current()?.reader.get(key, row)
    }

    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.current()?.reader.get_inline(key, row)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.current()?.reader.list(query, row)
    }

    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.current()?.reader.list_inline(query, row)
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        self.current()?.reader.aggregate(aggregate)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        self.current()?.reader.search(search, row)
    }
}
