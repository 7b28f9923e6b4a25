//! The interface between a contract and the data: what every kind of source implements.
//!
//! A [`Source`] is a file or a database. It reports its tables and columns as [`SourceFacts`], from which the
//! compiler builds the contract. Then it prepares, once, what calls will use: a [`Reader`] and a [`Writer`] for each
//! collection, a [`PreparedStatement`] for each of the author's statements.

mod aggregate;
mod capabilities;
mod database_url;
mod identity;
mod keys;
mod layout_note;
mod location;
mod query;
mod rest_url;
mod statement;
mod transaction;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::column_format::ColumnFormat;
use crate::data_type::DataType;
use crate::diagnostic::Diagnostic;
use crate::infer::DeclaredFormats;
use crate::manifest::{DeclaredLayout, Operation};
use crate::request::RequestShape;
use crate::value::{Value, ValueRef};

pub use aggregate::{
    Aggregate, AggregateFunction, AggregateSort, DateUnit, GROUPS_MAX, GroupColumn, GroupRow, Groups, Having,
    Measure, SortTarget,
};
pub use capabilities::{WriteCapabilities, WriteSupport};
pub use database_url::{DatabaseEngine, DatabaseUrl, Secret};
pub use identity::SourceIdentity;
pub use keys::{AmbiguousKey, KeyMap, KeySet, LinkedValues, are_linkable};
pub use layout_note::{LayoutNote, LayoutNoteKind};
pub use location::{FileToWatch, SourceLocation, UnsupportedLocation};
pub use query::{
    Comparison, CursorPosition, Filter, LinkedSort, Query, ReadRequest, Sort, all_pass, required_filters,
};
pub use rest_url::{RestUrl, RestUrlError};
pub use statement::{
    AcceptedValues, CaptureMode, ChangeSummary, ColumnAssignment, PreparedRequest, PreparedStatement,
    RowPosition, StatementError, StatementFacts, StatementShape,
};
pub use transaction::{
    IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, RowChange, RowTransaction,
    StatementTransaction, Transaction, TransactionOptions, Verdict, WriteError, WriteOutcome, Writer,
    run_transaction,
};

/// Set when the caller has gone away or the call's time is up: the work should stop. Shared, so that a source can hand
/// it to a callback that outlives the borrow.
pub type CancelFlag = Arc<std::sync::atomic::AtomicBool>;

/// A file or database.
pub trait Source: Send + Sync {
    /// Reports the current tables and columns. May read all data once.
    fn introspect(&self) -> Result<SourceFacts, SourceError>;

    /// Prepares to read one table in its compiled shape. Later rows that do not fit it are a
    /// [`SourceError::Incompatible`].
    fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError>;

    /// Prepares to write one table in its compiled shape. Called only if [`TableFacts::write_support`] is not
    /// [`WriteSupport::ReadOnly`].
    fn writer(&self, _shape: &TableShape) -> Result<Arc<dyn Writer>, SourceError> {
        Err(SourceError::read_only())
    }

    /// Describes a statement without running it: its parameters, its columns, whether it writes.
    fn describe_statement(&self, _sql: &str) -> Result<StatementFacts, StatementError> {
        Err(StatementError::unsupported())
    }

    /// Prepares a statement that was described.
    fn prepare(&self, _statement: &StatementShape) -> Result<Arc<dyn PreparedStatement>, SourceError> {
        Err(SourceError::read_only())
    }

    /// Grows when [`Source::introspect`] finds other tables than the last time, so that readers and writers must be made again even if
    /// the contract is the same. 0 for a source whose readers follow its tables.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether the source should be introspected again: a call found something else than expected, or the source became unreachable or
    /// reachable again. Asking resets it.
    fn take_suspicion(&self) -> bool {
        false
    }

    /// Prepares a request that a tool sends.
    fn prepare_request(&self, _request: &RequestShape) -> Result<Arc<dyn PreparedRequest>, SourceError> {
        Err(SourceError::read_only())
    }

