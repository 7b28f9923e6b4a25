//! The seam between a contract and where its data lives.
//!
//! A [`Source`] is a file or a database. It says what it has ([`Facts`]); the compiler chooses from that; and
//! [`Source::reader`] prepares, once, what calls will ask. A [`Reader`] answers from then on, or says why not.
//! A [`Writer`] changes one row by its key, and a [`Prepared`] statement is the author's own.

use std::fmt;
use std::sync::Arc;

use crate::data_type::DataType;
use crate::diagnostic::Diagnostic;
use crate::value::{Value, ValueRef};

/// Somewhere data lives.
pub trait Source: Send + Sync {
    /// What is there now. May take as long as reading everything once.
    fn introspect(&self) -> Result<SourceFacts, SourceError>;

    /// Prepares reading one table in the shape that was compiled. What the source holds later must keep to
    /// it; rows that do not are a [`SourceFault::Changed`].
    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError>;

    /// Prepares writing one table in the shape that was compiled. Asked only where [`TableFacts::read_only`] has
    /// nothing against it.
    fn writer(&self, _shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Err(SourceError::read_only())
    }

    /// What a statement takes and gives, and whether it writes, without running it.
    fn describe_statement(&self, _sql: &str) -> Result<StatementFacts, StatementError> {
        Err(StatementError::unsupported())
    }

    /// Prepares a statement that was examined.
    fn prepare(&self, _statement: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        Err(SourceError::read_only())
    }

    /// What is wrong with the data right now, for whoever owns it: with its place and a way out, where the
    /// source knows more than a fault tells callers. With a shape, what keeps a reader of it from being made.
    fn diagnose(&self, _shape: Option<&TableShape>) -> Option<Diagnostic> {
        None
    }
}

/// All tables of a source, in their own order.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts {
    pub tables: Vec<TableFacts>,
    /// What a person should know about how it was read: the encoding, the delimiter.
    pub notes: Vec<String>,
    /// What is there too, and is not served.
    pub skipped_tables: Vec<SkippedTable>,
    /// What stands between fields, where something does: an ASCII character.
    pub delimiter: Option<u8>,
}

/// A table that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTable {
    pub table: String,
    /// Half a sentence for whoever owns it.
    pub reason: String,
}

impl fmt::Display for SkippedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is left out: {}", self.table, self.reason)
    }
}

#[derive(Debug, Clone)]
pub struct TableFacts {
    /// As the source calls it: a table's name, or a file's without its ending.
    pub name: String,
    /// None where rows name their columns and there is no row.
    pub columns: Vec<ColumnFacts>,
    /// The columns that tell rows apart: the primary key, else the first column that happens to; else none.
    pub key: Vec<usize>,
    /// Whether the key is declared by the source, and not only found in its rows.
    pub key_is_declared: bool,
    pub row_count: Option<u64>,
    /// Why nothing can be written to it, if nothing can: half a sentence for whoever owns it.
    pub read_only_reason: Option<String>,
    /// How it can be searched.
    pub search: SearchFacts,
}

/// How a table can be searched for words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SearchFacts {
    /// Its rows are looked at, one after the other.
    #[default]
    Scan,
    /// There is an index over these columns, by place.
    Indexed(Vec<usize>),
}

#[derive(Debug, Clone)]
pub struct ColumnFacts {
    /// As the source calls it; may be blank, odd, or there twice.
    pub name: String,
    pub data_type: DataType,
    /// Whether there are rows without a value, or may be.
    pub nullable: bool,
    /// Whether there are values of another shape too, or may be: those are told as text.
    pub mixed: bool,
    /// All the different values there are, where they are few texts.
    pub distinct_values: Vec<String>,
    /// Whether a new row may leave it out: it has a default, or the source fills it in.
    pub has_default: bool,
    /// Why no caller can set it, if none can: it is computed.
    pub read_only_reason: Option<String>,
    /// What happens to values that are written, if they are not kept digit by digit: half a sentence for whoever
    /// owns it, behind the column's name.
    pub precision_loss: Option<String>,
    /// Whether it is all texts that are bytes in base64, and new ones are kept so: then it may be a blob.
    pub is_base64: bool,
    /// What all its values can be told as, where no reader looks at all of them when it is made. Where one does, it
    /// says which value does not fit.
    pub possible_types: Option<PossibleTypes>,
}

