//! Reads in a transaction of their own: for statements of an author, and as a caller whom the database knows.
//!
//! The role and the settings of a caller end with the transaction, and every transaction of such a source sets them first. So a
//! connection never has those of the call before, however that ended.

use contract::source::{SourceError, SourceIdentity};

use crate::call::CallLimits;
use crate::connection::{Connection, OnRow, Sql};
use crate::error::{Cause, DbError, unavailable};
use crate::options::CallerMode;
use crate::pool::Pool;

impl Pool {
    /// Fails if the database must know its callers and this one is not known.
    pub(crate) fn check_caller(&self, identity: Option<&SourceIdentity>) -> Result<(), SourceError> {
        let is_complete = match (self.callers, identity) {
            (CallerMode::Connection, None) => true,
            (CallerMode::Settings, Some(_)) => true,
            (CallerMode::Role, Some(identity)) => identity.role.is_some(),
            (CallerMode::Settings | CallerMode::Role, None) | (CallerMode::Connection, Some(_)) => false,
        };
        if is_complete {
            return Ok(());
        }
        Err(SourceError::Refused {
            message: "the database must know who is calling".into(),
            detail: format!("no identity for a source with {:?}", self.callers),
        })
    }

    /// Runs a statement in a transaction that only reads and is rolled back.
    pub(crate) fn read_in_transaction(
        &self,
        identity: Option<&SourceIdentity>,
        sql: &Sql,
        limits: &CallLimits<'_>,
        row: &mut OnRow<'_>,
    ) -> Result<(), SourceError> {
        self.check_caller(identity)?;
        let mut has_passed_rows = false;
        let mut read = |connection: &mut dyn Connection| -> Result<(), DbError> {
            let ran = connection.read_in_transaction(identity, sql, limits, &mut |values| {
                has_passed_rows = true;
                row(values)
            });
            match ran {
                // It cannot begin again.
                Err(DbError::Lost { detail }) if has_passed_rows => Err(unavailable(detail).into()),
                ran => ran,
            }
        };
        self.with_connection(limits, |connection| {
            let ran = match read(connection) {
                // A table has changed since the statement was prepared here; nothing has been read.
                Err(DbError::Refused(refusal)) if refusal.cause == Cause::StalePlan => {
                    connection.roll_back()?;
                    read(connection)
                }
                ran => ran,
            };
            ran.map_err(|error| error.of_caller(identity))
        })
    }
}

impl DbError {
    /// What a caller may not do is no reason to doubt the tables.
    pub(crate) fn of_caller(self, identity: Option<&SourceIdentity>) -> Self {
        match self {
            Self::Refused(refusal) if identity.is_some() && refusal.cause == Cause::PermissionDenied => {
                Self::Source(SourceError::Refused {
                    message: "the database does not permit this to you".into(),
                    detail: refusal.detail,
                })
            }
            error => error,
        }
    }
}