    /// The current problem with the data, for its owner: with the location and a fix, where the source knows more
    /// than its error tells callers. With a shape, the problem that prevents a reader of that shape.
    fn diagnose(&self, _shape: Option<&TableShape>) -> Option<Diagnostic> {
        None
    }
}

/// All tables of a source, in their own order.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts {
    pub tables: Vec<TableFacts>,
    /// How the data was read, for its owner: the encoding, the delimiter.
    pub notes: Vec<String>,
    /// Tables that cannot be served.
    pub skipped_tables: Vec<SkippedTable>,
    /// The ASCII character between the fields of a CSV file.
    pub delimiter: Option<u8>,
    /// Whether the source is a file whose texts may be numbers, dates and booleans in a
    /// [format](crate::ColumnFormat).
    pub reads_texts: bool,
    /// Who a database was read as.
    pub role: Option<DatabaseRole>,
}

/// The role of a connection to a database, and what it could do beyond reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseRole {
    pub name: String,
    /// What it could write, as clauses: what serving writes needs.
    pub writes: Vec<String>,
    /// What else it could do, as clauses.
    pub powers: Vec<String>,
}

/// A table that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTable {
    pub table: String,
    /// A clause for the owner of the data.
    pub reason: String,
}

impl fmt::Display for SkippedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not served: {}", self.table, self.reason)
    }
}

#[derive(Debug, Clone)]
pub struct TableFacts {
    /// The name in the source: of the table or sheet, or of the file without its extension.
    pub name: String,
    /// Empty for a JSON file without records.
    pub columns: Vec<ColumnFacts>,
    /// The primary key, else the first column that is unique in the current rows; else empty.
    pub key: Vec<usize>,
    /// Whether the source declares the key; otherwise it was detected in the current rows.
    pub key_is_declared: bool,
    pub row_count: Option<u64>,
    pub write_support: WriteSupport,
    /// Writing operations that never succeed although the table can be written, and why: a clause for the data's owner.
    pub refused_operations: Vec<(Operation, String)>,
    pub search: SearchFacts,
    /// The row that probably names the columns, if the header row looks like a title.
    pub likely_header_row: Option<u32>,
    /// Where the column names are, on a sheet or in a CSV file.
    pub header: Option<HeaderRows>,
    /// Rows that were left out, and what is doubtful about the others.
    pub layout_notes: Vec<LayoutNote>,
    /// Whether a write may invalidate values of this table, which [`Reader::notice`] then says.
    pub may_be_outdated: bool,
    /// Declared references to other tables of the source.
    pub foreign_keys: Vec<ForeignKey>,
    /// What its owner says about it in the source. The manifest may say otherwise.
    pub description: Option<String>,
}

/// A declared reference: rows whose `columns` equal the `target_columns` of a row of another table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Indexes into [`TableFacts::columns`].
    pub columns: Vec<usize>,
    /// The other table's name in the source; may be the same table.
    pub table: String,
    /// Names of the other table's columns, one for each of `columns`.
    pub target_columns: Vec<String>,
}

/// The rows with the names of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRows {
    /// Counted from 1; in a CSV file, the line.
    pub first: u32,
    pub count: u32,
}

/// How to read one table of a file, where its author knows more than the file tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableOptions {
    pub layout: DeclaredLayout,
    /// The texts that mean NULL in every column.
    pub null_texts: Vec<String>,
    /// Formats for the columns whose every value fits.
    pub formats: DeclaredFormats,
    pub columns: Vec<ColumnOptions>,
}

/// How to read one column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColumnOptions {
    pub name: String,
    /// The texts that mean NULL. `None`: those of the table.
    pub null_texts: Option<Vec<String>>,
    pub formats: DeclaredFormats,
    /// A JSON pointer: the column is a part of nested JSON. The first name is that of the column which has it.
    pub path: Option<String>,
}