/// The kinds that all values of a column are of, as its source keeps them: none is ruled out before a value does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossibleTypes(Vec<(DataType, Option<String>)>);

impl Default for PossibleTypes {
    fn default() -> Self {
        Self(DataType::ALL.map(|kind| (kind, None)).to_vec())
    }
}

impl PossibleTypes {
    /// Takes one value into account. A text may turn out to mean "no value", so one that is not of a kind rules it
    /// out only together with another.
    pub fn observe(&mut self, value: ValueRef<'_>, is_of: impl Fn(DataType) -> bool) {
        self.0.retain_mut(|(kind, but)| {
            if is_of(*kind) {
                return true;
            }
            match (value, &but) {
                (ValueRef::Text(text), Some(but)) => text == but,
                (ValueRef::Text(text), None) if text.len() <= NULL_TEXT_BYTES_MAX => {
                    *but = Some(text.to_owned());
                    true
                }
                (_, _) => false,
            }
        });
    }

    /// Whether all values are of a kind, where this text means that there is none.
    pub fn includes(&self, kind: DataType, null: Option<&str>) -> bool {
        self.0.iter().any(|(one, but)| *one == kind && (but.is_none() || but.as_deref() == null))
    }
}

/// A longer text is not taken for one that means "no value".
const NULL_TEXT_BYTES_MAX: usize = 64;

impl TableFacts {
    /// A table without a key, whose rows nobody counted.
    pub fn new(name: impl Into<String>, columns: Vec<ColumnFacts>) -> Self {
        Self {
            name: name.into(),
            columns,
            key: Vec::new(),
            key_is_declared: false,
            row_count: None,
            read_only_reason: None,
            search: SearchFacts::Scan,
        }
    }
}

impl ColumnFacts {
    /// A column with a value of this kind in every row.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self {
            name: name.into(),
            data_type,
            nullable: false,
            mixed: false,
            distinct_values: Vec::new(),
            has_default: false,
            read_only_reason: None,
            precision_loss: None,
            is_base64: false,
            possible_types: None,
        }
    }
}

/// One table as a contract reads it. Columns are named as the source names them, by place in [`Facts`].
#[derive(Debug, Clone)]
pub struct TableShape {
    pub table: String,
    pub columns: Vec<ColumnShape>,
    /// Places in `columns`.
    pub key: Vec<usize>,
}

#[derive(Debug, Clone)]
pub struct ColumnShape {
    /// The place in [`TableFacts::columns`].
    pub source_index: usize,
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub mixed: bool,
    /// Text that means "no value".
    pub null_text: Option<String>,
}

/// Reads one table. Cells come in the order of the shape's columns.
pub trait Reader: Send + Sync {
    /// Whether such a read is short enough to be done where it arrives.
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool;

    /// Hands the row with this key to `row`; `false` if there is none.
    fn get(&self, key: &[ValueRef<'_>], row: &mut dyn FnMut(&[ValueRef<'_>])) -> Result<bool, SourceError>;

    /// Like [`Reader::get`], on a thread that must not block: a read that would have to wait for a lock, a file or
    /// another process returns [`SourceError::WouldBlock`] instead, and the caller repeats it where it may wait.
    fn get_inline(
        &self,
        key: &[ValueRef<'_>],
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        self.get(key, row)
    }

    /// Hands rows to `row` in order, each with its [`Place`], until `row` has enough. Returns how many pass the
    /// filters in all (whatever [`Query::after`] says), where that is known without more work.
    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<u64>, SourceError>;

    /// Like [`Reader::list`], on a thread that must not block; see [`Reader::get_inline`].
    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<u64>, SourceError> {
        self.list(query, row)
    }

    /// Hands rows that have every one of the words to `row`, the best first where there is an index, else in the
    /// order of the table, until `row` has enough.
    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<SearchCoverage, SourceError> {
        // Every reader has its own, in the end.
        let _ = (search, row);
        Err(SourceError::read_only())
    }
}

