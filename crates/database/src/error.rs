//! Errors of a database: what callers learn, and what only the log says.

use contract::source::SourceError;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum DbError {
    /// The connection is gone. What it was doing may or may not have happened.
    Lost {
        detail: String,
    },
    /// The database refused the statement.
    Refused(Refusal),
    Source(SourceError),
}

/// What the database says about a statement that it refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) cause: Cause,
    /// The column or constraint that it names.
    pub(crate) column: Option<String>,
    pub(crate) constraint: Option<String>,
    /// The character of the statement at which the error is, counted from 1.
    pub(crate) position: Option<usize>,
    /// For the log.
    pub(crate) detail: String,
}

/// The causes that mean something to a caller, for every engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A table or column is gone, or has another type.
    SchemaChanged,
    /// A statement that was prepared has to be prepared again.
    StalePlan,
    /// What a parameter is cannot be told from the statement.
    UnknownParameterType,
    PermissionDenied,
    /// A row with this key exists.
    Duplicate,
    /// A row that is referred to does not exist, or others refer to this one.
    ForeignKey,
    NotNull,
    Check,
    /// The value is out of range, too long, or not of the type.
    InvalidValue,
    /// Another transaction is in the way; a retry may work.
    Conflict,
    /// The database ended the statement: it took too long.
    Timeout,
    /// It accepts no more connections now.
    TooManyConnections,
    ReadOnly,
    /// Shutting down, starting up.
    Unavailable,
    Other,
}

impl From<SourceError> for DbError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl DbError {
    /// As the error of a read.
    pub(crate) fn into_source_error(self) -> SourceError {
        match self {
            Self::Source(error) => error,
            Self::Lost { detail } => unavailable(detail),
            Self::Refused(refusal) => refusal.into_source_error(),
        }
    }
}

impl Refusal {
    fn into_source_error(self) -> SourceError {
        let detail = self.detail;
        let incompatible =
            |message: &str| SourceError::Incompatible { message: message.into(), detail: detail.clone() };
        match self.cause {
            Cause::SchemaChanged | Cause::StalePlan | Cause::UnknownParameterType => {
                incompatible("the table has changed in the database since this server read it")
            }
            Cause::PermissionDenied => incompatible("the database does not permit this"),
            Cause::Conflict => SourceError::Busy { detail },
            Cause::Timeout => SourceError::Timeout,
            Cause::TooManyConnections | Cause::Unavailable => unavailable(detail),
            Cause::ReadOnly => incompatible("the database permits no change"),
            Cause::InvalidValue => SourceError::InvalidArgument {
                parameter: None,
                reason:
                    "the database does not accept a value: it is out of range, too long, or not of the type"
                        .into(),
            },
            Cause::Duplicate | Cause::ForeignKey | Cause::NotNull | Cause::Check | Cause::Other => {
                incompatible("the database refused the statement")
            }
        }
    }
}

/// The database cannot be used now.
pub(crate) fn unavailable(detail: impl Into<String>) -> SourceError {
    SourceError::Unavailable { message: "the database cannot be reached now".into(), detail: detail.into() }
}