impl TableOptions {
    fn column(&self, name: &str) -> Option<&ColumnOptions> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The texts that mean NULL in a column.
    pub fn null_texts(&self, column: &str) -> &[String] {
        let own = self.column(column).and_then(|column| column.null_texts.as_deref());
        own.unwrap_or(&self.null_texts)
    }

    /// The formats to try for a column that is of a type without them. Those of the table are for texts, and for
    /// numbers that may have another meaning.
    pub fn formats(&self, column: &str, data_type: DataType) -> DeclaredFormats {
        let own = self.column(column).map(|column| &column.formats).filter(|formats| !formats.is_empty());
        match data_type {
            _ if own.is_some() => own.cloned().unwrap_or_default(),
            DataType::Text | DataType::Decimal => self.formats.clone(),
            _ => DeclaredFormats::default(),
        }
    }
}

/// How a table can be searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SearchFacts {
    /// By scanning its rows.
    #[default]
    Scan,
    /// With a full-text index over these columns, by index.
    Indexed(Vec<usize>),
    /// With full-text indexes that find words. One is used if exactly its columns are searched. The first is for the default.
    Words(Vec<WordIndex>),
}

/// A full-text index of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordIndex {
    /// Indexes into [`TableFacts::columns`], in ascending order.
    pub columns: Vec<usize>,
    pub matching: WordMatching,
}

/// Which words of a row a search term finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordMatching {
    /// Words that begin with it.
    Beginnings,
    /// Whole words that this dictionary reduces to the same stem. It ignores very common words.
    Dictionary(String),
}

impl SearchFacts {
    /// How terms match if these columns are searched, in ascending order. `None` if they match parts of words.
    pub fn word_matching(&self, columns: &[usize]) -> Option<&WordMatching> {
        let Self::Words(indexes) = self else { return None };
        indexes.iter().find(|index| index.columns == columns).map(|index| &index.matching)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnFacts {
    /// The name in the source. May be blank, or the same as another column's.
    pub name: String,
    pub data_type: DataType,
    /// Whether rows without a value exist or are allowed.
    pub nullable: bool,
    /// Whether values of other types exist or are allowed; they are returned as text.
    pub mixed: bool,
    /// All distinct values of a text column that has few of them.
    pub distinct_values: Vec<String>,
    /// Whether a new row may omit it: it has a default, or the source fills it in.
    pub has_default: bool,
    /// Why callers cannot set it: it is computed.
    pub read_only_reason: Option<String>,
    /// How stored values lose digits: a clause for the owner of the data, after the column's name.
    pub precision_loss: Option<String>,
    /// Whether every value is a base64 text and new blobs are stored as base64: then it may be declared a blob.
    pub is_base64: bool,
    /// The types that every value fits. `None` where creating a reader checks every value and names the one that
    /// does not fit.
    pub possible_types: Option<PossibleTypes>,
    /// What the column almost is.
    pub near_miss: Option<NearMiss>,
    /// How the file writes the values, if not in the notation of their type.
    pub format: Option<ColumnFormat>,
    /// Why a text column has no format: every value fits several.
    pub ambiguous_format: Option<AmbiguousFormat>,
    /// What its owner says about it in the source. The manifest may say otherwise.
    pub description: Option<String>,
}

/// Formats that every value of a column fits, with different meanings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmbiguousFormat {
    /// At least two; or a single one that is doubtful, because the values may as well be codes, or lack a currency.
    pub formats: Vec<ColumnFormat>,
    /// The first value that shows it, and where it is. Of a file that is read only once, the first of all.
    pub first_value: String,
    pub first_location: String,
}

impl AmbiguousFormat {
    /// Whether a value shows why the formats are ambiguous: it means different things in two of them.
    pub fn is_shown_by(formats: &[ColumnFormat], value: &str) -> bool {
        let mut meanings = formats.iter().map(|format| format.parse(value));
        let first = meanings.next();
        formats.len() < 2 || meanings.any(|meaning| Some(meaning) != first)
    }