/// What a search is for. A row matches if each word is part of one of the columns, in any case of its letters.
#[derive(Debug)]
pub struct Search<'a> {
    /// At least one, none blank.
    pub terms: Vec<&'a str>,
    /// Places in the shape's columns.
    pub columns: &'a [usize],
    /// More rows than this will not be taken.
    pub rows_max: usize,
    /// More rows than this are not looked at where there is no index.
    pub scan_rows_max: usize,
    pub cancelled: Option<&'a std::sync::atomic::AtomicBool>,
    /// Grows with the rows that were looked at, where somebody wants to know.
    pub progress: Option<&'a std::sync::atomic::AtomicU64>,
}

/// How far a search came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchCoverage {
    /// Every row was looked at, or `row` had enough.
    Complete,
    /// There are rows beyond [`Search::scan_rows_max`].
    Truncated,
}

/// Changes one table, at most one row at a time. Always called where blocking is allowed.
pub trait Writer: Send + Sync {
    /// Does it, durably before it returns, or changes nothing. Whoever reads meanwhile sees all of it or nothing.
    fn write(
        &self,
        write: &WriteRequest<'_>,
        checks: &mut dyn WriteChecks,
    ) -> Result<WriteOutcome, WriteError>;
}

#[derive(Debug)]
pub struct WriteRequest<'a> {
    pub change: RowChange<'a>,
    /// What makes a repetition harmless: the same claim again gets what was told the first time.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Everything is judged, and nothing is kept.
    pub dry_run: bool,
    pub now_ms: u64,
    /// Rings when nobody waits any more. What is not kept by then is not kept at all: [`SourceFault::Stopped`].
    pub cancelled: Option<&'a std::sync::atomic::AtomicBool>,
}

/// Cells come with their places in the shape's columns. What is not named keeps its value, or its default.
///
/// A cell is what its column's kind says: an integer for `Integer` and `Int64`, 0 or 1 for `Boolean`, a real for
/// `Number`, bytes for `Blob`, and for all others a text, which for `Json` is JSON on one line. In a mixed column
/// any text may come. What the source cannot hold exactly is [`WriteFault::Refused`].
#[derive(Debug)]
pub enum RowChange<'a> {
    /// A key that is there already is [`WriteFault::Exists`].
    Create {
        values: &'a [(usize, ValueRef<'a>)],
    },
    /// A key that is not there is [`WriteFault::NotFound`].
    Update {
        key: &'a [ValueRef<'a>],
        values: &'a [(usize, ValueRef<'a>)],
    },
    Delete {
        key: &'a [ValueRef<'a>],
    },
}

/// One caller's idempotency key for one tool, and what they asked for with it. Both are digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key_digest: [u8; 32],
    pub request_digest: [u8; 32],
}

/// For so long a claim is kept at least, unless there are too many.
pub const IDEMPOTENCY_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The oldest go first.
pub const IDEMPOTENCY_RECORDS_MAX: usize = 10_000;

/// Stands by while a row is held, and writes down what is told of it.
pub trait WriteChecks {
    /// The row as it is, before an update or a delete. May object; for an update, may have further cells to set.
    fn before_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<(usize, Value)>, VersionConflict>;

