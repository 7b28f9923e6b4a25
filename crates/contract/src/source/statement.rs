//! Statements that an author wrote, and requests: what a source says about them, and how they run.

use super::{
    CancelFlag, ColumnFacts, ColumnShape, RowFlow, SourceError, SourceIdentity, StatementTransaction,
    TransactionOptions, WriteCapabilities, WriteError,
};
use crate::data_type::DataType;
use crate::value::ValueRef;

/// A statement as its source describes it.
#[derive(Debug, Clone, Default)]
pub struct StatementFacts {
    /// Names without the colon, in order of first use.
    pub parameters: Vec<String>,
    /// A column whose type is unknown is a mixed, nullable number.
    pub columns: Vec<ColumnFacts>,
    /// What the source can do with the write; `None` for a statement that only reads.
    pub writes: Option<WriteCapabilities>,
    /// The tables that it reads.
    pub tables: Vec<String>,
    /// Parameters that it stores unchanged in columns that do not accept every value.
    pub assignments: Vec<ColumnAssignment>,
    /// Parameters of LIMIT and OFFSET, which must be integers.
    pub limit_parameters: Vec<String>,
}

/// A parameter stored in a column that converts or rejects some values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnAssignment {
    pub parameter: String,
    pub column: String,
    /// The column's declared type.
    pub declared_type: String,
    pub accepts: AcceptedValues,
}

/// Which values a column accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedValues {
    /// Numbers; texts that are not numbers are rejected.
    Numbers,
    /// Numbers and texts; a text that looks like a number becomes one.
    NumbersAndTexts,
    /// Texts. A boolean is rejected, because the statement also uses the parameter where `true` cannot replace it.
    Texts,
}

/// An error in a statement, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementError {
    pub message: String,
    pub help: Option<String>,
    /// A byte range of the statement.
    pub span: Option<std::ops::Range<usize>>,
}

impl StatementError {
    pub(super) fn unsupported() -> Self {
        Self {
            message: "this source does not support statements".into(),
            help: Some("statements need a source that is a database".into()),
            span: None,
        }
    }
}

/// A statement as a contract runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct StatementShape {
    pub sql: String,
    pub parameters: Vec<String>,
    /// The type of each parameter's argument.
    pub parameter_types: Vec<DataType>,
    /// The result's columns; `source_index` is the index in the statement's own columns.
    pub columns: Vec<ColumnShape>,
    pub writes: bool,
    pub changes_max: u64,
    /// The author's timeout. With one, other calls may have to wait that long.
    pub timeout_ms: Option<u64>,
}

/// A statement that is ready to run.
pub trait PreparedStatement: Send + Sync {
    /// Whether it is short enough to run on the thread that received the call.
    fn can_run_inline(&self) -> bool;

    /// Runs a statement that only reads. Arguments come in the order of the parameters.
    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        cancelled: Option<&CancelFlag>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError>;

    /// Like [`PreparedStatement::read`], on a thread that must not block; see [`Reader::get_inline`].
    fn read_inline(
        &self,
        arguments: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        self.read(arguments, None, row)
    }

    /// Like [`PreparedStatement::read`], as a caller whom the source knows.
    fn read_as(
        &self,
        _identity: &SourceIdentity,
        _arguments: &[ValueRef<'_>],
        _cancelled: Option<&CancelFlag>,
        _row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        Err(SourceIdentity::unsupported())
    }

    /// Begins a transaction for a statement that writes.
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn StatementTransaction + '_>, WriteError>;
}

/// A request that is ready to be sent. Called only on threads that may block.
pub trait PreparedRequest: Send + Sync {
    /// Sends it and passes the rows of the response to `row`. Arguments come in the order of the parameters. In a
    /// [`WriteError::Rejected`], `column` is the index of a parameter.
    fn send(
        &self,
        arguments: &[ValueRef<'_>],
        options: &TransactionOptions,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), WriteError>;
}

/// The rows that a statement changed, including those changed by triggers and foreign keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeSummary {
    pub rows: u64,
    /// Identifies the changed rows and their contents. Only with [`CaptureMode::RowDigest`].
    pub digest: Option<[u8; 32]>,
}

/// Whether a statement's changed rows are digested or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMode {
    CountOnly,
    RowDigest,
}

/// The position of a row in a table without a key: its number, and the version of the table that it refers to.
/// Unused where there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowPosition {
    pub row_number: i64,
    pub table_version: i64,
    /// How many rows before it in the order have the same key. 0 as long as keys are unique.
    pub ties: u32,
}