    /// Whether the values are numbers in every reading, which are unique by accident and identify nothing.
    pub fn is_number(&self) -> bool {
        self.formats.iter().all(|format| matches!(format, ColumnFormat::Number(_)))
    }
}

/// A column most of whose values are of a type, or look like it, while others are not: it sorts in an order that its
/// owner does not expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    pub looks_like: NearMissType,
    /// Values that are of the type.
    pub exact: u64,
    /// Values that only look like it: `1.234,50`, `$5`, `1/2/2026`.
    pub similar: u64,
    /// All values.
    pub total: u64,
    /// How many of `exact` are texts, in a column where the source stores others as numbers.
    pub exact_texts: u64,
    /// The first value that is not of the type, truncated.
    pub first_value: String,
    /// Whether every value that is not of the type is this text, as `#N/A` often is.
    pub is_only_exception: bool,
    /// The distinct values that neither are of the type nor look like it, if there are few.
    pub exceptions: Vec<String>,
    /// Where that value is: `C10`, `line 12`.
    pub first_location: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearMissType {
    Number,
    /// Every value is a whole number.
    Integer,
    Date,
    /// `9:05`, `1:00 PM`, `120:45:00`: they sort as text in another order than as times.
    Time,
}

/// The types that every value of a column fits, starting with all types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossibleTypes(Vec<(DataType, Option<String>)>);

impl Default for PossibleTypes {
    fn default() -> Self {
        Self(DataType::ALL.map(|kind| (kind, None)).to_vec())
    }
}

impl PossibleTypes {
    /// Removes the types that `value` does not fit. One text may turn out to mean NULL, so a type is removed only at
    /// the second distinct text that does not fit.
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

    /// Whether every value fits a type, if `null` is the text that means NULL.
    pub fn includes(&self, kind: DataType, null: Option<&str>) -> bool {
        self.0.iter().any(|(one, but)| *one == kind && (but.is_none() || but.as_deref() == null))
    }
}

/// A longer text is not a candidate for the text that means NULL.
const NULL_TEXT_BYTES_MAX: usize = 64;

impl TableFacts {
    /// A table without a key and with an unknown number of rows, in a source with complete transactions.
    pub fn new(name: impl Into<String>, columns: Vec<ColumnFacts>) -> Self {
        Self {
            name: name.into(),
            columns,
            key: Vec::new(),
            key_is_declared: false,
            row_count: None,
            write_support: WriteSupport::Supported(WriteCapabilities::ALL),
            refused_operations: Vec::new(),
            search: SearchFacts::Scan,
            likely_header_row: None,
            header: None,
            layout_notes: Vec::new(),
            may_be_outdated: false,
            foreign_keys: Vec::new(),
            description: None,
        }
    }

    /// Why an operation can never succeed: a clause for the owner of the data.
    pub fn refusal(&self, operation: Operation) -> Option<&str> {
        let refused = self.refused_operations.iter().find(|(refused, _)| *refused == operation);
        refused.map(|(_, reason)| reason.as_str())
    }

    /// Why the table cannot be written: a clause for the owner of the data.
    pub fn read_only_reason(&self) -> Option<&str> {
        self.write_support.read_only_reason()
    }
}

impl ColumnFacts {
    /// A column with a value of this type in every row.
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
            near_miss: None,
            format: None,
            ambiguous_format: None,
            description: None,
        }
    }
}

/// One table as a contract reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableShape {
    pub table: String,
    pub columns: Vec<ColumnShape>,
    /// Indexes into `columns`.
    pub key: Vec<usize>,
}