    /// The row as it will be; for a delete, as it was. What is returned is kept with the claim.
    fn after_write(&mut self, row: &[ValueRef<'_>]) -> Result<Vec<u8>, ContractViolation>;
}

/// The row is not in the state that the caller means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionConflict;

/// The row as it would be cannot be told, so it is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContractViolation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The clerk knows what to tell.
    Done,
    /// It was done before, under the same claim: what was told then.
    Replayed(Vec<u8>),
}

/// Why nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error("nothing has this key")]
    NotFound,
    #[error("there is a record with this key already")]
    AlreadyExists,
    #[error("the record changed since it was read")]
    VersionConflict,
    #[error("this idempotency key was used for something else")]
    IdempotencyKeyReused,
    /// It cannot be told whether it was done: somebody else changed the file right after.
    #[error("whether this was done before cannot be told any more; read the record and decide")]
    OutcomeUnknown,
    /// A value that the source cannot hold exactly, or will not. Half a sentence: why.
    #[error("{reason}")]
    Rejected { column: Option<usize>, reason: String },
    /// It would change more rows than are allowed.
    #[error("this would change {rows} rows, and at most {max} are allowed; nothing was changed")]
    TooManyRows { rows: u64, max: u64 },
    #[error("the record as it would be does not fit its contract")]
    ContractViolation,
    /// It was written, and nobody knows whether a loss of power would undo it. Not to be done again without a claim.
    #[error("{message}")]
    DurabilityUnknown { message: String, detail: String },
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// What a statement takes and gives.
#[derive(Debug, Clone, Default)]
pub struct StatementFacts {
    /// Names without the colon, in order, each once.
    pub parameters: Vec<String>,
    /// A column whose kind cannot be known is a mixed, nullable number: told as it comes.
    pub columns: Vec<ColumnFacts>,
    pub writes: bool,
    /// What may be asked for by it reads tables, by name: for whoever wants to know what a tool can see.
    pub tables: Vec<String>,
    /// Parameters that it puts, as they are, into columns that do not keep everything.
    pub assignments: Vec<ColumnAssignment>,
    /// Parameters that say how many rows or where to begin, and so have to be integers.
    pub limit_parameters: Vec<String>,
}

/// A parameter on its way into a column that makes something else of some values, or refuses them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnAssignment {
    pub parameter: String,
    pub column: String,
    /// The column's type, as its source declares it.
    pub declared_type: String,
    pub accepts: AcceptedValues,
}

/// What such a column keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedValues {
    /// Texts that are no numbers are refused.
    Numbers,
    /// A text that looks like a number becomes one, others stay.
    NumbersAndTexts,
    /// No truth values: the statement has the parameter elsewhere too, where `true` could not stand for it.
    Texts,
}

/// What is wrong with a statement, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementError {
    pub message: String,
    pub help: Option<String>,
    /// Bytes of the statement.
    pub span: Option<std::ops::Range<usize>>,
}

impl StatementError {
    fn unsupported() -> Self {
        Self {
            message: "this source has no statements".into(),
            help: Some("statements are for sources of the kind `sqlite`".into()),
            span: None,
        }
    }
}

/// A statement as a contract runs it.
#[derive(Debug, Clone)]
pub struct StatementShape {
    pub sql: String,
    pub parameters: Vec<String>,
    /// What callers give for each of them.
    pub parameter_types: Vec<DataType>,
    /// Of the result; `at` is the place in the statement's own columns.
    pub columns: Vec<ColumnShape>,
    pub writes: bool,
    pub changes_max: u64,
    /// How long it may take, where its author says so: then others may have to wait for as long.
    pub timeout_ms: Option<u64>,
}

/// A statement that can be run.
pub trait PreparedStatement: Send + Sync {
    /// Whether it is short enough to be run where the call arrives.
    fn can_run_inline(&self) -> bool;

