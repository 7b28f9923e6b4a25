//! What reads or writes a database that could not be reached when the contract was made: it is prepared with the first call that
//! reaches the database, and fails then if the tables are not what the contract says.

use std::sync::{Arc, OnceLock};

use contract::ValueRef;
use contract::source::{
    Aggregate, CancelFlag, Groups, PreparedStatement, Query, QuickReadFuture, ReadRequest, Reader, RowFlow,
    RowPosition, RowTransaction, Search, SearchOutcome, SourceError, SourceIdentity, StatementTransaction,
    Total, TransactionOptions, WriteError, Writer,
};

use crate::read::TableReader;
use crate::source::Inner;
use crate::statement::DatabaseStatement;
use crate::write::TableWriter;

type Make<T> = dyn Fn(&Inner) -> Result<T, SourceError> + Send + Sync;

pub(crate) struct Deferred<T> {
    database: Arc<Inner>,
    make: Box<Make<T>>,
    made: OnceLock<T>,
}

impl<T> Deferred<T> {
    pub(crate) fn new(
        database: &Arc<Inner>,
        make: impl Fn(&Inner) -> Result<T, SourceError> + Send + Sync + 'static,
    ) -> Self {
        Self { database: Arc::clone(database), make: Box::new(make), made: OnceLock::new() }
    }

    fn get(&self) -> Result<&T, SourceError> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = (self.make)(&self.database)?;
        Ok(self.made.get_or_init(|| made))
    }
}

impl Reader for Deferred<TableReader> {
    fn can_run_inline(&self, _read: &ReadRequest<'_>) -> bool {
        false
    }

    fn as_caller<'r>(&'r self, identity: &Arc<SourceIdentity>) -> Result<Box<dyn Reader + 'r>, SourceError> {
        Self::get(self)?.as_caller(identity)
    }

    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError> {
        Self::get(self)?.get(key, row)
    }

    fn get_cancellable(
        &self,
        key: &[ValueRef<'_>],
        cancelled: &CancelFlag,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        Self::get(self)?.get_cancellable(key, cancelled, row)
    }

    fn get_quickly(&self, key: &[ValueRef<'_>]) -> Option<QuickReadFuture> {
        self.made.get()?.get_quickly(key)
    }

    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        Self::get(self)?.list(query, row)
    }

    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        Self::get(self)?.aggregate(aggregate)
    }

    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        Self::get(self)?.search(search, row)
    }
}

impl Writer for Deferred<TableWriter> {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        self.get()?.begin(options)
    }
}

impl PreparedStatement for Deferred<DatabaseStatement> {
    fn can_run_inline(&self) -> bool {
        false
    }

    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.get()?.read(arguments, cancelled, row)
    }

    fn read_as(
        &self,
        identity: &SourceIdentity,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.get()?.read_as(identity, arguments, cancelled, row)
    }

    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn StatementTransaction + '_>, WriteError> {
        self.get()?.begin(options)
    }
}