impl TableShape {
    /// Identifies the columns and the key, whatever this build calls its types internally.
    pub fn digest(&self) -> [u8; 32] {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        let mut part = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        part(self.table.as_bytes());
        for column in &self.columns {
            part(&(column.source_index as u64).to_be_bytes());
            part(column.name.as_bytes());
            part(column.data_type.as_str().as_bytes());
            part(&[u8::from(column.nullable), u8::from(column.mixed)]);
            part(column.null_texts.first().map_or("", String::as_str).as_bytes());
            part(&[u8::from(!column.null_texts.is_empty())]);
            column.null_texts.iter().skip(1).for_each(|text| part(text.as_bytes()));
            if let Some(format) = &column.format {
                part(format.to_string().as_bytes());
            }
        }
        for index in &self.key {
            part(&(*index as u64).to_be_bytes());
        }
        let mut out = [0; 32];
        out.copy_from_slice(context.finish().as_ref());
        out
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ColumnShape {
    /// The index in [`TableFacts::columns`].
    pub source_index: usize,
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub mixed: bool,
    /// The texts that mean NULL. A write uses the first.
    pub null_texts: Vec<String>,
    /// How the file writes the values, if not in the notation of their type.
    pub format: Option<ColumnFormat>,
}

/// What [`Reader::get_quickly`] has found.
#[derive(Debug, Clone, PartialEq)]
pub enum QuickRead {
    Row(Vec<Value>),
    NoRow,
    /// It takes longer or has failed: [`Reader::get`] says how.
    Unknown,
}

pub type QuickReadFuture = Pin<Box<dyn Future<Output = QuickRead> + Send>>;

/// What a reader counts while a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Scanned rows.
    Rows,
    /// Answered requests, of which one may return many rows.
    Requests,
}

/// Reads one table. Values come in the order of the shape's columns.
pub trait Reader: Send + Sync {
    fn progress_unit(&self) -> ProgressUnit {
        ProgressUnit::Rows
    }

    /// Whether such a read is short enough to run on the thread that received the call.
    fn can_run_inline(&self, read: &ReadRequest<'_>) -> bool;

    /// What callers should know about the values that this reader returns now, as a sentence: for example that some
    /// are outdated. Results carry it as a text of its own, and in their structured content if the table's facts say that
    /// values may be outdated.
    fn notice(&self) -> Option<Arc<str>> {
        None
    }

    /// Why a row may have a key under which it is not found, as a sentence: such as that values of the key are outdated.
    fn key_notice(&self) -> Option<Arc<str>> {
        None
    }

    /// The same table as a caller sees it whom the source knows: for a source that decides by itself which rows exist. Such a source
    /// refuses reads without a caller.
    fn as_caller<'r>(&'r self, _identity: &Arc<SourceIdentity>) -> Result<Box<dyn Reader + 'r>, SourceError> {
        Err(SourceIdentity::unsupported())
    }

    /// Passes the row with this key to `row`; returns `false` if there is none.
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