    /// Runs one that only reads. Arguments stand in the order of the parameters.
    fn read(
        &self,
        arguments: &[ValueRef<'_>],
        stop: Option<&std::sync::atomic::AtomicBool>,
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

    /// Runs one that writes: all of it or nothing. `told` writes down what is told of the rows that it returned
    /// and of how many were changed; that is kept with the claim. [`WriteFault::Refused`] has the place of a
    /// parameter where others have that of a column.
    fn write(
        &self,
        arguments: &[ValueRef<'_>],
        options: &StatementWriteOptions<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
        render_result: &mut dyn FnMut(&ChangeSummary) -> Result<Vec<u8>, ContractViolation>,
    ) -> Result<WriteOutcome, WriteError>;
}

/// What a statement did to rows, and all that followed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeSummary {
    pub rows: u64,
    /// The same for the same rows in the same state; another otherwise. For [`Which::Told`].
    pub digest: Option<[u8; 32]>,
}

/// Whether it matters which rows a statement changes, and not only how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMode {
    CountOnly,
    RowDigest,
}

#[derive(Debug, Clone, Copy)]
pub struct StatementWriteOptions<'a> {
    pub capture: CaptureMode,
    pub idempotency_key: Option<IdempotencyKey>,
    pub dry_run: bool,
    pub now_ms: u64,
    /// As in [`Write::stop`].
    pub cancelled: Option<&'a std::sync::atomic::AtomicBool>,
}

/// Where a row of a table without a key lies: the order there is, and which state of the table it counts in.
/// Means nothing where there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowPosition {
    pub row_number: i64,
    pub table_version: i64,
}

/// What is about to be read.
#[derive(Debug)]
pub enum ReadRequest<'a> {
    Get,
    List(&'a Query<'a>),
}

/// Which rows, and in which order. The key decides between rows that the sort leaves equal; rows without a
/// value in the sorted column come last either way.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pub filters: Vec<Filter<'a>>,
    pub sort: Option<Sort>,
    /// Rows up to and including this one have been seen.
    pub after: Option<&'a CursorPosition>,
    /// More rows than this will not be taken.
    pub rows_max: usize,
    /// Rings when nobody waits any more.
    pub cancelled: Option<&'a std::sync::atomic::AtomicBool>,
    /// Grows with the rows that were looked at, where somebody wants to know.
    pub progress: Option<&'a std::sync::atomic::AtomicU64>,
}

#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    /// The place in the shape's columns.
    pub column: usize,
    pub comparison: Comparison,
    pub value: ValueRef<'a>,
}

/// How a row's value stands to the filter's. A row without a value passes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    Equals,
    AtLeast,
    AtMost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sort {
    pub column: usize,
    pub descending: bool,
}

/// Where a page ended: the last row's sorted value, if there is a sort, and its key. Without a key its
/// [`Place`], as two integers: a place in another state of the table is [`SourceFault::Moved`].
#[derive(Debug, Clone, PartialEq)]
pub struct CursorPosition {
    pub sort_value: Option<Value>,
    pub key: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFlow {
    Continue,
    Stop,
}

/// Why a source has no answer. What the caller may read is `told`; what the driver said is for the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read now: missing, forbidden, out of reach. The same may work later.
    #[error("{message}")]
    Unavailable { message: String, detail: String },
    /// It can be read, and is not what the contract was made from, or nothing that could be. The same will not
    /// work until somebody changes it.
    #[error("{message}")]
    Incompatible { message: String, detail: String },
    /// Somebody else writes; the same will work in a moment.
    #[error("the source is busy; try again")]
    Busy { detail: String },
    #[error("this takes too long; ask for less")]
    Timeout,
    /// A statement cannot be run with what a caller gave, for the parameter at this place if one is to blame. Half a
    /// sentence: why.
    #[error("{reason}")]
    InvalidArgument { parameter: Option<usize>, reason: String },
    /// A cursor of a table without a key, from before the table changed.
    #[error("the data changed since this cursor was given; start again without it")]
    StaleCursor,
    #[error("stopped")]
    Cancelled,
    /// An inline read would have to wait. The host repeats it on the blocking pool; callers never see this.
    #[error("the source is busy; try again")]
    WouldBlock,
}

impl SourceError {
    /// Nobody asks for what cannot be had, but for a contract that was made from other facts.
    pub fn read_only() -> Self {
        let detail = "asked to write to what was said to be read only".into();
        Self::Unavailable { message: "this source is read only".into(), detail }
    }
}