    /// Like [`Reader::get`], where that may take long: ends with [`SourceError::Cancelled`] when the caller has gone away.
    fn get_cancellable(
        &self,
        key: &[ValueRef<'_>],
        cancelled: &CancelFlag,
        row: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<bool, SourceError> {
        let _ = cancelled;
        self.get(key, row)
    }

    /// Like [`Reader::get`] for a source behind a network, if the answer comes at once: waits without occupying a thread.
    fn get_quickly(&self, _key: &[ValueRef<'_>]) -> Option<QuickReadFuture> {
        None
    }

    /// Passes rows to `row` in order, each with its [`RowPosition`], until `row` stops. Returns how many rows pass the
    /// filters in total, regardless of [`Query::after`]. A local source always knows a [`Total`]; `None` is for sources
    /// that cannot count without another request.
    fn list(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError>;

    /// Like [`Reader::list`], on a thread that must not block; see [`Reader::get_inline`].
    fn list_inline(
        &self,
        query: &Query<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<Option<Total>, SourceError> {
        self.list(query, row)
    }

    /// Groups the rows that pass the filters, and computes the measures of each group.
    fn aggregate(&self, aggregate: &Aggregate<'_>) -> Result<Groups, SourceError> {
        let _ = aggregate;
        Err(SourceError::read_only())
    }

    /// Passes rows that contain every term and pass the filters to `row` until `row` stops: the best match first with an
    /// index, else in an order that stays the same from page to page.
    fn search(
        &self,
        search: &Search<'_>,
        row: &mut dyn FnMut(&[ValueRef<'_>], RowPosition) -> RowFlow,
    ) -> Result<SearchOutcome, SourceError> {
        let _ = (search, row);
        Err(SourceError::read_only())
    }
}

/// How many rows match the filters of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    Exact(u64),
    /// Counting stopped at a bound; there may be more.
    AtLeast(u64),
}

impl Total {
    /// The number, if all rows were counted.
    pub fn exact(self) -> Option<u64> {
        match self {
            Self::Exact(rows) => Some(rows),
            Self::AtLeast(_) => None,
        }
    }
}

/// A search. A row matches if each term is part of one of the columns, ignoring case.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// At least one; none is blank.
    pub terms: Vec<&'a str>,
    /// Indexes into the shape's columns.
    pub columns: &'a [usize],
    /// A row must pass all of them.
    pub filters: Vec<Filter<'a>>,
    /// Start after this row.
    pub after: Option<&'a CursorPosition>,
    /// No more rows than this are needed.
    pub rows_max: usize,
    /// Without an index, no more rows than this are scanned.
    pub scan_rows_max: usize,
    pub cancelled: Option<&'a CancelFlag>,
    /// Counts the scanned rows, for progress notifications.
    pub progress: Option<&'a std::sync::atomic::AtomicU64>,
}

/// What a search found out besides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOutcome {
    pub coverage: SearchCoverage,
    /// How many rows match, regardless of [`Search::after`].
    pub total: Total,
    pub cursor: SearchCursor,
}

/// What the cursor of a search holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchCursor {
    /// The row, as in a list.
    Row,
    /// Only [`RowPosition::row_number`], as its one sort value.
    Position,
}

/// How many rows a search covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchCoverage {
    /// Every row, or enough of them for `row`.
    Complete,
    /// Not the rows beyond [`Search::scan_rows_max`].
    Truncated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFlow {
    Continue,
    Stop,
}

/// Why a source failed. `message` is for the caller and names no path and no driver; `detail` is for the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read now: missing, forbidden, unreachable. A retry may work.
    #[error("{message}")]
    Unavailable { message: String, detail: String },
    /// It can be read but does not fit the contract, or cannot be served at all. A retry fails until the data
    /// changes.
    #[error("{message}")]
    Incompatible { message: String, detail: String },
    /// Another program is writing; a retry will work.
    #[error("the data is locked by another writer; try again")]
    Busy { detail: String },
    /// Too many calls use the source now.
    #[error("too many calls use this source now; try again later")]
    Overloaded { retry_after_ms: u64 },
    #[error("the call timed out; add filters or a smaller limit")]
    Timeout,
    /// A statement cannot run with these arguments; `parameter` is the index of the one at fault. `reason` is a
    /// clause.
    #[error("{reason}")]
    InvalidArgument { parameter: Option<usize>, reason: String },
    /// The cursor of a table without a key, which has changed since.
    #[error("the data has changed since this cursor was issued; start again without a cursor")]
    StaleCursor,
    /// An aggregate would have more groups, or more different values to count, than fit in memory.
    #[error(
        "there are more than {groups_max} groups or different values; add filters, or group by fewer fields"
    )]
    TooManyGroups { groups_max: usize },
    /// More rows or pages would have to be read than is allowed. `message` names the limit.
    #[error("{message}")]
    TooMuchToRead { message: String },
    /// The source does not allow this, and would not allow it again.
    #[error("{message}")]
    Refused { message: String, detail: String },
    #[error("cancelled")]
    Cancelled,
    /// An inline read would have to wait. The host repeats it on the blocking pool; callers never see this.
    #[error("the data is locked by another writer; try again")]
    WouldBlock,
}

impl SourceError {
    /// Returned by the default implementations, which are called only with a contract made from other facts.
    pub fn read_only() -> Self {
        let detail = "write to a source that reported itself as read-only".into();
        Self::Unavailable { message: "this source is read-only".into(), detail }
    }
}
